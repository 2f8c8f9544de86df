"""Real signals at any moment of any call: nothing hangs, nothing confirmed is lost, or the store says that it failed.

FOREBAY_INTERRUPTIONS: how many there are in the soak; FOREBAY_SEED: the first seed.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import interrupt_program
import pytest

PROGRAM = Path(interrupt_program.__file__)
FIRST_SEED = int(os.environ.get("FOREBAY_SEED", "1"))
INTERRUPTIONS = int(os.environ.get("FOREBAY_INTERRUPTIONS", "20000"))
PART = 1000
"""Interruptions of one process."""
PATIENCE_SECONDS = float(os.environ.get("FOREBAY_PATIENCE_SECONDS", "60"))


def storm(directory: Path, seed: int, interruptions: int) -> dict[str, int]:
    """Return what a process counted that was interrupted so often."""
    command = [sys.executable, "-P", str(PROGRAM), str(directory / f"store{seed}"), str(seed), str(interruptions)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        output, errors = process.communicate(timeout=PATIENCE_SECONDS + interruptions / 10)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGABRT)  # it tells where each thread is
        _, errors = process.communicate()
        raise AssertionError(f"seed {seed} hangs\n{errors}") from None
    assert process.returncode == 0, f"seed {seed}\n{errors}"
    told = json.loads(output.splitlines()[-1])
    assert not told["problems"], f"seed {seed}: {told['problems']}\n{errors}"
    counts: dict[str, int] = told["counts"]
    assert counts["interrupted"] >= interruptions
    return counts


@pytest.mark.slow
def test_a_storm_of_interruptions_hangs_nothing_and_loses_nothing(tmp_path: Path) -> None:
    storm(tmp_path, FIRST_SEED, 600)


@pytest.mark.soak
def test_soak_of_interruptions(tmp_path: Path) -> None:
    failed = 0
    for part in range(max(1, INTERRUPTIONS // PART)):
        failed += storm(tmp_path, FIRST_SEED + part, PART).get("failed", 0)
    assert failed, "some of them break into a change"
