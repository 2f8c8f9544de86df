"""Traffic: three realistic shapes of traffic, as fixed sequences of steps.

A step says who does something and how often. The same steps are played against a store and against a plain LRU cache. A
take asks only for messages that are there, so that neither waits for a sender.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, NamedTuple

from forebay.dispatch.config.sizes import KIB

SEND: Final = "send"
TAKE: Final = "take"
BEGIN: Final = "begin"
"""A step before which nothing is measured."""

QUEUES: Final = 16
DEPTH_MIN: Final = 500
DEPTH_GROWTH: Final = 1.35
SPEEDS: Final = (4, 32)
"""Messages a round of the slowest and of the fastest consumer."""

ZIPF_QUEUES: Final = 400
BUSY_QUEUES: Final = 8
ZIPF_BATCH: Final = 8
ROUND_BATCHES: Final = 6_000
"""Batches between two visits of the same consumer."""

LATE: Final = 0
"""The subscription whose consumer comes late."""
SUBSCRIPTIONS: Final = 4
TOPIC_BATCH: Final = 16


class Step(NamedTuple):
    """One step. kind: SEND to a destination, by number; TAKE and acknowledge as a consumer, by number; or BEGIN."""

    kind: str
    who: int
    messages: int


@dataclass(frozen=True, slots=True)
class Traffic:
    """A shape of traffic. consumers: the destination of each; for a topic, a durable subscription made at the start."""

    name: str
    sentence: str
    body_bytes: int
    destinations: int
    consumers: tuple[int, ...]
    is_topic: bool
    steps: Callable[[float], Iterator[Step]]
    """Yields the steps of a part of the traffic; 1.0 is all of it."""


def _backlogs(part: float) -> Iterator[Step]:
    depths = [int(part * DEPTH_MIN * DEPTH_GROWTH**number) for number in range(QUEUES)]
    for queue, depth in enumerate(depths):
        yield Step(SEND, queue, depth)
    yield Step(BEGIN, 0, 0)
    speeds = [random.Random(queue).randint(*SPEEDS) for queue in range(QUEUES)]
    for _ in range(sum(depths) // sum(speeds)):
        for queue, speed in enumerate(speeds):
            yield Step(SEND, queue, speed)
            yield Step(TAKE, queue, speed)


def _zipf(part: float) -> Iterator[Step]:
    chance = random.Random(1)
    weights = list(accumulate(1 / rank for rank in range(1, ZIPF_QUEUES + 1)))
    waiting = [0] * ZIPF_QUEUES
    round_batches = int(part * ROUND_BATCHES)
    seldom = range(BUSY_QUEUES, ZIPF_QUEUES)
    visited = 0
    for number, queue in enumerate(chance.choices(range(ZIPF_QUEUES), cum_weights=weights, k=4 * round_batches)):
        if number == round_batches:
            yield Step(BEGIN, 0, 0)
        yield Step(SEND, queue, ZIPF_BATCH)
        waiting[queue] += ZIPF_BATCH
        due = [queue] if queue < BUSY_QUEUES else []
        while visited * round_batches < number * len(seldom):
            due.append(seldom[visited % len(seldom)])
            visited += 1
        for visitor in due:
            if waiting[visitor]:
                yield Step(TAKE, visitor, waiting[visitor])
                waiting[visitor] = 0


def _late_joiner(part: float) -> Iterator[Step]:
    missed = int(part * 60_000) // TOPIC_BATCH * TOPIC_BATCH
    behind = 0
    for _ in range(missed // TOPIC_BATCH):
        yield Step(SEND, 0, TOPIC_BATCH)
        behind += TOPIC_BATCH
        for subscription in range(LATE + 1, SUBSCRIPTIONS):
            yield Step(TAKE, subscription, TOPIC_BATCH)
    yield Step(BEGIN, 0, 0)
    for _ in range(missed // TOPIC_BATCH):
        yield Step(SEND, 0, TOPIC_BATCH)
        for subscription in range(LATE + 1, SUBSCRIPTIONS):
            yield Step(TAKE, subscription, TOPIC_BATCH)
        reads = min(3 * TOPIC_BATCH, behind + TOPIC_BATCH)
        yield Step(TAKE, LATE, reads)
        behind += TOPIC_BATCH - reads


TRAFFICS: Final = (
    Traffic(
        "deep backlogs",
        f"{QUEUES} queues, {DEPTH_MIN:,} to 45,000 messages of 1 KiB deep (230 MiB as they are charged), each with one "
        "consumer of its own speed; senders send what consumers take, so the backlogs stay.",
        KIB,
        QUEUES,
        tuple(range(QUEUES)),
        False,
        _backlogs,
    ),
    Traffic(
        "many queues",
        f"{ZIPF_QUEUES} queues that get messages of 4 KiB as Zipf's law says; the consumers of the {BUSY_QUEUES} "
        "busiest keep up, each of the others comes by in turn and empties its queue (about 60 MiB wait for them).",
        4 * KIB,
        ZIPF_QUEUES,
        tuple(range(ZIPF_QUEUES)),
        False,
        _zipf,
    ),
    Traffic(
        "late joiner",
        f"a topic with {SUBSCRIPTIONS} durable subscriptions, messages of 2 KiB; three consumers keep up, the fourth "
        "comes 60,000 messages late (140 MiB) and reads three times as fast as they come until it has caught up.",
        2 * KIB,
        1,
        (0,) * SUBSCRIPTIONS,
        True,
        _late_joiner,
    ),
)
