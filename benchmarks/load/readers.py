"""Readers: who must get each message, exactly once.

All queues together are one reader: a message is in one of them, and one of their consumers gets it. Each consumer of a
topic is a reader of its own, which gets every message of the topic.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .scenario import Scenario
from .workload import Workload


@dataclass(frozen=True, slots=True)
class Readers:
    producers: Sequence[Sequence[int]]
    """The producers whose messages each reader gets."""
    of: Sequence[int]
    """The reader of each consumer."""
    wants: Callable[[int, int, int], bool]
    """Returns whether a consumer is to get message n of a producer, or may."""
    subscriptions: int = 0
    """Number of readers that are a subscription."""

    def deliveries(self, counts: Sequence[int]) -> int:
        """Return how many deliveries there must be. counts: messages that each producer sends."""
        return sum(counts[producer] for producers in self.producers for producer in producers)


def readers_of(scenario: Scenario, workload: Workload) -> Readers:
    """Return the readers of a scenario."""
    sends_to = scenario.producers
    readers = [[producer for producer, destination in enumerate(sends_to) if destination.kind == "queue"]]
    if not readers[0]:
        readers.clear()
    of, allowed = [], []
    for consumer in scenario.consumers:
        consumed = scenario.consumed_by(consumer)
        producers = [producer for producer, destination in enumerate(sends_to) if destination in consumed]
        if consumed[0].kind == "topic":
            of.append(len(readers))
            readers.append(producers)
        else:
            of.append(0)
        allowed.append(frozenset(producers))

    def wants(consumer: int, producer: int, n: int) -> bool:
        return producer in allowed[consumer] and workload.is_for(scenario.consumers[consumer], producer, n)

    subscriptions = sum(scenario.consumed_by(consumer)[0].kind == "topic" for consumer in scenario.consumers)
    return Readers(readers, of, wants, subscriptions)
