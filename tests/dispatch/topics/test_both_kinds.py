"""Both kinds of messages in one queue: browse and move keep their order; nothing is lost or doubled."""

from __future__ import annotations

import threading
from random import Random
from typing import Any

import pytest
from compiled import interpreted
from delivering import numbers
from sampling import sampled
from simulated_bay import SimulatedBay

from forebay import Delivery, Message, StoreFull
from forebay.dispatch.core.lanes.non_persistent_lane_state import NonPersistentLaneState


def filled(count: int, body_bytes: int = 20, **fields: Any) -> SimulatedBay:
    simulated = SimulatedBay(**fields)
    simulated.queue().send_many(Message(b"%0*d" % (body_bytes, n), persistent=False) for n in range(count))
    return simulated


def test_browse_shows_both_kinds_by_arrival_and_says_which_is_which() -> None:
    simulated = SimulatedBay()
    queue, random = simulated.queue(), Random(3)
    kinds: list[bool] = []
    while len(kinds) < 1500:
        kinds += [random.random() < 0.5] * random.choice((1, 1, 2, 600))
    for n, is_persistent in enumerate(kinds):
        queue.send(b"%d" % n, persistent=is_persistent, priority=4)
    queue.send(b"-1", priority=9, persistent=False)
    assert [(int(found.body), found.persistent) for found in queue.browse()] == [(-1, False), *enumerate(kinds)]
    assert len(list(queue.browse("JMSDeliveryMode = 'NON_PERSISTENT'"))) == kinds.count(False) + 1
    with queue.subscribe(prefetch=0) as consumer:
        held = [*consumer.take(1), *consumer.take(700)]
        assert numbers(queue.browse()) == [-1, *range(len(kinds))]
        consumer.ack(held[::2])
        gone = {int(delivery.body) for delivery in held[::2]}
        assert numbers(queue.browse()) == [n for n in (-1, *range(len(kinds))) if n not in gone]
    simulated.check()


def test_what_is_dealt_to_a_consumer_and_not_taken_is_browsed_found_and_moved() -> None:
    simulated = SimulatedBay()
    queue, other = simulated.queue(), simulated.queue("other")
    ids = []
    with queue.subscribe(prefetch=1) as owner, queue.subscribe() as idle:
        for n in range(6):
            ids.append(queue.send(b"%d" % n, group="a group", persistent=n % 3 == 0))
        [first] = owner.take()
        assert idle.take() == []  # all others are in the owner's hand now
        assert numbers(queue.browse()) == list(range(6))
        found = queue.find(ids[4])
        assert found is not None and found.body == b"4"
        assert queue.move(other) == 5
        first.ack()
    assert queue.depth == 0 and numbers(other.browse()) == [1, 2, 3, 4, 5]
    simulated.check()


def test_browse_of_what_is_in_tmp_storage_stays_within_4_mib() -> None:
    simulated = filled(20_000, 1024)
    assert simulated.bay.statistics().tmp_storage.messages
    assert numbers(simulated.queue().browse()) == list(range(20_000))
    with simulated.queue().subscribe() as consumer:
        consumer.take(500)
        assert numbers(simulated.queue().browse()) == list(range(20_000))
    assert simulated.bay.statistics().memory.holders["browsers"] == 0
    simulated.check()


def test_message_that_only_a_load_has_is_waited_for() -> None:
    simulated = filled(600)
    queue = simulated.queue()
    queue.subscribe()
    [target] = simulated.lists()
    with simulated.lock:
        load = simulated.loader.begin(target, is_needed=False)
    assert load is not None and load.from_cache
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.extend(numbers(queue.browse())))
    thread.start()
    simulated.loader.finish(load)
    thread.join(30)
    assert found == list(range(600))
    simulated.check()


def test_moved_messages_of_both_kinds_keep_their_order() -> None:
    simulated = SimulatedBay()
    queue, random = simulated.queue(), Random(5)
    kinds: list[bool] = []
    while len(kinds) < 900:
        kinds += [random.random() < 0.5] * random.choice((1, 2, 300))
    for n, is_persistent in enumerate(kinds):
        queue.send(b"%d" % n, persistent=is_persistent)
    late = simulated.queue("late")
    assert queue.move(late, limit=500) == 500
    assert numbers(late.browse()) == list(range(500)) and numbers(queue.browse()) == list(range(500, len(kinds)))
    assert queue.move(late) == len(kinds) - 500
    assert [(int(found.body), found.persistent) for found in late.browse()] == list(enumerate(kinds))
    simulated.check()


def test_moved_messages_stay_what_they_are_and_nothing_is_journaled() -> None:
    simulated = filled(3000, 1024)
    orders, late = simulated.queue(), simulated.queue("late")
    before = simulated.journal.journal_bytes
    with orders.subscribe() as holder, late.subscribe() as consumer:
        held = holder.take(10)
        assert orders.move(late, limit=1000) == 1000
        assert orders.move(late) == 1990
        assert simulated.journal.journal_bytes == before
        simulated.check()
        assert numbers(late.browse()) == list(range(10, 3000)) and numbers(orders.browse()) == list(range(10))
        assert not any(message.persistent for message in late.browse())
        found: list[int] = []
        while batch := consumer.take(500):
            found += [int(delivery.body) for delivery in batch]
            consumer.ack(batch)
        assert found == list(range(10, 3000))
        holder.ack(held)
    simulated.check()


