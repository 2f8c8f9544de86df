"""Policies: which policy a destination has, by its name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Final

from .policy import DestinationPolicy, policy_for
from .redelivery import RedeliveryRule, dead_letter_name, is_dead_letter_name

CACHED_NAMES_MAX: Final = 4_096
"""Names whose policy is remembered; a host may use any number of temporary queues."""


class Policies:
    """Answers which policy a destination has, by its name. Immutable, thread-safe.

    A policy is found in O(patterns) the first time, and in O(1) while its
    name is among the last CACHED_NAMES_MAX that were asked for.
    """

    def __init__(self, by_pattern: Mapping[str, DestinationPolicy]) -> None:
        # The default policy too: it decides for names that no pattern matches.
        templates = {policy.dead_letter_queue for policy in (*by_pattern.values(), DestinationPolicy())}

        def find(name: str) -> DestinationPolicy:
            policy = policy_for(by_pattern, name)
            if policy.when_full == "dead_letter" and is_dead_letter_name(templates, name):
                return replace(policy, when_full="fail")  # its dead letters would go round in circles
            return policy

        self._dead_letter_templates = templates
        self._find = lru_cache(CACHED_NAMES_MAX)(find)

    def of(self, name: str) -> DestinationPolicy:
        """Return the policy of the most specific pattern that matches the name; the defaults where none does.

        In a dead-letter queue "fail" stands in place of when_full="dead_letter".
        """
        return self._find(name)

    def redelivery(self, name: str) -> RedeliveryRule:
        """Return the redelivery rule of a queue, or of the topic of a subscription. O(policies)."""
        policy = self.of(name)
        template, max_attempts = policy.dead_letter_queue, policy.max_attempts
        if template is not None and self.is_dead_letter_queue(name):
            max_attempts = None  # a dead letter of a dead letter would go round in circles
        target = dead_letter_name(template, name) if template is not None else None
        return RedeliveryRule(max_attempts, policy.redelivery_delay_seconds, policy.redelivery_backoff, target)

    def is_dead_letter_queue(self, name: str) -> bool:
        """Return whether some policy sends dead letters there. O(policies)."""
        return is_dead_letter_name(self._dead_letter_templates, name)

    def queue_for_expired(self, name: str) -> str | None:
        """Return where the expired messages of a queue go; None: they are removed, also from a dead-letter queue."""
        policy = self.of(name)
        if not policy.expired_to_dead_letter or self.is_dead_letter_queue(name):
            return None
        return self.redelivery(name).dead_letter_queue
