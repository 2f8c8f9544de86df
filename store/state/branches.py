"""Branches: transactions whose messages are in the journal but take effect only with a later record.

A transaction writes its messages at once, as slices whose messages no lane has yet. The commit record names all slices,
gives the messages their sequences, and acknowledges messages. It is one record, so a crash leaves the whole transaction
or no part of it. A *branch* is a transaction without an outcome. After a crash, a branch without a prepare record is
forgotten, and a prepared branch waits for its outcome.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, NamedTuple

from ..disk.disk import File
from ..format.branch import Branch, CommitRecord, CommittedSlice, PlacedSlice
from ..format.contents import Contents
from ..format.record import (
    ENTRY_BYTES,
    SLICE_BYTES,
    MessageRecord,
    RecordDamaged,
    crc32,
    decode_header,
    decode_slice,
    verify_head,
)
from ..format.state_record import StateRecord
from ..format.times import MessageTimes, read_times
from ..index.deduplication import Deduplication
from ..index.index import Index
from ..index.journaled_lane import JournaledLane
from ..numbering import LANE_SHIFT, OFFSET_BITS, OFFSET_MASK
from ..structures.sequence_set import SequenceSet
from .property_table import PropertyTable


class Undecided(NamedTuple):
    """The slices in a data log of transactions without an outcome.

    A sealed data log gets no more slices. So if this is unchanged, no transaction with slices there was prepared, or
    has got its outcome.
    """

    open_slices: int
    prepared_bytes: int


NOTHING_UNDECIDED: Final = Undecided(0, 0)


class Branches:
    """The transactions without an outcome, by number. The state lock guards it."""

    def __init__(self, duplicates: Deduplication | None = None, properties: PropertyTable | None = None) -> None:
        self._duplicates = duplicates or Deduplication()
        self._properties = properties or PropertyTable()
        self._branches: dict[int, Branch] = {}
        # Number of slices in each data log of branches that are not prepared.
        self._open_slices: Counter[int] = Counter()
        # Bytes of slices in each data log of prepared branches.
        self._prepared_bytes: Counter[int] = Counter()

    @property
    def undecided_data_logs(self) -> Collection[int]:
        """Data logs with messages that may still be committed."""
        return self._open_slices.keys() | self._prepared_bytes.keys()

    @property
    def open_data_logs(self) -> Collection[int]:
        """Data logs with messages of transactions that are not prepared."""
        return self._open_slices.keys()

    @property
    def prepared_bytes(self) -> Mapping[int, int]:
        """Bytes of the slices in each data log that belong to prepared transactions."""
        return self._prepared_bytes

    def undecided_in(self, data_log: int) -> Undecided:
        """Return the slices in a data log of transactions without an outcome. O(1)."""
        return Undecided(self._open_slices[data_log], self._prepared_bytes[data_log])

    def data_logs(self) -> dict[str, set[int]]:
        """Return the data logs with messages of each undecided transaction. O(slices).

        The key is the xid of a prepared transaction, as b'7', or the number of an open one in hexadecimal.
        """
        return {
            repr(branch.xid) if branch.is_prepared else f"{number:x}": {
                placed.position >> OFFSET_BITS for placed in branch
            }
            for number, branch in self._branches.items()
        }

    @property
    def first_position(self) -> int | None:
        """Position of the first slice that may still be committed. None: no slice may."""
        return min((placed.position for branch in self._branches.values() for placed in branch), default=None)

    @property
    def prepared(self) -> list[Branch]:
        """The prepared branches, in the order in which they began."""
        prepared = [branch for branch in self._branches.values() if branch.is_prepared]
        return sorted(prepared, key=lambda branch: branch.number)

    @property
    def open(self) -> list[Branch]:
        return [branch for branch in self._branches.values() if not branch.is_prepared]

    def is_prepared(self, xid: bytes) -> bool:
        return any(branch.xid == xid for branch in self._branches.values())

    def find(self, transaction_number: int) -> Branch | None:
        return self._branches.get(transaction_number)

    def acknowledged_in(self, lane_number: int) -> SequenceSet:
        """Return the sequences of a lane that branches without an outcome acknowledge. O(branches)."""
        acknowledged = SequenceSet()
        for branch in self._branches.values():
            for acks in (branch.acks, branch.unrecorded_acks):
                for first, last in acks.get(lane_number, ()):
                    acknowledged.add(first, last)
        return acknowledged

    def place(
        self, number: int, lane_number: int, position: int, messages: int, length: int, *, is_timed: bool = False
    ) -> None:
        """Note the place of a slice of a transaction. A transaction begins with its first slice."""
        branch = self._branches.get(number)
        if branch is None:
            branch = self._branches[number] = Branch(number)
        branch.add(lane_number, position, messages, length, is_timed=is_timed)
        self._open_slices[position >> OFFSET_BITS] += 1

    def adopt(self, branch: Branch) -> None:
        """Take over a branch as a record describes it, in place of the branch with its number, if there is one."""
        self.forget(branch.number)
        self._branches[branch.number] = branch
        self._duplicates.hold_undecided(branch.identities, branch.number)
        self._properties.hold_undecided(branch.properties)
        self.count(branch)

    def count(self, branch: Branch) -> None:
        """Count the slices of a branch. Counted slices keep their data logs. O(slices)."""
        for placed in branch:
            if branch.is_prepared:
                self._prepared_bytes[placed.position >> OFFSET_BITS] += placed.length
            else:
                self._open_slices[placed.position >> OFFSET_BITS] += 1

    def uncount(self, branch: Branch) -> None:
        """Undo `count`."""
        counter = self._prepared_bytes if branch.is_prepared else self._open_slices
        for placed in branch:
            data_log = placed.position >> OFFSET_BITS
            counter[data_log] -= placed.length if branch.is_prepared else 1
            if not counter[data_log]:
                del counter[data_log]

    def forget(self, transaction_number: int) -> None:
        """Forget a transaction that has an outcome, or can't have one any more."""
        branch = self._branches.pop(transaction_number, None)
        if branch is None:
            return
        self._duplicates.forget_undecided(branch.identities)
        self._properties.release_undecided(branch.properties)
        self.uncount(branch)

    def reconcile_with(self, state: StateRecord) -> None:
        """Forget the branches that a state record does not name, and take over the prepared ones that it describes."""
        stated = {branch.number for branch in state.branches}
        for number in set(self._branches) - stated - set(state.open_transactions):
            self.forget(number)
        for branch in state.branches:
            self.adopt(branch)  # relocation may have moved its slices

    def forget_open(self) -> None:
        """Forget the branches that are not prepared: the process that could have committed them has ended."""
        for branch in self.open:
            self.forget(branch.number)

    def clear(self) -> None:
        self._branches.clear()
        self._open_slices.clear()
        self._prepared_bytes.clear()

    def begin(self, transaction_number: int) -> Branch:
        """Add a branch with a number that no other branch ever had."""
        branch = self._branches[transaction_number] = Branch(transaction_number)
        return branch


