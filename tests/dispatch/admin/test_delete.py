"""Delete: a queue goes with everything in it, from RAM, index and journal alike, whatever call a crash follows."""

from __future__ import annotations

import gc
import threading
import tracemalloc
from random import Random
from typing import Any

import pytest
from compiled import interpreted
from crashing import crashes_at
from inside import inside, open_forebay
from sampling import sampled
from simulated_bay import SimulatedBay
from simulated_disk import PowerCut, SimulatedDisk
from simulated_metadata import SimulatedMetadataStore

from forebay import Closed, DestinationPolicy, Message, StateError, StoreFull, Topic, TransactionError
from forebay.dispatch.config.settings import Settings, SyncMode
from forebay.dispatch.core.destinations.queue_state import QueueState
from forebay.dispatch.core.memory.memory_statistics import MemoryStatistics
from forebay.dispatch.forebay import Forebay
from forebay.store.format.contents import Contents
from forebay.store.format.times import NO_TIMES, MessageTimes
from forebay.store.inspect.dump import dump
from forebay.store.recovery.verify import examine_all, judge
from forebay.testing import ManualClock


def filled(count: int, body_bytes: int = 20, **fields: Any) -> SimulatedBay:
    simulated = SimulatedBay(**fields)
    simulated.queue().send_many(Message(b"%0*d" % (body_bytes, n), priority=n % 2) for n in range(count))
    return simulated


def lose_index(simulated: SimulatedBay) -> None:
    """Close, and open again without it."""
    simulated.bay.close()
    simulated.metadata.clear()
    simulated.open_again()


def lanes(simulated: SimulatedBay) -> set[int]:
    return {lane.owner_number for lane in simulated.index.lanes.values()}


def test_deleted_queue_is_gone_with_all_that_was_in_it() -> None:
    simulated = filled(3000)
    simulated.queue("prices").send(b"7")
    simulated.queue().delete()
    assert simulated.bay.destinations() == ["prices"]
    statistics = simulated.bay.statistics()
    assert list(statistics.destinations) == ["prices"] and statistics.store.pending_messages == 1
    simulated.check()
    simulated.reopen()
    assert simulated.bay.destinations() == ["prices"]
    assert simulated.queue().depth == 0 and simulated.queue("prices").depth == 1
    simulated.check()


def test_next_use_of_the_name_begins_anew_and_repeats_no_id() -> None:
    simulated = SimulatedBay()
    first = simulated.queue().send(b"1")
    simulated.queue().delete()
    second = simulated.queue().send(b"2")
    assert first != second
    simulated.queue().delete()
    simulated.reopen()
    third = simulated.queue().send(b"3")
    assert len({first, second, third}) == 3
    assert [message.body for message in simulated.queue().browse()] == [b"3"]
    assert simulated.queue().find(first) is None


@pytest.mark.parametrize("loses_index", [False, True])
def test_number_of_a_deleted_queue_is_never_given_again(loses_index: bool) -> None:
    """Also when nothing in the journal speaks of it any more."""
    simulated = SimulatedBay(max_file_length="64KiB")
    first = simulated.queue().send(b"1")
    simulated.queue().delete()
    for _ in range(3):
        simulated.queue("others").send(bytes(70_000))
        with simulated.queue("others").subscribe() as consumer:
            consumer.ack(consumer.take(9))
    simulated.bay.cleanup()
    assert 1 not in simulated.store.disk_use.sizes()
    if loses_index:
        lose_index(simulated)
    simulated.reopen()
    assert simulated.queue().send(b"2") != first


def test_consumers_are_closed_and_waiting_takes_end() -> None:
    simulated = filled(10)
    queue = simulated.queue()
    consumer, picky = queue.subscribe(), queue.subscribe(selector="JMSPriority = 0")
    held = consumer.take(3)
    queue.delete()
    for closed in (consumer, picky):
        with pytest.raises(Closed):
            closed.take(1)
    with pytest.raises(StateError):
        consumer.ack(held)
    assert [delivery.body for delivery in held] and held[0].priority == 1
    assert consumer.in_flight == 0 and list(consumer) == []
    consumer.close()
    simulated.check()


def test_take_that_waits_for_ever_ends_with_closed() -> None:
    simulated = SimulatedBay()
    queue = simulated.queue()
    consumer = queue.subscribe()
    ends: list[str] = []

    def take() -> None:
        try:
            consumer.take(1, timeout=None)
        except Closed as closed:
            ends.append(closed.what)

    thread = threading.Thread(target=take)
    thread.start()
    simulated.clock.wait_until(lambda: consumer.selector_group.waiting > 0)
    queue.delete()
    thread.join(30)
    assert ends == ["the consumer"]


