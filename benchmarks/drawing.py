"""Drawing: pictures as SVG, in one style. Needs matplotlib, which `forebay[tools]` brings."""

from __future__ import annotations

from importlib.util import find_spec
from io import StringIO
from typing import TYPE_CHECKING, Final

from forebay.store.errors import SettingsError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE: Final = "#1f5fa8"
ORANGE: Final = "#c8501e"
GREEN: Final = "#3a7d44"
GREY: Final = "#888888"
GRID: Final = "#dddddd"

_STYLE: Final = {
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "forebay",
    "font.family": "sans-serif",
    "font.size": 9.0,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
}


def require(option: str) -> None:
    """Raise SettingsError if matplotlib is missing. option: the option that asks for a picture."""
    if find_spec("matplotlib") is None:
        raise SettingsError(f"{option} draws with matplotlib, which is not there: pip install 'forebay[tools]'")


def panels(rows: int, columns: int, width: float, height: float, *, sharex: bool) -> tuple[Figure, list[Axes]]:
    """Return an empty figure, in inches, and its axes row by row."""
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasSVG(figure)
        axes = figure.subplots(rows, columns, sharex=sharex, squeeze=False)
    return figure, list(axes.flat)


def title(axes: Axes, text: str) -> None:
    """Write what a picture shows above the left end of its axes."""
    axes.set_title(text, loc="left", fontsize=10)


def svg(figure: Figure) -> str:
    """Return the figure from `<svg` to `</svg>`, as a page takes it. The same figure gives the same text."""
    import matplotlib

    text = StringIO()
    with matplotlib.rc_context(_STYLE):
        figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()[text.getvalue().index("<svg") :]
