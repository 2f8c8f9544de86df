"""JournaledLane: what a lane answers beyond a PendingLane if its messages are in the journal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..format.places import Extent, SingleRecords
from .pending_lane import PendingLane


class JournaledLane(PendingLane):
    """The store's lane of messages in the journal, which MessageStore reads and acknowledges."""

    __slots__ = ()

    def remove(self, first: int, last: int, ack_data_log: int) -> int:
        """Remove first..last, by a record in ack_data_log (0: no record). Return how many of them were pending."""
        raise NotImplementedError

    def readers(self) -> Iterable[PendingLane]:
        """Return the lanes in which a message is no longer pending when it is removed from this one."""
        return (self,)

    def remove_one(self, sequence: int, ack_data_log: int) -> int:
        """Remove one sequence. Every single ack takes this path."""
        raise NotImplementedError

    def extents(self, first: int, last: int) -> Iterator[Extent | SingleRecords]:
        """Return where first..last are. Requires: they are in one block and pending."""
        raise NotImplementedError