def apply_commit(
    index: Index,
    commit: CommitRecord,
    data_log: int,
    lengths_of: Callable[[CommittedSlice], Sequence[int] | None],
    times_of: Callable[[CommittedSlice], list[MessageTimes]],
    make_room: Callable[[], None],
    acked_lane: Callable[[int], JournaledLane],
) -> None:
    """Bring the index up to a commit record in data_log. A second call changes nothing.

    lengths_of: returns the lengths of a slice's messages; None: the slice is gone, with all its messages.
    times_of: returns the times of a slice's messages.
    make_room: called after each step, to checkpoint if the index is crowded.
    acked_lane: returns the lane of a number.
    """
    for placed in commit.slices:
        lane = index.ensure_lane_numbered(placed.lane_number)
        home = placed.position >> OFFSET_BITS
        if placed.first >= lane.next_sequence:
            lengths = lengths_of(placed)
            lane.skip_to(placed.first)
            if lengths is None:
                lane.skip_to(placed.first + placed.messages)
                continue
            if len(lengths) != placed.messages:
                raise RecordDamaged(f"a commit names {placed.messages} messages of a slice that has {len(lengths)}")
            if placed.messages > lane.slice_capacity:
                raise RecordDamaged("a slice of a commit crosses a block")
            lane.add_slice(home, placed.position & OFFSET_MASK, list(lengths), index.use(home))
            if placed.is_timed:
                lane.put_times(placed.first, [times.committed(commit.time_ms) for times in times_of(placed)])
                index.note_time(commit.time_ms)
            make_room()
        if home != data_log:
            index.use(data_log).committed_data_logs.add(home)
    index.use(data_log)
    for lane_number, first, messages in commit.acks:
        # Blocks inside a run are empty after it, so one run leaves at most two dirty blocks.
        index.remove(acked_lane(lane_number), first, first + messages - 1, data_log)
        make_room()


def read_lengths(
    file: File, salt: int, transaction_number: int, placed: PlacedSlice | CommittedSlice
) -> tuple[int, ...]:
    """Return the content length of each message of a transaction's slice. RecordDamaged: another record is there."""
    return _read_slice(file, salt, transaction_number, placed).lengths


def read_slice_times(file: File, salt: int, transaction_number: int, placed: CommittedSlice) -> list[MessageTimes]:
    """Return the times of each message of a transaction's slice. RecordDamaged: another record is there."""
    part = _read_slice(file, salt, transaction_number, placed)
    return read_times(file, (placed.position & OFFSET_MASK) + SLICE_BYTES + ENTRY_BYTES * placed.messages, part)


def read_contents(file: File, salt: int, number: int, placed: PlacedSlice) -> tuple[MessageRecord, Contents]:
    """Return a transaction's slice and its contents, verified.

    It takes three times the record in RAM.
    """
    part = _read_slice(file, salt, number, placed)
    head_bytes = SLICE_BYTES + ENTRY_BYTES * placed.messages
    data = file.read((placed.position & OFFSET_MASK) + head_bytes, sum(part.lengths))
    contents = Contents([], [])
    at = 0
    for crc, length, properties_bytes in zip(part.table[::3], part.table[1::3], part.table[2::3], strict=True):
        content = data[at : at + length]
        if crc32(content) != crc or properties_bytes > length:
            raise RecordDamaged("the checksum of a message does not match")
        contents.append(content[:properties_bytes], content[properties_bytes:])
        at += length
    return part, contents


def _read_slice(file: File, salt: int, transaction_number: int, placed: PlacedSlice | CommittedSlice) -> MessageRecord:
    head = file.read(placed.position & OFFSET_MASK, SLICE_BYTES + ENTRY_BYTES * placed.messages)
    header = decode_header(head)
    if header.head_bytes != len(head):
        raise RecordDamaged("another record lies there")
    verify_head(header, head, salt)
    part = decode_slice(header, head)
    if not header.is_transactional or part.first_sequence != transaction_number:
        raise RecordDamaged("the slice belongs to another transaction")
    if part.destination_number << LANE_SHIFT | part.priority != placed.lane_number:
        raise RecordDamaged("the slice belongs to another lane")
    return part
