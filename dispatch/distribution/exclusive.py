"""Exclusive: one consumer gets all of a queue's messages, the next one takes over at its close.

All others have no credit meanwhile, by the same means as in a paused queue,
so nobody else pays for the question.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..consumer.consumer import Consumer
    from ..core.queue_area import QueueArea


def line_up(queue: QueueArea, consumer: Consumer) -> None:
    """An exclusive consumer has come: it gets all, or waits for the one that does. REQUIRES: the lock."""
    consumer.is_exclusive = True
    queue.exclusives.append(consumer)
    if queue.exclusive is None:
        _choose(queue)


def leave(queue: QueueArea, consumer: Consumer) -> None:
    """It is closed, and has given back what it held. REQUIRES: the lock."""
    queue.exclusives.remove(consumer)
    if queue.exclusive is consumer:
        _choose(queue)


def _choose(queue: QueueArea) -> None:
    """Of those in line the first with the highest priority; where nobody is, all share."""
    queue.exclusive = max(queue.exclusives, key=lambda consumer: consumer.priority, default=None)
    for consumer in list(queue.consumers()):
        consumer.equip()
        if queue.dealer is not None and queue.holds_up(consumer):
            queue.dealer.stand_back(consumer)
    for consumer_group in queue.consumer_groups.values():
        # Who waits for messages there must look again, or it would swallow what is meant for another.
        consumer_group.arrived.notify_all()
