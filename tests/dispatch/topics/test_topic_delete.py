"""Delete: a topic goes with its subscriptions and all they wait for, whatever call a crash follows."""

from __future__ import annotations

import asyncio
import threading
from random import Random

import pytest
from crashing import crashes_at
from delivering import bodies
from inside import inside, open_forebay
from loops import LoopBay, ticks
from simulated_bay import SimulatedBay
from simulated_disk import PowerCut, SimulatedDisk
from simulated_metadata import SimulatedMetadataStore

from forebay import Closed, Consumer, DestinationPolicy, Message, StoreFull, Topic
from forebay.dispatch.config.settings import Settings, SyncMode
from forebay.dispatch.core.destinations.overhead import CLOSED_TOPIC_BYTES
from forebay.dispatch.forebay import Forebay
from forebay.store.index.index import INDEX_LANE_BYTES
from forebay.store.inspect.dump import dump
from forebay.store.recovery.verify import examine_all, judge
from forebay.testing import ManualClock


def busy(bay: SimulatedBay) -> tuple[Topic, list[Consumer]]:
    """A topic with all kinds of subscriptions, which hold and wait for messages."""
    topic = bay.bay.topic("prices")
    topic.subscribe(durable="away").close()
    consumers = [topic.subscribe(durable="audit"), topic.subscribe(), topic.subscribe(selector="JMSPriority = 1")]
    for priority in (1, 4):
        topic.send_many(Message(b"%d" % n, priority=priority) for n in range(300))
        topic.send(b"fleeting", priority=priority, persistent=False)
    topic.send(b"later", delay=60.0)
    for consumer in consumers[:2]:
        consumer.take(7)
        consumer.nack(consumer.take(2), delay=30.0)
    return topic, consumers


def test_deleted_topic_is_gone_with_its_subscriptions_and_all_that_waited() -> None:
    bay = SimulatedBay(max_file_length="64KiB")
    bay.queue().send(b"kept")
    before = bay.bay.statistics().memory.holders
    topic, consumers = busy(bay)
    bay.bay.checkpoint()
    topic.delete()
    topic.delete()
    assert bay.bay.topics() == [] and topic.subscriptions() == [] and not topic.statistics().subscriptions
    for consumer in consumers:
        with pytest.raises(Closed, match="the consumer"):
            consumer.take()
        assert consumer.in_flight == 0
    for call in (lambda: topic.send(b"1"), lambda: topic.send(b"1", persistent=False), topic.subscribe):
        with pytest.raises(Closed, match="the topic"):
            call()
    bay.check()
    bay.bay.checkpoint()
    bay.bay.checkpoint()
    after = bay.bay.statistics().memory.holders
    assert after["destinations"] == before["destinations"] + CLOSED_TOPIC_BYTES, "of what the test keeps"
    assert after["target_lists"] == after["dispatch_area"] == 0
    assert not bay.store.subscriptions.numbers() and not bay.index.forgotten
    bay.clock.advance(100.0)
    bay.bay.step()
    bay.check()
    for _ in range(2):
        bay.reopen()
        assert bay.bay.topics() == [] and bay.queue().depth == 1
        bay.check()


def test_next_topic_of_the_name_begins_anew_and_repeats_no_id() -> None:
    bay = SimulatedBay()
    topic, _ = busy(bay)
    first = topic.send(b"1")
    topic.delete()
    again = bay.bay.topic("prices")
    with again.subscribe(durable="audit") as consumer:
        assert again.send(b"2") != first and bodies(consumer.take(10)) == [b"2"]
    assert again.subscriptions() == ["audit"]
    bay.reopen()
    with bay.bay.topic("prices").subscribe(durable="audit") as consumer:
        assert bodies(consumer.take(10)) == [b"2"]
    bay.check()


def test_what_only_the_topic_needed_is_freed() -> None:
    bay = SimulatedBay(max_file_length="64KiB")
    topic = bay.bay.topic("prices")
    topic.subscribe(durable="away").close()
    topic.send_many(Message(bytes(1000)) for _ in range(500))
    topic.delete()
    assert bay.bay.cleanup().deleted
    assert bay.bay.statistics().store.data_logs <= 2


def test_temporary_topics_that_are_deleted_leave_room_for_ever() -> None:
    bay = SimulatedBay(max_file_length="64KiB")
    held = set()
    for n in range(300):
        topic = bay.bay.topic(f"temp.{n}")
        consumer = topic.subscribe(durable="reply" if n % 2 else None, selector="JMSPriority > 3" if n % 3 else None)
        topic.send(b"reply", persistent=bool(n % 5))
        if n % 4:
            consumer.take()
        if n % 7 == 0:
            consumer.close()
        if n % 11 == 0:
            bay.bay.checkpoint()
        topic.delete()
        del topic, consumer  # what a host keeps of it is charged
        held.add(bay.bay.statistics().memory.holders["destinations"])
    assert held <= {0, INDEX_LANE_BYTES}  # until a checkpoint deletes the rows of the last that had some
    bay.bay.checkpoint()
    assert bay.bay.statistics().memory.holders["destinations"] == 0
    assert not bay.watermarks.lists and not bay.loads.running_low and not bay.index.lanes and not bay.index.forgotten
    assert not bay.bay.statistics().memory.holders["head_queue_cache"]
    bay.check()


