"""SubscriptionAdmin: end durable subscriptions, and move their cursors.

Each operation is one record in the journal, so a crash leaves it done or not done.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ....store.errors import SettingsError, SubscriptionInUse, TransactionError
from ....store.index.subscriptions import Subscriber
from ....store.index.topic_lane import TopicLane
from ....store.maintenance.time_search import TimeSearch
from ....store.writers.subscription_writer import SubscriptionWriter
from ...core.confirmer import Confirmer
from ...core.monitor import Monitor
from ...transactions.transaction_registry import TransactionRegistry
from ..state.subscription_state import SubscriptionState
from ..state.topic_state import TopicState
from .cursors import Landing, SeekTarget, within
from .subscription_registry import SubscriptionRegistry


class SubscriptionAdmin:
    """Operations of a host on a durable subscription that nobody reads. The state lock guards it."""

    def __init__(
        self,
        *,
        monitor: Monitor,
        writer: SubscriptionWriter,
        time_search: TimeSearch,
        confirmer: Confirmer,
        transactions: TransactionRegistry,
        subscription_registry: SubscriptionRegistry,
    ) -> None:
        self._monitor = monitor
        self._writer = writer
        self._time_search = time_search
        self._confirmer = confirmer
        self._transactions = transactions
        self._subscription_registry = subscription_registry

    def unsubscribe(self, topic: TopicState, name: str) -> None:
        """End a durable subscription. SettingsError: there is none. SubscriptionInUse: it has a consumer."""
        with self._monitor.lock, self._monitor.while_open:
            self.remove(topic, name)
            journal_end = self._confirmer.journal_end
        self._confirmer.confirm(journal_end)

    def remove(self, topic: TopicState, name: str) -> None:
        """End a durable subscription as `unsubscribe` does, without waiting for the disk. Requires: the lock."""
        with self._idle(topic, name) as subscription:
            self._writer.unsubscribe(subscription.subscriber)
            topic.drop_kept(name)
            self._subscription_registry.forget(subscription)

    def seek(self, topic: TopicState, name: str, target: SeekTarget) -> Landing:
        """Move the cursor of a durable subscription; return where it landed. Requires: no lock.

        SettingsError: there is no such subscription. SubscriptionInUse: it has a consumer. TransactionError: a
        transaction without an outcome knows it.
        """
        topic_lanes, firsts = self.places(topic, target)
        with self._monitor.lock, self._monitor.while_open:
            topic.raise_if_not_open()
            with self._idle(topic, name) as subscription:
                self._writer.seek(subscription.subscriber, within(firsts, topic_lanes))
                self._subscription_registry.move(subscription)
                sequences, messages = _cursor(subscription.subscriber)
            journal_end = self._confirmer.journal_end
        self._confirmer.confirm(journal_end)
        return self._landing(topic_lanes, sequences, messages)

    def places(self, topic: TopicState, target: SeekTarget) -> tuple[list[TopicLane], list[tuple[int, int]]]:
        """Return the lanes of a topic, and (priority, sequence) of the place to go to. Requires: no lock."""
        with self._monitor.lock, self._monitor.while_open:
            topic.raise_if_not_open()
            topic_lanes = topic.stored_lanes()
        return topic_lanes, target.firsts(topic_lanes, self._time_search)

    @contextmanager
    def _idle(self, topic: TopicState, name: str) -> Iterator[SubscriptionState]:
        """Open a durable subscription that nobody uses, and close it at the end of the block.

        SettingsError: there is no such subscription. SubscriptionInUse: it has a consumer. TransactionError: a
        transaction without an outcome knows it. Requires: the lock.
        """
        found = topic.subscription_for_report(name)
        if found is None:
            raise SettingsError(f"topic {topic.name!r} has no durable subscription {name!r}")
        if found in topic.online:
            raise SubscriptionInUse(topic.name, name)
        if self._transactions.use_destinations((found.number,)):
            raise TransactionError(
                f"a transaction without an outcome knows the durable subscription {name!r} of topic "
                f"{topic.name!r}: end it first"
            )
        subscription = topic.durable_subscription(name)
        assert subscription is not None
        try:
            yield subscription
        finally:
            self._subscription_registry.shrink_to_row(subscription)

    def _landing(self, topic_lanes: Sequence[TopicLane], sequences: dict[int, int], messages: int) -> Landing:
        """Return where a cursor is. It reads one message of each lane to know when it was sent. Requires: no lock."""
        time_search = self._time_search
        times = [
            time_search.sent_at(each, sequences[each.priority]) for each in topic_lanes if each.priority in sequences
        ]
        return Landing(sequences, min((time for time in times if time is not None), default=None), messages)


def _cursor(subscriber: Subscriber) -> tuple[dict[int, int], int]:
    """Return the next sequence of a subscription by priority, and how many messages wait. Requires: the lock."""
    sequences, messages = {}, 0
    for priority, pending_lane in enumerate(subscriber.lanes):
        if pending_lane is not None:
            run = pending_lane.pending_run(0, 1)
            sequences[priority] = run[0] if run is not None else pending_lane.next_sequence
            messages += pending_lane.pending_messages
    return sequences, messages
