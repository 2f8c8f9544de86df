"""DestinationReports: the statistics of each queue and topic."""

from __future__ import annotations

from ..admin.oldest import OldestMessages
from ..core.destinations.queue_registry import QueueRegistry
from ..core.monitor import Monitor, in_sections
from ..topics.topic_registry import TopicRegistry
from .statistics import DestinationStatistics, TopicStatistics, destination_statistics, statistics_of_topic


class DestinationReports:
    """Makes the statistics of some hundred destinations at a time, so that nobody waits long for the lock.

    No method requires the lock.
    """

    def __init__(self, monitor: Monitor, queues: QueueRegistry, topics: TopicRegistry, oldest: OldestMessages) -> None:
        self._monitor = monitor
        self._queues = queues
        self._topics = topics
        self._oldest = oldest

    def statistics(self) -> tuple[dict[str, DestinationStatistics], dict[str, TopicStatistics]]:
        """Return the statistics of all queues and of all topics, by name. O(destinations)."""
        with self._monitor.lock:
            numbers, topic_numbers = self._queues.numbers(), self._topics.numbers()
        destinations: dict[str, DestinationStatistics] = {}
        for part in in_sections(numbers):
            with self._monitor.lock:
                for number in part:
                    queue = self._queues.numbered_for_report(number)
                    if queue is not None:
                        destinations[queue.name] = destination_statistics(queue, self._oldest.age_seconds(queue))
        topics: dict[str, TopicStatistics] = {}
        for number in topic_numbers:
            with self._monitor.lock:
                topic = self._topics.numbered_for_report(number)
            if topic is not None:
                topics[topic.name] = statistics_of_topic(self._monitor, topic)
        return destinations, topics
