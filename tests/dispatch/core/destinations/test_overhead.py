"""The charge for destinations and subscriptions, used or not."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from compiled import interpreted
from inside import inside
from simulated_bay import SimulatedBay

import forebay
from forebay import Delivery, DestinationPolicy, Message, Queue, Settings, SettingsError, StoreFull, Topic
from forebay.dispatch.core.destinations.overhead import (
    CLOSED_QUEUE_BYTES,
    CLOSED_TOPIC_BYTES,
    COUNTED_BYTES,
    FAN_OUT_BYTES,
    OPEN_QUEUE_BYTES,
    OPEN_SUBSCRIPTION_BYTES,
    OPEN_TOPIC_BYTES,
    row_bytes,
)
from forebay.dispatch.core.lanes.non_persistent_lane_state import NON_PERSISTENT_LANE_BYTES
from forebay.dispatch.core.model.destination import LANE_STATE_BYTES
from forebay.store.index.backlog_sets import SUBSCRIPTION_LANE_BYTES
from forebay.store.index.idle_lanes import IDLE_LANE_BYTES
from forebay.store.index.index import INDEX_LANE_BYTES
from forebay.store.index.sequence_bitmap import MASKS_STEP_BYTES, STEP_MASKS
from forebay.store.index.subscription_table import CURSOR_BYTES, SUBSCRIPTION_ROW_BYTES
from forebay.store.index.subscriptions import SUBSCRIBER_BYTES
from forebay.store.numbering import BLOCK_MESSAGES

MANY = 10_000
LANE_BYTES = INDEX_LANE_BYTES + LANE_STATE_BYTES


def subscription_bytes(name: str) -> int:
    """What a durable subscription without a selector is charged that nobody reads, beside its lanes."""
    return SUBSCRIPTION_ROW_BYTES + len(name) + len(name) // 8


def charged(bay: SimulatedBay) -> int:
    return bay.bay.statistics().memory.holders["destinations"]


def test_each_destination_and_subscription_is_charged_until_it_ends() -> None:
    bay = SimulatedBay()
    bay.queue("orders")
    prices = bay.bay.topic("prices")
    prices.subscribe(durable="audit").close()
    topic_bytes = row_bytes("prices") + OPEN_TOPIC_BYTES
    all_bytes = row_bytes("orders") + topic_bytes + subscription_bytes("audit")
    assert charged(bay) == all_bytes + OPEN_QUEUE_BYTES
    with prices.subscribe():
        assert charged(bay) == all_bytes + OPEN_QUEUE_BYTES + SUBSCRIBER_BYTES + OPEN_SUBSCRIPTION_BYTES
        bay.check()
    bay.close_idle()
    assert charged(bay) == all_bytes
    bay.check()
    bay.reopen()
    assert charged(bay) == all_bytes
    bay.queue("orders").send(b"x")
    assert charged(bay) == all_bytes + OPEN_QUEUE_BYTES + LANE_BYTES
    assert bay.queue("orders").purge() == bay.close_idle() == 1
    assert charged(bay) == all_bytes + COUNTED_BYTES + IDLE_LANE_BYTES
    bay.check()
    bay.bay.topic("prices").unsubscribe("audit")
    bay.queue("orders").delete()
    assert charged(bay) == topic_bytes
    bay.check()
    bay.crash(is_index_lost=True)
    assert charged(bay) == row_bytes("prices")
    bay.check()


def test_each_lane_is_charged_while_it_is_open_and_a_little_while_it_is_not() -> None:
    bay = SimulatedBay()
    queue = bay.queue("orders")
    existing_bytes = charged(bay) - OPEN_QUEUE_BYTES
    for lanes, priority in enumerate((4, 9, 0), 1):
        queue.send(b"x", priority=priority)
        queue.send(b"x", priority=priority)
        assert charged(bay) == existing_bytes + OPEN_QUEUE_BYTES + LANE_BYTES * lanes
    queue.send(b"x", persistent=False)
    assert charged(bay) == existing_bytes + OPEN_QUEUE_BYTES + 3 * LANE_BYTES + NON_PERSISTENT_LANE_BYTES
    bay.check()
    assert queue.purge() == 7 and bay.close_idle() == 1
    assert charged(bay) == existing_bytes + CLOSED_QUEUE_BYTES + COUNTED_BYTES + 4 * IDLE_LANE_BYTES
    bay.check()
    bay.reopen()
    assert charged(bay) == existing_bytes + 3 * IDLE_LANE_BYTES
    bay.queue("orders").delete()
    assert charged(bay) == 0
    bay.check()


def test_a_lane_of_which_rows_are_stored_is_charged_until_a_checkpoint_has_deleted_them() -> None:
    bay = SimulatedBay()
    for close in (bay.close_idle, bay.queue("orders").delete):
        queue = bay.queue("orders")
        queue.send(b"x")
        bay.bay.checkpoint()
        queue.purge()
        before = charged(bay)
        close()
        assert before > charged(bay) >= INDEX_LANE_BYTES
        bay.check()
        bay.bay.checkpoint()
        assert charged(bay) < INDEX_LANE_BYTES
        bay.check()


def test_each_lane_of_a_topic_is_charged_with_what_subscriptions_have_of_it() -> None:
    bay = SimulatedBay()
    prices = bay.bay.topic("prices")
    prices.subscribe(durable="audit").close()
    before = charged(bay)
    prices.send(b"x")
    assert charged(bay) == before + LANE_BYTES + CURSOR_BYTES
    prices.send(b"x", priority=7)
    assert charged(bay) == before + 2 * (LANE_BYTES + CURSOR_BYTES)
    bay.check()
    consumer = prices.subscribe(durable="audit")
    lane_bytes = LANE_BYTES + SUBSCRIPTION_LANE_BYTES + LANE_STATE_BYTES
    online = before + SUBSCRIBER_BYTES + OPEN_SUBSCRIPTION_BYTES + 2 * lane_bytes
    assert charged(bay) == online
    prices.send(b"x", persistent=False)
    assert charged(bay) == online + FAN_OUT_BYTES + NON_PERSISTENT_LANE_BYTES
    bay.check()
    consumer.close()
    prices.unsubscribe("audit")
    bay.check()
    prices.delete()
    bay.bay.checkpoint()
    assert charged(bay) == CLOSED_TOPIC_BYTES
    bay.check()


def test_blocks_that_a_subscription_has_acknowledged_in_part_are_charged() -> None:
    bay = SimulatedBay(memory_limit="16MiB")
    prices, blocks = bay.bay.topic("prices"), 5 * STEP_MASKS
    with prices.subscribe(durable="audit", prefetch=0) as consumer:
        prices.send_many(Message(b"x") for _ in range(blocks * BLOCK_MESSAGES))
        deliveries: list[Delivery] = []
        while len(deliveries) < blocks * BLOCK_MESSAGES:
            deliveries += consumer.take(1_000)
        before = charged(bay)
        consumer.ack(deliveries[::2])
        assert charged(bay) == before + 6 * MASKS_STEP_BYTES  # the set itself, and the masks
        bay.check()
        consumer.ack(deliveries[1::2])
        assert charged(bay) < before + 3 * MASKS_STEP_BYTES
        bay.check()
    prices.unsubscribe("audit")
    bay.check()


def test_what_a_checkpoint_notes_of_a_subscription_that_goes_on_is_charged_beside_what_it_has_now() -> None:
    bay = SimulatedBay()
    prices = bay.bay.topic("prices")
    with prices.subscribe(durable="audit") as consumer:
        prices.send_many([Message(b"x")] * 10)
        first, *others = consumer.take(10)
        first.ack()
        before = charged(bay)
        subscriptions = bay.store.subscriptions
        with bay.lock:
            subscriptions.note_backlogs()
        consumer.ack(others[:5])
        assert charged(bay) == before + 2 * MASKS_STEP_BYTES
        bay.check()
        with bay.lock:
            subscriptions.forget_noted()
        assert charged(bay) == before
        bay.check()


@pytest.mark.parametrize("what", ["queue", "topic", "durable"])
def test_where_memory_has_no_room_for_another_it_is_refused_and_the_store_goes_on(what: str) -> None:
    bay = SimulatedBay(memory_limit="4MiB")
    orders, prices = bay.queue("orders"), bay.bay.topic("prices")
    orders.send(b"x")

    def make(number: int) -> None:
        if what == "queue":
            bay.queue(f"q{number}")
        elif what == "topic":
            bay.bay.topic(f"t{number}")
        else:
            prices.subscribe(durable=f"s{number}").close()

    with pytest.raises(StoreFull) as full:
        for number in range(2 * MANY):
            make(number)
    assert full.value.limit == "memory_limit"
    assert number > (400 if what == "durable" else MANY)
    bay.check()
    with orders.subscribe() as consumer:
        consumer.take()[0].ack()
    bay.reopen()
    orders, prices = bay.queue("orders"), bay.bay.topic("prices")
    orders.send(b"x")
    with pytest.raises(StoreFull):
        for again in range(number, number + 10):  # a queue that was open before the reopen is a row now
            make(again)
    orders.delete()
    make(2 * MANY)
    bay.check()


@pytest.mark.parametrize("persistent", [True, False])
def test_the_first_message_of_a_priority_is_let_in_where_lists_and_caches_have_taken_all_memory(
    persistent: bool,
) -> None:
    bay = SimulatedBay(memory_limit="4MiB")
    queues = [bay.queue(f"q{number}") for number in range(6)]
    consumers = [queue.subscribe() for queue in queues]
    for queue in queues:
        queue.send_many(Message(bytes(1_000)) for _ in range(600))
    assert bay.budget.free_bytes < LANE_BYTES
    for priority in (0, 9):
        for queue in queues:
            queue.send(b"x", priority=priority, persistent=persistent)
    bay.check()
    assert [consumer.take()[0].priority for consumer in consumers] == [9] * len(queues)


def test_a_limit_too_low_for_those_that_exist_is_refused_at_open(tmp_path: Path) -> None:
    with forebay.open(tmp_path, memory_limit="32MiB", sync="never", background=False) as bay:
        prices = bay.topic("prices")
        for number in range(MANY):
            prices.subscribe(durable=f"{number:100}").close()
    with pytest.raises(SettingsError, match="10,001 destinations"):
        forebay.open(tmp_path, memory_limit="4MiB")
    with forebay.open(tmp_path, memory_limit="32MiB", background=False) as bay:
        assert len(bay.topic("prices").subscriptions()) == MANY


def real_bytes(make: Callable[[int], object], count: int, without: Sequence[str] = ()) -> int:
    """What stays in RAM of each, by the interpreter's own count; without what these files have made."""
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(count):
            make(number)
        gc.collect()
        whole = tracemalloc.get_traced_memory()[0]
        made = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, name) for name in without])
    finally:
        tracemalloc.stop()
    return (whole - (sum(found.size for found in made.traces) if without else 0)) // count