def test_consumers_that_wait_are_told(bay: SimulatedBay) -> None:
    told: list[str] = []
    topic = bay.bay.topic("prices")
    topic.subscribe(on_ready=lambda: told.append("ready"))
    consumer = topic.subscribe()

    def take() -> None:
        try:
            consumer.take(timeout=None)
        except Closed as closed:
            told.append(closed.what)

    thread = threading.Thread(target=take)
    thread.start()
    bay.clock.wait_until(lambda: consumer.selector_group.waiting > 0)
    topic.delete()
    thread.join(30)
    assert sorted(told) == ["ready", "the consumer"]


def test_sender_that_waits_for_room_gets_closed() -> None:
    bay = SimulatedBay(policies={"prices": DestinationPolicy(max_messages=1)})
    topic = bay.bay.topic("prices")
    topic.subscribe(durable="audit").close()
    topic.send(b"1")
    ends: list[str] = []

    def send() -> None:
        try:
            topic.send(b"2")
        except Closed as closed:
            ends.append(closed.what)

    thread = threading.Thread(target=send)
    thread.start()
    bay.clock.wait_until(lambda: bay.bay.statistics().topics["prices"].blocked_sends > 0)
    topic.delete()
    thread.join(30)
    assert ends == ["the topic"]
    bay.check()


def test_in_a_loop_a_topic_is_deleted_and_its_waiting_takes_end() -> None:
    async def main() -> None:
        bay = LoopBay(sync="always")
        topic = await bay.aio.topic("prices")
        async with topic.subscribe(durable="audit") as consumer:
            taking = asyncio.create_task(consumer.take(timeout=None))
            await ticks()
            await topic.delete()
            with pytest.raises(Closed, match="the consumer"):
                await taking
        with pytest.raises(Closed, match="the topic"):
            await topic.send(b"x")
        assert bay.aio.topics() == []
        bay.check()

    asyncio.run(main())


def test_full_disk_deletes_nothing() -> None:
    bay = SimulatedBay()
    topic, consumers = busy(bay)
    bay.disk.fail("write", 1, 28)
    with pytest.raises(StoreFull):
        topic.delete()
    bay.disk.cure()
    assert len(consumers[0].take(5)) == 5 and topic.subscriptions() == ["audit", "away"]
    bay.check()


def test_what_is_not_published_yet_never_arrives() -> None:
    bay = SimulatedBay(sync="always")
    topic = bay.bay.topic("prices")
    topic.subscribe()
    topic.send(b"1")
    lane = bay.topic_state().lanes[4]
    assert lane is not None
    with bay.lock:
        sequence = bay.store.message_store.add(lane.destination_lane, 0, b"", b"7")
        bay.hold_unsynced(lane, ((sequence, b"", b"7", 0),))
    topic.delete()
    assert not bay.unpublished
    bay.check()


@pytest.mark.parametrize("selector", [None, "JMSPriority = 1"])
def test_load_that_is_under_way_brings_nothing_back(selector: str | None) -> None:
    bay = SimulatedBay()
    topic = bay.bay.topic("prices")
    topic.subscribe(durable="audit", selector=selector).close()
    topic.send_many(Message(bytes(100), priority=1) for _ in range(400))
    bay.reopen()
    topic = bay.bay.topic("prices")
    topic.subscribe(durable="audit", selector=selector)
    target = bay.lists()[0]
    with bay.lock:
        load = bay.loader.begin(target, is_needed=False)
    assert load is not None
    topic.delete()
    bay.loader.finish(load)
    bay.check()
    holders = bay.bay.statistics().memory.holders
    assert holders["target_lists"] == holders["pending_cache"] == holders["head_queue_cache"] == 0


@pytest.mark.parametrize("is_record_gone", [False, True])
def test_the_topic_stays_gone_when_the_index_is_lost(is_record_gone: bool) -> None:
    """The oldest data log is kept by a queue; the one with the record is not needed for it."""
    bay = SimulatedBay(max_file_length="64KiB")
    topic = bay.bay.topic("prices")
    with topic.subscribe(durable="audit") as consumer:
        topic.send_many(Message(b"%d" % n) for n in range(10))
        consumer.ack(consumer.take(3))
    bay.queue().send(b"7")
    for _ in range(2):
        bay.queue("filler").send(bytes(70_000))
    topic.delete()
    if is_record_gone:
        for _ in range(2):
            bay.queue("filler").send(bytes(70_000))
        bay.queue("filler").purge()
        bay.store.cleanup.delete_data_logs()
    assert ("delete" in {row["kind"] for row in dump(bay.disk)}) is not is_record_gone
    assert judge(list(examine_all(bay.disk))).findings == ()
    bay.crash(is_index_lost=True)
    assert bay.bay.topics() == [] and bay.queue().depth == 1
    assert not bay.store.subscriptions.numbers()
    bay.check()
    bay.reopen()
    bay.check()


