"""What the store must know besides its messages: destinations, next sequences, which data logs exist.

The state record that opens each data log restates it, so that older ones may
be deleted; the root of the metadata store holds it too, with the counters
that let a clean open read no message.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from .branch import Branch, decode_branch, encode_branch
from .record import RecordDamaged

QUEUE: Final = 0
NAME_BYTES_MAX: Final = 255

_DESTINATION: Final = struct.Struct("<IBB")
_COUNT: Final = struct.Struct("<I")
_SEQUENCE: Final = struct.Struct("<Q")
_LANE: Final = struct.Struct("<QQ")
_COUNTED_LANE: Final = struct.Struct("<QQQQ")
_USE: Final = struct.Struct("<IQQII")


class Destination(NamedTuple):
    number: int
    kind: int
    name: str


def encode_destination(destination: Destination) -> bytes:
    name = destination.name.encode()
    return _DESTINATION.pack(destination.number, destination.kind, len(name)) + name


@dataclass(slots=True)
class State:
    """next_sequences: lane number -> next sequence. data_logs: those that exist, the newest included."""

    destinations: list[Destination] = field(default_factory=list)
    next_sequences: dict[int, int] = field(default_factory=dict)
    data_logs: list[int] = field(default_factory=list)
    branches: list[Branch] = field(default_factory=list)
    """Prepared ones; in the root those that are open too."""
    open_transactions: list[int] = field(default_factory=list)
    """Numbers of those that may still be committed, prepared ones left out. Slices of all others count for nothing."""
    next_log_sequence: int = 0
    """In the root alone: of the record that follows the checkpoint."""


class LaneCounts(NamedTuple):
    lane: int
    next_sequence: int
    pending_messages: int
    pending_bytes: int


class UseCounts(NamedTuple):
    data_log: int
    pending_messages: int
    pending_bytes: int
    acked_data_logs: tuple[int, ...]
    committed_data_logs: tuple[int, ...] = ()


def encode_state(state: State) -> bytes:
    return b"".join(
        (
            _COUNT.pack(len(state.destinations)),
            *map(encode_destination, state.destinations),
            _COUNT.pack(len(state.next_sequences)),
            *(_LANE.pack(lane, sequence) for lane, sequence in state.next_sequences.items()),
            _COUNT.pack(len(state.data_logs)),
            struct.pack(f"<{len(state.data_logs)}I", *state.data_logs),
            _COUNT.pack(len(state.branches)),
            *map(encode_branch, state.branches),
            _COUNT.pack(len(state.open_transactions)),
            *map(_SEQUENCE.pack, state.open_transactions),
        )
    )


def encode_root(state: State, lanes: Iterable[LaneCounts], uses: Iterable[UseCounts]) -> bytes:
    """What a checkpoint stores beside the blocks."""
    packed_lanes = [_COUNTED_LANE.pack(*lane) for lane in lanes]
    packed_uses = [
        _USE.pack(
            use.data_log,
            use.pending_messages,
            use.pending_bytes,
            len(use.acked_data_logs),
            len(use.committed_data_logs),
        )
        + struct.pack(f"<{len(use.acked_data_logs)}I", *use.acked_data_logs)
        + struct.pack(f"<{len(use.committed_data_logs)}I", *use.committed_data_logs)
        for use in uses
    ]
    return b"".join(
        (
            encode_state(state),
            _SEQUENCE.pack(state.next_log_sequence),
            _COUNT.pack(len(packed_lanes)),
            *packed_lanes,
            _COUNT.pack(len(packed_uses)),
            *packed_uses,
        )
    )


class _Reader:
    """Takes numbers from the front of bytes that may lie; RecordDamaged instead of reading beyond them."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, size: int) -> bytes:
        part = self._data[self._at : self._at + size]
        if len(part) < size:
            raise RecordDamaged("the state is incomplete")
        self._at += size
        return part

    def numbers(self, form: struct.Struct) -> tuple[int, ...]:
        return form.unpack(self.take(form.size))

    def count(self) -> int:
        return self.numbers(_COUNT)[0]

    def ids(self, count: int) -> tuple[int, ...]:
        return struct.unpack(f"<{count}I", self.take(4 * count))

    def destination(self) -> Destination:
        number, kind, size = self.numbers(_DESTINATION)
        try:
            return Destination(number, kind, str(self.take(size), "utf-8"))
        except UnicodeDecodeError:
            raise RecordDamaged("the name of a destination is not text") from None

    def state(self) -> State:
        destinations = [self.destination() for _ in range(self.count())]
        next_sequences = {}
        for _ in range(self.count()):
            lane, sequence = self.numbers(_LANE)
            next_sequences[lane] = sequence
        data_logs = list(self.ids(self.count()))
        branches = [self.branch() for _ in range(self.count())]
        open_transactions = [self.numbers(_SEQUENCE)[0] for _ in range(self.count())]
        return State(destinations, next_sequences, data_logs, branches, open_transactions)

    def branch(self) -> Branch:
        branch, self._at = decode_branch(self._data, self._at)
        return branch


def decode_destination(data: bytes) -> Destination:
    return _Reader(data).destination()


def decode_state(data: bytes) -> State:
    return _Reader(data).state()


def decode_root(data: bytes) -> tuple[State, list[LaneCounts], list[UseCounts]]:
    reader = _Reader(data)
    state = reader.state()
    (state.next_log_sequence,) = reader.numbers(_SEQUENCE)
    lanes = [LaneCounts(*reader.numbers(_COUNTED_LANE)) for _ in range(reader.count())]
    uses = []
    for _ in range(reader.count()):
        data_log, messages, size, acked, committed = reader.numbers(_USE)
        uses.append(UseCounts(data_log, messages, size, reader.ids(acked), reader.ids(committed)))
    return state, lanes, uses
