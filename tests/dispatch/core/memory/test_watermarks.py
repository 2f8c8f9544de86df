"""Watermarks that move: bytes go where they save the most misses."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
from delivering import fill
from inside import inside
from simulated_bay import SimulatedBay
from watermark_traffic import MESSAGE_BYTES, RULES, TRAFFICS, miss_share

import forebay
from forebay import Message
from forebay.cache.accounting.charge import OVERHEAD_BYTES
from forebay.cache.accounting.shares import HIGH_WATERMARK_BYTES_MIN, TARGET_LISTS_SHARE, high_watermarks

KIB = 1024
MIB = 1024 * KIB
TAKEN = RULES["least wants first (taken)"]


# The rule.


def test_lists_that_were_not_measured_share_equally() -> None:
    share = int(64 * MIB * TARGET_LISTS_SHARE)
    assert high_watermarks(64 * MIB, [None] * 4) == [share // 4] * 4
    assert high_watermarks(64 * MIB, []) == []


def test_with_room_for_all_each_gets_four_seconds_of_supply() -> None:
    assert high_watermarks(64 * MIB, [MIB, 2 * MIB, 0.0]) == [4 * MIB, 8 * MIB, HIGH_WATERMARK_BYTES_MIN]


def test_what_the_slow_do_not_need_is_the_fast_ones() -> None:
    room = int(64 * MIB * TARGET_LISTS_SHARE)
    assert high_watermarks(64 * MIB, [100 * MIB, 0.0, MIB]) == [
        room - 4 * MIB - HIGH_WATERMARK_BYTES_MIN,
        HIGH_WATERMARK_BYTES_MIN,
        4 * MIB,
    ]
    assert high_watermarks(64 * MIB, [100 * MIB, 90 * MIB]) == [room // 2] * 2


@pytest.mark.parametrize("seed", range(50))
def test_together_they_never_want_more_than_their_part_of_the_limit(seed: int) -> None:
    random = Random(seed)
    limit_bytes = random.randrange(4 * MIB, 256 * MIB)
    rates = [random.choice((None, 0.0, random.expovariate(1 / MIB))) for _ in range(random.randrange(1, 200))]
    watermarks = high_watermarks(limit_bytes, rates)
    assert sum(watermarks) <= limit_bytes * TARGET_LISTS_SHARE
    fair = int(limit_bytes * TARGET_LISTS_SHARE) // len(rates)
    for rate, watermark in zip(rates, watermarks, strict=True):
        assert watermark >= min(fair, HIGH_WATERMARK_BYTES_MIN)
        if rate is not None:
            assert watermark >= min(fair, int(rate * 4))


# What it does.


def test_the_pressure_of_another_consumer_lowers_the_watermark_and_its_end_raises_it() -> None:
    bay = SimulatedBay(memory_limit="16MiB")
    for name in ("slow", "fast"):
        bay.queue(name).send_many(Message(bytes(16 * KIB)) for _ in range(1500))
    bay.reopen()
    slow = bay.queue("slow").subscribe(prefetch=0)
    bay.bay.step()
    alone = slow.statistics().high_watermark_bytes
    with bay.queue("fast").subscribe(prefetch=0) as fast:
        for consumer, messages in ((slow, 5), (fast, 400)):
            while messages > 0:
                deliveries = consumer.take(min(messages, 50))
                messages -= len(deliveries)
                consumer.ack(deliveries)
        bay.clock.advance(1.0)
        bay.bay.step()
        assert slow.statistics().high_watermark_bytes < fast.statistics().high_watermark_bytes
        assert slow.statistics().high_watermark_bytes < alone // 2
        assert slow.statistics().watermark_bytes <= slow.statistics().high_watermark_bytes
        bay.check()
    while deliveries := slow.take(50):
        slow.ack(deliveries)
        if slow.statistics().delivered > 700:
            break
    bay.clock.advance(1.0)
    bay.bay.step()
    assert slow.statistics().high_watermark_bytes > alone // 2
    bay.check()


def test_consumers_that_share_a_list_have_watermarks_by_how_fast_each_takes() -> None:
    bay = SimulatedBay(memory_limit="16MiB")
    queue = bay.queue()
    queue.send_many(Message(bytes(KIB)) for _ in range(4000))
    slow, fast = queue.subscribe(prefetch=0), queue.subscribe(prefetch=0)
    alone = bay.lists()[0].high_watermark_bytes
    assert [consumer.statistics().high_watermark_bytes for consumer in (slow, fast)] == [alone // 2, alone // 2]
    slow.ack(slow.take(100))
    fast.ack(fast.take(300))
    bay.clock.advance(1.0)
    bay.housekeep()
    (target,) = bay.lists()
    few, many = slow.statistics(), fast.statistics()
    assert (few.messages_per_second, many.messages_per_second) == (100, 300)
    assert few.high_watermark_bytes == pytest.approx(target.high_watermark_bytes / 4, abs=1)
    assert many.high_watermark_bytes == pytest.approx(4 * 300 * (KIB + OVERHEAD_BYTES), abs=1)
    assert few.watermark_bytes + many.watermark_bytes == pytest.approx(target.direct_bytes, abs=2)
    fast.close()
    assert slow.statistics().high_watermark_bytes == target.high_watermark_bytes
    assert fast.statistics().high_watermark_bytes == 0
    bay.check()


def test_memory_is_taken_from_the_list_with_the_most_seconds_of_supply() -> None:
    bay = SimulatedBay(memory_limit="16MiB")
    for name in ("slow", "fast"):
        bay.queue(name).send_many(Message(bytes(16 * KIB)) for _ in range(300))
    bay.reopen()
    slow, fast = (bay.queue(name).subscribe(prefetch=0) for name in ("slow", "fast"))
    bay.bay.step()
    slow.ack(slow.take(2))
    fast.ack(fast.take(40))
    bay.clock.advance(1.0)
    bay.housekeep()
    bay.bay.step()
    before = [consumer.statistics().watermark_bytes for consumer in (slow, fast)]
    assert before[1] > before[0], "the fast one's list is the fuller one"
    in_caches = (
        bay.memories.common.head_queue_cache.holder.held_bytes + bay.memories.common.pending_cache.holder.held_bytes
    )
    bay.reclaim.make_room(bay.budget.free_bytes + in_caches + before[0] // 2, None)
    after = [consumer.statistics().watermark_bytes for consumer in (slow, fast)]
    assert after[1] == before[1] and after[0] < before[0]
    bay.check()


@pytest.mark.parametrize("traffic", TRAFFICS.values(), ids=TRAFFICS)
def test_the_rule_taken_has_few_misses_whatever_the_traffic(traffic: object) -> None:
    assert miss_share(TAKEN, traffic) < 0.01  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("other", "traffic"),
    [("equal parts", "3 steps, 5 slow"), ("same seconds", "the fast one changes"), ("fastest first", "8 equal")],
)
def test_the_rule_taken_has_fewer_misses_than_the_others(other: str, traffic: str) -> None:
    assert miss_share(TAKEN, TRAFFICS[traffic]) * 2 < miss_share(RULES[other], TRAFFICS[traffic]) + 0.002


@pytest.mark.parametrize("loads_ahead", [True, False])
def test_a_backlog_of_a_hundred_times_the_memory(tmp_path: Path, loads_ahead: bool) -> None:
    """At 80 % of the loader's speed less than one delivery in a thousand is a miss, without it most are."""
    bodies = 100 * 4 * MIB // MESSAGE_BYTES
    fields: dict[str, Any] = {"memory_limit": "4MiB", "sync": "never", "background": False}
    with forebay.open(tmp_path, **fields) as bay:
        bay.queue("orders").send_many(Message(bytes(MESSAGE_BYTES)) for _ in range(bodies))
    with forebay.open(tmp_path, **fields) as bay:
        consumer = bay.queue("orders").subscribe(prefetch=0)
        parts = inside(bay)
        if loads_ahead:
            bay.step()
        most = parts.watermarks.shares.load_bytes_max * 8 // 10 // (MESSAGE_BYTES + 400)
        while deliveries := consumer.take(most):
            consumer.ack(deliveries)
            if loads_ahead:
                parts.loader.step()
        statistics = consumer.statistics()
        assert statistics.delivered == bodies
        share = statistics.misses / bodies
        assert share < 0.001 if loads_ahead else share > 0.5
        assert bay.statistics().memory.held_bytes_max <= 4 * MIB


@pytest.mark.parametrize("others", [0, 7])
@pytest.mark.parametrize(("limit", "part"), [("4MiB", 0.5), ("16MiB", 1.0)])
def test_reads_fill_a_list_to_half_of_its_high_watermark_where_memory_is_short(
    limit: str, part: float, others: int
) -> None:
    bay = SimulatedBay(memory_limit=limit)
    fill(bay, 20_000)
    bay.reopen()
    for number in range(others):  # so that one load could bring all that the list may hold
        queue = bay.queue(f"other-{number}")
        queue.send(b"")
        queue.subscribe()
    with bay.queue().subscribe():
        [target] = [target for target in bay.lists() if target.lane.pending_lane.pending_messages > 1]
        bay.bay.step()
        while bay.loader.step():
            pass
        assert 0.6 * part < target.direct_bytes / target.high_watermark_bytes <= part
