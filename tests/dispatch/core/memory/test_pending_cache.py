"""PendingCache: what overflows a TargetList waits in RAM for the loader."""

from __future__ import annotations

import pytest
from delivering import fill
from simulated_bay import SimulatedBay

from forebay import Message
from forebay.cache.accounting.charge import OVERHEAD_BYTES
from forebay.cache.accounting.shares import PENDING_CACHE_SHARE, near_bytes
from forebay.dispatch.core.model.destination import TargetList

KIB = 1024
BURST = 2000


def held_bytes(bay: SimulatedBay, holder: str = "pending_cache") -> int:
    return bay.bay.statistics().memory.holders[holder]


def near(target: TargetList) -> int:
    """What may wait for a list while arrivals behind a gap are kept."""
    return near_bytes(target.lane.memory.fair_list_bytes, target.high_watermark_bytes)


def slow_consumer(bay: SimulatedBay) -> None:
    """Of "orders": it took a little in the last second, so its list is low."""
    consumer = bay.queue().subscribe()
    fill(bay, 1)
    consumer.ack(consumer.take())
    bay.clock.advance(1.0)
    bay.bay.step()


def taken_by_the_slow_consumer(bay: SimulatedBay) -> list[str]:
    """Let it take everything, with a step of the loader after each batch; return the ids."""
    (consumer,) = bay.consumers()
    taken: list[str] = []
    while deliveries := consumer.take(50):
        taken += [delivery.id for delivery in deliveries]
        consumer.ack(deliveries)
        bay.loader.step()
    return taken


def test_a_bursts_overflow_is_taken_without_a_disk_read() -> None:
    bay = SimulatedBay(memory_limit="16MiB")
    slow_consumer(bay)
    reads = bay.reads
    ids = fill(bay, BURST)
    assert held_bytes(bay) > BURST * 600 // 2
    assert taken_by_the_slow_consumer(bay) == ids
    assert bay.reads == reads
    assert bay.bay.statistics().caches["pending_cache"].served > BURST // 2
    assert held_bytes(bay) == 0
    bay.check()


def test_a_bursts_overflow_is_read_where_the_cache_has_size_zero() -> None:
    bay = SimulatedBay(memory_limit="16MiB")
    slow_consumer(bay)
    bay.memories.common.pending_cache.resize(0)
    reads = bay.reads
    ids = fill(bay, BURST)
    assert held_bytes(bay) == 0
    assert taken_by_the_slow_consumer(bay) == ids
    assert bay.reads > reads
    assert bay.bay.statistics().caches["pending_cache"].served == 0
    bay.check()


def test_what_a_falling_watermark_lets_go_is_taken_without_a_disk_read() -> None:
    bay = SimulatedBay(memory_limit="16MiB")
    consumer = bay.queue().subscribe()
    ids = fill(bay, BURST)
    before = consumer.statistics()
    consumer.ack(consumer.take(10))
    bay.clock.advance(1.0)
    bay.housekeep()
    after = consumer.statistics()
    assert after.high_watermark_bytes < before.high_watermark_bytes and after.references
    assert held_bytes(bay) > 0
    reads = bay.reads
    taken: list[str] = []
    while deliveries := consumer.take(50):
        taken += [delivery.id for delivery in deliveries]
        consumer.ack(deliveries)
    assert taken == ids[10:]
    assert bay.reads == reads


def test_what_comes_back_is_taken_without_a_disk_read() -> None:
    bay = SimulatedBay(memory_limit="16MiB")
    ids = fill(bay, 100)
    consumer, other = bay.queue().subscribe(), bay.queue().subscribe()
    assert len(consumer.take(100)) == 100
    consumer.close()
    assert held_bytes(bay) > 100 * 600
    reads = bay.reads
    assert [delivery.id for delivery in other.take(100)] == ids
    assert bay.reads == reads
    bay.check()


def test_it_never_holds_more_than_its_share() -> None:
    bay = SimulatedBay(memory_limit="4MiB")
    slow_consumer(bay)
    share = bay.bay.statistics().caches["pending_cache"].share_bytes
    assert share == int(PENDING_CACHE_SHARE * bay.watermarks.shares.available_bytes) > 900 * KIB
    for _ in range(50):
        fill(bay, 100)
        assert held_bytes(bay) <= share
    assert bay.budget.free_bytes < 2 * KIB, "the list has the rest"
    bay.check()


