"""The stream gives each row once and in order, across data logs, restarts, failures and a broker that goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from pipeline_stores import rows_of_batches

import forebay
from forebay import Forebay, Message, SettingsError
from forebay.store.environment.clock import SystemClock
from forebay.store.maintenance.leases import read_leases

pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes  # noqa: E402

from forebay.pipeline import local
from forebay.pipeline.errors import NotRead
from forebay.pipeline.kernels.fleet import disk_of, find_stores  # noqa: E402
from forebay.pipeline.kernels.schema import columns  # noqa: E402
from forebay.pipeline.spark.options import StreamOptions
from forebay.pipeline.spark.questions import register
from forebay.pipeline.spark.stream import ForebayStream
from forebay.store.inspect.facts import ScanOptions  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Rows = list[dict[str, Any]]


@pytest.fixture
def bay(tmp_path: Path) -> Iterator[Forebay]:
    with forebay.open(
        tmp_path / "data", memory_limit="8MiB", sync="never", max_file_length="64KiB", background=False
    ) as opened:
        yield opened


def reader(directory: Path, *, reports: bool = False, **options: str) -> ForebayStream:
    asked = columns(problems=reports)
    return ForebayStream((str(directory),), asked, ScanOptions(), reports, StreamOptions.parse(options))


def read_between(stream: ForebayStream, start: Any, end: Any) -> Rows:
    return [row for partition in stream.partitions(start, end) for row in rows_of_batches(stream.read(partition))]


def everything(directory: Path) -> Rows:
    return rows_of_batches(local.facts(str(directory)))


def in_order(rows: Rows) -> Rows:
    return sorted(rows, key=lambda row: (row["data_log"], row["offset"]))


def send(bay: Forebay, count: int, size: int = 500) -> None:
    bay.queue("orders").send_many(Message(bytes(size)) for _ in range(count))


def consume(bay: Forebay, count: int) -> None:
    with bay.queue("orders").subscribe() as consumer:
        consumer.ack(consumer.take(count))


def test_batches_of_any_size_are_all_rows_once(tmp_path: Path, bay: Forebay) -> None:
    random = Random(1)
    stream = reader(tmp_path / "data")
    offset = stream.initialOffset()
    batches: list[tuple[Any, Any, Rows]] = []
    for step in range(60):
        for _ in range(random.randrange(4)):
            random.choice((send, consume))(bay, random.randrange(1, 30))
        if step % 20 == 19:
            bay.topic(f"prices-{step}").subscribe(durable="audit").close()
        limit = ReadAllAvailable() if random.random() < 0.3 else ReadMaxBytes(random.choice((1, 1000, 20_000, 200_000)))
        end = stream.latestOffset(offset, limit)
        batches.append((offset, end, read_between(stream, offset, end)))
        offset = end
    end = stream.latestOffset(offset, ReadAllAvailable())
    batches.append((offset, end, read_between(stream, offset, end)))
    assert stream.latestOffset(end, ReadAllAvailable()) == end
    found = [row for _, _, rows in batches for row in rows]
    assert in_order(found) == found == everything(tmp_path / "data")
    assert len({row["data_log"] for row in found}) > 5
    for start, end, rows in batches:
        assert read_between(reader(tmp_path / "data"), start, end) == rows


def test_batch_is_bounded_by_its_limit(tmp_path: Path, bay: Forebay) -> None:
    for _ in range(300):
        bay.queue("orders").send(bytes(936))
    stream = reader(tmp_path / "data", maxBytesPerTrigger="10000")
    limit = stream.getDefaultReadLimit()
    offset = stream.initialOffset()
    sizes = []
    while (end := stream.latestOffset(offset, limit)) != offset:
        sizes.append(sum(row["length"] for row in read_between(stream, offset, end)))
        offset = end
    assert max(sizes[1:]) <= 10_000 and len(sizes) > 30


def test_available_now_ends_where_the_journal_ended(tmp_path: Path, bay: Forebay) -> None:
    send(bay, 100)
    stream = reader(tmp_path / "data")
    stream.prepareForTriggerAvailableNow()
    before = everything(tmp_path / "data")
    send(bay, 400)
    offset, found = stream.initialOffset(), list[dict[str, Any]]()
    while (end := stream.latestOffset(offset, ReadMaxBytes(20_000))) != offset:
        found += read_between(stream, offset, end)
        offset = end
    assert found == before


def test_latest_begins_behind_what_is_there(tmp_path: Path, bay: Forebay) -> None:
    send(bay, 100)
    stream = reader(tmp_path / "data", startingOffset="latest")
    offset = stream.initialOffset()
    assert stream.latestOffset(offset, ReadAllAvailable()) == offset
    consume(bay, 3)
    [row] = read_between(stream, offset, stream.latestOffset(offset, ReadAllAvailable()))
    assert (row["kind"], row["messages"], row["destination"]) == ("ack", 3, "orders")


def test_lease_keeps_what_is_not_committed(tmp_path: Path, bay: Forebay) -> None:
    stream = reader(tmp_path / "data", lease="audit")
    offset = stream.initialOffset()
    send(bay, 500)
    consume(bay, 500)
    bay.cleanup()
    kept = everything(tmp_path / "data")
    assert kept[0]["data_log"] == 1
    end = stream.latestOffset(offset, ReadAllAvailable())
    assert [row["kind"] for row in read_between(stream, offset, end)].count("message") == 500
    assert bay.explain(1).causes[0].reason == "lease"
    assert not bay.cleanup().deleted
    stream.commit(end)
    assert bay.cleanup().deleted
    [lease] = read_leases(disk_of(find_stores(str(tmp_path / "data"))[0]), SystemClock().time_ms())
    assert lease.name == "audit" and lease.data_log == end[next(iter(end))]["data_log"]
    [row] = local.leases(str(tmp_path / "data"))
    assert (row.lease, row.data_log) == ("audit", lease.data_log) and row.behind_bytes is not None


def test_what_was_deleted_unread_is_named(tmp_path: Path, bay: Forebay) -> None:
    stream = reader(tmp_path / "data")
    offset = stream.initialOffset()
    send(bay, 500)
    consume(bay, 500)
    bay.cleanup()
    end = stream.latestOffset(offset, ReadAllAvailable())
    with pytest.raises(NotRead, match="data-1.log at offset 0: the data log was deleted"):
        read_between(stream, offset, end)
    reporting = reader(tmp_path / "data", reports=True)
    rows = read_between(reporting, offset, end)
    assert rows[0]["kind"] == "damaged" and "deleted" in rows[0]["problem"]


def test_wrong_options_of_a_stream_are_named() -> None:
    for options, problem in (
        ({"lease": "a/b"}, "lease='a/b'"),
        ({"leaseSeconds": "5"}, "name one with lease"),
        ({"startingOffset": "newest"}, "must be earliest or latest"),
        ({"maxBytesPerTrigger": "0"}, "maxbytespertrigger"),
    ):
        with pytest.raises(SettingsError, match=problem):
            StreamOptions.parse(options)


class Sink:
    """Keeps what each batch brought, by its number; fails where it is told to."""

    def __init__(self, fails: Callable[[int], bool] = lambda batch: False) -> None:
        self.batches: dict[int, list[tuple[Any, ...]]] = {}
        self._fails = fails

    def __call__(self, frame: DataFrame, batch: int) -> None:
        found = [tuple(row) for row in frame.select("data_log", "offset", "kind", "sequence").collect()]
        assert self.batches.get(batch, found) == found, "a batch came again with other rows"
        self.batches[batch] = found
        if self._fails(batch):
            raise RuntimeError("the sink fails")

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        return [row for batch in sorted(self.batches) for row in self.batches[batch]]


def test_query_goes_on_where_it_was_after_a_failure(spark: SparkSession, tmp_path: Path, bay: Forebay) -> None:
    register(spark)
    failed: list[int] = []

    def fails_once(batch: int) -> bool:
        if batch == 1 and not failed:
            failed.append(batch)
            return True
        return False

    sink = Sink(fails_once)

    def run() -> None:
        source = spark.readStream.format("forebay").option("lease", "audit").option("maxBytesPerTrigger", "120000")
        query = (
            source.load(str(tmp_path / "data"))
            .writeStream.foreachBatch(sink)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    send(bay, 600)
    with pytest.raises(Exception, match="the sink fails"):
        run()
    consume(bay, 600)
    bay.cleanup()
    run()
    send(bay, 10)
    run()
    expected = [(row["data_log"], row["offset"], row["kind"], row["sequence"]) for row in everything(tmp_path / "data")]
    last = expected[0]
    assert failed == [1] and len(sink.batches) >= 3
    assert sorted(sink.rows)[-len(expected) :] == sorted(expected)
    assert sum(row[2] == "message" for row in sink.rows) == 610
    assert last in sink.rows
