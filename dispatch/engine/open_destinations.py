"""OpenDestinations: all queues and topics of a store that are open, with their lanes and consumers."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from ...store.format.destination_table import DestinationTable
from ..core.destinations.destination_opener import DestinationOpener
from ..core.destinations.overhead import DestinationCounts
from ..core.destinations.queue_registry import QueueRegistry
from ..core.destinations.queue_state import QueueState
from ..core.model.destination import CoreConsumer, LaneState
from ..topics.state.topic_state import TopicState
from ..topics.topic_registry import TopicRegistry


class OpenDestinations:
    """Walks over open queues and topics, queues first. Every method requires the state lock."""

    def __init__(
        self, rows: DestinationTable, opener: DestinationOpener, queues: QueueRegistry, topics: TopicRegistry
    ) -> None:
        """Make the walks over a store. rows: all queues and topics, open or not."""
        self._rows = rows
        self._opener = opener
        self._queues = queues
        self._topics = topics

    def queues(self) -> Collection[QueueState]:
        return self._queues.by_name.values()

    def topics(self) -> Collection[TopicState]:
        return self._topics.by_name.values()

    def queues_and_topics(self) -> list[QueueState | TopicState]:
        return [*self.queues(), *self.topics()]

    def lanes(self) -> Iterator[LaneState]:
        """Yield every lane of every queue and topic."""
        for destination in self.queues_and_topics():
            yield from destination.all_lanes()

    def consumers(self) -> Iterator[CoreConsumer]:
        """Yield every consumer of every queue and topic."""
        yield from (consumer for queue in self.queues() for consumer in queue.consumers())
        yield from self._topics.consumers()

    def count_destinations(self) -> DestinationCounts:
        """Return the numbers of things that are charged because they exist. O(open queues)."""
        return DestinationCounts(
            destinations=len(self._rows),
            name_bytes=self._rows.name_bytes,
            open_queues=len(self.queues()),
            counted=self._opener.closed_counting,
            open_topics=len(self.topics()),
            with_message_groups=sum(queue.has_message_groups for queue in self.queues()),
        )

    @property
    def idle_charge(self) -> int:
        """The charge for closed lanes of non-persistent messages."""
        return self._opener.idle_charge
