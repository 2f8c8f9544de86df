"""The benchmarks, at sizes that say nothing of speed: they run, judge by medians, and keep quiet about the machine."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import pytest

from forebay.benchmarks import watching
from forebay.benchmarks.peers import PEERS_VARIABLE, main
from forebay.benchmarks.works.build import Build, NoBuild, build_of, this_build
from forebay.benchmarks.works.claims import Judged, judged
from forebay.benchmarks.works.disturbance import Undisturbed
from forebay.benchmarks.works.end_to_end import tasks, threads
from forebay.benchmarks.works.floor import PATH, READ, floor
from forebay.benchmarks.works.kahadb import KahaDB, Peer
from forebay.benchmarks.works.measured import Measured
from forebay.benchmarks.works.picture import picture
from forebay.benchmarks.works.plan import GROUPS, READ_BACK, TURNS, Row, broker_at_depth, depths, rows, with_headers
from forebay.benchmarks.works.process import PassFailed, measure
from forebay.benchmarks.works.report import report
from forebay.benchmarks.works.results import BROKERS, MEASURED, PICTURE, marks, write_results
from forebay.benchmarks.works.stopwatch import Facts
from forebay.benchmarks.works.work import Headers, Work, run

TINY = Work("path", 300, body_bytes=64)

FAKE_RUN = """#!/bin/sh
echo "$* N=$N${M:+ M=$M} LAG=$LAG JOPT=$JOPT" >> "$(dirname "$0")/calls"
echo "a side remark" >&2
[ ! -e "$(dirname "$0")/broken" ] || exit 3
for case in clean kill noidx; do echo '{"case":"W4-restart-'$case'","wall_s":7.5}'; done
echo '{"case":"W9-after-every","written_files":22,"files_left":32,"journal_mib":730.0,"live_bytes":20480}'
for rate in 90 110; do echo '{"case":"W3-bare-append","rate":'$rate'}'; done
for case in W1-sync W2-sync W2-async-on W3-add-1t W3-add-32t W5-cursor-200 \\
        W6-persistent-auto W6-nonpersistent-auto W7-fill W7-drain W8-send+consume-at-depth; do
    for wall in 9.0 2.0; do
        echo '{"case":"'$case'","msgs":'${M:-$N}',"wall_s":'$wall',"cpu_us_per_msg":30.0,' | tr -d '\\n'
        echo '"other_cpu_s":-0.1,"written_mib":1.0,' | tr -d '\\n'
        echo '"peak_rss_mib":400,"rate":50.0,"journal_alloc_mib":1.5,"index_alloc_mib":0.5}'
    done
done
"""

FAKE_QUEUES = """
import json, sys
if "litequeue" in sys.argv:
    import a_package_that_is_nowhere
rate = 40 if "huey SqliteStorage" in sys.argv else 20
print(json.dumps({"n": 100, "wall": 100 / rate, "cpu": 1.0}))
"""


def measure_here(work: Work, directory: Path, python: str = sys.executable) -> Facts:
    """As measure, without a process for each but where the work is a kill."""
    if work.kind == "reopen":
        return measure(work, directory)
    with TemporaryDirectory(dir=directory) as place:
        return run(work, Path(place))


@pytest.fixture(autouse=True)
def few_processes_and_no_peers_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forebay.benchmarks.peers.measure", measure_here)
    monkeypatch.setattr("forebay.benchmarks.peers.Undisturbed", lambda: Undisturbed(pace=lambda: 1.0))
    monkeypatch.setattr("forebay.benchmarks.works.disturbance.ATTEMPTS", 1)
    monkeypatch.delenv(PEERS_VARIABLE, raising=False)


@pytest.fixture
def fake_peers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose drivers take two seconds of their own clock for whatever they are asked."""
    folder = tmp_path / "peers"
    for name, text in (("kahadb/run.sh", FAKE_RUN), ("python/peers.py", FAKE_QUEUES)):
        path = folder / name
        path.parent.mkdir(parents=True)
        path.write_text(text, encoding="utf-8")
    monkeypatch.setattr("forebay.benchmarks.peers.has_java", lambda: True)
    monkeypatch.setattr("forebay.benchmarks.peers.java_version", lambda: "Java 0")
    return folder


