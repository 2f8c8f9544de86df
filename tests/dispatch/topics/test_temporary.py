"""Temporary queues and topics: gone with their handle, with the store, and at the open behind a kill."""

from __future__ import annotations

import asyncio
from random import Random

import pytest
from crashing import crashes_at
from inside import inside, open_forebay
from loops import LoopBay
from simulated_bay import SimulatedBay
from simulated_disk import PowerCut, SimulatedDisk
from simulated_metadata import SimulatedMetadataStore

from forebay import Closed, Forebay, Settings, TemporaryQueue, TemporaryTopic, TransactionError
from forebay.dispatch.config.settings import SyncMode
from forebay.dispatch.core.destinations.overhead import CLOSED_QUEUE_BYTES, CLOSED_TOPIC_BYTES
from forebay.testing import ManualClock

KINDS = ("queue", "topic")


def made(bay: SimulatedBay, kind: str) -> TemporaryQueue | TemporaryTopic:
    return bay.bay.temporary_queue() if kind == "queue" else bay.bay.temporary_topic()


def there(bay: Forebay) -> list[str]:
    return [*bay.destinations(), *bay.topics()]


@pytest.mark.parametrize("kind", KINDS)
def test_temporary_destination_is_gone_with_its_block(kind: str) -> None:
    bay = SimulatedBay()
    with made(bay, kind) as replies:
        with replies.subscribe() as consumer:
            named = bay.bay.queue(replies.name) if kind == "queue" else bay.bay.topic(replies.name)
            named.send(b"done")
            (delivery,) = consumer.take(10)
            assert delivery.body == b"done" and delivery.destination == replies.name
        assert there(bay.bay) == [replies.name]
    assert there(bay.bay) == []
    for call in (lambda: replies.send(b"late"), replies.subscribe):
        with pytest.raises(Closed):
            call()
    replies.close()
    replies.delete()
    kept_bytes = CLOSED_QUEUE_BYTES if kind == "queue" else CLOSED_TOPIC_BYTES
    assert bay.bay.statistics().memory.holders["destinations"] == kept_bytes, "of what the test keeps, and nothing else"
    bay.check()


@pytest.mark.parametrize("kind", KINDS)
def test_name_of_a_temporary_destination_that_is_gone_makes_no_other(kind: str) -> None:
    bay = SimulatedBay()
    replies = made(bay, kind)
    replies.close()
    make = bay.bay.queue if kind == "queue" else bay.bay.topic
    with pytest.raises(Closed, match="gone, or never was"):
        make(replies.name)
    if kind == "queue":
        bay.queue().send(b"1")
        with pytest.raises(Closed, match="gone, or never was"):
            bay.queue().move(replies.name)
    assert replies.name not in there(bay.bay)


def test_names_of_temporary_destinations_are_told_apart_and_not_repeated() -> None:
    bay = SimulatedBay()
    names = {made(bay, kind).name for kind in KINDS * 50}
    assert len(names) == 100
    assert {name.partition(".")[0] for name in names} == {"temporary-queue", "temporary-topic"}
    assert all(len(name.partition(".")[2]) == 32 for name in names)


@pytest.mark.parametrize("is_index_lost", [False, True])
def test_temporary_destinations_end_with_the_store_and_at_the_open_behind_a_kill(is_index_lost: bool) -> None:
    bay = SimulatedBay()
    for is_killed in (True, False):
        for kind in KINDS:
            replies = made(bay, kind)
            replies.subscribe(selector="n = 1")
            replies.send(b"1")
        made(bay, "topic").subscribe(durable="audit")  # type: ignore[call-arg]
        bay.queue().send(b"kept")
        bay.bay.checkpoint()
        if is_killed:
            bay.crash(is_index_lost=is_index_lost)
        else:
            bay.bay.close()
            bay.crash(is_index_lost=is_index_lost)
        assert there(bay.bay) == ["orders"]
        assert not bay.store.subscriptions.numbers()
        bay.check()
    assert bay.queue().depth == 2


def test_the_close_of_a_store_leaves_no_temporary_destination_to_the_next_open() -> None:
    bay = SimulatedBay()
    queue, topic = bay.bay.temporary_queue(), bay.bay.temporary_topic()
    queue.send(b"1")
    consumer = topic.subscribe()
    bay.bay.close()
    assert not any(destination.is_temporary for destination in bay.store.destination_table.values())
    with pytest.raises(Closed):
        consumer.take()
    queue.close()
    topic.close()


