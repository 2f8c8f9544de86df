"""Benchmarks of recovery: open a store again after a close, and after the loss of its index."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import forebay
from forebay.benchmarks.calibration import AgainstFloor

MESSAGES = 20_000
BODY = bytes(256)


def closed_store(directory: Path, is_in_slices: bool) -> Path:
    with forebay.open(directory, memory_limit="64MiB", sync="never", background=False) as bay:
        queue = bay.queue("bench")
        if is_in_slices:
            queue.send_many([forebay.Message(BODY)] * MESSAGES)
        else:
            for _ in range(MESSAGES):
                queue.send(BODY)
    return directory


def open_it(directory: Path) -> None:
    with forebay.open(directory, memory_limit="64MiB", sync="never", background=False) as bay:
        assert bay.queue("bench").depth == MESSAGES


def without_index(directory: Path) -> Path:
    for index in directory.glob("*/kr-store"):
        shutil.rmtree(index)
    return directory


def test_opens_after_a_close(against_floor: AgainstFloor, tmp_path: Path) -> None:
    """Measure a whole open, whatever the number of messages."""
    store = closed_store(tmp_path / "store", is_in_slices=False)
    against_floor(1, lambda: store, open_it)


@pytest.mark.parametrize("is_in_slices", [False, True], ids=["singles", "slices"])
def test_rebuilds_the_index(against_floor: AgainstFloor, tmp_path: Path, is_in_slices: bool) -> None:
    store = closed_store(tmp_path / "store", is_in_slices)
    against_floor(MESSAGES, lambda: without_index(store), open_it)
