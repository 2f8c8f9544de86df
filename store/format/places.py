"""Where wanted messages are in a data log: the answer of the index, and what the journal reads."""

from __future__ import annotations

from array import array
from typing import NamedTuple

from .record import ENTRY_BYTES, SLICE_BYTES


class Extent(NamedTuple):
    """Wanted messages in one record, in order of sequence."""

    data_log: int
    offset: int
    record_bytes: int
    record_messages: int
    skip: int
    """Number of messages of the record before the first wanted one."""
    first_sequence: int
    messages: int


class SingleRecords(NamedTuple):
    """Consecutive messages of one data log, each a record of its own, in columns because large backlogs are such
    messages.
    """

    data_log: int
    first_sequence: int
    offsets: array[int]
    lengths: array[int]
    """Content bytes of each message."""

    @property
    def offset(self) -> int:
        return self.offsets[0]

    @property
    def record_bytes(self) -> int:
        """Bytes from the first message to the end of the last one, with everything between them."""
        return self.offsets[-1] - self.offsets[0] + SLICE_BYTES + ENTRY_BYTES + self.lengths[-1]

    @property
    def messages(self) -> int:
        return len(self.offsets)

    def part(self, first: int, behind: int) -> SingleRecords:
        """Return the messages with indexes from first up to behind, without behind."""
        return SingleRecords(
            self.data_log, self.first_sequence + first, self.offsets[first:behind], self.lengths[first:behind]
        )
