"""Report: all curves as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..works.stopwatch import Facts
from .figures import FIGURES, JUDGED, judged
from .growth import factor
from .point import Curve


@dataclass(frozen=True, slots=True)
class Measured:
    """A curve with the facts of each of its points."""

    curve: Curve
    facts: Sequence[Facts]

    def series(self, figure: str) -> tuple[list[int], list[float]]:
        """Return the values of the axis, and the figure at each. Empty where it is not measured."""
        found = [
            (point.value, value)
            for point, facts in zip(self.curve.points, self.facts, strict=True)
            if (value := FIGURES[figure](point, facts)) is not None
        ]
        return [value for value, _ in found], [figure for _, figure in found]


def report(about: Sequence[str], measured: Sequence[Measured]) -> Iterator[str]:
    """Yield the lines of the report. about: lines about the machine."""
    yield "# Scale"
    yield ""
    yield from (f"* {line}" for line in about)
    yield ""
    yield "![the curves](scale.svg)"
    for each in measured:
        yield ""
        yield f"## {each.curve.name}"
        yield ""
        yield each.curve.about
        yield ""
        yield f"| {each.curve.axis} | {' | '.join(FIGURES)} |"
        yield f"|{'---|' * (1 + len(FIGURES))}"
        for point, facts in zip(each.curve.points, each.facts, strict=True):
            cells = [_cell(figure(point, facts)) for figure in FIGURES.values()]
            yield f"| {point.value:,} | {' | '.join(cells)} |"
        yield ""
        for figure in JUDGED:
            values, figures = each.series(figure)
            if values:
                yield (
                    f"* {figure}: {judged(figure, values, figures)}, {factor(figures):,.3g} × over "
                    f"{values[-1] / values[0]:,.0f} ×"
                )


def _cell(value: float | None) -> str:
    """Return a figure with three digits; "" if there is none."""
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
