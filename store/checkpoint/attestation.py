"""Attestation: write a record after traffic has ended that says how far the journal is durable.

Every record says how far the journal was durable before it. So until another record follows, the last one before a
pause says too little: a damaged record behind the position that it names is taken for a torn tail. A crash may lose the
attest record; nothing else depends on it.
"""

from __future__ import annotations

from ..environment.locks import OwnedLock
from ..errors import StoreFull
from ..format.record import ATTEST
from ..journal.journal import Journal
from .checkpointer import Checkpointer


class Attestation:
    """The attestation of an open store. The state lock guards it."""

    def __init__(self, journal: Journal, checkpointer: Checkpointer, state_lock: OwnedLock) -> None:
        self._journal = journal
        self._checkpointer = checkpointer
        self._state_lock = state_lock
        # Where the last attest record ended. If there was no room for it: what was durable then.
        self._end = 0

    @property
    def is_wanted(self) -> bool:
        """Whether more is durable than the newest record says, apart from the last attest record itself."""
        journal = self._journal
        if journal.failure is not None or journal.durable_end == self._end:
            return False
        return journal.attested_end < journal.durable_end

    def write(self) -> bool:
        """Write how far the journal is durable, if that is wanted; return whether it was. Requires: no lock."""
        with self._state_lock:
            if not self.is_wanted:
                return False
            begin = self._journal.end
            try:
                self._journal.append(ATTEST, 0, 0, b"")
            except StoreFull:
                self._end = self._journal.durable_end  # not again before something else is synced
                return False
            self._end = self._journal.end
            self._checkpointer.skip_record(begin, self._end)
            return True
