"""Queue: send messages to one destination, and make its consumers."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, closing
from typing import Final

from ..store.environment.locks import condition_of
from ..store.errors import Closed, Empty, SettingsError, argument_error
from ..store.message import Message
from .admin.temporaries import TemporaryDestinations
from .config.checks import check_bounds, check_name
from .consumer.consumer import Consumer, delivered_message
from .consumer.options import ConsumerOptions, compiled, consumer_options
from .core.confirmer import Confirmer
from .core.destinations.queue_state import QueueState
from .core.monitor import Monitor
from .engine.facade_parts import QueueParts
from .engine.statistics import DestinationStatistics, destination_statistics
from .producer.sender import PUBLIC as SENDER_PUBLIC
from .producer.sender import Sender
from .selectors.selector import Selector
from .temporary import Temporary

PUBLIC: Final = (
    *SENDER_PUBLIC,
    "browse",
    "delete",
    "depth",
    "depth_bytes",
    "find",
    "get",
    "is_paused",
    "join",
    "move",
    "pause",
    "peek",
    "purge",
    "resume",
    "statistics",
    "subscribe",
)
"""The names that `dir` of a queue shows."""
JOIN_POLL_SECONDS: Final = 0.025
"""A join checks this often whether the queue is empty, so that no ack has to wake it."""


class Queue(Sender):
    """A queue, made by `Forebay.queue`. Thread-safe. It takes 80 bytes, and making it again costs nothing.

    While the queue is closed because nobody uses it, or deleted, the object takes 384 bytes, which are charged. Hosts
    with thousands of queues under a small limit should ask for a Queue when they need it.
    """

    __slots__ = ("_parts",)

    def __init__(self, parts: QueueParts, queue: QueueState, confirmer: Confirmer | None = None) -> None:
        super().__init__(parts.sender_parts, queue, confirmer)
        self._parts = parts

    @property
    def monitor(self) -> Monitor:
        """The monitor of the store that the queue belongs to."""
        return self._parts.monitor

    @property
    def _queue_state(self) -> QueueState:
        """The queue that this object is bound to, with its exact type."""
        assert isinstance(self._destination, QueueState)
        return self._destination

    def subscribe(
        self,
        *,
        selector: str | None = None,
        prefetch: int | None = None,
        exclusive: bool = False,
        priority: int = 0,
        on_ready: Callable[[], None] | None = None,
        on_slow: Callable[[Consumer], None] | None = None,
        ack_deadline_seconds: float | None = None,
    ) -> Consumer:
        """Return a consumer, which competes with the others of this queue for the messages that its selector matches.

        Args:
            selector: Which messages it gets, as a JMS selector; None: all.
            prefetch: Most deliveries it may hold unsettled; 0: no limit; None: what the policy of this queue says, or
                1,000 by default.
            exclusive: True: it gets all messages and the others get none. It waits until earlier exclusive consumers
                are closed.
            priority: -128 to 127. Consumers of a higher priority get messages as long as they have credit, the others
                what is left.
            on_ready: Called when there may be messages after a take found none, and once when the queue is deleted or
                the store closed. Never called under a lock; None: nothing is called.
            on_slow: Called with the consumer when it has become slow, see DestinationPolicy. Never called under a
                lock; None: nothing is called.
            ack_deadline_seconds: A delivery that is not settled within this time comes back; 0: there is no deadline;
                None: what the policy says, by default no deadline.

        Raises SelectorError, SettingsError, Closed; StoreFull if memory has no room for it, or for a deadline.
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
        try:
            return self._attach(options)
        except Closed as refused:
            with self._in_reopened(refused):
                return self._attach(options)

    def _attach(self, options: ConsumerOptions) -> Consumer:
        parts, monitor, queue = self._parts, self._parts.monitor, self._destination
        with monitor.lock, monitor.while_open:
            queue.raise_if_not_open()
            with parts.consumers.reserving(options):
                consumer = parts.consumers.attach(queue, options)
        if monitor.deferred:
            monitor.run_deferred()
        return consumer

    def _held_reopened(self) -> AbstractContextManager[QueueState]:
        """Keep the queue open; make it anew if it was deleted as inactive. Requires: no lock."""
        return self._parts.queues.held_reopened(self._queue_state, self._confirmer)

    @property
    def current(self) -> QueueState:
        """The open queue of this name, even one that was made after this one was deleted as inactive.

        Requires: no lock. StoreFull: memory has no room to open it.
        """
        if self._destination.is_reopenable:
            self._bind(self._parts.queues.current(self._queue_state))
        return self._queue_state

    @property
    def for_report(self) -> QueueState:
        """The queue of this name for a report. A closed one stays closed. Requires: the lock."""
        return self._parts.queues.for_report(self._queue_state)

    def get(self, timeout: float | None = None) -> Message:
        """Take the next message for good, as queue.Queue does: it is acknowledged before this returns.

        The message never comes again, even if your process dies while it works on it. To acknowledge when the work is
        done, or to take more than a few messages, use `subscribe`: each get makes a consumer of its own and closes it.
        If the call is interrupted before the ack, the message goes back.

        Args:
            timeout: Seconds to wait for a message; None: for ever.

        Raises Empty (a queue.Empty) if there was none; StoreFull and StoreFailed of the ack, as Consumer.ack; Closed.
        """
        check_bounds(timeout, None)
        with self.subscribe(prefetch=1, ack_deadline_seconds=0) as consumer:
            deliveries = consumer.take(1, timeout=timeout)
            if not deliveries:
                raise Empty(self._destination.name, timeout or 0.0)
            message = delivered_message(deliveries[0])
            consumer.ack(deliveries)
        return message

    def peek(self) -> Message | None:
        """Return the first message of `browse`, which may be in flight. None: the queue is empty. One load."""
        with closing(self.browse()) as messages:
            return next(messages, None)

    def join(self, timeout: float | None = None) -> bool:
        """Wait until every message is acknowledged, expired or otherwise gone; return whether the queue is empty.

        It checks 40 times a second, so that no ack has to wake it.

        Args:
            timeout: Seconds to wait; None: for ever.

        Raises Closed.
        """
        check_bounds(timeout, None)
        monitor = self._parts.monitor
        deadline = None if timeout is None else monitor.monotonic() + timeout
        never = condition_of(monitor.lock)
        with monitor.lock:
            while True:
                monitor.raise_if_closed()
                if not self.for_report.depth:
                    return True
                left_seconds = JOIN_POLL_SECONDS if deadline is None else deadline - monitor.monotonic()
                if left_seconds <= 0:
                    return False
                never.wait(min(left_seconds, JOIN_POLL_SECONDS))

    def browse(self, selector: str | None = None) -> Generator[Message, None, None]:
        """Yield every pending message that matches, in order, with its id. Messages in flight are pending too.

        A message that is pending throughout comes exactly once. One that comes or goes meanwhile may come or not. It
        reads the journal as it goes, up to 512 messages or 1 MiB at a time. These stay charged until the next ones are
        read, so RAM does not grow with the queue. With a selector, blocks without a match are not read, once a selector
        with the same headers was used. A message that can't be read is skipped and logged. SelectorError,
        SettingsError; Closed, also during the iteration.
        """
        chosen = compiled(selector)
        self._parts.monitor.raise_if_closed()
        return self._parts.browsers.browse(self._queue_state, chosen)

    def windows(self, selector: Selector | None) -> Generator[list[Message], None, None]:
        """Yield what `browse` yields, as it is read: up to 512 messages at a time. forebay.aio calls it."""
        return self._parts.browsers.windows(self.current, selector)

    def for_threads(self) -> Queue:
        """Return the same queue for worker threads, in which calls wait. forebay.aio calls it."""
        return Queue(self._parts, self.current)

    def find(self, message_id: str) -> Message | None:
        """Return the pending message with this id. None: there is none.

        O(1) for an id that the store generated in a send without a transaction, as long as its message is pending. Any
        other id is searched for in the whole queue: that takes 1 µs for each message of 1 KiB, in the memory of one
        load.

        Raises SettingsError if the id is not a str; Closed; MessagesUnreadable if some messages can't be read, and none
        of the others has the id.
        """
        return self._parts.browsers.find(self._queue_state, message_id)

    def purge(self) -> int:
        """Remove all pending messages that are not in flight; return how many. They never come again.

        It writes 48 bytes to the journal for each run between messages in flight, however long the run is. Messages in
        flight stay with their consumers, to be settled; messages that are sent meanwhile may stay. O(blocks of the
        index). StoreFull, StoreFailed, Closed: the rest is still there.
        """
        return self._parts.queue_admin.purge(self.current)

    def move(self, to: Queue | str, selector: str | None = None, limit: int | None = None) -> int:
        """Move pending messages that match to another queue of this store, in order; return how many.

        A crash leaves each of them in exactly one of the two queues. Headers, body, priority, timestamp and own id
        stay. An id that the store generated is replaced, attempts begin at 1, and the delay of a nack ends. Messages in
        flight stay, and so do messages that come meanwhile. Memory is constant: 256 messages at a time. If the policy
        of the other queue limits it, the move waits or fails there as a sender does.

        Args:
            to: The other queue, or its name.
            selector: Which messages move, as a JMS selector; None: all.
            limit: Most messages to move; None: no limit.

        Raises SettingsError, SelectorError; StoreFull, StoreFailed, MessageTooLarge or Closed, whose attribute `stored`
        says how many messages had moved.
        """
        chosen = compiled(selector)
        if limit is not None and (type(limit) is not int or limit < 0):
            raise argument_error(f"limit must be an int from 0 on, or None, not {limit!r}", limit, int)
        target = (
            self._parts.queues.open_or_create(check_name(to), self._parts.confirmer)
            if isinstance(to, str)
            else self._other(to)
        )
        if target.number == self.current.number:
            raise SettingsError("a queue is moved to another one, not to itself")
        return self._parts.mover.move(self._queue_state, target, chosen, limit)

    def _other(self, queue: object) -> QueueState:
        if not isinstance(queue, Queue) or queue.monitor is not self.monitor:
            raise argument_error(f"messages are moved to a queue of the same store, not to {queue!r}", queue, Queue)
        with queue._held_reopened() as destination:
            destination.raise_if_not_open()
            queue._bind(destination)
        return destination

    def delete(self) -> None:
        """Delete the queue with everything in it: its messages never come again, and its consumers are closed.

        This settles messages in flight. This object sends and subscribes no more (Closed) and is empty for ever; the
        name begins anew with `Forebay.queue`. It writes one record to the journal; O(blocks of the index). A second
        call does nothing. TransactionError: a transaction without an outcome sent or acknowledged here. StoreFull:
        nothing has changed. StoreFailed, Closed.
        """
        with self._parts.queues.held_open(self._queue_state, is_to_go=True) as queue:
            self._parts.queue_admin.delete(queue)
        self._bind(queue)  # to the deleted state: a closed queue was opened for this, and the old state could reopen it

    def pause(self) -> None:
        """Hand out nothing until `resume`: takes wait, and callbacks are not called. Sends, acks and nacks go on.

        Messages in flight stay there. A second call does nothing. The pause ends with the process. Closed.
        """
        with self._held_reopened() as queue:
            self._parts.queue_admin.pause(queue)

    def resume(self) -> None:
        """Hand out again, and wake waiting takes. Does nothing if the queue is not paused. Closed."""
        self._parts.queue_admin.resume(self.current)

    @property
    def is_paused(self) -> bool:
        with self._parts.monitor.lock:
            return self.for_report.is_paused

    @property
    def depth(self) -> int:
        """Number of messages that are not acknowledged, including those in flight. O(1).

        It is the number at this moment. Background work changes it too: dead letters arrive and leave, even right after
        an open, and expired messages are removed. So a browse may count another number.
        """
        with self._parts.monitor.lock:
            return self.for_report.depth

    @property
    def depth_bytes(self) -> int:
        """Bytes of the pending messages' bodies and headers. O(1)."""
        with self._parts.monitor.lock:
            return self.for_report.depth_bytes

    def __len__(self) -> int:
        """Return the depth."""
        return self.depth

    def __bool__(self) -> bool:
        """Return True, with or without messages. To ask whether there are any, use `depth`."""
        return True

    def statistics(self) -> DestinationStatistics:
        """Return a snapshot: the part of Forebay.statistics for this queue. O(consumers), no disk."""
        with self._parts.monitor.lock:
            return destination_statistics(self.for_report)

    def __dir__(self) -> list[str]:
        """Return the public names; the others are for the engine."""
        return list(PUBLIC)


class TemporaryQueue(Queue, Temporary):
    """A temporary queue, made by `Forebay.temporary_queue`. A context manager, which deletes the queue at its end.

    While it exists, others reach it by its `name` with `Forebay.queue`.
    """

    __slots__ = ()

    @property
    def _temporaries(self) -> TemporaryDestinations:
        """The owner of temporary queues."""
        return self._parts.temporaries

    def __dir__(self) -> list[str]:
        """Return the public names; the others are for the engine."""
        return [*PUBLIC, "close"]
