"""Consumer: takes messages of one queue and settles them.

It is what a user has and what the core knows as Taker, and is composed of parts that each have a job: its stage says
whether it takes, its collector hands out what is in RAM, a Search finds what is not, Settlements end deliveries, Waits
wake who waits, and its Activity is for those who look once a second. Written out here are the two paths that every
single message goes: the take from RAM and the ack.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from ...store.errors import ArgumentError, Closed, NestedCall, SettingsError, StoreFull
from ...store.journal.journal import Journal
from ...store.locks import condition_of
from ...store.message import Message
from ...store.numbering import UNLIMITED
from ..config.checks import SECONDS_MAX, check_bounds, check_max_messages, check_seconds
from ..config.policies import Policies
from ..config.policy import check_prefetch
from ..config.redelivery_delays import REJECTED
from ..core.areas.dispatch_area import DispatchArea
from ..core.areas.target_area import TargetArea
from ..core.confirmer import Confirmer
from ..core.consumer_groups.activity import Activity
from ..core.consumer_groups.consumer_stage import CLOSED, DRAINED, DRAINING, HELD_UP, TAKING
from ..core.deliveries.delivery import Delivery
from ..core.model import NO_HAND_OUT, ConsumerGroup, DestinationState, LaneState, Taker
from ..core.monitor import Monitor
from ..core.settling.deadlines import AckDeadlines
from ..core.settling.redelivery import Redelivery
from ..distribution.exclusive import ExclusiveConsumers
from ..transactions.transaction import Transaction, TransactionRegistry
from .options import ConsumerOptions, consumer_charge
from .processing import ExceptionTypes, Processing, Rejections, run_in_threads
from .search import Search, SearchParts
from .settlements import Settlements, batch_of
from .statistics import ConsumerStatistics, consumer_statistics
from .stuck import AckReminder
from .waits import Waits

PUBLIC: Final = (
    "ack",
    "ack_deadline_seconds",
    "ack_up_to",
    "batches",
    "close",
    "drain",
    "extend",
    "fileno",
    "in_flight",
    "is_draining",
    "is_slow",
    "nack",
    "prefetch",
    "priority",
    "process",
    "reject",
    "release",
    "statistics",
    "take",
)
"""What a consumer has for users."""
DRAIN_POLL_SECONDS: Final = 0.025
"""Between two looks of a drain, so that no ack pays for those who wait for the last one."""


@dataclass(frozen=True, slots=True)
class ConsumerParts:
    """What each consumer of a store reaches beside its queue."""

    monitor: Monitor
    journal: Journal
    target_area: TargetArea
    dispatch_area: DispatchArea
    searches: SearchParts
    settlements: Settlements
    deadlines: AckDeadlines
    redelivery: Redelivery
    transactions: TransactionRegistry
    confirmer: Confirmer
    policies: Policies
    reminder: AckReminder = field(default_factory=AckReminder)
    exclusives: ExclusiveConsumers = field(default_factory=ExclusiveConsumers)


class Consumer(Taker):
    """Made by `Queue.subscribe`. Thread-safe; a context manager; iterating it takes one message at a time."""

    # docs/internals/dispatch-consumer.md has its states, who brings it into each, and who ends it: all under the lock.
    # Thousands of consumers of a queue are nothing unusual: a dict of so many attributes takes 1.2 KiB each.
    __slots__ = (
        "__weakref__",
        "confirmer",
        "monitor",
        "waits",
        "_dispatch_area",
        "_is_of_a_loop",
        "_memory",
        "_parts",
    )

    def __init__(
        self,
        parts: ConsumerParts,
        destination: DestinationState,
        consumer_group: ConsumerGroup,
        options: ConsumerOptions,
    ) -> None:
        """Requires: the lock."""
        self.monitor = monitor = parts.monitor
        self._parts = parts
        self._dispatch_area, self._memory = parts.dispatch_area, destination.memory
        self.confirmer: Confirmer = parts.confirmer
        self.destination = destination
        self.consumer_group = consumer_group
        self.priority = options.priority
        """Consumers of higher priority are served first. Read-only for callers."""
        self.ack_deadline_seconds = options.deadline_seconds or None
        self.is_polling = options.on_ready is None
        self._is_of_a_loop = options.is_of_a_loop
        """Whether an event loop drives its searches: a take that finds nothing in RAM returns at once."""
        self.is_exclusive = False
        self.prefetch_limit = options.prefetch
        self.in_flight = 0
        """Deliveries not settled yet. Read-only for callers."""
        self.delivered = 0
        """Deliveries so far, which numbers them. Read-only for callers."""
        slow_seconds = parts.policies.of(destination.name).slow_consumer_seconds
        self.activity = Activity(slow_seconds, options.on_slow, monitor.monotonic())
        self.waits = Waits(options.on_ready, is_limited=destination.admission is not None)
        self.stage = TAKING
        self.collector = destination.distribution.collector
        self.reconfigure()

    @property
    def is_draining(self) -> bool:
        """Whether it takes nothing more and only settles what it holds. The lock may be free."""
        return self.stage.is_draining

    @property
    def is_slow(self) -> bool:
        """Whether it has been slow for as long as its policy says. The lock may be free."""
        return self.activity.is_slow

    @property
    def is_over(self) -> bool:
        """Whether every take raises Closed. The lock may be free."""
        return self.stage.is_over

    # ------------------------------------------------------------------ taking

    @property
    def prefetch(self) -> int:
        """The most unsettled deliveries it may hold; 0: only max_messages bounds a take. May be set at any time.

        While it drains that is 0, and setting it does nothing.
        """
        return 0 if self.is_draining else self.prefetch_limit

    @prefetch.setter
    def prefetch(self, prefetch: int) -> None:
        check_prefetch(prefetch)
        with self.monitor.lock, self.monitor.whole:
            if self.is_draining:
                return
            self.prefetch_limit = prefetch
            self.on_credit()
            self.destination.distribution.offer_passed_over()
        self.monitor.run_deferred()

    def take(
        self, max_messages: int = 1, *, timeout: float | None = 0.0, max_bytes: int | None = None
    ) -> list[Delivery]:
        """Return up to max_messages deliveries in order, at least one if there is one; [] after timeout seconds.

        With a selector, a take without a timeout searches one load and may return [] though a later message matches:
        the search goes on in the background, or with the next take. O(messages) without a disk read where the eager
        loader is ahead; else one load, counted as misses. The loader stands back from a thread that takes and never
        pauses: that loads for itself.

        Args:
            max_messages: From 1 on. Never more than `prefetch` leaves.
            timeout: Seconds to wait for the first message; 0: not at all; None: for ever.
            max_bytes: Bounds the bodies and headers together, but for the first message; None: no bound.

        Raises Closed, also while the consumer drains.
        """
        if type(max_messages) is not int or max_messages < 1:
            check_max_messages(max_messages)
        if max_bytes is not None or (
            timeout != 0.0 and not ((type(timeout) is float or type(timeout) is int) and 0.0 < timeout <= SECONDS_MAX)
        ):
            check_bounds(timeout, max_bytes)
        monitor = self.monitor
        if monitor.is_inside():
            raise NestedCall
        with monitor.bare_lock:
            try:
                if monitor.lock.failure is not None:
                    raise monitor.lock.failure
                monitor.entries += 1
                # Room for one message: `credit`, written out. Who drains or is closed has nobody that hands out.
                if (
                    max_messages == 1 and (self.in_flight < self.prefetch_limit or not self.prefetch_limit)
                ) or self.prefetch_limit - self.in_flight == 1:
                    one = self.collector.collect_one(self)
                    if one is not None:
                        return [one]
                if self.stage.is_over:
                    raise self.stage.refusal()
                most = self.room(max_messages)
                deliveries = self.collector.collect(self, most, max_bytes) if most > 0 else []
            except BaseException as error:
                monitor.lock.break_by(error)
                raise
        if not deliveries and not self._is_of_a_loop:
            check_bounds(timeout, max_bytes)
            deliveries = self.search(max_messages, max_bytes).run(timeout)
        if monitor.deferred:
            monitor.run_deferred()
        return deliveries

    def search(self, max_messages: int, max_bytes: int | None, *, is_timed_out: bool = False) -> Search:
        """Return the search of a take that found nothing in RAM."""
        return Search(self._parts.searches, self, self.waits, max_messages, max_bytes, is_timed_out=is_timed_out)

    @property
    def credit(self) -> int:
        """See Taker."""
        if self.stage.is_draining:
            return 0
        return self.prefetch_limit - self.in_flight if self.prefetch_limit else UNLIMITED

    @property
    def demand(self) -> int:
        """See Taker."""
        if self.prefetch_limit or self.stage.is_draining:
            return self.credit
        return int(self.consumer_group.is_awaited)

    def room(self, most: int) -> int:
        """See Taker. Where memory is full of what is in flight, only who holds none gets one."""
        if self.stage.gets_nothing:
            return 0
        if self.in_flight and self._dispatch_area.is_short_for(self._memory):
            return 0
        if not self.prefetch_limit:  # the rest is min(most, self.credit), without its call
            return most
        return min(most, self.prefetch_limit - self.in_flight)

    def __iter__(self) -> Iterator[Delivery]:
        """Blocks for the next message; ends when the consumer or the store is closed."""
        while True:
            try:
                deliveries = self.take(1, timeout=None)
            except Closed:
                return
            for delivery in deliveries:
                delivery.is_seen = True
                yield delivery

    def batches(self, max_messages: int, timeout: float | None = None) -> Iterator[list[Delivery]]:
        """Yield lists of 1 to max_messages deliveries, each as soon as there are any, in the order of `take`.

        Ends when nothing came for timeout seconds (None: waits for ever), or
        the consumer or the store was closed. An attempt is counted as after a
        take: where somebody looks at a delivery, not because it was yielded.
        """
        check_max_messages(max_messages)
        check_bounds(timeout, None)
        return self._batches(max_messages, timeout)

    def _batches(self, max_messages: int, timeout: float | None) -> Iterator[list[Delivery]]:
        while True:
            try:
                deliveries = self.take(max_messages, timeout=timeout)
            except Closed:
                return
            if not deliveries:
                return
            yield deliveries

    def process(
        self, handler: Callable[[Delivery], object], concurrency: int = 1, *, reject_on: ExceptionTypes = ()
    ) -> None:
        """Call handler(delivery) for each message, and settle it; return when the consumer is closed or has drained.

        A handler that returns acknowledges. One that raises an Exception gives the message back, to be tried again as
        the policy says. What the handler settled itself stays as it is. Each failure is logged (event
        `handler_raised`). Messages of one group are handled one after the other and in order, whatever the concurrency.

        KeyboardInterrupt gives back what this thread works on, uncounted. It, SystemExit and an error of an ack let the
        consumer drain, and are raised when all handlers have returned.

        Args:
            handler: Any callable but a coroutine function.
            concurrency: So many calls at a time, in this thread and others; never more than `prefetch`. 1: strictly in
                order, where nothing comes back after a delay.
            reject_on: Exceptions that make a dead letter of the message at once, with their text as the reason; none by
                default.

        Raises ArgumentError, StoreFull, StoreFailed.
        """
        rejections = Rejections(handler, concurrency, reject_on)
        iteration = iter(self)
        processing = Processing(handler, rejections, lambda: next(iteration, None))
        run_in_threads(processing.run, concurrency, self.begin_drain)

    def fileno(self) -> int:
        """Return a file descriptor that is readable when a take would find something after one that found nothing.

        For select, poll, kombu's hub or trio, in the place of on_ready or
        beside it. It may be readable for nothing, and is so for ever when the
        queue was deleted or the store closed: take, which says Closed then.
        Take until there is nothing, then wait again. Made on the first call,
        two descriptors; closed with the consumer, so unregister it before
        that. Another process that was forked has no part in it. Raises
        TooManyFiles, Closed.
        """
        with self.monitor.lock:
            if self.stage.is_over:
                raise self.stage.refusal()
            return self.waits.readiness.fileno()

    def arm(self) -> None:
        """Call on_ready with the next arrival: a take found nothing, or there was none yet. Requires: the lock."""
        self.waits.arm(self.consumer_group)

    def become_ready(self, deferred: list[Callable[[], None]]) -> None:
        """See Taker."""
        self.waits.tell(deferred)

    @property
    def is_waiting(self) -> bool:
        """Return whether a take waits, or a callback is due for the next arrival. Requires: the lock."""
        return not self.stage.is_over and self.waits.are_any

    @property
    def charge_bytes(self) -> int:
        """What it costs in RAM, without its consumer group and lists."""
        return consumer_charge(is_of_a_loop=self._is_of_a_loop)

    # ------------------------------------------------------------------ settling

    def ack(self, deliveries: Delivery | Sequence[Delivery], *, transaction: Transaction | None = None) -> None:
        """Settle deliveries as done: after this returns none is ever delivered again. O(deliveries).

        It writes one journal record for each run of sequences.

        Args:
            deliveries: One, or a list or tuple of them.
            transaction: They are acknowledged with its commit, and in flight until then; None: now.

        Raises SettingsError when one of them is another consumer's, StateError when it was settled before,
        TransactionError when it is a transaction's; then none of them is settled.
        """
        if transaction is not None:
            self._parts.settlements.ack_in(self, transaction, deliveries)
            return
        if type(deliveries) is Delivery:
            delivery = deliveries
        elif type(deliveries) is list and len(deliveries) == 1 and type(deliveries[0]) is Delivery:
            delivery = deliveries[0]
        else:
            self._parts.settlements.ack(self, batch_of(deliveries), self.confirmer)
            return
        lane, sequence, monitor = delivery.lane, delivery.sequence, self.monitor
        entries = monitor.entries
        try:
            if monitor.is_inside():
                raise NestedCall
            with monitor.bare_lock:
                try:
                    if monitor.lock.failure is not None:
                        raise monitor.lock.failure
                    if monitor.entries != entries:
                        monitor.step_aside()
                    monitor.entries += 1
                    if delivery.consumer is not self or lane.in_flight.get(sequence) is not delivery:
                        self._parts.settlements.check_held(self, (delivery,))
                    lane.acknowledged += lane.backing_store.acknowledge_one(lane.pending_lane, sequence)
                    # Before the sync, so that credit and memory come back early: what a power cut loses of an ack
                    # is an ack that was not confirmed, and the message comes again.
                    self._dispatch_area.settle(delivery)
                    if lane.delivery_counts is not None:
                        lane.forget_attempts(sequence, sequence)
                    if self.waits.hears_of_acks:
                        self._parts.settlements.after_ack(self)
                    position = self._parts.journal.end if lane.syncs else 0
                except BaseException as error:
                    monitor.lock.break_by(error)
                    raise
        except StoreFull as full:
            self._parts.settlements.make_disk_room(full)
            if lane.in_flight.get(sequence) is delivery:
                self.ack(delivery)
            return
        self.confirmer.confirm(position)

    def ack_up_to(self, delivery: Delivery) -> None:
        """Acknowledge this delivery and all that this consumer took before it and still holds. O(in flight)."""
        with self.monitor.lock:
            self._parts.settlements.check_held(self, (delivery,))
            number = delivery.number
            held = [other for other in self._held() if other.number <= number]
        self.ack(held)

    def nack(self, deliveries: Delivery | Sequence[Delivery], delay: float = 0.0) -> None:
        """Give back as not done: deliveries return to their places, with attempts + 1. O(deliveries).

        The attempts are in the journal when this returns. After `max_attempts` a message comes no more, but from the
        dead-letter queue.

        Args:
            deliveries: One, or a list or tuple of them.
            delay: Seconds before which nobody is handed them again; where the queue's policy has a longer delay, that
                counts.
        """
        batch = batch_of(deliveries)
        check_seconds("delay", delay)
        if self._parts.settlements.nack(self, batch, delay):
            self.confirmer.confirm(0)  # what waits for its time is in the index, which may want a checkpoint
        self.monitor.run_deferred()

    def release(self, deliveries: Delivery | Sequence[Delivery]) -> None:
        """Give back as not tried: deliveries return to their places at once, and no attempt counts.

        For what was taken ahead and is left to other consumers. Where a kill
        may have left it in flight once, one attempt stays. SettingsError,
        StateError, TransactionError: as ack. O(deliveries).
        """
        self._parts.settlements.release(self, batch_of(deliveries))
        self.monitor.run_deferred()

    def reject(
        self,
        deliveries: Delivery | Sequence[Delivery],
        reason: str = REJECTED,
        *,
        transaction: Transaction | None = None,
    ) -> None:
        """Make deliveries dead letters now, however many attempts they had.

        They go to the dead-letter queue of their policy. Without one, and from a dead-letter queue itself, they are
        gone. A crash leaves each in exactly one of the two.

        Args:
            deliveries: One, or a list or tuple of them.
            reason: What the header `dead_letter_reason` of the dead letter has.
            transaction: They are dead letters from its commit on; None: now.

        Raises SettingsError, StateError, TransactionError as `ack`. StoreFull: what is left is still held, and a
        transaction is to be rolled back.
        """
        if type(reason) is not str:
            raise ArgumentError(f"a reason must be a str, not {type(reason).__name__}")
        self._parts.settlements.reject(self, deliveries, reason, transaction)

    def extend(self, deliveries: Delivery | Sequence[Delivery], seconds: float) -> None:
        """Give deliveries so many seconds from now on until their ack deadline passes, more or fewer than were left.

        Call it again and again for work that takes long. Does nothing where the consumer has no deadline.
        O(deliveries).

        Args:
            deliveries: One, or a list or tuple of them.
            seconds: From 0 on.

        Raises AckTooLate where the deadline has passed already; SettingsError, StateError, TransactionError as `ack`;
        StoreFull where memory has no room to note it, and nothing was changed.
        """
        batch = batch_of(deliveries)
        check_seconds("seconds", seconds)
        self._parts.settlements.extend(self, batch, seconds)

    def check_held(self, deliveries: Sequence[object]) -> None:
        """Raise what `ack` raises where one of these is not its to settle. Requires: the lock."""
        self._parts.settlements.check_held(self, deliveries)

    # ------------------------------------------------------------------ what it takes, and when

    def on_credit(self) -> None:
        """Wake the consumer if it waited for credit. Requires: the lock."""
        if not self.waits.is_for_credit or self.stage.is_closed:
            return
        if self.stage.gets_nothing:
            self.destination.stand_by(self)
        if self.room(1) <= 0:
            return
        self._dispatch_area.waits_for_memory.pop(self, None)
        self.waits.end_for_credit(is_limited=self.destination.admission is not None)
        if self.waits.readiness.is_armed:
            if self._dispatch_area.has_any(self.consumer_group):
                self.become_ready(self.monitor.deferred)
            else:
                self.consumer_group.arm()

    def reconfigure(self) -> None:
        """Take as its queue demands it now: not at all, by its distribution, or as usual. Requires: the lock."""
        if self.stage.is_closed:
            return
        if self.destination.holds_up(self):
            if not self.stage.is_draining:
                self.stage = HELD_UP
            self.collector = NO_HAND_OUT
            self.waits.begin_for_credit()
            return
        self.collector = self.destination.distribution.collector
        if self.stage is HELD_UP:
            self.stage = TAKING
            self.on_credit()

    def move_to(self, consumer_group: ConsumerGroup) -> None:
        """Take messages from there from now on. Requires: the lock."""
        self.consumer_group = consumer_group
        self.reconfigure()
        self.waits.moved(consumer_group)

    def _held(self) -> list[Delivery]:
        """Return the deliveries that this consumer holds. O(in flight in this queue up to its last one)."""
        held: list[Delivery] = []
        lanes: list[LaneState] = [target.lane for target in self.consumer_group.lists]
        for lane in lanes if self.in_flight else ():
            for delivery in lane.in_flight.values():
                if delivery.consumer is self:
                    held.append(delivery)
                    if len(held) == self.in_flight:
                        return held
        return held

    # ------------------------------------------------------------------ the rest

    def drain(self, timeout: float | None = None) -> bool:
        """Take nothing more, and wait until all that it holds is settled; return whether it is.

        From now on takes raise Closed, those that wait among them, and iterations end. It can't be undone. Other
        consumers get at once what this one was to get, and each of its groups as soon as it holds no message of the
        group. An exclusive consumer stays exclusive until it is closed. Settle what is in flight meanwhile, then close:
        no attempt is lost.

        In a handler inside a call of the store, the drain begins when that call has ended, and this returns False. It
        looks 40 times a second.

        Args:
            timeout: Seconds to wait; None: for ever. When they have passed the consumer goes on draining: call again,
                or close.

        Raises Closed: the store is closed.
        """
        check_bounds(timeout, None)
        if self.monitor.lock.is_owned():
            self.monitor.call_later(self.begin_drain)
            return False
        deadline = None if timeout is None else self.monitor.monotonic() + timeout
        never = condition_of(self.monitor.lock)
        self.begin_drain()
        with self.monitor.lock:
            while not self.is_drained:
                if deadline is not None and self.monitor.monotonic() >= deadline:
                    return False
                never.wait(DRAIN_POLL_SECONDS)
        return True

    def begin_drain(self) -> None:
        """Do what `drain` does, without a wait. Twice is once. Requires: no lock."""
        with self.monitor.lock, self.monitor.whole:
            if not self.stage.is_over:
                self._stop_taking()
        self.monitor.run_deferred()

    @property
    def is_drained(self) -> bool:
        """Return whether every delivery is settled. Closed: the store is closed."""
        self.monitor.raise_if_closed()
        return self.stage.is_closed or not self.in_flight

    def _stop_taking(self) -> None:
        self.stage = DRAINING
        self._dispatch_area.waits_for_memory.pop(self, None)
        self.reconfigure()
        distribution = self.destination.distribution
        distribution.revoke(self)
        distribution.offer_passed_over()
        self.waits.wake_takes(self.consumer_group)
        self.wake_on_failure()
        # A wake-up may have gone to this consumer: its messages are for others now.
        distribution.wake_others(self.consumer_group)

    def close(self, *, processed: Delivery | Sequence[Delivery] | None = None) -> None:
        """Give back what it holds, for others to take in its place, and wake its own waiting takes. Twice is once.

        From a signal handler or finalizer inside a call of the store it is done when that call has ended.

        Args:
            processed: An attempt counts at these deliveries and at no others, whatever the policy says; what of them is
                settled is passed over. None: an attempt counts at what somebody has looked at, see `count_on_close` of
                the policy.

        Raises ArgumentError, and SettingsError for another consumer's delivery; then it is not closed.
        """
        tried: frozenset[Delivery] | None = None
        if processed is not None:
            batch = batch_of(processed)
            self._check_own(batch)
            tried = frozenset(batch)
        if self.monitor.lock.is_owned():
            self.monitor.call_later(self.close if tried is None else partial(self._end, tried))
            return
        self._end(tried)

    def _check_own(self, deliveries: Sequence[object]) -> None:
        for delivery in deliveries:
            if type(delivery) is not Delivery:
                raise ArgumentError(f"a delivery is expected, not {type(delivery).__name__}")
            if delivery.consumer is not self:
                raise SettingsError("the delivery belongs to another consumer: name it there")

    def _end(self, processed: frozenset[Delivery] | None) -> None:
        with self.monitor.lock, self.monitor.whole:
            if not self.stage.is_closed:
                self._close(self._held(), processed)
            self.waits.close()
        self.monitor.run_deferred()

    def end(self, held: Sequence[Delivery]) -> None:
        """See Taker. A host that takes only after on_ready learns of it from the Closed of its next take."""
        if not self.stage.is_closed:
            self._close(held)
        self.waits.readiness.tell(self.monitor.deferred)

    def _close(self, held: Sequence[Delivery], processed: frozenset[Delivery] | None = None) -> None:
        self._take_no_more()
        consumer_group, distribution = self.consumer_group, self.destination.distribution
        self._dispatch_area.waits_for_memory.pop(self, None)
        self.destination.delivered += self.delivered
        distribution.leave(self)
        self._parts.target_area.consumer_memory.release(self.charge_bytes)
        self._parts.reminder.closes(self, held)
        self._parts.redelivery.return_held(held, processed)
        self._parts.deadlines.unwatch(self)
        if self.is_exclusive:
            self._parts.exclusives.leave(self)
        distribution.offer_passed_over()
        self.waits.wake_takes(consumer_group)
        self.waits.end()
        # It may have been told of messages, and leaves them to others.
        distribution.wake_others(consumer_group)
        self.destination.on_consumer_closed()

    def wake_on_failure(self) -> None:
        """Make the descriptor readable, wake the loop, and call on_ready. The next take says what failed.

        Requires: the lock.
        """
        self.waits.end()
        self.waits.readiness.tell(self.monitor.deferred)

    def held_in_transactions(self) -> list[Delivery]:
        """Return its deliveries that open transactions hold. O(held). Requires: the lock."""
        return self._parts.transactions.held_by(self)

    def die(self) -> None:
        """Take and return nothing any more: the process was forked and this is the child's copy."""
        self._take_no_more()
        self.waits.close()

    def _take_no_more(self) -> None:
        self.stage = DRAINED if self.stage.is_draining else CLOSED
        self.collector = NO_HAND_OUT

    def statistics(self) -> ConsumerStatistics:
        """Return a snapshot. O(lists and consumers of the consumer group), no disk.

        The watermarks of all consumers of a consumer group add up to those of its lists.
        """
        with self.monitor.lock:
            return consumer_statistics(self)

    def __dir__(self) -> list[str]:
        """Return what is public; the rest is for the engine."""
        return list(PUBLIC)

    def __repr__(self) -> str:
        state = "closed" if self.stage.is_closed else f"{self.in_flight} in flight{', draining' * self.is_draining}"
        return f"<Consumer of {self.destination.name!r} {state}>"

    def __enter__(self) -> Consumer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def as_message(delivery: Delivery) -> Message:
    """Return the message of a delivery, with its id. A lazy one is read for each of its parts."""
    return Message(delivery.body, delivery.headers, delivery.priority, delivery.id, delivery.persistent, delivery.group)
