"""Delivery: a message that was handed out; and what it knows of its consumer and of its lane.

A message that was handed out is in flight: a consumer holds it as a Delivery until it is settled. A Delivery knows its
AbstractConsumer and its DeliveryLane, and a DeliveryLane has the deliveries of its lane. So the three classes share a
module. Lists, queues and the full classes of lanes and consumers are above this module. The state lock guards all of
it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, ClassVar, Final

from ....cache.messages.message_memory import MessageMemory
from ....store.errors import ForebayError, StoreFailed
from ....store.format.message_properties import decode_headers, group_of, message_id_of
from ....store.format.record import RecordDamaged
from ....store.format.state_record import CountedRun
from ....store.format.times import times_of
from ....store.index.delivery_counts import DeliveryCountTable
from ....store.index.pending_lane import PendingLane
from ....store.message import HeaderValue
from ....store.numbering import BLOCK_MESSAGES
from ....store.stored_message import StoredMessage
from ....store.structures.sequence_set import SequenceSet
from ...config.redelivery_delays import REJECTED
from .activity import Activity
from .consumer_stage import ConsumerStage
from .contracts import AckTransaction, AnyBackingStore

PUBLIC: Final = (
    "ack",
    "attempts",
    "body",
    "destination",
    "expires_at",
    "extend",
    "group",
    "headers",
    "id",
    "nack",
    "persistent",
    "priority",
    "reject",
    "release",
    "retained",
    "sequence",
    "timestamp",
)
"""Names that `dir` of a delivery shows."""
_LATE: Final = -1
"""The `number` of a delivery that was not settled before its deadline and has gone back."""


class AbstractConsumer(ABC):
    """A consumer as its deliveries, its selector group and its distribution know it, without what it takes from.

    CoreConsumer, in destination.py, adds what it takes from. Consumer, in dispatch/consumer, implements both. The state
    lock guards it.
    """

    __slots__ = (
        "ack_deadline_seconds",
        "activity",
        "delivered",
        "in_flight",
        "is_exclusive",
        "is_polling",
        "prefetch_limit",
        "priority",
        "stage",
    )

    stage: ConsumerStage
    """Whether it takes, is held up, drains or is closed."""
    activity: Activity
    priority: int
    """Consumers of higher priority are served first."""
    prefetch_limit: int
    """Most unsettled deliveries it may hold; 0: only the size of a take limits it."""
    in_flight: int
    """Number of deliveries that are not settled yet. Only the DispatchArea changes it."""
    delivered: int
    """Number of deliveries so far; each delivery keeps its number. Only the DispatchArea changes it."""
    is_exclusive: bool
    """Whether it gets all messages, or waits to take over."""
    ack_deadline_seconds: float | None
    """A delivery that is not settled within this time comes back. None: there is no limit. Read-only for callers."""
    is_polling: bool
    """Whether it has no `on_ready`: it takes when it wants to, in a thread that may load what is missing."""

    # ------------------------------------------------------------------ settling
    # The type of `transaction` is Any, because Consumer takes a Transaction, and an AckTransaction is more general.

    @abstractmethod
    def ack(self, deliveries: Delivery | Sequence[Delivery], *, transaction: Any = None) -> None:
        """Settle deliveries as processed."""

    @abstractmethod
    def nack(self, deliveries: Delivery | Sequence[Delivery], delay: float = 0.0) -> None:
        """Give deliveries back as failed attempts."""

    @abstractmethod
    def release(self, deliveries: Delivery | Sequence[Delivery]) -> None:
        """Give deliveries back as not tried."""

    @abstractmethod
    def reject(
        self, deliveries: Delivery | Sequence[Delivery], reason: str = REJECTED, *, transaction: Any = None
    ) -> None:
        """Make deliveries dead letters."""

    @abstractmethod
    def extend(self, deliveries: Delivery | Sequence[Delivery], seconds: float) -> None:
        """Move the ack deadline of deliveries."""

    # ------------------------------------------------------------------ taking and waiting

    @property
    @abstractmethod
    def credit(self) -> int:
        """How many more messages its prefetch allows it to take; 0 or less: none. UNLIMITED: it has no prefetch.

        A queue that holds the consumer up, and short memory, count only in `allowance`.
        """

    @property
    @abstractmethod
    def demand(self) -> int:
        """How many messages may be kept for the consumer: its credit.

        A consumer with prefetch 0 wants one message while it waits, and none otherwise.
        """

    @abstractmethod
    def allowance(self, most: int) -> int:
        """Return how many of `most` messages it may take now, 0 or less: none. Requires: the lock."""

    @abstractmethod
    def become_ready(self, deferred: list[Callable[[], None]]) -> None:
        """Add its on_ready callback to `deferred` if its last take found nothing. Requires: the lock."""

    @property
    @abstractmethod
    def charge_bytes(self) -> int:
        """Its charge in RAM, without its selector group and lists."""

    @property
    @abstractmethod
    def is_waiting(self) -> bool:
        """Whether it waits for messages, or until it may hold more of them. Requires: the lock."""

    @abstractmethod
    def return_untried(self, deliveries: Sequence[Delivery]) -> None:
        """Give deliveries back as `release` does, and leave the callbacks that are due to `Monitor.run_deferred`."""

    @abstractmethod
    def resume_if_credit(self) -> None:
        """Go on if it waited for credit or memory and may take now. Requires: the lock."""

    def on_memory_freed(self) -> None:
        """Go on if it waited for memory and may take now. Called by DispatchArea.retry_waiters. Requires: the lock."""
        self.resume_if_credit()

    @abstractmethod
    def follow_destination(self) -> None:
        """Follow a change of the destination that it takes from. Requires: the lock.

        A pause, another distribution, an exclusive consumer or limits may have come or gone.
        """

    @abstractmethod
    def close_with_destination(self, held: Sequence[Delivery]) -> None:
        """Close the consumer, because its queue or the store ends, and have its on_ready called. Requires: the lock.

        held: its deliveries, highest priority first.
        """

    @abstractmethod
    def wake_outside(self) -> None:
        """Wake threads or tasks that wait for this consumer without the lock, because it drains or the lock is broken.

        Requires: the lock.
        """

    @abstractmethod
    def held_in_transactions(self) -> list[Delivery]:
        """Return its deliveries that open transactions hold. O(deliveries held). Requires: the lock."""

    @abstractmethod
    def disable_in_child(self) -> None:
        """Take and return nothing any more, because this is the copy in a forked child."""


class DeliveryLane(ABC):
    """A lane as its deliveries know it: pending messages, each of which is in exactly one state.

    LaneState adds how the messages get to consumers, and where they are outside the lists. The state lock guards it.

    state        recorded in         enters it by                    leaves it by
    unpublished  sequence >=         a send that is not durable yet  Publisher: it arrives
                 published_end
    free         no record           an arrival; giving back; the    a hand-out, an expiry, an operator
                                     end of a delay or transaction
    in flight    deliveries          DispatchArea: a hand-out;       DispatchArea.settle: ack, nack, release, close;
                                     unpark: a rollback              park: an ack in a transaction
    parked       parked              an ack in a transaction;        the transaction's outcome; the end of the delay
                                     DelayedRedelivery, if the
                                     index has no room
    delayed      pending_lane        Redelivery: a nack with a       DelayedRedelivery: the end of the delay
                                     delay
    dead         dead_letters        Redelivery: the last attempt    DeadLetterMover: to another queue, or away

    Within one hold of the lock, StagedAcks puts a parked delivery back in flight in order to settle it, and Rejections
    takes deliveries out of flight while it moves their messages.

    A free message is in lists and caches, or only on disk, behind the frontier of a list. A list may still have
    messages that are no longer free or pending; SelectorGroup.claim finds that out. A message that was sent with a
    delay is free too, but no list offers it before it is due: `pending_lane` has its time, and TimedLanes offers it.
    """

    __slots__ = (
        "pending_lane",
        "id_prefix",
        "memory",
        "backing_store",
        "syncs",
        "published_end",
        "first_sequence",
        "first_sent_bytes",
        "first_removed_bytes",
        "deliveries",
        "delivery_count_table",
        "delivery_counts",
        "dead_letters",
        "parked",
        "parked_for_delay",
        "acknowledged",
        "redelivered",
        "unreadable",
        "expired",
    )
    is_persistent: ClassVar[bool] = True
    delivery_mode: ClassVar[str] = "PERSISTENT"
    """The same mode as a selector spells it."""

    def __init__(
        self,
        pending_lane: PendingLane,
        id_prefix: str,
        memory: MessageMemory,
        backing_store: AnyBackingStore,
        delivery_count_table: DeliveryCountTable,
        *,
        syncs: bool,
    ) -> None:
        # The store's object for the same lane. It knows which sequences are pending, and an ack removes them there.
        self.pending_lane = pending_lane
        self.id_prefix = id_prefix
        # The memory that the messages are charged to.
        self.memory = memory
        # The store that reads and acknowledges the messages: MessageStore; Overflow for non-persistent messages; or
        # UnrecordedStore for a subscription without a name.
        self.backing_store = backing_store
        # Whether acks are durable before they are confirmed.
        self.syncs = syncs
        # Sequences below this may be dispatched. With sync "always" they are durable.
        self.published_end = pending_lane.next_sequence
        # The statistics count from these values of the store's lane.
        self.first_sequence = pending_lane.next_sequence
        self.first_sent_bytes, self.first_removed_bytes = pending_lane.total_sent_bytes, pending_lane.removed_bytes
        # Deliveries that are not settled, by sequence.
        self.deliveries: dict[int, Delivery] = {}
        # The delivery counts of all lanes.
        self.delivery_count_table = delivery_count_table
        # Delivery counts of messages that came back. None: no message of this lane ever came back.
        self.delivery_counts = delivery_count_table.find(pending_lane.number)
        # Sequences of messages that have had their last attempt. No consumer gets them, and they leave soon.
        self.dead_letters = SequenceSet()
        # Sequences of messages that no consumer gets for now: a transaction will decide about them, or they are delayed
        # and the index has no room for their delay.
        self.parked = SequenceSet()
        # How many of the parked messages wait for the end of a delay.
        self.parked_for_delay = 0
        self.acknowledged = 0
        self.redelivered = 0
        self.unreadable = 0
        self.expired = 0

    @property
    def priority(self) -> int:
        return self.pending_lane.priority

    def is_free(self, sequence: int) -> bool:
        """Return whether a published message can be handed out, unless it has expired. O(log runs)."""
        parked, dead_letters = self.parked, self.dead_letters
        if (
            sequence in self.deliveries
            or (parked.count and sequence in parked)
            or (dead_letters.count and sequence in dead_letters)
        ):
            return False
        return self.pending_lane.is_pending(sequence) and not self.pending_lane.is_delayed(sequence)

    def free_count(self, first: int, last: int) -> int:
        """Return how many messages of a published run are free. O(pending messages of the run)."""
        pending = self._pending_within(first, last)
        return sum(self.is_free(sequence) for begin, end in pending for sequence in range(begin, end + 1))

    def _pending_within(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Yield the parts of a run that are pending."""
        while (run := self.pending_lane.pending_run(first, BLOCK_MESSAGES)) is not None and run[0] <= last:
            yield run[0], min(run[1], last)
            first = run[1] + 1

    @property
    def free_messages(self) -> int:
        """Number of free messages, including those that are not due yet. O(1), plus the blocks with dead letters."""
        pending_lane = self.pending_lane
        unpublished = max(pending_lane.next_sequence - self.published_end, 0)
        held = len(self.deliveries) + self.parked.count + pending_lane.delayed_messages
        # A dead letter that an earlier process moved away is still pending until the next step.
        for first, last in self.dead_letters:
            held += sum(end - begin + 1 for begin, end in self._pending_within(first, last))
        return pending_lane.pending_messages - held - unpublished

    def _check(self) -> None:
        """Raise AssertionError if a message is in two states. O(messages that are not free)."""
        for runs in (self.parked, self.dead_letters):
            runs._check()
            for first, last in runs:
                assert not any(sequence in self.deliveries for sequence in range(first, last + 1))
        for first, last in self.dead_letters:
            assert not any(sequence in self.parked for sequence in range(first, last + 1))
        if self.pending_lane.pending_messages <= BLOCK_MESSAGES:
            assert self.free_count(0, self.published_end - 1) == self.free_messages

    @property
    def is_idle(self) -> bool:
        """Whether the lane is empty and no message can come back to it."""
        pending_lane = self.pending_lane
        has_messages = pending_lane.pending_messages or pending_lane.delayed_messages or self.deliveries
        return not (has_messages or self.dead_letters.count or self.parked.count)

    @property
    def enqueued(self) -> int:
        """Number of messages that came since the directory was opened."""
        return self.pending_lane.next_sequence - self.first_sequence

    @property
    def enqueued_bytes(self) -> int:
        """Content bytes of messages that came since the directory was opened."""
        return self.pending_lane.total_sent_bytes - self.first_sent_bytes

    @property
    def dequeued_bytes(self) -> int:
        """Content bytes of messages that left since the directory was opened, for any reason."""
        return self.pending_lane.removed_bytes - self.first_removed_bytes

    @property
    def in_flight_messages(self) -> int:
        """Number of messages that consumers hold, or that undecided transactions have acknowledged."""
        return len(self.deliveries) + self.parked.count - self.parked_for_delay

    @property
    def delayed_messages(self) -> int:
        """Number of messages that a nack, or the policy, has delayed."""
        return self.pending_lane.delayed_messages + self.parked_for_delay

    def park(self, delivery: Delivery) -> None:
        """Park a delivery for a transaction that will decide about it. Requires: it is in flight.

        For users it stays in flight.
        """
        del self.deliveries[delivery.sequence]
        self.parked.add(delivery.sequence, delivery.sequence)

    def unpark(self, delivery: Delivery) -> None:
        """Put a parked delivery back in flight, as if no transaction had touched it."""
        self.parked.remove(delivery.sequence, delivery.sequence)
        self.deliveries[delivery.sequence] = delivery

    def park_for_delay(self, first: int, last: int) -> None:
        """Park a delayed run for whose delay the index has no room."""
        self.parked.add(first, last)
        self.parked_for_delay += last - first + 1

    def unpark_delayed(self, first: int, last: int) -> None:
        """End what `park_for_delay` began, because the index has the delay now or the messages are gone."""
        self.parked.remove(first, last)
        self.parked_for_delay -= last - first + 1

    def trim_delivery_counts(self, first: int, last: int) -> None:
        """Forget the delivery counts of messages that are gone. Does nothing if `delivery_counts` is None."""
        self.delivery_count_table.trim(self.pending_lane, first, last)
        self.delivery_counts = self.delivery_count_table.find(self.pending_lane.number)

    @property
    @abstractmethod
    def destination_name(self) -> str:
        """The name of the destination that the messages were sent to."""

    @abstractmethod
    def is_retained(self, sequence: int) -> bool:
        """Return whether the topic retained this message and gave it to a new subscription."""

    @abstractmethod
    def read_one(self, sequence: int) -> StoredMessage:
        """Read one pending message into the caller's own memory. Requires: no lock."""

    @abstractmethod
    def peek(self, sequence: int) -> StoredMessage | None:
        """Return a message if RAM holds it; the copy in RAM may be the only one. Requires: the lock."""

    @abstractmethod
    def read_error(self, problem: str) -> StoreFailed:
        """Return the error for a message that can't be read."""


