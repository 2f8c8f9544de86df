"""Replay: apply each record of the journal to the index, the subscriptions and the transactions.

recovery/recovery.py walks over the data logs, gives each record to `Replay.apply`, and decides where the journal ends.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple, assert_never

from ..disk.disk import Disk, File
from ..disk.layout import data_log_name
from ..errors import JournalCorrupt
from ..format.branch import Branch, CommitRecord, CommittedSlice, PlacedSlice, PrepareRecord, RollbackRecord
from ..format.decode import UnknownRecord, decode
from ..format.destination_table import DestinationTable
from ..format.host_properties import PropertiesRecord
from ..format.identity import identity
from ..format.imports import ImportRecord, Imports
from ..format.message_properties import own_identity
from ..format.needs_record import NeededRun, NeedsRecord
from ..format.places import Extent, SingleRecords
from ..format.record import (
    IMPORTED,
    LOST,
    MESSAGE,
    RELOCATED,
    TIMED,
    AckRecord,
    AttestRecord,
    DirectoryRecord,
    Header,
    LaneRun,
    LostRecord,
    MessageRecord,
    RecordDamaged,
    decode_slice,
)
from ..format.return_record import ReturnRecord
from ..format.seek_record import SeekRecord
from ..format.state_record import (
    TOPIC,
    DeleteRecord,
    Destination,
    DestinationRecord,
    DropRecord,
    StateRecord,
    SubscribeRecord,
    Subscription,
    UnsubscribeRecord,
)
from ..format.survivors_record import SurvivorsRecord
from ..format.times import MessageTimes, read_times
from ..index.destination_lane import DestinationLane
from ..index.topic_lane import TopicLane
from ..journal.data_log import (
    DATA_LOG_HEADER_BYTES,
    DataLogHeader,
    Plain,
    RecordWalk,
    crc_of,
)
from ..numbering import (
    BLOCK_MASK,
    BLOCK_MESSAGES,
    BLOCK_SHIFT,
    LANE_MASK,
    LANE_SHIFT,
    OFFSET_BITS,
    OFFSET_MASK,
    location_text,
)
from ..state.branches import apply_commit, read_lengths, read_slice_times
from ..state.journaled_state import JournaledState
from ..structures.sequence_set import SequenceSet

RECENT_MESSAGES_MAX: Final = 16_384
"""Most messages of transactions whose lengths stay in RAM. A commit soon after its slices then reads none again."""


class _Announcement(NamedTuple):
    """Which subscriptions need the messages of the copy that follows a record of needs.

    The copy may be the first that the replay sees of these messages.
    """

    lane: TopicLane
    first: int
    last: int
    needs: list[NeededRun]


class Replay:
    """Applies records. Not thread-safe, because the store has no users yet."""

    def __init__(
        self,
        journaled: JournaledState,
        headers: Mapping[int, DataLogHeader | None],
        is_gone: Callable[[int], bool],
        write_checkpoint: Callable[[int, int, StateRecord], None],
        *,
        accepts_loss: bool,
    ) -> None:
        """Prepare a replay.

        headers: those of the data logs.
        is_gone: returns whether the data log of an id is missing or left out.
        write_checkpoint(position, epoch, state): stores the index as it is now.
        accepts_loss: whether loss that a repair could not undo is accepted.
        """
        self._journaled = journaled
        self._disk = journaled.disk
        self._index = journaled.index
        self._subscriptions = journaled.subscriptions
        self._branches = journaled.branches
        self._duplicates = journaled.duplicates
        self._properties = journaled.properties
        self._headers = headers
        self._is_gone = is_gone
        self._write_checkpoint = write_checkpoint
        self._accepts_loss = accepts_loss
        self.destinations = DestinationTable()
        self.imports = Imports()
        # The data logs that exist, by what the journal says.
        self.existing_data_logs: set[int] = set()
        # Numbers of deleted queues.
        self._deleted: set[int] = set()
        self._announced: _Announcement | None = None
        self._recent: dict[tuple[int, int], Sequence[int]] = {}  # by number of the transaction, and position
        self._recent_messages = 0

    def reset(self) -> None:
        """Forget the state that records have built up, before a full replay.

        Lengths of slices stay, because the same slices are at the same places in each replay. An announcement may stay
        too: its lane is no longer in the index, and the next record ends it.
        """
        self._journaled.reset()
        self.destinations.clear()
        self.imports.restate(())
        self.existing_data_logs.clear()
        self._deleted.clear()

    def apply(self, file: File, position: int, record: Header, head: bytes) -> None:
        """Apply a record of a data log's file. RecordDamaged: the record says something impossible."""
        index, data_log = self._index, position >> OFFSET_BITS
        payload = decode(record, head)
        announced, self._announced = self._announced, None
        match payload:
            case MessageRecord():
                self._apply_slice(file, position, record, payload, announced)
            case AckRecord():
                index.use(data_log)
                acked_lane = self._subscriptions.ensure_acked_lane(payload.number, payload.priority)
                for first, messages in payload.ranges:
                    index.remove(acked_lane, first, first + messages - 1, data_log)
            case ReturnRecord():
                number = payload.number << LANE_SHIFT | payload.priority
                for run in payload.runs:
                    index.delivery_count_table.put(number, run.first, run.first + run.messages - 1, run.delivery_count)
                if payload.now_ms:
                    relieve = partial(self.checkpoint_if_crowded, file, position, record.epoch, record.log_sequence)
                    self._delay(payload, relieve)
            case StateRecord():
                self.apply_state(payload)
                self.existing_data_logs.add(data_log)
            case DestinationRecord():
                self.register((payload.destination,))
            case DeleteRecord():
                self._delete(payload.number)
            case SubscribeRecord():
                self._subscribe(payload.subscription)
            case UnsubscribeRecord():
                self._subscriptions.unsubscribe(payload.number)
            case SeekRecord():
                index.use(data_log)
                self._subscriptions.seek(payload.number, payload.firsts, data_log)
            case DropRecord():
                self.forget_data_logs(payload.data_logs)
            case LostRecord():
                self.existing_data_logs.add(data_log)
                index.use(data_log)
            case PrepareRecord():
                self._branches.adopt(payload.branch)
            case RollbackRecord():
                self._branches.forget(payload.number)
            case CommitRecord():
                self._apply_commit(file, position, record, payload)
            case ImportRecord():
                self.imports.note(payload)
            case SurvivorsRecord():
                relieve = partial(self.checkpoint_if_crowded, file, position, record.epoch, record.log_sequence)
                self._keep_survivors(data_log, payload, relieve)
            case NeedsRecord():
                self._restate(payload)
            case PropertiesRecord():
                self._properties.apply(payload.changes)
            case AttestRecord() | DirectoryRecord() | UnknownRecord():
                pass  # for scans of data logs, or for a newer version
            case _:
                assert_never(payload)

    def _delay(self, counted: ReturnRecord, relieve: Callable[[], None]) -> None:
        """Delay the messages that came back and are pending. relieve: see _keep_survivors."""
        self._index.note_time(counted.now_ms)
        lane = self._subscriptions.ensure_acked_lane(counted.number, counted.priority)
        for run in counted.runs:
            at, end = run.first, run.first + run.messages
            while run.due_at and (found := lane.pending_run(at, BLOCK_MESSAGES)) is not None and found[0] < end:
                at = min(found[1] + 1, end)
                self._index.delayed_lane(lane).put(found[0], at - 1, run.due_at)
                relieve()

    def _apply_slice(
        self, file: File, position: int, record: Header, part: MessageRecord, announced: _Announcement | None
    ) -> None:
        """Add, place or relocate the messages of a slice. announced: what the previous record said about them."""
        data_log, offset = position >> OFFSET_BITS, position & OFFSET_MASK
        lane = self._index.ensure_lane(part.destination_number, part.priority)
        if record.is_identified and self._duplicates.watches(part.destination_number):
            self._note_identities(file, offset + record.head_bytes, part)
        if record.is_transactional:
            if not record.flags & RELOCATED:  # a copy takes effect once a prepare record names it
                self._place(part, lane.number, position, record)
        elif record.flags & RELOCATED:
            if record.entries > BLOCK_MESSAGES - (part.first_sequence & BLOCK_MASK):
                raise RecordDamaged("a slice crosses a block")
            lane.note_copy(data_log, offset, part.first_sequence, list(part.lengths))
            if announced is not None and announced.lane is lane:
                lane.restate(announced.first, announced.last, announced.needs)
            if record.flags & TIMED:
                self._put_times(file, offset + record.head_bytes, lane, part)
        elif part.first_sequence >= lane.next_sequence:
            lane.skip_to(part.first_sequence)
            if record.entries > lane.slice_capacity:
                raise RecordDamaged("a slice crosses a block")
            lane.add_slice(data_log, offset, list(part.lengths), self._index.use(data_log))
            if record.flags & IMPORTED:
                self.imports.count(record.entries)
            if record.flags & TIMED:
                self._put_times(file, offset + record.head_bytes, lane, part)

    def apply_plain(self, file: File, data_log: int, plain: list[Plain], epoch: int, next_log_sequence: int) -> None:
        """Apply plain records; add consecutive messages of a lane together.

        next_log_sequence: log sequence of the first record.
        """
        index = self._index
        use = index.use(data_log)
        for offset, number, sequence, messages, offsets, lengths in plain:
            self.checkpoint_if_crowded(file, data_log << OFFSET_BITS | offset, epoch, next_log_sequence)
            if messages:
                lane = self._subscriptions.ensure_acked_lane(number >> LANE_SHIFT, number & LANE_MASK)
                index.remove(lane, sequence, sequence + messages - 1, data_log)
                next_log_sequence += 1
                continue
            next_log_sequence += len(offsets)
            lane = index.ensure_lane_numbered(number)
            known = lane.next_sequence - sequence
            if known < len(offsets):
                if known > 0:
                    del offsets[:known], lengths[:known]
                lane.skip_to(sequence + max(known, 0))
                lane.add_singles(data_log, array("I", offsets), array("I", lengths), use)

    def _note_identities(self, file: File, begin: int, part: MessageRecord) -> None:
        """Note the ids of a slice's messages, so that none of these is stored again. It skips messages that do not
        verify.

        begin: offset of the first message's content.
        """
        for crc, length, properties_bytes in zip(part.table[::3], part.lengths, part.table[2::3], strict=True):
            if properties_bytes and properties_bytes <= length and crc_of(file, begin, length) == crc:
                own = own_identity(file.read(begin, properties_bytes))
                if own is not None:
                    self._duplicates.remember(identity(part.destination_number, *own))
            begin += length

    def checkpoint_if_crowded(self, file: File, position: int, epoch: int, next_log_sequence: int) -> None:
        """Checkpoint if the index is crowded, so that it stays bounded however long the replay is.

        position: end of the last applied record. file: the data log of the position, which is synced here; earlier data
            logs are synced already.
        """
        if self._index.is_crowded and self._announced is None:
            self._subscriptions.remove_unneeded()
            file.sync()
            self.checkpoint(position, epoch, next_log_sequence)

    def checkpoint(self, position: int, epoch: int, next_log_sequence: int) -> None:
        """Store the index as it is now. Requires: the journal is synced up to the position."""
        branches = [*self._branches.prepared, *self._branches.open]
        data_logs = sorted(self.existing_data_logs)
        state = StateRecord(data_logs=data_logs, branches=branches, next_log_sequence=next_log_sequence)
        self._write_checkpoint(position, epoch, self._journaled.restated(state, self.destinations, self.imports))

    def _put_times(self, file: File, content_offset: int, lane: DestinationLane, part: MessageRecord) -> None:
        lane.put_times(part.first_sequence, read_times(file, content_offset, part))
        self._index.note_time(part.timestamp)

    def _place(self, part: MessageRecord, lane_number: int, position: int, record: Header) -> None:
        """Note a slice of a transaction whose commit may follow."""
        lengths = part.lengths
        is_timed = bool(record.flags & TIMED)
        self._branches.place(part.first_sequence, lane_number, position, len(lengths), record.length, is_timed=is_timed)
        self._recent_messages += len(lengths)
        if self._recent_messages > RECENT_MESSAGES_MAX:
            self._recent.clear()
            self._recent_messages = len(lengths)
        self._recent[part.first_sequence, position] = lengths

    def _apply_commit(self, file: File, position: int, record: Header, commit: CommitRecord) -> None:
        """Apply a commit. Its slices are read again if their lengths are not known any more."""
        branch = self._branches.find(commit.number)
        known = {placed.position: placed.lane_number for placed in branch} if branch is not None else {}
        reader = _Reader(self._disk, self._headers)

        def lengths_of(placed: CommittedSlice) -> Sequence[int] | None:
            home = placed.position >> OFFSET_BITS
            if self._is_gone(home):
                return None  # the data log was deleted, because all messages of the slice were acknowledged
            try:
                if placed.position not in known:
                    raise RecordDamaged(f"a commit names a slice at {location_text(placed.position)} that is not there")
                if known[placed.position] != placed.lane_number:
                    raise RecordDamaged("the slice belongs to another lane")
                return self._recent.get((commit.number, placed.position)) or reader.lengths(commit.number, placed)
            except RecordDamaged:
                if self._accepts_loss or self._has_loss(home):
                    return None  # a repair could not restore it
                raise

        def make_room() -> None:
            self.checkpoint_if_crowded(file, position, record.epoch, record.log_sequence)

        def times_of(placed: CommittedSlice) -> list[MessageTimes]:
            return reader.times(commit.number, placed)

        try:
            acked_lane = self._subscriptions.ensure_acked_lane_numbered
            apply_commit(self._index, commit, position >> OFFSET_BITS, lengths_of, times_of, make_room, acked_lane)
        finally:
            reader.close()
        self._properties.apply(commit.properties)
        self._branches.forget(commit.number)
        for sent in commit.identities:
            self._duplicates.remember(sent)

    def forget_lost_slices(self) -> None:
        """Remove from prepared branches the slices that a repair could not bring back, and acks of lanes that are gone.

        It reads the head of each slice. JournalCorrupt: a slice is damaged that no repair has reported. The open fails,
        because otherwise a commit would meet the damage after its record was written.
        """
        reader = _Reader(self._disk, self._headers)
        numbers = self.destinations.keys() | self._subscriptions.numbers()
        try:
            for branch in self._branches.prepared:
                left = self._without_losses(branch, reader, numbers)
                if (len(left), len(left.acks)) < (len(branch), len(branch.acks)):
                    self._branches.adopt(left)
        finally:
            reader.close()

    def _without_losses(self, branch: Branch, reader: _Reader, numbers: set[int]) -> Branch:
        """Return what is left of a branch. numbers: those of all destinations and subscriptions."""
        left = Branch(branch.number, branch.xid)
        left.acks = {number: runs for number, runs in branch.acks.items() if number >> LANE_SHIFT in numbers}
        left.identities, left.properties = branch.identities, branch.properties
        for placed in branch:
            if not self._is_lost(reader, branch.number, placed):
                left.add(*placed, is_timed=placed.position in branch.timed)
        return left

    def _is_lost(self, reader: _Reader, transaction_number: int, placed: PlacedSlice) -> bool:
        home = placed.position >> OFFSET_BITS
        if self._is_gone(home):
            return True
        try:
            reader.lengths(transaction_number, placed)
            if placed.lane_number >> LANE_SHIFT not in self.destinations:
                raise RecordDamaged("a transaction sends to what is not there")
        except RecordDamaged as damage:
            if self._accepts_loss or self._has_loss(home):
                return True
            raise JournalCorrupt(home, placed.position & OFFSET_MASK, str(damage)) from None
        return False

    def _has_loss(self, data_log: int) -> bool:
        """Return whether a repair found damage in a data log. It reads the heads of its records."""
        header = self._headers.get(data_log)
        if header is None:
            return False
        file = self._disk.open_for_reading(data_log_name(data_log))
        try:
            return any(record.kind == LOST for _, record, _ in RecordWalk(file, header, DATA_LOG_HEADER_BYTES))
        finally:
            file.close()

    def _subscribe(self, facts: Subscription) -> None:
        if facts.topic not in self.destinations:  # the record with its name was lost
            self.register((Destination(facts.topic, TOPIC, f"recovered-{facts.topic}"),))
        self._subscriptions.subscribe(facts)

    def _keep_survivors(self, by_data_log: int, survived: SurvivorsRecord, relieve: Callable[[], None]) -> None:
        """Remove all messages of a data log but its survivors. The acks of the others may be deleted already.

        relieve: makes room in the index by a checkpoint that is as of before this record. So after a crash the record
            is replayed again.
        """
        data_log, ranges = survived
        header = self._headers.get(data_log)
        if header is not None:
            live = self._pending_of(ranges, data_log, relieve)
            if self._index.use(data_log).pending_messages > live:
                survivors = _sequences_by_lane(ranges)
                self._index.use(by_data_log)
                self._remove_sent_but(survivors, header, by_data_log, relieve)
                if self._index.use(data_log).pending_messages > live:
                    self._remove_indexed_but(survivors, data_log, by_data_log, relieve)
        self._index.supersede(data_log, by_data_log)

    def _pending_of(self, ranges: Iterable[LaneRun], data_log: int, relieve: Callable[[], None]) -> int:
        """Return how many messages of these runs are pending and lie in a data log.

        A message for a subscription without a name is in the runs, and is not pending after a restart.
        """
        pending = 0
        for number, first, messages in ranges:
            lane, end = self._index.lanes.get(number), first + messages
            while lane is not None and (run := lane.pending_run(first, BLOCK_MESSAGES)) is not None and run[0] < end:
                first = min(run[1] + 1, end)
                extents = lane.extents(run[0], first - 1)
                pending += sum(extent.messages for extent in extents if extent.data_log == data_log)
                relieve()
        return pending

    def _restate(self, needed: NeedsRecord) -> None:
        """Restate which subscriptions need messages of a topic that the next records copy or name.

        The acks from before may be deleted. This record comes first and is in the same data log as the copy, so the
        needs of every copy are known.
        """
        run, needs = needed
        last = run.first + run.messages - 1
        if not run.messages or run.first >> BLOCK_SHIFT != last >> BLOCK_SHIFT:
            raise RecordDamaged("needs that cross a block, or of nothing")
        if run.lane_number >> LANE_SHIFT not in self.destinations:
            return  # the topic's record and its subscriptions were lost, so all messages of the copy are kept
        lane = self._index.ensure_lane_numbered(run.lane_number)
        if not isinstance(lane, TopicLane):
            raise RecordDamaged("needs of what is no topic's")
        lane.restate(run.first, last, needs)
        self._index.trim_delayed(lane, run.first, last)
        self._announced = _Announcement(lane, run.first, last, needs)

    def _remove_sent_but(
        self, survivors: dict[int, SequenceSet], header: DataLogHeader, by_data_log: int, relieve: Callable[[], None]
    ) -> None:
        """Remove all messages of a data log but survivors, by reading its slices. It skips slices of transactions."""
        data_log = header.data_log
        file = self._disk.open_for_reading(data_log_name(data_log))
        try:
            walk = RecordWalk(file, header, DATA_LOG_HEADER_BYTES)
            for offset, record, head in walk:
                if record.kind == MESSAGE and not record.is_transactional:
                    self._remove_slice_but(survivors, data_log, offset, decode_slice(record, head), by_data_log)
                relieve()
            if walk.problem is not None:
                raise JournalCorrupt(data_log, walk.end, walk.problem)
        finally:
            file.close()

    def _remove_slice_but(
        self, survivors: dict[int, SequenceSet], data_log: int, offset: int, part: MessageRecord, by_data_log: int
    ) -> None:
        lane = self._index.ensure_lane(part.destination_number, part.priority)
        first, last = part.first_sequence, part.first_sequence + len(part.lengths) - 1
        for extent in lane.pending_places_in(data_log, offset, offset + 1, first, last):
            self._remove_extent_but(survivors, lane, extent, by_data_log)

    def _remove_indexed_but(
        self, survivors: dict[int, SequenceSet], data_log: int, by_data_log: int, relieve: Callable[[], None]
    ) -> None:
        """Remove all messages of a data log but survivors, by searching the whole index. O(index).

        It finds messages of transactions too: the commit gave their sequences, so their slices do not say them.
        """
        for lane in list(self._index.lanes.values()):
            at = 0
            while (run := lane.pending_run(at, BLOCK_MESSAGES)) is not None:
                at = run[1] + 1
                for extent in [each for each in lane.extents(*run) if each.data_log == data_log]:
                    self._remove_extent_but(survivors, lane, extent, by_data_log)
                relieve()

    def _remove_extent_but(
        self, survivors: dict[int, SequenceSet], lane: DestinationLane, extent: Extent | SingleRecords, by_data_log: int
    ) -> None:
        kept = survivors.get(lane.number)
        for sequence in range(extent.first_sequence, extent.first_sequence + extent.messages):
            if kept is None or sequence not in kept:
                self._index.remove(lane, sequence, sequence, by_data_log)

    def register(self, destinations: Iterable[Destination]) -> None:
        for destination in destinations:
            known = self.destinations.get(destination.number)
            if known is not None and known.kind != destination.kind:
                raise RecordDamaged(f"destination {destination.number} was of another kind")
            if known != destination:
                self.destinations[destination.number] = destination
            self._subscriptions.register(destination)
            self._duplicates.register(destination.number, destination.name)

    def _delete(self, destination_number: int) -> None:
        self.destinations.pop(destination_number, None)
        self._duplicates.forget(destination_number)
        self._properties.forget_retained(destination_number)
        self._deleted.add(destination_number)
        self._subscriptions.delete_topic(destination_number)
        self._index.forget(destination_number)

    def forget_data_logs(self, data_logs: Iterable[int]) -> None:
        """Forget that these data logs exist, because they were dropped or are lost."""
        self.existing_data_logs.difference_update(data_logs)

    def forget_deleted(self) -> None:
        """Forget deleted queues once more at the end, because survivors records may have made lanes for them."""
        for number in self._deleted:
            self._index.forget(number)

    def apply_state(self, state: StateRecord) -> None:
        """Take over a state record. Delete the destinations that it does not name: their delete records may be gone."""
        for number in self.destinations.keys() - {destination.number for destination in state.destinations}:
            self._delete(number)
        self.register(state.destinations)
        for number, sequence in state.next_sequences.items():
            self._index.skip_to(number, sequence)
        self._subscriptions.apply(state)
        self._properties.restore(state.properties)
        self._branches.reconcile_with(state)
        self.imports.restate(state.imports)
        self._duplicates.restore(state.duplicates)
        self._index.delivery_count_table.apply(state.delivery_counts)
        self.existing_data_logs = set(state.data_logs)


