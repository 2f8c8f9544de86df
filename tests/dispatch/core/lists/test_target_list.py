"""TargetLists: their places, the memory they share with the caches, and the order in which they give it back."""

from __future__ import annotations

import pytest
from compiled import interpreted
from counting import counted_calls
from simulated_bay import SimulatedBay

from forebay import Message
from forebay.cache.accounting import shares
from forebay.cache.accounting.charge import OVERHEAD_BYTES, charge_of
from forebay.cache.accounting.shares import HIGH_WATERMARK_BYTES_MIN, TARGET_LISTS_SHARE, high_watermark_bytes
from forebay.dispatch.core.destinations.queue_state import QueueState
from forebay.dispatch.core.lanes.persistent_lane_state import PersistentLaneState
from forebay.dispatch.core.model.destination import SelectorGroup, TargetList
from forebay.store.stored_message import StoredMessage

MIB = 1024 * 1024
KIB = 1024
BODY = bytes(KIB)


def message(sequence: int) -> StoredMessage:
    return sequence, b"", b"body", 0


def list_of(bay: SimulatedBay, direct: list[int], references: list[int], frontier: int) -> TargetList:
    """A list that stands alone."""
    queue = QueueState(bay.destination_state_parts, 1, "orders")
    lane = PersistentLaneState(queue, bay.index.ensure_lane(1, 4), "")
    bay.list_registry.on_lane_gone(lane)  # of a queue that no audit finds
    lane.published_end = 1000
    target = TargetList(lane, SelectorGroup(None), bay.consumer_memory)
    target.move_high_watermark(MIB, 1.0)
    for sequence in direct:
        target.append(message(sequence), charge_of(message(sequence)))
    for sequence in references:
        target.references.add(sequence, sequence)
    target.frontier = frontier
    target._check()
    return target


def direct(target: TargetList) -> list[int]:
    return [entry[0] for entry in target.direct]


# The list alone.


@pytest.mark.parametrize(
    ("direct", "references", "frontier", "end"),
    [([5, 6], [9], 20, 5), ([], [9, 10], 20, 9), ([], [], 20, 20), ([], [], 0, 0)],
)
def test_passed_end_is_the_first_place_that_nobody_has_passed(
    direct: list[int], references: list[int], frontier: int, end: int
) -> None:
    assert list_of(SimulatedBay(), direct, references, frontier).passed_end == end


def test_the_last_direct_message_becomes_the_first_reference() -> None:
    target = list_of(SimulatedBay(), [1, 2, 3], [7, 8], 20)
    assert target.evict_last() == message(3)
    assert direct(target) == [1, 2]
    assert list(target.references) == [(3, 3), (7, 8)]
    target._check()


def test_what_came_back_stands_before_what_has_not_gone_out_and_between_what_came_back_earlier() -> None:
    target = list_of(SimulatedBay(), [10, 11], [], 20)
    target.put_back([message(3), message(7)])
    target.put_back([message(5)])
    target.put_back([message(1), message(8)])
    assert direct(target) == [1, 3, 5, 7, 8, 10, 11]
    target._check()


def test_what_was_passed_stays_passed_while_something_that_came_back_stands_in_front() -> None:
    target = list_of(SimulatedBay(), [10, 11], [], 20)
    target.put_back([message(3)])
    assert target.passed_end == 10
    target.direct.clear()
    assert target.passed_end == 20


def test_before_returned_counts_what_may_be_handed_out_first() -> None:
    target = list_of(SimulatedBay(), [3, 5, 10, 11], [], 20)
    target.returned.add(7, 8)
    assert target.before_returned == 2
    target.returned.add(1, 1)
    assert target.before_returned == 0


def test_a_contiguous_backlog_costs_one_run_however_deep_it_is() -> None:
    target = list_of(SimulatedBay(), [], [], 10_000_000)
    before_bytes = target.held_bytes
    target.references.add(0, 9_999_999)
    assert target.held_bytes - before_bytes == 16


# The high watermark.


def test_an_unmeasured_list_may_hold_its_fair_share() -> None:
    share = int(64 * MIB * TARGET_LISTS_SHARE)
    assert high_watermark_bytes(64 * MIB, 1, None) == share
    assert high_watermark_bytes(64 * MIB, 3, None) == share // 3


def test_a_measured_list_may_hold_four_seconds_of_supply_within_its_share() -> None:
    assert high_watermark_bytes(64 * MIB, 1, MIB) == 4 * MIB
    assert high_watermark_bytes(64 * MIB, 1, 1.0) == HIGH_WATERMARK_BYTES_MIN
    assert high_watermark_bytes(64 * MIB, 1, 1e12) == int(64 * MIB * TARGET_LISTS_SHARE)
    assert high_watermark_bytes(4 * MIB, 100, 1e12) == int(4 * MIB * TARGET_LISTS_SHARE) // 100


