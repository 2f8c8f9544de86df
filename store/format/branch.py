"""Branch: the slices of one transaction in the journal, the messages that it acknowledges, and the bytes of both.

A branch knows its slices by place, 24 bytes each, but not its messages: lengths are read again from the slices at the
commit. So a transaction of a million messages takes the memory of its four thousand slices.

    commit     number u64, count u32 and (lane u64, first sequence u64, position u64, messages u32),
               count u32 and (lane u64, first sequence u64, messages u64) of acknowledged messages,
               changes of host properties; if slices have times, its own time, u64; identities to the end
    prepare    the branch: number u64, length of the xid u8, the xid,
               count u32 and (lane u64, position u64, messages u32, bytes of the record u32), count u32 and identities,
               runs and changes as in a commit
    rollback   number u64

An identity is destination u32, and digests of the producer and of the message's id, 16 bytes each. It marks a message
of the transaction that must not be stored again. The highest bit of a slice's messages says that some of them have
times. The highest bit of the count of slices says that changes of host properties follow the runs (see
host_properties.py). Each state record has the same bytes of a branch while the branch is prepared, and the root of each
checkpoint while it is open. An empty xid means that the branch is not prepared. A second prepare record of a branch
replaces the first, because slices of it were moved.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from ..numbering import BLOCK_MASK, BLOCK_MESSAGES
from ..structures.sequence_set import SequenceSet
from .host_properties import Changes, decode_changes, encode_changes
from .identity import Identity
from .record import SLICE_MESSAGES_MAX, LaneRun, RecordDamaged, check_run

XID_BYTES_MAX: Final = 255

_NUMBER: Final = struct.Struct("<Q")
_COUNT: Final = struct.Struct("<I")
_HEAD: Final = struct.Struct("<QB")
_PLACED: Final = struct.Struct("<QQII")
_COMMITTED: Final = struct.Struct("<QQQI")
_TIMED_BIT: Final = 1 << 31
_PROPERTIES_BIT: Final = 1 << 31
"""The bit in the count of slices that says that properties follow."""
_NO_CHANGES: Final[Changes] = {}
_RUN: Final = struct.Struct("<QQQ")
_IDENTITY: Final = struct.Struct("<I16s16s")


class PlacedSlice(NamedTuple):
    """A slice of a transaction without an outcome. position: data log id << 32 | offset."""

    lane_number: int
    position: int
    messages: int
    length: int
    """Bytes of the record."""


class CommittedSlice(NamedTuple):
    """A slice of a committed transaction; its first message has this sequence."""

    lane_number: int
    first: int
    position: int
    messages: int
    is_timed: bool = False
    """Whether some of its messages have a delay or an expiry."""


class CommitRecord(NamedTuple):
    """The content of a commit record. It takes effect as a whole."""

    number: int
    slices: Iterable[CommittedSlice]
    acks: Iterable[LaneRun]
    time_ms: int = 0
    """Time of the commit, if a slice has times."""
    identities: Sequence[Identity] = ()
    properties: Changes = _NO_CHANGES
    """Host properties that it sets or deletes."""


class Branch:
    """A transaction as the store sees it. The state lock guards it."""

    __slots__ = (
        "number",
        "xid",
        "messages",
        "acks",
        "unrecorded_acks",
        "identities",
        "properties",
        "_lanes",
        "_positions",
        "_counts",
        "_lengths",
        "_firsts",
        "holes",
        "timed",
    )

    def __init__(self, number: int, xid: bytes = b"") -> None:
        self.number = number
        # Empty until it is prepared.
        self.xid = xid
        # Number of messages in its slices.
        self.messages = 0
        # Lane -> sequences that the commit acknowledges.
        self.acks: dict[int, SequenceSet] = {}
        # Sequences that it acknowledges in lanes without records of acks: of non-persistent messages, and of
        # subscriptions without a name.
        self.unrecorded_acks: dict[int, SequenceSet] = {}
        # Identities of its messages that must not be stored twice.
        self.identities: list[Identity] = []
        # Host properties that the commit sets; None: it deletes them.
        self.properties: dict[str, bytes | None] = {}
        # Lane -> number of sequences that the commit gives to no message.
        self.holes: dict[int, int] = {}
        # Positions of slices with messages that have a delay or an expiry.
        self.timed: set[int] = set()
        self._lanes = array("Q")
        self._positions = array("Q")
        self._counts = array("I")
        self._lengths = array("I")
        self._firsts = array("Q")

    @property
    def is_prepared(self) -> bool:
        return bool(self.xid)

    def __len__(self) -> int:
        """Return the number of slices."""
        return len(self._lanes)

    def __iter__(self) -> Iterator[PlacedSlice]:
        """Yield the slices in the order in which they were written."""
        return map(PlacedSlice, self._lanes, self._positions, self._counts, self._lengths)

    def add(self, lane_number: int, position: int, messages: int, length: int, *, is_timed: bool = False) -> None:
        if is_timed:
            self.timed.add(position)
        self._lanes.append(lane_number)
        self._positions.append(position)
        self._counts.append(messages)
        self._lengths.append(length)
        self.messages += messages

    def move(self, places: Mapping[int, int]) -> None:
        """Replace the positions of some slices. O(slices)."""
        self._positions = array("Q", [places.get(position, position) for position in self._positions])
        self.timed = {places.get(position, position) for position in self.timed}

    @property
    def last_position(self) -> int:
        """Position of the newest slice."""
        return self._positions[-1]

    def give_sequences(self, next_sequence: Callable[[int], int]) -> None:
        """Number its messages in the order of its slices. next_sequence: returns that of a lane.

        A slice never crosses a block, so a slice that would begins with the next block and leaves holes before it.
        """
        nexts: dict[int, int] = {}
        self.holes.clear()
        firsts = self._firsts = array("Q")
        for lane_number, messages in zip(self._lanes, self._counts, strict=True):
            first = nexts[lane_number] if lane_number in nexts else next_sequence(lane_number)
            room = BLOCK_MESSAGES - (first & BLOCK_MASK)
            if messages > room:
                first += room
                self.holes[lane_number] = self.holes.get(lane_number, 0) + room
            firsts.append(first)
            nexts[lane_number] = first + messages

    def committed(self) -> Iterator[CommittedSlice]:
        """Yield the slices with their sequences. Requires: give_sequences was called."""
        timed = map(self.timed.__contains__, self._positions)
        return map(CommittedSlice, self._lanes, self._firsts, self._positions, self._counts, timed)

    def acknowledge(self, lane_number: int, first: int, last: int, *, is_recorded: bool = True) -> None:
        acks = self.acks if is_recorded else self.unrecorded_acks
        runs = acks.get(lane_number)
        if runs is None:
            runs = acks[lane_number] = SequenceSet()
        runs.add(first, last)

    def runs(self) -> Iterator[LaneRun]:
        """Yield the acknowledged runs that its records contain."""
        return _runs_of(self.acks)

    def unrecorded_runs(self) -> Iterator[LaneRun]:
        """Yield the acknowledged runs that are in no record."""
        return _runs_of(self.unrecorded_acks)

    def acknowledges(self, lane_number: int, sequence: int) -> bool:
        """Return whether the commit acknowledges this message."""
        return any(sequence in acks[lane_number] for acks in (self.acks, self.unrecorded_acks) if lane_number in acks)

    @property
    def acknowledged(self) -> int:
        """Number of messages that the commit acknowledges."""
        return sum(runs.count for acks in (self.acks, self.unrecorded_acks) for runs in acks.values())


class PrepareRecord(NamedTuple):
    """A prepare record: the transaction survives from here on, until it has an outcome."""

    branch: Branch


class RollbackRecord(NamedTuple):
    """A rollback record: the transaction's messages are deleted."""

    number: int
    """The number of the transaction."""


