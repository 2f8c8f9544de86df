"""Move: messages change queues in order and in bounded memory, and each is in exactly one of the two at any time."""

from __future__ import annotations

import threading
from random import Random
from typing import Any

import pytest
from crashing import crashes_at
from delivering import number_of, numbers
from inside import inside, open_forebay
from sampling import sampled
from simulated_bay import SimulatedBay
from simulated_disk import SimulatedDisk
from simulated_metadata import SimulatedMetadataStore
from waiting_senders import waiting_sender

import forebay
from forebay import (
    Closed,
    Delivery,
    DestinationPolicy,
    Message,
    MessageTooLarge,
    Queue,
    SelectorError,
    SettingsError,
    StoreFailed,
    StoreFull,
)
from forebay.dispatch.config.settings import Settings, SyncMode
from forebay.dispatch.forebay import Forebay
from forebay.testing import ManualClock


def filled(count: int, body_bytes: int = 20, **fields: Any) -> SimulatedBay:
    simulated = SimulatedBay(**fields)
    simulated.queue().send_many(Message(b"%0*d" % (body_bytes, n), headers={"n": n}) for n in range(count))
    return simulated


def test_all_of_it_moves_in_order_and_keeps_what_it_carries() -> None:
    simulated = SimulatedBay()
    orders, late = simulated.queue(), simulated.queue("late")
    began_ms = simulated.clock.time_ms()
    generated = orders.send(b"1", headers={"kg": 1.5}, priority=7)
    orders.send(b"2", message_id="own")
    late.send(b"0")
    simulated.clock.advance(5)
    orders.send_many(Message(b"%d" % n) for n in range(3, 1200))
    simulated.clock.advance(7)
    assert orders.move(late) == 1199
    assert orders.depth == 0 and late.depth == 1200
    simulated.check()
    simulated.reopen()
    late = simulated.queue("late")
    with late.subscribe(prefetch=0) as consumer:
        first, second, third = [*consumer.take(1), *consumer.take(2)]
        assert (first.body, first.headers, first.priority) == (b"1", {"kg": 1.5}, 7)
        assert first.id != generated and first.id.startswith(generated.split("-")[0])
        assert (second.body, third.body, third.id) == (b"0", b"2", "own")
        assert first.timestamp == third.timestamp == began_ms
        assert [first.attempts, third.attempts] == [1, 1]
        rest: list[Delivery] = []
        while batch := consumer.take(500):
            rest += batch
        assert [int(delivery.body) for delivery in rest] == list(range(3, 1200))
        assert {delivery.timestamp for delivery in rest} == {began_ms + 5000}


def test_moved_messages_reach_consumers_that_wait() -> None:
    simulated = filled(3)
    rings: list[int] = []
    with simulated.queue("late").subscribe(on_ready=lambda: rings.append(1)) as consumer:
        assert consumer.take(1) == []
        assert simulated.queue().move("late") == 3
        assert rings == [1]
        assert [int(delivery.body) for delivery in consumer.take(9)] == [0, 1, 2]


def test_selector_and_limit_choose() -> None:
    simulated = filled(2000)
    orders, late = simulated.queue(), simulated.queue("late")
    assert orders.move(late, "n >= 1500", limit=300) == 300
    assert numbers(late.browse()) == list(range(1500, 1800))
    assert orders.move(late, limit=1) == 1 and orders.move(late, limit=0) == 0
    assert numbers(late.browse())[-1] == 0
    assert orders.move(late, selector="n = 5") == 1
    assert numbers(orders.browse()) == [n for n in range(2000) if n not in (0, 5) and not 1500 <= n < 1800]
    simulated.check()


def test_what_is_in_flight_stays_and_counts_for_no_limit() -> None:
    simulated = filled(20)
    orders, late = simulated.queue(), simulated.queue("late")
    with orders.subscribe() as consumer:
        held = consumer.take(5)
        assert orders.move(late, limit=4) == 4
        assert numbers(late.browse()) == [5, 6, 7, 8]
        consumer.nack(held[0])
        consumer.nack(held[1], delay=60.0)
        assert orders.move(late) == 13
        assert consumer.take(9) == [] and simulated.next_due() is None
        consumer.ack(held[2:])
        assert orders.depth == 0
        simulated.check()


