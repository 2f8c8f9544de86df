"""SubscriptionRecords: subscriptions begin, move, end and acknowledge.

Each change of a durable subscription is first a record in the journal, then a change in RAM. It counts from its record
on: a crash before the record leaves everything as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from .format.record import ACK, RANGES_MAX, SEEK, SUBSCRIBE, UNSUBSCRIBE, Range, ranges_payload, seek_payload
from .format.state import Subscription, encode_subscription, encode_unsubscribe
from .index.subscriptions import Subscriber, Subscriptions
from .index.topic_lane import NO_RECORD, SubscriptionLane
from .journal.journal import Journal
from .maintenance.trimmer import RetentionRule

RETENTION_NAME: Final = "retention"
"""Name in records for the retention of a topic, which keeps messages beyond all acks as a subscription would."""


class SubscriptionRecords:
    """Writes and applies the records of subscriptions.

    The state lock guards it. Every method requires the state lock.
    """

    def __init__(self, journal: Journal, subscriptions: Subscriptions, rules: dict[int, RetentionRule]) -> None:
        """rules: topic number -> how long the topic keeps messages that no subscription needs."""
        self._journal = journal
        self._subscriptions = subscriptions
        self._rules = rules

    def subscribe(self, topic: int, name: str | None, selector: str | None) -> Subscriber:
        """Subscribe to the messages that are sent to a topic from now on.

        Raises StoreFull or StoreFailed. Requires: the lock.

        name: of a durable subscription. None: the subscription is only in RAM, and no record names it.
        """
        facts = Subscription(self._subscriptions.next_number, topic, name or "", selector)
        with self._journal.whole:
            if name is not None:
                self._journal.append(SUBSCRIBE, 0, 1, encode_subscription(facts))
            return self._subscriptions.subscribe(facts, is_durable=name is not None)

    def unsubscribe(self, subscriber: Subscriber) -> None:
        """End a subscription. Messages that only this subscription needed are needed no more.

        Raises StoreFull or StoreFailed. Requires: the lock.
        """
        number = subscriber.facts.number
        with self._journal.whole:
            if subscriber.is_durable:
                self._journal.append(UNSUBSCRIBE, 0, 1, encode_unsubscribe(number))
            self._subscriptions.unsubscribe(number)

    def seek(self, subscriber: Subscriber, firsts: Sequence[tuple[int, int]]) -> None:
        """Make the messages from these sequences on pending, and none before them.

        Requires: the subscription has no consumer.

        firsts: (priority, sequence) of lanes; other lanes stay as they are. Writes one record for all of them, or none
        if the subscription is not durable. Raises StoreFull (nothing has changed) or StoreFailed. Requires: the lock.
        """
        number, data_log = subscriber.facts.number, NO_RECORD
        with self._journal.whole:
            if subscriber.is_durable:
                self._journal.append(SEEK, 0, len(firsts), seek_payload(number, firsts))
                data_log = self._journal.data_log
            self._subscriptions.seek(number, firsts, data_log)

    def retain(self, topic: int, rule: RetentionRule | None) -> None:
        """Let a topic keep messages beyond all acks from now on, as the rule says.

        None: the topic keeps no more messages.

        Writes a record when retention begins or ends, and none when one rule replaces another. Raises StoreFull
        (nothing has changed) or StoreFailed. Requires: the lock.
        """
        known = self._subscriptions.retention(topic)
        if rule is not None and known is None:
            facts = Subscription(self._subscriptions.next_number, topic, RETENTION_NAME, None, is_retention=True)
            with self._journal.whole:
                self._journal.append(SUBSCRIBE, 0, 1, encode_subscription(facts))
                self._subscriptions.subscribe(facts)
        if rule is None and known is not None:
            self.unsubscribe(known)
        if rule is None:
            self._rules.pop(topic, None)
        else:
            self._rules[topic] = rule

    def acknowledge_runs(self, lane: SubscriptionLane, runs: Sequence[tuple[int, int]], *, is_durable: bool) -> int:
        """Acknowledge many runs of a subscription with few records; return how many messages were pending.

        is_durable: whether the subscription is durable; without it no record is written. Requires: the lock.
        """
        removed = 0
        for at in range(0, len(runs), RANGES_MAX):
            part = runs[at : at + RANGES_MAX]
            with self._journal.whole:
                data_log = NO_RECORD
                if is_durable:
                    ranges = [Range(first, last - first + 1) for first, last in part]
                    self._journal.append(
                        ACK, lane.priority, len(ranges), ranges_payload(lane.destination_number, ranges)
                    )
                    data_log = self._journal.data_log
                removed += sum(lane.remove(first, last, data_log) for first, last in part)
        return removed