OTHER_BYTES = 50_000
"""That the store itself may take more while a measurement is under way: a buffer of the journal, cached statements."""
COUNTS = [1_000, pytest.param(MANY, marks=pytest.mark.soak)]


@interpreted("weighs Python objects")
@pytest.mark.parametrize("count", COUNTS)
def test_idle_destinations_are_charged_what_they_take(tmp_path: Path, count: int) -> None:
    # The index takes a sixteenth: room for the lanes of all, else idle ones are closed.
    with forebay.open(tmp_path, memory_limit="512MiB", sync="never", background=False) as bay:

        def use(number: int) -> None:
            queue = bay.queue(f"q{number}")
            queue.send(b"x")
            with queue.subscribe() as consumer:
                consumer.take()[0].ack()

        topic = real_bytes(lambda number: bay.topic(f"t{number}"), count)
        queue = real_bytes(lambda number: bay.queue(f"q{number}"), count)
        names_bytes = sum(len(f"q{number}") for number in range(count))
        assert OPEN_TOPIC_BYTES // 2 < topic <= row_bytes("t") + OPEN_TOPIC_BYTES, topic
        assert OPEN_QUEUE_BYTES // 2 < queue <= row_bytes("q") + OPEN_QUEUE_BYTES, queue
        assert bay.statistics().memory.holders["destinations"] == 2 * names_bytes + count * (
            2 * row_bytes("") + OPEN_QUEUE_BYTES + OPEN_TOPIC_BYTES
        )
        before = bay.statistics().memory.holders["destinations"]
        lane = real_bytes(use, count, without=["*/index/block.py"])  # blocks are the index's
        assert LANE_BYTES // 3 < lane <= LANE_BYTES, lane
        assert bay.statistics().memory.holders["destinations"] == before + LANE_BYTES * count
        inside(bay).audit()


