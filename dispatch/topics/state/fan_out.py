"""FanOut: give a non-persistent message of a topic to the subscriptions that are online.

These messages are in RAM and in tmp-storage. A crash forgets them.
"""

from __future__ import annotations

from typing import ClassVar

from ....cache.spill.overflow import Overflow
from ....store.errors import Closed
from ....store.format.retained import RetainedMessage
from ....store.format.times import MessageTimes, has_times, times_of
from ....store.numbering import LANE_SHIFT, NON_PERSISTENT
from ....store.stored_message import StoredMessage
from ...core.destinations.destination_lanes import DestinationLanes
from ...core.destinations.overhead import FAN_OUT_BYTES
from ...core.lanes.non_persistent_lane_state import NonPersistentLaneState
from ...core.model.matching import values_of
from ...core.redelivery.removal import Removals
from ...selectors.selector import FIELD_NAMES
from .subscription_state import SubscribedTopicState, SubscriptionState


class FanOut:
    """Gives non-persistent messages of one topic and priority to the subscriptions that are online.

    Each online subscription whose selector matches gets the message into a lane of its own, in RAM and then in
    tmp-storage, so a slow subscriber holds up nobody. A subscription keeps its messages until it ends; a durable one
    keeps them while it is offline too. The lanes of all subscriptions use the same sequences, so a message has one id.
    A message that has no room in several lanes waits in one pool and is spilled once.

    The state lock guards it.
    """

    delivery_mode: ClassVar[str] = "NON_PERSISTENT"

    def __init__(
        self,
        lanes: DestinationLanes,
        overflow: Overflow,
        removals: Removals,
        topic: SubscribedTopicState,
        priority: int,
    ) -> None:
        self._lanes = lanes
        self._buffer = overflow.buffer
        self._removals = removals
        self.destination = topic
        self.priority = priority
        self.id_prefix = lanes.non_persistent_prefix(topic.number, priority)
        # Number of the pool that holds one copy of each message for all lanes without room for it.
        self.pool_number = NON_PERSISTENT | topic.number << LANE_SHIFT | priority
        self.next_sequence = lanes.take_sequence(self.pool_number)
        self.sent_bytes = 0
        topic.charge_part(FAN_OUT_BYTES)
        # Number of sequences that no sent message has. They belong to retained messages that were given to one
        # subscription, to refused messages, and to the time before the topic was opened.
        self._not_sent = self.next_sequence

    @property
    def sent(self) -> int:
        """How many messages were sent."""
        return self.next_sequence - self._not_sent

    def give_retained(self, subscription: SubscriptionState, retained: RetainedMessage) -> None:
        """Give a new subscription a message that its topic retains.

        StoreFull or SpillFailed: the subscription does not get the message. RecordDamaged: nobody can read it.

        The message becomes a non-persistent message of that subscription alone. Messages that are given one after the
        other under one hold of the lock have consecutive sequences. Requires: the lock.
        """
        sequence, selector = self.next_sequence, subscription.selector
        timestamp, _, properties, body = retained
        message = (sequence, properties, body, timestamp)
        if selector is not None and not selector.matches(values_of(self, message, FIELD_NAMES)):
            return
        self.next_sequence = sequence + 1  # even if the call fails, as for a message that is sent
        self._not_sent += 1
        lane = self._lane_of(subscription)
        self._buffer.arriving = (self.pool_number, sequence)
        try:
            lane.skip_to(sequence)
            if has_times(properties):
                lane.add_timed(timestamp, properties, body, times_of(properties))
            else:
                lane.add(timestamp, properties, body)
        finally:
            self._buffer.arriving = None
        lane.retained = range(lane.retained.start if lane.retained else sequence, sequence + 1)
        if self.destination.evictor is not None:
            self.destination.evictor.on_fan_out((lane,), message)

    def add(self, timestamp: int, properties: bytes, body: bytes) -> int:
        """Give a message to all subscriptions that want it; return its sequence.

        StoreFull or SpillFailed: no subscription has it.
        """
        return self._give(timestamp, properties, body, None)

    def add_timed(self, timestamp: int, properties: bytes, body: bytes, times: MessageTimes) -> int:
        """Give a message that has a delay, an expiry, or both to all subscriptions that want it."""
        return self._give(timestamp, properties, body, times)

    def _give(self, timestamp: int, properties: bytes, body: bytes, times: MessageTimes | None) -> int:
        """Give a message to each subscription that wants it, or to none; return its sequence.

        This is one function, because parts of it would be calls for each message of each subscription.
        """
        if not self.destination.is_open:
            raise Closed("the topic")
        sequence = self.next_sequence
        self.next_sequence = sequence + 1  # even if the call fails, because a lane may have counted it
        topic, evictor = self.destination, self.destination.evictor
        selector_matches = topic.selector_matches
        message = (sequence, properties, body, timestamp)
        given: list[NonPersistentLaneState] = []
        evicted = 0
        selector_matches.begin(self.priority, sequence)
        buffer = self._buffer
        buffer.arriving = (self.pool_number, sequence)
        try:
            for subscription in topic.online:
                selector = subscription.selector
                if selector is not None and not selector_matches.matches(selector, self, message):
                    continue
                if evictor is not None and not evictor.has_room(subscription):
                    evicted += 1
                    continue
                lane = self._lane_of(subscription)
                lane.skip_to(sequence)
                if times is None:
                    lane.add(timestamp, properties, body)
                else:
                    lane.add_timed(timestamp, properties, body, times)
                given.append(lane)
        except BaseException:
            for lane in given:
                self._take_back(lane, message)
            self._not_sent += 1
            raise
        finally:
            selector_matches.finish()
            buffer.arriving = None
        self.sent_bytes += len(properties) + len(body)
        if evictor is not None:
            if evicted:
                topic.count_evicted(evicted)
            evictor.on_fan_out(given, message)
        return sequence

    def _lane_of(self, subscription: SubscriptionState) -> NonPersistentLaneState:
        lane = subscription.non_persistent_lanes[self.priority]
        if lane is None:
            lane = self._lanes.ensure_non_persistent(subscription, self.priority, self.pool_number, self.id_prefix)
        return lane

    def _take_back(self, lane: NonPersistentLaneState, message: StoredMessage) -> None:
        """Take a message back from a lane, because another subscription has no room: all get a message or none."""
        self._removals.remove(lane, ((message[0], message[0]),))
        lane.uncount(message)
