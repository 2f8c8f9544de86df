"""MemoryMetadataStore: the metadata store without an index on disk. Its rows are in RAM and end with the process.

Every open replays the whole journal. Acks must always find room. So from three quarters of the capacity on,
`is_filling` asks for no further messages, and the last quarter is for the rows of existing ones.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Final

from ..index.fingerprints import Row as FingerprintRow
from ..numbering import UNLIMITED
from .checksum import row_of, timed_rows
from .metadata_store import MetadataDamaged, MetadataFull, Snapshot

ROW_BYTES: Final = 256
"""Memory of a row in addition to its content: its place, its slot in the table, and the objects' heads."""


class MemoryMetadataStore:
    """A metadata store whose rows are in RAM. Its maker has charged `capacity_bytes`."""

    is_persistent = False

    def __init__(self, capacity_bytes: int = UNLIMITED) -> None:
        self._capacity_bytes = capacity_bytes
        self._rows: dict[tuple[int, int], bytes] = {}
        self._fingerprints: dict[tuple[int, int], dict[str, bytes]] = {}
        # Bytes of fingerprints, which held_bytes includes.
        self._fingerprint_bytes = 0
        self.held_bytes = 0

    @property
    def is_filling(self) -> bool:
        """Whether no further blocks should come until some are deleted."""
        return 4 * self.held_bytes > 3 * self._capacity_bytes

    def load(self) -> Snapshot | None:
        """Return None, because nothing was kept."""
        return None

    def commit(
        self,
        position: int,
        epoch: int,
        root: bytes,
        puts: Sequence[tuple[int, int, bytes]],
        deletes: Sequence[tuple[int, int]] = (),
        fingerprints: Sequence[FingerprintRow] = (),
    ) -> None:
        """Replace the rows, all or nothing. Position and root are not used. MetadataFull: above the capacity."""
        doomed = {place for place in deletes if place in self._rows}
        replaced = {(lane_number, block) for lane_number, block, _ in puts if (lane_number, block) in self._rows}
        held_bytes = self.held_bytes + sum(len(packed) + ROW_BYTES for _, _, packed in puts)
        held_bytes -= sum(len(self._rows[place]) + ROW_BYTES for place in doomed | replaced)
        if held_bytes > self._capacity_bytes:
            raise MetadataFull(
                f"the index in memory needs {held_bytes} bytes, an eighth of memory_limit is {self._capacity_bytes}: "
                "open with a larger one, or with persistent_index=True"
            )
        for place in doomed:
            del self._rows[place]
        self._rows.update({(lane_number, block): packed for lane_number, block, packed in puts})
        self.held_bytes = held_bytes
        for place in doomed:
            for name, data in self._fingerprints.pop(place, {}).items():
                self._count(-_fingerprint_bytes(name, data))
        for lane_number, block, name, data in fingerprints:
            self._keep_fingerprint((lane_number, block), name, data)

    def _keep_fingerprint(self, place: tuple[int, int], name: str, data: bytes) -> None:
        """Keep a fingerprint if all of them take at most an eighth, and half of the capacity stays free."""
        size = _fingerprint_bytes(name, data)
        is_affordable = 8 * (self._fingerprint_bytes + size) <= self._capacity_bytes
        if is_affordable and 2 * (self.held_bytes + size) <= self._capacity_bytes:
            held = self._fingerprints.setdefault(place, {})
            if name in held:
                self._count(-_fingerprint_bytes(name, held[name]))
            held[name] = data
            self._count(size)

    def _count(self, size: int) -> None:
        self._fingerprint_bytes += size
        self.held_bytes += size

    def fingerprints(self, lane_number: int, first: int, last: int, names: Set[str]) -> list[tuple[int, str, bytes]]:
        """Return (block, name, bytes) of the fingerprints for these headers in these blocks. O(blocks)."""
        held = self._fingerprints
        places = ((lane_number, block) for block in range(first, last + 1)) if held else ()
        return [
            (place[1], name, data) for place in places for name, data in held.get(place, {}).items() if name in names
        ]

    def read_block(self, lane_number: int, block: int) -> bytes:
        """Return a block as it was put. MetadataDamaged: it is absent."""
        packed = self._rows.get((lane_number, block))
        if packed is None:
            raise MetadataDamaged(f"block {block} of lane {lane_number} is absent")
        return packed

    def timed(
        self, kind: int, lane_number: int, behind: tuple[int, int], until_ms: int, most: int
    ) -> list[tuple[int, int]]:
        """Return (time, block) of blocks of a lane by their times, in order; see MetadataStore. O(rows)."""
        rows = (row_of(*place, packed) for place, packed in self._rows.items() if place[0] == lane_number)
        return timed_rows(rows, kind, behind, until_ms, most)

    def resize_cache(self, cache_bytes: int) -> int:
        """Set the capacity; return it. It is at least twice what the present rows take: acks may enlarge rows."""
        self._capacity_bytes = max(cache_bytes, min(self._capacity_bytes, 2 * self.held_bytes))
        return self._capacity_bytes

    def clear(self) -> None:
        """Remove all rows."""
        self._rows.clear()
        self._fingerprints.clear()
        self.held_bytes = self._fingerprint_bytes = 0

    def close(self) -> None:
        """Remove all rows."""
        self.clear()

    def _check(self) -> None:
        named = [named for held in self._fingerprints.values() for named in held.items()]
        assert self._fingerprint_bytes == sum(_fingerprint_bytes(name, data) for name, data in named)
        blocks_bytes = sum(len(packed) + ROW_BYTES for packed in self._rows.values())
        assert self.held_bytes == blocks_bytes + self._fingerprint_bytes
        assert self.held_bytes <= self._capacity_bytes


def _fingerprint_bytes(name: str, data: bytes) -> int:
    return ROW_BYTES + len(name) + len(data)
