"""A queue that is not in use is a row. The first call that uses it opens it, and it is closed again later."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from crashing import crashes_at
from delivering import bodies
from inside import inside, open_forebay
from simulated_bay import SimulatedBay
from simulated_disk import SimulatedDisk
from simulated_metadata import SimulatedMetadataStore

from forebay import Closed, Consumer, DestinationPolicy, Message, Settings, StoreFull
from forebay.dispatch.config.settings import SyncMode
from forebay.dispatch.core.destinations.overhead import CLOSED_QUEUE_BYTES, OPEN_QUEUE_BYTES
from forebay.dispatch.core.model.destination import LANE_STATE_BYTES
from forebay.store.index.index import INDEX_LANE_BYTES
from forebay.testing import ManualClock

MANY = 10_000
LANE_BYTES = INDEX_LANE_BYTES + LANE_STATE_BYTES


def let_pass(bay: SimulatedBay, looks: int = 3) -> None:
    for _ in range(looks):
        bay.clock.advance(6.0)
        bay.bay.step()


def work(bay: SimulatedBay, name: str) -> None:
    queue = bay.queue(name)
    queue.send(b"x")
    assert queue.get(0).body == b"x"


def filled(memory_limit: str = "4MiB", count: int = MANY) -> SimulatedBay:
    bay = SimulatedBay(memory_limit=memory_limit)
    for number in range(count):
        bay.queue(f"tenant.{number}")
    return bay


# ---------------------------------------------------------------------- many


def test_ten_thousand_queues_live_under_four_mebibytes_and_any_of_them_can_be_used() -> None:
    bay = filled()
    assert len(bay.bay.destinations()) == MANY
    for number in range(0, MANY, 500):
        work(bay, f"tenant.{number}")
    bay.check()
    bay.reopen()
    assert bay.open_queues() == [] and not bay.index.lanes
    assert len(bay.bay.destinations()) == MANY == len(bay.bay.statistics().destinations)
    for number in range(MANY - 1, 0, -500):
        work(bay, f"tenant.{number}")
    bay.check()
    bay.crash(is_index_lost=True)
    assert len(bay.bay.destinations()) == MANY and len(bay.open_queues()) == 0
    work(bay, "tenant.77")
    let_pass(bay)
    assert bay.open_queues() == []
    bay.check()


def test_where_memory_has_no_room_those_that_nobody_uses_are_closed_first() -> None:
    bay = filled(count=2_000)
    kept = [bay.queue(f"tenant.{number}") for number in range(0, 400, 4)]
    for queue in kept:
        queue.send(b"kept")
    for number in range(1, 2_000, 4):
        work(bay, f"tenant.{number}")
    assert {queue.name for queue in kept} <= set(bay.open_queues())
    assert [bodies(queue.subscribe().take(2)) for queue in kept] == [[b"kept"]] * len(kept)
    bay.check()


def test_where_all_open_queues_are_in_use_another_one_is_refused_and_can_be_used_later() -> None:
    bay = filled(count=1_000)
    sent = 0
    with pytest.raises(StoreFull) as full:
        for number in range(1_000):
            bay.queue(f"tenant.{number}").send(b"x")
            sent += 1
    assert (
        full.value.limit == "memory_limit" and full.value.needed_bytes in (OPEN_QUEUE_BYTES, LANE_BYTES) and sent > 150
    )
    bay.check()
    assert bay.queue("tenant.0").get(0).body == b"x"
    refused = bay.queue(f"tenant.{sent}")
    refused.send(b"now")
    assert refused.get(0).body == b"now" and bay.queue(f"tenant.{sent - 1}").depth == 1
    bay.check()


def test_queues_that_nobody_uses_are_closed_also_where_consumers_have_what_both_may_take_together() -> None:
    bay = SimulatedBay()
    hub = bay.queue("hub")
    with pytest.raises(StoreFull):
        while True:
            hub.subscribe()
    for number in range(1_000):
        bay.queue(f"tenant.{number}")
    assert len(bay.bay.destinations()) == 1_001 > len(bay.open_queues())
    bay.check()


def test_consumers_are_refused_only_when_no_idle_queue_can_be_closed_for_them() -> None:
    bay = SimulatedBay()
    hub, consumers = bay.queue("hub"), list[Consumer]()
    with pytest.raises(StoreFull):
        while True:
            consumers.append(hub.subscribe(selector=f"k = {len(consumers)}"))
    most = len(consumers)
    while consumers:
        consumers.pop().close()
    while len(bay.open_queues()) == len(bay.bay.destinations()):
        work(bay, f"tenant.{len(bay.open_queues())}")
    before = len(bay.open_queues())
    consumers = [hub.subscribe(selector=f"k = {number}") for number in range(most - 10)]
    assert len(bay.open_queues()) < before
    bay.check()


@pytest.mark.parametrize("kind", ["queue", "topic"])
def test_a_closed_one_is_deleted_also_where_memory_has_no_room_to_open_it(kind: str) -> None:
    bay = SimulatedBay()
    closed = [bay.queue(f"q{number}") if kind == "queue" else bay.bay.topic(f"t{number}") for number in range(20)]
    assert bay.close_idle() == 20
    with bay.full_memory():
        for each in closed:
            each.delete()
            bay.check()
    closed.clear()
    del each
    assert bay.bay.destinations() == bay.bay.topics() == []
    assert bay.bay.statistics().memory.holders["destinations"] == 0
    bay.check()
    bay.crash()
    assert bay.bay.destinations() == bay.bay.topics() == []


# ---------------------------------------------------------------------- open and closed


def test_a_queue_is_closed_when_nobody_has_used_it_for_a_while() -> None:
    bay = SimulatedBay()
    work(bay, "orders")
    let_pass(bay, looks=1)
    assert bay.open_queues() == ["orders"]
    work(bay, "orders")
    let_pass(bay, looks=1)
    assert bay.open_queues() == ["orders"]
    let_pass(bay, looks=1)
    assert bay.open_queues() == [] and bay.bay.destinations() == ["orders"]
    bay.check()


@pytest.mark.parametrize(
    "use",
    [
        lambda bay: bay.queue().send(b"waits"),
        lambda bay: bay.queue().send(b"waits", persistent=False),
        lambda bay: bay.queue().send(b"waits", delay=5_000.0),
        lambda bay: bay.queue().send(b"waits", group="a"),
        lambda bay: bay.queue().subscribe(),
        lambda bay: bay.queue().subscribe(priority=1).close(),
        lambda bay: bay.queue().pause(),
        lambda bay: bay.queue().send(b"undecided", transaction=bay.bay.transaction()),
        lambda bay: bay.queue().send(b"undecided", persistent=False, transaction=bay.bay.transaction()),
        lambda bay: (bay.queue().send(b"taken"), bay.queue().subscribe().take(1)),
        lambda bay: bay.bay.temporary_queue(),
    ],
    ids=[
        "message",
        "volatile",
        "delayed",
        "group",
        "consumer",
        "rule",
        "pause",
        "sent",
        "kept",
        "in-flight",
        "temporary",
    ],
)
def test_what_is_in_use_stays_open(use: Callable[[SimulatedBay], object]) -> None:
    bay = SimulatedBay()
    kept = use(bay)
    let_pass(bay, looks=10)
    assert len(bay.open_queues()) == 1, kept
    bay.check()


USES: dict[str, Callable[[Any, SimulatedBay], object]] = {
    "send": lambda queue, bay: queue.send(b"x"),
    "send with headers": lambda queue, bay: queue.send(b"x", headers={"n": 1}, group="a"),
    "send a timed one": lambda queue, bay: queue.send(b"x", expires_in=1_000.0),
    "send a volatile one": lambda queue, bay: queue.send(b"x", persistent=False),
    "send many": lambda queue, bay: queue.send_many(Message(b"x") for _ in range(3)),
    "send in a transaction": lambda queue, bay: in_transaction(queue, bay),
    "subscribe": lambda queue, bay: queue.subscribe(),
    "pause": lambda queue, bay: queue.pause(),
    "delete": lambda queue, bay: queue.delete(),
    "move there": lambda queue, bay: (bay.queue("other").send(b"x"), bay.queue("other").move(queue)),
    "move away": lambda queue, bay: queue.move("other"),
}
SENDING = [name for name in USES if name.startswith(("send", "move there"))]


def in_transaction(queue: Any, bay: SimulatedBay) -> None:
    with bay.bay.transaction() as transaction:
        queue.send(b"x", transaction=transaction)


@pytest.mark.parametrize("most", [None, 5])
@pytest.mark.parametrize("name", USES)
def test_whoever_holds_a_queue_that_was_closed_notices_nothing(name: str, most: int | None) -> None:
    bay = SimulatedBay(policies={">": DestinationPolicy(max_messages=most)})
    queue = bay.queue()
    let_pass(bay)
    assert bay.open_queues() == []
    USES[name](queue, bay)
    assert (queue.depth > 0) == (name in SENDING)
    assert queue.is_paused == (name == "pause")
    assert ("orders" in bay.bay.destinations()) == (name != "delete")
    bay.check()
    bay.crash()
    assert ("orders" in bay.bay.destinations()) == (name != "delete")
    bay.check()


def test_what_a_closed_queue_reports_is_what_the_open_one_did() -> None:
    bay = SimulatedBay(policies={"orders": DestinationPolicy(max_messages=1, when_full="fail")})
    queue = bay.queue()
    queue.send(b"12", headers={"n": 1})
    with pytest.raises(StoreFull):
        queue.send(b"3")
    with queue.subscribe() as consumer:
        consumer.nack(consumer.take())
        consumer.reject(consumer.take())
    queue.send(b"456", persistent=False)
    assert queue.get(0).body == b"456"
    before = queue.statistics()
    assert before.enqueued == 2 and before.redelivered == 1 and before.delivered == 3
    let_pass(bay)
    assert "orders" not in bay.open_queues()
    assert queue.statistics() == before == bay.bay.statistics().destinations["orders"]
    assert (queue.depth, queue.depth_bytes, queue.is_paused, queue.peek()) == (0, 0, False, None)
    assert "orders" not in bay.open_queues()
    assert bay.bay.explain(queue).sentence and bay.bay.explain("orders").sentence
    queue.send(b"7")
    assert queue.get(0).body == b"7"
    after = queue.statistics()
    assert (after.enqueued, after.delivered, after.enqueued_bytes) == (3, 4, before.enqueued_bytes + 1)
    assert after.dequeued_bytes == before.dequeued_bytes + 1 and after.redelivered == before.redelivered
    bay.check()


def test_no_id_is_given_twice_however_often_a_queue_is_closed() -> None:
    bay = SimulatedBay()
    queue = bay.queue()
    ids: list[str] = []
    for turn in range(6):
        ids += [queue.send(b"x"), queue.send(b"x", persistent=False), queue.send(b"x", priority=7)]
        queue.purge()
        let_pass(bay)
        assert bay.open_queues() == []
        if turn == 2:
            bay.bay.checkpoint()
            bay.reopen()
            queue = bay.queue()
        if turn == 4:
            bay.crash(is_index_lost=True)
            queue = bay.queue()
    assert len(set(ids)) == len(ids) == 18
    bay.check()


def test_a_queue_that_somebody_else_has_deleted_stays_deleted_for_whoever_holds_it() -> None:
    bay = SimulatedBay()
    queue = bay.queue()
    let_pass(bay)
    bay.queue().delete()
    for use in (lambda: queue.send(b"x"), queue.subscribe, queue.pause):
        with pytest.raises(Closed):
            use()
    assert queue.depth == 0 and bay.bay.destinations() == []
    bay.queue().send(b"another")
    assert queue.depth == 0 and queue.statistics().enqueued == 0
    bay.check()


def test_whoever_deletes_a_queue_that_was_closed_sends_nothing_there_any_more_also_where_unused_ones_go() -> None:
    bay = SimulatedBay(policies={">": DestinationPolicy(inactive_seconds=600)})
    queue = bay.queue()
    assert bay.close_idle() == 1
    queue.delete()
    bay.queue().send(b"another")
    for use in (lambda: queue.send(b"x"), queue.subscribe, queue.pause):
        with pytest.raises(Closed):
            use()
    assert queue.depth == 0 and bay.queue().depth == 1
    bay.check()


def test_what_was_closed_and_then_deleted_for_want_of_use_begins_anew() -> None:
    bay = SimulatedBay(policies={">": DestinationPolicy(inactive_seconds=60)})
    queue = bay.queue()
    bay.reopen()
    again = bay.queue()
    let_pass(bay, looks=3)
    assert bay.open_queues() == [] and bay.bay.destinations() == ["orders"]
    let_pass(bay, looks=20)
    assert bay.bay.destinations() == []
    assert bay.bay.statistics().memory.holders["destinations"] == CLOSED_QUEUE_BYTES  # of `again`
    again.send(b"x")
    assert bodies(bay.queue().subscribe().take()) == [b"x"]
    with pytest.raises(Closed):
        queue.send(b"of another life")
    bay.check()


def test_a_walk_that_begins_late_meets_what_came_since_the_queue_was_closed() -> None:
    bay = SimulatedBay()
    queue = bay.queue()
    walk = queue.browse()
    let_pass(bay)
    bay.queue().send(b"x")
    assert [message.body for message in walk] == [b"x"]


def test_a_queue_stays_open_while_a_call_works_with_it() -> None:
    bay = SimulatedBay()
    bay.queue()
    with bay.held_open():
        let_pass(bay, looks=5)
        assert bay.open_queues() == ["orders"]
    let_pass(bay)
    assert bay.open_queues() == []


def test_lanes_of_closed_queues_leave_the_index_with_their_rows() -> None:
    bay = SimulatedBay()
    queue = bay.queue()
    queue.send_many(Message(b"x") for _ in range(700))
    bay.bay.checkpoint()
    assert bay.stored_blocks() == [[(0, 1)]]
    queue.purge()
    let_pass(bay)
    assert bay.open_queues() == []
    bay.bay.checkpoint()
    assert not bay.index.lanes and bay.stored_blocks() == [] and list(bay.index.idle) == [(queue_lane(bay), 700)]
    queue.send(b"x")
    assert [message.body for message in queue.browse()] == [b"x"]
    bay.check()


def queue_lane(bay: SimulatedBay) -> int:
    ((number, _),) = bay.index.next_sequences()
    return number


@pytest.mark.parametrize("sync", ["always", "never"])
def test_crash_at_any_call_while_queues_are_closed_and_used_again_loses_nothing_and_repeats_no_id(
    sync: SyncMode,
) -> None:
    settings = Settings(background=False, memory_limit="4MiB", sync=sync, max_file_length="64KiB")
    disk, metadata, clock, random = SimulatedDisk(), SimulatedMetadataStore(), ManualClock(), Random(11)
    sent: list[str] = []
    allowed: set[int] = set()
    states = 0

    def look(left: SimulatedDisk, index: SimulatedMetadataStore, context: object) -> None:
        nonlocal states
        states += 1
        found = open_forebay(left, index, settings, ManualClock())
        assert found.destinations() == ["idle", "orders"], context
        assert found.queue("orders").depth in allowed, (context, found.queue("orders").depth)
        assert found.queue("orders").send(b"another") not in sent, context
        inside(found).audit()

    def crash(call: str, name: str) -> None:
        for image, left, how in crashes_at(disk, metadata, sync, random):
            look(image, left, (call, name, how))

    bay = open_forebay(disk, metadata, settings, clock)
    bay.queue("idle")
    queue = bay.queue("orders")
    allowed = {0, 1}
    disk.on_call = crash
    for turn in range(6):
        sent.append(queue.send(bytes(20_000)))
        assert queue.get(0).body
        if turn % 2:
            assert inside(bay).close_idle() >= 1
        bay.checkpoint()
        bay.cleanup()
        assert not turn % 2 or not inside(bay).index.lanes
    bay.close()
    disk.on_call = None
    assert states >= 50 and len(set(sent)) == 6
