"""The pictures of the console, as places in percent of their own width and height: the templates draw them as SVG."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import log2
from typing import Final

from ..dispatch.screen.lines import FREE, LIVE_STEPS, LIVE_TITLES
from ..dispatch.screen.view import HOLDERS, OTHERS, DataLogView, StoreView
from ..pages.charts import Chart, Line, LinePiece, Mark, Tick

EDGE: Final = 4.0
"""Percent of the plot on each side of the first and the last limit."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the memory bar."""

    look: str
    """The CSS class of the part."""
    title: str
    bytes: float
    x: float
    width: float


def memory_parts(view: StoreView) -> list[Part]:
    """Return the parts of a bar. Its whole width is the memory limit, or the held memory if that is more."""
    free = max(view.limit_bytes - view.held_bytes, 0.0)
    titles = {title: f"part-{n}" for n, title in enumerate(HOLDERS.values(), start=1)}
    held = [(titles.get(title, "part-others"), title, size) for title, size in view.parts.items()]
    shown = [(look, "other" if title == OTHERS else title, size) for look, title, size in held]
    shown.append(("part-free", FREE, free))
    scale = max(view.limit_bytes, sum(size for *_, size in shown), 1.0)
    parts, x = [], 0.0
    for look, title, size in shown:
        width = 100 * size / scale
        parts.append(Part(look, title, size, round(x, 3), round(width, 3)))
        x += width
    return parts


def curve_picture(view: StoreView) -> Chart | None:
    """Return the hit ratio by memory limit; None: nothing is known before the first delivery.

    Limits go from left to right, doubling at equal steps. The marks are the present limit and the recommended one, if
    they are within the curve.
    """
    if len(view.curve) < 2:
        return None
    first, last = view.curve[0][0], view.curve[-1][0]
    if first >= last:
        return None

    def across(limit_bytes: float) -> float | None:
        if not first <= limit_bytes <= last:
            return None
        return round(EDGE + (100 - 2 * EDGE) * log2(limit_bytes / first) / log2(last / first), 2)

    places = [(x, ratio, limit) for limit, ratio in view.curve if (x := across(limit)) is not None]
    points = tuple((x, round(100 - 100 * ratio, 2)) for x, ratio, _ in places)
    limits = ((view.limit_bytes, "mark"), (view.recommended_limit_bytes, "mark best"))
    return Chart(
        lines=(Line("", "hit ratio", (LinePiece(points),), has_area=True, has_dots=True),),
        across=tuple(Tick(x, short_size(limit)) for x, _, limit in places),
        up=tuple(Tick(100 - percent, f"{percent} %") for percent in (0, 50, 100)),
        marks=tuple(Mark(x, look) for limit, look in limits if limit and (x := across(limit)) is not None),
    )


@dataclass(frozen=True, slots=True)
class Square:
    """A square that stands for one data log, or for several neighbours."""

    look: str
    first: int
    title: str


def squares(data_logs: Iterable[DataLogView]) -> Iterator[Square]:
    """Yield a square for each row about data logs, coloured by the live share."""
    for one in data_logs:
        share = min(one.live_bytes / one.bytes, 1.0) if one.bytes else 0.0
        step = sum(share > bound for bound in LIVE_STEPS)
        name = f"data-{one.first:.0f}.log" if one.first == one.last else f"data logs {one.first:.0f} to {one.last:.0f}"
        yield Square(f"live-{step}", int(one.first), f"{name}: {short_size(one.bytes)}, {100 * share:.0f} % live")


def live_looks() -> Sequence[tuple[str, str]]:
    """Return the CSS class of each kind of square, with its meaning."""
    return [(f"live-{step}", title) for step, title in enumerate(LIVE_TITLES)]


def short_size(size_bytes: float) -> str:
    """Return a size with a binary unit, in few characters."""
    for unit, power in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size_bytes >= 1 << power:
            found = size_bytes / (1 << power)
            return f"{found:,.0f} {unit}" if found >= 100 or found == int(found) else f"{found:.1f} {unit}"
    return f"{size_bytes:,.0f} B"