def test_what_is_farthest_from_being_consumed_is_given_back_first() -> None:
    bay = SimulatedBay(memory_limit="16MiB")
    slow_consumer(bay)
    ids = fill(bay, BURST)
    (consumer,) = bay.consumers()
    bay.memories.common.pending_cache.give_back(held_bytes(bay) // 2)
    direct = consumer.statistics().direct_entries
    kept = bay.bay.statistics().caches["pending_cache"].messages
    reads = bay.reads
    taken: list[str] = []
    while len(taken) < direct + kept:
        deliveries = consumer.take(min(50, direct + kept - len(taken)))
        taken += [delivery.id for delivery in deliveries]
        consumer.ack(deliveries)
    assert taken == ids[: direct + kept]
    assert bay.reads == reads


def test_a_message_behind_a_gap_is_not_kept() -> None:
    bay = SimulatedBay(memory_limit="16MiB")
    fill(bay, 20 * BURST)
    bay.reopen()
    bay.queue().subscribe()
    fill(bay, 100)
    assert held_bytes(bay) == 0, "the loader must read what lies before it anyway"


@pytest.mark.parametrize("selector", [None, "JMSPriority = 4"])
@pytest.mark.parametrize("is_batch", [True, False])
def test_where_little_waits_what_arrives_while_a_list_lags_is_not_read(is_batch: bool, selector: str | None) -> None:
    """Else a consumer that keeps up with its producer is chased by the loader, one batch behind, for ever."""
    bay = SimulatedBay(memory_limit="16MiB")
    ids = fill(bay, 1000)
    bay.reopen()
    consumer = bay.queue().subscribe(selector=selector, prefetch=0)
    for _ in range(100):
        ids += fill(bay, 2) if is_batch else [bay.queue().send(bytes(600)) for _ in range(2)]
    (target,) = bay.lists()
    assert target.is_near
    while bay.loader.step():
        pass
    assert bay.bay.statistics().caches["pending_cache"].served == 200
    reads = bay.reads
    ids += fill(bay, 2)
    assert not target.has_supply, "it has caught up"
    deliveries = consumer.take(2000)
    assert [delivery.id for delivery in deliveries] == ids
    assert bay.reads == reads
    consumer.ack(deliveries)
    assert held_bytes(bay) == 0
    bay.check()


def test_where_much_waits_what_arrives_behind_a_gap_stays_a_reference() -> None:
    bay = SimulatedBay(memory_limit="16MiB")
    fill(bay, 20_000)
    bay.reopen()
    with bay.queue().subscribe():
        (target,) = bay.lists()
        assert not target.is_near
        fill(bay, 2)
        bay.queue().send(bytes(600))
        assert held_bytes(bay) == 0


def test_what_arrives_behind_a_gap_is_kept_for_a_slow_list_as_long_as_for_a_fast_one() -> None:
    """Its watermark is low because it is slow; memory has room for what waits all the same."""
    bay = SimulatedBay(memory_limit="16MiB")
    fill(bay, 5000)
    bay.reopen()
    with bay.queue().subscribe() as consumer:
        (target,) = bay.lists()
        fair_bytes = target.high_watermark_bytes
        consumer.ack(consumer.take())
        bay.clock.advance(1.0)
        bay.bay.step()
        waiting_bytes = 4999 * (600 + OVERHEAD_BYTES)
        assert 8 * target.high_watermark_bytes < waiting_bytes < fair_bytes
        before = held_bytes(bay)
        fill(bay, 2)
        bay.queue().send(bytes(600))
        assert held_bytes(bay) - before == 3 * (600 + OVERHEAD_BYTES)
        bay.check()


def test_whether_little_waits_counts_what_each_message_costs_beside_its_content() -> None:
    bay = SimulatedBay(memory_limit="16MiB")
    fill(bay, 1, size=1)
    with bay.queue().subscribe():
        (target,) = bay.lists()
        fill(bay, near(target) // (OVERHEAD_BYTES + 1) - 1, size=1)
        assert target.is_near
        fill(bay, 1, size=1)
        assert not target.is_near


def test_whether_little_waits_for_a_subscription_counts_what_was_sent_since_it_last_looked() -> None:
    bay = SimulatedBay(memory_limit="16MiB")
    topic = bay.bay.topic("news")
    with topic.subscribe(durable="slow"):
        topic.send(bytes(600))
        (target,) = bay.lists()
        while topic.send_many(Message(bytes(600)) for _ in range(1000)) and target.is_near:
            assert target.lane.published_end < 20_000
        messages, content_bytes = target.lane.pending_lane.depth
        assert content_bytes == 600 * messages
        assert content_bytes + OVERHEAD_BYTES * messages > near(target)
