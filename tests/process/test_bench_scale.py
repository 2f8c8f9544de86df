"""Scale curves, at sizes that say nothing: each point comes back whole, and growth is called what it is."""

from __future__ import annotations

import platform
import re
from dataclasses import replace
from pathlib import Path

import pytest

from forebay.benchmarks import bench_scale, drawing
from forebay.benchmarks.bench_scale import main
from forebay.benchmarks.scale.figures import CPU, MEMORY, OPENING, judged
from forebay.benchmarks.scale.measuring import measure
from forebay.benchmarks.scale.picture import picture
from forebay.benchmarks.scale.point import Curve, Point, curves
from forebay.benchmarks.scale.report import Measured, report
from forebay.benchmarks.works.process import PassFailed
from forebay.dispatch.config.sizes import MIB

FACTS = {"seconds": 1.0, "cpu_seconds": 0.5, "uss_bytes": 5 * MIB, "held_bytes": 4 * MIB, "open_seconds": 0.25}


def measured(*cpu_seconds: float) -> Measured:
    points = tuple(Point("depth", 10**number, 1000, depth=10**number) for number in range(len(cpu_seconds)))
    return Measured(Curve("depth", "deep", "About.", points), [FACTS | {"cpu_seconds": cpu} for cpu in cpu_seconds])


@pytest.mark.slow
@pytest.mark.parametrize("curve", curves(deep=False), ids=lambda curve: curve.name)
def test_second_point_of_each_curve_comes_back_whole_through_a_kill(tmp_path: Path, curve: Curve) -> None:
    point = curve.points[1]
    small = replace(point, messages=2 * point.chunk_messages, depth=min(point.depth, 300))
    facts = measure(small, tmp_path)
    assert facts["seconds"] > 0 and facts["cpu_seconds"] > 0 and facts["open_seconds"] > 0
    assert 0 < facts["held_bytes"] <= 64 * MIB
    assert list(tmp_path.iterdir()) == []


def test_point_that_fails_says_so_and_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(PassFailed, match="exit code 1"):
        measure(Point("depth", 1, 256, queues=0), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_points_of_a_curve_differ_in_one_dimension_and_rise() -> None:
    for curve in curves(deep=True):
        values = [point.value for point in curve.points]
        assert values == sorted(set(values)) and len(values) >= 4
        assert all(point.messages % point.chunk_messages == 0 for point in curve.points)
    assert [point.value for point in curves(deep=True)[0].points][-1] == 10_000_000


@pytest.mark.parametrize(
    ("figures", "expected"),
    [
        ([1.0, 1.4, 1.1], "flat"),
        ([1.0, 2.0, 4.0], "less than linear"),
        ([1.0, 9.0, 95.0], "linear"),
        ([1.0, 10.0, 300.0], "more than linear"),
        ([4.0, 1.0, 2.0], "flat"),
    ],
)
def test_growth_is_called_what_it_is(figures: list[float], expected: str) -> None:
    assert judged(CPU, [1, 10, 100], figures) == expected


def test_memory_is_judged_by_what_is_allowed() -> None:
    assert judged(MEMORY, [1, 10], [1.0, 94.0]) == "within the 94 allowed"
    assert judged(MEMORY, [1, 10], [94.5, 1.0]) == "above the 94 allowed"


def test_report_has_a_row_a_point_and_a_word_a_figure() -> None:
    text = "\n".join(report(["a line"], [measured(0.001, 0.002, 0.004)]))
    assert "| 100 | 1,000 | 4 | 5 | 4 | 0.25 |" in text
    assert "* CPU µs a message: less than linear, 4 × over 100 ×" in text
    assert f"* {OPENING}: flat, 1 × over 100 ×" in text


def test_picture_has_a_panel_a_figure_and_is_the_same_twice() -> None:
    text = picture([measured(0.001, 0.002)])
    assert text.startswith("<svg") and text == picture([measured(0.001, 0.002)])
    assert text.count(": flat") + text.count(": within the 94") + text.count(": less than linear") == 3


@pytest.mark.slow
def test_command_writes_table_and_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    points = tuple(Point("size", size, 256, depth=10, body_bytes=size) for size in (16, 64))
    monkeypatch.setattr(bench_scale, "curves", lambda deep: [Curve("size", "bytes", "About.", points)])
    monkeypatch.setattr(bench_scale, "PLACE", tmp_path)
    assert main(["--write", "--dir", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert (tmp_path / "SCALE.md").read_text(encoding="utf-8") == printed
    assert (tmp_path / "scale.svg").read_text(encoding="utf-8").startswith("<svg")
    assert str(tmp_path) not in printed and platform.node() not in printed
    assert "`python benchmarks/bench_scale.py --write`" in printed
    assert re.search(r"other processes used meanwhile: \d+% of one core", printed)


def test_wrong_usage_is_exit_code_2(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit:
        main(["width"])
    assert exit.value.code == 2
    monkeypatch.setattr(drawing, "find_spec", lambda name: None)
    with pytest.raises(SystemExit) as exit:
        main(["--write"])
    assert exit.value.code == 2
    assert "forebay[tools]" in capsys.readouterr().err
