"""Recovery: turn what a crash left into an index that agrees with the journal.

Recovery loads the index from the last checkpoint, and replays the journal from there. If the index is missing or in
doubt, it replays the whole journal, with checkpoints on the way to bound memory.

At some place the records stop to verify. If nothing knows this place to have been durable, it is a torn tail, which is
cut and counted. If an intact record, a checkpoint or the sync mark knows it, it is corruption, and the open is refused
with the place. Whole files behind a torn tail go to the quarantine. Recovering twice gives the same result as
recovering once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import ClassVar, Final, NamedTuple, NoReturn

from ..disk.disk import File
from ..disk.layout import DATA_LOG_ID_MAX, JOURNAL, QUARANTINE, STATE_DIRECTORY, data_log_id, data_log_name
from ..environment.late_log import LateLogger
from ..environment.progress import OnProgress, tell_nobody
from ..errors import JournalCorrupt
from ..format.destination_table import DestinationTable
from ..format.imports import ImportReport, Imports
from ..format.record import EPOCH_MAX, LOST, SEQUENCE_MAX, RecordDamaged
from ..format.state_record import (
    QUEUE,
    TOPIC,
    Destination,
    LaneCounts,
    StateRecord,
    decode_root,
)
from ..index.block import BlockDamaged
from ..index.destination_lane import DestinationLane
from ..index.topic_lane import NO_RECORD
from ..journal.data_log import (
    DATA_LOG_HEADER_BYTES,
    DataLogHeader,
    RecordWalk,
    UnknownVersion,
    attested_behind,
    decode_data_log_header,
    record_at,
    used_bytes,
)
from ..journal.shutdown_marker import ShutdownMarker
from ..journal.sync_mark import SYNC_MARK
from ..metadata.metadata_store import MetadataDamaged
from ..numbering import BLOCK_MESSAGES, DELAYED, LANE_SHIFT, OFFSET_BITS, OFFSET_MASK, location_text
from ..quarantine import quarantine_data_log, quarantined_data_logs
from ..state.journaled_state import JournaledState
from .repair import LOST_DATA_LOG_BYTES, DamagedPlace
from .replay import Replay

logger = LateLogger("forebay.store.recovery")

PLAIN_RECORDS_MAX: Final = 1024
"""Most plain records that are applied together. Consecutive ones of a lane are then in at most three blocks."""


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """The outcome of opening the directory."""

    clean: bool
    """Whether the last process closed the store itself. Also True if there was no store yet."""
    index_rebuilt: bool
    """Whether the whole journal was replayed because the index was missing or in doubt."""
    replayed_records: int
    truncated_bytes: int
    """Bytes cut from the end of the journal: a torn tail that was never confirmed as durable, and damage there that
    `damaged` names.

    Zeros count only if they are known to have been something else.
    """
    quarantined: int
    """Number of files that were set aside in quarantine."""
    prepared: int
    """Number of transactions that wait for their outcome; see `Forebay.prepared`."""
    seconds: float
    damaged: tuple[DamagedPlace, ...] = ()
    """Each place that was given up, with on_missing_data_log="report"."""
    imports: tuple[ImportReport, ...] = ()
    """The import sets that were found: how much of each was taken over, and why not all."""


@dataclass(slots=True)
class RecoveredJournal:
    """Where the journal goes on, and what recovery found."""

    destinations: DestinationTable
    imports: Imports
    next_data_log: int
    next_log_sequence: int
    epoch: int
    sizes: dict[int, int]
    end: int = 0
    """Position behind the last accepted record; everything before it is durable."""
    replayed_records: int = 0
    truncated_bytes: int = 0
    quarantined: int = 0
    index_rebuilt: bool = False
    replay_position: int = 0
    """Position from which the next replay would begin: that of the last checkpoint, or 0."""
    leftovers: tuple[int, ...] = ()
    """Data logs that were dropped, and whose files still exist."""
    damaged: list[DamagedPlace] = field(default_factory=list)

    def report(self, *, was_clean: bool, has_index: bool, prepared: int, seconds: float) -> RecoveryReport:
        """Return what opening did.

        was_clean: by the marker. has_index: an index was on disk, so that a rebuild is worth reporting.
        """
        is_news = self.truncated_bytes or self.damaged or (self.index_rebuilt and has_index)
        return RecoveryReport(
            clean=was_clean and not is_news,
            index_rebuilt=self.index_rebuilt,
            replayed_records=self.replayed_records,
            truncated_bytes=self.truncated_bytes,
            quarantined=self.quarantined,
            prepared=prepared,
            seconds=seconds,
            damaged=tuple(self.damaged),
        )


class JournalEnd(NamedTuple):
    """The end of the journal."""

    position: int
    """Where the first record would begin that is not accepted."""
    rest: list[int]
    """The data logs that reach behind the end."""
    problem_position: int
    problem: str


class JournalTail:
    """Says how recovery treats the end of the journal. This class is for the owner: it cuts a torn tail."""

    may_cut: ClassVar[bool] = True

    def is_being_written(self, end: JournalEnd, headers: Mapping[int, DataLogHeader | None]) -> bool:
        """Return whether another process is writing there, so that bytes at the end are no damage."""
        return False


class _Progress:
    """Tells how much of the data logs is replayed."""

    def __init__(self, on_progress: OnProgress, total_bytes: int) -> None:
        self._on_progress = on_progress
        self._total_bytes = total_bytes
        self._read_bytes = 0
        on_progress(0, total_bytes)

    def count(self, read_bytes: int) -> None:
        """Count a data log that is replayed."""
        self._read_bytes += read_bytes
        self._on_progress(self._read_bytes, self._total_bytes)


class Recovery:
    """The recovery of one directory; `run` does it. Nothing else uses the disk meanwhile."""

    def __init__(
        self,
        journaled: JournaledState,
        marker: ShutdownMarker | None,
        store_id: bytes,
        write_checkpoint: Callable[[int, int, StateRecord], None],
        *,
        marked_end: int = 0,
        verifies_all: bool = False,
        known_durable_end: int | None = None,
        tail: JournalTail | None = None,
        on_progress: OnProgress = tell_nobody,
    ) -> None:
        """Make the recovery of one directory.

        journaled: the index and the tables to bring up to the journal.
        marker: the shutdown marker, if there is one.
        write_checkpoint(position, epoch, state): stores the index as it is now.
        marked_end: the durable end that the sync mark tells; 0: none.
        verifies_all: whether bytes that the replay does not read are verified too.
        known_durable_end: after a repair, the durable end that it found. Everything that is still missing is then given
            up and reported.
        tail: says how to treat the end of the journal; None: as the owner of the store does.
        on_progress: told before the first data log that is replayed, and after each.
        """
        self._on_progress = on_progress
        self._verifies_all = verifies_all
        self._disk = journaled.disk
        self._index = journaled.index
        self._subscriptions = journaled.subscriptions
        self._metadata = journaled.metadata
        self._branches = journaled.branches
        self._tail = tail or JournalTail()
        self._marker = marker
        self._store_id = store_id
        # Data log -> its header; None: it does not verify.
        self._headers: dict[int, DataLogHeader | None] = {}
        self._file_sizes: dict[int, int] = {}
        self._left_out: set[int] = set()
        self._marked_end = marked_end
        # The greatest durable end that is known.
        self.durable_end = max(known_durable_end or 0, marker.durable_end if marker else 0, marked_end)
        self._accepts_loss: Final = known_durable_end is not None
        # Lower bounds of next sequences, by lane. They come from an index that knew more than the journal has now.
        self._least_sequences: dict[int, int] = {}
        # The destinations and subscriptions of that index.
        self._known = StateRecord()
        self._result = RecoveredJournal(DestinationTable(), Imports(), 1, 0, marker.epoch if marker else 0, {})
        self.replay = Replay(journaled, self._headers, self._is_gone, write_checkpoint, accepts_loss=self._accepts_loss)

    def _is_gone(self, data_log: int) -> bool:
        return data_log not in self._result.sizes or data_log in self._left_out

    def run(self) -> RecoveredJournal:
        """Bring index and tables up to the journal; return what was found and where the journal goes on."""
        result = self._result
        ids = self._list()
        self._disk.sync_directory(JOURNAL)
        start = self._load_index(ids)
        kept = self._bring_up(ids, *start) if start is not None else None
        end = kept or self._rebuild(ids)
        self._give_up_missing()
        if start is not None and kept is not None:
            result.replay_position = start[0]
            self._forget_lost(kept)
        self._require_numbers()
        if self._verifies_all and not self._accepts_loss:
            from .verify import raise_first_damage  # only verify_on_open needs it

            existing = self.replay.existing_data_logs
            raise_first_damage(self._disk, [data_log for data_log in ids if data_log in existing], end.position)
        self._complete()
        self._cut(end)
        self._part_with_leftovers()
        self.replay.forget_deleted()
        result.destinations, result.imports = self.replay.destinations, self.replay.imports
        result.end = end.position
        return result

    def _require_numbers(self) -> None:
        """Raise JournalCorrupt unless another data log and another epoch have a number."""
        result = self._result
        is_left = result.epoch < EPOCH_MAX and result.next_log_sequence < SEQUENCE_MAX
        if result.next_data_log > DATA_LOG_ID_MAX or not is_left:
            raise JournalCorrupt(result.next_data_log - 1, 0, "no number is left for another data log")

    def _part_with_leftovers(self) -> None:
        """Leave dropped data logs whose files still exist out of the counts of journal and index."""
        result, existing = self._result, self.replay.existing_data_logs
        if self._accepts_loss:
            # The newest data log was set aside, because nothing in it could be read.
            self.replay.forget_data_logs(existing - set(result.sizes))
        result.leftovers = tuple(sorted(set(result.sizes) - existing))
        result.sizes = {data_log: result.sizes[data_log] for data_log in existing}
        self._index.keep_data_logs(existing)

    def _list(self) -> list[int]:
        """Return the ids of all data logs.

        It reads their headers and keeps no file open, because there may be thousands.
        """
        ids = sorted(filter(None, map(data_log_id, self._disk.list(JOURNAL))))
        aside = quarantined_data_logs(self._disk)
        if aside:
            # A recovery may have set these files aside, and been killed before it synced the directories. Without a
            # sync, a power cut would bring the files back in front of newer records.
            self._disk.sync_directory(QUARANTINE)
        self._result.next_data_log = max((*ids, *aside), default=0) + 1
        for data_log in ids:
            with closing(self._disk.open_for_reading(data_log_name(data_log))) as file:
                self._result.sizes[data_log] = self._file_sizes[data_log] = file.size()
                head = file.read(0, DATA_LOG_HEADER_BYTES)
            try:
                header = decode_data_log_header(head)
            except UnknownVersion as version:
                raise JournalCorrupt(data_log, 0, str(version)) from None
            except RecordDamaged:
                self._headers[data_log] = None
                continue
            is_ours = header.data_log == data_log and header.store_id == self._store_id
            self._headers[data_log] = header if is_ours else None
            self._result.epoch = max(self._result.epoch, header.epoch if is_ours else 0)
        return ids

    # ------------------------------------------------------------------ the index

    def _load_index(self, ids: list[int]) -> tuple[int, int] | None:
        """Load the last checkpoint; return its position and log sequence. None: replay everything."""
        if self._marker is None:
            return None
        try:
            snapshot = self._metadata.load()
            if snapshot is None:
                return None
            state, lanes, uses, backlogs = decode_root(snapshot.root)
            self.durable_end = max(self.durable_end, snapshot.position)
            data_log, offset = snapshot.position >> OFFSET_BITS, snapshot.position & OFFSET_MASK
            if data_log > max(ids, default=0):
                self._give_up(data_log, 0, "the data log is missing", lanes)
                self._known = state
                return None
            if data_log not in self._headers:
                return None  # a power cut restored an index from before a cleanup
            if offset > self._result.sizes[data_log]:
                end = self._result.sizes[data_log]
                self._give_up(data_log, end, f"the data log ends, and was durable up to offset {offset}", lanes)
                self._known = state
                return None
            if self._accepts_loss and self._is_given_up(data_log, offset):
                self._note_sequences(lanes)
                self._known = state
                return None
            self.replay.register(state.destinations)
            self._index.restore(lanes, uses, snapshot.blocks, snapshot.earliest)
            self._index.note_time(state.latest_ms)
            self.replay.apply_state(state)
            self._subscriptions.restore(backlogs)
        except (MetadataDamaged, RecordDamaged, BlockDamaged) as damage:
            logger.warning("the index is rebuilt from the journal: %s", damage, event="index_rebuilt")
            return None
        self._result.epoch = max(self._result.epoch, snapshot.epoch)
        return snapshot.position, state.next_log_sequence

    def _give_up(self, data_log: int, offset: int, problem: str, lanes: Iterable[LaneCounts] = ()) -> None:
        """Report that durable data is missing. Raises JournalCorrupt, unless this follows a repair.

        lanes: the lanes of the index that knew the data. Their next sequences are kept, so that none is used twice.
        """
        if not self._accepts_loss:
            self._refuse(data_log, offset, problem)
        self._result.next_data_log = max(self._result.next_data_log, data_log + 1)
        self._note_sequences(lanes)
        place = DamagedPlace(data_log, offset, self._known_bytes(data_log, offset), None, problem)
        if all((data_log, offset) != (known.data_log, known.offset) for known in self._result.damaged):
            logger.error("%s", place, event="journal_damaged")
            self._result.damaged.append(place)

    def _refuse(self, data_log: int, offset: int, problem: str) -> NoReturn:
        """Raise JournalCorrupt for a place from which on durable data is missing."""
        behind_bytes = sum(size for other, size in self._file_sizes.items() if other >= data_log)
        raise JournalCorrupt(data_log, offset, problem, max(behind_bytes - offset, 0))

    def _note_sequences(self, lanes: Iterable[LaneCounts]) -> None:
        """Note the next sequences of lanes that the index knew. Timetables have no sequences of their own."""
        self._least_sequences |= {
            counts.lane_number: counts.next_sequence for counts in lanes if not counts.lane_number & DELAYED
        }

    def _give_up_missing(self) -> None:
        """Report data logs that existed and are missing. Raises JournalCorrupt, unless this follows a repair.

        The repair has replaced all missing data logs but those at the end, behind which no other follows.
        """
        missing = sorted(self.replay.existing_data_logs - set(self._result.sizes))
        if missing and not self._accepts_loss:
            self._refuse(missing[0], 0, f"{len(missing)} data logs are missing, this is the first")
        for data_log in missing:
            self._give_up(data_log, 0, "the data log is missing")
        self.replay.forget_data_logs(missing)

    def _is_given_up(self, data_log: int, offset: int) -> bool:
        """Return whether a repair has given up this place, so that no replay can begin there."""
        header = self._headers[data_log]
        if header is None:
            return False
        with closing(self._disk.open_for_reading(data_log_name(data_log))) as file:
            return record_at(file, header, offset) is None and used_bytes(file, offset) > 0

    def _known_bytes(self, data_log: int, offset: int) -> int:
        """Return how many bytes of a data log, from that offset on, are known to have been durable."""
        if data_log > self.durable_end >> OFFSET_BITS:
            return 0
        is_newest = data_log == self.durable_end >> OFFSET_BITS
        end = self.durable_end & OFFSET_MASK if is_newest else self._file_sizes.get(data_log, 0)
        return max(end - offset, 0)

    def _complete(self) -> None:
        """Restore the numbers and names that were lost from a repaired journal."""
        replay, known = self.replay, self._known
        replay.register(named for named in known.destinations if named.number not in replay.destinations)
        for number, sequence in self._least_sequences.items():
            self._index.skip_to(number, sequence)
        for facts in known.subscriptions:
            self._subscriptions.subscribe(facts)
        for topic in {facts.topic for facts in self._subscriptions.encoded()} - set(replay.destinations):
            self._give_up(max(self._result.sizes), 0, f"of the topic {topic} of a subscription nothing is told")
            replay.register((Destination(topic, TOPIC, f"recovered-{topic}"),))
        # Lanes whose next sequence is 0 do not count: acks of subscriptions whose records are lost have made them.
        numbers = {number >> LANE_SHIFT for number, sequence in self._index.next_sequences() if sequence}
        numbers |= {placed.lane_number >> LANE_SHIFT for branch in self._branches.prepared for placed in branch}
        for number in numbers - set(replay.destinations):
            if self._accepts_loss:
                replay.register((Destination(number, QUEUE, f"recovered-{number}"),))
        replay.forget_lost_slices()

    def _bring_up(self, ids: list[int], start: int, next_log_sequence: int) -> JournalEnd | None:
        """Replay the journal behind a checkpoint. None: the index is damaged, or older than a cleanup."""
        try:
            end = self._replay(ids, start, next_log_sequence)
            self._remove_unneeded_messages(end)
        except (MetadataDamaged, BlockDamaged) as damage:
            logger.warning("the index is rebuilt from the journal: %s", damage, event="index_rebuilt")
            return None
        return None if self._needs_dropped() else end

    def _rebuild(self, ids: list[int]) -> JournalEnd:
        """Replay the whole journal. If it still has data logs that were dropped, replay it again without them.

        All messages in dropped data logs were acknowledged, but their acks may be gone already.
        """
        self._result.index_rebuilt = bool(ids)
        end = self._replay_all(ids)
        if self._needs_dropped():
            self._left_out = set(ids) - set(end.rest) - self.replay.existing_data_logs
            end = self._replay_all([data_log for data_log in ids if data_log not in self._left_out])
            assert not self._needs_dropped()
        return end

    def _replay_all(self, ids: list[int]) -> JournalEnd:
        self.replay.reset()
        self._metadata.clear()
        self._result.replayed_records = 0
        first = ids[0] << OFFSET_BITS | DATA_LOG_HEADER_BYTES if ids else 0
        end = self._replay(ids, first, None)
        self._remove_unneeded_messages(end)
        return end

    def _remove_unneeded_messages(self, end: JournalEnd) -> None:
        """Remove messages that no subscription needs, so that DataLogUse says which data logs are needed."""
        self._subscriptions.remove_unneeded()
        while self._subscriptions.is_behind:
            self._checkpoint(end)
            self._subscriptions.remove_unneeded()

    def _forget_lost(self, end: JournalEnd) -> None:
        """Remove the messages of lost data logs from an index that was stored before a repair.

        After a crash before the checkpoint the index is unchanged, and the next open does this again.
        """
        for data_log, use in sorted(self._index.data_log_uses.items()):
            if not use.pending_messages or not self._is_lost(data_log):
                continue
            forgotten = 0
            for lane in list(self._index.lanes.values()):
                forgotten += self._forget_in(lane, data_log, end)
            logger.warning(
                "data-%d.log is lost: %d messages in it are pending no more",
                data_log,
                forgotten,
                event="lost_messages_forgotten",
            )
            self._checkpoint(end)

    def _forget_in(self, lane: DestinationLane, data_log: int, end: JournalEnd) -> int:
        """Remove the pending messages of a lane in a data log, for all subscriptions; return how many."""
        forgotten = at = 0
        while (run := lane.pending_run(at, BLOCK_MESSAGES)) is not None:
            at = run[1] + 1
            for extent in list(lane.extents(*run)):
                if extent.data_log == data_log:
                    first, last = extent.first_sequence, extent.first_sequence + extent.messages - 1
                    forgotten += self._index.remove(lane, first, last, NO_RECORD)
                    self._index.delivery_count_table.trim(lane, first, last)
            if self._index.is_crowded:
                self._checkpoint(end)
        return forgotten

    def _is_lost(self, data_log: int) -> bool:
        """Return whether nothing is left of a data log: it is missing or unreadable, or a repair has replaced it."""
        header = self._headers.get(data_log)
        if header is None:
            return True
        if self._file_sizes[data_log] != LOST_DATA_LOG_BYTES:
            return False
        with closing(self._disk.open_for_reading(data_log_name(data_log))) as file:
            found = record_at(file, header, DATA_LOG_HEADER_BYTES)
        return found is not None and found[0].kind == LOST

    def _checkpoint(self, end: JournalEnd) -> None:
        """Store the index, which now agrees with the end of the journal."""
        self.replay.checkpoint(end.position, self._result.epoch, self._result.next_log_sequence)

    def _needs_dropped(self) -> bool:
        """Return whether the index has pending messages in dropped data logs, which had none when they were dropped."""
        uses, existing = self._index.data_log_uses.items(), self.replay.existing_data_logs
        return any(use.pending_messages and data_log not in existing for data_log, use in uses)

    # ------------------------------------------------------------------ replaying the journal

    def _replay(self, ids: list[int], start: int, next_log_sequence: int | None) -> JournalEnd:
        """Apply all records from start on, and make them durable; return the end. It changes no data log.

        next_log_sequence: that of the record at start; None: the one that its data log names.

        JournalCorrupt: see _checked.
        """
        return self._checked(self._replay_to_end(ids, start, next_log_sequence))

    def _replay_to_end(self, ids: list[int], start: int, next_log_sequence: int | None) -> JournalEnd:
        """Apply all records from start on, and make them durable; return where they end. It judges nothing behind."""
        first = start >> OFFSET_BITS
        progress = _Progress(self._on_progress, sum(self._file_sizes[one] for one in ids if one >= first))
        position = 0  # behind the last record that is applied; 0: none is
        for at, data_log in enumerate(ids):
            header = self._headers[data_log]
            if header is None:
                return JournalEnd(position, ids[at:], data_log << OFFSET_BITS, "the data log's header does not verify")
            if data_log < first:
                continue
            offset = DATA_LOG_HEADER_BYTES if position else start & OFFSET_MASK
            if position and next_log_sequence != header.first_log_sequence:
                end = JournalEnd(position, ids[at:], position, "the data log ends before the next one begins")
                if not self._were_dropped_between(end, data_log):
                    return end
            if position or next_log_sequence is None:
                next_log_sequence = header.first_log_sequence
            walk, is_whole = self._replay_file(header, offset, next_log_sequence, is_newest=data_log == ids[-1])
            progress.count(self._file_sizes[data_log])
            next_log_sequence, position = walk.next_log_sequence, data_log << OFFSET_BITS | walk.end
            self._result.sizes[data_log] = walk.end
            if not is_whole:
                return JournalEnd(position, ids[at:], position, walk.problem or "zeros where records were")
        return JournalEnd(position, [], position, "the data log ends")

    def _were_dropped_between(self, end: JournalEnd, next_data_log: int) -> bool:
        """Return whether the data logs between an end and the next one were dropped, and so may be missing."""
        data_log = end.position >> OFFSET_BITS
        if any(data_log < left_out < next_data_log for left_out in self._left_out):
            return True
        return data_log < next_data_log - 1 and self._look_behind(end)

    def _replay_file(
        self, header: DataLogHeader, offset: int, next_log_sequence: int, *, is_newest: bool
    ) -> tuple[RecordWalk, bool]:
        """Apply the records of one data log from an offset on, and make them durable.

        Return the finished walk, and whether it has come to the end of the data log.

        A data log that an earlier recovery has cut has no seal. The header of the next data log says then whether it is
        whole.
        """
        file = self._disk.open(data_log_name(header.data_log))
        try:
            walk = self._walk(file, header, offset, next_log_sequence)
            file.sync()
            return walk, walk.end == file.size() or (walk.is_sealed and not is_newest)
        finally:
            file.close()

    def _look_behind(self, end: JournalEnd) -> bool:
        """Return whether something behind the end was durable, by the index, the markers, or later intact records.

        Only this tells corruption from a torn tail. In a gap between data logs, it tells data logs that were dropped
        from data logs that a power cut took.
        """
        for data_log in end.rest:
            header = self._headers[data_log]
            if self.durable_end > end.position or header is None:
                continue
            is_here = data_log == end.position >> OFFSET_BITS
            file = self._disk.open_for_reading(data_log_name(data_log))
            try:
                begin = end.position & OFFSET_MASK if is_here else DATA_LOG_HEADER_BYTES
                self.durable_end = max(self.durable_end, attested_behind(file, header, begin))
            finally:
                file.close()
        return self.durable_end > end.position

    def _checked(self, end: JournalEnd) -> JournalEnd:
        """Return the end, if nothing behind it was durable. Otherwise raise JournalCorrupt.

        After a repair, durable data behind it is given up, unless intact records would be cut.
        """
        if not self._tail.is_being_written(end, self._headers) and self._look_behind(end):
            durable_log, position = self.durable_end >> OFFSET_BITS, end.problem_position
            if durable_log not in self._headers:
                self._give_up(durable_log, 0, f"the data log is missing{self._by_sync_mark()}")
            problem = f"{end.problem}, and was durable{self._by_sync_mark()}"
            if any(self._headers[other] is not None for other in end.rest if other > end.position >> OFFSET_BITS):
                self._refuse(position >> OFFSET_BITS, position & OFFSET_MASK, problem)  # intact records must not be cut
            if end.rest or not self._result.damaged:
                self._give_up(position >> OFFSET_BITS, position & OFFSET_MASK, problem)
        return end

    def _by_sync_mark(self) -> str:
        """Return what to add to the text of a problem if only the sync mark knows that the place was durable."""
        if self.durable_end > self._marked_end:
            return ""
        told = f"{SYNC_MARK} tells so up to {location_text(self._marked_end)}"
        return f" ({told}; if journal/ is a copy from before that, delete {STATE_DIRECTORY})"

    def _walk(self, file: File, header: DataLogHeader, offset: int, next_log_sequence: int) -> RecordWalk:
        durable_log, durable_offset = self.durable_end >> OFFSET_BITS, self.durable_end & OFFSET_MASK
        verify_from = 0
        if header.data_log <= durable_log:
            verify_from = durable_offset if header.data_log == durable_log else OFFSET_MASK
        walk = RecordWalk(file, header, offset, next_log_sequence=next_log_sequence, verify_from=verify_from)
        for at, record, head in walk:
            try:
                self.replay.apply(file, header.data_log << OFFSET_BITS | at, record, head)
            except RecordDamaged as damage:
                self._give_up(header.data_log, at, str(damage))
            self._result.replayed_records += 1
            end = header.data_log << OFFSET_BITS | walk.end
            assert walk.next_log_sequence is not None
            next_log_sequence = walk.next_log_sequence
            self.replay.checkpoint_if_crowded(file, end, walk.epoch, next_log_sequence)
            while plain := walk.gather(PLAIN_RECORDS_MAX):
                self.replay.apply_plain(file, header.data_log, plain, walk.epoch, next_log_sequence)
                self._result.replayed_records += walk.next_log_sequence - next_log_sequence
                next_log_sequence = walk.next_log_sequence
        self.durable_end = max(self.durable_end, walk.durable_end)
        self._result.epoch = max(self._result.epoch, walk.epoch)
        assert walk.next_log_sequence is not None
        self._result.next_log_sequence = walk.next_log_sequence
        return walk

    def _cut(self, end: JournalEnd) -> None:
        """Cut the data log at the end, behind which nothing was ever durable, and set aside later data logs."""
        for data_log in end.rest:
            if not self._tail.may_cut:
                if data_log != end.position >> OFFSET_BITS:
                    del self._result.sizes[data_log]
                continue
            is_here = data_log == end.position >> OFFSET_BITS
            cut_bytes = end.position & OFFSET_MASK if is_here else 0
            file = self._disk.open(data_log_name(data_log))
            try:
                torn_bytes = used_bytes(file, cut_bytes)
                file.truncate(cut_bytes or torn_bytes)
                file.sync()
            finally:
                file.close()
            self._count_cut(data_log, cut_bytes, torn_bytes, end.problem)
            if not cut_bytes:
                self._set_aside(data_log, is_empty=not torn_bytes)

    def _count_cut(self, data_log: int, offset: int, torn_bytes: int, problem: str) -> None:
        """Count the bytes that were cut at an offset, and log them unless the place was reported as damage.

        torn_bytes: up to the last byte that is not zero. Bytes that are known to have been durable count even if they
            are zero.
        """
        known_bytes = min(self._known_bytes(data_log, offset), self._file_sizes[data_log] - offset)
        cut_bytes = max(torn_bytes, known_bytes)
        self._result.truncated_bytes += cut_bytes
        is_named = any((place.data_log, place.offset) == (data_log, offset) for place in self._result.damaged)
        if cut_bytes and not is_named:
            place = f"data-{data_log}.log: {cut_bytes} torn bytes cut at offset {offset}"
            logger.warning("%s (%s)", place, problem, event="journal_tail_cut")

    def _set_aside(self, data_log: int, *, is_empty: bool) -> None:
        """Put a data log behind the end into the quarantine, or delete it if nothing is in it."""
        del self._result.sizes[data_log]
        if is_empty:
            self._disk.remove(data_log_name(data_log))
            self._disk.sync_directory(JOURNAL)
        else:
            quarantine_data_log(self._disk, data_log)
            self._result.quarantined += 1
