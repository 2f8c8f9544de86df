"""Purge: whatever its number goes with one small record a lane; what is in flight stays; no crash brings it back."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from compiled import interpreted
from inside import inside, open_forebay
from simulated_bay import SimulatedBay
from simulated_disk import PowerCut, SimulatedDisk
from simulated_metadata import SimulatedMetadataStore

from forebay import Closed, Consumer, Delivery, Message, StoreFull
from forebay.dispatch.config.settings import Settings
from forebay.dispatch.forebay import Forebay
from forebay.store.index.destination_lane import DestinationLane
from forebay.testing import ManualClock

ACK_BYTES = 48


def filled(count: int, body_bytes: int = 20, **fields: Any) -> SimulatedBay:
    simulated = SimulatedBay(**fields)
    simulated.queue().send_many(Message(b"%0*d" % (body_bytes, n)) for n in range(count))
    return simulated


def journal_end(simulated: SimulatedBay) -> int:
    return simulated.journal.journal_bytes


def bodies(consumer: Consumer) -> list[int]:
    """All that can be had, acknowledged."""
    found: list[int] = []
    while batch := consumer.take(1000):
        found += [int(delivery.body) for delivery in batch]
        consumer.ack(batch)
    return found


def test_purge_removes_all_and_says_how_many() -> None:
    simulated = filled(3000)
    queue = simulated.queue()
    assert queue.purge() == 3000
    assert queue.depth == queue.depth_bytes == 0
    assert queue.purge() == 0
    simulated.check()
    with queue.subscribe() as consumer:
        assert consumer.take(10) == []
    queue.send(b"1")
    with queue.subscribe() as consumer:
        assert bodies(consumer) == [1]
    simulated.check()


def test_empty_queue_writes_nothing() -> None:
    simulated = SimulatedBay()
    queue = simulated.queue()
    before = journal_end(simulated)
    assert queue.purge() == 0
    assert journal_end(simulated) == before


def test_two_hundred_thousand_messages_go_with_one_record_and_no_more_memory() -> None:
    simulated = SimulatedBay(index_cache_size="256KiB")
    queue = simulated.queue()
    queue.send_many(Message(b"") for _ in range(200_000))
    simulated.bay.checkpoint()
    before, held = journal_end(simulated), simulated.bay.statistics().memory.held_bytes
    assert queue.purge() == 200_000
    assert journal_end(simulated) - before == ACK_BYTES
    assert simulated.bay.statistics().memory.held_bytes <= held
    simulated.check()
    simulated.bay.cleanup()
    assert simulated.bay.statistics().store.data_logs == 1


def test_each_priority_is_one_record() -> None:
    simulated = SimulatedBay()
    queue = simulated.queue()
    queue.send_many(Message(b"", priority=n % 10) for n in range(500))
    before = journal_end(simulated)
    assert queue.purge() == 500
    assert journal_end(simulated) - before == 10 * ACK_BYTES


def test_other_queues_keep_theirs() -> None:
    simulated = filled(100)
    simulated.queue("prices").send(b"7")
    simulated.queue().purge()
    with simulated.queue("prices").subscribe() as consumer:
        assert bodies(consumer) == [7]


def test_what_is_in_flight_stays_and_can_be_settled() -> None:
    simulated = filled(100)
    queue = simulated.queue()
    consumer = queue.subscribe()
    batch = consumer.take(10)
    consumer.ack(batch[3:5])
    kept = [*batch[:3], *batch[5:]]
    before = journal_end(simulated)
    assert queue.purge() == 90
    assert journal_end(simulated) - before == ACK_BYTES
    simulated.check()
    assert queue.depth == 8 and consumer.take(100) == []
    consumer.ack(kept[0])
    consumer.nack(kept[5])
    assert [int(delivery.body) for delivery in consumer.take(100)] == [7]
    simulated.check()


def test_in_flight_of_several_consumers_divides_the_runs() -> None:
    simulated = filled(30)
    queue = simulated.queue()
    eager, odd = queue.subscribe(), queue.subscribe()
    taken = eager.take(20)
    eager.nack([delivery for delivery in taken if int(delivery.body) % 5])
    held = [delivery for delivery in taken if int(delivery.body) % 5 == 0]
    assert queue.purge() == 26
    assert odd.take(10) == [] and queue.depth == 4
    eager.close()
    assert bodies(odd) == [int(delivery.body) for delivery in held]
    simulated.check()


def test_parked_and_returned_messages_are_forgotten() -> None:
    simulated = filled(20)
    queue = simulated.queue()
    consumer = queue.subscribe()
    batch = consumer.take(10)
    consumer.nack(batch[:5], delay=60.0)
    consumer.nack(batch[5:8])
    assert queue.purge() == 18
    assert simulated.next_due() is None
    simulated.clock.advance(100)
    simulated.bay.step()
    assert consumer.take(10) == []
    consumer.nack(batch[8:])
    assert [delivery.attempts for delivery in consumer.take(10)] == [2, 2]
    simulated.check()


def test_what_is_parked_in_another_queue_waits_on() -> None:
    simulated = filled(1)
    prices = simulated.queue("prices")
    prices.send(b"7")
    with prices.subscribe() as consumer, simulated.queue().subscribe() as other:
        consumer.nack(consumer.take(1), delay=5.0)
        other.nack(other.take(1), delay=5.0)
        assert simulated.queue().purge() == 1
        simulated.clock.advance(6)
        assert bodies(consumer) == [7] and other.take(1) == []


def test_selectors_find_nothing_that_was_purged() -> None:
    simulated = SimulatedBay()
    queue = simulated.queue()
    queue.send_many(Message(b"%d" % n, headers={"n": n % 3}) for n in range(300))
    first, second = queue.subscribe(selector="n = 1"), queue.subscribe(selector="n < 2")
    held = first.take(1)
    assert queue.purge() == 299
    assert second.take(300) == []
    first.nack(held)
    assert bodies(second) == [1]
    queue.send(b"3", headers={"n": 1})
    assert bodies(first) + bodies(second) == [3]
    simulated.check()


def test_load_that_is_under_way_brings_nothing_back() -> None:
    """The eager loader chose messages, reads them, and meanwhile they are purged."""
    simulated = filled(400)
    simulated.reopen()
    queue = simulated.queue()
    consumer = queue.subscribe()
    [target] = simulated.lists()
    with simulated.lock:
        load = simulated.loader.begin(target, is_needed=False)
    assert load is not None
    assert queue.purge() == 400
    simulated.loader.finish(load)
    assert consumer.take(10) == [] and not target.direct
    simulated.check()
    queue.send(b"5")
    assert bodies(consumer) == [5]


def test_load_that_is_given_up_leaves_nothing_in_a_cache() -> None:
    simulated = filled(50)
    queue = simulated.queue()
    consumer = queue.subscribe()
    [target] = simulated.lists()
    with simulated.lock:
        load = simulated.loader.begin(target, is_needed=False)
    assert load is not None and load.from_cache
    queue.purge()
    with simulated.lock:
        simulated.loader.abandon(load)
    assert len(simulated.memories.common.pending_cache) == 0
    simulated.check()
    assert consumer.take(1) == []


def test_message_sent_after_a_purge_is_direct_at_once() -> None:
    simulated = filled(5000, 1000)
    queue = simulated.queue()
    queue.subscribe()
    [target] = simulated.lists()
    simulated.bay.step()
    assert target.has_supply
    queue.purge()
    queue.send(b"5")
    assert [message[2] for message in target.direct] == [b"5"] and not target.has_supply


@interpreted("replaces what compiled code has linked")
def test_many_runs_in_a_small_index_are_purged_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each run leaves a block dirty: the index takes checkpoints on the way."""
    simulated = SimulatedBay(index_cache_size="256KiB", memory_limit="8MiB")
    queue = simulated.queue()
    queue.send_many(Message(b"%d" % n) for n in range(40_000))
    keeper, others = queue.subscribe(prefetch=0), queue.subscribe(prefetch=0)
    held: list[Delivery] = []
    while batch := keeper.take(400):
        keeper.nack(batch[1:], delay=1e6)
        held.append(batch[0])
    index, store = simulated.index, simulated.store
    remove, dirty = store.message_store.acknowledge, []

    def counted(lane: DestinationLane, first: int, last: int) -> int:
        dirty.append(len(index.cache.dirty))
        return remove(lane, first, last)

    monkeypatch.setattr(store.message_store, "acknowledge", counted)
    assert queue.purge() == 40_000 - len(held)
    assert len(dirty) > 100 and max(dirty) <= 14
    simulated.check()
    assert queue.depth == len(held) > 100
    simulated.clock.advance(2e6)
    assert others.take(10) == []
    keeper.close()
    assert bodies(others) == [int(delivery.body) for delivery in held]