def passes(*seconds: float, **facts: float) -> list[Facts]:
    return [{"seconds": taken, "cpu_seconds": 1.0, "others_seconds": 0.5, **facts} for taken in seconds]


def table(text: str, title: str) -> list[list[str]]:
    """The cells of a section's table, without its heading."""
    section = text.split(f"## {title}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def of_machine(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("* ")]


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


@pytest.mark.parametrize("producers", [1, 32])
def test_durable_sends_are_put_beside_bare_syncs(tmp_path: Path, producers: int) -> None:
    facts = run(Work("synced", 64, producers=producers), tmp_path)
    assert facts["times_bare"] == pytest.approx(facts["bare_seconds"] * 64 / facts["seconds"])
    assert facts["times_overwriting"] == pytest.approx(facts["overwriting_seconds"] * 64 / facts["seconds"])
    assert facts["seconds"] > 0


def test_the_least_program_does_the_work_of_tasks_in_the_same_pass(tmp_path: Path) -> None:
    facts = run(Work("synced", 64, producers=32), tmp_path)
    assert facts["least_times_bare"] == pytest.approx(facts["least_bare_seconds"] * 64 / facts["least_seconds"])
    (tmp_path / "thread").mkdir()
    assert "least_times_bare" not in run(Work("synced", 64), tmp_path / "thread")


@pytest.mark.parametrize("persistent", [True, False])
@pytest.mark.parametrize(("batch", "take"), [(1, 256), (256, 256), (1, 1)])
@pytest.mark.parametrize("go", [threads, tasks])
def test_a_producer_and_a_consumer_pass_on_all_there_is(
    tmp_path: Path, go: Callable[..., Facts], batch: int, take: int, persistent: bool
) -> None:
    assert go(tmp_path, 300, 64, 64 << 20, batch, take, persistent)["seconds"] > 0


@pytest.mark.parametrize("kind", ["fill", "drain"])
def test_overflow_is_timed_apart(tmp_path: Path, kind: Literal["fill", "drain"]) -> None:
    assert run(Work(kind, 500, body_bytes=64), tmp_path)["seconds"] > 0


def test_memory_of_overflow_is_looked_at(tmp_path: Path) -> None:
    facts = run(Work("overflown", 500, body_bytes=64), tmp_path)
    assert 0 < facts["held_bytes_max"] <= 64 << 20
    assert "uss_growth_bytes" in facts


def test_sends_are_counted_alone_and_beside_a_thread_that_computes(tmp_path: Path) -> None:
    facts = run(Work("contended", 50, body_bytes=64), tmp_path)
    assert facts["share"] > 0
    assert facts["bare_share"] > 0


def test_memory_of_the_process_is_looked_at(tmp_path: Path) -> None:
    facts = run(Work("memory", 600), tmp_path)
    assert 0 < facts["held_bytes_max"] <= 64 << 20
    assert "uss_growth_bytes" in facts


@pytest.mark.parametrize("headers", ["read", "selected"])
@pytest.mark.parametrize(
    "work",
    [
        Work("send", 600, body_bytes=64),
        Work("send", 600, body_bytes=64, batch=256),
        Work("path", 600, body_bytes=64, backlog=300),
        Work("path", 600, body_bytes=64, batch=256, backlog=300),
        Work("read_back", 600, body_bytes=64, batch=256),
        Work("threads", 600, body_bytes=64, take=1),
        Work("threads", 600, body_bytes=64, batch=256, take=256),
    ],
    ids=lambda work: f"{work.kind} of {work.batch}",
)
def test_work_is_done_with_headers_and_with_a_selector(
    tmp_path: Path, work: Work, headers: Literal["read", "selected"]
) -> None:
    facts = run(replace(work, headers=headers), tmp_path)
    assert facts["seconds"] > 0 and facts["cpu_seconds"] > 0


def test_work_that_has_no_headers_says_so(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="the work stuck has no headers"):
        run(Work("stuck", 2, headers="read"), tmp_path)


def test_one_match_is_found_and_what_was_read_for_it_is_counted(tmp_path: Path) -> None:
    facts = run(Work("find", 5000, body_bytes=64), tmp_path)
    assert facts["find_seconds"] > 0
    assert facts["read_bytes"] > 64


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


def test_titles_name_one_row_each() -> None:
    titles = [row.title for row in rows(200_000, GROUPS)]
    assert len(titles) == len(set(titles))


def test_every_claim_names_rows_of_the_plan_and_facts_of_theirs() -> None:
    """A claim whose row or fact has another name would never be judged, and so never be lost."""
    everything: Facts = {"seconds": 1.0, "cpu_seconds": 1.0, "clean_seconds": 1.0, "kill_seconds": 1.0}
    everything |= {"index_lost_seconds": 1.0, "times_bare": 1.0, "uss_growth_bytes": 1.0, "peak_bytes": 1.0}
    everything |= {"data_logs_left": 1.0, "share": 1.0, "bare_share": 1.0, "index_bytes": 1.0}
    everything |= {"find_seconds": 1.0, "read_bytes": 1.0}
    by_title = {row.title: Measured(row, 1, [everything]) for row in rows(200_000, GROUPS)}
    found = judged(200_000, by_title)
    assert len(found) == 50
    assert all(each.theirs is not None for each in found if each.claim.over)


def test_no_pass_needs_more_than_three_gigabytes_of_disk() -> None:
    works = [row.work for row in rows(200_000, GROUPS)]
    assert max(work.disk_bytes for work in works if isinstance(work, Work)) < 3 << 30


# Report


def ratio_of(ours: list[Facts], theirs: list[Facts]) -> tuple[Judged, str]:
    """The one claim about single sends, and the report."""
    results = [
        Measured(Row("floor", "floor", Work("floor", 1000)), 1000, [{"part": 1.0, "times_bare": 9.27}]),
        Measured(Row("W1", "`send`", Work("send", 1000)), 1000, ours),
        Measured(Row("W1", "KahaDB add", Peer("W1 sync", "W1-sync", 1000)), 1000, theirs),
    ]
    [found] = judged(1000, {measured.row.title: measured for measured in results})
    return found, "\n".join(report(["a line"], [], 1000, {"interpreted": results}))


def test_ratio_is_one_of_medians() -> None:
    found, text = ratio_of(passes(1.0, 2.0, 40.0), passes(9.0, 12.0, 100.0))
    assert found.value == 6
    assert table(text, "Figures to reach")[0][2:8] == ["500/s", "83/s", "6.00 ×", "≥ 4 ×", "≥ 7 ×", "held"]
    assert table(text, "What a message costs")[0][2:6] == ["500", "25 to 1,000", "2000.00", "1000.00"]
    assert "5 % of one core in the median, 50 % in the worst pass" in text


@pytest.mark.parametrize(("ours", "outcome"), [(1.0, "aim"), (1.001, "held"), (1.75, "held"), (1.76, "lost")])
def test_figure_is_held_from_must_to_aim(ours: float, outcome: str) -> None:
    found, _ = ratio_of(passes(ours), passes(7.0))
    assert found.outcome == outcome


def test_durable_sends_of_tasks_stand_beside_the_least_program() -> None:
    facts = {"seconds": 2.0, "cpu_seconds": 1.0, "bare_seconds": 9e-3, "overwriting_seconds": 6e-3}
    facts |= {"times_bare": 4.5, "times_overwriting": 3.0}
    facts |= {f"least_{name}": value * 2 for name, value in facts.items()}
    title = "durable `send`, 32 tasks of asyncio"
    results = [
        Measured(Row("floor", "floor", Work("floor", 1000)), 1000, [{"part": 1.0, "times_bare": 9.27}]),
        Measured(Row("W3", title, Work("synced", 1000, producers=32)), 1000, [facts]),
    ]
    text = "\n".join(report(["a line"], [], 1000, {"interpreted": results}))
    assert table(text, "Figures to reach")[0][2] == "4.50 × bare; least program 9.00 × bare"
    assert table(text, "Durable sends beside bare syncs") == [
        [title, "2000.00", "1000.00", "9000.0", "6000.0", "4.50", "3.00"],
        ["the same, least program", "4000.00", "2000.00", "18000.0", "12000.0", "9.00", "6.00"],
    ]


@pytest.mark.parametrize(("cpu_seconds", "outcome"), [(1.2, "aim"), (1.35, "held"), (1.36, "lost")])
def test_a_cost_is_judged_by_its_ratio_to_the_work_without(cpu_seconds: float, outcome: str) -> None:
    def measured(headers: Literal["none", "read"], cost: float) -> Measured:
        return Measured(
            Row("W11", with_headers("`send`", headers), Work("send", 1)), 1, [passes(9.0)[0] | {"cpu_seconds": cost}]
        )

    sides = [measured("none", 1.0), measured("read", cpu_seconds)]
    [found] = judged(1000, {side.row.title: side for side in sides})
    assert found.outcome == outcome
    assert found.value == pytest.approx(cpu_seconds)


def test_what_headers_cost_stands_beside_what_they_cost_the_least_program() -> None:
    parts = dict(zip(READ, (0.5, 1.2, 0.9), strict=True)) | {"times_bare": 9.27}
    micros: dict[Headers, float] = {"none": 2.0, "read": 3.4, "selected": 2.8}
    results = [Measured(Row("floor", "floor", Work("floor", 1)), 1, [parts])]
    for headers, cost in micros.items():
        title = with_headers(READ_BACK, headers)
        facts = passes(9.0)[0] | {"cpu_seconds": cost / 1e6}
        results.append(Measured(Row("W11", title, Work("read_back", 1)), 1, [facts]))
    text = "\n".join(report(["a line"], [], 1000, {"interpreted": results}))
    rows = table(text, "What headers cost at least")
    assert [row[1:] for row in rows] == [
        ["2.00", "0.70", "1.40", "2.40 ×", "1.35 ×", "1.70 ×", "≤ 1.35 ×"],
        ["2.00", "0.40", "0.80", "1.80 ×", "1.20 ×", "1.40 ×", "≤ 1.5 ×"],
    ]
    ratios = [row[4] for row in table(text, "Figures to reach")]
    assert ratios == ["1.70 ×; least program 1.35 ×", "1.40 ×; least program 1.20 ×"]


def test_costs_of_rows_that_took_turns_are_compared_pass_by_pass() -> None:
    """The machine became three times as slow in the middle of the second turn: the medians are 3.6 times apart."""
    base = with_headers("`send`", "none")

    def measured(headers: Literal["none", "read"], costs: Sequence[float]) -> Measured:
        found = [passes(9.0)[0] | {"cpu_seconds": cost} for cost in costs]
        return Measured(Row("W11", with_headers("`send`", headers), Work("send", 1), base), 1, found)

    sides = [measured("none", (1.0, 1.0, 3.0)), measured("read", (1.2, 3.6, 3.6))]
    [found] = judged(1000, {side.row.title: side for side in sides})
    assert found.value == pytest.approx(1.2)


def test_passes_of_a_comparison_take_turns_forth_and_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    done: list[Headers] = []

    def noted(work: Work, directory: Path, python: str = sys.executable) -> Facts:
        if work.kind == "send" and work.batch == 1:
            done.append(work.headers)
        return {"part": 1.0, "times_bare": 1.0} if work.kind == "floor" else passes(1.0)[0]

    monkeypatch.setattr("forebay.benchmarks.peers.measure", noted)
    assert main(["W11", "--messages", "1000", "--dir", str(tmp_path)]) == 0
    assert done[:6] == ["none", "read", "selected", "selected", "read", "none"]
    assert len(done) == 3 * TURNS
    assert "1.00 ×" in table(capsys.readouterr().out, "Figures to reach")[0]


def test_cost_of_the_path_stands_beside_the_least_program() -> None:
    title = "`send`, `take(1)`, `ack`; 0 behind"
    results = [
        Measured(Row("floor", "floor", Work("floor", 1)), 1, [{PATH: 3.2, "times_bare": 9.27}]),
        Measured(Row("W2", title, Work("path", 1)), 1, [passes(9.0)[0] | {"cpu_seconds": 6e-6}]),
    ]
    text = "\n".join(report(["a line"], [], 1000, {"interpreted": results}))
    assert table(text, "Figures to reach")[0][2] == "6.0 µs; least program 3.2 µs"


def test_depth_is_judged_beside_the_peer_and_beside_a_tenth_of_it() -> None:
    def measured(title: str, seconds: float) -> Measured:
        return Measured(Row("W8", title, Work("path", 100)), 100, [{"seconds": seconds}])

    (beside_peer, shallow, deep), _ = depths(200_000)
    seconds = {beside_peer.title: 1.0, broker_at_depth(200_000): 3.5, shallow.title: 1.0, deep.title: 1.1}
    found = judged(200_000, {title: measured(title, taken) for title, taken in seconds.items()})
    assert [(each.value, each.outcome) for each in found] == [(3.5, "held"), (pytest.approx(1 / 1.1), "lost")]


@pytest.mark.parametrize(("seconds", "outcome"), [(0.05, "aim"), (0.06, "held"), (0.12, "held"), (0.13, "lost")])
def test_a_figure_may_be_a_most(seconds: float, outcome: str) -> None:
    measured = Measured(Row("W4", "opening", Work("reopen", 1000)), 1000, [{"clean_seconds": seconds}])
    [found] = judged(1000, {"opening": measured})
    assert found.outcome == outcome


def test_picture_is_the_same_for_the_same_figures() -> None:
    found, _ = ratio_of(passes(1.0), passes(7.0))
    drawn = picture([found])
    assert drawn is not None and "W1  send" in drawn
    assert drawn == picture([found])


def test_only_what_stands_between_the_marks_is_made_again(tmp_path: Path) -> None:
    page = tmp_path / "RESULTS.md"
    begin, end = marks(MEASURED)
    page.write_text(f"# By hand\n\n{begin}\nold\n{end}\n\nkept\n", encoding="utf-8")
    for _ in range(2):
        write_results(page, MEASURED, ["new"], "<svg/>")
    text = page.read_text(encoding="utf-8")
    assert text == f"# By hand\n\n{begin}\n\n{text.splitlines()[4]}\n\nnew\n\n{end}\n\nkept\n"
    assert f"({PICTURE})" in text.splitlines()[4]
    assert (tmp_path / PICTURE).read_text(encoding="utf-8") == "<svg/>"


def test_page_without_marks_is_left_alone(tmp_path: Path) -> None:
    page = tmp_path / "RESULTS.md"
    page.write_text("all by hand", encoding="utf-8")
    with pytest.raises(ValueError, match="no part between"):
        write_results(page, MEASURED, ["new"])
    assert page.read_text(encoding="utf-8") == "all by hand"


def test_page_of_this_project_has_the_marks() -> None:
    text = (Path(__file__).parents[2] / "benchmarks" / "RESULTS.md").read_text(encoding="utf-8")
    assert [text.count(mark) for part in (MEASURED, BROKERS) for mark in marks(part)] == [1, 1, 1, 1]


# Command


def run_main(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    assert main(["--messages", "300", *map(str, arguments)]) == 0
    return capsys.readouterr().out


def test_results_name_no_place_and_no_host(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = run_main(capsys, "W1", "--rounds", "1", "--dir", tmp_path)
    assert "`python benchmarks/peers.py W1 --messages 300 --rounds 1`" in text
    assert str(tmp_path) not in text
    assert platform.node() not in text
    assert [row[1] for row in table(text, "What a message costs")] == ["`send`", "`send_many`"]
    assert [row[0] for row in table(text, "Figures to reach")] == ["index"]
    assert of_machine(text)[-1] == "* Neither KahaDB nor Python queues: no --peers FOLDER was given"


def test_both_sides_take_turns(tmp_path: Path, capsys: pytest.CaptureFixture[str], fake_peers: Path) -> None:
    text = run_main(capsys, "W1", "--rounds", "2", "--dir", tmp_path, "--peers", fake_peers)
    told = capsys.readouterr().err
    calls = (fake_peers / "kahadb" / "calls").read_text(encoding="utf-8")
    assert calls == "W1 sync N=300 LAG=1000 JOPT=\n" * 2
    [added] = [row for row in table(text, "What a message costs") if row[1] == "KahaDB add"]
    assert added[2] == "150", "the rate of the last pass, which is the warm one"
    assert len(table(text, "Figures to reach")) == 3
    assert str(fake_peers) not in text + told
    assert {path.name for path in tmp_path.iterdir()} == {"peers"}


def test_another_build_is_measured_in_the_same_run_and_others_once_for_both(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], fake_peers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pythons = []

    def measure_and_note(work: Work, directory: Path, python: str) -> Facts:
        pythons.append(python)
        return measure_here(work, directory)

    other = Build("/other/python", "another", "Python of machine code")
    monkeypatch.setattr("forebay.benchmarks.peers.measure", measure_and_note)
    monkeypatch.setattr("forebay.benchmarks.peers.build_of", {other.python: other}.__getitem__)
    text = run_main(capsys, "W1", "--rounds", "2", "--dir", tmp_path, "--peers", fake_peers, "--also", other.python)
    assert pythons == [sys.executable, other.python] * 2 * 3, "the floor, single sends and batches, twice"
    assert (fake_peers / "kahadb" / "calls").read_text(encoding="utf-8").count("W1") == 2
    mine, others = this_build().name, other.name
    assert len(table(text, f"Figures to reach, {mine}")) == len(table(text, f"Figures to reach, {others}")) == 3
    costs = [[row[1] for row in table(text, f"What a message costs, {name}")] for name in (mine, others)]
    assert costs == [["`send`", "`send_many`", "KahaDB add"], ["`send`", "`send_many`"]]
    assert f"* {this_build().software}\n* {other.software}" in text
    assert other.python not in text


def test_build_tells_what_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert build_of(sys.executable) == this_build()
    with pytest.raises(NoBuild, match="nowhere/python does not run"):
        build_of("nowhere/python")
    for python, said in ((sys.executable, f"has the {this_build().name} build, as"), ("nowhere/python", "--also")):
        with pytest.raises(SystemExit):
            main(["W1", "--also", python])
        assert said in capsys.readouterr().err


def test_a_command_with_several_cases_is_run_once_a_round(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], fake_peers: Path
) -> None:
    text = run_main(capsys, "W3", "--rounds", "2", "--dir", tmp_path, "--peers", fake_peers)
    calls = (fake_peers / "kahadb" / "calls").read_text(encoding="utf-8")
    assert calls == "W3 N=7 LAG=1000 JOPT=\n" * 2
    [(_, _, _, theirs, *_), *_] = table(text, "Figures to reach")
    assert theirs == "0.50 × bare", "the mean of the bare rate before and after"


def test_peer_moves_messages_over_a_backlog_that_its_first_passes_have_left(tmp_path: Path, fake_peers: Path) -> None:
    with KahaDB(fake_peers / "kahadb", tmp_path, Undisturbed(pace=lambda: 1.0)) as kahadb:
        facts = kahadb.measure(Peer("W8", "W8-send+consume-at-depth", 150, backlog=1500))
    calls = (fake_peers / "kahadb" / "calls").read_text(encoding="utf-8")
    assert calls == "W8 N=1800 M=150 LAG=1000 JOPT=\n"
    assert facts["seconds"] == 2.0


def test_peer_that_stores_more_than_it_was_told_is_counted_by_the_message(tmp_path: Path, fake_peers: Path) -> None:
    script = fake_peers / "kahadb" / "run.sh"
    script.write_text(script.read_text(encoding="utf-8").replace("""$N}',"wall""", """$N}'0,"wall"""), encoding="utf-8")
    with KahaDB(fake_peers / "kahadb", tmp_path, Undisturbed(pace=lambda: 1.0)) as kahadb:
        facts = kahadb.measure(Peer("W3", "W3-add-32t", 100))
    assert facts["seconds"] == pytest.approx(0.2)


def test_both_sides_are_opened_again(tmp_path: Path, capsys: pytest.CaptureFixture[str], fake_peers: Path) -> None:
    text = run_main(capsys, "W4", "W9", "--rounds", "1", "--dir", tmp_path, "--peers", fake_peers)
    assert [(row[0], row[3]) for row in table(text, "Opening again")] == [
        ("kill", "7.50"),
        ("clean", "7.50"),
        ("index lost", "7.50"),
    ]
    assert [row[3] for row in table(text, "Figures to reach")] == ["7.5 s", "7.5 s", "7.5 s", "32 left"]
    ours, peer = table(text, "One stuck message in each data log")
    assert peer[:3] == ["KahaDB", "22", "32"]
    assert int(ours[1]) == 2 and int(ours[2]) <= 3


def test_the_fastest_python_queue_counts_and_missing_ones_are_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], fake_peers: Path
) -> None:
    (fake_peers / "kahadb" / "run.sh").unlink()
    text = run_main(capsys, "W2", "Python", "--rounds", "1", "--dir", tmp_path, "--peers", fake_peers)
    singly, _ = [row for row in table(text, "Figures to reach") if row[0] == "Python"]
    assert singly[3] == "40/s"
    assert "litequeue" not in [row[0] for row in table(text, "Python queues")]
    assert [line.split(":")[0] for line in of_machine(text)[-2:]] == ["* No KahaDB", "* No litequeue"]