@pytest.mark.parametrize("is_persistent", [True, False])
def test_move_of_nothing_makes_no_lane_in_the_other_queue(is_persistent: bool) -> None:
    simulated = SimulatedBay()
    orders, late = simulated.queue(), simulated.queue("late")
    orders.send_many(Message(b"", persistent=is_persistent, priority=9) for _ in range(2))
    with orders.subscribe() as consumer:
        held = consumer.take(2)
        held_bytes = simulated.bay.statistics().memory.held_bytes
        assert orders.move(late) == 0
        state = simulated.queue_state("late")
        assert not state.lanes[9] and not state.non_persistent_lanes[9]
        assert simulated.bay.statistics().memory.held_bytes == held_bytes
        consumer.nack(held[:1])
        assert orders.move(late) == 1
        simulated.check()


def test_what_a_transaction_decides_about_stays_though_it_lies_in_tmp_storage() -> None:
    simulated = SimulatedBay(memory_limit="4MiB")
    orders, late = simulated.queue(), simulated.queue("late")
    orders.send_many(Message(bytes(20_000), persistent=False) for _ in range(300))
    with orders.subscribe(prefetch=0) as consumer:
        transaction = simulated.bay.transaction()
        acknowledged = 0
        while acknowledged < 200 and (deliveries := consumer.take(10)):
            consumer.ack(deliveries, transaction=transaction)
            acknowledged += len(deliveries)
        assert orders.move(late) == 300 - acknowledged == late.depth > 90
        transaction.commit()
        assert orders.depth == 0 and late.depth == 300 - acknowledged
        simulated.check()


def test_what_a_transaction_decides_about_stays() -> None:
    simulated = filled(3)
    orders, late = simulated.queue(), simulated.queue("late")
    with orders.subscribe() as consumer:
        transaction = simulated.bay.transaction()
        consumer.ack(consumer.take(1), transaction=transaction)
        late.send(b"9", transaction=transaction)
        assert orders.move(late) == 2
        assert numbers(orders.browse()) == [0] and numbers(late.browse()) == [1, 2]
        transaction.commit()
        assert numbers(orders.browse()) == [] and numbers(late.browse()) == [1, 2, 9]
        simulated.check()


def test_there_and_back_is_as_before() -> None:
    simulated = filled(700)
    orders, late = simulated.queue(), simulated.queue("late")
    for _ in range(3):
        assert orders.move(late) == late.move(orders) == 700
    assert numbers(orders.browse()) == list(range(700))
    simulated.reopen()
    assert numbers(simulated.queue().browse()) == list(range(700))
    simulated.check()


def test_twenty_thousand_messages_of_1_kib_stay_within_4_mib() -> None:
    simulated = filled(20_000, 1024)
    orders, late = simulated.queue(), simulated.queue("late")
    with orders.subscribe() as holder, late.subscribe() as other:
        held = holder.take(100)
        assert orders.move(late) == 19_900
        limit = simulated.budget.limit_bytes
        assert simulated.bay.statistics().memory.held_bytes_max <= limit
        assert simulated.bay.statistics().memory.holders["browsers"] == 0
        simulated.check()
        assert [int(delivery.body) for delivery in other.take(50)] == list(range(100, 150))
        holder.ack(held)
    assert simulated.queue("late").depth == 19_900
    simulated.bay.cleanup()
    simulated.check()


def test_small_index_takes_its_checkpoints_on_the_way() -> None:
    simulated = filled(60_000, 10, index_cache_size="256KiB", memory_limit="8MiB")
    assert simulated.queue().move("late") == 60_000
    simulated.check()
    assert numbers(simulated.queue("late").browse()) == list(range(60_000))


def test_large_messages_and_messages_sent_one_by_one_move_too() -> None:
    simulated = SimulatedBay()
    orders = simulated.queue()
    bodies = [b"1", bytes(3 << 20), b"", bytes(300_000), *[b"%d" % n for n in range(40)]]
    for body in bodies:
        orders.send(body)
        simulated.clock.advance(0.01)
    assert orders.move("late") == len(bodies)
    assert [message.body for message in simulated.queue("late").browse()] == bodies
    simulated.check()


