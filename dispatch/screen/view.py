"""What a screen shows of a running store, taken out of a status that anybody may have written.

Every field is checked here. A part that makes no sense is missing or zero, every number is finite, no text steers a
terminal, and no list is long. The code that draws the screen may rely on that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from ...cache.accounting import holder_names
from ...store.environment.clock import SystemClock
from ..store_status import NUMBER_MAX, is_stale, live_status

ROWS_MAX: Final = 1_000
"""The most rows that are read of any list in a status. The lists that the library writes are far shorter."""
TEXT_MAX: Final = 1_000
CURVE_POINTS_MAX: Final = 100

HOLDERS: Final[Mapping[str, str]] = {
    holder_names.DISPATCH_AREA: "in flight",
    holder_names.TARGET_LISTS: "TargetLists",
    holder_names.PENDING_CACHE: "PendingCache",
    holder_names.HEAD_QUEUE_CACHE: "HeadQueueCache",
}
"""The parts of the bar, by holder of memory. All other holders together are one more part."""
OTHERS: Final = "others"


@dataclass(frozen=True, slots=True)
class QueueView:
    name: str
    depth: float
    ready: float
    in_flight: float
    bytes: float
    oldest_seconds: float | None
    """The age of the oldest pending message, or None if nothing is pending or the age is not known."""
    consumers: float
    in_per_second: float
    out_per_second: float
    is_paused: bool


@dataclass(frozen=True, slots=True)
class ConsumerView:
    queue: str
    number: float
    selector: str
    """The selector, or "" if there is none."""
    in_flight: float
    prefetch: float
    messages_per_second: float
    watermark_bytes: float
    high_watermark_bytes: float
    is_slow: bool


@dataclass(frozen=True, slots=True)
class DataLogView:
    """A data log, or several neighbours."""

    first: float
    last: float
    """The last of their ids."""
    bytes: float
    live_bytes: float


@dataclass(frozen=True, slots=True)
class StoreView:
    """One look at one store."""

    broker: str
    time: float
    pid: float
    limit_bytes: float
    held_bytes: float
    parts: Mapping[str, float]
    """Bytes by part of the bar, which add up to held_bytes."""
    recommended_limit_bytes: float
    """The recommended memory limit, or 0 if it is not known yet."""
    curve: tuple[tuple[float, float], ...]
    """Each limit in bytes with the hit ratio that it would bring, from 0 to 1, by limit.

    Empty if it is not known yet.
    """
    resident_bytes: float
    unique_bytes: float
    """The process's own memory, or 0 if it is not known.

    It is at most ten seconds old, so it may be more than what is resident now, which bounds it.
    """
    spilled_bytes: float
    queues: tuple[QueueView, ...]
    """The queues, the deepest one first."""
    other_queues: float
    consumers: tuple[ConsumerView, ...]
    data_logs: tuple[DataLogView, ...]
    data_log_count: float
    journal_bytes: float
    problems: tuple[str, ...]
    sentence: str


@dataclass(frozen=True, slots=True)
class NoView:
    """Says that there is nothing to be seen, and why."""

    broker: str
    sentence: str
    advice: str


def read_view(root: str, broker: str, now: float | None = None) -> StoreView | NoView:
    """Return what the store in a directory says of itself, or why it says nothing.

    now: seconds since the epoch.
    """
    status = live_status(root)
    if status is None:
        return NoView(
            broker,
            "No process says that it has this store open.",
            "Start the process. If it runs, it was opened with status_interval_seconds=None: leave that out.",
        )
    age_seconds = max((SystemClock().time_ms() / 1000 if now is None else now) - float(status["time"]), 0.0)
    if is_stale(status, age_seconds):
        return NoView(
            broker,
            f"The process that had this store open (pid {_number(status, 'pid'):.0f}) has said nothing for "
            f"{min(age_seconds, NUMBER_MAX):,.0f} seconds: it is gone, or it stands still.",
            "If it is gone, start it again: what it confirmed is in the journal (forebay verify DIR reads it).",
        )
    return view_of(status, broker)


def view_of(status: Mapping[str, Any], broker: str) -> StoreView:
    """Return the content of a status as a view. Never raises, whatever is in it."""
    memory, process, health = (_part(status, name) for name in ("memory", "process", "health"))
    holders = _part(memory, "holders")
    named = {title: _number(holders, holder) for holder, title in HOLDERS.items()}
    held_bytes = _number(memory, "held_bytes")
    others = max(held_bytes - sum(named.values()), 0.0)
    queues = sorted(_rows(status, "queues", _queue), key=lambda row: (-row.depth, row.name))
    data_logs = tuple(_rows(status, "data_logs", _data_log))
    problems = health.get("problems")
    return StoreView(
        broker=printable(broker),
        time=_number(status, "time"),
        pid=_number(status, "pid"),
        limit_bytes=_number(memory, "limit_bytes"),
        held_bytes=held_bytes,
        parts=named | {OTHERS: others},
        recommended_limit_bytes=_number(memory, "recommended_limit_bytes"),
        curve=_curve(memory.get("curve")),
        resident_bytes=_number(status, "resident_bytes"),
        unique_bytes=min(_number(process, "process_bytes"), _number(status, "resident_bytes") or NUMBER_MAX),
        spilled_bytes=_number(_part(status, "tmp_storage"), "bytes"),
        queues=tuple(queues),
        other_queues=_number(status, "other_queues"),
        consumers=tuple(_rows(status, "consumers", _consumer)),
        data_logs=data_logs,
        data_log_count=_number(_part(status, "store"), "data_logs"),
        journal_bytes=_number(_part(status, "store"), "journal_bytes"),
        problems=tuple(printable(one) for one in problems[:3]) if isinstance(problems, list) else (),
        sentence=printable(status.get("explain", "")) if isinstance(status.get("explain"), str) else "",
    )


def printable(text: object) -> str:
    """Return a text in a bounded length, without characters that steer a terminal."""
    return "".join(one if one.isprintable() else "?" for one in str(text)[:TEXT_MAX])


_Row = TypeVar("_Row")


def _rows(status: Mapping[str, Any], name: str, row_of: Callable[[Mapping[str, Any]], _Row]) -> Iterator[_Row]:
    found = status.get(name)
    for row in found[:ROWS_MAX] if isinstance(found, list) else ():
        if isinstance(row, dict):
            yield row_of(row)


def _queue(row: Mapping[str, Any]) -> QueueView:
    return QueueView(
        name=_text(row, "name"),
        depth=_number(row, "depth"),
        ready=_number(row, "ready"),
        in_flight=_number(row, "in_flight"),
        bytes=_number(row, "bytes"),
        oldest_seconds=_number(row, "oldest_seconds") if row.get("oldest_seconds") is not None else None,
        consumers=_number(row, "consumers"),
        in_per_second=_number(row, "in_per_second"),
        out_per_second=_number(row, "out_per_second"),
        is_paused=row.get("is_paused") is True,
    )


def _consumer(row: Mapping[str, Any]) -> ConsumerView:
    return ConsumerView(
        queue=_text(row, "queue"),
        number=_number(row, "number"),
        selector=_text(row, "selector"),
        in_flight=_number(row, "in_flight"),
        prefetch=_number(row, "prefetch"),
        messages_per_second=_number(row, "messages_per_second"),
        watermark_bytes=_number(row, "watermark_bytes"),
        high_watermark_bytes=_number(row, "high_watermark_bytes"),
        is_slow=row.get("is_slow") is True,
    )


def _data_log(row: Mapping[str, Any]) -> DataLogView:
    return DataLogView(
        first=_number(row, "first"),
        last=_number(row, "last"),
        bytes=_number(row, "bytes"),
        live_bytes=_number(row, "live_bytes"),
    )


def _curve(found: object) -> tuple[tuple[float, float], ...]:
    points = [
        (number(point[0]), min(number(point[1]), 1.0))
        for point in (found[:CURVE_POINTS_MAX] if isinstance(found, list) else ())
        if isinstance(point, list) and len(point) == 2
    ]
    return tuple(sorted((limit, ratio) for limit, ratio in points if limit >= 1))


def _part(status: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = status.get(name)
    return found if isinstance(found, dict) else {}


def _text(row: Mapping[str, Any], name: str) -> str:
    found = row.get(name)
    return printable(found) if isinstance(found, str) else ""


def _number(row: Mapping[str, Any], name: str) -> float:
    """Return a field as a number from 0 on, or 0 where there is none."""
    return number(row.get(name))


def number(found: object) -> float:
    """Return a value as a finite number from 0 on, or 0 where it is none."""
    if isinstance(found, bool) or not isinstance(found, int | float) or found != found:
        return 0.0
    return float(min(max(found, 0), NUMBER_MAX))
