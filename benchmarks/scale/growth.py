"""Growth: describe in a few words how a figure grows along its curve."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

FLAT_FACTOR: Final = 1.5
"""Growth up to which a figure counts as flat, whatever the range."""
LINEAR_SLOPES: Final = (0.9, 1.1)


def factor(figures: Sequence[float]) -> float:
    """Return the largest figure over the first."""
    return max(figures) / figures[0]


def word(values: Sequence[float], figures: Sequence[float]) -> str:
    """Return the word for the growth of figures over the values of an axis."""
    if factor(figures) <= FLAT_FACTOR:
        return "flat"
    low, high = LINEAR_SLOPES
    slope = math.log(factor(figures)) / math.log(values[-1] / values[0])
    return "less than linear" if slope < low else "linear" if slope <= high else "more than linear"
