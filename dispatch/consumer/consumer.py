"""Consumer: takes messages of one queue and settles them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from ...store.errors import (
    AckTooLate,
    ArgumentError,
    Closed,
    NestedCall,
    SettingsError,
    StateError,
    StoreFull,
)
from ...store.histogram import DurationHistogram
from ...store.locks import UNAWAITED, condition_of
from ...store.message import Message
from ...store.message_store import MessageStore
from ..config.checks import SECONDS_MAX, check_bounds, check_max_messages, check_seconds
from ..config.policies import Policies
from ..config.policy import check_prefetch
from ..config.redelivery_delays import REJECTED
from ..core.areas.dispatch_area import DispatchArea
from ..core.areas.target_area import TargetArea
from ..core.deliveries.delivery import Delivery, is_late
from ..core.model import ConsumerGroup, DestinationState, LaneState, Taker, TargetList, collect_nothing
from ..core.monitor import Monitor
from ..core.publisher import Confirmer, Publisher
from ..core.settling.deadlines import AckDeadlines
from ..core.settling.due import DueMessages
from ..core.settling.redelivery import Redelivery
from ..distribution.exclusive import ExclusiveConsumers
from ..loading.eager import EagerLoader
from ..transactions.transaction import Transaction, TransactionRegistry
from .options import ConsumerOptions, consumer_charge
from .processing import ExceptionTypes, Processing, Rejections, run_in_threads
from .readiness import Readiness
from .search import LOAD_WAIT_SECONDS, Search
from .statistics import ConsumerStatistics, consumer_statistics
from .stuck import AckReminder

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

Check = Callable[[Sequence[Delivery]], None]
Reject = Callable[[Sequence[Delivery], str, Transaction | None, Check], None]
"""Deliveries, the reason, a transaction, and what is asked under the lock whether they may be settled."""


@dataclass(frozen=True, slots=True)
class ConsumerParts:
    """What each consumer of a store reaches beside its queue."""

    monitor: Monitor
    store: MessageStore
    target_area: TargetArea
    dispatch_area: DispatchArea
    loader: EagerLoader
    due: DueMessages
    deadlines: AckDeadlines
    redelivery: Redelivery
    transactions: TransactionRegistry
    publisher: Publisher
    policies: Policies
    reject: Reject
    """Makes dead letters of deliveries. Requires: no lock."""
    reminder: AckReminder = field(default_factory=AckReminder)
    exclusives: ExclusiveConsumers = field(default_factory=ExclusiveConsumers)
    take_durations: DurationHistogram = field(default_factory=DurationHistogram)
    """How long those takes took that found nothing in RAM and returned messages. The state lock guards it."""


class Consumer(Taker):
    """Made by `Queue.subscribe`. Thread-safe; a context manager; iterating it takes one message at a time."""

    # docs/internals/dispatch-consumer.md has its states, who brings it into each, and who ends it: all under the lock.
    # Thousands of consumers of a queue are nothing unusual: a dict of so many attributes takes 1.2 KiB each.
    __slots__ = (
        "__weakref__",
        "confirmer",
        "monitor",
        "when_closed",
        "when_moved",
        "_collect",
        "_collect_one",
        "_credited",
        "_is_closed",
        "_is_held_up",
        "_is_settling_plain",
        "_journal",
        "_limits",
        "_memory",
        "_parts",
        "_readiness",
        "_searches",
        "_takes_no_more",
        "_dispatch_area",
        "_waiting",
        "_waits_for_credit",
    )

    def __init__(
        self,
        parts: ConsumerParts,
        destination: DestinationState,
        consumer_group: ConsumerGroup,
        options: ConsumerOptions,
    ) -> None:
        """Requires: the lock."""
        self.monitor = parts.monitor
        self._parts = parts
        self._journal = parts.store.journal
        self._dispatch_area, self._memory = parts.dispatch_area, destination.memory
        self.ack_deadline_seconds = options.deadline_seconds or None
        self.confirmer: Confirmer = parts.publisher
        self.destination = destination
        self.consumer_group = consumer_group
        self.prefetch_limit = options.prefetch
        self.is_draining = False
        """It takes nothing more and only settles what it holds. Read-only for callers."""
        self._readiness = Readiness(options.on_ready)
        self._searches = not options.is_of_a_loop
        """Whether a take that finds nothing in RAM loads and waits. An event loop does so itself: see `retry_take`."""
        self._is_closed = False
        self._takes_no_more = False
        """Whether every take raises Closed: the consumer is closed or drains."""
        self.is_synchronous = options.on_ready is None
        """Whether `take` is called by a thread, which may load what is missing, and not by an event loop."""
        self._waits_for_credit = False
        self._waiting = 0
        """How many takes of this consumer wait for messages."""
        self._is_held_up = False
        """Whether its queue hands nothing to this consumer: see DestinationState.holds_up."""
        self._credited = UNAWAITED
        """Takes that lack credit wait for it. Arrivals notify another one, the consumer group's, so that no consumer
        without credit swallows what is meant for one with credit."""
        self._collect, self._collect_one = destination.distribution.collectors
        self.priority = options.priority
        """Consumers of higher priority are served first. Read-only for callers."""
        self.is_exclusive = False
        """Whether the consumer gets all messages, or waits to take over. Read-only for callers."""
        self.on_slow = options.on_slow
        """Called, never under a lock, when it has become slow."""
        self.slow_seconds = parts.policies.of(destination.name).slow_consumer_seconds
        self.is_slow = False
        self.moved_at = self.monitor.monotonic()
        self.counts_at_slow_look = (0, 0)
        """What it had delivered and in flight when somebody last looked whether it is slow."""
        self.messages_per_second = 0.0
        self.counts_at_stuck_look = (0, 0)
        self.stuck_since = self.moved_at
        self.stuck_told_again_at = 0.0
        """The last three: see Receiver."""
        self.when_moved: Callable[[], None] | None = None
        """Called under the lock when the consumer moves to another consumer group, for an event loop."""
        self.when_closed: Callable[[], None] | None = None
        """Called under the lock when the consumer closes, for an event loop."""
        self._limits = destination.admission
        self._is_settling_plain = self._limits is None
        """Whether an ack only settles: no sender waits for room, and no take of this consumer waits for credit."""
        self.in_flight = 0
        """Deliveries not settled yet. Read-only for callers."""
        self.delivered = 0
        """Deliveries so far, which numbers them. Read-only for callers."""
        self.reconfigure()

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
                if self._takes_no_more:
                    raise self._over()
                # Room for one message: `credit`, written out, where nothing drains.
                if (
                    max_messages == 1 and (self.in_flight < self.prefetch_limit or not self.prefetch_limit)
                ) or self.prefetch_limit - self.in_flight == 1:
                    one = self._collect_one(self)
                    if one is not None:
                        return [one]
                most = self._credit(max_messages)
                deliveries = self._collect(self, most, max_bytes) if most > 0 else []
            except BaseException as error:
                monitor.lock.break_by(error)
                raise
        if not deliveries and self._searches:
            deliveries = self._take_slowly(max_messages, timeout, max_bytes)
        if monitor.deferred:
            monitor.run_deferred()
        return deliveries

    def _over(self) -> Closed:
        return Closed("the consumer", "closed" if self._is_closed else "draining and takes nothing more")

    def _credit(self, max_messages: int) -> int:
        """Return how many it may take now. Where memory is full of what is in flight, only who holds none gets one."""
        if self._is_held_up:
            return 0
        if self.in_flight and self._dispatch_area.is_short_for(self._memory):
            return 0
        if not self.prefetch_limit:  # the rest is min(max_messages, self.credit), without its call
            return max_messages
        return min(max_messages, self.prefetch_limit - self.in_flight)

    def _take_slowly(self, max_messages: int, timeout: float | None, max_bytes: int | None) -> list[Delivery]:
        """Load something, or wait for it: nothing is in RAM."""
        check_bounds(timeout, max_bytes)
        began_at = self.monitor.monotonic()
        deadline = None if timeout is None else began_at + timeout
        search = Search(max_messages, max_bytes, began_at)
        try:
            while True:
                with self.monitor.lock:
                    search.is_timed_out = deadline is not None and self.monitor.monotonic() >= deadline
                    with self.monitor.whole:
                        found = self.retry_take(search)
                    if found is not None:
                        return found
                    if search.load is None and not self._wait(deadline, search.is_coming, search.has_credit):
                        self.arm()
                        return []
                search.is_scanned = self.consumer_group.selector is not None
                if search.load is not None:
                    self._parts.loader.finish(search.load)
        except BaseException:
            if search.load is not None:
                self._parts.loader.give_up(search.load)
            raise

    def retry_take(self, search: Search) -> list[Delivery] | None:
        """Look once more for a take that found nothing in RAM; None: load or wait, as the search says.

        Requires: the lock.
        """
        if self._takes_no_more:
            raise self._over()
        self._parts.due.release()
        search.load = None
        search.is_coming = search.has_credit = False
        if self._is_held_up:
            self._stand_by()
        most = self._credit(search.max_messages)
        while most > 0:
            deliveries = self._collect(self, most, search.max_bytes)
            if deliveries:
                self._parts.take_durations.record(self.monitor.monotonic() - search.began_at)
                if search.is_missed:
                    self.consumer_group.misses += len(deliveries)
                return deliveries
            target = self._dispatch_area.starving(self.consumer_group)
            if search.is_scanned and search.is_timed_out:
                if target is not None:
                    # The loader may have given it up while memory was short.
                    self._parts.target_area.loads.request(target)
                self.arm()
                return []  # nothing matched so far: the scan goes on in the background, or with the next take
            if target is None:
                search.has_credit = True
                break
            if self._seek(target, search):
                break
        if not search.has_credit:
            self._stand_in_line(is_for_memory=most > 0)
        return None

    def _seek(self, target: TargetList, search: Search) -> bool:
        """Begin a load of the list that starves, unless one is under way; False: all that it had is settled."""
        self._parts.target_area.loads.missed(target)
        if not target.is_loading:
            search.load = self._parts.loader.begin(target, is_needed=True)
            if search.load is None and not target.has_supply:
                return False
        search.is_coming = search.has_credit = target.is_loading
        # A load that another thread has under way counts too: its message was not there in time.
        search.is_missed |= search.is_coming and (search.load is None or bool(search.load.regions))
        return True

    def _stand_in_line(self, *, is_for_memory: bool) -> None:
        """Wait for credit, or for memory: for its load, or because what is in flight fills it. Requires: the lock."""
        self._note_credit_wait(True)
        self.consumer_group.arrived.notify()  # it may have been called in the place of one that has credit
        if is_for_memory or self._dispatch_area.is_short_for(self._memory):
            self._dispatch_area.waits_for_memory[self] = None

    def _wait(self, deadline: float | None, is_coming: bool, has_credit: bool) -> bool:
        """Wait for something to change; False: the time is up. is_coming: a load is under way, whose end is near."""
        now = self.monitor.monotonic()
        if is_coming:
            wait_seconds: float | None = LOAD_WAIT_SECONDS
        elif deadline is None:
            wait_seconds = None
        else:
            wait_seconds = deadline - now
            if wait_seconds <= 0:
                return False
        due = self._parts.due.next_due
        if due is not None:
            due_seconds = max(due - now, 0.0)
            wait_seconds = due_seconds if wait_seconds is None else min(due_seconds, wait_seconds)
        if not has_credit:
            if self._credited is UNAWAITED:
                self._credited = condition_of(self.monitor.lock)
            self._credited.wait(wait_seconds)
            return True
        self._waiting += 1
        try:
            self.consumer_group.wait(self.monitor.lock, wait_seconds)  # it may have another one when that is over
        finally:
            self._waiting -= 1
        return True

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
            if self._takes_no_more:
                raise self._over()
            return self._readiness.fileno()

    def arm(self) -> None:
        """Call on_ready with the next arrival: a take found nothing, or there was none yet. Requires: the lock."""
        if self._readiness.arm():
            self.consumer_group.arm()

    def become_ready(self, ready: list[Callable[[], None]]) -> None:
        """Have on_ready called if a take found nothing and may find something now. Requires: the lock."""
        if not self._waits_for_credit:
            self._readiness.tell(ready)

    @property
    def is_waiting(self) -> bool:
        """Return whether a take waits, or a callback is due for the next arrival. Requires: the lock."""
        return not self._takes_no_more and (self._waits_for_credit or self._readiness.is_armed or self._waiting > 0)

    @property
    def charge_bytes(self) -> int:
        """What it costs in RAM, without its consumer group and lists."""
        return consumer_charge(is_of_a_loop=not self._searches)

    @property
    def is_over(self) -> bool:
        """Return whether every take raises Closed. The lock may be free."""
        return self._takes_no_more

    @property
    def is_closed(self) -> bool:
        """Return whether it is closed and has given back what it held. Requires: the lock."""
        return self._is_closed

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
            self._ack_in(transaction, deliveries)
            return
        if type(deliveries) is Delivery:
            delivery = deliveries
        elif type(deliveries) is list and len(deliveries) == 1 and type(deliveries[0]) is Delivery:
            delivery = deliveries[0]
        else:
            self._ack_batch(_batch(deliveries))
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
                        self.check_held((delivery,))
                    lane.acknowledged += lane.backing_store.acknowledge_one(lane.pending_lane, sequence)
                    # Before the sync, so that credit and memory come back early: what a power cut loses of an ack
                    # is an ack that was not confirmed, and the message comes again.
                    self._dispatch_area.settle(delivery)
                    if lane.delivery_counts is not None:
                        lane.forget_attempts(sequence, sequence)
                    if not self._is_settling_plain:
                        self._after_ack()
                    position = self._journal.end if lane.syncs else 0
                except BaseException as error:
                    monitor.lock.break_by(error)
                    raise
        except StoreFull as full:
            self._make_disk_room(full)
            if lane.in_flight.get(sequence) is delivery:
                self.ack(delivery)
            return
        self.confirmer.confirm(position)

    def _ack_batch(self, rest: tuple[Delivery, ...]) -> None:
        """Acknowledge deliveries run by run, in as many sections as the index and the disk demand."""
        while rest:
            try:
                with self.monitor.lock, self.monitor.whole:
                    self.check_held(rest)
                    try:
                        settled, position = self._ack_runs(rest)
                        rest = rest[settled:]
                    finally:
                        self._after_ack()  # for what is settled, also where the rest is refused
            except StoreFull as full:
                self.monitor.run_deferred()
                self._make_disk_room(full)
                rest = tuple(held for held in rest if held.lane.in_flight.get(held.sequence) is held)
                continue
            self.confirmer.confirm(position)

    def _after_ack(self) -> None:
        """Go on where the ack made room: for this consumer's takes, for senders. Requires: the lock."""
        self.on_credit()
        if self._limits is not None:
            self._limits.room_came()

    def _note_credit_wait(self, is_waiting: bool) -> None:
        """Note whether takes wait for credit, and with that whether an ack has nothing to do but to settle."""
        self._waits_for_credit = is_waiting
        self._is_settling_plain = not is_waiting and self._limits is None

    def _ack_in(self, transaction: object, deliveries: object) -> None:
        checked = self._parts.transactions.checked(transaction)
        batch = (deliveries,) if type(deliveries) is Delivery else _batch(deliveries)
        with self.monitor.lock, self.monitor.whole:
            self.check_held(batch)
            checked.hold(batch)

    def _make_disk_room(self, full: StoreFull) -> None:
        """Delete at once what earlier acks have freed: even the reserve is full. Raises `full` if that is nothing.

        Requires: no lock.
        """
        if not self._parts.store.cleanup.run().deleted:
            raise full

    def _ack_runs(self, ordered: Sequence[Delivery]) -> tuple[int, int]:
        """Settle run by run; return how many deliveries, and the position that must be durable, 0 if none must.

        They are fewer than all where the index wants a checkpoint first.
        """
        dispatch_area, store = self._dispatch_area, self._parts.store
        begin = position = 0
        while begin < len(ordered) and (not begin or not store.is_index_crowded):
            first = ordered[begin]
            end = begin + 1
            sequence = first.sequence
            while end < len(ordered) and ordered[end].sequence == sequence + 1 and ordered[end].lane is first.lane:
                sequence += 1
                end += 1
            lane = first.lane
            lane.acknowledged += lane.backing_store.acknowledge(lane.pending_lane, first.sequence, sequence)
            dispatch_area.settle_run(lane, ordered[begin:end])
            if lane.syncs:
                position = self._journal.end
            begin = end
        return begin, position

    def ack_up_to(self, delivery: Delivery) -> None:
        """Acknowledge this delivery and all that this consumer took before it and still holds. O(in flight)."""
        with self.monitor.lock:
            self.check_held((delivery,))
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
        batch = (deliveries,) if type(deliveries) is Delivery else _batch(deliveries)
        check_seconds("delay", delay)
        with self.monitor.lock, self.monitor.whole:
            self.check_held(batch)
            is_put_off = self._parts.redelivery.take_back(batch, delay)
            self.on_credit()
        if is_put_off:
            self.confirmer.confirm(0)  # what waits for its time is in the index, which may want a checkpoint
        self.monitor.run_deferred()

    def release(self, deliveries: Delivery | Sequence[Delivery]) -> None:
        """Give back as not tried: deliveries return to their places at once, and no attempt counts.

        For what was taken ahead and is left to other consumers. Where a kill
        may have left it in flight once, one attempt stays. SettingsError,
        StateError, TransactionError: as ack. O(deliveries).
        """
        batch = (deliveries,) if type(deliveries) is Delivery else _batch(deliveries)
        with self.monitor.lock, self.monitor.whole:
            self.check_held(batch)
            self._parts.redelivery.return_untried(batch)
            self.on_credit()
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
        checked = None if transaction is None else self._parts.transactions.checked(transaction)
        batch = (deliveries,) if type(deliveries) is Delivery else _batch(deliveries)
        with self.monitor.lock:
            self.check_held(batch)
        self._parts.reject(batch, reason, checked, self.check_held)

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
        batch = (deliveries,) if type(deliveries) is Delivery else _batch(deliveries)
        check_seconds("seconds", seconds)
        with self.monitor.lock, self.monitor.whole:
            self.check_held(batch)
            self._parts.deadlines.extend(self, batch, seconds)

    def check_held(self, deliveries: Sequence[object]) -> None:
        """Raise what `ack` raises where one of these is not the consumer's to settle. Requires: the lock."""
        last_number = -1
        is_ascending = True
        for delivery in deliveries:
            if type(delivery) is not Delivery:
                raise ArgumentError(f"a delivery is expected, not {type(delivery).__name__}")
            if delivery.consumer is not self:
                raise SettingsError("the delivery belongs to another consumer: settle it there")
            if delivery.lane.in_flight.get(delivery.sequence) is not delivery:
                if is_late(delivery):
                    deadline = self.ack_deadline_seconds or 0.0
                    raise AckTooLate(delivery.destination, delivery.sequence, delivery.attempts, deadline)
                self._parts.transactions.raise_if_held(delivery)
                raise StateError("the delivery is settled already, or its consumer was closed")
            is_ascending = is_ascending and delivery.number > last_number
            last_number = delivery.number
        # In the order in which they were taken there can be none twice, and nothing to remember.
        if not is_ascending and len(set(map(id, deliveries))) < len(deliveries):
            raise SettingsError("the same delivery is in the batch twice")

    def on_credit(self) -> None:
        """Wake the consumer if it waited for credit. Requires: the lock."""
        if not self._waits_for_credit:
            return
        if self._is_held_up:
            self._stand_by()
        if self._credit(1) <= 0:
            return
        self._note_credit_wait(False)
        self._dispatch_area.waits_for_memory.pop(self, None)
        self._credited.notify_all()
        if self._readiness.is_armed:
            if self._dispatch_area.has_any(self.consumer_group):
                self.become_ready(self.monitor.deferred)
            else:
                self.consumer_group.arm()

    def reconfigure(self) -> None:
        """Take as its queue demands it now: not at all, by its distribution, or as usual. Requires: the lock.

        What does so stands in the place of what others call, so that no other take asks.
        """
        self._collect, collect_one = self.destination.distribution.collectors
        if self.destination.holds_up(self):
            self._collect_one = collect_nothing
            self._is_held_up = True
            self._note_credit_wait(True)
            return
        self._collect_one = collect_one
        if self._is_held_up:
            self._is_held_up = False
            self.on_credit()

    def _stand_by(self) -> None:
        """While another consumer is exclusive: what this one settles frees its groups."""
        if not self.destination.is_paused and not self._is_closed:
            self.destination.distribution.revoke(self)

    def move_to(self, consumer_group: ConsumerGroup) -> None:
        """Take messages from there from now on. Requires: the lock."""
        self.consumer_group = consumer_group
        self.reconfigure()
        if self._readiness.is_armed:
            consumer_group.arm()
        if self.when_moved is not None:
            self.when_moved()

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
            if not self._takes_no_more:
                self._stop_taking()
        self.monitor.run_deferred()

    @property
    def is_drained(self) -> bool:
        """Return whether every delivery is settled. Closed: the store is closed."""
        self.monitor.raise_if_closed()
        return self._is_closed or not self.in_flight

    def _stop_taking(self) -> None:
        self._takes_no_more = True
        self.is_draining = True
        self._dispatch_area.waits_for_memory.pop(self, None)
        self.reconfigure()
        distribution = self.destination.distribution
        distribution.revoke(self)
        distribution.offer_passed_over()
        self._credited.notify_all()
        self.consumer_group.arrived.notify_all()
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
            batch = (processed,) if type(processed) is Delivery else _batch(processed)
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
            if not self._is_closed:
                self._close(self._held(), processed)
            self._readiness.close()
        self.monitor.run_deferred()

    def end(self, held: Sequence[Delivery]) -> None:
        """See Receiver. A host that takes only after on_ready learns of it from the Closed of its next take."""
        if not self._is_closed:
            self._close(held)
        self._readiness.tell(self.monitor.deferred)

    def _close(self, held: Sequence[Delivery], processed: frozenset[Delivery] | None = None) -> None:
        self._is_closed = self._takes_no_more = True
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
        self._credited.notify_all()
        consumer_group.arrived.notify_all()
        self._readiness.end()
        if self.when_closed is not None:
            self.when_closed()
        # It may have been told of messages, and leaves them to others.
        distribution.wake_others(consumer_group)
        self.destination.on_consumer_closed()

    def wake_on_failure(self) -> None:
        """Make the descriptor readable, wake the loop, and call on_ready. The next take says what failed.

        Requires: the lock.
        """
        self._readiness.end()
        if self.when_closed is not None:
            self.when_closed()
        self._readiness.tell(self.monitor.deferred)

    def held_in_transactions(self) -> list[Delivery]:
        """Return its deliveries that open transactions hold. O(held). Requires: the lock."""
        return self._parts.transactions.held_by(self)

    def die(self) -> None:
        """Take and return nothing any more: the process was forked and this is the child's copy."""
        self._is_closed = self._takes_no_more = True
        self._readiness.close()

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
        state = "closed" if self._is_closed else f"{self.in_flight} in flight{', draining' * self.is_draining}"
        return f"<Consumer of {self.destination.name!r} {state}>"

    def __enter__(self) -> Consumer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def as_message(delivery: Delivery) -> Message:
    """Return the message of a delivery, with its id. A lazy one is read for each of its parts."""
    return Message(delivery.body, delivery.headers, delivery.priority, delivery.id, delivery.persistent, delivery.group)


def _batch(deliveries: object) -> tuple[Delivery, ...]:
    """Return a copy, which the caller can't change meanwhile."""
    if not isinstance(deliveries, list | tuple):
        raise ArgumentError(f"a delivery or a list of deliveries is expected, not {type(deliveries).__name__}")
    return tuple(deliveries)
