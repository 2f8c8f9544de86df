"""StagedNonPersistent: the non-persistent messages that a transaction sends. They are in RAM until the commit.

These messages have no records, so a crash loses all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, Protocol

from ...store.format.branch import Branch
from ...store.format.identity import Identity
from ...store.format.times import MessageTimes, has_times, times_of, with_times
from ..admission.duplicate_windows import DuplicateWindows
from ..core.model.destination import CoreDestination
from ..core.publisher import Publisher, UnpublishedNonPersistent
from .transaction_memory import TransactionMemory

KEPT_CHARGE_BYTES: Final = 448
"""Charged for a message in addition to its content: its objects, its number, and its id in the duplicate window."""


class NonPersistentTarget(Protocol):
    """Where a non-persistent message goes: a lane of a queue, or the FanOut of a topic."""

    @property
    def destination(self) -> CoreDestination: ...

    @property
    def id_prefix(self) -> str: ...

    def add(self, timestamp: int, properties: bytes, body: bytes) -> int: ...

    def add_timed(self, timestamp: int, properties: bytes, body: bytes, times: MessageTimes) -> int: ...


class _Kept(UnpublishedNonPersistent):
    """One non-persistent message. It stays in RAM until its transaction is committed and the message is published."""

    def __init__(
        self,
        memory: TransactionMemory,
        target: NonPersistentTarget,
        timestamp: int,
        properties: bytes,
        body: bytes,
        identity: Identity | None,
    ) -> None:
        """Make it for one message.

        identity: the id by which deduplication finds a duplicate of the message; None: there is no deduplication.
        """
        self._memory = memory
        self._target = target
        self.destination = target.destination
        self._timestamp = timestamp
        self._properties = properties
        self._body = body
        self.identity = identity
        self.charge_bytes = len(properties) + len(body) + KEPT_CHARGE_BYTES

    def count_from(self, time_ms: int) -> None:
        """Begin the delay of the message at this time, because its transaction is committed now."""
        self._properties = with_times(self._properties, times_of(self._properties).committed(time_ms))

    def add_to_lane(self) -> None:
        """Store the message in its lane, or give it to the subscriptions of its topic."""
        if has_times(self._properties):
            self._target.add_timed(self._timestamp, self._properties, self._body, times_of(self._properties))
        else:
            self._target.add(self._timestamp, self._properties, self._body)

    def release(self) -> None:
        """Release the charge of the message."""
        self._memory.release(self.charge_bytes)

    def reserve_again(self) -> None:
        """Charge for the message again, because its lane could not take it. Charge 0 if the limit has no room."""
        if not self._memory.reserve_released(self.charge_bytes):
            self.charge_bytes = 0  # the charge is with a block of its lane, which other messages share


class StagedNonPersistent:
    """The non-persistent messages of one transaction.

    The state lock guards it. Every method requires the state lock.
    """

    def __init__(
        self,
        windows: DuplicateWindows,
        publisher: Publisher,
        memory: TransactionMemory,
        now_ms: Callable[[], int],
        branch: Branch,
    ) -> None:
        """Make the non-persistent messages of one transaction, with none yet.

        windows: know which ids are undecided, and which were sent. now_ms: returns the store's time.
        """
        self._duplicates = windows.persistent
        self._windows = windows
        self._publisher = publisher
        self._memory = memory
        self._now_ms = now_ms
        self._branch = branch
        self._kept: list[_Kept] = []
        self.charge_bytes = 0

    def __len__(self) -> int:
        """Return the number of messages."""
        return len(self._kept)

    def destinations(self) -> Iterator[CoreDestination]:
        """Yield the destination of each message."""
        return (kept.destination for kept in self._kept)

    def add(
        self,
        target: NonPersistentTarget,
        timestamp: int,
        properties: bytes,
        body: bytes,
        identity: Identity | None = None,
    ) -> None:
        """Keep one message. StoreFull: the message is not added. identity: as in _Kept."""
        kept = _Kept(self._memory, target, timestamp, properties, body, identity)
        self._memory.charge_sent(kept.charge_bytes)
        self._kept.append(kept)
        self.charge_bytes += kept.charge_bytes
        if identity is not None:
            self._duplicates.hold_undecided((identity,), self._branch.number)

    def publish(self) -> None:
        """Give the messages with their charges to the publisher: they are committed now."""
        time_ms = self._now_ms()
        self.let_ids_go()
        for kept in self._kept:
            kept.count_from(time_ms)
            if kept.identity is not None:
                self._windows.non_persistent.remember(kept.identity)
        committed, self._kept, self.charge_bytes = self._kept, [], 0
        self._publisher.add_when_durable(committed)

    def let_ids_go(self) -> None:
        """Forget the ids of these messages, so that they are undecided no longer."""
        self._duplicates.forget_undecided([kept.identity for kept in self._kept if kept.identity is not None])

    def finish(self) -> None:
        """Drop all messages in RAM, because the transaction has ended and they will never be published."""
        self._memory.release(self.charge_bytes)
        self.charge_bytes = 0
        self._kept.clear()

    @property
    def counted_bytes(self) -> int:
        """What `charge_bytes` should be, computed from the messages. O(messages)."""
        return sum(kept.charge_bytes for kept in self._kept)
