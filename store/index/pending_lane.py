"""The interface of all lanes, whatever stores their messages."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from typing import Final

from ..bits import first_run, ones
from ..format.places import Extent, Singles
from ..format.times import DUE, NEVER, Times
from ..numbering import BLOCK_MESSAGES

PENDING_SLOTS: Final = (
    "number",
    "destination_number",
    "priority",
    "next_sequence",
    "pending_messages",
    "added_bytes",
    "removed_bytes",
    "earliest",
    "put_off",
)


class PendingLane:
    """A lane as dispatch sees it, whatever stores its messages. The state lock guards it."""

    __slots__ = PENDING_SLOTS

    def __init__(self, number: int, destination_number: int, priority: int) -> None:
        self.number = number
        self.destination_number = destination_number
        self.priority = priority
        self.next_sequence = 0
        self.pending_messages = 0
        # Content bytes of all messages that came, including those that were pending when the lane was restored.
        self.added_bytes = 0
        # Content bytes of all messages that left, in any way.
        self.removed_bytes = 0
        # No pending message is due, or expires, before these times. NEVER: none waits, or none expires.
        self.earliest = [NEVER, NEVER]
        # Messages of this lane that came back and are offered again later. None: there never were any.
        self.put_off: PendingLane | None = None

    @property
    def pending_bytes(self) -> int:
        """Content bytes of the pending messages."""
        return self.added_bytes - self.removed_bytes

    @property
    def enqueued_bytes(self) -> int:
        """Content bytes of the messages that were sent here. Only differences between two moments are meaningful."""
        return self.added_bytes

    @property
    def depth(self) -> tuple[int, int]:
        """Number of pending messages, and their content bytes."""
        return self.pending_messages, self.pending_bytes

    def is_pending(self, sequence: int) -> bool:
        raise NotImplementedError

    def pending_run(self, sequence: int, most: int) -> tuple[int, int] | None:
        """Return the first run of pending sequences at or after `sequence`, cut to `most` and to its block.

        None at the end.
        """
        raise NotImplementedError

    def pending_from(self) -> int:
        """Return the first sequence of the first block with a pending message: nothing is pending before it.

        If nothing is pending, return the next sequence of the lane. O(1), no disk.
        """
        raise NotImplementedError

    def lengths(self, first: int, last: int) -> array[int]:
        """Return the content bytes of each of first..last. They must be pending and lie in one block."""
        raise NotImplementedError

    def times_of(self, sequence: int) -> Times:
        """Return when a pending message is due and when it expires.

        A message that became due lately may still show its time.
        """
        raise NotImplementedError

    def waiting(self, first: int, last: int) -> int:
        """Return one bit for each of first..last, in one block, that is not due yet.

        The lowest bit is for the first.
        """
        raise NotImplementedError

    def is_put_off(self, sequence: int) -> bool:
        """Return whether a message came back and is offered again later."""
        return self.put_off is not None and self.put_off.is_pending(sequence)

    @property
    def put_off_messages(self) -> int:
        """Number of messages that came back and are offered again later."""
        return 0 if self.put_off is None else self.put_off.pending_messages

    def ready_run(self, sequence: int, most: int) -> tuple[int, int] | None:
        """Return the first run as `pending_run` does, but skip messages that are not due yet or are put off."""
        put_off = self.put_off
        if self.earliest[DUE] == NEVER and put_off is None:
            return self.pending_run(sequence, most)
        while (run := self.pending_run(sequence, BLOCK_MESSAGES)) is not None:
            first, last = run
            ready = ~self.waiting(first, last) & ones(0, last - first)
            if put_off is not None:
                ready &= ~put_off.waiting(first, last)
            if ready:
                low, high = first_run(ready, most)
                return first + low, first + high
            sequence = last + 1
        return None


class JournaledLane(PendingLane):
    """A lane of messages in the journal. MessageStore plans its reads and acknowledges in it."""

    __slots__ = ()

    def remove(self, first: int, last: int, ack_data_log: int) -> int:
        """Remove first..last, by a record in ack_data_log (0: no record). Return how many of them were pending."""
        raise NotImplementedError

    def readers(self) -> Iterable[PendingLane]:
        """Return all lanes in which a message stops being pending when it is removed from this lane."""
        return (self,)

    def remove_one(self, sequence: int, ack_data_log: int) -> int:
        """Remove one sequence. Every single ack takes this path."""
        raise NotImplementedError

    def extents(self, first: int, last: int) -> Iterator[Extent | Singles]:
        """Return the places of first..last. They must be pending and lie in one block."""
        raise NotImplementedError
