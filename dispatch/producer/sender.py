"""Sender: what queue and topic have in common: messages are sent there."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from math import ceil
from typing import Final

from ...store.errors import (
    ArgumentError,
    Closed,
    ForebayError,
    MessageTooLarge,
    SettingsError,
    StoreFull,
    argument_error,
)
from ...store.format.identity import Identity
from ...store.format.properties import GROUP_BYTES_MAX, encode_properties
from ...store.format.record import SLICE_CONTENT_BYTES_MAX, SLICE_MESSAGES_MAX
from ...store.format.times import Times, encode_times, has_times, times_of
from ...store.message import DEFAULT_PRIORITY, Headers, Message
from ...store.message_store import MessageStore
from ..admission.deduplication import DuplicateWindows, identity_of
from ..config.checks import check_seconds, deadline_after
from ..config.policies import Policies
from ..config.settings import Settings
from ..core.delays import TimedLanes
from ..core.destinations import Destinations
from ..core.lists import TargetArea
from ..core.model import NonPersistentLaneState, PersistentLaneState, QueueArea
from ..core.monitor import Monitor
from ..core.publisher import Confirmer, Publisher
from ..core.removal import Removals
from ..distribution.grouped import use_groups
from ..topics.registry import Topics
from ..topics.state import FanOut
from ..transactions.transaction import Transaction, TransactionRegistry
from .space import Space

UNPUBLISHED_SLICES_MAX: Final = 8
"""With sync "always" a slice waits in RAM until it is durable: not more of them (2 MiB) for one call."""


def encoded_properties(headers: object, message_id: object, group: object = None, producer: object = None) -> bytes:
    """What lies before a body. SettingsError for headers, an id, a group or a producer that cannot be."""
    if headers is not None and not isinstance(headers, Mapping):
        raise ArgumentError(f"headers must be a mapping of names to values, not {type(headers).__name__}")
    if message_id is not None and (not isinstance(message_id, str) or not message_id):
        raise argument_error(f"a message id must be a non-empty str, not {type(message_id).__name__}", message_id, str)
    if group is not None and (
        not isinstance(group, str) or not 1 <= len(group.encode(errors="replace")) <= GROUP_BYTES_MAX
    ):
        raise argument_error(
            f"a group must be a str of 1 to {GROUP_BYTES_MAX} bytes of UTF-8, not {reprlib.repr(group)}", group, str
        )
    if producer is not None and (not isinstance(producer, str) or not producer):
        raise argument_error(f"a producer must be a non-empty str, not {type(producer).__name__}", producer, str)
    return encode_properties(headers, message_id, group, producer if message_id is not None else None)


class Producers:
    """What the senders of an open store share. The state lock guards what changes."""

    def __init__(
        self,
        monitor: Monitor,
        store: MessageStore,
        targets: TargetArea,
        publisher: Publisher,
        destinations: Destinations,
        topics: Topics,
        transactions: TransactionRegistry,
        removals: Removals,
        timed: TimedLanes,
        windows: DuplicateWindows,
        space: Space,
        policies: Policies,
        settings: Settings,
    ) -> None:
        self.monitor = monitor
        self.lock = monitor.lock
        self.clock_ms = monitor.clock_ms
        self.store = store
        self.journal = store.journal
        self.targets = targets
        self.publisher = publisher
        self.syncs_always = publisher.syncs_always
        self.destinations = destinations
        self.topics = topics
        self.transactions = transactions
        self.removals = removals
        self.timed = timed
        self.windows = windows
        self.space = space
        self.policies = policies
        self.slice_messages_max = SLICE_MESSAGES_MAX if settings.use_vectored_io else 1
        self.limit_messages(settings)

    def limit_messages(self, settings: Settings) -> None:
        """Take over how large a message may be. Requires: the lock, or nobody else."""
        self.max_message_bytes = min(settings.max_message_size_bytes, settings.memory_limit_bytes)
        self.is_limited_by_setting = settings.max_message_size_bytes <= settings.memory_limit_bytes

    # ------------------------------------------------------------------ ids that count once, times

    def fresh(self, queue: QueueArea, batch: Sequence[tuple[bytes, bytes]]) -> int:
        """Return how many of the first are not stored yet, and different from each other. Requires: no lock.

        TransactionError as DuplicateWindows.is_stored.
        """
        seen: set[Identity] = set()
        with self.lock:
            for count, (properties, _) in enumerate(batch):
                found = identity_of(queue.number, properties)
                if found is None:
                    continue
                if found in seen or self.windows.is_stored(found):
                    return count
                seen.add(found)
        return len(batch)

    def store_once(
        self,
        area: PersistentLaneState,
        timestamp: int,
        batch: Sequence[tuple[bytes, bytes]],
        own_ids: Sequence[str | None],
        ids: list[str],
    ) -> None:
        """Write of a slice what is not stored yet; ids gets the ids of all. Requires: no lock.

        StoreFull: ids says how many of the first are in.
        """
        identities = [identity_of(area.queue.number, properties) for properties, _ in batch]
        with self.lock:
            if has_times(batch[0][0]):
                timestamp = self.store.steady.now_ms()
            seen: set[Identity] = set()
            fresh: list[int] = []
            for at, found in enumerate(identities):
                if found is None or not (found in seen or self.windows.is_stored(found)):
                    fresh.append(at)
                    if found is not None:
                        seen.add(found)
            done = 0
            while fresh:
                room = area.index_lane.slice_room
                part, fresh = fresh[:room], fresh[room:]
                first = self._write_fresh(area, timestamp, [batch[at] for at in part], _known(identities, part))
                sequences = dict(zip(part, range(first, first + len(part)), strict=True))
                behind = fresh[0] if fresh else len(batch)
                ids += [own_ids[at] or f"{area.id_prefix}{sequences[at]}" for at in range(done, behind)]
                done = behind
            ids += [own_id for own_id in own_ids[done:] if own_id is not None]

    def _write_fresh(
        self,
        area: PersistentLaneState,
        timestamp: int,
        part: list[tuple[bytes, bytes]],
        identities: list[Identity],
    ) -> int:
        """Store them and let them arrive; returns the first sequence. REQUIRES: the lock."""
        times = [times_of(properties) for properties, _ in part] if has_times(part[0][0]) else []
        first = self.store.append_slice(area.index_lane, timestamp, part, times, identities)
        if times:
            self.arrive_timed(area, timestamp, first, part, times)
            return first
        arrived = [(sequence, properties, body, timestamp) for sequence, (properties, body) in enumerate(part, first)]
        self.publisher.arrive(area, arrived)
        return first

    def keep_once(
        self,
        area: NonPersistentLaneState | FanOut,
        timestamp: int,
        batch: Sequence[tuple[bytes, bytes]],
        own_ids: Sequence[str | None],
        ids: list[str],
    ) -> None:
        """As store_once, of non-persistent messages. What no crash leaves, no id outlives. REQUIRES: the lock."""
        for (properties, body), own_id in zip(batch, own_ids, strict=True):
            found = identity_of(area.queue.number, properties)
            if found is not None and own_id is not None and self.windows.is_stored(found):
                ids.append(own_id)
                continue
            if has_times(properties):
                sequence = area.add_timed(timestamp, properties, body, times_of(properties))
            else:
                sequence = area.add(timestamp, properties, body)
            if found is not None:
                self.windows.non_persistent.note(found)
            ids.append(own_id if own_id is not None else f"{area.id_prefix}{sequence}")

    def store_timed(
        self,
        area: PersistentLaneState,
        batch: Sequence[tuple[bytes, bytes]],
        own_ids: Sequence[str | None],
        ids: list[str],
    ) -> None:
        """Write one slice of messages with times, or two where it meets the end of a block. Requires: no lock.

        StoreFull: ids says how many of the first are in.
        """
        begin = 0
        with self.lock:
            timestamp = self.store.steady.now_ms()
            while begin < len(batch):
                part = list(batch[begin : begin + area.index_lane.slice_room])
                times = [times_of(properties) for properties, _ in part]
                first = self.store.append_slice(area.index_lane, timestamp, part, times)
                self.arrive_timed(area, timestamp, first, part, times)
                behind = begin + len(part)
                ids += [
                    own or f"{area.id_prefix}{sequence}" for sequence, own in enumerate(own_ids[begin:behind], first)
                ]
                begin = behind

    def arrive_timed(
        self,
        area: PersistentLaneState,
        timestamp: int,
        first: int,
        part: Sequence[tuple[bytes, bytes]],
        times: Sequence[Times],
    ) -> None:
        """They are stored, the first with that sequence. REQUIRES: the lock."""
        self.timed.note(area)
        if any(due_at for _, due_at in times):
            self.publisher.arrive(area, range(first, first + len(part)))
        else:
            self.publisher.arrive(area, [(first + at, *content, timestamp) for at, content in enumerate(part)])


class Sender:
    """What queue and topic have in common: messages are sent there."""

    def __init__(self, producers: Producers, area: QueueArea) -> None:
        self.producers = producers
        self._area = area
        self.confirmer: Confirmer = producers.publisher

    @property
    def name(self) -> str:
        return self._area.name

    def send(
        self,
        body: bytes,
        *,
        headers: Headers | None = None,
        priority: int = DEFAULT_PRIORITY,
        message_id: str | None = None,
        transaction: Transaction | None = None,
        persistent: bool = True,
        group: str | None = None,
        expires_in: float | None = None,
        delay: float = 0.0,
        producer: str | None = None,
        timeout: float | None = None,
    ) -> str:
        """Store one message and return its id. When it returns the message is safe as `sync` promises.

        One journal record and no wait for memory. Messages of one group go to
        one consumer at a time, in order. In a transaction it counts with the
        commit. With persistent=False nothing is journaled: the message is lost
        when the process ends. expires_in, delay: seconds after which, and
        before which, nobody is handed it; a delay in a transaction counts from
        the commit. Where the policy has a duplicate_window, a message_id that
        this producer has sent is returned and nothing stored. timeout: seconds
        to wait for room where a limit or the disk is full; None: as the policy
        says. Raises MessageTooLarge, SettingsError (nothing stored), StoreFull
        (nothing stored), StoreFailed (outcome unknown), TransactionError,
        Closed; not persistent, SpillFailed (nothing stored) instead of
        StoreFailed.
        """
        if delay != 0.0 or expires_in is not None:
            return self._send_timed(
                Message(body, headers, priority, message_id, persistent, group, expires_in, delay, producer),
                transaction,
                timeout,
            )
        producers = self.producers
        if type(body) is not bytes:
            raise ArgumentError(f"a body must be bytes, not {type(body).__name__}: encode it first")
        if timeout is not None:
            self._deadline(timeout)  # one that can't be is refused, whether there is room or not
        if headers is not None or message_id is not None or group is not None or producer is not None:
            properties = encoded_properties(headers, message_id, group, producer)
            if group is not None and not self._area.has_groups:
                self._use_groups()
            if self._area.is_watched and message_id is not None and transaction is None:
                return self._send_once(priority, persistent, properties, body, message_id, timeout)
        else:
            properties = b""
        if len(body) + len(properties) > producers.max_message_bytes:
            raise self._too_large(len(body) + len(properties))
        try:
            if persistent is not True:
                sequence, prefix = self._add_volatile(persistent, priority, transaction, properties, body)
                return message_id if message_id is not None else f"{prefix}{sequence}"
            area = self._area.areas[priority] if type(priority) is int and 0 <= priority <= 9 else None
            if area is None:
                area = self._lane_area(priority)
            timestamp = producers.clock_ms()
            if transaction is not None:
                ids: list[str] = []
                self._checked(transaction).add(area, timestamp, ((properties, body),), (message_id,), ids)
                return ids[0]
            with producers.lock:
                sequence = producers.store.add(area.index_lane, timestamp, properties, body)
                message = (sequence, properties, body, timestamp)
                if producers.syncs_always:
                    producers.publisher.unpublished.append((producers.journal.end, area, (message,)))
                else:
                    area.arrive(message)
                position = producers.journal.end if producers.syncs_always else 0
        except StoreFull as full:
            return self._send_later(full, timeout, persistent, priority, properties, body, message_id, transaction)
        self.confirmer.confirm(position)
        return message_id if message_id is not None else f"{area.id_prefix}{sequence}"

    def _send_timed(self, message: Message, transaction: object, timeout: object) -> str:
        """As send, of a message that has times."""
        producers = self.producers
        checked = self._checked(transaction) if transaction is not None else None
        content = self._content(message, checked)
        ids: list[str] = []
        counts_once = self._area.is_watched and message.message_id is not None and transaction is None
        store = self._store if counts_once else partial(Sender._store, self)  # limits have let it pass already
        deadline = self._deadline(timeout)
        store(message.priority, message.persistent, [content], [message.message_id], ids, checked, deadline)
        if checked is None:
            self.confirmer.confirm(producers.publisher.position())
        return ids[0]

    def _send_later(
        self,
        full: StoreFull,
        timeout: object,
        persistent: bool,
        priority: int,
        properties: bytes,
        body: bytes,
        message_id: str | None,
        transaction: object,
    ) -> str:
        """One message for which there was no room: wait for it, or raise full."""
        producers = self.producers
        checked = self._checked(transaction) if transaction is not None else None
        ids: list[str] = []

        def attempt() -> None:
            self._store_now(priority, persistent, [(properties, body)], [message_id], ids, checked)

        self._wait_for_room(full, persistent, (len(properties) + len(body),), attempt, self._deadline(timeout))
        if checked is None:
            self.confirmer.confirm(producers.publisher.position())
        return ids[0]

    def _deadline(self, timeout: object) -> float | None:
        return deadline_after(timeout, self.producers.monitor.monotonic()) if timeout is not None else None

    def _wait_for_room(
        self,
        full: StoreFull,
        persistent: bool,
        sizes: Sequence[int],
        attempt: Callable[[], None],
        deadline: float | None,
    ) -> None:
        """Try again until there is room. In a loop the task waits, not this call."""
        if not self.confirmer.may_wait:
            raise full
        space = self.producers.space
        space.wait(space.line(persistent), self._area, sizes, full, deadline, attempt)

    def _send_once(
        self,
        priority: object,
        persistent: object,
        properties: bytes,
        body: bytes,
        message_id: str,
        timeout: object,
    ) -> str:
        """Store it, unless the duplicate window knows its id."""
        if len(body) + len(properties) > self.producers.max_message_bytes:
            raise self._too_large(len(body) + len(properties))
        self._store(priority, persistent, [(properties, body)], [message_id], [], None, self._deadline(timeout))
        self.confirmer.confirm(self.producers.publisher.position())
        return message_id

    def _add_volatile(
        self, persistent: object, priority: object, transaction: object, properties: bytes, body: bytes
    ) -> tuple[int, str]:
        """Keep one non-persistent message; its sequence, and what its id begins with."""
        producers = self.producers
        area: NonPersistentLaneState | FanOut | None = None
        if type(priority) is int and 0 <= priority <= 9:
            area = self._area.non_persistent_lanes[priority]
        if area is None or persistent is not False or transaction is not None:
            area = self._volatile_area(persistent, priority, transaction)
        timestamp = producers.clock_ms()
        with producers.lock:
            if producers.monitor.is_closed:
                raise Closed("the store")
            sequence = area.add(timestamp, properties, body)
        if producers.monitor.deferred:
            producers.monitor.run_deferred()
        return sequence, area.id_prefix

    def send_many(
        self, messages: Iterable[Message], *, transaction: Transaction | None = None, timeout: float | None = None
    ) -> list[str]:
        """Store messages in order and return their ids.

        Written in slices of up to 256 messages or 256 KiB, each atomic, one
        write each (of one message with use_vectored_io=False); synced at the end, and on the way every 2 MiB. An
        error says in `.stored` how many of the first are in; all or nothing needs a transaction. timeout: seconds to
        wait for room in all, where a limit or the disk is full; None: as the policy says. O(messages).
        """
        ids: list[str] = []
        self._send_all(messages, ids, transaction, self._deadline(timeout))
        return ids

    def _send_all(
        self, messages: Iterable[Message], ids: list[str], transaction: object, deadline: float | None
    ) -> None:
        """As send_many; ids gets those of what is in."""
        producers = self.producers
        before = len(ids)
        batch: list[tuple[bytes, bytes]] = []
        batch_ids: list[str | None] = []
        priority: object = DEFAULT_PRIORITY  # what the messages have is checked with the slice
        is_persistent: object = True
        batch_bytes, slice_messages, was_timed = 0, producers.slice_messages_max, False
        if not isinstance(messages, Iterable):
            raise ArgumentError(f"send_many takes an iterable of Message objects, not {type(messages).__name__}")
        checked = self._checked(transaction) if transaction is not None else None
        try:
            if type(messages) is list:
                sent = self._send_plain(messages, ids, checked, deadline)
                messages = messages[sent:]
            for message in messages:
                content = self._content(message, checked)
                is_timed = message.expires_in is not None or message.delay != 0.0
                size = len(content[0]) + len(content[1])
                is_full = len(batch) >= slice_messages or batch_bytes + size > SLICE_CONTENT_BYTES_MAX
                if batch and (
                    is_full
                    or message.priority != priority
                    or message.persistent is not is_persistent
                    or is_timed is not was_timed  # those with times are slices of their own
                ):
                    self._store(priority, is_persistent, batch, batch_ids, ids, checked, deadline)
                    batch, batch_ids, batch_bytes = [], [], 0
                if is_persistent and not message.persistent and len(ids) > before:
                    self.confirmer.confirm(
                        producers.publisher.position()
                    )  # what needs no sync must not overtake what does
                priority, is_persistent, was_timed = message.priority, message.persistent, is_timed
                batch.append(content)
                batch_ids.append(message.message_id)
                batch_bytes += size
            if batch:
                self._store(priority, is_persistent, batch, batch_ids, ids, checked, deadline)
        except ForebayError as error:
            error.stored = len(ids) - before + getattr(error, "stored", 0)  # type: ignore[attr-defined]
            raise
        finally:
            # Also when the caller's generator raises: what was written is as safe as what was sent one by one.
            if ids and checked is None:
                self.confirmer.confirm(producers.publisher.position())

    def _send_plain(
        self, messages: list[Message], ids: list[str], transaction: Transaction | None, deadline: float | None
    ) -> int:
        """Send, as _send_all, slices of messages that have a body and nothing else; returns how many of the first."""
        producers = self.producers
        slice_messages, size_max = producers.slice_messages_max, producers.max_message_bytes
        sent = 0
        while sent < len(messages):
            part = messages[sent : sent + slice_messages]
            if set(map(type, part)) != {Message}:
                break
            priority: object = part[0].priority
            batch = [
                (b"", message.body)
                for message in part
                if type(message.body) is bytes
                and message.headers is None
                and message.message_id is None
                and message.group is None
                and message.expires_in is None
                and message.delay == 0.0
                and message.persistent is True
                and message.priority == priority
            ]
            sizes = [len(body) for _, body in batch]
            if len(batch) < len(part) or sum(sizes) > SLICE_CONTENT_BYTES_MAX or max(sizes) > size_max:
                break
            self._store(priority, True, batch, [None] * len(batch), ids, transaction, deadline)
            sent += len(batch)
        return sent

    def _checked(self, transaction: object) -> Transaction:
        """Return the transaction. ArgumentError unless it is one, TransactionError unless it is of this store."""
        return self.producers.transactions.checked(transaction)

    def _content(self, message: object, transaction: Transaction | None = None) -> tuple[bytes, bytes]:
        """Properties and body, as they are stored."""
        if not isinstance(message, Message):
            raise ArgumentError(f"send_many takes Message objects, not {type(message).__name__}")
        body, headers, message_id = message.body, message.headers, message.message_id
        if type(body) is not bytes:
            raise ArgumentError(f"a body must be bytes, not {type(body).__name__}: encode it first")
        if headers is not None or message_id is not None or message.group is not None:
            properties = encoded_properties(headers, message_id, message.group, message.producer)
            if message.group is not None and not self._area.has_groups:
                self._use_groups()
        else:
            properties = b""
        if message.delay != 0.0 or message.expires_in is not None:
            properties = self._times(message, transaction is not None) + properties
        if len(body) + len(properties) > self.producers.max_message_bytes:
            raise self._too_large(len(body) + len(properties))
        return properties, body

    def _times(self, message: Message, is_relative: bool) -> bytes:
        """What its properties begin with. SettingsError for times that cannot be."""
        expires_in, delay = message.expires_in, message.delay
        check_seconds("delay", delay)
        if expires_in is not None:
            check_seconds("expires_in", expires_in)
            if not expires_in:
                raise SettingsError("expires_in must be above 0 seconds: leave it out, and the message never expires")
        now_ms = self.producers.store.steady.now_ms()
        expires_at = 0 if expires_in is None else now_ms + max(int(expires_in * 1000), 1)
        delay_ms = ceil(delay * 1000)
        return encode_times(expires_at, -delay_ms if is_relative or not delay_ms else now_ms + delay_ms)

    def _store(
        self,
        priority: object,
        persistent: object,
        batch: list[tuple[bytes, bytes]],
        batch_ids: list[str | None],
        ids: list[str],
        transaction: Transaction | None,
        deadline: float | None,
    ) -> None:
        """Write one slice, and wait for room where there is none. StoreFull: ids says how many are in."""
        before = len(ids)
        try:
            self._store_now(priority, persistent, batch, batch_ids, ids, transaction)
        except StoreFull as full:

            def attempt() -> None:
                done = len(ids) - before
                self._store_now(priority, persistent, batch[done:], batch_ids[done:], ids, transaction)

            sizes = [len(properties) + len(body) for properties, body in batch[len(ids) - before :]]
            self._wait_for_room(full, persistent is True, sizes, attempt, deadline)

    def _store_now(
        self,
        priority: object,
        persistent: object,
        batch: list[tuple[bytes, bytes]],
        batch_ids: list[str | None],
        ids: list[str],
        transaction: Transaction | None,
    ) -> None:
        """Write one slice, or two where it meets the end of a block; or leave it to the transaction."""
        producers = self.producers
        if persistent is not True:
            self._store_volatile(persistent, priority, transaction, batch, batch_ids, ids)
            return
        area = self._lane_area(priority)
        timestamp = producers.clock_ms()
        if transaction is not None:
            transaction.add(area, timestamp, batch, batch_ids, ids)
            return
        if self._area.is_watched:
            producers.store_once(area, timestamp, batch, batch_ids, ids)
            batch = []
        elif has_times(batch[0][0]):
            producers.store_timed(area, batch, batch_ids, ids)
            batch = []
        begin = 0
        with producers.lock:
            while begin < len(batch):
                part = batch[begin : begin + area.index_lane.slice_room]
                first = producers.store.append_slice(area.index_lane, timestamp, part)
                arrived = [
                    (sequence, properties, body, timestamp) for sequence, (properties, body) in enumerate(part, first)
                ]
                if producers.syncs_always:
                    producers.publisher.unpublished.append((producers.journal.end, area, arrived))
                else:
                    producers.targets.arrive_many(area, arrived)
                prefix = area.id_prefix
                ids += [
                    own if own is not None else f"{prefix}{sequence}"
                    for sequence, own in enumerate(batch_ids[begin : begin + len(part)], first)
                ]
                begin += len(part)
        if producers.store.is_checkpoint_urgent or len(producers.publisher.unpublished) >= UNPUBLISHED_SLICES_MAX:
            self.confirmer.confirm(producers.publisher.position())

    def _store_volatile(
        self,
        persistent: object,
        priority: object,
        transaction: Transaction | None,
        batch: list[tuple[bytes, bytes]],
        batch_ids: list[str | None],
        ids: list[str],
    ) -> None:
        """Keep non-persistent messages, one after the other; ids says how many are in."""
        producers = self.producers
        area = self._volatile_area(persistent, priority, transaction)
        timestamp = producers.clock_ms()
        prefix = area.id_prefix
        with producers.lock:
            if producers.monitor.is_closed:
                raise Closed("the store")
            if self._area.is_watched:
                producers.keep_once(area, timestamp, batch, batch_ids, ids)
                return
            is_timed = has_times(batch[0][0])
            for (properties, body), own in zip(batch, batch_ids, strict=True):
                if is_timed:
                    sequence = area.add_timed(timestamp, properties, body, times_of(properties))
                else:
                    sequence = area.add(timestamp, properties, body)
                ids.append(own if own is not None else f"{prefix}{sequence}")

    def _use_groups(self) -> None:
        """Prepare the queue for its first message with a group."""
        producers = self.producers
        use_groups(producers.monitor, producers.store, producers.targets, self._area)

    def _too_large(self, size: int) -> MessageTooLarge:
        producers = self.producers
        limit = "max_message_bytes" if producers.is_limited_by_setting else "memory_limit"
        return MessageTooLarge(size, producers.max_message_bytes, limit)

    def _lane_area(self, priority: object) -> PersistentLaneState:
        if type(priority) is not int or not 0 <= priority <= 9:
            raise argument_error(f"priority must be an int from 0 to 9, not {priority!r}", priority, int)
        area = self._area.areas[priority]
        return area if area is not None else self.producers.destinations.create_lane(self._area, priority)

    def _volatile_area(
        self, persistent: object, priority: object, transaction: object
    ) -> NonPersistentLaneState | FanOut:
        if persistent is not False:
            raise argument_error(f"persistent must be True or False, not {persistent!r}", persistent, bool)
        if transaction is not None:
            problem = "a non-persistent message has no part in a transaction: send it without one"
            raise argument_error(problem, transaction, Transaction)
        if type(priority) is not int or not 0 <= priority <= 9:
            raise argument_error(f"priority must be an int from 0 to 9, not {priority!r}", priority, int)
        return self._area.non_persistent_lanes[priority] or self._make_volatile(priority)

    def _make_volatile(self, priority: int) -> NonPersistentLaneState | FanOut:
        return self.producers.destinations.create_non_persistent_lane(self._area, priority)


def _known(identities: Sequence[Identity | None], part: Sequence[int]) -> list[Identity]:
    return [found for at in part if (found := identities[at]) is not None]
