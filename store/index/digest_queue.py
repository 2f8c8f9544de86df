"""DigestQueue: digests in the order in which they came, each found without a search, in under 32 bytes.

The digests stand in one ring, and what the ring has is found by buckets of (tag, position), each short enough to be
searched by bytes.find. The number of buckets grows and shrinks one at a time (linear hashing; Litwin, 1980), so no call
has to move all of them. As entries of a bucket stand in the order of the ring, the oldest digest is the first of its
bucket.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ..format.identity import DIGEST_BYTES

TAG_BYTES: Final = 2
ENTRY_BYTES: Final = TAG_BYTES + 4
BUCKET_DIGESTS: Final = 64
"""On average; with half as many two buckets become one."""
STAMP_BYTES: Final = 4
MASK: Final = (1 << 32) - 1


class DigestQueue:
    """First in, first out. Every method is O(1) but `pieces`; no digest may be in it twice."""

    __slots__ = ("_digests", "_stamps", "_first", "_buckets")

    def __init__(self) -> None:
        self._digests = bytearray()
        self._stamps = bytearray()
        """When each came, by the caller's count modulo 2^32."""
        self._first = 0
        """The position of the oldest, modulo 2^32."""
        self._buckets = [bytearray()]

    def __len__(self) -> int:
        return len(self._stamps) // STAMP_BYTES

    @property
    def oldest_stamp(self) -> int:
        """When the oldest came. Requires: there is one."""
        return int.from_bytes(self._stamps[:STAMP_BYTES], "little")

    def has(self, digest: bytes) -> bool:
        """Return whether the digest is here."""
        bucket = self._buckets[_bucket_of(digest, len(self._buckets))]
        tag = digest[:TAG_BYTES]
        at = bucket.find(tag)
        while at >= 0:
            if at % ENTRY_BYTES == 0 and self._digests.startswith(digest, self._place_of(bucket, at) * DIGEST_BYTES):
                return True
            at = bucket.find(tag, at + 1)
        return False

    def append(self, digest: bytes, stamp: int) -> None:
        """Add a digest that is not here."""
        position = (self._first + len(self)) & MASK
        bucket = self._buckets[_bucket_of(digest, len(self._buckets))]
        bucket += digest[:TAG_BYTES] + position.to_bytes(4, "little")
        self._digests += digest
        self._stamps += (stamp & MASK).to_bytes(STAMP_BYTES, "little")
        if len(self) > len(self._buckets) * BUCKET_DIGESTS:
            self._split()

    def drop_oldest(self) -> None:
        """Remove the digest that came first. Requires: there is one."""
        bucket = self._buckets[_bucket_of(bytes(self._digests[:DIGEST_BYTES]), len(self._buckets))]
        del bucket[:ENTRY_BYTES], self._digests[:DIGEST_BYTES], self._stamps[:STAMP_BYTES]
        self._first = (self._first + 1) & MASK
        if len(self._buckets) > 1 and len(self) < len(self._buckets) * BUCKET_DIGESTS // 2:
            self._join()

    def pieces(self, size: int) -> Iterator[tuple[int, bytes]]:
        """Yield the stamp of the first of `size` digests, and all of them joined, the oldest first. O(digests)."""
        for at in range(0, len(self), size):
            stamp = int.from_bytes(self._stamps[at * STAMP_BYTES : (at + 1) * STAMP_BYTES], "little")
            yield stamp, bytes(self._digests[at * DIGEST_BYTES : (at + size) * DIGEST_BYTES])

    def _place_of(self, bucket: bytearray, at: int) -> int:
        """Return how many digests came before that of an entry."""
        return (int.from_bytes(bucket[at + TAG_BYTES : at + ENTRY_BYTES], "little") - self._first) & MASK

    def _split(self) -> None:
        """Give a new bucket its part of that which had its digests so far."""
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
        """Give the digests of the last bucket back to that which it took them from."""
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
    """Return which of so many buckets a digest belongs to."""
    high = 1 << (count - 1).bit_length()
    number = int.from_bytes(digest[TAG_BYTES : TAG_BYTES + 4], "little") & (high - 1)
    return number if number < count else number - (high >> 1)
