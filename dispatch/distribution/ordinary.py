"""OrdinaryDistribution: consumers share the lists of their selector group, and the next take gets the next message."""

from __future__ import annotations

from collections.abc import Sequence

from ...store.stored_message import StoredMessage
from ..core.model.delivery import Delivery
from ..core.model.destination import CoreConsumer, Distribution, LaneState, SelectorGroup
from ..core.model.distribution_roles import Dispatcher
from .distribution_parts import DistributionParts


class OrdinaryDistribution(Distribution):
    """The distribution of all queues without groups and priorities. One object serves all, and has no state of them."""

    is_ordinary = True
    keeps_open = False

    def __init__(self, parts: DistributionParts) -> None:
        self._target_area = parts.target_area
        self._list_registry = parts.list_registry
        self._dispatch_area = parts.dispatch_area
        self._loads = parts.loads

    @property
    def dispatcher(self) -> Dispatcher[CoreConsumer]:
        """The DispatchArea itself, to which this distribution would only pass each call on."""
        return self._dispatch_area

    def dispatch_one(self, consumer: CoreConsumer) -> Delivery | None:
        """Dispatch one message from the DispatchArea."""
        return self._dispatch_area.dispatch_one(consumer)

    def dispatch(self, consumer: CoreConsumer, most: int, max_bytes: int | None) -> list[Delivery]:
        """Dispatch up to `most` messages from the DispatchArea."""
        return self._dispatch_area.dispatch(consumer, most, max_bytes)

    def leave(self, consumer: CoreConsumer) -> None:
        """Remove a closed consumer from its selector group, and end the selector group with its last consumer."""
        selector_group = consumer.selector_group
        selector_group.remove_consumer(consumer)
        if not selector_group.consumers:
            self._list_registry.end_selector_group(consumer.destination, selector_group)

    def wake_others(self, selector_group: SelectorGroup) -> None:
        """Wake other consumers of the selector group, because one that was woken takes nothing."""
        self._target_area.wake(selector_group)

    def reoffer_returned(self, lane: LaneState, message: StoredMessage) -> None:
        """Put the message into its place in every list that has passed it."""
        sequence = message[0]
        for selector_group in lane.destination.selector_groups.values():
            if selector_group.verdict(lane, message) is False:
                continue
            for target in selector_group.lists:
                if target.lane is lane and target.passed_end > sequence:
                    target.note_returned(sequence)
                    self._loads.request(target)
                    self._target_area.wake(selector_group)

    def reoffer_delayed(self, lane: LaneState, runs: Sequence[tuple[int, int]]) -> None:
        """Put the messages into their places in every list that has passed them. O(runs)."""
        self._target_area.reoffer_runs(lane, runs)
