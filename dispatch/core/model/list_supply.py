"""ListSupply: how much a TargetList may hold, who pays for it, and how fast its consumers take from it.

Watermarks sets its marks, the loader keeps the direct messages between them, and once a second the rate of taking is
measured. This class does not know the lane or the consumers.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....cache.accounting.overdraft import Overdraft
from ....cache.accounting.shares import (
    BYTES_PER_SECOND_MIN,
    LOW_WATERMARK_SHARE,
    UNMEASURED_BYTES_PER_SECOND,
    read_ahead_bytes,
)
from ....cache.messages.message_memory import MessageMemory
from ....store.numbering import UNLIMITED
from ....store.stored_message import StoredMessage
from .list_contents import NO_MESSAGES, ListContents


class ListSupply(ListContents):
    """The contents of a list, their bounds, and how long they will last. The state lock guards it."""

    __slots__ = (
        "memory",
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

    def __init__(self, consumer_memory: Overdraft, memory: MessageMemory) -> None:
        """Make an empty list. consumer_memory: see ListContents."""
        super().__init__(consumer_memory)
        # The memory that its messages are charged to.
        self.memory = memory
        # Most bytes of direct messages; 0 until TargetLists.begin_list grants the list a share of memory.
        self.high_watermark_bytes = 0
        # The loader reads from disk up to this many bytes; from the caches it takes up to the high watermark.
        self.read_ahead_bytes = 0
        # Below this the loader is called.
        self.low_watermark_bytes = 0
        # Charge of all messages that were handed out or assigned from the list.
        self.taken_bytes = 0
        # The value of `taken_bytes` at the last measurement.
        self.measured_bytes = 0
        # The curve samples this list when `taken_bytes` reaches this value.
        self.sample_at_bytes = UNLIMITED
        # Bytes loaded since the list was full or had all pending messages.
        self.loaded_bytes = 0
        # Bytes that its last load would have needed, if it found too little memory.
        self.wanted_bytes = 0
        # Bytes per second that its consumers took recently. None: they have not taken any.
        self.measured_rate: float | None = None
        # The same rate as a divisor, never zero.
        self.bytes_per_second = UNMEASURED_BYTES_PER_SECOND

    def measure(self, seconds: float) -> None:
        """Measure the rate of taking over the last seconds. Does nothing if the consumers have never taken any."""
        if self.taken_bytes:
            self.measured_rate = (self.taken_bytes - self.measured_bytes) / seconds
            self.bytes_per_second = max(self.measured_rate, BYTES_PER_SECOND_MIN)
            self.measured_bytes = self.taken_bytes

    @property
    def supply_seconds(self) -> float:
        """How many seconds the direct messages last at that rate."""
        return self.direct_bytes / self.bytes_per_second

    def admit(self, messages: Sequence[StoredMessage], charge: int) -> bool:
        """Take in arrivals at the frontier if they fit under the high watermark and the budget has room.

        Return whether they were taken in, all or none. charge: that of the messages. Requires: there are no references.
        """
        if self.direct_bytes + charge > self.high_watermark_bytes or not self.memory.lists_holder.reserve(charge):
            return False
        if self.direct is NO_MESSAGES:
            self.own_direct()
        self.direct.extend(messages)
        self.direct_bytes += charge
        self.frontier = messages[-1][0] + 1
        return True

    def pass_first(self) -> int:
        """Remove the first direct message, to be handed out or assigned; return its charge, which the caller takes
        over.
        """
        charge = self.drop_first()
        self.taken_bytes += charge
        return charge

    def move_first_to(self, other: ListSupply) -> None:
        """Move the first direct message, with its charge, to the end of another list over the same lane."""
        message = self.direct[0]
        other.append(message, self.pass_first())

    def release(self, charge: int) -> None:
        """Release the charge of messages that leave RAM."""
        self.memory.lists_holder.release(charge)

    def note_wanted(self, wanted_bytes: int) -> None:
        """Note how much memory its load needs: if there is too little, the list waits until so much is free."""
        self.wanted_bytes = wanted_bytes

    def count_loaded_anew(self) -> None:
        """Count what is loaded from now on, because the list is full, or its consumer is judged anew."""
        self.loaded_bytes = 0

    def sample_next_at(self, taken_bytes: int) -> None:
        """Have the curve sample this list as soon as so much was taken from it."""
        self.sample_at_bytes = taken_bytes

    def move_high_watermark(self, high_watermark_bytes: int, read_ahead_share: float) -> None:
        """Move the high watermark, and the marks below it."""
        self.high_watermark_bytes = high_watermark_bytes
        self.read_ahead_bytes = read_ahead_bytes(high_watermark_bytes, read_ahead_share)
        self.low_watermark_bytes = int(self.read_ahead_bytes * LOW_WATERMARK_SHARE)