def test_statistics_of_a_deleted_queue_still_say_what_its_consumers_got() -> None:
    store, other = SimulatedBay(), SimulatedBay()
    queue, kept = store.queue(), other.queue()
    for each in (queue, kept):
        each.send(b"1")
        with each.subscribe() as consumer:
            consumer.ack(consumer.take(1))
    queue.delete()
    assert queue.statistics().delivered == 1
    kept.delete()
    assert (queue.statistics().delivered, kept.statistics().delivered) == (1, 1), "each counts for itself"


def test_object_of_a_deleted_queue_is_empty_and_refuses_what_would_fill_it() -> None:
    simulated = filled(5)
    queue = simulated.queue()
    queue.delete()
    queue.delete()
    for call in (lambda: queue.send(b"1"), lambda: queue.send_many([Message(b"1")]), queue.subscribe):
        with pytest.raises(Closed, match="the queue"):
            call()
    assert queue.depth == queue.depth_bytes == queue.purge() == 0
    assert list(queue.browse()) == [] and queue.find("x") is None
    simulated.check()


@pytest.mark.parametrize("is_many", [False, True])
def test_send_that_is_under_way_while_the_queue_is_deleted_stores_nothing(is_many: bool) -> None:
    """It has the lane already, and waits for the state lock."""
    simulated = filled(5)
    queue = simulated.queue()
    lane = simulated.queue_state("orders").lanes[0]
    assert lane is not None
    queue.delete()
    before = simulated.journal.journal_bytes
    with simulated.lock, pytest.raises(Closed):
        if is_many:
            simulated.store.message_store.append_slice(
                lane.destination_lane, 0, Contents.of([(b"", b"1")] * min(2, lane.destination_lane.slice_capacity))
            )
        else:
            simulated.store.message_store.add(lane.destination_lane, 0, b"", b"1")
    assert simulated.journal.journal_bytes == before
    assert simulated.journal.failure is None
    simulated.queue("prices").send(b"1")


@pytest.mark.parametrize("times", [NO_TIMES, MessageTimes(0, 10**15), MessageTimes(10**15, 0)])
def test_non_persistent_send_that_is_under_way_while_the_queue_is_deleted_holds_no_memory(times: MessageTimes) -> None:
    simulated = filled(5)
    queue = simulated.queue()
    queue.send(b"x", persistent=False)
    queue.send(b"a later turn")
    lane = simulated.queue_state().non_persistent_lanes[4]  # the send has looked it up
    assert lane is not None
    queue.delete()
    with simulated.lock, pytest.raises(Closed):
        if times == NO_TIMES:
            lane.add(0, b"", b"x")
        else:
            lane.add_timed(0, b"", b"x", times)
    simulated.check()


def test_sender_that_waits_for_room_gets_closed() -> None:
    simulated = SimulatedBay(policies={"orders": DestinationPolicy(max_messages=1)})
    queue = simulated.queue()
    queue.send(b"1")
    ends: list[str] = []

    def send() -> None:
        try:
            queue.send(b"2")
        except Closed as closed:
            ends.append(closed.what)

    thread = threading.Thread(target=send)
    thread.start()
    simulated.clock.wait_until(lambda: simulated.bay.statistics().destinations["orders"].blocked_sends > 0)
    queue.delete()
    thread.join(30)
    assert ends == ["the queue"]
    simulated.queue().send(b"3")


def test_what_is_not_published_yet_never_arrives() -> None:
    simulated = filled(3, sync="always")
    queue = simulated.queue()
    with simulated.lock:
        lane = simulated.queue_state("orders").lanes[0]
        assert lane is not None
        sequence = simulated.store.message_store.add(lane.destination_lane, 0, b"", b"7")
        simulated.hold_unsynced(lane, ((sequence, b"", b"7", 0),))
    queue.delete()
    assert not simulated.unpublished
    assert simulated.bay.statistics().memory.holders["head_queue_cache"] == 0
    simulated.queue().send(b"8")
    simulated.check()
    assert [message.body for message in simulated.queue().browse()] == [b"8"]


def test_parked_messages_are_forgotten() -> None:
    simulated = filled(5)
    with simulated.queue().subscribe() as consumer:
        consumer.nack(consumer.take(5), delay=5.0)
        simulated.queue().delete()
    assert simulated.next_due() is None
    simulated.clock.advance(10)
    simulated.bay.step()
    simulated.check()


