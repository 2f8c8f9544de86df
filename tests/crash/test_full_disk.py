"""A full disk, and a store at its limit: sends are refused whole, what makes room goes on, and so do sends after it.

The simulated disk has a capacity; the index has none of it, for SQLite keeps
its files elsewhere, so it says itself when it finds no space.
"""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from random import Random
from typing import Any

import pytest
from delivering import take_all
from journals import data_logs
from loops import LoopBay, run_jumping
from message_stores import OpenStore
from simulated_bay import SimulatedBay
from simulated_disk import PowerCut, SimulatedDisk
from simulated_metadata import SimulatedMetadataStore

import forebay
from forebay import AckTooLate, Consumer, DestinationPolicy, Message, Queue, StateError, StoreFailed, StoreFull
from forebay.aio import Consumer as AsyncConsumer
from forebay.aio import Delivery as AsyncDelivery
from forebay.store.disk.layout import JOURNAL
from forebay.store.index.destination_lane import DestinationLane
from forebay.store.metadata.metadata_store import MetadataFull
from forebay.testing import ManualClock

FILE_BYTES = 65_536
CAPACITY_BYTES = 8 * FILE_BYTES
BODY = b"body of a message " * 50
DEADLINE = 8


class IndexOnFullDisk(SimulatedMetadataStore):
    """Its commits need space of the disk that it shares with the journal."""

    def __init__(self, disk: SimulatedDisk, needed_bytes: int) -> None:
        super().__init__()
        self._disk = disk
        self.needed_bytes = needed_bytes
        self.refused = 0

    def commit(self, *args: Any, **fields: Any) -> None:
        if self._disk.free_bytes() < self.needed_bytes:
            self.refused += 1
            raise MetadataFull("no space")
        super().commit(*args, **fields)
        self.synced()


def reserve_files(disk: SimulatedDisk) -> list[str]:
    return [name for name in disk.list(JOURNAL) if name.startswith("reserve")]


def full_store(metadata: SimulatedMetadataStore | None = None, **fields: Any) -> tuple[OpenStore, list[bytes]]:
    """A store on a full disk, and the bodies that it took. Message n has its number in its body."""
    disk = SimulatedDisk(CAPACITY_BYTES)
    opened = OpenStore(disk, metadata or SimulatedMetadataStore(), max_file_bytes=FILE_BYTES, **fields)
    return opened, fill(opened)


def fill(opened: OpenStore, sent: list[bytes] | None = None) -> list[bytes]:
    sent = sent if sent is not None else []
    with pytest.raises(StoreFull):
        while True:
            body = b"%d " % len(sent) + BODY
            opened.add(body)
            sent.append(body)
    return sent


def simulated(opened: OpenStore) -> SimulatedDisk:
    assert isinstance(opened.disk, SimulatedDisk)
    return opened.disk


# The reserve.


