"""DestinationLane: the messages that were sent to one priority of a queue or topic, and where they are in the journal.

Only this module adds messages to blocks and removes them, and it keeps the counts of DataLogUse in step. The block
cache decides which blocks are in RAM.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence

from ..format.places import Extent, SingleRecords
from ..format.record import RecordDamaged, check_run
from ..format.times import DUE, EXPIRY, NO_TIMES, MessageTimes
from ..numbering import BLOCK_MASK, BLOCK_MESSAGES, BLOCK_SHIFT, LANE_SHIFT, NO_DESTINATION
from ..structures.bits import ones
from .block import Block
from .block_cache import BlockCache, BlockLane
from .data_log_use import DataLogUse, use_of


class DestinationLane(BlockLane):
    """The lane of a queue: a message is pending from its send to its ack. A topic's lane is a TopicLane.

    The state lock guards it.
    """

    __slots__ = ("data_log_uses", "is_unread")

    def __init__(
        self, cache: BlockCache, data_log_uses: dict[int, DataLogUse], destination_number: int, priority: int
    ) -> None:
        """Make an empty lane.

        data_log_uses: the uses of all data logs, which the lanes of an index share.
        """
        super().__init__(cache, destination_number << LANE_SHIFT | priority, destination_number, priority)
        self.data_log_uses = data_log_uses
        # Whether this is a topic's lane without subscriptions. Messages then get a sequence, and are not stored.
        self.is_unread = False

    def on_shrunk(self) -> None:
        """Note that the lane is only a row of IdleLanes now, so that the index no longer has this object."""

    @property
    def is_idle(self) -> bool:
        """Whether no message is pending or delayed, so that the next sequence is all that must be kept."""
        return not self.pending_messages and not self.delayed_messages

    def add_one(self, data_log: int, offset: int, length: int, use: DataLogUse) -> int:
        """Give the next sequence to a message and return it. O(1), no disk."""
        sequence = self.next_sequence
        block = self.tail
        if block is None or not sequence & BLOCK_MASK:
            block = self._begin_block(sequence)
        if block.starts is not None:
            block.starts.append(len(block.lengths))
        if not block.data_logs or block.data_logs[-1] != data_log:
            block.begin_data_log(data_log)
        block.offsets.append(offset)
        block.lengths.append(length)
        if not block.is_dirty:  # _touched, and below _count_added of one, written inline
            self.cache.touch(self, block)
        self.next_sequence = sequence + 1
        self.pending_messages += 1
        self.added_bytes += length
        use.pending_messages += 1
        use.pending_bytes += length
        return sequence

    def add_slice(self, data_log: int, offset: int, lengths: list[int], use: DataLogUse) -> int:
        """Give the next sequences to the messages of one record; return the first.

        Requires: they fit into the block.
        """
        sequence = self.next_sequence
        block = self.tail
        if block is None or not sequence & BLOCK_MASK:
            block = self._begin_block(sequence)
        block.add_slice(data_log, offset, array("I", lengths))
        if not block.is_dirty:  # _touched, and below _count_added, written inline
            self.cache.touch(self, block)
        count, total = len(lengths), sum(lengths)
        self.next_sequence = sequence + count
        self.pending_messages += count
        self.added_bytes += total
        use.pending_messages += count
        use.pending_bytes += total
        return sequence

    def add_singles(self, data_log: int, offsets: array[int], lengths: array[int], use: DataLogUse) -> None:
        """Give the next sequences to messages that are a record each, block by block.

        Requires: the index has room for the blocks (`Index.is_crowded`).
        """
        begin = 0
        while begin < len(offsets):
            sequence = self.next_sequence
            block = self.tail
            if block is None or not sequence & BLOCK_MASK:
                block = self._begin_block(sequence)
            behind = min(begin + self.slice_capacity, len(offsets))
            block.add_singles(data_log, offsets[begin:behind], lengths[begin:behind])
            self._touched(block)
            self.next_sequence = sequence + behind - begin
            begin = behind
        self._count_added(len(lengths), sum(lengths), use)

    @property
    def slice_capacity(self) -> int:
        """How many messages the next slice may have without crossing a block."""
        return BLOCK_MESSAGES - (self.next_sequence & BLOCK_MASK)

    def skip_to(self, sequence: int) -> None:
        """Skip to a sequence if replay found a gap: messages before it were in data logs that are deleted.

        RecordDamaged: no message can have that sequence.
        """
        if sequence <= self.next_sequence:
            return
        check_run(self.number, sequence, 1)
        number = sequence >> BLOCK_SHIFT
        if self.tail is not None and self.tail.number == number:
            self._touched(self.tail).fill(sequence & BLOCK_MASK)
        else:
            self.tail = None
            left = self.block(self.next_sequence >> BLOCK_SHIFT)
            if left is not None and left.number != number:
                self._retire_if_empty(left)
        self.next_sequence = sequence

    def discard_next(self, messages: int, content_bytes: int) -> None:
        """Use up the next sequences for messages that are not stored because there is no subscription."""
        self.skip_to(self.next_sequence + messages)

    def _count_added(self, count: int, total: int, use: DataLogUse) -> None:
        """Count messages with so many bytes of content as pending, here and in their data log."""
        self.pending_messages += count
        self.added_bytes += total
        use.pending_messages += count
        use.pending_bytes += total

    def _touched(self, block: Block) -> Block:
        """Return a block that is changed now: it is dirty."""
        if not block.is_dirty:
            self.cache.touch(self, block)
        return block

    def _begin_block(self, sequence: int) -> Block:
        number = sequence >> BLOCK_SHIFT
        block = self.block(number) if number in self.block_numbers else None
        if block is None:
            block = Block(number)
            self.cache.insert(self, block)
            self.block_numbers.add(number, number)
            self._touched(block)
        block.fill(sequence & BLOCK_MASK)
        self.tail = block
        return block

    def remove(self, first: int, last: int, ack_data_log: int) -> int:
        """Remove first..last, by a record in ack_data_log (0: no record). Return how many were pending.

        O(blocks). Messages that are removed already, or never seen, are skipped.
        """
        removed = 0
        number, last_number = first >> BLOCK_SHIFT, last >> BLOCK_SHIFT
        while number <= last_number:
            block = self.resident_blocks.get(number)
            if block is None:
                run = self.block_numbers.next_from(number)
                if run is None or run[0] > last_number:
                    break
                number = run[0]
                block = self.block(number)
                assert block is not None
            base = number << BLOCK_SHIFT
            removed += self._remove_in(block, max(first - base, 0), min(last - base, BLOCK_MASK), ack_data_log)
            number += 1
        return removed

    def remove_one(self, sequence: int, ack_data_log: int) -> int:
        """Remove one sequence as `remove` does, by a record: there always is one. Every single ack takes this path."""
        block = self.resident_blocks.get(sequence >> BLOCK_SHIFT)
        index = sequence & BLOCK_MASK
        if block is None or len(block.data_logs) != 1 or index >= len(block.lengths) or block.relocated is not None:
            return self.remove(sequence, sequence, ack_data_log)
        gone = block.gone | 1 << index  # _remove_in of one, with what it calls, written inline
        if gone == block.gone:
            return 0
        length = block.lengths[index]
        data_log = block.data_logs[0]
        block.gone = gone
        use = self.data_log_uses[data_log]
        use.pending_messages -= 1
        use.pending_bytes -= length
        if data_log != ack_data_log:
            self.data_log_uses[ack_data_log].acked_data_logs.add(data_log)
        self.pending_messages -= 1
        self.removed_bytes += length
        if not block.is_dirty:
            self.cache.touch(self, block)
        if block is self.tail and self.next_sequence & BLOCK_MASK:
            return 1  # more messages will be added to it
        if gone.bit_count() == len(block.lengths):
            self.retire(block)
        return 1

    def _remove_in(self, block: Block, low: int, high: int, ack_data_log: int) -> int:
        lengths = block.lengths
        if high >= len(lengths):
            high = len(lengths) - 1
        mask = ((1 << (high - low + 1)) - 1) << low if high >= low else 0
        fresh = mask & ~block.gone
        if not fresh:
            return 0
        freed_bytes = self._discount(block, low, high, fresh, ack_data_log)
        removed = fresh.bit_count()
        block.gone |= mask
        self.pending_messages -= removed
        self.removed_bytes += freed_bytes
        self._touched(block)
        self._retire_if_empty(block)
        return removed

    def _discount(self, block: Block, low: int, high: int, fresh: int, by_data_log: int) -> int:
        """Remove the messages in `fresh` from the uses of their data logs. A record in by_data_log undoes them.

        Return the bytes of their contents.
        """
        uses, lengths = self.data_log_uses, block.lengths
        freed_bytes = 0
        for data_log, first, last in block.data_log_runs(low, high):
            part = (fresh >> first) & ((1 << (last - first + 1)) - 1)
            messages = part.bit_count()
            if not messages:
                continue  # the data log may have been deleted since, with its counts
            if messages == last - first + 1:
                size = lengths[first] if messages == 1 else sum(lengths[first : last + 1])
            else:
                size = sum(lengths[at] for at in range(first, last + 1) if fresh >> at & 1)
            use = uses[data_log]
            use.pending_messages -= messages
            use.pending_bytes -= size
            freed_bytes += size
            if data_log != by_data_log and by_data_log:
                uses[by_data_log].acked_data_logs.add(data_log)
        return freed_bytes

    def note_copy(self, data_log: int, offset: int, first: int, lengths: list[int]) -> None:
        """Note that the sequences from `first` on are in a copy there. Requires: they fit into a block.

        They are pending from now on: only pending messages are copied. A replay may not have seen them, or may have
        seen them removed at an older place, because it misses what was in deleted data logs.
        """
        behind = first + len(lengths)
        self.skip_to(behind)
        block = self._block_for(first >> BLOCK_SHIFT)
        low = first & BLOCK_MASK
        high = low + len(lengths) - 1
        pending = ~block.gone & ((1 << min(high + 1, len(block.lengths))) - 1) >> low << low
        known = enumerate(block.lengths[low : high + 1])
        if any(length != lengths[at] and pending >> low + at & 1 for at, length in known):
            raise RecordDamaged("a message that was moved has another length than before")
        use = use_of(self.data_log_uses, data_log)
        freed_bytes = self._discount(block, low, high, pending, data_log)
        added_bytes = sum(lengths)
        if block.relocated is None:
            self.cache.widen(block)
        block.note_copy(data_log, offset, low, array("I", lengths))
        use.pending_messages += len(lengths)
        use.pending_bytes += added_bytes
        self.pending_messages += len(lengths) - pending.bit_count()
        self.added_bytes += added_bytes - freed_bytes

    def _block_for(self, block_number: int) -> Block:
        """Return the block, dirty; make it again if it has no pending message."""
        block = self.block(block_number)
        if block is None:
            block = Block(block_number)
            self.cache.insert(self, block)
            self.block_numbers.add(block_number, block_number)
            block.fill(min(self.next_sequence - (block_number << BLOCK_SHIFT), BLOCK_MESSAGES))
        return self._touched(block)

    def pending_places_in(
        self, data_log: int, begin: int, end: int, first: int, last: int
    ) -> list[Extent | SingleRecords]:
        """Return where those of first..last, in one block, are that are pending and in a record of a data log.

        begin, end: the offsets between which that record begins.
        """
        block = self.block(first >> BLOCK_SHIFT)
        stored: list[Extent | SingleRecords] = []
        if block is None or first >> BLOCK_SHIFT != last >> BLOCK_SHIFT:
            return stored
        low, high = first & BLOCK_MASK, last & BLOCK_MASK
        while (run := block.pending_run(low, BLOCK_MESSAGES)) is not None and run[0] <= high:
            for extent in block.extents(run[0], min(run[1], high)):
                if extent.data_log != data_log:
                    continue
                if isinstance(extent, SingleRecords):
                    extent = extent.part(bisect_left(extent.offsets, begin), bisect_left(extent.offsets, end))
                if extent.messages and begin <= extent.offset < end:
                    stored.append(extent)
            low = run[1] + 1
        return stored

    def put_times(self, first: int, times: Sequence[MessageTimes]) -> None:
        """Set the times of messages from `first` on. Requires: they are in one block and were just added or moved.

        O(messages).
        """
        block = self.block(first >> BLOCK_SHIFT)
        if block is None or not any(map(any, times)):
            return
        self._touched(block)
        if block.times is None:
            self.cache.widen_for_times(block)
        assert block.times is not None
        block.times.put_each(first & BLOCK_MASK, times)
        self.note_earliest_times(block)

    def put_expiry(self, sequence: int, expires_at: int) -> None:
        """Set the expiry of the message that was just added. O(1)."""
        block = self.tail
        assert block is not None
        times = block.times
        if times is None:
            self.cache.widen_for_times(block)
            times = block.times
            assert times is not None
        if times.put_expiry(sequence & BLOCK_MASK, expires_at):
            self.note_earliest_times(block)

    def note_earliest_times(self, block: Block) -> None:
        """Lower the earliest times of this lane to those of a block."""
        assert block.times is not None
        for kind in (DUE, EXPIRY):
            self.earliest[kind] = min(self.earliest[kind], block.times.earliest[kind])

    def times_of(self, sequence: int) -> MessageTimes:
        """Return when a pending message is due, or was due recently, and when it expires."""
        block = self.block(sequence >> BLOCK_SHIFT)
        return NO_TIMES if block is None or block.times is None else block.times.of(sequence & BLOCK_MASK)

    def not_due_bits(self, first: int, last: int) -> int:
        """Return a bit for each of first..last, in one block, that is not due yet; the lowest bit is for the first."""
        block = self.block(first >> BLOCK_SHIFT)
        return 0 if block is None else block.not_due_bits(first & BLOCK_MASK, last & BLOCK_MASK)

    def is_complete(self, block_number: int) -> bool:
        """Return whether no more messages will be added to a block."""
        return self.next_sequence >> BLOCK_SHIFT > block_number

    def has_pending_besides(self, block_number: int, examined: int) -> bool:
        """Return whether a block has pending messages without a bit in `examined`, where the lowest bit is for its
        first.
        """
        block = self.block(block_number)
        return block is not None and ones(0, len(block.lengths) - 1) & ~block.gone & ~examined != 0

    def _retire_if_empty(self, block: Block) -> None:
        """Forget a block that has no pending message and to which none will be added."""
        size = len(block.lengths)
        if block.gone.bit_count() < size or (block is self.tail and size < BLOCK_MESSAGES):
            return
        self.retire(block)

    def is_pending(self, sequence: int) -> bool:
        block = self.block(sequence >> BLOCK_SHIFT)
        if block is None:
            return False
        index = sequence & BLOCK_MASK
        return index < len(block.lengths) and not block.gone >> index & 1

    def pending_run(self, sequence: int, most: int) -> tuple[int, int] | None:
        """Return the first run of pending sequences at or behind `sequence`, cut to `most` and to its block.

        None: there is none.
        """
        number = sequence >> BLOCK_SHIFT
        index = sequence & BLOCK_MASK
        while True:
            block = self.resident_blocks.get(number)
            if block is None:
                run = self.block_numbers.next_from(number)
                if run is None:
                    return None
                if run[0] != number:
                    number, index = run[0], 0
                block = self.block(number)
                assert block is not None
            found = block.pending_run(index, most)
            if found is not None:
                base = number << BLOCK_SHIFT
                return base + found[0], base + found[1]
            number, index = number + 1, 0

    def lengths(self, first: int, last: int) -> array[int]:
        """Return the content bytes of first..last. Requires: they are in one block and pending."""
        block = self.block(first >> BLOCK_SHIFT)
        assert block is not None
        return block.lengths[first & BLOCK_MASK : (last & BLOCK_MASK) + 1]

    def extents(self, first: int, last: int) -> Iterator[Extent | SingleRecords]:
        """Return where first..last are. Requires: they are in one block and pending."""
        block = self.block(first >> BLOCK_SHIFT)
        assert block is not None
        return block.extents(first & BLOCK_MASK, last & BLOCK_MASK)

    def _check(self) -> None:
        pending = size = 0
        for low, high in self.block_numbers:
            for number in range(low, high + 1):
                block = self.block(number)
                assert block is not None and block.number == number
                assert block.pending_messages or number == self.next_sequence >> BLOCK_SHIFT
                block._check()
                pending += block.pending_messages
                size += sum(length for at, length in enumerate(block.lengths) if not block.gone >> at & 1)
        assert pending == self.pending_messages
        assert size == self.pending_bytes
        for runs in (self.block_numbers, self.stored_block_numbers, self.rows_to_delete):
            runs._check()
        assert all(number in self.block_numbers for number in self.resident_blocks)


class DeletedLane(DestinationLane):
    """The lane of a deleted queue or topic: nothing is pending.

    Its destination number is NO_DESTINATION, so the journal raises Closed when somebody adds or acknowledges a message.
    """

    __slots__ = ()

    def __init__(self, lane: DestinationLane) -> None:
        super().__init__(lane.cache, lane.data_log_uses, NO_DESTINATION, lane.priority)
        self.number = lane.number
