"""OpenDestinations: all queues and topics of a store that are open, with their lanes and consumers."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from ...store.format.destination_table import DestinationTable
from ..core.destinations.destinations import Destinations
from ..core.destinations.overhead import Census
from ..core.destinations.queue_state import QueueState
from ..core.model import LaneState, Taker
from ..topics.registry import Topics
from ..topics.state import TopicState


class OpenDestinations:
    """Walks them, queues first. The state lock guards it; every method requires it held."""

    def __init__(self, rows: DestinationTable, destinations: Destinations, topics: Topics) -> None:
        """Make it. rows: all queues and topics, open or not."""
        self._rows = rows
        self._destinations = destinations
        self._topics = topics

    def queues(self) -> Collection[QueueState]:
        return self._destinations.queues.values()

    def topics(self) -> Collection[TopicState]:
        return self._topics.by_name.values()

    def queues_and_topics(self) -> list[QueueState | TopicState]:
        return [*self.queues(), *self.topics()]

    def lanes(self) -> Iterator[LaneState]:
        """Yield every lane of every queue and topic."""
        for destination in self.queues_and_topics():
            yield from destination.all_lanes()

    def consumers(self) -> Iterator[Taker]:
        """Yield every consumer of every queue and topic."""
        yield from (consumer for queue in self.queues() for consumer in queue.consumers())
        yield from self._topics.consumers()

    def census(self) -> Census:
        """Return the numbers of things that are charged because they exist. O(open queues)."""
        return Census(
            destinations=len(self._rows),
            name_bytes=self._rows.name_bytes,
            open_queues=len(self.queues()),
            counted=self._destinations.closed_counting,
            open_topics=len(self.topics()),
            grouped=sum(queue.has_groups for queue in self.queues()),
        )

    @property
    def idle_charge(self) -> int:
        """The charge for closed lanes of non-persistent messages."""
        return self._destinations.idle_charge
