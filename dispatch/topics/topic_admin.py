"""TopicAdmin: delete a whole topic.

A deletion is one record, so a crash leaves the whole topic or nothing of it.
"""

from __future__ import annotations

from ...store.errors import TransactionError
from ...store.writers.destination_writer import DestinationWriter
from ..core.confirmer import Confirmer
from ..core.monitor import Monitor
from ..core.redelivery.removal import Removals
from ..transactions.transaction_registry import TransactionRegistry
from .state.topic_state import TopicState
from .subscriptions.subscription_registry import SubscriptionRegistry
from .topic_registry import TopicRegistry


class TopicAdmin:
    """Deletes topics with their subscriptions and all messages that wait for them."""

    def __init__(
        self,
        *,
        monitor: Monitor,
        writer: DestinationWriter,
        confirmer: Confirmer,
        topics: TopicRegistry,
        subscription_registry: SubscriptionRegistry,
        removals: Removals,
        transactions: TransactionRegistry,
    ) -> None:
        self._monitor = monitor
        self._writer = writer
        self._confirmer = confirmer
        self._topics = topics
        self._subscription_registry = subscription_registry
        self._removals = removals
        self._transactions = transactions

    def delete(self, topic: TopicState) -> None:
        """Delete a topic. If the record can't be written, nothing has changed. Requires: no lock."""
        with self._monitor.lock, self._monitor.while_open:
            self.delete_locked(topic)
            journal_end = self._confirmer.journal_end
        try:
            self._confirmer.confirm(journal_end)
            while self._subscription_registry.forget_some():
                pass
        finally:
            self._monitor.run_deferred()

    def delete_locked(self, topic: TopicState) -> None:
        """Delete a topic; its record is not synced yet. A second call does nothing. Requires: the lock.

        A subscription that nobody reads and that has no state in RAM costs a microsecond.
        """
        if not topic.is_open:
            return
        open_subscriptions, durable = topic.open_subscriptions(), topic.durable_numbers
        if self._transactions.use_destinations({topic.number, *durable, *(each.number for each in open_subscriptions)}):
            raise TransactionError(f"a transaction without an outcome knows the topic {topic.name!r}: end it first")
        kept = {subscription.number for subscription in topic.kept.values()}
        unread = self._subscription_registry.unread(durable, kept)
        self._writer.delete(topic.number)
        self._subscription_registry.forget_later(topic.memory, unread)
        topic.mark_deleted()
        self._topics.remove(topic)
        for subscription in open_subscriptions:
            self._subscription_registry.delete(subscription)
        topic.end_admission()
        for lane in topic.all_lanes():
            self._removals.empty_lane(lane)
        topic.clear()
