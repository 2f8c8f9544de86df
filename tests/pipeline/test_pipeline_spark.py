"""What Spark answers is what one process answers, over random stores, damaged ones and live ones."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from pipeline_stores import damaged, random_stores, rows_of_batches, tree, written

import forebay
from forebay import Message, SettingsError
from forebay.store.disk.layout import data_log_name

pytest.importorskip("pyspark")

import forebay.pipeline as pipeline  # noqa: E402
from forebay.pipeline import local  # noqa: E402
from forebay.pipeline.bulk.archive import ArchiveRow, archive_local, restore_local  # noqa: E402
from forebay.pipeline.kernels.fleet import Part, Store, disk_of, find_stores, plan  # noqa: E402
from forebay.pipeline.spark.options import Options  # noqa: E402
from forebay.pipeline.spark.partitions import StorePart, packed  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MIB = 1 << 20


def fleet_of(directory: Path, seeds: range) -> Path:
    """Make directories of brokers: whole stores, and stores after kills and power cuts."""
    for n, disk in enumerate(random_stores(seeds, images_max=1)):
        written(disk, directory / str(n), f"broker-{n}")
    return directory


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fleet_of(tmp_path_factory.mktemp("fleet"), range(50, 54))


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """One broker's directory, opened twice."""
    directory = tmp_path / "kept"
    for n in range(2):
        with forebay.open(directory, memory_limit="8MiB", sync="never") as bay:
            bay.queue("orders").send_many(Message(b"body %d" % n, {"n": n}, priority=n) for _ in range(10))
    return directory


def counted(found: list[Any]) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row.values()) if isinstance(row, dict) else tuple(row) for row in found)


def glob_of(fleet: Path) -> str:
    return f"{fleet}/*"


def test_each_answer_is_that_of_one_process(spark: SparkSession, fleet: Path, tmp_path: Path) -> None:
    same_answers(spark, fleet)
    same_archives(spark, fleet, tmp_path)


@pytest.mark.soak
def test_each_answer_over_many_more_stores(spark: SparkSession, tmp_path: Path) -> None:
    fleet = fleet_of(tmp_path / "fleet", range(1000, 1060))
    same_answers(spark, fleet)
    same_archives(spark, fleet, tmp_path)


def same_answers(spark: SparkSession, fleet: Path) -> None:
    before = tree(fleet)
    everything = glob_of(fleet)
    assert len(find_stores(everything)) >= 5
    for bodies in (False, True):
        found = counted(_dicts(pipeline.facts(spark, everything, bodies=bodies, on_damage="report")))
        assert found == counted(rows_of_batches(local.facts(everything, bodies=bodies, on_damage="report")))
    assert counted(_dicts(pipeline.check(spark, everything))) == counted(list(local.check(everything)))
    blocks = [tuple(row.values()) for row in _dicts(pipeline.rebuild_index(spark, everything))]
    assert blocks == list(map(tuple, local.rebuild_index(everything))), "in another order, or others"
    pins = counted([_ageless(row) for row in _dicts(pipeline.explain_pins(spark, everything))])
    assert pins == counted([_ageless(row._asdict() | {"problem": None}) for row in local.explain_pins(everything)])
    backlog = counted([_ageless(row) for row in _dicts(pipeline.backlog(spark, everything))])
    assert backlog == counted([_ageless(row._asdict()) for row in local.backlog(everything)])
    assert sum(backlog.values()) > 6 and sum(pins.values()) > 6
    assert tree(fleet) == before


def same_archives(spark: SparkSession, fleet: Path, directory: Path) -> None:
    """Compare the archives that Spark and this process make, and the data logs restored from them."""
    by_spark, alone = directory / "spark", directory / "alone"
    rows = [ArchiveRow(**row) for row in _dicts(pipeline.archive(spark, glob_of(fleet), by_spark))]
    assert rows == archive_local(glob_of(fleet), alone)
    assert {"archived", "in use"} <= {row.state for row in rows}
    assert contents(by_spark) == contents(alone)
    restored = [ArchiveRow(**row) for row in _dicts(pipeline.restore(spark, by_spark, directory / "spark-again"))]
    assert restored == restore_local(alone, directory / "alone-again")
    assert contents(directory / "spark-again") == contents(directory / "alone-again")


