"""DueTimes: find messages of a lane that have come due or have expired.

The index alone finds them; no message is read. Blocks in RAM are asked directly. For the other blocks, the metadata
store knows when the first message is due and when the first one expires. So 512 messages that are due much later cost
one row, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

from ..format.times import DUE, EXPIRY, NEVER
from ..numbering import BLOCK_SHIFT
from ..structures.bits import runs_of_ones
from .block_cache import BlockLane
from .destination_lane import DestinationLane
from .index import Index

PAGE_ROWS: Final = 256
EXPIRED_BLOCKS_MAX: Final = 16_384
"""Maximum number of blocks of a lane that one sweep finds: eight million messages."""


class DueTimes:
    """Finds messages of the index by their times. Every method requires the state lock."""

    def __init__(
        self,
        index: Index,
        stored_blocks: Callable[[int, int, tuple[int, int], int, int], list[tuple[int, int]]],
    ) -> None:
        """stored_blocks: MetadataStore.timed of the open metadata store."""
        self._index = index
        self._stored_blocks = stored_blocks

    def take_due(self, lane: BlockLane, now_ms: int, most_blocks: int) -> list[tuple[int, int]]:
        """Let due messages wait no longer, in up to `most_blocks` blocks. Return runs of them.

        `lane.earliest` says afterwards whether more are due. This stops early if a checkpoint must make room in the
        index first.
        """
        numbers = self._blocks(lane, DUE, now_ms, most_blocks + 1)
        runs: list[tuple[int, int]] = []
        for number in sorted(numbers[:most_blocks]):
            if self._index.is_crowded:
                return runs
            block = lane.block(number)
            if block is None or block.times is None:
                continue
            waiting = block.times.not_due_bits
            due = block.times.take_due(now_ms, block.gone)
            if block.times.not_due_bits != waiting and not block.is_dirty:
                self._index.cache.touch(lane, block)
            lane.note_due(block, waiting.bit_count() - block.times.not_due_bits.bit_count())
            runs += runs_of_ones(due, number << BLOCK_SHIFT)
        if len(numbers) <= most_blocks:
            lane.earliest[DUE] = self._earliest(lane, DUE)
        return runs

    def expired_blocks(self, lane: DestinationLane, now_ms: int) -> list[int]:
        """Return the numbers of blocks with expired messages, in order; at most EXPIRED_BLOCKS_MAX."""
        return sorted(self._blocks(lane, EXPIRY, now_ms, EXPIRED_BLOCKS_MAX))

    def expired(self, lane: DestinationLane, block_number: int, now_ms: int) -> Iterator[tuple[int, int]]:
        """Yield runs of the pending messages of a block that have expired."""
        block = lane.block(block_number)
        if block is None or block.times is None:
            return iter(())
        return runs_of_ones(block.times.expired(now_ms, block.gone), block_number << BLOCK_SHIFT)

    def refresh_due(self, lane: BlockLane) -> None:
        """Find out what is due next, after a message that waited was removed."""
        lane.earliest[DUE] = self._earliest(lane, DUE)

    def refresh_expiry(self, lane: DestinationLane) -> None:
        """Find out what expires next, after expired messages were removed."""
        lane.earliest[EXPIRY] = self._earliest(lane, EXPIRY)

    def _blocks(self, lane: BlockLane, kind: int, until_ms: int, most: int) -> list[int]:
        """Return the numbers of up to `most` blocks in which a message is due, or expires, by `until_ms`.

        The block with the earliest such message comes first.
        """
        found = [
            (block.times.earliest[kind], number)
            for number, block in lane.resident_blocks.items()
            if block.times is not None and block.times.earliest[kind] <= until_ms
        ]
        found += islice(self._stored(lane, kind, until_ms), most)
        return [number for _, number in sorted(found)[:most]]

    def _earliest(self, lane: BlockLane, kind: int) -> int:
        in_ram = (block.times.earliest[kind] for block in lane.resident_blocks.values() if block.times is not None)
        stored = next((time for time, _ in self._stored(lane, kind, NEVER)), NEVER)
        return min(stored, min(in_ram, default=NEVER))

    def _stored(self, lane: BlockLane, kind: int, until_ms: int) -> Iterator[tuple[int, int]]:
        """Yield (time, block) of blocks that are not in RAM, in order. Rows of blocks in RAM may be out of date."""
        behind = (0, -1)
        while True:
            page = self._stored_blocks(kind, lane.number, behind, until_ms, PAGE_ROWS)
            for time, number in page:
                if number in lane.block_numbers and number not in lane.resident_blocks:
                    yield time, number
            if len(page) < PAGE_ROWS:
                return
            behind = page[-1]
