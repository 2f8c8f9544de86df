"""JournaledLane: what a lane answers beyond a PendingLane because its messages are records of the journal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..format.places import Extent, SingleRecords
from .pending_lane import PendingLane


class JournaledLane(PendingLane):
    """A lane whose messages are records of the journal: MessageStore reads them there, and acknowledges by a record."""

    __slots__ = ()

    def remove(self, first: int, last: int, ack_data_log: int) -> int:
        """Remove first..last. Return how many of them were pending.

        ack_data_log: the data log with the record that removes them; 0: there is no record.
        """
        raise NotImplementedError

    def readers(self) -> Iterable[PendingLane]:
        """Return all lanes that lose a message which is removed here: also those of a topic's subscriptions."""
        return (self,)

    def remove_one(self, sequence: int, ack_data_log: int) -> int:
        """Remove one sequence. Every single ack takes this path."""
        raise NotImplementedError

    def extents(self, first: int, last: int) -> Iterator[Extent | SingleRecords]:
        """Yield where in the journal first..last are. Requires: they are in one block and pending."""
        raise NotImplementedError