def test_closed_store_purges_nothing() -> None:
    simulated = filled(5)
    queue = simulated.queue()
    simulated.bay.close()
    with pytest.raises(Closed):
        queue.purge()


def test_full_disk_purges_nothing_and_loses_nothing() -> None:
    simulated = filled(5)
    queue = simulated.queue()
    consumer = queue.subscribe()
    simulated.disk.fail("write", 1, 28)
    with pytest.raises(StoreFull):
        queue.purge()
    simulated.disk.cure()
    assert bodies(consumer) == list(range(5))
    simulated.check()


@pytest.mark.parametrize("sync", ["always", "never"])
def test_purged_messages_stay_purged_after_a_kill_and_with_always_after_a_power_cut(sync: str) -> None:
    settings = Settings(background=False, memory_limit="4MiB", sync=sync)  # type: ignore[arg-type]
    disk, metadata = SimulatedDisk(), SimulatedMetadataStore()

    def opened(disk: SimulatedDisk, metadata: SimulatedMetadataStore) -> Forebay:
        return open_forebay(disk, metadata, settings, ManualClock())

    bay = opened(disk, metadata)
    queue = bay.queue("orders")
    queue.send_many(Message(b"") for _ in range(1500))
    bay.checkpoint()
    with queue.subscribe() as consumer:
        consumer.take(3)
        assert queue.purge() == 1497
        images = [(disk.crash_process(), metadata)]
        if sync == "always":
            images += [(disk.crash_power(Random(0), PowerCut.SYNCED), metadata.crash(Random(n))) for n in range(3)]
        for image, left in images:
            assert opened(image, left).queue("orders").depth == 3


