"""Loading in bulk: Spark brings what its twin brings, once, whatever of it is killed; bad rows bring nothing."""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
import threading
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from pipeline_stores import messages_in

import forebay
from forebay import SettingsError
from forebay.pipeline.loading import LoadReport, lines_of, load, load_local
from forebay.store.disk.layout import IMPORT
from forebay.store.inspect.facts import headers_text
from forebay.store.message import HeaderValue

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KILLS = 8
SOAK_KILLS = 200

ROWS: list[dict[str, Any]] = [
    {"destination": "orders", "body": "text"},
    {"destination": "orders", "body": b"\x00\xff", "headers": {"region": "eu", "kg": 1, "raw": b"\xff"}},
    {"destination": "prices", "body": b"", "priority": 9, "message_id": "mine", "timestamp": 5},
    {"destination": "prices", "body": b"x" * 300_000, "timestamp": datetime(2026, 1, 1, tzinfo=UTC)},
]


def taken_from(directory: Path) -> list[str]:
    """All that is delivered after an open, in any order, without the ids that a store generates."""
    found = []
    with forebay.open(directory, memory_limit="16MiB", sync="never") as bay:
        for name in bay.destinations():
            with bay.queue(name).subscribe(prefetch=0) as consumer:
                while taken := consumer.take(1_000_000):
                    for one in taken:
                        own_id = one.id if one.id.startswith("id-") else None
                        found.append(repr((name, one.body, one.headers, one.priority, one.timestamp, own_id)))
    return sorted(found)


def many(count: int, seed: int = 0) -> list[dict[str, Any]]:
    random = Random(seed)
    return [
        {
            "destination": random.choice(("orders", "prices", "audit")),
            "body": b"%d:" % n + random.randbytes(random.choice((0, 50, 2_000))),
            "headers": {"n": str(n)},
            "priority": random.choice((4, 4, 9)),
            "message_id": random.choice((None, f"id-{n}")),
            "timestamp": random.choice((5, 5, n)),
        }
        for n in range(count)
    ]


# ---------------------------------------------------------------------- the twin


def test_rows_are_pending_at_the_next_open_with_all_that_they_said(tmp_path: Path) -> None:
    report = load_local(ROWS, tmp_path, load_id="day-1")
    assert (report.state, report.messages, report.parts) == ("published", 4, 1)
    found = messages_in(tmp_path)
    assert [message.body for _, message in found] == [b"text", b"\x00\xff", b"", b"x" * 300_000]
    assert found[1][1].headers == {"region": "eu", "kg": 1, "raw": b"\xff"}
    assert (found[2][1].message_id, found[2][1].priority) == ("mine", 9)


def test_a_group_comes_along(tmp_path: Path) -> None:
    load_local([{"destination": "orders", "body": "a", "group": "tea"}], tmp_path, load_id="day-1")
    with forebay.open(tmp_path, memory_limit="16MiB") as bay, bay.queue("orders").subscribe() as consumer:
        (delivery,) = consumer.take()
        assert delivery.group == "tea"
    with pytest.raises(SettingsError, match="row 1: a group must be"):
        load_local([{"destination": "orders", "body": "a", "group": ""}], tmp_path, load_id="day-2")


def test_json_lines_say_the_same_as_rows(tmp_path: Path) -> None:
    lines = [
        b'{"destination": "orders", "body": "text"}\n',
        b'{"destination": "orders", "body": {"base64": "AP8="}, "headers": {"kg": 1, "raw": {"base64": "/w=="}}}\n',
    ]
    (tmp_path / "file.jsonl").write_bytes(b"".join(lines))
    load_local(lines_of(tmp_path / "file.jsonl"), tmp_path, load_id="day-1")
    found = messages_in(tmp_path)
    assert [message.body for _, message in found] == [b"text", b"\x00\xff"]
    assert found[1][1].headers == {"kg": 1, "raw": b"\xff"}


def test_a_load_id_counts_once_before_and_after_the_take_over(tmp_path: Path) -> None:
    states = [load_local(ROWS, tmp_path, load_id="day-1").state for _ in range(2)]
    assert len(messages_in(tmp_path)) == 4
    states.append(load_local(ROWS, tmp_path, load_id="day-1").state)
    assert states == ["published", "waiting", "taken"]
    assert len(messages_in(tmp_path)) == 4
    load_local(ROWS, tmp_path, load_id="day-2")
    assert len(messages_in(tmp_path)) == 8


def test_a_load_beside_an_open_store_comes_with_the_next_open(tmp_path: Path) -> None:
    with forebay.open(tmp_path, memory_limit="16MiB") as bay:
        bay.queue("orders").send(b"live")
        load_local(ROWS, tmp_path, load_id="day-1")
        assert bay.queue("orders").depth == 1
    assert len(messages_in(tmp_path)) == 5


