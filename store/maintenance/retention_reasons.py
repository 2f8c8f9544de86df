"""RetentionReasons: why a data log remains: who has messages in it, and for which data logs its acks are kept.

Everything is computed from the index, exactly, and only on demand. The index keeps just counts for each data log, so
sends and acks pay nothing for this. Blocks that are not in RAM are read one by one and not kept. No message is read,
except to learn when the first message of each holder was sent.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ..environment.locks import OwnedLock
from ..format.places import Extent
from ..format.record import RecordDamaged
from ..format.state_record import QUEUE, Destination, Subscription
from ..index.block import Block
from ..index.destination_lane import DestinationLane
from ..index.index import Index
from ..index.topic_lane import TopicLane
from ..journal.regions import ReadableFile, sent_at
from ..structures.bits import ones, runs_of_ones
from .leases import Lease

PENDING_MESSAGE: Final = "pending_message"
RETENTION: Final = "retention"
ACK: Final = "ack"
TRANSACTION: Final = "transaction"
IN_USE: Final = "in_use"
LEASE: Final = "lease"

JOURNAL_HOLDER: Final = "journal"
"""Holder of the newest data log, because it is written to."""
CHECKPOINT_HOLDER: Final = "checkpoint"
"""Holder of a data log that the next open would still replay, because a checkpoint found no room."""
BLOCKS_AT_ONCE: Final = 32
"""Blocks of the index that are examined before the lock is released: about a millisecond if all are stored."""
SUBSCRIPTIONS_A_BLOCK: Final = 64
"""Asking so many subscriptions about a block costs about as much as the block itself."""


@dataclass(frozen=True, slots=True)
class RetentionReason:
    """A reason why a data log remains."""

    kind: str
    """One of the constants above, which is the `reason` of an explanation's `Cause`."""
    holder: str
    """A destination ("0:orders" is a queue), a durable subscription ("1:prices/audit"), "retention of" a topic, the xid
    or the number of a transaction, "lease" and its name, "journal", or "checkpoint".
    """
    messages: int = 0
    """Messages of the holder in data_logs. Once they are settled, this reason is gone."""
    bytes: int = 0
    shared_messages: int = 0
    """Messages among them that are pending for another subscription too, and are counted for that one."""
    shared_bytes: int = 0
    oldest_ms: int | None = None
    """When the first of them was sent, in ms since 1970. None: there is none, or it can't be read."""
    subscription: str = ""
    """The name of the durable subscription that is the holder."""
    data_logs: tuple[int, ...] = ()
    """The data logs with the messages: for acks, those that could not be replayed without the acks; for every other
    reason, the data log itself.
    """


class _Counts(NamedTuple):
    pending_messages: int
    acked_data_logs: frozenset[int]
    """Data logs whose messages would be replayed wrong without the acks and commits in this one."""


class _Place(NamedTuple):
    """The place of a record with messages."""

    data_log: int
    offset: int
    messages: int


@dataclass(slots=True)
class _Held:
    """The pending messages of one destination or durable subscription in one data log."""

    messages: int = 0
    bytes: int = 0
    shared_messages: int = 0
    shared_bytes: int = 0
    first: dict[int, _Place] = field(default_factory=dict)
    """The place of the first message of each lane."""


