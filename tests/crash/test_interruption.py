"""Ctrl-C, a signal handler or a lack of memory in the middle of a call: no confirmed message is lost for it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from compiled import interpreted
from inside import inside, open_forebay
from journals import all_bodies, append_one, journal_on, power_cut, syncer_of
from simulated_bay import SimulatedBay
from simulated_disk import SimulatedDisk, SimulatedFile
from simulated_metadata import SimulatedMetadataStore

from forebay import Forebay, Message, Settings, StoreFailed
from forebay.store.format.record import ATTEST, DESTINATION, DROP
from forebay.store.index.destination_lane import DestinationLane
from forebay.store.index.index import Index
from forebay.store.index.subscriptions import Subscriptions
from forebay.testing import ManualClock


def opened(disk: SimulatedDisk, metadata: SimulatedMetadataStore) -> Forebay:
    settings = Settings(background=False, memory_limit="4MiB")
    return open_forebay(disk, metadata, settings, ManualClock(1))


def interrupted_once(method: Callable[..., Any]) -> Callable[..., Any]:
    calls = iter((True,))

    def call(*arguments: Any, **named: Any) -> Any:
        if next(calls, False):
            raise KeyboardInterrupt
        return method(*arguments, **named)

    return call


@interpreted("replaces what compiled code has linked")
@pytest.mark.parametrize("method", ["add_one", "add_slice", "remove_one", "remove"])
def test_call_that_is_interrupted_between_journal_and_index_stops_the_store(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, metadata = SimulatedDisk(), SimulatedMetadataStore()
    bay = opened(disk, metadata)
    queue = bay.queue("orders")
    queue.send_many([Message(b"first"), Message(b"second"), Message(b"third")])
    consumer = queue.subscribe()
    deliveries = consumer.take(3)
    monkeypatch.setattr(DestinationLane, method, interrupted_once(getattr(DestinationLane, method)))
    with pytest.raises(KeyboardInterrupt):
        if method == "add_one":
            queue.send(b"interrupted")
        elif method == "add_slice":
            queue.send_many([Message(b"interrupted")])
        else:
            consumer.ack(deliveries[0] if method == "remove_one" else deliveries[:2])
    assert inside(bay).journal.failure is not None, "not only the lock says so"
    with pytest.raises(StoreFailed):
        queue.send(b"never confirmed")

    found = opened(disk.crash_process(), metadata).queue("orders").subscribe().take(10)
    bodies = [delivery.body for delivery in found]
    assert bodies[-1] == b"interrupted" if method.startswith("add") else b"third" in bodies
    assert {b"first", b"second", b"third"} <= set(bodies) or method.startswith("remove")


@pytest.mark.parametrize("nth", range(1, 4))
def test_what_an_interrupted_sync_left_out_is_synced_by_the_next(nth: int) -> None:
    """The older data log, its name and the newest one are synced one after the other: no call of these is skipped."""
    disk = SimulatedDisk()
    journal = journal_on(disk)
    syncer = syncer_of(journal, disk)
    append_one(journal, 4, 7, 0, 0, b"", b"in the older data log")
    journal.roll()
    append_one(journal, 4, 7, 1, 0, b"", b"in the newest one")
    calls = iter(range(1, nth + 1))

    def interrupt(call: str, name: str) -> None:
        if next(calls, None) == nth:
            raise KeyboardInterrupt

    disk.on_call = interrupt
    with pytest.raises(KeyboardInterrupt):
        syncer.sync()
    syncer.sync()
    assert journal.durable_end == journal.end
    assert all_bodies(power_cut(disk)) == [b"in the older data log", b"in the newest one"]


def after_writing(kind: int, armed: list[bool]) -> Callable[[SimulatedFile, bytes], None]:
    """An append of SimulatedFile that is interrupted, once it is armed, when it has written a record of a kind."""
    append = SimulatedFile.append

    def call(file: SimulatedFile, data: bytes) -> None:
        append(file, data)
        if data[8] == kind and armed:
            armed.clear()
            raise KeyboardInterrupt

    return call


@pytest.mark.parametrize("kind", [DESTINATION, ATTEST, DROP])
def test_record_of_a_seldom_kind_that_is_interrupted_parts_nothing(kind: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Later messages lie where the index says, and a later open finds them."""
    armed: list[bool] = []
    monkeypatch.setattr(SimulatedFile, "append", after_writing(kind, armed))
    store = SimulatedBay(max_file_length="64KiB", sync="interval")
    queue = store.queue("orders")
    consumer = queue.subscribe()
    for _ in range(4):
        queue.send(bytes(30_000))
    consumer.ack(consumer.take(4))
    store.syncer.sync()
    armed.append(True)
    with pytest.raises(KeyboardInterrupt):
        if kind == DESTINATION:
            store.queue("prices")
        elif kind == ATTEST:
            store.store.attestation.write()
        else:
            store.bay.cleanup()
    monkeypatch.undo()
    confirmed = []
    with suppress(StoreFailed):
        for body in (b"first", b"second"):
            queue.send(body)
            confirmed.append(body)
    store.crash(is_index_lost=True)
    assert [delivery.body for delivery in store.queue("orders").subscribe().take(10)] == confirmed
    store.check()


@interpreted("replaces what compiled code has linked")
def test_topic_whose_making_is_interrupted_does_not_swallow_a_queue_of_its_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = SimulatedBay()
    with monkeypatch.context() as patch:
        patch.setattr(Subscriptions, "register", interrupted_once(Subscriptions.register))
        with pytest.raises(KeyboardInterrupt):
            store.bay.topic("prices")
    confirmed = []
    with suppress(StoreFailed):
        store.queue("orders").send(b"an order")
        confirmed.append(b"an order")
    store.crash(is_index_lost=True)
    assert [delivery.body for delivery in store.queue("orders").subscribe().take(10)] == confirmed


@interpreted("replaces what compiled code has linked")
@pytest.mark.parametrize("method", ["take_dirty", "take_rows_to_delete", "checkpointed"])
def test_checkpoint_that_is_interrupted_forgets_no_block(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SimulatedBay()
    queue = store.queue("orders")
    queue.send(b"an order")
    original = getattr(Index, method)
    calls = iter((True,))

    def call(*arguments: Any, **named: Any) -> Any:
        result = original(*arguments, **named)
        if next(calls, False):
            raise KeyboardInterrupt
        return result

    monkeypatch.setattr(Index, method, call)
    with pytest.raises(KeyboardInterrupt):
        store.bay.checkpoint()
    with suppress(StoreFailed):
        store.bay.checkpoint()
    store.crash()
    assert [delivery.body for delivery in store.queue("orders").subscribe().take(10)] == [b"an order"]
    store.check()
