"""The status that a store writes about itself: what it says, what it costs, and that it hurts nothing."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from inside import open_forebay
from simulated_disk import SimulatedDisk
from simulated_metadata import SimulatedMetadataStore

import forebay
from forebay import Forebay, Health, Message, Settings, StoreFailed
from forebay.dispatch.engine.status import (
    CONSUMERS_MAX,
    CROWD,
    PAUSED_MAX,
    QUEUES_MAX,
    SAMPLE_MAX,
    SQUARES_MAX,
    SUBSCRIPTIONS_MAX,
    TOPICS_MAX,
    data_log_rows,
)
from forebay.dispatch.engine.status_file import STATUS_BYTES_MAX, StatusFile, read_status
from forebay.dispatch.explain.short import IN_FLIGHT_MAX
from forebay.testing import ManualClock


class Output:
    """Takes statuses in the place of a file."""

    def __init__(self) -> None:
        self.statuses: list[dict[str, Any]] = []
        self.size = 0
        self.error: OSError | None = None
        self.is_removed = False

    def write(self, content: bytes) -> None:
        if self.error is not None:
            raise self.error
        self.size = len(content)
        self.statuses.append(json.loads(content))

    def remove(self) -> None:
        self.is_removed = True

    def row(self, name: str) -> dict[str, Any]:
        found: list[dict[str, Any]] = [row for row in self.statuses[-1]["queues"] if row["name"] == name]
        assert len(found) == 1
        return found[0]


class Told:
    """A store on a simulated disk that tells its status."""

    def __init__(self, **fields: Any) -> None:
        self.output = Output()
        self.clock = ManualClock()
        self.disk = SimulatedDisk()
        defaults: dict[str, Any] = {"background": False, "memory_limit": "8MiB", "sync": "never"}
        settings = Settings(**(defaults | fields))
        metadata = SimulatedMetadataStore()
        self.bay: Forebay = open_forebay(self.disk, metadata, settings, self.clock, status=self.output)

    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.bay.step()


def test_status_says_what_each_queue_holds_and_how_fast_it_moves() -> None:
    told = Told()
    queue = told.bay.queue("orders")
    queue.send_many(Message(b"x" * 100) for _ in range(20))
    consumer = queue.subscribe(prefetch=5)
    held = consumer.take(5)
    told.wait(1)
    row = told.output.row("orders")
    counts = ("depth", "ready", "in_flight", "bytes", "consumers", "oldest_seconds", "in_per_second")
    assert [row[name] for name in counts] == [20, 15, 5, 2000, 1, 1.0, 20.0]
    consumer.ack(held)
    queue.send_many(Message(b"x") for _ in range(4))
    told.wait(2)
    row = told.output.row("orders")
    assert [row[name] for name in ("depth", "in_per_second", "out_per_second", "oldest_seconds")] == [19, 2.0, 2.5, 3.0]


def test_status_has_the_curve_of_the_statistics_once_something_was_delivered() -> None:
    told = Told()
    queue = told.bay.queue("orders")
    queue.send_many(Message(b"x" * 1_000) for _ in range(1_000))
    told.wait(1)
    assert told.output.statuses[-1]["memory"]["curve"] == []
    with queue.subscribe() as consumer:
        consumer.ack(consumer.take(500))
    told.wait(1)
    memory, curve = told.output.statuses[-1]["memory"], told.bay.statistics().memory.curve
    assert curve.deliveries and memory["curve"] == [[point.limit_bytes, point.hit_ratio] for point in curve.points]
    assert memory["recommended_limit_bytes"] == curve.recommended_limit_bytes


def test_status_has_the_durations_of_the_statistics() -> None:
    told = Told()
    told.bay.queue("orders").send(b"x")
    told.bay.checkpoint()
    told.wait(1)
    durations, found = told.output.statuses[-1]["durations"], told.bay.statistics().durations
    assert {name: (row["count"], tuple(row["buckets"])) for name, row in durations.items()} == {
        name: (one.count, one.buckets) for name, one in found.items()
    }
    assert durations["checkpoint"]["count"] >= 1


def test_oldest_age_is_that_of_the_oldest_pending_message_wherever_it_is() -> None:
    told = Told(memory_limit="4MiB")
    queue = told.bay.queue("orders")
    consumer = queue.subscribe(prefetch=0)
    for _ in range(3):
        queue.send(b"x")
        told.clock.advance(10)
    first, *_ = held = consumer.take(3)
    told.wait(1)
    assert told.output.row("orders")["oldest_seconds"] == 31  # in flight
    consumer.ack(held[1:])
    told.wait(1)
    assert told.output.row("orders")["oldest_seconds"] == 32
    consumer.nack(first, delay=5)
    told.wait(1)
    row = told.output.row("orders")
    assert (row["oldest_seconds"], row["ready"], row["in_flight"], row["depth"]) == (33, 0, 0, 1)  # delayed
    told.wait(6)
    consumer.ack(consumer.take())
    told.wait(1)
    assert told.output.row("orders")["oldest_seconds"] is None
    queue.send(b"x", persistent=False)
    told.wait(2)
    assert told.output.row("orders")["oldest_seconds"] == 2


def test_oldest_age_of_what_is_on_disk_alone_is_read_there() -> None:
    told = Told(memory_limit="4MiB")
    for name in ("first", "second"):
        told.bay.queue(name).send_many(Message(bytes(10_000)) for _ in range(600))
        told.clock.advance(10)
    told.bay.close()
    told.bay = open_forebay(told.disk, SimulatedMetadataStore(), told.bay.settings, told.clock, status=told.output)
    reads = told.disk.calls["read"]
    told.wait(1)
    assert [told.output.row(name)["oldest_seconds"] for name in ("first", "second")] == [21, 11]
    assert told.disk.calls["read"] > reads


def test_statistics_know_the_age_that_the_status_found() -> None:
    told = Told()
    queue = told.bay.queue("orders")
    queue.send(b"x")
    assert queue.statistics().oldest_seconds is None
    told.wait(1)
    told.clock.advance(4)
    found = told.bay.statistics().destinations["orders"]
    assert (found.oldest_seconds, found.ready, found.in_flight) == (5.0, 1, 0)


def test_of_many_queues_the_busiest_are_named_the_rest_is_counted_and_few_are_looked_at() -> None:
    told = Told(memory_limit="64MiB")
    queues = [told.bay.queue(f"queue-{n:05}") for n in range(1_500)]
    for busy in queues[1_000:1_010]:
        busy.send_many(Message(b"x") for _ in range(50))
    for _ in range(1_500 // SAMPLE_MAX + 1):
        told.wait(1)
    status = told.output.statuses[-1]
    assert len(status["queues"]) == QUEUES_MAX and status["other_queues"] == 1_500 - QUEUES_MAX
    assert {queue.name for queue in queues[1_000:1_010]} <= {row["name"] for row in status["queues"]}
    assert told.output.size < STATUS_BYTES_MAX / 4


def test_longest_names_fit_into_a_status() -> None:
    told = Told(memory_limit="64MiB")
    for n in range(QUEUES_MAX + SAMPLE_MAX):
        told.bay.queue(f"{n:03}" + "\u00fc" * 126).pause()
        topic = told.bay.topic(f"{n:03}" + "\u00fc" * 126)
        topic.subscribe(durable=f"{n:03}" + "\u00fc" * 126).close()
    told.wait(1)
    assert told.output.size < STATUS_BYTES_MAX / 2


def test_status_has_topics_their_durable_subscriptions_and_the_caches() -> None:
    told = Told()
    topic = told.bay.topic("prices")
    topic.subscribe(durable="audit").close()
    listener = topic.subscribe()
    topic.send(b"12345")
    told.wait(1)
    status, statistics = told.output.statuses[-1], told.bay.statistics()
    [row] = status["topics"]
    assert row["name"] == "prices" and (row["enqueued"], row["enqueued_bytes"], row["consumers"]) == (1, 5, 1)
    [subscription] = status["subscriptions"]
    found = statistics.topics["prices"].subscriptions["audit"]._asdict()
    assert subscription == {"topic": "prices", "name": "audit"} | found and found["depth"] == 1
    assert status["caches"] == {name: dataclasses.asdict(cache) for name, cache in statistics.caches.items()}
    listener.close()


def test_of_many_topics_those_with_most_messages_are_named_and_the_rest_is_counted() -> None:
    told = Told(memory_limit="64MiB")
    topics = [told.bay.topic(f"topic-{n:05}") for n in range(500)]
    for busy in topics[400:410]:
        busy.subscribe(durable="a").close()
        busy.subscribe(durable="b").close()
        busy.send(b"x")
    for _ in range(500 // SAMPLE_MAX + 1):
        told.wait(1)
    status = told.output.statuses[-1]
    assert len(status["topics"]) == TOPICS_MAX and status["other_topics"] == 500 - TOPICS_MAX
    assert {topic.name for topic in topics[400:410]} <= {row["name"] for row in status["topics"]}
    assert len(status["subscriptions"]) == 20
    topics[400].delete()
    told.wait(1)
    assert topics[400].name not in {row["name"] for row in told.output.statuses[-1]["topics"]}


def test_subscriptions_of_a_status_are_bounded() -> None:
    told = Told(memory_limit="64MiB")
    for n in range(SUBSCRIPTIONS_MAX + 5):
        told.bay.topic("prices").subscribe(durable=f"{n:03}").close()
    told.wait(1)
    assert [row["name"] for row in told.output.statuses[-1]["subscriptions"]] == [
        f"{n:03}" for n in range(SUBSCRIPTIONS_MAX)
    ]


def test_paused_queues_are_named_however_quiet_they_are() -> None:
    told = Told(memory_limit="64MiB")
    queues = [told.bay.queue(f"queue-{n:05}") for n in range(500)]
    for busy in queues[:QUEUES_MAX]:
        busy.send(b"x")
    for quiet in queues[-PAUSED_MAX - 2 :]:
        quiet.pause()
    told.wait(1)
    names = [queue.name for queue in queues[-PAUSED_MAX - 2 :]]
    assert told.output.statuses[-1]["paused_queues"] == {"count": PAUSED_MAX + 2, "names": names[:PAUSED_MAX]}
    for quiet in queues[-PAUSED_MAX - 1 :]:
        quiet.resume()
    queues[-PAUSED_MAX - 2].delete()
    told.wait(1)
    assert told.output.statuses[-1]["paused_queues"] == {"count": 0, "names": []}


def test_deleted_queue_is_told_of_no_more() -> None:
    told = Told()
    told.bay.queue("orders").send(b"x")
    told.wait(1)
    told.bay.queue("orders").delete()
    told.wait(1)
    assert told.output.statuses[-1]["queues"] == []


def test_status_that_cannot_be_written_fails_alone_and_is_a_problem() -> None:
    told = Told()
    told.output.error = OSError(28, "No space left on device")
    told.wait(1)
    health = told.bay.health()
    assert not health.ok and health.problems == (
        "status fails, 1 times so far: OSError: [Errno 28] No space left on device",
    )
    told.output.error = None
    told.wait(60)
    assert told.bay.health() == Health(True, ())
    assert told.output.statuses[-1]["health"]["ok"] or told.output.statuses[-1]["failing"]


def test_no_interval_writes_no_status() -> None:
    told = Told(status_interval_seconds=None)
    told.wait(10)
    assert told.output.statuses == []


def test_closed_store_has_no_status_and_is_not_well() -> None:
    told = Told()
    told.wait(1)
    told.bay.close()
    assert told.output.is_removed and told.bay.health() == Health(False, ("the store is closed",))


def test_failed_store_is_not_well() -> None:
    told = Told(sync="always")
    queue = told.bay.queue("orders")
    told.disk.fail("sync", 1, errno.EIO)
    with pytest.raises(StoreFailed):
        queue.send(b"x")
    [problem] = told.bay.health().problems
    assert "refuses further work" in problem


@pytest.mark.parametrize("seconds", [0, 0.5, -1, True, "1", float("nan")])
def test_interval_below_a_second_is_refused(seconds: Any) -> None:
    with pytest.raises(forebay.SettingsError):
        Settings(status_interval_seconds=seconds)


def test_status_names_the_consumers_with_most_to_do_and_explains_the_busiest_queue() -> None:
    told = Told(memory_limit="64MiB")
    queue = told.bay.queue("orders")
    queue.send_many(Message(b"x" * 100, headers={"n": n}) for n in range(40))
    idle = [queue.subscribe(prefetch=0, selector="n < 0") for _ in range(CONSUMERS_MAX + 5)]
    consumer = queue.subscribe(prefetch=7)
    assert len(consumer.take(7)) == 7
    told.wait(1)
    status = told.output.statuses[-1]
    assert len(status["consumers"]) == CONSUMERS_MAX < len(idle)
    [busy] = [row for row in status["consumers"] if row["in_flight"]]
    assert (busy["queue"], busy["prefetch"], busy["in_flight"], busy["selector"]) == ("orders", 7, 7, None)
    assert {row["selector"] for row in status["consumers"]} == {None, "n<0"}
    assert status["explain"].startswith("0:orders has 40 messages")
    for held in (consumer, *idle):
        held.close()
    queue.purge()
    told.wait(1)
    status = told.output.statuses[-1]
    assert status["consumers"] == [] and status["explain"].startswith("Memory: ")


def test_status_names_no_consumer_of_a_crowd() -> None:
    told = Told(memory_limit="64MiB")
    crowd, few = told.bay.queue("crowd"), told.bay.queue("few")
    consumers = [crowd.subscribe(prefetch=0) for _ in range(CROWD + 1)]
    consumers += [few.subscribe(prefetch=0) for _ in range(2)]
    told.wait(1)
    assert [row["queue"] for row in told.output.statuses[-1]["consumers"]] == ["few", "few"]
    assert told.output.row("crowd")["consumers"] == CROWD + 1


def test_status_tells_the_live_share_of_data_logs_in_a_bounded_number_of_rows() -> None:
    told = Told(max_file_length="1MiB")
    queue = told.bay.queue("orders")
    queue.send_many(Message(bytes(10_000)) for _ in range(300))
    told.wait(1)
    rows = told.output.statuses[-1]["data_logs"]
    assert len(rows) == 3 and all(row["first"] == row["last"] for row in rows)
    assert all(0.9 < row["live_bytes"] / row["bytes"] <= 1 for row in rows)
    consumer = queue.subscribe(prefetch=150)
    while queue.depth > 150:
        consumer.ack(consumer.take(queue.depth - 150))
        told.bay.step()
    told.wait(1)
    assert sum(row["live_bytes"] for row in told.output.statuses[-1]["data_logs"]) == 150 * 10_000
    many = list(data_log_rows([(number, 10, number % 2) for number in range(1, 1_001)]))
    assert len(many) == SQUARES_MAX and many[0] == {"first": 1, "last": 5, "bytes": 50, "live_bytes": 3}
    assert sum(row["bytes"] for row in many) == 10_000 and not list(data_log_rows([]))


def test_explanation_of_a_status_looks_at_no_crowd_in_flight() -> None:
    told = Told(memory_limit="64MiB")
    queue = told.bay.queue("orders")
    queue.send_many(Message(b"x") for _ in range(IN_FLIGHT_MAX + 1))
    consumer = queue.subscribe(prefetch=10_000)
    while consumer.statistics().in_flight <= IN_FLIGHT_MAX:
        assert consumer.take(10_000)
    told.wait(1)
    assert told.output.statuses[-1]["explain"].startswith("Memory: ")


# The file.


def test_file_is_replaced_as_a_whole_and_for_its_owner_alone(tmp_path: Path) -> None:
    file = StatusFile(str(tmp_path))
    for content in (b"one", b"two"):
        file.write(content)
        assert read_status(str(tmp_path)) == content
    assert [path.name for path in tmp_path.iterdir()] == ["status.json"]
    assert (tmp_path / "status.json").stat().st_mode & 0o777 == 0o600
    file.remove()
    file.remove()
    assert not list(tmp_path.iterdir()) and read_status(str(tmp_path)) is None


def test_two_threads_that_write_it_at_once_do_not_mix_what_they_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, write = StatusFile(str(tmp_path)), os.write
    has_written = threading.Event()

    def write_longer() -> None:
        file.write(b"a longer one")
        has_written.set()

    other = threading.Thread(target=write_longer)

    def write_while_another_begins(descriptor: int, content: bytes) -> int:
        if threading.current_thread() is not other:
            other.start()
            assert not has_written.wait(0.05), "it waits until this one has replaced the file"
        return write(descriptor, content)

    monkeypatch.setattr(os, "write", write_while_another_begins)
    file.write(b"one")
    other.join()
    assert read_status(str(tmp_path)) == b"a longer one"


def test_link_in_its_place_is_neither_read_nor_written_through(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"mine")
    (tmp_path / "status.json").symlink_to(victim)
    (tmp_path / "status.json.new").symlink_to(victim)
    assert read_status(str(tmp_path)) is None
    with pytest.raises(OSError, match="symbolic links"):
        StatusFile(str(tmp_path)).write(b"x")
    assert victim.read_bytes() == b"mine"


def test_file_that_is_too_large_is_none_of_ours(tmp_path: Path) -> None:
    (tmp_path / "status.json").write_bytes(bytes(STATUS_BYTES_MAX + 1))
    assert read_status(str(tmp_path)) is None


def test_status_that_takes_long_comes_less_often() -> None:
    told = Told()
    write = told.output.write

    def write_slowly(content: bytes) -> None:
        told.clock.advance(0.05)
        write(content)

    told.output.write = write_slowly  # type: ignore[method-assign]
    for _ in range(40):
        told.wait(1)
    assert 7 <= len(told.output.statuses) <= 9
    assert told.output.statuses[-1]["interval_seconds"] == pytest.approx(5)
