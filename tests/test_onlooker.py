"""The onlooker: a store seen from outside, beside the process that owns it, and left as it is."""

from __future__ import annotations

from random import Random

import pytest

from forebay import JournalCorrupt
from forebay.store.disk import File
from forebay.store.files import data_log_name
from forebay.store.metadata_store import MemoryMetadataStore
from forebay.store.onlooker import look
from forebay.store.simulated_disk import PowerCut
from message_stores import OpenStore
from staged_stores import roll, send, settle, small_bay


@pytest.mark.parametrize("seed", range(20))
def test_onlooker_finds_what_opening_would_and_changes_nothing(seed: int) -> None:
    """Of what a power cut left, torn tails and all."""
    random = Random(seed)
    simulated = small_bay(seed=seed)
    for _ in range(random.randint(1, 12)):
        send(simulated, "orders", *[bytes(random.randrange(3000))] * random.randint(1, 20))
        settle(simulated, "orders", random.randint(1, 12))
        random.choice((roll, lambda simulated: simulated.bay.cleanup(), lambda simulated: None))(simulated)
    image = simulated.disk.crash_power(random, random.choice((PowerCut.ANY, PowerCut.STALE, PowerCut.EXTENDED)))
    before = image.image()
    seen = {
        data_log: sum(pin.messages for pin in pins if pin.reason == "pending_message")
        for data_log, pins in look(image).pins.all().items()
    }
    assert image.image() == before
    opened = OpenStore(image, MemoryMetadataStore())
    uses = opened.store.index.uses
    assert seen == {data_log: use.pending_messages for data_log, use in uses.items() if data_log in seen}
    assert set(uses) - set(seen) <= {opened.store.journal.data_log}


def test_damage_is_refused_as_opening_refuses_it() -> None:
    simulated = small_bay(sync="always")
    send(simulated, "orders", b"1")
    roll(simulated)
    send(simulated, "orders", *[b"1"] * 5)
    simulated.disk.flip_bit(data_log_name(1), 200, 1)
    with pytest.raises(JournalCorrupt):
        look(simulated.disk)


def test_damage_in_the_newest_data_log_is_no_end() -> None:
    simulated = small_bay(sync="always")
    for _ in range(20):
        simulated.queue().send(b"x" * 100)
    simulated.disk.flip_bit(data_log_name(1), 700, 1)
    with pytest.raises(JournalCorrupt):
        look(simulated.disk)


def test_what_the_owner_writes_while_it_is_looked_at_is_no_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    simulated = small_bay(sync="always")
    send(simulated, "orders", b"1")
    disk = simulated.disk
    open_for_reading = disk.open_for_reading
    opened: list[str] = []

    def opening(name: str) -> File:
        opened.append(name)
        if len(opened) == 4:  # the replay has come to the end, and looks whether that is a torn tail
            for _ in range(3):
                simulated.queue().send(b"2")
        return open_for_reading(name)

    monkeypatch.setattr(disk, "open_for_reading", opening)
    assert [pin.messages for pin in look(disk).pins.of(1)] == [1, 0]
    assert len(opened) >= 4


def test_data_log_deleted_while_it_is_looked_at_means_looking_again(monkeypatch: pytest.MonkeyPatch) -> None:
    simulated = small_bay()
    send(simulated, "orders", b"1")
    roll(simulated)
    settle(simulated, "orders", 1)
    roll(simulated)
    disk = simulated.disk
    open_for_reading = disk.open_for_reading
    opened: list[str] = []

    def opening(name: str) -> File:
        opened.append(name)
        if len(opened) == 3:
            simulated.bay.cleanup()
        return open_for_reading(name)

    monkeypatch.setattr(disk, "open_for_reading", opening)
    assert list(look(disk).sizes) == [3]
