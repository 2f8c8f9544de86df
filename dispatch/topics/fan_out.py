"""FanOut: the non-persistent messages of a topic, on their way to whoever subscribes at the moment.

Each subscription that has a consumer and wants a message gets it into a lane
of its own, with RAM before and tmp-storage behind, as a queue's has: a slow
subscriber holds up nobody. What a subscription has of them it keeps until it
ends, a durable one also while it is offline; what comes while it is offline
is not for it. All lanes of one priority number their messages alike, so that
a message has one id, whoever gets it, and what several of them have no room
for waits, and is spilled, once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from ...store.format.times import Times
from ...store.numbering import LANE_SHIFT, VOLATILE
from ...store.sequence_set import SequenceSet
from ..admin.deletion import forget_lane
from .state import SubscriptionState, TopicState

if TYPE_CHECKING:
    from ..core.non_persistent import NonPersistentLaneState
    from ..engine.engine import Engine


class FanOut:
    """Of one priority of a topic. To senders what a NonPersistentLaneState is. The state lock guards it."""

    delivery_mode: ClassVar[str] = "NON_PERSISTENT"

    def __init__(self, engine: Engine, topic: TopicState, priority: int) -> None:
        self._engine = engine
        self.queue = topic
        self.priority = priority
        self.id_prefix = engine.volatile_prefix(topic.number, priority)
        self.pool = VOLATILE | topic.number << LANE_SHIFT | priority
        """In which its lanes share what they have no room for."""
        self.next_sequence = 0

    def add(self, timestamp: int, properties: bytes, body: bytes) -> int:
        """Give one message to all who want it; returns its sequence. StoreFull, SpillFailed: nobody has it."""
        return self._give(timestamp, properties, body, None)

    def add_timed(self, timestamp: int, properties: bytes, body: bytes, times: Times) -> int:
        """As add, of a message that is due later, or expires, or both."""
        return self._give(timestamp, properties, body, times)

    def _give(self, timestamp: int, properties: bytes, body: bytes, times: Times | None) -> int:
        sequence = self.next_sequence
        self.next_sequence = sequence + 1  # also where it fails: some lane may have counted it
        topic, evictor = self.queue, self.queue.evictor
        verdicts = topic.verdicts
        message = (sequence, properties, body, timestamp)
        given: list[NonPersistentLaneState] = []
        passed_over = 0
        verdicts.begin(self.priority, sequence)
        buffer = self._engine.overflow.buffer
        buffer.arriving = (self.pool, sequence)
        try:
            for subscription in topic.online:
                selector = subscription.selector
                if selector is not None and not verdicts.matches(selector, self, message):
                    continue
                if evictor is not None and not evictor.has_room(subscription):
                    passed_over += 1
                    continue
                area = self._area(subscription)
                area.skip_to(sequence)
                if times is None:
                    area.add(timestamp, properties, body)
                else:
                    area.add_timed(timestamp, properties, body, times)
                given.append(area)
        except BaseException:
            for area in given:
                self._take_back(area, sequence)
            raise
        finally:
            verdicts.end()
            buffer.arriving = None
        if evictor is not None:
            topic.evicted += passed_over
            evictor.given(given, message)
        return sequence

    def _area(self, subscription: SubscriptionState) -> NonPersistentLaneState:
        area = subscription.non_persistent_lanes[self.priority]
        if area is None:
            area = self._engine.non_persistent_lane(subscription, self.priority, self)
            area.first_sequence = self.next_sequence - 1
        return area

    def _take_back(self, area: NonPersistentLaneState, sequence: int) -> None:
        """One that somebody else found no room for: all get it, or nobody."""
        gone = SequenceSet()
        gone.add(sequence, sequence)
        area.store.remove(area.lane, sequence, sequence)
        self._engine.targets.forget(area, gone)


def forget_volatile(engine: Engine, subscription: SubscriptionState) -> None:
    """It has ended, or nothing is left of them: its non-persistent messages go, and their files. REQUIRES: the lock."""
    for priority, area in enumerate(subscription.non_persistent_lanes):
        if area is not None:
            forget_lane(engine, area)
            subscription.non_persistent_lanes[priority] = None
    engine.timing.forget(subscription)
