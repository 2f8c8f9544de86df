"""TopicRetention: keep messages of a topic that no subscription needs, as long as the policy says.

This is not about retained messages, which new subscriptions get first: see retained_messages.py. A record says that a
topic has a retention, so a retention survives a crash. Messages that had been deleted just before a crash are deleted
again after it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ...store.environment.late_log import LateLogger
from ...store.errors import StoreFull
from ...store.index.subscriptions import SUBSCRIBER_BYTES
from ...store.maintenance.trimmer import RetentionRule, Trimmer
from ...store.writers.subscription_writer import SubscriptionWriter
from ..config.policies import Policies
from ..core.destinations.overhead import DestinationOverhead
from ..core.monitor import Monitor
from .state.topic_state import TopicState

logger = LateLogger("forebay.dispatch")

TRIM_SECONDS: Final = 1.0
"""A topic may keep a message at most this much longer than its policy says."""


class TopicRetention:
    """Begins and ends retention of topics, and deletes retained messages that are too old or too many.

    The state lock guards it.
    """

    def __init__(
        self,
        *,
        monitor: Monitor,
        writer: SubscriptionWriter,
        trimmer: Trimmer,
        policies: Policies,
        overhead: DestinationOverhead,
    ) -> None:
        self._monitor = monitor
        self._writer = writer
        self._trimmer = trimmer
        self._policies = policies
        self._overhead = overhead
        # Topics whose retention is to begin or end as soon as the journal has room for the record.
        self._postponed: dict[TopicState, None] = {}
        self._trim_at = 0.0

    def retains(self, name: str) -> bool:
        """Return whether the policy of a topic of that name keeps messages that no subscription needs."""
        return self._policies.of(name).retains

    def apply_all(self, topics: Iterable[TopicState]) -> None:
        """Begin and end retention as the policies say now, after an open of the store.

        Requires: the lock, and that everything that the open has found is charged.
        """
        for topic in topics:
            self.apply(topic)

    def apply(self, topic: TopicState) -> None:
        """Make a topic retain what its policy says. If there is no room, `trim` tries again.

        Requires: the lock.
        """
        policy = self._policies.of(topic.name)
        rule = RetentionRule(policy.retain_seconds, policy.retain_size_bytes) if policy.retains else None
        begins = topic.retention is None
        topic.want_retention(is_wanted=rule is not None)
        self._postponed.pop(topic, None)
        try:
            if rule is not None and begins:
                self._overhead.require(SUBSCRIBER_BYTES)
            if rule is None:
                self._writer.end_retention(topic.number)
            else:
                self._writer.begin_retention(topic.number)
            self._trimmer.set_rule(topic.number, rule)
        except StoreFull as full:
            self._postponed[topic] = None
            logger.warning(
                "topic %r can't do yet what its policy says of retaining: %s",
                topic.name,
                full,
                event="retention_postponed",
            )

    def forget(self, topic: TopicState) -> None:
        """Forget a deleted topic, and what was to begin or end there. Requires: the lock."""
        self._postponed.pop(topic, None)
        self._trimmer.set_rule(topic.number, None)

    def trim(self) -> int:
        """Once a second, delete retained messages that are too old or too many; return how many.

        Requires: no lock.
        """
        now = self._monitor.monotonic()
        if now < self._trim_at:
            return 0
        self._trim_at = now + TRIM_SECONDS
        if self._postponed:
            with self._monitor.lock, self._monitor.all_or_broken:
                self.apply_all(list(self._postponed))
        return self._trimmer.trim(self._monitor.clock_ms()) if self._trimmer.is_retaining else 0
