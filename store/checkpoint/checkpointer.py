"""Checkpointer: bring the index on disk up to the journal, so that an open has little to replay, and say when.

A checkpoint takes the changes of the index under the state lock, has the journal synced up to there, and stores the
changes with one commit. Other threads send and take meanwhile. The index on disk is never ahead of the durable journal.
After a crash before the commit, recovery replays from the previous checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import chain
from typing import Final, NamedTuple, TypeAlias, TypeVar

from ..disk.disk import known_free_bytes
from ..environment.clock import Clock
from ..environment.late_log import LateLogger
from ..environment.locks import StoreLocks, require_outside
from ..errors import Closed, StoreFailed, StoreFull, TooManyFiles
from ..format.state_record import StateRecord, SubscriptionBacklog, encode_counts, encode_root
from ..index.block import Block, BlockDamaged
from ..index.block_cache import BlockLane
from ..index.fingerprints import Row
from ..index.index import Index
from ..journal.journal import Journal
from ..journal.journal_syncer import JournalSyncer
from ..metadata.metadata_store import MetadataDamaged, MetadataFull, commit_lending
from ..state.journaled_state import JournaledState
from ..structures.histogram import DurationHistogram

logger = LateLogger("forebay.store")

T = TypeVar("T")

CAUGHT_UP_AT_ONCE: Final = 500
"""Lanes of subscriptions that catch up in one hold of the state lock, which takes a millisecond or two."""
INDEX_LIMIT: Final = "the share of memory_limit that the index may take with persistent_index=False"

MakeCheckpoint: TypeAlias = Callable[[], bool]
"""Brings the index on disk up to now; returns False if that is postponed. Requires: no lock."""


class _Changes(NamedTuple):
    """Changes that the index on disk lacks. The index keeps all of them until it knows how the commit went."""

    blocks: list[tuple[BlockLane, Block, bytes]]
    deletes: list[tuple[int, int]]
    fingerprints: list[Row]

    @property
    def puts(self) -> list[tuple[int, int, bytes]]:
        return [(lane.number, block.number, packed) for lane, block, packed in self.blocks]


class _Root(NamedTuple):
    """The state of the whole store when the changes were taken."""

    position: int
    state: StateRecord
    counts: bytes
    backlogs: Iterable[Iterable[SubscriptionBacklog]]

    def encode(self) -> bytes:
        return encode_root(self.state, self.counts, chain.from_iterable(self.backlogs))


class Checkpointer:
    """Writes the checkpoints of an open store. The checkpoint lock is the first of the three locks."""

    def __init__(
        self,
        journaled: JournaledState,
        journal: Journal,
        syncer: JournalSyncer,
        clock: Clock,
        locks: StoreLocks,
        *,
        replay_position: int,
        root_state: Callable[[int], StateRecord],
        give_up_readers: Callable[[], int],
    ) -> None:
        """replay_position: where a replay would begin now.
        root_state: returns the state for a root with the next log sequence; called under the state lock.
        give_up_readers: closes files that are open only for reading, and returns how many.
        """
        self._journaled = journaled
        self._metadata, self._index, self._subscriptions = journaled.metadata, journaled.index, journaled.subscriptions
        # Counts what is added, and knows whether the index fills.
        self.need: Final = journaled.index.checkpoint_need
        self._journal = journal
        self._syncer = syncer
        self._clock = clock
        self._checkpoint_lock, self._sync_lock, self._state_lock = locks.checkpoint, locks.sync, locks.state
        self._root_state = root_state
        self._give_up_readers = give_up_readers
        # The changes that the checkpoint under way writes. None: there is none.
        self._changes: _Changes | None = None
        self.replay_position = replay_position
        # Position up to which the index on disk has everything; 0: not known yet.
        self.end = 0
        # Whether the last checkpoint was postponed, for want of space or descriptors.
        self.is_postponed = False
        # Whether the last checkpoint that found no room lacked a file descriptor.
        self._lacks_descriptors = False
        # When as much time has passed since the last checkpoint as it took, in monotonic seconds.
        self._rested_at = 0.0
        # Whether no further checkpoint may begin. The files of the index may be closed from then on.
        self._is_closed = False
        # Durations of checkpoints that stored something. The state lock guards it.
        self.durations = DurationHistogram()

    def checkpoint(self, *, is_closing: bool = False) -> bool:
        """Bring the index on disk up to now; return False if this is postponed, for want of space or descriptors.

        Closed: the checkpoint that closes the store has begun, or `close` was called. Requires: no lock.
        """
        require_outside(self._state_lock, self._sync_lock)
        adds = self.need.adds  # messages that are added from here on may have to wait for the next checkpoint
        with self._checkpoint_lock:
            if self._is_closed:
                raise Closed("the store")
            if is_closing:
                self._is_closed = True
            is_stored = self._checkpoint(is_closing=is_closing)
        self.need.checkpointed(adds)
        return is_stored

    def _checkpoint(self, *, is_closing: bool) -> bool:
        """Bring the index on disk up to now; return False if this is postponed. Requires: the checkpoint lock alone."""
        began = self._clock.monotonic()
        self._remove_unneeded_messages()
        self._catch_up()
        if is_closing:
            self._syncer.sync()  # the seal then says that everything before it is durable
        is_stored = False
        try:
            root = self._take(is_closing=is_closing)
            if root is None:
                return True
            self._store(root)
            is_stored = True
            self.end = self.replay_position = root.position
        except MetadataFull as full:
            self._lacks_descriptors = full.lacks_descriptors
            logger.warning("checkpoint postponed: %s", full, event="checkpoint_postponed")
        except MetadataDamaged as damage:
            raise self.discard_index(damage) from damage
        finally:
            # Call nothing before the `try`: an interruption there would leave the index without its changes.
            if self._changes is not None and self._state_lock.failure is None:
                try:
                    with self._state_lock:
                        self._tell_index(self._changes, began, is_stored=is_stored)
                        self._changes = None
                except BaseException as error:
                    self._state_lock.break_between(error)
                    raise
        self.is_postponed = not is_stored
        ended = self._clock.monotonic()
        self._rested_at = ended + (ended - began)
        return is_stored

    def close(self) -> None:
        """Refuse further checkpoints and wait for the one under way: the files of the index close next.

        A second call does nothing. Requires: no lock.
        """
        self._is_closed = True
        with self._checkpoint_lock:
            pass

    # ------------------------------------------------------------------ when a checkpoint must come

    @property
    def is_urgent(self) -> bool:
        """Whether a checkpoint must come before more work, to bound replay and memory."""
        return self.need.is_overdue or self._index.is_crowded

    @property
    def is_index_crowded(self) -> bool:
        """Whether so many blocks of the index are dirty that a checkpoint must come before further changes."""
        return self._index.is_crowded

    def require_index_room(self, blocks: int) -> None:
        """Make sure that `blocks` more blocks of the index may become dirty. StoreFull: a checkpoint found no room.

        Requires: no lock.
        """
        if not self._index.has_room_for(blocks) and not self.checkpoint():
            raise self._no_room()

    def make_fingerprint_room(self) -> None:
        """Checkpoint if RAM may have no room for the fingerprints of one more block. Requires: no lock.

        Do nothing if a checkpoint would probably not store them, because the index is in RAM or the last checkpoint was
        postponed. Do nothing either until as much time has passed since the last checkpoint as it took. So at most half
        of the time of scans goes into checkpoints.
        """
        if not self._index.fingerprints.is_full or not self._metadata.is_persistent or self.is_postponed:
            return
        if self._clock.monotonic() >= self._rested_at:
            with suppress(Closed):  # another thread may close the store while this one scans
                self.checkpoint()

    # ------------------------------------------------------------------ changes that no checkpoint may meet

    def between_checkpoints(self, change: Callable[[], None]) -> None:
        """Call `change` while no other thread checkpoints, cleans up or relocates. Requires: no lock."""
        require_outside(self._state_lock, self._sync_lock)
        with self._checkpoint_lock:
            change()

    def at_standstill(self, change: Callable[[], T]) -> T:
        """Return the result of a change that needs `make_index_room`, for which nothing else may go on.

        It is called under all three locks, and an interruption breaks the state lock. Requires: no lock.
        """
        require_outside(self._state_lock, self._sync_lock)
        with self._checkpoint_lock, self._sync_lock, self._state_lock, self._journal.all_or_broken:
            return change()

    # ------------------------------------------------------------------ steps of a checkpoint

    def _remove_unneeded_messages(self) -> None:
        """Remove messages that no subscription needs any more, a few blocks at a time. Requires: no state lock."""
        with self._state_lock:
            left = self._subscriptions.touched_blocks
        while left > 0:
            with self._state_lock, self._journal.all_or_broken:
                visited = self._subscriptions.remove_unneeded_part()
            if not visited:
                return
            left -= visited

    def _catch_up(self) -> None:
        """Let durable subscriptions catch up with their topics, a few hundred at a time. Requires: no state lock."""
        with self._state_lock:
            lanes = self._subscriptions.durable_lanes()
        for begin in range(0, len(lanes), CAUGHT_UP_AT_ONCE):
            with self._state_lock, self._journal.all_or_broken:
                self._subscriptions.catch_up(lanes[begin : begin + CAUGHT_UP_AT_ONCE])

    def _take(self, *, is_closing: bool) -> _Root | None:
        """Take the changes. None: there are none. Requires: no state lock."""
        journal, index, subscriptions = self._journal, self._index, self._subscriptions
        with self._state_lock:
            if journal.failure is not None:
                raise journal.failure.again()
            has_more = is_closing or subscriptions.touched_blocks or index.has_more_to_store
            if journal.end == self.end and not has_more:
                return None
            with journal.all_or_broken:
                subscriptions.remove_unneeded_part()
                if is_closing:
                    index.shrink_all_to_rows()
                    journal.seal()
                self._changes = _changes_of(index)
                state = self._root_state(journal.next_log_sequence)
                return _Root(journal.end, state, _encoded_counts(index, state), subscriptions.note_backlogs())

    def _store(self, root: _Root) -> None:
        """Sync the journal up to a root, and commit the root. Requires: no state lock. MetadataFull."""
        changes = self._changes
        assert changes is not None
        self._syncer.sync(root.position)
        encoded = root.encode()  # without the state lock, so that nobody waits
        row = (root.position, self._journal.epoch, encoded, changes.puts, changes.deletes, changes.fingerprints)
        commit_lending(self._metadata, self._journal.lend_space, self._give_up_readers, row)

    def _tell_index(self, changes: _Changes, began: float, *, is_stored: bool) -> None:
        """Tell the index whether the commit succeeded, and tell senders whether the index has room.

        Requires: the state lock.
        """
        self._subscriptions.forget_noted()
        self._index.checkpointed(changes.blocks, changes.deletes, changes.fingerprints, is_stored=is_stored)
        if is_stored:
            self.durations.record(self._clock.monotonic() - began)
        has_index_room = (is_stored or self._metadata.is_persistent) and not self._metadata.is_filling
        self._journal.set_write_stall(None if has_index_room else INDEX_LIMIT)

    # ------------------------------------------------------------------ checkpoints at a standstill

    def make_index_room_now(self) -> None:
        """Checkpoint up to the journal's end, in a change `at_standstill`."""
        self.make_index_room(self._journal.end, self._journal.next_log_sequence)

    def make_index_room(self, position: int, next_log_sequence: int) -> None:
        """Checkpoint in the middle of a record that begins at position, in a change `at_standstill`.

        A replay begins with that record, and skips those parts of it that the index has already.
        """
        self._syncer.sync_at_standstill()
        try:
            store_at_standstill(self._journaled, position, self._journal.epoch, self._root_state(next_log_sequence))
        except MetadataFull as full:
            self._lacks_descriptors = full.lacks_descriptors
            if full.lacks_descriptors:
                self._give_up_readers()  # the call may be made again
            raise self._no_room() from full
        except MetadataDamaged as damage:
            raise self.discard_index(damage) from damage
        self.end = self.replay_position = position
        self.need.checkpointed(self.need.adds)

    def _no_room(self) -> StoreFull:
        """Return the error for a call whose checkpoint found no room. TooManyFiles: no file descriptor was left.

        The metadata store does not say how many bytes it lacks. For an index in RAM the error says that 1 byte is
        needed and 0 are left, as in a write stall. For an index on the disk it says that 0 bytes are needed, beside the
        free ones, because no number is known to be enough.
        """
        if self._lacks_descriptors:
            return TooManyFiles()
        if not self._metadata.is_persistent:
            return StoreFull(needed_bytes=1, available_bytes=0, limit=INDEX_LIMIT)
        free_bytes = known_free_bytes(self._journaled.disk)
        return StoreFull(needed_bytes=0, available_bytes=free_bytes, limit="the disk's free space")

    def skip_record(self, begin: int, end: int) -> None:
        """Move the end past a record that does not concern the index. Requires: the state lock."""
        if self.end == begin:
            self.end = end

    def discard_index(self, damage: MetadataDamaged | BlockDamaged) -> StoreFailed:
        """Fail the journal and delete the index, which was found damaged while in use; return the error to raise.

        The next open rebuilds the index. If the damaged files can't be removed, the next open verifies them and finds
        the damage too.
        """
        logger.error("the index is damaged (%s); the next open rebuilds it", damage, event="index_damaged")
        failure = self._journal.fail("the index on disk is damaged and is rebuilt at the next open")
        with suppress(OSError):
            self._metadata.clear()
        return failure


