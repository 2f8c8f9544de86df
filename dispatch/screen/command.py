"""The command `forebay top`: the memory, queues, consumers and journal of a running store, beside it.

It reads what the store's process writes about itself, and nothing else. It
writes nothing and takes no lock.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable
from importlib.util import find_spec

from ...store.disk.disk import OsDisk
from ...store.errors import SettingsError
from ..offline import Print, stores_in
from .lines import ASCII, BLOCKS, Glyphs, clock_text, count, plain, screen, size
from .view import Silence, View, look, printable

Look = Callable[[], View | Silence]


def top_command(arguments: Namespace, print_line: Print, wait: Callable[[float], object]) -> int:
    """Run `forebay top DIR`: the screen until interrupted; with --once print one and return 1 where nobody tells.

    wait(seconds): returns after so many seconds.
    """
    if not 0.1 <= arguments.interval <= 3600:
        raise SettingsError(f"interval={arguments.interval} must be from 0.1 to 3600 seconds")
    disk = _only(arguments.directory)
    broker = disk.root.rpartition("/")[2]

    def found() -> View | Silence:
        return look(disk.root, broker)

    if arguments.once:
        seen = found()
        for line in plain(screen(seen, glyphs_of(sys.stdout.encoding))):
            print_line(line)
        return 1 if isinstance(seen, Silence) else 0
    if not sys.stdout.isatty():
        return _print_lines(found, print_line, wait, arguments.interval)
    if find_spec("rich") is None:
        print_line("for the whole screen: pip install 'forebay[terminal]'")
        return _print_lines(found, print_line, wait, arguments.interval)
    return _show(found, wait, arguments.interval)


def _only(directory: str) -> OsDisk:
    stores = stores_in(directory)
    if len(stores) > 1:
        names = printable(", ".join(f"{directory.rstrip('/')}/{disk.root.rpartition('/')[2]}" for disk in stores[:5]))
        raise SettingsError(f"{directory} has {len(stores):,} brokers: name the directory of one, such as {names}")
    return stores[0]


def _print_lines(found: Look, print_line: Print, wait: Callable[[float], object], interval: float) -> int:
    """Print a line for each look, for a pipe or a log; until interrupted."""
    while True:
        print_line(line_of(found()))
        wait(interval)


def line_of(seen: View | Silence) -> str:
    """Return a look as one line."""
    if isinstance(seen, Silence):
        return f"{seen.sentence} {seen.advice}"
    depth, into, out = (
        sum(figure)
        for figure in (
            [queue.depth for queue in seen.queues],
            [queue.in_per_second for queue in seen.queues],
            [queue.out_per_second for queue in seen.queues],
        )
    )
    return (
        f"{clock_text(seen.time)}  held {size(seen.held_bytes)} of {size(seen.limit_bytes)}, "
        f"USS {size(seen.unique_bytes)}, {count(depth)} pending, {count(into)} in/s, {count(out)} out/s, "
        f"{count(seen.data_log_count)} data logs"
    )


def _show(found: Look, wait: Callable[[float], object], interval: float) -> int:
    from .terminal import terminal  # for those who have one

    glyphs = glyphs_of(sys.stdout.encoding)
    with terminal(keeps=False) as shown:
        while True:
            shown.show(screen(found(), glyphs))
            wait(interval)


def glyphs_of(encoding: str | None) -> Glyphs:
    """Return the signs that an encoding has."""
    try:
        "".join((BLOCKS.parts, BLOCKS.squares, BLOCKS.ellipsis)).encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return ASCII
    return BLOCKS
