"""ListSupply: how much a TargetList may hold, and how fast its consumers take it.

TargetArea sets the watermarks, the loader keeps what is direct between them,
and once a second somebody measures what was taken. Which lane the messages
are of, and who gets them, nothing here knows. Nothing here survives the
process.
"""

from __future__ import annotations

from ....cache.shares import (
    BYTES_PER_SECOND_MIN,
    LOW_WATERMARK_SHARE,
    UNMEASURED_BYTES_PER_SECOND,
    read_ahead_bytes,
)
from ....cache.tab import Tab
from ....store.numbering import UNLIMITED
from .list_contents import ListContents


class ListSupply(ListContents):
    """The contents of a list, their bounds, and how long they last. The state lock guards it."""

    __slots__ = (
        "high_watermark_bytes",
        "read_ahead_bytes",
        "low_watermark_bytes",
        "taken_bytes",
        "measured_bytes",
        "sample_at_bytes",
        "loaded_bytes",
        "wanted_bytes",
        "measured_rate",
        "bytes_per_second",
    )

    def __init__(self, memory: Tab) -> None:
        """memory: see ListContents."""
        super().__init__(memory)
        self.high_watermark_bytes = 0
        """Where the watermark should be: 0 until TargetArea.adopt grants it a share of memory."""
        self.read_ahead_bytes = 0
        """Below this the loader reads; what the caches have it takes below the high watermark."""
        self.low_watermark_bytes = 0
        """Below this the loader is called."""
        self.taken_bytes = 0
        """Charge of all messages that were handed out, or assigned, from it."""
        self.measured_bytes = 0
        """What that was at the last measurement."""
        self.sample_at_bytes = UNLIMITED
        """When so many bytes were taken, the curve looks at this list."""
        self.loaded_bytes = 0
        """What was loaded for it since it was full, or had all that there was."""
        self.wanted_bytes = 0
        """What its last load would have needed, which found too little."""
        self.measured_rate: float | None = None
        """Bytes a second that its consumers took lately; None: they never took any."""
        self.bytes_per_second = UNMEASURED_BYTES_PER_SECOND
        """The same as a number to divide by."""

    def measure(self, seconds: float) -> None:
        """Measure how fast its consumers took in the last seconds. Nothing changes where they never took any."""
        if self.taken_bytes:
            self.measured_rate = (self.taken_bytes - self.measured_bytes) / seconds
            self.bytes_per_second = max(self.measured_rate, BYTES_PER_SECOND_MIN)
            self.measured_bytes = self.taken_bytes

    @property
    def supply_seconds(self) -> float:
        """How many seconds its direct messages last at that rate."""
        return self.direct_bytes / self.bytes_per_second

    def pass_first(self) -> int:
        """Take the first direct message out, to be handed out or assigned; return its charge, which goes with it."""
        charge = self.drop_first()
        self.taken_bytes += charge
        return charge

    def move_high_watermark(self, high_watermark_bytes: int, read_ahead_share: float) -> None:
        """Move the bound of the watermark, and those below it."""
        self.high_watermark_bytes = high_watermark_bytes
        self.read_ahead_bytes = read_ahead_bytes(high_watermark_bytes, read_ahead_share)
        self.low_watermark_bytes = int(self.read_ahead_bytes * LOW_WATERMARK_SHARE)