def test_without_java_kahadb_is_skipped_and_how_to_get_it_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], fake_peers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forebay.benchmarks.peers.has_java", lambda: False)
    text = run_main(capsys, "W1", "--rounds", "1", "--dir", tmp_path, "--peers", fake_peers)
    assert "KahaDB add" not in text
    assert "apt-get install" in of_machine(text)[-1]


def test_peers_are_found_through_the_environment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], fake_peers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PEERS_VARIABLE, str(fake_peers))
    assert "KahaDB add" in run_main(capsys, "W1", "--rounds", "1", "--dir", tmp_path)


def test_peer_that_fails_is_exit_code_1(tmp_path: Path, capsys: pytest.CaptureFixture[str], fake_peers: Path) -> None:
    (fake_peers / "kahadb" / "broken").touch()
    assert main(["W1", "--messages", "300", "--dir", str(tmp_path), "--peers", str(fake_peers)]) == 1
    assert "exit code 3: a side remark" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["W99"], ["--messages", "1"], ["--rounds", "0"], ["--peers", "nowhere"]])
def test_wrong_usage_is_exit_code_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit:
        main(arguments)
    assert exit.value.code == 2
    assert "error:" in capsys.readouterr().err


@pytest.mark.slow
def test_everything_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str], fake_peers: Path) -> None:
    text = run_main(capsys, *GROUPS, "--rounds", "1", "--dir", tmp_path, "--peers", fake_peers)
    assert len(table(text, "Figures to reach")) == 50
    assert len(table(text, "Depth")) == 6
    assert len(table(text, "Opening again")) == 3
    assert len(table(text, "One stuck message in each data log")) == 2
    assert len(table(text, "Memory")) == 2
    assert {path.name for path in tmp_path.iterdir()} == {"peers"}


@pytest.mark.soak  # it waits half a minute for the watchers
def test_cost_of_being_watched_is_measured_for_each_watcher(tmp_path: Path) -> None:
    costs = list(watching.measure(queues=2, looks=1, directory=str(tmp_path)))
    assert [cost.watcher.split(":")[0] for cost in costs] == [
        "the status file, watched or not",
        "forebay top",
        "forebay queues --watch",
        "forebay health",
        "forebay console beside it",
        "console mounted in it",
        "console mounted in it",
        "check",
        "check",
    ]
    assert all(0 < abs(cost.ms.middle) < 10_000 for cost in costs)
    assert {cost.ms.high for cost in costs} == {float("inf")}, "one look decides nothing"
    assert watching.line_of(costs[0]).startswith("the status file, watched or not ")
