"""Policies: find the DestinationPolicy of a destination by its name, and the rules that follow from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from .policy import DestinationPolicy, is_dead_letter_queue, pattern_for, policy_for
from .redelivery_delays import RedeliveryRule, dead_letter_name
from .temporary_names import lasting_name


class Policies:
    """The policies of an open store. Immutable."""

    def __init__(self, by_pattern: Mapping[str, DestinationPolicy]) -> None:
        self._by_pattern = by_pattern

    def of(self, name: str) -> DestinationPolicy:
        """Return the policy of a queue or topic. O(patterns)."""
        policy = policy_for(self._by_pattern, name)
        if policy.when_full == "dead_letter" and self.is_dead_letter_queue(name):
            return replace(policy, when_full="fail")
        return policy

    @property
    def shortest_inactive_seconds(self) -> float | None:
        """The least `inactive_seconds` of any policy; None: no policy has it. O(patterns)."""
        given = (policy.inactive_seconds for policy in self._by_pattern.values())
        return min((seconds for seconds in given if seconds is not None), default=None)

    def pattern_of(self, name: str) -> str | None:
        """Return the pattern that decides about a queue or topic; None: the defaults do. O(patterns)."""
        return pattern_for(self._by_pattern, name)

    def is_dead_letter_queue(self, name: str) -> bool:
        """Return whether dead letters of any destination may go to that queue."""
        return is_dead_letter_queue(self._by_pattern, name)

    def redelivery(self, name: str) -> RedeliveryRule:
        """Return how often messages of a queue, or of a topic's subscription, are delivered. O(patterns)."""
        policy = self.of(name)
        template, max_attempts = policy.dead_letter_queue, policy.max_attempts
        if template is not None and max_attempts is not None and self.is_dead_letter_queue(name):
            max_attempts = None
        target = dead_letter_name(template, lasting_name(name)) if template is not None else None
        return RedeliveryRule(
            max_attempts, policy.redelivery_delay_seconds, policy.redelivery_backoff, target, policy.count_on_close
        )

    def queue_for_expired(self, name: str) -> str | None:
        """Return the queue for expired messages of a queue. None: they are removed, as in a dead-letter queue."""
        policy = self.of(name)
        if not policy.expired_to_dead_letter or policy.dead_letter_queue is None or self.is_dead_letter_queue(name):
            return None
        return dead_letter_name(policy.dead_letter_queue, lasting_name(name))
