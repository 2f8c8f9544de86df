"""SpillTurns against a plain list, their memory against what Python says, and what a place costs in mixed traffic."""

from __future__ import annotations

import sys
from bisect import bisect_right
from pathlib import Path
from random import Random

import pytest

import forebay
from forebay import Message
from forebay.store.numbering import BEHIND_ALL
from forebay.store.tmp.spill_turns import SpillTurns

STEPS = {"alternating": (1, 2), "random": (1, 30), "around a byte": (250, 260), "far apart": (1, 100_000)}


def memory_bytes(turns: SpillTurns) -> int:
    columns = (turns._firsts, turns._first_sequences, turns._begins, turns._steps, turns._sequence_steps)
    return sys.getsizeof(turns) + sum(map(sys.getsizeof, columns))


@pytest.mark.parametrize("steps", STEPS)
def test_turns_agree_with_a_list(steps: str) -> None:
    low, high = STEPS[steps]
    print("seed", seed := 21)
    random, turns = Random(seed), SpillTurns()
    expected: list[tuple[int, int]] = []
    turn = sequence = 0
    for _ in range(3_000):
        turn += random.randrange(low, high)
        sequence += random.choice((0, random.randrange(low, high)))
        turns.add(turn, sequence)
        expected.append((turn, sequence))
        if random.random() < 0.01:
            forgotten = random.choice(expected[len(expected) // 2 :])[1]
            before = turns.charge_bytes
            assert turns.forget(forgotten) == before - turns.charge_bytes
            expected = expected[-len(turns) :]
            turns._check()
        firsts, sequences = [at for at, _ in expected], [at for _, at in expected]
        probe = random.randrange(sequences[0], sequence + 2)
        assert turns.next_persistent(probe) == firsts[bisect_right(sequences, probe) - 1]
        probe = random.randrange(firsts[0], turn + 2)
        at = bisect_right(firsts, probe)
        assert turns.next_non_persistent(probe) == (sequences[at] if at < len(sequences) else BEHIND_ALL)


@pytest.mark.parametrize("steps", STEPS)
def test_turns_are_charged_what_they_take(steps: str) -> None:
    low, high = STEPS[steps]
    print("seed", seed := 22)
    random, turns = Random(seed), SpillTurns()
    charged, turn, sequence = turns.charge_bytes, 0, 0
    for count in range(1, 40_001):
        turn, sequence = turn + random.randrange(low, high), sequence + random.randrange(low, high)
        charged += turns.cost(turn, sequence)
        turns.add(turn, sequence)
        if count % 500 == 0:
            memory = memory_bytes(turns)
            assert charged == turns.charge_bytes and memory <= charged <= memory * 9 / 8 + 1_024
        if count == 20_000:
            charged -= turns.forget(sequence // 3)
            assert charged == turns.charge_bytes and memory_bytes(turns) <= charged


def test_a_turn_costs_three_bytes_where_both_kinds_alternate() -> None:
    turns = SpillTurns()
    empty = turns.charge_bytes
    for turn in range(10_000):
        turns.add(turn, turn)
    assert turns.charge_bytes - empty <= 3 * 10_000


def test_a_place_costs_at_most_20_bytes_in_mixed_traffic_too(tmp_path: Path) -> None:
    places: list[float] = []
    for is_mixed in (False, True):
        with forebay.open(tmp_path / str(is_mixed), memory_limit="8MiB", sync="never", background=False) as bay:
            queue = bay.queue("load")
            for _ in range(120):
                queue.send_many([Message(b"x" * 16, persistent=is_mixed and at % 2 == 0) for at in range(500)])
            statistics = bay.statistics()
            held = statistics.memory.holders["tmp_storage"] - 28 * 1024
            places.append(held / statistics.tmp_storage.messages)
    assert places[0] <= 17 and places[1] <= 20, places
