"""Measurements: each row of the plan with the facts of its passes, and medians over them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from .plan import Row
from .stopwatch import Facts


@dataclass(frozen=True, slots=True)
class Measured:
    """A row of the plan with the facts of each of its passes."""

    row: Row
    messages: int
    passes: Sequence[Facts]

    def median(self, fact: str) -> float | None:
        """Return the median of a fact. None: the system does not measure it, or the row does not have it."""
        found = [facts[fact] for facts in self.passes if fact in facts]
        return median(found) if found else None

    def alone(self, at: int) -> Measured:
        """Return the measurement of one of the passes."""
        return replace(self, passes=self.passes[at : at + 1])

    @property
    def rates(self) -> list[float]:
        return [self.messages / facts["seconds"] for facts in self.passes]

    @property
    def rate(self) -> float:
        return median(self.rates)

    def each(self, fact: str) -> float | None:
        """Return the median of a fact, divided by the number of messages."""
        found = self.median(fact)
        return None if found is None else found / self.messages
