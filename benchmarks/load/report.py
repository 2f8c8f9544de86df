"""Report: show a run to a person, one line a second.

The lines have no escape codes, so they fit a pipe or a log. On a terminal with `rich` installed, a progress bar is
below them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Final, Protocol, Self

from .evidence import Check
from .result import Sample

if TYPE_CHECKING:
    from rich.progress import Progress

_HEADER: Final = (
    f"{'time s':>7}  {'phase':<7}{'sent/s':>8}{'acked/s':>9}{'backlog':>9}"
    f"{'held MiB':>10}{'USS MiB':>9}{'spill MiB':>10}{'hit %':>7}{'blocked ms':>12}"
)
_HEADER_EVERY_LINES: Final = 25

_LEGEND: Final = (
    "held: bytes charged to the memory limit; USS: growth of the broker process's own memory;\n"
    "spill: tmp-storage; hit: deliveries that did not wait for the disk; blocked: sends that waited for room"
)


class Audience(Protocol):
    """An object that is told about a run while it goes on."""

    def line(self, sample: Sample, done: int) -> None:
        """Receive the sample of a second. done: sends and deliveries so far."""

    def note(self, seconds: float, text: str) -> None:
        """Receive an event between two lines, such as a kill."""


class Report:
    """Writes to standard output. A context manager, because a progress bar must give the terminal back."""

    def __init__(self) -> None:
        self._bar = _progress_bar() if sys.stdout.isatty() else None
        self._task = None if self._bar is None else self._bar.add_task("")
        self._lines = 0
        self._legend = f"{_LEGEND}\n\n"

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def begin(self, title: str, work: int) -> None:
        """Begin a scenario. work: the value of `done` at its end."""
        self._lines = 0
        legend, self._legend = self._legend, ""
        self._print(f"{title}\n\n{legend}{_HEADER}")
        if self._bar is not None and self._task is not None:
            self._bar.reset(self._task, total=work)

    def line(self, sample: Sample, done: int) -> None:
        """Print the sample of a second, and move the progress bar."""
        self._lines += 1
        if self._lines % _HEADER_EVERY_LINES == 0:
            self._print(_HEADER)
        self._print(str(sample))
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=done)

    def note(self, seconds: float, text: str) -> None:
        """Print an event between two lines."""
        self._print(f"{seconds:>7.1f}  {text}")

    def verdict(self, summary: str, checks: Iterable[Check]) -> None:
        """Print a summary, and below it each check, with one or more lines."""
        self._print(f"\n{summary}\n")
        for check in checks:
            first, *others = check.text.split("\n")
            self._print(f"  {'held' if check.held else 'FAILED':<8}{check.name:<14}{first}")
            for other in others:
                self._print(f"{'':<24}{other}")
        self._print("")

    def _print(self, text: str) -> None:
        if self._bar is None:
            print(text, flush=True)
        else:
            self._bar.console.print(text, markup=False, highlight=False, soft_wrap=True)


def _progress_bar() -> Progress | None:
    try:
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TimeElapsedColumn
    except ImportError:
        return None
    return Progress(TimeElapsedColumn(), BarColumn(bar_width=None), TaskProgressColumn(), transient=True)