def test_open_store_has_a_reserve_and_a_closed_one_none() -> None:
    opened = OpenStore(SimulatedDisk(), SimulatedMetadataStore(), max_file_bytes=FILE_BYTES)
    disk = simulated(opened)
    assert reserve_files(disk) == ["reserve-1", "reserve-2"]
    assert [len(disk.image()[f"{JOURNAL}/{name}"]) for name in reserve_files(disk)] == [FILE_BYTES, FILE_BYTES // 4]
    opened.store.close()
    assert reserve_files(disk) == []


def test_reserve_holds_the_record_that_opens_a_data_log_however_many_queues_there_are() -> None:
    opened = OpenStore(SimulatedDisk(CAPACITY_BYTES), SimulatedMetadataStore(), max_file_bytes=FILE_BYTES)
    for n in range(150):
        opened.lane(f"queue {n} with a name of some length " * 5)
    sent = fill(opened)
    assert simulated(opened).image()[f"{JOURNAL}/reserve-1"] == bytes(4 * opened.store.journal.fullness.first_bytes)
    while not opened.store.journal.fullness.is_disk_full:
        opened.remove(0)
    assert opened.store.journal.fullness.first_bytes > FILE_BYTES // 4, "it would not have fit into the smaller one"
    assert opened.bodies() == sent[1:]


def test_record_that_opens_a_data_log_and_is_larger_than_one_finds_space_in_the_reserve() -> None:
    opened = OpenStore(SimulatedDisk(), SimulatedMetadataStore(), max_file_bytes=FILE_BYTES)
    disk, journal = simulated(opened), opened.store.journal
    names = 0
    while journal.fullness.first_bytes <= FILE_BYTES:
        opened.lane(f"queue {names} with a name of some length " * 5)
        names += 1
    opened.add(BODY)
    disk.capacity_bytes -= disk.free_bytes() - FILE_BYTES
    sent = fill(opened, [BODY])
    assert journal.fullness.is_makeshift and reserve_files(disk) == ["reserve-2"]
    with pytest.raises(StoreFull):
        opened.add(BODY)
    opened.remove(0)
    assert opened.bodies() == sent[1:]
    opened.check()
    again = OpenStore(disk.crash_process(), SimulatedMetadataStore(), max_file_bytes=FILE_BYTES, clock=ManualClock(1))
    assert again.bodies() == sent[1:]
    disk.capacity_bytes += 1 << 30
    opened.add(b"at last")
    assert opened.bodies() == [*sent[1:], b"at last"] and not journal.fullness.is_disk_full


def test_reserve_that_was_closed_is_not_made_again() -> None:
    """Others may still send while the store is being closed, and begin a data log."""
    opened = OpenStore(SimulatedDisk(), SimulatedMetadataStore(), max_file_bytes=FILE_BYTES)
    journal = opened.store.journal
    journal.fullness.reserve.close()
    opened.add(BODY)
    journal.roll()
    assert reserve_files(simulated(opened)) == [] and not journal.fullness.is_disk_full


def test_send_is_refused_whole_with_its_numbers_and_what_to_do() -> None:
    opened, sent = full_store()
    disk = simulated(opened)
    end, image = opened.store.journal.end, disk.image()
    with pytest.raises(StoreFull, match="consume or clean up") as caught:
        opened.add(BODY)
    assert caught.value.needed_bytes == FILE_BYTES and caught.value.available_bytes == disk.free_bytes() < FILE_BYTES
    assert caught.value.limit == "the disk's free space"
    with pytest.raises(StoreFull):
        opened.add(*[BODY] * 10)
    assert opened.store.journal.end == end and disk.image() == image, "nothing was half written"
    assert opened.bodies() == sent


def test_acks_go_on_where_the_disk_is_full_and_sends_stay_refused() -> None:
    opened, sent = full_store()
    newest = opened.store.journal.data_log
    for sequence in range(0, len(sent), 2):
        opened.remove(sequence)
    assert opened.store.journal.data_log > newest and opened.store.journal.fullness.is_disk_full
    with pytest.raises(StoreFull):
        opened.add(b"x")
    with pytest.raises(StoreFull):
        opened.lane("another queue")
    assert opened.bodies() == sent[1::2]
    opened.check()


def test_reserve_takes_the_acks_of_a_whole_data_log_however_small_its_messages() -> None:
    opened = OpenStore(SimulatedDisk(CAPACITY_BYTES), SimulatedMetadataStore(), max_file_bytes=FILE_BYTES)
    with pytest.raises(StoreFull):
        while True:
            opened.add(b"")
    disk, lane = simulated(opened), opened.lane()
    first = opened.store.index.data_log_uses[data_logs(disk)[0]]
    while first.pending_messages:
        opened.remove(lane.pending_run(0, 1)[0])  # type: ignore[index]
    assert opened.store.cleanup.run().deleted == (1,)


def test_drops_go_on_where_even_the_reserve_is_full_of_acks() -> None:
    opened, sent = full_store()
    opened.remove(0, len(sent) - 1)
    with pytest.raises(StoreFull):
        while True:
            opened.remove(0)
    journal = opened.store.journal
    assert journal.fullness.is_disk_full and reserve_files(simulated(opened)) == ["reserve-2"]
    assert len(opened.store.cleanup.run().deleted) >= 5
    assert not journal.fullness.is_disk_full and reserve_files(simulated(opened)) == ["reserve-1", "reserve-2"]
    opened.add(b"at last")
    assert opened.bodies() == [b"at last"]


def test_traffic_goes_on_without_a_restart_when_cleanup_has_freed_space() -> None:
    opened, sent = full_store()
    for _ in range(5):
        half = len(sent) // 2
        opened.remove(opened.lane().next_sequence - len(sent), opened.lane().next_sequence - half - 1)
        assert opened.store.cleanup.run().deleted
        sent = fill(opened, sent[len(sent) - half :])
        assert opened.bodies() == sent and len(sent) > half + 50
        opened.check()


def test_traffic_goes_on_without_a_cleanup_when_others_have_freed_space() -> None:
    opened, sent = full_store()
    while not opened.store.journal.fullness.is_disk_full:
        opened.remove(0)
    simulated(opened).capacity_bytes += 2 * FILE_BYTES
    opened.add(b"at last")
    assert opened.bodies() == [*sent[1:], b"at last"] and not opened.store.journal.fullness.is_disk_full


def test_checkpoint_takes_space_of_the_reserve_so_that_cleanup_can_free_some() -> None:
    disk = SimulatedDisk(CAPACITY_BYTES)
    index = IndexOnFullDisk(disk, 1000)
    opened = OpenStore(disk, index, max_file_bytes=FILE_BYTES)
    sent = fill(opened)
    # Less than a data log was left, and others take that too.
    disk.capacity_bytes -= disk.free_bytes()
    opened.remove(0, len(sent) - 2)
    assert opened.store.cleanup.run().deleted and index.refused == 1
    assert reserve_files(disk) == ["reserve-1", "reserve-2"], "it is whole again at once"
    opened.add(b"at last")
    assert opened.bodies() == [sent[-1], b"at last"]


def test_checkpoint_that_finds_no_space_even_so_is_postponed() -> None:
    disk = SimulatedDisk()
    index = IndexOnFullDisk(disk, 1 << 50)
    index.needed_bytes = 0
    opened = OpenStore(disk, index, max_file_bytes=FILE_BYTES)
    opened.add(BODY)
    index.needed_bytes = 1 << 50
    assert (
        not opened.store.checkpointer.checkpoint() and index.refused == 2 and opened.store.journal.fullness.is_disk_full
    )
    opened.add(BODY)
    assert not opened.store.journal.fullness.is_disk_full, "the journal itself has space"
    assert opened.bodies() == [BODY] * 2


# Opening and closing on a full disk.


def test_what_lies_before_the_last_checkpoint_is_freed_though_no_other_can_be_written_since() -> None:
    disk = SimulatedDisk()
    index = IndexOnFullDisk(disk, 0)
    opened = OpenStore(disk, index, max_file_bytes=FILE_BYTES)
    while opened.store.journal.data_log < 4:
        opened.add(BODY)
    opened.remove(0, opened.lane().next_sequence - 1)
    opened.store.close()
    index.needed_bytes = 1 << 50
    again = OpenStore(disk, index, max_file_bytes=FILE_BYTES, clock=ManualClock(1))
    assert again.store.cleanup.run().deleted == (1, 2, 3)


@pytest.mark.parametrize("is_closed", [False, True])
def test_full_disk_opens_and_consumers_make_room(is_closed: bool) -> None:
    opened, sent = full_store()
    opened.remove(0)
    disk = simulated(opened)
    if is_closed:
        opened.store.close()
    else:
        disk = disk.crash_process()
    disk.capacity_bytes -= disk.free_bytes()
    again = OpenStore(disk, SimulatedMetadataStore(), max_file_bytes=FILE_BYTES, clock=ManualClock(1))
    assert again.bodies() == sent[1:] and again.store.journal.fullness.refuses_messages
    with pytest.raises(StoreFull):
        again.add(b"x")
    again.remove(1, len(sent) - 1)
    assert again.store.cleanup.run().deleted and not again.store.journal.fullness.refuses_messages
    again.add(b"at last")
    assert again.bodies() == [b"at last"]
    again.store.close()


def test_full_disk_is_closed_cleanly() -> None:
    opened, sent = full_store()
    opened.remove(0)
    disk = simulated(opened)
    disk.capacity_bytes -= disk.free_bytes()
    opened.store.close()
    disk.capacity_bytes = CAPACITY_BYTES
    again = OpenStore(disk, SimulatedMetadataStore(), max_file_bytes=FILE_BYTES, clock=ManualClock(1))
    assert again.bodies() == sent[1:] and again.report.truncated_bytes == 0


@pytest.mark.parametrize("cut", [PowerCut.SYNCED, PowerCut.ANY, PowerCut.STALE, None])
def test_crash_while_full_loses_nothing_confirmed_and_brings_nothing_back(cut: PowerCut | None) -> None:
    """At every call that changes the disk, from a full one over acks and a cleanup to sends that go through again."""
    metadata = SimulatedMetadataStore()
    opened, sent = full_store(metadata)
    opened.store.syncer.sync()
    disk, random = simulated(opened), Random(3)
    gone: set[bytes] = set()
    going: set[bytes] = set()
    states, was_full = 0, False

    def crash(call: str, name: str) -> None:
        nonlocal states
        states += 1
        if states % 7:
            return
        image = disk.crash_power(random, cut) if cut is not None else disk.crash_process()
        again = OpenStore(image, SimulatedMetadataStore(), max_file_bytes=FILE_BYTES, clock=ManualClock(states))
        found = again.bodies()
        assert set(found) <= set(sent) - gone and len(set(found)) == len(found)
        assert set(sent) - gone - going <= set(found), f"call {states}, {call} {name}"
        again.check()

    disk.on_call = crash
    for step in range(60):
        was_full |= opened.store.journal.fullness.is_disk_full
        if step % 20 == 19:
            opened.store.cleanup.run()
            continue
        first = 6 * step
        going.update(sent[first : first + 6])
        opened.remove(first, first + 5)
        for _ in range(30):
            opened.remove(first)
        opened.store.syncer.sync()
        gone |= going
        going.clear()
    for n in range(3):
        sent.append(b"again %d" % n)
        going.add(sent[-1])
        opened.add(sent[-1])
        opened.store.syncer.sync()
        going.clear()
    assert states > 500 and was_full and not opened.store.journal.fullness.refuses_messages


# Calls that fail.


class Life:
    """A short life of a store on a disk that may fail, with the calls that were confirmed."""

    def __init__(self) -> None:
        self.sent: dict[int, bytes] = {}
        self.open_sends: set[bytes] = set()
        self.gone: set[bytes] = set()
        self.open_acks: set[bytes] = set()

    def run(self, disk: SimulatedDisk) -> None:
        opened = OpenStore(disk, SimulatedMetadataStore(), max_file_bytes=FILE_BYTES)
        lane = opened.lane()
        for step in range(12):
            self._send(opened, lane, [b"%d %d " % (step, n) + BODY * 4 for n in range(7)])
            if step % 3 == 1:
                self._acknowledge(opened, lane)
        opened.store.close()

    def _send(self, opened: OpenStore, lane: DestinationLane, bodies: list[bytes]) -> None:
        self.open_sends = set(bodies)
        try:
            first = opened.add(*bodies, lane=lane)
            opened.store.syncer.sync()
            self.sent.update(enumerate(bodies, first))
        except StoreFull:
            pass
        self.open_sends = set()

    def _acknowledge(self, opened: OpenStore, lane: DestinationLane) -> None:
        run = lane.pending_run(0, 5)
        if run is None:
            return
        self.open_acks = {self.sent[sequence] for sequence in range(run[0], run[1] + 1)}
        try:
            opened.remove(*run, lane=lane)
            opened.store.syncer.sync()
            self.gone |= self.open_acks
        except StoreFull:
            pass
        self.open_acks = set()
        with suppress(StoreFull):
            opened.store.cleanup.run()

    def check(self, found: set[bytes]) -> None:
        confirmed = set(self.sent.values())
        assert confirmed - self.gone - self.open_acks <= found, "lost"
        assert not self.gone & found, "came back"
        assert found <= confirmed | self.open_sends, "was refused and is there"


@pytest.mark.parametrize("is_sticky", [False, True])
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT, errno.EIO], ids=errno.errorcode.get)
def test_any_call_may_fail_and_nothing_confirmed_is_lost(error: int, is_sticky: bool) -> None:
    """Only StoreFull and StoreFailed are raised, and the next open finds what was confirmed and nothing refused."""
    for nth in range(1, 1000):
        disk = SimulatedDisk()
        disk.fail(None, nth, error, sticky=is_sticky, written_bytes=30)
        life = Life()
        with suppress(StoreFull, StoreFailed):
            life.run(disk)
        calls = sum(disk.calls.values())
        disk.cure()
        image = disk.crash_power(Random(nth), PowerCut.SYNCED) if nth % 2 else disk.crash_process()
        again = OpenStore(image, SimulatedMetadataStore(), max_file_bytes=FILE_BYTES, clock=ManualClock(nth))
        life.check({body for body in again.bodies() if body is not None})
        if calls < nth:
            assert len(life.sent) == 84 and len(life.gone) == 20
            break
    assert 100 < nth < 999


