"""Cleanup: a data log goes when nothing pending is in it and no remaining one needs its acks, and never before."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest
from message_stores import uses_of

from forebay.store.index.data_log_use import DataLogUse
from forebay.store.maintenance.removable import decision_lines, removable


def test_the_newest_stays_though_it_is_empty() -> None:
    assert removable(uses_of(log1=(0, set())), 1) == []
    assert removable(uses_of(log1=(0, set()), log2=(0, set())), 2) == [1]


def test_everything_from_the_replay_position_on_stays() -> None:
    uses = uses_of(log1=(0, set()), log2=(0, set()), log3=(0, set()), log4=(0, set()))
    assert removable(uses, 3) == [1, 2]


def test_a_pending_message_keeps_its_data_log_alone() -> None:
    assert removable(uses_of(log1=(0, set()), log2=(1, set()), log3=(0, set()), log4=(0, set())), 4) == [1, 3]


def test_an_ack_keeps_its_data_log_while_the_message_could_be_replayed() -> None:
    uses = uses_of(log1=(1, set()), log2=(0, {1}), log3=(0, set()))
    assert removable(uses, 3) == []
    uses[1].pending_messages = 0
    assert removable(uses, 3) == [1, 2]


def test_a_commit_keeps_its_data_log_while_a_message_of_the_transaction_could_be_replayed() -> None:
    uses = uses_of(log1=(1, set()), log2=(0, set(), {1}), log3=(0, {2}), log4=(0, set()))
    assert removable(uses, 4) == []
    uses[1].pending_messages = 0
    assert removable(uses, 4) == [1, 2, 3]


def test_acks_pin_in_a_chain() -> None:
    """4 holds acks for 3, 3 for 2, 2 for 1: one stuck message in 1 keeps them all, as in AMQ-2832 and AMQ-6203."""
    uses = uses_of(log1=(1, set()), log2=(0, {1}), log3=(0, {2}), log4=(0, {3}), log5=(0, set()), log6=(0, set()))
    assert removable(uses, 6) == [5]
    uses[1].pending_messages = 0
    assert removable(uses, 6) == [1, 2, 3, 4, 5]


def test_acks_for_data_logs_that_are_gone_pin_nothing() -> None:
    assert removable(uses_of(log7=(0, {1, 2, 3}), log8=(0, set())), 8) == [7]


def test_data_logs_that_only_need_each_other_go_together() -> None:
    """Messages and acks of both directions, as two queues leave them."""
    assert removable(uses_of(log1=(0, {2}), log2=(0, {1}), log3=(0, set())), 3) == [1, 2]


def test_the_sample_of_the_documentation() -> None:
    """86, 87, 163 and 164 exist and 164 is written to; 86 holds a message, 163 the ack for one of the same file."""
    uses = uses_of(log86=(1, set()), log87=(0, {85}), log163=(0, {86}), log164=(0, {87}))
    assert removable(uses, 164) == [87]


def test_steps_of_the_documented_sample_are_said_in_order() -> None:
    """As operators know the lines: a transaction in 164, a message of 0:E in 163, one of 0:J in 86, none in 87."""
    uses = uses_of(log86=(1, set()), log87=(0, {85}), log163=(1, {86}), log164=(0, {87}))
    destinations = {"0:A": (), "1:B": (), "0:D": (), "0:E": {163}, "0:H": (), "0:I": (), "0:J": {86}}
    place = (164 << 32) + 41712
    lines = decision_lines(uses, 165, {164}, last_update=place, first_transaction=place, destinations=destinations)
    assert removable(uses, 165, {164}) == [87]
    assert lines == [
        "Last update: 164:41712, full gc candidates set: [86, 87, 163, 164]",
        "gc candidates after first tx:164:41712, [86, 87, 163]",
        "gc candidates after dest:0:A, [86, 87, 163]",
        "gc candidates after dest:1:B, [86, 87, 163]",
        "gc candidates after dest:0:D, [86, 87, 163]",
        "gc candidates after dest:0:E, [86, 87]",
        "gc candidates after dest:0:H, [86, 87]",
        "gc candidates after dest:0:I, [86, 87]",
        "gc candidates after dest:0:J, [87]",
        "gc candidates: [87]",
    ]


def test_data_log_that_is_left_for_its_acks_is_said_to_be() -> None:
    uses = uses_of(log1=(1, set()), log2=(0, {1}), log3=(0, {2}), log4=(0, set()))
    lines = decision_lines(uses, 4, last_update=4 << 32, destinations={"0:A": {1}, "0:B": ()})
    assert removable(uses, 4) == []
    assert lines[-4:] == [
        "gc candidates after dest:0:B, [2, 3]",
        "not removing data log 2: it holds acks for messages in [1]",
        "not removing data log 3: it holds acks for messages in [2]",
        "gc candidates: []",
    ]


def test_transaction_without_an_outcome_keeps_its_data_logs_and_their_acks() -> None:
    uses = uses_of(log1=(0, set()), log2=(0, {1}), log3=(0, set()), log4=(0, set()))
    assert removable(uses, 4, {1}) == [3]
    assert removable(uses, 4, {9}) == [1, 2, 3]


def slowly(uses: dict[int, DataLogUse], newest: int) -> list[int]:
    """Whoever is reached from a data log that is kept, along "is acknowledged by" or "is committed by", stays."""
    reached = {data_log for data_log, use in uses.items() if data_log >= newest or use.pending_messages}
    for _ in uses:
        reached |= {
            data_log for data_log, use in uses.items() if (use.acked_data_logs | use.committed_data_logs) & reached
        }
    return sorted(set(uses) - reached)


class CountingSet(set[int]):
    """A set that counts how often its elements were read one by one."""

    reads = 0

    def __iter__(self) -> Iterator[int]:
        CountingSet.reads += 1
        return super().__iter__()


def test_a_long_chain_is_walked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of 300 data logs holds the acks for the one before it, and the first one has a message."""
    monkeypatch.setattr(CountingSet, "reads", 0)
    uses = uses_of(log0=(1, set()), **{f"log{n}": (0, {n - 1}) for n in range(1, 300)})
    for use in uses.values():
        use.acked_data_logs, use.committed_data_logs = CountingSet(use.acked_data_logs), CountingSet()
    assert removable(uses, 300) == []
    assert CountingSet.reads <= 2 * len(uses)


@pytest.mark.parametrize("seed", range(60))
def test_random_stores_agree_with_reachability(seed: int) -> None:
    random = Random(seed)
    names = range(1, random.randint(2, 14))
    uses = uses_of(
        **{
            f"log{data_log}": (
                int(random.random() < 0.2),
                {random.randint(0, 14) for _ in range(random.choice((0, 0, 1, 1, 3)))} - {data_log},
                {random.randint(0, 14) for _ in range(random.choice((0, 0, 0, 1)))} - {data_log},
            )
            for data_log in names
        }
    )
    newest = random.choice(names)
    assert removable(uses, newest) == slowly(uses, newest)
