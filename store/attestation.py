"""Attestation: after traffic has ended, write a record that says how far the journal is durable.

Every record says how far the journal was durable before that record. So nothing tells that the last record before a
pause is durable itself, and recovery would take damage in it for a torn tail. The attest record closes this gap. A
crash may lose the attest record; nothing else depends on it.
"""

from __future__ import annotations

from .checkpointer import Checkpointer
from .errors import StoreFull
from .format.record import ATTEST
from .journal.journal import Journal
from .locks import OwnedLock


class Attestation:
    """Writes the attest records of one open store. The state lock guards it."""

    def __init__(self, journal: Journal, checkpointer: Checkpointer, state_lock: OwnedLock) -> None:
        self._journal = journal
        self._checkpointer = checkpointer
        self._lock = state_lock
        # End of the last attest record. If that record found no room: how far the journal was durable then.
        self._end = 0

    @property
    def is_wanted(self) -> bool:
        """Whether more is durable than the newest record says. The last attest record itself does not count."""
        journal = self._journal
        return journal.failure is None and journal.attested < journal.durable and journal.durable != self._end

    def write(self) -> bool:
        """Write an attest record if one is wanted; return whether it was written. Requires: no lock."""
        with self._lock:
            if not self.is_wanted:
                return False
            begin = self._journal.end
            try:
                self._journal.append(ATTEST, 0, 0, b"")
            except StoreFull:
                self._end = self._journal.durable  # no second try before the journal is synced further
                return False
            self._end = self._journal.end
            self._checkpointer.pass_over(begin, self._end)
            return True