def test_the_shares_of_memory_leave_room_for_each_other() -> None:
    assert shares.DISPATCH_AREA_SHARE < shares.IN_FLIGHT_SHARE < 1
    assert shares.HEAD_QUEUE_CACHE_SHARE <= 0.5 and shares.PENDING_CACHE_SHARE <= 1
    assert shares.LARGE_MESSAGE_SHARE < shares.TARGET_LISTS_SHARE


def test_a_high_watermark_follows_the_rate_at_which_its_consumers_take() -> None:
    bay = SimulatedBay(memory_limit="64MiB")
    queue = bay.queue()
    queue.send_many(Message(BODY) for _ in range(3000))
    consumer = queue.subscribe()
    bay.bay.step()
    unmeasured = consumer.statistics().high_watermark_bytes
    consumer.ack(consumer.take(500))
    bay.clock.advance(1.0)
    bay.bay.step()
    assert consumer.statistics().high_watermark_bytes == 4 * 500 * (KIB + OVERHEAD_BYTES) < unmeasured


def test_a_watermark_that_falls_turns_the_far_end_into_references_and_drops_nothing() -> None:
    bay = SimulatedBay(memory_limit="64MiB")
    queue = bay.queue()
    consumer = queue.subscribe()
    ids = queue.send_many(Message(BODY) for _ in range(4000))
    assert consumer.statistics().direct_entries == 4000
    deliveries = consumer.take(1)
    bay.clock.advance(1.0)
    bay.bay.step()
    after = consumer.statistics()
    assert after.watermark_bytes <= after.high_watermark_bytes == HIGH_WATERMARK_BYTES_MIN
    assert after.direct_entries + after.references == 3999
    bay.check()
    while len(deliveries) < 4000:
        consumer.prefetch = 4000
        deliveries += consumer.take(1000)
    assert [delivery.id for delivery in deliveries] == ids


# Memory between lists and caches.


def test_messages_above_the_watermark_overflow_into_the_pending_cache() -> None:
    bay = SimulatedBay(memory_limit="16MiB")
    queue = bay.queue()
    consumer = queue.subscribe()
    queue.send_many(Message(BODY) for _ in range(6000))
    statistics = consumer.statistics()
    assert 0 < statistics.watermark_bytes <= statistics.high_watermark_bytes
    assert bay.bay.statistics().memory.holders["pending_cache"] > 0
    bay.check()


def overflow_reads(bay: SimulatedBay) -> int:
    """A burst of 9 MiB into a 64 MiB store whose list may hold less; reads of the disk while all is delivered."""
    queue = bay.queue()
    consumer = queue.subscribe(prefetch=0)
    queue.send(BODY)
    consumer.ack(consumer.take(1))
    bay.clock.advance(1.0)
    bay.bay.step()
    queue.send_many(Message(BODY) for _ in range(6000))
    assert consumer.statistics().watermark_bytes < MIB
    before = bay.reads
    taken = 0
    while deliveries := consumer.take(100):
        taken += len(deliveries)
        consumer.ack(deliveries)
        bay.bay.step()
    assert taken == 6000
    return bay.reads - before


def test_the_overflow_of_a_burst_is_delivered_again_without_a_disk_read() -> None:
    assert overflow_reads(SimulatedBay(memory_limit="64MiB")) == 0


@interpreted("replaces what compiled code has linked")
def test_without_the_pending_cache_the_overflow_of_a_burst_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forebay.cache.accounting.shares.PENDING_CACHE_SHARE", 0.0)
    assert overflow_reads(SimulatedBay(memory_limit="64MiB")) > 20


def late_consumer_reads(bay: SimulatedBay) -> int:
    """Reads of the disk for the first 1,000 deliveries of a consumer that comes after 4,000 messages."""
    queue = bay.queue()
    ids = queue.send_many(Message(BODY) for _ in range(4000))
    before = bay.reads
    with queue.subscribe(prefetch=0) as consumer:
        deliveries = consumer.take(1000)
        while len(deliveries) < 1000:
            deliveries += consumer.take(1000 - len(deliveries))
        assert [delivery.id for delivery in deliveries] == ids[:1000]
        assert all(delivery.body == BODY for delivery in deliveries)
        return bay.reads - before


def test_the_first_thousand_deliveries_of_a_late_consumer_come_without_a_disk_read() -> None:
    assert late_consumer_reads(SimulatedBay(memory_limit="16MiB")) == 0


