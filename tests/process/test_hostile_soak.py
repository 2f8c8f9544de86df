"""Hosts that are hostile without meaning it: they call from everywhere, or have no descriptor left for anybody.

A store in a process of its own never hangs, keeps what it confirmed, and what it refused never happened.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import hostile_program
import pytest
from hostile_program import DIGITS, open_store
from inside import inside

FIRST_SEED = int(os.environ.get("FOREBAY_SEED", "1"))
ROUNDS = int(os.environ.get("FOREBAY_HOSTILE_ROUNDS", "200"))
PATIENCE_SECONDS = float(os.environ.get("FOREBAY_PATIENCE_SECONDS", "60"))
PROGRAM = Path(hostile_program.__file__)
KINDS = ("nested", "short")


def run(kind: str, directory: Path, seed: int, seconds: float) -> None:
    """One process, and what it left."""
    facts = directory / "facts.json"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(PROGRAM.parent), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-P", str(PROGRAM), kind, str(directory / "store"), str(seed), str(seconds), str(facts)]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        output, _ = process.communicate(timeout=seconds + PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGABRT)  # it tells where each thread is
        output, _ = process.communicate()
        raise AssertionError(f"seed {seed} hangs\n{output}") from None
    assert process.returncode == 0, f"seed {seed}\n{output}"
    # An error that the interpreter could only print. Without descriptors background work logs its own.
    assert kind == "short" or "Traceback" not in output, f"seed {seed}\n{output}"
    told = json.loads(facts.read_text())
    assert not told["problems"], f"seed {seed}: {told['problems']}"
    assert told["sent"]
    compare(directory, seed, set(told["must"]), set(told["may"]))


def compare(directory: Path, seed: int, must: set[int], may: set[int]) -> None:
    """The next process finds what was confirmed, each message once, and nothing that was refused or settled."""
    with open_store(str(directory / "store"), background=False) as bay:
        assert bay.recovery.damaged == () and not bay.recovery.truncated_bytes
        inside(bay).check()
        found: list[int] = []
        for name in bay.destinations():
            depth = bay.queue(name).depth
            browsed = sorted(int(message.body[:DIGITS]) for message in bay.queue(name).browse())
            assert depth == len(browsed), f"seed {seed}, {name}: depth {depth}, {len(browsed)} browsed"
            with bay.queue(name).subscribe(prefetch=0) as consumer:
                taken: list[int] = []
                while deliveries := consumer.take(1000):
                    taken += [int(delivery.body[:DIGITS]) for delivery in deliveries]
                    consumer.ack(deliveries)
            assert sorted(taken) == browsed
            found += taken
    assert len(set(found)) == len(found), f"seed {seed}: delivered twice"
    assert must <= set(found) <= may, f"seed {seed}: missing {must - set(found)}, strange {set(found) - may}"


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_hostile_host_hangs_nothing_and_loses_nothing(kind: str, tmp_path: Path) -> None:
    for seed in (1, 2):
        run(kind, tmp_path, seed, 1.0)


@pytest.mark.soak
@pytest.mark.parametrize("kind", KINDS)
def test_soak_of_hostile_hosts(kind: str, tmp_path: Path) -> None:
    """FOREBAY_SEED draws others than the last time, FOREBAY_HOSTILE_ROUNDS says how many."""
    for seed in range(FIRST_SEED + 1_000, FIRST_SEED + 1_000 + ROUNDS):
        run(kind, tmp_path, seed, 3.0)
