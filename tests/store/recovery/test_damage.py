"""Damage at and around every record of a store that was synced with "always": no message is ever gone in silence."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Final, NamedTuple

import pytest
from crashing import same, without_logs
from journals import data_logs, walked
from message_stores import OpenStore
from simulated_disk import PowerCut, SimulatedDisk
from simulated_metadata import SimulatedMetadataStore

from forebay import JournalCorrupt
from forebay.store.disk.layout import data_log_name
from forebay.store.format.record import MESSAGE, decode_slice
from forebay.store.recovery.repair import DamagedPlace
from forebay.testing import ManualClock

FILE_BYTES: Final = 8192
PAGE_BYTES: Final = 1024
"""Of what a device loses as a whole: small, so that a data log has several."""
FIRST_SEED: Final = int(os.environ.get("FOREBAY_SEED", "1"))
SOAK_SEEDS: Final = 20
SHARE: Final = 0.36
"""Of the damages, how many each run tries; `make soak` tries all of them, with more seeds."""

OUT_OF_ORDER: Final = ("a doubled record", "a dropped record")
"""Records that verify, and are not those that are due: that is no damage of bytes, and refused in either mode."""

KILLED, IDLE, CLOSED = "killed", "killed when idle", "closed"


class Place(NamedTuple):
    data_log: int
    begin: int
    end: int


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
    places: dict[int, Place]
    """Sequence -> where the slice of the message lies."""

    def is_named(self, sequence: int, damaged: DamagedPlace) -> bool:
        """Whether the damage that was named takes any of the message's slice, by its bytes or by its records."""
        place = self.places[sequence]
        if place.data_log != damaged.data_log or place.end <= damaged.offset:
            return False
        from_there = [end for end in self.ends[place.data_log] if end > damaged.offset]
        nth = from_there.index(place.end)
        by_bytes = place.begin < damaged.offset + damaged.lost_bytes
        return by_bytes or damaged.lost_records is None or nth < damaged.lost_records


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
        opened.store.syncer.sync()
        if first % 4 == 3:
            opened.remove(first - 3, first - 2)
            gone |= {first - 3, first - 2}
            opened.store.syncer.sync()
        if first % 40 == 20:
            opened.store.checkpointer.checkpoint()
    if ending == IDLE:
        assert opened.store.attestation.write()
    if ending == CLOSED:
        opened.store.close()
    metadata.synced()
    ends = {}
    places: dict[int, Place] = {}
    for data_log in data_logs(disk):
        walk, records = walked(disk, data_log)
        ends[data_log] = [record.offset for record in records] + [walk.end]
        for offset, header, head in records:
            if header.kind == MESSAGE:
                first = decode_slice(header, head).first_sequence
                place = Place(data_log, offset, offset + header.length)
                places |= dict.fromkeys(range(first, first + header.entries), place)
    assert places.keys() == bodies.keys()
    return Store(disk, metadata, bodies, gone, ending, ends, places)


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
            regions = opened.store.message_store.plan(lane, [run])
        messages, problems = opened.store.message_store.read(regions)
        found.update({message[0]: message[2] for message in messages if message[2] is not None})
        unreadable += len(problems)
        at = run[1] + 1


def outcome(store: Store, damage: Damage, *, reports: bool, with_index: bool) -> str:
    """What opening did. AssertionError where a message is gone, or one comes back, and nothing says so."""
    metadata = SimulatedMetadataStore(store.metadata.history[-1]) if with_index else SimulatedMetadataStore()
    disk = damaged(store, damage)
    try:
        opened = OpenStore(disk, metadata, max_file_bytes=FILE_BYTES, clock=ManualClock(7), accepts_loss=reports)
    except JournalCorrupt as corrupt:
        assert not reports or damage.kind in OUT_OF_ORDER, f"refused, though it was to be reported: {corrupt}"
        assert f"data-{corrupt.data_log}.log at offset {corrupt.offset}:" in str(corrupt)
        return "refused"
    report = opened.report
    assert reports or not report.damaged
    found, unreadable = readable(opened)
    assert all(body == store.bodies[sequence] for sequence, body in found.items()), "bytes that were never sent"
    lost = store.bodies.keys() - store.gone - found.keys()
    unnamed = {sequence for sequence in lost if not any(store.is_named(sequence, named) for named in report.damaged)}
    assert len(unnamed) <= unreadable, f"lost in silence: {sorted(unnamed)}, {unreadable} unreadable, {report}"
    if report.damaged:
        return "reported"
    assert len(lost) == unreadable, f"{unreadable} are named as unreadable, lost are {sorted(lost)}, {report}"
    assert not found.keys() & store.gone, f"come back in silence: {sorted(found.keys() & store.gone)}, {report}"
    return "unreadable" if lost else "nothing lost"


