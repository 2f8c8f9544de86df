"""forebay.metrics: the statistics of an open store for Prometheus and OpenTelemetry. Needs forebay[metrics].

>>> import forebay.metrics
>>> import prometheus_client
>>> prometheus_client.REGISTRY.register(forebay.metrics.prometheus(bay))

Both tell the same, under names that RabbitMQ and Kafka made usual. A scrape costs
a few times what `bay.statistics()` costs, outside the lock, and names no more
queues than it is told to.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from heapq import nlargest
from itertools import accumulate
from typing import TYPE_CHECKING, Final, NamedTuple

from forebay.dispatch.engine.health import Health
from forebay.dispatch.engine.statistics import DestinationStatistics, Statistics
from forebay.dispatch.forebay import Forebay
from forebay.store.errors import ArgumentError, SettingsError
from forebay.store.histogram import BOUNDS_SECONDS, DurationStatistics

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Meter, Observation
    from prometheus_client.core import Metric as PrometheusMetric
    from prometheus_client.registry import Collector

__all__ = ["opentelemetry", "prometheus"]

QUEUES_MAX: Final = 1_000
"""Queues that are named unless the call says otherwise: each is some twenty series."""
SNAPSHOT_SECONDS: Final = 0.5
"""OpenTelemetry asks for each metric by itself: so long they share one snapshot."""


def __dir__() -> list[str]:
    """Return the public names."""
    return list(__all__)


class _Sample(NamedTuple):
    labels: tuple[str, ...]
    value: float


class Snapshot(NamedTuple):
    """What all metrics of one moment are read from."""

    statistics: Statistics
    health: Health
    queues: dict[str, DestinationStatistics]
    """Those that are named."""
    subscriptions: dict[tuple[str, str], DestinationStatistics]
    """By topic and name."""
    queue_count: int
    """Queues there are, also those that are not named."""


_Read = Callable[[Snapshot], Iterable[_Sample]]


@dataclass(frozen=True)
class _Metric:
    """One metric, whoever asks for it. unit: "", "bytes" or "seconds"."""

    subsystem: str
    name: str
    unit: str
    is_counter: bool
    help: str
    labels: tuple[str, ...]
    read: _Read

    @property
    def prometheus_name(self) -> str:
        """Without the "_total" of a counter, which the client adds."""
        return "_".join(filter(None, ("forebay", self.subsystem, self.name, self.unit)))

    @property
    def dotted_name(self) -> str:
        """As OpenTelemetry writes it, with its unit apart."""
        return ".".join(filter(None, ("forebay", self.subsystem, self.name)))


class _Histogram(NamedTuple):
    """Durations of one kind, whoever asks for them."""

    subsystem: str
    name: str
    help: str
    key: str
    """In Statistics.durations."""

    @property
    def prometheus_name(self) -> str:
        """Without the "_bucket", "_sum" and "_count" of its samples."""
        return "_".join(filter(None, ("forebay", self.subsystem, self.name, "seconds")))

    def read(self, snapshot: Snapshot) -> DurationStatistics | None:
        """Return the durations; None: whoever tells of the store does not tell them."""
        return snapshot.statistics.durations.get(self.key)

    def counters(self) -> Iterator[_Metric]:
        """Yield what tells the same where there are counters only: buckets by "le", their count, and the sum."""

        def samples(figure: Callable[[DurationStatistics], float]) -> _Read:
            return lambda snapshot: [_Sample((), figure(found))] if (found := self.read(snapshot)) else []

        def buckets(snapshot: Snapshot) -> Iterator[_Sample]:
            found = self.read(snapshot)
            return (_Sample((bound,), count) for bound, count in _cumulative(found)) if found else iter(())

        yield _Metric(self.subsystem, f"{self.name}_bucket", "", True, self.help, ("le",), buckets)
        yield _Metric(self.subsystem, f"{self.name}_count", "", True, self.help, (), samples(lambda found: found.count))
        total = samples(lambda found: found.total_seconds)
        yield _Metric(self.subsystem, f"{self.name}_sum", "seconds", True, self.help, (), total)


def _cumulative(found: DurationStatistics) -> Iterator[tuple[str, int]]:
    """Yield each bound in seconds, as Prometheus writes it, and how many took no longer."""
    bounds = (*map(repr, BOUNDS_SECONDS), "+Inf")
    return zip(bounds, accumulate(found.buckets), strict=True)


def prometheus(bay: Forebay, *, queues: int = QUEUES_MAX) -> Collector:
    """Return a collector of prometheus_client, to be registered. The label `broker` tells several stores apart.

    bay: of a store of forebay.aio, `bay.synchronous`.
    queues: at most so many are named, those with most pending messages and then those with most traffic. A store that
    is closed tells `forebay_healthy` alone. SettingsError: prometheus_client is not installed.
    """
    source = _Source(bay, queues)
    return collector(source.broker, source.take)


def collector(broker: str, take: Callable[[], Snapshot | None]) -> Collector:
    """Return a collector of whatever snapshots there are. take: returns the one of now; None: the store is closed.

    SettingsError: prometheus_client is not installed.
    """
    try:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
        from prometheus_client.registry import Collector
    except ImportError:
        raise SettingsError("prometheus_client is not installed: pip install 'forebay[metrics]'") from None

    class StoreCollector(Collector):
        """The statistics of one store, asked for at each scrape."""

        def collect(self) -> Iterator[PrometheusMetric]:
            """Yield every metric with its samples."""
            snapshot = take()
            for metric in _METRICS if snapshot is not None else ():
                assert snapshot is not None
                family = CounterMetricFamily if metric.is_counter else GaugeMetricFamily
                found = family(metric.prometheus_name, metric.help, labels=("broker", *metric.labels))
                for sample in metric.read(snapshot):
                    found.add_metric((broker, *sample.labels), sample.value)
                yield found
            for histogram in _HISTOGRAMS if snapshot is not None else ():
                assert snapshot is not None
                if durations := histogram.read(snapshot):
                    told = HistogramMetricFamily(histogram.prometheus_name, histogram.help, labels=("broker",))
                    told.add_metric((broker,), list(_cumulative(durations)), durations.total_seconds)
                    yield told
            healthy = GaugeMetricFamily("forebay_healthy", _HEALTHY_HELP, labels=("broker",))
            healthy.add_metric((broker,), float(snapshot is not None and snapshot.health.ok))
            yield healthy

        def describe(self) -> Iterator[PrometheusMetric]:
            """Yield nothing, so that registering asks the store for nothing."""
            return iter(())

    return StoreCollector()


def opentelemetry(bay: Forebay, meter: Meter, *, queues: int = QUEUES_MAX) -> None:
    """Make observable instruments of a meter of OpenTelemetry, which ask the store whenever they are read.

    bay, queues: as of `prometheus`. What is a histogram there is counters here, with the suffixes and the label `le` of
    Prometheus, for no histogram can be observed. They tell nothing once the store is closed. SettingsError: the API is
    not installed.
    """
    source = _Source(bay, queues)
    try:
        from opentelemetry.metrics import Observation
    except ImportError:
        raise SettingsError("opentelemetry-api is not installed: pip install 'forebay[metrics]'") from None

    def observer(metric: _Metric) -> Callable[[CallbackOptions], Iterable[Observation]]:
        names = ("broker", *metric.labels)

        def observe(options: CallbackOptions) -> Iterable[Observation]:
            snapshot = source.recent()
            if snapshot is None:
                return []
            return [
                Observation(value, dict(zip(names, (source.broker, *labels), strict=True)))
                for labels, value in metric.read(snapshot)
            ]

        return observe

    durations = (metric for histogram in _HISTOGRAMS for metric in histogram.counters())
    for metric in (*_METRICS, *durations, _HEALTHY):
        make = meter.create_observable_counter if metric.is_counter else meter.create_observable_gauge
        unit = {"bytes": "By", "seconds": "s"}.get(metric.unit, "1")
        make(metric.dotted_name, callbacks=[observer(metric)], unit=unit, description=metric.help)


class _Source:
    """Where the figures of one store come from. Thread-safe."""

    def __init__(self, bay: Forebay, queues: int) -> None:
        if not isinstance(bay, Forebay):
            instead = ": pass bay.synchronous" if hasattr(bay, "synchronous") else ""
            raise ArgumentError(f"an open Forebay is expected, not {type(bay).__name__}{instead}")
        if type(queues) is not int or queues < 0:
            raise ArgumentError(f"queues must be an int from 0 on, not {queues!r}")
        self.broker = bay.settings.broker_name
        self._bay = bay
        self._queues = queues
        self._lock = threading.Lock()
        self._taken_at = float("-inf")
        self._latest: Snapshot | None = None

    def recent(self) -> Snapshot | None:
        """Return the figures of now, or of half a second ago; None: the store is closed."""
        with self._lock:
            now = time.monotonic()
            if now - self._taken_at > SNAPSHOT_SECONDS or self._bay.is_closed:
                self._latest, self._taken_at = self.take(), now
            return self._latest

    def take(self) -> Snapshot | None:
        """Return the figures of now; None: the store is closed."""
        health = self._bay.health()
        if self._bay.is_closed:
            return None
        statistics = self._bay.statistics()
        named = statistics.destinations.items()
        if len(named) > self._queues:
            named = dict(nlargest(self._queues, named, key=lambda found: (found[1].depth, found[1].enqueued))).items()
        subscriptions = {
            (topic, name): found
            for topic, facts in statistics.topics.items()
            for name, found in facts.subscriptions.items()
        }
        return Snapshot(statistics, health, dict(named), subscriptions, len(statistics.destinations))


# ---------------------------------------------------------------------- the metrics


def _one(read: Callable[[Statistics], float]) -> _Read:
    return lambda snapshot: [_Sample((), read(snapshot.statistics))]


def _of_queues(read: Callable[[DestinationStatistics], float | None]) -> _Read:
    def samples(snapshot: Snapshot) -> Iterator[_Sample]:
        for name, found in snapshot.queues.items():
            if (value := read(found)) is not None:
                yield _Sample((name,), float(value))

    return samples


def _of_subscriptions(read: Callable[[DestinationStatistics], float]) -> _Read:
    return lambda snapshot: [_Sample(names, float(read(found))) for names, found in snapshot.subscriptions.items()]


def _whole() -> Iterator[_Metric]:
    """Yield what there is once for each store."""
    for subsystem, name, unit, text, read in (
        ("memory", "limit", "bytes", "The memory limit.", lambda found: found.memory.limit_bytes),
        ("memory", "held", "bytes", "What all caches hold of it.", lambda found: found.memory.held_bytes),
        ("journal", "size", "bytes", "Bytes of all data logs.", lambda found: found.store.journal_bytes),
        ("journal", "live", "bytes", "Of them, those of pending messages.", lambda found: found.store.live_bytes),
        ("journal", "data_logs", "", "Data logs.", lambda found: found.store.data_logs),
        ("", "messages", "", "Pending messages, of queues and topics.", lambda found: found.store.pending_messages),
        ("tmp_storage", "size", "bytes", "Bytes of spilled messages on disk.", lambda found: found.tmp_storage.bytes),
    ):
        yield _Metric(subsystem, name, unit, False, text, (), _one(read))
    text = "Queues there are, also those that are not named."
    yield _Metric("", "queues", "", False, text, (), lambda snapshot: [_Sample((), snapshot.queue_count)])
    yield _Metric(
        "memory",
        "holder",
        "bytes",
        False,
        "Bytes of the memory limit by who holds them.",
        ("holder",),
        lambda snapshot: [_Sample((name,), held) for name, held in snapshot.statistics.memory.holders.items()],
    )
    yield _Metric(
        "cache",
        "served",
        "",
        True,
        "Messages found in a cache that need not be read.",
        ("cache",),
        lambda snapshot: [_Sample((name,), cache.served) for name, cache in snapshot.statistics.caches.items()],
    )
    yield _Metric(
        "background",
        "failing_tries",
        "",
        False,
        "Tries in vain of background work that fails.",
        ("work",),
        lambda snapshot: [_Sample((name,), failing.tries) for name, failing in snapshot.statistics.failing.items()],
    )
    yield _Metric(
        "process",
        "memory",
        "bytes",
        False,
        "Memory that the process has of its own.",
        (),
        lambda snapshot: [_Sample((), process.process_bytes)] if (process := snapshot.statistics.process) else [],
    )


def _queues() -> Iterator[_Metric]:
    """Yield what there is for each queue that is named."""
    for name, unit, text, read in (
        ("messages", "", "Pending messages, those in flight included.", lambda found: found.depth),
        ("messages_ready", "", "Messages that consumers could get.", lambda found: found.ready),
        ("messages_in_flight", "", "Messages that consumers hold and have not settled.", lambda found: found.in_flight),
        ("size", "bytes", "Bodies and headers of pending messages.", lambda found: found.bytes),
        ("oldest_message_age", "seconds", "Since the oldest message was sent.", lambda found: found.oldest_seconds),
        ("consumers", "", "Consumers.", lambda found: found.consumers),
        ("slow_consumers", "", "Consumers that neither take nor settle.", lambda found: found.slow_consumers),
        ("paused", "", "1 while the queue is paused.", lambda found: found.is_paused),
    ):
        yield _Metric("queue", name, unit, False, text, ("queue",), _of_queues(read))
    for name, unit, text, read in (
        ("messages_enqueued", "", "Messages sent to it.", lambda found: found.enqueued),
        ("messages_delivered", "", "Messages handed out, again or for the first time.", lambda found: found.delivered),
        ("messages_acknowledged", "", "Messages acknowledged.", lambda found: found.acknowledged),
        ("messages_redelivered", "", "Messages that came back.", lambda found: found.redelivered),
        ("messages_dead_lettered", "", "Messages that left after the last attempt.", lambda found: found.dead_lettered),
        ("messages_expired", "", "Messages that grew too old.", lambda found: found.expired),
        ("messages_dropped", "", "Messages given up because a limit says so.", lambda found: found.dropped),
        ("messages_unreadable", "", "Messages whose bytes do not verify.", lambda found: found.unreadable),
        ("load_misses", "", "Deliveries that waited for the disk.", lambda found: found.misses),
        ("enqueued", "bytes", "Bodies and headers of messages sent to it.", lambda found: found.enqueued_bytes),
        ("dequeued", "bytes", "Bodies and headers of messages that left it.", lambda found: found.dequeued_bytes),
        ("blocked_sends", "", "Sends that waited for room.", lambda found: found.blocked_sends),
        ("blocked_sends_wait", "seconds", "For how long they waited.", lambda found: found.blocked_seconds),
    ):
        yield _Metric("queue", name, unit, True, text, ("queue",), _of_queues(read))


def _topics() -> Iterator[_Metric]:
    """Yield what there is for each topic, and for each durable subscription."""
    yield _Metric(
        "topic",
        "messages_enqueued",
        "",
        True,
        "Messages sent to it.",
        ("topic",),
        lambda snapshot: [_Sample((name,), found.enqueued) for name, found in snapshot.statistics.topics.items()],
    )
    yield _Metric(
        "topic",
        "enqueued",
        "bytes",
        True,
        "Bodies and headers of messages sent to it.",
        ("topic",),
        lambda snapshot: [_Sample((name,), found.enqueued_bytes) for name, found in snapshot.statistics.topics.items()],
    )
    yield _Metric(
        "topic",
        "consumers",
        "",
        False,
        "Consumers, of durable subscriptions and others.",
        ("topic",),
        lambda snapshot: [_Sample((name,), found.consumers) for name, found in snapshot.statistics.topics.items()],
    )
    yield _Metric(
        "topic",
        "messages_evicted",
        "",
        True,
        "Messages that slow subscribers lost.",
        ("topic",),
        lambda snapshot: [_Sample((name,), found.evicted) for name, found in snapshot.statistics.topics.items()],
    )
    labels = ("topic", "subscription")
    for name, unit, is_counter, text, read in (
        ("messages", "", False, "Pending messages.", lambda found: found.depth),
        ("messages_in_flight", "", False, "Messages that its consumer holds.", lambda found: found.in_flight),
        ("size", "bytes", False, "Bodies and headers of pending messages.", lambda found: found.bytes),
        ("consumers", "", False, "Consumers, at most one.", lambda found: found.consumers),
        ("messages_acknowledged", "", True, "Messages acknowledged.", lambda found: found.acknowledged),
        ("enqueued", "bytes", True, "Bodies and headers of messages it got.", lambda found: found.enqueued_bytes),
        ("dequeued", "bytes", True, "Bodies and headers of messages that left.", lambda found: found.dequeued_bytes),
    ):
        yield _Metric("subscription", name, unit, is_counter, text, labels, _of_subscriptions(read))


_METRICS: Final = (*_whole(), *_queues(), *_topics())
_HISTOGRAMS: Final = (
    _Histogram("journal", "sync_duration", "How long the device took for a sync of the journal.", "sync"),
    _Histogram("", "checkpoint_duration", "How long checkpoints took.", "checkpoint"),
    _Histogram("", "load_duration", "How long loads of messages that are not in RAM took.", "load"),
    _Histogram("", "take_duration", "How long takes waited for a load or a message, until they got some.", "take"),
)
_HEALTHY_HELP: Final = "1 while the store is open and has no problem, else 0."
_HEALTHY: Final = _Metric(
    "", "healthy", "", False, _HEALTHY_HELP, (), lambda snapshot: [_Sample((), float(snapshot.health.ok))]
)