def _runs_of(acks: Mapping[int, SequenceSet]) -> Iterator[LaneRun]:
    for lane_number, runs in acks.items():
        for first, last in runs:
            yield LaneRun(lane_number, first, last - first + 1)


def branch_bytes(branch: Branch) -> int:
    """Return an upper bound of the size of encode_branch. O(1)."""
    parts = _PLACED.size * len(branch) + _IDENTITY.size * len(branch.identities)
    return _HEAD.size + len(branch.xid) + parts + len(_changes(branch))


def encode_branch(branch: Branch, new_xid: bytes | None = None) -> bytes:
    """Encode a branch as its record has it. new_xid: the xid that it gets with that record; None: it keeps its own."""
    xid = branch.xid if new_xid is None else new_xid
    return b"".join(
        (
            _HEAD.pack(branch.number, len(xid)),
            xid,
            _count_of_slices(branch),
            *(
                _PLACED.pack(
                    placed.lane_number,
                    placed.position,
                    placed.messages | _timed_bit(placed.position in branch.timed),
                    placed.length,
                )
                for placed in branch
            ),
            _COUNT.pack(len(branch.identities)),
            *(_IDENTITY.pack(*found) for found in branch.identities),
            _runs(branch.runs()),
            _changes(branch),
        )
    )


def _count_of_slices(branch: Branch) -> bytes:
    return _COUNT.pack(len(branch) | (_PROPERTIES_BIT if branch.properties else 0))


def _changes(branch: Branch) -> bytes:
    return encode_changes(branch.properties) if branch.properties else b""


