"""SubscriptionWriter: subscriptions begin, move, end and acknowledge.

A change of a durable subscription takes effect with its record; a crash before that leaves everything as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ..format.record import ACK, RANGES_MAX, SEEK, SUBSCRIBE, UNSUBSCRIBE, AckRange, ack_payload
from ..format.seek_record import seek_payload
from ..format.state_record import Subscription, encode_subscription, encode_unsubscribe
from ..index.subscriptions import Subscriber, Subscriptions
from ..index.topic_lane import NO_RECORD, SubscriptionLane
from ..journal.journal import Journal

RETENTION_NAME: Final = "retention"
"""Name of a retention in records: the entry for messages that a topic keeps although they were acknowledged."""


class SubscriptionWriter:
    """Writes the records with which subscriptions begin, move, acknowledge and end.

    The state lock guards it. Every method requires the state lock.
    """

    def __init__(self, journal: Journal, subscriptions: Subscriptions) -> None:
        self._journal = journal
        self._subscriptions = subscriptions

    def subscribe(self, topic: int, name: str | None, selector: str | None) -> Subscriber:
        """Subscribe to messages that are sent to a topic from now on. Raises StoreFull or StoreFailed.

        name: the name of a durable subscription; None: the subscription is only in RAM, and has no record.
        """
        facts = Subscription(self._subscriptions.next_number, topic, name or "", selector)
        with self._journal.all_or_broken:
            if name is not None:
                self._journal.append(SUBSCRIBE, 0, 1, encode_subscription(facts))
            return self._subscriptions.subscribe(facts, is_durable=name is not None)

    def unsubscribe(self, subscriber: Subscriber) -> None:
        """End a subscription. Messages that only it needed may be removed. Raises StoreFull or StoreFailed."""
        number = subscriber.facts.number
        with self._journal.all_or_broken:
            if subscriber.is_durable:
                self._journal.append(UNSUBSCRIBE, 0, 1, encode_unsubscribe(number))
            self._subscriptions.unsubscribe(number)

    def seek(self, subscriber: Subscriber, firsts: Sequence[tuple[int, int]]) -> None:
        """Make all messages from some places on pending, and none before.

        firsts: (priority, sequence) of the lanes to move; other lanes stay as they are. One record has all of them; a
            subscription that is not durable has no record.

        Requires: the subscription has no consumer. Raises StoreFull (nothing has changed) or StoreFailed.
        """
        number, data_log = subscriber.facts.number, NO_RECORD
        with self._journal.all_or_broken:
            if subscriber.is_durable:
                self._journal.append(SEEK, 0, len(firsts), seek_payload(number, firsts))
                data_log = self._journal.data_log
            self._subscriptions.seek(number, firsts, data_log)

    def begin_retention(self, topic: int) -> None:
        """Let a topic keep acknowledged messages from now on. It writes a record, unless the topic does so already.

        Raises StoreFull (nothing has changed) or StoreFailed.
        """
        if self._subscriptions.retention(topic) is None:
            facts = Subscription(self._subscriptions.next_number, topic, RETENTION_NAME, None, is_retention=True)
            with self._journal.all_or_broken:
                self._journal.append(SUBSCRIBE, 0, 1, encode_subscription(facts))
                self._subscriptions.subscribe(facts)

    def end_retention(self, topic: int) -> None:
        """Let a topic keep no acknowledged messages from now on. It ends the retention as `unsubscribe` does."""
        if (known := self._subscriptions.retention(topic)) is not None:
            self.unsubscribe(known)

    def acknowledge_runs(self, lane: SubscriptionLane, runs: Sequence[tuple[int, int]], *, is_durable: bool) -> int:
        """Acknowledge many runs of a subscription with few records; return how many messages were pending.

        is_durable: whether the subscription is durable; otherwise no record is written.
        """
        removed = 0
        for at in range(0, len(runs), RANGES_MAX):
            part = runs[at : at + RANGES_MAX]
            with self._journal.all_or_broken:
                data_log = NO_RECORD
                if is_durable:
                    ranges = [AckRange(first, last - first + 1) for first, last in part]
                    self._journal.append(ACK, lane.priority, len(ranges), ack_payload(lane.owner_number, ranges))
                    data_log = self._journal.data_log
                removed += sum(lane.remove(first, last, data_log) for first, last in part)
        return removed
