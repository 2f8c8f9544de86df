"""Deliveries, and the lane they are in flight from: what was handed out and is to be settled.

A lane says of each pending message in which state it is; a delivery is what a
consumer has in hand of one that is in flight. The two point at each other, so
they are one module. Lists, queues and consumers are above: they hand out and
settle. The state lock guards all of it. Nothing here survives the process.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, ClassVar, Final

from ....cache.message_memory import MessageMemory
from ....store.errors import ForebayError, StoreFailed
from ....store.format.properties import decode_properties, group_of, message_id_of
from ....store.format.record import RecordDamaged
from ....store.format.state import CountedRun
from ....store.format.times import times_of
from ....store.index.delivery_counts import DeliveryCountTable
from ....store.index.pending_lane import PendingLane
from ....store.message import HeaderValue
from ....store.numbering import BLOCK_MESSAGES
from ....store.sequence_set import SequenceSet
from ....store.stored_message import StoredMessage
from ...config.redelivery_delays import REJECTED
from .contracts import BackingStore

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
"""What a delivery has for users."""
_LATE: Final = -1
"""The number of a delivery that was not settled before its deadline, and has gone back."""


class Settler(ABC):
    """A consumer, as far as its deliveries know it: what they ask it to do with them."""

    __slots__ = ("in_flight",)

    in_flight: int
    """Deliveries not settled yet."""

    @abstractmethod
    def ack(self, deliveries: Delivery | Sequence[Delivery], *, transaction: Any = None) -> None:
        """Settle deliveries that are done."""

    @abstractmethod
    def nack(self, deliveries: Delivery | Sequence[Delivery], delay: float = 0.0) -> None:
        """Settle deliveries that are not done."""

    @abstractmethod
    def release(self, deliveries: Delivery | Sequence[Delivery]) -> None:
        """Settle deliveries that were not tried."""

    @abstractmethod
    def reject(
        self, deliveries: Delivery | Sequence[Delivery], reason: str = REJECTED, *, transaction: Any = None
    ) -> None:
        """Settle deliveries that are dead letters."""

    @abstractmethod
    def extend(self, deliveries: Delivery | Sequence[Delivery], seconds: float) -> None:
        """Move the deadline of deliveries."""


class LaneMessages(ABC):
    """The pending messages of one lane by their states, those in flight among them. The state lock guards it.

    A pending message is in one of these states. Whoever moves it holds the state lock.

    state        said by             it comes to it by               it leaves it by
    unpublished  sequence >=         a send that is not durable yet  Publisher: it arrives
                 published
    free         none of the others  arriving; giving back; a        a hand-out, an expiry, an operator
                                     delay or transaction that ends
    in flight    in_flight           DispatchArea: a hand-out        DispatchArea.settle: ack, nack, release, close
    parked       parked              a transaction that acknowledges its outcome; the end of the delay
                                     it; DelayedRedelivery, where
                                     the index has no room
    put off      pending_lane        Redelivery: a nack with a       DelayedRedelivery: the end of the delay
                                     delay
    dead         dead_letters        Redelivery: the last attempt    DeadLetterMover: to another queue, or away

    A free message is in lists and caches, or behind the frontier of a list and only on disk. A list may also name
    what is not free, or gone: see ConsumerGroup.claim.
    """

    __slots__ = (
        "pending_lane",
        "id_prefix",
        "memory",
        "backing_store",
        "syncs",
        "published",
        "first_sequence",
        "first_bytes",
        "first_removed_bytes",
        "in_flight",
        "delivery_count_table",
        "delivery_counts",
        "dead_letters",
        "parked",
        "acknowledged",
        "redelivered",
        "unreadable",
        "expired",
    )
    is_persistent: ClassVar[bool] = True
    delivery_mode: ClassVar[str] = "PERSISTENT"
    """The same in the words of a selector."""

    def __init__(
        self,
        pending_lane: PendingLane,
        id_prefix: str,
        memory: MessageMemory,
        backing_store: BackingStore,
        delivery_count_table: DeliveryCountTable,
        *,
        syncs: bool,
    ) -> None:
        self.pending_lane = pending_lane
        self.id_prefix = id_prefix
        self.memory = memory
        """What its messages are charged to."""
        self.backing_store = backing_store
        """What has the messages of this lane that RAM has no place for; acks go there."""
        self.syncs = syncs
        """Acks are durable before they are confirmed."""
        self.published = pending_lane.next_sequence
        """Sequences below this may be dispatched; with sync "always" they are durable."""
        self.first_sequence = pending_lane.next_sequence
        self.first_bytes, self.first_removed_bytes = pending_lane.enqueued_bytes, pending_lane.removed_bytes
        """Where the statistics begin to count."""
        self.in_flight: dict[int, Delivery] = {}
        """By sequence: handed out, not yet settled."""
        self.delivery_count_table = delivery_count_table
        """The counts of all lanes."""
        self.delivery_counts = delivery_count_table.find(pending_lane.number)
        """How often messages that came back were delivered before; None: nothing of this lane ever came back."""
        self.dead_letters = SequenceSet()
        """Delivered as often as may be: nobody gets them, and they are about to leave."""
        self.parked = SequenceSet()
        """Sequences that nobody may have: transactions decide about them, or their delay finds no room in the index."""
        self.acknowledged = 0
        self.redelivered = 0
        self.unreadable = 0
        self.expired = 0

    @property
    def priority(self) -> int:
        return self.pending_lane.priority

    def is_free(self, sequence: int) -> bool:
        """Return whether a message that is published can be handed out, if it has not expired. O(log runs)."""
        parked, dead_letters = self.parked, self.dead_letters
        if (
            sequence in self.in_flight
            or (parked.count and sequence in parked)
            or (dead_letters.count and sequence in dead_letters)
        ):
            return False
        return self.pending_lane.is_pending(sequence) and not self.pending_lane.is_put_off(sequence)

    def free_count(self, first: int, last: int) -> int:
        """Return how many of a published run are free. O(what of it is pending)."""
        pending = self._pending_within(first, last)
        return sum(self.is_free(sequence) for begin, end in pending for sequence in range(begin, end + 1))

    def _pending_within(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Yield runs of what is pending in a run."""
        while (found := self.pending_lane.pending_run(first, BLOCK_MESSAGES)) is not None and found[0] <= last:
            yield found[0], min(found[1], last)
            first = found[1] + 1

    @property
    def free_messages(self) -> int:
        """How many are free, those that are not due yet among them. O(1), and the blocks with dead letters."""
        pending_lane = self.pending_lane
        unpublished = max(pending_lane.next_sequence - self.published, 0)
        held = len(self.in_flight) + self.parked.count + pending_lane.put_off_messages
        # What an earlier process moved away is still pending until the next step.
        for first, last in self.dead_letters:
            held += sum(end - begin + 1 for begin, end in self._pending_within(first, last))
        return pending_lane.pending_messages - held - unpublished

    def _check(self) -> None:
        """AssertionError where a message is in two states. O(messages that are held, or few)."""
        for runs in (self.parked, self.dead_letters):
            runs._check()
            for first, last in runs:
                assert not any(sequence in self.in_flight for sequence in range(first, last + 1))
        for first, last in self.dead_letters:
            assert not any(sequence in self.parked for sequence in range(first, last + 1))
        if self.pending_lane.pending_messages <= BLOCK_MESSAGES:
            assert self.free_count(0, self.published - 1) == self.free_messages

    @property
    def is_idle(self) -> bool:
        """Return whether it has nothing, and nothing comes back to it."""
        pending_lane = self.pending_lane
        has_messages = pending_lane.pending_messages or pending_lane.put_off_messages or self.in_flight
        return not (has_messages or self.dead_letters.count or self.parked.count)

    @property
    def enqueued(self) -> int:
        """Messages that came since the directory was opened."""
        return self.pending_lane.next_sequence - self.first_sequence

    @property
    def enqueued_bytes(self) -> int:
        """Content bytes of messages that came since the directory was opened."""
        return self.pending_lane.enqueued_bytes - self.first_bytes

    @property
    def dequeued_bytes(self) -> int:
        """Content bytes of messages that have left since then, whatever way."""
        return self.pending_lane.removed_bytes - self.first_removed_bytes

    def park(self, delivery: Delivery) -> None:
        """Take a delivery out of flight, for a transaction that decides about it. Requires: it is in flight."""
        del self.in_flight[delivery.sequence]
        self.parked.add(delivery.sequence, delivery.sequence)

    def unpark(self, delivery: Delivery) -> None:
        """Let a delivery be in flight again, as if no transaction had known it."""
        self.parked.remove(delivery.sequence, delivery.sequence)
        self.in_flight[delivery.sequence] = delivery

    def forget_attempts(self, first: int, last: int) -> None:
        """Forget the counted attempts of messages that are gone. Nothing to do where `delivery_counts` is None."""
        self.delivery_count_table.trim(self.pending_lane, first, last)
        self.delivery_counts = self.delivery_count_table.find(self.pending_lane.number)

    @property
    @abstractmethod
    def destination_name(self) -> str:
        """Return the name of the destination that the messages were sent to."""

    @abstractmethod
    def is_retained(self, sequence: int) -> bool:
        """Return whether the message is one that its topic retained and gave to a new subscription."""

    @abstractmethod
    def read_one(self, sequence: int) -> StoredMessage:
        """Read one pending message into the caller's own memory. Requires: the lock is not held."""

    @abstractmethod
    def peek(self, sequence: int) -> StoredMessage | None:
        """Return a message that may be nowhere but in RAM. Requires: the lock."""

    @abstractmethod
    def not_read(self, problem: str) -> StoreFailed:
        """Return the error for a message that can't be read."""


