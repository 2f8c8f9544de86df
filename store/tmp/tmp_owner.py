"""TmpOwner: what one owner still holds in tmp-storage, found by sequence.

Shares are in the order of their sequences and never overlap: if a message is spilled between those of an older chunk,
the share of that chunk is split. A lookup is O(log shares), removing from the front is O(1) amortised.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import Final

from .chunk import Chunk, ChunkShare

_SLACK_MAX: Final = 64


class TmpOwner:
    """The shares of one owner. Not thread-safe: the state lock guards it."""

    __slots__ = ("_keys", "_shares", "_head")

    def __init__(self) -> None:
        # Lower bound of the first sequence of each share, above everything that the previous share holds.
        self._keys = array("q")
        self._shares: list[ChunkShare | None] = []
        # Index of the first share. Earlier ones were removed from the front.
        self._head = 0

    def __len__(self) -> int:
        """Return the number of shares."""
        return len(self._keys) - self._head

    def __iter__(self) -> Iterator[ChunkShare]:
        for at in range(self._head, len(self._shares)):
            yield self._share(at)

    @property
    def last(self) -> ChunkShare:
        """The share with the highest sequences. Requires: there is one."""
        return self._share(-1)

    def grows(self, chunk: Chunk | None) -> bool:
        """Return whether messages behind all of this chunk only enlarge the last share."""
        return chunk is not None and len(self) > 0 and self.last.chunk is chunk

    def within(self, first: int, last: int) -> Iterator[tuple[ChunkShare, int]]:
        """Yield each share that holds a message from first to last, with the bits of those, in order."""
        at = self._find(first)
        while at < len(self._keys) and self._keys[at] <= last:
            share = self._share(at)
            held = share.held & share.chunk.range(first, last)
            if held:
                yield share, held
            at += 1

    def forget_emptied(self, first: int, last: int) -> int:
        """Remove empty shares among those that `within` returned; return how many."""
        low = self._find(first)
        high = bisect_right(self._keys, last, low)
        emptied = [at for at in range(low, high) if not self._share(at).held]
        if len(emptied) == high - low:
            self._cut(low, high)
        else:
            for at in reversed(emptied):
                self._cut(at, at + 1)
        return len(emptied)

    def _cut(self, low: int, high: int) -> None:
        if low > self._head:
            del self._keys[low:high], self._shares[low:high]
            return
        self._shares[low:high] = [None] * (high - low)
        self._head = high
        if high == len(self._keys) or high > max(_SLACK_MAX, len(self._keys) // 2):
            del self._keys[:high], self._shares[:high]
            self._head = 0

    def pieces(self, sequences: Sequence[int]) -> tuple[list[tuple[int, int]], int]:
        """Split ascending sequences, none of them held, by how they fit between the shares.

        Return ranges (begin, end) of the argument, and how many shares must be split.
        """
        pieces: list[tuple[int, int]] = []
        splits = begin = 0
        while begin < len(sequences):
            sequence = sequences[begin]
            at = self._find(sequence)
            end = len(sequences)
            if at < len(self._keys):
                below, above = self._halves(at, sequence)
                if above:
                    splits += below > 0
                    end = bisect_left(sequences, ChunkShare(self._share(at).chunk, above).first_sequence, begin)
                elif at + 1 < len(self._keys):
                    end = bisect_left(sequences, self._keys[at + 1], begin)
            pieces.append((begin, end))
            begin = end
        return pieces, splits

    def insert(self, share: ChunkShare) -> None:
        """Add a share. Requires: it is one of the pieces that fit."""
        sequence, last_sequence = share.first_sequence, share.last_sequence
        at = self._find(sequence)
        if at < len(self._keys):
            below, above = self._halves(at, sequence)
            if below and above:
                split = self._share(at)
                split.held = below
                rest = ChunkShare(split.chunk, above)
                rest.chunk.shares.append(rest)
                self._put(at + 1, last_sequence + 1, rest)
            at += below > 0
        self._put(at, sequence, share)
        if at + 1 < len(self._keys) and self._keys[at + 1] <= last_sequence:
            self._keys[at + 1] = last_sequence + 1

    def _put(self, at: int, key: int, share: ChunkShare) -> None:
        self._keys.insert(at, key)
        self._shares.insert(at, share)

    def _halves(self, at: int, sequence: int) -> tuple[int, int]:
        """Return the bits of a share below a sequence and above it."""
        share = self._share(at)
        base = share.chunk.base
        assert not share.held & share.chunk.range(sequence, sequence), f"sequence {sequence} is held already"
        below = share.held & share.chunk.range(base, sequence - 1)
        return below, share.held & ~below

    def _find(self, sequence: int) -> int:
        """Return the index of the share that may hold a sequence: the last one with a key up to it, or the first."""
        return max(bisect_right(self._keys, sequence, self._head) - 1, self._head)

    def _share(self, at: int) -> ChunkShare:
        share = self._shares[at]
        assert share is not None
        return share

    def _check(self) -> None:
        assert len(self._keys) == len(self._shares) > self._head
        assert all(share is None for share in self._shares[: self._head])
        previous = -1
        for at in range(self._head, len(self._keys)):
            share = self._share(at)
            assert previous < self._keys[at] <= share.first_sequence
            assert share in share.chunk.shares
            previous = share.last_sequence