@pytest.mark.parametrize("selector", [None, "JMSPriority = 0"])
@pytest.mark.parametrize("is_abandoned", [False, True])
def test_load_that_is_under_way_brings_nothing_back(selector: str | None, is_abandoned: bool) -> None:
    simulated = filled(400)
    if not is_abandoned:
        simulated.reopen()
    queue = simulated.queue()
    queue.subscribe(selector=selector)
    target = simulated.lists()[0]
    with simulated.lock:
        load = simulated.loader.begin(target, is_needed=False)
    assert load is not None
    queue.delete()
    if is_abandoned:
        with simulated.lock:
            simulated.loader.abandon(load)
    else:
        simulated.loader.finish(load)
    simulated.check()
    holders = simulated.bay.statistics().memory.holders
    assert holders["target_lists"] == holders["pending_cache"] == holders["head_queue_cache"] == 0


def test_browse_that_is_under_way_ends() -> None:
    simulated = filled(2000, 500)
    simulated.reopen()
    messages = simulated.queue().browse()
    next(messages)
    simulated.queue().delete()
    assert len(list(messages)) < 2000
    simulated.check()


def test_full_disk_deletes_nothing() -> None:
    simulated = filled(5)
    queue = simulated.queue()
    consumer = queue.subscribe()
    simulated.disk.fail("write", 1, 28)
    with pytest.raises(StoreFull):
        queue.delete()
    simulated.disk.cure()
    assert len(consumer.take(10) + consumer.take(10)) == 5
    simulated.check()


def test_closed_store_deletes_nothing() -> None:
    simulated = filled(5)
    queue = simulated.queue()
    simulated.bay.close()
    with pytest.raises(Closed):
        queue.delete()


def test_queue_that_an_undecided_transaction_knows_is_not_deleted() -> None:
    simulated = filled(3)
    queue, others = simulated.queue(), simulated.queue("others")
    for is_written in (False, True):
        transaction = simulated.bay.transaction()
        queue.send(bytes(300_000 if is_written else 1), transaction=transaction)
        with pytest.raises(TransactionError):
            queue.delete()
        others.delete()
        transaction.rollback()
        others = simulated.queue("others")
    with queue.subscribe() as consumer:
        transaction = simulated.bay.transaction()
        consumer.ack(consumer.take(1), transaction=transaction)
        transaction.prepare(b"x")
    simulated.reopen()
    with pytest.raises(TransactionError):
        simulated.queue().delete()
    simulated.bay.prepared()[0].commit()
    simulated.queue().delete()
    assert simulated.bay.destinations() == ["others"]
    simulated.check()


def test_send_in_a_transaction_that_comes_too_late_is_refused_and_the_transaction_goes_on() -> None:
    simulated = filled(1)
    queue = simulated.queue()
    [lane] = filter(None, simulated.queue_state("orders").lanes)
    transaction = simulated.bay.transaction()
    queue.delete()
    with pytest.raises(Closed):
        queue.send(b"1", transaction=transaction)
    with pytest.raises(Closed):
        transaction.add(lane, 0, Contents([b""], [b"1"]), [None], [])
    simulated.queue().send(b"2", transaction=transaction)
    transaction.commit()
    assert [message.body for message in simulated.queue().browse()] == [b"2"]
    simulated.check()


def test_data_logs_of_a_deleted_queue_go_and_those_of_others_stay() -> None:
    simulated = filled(600, 1000, max_file_length="64KiB")
    simulated.queue("prices").send(b"7")
    simulated.queue().send_many(Message(bytes(1000)) for _ in range(300))
    simulated.bay.checkpoint()
    simulated.queue().delete()
    assert simulated.bay.cleanup().deleted
    assert simulated.bay.statistics().store.data_logs <= 3
    assert lanes(simulated) == {2}
    simulated.reopen()
    assert simulated.queue("prices").depth == 1


def test_rows_of_the_index_go_with_the_next_checkpoint_whatever_was_under_way() -> None:
    simulated = filled(3000)
    simulated.bay.checkpoint()
    with simulated.lock:  # a checkpoint is writing while the queue is deleted
        taken, deleted = simulated.index.take_dirty(), simulated.index.take_rows_to_delete()
    simulated.queue().delete()
    with simulated.lock:
        simulated.index.checkpointed(taken, deleted, [], is_stored=True)
    simulated.bay.checkpoint()
    simulated.bay.checkpoint()
    assert not simulated.index.forgotten and not simulated.index.lanes
    assert simulated.index.held_bytes == 0
    snapshot = simulated.metadata.load()
    assert snapshot is not None and not snapshot.blocks
    simulated.check()


