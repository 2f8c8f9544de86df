"""PatternDistribution: dispatches the messages of several topics to the one consumer of a wildcard subscription.

The highest priority comes first. Within a priority the topics take turns, so that a busy topic holds up no other.
"""

from __future__ import annotations

from itertools import groupby

from ..core.areas.take import Take
from ..core.model.delivery import Delivery
from ..core.model.destination import CoreConsumer, CoreDestination, SelectorGroup, TargetList
from ..core.model.distribution_roles import Dispatcher
from .distribution_parts import DistributionParts
from .ordinary import OrdinaryDistribution


class PatternDistribution(OrdinaryDistribution):
    """The distribution of a pattern, whose selector group has the lists of all its topics. O(lists) for each take.

    It dispatches. About messages that come back, the distribution of their topic's subscription decides.
    """

    is_ordinary = False
    honours_groups_and_priorities = True
    keeps_open = True

    def __init__(self, parts: DistributionParts, pattern: CoreDestination) -> None:
        """Make the distribution of a pattern. pattern: its sources are the states of its topics."""
        super().__init__(parts)
        self._pattern = pattern
        # By priority, the number of the topic's subscription that was served last.
        self._served: dict[int, int] = {}

    @property
    def dispatcher(self) -> Dispatcher[CoreConsumer]:
        """This distribution itself."""
        return self

    def dispatch_one(self, consumer: CoreConsumer) -> Delivery | None:
        """Return None, because only `dispatch` knows which topic has its turn."""
        return None

    def dispatch(self, consumer: CoreConsumer, most: int, max_bytes: int | None) -> list[Delivery]:
        """Dispatch up to `most` messages that are in RAM.

        In each priority, the topic behind the one that was served last comes first.
        """
        take = Take(consumer, most, max_bytes)
        firsts = (
            target
            for target in consumer.selector_group.lists
            if target.counterpart is None or target.lane.is_persistent
        )
        for priority, of_priority in groupby(firsts, lambda target: target.lane.priority):
            lists = list(of_priority)
            last = self._served.get(priority, 0)
            begin = next((at for at, target in enumerate(lists) if target.lane.destination.number > last), 0)
            for target in (*lists[begin:], *lists[:begin]):
                before = len(take.deliveries)
                self._dispatch_area.dispatch_both(take, target)
                if len(take.deliveries) > before:
                    self._served[priority] = target.lane.destination.number
                if len(take.deliveries) >= most:
                    return take.deliveries
            if any(_has_more(target) for target in lists):
                break  # the next message must be loaded or is too large for this take; lower priorities wait for it
        return take.deliveries

    def remove_topic(self, topic: CoreDestination, selector_group: SelectorGroup) -> None:
        """Remove the lists of one topic from the selector group, and its deliveries from the consumer."""
        for lane in topic.all_lanes():
            for delivery in list(lane.deliveries.values()):
                self._dispatch_area.settle(delivery)
        self._list_registry.remove_lists_over(topic, selector_group)
        for consumer in list(selector_group.consumers):
            consumer.resume_if_credit()

    def leave(self, consumer: CoreConsumer) -> None:
        """Remove a closed consumer. Its topics have no selector group any more."""
        super().leave(consumer)
        for topic in self._pattern.sources():
            topic.forget_selector_groups()


def _has_more(target: TargetList) -> bool:
    both = (target,) if target.counterpart is None else (target, target.counterpart)
    return any(found.direct or found.has_supply for found in both)
