"""DigestQueue: a first-in, first-out queue of digests that finds each digest without a search, in under 32 bytes.

The digests stand in one ring. Buckets of (tag, position) entries find a digest in the ring. Each bucket is short enough
to be searched by bytes.find. The number of buckets grows and shrinks one at a time (linear hashing; Litwin, 1980), so
no call has to move all entries. Entries of a bucket stand in the order of the ring, so the oldest digest is the first
of its bucket.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ..format.identity import DIGEST_BYTES

TAG_BYTES: Final = 2
ENTRY_BYTES: Final = TAG_BYTES + 4
BUCKET_DIGESTS: Final = 64
"""Average digests of a bucket when buckets split. At half of it two buckets become one."""
STAMP_BYTES: Final = 4
MASK: Final = (1 << 32) - 1


class DigestQueue:
    """A first-in, first-out queue of digests. Every method but `pieces` is O(1). No digest may be in it twice."""

    __slots__ = ("_digests", "_stamps", "_first", "_buckets")

    def __init__(self) -> None:
        self._digests = bytearray()
        # The stamp of each digest: the caller's count modulo 2^32.
        self._stamps = bytearray()
        # The position of the oldest digest, modulo 2^32.
        self._first = 0
        self._buckets = [bytearray()]

    def __len__(self) -> int:
        return len(self._stamps) // STAMP_BYTES

    @property
    def oldest_stamp(self) -> int:
        """The stamp of the oldest digest. Requires: the queue is not empty."""
        return int.from_bytes(self._stamps[:STAMP_BYTES], "little")

    def has(self, digest: bytes) -> bool:
        """Return whether the queue has the digest."""
        bucket = self._buckets[_bucket_of(digest, len(self._buckets))]
        tag = digest[:TAG_BYTES]
        at = bucket.find(tag)
        while at >= 0:
            if at % ENTRY_BYTES == 0 and self._digests.startswith(digest, self._place_of(bucket, at) * DIGEST_BYTES):
                return True
            at = bucket.find(tag, at + 1)
        return False

    def append(self, digest: bytes, stamp: int) -> None:
        """Add a digest that the queue does not have."""
        position = (self._first + len(self)) & MASK
        bucket = self._buckets[_bucket_of(digest, len(self._buckets))]
        bucket += digest[:TAG_BYTES] + position.to_bytes(4, "little")
        self._digests += digest
        self._stamps += (stamp & MASK).to_bytes(STAMP_BYTES, "little")
        if len(self) > len(self._buckets) * BUCKET_DIGESTS:
            self._split()

    def drop_oldest(self) -> None:
        """Remove the oldest digest. Requires: the queue is not empty."""
        bucket = self._buckets[_bucket_of(bytes(self._digests[:DIGEST_BYTES]), len(self._buckets))]
        del bucket[:ENTRY_BYTES], self._digests[:DIGEST_BYTES], self._stamps[:STAMP_BYTES]
        self._first = (self._first + 1) & MASK
        if len(self._buckets) > 1 and len(self) < len(self._buckets) * BUCKET_DIGESTS // 2:
            self._join()

    def pieces(self, size: int) -> Iterator[tuple[int, bytes]]:
        """Yield (stamp of the first, joined digests) of each `size` digests, the oldest first. O(digests)."""
        for at in range(0, len(self), size):
            stamp = int.from_bytes(self._stamps[at * STAMP_BYTES : (at + 1) * STAMP_BYTES], "little")
            yield stamp, bytes(self._digests[at * DIGEST_BYTES : (at + size) * DIGEST_BYTES])

    def _place_of(self, bucket: bytearray, at: int) -> int:
        """Return how many digests of the queue are older than the one of an entry."""
        return (int.from_bytes(bucket[at + TAG_BYTES : at + ENTRY_BYTES], "little") - self._first) & MASK

    def _split(self) -> None:
        """Add a bucket, and move to it its part of the digests of an older bucket."""
        count = len(self._buckets)
        source = count - (1 << (count.bit_length() - 1))
        both = self._buckets[source]
        parts = bytearray(), bytearray()
        for at in range(0, len(both), ENTRY_BYTES):
            place = self._place_of(both, at) * DIGEST_BYTES
            is_moved = _bucket_of(bytes(self._digests[place : place + DIGEST_BYTES]), count + 1) == count
            parts[is_moved].extend(both[at : at + ENTRY_BYTES])
        self._buckets[source] = parts[0]
        self._buckets.append(parts[1])

    def _join(self) -> None:
        """Remove the last bucket, and give its digests back to the bucket that it was split from."""
        last = self._buckets.pop()
        count = len(self._buckets)
        both = self._buckets[count - (1 << (count.bit_length() - 1))] + last
        ats = sorted(range(0, len(both), ENTRY_BYTES), key=lambda at: self._place_of(both, at))
        joined = b"".join([both[at : at + ENTRY_BYTES] for at in ats])
        self._buckets[count - (1 << (count.bit_length() - 1))] = bytearray(joined)

    def _check(self) -> None:
        digests = [bytes(self._digests[at : at + DIGEST_BYTES]) for at in range(0, len(self._digests), DIGEST_BYTES)]
        assert len(digests) == len(self) == len(set(digests))
        found: list[int] = []
        for number, bucket in enumerate(self._buckets):
            places = [self._place_of(bucket, at) for at in range(0, len(bucket), ENTRY_BYTES)]
            assert places == sorted(places)
            for place, at in zip(places, range(0, len(bucket), ENTRY_BYTES), strict=True):
                assert _bucket_of(digests[place], len(self._buckets)) == number
                assert digests[place].startswith(bucket[at : at + TAG_BYTES])
            found += places
        assert sorted(found) == list(range(len(self)))


def _bucket_of(digest: bytes, count: int) -> int:
    """Return the number of the bucket for a digest, among that many buckets."""
    high = 1 << (count - 1).bit_length()
    number = int.from_bytes(digest[TAG_BYTES : TAG_BYTES + 4], "little") & (high - 1)
    return number if number < count else number - (high >> 1)