def test_messages_left_in_old_data_logs_stay_gone_when_the_index_is_lost_and_the_record_too() -> None:
    """The oldest data log is kept by another queue; the one with the record is not needed for it."""
    simulated = SimulatedBay(max_file_length="64KiB")
    simulated.queue().send(b"1")
    simulated.queue("prices").send(b"7")
    for _ in range(2):
        simulated.queue("filler").send(bytes(70_000))
    simulated.queue().delete()
    for _ in range(2):
        simulated.queue("filler").send(bytes(70_000))
    simulated.queue("filler").purge()
    simulated.store.cleanup.delete_data_logs()
    kinds = [(row["kind"], row["data_log"]) for row in dump(simulated.disk)]
    assert ("destination", 1) in kinds and "delete" not in dict(kinds)
    lose_index(simulated)
    assert simulated.bay.recovery.index_rebuilt
    assert simulated.bay.destinations() == ["filler", "prices"]
    assert simulated.queue("prices").depth == 1 and simulated.queue("orders").depth == 0
    assert lanes(simulated) <= {2, 3}
    simulated.check()


def test_verify_and_dump_know_the_record() -> None:
    simulated = filled(2)
    simulated.queue().delete()
    rows = [row for row in dump(simulated.disk) if row["kind"] == "delete"]
    assert [row["destination"] for row in rows] == ["orders"]
    assert judge(list(examine_all(simulated.disk))).findings == ()


@interpreted("weighs Python objects")
@pytest.mark.parametrize("count", sampled([5_000, 10_000], 1))
def test_thousands_of_queues_that_were_deleted_leave_nothing(count: int) -> None:
    simulated = SimulatedBay(max_file_length="64KiB")

    def churn(begin: int, count: int) -> None:
        for n in range(begin, begin + count):
            queue = simulated.queue(f"reply.{n}")
            queue.send(b"1", priority=n % 10)
            consumer = queue.subscribe(selector="JMSPriority > 4" if n % 3 == 1 else None)
            if n % 3 == 0:
                consumer.nack(consumer.take(1), delay=1e6)
                queue.send(b"2")
            elif n % 3 == 1:
                consumer.take(1)
            else:
                consumer.close()
                queue.send(b"2")
            if n % 7 == 0:
                simulated.bay.checkpoint()
            queue.delete()
        simulated.bay.cleanup()
        simulated.check()
        gc.collect()

    def held_bytes() -> int:
        """Without what the simulated disk has in RAM, deleted files among that."""
        snapshot = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(False, "*simulated_*.py")])
        return sum(found.size for found in snapshot.statistics("filename"))

    churn(0, 1000)
    before = MemoryStatistics.of(simulated.budget).holders
    tracemalloc.start()
    try:
        churn(1000, 500)
        settled = held_bytes()
        churn(1500, 2000)
        grown = held_bytes() - settled
    finally:
        tracemalloc.stop()
    assert grown < 100_000  # 50 bytes each
    churn(3500, count - 3500)
    assert MemoryStatistics.of(simulated.budget).holders == before
    queues = [found for found in gc.get_objects() if isinstance(found, QueueState)]
    assert sum(found.parts.target_area is simulated.target_area for found in queues) <= 1  # the loader's last one
    assert not simulated.index.lanes and not simulated.index.forgotten
    memory = simulated.memories.common
    for cache in (memory.head_queue_cache, memory.pending_cache):
        cache._check()  # no lane without messages
        assert not len(cache)
    assert not memory.head_queue_cache.stopped
    assert not simulated.watermarks.lists and not simulated.loads.running_low
    assert simulated.bay.statistics().store.data_logs == 1