@interpreted("replaces what compiled code has linked")
def test_move_that_finds_no_memory_says_how_many_it_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    simulated = filled(300)
    queue, late = simulated.queue(), simulated.queue("late")
    add, left = NonPersistentLaneState.add, 270

    def limited(lane: NonPersistentLaneState, timestamp: int, properties: bytes, body: bytes) -> int:
        nonlocal left
        left -= 1
        if left < 0:
            raise StoreFull(1, 0, "memory_limit")
        return add(lane, timestamp, properties, body)

    monkeypatch.setattr(NonPersistentLaneState, "add", limited)
    with pytest.raises(StoreFull) as full:
        queue.move(late)
    assert full.value.stored == 270
    assert numbers(late.browse()) == list(range(270)) and numbers(queue.browse()) == list(range(270, 300))
    simulated.check()


def test_deleted_queue_leaves_nothing_in_ram_or_tmp_storage() -> None:
    simulated = SimulatedBay()
    for n in range(20):
        queue = simulated.queue(f"reply.{n}")
        queue.send_many(Message(bytes(1000), persistent=m % 3 == 0) for m in range(3000))
        consumer = queue.subscribe()
        consumer.take(200)
        consumer.nack(consumer.take(1), delay=60.0)
        queue.delete()
        simulated.check()
        if not n:
            before = simulated.bay.statistics().memory.holders
    statistics = simulated.bay.statistics()
    assert statistics.tmp_storage.messages == 0
    assert statistics.memory.holders == before
    assert not simulated.overflow.lanes
    assert (
        not simulated.memories.common.pending_cache.keepers and not simulated.memories.common.head_queue_cache.keepers
    )


@pytest.mark.parametrize("seed", sampled(range(12), 2))
def test_random_operations_leave_each_message_where_the_model_has_it(seed: int) -> None:
    random = Random(seed)
    simulated = SimulatedBay(seed, sync=random.choice(("always", "never")))
    names = ("orders", "late")
    selectors = {name: random.choice(([None], [None, "n = 1"])) for name in names}
    consumers: list[tuple[str, Any]] = []
    pending: dict[str, dict[int, int]] = {name: {} for name in names}
    held: dict[str, list[Delivery]] = {name: [] for name in names}
    number = 0
    for _ in range(50):
        name = random.choice(names)
        queue = simulated.queue(name)
        in_flight = {int(delivery.body.split()[0]) for delivery in held[name]}
        action = random.choice(("send", "send", "take", "ack", "nack", "move", "browse", "subscribe", "delete", "step"))
        if action == "send":
            fresh = range(number, number + random.choice((1, 30, 600)))
            number = fresh.stop
            kinds = random.choice(((True,), (False,), (False, True)))
            body = bytes(random.choice((0, 900)))
            queue.send_many(
                Message(b"%d " % n + body, headers={"n": n % 3}, persistent=kinds[n % len(kinds)]) for n in fresh
            )
            pending[name] |= dict.fromkeys(fresh, 0)
        elif action == "subscribe" and len(consumers) < 4:
            consumers.append((name, queue.subscribe(selector=random.choice(selectors[name]))))
        elif action == "take" and consumers:
            owner, consumer = random.choice(consumers)
            held[owner] += consumer.take(random.choice((1, 40)))
        elif action in ("ack", "nack") and held[name]:
            delivery = held[name].pop(random.randrange(len(held[name])))
            if action == "ack":
                del pending[name][int(delivery.body.split()[0])]
                delivery.ack()
            else:
                delivery.nack(delay=random.choice((0.0, 5.0)))
        elif action == "move":
            movable = set(pending[name]) - in_flight
            limit = random.choice((None, 10, 300))
            to = names[name == "orders"]
            before = set(pending[name])
            moved = queue.move(to, limit=limit)
            assert moved == min(len(movable), limit if limit is not None else len(movable))
            left = {int(message.body.split()[0]) for message in queue.browse()}
            assert left <= before and before - left <= movable and len(before - left) == moved
            pending[to] |= {n: pending[name].pop(n) for n in before - left}
        elif action == "delete" and random.random() < 0.2:
            queue.delete()
            consumers = [(owner, consumer) for owner, consumer in consumers if owner != name]
            pending[name], held[name] = {}, []
        else:
            simulated.clock.advance(random.choice((0.1, 3.0)))
            simulated.bay.step()
        simulated.check()
        browsed = {name: [int(found.body.split()[0]) for found in simulated.queue(name).browse()] for name in names}
        for name in names:
            assert sorted(browsed[name]) == sorted(pending[name])
            assert simulated.queue(name).depth == len(pending[name])
