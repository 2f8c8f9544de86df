"""Relocation: copy live messages out of sparse data logs, so that cleanup can delete those.

A copy is a slice like any other, with the flag RELOCATED and the sequences and timestamp of its originals. It is
appended and the index updated in one hold of the state lock, and only for messages that are pending then. So an ack
before the copy in the journal never concerns it, and an ack behind it always does. Like an ack, a copy undoes the
record it was made from, so its data log stays as long as that of the original. A crash leaves both or only the
original; relocation deletes nothing.

A dense data log may keep others that only hold acks for it. Then a survivors record names its remaining messages, and
those acks are no longer needed.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ..disk.disk import File
from ..environment.account import Account
from ..environment.late_log import LateLogger
from ..environment.locks import StoreLocks, require_outside
from ..errors import StoreFull
from ..format.needs_record import NeededRun, needs_bytes, needs_payload
from ..format.record import (
    ENTRY_BYTES,
    HEADER_BYTES,
    NEEDS,
    RANGES_MAX,
    RELOCATED,
    SLICE_BYTES,
    SURVIVORS,
    TIMED,
    LaneRun,
    RecordDamaged,
)
from ..format.survivors_record import SURVIVOR_RANGES_MAX, survivors_payload
from ..format.times import has_times, with_times
from ..index.data_log_use import DataLogUse
from ..index.destination_lane import DestinationLane
from ..index.index import Index
from ..index.topic_lane import TopicLane
from ..journal.data_log import DATA_LOG_HEADER_BYTES
from ..journal.journal import Journal
from ..journal.regions import plan_regions, read_regions
from ..numbering import BLOCK_MASK, BLOCK_MESSAGES, OFFSET_MASK, UNLIMITED
from ..state.transactions import NOTHING_UNDECIDED, Branches, Undecided
from ..stored_message import StoredMessage
from ..structures.sequence_set import SequenceSet
from ..writers.transaction_writer import TransactionWriter
from .drain_forecast import DrainForecast
from .prepared_moving import PreparedMoving
from .relocation_plan import choose, copied_bytes_of
from .relocation_scan import BATCH_BYTES, LiveMessages, ScannedPiece, batches, content_bytes, follows, scan_piece
from .removable import removable
from .throttle import Throttle

logger = LateLogger("forebay.store.cleanup")

STEP_BYTES: Final = 256 * 1024
"""Bytes of records that one step copies, or a little more."""
SCAN_BYTES: Final = 4 << 20
"""Bytes of a data log that one step scans, or a little more."""
STEP_CHARGE_BYTES: Final = 56 * 1024
"""Memory of a step: a piece, the messages found in it, a batch and its contents."""
SCAN_DIVISOR: Final = 16
"""So many scanned bytes count as much as one copied byte."""
STEPS_MAX: Final = 16
SAMPLE_SECONDS: Final = 1.0
RANGE_CHARGE_BYTES: Final = 80
"""Memory of a run of survivors: as numbers, as payload and as record."""

SCAN_BLOCKS: Final = 64
"""Blocks of the index that are scanned under one hold of the lock."""
_BLOCK_WEIGHT_BYTES: Final = 4096
"""Scanning one block of the index counts as much as so many bytes of a data log."""

LIVE_FACTOR: Final = 2
"""The journal may be so many times as large as the live bytes, plus DATA_LOGS_ALLOWED data logs."""
LIVE_FACTOR_UNDER_LOAD: Final = 3
"""If the journal is larger than so many times the live messages as records, relocation may slow traffic down."""
DATA_LOGS_ALLOWED: Final = 3


class _Place(NamedTuple):
    """How far a search of the index has come."""

    lane: int
    """Index of the lane in the lanes to search."""
    sequence: int
    """Sequence at which to continue in that lane."""


_BEGIN: Final = _Place(0, 0)


@dataclass(slots=True)
class _Source:
    """The data log that is being emptied, or whose messages are being named."""

    data_log: int
    is_naming: bool
    """Whether its remaining messages are named instead of copied."""
    file: File
    salt: int
    offset: int
    end: int
    freed_bytes: int = 0
    survivors: dict[int, SequenceSet] = field(default_factory=dict)
    charge_bytes: int = 0
    has_transactional: bool = False
    """Whether it has slices whose heads do not say the sequences, so that the index must be searched."""
    lanes: list[int] | None = None
    """Lanes of the index to search after the heads. None: the heads are not done."""
    place: _Place = _BEGIN
    """Where the search of the index continues. All that it found before is copied or noted."""
    behind: _Place = _BEGIN
    """Where it continues once all that it has just found is copied or noted."""
    undecided: Undecided = NOTHING_UNDECIDED
    """What transactions without an outcome had in it when that search began."""


class JournalSizes(NamedTuple):
    """Sizes of the journal and its targets in bytes. `journal` is the size that a cleanup would leave now."""

    journal: int
    journal_and_removable: int
    low_target: int
    target: int
    target_under_load: int
    has_removable: bool


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
        sealed: Callable[[], set[int]],
        now: float,
    ) -> None:
        """sealed: returns the data logs that cleanup may delete when nothing needs them; called with the state lock."""
        self._index = index
        self._branches = branches
        self._journal = journal
        self._checkpoint_lock = locks.checkpoint
        self._lock = locks.state
        self._account = account
        self._data_log_bytes = data_log_bytes
        self._sealed = sealed
        self._prepared_moving = PreparedMoving(branches, transaction_writer, journal, locks.state, account)
        self._source: _Source | None = None
        # Data logs with unreadable messages: copying the others would free nothing.
        self._kept: set[int] = set()
        # Data logs that were not worth a survivors record, or found no memory, with the bytes that they kept then.
        self._unnameable: dict[int, int] = {}
        # Data logs with a message for which there was no memory in this round.
        self._waiting: set[int] = set()
        self._throttle = Throttle(now)
        self._draining = DrainForecast(now)
        self._sampled_at = now
        # The newest data log of the present round; None: no limit.
        self._round_end: int | None = None
        # Whether there is traffic. With traffic, a live message counts as a record of its own, otherwise with its
        # content alone: packing small messages closer together waits until nobody is slowed down.
        self._is_busy = True
        self._is_far_above = False
        # Whether relocation has begun. It then goes on below the target as long as that costs next to nothing.
        self._is_under_way = False
        # The target. Tests lower it, because their stores are too small for relocation.
        self.live_factor, self.data_logs_allowed = LIVE_FACTOR, DATA_LOGS_ALLOWED
        # Whether there is work, now or as soon as the traffic leaves room for it.
        self.is_wanted = False
        # Whether the journal is too large and cleanup would find something to delete.
        self.wants_cleanup = False
        # Number of messages copied so far.
        self.messages = 0
        self.appended_bytes = 0
        self._scanned_bytes = 0

    # ------------------------------------------------------------------ choosing a data log

    def bounds(self) -> JournalSizes:
        """Return the sizes that decide about relocation. Requires: the lock. O(data logs)."""
        uses, sizes = self._index.uses, self._journal.sizes
        doomed = self._removable()
        # The newest data log has its space already.
        newest_bytes = max(self._data_log_bytes - self._journal.offset, 0)
        journal_bytes = self._journal.journal_bytes + newest_bytes
        remaining_bytes = journal_bytes - sum(sizes.get(data_log, 0) for data_log in doomed)
        prepared_bytes = sum(self._branches.prepared_bytes.values())
        live_bytes = prepared_bytes + sum(map(copied_bytes_of, uses.values()))
        under_load_bytes = LIVE_FACTOR_UNDER_LOAD * live_bytes
        if not self._is_busy:
            live_bytes = prepared_bytes + sum(use.pending_bytes for use in uses.values())
        newest_only_bytes = self.live_factor * live_bytes + self._data_log_bytes
        allowed_bytes = self.data_logs_allowed * self._data_log_bytes
        return JournalSizes(
            remaining_bytes,
            journal_bytes,
            newest_only_bytes,
            self.live_factor * live_bytes + allowed_bytes,
            under_load_bytes + allowed_bytes,
            bool(doomed),
        )

    def _removable(self) -> list[int]:
        return removable(self._index.uses, self._journal.data_log, self._branches.undecided_data_logs)

    def run(self, checkpoint: Callable[[], bool]) -> int:
        """Relocate everything that is worth it, whatever the traffic.

        Data logs that fill up meanwhile wait for the next round.

        Return the number of copied messages. Requires: no lock.
        """
        before = self.messages
        with self._lock:
            self._begin_round()
            self._is_busy = False
            self._round_end = self._journal.data_log
        try:
            while self._has_room(checkpoint) and self.step():
                pass
        finally:
            self._round_end = None
        return self.messages - before

    def run_due(self, now: float, checkpoint: Callable[[], bool]) -> int:
        """Relocate as much as the traffic leaves room for; return the number of steps. Requires: no lock."""
        with self._lock:
            if now - self._sampled_at >= SAMPLE_SECONDS:
                self._sampled_at = now
                self._draining.sample(now, self._index.uses)
                self._choose_next()
            others = self._journal.appended_bytes - self.appended_bytes
            self._throttle.sample(now, others, is_far_above=self._is_far_above)
            self._is_busy = self._throttle.is_busy(now)
        steps = 0
        while self.is_wanted and steps < STEPS_MAX and self._throttle.allows(now) and self._has_room(checkpoint):
            copied_bytes, scanned_bytes = self.appended_bytes, self._scanned_bytes
            self.is_wanted = self.step()
            copied_bytes, scanned_bytes = self.appended_bytes - copied_bytes, self._scanned_bytes - scanned_bytes
            self._throttle.count_copied(copied_bytes + scanned_bytes // SCAN_DIVISOR, now)
            steps += self.is_wanted
        if steps:
            with self._lock:
                self._choose_next()
        return steps

    def _has_room(self, checkpoint: Callable[[], bool]) -> bool:
        return checkpoint() if self._index.is_filling else True

    def _choose_next(self) -> None:
        bounds = self.bounds()
        if self._source is None:
            self._begin_round()
            self._source = self._choose()
        self.is_wanted = self._source is not None
        self._is_far_above = bounds.journal > bounds.target_under_load
        self.wants_cleanup = bounds.has_removable and bounds.journal_and_removable > bounds.target

    def _begin_round(self) -> None:
        """Try data logs again that found no memory. Requires: the lock."""
        self._waiting.clear()

    def _choose(self) -> _Source | None:
        """Return the data log that frees most for its price. None: none is worth it. Requires: the lock."""
        bounds = self.bounds()
        is_above = bounds.journal > bounds.target
        if not is_above and not (self._is_under_way and bounds.journal > bounds.low_target):
            self._is_under_way = False
            return None
        uses, sizes = self._index.uses, self._journal.sizes
        end = self._round_end if self._round_end is not None else self._journal.data_log
        remaining = self._sealed() - set(self._removable())
        choice = choose(
            uses,
            sizes,
            [data_log for data_log in remaining if data_log <= end],
            prepared_bytes=self._branches.prepared_bytes,
            unmovable=self._kept | self._waiting | self._soon_empty() | set(self._branches.open_data_logs),
            unnameable=self._unnameable,
            only_sparse=not is_above,
        )
        self._is_under_way = choice is not None
        return self._opened(*choice) if choice is not None else None

    def _soon_empty(self) -> set[int]:
        """Return the data logs to leave to their consumers; none if a whole round was requested.

        Requires: state lock.
        """
        return self._draining.soon_empty if self._round_end is None else set()

    def _opened(self, data_log: int, is_naming: bool, freed_bytes: int) -> _Source | None:
        try:
            file, salt = self._journal.reader(data_log)
        except (OSError, RecordDamaged) as problem:
            self._give_up(data_log, f"it cannot be opened ({problem})")
            return None
        end = self._journal.sizes[data_log]
        work = "Naming" if is_naming else "Relocating"
        logger.debug(
            "%s %d messages in data-%d.log",
            work,
            self._index.uses[data_log].pending_messages,
            data_log,
            event="relocation_begun",
        )
        return _Source(data_log, is_naming, file, salt, DATA_LOG_HEADER_BYTES, end, freed_bytes)

    def _give_up(self, data_log: int, problem: str) -> None:
        """Leave a data log alone for good, because not even its live messages can be named."""
        self._unnameable[data_log] = UNLIMITED
        self._keep(data_log, problem)

    def _keep(self, data_log: int, problem: str, level: int = logging.WARNING) -> None:
        self._kept.add(data_log)
        logger.log(level, "data-%d.log stays as it is: %s", data_log, problem, event="data_log_not_relocated")

    # ------------------------------------------------------------------ steps

    def step(self) -> bool:
        """Scan a part of a data log and copy its live messages. Requires: no lock. False: there was nothing to do.

        Raises StoreFailed. If the index is crowded, a checkpoint must come first.
        """
        require_outside(self._lock, self._journal.sync_lock)
        with self._checkpoint_lock:
            with self._lock:
                if self._journal.failure is not None:
                    raise self._journal.failure.again()
                source = self._source = self._source or self._choose()
                if source is None or self._index.is_crowded:
                    return False
                if not self._account.reserve(STEP_CHARGE_BYTES):
                    self._release(source)
                    return False
            is_done = True
            try:
                is_done = self._advance(source)
                if is_done and not source.is_naming:
                    self._move_prepared(source)
            except StoreFull as full:
                logger.warning("relocation waits for space: %s", full, event="relocation_without_space")
                return False
            except (RecordDamaged, struct.error, OSError) as problem:
                self._give_up(source.data_log, f"it cannot be read ({problem})")
            finally:
                with self._lock:
                    self._account.release(STEP_CHARGE_BYTES)
                    if is_done:
                        self._release(source)
            return True

    def _move_prepared(self, source: _Source) -> None:
        """Move the slices of prepared transactions, once nothing else in the data log is live. Requires: no lock."""
        with self._lock:
            use = self._index.find_use(source.data_log)
            if use is not None and use.pending_messages:
                return
        moved = self._prepared_moving.move(source.data_log, source.file, source.salt, source.end)
        self.messages += moved.messages
        self.appended_bytes += moved.appended_bytes
        if moved.is_waiting:
            self._waiting.add(source.data_log)
        elif moved.problem:
            self._keep(source.data_log, moved.problem, logging.DEBUG)

    def _release(self, source: _Source) -> None:
        """Release the memory of a source and finish with it. Requires: the lock."""
        self._account.release(source.charge_bytes)
        self._source = None

    def _advance(self, source: _Source) -> bool:
        """Continue with a data log; return whether it is finished."""
        scanned_to, copied_to = self._scanned_bytes + SCAN_BYTES, self.appended_bytes + STEP_BYTES
        while self._scanned_bytes < scanned_to and self.appended_bytes < copied_to:
            piece = scan_piece(source.file, source.offset, source.end) if source.lanes is None else None
            with self._lock:
                found = self._found(source, piece)
            if found is None:
                return True
            if not source.is_naming:
                for records in batches(found):
                    if not self._copy(source, records):
                        return source.data_log in self._kept or source.data_log in self._waiting
            if source.lanes is not None:
                source.place = source.behind
            elif piece is not None:
                self._scanned_bytes += piece.behind - source.offset
                source.offset = piece.behind
        return False

    def _found(self, source: _Source, piece: ScannedPiece | None) -> list[LiveMessages] | None:
        """Return what is live in a piece of the data log, or, after all pieces, by the index. None: it is finished.

        The index is searched if transactions sent messages, because a slice does not say whether it was committed.
        Requires: the lock.
        """
        use = self._index.find_use(source.data_log)
        if use is None or not use.pending_messages:
            self._finish(source, use)
            return None
        if not source.is_naming and source.data_log in self._soon_empty():
            return None
        if piece is not None and piece.behind == source.offset:
            piece = None
            self._begin_search(source)
        elif piece is None and self._is_searched(source) and self._has_outcomes(source):
            self._begin_search(source)
        if piece is None and self._is_searched(source):
            self._finish(source, use)
            return None
        found = self._live(source, piece) if piece is not None else self._live_in_index(source)
        return found if not source.is_naming or self._note(source, found) else None

    def _begin_search(self, source: _Source) -> None:
        """Begin to search the index, which knows all messages that transactions sent. Requires: the lock."""
        source.lanes, source.place = [], _BEGIN
        source.undecided = self._branches.undecided_in(source.data_log)
        if source.has_transactional:
            source.lanes = sorted(self._index.lanes)
            source.survivors.clear()

    def _is_searched(self, source: _Source) -> bool:
        return source.lanes is not None and source.place.lane == len(source.lanes)

    def _has_outcomes(self, source: _Source) -> bool:
        """Return whether a transaction may have added messages behind the search of the index. Requires: the lock."""
        return self._branches.undecided_in(source.data_log) != source.undecided

    def _live(self, source: _Source, piece: ScannedPiece) -> list[LiveMessages]:
        """Return the live messages of a piece, without slices of transactions. Requires: the lock."""
        source.has_transactional |= piece.has_transactional
        found: list[LiveMessages] = []
        for (number, _), (first, last) in piece.sequences.items():
            lane = self._index.find_lane(number)
            if lane is not None:
                extents = lane.placed(source.data_log, source.offset, piece.behind, first, last)
                found += [LiveMessages(lane, extent) for extent in extents]
        return found

    def _live_in_index(self, source: _Source) -> list[LiveMessages]:
        """Return the messages that some blocks of the index have in that data log.

        Requires: the lock, and lanes to search.
        """
        assert source.lanes is not None
        found: list[LiveMessages] = []
        at, sequence = source.place
        for _ in range(SCAN_BLOCKS):
            if at == len(source.lanes):
                break
            lane = self._index.find_lane(source.lanes[at])
            run = lane.pending_run(sequence, BLOCK_MESSAGES) if lane is not None else None
            if lane is None or run is None:
                at, sequence = at + 1, 0
                continue
            found += [LiveMessages(lane, extent) for extent in lane.placed(source.data_log, 0, OFFSET_MASK, *run)]
            sequence = run[1] + 1
            self._scanned_bytes += _BLOCK_WEIGHT_BYTES
        source.behind = _Place(at, sequence)
        return found

    def _finish(self, source: _Source, use: DataLogUse | None) -> None:
        """Finish with a data log that was scanned, or has nothing live any more. Requires: the lock."""
        if use is not None and source.is_naming:
            self._append_survivors(source, use)
        elif use is not None and use.pending_messages:
            self._give_up(source.data_log, f"{use.pending_messages} live messages were not found in it")

    # ------------------------------------------------------------------ copies

    def _copy(self, source: _Source, records: list[LiveMessages]) -> bool:
        """Copy these messages. False: not all of them, and an obstacle must be removed first."""
        charge_bytes = 3 * sum(live.extent.record_bytes for live in records)
        charge_bytes = charge_bytes if charge_bytes > 3 * BATCH_BYTES else 0
        with self._lock:
            if not self._account.reserve(charge_bytes):
                self._waiting.add(source.data_log)
                return False
        try:
            regions = plan_regions([live.extent for live in records], lambda _: (source.file, source.salt))
            messages, unreadable = read_regions(regions)
            if unreadable:
                sequence, problem = unreadable[0]
                self._keep(
                    source.data_log, f"{len(unreadable)} messages cannot be read; sequence {sequence}: {problem}"
                )
                return False
            with self._lock:
                return self._append(source, records, messages)
        finally:
            with self._lock:
                self._account.release(charge_bytes)

    def _append(self, source: _Source, records: list[LiveMessages], messages: list[StoredMessage]) -> bool:
        """Append messages that are still pending, in slices as long as possible.

        Requires: the lock. False: not all of them.
        """
        gathered: list[StoredMessage] = []
        lane, size, at = records[0].lane, 0, 0
        for live in records:
            found, at = messages[at : at + live.extent.messages], at + live.extent.messages
            run = live.lane.pending_run(found[0][0], len(found))
            is_whole = run == (found[0][0], found[-1][0])
            for message in found:
                if not is_whole and not live.lane.is_pending(message[0]):
                    continue
                if gathered and not (live.lane is lane and follows(gathered, size, message)):
                    if not self._append_slice(source, lane, gathered):
                        return False
                    gathered, size = [], 0
                lane = live.lane
                gathered.append(message)
                size += content_bytes(message)
        return not gathered or self._append_slice(source, lane, gathered)

    def _append_slice(self, source: _Source, lane: DestinationLane, messages: list[StoredMessage]) -> bool:
        if self._index.is_crowded:
            return False
        journal = self._journal
        first, _, _, timestamp = messages[0]
        needs = lane.needs(first, messages[-1][0]) if isinstance(lane, TopicLane) else None
        if needs is not None and len(needs) > RANGES_MAX:
            return self._append_halves(source, lane, messages)
        charge_bytes = RANGE_CHARGE_BYTES * len(needs or ())
        if not self._account.reserve(charge_bytes):
            self._waiting.add(source.data_log)
            return False
        contents, flags = _as_copied(lane, messages)
        try:
            with journal.all_or_broken:
                if needs is not None:
                    slice_bytes = SLICE_BYTES + sum(ENTRY_BYTES + content_bytes(message) for message in messages)
                    journal.keep_together(needs_bytes(len(needs)) + slice_bytes, 2)
                    self._append_needs(LaneRun(lane.number, first, len(messages)), needs)
                if len(contents) == 1:
                    (properties, body), lengths = contents[0], [content_bytes(messages[0])]
                    size = len(properties) + len(body)
                    offset = journal.append_one(
                        flags, lane.destination_number, first, timestamp, properties, body, size
                    )
                else:
                    offset, lengths = journal.append_slice(flags, lane.destination_number, first, timestamp, contents)
                lane.move(journal.data_log, offset, first, lengths)
        finally:
            self._account.release(charge_bytes)
        self.messages += len(messages)
        self.appended_bytes += SLICE_BYTES + ENTRY_BYTES * len(messages) + sum(lengths)
        return True

    def _append_halves(self, source: _Source, lane: DestinationLane, messages: list[StoredMessage]) -> bool:
        middle = len(messages) // 2
        if not middle:
            self._keep(
                source.data_log, f"a message of it is needed by more than {RANGES_MAX} subscriptions", logging.DEBUG
            )
            return False
        first, second = messages[:middle], messages[middle:]
        return self._append_slice(source, lane, first) and self._append_slice(source, lane, second)

    def _append_needs(self, run: LaneRun, needs: list[NeededRun]) -> None:
        payload = needs_payload(run, needs)
        self._journal.append(NEEDS, 0, len(needs), payload)
        self.appended_bytes += HEADER_BYTES + len(payload)

    # ------------------------------------------------------------------ survivors

    def _note(self, source: _Source, found: list[LiveMessages]) -> bool:
        """Remember what is live. Requires: the lock. False: there are too many runs for one record, or for memory."""
        for lane, extent in found:
            runs = source.survivors.setdefault(lane.number, SequenceSet())
            runs.add(extent.first_sequence, extent.first_sequence + extent.messages - 1)
        ranges = sum(runs.run_count for runs in source.survivors.values())
        charge_bytes = RANGE_CHARGE_BYTES * ranges - source.charge_bytes
        is_noted = ranges <= SURVIVOR_RANGES_MAX and (charge_bytes <= 0 or self._account.reserve(charge_bytes))
        if not is_noted:
            self._unnameable[source.data_log] = source.freed_bytes
        elif charge_bytes > 0:
            source.charge_bytes += charge_bytes
        return is_noted

    def _append_survivors(self, source: _Source, use: DataLogUse) -> None:
        """Append the survivors record.

        Requires: the lock, so that no ack comes between the last check and the record.
        """
        ranges = self._survivors(source, use)
        named = sum(run.messages for run in ranges)
        if named != use.pending_messages:
            self._give_up(source.data_log, f"{use.pending_messages - named} live messages were not found in it")
            return
        payload = survivors_payload(source.data_log, ranges)
        if 2 * len(payload) > source.freed_bytes or len(ranges) > SURVIVOR_RANGES_MAX:
            self._unnameable[source.data_log] = source.freed_bytes
            return
        needs = [found for run in ranges for found in self._needs(run)]
        if sum(len(found) for _, found in needs) > RANGES_MAX:
            self._unnameable[source.data_log] = source.freed_bytes
            return
        journal = self._journal
        with journal.all_or_broken:
            if needs:
                size = HEADER_BYTES + len(payload) + sum(needs_bytes(len(found)) for _, found in needs)
                journal.keep_together(size, 1 + len(needs))
            for run, found in needs:
                self._append_needs(run, found)
            journal.append(SURVIVORS, 0, len(ranges), payload)
            self._index.supersede(source.data_log, journal.data_log)
        self.appended_bytes += HEADER_BYTES + len(payload)
        logger.debug(
            "data-%d.log: its %d live messages are named anew",
            source.data_log,
            use.pending_messages,
            event="messages_named_anew",
        )

    def _survivors(self, source: _Source, use: DataLogUse) -> list[LaneRun]:
        """Return the runs of a source that are still live. Requires: the lock."""
        ranges = [
            LaneRun(lane_number, first, last - first + 1)
            for lane_number, runs in source.survivors.items()
            for first, last in runs
        ]
        if sum(run.messages for run in ranges) == use.pending_messages:
            return ranges
        return [left for run in ranges for left in self._still_live(run)]

    def _needs(self, run: LaneRun) -> Iterator[tuple[LaneRun, list[NeededRun]]]:
        """Yield, block by block, what subscriptions need of a run; nothing for a lane that is no topic's."""
        lane = self._index.find_lane(run.lane_number)
        first, behind = run.first, run.first + run.messages
        while isinstance(lane, TopicLane) and first < behind:
            last = min(behind - 1, first | BLOCK_MASK)
            yield LaneRun(run.lane_number, first, last - first + 1), lane.needs(first, last)
            first = last + 1

    def _still_live(self, run: LaneRun) -> Iterator[LaneRun]:
        lane = self._index.find_lane(run.lane_number)  # None: all its messages are gone meanwhile
        at, behind = run.first, run.first + run.messages
        while (
            lane is not None
            and at < behind
            and (found := lane.pending_run(at, behind - at)) is not None
            and found[0] < behind
        ):
            last = min(found[1], behind - 1)
            yield LaneRun(run.lane_number, found[0], last - found[0] + 1)
            at = last + 1


def _as_copied(lane: DestinationLane, messages: list[StoredMessage]) -> tuple[list[tuple[bytes, bytes]], int]:
    """Return the contents of copies of a lane's messages, with their present times, and their flags."""
    contents = [(properties, body or b"") for _, properties, body, _ in messages]
    flags = RELOCATED | lane.priority
    if not any(has_times(properties) for properties, _ in contents):
        return contents, flags
    timed = [
        (with_times(properties, lane.times_of(sequence)), body)
        for sequence, (properties, body) in enumerate(contents, messages[0][0])
    ]
    return timed, flags | TIMED
