"""Draws a plan as SVG: hit ratio against memory limit. It needs matplotlib, which `forebay[tools]` installs."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any, Final

from ...store.disk.user_file import write_user_file
from ...store.errors import SettingsError
from ..config.sizes import format_size
from .plan import Plan

LINE: Final = "#1f5fa8"
MARK: Final = "#c8501e"
GRID: Final = "#dddddd"


def require() -> None:
    """Raise SettingsError if matplotlib is missing."""
    if find_spec("matplotlib") is None:
        raise SettingsError("--svg draws with matplotlib, which is not there: pip install 'forebay[tools]'")


def draw(plan: Plan, path: str) -> None:
    """Write the picture to a file, and replace a file of that name. SettingsError: it can't be written."""
    write_user_file(path, picture(plan))


def picture(plan: Plan) -> bytes:
    """Return the picture as SVG whose text is text, not outlines. The same plan gives the same bytes."""
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    points = plan.curve.points
    recommended = plan.curve.recommended_limit_bytes
    sizes = [point.limit_bytes for point in points]
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "forebay", "font.family": "sans-serif"}):
        figure = Figure(figsize=(8.0, 4.5), layout="constrained")
        FigureCanvasSVG(figure)
        axes = figure.add_subplot()
        axes.set_xscale("log", base=2)
        axes.grid(color=GRID, linewidth=0.8)
        axes.set_axisbelow(True)
        axes.plot(sizes, [point.hit_ratio * 100 for point in points], color=LINE, linewidth=2, marker="o", markersize=5)
        axes.set_xticks(sizes, [format_size(size) for size in sizes], rotation=30 if len(sizes) > 8 else 0)
        axes.minorticks_off()
        axes.set_ylim(-3, 106)
        axes.set_xlabel("memory_limit")
        axes.set_ylabel("deliveries that needed no read, %")
        axes.set_title(f"{plan.curve.deliveries:,} deliveries in {plan.seconds:,.0f} s", loc="left")
        axes.axvline(
            plan.recorded_limit_bytes,
            color="#888888",
            linestyle=":",
            linewidth=1.2,
            label=f"recorded: {format_size(plan.recorded_limit_bytes)}",
        )
        if recommended is not None:
            label = f"recommended: {format_size(recommended)}"
            axes.axvline(recommended, color=MARK, linestyle="--", linewidth=1.5, label=label)
        figure.legend(loc="outside upper right", ncols=2, frameon=False)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        content: Any = _Text()
        figure.savefig(content, format="svg", metadata={"Date": None})
    return "".join(content.parts).encode()


class _Text:
    """The part of a text file that matplotlib uses."""

    def __init__(self) -> None:
        self.parts: list[str] = []

    def write(self, text: str) -> None:
        if not isinstance(text, str):
            raise TypeError("text is expected")  # matplotlib writes bytes first, to learn what kind of file it has
        self.parts.append(text)

    def seek(self, offset: int) -> None:
        """Do nothing: matplotlib tells a file from a name by this method, and never calls it."""