KINDS = [("queue", CLOSED_QUEUE_BYTES), ("topic", CLOSED_TOPIC_BYTES)]
HANDLE_BYTES = 100
"""What a Queue or Topic may take itself, which is its host's."""


def handles(bay: forebay.Forebay, kind: str, count: int) -> list[Queue | Topic]:
    names = [f"region.{number % 7}.tenant.{number:06}" for number in range(count)]
    return [bay.queue(name) if kind == "queue" else bay.topic(name) for name in names]


@pytest.mark.parametrize(("kind", "kept_bytes"), KINDS)
def test_what_a_host_keeps_of_what_was_closed_is_charged_until_it_drops_it_or_uses_it_again(
    kind: str, kept_bytes: int
) -> None:
    bay = SimulatedBay()
    made = handles(bay.bay, kind, 20)
    open_bytes, rows_bytes = charged(bay), sum(row_bytes(handle.name) for handle in made)
    assert bay.close_idle() == 20
    assert charged(bay) == rows_bytes + 20 * kept_bytes
    bay.check()
    made[10:] = []
    assert charged(bay) == rows_bytes + 10 * kept_bytes
    for handle in made:
        handle.send(b"x", persistent=False)
    del handle
    assert charged(bay) >= rows_bytes + (open_bytes - rows_bytes) // 2
    bay.check()
    for handle in made:
        handle.delete()
    del handle
    with bay.lock:
        made.clear()  # a collector may drop them anywhere, so inside the store too
    assert charged(bay) < rows_bytes
    bay.check()


