"""destinations.json: what people read of a store that nobody has open, and that forebay never needs."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from simulated_bay import SimulatedBay
from simulated_disk import PowerCut, SimulatedDisk

from forebay import Message
from forebay.store.destinations_file import DESTINATIONS, LINES_MAX, OLDEST_MAX, SELECTOR_MAX


def told(disk: SimulatedDisk) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(disk.image()[DESTINATIONS])
    return content


def filled(**fields: Any) -> SimulatedBay:
    """A store with two queues, and a topic of which one subscription is behind."""
    store = SimulatedBay(**fields)
    store.queue("orders").send_many(Message(b"x" * 10) for _ in range(3))
    store.queue("idle")
    topic = store.bay.topic("prices")
    topic.subscribe(durable="audit").close()
    with topic.subscribe(durable="eu", selector="region = 'EU'") as consumer:
        topic.send(b"12345", headers={"region": "EU"})
        for delivery in consumer.take(10):
            delivery.ack()
    topic.subscribe().close()
    return store


def step(store: SimulatedBay, seconds: float = 6.0) -> None:
    store.clock.advance(seconds)
    store.bay.step()


def test_a_closed_store_lists_its_queues_topics_and_durable_subscriptions() -> None:
    store = filled()
    store.bay.close()
    content = told(store.disk)
    assert (content["closed"], content["left_out"]) == (True, 0)
    oldest = [row.pop("oldest") for row in content["destinations"] if "oldest" in row]
    assert len(oldest) == 2 and len(set(oldest)) == 1 and oldest[0] <= content["written"]
    assert content["destinations"] == [
        {"queue": "idle", "messages": 0, "bytes": 0},
        {"queue": "orders", "messages": 3, "bytes": 30},
        {"topic": "prices", "messages": 1, "bytes": 17},
        {"subscription": "audit", "topic": "prices", "selector": None, "messages": 1, "bytes": 17},
        {"subscription": "eu", "topic": "prices", "selector": "region='EU'", "messages": 0, "bytes": 0},
    ]


def test_each_destination_has_a_line_that_grep_finds() -> None:
    store = filled()
    store.bay.close()
    lines = store.disk.image()[DESTINATIONS].decode().splitlines()
    assert [line for line in lines if "orders" in line] == [
        line for line in lines if line.startswith('{"queue": "orders"')
    ]


def test_the_oldest_message_is_that_of_all_priorities_and_is_looked_up_again_when_it_is_gone() -> None:
    store = SimulatedBay()
    queue = store.queue()
    queue.send(b"first", priority=9)
    store.clock.advance(60.0)
    queue.send(b"second", priority=0)
    step(store)
    [first] = told(store.disk)["destinations"]
    with queue.subscribe() as consumer:
        consumer.take(1)[0].ack()
    step(store)
    [second] = told(store.disk)["destinations"]
    assert second["messages"] == 1
    assert first["oldest"][:17] != second["oldest"][:17] and first["oldest"] < second["oldest"]


def test_names_and_selectors_that_people_chose_keep_the_file_printable_ascii() -> None:
    store = SimulatedBay()
    store.queue('quo"te},[ \u00e9\u4e2d')
    store.bay.topic("t").subscribe(durable="long", selector=" OR ".join(f"a = {n}" for n in range(60))).close()
    store.bay.close()
    text = store.disk.image()[DESTINATIONS].decode("ascii")
    assert all(character.isprintable() or character == "\n" for character in text)
    rows = told(store.disk)["destinations"]
    assert rows[0]["queue"] == 'quo"te},[ \u00e9\u4e2d'
    assert len(rows[2]["selector"]) == SELECTOR_MAX


def test_opening_removes_it_and_the_next_checkpoint_that_finds_something_new_writes_another() -> None:
    store = filled()
    store.reopen()
    assert DESTINATIONS not in store.disk.image()
    step(store)
    assert told(store.disk)["closed"] is False
    step(store)  # what attests the first one is new
    written = store.disk.image()[DESTINATIONS]
    step(store)
    assert store.disk.image()[DESTINATIONS] == written
    store.queue().send(b"")
    step(store)
    assert store.disk.image()[DESTINATIONS] != written


@pytest.mark.parametrize("content", [b"", b"\0" * 5000, b"[]", b'{"destinations": 7}'])
def test_whatever_lies_in_its_place_is_not_looked_at(content: bytes) -> None:
    store = filled()
    store.bay.close()
    for name in (DESTINATIONS, f"{DESTINATIONS}.new"):
        if store.disk.exists(name):
            store.disk.remove(name)
        store.disk.open(name, create=True).append(content)
    store.crash()
    assert not [name for name in store.disk.image() if "destinations" in name]
    assert len(store.queue("orders")) == 3


def during_its_writing(store: SimulatedBay, act: Callable[[], object], look: Callable[[], object]) -> int:
    """Act, and look before each call that concerns the file; return how many there were."""
    calls = 0

    def on_call(_: str, name: str) -> None:
        nonlocal calls
        if "destinations" in name:
            calls += 1
            look()

    store.disk.on_call = on_call
    try:
        act()
    finally:
        store.disk.on_call = lambda *_: None
    return calls


@pytest.mark.parametrize("is_closing", [False, True])
def test_a_crash_at_any_call_of_writing_it_loses_nothing(is_closing: bool) -> None:
    store = filled(sync="always")
    step(store)
    store.queue("orders").send(b"new")
    images: list[SimulatedDisk] = []

    def crash() -> None:
        images.append(store.disk.crash_process())
        images.extend(store.disk.crash_power(Random(seed), mode) for seed in range(2) for mode in PowerCut)

    calls = during_its_writing(store, store.bay.close if is_closing else lambda: step(store), crash)
    assert calls >= 3
    for image in images:
        store.disk = image
        store.crash(is_index_lost=True)
        assert not [name for name in store.disk.image() if "destinations" in name]
        assert len(store.queue("orders")) == 4
        assert store.bay.topic("prices").subscriptions() == ["audit", "eu"]


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO, errno.EMFILE])
def test_a_disk_that_refuses_it_refuses_nothing_else(error: int) -> None:
    for nth in range(1, 20):
        store = filled()
        seen = 0

        def refuse(nth: int = nth) -> None:
            nonlocal seen
            seen += 1
            if seen == nth:
                raise OSError(error, "refused")

        calls = during_its_writing(store, store.bay.close, refuse)
        store.crash()
        assert store.bay.recovery.clean
        assert len(store.queue("orders")) == 3
        if calls < nth:
            break
    assert nth > 3


def test_where_it_cannot_be_written_there_is_none_rather_than_an_old_one() -> None:
    store = filled()
    step(store)
    store.queue().send(b"")

    def refuse(call: str, name: str) -> None:
        if call == "write" and "destinations" in name:
            raise OSError(errno.EIO, "refused")

    store.disk.on_call = refuse
    step(store)
    assert not [name for name in store.disk.image() if "destinations" in name]


def test_what_goes_beyond_ten_thousand_lines_is_counted_and_the_deepest_have_their_oldest_message() -> None:
    store = SimulatedBay(memory_limit="64MiB")
    for number in range(LINES_MAX + 5):
        queue = store.queue(f"{number:05}")
        if number < OLDEST_MAX + 10:
            queue.send_many(Message(b"") for _ in range(1 if number < 10 else 2))
    store.bay.close()
    content = told(store.disk)
    rows = content["destinations"]
    assert (len(rows), content["left_out"]) == (LINES_MAX, 5)
    assert [row["queue"] for row in rows if "oldest" in row] == [
        f"{number:05}" for number in range(10, OLDEST_MAX + 10)
    ]


def test_a_store_that_takes_long_to_list_is_listed_less_often() -> None:
    store = filled()
    writes = 0

    def slow(call: str, name: str) -> None:
        nonlocal writes
        if call == "rename" and name.endswith("destinations.json.new"):
            writes += 1
            store.clock.advance(1.0)

    store.disk.on_call = slow
    for _ in range(30):
        store.queue().send(b"")
        step(store, 10.0)
    assert 2 <= writes <= 4
