"""Sources: what a consumer of a scenario takes from, a queue or a subscription of a topic."""

from __future__ import annotations

import time
from typing import Final, Protocol

import forebay

from .scenario import ConsumerPlan

LOOK_SECONDS: Final = 0.05
"""For so long what a topic said of its subscriptions is taken for true: asking costs something for each of them."""


class LoadSource(Protocol):
    def subscribe(self, plan: ConsumerPlan) -> forebay.Consumer: ...

    @property
    def depth(self) -> int:
        """Messages that nobody has acknowledged."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing is there that a consumer would take. Asked only when everything is sent: depths only fall."""


class QueueSource:
    """One for all consumers of the queue. left_messages: those that no consumer asks for."""

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
    """A topic, and how deep its subscriptions are."""

    def __init__(self, topic: forebay.Topic) -> None:
        self.topic = topic
        self._depths: dict[str, int] = {}
        self._looked = float("-inf")

    def depth(self, name: str) -> int:
        """Return the depth of a subscription, as of LOOK_SECONDS ago at most."""
        if time.monotonic() - self._looked >= LOOK_SECONDS:
            subscriptions = self.topic.statistics().subscriptions
            self._depths = {each: statistics.depth for each, statistics in subscriptions.items()}
            self._looked = time.monotonic()
        return self._depths[name]


class SubscriptionSource:
    """A durable subscription. It is made here, so that it gets what is sent from now on."""

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
