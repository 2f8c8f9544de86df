"""The picture of all curves: a row of small panels for each, logarithmic, beside the line of linear growth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ..drawing import BLUE, GREY, ORANGE, panels, svg, title
from ..load.words import short
from .figures import JUDGED, LIMIT_MIB, MEMORY, judged
from .report import Measured

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_ROOM: Final = 4.0
"""An axis ends so many times above the largest figure and below the smallest: noise must not look like growth."""


def picture(measured: Sequence[Measured]) -> str:
    """SVG. The same figures give the same text."""
    figure, axes = panels(len(measured), len(JUDGED), 11.0, 2.5 * len(measured), sharex=False)
    for number, panel in enumerate(axes):
        _draw(panel, measured[number // len(JUDGED)], JUDGED[number % len(JUDGED)])
    return svg(figure)


def _draw(panel: Axes, measured: Measured, figure: str) -> None:
    values, figures = measured.series(figure)
    if not values:
        panel.set_axis_off()
        return
    title(panel, f"{figure}: {judged(figure, values, figures)}")
    panel.set_xscale("log")
    panel.set_xticks(values, [short(value) for value in values])
    panel.minorticks_off()
    panel.set_xlabel(measured.curve.axis)
    panel.plot(values, figures, color=BLUE, linewidth=1.8, marker="o", markersize=4)
    if figure == MEMORY:
        panel.axhline(LIMIT_MIB, color=ORANGE, linewidth=1.2, linestyle="--")
        panel.set_ylim(0, 1.15 * max(LIMIT_MIB, *figures))
        return
    panel.set_yscale("log")
    low, high = min(figures) / _ROOM, max(figures) * _ROOM
    linear = [figures[0] * value / values[0] for value in values]
    panel.plot(values, linear, color=GREY, linewidth=1.0, linestyle=":")
    panel.set_ylim(low, high)
    panel.yaxis.set_major_formatter(lambda value, _: f"{value:,.6g}")