# The limit of the store.


def test_send_above_the_limit_is_refused_at_once_and_acks_go_on() -> None:
    limit = 3 * FILE_BYTES + 1000
    opened = OpenStore(SimulatedDisk(), SimulatedMetadataStore(), max_file_bytes=FILE_BYTES, store_limit=limit)
    sent = fill(opened)
    journal = opened.store.journal
    assert limit - len(BODY) - 200 < journal.journal_bytes <= limit and not journal.fullness.is_disk_full
    with pytest.raises(StoreFull) as caught:
        opened.add(BODY)
    assert caught.value.limit == "store_limit" and caught.value.available_bytes == limit - journal.journal_bytes
    for sequence in range(len(sent) - 1):
        opened.remove(sequence)
    assert journal.journal_bytes > limit
    with pytest.raises(StoreFull) as caught:
        opened.add(b"")
    assert caught.value.available_bytes == 0
    assert opened.store.cleanup.run().deleted
    opened.add(b"at last")
    assert opened.bodies() == [sent[-1], b"at last"]
    opened.store.close()


def test_store_at_its_limit_is_full_until_a_cleanup_has_made_room() -> None:
    limit = 3 * FILE_BYTES + 1000
    opened = OpenStore(SimulatedDisk(), SimulatedMetadataStore(), max_file_bytes=FILE_BYTES, store_limit=limit)
    sent = fill(opened)
    with pytest.raises(StoreFull):
        opened.add(BODY)
    fullness = opened.store.journal.fullness
    assert fullness.refuses_messages and not fullness.is_out_of_space
    assert not opened.store.cleanup.run().deleted
    assert fullness.refuses_messages, "the cleanup has deleted nothing, so the next send would be refused too"
    for sequence in range(len(sent)):
        opened.remove(sequence)
    assert opened.store.cleanup.run().deleted
    assert not fullness.refuses_messages
    opened.add(BODY)
    opened.store.close()


