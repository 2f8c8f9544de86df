"""A plain LRU cache of messages over the same steps, for comparison.

A message enters the cache when it is sent, and when it is read after a miss; an ack removes it. The cache may use the
whole limit for messages, while a store also pays for its index and buffers. The cache reads nothing ahead.
"""

from __future__ import annotations

from collections import deque

from cachetools import LRUCache

from forebay.cache.accounting.charge import OVERHEAD_BYTES

from .traffic import BEGIN, SEND, Traffic


def lru_hit_ratio(traffic: Traffic, limit_bytes: int, part: float) -> float:
    """Return the share of the measured deliveries that an LRU cache would have in RAM."""
    charge = traffic.body_bytes + OVERHEAD_BYTES
    cache: LRUCache[tuple[int, int], int] = LRUCache(limit_bytes, getsizeof=lambda owed: charge)
    sent = [0] * traffic.destinations
    waiting: list[deque[int]] = [deque() for _ in traffic.consumers]
    readers = [[number for number, at in enumerate(traffic.consumers) if at == to] for to in range(len(sent))]
    # Number of consumers that have not acknowledged each message yet.
    owed: dict[tuple[int, int], int] = {}
    deliveries = hits = 0
    for kind, who, count in traffic.steps(part):
        if kind == BEGIN:
            deliveries = hits = 0
        elif kind == SEND:
            for number in range(sent[who], sent[who] + count):
                cache[who, number] = 0
                owed[who, number] = len(readers[who])
                for consumer in readers[who]:
                    waiting[consumer].append(number)
            sent[who] += count
        else:
            for _ in range(count):
                message = (traffic.consumers[who], waiting[who].popleft())
                deliveries += 1
                hits += cache.get(message) is not None
                owed[message] -= 1
                if owed[message]:
                    cache[message] = 0
                else:
                    del owed[message]
                    cache.pop(message, None)
    return hits / deliveries