class Delivery:
    """What `take` returns. Settle it once, with `ack`, `nack`, `release` or `reject`.

    Its body is charged to the DispatchArea until then. When bodies handed out
    hold half the memory limit already, the delivery is lazy: `body` reads the
    journal (or tmp-storage) on access, into the caller's own memory.
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
    """The group of a lazy delivery that a GroupAssigner made; else not set."""
    is_seen: bool
    """Its body or headers were looked at, or it was handed out by iteration; else not set."""

    def __init__(
        self,
        consumer: Settler,
        lane: LaneMessages,
        sequence: int,
        properties: bytes,
        body: bytes | None,
        timestamp: int,
        attempts: int,
        number: int,
    ) -> None:
        self.consumer = consumer
        self.lane = lane
        self.sequence = sequence
        """Place in its lane, that is among the messages of this priority in this destination."""
        self.held_properties = properties
        self.held_body = body
        self.held_timestamp = timestamp
        self.attempts = attempts
        """1 at the first delivery."""
        self.number = number
        """Counts the deliveries of its consumer."""

    @property
    def body(self) -> bytes:
        """O(1); one read of the journal when the delivery is lazy. StoreFailed when that read fails."""
        self.is_seen = True
        if self.held_body is None:
            return self.read()[2] or b""
        return self.held_body

    @property
    def headers(self) -> dict[str, HeaderValue]:
        """A new dict each time; decoded now. O(bytes of the headers). StoreFailed when they make no sense."""
        self.is_seen = True
        properties = self.read()[1] if self.held_body is None else self.held_properties
        try:
            return decode_properties(properties)[0] if properties else {}
        except RecordDamaged as damage:
            raise self.lane.not_read(str(damage)) from None

    @property
    def group(self) -> str | None:
        """The group it was sent with. O(1); one read of the journal when the delivery is lazy."""
        properties = self.read()[1] if self.held_body is None else self.held_properties
        try:
            return group_of(properties)
        except RecordDamaged as damage:
            raise self.lane.not_read(str(damage)) from None

    @property
    def id(self) -> str:
        """The message id that send returned. O(1); one read of the journal when the delivery is lazy."""
        properties = self.read()[1] if self.held_body is None else self.held_properties
        try:
            own = message_id_of(properties) if properties else None
        except RecordDamaged as damage:
            raise self.lane.not_read(str(damage)) from None
        return own if own is not None else f"{self.lane.id_prefix}{self.sequence}"

    @property
    def timestamp(self) -> int:
        """When it was sent, in ms since 1970 (UTC)."""
        return self.read()[3] if self.held_body is None else self.held_timestamp

    @property
    def expires_at(self) -> int | None:
        """From when on nobody is handed it any more, in ms since 1970 (UTC); None: never."""
        properties = self.read()[1] if self.held_body is None else self.held_properties
        return times_of(properties).expires_at or None

    @property
    def priority(self) -> int:
        return self.lane.pending_lane.priority

    @property
    def persistent(self) -> bool:
        """False: it was sent so, and is lost when the process ends."""
        return self.lane.is_persistent

    @property
    def retained(self) -> bool:
        """Whether it is what the topic retained, given to a subscription that was new; False: it was sent since."""
        return self.lane.is_retained(self.sequence)

    @property
    def destination(self) -> str:
        return self.lane.destination_name

    def ack(self, transaction: Any = None) -> None:
        """Settle it as done: after this returns, or the transaction commits, it is never delivered again."""
        self.consumer.ack(self, transaction=transaction)

    def nack(self, delay: float = 0.0) -> None:
        """Give it back as not done: it returns to its place, to be delivered again after delay seconds."""
        self.consumer.nack(self, delay=delay)

    def release(self) -> None:
        """Give it back as not tried: it returns to its place at once, and no attempt counts."""
        self.consumer.release(self)

    def reject(self, reason: str = REJECTED, transaction: Any = None) -> None:
        """Make it a dead letter now, or with the commit: it is never to be processed. See Consumer.reject."""
        self.consumer.reject(self, reason, transaction=transaction)

    def extend(self, seconds: float) -> None:
        """Give it so many seconds from now on before its ack deadline passes. See Consumer.extend."""
        self.consumer.extend(self, seconds)

    def __enter__(self) -> Delivery:
        """Settle it at the end of the block: `ack`, or `nack` where the block raises.

        What the block settled itself, or what went back with its consumer, is left as it is. An error of the ack is
        raised, AckTooLate among them; where the block raises, that counts.
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
        """Return what is public; the rest is for the library."""
        return list(PUBLIC)

    def __repr__(self) -> str:
        return f"<Delivery {self.lane.id_prefix}{self.sequence} attempt {self.attempts}>"


