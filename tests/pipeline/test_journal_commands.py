"""`forebay verify`, `explain`, `dump` and `plan` of many: globs, JSON, and Spark giving the answers of one process."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from command_streams import json_rows

import forebay
from forebay import Message
from forebay.__main__ import main
from forebay.store.disk.layout import data_log_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    """Three brokers' directories: "a-1" and "a-2", whole, and "b-1", of which a record is damaged."""
    with forebay.open(tmp_path / "a-1", memory_limit="8MiB", sync="never") as bay:
        bay.queue("orders").send_many(Message(b"tea", {"n": n}) for n in range(10))
    for name in ("a-2", "b-1"):
        shutil.copytree(tmp_path / "a-1", tmp_path / name)
    for name in ("a-1", "a-2", "b-1"):
        (tmp_path / name / "localhost").rename(tmp_path / name / f"broker-{name}")
    path = tmp_path / "b-1" / "broker-b-1" / data_log_name(1)
    image = bytearray(path.read_bytes())
    image[200] ^= 1
    path.write_bytes(image)
    (tmp_path / "notes").mkdir()
    return tmp_path


@pytest.fixture
def traces(tmp_path: Path) -> list[str]:
    """Two traces of real traffic, and a file that is none."""
    for name in ("one", "two"):
        with forebay.open(tmp_path / "data", memory_limit="8MiB", sync="never", record_trace=tmp_path / name) as bay:
            queue = bay.queue(name)
            queue.send_many(Message(bytes(1000)) for _ in range(50))
            with queue.subscribe() as consumer:
                consumer.ack(consumer.take(50, timeout=10.0))
    (tmp_path / "noise").write_bytes(bytes(range(256)))
    return [str(tmp_path / name) for name in ("noise", "one", "two")]


class Unstopped:
    """A session that a command may stop, and that goes on for the other tests."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def __getattr__(self, name: str) -> Any:
        return getattr(self._spark, name)

    def stop(self) -> None:
        pass


@pytest.fixture
def shared(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forebay.pipeline.spark.session.session", lambda master: Unstopped(spark))


def test_glob_names_all_stores_that_it_matches(fleet: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", f"{fleet}/a-*"]) == 0
    first, second, last = capsys.readouterr().out.splitlines()
    assert first.startswith("broker-a-1: 1 data log, ") and second.startswith("broker-a-2: 1 data log, ")
    assert last == "no damage"
    assert main(["verify", f"{fleet}/*"]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "1 damaged place"
    assert main(["verify", f"{fleet}/c-*"]) == 2
    assert "matches no forebay directory" in capsys.readouterr().err


def test_directory_named_twice_is_read_once(fleet: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("verify", "dump", "queues"):
        assert main([command, f"{fleet}/a-1"]) == 0
        once = capsys.readouterr().out
        assert main([command, f"{fleet}/a-1", f"{fleet}/a-1/broker-a-1", f"{fleet}/a-[1]"]) == 0
        assert capsys.readouterr().out == once


def test_dump_and_queues_take_several_directories(fleet: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dump", "--json", f"{fleet}/a-1", f"{fleet}/a-2"]) == 0
    assert {row["broker"] for row in json_rows(capsys)} == {"broker-a-1", "broker-a-2"}
    assert main(["queues", "--json", f"{fleet}/a-*"]) == 0
    assert [(row["broker"], row["depth"]) for row in json_rows(capsys)] == [("broker-a-1", 10), ("broker-a-2", 10)]
    assert main(["health", "--json", f"{fleet}/a-*"]) == 1
    assert [row["ok"] for row in json_rows(capsys)] == [False, False]


def test_verify_prints_damaged_places_as_json(fleet: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "--json", f"{fleet}/a-*"]) == 0
    assert json_rows(capsys) == []
    assert main(["verify", "--json", f"{fleet}/*"]) == 1
    [row] = json_rows(capsys)
    assert (row["broker"], row["data_log"]) == ("broker-b-1", 1) and row["problem"]


def test_explain_prints_reasons_as_json_of_all_or_one_data_log(fleet: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--json", f"{fleet}/a-*"]) == 0
    found = {(row["broker"], row["data_log"], row["holder"]) for row in json_rows(capsys)}
    assert {("broker-a-1", 1, "0:orders"), ("broker-a-2", 1, "0:orders")} <= found
    assert main(["explain", "--json", f"{fleet}/a-*", "1"]) == 0
    assert {row["data_log"] for row in json_rows(capsys)} == {1}
    assert main(["explain", f"{fleet}/a-*", "1"]) == 0
    assert capsys.readouterr().out.count("because 0:orders has 10 messages") == 2
    assert main(["explain", f"{fleet}/a-1", "99999999999"]) == 2
    assert "is not the id of a data log" in capsys.readouterr().err


def test_explain_goes_on_where_damage_is_to_be_reported(fleet: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", f"{fleet}/*"]) == 1
    assert capsys.readouterr().out == ""
    assert main(["explain", "--on-damage", "report", f"{fleet}/*"]) == 1
    printed = capsys.readouterr().out
    assert "broker-a-2: data-1.log  pending_message  0:orders: 10 messages, " in printed
    assert "broker-b-1: data-1.log at offset " in printed


def test_plan_of_several_traces_goes_on_behind_one_that_cannot_be_played(
    traces: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", *traces, "--limits", "4MiB,16MiB", "--json"]) == 1
    failed, *played = json_rows(capsys)
    assert failed["trace"] == traces[0] and failed["problem"]
    assert [[row["limit_bytes"] for row in found["limits"]] for found in played] == [[4 << 20, 16 << 20]] * 2
    assert main(["plan", *traces[1:], "--limits", "4MiB"]) == 0
    assert [line for line in capsys.readouterr().out.splitlines() if line.endswith(":")] == [
        f"{traces[1]}:",
        f"{traces[2]}:",
    ]
    assert main(["plan", *traces, "--svg", "x.svg"]) == 2


@pytest.mark.usefixtures("shared")
def test_spark_answers_as_one_process_does(fleet: Path, traces: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    def answers(*arguments: str) -> tuple[int, list[dict[str, Any]]]:
        code = main([*arguments, "--json"])
        found = json_rows(capsys)
        for row in found:
            row.pop("oldest_seconds", None)
        return code, sorted(found, key=str)

    for question in (["verify", f"{fleet}/*"], ["explain", f"{fleet}/a-*"]):
        assert answers(*question, "--engine", "spark") == answers(*question)
    assert main(["verify", f"{fleet}/*", "--engine", "spark"]) == 1
    place, last = capsys.readouterr().out.splitlines()
    assert place.startswith("broker-b-1: data-1.log at offset ") and last == "1 damaged place"
    assert main(["explain", f"{fleet}/a-*", "--engine", "spark"]) == 0
    assert "broker-a-1: data-1.log  pending_message  0:orders" in capsys.readouterr().out
    code, planned = answers("plan", *traces, "--limits", "4MiB,16MiB", "--engine", "spark")
    alone = answers("plan", *traces, "--limits", "4MiB,16MiB")
    assert code == alone[0] == 1
    for by_spark, by_this_process in zip(planned, alone[1], strict=True):
        assert by_spark.items() <= by_this_process.items()
    assert main(["plan", traces[1], "--engine", "spark"]) == 0
    assert "<- recommended" in capsys.readouterr().out