class RetentionReasons:
    """The reasons why the data logs of a store remain. A change during the computation may be seen or not."""

    def __init__(
        self,
        index: Index,
        lock: OwnedLock,
        destinations: Mapping[int, Destination],
        newest: int,
        reader: Callable[[int], tuple[ReadableFile, int]],
        *,
        replayed: int | None = None,
        transactions: Mapping[str, Collection[int]] | None = None,
        leases: Iterable[Lease] = (),
        durable: Callable[[], Iterable[Subscription]] = tuple,
    ) -> None:
        """Prepare the reasons of a store.

        lock: guards the index.
        newest: the data log that is written to.
        reader: returns an open file of a data log, and its salt; called with the lock held.
        replayed: the data log in which the next open begins to replay; None: the newest.
        transactions: the data logs that each transaction without an outcome needs, by its id.
        leases: the leases that keep data logs now.
        durable: returns the durable subscriptions; called with the lock held.
        """
        self._index = index
        self._state_lock = lock
        self._newest = newest
        self._replayed = newest if replayed is None else replayed
        self._reader = reader
        self._transactions = transactions or {}
        self._leases = tuple(leases)
        with lock:
            self._destinations = dict(destinations)
            self._durable = {facts.number: facts for facts in durable()}
            self._retentions = {number for number, facts in self._durable.items() if facts.is_retention}
            self._counts = {
                data_log: _Counts(use.pending_messages, frozenset(use.acked_data_logs | use.committed_data_logs))
                for data_log, use in index.data_log_uses.items()
            }

    def of(self, data_log: int) -> list[RetentionReason]:
        """Return why a data log remains; []: nothing needs it.

        It reads the blocks of the index until all messages of the data log are found.
        """
        wanted = {data_log, *self._roots(data_log)}
        return self._assemble(data_log, self._pending(wanted))

    def all(self) -> dict[int, list[RetentionReason]]:
        """Return the reasons of each data log. If it remains for other reasons, its acks are left out.

        It reads each block of the index once.
        """
        pending = self._pending(self._counts)
        return {data_log: self._assemble(data_log, pending, is_brief=True) for data_log in sorted(self._counts)}

    def each(self) -> Iterator[tuple[int, list[RetentionReason]]]:
        """Yield the reasons of each data log, in order. It reads each block of the index once."""
        pending = self._pending(self._counts)
        for data_log in sorted(self._counts):
            yield data_log, self._assemble(data_log, pending)

    def destinations(self) -> dict[str, set[int]]:
        """Return for each destination, in order of creation, the data logs with its pending messages."""
        holders: dict[str, set[int]] = {self._holder(number): set() for number in sorted(self._destinations)}
        for data_log, held in self._survey(self._counts).items():
            for number in held:
                number = self._durable[number].topic if number in self._durable else number
                holders.setdefault(self._holder(number), set()).add(data_log)
        return holders

    # ------------------------------------------------------------------ from facts to reasons

    def _assemble(
        self, data_log: int, pending: Mapping[int, list[RetentionReason]], *, is_brief: bool = False
    ) -> list[RetentionReason]:
        reasons = [*pending.get(data_log, ()), *self._bound(data_log)]
        if data_log >= self._replayed:
            holder = JOURNAL_HOLDER if data_log >= self._newest else CHECKPOINT_HOLDER
            reasons.append(RetentionReason(IN_USE, holder, data_logs=(data_log,)))
        if not reasons or not is_brief:
            kept_for: dict[str, list[RetentionReason]] = {}
            for root in self._roots(data_log):
                for reason in (*pending.get(root, ()), *self._bound(root)):
                    kept_for.setdefault(reason.holder, []).append(reason)
            reasons += [_ack_reason(holder, parts) for holder, parts in kept_for.items()]
        return reasons

    def _bound(self, data_log: int) -> list[RetentionReason]:
        """Return the reasons other than pending messages."""
        undecided = [
            RetentionReason(TRANSACTION, transaction, data_logs=(data_log,))
            for transaction, data_logs in self._transactions.items()
            if data_log in data_logs
        ]
        leased = [
            RetentionReason(LEASE, f"{LEASE} {lease.name}", data_logs=(data_log,))
            for lease in self._leases
            if data_log >= lease.data_log
        ]
        return undecided + leased

    def _roots(self, data_log: int) -> list[int]:
        """Return the data logs that cause a data log to be kept.

        A data log has acks of messages in other data logs, which have acks of messages in further ones. The causes are
        the data logs at the end of such chains, with pending messages, transactions or leases.
        """
        reached: set[int] = {data_log}
        due = [data_log]
        while due:
            counts = self._counts.get(due.pop())
            fresh = counts.acked_data_logs.difference(reached) if counts is not None else frozenset()
            reached |= fresh
            due += fresh
        reached.discard(data_log)
        return sorted(
            found
            for found in reached
            if found in self._counts and (self._counts[found].pending_messages or self._bound(found))
        )

    def _pending(self, wanted: Iterable[int]) -> dict[int, list[RetentionReason]]:
        """Return the reasons of pending messages, by data log."""
        return {
            data_log: [
                RetentionReason(
                    RETENTION if number in self._retentions else PENDING_MESSAGE,
                    self._holder(number),
                    messages=held.messages,
                    bytes=held.bytes,
                    shared_messages=held.shared_messages,
                    shared_bytes=held.shared_bytes,
                    oldest_ms=min(self._times(held), default=None),
                    subscription=self._subscription(number),
                    data_logs=(data_log,),
                )
                for number, held in destinations.items()
            ]
            for data_log, destinations in self._survey(wanted).items()
        }

    def _subscription(self, number: int) -> str:
        """Return the name of a durable subscription; "" for every other holder."""
        return self._durable[number].name if number in self._durable.keys() - self._retentions else ""

    def _holder(self, number: int) -> str:
        subscription = self._durable.get(number)
        if number in self._retentions:
            return f"{RETENTION} of {self._holder(self._durable[number].topic)}"
        if subscription is not None:
            return f"{self._holder(subscription.topic)}/{subscription.name}"
        destination = self._destinations.get(number)
        return f"{destination.kind}:{destination.name}" if destination is not None else f"{QUEUE}:#{number}"

    # ------------------------------------------------------------------ reading the index

    def _survey(self, wanted: Iterable[int]) -> dict[int, dict[int, _Held]]:
        """Return the pending messages of the wanted data logs, by data log and destination.

        It stops when it has found as many as the uses of the data logs count.
        """
        left = {data_log: self._counts[data_log].pending_messages for data_log in wanted if data_log in self._counts}
        left = {data_log: messages for data_log, messages in left.items() if messages}
        held: dict[int, dict[int, _Held]] = {data_log: {} for data_log in left}
        with self._state_lock:
            lanes = sorted(self._index.lanes)
        for number in lanes:
            at: int | None = 0
            while at is not None:
                if not left:
                    return held
                with self._state_lock:
                    at = self._count_blocks(number, at, held, left)
        return held

    def _count_blocks(
        self, number: int, at: int, held: dict[int, dict[int, _Held]], left: dict[int, int]
    ) -> int | None:
        """Count some blocks of a lane from a number on; return where to continue. Requires: the lock."""
        lane = self._index.find_lane(number)
        subscriptions = len(lane.subscribers) + len(lane.cursors) if isinstance(lane, TopicLane) else 0
        for _ in range(max(BLOCKS_AT_ONCE * SUBSCRIPTIONS_A_BLOCK // (SUBSCRIPTIONS_A_BLOCK + subscriptions), 1)):
            run = lane.block_numbers.next_from(at) if lane is not None else None
            if lane is None or run is None:
                return None
            block = self._index.cache.peek(lane, run[0])
            _count(number, block, self._needs(lane, block), held, left)
            at = run[0] + 1
        return at

    def _needs(self, lane: DestinationLane, block: Block) -> list[tuple[int, int]]:
        """Return the holders of the messages of a block, with a mask of the messages of each.

        Durable subscriptions come first, by number, then a retention, and last the destination. A topic holds the
        messages that only subscriptions without a name need, and those that no subscription needs until the next
        checkpoint removes them.
        """
        everything = left = ~block.gone & ((1 << len(block.lengths)) - 1)
        needs: list[tuple[int, int]] = []
        unnamed = 0
        if isinstance(lane, TopicLane):
            for number, needed in sorted(
                lane.masks(block.number), key=lambda each: (each[0] in self._retentions, each[0])
            ):
                mask = needed & everything
                if number not in self._durable:
                    unnamed |= mask
                elif mask:
                    needs.append((number, mask))
                    left &= ~mask
        return [*needs, (lane.owner_number, left | unnamed)]

    def _times(self, held: _Held) -> Iterator[int]:
        """Yield when the first message of each lane was sent, by its record. One read for each lane."""
        for place in held.first.values():
            try:
                with self._state_lock:
                    file, salt = self._reader(place.data_log)
                yield sent_at(file, salt, place.offset, place.messages)
            except (OSError, RecordDamaged):
                continue  # the data log was deleted meanwhile, or is damaged there


def _ack_reason(holder: str, parts: list[RetentionReason]) -> RetentionReason:
    return RetentionReason(
        ACK,
        holder,
        messages=sum(reason.messages for reason in parts),
        bytes=sum(reason.bytes for reason in parts),
        oldest_ms=min((reason.oldest_ms for reason in parts if reason.oldest_ms is not None), default=None),
        subscription=parts[0].subscription,
        data_logs=tuple(sorted({data_log for reason in parts for data_log in reason.data_logs})),
    )


def _count(
    number: int,
    block: Block,
    needs: Sequence[tuple[int, int]],
    held: dict[int, dict[int, _Held]],
    left: dict[int, int],
) -> None:
    """Add the pending messages of a block to `held`, by data log, and subtract them from `left`."""
    for data_log, first, last in block.data_log_runs(0, len(block.lengths) - 1):
        if data_log not in held:
            continue
        cover = ones(first, last)
        counted = 0
        for holder, mask in needs:
            part = mask & cover
            if part:
                _add(held[data_log].setdefault(holder, _Held()), number, block, part, part & counted, data_log)
                counted |= part
        if data_log in left:
            left[data_log] -= counted.bit_count()
            if left[data_log] <= 0:
                del left[data_log]


def _add(held: _Held, number: int, block: Block, part: int, shared: int, data_log: int) -> None:
    """Count messages of a block for a holder. shared: those that were counted for another holder too."""
    if number not in held.first:
        lowest = (part & -part).bit_length() - 1
        extent = next(block.extents(lowest, lowest))
        messages = extent.record_messages if isinstance(extent, Extent) else 1
        held.first[number] = _Place(data_log, extent.offset, messages)
    held.messages += part.bit_count()
    held.bytes += _bytes_of(block, part)
    held.shared_messages += shared.bit_count()
    held.shared_bytes += _bytes_of(block, shared)


def _bytes_of(block: Block, mask: int) -> int:
    return sum(sum(block.lengths[first : last + 1]) for first, last in runs_of_ones(mask))
