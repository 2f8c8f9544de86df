"""Explain a data log, or who holds the disk and memory of an open store."""

from __future__ import annotations

from ...store.errors import ArgumentError, SettingsError
from ..engine.engine import Engine
from .blocked import explain_blocked
from .cause import DataLogReport, Explanation
from .disk import explain_data_log, explain_whole, ids_text, plural


def explain(engine: Engine, subject: object) -> Explanation:
    """Explain a data log by its id, or the whole store. See Forebay.explain. Requires: no lock."""
    engine.monitor.raise_if_closed()
    pins = engine.store.retention_reasons()
    sizes = engine.store.sizes()
    if subject is None:
        with engine.monitor.lock:
            memory = engine.budget.statistics()
            could_give = engine.target_area.reclaim.order()
        whole = explain_whole(sizes, pins.all(), engine.monitor.clock_ms(), memory, could_give)
        blocked = explain_blocked(engine)
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
    return explain_data_log(subject, sizes[subject], pins.of(subject), engine.monitor.clock_ms())


def report_data_logs(engine: Engine) -> list[DataLogReport]:
    """Return what each data log is kept for, the oldest first. See Forebay.data_logs. Requires: no lock."""
    engine.monitor.raise_if_closed()
    pins = engine.store.retention_reasons().all()
    with engine.monitor.lock:
        data_logs, now_ms = engine.store.live_bytes_by_data_log(), engine.monitor.clock_ms()
    return [
        DataLogReport(
            number, size_bytes, live_bytes, explain_data_log(number, size_bytes, pins.get(number, ()), now_ms)
        )
        for number, size_bytes, live_bytes in data_logs
    ]