def contents(directory: Path) -> dict[Path, bytes]:
    return {path.relative_to(directory): path.read_bytes() for path in directory.rglob("*.*") if path.is_file()}


def _dicts(frame: DataFrame) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = frame.toArrow().to_pylist()
    return found


def _ageless(row: dict[str, Any]) -> dict[str, Any]:
    """Without how long ago that was, which is another a moment later, and the problem, which only reports have."""
    return {name: value for name, value in row.items() if name not in ("oldest_seconds", "problem")}


def test_source_is_found_by_its_name_in_sql_too(spark: SparkSession, kept: Path) -> None:
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW named USING forebay OPTIONS (path '{kept}')")
    by_kind = "SELECT kind, count(*), max(priority) FROM named WHERE data_log = 2 AND kind IN ('message', 'state') "
    assert [tuple(row) for row in spark.sql(by_kind + "GROUP BY kind ORDER BY kind").collect()] == [
        ("message", 10, 1),
        ("state", 1, None),
    ]


@pytest.mark.parametrize("is_allowed", ["true", "false"])
def test_conditions_give_the_same_rows_wherever_they_are_applied(
    spark: SparkSession, fleet: Path, is_allowed: str
) -> None:
    spark.conf.set("spark.sql.python.filterPushdown.enabled", is_allowed)
    try:
        frame = pipeline.facts(spark, glob_of(fleet), on_damage="report")
        condition = "kind = 'message' AND priority >= 4 AND data_log > 1 AND sequence IS NOT NULL"
        found = [row for row in _dicts(frame.where(condition).select("message_id", "data_log"))]
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    expected = [
        {"message_id": row["message_id"], "data_log": row["data_log"]}
        for row in rows_of_batches(local.facts(glob_of(fleet), on_damage="report"))
        if row["kind"] == "message" and row["priority"] >= 4 and row["data_log"] > 1 and row["sequence"] is not None
    ]
    assert counted(found) == counted(expected) and expected


def test_schema_chooses_columns_and_names_those_there_are_not(spark: SparkSession, kept: Path) -> None:
    reader = spark.read.format("forebay")
    frame = reader.schema("body binary, sequence long").load(str(kept)).where("body IS NOT NULL")
    assert counted(_dicts(frame)) == counted([(b"body %d" % n, s) for n in range(2) for s in range(10)])
    with pytest.raises(Exception, match="column weight double is not one of"):
        spark.read.format("forebay").schema("weight double").load(str(kept)).collect()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"tabel": "facts"}, "unknown option 'tabel'"),
        ({"table": "orders"}, "there are facts, pins, backlog, index, examined"),
        ({"bodies": "maybe"}, "bodies='maybe' must be false or true"),
        ({"partitionBytes": "big"}, "partitionbytes='big' is not a size"),
        ({"parallelism": "0"}, "must be a number above 0"),
    ],
)
def test_wrong_options_are_named(options: dict[str, str], problem: str) -> None:
    with pytest.raises(SettingsError, match=problem):
        Options.parse({"path": "data"} | options)


def test_damage_is_refused_with_its_place_or_reported_as_a_row(spark: SparkSession, kept: Path) -> None:
    path = kept / "localhost" / data_log_name(1)
    image = bytearray(path.read_bytes())
    image[330] ^= 1
    path.write_bytes(image)
    with pytest.raises(Exception, match="localhost: data-1.log at offset "):
        pipeline.facts(spark, str(kept)).collect()
    [found] = _dicts(pipeline.facts(spark, str(kept), on_damage="report").where("problem IS NOT NULL"))
    assert (found["kind"], found["data_log"]) == ("damaged", 1)
    [place] = _dicts(pipeline.check(spark, str(kept)))
    assert (place["broker"], place["data_log"], place["offset"]) == ("localhost", 1, found["offset"])
    with pytest.raises(Exception, match="localhost: data-1.log at offset .* goes on with the others"):
        pipeline.backlog(spark, str(kept)).collect()
    [row] = _dicts(pipeline.backlog(spark, str(kept), on_damage="report"))
    assert row["problem"].startswith("data-1.log at offset ") and row["messages"] is None


