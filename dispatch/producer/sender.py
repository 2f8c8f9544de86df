"""Sender: the common base of Queue and Topic, with everything that sends.

A send checks and encodes its arguments before it takes the lock. Then there are three ways to the store:

1. `_store_persistent`, `_store_non_persistent` or `_add_to_transaction` stores a single message at once, if there is
   room for it.
2. A single message that these functions cannot store, such as one with a delay, becomes a Batch. If its destination has
   no limits, `_send_batch` has the SendPipeline store the Batch at once.
3. A `send_many`, and a message that found no room, goes in steps that may wait. Batching divides a `send_many` into
   Batches, and the SendPipeline stores each of them.
"""

from __future__ import annotations

import reprlib
from collections.abc import Generator, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final

from ...cache.accounting.charge import OVERHEAD_BYTES
from ...store.errors import ArgumentError, Closed, ForebayError, NestedCall, SettingsError, StoreFull, argument_error
from ...store.format.contents import Contents
from ...store.message import DEFAULT_PRIORITY, NO_DELAY, Headers, Message
from ...store.numbering import NOTHING_TO_SYNC, PRIORITIES
from ..admission.limits import Wait
from ..config.checks import deadline_after
from ..core.confirmer import Confirmer
from ..core.destinations.destination_state import NamedDestinationState
from ..core.lanes.non_persistent_lane_state import NonPersistentLaneState
from ..core.model.lifecycle import Lifecycle
from ..topics.state.fan_out import FanOut
from ..transactions.transaction import Transaction
from .batching import Batch, Batching
from .encoding import as_bytes, encoded_headers, encoded_message, encoded_properties
from .send_pipeline import SendPipeline, checked_non_persistent, checked_priority
from .sender_parts import SenderParts

PUBLIC: Final = ("name", "send", "send_many")
"""The public names of every sender. Queue and Topic add theirs."""


