"""Damage at and around every record of a store that was synced with "always": no message is ever gone in silence."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Final, NamedTuple

import pytest
from crashing import without_logs
from journals import data_logs, walked
from manual_clock import ManualClock
from message_stores import OpenStore
from simulated_disk import SimulatedDisk
from simulated_metadata import SimulatedMetadataStore

from forebay import JournalCorrupt
from forebay.store.disk.layout import data_log_name

FILE_BYTES: Final = 8192
PAGE_BYTES: Final = 1024
"""Of what a device loses as a whole: small, so that a data log has several."""
SEED: Final = 20

KILLED, IDLE, CLOSED = "killed", "killed when idle", "closed"


class Store(NamedTuple):
    """A store of which all was confirmed, and how it ended. Nothing changes its disk."""

    disk: SimulatedDisk
    metadata: SimulatedMetadataStore
    bodies: dict[int, bytes]
    gone: set[int]
    """Of these the acknowledgement was confirmed."""
    ending: str
    ends: dict[int, list[int]]
    """Data log -> where each of its records begins, and where the last one ends."""


def filled(ending: str) -> Store:
    """Three data logs of one queue: messages alone and in slices, acknowledgements, a checkpoint on the way."""
    disk, metadata = SimulatedDisk(), SimulatedMetadataStore()
    opened = OpenStore(disk, metadata, max_file_bytes=FILE_BYTES)
    lane = opened.lane()
    bodies: dict[int, bytes] = {}
    gone: set[int] = set()
    while opened.store.journal.data_log < 3 or opened.store.journal.offset < FILE_BYTES * 3 // 4:
        first = lane.next_sequence
        batch = [b"%d " % (first + n) + b"body of a message " * (1 + (first + n) % 9) for n in range(1 + first % 3)]
        assert opened.add(*batch, lane=lane) == first
        bodies.update(enumerate(batch, first))
        opened.store.journal.sync()
        if first % 4 == 3:
            opened.remove(first - 3, first - 2)
            gone |= {first - 3, first - 2}
            opened.store.journal.sync()
        if first % 40 == 20:
            opened.store.checkpoint()
    if ending == IDLE:
        assert opened.store.attest()
    if ending == CLOSED:
        opened.store.close()
    metadata.synced()
    ends = {}
    for data_log in data_logs(disk):
        walk, records = walked(disk, data_log)
        ends[data_log] = [record.offset for record in records] + [walk.end]
    return Store(disk, metadata, bodies, gone, ending, ends)


class Damage(NamedTuple):
    kind: str
    data_log: int
    offset: int
    content: bytes
    """Of the whole data log, afterwards."""


def damages(store: Store, random: Random) -> Iterator[Damage]:
    """Each kind of damage at and around each boundary between two records."""
    image = store.disk.image()
    for data_log, ends in store.ends.items():
        whole = image[data_log_name(data_log)]
        for begin, end in zip([0, *ends], [*ends, len(whole)], strict=True):
            near = min(max(begin + random.randint(-3, 40), 0), ends[-1] - 1)
            page = begin // PAGE_BYTES * PAGE_BYTES
            flipped = whole[:near] + bytes([whole[near] ^ 1 << random.randrange(8)]) + whole[near + 1 :]
            record = whole[begin:end] if end < len(whole) or begin < ends[-1] else b""
            behind = whole[end:]
            kinds = {
                "a bit": (near, flipped),
                "a zeroed page": (page, whole[:page] + bytes(PAGE_BYTES) + whole[page + PAGE_BYTES :]),
                "zeros from a page on": (page, whole[:page] + bytes(len(whole) - page)),
                "zeros from a boundary on": (begin, whole[:begin] + bytes(len(whole) - begin)),
                "zeros from near a boundary on": (near, whole[:near] + bytes(len(whole) - near)),
                "a zeroed record": (begin, whole[:begin] + bytes(len(record)) + behind),
                "a dropped record": (begin, (whole[:begin] + behind).ljust(len(whole), b"\0")),
                "a doubled record": (begin, (whole[:end] + record + behind)[: len(whole)]),
                "cut at a boundary": (begin, whole[:begin]),
                "cut near a boundary": (near, whole[:near]),
            }
            for kind, (offset, content) in kinds.items():
                if content != whole:
                    yield Damage(kind, data_log, offset, content)


def damaged(store: Store, damage: Damage) -> SimulatedDisk:
    disk = store.disk.crash_process()
    name = data_log_name(damage.data_log)
    disk.remove(name)
    disk.open(name, create=True).append(damage.content)
    return disk


def readable(opened: OpenStore) -> tuple[dict[int, bytes], int]:
    """The pending messages that can be read, and how many others are known not to be."""
    found: dict[int, bytes] = {}
    unreadable = 0
    lane, at = opened.lane(), 0
    while True:
        with opened.lock:
            run = lane.pending_run(at, 1 << 30)
            if run is None:
                return found, unreadable
            regions = opened.store.plan(lane, [run])
        messages, problems = opened.store.read(regions)
        found.update({message[0]: message[2] for message in messages if message[2] is not None})
        unreadable += len(problems)
        at = run[1] + 1


def outcome(store: Store, damage: Damage, *, reports: bool, with_index: bool) -> str:
    """What opening did. AssertionError where a message is gone, or one comes back, and nothing says so."""
    metadata = SimulatedMetadataStore(store.metadata._history[-1]) if with_index else SimulatedMetadataStore()
    disk = damaged(store, damage)
    try:
        opened = OpenStore(
            disk, metadata, max_file_bytes=FILE_BYTES, clock=ManualClock(7), accepts_loss=reports
        )
    except JournalCorrupt as corrupt:
        assert f"data-{corrupt.data_log}.log at offset {corrupt.offset}:" in str(corrupt)
        return "refused"
    report = opened.report
    found, unreadable = readable(opened)
    lost = store.bodies.keys() - store.gone - found.keys()
    back = found.keys() & store.gone
    assert all(body == store.bodies[sequence] for sequence, body in found.items())
    if report.damaged:
        assert reports
        return "reported"
    assert len(lost) == unreadable, f"lost in silence: {sorted(lost)}, {unreadable} unreadable, {report}"
    assert not back, f"come back in silence: {sorted(back)}, {report}"
    return "unreadable" if lost else "nothing lost"


@pytest.mark.parametrize("ending", [KILLED, IDLE, CLOSED])
def test_no_damage_to_a_journal_that_was_known_durable_costs_a_message_in_silence(ending: str) -> None:
    """Opening refuses it with its place, or names it, or every message that was confirmed is there or counted."""
    random = Random(SEED)
    store = filled(ending)
    outcomes: Counter[str] = Counter()
    bad = []
    with without_logs():
        for damage in damages(store, random):
            choice = {"reports": random.random() < 0.5, "with_index": random.random() < 0.5}
            try:
                outcomes[outcome(store, damage, **choice)] += 1
            except AssertionError as error:
                bad.append(f"{damage[:3]}, {choice}: {error}")
    print(f"seed {SEED}: {outcomes}")
    print("\n".join(bad[:60]), len(bad))
    assert not bad
