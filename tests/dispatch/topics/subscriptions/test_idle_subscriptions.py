"""Durable subscriptions that nobody uses are rows: they are opened by whoever uses them, and put away again."""

from __future__ import annotations

from random import Random

import pytest
from crashing import crashes_at
from delivering import bodies
from inside import inside, open_forebay
from simulated_bay import SimulatedBay
from simulated_disk import SimulatedDisk
from simulated_metadata import SimulatedMetadataStore

from forebay import Delivery, Message, Settings, SettingsError, Topic
from forebay.dispatch.config.settings import SyncMode
from forebay.testing import ManualClock


def opened(bay: SimulatedBay) -> list[str]:
    """The names of the durable subscriptions that are more than rows."""
    return sorted(found.facts.name for found in bay.store.subscriptions.by_number.values() if found.is_durable)


def topic_of(bay: SimulatedBay) -> Topic:
    return bay.bay.topic("prices")


def drained(topic: Topic, name: str) -> list[bytes]:
    """Take and acknowledge all that waits for a subscription."""
    found: list[bytes] = []
    with topic.subscribe(durable=name) as consumer:
        while deliveries := consumer.take(100):
            found += bodies(deliveries)
            consumer.ack(deliveries)
    return found


def numbered(*numbers: int) -> list[Message]:
    return [Message(b"%d" % number) for number in numbers]


def test_a_subscription_is_open_while_somebody_reads_it_and_a_row_before_and_after() -> None:
    bay = SimulatedBay()
    topic = topic_of(bay)
    topic.send(b"for nobody")
    with topic.subscribe(durable="audit"):
        assert opened(bay) == ["audit"]
    assert opened(bay) == [] and topic.subscriptions() == ["audit"]
    topic.send_many(numbered(*range(700)))
    topic.send(b"first", priority=9)
    assert opened(bay) == []
    found = topic.statistics().subscriptions["audit"]
    assert (found.depth, found.enqueued, found.consumers) == (701, 701, 0) and opened(bay) == []
    assert bay.bay.explain(topic).sentence and bay.bay.explain("prices/audit").sentence and opened(bay) == []
    bay.check()
    assert drained(topic, "audit") == [b"first", *(b"%d" % number for number in range(700))]
    bay.check()


@pytest.mark.parametrize("how", ["reopen", "crash", "index lost"])
def test_an_open_of_the_store_finds_rows_that_go_on_where_their_readers_were(how: str) -> None:
    bay = SimulatedBay()
    topic = topic_of(bay)
    for name in ("new", "used", "done", "holes"):
        topic.subscribe(durable=name).close()
    topic.send_many(numbered(*range(1_000)))
    for name, take in (("used", 700), ("done", 1_000), ("holes", 10)):
        with topic.subscribe(durable=name, prefetch=0) as consumer:
            taken: list[Delivery] = []
            while len(taken) < take:
                taken += consumer.take(take - len(taken))
            consumer.ack(taken[::2] if name == "holes" else taken)
    bay.bay.checkpoint()
    topic.send_many(numbered(*range(1_000, 1_100)))
    bay.reopen() if how == "reopen" else bay.crash(is_index_lost=how == "index lost")
    bay.check()
    assert opened(bay) == ["holes"]
    topic = topic_of(bay)
    depths = {name: found.depth for name, found in topic.statistics().subscriptions.items()}
    assert depths == {"new": 1_100, "used": 400, "done": 100, "holes": 1_095}
    sizes = {name: found.bytes for name, found in topic.statistics().subscriptions.items()}
    assert sizes["done"] == 400 and sizes["used"] == 300 * 3 + 400
    topic.send(b"last")
    expected = [b"%d" % number for number in range(1_100)] + [b"last"]
    assert drained(topic, "used") == expected[700:]
    assert drained(topic, "done") == expected[1_000:]
    assert drained(topic, "holes") == expected[1:10:2] + expected[10:]
    bay.check()
    bay.reopen()
    assert {name: found.depth for name, found in topic_of(bay).statistics().subscriptions.items()} == {
        "new": 1_101,
        "used": 0,
        "done": 0,
        "holes": 0,
    }
    assert drained(topic_of(bay), "new") == expected
    assert opened(bay) == ["new"]
    bay.check()


