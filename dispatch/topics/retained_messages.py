"""RetainedMessages: the messages that a topic gives to each new subscription first.

A send with `retain` makes a retained message. It is a host property of the store, so it is in the journal and in RAM.
Retention, which keeps all messages of a topic for a time, is in topic_retention.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ...store.environment.late_log import LateLogger
from ...store.errors import ForebayError
from ...store.format.record import RecordDamaged
from ...store.format.retained import decode_retained
from ...store.state.property_table import PropertyTable
from ...store.writers.property_writer import PropertyWriter
from ..core.confirmer import Confirmer
from ..core.monitor import Monitor
from .fan_out_opener import FanOutOpener
from .state.subscription_state import SubscriptionState
from .state.topic_state import TopicState

logger = LateLogger("forebay.dispatch")


class RetainedMessages:
    """Gives and deletes the retained messages of topics. The state lock guards it."""

    def __init__(
        self,
        *,
        monitor: Monitor,
        properties: PropertyTable,
        writer: PropertyWriter,
        now_ms: Callable[[], int],
        confirmer: Confirmer,
        fan_out_opener: FanOutOpener,
    ) -> None:
        """properties: the host properties, among which the retained messages are. now_ms: returns the store's time."""
        self._monitor = monitor
        self._properties = properties
        self._writer = writer
        self._now_ms = now_ms
        self._confirmer = confirmer
        self._fan_out_opener = fan_out_opener

    def give(self, new: Iterable[tuple[TopicState, SubscriptionState]]) -> ForebayError | None:
        """Give new subscriptions the retained messages of their topics. Return the error if memory has no room for one.

        new: the subscriptions, each with its topic.
        Requires: the lock, and that the subscriptions have a consumer. O(retained messages).
        """
        now_ms = self._now_ms()
        try:
            for topic, subscription in new:
                for value in self._properties.retained(topic.number):
                    self._give_one(topic, subscription, value, now_ms)
        except ForebayError as error:
            return error
        return None

    def _give_one(self, topic: TopicState, subscription: SubscriptionState, value: bytes, now_ms: int) -> None:
        """Give a retained message, unless it has expired or nobody can read it."""
        try:
            retained = decode_retained(value)
            if not retained.is_expired(now_ms):
                fan_out = self._fan_out_opener.ensure_locked(topic, retained.priority)
                fan_out.give_retained(subscription, retained)
        except RecordDamaged as damage:
            logger.error(
                "a retained message of topic %r can't be used: %s",
                topic.name,
                damage,
                event="retained_message_unusable",
            )

    def delete(self, name: str) -> None:
        """Delete a retained message, if there is one of that name.

        The call writes one record, for which even a full store has room.

        name: the name of the host property. Requires: no lock.
        """
        with self._monitor.lock, self._monitor.while_open:
            if not self._properties.is_retained(name):
                return
            self._writer.change({name: None})
            journal_end = self._confirmer.journal_end
        self._confirmer.confirm(journal_end)