@interpreted("replaces what compiled code has linked")
def test_without_the_head_queue_cache_a_late_consumer_reads_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forebay.cache.accounting.shares.HEAD_QUEUE_CACHE_SHARE", 0.0)
    assert late_consumer_reads(SimulatedBay(memory_limit="16MiB")) > 3


def test_the_head_queue_cache_empties_as_its_messages_are_taken_over() -> None:
    bay = SimulatedBay(memory_limit="16MiB")
    queue = bay.queue()
    queue.send_many(Message(BODY) for _ in range(1000))
    assert bay.bay.statistics().memory.holders["head_queue_cache"] == 1000 * (KIB + OVERHEAD_BYTES)
    with queue.subscribe(prefetch=0) as consumer:
        while deliveries := consumer.take(100):
            consumer.ack(deliveries)
        assert bay.bay.statistics().memory.holders["head_queue_cache"] == 0


def test_what_a_closed_consumer_had_before_it_stays_in_ram_for_the_next_one() -> None:
    bay = SimulatedBay(memory_limit="16MiB")
    queue = bay.queue()
    with queue.subscribe() as first:
        ids = queue.send_many(Message(BODY) for _ in range(500))
        first.take(10)
    before = bay.reads
    with queue.subscribe() as second:
        deliveries = second.take(500)
        while len(deliveries) < 500:
            deliveries += second.take(500)
        assert [delivery.id for delivery in deliveries] == ids
    assert bay.reads == before
    bay.check()


def held_by(bay: SimulatedBay) -> tuple[int, int, int]:
    holders = bay.bay.statistics().memory.holders
    return holders["head_queue_cache"], holders["pending_cache"], holders["target_lists"]


