"""Dead letters: after its last attempt a message leaves its queue for another one, in exactly one of the two always."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from compiled import interpreted
from crashing import crashes_at
from delivering import bodies
from inside import inside, open_forebay
from simulated_bay import SimulatedBay
from simulated_disk import SimulatedDisk
from simulated_metadata import SimulatedMetadataStore

from forebay import Delivery, DestinationPolicy, Message, Queue, StoreFull
from forebay.dispatch.config.settings import Settings, SyncMode
from forebay.dispatch.core.lanes.non_persistent_lane_state import NonPersistentLaneState
from forebay.dispatch.forebay import Forebay
from forebay.store.checkpoint.checkpointer import INDEX_LIMIT
from forebay.testing import ManualClock


def failing(max_attempts: int | None = 2, **fields: Any) -> SimulatedBay:
    """With queues whose messages are given up soon."""
    policy = DestinationPolicy(max_attempts=max_attempts, **fields.pop("policy", {}))
    return SimulatedBay(**{"policies": {">": policy}, **fields})


def give_up(queue: Queue, count: int = 1, attempts: int = 2) -> None:
    """Let count messages of a queue have their last attempt. Requires: no more are pending."""
    with queue.subscribe(prefetch=0) as consumer:
        for _ in range(attempts):
            batch: list[Delivery] = []
            while taken := consumer.take(count):
                batch += taken
            assert len(batch) == count
            consumer.nack(batch)


# ---------------------------------------------------------------------- what moves, and what it carries


def test_message_goes_after_its_last_attempt_and_keeps_what_it_carries() -> None:
    simulated = failing(3)
    orders = simulated.queue()
    sent_ms = simulated.clock.time_ms()
    generated = orders.send(b"1 kg tea", headers={"region": "eu", "kg": 1.5}, priority=7)
    orders.send(b"good")
    simulated.clock.advance(60)
    with orders.subscribe() as consumer:
        for attempt in range(1, 4):
            (delivery,) = consumer.take()
            assert (delivery.body, delivery.attempts) == (b"1 kg tea", attempt)
            delivery.nack()
            simulated.bay.step()
        assert [delivery.body for delivery in consumer.take(9)] == [b"good"]
    (dead,) = simulated.queue("DLQ.orders").subscribe().take(9)
    assert (dead.id, dead.body, dead.priority, dead.timestamp) == (generated, b"1 kg tea", 7, sent_ms)
    assert (dead.attempts, dead.persistent, dead.destination) == (1, True, "DLQ.orders")
    assert dead.headers == {
        "region": "eu",
        "kg": 1.5,
        "dead_letter_from": "orders",
        "dead_letter_reason": "max_attempts",
        "dead_letter_attempts": 3,
        "dead_letter_time": sent_ms + 60_000,
    }
    numbers = simulated.bay.statistics().destinations
    assert (numbers["orders"].dead_lettered, numbers["orders"].redelivered, numbers["orders"].depth) == (1, 3, 1)
    assert (numbers["DLQ.orders"].dead_lettered, numbers["DLQ.orders"].depth) == (0, 1)
    simulated.check()


def test_six_attempts_and_a_queue_of_its_own_are_the_default() -> None:
    simulated = SimulatedBay()
    simulated.queue().send(b"poison", message_id="own")
    give_up(simulated.queue(), attempts=6)
    simulated.bay.step()
    (dead,) = simulated.queue("DLQ.orders").browse()
    assert (dead.body, dead.message_id) == (b"poison", "own")
    assert simulated.queue("DLQ.orders").find("own") == dead


def test_nothing_happens_before_the_last_attempt_or_without_a_limit() -> None:
    simulated = failing(None)
    simulated.queue().send(b"1")
    give_up(simulated.queue(), attempts=40)
    simulated.bay.step()
    assert simulated.queue().subscribe().take()[0].attempts == 41
    assert simulated.bay.destinations() == ["orders"]


def test_dead_letter_is_handed_to_nobody_while_it_waits() -> None:
    simulated = failing(4)
    orders = simulated.queue()
    orders.send_many([Message(b"1", headers={"n": 1}), Message(b"2", headers={"n": 1})])
    first, second = orders.subscribe(), orders.subscribe(selector="n = 1")
    for _ in range(4):
        first.take()[0].nack()
    assert [delivery.body for delivery in second.take(9)] == [b"2"]
    second.close()
    late = orders.subscribe(selector="n > 0")
    assert [delivery.body for delivery in late.take(9)] == [b"2"]
    first.close()
    late.close()
    assert [delivery.body for delivery in orders.subscribe().take(9)] == [b"2"]
    assert orders.depth == 2
    simulated.bay.step()
    assert orders.depth == 1
    simulated.check()


def test_what_was_dead_when_the_process_ended_is_given_up_by_the_next_one() -> None:
    simulated = failing()
    simulated.queue().send_many([Message(b"1"), Message(b"2")])
    consumer = simulated.queue().subscribe()
    consumer.take()[0].nack()
    assert consumer.take()[0].attempts == 2
    simulated.crash()
    consumer = simulated.queue().subscribe()
    assert [delivery.body for delivery in consumer.take(9)] == [b"2"]
    simulated.bay.step()
    assert bodies(simulated.queue("DLQ.orders").browse()) == [b"1"]
    simulated.check()


def test_depth_grows_behind_a_browser_while_what_died_with_the_process_still_arrives() -> None:
    simulated = failing()
    simulated.queue().send_many([Message(b"%d" % n) for n in range(42)])
    give_up(simulated.queue(), 42)
    simulated.bay.step()
    simulated.queue().send_many([Message(b"%d" % n) for n in range(42, 85)])
    consumer = simulated.queue().subscribe(prefetch=0)
    consumer.nack(consumer.take(43))
    assert {delivery.attempts for delivery in consumer.take(43)} == {2}
    simulated.crash()
    dead = simulated.queue("DLQ.orders")
    browser = dead.browse()
    browsed = [next(browser)]
    assert dead.depth == 42
    simulated.bay.step()
    assert dead.depth == 85
    assert [message.body for message in (*browsed, *browser)] == [b"%d" % n for n in range(42)]
    assert bodies(dead.browse()) == [b"%d" % n for n in range(85)]
    assert simulated.queue().depth == 0
    simulated.check()


def test_shorter_policy_counts_for_what_came_back_before() -> None:
    simulated = failing(6)
    simulated.queue().send(b"1")
    give_up(simulated.queue(), attempts=4)
    simulated.settings_given = Settings(
        background=False, memory_limit="4MiB", policies={"orders": DestinationPolicy(max_attempts=3)}
    )
    simulated.reopen()
    simulated.bay.step()
    assert bodies(simulated.queue("DLQ.orders").browse()) == [b"1"]


def test_ten_thousand_go_in_order_and_in_bounded_memory() -> None:
    simulated = failing(1, memory_limit="6MiB")
    orders = simulated.queue()
    orders.send_many(Message(b"%01000d" % n) for n in range(10_000))
    with orders.subscribe(prefetch=0) as consumer:
        while batch := consumer.take(500):
            consumer.nack(batch)
    simulated.bay.step()
    assert orders.depth == 0
    assert [int(body) for body in bodies(simulated.queue("DLQ.orders").browse())] == list(range(10_000))
    memory = simulated.bay.statistics().memory
    assert memory.held_bytes_max <= memory.limit_bytes and memory.holders["browsers"] == 0
    simulated.check()


def test_message_larger_than_what_memory_has_goes_too() -> None:
    simulated = failing(1, memory_limit="4MiB")
    simulated.queue().send(bytes(3 << 20))
    give_up(simulated.queue(), attempts=1)
    simulated.bay.step()
    assert [len(body) for body in bodies(simulated.queue("DLQ.orders").browse())] == [3 << 20]
    simulated.check()


def test_they_go_while_memory_is_used_up() -> None:
    simulated = failing(1, memory_limit="4MiB", policy={"prefetch": 0})
    orders, other = simulated.queue(), simulated.queue("other")
    orders.send_many(Message(b"%0900d" % n) for n in range(50))
    give_up(orders, 50, 1)
    other.send_many(Message(bytes(900)) for _ in range(10_000))
    holders = [other.subscribe() for _ in range(20)]
    held = [consumer.take(500) for consumer in holders]
    assert simulated.dispatch_area.is_short or simulated.budget.free_bytes < 100_000
    simulated.bay.step()
    assert [int(body) for body in bodies(simulated.queue("DLQ.orders").browse())] == list(range(50))
    simulated.check()
    del held


def test_headers_that_make_no_sense_go_as_they_are() -> None:
    simulated = failing(1)
    lane = simulated.lane(simulated.queue().current, 4)
    with simulated.lock:
        sequence = simulated.store.message_store.add(lane.destination_lane, 7, b"\xff\xff\xff", b"body")
        lane.arrive((sequence, b"\xff\xff\xff", b"body", 7))
    give_up(simulated.queue(), attempts=1)
    simulated.bay.step()
    assert simulated.queue().depth == 0
    assert simulated.queue("DLQ.orders").subscribe().take()[0].body == b"body"


def test_unreadable_dead_letter_is_left_and_the_others_go() -> None:
    simulated = failing(1, on_missing_data_log="report", memory_limit="4MiB")
    orders = simulated.queue()
    orders.send_many(Message(b"%0100d" % n) for n in range(3))
    give_up(orders, 3, 1)
    lane = simulated.queue_state("orders").lanes[4]
    assert lane is not None
    simulated.memories.common.pending_cache.discard_lane(lane.pending_lane.number)
    (region,) = simulated.store.message_store.plan(lane.destination_lane, [(1, 1)])
    name = next(name for name in simulated.disk.list("journal") if name.startswith("data-"))
    at = simulated.disk.image()[f"journal/{name}"].find(b"%0100d" % 1)
    simulated.disk.flip_bit(f"journal/{name}", at, 0)
    simulated.bay.step()
    assert [int(body) for body in bodies(simulated.queue("DLQ.orders").browse())] == [0, 2]
    assert simulated.bay.statistics().destinations["orders"].unreadable == 1
    simulated.bay.step()
    assert orders.depth == 0, "it is in the quarantine"
    simulated.check()
    del region


# ---------------------------------------------------------------------- policies


def test_each_policy_names_a_queue_of_its_own_or_none() -> None:
    policies = {
        "mail.*": DestinationPolicy(max_attempts=1, dead_letter_queue="dead.{name}.letters"),
        "shared.>": DestinationPolicy(max_attempts=1, dead_letter_queue="graveyard"),
        "lossy": DestinationPolicy(max_attempts=1, dead_letter_queue=None),
    }
    simulated = SimulatedBay(policies=policies)
    for name in ("mail.in", "shared.a", "shared.b", "lossy"):
        simulated.queue(name).send(name.encode())
        give_up(simulated.queue(name), attempts=1)
    simulated.bay.step()
    assert bodies(simulated.queue("dead.mail.in.letters").browse()) == [b"mail.in"]
    assert sorted(bodies(simulated.queue("graveyard").browse())) == [b"shared.a", b"shared.b"]
    numbers = simulated.bay.statistics().destinations
    assert (numbers["lossy"].depth, numbers["lossy"].dead_lettered) == (0, 1)
    assert set(numbers) == {"mail.in", "shared.a", "shared.b", "lossy", "dead.mail.in.letters", "graveyard"}
    simulated.crash()
    assert simulated.queue("lossy").depth == 0
    simulated.check()


@pytest.mark.parametrize(
    ("template", "name"),
    [("DLQ.{name}", "DLQ.orders"), ("graveyard", "graveyard"), ("{name}.dead", "orders.dead"), ("orders", "orders")],
)
def test_dead_letter_queue_is_the_end_of_the_way(template: str, name: str) -> None:
    simulated = failing(1, policy={"dead_letter_queue": template})
    simulated.queue(name).send(b"1")
    give_up(simulated.queue(name), attempts=20)
    simulated.bay.step()
    assert simulated.bay.destinations() == [name]
    assert simulated.queue(name).subscribe().take()[0].attempts == 21


def test_name_that_would_be_too_long_is_cut() -> None:
    simulated = failing(1)
    name = "ä" * 127
    simulated.queue(name).send(b"1")
    give_up(simulated.queue(name), attempts=1)
    simulated.bay.step()
    (dead,) = simulated.queue("DLQ." + "ä" * 125).browse()
    assert dead.headers is not None and dead.headers["dead_letter_from"] == name


def test_message_that_was_moved_back_dies_again_with_new_headers() -> None:
    simulated = failing(1)
    orders = simulated.queue()
    sent = orders.send(b"1")
    for _ in range(3):
        simulated.clock.advance(1)
        give_up(orders, attempts=1)
        simulated.bay.step()
        (dead,) = simulated.queue("DLQ.orders").browse()
        assert dead.message_id == sent and dead.headers is not None and len(dead.headers) == 4
        assert dead.headers["dead_letter_time"] == simulated.clock.time_ms()
        assert simulated.queue("DLQ.orders").move(orders) == 1


def test_limits_of_a_dead_letter_queue_do_not_hold_them_up() -> None:
    policies = {
        "orders": DestinationPolicy(max_attempts=1),
        "DLQ.>": DestinationPolicy(max_messages=1, when_full="fail"),
    }
    simulated = SimulatedBay(policies=policies)
    simulated.queue().send_many(Message(b"%d" % n) for n in range(5))
    give_up(simulated.queue(), 5, 1)
    simulated.bay.step()
    assert simulated.queue("DLQ.orders").depth == 5


def test_a_dead_letter_makes_room_in_the_queue_that_it_left() -> None:
    policies = {"orders": DestinationPolicy(max_attempts=1, max_messages=1, when_full="fail")}
    simulated = SimulatedBay(policies=policies)
    simulated.queue().send(b"1")
    with pytest.raises(StoreFull):
        simulated.queue().send(b"2")
    give_up(simulated.queue(), attempts=1)
    simulated.bay.step()
    simulated.queue().send(b"2")
    assert simulated.queue().depth == simulated.queue("DLQ.orders").depth == 1


# ---------------------------------------------------------------------- kinds of destinations and messages


def test_non_persistent_messages_die_as_such() -> None:
    simulated = failing(2)
    orders = simulated.queue()
    orders.send(b"1", persistent=False, headers={"n": 1})
    orders.send(b"2", persistent=False)
    with orders.subscribe() as consumer:
        consumer.nack(consumer.take())
        (delivery,) = consumer.take()
        delivery.nack()
        simulated.bay.step()
        assert [delivery.body for delivery in consumer.take(9)] == [b"2"]
    (dead,) = simulated.queue("DLQ.orders").subscribe().take(9)
    assert (dead.body, dead.persistent, dead.headers["n"]) == (b"1", False, 1)
    assert dead.headers["dead_letter_attempts"] == 2
    simulated.check()
    simulated.crash()
    assert simulated.queue("DLQ.orders").depth == 0


def test_many_non_persistent_ones_die_out_of_tmp_storage() -> None:
    simulated = failing(1, memory_limit="4MiB")
    orders = simulated.queue()
    orders.send_many(Message(b"%01000d" % n, persistent=False) for n in range(8_000))
    with orders.subscribe(prefetch=0) as consumer:
        while batch := consumer.take(500):
            consumer.nack(batch)
    simulated.bay.step()
    assert orders.depth == 0
    assert [int(body) for body in bodies(simulated.queue("DLQ.orders").browse())] == list(range(8_000))
    simulated.check()


@interpreted("replaces a method of the library")
def test_non_persistent_ones_that_went_before_memory_was_full_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    simulated = failing(1)
    orders = simulated.queue()
    orders.send_many(Message(b"%d" % n, persistent=False) for n in range(4))
    add = NonPersistentLaneState.add
    added: list[NonPersistentLaneState] = []

    def room_for_two(lane: NonPersistentLaneState, timestamp: int, properties: bytes, body: bytes) -> int:
        if len(added) == 2:
            raise StoreFull(1, 0, "memory_limit")
        added.append(lane)
        return add(lane, timestamp, properties, body)

    with monkeypatch.context() as patch:
        patch.setattr(NonPersistentLaneState, "add", room_for_two)
        give_up(orders, 4, attempts=1)
        simulated.bay.step()
        assert simulated.queue("DLQ.orders").depth == orders.statistics().dead_lettered == 2
    simulated.clock.advance(60)
    simulated.bay.step()
    assert simulated.queue("DLQ.orders").depth == orders.statistics().dead_lettered == 4
    simulated.check()


def test_durable_subscription_gives_up_alone() -> None:
    simulated = failing(2)
    prices = simulated.bay.topic("prices")
    audit, mail = prices.subscribe(durable="audit"), prices.subscribe(durable="mail")
    sent = prices.send(b"1", headers={"n": 1})
    prices.send(b"2")
    for _ in range(2):
        audit.take()[0].nack()
    simulated.bay.step()
    assert [delivery.body for delivery in audit.take(9)] == [b"2"]
    assert [delivery.body for delivery in mail.take(9)] == [b"1", b"2"]
    (dead,) = simulated.queue("DLQ.prices").browse()
    assert dead.headers is not None
    assert (dead.message_id, dead.headers["dead_letter_subscription"]) == (sent, "audit")
    assert simulated.bay.statistics().topics["prices"].subscriptions["audit"].dead_lettered == 1
    simulated.check()
    simulated.crash(is_index_lost=True)
    prices = simulated.bay.topic("prices")
    assert [delivery.body for delivery in prices.subscribe(durable="audit").take(9)] == [b"2"]
    assert [delivery.body for delivery in prices.subscribe(durable="mail").take(9)] == [b"1", b"2"]
    assert bodies(simulated.queue("DLQ.prices").browse()) == [b"1"]
    simulated.check()


def test_offline_subscription_whose_reader_was_killed_gives_up_too() -> None:
    simulated = failing(2)
    prices = simulated.bay.topic("prices")
    audit = prices.subscribe(durable="audit")
    prices.send(b"1")
    audit.take()[0].nack()
    assert audit.take()[0].attempts == 2
    simulated.crash()
    simulated.bay.step()
    assert bodies(simulated.queue("DLQ.prices").browse()) == [b"1"]
    assert simulated.bay.topic("prices").subscribe(durable="audit").take(9) == []


@pytest.mark.parametrize("target", ["DLQ.{name}", None])
def test_subscription_without_a_name_gives_up_as_well(target: str | None) -> None:
    simulated = failing(1, policy={"dead_letter_queue": target})
    prices = simulated.bay.topic("prices")
    reader = prices.subscribe()
    prices.send(b"1")
    prices.send(b"2")
    reader.take()[0].nack()
    simulated.bay.step()
    assert [delivery.body for delivery in reader.take(9)] == [b"2"]
    if target:
        (dead,) = simulated.queue("DLQ.prices").browse()
        assert dead.headers is not None and "dead_letter_subscription" not in dead.headers
    simulated.check()
    simulated.crash(is_index_lost=True)
    simulated.check()
    assert simulated.bay.destinations() == (["DLQ.prices"] if target else [])


def test_deleted_queue_takes_its_dead_letters_along() -> None:
    simulated = failing(1)
    orders = simulated.queue()
    orders.send(b"1")
    give_up(orders, attempts=1)
    orders.delete()
    simulated.bay.step()
    assert simulated.bay.destinations() == []
    simulated.check()


def test_dead_letter_that_a_prepared_transaction_decides_about_waits_for_it() -> None:
    simulated = failing(2)
    orders = simulated.queue()
    orders.send(b"1")
    with orders.subscribe() as consumer:
        consumer.take()[0].nack()
        transaction = simulated.bay.transaction()
        consumer.ack(consumer.take(), transaction=transaction)
        transaction.prepare(b"x")
    simulated.crash()
    simulated.bay.step()
    assert simulated.bay.destinations() == ["orders"] and simulated.queue().depth == 1
    simulated.bay.prepared()[0].rollback()
    simulated.bay.step()
    assert bodies(simulated.queue("DLQ.orders").browse()) == [b"1"]
    simulated.check()


@pytest.mark.parametrize("is_index_lost", [False, True])
def test_one_dead_letter_in_each_data_log_keeps_none_of_them(is_index_lost: bool) -> None:
    simulated = failing(1, max_file_length="64KiB")
    orders, other = simulated.queue(), simulated.queue("other")
    store = simulated.store
    with other.subscribe(prefetch=0) as consumer:
        for n in range(20):
            orders.send(b"%d" % n)
            give_up(orders, attempts=1)
            simulated.bay.step()
            for _ in range(7):
                other.send_many(Message(bytes(1_000)) for _ in range(10))
                consumer.ack(consumer.take(10))
    before = len(store.disk_use.sizes())
    assert before > 20
    simulated.bay.cleanup()
    assert len(store.disk_use.sizes()) <= 4
    simulated.crash(is_index_lost=is_index_lost)
    simulated.bay.step()
    assert [int(body) for body in bodies(simulated.queue("DLQ.orders").browse())] == list(range(20))
    assert simulated.queue().depth == 0
    simulated.check()


# ---------------------------------------------------------------------- full disks


def test_they_are_written_where_sends_are_refused() -> None:
    simulated = failing(1, store_limit="1MiB", max_file_length="64KiB")
    orders = simulated.queue()
    for n in range(100):
        orders.send(b"%d" % n)
    with pytest.raises(Exception, match="store_limit"):
        while True:
            simulated.queue("other").send(bytes(4_000))
    give_up(orders, 100, 1)
    simulated.bay.step()
    assert [int(body) for body in bodies(simulated.queue("DLQ.orders").browse())] == list(range(100))
    simulated.check()


def full_disk(count: int) -> SimulatedBay:
    """No space is left but the reserve."""
    simulated = failing(1, max_file_length="64KiB")
    orders = simulated.queue()
    orders.send_many(Message(b"%0100d" % n) for n in range(count))
    simulated.disk.fail("preallocate", 1, 28, sticky=True)
    with pytest.raises(Exception, match="free space"):
        while True:
            simulated.queue("other").send(bytes(1_000))
    return simulated


def test_full_disk_takes_them_from_the_reserve_and_leaves_acks_the_rest() -> None:
    simulated = full_disk(2_000)
    orders = simulated.queue()
    with orders.subscribe(prefetch=0) as consumer:
        while batch := consumer.take(500):
            consumer.nack(batch)
    simulated.bay.step()
    moved = simulated.queue("DLQ.orders").depth
    assert 0 < moved < 2_000 and orders.depth == 2_000 - moved
    journal = simulated.journal
    assert journal.fullness.is_disk_full and journal.offset <= 32 * 1024 + 2_000
    with simulated.queue("other").subscribe(prefetch=0) as consumer:
        while batch := consumer.take(100):
            for delivery in batch:
                delivery.ack()
    simulated.check()
    simulated.disk.cure()
    simulated.clock.advance(2)
    simulated.bay.cleanup()
    simulated.bay.step()
    assert simulated.queue("DLQ.orders").depth == 2_000 and orders.depth == 0
    simulated.check()


def test_what_found_no_space_is_not_tried_again_at_once(caplog: pytest.LogCaptureFixture) -> None:
    simulated = full_disk(2_000)
    with simulated.queue().subscribe(prefetch=0) as consumer:
        while batch := consumer.take(500):
            consumer.nack(batch)
    for _ in range(5):
        simulated.bay.step()
    waiting = [record for record in caplog.records if "dead letters" in record.message]
    assert len(waiting) == 1


def test_dead_letters_find_room_in_an_index_that_refuses_sends() -> None:
    simulated = SimulatedBay(policies={"orders": DestinationPolicy(max_attempts=1)})
    orders = simulated.queue()
    orders.send_many(Message(b"%d" % n) for n in range(10))
    give_up(orders, 10, 1)
    with simulated.lock:
        simulated.store.journal.set_write_stall(INDEX_LIMIT)
    with pytest.raises(Exception, match="persistent_index"):
        orders.send(b"x")
    assert simulated.dead_letters.step()
    assert simulated.queue("DLQ.orders").depth == 10


# ---------------------------------------------------------------------- crashes


@pytest.mark.parametrize("sync", ["always", "never"])
@pytest.mark.parametrize("is_topic", [False, True])
def test_crash_at_any_call_leaves_each_message_in_exactly_one_queue(sync: SyncMode, is_topic: bool) -> None:
    policies = {">": DestinationPolicy(max_attempts=1)}
    settings = Settings(background=False, memory_limit="4MiB", sync=sync, max_file_length="64KiB", policies=policies)
    disk, metadata, random = SimulatedDisk(), SimulatedMetadataStore(), Random(3)
    states: set[int] = set()

    def opened(disk: SimulatedDisk, metadata: SimulatedMetadataStore) -> Forebay:
        return open_forebay(disk, metadata, settings, ManualClock())

    def look(image: SimulatedDisk, left: SimulatedMetadataStore, context: object) -> None:
        bay = opened(image, left)
        dead = [int(message.body) for message in bay.queue("DLQ.orders").browse()]
        if is_topic:
            # What was not moved is dead still: the subscription gets the others alone.
            (subscriber,) = inside(bay).store.subscriptions.readers()
            lane = subscriber.lanes[4]
            here = [n for n in range(450) if lane is not None and lane.is_pending(n)]
        else:
            here = [int(message.body) for message in bay.queue("orders").browse()]
        assert sorted(here + dead) == list(range(450)), context
        states.add(len(dead))
        bay.step()
        dead = [int(message.body) for message in bay.queue("DLQ.orders").browse()]
        assert dead == sorted(dead) and (sync == "never" or set(range(400)) <= set(dead)), context
        inside(bay).index._check()
        inside(bay).audit()

    def crash(call: str, name: str) -> None:
        for image, left, how in crashes_at(disk, metadata, sync, random):
            look(image, left, (call, name, how))

    bay = opened(disk, metadata)
    messages = [Message(b"%0300d" % n, headers={"n": n}) for n in range(450)]
    if is_topic:
        consumer = bay.topic("orders").subscribe(durable="audit", prefetch=0)
        bay.topic("orders").send_many(messages)
    else:
        bay.queue("orders").send_many(messages)
        consumer = bay.queue("orders").subscribe(prefetch=0)
    batch: list[Delivery] = []
    while len(batch) < 400:
        batch += consumer.take(400 - len(batch))
    consumer.nack(batch)
    bay.checkpoint()
    disk.on_call = crash
    bay.step()
    assert not bay.statistics().failing  # what is thrown in the midst of background work stays there
    bay.cleanup()
    bay.checkpoint()
    disk.on_call = None
    assert states == {0, 256, 400}
