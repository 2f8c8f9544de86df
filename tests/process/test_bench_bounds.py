"""The matrix of memory bounds: which runs it has, what its table says, and that a run that did not hold is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from forebay.benchmarks import bench_bounds
from forebay.benchmarks.bench_bounds import cells, main
from forebay.benchmarks.load.evidence import Check
from forebay.benchmarks.load.result import Run
from forebay.benchmarks.load.scenario import MESSAGE_BYTES, Scenario
from forebay.benchmarks.load.scenario_file import shipped
from forebay.dispatch.config.sizes import KIB, MIB

TINY = ("--limits", "4MiB,5MiB", "--bodies", "16;16,1KiB", "--messages", "60")


class FakeSupervisor:
    """Runs nothing: a run of bodies of mixed sizes grows by too much."""

    def __init__(self, scenario: object, workload: object, directory: str, report: object) -> None:
        self._scenario = scenario

    def run(self) -> Run:
        scenario = self._scenario
        run = Run(scenario, scenario.messages, 0, seconds=2.4)  # type: ignore[arg-type, attr-defined]
        run.held_bytes_max, run.uss_bytes_max, run.uss_limit_bytes = 3 * MIB, 20 * MIB, 28 * MIB
        run.checks = [Check("count", True, "all"), Check("process", run.scenario.size == (16,), "it grew")]
        return run


def rows(printed: str) -> list[list[str]]:
    """The fields of each row below the head of the table."""
    return [line.strip("| ").split(" | ") for line in printed.splitlines() if line.startswith("|")][2:]


def scenarios(*arguments: str) -> list[Scenario]:
    return list(bench_bounds.cases(bench_bounds._parser().parse_args(arguments)))


def planned(*arguments: str) -> list[tuple[str, tuple[int, ...], int, int]]:
    return [(each.name, each.size, each.memory, each.messages) for each in scenarios(*arguments)]


def test_every_scenario_runs_with_all_bodies_under_all_limits() -> None:
    runs = planned()
    assert len(runs) == len({run[:3] for run in runs}) == 12 * len(shipped())
    assert {run[1] for run in runs} == {(16,), (KIB,), (64 * KIB,), (16, KIB, 64 * KIB)}
    assert {run[2] for run in runs} == {4 * MIB, 16 * MIB, 64 * MIB}


def test_runs_are_small_unless_the_full_ones_are_asked_for() -> None:
    chosen = ("kill", "fanout", "selectors", "--limits", "16MiB", "--bodies", "1KiB")
    assert [run[3] for run in planned(*chosen)] == [32 * KIB, 2000, 1141]
    assert [run[3] for run in planned(*chosen, "--full")] == [1_000_000, 20_000, 6_000]
    assert [run[3] for run in planned(*chosen, "--messages", "70")] == [70, 70, 70]


def test_run_that_did_not_hold_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench_bounds, "Supervisor", FakeSupervisor)
    assert main(["churn", *TINY, "--dir", str(tmp_path)]) == 1
    printed = capsys.readouterr()
    figures = ["3.0", "20.0", "28.0", "2"]
    assert rows(printed.out) == [
        ["churn", "16B", "4MiB", "60", "0.0", *figures, "held"],
        ["churn", "16B", "5MiB", "60", "0.0", *figures, "held"],
        ["churn", "16B/1KiB", "4MiB", "60", "0.0", *figures, "**process**"],
        ["churn", "16B/1KiB", "5MiB", "60", "0.0", *figures, "**process**"],
    ]
    assert printed.out.endswith("2 of 4 runs did not hold\n")
    assert printed.err == "churn: process: it grew\n" * 2


def test_row_has_a_field_for_each_column() -> None:
    assert len(cells(FakeSupervisor(shipped()["kill"], None, "", None).run())) == len(bench_bounds.COLUMNS)


def test_limits_that_a_scenario_sets_later_are_parts_of_the_one_that_it_begins_with() -> None:
    limits = [[act.memory for act in scenario.acts] for scenario in scenarios("overflow", "--bodies", "1KiB")]
    assert limits == [[4 * MIB, 4 * MIB], [4 * MIB, 16 * MIB], [16 * MIB, 64 * MIB]]


def test_there_are_no_more_queues_than_memory_has_room_for() -> None:
    counts = [scenario.destinations[0].count for scenario in scenarios("destinations", "--bodies", "16")]
    assert 150 < counts[0] < counts[1] < counts[2] < 10_000


def test_no_more_is_spilled_than_the_lowest_limit_has_room_for() -> None:
    few, _, many = (run[3] for run in planned("overflow", "--limits", "16MiB,17MiB,64MiB", "--bodies", "16"))
    assert 50_000 < few < 85_000 < many


def test_runs_want_three_times_the_limit_unless_a_schedule_would_take_too_long() -> None:
    for name, size, limit, messages in planned("kill", "queues", "steady", "--bodies", "1KiB;64KiB"):
        wanted = messages * (size[0] + MESSAGE_BYTES) / limit
        assert abs(wanted - 3) < 0.1 or (name == "steady" and messages == 40_000 and wanted < 3), (name, size, limit)


@pytest.mark.parametrize("arguments", [["nothing"], ["--limits", "1MiB"], ["--bodies", "8"], ["--bodies", "16;;"]])
def test_wrong_arguments_are_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert "bench_bounds.py: error:" in capsys.readouterr().err


@pytest.mark.slow
def test_small_matrix_holds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["churn", "retry", *TINY, "--dir", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert len(rows(printed)) == 8
    assert all(row[-1] == "held" and float(row[6]) <= float(row[7]) for row in rows(printed))
    assert printed.endswith("all held\n")
    assert list(tmp_path.iterdir()) == []
