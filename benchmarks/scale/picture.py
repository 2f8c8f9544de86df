"""The picture of all curves: a row of small logarithmic panels for each, with a line of linear growth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from forebay.dispatch.config.sizes import KIB, format_size

from ..drawing import BLUE, GREY, ORANGE, panels, svg, title
from .figures import ALLOWED_MIB, JUDGED, MEMORY, judged
from .report import Measured

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_ROOM: Final = 4.0
"""Factor by which an axis extends beyond the largest and smallest figure, so that noise does not look like growth."""


def picture(measured: Sequence[Measured]) -> str:
    """Return the picture as SVG. The same figures give the same text."""
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
    panel.set_xticks(values, [_label(value) for value in values])
    panel.set_xlabel(measured.curve.axis)
    panel.plot(values, figures, color=BLUE, linewidth=1.8, marker="o", markersize=4)
    if figure == MEMORY:
        panel.axhline(ALLOWED_MIB, color=ORANGE, linewidth=1.2, linestyle="--")
        panel.set_ylim(0, 1.15 * max(ALLOWED_MIB, *figures))
    else:
        linear = [figures[0] * value / values[0] for value in values]
        panel.plot(values, linear, color=GREY, linewidth=1.0, linestyle=":")
        panel.set_yscale("log")
        panel.set_ylim(min(figures) / _ROOM, max(figures) * _ROOM)
        panel.yaxis.set_major_formatter(lambda value, _: f"{value:,.6g}")
    panel.minorticks_off()


def _label(value: int) -> str:
    """Return a short text for a value, such as 100, 10k or 1M, or 4KiB for a size."""
    thousands, rest = divmod(value, 1000)
    if rest:
        return format_size(value) if value % KIB == 0 else f"{value}"
    return f"{thousands // 1000}M" if thousands % 1000 == 0 else f"{thousands}k"
