"""Attestation: after traffic has ended, a record says how far the journal is durable.

Every record says how far it was durable before it, and the last one before a pause says too little: until another
follows, a damaged record behind what it says is taken for a torn tail. A crash loses the attest record, or not; nothing
else depends on it.
"""

from __future__ import annotations

from .checkpointer import Checkpointer
from .errors import StoreFull
from .format.record import ATTEST
from .journal.journal import Journal
from .locks import OwnedLock


class Attestation:
    """One for each open store. The state lock guards it."""

    def __init__(self, journal: Journal, checkpointer: Checkpointer, state_lock: OwnedLock) -> None:
        self._journal = journal
        self._checkpointer = checkpointer
        self._lock = state_lock
        self._end = 0
        """Where the last attest record ended; where it found no room, what was durable then."""

    @property
    def is_wanted(self) -> bool:
        """Whether more is durable than the newest record says, other than the last attest record itself."""
        journal = self._journal
        return journal.failure is None and journal.attested < journal.durable and journal.durable != self._end

    def write(self) -> bool:
        """Say in the journal how far it is durable, if that is wanted; return whether it was. Requires: no lock."""
        with self._lock:
            if not self.is_wanted:
                return False
            begin = self._journal.end
            try:
                self._journal.append(ATTEST, 0, 0, b"")
            except StoreFull:
                self._end = self._journal.durable  # not again before something else was synced
                return False
            self._end = self._journal.end
            self._checkpointer.pass_over(begin, self._end)
            return True
