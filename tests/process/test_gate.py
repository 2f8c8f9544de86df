"""The gate: a structure that got slower is named, whatever the machine."""

from __future__ import annotations

import ast
import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from forebay.benchmarks import gate
from forebay.benchmarks.calibration import floor_seconds

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
BASELINE = json.loads((BENCHMARKS / "baseline.json").read_text(encoding="utf-8"))


def test_only_what_is_above_the_tolerance_is_slower_and_new_ones_are_not() -> None:
    before = {"bench_a::test_same": 1.0, "bench_a::test_slower": 1.0, "bench_a::test_gone": 1.0}
    found = {"bench_a::test_same": 1.3, "bench_a::test_slower": 1.31, "bench_a::test_new": 9.0}
    lines, slower = gate.compared(found, before)
    assert slower == ["bench_a::test_slower: 1.31 ×"]
    assert [line.split()[1:] for line in lines[1:]] == [
        ["1.300", "1.000", "+30%"],
        ["1.310", "1.000", "+31%"],
        ["9.000", "none"],
    ]


def test_floor_takes_time() -> None:
    assert 0 < floor_seconds() < 1e-3


def test_baseline_knows_every_benchmark_and_no_other() -> None:
    there = {
        f"{path.stem}::{node.name}"
        for path in BENCHMARKS.glob("bench_*.py")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }
    assert {name.partition("[")[0] for name in BASELINE["ratios"]} == there


HERE: dict[str, Any] = {"machine": "2 cores", "software": "CPython 3", "libraries": {"msgspec": "1.0", "psutil": "7.0"}}


def test_baseline_of_the_same_machine_and_libraries_differs_in_nothing() -> None:
    assert gate.differences(HERE | {"ratios": {"bench_a::test_b": 1.0}}, HERE) == []


@pytest.mark.parametrize(
    ("before", "lines"),
    [
        (HERE | {"machine": "4 cores"}, ["machine: 4 cores there, 2 cores here"]),
        (HERE | {"software": "CPython 2"}, ["software: CPython 2 there, CPython 3 here"]),
        (HERE | {"libraries": {"msgspec": "0.9", "psutil": "7.0"}}, ["msgspec: 0.9 there, 1.0 here"]),
        (HERE | {"libraries": {"psutil": "7.0"}}, ["msgspec: unknown there, 1.0 here"]),
        (HERE | {"libraries": HERE["libraries"] | {"isal": "1"}}, ["isal: 1 there, none here"]),
    ],
)
def test_what_a_baseline_was_made_with_elsewhere_is_named(before: dict[str, object], lines: list[str]) -> None:
    assert gate.differences(before, HERE) == lines


@pytest.mark.parametrize("arguments", [[], ["bench_budget"], ["bench_budget", "--store"]])
def test_baseline_of_another_machine_is_refused_before_anything_runs(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stored = tmp_path / "baseline.json"
    text = json.dumps({"machine": "a mainframe", "ratios": {"bench_budget::test_charges_come_and_go": 1.0}})
    stored.write_text(text, encoding="utf-8")
    monkeypatch.setattr(gate, "BASELINE", stored)
    monkeypatch.setattr(gate, "measured", lambda suites: pytest.fail("it ran"))
    assert gate.main(arguments) == 2
    told = capsys.readouterr().err
    assert "machine: a mainframe there, " in told and "`make bench-baseline`" in told
    assert stored.read_text(encoding="utf-8") == text


def test_whole_run_takes_the_place_of_a_baseline_made_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stored = tmp_path / "baseline.json"
    stored.write_text(json.dumps({"machine": "a mainframe", "ratios": {"bench_a::test_gone": 1.0}}), encoding="utf-8")
    monkeypatch.setattr(gate, "BASELINE", stored)
    monkeypatch.setattr(gate, "measured", lambda suites: {"bench_a::test_b": 2.0})
    assert gate.main(["--store"]) == 0
    made = json.loads(stored.read_text(encoding="utf-8"))
    assert made["ratios"] == {"bench_a::test_b": 2.0}
    assert made["libraries"]["psutil"] == version("psutil") and made["libraries"].keys() >= {
        "msgspec",
        "pytest-benchmark",
    }
    assert gate.main([]) == 0, "it counts where it was made"


@pytest.mark.slow
def test_suite_runs_and_is_held_against_its_own_baseline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stored = tmp_path / "baseline.json"
    monkeypatch.setattr(gate, "BASELINE", stored)
    assert gate.main(["bench_budget", "--store"]) == 0
    made = json.loads(stored.read_text(encoding="utf-8"))
    assert len(made["ratios"]) == 3
    faster = {name: ratio / 10 for name, ratio in made["ratios"].items()}
    stored.write_text(json.dumps(made | {"ratios": faster}), encoding="utf-8")
    assert gate.main(["bench_budget"]) == 1
    assert "bench_budget::test_charges_come_and_go: " in capsys.readouterr().out
