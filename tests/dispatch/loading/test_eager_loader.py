"""The eager loader: messages are in RAM before they are asked for, whatever happens while it reads."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest
from compiled import interpreted
from counting import counted_calls
from delivering import send_equal
from simulated_bay import SimulatedBay

from forebay import Consumer, DestinationPolicy, Message, StoreFull
from forebay.cache.accounting.charge import OVERHEAD_BYTES, charge_of
from forebay.cache.messages.message_memory import QuotaMemory
from forebay.dispatch.core.lists.load import Load
from forebay.dispatch.core.model.destination import TargetList
from forebay.store.journal.regions import REGION_BYTES_MAX, Region
from forebay.store.stored_message import StoredMessage

KIB, MIB = 1024, 1024 * 1024
BODY = bytes(KIB)
LARGE = bytes(600 * KIB)
"""Above an eighth of 4 MiB."""


def drain(consumer: Consumer, most: int = 100) -> Iterator[str]:
    while deliveries := consumer.take(most):
        for delivery in deliveries:
            yield delivery.id
        consumer.ack(deliveries)


@contextmanager
def under_way(bay: SimulatedBay, target: TargetList) -> Iterator[Load[TargetList]]:
    """A load whose bytes are being read, outside the lock, while the test does something else."""
    with bay.lock:
        load = bay.loader.begin(target, is_needed=False)
    assert load is not None
    yield load
    bay.loader.finish(load)
    bay.check()


# Ahead of need.


def miss_share(loads_ahead: bool, queues: int = 1, limit: str = "4MiB") -> float:
    """Share of deliveries that had to be read by take, at 80 % of what the loader can bring."""
    bay = SimulatedBay(memory_limit=limit)
    names = [f"q{number}" for number in range(queues)]
    for name in names:
        send_equal(bay.queue(name), 24_000 // queues, BODY)
    bay.reopen()  # so that no cache has anything
    consumers = [bay.queue(name).subscribe(prefetch=0) for name in names]
    bay.clock.advance(1.0)
    bay.housekeep()
    if loads_ahead:
        bay.bay.step()
    step_bytes = min(bay.watermarks.shares.load_bytes_max, consumers[0].statistics().high_watermark_bytes // 2)
    most = step_bytes * 8 // 10 // (KIB + 20 + OVERHEAD_BYTES)
    delivered = 0
    for _ in range(10_000 // most // queues):
        for consumer in consumers:
            deliveries = consumer.take(most)
            delivered += len(deliveries)
            consumer.ack(deliveries)
            if loads_ahead:
                bay.loader.step()
    assert delivered > 5000
    bay.check()
    return sum(consumer.statistics().misses for consumer in consumers) / delivered


def test_a_drain_at_80_percent_of_the_loader_never_waits_for_the_disk() -> None:
    assert miss_share(loads_ahead=True) < 0.001


def test_with_the_loader_off_most_deliveries_wait_for_the_disk() -> None:
    assert miss_share(loads_ahead=False) > 0.5


@pytest.mark.parametrize("queues", [2, 5, 8, 16])
def test_many_lists_with_small_shares_are_loaded_ahead_as_well(queues: int) -> None:
    assert miss_share(loads_ahead=True, queues=queues) < 0.001


def test_the_list_nearest_to_starving_is_loaded_first() -> None:
    bay = SimulatedBay(memory_limit="16MiB")
    names = ["rich", "poor", "starving"]
    for name in names:
        send_equal(bay.queue(name), 4000, BODY)
    bay.reopen()
    consumers = {name: bay.queue(name).subscribe(prefetch=0) for name in names}
    bay.bay.step()
    for name, left in (("rich", 1000), ("poor", 500), ("starving", 0)):
        statistics = consumers[name].statistics()
        while statistics.direct_entries > left:
            consumers[name].ack(consumers[name].take(statistics.direct_entries - left))
            statistics = consumers[name].statistics()
    before = {name: consumer.statistics().direct_entries for name, consumer in consumers.items()}
    loaded: list[str] = []
    for _ in range(2):
        bay.loader.step()
        entries = {name: consumer.statistics().direct_entries for name, consumer in consumers.items()}
        loaded += [name for name in names if entries[name] > before[name]]
        before = entries
    assert loaded == ["starving", "poor"], "the poorest first, but none twice in a row while others hunger"


def test_neighbouring_messages_come_in_one_read() -> None:
    bay = SimulatedBay(memory_limit="64MiB")
    for _ in range(2000):
        bay.queue().send(BODY)
    bay.reopen()
    with bay.queue().subscribe(prefetch=0):
        before = bay.reads
        bay.bay.step()
        assert bay.reads - before <= 2000 * (KIB + OVERHEAD_BYTES) // REGION_BYTES_MAX + 8
        assert bay.lists()[0].direct[-1][0] == 1999


@interpreted("replaces what compiled code has linked")
def test_what_a_load_reads_is_charged_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    bay = SimulatedBay()
    send_equal(bay.queue(), 200, BODY)
    bay.reopen()
    store, holders = bay.store, bay.budget.holders
    read, reads = store.message_store.read, 0

    def watched(regions: Sequence[Region]) -> tuple[list[StoredMessage], list[tuple[int, str]]]:
        nonlocal reads
        reads += 1
        assert holders["read_buffers"].held_bytes >= max(region.length for region in regions)
        assert holders["target_lists"].held_bytes >= sum(region.length for region in regions)
        return read(regions)

    monkeypatch.setattr(store.message_store, "read", watched)
    with bay.queue().subscribe() as consumer:
        assert len(consumer.take(200)) and reads
    bay.check()
    assert holders["read_buffers"].held_bytes == 0


def test_a_step_ends_with_every_list_fed_and_the_next_one_finds_nothing_to_do() -> None:
    bay = SimulatedBay(memory_limit="64MiB")
    send_equal(bay.queue(), 3000, BODY)
    bay.reopen()
    with bay.queue().subscribe() as consumer:
        assert bay.bay.step() > 0
        assert consumer.statistics().direct_entries == 3000
        assert bay.bay.step() == 0


def test_two_lists_that_share_too_little_memory_do_not_rob_each_other_for_ever() -> None:
    bay = SimulatedBay()
    names = ("one", "other", "third")
    for name in names:
        send_equal(bay.queue(name), 3000, BODY)
    bay.reopen()
    hog = bay.queue("one").subscribe(prefetch=0)
    while bay.dispatch_area.dispatch_holder.held_bytes < bay.dispatch_area.dispatch_bytes_max * 9 // 10:
        hog.take(10)
    consumers = [bay.queue(name).subscribe(prefetch=0) for name in names[1:]]
    loads = bay.loader.durations.count
    bay.bay.step()
    assert bay.loader.durations.count - loads < 100
    bay.check()
    assert [len(consumer.take(5)) > 0 for consumer in consumers] == [True, True]


def test_two_lists_do_not_rob_each_other_of_the_last_reference_while_nobody_waits() -> None:
    bay = SimulatedBay(memory_limit="4MiB", max_file_length="4MiB")
    for name in ("one", "other"):
        bay.queue(name).send_many(Message(bytes(600 * KIB)) for _ in range(2))  # too large to be read ahead
    bay.reopen()
    consumers = [bay.queue(name).subscribe() for name in ("one", "other")]
    others = bay.budget.holder("others")
    bay.reclaim.make_room(bay.budget.limit_bytes, None, messages_min=0)
    assert others.reserve(bay.budget.free_bytes - OVERHEAD_BYTES - 1)
    assert not all(bay.loader.step() for _ in range(20)), "it comes to an end"
    for consumer in consumers:
        [delivery] = consumer.take(1)
        consumer.ack(delivery)
    others.release(others.held_bytes)
    bay.check()


@interpreted("replaces what compiled code has linked")
def test_a_list_that_found_no_memory_is_not_tried_again_after_each_load_of_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bay = SimulatedBay(memory_limit="4MiB", max_file_length="4MiB")
    queue = bay.queue()
    queue.send_many(Message(bytes(400 * KIB), priority=7) for _ in range(3))
    queue.send_many(Message(bytes(KIB), priority=priority) for priority in (4, 3, 2) for _ in range(60))
    bay.reopen()
    consumers = [bay.queue().subscribe(priority=priority) for priority in (0, 5)]  # so its messages are assigned
    others = bay.budget.holder("others")
    assert others.reserve(bay.budget.free_bytes - 350 * KIB)
    tried: list[int] = []
    begin = bay.loader.begin

    def noted(target: TargetList, *, is_needed: bool) -> Load[TargetList] | None:
        tried.append(target.lane.priority)
        return begin(target, is_needed=is_needed)

    monkeypatch.setattr(bay.loader, "begin", noted)
    bay.bay.step()
    assert tried == [7, 4, 3, 2]
    others.release(others.held_bytes)
    taken = [delivery.priority for _ in range(4) for delivery in consumers[1].take(1)]
    assert taken == [7, 7, 7, 4]


def test_a_step_ends_although_nothing_more_can_be_held() -> None:
    bay = SimulatedBay()
    send_equal(bay.queue(), 3000, BODY)
    bay.reopen()
    other = bay.budget.holder("others")
    with bay.queue().subscribe(prefetch=0) as consumer:
        assert other.reserve(bay.budget.free_bytes)
        bay.bay.step()
        other.release(other.held_bytes)
        assert len(list(drain(consumer))) == 3000


@pytest.mark.parametrize("left_bytes", [0, 300, OVERHEAD_BYTES, 10 * OVERHEAD_BYTES])
def test_a_take_that_finds_no_memory_gets_what_it_can_read_later(left_bytes: int) -> None:
    bay = SimulatedBay()
    ids = send_equal(bay.queue(), 300, BODY)
    bay.reopen()
    other = bay.budget.holder("others")
    with bay.queue().subscribe() as consumer:
        assert other.reserve(bay.budget.free_bytes - left_bytes)
        deliveries = consumer.take(20)
        assert len(deliveries) == left_bytes // OVERHEAD_BYTES
        assert [delivery.body for delivery in deliveries] == [BODY] * len(deliveries)
        bay.check()
        other.release(other.held_bytes)
        assert [delivery.id for delivery in deliveries] + list(drain(consumer)) == ids


@interpreted("replaces what compiled code has linked")
def test_what_a_load_took_from_a_cache_goes_back_when_memory_does_not_suffice_for_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bay = SimulatedBay()
    ids = send_equal(bay.queue(), 100, BODY)
    bay.reopen()
    with bay.queue().subscribe() as consumer:
        (target,) = bay.lists()
        cached = target.lane.read_one(50)
        assert bay.memories.common.pending_cache.put(target.lane.pending_lane.number, cached)
        other = bay.budget.holder("others")
        assert other.reserve(bay.budget.free_bytes)
        monkeypatch.setattr(bay.reclaim, "make_room", lambda *_, **__: None)
        bay.bay.step()
        assert bay.memories.common.pending_cache.peek(target.lane.pending_lane.number, 50) is cached
        bay.check()
        monkeypatch.undo()
        other.release(other.held_bytes)
        assert list(drain(consumer)) == ids


# Large messages.


def test_a_large_message_is_not_loaded_ahead_but_read_when_it_is_looked_at() -> None:
    bay = SimulatedBay()
    queue = bay.queue()
    queue.send(b"before")
    queue.send(LARGE, headers={"n": 1})
    queue.send(b"after")
    bay.reopen()
    with bay.queue().subscribe() as consumer:
        bay.bay.step()
        assert bay.bay.statistics().memory.holders["target_lists"] < 10 * KIB
        before, large, after = consumer.take(3)
        held = bay.bay.statistics().memory.holders["dispatch_area"]
        assert (before.body, large.body, after.body) == (b"before", LARGE, b"after")
        assert large.headers == {"n": 1}
        assert bay.bay.statistics().memory.holders["dispatch_area"] == held < 10 * KIB
        consumer.ack([before, large, after])
    bay.check()


def test_a_selector_finds_a_large_message_that_memory_can_not_hold() -> None:
    bay = SimulatedBay()
    queue = bay.queue()
    for number in range(8):
        queue.send(bytes(3 * KIB * KIB), headers={"n": number})
    with queue.subscribe(selector="n = 6") as consumer:
        bay.bay.step()
        (delivery,) = consumer.take()
        assert delivery.headers == {"n": 6} and len(delivery.body) == 3 * KIB * KIB
        delivery.ack()
    bay.check()


# What happens while it reads.


def test_an_arrival_during_a_load_stays_behind_what_is_loaded() -> None:
    bay = SimulatedBay()
    ids = send_equal(bay.queue(), 50, BODY)
    bay.reopen()
    queue = bay.queue()
    with queue.subscribe() as consumer:
        (target,) = bay.lists()
        with under_way(bay, target):
            ids.append(queue.send(b"single"))
            ids += queue.send_many([Message(b"batch")] * 3)
        assert list(drain(consumer)) == ids


def test_what_came_back_during_a_load_is_offered_first() -> None:
    bay = SimulatedBay()
    ids = send_equal(bay.queue(), 2000, BODY)
    bay.reopen()
    with bay.queue().subscribe(prefetch=0) as consumer:
        deliveries = consumer.take(2)
        (target,) = bay.lists()
        with under_way(bay, target):
            consumer.nack(deliveries)
        assert list(drain(consumer)) == ids


def test_nobody_passes_a_message_that_is_being_loaded_again() -> None:
    bay = SimulatedBay()
    queue = bay.queue()
    ids = send_equal(queue, 10, BODY)
    with queue.subscribe() as consumer:
        consumer.nack(consumer.take(1))
        (target,) = bay.lists()
        with under_way(bay, target) as load:
            assert (load.first, load.last) == (0, 0)
            assert bay.dispatch_area.dispatch_one(consumer) is None
            assert bay.dispatch_area.dispatch(consumer, 10, None) == []
        assert list(drain(consumer)) == ids


def test_a_lower_priority_does_not_pass_a_higher_one_that_is_being_loaded() -> None:
    bay = SimulatedBay()
    queue = bay.queue()
    high, low = queue.send(b"high", priority=9), queue.send(b"low", priority=0)
    bay.reopen()
    with bay.queue().subscribe() as consumer:
        bay.bay.step()
        bay.reclaim.make_room(bay.budget.limit_bytes, bay.lists()[1], messages_min=0)
        assert bay.lists()[1].direct and not bay.lists()[0].direct
        with under_way(bay, bay.lists()[0]):
            assert bay.dispatch_area.dispatch(consumer, 10, None) == []
        assert list(drain(consumer)) == [high, low]


def test_what_was_acknowledged_elsewhere_during_a_load_is_not_delivered() -> None:
    bay = SimulatedBay()
    ids = send_equal(bay.queue(), 10, BODY)
    bay.reopen()
    queue = bay.queue()
    with queue.subscribe() as one, queue.subscribe(selector="n >= 0") as other:
        deliveries = one.take(10)
        target = next(found for found in bay.lists() if found.selector_group is other.selector_group)
        with under_way(bay, target):
            one.ack(deliveries[:6])
            one.nack(deliveries[6:8])
            one.ack(deliveries[8:])
        assert list(drain(other)) == ids[6:8]
        assert queue.depth == 0


def test_a_load_whose_list_was_evicted_meanwhile_stays_behind_what_was_evicted() -> None:
    bay = SimulatedBay()
    ids = send_equal(bay.queue(), 300, BODY)
    bay.reopen()
    with bay.queue().subscribe() as consumer:
        bay.loader.step()
        (target,) = bay.lists()
        elsewhere = TargetList(target.lane, target.selector_group, bay.consumer_memory)
        with under_way(bay, target):
            bay.reclaim.make_room(bay.budget.limit_bytes, elsewhere)
        assert len(target.direct) == 1
        assert list(drain(consumer)) == ids


def test_a_load_for_a_consumer_that_closed_meanwhile_leaves_no_charge_and_no_complaint(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bay = SimulatedBay()
    ids = send_equal(bay.queue(), 50, BODY)
    bay.reopen()
    consumer = bay.queue().subscribe()
    (target,) = bay.lists()
    with under_way(bay, target):
        consumer.close()
        bay.check()  # what the load reserved is accounted for until it ends
        assert bay.list_registry.is_loading
        bay.disk.fail("read", 1, 5)
    assert not bay.list_registry.is_loading
    assert bay.bay.statistics().memory.holders["target_lists"] == 0
    assert not caplog.records
    with bay.queue().subscribe() as next_consumer:
        assert list(drain(next_consumer)) == ids


def failing_once(work: Callable[[Load[TargetList]], None]) -> Callable[[Load[TargetList]], None]:
    calls: list[Load[TargetList]] = []

    def fail(load: Load[TargetList]) -> None:
        calls.append(load)
        if len(calls) == 1:
            raise KeyboardInterrupt
        work(load)

    return fail


@interpreted("replaces what compiled code has linked")
def test_a_load_that_was_interrupted_leaves_no_charge_and_can_be_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    bay = SimulatedBay()
    ids = send_equal(bay.queue(), 50, BODY)
    bay.reopen()
    with bay.queue().subscribe() as consumer:
        monkeypatch.setattr(bay.loader, "read", failing_once(bay.loader.read))
        with pytest.raises(KeyboardInterrupt):
            consumer.take(10)
        bay.check()
        assert bay.bay.statistics().memory.holders["read_buffers"] == 0
        assert list(drain(consumer)) == ids


# Damage.


def damage(bay: SimulatedBay, marker: bytes) -> None:
    """Flip a bit of the body that begins with marker."""
    for name, content in bay.disk.image().items():
        at = content.find(marker)
        if at >= 0:
            bay.disk.flip_bit(name, at, 3)


@pytest.mark.parametrize("selector", [None, "n >= 0"])
@pytest.mark.parametrize("body_bytes", [KIB, len(LARGE)])
def test_a_message_whose_bytes_are_damaged_is_passed_over_and_counted(
    selector: str | None, body_bytes: int, caplog: pytest.LogCaptureFixture
) -> None:
    bay = SimulatedBay()
    marker = b"the damaged one"
    for number, mark in enumerate((b"first", marker, b"last")):
        bay.queue().send(mark.ljust(body_bytes), headers={"n": number})
    bay.reopen()
    damage(bay, marker)
    with bay.queue().subscribe(selector=selector) as consumer, caplog.at_level(logging.ERROR):
        bay.bay.step()
        deliveries = consumer.take(3)
        if selector is None and body_bytes == len(LARGE):
            assert len(deliveries) == 3, "nobody has looked at it yet"
            return
        assert [delivery.body.rstrip() for delivery in deliveries] == [b"first", b"last"]
        assert bay.bay.statistics().destinations["orders"].unreadable == 1
        assert len(caplog.records) == 1
        assert marker.decode() not in caplog.text
        consumer.ack(deliveries)
        assert consumer.take() == []
    assert bay.queue().depth == 1, "it stays in the journal"
    bay.check()


@interpreted("counts calls of Python functions")
def test_the_loader_lets_go_of_the_lock_between_lists_that_memory_does_not_suffice_for() -> None:
    bay = SimulatedBay(memory_limit="8MiB")
    for number in range(200):
        queue = bay.queue(f"q{number}")
        queue.send_many(Message(bytes(1000)) for _ in range(3))
    bay.reopen()
    consumers = [bay.queue(f"q{number}").subscribe() for number in range(200)]
    filling = bay.budget.holder("host")
    assert filling.reserve(bay.budget.free_bytes + bay.memories.common.head_queue_cache.give_back(1 << 30))
    looks, calls = 0, Counter[str]()
    while bay.loads.running_low:
        with counted_calls() as step_calls:
            assert bay.loader.step() or not bay.loads.running_low
        assert step_calls["EagerLoader.begin"] <= 32
        calls += step_calls
        looks += 1
    assert looks > 5 and calls["EagerLoader.begin"] >= 200
    assert calls["_can_give"] < 1000, "nobody has anything to give: that is found once"
    filling.release(filling.held_bytes)
    assert all(consumer.take(3) for consumer in consumers)


@pytest.mark.slow
@pytest.mark.parametrize("kinds", ["non-persistent", "mixed"])
def test_where_places_of_spilled_messages_fill_memory_consumers_still_get_batches(kinds: str) -> None:
    bay = SimulatedBay(memory_limit="4MiB")
    queue = bay.queue()
    consumer = queue.subscribe(prefetch=1000)
    sent = 0
    with pytest.raises(StoreFull):
        while True:
            queue.send_many(Message(b"x" * 16, persistent=kinds == "mixed" and n % 2 == 0) for n in range(500))
            sent += 500
    assert bay.budget.free_bytes < 1000 and bay.overflow.account.holder.held_bytes > MIB
    queue_depth, loads, sizes = queue.depth, bay.loader.durations.count, list[int]()
    while deliveries := consumer.take(256):
        consumer.ack(deliveries)
        sizes.append(len(deliveries))
    bay.check()
    assert sum(sizes) == queue_depth >= sent
    assert len(sizes) < 2 * queue_depth / 256
    assert bay.loader.durations.count - loads < 2 * len(sizes)


@pytest.mark.parametrize("share", [None, "1MiB"])
def test_a_list_takes_no_more_than_half_of_what_it_and_its_twin_may_have(share: str | None) -> None:
    bay = SimulatedBay(memory_limit="4MiB", policies={"orders": DestinationPolicy(memory_share=share)})
    queue = bay.queue()
    queue.send_many(Message(b"x" * 16, persistent=n % 2 == 0) for n in range(400))
    consumer = queue.subscribe()
    bay.bay.step()
    persistent, non_persistent = bay.lists()
    assert len(persistent.direct) == len(non_persistent.direct) == 200
    while persistent.direct:
        message = persistent.evict_last()
        persistent.memory.lists_holder.release(charge_of(message))
    bay.reclaim.make_room(bay.budget.limit_bytes, non_persistent, messages_min=200)
    if share is None:
        filling = bay.budget.holder("host")
        assert filling.reserve(bay.budget.free_bytes)
    else:
        memory = persistent.memory
        assert isinstance(memory, QuotaMemory)
        filling = bay.budget.quota_holder("host", memory.quota)
        assert filling.reserve(memory.share_free_bytes)
    assert 50 < len(consumer.take(256)) <= 200
    filling.release(filling.held_bytes)
    bay.check()
