"""The commands that look at a running store from outside: `forebay queues` and `forebay health`.

They read the status file that the store's housekeeper writes, and where there is
none the journal. They write nothing, take no lock, and trust nothing that they
read.
"""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Callable, Iterator
from typing import Any, Final

from ..store.clock import SystemClock
from ..store.disk.disk import OsDisk
from ..store.disk.status_file import read_status
from ..store.format.state import QUEUE
from ..store.inspect.read_only import open_read_only
from .explain.disk import age_text, size_text
from .offline import Print, stores_in

STALE_INTERVALS: Final = 5
STALE_SECONDS: Final = 5.0
"""A status that is older than five of its intervals, and than this, tells of a process that is gone or stands still."""
NUMBER_MAX: Final = 900_000_000_000_000_000
"""A larger number, or one that is none, is nothing that a store says."""
NUMBERS: Final = ("depth", "ready", "in_flight", "bytes", "consumers", "in_per_second", "out_per_second")

Row = dict[str, Any]


def queues_command(arguments: Namespace, print_line: Print, wait: Callable[[float], object]) -> int:
    """Run `forebay queues DIR`: a line for each queue, of each store there. With --watch again until interrupted.

    wait(seconds): returns after so many seconds.
    """
    while True:
        stores = stores_in(arguments.directory)
        for disk in stores:
            rows, remarks = _queues(disk)
            if arguments.json:
                for row in rows:
                    print_line(json.dumps({"broker": _broker(disk)} | row))
                continue
            for line in _table(_broker(disk), rows, remarks):
                print_line(line)
        if not arguments.watch:
            return 0
        wait(arguments.interval)


def health_command(arguments: Namespace, print_line: Print) -> int:
    """Run `forebay health DIR`: return 0 if each store there is open and well, else 1, with a line for each problem."""
    is_ok = True
    for disk in stores_in(arguments.directory):
        problems = _problems(disk)
        is_ok = is_ok and not problems
        for problem in problems or ["ok"]:
            print_line(f"{_broker(disk)}: {problem}")
    return 0 if is_ok else 1


def _problems(disk: OsDisk) -> list[str]:
    status = live_status(disk.root)
    if status is None:
        return ["no process says that it has the store open, or it was opened with status_interval_seconds=None"]
    age = _age_seconds(status)
    if is_stale(status, age):
        return [f"the process that has the store open has said nothing for {age_text(age)}: it is gone or stands still"]
    health = status.get("health")
    problems = health.get("problems") if isinstance(health, dict) else None
    if not isinstance(problems, list):
        return ["the status file makes no sense"]
    return [printable(problem) for problem in problems]


# ---------------------------------------------------------------------- what a store says


def live_status(root: str) -> Row | None:
    """Return the status in a store's directory; None where there is none that makes sense."""
    content = read_status(root)
    if content is None:
        return None
    try:
        status = json.loads(content)
    except (ValueError, RecursionError):
        return None
    if not isinstance(status, dict) or status.get("format") != 1:
        return None
    if not all(_is_number(status.get(name)) for name in ("time", "interval_seconds")):
        return None
    return status


def _queues(disk: OsDisk) -> tuple[list[Row], list[str]]:
    """Return a row for each queue, and what is to be said about them."""
    status = live_status(disk.root)
    if status is None or is_stale(status, _age_seconds(status)):
        return list(_of_journal(disk)), ["nobody says that the store is open: these are from the journal"]
    found = status.get("queues")
    rows = [_of_status(row) for row in found if _makes_sense(row)] if isinstance(found, list) else []
    others = status.get("other_queues")
    return rows, [f"and {others:,} less busy queues"] if isinstance(others, int) and others > 0 else []


def _of_status(row: Row) -> Row:
    counts = {name: row[name] for name in NUMBERS}
    ready_in_flight = row["ready"] + row["in_flight"]
    told = {"name": row["name"], "oldest_seconds": row["oldest_seconds"], "ready_in_flight": ready_in_flight}
    return told | counts


def _makes_sense(row: object) -> bool:
    if not isinstance(row, dict) or not isinstance(row.get("name"), str):
        return False
    oldest = row.get("oldest_seconds", "")
    return all(_is_number(row.get(name)) for name in NUMBERS) and (oldest is None or _is_number(oldest))


def _of_journal(disk: OsDisk) -> Iterator[Row]:
    """Yield what is pending by the journal alone: nobody has it in flight."""
    seen = open_read_only(disk, SystemClock().time_ms())
    pending: dict[int, tuple[int, int]] = {}
    for stored in seen.index.lanes.values():
        messages, size = pending.get(stored.destination, (0, 0))
        pending[stored.destination] = messages + stored.pending_messages, size + stored.pending_bytes
    for destination in sorted(seen.destinations.values(), key=lambda found: found.name):
        if destination.kind == QUEUE:
            messages, size = pending.get(destination.number, (0, 0))
            row: Row = dict.fromkeys(NUMBERS, 0)
            row |= {"depth": messages, "ready": messages, "bytes": size, "ready_in_flight": messages}
            yield {"name": destination.name, "oldest_seconds": None} | row


def _is_number(value: object) -> bool:
    if isinstance(value, int):  # apart from floats, for which machine code takes an int where both may come
        return not isinstance(value, bool) and -NUMBER_MAX <= value <= NUMBER_MAX
    return isinstance(value, float) and abs(value) <= NUMBER_MAX


def _age_seconds(status: Row) -> float:
    return max(SystemClock().time_ms() / 1000 - float(status["time"]), 0.0)


def is_stale(status: Row, age_seconds: float) -> bool:
    """Return whether whoever wrote a status should have written another one by now."""
    return age_seconds > max(STALE_INTERVALS * float(status["interval_seconds"]), STALE_SECONDS)


# ---------------------------------------------------------------------- words


def _table(broker: str, rows: list[Row], remarks: list[str]) -> Iterator[str]:
    yield f"{broker}: {len(rows):,} queue{'' if len(rows) == 1 else 's'}"
    lines: list[tuple[str, ...]] = [
        ("queue", "depth", "ready", "in flight", "size", "oldest", "consumers", "in/s", "out/s")
    ]
    for row in rows:
        oldest = age_text(row["oldest_seconds"]) if row["oldest_seconds"] is not None else "-"
        counts = (f"{row[name]:,}" for name in ("depth", "ready", "in_flight"))
        rates = (f"{row[name]:,.0f}" for name in ("in_per_second", "out_per_second"))
        size = size_text(row["bytes"])
        lines.append((printable(row["name"]), *counts, size, oldest, f"{row['consumers']:,}", *rates))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for first, *others in lines if rows else ():
        cells = (f"{cell:>{width}}" for cell, width in zip(others, widths[1:], strict=True))
        yield f"  {first:<{widths[0]}}  {'  '.join(cells)}"
    yield from (f"  {remark}" for remark in remarks)


def printable(text: object) -> str:
    """Return a text from a file that anybody may have written, without what steers a terminal."""
    return "".join(one if one.isprintable() else "?" for one in str(text))


def _broker(disk: OsDisk) -> str:
    return disk.root.rpartition("/")[2]
