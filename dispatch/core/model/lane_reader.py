"""LaneReader: reads single messages of any lane for deliveries and selectors, outside the lock.

A lazy delivery has no body until it is asked for, and a selector may have to judge a message that is too large to hold.
Such a message is read into the caller's own memory.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from ....cache.accounting.overdraft import Overdraft
from ....store.errors import StateError, StoreFailed
from ....store.stored_message import StoredMessage
from ..monitor import Monitor
from .contracts import PersistentStore, ReadResult
from .delivery import DeliveryLane


class LaneReader:
    """The reader for all lanes of an open store. No method may be called under the lock."""

    def __init__(self, monitor: Monitor, message_store: PersistentStore, memory: Overdraft) -> None:
        """memory: pays while headers are read of messages that are too large for RAM."""
        self._monitor = monitor
        self._message_store = message_store
        self._memory = memory

    def read_one(self, lane: DeliveryLane, sequence: int) -> StoredMessage:
        """Read one pending message. StateError: it was settled. StoreFailed: it can't be read."""
        return self._read(lane, sequence, lambda region: lane.backing_store.read((region,)))

    def read_headers(self, lane: DeliveryLane, sequence: int) -> StoredMessage:
        """Read one pending message as read_one does, but in pieces. If the body is not in RAM, it is returned empty."""
        paid = _PaidRead(self._monitor, self._memory)
        try:
            return self._read(lane, sequence, partial(lane.backing_store.read_headers, pay=paid.pay))
        finally:
            paid.release()

    def _read(self, lane: DeliveryLane, sequence: int, read: Callable[[Any], ReadResult]) -> StoredMessage:
        """Read one pending message. read: reads the region in which it lies."""
        with self._monitor.lock:
            self._message_store.raise_if_closed()
            if not lane.pending_lane.is_pending(sequence):
                raise StateError("a lazy delivery is settled: look at its body, headers and id before that")
            in_ram = lane.peek(sequence)
            if in_ram is not None:
                return in_ram
            (region,) = lane.backing_store.plan(lane.pending_lane, [(sequence, sequence)])
        messages, unreadable = read(region)
        if unreadable:
            raise lane.read_error(unreadable[0][1])
        return messages[0]


class _PaidRead:
    """The charge of one read of headers, until the read ends. No method may be called under the lock."""

    __slots__ = ("_monitor", "_memory", "_paid_bytes")

    def __init__(self, monitor: Monitor, memory: Overdraft) -> None:
        self._monitor = monitor
        self._memory = memory
        self._paid_bytes = 0

    def pay(self, charge_bytes: int) -> None:
        """Charge for bytes that are about to be read."""
        with self._monitor.lock, self._monitor.all_or_broken:
            self._memory.charge(charge_bytes)
            self._paid_bytes += charge_bytes

    def release(self) -> None:
        """Release the whole charge."""
        # An error of the read matters more than one of the release.
        with suppress(StoreFailed), self._monitor.lock, self._monitor.all_or_broken:
            self._memory.release(self._paid_bytes)