@pytest.mark.parametrize(("kind", "kept_bytes"), KINDS)
def test_what_a_host_keeps_of_what_was_deleted_is_charged_until_it_drops_it(kind: str, kept_bytes: int) -> None:
    bay = SimulatedBay()
    made = handles(bay.bay, kind, 20)
    for handle in made:
        handle.delete()
    del handle
    assert charged(bay) == 20 * kept_bytes
    bay.check()
    made.clear()
    assert charged(bay) == 0
    bay.check()


@pytest.mark.parametrize("kind", ["queue", "topic"])
@pytest.mark.parametrize("end", ["closed", "deleted"])
def test_what_nobody_keeps_is_gone_at_once_also_where_its_policy_limits_it(kind: str, end: str) -> None:
    bay = SimulatedBay(policies={">": DestinationPolicy(max_messages=10)})
    gc.collect()
    gc.disable()  # so that what is a cycle stays
    try:
        made = handles(bay.bay, kind, 20)
        rows_bytes = sum(row_bytes(handle.name) for handle in made)
        if end == "deleted":
            while made:
                made.pop().delete()
            assert charged(bay) == 0
        else:
            assert bay.close_idle() == 20
            made.clear()
            assert charged(bay) == rows_bytes
    finally:
        gc.enable()
    bay.check()


def test_memory_that_dropped_handles_took_is_there_for_the_next_queue() -> None:
    bay = SimulatedBay(memory_limit="4MiB")
    kept: list[Queue] = []
    with pytest.raises(StoreFull):
        while True:
            kept.append(bay.queue(f"tenant.{len(kept)}"))
    assert len(kept) > 1_000
    bay.check()
    kept.clear()
    bay.queue("another").send(b"x")
    assert bay.queue("another").get(0).body == b"x"
    bay.check()


