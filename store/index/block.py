"""The block: the places of 512 consecutive sequences of one lane, and which of the messages are gone.

Blocks are aligned to sequences, which have no gaps, so a sequence finds its entry by arithmetic. Columns instead of
objects take 8 bytes for a message sent alone, and about 4.3 for each message in slices of 32. A slice never crosses a
block, so each record belongs to one block. Relocated messages have columns of their own; see index/relocated.py.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from typing import ClassVar, Final

from ..format.places import Extent, SingleRecords
from ..format.record import ENTRY_BYTES, SLICE_BYTES
from ..format.times import DUE, EXPIRY, NEVER, TIMES_BLOCKS, BlockTimes, packed_times
from ..numbering import BLOCK_MESSAGES, BLOCK_SHIFT
from ..structures.bits import first_run
from .relocated import CopiedRun, RelocatedPlaces

BLOCK_CHARGE_BYTES: Final = 5_632
"""Charge of a block of 512 messages sent alone: two columns with the growth reserve of array, the mask, the objects."""

RELOCATED_BLOCKS: Final = 3
"""A block with relocated messages counts as this many blocks in all: up to 512 runs of 16 bytes, in six columns."""

_HAS_STARTS: Final = 1
_HAS_RELOCATED: Final = 2
_HAS_TIMES: Final = 4
_HAS_TIMES_BYTE: Final = bytes((_HAS_TIMES,))
_PARTS_OFFSET: Final = 6
_PACKED: Final = struct.Struct("<HHHBB64s")


def packed_messages(packed: bytes) -> int:
    """Return how many messages a packed block has, including those that are gone."""
    return int.from_bytes(packed[:2], "little")


def packed_earliest(packed: bytes) -> tuple[int, int]:
    """Return when the first pending message of a packed block is due, and when the first one expires. 0 means never."""
    return packed_times(packed) if packed[_PARTS_OFFSET : _PARTS_OFFSET + 1] >= _HAS_TIMES_BYTE else (0, 0)


class BlockDamaged(Exception):
    """The packed bytes are not a block. Internal: the index is then rebuilt."""


class Block:
    """The places of the messages of one block. Not thread-safe: the state lock guards it.

    `number` is the sequence shifted right by BLOCK_SHIFT.
    """

    times_blocks: ClassVar[int] = TIMES_BLOCKS
    """A block with times counts as this many more blocks."""
    __slots__ = (
        "number",
        "offsets",
        "lengths",
        "starts",
        "data_log_starts",
        "data_logs",
        "gone",
        "is_dirty",
        "relocated",
        "times",
        "extra_blocks",
    )

    def __init__(self, number: int) -> None:
        self.number = number
        # Offset of each record in its data log; 0 stands for a range of holes.
        self.offsets = array("I")
        # Content bytes of each message. A hole (never seen, or lost) has 0 and is gone.
        self.lengths = array("I")
        # Index of the first message of each record. None: each message is a record of its own, and the offsets of
        # successive messages in one data log ascend. At the next data log they begin low again.
        self.starts: array[int] | None = None
        self.data_log_starts = array("H")
        # Data log of the messages that begin at the index in data_log_starts.
        self.data_logs = array("I")
        # One bit per message, set once it is acknowledged or removed for another reason.
        self.gone = 0
        self.is_dirty = False
        # Places of messages that are not where the columns say. None: there are none.
        self.relocated: RelocatedPlaces | None = None
        # When messages are due and expire. None: no message has such a time.
        self.times: BlockTimes | None = None
        # How many more blocks this one counts as, for its relocated messages and its times.
        self.extra_blocks = 0

    @property
    def pending_messages(self) -> int:
        """How many messages are not gone."""
        return len(self.lengths) - self.gone.bit_count()

    def begin_data_log(self, data_log: int) -> None:
        self.data_log_starts.append(len(self.lengths))
        self.data_logs.append(data_log)

    def add_slice(self, data_log: int, offset: int, lengths: array[int]) -> None:
        """Append one record of one or more messages."""
        is_in_newest = bool(self.data_logs) and self.data_logs[-1] == data_log
        if self.starts is None and (
            len(lengths) > 1
            or (is_in_newest and offset < self.offsets[-1])  # a transaction wrote it before the last record
        ):
            self.starts = array("H", range(len(self.offsets)))
        at = len(self.lengths)
        if not is_in_newest:
            self.begin_data_log(data_log)
        if self.starts is not None:
            self.starts.append(at)
        self.offsets.append(offset)
        self.lengths.extend(lengths)
        assert len(self.lengths) <= BLOCK_MESSAGES

    def add_singles(self, data_log: int, offsets: array[int], lengths: array[int]) -> None:
        """Append several records of one message each."""
        if not self.data_logs or self.data_logs[-1] != data_log:
            self.begin_data_log(data_log)
        at = len(self.lengths)
        if self.starts is not None:
            self.starts.extend(range(at, at + len(lengths)))
        self.offsets.extend(offsets)
        self.lengths.extend(lengths)
        assert len(self.lengths) <= BLOCK_MESSAGES

    def fill(self, index: int) -> None:
        """Make a hole of everything before index that was never seen: gone, and a record of its own at offset 0."""
        missing = index - len(self.lengths)
        if missing <= 0:
            return
        if self.starts is None:
            self.starts = array("H", range(len(self.offsets)))
        self.starts.append(len(self.lengths))
        self.offsets.append(0)
        self.gone |= ((1 << missing) - 1) << len(self.lengths)
        self.lengths.extend([0] * missing)

    def note_copy(self, data_log: int, offset: int, first: int, lengths: array[int]) -> None:
        """Note that one record has copies of the messages from index `first` on. Gone ones are pending again."""
        behind = first + len(lengths)
        self.fill(behind)
        self.lengths[first:behind] = lengths
        self.gone &= ~(((1 << len(lengths)) - 1) << first)
        if self.relocated is None:
            self.relocated = RelocatedPlaces()
        self.relocated.put(CopiedRun(first, behind - 1, first, len(lengths), data_log, offset))

    def data_log_runs(self, first: int, last: int) -> Iterator[tuple[int, int, int]]:
        """Yield (data log, first, last) for each range of first..last that is in one data log."""
        if self.relocated is None:
            return self._sent_data_log_runs(first, last)
        return self._data_log_runs(self.relocated, first, last)

    def _data_log_runs(self, relocated: RelocatedPlaces, first: int, last: int) -> Iterator[tuple[int, int, int]]:
        for stretch in relocated.within(first, last):
            yield from self._sent_data_log_runs(first, stretch.first - 1)
            yield stretch.data_log, stretch.first, stretch.last
            first = stretch.last + 1
        yield from self._sent_data_log_runs(first, last)

    def _sent_data_log_runs(self, first: int, last: int) -> Iterator[tuple[int, int, int]]:
        at = bisect_right(self.data_log_starts, first) - 1
        while first <= last:
            behind = self.data_log_starts[at + 1] if at + 1 < len(self.data_log_starts) else BLOCK_MESSAGES
            last_here = min(last, behind - 1)
            if at >= 0:
                yield self.data_logs[at], first, last_here
            first = last_here + 1
            at += 1

    def not_due_bits(self, low: int, high: int) -> int:
        """Return a bit for each message from index low to high that is not due yet; the lowest bit is for the first."""
        if self.times is None:
            return 0
        return self.times.not_due_bits >> low & (1 << (high - low + 1)) - 1

    def pending_run(self, first: int, most: int) -> tuple[int, int] | None:
        """Return the first run of pending messages at or behind index `first`, cut to `most`. None: there is none."""
        end = len(self.lengths)
        if first >= end:
            return None
        present = ~self.gone & ((1 << end) - 1)
        present = present >> first << first
        return first_run(present, most) if present else None

    def extents(self, first: int, last: int) -> Iterator[Extent | SingleRecords]:
        """Yield where first..last are. Requires: all of them are pending, so none is a hole."""
        return self._sent_extents(first, last) if self.relocated is None else self._extents(self.relocated, first, last)

    def _extents(self, relocated: RelocatedPlaces, first: int, last: int) -> Iterator[Extent | SingleRecords]:
        base = self.number << BLOCK_SHIFT
        for low, high, begin, messages, data_log, offset in relocated.within(first, last):
            yield from self._sent_extents(first, low - 1)
            size = SLICE_BYTES + ENTRY_BYTES * messages + sum(self.lengths[begin : begin + messages])
            yield Extent(data_log, offset, size, messages, low - begin, base + low, high - low + 1)
            first = high + 1
        yield from self._sent_extents(first, last)

    def _sent_extents(self, first: int, last: int) -> Iterator[Extent | SingleRecords]:
        base = self.number << BLOCK_SHIFT
        starts, offsets, lengths = self.starts, self.offsets, self.lengths
        for data_log, low, high in self._sent_data_log_runs(first, last):
            if starts is None:
                yield SingleRecords(data_log, base + low, offsets[low : high + 1], lengths[low : high + 1])
                continue
            record = bisect_right(starts, low) - 1
            while low <= high:
                start = starts[record]
                behind = starts[record + 1] if record + 1 < len(starts) else len(lengths)
                count = min(high + 1, behind) - low
                messages = behind - start
                size = SLICE_BYTES + ENTRY_BYTES * messages + sum(lengths[start:behind])
                yield Extent(data_log, offsets[record], size, messages, low - start, base + low, count)
                low += count
                record += 1

    def pack(self) -> bytes:
        """Pack the block into bytes.

        The lengths take only as many byte planes as the greatest one needs, because most are below 64 KiB.
        """
        starts = self.starts
        lengths = self.lengths.tobytes()
        planes = [lengths[plane::4] for plane in range(4)]
        while planes and not planes[-1].strip(b"\0"):
            planes.pop()
        times = self.times.pack(len(self.lengths), self.gone) if self.times is not None else b""
        return b"".join(
            (
                _PACKED.pack(
                    len(self.lengths),
                    len(self.offsets),
                    len(self.data_logs),
                    (_HAS_STARTS if starts is not None else 0)
                    | (_HAS_RELOCATED if self.relocated is not None else 0)
                    | (_HAS_TIMES if times else 0),
                    len(planes),
                    self.gone.to_bytes(64, "little"),
                ),
                *planes,
                self.offsets.tobytes(),
                self.data_logs.tobytes(),
                self.data_log_starts.tobytes(),
                starts.tobytes() if starts is not None else b"",
                self.relocated.pack() if self.relocated is not None else b"",
                times,
            )
        )

    @classmethod
    def unpack(cls, block_number: int, data: bytes) -> Block:
        """Return the block in these bytes. Raises BlockDamaged if `pack` can't have made them."""
        if len(data) < _PACKED.size:
            raise BlockDamaged("too short")
        messages, records, data_log_count, parts, planes, gone = _PACKED.unpack_from(data)
        has_starts, has_relocated = parts & _HAS_STARTS, parts & _HAS_RELOCATED
        times = None
        if parts & _HAS_TIMES:
            unpacked = BlockTimes.unpack(data, messages, int.from_bytes(gone, "little"))
            if unpacked is None or messages > BLOCK_MESSAGES:
                raise BlockDamaged("its times do not add up")
            times, begin = unpacked
            data = data[:begin]
        end = _PACKED.size + planes * messages + 4 * records + 6 * data_log_count + (2 * records if has_starts else 0)
        is_long_enough = len(data) >= end if has_relocated else len(data) == end
        if messages > BLOCK_MESSAGES or planes > 4 or parts > 7 or not is_long_enough:
            raise BlockDamaged("its parts do not add up")
        block = cls(block_number)
        at = block._unpack_lengths(data, messages, planes)
        for column, count in (
            (block.offsets, records),
            (block.data_logs, data_log_count),
            (block.data_log_starts, data_log_count),
        ):
            size = count * column.itemsize
            column.frombytes(data[at : at + size])
            at += size
        if has_starts:
            block.starts = array("H")
            block.starts.frombytes(data[at:end])
        if has_relocated:
            block.relocated = RelocatedPlaces.unpack(data[end:])
            if block.relocated is None:
                raise BlockDamaged("what moved does not add up")
            block.extra_blocks += RELOCATED_BLOCKS - 1
        if times is not None:
            block.times = times
            block.extra_blocks += TIMES_BLOCKS
        block.gone = int.from_bytes(gone, "little")
        if not block._is_sound():
            raise BlockDamaged("its parts contradict each other")
        return block

    def _unpack_lengths(self, data: bytes, messages: int, planes: int) -> int:
        """Take in the lengths, of which each plane has one byte of every message; return where they end."""
        at = _PACKED.size
        lengths = bytearray(4 * messages)
        for plane in range(planes):
            lengths[plane::4] = data[at : at + messages]
            at += messages
        self.lengths.frombytes(lengths)
        return at

    def _is_sound(self) -> bool:
        """Return whether every message has a record, and every message that is not a hole has a data log."""
        messages = len(self.lengths)
        if self.starts is None:
            has_records = len(self.offsets) == messages
        else:
            has_records = len(self.offsets) == len(self.starts) and _divides(self.starts, messages)
            has_records = has_records and self.starts[:1] == array("H", (0,) if messages else ())
        unfiled = (1 << (self.data_log_starts[0] if self.data_log_starts else messages)) - 1
        if self.relocated is not None:
            if not self.relocated.is_sound(messages):
                return False
            unfiled &= ~self.relocated.mask
        return (
            has_records
            and messages <= BLOCK_MESSAGES
            and not self.gone >> messages
            and unfiled & self.gone == unfiled
            and len(self.data_log_starts) == len(self.data_logs)
            and _divides(self.data_log_starts, messages)
        )

    def _check(self) -> None:
        assert self._is_sound()


