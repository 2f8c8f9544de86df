"""Page: a result of the load test as one HTML file that needs nothing else, no network and no script."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any, Final

from .latency import DELAY, PERCENTILES, PUBLISH, SUFFIXES, TITLES, aggregated
from .plots import letter, plots
from .words import counted, mib, of_sizes, short

_HEAD: Final = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>forebay bench</title>
<style>
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, sans-serif; color: #222; background: #fff; max-width: 64rem; margin: 2rem auto;
    padding: 0 1rem; }
h1, h2 { font-weight: 600; line-height: 1.2; }
h2 { border-top: 1px solid #ddd; padding-top: 1.5rem; margin-top: 2.5rem; }
table { border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .7rem; border-bottom: 1px solid #eee; text-align: right; vertical-align: top; }
th, td:not(:last-child) { white-space: nowrap; }
th { font-weight: 600; }
th:first-child, td:first-child, .text td { text-align: left; }
.held { color: #3a7d44; }
.failed { color: #fff; background: #c8501e; font-weight: 600; }
.aside { color: #666; }
svg { max-width: 100%; height: auto; }
</style>
"""


def page(result: Mapping[str, Any]) -> str:
    """Return the page that --html writes. Each text of the result is escaped."""
    return "\n".join([_HEAD, *_whole(result), *(line for run in result["runs"] for line in _run(run)), "</html>", ""])


def _whole(result: Mapping[str, Any]) -> Iterator[str]:
    machine = result["machine"]
    yield "<h1>forebay bench</h1>"
    cores = counted(machine["cores"], "core")
    yield f'<p class="aside">{cores}, {escape(machine["python"])}, seed {result["seed"]}</p>'
    yield "<table><tr><th>scenario<th>verdict<th>messages<th>sent/s<th>acknowledged/s<th>charged<th>limit"
    yield "<th>process grew<th>seconds</tr>"
    for run in result["runs"]:
        yield (
            f"<tr><td>{escape(run['workload'])}<td>{_verdict(run['allHeld'], 'all held')}<td>{run['messages']:,}"
            f"<td>{short(run['sentPerSecond'])}<td>{short(run['ackedPerSecond'])}<td>{mib(run['heldBytesMax'])}"
            f"<td>{mib(run['memoryLimitBytes'])}<td>{mib(run['ussGrowthBytesMax'])}<td>{run['seconds']:,.1f}</tr>"
        )
    yield "</table>"


def _run(run: Mapping[str, Any]) -> Iterator[str]:
    yield f"<h2>{escape(run['workload'])}</h2>"
    schedule = "" if run["rate"] is None else f", by the schedule {escape(run['rate'])}"
    yield (
        f"<p>{escape(run['purpose'])}.<br>{counted(run['messages'], 'message')}{of_sizes(run['messageSizes'])}"
        f"{schedule}, through a memory limit of {mib(run['memoryLimitBytes'])}.</p>"
    )
    yield plots(run)
    yield from _notes(run)
    yield from _latencies(run)
    yield '<table class="text">'
    for check in run["checks"]:
        text = escape(check["text"]).replace("\n", "<br>")
        yield f"<tr><td>{_verdict(check['held'], 'held')}<td>{escape(check['name'])}<td>{text}</tr>"
    yield "</table>"


def _notes(run: Mapping[str, Any]) -> Iterator[str]:
    if run["notes"]:
        yield '<table class="text aside">'
        for number, note in enumerate(run["notes"]):
            yield f"<tr><td>{letter(number)}<td>{note['seconds']:.1f} s<td>{escape(note['text'])}</tr>"
        yield "</table>"


def _latencies(run: Mapping[str, Any]) -> Iterator[str]:
    if aggregated(PUBLISH, "Max") not in run:
        return
    heads = "".join(f"<th>p{percentile:g}" for percentile in PERCENTILES)
    yield f"<table><tr><th>milliseconds<th>average{heads}<th>most</tr>"
    for name, title in TITLES.items():
        values = [run[aggregated(name, suffix)] for suffix in SUFFIXES]
        if values[-1]:
            cells = "".join(f"<td>{value / (1000 if name == DELAY else 1):,.2f}" for value in values)
            yield f"<tr><td>{title}{cells}</tr>"
    yield "</table>"


def _verdict(held: bool, text: str) -> str:
    return f'<span class="held">{text}</span>' if held else '<span class="failed">FAILED</span>'