class Delivery:
    """A message that `take` handed out. Settle it once, with `ack`, `nack`, `release` or `reject`.

    The body is charged to the DispatchArea until the delivery is settled. If the bodies in flight already hold half of
    what the fixed parts and the index leave of the memory limit, the delivery is lazy: `body` reads the journal (or
    tmp-storage) on each access, into the caller's own memory. Quotas move that bound.
    """

    __slots__ = (
        "consumer",
        "lane",
        "sequence",
        "held_properties",
        "held_body",
        "held_timestamp",
        "attempts",
        "number",
        "held_group",
        "is_seen",
    )
    held_group: str | None
    """The group of a lazy delivery of a queue with groups. Other deliveries do not set this attribute."""
    is_seen: bool
    """True once the host reads body or headers, gets the delivery from an iteration, or begins a `with` block of it.

    Not set before.
    """

    def __init__(
        self,
        consumer: AbstractConsumer,
        lane: DeliveryLane,
        sequence: int,
        properties: bytes,
        body: bytes | None,
        timestamp: int,
        attempts: int,
        number: int,
    ) -> None:
        self.consumer = consumer
        self.lane = lane
        # Place among the messages of this priority in this destination.
        self.sequence = sequence
        self.held_properties = properties
        self.held_body = body
        self.held_timestamp = timestamp
        # 1 at the first delivery.
        self.attempts = attempts
        # Which delivery of its consumer this is, counted from 1.
        self.number = number

    @property
    def body(self) -> bytes:
        """The body. O(1); a lazy delivery reads the journal, and raises StoreFailed if that read fails."""
        self.is_seen = True
        if self.held_body is None:
            return self.read()[2] or b""
        return self.held_body

    @property
    def headers(self) -> dict[str, HeaderValue]:
        """The headers, as a new dict each time. O(bytes of the headers). StoreFailed if they can't be decoded."""
        self.is_seen = True
        properties = self.read()[1] if self.held_body is None else self.held_properties
        try:
            return decode_headers(properties) if properties else {}
        except RecordDamaged as damage:
            raise self.lane.read_error(str(damage)) from None

    @property
    def group(self) -> str | None:
        """The group of the message. O(1); a lazy delivery reads the journal."""
        properties = self.read()[1] if self.held_body is None else self.held_properties
        try:
            return group_of(properties)
        except RecordDamaged as damage:
            raise self.lane.read_error(str(damage)) from None

    @property
    def id(self) -> str:
        """The message id that send returned. O(1); a lazy delivery reads the journal."""
        properties = self.read()[1] if self.held_body is None else self.held_properties
        try:
            own = message_id_of(properties) if properties else None
        except RecordDamaged as damage:
            raise self.lane.read_error(str(damage)) from None
        return own if own is not None else f"{self.lane.id_prefix}{self.sequence}"

    @property
    def timestamp(self) -> int:
        """Time of the send, in ms since 1970 (UTC)."""
        return self.read()[3] if self.held_body is None else self.held_timestamp

    @property
    def expires_at(self) -> int | None:
        """Time from which the message is no longer handed out, in ms since 1970 (UTC). None: it does not expire."""
        properties = self.read()[1] if self.held_body is None else self.held_properties
        return times_of(properties).expires_at or None

    @property
    def priority(self) -> int:
        return self.lane.pending_lane.priority

    @property
    def persistent(self) -> bool:
        """Whether the message survives the end of the process. False: it was sent as non-persistent."""
        return self.lane.is_persistent

    @property
    def retained(self) -> bool:
        """Whether the topic retained this message and gave it to a new subscription. False: it was sent after the
        subscribe.
        """
        return self.lane.is_retained(self.sequence)

    @property
    def destination(self) -> str:
        return self.lane.destination_name

    def ack(self, transaction: AckTransaction | None = None) -> None:
        """Settle the message as processed.

        Once this returns, or the transaction commits, it is never delivered again.
        """
        self.consumer.ack(self, transaction=transaction)

    def nack(self, delay: float = 0.0) -> None:
        """Give the message back as a failed attempt. It returns to its place and is delivered again after delay
        seconds.
        """
        self.consumer.nack(self, delay=delay)

    def release(self) -> None:
        """Give the message back as not tried. It returns to its place at once, and no attempt counts."""
        self.consumer.release(self)

    def reject(self, reason: str = REJECTED, transaction: AckTransaction | None = None) -> None:
        """Make the message a dead letter now, or with the commit of the transaction. See Consumer.reject."""
        self.consumer.reject(self, reason, transaction=transaction)

    def extend(self, seconds: float) -> None:
        """Move the ack deadline of this delivery to so many seconds from now. See Consumer.extend."""
        self.consumer.extend(self, seconds)

    def __enter__(self) -> Delivery:
        """Settle the delivery at the end of the block: `ack`, or `nack` if the block raises.

        A delivery that the block settled itself, or that went back with its consumer, is left alone. An error of the
        ack is raised, AckTooLate included. If the block raises, its own error is raised instead.
        """
        self.is_seen = True
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if not is_in_flight(self) and not is_late(self):
            return
        if kind is None:
            self.ack()
        else:
            with suppress(ForebayError):
                self.nack()

    def read(self) -> tuple[int, bytes, bytes | None, int]:
        return self.lane.read_one(self.sequence)

    def __dir__(self) -> list[str]:
        """Return the public names; the others are for the library."""
        return list(PUBLIC)

    def __repr__(self) -> str:
        return f"<Delivery {self.lane.id_prefix}{self.sequence} attempt {self.attempts}>"


