"""Charts: lines as places in percent of their own width and height, which `charts.html` draws as SVG.

Drawn by the server they need no script and no package. In percent, lines grow with the window and their text does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, floor, log10
from typing import Final

_STEPS: Final = (1.0, 2.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True, slots=True)
class Tick:
    """A place on an axis, in percent, and what is written there."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Mark:
    """A vertical line through a chart."""

    at: float
    look: str
    """The classes of its style."""
    text: str = ""
    """What stands beside its upper end."""


@dataclass(frozen=True, slots=True)
class LinePiece:
    """A part of a line without a gap; at least one point, from left to right, percent from the upper left corner."""

    points: tuple[tuple[float, float], ...]

    @property
    def line(self) -> str:
        """The points as SVG has them. One point alone stands twice, so that the end of its line shows."""
        points = self.points if len(self.points) > 1 else self.points * 2
        return " ".join(f"{x},{y}" for x, y in points)

    @property
    def stairs(self) -> str:
        """The points with corners between them: each height holds since the point before."""
        corners = [(before[0], after[1]) for before, after in pairwise(self.points)]
        return LinePiece(
            (self.points[0], *(point for both in zip(corners, self.points[1:], strict=True) for point in both))
        ).line

    @property
    def area(self) -> str:
        """The points of what is below the line."""
        return f"{self.points[0][0]},100 {self.line} {self.points[-1][0]},100"


@dataclass(frozen=True, slots=True)
class Line:
    """One series."""

    look: str
    """The classes of its style; the plain one is empty."""
    title: str
    pieces: tuple[LinePiece, ...]
    has_area: bool = False
    has_dots: bool = False
    has_stairs: bool = False
    """Whether each height holds since the point before, instead of being reached on the way."""


@dataclass(frozen=True, slots=True)
class Chart:
    """Lines between two axes."""

    lines: tuple[Line, ...]
    across: tuple[Tick, ...]
    up: tuple[Tick, ...]
    """From below."""
    marks: tuple[Mark, ...] = ()


def pieces(points: Sequence[tuple[float, float | None]]) -> tuple[LinePiece, ...]:
    """Return the pieces of a line that has a gap wherever a point has no height."""
    found: list[list[tuple[float, float]]] = [[]]
    for x, y in points:
        if y is not None:
            found[-1].append((x, y))
        elif found[-1]:
            found.append([])
    return tuple(LinePiece(tuple(piece)) for piece in found if piece)


def round_steps(most: float) -> list[float]:
    """Return an axis from 0 in three to six round steps, the last of which is at or above most."""
    if most <= 0:
        return [0.0, 1.0]
    least = most / 5
    power = 10.0 ** floor(log10(least))
    step = next(found for found in (power * factor for factor in _STEPS) if found >= least)
    return [number * step for number in range(ceil(most / step) + 1)]
