"""The benchmarks, at sizes that say nothing of speed: they run, judge by medians, and keep quiet about the machine."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from forebay.benchmarks.bench import KAHADB_VARIABLE, main
from forebay.benchmarks.bench_floor import floor
from forebay.benchmarks.bench_kahadb import Peer
from forebay.benchmarks.bench_plan import GROUPS, PEER_RATIOS, Row, depths, rows
from forebay.benchmarks.bench_process import PassFailed, measure
from forebay.benchmarks.bench_report import Measured, report
from forebay.benchmarks.bench_stopwatch import Facts
from forebay.benchmarks.bench_work import Work, run

TINY = Work("path", 300, body_bytes=64)

FAKE_RUN = """#!/bin/sh
echo "$1 $2 N=$N LAG=$LAG" >> "$(dirname "$0")/calls"
echo "a side remark" >&2
[ ! -e "$(dirname "$0")/broken" ] || exit 3
for case in clean kill noidx; do echo '{"case":"W4-restart-'$case'","wall_s":7.5}'; done
echo '{"case":"W9-after-every","written_files":22,"files_left":32,"journal_mib":730.0,"live_bytes":20480}'
for wall in 9.0 2.0; do
    echo '{"case":"'$1-$2'","msgs":'$N',"wall_s":'$wall',"cpu_us_per_msg":30.0,"other_cpu_s":-0.1,"written_mib":1.0,
'           | tr -d '\\n'
    echo '"journal_alloc_mib":1.5,"index_alloc_mib":0.5}'