@pytest.mark.parametrize("sync", ["always", "never"])
def test_crash_at_any_call_leaves_the_topic_with_its_subscriptions_or_gone(sync: SyncMode) -> None:
    """Through a deletion, checkpoints, cleanups, and a new topic of the same name."""
    settings = Settings(background=False, memory_limit="4MiB", sync=sync, max_file_length="64KiB")
    disk, metadata, random = SimulatedDisk(), SimulatedMetadataStore(), Random(3)
    modes = (PowerCut.ANY, PowerCut.STALE, PowerCut.SYNCED, PowerCut.KEPT)
    states = 0

    def opened(disk: SimulatedDisk, metadata: SimulatedMetadataStore) -> Forebay:
        return open_forebay(disk, metadata, settings, ManualClock())

    def look(disk: SimulatedDisk, metadata: SimulatedMetadataStore, context: object) -> None:
        nonlocal states
        states += 1
        left = opened(disk, metadata)
        found = -1
        if left.topics():
            topic = left.topic("prices")
            subscriptions = topic.statistics().subscriptions
            found = subscriptions["audit"].depth if subscriptions else 0
        assert found in allowed, (context, found)
        assert left.queue("orders").depth == 50, context
        inside(left).index._check()
        inside(left).audit()

    def crash(call: str, name: str) -> None:
        for image, left, how in crashes_at(disk, metadata, sync, random, modes):
            look(image.crash_process(), left, (call, name, how))

    bay = opened(disk, metadata)
    topic = bay.topic("prices")
    bay.queue("orders").send_many(Message(b"") for _ in range(50))
    consumer = topic.subscribe(durable="audit")
    topic.subscribe()
    topic.send_many(Message(bytes(300), priority=n % 2) for n in range(700))
    bay.checkpoint()
    consumer.ack(consumer.take(5))
    bay.checkpoint()
    allowed: set[int] = {695, -1}
    disk.on_call = crash
    topic.delete()
    allowed = {-1}
    bay.checkpoint()
    bay.cleanup()
    allowed = {-1, 0}
    topic = bay.topic("prices")
    topic.subscribe(durable="audit").close()
    allowed = set(range(4))
    for _ in range(3):
        topic.send(bytes(30_000))
    allowed = {3, -1}
    topic.delete()
    allowed = {-1}
    bay.cleanup()
    bay.close()
    disk.on_call = None
    assert states >= 40
    assert opened(disk, metadata).topics() == []


@pytest.mark.parametrize("seed", range(12))
def test_random_deletions_between_all_else_leave_what_was_sent_since(seed: int) -> None:
    random = Random(seed)
    bay = SimulatedBay(seed, sync=random.choice(("always", "never")), max_file_length="64KiB")
    names = ("prices", "rates")
    pending: dict[str, list[bytes] | None] = dict.fromkeys(names)
    number = 0
    for _ in range(120):
        name = random.choice(names)
        topic = bay.bay.topic(name)
        action = random.choice(("send", "send", "send", "take", "subscribe", "delete", "step", "reopen", "checkpoint"))
        waiting = pending[name]
        if action == "send":
            numbers = range(number, number + random.choice((1, 30, 700)))
            number = numbers.stop
            topic.send_many(Message(b"%d" % n) for n in numbers)
            if waiting is not None:
                waiting += (b"%d" % n for n in numbers)
        elif action == "subscribe":
            topic.subscribe(durable="audit").close()
            pending[name] = waiting if waiting is not None else []
        elif action == "take" and waiting is not None:
            with topic.subscribe(durable="audit") as consumer:
                taken = consumer.take(random.choice((1, 100)))
                assert bodies(taken) == waiting[: len(taken)]
                consumer.ack(taken)
                del waiting[: len(taken)]
        elif action == "delete":
            topic.delete()
            pending[name] = None
        elif action == "step":
            bay.clock.advance(1.0)
            bay.bay.step()
        elif action == "reopen":
            random.choice((bay.reopen, bay.crash, lambda: bay.crash(is_index_lost=True)))()
        elif action == "checkpoint":
            bay.bay.checkpoint()
            bay.bay.cleanup()
        bay.check()
    for name, left in pending.items():
        subscriptions = bay.bay.topic(name).statistics().subscriptions
        assert (subscriptions["audit"].depth if subscriptions else None) == (len(left) if left is not None else None)
