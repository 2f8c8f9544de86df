"""Recovery: from what a crash left to an index that agrees with the journal.

The index is loaded from the last checkpoint and the journal replayed from
its position; where the index is missing or in doubt, the whole journal is
replayed, with checkpoints on the way so that memory stays bounded. The place
where the newest data log stops making sense is a torn tail, which is cut and
counted, unless some intact record or checkpoint knew it to be durable: that
is corruption, and opening is refused with the place. Nothing is deleted:
what is cut off as a whole file goes to quarantine. Recovering twice gives
what recovering once gives.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from .block import BlockDamaged
from .data_log import (
    DATA_LOG_HEADER_BYTES,
    DataLogHeader,
    UnknownVersion,
    Walk,
    attested_behind,
    decode_data_log_header,
    used_bytes,
)
from .disk import Disk, File
from .errors import JournalCorrupt
from .files import JOURNAL, QUARANTINE, data_log_id, data_log_name
from .index import Index
from .journal import OFFSET_BITS, OFFSET_MASK
from .mark import Mark
from .metadata_store import MetadataDamaged, MetadataStore
from .record import (
    ACK,
    DESTINATION,
    DROP,
    HEADER_BYTES,
    MESSAGE,
    STATE,
    Header,
    RecordDamaged,
    decode_ranges,
    decode_slice,
)
from .state import Destination, State, decode_destination, decode_root, decode_state

logger = logging.getLogger("forebay.store.recovery")


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
    seconds: float


@dataclass(slots=True)
class Recovered:
    """Where the journal goes on, and what was found."""

    destinations: dict[int, Destination]
    next_data_log: int
    next_sequence: int
    epoch: int
    sizes: dict[int, int]
    replayed_records: int = 0
    truncated_bytes: int = 0
    quarantined: int = 0
    index_rebuilt: bool = False
    leftovers: tuple[int, ...] = ()
    """Data logs that were dropped but not yet unlinked."""


class Recovery:
    """One recovery of one directory; `run` does it. Nothing else uses the disk meanwhile."""

    def __init__(
        self,
        disk: Disk,
        index: Index,
        metadata: MetadataStore,
        mark: Mark | None,
        store_id: bytes,
        write_checkpoint: Callable[[int, int, dict[int, Destination], list[int]], None],
    ) -> None:
        """write_checkpoint(position, epoch, destinations, data logs) stores the index as it is now."""
        self._disk = disk
        self._index = index
        self._metadata = metadata
        self._mark = mark
        self._store_id = store_id
        self._write_checkpoint = write_checkpoint
        self._destinations: dict[int, Destination] = {}
        self._expected: set[int] = set()
        self._files: dict[int, tuple[File, DataLogHeader]] = {}
        self._durable = mark.position if mark else 0
        self._result = Recovered({}, 1, 0, mark.epoch if mark else 0, {})

    def run(self) -> Recovered:
        result = self._result
        ids = self._list()
        start = self._load_index(ids)
        if start is not None:
            try:
                self._replay(ids, start)
            except MetadataDamaged as damage:
                logger.warning("the index is rebuilt from the journal: %s", damage)
                start = None
        if start is None or not self._pending_data_logs() <= self._expected & set(result.sizes):
            start = self._rebuild(ids)
        self._make_durable(start)
        missing = sorted(self._expected - set(result.sizes))
        if missing:
            raise JournalCorrupt(missing[0], 0, f"the data log is missing, one of {len(missing)}")
        # Dropped, but the crash came before the name was removed.
        newest = max(self._expected, default=0)
        unneeded = {data_log for data_log in result.sizes if data_log < newest} - self._expected
        result.leftovers = tuple(sorted(unneeded - self._pending_data_logs()))
        result.destinations = self._destinations
        return result

    def _rebuild(self, ids: list[int]) -> int:
        """Replay the whole journal, but for data logs that were dropped: the acks of their messages may be gone."""
        self._result.index_rebuilt = bool(ids)
        self._result.replayed_records = 0
        self._destinations = {}
        self._index.reset()
        self._metadata.clear()
        ids = [data_log for data_log in ids if data_log in self._files]
        existing = self._find_existing(ids)
        remaining = [data_log for data_log in ids if data_log in existing]
        start = remaining[0] << OFFSET_BITS | DATA_LOG_HEADER_BYTES if remaining else 0
        self._replay(remaining, start)
        for data_log in ids:
            if data_log not in existing:
                self._result.sizes[data_log] = self._files[data_log][0].size()
        return start

    def _find_existing(self, ids: list[int]) -> set[int]:
        """Which data logs the newest state record and the drop records behind it leave. Reads one data log's heads."""
        for data_log in reversed(ids):
            existing: set[int] | None = None
            for _, record, head in Walk(*self._files[data_log], DATA_LOG_HEADER_BYTES):
                if record.kind == STATE:
                    newer = {later for later in ids if later >= data_log}
                    existing = set(decode_state(head[HEADER_BYTES:]).data_logs) | newer
                elif record.kind == DROP and existing is not None:
                    existing -= set(decode_state(head[HEADER_BYTES:]).data_logs)
            if existing is not None:
                return existing
        return set(ids)

    def _pending_data_logs(self) -> set[int]:
        return {data_log for data_log, use in self._index.uses.items() if use.pending_messages}

    def _list(self) -> list[int]:
        ids = sorted(filter(None, map(data_log_id, self._disk.list(JOURNAL))))
        self._result.next_data_log = max(ids, default=0) + 1
        for data_log in list(ids):
            file = self._disk.open(data_log_name(data_log))
            try:
                header = decode_data_log_header(file.read(0, DATA_LOG_HEADER_BYTES))
                if header.data_log != data_log or header.store_id != self._store_id:
                    raise RecordDamaged("the data log belongs to another place or store")
            except UnknownVersion as version:
                raise JournalCorrupt(data_log, 0, str(version)) from None
            except RecordDamaged as damage:
                if data_log != ids[-1] or self._durable >= data_log << OFFSET_BITS | DATA_LOG_HEADER_BYTES:
                    raise JournalCorrupt(data_log, 0, str(damage)) from None
                self._result.truncated_bytes += len(file.read(0, DATA_LOG_HEADER_BYTES).rstrip(b"\0"))
                file.close()
                self._set_aside(data_log)
                ids.remove(data_log)
                continue
            self._files[data_log] = (file, header)
            self._result.epoch = max(self._result.epoch, header.epoch)
        return ids

    def _load_index(self, ids: list[int]) -> int | None:
        """Take over the last checkpoint; the position to replay from, or None for all."""
        if self._mark is None or not ids:
            return None
        try:
            snapshot = self._metadata.load()
            if snapshot is None:
                return None
            state, lanes, uses = decode_root(snapshot.root)
            data_log, offset = snapshot.position >> OFFSET_BITS, snapshot.position & OFFSET_MASK
            if data_log not in self._files:
                return None
            if offset > self._files[data_log][0].size():
                raise JournalCorrupt(data_log, offset, "the data log ends before a place that was durable")
            self._index.restore(lanes, uses, snapshot.blocks)
        except (MetadataDamaged, RecordDamaged, BlockDamaged) as damage:
            logger.warning("the index is rebuilt from the journal: %s", damage)
            return None
        self._durable = max(self._durable, snapshot.position)
        self._result.epoch = max(self._result.epoch, snapshot.epoch)
        self._apply_state(state)
        return snapshot.position

    def _replay(self, ids: list[int], start: int) -> None:
        previous: Walk | None = None
        previous_id = 0
        for at, data_log in enumerate(ids):
            file, header = self._files[data_log]
            self._result.sizes[data_log] = file.size()
            if data_log < start >> OFFSET_BITS:
                continue
            is_start = data_log == start >> OFFSET_BITS
            offset = start & OFFSET_MASK if is_start else DATA_LOG_HEADER_BYTES
            follows = previous is not None and previous_id == data_log - 1
            if follows and previous is not None and previous.next_sequence != header.first_sequence:
                self._cut(ids[at - 1 :], previous, "the data log ends before the next one begins")
                return
            walk = self._walk(file, header, offset)
            if walk.problem is not None or not walk.is_sealed:
                if self._is_cut(ids[at:], walk, file, header):
                    return
            previous, previous_id = walk, data_log

    def _walk(self, file: File, header: DataLogHeader, offset: int) -> Walk:
        is_whole = offset == DATA_LOG_HEADER_BYTES
        verify_from = max(offset, self._durable & OFFSET_MASK) if header.data_log == self._durable >> OFFSET_BITS else 0
        if header.data_log < self._durable >> OFFSET_BITS:
            verify_from = OFFSET_MASK
        walk = Walk(
            file,
            header,
            offset,
            next_sequence=header.first_sequence if is_whole else None,
            verify_from=verify_from,
        )
        for place, record, head in walk:
            try:
                self._apply(header.data_log, place, record, head)
            except RecordDamaged as damage:
                raise JournalCorrupt(header.data_log, place, str(damage)) from None
            self._result.replayed_records += 1
            if self._index.is_crowded:
                file.sync()
                position = header.data_log << OFFSET_BITS | walk.end
                self._write_checkpoint(position, walk.epoch, self._destinations, sorted(self._result.sizes))
        self._durable = max(self._durable, walk.durable)
        self._result.epoch = max(self._result.epoch, walk.epoch)
        self._result.next_sequence = max(self._result.next_sequence, walk.next_sequence or 0)
        return walk

    def _is_cut(self, rest: list[int], walk: Walk, file: File, header: DataLogHeader) -> bool:
        """The walk stopped before a seal. True: this was the end of the journal, and it was cut here."""
        data_log = header.data_log
        if walk.problem is None and walk.end >= file.size() and len(rest) > 1:
            return False  # an earlier recovery ended this data log here; the next one's header says whether it is whole
        for other in rest:
            other_file, other_header = self._files[other]
            begin = walk.end if other == data_log else DATA_LOG_HEADER_BYTES
            self._durable = max(self._durable, attested_behind(other_file, other_header, begin))
        if data_log << OFFSET_BITS | walk.end < self._durable:
            problem = walk.problem or "zeros where records were"
            raise JournalCorrupt(data_log, walk.end, f"{problem}, and this place was durable")
        self._cut(rest, walk, walk.problem or "")
        return True

    def _cut(self, rest: list[int], walk: Walk, problem: str) -> None:
        """rest[0] ends at walk.end; what comes behind was never durable."""
        data_log = rest[0]
        file, header = self._files[data_log]
        if data_log << OFFSET_BITS | walk.end < self._durable:
            raise JournalCorrupt(data_log, walk.end, f"{problem}, and this place was durable")
        torn_bytes = used_bytes(file, walk.end)
        if torn_bytes:
            logger.warning("data-%d.log: %d torn bytes cut at offset %d (%s)", data_log, torn_bytes, walk.end, problem)
        self._result.truncated_bytes += torn_bytes
        file.truncate(walk.end)
        self._result.sizes[data_log] = walk.end
        for later in rest[1:]:
            later_file, _ = self._files.pop(later)
            self._result.truncated_bytes += used_bytes(later_file, 0)
            later_file.close()
            self._set_aside(later)
            self._result.sizes.pop(later, None)
            self._expected.discard(later)

    def _set_aside(self, data_log: int) -> None:
        self._disk.make_directory(QUARANTINE)
        self._disk.rename(data_log_name(data_log), f"{QUARANTINE}/data-{data_log}.log")
        self._disk.sync_directory(QUARANTINE)
        self._disk.sync_directory(JOURNAL)
        self._result.quarantined += 1

    def _make_durable(self, start: int) -> None:
        """What is served from now on must not vanish in a power cut that follows the kill."""
        for data_log, (file, _) in self._files.items():
            if data_log >= start >> OFFSET_BITS:
                file.sync()
            file.close()
        self._disk.sync_directory(JOURNAL)

    def _apply(self, data_log: int, offset: int, record: Header, head: bytes) -> None:
        index = self._index
        if record.kind == MESSAGE:
            part = decode_slice(record, head)
            lane = index.lane(part.destination, part.priority)
            if part.first_sequence >= lane.next_sequence:
                lane.skip_to(part.first_sequence)
                if record.entries > lane.slice_room:
                    raise RecordDamaged("a slice crosses a block")
                lane.add_slice(data_log, offset, list(part.lengths), index.use(data_log))
        elif record.kind == ACK:
            destination, ranges = decode_ranges(record, head)
            index.use(data_log)
            lane = index.lane(destination, record.priority)
            for first, messages in ranges:
                lane.remove(first, first + messages - 1, data_log)
        elif record.kind == STATE:
            self._apply_state(decode_state(head[HEADER_BYTES:]))
            self._expected.add(data_log)
        elif record.kind == DESTINATION:
            destination_found = decode_destination(head[HEADER_BYTES:])
            self._destinations[destination_found.number] = destination_found
        elif record.kind == DROP:
            self._expected -= set(decode_state(head[HEADER_BYTES:]).data_logs)

    def _apply_state(self, state: State) -> None:
        for destination in state.destinations:
            self._destinations[destination.number] = destination
        for number, sequence in state.next_sequences.items():
            self._index.lane_numbered(number).skip_to(sequence)
        self._expected = set(state.data_logs)