done
"""


@pytest.fixture(autouse=True)
def no_peer_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KAHADB_VARIABLE, raising=False)


@pytest.fixture
def fake_kahadb(tmp_path: Path) -> Path:
    """A folder whose run.sh takes two seconds of its own clock for whatever it is asked."""
    folder = tmp_path / "peer"
    folder.mkdir()
    (folder / "run.sh").write_text(FAKE_RUN, encoding="utf-8")
    return folder


def passes(*seconds: float, **facts: float) -> list[Facts]:
    return [{"seconds": taken, "cpu_seconds": 1.0, "others_seconds": 0.5, **facts} for taken in seconds]


def table(text: str, title: str) -> list[list[str]]:
    """The cells of a section's table, without its heading."""
    section = text.split(f"## {title}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


# Work


@pytest.mark.parametrize("batch", [1, 256])
def test_path_settles_as_many_as_it_sends(tmp_path: Path, batch: int) -> None:
    facts = run(Work("path", 600, body_bytes=64, batch=batch, backlog=100), tmp_path)
    assert facts["seconds"] > 0
    assert facts["cpu_seconds"] > 0


@pytest.mark.parametrize("batch", [1, 256])
def test_sent_messages_are_on_disk_after_the_close(tmp_path: Path, batch: int) -> None:
    facts = run(Work("send", 500, batch=batch), tmp_path)
    assert facts["disk_bytes"] > 500 * 1024


@pytest.mark.parametrize("batch", [1, 256])
def test_read_back_drains_what_another_open_stored(tmp_path: Path, batch: int) -> None:
    assert run(Work("read_back", 600, batch=batch), tmp_path)["seconds"] > 0


def test_memory_of_the_process_is_looked_at(tmp_path: Path) -> None:
    facts = run(Work("memory", 600), tmp_path)
    assert 0 < facts["held_bytes_max"] <= 64 << 20
    assert "uss_growth_bytes" in facts


def test_floor_takes_time_for_each_part(tmp_path: Path) -> None:
    assert all(micros > 0 for micros in floor(tmp_path, 600).values())


# Processes


def test_pass_runs_in_a_process_that_leaves_nothing_behind(tmp_path: Path) -> None:
    assert measure(TINY, tmp_path)["seconds"] > 0
    assert list(tmp_path.iterdir()) == []


def test_pass_that_fails_says_so_and_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(PassFailed, match="exit code 1"):
        measure(Work("path", 10, backlog=-1), tmp_path)
    assert list(tmp_path.iterdir()) == []


# Plan


def test_every_comparison_names_rows_of_the_plan() -> None:
    titles = [row.title for row in rows(200_000, GROUPS, has_kahadb=True)]
    assert len(titles) == len(set(titles))
    compared = {title for ratio in PEER_RATIOS for title in (ratio.title, ratio.over)}
    compared |= {title for depth in depths(200_000) for title in depth.titles}
    assert compared <= set(titles)


def test_no_pass_needs_more_than_two_gigabytes_of_disk() -> None:
    works = [row.work for row in rows(200_000, GROUPS, has_kahadb=False)]
    assert max(work.disk_bytes for work in works if isinstance(work, Work)) < 2 << 30


# Report


def test_ratio_is_one_of_medians() -> None:
    results = [
        Measured(Row("floor", "floor", Work("floor", 1000)), 1000, [{"part": 1.0}]),
        Measured(Row("W1", "`send`", Work("send", 1000)), 1000, passes(1.0, 2.0, 40.0)),
        Measured(Row("W1", "KahaDB add", Peer("W1 sync", 1000)), 1000, passes(9.0, 12.0, 100.0)),
    ]
    text = "\n".join(report(["a line"], 1000, results))
    assert table(text, "Against KahaDB") == [["`send`", "KahaDB add", "6.0", "4", "7"]]
    assert table(text, "What a message costs")[0][2:6] == ["500", "25 to 1,000", "2000.00", "1000.00"]
    assert "5 % of one core in the median, 50 % in the worst pass" in text


# Command


def run_main(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    assert main(["--messages", "300", *map(str, arguments)]) == 0
    return capsys.readouterr().out


def test_results_name_no_place_and_no_host(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = run_main(capsys, "W1", "--rounds", "1", "--dir", tmp_path)
    assert "`python benchmarks/bench.py W1 --messages 300 --rounds 1`" in text
    assert str(tmp_path) not in text
    assert platform.node() not in text
    assert [row[1] for row in table(text, "What a message costs")] == ["`send`", "`send_many`"]
    assert "## Against KahaDB" not in text


def test_both_sides_take_turns(tmp_path: Path, capsys: pytest.CaptureFixture[str], fake_kahadb: Path) -> None:
    text = run_main(capsys, "W1", "--rounds", "2", "--dir", tmp_path, "--kahadb", fake_kahadb)
    told = capsys.readouterr().err
    assert (fake_kahadb / "calls").read_text(encoding="utf-8") == "W1 sync N=300 LAG=1000\n" * 2
    [added] = [row for row in table(text, "What a message costs") if row[1] == "KahaDB add"]
    assert added[2] == "150", "the rate of the last pass, which is the warm one"
    assert len(table(text, "Against KahaDB")) == 2
    assert str(fake_kahadb) not in text + told
    assert {path.name for path in tmp_path.iterdir()} == {"peer"}


def test_both_sides_are_opened_again(tmp_path: Path, capsys: pytest.CaptureFixture[str], fake_kahadb: Path) -> None:
    text = run_main(capsys, "W4", "W9", "--rounds", "1", "--dir", tmp_path, "--kahadb", fake_kahadb)
    opened = table(text, "Opening again")
    assert [(row[0], row[4]) for row in opened] == [("clean", "7.50"), ("kill", "7.50"), ("index lost", "7.50")]
    assert all(0 < float(row[1]) <= float(row[2]) for row in opened)
    ours, peer = table(text, "One stuck message in each data log")
    assert peer[:3] == ["KahaDB", "22", "32"]
    assert int(ours[1]) == 2 and int(ours[2]) <= 3


def test_peer_is_found_through_the_environment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], fake_kahadb: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KAHADB_VARIABLE, str(fake_kahadb))
    assert "## Against KahaDB" in run_main(capsys, "W1", "--rounds", "1", "--dir", tmp_path)


def test_peer_that_fails_is_exit_code_1(tmp_path: Path, capsys: pytest.CaptureFixture[str], fake_kahadb: Path) -> None:
    (fake_kahadb / "broken").touch()
    assert main(["W1", "--messages", "300", "--dir", str(tmp_path), "--kahadb", str(fake_kahadb)]) == 1
    assert "exit code 3: a side remark" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["W7"], ["--messages", "1"], ["--rounds", "0"], ["--kahadb", "nowhere"]])
def test_wrong_usage_is_exit_code_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit:
        main(arguments)
    assert exit.value.code == 2
    assert "error:" in capsys.readouterr().err


@pytest.mark.slow
def test_everything_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = run_main(capsys, "--rounds", "1", "--dir", tmp_path)
    assert len(table(text, "What a message costs")) == 16
    assert len(table(text, "Depth")) == 4
    assert len(table(text, "Opening again")) == 3
    assert len(table(text, "One stuck message in each data log")) == 1
    assert len(table(text, "Memory")) == 2
    assert list(tmp_path.iterdir()) == []