def test_record_above_the_whole_limit_says_nothing_of_the_room_that_is_left() -> None:
    limit = 3 * FILE_BYTES
    opened = OpenStore(SimulatedDisk(), SimulatedMetadataStore(), max_file_bytes=FILE_BYTES, store_limit=limit)
    opened.add(b"1")
    with pytest.raises(StoreFull):
        opened.add(bytes(limit))
    assert not opened.store.journal.fullness.refuses_messages
    opened.add(b"2")
    opened.store.close()


def test_copy_that_a_relocation_finds_no_room_for_is_no_refused_send() -> None:
    limit = 3 * FILE_BYTES
    opened = OpenStore(SimulatedDisk(), SimulatedMetadataStore(), max_file_bytes=FILE_BYTES, store_limit=limit)
    opened.add(b"1")
    with opened.lock, pytest.raises(StoreFull):
        opened.store.journal.keep_together(limit - 1, 1)
    assert not opened.store.journal.fullness.refuses_messages
    opened.store.close()


def test_limit_is_kept_by_the_byte() -> None:
    opened = OpenStore(SimulatedDisk(), SimulatedMetadataStore(), max_file_bytes=1 << 20, store_limit=100_000)
    opened.lane()
    left = 100_000 - opened.store.journal.journal_bytes - 64
    with pytest.raises(StoreFull):
        opened.add(bytes(left + 1))
    opened.add(bytes(left))
    assert opened.store.journal.journal_bytes == 100_000
    with pytest.raises(StoreFull):
        opened.add(b"")