class Sender:
    """The common base of Queue and Topic, to which messages are sent.

    Hosts keep thousands of senders, and no sender is charged, so a sender has slots and no dict. Sender is no abstract
    base class: in machine code Queue and Topic would share one cache of ABCMeta, and isinstance would err about topics.
    """

    __slots__ = ("_sender_parts", "_destination", "_confirmer", "_limits", "__weakref__")

    def __init__(
        self, parts: SenderParts, destination: NamedDestinationState, confirmer: Confirmer | None = None
    ) -> None:
        """Make a sender for a destination.

        confirmer: confirms for an event loop; None: the thread that sends waits for the sync itself.
        """
        self._sender_parts = parts
        self._destination = destination
        self._confirmer: Confirmer = confirmer if confirmer is not None else parts.thread_confirmer
        self._limits = destination.limits

    def _make_pipeline(self) -> SendPipeline:
        """Make the pipeline of one send that waits or has several messages."""
        return SendPipeline(self._sender_parts, self._destination, self._confirmer, self._open_non_persistent)

    @property
    def name(self) -> str:
        return self._destination.name

    @property
    def destination(self) -> NamedDestinationState:
        """The open destination to which it sends now, also after a first one was closed or deleted as inactive."""
        return self._destination

    # ------------------------------------------------------------------ one message

    def send(
        self,
        body: bytes | bytearray | memoryview,
        *,
        headers: Headers | None = None,
        priority: int = DEFAULT_PRIORITY,
        message_id: str | None = None,
        transaction: Transaction | None = None,
        persistent: bool = True,
        group: str | None = None,
        expires_in: float | None = None,
        delay: float = NO_DELAY,
        producer: str | None = None,
        timeout: float | None = None,
        retain: bool | str = False,
    ) -> str:
        """Store one message and return its id. When it returns, the message is as safe as `sync` promises.

        A persistent message outside a transaction is one journal record. No send waits for memory. If the policy has a
        duplicate_window and this producer has sent the id before, that id is returned and nothing is stored.

        Args:
            body: The bytes to send. A bytearray or memoryview is copied, bytes are not.
            headers: Names and values that travel with the body; None: there are none.
            priority: 0 to 9. Messages of a higher priority are delivered first.
            message_id: The id of the message; None: the store generates one.
            transaction: The message counts with its commit; None: at once.
            persistent: False: nothing is journaled, and the message ends with the process.
            group: Messages of one group go to one consumer at a time, in order; None: the message is in no group.
            expires_in: Seconds until the message is no longer handed out; None: it never expires.
            delay: Seconds until it may be handed out, 0 by default; in a transaction they begin with the commit.
            producer: Who gave the message_id: each producer has a duplicate_window of its own.
            timeout: Seconds to wait for room; None: as the policy of the destination says.
            retain: True, or the name of a header: a topic keeps the message for later subscriptions, see Topic.

        Raises MessageTooLarge, SettingsError, StoreFull, SpillFailed, TransactionError or Closed, and has stored
        nothing; or StoreFailed, and may have stored the message.
        """
        if type(body) is not bytes:
            body = as_bytes(body)
        # send_message takes any message. What follows it is faster, and takes all messages except these:
        if (
            # with a delay
            (delay is not NO_DELAY and delay != 0.0)
            # retained by its topic
            or retain is not False
            # with a lifetime, if it is in a transaction or non-persistent
            or (expires_in is not None and (transaction is not None or persistent is not True))
            # the first one with a group, for which the queue must be prepared
            or (
                group is not None
                and not self._destination.has_message_groups
                and self._destination.keeps_message_groups
            )
        ):
            message = Message(body, headers, priority, message_id, persistent, group, expires_in, delay, producer)
            return self.send_message(message, retain, transaction, timeout)
        if timeout is not None:
            self._deadline(timeout)  # an invalid timeout is refused even if there is room
        parts = self._sender_parts
        if group is not None or message_id is not None or producer is not None:
            properties = encoded_properties(headers, message_id, group, producer)
        elif headers is not None:
            properties = encoded_headers(headers)
        else:
            properties = b""
        expires_at = 0
        if expires_in is None:
            now_ms = parts.clock_ms()
        else:
            now_ms, _, expires_at, lifetime = parts.lifetimes.from_now(expires_in)
            properties = lifetime + properties
        if len(body) + len(properties) > parts.max_message_bytes:
            raise parts.too_large(len(body) + len(properties))
        if transaction is not None or (message_id is not None and self._destination.has_duplicate_window):
            if transaction is not None and persistent is True:
                contents = Contents([properties], [body])
                sent_id = self._add_to_transaction(transaction, priority, now_ms, contents, message_id)
                if sent_id is not None:
                    return sent_id
            batch = self._batch_of_one(
                priority, persistent, properties, body, message_id=message_id, transaction=transaction, timeout=timeout
            )
            return self._send_batch(batch)
        if persistent is True:
            return self._store_persistent(
                priority, now_ms, expires_at, properties, body, message_id=message_id, timeout=timeout
            )
        return self._store_non_persistent(
            priority, persistent, now_ms, properties, body, message_id=message_id, timeout=timeout
        )

    # Each single send calls one of the next functions. No object holds their arguments, because making it would cost
    # each send time. By position come, in this order: where the message goes (priority, persistent), its times, and its
    # content. The type of an argument is `object` as long as nobody has checked what the host gave: machine code
    # would raise TypeError for a wrong type, where the function raises ArgumentError.

    def _store_persistent(
        self,
        priority: object,
        now_ms: int,
        expires_at: int,
        properties: bytes,
        body: bytes,
        *,
        message_id: str | None,
        timeout: object,
    ) -> str:
        """Store one persistent message, outside a transaction and without deduplication; return its id."""
        parts, journal_end = self._sender_parts, NOTHING_TO_SYNC
        try:
            if (  # the first three are checked_priority, written inline
                type(priority) is not int
                or priority < 0
                or priority >= PRIORITIES
                or (lane := self._destination.lanes[priority]) is None
            ):
                lane = self._make_pipeline().ensure_lane(priority)
            monitor = parts.monitor
            entries = monitor.entries
            if monitor.is_inside():  # from here on it has the form that core/monitor.py describes
                raise NestedCall
            with monitor.bare_lock:
                try:
                    if monitor.lock.failure is not None:
                        raise monitor.lock.failure.again()
                    if monitor.entries != entries:
                        monitor.yield_interpreter()
                    monitor.entries += 1
                    if self._limits is not None:
                        self._limits.require_room(len(properties) + len(body))
                    if expires_at:
                        sequence = parts.message_store.add_expiring(
                            lane.destination_lane, now_ms, properties, body, expires_at
                        )
                        if not lane.is_timed:
                            parts.timed.note(lane)
                    else:
                        sequence = parts.message_store.add(lane.destination_lane, now_ms, properties, body)
                    message = (sequence, properties, body, now_ms)
                    if parts.syncs_always:
                        charge = len(properties) + OVERHEAD_BYTES + len(body)  # charge_of, written inline
                        journal_end = parts.publisher.hold_until_durable(lane, (message,), charge)
                    else:
                        # publish_when_durable, written inline: it would make three more calls. It would pass holes too.
                        # Here are none: only a commit leaves holes, and it has passed them in its own section.
                        lane.arrive(message)
                except BaseException as error:
                    monitor.lock.break_by(error)
                    raise
        except (StoreFull, Closed) as refused:
            batch = self._batch_of_one(
                priority, True, properties, body, message_id=message_id, transaction=None, timeout=timeout
            )
            return self._send_batch(batch, refused)
        self._confirmer.confirm(journal_end)
        return message_id if message_id is not None else f"{lane.id_prefix}{sequence}"

    def _store_non_persistent(
        self,
        priority: object,
        persistent: object,
        now_ms: int,
        properties: bytes,
        body: bytes,
        *,
        message_id: str | None,
        timeout: object,
    ) -> str:
        """Add one non-persistent message, outside a transaction and without times; return its id."""
        parts = self._sender_parts
        monitor = parts.monitor
        try:
            lane: NonPersistentLaneState | FanOut | None
            if (  # the first three are checked_priority, written inline
                type(priority) is not int
                or priority < 0
                or priority >= PRIORITIES
                or (lane := self._destination.non_persistent_lanes[priority]) is None
                or persistent is not False
            ):
                lane = self._open_non_persistent(self._destination, checked_non_persistent(persistent, priority))
            entries = monitor.entries
            if monitor.is_inside():  # from here on it has the form that core/monitor.py describes
                raise NestedCall
            with monitor.bare_lock:
                try:
                    if monitor.lock.failure is not None:
                        raise monitor.lock.failure.again()
                    if monitor.entries != entries:
                        monitor.yield_interpreter()
                    monitor.entries += 1
                    if monitor.is_closed:
                        raise Closed("the store")
                    if self._limits is not None:
                        self._limits.require_room(len(properties) + len(body))
                    sequence = lane.add(now_ms, properties, body)
                except BaseException as error:
                    monitor.lock.break_by(error)
                    raise
        except (StoreFull, Closed) as refused:
            batch = self._batch_of_one(
                priority, persistent, properties, body, message_id=message_id, transaction=None, timeout=timeout
            )
            return self._send_batch(batch, refused)
        if monitor.deferred:
            monitor.run_deferred()
        return message_id if message_id is not None else f"{lane.id_prefix}{sequence}"

    def _add_to_transaction(
        self, transaction: object, priority: object, now_ms: int, contents: Contents, message_id: str | None
    ) -> str | None:
        """Add one message to a transaction and return its id. A batch of one message would cost a tenth more.

        None: the destination has a limit, no room, or is gone. The caller then sends the message as a batch.
        """
        checked = self.checked_transaction(transaction)
        if self._limits is not None:
            return None
        ids: list[str] = []
        try:
            if (  # the first three are checked_priority, written inline
                type(priority) is not int
                or priority < 0
                or priority >= PRIORITIES
                or (lane := self._destination.lanes[priority]) is None
            ):
                lane = self._make_pipeline().ensure_lane(priority)
            checked.add(lane, now_ms, contents, (message_id,), ids)
        except (StoreFull, Closed):
            return None
        return ids[0]

    def send_message(self, message: Message, retain: object, transaction: object, timeout: object) -> str:
        """Send one message with any option of `send`, such as a delay or `retain`; return its id."""
        if type(retain) is not bool and not isinstance(retain, str):
            raise argument_error(
                f"retain must be True, False, or the name of a header, not {reprlib.repr(retain)}", retain, bool, str
            )
        if retain is not False:
            return self._send_retained(message, retain, transaction, timeout)
        return self._send_batch(self._batch_of(message, transaction, self._deadline(timeout)))

    def _send_retained(self, message: Message, retain: bool | str, transaction: object, timeout: object) -> str:
        """Send a message that the topic retains; return its id. SettingsError: the destination is not a topic.

        retain: True, or the name of a header.
        """
        raise SettingsError(f"{self.name!r} is a queue, which retains no message: send to a topic, or without retain")

    # ------------------------------------------------------------------ one message, if it may have to wait

    def _send_batch(self, batch: Batch, refused: StoreFull | Closed | None = None) -> str:
        """Send a batch of one message, waiting for room if there is none; return the id.

        refused: why it was not stored at once; None: nobody has tried.
        """
        if refused is None and self._limits is None:  # if there is room, no generator is needed
            pipeline = self._make_pipeline()
            try:
                pipeline.store_now(batch)
            except (StoreFull, Closed) as error:
                return self._confirmer.run(self._send_steps(batch, error))
            return pipeline.confirm(batch)
        return self._confirmer.run(self._send_steps(batch, refused))

    def send_steps(self, message: Message, transaction: object, deadline: float | None) -> Generator[Wait, None, str]:
        """Send one message in steps; return its id. The caller waits between the steps."""
        return self._send_steps(self._batch_of(message, transaction, deadline), None)

    def _send_steps(self, batch: Batch, refused: StoreFull | Closed | None) -> Generator[Wait, None, str]:
        """Send a batch of one message in steps; return the id."""
        yield from self._store_steps(batch, refused)
        return self._make_pipeline().confirm(batch)

    def _store_steps(self, batch: Batch, refused: StoreFull | Closed | None = None) -> Generator[Wait, None, None]:
        """Store a batch, in steps. If its destination was closed or deleted as inactive, open it or make it anew."""
        if isinstance(refused, Closed):
            yield from self._store_in_reopened(batch, refused)
            return
        try:
            yield from self._make_pipeline().store(batch, refused)
        except Closed as error:
            yield from self._store_in_reopened(batch.rest(), error)

    def _store_in_reopened(self, batch: Batch, refused: Closed) -> Generator[Wait, None, None]:
        """Store a batch, in steps, in the destination that replaces one that was closed or deleted as inactive."""
        with self._in_reopened(refused):
            yield from self._make_pipeline().store(batch)

    # ------------------------------------------------------------------ many messages

    def send_many(
        self, messages: Iterable[Message], *, transaction: Transaction | None = None, timeout: float | None = None
    ) -> list[str]:
        """Store messages in order and return their ids. O(messages).

        They are written in slices of up to 256 messages or 256 KiB. Each slice is atomic and one write (with
        use_vectored_io=False, a slice is one message). They are synced at the end, and before that whenever 8 slices of
        the whole store wait for a sync: every 2 MiB, or sooner if messages are small or others send too.

        Args:
            messages: Any iterable of Message; it may be longer than memory.
            transaction: The messages count with its commit; None: at once.
            timeout: Seconds to wait for room in all, if a limit or the disk is full; None: as the policy says.

        Raises what `send` raises. The attribute `.stored` of the error says how many of the first messages are stored;
        for all or nothing use a transaction.
        """
        ids: list[str] = []
        self._confirmer.run(self.send_many_steps(messages, ids, transaction, self._deadline(timeout)))
        return ids

    def send_many_steps(
        self, messages: Iterable[Message], ids: list[str], transaction: object, deadline: float | None
    ) -> Generator[Wait, None, None]:
        """Send many messages, in steps. The ids of stored messages are added to `ids`."""
        if not isinstance(messages, Iterable):
            raise ArgumentError(f"send_many takes an iterable of Message objects, not {type(messages).__name__}")
        checked = self.checked_transaction(transaction) if transaction is not None else None
        before, was_persistent = len(ids), True
        batching = Batching(self._sender_parts, ids, checked, deadline, self._prepare_groups)
        try:
            for batch in batching.batches(messages):
                if was_persistent and not batch.persistent and len(ids) > before:
                    # Publish the persistent messages first, or the non-persistent ones would overtake them.
                    self._confirmer.confirm_written()
                was_persistent = bool(batch.persistent)
                yield from self._store_steps(batch)
        except ForebayError as error:
            error.stored = len(ids) - before
            raise
        finally:
            # Confirm even if the caller's generator raised: a message that is stored is as safe as after a single send.
            if ids and checked is None and self._sender_parts.monitor.lock.failure is None:
                self._confirmer.confirm_written()

    # ------------------------------------------------------------------ batches of one message

    def _batch_of(self, message: Message, transaction: object, deadline: float | None) -> Batch:
        """Return a batch of one message; encode it and check its transaction."""
        checked = self.checked_transaction(transaction) if transaction is not None else None
        properties, body, group, message_id = encoded_message(self._sender_parts, message, checked is not None)
        batch = Batch(
            priority=message.priority,
            persistent=message.persistent,
            contents=Contents([properties], [body]),
            sizes=[len(properties) + len(body)],
            own_ids=[message_id],
            ids=[],
            transaction=checked,
            deadline=deadline,
        )
        if group is not None:
            self._prepare_groups(batch)
        return batch

    def _batch_of_one(
        self,
        priority: object,
        persistent: object,
        properties: bytes,
        body: bytes,
        *,
        message_id: str | None,
        transaction: object,
        timeout: object,
    ) -> Batch:
        """Return a batch of one encoded message; check its transaction."""
        checked = self.checked_transaction(transaction) if transaction is not None else None
        return Batch(
            priority=priority,
            persistent=persistent,
            contents=Contents([properties], [body]),
            sizes=[len(properties) + len(body)],
            own_ids=[message_id],
            ids=[],
            transaction=checked,
            deadline=self._deadline(timeout),
        )

    def _prepare_groups(self, batch: Batch) -> None:
        """Prepare the queue for a batch in which messages have groups, unless it is prepared already.

        The queue stays as it was if the batch will be refused. A wrong priority or persistence is refused here
        (ArgumentError, SettingsError), a transaction that has ended later (TransactionError).
        """
        priority, persistent, transaction = batch.priority, batch.persistent, batch.transaction
        if self._destination.has_message_groups or (transaction is not None and not transaction.is_open):
            return
        if persistent is True:
            checked_priority(priority)
        else:
            checked_non_persistent(persistent, priority)
        message_group_queues = self._sender_parts.message_group_queues
        try:
            message_group_queues.prepare(self._destination)
        except Closed as refused:
            with self._in_reopened(refused):
                message_group_queues.prepare(self._destination)

    def checked_transaction(self, transaction: object) -> Transaction:
        """Return the transaction. ArgumentError if it is not one; TransactionError if it is of another store."""
        return self._sender_parts.transactions.checked(transaction)

    def _deadline(self, timeout: object) -> float | None:
        return deadline_after(timeout, self._sender_parts.monitor.monotonic()) if timeout is not None else None

    # ------------------------------------------------------------------ destinations that were closed, or deleted

    @contextmanager
    def _in_reopened(self, refused: Closed) -> Iterator[None]:
        """Send to the destination that replaces a closed or inactive one, and keep it open in the block.

        Raise `refused` if the destination was deleted by a caller. Requires: no lock.
        """
        known = self._destination  # another thread with this handle may have just opened it again
        if known.lifecycle is Lifecycle.DELETED:
            raise refused
        with self._held_reopened() as queue:
            self._bind(queue)
            if known.has_message_groups and not queue.has_message_groups:  # the new object has no message yet
                self._sender_parts.message_group_queues.prepare(queue)
            yield

    def _held_reopened(self) -> AbstractContextManager[NamedDestinationState]:
        """Keep the destination open, and make it anew if it is gone. Requires: no lock."""
        raise NotImplementedError

    def _open_non_persistent(
        self, destination: NamedDestinationState, priority: int
    ) -> NonPersistentLaneState | FanOut:
        """Return where non-persistent messages of a priority go, made if needed. Requires: no lock."""
        return destination.non_persistent_lanes[priority] or self._sender_parts.lanes.create_non_persistent(
            destination, priority
        )

    def _bind(self, destination: NamedDestinationState) -> None:
        """Send to this destination from now on."""
        self._destination = destination
        self._limits = destination.limits

    def __dir__(self) -> list[str]:
        """Return the public names; the others are for the engine."""
        return list(PUBLIC)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"
