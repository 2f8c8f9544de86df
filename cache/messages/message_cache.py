"""MessageCache: messages of many lanes in RAM. The newest ones are given back when memory is needed.

It is the base of the HeadQueueCache and the PendingCache. After a crash, persistent messages are read from the journal
again.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from ...store.numbering import BEHIND_ALL
from ...store.stored_message import StoredMessage
from ...store.structures.sequence_set import SequenceSet
from ..accounting.budget import Holder
from ..accounting.charge import charge_of
from .held_messages import HeldMessages

WORTH_BYTES: Final = 32 * 1024
"""Least charge of the messages that are given to a keeper at a time, if there are so many.

The keeper writes them to tmp-storage. If it wrote only a few small messages, their places would take more memory than
the write frees.
"""


@dataclass(frozen=True, slots=True)
class CacheStatistics:
    """The present state of the HeadQueueCache or the PendingCache."""

    messages: int
    bytes: int
    share_bytes: int
    """Most bytes that it may hold."""
    served: int
    """Messages that loads and browsers found here, and did not have to read, since the directory was opened."""


def added(parts: Sequence[CacheStatistics]) -> CacheStatistics:
    """Return the sum of these statistics."""
    return CacheStatistics(
        sum(part.messages for part in parts),
        sum(part.bytes for part in parts),
        sum(part.share_bytes for part in parts),
        sum(part.served for part in parts),
    )


class MessageCache(HeldMessages):
    """Messages that may leave whenever memory is needed. A lane whose messages may be nowhere else has a *keeper* for
    them.

    The messages of each lane are in the order in which they came here. The one that came last leaves first, because
    most often it is the farthest from being consumed. Only a message that a list gave back here is nearer: it leaves
    too early, and is read again.

    The state lock guards it. O(1) unless a method says otherwise.
    """

    def __init__(self, holder: Holder, share_bytes: int) -> None:
        """Make it empty. share_bytes: most bytes that it may hold. Each `put` keeps to it; 0 switches the cache off."""
        super().__init__(holder, share_bytes)
        # The keeper of each lane whose messages may be nowhere else: a function that takes messages that are given
        # back.
        self.keepers: dict[int, Callable[[list[StoredMessage]], None]] = {}

    def register_keeper(self, lane_number: int, keeper: Callable[[list[StoredMessage]], None]) -> None:
        """Call the keeper with messages of a lane that are given back, because they may be nowhere else."""
        self.keepers[lane_number] = keeper

    def end_lane(self, lane_number: int) -> None:
        """Drop all messages of a lane that ends, and its keeper. O(messages of the lane here)."""
        self.discard_lane(lane_number)
        self.keepers.pop(lane_number, None)

    @abstractmethod
    def put(self, lane_number: int, message: StoredMessage) -> bool:
        """Keep the message, if the share and the memory have room for it; return whether it is here."""

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
            self._lanes_by_amount.note_amount(lane_number, count)
        return True

    def resize(self, share_bytes: int) -> None:
        """Set the share, and give back messages above it."""
        self._share_bytes = share_bytes
        if self.holder.held_bytes > share_bytes:
            self.give_back(self.holder.held_bytes - share_bytes)

    def give_back(self, wanted_bytes: int) -> int:
        """Give back at least `wanted_bytes`, if there are so many; return how many. O(messages given back).

        A keeper is charged for the messages that it takes, until they are on disk.

        The lane with most messages, or one with more than half as many, gives first, because its newest messages are
        farthest from being consumed.
        """
        released = 0
        while released < wanted_bytes:  # messages on their way here are charged already
            lane_number = self._lanes_by_amount.fullest()
            if lane_number is None:
                break
            messages = self._lanes[lane_number]
            stop = len(messages) // 2
            keeper = self.keepers.get(lane_number)
            enough = max(wanted_bytes, released + WORTH_BYTES) if keeper is not None else wanted_bytes
            given: list[StoredMessage] = []
            while len(messages) > stop and released < enough:
                message = self.pop_victim(lane_number, messages)
                charge = charge_of(message)
                self.holder.release(charge)
                released += charge
                given.append(message)
            self._gave_back(lane_number)
            if not messages:
                self._leave(lane_number)
            if keeper is not None:
                keeper(given)
        return released

    def pop_victim(self, lane_number: int, messages: dict[int, StoredMessage]) -> StoredMessage:
        """Take out the message of a lane that leaves first: the one that came last."""
        return messages.popitem()[1]

    def _gave_back(self, lane_number: int) -> None:
        """React to the loss of a lane's newest messages."""

    def discard_before(self, lane_number: int, sequence: int) -> None:
        """Drop messages before a sequence, in the order in which they came, up to the first one that is not before it.

        O(dropped).
        """
        messages = self._lanes.get(lane_number)
        while messages and (first := next(iter(messages))) < sequence:
            self.take(lane_number, first)

    def discard_runs(self, lane_number: int, gone: SequenceSet, end: int = BEHIND_ALL) -> None:
        """Drop the lane's messages that are in `gone` and come before `end`.

        O(sequences in `gone` before `end`, or messages here: whichever are fewer). Either may be very many.
        """
        held = self._lanes.get(lane_number)
        if held is None or not gone or gone.first >= end:
            return
        runs: list[tuple[int, int]] = []
        for first, last in gone:
            if first >= end:
                break
            runs.append((first, min(last + 1, end)))
        if sum(behind - first for first, behind in runs) < len(held):
            found = [sequence for first, behind in runs for sequence in range(first, behind)]
        else:
            found = [sequence for sequence in held if sequence < end and sequence in gone]
        for sequence in found:
            self.take(lane_number, sequence)

    def statistics(self) -> CacheStatistics:
        """Return the figures of the cache. O(lanes)."""
        return CacheStatistics(len(self), self.holder.held_bytes, self._share_bytes, self.served)