def test_share_is_of_what_the_disk_has_for_the_journal() -> None:
    disk = SimulatedDisk(20 * FILE_BYTES)
    opened = OpenStore(disk, SimulatedMetadataStore(), max_file_bytes=FILE_BYTES, store_limit=0.5)
    sent = fill(opened)
    assert 8 * FILE_BYTES < opened.store.journal.journal_bytes <= 10 * FILE_BYTES
    opened.store.close()
    again = OpenStore(disk, SimulatedMetadataStore(), max_file_bytes=FILE_BYTES, store_limit=0.5, clock=ManualClock(1))
    assert len(sent) - 5 < len(again.bodies()) and len(fill(again)) < 100


# Through the public interface.


@pytest.mark.parametrize("is_batch", [False, True])
def test_every_message_can_be_acknowledged_on_a_full_disk_however_many_acks_that_takes(is_batch: bool) -> None:
    """When even the reserve is full, an ack deletes data logs that earlier acks have freed."""
    bay = SimulatedBay(max_file_length="64KiB", memory_limit="16MiB")
    bay.disk.capacity_bytes = 16 * FILE_BYTES
    queue, other = bay.queue(), bay.queue("other")
    sent = 0
    with pytest.raises(StoreFull):
        while True:
            (queue, other)[sent % 2].send(b"x" * 150)
            sent += 1
    bay.disk.capacity_bytes -= bay.disk.free_bytes()
    consumers = [queue.subscribe(prefetch=sent), other.subscribe(prefetch=sent)]
    for _ in range(sent):
        for consumer in consumers:
            taken = consumer.take(7)
            if is_batch:
                consumer.ack(taken[::2])
                consumer.ack(taken[1::2])
            for delivery in () if is_batch else taken:
                delivery.ack()
    assert sent > 2000 and queue.depth == other.depth == 0
    assert bay.bay.cleanup().deleted
    queue.send(b"again")
    bay.check()
    bay.reopen()
    assert bay.queue().depth == 1


