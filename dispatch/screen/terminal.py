"""The screen on a terminal, by rich: in colour, and again in the same place. Needs forebay[terminal]."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live
from rich.text import Text

from .lines import Line


class Terminal:
    """Shows screens in the place of the ones before. Made by `terminal`."""

    def __init__(self, live: Live) -> None:
        self._live = live

    def show(self, lines: Iterable[Line]) -> None:
        self._live.update(text_of(lines), refresh=True)


@contextmanager
def terminal(*, keeps: bool, console: Console | None = None) -> Iterator[Terminal]:
    """Take the terminal for screens, and give it back however this ends.

    keeps: whether the last screen stays. console: the terminal, if not standard output.
    """
    live = Live(
        console=console if console is not None else Console(highlight=False),
        auto_refresh=False,
        screen=not keeps,
        transient=False,
        redirect_stdout=False,
        redirect_stderr=False,
        vertical_overflow="crop",
    )
    with live:
        yield Terminal(live)


def text_of(lines: Iterable[Line]) -> Text:
    """Return lines as rich has them. What is in a span is text: nothing in it is taken for markup."""
    text = Text(no_wrap=True, overflow="crop")
    for number, line in enumerate(lines):
        if number:
            text.append("\n")
        for span in line:
            text.append(span.text, span.style or None)
    return text
