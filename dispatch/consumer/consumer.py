"""Consumer: take messages of one queue and settle them.

A Consumer is the object that a user has. Two paths are written here, because every single message passes them: the take
from RAM, and the ack. Its other methods say what they promise, and call who does the work:

- FlowControlledConsumer, its base class, knows how much it may take, and wakes who waits for it;
- its dispatcher hands out messages from RAM, and a Search finds those that are not in RAM;
- Settlements settle its deliveries;
- Processing calls the handlers of `process`;
- ConsumerEnding drains and closes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ...store.errors import ArgumentError, Closed, NestedCall, StoreFull
from ...store.journal.journal import Journal
from ...store.message import Message
from ...store.numbering import NOTHING_TO_SYNC
from ..config.checks import AT_ONCE, SECONDS_MAX, check_bounds, check_max_messages, check_seconds
from ..config.policy import check_prefetch
from ..config.redelivery_delays import REJECTED
from ..core.areas.dispatch_area import DispatchArea
from ..core.confirmer import Confirmer
from ..core.model.delivery import Delivery
from ..core.model.destination import CoreDestination, SelectorGroup
from ..core.monitor import Monitor
from ..transactions.transaction import Transaction
from .consumer_statistics import ConsumerStatistics, consumer_statistics
from .ending import ConsumerEnding, take_no_more
from .flow_controlled_consumer import FlowControlledConsumer
from .options import ConsumerOptions, consumer_charge
from .processing import ExceptionTypes, NonRetryable, Processing, run_in_threads
from .search import Search, SearchParts
from .settlements import Settlements, batch_of

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
"""The names that `dir` of a consumer shows."""


@dataclass(frozen=True, slots=True)
class ConsumerParts:
    """The parts of a store that each consumer needs in addition to its queue."""

    monitor: Monitor
    journal: Journal
    dispatch_area: DispatchArea
    searches: SearchParts
    settlements: Settlements
    ending: ConsumerEnding
    confirmer: Confirmer


class Consumer(FlowControlledConsumer):
    """A consumer, made by `Queue.subscribe` or `Topic.subscribe`.

    It is thread-safe and a context manager; iteration takes one message at a time.
    """

    # A queue may have thousands of consumers, and a dict of so many attributes takes 1.2 KiB each.
    __slots__ = ("__weakref__", "confirmer", "_is_of_a_loop", "_parts")

    def __init__(
        self,
        parts: ConsumerParts,
        destination: CoreDestination,
        selector_group: SelectorGroup,
        options: ConsumerOptions,
    ) -> None:
        """Make an open consumer. Requires: the lock."""
        super().__init__(parts.monitor, parts.dispatch_area, destination, selector_group, options)
        self._parts = parts
        self.confirmer: Confirmer = parts.confirmer
        # Whether an event loop runs its searches. Then a take that finds nothing in RAM returns at once.
        self._is_of_a_loop = options.is_of_a_loop

    @property
    def is_draining(self) -> bool:
        """Whether it takes nothing more and only settles what it holds. The lock need not be held."""
        return self.stage.is_draining

    @property
    def is_slow(self) -> bool:
        """Whether it has been slow for as long as its policy says. The lock need not be held."""
        return self.activity.is_slow

    # ------------------------------------------------------------------ taking

    @property
    def prefetch(self) -> int:
        """Most unsettled deliveries it may hold; 0: only max_messages limits a take. May be set at any time.

        While the consumer drains, it is 0, and setting it does nothing.
        """
        return 0 if self.is_draining else self.prefetch_limit

    @prefetch.setter
    def prefetch(self, prefetch: int) -> None:
        check_prefetch(prefetch)
        with self.monitor.lock, self.monitor.all_or_broken:
            if self.is_draining:
                return
            self.prefetch_limit = prefetch
            self.resume_if_credit()
            self.destination.distribution.reoffer_stranded()
        self.monitor.run_deferred()

    def take(
        self, max_messages: int = 1, *, timeout: float | None = AT_ONCE, max_bytes: int | None = None
    ) -> list[Delivery]:
        """Return up to max_messages deliveries in order, at least one if there is one; [] after timeout seconds.

        With a selector and timeout 0, a take searches one load. It may return [] although a later message matches; the
        search goes on in the background or with the next take. O(messages), without a disk read if the eager loader is
        ahead; otherwise one load, which counts as misses. The loader leaves the lists of a thread that takes without
        ever pausing to that thread, which then loads for itself.

        Args:
            max_messages: At least 1. A take returns no more than `prefetch` allows.
            timeout: Seconds to wait for the first message; 0, the default: do not wait; None: wait for ever.
            max_bytes: Limit for bodies and headers together, which the first message may exceed; None: no limit.

        Raises Closed, also while the consumer drains.
        """
        if type(max_messages) is not int or max_messages < 1:
            check_max_messages(max_messages)
        if max_bytes is not None or (
            timeout is not AT_ONCE
            and not ((type(timeout) is float or type(timeout) is int) and 0.0 <= timeout <= SECONDS_MAX)
        ):
            check_bounds(timeout, max_bytes)
        monitor = self.monitor
        if monitor.is_inside():  # from here on it has the form that core/monitor.py describes
            raise NestedCall
        with monitor.bare_lock:
            try:
                if monitor.lock.failure is not None:
                    raise monitor.lock.failure.again()
                monitor.entries += 1
                # `credit`, written inline. The condition holds if the take may return one message only: one is asked
                # for and there is credit, or the credit is one. If the consumer drains or is closed, its dispatcher
                # hands out nothing.
                if (
                    max_messages == 1 and (self.in_flight < self.prefetch_limit or not self.prefetch_limit)
                ) or self.prefetch_limit - self.in_flight == 1:
                    one = self.dispatcher.dispatch_one(self)
                    if one is not None:
                        return [one]
                if self.stage.is_over:
                    raise self.stage.refusal()
                most = self.allowance(max_messages)
                deliveries = self.dispatcher.dispatch(self, most, max_bytes) if most > 0 else []
            except BaseException as error:
                monitor.lock.break_by(error)
                raise
        if not deliveries and not self._is_of_a_loop:
            deliveries = self.search(max_messages, max_bytes).run(timeout)
        if monitor.deferred:
            monitor.run_deferred()
        return deliveries

    def __iter__(self) -> Iterator[Delivery]:
        """Yield messages, waiting for each; end when the consumer or the store is closed."""
        while True:
            try:
                deliveries = self.take(1, timeout=None)
            except Closed:
                return
            for delivery in deliveries:
                delivery.is_seen = True
                yield delivery

    def batches(self, max_messages: int, timeout: float | None = None) -> Iterator[list[Delivery]]:
        """Yield lists of 1 to max_messages deliveries, each as soon as there is a message, in the order of `take`.

        The iteration ends when no message came for timeout seconds (None: never), or the consumer or the store was
        closed. An attempt counts as after a take: when somebody looks at a delivery, not because it was yielded.
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
        """Call handler(delivery) for each message and settle it; return when the consumer is closed or has drained.

        If the handler returns, the message is acknowledged. If it raises an Exception, the message is given back and
        tried again as the policy says. A delivery that the handler settled itself is left alone. Each failure is logged
        (event `handler_raised`). Messages of one group are handled one after the other and in order, whatever the
        concurrency.

        KeyboardInterrupt gives back the message that this thread works on, without counting an attempt.
        KeyboardInterrupt, SystemExit and an error of an ack make the consumer drain, and are raised once all handlers
        have returned.

        Args:
            handler: Any callable except a coroutine function.
            concurrency: Number of calls at the same time, in this thread and others; `prefetch` limits it too. With 1,
                messages are handled strictly in order, unless one comes back after a delay.
            reject_on: Exceptions that make the message a dead letter at once, with their text as the reason.
                Default: none.

        Raises ArgumentError, StoreFull, StoreFailed.
        """
        rejections = NonRetryable(handler, concurrency, reject_on)
        iteration = iter(self)
        processing = Processing(handler, rejections, lambda: next(iteration, None))
        run_in_threads(processing.run, concurrency, self.begin_drain)

    def fileno(self) -> int:
        """Return a file descriptor that becomes readable when there may be messages after a take found none.

        Use it with select, poll, kombu's hub or trio, instead of on_ready or in addition. It may be readable although
        there is no message. It stays readable once the queue is deleted or the store closed; take then raises Closed.
        Take until there is nothing, then wait again. The first call makes two descriptors. They are closed with the
        consumer, so unregister the descriptor before that. A forked process can't use it. Raises TooManyFiles, Closed.
        """
        with self.monitor.lock:
            if self.stage.is_over:
                raise self.stage.refusal()
            return self.waits.fileno()

    # ------------------------------------------------------------------ settling

    def ack(self, deliveries: Delivery | Sequence[Delivery], *, transaction: Transaction | None = None) -> None:
        """Settle deliveries as processed. Once this returns, none of them is ever delivered again. O(deliveries).

        It writes one journal record for each run of sequences.

        Args:
            deliveries: One delivery, or a list or tuple of them.
            transaction: They are acknowledged with its commit, and in flight until then; None: now.

        Raises ArgumentError if they are no deliveries, SettingsError if one of them belongs to another consumer,
        StateError if it was settled before, AckTooLate if its deadline has passed, TransactionError if a transaction
        holds it; StoreFull if even the reserve of a full disk has no room for the ack, StoreFailed if the disk failed.
        None of them is settled then, unless it happens between two parts of a long list, or while the ack makes room on
        a full disk: those before it may be settled. After a StoreFailed they may be settled too.
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
            if monitor.is_inside():  # from here on it has the form that core/monitor.py describes
                raise NestedCall
            with monitor.bare_lock:
                try:
                    if monitor.lock.failure is not None:
                        raise monitor.lock.failure.again()
                    if monitor.entries != entries:
                        monitor.yield_interpreter()
                    monitor.entries += 1
                    if delivery.consumer is not self or lane.deliveries.get(sequence) is not delivery:
                        self._parts.settlements.check_held(self, (delivery,))
                    lane.acknowledged += lane.backing_store.acknowledge_one(lane.pending_lane, sequence)
                    # Settle before the sync, so that credit and memory are free early. An ack that a power cut loses
                    # was not confirmed yet, and the message comes again.
                    self._dispatch_area.settle(delivery)
                    if lane.delivery_counts is not None:
                        lane.trim_delivery_counts(sequence, sequence)
                    if self.waits.acks_wake_somebody:
                        self._parts.settlements.after_ack(self, (delivery,))
                    journal_end = self._parts.journal.end if lane.syncs else NOTHING_TO_SYNC
                except BaseException as error:
                    monitor.lock.break_by(error)
                    raise
        except StoreFull as full:
            # Nothing is settled yet. If the delivery goes back while the lock is free, `Settlements.ack` refuses it.
            self._parts.settlements.make_disk_space(full)
            self._parts.settlements.ack(self, (delivery,), self.confirmer)
            return
        self.confirmer.confirm(journal_end)

    def ack_up_to(self, delivery: Delivery) -> None:
        """Acknowledge this delivery and all that this consumer took before it and still holds. O(in flight).

        Raises what `ack` raises if this delivery is not the consumer's to settle, AckTooLate included. Nothing is
        settled then, unless it happens between two parts of a long list, as `ack` says. One taken before it that went
        back meanwhile is passed over.
        """
        self._parts.settlements.ack_up_to(self, delivery, self.confirmer)

    def nack(self, deliveries: Delivery | Sequence[Delivery], delay: float = 0.0) -> None:
        """Give deliveries back as failed attempts. They return to their places with attempts + 1. O(deliveries).

        The attempts are in the journal when this returns. If the disk is full or the store has failed, they are counted
        in RAM alone. After `max_attempts` a message is delivered only by the dead-letter queue.

        Args:
            deliveries: One delivery, or a list or tuple of them.
            delay: Seconds until they may be handed out again. A longer delay of the queue's policy counts instead.
        """
        batch = batch_of(deliveries)
        check_seconds("delay", delay)
        self._parts.settlements.nack(self, batch, delay, self.confirmer)

    def release(self, deliveries: Delivery | Sequence[Delivery]) -> None:
        """Give deliveries back as not tried. They return to their places at once, and no attempt counts.

        Use it for messages that were taken ahead and are left to other consumers. If a killed process may have had a
        message in flight before, one attempt of it stays counted. Raises SettingsError, StateError, TransactionError as
        `ack` does. O(deliveries).
        """
        self.return_untried(batch_of(deliveries))
        self.monitor.run_deferred()

    def reject(
        self,
        deliveries: Delivery | Sequence[Delivery],
        reason: str = REJECTED,
        *,
        transaction: Transaction | None = None,
    ) -> None:
        """Make deliveries dead letters now, however many attempts they had.

        They go to the dead-letter queue of their policy. If there is none, or they are taken from a dead-letter queue,
        they are deleted. A crash leaves each message in exactly one of the two places.

        Args:
            deliveries: One delivery, or a list or tuple of them.
            reason: Value of the header `dead_letter_reason` of the dead letters.
            transaction: They become dead letters with its commit; None: now.

        Raises SettingsError, StateError, TransactionError as `ack` does. StoreFull: the remaining deliveries are still
        held; roll the transaction back if there is one.
        """
        if type(reason) is not str:
            raise ArgumentError(f"a reason must be a str, not {type(reason).__name__}")
        self._parts.settlements.reject(self, deliveries, reason, transaction)

    def extend(self, deliveries: Delivery | Sequence[Delivery], seconds: float) -> None:
        """Move the ack deadline of deliveries to so many seconds from now, which may be later or earlier than before.

        Call it again and again for work that takes long. It does nothing if the consumer has no deadline.
        O(deliveries).

        Args:
            deliveries: One delivery, or a list or tuple of them.
            seconds: At least 0.

        Raises AckTooLate if the deadline has passed already; SettingsError, StateError, TransactionError as `ack` does;
        StoreFull if memory has no room for the new deadline. Nothing has changed after StoreFull.
        """
        batch = batch_of(deliveries)
        check_seconds("seconds", seconds)
        self._parts.settlements.extend(self, batch, seconds)

    # ------------------------------------------------------------------ the rest

    def drain(self, timeout: float | None = None) -> bool:
        """Take nothing more, and wait until all deliveries are settled; return whether they are.

        From now on takes raise Closed, including those that wait, and iterations end. This can't be undone. Other
        consumers get at once the messages that were assigned to this one, and each of its groups as soon as this one
        holds no message of it. An exclusive consumer stays exclusive until it is closed. Settle the deliveries in
        flight meanwhile, then close: no attempt is lost.

        From a signal handler or finalizer inside a call of the store, this returns False, and the drain begins when
        that call has ended. It checks 40 times a second.

        Args:
            timeout: Seconds to wait; None: for ever. After the timeout the consumer still drains: call again, or close.

        Raises Closed: the store is closed.
        """
        check_bounds(timeout, None)
        return self._parts.ending.drain(self, timeout)

    def close(self, *, processed: Delivery | Sequence[Delivery] | None = None) -> None:
        """Give back all deliveries, for other consumers to take, and wake its own waiting takes.

        A second call does nothing.

        From a signal handler or finalizer inside a call of the store, it is done when that call has ended.

        Args:
            processed: Count an attempt at these deliveries and at no others, whatever the policy says; settled ones are
                ignored. None: count one at those that somebody has looked at; see `count_on_close` of the policy.

        Raises ArgumentError, and SettingsError for a delivery of another consumer; the consumer is not closed then.
        """
        self._parts.ending.close(self, processed)

    def statistics(self) -> ConsumerStatistics:
        """Return a snapshot. O(lists and consumers of the selector group); it reads no disk.

        The watermarks of all consumers of a selector group add up to those of its lists.
        """
        with self.monitor.lock:
            return consumer_statistics(self)

    def __dir__(self) -> list[str]:
        """Return the public names; the others are for the engine."""
        return list(PUBLIC)

    def __repr__(self) -> str:
        state = "closed" if self.stage.is_closed else f"{self.in_flight} in flight{', draining' * self.is_draining}"
        return f"<Consumer of {self.destination.name!r} {state}>"

    def __enter__(self) -> Consumer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------------ for the engine

    def attach_loop(
        self, confirmer: Confirmer, *, when_moved: Callable[[], None], when_closed: Callable[[], None]
    ) -> None:
        """Let an event loop confirm the acks of this consumer, and learn when it moves or closes.

        when_moved: called under the lock when it moves to another selector group. when_closed: called under the lock
            when it closes.
        """
        self.confirmer = confirmer
        self.waits.attach_loop(when_moved, when_closed)

    def search(self, max_messages: int, max_bytes: int | None) -> Search:
        """Return the search of a take that found nothing in RAM."""
        return Search(self._parts.searches, self, max_messages, max_bytes)

    def return_untried(self, deliveries: Sequence[Delivery]) -> None:
        """Return deliveries as `release` does, without calling the callbacks that are due then."""
        self._parts.settlements.release(self, deliveries)

    def check_held(self, deliveries: Sequence[object]) -> None:
        """Raise what `ack` raises if one of these is not its to settle. Requires: the lock."""
        self._parts.settlements.check_held(self, deliveries)

    def begin_drain(self) -> None:
        """Begin to drain as `drain` does, without waiting. A second call does nothing. Requires: no lock."""
        self._parts.ending.begin_drain(self)

    @property
    def is_drained(self) -> bool:
        """Whether every delivery is settled. Closed: the store is closed."""
        return self._parts.ending.is_drained(self)

    def withdraw(self) -> None:
        """Close it before its host has got it, so without a callback. Requires: the lock."""
        self._parts.ending.withdraw(self)

    def close_with_destination(self, held: Sequence[Delivery]) -> None:
        """Close it because its queue or the store ends. held: its deliveries. Requires: the lock."""
        self._parts.ending.close_with_destination(self, held)

    def held_in_transactions(self) -> list[Delivery]:
        """Return its deliveries that open transactions hold. O(deliveries held). Requires: the lock."""
        return self._parts.settlements.held_in_transactions(self)

    def disable_in_child(self) -> None:
        """Take and give back nothing any more, because this object is the copy in a forked child."""
        take_no_more(self)
        self.waits.close()

    @property
    def charge_bytes(self) -> int:
        """The charge of the consumer in RAM, without its selector group and lists."""
        return consumer_charge(is_of_a_loop=self._is_of_a_loop)


def delivered_message(delivery: Delivery) -> Message:
    """Return the message of a delivery, with its id. A lazy delivery is read once for each part."""
    return Message(delivery.body, delivery.headers, delivery.priority, delivery.id, delivery.persistent, delivery.group)