HeldCheck = Callable[[Sequence[Delivery]], None]
"""Raises what `ack` raises if one of these deliveries is not the caller's to settle. Requires: the lock."""

# Functions that the library calls on a Delivery. Hosts do not see them.


def mark_late(delivery: Delivery) -> None:
    """Mark a delivery as not settled before its deadline."""
    delivery.number = _LATE


def is_late(delivery: Delivery) -> bool:
    """Return whether a delivery was not settled before its deadline and has gone back."""
    return delivery.number == _LATE


def message_of(delivery: Delivery) -> StoredMessage:
    """Return the message of a delivery as it was handed out. A lazy one has no body, as in a list."""
    return delivery.sequence, delivery.held_properties, delivery.held_body, delivery.held_timestamp


def content_of(delivery: Delivery) -> StoredMessage:
    """Return the message of a delivery with its body; a lazy one reads it. StoreFailed. Requires: no lock."""
    return delivery.read() if delivery.held_body is None else message_of(delivery)


def is_lazy(delivery: Delivery) -> bool:
    """Return whether the body of a delivery is not in RAM."""
    return delivery.held_body is None


def content_bytes(delivery: Delivery) -> int:
    """Return the bytes of body and headers that a delivery holds in RAM; 0 for a lazy one."""
    return 0 if delivery.held_body is None else len(delivery.held_properties) + len(delivery.held_body)