def _timed_bit(is_timed: bool) -> int:
    return _TIMED_BIT if is_timed else 0


def _runs(runs: Iterable[LaneRun]) -> bytes:
    packed = [_RUN.pack(*run) for run in runs]
    return _COUNT.pack(len(packed)) + b"".join(packed)


def encode_commit(branch: Branch, time_ms: int = 0) -> bytes:
    """Encode a commit record. Requires: its messages have their sequences."""
    return b"".join(
        (
            _NUMBER.pack(branch.number),
            _count_of_slices(branch),
            *(
                _COMMITTED.pack(*committed[:3], committed.messages | _timed_bit(committed.is_timed))
                for committed in branch.committed()
            ),
            _runs(branch.runs()),
            _changes(branch),
            _NUMBER.pack(time_ms) if branch.timed else b"",
            *(_IDENTITY.pack(*found) for found in branch.identities),
        )
    )


def encode_rollback(transaction_number: int) -> bytes:
    return _NUMBER.pack(transaction_number)


def decode_branch(data: bytes, at: int = 0) -> tuple[Branch, int]:
    """Return the branch that begins there, and where it ends. RecordDamaged: the bytes are not a branch."""
    try:
        number, xid_bytes = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        xid = data[at : at + xid_bytes]
        at += xid_bytes
        branch = Branch(number, xid)
        (counted,) = _COUNT.unpack_from(data, at)
        at += _COUNT.size
        for _ in range(counted & ~_PROPERTIES_BIT):
            lane_number, position, messages, length = _PLACED.unpack_from(data, at)
            _check_slice(lane_number, 0, messages & ~_TIMED_BIT)
            branch.add(lane_number, position, messages & ~_TIMED_BIT, length, is_timed=messages >= _TIMED_BIT)
            at += _PLACED.size
        (count,) = _COUNT.unpack_from(data, at)
        at += _COUNT.size
        for _ in range(count):
            branch.identities.append(Identity(*_IDENTITY.unpack_from(data, at)))
            at += _IDENTITY.size
        runs, at = _decode_runs(data, at)
        if counted & _PROPERTIES_BIT:
            branch.properties, at = decode_changes(data, at)
    except struct.error:
        raise RecordDamaged("a transaction is incomplete") from None
    for lane_number, first, messages in runs:
        branch.acknowledge(lane_number, first, first + messages - 1)
    return branch, at


def _check_slice(lane_number: int, first: int, messages: int) -> None:
    check_run(lane_number, first, messages)
    if not 0 < messages <= SLICE_MESSAGES_MAX:
        raise RecordDamaged(f"a slice of {messages} messages cannot be")


def _decode_runs(data: bytes, at: int) -> tuple[list[LaneRun], int]:
    (count,) = _COUNT.unpack_from(data, at)
    at += _COUNT.size
    runs = []
    for _ in range(count):
        runs.append(LaneRun(*_RUN.unpack_from(data, at)))
        at += _RUN.size
        check_run(*runs[-1])
        if not runs[-1].messages:
            raise RecordDamaged("a run of a transaction cannot be")
    return runs, at


def decode_commit(data: bytes) -> CommitRecord:
    try:
        (number,) = _NUMBER.unpack_from(data)
        (counted,) = _COUNT.unpack_from(data, _NUMBER.size)
        at = _NUMBER.size + _COUNT.size
        slices = []
        for _ in range(counted & ~_PROPERTIES_BIT):
            lane_number, first, position, messages = _COMMITTED.unpack_from(data, at)
            _check_slice(lane_number, first, messages & ~_TIMED_BIT)
            slices.append(CommittedSlice(lane_number, first, position, messages & ~_TIMED_BIT, messages >= _TIMED_BIT))
            at += _COMMITTED.size
        acks, at = _decode_runs(data, at)
        properties = _NO_CHANGES
        if counted & _PROPERTIES_BIT:
            properties, at = decode_changes(data, at)
        time_ms = 0
        if any(committed.is_timed for committed in slices):
            (time_ms,) = _NUMBER.unpack_from(data, at)
            at += _NUMBER.size
    except struct.error:
        raise RecordDamaged("a commit is incomplete") from None
    if (len(data) - at) % _IDENTITY.size:
        raise RecordDamaged("bytes follow a commit")
    identities = [Identity(*fields) for fields in _IDENTITY.iter_unpack(data[at:])]
    return CommitRecord(number, slices, acks, time_ms, identities, properties)


def decode_rollback(data: bytes) -> int:
    if len(data) != _NUMBER.size:
        raise RecordDamaged("a rollback has another length")
    number: int = _NUMBER.unpack(data)[0]
    return number