@pytest.mark.parametrize("store_limit", [None, "1MiB"])
@pytest.mark.parametrize("messages", [1, 10])
def test_messages_that_no_subscription_receives_leave_a_full_store_to_acks(
    messages: int, store_limit: str | None
) -> None:
    bay = SimulatedBay(max_file_length="64KiB", memory_limit="16MiB", store_limit=store_limit)
    queue, topic = bay.queue(), bay.bay.topic("prices")
    topic.send(b"while there is room")
    if store_limit is None:
        bay.disk.capacity_bytes = 8 * FILE_BYTES
    with pytest.raises(StoreFull):
        while True:
            queue.send(b"x" * 150)
    discarded = 0
    with pytest.raises(StoreFull):
        while discarded < 10 * messages:
            topic.send_many([Message(b"for nobody")] * messages)
            discarded += messages
    assert reserve_files(bay.disk) == ["reserve-1", "reserve-2"]
    with queue.subscribe(prefetch=0) as consumer:
        held = take_all(consumer)
        for delivery in held[::2]:
            delivery.ack()
        consumer.ack(held[1::2])
    assert queue.depth == 0
    bay.bay.cleanup()
    assert topic.send(b"there is room again")
    bay.check()


def full_of_small_messages(make: Callable[..., SimulatedBay] = SimulatedBay) -> tuple[SimulatedBay, Queue]:
    """Not one byte is left for them."""
    bay = make(max_file_length="64KiB", memory_limit="16MiB")
    bay.disk.capacity_bytes = 8 * FILE_BYTES
    queue = bay.queue()
    with pytest.raises(StoreFull):
        while True:
            queue.send(b"x" * 150)
    bay.disk.capacity_bytes -= bay.disk.free_bytes()
    return bay, queue


def test_ack_is_refused_where_nothing_can_be_freed_and_can_be_repeated() -> None:
    bay, queue = full_of_small_messages()
    consumer = queue.subscribe(prefetch=100_000)
    stuck = {}
    with pytest.raises(StoreFull):
        while taken := consumer.take(100):
            for delivery in taken:
                # One message in each hundred stays, so no data log becomes free.
                if delivery.sequence % 100:
                    stuck[0] = delivery
                    delivery.ack()
    depth = queue.depth
    bay.disk.capacity_bytes += 10 * FILE_BYTES
    stuck[0].ack()
    assert queue.depth == depth - 1
    bay.check()


def go_back_while_room_is_made(bay: SimulatedBay, go_back: Callable[[], None]) -> list[bool]:
    """Call `go_back` once, as an ack deletes a data log to make room; the result is filled then."""
    went: list[bool] = []

    def called(call: str, name: str) -> None:
        if call == "remove" and not went and not bay.lock.is_owned():
            went.append(True)
            go_back()

    bay.disk.on_call = called
    return went


def until_late(bay: SimulatedBay, queue: Queue) -> None:
    """Let the deadline of every delivery of the queue pass, as takes find out."""
    with queue.subscribe(prefetch=1) as watcher:
        for _ in range(5 * DEADLINE):
            bay.clock.advance(0.25)
            for delivery in watcher.take():
                delivery.release()


