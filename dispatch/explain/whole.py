"""Explains a data log, or who holds the disk and memory of an open store."""

from __future__ import annotations

from ...store.errors import ArgumentError, SettingsError
from ..core.memory.memory_statistics import MemoryStatistics
from ..engine.explained_store import ExplainedStore
from .blocked import explain_blocked
from .cause import DataLogReport, Explanation
from .disk import explain_data_log, explain_whole, ids_text
from .texts import plural


def explain(store: ExplainedStore, subject: object) -> Explanation:
    """Explain a data log by its id, or the whole store. Requires: the lock is not held."""
    store.monitor.raise_if_closed()
    reasons = store.disk.data_log_retention.reasons()
    sizes = store.disk.disk_use.sizes()
    if subject is None:
        with store.monitor.lock:
            memory = MemoryStatistics.of(store.memory.budget)
            could_give = store.reclaim.order()
        whole = explain_whole(sizes, reasons.all(), store.monitor.clock_ms(), memory, could_give)
        blocked = explain_blocked(store)
        if not blocked:
            return whole
        said = f"{len(blocked):,} blocked send{plural(len(blocked))}: {blocked[0][1]}."
        return Explanation(f"{whole.sentence} {said}", (*whole.causes, *(cause for cause, _ in blocked)))
    if type(subject) is not int:
        raise ArgumentError(
            "a data log's id, a queue, a topic, a consumer, an xid, or nothing for the whole can be explained, "
            f"not {subject!r}"
        )
    if subject not in sizes:
        raise SettingsError(f"there is no data log {subject}: there are {ids_text(sizes)}")
    return explain_data_log(subject, sizes[subject], reasons.of(subject), store.monitor.clock_ms())


def report_data_logs(store: ExplainedStore) -> list[DataLogReport]:
    """Return what each data log is kept for, the oldest first. Requires: the lock is not held."""
    monitor = store.monitor
    monitor.raise_if_closed()
    reasons = store.disk.data_log_retention.reasons().all()
    with monitor.lock:
        data_logs, now_ms = store.disk.disk_use.live_bytes_by_data_log(), monitor.clock_ms()
    return [
        DataLogReport(
            number, size_bytes, live_bytes, explain_data_log(number, size_bytes, reasons.get(number, ()), now_ms)
        )
        for number, size_bytes, live_bytes in data_logs
    ]
