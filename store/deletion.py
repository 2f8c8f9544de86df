"""Deletion of a queue: one record that says all of it is gone, and what is left of its lanes for who still holds one.

The record stands for acks of everything in the queue, and for its name. Each
data log begins with the destinations that exist, so whatever older data logs
still hold of the queue counts for nothing, and no data log must remain for
the record's sake. A crash leaves the queue with all that it had, or none of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .format.record import DELETE
from .format.state import encode_delete
from .index.lane import Lane, PendingLane
from .sequence_set import SequenceSet

if TYPE_CHECKING:
    from .message_store import MessageStore


NO_DESTINATION: Final = 0
"""The journal takes nothing for it: Closed."""


def delete_destination(store: MessageStore, number: int) -> None:
    """Everything in the queue is gone, and its number is never used again. O(blocks of the index that it has).

    REQUIRES: state lock; no transaction without an outcome knows the queue. StoreFull: it is as it was.
    """
    with store.journal.uninterrupted():
        store.journal.append(DELETE, 0, 1, encode_delete(number))
        del store.destinations[number]
        store.index.forget(number)
        store.duplicates.forget(number)


class DeletedLane(Lane):
    """In the place of a lane of a deleted queue: nothing is pending, and whoever would add to it gets Closed."""

    __slots__ = ()

    def __init__(self, lane: Lane) -> None:
        PendingLane.__init__(self, lane.number, NO_DESTINATION, lane.priority)
        self.index = lane.index
        self.tail = None
        self.resident = {}
        self.blocks, self.stored, self.dead = SequenceSet(), SequenceSet(), SequenceSet()
