"""Relocation of slices of prepared transactions, so that a transaction that waits for its outcome keeps no data log.

The slices are copied with the flag RELOCATED. Such copies alone have no effect. Then a prepare record of the same
branch names the copies instead of the originals, so after a crash the branch has either all originals or all copies.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ..disk.disk import File
from ..environment.account import Account
from ..environment.locks import OwnedLock
from ..format.branch import Branch, PlacedSlice, branch_bytes
from ..format.record import HEADER_BYTES, RELOCATED, TIMED, TRANSACTIONAL
from ..journal.journal import Journal
from ..numbering import OFFSET_BITS
from ..state.branches import Branches, read_contents
from ..writers.transaction_writer import TransactionWriter
from .relocation_scan import BATCH_BYTES

PREPARE_FACTOR: Final = 2
"""A branch is moved only out of a data log this many times as large as its prepare record, which is rewritten."""


class MoveReport(NamedTuple):
    messages: int
    appended_bytes: int
    problem: str
    """Why something is left; empty: nothing is."""
    is_waiting: bool = False
    """Whether slices were left for want of memory."""


class PreparedMoving:
    """Moves slices of prepared transactions. Requires for `move`: no lock, and no other relocation under way."""

    def __init__(
        self,
        branches: Branches,
        transaction_writer: TransactionWriter,
        journal: Journal,
        state_lock: OwnedLock,
        account: Account,
    ) -> None:
        """Make it. account: pays for slices that are not small."""
        self._branches = branches
        self._transaction_writer = transaction_writer
        self._journal = journal
        self._state_lock = state_lock
        self._account = account

    def move(self, data_log: int, file: File, salt: int, data_log_bytes: int) -> MoveReport:
        """Move the slices of prepared transactions out of a data log.

        RecordDamaged, OSError: a slice can't be read. StoreFull: the disk has no room for all; the slices that were not
        moved stay.
        """
        messages = appended_bytes = 0
        with self._state_lock:
            branches = self._branches.prepared if data_log in self._branches.prepared_bytes else []
        for branch in branches:
            with self._state_lock:
                slices = [placed for placed in branch if placed.position >> OFFSET_BITS == data_log]
            if not slices:
                continue
            if PREPARE_FACTOR * branch_bytes(branch) > data_log_bytes:
                return MoveReport(
                    messages, appended_bytes, "a prepared transaction has too many slices to be written again"
                )
            places: dict[int, int] = {}
            for placed in slices:
                charge_bytes = 3 * placed.length if placed.length > BATCH_BYTES else 0
                with self._state_lock:
                    if not self._account.reserve(charge_bytes):
                        return MoveReport(messages, appended_bytes, "memory is short", is_waiting=True)
                try:
                    position = self._copy(branch, placed, file, salt)
                finally:
                    with self._state_lock:
                        self._account.release(charge_bytes)
                if position is None:
                    break
                places[placed.position] = position
                appended_bytes += placed.length
            with self._state_lock:
                if self._waits(branch):
                    self._transaction_writer.move(branch, places)
                    messages += sum(placed.messages for placed in slices)
                    appended_bytes += HEADER_BYTES + branch_bytes(branch)
        return MoveReport(messages, appended_bytes, "")

    def _waits(self, branch: Branch) -> bool:
        """Return whether the branch still waits for its outcome. Requires: the lock."""
        return self._branches.find(branch.number) is branch

    def _copy(self, branch: Branch, placed: PlacedSlice, file: File, salt: int) -> int | None:
        """Return the position of the copy. None: the branch has its outcome."""
        part, contents = read_contents(file, salt, branch.number, placed)
        journal = self._journal
        with self._state_lock:
            if not self._waits(branch):
                return None
            flags = part.priority | RELOCATED | TRANSACTIONAL | (TIMED if placed.position in branch.timed else 0)
            head = flags, part.destination_number, branch.number, part.timestamp
            with journal.all_or_broken:
                offset, _ = journal.append_slice(*head, contents)
            return journal.data_log << OFFSET_BITS | offset
