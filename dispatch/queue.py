"""Queue: sends messages to one destination and makes its consumers."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, closing
from typing import Final

from ..store.errors import Closed, Empty, SettingsError, argument_error
from ..store.locks import condition_of
from ..store.message import Message
from .admin.temporaries import Temporaries
from .config.checks import check_bounds, check_name
from .consumer.consumer import Consumer, as_message
from .consumer.options import ConsumerOptions, compiled, consumer_options
from .core.confirmer import Confirmer
from .core.destinations.queue_state import QueueState
from .core.monitor import Monitor
from .engine.doors import QueueParts
from .engine.statistics import DestinationStatistics, destination_statistics
from .producer.sender import PUBLIC as SENDER_PUBLIC
from .producer.sender import Sender
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
"""What a queue has for users."""
JOIN_POLL_SECONDS: Final = 0.025
"""Between two looks of a join, so that no ack pays for those who wait for the last one."""


class Queue(Sender):
    """Made by `Forebay.queue`. Thread-safe. Costs next to nothing to hold, 80 bytes, and nothing to make again.

    Where the queue was closed for want of use, or deleted, it holds 384 bytes of it until it is used again, which are
    charged: hosts with thousands of queues under a small limit ask for a Queue when they need it.
    """

    __slots__ = ("parts",)

    def __init__(self, parts: QueueParts, queue: QueueState, confirmer: Confirmer | None = None) -> None:
        super().__init__(parts.producers, queue, confirmer)
        self.parts = parts

    @property
    def monitor(self) -> Monitor:
        """Return the monitor of the store that the queue belongs to."""
        return self.parts.monitor

    @property
    def _area(self) -> QueueState:
        """Return the queue that this object is bound to, by its own type."""
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
        """Return a consumer that competes with the others of this queue for the messages its selector matches.

        Args:
            selector: Which messages it gets, in the words of JMS; None: all.
            prefetch: The most deliveries it may hold unsettled, 0: no bound; None: what the policy of this queue says,
                1,000 if none does.
            exclusive: True: it gets all messages and the others none. It waits until exclusive consumers before it are
                closed.
            priority: -128 to 127. Consumers of a higher priority get messages as long as their credit goes, the others
                what is left.
            on_ready: Called when a take would find something after one that found nothing, and once when the queue is
                deleted or the store closed. Never under a lock; None: nothing is called.
            on_slow: Called with the consumer when it has become slow, see DestinationPolicy. Never under a lock; None:
                nothing is called.
            ack_deadline_seconds: What it does not settle in that time comes back; 0: it has all time; None: what the
                policy says, which by default is no deadline.

        Raises SelectorError, SettingsError, Closed; StoreFull where memory has no room for it, or for a deadline.
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
        try:
            return self._attach(options)
        except Closed as refused:
            with self._anew(refused):
                return self._attach(options)

    def _attach(self, options: ConsumerOptions) -> Consumer:
        parts, monitor, queue = self.parts, self.parts.monitor, self._destination
        with monitor.lock, monitor.whole:
            monitor.raise_if_closed()
            queue.raise_if_deleted()
            with parts.deadlines.room(options.deadline_seconds):
                consumer = parts.consumers.attach(queue, options)
        if monitor.deferred:
            monitor.run_deferred()
        return consumer

    def _held_reopened(self) -> AbstractContextManager[QueueState]:
        """Keep the queue open, which is made anew if it was deleted for want of use. Requires: no lock."""
        return self.parts.destinations.held_reopened(self._area, self._confirmer)

    @property
    def current(self) -> QueueState:
        """Return the open queue of this name: also one that was made after this one was deleted for want of use.

        Requires: no lock. StoreFull: memory has no room to open it.
        """
        if self._destination.is_reopenable:
            self._bind(self.parts.destinations.current(self._area))
        return self._area

    @property
    def for_report(self) -> QueueState:
        """Return the queue of this name for a report. A closed one stays closed. Requires: the lock."""
        return self.parts.destinations.for_report(self._area)

    def get(self, timeout: float | None = None) -> Message:
        """Take the next message for good, as queue.Queue does: the message is acknowledged before this returns.

        So it never comes again, even if your process dies while it works on it. To acknowledge when the work is done,
        or to take more than a few, `subscribe`: each get makes a consumer of its own and closes it. If the call is
        interrupted before the ack, the message goes back.

        Args:
            timeout: Seconds to wait for a message; None: for ever.

        Raises Empty (a queue.Empty) when there was none; StoreFull and StoreFailed of the ack, as Consumer.ack; Closed.
        """
        check_bounds(timeout, None)
        with self.subscribe(prefetch=1, ack_deadline_seconds=0) as consumer:
            deliveries = consumer.take(1, timeout=timeout)
            if not deliveries:
                raise Empty(self._destination.name, timeout or 0.0)
            message = as_message(deliveries[0])
            consumer.ack(deliveries)
        return message

    def peek(self) -> Message | None:
        """Return the first of what `browse` yields, what is in flight included; None: the queue is empty. One load."""
        with closing(self.browse()) as messages:
            return next(messages, None)

    def join(self, timeout: float | None = None) -> bool:
        """Wait until every message is acknowledged, expired or otherwise gone; return whether the queue is empty.

        It looks 40 times a second, so that no ack has to tell it.

        Args:
            timeout: Seconds to wait; None: for ever.

        Raises Closed.
        """
        check_bounds(timeout, None)
        monitor = self.parts.monitor
        deadline = None if timeout is None else monitor.monotonic() + timeout
        never = condition_of(monitor.lock)
        with monitor.lock:
            while True:
                monitor.raise_if_closed()
                if not self.for_report.depth:
                    return True
                if deadline is not None and monitor.monotonic() >= deadline:
                    return False
                never.wait(JOIN_POLL_SECONDS)

    def browse(self, selector: str | None = None) -> Generator[Message, None, None]:
        """Yield every pending message that matches, in order, with its id. What is in flight is pending too.

        What was pending throughout comes exactly once; what comes or goes
        meanwhile may come or not. Reads the journal as it goes, up to 512
        messages or 1 MiB at a time, which stay charged until the next ones; so
        RAM does not grow with the queue. With a selector, blocks in which
        nothing matches are not read, once one with the same headers was used.
        A message that can't be read is passed over and logged. SelectorError,
        SettingsError; Closed, also on the way.
        """
        chosen = compiled(selector)
        self.parts.monitor.raise_if_closed()
        return self.parts.browsers.browse(self._area, chosen)

    def find(self, message_id: str) -> Message | None:
        """Return the pending message with this id; None: there is none.

        O(1) for an id that the store generated in a send without a transaction, as long as its message is pending. Any
        other id is looked for in the whole queue: that reads 1 µs a message of 1 KiB, in the memory of one load.

        Raises SettingsError when the id is not a str; Closed; MessagesUnreadable when some messages can't be read, and
        none of the others is it.
        """
        return self.parts.browsers.find(self._area, message_id)

    def purge(self) -> int:
        """Remove everything that is pending and not in flight; returns how many messages. They never come again.

        48 bytes in the journal for each run between those in flight, however
        long it is. What is in flight stays with its consumers, to be settled;
        what is sent meanwhile may stay. O(blocks of the index). StoreFull,
        StoreFailed, Closed: the rest is still there.
        """
        return self.parts.queue_admin.purge(self.current)

    def move(self, to: Queue | str, selector: str | None = None, limit: int | None = None) -> int:
        """Move what is pending and matches to another queue of this store, in order; return how many messages.

        A crash leaves each of them in exactly one of the two. Headers, body, priority, timestamp and own id stay. An id
        that the store generated is replaced, attempts begin at 1, and the delay of a nack ends. What is in flight, and
        what comes meanwhile, stays. Memory is constant: 256 messages at a time. If the policy of the other queue limits
        it, the move waits or fails there as a sender does.

        Args:
            to: The other queue, or its name.
            selector: Which messages move, in the words of JMS; None: all.
            limit: So many messages at most; None: no bound.

        Raises SettingsError, SelectorError; StoreFull, StoreFailed, MessageTooLarge, Closed, of which `stored` says how
        many messages had moved.
        """
        chosen = compiled(selector)
        if limit is not None and (type(limit) is not int or limit < 0):
            raise argument_error(f"limit must be an int from 0 on, or None, not {limit!r}", limit, int)
        target = (
            self.parts.destinations.queue(check_name(to), self.parts.confirmer)
            if isinstance(to, str)
            else self._other(to)
        )
        if target.number == self.current.number:
            raise SettingsError("a queue is moved to another one, not to itself")
        return self.parts.mover.move(self._area, target, chosen, limit)

    def _other(self, queue: object) -> QueueState:
        if not isinstance(queue, Queue) or queue.parts is not self.parts:
            raise argument_error(f"messages are moved to a queue of the same store, not to {queue!r}", queue, Queue)
        with queue._held_reopened() as found:
            found.raise_if_deleted()
            queue._bind(found)
        return found

    def delete(self) -> None:
        """Delete the queue with everything in it: its messages never come again, its consumers are closed.

        What is in flight is settled by that. This object sends and subscribes
        no more (Closed) and is empty for ever; the name begins anew with
        `Forebay.queue`. One record in the journal; O(blocks of the index).
        Twice is once. TransactionError while a transaction without an outcome
        sent or acknowledged here, StoreFull: it is as it was. StoreFailed, Closed.
        """
        with self.parts.destinations.held_open(self._area, is_to_go=True) as queue:
            self.parts.queue_admin.delete(queue)
        self._bind(queue)  # its own, so that it stays deleted here: of one that was closed nobody else knows who did it

    def pause(self) -> None:
        """Hand out nothing until `resume`: takes wait, callbacks are not called. Sends, acks and nacks go on.

        What is in flight stays there. Twice is once; it ends with the process. Closed.
        """
        with self._held_reopened() as queue:
            self.parts.queue_admin.pause(queue)

    def resume(self) -> None:
        """Hand out again, and wake the takes that wait. Does nothing when the queue is not paused. Closed."""
        self.parts.queue_admin.resume(self.current)

    @property
    def is_paused(self) -> bool:
        with self.parts.monitor.lock:
            return self.for_report.is_paused

    @property
    def depth(self) -> int:
        """Messages that are not acknowledged, those in flight included. O(1).

        Of this moment: in the background dead letters arrive and leave, also right after an open, and what has expired
        goes. A browser that began earlier, or begins later, may count another number.
        """
        with self.parts.monitor.lock:
            return self.for_report.depth

    @property
    def depth_bytes(self) -> int:
        """Return the bytes of the pending messages' bodies and headers. O(1)."""
        with self.parts.monitor.lock:
            return self.for_report.depth_bytes

    def __len__(self) -> int:
        """Return the depth."""
        return self.depth

    def __bool__(self) -> bool:
        """Return True, with or without messages. To ask whether there are any, use `depth`."""
        return True

    def statistics(self) -> DestinationStatistics:
        """Return a snapshot: what Forebay.statistics has of this queue. O(consumers), no disk."""
        with self.parts.monitor.lock:
            return destination_statistics(self.for_report)

    def __dir__(self) -> list[str]:
        """Return what is public; the rest is for the engine."""
        return list(PUBLIC)


class TemporaryQueue(Queue, Temporary):
    """Made by `Forebay.temporary_queue`. A context manager: the queue is gone at the end of its block.

    Others reach it by its `name`, with `Forebay.queue`, as long as it is there.
    """

    __slots__ = ()

    @property
    def _temporaries(self) -> Temporaries:
        """Return what makes and deletes temporary queues."""
        return self.parts.temporaries

    def __dir__(self) -> list[str]:
        """Return what is public; the rest is for the engine."""
        return [*PUBLIC, "close"]
