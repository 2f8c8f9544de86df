"""LanesByAmount: find the lane that has most, without examining all lanes.

Lanes are in classes by the highest power of two that their amount has reached. A lane moves up when it reaches the next
power, which is rare. A lane that shrinks stays in its class until somebody asks for the fullest lane. So a lane costs
nothing per message, and one or two dict entries while it has messages.
"""

from __future__ import annotations

from collections.abc import Callable


class LanesByAmount:
    """Lanes by how much they have. The owner calls `note_amount` and `forget`. O(1) each, amortized."""

    def __init__(self, amount_of: Callable[[int], int]) -> None:
        """Make it without lanes. amount_of: returns what a lane has now, at least 1."""
        self._amount_of = amount_of
        # Classes by the number of bits of the amount. The first is always empty.
        self._classes: list[dict[int, None]] = [{}]
        self._class_of: dict[int, int] = {}

    def note_amount(self, lane_number: int, amount: int) -> None:
        """Note that a lane has `amount` now. Nothing changes if the amount has no more bits than one noted before."""
        bits = amount.bit_length()
        before = self._class_of.get(lane_number, 0)
        if bits > before:
            self._move(lane_number, before, bits)

    def forget(self, lane_number: int) -> None:
        """Note that a lane is empty."""
        self._classes[self._class_of.pop(lane_number, 0)].pop(lane_number, None)

    def fullest(self) -> int | None:
        """Return a lane that has more than half of what the fullest one has. None: no lane has anything."""
        classes = self._classes
        for bits in range(len(classes) - 1, 0, -1):
            lanes = classes[bits]
            while lanes:
                # Take the last one: a search for the first would pass over all that have left before it.
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
