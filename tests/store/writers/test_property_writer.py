"""PropertyWriter: small values of the host are set and deleted, all of a change or nothing."""

from __future__ import annotations

import pytest
from message_stores import OpenStore
from simulated_disk import SimulatedDisk
from simulated_metadata import SimulatedMetadataStore
from writing import killed, refused_by_a_full_disk

from forebay import PropertiesFull, StoreFull
from forebay.store.format.retained import RetainedMessage, encode_retained, retained_name
from forebay.store.format.times import encode_times
from forebay.store.state.property_table import PropertyTable

VALUES = {"a": b"1", "b": b"", "ß": b"3"}


def change(opened: OpenStore, changes: dict[str, bytes | None]) -> None:
    with opened.lock:
        opened.store.property_writer.change(changes)


def values(opened: OpenStore) -> dict[str, bytes]:
    return dict(opened.store.host_properties.values)


def test_changes_survive_a_kill(opened: OpenStore) -> None:
    change(opened, {**VALUES, "gone": b"soon"})
    change(opened, {"a": b"2", "gone": None})
    assert values(killed(opened)) == values(opened) == {**VALUES, "a": b"2"}


def test_change_that_a_full_disk_refuses_changes_nothing_and_holds_no_memory(opened: OpenStore) -> None:
    change(opened, dict(VALUES))
    table = opened.store.host_properties
    held_bytes = table.held_bytes
    with refused_by_a_full_disk(opened):
        change(opened, {"a": None, "new": b"value"})
    assert values(opened) == values(killed(opened)) == VALUES and table.held_bytes == held_bytes
    table._check()


def test_a_full_store_takes_deletions_and_no_values() -> None:
    opened = OpenStore(SimulatedDisk(), SimulatedMetadataStore(), store_limit=100_000)
    change(opened, dict(VALUES))
    with pytest.raises(StoreFull):
        while True:
            opened.add(bytes(1000))
    with pytest.raises(StoreFull):
        change(opened, {"new": bytes(1000)})
    change(opened, {"a": None, "b": None})
    assert values(opened) == {"ß": b"3"}


def test_staged_changes_take_effect_with_the_commit(opened: OpenStore) -> None:
    change(opened, dict(VALUES))
    writer = opened.store.transaction_writer
    with opened.lock:
        branch = writer.begin()
        opened.store.property_writer.stage(branch, {"a": None, "new": b"4"})
        assert values(opened) == VALUES
        writer.commit(branch, {})
    assert values(killed(opened)) == values(opened) == {"b": b"", "ß": b"3", "new": b"4"}


def test_retained_messages_that_have_expired_make_room_for_properties() -> None:
    def kept(expires_at: int) -> bytes:
        return encode_retained(RetainedMessage(0, 4, encode_times(expires_at, 0), bytes(1000)))

    opened = OpenStore(SimulatedDisk(), SimulatedMetadataStore(), host_properties=PropertyTable(limit_bytes=4096))
    soon_ms = opened.store.steady_clock.now_ms() + 1000
    change(opened, {retained_name(1): kept(soon_ms), retained_name(2): kept(soon_ms + 1_000_000)})
    with pytest.raises(PropertiesFull):
        change(opened, {"large": bytes(2000)})
    opened.clock.advance(2)
    change(opened, {"large": bytes(2000)})
    table = opened.store.host_properties
    assert values(opened) == {"large": bytes(2000)} and not table.retained(1) and table.retained(2)
