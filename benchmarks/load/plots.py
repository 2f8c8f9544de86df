"""Plots: one run over time, as panels that share an axis of seconds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, floor, log10
from typing import Any, Final

from forebay.dispatch.config.sizes import MIB
from forebay.pages.charts import Chart, Line, LinePiece, Mark, Tick, pieces, round_steps

from .words import short

_PERCENTILES: Final = (("50", ""), ("99", "second"), ("9999", "third"))
_NOTES_MAX: Final = 26
"""Most notes that are marked, each with one letter of the alphabet."""
_LABEL_PERCENT: Final = 1.5
"""Width of a letter in percent of the axis."""


@dataclass(frozen=True, slots=True)
class Panel:
    """A chart with its title."""

    title: str
    chart: Chart


def panels(run: Mapping[str, Any]) -> list[Panel]:
    """Return the panels of one run of a result; the first of them names the notes."""
    time = _Time(run["sampleSeconds"])
    found = [_rates(time, run), _depth(time, run), _memory(time, run)]
    if any(run["spilledBytes"]):
        found.append(_spilled(time, run))
    if any(any(run.get(f"endToEndLatency{suffix}pct", ())) for suffix, _ in _PERCENTILES):
        found.append(_latencies(time, run))
    notes = run["notes"][:_NOTES_MAX]
    lines = tuple(Mark(time.place(note["seconds"]), "mark event") for note in notes)
    found = [replace(panel, chart=replace(panel.chart, marks=lines)) for panel in found]
    found[0] = replace(found[0], chart=replace(found[0].chart, marks=_named(lines)))
    return found


def letter(number: int) -> str:
    """Return the letter that marks a note; empty beyond the alphabet."""
    return chr(ord("a") + number) if number < _NOTES_MAX else ""


class _Time:
    """The axis of seconds, from 0 to the last sample."""

    def __init__(self, seconds: Sequence[float]) -> None:
        self._seconds = seconds
        self._most = max(seconds)
        steps = [step for step in round_steps(self._most) if step <= self._most]
        self._ticks = tuple(Tick(self.place(step), f"{step:,.6g} s") for step in steps)

    def place(self, seconds: float) -> float:
        return round(min(100 * seconds / self._most, 100.0), 3) if self._most else 0.0

    def chart(self, up: Sequence[Tick], series: Iterable[tuple[Line, Iterable[float | None]]]) -> Chart:
        """Return a chart of lines. series: each line without points, and its heights in percent from below."""
        return Chart(
            tuple(replace(line, pieces=self._pieces(heights)) for line, heights in series), self._ticks, tuple(up)
        )

    def _pieces(self, heights: Iterable[float | None]) -> tuple[LinePiece, ...]:
        down = (None if height is None else round(100 - height, 3) for height in heights)
        return pieces(list(zip(map(self.place, self._seconds), down, strict=True)))


def _linear(time: _Time, *series: tuple[Line, Sequence[float]]) -> Chart:
    """Return a chart whose axis begins at 0."""
    steps = round_steps(max(max(values) for _, values in series))
    up = [Tick(round(100 - 100 * step / steps[-1], 3), _round(step)) for step in steps]
    return time.chart(up, [(line, [100 * value / steps[-1] for value in values]) for line, values in series])


def _rates(time: _Time, run: Mapping[str, Any]) -> Panel:
    sent, acknowledged = (_line("sent"), run["publishRate"]), (_line("acknowledged", "second"), run["consumeRate"])
    return Panel("Messages a second", _linear(time, sent, acknowledged))


def _depth(time: _Time, run: Mapping[str, Any]) -> Panel:
    return Panel("Messages in the queues", _linear(time, (_line("pending", has_area=True), run["backlog"])))


def _memory(time: _Time, run: Mapping[str, Any]) -> Panel:
    held, grown, limit = ([size / MIB for size in run[name]] for name in ("heldBytes", "ussGrowthBytes", "limitBytes"))
    chart = _linear(
        time,
        (_line("growth of the process", "quiet"), grown),
        (_line("charged", has_area=True), held),
        (replace(_line("limit", "bound"), has_stairs=True), limit),
    )
    return Panel("MiB of memory", chart)


def _spilled(time: _Time, run: Mapping[str, Any]) -> Panel:
    spilled = [size / MIB for size in run["spilledBytes"]]
    return Panel("MiB spilled to disk", _linear(time, (_line("spilled", "third", has_area=True), spilled)))


def _latencies(time: _Time, run: Mapping[str, Any]) -> Panel:
    """Return the panel of latencies, on a logarithmic axis. Seconds in which nothing was taken are left out."""
    series = [
        (_line(f"p{suffix[:2]}.{suffix[2:]}".rstrip("."), look), run[f"endToEndLatency{suffix}pct"])
        for suffix, look in _PERCENTILES
    ]
    found = [value for _, values in series for value in values if value]
    lowest = floor(log10(min(found)))
    highest = max(ceil(log10(max(found))), lowest + 1)

    def height(milliseconds: float) -> float | None:
        return 100 * (log10(milliseconds) - lowest) / (highest - lowest) if milliseconds else None

    powers = range(lowest, highest + 1)
    up = [Tick(round(100 * (highest - power) / (highest - lowest), 3), f"{10.0**power:,.6g}") for power in powers]
    return Panel(
        "Milliseconds from due to taken", time.chart(up, [(line, map(height, values)) for line, values in series])
    )


def _line(title: str, look: str = "", *, has_area: bool = False) -> Line:
    return Line(look, title, (), has_area=has_area)


def _round(number: float) -> str:
    return short(number) if number >= 100_000 else f"{number:,.6g}"


def _named(marks: Sequence[Mark]) -> tuple[Mark, ...]:
    """Return the marks with their letters; those of neighbours stand together, at the first of them."""
    named: list[Mark] = []
    first = 0
    for number, mark in enumerate(marks):
        if named and mark.at - marks[first].at < _LABEL_PERCENT:
            named[first] = replace(named[first], text=named[first].text + letter(number))
            named.append(mark)
        else:
            first = number
            named.append(replace(mark, text=letter(number)))
    return tuple(named)
