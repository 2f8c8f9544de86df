"""PendingCache: messages that overflowed a TargetList, kept in RAM until the loader fetches them.

A persistent message that is given back is still in the journal, and is read again. A non-persistent one goes to the
keeper of its lane. The PendingCache comes before the HeadQueueCache: to take a message in, it makes the HeadQueueCache
give memory back.
"""

from __future__ import annotations

from ...store.stored_message import StoredMessage
from ..accounting.budget import Holder
from ..accounting.charge import charge_of
from .head_queue_cache import HeadQueueCache
from .message_cache import MessageCache
from .reading_order import ReadingOrder


class PendingCache(MessageCache):
    """A cache that grows as lists overflow, at the cost of the HeadQueueCache, up to a share of the limit."""

    def __init__(self, holder: Holder, head_queue_cache: HeadQueueCache, share_bytes: int) -> None:
        super().__init__(holder, share_bytes)
        self._head_queue_cache = head_queue_cache
        # The sequence behind the last arrival that was kept of each lane. It is forgotten when messages are given back.
        self._ends: dict[int, int] = {}
        # The reading order of each lane that several readers share, if it has messages here or gets them now.
        self._orders: dict[int, ReadingOrder] = {}

    def admit(self, lane_number: int, message: StoredMessage, *, is_near: bool) -> bool:
        """Keep an arrival for which a list has no room, if few or no messages before it must be read first.

        Behind a wide gap the loader comes so late that the message would only take room from nearer ones.

        is_near: the list is loaded up to this message, or will be soon. If not, the message is kept only if the
            previous message is here, or was here until another list took it.
        """
        sequence = message[0]
        is_kept = is_near or self._ends.get(lane_number) == sequence
        if not is_kept:
            messages = self._lanes.get(lane_number)
            is_kept = messages is not None and sequence - 1 in messages
        if is_kept and self.put(lane_number, message):
            self._ends[lane_number] = sequence + 1
            return True
        return False

    def give_back(self, wanted_bytes: int) -> int:
        """Give back at least `wanted_bytes`, as `MessageCache.give_back` does. The next arrival leaves a gap then."""
        released = super().give_back(wanted_bytes)
        if released:
            self._ends.clear()
        return released

    def discard_lane(self, lane_number: int) -> None:
        self._ends.pop(lane_number, None)
        super().discard_lane(lane_number)
        self._orders.pop(lane_number, None)  # there may be readers without messages

    def put(self, lane_number: int, message: StoredMessage) -> bool:
        """Keep the message, if needed with room of the HeadQueueCache. False: it is not here, and there is no room."""
        charge = charge_of(message)
        if self.holder.held_bytes + charge > self._share_bytes:
            messages = self._lanes.get(lane_number)
            return messages is not None and message[0] in messages
        if self._keep(lane_number, message, charge):
            return True
        self._head_queue_cache.give_back(charge)
        return self._keep(lane_number, message, charge)

    def put_shared(self, lane_number: int, message: StoredMessage) -> bool:
        """Keep a message of a lane that several readers share. Messages farther from their readers make room for it."""
        sequence = message[0]
        if self.peek(lane_number, sequence) is not None:
            return True
        if charge_of(message) > self._share_bytes:
            return False
        while not self.put(lane_number, message):
            order = self._orders.get(lane_number)
            if order is None or (victim := order.pop_farther_than(sequence)) is None:
                return False
            self.take(lane_number, victim)
            if self._ends.get(lane_number) == victim + 1:
                del self._ends[lane_number]  # the next arrival would leave a gap behind it
            self._orders[lane_number] = order  # the last message of the lane takes it along, and more may come
        self.note_shared(lane_number, sequence)
        return True

    def note_shared(self, lane_number: int, sequence: int) -> None:
        """Note that a message was kept of a lane that several readers share."""
        order = self._orders.get(lane_number)
        if order is None:
            order = self._orders[lane_number] = ReadingOrder()
        order.add(sequence)

    def follow_readers(self, lane_number: int, fronts: list[int]) -> None:
        """Note where the readers of a shared lane go on, even before its first message comes. O(1): the list is kept.

        If no message comes, the next `discard_before` forgets the readers.
        """
        order = self._orders.get(lane_number)
        if order is None:
            order = self._orders[lane_number] = ReadingOrder()
        order.follow(fronts)

    def discard_before(self, lane_number: int, sequence: int) -> None:
        """Drop messages before a sequence. Those of a shared lane may have come here in any order."""
        order = self._orders.get(lane_number)
        if order is not None:
            for first, last in order.discard_before(sequence):
                for passed in range(first, last + 1):
                    self.take(lane_number, passed)
        super().discard_before(lane_number, sequence)
        if order is not None and lane_number not in self._lanes:
            self._orders.pop(lane_number, None)  # no message came for its readers

    def pop_victim(self, lane_number: int, messages: dict[int, StoredMessage]) -> StoredMessage:
        """Take out the message that came last, or of a shared lane the one that is farthest from its next reader."""
        order = self._orders.get(lane_number)
        while order is not None and (sequence := order.pop_farthest()) is not None:
            message = messages.pop(sequence, None)
            if message is not None:
                return message
        return super().pop_victim(lane_number, messages)

    def _leave(self, lane_number: int) -> None:
        super()._leave(lane_number)
        self._orders.pop(lane_number, None)
