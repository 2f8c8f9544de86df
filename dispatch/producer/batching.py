"""Batching: divide the messages of a `send_many` into batches, which become slices.

Most messages of a call differ only in body and headers. If a list has only such messages, they are encoded in columns.
All other messages are encoded one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import Any

from ...store.format.contents import Contents
from ...store.format.message_properties import encode_headers_of_each
from ...store.format.record import SLICE_CONTENT_BYTES_MAX
from ...store.format.times import has_times
from ...store.message import DEFAULT_PRIORITY, NO_DELAY, Headers, Message
from ..transactions.transaction import Transaction
from .encoding import encoded_message, encoded_properties
from .sender_parts import SenderParts


class Batch:
    """Messages of one call that have the same priority and persistence.

    A batch of persistent messages becomes one slice, or two at the end of a block. A batch is made when all earlier
    messages of its call are stored.
    """

    __slots__ = (
        "priority",
        "persistent",
        "contents",
        "sizes",
        "own_ids",
        "ids",
        "transaction",
        "deadline",
        "_stored_before",
    )

    def __init__(
        self,
        *,
        priority: object,
        persistent: object,
        contents: Contents,
        sizes: list[int],
        own_ids: list[str | None],
        ids: list[str],
        transaction: Transaction | None,
        deadline: float | None,
    ) -> None:
        self.priority = priority
        self.persistent = persistent
        self.contents = contents
        # Bytes of each message: of its properties and body together.
        self.sizes = sizes
        self.own_ids = own_ids
        # The ids of all messages of the call that are stored so far. A function that stores messages adds their ids.
        self.ids = ids
        self._stored_before = len(ids)
        self.transaction = transaction
        # When the send gives up waiting for room; None: as the policy says.
        self.deadline = deadline

    @property
    def stored(self) -> int:
        """Number of the first messages of the batch that are stored."""
        return len(self.ids) - self._stored_before

    def rest(self) -> Batch:
        """Return the messages that are not stored yet, for the same call."""
        return self.next_part(None)

    def next_part(self, messages: int | None) -> Batch:
        """Return the next so many messages that are not stored yet, for the same call. None: all of them."""
        begin = self.stored
        end = None if messages is None else begin + messages
        return Batch(
            priority=self.priority,
            persistent=self.persistent,
            contents=self.contents.part(begin, end),
            sizes=self.sizes[begin:end],
            own_ids=self.own_ids[begin:end],
            ids=self.ids,
            transaction=self.transaction,
            deadline=self.deadline,
        )

    def within(self, transaction: Transaction) -> Batch:
        """Return this batch as a batch of a transaction, with ids of its own."""
        return Batch(
            priority=self.priority,
            persistent=self.persistent,
            contents=self.contents,
            sizes=self.sizes,
            own_ids=self.own_ids,
            ids=[],
            transaction=transaction,
            deadline=self.deadline,
        )


class Batching:
    """Makes the batches of one `send_many`: each of one priority, and persistent or not."""

    __slots__ = ("_parts", "_ids", "_transaction", "_deadline", "_prepare_groups")

    def __init__(
        self,
        parts: SenderParts,
        ids: list[str],
        transaction: Transaction | None,
        deadline: float | None,
        prepare_groups: Callable[[Batch], None],
    ) -> None:
        """ids, transaction, deadline: see Batch.

        prepare_groups: prepares the destination for a batch in which messages have groups.
        """
        self._parts = parts
        self._ids = ids
        self._transaction = transaction
        self._deadline = deadline
        self._prepare_groups = prepare_groups

    def batches(self, messages: Iterable[Any]) -> Generator[Batch, None, None]:
        """Encode messages and yield them as batches. The caller stores each batch before it asks for the next.

        A message that can't be stored raises what `send` raises. Those before it in its batch are not yielded then.
        """
        if type(messages) is list:
            sent = yield from self._batches_alike(messages)
            if sent == len(messages):
                return
            messages = messages[sent:]
        parts, is_in_transaction = self._parts, self._transaction is not None
        batch = self._new_batch()
        size_bytes, slice_messages, was_timed = 0, parts.slice_messages_max, False
        any_group = False
        for message in messages:
            properties, body, group, message_id = encoded_message(parts, message, is_in_transaction)
            # Each attribute is read once, because another thread may set it meanwhile.
            is_timed, its_priority, its_persistence = has_times(properties), message.priority, message.persistent
            size = len(properties) + len(body)
            is_full = len(batch.contents) >= slice_messages or size_bytes + size > SLICE_CONTENT_BYTES_MAX
            if batch.contents and (
                is_full
                or its_priority is not batch.priority  # True and 1.0 equal 1, and are refused
                or its_persistence is not batch.persistent
                or is_timed is not was_timed  # a slice has times for all its messages or for none
            ):
                if any_group:
                    self._prepare_groups(batch)
                yield batch
                batch, size_bytes, any_group = self._new_batch(), 0, False
            batch.priority, batch.persistent, was_timed = its_priority, its_persistence, is_timed
            batch.contents.append(properties, body)
            batch.sizes.append(size)
            batch.own_ids.append(message_id)
            size_bytes += size
            if group is not None:
                any_group = True
        if batch.contents:
            if any_group:
                self._prepare_groups(batch)
            yield batch

    def _new_batch(self) -> Batch:
        """Return a batch without messages. The store checks its priority and persistence."""
        return Batch(
            priority=DEFAULT_PRIORITY,
            persistent=True,
            contents=Contents([], []),
            sizes=[],
            own_ids=[],
            ids=self._ids,
            transaction=self._transaction,
            deadline=self._deadline,
        )

    def _batches_alike(self, messages: list[Message]) -> Generator[Batch, None, int]:
        """Yield batches of messages that have only a body, headers and a lifetime.

        All messages of a batch have the same lifetime. Return how many of the first messages are such.
        """
        parts = self._parts
        slice_messages, size_max = parts.slice_messages_max, parts.max_message_bytes
        # If all together fit into one slice, none of them is too large.
        whole_max = min(size_max, SLICE_CONTENT_BYTES_MAX)
        sent = 0
        # The first of messages[sent:], which are encoded already and did not fit into the last slice.
        left = Contents([], [])
        while sent < len(messages):
            part = messages[sent + len(left) : sent + slice_messages]
            if not _are_messages(part):
                break
            first = messages[sent]
            priority: object = first.priority
            expires_in: object = first.expires_in
            lifetime = parts.lifetimes.field(expires_in) if expires_in is not None else b""
            contents = _contents_alike(part, first, lifetime)
            if len(contents) < len(part):
                break
            if left:
                contents = left.followed_by(contents)
                left = Contents([], [])
            sizes = contents.lengths()
            size = sum(sizes)
            if size > whole_max:
                if size > size_max and max(sizes) > size_max:
                    break
                # A rest with a lifetime is encoded anew, because its lifetime begins later.
                left = _cut_slice(contents, sizes, size, keeps_rest=expires_in is None)
                sizes = sizes[: len(contents)]
            yield Batch(
                priority=priority,
                persistent=True,
                contents=contents,
                sizes=sizes,
                own_ids=[None] * len(sizes),
                ids=self._ids,
                transaction=self._transaction,
                deadline=self._deadline,
            )
            sent += len(sizes)
        return sent


def _are_messages(part: list[Any]) -> bool:
    """Return whether each is a Message, and not of a class that inherits from it."""
    for message in part:
        if type(message) is not Message:
            return False
    return True


def _contents_alike(part: list[Message], first: Message, lifetime: bytes) -> Contents:
    """Return the contents of messages that differ from the first one only in headers and body.

    If other messages are among them, the result has fewer contents than `part`, and no headers: the caller drops it.

    lifetime: the encoded field of the first message.
    """
    priority: object = first.priority
    expires_in: object = first.expires_in
    bodies = [
        body
        for message in part
        if type(body := message.body) is bytes  # read once: another thread may set it
        and message.message_id is None
        and message.producer is None
        and message.group is None
        and (
            message.expires_in is expires_in or (type(message.expires_in) is float and message.expires_in == expires_in)
        )
        and (message.delay is NO_DELAY or message.delay == 0.0)
        and message.persistent is True
        and message.priority is priority  # one object, as small ints are; True and 1.0 equal 1, and are refused
    ]
    headers: list[Headers | None] = [message.headers for message in part]
    # The first comparison saves the count in most cases: `count` compares each dict with None.
    if len(bodies) < len(part) or not part or (headers[0] is None and headers.count(None) == len(part)):
        return Contents([lifetime] * len(bodies), bodies)
    encoded = encode_headers_of_each(headers, lifetime)
    if encoded is None:
        encoded = [lifetime if each is None else lifetime + encoded_properties(each, None) for each in headers]
    return Contents(encoded, bodies)


def _cut_slice(contents: Contents, sizes: list[int], size: int, *, keeps_rest: bool) -> Contents:
    """Cut contents behind the first slice; return those of the next slice.

    Contents behind the next slice are dropped and encoded again later, because the caller may wait before it.

    sizes: of each content. size: their sum. keeps_rest: False: return no contents.
    """
    end = _slice_end(sizes, size)
    rest_end = end
    if keeps_rest:
        rest_sizes = sizes[end:]
        rest_end += _slice_end(rest_sizes, sum(rest_sizes))
    return contents.cut(end, rest_end)


def _slice_end(sizes: list[int], size: int) -> int:
    """Return how many of the first messages make a slice: at least one, however large.

    It begins at the place that would be right if all messages had one size, and corrects it.

    sizes: of each message. size: their sum.
    """
    end = min(SLICE_CONTENT_BYTES_MAX * len(sizes) // max(size, 1), len(sizes))
    size -= sum(sizes[end:])
    while size > SLICE_CONTENT_BYTES_MAX:
        end -= 1
        size -= sizes[end]
    while end < len(sizes) and size + sizes[end] <= SLICE_CONTENT_BYTES_MAX:
        size += sizes[end]
        end += 1
    return max(end, 1)