def checkpoint_of_replay(journaled: JournaledState, position: int, epoch: int, state: StateRecord) -> None:
    """Checkpoint in the middle of a replay, so that the index in RAM stays bounded.

    Requires: no other thread uses the store.

    Raises TooManyFiles or StoreFailed.
    """
    try:
        store_at_standstill(journaled, position, epoch, state)
    except MetadataFull as full:
        if full.lacks_descriptors:
            raise TooManyFiles from full
        raise StoreFailed(f"the index could not be rebuilt ({full})") from full


def store_at_standstill(journaled: JournaledState, position: int, epoch: int, state: StateRecord) -> None:
    """Store a checkpoint. Raises MetadataFull or MetadataDamaged.

    Requires: no other thread uses the store, or the caller holds the locks that keep other threads out.
    """
    index, subscriptions = journaled.index, journaled.subscriptions
    changes = _changes_of(index)
    is_stored = False
    try:
        backlogs = subscriptions.note_backlogs()
        try:
            root = _Root(position, state, _encoded_counts(index, state), backlogs).encode()
        finally:
            subscriptions.forget_noted()
        journaled.metadata.commit(position, epoch, root, changes.puts, changes.deletes, changes.fingerprints)
        is_stored = True
    finally:
        index.checkpointed(changes.blocks, changes.deletes, changes.fingerprints, is_stored=is_stored)


def _changes_of(index: Index) -> _Changes:
    return _Changes(index.take_dirty(), index.take_rows_to_delete(), index.take_fingerprints())


def _encoded_counts(index: Index, state: StateRecord) -> bytes:
    """Encode the parts of a root that go on to change. Requires: the lock."""
    state.latest_ms = index.latest_ms
    return encode_counts(state, *index.counts())
