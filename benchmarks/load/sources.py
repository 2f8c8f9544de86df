"""Sources: a queue or a subscription of a topic, from which a consumer of a scenario takes."""

from __future__ import annotations

import time
from typing import Final, Protocol

import forebay

from .scenario import ConsumerPlan

LOOK_SECONDS: Final = 0.05
"""Seconds for which the depths of a topic's subscriptions are cached, because reading costs time for each of them."""


class LoadSource(Protocol):
    def subscribe(self, plan: ConsumerPlan) -> forebay.Consumer: ...

    @property
    def depth(self) -> int:
        """Number of messages that nobody has acknowledged."""

    @property
    def is_empty(self) -> bool:
        """Whether no message is left that a consumer would take. Valid once all is sent: depths then only fall."""


class QueueSource:
    """A queue, for all its consumers. left_messages: number of messages that no consumer asks for."""

    __slots__ = ("_queue", "_left_messages")

    def __init__(self, queue: forebay.Queue, left_messages: int) -> None:
        self._queue = queue
        self._left_messages = left_messages

    def subscribe(self, plan: ConsumerPlan) -> forebay.Consumer:
        return self._queue.subscribe(selector=plan.selector, prefetch=plan.prefetch)

    @property
    def depth(self) -> int:
        return self._queue.depth

    @property
    def is_empty(self) -> bool:
        return self._queue.depth <= self._left_messages


class TopicDepths:
    """A topic, and the depths of its subscriptions."""

    def __init__(self, topic: forebay.Topic) -> None:
        self.topic = topic
        self._depths: dict[str, int] = {}
        self._looked = float("-inf")

    def depth(self, name: str) -> int:
        """Return the depth of a subscription, at most LOOK_SECONDS old."""
        if time.monotonic() - self._looked >= LOOK_SECONDS:
            subscriptions = self.topic.statistics().subscriptions
            self._depths = {each: statistics.depth for each, statistics in subscriptions.items()}
            self._looked = time.monotonic()
        return self._depths[name]


class SubscriptionSource:
    """A durable subscription. The constructor makes it, so that it gets all messages sent afterwards."""

    def __init__(self, depths: TopicDepths, name: str) -> None:
        self._depths = depths
        self._name = name
        if name not in depths.topic.subscriptions():
            depths.topic.subscribe(durable=name).close()

    def subscribe(self, plan: ConsumerPlan) -> forebay.Consumer:
        return self._depths.topic.subscribe(durable=self._name, prefetch=plan.prefetch)

    @property
    def depth(self) -> int:
        return self._depths.depth(self._name)

    @property
    def is_empty(self) -> bool:
        return not self._depths.depth(self._name)
