"""Index: which messages are pending, by lane, and which data logs they need.

Only checkpoints write to the metadata store. So a full block whose messages are all acknowledged before the next
checkpoint never touches the B-tree. The block cache decides which blocks are in RAM. A crash loses the whole index in
RAM: recovery replays the journal from the last checkpoint.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from itertools import chain
from typing import Final

from ..environment.account import Account, OverdraftAccount, Uncounted
from ..format.record import RecordDamaged, check_run
from ..format.state_record import LaneCounts, UseCounts
from ..format.times import NEVER
from ..numbering import DELAYED, LANE_MASK, LANE_SHIFT, NON_PERSISTENT, PRIORITIES, lanes_of
from .block import Block, BlockDamaged
from .block_cache import BlockCache, BlockLane
from .checkpoint_need import CheckpointNeed
from .data_log_use import DataLogUse, use_of
from .delayed_lane import DelayedLane
from .delivery_counts import DeliveryCountTable
from .destination_lane import DestinationLane
from .fingerprints import Fingerprints, Row, RowReader
from .idle_lanes import IdleLanes
from .journaled_lane import JournaledLane
from .pending_lane import PendingLane

INDEX_LANE_BYTES: Final = 1536
"""Charge of a lane that is an object, without its blocks.

Measured with tracemalloc over 1,000 lanes, each used and stored once.
"""


class LaneMaker(ABC):
    """Makes the lanes of topics."""

    @abstractmethod
    def is_topic(self, destination_number: int) -> bool:
        """Return whether a destination is a topic."""

    @abstractmethod
    def make_lane(self, destination_number: int, priority: int, next_sequence: int) -> DestinationLane:
        """Make a lane of a topic whose next message has that sequence."""


class _NoTopics(LaneMaker):
    def is_topic(self, destination_number: int) -> bool:
        return False

    def make_lane(self, destination_number: int, priority: int, next_sequence: int) -> DestinationLane:
        raise NotImplementedError


class Index:
    """The lanes, and what needs each data log. The state lock guards it."""

    def __init__(
        self,
        *,
        account: Account,
        cache_bytes: int,
        read_block: Callable[[int, int], bytes],
        doubt: Callable[[BlockDamaged], None] = lambda damage: None,
        delivery_count_table: DeliveryCountTable | None = None,
        read_fingerprints: RowReader = lambda lane, first, last, names: [],
        lanes_account: OverdraftAccount | None = None,
        checkpoint_need: CheckpointNeed | None = None,
    ) -> None:
        """Make an empty index.

        account, cache_bytes, read_block, doubt: see BlockCache.
        delivery_count_table: has the delivery counts, and bounds them; None: they are bounded as without a budget.
        read_fingerprints: see RowReader.
        lanes_account: pays for lanes; None: they are not counted.
        checkpoint_need: knows when the next checkpoint is due; None: only blocks in RAM ask for one.
        """
        self._lanes_account = lanes_account or Uncounted()
        # Lanes that are in use or not empty, by number.
        self.lanes: dict[int, DestinationLane] = {}
        # Lanes that were used, and are empty and not in use now.
        self.idle = IdleLanes(lanes_account)
        # Empty lanes that are not in use and still have rows, which the next checkpoint deletes.
        self._leaving: dict[int, None] = {}
        # Whether a checkpoint is under way. It refers to lanes, so none may become a row meanwhile.
        self._is_storing = False
        # The DataLogUse of each data log, by its id.
        self.data_log_uses: dict[int, DataLogUse] = {}
        # When the next checkpoint is due.
        self.checkpoint_need = checkpoint_need or CheckpointNeed()
        self.cache = BlockCache(account, cache_bytes, self.lanes, read_block, doubt, self.checkpoint_need)
        self.fingerprints = Fingerprints(self.cache, read_fingerprints)
        self.delivery_count_table = delivery_count_table or DeliveryCountTable()
        # Makes the lanes of topics, once it is known which destinations are topics.
        self.topic_lane_maker: LaneMaker = _NoTopics()
        # The timetable of each lane with delayed messages, by number of the lane.
        self.delayed: dict[int, DelayedLane] = {}
        # Lanes of ended destinations that still have rows.
        self.forgotten: dict[int, DestinationLane] = {}
        # The latest time in the journal. The store's clock is never before it.
        self.latest_ms = 0

    def ensure_lane(self, destination_number: int, priority: int) -> DestinationLane:
        """Return a lane, made if needed. RecordDamaged: no lane can have that number."""
        number = destination_number << LANE_SHIFT | priority
        lane = self.lanes.get(number)
        if lane is None:
            check_run(number, 0, 0)
            next_sequence = self.idle.take(number)
            if self.topic_lane_maker.is_topic(destination_number):
                lane = self.topic_lane_maker.make_lane(destination_number, priority, next_sequence)
            else:
                lane = DestinationLane(self.cache, self.data_log_uses, destination_number, priority)
                lane.next_sequence = next_sequence
            lane.delayed = self.delayed.get(number)
            self.lanes[number] = lane
            self._lanes_account.charge(INDEX_LANE_BYTES)
        elif self._leaving:
            self._leaving.pop(number, None)
        return lane

    def next_sequences(self) -> Iterator[tuple[int, int]]:
        """Yield the number and the next sequence of every lane, in use or not."""
        yield from self.idle
        yield from ((number, lane.next_sequence) for number, lane in self.lanes.items())

    def skip_to(self, lane_number: int, sequence: int) -> None:
        """Skip to a sequence in a lane as `DestinationLane.skip_to` does. If the lane is a row, it stays one.

        Raises RecordDamaged as `DestinationLane.skip_to` does.
        """
        lane = self.lanes.get(lane_number)
        if lane is not None:
            lane.skip_to(sequence)
            return
        check_run(lane_number, sequence, int(sequence > 0))
        self.idle.put(lane_number, max(self.idle.find(lane_number), sequence))

    def shrink_to_row(self, lane_number: int) -> None:
        """Make a lane without pending messages a row of IdleLanes: now, or once a checkpoint has deleted its blocks'
        rows.

        Requires: no caller holds the lane. Later, callers must ask `ensure_lane` for it again.
        """
        lane = self.lanes.get(lane_number)
        if lane is None or not lane.is_idle:
            return
        self.delivery_count_table.forget_lanes((lane_number,))  # their messages are gone
        lane.retire_all()
        if self._is_storing or lane.stored_block_numbers.count:
            self._leaving[lane_number] = None
        else:
            del self.lanes[lane_number]
            self._lanes_account.release(INDEX_LANE_BYTES)
            self.idle.put(lane_number, lane.next_sequence)
            lane.on_shrunk()

    def shrink_all_to_rows(self) -> None:
        """Make all empty lanes rows of IdleLanes. Requires: no caller holds a lane. O(lanes)."""
        for number in list(self.lanes):
            self.shrink_to_row(number)

    @property
    def lanes_charge(self) -> int:
        """The charge of all lanes, used or not."""
        return self.idle.charge_bytes + INDEX_LANE_BYTES * (len(self.lanes) + len(self.forgotten))

    @property
    def has_leaving_lanes(self) -> bool:
        """Whether lanes that are no longer in use wait for a checkpoint, which makes rows of them."""
        return bool(self._leaving)

    def delayed_lane(self, lane: PendingLane) -> DelayedLane:
        """Return the timetable of a lane, made on first use. The lane may be one that this index does not have."""
        known = self.delayed.get(lane.number)
        if known is None:
            known = self._make_delayed_lane(lane.number)
        lane.delayed = known
        return known

    def _make_delayed_lane(self, lane_number: int) -> DelayedLane:
        made = self.delayed[lane_number] = self.cache.delayed[lane_number] = DelayedLane(self.cache, lane_number)
        return made

    def remove(self, lane: JournaledLane, first: int, last: int, ack_data_log: int) -> int:
        """Remove first..last from a lane and its timetable. Return how many of them were pending.

        Use it for messages that no consumer holds, as in a replay or a commit. ack_data_log: see JournaledLane.remove.
        """
        removed = lane.remove(first, last, ack_data_log)
        self.trim_delayed(lane, first, last)
        return removed

    def trim_delayed(self, lane: JournaledLane, first: int, last: int) -> None:
        """Remove messages of first..last that are no longer pending from the timetables of a lane and its readers.

        O(1) if nothing is delayed.
        """
        for reader in lane.readers() if self.delayed else ():
            if (known := self.delayed.get(reader.number)) is not None:
                known.trim(reader, first, last)

    def forget_delayed(self, destination_number: int) -> None:
        """Forget the timetables of a destination or subscription that has ended.

        The next checkpoint deletes the rows.
        """
        self.forget_delayed_lanes(lanes_of(destination_number) if self.delayed else ())

    def forget_delayed_lanes(self, lane_numbers: Iterable[int]) -> None:
        """Forget the timetables of these lanes. The next checkpoint deletes the rows."""
        for lane_number in lane_numbers:
            if lane_number in self.delayed:
                self.delayed[lane_number].forget_all()

    def keep_delayed(self, destinations: Container[int]) -> None:
        """Forget the timetables of destinations and subscriptions that are not among `destinations`.

        Those of non-persistent messages go too.
        """
        for lane_number, delayed in self.delayed.items():
            if lane_number & NON_PERSISTENT or lane_number >> LANE_SHIFT not in destinations:
                delayed.forget_all()

    def find_lane(self, lane_number: int) -> DestinationLane | None:
        """Return the lane of a number. None: the lane is a row, or was never used."""
        return self.lanes.get(lane_number)

    def ensure_lane_numbered(self, lane_number: int) -> DestinationLane:
        """Return the lane of a number as `ensure_lane` does."""
        return self.ensure_lane(lane_number >> LANE_SHIFT, lane_number & LANE_MASK)

    def restore(
        self,
        lanes: Iterable[LaneCounts],
        uses: Iterable[UseCounts],
        blocks: Mapping[int, list[tuple[int, int]]],
        earliest: Mapping[int, tuple[int, int]] = {},
    ) -> None:
        """Take over the counters of a checkpoint and the numbers of its blocks. No block is read.

        earliest: when the first message of a lane is due, and when one expires; 0: never.
        """
        for counts in lanes:
            if counts.lane_number & DELAYED:
                self._make_delayed_lane(counts.lane_number ^ DELAYED).pending_messages = counts.pending_messages
                continue
            check_run(counts.lane_number, counts.next_sequence, 0)
            if not counts.pending_messages and counts.lane_number not in blocks:
                self.idle.put(counts.lane_number, counts.next_sequence)
                continue
            lane = self.ensure_lane_numbered(counts.lane_number)
            lane.next_sequence = counts.next_sequence
            lane.pending_messages = counts.pending_messages
            lane.added_bytes, lane.removed_bytes = counts.pending_bytes, 0
        for number, runs in blocks.items():
            stored = self._block_lane(number)
            for first, last in runs:
                stored.block_numbers.add(first, last)
                stored.stored_block_numbers.add(first, last)
        for number, times in earliest.items():
            self._block_lane(number).earliest[:] = [time or NEVER for time in times]
        for number, lane in self.lanes.items():
            lane.delayed = self.delayed.get(number)
        for counted in uses:
            use = self.use(counted.data_log)
            use.pending_messages = counted.pending_messages
            use.pending_bytes = counted.pending_bytes
            use.acked_data_logs.update(counted.acked_data_logs)
            use.committed_data_logs.update(counted.committed_data_logs)

    def _block_lane(self, lane_number: int) -> BlockLane:
        """Return the lane of a number, made if needed, or the timetable that a checkpoint has stored."""
        if not lane_number & DELAYED:
            return self.ensure_lane_numbered(lane_number)
        if lane_number ^ DELAYED not in self.delayed:
            raise RecordDamaged("what came back of a lane is not in the root")
        return self.delayed[lane_number ^ DELAYED]

    def counts(self) -> tuple[Iterator[LaneCounts], list[UseCounts]]:
        """Return the lanes and uses for `restore`.

        The lanes come one by one, because a list of all would trigger the garbage collector.
        """
        lanes = (
            LaneCounts(number, lane.next_sequence, lane.pending_messages, lane.pending_bytes)
            for number, lane in chain(self.lanes.items(), self._timetables())
        )
        idle = (LaneCounts(number, next_sequence, 0, 0) for number, next_sequence in self.idle)
        uses = [
            UseCounts(
                number,
                use.pending_messages,
                use.pending_bytes,
                tuple(use.acked_data_logs),
                tuple(use.committed_data_logs),
            )
            for number, use in self.data_log_uses.items()
        ]
        return chain(idle, lanes), uses

    def _timetables(self) -> Iterator[tuple[int, BlockLane]]:
        return ((lane.number, lane) for lane in self.delayed.values() if lane.block_numbers)

    def reset(self) -> None:
        """Forget everything, before a full replay."""
        for lane in chain(self.lanes.values(), self.delayed.values()):
            for block in list(lane.resident_blocks.values()):
                self.cache.expel(lane, block)
        self._lanes_account.release(self.lanes_charge - self.idle.charge_bytes)
        self.lanes.clear()
        self.idle.clear()
        self._leaving.clear()
        self.delayed.clear()
        self.cache.delayed.clear()
        self.forgotten.clear()
        self.data_log_uses.clear()
        self.fingerprints.reset()
        self.delivery_count_table.clear()

    def forget(self, destination_number: int) -> None:
        """Remove the lanes of a destination with all pending messages. The next checkpoint deletes their rows."""
        self.delivery_count_table.forget(destination_number)
        self.forget_delayed(destination_number)
        self.idle.forget(destination_number)
        for priority in range(PRIORITIES):
            self._leaving.pop(destination_number << LANE_SHIFT | priority, None)
            lane = self.lanes.get(destination_number << LANE_SHIFT | priority)
            if lane is None:
                continue
            lane.remove(0, lane.next_sequence, 0)
            for block in list(lane.resident_blocks.values()):
                lane.retire(block)
            del self.lanes[lane.number]
            if self._is_storing or lane.stored_block_numbers.count:
                self.forgotten[lane.number] = lane
            else:
                self._lanes_account.release(INDEX_LANE_BYTES)

    def supersede(self, data_log: int, by_data_log: int) -> None:
        """Note that no acks into data_log are needed any more: a survivors record in by_data_log replaces them."""
        for use in self.data_log_uses.values():
            use.acked_data_logs.discard(data_log)
        if data_log != by_data_log:
            self.use(by_data_log).acked_data_logs.add(data_log)

    def find_use(self, data_log: int) -> DataLogUse | None:
        """Return the use of a data log; None: nothing was ever in it."""
        return self.data_log_uses.get(data_log)

    def use(self, data_log: int) -> DataLogUse:
        """Return the use of a data log, made if needed: nothing needs a data log that is not known yet."""
        return use_of(self.data_log_uses, data_log)

    def forget_data_logs(self, gone: Collection[int]) -> None:
        """Forget data logs that a cleanup has removed, also in the uses of others.

        O(data logs + edges), where edges are those of `removable`.
        """
        for data_log in gone:
            self.data_log_uses.pop(data_log, None)
        gone_set = frozenset(gone)  # to subtract a large set from a small one, Python walks over the small one
        for use in self.data_log_uses.values():
            use.acked_data_logs -= gone_set
            use.committed_data_logs -= gone_set

    def keep_data_logs(self, existing: set[int]) -> None:
        """Forget all data logs that are not among `existing`, also in the uses of others. O(data logs + edges)."""
        for data_log in self.data_log_uses.keys() - existing:
            del self.data_log_uses[data_log]
        for use in self.data_log_uses.values():
            use.acked_data_logs &= existing
            use.committed_data_logs &= existing

    def note_time(self, now_ms: int) -> None:
        """Note the time of a record in the journal."""
        if now_ms > self.latest_ms:
            self.latest_ms = now_ms

    # ------------------------------------------------------------------ the blocks in RAM

    @property
    def is_filling(self) -> bool:
        """Whether a checkpoint soon would keep the block cache from becoming crowded."""
        return self.checkpoint_need.is_index_filling

    @property
    def has_more_to_store(self) -> bool:
        """Whether a checkpoint is useful although the journal has not grown."""
        return self.is_filling or self.fingerprints.is_stale or self.has_leaving_lanes

    @property
    def is_crowded(self) -> bool:
        """Whether so many blocks are dirty that a checkpoint must come before more work."""
        return self.cache.is_crowded

    @property
    def is_nearly_full(self) -> bool:
        """Whether not even the preparation of a checkpoint may make more blocks dirty."""
        return self.cache.is_nearly_full

    @property
    def held_bytes(self) -> int:
        """Bytes that the blocks in RAM take."""
        return self.cache.held_bytes

    def has_room_for(self, blocks: int) -> bool:
        """Return whether `blocks` more blocks may become dirty before a checkpoint must come."""
        return self.cache.has_room_for(blocks)

    def resize(self, cache_bytes: int) -> bool:
        """Set the capacity of the block cache. Requires: no checkpoint is under way.

        Return False if the dirty blocks do not fit until a checkpoint has come.
        """
        return self.cache.resize(cache_bytes)

    # ------------------------------------------------------------------ checkpoints

    def take_dirty(self) -> list[tuple[BlockLane, Block, bytes]]:
        """Pack the blocks that a checkpoint must write. They stay in RAM until `checkpointed`."""
        self._is_storing = True
        return [(self.cache.lane(number), block, packed) for number, block, packed in self.cache.take_dirty()]

    def take_rows_to_delete(self) -> list[tuple[int, int]]:
        """Return (lane, block) of the rows that a checkpoint must delete."""
        rows: list[tuple[int, int]] = []
        for lane in chain(self.lanes.values(), self.forgotten.values(), self.delayed.values()):
            if lane.rows_to_delete.count:
                for first, last in lane.rows_to_delete:
                    rows += [(lane.number, number) for number in range(first, last + 1)]
                lane.rows_to_delete.clear()
        return rows

    def take_fingerprints(self) -> list[Row]:
        """Return the fingerprints that a checkpoint must store."""
        return self.fingerprints.take(self.lanes)

    def checkpointed(
        self,
        taken: list[tuple[BlockLane, Block, bytes]],
        deleted: list[tuple[int, int]],
        fingerprints: list[Row],
        *,
        is_stored: bool,
    ) -> None:
        """Note whether a checkpoint was stored. If not, the next one must write and delete the same rows.

        taken, deleted, fingerprints: what `take_dirty`, `take_rows_to_delete` and `take_fingerprints` returned.
        """
        self.cache.release_packed()
        if is_stored:
            self.fingerprints.checkpointed(fingerprints)
        for number, block_number in deleted:
            lane = self.forgotten.get(number) or self.cache.lane(number)
            if is_stored:
                lane.stored_block_numbers.remove(block_number, block_number)
            else:
                lane.rows_to_delete.add(block_number, block_number)
        for lane, block, _ in taken:
            is_here = lane.resident_blocks.get(block.number) is block
            if is_stored:
                lane.stored_block_numbers.add(block.number, block.number)
                if not is_here:
                    lane.rows_to_delete.add(block.number, block.number)
            if is_here and not block.is_dirty:
                self.cache.checkpointed(lane, block, is_stored=is_stored)
        for number in [number for number, lane in self.forgotten.items() if not lane.stored_block_numbers]:
            del self.forgotten[number]
            self._lanes_account.release(INDEX_LANE_BYTES)
        for number, lane in list(self.delayed.items()):
            if not (lane.block_numbers or lane.stored_block_numbers):
                del self.delayed[number], self.cache.delayed[number]
        self._is_storing = False
        leaving, self._leaving = self._leaving, {}
        for number in leaving:
            self.shrink_to_row(number)

    def _check(self) -> None:
        self.cache._check()
        self.fingerprints._check()
        self.idle._check()
        assert not any(number in self.lanes for number, _ in self.idle)
        for lane in (*self.lanes.values(), *self.delayed.values()):
            lane._check()
