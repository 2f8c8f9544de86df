"""The benchmark of the pipeline runs, over journals that are small."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from forebay.dispatch.config.sizes import MIB
from forebay.pipeline import local

pytest.importorskip("pyspark")

from forebay.benchmarks import bench_pipeline  # noqa: E402
from forebay.benchmarks.ready_made import ready_made  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_figures_come_from_journals_that_are_whole(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench_pipeline, "GIB", MIB)
    monkeypatch.setattr(bench_pipeline, "CURVE_GIB", (1, 2, 3))
    monkeypatch.setattr(bench_pipeline, "WARMING_ROUNDS", 1)
    brokers = bench_pipeline.made(tmp_path, 2)
    assert bench_pipeline.made(tmp_path, 2) == brokers
    assert local.check(brokers) == []
    pending = {row.broker: row.messages for row in local.backlog(brokers)}
    assert pending == {f"broker-0{n}": MIB // bench_pipeline.RECORD_BYTES for n in range(3)}
    lines = list(bench_pipeline.report(spark, brokers, 2, 1))
    assert [line.split("|")[1].strip() for line in lines if "MiB" not in line and line.startswith("| `")] == [
        "`facts`, all columns",
        "`check`",
        "`rebuild_index`",
        *["`facts`, 7 columns"] * 3,
    ]
    assert sum(line.startswith("- ") for line in lines) == 7
    rows = ready_made(spark, brokers[0], bench_pipeline.FACTS_COLUMNS, 2000, 2)
    assert rows.count() >= 2000 and rows.distinct().count() <= 1000
