"""What topics with many durable subscriptions do, they do in parts: nobody waits for all of them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from compiled import interpreted
from counting import counted_calls
from inside import inside
from interrupting import Interruption
from simulated_bay import SimulatedBay

from forebay import Message, StoreFailed, Topic
from forebay.dispatch.core.monitor import SECTION_ITEMS
from forebay.dispatch.topics.state.subscription_state import SubscriptionState
from forebay.dispatch.topics.subscriptions.subscription_registry import FORGOTTEN_AT_ONCE
from forebay.store.checkpoint.checkpointer import CAUGHT_UP_AT_ONCE
from forebay.store.environment.locks import OwnedLock
from forebay.store.index.sequence_bitmap import SequenceBitmap
from forebay.store.index.topic_lane import SubscriptionLane

DURABLES = 700


def topic_with_durables(bay: SimulatedBay, durables: int = DURABLES) -> Topic:
    topic = bay.bay.topic("prices")
    for n in range(durables):
        topic.subscribe(durable=f"audit {n}").close()
    return topic


@interpreted("replaces a method of the library")
def test_a_checkpoint_encodes_no_backlog_while_others_wait_for_the_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    bay = SimulatedBay(memory_limit="64MiB")
    topic = topic_with_durables(bay)
    topic.send_many([Message(b"x") for _ in range(600)])
    with topic.subscribe(durable="audit 7") as consumer:
        consumer.ack(consumer.take(5))
    lock, backlog, encoded = inside(bay.bay).lock, SequenceBitmap.backlog, []

    def counted(*arguments: Any) -> Any:
        encoded.append(lock.is_owned())
        return backlog(*arguments)

    monkeypatch.setattr(SequenceBitmap, "backlog", counted)
    assert inside(bay.bay).store.checkpointer.checkpoint()
    assert encoded == [False] * DURABLES


@interpreted("replaces a method of the library")
def test_subscriptions_whose_selectors_have_nothing_to_examine_are_looked_at_in_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bay = SimulatedBay(memory_limit="64MiB")
    topic = bay.bay.topic("prices")
    for n in range(250):
        topic.subscribe(durable=f"audit {n}", selector="n = 1").close()
    topic.send(b"x", headers={"n": 2})
    while bay.bay.step():
        pass
    enter, open_lanes = OwnedLock.__enter__, SubscriptionState.open_lanes
    sections, looks = Counter[str](), Counter[int]()

    def entered(lock: OwnedLock) -> Any:
        sections["entered"] += 1
        return enter(lock)

    def counted(*arguments: Any) -> Any:
        looks[sections["entered"]] += 1
        return open_lanes(*arguments)

    monkeypatch.setattr(OwnedLock, "__enter__", entered)
    monkeypatch.setattr(SubscriptionState, "open_lanes", counted)
    bay.bay.step()
    assert sum(looks.values()) >= 250 and max(looks.values()) <= SECTION_ITEMS


@interpreted("replaces a method of the library")
@pytest.mark.parametrize("way", ["kill", "close"])
def test_what_comes_and_goes_while_a_checkpoint_writes_is_as_it_was_left(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bay = SimulatedBay(memory_limit="64MiB")
    topic = topic_with_durables(bay, 20)
    topic.send_many([Message(b"%d" % n) for n in range(1_000)])
    consumers = [topic.subscribe(durable=f"audit {n}", prefetch=0) for n in range(10)]
    for n, consumer in enumerate(consumers):
        consumer.ack(consumer.take(10 * n + 1))
    backlog, calls = SequenceBitmap.backlog, Counter[str]()

    def interrupted(*arguments: Any) -> Any:
        calls["backlog"] += 1
        if calls["backlog"] == 1:
            for consumer in consumers:
                consumer.ack(consumer.take(3))
            topic.send(b"late")
            topic.subscription("audit 15").seek("end")
        return backlog(*arguments)

    monkeypatch.setattr(SequenceBitmap, "backlog", interrupted)
    assert inside(bay.bay).store.checkpointer.checkpoint()
    assert calls["backlog"] == 20
    monkeypatch.undo()
    expected = {f"audit {n}": 1_001 - (10 * n + 4 if n < 10 else 0) for n in range(20)} | {"audit 15": 0}
    assert {name: found.depth for name, found in topic.statistics().subscriptions.items()} == expected
    bay.check()
    if way == "kill":
        bay.crash()
    else:
        bay.reopen()
    topic = bay.bay.topic("prices")
    assert {name: found.depth for name, found in topic.statistics().subscriptions.items()} == expected
    bay.check()


@interpreted("replaces a method of the library")
def test_whatever_breaks_into_a_subscription_that_catches_up_fails_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    bay = SimulatedBay()
    topic = topic_with_durables(bay, 2)
    topic.send(b"before")
    topic.subscribe(durable="audit 0").take(1)
    topic.send(b"late")

    def broken_into(pending: SequenceBitmap, first: int, last: int) -> None:
        pending.blocks.add(first, last)
        raise Interruption

    monkeypatch.setattr(SequenceBitmap, "add", broken_into)
    with pytest.raises(Interruption):
        bay.store.checkpointer.checkpoint()
    monkeypatch.undo()
    with pytest.raises(StoreFailed):
        topic.send(b"another")
    bay.crash()
    assert {found.depth for found in bay.bay.topic("prices").statistics().subscriptions.values()} == {2}
    bay.check()


def test_what_was_noted_of_backlogs_stays_until_it_is_forgotten() -> None:
    bay = SimulatedBay(memory_limit="64MiB")
    topic = topic_with_durables(bay, 20)
    topic.send_many([Message(b"%d" % n) for n in range(1_000)])
    consumers = [topic.subscribe(durable=f"audit {n}", prefetch=0) for n in range(10)]
    for n, consumer in enumerate(consumers):
        consumer.ack(consumer.take(10 * n + 1))
    subscriptions = inside(bay.bay).store.subscriptions
    with inside(bay.bay).lock:
        notes = subscriptions.note_backlogs()
    noted = [list(note) for note in notes]
    assert sum(map(len, noted)) == 20
    for _ in range(2):
        for consumer in consumers:
            consumer.ack(consumer.take(3))
        topic.send(b"late")
        topic.subscription("audit 15").seek("end")
        topic.subscription("audit 16").seek("begin")
    assert [list(note) for note in notes] == noted
    with inside(bay.bay).lock:
        subscriptions.forget_noted()
        pending = [lane.pending for lane in subscriptions.durable_lanes()]
    consumers[0].ack(consumers[0].take(1))
    with inside(bay.bay).lock:
        assert all(
            a is b for a, b in zip(pending, [lane.pending for lane in subscriptions.durable_lanes()], strict=True)
        )
    bay.check()


def test_subscriptions_take_in_what_was_sent_in_parts_before_a_checkpoint() -> None:
    bay = SimulatedBay(memory_limit="64MiB")
    topic = bay.bay.topic("prices")
    kept = [topic.subscribe(durable=f"audit {n}") for n in range(DURABLES)]
    topic.send_many([Message(b"x") for _ in range(10)])
    store = inside(bay.bay).store
    with inside(bay.bay).lock:
        lanes = store.subscriptions.durable_lanes()
    assert len(lanes) == DURABLES == len(kept) > CAUGHT_UP_AT_ONCE
    assert store.checkpointer.checkpoint()
    assert not any(isinstance(lane, SubscriptionLane) and lane.has_pending_set for lane in lanes)
    bay.check()


@interpreted("counts calls of functions")
def test_deleting_a_topic_costs_little_for_each_subscription_that_nobody_reads() -> None:
    def cost(durables: int) -> int:
        bay = SimulatedBay(memory_limit="64MiB")
        topic = topic_with_durables(bay, durables)
        topic.send_many([Message(b"x") for _ in range(10)])
        with counted_calls() as calls:
            topic.delete()
        bay.check()
        assert calls["SubscriptionState.__init__"] == 0
        return calls.total()

    few, many = cost(100), cost(600)
    assert many - few <= 500 * 16


@interpreted("counts calls of functions")
def test_a_removal_of_the_unneeded_asks_so_many_subscriptions_in_one_go_and_no_more() -> None:
    bay = SimulatedBay(memory_limit="64MiB")
    topic = topic_with_durables(bay)
    topic.send_many([Message(b"x") for _ in range(512 * 40)])
    kept = [topic.subscribe(durable=f"audit {n}") for n in range(DURABLES)]
    subscriptions = inside(bay.bay).store.subscriptions
    with inside(bay.bay).lock:
        for lane in subscriptions.durable_lanes()[:1]:
            lane.topic.touch_all()
        with counted_calls() as calls:
            subscriptions.remove_unneeded(64)
        assert 0 < calls["SubscriptionLane.mask"] <= 64 * 64
        assert subscriptions.touched_blocks > 0
    assert len(kept) == DURABLES
    bay.check()


@interpreted("counts calls of functions")
def test_a_removal_of_the_unneeded_asks_those_that_nobody_reads_once_for_all_of_them() -> None:
    bay = SimulatedBay(memory_limit="64MiB")
    topic = topic_with_durables(bay)
    topic.send_many([Message(b"x") for _ in range(512 * 4)])
    with topic.subscribe(durable="audit 7", prefetch=0) as consumer:
        consumer.ack(consumer.take(512))
        subscriptions = inside(bay.bay).store.subscriptions
        with inside(bay.bay).lock, counted_calls() as calls:
            assert subscriptions.remove_unneeded() == 1
        assert calls["SubscriptionLane.mask"] == 1
    assert bay.topic_state().depth == 512 * 4
    bay.check()


def test_a_step_says_that_caches_have_more_subscriptions_to_forget() -> None:
    bay = SimulatedBay(memory_limit="64MiB")
    topic_with_durables(bay, 1)
    subscriptions = inside(bay.bay).subscription_registry
    [subscriber] = inside(bay.bay).store.subscriptions.readers()
    memory = bay.topic_state("prices").memory
    with inside(bay.bay).lock:
        subscriptions.forget_later(memory, [subscriber] * (2 * FORGOTTEN_AT_ONCE))
    assert [subscriptions.step() for _ in range(3)] == [True, False, False]
