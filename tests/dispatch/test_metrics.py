"""forebay.metrics: what Prometheus and OpenTelemetry are told, and that dashboard and alerts ask for nothing else."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import prometheus_client
import pytest
import yaml
from inside import open_forebay
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client.parser import text_string_to_metric_families
from simulated_bay import SimulatedBay
from simulated_disk import SimulatedDisk
from simulated_metadata import SimulatedMetadataStore

import forebay.aio
import forebay.metrics
from forebay import ArgumentError, Message, Settings
from forebay.testing import ManualClock

ROOT = Path(__file__).resolve().parents[2]
DASHBOARD = json.loads((ROOT / "docs/operating/grafana-dashboard.json").read_text(encoding="utf-8"))
ALERTS = yaml.safe_load((ROOT / "docs/operating/prometheus-alerts.yml").read_text(encoding="utf-8"))
RULES: list[dict[str, Any]] = [rule for group in ALERTS["groups"] for rule in group["rules"]]


@pytest.fixture
def busy() -> Iterator[SimulatedBay]:
    """A store with a queue, a topic and a durable subscription, all in use."""
    store = SimulatedBay(memory_limit="8MiB")
    queue = store.bay.queue("orders")
    queue.send_many(Message(b"x" * 100) for _ in range(10))
    consumer = queue.subscribe()
    consumer.ack(consumer.take(2))
    held = consumer.take(3)
    consumer.nack(held[:1], delay=60)
    store.bay.topic("prices").subscribe(durable="audit").close()
    store.bay.topic("prices").send(b"x")
    yield store


def scrape(store: SimulatedBay, **options: Any) -> prometheus_client.CollectorRegistry:
    registry = prometheus_client.CollectorRegistry()
    registry.register(forebay.metrics.prometheus(store.bay, **options))
    return registry


def families(store: SimulatedBay) -> dict[str, set[str]]:
    """Return the names as Prometheus stores them, with their labels, also of what has no sample now."""
    found: dict[str, set[str]] = {}
    for family in scrape(store).collect():
        labels = {label for sample in family.samples for label in sample.labels}
        suffixes = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}.get(family.type, ("",))
        found |= {family.name + suffix: labels for suffix in suffixes}
    return found


def test_prometheus_is_told_what_the_statistics_say(busy: SimulatedBay) -> None:
    registry = scrape(busy)
    expected = {
        "forebay_queue_messages": 8,
        "forebay_queue_messages_ready": 5,
        "forebay_queue_messages_in_flight": 2,
        "forebay_queue_size_bytes": 800,
        "forebay_queue_consumers": 1,
        "forebay_queue_messages_enqueued_total": 10,
        "forebay_queue_messages_delivered_total": 5,
        "forebay_queue_messages_acknowledged_total": 2,
        "forebay_queue_messages_redelivered_total": 1,
        "forebay_queue_enqueued_bytes_total": 1_000,
        "forebay_queue_dequeued_bytes_total": 200,
    }
    for name, value in expected.items():
        assert registry.get_sample_value(name, {"broker": "localhost", "queue": "orders"}) == value, name
    subscription = {"broker": "localhost", "topic": "prices", "subscription": "audit"}
    assert registry.get_sample_value("forebay_subscription_messages", subscription) == 1
    held = busy.bay.statistics().memory.held_bytes
    assert registry.get_sample_value("forebay_memory_held_bytes", {"broker": "localhost"}) == held
    assert registry.get_sample_value("forebay_healthy", {"broker": "localhost"}) == 1
    assert b"# TYPE forebay_queue_messages_enqueued_total counter" in prometheus_client.generate_latest(registry)


def figures(text: str) -> dict[tuple[str, ...], float]:
    """Return the samples of a text, as prometheus_client reads them."""
    return {
        (sample.name, *(value for pair in sorted(sample.labels.items()) for value in pair)): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_text_says_what_the_client_of_prometheus_would_write(busy: SimulatedBay) -> None:
    busy.bay.queue('a "quoted" \\name').send(b"x")
    busy.bay.queue("halted").pause()
    busy.bay.step()
    told = forebay.metrics.prometheus_text(busy.bay)
    written = prometheus_client.generate_latest(scrape(busy)).decode()
    assert figures(told) == figures(written)
    headings = [line for line in written.splitlines() if line.startswith("#")]
    assert [line for line in told.splitlines() if line.startswith("#")] == headings
    assert figures(told)["forebay_queue_paused", "broker", "localhost", "queue", "halted"] == 1


def test_text_of_a_closed_store_tells_that_it_is_not_well_and_nothing_else(busy: SimulatedBay) -> None:
    busy.bay.close()
    told = forebay.metrics.prometheus_text(busy.bay)
    assert figures(told) == {("forebay_healthy", "broker", "localhost"): 0}


def test_text_names_no_more_queues_than_it_is_told_to(busy: SimulatedBay) -> None:
    for n in range(10):
        busy.bay.queue(f"queue-{n}").send_many(Message(b"x") for _ in range(n))
    told = figures(forebay.metrics.prometheus_text(busy.bay, queues=3))
    named = {labels[-1] for name, *labels in told if name == "forebay_queue_messages"}
    assert named == {"queue-9", "orders", "queue-8"} and told["forebay_queues", "broker", "localhost"] == 11


def test_durations_are_histograms_in_seconds(busy: SimulatedBay) -> None:
    registry, broker = scrape(busy), {"broker": "localhost"}
    busy.bay.checkpoint()
    found = busy.bay.statistics().durations["checkpoint"]
    name = "forebay_checkpoint_duration_seconds"
    assert registry.get_sample_value(f"{name}_count", broker) == found.count > 0
    assert registry.get_sample_value(f"{name}_sum", broker) == found.total_seconds
    buckets = [registry.get_sample_value(f"{name}_bucket", broker | {"le": le}) for le in ("1.6e-05", "67.108864")]
    assert buckets == [found.buckets[0], found.count]
    assert registry.get_sample_value(f"{name}_bucket", broker | {"le": "+Inf"}) == found.count
    assert f"# TYPE {name} histogram".encode() in prometheus_client.generate_latest(registry)
    for other in ("journal_sync", "load", "take"):
        assert registry.get_sample_value(f"forebay_{other}_duration_seconds_count", broker) is not None


def test_opentelemetry_is_told_the_same(busy: SimulatedBay) -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    forebay.metrics.opentelemetry(busy.bay, provider.get_meter("test"))
    data: Any = reader.get_metrics_data()
    found = {
        (metric.name, *sorted(point.attributes.items())): (metric.unit, point.value)
        for metric in data.resource_metrics[0].scope_metrics[0].metrics
        for point in metric.data.data_points
    }
    queue = (("broker", "localhost"), ("queue", "orders"))
    assert found["forebay.queue.messages", *queue] == ("1", 8)
    assert found["forebay.queue.size", *queue] == ("By", 800)
    assert found["forebay.queue.messages_acknowledged", *queue] == ("1", 2)
    assert found["forebay.queue.blocked_sends_wait", *queue] == ("s", 0)
    broker = (("broker", "localhost"),)
    count = busy.bay.statistics().durations["take"].count
    assert found["forebay.take_duration_count", *broker] == ("1", count)
    assert found["forebay.take_duration_sum", *broker] == ("s", 0)
    assert found["forebay.take_duration_bucket", *broker, ("le", "+Inf")] == ("1", count)
    samples = sum(len(family.samples) for family in scrape(busy).collect())
    assert len(found) == samples
    busy.bay.close()
    provider.shutdown()


def test_closed_store_tells_that_it_is_not_well_and_nothing_else(busy: SimulatedBay) -> None:
    registry = scrape(busy)
    busy.bay.close()
    [family] = registry.collect()
    assert [(sample.name, sample.value) for sample in family.samples] == [("forebay_healthy", 0)]


def test_only_the_largest_queues_are_named(busy: SimulatedBay) -> None:
    for n in range(10):
        busy.bay.queue(f"queue-{n}").send_many(Message(b"x") for _ in range(n))
    [family] = [found for found in scrape(busy, queues=3).collect() if found.name == "forebay_queue_messages"]
    assert {sample.labels["queue"] for sample in family.samples} == {"queue-9", "orders", "queue-8"}
    assert scrape(busy, queues=3).get_sample_value("forebay_queues", {"broker": "localhost"}) == 11


class NoRoom:
    """Where a status finds no room."""

    def write(self, content: bytes) -> None:
        raise OSError(28, "No space left on device")

    def remove(self) -> None: ...


def test_background_work_that_fails_and_the_age_of_the_oldest_message_are_told() -> None:
    clock = ManualClock()
    settings = Settings(background=False, memory_limit="8MiB", sync="never")
    bay = open_forebay(SimulatedDisk(), SimulatedMetadataStore(), settings, clock, status=NoRoom())
    bay.queue("orders").send(b"x")
    clock.advance(5)
    bay.step()
    registry = prometheus_client.CollectorRegistry()
    registry.register(forebay.metrics.prometheus(bay))
    broker = {"broker": "localhost"}
    assert registry.get_sample_value("forebay_background_failing_tries", broker | {"work": "status"}) == 1
    assert registry.get_sample_value("forebay_queue_oldest_message_age_seconds", broker | {"queue": "orders"}) == 5
    assert registry.get_sample_value("forebay_healthy", broker) == 0


def test_what_is_no_open_store_is_an_argument_error(busy: SimulatedBay) -> None:
    wrong: Any = "data"
    with pytest.raises(ArgumentError):
        forebay.metrics.prometheus(wrong)
    with pytest.raises(ArgumentError):
        forebay.metrics.prometheus(busy.bay, queues=-1)
    with pytest.raises(ArgumentError):
        forebay.metrics.prometheus_text(wrong)


def test_store_of_a_loop_is_answered_with_what_to_pass(tmp_path: Path) -> None:
    async def register() -> None:
        async with forebay.aio.open(tmp_path, memory_limit="8MiB") as bay:
            with pytest.raises(ArgumentError, match=r"not AsyncForebay: pass bay\.synchronous"):
                forebay.metrics.prometheus(bay)  # type: ignore[arg-type]
            assert forebay.metrics.prometheus(bay.synchronous)

    asyncio.run(register())


def test_names_follow_the_habits_of_prometheus(busy: SimulatedBay) -> None:
    for family in scrape(busy).collect():
        assert re.fullmatch(r"forebay(_[a-z]+)+", family.name), family.name
        assert family.documentation.endswith("."), family.name
        assert not re.search(r"_(ms|mib|kb|count)$", family.name), family.name


# Dashboard and alerts.


def asked(expression: str) -> set[str]:
    return set(re.findall(r"\bforebay_[a-z_]+\b", expression))


def test_dashboard_asks_for_metrics_that_there_are(busy: SimulatedBay) -> None:
    known = families(busy)
    expressions = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
    expressions += [variable["query"] for variable in DASHBOARD["templating"]["list"] if variable["type"] == "query"]
    assert len(expressions) > 15
    for expression in expressions:
        assert asked(expression) and asked(expression) <= set(known), expression


def test_labels_that_legends_and_alerts_name_are_there(busy: SimulatedBay) -> None:
    known = families(busy)
    told = [(target["expr"], target["legendFormat"]) for panel in DASHBOARD["panels"] for target in panel["targets"]]
    told += [(rule["expr"], " ".join(rule["annotations"].values()).replace("$labels.", "")) for rule in RULES]
    for expression, text in told:
        for label in re.findall(r"\{\{ ?(\w+) ?\}\}", text):
            labels = set.union(*(known[name] for name in asked(expression)))
            assert not labels or label in labels, (expression, label)


def test_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken and place["x"] + place["w"] <= 24, panel["title"]
        taken |= cells
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule["alert"]))
def test_alert_is_whole_and_asks_for_metrics_that_there_are(busy: SimulatedBay, rule: dict[str, Any]) -> None:
    assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
    assert re.fullmatch(r"Forebay[A-Za-z]+", rule["alert"]) and rule["annotations"]["summary"]
    assert rule["labels"]["severity"] in ("warning", "critical")
    assert re.fullmatch(r"\d+m", rule.get("for", "1m"))
    assert asked(rule["expr"]) and asked(rule["expr"]) <= set(families(busy))
    assert rule["expr"].count("(") == rule["expr"].count(")")
