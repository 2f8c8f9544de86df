"""Fixtures for the benchmarks of the structures, which measure in units of the floor.

Every figure is CPU time over that of the floor just before and just after. A slow machine makes both longer, and other
processes change neither. Only a slower structure makes the ratio larger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

import forebay
from forebay.benchmarks.calibration import AgainstFloor, State, floor_seconds

ROUNDS: Final = 9


@pytest.fixture
def against_floor(benchmark: BenchmarkFixture) -> AgainstFloor:
    """Return a function that measures one benchmark and notes the floor for gate.py."""

    def measure(operations: int, make: Callable[[], State], work: Callable[[State], Any]) -> None:
        before = floor_seconds()
        benchmark.pedantic(  # type: ignore[no-untyped-call]
            work, setup=lambda: ((make(),), {}), rounds=ROUNDS, warmup_rounds=1
        )
        benchmark.extra_info["operations"] = operations
        benchmark.extra_info["floor_seconds"] = min(before, floor_seconds())

    return measure


@pytest.fixture
def bay(tmp_path: Path) -> Iterator[forebay.Forebay]:
    """Yield a store without threads of its own, so that all CPU time is that of the calls."""
    with forebay.open(tmp_path / "store", memory_limit="64MiB", sync="never", background=False) as opened:
        yield opened
