"""DataLogRemover: remove data logs that nothing needs from the journal, without losing a message in a crash."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ..checkpoint.checkpointer import Checkpointer
from ..disk.layout import DATA_LOG_ID_MAX
from ..environment.late_log import LateLogger
from ..environment.locks import StoreLocks, require_outside
from ..format.record import DROP
from ..format.state_record import StateRecord, encode_state
from ..index.index import Index
from ..journal.journal import Journal
from ..journal.journal_syncer import JournalSyncer
from ..numbering import OFFSET_BITS
from ..state.branches import Branches
from .archive import Archive
from .leases import Lease
from .removable import decision_lines, removable

if TYPE_CHECKING:
    from .retention_reasons import RetentionReasons

logger = LateLogger("forebay.store")
cleanup_logger = LateLogger("forebay.store.cleanup")


@dataclass(frozen=True, slots=True)
class CleanupReport:
    """The outcome of a cleanup, as ids of data logs."""

    deleted: tuple[int, ...]
    archived: tuple[int, ...]
    """The data logs that were moved to the archive instead of deleted."""
    relocated_messages: int
    """Live messages that were copied out of sparse data logs."""
    remaining: tuple[int, ...]
    """The data logs that the journal has now, including the newest one."""

    @property
    def removed(self) -> tuple[int, ...]:
        """The data logs that left the journal, whether they were deleted or archived."""
        return (*self.deleted, *self.archived)

    def followed_by(self, last: CleanupReport, relocated_messages: int = 0) -> CleanupReport:
        """Return the combined result of this cleanup and the next one.

        relocated_messages: those that were copied between the two.
        """
        deleted = tuple(sorted((*self.deleted, *last.deleted)))
        archived = tuple(sorted((*self.archived, *last.archived)))
        relocated_messages += self.relocated_messages + last.relocated_messages
        return CleanupReport(deleted, archived, relocated_messages, last.remaining)


class _Decision(NamedTuple):
    """Which data logs a cleanup removes."""

    removed: list[int]
    newly_recorded: list[int]
    """Removed data logs that no earlier drop record names."""
    lines: list[str]
    """The reasons, if somebody wants them."""


class DataLogRemover:
    """Removes data logs from the journal: deletes or archives them.

    A removal is decided and recorded under the state lock, and the record is synced. Then the files go, and at last RAM
    forgets the data logs.
    """

    def __init__(
        self,
        index: Index,
        journal: Journal,
        syncer: JournalSyncer,
        branches: Branches,
        archive: Archive | None,
        locks: StoreLocks,
        *,
        checkpointer: Checkpointer,
        retention_reasons: Callable[[], RetentionReasons],
        leases: Callable[[], Sequence[Lease]] = tuple,
        on_space_freed: Callable[[], None],
    ) -> None:
        """archive: keeps removed data logs; None: they are deleted.
        checkpointer: knows where the next open begins to replay.
        leases: returns the leases that keep data logs now.
        on_space_freed: called under the state lock when data logs are gone.
        """
        self._index = index
        self._journal = journal
        self._syncer = syncer
        self._branches = branches
        self.archive = archive
        self._checkpoint_lock, self._sync_lock, self._state_lock = locks.checkpoint, locks.sync, locks.state
        self._checkpointer = checkpointer
        self._retention_reasons = retention_reasons
        self._leases = leases
        self._on_space_freed = on_space_freed
        # Id from which on data logs were kept for leases at the last cleanup, which writes it without the lock: readers
        # need no newer one.
        self._leased_from = DATA_LOG_ID_MAX + 1
        # Data logs that a drop record names, and whose files still exist.
        self.recorded_as_dropped: set[int] = set()

    def relocatable(self) -> set[int]:
        """Return the data logs out of which messages may be moved. Requires: the lock.

        They are not written to, not needed for replay, not leased, and named in no drop record.
        """
        first_needed = min(self._replayed_data_log, self._leased_from)
        return {data_log for data_log in self._journal.sizes if data_log < first_needed} - self.recorded_as_dropped

    def would_remove(self) -> bool:
        """Return whether a cleanup would remove a data log, as far as is known. Requires: the lock.

        A cleanup begins with a checkpoint. Behind the checkpoint a replay begins in the newest data log. While
        checkpoints are postponed, a replay begins where it did. Leases count as the last cleanup has found them,
        because reading them takes the disk. They keep nothing while another data log would not fit. A data log that the
        disk refused to delete is left to the next cleanup. O(data logs + edges), as `removable` is.
        """
        first_kept = self._replayed_data_log if self._checkpointer.is_postponed else self._journal.data_log
        if not self._journal.fullness.is_short_of_space:
            first_kept = min(first_kept, self._leased_from)
        unneeded = removable(self._index.data_log_uses, first_kept, self._branches.undecided_data_logs)
        return not self.recorded_as_dropped.issuperset(unneeded)

    def remove_data_logs(self) -> CleanupReport:
        """Delete or archive the data logs that nothing needs. Requires: no lock.

        A drop record that names them is synced before the first file is unlinked. So no crash turns a deletion into a
        loss or a redelivery. If the disk refuses to delete a file, the next cleanup tries again.
        """
        wants_lines = cleanup_logger.isEnabledFor(logging.DEBUG)
        data_logs_by_destination = self._retention_reasons().destinations() if wants_lines else None
        leases = self._leases()
        self._leased_from = _first_leased(leases)
        copied = self._copy_ahead(leases)
        require_outside(self._state_lock, self._sync_lock)
        with self._checkpoint_lock:
            with self._state_lock:
                decision = self._decide(leases, copied, data_logs_by_destination)
            is_done = False
            if decision.removed:
                self._syncer.sync()
                is_done = self.remove_files(decision.removed)
                if is_done:
                    self._forget(decision.removed)
            with self._state_lock:
                if self._journal.fullness.refuses_messages:
                    self._journal.try_resume()
                remaining = tuple(sorted(self._journal.sizes))
        for line in decision.lines:
            cleanup_logger.debug("%s", line, event="cleanup_decision")
        if decision.newly_recorded:
            # Also in the wording of KahaDB's log; see `decision_lines`.
            cleanup_logger.debug("Cleanup removing the data logs: %s", decision.newly_recorded, event="cleanup_removes")
        gone = tuple(decision.removed) if is_done else ()
        deleted, archived = ((), gone) if self.archive is not None else (gone, ())
        return CleanupReport(deleted, archived, 0, remaining)

    def _decide(
        self,
        leases: Sequence[Lease],
        copied: list[int] | None,
        data_logs_by_destination: dict[str, set[int]] | None,
    ) -> _Decision:
        """Decide which data logs are removed, and record it. Requires: the checkpoint lock and the state lock.

        copied: the data logs that the archive has, so that they may be removed; None: all may.
        data_logs_by_destination: the data logs with a pending message of each destination; None: no lines are wanted.
        """
        replayed_from = self._replayed_data_log
        kept = set(self._branches.undecided_data_logs) | self._leased(leases)
        removed = removable(self._index.data_log_uses, replayed_from, kept)
        if copied is not None and (unready := set(removed).difference(copied)):
            kept |= unready
            removed = removable(self._index.data_log_uses, replayed_from, kept)
        lines: list[str] = []
        if data_logs_by_destination is not None:
            lines = self._decision_lines(replayed_from, kept, data_logs_by_destination)
        # Data logs that the disk has refused to delete are in an earlier drop record. Its own data log may be removed
        # now: each newer one begins with a state record, which does not name dropped data logs.
        newly_recorded = sorted(set(removed) - self.recorded_as_dropped)
        if newly_recorded:
            with self._journal.all_or_broken:
                self._journal.append(DROP, 0, len(newly_recorded), encode_state(StateRecord(data_logs=newly_recorded)))
                self.recorded_as_dropped.update(newly_recorded)
        return _Decision(removed, newly_recorded, lines)

    @property
    def _replayed_data_log(self) -> int:
        """The data log from which the next open replays, which may be written to. Requires: the lock."""
        return min(self._journal.data_log, self._checkpointer.replay_position >> OFFSET_BITS)

    def _leased(self, leases: Sequence[Lease]) -> set[int]:
        """Return the data logs that a leasing reader has not finished. Requires: the lock."""
        first = _first_leased(leases)
        return {data_log for data_log in self._index.data_log_uses if data_log >= first}

    def _copy_ahead(self, leases: Sequence[Lease]) -> list[int] | None:
        """Copy data logs that nothing needs to the archive; return those that may be removed now. None: all may.

        This is the slow part of archiving, and holds no lock.
        """
        if self.archive is None:
            return None
        with self._state_lock:
            kept = set(self._branches.undecided_data_logs) | self._leased(leases)
            unneeded = removable(self._index.data_log_uses, self._replayed_data_log, kept)
        ready, error = self.archive.copy(unneeded)
        if error is not None:
            logger.warning(
                "a data log could not be archived (%s); the next cleanup tries again",
                error.strerror,
                event="data_log_not_archived",
            )
        return ready

    def remove_files(self, data_logs: list[int]) -> bool:
        """Remove the files of data logs from the journal. Requires: a drop record that names them is synced.

        False: the disk refused; the next cleanup or the next open tries again.
        """
        try:
            if self.archive is not None:
                self.archive.keep(data_logs)
            self._journal.files.remove(data_logs)
            return True
        except OSError as error:
            logger.warning(
                "a data log could not be discarded (%s); it is tried again",
                error.strerror,
                event="data_log_not_discarded",
            )
            return False

    def _decision_lines(
        self, replayed_from: int, kept: set[int], data_logs_by_destination: dict[str, set[int]]
    ) -> list[str]:
        return decision_lines(
            self._index.data_log_uses,
            replayed_from,
            kept,
            last_update=self._checkpointer.replay_position,
            first_transaction=self._branches.first_position,
            destinations=data_logs_by_destination,
        )

    def _forget(self, data_logs: list[int]) -> None:
        """Forget data logs whose files are removed, in index and journal. Requires: no lock but the checkpoint lock."""
        with self._state_lock, self._journal.all_or_broken:
            self._index.forget_data_logs(data_logs)
            files = self._journal.forget(data_logs)
            self.recorded_as_dropped.difference_update(data_logs)
            self._on_space_freed()
        files.clear()  # without the lock, because closing a file frees its pages, which takes long


def _first_leased(leases: Iterable[Lease]) -> int:
    """Return the id from which on data logs are leased."""
    return min((lease.data_log for lease in leases), default=DATA_LOG_ID_MAX + 1)
