"""forebay.metrics: the statistics of an open store for Prometheus and OpenTelemetry.

    >>> import forebay.metrics
    >>> import prometheus_client
    >>> prometheus_client.REGISTRY.register(forebay.metrics.prometheus(bay))

All functions report the same metrics, under names that are usual for RabbitMQ and Kafka, and name at most as many
queues as they are told to. `prometheus_text` needs no package; the other two need forebay[metrics].
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest
from itertools import accumulate
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from forebay.dispatch.engine.health import Health
from forebay.dispatch.engine.statistics import DestinationStatistics, Statistics
from forebay.dispatch.forebay import Forebay
from forebay.store.errors import ArgumentError, SettingsError
from forebay.store.structures.histogram import BOUNDS_SECONDS, DurationStatistics

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Meter, Observation
    from prometheus_client.core import Metric as PrometheusMetric
    from prometheus_client.registry import Collector

__all__ = ["opentelemetry", "prometheus", "prometheus_text"]

QUEUES_MAX: Final = 1_000
"""Most queues that are named by default. Each is about twenty series."""
SNAPSHOT_SECONDS: Final = 0.5
"""OpenTelemetry asks for each metric separately; for this long they share one snapshot."""


def __dir__() -> list[str]:
    """Return the public names."""
    return list(__all__)


class Snapshot:
    """The data from which all metrics of one moment are read."""

    def __init__(
        self,
        statistics: Statistics,
        health: Health,
        queues: Mapping[str, DestinationStatistics],
        subscriptions: Mapping[tuple[str, str], DestinationStatistics],
        queue_count: int,
    ) -> None:
        """Take a snapshot.

        queues: those that are named. subscriptions: by topic and name. queue_count: number of all queues, named or not.
        """
        self.health = health
        self.queue_count = queue_count
        self.statistics = statistics
        process = statistics.process
        # By subject of a metric: the values of its labels, and the objects from which its figures are read.
        #
        # Two lists instead of pairs, so that a scrape makes few objects for the garbage collector.
        self.rows: dict[str, _Rows] = {
            "store": ([()], [self]),
            "process": ([()], [process]) if process is not None else ([], []),
            "holder": _named(statistics.memory.holders),
            "cache": _named(statistics.caches),
            "work": _named(statistics.failing),
            "queue": _named(queues),
            "topic": _named(statistics.topics),
            "subscription": (list(subscriptions), list(subscriptions.values())),
        }


_Rows = tuple[Sequence[tuple[str, ...]], Sequence[Any]]
_Sample = tuple[tuple[str, ...], float]


def _named(found: Mapping[str, object]) -> _Rows:
    return [(name,) for name in found], list(found.values())


_LABELS: Final[Mapping[str, tuple[str, ...]]] = {
    "store": (),
    "process": (),
    "holder": ("holder",),
    "cache": ("cache",),
    "work": ("work",),
    "queue": ("queue",),
    "topic": ("topic",),
    "subscription": ("topic", "subscription"),
}


@dataclass(frozen=True)
class _Metric:
    """One metric, for all formats. unit: "", "bytes" or "seconds"."""

    subsystem: str
    name: str
    unit: str
    help: str
    subject: str
    """What it is about: a key of _LABELS."""
    read: Callable[[Any], float | None]
    """Returns the figure of one subject. None: it is not known."""
    is_counter: bool
    """Whether it only rises."""

    @property
    def labels(self) -> tuple[str, ...]:
        return _LABELS[self.subject]

    @property
    def prometheus_name(self) -> str:
        """Its name without the "_total" of a counter."""
        return "_".join(filter(None, ("forebay", self.subsystem, self.name, self.unit)))

    @property
    def sample_name(self) -> str:
        """Its name in a sample of Prometheus."""
        return f"{self.prometheus_name}_total" if self.is_counter else self.prometheus_name

    @property
    def dotted_name(self) -> str:
        """Its name in OpenTelemetry, where the unit is separate."""
        return ".".join(filter(None, ("forebay", self.subsystem, self.name)))

    def samples(self, snapshot: Snapshot) -> Iterator[_Sample]:
        """Yield the labels and the figure of each subject that has one."""
        read = self.read
        for labels, found in zip(*snapshot.rows[self.subject], strict=True):
            if (value := read(found)) is not None:
                yield labels, value


class _Histogram(NamedTuple):
    """Durations of one kind, for all formats."""

    subsystem: str
    name: str
    help: str
    key: str
    """Its key in Statistics.durations."""

    @property
    def prometheus_name(self) -> str:
        """Its name without the "_bucket", "_sum" and "_count" of samples."""
        return "_".join(filter(None, ("forebay", self.subsystem, self.name, "seconds")))

    @property
    def dotted_name(self) -> str:
        """Its name in OpenTelemetry, without the suffixes of counters."""
        return ".".join(filter(None, ("forebay", self.subsystem, self.name)))

    def read(self, snapshot: Snapshot) -> DurationStatistics | None:
        """Return the durations. None: the store does not report them."""
        return snapshot.statistics.durations.get(self.key)

    def buckets(self, snapshot: Snapshot) -> Iterator[_Sample]:
        """Yield each bucket by its bound, as a counter."""
        found = self.read(snapshot)
        return (((bound,), count) for bound, count in _cumulative(found)) if found else iter(())

    def counts(self, snapshot: Snapshot) -> Iterator[_Sample]:
        """Yield the number of durations, as a counter."""
        return iter([((), found.count)] if (found := self.read(snapshot)) else [])

    def sums(self, snapshot: Snapshot) -> Iterator[_Sample]:
        """Yield the sum of the durations in seconds, as a counter."""
        return iter([((), found.total_seconds)] if (found := self.read(snapshot)) else [])


def _cumulative(found: DurationStatistics) -> Iterator[tuple[str, int]]:
    """Yield each bound in seconds, as Prometheus writes it, and how many durations did not exceed it."""
    bounds = (*map(repr, BOUNDS_SECONDS), "+Inf")
    return zip(bounds, accumulate(found.buckets), strict=True)


# ---------------------------------------------------------------------- Prometheus


def prometheus_text(bay: Forebay, *, queues: int = QUEUES_MAX) -> str:
    """Return all metrics in the text format of Prometheus, version 0.0.4. Needs no package.

    bay, queues: as in `prometheus`, and so are the metrics. It takes about 11 ms of CPU time for a thousand queues, a
        tenth of what prometheus_client takes to write the same.

        >>> print(forebay.metrics.prometheus_text(bay))
    """
    source = _Source(bay, queues)
    return text_of(source.broker, source.take())


def text_of(broker: str, snapshot: Snapshot | None) -> str:
    """Return the text of a snapshot; None: the store is closed."""
    parts: list[str] = []
    if snapshot is not None:
        texts = {
            subject: [_label_text(broker, _LABELS[subject], labels) for labels in rows]
            for subject, (rows, _) in snapshot.rows.items()
        }
        for metric in _METRICS:
            name, read = metric.sample_name, metric.read
            parts.append(_heading(name, metric.help, "counter" if metric.is_counter else "gauge"))
            lines = [
                f"{name}{labels} {value}\n"
                for labels, found in zip(texts[metric.subject], snapshot.rows[metric.subject][1], strict=True)
                if (value := read(found)) is not None
            ]
            parts.append("".join(lines))  # join at once, so that the next metric can reuse the memory
        for histogram in _HISTOGRAMS:
            if durations := histogram.read(snapshot):
                parts += _histogram_lines(histogram, durations, broker)
    parts.append(_heading("forebay_healthy", _HEALTHY_HELP, "gauge"))
    is_well = snapshot is not None and snapshot.health.ok
    parts.append(f"forebay_healthy{_label_text(broker)} {int(is_well)}\n")
    return "".join(parts)


def _histogram_lines(histogram: _Histogram, durations: DurationStatistics, broker: str) -> Iterator[str]:
    name, labels = histogram.prometheus_name, _label_text(broker)
    yield _heading(name, histogram.help, "histogram")
    for bound, count in _cumulative(durations):
        yield f"{name}_bucket{_label_text(broker, ('le',), (bound,))} {count}\n"
    yield f"{name}_sum{labels} {durations.total_seconds}\n"
    yield f"{name}_count{labels} {durations.count}\n"


def _heading(name: str, text: str, kind: str) -> str:
    return f"# HELP {name} {text}\n# TYPE {name} {kind}\n"


def _label_text(broker: str, names: Sequence[str] = (), values: Sequence[str] = ()) -> str:
    """Return labels in the text format."""
    text = f'{{broker="{_escaped(broker)}"'
    for name, value in zip(names, values, strict=True):
        text += f',{name}="{_escaped(value)}"'
    return text + "}"


def _escaped(value: str) -> str:
    """Return the value of a label with everything escaped that would end it or begin a line."""
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def prometheus(bay: Forebay, *, queues: int = QUEUES_MAX) -> Collector:
    """Return a collector for prometheus_client, to be registered. The label `broker` tells several stores apart.

    bay: for a store of forebay.aio, `bay.synchronous`. queues: most queues that are named; those with most pending
        messages come first, then those with most traffic. A closed store reports only `forebay_healthy`. For a thousand
        queues the store takes 6 ms of CPU time for its figures, and prometheus_client 90 ms to write them: see
        `prometheus_text`. SettingsError: prometheus_client is not installed.
    """
    source = _Source(bay, queues)
    try:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
        from prometheus_client.registry import Collector
        from prometheus_client.samples import Sample
    except ImportError:
        raise SettingsError("prometheus_client is not installed: pip install 'forebay[metrics]'") from None

    class StoreCollector(Collector):
        """The statistics of one store, collected at each scrape."""

        def collect(self) -> Iterator[PrometheusMetric]:
            """Yield every metric with its samples."""
            snapshot = source.take()
            if snapshot is not None:
                yield from self._figures(snapshot)
                yield from self._durations(snapshot)
            healthy = GaugeMetricFamily("forebay_healthy", _HEALTHY_HELP, labels=("broker",))
            healthy.add_metric((source.broker,), float(snapshot is not None and snapshot.health.ok))
            yield healthy

        def _figures(self, snapshot: Snapshot) -> Iterator[PrometheusMetric]:
            labelled = {
                subject: [
                    dict(zip(("broker", *_LABELS[subject]), (source.broker, *labels), strict=True)) for labels in rows
                ]
                for subject, (rows, _) in snapshot.rows.items()
            }  # shared by all metrics of a subject, and never changed
            for metric in _METRICS:
                family = CounterMetricFamily if metric.is_counter else GaugeMetricFamily
                told = family(metric.prometheus_name, metric.help, labels=("broker", *metric.labels))
                name, read = metric.sample_name, metric.read
                told.samples = [
                    Sample(name, labels, value)
                    for labels, found in zip(labelled[metric.subject], snapshot.rows[metric.subject][1], strict=True)
                    if (value := read(found)) is not None
                ]
                yield told

        def _durations(self, snapshot: Snapshot) -> Iterator[PrometheusMetric]:
            for histogram in _HISTOGRAMS:
                if durations := histogram.read(snapshot):
                    lasting = HistogramMetricFamily(histogram.prometheus_name, histogram.help, labels=("broker",))
                    lasting.add_metric((source.broker,), list(_cumulative(durations)), durations.total_seconds)
                    yield lasting

        def describe(self) -> Iterator[PrometheusMetric]:
            """Yield nothing, so that registering asks the store for nothing."""
            return iter(())

    return StoreCollector()


# ---------------------------------------------------------------------- OpenTelemetry


def opentelemetry(bay: Forebay, meter: Meter, *, queues: int = QUEUES_MAX) -> None:
    """Make observable instruments of a meter of OpenTelemetry, which ask the store whenever they are read.

    bay, queues: as in `prometheus`. Histograms are counters here, with the suffixes and the label `le` of Prometheus,
        because no histogram can be observed. Instruments report nothing once the store is closed. SettingsError: the
        API is not installed.
    """
    source = _Source(bay, queues)
    try:
        from opentelemetry.metrics import Observation
    except ImportError:
        raise SettingsError("opentelemetry-api is not installed: pip install 'forebay[metrics]'") from None

    def observer(
        names: tuple[str, ...], samples: Callable[[Snapshot], Iterable[_Sample]]
    ) -> Callable[[CallbackOptions], Iterable[Observation]]:
        names = ("broker", *names)

        def observe(options: CallbackOptions) -> Iterable[Observation]:
            snapshot = source.recent()
            if snapshot is None:
                return []
            return [
                Observation(value, dict(zip(names, (source.broker, *labels), strict=True)))
                for labels, value in samples(snapshot)
            ]

        return observe

    for metric in (*_METRICS, _HEALTHY):
        make = meter.create_observable_counter if metric.is_counter else meter.create_observable_gauge
        unit = {"bytes": "By", "seconds": "s"}.get(metric.unit, "1")
        observe = observer(metric.labels, metric.samples)
        make(metric.dotted_name, callbacks=[observe], unit=unit, description=metric.help)
    for histogram in _HISTOGRAMS:
        for suffix, unit, names, samples in (
            ("bucket", "1", ("le",), histogram.buckets),
            ("count", "1", (), histogram.counts),
            ("sum", "s", (), histogram.sums),
        ):
            meter.create_observable_counter(
                f"{histogram.dotted_name}_{suffix}",
                callbacks=[observer(names, samples)],
                unit=unit,
                description=histogram.help,
            )


class _Source:
    """The source of one store's figures. Thread-safe."""

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
        """Return figures that are at most half a second old. None: the store is closed."""
        with self._lock:
            now = time.monotonic()
            if now - self._taken_at > SNAPSHOT_SECONDS or self._bay.is_closed:
                self._latest, self._taken_at = self.take(), now
            return self._latest

    def take(self) -> Snapshot | None:
        """Return the present figures. None: the store is closed."""
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