@pytest.mark.parametrize("sync", ["always", "never"])
def test_crash_at_any_call_leaves_the_queue_with_what_it_had_or_gone(sync: SyncMode) -> None:
    """Through a deletion, checkpoints, cleanups, and a new queue of the same name."""
    settings = Settings(background=False, memory_limit="4MiB", sync=sync, max_file_length="64KiB")
    disk, metadata, random = SimulatedDisk(), SimulatedMetadataStore(), Random(3)
    modes = (PowerCut.ANY, PowerCut.STALE, PowerCut.SYNCED, PowerCut.KEPT)
    ids: set[str] = set()
    states = 0

    def opened(disk: SimulatedDisk, metadata: SimulatedMetadataStore) -> Forebay:
        return open_forebay(disk, metadata, settings, ManualClock())

    def look(disk: SimulatedDisk, metadata: SimulatedMetadataStore, context: object) -> None:
        nonlocal states
        states += 1
        left = opened(disk, metadata)
        found = left.queue("orders").depth if "orders" in left.destinations() else -1
        assert found in allowed, (context, found)
        assert left.queue("prices").depth == 50, context
        inside(left).index._check()
        inside(left).audit()
        if sync == "always":
            assert left.queue("orders").send(b"new") not in ids, context

    def crash(call: str, name: str) -> None:
        for image, left, how in crashes_at(disk, metadata, sync, random, modes):
            look(image.crash_process(), left, (call, name, how))

    bay = opened(disk, metadata)
    queue = bay.queue("orders")
    bay.queue("prices").send_many(Message(b"") for _ in range(50))
    ids.update(queue.send_many(Message(bytes(300), priority=n % 2) for n in range(700)))
    bay.checkpoint()
    consumer = queue.subscribe()
    consumer.take(5)
    allowed: set[int] = {700, -1}
    disk.on_call = crash
    queue.delete()
    allowed = {-1}
    bay.checkpoint()
    bay.cleanup()
    allowed = {-1, 0}
    queue = bay.queue("orders")
    allowed = set(range(4))
    for _ in range(3):
        ids.add(queue.send(bytes(30_000)))
    allowed = {3, -1}
    queue.delete()
    allowed = {-1}
    bay.cleanup()
    bay.close()
    disk.on_call = None
    assert states >= 40
    assert opened(disk, metadata).destinations() == ["prices"]


@pytest.mark.parametrize("seed", sampled(range(20), 8))
def test_random_deletions_between_all_else_leave_what_was_sent_since(seed: int) -> None:
    random = Random(seed)
    simulated = SimulatedBay(seed, sync=random.choice(("always", "never")), max_file_length="64KiB")
    names = ("orders", "prices", "audit")
    pending: dict[str, list[int]] = {name: [] for name in names}
    ids: set[str] = set()
    number = 0
    for _ in range(120):
        name = random.choice(names)
        queue = simulated.queue(name)
        action = random.choice(("send", "send", "send", "take", "delete", "step", "reopen", "checkpoint", "lose"))
        if action == "send":
            numbers = range(number, number + random.choice((1, 30, 700)))
            number = numbers.stop
            messages = [Message(b"%d" % n + bytes(random.choice((0, 300)))) for n in numbers]
            if random.random() < 0.3:
                with simulated.bay.transaction() as transaction:
                    given = queue.send_many(messages, transaction=transaction)
            else:
                given = queue.send_many(messages)
            assert ids.isdisjoint(given)
            ids.update(given)
            pending[name] += numbers
        elif action == "take":
            consumer = queue.subscribe(selector=random.choice((None, "JMSPriority = 4")))
            batch = consumer.take(random.choice((1, 100)))
            assert [int(delivery.body.rstrip(b"\0")) for delivery in batch] == pending[name][: len(batch)]
            if random.random() < 0.6:
                consumer.ack(batch)
                del pending[name][: len(batch)]
            if random.random() < 0.9:
                consumer.close()
            else:
                consumer.nack([delivery for delivery in batch if delivery.lane.deliveries.get(delivery.sequence)])
                consumer.close()
        elif action == "delete":
            queue.delete()
            pending[name] = []
        elif action == "reopen":
            simulated.reopen()
        elif action == "lose":
            simulated.bay.cleanup()
            lose_index(simulated)
        elif action == "checkpoint":
            simulated.bay.checkpoint()
        else:
            simulated.clock.advance(random.choice((0.1, 31.0)))
            simulated.bay.step()
        simulated.check()
        assert {name: simulated.queue(name).depth for name in names} == {name: len(pending[name]) for name in names}
    for name in names:
        found = [int(message.body.rstrip(b"\0")) for message in simulated.queue(name).browse()]
        assert found == pending[name]


@pytest.mark.parametrize("kind", ["queue", "topic"])
def test_who_still_has_a_lane_of_what_was_deleted_hears_that_it_is_closed(kind: str) -> None:
    simulated = SimulatedBay()
    destination = simulated.bay.queue("gone") if kind == "queue" else simulated.bay.topic("gone")
    if isinstance(destination, Topic):
        destination.subscribe(durable="audit").close()
    destination.send(b"1")
    lane = destination.destination.lanes[4]
    assert lane is not None
    destination.delete()
    with simulated.lock, pytest.raises(Closed, match="^the queue or topic is closed"):
        simulated.store.message_store.add(lane.destination_lane, 0, b"", b"2")
    simulated.check()