@interpreted("weighs Python objects")
@pytest.mark.parametrize("kind", ["queue", "topic"])
@pytest.mark.parametrize("end", ["closed", "closed after use", "deleted"])
def test_a_handle_takes_next_to_nothing_and_what_it_keeps_is_charged_what_it_takes(
    tmp_path: Path, kind: str, end: str
) -> None:
    with forebay.open(tmp_path, memory_limit="64MiB", sync="never", background=False) as bay:
        made: list[Queue | Topic] = []
        list_bytes = 16
        """Of a list that grows, for each that is in it."""

        def again(number: int) -> None:
            made.append(bay.queue("open") if kind == "queue" else bay.topic("open"))

        again(0)
        assert real_bytes(again, 1_000) <= HANDLE_BYTES + list_bytes
        made.clear()
        before = bay.statistics().memory.holders["destinations"]

        def keep(number: int) -> None:
            name = f"region.{number % 7}.tenant.{number:06}"
            handle = bay.queue(name) if kind == "queue" else bay.topic(name)
            if end == "closed after use":
                with handle.subscribe() as consumer:
                    handle.send(b"x")
                    consumer.take()[0].ack()
            made.append(handle)
            if end == "deleted":
                handle.delete()
            elif number % 100 == 99:
                bay.checkpoint()
                inside(bay).close_idle()
                bay.checkpoint()

        kept = real_bytes(keep, 1_000, without=["*/index/block.py"])  # blocks are the index's
        after = bay.statistics().memory.holders["destinations"]
        assert kept <= (after - before) // 1_000 + HANDLE_BYTES + list_bytes + OTHER_BYTES // 1_000, kept
        assert len(made) == 1_000
        inside(bay).audit()


@interpreted("weighs Python objects")
@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("kind", ["queue", "topic"])
def test_what_nobody_uses_is_charged_what_it_takes_and_that_is_less_than_a_quarter_of_a_kibibyte(
    tmp_path: Path, kind: str, count: int
) -> None:
    settings = Settings(memory_limit="64MiB", sync="never", background=False)
    names = [f"region.{number % 7}.tenant.{number:06}" for number in range(count)]
    with forebay.open(tmp_path, settings) as bay:

        def make(number: int) -> None:
            bay.queue(names[number]) if kind == "queue" else bay.topic(names[number])
            if number % 100 == 99 or number == count - 1:
                inside(bay).close_idle()

        def use(number: int) -> None:
            used = bay.queue(names[number]) if kind == "queue" else bay.topic(names[number])
            with used.subscribe() as consumer:
                used.send(b"x")
                consumer.take()[0].ack()
            if number % 100 == 99 or number == count - 1:
                bay.checkpoint()
                inside(bay).close_idle()
                bay.checkpoint()

        row = real_bytes(make, count)
        row_charge = sum(map(row_bytes, names)) // count
        assert row_charge // 3 < row <= row_charge < 80, (row, row_charge)
        used = row + real_bytes(use, count)
        assert COUNTED_BYTES // 2 < used - row, (used, row)
        used_charge = row_charge + COUNTED_BYTES + IDLE_LANE_BYTES
        assert used <= used_charge + OTHER_BYTES // count, (used, row_charge)
        assert used_charge <= 256
        assert bay.statistics().memory.holders["destinations"] == count * used_charge
        inside(bay).audit()
    gc.collect()
    tracemalloc.start()
    try:
        with forebay.open(tmp_path, settings) as bay:
            gc.collect()
            opened = tracemalloc.get_traced_memory()[0] // count
            assert bay.statistics().memory.holders["destinations"] == count * (row_charge + IDLE_LANE_BYTES)
            inside(bay).audit()
    finally:
        tracemalloc.stop()
    if count == MANY:  # of fewer, what a store takes without any queue is the most of it
        assert opened <= row_charge + 100, opened


