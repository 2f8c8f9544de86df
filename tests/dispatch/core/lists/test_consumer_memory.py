"""Consumers are charged from `subscribe` to `close`, with no less than the RAM that they take."""

from __future__ import annotations

import gc
import tracemalloc

import pytest
from compiled import interpreted
from simulated_bay import SimulatedBay

from forebay import Consumer, Message
from forebay.store.errors import StoreFull

MANY = 1_000
OTHER_BYTES = 25_000
"""Of the index, and of tables that all consumers share."""
CACHE_BYTES = 20_000
"""That the tables of the selectors kept for the next subscription, at most 64, grow and shrink by."""


def charged(bay: SimulatedBay) -> int:
    return bay.bay.statistics().memory.holders["consumers"]


def traced_bytes() -> int:
    """Return how much is allocated, without what lies on the simulated disk."""
    snapshot = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(False, "*simulated_*.py")])
    return sum(trace.size for trace in snapshot.traces)


def use(bay: SimulatedBay, consumers: list[Consumer], begin: int) -> None:
    """Each takes and acknowledges a message of its own, and is looked at several times."""
    for number in range(begin, begin + len(consumers)):
        bay.queue().send(b"x", headers={"k": f"v{number}"})
    for consumer in consumers:
        consumer.ack(consumer.take())
    for _ in range(3):
        bay.clock.advance(6.0)
        bay.bay.step()


def with_selectors(bay: SimulatedBay, count: int, begin: int = 0) -> list[Consumer]:
    return [bay.queue().subscribe(selector=f"k = 'v{number}'") for number in range(begin, begin + count)]


@interpreted("measures Python objects")
@pytest.mark.parametrize("has_lane", [False, True])
def test_a_consumer_with_a_selector_of_its_own_costs_no_more_than_it_is_charged(has_lane: bool) -> None:
    bay = SimulatedBay(memory_limit="16MiB")
    if has_lane:
        bay.queue().send(b"x", headers={"k": "none"})
    kept = with_selectors(bay, 100, begin=MANY)  # what is made once for all is there
    tracemalloc.start()
    try:
        gc.collect()
        before, charged_before = tracemalloc.get_traced_memory()[0], charged(bay)
        kept += with_selectors(bay, MANY)
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    holders, charge = bay.bay.statistics().memory.holders, charged(bay) - charged_before
    assert grown <= charge + holders["curve"]
    assert max(grown, charge) / MANY <= (1_024 if not has_lane else 2_048)
    bay.check()
    for consumer in kept:
        consumer.close()
    assert charged(bay) == bay.bay.statistics().memory.holders["curve"] == 0
    bay.check()


@interpreted("measures Python objects")
def test_consumers_in_use_with_selectors_of_their_own_cost_no_more_than_they_are_charged() -> None:
    bay = SimulatedBay(memory_limit="16MiB")
    queue = bay.queue()
    queue.send(b"x", headers={"k": "none"})
    kept = with_selectors(bay, 100, begin=MANY)
    use(bay, kept, MANY)
    tracemalloc.start()
    try:
        gc.collect()
        before, charged_before = traced_bytes(), charged(bay)
        curve_before = bay.bay.statistics().memory.holders["curve"]
        used = with_selectors(bay, 300)
        use(bay, used, 0)
        gc.collect()
        grown = traced_bytes() - before
    finally:
        tracemalloc.stop()
    charge = charged(bay) - charged_before + bay.bay.statistics().memory.holders["curve"] - curve_before
    assert grown <= charge + OTHER_BYTES
    bay.check()


@interpreted("measures Python objects")
@pytest.mark.parametrize(
    "text",
    [
        "k = 'v{}'",
        "k{} = 'v'",
        "JMSPriority > {} AND k = 3",
        "a.b.c = {}",
        "k IN ('{}', 'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i', 'j')",
        "{} < " + "a + b * c - " * 40 + "d",
        "a LIKE '%{}_b%' OR b NOT LIKE 'c%d'",
        "a = '" + "\N{EURO SIGN}" * 300 + "{}'",
        "NOT (" * 20 + "a BETWEEN {} AND 99999" + ")" * 20,
        " OR ".join(f"b = 'x{number}'" for number in range(50)) + " OR a = {}",
    ],
)
def test_a_compiled_selector_costs_no_more_than_it_is_charged(text: str) -> None:
    bay, count = SimulatedBay(memory_limit="256MiB"), MANY if len(text) < 50 else 200
    few = [bay.queue().subscribe(selector=text.format(number)) for number in range(MANY, MANY + 100)]
    tracemalloc.start()
    try:
        gc.collect()
        before, charged_before = tracemalloc.get_traced_memory()[0], charged(bay)
        many = [bay.queue().subscribe(selector=text.format(number)) for number in range(count)]
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown <= charged(bay) - charged_before + CACHE_BYTES
    assert len(few) + len(many) == 100 + count


