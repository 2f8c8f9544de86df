"""Relocation: copy live messages out of sparse data logs, so that cleanup can delete those.

A copy is a slice like any other, with the flag RELOCATED, and with the sequences and the timestamp of its originals. In
one hold of the state lock, the copy is appended and the index updated, only for messages that are pending then. So acks
before the copy in the journal never concern the copy, and acks behind it always do. Like an ack, a copy undoes the
record it was made from, so the data log of the copy stays as long as that of the original. A crash leaves the original,
with or without the copy; relocation deletes nothing.

Other data logs may stay only for acks of messages in one that is too dense to be copied. Then a survivors record names
the remaining messages of the dense one, and these acks are no longer needed.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Set
from typing import Final, NamedTuple

from ..checkpoint.checkpointer import MakeCheckpoint
from ..environment.account import Account
from ..environment.late_log import LateLogger
from ..environment.locks import StoreLocks, require_outside
from ..errors import StoreFull
from ..format.record import RecordDamaged
from ..index.data_log_use import DataLogUse
from ..index.index import Index
from ..journal.data_log import DATA_LOG_HEADER_BYTES
from ..journal.journal import Journal
from ..state.branches import Branches
from ..writers.transaction_writer import TransactionWriter
from .drain_forecast import DrainForecast
from .live_copying import LiveCopying
from .live_search import LiveSearch
from .prepared_moving import PreparedMoving
from .relocation_plan import choose, copied_bytes_of
from .relocation_scan import LiveMessages, ScannedPiece, batches, scan_piece
from .relocation_work import LeftDataLogs, RelocationCounts, RelocationSource
from .removable import removable
from .survivor_naming import SurvivorNaming
from .throttle import Throttle

logger = LateLogger("forebay.store.cleanup")

COPY_STEP_BYTES: Final = 256 * 1024
"""Bytes of records that one step copies, or a little more."""
SCAN_BYTES: Final = 4 << 20
"""Bytes of a data log that one step scans, or a little more."""
STEP_CHARGE_BYTES: Final = 56 * 1024
"""Memory of a step: a piece, the messages found in the piece, a batch, and the contents of the batch."""
SCAN_DIVISOR: Final = 16
"""So many scanned bytes count as much as one copied byte."""
STEPS_MAX: Final = 16
SAMPLE_SECONDS: Final = 1.0

LIVE_FACTOR_UNDER_LOAD: Final = 3
"""If the journal is larger than so many times its live messages, as records, relocation may slow traffic down."""


class RelocationTarget(NamedTuple):
    """How large relocation lets a journal become. Tests with small stores lower it."""

    live_factor: int = 2
    """The journal may be so many times as large as the live bytes, plus `data_logs_allowed` data logs."""
    data_logs_allowed: int = 3


class JournalSizes(NamedTuple):
    """How large the journal is, and how large it may be."""

    remaining_bytes: int
    """Bytes that a cleanup would leave if no lease and no replay kept a data log."""
    whole_bytes: int
    """Bytes that the journal has now, with the data logs that nothing needs."""
    stop_below_bytes: int
    """Relocation that has begun goes on until less than this remains, as long as that costs next to nothing."""
    target_bytes: int
    """If more than this remains, relocation begins."""
    target_under_load_bytes: int
    """If more than this remains, relocation may slow traffic down."""


class Goal(NamedTuple):
    """What choosing a data log aims at, and which data logs it leaves alone, during one `run` or `run_due`."""

    packs_closely: bool
    """Whether only the content of a live message counts, so that small messages are packed closer together. Otherwise
    a live message counts as a record of its own, so that beside traffic nobody is slowed down for that.
    """
    newest: int
    """The newest data log that may be chosen. Data logs that fill up meanwhile wait for the next goal."""
    soon_empty: Set[int]
    """Data logs that are left to consumers, which will soon have emptied them."""


class Relocation:
    """Relocates one data log at a time. `step` holds the checkpoint lock, and takes the state lock for moments."""

    def __init__(
        self,
        index: Index,
        journal: Journal,
        branches: Branches,
        transaction_writer: TransactionWriter,
        locks: StoreLocks,
        *,
        account: Account,
        data_log_bytes: int,
        relocatable: Callable[[], set[int]],
        would_remove: Callable[[], bool],
        target: RelocationTarget,
        now: float,
    ) -> None:
        """relocatable: returns the data logs that cleanup may delete when nothing needs them; called with the lock.
        would_remove: returns whether a cleanup would remove a data log; called with the lock.
        """
        self._index = index
        self._branches = branches
        self._journal = journal
        self._checkpoint_lock, self._sync_lock, self._state_lock = locks.checkpoint, locks.sync, locks.state
        self._account = account
        self._data_log_bytes = data_log_bytes
        self._relocatable = relocatable
        self._would_remove = would_remove
        self._target = target
        self._prepared_moving = PreparedMoving(branches, transaction_writer, journal, locks.state, account)
        self._source: RelocationSource | None = None
        self.left = LeftDataLogs()
        self._counts = counts = RelocationCounts()
        self._live_search = LiveSearch(index, branches, counts)
        self._live_copying = LiveCopying(index, journal, locks.state, account, self.left, counts)
        self._survivor_naming = SurvivorNaming(index, journal, account, self.left, counts)
        self._throttle = Throttle(now)
        self._draining = DrainForecast(now)
        self._sampled_at = now
        # Whether the journal was so large at the last choice that relocation may slow traffic down.
        self._is_far_above = False
        # Whether relocation has begun. It goes on below the target as long as sparse data logs are left.
        self._is_under_way = False
        # Whether there is work, now or as soon as the traffic leaves room for it.
        self.is_wanted = False
        # Whether the journal is too large and a cleanup would remove a data log.
        self._wants_cleanup = False

    @property
    def messages(self) -> int:
        """Number of messages copied so far."""
        return self._counts.messages

    @property
    def appended_bytes(self) -> int:
        """Bytes of all records that relocation has written."""
        return self._counts.appended_bytes

    # ------------------------------------------------------------------ choosing a data log

    def sizes(self, goal: Goal) -> JournalSizes:
        """Return the sizes that decide about relocation. Requires: the lock. O(data logs + edges), see `removable`."""
        uses, sizes = self._index.data_log_uses, self._journal.sizes
        removable_now = self._removable()
        # The newest data log has its space already.
        newest_bytes = max(self._data_log_bytes - self._journal.offset, 0)
        whole_bytes = self._journal.journal_bytes + newest_bytes
        prepared_bytes = sum(self._branches.prepared_bytes.values())
        live_bytes = prepared_bytes + sum(map(copied_bytes_of, uses.values()))
        under_load_bytes = LIVE_FACTOR_UNDER_LOAD * live_bytes
        if goal.packs_closely:
            live_bytes = prepared_bytes + sum(use.pending_bytes for use in uses.values())
        due_bytes = self._target.live_factor * live_bytes
        allowed_bytes = self._target.data_logs_allowed * self._data_log_bytes
        return JournalSizes(
            remaining_bytes=whole_bytes - sum(sizes.get(data_log, 0) for data_log in removable_now),
            whole_bytes=whole_bytes,
            stop_below_bytes=due_bytes + self._data_log_bytes,  # the newest data log, and no other
            target_bytes=due_bytes + allowed_bytes,
            target_under_load_bytes=under_load_bytes + allowed_bytes,
        )

    def _removable(self) -> list[int]:
        return removable(self._index.data_log_uses, self._journal.data_log, self._branches.undecided_data_logs)

    def take_cleanup_request(self) -> bool:
        """Return whether a cleanup should come, because the journal is too large. One call takes the request."""
        is_requested = self._wants_cleanup
        if is_requested:  # otherwise write nothing: another thread may request one meanwhile
            self._wants_cleanup = False
        return is_requested

    def thorough_goal(self) -> Goal:
        """Return the goal of `run`, which minds neither traffic nor consumers. Requires: the lock."""
        return Goal(packs_closely=True, newest=self._journal.data_log, soon_empty=frozenset())

    def run(self, make_checkpoint: MakeCheckpoint) -> int:
        """Relocate everything that is worth it, whatever the traffic; return the number of copied messages.

        Requires: no lock.
        """
        before = self.messages
        with self._state_lock:
            self._begin_round()
            goal = self.thorough_goal()
        while self._make_index_room(make_checkpoint) and self.step(goal):
            pass
        return self.messages - before

    def run_due(self, now: float, make_checkpoint: MakeCheckpoint) -> int:
        """Relocate as much as the traffic leaves room for; return the number of steps. Requires: no lock."""
        with self._state_lock:
            self._throttle.sample(now, self._journal.appended_bytes - self.appended_bytes)
            is_sample_due = now - self._sampled_at >= SAMPLE_SECONDS
            if is_sample_due:
                self._sampled_at = now
                self._draining.sample(now, self._index.data_log_uses)
            goal = Goal(not self._throttle.is_busy(now), self._journal.data_log, self._draining.soon_empty)
            if is_sample_due:
                self._choose_next(goal)
            self._throttle.earn(is_far_above=self._is_far_above)
        steps = 0
        while self.is_wanted and steps < STEPS_MAX and self._throttle.allows(now):
            if not self._make_index_room(make_checkpoint):
                break
            copied_bytes, scanned_bytes = self.appended_bytes, self._counts.scanned_bytes
            self.is_wanted = self.step(goal)
            copied_bytes, scanned_bytes = self.appended_bytes - copied_bytes, self._counts.scanned_bytes - scanned_bytes
            self._throttle.count_copied(copied_bytes + scanned_bytes // SCAN_DIVISOR, now)
            steps += self.is_wanted
        if steps:
            with self._state_lock:
                self._choose_next(goal)
        return steps

    def _make_index_room(self, make_checkpoint: MakeCheckpoint) -> bool:
        """Checkpoint if the index fills. False: the checkpoint is postponed."""
        return make_checkpoint() if self._index.is_filling else True

    def _choose_next(self, goal: Goal) -> None:
        sizes = self.sizes(goal)
        if self._source is None:
            self._begin_round()
            self._source = self._choose(goal)
        self.is_wanted = self._source is not None
        self._is_far_above = sizes.remaining_bytes > sizes.target_under_load_bytes
        self._wants_cleanup = sizes.whole_bytes > sizes.target_bytes and self._would_remove()

    def _begin_round(self) -> None:
        """Let data logs be tried again for which there was no memory. Requires: the lock."""
        self.left.waiting.clear()

    def _choose(self, goal: Goal) -> RelocationSource | None:
        """Return the data log that frees most for its price. None: no data log is worth it. Requires: the lock."""
        sizes = self.sizes(goal)
        is_above = sizes.remaining_bytes > sizes.target_bytes
        if not is_above and not (self._is_under_way and sizes.remaining_bytes > sizes.stop_below_bytes):
            self._is_under_way = False
            return None
        remaining = self._relocatable() - set(self._removable())
        choice = choose(
            self._index.data_log_uses,
            self._journal.sizes,
            [data_log for data_log in remaining if data_log <= goal.newest],
            prepared_bytes=self._branches.prepared_bytes,
            unmovable=self.left.kept | self.left.waiting | set(self._branches.open_data_logs) | goal.soon_empty,
            unnameable=self.left.unnameable,
            only_sparse=not is_above,
        )
        self._is_under_way = choice is not None
        return self._opened(*choice) if choice is not None else None

    def _opened(self, data_log: int, is_naming: bool, freed_bytes: int) -> RelocationSource | None:
        try:
            file, salt = self._journal.reader(data_log)
        except (OSError, RecordDamaged) as problem:
            self.left.give_up(data_log, f"it cannot be opened ({problem})")
            return None
        end = self._journal.sizes[data_log]
        work = "Naming" if is_naming else "Relocating"
        logger.debug(
            "%s %d messages in data-%d.log",
            work,
            self._index.data_log_uses[data_log].pending_messages,
            data_log,
            event="relocation_begun",
        )
        return RelocationSource(data_log, is_naming, file, salt, DATA_LOG_HEADER_BYTES, end, freed_bytes)

    def step(self, goal: Goal) -> bool:
        """Scan a part of a data log and copy its live messages. Requires: no lock. Raises StoreFailed.

        Return False if nothing was done: no data log is worth it, or memory, index or disk has no room. If the index is
        crowded, a checkpoint must come first.
        """
        require_outside(self._state_lock, self._sync_lock)
        with self._checkpoint_lock:
            is_done = True
            source = self._begin_step(goal)
            if source is None:
                return False
            try:
                is_done = self._advance(source, goal.soon_empty)
                if is_done and not source.is_naming:
                    self._move_prepared(source)
            except StoreFull as full:
                logger.warning("relocation waits for space: %s", full, event="relocation_without_space")
                return False
            except (RecordDamaged, struct.error, OSError) as problem:
                self.left.give_up(source.data_log, f"it cannot be read ({problem})")
            finally:
                with self._state_lock:
                    self._account.release(STEP_CHARGE_BYTES)
                    if is_done:
                        self._release(source)
            return True

    def _begin_step(self, goal: Goal) -> RelocationSource | None:
        """Choose a data log, if none is chosen, and reserve the memory of a step. Requires: no state lock.

        None: no data log is worth it, or memory or index has no room.
        """
        with self._state_lock:
            if self._journal.failure is not None:
                raise self._journal.failure.again()
            source = self._source = self._source or self._choose(goal)
            if source is None or self._index.is_crowded:
                return None
            if not self._account.reserve(STEP_CHARGE_BYTES):
                self._release(source)
                return None
            return source

    def _move_prepared(self, source: RelocationSource) -> None:
        """Move the slices of prepared transactions, once nothing else in the data log is live. Requires: no lock."""
        with self._state_lock:
            use = self._index.find_use(source.data_log)
            if use is not None and use.pending_messages:
                return
        moved = self._prepared_moving.move(source.data_log, source.file, source.salt, source.end)
        self._counts.messages += moved.messages
        self._counts.appended_bytes += moved.appended_bytes
        if moved.is_waiting:
            self.left.waiting.add(source.data_log)
        elif moved.problem:
            self.left.keep(source.data_log, moved.problem, logging.DEBUG)

    def _release(self, source: RelocationSource) -> None:
        """Release the memory of a source and finish with it. Requires: the lock."""
        self._account.release(source.charge_bytes)
        self._source = None

    def _advance(self, source: RelocationSource, soon_empty: Set[int]) -> bool:
        """Continue with a data log; return whether it is finished."""
        counts = self._counts
        scanned_to, copied_to = counts.scanned_bytes + SCAN_BYTES, counts.appended_bytes + COPY_STEP_BYTES
        while counts.scanned_bytes < scanned_to and counts.appended_bytes < copied_to:
            piece = scan_piece(source.file, source.offset, source.end) if source.is_scanning else None
            with self._state_lock:
                live = self._find_live(source, piece, soon_empty)
            if live is None:
                return True
            if not source.is_naming:
                for records in batches(live):
                    if not self._live_copying.copy(source, records):
                        return self.left.is_left(source.data_log)
            if source.is_scanning:
                assert piece is not None
                counts.scanned_bytes += piece.behind - source.offset
                source.offset = piece.behind
            else:
                source.place = source.behind
        return False

    def _find_live(
        self, source: RelocationSource, piece: ScannedPiece | None, soon_empty: Set[int]
    ) -> list[LiveMessages] | None:
        """Return the live messages of a piece; without a piece, those of some blocks of the index.

        None: the data log is finished.

        piece: the next piece of heads; None: all heads are scanned. Then the index is searched, if transactions sent
            messages, because their slices do not say whether they were committed.

        Requires: the lock.
        """
        use = self._index.find_use(source.data_log)
        if use is None or not use.pending_messages:
            self._finish(source, use)
            return None
        if not source.is_naming and source.data_log in soon_empty:
            return None
        search = self._live_search
        is_scanned = piece is not None and piece.behind == source.offset
        if is_scanned or (source.is_searched and search.has_outcomes(source)):
            search.begin(source)
        if source.is_searched:
            self._finish(source, use)
            return None
        if source.is_scanning:
            assert piece is not None
            live = search.in_piece(source, piece)
        else:
            live = search.in_index(source)
        return live if not source.is_naming or self._survivor_naming.note(source, live) else None

    def _finish(self, source: RelocationSource, use: DataLogUse | None) -> None:
        """Finish with a data log that was scanned, or has no live message any more. Requires: the lock."""
        if use is not None and source.is_naming:
            self._survivor_naming.append(source, use)
        elif use is not None and use.pending_messages:
            self.left.give_up(source.data_log, f"{use.pending_messages} live messages were not found in it")
