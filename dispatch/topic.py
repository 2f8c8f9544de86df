"""Topic: send each message to all subscriptions that were made before."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final

from ..store.errors import ArgumentError, Closed, SettingsError, StoreFull
from ..store.format.message_properties import encode_properties
from ..store.format.retained import RetainedMessage, retain_key, retained_name
from ..store.format.times import split_times
from ..store.message import DEFAULT_PRIORITY, Message
from .admin.temporaries import TemporaryDestinations
from .config.checks import check_name
from .consumer.consumer import Consumer
from .consumer.options import ConsumerOptions, consumer_options
from .core.confirmer import Confirmer
from .core.destinations.destination_state import NamedDestinationState
from .core.lanes.non_persistent_lane_state import NonPersistentLaneState
from .core.monitor import Monitor
from .engine.facade_parts import TopicParts
from .engine.statistics import TopicStatistics, statistics_of_topic
from .producer.batching import Batch
from .producer.sender import PUBLIC as SENDER_PUBLIC
from .producer.sender import Sender
from .temporary import Temporary
from .topics.reader import TopicReader
from .topics.state.fan_out import FanOut
from .topics.state.topic_state import TopicState
from .topics.subscriptions.cursors import Edge, Landing, Moment, SeekTarget, parse_target
from .topics.subscriptions.subscription_admin import SubscriptionAdmin
from .topics.topic_registry import TopicRegistry

PUBLIC: Final = (
    *SENDER_PUBLIC,
    "delete",
    "reader",
    "statistics",
    "subscribe",
    "subscription",
    "subscriptions",
    "unsubscribe",
)
"""The names that `dir` of a topic shows."""


class TopicSubscription:
    """A durable subscription, made by `Topic.subscription`. Thread-safe."""

    def __init__(self, topics: TopicRegistry, admin: SubscriptionAdmin, topic: TopicState, name: str) -> None:
        self._topics = topics
        self._admin = admin
        self._topic = topic
        self.name = name

    def seek(
        self,
        to: Edge | None = None,
        *,
        sequence: int | None = None,
        time: Moment | float | None = None,
        priority: int = DEFAULT_PRIORITY,
    ) -> Landing:
        """Move the cursor, back or forward. Messages from there on are delivered, even again, and none before.

        It can go back as far as messages exist: those that the policy retains, and those that some durable subscription
        has not acknowledged. The returned Landing says how far that was. Attempts begin anew.

        It writes one record to the journal, so a crash leaves it done or not done. Close the consumer first, so that no
        earlier delivery can acknowledge a message behind the cursor. A time costs a few dozen small reads, however deep
        it is.

        Args:
            to: "begin" is the first existing message, "end" the next one to be sent. Give this, sequence, or time.
            sequence: That of a delivery, among the messages of one `priority`. Other priorities stay where they are.
            time: A datetime with a time zone, or seconds since 1970: the first message sent then or later.
            priority: 0 to 9, that of the sequence.

        Raises SubscriptionInUse if there is a consumer, SettingsError if there is no such subscription,
        TransactionError, StoreFull, StoreFailed, Closed.
        """
        target = parse_target(to, sequence, time, priority)
        with self._topics.held_open(self._topic) as self._topic:
            return self._admin.seek(self._topic, self.name, target)

    def __repr__(self) -> str:
        return f"<TopicSubscription {self.name!r} of {self._topic.name!r}>"


class Topic(Sender):
    """A topic, made by `Forebay.topic`. Thread-safe. Holding it costs next to nothing, and making it again nothing.

    A message is stored once, however many subscriptions get it, until each of them has acknowledged it. A message
    without a subscription is not stored at all, but has an id like every other. A non-persistent message goes to the
    subscriptions that have a consumer when it is sent: each gets its own, in RAM and, if it is slow, in tmp-storage.

    `send(..., retain=True)` sends a message that is also the topic's retained message from then on, and replaces the
    previous one. Each later subscription gets it first, with `Delivery.retained`. With the name of a header, `send(...,
    retain="symbol")`, it replaces the one with the same value of that header: a topic retains one message for each
    value, and gives them in the order in which they were sent. An empty body is sent, and leaves no retained message.

    Retained messages are in the journal and in RAM, and count as properties, see `Properties` (PropertiesFull: nothing
    was sent). A send with retain is a commit of its own, so it writes two records. SettingsError with a delay or a
    transaction, and if the header is missing, too long, or not a str, bytes, number or bool.
    """

    __slots__ = ("_parts",)

    def __init__(self, parts: TopicParts, topic: TopicState, confirmer: Confirmer | None = None) -> None:
        super().__init__(parts.sender_parts, topic, confirmer)
        self._parts = parts

    @property
    def _topic(self) -> TopicState:
        """The topic that this object is bound to, with its exact type."""
        assert isinstance(self._destination, TopicState)
        return self._destination

    @property
    def monitor(self) -> Monitor:
        """The monitor of the store that the topic belongs to."""
        return self._parts.monitor

    def subscribe(
        self,
        *,
        durable: str | None = None,
        shared: bool = False,
        selector: str | None = None,
        prefetch: int | None = None,
        exclusive: bool = False,
        priority: int = 0,
        on_ready: Callable[[], None] | None = None,
        on_slow: Callable[[Consumer], None] | None = None,
        ack_deadline_seconds: float | None = None,
    ) -> Consumer:
        """Return a consumer of messages that are sent from now on.

        Args:
            durable: Name of a subscription that continues without its consumer, and over restarts, until `unsubscribe`.
                Subscribing again finds the messages that came meanwhile. It keeps its selector. None: the subscription
                ends with its consumer, a close or a crash.
            shared: True: the durable subscription may have several consumers, if all of them say so. They compete for
                its messages as consumers of a queue do, and get messages that another one gives back. False: it has
                one at a time.
            selector: Which messages it gets, as a JMS selector; None: all.
            prefetch: As in Queue.subscribe, for the consumers of one subscription; so are the arguments that follow.
            exclusive: As in Queue.subscribe.
            priority: As in Queue.subscribe.
            on_ready: As in Queue.subscribe.
            on_slow: As in Queue.subscribe.
            ack_deadline_seconds: As in Queue.subscribe.

        Raises SubscriptionInUse, SelectorError, SettingsError (another selector than it was made with, or shared
        without a name; nothing has changed), StoreFull, Closed.
        """
        options = consumer_options(
            self._parts.policies.of(self._destination.name),
            selector=selector,
            prefetch=prefetch,
            exclusive=exclusive,
            priority=priority,
            on_ready=on_ready,
            on_slow=on_slow,
            ack_deadline_seconds=ack_deadline_seconds,
        )
        return self._subscribe(durable, shared, options)

    def _subscribe(self, durable: object, shared: object, options: ConsumerOptions) -> Consumer:
        name = check_name(durable, "a durable subscription") if durable is not None else None
        if not isinstance(shared, bool):
            raise ArgumentError(f"shared must be True or False, not {shared!r}")
        if shared and name is None:
            raise SettingsError("a shared subscription needs a name, by which its consumers find it: give durable too")
        try:
            return self._parts.topic_consumers.subscribe(self._topic, name, options, is_shared=shared)
        except Closed as refused:
            with self._in_reopened(refused):
                return self._parts.topic_consumers.subscribe(self._topic, name, options, is_shared=shared)

    def _send_retained(self, message: Message, retain: bool | str, transaction: object, timeout: object) -> str:
        """Send a message that the topic retains for new subscriptions; return its id.

        SettingsError with a delay or a transaction.
        """
        if transaction is not None:
            raise SettingsError("a message with retain is a transaction of its own: send it without transaction")
        if message.delay != 0.0:
            raise SettingsError("a message with retain can't have a delay: send it when it is due")
        batch = self._batch_of(message, None, self._deadline(timeout))
        key = retain_key(retain, batch.contents.properties[0]) if isinstance(retain, str) else ""
        try:
            return self._send_and_retain(batch, key)
        except StoreFull as full:
            if message.body or full.limit != "memory_limit":
                raise
        # An empty message deletes the retained one, which must not fail for want of memory for a transaction. So the
        # deletion is a record of its own. After a crash between deletion and send, the caller repeats both.
        if not self._make_pipeline().is_known(batch):
            self._parts.retained_messages.delete(retained_name(self._topic.number, key))
        return self._send_batch(batch)

    def _send_and_retain(self, batch: Batch, key: str) -> str:
        """Send a message and retain it. One commit covers both, so a crash leaves both or neither."""
        with self._sender_parts.transactions.begin() as own:
            timestamp = self._sender_parts.clock_ms()
            own_id = self._send_batch(batch.within(own))
            if own.sent:  # it was not sent before, and not given up for want of room
                properties, body = batch.contents.properties[0], batch.contents.bodies[0]
                if batch.own_ids[0] is None:
                    times, properties = split_times(properties)
                    properties = times + encode_properties(None, own_id) + properties
                assert isinstance(batch.priority, int)
                retained = RetainedMessage(timestamp, batch.priority, properties, body)
                own.retain(retained_name(self._topic.number, key), retained)
        return own_id

    def _held_reopened(self) -> AbstractContextManager[TopicState]:
        """Keep the topic open; make it anew if it was deleted as inactive. Requires: no lock."""
        return self._parts.topics.held_reopened(self._topic, self._parts.confirmer)

    def _open_non_persistent(
        self, destination: NamedDestinationState, priority: int
    ) -> NonPersistentLaneState | FanOut:
        """Return the fan-out for non-persistent messages of a priority, made if needed. Requires: no lock."""
        assert isinstance(destination, TopicState)
        return destination.fan_outs.get(priority) or self._sender_parts.fan_out_opener.ensure(destination, priority)

    @property
    def current(self) -> TopicState:
        """The open topic of this name, even one that was made after this one was deleted as inactive.

        Requires: no lock. StoreFull: memory has no room to open it.
        """
        if self._destination.is_reopenable:
            self._bind(self._parts.topics.current(self._topic))
        return self._topic

    @property
    def for_report(self) -> TopicState:
        """The topic of this name for a report. A closed one stays closed. Requires: the lock."""
        return self._parts.topics.for_report(self._topic)

    def for_threads(self) -> Topic:
        """Return the same topic for worker threads, in which calls wait. forebay.aio calls it."""
        return Topic(self._parts, self.current)

    def unsubscribe(self, durable: str) -> None:
        """End a durable subscription.

        Messages that only it had not acknowledged are deleted, which frees their data logs.

        SettingsError: there is none of that name. SubscriptionInUse: it has a consumer.
        """
        self._parts.subscription_admin.unsubscribe(self.current, check_name(durable, "a durable subscription"))

    def subscription(self, name: str) -> TopicSubscription:
        """Return a handle of a durable subscription, to move its cursor. Only `seek` checks that there is one.

        SettingsError: no subscription can have that name. StoreFull: memory has no room to open the topic again.
        """
        checked = check_name(name, "a durable subscription")
        return TopicSubscription(self._parts.topics, self._parts.subscription_admin, self.current, checked)

    def reader(
        self,
        from_: Edge | None = None,
        *,
        sequence: int | None = None,
        time: Moment | float | None = None,
        priority: int = DEFAULT_PRIORITY,
        selector: str | None = None,
    ) -> TopicReader:
        """Return a reader of existing messages from a place on, retained or pending, and then of new ones.

        Any number of readers may be open, each with the memory of a subscription. They are not on disk, and
        `subscriber_max_messages` does not apply to them.

        Args:
            from_: "begin" or "end". Give this, sequence, or time.
            sequence: As in TopicSubscription.seek, with the other priorities at the end.
            time: As in TopicSubscription.seek.
            priority: As in TopicSubscription.seek.
            selector: Which messages it reads, as a JMS selector; None: all.

        Raises ArgumentError, SettingsError, SelectorError, StoreFull (memory), StoreFailed, Closed.
        """
        target = parse_target(from_, sequence, time, priority, "from_")
        return TopicReader(self.read_from(target, selector, None))

    def read_from(self, target: SeekTarget, selector: str | None, on_ready: Callable[[], None] | None) -> Consumer:
        """Return the consumer of a reader, from which an event loop makes its own reader. As `reader`."""
        policy = self._parts.policies.of(self._destination.name)
        options = consumer_options(policy, selector=selector, prefetch=0, on_ready=on_ready, ack_deadline_seconds=0)
        with self._parts.topics.held_open(self.current) as topic:
            return self._parts.topic_consumers.read(topic, target, options)

    def delete(self) -> None:
        """Delete the topic with all its subscriptions and messages; its consumers are closed.

        This settles messages in flight. This object sends and subscribes no more (Closed); the name begins anew with
        `Forebay.topic`. It writes one record to the journal; O(blocks of the index). A second call does nothing.
        StoreFull: nothing has changed. StoreFailed, Closed.
        """
        with self._parts.topics.held_open(self._topic, is_to_go=True) as topic:
            self._parts.topic_admin.delete(topic)
        self._bind(topic)  # bind it: see Queue.delete

    def subscriptions(self) -> list[str]:
        """Return the names of the durable subscriptions, sorted."""
        with self._parts.monitor.lock:
            return self.for_report.durable_names

    def statistics(self) -> TopicStatistics:
        """Return a snapshot, with the depth of each durable subscription. O(subscriptions), no disk."""
        with self._parts.monitor.lock:
            topic = self.for_report
        return statistics_of_topic(self._parts.monitor, topic)

    def __dir__(self) -> list[str]:
        """Return the public names; the others are for the engine."""
        return list(PUBLIC)


class TopicPattern(Topic):
    """A pattern of topics, made by `Forebay.topic` for a name with "*" or ">".

    It has consumers; nothing can be sent to it.

    "*" stands for any one word between dots. ">" as the last word stands for the rest, which may be empty.

    A consumer gets messages that are sent from now on to all topics that match, including later topics.
    `Delivery.destination` names the topic. Messages of one topic come in order, the highest priority of all topics
    first, and topics take turns within a priority. Its prefetch and ack deadline are for all topics together. Temporary
    topics are not included. The subscription ends with its close. A deleted topic leaves it, with its messages. A take
    costs O(topics that match), and each topic is charged as a subscription. `subscribe` raises SettingsError with
    durable or shared.
    """

    __slots__ = ()

    def __init__(self, parts: TopicParts, pattern: str, confirmer: Confirmer | None = None) -> None:
        Sender.__init__(self, parts.sender_parts, parts.patterns.make_state(pattern), confirmer)
        self._parts = parts

    def _subscribe(self, durable: object, shared: object, options: ConsumerOptions) -> Consumer:
        if durable is not None or shared:
            raise self._refusal("a durable subscription is of one topic: subscribe to each with that name")
        return self._parts.topic_consumers.subscribe_pattern(self._destination.name, options)

    def _open_non_persistent(
        self, destination: NamedDestinationState, priority: int
    ) -> NonPersistentLaneState | FanOut:
        """Refuse with SettingsError, because nothing can be sent to a pattern."""
        return self._sender_parts.lanes.create_non_persistent(destination, priority)

    @property
    def _topic(self) -> TopicState:
        """Refuse with SettingsError whatever needs one topic."""
        raise self._refusal("name one of its topics")

    def _refusal(self, remedy: str) -> SettingsError:
        return SettingsError(f"{self._destination.name!r} is a pattern: {remedy}")


class TemporaryTopic(Topic, Temporary):
    """A temporary topic, made by `Forebay.temporary_topic`. A context manager, which deletes the topic at its end.

    While it exists, others reach it by its `name` with `Forebay.topic`.
    """

    __slots__ = ()

    @property
    def _temporaries(self) -> TemporaryDestinations:
        """The owner of temporary topics."""
        return self._parts.temporaries

    def __dir__(self) -> list[str]:
        """Return the public names; the others are for the engine."""
        return [*PUBLIC, "close"]
