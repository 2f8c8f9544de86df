"""ConsumerFactory: make the consumers of an open store."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import AbstractContextManager

from ..core.areas.list_order import list_to_load
from ..core.areas.list_registry import ListRegistry
from ..core.areas.target_area import TargetArea
from ..core.destinations.destination_state import DestinationState
from ..core.destinations.overhead import DestinationOverhead
from ..core.model.destination import CoreDestination, Distribution
from ..core.model.distribution_roles import AbstractDistributionChooser
from .consumer import Consumer, ConsumerParts
from .consumer_registry import ConsumerRegistry
from .options import ConsumerOptions


class ConsumerFactory:
    """Makes the consumers of an open store. The state lock guards it."""

    def __init__(
        self,
        parts: ConsumerParts,
        registry: ConsumerRegistry,
        target_area: TargetArea,
        list_registry: ListRegistry,
        distribution_chooser: AbstractDistributionChooser[CoreDestination, Distribution],
        overhead: DestinationOverhead,
    ) -> None:
        """parts: what each consumer needs.
        overhead: refuses a consumer for which memory has no room.
        """
        self._parts = parts
        self._target_area = target_area
        self._list_registry = list_registry
        self._distribution_chooser = distribution_chooser
        self._overhead = overhead
        self._registry = registry
        # Durations of takes that found nothing in RAM and returned messages.
        self.take_durations = parts.searches.take_durations

    def reserving(self, options: ConsumerOptions) -> AbstractContextManager[None]:
        """Reserve memory for the deadline of a consumer attached in the block. StoreFull. Requires: the lock."""
        return self._registry.reserving(options)

    def require_room(self, topics: Collection[DestinationState], options: ConsumerOptions) -> None:
        """Make room for a consumer of new subscriptions of these topics, before the subscriptions are made.

        StoreFull: memory has no room. Requires: the lock.
        """
        self._overhead.require_subscriber(topics, options.selector, options.charge_bytes)

    def attach(self, destination: DestinationState, options: ConsumerOptions) -> Consumer:
        """Make a consumer of a queue or subscription.

        StoreFull: memory has no room for it. Requires: the lock, and that the caller is inside `reserving`.
        """
        self._overhead.require_consumer(destination, options.selector, options.charge_bytes)
        if options.priority:
            self._distribution_chooser.begin_assigning(destination)
        selector_group = self._list_registry.ensure_selector_group(destination, options.selector)
        self._registry.charge(options)
        consumer = Consumer(self._parts, destination, selector_group, options)
        selector_group.add_consumer(consumer)
        destination.distribution.join(consumer, selector_group)
        consumer.arm()
        if list_to_load(consumer.selector_group) is not None:
            self._target_area.wake(selector_group)
        self._registry.enter(consumer, options)
        return consumer
