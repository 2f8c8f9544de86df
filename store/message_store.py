"""The message store, which is the door of the store: add, acknowledge, read, checkpoint.

One lock, injected, guards the journal's appends and the index alike ("state lock" below). Methods say whether they want
it held. What was added survives a kill when add returns, and a power cut when `sync` has returned for its position. A
crash leaves what recovery/recovery.py describes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from .account import Account, OpenAccount, Unlimited
from .attestation import Attestation
from .checkpointer import Checkpointer, checkpoint_of_replay
from .cleanup import Cleanup
from .clock import Clock, SteadyClock
from .destination_records import DestinationRecords
from .destinations_file import DestinationsFile
from .disk.disk import Disk
from .disk.layout import INDEX_DIRECTORY, JOURNAL, STATE_DIRECTORY
from .errors import Closed, StoreFailed, StoreFull
from .format.destination_table import DestinationTable
from .format.identity import Identity
from .format.imports import Imports
from .format.places import Extent, Singles
from .format.record import (
    IDENTIFIED,
    STATE,
    TIMED,
)
from .format.state import (
    State,
    encode_state,
)
from .format.times import Times
from .index.block import BlockDamaged
from .index.deduplication import Deduplication
from .index.delivery_counts import DeliveryCountTable, runs_max
from .index.destination_lane import DestinationLane
from .index.due_times import DueTimes
from .index.fingerprint import BlockSurvey
from .index.fingerprints import Candidate, Question
from .index.index import Index
from .index.pending_lane import JournaledLane
from .index.subscriptions import Subscriptions
from .journal.journal import Journal
from .journal.marker import Marker, leave_marker, read_marker, write_marker
from .journal.reading import Region, plan_regions, read_headers, read_regions
from .journal.reserve import Reserve, limit_bytes
from .journal.sync_mark import SyncMark, read_sync_mark
from .late_log import LateLogger
from .locks import OwnedLock
from .maintenance.archive import Archive
from .maintenance.cleaner import Cleaner
from .maintenance.positions import Positions
from .maintenance.relocation import Relocation
from .maintenance.trimmer import Trimmer
from .message import id_prefix
from .metadata.store import MetadataDamaged, MetadataStore
from .numbering import LANE_SHIFT
from .parts import StoreParts
from .progress import OnProgress, tell_nobody
from .property_records import PropertyRecords
from .property_table import PropertyTable
from .recovery.opening import find_store_id, recover
from .recovery.quarantine import set_aside_message
from .recovery.recovery import Recovered, RecoveryReport
from .retention import Retention
from .return_records import ReturnRecords
from .stored_message import StoredMessage
from .subscription_records import SubscriptionRecords
from .transactions import Branches, Transactions

logger = LateLogger("forebay.store")

STORE_ID_BYTES: Final = 16


class StoreStatistics(NamedTuple):
    """How much a store holds, as plain numbers."""

    journal_bytes: int
    live_bytes: int
    data_logs: int
    index_bytes: int
    pending_messages: int
    unmarked_syncs: int
    """Syncs of the journal since it was opened that the sync mark does not tell of, because it could not be written."""


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """The sizes and choices with which a store is opened."""

    index_cache_bytes: int
    """Memory for the blocks of the index."""
    max_file_bytes: int
    """Size of a data log."""
    max_checkpoint_adds: int
    """Messages added between two checkpoints."""
    verifies_all: bool = False
    """Whether opening reads every byte of the journal and refuses damage."""
    store_limit: int | float | None = None
    """Bytes of the journal above which nothing is added; a float is the share of what the disk has for it at open."""
    accepts_loss: bool = False
    """Whether damage to what was durable is repaired and reported instead of refused."""


class MessageStore:
    """A store of messages. Construct it, then `open` it once."""

    def __init__(
        self,
        disk: Disk,
        metadata: Callable[[bytes], MetadataStore],
        options: StoreOptions,
        clock: Clock,
        *,
        state_lock: OwnedLock,
        account: Account,
        relocation_account: Account | None = None,
        attempts_account: Account | None = None,
        existing: OpenAccount | None = None,
        archive: Archive | None = None,
        duplicates: Deduplication | None = None,
        on_progress: OnProgress = tell_nobody,
        host_properties: PropertyTable | None = None,
    ) -> None:
        """Make a store that `open` is to open. An account of None: what it would pay for is not counted.

        metadata: makes the metadata store for a store id.
        account: pays for the index's blocks.
        relocation_account: pays for what relocation reads.
        attempts_account: pays for delivery counts.
        existing: pays for lanes, and for what subscriptions have acknowledged in part.
        archive: keeps the data logs that cleanup discards; None: they are deleted.
        duplicates: the ids that must not be stored again; None: there are none.
        on_progress: told how far the replay of the journal is while the store opens.
        host_properties: the table for what the host keeps; None: nobody counts it.
        """
        self._on_progress = on_progress
        self._disk = disk
        self._archive = archive
        self._make_metadata = metadata
        self._lock = state_lock
        self._relocation_account = relocation_account or Unlimited()
        self._options = options
        self._clock = clock
        self._max_checkpoint_adds = options.max_checkpoint_adds
        self.checkpoint_lock = OwnedLock()
        """The first of the three locks. Its holder knows that no checkpoint, cleanup or relocation is under way."""
        self._metadata: MetadataStore | None = None
        self._mark: SyncMark | None = None
        self._is_closed = self._is_ended = False
        self._is_serving = False
        self._is_wired = False
        """Whether there is a journal, which may have files open."""
        self._store_id = b""
        self.adds = 0
        self.next_checkpoint_adds = options.max_checkpoint_adds
        """Value of `adds` from which on a checkpoint is due."""
        self.steady = SteadyClock(clock.time_ms, clock.monotonic)
        attempts = DeliveryCountTable(attempts_account, runs_max(options.max_file_bytes))
        cache_bytes = options.index_cache_bytes
        self.index = Index(
            account, cache_bytes, self._read_block, self._doubt_index, attempts, self._read_fingerprints, existing
        )
        self._uses = self.index.uses
        self.subscriptions = Subscriptions(self.index, existing)
        self.duplicates = duplicates or Deduplication()
        self.host_properties = host_properties or PropertyTable()
        self.branches = Branches(self.duplicates, self.host_properties)
        self.timetable = DueTimes(self.index, self._timed_blocks)
        self.destination_table = DestinationTable()
        self.imports: Imports
        self.journal: Journal
        self.checkpointer: Checkpointer
        self.attestation: Attestation
        self.transactions: Transactions
        self.retention: Retention
        self.positions: Positions
        self.cleanup: Cleanup
        self.destination_records: DestinationRecords
        self.return_records: ReturnRecords
        self.subscription_records: SubscriptionRecords
        self.property_records: PropertyRecords
        self._parts: StoreParts
        self._destinations_file: DestinationsFile

    # ------------------------------------------------------------------ opening and closing

    def open(self) -> RecoveryReport:
        """Recover the directory and begin a data log of its own. Requires: the directory lock is held.

        Raises JournalCorrupt (nothing was changed), TooManyFiles or StoreFailed.
        """
        began = self._clock.monotonic()
        try:
            return self._open(began)
        except OSError as error:
            self._let_go()
            raise StoreFailed(f"the store could not be opened ({error.strerror or error})") from error
        except BaseException:
            self._let_go()
            raise

    def _let_go(self) -> None:
        """Close the files of a store that could not be opened: the next attempt may need their descriptors."""
        if self._is_wired:
            with self._lock:
                self.journal.close()
        if self._mark is not None:
            self._mark.close()
        if self._metadata is not None:
            self._metadata.close()

    def _open(self, began: float) -> RecoveryReport:
        is_new, marker = self._identify_directory()
        metadata = self._metadata = self._make_metadata(self._store_id)
        found = self._recover(metadata, marker)
        self._make_journal(found)
        self._wire(began, found.replay_position)
        self._begin_epoch(found)
        self._is_serving = True
        self.subscriptions.put_away_all()
        self.index.put_away_all()
        self.checkpoint()
        report = found.report(
            is_new or (marker is not None and marker.is_clean),
            not is_new and metadata.is_persistent,
            len(self.branches.prepared),
            self._clock.monotonic() - began,
        )
        logger.info("opened: %s", report, event="opened")
        return report

    def _identify_directory(self) -> tuple[bool, Marker | None]:
        """Make the directories, and find out whose they are; return whether they are new, and the marker."""
        for directory in (JOURNAL, INDEX_DIRECTORY, STATE_DIRECTORY):
            self._disk.make_directory(directory)
        is_new = not self._disk.list(JOURNAL) and not self._disk.list(STATE_DIRECTORY)
        Reserve(self._disk, 0).clear()
        marker = read_marker(self._disk)
        found_id = marker.store_id if marker is not None else find_store_id(self._disk)
        self._store_id = found_id or self._clock.random_bytes(STORE_ID_BYTES)
        if self._archive is not None:
            self._archive.prepare(self._store_id)
        return is_new, marker

    def _recover(self, metadata: MetadataStore, marker: Marker | None) -> Recovered:
        """Bring index and tables up to the journal."""
        self._parts = self._gathered(metadata)
        found = recover(
            self._parts,
            marker,
            self._store_id,
            partial(checkpoint_of_replay, self._parts),
            synced=read_sync_mark(self._disk, marker),
            verifies_all=self._options.verifies_all,
            repair_salt=self._random_salt if self._options.accepts_loss else None,
            on_progress=self._on_progress,
        )
        self.branches.forget_open()
        self.host_properties.charge()
        self.index.keep_put_off(found.destinations.keys() | self.subscriptions.numbers())
        self.steady.advance_to(self.index.latest_ms)
        self.destination_table, self.imports = found.destinations, found.imports
        return found

    def _make_journal(self, found: Recovered) -> None:
        self.journal = Journal(
            self._disk,
            self._lock,
            self._store_id,
            max_file_bytes=self._options.max_file_bytes,
            clock_ms=self._clock.time_ms,
            monotonic=self._clock.monotonic,
            random_salt=self._random_salt,
            first_record=self._first_record,
            has_reserve=True,
            store_limit_bytes=limit_bytes(self._options.store_limit, self._disk, sum(found.sizes.values())),
        )

    def _begin_epoch(self, found: Recovered) -> None:
        """Write that a new epoch has begun, and its first data log."""
        self.journal.sizes.update(found.sizes)
        # Before the first record of this epoch: a crash from here on must not find an epoch that was used.
        epoch = found.epoch + 1
        self._mark = SyncMark(self._disk, self._store_id, epoch)
        write_marker(self._disk, Marker(self._store_id, epoch, found.end, False))
        self._destinations_file.remove()
        with self._lock:
            self.journal.start(found.next_data_log, found.next_sequence, epoch, self._mark.note)
        for data_log in found.sizes:
            self.index.use(data_log)
        self.journal.sync()
        if found.leftovers:
            self.cleanup.cleaner.discard(list(found.leftovers))

    def _gathered(self, metadata: MetadataStore) -> StoreParts:
        """Return what recovery brings up to the journal."""
        return StoreParts(
            self._disk,
            metadata,
            self.index,
            self.subscriptions,
            self.branches,
            self.duplicates,
            self.host_properties,
        )

    def _wire(self, now: float, replay_position: int) -> None:
        """Make the parts that stand on journal and index. replay_position: where a replay would begin now."""
        self._is_wired = True
        self.checkpointer = Checkpointer(
            self._parts,
            self.journal,
            self._clock,
            lock=self.checkpoint_lock,
            state_lock=self._lock,
            replay_position=replay_position,
            root_state=self._root_state,
            give_up_readers=self.give_up_readers,
        )
        self.attestation = Attestation(self.journal, self.checkpointer, self._lock)
        self.transactions = Transactions(
            self.branches,
            self.journal,
            self.index,
            self.steady.now_ms,
            self.duplicates,
            self.host_properties,
            self.subscriptions.lane_numbered,
        )
        self.retention = Retention(
            self._parts, self.journal, self.checkpointer, self.destination_table, self._clock, self._lock
        )
        self.positions = Positions(self.index.cache, self._lock, self.journal.reader)
        self.cleanup = self._made_cleanup(now)
        rules = self.cleanup.trimmer.rules
        self.destination_records = DestinationRecords(self._parts, self.journal, self.destination_table, rules)
        self.return_records = ReturnRecords(self.journal, self.index)
        self.subscription_records = SubscriptionRecords(self.journal, self.subscriptions, rules)
        self.property_records = PropertyRecords(self.journal, self.host_properties, self.steady.now_ms)
        self._destinations_file = DestinationsFile(
            self._disk,
            self.index,
            self.subscriptions,
            self.destination_table,
            self.plan,
            state_lock=self._lock,
            clock=self._clock,
        )

    def _made_cleanup(self, now: float) -> Cleanup:
        """Return what gives disk space back. now: on the monotonic clock."""
        cleaner = Cleaner(
            self.index,
            self.journal,
            self.branches,
            self._archive,
            checkpoint_lock=self.checkpoint_lock,
            state_lock=self._lock,
            replay_position=lambda: self.checkpointer.replay_position,
            is_full=lambda: self.is_full,
            retention_reasons=self.retention.reasons,
            leases=self.retention.leases,
        )
        relocation = Relocation(
            self.index,
            self.journal,
            self.branches,
            self.transactions,
            checkpoint_lock=self.checkpoint_lock,
            state_lock=self._lock,
            account=self._relocation_account,
            data_log_bytes=self._options.max_file_bytes,
            sealed=cleaner.sealed,
            now=now,
        )
        trimmer = Trimmer(
            self.subscriptions, self.positions, self._lock, self.acknowledge, lambda: self.journal.data_log
        )
        return Cleanup(cleaner, relocation, trimmer, self.journal, self.subscriptions, self._clock, self.checkpoint)

    def _random_salt(self) -> int:
        return int.from_bytes(self._clock.random_bytes(4), "little")

    def close(self) -> None:
        """Write a checkpoint, seal the newest data log, and leave the marker of a clean shutdown. Twice is once.

        Where an earlier one was interrupted the files are closed, and the next open does the rest.
        """
        if self._is_ended:
            return
        is_first, self._is_closed = not self._is_closed, True
        try:
            if is_first and self.journal.failure is None:
                with self._lock:
                    if not self.is_full:  # on a full disk the next open needs what is left of it
                        self.journal.reserve.close()
                self.journal.sync_directory()
                self.checkpoint(is_closing=True)
                self._write_last_destinations()
                assert self._mark is not None
                self._mark.sync()
                self._close_files()  # the marker may find no other descriptor than theirs
                leave_marker(self._disk, Marker(self._store_id, self.journal.epoch, self.checkpointer.end, True))
        except OSError as error:
            raise StoreFailed(f"the store could not be closed cleanly ({error.strerror})") from error
        finally:
            self._close_files()
            self._is_ended = True

    def _close_files(self) -> None:
        """Close journal, sync mark and index. Twice is once."""
        if self._lock.failure is None:
            with self._lock:
                self.journal.close()
        else:
            self.journal.close()  # nobody is let in any more
        if self._mark is not None:
            self._mark.close()
        if self._metadata is not None:
            self._metadata.close()

    # ------------------------------------------------------------------ destinations

    def _state(self, data_logs: Iterable[int]) -> State:
        state = State([], dict(self.index.next_sequences()), sorted(data_logs), self.branches.prepared)
        state.open_transactions = [branch.number for branch in self.branches.open]
        return self._parts.restated(state, self.destination_table, self.imports)

    def _first_record(self) -> tuple[int, int, bytes]:
        self.index.use(self.journal.data_log)
        existing = (set(self.journal.sizes) | {self.journal.data_log}) - self.cleanup.cleaner.dropped
        return STATE, 0, encode_state(self._state(existing))

    # ------------------------------------------------------------------ messages

    def add(self, lane: DestinationLane, timestamp: int, properties: bytes, body: bytes, flags: int = 0) -> int:
        """Append one message; return its sequence. Requires: the lock. Raises StoreFull or StoreFailed.

        flags: of its record.
        """
        if lane.is_unread:
            return self._pass_over(lane, 1, len(properties) + len(body))
        journal, size = self.journal, len(properties) + len(body)
        try:
            offset = journal.append_one(
                lane.priority | flags, lane.destination_number, lane.next_sequence, timestamp, properties, body, size
            )
            data_log = journal.data_log
            self.adds += 1
            return lane.add_one(data_log, offset, size, self._uses[data_log])
        except BaseException as error:
            self.journal.break_by(error)
            raise

    def add_expiring(
        self, lane: DestinationLane, timestamp: int, properties: bytes, body: bytes, expires_at: int
    ) -> int:
        """Add one message whose properties say when it expires."""
        try:
            sequence = self.add(lane, timestamp, properties, body, TIMED)
            if not lane.is_unread:
                lane.put_expiry(sequence, expires_at)
                if timestamp > self.index.latest_ms:
                    self.index.latest_ms = timestamp
            return sequence
        except BaseException as error:
            self.journal.break_by(error)
            raise

    def append_slice(
        self,
        lane: DestinationLane,
        timestamp: int,
        contents: list[tuple[bytes, bytes]],
        times: Sequence[Times] = (),
        identities: Sequence[Identity] = (),
        *,
        flags: int = 0,
    ) -> int:
        """Append (properties, body) pairs as one record, all or nothing; return the first sequence.

        times: of each message, as its properties say, where some message has any. identities: of those messages that
        have an id of their own; message and id are in one record, so that no crash parts them. flags: of the record.

        Requires: the lock; at most lane.slice_room and SLICE_MESSAGES_MAX of them. Raises StoreFull (nothing is stored)
        or StoreFailed.
        """
        if lane.is_unread:
            content_bytes = sum(len(properties) + len(body) for properties, body in contents)
            return self._pass_over(lane, len(contents), content_bytes, identities)
        journal = self.journal
        flags |= lane.priority | (TIMED if times else 0) | (IDENTIFIED if identities else 0)
        try:
            offset, lengths = journal.append_slice(
                flags, lane.destination_number, lane.next_sequence, timestamp, contents
            )
            data_log = journal.data_log
            self.adds += len(lengths)
            first = lane.add_slice(data_log, offset, lengths, self._uses[data_log])
            if times:
                lane.put_times(first, times)
                self.index.latest_ms = max(self.index.latest_ms, timestamp)
            for identity in identities:
                self.duplicates.note(identity)
            return first
        except BaseException as error:
            self.journal.break_by(error)
            raise

    def _pass_over(
        self, lane: DestinationLane, messages: int, content_bytes: int, identities: Sequence[Identity] = ()
    ) -> int:
        """Give numbers to messages that no subscription gets, instead of storing them; return the first.

        One record of 48 bytes says so, so that no id is ever given twice.
        """
        first = lane.next_sequence
        with self.journal.whole:
            self.journal.append_ack(lane.priority, lane.destination_number, first, messages)
            lane.pass_over(messages, content_bytes)
        for identity in identities:
            self.duplicates.note(identity)
        return first

    def acknowledge(self, lane: JournaledLane, first: int, last: int) -> int:
        """Acknowledge a run with one record; return how many were pending. Requires: the lock."""
        journal = self.journal
        try:
            journal.append_ack(lane.priority, lane.destination_number, first, last - first + 1)
            return lane.remove(first, last, journal.data_log)
        except BaseException as error:
            self.journal.break_by(error)
            raise

    def acknowledge_one(self, lane: JournaledLane, sequence: int) -> int:
        """Acknowledge one message, as `acknowledge` does: the path of every single ack. Requires: the lock."""
        journal = self.journal
        try:
            journal.append_ack(lane.priority, lane.destination_number, sequence, 1)
            return lane.remove_one(sequence, journal.data_log)
        except BaseException as error:
            self.journal.break_by(error)
            raise

    # ------------------------------------------------------------------ reading

    def plan(self, lane: JournaledLane, runs: Sequence[tuple[int, int]]) -> list[Region]:
        """Plan to read these pending sequences, each run inside one block. Requires: the lock. Reads no message."""
        extents: list[Extent | Singles] = []
        for first, last in runs:
            extents += lane.extents(first, last)
        return plan_regions(extents, self.journal.reader)

    def read(self, regions: Sequence[Region]) -> tuple[list[StoredMessage], list[tuple[int, str]]]:
        """Return (messages in order, [(sequence, problem)] of those that can't be read). Requires: no lock."""
        return read_regions(regions)

    def read_headers(
        self, regions: Sequence[Region], pay: Callable[[int], None]
    ) -> tuple[list[StoredMessage], list[tuple[int, str]]]:
        """Read the one message of a region as `read` does, in pieces and with an empty body. Requires: no lock.

        pay: see journal.reading.read_headers.
        """
        (region,) = regions
        return read_headers(region, pay)

    def quarantine(self, lane: JournaledLane, sequence: int) -> bool:
        """Copy a pending message that does not verify to the quarantine, and acknowledge it. Requires: no lock.

        False: it is settled already, or can be read after all; or the disk failed to read it, which may pass; or the
        quarantine is full. Then nothing was changed.
        """
        with self._lock, self.journal.whole:
            if not lane.is_pending(sequence):
                return False
            (region,) = self.plan(lane, [(sequence, sequence)])
        if not set_aside_message(self._disk, region):
            return False
        with self._lock, self.journal.whole:
            return lane.is_pending(sequence) and bool(self.acknowledge_one(lane, sequence))

    def give_up_readers(self) -> int:
        """Let go of the data logs that are open only to be read; return how many. In any thread."""
        return self.journal.give_up_readers() if self._is_serving else 0

    # ------------------------------------------------------------------ checkpoint and cleanup

    @property
    def is_checkpoint_urgent(self) -> bool:
        """Whether a checkpoint must come before more work, so that replay and memory stay bounded."""
        return self.adds >= self.next_checkpoint_adds + self._max_checkpoint_adds or self.index.is_crowded

    @property
    def is_checkpoint_due(self) -> bool:
        """Whether enough has changed for a checkpoint, whatever its interval says."""
        return self.adds >= self.next_checkpoint_adds or self.index.is_filling

    @property
    def is_index_crowded(self) -> bool:
        """Whether the index holds as many changed blocks as it may: whoever changes more of them checkpoints first."""
        return self.index.is_crowded

    @property
    def position(self) -> int:
        """Where the journal ends: what was written so far is durable once a sync has reached it. Requires: the lock."""
        return self.journal.end

    @property
    def next_sequence(self) -> int:
        """The number of the journal's next record. Requires: the lock."""
        return self.journal.next_sequence

    @property
    def sync_lock(self) -> OwnedLock:
        """The second of the three locks. Its holder knows that no sync is under way."""
        return self.journal.sync_lock

    def fail(self, reason: str) -> None:
        """Let nothing be written until the store is opened again."""
        self.journal.fail(reason)

    @property
    def failure(self) -> StoreFailed | None:
        """Why nothing can be written until the store is opened again; None: nothing has failed."""
        return self.journal.failure

    @property
    def is_full(self) -> bool:
        """Whether sends are refused: the disk has no space left but the reserve, or the last one met a limit."""
        return self.journal.is_full or self.journal.is_refusing

    def next_candidate(
        self, lane: DestinationLane, names: frozenset[str], sequence: int, may_match: Question
    ) -> Candidate | None:
        """Return where the next message may be that a selector matches: see Fingerprints. Requires: the lock."""
        return self.index.fingerprints.next_candidate(lane, names, sequence, may_match)

    def note_survey(self, lane: DestinationLane, survey: BlockSurvey) -> None:
        """Take in what the headers of examined messages are. Requires: the lock."""
        self.index.fingerprints.examined(lane, survey)

    def lane(self, destination: int, priority: int) -> DestinationLane:
        """Return the lane of a queue or topic, made if there is none yet. Requires: the lock."""
        return self.index.lane(destination, priority)

    def destinations_in_use(self) -> set[int]:
        """Return the numbers of queues and topics that have lanes, or that prepared transactions have sent to.

        Requires: the lock. O(lanes + what was sent in prepared transactions).
        """
        used = {lane.destination_number for lane in self.index.lanes.values()}
        return used | {placed.lane_number >> LANE_SHIFT for branch in self.branches.prepared for placed in branch}

    def id_prefix(self, destination: int, priority: int) -> str:
        """Return what ids generated in this lane begin with."""
        return id_prefix(self._store_id, destination, priority)

    def _read_block(self, lane_number: int, block: int) -> bytes:
        assert self._metadata is not None
        try:
            return self._metadata.read_block(lane_number, block)
        except MetadataDamaged as damage:
            self._doubt_index(damage)
            raise

    def _read_fingerprints(
        self, lane_number: int, first: int, last: int, names: Set[str]
    ) -> list[tuple[int, str, bytes]]:
        assert self._metadata is not None
        try:
            return self._metadata.fingerprints(lane_number, first, last, names)
        except MetadataDamaged as damage:
            self._doubt_index(damage)
            raise

    def _timed_blocks(
        self, kind: int, lane_number: int, behind: tuple[int, int], until_ms: int, most: int
    ) -> list[tuple[int, int]]:
        assert self._metadata is not None
        try:
            return self._metadata.timed(kind, lane_number, behind, until_ms, most)
        except MetadataDamaged as damage:
            self._doubt_index(damage)
            raise

    def _doubt_index(self, damage: MetadataDamaged | BlockDamaged) -> None:
        """Raise StoreFailed for damage where the index is in use; while opening, recovery rebuilds it at once."""
        if self._is_serving:
            raise self.checkpointer.distrust(damage) from damage

    def checkpoint(self, *, is_closing: bool = False) -> bool:
        """Bring the index on disk up to now; return False where it is postponed because the disk is full.

        Requires: no lock.
        """
        adds = self.adds  # whatever comes from here on may have to wait for the next one
        is_stored = self.checkpointer.checkpoint(is_closing=is_closing)
        self._is_checkpointed_at(adds)
        return is_stored

    def _is_checkpointed_at(self, adds: int) -> None:
        """Count from here on what is added up to the next checkpoint."""
        self.next_checkpoint_adds = max(self.next_checkpoint_adds, adds + self._max_checkpoint_adds)

    def write_destinations(self) -> None:
        """Write for people what there is, if a checkpoint has brought something new and it is time. No lock."""
        with self.checkpoint_lock:
            if not self.is_full:
                self._destinations_file.refresh(self.checkpointer.end)

    def _write_last_destinations(self) -> None:
        with self.checkpoint_lock:
            if self.is_full:  # the next open needs what is left of the disk
                self._destinations_file.remove()
            else:
                self._destinations_file.write(is_closed=True)

    def require_index_room(self, blocks: int) -> None:
        """Make sure that the index can take so many more blocks. StoreFull: a checkpoint found no room. No lock."""
        if not self.index.has_room_for(blocks) and not self.checkpoint():
            raise StoreFull(1, 0, "the room of the index, for a checkpoint found none")

    def make_index_room(self, position: int, next_sequence: int) -> None:
        """Checkpoint in the middle of a record that begins at position. Requires: all three locks."""
        self.checkpointer.make_room(position, next_sequence)
        self._is_checkpointed_at(self.adds)

    def _root_state(self, next_sequence: int) -> State:
        data_logs = sorted(set(self.journal.sizes) - self.cleanup.cleaner.dropped)
        branches = [*self.branches.prepared, *self.branches.open]
        state = State([], {}, data_logs, branches, next_log_sequence=next_sequence)
        return self._parts.restated(state, self.destination_table, self.imports)

    def sizes(self) -> dict[int, int]:
        """Return the bytes of each data log that exists, the newest up to its newest record. Requires: no lock."""
        with self._lock:
            return self.journal.sizes | {self.journal.data_log: self.journal.offset}

    def live_bytes_by_data_log(self) -> list[tuple[int, int, int]]:
        """Return id, bytes and bytes of pending messages of each data log, the oldest first.

        Requires: the lock. O(data logs), no disk.
        """
        sizes = self.journal.sizes | {self.journal.data_log: self.journal.offset}
        uses = self.index.uses
        return [
            (number, sizes[number], uses[number].pending_bytes if number in uses else 0) for number in sorted(sizes)
        ]

    def statistics(self) -> StoreStatistics:
        """Return how much the store holds. Requires: the lock. O(lanes + data logs), no disk."""
        live_bytes = pending_messages = 0
        for lane in self.index.lanes.values():
            live_bytes += lane.pending_bytes
            pending_messages += lane.pending_messages
        return StoreStatistics(
            journal_bytes=self.journal.journal_bytes,
            live_bytes=live_bytes,
            data_logs=len(self.journal.sizes),
            index_bytes=self.index.held_bytes,
            pending_messages=pending_messages,
            unmarked_syncs=self._mark.failures if self._mark is not None else 0,
        )

    def raise_if_closed(self) -> None:
        if self._is_closed:
            raise Closed("the store")
