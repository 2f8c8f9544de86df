"""Figures: compute the figures of each point from its facts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from forebay.dispatch.config.sizes import MIB

from ..load.bounds import USS_ALLOWANCE_BYTES, USS_FACTOR
from ..works.host import MEMORY_LIMIT_BYTES
from ..works.stopwatch import Facts
from .growth import word
from .point import Point

CPU: Final = "CPU µs a message"
MEMORY: Final = "growth of the process, MiB"
OPENING: Final = "opening after SIGKILL, s"

FIGURES: Final[Mapping[str, Callable[[Point, Facts], float | None]]] = {
    "messages a second": lambda point, facts: point.messages / facts["seconds"],
    CPU: lambda point, facts: 1e6 * facts["cpu_seconds"] / point.messages,
    MEMORY: lambda point, facts: facts["uss_bytes"] / MIB,
    "charged, MiB": lambda point, facts: facts["held_bytes"] / MIB,
    # Without a backlog there is nothing to recover.
    OPENING: lambda point, facts: facts["open_seconds"] if point.depth else None,
}
ALLOWED_MIB: Final = (USS_FACTOR * MEMORY_LIMIT_BYTES + USS_ALLOWANCE_BYTES) / MIB
"""MiB by which the process may grow, the same bound as in the load test."""
JUDGED: Final = (CPU, MEMORY, OPENING)
"""Figures whose growth is reported and drawn."""


def judged(figure: str, values: Sequence[float], figures: Sequence[float]) -> str:
    """Return a few words about how a figure grows along a curve.

    Memory is judged by what is allowed, not by its growth.
    """
    if figure == MEMORY:
        return f"{'within' if max(figures) <= ALLOWED_MIB else 'above'} the {ALLOWED_MIB:.0f} allowed"
    return word(values, figures)
