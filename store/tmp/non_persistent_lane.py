"""NonPersistentLane: the pending non-persistent messages of one priority of a queue or subscription.

Dispatch uses it like a lane of the index. It has sequences of its own. The lane is only in RAM: neither journal nor
index nor checkpoint knows its messages, so they end with the process.

The lane remembers the order of its messages among the persistent ones of the same priority, so that dispatch can hand
out both in order of arrival. This takes memory only where one kind follows the other.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import Final

from ..environment.account import Account
from ..errors import Closed, StoreFull
from ..format.times import DUE, EXPIRY, NEVER, NO_TIMES, BlockTimes, MessageTimes
from ..index.pending_lane import PendingLane
from ..numbering import BEHIND_ALL, BLOCK_MASK, BLOCK_MESSAGES, BLOCK_SHIFT, LANE_SHIFT, NON_PERSISTENT
from ..stored_message import StoredMessage
from ..structures.bits import first_run, runs_of_ones
from ..structures.sequence_set import SequenceSet
from .spill_turns import SpillTurns

BLOCK_CHARGE_BYTES: Final = 2816
"""Charge of 512 lengths with the growth reserve of array, two bitmaps, and the objects around them."""
TIMES_CHARGE_BYTES: Final = 9_472
"""Charge of two columns of 512 numbers of 8 bytes with the growth reserve of array, and the objects around them."""
_ALL_GONE: Final = (1 << BLOCK_MESSAGES) - 1


class NonPersistentBlock:
    """Content bytes of 512 consecutive sequences, a mask of the gone messages, and one of those in tmp-storage."""

    __slots__ = ("lengths", "gone", "spilled", "times")

    def __init__(self) -> None:
        self.lengths = array("I")
        self.gone = 0
        # One bit for each message in tmp-storage. Of a message without a bit, RAM has the only copy.
        self.spilled = 0
        # When messages are due and expire. None: no message has such a time.
        self.times: BlockTimes | None = None


class NonPersistentLane(PendingLane):
    """The lane of messages that are not in the journal, but in RAM or tmp-storage. The state lock guards it."""

    __slots__ = (
        "pool_number",
        "newest_turn",
        "is_copied",
        "_account",
        "_blocks",
        "_numbers",
        "_tail",
        "_turns",
        "_is_closed",
        "_has_times_ahead",
    )

    def __init__(self, account: Account, destination_number: int, priority: int) -> None:
        """Make an empty lane. account: pays for the blocks."""
        super().__init__(NON_PERSISTENT | destination_number << LANE_SHIFT | priority, destination_number, priority)
        # Under this number, messages without room in RAM wait to be spilled. Lanes of one fan-out share a number.
        self.pool_number = self.number
        # The next message is ordered before this sequence of the persistent lane.
        self.newest_turn = 0
        # Whether a list knows a message that only a delivery has. Then caches may have it when it is acknowledged.
        self.is_copied = False
        # Whether memory for the times of one more block is reserved.
        self._has_times_ahead = False
        self._account = account
        self._blocks: dict[int, NonPersistentBlock] = {}
        self._numbers = SequenceSet()
        # The lengths of the newest block, to which messages are added.
        self._tail = array("I")
        # How messages are ordered among persistent ones. None: no message has come between persistent ones yet.
        self._turns: SpillTurns | None = None
        self._is_closed = False

    # ------------------------------------------------------------------ adding

    def add(self, length: int) -> int:
        """Add a message of that length; return its sequence. StoreFull: there is no memory, and nothing has changed."""
        sequence = self.next_sequence
        if not sequence & BLOCK_MASK:
            self._begin_block(sequence >> BLOCK_SHIFT)
        self._tail.append(length)
        self.next_sequence = sequence + 1
        self.pending_messages += 1
        self.added_bytes += length
        return sequence

    def skip_to(self, sequence: int) -> None:
        """Skip all sequences before `sequence`. StoreFull: there is no memory, and fewer were skipped.

        O(512), because blocks without messages are never made.
        """
        while self.next_sequence < sequence:
            base = self.next_sequence & ~BLOCK_MASK
            if base == self.next_sequence:
                if sequence - base >= BLOCK_MESSAGES:
                    self.next_sequence = sequence & ~BLOCK_MASK
                    continue
                self._begin_block(base >> BLOCK_SHIFT)
            end = min(sequence, base + BLOCK_MESSAGES)
            low, high = self.next_sequence - base, end - base
            block = self._blocks[base >> BLOCK_SHIFT]
            block.lengths.extend(repeat(0, high - low))
            block.gone |= (1 << high) - (1 << low)
            self.next_sequence = end
            if block.gone == _ALL_GONE:
                self._forget(base >> BLOCK_SHIFT)

    def retract(self) -> None:
        """Remove the message added last, because it was not stored after all."""
        self.next_sequence -= 1
        self.pending_messages -= 1
        self.added_bytes -= self._tail.pop()
        if not self._tail:
            self._forget(self.next_sequence >> BLOCK_SHIFT)

    def admit_times(self) -> None:
        """Reserve memory for the times of the next message. StoreFull: there is no memory, and nothing has changed."""
        block = self._blocks.get(self.next_sequence >> BLOCK_SHIFT)
        if self._has_times_ahead or (block is not None and block.times is not None):
            return
        self._charge(TIMES_CHARGE_BYTES)
        self._has_times_ahead = True

    def put_times(self, sequence: int, times: MessageTimes) -> None:
        """Set the times of the message that was added last. Requires: an earlier admit_times."""
        block = self._blocks[sequence >> BLOCK_SHIFT]
        if block.times is None:
            block.times = BlockTimes()
            self._has_times_ahead = False
        expires_at, due_at = times
        if due_at == 0 < expires_at:
            block.times.put_expiry(sequence & BLOCK_MASK, expires_at)
            if expires_at < self.earliest[EXPIRY]:
                self.earliest[EXPIRY] = expires_at
            return
        block.times.put(sequence & BLOCK_MASK, times)
        for kind in (DUE, EXPIRY):
            self.earliest[kind] = min(self.earliest[kind], block.times.earliest[kind])

    def _begin_block(self, block_number: int) -> None:
        self._charge(BLOCK_CHARGE_BYTES)
        block = self._blocks[block_number] = NonPersistentBlock()
        self._numbers.add(block_number, block_number)
        self._tail = block.lengths

    def _charge(self, charge_bytes: int) -> None:
        if self._is_closed:
            raise Closed("the queue or topic")
        if not self._account.reserve(charge_bytes):
            raise StoreFull(charge_bytes, 0, "memory_limit")

    def _forget(self, block_number: int) -> None:
        times = self._blocks.pop(block_number).times
        self._numbers.remove(block_number, block_number)
        self._account.release(BLOCK_CHARGE_BYTES + (TIMES_CHARGE_BYTES if times is not None else 0))
        self._forget_turns()

    # ------------------------------------------------------------------ removing

    def remove(self, first: int, last: int) -> tuple[int, int]:
        """Remove first to last. Return how many were pending, and a number that is not 0 if any of them was spilled.

        O(blocks).
        """
        removed = spilled = 0
        at = first
        while (run := self._numbers.next_from(at >> BLOCK_SHIFT)) is not None:
            number = run[0]
            base = number << BLOCK_SHIFT
            if base > last:
                break
            block = self._blocks[number]
            low, high = max(at - base, 0), min(last - base + 1, len(block.lengths))
            fresh = ((1 << high) - (1 << low)) & ~block.gone if low < high else 0
            if fresh:
                removed += fresh.bit_count()
                if fresh.bit_count() == high - low:
                    self.removed_bytes += sum(block.lengths[low:high])
                else:
                    self.removed_bytes += sum(block.lengths[n] for n in range(low, high) if fresh >> n & 1)
                spilled |= block.spilled & fresh
                block.gone |= fresh
                if block.gone == _ALL_GONE:
                    self._forget(number)
            at = base + BLOCK_MESSAGES
            if at > last:
                break
        self.pending_messages -= removed
        return removed, spilled

    def remove_one(self, sequence: int) -> tuple[int, int]:
        """Remove one sequence as `remove` does. Every single ack takes this path."""
        block = self._blocks.get(sequence >> BLOCK_SHIFT)
        index = sequence & BLOCK_MASK
        if block is None or index >= len(block.lengths):
            return 0, 0
        bit = 1 << index
        if block.gone & bit:
            return 0, 0
        block.gone |= bit
        self.pending_messages -= 1
        self.removed_bytes += block.lengths[index]
        spilled = block.spilled
        if block.gone == _ALL_GONE:
            self._forget(sequence >> BLOCK_SHIFT)
        return 1, spilled and spilled & bit

    def close(self) -> None:
        """Empty the lane of a deleted queue: no message is pending, and adding raises Closed."""
        self._account.release(self.charge_bytes)
        self._has_times_ahead = False
        self.earliest = [NEVER, NEVER]
        self._blocks.clear()
        self._numbers.clear()
        self._turns = None
        self.pending_messages, self.removed_bytes = 0, self.added_bytes
        self._is_closed = True
        self.next_sequence = (self.next_sequence | BLOCK_MASK) + 1  # the next message would begin a block

    # ------------------------------------------------------------------ queries

    def is_pending(self, sequence: int) -> bool:
        block = self._blocks.get(sequence >> BLOCK_SHIFT)
        index = sequence & BLOCK_MASK
        return block is not None and index < len(block.lengths) and not block.gone >> index & 1

    def pending_run(self, sequence: int, most: int) -> tuple[int, int] | None:
        """Return the first run of pending sequences at or behind `sequence`, cut to `most` and to its block.

        None: there is none.
        """
        while (run := self._numbers.next_from(sequence >> BLOCK_SHIFT)) is not None:
            number = run[0]
            base = number << BLOCK_SHIFT
            block = self._blocks[number]
            low = max(sequence - base, 0)
            pending = ((1 << len(block.lengths)) - 1 & ~block.gone) >> low << low
            if pending:
                first, last = first_run(pending, most)
                return base + first, base + last
            sequence = base + BLOCK_MESSAGES
        return None

    def pending_from(self) -> int:
        """Return where the first block with a pending message begins. O(1)."""
        return self._numbers.first << BLOCK_SHIFT if self._numbers else self.next_sequence

    def times_of(self, sequence: int) -> MessageTimes:
        """Return when a pending message is due, or was due recently, and when it expires."""
        block = self._blocks.get(sequence >> BLOCK_SHIFT)
        return NO_TIMES if block is None or block.times is None else block.times.of(sequence & BLOCK_MASK)

    def not_due_bits(self, first: int, last: int) -> int:
        """Return a mask of first to last, in one block, with a bit for each message that is not due yet."""
        times = self._blocks[first >> BLOCK_SHIFT].times
        return 0 if times is None else times.not_due_bits >> (first & BLOCK_MASK) & (1 << (last - first + 1)) - 1

    def expired(self, block_number: int, now_ms: int) -> int:
        """Return a mask of the pending messages of a block that have expired."""
        block = self._blocks.get(block_number)
        return 0 if block is None or block.times is None else block.times.expired(now_ms, block.gone)

    def timed_blocks(self) -> list[tuple[int, BlockTimes, int]]:
        """Return (number, times, mask of gone messages) of each block with times, in order. O(blocks)."""
        return [(number, block.times, block.gone) for number, block in self._blocks.items() if block.times is not None]

    def lengths(self, first: int, last: int) -> array[int]:
        """Return the content bytes of first to last. Requires: they are in one block and pending."""
        return self._blocks[first >> BLOCK_SHIFT].lengths[first & BLOCK_MASK : (last & BLOCK_MASK) + 1]

    def is_spilled(self, sequence: int) -> bool:
        block = self._blocks.get(sequence >> BLOCK_SHIFT)
        return block is not None and block.spilled >> (sequence & BLOCK_MASK) & 1 == 1

    def unspilled(self, first: int, last: int) -> int:
        """Return a mask of first to last with a bit for each message that is not in tmp-storage.

        Requires: they are in one block.
        """
        low, high = first & BLOCK_MASK, (last & BLOCK_MASK) + 1
        return ((1 << high) - (1 << low) & ~self._blocks[first >> BLOCK_SHIFT].spilled) >> low

    def spilled(self, first: int, last: int) -> None:
        """Note that first to last, all pending, are in tmp-storage from now on."""
        for number in range(first >> BLOCK_SHIFT, (last >> BLOCK_SHIFT) + 1):
            base = number << BLOCK_SHIFT
            low, high = max(first - base, 0), min(last - base + 1, BLOCK_MESSAGES)
            self._blocks[number].spilled |= (1 << high) - (1 << low)

    def only_in_ram(self, messages: Sequence[StoredMessage]) -> list[Sequence[StoredMessage]]:
        """Return, of ascending messages, those that are pending and not spilled, in runs. O(blocks) for a whole run."""
        first, last = messages[0][0], messages[-1][0]
        if last - first + 1 == len(messages) and self._is_only_in_ram(first, last):
            return [messages]
        runs: list[list[StoredMessage]] = []
        for message in messages:
            sequence = message[0]
            if self._is_only_in_ram(sequence, sequence):
                if runs and runs[-1][-1][0] == sequence - 1:
                    runs[-1].append(message)
                else:
                    runs.append([message])
        return list(runs)

    def _is_only_in_ram(self, first: int, last: int) -> bool:
        for number in range(first >> BLOCK_SHIFT, (last >> BLOCK_SHIFT) + 1):
            block = self._blocks.get(number)
            base = number << BLOCK_SHIFT
            low, high = max(first - base, 0), min(last - base + 1, BLOCK_MESSAGES)
            if block is None or high > len(block.lengths) or (block.gone | block.spilled) & ((1 << high) - (1 << low)):
                return False
        return True

    # ------------------------------------------------------------------ between persistent messages

    def take_turn(self, persistent_sequence: int) -> None:
        """Order later messages before this persistent message. StoreFull: there is no memory to note it."""
        turns = self._turns
        if turns is None:
            turns = SpillTurns()
            self._charge(turns.charge_bytes + turns.cost(persistent_sequence, self.next_sequence))
            self._turns = turns
        else:
            self._charge(turns.cost(persistent_sequence, self.next_sequence))
        turns.add(persistent_sequence, self.next_sequence)
        self.newest_turn = persistent_sequence

    def next_persistent(self, sequence: int) -> int:
        """Return the persistent sequence before which a message comes. O(log turns)."""
        return 0 if self._turns is None else self._turns.next_persistent(sequence)

    def next_non_persistent(self, persistent_sequence: int) -> int:
        """Return the first sequence of a message that comes behind a persistent one. O(log turns)."""
        return BEHIND_ALL if self._turns is None else self._turns.next_non_persistent(persistent_sequence)

    def _forget_turns(self) -> None:
        """Forget the turns of messages before the first block."""
        if self._turns is not None:
            released_bytes = self._turns.forget(self.pending_from())
            if released_bytes:
                self._account.release(released_bytes)

    # ------------------------------------------------------------------ checking

    @property
    def charge_bytes(self) -> int:
        """The charge of everything here, computed anew."""
        timed = sum(block.times is not None for block in self._blocks.values()) + self._has_times_ahead
        blocks_bytes = BLOCK_CHARGE_BYTES * len(self._blocks) + TIMES_CHARGE_BYTES * timed
        return blocks_bytes + (0 if self._turns is None else self._turns.charge_bytes)

    def _check(self) -> None:
        messages = content_bytes = 0
        for number, block in self._blocks.items():
            count = len(block.lengths)
            assert count == BLOCK_MESSAGES or number == self.next_sequence >> BLOCK_SHIFT
            assert 0 < count and not block.gone >> count and not block.spilled >> count
            assert block.gone != _ALL_GONE
            messages += count - block.gone.bit_count()
            content_bytes += sum(length for at, length in enumerate(block.lengths) if not block.gone >> at & 1)
        assert (messages, content_bytes) == (self.pending_messages, self.pending_bytes)
        assert sorted(self._blocks) == [number for low, high in self._numbers for number in range(low, high + 1)]
        if self._turns is not None:
            self._turns._check()


class NonPersistentDueTimes:
    """Finds non-persistent messages by their times. All blocks are in RAM. The state lock guards it."""

    def take_due(self, lane: NonPersistentLane, now_ms: int, most_blocks: int) -> list[tuple[int, int]]:
        """Let due messages wait no longer, in up to `most_blocks` blocks. Return runs of them."""
        due = [found for found in lane.timed_blocks() if found[1].earliest[DUE] <= now_ms]
        runs: list[tuple[int, int]] = []
        for number, times, gone in due[:most_blocks]:
            runs += runs_of_ones(times.take_due(now_ms, gone), number << BLOCK_SHIFT)
        if len(due) <= most_blocks:
            lane.earliest[DUE] = self._earliest(lane, DUE)
        return runs

    def expired_blocks(self, lane: NonPersistentLane, now_ms: int) -> list[int]:
        """Return the numbers of blocks with expired messages, in order."""
        return [number for number, times, _ in lane.timed_blocks() if times.earliest[EXPIRY] <= now_ms]

    def expired(self, lane: NonPersistentLane, block_number: int, now_ms: int) -> Iterator[tuple[int, int]]:
        """Yield runs of the pending messages of a block that have expired."""
        return runs_of_ones(lane.expired(block_number, now_ms), block_number << BLOCK_SHIFT)

    def refresh_expiry(self, lane: NonPersistentLane) -> None:
        """Find out what expires next, after expired messages were removed."""
        lane.earliest[EXPIRY] = self._earliest(lane, EXPIRY)

    def _earliest(self, lane: NonPersistentLane, kind: int) -> int:
        return min((times.earliest[kind] for _, times, _ in lane.timed_blocks()), default=NEVER)
