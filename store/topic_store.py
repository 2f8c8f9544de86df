"""What the journal is told of topics: who subscribed, who left, what is done with, what nobody gets.

The messages themselves are added and read as those of queues are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .format.record import ACK, RANGES_MAX, SUBSCRIBE, UNSUBSCRIBE, Range, ranges_payload
from .format.state import Subscription, encode_subscription, encode_unsubscribe
from .format.times import Times
from .identified import add_identified
from .index.deduplication import Identity
from .index.lane import Lane
from .index.subscriptions import Subscriber
from .index.topic_lane import NO_RECORD, SubscriptionLane, TopicLane

if TYPE_CHECKING:
    from .message_store import MessageStore


class TopicStore:
    """A part of the MessageStore's door. Every method REQUIRES the state lock, and raises StoreFull or StoreFailed."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._subscriptions = store.subscriptions

    def subscribe(self, topic: int, name: str | None, selector: str | None) -> Subscriber:
        """Begin a subscription to what is sent from now on; with name=None one that no record names."""
        facts = Subscription(self._subscriptions.next_number, topic, name or "", selector)
        with self._store.journal.uninterrupted():
            if name is not None:
                self._store.journal.append(SUBSCRIBE, 0, 1, encode_subscription(facts))
            return self._subscriptions.begin(facts, is_durable=name is not None)

    def unsubscribe(self, subscriber: Subscriber) -> None:
        """End a subscription: what it alone needed is needed no more."""
        number = subscriber.facts.number
        with self._store.journal.uninterrupted():
            if subscriber.is_durable:
                self._store.journal.append(UNSUBSCRIBE, 0, 1, encode_unsubscribe(number))
            self._subscriptions.end(number)

    def add(self, lane: Lane, timestamp: int, properties: bytes, body: bytes) -> int:
        """Store one message for whoever subscribed; returns its sequence."""
        assert isinstance(lane, TopicLane)
        if lane.subscribers:
            return self._store.add(lane, timestamp, properties, body)
        return self.pass_over(lane, 1)

    def add_slice(self, lane: Lane, timestamp: int, contents: list[tuple[bytes, bytes]]) -> int:
        """As MessageStore.add_slice, for whoever subscribed; returns the first sequence."""
        assert isinstance(lane, TopicLane)
        if lane.subscribers:
            return self._store.add_slice(lane, timestamp, contents)
        return self.pass_over(lane, len(contents))

    def add_timed(self, lane: Lane, timestamp: int, contents: list[tuple[bytes, bytes]], times: Sequence[Times]) -> int:
        """As DueTimes.add, for whoever subscribed; returns the first sequence."""
        assert isinstance(lane, TopicLane)
        if lane.subscribers:
            return self._store.timetable.add(lane, timestamp, contents, times)
        return self.pass_over(lane, len(contents))

    def add_identified(
        self,
        lane: Lane,
        timestamp: int,
        contents: list[tuple[bytes, bytes]],
        identities: Sequence[Identity],
        times: Sequence[Times] = (),
    ) -> int:
        """As identified.add_identified, for whoever subscribed; returns the first sequence."""
        assert isinstance(lane, TopicLane)
        if lane.subscribers:
            return add_identified(self._store, lane, timestamp, contents, identities, times)
        first = self.pass_over(lane, len(contents))
        for found in identities:
            self._store.duplicates.note(found)
        return first

    def pass_over(self, lane: TopicLane, messages: int) -> int:
        """Give numbers to messages that nobody subscribed to, instead of storing them; returns the first.

        One record of 48 bytes, so that no id is ever given twice.
        """
        first = lane.next_sequence
        with self._store.journal.uninterrupted():
            self._store.journal.append_ack(lane.priority, lane.destination, first, messages)
            lane.skip_to(first + messages)
        return first

    def remove(self, lane: SubscriptionLane, runs: Sequence[tuple[int, int]], *, is_durable: bool) -> int:
        """Acknowledge many runs with few records, or with none where the subscription is not durable.

        Returns how many were pending.
        """
        removed = 0
        for at in range(0, len(runs), RANGES_MAX):
            part = runs[at : at + RANGES_MAX]
            with self._store.journal.uninterrupted():
                data_log = NO_RECORD
                if is_durable:
                    ranges = [Range(first, last - first + 1) for first, last in part]
                    payload = ranges_payload(lane.destination, ranges)
                    self._store.journal.append(ACK, lane.priority, len(ranges), payload)
                    data_log = self._store.journal.data_log
                removed += sum(lane.remove(first, last, data_log) for first, last in part)
        return removed