# What the library asks of a Delivery and hosts do not see.


def mark_late(delivery: Delivery) -> None:
    """Note that it was not settled before its deadline."""
    delivery.number = _LATE


def is_late(delivery: Delivery) -> bool:
    """Return whether it was not settled before its deadline, and has gone back."""
    return delivery.number == _LATE


def message_of(delivery: Delivery) -> StoredMessage:
    """Return what was handed out; a lazy one has no body, as in a list."""
    return delivery.sequence, delivery.held_properties, delivery.held_body, delivery.held_timestamp


def content_of(delivery: Delivery) -> StoredMessage:
    """Return what was handed out with its body; a lazy one is read. StoreFailed. Requires: no lock."""
    return delivery.read() if delivery.held_body is None else message_of(delivery)


def is_lazy(delivery: Delivery) -> bool:
    """Return whether RAM does not hold its body."""
    return delivery.held_body is None


def content_bytes(delivery: Delivery) -> int:
    """Return the bytes of its body and headers in RAM; none of a lazy one."""
    return 0 if delivery.held_body is None else len(delivery.held_properties) + len(delivery.held_body)


def is_seen(delivery: Delivery) -> bool:
    """Return whether its body or headers were looked at, or an iteration handed it out."""
    return getattr(delivery, "is_seen", False)


def mark_seen(delivery: Delivery) -> None:
    """Note that the host has looked at a delivery."""
    delivery.is_seen = True


def kept_group(delivery: Delivery) -> str | None:
    """Return the group that was kept for it; None: there was none to keep."""
    return getattr(delivery, "held_group", None)


def keep_group(delivery: Delivery, group: str | None) -> None:
    """Keep the group of a lazy delivery, whose headers RAM does not hold."""
    delivery.held_group = group


def is_in_flight(delivery: Delivery) -> bool:
    """Return whether its consumer still has to settle it: no call and no transaction has. The lock may be free."""
    return delivery.lane.in_flight.get(delivery.sequence) is delivery


def counted_runs(deliveries: Iterable[Delivery]) -> list[CountedRun]:
    """Return the attempts of deliveries in as few runs as can be. O(deliveries log deliveries)."""
    runs: list[CountedRun] = []
    for sequence, attempts in sorted((delivery.sequence, delivery.attempts) for delivery in deliveries):
        if runs and runs[-1].last == sequence - 1 and runs[-1].attempts == attempts:
            runs[-1] = runs[-1]._replace(last=sequence)
        else:
            runs.append(CountedRun(sequence, sequence, attempts))
    return runs
