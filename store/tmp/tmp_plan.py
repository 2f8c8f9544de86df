"""Plans of reads: few large reads for many spilled messages.

Neighbours are read together, up to 256 KiB, with dead bytes between them.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

from ..journal.regions import GAP_BYTES_MAX, REGION_BYTES_MAX
from .chunk import Chunk
from .spilled_message import HEAD_BYTES, TmpRegion
from .tmp_files import TmpFiles


class TmpPlan(NamedTuple):
    """The reads for the wanted messages.

    `read_regions(plan.regions)` needs no lock. Messages may be removed or moved meanwhile.
    """

    regions: list[TmpRegion]
    messages: int
    content_bytes: int
    """Bytes of properties and bodies, to be reserved in RAM before the read."""
    last_sequence: int
    """The last planned sequence; -1: there is none."""


class TmpPlanBuilder:
    """A plan in the making: messages gathered into reads, in the given order."""

    def __init__(self, files: TmpFiles) -> None:
        self._files = files
        self._end = 0
        self.regions: list[TmpRegion] = []
        self.messages = 0
        self.content_bytes = 0
        self.last_sequence = -1

    def result(self) -> TmpPlan:
        return TmpPlan(self.regions, self.messages, self.content_bytes, self.last_sequence)

    def fitting_end(self, chunk: Chunk, low: int, high: int, most_messages: int, most_bytes: int) -> int:
        """Return how far the messages from low to high may be gathered. The first message of a plan always may."""
        high = max(low, min(high, low + max(most_messages, 1) - self.messages))
        room_bytes = most_bytes - self.content_bytes
        if sum(chunk.lengths[low:high]) - HEAD_BYTES * (high - low) <= room_bytes:
            return high
        at = low
        while at < high:
            room_bytes -= chunk.lengths[at] - HEAD_BYTES
            if room_bytes < 0 and (self.messages or at > low):
                break
            at += 1
        return at

    def gather(self, chunk: Chunk, low: int, high: int) -> None:
        """Add neighbours to the last region, or to new ones behind it."""
        if low == high:
            return
        base, sequences, offsets = chunk.base, chunk.sequences[low:high], chunk.offsets(low, high)
        lengths = chunk.lengths[low:high]
        low, high = 0, high - low
        self.messages += high
        self.content_bytes += sum(lengths) - HEAD_BYTES * high
        self.last_sequence = base + sequences[-1]
        while low < high:
            offset = offsets[low]
            region = self.regions[-1] if self.regions else None
            if (
                region is None
                or region.file_number != chunk.file.number
                or not self._end <= offset <= self._end + GAP_BYTES_MAX
                or offset + lengths[low] - region.offset > REGION_BYTES_MAX
            ):
                region = self._files.region(chunk.file, offset)
                self.regions.append(region)
            begin = region.offset
            stop = bisect_right(offsets, begin + REGION_BYTES_MAX, low + 1, high)
            if stop > low + 1 and offsets[stop - 1] + lengths[stop - 1] > begin + REGION_BYTES_MAX:
                stop -= 1
            if offsets[stop - 1] + lengths[stop - 1] - offset > sum(lengths[low:stop]) + GAP_BYTES_MAX:
                stop = low + 1  # there is too much of others between them, so check each gap
            region.messages.extend(
                zip(
                    [base + sequence for sequence in sequences[low:stop]],
                    [at - begin for at in offsets[low:stop]],
                    lengths[low:stop],
                    strict=True,
                )
            )
            low = stop
            self._end = offsets[stop - 1] + lengths[stop - 1]