def test_power_cut_at_any_call_leaves_a_purge_whole_or_undone() -> None:
    settings = Settings(background=False, memory_limit="4MiB", sync="always", max_file_length="64KiB")
    disk, metadata, random = SimulatedDisk(), SimulatedMetadataStore(), Random(3)
    allowed = {700, 2}

    def opened(disk: SimulatedDisk, metadata: SimulatedMetadataStore) -> Forebay:
        return open_forebay(disk, metadata, settings, ManualClock())

    def crash(call: str, name: str) -> None:
        for mode in (PowerCut.ANY, PowerCut.STALE, PowerCut.SYNCED, PowerCut.KEPT):
            left = opened(disk.crash_power(random, mode), metadata.crash(random))
            assert left.queue("orders").depth in allowed, (call, name, mode)
            inside(left).index._check()

    bay = opened(disk, metadata)
    queue = bay.queue("orders")
    queue.send_many(Message(bytes(300)) for _ in range(700))
    consumer = queue.subscribe()
    consumer.take(2)
    bay.checkpoint()
    disk.on_call = crash
    assert queue.purge() == 698
    allowed = {2}
    bay.cleanup()
    disk.on_call = None
    assert bay.statistics().store.data_logs < 5


@pytest.mark.parametrize("seed", range(30))
def test_random_purges_between_all_else_leave_exactly_what_is_in_flight(seed: int) -> None:
    random = Random(seed)
    simulated = SimulatedBay(seed, sync=random.choice(("always", "never")))
    queue = simulated.queue()
    selectors = random.choice(([None], [None, None], [None, "n = 1"], ["n = 1", "n > 0", None]))
    consumers = [queue.subscribe(selector=selector) for selector in selectors]
    held: list[Delivery] = []
    pending: set[int] = set()
    number = 0
    for _ in range(80):
        action = random.choice(("send", "send", "take", "take", "ack", "nack", "purge", "step"))
        if action == "send":
            numbers = range(number, number + random.choice((1, 30, 700)))
            number = numbers.stop
            priority = random.choice((4, 4, 9))
            queue.send_many(Message(b"%d" % n, headers={"n": n % 3}, priority=priority) for n in numbers)
            pending.update(numbers)
        elif action == "take":
            for delivery in random.choice(consumers).take(random.choice((1, 20))):
                assert int(delivery.body) in pending
                held.append(delivery)
        elif action in ("ack", "nack") and held:
            delivery = held.pop(random.randrange(len(held)))
            if action == "ack":
                delivery.ack()
                pending.discard(int(delivery.body))
            else:
                delivery.nack(delay=random.choice((0.0, 5.0)))
        elif action == "purge":
            in_flight = {int(delivery.body) for delivery in held}
            assert queue.purge() == len(pending) - len(in_flight)
            pending = in_flight
        else:
            simulated.clock.advance(random.choice((0.1, 3.0)))
            simulated.bay.step()
        assert queue.depth == len(pending)
        simulated.check()
    for consumer in consumers:
        consumer.close()
    simulated.clock.advance(10)
    with queue.subscribe(prefetch=0) as consumer:
        assert sorted(bodies(consumer)) == sorted(pending)
