"""Topic: sends each message to all who subscribed before it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final

from ..store.errors import ArgumentError, Closed, SettingsError, StoreFull
from ..store.format.properties import encode_properties
from ..store.format.retained import Retained, retain_key, retained_name
from ..store.format.times import split_times
from ..store.message import DEFAULT_PRIORITY, Message
from .admin.temporaries import Temporaries
from .config.checks import check_name
from .consumer.consumer import Consumer
from .consumer.options import consumer_options
from .core.confirmer import Confirmer
from .core.model import DestinationState
from .core.monitor import Monitor
from .engine.doors import TopicParts
from .engine.statistics import TopicStatistics, statistics_of_topic
from .producer.send_pipeline import Batch
from .producer.sender import PUBLIC as SENDER_PUBLIC
from .producer.sender import Sender
from .temporary import Temporary
from .topics.cursors import Edge, Landing, Moment, Target, parse_target
from .topics.reader import TopicReader
from .topics.registry import Topics
from .topics.state import TopicState
from .topics.subscription_admin import SubscriptionAdmin

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
"""What a topic has for users."""


class TopicSubscription:
    """Made by `Topic.subscription`. Thread-safe."""

    def __init__(self, topics: Topics, admin: SubscriptionAdmin, topic: TopicState, name: str) -> None:
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
        """Move the cursor, back or forward. What exists from there on is delivered, again too, and nothing before it.

        Back it goes as far as messages exist: those that the policy retains, and those that some durable subscription
        has not acknowledged. The Landing that it returns says how far that was. Attempts begin anew.

        It is one record of the journal: a crash leaves it done, or not done. Close the consumer first: so no delivery
        of before can acknowledge anything behind the cursor. A time costs a few dozen small reads, however deep it
        lies.

        Args:
            to: "begin" is the first message that exists, "end" what is sent next. Give this, sequence, or time.
            sequence: That of a delivery, among the messages of one `priority`. Other priorities stay where they are.
            time: A datetime with a time zone, or seconds since 1970: the first message sent then or later.
            priority: 0 to 9, which the sequence is of.

        Raises SubscriptionInUse while there is a consumer, SettingsError where there is no such subscription,
        TransactionError, StoreFull, StoreFailed, Closed.
        """
        target = parse_target(to, sequence, time, priority)
        with self._topics.held_open(self._topic) as self._topic:
            return self._admin.seek(self._topic, self.name, target)

    def __repr__(self) -> str:
        return f"<TopicSubscription {self.name!r} of {self._topic.name!r}>"


class Topic(Sender):
    """Made by `Forebay.topic`. Thread-safe. Costs next to nothing to hold and nothing to make again.

    A message is stored once, however many subscriptions get it, and until each of them has acknowledged it. A message
    that has no subscription is not stored at all; it has an id, like every other. A non-persistent message is for the
    subscriptions that have a consumer when it is sent: each gets its own, in RAM first and in tmp-storage when it is
    slow.

    `send(..., retain=True)` sends a message that is also the topic's retained message from then on, in the place of the
    one before. Each subscription made later is given it first, with `Delivery.retained`. With the name of a header,
    `send(..., retain="symbol")`, it takes the place of the one with the same value of that header: a topic retains one
    for each value, and gives them in the order in which they were sent. An empty body is sent, and leaves none.

    Retained messages are in the journal and in RAM, and count as properties, see `Properties` (PropertiesFull: nothing
    was sent). A send with retain is a commit of its own, so two records. SettingsError with a delay or a transaction,
    and where the header is not there, or no str, bytes, number or bool, or too long.
    """

    __slots__ = ("parts", "_topic")

    def __init__(self, parts: TopicParts, topic: TopicState, confirmer: Confirmer | None = None) -> None:
        super().__init__(parts.producers, topic, confirmer)
        self.parts = parts
        self._topic = topic

    @property
    def monitor(self) -> Monitor:
        """Return the monitor of the store that the topic belongs to."""
        return self.parts.monitor

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
        """Return a consumer of what is sent from now on.

        Args:
            durable: Name of a subscription that goes on without its consumer, and over restarts, until `unsubscribe`.
                Subscribing again finds what came meanwhile. It keeps its selector. None: the subscription ends with its
                consumer, a close or a crash.
            shared: True: the durable subscription may have several consumers, all of which say so. They compete for its
                messages as consumers of a queue do, and what one gives back the others get. False: it has one at a
                time.
            selector: Which messages it gets, in the words of JMS; None: all.
            prefetch: As of Queue.subscribe, among the consumers of one subscription; so are the arguments that follow.
            exclusive: As of Queue.subscribe.
            priority: As of Queue.subscribe.
            on_ready: As of Queue.subscribe.
            on_slow: As of Queue.subscribe.
            ack_deadline_seconds: As of Queue.subscribe.

        Raises SubscriptionInUse, SelectorError, SettingsError (another selector than it was made with, shared without a
        name; nothing was changed), StoreFull, Closed.
        """
        options = consumer_options(
            self.parts.policies.of(self._destination.name),
            selector=selector,
            prefetch=prefetch,
            exclusive=exclusive,
            priority=priority,
            on_ready=on_ready,
            on_slow=on_slow,
            ack_deadline_seconds=ack_deadline_seconds,
        )
        name = check_name(durable, "a durable subscription") if durable is not None else None
        if type(shared) is not bool:
            raise ArgumentError(f"shared must be True or False, not {shared!r}")
        if shared and name is None:
            raise SettingsError("a shared subscription needs a name, by which its consumers find it: give durable too")
        try:
            return self.parts.topic_consumers.subscribe(self._topic, name, options, is_shared=shared)
        except Closed as refused:
            with self._anew(refused):
                return self.parts.topic_consumers.subscribe(self._topic, name, options, is_shared=shared)

    def _send_retained(self, message: Message, retain: bool | str, transaction: object, timeout: object) -> str:
        """Send a message that is kept for new subscriptions; return its id.

        SettingsError with a delay or a transaction.
        """
        if transaction is not None:
            raise SettingsError("a message with retain is a transaction of its own: send it without transaction")
        if message.delay != 0.0:
            raise SettingsError("a message with retain can't have a delay: send it when it is due")
        batch = self._batch_of(message, None, self._deadline(timeout))
        key = retain_key(retain, batch.contents[0][0]) if isinstance(retain, str) else ""
        try:
            return self._send_and_retain(batch, key)
        except StoreFull as full:
            if message.body or full.limit != "memory_limit":
                raise
        # What deletes must not lack the memory for a transaction. Between the two a crash leaves what a caller repeats.
        if not self._pipeline.is_known(batch):
            self.parts.retained.delete(retained_name(self._topic.number, key))
        return self._send_batch(batch)

    def _send_and_retain(self, batch: Batch, key: str) -> str:
        """Send a message and keep it. One commit is for both, so a crash leaves it sent and kept, or neither."""
        with self.producers.transactions.begin() as own:
            timestamp = self.producers.clock_ms()
            own_id = self._send_batch(batch.within(own))
            if own.sent:  # it was not sent before, and not given up for want of room
                properties, body = batch.contents[0]
                if batch.own_ids[0] is None:
                    times, properties = split_times(properties)
                    properties = times + encode_properties(None, own_id) + properties
                assert isinstance(batch.priority, int)
                retained = Retained(timestamp, batch.priority, properties, body)
                own.retain(retained_name(self._topic.number, key), retained)
        return own_id

    def _held_reopened(self) -> AbstractContextManager[DestinationState]:
        """Keep the topic open, which is made anew if it was deleted for want of use. Requires: no lock."""
        return self._while_held()

    @contextmanager
    def _while_held(self) -> Iterator[DestinationState]:
        with self.parts.topics.held_reopened(self._topic) as self._topic:
            yield self._topic

    @property
    def current(self) -> TopicState:
        """Return the open topic of this name: also one that was made after this one was deleted for want of use.

        Requires: no lock. StoreFull: memory has no room to open it.
        """
        if self._topic.is_reopenable:
            self._topic = self.parts.topics.current(self._topic)
            self._bind(self._topic)
        return self._topic

    @property
    def for_report(self) -> TopicState:
        """Return the topic of this name for a report. A closed one stays closed. Requires: the lock."""
        return self.parts.topics.for_report(self._topic)

    def unsubscribe(self, durable: str) -> None:
        """End a durable subscription. What it alone had not acknowledged is gone, and its data logs are freed.

        SettingsError where there is none of that name, SubscriptionInUse while it has a consumer.
        """
        self.parts.subscription_admin.unsubscribe(self.current, check_name(durable, "a durable subscription"))

    def subscription(self, name: str) -> TopicSubscription:
        """Return a handle of a durable subscription, to move its cursor. Costs nothing; nothing is looked up."""
        checked = check_name(name, "a durable subscription")
        return TopicSubscription(self.parts.topics, self.parts.subscription_admin, self.current, checked)

    def reader(
        self,
        from_: Edge | None = None,
        *,
        sequence: int | None = None,
        time: Moment | float | None = None,
        priority: int = DEFAULT_PRIORITY,
        selector: str | None = None,
    ) -> TopicReader:
        """Return a reader of what exists from a place on, retained or pending, and then of what is sent.

        Any number of readers may be open, each with the memory of a subscription. Nothing of them is on disk, and
        `subscriber_max_messages` is not for them.

        Args:
            from_: "begin" or "end". Give this, sequence, or time.
            sequence: As of TopicSubscription.seek, with the other priorities at the end.
            time: As of TopicSubscription.seek.
            priority: As of TopicSubscription.seek.
            selector: For those messages alone that it matches; None: all.

        Raises ArgumentError, SettingsError, SelectorError, StoreFull (memory), StoreFailed, Closed.
        """
        target = parse_target(from_, sequence, time, priority, "from_")
        return TopicReader(self.read_from(target, selector, None))

    def read_from(self, target: Target, selector: str | None, on_ready: Callable[[], None] | None) -> Consumer:
        """Return the consumer of a reader, of which an event loop makes a reader of its own. As `reader`."""
        options = consumer_options(
            self.parts.policies.of(self._destination.name),
            selector=selector,
            prefetch=0,
            exclusive=False,
            priority=0,
            on_ready=on_ready,
            on_slow=None,
            ack_deadline_seconds=0,
        )
        with self.parts.topics.held_open(self.current) as topic:
            return self.parts.topic_consumers.read(topic, target, options)

    def delete(self) -> None:
        """Delete the topic with its subscriptions, durable ones too, and what they wait for; its consumers are closed.

        What is in flight is settled by that. This object sends and subscribes
        no more (Closed); the name begins anew with `Forebay.topic`. One record
        in the journal; O(blocks of the index). Twice is once. StoreFull: it is
        as it was. StoreFailed, Closed.
        """
        with self.parts.topics.held_open(self._topic, is_to_go=True) as topic:
            self.parts.topics.delete(topic)
        self._topic = topic
        self._bind(topic)  # its own: see Queue.delete

    def subscriptions(self) -> list[str]:
        """Return the names of the durable subscriptions, sorted."""
        with self.parts.monitor.lock:
            return self.for_report.durable

    def statistics(self) -> TopicStatistics:
        """Return a snapshot, with the depth of each durable subscription. O(subscriptions), no disk."""
        with self.parts.monitor.lock:
            topic = self.for_report
        return statistics_of_topic(self.parts.monitor, topic)

    def __dir__(self) -> list[str]:
        """Return what is public; the rest is for the engine."""
        return list(PUBLIC)


class TopicPattern(Topic):
    """Made by `Forebay.topic` for a name with "*" or ">". It has consumers, and nothing can be sent to it.

    "*" stands for any one word between dots, and ">" as the last word for the rest, which may be nothing.
    """

    __slots__ = ()

    def __init__(self, parts: TopicParts, pattern: str, confirmer: Confirmer | None = None) -> None:
        Sender.__init__(self, parts.producers, parts.patterns.state(pattern), confirmer)
        self.parts = parts

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
        """Return a consumer of what is sent from now on to all topics that match, also to those made later.

        `Delivery.destination` names the topic. Messages of one topic come in order, the highest priority of all first,
        and topics of one priority take turns. Temporary topics are not among them. The subscription ends with its
        close. A topic that is deleted leaves it, with what it held of that topic. A take costs O(topics that match),
        and each topic is charged as a subscription.

        Args:
            durable: Must be None: a durable subscription is of one topic.
            shared: Must be False, likewise.
            selector: As of Topic.subscribe.
            prefetch: As of Topic.subscribe, for all topics together.
            exclusive: As of Topic.subscribe.
            priority: As of Topic.subscribe.
            on_ready: As of Topic.subscribe.
            on_slow: As of Topic.subscribe.
            ack_deadline_seconds: As of Topic.subscribe, for all topics together.

        Raises SettingsError with durable or shared; SelectorError, StoreFull, Closed.
        """
        if durable is not None or shared:
            raise self._refusal("a durable subscription is of one topic: subscribe to each with that name")
        options = consumer_options(
            self.parts.policies.of(self._destination.name),
            selector=selector,
            prefetch=prefetch,
            exclusive=exclusive,
            priority=priority,
            on_ready=on_ready,
            on_slow=on_slow,
            ack_deadline_seconds=ack_deadline_seconds,
        )
        return self.parts.topic_consumers.subscribe_pattern(self._destination.name, options)

    def delete(self) -> None:
        """Refuse, as whatever is for one topic. SettingsError."""
        raise self._refusal("name one of its topics")

    @property
    def current(self) -> TopicState:
        """Refuse whatever is for one topic. SettingsError."""
        raise self._refusal("name one of its topics")

    @property
    def for_report(self) -> TopicState:
        """Refuse whatever is told of one topic. SettingsError."""
        raise self._refusal("name one of its topics")

    def _refusal(self, remedy: str) -> SettingsError:
        return SettingsError(f"{self._destination.name!r} is a pattern: {remedy}")


class TemporaryTopic(Topic, Temporary):
    """Made by `Forebay.temporary_topic`. A context manager: the topic is gone at the end of its block.

    Others reach it by its `name`, with `Forebay.topic`, as long as it is there.
    """

    __slots__ = ()

    @property
    def _temporaries(self) -> Temporaries:
        """Return what makes and deletes temporary topics."""
        return self.parts.temporaries

    def __dir__(self) -> list[str]:
        """Return what is public; the rest is for the engine."""
        return [*PUBLIC, "close"]
