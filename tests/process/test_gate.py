"""The gate: a structure that got slower is named, whatever the machine."""

from __future__ import annotations

import ast
import json
from pathlib import Path

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


@pytest.mark.slow
def test_suite_runs_and_is_held_against_its_own_baseline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stored = tmp_path / "baseline.json"
    monkeypatch.setattr(gate, "BASELINE", stored)
    assert gate.main(["bench_budget", "--store"]) == 0
    ratios = json.loads(stored.read_text(encoding="utf-8"))["ratios"]
    assert len(ratios) == 3
    stored.write_text(json.dumps({"ratios": {name: ratio / 10 for name, ratio in ratios.items()}}), encoding="utf-8")
    assert gate.main(["bench_budget"]) == 1
    assert "bench_budget::test_charges_come_and_go: " in capsys.readouterr().out
