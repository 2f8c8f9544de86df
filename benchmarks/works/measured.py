"""Measurements: each row of the plan with the facts of its passes, and medians over them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from .plan import Row
from .stopwatch import Facts


@dataclass(frozen=True, slots=True)
class Measured:
    """A row and what each of its passes took."""

    row: Row
    messages: int
    passes: Sequence[Facts]

    def median(self, fact: str) -> float | None:
        """None: the system doesn't tell it, or the row has no such thing."""
        found = [facts[fact] for facts in self.passes if fact in facts]
        return median(found) if found else None

    @property
    def rates(self) -> list[float]:
        return [self.messages / facts["seconds"] for facts in self.passes]

    @property
    def rate(self) -> float:
        return median(self.rates)

    def each(self, fact: str) -> float | None:
        """Return the median for a message."""
        found = self.median(fact)
        return None if found is None else found / self.messages
