"""The rows of the metadata store, and the count and checksum of all of them.

A commit updates count and checksum by the rows that it changes. An open computes both again, and compares them with the
root. So it detects the remains of a checkpoint that was killed between two transactions, and old or damaged pages.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from operator import mul
from typing import Final

from ..index.block import packed_earliest, packed_messages
from ..numbering import UNLIMITED
from .metadata_store import BlockRuns, MetadataDamaged

Row = tuple[int, int, int, int, int]
"""Lane, block, checksum of its bytes, when its first message is due, and when one expires; 0: never."""

_MIX: Final = 0x9E3779B97F4A7C15  # 2**64 divided by the golden ratio
_MIX_EXPIRY: Final = 0xC2B2AE3D27D4EB4F  # a prime that is not near it
_MASK: Final = 2**64 - 1
_CHECKSUM_MASK: Final = 2**63 - 1  # SQLite's integers are signed


@dataclass(frozen=True, slots=True)
class BlockChecksum:
    """The number of blocks and the sum of a term for each. A commit updates both by the rows that it changes."""

    blocks: int = 0
    checksum: int = 0

    def __add__(self, other: BlockChecksum) -> BlockChecksum:
        return BlockChecksum(self.blocks + other.blocks, self.checksum + other.checksum & _CHECKSUM_MASK)

    def __sub__(self, other: BlockChecksum) -> BlockChecksum:
        return BlockChecksum(self.blocks - other.blocks, self.checksum - other.checksum & _CHECKSUM_MASK)


def survey(rows: Iterable[Row]) -> tuple[BlockRuns, BlockChecksum]:
    """Return the runs of blocks and the checksum of rows. For the runs, the rows must ascend."""
    runs: BlockRuns = {}
    count = checksum = place = 0
    run_lane, first, block_due = -1, 0, 0
    try:
        for lane_number, block, crc, due, expiry in rows:
            if block == block_due and lane_number == run_lane:
                place = place + _MIX & _MASK  # what the product below would be, for less
            else:
                if count:
                    runs.setdefault(run_lane, []).append((first, block_due - 1))
                place = mul((lane_number << 40) + block + 1, _MIX) & _MASK
                run_lane, first, block_due = lane_number, block, block
            block_due += 1
            count += 1
            if due or expiry:
                mixed = mul(due, _MIX) + mul(expiry, _MIX_EXPIRY) & _MASK
                crc ^= mixed ^ mixed >> 32
            # Mixed, so that no swap of checksums and no shift of equal blocks leaves the sum unchanged. By `mul`,
            # because an interruption inside `*` of large numbers ends the process in machine code.
            term = mul(place, crc + 1) & _MASK
            checksum += term ^ term >> 32
    except (TypeError, ArithmeticError) as error:
        raise MetadataDamaged("a place in the index that is no number") from error
    if count:
        runs.setdefault(run_lane, []).append((first, block_due - 1))
    return runs, BlockChecksum(count, checksum & _CHECKSUM_MASK)


def ranges(places: Iterable[tuple[int, int]]) -> list[tuple[int, int, int]]:
    """Return (lane, first, last) of each run of consecutive blocks among the places."""
    blocks, _ = survey((lane_number, block, 0, 0, 0) for lane_number, block in sorted(places))
    return [(lane_number, first, last) for lane_number, runs in blocks.items() for first, last in runs]


def row_of(lane_number: int, block: int, packed: bytes) -> Row:
    """Return the row of a packed block."""
    return lane_number, block, zlib.crc32(packed), *packed_earliest(packed)


def timed_rows(
    rows: Iterable[Row], kind: int, behind: tuple[int, int], until_ms: int, most: int
) -> list[tuple[int, int]]:
    """Return the answer of MetadataStore.timed, from rows of one lane that are in RAM."""
    found = [(row[3 + kind], row[1]) for row in rows]
    return sorted(timed for timed in found if timed[0] and timed > behind and timed[0] <= until_ms)[:most]


def parts_of(puts: Sequence[tuple[int, int, bytes]], transaction_adds: int) -> list[Sequence[tuple[int, int, bytes]]]:
    """Split the blocks into pieces of at most so many references, at least one block each; one empty piece if there are
    none.
    """
    begins, adds = [0], 0
    if transaction_adds < UNLIMITED:
        for at, (_, _, packed) in enumerate(puts):
            adds += packed_messages(packed)
            if adds > transaction_adds and at > begins[-1]:
                begins.append(at)
                adds = packed_messages(packed)
    return [puts[begin:end] for begin, end in zip_longest(begins, begins[1:])]