def test_memory_is_given_back_by_head_queue_cache_then_pending_cache_then_the_fullest_list() -> None:
    bay = SimulatedBay(memory_limit="16MiB")
    idle, overflowing, poor = bay.queue("idle"), bay.queue("overflowing"), bay.queue("poor")
    rich_consumer, poor_consumer = overflowing.subscribe(), poor.subscribe()
    poor.send_many(Message(BODY) for _ in range(10))
    overflowing.send_many(Message(BODY) for _ in range(6000))
    idle.send_many(Message(BODY) for _ in range(500))
    head, pending, lists = held_by(bay)
    assert head and pending and lists
    reclaim, budget = bay.reclaim, bay.budget
    keep = list_of(bay, [], [], 0)

    reclaim.make_room(budget.free_bytes + head // 2, keep)
    assert held_by(bay)[0] < head and held_by(bay)[1:] == (pending, lists)
    reclaim.make_room(budget.free_bytes + held_by(bay)[0] + pending // 2, keep)
    assert held_by(bay)[0] == 0 and held_by(bay)[1] < pending and held_by(bay)[2] == lists
    reclaim.make_room(budget.free_bytes + held_by(bay)[1] + lists // 2, keep)
    assert held_by(bay)[:2] == (0, 0) and held_by(bay)[2] < lists
    assert poor_consumer.statistics().direct_entries == 10, "the list with little is left alone"
    reclaim.make_room(budget.limit_bytes, keep)
    assert poor_consumer.statistics().direct_entries == rich_consumer.statistics().direct_entries == 1
    bay.check()


def test_the_list_that_room_is_made_for_keeps_what_it_has() -> None:
    bay = SimulatedBay()
    queue = bay.queue()
    consumer = queue.subscribe()
    queue.send_many(Message(BODY) for _ in range(100))
    (target,) = bay.lists()
    bay.reclaim.make_room(bay.budget.limit_bytes, target)
    assert consumer.statistics().direct_entries == 100


def test_an_overflow_behind_a_gap_is_not_kept_for_the_loader_comes_late() -> None:
    bay = SimulatedBay(memory_limit="16MiB")
    queue = bay.queue()
    consumer = queue.subscribe(prefetch=0)
    queue.send_many(Message(BODY) for _ in range(10_000))
    assert consumer.statistics().direct_entries and held_by(bay)[1] > 0
    bay.reclaim.make_room(bay.budget.free_bytes + held_by(bay)[1], list_of(bay, [], [], 0))
    assert held_by(bay)[1] == 0
    queue.send(BODY)
    queue.send_many([Message(BODY)] * 10)
    assert held_by(bay)[1] == 0
    while deliveries := consumer.take(1000):
        consumer.ack(deliveries)
        bay.bay.step()
    queue.send_many(Message(BODY) for _ in range(10_000))
    assert held_by(bay)[1] > 0, "without a gap it is kept again"
    bay.check()


def test_no_cache_keeps_a_message_that_another_selector_group_has_taken() -> None:
    bay = SimulatedBay()
    queue = bay.queue()
    everything, few = queue.subscribe(), queue.subscribe(selector="n = 0")
    for _ in range(30):
        queue.send_many(Message(BODY, {"n": n % 2}) for n in range(100))
        while deliveries := everything.take(50):
            everything.ack(deliveries)
    assert few.take(10) == []
    assert queue.depth == 0
    assert held_by(bay)[:2] == (0, 0)
    bay.check()


def test_messages_that_a_selector_does_not_want_leave_the_pending_cache_to_others() -> None:
    bay = SimulatedBay(memory_limit="16MiB")
    queue = bay.queue()
    queue.send_many(Message(BODY, {"n": 1}) for _ in range(2000))
    with queue.subscribe(selector="n = 0") as consumer:
        for _ in range(30):
            assert consumer.take(10) == []
            bay.bay.step()
        assert held_by(bay)[1] == 0
    bay.check()


@interpreted("counts calls of Python functions")
def test_making_room_costs_the_same_for_each_of_few_and_of_many_lists() -> None:
    def calls_a_list(lists: int) -> float:
        bay = SimulatedBay(memory_limit="64MiB")
        for number in range(lists):
            queue = bay.queue(f"q{number}")
            queue.subscribe()
            queue.send_many([Message(b"x")] * 3)
        with counted_calls() as calls:
            bay.reclaim.make_room(bay.budget.free_bytes + bay.dispatch_area.lists_holder.held_bytes // 2, None)
        assert sum(len(target.direct) for target in bay.watermarks.lists) <= lists * 3 / 2
        bay.check()
        return calls.total() / lists

    assert calls_a_list(400) < 1.5 * calls_a_list(50)


# What a list shares, and for how long.


@pytest.mark.parametrize("persistent", [True, False])
def test_once_a_selector_consumer_has_gone_an_empty_list_hands_out_without_claims_again(persistent: bool) -> None:
    bay = SimulatedBay()
    queue = bay.queue("orders")
    consumer = queue.subscribe()
    other = queue.subscribe(selector="part = 1")
    queue.send_many([Message(BODY, {"part": part % 2}, persistent=persistent) for part in range(8)])
    bay.bay.step()
    held = other.take(2)
    target = next(target for target in bay.lists() if target.selector_group.selector is None and target.direct)
    assert target.needs_claims
    other.close()  # its two deliveries come back
    assert target.needs_claims, "the list may still name what the other one has acknowledged"
    got: list[object] = []
    while len(got) < 8:
        bay.bay.step()
        got += [delivery.id for delivery in consumer.take(3)]
    assert len(set(got)) == 8 and {delivery.id for delivery in held} <= set(got)
    assert not target.needs_claims
    for again in range(2):
        queue.send(b"new", persistent=persistent)
        [delivery] = consumer.take(1)
        assert delivery.body == b"new", again
    bay.check()


def test_a_list_needs_claims_again_when_a_second_selector_consumer_comes() -> None:
    bay = SimulatedBay()
    queue = bay.queue("orders")
    consumer = queue.subscribe()
    for _ in range(2):
        other = queue.subscribe(selector="part = 1")
        queue.send_many([Message(BODY, {"part": 1}), Message(BODY, {"part": 0})])
        [mine] = other.take(1)
        assert [delivery.headers["part"] for delivery in consumer.take(2)] == [0]
        target = next(target for target in bay.lists() if target.selector_group.selector is None)
        assert target.needs_claims
        other.ack(mine)
        other.close()
        queue.send(BODY)
        assert len(consumer.take(2)) == 1
        assert not target.needs_claims
    bay.check()


def test_what_a_selector_consumer_has_delayed_comes_back_once_to_a_list_that_needs_no_claims_any_more() -> None:
    bay = SimulatedBay()
    queue = bay.queue("orders")
    consumer = queue.subscribe()
    other = queue.subscribe(selector="part = 1")
    queue.send_many([Message(BODY, {"part": 1}), Message(BODY, {"part": 0})])
    [delayed] = other.take(1)
    other.nack(delayed, delay=60)
    other.close()
    target = next(target for target in bay.lists())
    assert [delivery.headers["part"] for delivery in consumer.take(2)] == [0]
    assert not target.needs_claims
    bay.clock.advance(61)
    bay.bay.step()
    assert [delivery.headers["part"] for delivery in consumer.take(2)] == [1]
    assert not consumer.take(1)
    bay.check()