class DelayedBlock(Block):
    """When messages of one block of a lane come back. Their places are in the lane's own block."""

    __slots__ = ()
    times_blocks = 0

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.times = BlockTimes()

    def pack(self) -> bytes:
        """Pack the block, which has nothing but times. Requires: a message waits."""
        assert self.times is not None
        head = _PACKED.pack(BLOCK_MESSAGES, 0, 0, _HAS_TIMES, 0, bytes(64))
        return head + self.times.pack(BLOCK_MESSAGES, 0)

    @classmethod
    def unpack(cls, block_number: int, data: bytes) -> DelayedBlock:
        """Return the block in these bytes. Raises BlockDamaged if `pack` can't have made them."""
        block = cls(block_number)
        unpacked = BlockTimes.unpack(data, BLOCK_MESSAGES, 0)
        if unpacked is None or data[: unpacked[1]] != _PACKED.pack(BLOCK_MESSAGES, 0, 0, _HAS_TIMES, 0, bytes(64)):
            raise BlockDamaged("when messages come back does not add up")
        times, _ = unpacked
        if times.earliest[EXPIRY] != NEVER or not times.not_due_bits:
            raise BlockDamaged("nothing comes back")
        del times.columns[EXPIRY][:]
        block.times = times
        return block

    def _check(self) -> None:
        assert self.times is not None and self.times.not_due_bits and not self.times.columns[EXPIRY]
        column = self.times.columns[DUE]
        assert self.times.not_due_bits == sum(1 << index for index, due in enumerate(column) if due)


def _divides(starts: array[int], messages: int) -> bool:
    """Return whether ranges of messages can begin at these indexes."""
    ascending = sorted(set(starts))
    return starts.tolist() == ascending and ascending[-1:] < [messages]
