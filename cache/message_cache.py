"""MessageCache: messages of many lanes that are given back when memory is wanted, the newest first.

The base of the HeadQueueCache and the PendingCache. A crash takes all of it; what was persistent is read from the
journal again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from ..store.sequence_set import SequenceSet
from ..store.stored_message import StoredMessage
from .budget import Holder
from .charge import charge_bytes
from .held_messages import HeldMessages

WORTH_BYTES: Final = 32 * 1024
"""Least charge that goes to tmp-storage at a time, if there is so much: the places of a few small messages written by
themselves take more memory than the messages leave."""


@dataclass(frozen=True, slots=True)
class CacheStatistics:
    """The HeadQueueCache or the PendingCache as it is now."""

    messages: int
    bytes: int
    share_bytes: int
    """The most it may hold."""
    served: int
    """Messages that loads and browsers found in it since the directory was opened, and did not have to read."""


def added(parts: Sequence[CacheStatistics]) -> CacheStatistics:
    """Return the figures of several caches as those of one."""
    return CacheStatistics(
        sum(part.messages for part in parts),
        sum(part.bytes for part in parts),
        sum(part.share_bytes for part in parts),
        sum(part.served for part in parts),
    )


class MessageCache(HeldMessages):
    """Copies that may leave whenever memory is wanted. The state lock guards it.

    Each lane's messages are kept in the order in which they came, so that the one that came last, farthest from being
    consumed, leaves first. O(1) unless a method says otherwise.
    """

    def __init__(self, holder: Holder, share_bytes: int) -> None:
        """share_bytes: the most it may hold; 0 switches it off."""
        super().__init__(holder, share_bytes)
        self.keepers: dict[int, Callable[[list[StoredMessage]], None]] = {}
        """By lane, takes in what is given back: for lanes whose messages may be nowhere else."""

    def put(self, lane_number: int, message: StoredMessage) -> bool:
        """Keep the message and return whether there was room for it."""
        return self._keep(lane_number, message, charge_bytes(message))

    def _keep(self, lane_number: int, message: StoredMessage, charge: int) -> bool:
        messages = self._lanes.get(lane_number)
        if messages is not None and message[0] in messages:
            return True
        if not self.holder.reserve(charge):
            return False
        if messages is None:
            messages = self._lanes[lane_number] = {}
        messages[message[0]] = message
        count = len(messages)
        if not count & (count - 1):
            self._fullness.grew(lane_number, count)
        return True

    def resize(self, share_bytes: int) -> None:
        """Set another share; what is above it is given back."""
        self._share_bytes = share_bytes
        if self.holder.held_bytes > share_bytes:
            self.give_back(self.holder.held_bytes - share_bytes)

    def give_back(self, wanted_bytes: int) -> int:
        """Release at least `wanted_bytes` if there are so many; return how many. O(messages given back).

        The lane with most messages, or one with more than half as many, gives first: it has the farthest to go.
        """
        released = 0
        while released < wanted_bytes:  # what is on its way here is charged already
            lane = self._fullness.fullest()
            if lane is None:
                break
            messages = self._lanes[lane]
            stop = len(messages) // 2
            keeper = self.keepers.get(lane)
            enough = max(wanted_bytes, released + WORTH_BYTES) if keeper is not None else wanted_bytes
            given: list[StoredMessage] = []
            while len(messages) > stop and released < enough:
                message = self._pop_victim(lane, messages)
                charge = charge_bytes(message)
                self.holder.release(charge)
                released += charge
                given.append(message)
            self._gave_back(lane)
            if not messages:
                self._leave(lane)
            if keeper is not None:
                keeper(given)
        return released

    def _pop_victim(self, lane_number: int, messages: dict[int, StoredMessage]) -> StoredMessage:
        """Take from the messages of a lane the one that leaves first: the one that came last."""
        return messages.popitem()[1]

    def _gave_back(self, lane_number: int) -> None:
        """Do what it takes that the newest messages of a lane have left."""

    def drop_before(self, lane_number: int, sequence: int) -> None:
        """Drop the messages before a sequence, up to the first in the order of coming that is not. O(dropped)."""
        messages = self._lanes.get(lane_number)
        while messages and (first := next(iter(messages))) < sequence:
            self.take(lane_number, first)

    def forget_runs(self, lane_number: int, gone: SequenceSet) -> None:
        """Drop messages that are gone from the lane. O(messages of the lane here)."""
        for sequence in [sequence for sequence in self._lanes.get(lane_number, ()) if sequence in gone]:
            self.take(lane_number, sequence)

    def statistics(self) -> CacheStatistics:
        """Return the figures of the cache. O(lanes)."""
        return CacheStatistics(len(self), self.holder.held_bytes, self._share_bytes, self.served)
