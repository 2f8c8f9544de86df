"""Archives in Parquet: byte-identical data logs come back, by Spark as by its twin; nothing is discarded unverified."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from pipeline_stores import messages_in, random_stores, written

import forebay
from forebay import SettingsError
from forebay.__main__ import main

pq = pytest.importorskip("pyarrow.parquet")

from forebay.pipeline.bulk.archive import (  # noqa: E402
    ArchiveRow,
    archive,
    archive_local,
    restore,
    restore_local,
)
from forebay.pipeline.bulk.archive_table import NotArchived, facts_of_archive, read_back  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SEEDS = 6


def small_store(directory: Path, broker_name: str = "localhost", messages: int = 400, **fields: Any) -> Path:
    """A closed store of several data logs, of which some messages are acknowledged."""
    random = Random(broker_name)
    with forebay.open(
        directory, broker_name=broker_name, memory_limit="16MiB", sync="never", max_file_length="64KiB", **fields
    ) as bay:
        for n in range(messages):
            headers: dict[str, Any] | None = {"n": n, "raw": b"\xff", "nan": float("nan")} if n % 3 else None
            bay.queue(f"q{n % 4}").send(random.randbytes(random.randrange(1500)), headers=headers)
        with bay.transaction() as transaction:
            bay.queue("q0").send(b"in a transaction", transaction=transaction)
        with bay.queue("q1").subscribe() as consumer:
            consumer.ack(consumer.take(30))
    return directory


def journal(directory: Path, broker_name: str = "localhost", place: str = "journal") -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((directory / broker_name / place).glob("data-*.log"))}


def states(rows: list[ArchiveRow]) -> set[str]:
    return {row.state for row in rows}


def test_every_data_log_comes_back_byte_for_byte(tmp_path: Path) -> None:
    small_store(tmp_path / "data")
    rows = archive_local(tmp_path / "data", tmp_path / "out")
    assert states(rows) == {"archived"} and len(rows) > 4
    assert sum(row.messages for row in rows) == 401
    assert states(restore_local(tmp_path / "out", tmp_path / "again")) == {"restored"}
    assert journal(tmp_path / "again") == journal(tmp_path / "data")


def test_what_was_restored_opens_and_holds_what_the_store_held(tmp_path: Path) -> None:
    small_store(tmp_path / "data")
    archive_local(tmp_path / "data", tmp_path / "out")
    restore_local(tmp_path / "out", tmp_path / "again")
    found = [[(name, m.message_id, m.body) for name, m in messages_in(tmp_path / home)] for home in ("again", "data")]
    assert len(found[0]) == 371 and found[0] == found[1]


def test_the_columns_say_what_was_sent(tmp_path: Path) -> None:
    with forebay.open(tmp_path / "data", memory_limit="16MiB") as bay:
        own = bay.queue("orders").send(b"1 kg tea", headers={"kg": 1, "raw": b"\xff"}, priority=9)
        bay.queue("orders").send(b"", message_id="mine")
    archive_local(tmp_path / "data", tmp_path / "out")
    table = pq.read_table(tmp_path / "out")
    rows = [row for row in table.to_pylist() if row["kind"] == "message"]
    assert [row["message_id"] for row in rows] == [own, "mine"]
    assert rows[0]["body"] == b"1 kg tea" and rows[0]["destination"] == "orders" and rows[0]["priority"] == 9
    assert json.loads(rows[0]["headers"]) == {"kg": 1, "raw": {"base64": "/w=="}}
    assert {str(row["broker"]) for row in rows} == {"localhost"} and rows[0]["data_log"] == 1


def test_an_archive_that_was_stopped_goes_on_where_it_was(tmp_path: Path) -> None:
    small_store(tmp_path / "data")
    first = archive_local(tmp_path / "data", tmp_path / "out")
    files = sorted((tmp_path / "out").rglob("*.parquet"))
    files[1].unlink()
    (files[1].parent / ".data.parquet.part-1").write_bytes(b"half")
    before = {path: path.stat().st_mtime_ns for path in files if path != files[1]}
    again = archive_local(tmp_path / "data", tmp_path / "out")
    assert [row.state for row in again].count("archived") == 1
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert [row.bytes for row in again] == [row.bytes for row in first]


def test_a_live_store_is_archived_but_for_its_newest_data_log(tmp_path: Path) -> None:
    small_store(tmp_path / "data")
    with forebay.open(tmp_path / "data", memory_limit="16MiB", max_file_length="64KiB") as bay:
        bay.queue("orders").send(b"now")
        *before, _ = journal(tmp_path / "data").items()
        rows = archive_local(tmp_path / "data", tmp_path / "out")
        assert [row.state for row in rows][-1] == "in use" and states(rows[:-1]) == {"archived"}
        assert list(journal(tmp_path / "data").items())[:-1] == before


def test_what_is_damaged_is_left_out_and_named(tmp_path: Path) -> None:
    small_store(tmp_path / "data")
    victim = tmp_path / "data" / "localhost" / "journal" / "data-2.log"
    content = bytearray(victim.read_bytes())
    content[5000] ^= 1
    victim.write_bytes(bytes(content))
    rows = archive_local(tmp_path / "data", tmp_path / "out")
    (row,) = [row for row in rows if row.state == "left out"]
    assert row.data_log == 2 and row.problem is not None and "at offset" in row.problem and "\n" not in row.problem
    assert not list((tmp_path / "out").rglob("data_log=2/*.parquet"))


def test_only_what_was_compared_is_discarded(tmp_path: Path) -> None:
    small_store(tmp_path / "data", archive_data_logs=True)
    with forebay.open(tmp_path / "data", memory_limit="16MiB", archive_data_logs=True) as bay:
        for name in bay.destinations():
            bay.queue(name).purge()
        bay.cleanup()
    kept = tmp_path / "data" / "localhost" / "archive"
    before = {path.name: path.read_bytes() for path in kept.iterdir()}
    assert len(before) > 3
    archive_local(tmp_path / "data", tmp_path / "out")
    assert {path.name: path.read_bytes() for path in kept.iterdir()} == before
    victim = next((tmp_path / "out").rglob("data_log=2/*.parquet"))
    good = victim.read_bytes()
    for at in range(4, len(good) - 8, len(good) // 60):
        victim.write_bytes(good[:at] + bytes([good[at] ^ 0x10]) + good[at + 1 :])
        rows = archive_local(tmp_path / "data", tmp_path / "out", discard=True)
        (row,) = [row for row in rows if row.data_log == 2]
        if row.state == "discarded":  # a bit that means nothing: then what is read back is the data log
            assert b"".join(read_back(victim)) == before["data-2.log"]
            (kept / "data-2.log").write_bytes(before["data-2.log"])
        else:
            assert row.problem and (kept / "data-2.log").read_bytes() == before["data-2.log"]
    assert [path.name for path in kept.iterdir()] == ["data-2.log"]
    assert journal(tmp_path / "data")


def test_a_damaged_archive_restores_nothing_of_that_data_log(tmp_path: Path) -> None:
    small_store(tmp_path / "data", messages=60)
    archive_local(tmp_path / "data", tmp_path / "out")
    victim = next((tmp_path / "out").rglob("data_log=1/*.parquet"))
    good, wanted = victim.read_bytes(), journal(tmp_path / "data")["data-1.log"]
    for at in range(0, len(good), len(good) // 150):
        victim.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        home = tmp_path / f"again-{at}"
        rows = [row for row in restore_local(tmp_path / "out", home) if row.data_log == 1]
        found = journal(home).get("data-1.log")
        assert found is None or found == wanted
        assert (rows[0].state == "restored") == (found is not None)
        assert not list(home.rglob("*part*"))


def test_any_flipped_bit_in_the_schema_of_an_archived_data_log_is_an_error_that_restoring_expects(
    tmp_path: Path,
) -> None:
    small_store(tmp_path / "data", messages=60)
    archive_local(tmp_path / "data", tmp_path / "out")
    victim = next((tmp_path / "out").rglob("data_log=1/*.parquet"))
    good = victim.read_bytes()
    for at in range(len(good) - 1024, len(good)):  # the schema is what comes last
        for bit in range(8):
            victim.write_bytes(good[:at] + bytes([good[at] ^ 1 << bit]) + good[at + 1 :])
            with suppress(NotArchived, OSError):  # restore_local tells both of them in the row of the data log
                facts_of_archive(victim)


def test_what_cannot_be_restored_to_is_said(tmp_path: Path) -> None:
    small_store(tmp_path / "data", messages=10)
    archive_local(tmp_path / "data", tmp_path / "out")
    with pytest.raises(SettingsError, match="holds a store that was opened"):
        restore_local(tmp_path / "out", tmp_path / "data")
    with pytest.raises(SettingsError, match="is no archive"):
        restore_local(tmp_path / "data", tmp_path / "again")
    with pytest.raises(SettingsError, match="lies in the store"):
        archive_local(tmp_path / "data", tmp_path / "data" / "localhost" / "x")
    with pytest.raises(SettingsError, match="does not exist"):
        archive_local(tmp_path / "missing", tmp_path / "out")
    stranger = tmp_path / "out" / "broker=localhost" / "data_log=9"
    stranger.mkdir()
    (stranger / "data.parquet").write_bytes(b"PAR1 nothing PAR1")
    rows = restore_local(tmp_path / "out", tmp_path / "again")
    assert [row.state for row in rows if row.data_log == 9] == ["left out"]


def test_an_archive_never_overwrites_another_store_of_the_same_name(tmp_path: Path) -> None:
    archive_local(small_store(tmp_path / "one", messages=10), tmp_path / "out")
    rows = archive_local(small_store(tmp_path / "two", messages=10), tmp_path / "out")
    assert states(rows) == {"left out"} and "holds another data log" in str(rows[0].problem)
    with pytest.raises(SettingsError, match="one broker name"):
        archive_local([tmp_path / "one", tmp_path / "two"], tmp_path / "new")


def test_read_back_refuses_what_is_not_ours(tmp_path: Path) -> None:
    import pyarrow as pa

    pq.write_table(pa.table({"x": [1]}), tmp_path / "x.parquet")
    with pytest.raises(NotArchived, match="is not a data log"):
        list(read_back(tmp_path / "x.parquet"))


def test_journals_of_random_work_that_was_killed_come_back_too(tmp_path: Path) -> None:
    restored = 0
    for number, disk in enumerate(random_stores(range(1, SEEDS + 1), images_max=2)):
        home = written(disk, tmp_path / f"data-{number}")
        if not journal(home):
            continue
        rows = archive_local(home, tmp_path / f"out-{number}")
        assert states(rows) <= {"archived", "in use", "left out"}
        if "archived" in states(rows):
            restore_local(tmp_path / f"out-{number}", tmp_path / f"again-{number}")
        whole = {f"data-{row.data_log}.log" for row in rows if row.state == "archived"}
        before = journal(home, place="archive") | journal(home)
        assert journal(tmp_path / f"again-{number}") == {name: before[name] for name in whole}
        restored += len(whole)
    assert restored > 20


def test_spark_does_what_its_twin_does(spark: SparkSession, tmp_path: Path) -> None:
    for broker_name in ("alpha", "beta"):
        small_store(tmp_path / "data", broker_name, messages=150)
    rows = [ArchiveRow(**row.asDict()) for row in archive(spark, tmp_path / "data", tmp_path / "spark").collect()]
    twin = archive_local(tmp_path / "data", tmp_path / "twin")
    assert rows == twin and states(rows) == {"archived"}
    files = {path.relative_to(tmp_path / "twin"): path.read_bytes() for path in (tmp_path / "twin").rglob("*.parquet")}
    assert files == {
        path.relative_to(tmp_path / "spark"): path.read_bytes() for path in (tmp_path / "spark").rglob("*.parquet")
    }
    found = spark.read.parquet(str(tmp_path / "spark")).where("kind = 'message'").groupBy("broker").count().collect()
    assert {row["broker"]: row["count"] for row in found} == {"alpha": 151, "beta": 151}
    again = restore(spark, tmp_path / "spark", tmp_path / "again").collect()
    assert {row["state"] for row in again} == {"restored"}
    for broker_name in ("alpha", "beta"):
        assert journal(tmp_path / "again", broker_name) == journal(tmp_path / "data", broker_name)


def test_the_command_line_loads_archives_and_restores(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def run(*arguments: str | Path) -> tuple[int, list[dict[str, Any]]]:
        code = main(["pipeline", *map(str, arguments)])
        return code, [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    (tmp_path / "in.jsonl").write_text('{"destination": "orders", "body": "1 kg tea"}\n')
    (tmp_path / "data").mkdir()
    for state in ("published", "waiting"):
        code, (report,) = run("load", tmp_path / "data", tmp_path / "in.jsonl", "--load-id", "day-1")
        assert (code, report["state"], report["messages"]) == (0, state, 1)
    assert [message.body for _, message in messages_in(tmp_path / "data")] == [b"1 kg tea"]
    code, rows = run("archive", tmp_path / "data", tmp_path / "out")
    assert code == 0 and {row["state"] for row in rows} == {"archived"}
    code, rows = run("restore", tmp_path / "out", tmp_path / "again")
    assert code == 0 and {row["state"] for row in rows} == {"restored"}
    next((tmp_path / "out").rglob("*.parquet")).write_bytes(b"")
    assert run("restore", tmp_path / "out", tmp_path / "third")[0] == 1
    assert main(["pipeline", "load", str(tmp_path), str(tmp_path / "none"), "--load-id", "a"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "can't be read" in line


@pytest.mark.parametrize(
    "command",
    [
        ("backlog", ""),
        ("archive", "", "elsewhere"),
        ("archive", ".", ""),
        ("restore", "", "elsewhere"),
        ("restore", ".", ""),
        ("load", "", "messages.jsonl", "--load-id", "once"),
    ],
    ids=" ".join,
)
def test_an_empty_path_is_refused_and_never_taken_for_the_current_directory(
    command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["pipeline", *command]) == 2
    assert "must be a non-empty path without NUL characters" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