def is_seen(delivery: Delivery) -> bool:
    """Return whether the host looked at the body or headers of a delivery, had it from an iteration, or began a `with`
    block of it.
    """
    return getattr(delivery, "is_seen", False)


def mark_seen(delivery: Delivery) -> None:
    """Mark a delivery as looked at by the host."""
    delivery.is_seen = True


def kept_group(delivery: Delivery) -> str | None:
    """Return the group that `keep_group` kept for a lazy delivery; None if it kept none."""
    return getattr(delivery, "held_group", None)


def keep_group(delivery: Delivery, group: str | None) -> None:
    """Keep the group of a lazy delivery, because its headers are not in RAM."""
    delivery.held_group = group


def is_in_flight(delivery: Delivery) -> bool:
    """Return whether no call and no transaction has settled a delivery yet. The lock need not be held."""
    return delivery.lane.deliveries.get(delivery.sequence) is delivery


def counted_runs(deliveries: Iterable[Delivery]) -> list[CountedRun]:
    """Return the attempts of deliveries in as few runs as possible. O(deliveries log deliveries)."""
    runs: list[CountedRun] = []
    for sequence, attempts in sorted((delivery.sequence, delivery.attempts) for delivery in deliveries):
        if runs and runs[-1].last == sequence - 1 and runs[-1].delivery_count == attempts:
            runs[-1] = runs[-1]._replace(last=sequence)
        else:
            runs.append(CountedRun(sequence, sequence, attempts))
    return runs
