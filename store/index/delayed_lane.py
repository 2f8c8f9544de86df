"""DelayedLane: the timetable of a lane, which says when messages that came back are offered again.

A consumer gave such a message back with a delay, or the policy has a delay. Until the delay has ended, the message is
in no list. The timetable has blocks of its own, which the block cache bounds and charges like all others. The row of a
block knows when the first message of the block is due. So 512 messages that are due much later cost one row on disk,
and nothing in RAM.

A return record in the journal has the same times, so a kill loses none. Lanes of non-persistent messages have a
timetable too; the next open of the store drops it.
"""

from __future__ import annotations

from ..format.times import DUE, NEVER
from ..numbering import BLOCK_MASK, BLOCK_MESSAGES, BLOCK_SHIFT, DELAYED, LANE_MASK, LANE_SHIFT
from ..structures.bits import first_run
from .block import Block, DelayedBlock
from .block_cache import BlockCache, BlockLane
from .pending_lane import PendingLane


class DelayedLane(BlockLane):
    """The timetable of another lane: a message is pending here while it waits for its time to be offered again.

    A message that was removed from the other lane may still wait here, so callers ask the other lane too. The state
    lock guards it.
    """

    __slots__ = ()

    def __init__(self, cache: BlockCache, lane_number: int) -> None:
        """Make an empty timetable. lane_number: that of the lane with the messages."""
        super().__init__(cache, DELAYED | lane_number, lane_number >> LANE_SHIFT, lane_number & LANE_MASK)

    def unpack(self, block_number: int, packed: bytes) -> Block:
        """Return the block of delayed messages in these bytes. Raises BlockDamaged."""
        return DelayedBlock.unpack(block_number, packed)

    def put(self, first: int, last: int, due_at: int) -> None:
        """Let first..last wait until `due_at`, even if they waited for another time. O(messages)."""
        for number in range(first >> BLOCK_SHIFT, (last >> BLOCK_SHIFT) + 1):
            base = number << BLOCK_SHIFT
            block = self.block(number)
            if block is None:
                block = DelayedBlock(number)
                self.cache.insert(self, block)
                self.block_numbers.add(number, number)
            if not block.is_dirty:
                self.cache.touch(self, block)
            assert block.times is not None
            before = block.times.not_due_bits.bit_count()
            block.times.put_due(max(first - base, 0), min(last - base, BLOCK_MASK), due_at)
            self.pending_messages += block.times.not_due_bits.bit_count() - before
        self.earliest[DUE] = min(self.earliest[DUE], due_at)

    def forget(self, first: int, last: int) -> None:
        """Remove first..last from the timetable. O(blocks); if nothing else waits, no block is read."""
        numbers = self.block_numbers
        if numbers and first <= numbers.first << BLOCK_SHIFT and numbers.last < (last + 1) >> BLOCK_SHIFT:
            self.forget_all()
            return
        number = first >> BLOCK_SHIFT
        while (run := self.block_numbers.next_from(number)) is not None:
            number = max(run[0], number)
            base = number << BLOCK_SHIFT
            if base > last:
                return
            block = self.block(number)
            assert block is not None and block.times is not None
            before = block.times.not_due_bits.bit_count()
            if not block.is_dirty:
                self.cache.touch(self, block)
            block.times.forget_due(max(first - base, 0), min(last - base, BLOCK_MASK))
            self.note_due(block, before - block.times.not_due_bits.bit_count())
            number += 1

    def trim(self, lane: PendingLane, first: int, last: int) -> None:
        """Remove those of first..last from the timetable that are not pending in the lane. O(blocks)."""
        while first <= last:
            run = lane.pending_run(first, BLOCK_MESSAGES)
            begin, end = (last + 1, last) if run is None else run
            if first < begin:
                self.forget(first, min(begin - 1, last))
            first = end + 1

    def forget_all(self) -> None:
        """Remove everything from the timetable, because the lane has ended. O(blocks), no disk."""
        for block in list(self.resident_blocks.values()):
            self.cache.expel(self, block)
        for first, last in self.stored_block_numbers:
            self.rows_to_delete.add(first, last)
        self.block_numbers.clear()
        self.pending_messages = 0
        self.earliest[DUE] = NEVER

    def note_due(self, block: Block, messages: int) -> None:
        """Count waiting messages that were removed, and forget the block if none of its messages waits any more."""
        assert block.times is not None
        self.pending_messages -= messages
        if not block.times.not_due_bits:
            self.retire(block)
        if not self.block_numbers:
            self.earliest[DUE] = NEVER

    def is_pending(self, sequence: int) -> bool:
        """Return whether a message is delayed."""
        return self.not_due_bits(sequence, sequence) != 0

    def not_due_bits(self, first: int, last: int) -> int:
        """Return a mask of first..last, in one block, with a bit for each message that waits.

        The lowest bit is for `first`.
        """
        block = self.block(first >> BLOCK_SHIFT)
        return 0 if block is None else block.not_due_bits(first & BLOCK_MASK, last & BLOCK_MASK)

    def due_at(self, sequence: int) -> int:
        """Return when a waiting message is offered again."""
        block = self.block(sequence >> BLOCK_SHIFT)
        assert block is not None and block.times is not None
        return block.times.of(sequence & BLOCK_MASK).due_at

    def pending_run(self, sequence: int, most: int) -> tuple[int, int] | None:
        """Return the first waiting run at or behind `sequence`, cut to `most` and to its block. None: there is none."""
        number = sequence >> BLOCK_SHIFT
        while (run := self.block_numbers.next_from(number)) is not None:
            number = max(run[0], number)
            block = self.block(number)
            assert block is not None and block.times is not None
            base = number << BLOCK_SHIFT
            low = max(sequence - base, 0)
            waiting = block.times.not_due_bits >> low << low
            if waiting:
                first, last = first_run(waiting, most)
                return base + first, base + last
            number += 1
        return None

    def _check(self) -> None:
        waiting = 0
        for low, high in self.block_numbers:
            for number in range(low, high + 1):
                block = self.block(number)
                assert block is not None and block.times is not None and block.number == number
                block._check()
                waiting += block.times.not_due_bits.bit_count()
                assert self.earliest[DUE] <= block.times.earliest[DUE]
        assert waiting == self.pending_messages
        for runs in (self.block_numbers, self.stored_block_numbers, self.rows_to_delete):
            runs._check()
        assert all(number in self.block_numbers for number in self.resident_blocks)
        assert not self.block_numbers or self.earliest[DUE] < NEVER
