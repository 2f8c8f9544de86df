"""The picture: hit ratio and throughput against memory, a column for each traffic. Needs matplotlib."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from forebay.dispatch.config.sizes import MIB

from .report import Point
from .traffic import Traffic

OURS = "#1f5fa8"
KEPT = "#7fb2e5"
LRU = "#c8501e"
GRID = "#dddddd"


def draw(points: Mapping[Traffic, Sequence[Point]], path: Path) -> None:
    """Write the picture as SVG; text stays text, and the same points give the same bytes."""
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "forebay", "font.family": "sans-serif"}):
        figure = Figure(figsize=(3.8 * len(points), 6.0), layout="constrained")
        FigureCanvasSVG(figure)
        grid = figure.subplots(2, len(points), sharex="col", squeeze=False)
        for column, (traffic, measured) in enumerate(points.items()):
            ratios, rates = grid[0][column], grid[1][column]
            sizes = [point.limit_bytes / MIB for point in measured]
            _line(
                ratios, sizes, [100 * point.hit_ratio for point in measured], OURS, "-", "forebay: no wait for the disk"
            )
            _line(ratios, sizes, [100 * point.kept_ratio for point in measured], KEPT, "-", "forebay: never left RAM")
            _line(ratios, sizes, [100 * point.lru_hit_ratio for point in measured], LRU, "--", "plain LRU, same size")
            _line(rates, sizes, [point.rate / 1000 for point in measured], OURS, "-", "_")
            ratios.set_title(traffic.name, loc="left")
            ratios.set_ylim(-3, 106)
            rates.set_ylim(bottom=0)
            rates.set_xscale("log", base=2)
            rates.set_xticks(sizes, [f"{size:g}" for size in sizes])
            rates.minorticks_off()
            rates.set_xlabel("memory_limit, MiB")
        grid[0][0].set_ylabel("deliveries, %")
        grid[1][0].set_ylabel("1,000 messages/s")
        figure.legend(*grid[0][0].get_legend_handles_labels(), loc="outside upper center", ncols=3, frameon=False)
        figure.savefig(path, format="svg", metadata={"Date": None})


def _line(axes: Any, sizes: Sequence[float], values: Sequence[float], color: str, style: str, label: str) -> None:
    axes.plot(sizes, values, color=color, linestyle=style, linewidth=2, marker="o", markersize=4, label=label)
    axes.grid(color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
