"""TransactionWriter: write the messages of a transaction, prepare it, and commit it or roll it back.

The messages of a transaction are slices whose messages no lane has before the commit. The commit is one record, so a
crash leaves the whole transaction or no part of it. store/state/branches.py has the branches without an outcome.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ..errors import ForebayError, StoreFailed, StoreFull, TooManyFiles
from ..format.branch import Branch, CommitRecord, CommittedSlice, encode_branch, encode_commit, encode_rollback
from ..format.contents import Contents
from ..format.record import COMMIT, HEADER_BYTES, PREPARE, ROLLBACK, TIMED, TRANSACTIONAL, RecordDamaged
from ..format.times import TIMES_BLOCKS, MessageTimes
from ..index.deduplication import Deduplication
from ..index.destination_lane import DestinationLane
from ..index.index import Index
from ..index.journaled_lane import JournaledLane
from ..journal.journal import Journal
from ..numbering import OFFSET_BITS
from ..state.branches import Branches, apply_commit, read_lengths, read_slice_times
from ..state.property_table import PropertyTable


class TransactionWriter:
    """Writes the records of transactions. The state lock guards it."""

    def __init__(
        self,
        *,
        branches: Branches,
        journal: Journal,
        index: Index,
        now_ms: Callable[[], int],
        duplicates: Deduplication,
        properties: PropertyTable,
        acked_lane: Callable[[int], JournaledLane],
    ) -> None:
        """now_ms: the store's time, for delays that begin with a commit.
        acked_lane: returns the lane of a queue or subscription by its number, to acknowledge messages there.
        """
        self._branches = branches
        self._journal = journal
        self._index = index
        self._now_ms = now_ms
        self._duplicates = duplicates
        self._properties = properties
        self._acked_lane = acked_lane
        self._begun = 0

    def begin(self) -> Branch:
        """Begin a transaction. Its number is used once in the life of the store."""
        self._begun += 1
        return self._branches.begin(self._journal.epoch << 32 | self._begun)

    def append_slice(
        self,
        branch: Branch,
        lane: DestinationLane,
        timestamp: int,
        contents: Contents,
        *,
        is_timed: bool = False,
    ) -> list[int]:
        """Write messages that take effect with the commit; return the length of each content.

        is_timed: some properties have times. Requires: no more messages than a slice may have. StoreFull: nothing was
        written.
        """
        journal = self._journal
        flags = lane.priority | TRANSACTIONAL | (TIMED if is_timed else 0)
        try:
            offset, lengths = journal.append_slice(flags, lane.owner_number, branch.number, timestamp, contents)
            position = journal.data_log << OFFSET_BITS | offset
            length = journal.offset - offset
            self._branches.place(branch.number, lane.number, position, len(lengths), length, is_timed=is_timed)
        except BaseException as error:
            journal.break_by(error)
            raise
        return lengths

    def prepare(self, branch: Branch, xid: bytes) -> None:
        """Make a branch survive a crash, so that it waits for its outcome. StoreFull: nothing has changed."""
        with self._journal.all_or_broken:
            # Until its record is written, the branch stays open: this append may begin a data log, whose state record
            # must not say that the branch is prepared, because the prepare record may still be refused.
            self._journal.append(PREPARE, 0, 0, encode_branch(branch, xid))
            self._branches.uncount(branch)
            branch.xid = xid
            self._branches.count(branch)

    def move(self, branch: Branch, places: Mapping[int, int]) -> None:
        """Note that slices of a prepared branch were copied to other places. StoreFull: nothing has changed."""
        with self._journal.all_or_broken:
            # Make room first: if a data log begins here, its state record must not have the change before the change
            # has a record.
            self._journal.keep_together(HEADER_BYTES + len(encode_branch(branch)), 1)
            self._branches.uncount(branch)
            branch.move(places)
            try:
                self._journal.append(PREPARE, 0, 0, encode_branch(branch))
            except ForebayError:
                branch.move({copy: original for original, copy in places.items()})
                raise
            finally:
                self._branches.count(branch)

    def rollback(self, branch: Branch) -> None:
        """End a branch as if its messages had never been sent. StoreFull: nothing has changed."""
        with self._journal.all_or_broken:
            self._journal.append(ROLLBACK, 0, 0, encode_rollback(branch.number))
            self._branches.forget(branch.number)

    def is_small(self, branch: Branch) -> bool:
        """Return whether the index has room for the whole branch at once."""
        blocks = (
            len(branch) + TIMES_BLOCKS * len(branch.timed) + 2 * sum([runs.run_count for runs in branch.acks.values()])
        )
        return self._index.has_room_for(blocks)

    def commit(
        self,
        branch: Branch,
        lengths: Mapping[int, Sequence[int]],
        relieve: Callable[[int, int], None] | None = None,
    ) -> None:
        """Make a whole branch take effect; `branch.committed()` has the sequences. StoreFull: nothing has changed.

        lengths: the lengths of the messages of slices that are known, by position of the slice; others are read.
        relieve(position, log sequence of the commit record): makes room in the index; None: the branch is small.
        """
        journal, index = self._journal, self._index
        branch.give_sequences(lambda number: index.ensure_lane_numbered(number).next_sequence)
        with journal.all_or_broken:
            time_ms = self._now_ms()
            offset = journal.append(COMMIT, 0, 0, encode_commit(branch, time_ms))
            position, sequence = journal.data_log << OFFSET_BITS | offset, journal.next_log_sequence - 1

            def lengths_of(placed: CommittedSlice) -> Sequence[int]:
                return lengths.get(placed.position) or self._read_lengths(branch.number, placed)

            def times_of(placed: CommittedSlice) -> list[MessageTimes]:
                return self._read_times(branch.number, placed)

            def make_room() -> None:
                if relieve is not None and index.is_crowded:
                    try:
                        relieve(position, sequence)
                    except TooManyFiles as none_left:
                        raise self._half_done("no file descriptor is left for the index") from none_left
                    except StoreFull as full:
                        raise self._half_done(f"the index has no room under {full.limit}") from full

            commit = CommitRecord(branch.number, branch.committed(), branch.runs(), time_ms)
            apply_commit(index, commit, journal.data_log, lengths_of, times_of, make_room, self._acked_lane)
            self._properties.apply(branch.properties)
            self._branches.forget(branch.number)
            for sent in branch.identities:
                self._duplicates.remember(sent)
            index.checkpoint_need.adds += branch.messages

    def _read_lengths(self, number: int, placed: CommittedSlice) -> Sequence[int]:
        try:
            file, salt = self._journal.reader(placed.position >> OFFSET_BITS)
            return read_lengths(file, salt, number, placed)
        except (OSError, RecordDamaged) as error:
            raise self._half_done(f"a slice of a transaction can't be read again ({error})") from error

    def _read_times(self, number: int, placed: CommittedSlice) -> list[MessageTimes]:
        try:
            file, salt = self._journal.reader(placed.position >> OFFSET_BITS)
            return read_slice_times(file, salt, number, placed)
        except (OSError, RecordDamaged) as error:
            raise self._half_done(f"a slice of a transaction can't be read again ({error})") from error

    def _half_done(self, reason: str) -> StoreFailed:
        """Fail the journal, and return the error: the index lacks a part of a commit, which only a replay adds."""
        return self._journal.fail(reason)
