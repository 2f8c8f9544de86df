"""The door of the store floor: add, remove, read, checkpoint, clean up.

One lock, injected, guards the journal's appends and the index alike ("state
lock" below). Methods say whether they want it held. What was added survives
a kill when add returns, and a power cut when `sync` has returned for its
position. A crash leaves what recovery.py describes.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from .account import Account
from .block import Extent, Singles
from .cleanup import removable
from .data_log import DATA_LOG_HEADER_BYTES, UnknownVersion, decode_data_log_header
from .disk import Disk
from .errors import Closed, ForebayError, JournalCorrupt, StoreFailed, StoreFull
from .files import INDEX_DIRECTORY, JOURNAL, STATE_DIRECTORY, damage_name, data_log_id, data_log_name
from .index import Index, Lane
from .journal import OFFSET_BITS, Journal
from .mark import Mark, read_mark, write_mark
from .message import id_prefix
from .metadata_store import MetadataDamaged, MetadataFull, MetadataStore
from .properties import decode_properties
from .quarantine import set_aside
from .reading import Region, StoredMessage, plan_regions, read_regions
from .record import ATTEST, DESTINATION, DROP, STATE, RecordDamaged
from .recovery import Recovered, Recovery, RecoveryReport
from .repair import Repair
from .reserve import NO_SPACE, Reserve
from .state import QUEUE, Destination, LaneCounts, State, UseCounts, encode_destination, encode_root, encode_state

logger = logging.getLogger("forebay.store")
cleanup_logger = logging.getLogger("forebay.store.cleanup")

STORE_ID_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class CleanupReport:
    """What a cleanup did. `remaining`: ids of the data logs that are left, the newest included."""

    deleted: tuple[int, ...]
    remaining: tuple[int, ...]


class StoreStatistics(NamedTuple):
    journal_bytes: int
    live_bytes: int
    data_logs: int
    index_bytes: int
    pending_messages: int


class MessageStore:
    """See the module. Construct it, then `open` it once."""

    def __init__(
        self,
        disk: Disk,
        metadata: Callable[[bytes], MetadataStore],
        *,
        state_lock: threading.Lock,
        account: Account,
        index_cache_bytes: int,
        max_file_bytes: int,
        max_checkpoint_adds: int,
        clock_ms: Callable[[], int],
        monotonic: Callable[[], float],
        random_bytes: Callable[[int], bytes],
        store_limit: int | float | None = None,
        accepts_loss: bool = False,
    ) -> None:
        """metadata: makes the metadata store for a store id. account: pays for the index's blocks.

        store_limit: bytes of the journal above which nothing is added; a float is the share of what the disk has
        for the journal at open. accepts_loss: damage to what was durable is repaired and reported, not refused.
        """
        self._disk = disk
        self._make_metadata = metadata
        self._lock = state_lock
        self._account = account
        self._clock_ms = clock_ms
        self._monotonic = monotonic
        self._random_bytes = random_bytes
        self._max_file_bytes = max_file_bytes
        self._max_checkpoint_adds = max_checkpoint_adds
        self._store_limit = store_limit
        self._accepts_loss = accepts_loss
        self._checkpoint_lock = threading.Lock()
        self._metadata: MetadataStore | None = None
        self._replay_position = 0
        self._checkpoint_end = 0
        self._is_closed = False
        self._is_serving = False
        self._dropped: set[int] = set()
        self._store_id = b""
        self.adds = 0
        self.checkpoint_adds = max_checkpoint_adds
        """A checkpoint is due when adds reaches this."""
        self._attest_end = 0
        self.index = Index(account, index_cache_bytes, self._read_block)
        self.destinations: dict[int, Destination] = {}
        self.journal: Journal

    # ------------------------------------------------------------------ opening and closing

    def open(self) -> RecoveryReport:
        """Recover the directory and begin a data log of its own. REQUIRES: the directory lock is held.

        Raises JournalCorrupt (nothing was changed) or StoreFailed.
        """
        began = self._monotonic()
        try:
            return self._open(began)
        except OSError as error:
            raise StoreFailed(f"the store could not be opened ({error.strerror or error})") from error

    def _open(self, began: float) -> RecoveryReport:
        for directory in (JOURNAL, INDEX_DIRECTORY, STATE_DIRECTORY):
            self._disk.make_directory(directory)
        Reserve(self._disk, 0).clear()
        mark = read_mark(self._disk)
        found_id = mark.store_id if mark is not None else self._find_store_id()
        self._store_id = found_id or self._random_bytes(STORE_ID_BYTES)
        self._metadata = self._make_metadata(self._store_id)
        found = self._recover(mark, self._metadata)
        self.destinations = found.destinations
        self._replay_position = found.replay_position
        self.journal = Journal(
            self._disk,
            self._lock,
            self._store_id,
            max_file_bytes=self._max_file_bytes,
            clock_ms=self._clock_ms,
            random_salt=self._random_salt,
            first_record=self._first_record,
            has_reserve=True,
            store_limit_bytes=self._store_limit_bytes(sum(found.sizes.values())),
        )
        self.journal.sizes.update(found.sizes)
        # Before the first record of this epoch: a crash from here on must not find an epoch that was used.
        epoch = found.epoch + 1
        write_mark(self._disk, Mark(self._store_id, epoch, found.end, False))
        with self._lock:
            self.journal.begin(found.next_data_log, found.next_sequence, epoch)
        for data_log in found.sizes:
            self.index.use(data_log)
        self.journal.sync()
        if found.leftovers:
            self.journal.remove(list(found.leftovers))
        self._is_serving = True
        self.checkpoint()
        report = RecoveryReport(
            clean=mark is not None
            and mark.is_clean
            and not (found.truncated_bytes or found.index_rebuilt or found.damaged),
            index_rebuilt=found.index_rebuilt,
            replayed_records=found.replayed_records,
            truncated_bytes=found.truncated_bytes,
            quarantined=found.quarantined,
            prepared=0,
            seconds=self._monotonic() - began,
            damaged=tuple(found.damaged),
        )
        logger.info("opened: %s", report)
        return report

    def _recover(self, mark: Mark | None, metadata: MetadataStore) -> Recovered:
        """Once more, behind a repair, where damage is accepted."""
        disk, store_id, checkpoint = self._disk, self._store_id, self._recovery_checkpoint
        recovery = Recovery(disk, self.index, metadata, mark, store_id, checkpoint)
        try:
            return recovery.run()
        except JournalCorrupt:
            if not self._accepts_loss:
                raise
        repair = Repair(disk, store_id, recovery.durable, self._random_salt)
        damaged = repair.run(recovery.expected)
        self.index.reset()
        repaired = Recovery(disk, self.index, metadata, mark, store_id, checkpoint, known_durable=repair.durable)
        found = repaired.run()
        found.damaged = damaged + found.damaged
        return found

    def _random_salt(self) -> int:
        return int.from_bytes(self._random_bytes(4), "little")

    def _store_limit_bytes(self, journal_bytes: int) -> int | None:
        limit = self._store_limit
        return int(limit * (self._disk.free_bytes() + journal_bytes)) if isinstance(limit, float) else limit

    def _find_store_id(self) -> bytes | None:
        for data_log in sorted(filter(None, map(data_log_id, self._disk.list(JOURNAL)))):
            file = self._disk.open_for_reading(data_log_name(data_log))
            try:
                return decode_data_log_header(file.read(0, DATA_LOG_HEADER_BYTES)).store_id
            except RecordDamaged:
                continue
            except UnknownVersion as version:
                raise JournalCorrupt(data_log, 0, str(version)) from None
            finally:
                file.close()
        return None

    def close(self) -> None:
        """Write a checkpoint, seal the newest data log, and leave the mark of a clean shutdown. Twice is once."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            if self.journal.failure is None:
                with self._lock:
                    if not self.is_full:  # on a full disk the next open needs what is left of it
                        self.journal.reserve.close()
                self._disk.sync_directory(JOURNAL)
                self.checkpoint(is_closing=True)
                self._leave_mark()
        except OSError as error:
            raise StoreFailed(f"the store could not be closed cleanly ({error.strerror})") from error
        finally:
            with self._lock:
                self.journal.close()
            if self._metadata is not None:
                self._metadata.close()

    def _leave_mark(self) -> None:
        """On a full disk none is left: then the next open replays, for which it needs what is left of the reserve."""
        try:
            write_mark(self._disk, Mark(self._store_id, self.journal.epoch, self._checkpoint_end, True))
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            logger.warning("the mark of a clean shutdown found no space: the next open replays the journal")

    # ------------------------------------------------------------------ destinations

    def create_destination(self, name: str) -> Destination:
        """Record a new queue. REQUIRES: state lock."""
        number = max(self.destinations, default=0) + 1
        destination = Destination(number, QUEUE, name)
        self.journal.append(DESTINATION, 0, 1, encode_destination(destination))
        self.destinations[number] = destination
        return destination

    def _state(self, data_logs: Iterable[int]) -> State:
        sequences = {number: lane.next_sequence for number, lane in self.index.lanes.items()}
        return State(list(self.destinations.values()), sequences, sorted(data_logs))

    def _first_record(self) -> tuple[int, int, bytes]:
        self.index.use(self.journal.data_log)
        existing = (set(self.journal.sizes) | {self.journal.data_log}) - self._dropped
        return STATE, 0, encode_state(self._state(existing))

    # ------------------------------------------------------------------ messages

    def add(self, lane: Lane, timestamp: int, properties: bytes, body: bytes) -> int:
        """Append one message; returns its sequence. REQUIRES: state lock. Raises StoreFull or StoreFailed."""
        journal = self.journal
        try:
            offset = journal.append_one(
                lane.priority, lane.destination, lane.next_sequence, timestamp, properties, body
            )
            data_log = journal.data_log
            self.adds += 1
            return lane.add_one(data_log, offset, len(properties) + len(body), self.index.uses[data_log])
        except ForebayError:
            raise
        except BaseException:
            self._interrupted()
            raise

    def add_slice(self, lane: Lane, timestamp: int, contents: list[tuple[bytes, bytes]]) -> int:
        """Append (properties, body) pairs as one record, all or nothing; returns the first sequence.

        REQUIRES: state lock; at most lane.slice_room and SLICE_MESSAGES_MAX of them.
        """
        journal = self.journal
        try:
            offset, lengths = journal.append_slice(
                lane.priority, lane.destination, lane.next_sequence, timestamp, contents
            )
            data_log = journal.data_log
            self.adds += len(lengths)
            return lane.add_slice(data_log, offset, lengths, self.index.uses[data_log])
        except ForebayError:
            raise
        except BaseException:
            self._interrupted()
            raise

    def remove(self, lane: Lane, first: int, last: int) -> int:
        """Acknowledge a run with one record; returns how many were pending. REQUIRES: state lock."""
        journal = self.journal
        try:
            journal.append_ack(lane.priority, lane.destination, first, last - first + 1)
            return lane.remove(first, last, journal.data_log)
        except ForebayError:
            raise
        except BaseException:
            self._interrupted()
            raise

    def remove_one(self, lane: Lane, sequence: int) -> int:
        """As remove, for one: the path of every single ack. REQUIRES: state lock."""
        journal = self.journal
        try:
            journal.append_ack(lane.priority, lane.destination, sequence, 1)
            return lane.remove_one(sequence, journal.data_log)
        except ForebayError:
            raise
        except BaseException:
            self._interrupted()
            raise

    def _interrupted(self) -> None:
        """Something (Ctrl-C, a signal handler, no memory) broke in between the journal and the index.

        They may disagree now, and what is confirmed later could be lost with
        a sequence that is used twice. The journal alone is right: reopen.
        """
        self.journal.fail("a call was interrupted while it wrote")

    def plan(self, lane: Lane, runs: Sequence[tuple[int, int]]) -> list[Region]:
        """How to read these pending sequences, each run inside one block. REQUIRES: state lock. Reads no message."""
        extents: list[Extent | Singles] = []
        for first, last in runs:
            extents += lane.extents(first, last)
        return plan_regions(extents, self.journal.reader)

    def read(self, regions: Sequence[Region]) -> tuple[list[StoredMessage], list[tuple[int, str]]]:
        """(messages in order, [(sequence, problem)] of those that can't be read). REQUIRES: no lock."""
        return read_regions(regions)

    def quarantine(self, lane: Lane, sequence: int) -> bool:
        """Copy a pending message that does not verify to the quarantine, and acknowledge it. REQUIRES: no lock.

        False: it is settled already, or can be read after all; or the disk failed to read it, which may pass; or the
        quarantine is full. Then nothing was changed.
        """
        with self._lock:
            if not lane.is_pending(sequence):
                return False
            (region,) = regions = self.plan(lane, [(sequence, sequence)])
        messages, unreadable = self.read(regions)
        try:
            data = region.file.read(region.offset, region.length)
            if messages:
                decode_properties(messages[0][1])
                return False
            assert unreadable
        except OSError:
            return False
        except RecordDamaged:
            pass  # its checksum is right, and its headers make no sense
        if not set_aside(self._disk, damage_name(region.data_log, region.offset), data):
            return False
        with self._lock:
            return lane.is_pending(sequence) and bool(self.remove_one(lane, sequence))

    # ------------------------------------------------------------------ checkpoint and cleanup

    @property
    def is_checkpoint_urgent(self) -> bool:
        """A checkpoint must come before more work, so that replay and memory stay bounded."""
        return self.adds >= self.checkpoint_adds + self._max_checkpoint_adds or self.index.is_crowded

    @property
    def is_full(self) -> bool:
        """Sends are refused: the disk has no space left but the reserve, or the last one met a limit."""
        return self.journal.is_full or self.journal.is_refusing

    def id_prefix(self, destination: int, priority: int) -> str:
        """What ids generated in this lane begin with."""
        return id_prefix(self._store_id, destination, priority)

    def _read_block(self, lane: int, block: int) -> bytes:
        assert self._metadata is not None
        try:
            return self._metadata.read_block(lane, block)
        except MetadataDamaged as damage:
            if not self._is_serving:
                raise  # recovery rebuilds the index at once
            raise self._distrust_index(damage) from damage

    def _distrust_index(self, damage: MetadataDamaged) -> StoreFailed:
        """The index on disk is damaged while it is in use: stop, and let the next open rebuild it from the journal."""
        assert self._metadata is not None
        logger.error("the index is damaged (%s); the next open rebuilds it", damage)
        self._metadata.clear()
        return self.journal.fail("the index on disk is damaged and is rebuilt at the next open")

    def checkpoint(self, *, is_closing: bool = False) -> bool:
        """Bring the index on disk up to now. REQUIRES: no lock. False: postponed, the disk is full.

        The journal is synced first, so the index never runs ahead of it.
        """
        with self._checkpoint_lock:
            if is_closing:
                self.journal.sync()  # so that the seal itself tells that all before it is durable
            with self._lock:
                if self.journal.failure is not None:
                    raise self.journal.failure
                position = self.journal.end
                if position == self._checkpoint_end and not is_closing:
                    return True
                if is_closing:
                    self.journal.seal()
                adds = self.adds
                data_logs = sorted(set(self.journal.sizes) - self._dropped)
                taken = self.index.take_dirty()
                deletes = self.index.take_dead()
                position = self.journal.end
                next_sequence = self.journal.next_sequence
                root = self._root(State(list(self.destinations.values()), {}, data_logs, next_sequence))
            is_stored = False
            try:
                self.journal.sync(position)
                puts = [(lane.number, block.number, packed) for lane, block, packed in taken]
                self._commit(position, self.journal.epoch, root, puts, deletes)
                is_stored = True
            except MetadataFull as full:
                logger.warning("checkpoint postponed: %s", full)
            except MetadataDamaged as damage:
                raise self._distrust_index(damage) from damage
            finally:
                with self._lock:
                    self.index.settle(taken, deletes, is_stored)
            self.checkpoint_adds = adds + self._max_checkpoint_adds
            if is_stored:
                self._checkpoint_end = position
                self._replay_position = position
            return is_stored

    def _commit(
        self,
        position: int,
        epoch: int,
        root: bytes,
        puts: Sequence[tuple[int, int, bytes]],
        deletes: Sequence[tuple[int, int]],
    ) -> None:
        """On a full disk, with a part of the reserve's space."""
        assert self._metadata is not None
        try:
            self._metadata.commit(position, epoch, root, puts, deletes)
        except MetadataFull:
            with self._lock:
                if not self.journal.lend():
                    raise
            self._metadata.commit(position, epoch, root, puts, deletes)

    def _root(self, state: State) -> bytes:
        lanes = [
            LaneCounts(number, lane.next_sequence, lane.pending_messages, lane.pending_bytes)
            for number, lane in self.index.lanes.items()
        ]
        uses = [
            UseCounts(number, use.pending_messages, use.pending_bytes, tuple(use.acked_data_logs))
            for number, use in self.index.uses.items()
        ]
        return encode_root(state, lanes, uses)

    def _recovery_checkpoint(self, position: int, epoch: int, state: State) -> None:
        """In the middle of a replay, so that the index stays bounded. No lock: nobody else is here."""
        assert self._metadata is not None
        taken = self.index.take_dirty()
        deletes = self.index.take_dead()
        is_stored = False
        try:
            puts = [(lane.number, block.number, packed) for lane, block, packed in taken]
            self._metadata.commit(position, epoch, self._root(state), puts, deletes)
            is_stored = True
        except MetadataFull as full:
            raise StoreFailed(f"the index could not be rebuilt ({full})") from full
        finally:
            self.index.settle(taken, deletes, is_stored)

    def cleanup(self) -> CleanupReport:
        """Delete the data logs that nothing needs. REQUIRES: no lock.

        A drop record that names them is synced before the first is unlinked,
        so no crash can turn a deletion into a loss or a redelivery. What the
        disk refuses to delete is tried again by the next cleanup.
        """
        self.checkpoint()
        with self._checkpoint_lock:
            with self._lock:
                newest = min(self.journal.data_log, self._replay_position >> OFFSET_BITS)
                doomed = removable(self.index.uses, newest)
                if doomed:
                    self.journal.append(DROP, 0, len(doomed), encode_state(State(data_logs=doomed)))
                    self._dropped.update(doomed)
            if doomed:
                cleanup_logger.debug("Cleanup removing the data files: %s", doomed)
                self.journal.sync()
                try:
                    self.journal.remove(doomed)
                    self._forget(doomed)
                except OSError as error:
                    logger.warning("a data log could not be deleted (%s); the next cleanup tries again", error.strerror)
                    doomed = []
            with self._lock:
                if self.is_full:
                    self.journal.refill()
                remaining = tuple(sorted(self.journal.sizes))
        return CleanupReport(tuple(doomed), remaining)

    def _forget(self, data_logs: Iterable[int]) -> None:
        with self._lock:
            for data_log in data_logs:
                self.index.uses.pop(data_log, None)
            for use in self.index.uses.values():
                use.acked_data_logs.difference_update(data_logs)
            self.journal.forget(list(data_logs))
            self._dropped.difference_update(data_logs)

    def attest(self) -> bool:
        """After traffic has ended, say in the journal how far it is durable. REQUIRES: no lock.

        Until then a damaged record behind the last one that knew is taken for a torn tail.
        """
        with self._lock:
            if not self.wants_attest:
                return False
            was_checkpointed = self._checkpoint_end == self.journal.end
            try:
                self.journal.append(ATTEST, 0, 0, b"")
            except StoreFull:
                self._attest_end = self.journal.durable  # not again before something else was synced
                return False
            self._attest_end = self.journal.end
            if was_checkpointed:
                self._checkpoint_end = self._attest_end
            return True

    @property
    def wants_attest(self) -> bool:
        """More is durable than the newest record says, other than the last attest record itself."""
        journal = self.journal
        return journal.failure is None and journal.attested < journal.durable and journal.durable != self._attest_end

    def statistics(self) -> StoreStatistics:
        """REQUIRES: state lock. O(lanes + data logs), no disk."""
        lanes = self.index.lanes.values()
        return StoreStatistics(
            journal_bytes=self.journal.journal_bytes,
            live_bytes=sum(lane.pending_bytes for lane in lanes),
            data_logs=len(self.journal.sizes),
            index_bytes=self.index.held_bytes,
            pending_messages=sum(lane.pending_messages for lane in lanes),
        )

    def raise_if_closed(self) -> None:
        if self._is_closed:
            raise Closed("the store")