_Row = tuple[str, str, str, str | Callable[[Any], float | None]]
"""Name, unit and help of a metric, and the path of attributes to its figure, or a function."""


def _gauges(subsystem: str, subject: str, *rows: _Row) -> Iterator[_Metric]:
    """Yield metrics that rise and fall."""
    for name, unit, text, figure in rows:
        yield _Metric(subsystem, name, unit, text, subject, _reader(figure), is_counter=False)


def _counters(subsystem: str, subject: str, *rows: _Row) -> Iterator[_Metric]:
    """Yield metrics that only rise."""
    for name, unit, text, figure in rows:
        yield _Metric(subsystem, name, unit, text, subject, _reader(figure), is_counter=True)


def _reader(figure: str | Callable[[Any], float | None]) -> Callable[[Any], float | None]:
    return attrgetter(figure) if isinstance(figure, str) else figure


def _paused_figure(found: DestinationStatistics) -> int:
    return int(found.is_paused)


_METRICS: Final = (
    *_gauges(
        "memory",
        "store",
        ("limit", "bytes", "The memory limit.", "statistics.memory.limit_bytes"),
        ("held", "bytes", "What all caches hold of it.", "statistics.memory.held_bytes"),
    ),
    *_gauges(
        "journal",
        "store",
        ("size", "bytes", "Bytes of all data logs.", "statistics.store.journal_bytes"),
        ("live", "bytes", "Of them, those of pending messages.", "statistics.store.live_bytes"),
        ("data_logs", "", "Data logs.", "statistics.store.data_logs"),
    ),
    *_gauges(
        "",
        "store",
        ("messages", "", "Pending messages, of queues and topics.", "statistics.store.pending_messages"),
        ("queues", "", "Queues there are, also those that are not named.", "queue_count"),
    ),
    *_gauges(
        "tmp_storage",
        "store",
        ("size", "bytes", "Bytes of spilled messages on disk.", "statistics.tmp_storage.bytes"),
    ),
    *_gauges(
        "memory",
        "holder",
        ("holder", "bytes", "Bytes of the memory limit by who holds them.", lambda held: held),
    ),
    *_counters("cache", "cache", ("served", "", "Messages found in a cache that need not be read.", "served")),
    *_gauges("background", "work", ("failing_tries", "", "Tries in vain of background work that fails.", "tries")),
    *_gauges("process", "process", ("memory", "bytes", "Memory that the process has of its own.", "process_bytes")),
    *_gauges(
        "queue",
        "queue",
        ("messages", "", "Pending messages, those in flight included.", "depth"),
        ("messages_ready", "", "Messages that consumers could get.", "ready"),
        (
            "messages_in_flight",
            "",
            "Messages that consumers or undecided transactions hold.",
            "in_flight",
        ),
        ("size", "bytes", "Bodies and headers of pending messages.", "bytes"),
        ("oldest_message_age", "seconds", "Since the oldest message was sent.", "oldest_seconds"),
        ("consumers", "", "Consumers.", "consumers"),
        ("slow_consumers", "", "Consumers that neither take nor settle.", "slow_consumers"),
        ("paused", "", "1 while the queue is paused.", _paused_figure),
    ),
    *_counters(
        "queue",
        "queue",
        ("messages_enqueued", "", "Messages sent to it.", "enqueued"),
        ("messages_delivered", "", "Messages handed out, again or for the first time.", "delivered"),
        ("messages_acknowledged", "", "Messages acknowledged.", "acknowledged"),
        ("messages_redelivered", "", "Messages that came back.", "redelivered"),
        ("messages_dead_lettered", "", "Messages that became dead letters.", "dead_lettered"),
        ("messages_expired", "", "Messages that grew too old.", "expired"),
        ("messages_dropped", "", "Messages given up because a limit says so.", "dropped"),
        ("messages_unreadable", "", "Messages whose bytes do not verify.", "unreadable"),
        ("load_misses", "", "Deliveries that waited for the disk.", "misses"),
        ("enqueued", "bytes", "Bodies and headers of messages sent to it.", "enqueued_bytes"),
        ("dequeued", "bytes", "Bodies and headers of messages that left it.", "dequeued_bytes"),
        ("blocked_sends", "", "Sends that waited for room.", "blocked_sends"),
        ("blocked_sends_wait", "seconds", "For how long they waited.", "blocked_seconds"),
    ),
    *_counters(
        "topic",
        "topic",
        ("messages_enqueued", "", "Messages sent to it.", "enqueued"),
        ("enqueued", "bytes", "Bodies and headers of messages sent to it.", "enqueued_bytes"),
    ),
    *_gauges("topic", "topic", ("consumers", "", "Consumers, of durable subscriptions and others.", "consumers")),
    *_counters("topic", "topic", ("messages_evicted", "", "Messages that slow subscribers lost.", "evicted")),
    *_gauges(
        "subscription",
        "subscription",
        ("messages", "", "Pending messages.", "depth"),
        ("messages_in_flight", "", "Messages that its consumer holds.", "in_flight"),
        ("size", "bytes", "Bodies and headers of pending messages.", "bytes"),
        ("consumers", "", "Consumers: at most one, unless it is shared.", "consumers"),
    ),
    *_counters(
        "subscription",
        "subscription",
        ("messages_acknowledged", "", "Messages acknowledged.", "acknowledged"),
        ("enqueued", "bytes", "Bodies and headers of messages it got.", "enqueued_bytes"),
        ("dequeued", "bytes", "Bodies and headers of messages that left.", "dequeued_bytes"),
    ),
)
_HISTOGRAMS: Final = (
    _Histogram("journal", "sync_duration", "How long the device took for a sync of the journal.", "sync"),
    _Histogram("", "checkpoint_duration", "How long checkpoints took.", "checkpoint"),
    _Histogram("", "load_duration", "How long loads of messages that are not in RAM took.", "load"),
    _Histogram("", "take_duration", "How long takes waited for a load or a message, until they got some.", "take"),
)
_HEALTHY_HELP: Final = "1 while the store is open and has no problem, else 0."
_HEALTHY: Final = _Metric(
    "", "healthy", "", _HEALTHY_HELP, "store", lambda snapshot: float(snapshot.health.ok), is_counter=False
)
