"""A message that halts its group is charged within a bound, and still halts it after a restart."""

from __future__ import annotations

from random import Random

import pytest
from delivering import bodies
from inside import explain
from simulated_bay import SimulatedBay

from forebay import Delivery, DestinationPolicy, Message, Queue, StoreFull
from forebay.cache.accounting.budget import Budget
from forebay.dispatch.core.destinations.overhead import MESSAGE_GROUPS_BYTES
from forebay.dispatch.core.memory.message_group_memory import MessageGroupMemory
from forebay.dispatch.distribution.assigning import AssigningDistribution

ENDLESS = {">": DestinationPolicy(max_attempts=None)}
BOUND_MESSAGES = 4 * 2**20 // 16 // 384
"""Roughly what 4 MiB have room for."""


def opened(seed: int = 1, **fields: object) -> SimulatedBay:
    return SimulatedBay(seed, policies=ENDLESS, **fields)


def send_distinct(queue: Queue, messages: int) -> None:
    for first in range(0, messages, 500):
        queue.send_many([Message(b"%d" % number, group=f"g{number}") for number in range(first, first + 500)])


def delay_all(queue: Queue, most: int, seconds: float = 600.0) -> int:
    delayed = 0
    with queue.subscribe(prefetch=100) as consumer:
        while delayed < most and (deliveries := consumer.take(100)):
            consumer.nack(deliveries, delay=seconds)
            delayed += len(deliveries)
    return delayed


def place(delivery: Delivery) -> tuple[bytes, int]:
    group, number = delivery.body.split()
    return group, int(number)


def held(bay: SimulatedBay) -> int:
    return bay.bay.statistics().memory.holders["groups"]


def test_what_finds_no_room_is_owed_until_there_is_some_and_still_counts_as_held_back() -> None:
    budget = Budget(1000)
    others, memory = budget.holder("others"), MessageGroupMemory(budget.holder("groups"))
    assert others.reserve(900)
    memory.charge_halt(100)
    memory.charge_halt(300)
    memory.charge_halt(50)
    assert (memory.holder.held_bytes, memory.owed_bytes, memory.halted_bytes) == (100, 350, 450)
    memory.release_halt(50)
    assert (memory.holder.held_bytes, memory.owed_bytes, memory.halted_bytes) == (100, 300, 400)
    others.release(500)
    memory.release_halt(100)
    assert (memory.holder.held_bytes, memory.owed_bytes, memory.halted_bytes) == (300, 0, 300)
    memory.release_halt(300)
    assert (memory.holder.held_bytes, memory.owed_bytes, memory.halted_bytes) == (0, 0, 0)


def test_no_charge_takes_what_a_reserve_keeps_for_others() -> None:
    budget = Budget(1000)
    others, memory, quota = budget.holder("others"), MessageGroupMemory(budget.holder("groups")), budget.quota("kept")
    owner = budget.quota_holder("others", quota)
    quota.resize(1000, 400)
    assert others.reserve(500)
    memory.charge(100)
    memory.charge_halt(256)
    assert (memory.holder.held_bytes, memory.owed_bytes) == (100, 256)
    assert owner.reserve(400)
    others.release(300)
    memory.release(1)
    assert (memory.holder.held_bytes, memory.owed_bytes) == (355, 0)
    budget._check()


def test_groups_held_back_are_charged_and_bounded() -> None:
    bay = opened()
    send_distinct(bay.queue(), 3 * BOUND_MESSAGES)
    delayed = delay_all(bay.queue(), 3 * BOUND_MESSAGES)
    assert BOUND_MESSAGES // 2 < delayed < BOUND_MESSAGES + 200
    assert 4 * 2**20 // 16 <= held(bay) < 4 * 2**20 // 16 + 200 * 512
    bay.audit()


def test_where_no_more_groups_can_be_held_back_the_rest_waits_and_comes_in_time() -> None:
    bay = opened()
    send_distinct(bay.queue(), 2 * BOUND_MESSAGES)
    delayed = delay_all(bay.queue(), 2 * BOUND_MESSAGES)
    with bay.queue().subscribe(prefetch=0) as consumer:
        assert consumer.take(10) == []
        assert "no further group can be held back" in str(explain(consumer))
        bay.clock.advance(601.0)
        sent = bay.queue().depth
        seen: set[bytes] = set()
        while deliveries := consumer.take(100):
            seen.update(bodies(deliveries))
            consumer.ack(deliveries)
        assert len(seen) == sent > delayed
    assert bay.queue().depth == 0 and held(bay) == 0
    bay.audit()


def test_another_queue_that_waited_for_memory_is_called_when_there_is_some() -> None:
    bay = opened()
    called: list[str] = []
    full, other = bay.queue("full"), bay.queue("other")
    send_distinct(full, 2 * BOUND_MESSAGES)
    delay_all(full, 2 * BOUND_MESSAGES)
    with other.subscribe(on_ready=lambda: called.append("other")) as consumer:
        other.send(b"x", group="mine")
        called.clear()
        assert consumer.take(1) == []
        bay.clock.advance(601.0)
        bay.bay.step()
        assert called == ["other"]
        assert bodies(consumer.take(1)) == [b"x"]


