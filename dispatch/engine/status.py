"""The status of a running store, written periodically for other processes: `forebay queues` and `health` read it.

It names the busiest queues and topics and counts the rest. It looks at most at two hundred of each at a time, so it
costs the same beside 100 queues and beside 100,000. A crash leaves the last status, which has its time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from heapq import nlargest
from itertools import islice
from typing import Any, Final, Generic, Protocol, TypeVar

from ..admin.oldest import OldestMessages
from ..consumer.consumer import Consumer
from ..consumer.statistics import ConsumerStatistics
from ..core.destinations.destinations import Destinations
from ..core.destinations.queue_state import QueueState
from ..core.lifecycle import Lifecycle
from ..core.model import Taker
from ..core.monitor import Monitor
from ..topics.registry import Topics
from ..topics.state import TopicState
from .statistics import DestinationStatistics, TopicStatistics, destination_statistics, statistics_of_topic

FORMAT: Final = 1
QUEUES_MAX: Final = 100
"""Maximum number of queues that are named. The others are counted."""
TOPICS_MAX: Final = 100
"""Maximum number of topics that are named. The others are counted."""
SUBSCRIPTIONS_MAX: Final = 100
"""Maximum number of durable subscriptions of those topics that are named."""
PAUSED_MAX: Final = 20
"""Maximum number of paused queues that are named as paused, whatever their content. All paused queues are counted."""
SAMPLE_MAX: Final = 100
"""Other queues that are examined each time, in turns. The busiest of them are named."""
CONSUMERS_MAX: Final = 20
"""Maximum number of consumers that are named: slow ones first, then the busiest. The others are counted."""
CROWD: Final = 1_000
"""Consumers of a queue with more than this are not named, because asking one means looking at all."""
SQUARES_MAX: Final = 200
"""Maximum number of rows about data logs. With more data logs, one row covers several neighbours."""
SENTENCE_MAX: Final = 600
SELECTOR_MAX: Final = 100
"""Maximum number of characters of a selector; the rest is cut off."""
SHARE_MAX: Final = 0.01
"""Share of the time that writing statuses may take. If one takes longer, the next one comes later."""
_TOPIC_FIGURES: Final = tuple(field.name for field in fields(TopicStatistics) if field.name != "subscriptions")
_CONSUMER_FIGURES: Final = tuple(field.name for field in fields(ConsumerStatistics))
"""All are plain numbers, so they need no deep copy by dataclasses.asdict."""
_EARLY_SECONDS: Final = 0.5
"""The housekeeper wakes about once a second, so a status is due this much before its time."""


class StatusOutput(Protocol):
    """The destination of a status; see StatusFile."""

    def write(self, content: bytes) -> None: ...
    def remove(self) -> None: ...


class _Seen:
    """The figures of a queue at the last look, and its rates since the look before."""

    __slots__ = ("at", "figures", "in_rate", "out_rate")

    def __init__(self, at: float, figures: DestinationStatistics, since: float, before: _Seen | None) -> None:
        """since: when the counts began, if the queue was not seen before."""
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
    """Chooses which destinations to examine: those that are named already, and some of the others in turns."""

    def __init__(self) -> None:
        self._turn = 0

    def choose(self, everything: Sequence[_Destination], named: Collection[_Destination]) -> list[_Destination]:
        """Return the destinations to examine now. O(named + SAMPLE_MAX); all of them if there are no more."""
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
        monitor: Monitor,
        destinations: Destinations,
        topics: Topics,
        oldest: OldestMessages,
        output: StatusOutput,
        interval_seconds: float,
        whole: Callable[[], dict[str, Any]],
        sentence: Callable[[Sequence[QueueState]], str],
    ) -> None:
        """whole: returns the JSON figures of the store as a whole; called under no lock.

        sentence: explains what the busiest queues wait for; called under no lock, with the busiest one first.
        """
        self._monitor = monitor
        self._destinations = destinations
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
        self._due_at = now + self._pause_seconds  # set first: after a failure the duty decides when to try again
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
            "other_queues": max(self._destinations.count - len(rows), 0),
            "paused_queues": self._paused(),
            **self._of_topics(),
            "consumers": self._consumers(named),
            "explain": _cut(self._sentence(named), SENTENCE_MAX),
        }
        self._put()

    def write_failed(self, health: dict[str, Any]) -> None:
        """Write the last status again with another health: nothing else is known of a broken store."""
        self._last |= {"format": FORMAT, "time": self._monitor.clock_ms() / 1000, "health": health}
        self._put()

    def _put(self) -> None:
        import json  # imported with the first status, to keep `import forebay` fast

        self._output.write(json.dumps(self._last, allow_nan=False).encode())

    def end(self) -> None:
        """Remove the status, because the store is closed."""
        self._output.remove()

    def _chosen(self) -> list[QueueState]:
        """Return the queues to examine: open ones, and if these are few, some that are closed."""
        with self._monitor.lock:
            queues = list(self._destinations.queues.values())
            lacking = min(QUEUES_MAX, self._destinations.count) - len(queues)
            closed = list(islice(self._destinations.closed(), lacking)) if lacking > 0 else []
        seen = [queue for queue in self._seen if queue.lifecycle is not Lifecycle.CLOSED]
        return [*self._queue_turns.choose(queues, seen), *closed]

    def _paused(self) -> dict[str, Any]:
        """Return the number of paused queues, and the names of the first ones."""
        with self._monitor.lock:
            paused = self._destinations.paused
            return {"count": len(paused), "names": [queue.name for queue in islice(paused.values(), PAUSED_MAX)]}

    def _of_topics(self) -> dict[str, Any]:
        """Return the figures of the topics with most messages so far, and of their durable subscriptions."""
        with self._monitor.lock:
            topics = list(self._topics.by_name.values())
            lacking, count = TOPICS_MAX - len(topics), self._topics.count
            if lacking > 0 and count > len(topics):
                topics += islice(self._topics.closed(), lacking)
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
        found: list[tuple[tuple[bool, float, int], int, Taker]] = []
        for queue in queues:
            with self._monitor.lock:
                if 0 < len(queue.consumer_groups) <= CROWD:
                    consumers = list(islice(queue.consumers(), CROWD + 1))
                    if len(consumers) <= CROWD:
                        found += [(_urgency(one), number, one) for number, one in enumerate(consumers, start=1)]
        worth = nlargest(CONSUMERS_MAX, found, key=lambda each: each[0])
        rows = [_consumer_row(number, consumer) for _, number, consumer in worth]
        return sorted(rows, key=lambda row: (row["queue"], row["number"]))


def data_log_rows(data_logs: Sequence[tuple[int, int, int]]) -> Iterator[dict[str, int]]:
    """Yield at most SQUARES_MAX rows about data logs, given id, bytes and live bytes of each."""
    together = -(-len(data_logs) // SQUARES_MAX) or 1
    for begin in range(0, len(data_logs), together):
        part = data_logs[begin : begin + together]
        size_bytes, live_bytes = sum(size for _, size, _ in part), sum(live for *_, live in part)
        yield {"first": part[0][0], "last": part[-1][0], "bytes": size_bytes, "live_bytes": live_bytes}


def _urgency(consumer: Taker) -> tuple[bool, float, int]:
    return consumer.activity.is_slow, consumer.activity.messages_per_second, consumer.in_flight


def _consumer_row(number: int, consumer: Taker) -> dict[str, Any]:
    """Return the row of a consumer. number: its place among those of its queue."""
    assert isinstance(consumer, Consumer), "every taker of a queue is one"
    figures = consumer.statistics()
    selector = consumer.consumer_group.selector
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
