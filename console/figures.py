"""The statistics of a store, taken out of a status that anybody may have written, for forebay.metrics.

What a status does not tell is missing: topics, caches, and queues that are not
among the hundred busiest. So are durations that make no sense.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from itertools import islice
from typing import Any, Final

from ..cache.budget import MemoryStatistics
from ..cache.process.guard import ProcessStatistics
from ..dispatch.engine.duties import FailingDuty
from ..dispatch.engine.health import Health
from ..dispatch.engine.statistics import DestinationStatistics, Statistics
from ..dispatch.screen.view import ROWS_MAX, number, printable
from ..metrics import Snapshot
from ..store.histogram import BOUNDS_SECONDS, DurationStatistics
from ..store.message_store import StoreStatistics
from ..store.tmp.storage import TmpStorageStatistics

_COUNTS: Final = tuple(
    field.name
    for field in fields(DestinationStatistics)
    if field.name not in ("blocked_seconds", "is_paused", "oldest_seconds")
)


def snapshot_of(status: Mapping[str, Any]) -> Snapshot:
    """Return what a status says. Never raises, whatever is in it."""
    queues = dict(_queues(status.get("queues")))
    health = _part(status, "health")
    is_well = health.get("ok") is True
    queue_count = len(queues) + _whole_number(status, "other_queues")
    return Snapshot(_whole(status, queues), Health(is_well, ()), queues, {}, queue_count)


def _whole(status: Mapping[str, Any], queues: dict[str, DestinationStatistics]) -> Statistics:
    memory, store, tmp_storage = (_part(status, name) for name in ("memory", "store", "tmp_storage"))
    process = _part(status, "process")
    return Statistics(
        memory=MemoryStatistics(
            limit_bytes=_whole_number(memory, "limit_bytes"),
            held_bytes=_whole_number(memory, "held_bytes"),
            held_bytes_max=_whole_number(memory, "held_bytes_max"),
            holders={printable(name): int(number(held)) for name, held in _items(memory, "holders")},
        ),
        store=StoreStatistics(*(_whole_number(store, name) for name in StoreStatistics._fields)),
        tmp_storage=TmpStorageStatistics(
            *(_whole_number(tmp_storage, field.name) for field in fields(TmpStorageStatistics))
        ),
        destinations=queues,
        topics={},
        caches={},
        process=ProcessStatistics(_whole_number(process, "process_bytes"), 0, 0, "") if process else None,
        failing={
            printable(name): FailingDuty(0.0, _whole_number(found, "tries"), "")
            for name, found in _items(status, "failing")
            if isinstance(found, dict)
        },
        forgotten_ids=0,
        durations=dict(_durations(status)),
    )


def _queues(found: object) -> Iterator[tuple[str, DestinationStatistics]]:
    for row in found[:ROWS_MAX] if isinstance(found, list) else ():
        if isinstance(row, dict) and isinstance(row.get("name"), str):
            oldest = row.get("oldest_seconds")
            figures: dict[str, Any] = {name: int(number(row.get(name))) for name in _COUNTS}
            yield (
                printable(row["name"]),
                DestinationStatistics(
                    **figures,
                    blocked_seconds=number(row.get("blocked_seconds")),
                    is_paused=row.get("is_paused") is True,
                    oldest_seconds=number(oldest) if oldest is not None else None,
                ),
            )


def _durations(status: Mapping[str, Any]) -> Iterator[tuple[str, DurationStatistics]]:
    for name, found in _items(status, "durations"):
        buckets = found.get("buckets") if isinstance(found, dict) else None
        if isinstance(buckets, list) and len(buckets) == len(BOUNDS_SECONDS) + 1:
            counts = tuple(max(int(number(count)), 0) for count in buckets)
            total_seconds, max_seconds = number(found.get("total_seconds")), number(found.get("max_seconds"))
            yield printable(name), DurationStatistics(sum(counts), total_seconds, max_seconds, counts)


def _items(found: Mapping[str, Any], name: str) -> Iterator[tuple[str, Any]]:
    return islice(_part(found, name).items(), ROWS_MAX)


def _part(found: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = found.get(name)
    return part if isinstance(part, dict) else {}


def _whole_number(found: Mapping[str, Any], name: str) -> int:
    return int(number(found.get(name)))