@pytest.mark.parametrize("ending", ["close", "kill", "a lost index"])
def test_a_group_is_held_back_by_a_delay_that_began_before_the_process(ending: str) -> None:
    bay = opened(sync="always")
    queue = bay.queue()
    queue.send_many([Message(b"1", group="a"), Message(b"2", group="a"), Message(b"3", group="b")])
    with queue.subscribe(prefetch=1) as consumer:
        [first] = consumer.take(1)
        first.nack(delay=100.0)
    if ending == "close":
        bay.reopen()
    else:
        bay.crash(is_index_lost=ending != "kill")
    with bay.queue().subscribe() as consumer:
        assert bodies(consumer.take(10)) == [b"3"]
        bay.clock.advance(100.0)
        again = consumer.take(10)
        assert bodies(again) == [b"1", b"2"] and [delivery.attempts for delivery in again] == [2, 1]
    bay.audit()


def test_what_a_smaller_limit_has_no_room_to_hold_back_comes_back_at_once(caplog: pytest.LogCaptureFixture) -> None:
    bay = opened(memory_limit="16MiB")
    send_distinct(bay.queue(), 4 * BOUND_MESSAGES)
    delayed = delay_all(bay.queue(), 4 * BOUND_MESSAGES)
    assert delayed > 2 * BOUND_MESSAGES
    bay.bay.close()
    bay.settings_given = opened().settings_given
    bay.open_again()
    assert any("before their delay is over" in record.getMessage() for record in caplog.records)
    assert held(bay) < 4 * 2**20 // 16 + 64 * 512
    bay.audit()


def test_a_queue_pays_for_its_groups_once_and_until_it_is_deleted() -> None:
    bay = opened()
    queue = bay.queue()
    queue.send(b"of no group")
    before = bay.bay.statistics().memory.holders["destinations"]
    queue.send(b"x", group="a")
    queue.send(b"y", group="b")
    assert bay.bay.statistics().memory.holders["destinations"] == before + MESSAGE_GROUPS_BYTES
    bay.reopen()
    bay.audit()
    bay.queue().delete()
    bay.audit()


def test_a_group_that_memory_has_no_room_for_is_refused_and_nothing_is_stored() -> None:
    bay = opened()
    queues = [bay.queue(f"queue-{number}") for number in range(500)]
    with pytest.raises(StoreFull) as caught:
        for queue in queues:
            queue.send(b"x", group="a")
    assert caught.value.limit == "memory_limit"
    last = queues[-1]
    assert last.depth == 0
    last.send(b"without a group")
    bay.audit()


@pytest.mark.parametrize("seed", range(6))
def test_order_within_groups_and_every_charge_hold_through_random_delays(seed: int) -> None:
    random = Random(seed)
    bay = opened(seed, sync="always")
    sent: dict[bytes, int] = {}
    acked: set[tuple[bytes, int]] = set()
    queue = bay.queue()
    consumers = [queue.subscribe(prefetch=5) for _ in range(3)]
    in_hand: list[Delivery] = []
    for _ in range(400):
        step = random.random()
        if step < 0.3:
            group = b"g%d" % random.randrange(20)
            sent[group] = sent.get(group, 0) + 1
            queue.send(b"%s %d" % (group, sent[group]), group=group.decode(), persistent=random.random() < 0.8)
        elif step < 0.6:
            taken = random.choice(consumers).take(3)
            in_hand += taken
            settled_or_held = acked | {place(delivery) for delivery in in_hand}
            for group, number in map(place, taken):
                assert all((group, before) in settled_or_held for before in range(1, number)), "it was overtaken"
        elif step < 0.9 and in_hand:
            delivery = in_hand.pop(random.randrange(len(in_hand)))
            if random.random() < 0.5:
                delivery.nack(delay=random.choice([1.0, 10.0, 100.0]))
            else:
                delivery.ack()
                acked.add(place(delivery))
        elif step < 0.95:
            bay.clock.advance(random.choice([0.5, 20.0]))
            bay.bay.step()
        elif step < 0.97:
            at = random.randrange(len(consumers))
            gone = consumers[at]
            in_hand = [delivery for delivery in in_hand if delivery.consumer is not gone]
            gone.close()
            consumers[at] = queue.subscribe(prefetch=5)
        bay.audit()
        if isinstance(queue.current.distribution, AssigningDistribution):
            queue.current.distribution.message_groups._check()
    for consumer in consumers:
        consumer.close()
    left = sum(sent.values()) - len(acked)
    with queue.subscribe() as consumer:
        for _ in range(5):
            bay.clock.advance(100.0)
            deliveries = consumer.take(1000)
            consumer.ack(deliveries)
            left -= len(deliveries)
    assert left == queue.depth == held(bay) == 0
