"""recommend_limits: the grid is that of `forebay plan`; a trace that cannot be played is named and keeps no other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import forebay
from forebay import Message, SettingsError
from forebay.__main__ import main
from forebay.dispatch.planning.plan import plan_file
from forebay.pipeline.bulk.tune import LimitRow, recommend_limits, recommend_limits_local

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LIMITS: list[int | str] = ["4MiB", 8 << 20, "16MiB"]


@pytest.fixture
def traces(tmp_path: Path) -> list[Path]:
    """Two recorded backlogs of 6 and 12 MiB, and a file that is no trace."""
    found = []
    for number, messages in enumerate((6_000, 12_000)):
        path = tmp_path / f"{number}.trace"
        fields = {"memory_limit": "8MiB", "sync": "never", "background": False}
        with forebay.open(tmp_path / f"data-{number}", record_trace=str(path), **fields) as bay:  # type: ignore[arg-type]
            queue = bay.queue("orders")
            with queue.subscribe() as consumer:
                queue.send_many(Message(bytes(1000)) for _ in range(messages))
                while taken := consumer.take(500):
                    consumer.ack(taken)
        found.append(path)
    (tmp_path / "none.trace").write_bytes(b"nothing" * 100)
    return [*found, tmp_path / "none.trace"]


def test_each_trace_and_limit_is_what_plan_says(traces: list[Path]) -> None:
    rows = recommend_limits_local(traces, LIMITS)
    for path in traces[:2]:
        mine = [row for row in rows if row.trace == str(path)]
        plan = plan_file(str(path), [4 << 20, 8 << 20, 16 << 20])
        assert [(row.limit_bytes, row.hits, row.reads) for row in mine] == [
            (planned.limit_bytes, planned.hits, planned.reads) for planned in plan.limits
        ]
        chosen = [row.limit_bytes for row in mine if row.is_recommended]
        assert chosen == [plan.curve.recommended_limit_bytes]
        assert mine[0].hit_ratio < mine[-1].hit_ratio  # type: ignore[operator]


def test_a_file_that_is_no_trace_has_one_row_that_says_so(traces: list[Path]) -> None:
    (row,) = [row for row in recommend_limits_local(traces, LIMITS) if row.problem is not None]
    assert row.trace == str(traces[2]) and row.limit_bytes is None and "\n" not in str(row.problem)


def test_wrong_limits_are_refused() -> None:
    for limits in ([], ["1KiB"], ["x"]):
        with pytest.raises(SettingsError, match="limits"):
            recommend_limits_local("a.trace", limits)
    with pytest.raises(SettingsError, match="no trace"):
        recommend_limits_local([], LIMITS)


def test_spark_says_what_its_twin_says(spark: SparkSession, traces: list[Path]) -> None:
    found = [LimitRow(**row.asDict()) for row in recommend_limits(spark, traces, LIMITS).collect()]
    assert found == recommend_limits_local(traces, LIMITS)


def test_the_command_line_prints_a_line_a_trace_and_limit(
    traces: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pipeline", "tune", *map(str, traces[:2]), "--limits", "4MiB, 16MiB"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["limit_bytes"] for row in rows] == [4 << 20, 16 << 20] * 2
    assert main(["pipeline", "tune", str(traces[2])]) == 1
