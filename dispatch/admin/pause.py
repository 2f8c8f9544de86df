"""Pause: while a queue is paused its consumers have no credit, so nothing is handed out; all else goes on.

A consumer without credit waits in `take` and has no callback called, by the
same means as one that holds as much as its prefetch admits. So a queue that
is not paused pays nothing for the question. A pause ends with the process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..core.queue_area import QueueArea
    from ..engine.engine import Engine


def pause(engine: Engine, queue: QueueArea) -> None:
    """When this returns no take hands out anything of the queue. REQUIRES: no lock."""
    with engine.lock:
        engine.raise_closed()
        queue.is_paused = True
        for consumer in queue.consumers():
            consumer.equip()


def resume(engine: Engine, queue: QueueArea) -> None:
    """Takes that wait go on, and callbacks that are due are called. REQUIRES: no lock."""
    with engine.lock:
        engine.raise_closed()
        if queue.is_paused:
            queue.is_paused = False
            for consumer_group in queue.consumer_groups.values():
                for consumer in consumer_group.consumers:
                    consumer.equip()
                # Messages that came meanwhile each woke one take, which found no credit.
                consumer_group.arrived.notify_all()
    engine.call_ready()