def try_damages(ending: str, seed: int, share: float) -> Counter[str]:
    random = Random(seed)
    store = filled(ending)
    outcomes: Counter[str] = Counter()
    with without_logs():
        for damage in damages(store, random):
            if random.random() >= share:
                continue
            choice = {"reports": random.random() < 0.5, "with_index": random.random() < 0.5}
            try:
                outcomes[outcome(store, damage, **choice)] += 1
            except AssertionError as error:
                raise AssertionError(f"seed {seed}, {damage[:3]}, {choice}: {error}") from error
    return outcomes


@pytest.mark.parametrize("ending", [KILLED, IDLE, CLOSED])
def test_no_damage_to_a_journal_that_was_known_durable_costs_a_message_in_silence(ending: str) -> None:
    """Opening refuses it with its place, or names it, or every message that was confirmed is there or counted."""
    outcomes = try_damages(ending, FIRST_SEED, SHARE)
    assert outcomes.keys() == {"refused", "reported", "unreadable", "nothing lost"}
    assert outcomes.total() > 400, outcomes


@pytest.mark.soak
@pytest.mark.parametrize("ending", [KILLED, IDLE, CLOSED])
def test_no_damage_of_many_costs_a_message_in_silence(ending: str) -> None:
    """FOREBAY_SEED draws others than the last time."""
    for seed in range(FIRST_SEED, FIRST_SEED + SOAK_SEEDS):
        try_damages(ending, seed, 1.0)


def life_with_power_cuts(power_cut: PowerCut, seed: int) -> list[tuple[SimulatedDisk, int]]:
    """What cuts at calls of a working store leave, and how many messages had been synced by then."""
    random = Random(seed)
    disk = SimulatedDisk()
    opened = OpenStore(disk, SimulatedMetadataStore(), max_file_bytes=FILE_BYTES)
    synced = 0
    left: list[tuple[SimulatedDisk, int]] = []

    def cut(call: str, name: str) -> None:
        if random.random() < 0.02:
            left.append((disk.crash_power(random, power_cut), synced))

    disk.on_call = cut
    for n in range(40):
        opened.add(b"%d " % n + bytes(random.randrange(400)))
        if random.random() < 0.5:
            opened.store.syncer.sync()
            synced = n + 1
    disk.on_call = None
    return left


@pytest.mark.parametrize("power_cut", [PowerCut.ANY, PowerCut.STALE, PowerCut.SYNCED])
def test_power_cut_is_never_taken_for_damage_by_the_mark(power_cut: PowerCut) -> None:
    """The mark may be old or torn then, never ahead of the journal: what is not synced is a torn tail, as before."""
    torn = 0
    for seed in range(FIRST_SEED, FIRST_SEED + 150):
        for disk, synced in life_with_power_cuts(power_cut, seed):
            with without_logs():
                again = OpenStore(disk, SimulatedMetadataStore(), max_file_bytes=FILE_BYTES)
            assert len(again.bodies()) >= synced, f"seed {seed}"
            torn += again.report.truncated_bytes > 0
    assert torn or power_cut is PowerCut.SYNCED, "it was tried enough"


def test_store_whose_checkpoint_lies_inside_the_damage_opens_with_report() -> None:
    """The place where a replay would begin is none any more: the whole journal is replayed."""
    disk, metadata = SimulatedDisk(), SimulatedMetadataStore()
    opened = OpenStore(disk, metadata, max_file_bytes=FILE_BYTES)
    opened.add(b"before")
    begin = opened.store.journal.offset
    opened.add(b"damaged 1")
    opened.store.checkpointer.checkpoint()
    opened.add(b"damaged 2")
    end = opened.store.journal.offset
    opened.add(b"behind")
    opened.store.syncer.sync()
    image = disk.crash_process()
    image.zero(data_log_name(1), begin, end - begin)
    with without_logs():
        with pytest.raises(JournalCorrupt):
            OpenStore(image.crash_process(), same(metadata), max_file_bytes=FILE_BYTES)
        again = OpenStore(image, same(metadata), max_file_bytes=FILE_BYTES, accepts_loss=True)
    assert [(place.offset, place.lost_bytes) for place in again.report.damaged] == [(begin, end - begin)]
    assert again.report.index_rebuilt and again.bodies() == [b"before", b"behind"]
    assert again.add(b"new") == 4, "no sequence is given twice"
