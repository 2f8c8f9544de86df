"""Streams: what a command prints to, reads from and waits with, so that a test can replace all of it.

A table is drawn by rich where that is installed and the output is a terminal, and otherwise printed as plain text.
Progress is shown only on a terminal, on standard error, so that results stay whole in a file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any, Final, TextIO

from ...store.errors import SettingsError
from ..store_status import printable

Row = Sequence[str]

_SHOW_SECONDS: Final = 0.1
"""The least time between two lines of progress."""
_QUIET_SECONDS: Final = 0.5
"""Work that is done within this time shows no progress."""
_CLEAR: Final = "\r\x1b[K"


def escaped(text: str) -> str:
    """Return a text for a terminal.

    Characters that could steer it, or are not valid, are escaped as Python writes them.
    """
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


class Streams:
    """The environment of one command.

    out, err: where results and remarks go. read(n): up to n bytes of standard
    input; fewer are all there are. wait(seconds): returns after so long.
    monotonic: seconds on a clock that never goes back.
    """

    def __init__(
        self,
        out: TextIO,
        err: TextIO,
        read: Callable[[int], bytes],
        wait: Callable[[float], object],
        monotonic: Callable[[], float],
    ) -> None:
        self.out = out
        self.wait = wait
        self._err = err
        self._read = read
        self._monotonic = monotonic

    @property
    def is_live(self) -> bool:
        """Whether the output is a terminal, and rich is there to draw results."""
        return self.out.isatty() and find_spec("rich") is not None

    @property
    def out_is_terminal(self) -> bool:
        """Whether results go to a terminal, where progress would come between them."""
        return self.out.isatty()

    def print(self, line: str) -> None:
        """Print a line of results."""
        self.out.write(f"{line}\n")

    def print_now(self, line: str) -> None:
        """Print a line and flush it, so that a reader of a pipe sees it at once."""
        self.print(line)
        self.flush()

    def flush(self) -> None:
        """Hand everything printed to the reader. BrokenPipeError: the reader has gone."""
        self.out.flush()

    def print_json(self, value: Any) -> None:
        """Print a value as one line of JSON."""
        self.print(json.dumps(value))

    def print_bytes(self, content: bytes) -> None:
        """Print bytes as they are."""
        binary = getattr(self.out, "buffer", None)
        if binary is None:  # a stand-in for standard output, which takes text alone
            self.out.write(content.decode(errors="backslashreplace"))
            return
        self.out.flush()
        binary.write(content)

    def remark(self, line: str) -> None:
        """Print a remark beside the results."""
        self._err.write(f"{line}\n")
        self._err.flush()

    def read_at_most(self, most_bytes: int) -> bytes:
        """Return the whole of standard input. SettingsError: it has more than so many bytes."""
        content = self._read(most_bytes + 1)
        if len(content) > most_bytes:
            raise SettingsError(f"standard input has more than {most_bytes:,} bytes")
        return content

    def print_table(self, head: Row, rows: Sequence[Row], *, numbers: Sequence[str] = (), indent: str = "") -> None:
        """Print cells in columns, with a head over them.

        numbers: the columns that are aligned to the right.
        """
        if self.is_live:
            from rich.console import Console
            from rich.table import Table

            drawn = Table(box=None, pad_edge=False, header_style="bold")
            for name in head:
                drawn.add_column(name, justify="right" if name in numbers else "left", overflow="fold")
            for row in rows:
                drawn.add_row(*(_unmarked(cell) for cell in row))
            Console(file=self.out, highlight=False).print(drawn)
            return
        widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
        for row in (head, *rows):
            cells = (
                cell.rjust(width) if name in numbers else cell.ljust(width)
                for name, cell, width in zip(head, row, widths, strict=True)
            )
            self.print(f"{indent}{'  '.join(cells)}".rstrip())

    def progress(self, total_bytes: int = 0) -> Progress:
        """Return an object that shows how far a command is.

        total_bytes: the bytes of the whole work, or 0 if that is not known yet.
        """
        show = self._err.write if self._err.isatty() else None
        return Progress(show, self._err.flush, self._monotonic, total_bytes)


class Progress:
    """Shows how far a command is, as a line that is written over again and again, with the time that is left."""

    def __init__(
        self,
        show: Callable[[str], object] | None,
        flush: Callable[[], object],
        monotonic: Callable[[], float],
        total_bytes: int,
    ) -> None:
        """Make a display of progress.

        show: gets the text to show, or is None if nobody looks.
        """
        self._show = show
        self._flush = flush
        self._monotonic = monotonic
        self._total_bytes = total_bytes
        self._began = monotonic()
        self._next = self._began + _QUIET_SECONDS
        self._is_shown = False

    def __call__(self, done_bytes: int, total_bytes: int | None = None, what: str = "") -> None:
        """Show how far the command is.

        total_bytes: the bytes of the whole work, where that has become known or has changed.
        """
        if self._show is None:
            return
        if total_bytes is not None:
            self._total_bytes = total_bytes
        now = self._monotonic()
        if now < self._next:
            return
        self._next = now + _SHOW_SECONDS
        self._is_shown = True
        self._show(f"{_CLEAR}{progress_text(done_bytes, self._total_bytes, now - self._began, what)}")
        self._flush()

    def clear(self) -> None:
        """Remove the line."""
        if self._show is not None and self._is_shown:
            self._show(_CLEAR)
            self._flush()
            self._is_shown = False

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()


def progress_text(done_bytes: int, total_bytes: int, seconds: float, what: str = "") -> str:
    """Return how far it is, in words.

    >>> progress_text(96 << 20, 384 << 20, 5.0, "data-3.log")
    '96 of 384 MiB, 25 %, 15 s left: data-3.log'
    """
    total_bytes = max(total_bytes, done_bytes)
    text = f"{done_bytes >> 20:,} of {total_bytes >> 20:,} MiB"
    if total_bytes:
        text += f", {100 * done_bytes // total_bytes} %"
    if done_bytes:
        text += f", {_time_text(seconds * (total_bytes - done_bytes) / done_bytes)} left"
    return f"{text}: {printable(what)}" if what else text


def _time_text(seconds: float) -> str:
    whole = int(seconds + 0.5)
    if whole < 120:
        return f"{whole} s"
    return f"{whole // 60} min" if whole < 7200 else f"{whole // 3600} h {whole % 3600 // 60} min"


def _unmarked(cell: str) -> Any:
    """Return a cell as rich's own text, in which nothing is taken for markup."""
    from rich.text import Text

    return Text(cell)
