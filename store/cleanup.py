"""Cleanup: returns disk space that no message needs any more.

The Trimmer drops messages that topics only retain. The Cleaner deletes data logs that nothing needs. Relocation moves
live messages out of the data logs that remain. Each of them leaves the store consistent after every step, so a crash
loses nothing but their progress.
"""

from __future__ import annotations

from collections.abc import Callable

from .clock import Clock
from .index.subscriptions import Subscriptions
from .journal.journal import Journal
from .late_log import emit_late
from .maintenance.cleaner import Cleaner, CleanupReport
from .maintenance.relocation import Relocation
from .maintenance.trimmer import Trimmer


class Cleanup:
    """Gives back the disk space of one open store. No method requires a lock."""

    def __init__(
        self,
        cleaner: Cleaner,
        relocation: Relocation,
        trimmer: Trimmer,
        journal: Journal,
        subscriptions: Subscriptions,
        clock: Clock,
        checkpoint: Callable[[], bool],
    ) -> None:
        """checkpoint: brings the index on disk up to the journal; returns False if the disk is too full for that."""
        self.cleaner = cleaner
        self.relocation = relocation
        self.trimmer = trimmer
        self._journal = journal
        self._subscriptions = subscriptions
        self._clock = clock
        self._checkpoint = checkpoint

    def on_room(self, room_came: Callable[[], None]) -> None:
        """Set the callback for discarded data logs. It is called under the lock."""
        self.cleaner.room_came = room_came

    def run(self) -> CleanupReport:
        """Delete data logs that nothing needs, relocate messages that keep large data logs, and delete again.

        Afterwards the journal has at most twice the live bytes plus three data logs, if nobody writes meanwhile.
        """
        try:
            return self._run()
        finally:
            emit_late()

    def _run(self) -> CleanupReport:
        report = self.delete_unneeded()
        appended_bytes = self.relocation.appended_bytes
        relocated_messages = self.relocation.run(self._checkpoint)
        if self.relocation.appended_bytes == appended_bytes:
            return report
        return report.followed_by(self.delete_unneeded(), relocated_messages)

    def delete_unneeded(self) -> CleanupReport:
        """Delete or archive the data logs that nothing needs, without relocation."""
        if self.trimmer.is_retaining:
            self.trimmer.trim(self._clock.time_ms())
        report = self._delete_unneeded()
        while self._journal.is_short_of_room and self.trimmer.give_up_oldest():
            report = report.followed_by(self._delete_unneeded())
        return report

    def _delete_unneeded(self) -> CleanupReport:
        self._checkpoint()
        while self._subscriptions.is_behind and self._checkpoint():
            pass  # a subscription that ended needed more messages than the index holds at once: call again
        return self.cleaner.delete_unneeded()

    @property
    def wants_retained_room(self) -> bool:
        """Whether a cleanup would drop retained messages of topics because the store is nearly full."""
        return self.trimmer.is_retaining and self._journal.is_short_of_room
