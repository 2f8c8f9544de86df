"""The two caches, the lists and what is in flight share one amount of memory, and give back in one order."""

from __future__ import annotations

from random import Random

import pytest
from simulated_bay import SimulatedBay

from forebay import Message

KIB = 1024
ORDER = ("head_queue_cache", "pending_cache", "target_lists")


def fill(bay: SimulatedBay, count: int, name: str = "orders", size: int = 600) -> None:
    bay.queue(name).send_many(Message(bytes(size)) for _ in range(count))


def held(bay: SimulatedBay) -> list[int]:
    holders = bay.bay.statistics().memory.holders
    return [holders[name] for name in ORDER]


def full_bay() -> SimulatedBay:
    """Something in both caches and in a list."""
    bay = SimulatedBay(memory_limit="16MiB")
    fill(bay, 1000, "idle")
    consumer = bay.queue().subscribe()
    fill(bay, 1000)
    consumer.ack(consumer.take(10))
    bay.clock.advance(1.0)
    bay.housekeep()
    assert all(held(bay))
    return bay


def test_memory_is_given_back_in_a_fixed_order() -> None:
    bay = full_bay()
    reclaim, budget = bay.reclaim, bay.budget
    for at, name in enumerate(ORDER):
        before = held(bay)
        reclaim.make_room(budget.free_bytes + before[at] // 2, None)
        after = held(bay)
        assert before[at] // 4 < after[at] < before[at], name
        assert after[at + 1 :] == before[at + 1 :], f"before {name} is empty nobody else gives"
        reclaim.make_room(budget.free_bytes + after[at], None)
        assert held(bay)[at] <= 2 * KIB, "a list keeps one message"
    bay.check()


def test_one_message_of_each_list_stays_for_a_ready_consumer() -> None:
    bay = full_bay()
    for number in range(5):
        fill(bay, 10, f"q{number}")
        bay.queue(f"q{number}").subscribe()
    bay.bay.step()
    bay.reclaim.make_room(bay.budget.limit_bytes, None)
    assert [len(target.direct) for target in bay.lists()] == [1] * 6
    bay.check()


def test_a_load_takes_what_the_caches_have_from_their_charge() -> None:
    bay = full_bay()
    before = held(bay)
    while bay.loader.step():
        pass
    (consumer,) = bay.consumers()
    while consumer.statistics().references and (deliveries := consumer.take(50)):
        consumer.ack(deliveries)
        bay.loader.step()
    assert held(bay)[1] == 0 and before[1] > 0
    bay.check()


def test_a_message_is_in_one_cache_only() -> None:
    bay = full_bay()
    for lane in (bay.queue_state(name).lanes[4] for name in ("orders", "idle")):
        assert lane is not None
        for sequence in range(lane.published_end):
            found = [cache.peek(lane.pending_lane.number, sequence) is not None for cache in lane.caches]
            found.append(
                any(message[0] == sequence for t in bay.watermarks.lists if t.lane is lane for message in t.direct)
            )
            assert sum(found) <= 1


@pytest.mark.parametrize("seed", range(5))
def test_whatever_grows_the_sum_stays_below_the_limit(seed: int) -> None:
    random = Random(seed)
    bay = SimulatedBay(seed, memory_limit="4MiB")
    consumers = [bay.queue(f"q{number}").subscribe(prefetch=0) for number in range(3)]
    bodies_max = bay.dispatch_area.dispatch_bytes_max
    for _ in range(300):
        fill(bay, random.randrange(1, 40), f"q{random.randrange(6)}", random.randrange(8 * KIB))
        consumer = random.choice(consumers)
        deliveries = consumer.take(random.randrange(1, 60))
        if random.random() < 0.6:
            consumer.ack(deliveries)
        if random.random() < 0.3:
            bay.clock.advance(0.5)
            bay.bay.step()
        if random.random() < 0.02:
            bay.reopen()
            consumers = [bay.queue(f"q{number}").subscribe(prefetch=0) for number in range(3)]
        memory = bay.bay.statistics().memory
        assert sum(memory.holders.values()) == memory.held_bytes <= memory.limit_bytes
        bodies = sum(
            len(delivery.held_body)
            for target in bay.lists()
            for delivery in target.lane.deliveries.values()
            if delivery.held_body is not None
        )
        assert bodies <= bodies_max, "bodies handed out hold at most half of what the fixed parts leave"
    bay.check()


def test_small_messages_that_leave_ram_one_by_one_take_little_memory_for_their_places() -> None:
    bay = SimulatedBay(memory_limit="4MiB")
    for number in range(3):
        bay.queue(f"q{number}").subscribe()
    fill_non_persistent(bay, 12, 1_000)
    bay.check()
    spilled = bay.bay.statistics().tmp_storage.messages
    assert spilled > 5_000
    assert bay.bay.statistics().memory.holders["tmp_storage"] < 40 * spilled


def test_many_queues_of_few_small_messages_do_not_use_up_what_their_places_are_paid_from() -> None:
    bay = SimulatedBay(memory_limit="8MiB")
    queues = [bay.queue(f"q{number}") for number in range(400)]
    consumers = [queue.subscribe() for queue in queues]
    for _ in range(40):
        for queue in queues:
            queue.send(b"16 bytes of body", persistent=False)
    bay.check()
    assert bay.bay.statistics().tmp_storage.messages > 5_000
    for consumer in consumers:
        taken = 0
        while deliveries := consumer.take(40):
            consumer.ack(deliveries)
            taken += len(deliveries)
        assert taken == 40
    bay.check()


def fill_non_persistent(bay: SimulatedBay, rounds: int, count: int) -> None:
    for number in range(rounds):
        bay.queue(f"q{number % 4}").send_many(Message(b"16 bytes of body", persistent=False) for _ in range(count))
