"""DataLogRetention: tells why the data logs of an open store remain. It only reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..checkpoint.checkpointer import Checkpointer
from ..disk.disk import Disk
from ..environment.clock import Clock
from ..environment.locks import OwnedLock
from ..format.destination_table import DestinationTable
from ..index.index import Index
from ..index.subscriptions import Subscriptions
from ..journal.journal import Journal
from ..numbering import OFFSET_BITS
from ..state.branches import Branches
from .leases import Lease, LeaseReader

if TYPE_CHECKING:
    from .retention_reasons import RetentionReasons


class DataLogRetention:
    """Reads which queues, subscriptions, transactions and leases need which data logs. No method requires a lock."""

    def __init__(
        self,
        *,
        disk: Disk,
        index: Index,
        subscriptions: Subscriptions,
        branches: Branches,
        journal: Journal,
        checkpointer: Checkpointer,
        destination_table: DestinationTable,
        clock: Clock,
        state_lock: OwnedLock,
    ) -> None:
        self._index = index
        self._subscriptions = subscriptions
        self._branches = branches
        self._journal = journal
        self._checkpointer = checkpointer
        self._destination_table = destination_table
        self._clock = clock
        self._state_lock = state_lock
        self._lease_reader = LeaseReader(disk)

    def reasons(self) -> RetentionReasons:
        """Return the reasons why data logs remain. O(data logs); reading the reasons costs more."""
        with self._state_lock:
            newest = self._journal.data_log
            checkpointer = self._checkpointer
            replayed = checkpointer.replay_position >> OFFSET_BITS if checkpointer.is_postponed else newest
            transactions = self._branches.data_logs()
        # Imported here so that `import forebay` stays fast, because few callers ask.
        from .retention_reasons import RetentionReasons

        return RetentionReasons(
            self._index,
            self._state_lock,
            self._destination_table,
            newest,
            self._journal.reader,
            replayed=replayed,
            transactions=transactions,
            leases=self.leases(),
            durable=self._subscriptions.encoded,
        )

    def leases(self) -> list[Lease]:
        """Return the leases of readers in other processes; none if another data log would not fit, as leases then keep
        nothing.
        """
        return [] if self._journal.fullness.is_short_of_space else self._lease_reader.read(self._clock.time_ms())
