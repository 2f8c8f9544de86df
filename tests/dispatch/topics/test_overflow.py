"""What several subscriptions of a topic have no room for waits once, is charged once and is written once."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from delivering import number_of, numbered_body
from sampling import sampled
from simulated_bay import SimulatedBay

from forebay import Consumer, Delivery, DestinationPolicy, StoreFull, Topic
from forebay.cache.accounting.charge import charge_of
from forebay.cache.spill.spill_account import AHEAD_BYTES, OWNER_AHEAD_BYTES
from forebay.store.tmp.non_persistent_lane import BLOCK_CHARGE_BYTES
from forebay.store.tmp.spilled_message import SpilledMessage
from forebay.store.tmp.storage import TmpStorage

KIB = 1024


class Writes:
    """What is spilled from now on: of each write the owners, and the sequences."""

    def __init__(self, bay: SimulatedBay, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[tuple[tuple[int, ...], list[int]]] = []
        # Messages written by the send that brought them, while some had not got them yet.
        self.early = 0
        spill = TmpStorage.spill

        def watched(
            storage: TmpStorage,
            owners: Sequence[int],
            messages: Sequence[SpilledMessage],
            held: Sequence[int] | None = None,
        ) -> None:
            spill(storage, owners, messages, held)
            self.made.append((tuple(owners), [message[0] for message in messages]))
            [fan_out] = bay.topic_state("prices").fan_outs.values()
            self.early += messages[-1][0] == fan_out.next_sequence - 1

        monkeypatch.setattr(TmpStorage, "spill", watched)


def send(topic: Topic, numbers: range, size: int = KIB, **fields: Any) -> None:
    for n in numbers:
        topic.send(numbered_body(n, size), persistent=False, **fields)


def all_of(consumer: Consumer) -> list[int]:
    found: list[int] = []
    while taken := consumer.take(100):
        found += map(number_of, taken)
        consumer.ack(taken)
    return found


def holder(bay: SimulatedBay, name: str) -> int:
    return bay.budget.holders[name].held_bytes


# Once.


def test_fifty_slow_subscribers_cost_little_more_disk_and_memory_than_one(monkeypatch: pytest.MonkeyPatch) -> None:
    bay = SimulatedBay(memory_limit="8MiB")
    topic = bay.bay.topic("prices")
    consumers = [topic.subscribe(prefetch=0) for _ in range(50)]
    writes = Writes(bay, monkeypatch)
    send(topic, range(1_000))
    bay.check()
    one_copy = 1_000 * KIB
    assert bay.bay.statistics().tmp_storage.bytes < 4 * one_copy
    assert len(writes.made) < 200 and not writes.early
    ahead_bytes = AHEAD_BYTES + 49 * OWNER_AHEAD_BYTES
    assert holder(bay, "tmp_storage") < 50 * 2 * BLOCK_CHARGE_BYTES + ahead_bytes + 200_000
    for consumer in consumers:
        assert all_of(consumer) == list(range(1_000))
    bay.check()
    assert bay.bay.statistics().tmp_storage.bytes == 0


def test_what_waits_is_charged_once_and_goes_with_the_last_who_needs_it() -> None:
    bay = SimulatedBay(memory_limit="16MiB")
    topic = bay.bay.topic("prices")
    consumers = [topic.subscribe(prefetch=0) for _ in range(40)]
    buffer = bay.overflow.buffer
    while len(buffer) < 20:
        send(topic, range(1), 4 * KIB)
    assert holder(bay, "spill_buffer") == len(buffer) * charge_of((0, b"", numbered_body(0, 4 * KIB), 0))
    [pool] = filter(buffer.is_pool, buffer.keys)
    assert max(len(buffer.lanes_needing(pool, [message])) for message in buffer.batch(pool)) > 20
    for consumer in consumers:
        consumer.close()
        bay.check()
    assert holder(bay, "spill_buffer") == 0 == len(buffer)


def test_subscribers_who_want_different_messages_share_a_write(monkeypatch: pytest.MonkeyPatch) -> None:
    bay = SimulatedBay(memory_limit="4MiB")
    topic = bay.bay.topic("prices")
    consumers = {n: topic.subscribe(selector=f"a <> {n}", prefetch=0) for n in range(8)}
    writes = Writes(bay, monkeypatch)
    for n in range(4_000):
        send(topic, range(n, n + 1), headers={"a": n % 8})
    bay.check()
    assert sum(len(sequences) for _, sequences in writes.made) < 1.5 * 4_000
    assert len(writes.made) < 200 and not writes.early
    for left_out, consumer in consumers.items():
        assert all_of(consumer) == [n for n in range(4_000) if n % 8 != left_out]
    bay.check()
    assert bay.bay.statistics().tmp_storage.bytes == 0


def test_a_run_of_any_length_is_acknowledged_at_the_cost_of_what_is_there() -> None:
    bay = SimulatedBay(memory_limit="8MiB")
    topic = bay.bay.topic("prices")
    for _ in range(2):
        topic.subscribe(prefetch=0)
    while len(bay.overflow.buffer) < 20:
        send(topic, range(1), 4 * KIB)
    lane, other = bay.overflow.lanes.values()
    waiting = len(bay.overflow.buffer)
    with bay.lock:
        assert bay.overflow.acknowledge(lane, 0, 10**12) == lane.next_sequence and not lane.pending_messages
    assert not bay.overflow.buffer.has(lane.number)
    assert len(bay.overflow.buffer) == waiting and bay.overflow.buffer.has(other.number), "what another one needs stays"
    bay.overflow._check()


# Where memory or tmp-storage ends.


def test_each_gets_all_where_neither_memory_nor_tmp_storage_has_room() -> None:
    bay = SimulatedBay(memory_limit="4MiB", temp_limit="1MiB")
    topic = bay.bay.topic("prices")
    consumers = [topic.subscribe(prefetch=0) for _ in range(10)]
    sent = 0
    with pytest.raises(StoreFull):
        while True:
            send(topic, range(sent, sent + 1))
            sent += 1
    bay.check()
    for consumer in reversed(consumers):
        assert all_of(consumer) == list(range(sent))
        bay.check()


def test_what_is_just_arriving_is_written_only_where_nothing_else_gives_memory() -> None:
    bay = SimulatedBay(memory_limit="4MiB")
    topic = bay.bay.topic("prices")
    for _ in range(2):
        topic.subscribe(prefetch=0)
    send(topic, range(2), 10)
    overflow = bay.overflow
    one, other = overflow.lanes.values()
    large = (one.add(KIB), b"", bytes(KIB), 0)
    with bay.lock:
        overflow.buffer.arriving = (one.pool_number, large[0])
        overflow.take_in(one, large)
        bay.reclaim.make_room(10 * KIB, None)
        assert not one.is_spilled(large[0]), "there is room"
        bay.reclaim.make_room(bay.budget.limit_bytes, None)
        assert one.is_spilled(large[0]) and not overflow.buffer
        other.add(KIB)
        overflow.take_in(other, large)
    bay.check()


# Against a model.


class Subscriber:
    """A consumer, what it should have and does not hold, in order, and what it holds."""

    def __init__(self, bay: SimulatedBay, modulus: int) -> None:
        self.bay = bay
        self.modulus = modulus
        selector = f"part = {modulus - 1}" if modulus else None
        self.consumer = bay.bay.topic("prices").subscribe(selector=selector, prefetch=0)
        self.waiting: list[int] = []
        self.held: list[Delivery] = []

    def wants(self, n: int) -> bool:
        return not self.modulus or n % 3 == self.modulus - 1

    def take(self, most: int) -> None:
        taken = self.consumer.take(most)
        found = [number_of(delivery) for delivery in taken]
        assert found == self.waiting[: len(found)]
        # Where memory is full of what is in flight, a consumer that holds something gets no more until it settles it.
        is_short = bool(self.held) and self.bay.dispatch_area.is_short
        assert bool(found) == bool(self.waiting) or is_short
        del self.waiting[: len(found)]
        self.held += taken

    def settle(self, random: Random) -> None:
        random.shuffle(self.held)
        while len(self.held) > random.choice((0, 5)):
            delivery = self.held.pop()
            if random.random() < 0.1:
                self.waiting = sorted([*self.waiting, number_of(delivery)])
                self.consumer.nack(delivery)
            else:
                self.consumer.ack(delivery)


@pytest.mark.parametrize("seed", sampled([15, 17, *range(10)], 6))  # in the first two a load spills for want of memory
def test_any_traffic_gives_each_of_many_subscribers_what_it_should_have(seed: int) -> None:
    """Subscribers that come and go, quick ones, slow ones, picky ones; a limit that moves; tmp-storage that fills."""
    print(f"seed {seed}")
    random = Random(seed)
    policies = {"prices": DestinationPolicy(max_attempts=None)}
    temp_limit = ("2GiB", "2MiB")[seed % 2]
    bay = SimulatedBay(memory_limit="4MiB", temp_limit=temp_limit, policies=policies)
    topic = bay.bay.topic("prices")
    live = [Subscriber(bay, 0) for _ in range(4)]
    sent = refused = 0
    for _ in range(250):
        what = random.random()
        if what < 0.05 and len(live) < 9:
            modulus = random.choice((0, 0, 1, 2, 3))
            try:
                live.append(Subscriber(bay, modulus))
            except StoreFull:  # the limit was lowered, and what is in flight does not fit it yet
                assert bay.budget.free_bytes < 0
        elif what < 0.08 and live:
            live.pop(random.randrange(len(live))).consumer.close()
        elif what < 0.1:
            bay.bay.resize(random.choice(("4MiB", "4MiB", "6MiB")))
        elif what < 0.15:
            bay.bay.step()
        elif what < 0.65:
            size = random.choice((10, KIB, KIB, 8 * KIB, 200 * KIB))
            for n in range(sent, sent + random.choice((1, 60))):
                sent += 1
                try:
                    topic.send(numbered_body(n, size), headers={"part": n % 3}, persistent=False)
                except StoreFull as full:
                    refused += full.limit == "temp_limit"
                    continue
                for subscriber in live:
                    if subscriber.wants(n):
                        subscriber.waiting.append(n)
        elif live:
            subscriber = live[min(random.randrange(9), len(live) - 1)]  # the last one is the quickest
            subscriber.take(random.choice((1, 7, 150)))
            subscriber.settle(random)
        bay.check()
    assert bool(refused) == bool(seed % 2)
    for subscriber in live:
        while subscriber.waiting or subscriber.held:
            subscriber.take(100)
            subscriber.settle(random)
        subscriber.consumer.close()
    bay.check()
    assert bay.overflow.lanes == {} and bay.bay.statistics().tmp_storage.bytes == 0
    assert not bay.overflow.buffer


# Many lanes.


def test_making_room_writes_no_more_of_what_waits_than_it_must() -> None:
    bay = SimulatedBay(memory_limit="8MiB")
    for queue in [bay.queue(f"q{number}") for number in range(30)]:
        for _ in range(3):
            queue.send(bytes(4 * KIB), persistent=False)
    lanes = [bay.queue_state(f"q{number}").non_persistent_lanes[4] for number in range(30)]
    for lane in filter(None, lanes):
        messages = [
            bay.memories.common.head_queue_cache.take(lane.pending_lane.number, sequence) for sequence in range(3)
        ]
        lane.pager.page_out([message for message in messages if message is not None])
    buffer = bay.overflow.buffer
    assert len(buffer) == 90
    bay.reclaim.make_room(bay.budget.free_bytes + 20 * KIB, None)
    assert 81 <= len(buffer) < 90
    bay.check()
