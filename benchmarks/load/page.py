"""Page: a result of the load test as one HTML file without scripts, which loads nothing from a network.

The page has the style and the escaping of the web console. It needs Jinja2, from `forebay[tools]`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from forebay.pages.rendering import environment

from .latency import DELAY, PERCENTILES, PUBLISH, SUFFIXES, TITLES, aggregated
from .plots import letter, panels
from .words import counted, mib, of_sizes, short

_TEMPLATES: Final = Path(__file__).parent / "templates"


def page(result: Mapping[str, Any]) -> str:
    """Return the page that --html writes. Each text of the result is escaped."""
    machine, runs = result["machine"], result["runs"]
    filters = {"mib": mib, "short": short, "whole": lambda number: f"{number:,d}"}
    return (
        environment(_TEMPLATES, filters)
        .get_template("report.html")
        .render(
            subject="load test",
            machine=f"{counted(machine['cores'], 'core')}, {machine['python']}, seed {result['seed']}",
            runs=runs,
            failed=[run for run in runs if not run["allHeld"]],
            details=[_details(run) for run in runs],
        )
    )


def _details(run: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the page shows about one run in addition to the fields of the result."""
    return {
        "load": f"{counted(run['messages'], 'message')}{of_sizes(run['messageSizes'])}",
        "panels": panels(run),
        "notes": [(letter(number), note) for number, note in enumerate(run["notes"])],
        "percentiles": [f"p{percentile:g}" for percentile in PERCENTILES],
        "latencies": list(_latencies(run)),
    }


def _latencies(run: Mapping[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """Yield the title of each kind of latency with its figures in milliseconds."""
    if aggregated(PUBLISH, "Max") not in run:
        return
    for name, title in TITLES.items():
        values = [run[aggregated(name, suffix)] for suffix in SUFFIXES]
        if values[-1]:
            yield title, [f"{value / (1000 if name == DELAY else 1):,.2f}" for value in values]