def test_rows_keep_the_messages_that_they_need_and_no_others() -> None:
    bay = SimulatedBay(max_file_length="64KiB")
    topic = topic_of(bay)
    topic.subscribe(durable="first").close()
    topic.send_many(Message(bytes(1_000)) for _ in range(200))
    topic.subscribe(durable="second").close()
    topic.send_many(Message(bytes(1_000)) for _ in range(200))
    bay.bay.checkpoint()
    bay.bay.cleanup()
    assert bay.topic_state().depth == 400
    topic.unsubscribe("first")
    bay.bay.checkpoint()
    assert bay.bay.cleanup().deleted and opened(bay) == [] and bay.topic_state().depth <= 200 + 512
    bay.check()
    assert topic.statistics().subscriptions["second"].depth == 200
    assert drained(topic, "second") == [bytes(1_000)] * 200
    bay.check()


def test_rows_are_moved_unsubscribed_and_deleted_as_others_are() -> None:
    bay = SimulatedBay(memory_limit="16MiB")
    topic = topic_of(bay)
    for name in ("ahead", "back", "gone", "slow"):
        topic.subscribe(durable=name).close()
    topic.send_many(numbered(*range(600)))
    topic.subscription("ahead").seek("end")
    assert opened(bay) == []
    topic.send(b"late")
    topic.subscription("back").seek(sequence=500)
    topic.unsubscribe("gone")
    assert opened(bay) == [] and topic.subscriptions() == ["ahead", "back", "slow"]
    with pytest.raises(SettingsError):
        topic.unsubscribe("gone")
    bay.check()
    bay.crash(is_index_lost=True)
    topic = topic_of(bay)
    assert {name: found.depth for name, found in topic.statistics().subscriptions.items()} == {
        "ahead": 1,
        "back": 101,
        "slow": 601,
    }
    assert drained(topic, "back") == [*(b"%d" % number for number in range(500, 600)), b"late"]
    topic.delete()
    assert opened(bay) == [] and bay.store.subscriptions.count == 0
    bay.check()
    bay.reopen()
    assert bay.bay.topics() == []


def test_what_expires_leaves_rows_too() -> None:
    bay = SimulatedBay()
    topic = topic_of(bay)
    topic.subscribe(durable="audit").close()
    topic.send(b"short", expires_in=5.0)
    topic.send(b"long")
    bay.clock.advance(100.0)
    bay.bay.step()
    found = topic.statistics().subscriptions["audit"]
    assert (found.depth, found.expired) == (1, 1)
    assert drained(topic, "audit") == [b"long"]
    bay.check()


@pytest.mark.parametrize("sync", ["always", "never"])
def test_crash_at_any_call_while_subscriptions_are_put_away_and_used_again_loses_nothing(sync: SyncMode) -> None:
    settings = Settings(background=False, memory_limit="4MiB", sync=sync, max_file_length="64KiB")
    disk, metadata, clock, random = SimulatedDisk(), SimulatedMetadataStore(), ManualClock(), Random(7)
    sent = taken = states = 0

    def look(left: SimulatedDisk, index: SimulatedMetadataStore, context: object) -> None:
        nonlocal states
        states += 1
        found = open_forebay(left, index, settings, ManualClock())
        subscriptions = found.topic("prices").statistics().subscriptions
        assert list(subscriptions) == ["idle", "used"], context
        assert sent - 1 <= subscriptions["idle"].depth <= sent, (context, sent, subscriptions["idle"].depth)
        if sync == "always":
            assert subscriptions["used"].depth <= sent - taken + 1, (context, sent, taken, subscriptions["used"].depth)
        inside(found).audit()
        inside(found).index._check()

    def crash(call: str, name: str) -> None:
        for image, left, how in crashes_at(disk, metadata, sync, random):
            look(image, left, (call, name, how))

    bay = open_forebay(disk, metadata, settings, clock)
    topic = bay.topic("prices")
    for name in ("idle", "used"):
        topic.subscribe(durable=name).close()
    for turn in range(4):
        disk.on_call = crash
        for _ in range(2):
            sent += 1
            topic.send(bytes(15_000))
        with topic.subscribe(durable="used") as consumer:
            consumer.take(1)[0].ack()
            taken += 1
        bay.checkpoint()
        bay.cleanup()
        disk.on_call = None
        if turn % 2:
            bay.close()
            bay = open_forebay(disk, metadata, settings, clock)
            topic = bay.topic("prices")
            assert not inside(bay).store.subscriptions.by_number
    bay.close()
    assert states >= (50 if sync == "always" else 20)
