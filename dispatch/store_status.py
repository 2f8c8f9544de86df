"""A running store seen from outside: its queues and its health.

They are read from the status file that the store's housekeeper writes. Without a status file, queues are read from the
journal. Nothing is written, no lock is taken, and no input is trusted.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

from ..store.disk.disk import OsDisk
from ..store.environment.clock import SystemClock
from ..store.format.state_record import QUEUE
from .engine.status_file import read_status
from .explain.texts import age_text

STALE_INTERVALS: Final = 5
STALE_SECONDS: Final = 5.0
"""If a status is older than this, and than five of its intervals, its process is gone or stands still."""
NUMBER_MAX: Final = 900_000_000_000_000_000
"""A larger number can't come from a store."""
PAUSED_MAX: Final = 100
NUMBERS: Final = ("depth", "ready", "in_flight", "bytes", "consumers", "in_per_second", "out_per_second")

Row = dict[str, Any]


def problems_of(disk: OsDisk) -> list[str]:
    """Return the problems of a store according to its process, one sentence each; []: it is open and well."""
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


def paused_in(status: Row) -> tuple[list[str], int]:
    """Return the names of paused queues in a status, and how many more there are."""
    paused = status.get("paused_queues")
    names = paused.get("names") if isinstance(paused, dict) else None
    if not isinstance(paused, dict) or not isinstance(names, list):
        return [], 0
    told = [printable(name) for name in names[:PAUSED_MAX] if isinstance(name, str)]
    count = paused.get("count")
    return told, max(count - len(told), 0) if isinstance(count, int) and _is_number(count) else 0


def paused_of(disk: OsDisk) -> tuple[list[str], int]:
    """Return the same for a store that a process has open; for any other store, nothing."""
    status = live_status(disk.root)
    return paused_in(status) if status is not None and not is_stale(status, _age_seconds(status)) else ([], 0)


def paused_text(names: Sequence[str], others: int) -> str:
    """Return a sentence about paused queues."""
    more = f" and {others:,} more" if others else ""
    return f"paused, so they hand out nothing: {', '.join(names)}{more} (forebay resume DIR QUEUE)"


# ---------------------------------------------------------------------- what a store says


def live_status(root: str) -> Row | None:
    """Return the status in a store's directory. None: there is no valid one."""
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


def queues_of(disk: OsDisk) -> tuple[list[Row], list[str]]:
    """Return a row for each queue, and remarks about them."""
    status = live_status(disk.root)
    if status is None or is_stale(status, _age_seconds(status)):
        return list(_of_journal(disk)), ["nobody says that the store is open: these are from the journal"]
    found = status.get("queues")
    rows = [_of_status(row) for row in found if _makes_sense(row)] if isinstance(found, list) else []
    others = status.get("other_queues")
    remarks = [f"and {others:,} less busy queues"] if isinstance(others, int) and others > 0 else []
    named = {row["name"] for row in rows}
    names, more = paused_in(status)
    if more or not named.issuperset(names):  # their rows do not say so
        remarks.append(paused_text(names, more))
    return rows, remarks


def _of_status(row: Row) -> Row:
    counts = {name: row[name] for name in NUMBERS}
    ready_in_flight = row["ready"] + row["in_flight"]
    told = {"name": row["name"], "oldest_seconds": row["oldest_seconds"], "ready_in_flight": ready_in_flight}
    return told | counts | {"is_paused": row.get("is_paused") is True}


def _makes_sense(row: object) -> bool:
    if not isinstance(row, dict) or not isinstance(row.get("name"), str):
        return False
    oldest = row.get("oldest_seconds", "")
    return all(_is_number(row.get(name)) for name in NUMBERS) and (oldest is None or _is_number(oldest))


def _of_journal(disk: OsDisk) -> Iterator[Row]:
    """Yield what is pending according to the journal alone: nothing is in flight."""
    from ..store.inspect.read_only import open_read_only  # half of the library, which a status does not need

    seen = open_read_only(disk, SystemClock().time_ms())
    pending: dict[int, tuple[int, int]] = {}
    for pending_lane in seen.index.lanes.values():
        messages, size = pending.get(pending_lane.owner_number, (0, 0))
        pending[pending_lane.owner_number] = (
            messages + pending_lane.pending_messages,
            size + pending_lane.pending_bytes,
        )
    for destination in sorted(seen.destinations.values(), key=lambda found: found.name):
        if destination.kind == QUEUE:
            messages, size = pending.get(destination.number, (0, 0))
            row: Row = dict.fromkeys(NUMBERS, 0)
            row |= {"depth": messages, "ready": messages, "bytes": size, "ready_in_flight": messages}
            yield {"name": destination.name, "oldest_seconds": None, "is_paused": False} | row


def _is_number(value: object) -> bool:
    if isinstance(value, int):  # separate from floats, because machine code takes an int where both may come
        return not isinstance(value, bool) and -NUMBER_MAX <= value <= NUMBER_MAX
    return isinstance(value, float) and abs(value) <= NUMBER_MAX


def _age_seconds(status: Row) -> float:
    return max(SystemClock().time_ms() / 1000 - float(status["time"]), 0.0)


def is_stale(status: Row, age_seconds: float) -> bool:
    """Return whether the process that wrote a status should have written another one by now."""
    return age_seconds > max(STALE_INTERVALS * float(status["interval_seconds"]), STALE_SECONDS)


def printable(text: object) -> str:
    """Return a text from a file that anybody may have written, without control characters for a terminal."""
    return "".join(one if one.isprintable() else "?" for one in str(text))
