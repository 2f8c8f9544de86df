"""The commands that look at a running store: `forebay queues`, `top` and `health`.

They read what the store's process writes about itself. Where no process does, `queues` reads the journal. They write no
file and take no lock.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Final

from ...store.errors import SettingsError
from ..explain.texts import age_text, size_text
from ..screen.lines import glyphs_of, line_of, plain, screen
from ..screen.view import NoView, StoreView, read_view
from ..store_directories import broker_of, only_store, stores_of
from ..store_status import Row, paused_of, paused_text, printable, problems_of, queues_of
from .shared_arguments import add_directories, add_directory, add_json
from .streams import Streams

Look = Callable[[], StoreView | NoView]

_COLUMNS: Final = ("queue", "depth", "ready", "in flight", "size", "oldest", "consumers", "in/s", "out/s")


def add_queues(parser: ArgumentParser) -> None:
    """Define `forebay queues`."""
    add_directories(parser)
    parser.add_argument("--watch", action="store_true", help="again and again, until interrupted")
    parser.add_argument("--interval", metavar="SECONDS", type=float, default=1.0, help="with --watch (%(default)s)")
    add_json(parser, "an object a queue")
    parser.set_defaults(run=run_queues)


def run_queues(arguments: Namespace, streams: Streams) -> int:
    """Print a line for each queue of each store. With --watch, print again until interrupted."""
    _check_interval(arguments.interval)
    while True:
        for disk in stores_of(arguments.directories):
            rows, remarks = queues_of(disk)
            if arguments.json:
                for row in rows:
                    streams.print_json({"broker": broker_of(disk)} | row)
            else:
                _print_queues(broker_of(disk), rows, remarks, streams)
        if not arguments.watch:
            return 0
        streams.flush()
        streams.wait(arguments.interval)


def _print_queues(broker: str, rows: Sequence[Row], remarks: Sequence[str], streams: Streams) -> None:
    streams.print(f"{broker}: {len(rows):,} queue{'' if len(rows) == 1 else 's'}")
    if rows:
        streams.print_table(_COLUMNS, [_cells(row) for row in rows], numbers=_COLUMNS[1:], indent="  ")
    for remark in remarks:
        streams.print(f"  {remark}")


def _cells(row: Row) -> list[str]:
    oldest = age_text(row["oldest_seconds"]) if row["oldest_seconds"] is not None else "-"
    counts = [f"{row[name]:,}" for name in ("depth", "ready", "in_flight")]
    rates = [f"{row[name]:,.0f}" for name in ("in_per_second", "out_per_second")]
    name = printable(row["name"]) + (" (paused)" if row["is_paused"] else "")
    return [name, *counts, size_text(row["bytes"]), oldest, f"{row['consumers']:,}", *rates]


def add_health(parser: ArgumentParser) -> None:
    """Define `forebay health`."""
    add_directories(parser)
    add_json(parser, "an object a store")
    parser.set_defaults(run=run_health)


def run_health(arguments: Namespace, streams: Streams) -> int:
    """Return 0 if each store is open and well, else 1, with a line for each problem.

    Paused queues are named and are no problem: a probe that ended the process for them would resume them.
    """
    is_ok = True
    for disk in stores_of(arguments.directories):
        problems = problems_of(disk)
        is_ok = is_ok and not problems
        paused, more = paused_of(disk)
        if arguments.json:
            told = {"paused": paused, "other_paused": more}
            streams.print_json({"broker": broker_of(disk), "ok": not problems, "problems": problems} | told)
            continue
        remarks = [paused_text(paused, more)] if paused else []
        for said in [*(problems or ["ok"]), *remarks]:
            streams.print(f"{broker_of(disk)}: {said}")
    return 0 if is_ok else 1


# ---------------------------------------------------------------------- the screen


def add_top(parser: ArgumentParser) -> None:
    """Define `forebay top`."""
    add_directory(parser)
    parser.add_argument("--once", action="store_true", help="print one screen as plain text, and end")
    parser.add_argument("--interval", metavar="SECONDS", type=float, default=1.0, help="between two (%(default)s)")
    add_json(parser, "an object a look; with --once a single one")
    parser.set_defaults(run=run_top)


def run_top(arguments: Namespace, streams: Streams) -> int:
    """Show the screen until interrupted.

    With --once, print one screen, and return 1 where no process writes a status.
    """
    _check_interval(arguments.interval)
    disk = only_store(arguments.directory)

    def found() -> StoreView | NoView:
        return read_view(disk.root, broker_of(disk))

    if arguments.once:
        seen = found()
        _print_once(seen, streams, is_json=arguments.json)
        return 1 if isinstance(seen, NoView) else 0
    if streams.is_live and not arguments.json:
        return _show(found, streams, arguments.interval)
    if streams.out.isatty() and not arguments.json:
        streams.print("for the whole screen: pip install 'forebay[terminal]'")
    while True:
        seen = found()
        if arguments.json:
            streams.print_json(asdict(seen))
        else:
            streams.print(line_of(seen))
        streams.flush()
        streams.wait(arguments.interval)


def _print_once(seen: StoreView | NoView, streams: Streams, *, is_json: bool) -> None:
    if is_json:
        streams.print_json(asdict(seen))
        return
    for line in plain(screen(seen, glyphs_of(streams.out.encoding))):
        streams.print(line)


def _show(found: Look, streams: Streams, interval: float) -> int:
    from ..screen.terminal import terminal  # for those who have one

    glyphs = glyphs_of(streams.out.encoding)
    with terminal(keeps=False) as shown:
        while True:
            shown.show(screen(found(), glyphs))
            streams.wait(interval)


def _check_interval(seconds: float) -> None:
    if not 0.1 <= seconds <= 3600:
        raise SettingsError(f"interval={seconds} must be from 0.1 to 3600 seconds")