@pytest.mark.parametrize("commits", [True, False])
def test_temporary_queue_of_a_transaction_goes_when_that_is_decided(commits: bool) -> None:
    bay = SimulatedBay()
    replies = bay.bay.temporary_queue()
    transaction = bay.bay.transaction()
    replies.send(b"1", transaction=transaction)
    with pytest.raises(TransactionError):
        replies.delete()
    replies.close()
    assert bay.bay.destinations() == [replies.name] and bay.bay.step() == 0
    transaction.commit() if commits else transaction.rollback()
    bay.bay.step()
    assert bay.bay.destinations() == []
    bay.check()


def test_temporary_queue_of_a_prepared_transaction_outlives_a_kill_until_that_is_decided() -> None:
    bay = SimulatedBay()
    replies = bay.bay.temporary_queue()
    transaction = bay.bay.transaction()
    replies.send(b"1", transaction=transaction)
    transaction.prepare(b"x")
    bay.crash()
    assert bay.bay.destinations() == [replies.name]
    (prepared,) = bay.bay.prepared()
    prepared.commit()
    bay.bay.step()
    assert bay.bay.destinations() == []
    bay.check()


def test_dead_letters_of_temporary_queues_meet_in_one_queue() -> None:
    bay = SimulatedBay()
    for _ in range(3):
        with bay.bay.temporary_queue() as replies, replies.subscribe() as consumer:
            replies.send(b"poison")
            consumer.reject(consumer.take())
    assert bay.bay.destinations() == ["DLQ.temporary-queue"]
    assert bay.queue("DLQ.temporary-queue").depth == 3
    bay.check()


def test_temporary_destinations_leave_nothing_behind() -> None:
    bay = SimulatedBay(max_file_length="64KiB")
    for n in range(300):
        with made(bay, KINDS[n % 2]) as replies:
            consumer = replies.subscribe()
            replies.send(b"reply", persistent=bool(n % 3))
            consumer.take(n % 2 or 1)
    del replies, consumer  # what a host keeps of the last one is charged
    assert there(bay.bay) == []
    holders = bay.bay.statistics().memory.holders
    assert holders["destinations"] == holders["target_lists"] == holders["dispatch_area"] == 0
    bay.bay.checkpoint()
    bay.bay.cleanup()
    assert bay.bay.statistics().store.data_logs <= 3 and not bay.index.lanes
    bay.check()


def test_in_a_loop_temporary_destinations_are_gone_with_their_block() -> None:
    async def main() -> None:
        bay = LoopBay(sync="always")
        async with bay.aio.temporary_queue() as queue, bay.aio.temporary_topic() as topic:
            async with queue.subscribe() as asked, topic.subscribe() as told:
                await queue.send(b"reply")
                await topic.send(b"news")
                assert [each.body for each in (*await asked.take(5), *await told.take(5))] == [b"reply", b"news"]
            assert bay.aio.destinations() == [queue.name] and bay.aio.topics() == [topic.name]
        assert bay.aio.destinations() == bay.aio.topics() == []
        last = await bay.aio.temporary_queue()
        await last.delete()
        with pytest.raises(Closed):
            await last.send(b"late")
        left = await bay.aio.temporary_topic()
        await bay.aio.close()
        await left.close()

    asyncio.run(main())


@pytest.mark.parametrize("sync", ["always", "never"])
def test_crash_at_any_call_leaves_no_temporary_destination_and_all_else(sync: SyncMode) -> None:
    settings = Settings(background=False, memory_limit="4MiB", sync=sync, max_file_length="64KiB")
    disk, metadata, random = SimulatedDisk(), SimulatedMetadataStore(), Random(5)
    states = 0

    def look(left: SimulatedDisk, index: SimulatedMetadataStore, context: object) -> None:
        nonlocal states
        states += 1
        for _ in range(2):
            opened = open_forebay(left, index, settings, ManualClock())
            assert opened.topics() == [] and opened.destinations() == ["orders"], context
            assert opened.queue("orders").depth == 50, context
            inside(opened).audit()
            left = left.crash_process()

    def crash(call: str, name: str) -> None:
        modes = (PowerCut.ANY, PowerCut.STALE, PowerCut.SYNCED)
        for image, left, how in crashes_at(disk, metadata, sync, random, modes, loses_index=False):
            look(image.crash_process(), left, (call, name, how))

    bay = open_forebay(disk, metadata, settings, ManualClock())
    for _ in range(50):
        bay.queue("orders").send(b"kept")
    disk.on_call = crash
    with bay.temporary_queue() as queue:
        for _ in range(3):
            queue.send(bytes(30_000))
        bay.checkpoint()
    topic = bay.temporary_topic()
    topic.subscribe(durable="audit").close()
    topic.send(bytes(30_000))
    bay.cleanup()
    bay.temporary_queue().send(b"1")
    bay.close()
    disk.on_call = None
    assert states >= 20