def test_data_log_that_is_missing_is_named(spark: SparkSession, kept: Path) -> None:
    with forebay.open(kept, memory_limit="8MiB", sync="never"):
        pass
    (kept / "localhost" / data_log_name(2)).unlink()
    with pytest.raises(Exception, match="data-2.log at offset 0: the data log is missing, and was not dropped"):
        pipeline.facts(spark, str(kept)).collect()
    rows = _dicts(pipeline.facts(spark, str(kept), on_damage="report").where("kind IN ('damaged', 'message')"))
    assert Counter(row["kind"] for row in rows) == {"message": 10, "damaged": 1}


def test_data_log_deleted_behind_the_plan_is_named(kept: Path) -> None:
    from forebay.pipeline.kernels.batches import Request, batches
    from forebay.pipeline.kernels.schema import columns

    [store] = find_stores(str(kept))
    request = Request(store.broker, columns())
    parts = plan(disk_of(store))
    shutil.rmtree(kept / "localhost" / "journal")
    with pytest.raises(pipeline.NotRead, match="was deleted after the reading was planned"):
        list(batches(disk_of(store), request, parts[0]))


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("missing", "does not exist"),
        ("file", "is not a directory"),
        ("empty", "is not a forebay directory"),
        ("none-*", "matches no forebay directory"),
    ],
)
def test_what_is_no_directory_is_said_in_one_line(spark: SparkSession, tmp_path: Path, name: str, problem: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    with pytest.raises(SettingsError, match=problem) as raised:
        pipeline.facts(spark, str(tmp_path / name))
    assert "\n" not in str(raised.value)


def test_live_store_is_read_beside_its_owner(spark: SparkSession, tmp_path: Path) -> None:
    with forebay.open(tmp_path, memory_limit="8MiB", sync="never") as bay:
        orders = bay.queue("orders")
        orders.send_many(Message(b"x" * 100) for _ in range(500))
        frame = pipeline.facts(spark, str(tmp_path)).where("kind = 'message'")
        assert frame.count() == 500
        [row] = _dicts(pipeline.backlog(spark, str(tmp_path)))
        assert (row["destination"], row["messages"], row["bytes"]) == ("orders", 500, orders.depth_bytes)
        assert pipeline.check(spark, str(tmp_path)).count() == 0
        bay.checkpoint()


def test_data_logs_are_packed_evenly() -> None:
    store = Store("localhost", "root")
    found = [(store, Part(n, 32 * MIB)) for n in range(1, 129)]
    options = Options(("root",))
    sizes = [_bytes(one) for one in packed(found, options)]
    assert sizes == [512 * MIB] * 8
    assert [_bytes(one) for one in packed(found[:40], options)] == [320 * MIB] * 4
    assert [_bytes(one) for one in packed(found[:4], options)] == [64 * MIB] * 2
    assert [_bytes(one) for one in packed(found[:1], options)] == [32 * MIB]
    assert packed([], options) == []


def _bytes(partition: Any) -> int:
    assert isinstance(partition, StorePart)
    return sum(part.size_bytes for _, parts in partition.stores for part in parts)


def test_damaged_stores_never_give_another_answer_than_one_process(spark: SparkSession, tmp_path: Path) -> None:
    random = Random(3)
    for n, disk in enumerate(random_stores(range(60, 62), images_max=1)):
        written(damaged(disk, random), tmp_path / str(n), f"broker-{n}")
    everything = glob_of(tmp_path)
    found = counted(_dicts(pipeline.facts(spark, everything, on_damage="report")))
    assert found == counted(rows_of_batches(local.facts(everything, on_damage="report")))
    assert counted(_dicts(pipeline.check(spark, everything))) == counted(list(local.check(everything)))
    backlog = _dicts(pipeline.backlog(spark, everything, on_damage="report"))
    alone = [row._asdict() for row in local.backlog(everything, on_damage="report")]
    assert counted(list(map(_ageless, backlog))) == counted(list(map(_ageless, alone)))
    assert [row["problem"] for row in backlog if row["problem"]] == [row["problem"] for row in alone if row["problem"]]
