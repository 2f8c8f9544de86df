"""ListSupply: how much a TargetList may hold, how fast its consumers take from it, and the load under way for it.

Watermarks sets the marks of a list, and the loader keeps the direct messages between them. Once a second Watermarks
measures how fast the consumers take. This module knows no lane and no consumer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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
from ....store.structures.sequence_set import SequenceSet
from .list_contents import NO_MESSAGES, ListContents
from .load import Load


class ListSupply(ListContents):
    """A ListContents, its bounds, how long it will last, and the load that brings more. The state lock guards it."""

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
        "load",
    )

    def __init__(self, consumer_memory: Overdraft, memory: MessageMemory) -> None:
        """Make an empty list. consumer_memory: see ListContents."""
        super().__init__(consumer_memory)
        # The memory that its messages are charged to.
        self.memory = memory
        # Most bytes of direct messages; 0 until ListRegistry.begin_list grants the list a share of memory.
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
        # The load under way. It reads outside the lock, and no other load of this list begins meanwhile.
        self.load: Load[Any] | None = None

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
        if self.direct_bytes + charge <= self.high_watermark_bytes and self.memory.lists_holder.reserve(charge):
            if self.direct is NO_MESSAGES:
                self.own_direct()
            self.direct.extend(messages)
            self.direct_bytes += charge
            self.frontier = messages[-1][0] + 1
            return True
        return False

    def pass_first(self) -> int:
        """Remove the first direct message, to be handed out or assigned; return its charge for the caller to take."""
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

    # ------------------------------------------------------------------ the load under way

    @property
    def is_loading(self) -> bool:
        return self.load is not None

    def begin_load(self, load: Load[Any]) -> None:
        """Note that a load for this list is under way, which has reserved its memory. Requires: no other one is."""
        self.load = load
        self.loaded_bytes += load.reserved_bytes

    def end_load(self) -> None:
        """Note that the load has ended, for whatever reason."""
        self.load = None

    def cut_load(self, first: int, last: int) -> bool:
        """End the load under way before the first message of first..last that it has skipped; return whether it has.

        A later load then examines that message again.
        """
        load = self.load
        if load is None:
            return False
        first, last = max(first, self.frontier), min(last, load.last)
        if first > last:
            return False
        skipped = SequenceSet()
        skipped.add(first, last)
        for first_read, last_read in load.runs:
            skipped.remove(first_read, last_read)
        if skipped:
            load.last = skipped.first - 1
        return bool(skipped)

    def peek(self, sequence: int) -> StoredMessage | None:
        """Return a message if its body is direct, or the load under way took it from a cache. O(direct)."""
        held = self.load.held.get(sequence) if self.load is not None else None
        if held is None:
            held = next((message for message in self.direct if message[0] == sequence), None)
        return held if held is not None and held[2] is not None else None

    def note_wanted(self, wanted_bytes: int) -> None:
        """Note how much memory its load needs. Without so much free memory, the list waits for it."""
        self.wanted_bytes = wanted_bytes

    def count_loaded_anew(self) -> None:
        """Begin `loaded_bytes` again at 0, because the list is full or its consumer is judged anew."""
        self.loaded_bytes = 0

    # ------------------------------------------------------------------ bounds

    def sample_next_at(self, taken_bytes: int) -> None:
        """Have the curve sample this list as soon as so much was taken from it."""
        self.sample_at_bytes = taken_bytes

    def move_high_watermark(self, high_watermark_bytes: int, read_ahead_share: float) -> None:
        """Move the high watermark, and the marks below it."""
        self.high_watermark_bytes = high_watermark_bytes
        self.read_ahead_bytes = read_ahead_bytes(high_watermark_bytes, read_ahead_share)
        self.low_watermark_bytes = int(self.read_ahead_bytes * LOW_WATERMARK_SHARE)
