"""LaneFullness: which lane has most, found without a look at the others.

Lanes stand in classes by the power of two that they have reached. A lane moves up when it reaches the next power, which
is rare; when it shrinks, it stays where it is until somebody asks for the fullest. So a lane costs nothing with each
message, and one dict entry or two while it has any.
"""

from __future__ import annotations

from collections.abc import Callable


class LaneFullness:
    """Lanes that have something, by how much. What holds them calls `grew` and `forget`. O(1) each, amortized."""

    def __init__(self, amount_of: Callable[[int], int]) -> None:
        """amount_of: returns what a lane has now, at least 1."""
        self._amount_of = amount_of
        self._classes: list[dict[int, None]] = [{}]
        """By the bits of the amount. No lane is in the first."""
        self._class_of: dict[int, int] = {}

    def grew(self, lane_number: int, amount: int) -> None:
        """Note that a lane has `amount` now. Amounts that need no more bits than one noted before change nothing."""
        bits = amount.bit_length()
        before = self._class_of.get(lane_number, 0)
        if bits > before:
            self._move(lane_number, before, bits)

    def forget(self, lane_number: int) -> None:
        """Note that a lane has nothing more."""
        self._classes[self._class_of.pop(lane_number, 0)].pop(lane_number, None)

    def fullest(self) -> int | None:
        """Return a lane that has more than half of what the fullest has; None: no lane has anything."""
        classes = self._classes
        for bits in range(len(classes) - 1, 0, -1):
            lanes = classes[bits]
            while lanes:
                # The last one: to look for the first would pass over all that have left before it.
                lane_number, _ = lanes.popitem()
                now = self._amount_of(lane_number).bit_length()
                classes[now][lane_number] = None
                self._class_of[lane_number] = now
                if now == bits:
                    return lane_number
        return None

    def _move(self, lane_number: int, before: int, bits: int) -> None:
        classes = self._classes
        while len(classes) <= bits:
            classes.append({})
        classes[before].pop(lane_number, None)
        classes[bits][lane_number] = None
        self._class_of[lane_number] = bits

    def __len__(self) -> int:
        return len(self._class_of)

    def _check(self) -> None:
        assert {
            lane_number: bits for bits, lanes in enumerate(self._classes) for lane_number in lanes
        } == self._class_of
        assert all(
            0 < self._amount_of(lane_number).bit_length() <= bits for lane_number, bits in self._class_of.items()
        )
