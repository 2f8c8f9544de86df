"""Says in one sentence what the busiest queues wait for, or who holds memory where nothing waits, for a status."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import islice
from typing import Final

from ...store.errors import Closed
from ..consumer.consumer import Consumer
from ..core.memory.memory_statistics import MemoryStatistics
from ..core.model.destination import CoreDestination
from ..engine.explained_store import ExplainedStore
from .disk import memory_sentence
from .queues import explain_consumer, explain_destination

IN_FLIGHT_MAX: Final = 2_000
"""Explaining holds the state lock and looks at each message in flight. A queue with more than this is not explained."""
CONSUMERS_MAX: Final = 100


def explain_in_short(store: ExplainedStore, destinations: Sequence[CoreDestination]) -> str:
    """Explain a slow consumer, else the queue with most in it, else memory. Requires: the lock is not held.

    destinations: those to explain, the busiest one first.
    """
    with suppress(Closed):
        for destination in destinations:
            with store.monitor.lock:
                is_quick = _is_quick(destination)
                slow = next(
                    (one for one in islice(destination.consumers(), CONSUMERS_MAX) if one.activity.is_slow), None
                )
            if slow is not None and is_quick:
                assert isinstance(slow, Consumer), "every consumer of a queue is one"
                return explain_consumer(store, slow).sentence
        for destination in destinations[:1]:
            with store.monitor.lock:
                is_worth = destination.depth > 0 and _is_quick(destination)
            if is_worth:
                return explain_destination(store, destination).sentence
    with store.monitor.lock:
        memory, could_give = MemoryStatistics.of(store.memory.budget), store.reclaim.order()
    return memory_sentence(memory, could_give)


def _is_quick(destination: CoreDestination) -> bool:
    """Return whether an explanation takes next to no time. Requires: the lock."""
    lanes = list(destination.all_lanes())
    return sum(len(lane.deliveries) for lane in lanes) <= IN_FLIGHT_MAX and not any(lane.is_timed for lane in lanes)
