"""The status of a running store, written at intervals for other processes: `forebay queues`, `top` and `health`.

It names the busiest queues and topics and counts the rest. It examines at most two hundred of each at a time, so it
costs the same for 100 queues and for 100,000. A crash leaves the last status, which contains its time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from heapq import nlargest
from itertools import islice
from typing import Any, Final, Generic, Protocol, TypeVar

from ..admin.oldest import OldestMessages
from ..consumer.consumer import Consumer
from ..consumer.consumer_statistics import ConsumerStatistics
from ..core.destinations.queue_registry import QueueRegistry
from ..core.destinations.queue_state import QueueState
from ..core.model.destination import CoreConsumer
from ..core.model.lifecycle import Lifecycle
from ..core.monitor import Monitor
from ..topics.state.topic_state import TopicState
from ..topics.topic_registry import TopicRegistry
from .statistics import DestinationStatistics, TopicStatistics, destination_statistics, statistics_of_topic

FORMAT: Final = 1
QUEUES_MAX: Final = 100
"""Most queues that are named; the others are counted."""
TOPICS_MAX: Final = 100
"""Most topics that are named; the others are counted."""
SUBSCRIPTIONS_MAX: Final = 100
"""Most durable subscriptions of those topics that are named."""
PAUSED_MAX: Final = 20
"""Most paused queues that are named, whatever is in them; all are counted."""
SAMPLE_MAX: Final = 100
"""Other queues or topics that are examined each time, in turns. The busiest of them are named."""
CONSUMERS_MAX: Final = 20
"""Most consumers that are named, slow ones first, then those with most to do; the others are counted."""
CROWD: Final = 1_000
"""If a queue has more consumers, none is named, because asking one means examining all."""
SQUARES_MAX: Final = 200
"""Most rows about data logs; with more data logs, a row is about several neighbours."""
SENTENCE_MAX: Final = 600
SELECTOR_MAX: Final = 100
"""Most characters of a selector; the rest is cut off."""
SHARE_MAX: Final = 0.01
"""Largest share of the time for writing statuses. If one takes longer, the next one comes later."""
_TOPIC_FIGURES: Final = tuple(field.name for field in fields(TopicStatistics) if field.name != "subscriptions")
_CONSUMER_FIGURES: Final = tuple(field.name for field in fields(ConsumerStatistics))
"""All are plain numbers, which do not need the copying of dataclasses.asdict."""
_EARLY_SECONDS: Final = 0.5
"""The housekeeper wakes about once a second, so a status is due this much before its time."""


class StatusOutput(Protocol):
    """The destination of a status; see StatusFile."""

    def write(self, content: bytes) -> None: ...
    def remove(self) -> None: ...


class _Seen:
    """The figures of a queue at its last look, and its rates since the look before."""

    __slots__ = ("at", "figures", "in_rate", "out_rate")

    def __init__(self, at: float, figures: DestinationStatistics, since: float, before: _Seen | None) -> None:
        """Compute the rates. since: when the counts began, if the queue was not seen before."""
        self.at = at
        self.figures = figures
        seconds = max(at - (since if before is None else before.at), 0.001)
        enqueued, acknowledged = (0, 0) if before is None else (before.figures.enqueued, before.figures.acknowledged)
        self.in_rate = (figures.enqueued - enqueued) / seconds
        self.out_rate = (figures.acknowledged - acknowledged) / seconds

    def busyness(self) -> float:
        return self.figures.depth + self.in_rate + self.out_rate


_Destination = TypeVar("_Destination")


class _Turns(Generic[_Destination]):
    """Chooses what to examine: all that the last status named, and some of the others in turns."""

    def __init__(self) -> None:
        self._turn = 0

    def choose(self, everything: Sequence[_Destination], named: Collection[_Destination]) -> list[_Destination]:
        """Return what to examine now: everything, or if that is too much, O(named + SAMPLE_MAX).

        named: what the last status named.
        """
        if len(everything) <= QUEUES_MAX + SAMPLE_MAX:
            return list(everything)
        if self._turn >= len(everything):
            self._turn = 0
        begin, self._turn = self._turn, self._turn + SAMPLE_MAX
        return [*named, *(one for one in everything[begin : self._turn] if one not in named)]


class StatusReporter:
    """Makes the status and writes it when it is due."""

    def __init__(
        self,
        *,
        monitor: Monitor,
        queues: QueueRegistry,
        topics: TopicRegistry,
        oldest: OldestMessages,
        output: StatusOutput,
        interval_seconds: float,
        whole: Callable[[], dict[str, Any]],
        sentence: Callable[[Sequence[QueueState]], str],
    ) -> None:
        """Make it.

        whole: returns the status of the store as a whole, ready for JSON; called under no lock.
        sentence: explains what the busiest queues wait for, the busiest one first; called under no lock.
        """
        self._monitor = monitor
        self._queues = queues
        self._topics = topics
        self._oldest = oldest
        self._output = output
        self._interval_seconds = interval_seconds
        self._whole = whole
        self._sentence = sentence
        self._began = monitor.monotonic()
        self._due_at = self._began + interval_seconds
        self._pause_seconds = interval_seconds
        self._seen: dict[QueueState, _Seen] = {}
        self._queue_turns: _Turns[QueueState] = _Turns()
        self._topic_turns: _Turns[TopicState] = _Turns()
        self._named_topics: dict[TopicState, TopicStatistics] = {}
        self._last: dict[str, Any] = {}

    def step(self) -> int:
        """Write a status if one is due; return how many were written. Requires: no lock."""
        now = self._monitor.monotonic()
        if now < self._due_at - _EARLY_SECONDS:
            return 0
        self._due_at = now + self._pause_seconds  # before the write, because the task itself repeats a failed one
        self.write()
        spent = self._monitor.monotonic() - now
        self._pause_seconds = max(self._interval_seconds, spent / SHARE_MAX)
        return 1

    def write(self) -> None:
        """Write a status now. Requires: no lock."""
        now = self._monitor.monotonic()
        queues = self._chosen()
        self._oldest.refresh(queues)
        before = {queue.number: known for queue, known in self._seen.items()}
        seen: dict[QueueState, _Seen] = {}
        for queue in queues:
            with self._monitor.lock:
                if queue.is_open:
                    figures = destination_statistics(queue, self._oldest.age_seconds(queue))
                    seen[queue] = _Seen(now, figures, self._began, before.get(queue.number))
        named = sorted(seen, key=lambda queue: -seen[queue].busyness())[:QUEUES_MAX]
        self._seen = {queue: seen[queue] for queue in named}
        rows = [_row(queue, seen[queue]) for queue in sorted(named, key=lambda queue: queue.name)]
        self._last = {
            "format": FORMAT,
            "time": self._monitor.clock_ms() / 1000,
            "interval_seconds": self._pause_seconds,
            **self._whole(),
            "queues": rows,
            "other_queues": max(self._queues.count - len(rows), 0),
            "paused_queues": self._paused(),
            **self._of_topics(),
            "consumers": self._consumers(named),
            "explain": _cut(self._sentence(named), SENTENCE_MAX),
        }
        self._put()

    def write_failed(self, health: dict[str, Any]) -> None:
        """Write the last status again with a new health: of a broken store nothing else can be asked."""
        self._last |= {"format": FORMAT, "time": self._monitor.clock_ms() / 1000, "health": health}
        self._put()

    def _put(self) -> None:
        import json  # imported with the first status, not with the package

        self._output.write(json.dumps(self._last, allow_nan=False).encode())

    def remove(self) -> None:
        """Remove the status, because the store is closed."""
        self._output.remove()

    def _chosen(self) -> list[QueueState]:
        """Return queues to examine: open ones, and if these are few, some closed ones."""
        with self._monitor.lock:
            queues = list(self._queues.by_name.values())
            lacking = min(QUEUES_MAX, self._queues.count) - len(queues)
            closed = list(islice(self._queues.closed_for_report(), lacking)) if lacking > 0 else []
        seen = [queue for queue in self._seen if queue.lifecycle is not Lifecycle.CLOSED]
        return [*self._queue_turns.choose(queues, seen), *closed]

    def _paused(self) -> dict[str, Any]:
        """Return how many queues are paused, and the names of some, which may not be among the busiest."""
        with self._monitor.lock:
            paused = self._queues.paused
            return {"count": len(paused), "names": [queue.name for queue in islice(paused.values(), PAUSED_MAX)]}

    def _of_topics(self) -> dict[str, Any]:
        """Return the status of topics, those with most messages so far, and of their durable subscriptions."""
        with self._monitor.lock:
            topics = list(self._topics.by_name.values())
            lacking, count = TOPICS_MAX - len(topics), self._topics.count
            if lacking > 0 and count > len(topics):
                topics += islice(self._topics.closed_for_report(), lacking)
        seen: dict[TopicState, TopicStatistics] = {}
        named_before = [topic for topic in self._named_topics if topic.lifecycle is not Lifecycle.CLOSED]
        for topic in self._topic_turns.choose(topics, named_before):
            if topic.is_open:
                seen[topic] = statistics_of_topic(self._monitor, topic, SUBSCRIPTIONS_MAX)
        named = nlargest(TOPICS_MAX, seen, key=lambda topic: seen[topic].enqueued)
        self._named_topics = {topic: seen[topic] for topic in named}
        in_order = sorted(self._named_topics.items(), key=lambda found: found[0].name)
        subscriptions = (
            {"topic": topic.name, "name": name, **found._asdict()}
            for topic, figures in in_order
            for name, found in figures.subscriptions.items()
        )
        return {
            "topics": [_topic_row(topic.name, figures) for topic, figures in in_order],
            "other_topics": max(count - len(named), 0),
            "subscriptions": list(islice(subscriptions, SUBSCRIPTIONS_MAX)),
        }

    def _consumers(self, queues: Iterable[QueueState]) -> list[dict[str, Any]]:
        """Return a row for each noteworthy consumer of these queues."""
        found: list[tuple[tuple[bool, float, int], int, CoreConsumer]] = []
        for queue in queues:
            with self._monitor.lock:
                if 0 < len(queue.selector_groups) <= CROWD:
                    consumers = list(islice(queue.consumers(), CROWD + 1))
                    if len(consumers) <= CROWD:
                        found += [(_urgency(one), number, one) for number, one in enumerate(consumers, start=1)]
        worth = nlargest(CONSUMERS_MAX, found, key=lambda each: each[0])
        rows = [_consumer_row(number, consumer) for _, number, consumer in worth]
        return sorted(rows, key=lambda row: (row["queue"], row["number"]))


def data_log_rows(data_logs: Sequence[tuple[int, int, int]]) -> Iterator[dict[str, int]]:
    """Yield status rows about data logs, given id, bytes and live bytes of each: at most SQUARES_MAX rows."""
    together = -(-len(data_logs) // SQUARES_MAX) or 1
    for begin in range(0, len(data_logs), together):
        part = data_logs[begin : begin + together]
        size_bytes, live_bytes = sum(size for _, size, _ in part), sum(live for *_, live in part)
        yield {"first": part[0][0], "last": part[-1][0], "bytes": size_bytes, "live_bytes": live_bytes}


def _urgency(consumer: CoreConsumer) -> tuple[bool, float, int]:
    return consumer.activity.is_slow, consumer.activity.messages_per_second, consumer.in_flight


def _consumer_row(number: int, consumer: CoreConsumer) -> dict[str, Any]:
    """Return the row of a consumer. number: its place in its queue."""
    assert isinstance(consumer, Consumer), "every consumer of a queue is one"
    figures = consumer.statistics()
    selector = consumer.selector_group.selector
    return {
        "queue": consumer.destination.name,
        "number": number,
        "selector": _cut(selector.text, SELECTOR_MAX) if selector is not None else None,
        "prefetch": consumer.prefetch,
        **{name: getattr(figures, name) for name in _CONSUMER_FIGURES},
        "messages_per_second": round(figures.messages_per_second, 1),
    }


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}\u2026"


def _row(queue: QueueState, seen: _Seen) -> dict[str, Any]:
    figures = seen.figures._asdict() | {"blocked_seconds": round(seen.figures.blocked_seconds, 3)}
    return {
        "name": queue.name,
        **figures,
        "in_per_second": round(seen.in_rate, 1),
        "out_per_second": round(seen.out_rate, 1),
    }


def _topic_row(name: str, figures: TopicStatistics) -> Mapping[str, Any]:
    return {"name": name, **{figure: getattr(figures, figure) for figure in _TOPIC_FIGURES}}
