"""NonPersistentLane against a plain model, and at its edges."""

from __future__ import annotations

from random import Random

import pytest
from tmp_storages import Ledger, numbered

from forebay.store.errors import StoreFull
from forebay.store.numbering import BEHIND_ALL
from forebay.store.tmp.non_persistent_lane import BLOCK_CHARGE_BYTES, NonPersistentLane


def full_lane(count: int, ledger: Ledger | None = None) -> NonPersistentLane:
    lane = NonPersistentLane(ledger or Ledger(), 1, 4)
    for _ in range(count):
        lane.add(10)
    return lane


@pytest.mark.parametrize("seed", range(5))
def test_random_operations_agree_with_a_dict(seed: int) -> None:
    random, ledger = Random(seed), Ledger()
    lane = NonPersistentLane(ledger, 3, 4)
    pending: dict[int, int] = {}
    spilled: set[int] = set()
    for step in range(4_000):
        dice = random.random()
        if dice < 0.5:
            for _ in range(random.choice((1, 1, 60))):
                length = random.randrange(5_000)
                pending[lane.add(length)] = length
        elif dice < 0.51:
            lane.skip_to(lane.next_sequence + random.choice((-3, 0, 1, 5, 400, 1_500)))
        elif dice < 0.53 and lane.next_sequence - 1 in pending and lane.next_sequence - 1 not in spilled:
            lane.retract()
            del pending[lane.next_sequence]
        elif dice < 0.6 and pending:
            first = random.choice(list(pending))
            last = first
            while last + 1 in pending and last - first < 300:
                last += 1
            lane.spilled(first, last)
            spilled.update(range(first, last + 1))
        elif dice < 0.8:
            sequence = random.randrange(lane.next_sequence + 2)
            removed, is_spilled = lane.remove_one(sequence)
            assert (removed, bool(is_spilled)) == (sequence in pending, sequence in pending and sequence in spilled)
            pending.pop(sequence, None)
        else:
            first = random.choice((0, min(pending, default=0), random.randrange(lane.next_sequence + 2)))
            last = first + random.choice((0, 10, 700))
            gone = {sequence for sequence in pending if first <= sequence <= last}
            removed, is_spilled = lane.remove(first, last)
            assert (removed, bool(is_spilled)) == (len(gone), bool(gone & spilled))
            for sequence in gone:
                del pending[sequence]
        at, most = random.randrange(lane.next_sequence + 600), random.choice((1, 7, 512))
        run = lane.pending_run(at, most)
        expected = min((sequence for sequence in pending if sequence >= at), default=None)
        assert (run[0] if run else None) == expected
        if run:
            assert run[1] - run[0] < most and run[0] >> 9 == run[1] >> 9
            assert list(lane.lengths(*run)) == [pending[sequence] for sequence in range(run[0], run[1] + 1)]
            bits = lane.unspilled(*run)
            for sequence in range(run[0], run[1] + 1):
                assert lane.is_pending(sequence)
                assert lane.is_spilled(sequence) == (sequence in spilled) != bits >> (sequence - run[0]) & 1
        if step % 100 == 0:
            lane._check()
            assert ledger.held_bytes == lane.charge_bytes
    lane.remove(0, lane.next_sequence)
    assert (lane.pending_messages, lane.pending_bytes) == (0, 0)


def test_consuming_in_order_keeps_two_blocks_at_most() -> None:
    ledger = Ledger()
    lane = NonPersistentLane(ledger, 1, 4)
    for _ in range(10_000):
        lane.remove_one(lane.add(10))
        assert ledger.held_bytes <= 2 * BLOCK_CHARGE_BYTES


def test_without_memory_for_a_block_nothing_is_added() -> None:
    lane = full_lane(512, Ledger(BLOCK_CHARGE_BYTES))
    with pytest.raises(StoreFull, match="memory_limit"):
        lane.add(10)
    assert (lane.next_sequence, lane.pending_messages) == (512, 512)
    lane._check()


def test_turns_say_how_both_kinds_lie_between_each_other() -> None:
    lane = NonPersistentLane(Ledger(), 1, 4)
    lane.add(1)
    lane.take_turn(5)
    lane.add(1)
    lane.add(1)
    lane.take_turn(6)
    lane.add(1)
    assert [lane.next_persistent(sequence) for sequence in range(4)] == [0, 5, 5, 6]
    assert [lane.next_non_persistent(sequence) for sequence in (0, 4, 5, 6, 7)] == [1, 1, 3, BEHIND_ALL, BEHIND_ALL]


def test_turns_are_forgotten_with_their_messages() -> None:
    ledger = Ledger()
    lane = NonPersistentLane(ledger, 1, 4)
    for turn in range(1, 20_000):
        lane.take_turn(turn)
        sequence = lane.add(1)
        assert lane.next_persistent(sequence) == turn
        lane.remove_one(sequence)
    assert ledger.held_bytes == lane.charge_bytes < 50_000
    lane._check()


def test_only_what_is_pending_and_nowhere_else_is_written() -> None:
    lane = full_lane(1_100)
    lane.remove_one(500)
    lane.spilled(510, 514)
    messages = numbered(490, 40)
    runs = [(run[0][0], run[-1][0]) for run in lane.only_in_ram(messages)]
    assert runs == [(490, 499), (501, 509), (515, 529)]
    assert lane.only_in_ram(messages[-10:]) == [messages[-10:]]