@pytest.mark.parametrize("is_vectored", [False, True])
def test_slices_are_as_the_setting_says(is_vectored: bool) -> None:
    simulated = filled(300, use_vectored_io=is_vectored)
    before = simulated.journal.next_log_sequence
    simulated.queue().move("late")
    records = simulated.journal.next_log_sequence - before
    assert records == 300 + 2 + 1 if not is_vectored else records <= 6


def test_limited_queue_takes_as_much_as_its_policy_admits() -> None:
    policies = {"late": DestinationPolicy(max_messages=7, when_full="fail")}
    simulated = filled(20, policies=policies)
    orders, late = simulated.queue(), simulated.queue("late")
    with pytest.raises(StoreFull) as full:
        orders.move(late)
    assert full.value.stored == 7
    assert numbers(late.browse()) == list(range(7)) and numbers(orders.browse()) == list(range(7, 20))
    with late.subscribe() as consumer:
        consumer.ack(consumer.take(9))
    assert orders.move(late, limit=3) == 3
    simulated.check()


def test_what_is_in_flight_needs_no_room_in_a_limited_queue() -> None:
    policies = {"late": DestinationPolicy(max_messages=2, max_bytes=900, when_full="fail")}
    simulated = SimulatedBay(policies=policies)
    orders, late = simulated.queue(), simulated.queue("late")
    orders.send(bytes(1000))
    orders.send_many(Message(b"%d" % number) for number in range(4))
    with orders.subscribe() as consumer:
        held = consumer.take(3)
        assert orders.move(late) == 2
        assert [message.body for message in late.browse()] == [b"2", b"3"]
        assert orders.move(late) == 0, "the other queue is full, but nothing would move"
        consumer.nack(held[1])
        with pytest.raises(StoreFull) as full:
            orders.move(late)
        assert full.value.stored == 0
        simulated.check()


def test_message_too_large_for_the_other_queue_stays() -> None:
    simulated = filled(3, 100, policies={"late": DestinationPolicy(max_bytes=50)})
    with pytest.raises(MessageTooLarge):
        simulated.queue().move("late")
    assert simulated.queue().depth == 3 and simulated.queue("late").depth == 0


def test_room_comes_to_senders_of_the_queue_that_is_emptied() -> None:
    simulated = SimulatedBay(policies={"orders": DestinationPolicy(max_messages=2)})
    orders = simulated.queue()
    orders.send_many([Message(b"1"), Message(b"2")])
    thread = threading.Thread(target=orders.send, args=(b"3",))
    thread.start()
    simulated.clock.wait_until(lambda: simulated.bay.statistics().destinations["orders"].blocked_sends > 0)
    assert orders.move("late") in (2, 3)
    thread.join(30)
    assert orders.depth + simulated.queue("late").depth == 3


def test_move_that_waits_for_room_ends_with_closed_once_the_other_queue_is_deleted() -> None:
    simulated = filled(3, policies={"late": DestinationPolicy(max_messages=1)})
    orders, late = simulated.queue(), simulated.queue("late")
    late.send(b"full")

    def blocked_sends() -> int:
        return simulated.bay.statistics().destinations["late"].blocked_sends

    mover = waiting_sender(simulated.clock, blocked_sends, lambda: orders.move(late))
    late.delete()
    mover.end()
    assert isinstance(mover.error, Closed) and mover.error.stored == 0
    assert orders.depth == 3
    simulated.check()


