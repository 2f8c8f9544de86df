"""Cleanup: give back disk space that nothing needs.

The Trimmer deletes messages that topics only retain. The DataLogRemover removes data logs that nothing needs.
Relocation moves live messages out of sparse data logs, so that these can be removed too. Each step leaves the store
whole, so a crash loses only progress.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..checkpoint.checkpointer import MakeCheckpoint
from ..environment.clock import Clock
from ..environment.late_log import emit_late
from ..index.subscriptions import Subscriptions
from ..journal.fullness import Fullness
from .data_log_remover import CleanupReport, DataLogRemover
from .relocation import Relocation
from .trimmer import Trimmer


class Cleanup:
    """The cleanup of an open store. No method but `not_dropped` requires a lock."""

    def __init__(
        self,
        *,
        remover: DataLogRemover,
        relocation: Relocation,
        trimmer: Trimmer,
        fullness: Fullness,
        subscriptions: Subscriptions,
        clock: Clock,
        make_checkpoint: MakeCheckpoint,
    ) -> None:
        self.remover = remover
        self.relocation = relocation
        self.trimmer = trimmer
        self._fullness = fullness
        self._subscriptions = subscriptions
        self._clock = clock
        self._make_checkpoint = make_checkpoint

    def not_dropped(self, data_logs: Iterable[int]) -> set[int]:
        """Return the given data logs without those that a drop record names. Files of these may still exist.

        Requires: the lock.
        """
        return set(data_logs) - self.remover.recorded_as_dropped

    def run(self) -> CleanupReport:
        """Delete data logs that nothing needs, relocate messages out of sparse ones, and delete again, all at once.

        Afterwards the journal has at most twice the live bytes and three data logs, unless somebody writes meanwhile.
        In the background, two tasks do the same in steps, by `delete_data_logs` and `Relocation.run_due`.
        """
        try:
            return self._run()
        finally:
            emit_late()

    def _run(self) -> CleanupReport:
        report = self.delete_data_logs()
        appended_bytes = self.relocation.appended_bytes
        relocated_messages = self.relocation.run(self._make_checkpoint)
        if self.relocation.appended_bytes == appended_bytes:
            return report
        return report.followed_by(self.delete_data_logs(), relocated_messages)

    def delete_data_logs(self) -> CleanupReport:
        """Trim retained messages, checkpoint, and delete or archive the data logs that nothing needs then."""
        if self.trimmer.is_retaining:
            self.trimmer.trim(self._clock.time_ms())
        report = self._checkpoint_and_remove()
        while self._fullness.is_short_of_space and self.trimmer.give_up_oldest():
            report = report.followed_by(self._checkpoint_and_remove())
        return report

    def _checkpoint_and_remove(self) -> CleanupReport:
        self._make_checkpoint()
        while self._subscriptions.is_behind and self._make_checkpoint():
            pass  # an ended subscription had messages in more blocks than may be dirty at once
        return self.remover.remove_data_logs()

    def take_request(self) -> bool:
        """Return whether relocation asks for a cleanup, once for each time that it does."""
        return self.relocation.take_cleanup_request()

    @property
    def wants_retained_space(self) -> bool:
        """Whether a cleanup would delete messages that topics only retain, because the store has hardly any room."""
        return self.trimmer.is_retaining and self._fullness.is_short_of_space
