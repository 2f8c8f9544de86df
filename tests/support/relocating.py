"""Helpers for relocation: stores in which it has work, and its steps as calls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from crash_workload import canonical
from journals import data_logs
from message_stores import OpenStore
from simulated_disk import SimulatedDisk
from simulated_metadata import SimulatedMetadataStore

from forebay.store.disk.layout import data_log_name
from forebay.store.environment.locks import OwnedLock
from forebay.store.index.destination_lane import DestinationLane
from forebay.store.maintenance.relocation import Relocation

KIB = 1024
FILE_BYTES = 64 * KIB
BODY = bytes(1000)


def opened_on(disk: SimulatedDisk, metadata: SimulatedMetadataStore | None = None, **fields: Any) -> OpenStore:
    return OpenStore(disk, metadata or SimulatedMetadataStore(), **({"max_file_bytes": FILE_BYTES} | fields))


def begin_data_log(opened: OpenStore) -> int:
    """Begin a data log; return its id."""
    with opened.lock:
        opened.store.journal.roll()
        return opened.store.journal.data_log


def fill_data_log(opened: OpenStore, lane: DestinationLane | None = None, body: bytes = BODY) -> range:
    """Send messages until a new data log begins; return their sequences, all of the previous data log."""
    lane = lane or opened.lane()
    data_log = begin_data_log(opened)
    first = lane.next_sequence
    while opened.store.journal.offset + 2 * (len(body) + 64) < FILE_BYTES:
        opened.add(body, lane=lane)
    assert opened.store.journal.data_log == data_log
    sequences = range(first, lane.next_sequence)
    begin_data_log(opened)
    return sequences


def with_stuck_messages(opened: OpenStore, count: int) -> list[int]:
    """Fill data logs, in each of which one message in the middle stays pending; return their sequences."""
    stuck = []
    for _ in range(count):
        sequences = fill_data_log(opened)
        stuck.append(sequences[len(sequences) // 2])
        opened.remove(sequences[0], stuck[-1] - 1)
        opened.remove(stuck[-1] + 1, sequences[-1])
    return stuck


def journal_bytes(disk: SimulatedDisk) -> int:
    return sum(len(disk.image()[data_log_name(data_log)]) for data_log in data_logs(disk))


def live_bytes(opened: OpenStore) -> int:
    return opened.store.disk_use.statistics().live_bytes


def sequences_of(opened: OpenStore, lane: DestinationLane | None = None) -> list[int]:
    return [sequence for sequence, _, _, _ in opened.pending(lane)]


def assert_bounded(opened: OpenStore, disk: SimulatedDisk) -> None:
    assert journal_bytes(disk) <= 2 * live_bytes(opened) + 3 * FILE_BYTES


def indexes_of(metadata: Any) -> list[SimulatedMetadataStore]:
    """Return an empty index, and each index that a power cut could bring back, the newest last."""
    return [SimulatedMetadataStore(checkpoint) for checkpoint in (None, *metadata.history[1:])]


def assert_same_places(one: OpenStore, other: OpenStore) -> None:
    """Assert that two stores have the same lanes with the same places; lanes without messages do not count."""
    places, expected = ({lane: found for lane, found in canonical(o.store).items() if found[0]} for o in (one, other))
    assert places == expected


def assert_journal_tells_the_same(opened: OpenStore, disk: SimulatedDisk) -> None:
    """Assert that the next process has the same messages as this one, whatever index is left, or none."""
    opened.store.syncer.sync()
    uses = opened.store.index.data_log_uses
    for metadata in indexes_of(opened.metadata):
        again = opened_on(disk.crash_process(), metadata)
        assert_same_places(again, opened)
        found = again.store.index.data_log_uses
        for data_log, use in uses.items():
            counts = found[data_log].pending_messages, found[data_log].pending_bytes
            assert counts == (use.pending_messages, use.pending_bytes)
            assert use.acked_data_logs <= found[data_log].acked_data_logs
        assert again.pending() == opened.pending()
        again.check()


def steps(work: Relocation, lock: OwnedLock, data_log: int, *, is_naming: bool, freed_bytes: int = 0) -> Iterator[bool]:
    """Relocate out of a data log, worth its cost or not; yield whether each step did something."""
    with lock:
        work._source = work._opened(data_log, is_naming, freed_bytes)
        goal = work.thorough_goal()
    while work._source is not None:
        yield work.step(goal)


def place_of(work: Relocation) -> str:
    """Return where the next step goes on: in the heads of a data log, in the index, or nowhere, at the end."""
    source = work._source
    return "end" if source is None else "heads" if source.lanes is None else "index"


def advance(opened: OpenStore, data_log: int, is_naming: bool, freed_bytes: int) -> None:
    work = opened.store.cleanup.relocation
    assert all(steps(work, opened.lock, data_log, is_naming=is_naming, freed_bytes=freed_bytes))


def relocate(opened: OpenStore, data_log: int) -> None:
    """Copy all live messages of a data log, even if the copy is not worth its cost."""
    advance(opened, data_log, False, 0)


def name_survivors(opened: OpenStore, data_log: int) -> None:
    """Write a survivors record of a data log, even if it is not worth its cost."""
    advance(opened, data_log, True, 1 << 40)
