"""Read the statistics of a store from a status file, for forebay.metrics. The file may come from anybody.

The figures lack what a status leaves out: queues and topics that are not among the hundred busiest, and durable
subscriptions after the first hundred of those topics. They also lack durations that are not valid.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from itertools import islice
from typing import Any, Final

from ..cache.messages.message_cache import CacheStatistics
from ..cache.process.memory_guard import ProcessStatistics
from ..dispatch.core.memory.memory_statistics import MemoryStatistics
from ..dispatch.engine.health import Health
from ..dispatch.engine.periodic_tasks import FailingTask
from ..dispatch.engine.statistics import DestinationStatistics, Statistics, TopicStatistics
from ..dispatch.screen.view import ROWS_MAX, number, printable
from ..metrics import Snapshot
from ..store.maintenance.disk_use import StoreStatistics
from ..store.structures.histogram import BOUNDS_SECONDS, DurationStatistics
from ..store.tmp.storage import TmpStorageStatistics

_COUNTS: Final = tuple(
    name for name in DestinationStatistics._fields if name not in ("blocked_seconds", "is_paused", "oldest_seconds")
)
_TOPIC_COUNTS: Final = tuple(
    field.name for field in fields(TopicStatistics) if field.name not in ("blocked_seconds", "subscriptions")
)


def snapshot_of(status: Mapping[str, Any]) -> Snapshot:
    """Return the statistics in a status. Never raises, whatever the status contains."""
    queues = {name: found for name, _, found in _destinations(status.get("queues"))}
    subscriptions = {
        (topic, name): found for name, topic, found in _destinations(status.get("subscriptions")) if topic is not None
    }
    health = _part(status, "health")
    is_well = health.get("ok") is True
    queue_count = len(queues) + _whole_number(status, "other_queues")
    return Snapshot(_whole(status, queues), Health(is_well, ()), queues, subscriptions, queue_count)


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
        topics=dict(_topics(status.get("topics"))),
        caches={
            printable(name): CacheStatistics(*(_whole_number(found, field.name) for field in fields(CacheStatistics)))
            for name, found in _items(status, "caches")
            if isinstance(found, dict)
        },
        process=ProcessStatistics(_whole_number(process, "process_bytes"), 0, 0, "") if process else None,
        failing={
            printable(name): FailingTask(0.0, _whole_number(found, "tries"), "")
            for name, found in _items(status, "failing")
            if isinstance(found, dict)
        },
        forgotten_ids=_whole_number(status, "forgotten_ids"),
        durations=dict(_durations(status)),
    )


def _destinations(found: object) -> Iterator[tuple[str, str | None, DestinationStatistics]]:
    """Yield name, topic and figures of each row about a queue, which has no topic, or about a subscription."""
    for row in _rows(found):
        topic, oldest = row.get("topic"), row.get("oldest_seconds")
        figures: dict[str, Any] = {name: int(number(row.get(name))) for name in _COUNTS}
        yield (
            printable(row["name"]),
            printable(topic) if isinstance(topic, str) else None,
            DestinationStatistics(
                **figures,
                blocked_seconds=number(row.get("blocked_seconds")),
                is_paused=row.get("is_paused") is True,
                oldest_seconds=number(oldest) if oldest is not None else None,
            ),
        )


def _topics(found: object) -> Iterator[tuple[str, TopicStatistics]]:
    for row in _rows(found):
        figures: dict[str, Any] = {name: int(number(row.get(name))) for name in _TOPIC_COUNTS}
        blocked_seconds = number(row.get("blocked_seconds"))
        yield printable(row["name"]), TopicStatistics(**figures, blocked_seconds=blocked_seconds, subscriptions={})


def _rows(found: object) -> Iterator[Mapping[str, Any]]:
    """Yield the rows of a list that have a name, at most ROWS_MAX of them."""
    for row in found[:ROWS_MAX] if isinstance(found, list) else ():
        if isinstance(row, dict) and isinstance(row.get("name"), str):
            yield row


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
