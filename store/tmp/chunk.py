"""Chunk: the places of up to 512 spilled messages of one file, and how many owners each message still has.

A chunk has columns instead of objects, 8 bytes for each message, and the message's index in the columns finds it. If
messages are contiguous in the file, their offsets are sums of lengths. Otherwise the chunk has a column of offsets too,
4 bytes more per message.

The number of owners of each message is kept in bit planes: bit i of plane p counts 2**p owners of message i. So
removing any set of messages from one owner is a subtraction of a few ints, however many messages and owners there are.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from itertools import accumulate
from typing import Final

from ..structures.bits import runs_of_ones

CHUNK_MESSAGES_MAX: Final = 512
CHUNK_BYTES_MAX: Final = 1024 * 1024
"""Most live bytes of a chunk, unless one message has more: one step of rewriting moves at least a chunk."""
SEQUENCE_SPREAD_MAX: Final = (1 << 32) - 1


class TmpFile:
    """One file of tmp-storage. Not thread-safe: the state lock guards it."""

    __slots__ = ("number", "salt", "size", "live_bytes", "chunks", "is_damaged")

    def __init__(self, number: int, salt: int) -> None:
        self.number = number
        self.salt = salt
        # Bytes that the file takes on the disk, live or not.
        self.size = 0
        # Bytes of messages that still have an owner.
        self.live_bytes = 0
        # Chunks in the file, oldest first.
        self.chunks: dict[Chunk, None] = {}
        # Whether a part could not be read for a rewrite. The file then stays until its messages are consumed.
        self.is_damaged = False


class ChunkShare:
    """A mask of the messages of one chunk, or of a range of its sequences, that one owner still holds."""

    __slots__ = ("chunk", "held")

    def __init__(self, chunk: Chunk, held: int) -> None:
        self.chunk = chunk
        self.held = held

    @property
    def first_sequence(self) -> int:
        return self.chunk.base + self.chunk.sequences[(self.held & -self.held).bit_length() - 1]

    @property
    def last_sequence(self) -> int:
        return self.chunk.base + self.chunk.sequences[self.held.bit_length() - 1]


class Chunk:
    """The places of messages of one file. Not thread-safe: the state lock guards it."""

    __slots__ = (
        "file",
        "base",
        "sequences",
        "lengths",
        "_begins_at",
        "_offsets",
        "owner_planes",
        "shares",
        "live_bytes",
    )

    def __init__(self, file: TmpFile, base: int) -> None:
        self.file = file
        # The first sequence.
        self.base = base
        # Sequence of each message minus the base, ascending.
        self.sequences = array("I")
        # Bytes of each message on disk, including the head.
        self.lengths = array("I")
        # Offset of the first message in the file.
        self._begins_at = 0
        # Offset of each message, ascending. Empty while each message begins where the previous one ends.
        self._offsets = array("I")
        self.owner_planes: list[int] = []
        # Shares of all owners. The planes count in how many of them each message is.
        self.shares: list[ChunkShare] = []
        self.live_bytes = 0

    def __len__(self) -> int:
        """Return the number of messages, including those that are gone."""
        return len(self.lengths)

    def add(self, sequences: Iterable[int], offset: int, lengths: Iterable[int], held: Iterable[int]) -> int:
        """Append messages, which are contiguous from offset on; return the index of the first one.

        held: for each owner, a mask of those that it holds.
        """
        at = len(self.lengths)
        base = self.base
        if not at:
            self._begins_at = offset
        elif offset != self.ends_at and not self._offsets:
            self._offsets = array("I", self.offsets(0, at))
        self.sequences.extend(array("I", [sequence - base for sequence in sequences]))
        self.lengths.extend(array("I", lengths))
        if self._offsets:
            self._offsets.extend(array("I", self._sums(offset, at)))
        added_bytes = sum(self.lengths[at:])
        self.live_bytes += added_bytes
        self.file.live_bytes += added_bytes
        planes = self.owner_planes
        for bits in held:
            carry = bits << at
            for number, plane in enumerate(planes):
                planes[number] = plane ^ carry
                carry &= plane
                if not carry:
                    break
            if carry:
                planes.append(carry)
        return at

    @property
    def is_scattered(self) -> bool:
        """Whether messages of other chunks are, or were, between the messages of this one."""
        return bool(self._offsets)

    @property
    def ends_at(self) -> int:
        """The offset behind the last message."""
        return self._offsets[-1] + self.lengths[-1] if self._offsets else self._begins_at + sum(self.lengths)

    def offsets(self, low: int, high: int) -> list[int]:
        """Return the offsets of the messages at indices low to high, exclusively. O(512)."""
        if self._offsets:
            return list(self._offsets[low:high])
        return self._sums(self._begins_at + sum(self.lengths[:low]), low, high)

    def _sums(self, offset: int, low: int, high: int = CHUNK_MESSAGES_MAX) -> list[int]:
        """Return the offsets of contiguous messages. offset: that of the first."""
        return list(accumulate(self.lengths[low:high], initial=offset))[:-1]

    def range(self, first: int, last: int) -> int:
        """Return a mask of the messages with sequences first to last."""
        base = self.base
        low = bisect_left(self.sequences, first - base)
        high = bisect_right(self.sequences, last - base)
        return (1 << high) - (1 << low) if low < high else 0

    def drop_owner(self, messages: int) -> int:
        """Note that one owner less holds the messages in a mask. Return how many of them have no owner any more."""
        planes = self.owner_planes
        borrow = messages
        for at, plane in enumerate(planes):
            planes[at] = plane ^ borrow
            borrow &= planes[at]
            if not borrow:
                break
        assert not borrow, "a message was let go by more than held it"
        live = self.live
        gone = messages & ~live
        if gone:
            gone_bytes = self._bytes(gone) if live else self.live_bytes
            self.live_bytes -= gone_bytes
            self.file.live_bytes -= gone_bytes
        return gone.bit_count()

    @property
    def live(self) -> int:
        """A mask of the messages that have an owner."""
        live = 0
        for plane in self.owner_planes:
            live |= plane
        return live

    def move(self, file: TmpFile, offset: int) -> None:
        """Note that the live messages are in another file now, contiguous from offset on. Forget the dead ones."""
        kept = [index for first, last in runs_of_ones(self.live) for index in range(first, last + 1)]
        del self.file.chunks[self]
        self.file.live_bytes -= self.live_bytes
        file.chunks[self] = None
        file.live_bytes += self.live_bytes
        self.file = file
        self.sequences = array("I", [self.sequences[index] for index in kept])
        self.lengths = array("I", [self.lengths[index] for index in kept])
        self._begins_at = offset
        self._offsets = array("I")
        self.owner_planes = [_gathered(plane, kept) for plane in self.owner_planes]
        for share in self.shares:
            share.held = _gathered(share.held, kept)

    def _bytes(self, messages: int) -> int:
        return sum([sum(self.lengths[first : last + 1]) for first, last in runs_of_ones(messages)])

    def _check(self) -> None:
        count = len(self.lengths)
        offsets = self.offsets(0, count)
        assert 0 < count == len(self.sequences) == len(offsets) <= CHUNK_MESSAGES_MAX
        assert list(self.sequences) == sorted(set(self.sequences))
        ends = [offset + length for offset, length in zip(offsets, self.lengths, strict=True)]
        assert offsets[0] == self._begins_at and ends[-1] == self.ends_at
        assert all(end <= offset for end, offset in zip(ends, offsets[1:], strict=False))
        assert self.is_scattered == any(end < offset for end, offset in zip(ends, offsets[1:], strict=False))
        assert self.live and not self.live >> count and ends[self.live.bit_length() - 1] <= self.file.size
        assert self.live_bytes == self._bytes(self.live)
        assert self in self.file.chunks
        for index in range(count):
            owners = sum((plane >> index & 1) << at for at, plane in enumerate(self.owner_planes))
            assert owners == sum(share.held >> index & 1 for share in self.shares)


def _gathered(bits: int, kept: list[int]) -> int:
    """Return the bits at the kept indices, moved together."""
    return sum((bits >> index & 1) << at for at, index in enumerate(kept))