def test_what_cannot_be_is_refused_and_nothing_moves() -> None:
    simulated, other = filled(3), SimulatedBay()
    orders = simulated.queue()
    with pytest.raises(SettingsError):
        orders.move(orders)
    with pytest.raises(SettingsError):
        orders.move("orders")
    for to in (other.queue("late"), None, 7, ""):
        with pytest.raises(SettingsError):
            orders.move(to)  # type: ignore[arg-type]
    for limit in (-1, 1.0, True, "1"):
        with pytest.raises(SettingsError):
            orders.move("late", limit=limit)  # type: ignore[arg-type]
    with pytest.raises(SelectorError):
        orders.move("late", "n >=")
    late = simulated.queue("late")
    late.delete()
    with pytest.raises(Closed):
        orders.move(late)
    assert orders.depth == 3
    simulated.bay.close()
    with pytest.raises(Closed):
        orders.move("late")


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_full_disk_moves_whole_batches_and_says_how_many(nth: int) -> None:
    """A batch is two slices, which meet the end of a block, or one, and a commit record."""
    simulated = filled(600)
    orders, late = simulated.queue(), simulated.queue("late")
    late.send(b"-1")
    simulated.disk.fail("write", nth, 28)
    with pytest.raises(StoreFull) as full:
        orders.move(late)
    simulated.disk.cure()
    moved = full.value.stored
    assert moved == (256 if nth > 2 else 0)
    assert numbers(late.browse()) == list(range(-1, moved)) and numbers(orders.browse()) == list(range(moved, 600))
    assert not simulated.store.branches.open
    simulated.check()
    simulated.reopen()
    assert simulated.queue().move("late") == 600 - moved
    assert numbers(simulated.queue("late").browse()) == list(range(-1, 600))
    simulated.check()


def test_failed_store_ends_a_move_that_says_how_many_non_persistent_messages_it_moved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    simulated = SimulatedBay()
    simulated.queue().send_many(Message(b"%d" % n, persistent=False) for n in range(5))
    lane = inside(simulated.queue()).queue_state().non_persistent_lanes[4]
    assert lane is not None
    store = type(lane.backing_store)
    acknowledge_one, acknowledged = store.acknowledge_one, list[int]()

    def fail_at_the_third(self: Any, pending_lane: Any, sequence: int) -> int:
        if len(acknowledged) == 2:
            raise StoreFailed("the disk fails")
        acknowledged.append(sequence)
        return acknowledge_one(self, pending_lane, sequence)

    monkeypatch.setattr(store, "acknowledge_one", fail_at_the_third)
    with pytest.raises(StoreFailed) as failed:
        simulated.queue().move("late")
    assert failed.value.stored == 2


def test_load_that_is_under_way_brings_nothing_back() -> None:
    simulated = filled(400)
    simulated.reopen()
    orders = simulated.queue()
    consumer = orders.subscribe()
    [target] = simulated.lists()
    with simulated.lock:
        load = simulated.loader.begin(target, is_needed=False)
    assert load is not None
    assert orders.move("late") == 400
    simulated.loader.finish(load)
    assert consumer.take(10) == [] and not target.direct
    simulated.check()


@pytest.mark.parametrize("sync", ["always", "never"])
def test_crash_at_any_call_leaves_each_message_in_exactly_one_queue(sync: SyncMode) -> None:
    settings = Settings(background=False, memory_limit="4MiB", sync=sync, max_file_length="64KiB")
    disk, metadata, random = SimulatedDisk(), SimulatedMetadataStore(), Random(3)
    states: set[int] = set()

    def opened(disk: SimulatedDisk, metadata: SimulatedMetadataStore) -> Forebay:
        return open_forebay(disk, metadata, settings, ManualClock())

    def look(image: SimulatedDisk, left: SimulatedMetadataStore, context: object) -> None:
        bay = opened(image, left)
        orders, late = numbers(bay.queue("orders").browse()), numbers(bay.queue("late").browse())
        assert sorted(orders + late) == list(range(700)), context
        assert orders == sorted(orders) and late == sorted(late), context
        inside(bay).index._check()
        inside(bay).audit()
        states.add(len(late))

    def crash(call: str, name: str) -> None:
        for image, left, how in crashes_at(disk, metadata, sync, random):
            look(image, left, (call, name, how))

    bay = opened(disk, metadata)
    orders, late = bay.queue("orders"), bay.queue("late")
    orders.send_many(Message(b"%0300d" % n, headers={"n": n}) for n in range(700))
    bay.checkpoint()
    with late.subscribe():
        disk.on_call = crash
        assert orders.move(late, "n < 650") == 650
        bay.cleanup()
        bay.checkpoint()
        disk.on_call = None
    assert {0, 650} < states


