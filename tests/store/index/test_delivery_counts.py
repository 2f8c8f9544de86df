"""DeliveryCounts: the map of counts, its bound, and its bytes in records."""

from __future__ import annotations

from random import Random

import pytest

from forebay.store.environment.account import Unlimited
from forebay.store.format.record import RETURN, TIMED, RecordDamaged, decode_header, encode
from forebay.store.format.return_record import ReturnedRun, decode_return, delayed_returns_payload
from forebay.store.format.return_record import returns_payload as payload_of
from forebay.store.format.state_record import (
    CountedRun,
    StateRecord,
    decode_root,
    decode_state,
    encode_counts,
    encode_root,
    encode_state,
)
from forebay.store.index.delivery_counts import (
    LANE_CHARGE_BYTES,
    RUN_CHARGE_BYTES,
    RUNS_MAX,
    DeliveryCounts,
    DeliveryCountTable,
    runs_max,
)
from forebay.store.tmp.non_persistent_lane import NonPersistentLane

# ---------------------------------------------------------------------- bounds


def test_a_million_messages_returned_in_runs_take_a_few_kib() -> None:
    table = DeliveryCountTable(Unlimited())
    for n in range(1_000_000):
        table.put(4 << 4, n, n, 1)
    assert table.held_bytes == LANE_CHARGE_BYTES + RUN_CHARGE_BYTES
    for first in range(0, 1_000_000, 10_000):
        table.put(4 << 4, first, first + 4_999, 2)
    assert table.held_bytes < 6 * 1024
    table._check()


def test_runs_are_bounded_and_the_highest_counts_stay() -> None:
    table = DeliveryCountTable(Unlimited(), 100)
    for n in range(30):
        table.put(4 << 4, 1_000_000 + 10 * n, 1_000_000 + 10 * n, 5)
    for n in range(10_000):
        table.put(7 << 4, 2 * n, 2 * n, 1)
        assert table.held_bytes <= 100 * RUN_CHARGE_BYTES + 2 * LANE_CHARGE_BYTES
    table._check()
    kept = table.find(4 << 4)
    assert kept is not None and all(kept.get(1_000_000 + 10 * n) == 5 for n in range(30))


def test_counts_give_way_where_memory_pays_for_no_more() -> None:
    class Poor(Unlimited):
        def reserve(self, charge_bytes: int) -> bool:
            return self.held_bytes + charge_bytes <= 4_096 and super().reserve(charge_bytes)

    account = Poor()
    table = DeliveryCountTable(account)
    for n in range(1_000):
        table.put(4 << 4, 2 * n, 2 * n, 1 + n % 3)
        assert account.held_bytes == table.held_bytes <= 4_096
    table._check()
    table.clear()
    assert account.held_bytes == 0


def test_state_record_takes_a_small_part_of_its_data_log() -> None:
    assert runs_max(32 << 20) == RUNS_MAX
    for size in (64 << 10, 1 << 20, 32 << 20):
        table = DeliveryCountTable(Unlimited(), runs_max(size))
        for n in range(2 * runs_max(size)):
            table.put(4 << 4, 2 * n, 2 * n, 1)
        assert len(encode_state(StateRecord(delivery_counts=table.describe()))) < size // 13


# ---------------------------------------------------------------------- the map, and its bytes


def test_map_agrees_with_a_dict() -> None:
    random = Random(5)
    for _ in range(60):
        known = DeliveryCounts()
        plain: dict[int, int] = {}
        for _ in range(80):
            first = random.randrange(100)
            last = min(first + random.randrange(20), 99)
            if random.random() < 0.15:
                known.suspect(first, last)
                plain = {n: 0 for n in range(first, last + 1)} | plain
            else:
                count = random.randint(1, 3)
                known.put(first, last, count)
                plain |= dict.fromkeys(range(first, last + 1), count)
            known._check()
            assert {n: found for n in range(100) if (found := known.find(n)) is not None} == plain


def test_map_empties_with_the_last_ack_in_whatever_order() -> None:
    for seed in range(20):
        random, lane, table = Random(seed), NonPersistentLane(Unlimited(), 4, 0), DeliveryCountTable(Unlimited())
        for _ in range(200):
            lane.add(1)
        for first in range(0, 200, 20):
            table.put(lane.number, first, first + random.randrange(20), random.randint(1, 3))
        order = random.sample(range(200), 200)
        while order:
            n = order.pop()
            lane.remove(n, n)
            table.trim(lane, n, n)
            table._check()
            runs = table.find(lane.number) or ()
            assert all(lane.is_pending(run.first) for run in runs), "or what is gone is counted for ever"
        assert table.held_bytes == 0


def test_map_never_counts_beyond_its_bytes() -> None:
    known = DeliveryCounts()
    known.put(3, 5, 1_000_000)
    assert list(known) == [CountedRun(3, 5, 65_535)]


def test_return_record_and_state_come_back_as_they_were() -> None:
    runs = [ReturnedRun(7, 3, 2), ReturnedRun(1 << 40, 1, 65_535)]
    record = encode(1, 0xBAF0, 1, 0, RETURN, 4, len(runs), payload_of(9, runs))
    assert decode_return(decode_header(record), record) == (9, 4, runs, 0)
    later = [runs[0]._replace(due_at=1_700_000_000_000), runs[1]]
    record = encode(
        1, 0xBAF0, 1, 0, RETURN, 4 | TIMED, len(later), delayed_returns_payload(9, 1_600_000_000_000, later)
    )
    assert decode_return(decode_header(record), record) == (9, 4, later, 1_600_000_000_000)
    counted = {64: [CountedRun(0, 9, 1), CountedRun(12, 12, 3)], 80: [CountedRun(5, 5, 2)]}
    assert decode_state(encode_state(StateRecord(delivery_counts=counted))).delivery_counts == counted
    for state in (StateRecord(delivery_counts=counted), StateRecord(next_log_sequence=7)):
        assert decode_root(encode_root(state, encode_counts(state, [], [])))[0] == state


def test_state_without_returned_messages_has_no_byte_for_them() -> None:
    empty = encode_state(StateRecord())
    with_one = encode_state(StateRecord(delivery_counts={64: [CountedRun(0, 0, 1)]}))
    assert with_one[: len(empty)] == empty and len(with_one) > len(empty)


@pytest.mark.parametrize(
    "runs",
    [[ReturnedRun(7, 0, 2)], [ReturnedRun(7, 1, 0)]],
)
def test_return_record_that_counts_nothing_is_damage(runs: list[ReturnedRun]) -> None:
    record = encode(1, 0xBAF0, 1, 0, RETURN, 4, len(runs), payload_of(9, runs))
    with pytest.raises(RecordDamaged):
        decode_return(decode_header(record), record)
    short = encode(1, 0xBAF0, 1, 0, RETURN, 4, 2, payload_of(9, [ReturnedRun(7, 1, 1)]))
    with pytest.raises(RecordDamaged):
        decode_return(decode_header(short), short)


@pytest.mark.parametrize("run", [CountedRun(5, 4, 1), CountedRun(0, 1 << 63, 1), CountedRun(0, 0, 0)])
def test_state_with_a_run_that_cannot_be_is_damage(run: CountedRun) -> None:
    data = encode_state(StateRecord(delivery_counts={64: [run]}))
    with pytest.raises(RecordDamaged):
        decode_state(data)
    with pytest.raises(RecordDamaged):
        decode_state(encode_state(StateRecord(delivery_counts={64: [CountedRun(0, 1, 1)]}))[:-1])