@interpreted("weighs Python objects")
@pytest.mark.parametrize("count", COUNTS)
def test_durable_subscriptions_that_nobody_reads_are_charged_what_they_take_and_that_is_less_than_a_quarter_kibibyte(
    tmp_path: Path, count: int
) -> None:
    """However many messages wait for them: here some of two priorities."""
    settings = Settings(memory_limit="64MiB", sync="never", background=False)
    names = [f"region.{number % 7}.tenant.{number:06}" for number in range(count)]
    with forebay.open(tmp_path, settings) as bay:
        prices = bay.topic("prices")
        topic_bytes = row_bytes("prices") + OPEN_TOPIC_BYTES
        alone = real_bytes(lambda number: prices.subscribe(durable=names[number]).close(), count)
        row_charge = sum(map(subscription_bytes, names)) // count
        assert row_charge // 3 < alone <= row_charge + OTHER_BYTES // count, alone
        assert bay.statistics().memory.holders["destinations"] == topic_bytes + count * row_charge
        waiting = real_bytes(lambda number: prices.send(b"x", priority=number % 2) if number < 20 else None, count)
        lanes_bytes = 2 * (LANE_BYTES + CURSOR_BYTES * count)
        assert 0 < waiting <= 2 * CURSOR_BYTES + OTHER_BYTES // count, waiting
        assert bay.statistics().memory.holders["destinations"] == topic_bytes + count * row_charge + lanes_bytes
        assert row_charge + 2 * CURSOR_BYTES <= 256
        inside(bay).audit()
    gc.collect()
    tracemalloc.start()
    try:
        with forebay.open(tmp_path, settings) as bay:
            gc.collect()
            opened = tracemalloc.get_traced_memory()[0] // count
            assert bay.statistics().memory.holders["destinations"] == topic_bytes + count * row_charge + lanes_bytes
            subscriptions = bay.topic("prices").statistics().subscriptions
            assert {found.depth for found in subscriptions.values()} == {20} and len(subscriptions) == count
            inside(bay).audit()
    finally:
        tracemalloc.stop()
    if count == MANY:  # of fewer, what a store takes without any is the most of it
        assert opened <= 256, opened


@pytest.mark.parametrize("count", [200, pytest.param(MANY, marks=pytest.mark.soak)])
def test_destinations_and_subscriptions_that_ended_leave_nothing(count: int) -> None:
    bay = SimulatedBay(memory_limit="16MiB")
    prices = bay.bay.topic("prices")

    def churn(count: int) -> None:
        for number in range(count):
            queue = bay.queue(f"q{number}")
            queue.send(b"x")
            audit, screen = prices.subscribe(durable=f"s{number}"), prices.subscribe(selector="n = 1")
            prices.send(b"x", headers={"n": number % 2})
            with queue.subscribe() as consumer:
                audit.take()[0].ack()
                consumer.take()
            audit.close()
            screen.close()
            prices.unsubscribe(f"s{number}")
            queue.delete()
            if number % 100 == 0:
                bay.clock.advance(1.0)
                bay.bay.step()
        bay.bay.cleanup()
        bay.bay.step()
        bay.check()
        for directory in bay.disk.directories():  # the disk keeps each change of a name until then
            bay.disk.sync_directory(directory)
        gc.collect()

    churn(200)
    before, objects = bay.bay.statistics().memory, len(gc.get_objects())
    churn(count)
    after = bay.bay.statistics().memory
    assert len(gc.get_objects()) - objects < 200
    assert after.holders == before.holders | {"index": after.holders["index"]}
    assert after.holders["index"] <= before.holders["index"] + 2 * 5632


def test_a_consumer_finds_room_where_each_list_has_one_large_message() -> None:
    bay = SimulatedBay(memory_limit="4MiB")
    consumers = []
    for number in range(60):
        queue = bay.queue(f"q{number}")
        consumers.append(queue.subscribe(prefetch=0))
        queue.send(bytes(64 * 1024))
    bay.check()
    assert [len(consumer.take(2)) for consumer in consumers] == [1] * 60