def _sequences_by_lane(runs: Iterable[LaneRun]) -> dict[int, SequenceSet]:
    """Return the sequences of runs, by number of their lane."""
    sequences: dict[int, SequenceSet] = {}
    for lane_number, first, messages in runs:
        if messages:
            sequences.setdefault(lane_number, SequenceSet()).add(first, first + messages - 1)
    return sequences


class _Reader:
    """Reads the heads of slices, with one data log open at a time."""

    def __init__(self, disk: Disk, headers: Mapping[int, DataLogHeader | None]) -> None:
        self._disk = disk
        self._headers = headers
        self._data_log = 0
        self._file: File | None = None

    def lengths(self, transaction_number: int, placed: PlacedSlice | CommittedSlice) -> Sequence[int]:
        return read_lengths(*self._opened(placed), transaction_number, placed)

    def times(self, transaction_number: int, placed: CommittedSlice) -> list[MessageTimes]:
        return read_slice_times(*self._opened(placed), transaction_number, placed)

    def _opened(self, placed: PlacedSlice | CommittedSlice) -> tuple[File, int]:
        data_log = placed.position >> OFFSET_BITS
        header = self._headers[data_log]
        if header is None:
            raise RecordDamaged("the data log's header does not verify")
        if data_log != self._data_log or self._file is None:
            self.close()
            self._file, self._data_log = self._disk.open_for_reading(data_log_name(data_log)), data_log
        return self._file, header.salt

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
