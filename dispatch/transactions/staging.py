"""Staging: make the parts in which a transaction holds what takes effect with its commit."""

from __future__ import annotations

from collections.abc import Callable

from ...store.format.branch import Branch
from ...store.state.property_table import PropertyTable
from ...store.writers.property_writer import PropertyWriter
from ...store.writers.transaction_writer import TransactionWriter
from ..admission.duplicate_windows import DuplicateWindows
from ..core.areas.dispatch_area import DispatchArea
from ..core.monitor import Monitor
from ..core.publisher import Publisher
from ..core.redelivery.redelivery import Redelivery
from ..core.redelivery.timed_lanes import TimedLanes
from .staged_acks import StagedAcks
from .staged_non_persistent import StagedNonPersistent
from .staged_properties import StagedProperties
from .staged_slices import StagedSlices
from .transaction_memory import TransactionMemory


class Staging:
    """Makes the staged messages and acks of each transaction. The state lock guards what it makes."""

    def __init__(
        self,
        *,
        transaction_writer: TransactionWriter,
        dispatch_area: DispatchArea,
        redelivery: Redelivery,
        publisher: Publisher,
        timed: TimedLanes,
        windows: DuplicateWindows,
        memory: TransactionMemory,
        now_ms: Callable[[], int],
    ) -> None:
        """now_ms: returns the store's time.
        windows: know which ids are undecided, and which were sent.
        """
        self._transaction_writer = transaction_writer
        self._dispatch_area = dispatch_area
        self._redelivery = redelivery
        self._publisher = publisher
        self._timed = timed
        self._windows = windows
        self._memory = memory
        self._now_ms = now_ms

    def slices(self, branch: Branch) -> StagedSlices:
        """Return the persistent messages of a new transaction."""
        return StagedSlices(self._transaction_writer, self._publisher, self._timed, self._memory, branch)

    def non_persistent(self, branch: Branch) -> StagedNonPersistent:
        """Return the non-persistent messages of a new transaction."""
        return StagedNonPersistent(self._windows, self._publisher, self._memory, self._now_ms, branch)

    def acks(self, branch: Branch) -> StagedAcks:
        """Return the acks of a new transaction."""
        return StagedAcks(self._dispatch_area, self._redelivery, branch)

    @property
    def unpublished_bytes(self) -> int:
        """The charge of committed non-persistent messages to be published. O(messages). Requires: the lock."""
        return self._publisher.non_persistent_bytes


class PropertyStaging:
    """Stages changes of the host's properties in transactions. The state lock guards them."""

    def __init__(self, monitor: Monitor, table: PropertyTable, writer: PropertyWriter) -> None:
        self._monitor = monitor
        self._table = table
        self._writer = writer

    def of(self, branch: Branch, require_open: Callable[[], None]) -> StagedProperties:
        """Return the properties as the commit of a transaction would leave them.

        require_open: raises if the transaction is not open. Requires: the lock.
        """
        return StagedProperties(self._monitor, self._table, self._writer, branch, require_open)

    def stage_retained(self, branch: Branch, name: str, value: bytes | None) -> bool:
        """Stage a retained message, None to delete it; return whether it deletes one that exists. Requires: the lock.

        PropertiesFull or StoreFull: nothing has changed.
        """
        self._writer.stage(branch, {name: value})
        return value is None and self._table.is_retained(name)
