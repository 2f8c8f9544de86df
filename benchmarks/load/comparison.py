"""Comparison: compare two results of the load test, and say whether they differ by more than chance.

Each figure gets the ratio of the second result to the first: the median of the ratios of each run of one to each run of
the other (Hodges and Lehmann's estimate). The interval has 99 % confidence, by the exact distribution of Mann and
Whitney's U. The method makes no assumption about the distribution, which is far from normal for latencies. It needs
five rounds of each side.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

from forebay.dispatch.config.sizes import MIB
from forebay.store.disk.user_file import read_user_file
from forebay.store.errors import SettingsError

from .words import short

CONFIDENCE: Final = 0.99
BETTER: Final = "better"
WORSE: Final = "worse"
SAME: Final = "no difference shown"
TOO_FEW: Final = "too few rounds: --rounds 5"

_RESULT_BYTES_MAX: Final = 256 * MIB
_MORE_IS_BETTER: Final = {
    "sentPerSecond": True,
    "ackedPerSecond": True,
    "aggregatedPublishLatency50pct": False,
    "aggregatedPublishLatency99pct": False,
    "aggregatedEndToEndLatency50pct": False,
    "aggregatedEndToEndLatency99pct": False,
    "ussGrowthBytesMax": False,
}
_MUST_AGREE: Final = ("messages", "messageSize", "messageSizes", "rate", "topics", "memoryLimitBytes")


@dataclass(frozen=True, slots=True)
class Comparison:
    """The comparison of one figure of one scenario. Both sides are medians over their rounds."""

    scenario: str
    figure: str
    first: float
    second: float
    ratio: float
    interval: tuple[float, float] | None
    """None: there are too few rounds."""

    @property
    def verdict(self) -> str:
        if self.interval is None:
            return TOO_FEW
        low, high = self.interval
        if low <= 1 <= high:
            return SAME
        return BETTER if (low > 1) == _MORE_IS_BETTER[self.figure] else WORSE


def read_result(path: str) -> dict[str, Any]:
    """Return the result that --json wrote. SettingsError: the file is something else."""
    try:
        result = json.loads(read_user_file(path, _RESULT_BYTES_MAX))
        if not isinstance(result, dict) or not all(isinstance(run["workload"], str) for run in result["runs"]):
            raise TypeError
    except (ValueError, TypeError, KeyError, RecursionError):
        raise SettingsError(f"{path} is no result of forebay bench --json") from None
    return result


def compare(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[Comparison]:
    """Compare each figure of each scenario that both have. SettingsError: they ran different loads."""
    found = []
    ours, theirs = _by_scenario(first), _by_scenario(second)
    for scenario in ours.keys() & theirs.keys():
        for name in _MUST_AGREE:
            values = {repr(run.get(name)) for run in (*ours[scenario], *theirs[scenario])}
            if len(values) > 1:
                raise SettingsError(f"{scenario}: {name} is {' and '.join(sorted(values))}: these are different loads")
        for figure in _MORE_IS_BETTER:
            sides = [[run.get(figure) or 0 for run in side] for side in (ours[scenario], theirs[scenario])]
            if all(value > 0 for side in sides for value in side):
                found.append(_compared(scenario, figure, *sides))
    if not found:
        raise SettingsError("the two results have no scenario in common")
    return sorted(found, key=lambda comparison: comparison.scenario)


def lines(comparisons: Sequence[Comparison]) -> Iterator[str]:
    """Yield the lines of a table for a terminal."""
    yield f"{'':<44}{'first':>9}{'second':>9}{'ratio':>8}  {f'{CONFIDENCE:.0%} between':<16}"
    for comparison in comparisons:
        interval = "" if comparison.interval is None else "{:.3f} and {:.3f}".format(*comparison.interval)
        yield (
            f"{comparison.scenario:<13}{comparison.figure:<31}{short(comparison.first):>9}{short(comparison.second):>9}"
            f"{comparison.ratio:>8.3f}  {interval:<16}  {comparison.verdict}"
        )


def _by_scenario(result: Mapping[str, Any]) -> dict[str, list[Mapping[str, Any]]]:
    runs: dict[str, list[Mapping[str, Any]]] = {}
    for run in result["runs"]:
        runs.setdefault(run["workload"], []).append(run)
    return runs


def _compared(scenario: str, figure: str, first: Sequence[float], second: Sequence[float]) -> Comparison:
    ratios = sorted(after / before for before in first for after in second)
    beyond = _ratios_beyond(len(first), len(second))
    interval = None if beyond is None else (ratios[beyond], ratios[-1 - beyond])
    return Comparison(scenario, figure, median(first), median(second), median(ratios), interval)


def _ratios_beyond(first: int, second: int) -> int | None:
    """Return how many sorted ratios lie beyond each end of the interval; None: there are too few ratios."""
    counts = _arrangements(first, second)
    total, below = sum(counts), 0
    for beyond, count in enumerate(counts):
        below += count
        if 2 * below > (1 - CONFIDENCE) * total:
            return beyond - 1 if beyond else None
    return None


def _arrangements(first: int, second: int) -> list[int]:
    """Return in how many orders of two samples U is 0, 1, 2 ...: the coefficients of a Gaussian binomial."""
    counts = [1] + [0] * (first * second)
    for factor in range(1, first + 1):
        for u in range(len(counts) - 1, second + factor - 1, -1):
            counts[u] -= counts[u - second - factor]
        for u in range(factor, len(counts)):
            counts[u] += counts[u - factor]
    return counts