def test_of_two_loads_at_once_with_one_id_one_counts(tmp_path: Path) -> None:
    reports: list[LoadReport] = []
    threads = [
        threading.Thread(target=lambda: reports.append(load_local(many(300), tmp_path, load_id="day-1")))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(report.state for report in reports) == ["published", "waiting", "waiting", "waiting"]
    assert len(messages_in(tmp_path)) == 300
    assert not [path for path in (tmp_path / "localhost" / IMPORT).iterdir() if path.name.startswith("part")]


def nested(depth: int) -> Any:
    """Lists inside each other."""
    return [nested(depth - 1)] if depth > 1 else []


NESTED: list[HeaderValue] = [
    b"\xff",
    math.inf,
    [b"\xff", {"raw": b"\xff", "list": [-math.inf]}],
    {"base64": "no bytes"},
    {"float": "inf"},
    {"object": {"float": "inf"}},
    {"float": 1.5, "n": 2},
    {},
]


def test_what_json_has_no_form_for_comes_back_from_what_a_dump_writes(tmp_path: Path) -> None:
    headers = {f"n{n}": value for n, value in enumerate(NESTED)}
    row = {"destination": "orders", "body": "tea", "headers": headers_text(headers)}
    load_local([row], tmp_path, load_id="day-1")
    assert messages_in(tmp_path)[0][1].headers == headers


@pytest.mark.parametrize(
    "row, said",
    [
        ({"destination": "", "body": ""}, "non-empty"),
        ({"destination": None, "body": ""}, "non-empty"),
        ({"destination": "a", "body": None}, "body must be text or bytes, not nothing"),
        ({"destination": "a", "body": 7}, "not int"),
        ({"destination": "a", "body": "", "priority": 10}, "from 0 to 9"),
        ({"destination": "a", "body": "", "priority": True}, "from 0 to 9"),
        ({"destination": "a", "body": "", "headers": "{"}, "not JSON"),
        ({"destination": "a", "body": "", "headers": [1]}, "must be an object"),
        ({"destination": "a", "body": "", "headers": {"n": nested(33)}}, "32 deep"),
        ({"destination": "a", "body": "", "timestamp": -1}, "timestamp"),
        ({"destination": "a", "body": "", "message_id": 5}, "message id"),
        ({"destination": "a", "body": "\ud800"}, "surrogate"),
        (b"[1]", "not a JSON object"),
        (b"{", "not JSON"),
        (b'{"destination": "a"}', "needs the column 'body'"),
        (b'{"destination": "a", "body": "", "colour": 1}', "unknown column 'colour'"),
        (b'{"destination": "a", "body": {"base64": "?"}}', "base64"),
    ],
)
def test_a_row_that_is_no_message_is_named_and_nothing_comes(tmp_path: Path, row: Any, said: str) -> None:
    with pytest.raises(SettingsError, match=f"row 2: .*{said}") as caught:
        load_local([ROWS[0], row], tmp_path, load_id="day-1")
    assert "\n" not in str(caught.value)
    assert messages_in(tmp_path) == []


def test_what_cannot_be_loaded_into_is_said(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="is not a directory"):
        load_local(ROWS, tmp_path / "missing", load_id="day-1")
    with pytest.raises(SettingsError, match="load_id"):
        load_local(ROWS, tmp_path, load_id="a/b")
    with pytest.raises(SettingsError, match="broker_name"):
        load_local(ROWS, tmp_path, load_id="a", broker_name="../x")
    with pytest.raises(SettingsError, match="can't be read"):
        load_local(lines_of(tmp_path / "none"), tmp_path, load_id="a")


# ---------------------------------------------------------------------- killed


LOADER = """
import json, sys
from forebay.pipeline.loading import load_local
with open(sys.argv[2]) as file:
    rows = [dict(row, body=row["body"].encode()) for row in json.load(file)]
print("begun", flush=True)
report = load_local(rows, sys.argv[1], load_id="day-1")
print(report.state, flush=True)
"""
TAKER = """
import sys
import forebay
print("begun", flush=True)
with forebay.open(sys.argv[1], memory_limit="16MiB", sync="never", max_file_length="64KiB") as bay:
    print("opened", flush=True)
"""


def killed_or_done(script: str, *arguments: str, after_seconds: float) -> bool:
    """Run a process and kill it that long after it said that it begins. True: it was done before."""
    process = subprocess.Popen([sys.executable, "-c", script, *arguments], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    timer = threading.Timer(after_seconds, process.kill)
    timer.start()
    process.communicate()
    timer.cancel()
    assert process.returncode in (0, -signal.SIGKILL)
    return process.returncode == 0


def kill_loads_and_opens(directory: Path, kills: int, seed: int) -> int:
    """Loads and take-overs that are killed again and again until both are done; how many kills there were."""
    random = Random(seed)
    done = 0
    life = 0
    while done < kills:
        life += 1
        home = directory / str(life)
        home.mkdir()
        rows = [
            {"destination": random.choice("abc"), "body": f"{n}:" + "x" * random.randrange(900)} for n in range(900)
        ]
        (home / "rows.json").write_text(json.dumps(rows))
        for script in (LOADER, TAKER):
            window = random.choice((0.02, 0.06))
            while not killed_or_done(
                script, str(home), str(home / "rows.json"), after_seconds=random.random() * window
            ):
                done += 1
                window *= 1.15
                if random.random() < 0.3 and script is TAKER:
                    load_local([dict(row) for row in rows], home, load_id="day-1")
        load_local([dict(row) for row in rows], home, load_id="day-1")
        found = Counter(message.body.decode() for _, message in messages_in(home))
        assert found == Counter(str(row["body"]) for row in rows), f"seed {seed}, life {life}"
    return done


def test_killed_loads_and_take_overs_lose_and_double_nothing(tmp_path: Path) -> None:
    assert kill_loads_and_opens(tmp_path, KILLS, 1) >= KILLS


@pytest.mark.soak
def test_soak_of_killed_loads_and_take_overs(tmp_path: Path) -> None:
    assert kill_loads_and_opens(tmp_path, SOAK_KILLS, 2) >= SOAK_KILLS


# ---------------------------------------------------------------------- Spark


def test_spark_brings_what_its_twin_brings(spark: SparkSession, tmp_path: Path) -> None:
    import pyarrow as pa

    rows = many(3_000)
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    fields = {"destination": pa.string(), "body": pa.binary(), "headers": pa.map_(pa.string(), pa.string())}
    fields |= {"priority": pa.int32(), "message_id": pa.string(), "timestamp": pa.int64()}
    schema = pa.schema(list(fields.items()))
    as_arrow = [row | {"headers": list(row["headers"].items())} for row in rows]
    frame = spark.createDataFrame(pa.Table.from_pylist(as_arrow, schema)).repartition(3)
    (report,) = load(spark, frame, tmp_path / "one", load_id="day-1").collect()
    assert (report["state"], report["messages"], report["parts"]) == ("published", 3_000, 3)
    load_local(rows, tmp_path / "two", load_id="day-1")
    assert taken_from(tmp_path / "one") == taken_from(tmp_path / "two")
    (again,) = load(spark, frame, tmp_path / "one", load_id="day-1").collect()
    assert again["state"] == "taken"


def test_spark_keeps_the_order_of_partitions_and_reads_structs_times_and_lines(
    spark: SparkSession, tmp_path: Path
) -> None:
    frame = spark.sql(
        "SELECT 'orders' AS destination, cast(id AS string) AS body,"
        " named_struct('n', id, 'even', id % 2 = 0) AS headers, timestamp'2026-01-01 00:00:00' AS timestamp"
        " FROM range(0, 1000, 1, 4)"
    )
    load(spark, frame, tmp_path, load_id="structs").collect()
    found = [message for _, message in messages_in(tmp_path)]
    assert [message.body for message in found] == [b"%d" % n for n in range(1000)]
    assert found[7].headers == {"n": 7, "even": False}
    (tmp_path / "file.jsonl").write_text(
        '{"destination": "lines", "body": "a"}\n{"destination": "lines", "body": "b"}\n'
    )
    load(spark, spark.read.text(str(tmp_path / "file.jsonl")), tmp_path, load_id="lines").collect()
    assert [message.body for name, message in messages_in(tmp_path) if name == "lines"] == [b"a", b"b"]


def test_spark_names_the_row_that_is_no_message_in_one_line(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.sql(
        "SELECT 'orders' AS destination, 'x' AS body, cast(id AS int) AS priority FROM range(0, 20, 1, 1)"
    )
    with pytest.raises(SettingsError, match="partition 0, row 11: priority must be") as caught:
        load(spark, frame, tmp_path, load_id="day-1")
    assert "\n" not in str(caught.value)
    with pytest.raises(SettingsError, match="needs the column 'body'"):
        load(spark, spark.sql("SELECT 'a' AS destination"), tmp_path, load_id="day-1")
    with pytest.raises(SettingsError, match="unknown column 'colour'"):
        load(spark, spark.sql("SELECT 'a' AS destination, '' AS body, 1 AS colour"), tmp_path, load_id="day-1")
    assert messages_in(tmp_path) == []
    assert not [path for path in (tmp_path / "localhost" / IMPORT).iterdir() if path.name.startswith("part")]
