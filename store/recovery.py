"""Recovery: from what a crash left to an index that agrees with the journal.

The index is loaded from the last checkpoint and the journal replayed from
its position; where the index is missing or in doubt, the whole journal is
replayed, with checkpoints on the way so that memory stays bounded. The place
where the journal stops making sense is a torn tail, which is cut and counted,
unless some intact record or checkpoint knew it to be durable: that is
corruption, and opening is refused with the place. Whole files that are cut
off go to quarantine. Recovering twice gives what recovering once gives.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from .block import BLOCK_MASK, BLOCK_MESSAGES, BlockDamaged
from .branch import CommittedSlice, decode_branch, decode_commit, decode_rollback
from .data_log import (
    DATA_LOG_HEADER_BYTES,
    DataLogHeader,
    Plain,
    UnknownVersion,
    Walk,
    attested_behind,
    decode_data_log_header,
    used_bytes,
)
from .disk import Disk, File
from .errors import JournalCorrupt
from .files import JOURNAL, QUARANTINE, data_log_id, data_log_name
from .index import LANE_MASK, LANE_SHIFT, Index
from .journal import OFFSET_BITS, OFFSET_MASK, location_text
from .mark import Mark
from .metadata_store import MetadataDamaged, MetadataStore
from .record import (
    ACK,
    COMMIT,
    DESTINATION,
    DROP,
    HEADER_BYTES,
    MESSAGE,
    PREPARE,
    RELOCATED,
    ROLLBACK,
    STATE,
    SUBSCRIBE,
    SURVIVORS,
    UNSUBSCRIBE,
    Header,
    RecordDamaged,
    Slice,
    decode_ranges,
    decode_slice,
    decode_survivors,
)
from .runs import Runs
from .state import (
    Destination,
    State,
    decode_destination,
    decode_root,
    decode_state,
    decode_subscription,
    decode_unsubscribe,
)
from .subscriptions import Subscriptions
from .transactions import Transactions, apply_commit, read_lengths
from .verify import raise_first_damage

logger = logging.getLogger("forebay.store.recovery")

QUARANTINE_FILES_MAX: Final = 16
"""The newest are kept."""
PLAIN_RECORDS_MAX: Final = 1024
"""So many are applied together: at most three blocks when they follow each other in one lane."""
RECENT_MESSAGES_MAX: Final = 16_384
"""Of so many messages in transactions the lengths are kept, so that a commit soon after reads no slice again."""


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """What opening the directory did."""

    clean: bool
    """The last process closed the store itself."""
    index_rebuilt: bool
    """The whole journal was replayed, because the index was missing or in doubt."""
    replayed_records: int
    truncated_bytes: int
    """Torn bytes cut from the end of the journal, none of which had been confirmed as durable."""
    quarantined: int
    """Files set aside in quarantine."""
    prepared: int
    """Transactions that wait for their outcome: `Forebay.prepared` has them."""
    seconds: float


@dataclass(slots=True)
class Recovered:
    """Where the journal goes on, and what was found."""

    destinations: dict[int, Destination]
    next_data_log: int
    next_sequence: int
    epoch: int
    sizes: dict[int, int]
    end: int = 0
    """Position behind the last record that was accepted; all before it is durable."""
    replayed_records: int = 0
    truncated_bytes: int = 0
    quarantined: int = 0
    index_rebuilt: bool = False
    leftovers: tuple[int, ...] = ()
    """Data logs that were dropped but not yet unlinked."""


class _End(NamedTuple):
    """Where the journal ends. `rest`: the data logs that reach behind it. `place`: the position of the problem."""

    position: int
    rest: list[int]
    place: int
    problem: str


class Recovery:
    """One recovery of one directory; `run` does it. Nothing else uses the disk meanwhile."""

    def __init__(
        self,
        disk: Disk,
        index: Index,
        subscriptions: Subscriptions,
        transactions: Transactions,
        metadata: MetadataStore,
        mark: Mark | None,
        store_id: bytes,
        write_checkpoint: Callable[[int, int, State], None],
        *,
        verifies_all: bool = False,
    ) -> None:
        """write_checkpoint(position, epoch, state) stores the index as it is now.

        verifies_all: what the replay does not read is verified too.
        """
        self._verifies_all = verifies_all
        self._disk = disk
        self._index = index
        self._subscriptions = subscriptions
        self._transactions = transactions
        self._metadata = metadata
        self._mark = mark
        self._store_id = store_id
        self._write_checkpoint = write_checkpoint
        self._destinations: dict[int, Destination] = {}
        self._expected: set[int] = set()
        """The data logs that exist, as the journal itself tells."""
        self._headers: dict[int, DataLogHeader | None] = {}
        """None: it does not verify."""
        self._left_out: set[int] = set()
        self._recent: dict[int, Sequence[int]] = {}
        self._recent_messages = 0
        self._durable = mark.position if mark else 0
        self._result = Recovered({}, 1, 0, mark.epoch if mark else 0, {})

    def run(self) -> Recovered:
        result = self._result
        ids = self._list()
        self._disk.sync_directory(JOURNAL)
        start = self._load_index(ids)
        end = self._bring_up(ids, *start) if start is not None else None
        if end is None:
            end = self._rebuild(ids)
        missing = sorted(self._expected - set(result.sizes))
        if missing:
            raise JournalCorrupt(missing[0], 0, f"{len(missing)} data logs are missing, this is the first")
        if self._verifies_all:
            raise_first_damage(self._disk, [data_log for data_log in ids if data_log in self._expected], end.position)
        self._cut(end)
        result.leftovers = tuple(sorted(set(result.sizes) - self._expected))
        result.sizes = {data_log: result.sizes[data_log] for data_log in self._expected}
        for data_log in set(self._index.uses) - self._expected:
            del self._index.uses[data_log]
        for use in self._index.uses.values():
            use.acked_data_logs &= self._expected
            use.committed_data_logs &= self._expected
        result.destinations = self._destinations
        result.end = end.position
        return result

    def _list(self) -> list[int]:
        """Ids of all data logs. Reads their headers and holds no file open: there may be thousands."""
        ids = sorted(filter(None, map(data_log_id, self._disk.list(JOURNAL))))
        aside = filter(None, map(data_log_id, self._disk.list(QUARANTINE)))
        self._result.next_data_log = max((*ids, *aside), default=0) + 1
        for data_log in ids:
            file = self._disk.open_for_reading(data_log_name(data_log))
            try:
                header = decode_data_log_header(file.read(0, DATA_LOG_HEADER_BYTES))
            except UnknownVersion as version:
                raise JournalCorrupt(data_log, 0, str(version)) from None
            except RecordDamaged:
                self._headers[data_log] = None
                continue
            finally:
                self._result.sizes[data_log] = file.size()
                file.close()
            is_ours = header.data_log == data_log and header.store_id == self._store_id
            self._headers[data_log] = header if is_ours else None
            self._result.epoch = max(self._result.epoch, header.epoch if is_ours else 0)
        return ids

    # ------------------------------------------------------------------ the index

    def _load_index(self, ids: list[int]) -> tuple[int, int] | None:
        """Take over the last checkpoint: the position to replay from and its log sequence. None: replay everything."""
        if self._mark is None:
            return None
        try:
            snapshot = self._metadata.load()
            if snapshot is None:
                return None
            state, lanes, uses, backlogs = decode_root(snapshot.root)
            self._durable = max(self._durable, snapshot.position)
            data_log, offset = snapshot.position >> OFFSET_BITS, snapshot.position & OFFSET_MASK
            if data_log > max(ids, default=0):
                raise JournalCorrupt(data_log, 0, "the data log is missing")
            if data_log not in self._headers:
                return None  # a power cut brought back an index from before a cleanup
            if offset > self._result.sizes[data_log]:
                raise JournalCorrupt(data_log, offset, "the data log ends before a place that was durable")
            self._see(state.destinations)
            self._index.restore(lanes, uses, snapshot.blocks)
            self._apply_state(state)
            self._subscriptions.restore(backlogs)
        except (MetadataDamaged, RecordDamaged, BlockDamaged) as damage:
            logger.warning("the index is rebuilt from the journal: %s", damage)
            return None
        self._result.epoch = max(self._result.epoch, snapshot.epoch)
        return snapshot.position, state.next_log_sequence

    def _bring_up(self, ids: list[int], start: int, next_sequence: int) -> _End | None:
        """Replay what follows a checkpoint. None: the index is damaged, or from before a cleanup."""
        try:
            end = self._replay(ids, start, next_sequence)
            self._sweep(end)
        except (MetadataDamaged, BlockDamaged) as damage:
            logger.warning("the index is rebuilt from the journal: %s", damage)
            return None
        return None if self._needs_dropped() else end

    def _rebuild(self, ids: list[int]) -> _End:
        """Replay the whole journal, twice where that shows that it still has data logs which were dropped.

        Their messages were all acknowledged, but the acks may be gone already.
        """
        self._result.index_rebuilt = bool(ids)
        end = self._replay_all(ids)
        if self._needs_dropped():
            self._left_out = set(ids) - set(end.rest) - self._expected
            end = self._replay_all([data_log for data_log in ids if data_log not in self._left_out])
            assert not self._needs_dropped()
        return end

    def _replay_all(self, ids: list[int]) -> _End:
        self._index.reset()
        self._subscriptions.reset()
        self._transactions.clear()
        self._metadata.clear()
        self._destinations.clear()
        self._expected.clear()
        self._result.replayed_records = 0
        first = ids[0] << OFFSET_BITS | DATA_LOG_HEADER_BYTES if ids else 0
        end = self._replay(ids, first, None)
        self._sweep(end)
        return end

    def _sweep(self, end: _End) -> None:
        """Let go of what no subscription needs, so that the counts tell which data logs are needed."""
        while not self._subscriptions.sweep():
            self._checkpoint(end.position, self._result.epoch, self._result.next_sequence)

    def _checkpoint(self, position: int, epoch: int, next_log_sequence: int) -> None:
        """REQUIRES: the journal is synced up to there."""
        state = State(
            list(self._destinations.values()),
            data_logs=sorted(self._expected),
            branches=[*self._transactions.prepared, *self._transactions.open],
            next_log_sequence=next_log_sequence,
        )
        self._write_checkpoint(position, epoch, self._subscriptions.describe(state))

    def _needs_dropped(self) -> bool:
        """The index has pending messages in data logs that were deleted because they had none."""
        uses = self._index.uses.items()
        return any(use.pending_messages and data_log not in self._expected for data_log, use in uses)

    # ------------------------------------------------------------------ the journal

    def _replay(self, ids: list[int], start: int, next_sequence: int | None) -> _End:
        """Apply all records from start on, and make them durable. Changes no data log."""
        position, previous = 0, 0
        for at, data_log in enumerate(ids):
            header = self._headers[data_log]
            if header is None:
                place = data_log << OFFSET_BITS
                return self._checked(_End(position, ids[at:], place, "the data log's header does not verify"))
            if data_log < start >> OFFSET_BITS:
                continue
            if previous and next_sequence != header.first_sequence:
                end = _End(position, ids[at:], position, "the data log ends before the next one begins")
                is_left_out = any(previous < left_out < data_log for left_out in self._left_out)
                if not is_left_out and not (previous < data_log - 1 and self._is_beyond(end)):
                    return self._checked(end)
            if previous or next_sequence is None:
                next_sequence = header.first_sequence
            file = self._disk.open(data_log_name(data_log))
            try:
                offset = DATA_LOG_HEADER_BYTES if previous else start & OFFSET_MASK
                walk = self._walk(file, header, offset, next_sequence)
                file.sync()
                size = file.size()
            finally:
                file.close()
            next_sequence, previous = walk.next_sequence, data_log
            position = data_log << OFFSET_BITS | walk.end
            self._result.sizes[data_log] = walk.end
            # An earlier recovery cuts a data log without sealing it; the next one's header says whether it is whole.
            is_whole = walk.end == size or (walk.is_sealed and data_log != ids[-1])
            if not is_whole:
                return self._checked(_End(position, ids[at:], position, walk.problem or "zeros where records were"))
        return self._checked(_End(position, [], position, "the data log ends"))

    def _is_beyond(self, end: _End) -> bool:
        """Something behind the end is known to be durable: by the index, the mark, or an intact record of the rest.

        A torn tail and corruption look alike, but for this. In a gap between
        data logs it tells those that were dropped from those that a power cut took.
        """
        for data_log in end.rest:
            header = self._headers[data_log]
            if self._durable > end.position or header is None:
                continue
            is_here = data_log == end.position >> OFFSET_BITS
            file = self._disk.open_for_reading(data_log_name(data_log))
            try:
                begin = end.position & OFFSET_MASK if is_here else DATA_LOG_HEADER_BYTES
                self._durable = max(self._durable, attested_behind(file, header, begin))
            finally:
                file.close()
        return self._durable > end.position

    def _checked(self, end: _End) -> _End:
        if self._is_beyond(end):
            durable_log, place = self._durable >> OFFSET_BITS, end.place
            if durable_log not in self._headers:
                raise JournalCorrupt(durable_log, 0, "the data log is missing")
            raise JournalCorrupt(place >> OFFSET_BITS, place & OFFSET_MASK, f"{end.problem}, and was durable")
        return end

    def _walk(self, file: File, header: DataLogHeader, offset: int, next_sequence: int) -> Walk:
        durable_log, durable_offset = self._durable >> OFFSET_BITS, self._durable & OFFSET_MASK
        verify_from = 0
        if header.data_log <= durable_log:
            verify_from = durable_offset if header.data_log == durable_log else OFFSET_MASK
        walk = Walk(file, header, offset, next_sequence=next_sequence, verify_from=verify_from)
        for place, record, head in walk:
            try:
                if record.kind == SURVIVORS:
                    begin = header.data_log << OFFSET_BITS | place
                    relieve = partial(self._checkpoint_if_crowded, file, begin, walk.epoch, record.sequence)
                    self._keep_survivors(header.data_log, record, head, relieve)
                elif record.kind == COMMIT:
                    self._apply_commit(file, header.data_log, place, record, head)
                else:
                    self._apply(header.data_log, place, record, head)
            except RecordDamaged as damage:
                raise JournalCorrupt(header.data_log, place, str(damage)) from None
            self._result.replayed_records += 1
            self._checkpoint_if_crowded(
                file, header.data_log << OFFSET_BITS | walk.end, walk.epoch, record.sequence + 1
            )
            while plain := walk.gather(PLAIN_RECORDS_MAX):
                self._apply_plain(plain, file, header.data_log, walk)
        self._durable = max(self._durable, walk.durable)
        self._result.epoch = max(self._result.epoch, walk.epoch)
        assert walk.next_sequence is not None
        self._result.next_sequence = walk.next_sequence
        return walk

    def _checkpoint_if_crowded(self, file: File, position: int, epoch: int, next_sequence: int) -> None:
        """So that the index stays bounded, however long the replay. position: what was applied ends there.

        file: the data log of the position; those before it are synced.
        """
        if self._index.is_crowded:
            self._subscriptions.sweep()
            file.sync()
            self._checkpoint(position, epoch, next_sequence)

    def _apply_plain(self, records: list[Plain], file: File, data_log: int, walk: Walk) -> None:
        """As _apply for each; messages that follow each other in their lane are added together."""
        index = self._index
        use = index.use(data_log)
        assert walk.next_sequence is not None
        next_sequence = walk.next_sequence - len(records)
        at = 0
        while at < len(records):
            offset, number, sequence, messages, _ = records[at]
            position = data_log << OFFSET_BITS | offset
            self._checkpoint_if_crowded(file, position, walk.epoch, next_sequence + at)
            behind = at + 1
            if messages:
                lane = self._subscriptions.lane(number >> LANE_SHIFT, number & LANE_MASK)
                lane.remove(sequence, sequence + messages - 1, data_log)
            elif sequence >= (lane := index.lane_numbered(number)).next_sequence:
                while behind < len(records) and records[behind][1:4] == (number, sequence + behind - at, 0):
                    behind += 1
                lane.skip_to(sequence)
                run = records[at:behind]
                offsets = array("I", [record[0] for record in run])
                lane.add_singles(data_log, offsets, array("I", [record[4] for record in run]), use)
            at = behind
        self._result.replayed_records += len(records)

    def _cut(self, end: _End) -> None:
        """Nothing behind the end was ever durable: cut the data log there, and set aside those that follow."""
        for data_log in end.rest:
            is_here = data_log == end.position >> OFFSET_BITS
            cut_bytes = end.position & OFFSET_MASK if is_here else 0
            file = self._disk.open(data_log_name(data_log))
            try:
                torn_bytes = used_bytes(file, cut_bytes)
                file.truncate(cut_bytes or torn_bytes)
                file.sync()
            finally:
                file.close()
            self._result.truncated_bytes += torn_bytes
            if torn_bytes:
                place = f"data-{data_log}.log: {torn_bytes} torn bytes cut at offset {cut_bytes}"
                logger.warning("%s (%s)", place, end.problem)
            if not cut_bytes:
                self._set_aside(data_log, is_empty=not torn_bytes)

    def _set_aside(self, data_log: int, *, is_empty: bool) -> None:
        del self._result.sizes[data_log]
        if is_empty:
            self._disk.remove(data_log_name(data_log))
        else:
            self._disk.make_directory(QUARANTINE)
            self._disk.rename(data_log_name(data_log), f"{QUARANTINE}/data-{data_log}.log")
            for old in sorted(filter(None, map(data_log_id, self._disk.list(QUARANTINE))))[:-QUARANTINE_FILES_MAX]:
                self._disk.remove(f"{QUARANTINE}/data-{old}.log")
            self._disk.sync_directory(QUARANTINE)
            self._result.quarantined += 1
        self._disk.sync_directory(JOURNAL)

    def _apply(self, data_log: int, offset: int, record: Header, head: bytes) -> None:
        index = self._index
        if record.kind == MESSAGE:
            part = decode_slice(record, head)
            lane = index.lane(part.destination, part.priority)
            if record.is_transactional:
                self._place(part, lane.number, data_log << OFFSET_BITS | offset)
            elif record.flags & RELOCATED:
                if record.entries > BLOCK_MESSAGES - (part.first_sequence & BLOCK_MASK):
                    raise RecordDamaged("a slice crosses a block")
                lane.move(data_log, offset, part.first_sequence, list(part.lengths))
            elif part.first_sequence >= lane.next_sequence:
                lane.skip_to(part.first_sequence)
                if record.entries > lane.slice_room:
                    raise RecordDamaged("a slice crosses a block")
                lane.add_slice(data_log, offset, list(part.lengths), index.use(data_log))
        elif record.kind == ACK:
            destination, ranges = decode_ranges(record, head)
            index.use(data_log)
            lane = self._subscriptions.lane(destination, record.priority)
            for first, messages in ranges:
                lane.remove(first, first + messages - 1, data_log)
        elif record.kind == STATE:
            self._apply_state(decode_state(head[HEADER_BYTES:]))
            self._expected.add(data_log)
        elif record.kind == DESTINATION:
            self._see((decode_destination(head[HEADER_BYTES:]),))
        elif record.kind == SUBSCRIBE:
            self._subscriptions.begin(decode_subscription(head[HEADER_BYTES:]))
        elif record.kind == UNSUBSCRIBE:
            self._subscriptions.end(decode_unsubscribe(head[HEADER_BYTES:]))
        elif record.kind == DROP:
            self._expected -= set(decode_state(head[HEADER_BYTES:]).data_logs)
        elif record.kind == PREPARE:
            self._transactions.adopt(decode_branch(head, HEADER_BYTES)[0])
        elif record.kind == ROLLBACK:
            self._transactions.end(decode_rollback(head[HEADER_BYTES:]))

    def _place(self, part: Slice, lane: int, position: int) -> None:
        """A slice of a transaction, of which the commit may follow."""
        lengths = part.lengths
        self._transactions.place(part.first_sequence, lane, position, len(lengths))
        self._recent_messages += len(lengths)
        if self._recent_messages > RECENT_MESSAGES_MAX:
            self._recent.clear()
            self._recent_messages = len(lengths)
        self._recent[position] = lengths

    def _apply_commit(self, file: File, data_log: int, offset: int, record: Header, head: bytes) -> None:
        commit = decode_commit(head[HEADER_BYTES:])
        branch = self._transactions.find(commit.number)
        known = {placed.position for placed in branch} if branch is not None else set()
        reader = _Reader(self._disk, self._headers)

        def lengths_of(placed: CommittedSlice) -> Sequence[int] | None:
            home = placed.position >> OFFSET_BITS
            if home not in self._result.sizes or home in self._left_out:
                return None  # its data log was deleted when all of it was acknowledged
            if placed.position not in known:
                raise RecordDamaged(f"a commit names a slice at {location_text(placed.position)} that is not there")
            return self._recent.get(placed.position) or reader.lengths(commit.number, placed)

        def make_room() -> None:
            self._checkpoint_if_crowded(file, data_log << OFFSET_BITS | offset, record.epoch, record.sequence)

        try:
            apply_commit(self._index, commit.slices, commit.acks, data_log, lengths_of, make_room)
        finally:
            reader.close()
        self._transactions.end(commit.number)

    def _keep_survivors(self, by_data_log: int, record: Header, head: bytes, relieve: Callable[[], None]) -> None:
        """Of all that was written to a data log this is left; the acks of the rest may be deleted already.

        relieve: makes room in the index, as of before this record; it is replayed again after a crash then.
        """
        data_log, ranges = decode_survivors(record, head)
        header = self._headers.get(data_log)
        live = sum(run.messages for run in ranges)
        if header is not None and self._index.use(data_log).pending_messages > live:
            left: dict[int, Runs] = {}
            for lane, first, messages in ranges:
                if messages:
                    left.setdefault(lane, Runs()).add(first, first + messages - 1)
            self._index.use(by_data_log)
            file = self._disk.open_for_reading(data_log_name(data_log))
            try:
                walk = Walk(file, header, DATA_LOG_HEADER_BYTES)
                for offset, found, part in walk:
                    if found.kind == MESSAGE and not found.is_transactional:
                        self._remove_all_but(left, data_log, offset, decode_slice(found, part), by_data_log)
                    relieve()
                if walk.problem is not None:
                    raise JournalCorrupt(data_log, walk.end, walk.problem)
            finally:
                file.close()
            if self._index.use(data_log).pending_messages > live:
                self._remove_everywhere_but(left, data_log, by_data_log, relieve)
        self._index.supersede(data_log, by_data_log)

    def _remove_all_but(self, left: dict[int, Runs], data_log: int, offset: int, part: Slice, by_data_log: int) -> None:
        lane = self._index.lane(part.destination, part.priority)
        none = Runs()
        first, last = part.first_sequence, part.first_sequence + len(part.lengths) - 1
        for extent in lane.placed(data_log, offset, first, last):
            for sequence in range(extent.first_sequence, extent.first_sequence + extent.messages):
                if sequence not in left.get(lane.number, none):
                    lane.remove(sequence, sequence, by_data_log)

    def _remove_everywhere_but(
        self, left: dict[int, Runs], data_log: int, by_data_log: int, relieve: Callable[[], None]
    ) -> None:
        """What the records do not say, because a commit gave the sequences: look at all that is pending. O(index)."""
        none = Runs()
        for lane in list(self._index.lanes.values()):
            at = 0
            while (run := lane.pending_run(at, BLOCK_MESSAGES)) is not None:
                at = run[1] + 1
                for extent in list(lane.extents(*run)):
                    if extent.data_log == data_log:
                        for sequence in range(extent.first_sequence, extent.first_sequence + extent.messages):
                            if sequence not in left.get(lane.number, none):
                                lane.remove(sequence, sequence, by_data_log)
                relieve()

    def _see(self, destinations: Iterable[Destination]) -> None:
        for destination in destinations:
            self._destinations[destination.number] = destination
            self._subscriptions.see(destination)

    def _apply_state(self, state: State) -> None:
        self._see(state.destinations)
        for number, sequence in state.next_sequences.items():
            self._index.lane_numbered(number).skip_to(sequence)
        self._subscriptions.apply(state)
        self._transactions.agree_with(state)
        self._expected = set(state.data_logs)


class _Reader:
    """Reads heads of slices again, with one data log open at a time."""

    def __init__(self, disk: Disk, headers: Mapping[int, DataLogHeader | None]) -> None:
        self._disk = disk
        self._headers = headers
        self._data_log = 0
        self._file: File | None = None

    def lengths(self, number: int, placed: CommittedSlice) -> Sequence[int]:
        data_log = placed.position >> OFFSET_BITS
        header = self._headers[data_log]
        if header is None:
            raise RecordDamaged("the data log's header does not verify")
        if data_log != self._data_log or self._file is None:
            self.close()
            self._file, self._data_log = self._disk.open_for_reading(data_log_name(data_log)), data_log
        return read_lengths(self._file, header.salt, number, placed)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def find_store_id(disk: Disk) -> bytes:
    """Of the store, as the oldest data log with a header says; no bytes when there is none."""
    for data_log in sorted(filter(None, map(data_log_id, disk.list(JOURNAL)))):
        file = disk.open_for_reading(data_log_name(data_log))
        try:
            return decode_data_log_header(file.read(0, DATA_LOG_HEADER_BYTES)).store_id
        except RecordDamaged:
            continue
        except UnknownVersion as version:
            raise JournalCorrupt(data_log, 0, str(version)) from None
        finally:
            file.close()
    return b""
