"""The screen on a terminal, drawn by rich in colour and always in the same place. It needs forebay[terminal]."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live
from rich.text import Text

from .lines import Line


class Terminal:
    """Shows each screen in the place of the one before. `terminal` makes it."""

    def __init__(self, live: Live) -> None:
        self._live = live

    def show(self, lines: Iterable[Line]) -> None:
        self._live.update(text_of(lines), refresh=True)


@contextmanager
def terminal(*, keeps: bool, console: Console | None = None) -> Iterator[Terminal]:
    """Take the terminal for screens, and give it back however the block ends.

    keeps: whether the last screen stays.
    console: the terminal, if it is not standard output.
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
    """Return lines as rich has them. The content of a span is text, and nothing in it is taken for markup."""
    text = Text(no_wrap=True, overflow="crop")
    for number, line in enumerate(lines):
        if number:
            text.append("\n")
        for span in line:
            text.append(span.text, span.style or None)
    return text
