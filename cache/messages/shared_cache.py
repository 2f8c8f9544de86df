"""SharedCache: the PendingCache for several readers of the same messages, so that each message is in RAM once.

The subscriptions of a topic are such readers. Each asks with the number of its own lane, and all of them find the
messages that are kept under the number of the topic's lane.
"""

from __future__ import annotations

from collections.abc import Callable

from ...store.numbering import BEHIND_ALL
from ...store.stored_message import StoredMessage
from ...store.structures.sequence_set import SequenceSet
from .pending_cache import PendingCache


class SharedCache:
    """The PendingCache as one reader sees it. The state lock guards it."""

    __slots__ = ("_cache", "_lane_number", "_others", "_wanted_by_others")

    def __init__(self, cache: PendingCache, lane_number: int, wanted_by_others: Callable[[], int]) -> None:
        """Make it for one reader.

        lane_number: the lane under which the messages of all readers are kept.
        wanted_by_others: returns the first sequence that another reader may still look for.
        """
        self._cache = cache
        self._lane_number = lane_number
        self._wanted_by_others = wanted_by_others
        # The last result of `wanted_by_others`.
        self._others = 0

    def leave(self) -> None:
        """Forget the other readers, because this reader has ended and the reference would keep it in RAM."""
        self._wanted_by_others = _nobody

    @property
    def served(self) -> int:
        """Messages that a load or a browser found in the PendingCache and did not have to read."""
        return self._cache.served

    @served.setter
    def served(self, served: int) -> None:
        self._cache.served = served

    @property
    def share_bytes(self) -> int:
        """Most bytes that the PendingCache may hold."""
        return self._cache.share_bytes

    def put(self, lane_number: int, message: StoredMessage) -> bool:
        """Keep the message, if it is not here already. Return whether there was room for it.

        Messages that are farther from their next reader make room.
        """
        return self._cache.put_shared(self._lane_number, message)

    def admit(self, lane_number: int, message: StoredMessage, *, is_near: bool) -> bool:
        """See PendingCache. A message for which one reader's list has no room is kept for all readers."""
        is_here = self._cache.peek(self._lane_number, message[0]) is not None
        is_kept = self._cache.admit(self._lane_number, message, is_near=is_near)
        if is_kept and not is_here:
            self._cache.note_shared(self._lane_number, message[0])
        return is_kept

    def take(self, lane_number: int, sequence: int) -> StoredMessage | None:
        """Return the message. It stays as long as another reader may look for it."""
        if sequence >= self._others:
            return self._cache.peek(self._lane_number, sequence)
        return self._cache.take(self._lane_number, sequence)

    def peek(self, lane_number: int, sequence: int) -> StoredMessage | None:
        """Return the message, which stays. None: it is not here."""
        return self._cache.peek(self._lane_number, sequence)

    def shares_messages(self, lane_number: int) -> bool:
        """Return True, because taking a message frees no memory while other readers need it."""
        return True

    def has(self, lane_number: int) -> bool:
        """Return whether any message of the topic is here."""
        return self._cache.has(self._lane_number)

    def may_have(self, lane_number: int, last: int) -> bool:
        """Return whether messages up to `last` may be here. If so, find out again which ones other readers need.

        O(readers) if messages may be here.
        """
        if not self._cache.may_have(self._lane_number, last):
            return False
        self._others = self._wanted_by_others()
        return True

    def discard_runs(self, lane_number: int, gone: SequenceSet) -> None:
        """Drop messages that are gone for this reader, unless another reader may look for them.

        O(readers), and as MessageCache.discard_runs.
        """
        if self.may_have(lane_number, gone.last):
            self._cache.discard_runs(self._lane_number, gone, self._others)

    def follow_readers(self, fronts: list[int]) -> None:
        """Note where all readers go on. Messages farthest ahead of them leave first. O(1): the list is kept."""
        self._cache.follow_readers(self._lane_number, fronts)

    def discard_before(self, sequence: int) -> None:
        """Drop messages that no reader will look for any more. O(messages dropped)."""
        self._cache.discard_before(self._lane_number, sequence)


def _nobody() -> int:
    return BEHIND_ALL
