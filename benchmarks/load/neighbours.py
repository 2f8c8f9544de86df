"""Neighbours: check how much a flood at other queues slows a queue with a memory_reserve.

Two windows of one run are compared: before the first message of producers that join later, and from then on. The
verdict depends on the hit ratio, and in runs of many takes on the time that the consumer's thread *runs* in a take:
reads and decoded records make that time longer, and a busy machine hardly does. The duration of takes by the clock is
reported too, but not judged, because the flood shares the interpreter's lock and the cores, whatever the memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import quantiles
from typing import Any, Final

from .evidence import Check

HIT_RATIO_CHANGE: Final = 0.05
RUNS_FACTOR: Final = 2.0
RUNS_ALLOWANCE_SECONDS: Final = 0.001
"""The p99 of a take's running time may grow by the factor above and these seconds, because other threads' work between
takes leaves the processor's caches cold."""
TAKES_MIN: Final = 10
"""Least number of takes in each window for a verdict."""
P99_TAKES_MIN: Final = 1000
"""Least number of takes in each window for a verdict on their p99. Of fewer, it is the time of less than ten takes, and
what another process or a collection of garbage costs one of them decides."""

_NO_COUNTERS: Final[Mapping[str, Any]] = {"protected_delivered": 0, "protected_misses": 0}


@dataclass(slots=True)
class _Window:
    delivered: int = 0
    misses: int = 0
    took: list[float] = field(default_factory=list)
    ran: list[float] = field(default_factory=list)

    @property
    def hit_ratio(self) -> float:
        return 1 - self.misses / self.delivered if self.delivered else 0.0


class Neighbours:
    """The comparison of one run. floods: the producers that join later; none: there is nothing to compare."""

    def __init__(self, floods: Sequence[int]) -> None:
        self._floods = frozenset(floods)
        self._quiet, self._flooded = _Window(), _Window()
        self._window = self._quiet
        self._counted = _NO_COUNTERS

    def opened(self) -> None:
        """Note that another process begins to count at 0."""
        self._counted = _NO_COUNTERS

    def sending(self, producer: int) -> None:
        if producer in self._floods:
            self._window = self._flooded

    def took(self, took_seconds: float, ran_seconds: float) -> None:
        """Note the duration of a take of a protected queue, and the time that its thread ran meanwhile."""
        self._window.took.append(took_seconds)
        self._window.ran.append(ran_seconds)

    def gauge(self, facts: Mapping[str, Any]) -> None:
        """Note the counters of the protected queues. Their growth since the last call belongs to the present window."""
        window, counted = self._window, self._counted
        window.delivered += facts["protected_delivered"] - counted["protected_delivered"]
        window.misses += facts["protected_misses"] - counted["protected_misses"]
        self._counted = facts

    def judge(self) -> Iterator[Check]:
        quiet, flooded = self._quiet, self._flooded
        if not self._floods or not quiet.took + flooded.took:
            return
        if min(len(quiet.took), len(flooded.took)) < TAKES_MIN:
            text = f"{len(quiet.took):,} takes before the flood and {len(flooded.took):,} in it: too few to compare"
            yield Check("neighbours", False, text)
            return
        yield Check(
            "neighbours",
            abs(quiet.hit_ratio - flooded.hit_ratio) <= HIT_RATIO_CHANGE,
            f"{100 * quiet.hit_ratio:.1f} % hits before the flood, {100 * flooded.hit_ratio:.1f} % in it "
            f"({quiet.delivered:,} and {flooded.delivered:,} deliveries), allowed {100 * HIT_RATIO_CHANGE:g} points",
        )
        before, behind = _p99(quiet.ran), _p99(flooded.ran)
        clock = f"{1000 * _p99(quiet.took):.2f} ms and {1000 * _p99(flooded.took):.2f} ms"
        is_judged = min(len(quiet.ran), len(flooded.ran)) >= P99_TAKES_MIN
        allowed = f"allowed {RUNS_FACTOR:g} times and {1000 * RUNS_ALLOWANCE_SECONDS:g} ms"
        too_few = f"not judged: {len(quiet.ran):,} and {len(flooded.ran):,} takes, fewer than {P99_TAKES_MIN:,}"
        yield Check(
            "take",
            not is_judged or behind <= RUNS_FACTOR * before + RUNS_ALLOWANCE_SECONDS,
            f"99 % of takes run for at most {1000 * before:.2f} ms before the flood, {1000 * behind:.2f} ms in it, "
            f"{allowed if is_judged else too_few}\n"
            f"by the clock, which is not judged: {clock}",
        )


def _p99(seconds: Sequence[float]) -> float:
    return quantiles(seconds, n=100, method="inclusive")[98]
