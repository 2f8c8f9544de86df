"""IdleLanes: the next sequence of each empty lane, in columns.

A lane without pending messages, and without rows of blocks, has only its next sequence, which must not be used twice.
Here it takes 16 bytes; the charge includes what the columns reserve in advance. It becomes an object again when a
message is sent or acknowledged there.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from typing import Final

from ..environment.account import OverdraftAccount, Uncounted
from ..numbering import LANE_SHIFT

IDLE_LANE_BYTES: Final = 18


class IdleLanes:
    """The next sequences of lanes by the number of the lane. The state lock guards it."""

    __slots__ = ("_account", "_numbers", "_next_sequences")

    def __init__(self, account: OverdraftAccount | None = None) -> None:
        """Make it without lanes. account: pays for the columns; None: they are not counted."""
        self._account = account or Uncounted()
        # Numbers of lanes, sorted.
        self._numbers = array("Q")
        self._next_sequences = array("Q")

    def __len__(self) -> int:
        return len(self._numbers)

    def __contains__(self, lane_number: int) -> bool:
        return self.find(lane_number) > 0

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Yield the number and the next sequence of each lane, from a snapshot."""
        return zip(self._numbers[:], self._next_sequences[:], strict=True)

    def find(self, lane_number: int) -> int:
        """Return the next sequence of a lane; 0 if none is known. O(log lanes)."""
        at = bisect_left(self._numbers, lane_number)
        is_known = at < len(self._numbers) and self._numbers[at] == lane_number
        return self._next_sequences[at] if is_known else 0

    def put(self, lane_number: int, next_sequence: int) -> None:
        """Keep the next sequence of a lane, unless it was never used. O(lanes) copied bytes."""
        at = bisect_left(self._numbers, lane_number)
        if at < len(self._numbers) and self._numbers[at] == lane_number:
            self._next_sequences[at] = next_sequence
        elif next_sequence:
            self._numbers.insert(at, lane_number)
            self._next_sequences.insert(at, next_sequence)
            self._account.charge(IDLE_LANE_BYTES)

    def take(self, lane_number: int) -> int:
        """Return the next sequence of a lane and forget the row, because the caller makes the lane an object."""
        at = bisect_left(self._numbers, lane_number)
        if at == len(self._numbers) or self._numbers[at] != lane_number:
            return 0
        del self._numbers[at]
        self._account.release(IDLE_LANE_BYTES)
        return self._next_sequences.pop(at)

    def forget(self, destination_number: int) -> None:
        """Forget the lanes of a deleted destination."""
        begin = bisect_left(self._numbers, destination_number << LANE_SHIFT)
        end = bisect_left(self._numbers, destination_number + 1 << LANE_SHIFT)
        del self._numbers[begin:end], self._next_sequences[begin:end]
        self._account.release(IDLE_LANE_BYTES * (end - begin))

    def clear(self) -> None:
        """Forget all lanes."""
        self._account.release(self.charge_bytes)
        del self._numbers[:], self._next_sequences[:]

    @property
    def charge_bytes(self) -> int:
        """Bytes that are charged for all rows."""
        return IDLE_LANE_BYTES * len(self)

    def _check(self) -> None:
        assert list(self._numbers) == sorted(set(self._numbers))
        assert len(self._numbers) == len(self._next_sequences)
        assert all(self._next_sequences)