def test_where_memory_has_no_room_for_another_consumer_it_is_refused_and_the_others_go_on() -> None:
    bay = SimulatedBay(memory_limit="4MiB")
    bay.queue().send_many([Message(b"x")] * 10)
    consumers: list[Consumer] = []
    with pytest.raises(StoreFull) as full:
        for _ in range(MANY):
            consumers += with_selectors(bay, 1, begin=len(consumers))
    assert full.value.limit == "memory_limit" and "raise memory_limit" in str(full.value)
    bay.check()
    consumers.pop().close()
    with bay.queue().subscribe() as plain:
        taken = 0
        while taken < 10:  # a list among so many holds less than that
            found = plain.take(10)
            taken += len(found)
            plain.ack(found)
    bay.check()


def test_consumers_leave_the_memory_that_the_first_message_of_their_queue_needs() -> None:
    bay = SimulatedBay(memory_limit="4MiB")
    consumers: list[Consumer] = []
    with pytest.raises(StoreFull):
        while True:
            consumers += with_selectors(bay, 1, begin=len(consumers))
    others: list[Consumer] = []
    with pytest.raises(StoreFull):  # nor do another queue's take it
        while True:
            others.append(bay.queue("hub").subscribe())
    bay.check()
    last = len(consumers) - 1
    bay.queue().send(b"x", headers={"k": f"v{last}"})
    assert [delivery.body for delivery in consumers[last].take(timeout=1.0)] == [b"x"]
    bay.check()
    for consumer in (*consumers, *others):
        consumer.close()
    assert charged(bay) == 0
    bay.check()


def test_a_priority_that_would_need_more_lists_than_memory_has_room_for_is_refused() -> None:
    bay = SimulatedBay(memory_limit="4MiB")
    consumers: list[Consumer] = []
    with pytest.raises(StoreFull):
        for _ in range(MANY):
            consumers += with_selectors(bay, 1, begin=len(consumers))
    bay.queue().send(b"x", headers={"k": "v0"})
    with pytest.raises(StoreFull) as full:
        bay.queue().send(b"x", priority=9)
    assert full.value.limit == "memory_limit"
    bay.check()
    for consumer in consumers[100:]:
        consumer.close()
    bay.queue().send(b"x", headers={"k": "v7"}, priority=9)
    assert [delivery.body for delivery in consumers[7].take(timeout=1.0)] == [b"x"]
    bay.check()


def test_a_subscriber_that_memory_has_no_room_for_leaves_no_subscription() -> None:
    bay = SimulatedBay(memory_limit="4MiB")
    topic = bay.bay.topic("prices")
    topic.send(b"x")
    consumers: list[Consumer] = []
    with pytest.raises(StoreFull):
        for number in range(MANY):
            consumers.append(topic.subscribe(durable=f"s{number}", selector=f"k = 'v{number}'"))
    area = bay.topic_state("prices")
    assert len(area.online) == len(area.durable_names) == len(consumers) > 100
    bay.check()
    with pytest.raises(StoreFull):
        bay.bay.topic("prices").subscribe()
    assert len(area.online) == len(consumers)
    for _ in range(2):
        consumers.pop().close()
        topic.unsubscribe(f"s{len(consumers)}")
    topic.subscribe(durable=f"s{len(consumers)}", selector=f"k = 'v{len(consumers)}'")
    bay.check()


def test_a_lower_limit_awaits_consumers_that_are_too_many_for_it() -> None:
    bay = SimulatedBay(memory_limit="64MiB")
    consumers = with_selectors(bay, 3 * MANY)
    report = bay.bay.resize("4MiB")
    assert not report.is_settled and report.awaited == {"consumers": charged(bay)}
    for consumer in consumers[10:]:
        consumer.close()
    bay.bay.step()
    assert bay.bay.resize("4MiB").is_settled
    bay.check()


def test_a_list_that_shared_once_and_is_alone_now_loses_no_arrival() -> None:
    bay = SimulatedBay()
    queue = bay.queue()
    queue.send(b"0")
    with queue.subscribe() as consumer:
        queue.subscribe(selector="part = 1").close()
        for number in range(3):
            queue.send(b"%d" % (number + 1))
            assert [delivery.body for delivery in consumer.take(10)][-1] == b"%d" % (number + 1)
            bay.check()
        queue.send_many(Message(b"%d" % number) for number in range(4, 8))
        assert [delivery.body for delivery in consumer.take(10)] == [b"4", b"5", b"6", b"7"]
    bay.check()