@pytest.mark.parametrize("way", ["one", "batch", "up to"])
@pytest.mark.parametrize("reason", ["deadline", "close", "delete"])
def test_ack_says_that_its_delivery_went_back_while_it_made_room(way: str, reason: str) -> None:
    bay, queue = full_of_small_messages()
    consumer = queue.subscribe(prefetch=100_000, ack_deadline_seconds=DEADLINE)

    def delete() -> None:
        bay.disk.capacity_bytes += FILE_BYTES  # for the record of it
        queue.delete()

    leave = {"deadline": lambda: until_late(bay, queue), "close": consumer.close, "delete": delete}
    went = go_back_while_room_is_made(bay, leave[reason])
    with pytest.raises(AckTooLate if reason == "deadline" else StateError) as caught:
        while True:
            taken = consumer.take(6)
            # No two of a run, so that the first ones may be settled when a later one finds no space.
            for deliveries in [taken[::2], taken[1::2]] if way == "batch" else [[delivery] for delivery in taken]:
                depth = queue.depth
                if way == "up to":
                    consumer.ack_up_to(deliveries[0])
                else:
                    consumer.ack(deliveries)
                assert not went, "it returned although a delivery came back"
    assert went and not isinstance(caught.value, StoreFull)
    if reason != "delete":
        consumer.close()
        again = {delivery.sequence for delivery in take_all(queue.subscribe(prefetch=0))}
        came_back = [delivery for delivery in deliveries if delivery.sequence in again]
        assert len(came_back) == len(deliveries) - (depth - queue.depth) > 0
    bay.check()


@pytest.mark.parametrize("settle", [AsyncConsumer.ack, AsyncConsumer.ack_up_to])
def test_ack_in_a_loop_says_that_its_delivery_went_back_while_it_made_room(
    settle: Callable[[AsyncConsumer, AsyncDelivery], Awaitable[None]],
) -> None:
    async def main() -> None:
        bay, queue = full_of_small_messages(LoopBay)
        assert isinstance(bay, LoopBay)
        same = await bay.aio.queue(queue.name)
        consumer = await same.subscribe(prefetch=100_000, ack_deadline_seconds=DEADLINE)
        went = go_back_while_room_is_made(bay, lambda: until_late(bay, queue))
        with pytest.raises(AckTooLate):
            while not went:
                [delivery] = await consumer.take()
                await settle(consumer, delivery)
        assert went
        bay.check()

    run_jumping(main())


@pytest.mark.parametrize("settle", [Consumer.ack, Consumer.reject])
def test_batch_that_is_refused_half_way_gives_credit_for_what_it_settled(settle: Callable[..., None]) -> None:
    policies = {">": DestinationPolicy(dead_letter_queue=None)}
    bay, queue = full_of_small_messages(partial(SimulatedBay, policies=policies))
    calls: list[int] = []
    consumer = queue.subscribe(prefetch=100, on_ready=lambda: calls.append(0))
    depth = 0
    with pytest.raises(StoreFull):
        while True:
            taken = []
            while more := consumer.take(100):
                taken += more
            # No two of a run, and one in each hundred stays, so no data log becomes free.
            taken.sort(key=lambda delivery: delivery.sequence % 2)
            calls.clear()
            depth = queue.depth
            settle(consumer, [delivery for delivery in taken if delivery.sequence % 100])
    assert 0 < depth - queue.depth < 90, "it was refused half-way"
    assert calls == [0]
    assert consumer.take()
    bay.check()


def test_send_many_says_how_many_are_in() -> None:
    bay = SimulatedBay(max_file_length="64KiB", store_limit="1MiB")
    queue = bay.queue()
    with pytest.raises(StoreFull) as caught:
        queue.send_many(Message(BODY) for _ in range(5000))
    assert queue.depth == caught.value.stored > 900
    with queue.subscribe(prefetch=5000) as consumer:
        while deliveries := consumer.take(100):
            consumer.ack(deliveries)
    data_logs = bay.bay.statistics().store.data_logs
    for _ in range(2):
        bay.clock.advance(2.0)
        bay.bay.step()
    assert bay.bay.statistics().store.data_logs < data_logs, "a store that refuses is cleaned up before its time"
    assert len(queue.send_many(Message(BODY) for _ in range(500))) == 500
    bay.check()


def test_limit_is_a_size_or_a_share() -> None:
    assert forebay.Settings(store_limit="64MiB").store_limit_bytes == 64 << 20
    assert forebay.Settings(store_limit="80%").store_limit_share == 0.8
    settings = forebay.Settings()
    assert settings.store_limit_bytes is None and settings.store_limit_share is None
