"""Health: whether an open store works fully, and its problems if not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ...store.message_store import MessageStore
from ..core.areas.dispatch_area import DispatchArea
from ..core.monitor import Monitor
from .background import Background
from .maintenance import Maintenance


@dataclass(frozen=True, slots=True)
class Health:
    """The answer for a health probe: a store is well if it has no problems."""

    ok: bool
    problems: tuple[str, ...]
    """A sentence for each problem, such as a full disk or failing background work."""


def health_of(
    monitor: Monitor, store: MessageStore, dispatch_area: DispatchArea, maintenance: Maintenance, background: Background
) -> Health:
    """Return the health of a store, open or closed. O(1), no disk."""
    problems = tuple(_problems(monitor, store, dispatch_area, maintenance, background))
    return Health(not problems, problems)


def _problems(
    monitor: Monitor, store: MessageStore, dispatch_area: DispatchArea, maintenance: Maintenance, background: Background
) -> Iterator[str]:
    if monitor.is_closed:
        yield "the store is closed"
        return
    if monitor.lock.failure is not None:
        yield str(monitor.lock.failure)
        return
    with monitor.lock:
        failure, is_full, is_short = store.failure, store.is_full, dispatch_area.is_short
    if failure is not None:
        yield str(failure)
    elif not background.is_alive:
        yield "the threads of the store have ended: close it and open it again"
    if is_full:
        yield "sends are refused because the disk or store_limit is full: consume, clean up, or raise the limit"
    if is_short:
        yield "what is in flight fills memory_limit: settle deliveries, lower prefetch, or raise the limit"
    for name, failing in sorted((maintenance.failing() | background.failing()).items()):
        yield f"{name} fails, {failing.tries} times so far: {failing.problem}"
