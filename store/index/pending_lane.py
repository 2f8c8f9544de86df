"""The questions that every lane answers, wherever its messages are."""

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
    """What dispatch asks of a lane, whatever knows where its messages are. The state lock guards it."""

    __slots__ = PENDING_SLOTS

    def __init__(self, number: int, destination_number: int, priority: int) -> None:
        self.number = number
        self.destination_number = destination_number
        self.priority = priority
        self.next_sequence = 0
        self.pending_messages = 0
        self.added_bytes = 0
        """Content bytes of what came, with what was pending when the lane was restored."""
        self.removed_bytes = 0
        """Of them, those of messages that have left, whatever way."""
        self.earliest = [NEVER, NEVER]
        """Times before which no pending message is due, or expires; NEVER: none waits, or none expires."""
        self.put_off: PendingLane | None = None
        """What of this lane came back and is offered again later; None: nothing ever did."""

    @property
    def pending_bytes(self) -> int:
        """Content bytes of what is pending."""
        return self.added_bytes - self.removed_bytes

    @property
    def enqueued_bytes(self) -> int:
        """Content bytes of what was sent here: only the growth of it between two moments means something."""
        return self.added_bytes

    @property
    def depth(self) -> tuple[int, int]:
        """Pending messages and their content bytes."""
        return self.pending_messages, self.pending_bytes

    def is_pending(self, sequence: int) -> bool:
        raise NotImplementedError

    def pending_run(self, sequence: int, most: int) -> tuple[int, int] | None:
        """Return the first run of pending sequences at or behind `sequence`, cut to `most` and to its block; None at
        the end.
        """
        raise NotImplementedError

    def pending_from(self) -> int:
        """Return a sequence before which nothing is pending: where the first block with a pending message begins.

        The next sequence of the lane where nothing is pending. O(1), no disk.
        """
        raise NotImplementedError

    def lengths(self, first: int, last: int) -> array[int]:
        """Return the content bytes of first..last, which lie in one block and are pending."""
        raise NotImplementedError

    def times_of(self, sequence: int) -> Times:
        """Return when a pending message is due, or was not long ago, and when it expires."""
        raise NotImplementedError

    def waiting(self, first: int, last: int) -> int:
        """Return a bit for each of first..last, in one block, that is not due yet; the lowest for the first."""
        raise NotImplementedError

    def is_put_off(self, sequence: int) -> bool:
        """Return whether a message came back and is offered again later."""
        return self.put_off is not None and self.put_off.is_pending(sequence)

    @property
    def put_off_messages(self) -> int:
        """How many messages came back and are offered again later."""
        return 0 if self.put_off is None else self.put_off.pending_messages

    def ready_run(self, sequence: int, most: int) -> tuple[int, int] | None:
        """Return the first run as `pending_run` does, passing over messages that are not due yet, or put off."""
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
    """A lane of messages in the journal: what MessageStore plans reads of and acknowledges."""

    __slots__ = ()

    def remove(self, first: int, last: int, ack_data_log: int) -> int:
        """Take first..last out, by a record in ack_data_log (0: by none). Return how many of them were pending."""
        raise NotImplementedError

    def readers(self) -> Iterable[PendingLane]:
        """Return the lanes in which a message is pending no more when it is removed from this one."""
        return (self,)

    def remove_one(self, sequence: int, ack_data_log: int) -> int:
        """Take one sequence out; the path of every single ack."""
        raise NotImplementedError

    def extents(self, first: int, last: int) -> Iterator[Extent | Singles]:
        """Return where first..last lie; they lie in one block and are pending."""
        raise NotImplementedError
