"""inactive_seconds: what is empty and unused for so long is deleted, and a later send makes it anew."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest
from crashing import crashes_at
from delivering import bodies
from inside import inside, open_forebay
from loops import LoopBay
from simulated_bay import SimulatedBay
from simulated_disk import PowerCut, SimulatedDisk
from simulated_metadata import SimulatedMetadataStore

from forebay import Closed, DestinationPolicy, Message, Settings, SettingsError
from forebay.dispatch.config.settings import SyncMode
from forebay.testing import ManualClock

POLICIES = {">": DestinationPolicy(inactive_seconds=60)}


def opened(**fields: Any) -> SimulatedBay:
    return SimulatedBay(policies=POLICIES, **fields)


def let_pass(bay: SimulatedBay, seconds: int) -> None:
    for _ in range(seconds // 5):
        bay.clock.advance(5.0)
        bay.bay.step()


def there(bay: SimulatedBay) -> list[str]:
    return [*bay.bay.destinations(), *bay.bay.topics()]


def test_empty_destinations_that_nobody_uses_are_deleted_in_time() -> None:
    bay = opened()
    queue, topic = bay.queue(), bay.bay.topic("prices")
    queue.send(b"1")
    with queue.subscribe() as consumer:
        consumer.ack(consumer.take())
    topic.send(b"heard by nobody")
    let_pass(bay, 55)
    assert there(bay) == ["orders", "prices"]
    let_pass(bay, 20)
    del queue, topic, consumer
    assert there(bay) == [] and bay.bay.statistics().memory.holders["destinations"] == 0
    bay.reopen()
    assert there(bay) == []
    bay.check()


def test_messages_of_a_topic_that_nobody_needs_any_more_keep_it_no_longer() -> None:
    bay = opened(checkpoint_interval_seconds=1_000_000)
    topic = bay.bay.topic("prices")
    topic.subscribe(durable="audit").close()
    topic.send_many([Message(b"1"), Message(b"2")])
    let_pass(bay, 100)
    assert there(bay) == ["prices"]
    topic.unsubscribe("audit")
    let_pass(bay, 75)
    assert there(bay) == []
    bay.check()


def test_without_the_policy_nothing_is_deleted(bay: SimulatedBay) -> None:
    bay.queue()
    bay.bay.topic("prices")
    let_pass(bay, 10_000)
    assert there(bay) == ["orders", "prices"]


@pytest.mark.parametrize(
    "use",
    [
        lambda bay: bay.queue().send(b"waits"),
        lambda bay: bay.queue().send(b"waits", persistent=False),
        lambda bay: bay.queue().send(b"waits", delay=5_000.0),
        lambda bay: bay.queue().subscribe(),
        lambda bay: bay.queue().pause(),
        lambda bay: bay.queue().send(b"undecided", transaction=bay.bay.transaction()),
        lambda bay: bay.bay.topic("orders").subscribe(),
        lambda bay: bay.bay.topic("orders").subscribe(durable="audit").close(),
        lambda bay: (bay.bay.topic("orders"), bay.bay.topic("*").subscribe()),
    ],
    ids=["message", "non-persistent", "delayed", "consumer", "pause", "transaction", "sub", "durable", "pattern"],
)
def test_what_is_in_use_stays(use: Any) -> None:
    bay = opened()
    kept = use(bay)
    let_pass(bay, 300)
    assert there(bay) == ["orders"]
    assert kept is None or kept
    bay.check()


def test_what_a_call_works_with_stays() -> None:
    bay = opened()
    queue, topic = bay.queue(), bay.bay.topic("prices")
    with queue._held_reopened() as held_queue, topic._held_reopened() as held_topic:
        let_pass(bay, 200)
        assert there(bay) == ["orders", "prices"] and held_queue.is_open and held_topic.is_open
    let_pass(bay, 200)
    assert there(bay) == []
    bay.check()


def test_what_is_used_now_and_then_stays_as_long_as_it_is() -> None:
    bay = opened()
    queue = bay.queue()
    for _ in range(5):
        let_pass(bay, 50)
        queue.send(b"1")
        queue.get(0)
    assert there(bay) == ["orders"]
    let_pass(bay, 80)
    assert there(bay) == []


def test_temporary_destinations_and_those_with_a_duplicate_window_stay() -> None:
    bay = SimulatedBay(policies={">": DestinationPolicy(inactive_seconds=60, duplicate_window=10)})
    other = opened()
    queue, topic = other.bay.temporary_queue(), other.bay.temporary_topic()
    assert bay.queue().send(b"1", message_id="a", producer="p") == "a"
    bay.queue().purge()
    let_pass(bay, 300)
    let_pass(other, 300)
    assert there(bay) == ["orders"] and there(other) == [queue.name, topic.name]
    bay.queue().send(b"1", message_id="a", producer="p")
    assert bay.queue().depth == 0


@pytest.mark.parametrize(
    "send",
    [
        lambda queue: queue.send(b"x"),
        lambda queue: queue.send(b"x", headers={"n": 1}, group="a"),
        lambda queue: queue.send(b"x", persistent=False),
        lambda queue: queue.send(b"x", expires_in=1_000.0),
        lambda queue: queue.send(b"x", delay=0.5),
        lambda queue: queue.send_many([Message(b"x")]),
        lambda queue: queue.send_many(iter([Message(b"x", {"n": 1})])),
    ],
    ids=["plain", "group", "non-persistent", "expiring", "delayed", "many", "many-with-headers"],
)
@pytest.mark.parametrize("most", [None, 5])
@pytest.mark.parametrize("kind", ["queue", "topic"])
def test_later_send_makes_it_anew_whoever_holds_it(send: Any, most: int | None, kind: str) -> None:
    bay = SimulatedBay(policies={">": DestinationPolicy(inactive_seconds=60, max_messages=most)})
    held = bay.queue() if kind == "queue" else bay.bay.topic("orders")
    again = bay.queue() if kind == "queue" else bay.bay.topic("orders")
    let_pass(bay, 80)
    assert there(bay) == []
    consumer = held.subscribe()
    let_pass(bay, 80)
    send(again)
    bay.clock.advance(1.0)
    bay.bay.step()
    assert bodies(consumer.take(10)) == [b"x"]
    consumer.close()
    assert there(bay) == ["orders"]
    bay.check()


def test_what_is_asked_of_one_that_went_is_answered_for_its_successor() -> None:
    bay = opened()
    stale, other = bay.queue(), bay.queue()
    let_pass(bay, 80)
    assert stale.depth == 0 and list(stale.browse()) == [] and stale.purge() == 0 and there(bay) == []
    other.send(b"x")
    assert stale.depth == 1 and stale.statistics().depth == 1 and [found.body for found in stale.browse()] == [b"x"]
    stale.delete()
    assert there(bay) == []
    with pytest.raises(Closed):
        other.send(b"late")
    bay.check()


def test_transaction_and_move_reach_one_that_went() -> None:
    bay = opened()
    target, source = bay.queue("archive"), bay.queue()
    let_pass(bay, 80)
    source.send(b"1")
    assert source.move(target) == 1
    target.purge()
    source.send(b"2")
    let_pass(bay, 80)
    assert there(bay) == ["orders"]
    with bay.bay.transaction() as transaction:
        target.send(b"3", transaction=transaction)
    assert target.depth == 1
    bay.check()


@pytest.mark.parametrize("seconds", [0, 0.5, -1, "60", True])
def test_seconds_that_cannot_be_are_refused(seconds: Any) -> None:
    with pytest.raises(SettingsError, match="inactive_seconds"):
        DestinationPolicy(inactive_seconds=seconds)


def test_in_a_loop_a_later_send_makes_it_anew() -> None:
    async def main() -> None:
        bay = LoopBay(sync="always", policies=POLICIES)
        queue, topic = await bay.aio.queue("orders"), await bay.aio.topic("prices")
        let_pass(bay, 80)
        assert bay.aio.destinations() == bay.aio.topics() == []
        await queue.send(b"1")
        async with topic.subscribe() as consumer:
            await topic.send_many([Message(b"2")])
            assert [delivery.body for delivery in await consumer.take(5)] == [b"2"]
        assert queue.depth == 1 and [found.body async for found in queue.browse()] == [b"1"]
        bay.check()

    asyncio.run(main())


@pytest.mark.parametrize("sync", ["always", "never"])
def test_crash_at_any_call_leaves_it_empty_or_gone_and_what_was_sent_since(sync: SyncMode) -> None:
    settings = Settings(background=False, memory_limit="4MiB", sync=sync, max_file_length="64KiB", policies=POLICIES)
    disk, metadata, clock, random = SimulatedDisk(), SimulatedMetadataStore(), ManualClock(), Random(7)
    allowed: set[int] = set()
    states = 0

    def look(left: SimulatedDisk, index: SimulatedMetadataStore, context: object) -> None:
        nonlocal states
        states += 1
        found = open_forebay(left, index, settings, ManualClock())
        depth = found.queue("orders").depth if "orders" in found.destinations() else -1
        assert depth in allowed, (context, depth)
        assert found.queue("kept").depth == 50, context
        inside(found).audit()

    def crash(call: str, name: str) -> None:
        modes = (PowerCut.ANY, PowerCut.STALE, PowerCut.SYNCED)
        for image, left, how in crashes_at(disk, metadata, sync, random, modes, loses_index=False):
            look(image.crash_process(), left, (call, name, how))

    bay = open_forebay(disk, metadata, settings, clock)
    bay.queue("kept").send_many(Message(b"") for _ in range(50))
    queue = bay.queue("orders")
    for _ in range(4):
        queue.send(bytes(30_000))
        queue.get(0)
    allowed = {0, -1}
    disk.on_call = crash
    for _ in range(20):
        clock.advance(5.0)
        bay.step()
    assert bay.destinations() == ["kept"]
    allowed = {-1}
    bay.checkpoint()
    bay.cleanup()
    allowed = {-1, 0, 1, 2, 3}
    for _ in range(3):
        queue.send(bytes(30_000))
    allowed = {3}
    bay.close()
    disk.on_call = None
    assert states >= 20


def test_a_transaction_that_knows_a_queue_is_a_use_of_it_until_it_ends() -> None:
    bay = opened()
    queue = bay.bay.queue("orders")
    with bay.bay.transaction() as transaction:
        queue.send(b"tea", transaction=transaction)
        let_pass(bay, 320)
        assert there(bay) == ["orders"]
        transaction.rollback()
    let_pass(bay, 55)
    assert there(bay) == ["orders"]
    let_pass(bay, 20)
    assert there(bay) == []
    bay.check()


def test_a_group_has_one_owner_in_a_queue_that_a_send_made_anew() -> None:
    bay = SimulatedBay(policies=POLICIES)
    queue = bay.queue()
    queue.send(b"first", group="g")
    with queue.subscribe() as consumer:
        consumer.ack(consumer.take())
    for _ in range(25):
        bay.clock.advance(6.0)
        bay.bay.step()
    assert bay.bay.destinations() == []
    queue.send_many([Message(b"1", group="g"), Message(b"2", group="g")])
    one, other = queue.subscribe(), queue.subscribe()
    assert [delivery.body for delivery in one.take(1)] == [b"1"]
    assert other.take(1) == []