@pytest.mark.parametrize("seed", sampled(range(25), 5))
def test_random_moves_between_all_else_leave_each_message_where_the_model_has_it(seed: int) -> None:
    random = Random(seed)
    simulated = SimulatedBay(seed, sync=random.choice(("always", "never")), max_file_length="64KiB")
    names = ("orders", "prices", "late")
    selectors = {name: random.choice(([None], [None, "n = 1"], ["n = 1", None, None])) for name in names}
    consumers = [
        (name, simulated.queue(name).subscribe(selector=chosen)) for name in names for chosen in selectors[name]
    ]
    # Priority by number, of those not in flight too, in the order in which they came.
    pending: dict[str, dict[int, int]] = {name: {} for name in names}
    held: dict[str, list[Delivery]] = {name: [] for name in names}
    number = 0
    for _ in range(100):
        action = random.choice(("send", "send", "take", "take", "ack", "nack", "move", "move", "purge", "step"))
        name = random.choice(names)
        queue = simulated.queue(name)
        in_flight = {number_of(delivery) for delivery in held[name]}
        if action == "send":
            numbers_sent = range(number, number + random.choice((1, 30, 600)))
            number = numbers_sent.stop
            priority, body = random.choice((4, 4, 9)), bytes(random.choice((0, 500)))
            queue.send_many(Message(b"%d " % n + body, headers={"n": n % 3}, priority=priority) for n in numbers_sent)
            pending[name] |= dict.fromkeys(numbers_sent, priority)
        elif action == "take":
            owner, consumer = random.choice(consumers)
            batch = consumer.take(random.choice((1, 20)))
            for delivery in batch:
                assert number_of(delivery) in pending[owner]
            held[owner] += batch
        elif action in ("ack", "nack") and held[name]:
            delivery = held[name].pop(random.randrange(len(held[name])))
            if action == "ack":
                del pending[name][number_of(delivery)]
                delivery.ack()
            else:
                delivery.nack(delay=random.choice((0.0, 0.0, 5.0)))
        elif action == "move":
            to = random.choice([other for other in names if other != name])
            is_picky, limit = random.random() < 0.5, random.choice((None, None, 10, 300))
            movable = [n for n in pending[name] if n not in in_flight and (not is_picky or n % 3 == 1)]
            movable.sort(key=lambda n: -pending[name][n])
            movable = movable[:limit]
            assert queue.move(to, "n = 1" if is_picky else None, limit) == len(movable)
            pending[to] |= {n: pending[name].pop(n) for n in movable}
        elif action == "purge" and random.random() < 0.2:
            queue.purge()
            pending[name] = {n: priority for n, priority in pending[name].items() if n in in_flight}
        else:
            simulated.clock.advance(random.choice((0.1, 3.0)))
            simulated.bay.step()
        simulated.check()
        assert {name: simulated.queue(name).depth for name in names} == {n: len(pending[n]) for n in names}
    for name in names:
        browsed = [int(message.body.split()[0]) for message in simulated.queue(name).browse()]
        assert browsed == sorted(pending[name], key=lambda n: -pending[name][n])
    for _, consumer in consumers:
        consumer.close()
    simulated.clock.advance(10)
    for name in names:
        found: list[int] = []
        with simulated.queue(name).subscribe(prefetch=0) as consumer:
            while batch := consumer.take(100):
                found += map(number_of, batch)
                consumer.ack(batch)
        assert sorted(found) == sorted(pending[name])
    simulated.check()


def test_consumers_and_movers_on_many_threads_lose_and_double_nothing(tmp_path: Any) -> None:

    count = 6000
    with forebay.open(tmp_path, memory_limit="8MiB", sync="never") as bay:
        orders, late = bay.queue("orders"), bay.queue("late")
        orders.send_many(Message(b"%d" % n) for n in range(count))
        found: list[int] = []
        is_over = threading.Event()

        def consume(queue: Queue) -> None:
            try:
                with queue.subscribe(prefetch=50) as consumer:
                    while len(found) < count and not is_over.is_set():
                        batch = consumer.take(20, timeout=0.05)
                        found.extend(int(delivery.body) for delivery in batch)
                        consumer.ack(batch)
            finally:
                is_over.set()

        def shift(source: Queue, to: Queue) -> None:
            while not is_over.is_set():
                source.move(to, limit=500)

        threads = [threading.Thread(target=consume, args=(queue,)) for queue in (orders, late)]
        threads += [threading.Thread(target=shift, args=pair) for pair in ((orders, late), (late, orders))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        assert sorted(found) == list(range(count))
        inside(bay).audit()
