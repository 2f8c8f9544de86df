"""The index: which messages are pending and where they lie, in bounded RAM, whatever is evicted, stored or lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

import pytest
from extents import by_record
from simulated_metadata import SimulatedMetadataStore

from forebay.store.environment.account import Unlimited
from forebay.store.format.record import ENTRY_BYTES, SLICE_BYTES
from forebay.store.format.state_record import LaneCounts, UseCounts
from forebay.store.index.block import BLOCK_CHARGE_BYTES, Block
from forebay.store.index.block_cache import BlockLane
from forebay.store.index.destination_lane import DestinationLane
from forebay.store.index.index import Index
from forebay.store.numbering import BLOCK_MESSAGES, BLOCK_SHIFT

CAPACITY_BLOCKS = 16
QUEUE, OTHER = 1, 2
PRIORITY = 4


class CountingList(list[int]):
    """A list that counts the walks over it."""

    walks = 0

    def __iter__(self) -> Iterator[int]:
        self.walks += 1
        return super().__iter__()


class Place(NamedTuple):
    data_log: int
    offset: int
    length: int
    skip: int
    record_messages: int
    record_bytes: int


Taken = tuple[list[tuple[BlockLane, Block, bytes]], list[tuple[int, int]]]


@dataclass
class Model:
    """What the index should say, message by message."""

    pending: dict[int, dict[int, Place]] = field(default_factory=lambda: {QUEUE: {}, OTHER: {}})
    next_sequence: Counter[int] = field(default_factory=Counter)
    acked: dict[int, set[int]] = field(default_factory=dict)
    """Data log -> others that hold messages acknowledged in it."""
    data_logs: set[int] = field(default_factory=lambda: {1})
    newest: int = 1
    offset: int = 64

    def copy(self) -> Model:
        return Model(
            {destination: pending.copy() for destination, pending in self.pending.items()},
            self.next_sequence.copy(),
            {data_log: acked.copy() for data_log, acked in self.acked.items()},
            self.data_logs.copy(),
            self.newest,
            self.offset,
        )


class Store:
    """An index over a metadata store in memory, with its model beside it."""

    def __init__(self, cache_bytes: int = CAPACITY_BLOCKS * BLOCK_CHARGE_BYTES) -> None:
        self.metadata = SimulatedMetadataStore()
        self.account = Unlimited()
        self.model = Model()
        self._cache_bytes = cache_bytes
        self._checkpoint: tuple[Model, list[LaneCounts], list[UseCounts]] = (self.model.copy(), [], [])
        self.index = self._fresh()

    def _fresh(self) -> Index:
        index = Index(account=self.account, cache_bytes=self._cache_bytes, read_block=self.metadata.read_block)
        for data_log in self.model.data_logs:
            index.use(data_log)
        return index

    def lane(self, destination: int = QUEUE) -> DestinationLane:
        return self.index.ensure_lane(destination, PRIORITY)

    def add(self, count: int = 1, *, length: int = 100, destination: int = QUEUE, as_slice: bool = False) -> None:
        """One record; count 1 takes the path of single sends, unless it is to be a slice of one."""
        model, lane = self.model, self.lane(destination)
        size = SLICE_BYTES + count * (ENTRY_BYTES + length)
        use = self.index.data_log_uses[model.newest]
        if count == 1 and not as_slice:
            first = lane.add_one(model.newest, model.offset, length, use)
        else:
            first = lane.add_slice(model.newest, model.offset, [length] * count, use)
        assert first == model.next_sequence[destination]
        for skip in range(count):
            place = Place(model.newest, model.offset, length, skip, count, size)
            model.pending[destination][first + skip] = place
        model.next_sequence[destination] += count
        model.offset += size

    def add_many(self, count: int, destination: int = QUEUE) -> None:
        """In the largest slices that fit."""
        while count:
            part = min(count, 256, self.lane(destination).slice_capacity)
            self.add(part, destination=destination, as_slice=True)
            count -= part

    def remove(self, first: int, last: int, destination: int = QUEUE) -> None:
        model, lane = self.model, self.lane(destination)
        pending = model.pending[destination]
        hit = [
            sequence
            for sequence in range(first, min(last + 1, model.next_sequence[destination]))
            if sequence in pending
        ]
        if first == last:
            assert lane.remove_one(first, model.newest) == len(hit)
        else:
            assert lane.remove(first, last, model.newest) == len(hit)
        for sequence in hit:
            data_log = pending.pop(sequence).data_log
            if data_log != model.newest:
                model.acked.setdefault(model.newest, set()).add(data_log)

    def skip_to(self, sequence: int, destination: int = QUEUE) -> None:
        self.lane(destination).skip_to(sequence)
        self.model.next_sequence[destination] = max(sequence, self.model.next_sequence[destination])

    def roll(self) -> None:
        self.model.newest += 1
        self.model.offset = 64
        self.model.data_logs.add(self.model.newest)
        self.index.use(self.model.newest)

    def forget(self) -> None:
        """As cleanup does: data logs that hold nothing pending and no needed ack are gone with their counts."""
        model = self.model
        used = {place.data_log for lane in model.pending.values() for place in lane.values()} | {model.newest}
        gone = {data_log for data_log in model.data_logs - used if not model.acked.get(data_log, set()) & used}
        self.index.forget_data_logs(gone)
        for data_log in gone:
            model.acked.pop(data_log, None)
        for acked in model.acked.values():
            acked -= gone
        model.data_logs -= gone

    def begin_checkpoint(self) -> Taken:
        lanes = [
            LaneCounts(number, lane.next_sequence, lane.pending_messages, lane.pending_bytes)
            for number, lane in self.index.lanes.items()
        ]
        uses = [
            UseCounts(data_log, use.pending_messages, use.pending_bytes, tuple(use.acked_data_logs))
            for data_log, use in self.index.data_log_uses.items()
        ]
        self._begun = self.model.copy(), lanes, uses
        return self.index.take_dirty(), self.index.take_rows_to_delete()

    def end_checkpoint(self, taken: Taken, is_stored: bool) -> None:
        blocks, deletes = taken
        if is_stored:
            puts = [(lane.number, block.number, packed) for lane, block, packed in blocks]
            self.metadata.commit(0, 0, b"", puts, deletes)
            self.metadata.synced()
            self._checkpoint = self._begun
        self.index.checkpointed(blocks, deletes, [], is_stored=is_stored)

    def checkpoint(self, is_stored: bool = True) -> None:
        self.end_checkpoint(self.begin_checkpoint(), is_stored)

    def crash(self) -> None:
        """What was not in the last checkpoint is lost; a new index is made from that."""
        held = self.index.held_bytes
        self.index.reset()
        assert self.account.held_bytes == self.index.held_bytes == 0 <= held
        self.model, lanes, uses = self._checkpoint[0].copy(), *self._checkpoint[1:]
        self.index = self._fresh()
        snapshot = self.metadata.load()
        self.index.restore(lanes, uses, snapshot.blocks if snapshot else {})

    @property
    def rows(self) -> int:
        snapshot = self.metadata.load()
        runs = [run for lane in snapshot.blocks.values() for run in lane] if snapshot else []
        return sum(last - first + 1 for first, last in runs)

    def check(self) -> None:
        index, model = self.index, self.model
        index._check()
        assert index.held_bytes == self.account.held_bytes
        snapshot = self.metadata.load()
        for lane in index.lanes.values():
            assert list(lane.stored_block_numbers) == (snapshot.blocks.get(lane.number, []) if snapshot else [])
        messages, sizes = Counter[int](), Counter[int]()
        for destination, pending in model.pending.items():
            lane = self.lane(destination)
            assert lane.next_sequence == model.next_sequence[destination]
            assert lane.pending_messages == len(pending)
            assert lane.pending_bytes == sum(place.length for place in pending.values())
            messages.update(place.data_log for place in pending.values())
            for place in pending.values():
                sizes[place.data_log] += place.length
        assert set(index.data_log_uses) == model.data_logs
        for data_log, use in index.data_log_uses.items():
            assert (use.pending_messages, use.pending_bytes) == (messages[data_log], sizes[data_log])
            assert use.acked_data_logs == model.acked.get(data_log, set())

    def check_lookups(self, sequence: int, most: int, destination: int = QUEUE) -> None:
        lane, pending = self.lane(destination), self.model.pending[destination]
        assert lane.is_pending(sequence) == (sequence in pending)
        behind = min((other for other in pending if other >= sequence), default=None)
        run = lane.pending_run(sequence, most)
        if behind is None:
            assert run is None
            return
        assert run is not None
        first, last = run
        assert first == behind and last - first < most and first >> BLOCK_SHIFT == last >> BLOCK_SHIFT
        assert all(other in pending for other in range(first, last + 1))
        ends_block = (last + 1) % BLOCK_MESSAGES == 0
        assert last - first + 1 == most or ends_block or last + 1 not in pending, "the run ends too soon"
        assert list(lane.lengths(first, last)) == [pending[other].length for other in range(first, last + 1)]
        at = first
        for extent in by_record(lane.extents(first, last)):
            assert extent.first_sequence == at
            for skip in range(extent.skip, extent.skip + extent.messages):
                place = pending[at]
                expected = Place(extent.data_log, extent.offset, place.length, skip, *extent[3:1:-1])
                assert expected == place, at
                at += 1
        assert at == last + 1

    def drain(self, destination: int = QUEUE) -> None:
        """Follow the lane to its end and acknowledge all of it."""
        at, lane = 0, self.lane(destination)
        while (run := lane.pending_run(at, 1 << 30)) is not None:
            self.remove(*run, destination)
            at = run[1] + 1


@pytest.fixture
def store() -> Store:
    return Store()


# Against the model.


def random_add(store: Store, random: Random, destination: int) -> None:
    if store.index.is_crowded:
        store.checkpoint()
    if random.random() < 0.5:
        store.add(length=random.choice((0, 1, 1000, 70_000)), destination=destination)
    else:
        count = min(random.choice((1, 3, 32, 256)), store.lane(destination).slice_capacity)
        store.add(count, length=random.randint(0, 2000), destination=destination, as_slice=True)


def random_step(store: Store, random: Random) -> None:
    model = store.model
    destination = random.choice((QUEUE, QUEUE, OTHER))
    end = model.next_sequence[destination] + 10
    first = random.randrange(end)
    action = random.random()
    if store.index.is_crowded:
        store.checkpoint()
    elif action < 0.4:
        random_add(store, random, destination)
    elif action < 0.5:
        store.roll()
    elif action < 0.6:
        store.remove(first, first, destination)
    elif action < 0.8:
        store.remove(first, first + random.choice((1, 10, 600, 3000)), destination)
    elif action < 0.83:
        store.skip_to(end - 10 + random.choice((-5, 1, 40, 600)), destination)
    elif action < 0.88:
        store.forget()
    elif action < 0.92:
        store.checkpoint(is_stored=random.random() < 0.7)
    elif action < 0.94:
        store.crash()
    store.check_lookups(random.randrange(end), random.choice((1, 7, 1 << 30)), destination)


@pytest.mark.parametrize("seed", range(6))
def test_random_operations_agree_with_a_dict(seed: int) -> None:
    random, store = Random(seed), Store()
    while store.model.next_sequence[QUEUE] < 1000 * seed:
        random_add(store, random, QUEUE)
    for _ in range(300):
        if random.random() < 0.1 and not store.index.is_crowded:
            taken = store.begin_checkpoint()
            store.check()
            store.add(destination=OTHER)
            store.remove(first := random.randrange(9000), first + random.randrange(2000))
            store.check()
            store.end_checkpoint(taken, random.random() < 0.7)
        random_step(store, random)
        store.check()
        assert store.index.held_bytes <= 1.5 * CAPACITY_BLOCKS * BLOCK_CHARGE_BYTES
    for destination in (QUEUE, OTHER):
        store.drain(destination)
    store.check()
    store.checkpoint()
    assert store.rows <= 2, "only the last block of a lane may stay when nothing is pending"


# One sentence each.


def test_lanes_are_told_by_destination_and_priority(store: Store) -> None:
    lanes = [store.index.ensure_lane(destination, priority) for destination in (1, 2, 3) for priority in range(10)]
    assert len({lane.number for lane in lanes}) == 30
    assert all(store.index.ensure_lane_numbered(lane.number) is lane for lane in lanes)


def test_what_is_acknowledged_before_a_checkpoint_never_reaches_the_metadata_store(store: Store) -> None:
    store.add_many(4 * BLOCK_MESSAGES)
    store.remove(0, 4 * BLOCK_MESSAGES - 1)
    taken, deletes = store.begin_checkpoint()
    assert (taken, deletes) == ([], [])


def test_stored_block_is_deleted_once_nothing_in_it_is_pending(store: Store) -> None:
    store.add_many(3 * BLOCK_MESSAGES)
    store.checkpoint()
    assert store.rows == 3
    store.remove(BLOCK_MESSAGES, 2 * BLOCK_MESSAGES - 1)
    store.checkpoint()
    assert store.rows == 2
    store.crash()
    store.check()


def test_unchanged_blocks_are_not_written_again(store: Store) -> None:
    store.add_many(3 * BLOCK_MESSAGES)
    store.checkpoint()
    store.remove(700, 700)
    assert [block.number for _, block, _ in store.begin_checkpoint()[0]] == [1]


@pytest.mark.parametrize("order", ["forward", "backward", "random"])
def test_full_block_is_forgotten_in_whatever_order_it_was_acknowledged(store: Store, order: str) -> None:
    store.add_many(BLOCK_MESSAGES)
    sequences = list(range(BLOCK_MESSAGES))
    if order == "backward":
        sequences.reverse()
    elif order == "random":
        Random(1).shuffle(sequences)
    for sequence in sequences:
        store.remove(sequence, sequence)
    store.check()
    assert store.index.held_bytes == 0 and not store.lane().block_numbers


def test_partly_filled_block_that_is_all_acknowledged_goes_on_growing(store: Store) -> None:
    store.add_many(10)
    store.remove(0, 9)
    store.checkpoint()
    store.add_many(5)
    store.check()
    store.check_lookups(0, 100)


def test_partly_filled_block_goes_on_growing_after_it_was_evicted(store: Store) -> None:
    store.add_many(10)
    store.checkpoint()
    for destination in range(3, 3 + CAPACITY_BLOCKS):
        store.model.pending[destination] = {}
        store.add(destination=destination)
        store.checkpoint()
    assert not store.lane().resident_blocks
    store.add(3, as_slice=True)
    store.check()
    store.check_lookups(0, 100)


def test_acknowledging_again_changes_nothing(store: Store) -> None:
    store.add_many(600)
    for _ in range(2):
        store.remove(5, 520)
        store.remove(5, 5)
        store.remove(599, 599)
        store.check()


def test_ack_of_what_never_was_is_passed_over(store: Store) -> None:
    store.add_many(10)
    store.remove(10, 10)
    store.remove(8, 1 << 60)
    store.remove(1 << 62, 1 << 62)
    store.check()
    assert store.lane().pending_messages == 8


def test_ack_over_messages_of_a_deleted_data_log_counts_only_the_others(store: Store) -> None:
    store.add_many(10)
    store.roll()
    store.remove(0, 9)
    store.roll()
    store.add_many(10)
    store.forget()
    assert 1 not in store.index.data_log_uses
    store.remove(0, 14)
    store.check()


def test_ack_notes_which_data_log_held_the_message_unless_it_is_its_own(store: Store) -> None:
    store.add_many(3)
    store.remove(0, 0)
    store.roll()
    store.remove(1, 1)
    assert store.index.data_log_uses[1].acked_data_logs == set() and store.index.data_log_uses[2].acked_data_logs == {1}
    store.check()


def test_data_logs_that_are_gone_are_forgotten_without_a_walk_over_them_for_each_that_remains(store: Store) -> None:
    for data_log in range(100, 200):
        store.index.use(data_log).acked_data_logs.update((data_log - 90, data_log - 1))
        store.index.use(data_log).committed_data_logs.update((data_log - 90, data_log - 1))
    gone = CountingList(range(1, 105))
    store.index.forget_data_logs(gone)
    assert gone.walks <= 2
    use = store.index.find_use(105)
    assert use is not None and use.acked_data_logs == use.committed_data_logs == set()
    use = store.index.find_use(199)
    assert use is not None and use.acked_data_logs == use.committed_data_logs == {109, 198}


def test_gap_in_the_numbering_is_neither_pending_nor_a_cost(store: Store) -> None:
    store.add_many(5)
    store.skip_to(300)
    store.add(2, as_slice=True)
    store.skip_to(10_000_000)
    store.add()
    store.skip_to(17)
    store.check()
    assert store.lane().pending_messages == 8 and store.index.held_bytes == 2 * BLOCK_CHARGE_BYTES
    assert store.lane().pending_run(5, 999) == (300, 301)
    assert store.lane().pending_run(302, 999) == (10_000_000, 10_000_000)


def test_acknowledged_block_that_a_gap_cuts_short_is_forgotten(store: Store) -> None:
    store.add_many(5)
    store.checkpoint()
    store.remove(0, 4)
    store.skip_to(BLOCK_MESSAGES)
    store.check()
    assert not store.lane().block_numbers
    store.checkpoint()
    assert store.rows == 0


def test_gap_right_behind_a_full_block_begins_the_next_one(store: Store) -> None:
    store.add_many(BLOCK_MESSAGES)
    store.skip_to(BLOCK_MESSAGES + 5)
    store.add()
    store.check()
    assert store.lane().pending_run(BLOCK_MESSAGES, 9) == (BLOCK_MESSAGES + 5, BLOCK_MESSAGES + 5)


def test_slice_never_crosses_a_block(store: Store) -> None:
    store.add_many(BLOCK_MESSAGES - 3)
    assert store.lane().slice_capacity == 3
    store.add(3, as_slice=True)
    assert store.lane().slice_capacity == BLOCK_MESSAGES


def test_failed_checkpoint_is_due_again_in_full(store: Store) -> None:
    store.add_many(2 * BLOCK_MESSAGES)
    store.checkpoint()
    store.remove(0, BLOCK_MESSAGES)
    first = store.begin_checkpoint()
    store.end_checkpoint(first, is_stored=False)
    store.check()
    again = store.begin_checkpoint()
    assert [(lane.number, packed) for lane, _, packed in again[0]] == [
        (lane.number, packed) for lane, _, packed in first[0]
    ]
    assert again[1] == first[1] == [(store.lane().number, 0)]
    store.end_checkpoint(again, is_stored=True)
    store.crash()
    store.check()


def test_block_that_empties_during_its_own_checkpoint_is_deleted_by_the_next(store: Store) -> None:
    store.add_many(BLOCK_MESSAGES)
    taken = store.begin_checkpoint()
    store.remove(0, BLOCK_MESSAGES - 1)
    store.end_checkpoint(taken, is_stored=True)
    assert store.rows == 1
    store.checkpoint()
    assert store.rows == 0
    store.check()


def test_deep_backlog_stays_within_the_cache_and_is_read_back_in_order() -> None:
    store = Store()
    for _ in range(200):
        store.add_many(BLOCK_MESSAGES)
        if store.index.is_crowded:
            store.checkpoint()
        assert store.index.held_bytes <= CAPACITY_BLOCKS * BLOCK_CHARGE_BYTES
    store.checkpoint()
    at, lane = 0, store.lane()
    while (run := lane.pending_run(at, 1 << 30)) is not None:
        assert run[0] == at
        at = run[1] + 1
        assert store.index.held_bytes <= CAPACITY_BLOCKS * BLOCK_CHARGE_BYTES
    assert at == 200 * BLOCK_MESSAGES


def test_the_block_that_was_read_first_leaves_a_full_cache_first(store: Store) -> None:
    store.add_many(2 * CAPACITY_BLOCKS * BLOCK_MESSAGES)
    store.checkpoint()
    store.crash()
    lane = store.lane()
    assert isinstance(lane, BlockLane)
    for number in (5, *range(8, 7 + CAPACITY_BLOCKS)):
        lane.block(number)
    assert len(lane.resident_blocks) == CAPACITY_BLOCKS
    lane.block(5)
    lane.block(0)
    assert set(lane.resident_blocks) == {0, *range(8, 7 + CAPACITY_BLOCKS)}


def test_restart_reads_no_block_before_it_is_needed(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.add_many(40 * BLOCK_MESSAGES)
    store.checkpoint()
    reads: list[int] = []
    read_block = store.metadata.read_block

    def counting(lane: int, block: int) -> bytes:
        reads.append(block)
        return read_block(lane, block)

    monkeypatch.setattr(store.metadata, "read_block", counting)
    store.crash()
    assert reads == [] and store.lane().pending_messages == 40 * BLOCK_MESSAGES
    store.remove(BLOCK_MESSAGES * 7 + 1, BLOCK_MESSAGES * 7 + 1)
    assert reads == [7]


@pytest.mark.parametrize("slice_messages, most", [(1, 6.2), (32, 2.4), (256, 2.3)])
def test_checkpoint_of_contiguous_messages_writes_few_bytes_a_message(
    store: Store, slice_messages: int, most: float
) -> None:
    for _ in range(8 * BLOCK_MESSAGES // slice_messages):
        store.add(slice_messages, length=1024)
    written = sum(len(packed) for _, _, packed in store.begin_checkpoint()[0])
    assert written <= most * 8 * BLOCK_MESSAGES


def test_filling_and_crowded_say_when_a_checkpoint_is_due(store: Store) -> None:
    for _ in range(CAPACITY_BLOCKS // 4):
        assert not store.index.is_filling
        store.add_many(BLOCK_MESSAGES)
    assert store.index.is_filling and not store.index.is_crowded
    store.add_many(CAPACITY_BLOCKS // 4 * BLOCK_MESSAGES)
    assert store.index.is_crowded
    store.checkpoint()
    assert not store.index.is_filling and not store.index.is_crowded
