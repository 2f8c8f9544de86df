"""The onlooker: a store seen from outside, beside the process that owns it, and left as it is."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from compiled import interpreted
from message_stores import OpenStore
from simulated_disk import PowerCut
from simulated_metadata import SimulatedMetadataStore
from staged_stores import roll, send, settle, small_bay

from forebay import JournalCorrupt
from forebay.store.disk.disk import Disk, File
from forebay.store.disk.layout import data_log_name
from forebay.store.inspect import read_only as onlooker
from forebay.store.inspect.read_only import _ReadOnlyDisk, open_read_only
from forebay.store.journal.data_log import find_records


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
        data_log: sum(reason.messages for reason in reasons if reason.kind == "pending_message")
        for data_log, reasons in open_read_only(image).retention_reasons.all().items()
    }
    assert image.image() == before
    opened = OpenStore(image, SimulatedMetadataStore())
    uses = opened.store.index.data_log_uses
    assert seen == {data_log: use.pending_messages for data_log, use in uses.items() if data_log in seen}
    assert set(uses) - set(seen) <= {opened.store.journal.data_log}


def test_damage_is_refused_as_opening_refuses_it() -> None:
    simulated = small_bay(sync="always")
    send(simulated, "orders", b"1")
    roll(simulated)
    send(simulated, "orders", *[b"1"] * 5)
    simulated.disk.flip_bit(data_log_name(1), 200, 1)
    with pytest.raises(JournalCorrupt):
        open_read_only(simulated.disk)


def test_damage_in_the_newest_data_log_is_no_end() -> None:
    simulated = small_bay(sync="always")
    for _ in range(20):
        simulated.queue().send(b"x" * 100)
    simulated.disk.flip_bit(data_log_name(1), 700, 1)
    with pytest.raises(JournalCorrupt):
        open_read_only(simulated.disk)


@interpreted("replaces what compiled code has linked")
def test_what_the_owner_writes_while_it_is_looked_at_is_no_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    simulated = small_bay(sync="always")
    send(simulated, "orders", b"1")

    def find_later(*place: Any) -> Any:
        """The replay has come to the end, and looks whether that is a torn tail."""
        for _ in range(3):
            simulated.queue().send(b"2")
        return find_records(*place)

    monkeypatch.setattr(onlooker, "find_records", find_later)
    assert [reason.messages for reason in open_read_only(simulated.disk).retention_reasons.of(1)] == [1, 0]
    assert simulated.queue().depth == 4


@pytest.mark.parametrize("deleted_at", ["the listing", "the replay"])
def test_data_logs_deleted_meanwhile_hurt_nobody(deleted_at: str, monkeypatch: pytest.MonkeyPatch) -> None:
    simulated = small_bay()
    send(simulated, "orders", b"1")
    roll(simulated)
    settle(simulated, "orders", 1)
    roll(simulated)
    disk = simulated.disk
    list_names, listed = disk.list, []

    def listing(directory: str) -> list[str]:
        names = list_names(directory)
        listed.append(directory)
        if listed == ["journal", "journal"] if deleted_at == "the listing" else directory == "quarantine":
            simulated.bay.cleanup()
        return names

    monkeypatch.setattr(disk, "list", listing)
    assert list(open_read_only(disk).sizes) == [3]
    assert listed.count("quarantine") == 1


@interpreted("inherits from a compiled class")
def test_onlooker_closes_what_it_opened() -> None:
    simulated = small_bay()
    for _ in range(3):
        send(simulated, "orders", b"1")
        roll(simulated)
    disk = _CountingDisk(simulated.disk)
    open_read_only(disk)
    assert disk.opened > 0 and disk.opened == disk.closed


class _CountingDisk(_ReadOnlyDisk):
    """Knows how many files were opened and closed."""

    def __init__(self, disk: Disk) -> None:
        super().__init__(disk)
        self.opened = self.closed = 0

    def open_for_reading(self, name: str) -> File:
        file = super().open_for_reading(name)
        close = file.close
        self.opened += 1

        def counted() -> None:
            self.closed += 1
            close()

        file.close = counted  # type: ignore[method-assign]
        return file


WRITES = {
    "append": lambda disk: disk.open_for_reading("journal/data-1.log").append(b"x"),
    "seek": lambda disk: disk.open_for_reading("journal/data-1.log").seek(0),
    "truncate": lambda disk: disk.open_for_reading("journal/data-1.log").truncate(0),
    "preallocate": lambda disk: disk.open_for_reading("journal/data-1.log").preallocate(1),
    "create": lambda disk: disk.open("journal/data-2.log", create=True),
    "make_directory": lambda disk: disk.make_directory("quarantine"),
    "rename": lambda disk: disk.rename("journal/data-1.log", "quarantine/data-1.log"),
    "remove": lambda disk: disk.remove("journal/data-1.log"),
}


@pytest.mark.parametrize("call", WRITES)
def test_onlooker_cannot_write_even_by_mistake(call: str) -> None:
    simulated = small_bay()
    before = simulated.disk.image()
    with pytest.raises(AssertionError):
        WRITES[call](_ReadOnlyDisk(simulated.disk))
    assert simulated.disk.image() == before
