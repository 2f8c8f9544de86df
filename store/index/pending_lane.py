"""PendingLane: what every lane of the store counts and answers, wherever its messages are."""

from __future__ import annotations

from array import array

from ..format.times import DUE, NEVER, MessageTimes
from ..numbering import BLOCK_MESSAGES
from ..structures.bits import first_run, ones


class PendingLane:
    """Base of all lanes of the store: which messages of one priority of a queue, topic or subscription are pending.

    Dispatch has a LaneState for the same lane, and calls this object its `pending_lane`. The state lock guards it.
    """

    __slots__ = (
        "number",
        "owner_number",
        "priority",
        "next_sequence",
        "pending_messages",
        "added_bytes",
        "removed_bytes",
        "earliest",
        "delayed",
    )

    def __init__(self, lane_number: int, owner_number: int, priority: int) -> None:
        self.number = lane_number
        # Number of its queue, topic or subscription. Records of acks name it.
        self.owner_number = owner_number
        self.priority = priority
        # The sequence that the next message gets.
        self.next_sequence = 0
        self.pending_messages = 0
        # Content bytes of messages that were added, or were pending when the lane was restored.
        self.added_bytes = 0
        # Content bytes of the messages among them that have left the lane, for any reason.
        self.removed_bytes = 0
        # At the earliest when a message is due, and when one expires. NEVER: no message waits, or none expires.
        self.earliest = [NEVER, NEVER]
        # Messages that came back and are offered again later. None: there never was one.
        self.delayed: PendingLane | None = None

    def take_over_counts(self, lane: PendingLane) -> None:
        """Copy the numbers, counts and times of a lane that this one replaces. The places of messages stay there."""
        self.number, self.owner_number, self.priority = lane.number, lane.owner_number, lane.priority
        self.next_sequence, self.pending_messages = lane.next_sequence, lane.pending_messages
        self.added_bytes, self.removed_bytes = lane.added_bytes, lane.removed_bytes
        self.earliest, self.delayed = lane.earliest, lane.delayed

    @property
    def pending_bytes(self) -> int:
        """Content bytes of pending messages."""
        return self.added_bytes - self.removed_bytes

    @property
    def total_sent_bytes(self) -> int:
        """Content bytes of messages that were sent here. Only its growth between two moments is meaningful."""
        return self.added_bytes

    @property
    def depth(self) -> tuple[int, int]:
        """Number of pending messages and their content bytes."""
        return self.pending_messages, self.pending_bytes

    def is_pending(self, sequence: int) -> bool:
        raise NotImplementedError

    def pending_run(self, sequence: int, most: int) -> tuple[int, int] | None:
        """Return the first run of pending sequences at or behind `sequence`, cut to `most` and to its block.

        None: there is none.
        """
        raise NotImplementedError

    def pending_from(self) -> int:
        """Return a sequence before which no message is pending: where the first block with a pending message begins.

        It is the next sequence of the lane if no message is pending. O(1), no disk.
        """
        raise NotImplementedError

    def lengths(self, first: int, last: int) -> array[int]:
        """Return the content bytes of first..last. Requires: they are in one block and pending."""
        raise NotImplementedError

    def times_of(self, sequence: int) -> MessageTimes:
        """Return when a pending message is due, and when it expires. A due time that has passed may be there still."""
        raise NotImplementedError

    def not_due_bits(self, first: int, last: int) -> int:
        """Return a mask of first..last, in one block, with a bit for each message that is not due yet.

        The lowest bit is for `first`.
        """
        raise NotImplementedError

    def is_delayed(self, sequence: int) -> bool:
        """Return whether a message came back and is offered again later."""
        return self.delayed is not None and self.delayed.is_pending(sequence)

    @property
    def delayed_messages(self) -> int:
        """Number of messages that came back and are offered again later."""
        return 0 if self.delayed is None else self.delayed.pending_messages

    def ready_run(self, sequence: int, most: int) -> tuple[int, int] | None:
        """Return the first run as `pending_run` does, but skip messages that are not due yet or delayed."""
        delayed = self.delayed
        if self.earliest[DUE] == NEVER and delayed is None:
            return self.pending_run(sequence, most)
        while (run := self.pending_run(sequence, BLOCK_MESSAGES)) is not None:
            first, last = run
            ready = ~self.not_due_bits(first, last) & ones(0, last - first)
            if delayed is not None:
                ready &= ~delayed.not_due_bits(first, last)
            if ready:
                low, high = first_run(ready, most)
                return first + low, first + high
            sequence = last + 1
        return None
