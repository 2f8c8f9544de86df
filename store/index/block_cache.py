"""BlockCache: which blocks of the index are in RAM, within a share of memory that is charged.

A dirty block differs from its row in the metadata store, and stays in RAM. A clean block may leave RAM, and is read
back when needed. So the cache stays bounded as long as a checkpoint comes before too many blocks are dirty. A crash
loses the whole cache: recovery replays the journal from the last checkpoint.

BlockLane is here too, because lane and cache call each other.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Final

from ..environment.account import Account
from ..format.times import TIMES_BLOCKS, BlockTimes
from ..numbering import BLOCK_SHIFT, DELAYED
from ..structures.sequence_set import SequenceSet
from .block import BLOCK_CHARGE_BYTES, RELOCATED_BLOCKS, Block, BlockDamaged
from .checkpoint_need import CheckpointNeed
from .journaled_lane import JournaledLane
from .relocated import RelocatedPlaces

BLOCKS_MIN: Final = 16


def capacity_blocks(cache_bytes: int) -> int:
    """Return how many blocks a cache of this size holds."""
    return max(cache_bytes // BLOCK_CHARGE_BYTES, BLOCKS_MIN)


class BlockLane(JournaledLane):
    """A lane with blocks of its own: 512 messages in each, in RAM or as a row of the metadata store.

    The BlockCache decides which blocks are in RAM.
    """

    __slots__ = ("tail", "resident_blocks", "cache", "block_numbers", "stored_block_numbers", "rows_to_delete")

    def __init__(self, cache: BlockCache, lane_number: int, destination_number: int, priority: int) -> None:
        super().__init__(lane_number, destination_number, priority)
        self.cache = cache
        # The block to which messages are added, while it is in RAM.
        self.tail: Block | None = None
        # The blocks in RAM, by number.
        self.resident_blocks: dict[int, Block] = {}
        # Numbers of the blocks with a pending message, in RAM or on disk.
        self.block_numbers = SequenceSet()
        # Numbers of the blocks that have a row in the metadata store.
        self.stored_block_numbers = SequenceSet()
        # Numbers of stored blocks whose rows the next checkpoint deletes.
        self.rows_to_delete = SequenceSet()

    def take_over_blocks(self, lane: BlockLane) -> None:
        """Take over the blocks of a lane, which must not be used any more."""
        self.cache, self.tail, self.resident_blocks = lane.cache, lane.tail, lane.resident_blocks
        self.block_numbers, self.stored_block_numbers = lane.block_numbers, lane.stored_block_numbers
        self.rows_to_delete = lane.rows_to_delete

    def block(self, block_number: int) -> Block | None:
        """Return a block from RAM or the metadata store. None: it has no pending message."""
        block = self.resident_blocks.get(block_number)
        if block is None and block_number in self.block_numbers:
            block = self.cache.fetch(self, block_number)
        return block

    def pending_from(self) -> int:
        """Return where the first block with a pending message begins. O(1)."""
        return self.block_numbers.first << BLOCK_SHIFT if self.block_numbers else self.next_sequence

    def unpack(self, block_number: int, packed: bytes) -> Block:
        """Return the block in these bytes. Raises BlockDamaged."""
        return Block.unpack(block_number, packed)

    def retire(self, block: Block) -> None:
        """Forget a block that has no pending message."""
        self.block_numbers.remove(block.number, block.number)
        if block.number in self.stored_block_numbers:
            self.rows_to_delete.add(block.number, block.number)
        if block is self.tail:
            self.tail = None
        self.cache.expel(self, block)

    def retire_all(self) -> None:
        """Forget all blocks. Requires: none of them has a pending message."""
        for block in list(self.resident_blocks.values()):
            self.retire(block)
        for first, last in self.block_numbers:
            for number in range(first, last + 1):
                if number in self.stored_block_numbers:
                    self.rows_to_delete.add(number, number)
        self.block_numbers.clear()

    def note_due(self, block: Block, messages: int) -> None:
        """Note that so many messages of a block no longer wait for their time."""

    def _check(self) -> None:
        raise NotImplementedError


class BlockCache:
    """The bounded set of blocks in RAM. The state lock guards it."""

    def __init__(
        self,
        account: Account,
        cache_bytes: int,
        lanes: Mapping[int, BlockLane],
        read_block: Callable[[int, int], bytes],
        doubt: Callable[[BlockDamaged], None],
        checkpoint_need: CheckpointNeed,
    ) -> None:
        """Make an empty cache.

        account: pays for blocks; it must grant as much as cache_bytes.
        lanes: all lanes of the index, by number.
        read_block(lane, number): returns the row of a block.
        doubt: may raise another error for a row that is not a block; otherwise BlockDamaged is raised.
        checkpoint_need: is told when the cache fills.
        """
        # (lane, block) -> a block that differs from its row.
        self.dirty: dict[tuple[int, int], Block] = {}
        self._account = account
        self._capacity_blocks = capacity_blocks(cache_bytes)
        self._lanes = lanes
        # The timetable of each lane with delayed messages, by number of the lane.
        self.delayed: dict[int, BlockLane] = {}
        self._read_block = read_block
        self._doubt = doubt
        self._checkpoint_need = checkpoint_need
        # Number of blocks in RAM that are charged, with their `extra_blocks` and the blocks of fingerprints.
        self._charged_blocks = 0
        # `extra_blocks` of the dirty blocks, and the blocks of fingerprints.
        self._dirty_extra = 0
        # Number of blocks that are charged for fingerprints which no checkpoint has stored yet.
        self._fingerprint_blocks = 0
        self._packed_bytes = 0
        # Blocks that equal their rows. The block whose read or checkpoint was longest ago comes first.
        self._clean: OrderedDict[tuple[int, int], Block] = OrderedDict()

    @property
    def is_crowded(self) -> bool:
        """Whether so many blocks are dirty that a checkpoint must come before more work."""
        return 2 * (len(self.dirty) + self._dirty_extra) >= self._capacity_blocks

    @property
    def is_nearly_full(self) -> bool:
        """Whether not even the preparation of a checkpoint may make more blocks dirty."""
        return 4 * (len(self.dirty) + self._dirty_extra) >= 3 * self._capacity_blocks

    def has_room_for(self, blocks: int) -> bool:
        """Return whether `blocks` more blocks may become dirty before a checkpoint must come."""
        return 2 * (len(self.dirty) + self._dirty_extra + blocks) <= self._capacity_blocks

    @property
    def held_bytes(self) -> int:
        """Bytes charged to the account."""
        return self._charged_blocks * BLOCK_CHARGE_BYTES + self._packed_bytes

    def resize(self, cache_bytes: int) -> bool:
        """Set the capacity. Clean blocks above it leave RAM at once. Requires: no checkpoint is under way.

        Return False if the dirty blocks do not fit until a checkpoint has come.
        """
        self._capacity_blocks = capacity_blocks(cache_bytes)
        self._make_room(0)
        self._note_filling()
        return self._charged_blocks <= self._capacity_blocks and not self.is_crowded

    def insert(self, lane: BlockLane, block: Block) -> None:
        """Take a block into RAM; if the cache is full, drop clean blocks."""
        self._charge(1 + block.extra_blocks)
        lane.resident_blocks[block.number] = block

    def lane(self, lane_number: int) -> BlockLane:
        """Return the lane of a number, or the timetable if the number is one of a timetable."""
        return self.delayed[lane_number ^ DELAYED] if lane_number & DELAYED else self._lanes[lane_number]

    def _make_room(self, blocks: int) -> None:
        while self._charged_blocks + blocks > self._capacity_blocks and self._clean:
            (number, _), old = self._clean.popitem(last=False)
            self._drop(self.lane(number), old)

    def _charge(self, blocks: int) -> None:
        self._make_room(blocks)
        admitted = self._account.reserve(blocks * BLOCK_CHARGE_BYTES)
        assert admitted, "the index's share of memory is guaranteed"
        self._charged_blocks += blocks

    def widen(self, block: Block) -> None:
        """Make room in a dirty block for the places of its first relocated messages."""
        self._widen(block, RELOCATED_BLOCKS - 1)
        block.relocated = RelocatedPlaces()

    def widen_for_times(self, block: Block) -> None:
        """Make room in a dirty block for the times of its first message that has any."""
        self._widen(block, TIMES_BLOCKS)
        block.times = BlockTimes()

    def _widen(self, block: Block, extra_blocks: int) -> None:
        self._charge(extra_blocks)
        block.extra_blocks += extra_blocks
        self._dirty_extra += extra_blocks
        self._note_filling()

    def hold_fingerprints(self, held_bytes: int) -> bool:
        """Charge dirty blocks for the fingerprints that no checkpoint has stored yet, `held_bytes` in all.

        Return False, and leave the charge as it was, if they would take more than an eighth of the cache.
        """
        blocks = -(-held_bytes // BLOCK_CHARGE_BYTES)
        more = blocks - self._fingerprint_blocks
        if more > 0 and not self.has_room_for_fingerprints(held_bytes):
            return False
        if more > 0:
            self._charge(more)
        else:
            self._charged_blocks += more
            self._account.release(-more * BLOCK_CHARGE_BYTES)
        self._fingerprint_blocks = blocks
        self._dirty_extra += more
        if more > 0:
            self._note_filling()
        return True

    def has_room_for_fingerprints(self, held_bytes: int) -> bool:
        """Return whether `held_bytes` of fingerprints take at most an eighth of the cache."""
        return 8 * -(-held_bytes // BLOCK_CHARGE_BYTES) <= self._capacity_blocks

    def _note_filling(self) -> None:
        """Ask for a checkpoint once a quarter of the cache is dirty."""
        if 4 * (len(self.dirty) + self._dirty_extra) >= self._capacity_blocks:
            self._checkpoint_need.is_index_filling = True

    def _drop(self, lane: BlockLane, block: Block) -> None:
        del lane.resident_blocks[block.number]
        if lane.tail is block:
            lane.tail = None
        blocks = 1 + block.extra_blocks
        self._charged_blocks -= blocks
        self._account.release(blocks * BLOCK_CHARGE_BYTES)

    def expel(self, lane: BlockLane, block: Block) -> None:
        """Remove a block from RAM, dirty or not."""
        if self.dirty.pop((lane.number, block.number), None) is not None:
            self._dirty_extra -= block.extra_blocks
        self._clean.pop((lane.number, block.number), None)
        self._drop(lane, block)

    def touch(self, lane: BlockLane, block: Block) -> None:
        """Mark a clean block dirty, because it differs from its row from now on."""
        block.is_dirty = True
        self._clean.pop((lane.number, block.number), None)
        self.dirty[lane.number, block.number] = block
        self._dirty_extra += block.extra_blocks
        # _note_filling, written inline
        if 4 * (len(self.dirty) + self._dirty_extra) >= self._capacity_blocks:
            self._checkpoint_need.is_index_filling = True

    def fetch(self, lane: BlockLane, block_number: int) -> Block:
        """Read a block that is not in RAM and keep it. Raises BlockDamaged, or what `doubt` raises instead."""
        block = self._read(lane, block_number)
        self.insert(lane, block)
        self._clean[lane.number, block_number] = block
        return block

    def peek(self, lane: BlockLane, block_number: int) -> Block:
        """Return a block with pending messages; if it is not in RAM, read it and do not keep it."""
        return lane.resident_blocks.get(block_number) or self._read(lane, block_number)

    def _read(self, lane: BlockLane, block_number: int) -> Block:
        packed = self._read_block(lane.number, block_number)
        try:
            return lane.unpack(block_number, packed)
        except BlockDamaged as damage:
            self._doubt(damage)  # the row's checksum is right, so its writer packed blocks in another way
            raise

    # ------------------------------------------------------------------ checkpoints

    def take_dirty(self) -> list[tuple[int, Block, bytes]]:
        """Pack the blocks that a checkpoint must write, as (lane number, block, bytes).

        The blocks stay in RAM until `checkpointed`, and the bytes are charged until `release_packed`.
        """
        taken: list[tuple[int, Block, bytes]] = []
        for (number, _), block in self.dirty.items():
            block.is_dirty = False
            taken.append((number, block, block.pack()))
        self.dirty.clear()
        self._dirty_extra = self._fingerprint_blocks
        self._checkpoint_need.is_index_filling = False
        self._packed_bytes = sum(len(packed) for _, _, packed in taken)
        admitted = self._account.reserve(self._packed_bytes)
        assert admitted, "the index's share of memory is guaranteed"
        return taken

    def release_packed(self) -> None:
        """Release the memory of the bytes that take_dirty returned."""
        self._account.release(self._packed_bytes)
        self._packed_bytes = 0

    def checkpointed(self, lane: BlockLane, block: Block, *, is_stored: bool) -> None:
        """Mark a block of take_dirty clean, or dirty again if it was not stored.

        Requires: the block is in RAM, and has not changed since.
        """
        if is_stored:
            self._clean[lane.number, block.number] = block
        else:
            self.touch(lane, block)

    def _check(self) -> None:
        lanes = [*self._lanes.values(), *self.delayed.values()]
        blocks = [block for lane in lanes for block in lane.resident_blocks.values()]
        held_blocks = self._fingerprint_blocks
        assert self._charged_blocks == held_blocks + sum(1 + block.extra_blocks for block in blocks)
        assert self._dirty_extra == held_blocks + sum(block.extra_blocks for block in self.dirty.values())
        for block in blocks:
            relocated_blocks = 0 if block.relocated is None else RELOCATED_BLOCKS - 1
            assert block.extra_blocks == relocated_blocks + (0 if block.times is None else block.times_blocks)
        for (number, block_number), block in self.dirty.items():
            assert block.is_dirty and self.lane(number).resident_blocks[block_number] is block
