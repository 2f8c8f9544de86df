"""The index in RAM (the metadata cache): all lanes, and which of their blocks are in RAM.

The metadata store hears of what the lanes gain and lose at
checkpoints, so a message that is acknowledged before the next checkpoint
never touches the B-tree. Blocks that are clean may leave RAM and are read
back from the metadata store; dirty ones stay. A crash loses all of it:
recovery replays the journal from the last checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from cachetools import LRUCache

from ..account import Account
from ..format.record import check_run
from ..format.state import LaneCounts, UseCounts
from ..format.times import NEVER, TIMES_BLOCKS, BlockTimes
from .block import (
    BLOCK_CHARGE_BYTES,
    MOVED_BLOCKS,
    Block,
    BlockDamaged,
)
from .delivery_counts import DeliveryCountTable
from .lane import LANE_MASK, LANE_SHIFT, PRIORITIES, DataLogUse, Lane
from .relocated import Moved

BLOCKS_MIN: Final = 16


def capacity_blocks(cache_bytes: int) -> int:
    return max(cache_bytes // BLOCK_CHARGE_BYTES, BLOCKS_MIN)


class Index:
    """All lanes, which data logs they need, and the bounded set of blocks in RAM. The state lock guards it."""

    def __init__(
        self,
        account: Account,
        cache_bytes: int,
        read_block: Callable[[int, int], bytes],
        doubt: Callable[[BlockDamaged], None] = lambda damage: None,
    ) -> None:
        """doubt: may raise another error where what was read is no block; else BlockDamaged is raised."""
        self.lanes: dict[int, Lane] = {}
        self.uses: dict[int, DataLogUse] = {}
        self.dirty: dict[tuple[int, int], Block] = {}
        self.attempts = DeliveryCountTable()
        """How often messages that came back were delivered. Whoever has a limit for it puts another here."""
        self.lane_makers: dict[int, Callable[[Index, int, int], Lane]] = {}
        """What makes the lanes of a destination, where it is not Lane."""
        self._forgotten: dict[int, Lane] = {}
        """Empty lanes of which rows are left."""
        self.latest_ms = 0
        """No time that the journal tells of had come later than this: the store's time never goes behind it."""
        self.is_filling = False
        """A checkpoint soon would keep the index from being crowded."""
        self._account = account
        self._capacity_blocks = capacity_blocks(cache_bytes)
        self._resident_blocks = 0
        """One counts as `extra_blocks` more, here and in _dirty_extra."""
        self._dirty_extra = 0
        self._packed_bytes = 0
        self._read_block = read_block
        self._doubt = doubt
        self._clean: LRUCache[tuple[int, int], Block] = LRUCache(maxsize=1 << 60)

    def lane(self, destination: int, priority: int) -> Lane:
        """Made where there is none. RecordDamaged when no lane can have that number."""
        number = destination << LANE_SHIFT | priority
        lane = self.lanes.get(number)
        if lane is None:
            check_run(number, 0, 0)
            lane = self.lanes[number] = self.lane_makers.get(destination, Lane)(self, destination, priority)
        return lane

    def lane_numbered(self, number: int) -> Lane:
        return self.lane(number >> LANE_SHIFT, number & LANE_MASK)

    def restore(
        self,
        lanes: Iterable[LaneCounts],
        uses: Iterable[UseCounts],
        blocks: Mapping[int, list[tuple[int, int]]],
        earliest: Mapping[int, tuple[int, int]] = {},
    ) -> None:
        """Take over the counters of a checkpoint and which blocks it stored; reads no block.

        earliest: when the first message of a lane is due, and when one expires; 0 for never.
        """
        for counts in lanes:
            check_run(counts.lane, counts.next_sequence, 0)
            lane = self.lane_numbered(counts.lane)
            lane.next_sequence = counts.next_sequence
            lane.pending_messages = counts.pending_messages
            lane.pending_bytes = counts.pending_bytes
        for number, runs in blocks.items():
            lane = self.lane_numbered(number)
            for first, last in runs:
                lane.blocks.add(first, last)
                lane.stored.add(first, last)
        for number, times in earliest.items():
            self.lane_numbered(number).earliest[:] = [time or NEVER for time in times]
        for counted in uses:
            use = self.use(counted.data_log)
            use.pending_messages = counted.pending_messages
            use.pending_bytes = counted.pending_bytes
            use.acked_data_logs.update(counted.acked_data_logs)
            use.committed_data_logs.update(counted.committed_data_logs)

    def counts(self) -> tuple[Iterator[LaneCounts], list[UseCounts]]:
        """What `restore` takes over, besides the blocks. Lanes one by one: all at once would call the collector."""
        lanes = (
            LaneCounts(number, lane.next_sequence, lane.pending_messages, lane.pending_bytes)
            for number, lane in self.lanes.items()
        )
        uses = [
            UseCounts(
                number,
                use.pending_messages,
                use.pending_bytes,
                tuple(use.acked_data_logs),
                tuple(use.committed_data_logs),
            )
            for number, use in self.uses.items()
        ]
        return lanes, uses

    def reset(self) -> None:
        """Forget everything, as before a full replay."""
        for lane in self.lanes.values():
            for block in list(lane.resident.values()):
                self.expel(lane, block)
        self.lanes.clear()
        self._forgotten.clear()
        self.uses.clear()
        self.attempts.clear()

    def forget(self, destination: int) -> None:
        """It is deleted: nothing of its lanes is pending, and they are gone. Their rows go with the next checkpoint."""
        self.attempts.forget(destination)
        for priority in range(PRIORITIES):
            lane = self.lanes.get(destination << LANE_SHIFT | priority)
            if lane is None:
                continue
            lane.remove(0, lane.next_sequence, 0)
            for block in list(lane.resident.values()):
                lane.retire(block)
            del self.lanes[lane.number]
            self._forgotten[lane.number] = lane

    def supersede(self, data_log: int, by_data_log: int) -> None:
        """What undoes records of data_log is from now on one record in by_data_log, that names all it has left."""
        for use in self.uses.values():
            use.acked_data_logs.discard(data_log)
        if data_log != by_data_log:
            self.use(by_data_log).acked_data_logs.add(data_log)

    def use(self, data_log: int) -> DataLogUse:
        use = self.uses.get(data_log)
        if use is None:
            use = self.uses[data_log] = DataLogUse()
        return use

    @property
    def is_crowded(self) -> bool:
        """So many blocks are dirty that a checkpoint must come before more work."""
        return 2 * (len(self.dirty) + self._dirty_extra) >= self._capacity_blocks

    @property
    def is_nearly_full(self) -> bool:
        """Not even work that a checkpoint does before it writes may make more blocks dirty."""
        return 4 * (len(self.dirty) + self._dirty_extra) >= 3 * self._capacity_blocks

    def has_room_for(self, blocks: int) -> bool:
        """So many more blocks may become dirty before a checkpoint must come."""
        return 2 * (len(self.dirty) + self._dirty_extra + blocks) <= self._capacity_blocks

    @property
    def held_bytes(self) -> int:
        return self._resident_blocks * BLOCK_CHARGE_BYTES + self._packed_bytes

    def admit(self, lane: Lane, block: Block) -> None:
        """Take the block into RAM, sending clean ones away where the cache is full."""
        self._charge(1 + block.extra_blocks)
        lane.resident[block.number] = block

    def resize(self, cache_bytes: int) -> bool:
        """Another capacity. Clean blocks that are above it leave at once.

        False: a checkpoint must come before all that is here fits. REQUIRES: none is under way.
        """
        self._capacity_blocks = capacity_blocks(cache_bytes)
        self._make_room(0)
        self.is_filling = self.is_filling or 4 * (len(self.dirty) + self._dirty_extra) >= self._capacity_blocks
        return self._resident_blocks <= self._capacity_blocks and not self.is_crowded

    def _make_room(self, blocks: int) -> None:
        while self._resident_blocks + blocks > self._capacity_blocks and self._clean:
            (number, _), old = self._clean.popitem()
            self._drop(self.lanes[number], old)

    def _charge(self, blocks: int) -> None:
        self._make_room(blocks)
        admitted = self._account.reserve(blocks * BLOCK_CHARGE_BYTES)
        assert admitted, "the index's share of memory is guaranteed"
        self._resident_blocks += blocks

    def widen(self, block: Block) -> None:
        """The first messages of the block are about to move. It is dirty."""
        self._widen(block, MOVED_BLOCKS - 1)
        block.moved = Moved()

    def widen_for_times(self, block: Block) -> None:
        """The first message of the block with a time is about to come. It is dirty."""
        self._widen(block, TIMES_BLOCKS)
        block.times = BlockTimes()

    def _widen(self, block: Block, extra_blocks: int) -> None:
        self._charge(extra_blocks)
        block.extra_blocks += extra_blocks
        self._dirty_extra += extra_blocks
        self.is_filling = self.is_filling or 4 * (len(self.dirty) + self._dirty_extra) >= self._capacity_blocks

    def _drop(self, lane: Lane, block: Block) -> None:
        del lane.resident[block.number]
        if lane.tail is block:
            lane.tail = None
        blocks = 1 + block.extra_blocks
        self._resident_blocks -= blocks
        self._account.release(blocks * BLOCK_CHARGE_BYTES)

    def expel(self, lane: Lane, block: Block) -> None:
        if self.dirty.pop((lane.number, block.number), None) is not None:
            self._dirty_extra -= block.extra_blocks
        self._clean.pop((lane.number, block.number), None)
        self._drop(lane, block)

    def touch(self, lane: Lane, block: Block) -> None:
        """The block differs from its row from now on."""
        block.is_dirty = True
        self._clean.pop((lane.number, block.number), None)
        self.dirty[lane.number, block.number] = block
        self._dirty_extra += block.extra_blocks
        if 4 * (len(self.dirty) + self._dirty_extra) >= self._capacity_blocks:
            self.is_filling = True

    def fetch(self, lane: Lane, number: int) -> Block:
        block = self._read(lane, number)
        self.admit(lane, block)
        self._clean[lane.number, number] = block
        return block

    def peek(self, lane: Lane, number: int) -> Block:
        """A block that has something pending, for one look: if it is not in RAM, it is read and not kept."""
        return lane.resident.get(number) or self._read(lane, number)

    def _read(self, lane: Lane, number: int) -> Block:
        packed = self._read_block(lane.number, number)
        try:
            return Block.unpack(number, packed)
        except BlockDamaged as damage:
            self._doubt(damage)  # its checksum was right, so whoever wrote it meant something else by a block
            raise

    def take_dirty(self) -> list[tuple[Lane, Block, bytes]]:
        """Pack what a checkpoint must write. The blocks stay in RAM until settle says how it went."""
        taken: list[tuple[Lane, Block, bytes]] = []
        for (number, _), block in self.dirty.items():
            block.is_dirty = False
            taken.append((self.lanes[number], block, block.pack()))
        self.dirty.clear()
        self._dirty_extra = 0
        self.is_filling = False
        self._packed_bytes = sum(len(packed) for _, _, packed in taken)
        admitted = self._account.reserve(self._packed_bytes)
        assert admitted, "the index's share of memory is guaranteed"
        return taken

    def take_dead(self) -> list[tuple[int, int]]:
        """(lane, block) of the rows that a checkpoint must delete. Settle says how it went."""
        dead: list[tuple[int, int]] = []
        for lane in (*self.lanes.values(), *self._forgotten.values()):
            if lane.dead.count:
                for first, last in lane.dead:
                    dead += [(lane.number, number) for number in range(first, last + 1)]
                lane.dead.clear()
        return dead

    def settle(self, taken: list[tuple[Lane, Block, bytes]], deleted: list[tuple[int, int]], is_stored: bool) -> None:
        """The rows of take_dirty are stored and those of take_dead gone, or neither, and all is due again."""
        self._account.release(self._packed_bytes)
        self._packed_bytes = 0
        for number, block_number in deleted:
            lane = self.lanes.get(number) or self._forgotten[number]
            if is_stored:
                lane.stored.remove(block_number, block_number)
            else:
                lane.dead.add(block_number, block_number)
        for lane, block, _ in taken:
            is_here = lane.resident.get(block.number) is block
            if is_stored:
                lane.stored.add(block.number, block.number)
                if not is_here:
                    lane.dead.add(block.number, block.number)
            if is_here and not block.is_dirty:
                if is_stored:
                    self._clean[lane.number, block.number] = block
                else:
                    self.touch(lane, block)
        for number in [number for number, lane in self._forgotten.items() if not lane.stored]:
            del self._forgotten[number]

    def _check(self) -> None:
        blocks = [block for lane in self.lanes.values() for block in lane.resident.values()]
        assert self._resident_blocks == sum(1 + block.extra_blocks for block in blocks)
        assert self._dirty_extra == sum(block.extra_blocks for block in self.dirty.values())
        for block in blocks:
            moved_blocks = 0 if block.moved is None else MOVED_BLOCKS - 1
            assert block.extra_blocks == moved_blocks + (0 if block.times is None else TIMES_BLOCKS)
        for (number, block_number), block in self.dirty.items():
            assert block.is_dirty and self.lanes[number].resident[block_number] is block
        for lane in self.lanes.values():
            lane._check()
