"""Plots: one run over time, as four panels with one axis of seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, floor, log10
from typing import TYPE_CHECKING, Any, Final

from forebay.dispatch.config.sizes import MIB

from ..drawing import BLUE, GREEN, GREY, ORANGE, PURPLE, legend, panels, svg, title
from .words import short

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_PERCENTILES: Final = (("50", GREEN), ("99", ORANGE), ("9999", PURPLE))
_NOTES_MAX: Final = 26
"""Most notes that are marked: as many as there are letters."""
_A_LITTLE: Final = 0.01
"""Part of a decade, so that an axis never ends where it begins."""
_LABEL_WIDTH: Final = 0.012
"""Width of a letter, as a share of the axis."""


def plots(run: Mapping[str, Any]) -> str:
    """Return the SVG of one run of a result."""
    has_latencies = "endToEndLatency50pct" in run
    figure, axes = panels(4 if has_latencies else 3, 1, 9.5, 8.6 if has_latencies else 6.6, sharex=True)
    seconds = run["sampleSeconds"]
    _rates(axes[0], seconds, run)
    _depth(axes[1], seconds, run)
    _memory(axes[2], seconds, run)
    if has_latencies:
        _latencies(axes[3], seconds, run)
    for number, panel in enumerate(axes):
        panel.set_xlim(0, max(seconds))
        _mark(panel, run["notes"], max(seconds), is_first=not number)
    axes[-1].set_xlabel("seconds")
    return svg(figure)


def letter(number: int) -> str:
    """Return the letter that marks a note; empty beyond the alphabet."""
    return chr(ord("a") + number) if number < _NOTES_MAX else ""


def _rates(panel: Axes, seconds: Sequence[float], run: Mapping[str, Any]) -> None:
    title(panel, "messages a second")
    panel.yaxis.set_major_formatter(lambda rate, _: short(rate))
    panel.plot(seconds, run["publishRate"], color=BLUE, linewidth=1.5, label="sent")
    panel.plot(seconds, run["consumeRate"], color=ORANGE, linewidth=1.5, label="acknowledged")
    panel.set_ylim(bottom=0)
    legend(panel)


def _depth(panel: Axes, seconds: Sequence[float], run: Mapping[str, Any]) -> None:
    title(panel, "messages in the queues")
    panel.yaxis.set_major_formatter(lambda messages, _: short(messages))
    panel.fill_between(seconds, run["backlog"], color=BLUE, alpha=0.25, linewidth=0)
    panel.plot(seconds, run["backlog"], color=BLUE, linewidth=1.5)
    panel.set_ylim(bottom=0)


def _memory(panel: Axes, seconds: Sequence[float], run: Mapping[str, Any]) -> None:
    title(panel, "MiB of memory")
    held, uss, limit = ([size / MIB for size in run[name]] for name in ("heldBytes", "ussGrowthBytes", "limitBytes"))
    panel.fill_between(seconds, held, color=GREEN, alpha=0.3, linewidth=0, label="charged")
    panel.plot(seconds, uss, color=GREY, linewidth=1.2, label="growth of the process")
    panel.step(seconds, limit, where="pre", color=ORANGE, linewidth=1.5, linestyle="--", label="limit")
    panel.set_ylim(0, 1.1 * max(*limit, *uss))
    if any(run["spilledBytes"]):
        disk = panel.twinx()
        disk.plot(seconds, [size / MIB for size in run["spilledBytes"]], color=PURPLE, linewidth=1.2)
        disk.set_ylim(bottom=0)
        disk.set_ylabel("MiB spilled to disk", color=PURPLE)
        disk.grid(False)
    legend(panel)


def _latencies(panel: Axes, seconds: Sequence[float], run: Mapping[str, Any]) -> None:
    """Nothing is drawn for seconds in which nothing was taken."""
    title(panel, "milliseconds from due to taken")
    for suffix, color in _PERCENTILES:
        values = [value or float("nan") for value in run[f"endToEndLatency{suffix}pct"]]
        name = f"p{suffix[:2]}.{suffix[2:]}".rstrip(".")
        panel.plot(seconds, values, color=color, linewidth=1.2, marker=".", markersize=3, label=name)
    panel.set_yscale("log")
    if found := [value for suffix, _ in _PERCENTILES for value in run[f"endToEndLatency{suffix}pct"] if value]:
        panel.set_ylim(10 ** floor(log10(min(found))), 10 ** ceil(log10(max(found)) + _A_LITTLE))
    panel.minorticks_off()
    panel.yaxis.set_major_formatter(lambda milliseconds, _: f"{milliseconds:,.6g}")
    legend(panel)


def _mark(panel: Axes, notes: Sequence[Mapping[str, Any]], width: float, *, is_first: bool) -> None:
    for note in notes[:_NOTES_MAX]:
        panel.axvline(note["seconds"], color=GREY, linewidth=0.8, linestyle=":")
    if is_first:
        for seconds, text in _labels(notes[:_NOTES_MAX], width):
            panel.text(seconds, 0.98, f" {text}", transform=panel.get_xaxis_transform(), color=GREY, va="top")


def _labels(notes: Sequence[Mapping[str, Any]], width: float) -> list[tuple[float, str]]:
    """Return letters and their places; those of neighbours stand together."""
    labels: list[tuple[float, str]] = []
    for number, note in enumerate(notes):
        if labels and note["seconds"] - labels[-1][0] < width * _LABEL_WIDTH:
            labels[-1] = (labels[-1][0], labels[-1][1] + letter(number))
        else:
            labels.append((note["seconds"], letter(number)))
    return labels
