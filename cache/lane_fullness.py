"""LaneFullness: finds the lane that has most without looking at the others.

Lanes stand in classes by the power of two that they have reached. A lane moves up when it reaches the next power, which
is rare. A lane that shrinks keeps its class until somebody asks for the fullest. So a lane costs nothing with each
message, and one or two dict entries while it is not empty.
"""

from __future__ import annotations

from collections.abc import Callable


class LaneFullness:
    """Lanes that are not empty, by their amount. Their owner calls `grew` and `forget`. O(1) each, amortized."""

    def __init__(self, amount_of: Callable[[int], int]) -> None:
        """amount_of: returns the current amount of a lane, at least 1."""
        self._amount_of = amount_of
        # Classes by the number of bits of the amount. The first one stays empty.
        self._classes: list[dict[int, None]] = [{}]
        self._class_of: dict[int, int] = {}

    def grew(self, lane_number: int, amount: int) -> None:
        """Note that a lane now has `amount`. If a noted amount had as many bits, nothing changes."""
        bits = amount.bit_length()
        before = self._class_of.get(lane_number, 0)
        if bits > before:
            self._move(lane_number, before, bits)

    def forget(self, lane_number: int) -> None:
        """Note that a lane is empty."""
        self._classes[self._class_of.pop(lane_number, 0)].pop(lane_number, None)

    def fullest(self) -> int | None:
        """Return a lane with more than half of the fullest lane's amount. None if all lanes are empty."""
        classes = self._classes
        for bits in range(len(classes) - 1, 0, -1):
            lanes = classes[bits]
            while lanes:
                # The last entry: to find the first would step over all entries that were removed before it.
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
