"""Relocation of what topics and transactions sent: it moves like all else, and no power cut changes who needs it."""

from __future__ import annotations

from operator import itemgetter

import pytest
from crashing import CrashExplorer, Left
from inside import inside
from journals import rows_of
from relocating import steps
from sampling import sampled
from simulated_bay import SimulatedBay
from simulated_disk import PowerCut, SimulatedDisk
from simulated_metadata import SimulatedMetadataStore
from staged_stores import fill, roll, send, settle, small_bay

from forebay import Consumer, Delivery, Forebay, Message
from forebay.store.disk.layout import data_log_name
from forebay.store.index.journaled_lane import JournaledLane
from forebay.store.index.topic_lane import TopicLane

Found = dict[str, set[bytes]]
"""Queue or subscription -> bodies that are pending for it."""


def name_survivors(bay: SimulatedBay, data_log: int) -> None:
    """What relocation does for the acks into a data log that stays."""
    assert all(steps(bay.relocation, bay.lock, data_log, is_naming=True, freed_bytes=1 << 30))


def pending_in(bay: Forebay) -> Found:
    """Read from the journal, without a consumer."""
    store = inside(bay).store
    names = {number: destination.name for number, destination in store.destination_table.items()}
    lanes: list[tuple[str, JournaledLane]] = [
        (names[lane.owner_number], lane) for lane in store.index.lanes.values() if not isinstance(lane, TopicLane)
    ]
    for subscriber in store.subscriptions.readers():
        name = f"{names[subscriber.facts.topic]}/{subscriber.facts.name}"
        lanes += [(name, lane) for lane in subscriber.lanes if lane is not None]
    found: Found = {}
    for name, lane in lanes:
        bodies = found.setdefault(name, set())
        at = 0
        while (run := lane.pending_run(at, 1 << 30)) is not None:
            messages, unreadable = store.message_store.read(store.message_store.plan(lane, [run]))
            assert not unreadable
            for _, _, body, _ in messages:
                assert body is not None and body not in bodies
                bodies.add(body)
            at = run[1] + 1
    return {name: bodies for name, bodies in found.items() if bodies}


def test_stuck_messages_of_transactions_free_their_data_logs() -> None:
    bay = small_bay()
    for n in range(12):
        with bay.bay.transaction() as transaction:
            bay.queue("stuck").send(b"%d" % n, transaction=transaction)
        fill(bay)
    before = pending_in(bay.bay)
    report = bay.bay.cleanup()
    assert report.relocated_messages >= 12 and len(report.remaining) <= 3
    assert pending_in(bay.bay) == before == {"stuck": {b"%d" % n for n in range(12)}}
    bay.check()
    bay.crash(is_index_lost=True)
    assert pending_in(bay.bay) == before
    consumer = bay.queue("stuck").subscribe()
    assert [delivery.body for delivery in consumer.take(20)] == [b"%d" % n for n in range(12)]
    bay.check()


def test_stuck_messages_of_a_topic_free_their_data_logs_and_stay_with_who_needs_them() -> None:
    bay = small_bay()
    prices = bay.bay.topic("prices")
    prices.subscribe(durable="audit").close()
    prices.subscribe(durable="late").close()
    with prices.subscribe(durable="prompt") as prompt:
        for n in range(12):
            prices.send(b"%d" % n)
            prompt.ack(prompt.take(1))
            fill(bay)
    with prices.subscribe(durable="late") as late:
        late.ack(late.take(100)[::2])
    bay.bay.checkpoint()
    before = pending_in(bay.bay)
    report = bay.bay.cleanup()
    assert report.relocated_messages >= 12 and len(report.remaining) <= 3
    everything = {b"%d" % n for n in range(12)}
    assert (
        pending_in(bay.bay)
        == before
        == {"prices/audit": everything, "prices/late": {b"%d" % n for n in range(1, 12, 2)}}
    )
    bay.check()
    bay.crash(is_index_lost=True)
    assert pending_in(bay.bay) == before, "the acks of prompt and late are deleted, and still hold"
    bay.check()
    with prices_of(bay).subscribe(durable="audit") as audit:
        assert [delivery.body for delivery in audit.take(20)] == [b"%d" % n for n in range(12)]


def prices_of(bay: SimulatedBay):  # type: ignore[no-untyped-def]
    return bay.bay.topic("prices")


def test_subscription_that_began_later_does_not_get_what_was_moved() -> None:
    bay = small_bay()
    prices = bay.bay.topic("prices")
    prices.subscribe(durable="audit").close()
    for n in range(8):
        prices.send(b"%d" % n)
        fill(bay)
    prices.subscribe(durable="new").close()
    assert bay.bay.cleanup().relocated_messages >= 8
    bay.crash(is_index_lost=True)
    assert pending_in(bay.bay) == {"prices/audit": {b"%d" % n for n in range(8)}}


def test_what_a_subscription_that_ended_alone_needed_goes_with_it_after_a_move() -> None:
    bay = small_bay()
    prices = bay.bay.topic("prices")
    prices.subscribe(durable="audit").close()
    for n in range(8):
        prices.send(b"%d" % n * 100)
        fill(bay)
    assert bay.bay.cleanup().relocated_messages >= 8
    prices.unsubscribe("audit")
    bay.crash(is_index_lost=True)
    assert pending_in(bay.bay) == {}
    bay.bay.checkpoint()
    bay.bay.cleanup()
    assert bay.store.disk_use.statistics().live_bytes == 0


def test_needs_record_names_who_needs_what() -> None:
    bay = small_bay()
    prices = bay.bay.topic("prices")
    for name in ("audit", "late"):
        prices.subscribe(durable=name).close()
    prices.send_many(Message(b"%d" % n) for n in range(6))
    with prices.subscribe(durable="late") as late:
        late.ack(late.take(3))
    fill(bay)
    for n in range(8):
        send(bay, "stuck", b"%d" % n)
        fill(bay)
    bay.bay.cleanup()
    (row, *_) = rows_of(bay.disk, kind="needs")
    assert row["needs_of"] == [{"destination": "prices", "priority": 4, "range": [0, 5]}]
    assert sorted(row["needs"], key=itemgetter("subscription")) == [
        {"destination": "prices", "subscription": "audit", "priority": 4, "range": [0, 5]},
        {"destination": "prices", "subscription": "late", "priority": 4, "range": [3, 5]},
    ]


def test_needs_record_and_its_copy_lie_in_one_data_log() -> None:
    """Wherever the data log that they are written to ends."""
    for left_bytes in range(20, 400, 12):
        bay = small_bay()
        prices = bay.bay.topic("prices")
        prices.subscribe(durable="audit").close()
        prices.send(b"x")
        roll(bay)
        journal = bay.journal
        data_log = journal.data_log
        bay.queue("filler").send(bytes(journal.fullness.capacity - journal.offset - left_bytes - 65))
        assert journal.data_log == data_log
        assert all(steps(bay.relocation, bay.lock, 1, is_naming=False))
        homes = [row["data_log"] for row in rows_of(bay.disk, kind="needs")]
        (copy,) = [
            row for row in rows_of(bay.disk, kind="message") if row["data_log"] > 1 and row["destination"] == "prices"
        ]
        assert homes == [copy["data_log"]]


def test_who_needs_a_topics_messages_outlives_the_acks_that_survivors_stand_for() -> None:
    """A dense data log stays; the one with the acks into it goes."""
    bay = small_bay()
    prices = bay.bay.topic("prices")
    prices.subscribe(durable="audit").close()
    prices.subscribe(durable="prompt").close()
    prices.send_many(Message(b"%d" % n) for n in range(30))
    roll(bay)
    with prices.subscribe(durable="prompt") as prompt:
        prompt.ack(prompt.take(20))
    roll(bay)
    before = pending_in(bay.bay)
    name_survivors(bay, 1)
    roll(bay)
    report = bay.store.cleanup.delete_data_logs()
    assert 1 not in report.deleted and 2 in report.deleted
    bay.crash(is_index_lost=True)
    assert pending_in(bay.bay) == before
    bay.check()


def test_what_only_a_subscriber_without_a_name_had_does_not_stand_for_an_acknowledged_message() -> None:
    """A survivors record counts it, and nobody has it after a crash."""
    bay = small_bay()
    prices = bay.bay.topic("prices")
    passing = prices.subscribe()
    prices.send(b"seen")
    send(bay, "orders", b"done", b"left")
    roll(bay)
    settle(bay, "orders", 1)
    roll(bay)
    name_survivors(bay, 1)
    roll(bay)
    assert bay.store.cleanup.delete_data_logs().deleted == (2,)
    assert [delivery.body for delivery in passing.take(2)] == [b"seen"]
    bay.crash(is_index_lost=True)
    assert pending_in(bay.bay) == {"orders": {b"left"}}
    bay.check()


# Power cuts


class Moved(CrashExplorer):
    """Everything in it is durable whenever the crashes begin."""

    kill_share = 0.15
    index_lost_share = 0.5
    cuts_power_too = cuts_synced = True

    def __init__(self, seed: int) -> None:
        super().__init__(seed, memory_limit="8MiB", policies={})
        self.disk = SimulatedDisk()
        self.metadata = SimulatedMetadataStore()
        self.bay = self.open(self.disk, self.metadata)
        self.expected: Found = {}
        # Acknowledged by a call that has not returned.
        self.may_be_gone: Found = {}
        self.number = 0

    def body(self) -> bytes:
        self.number += 1
        return b"%d:" % self.number + bytes(self.random.choice((10, 500, 4000)))

    def send(self) -> None:
        kind = self.random.choice(("queue", "topic", "transaction"))
        bodies = [self.body() for _ in range(self.random.choice((1, 1, 4)))]
        if kind == "queue":
            self.bay.queue("a").send_many(Message(body) for body in bodies)
        elif kind == "topic":
            self.bay.topic("prices").send_many(Message(body) for body in bodies)
        else:
            with self.bay.transaction() as transaction:
                for name in ("a", "b"):
                    self.bay.queue(name).send_many((Message(body) for body in bodies), transaction=transaction)

    def acknowledge(self, share: float) -> None:
        for name in ("a", "b"):
            with self.bay.queue(name).subscribe(prefetch=100_000) as consumer:
                self._acknowledge(name, consumer, share)
        for name in ("x", "y", "z"):
            with self.bay.topic("prices").subscribe(durable=name, prefetch=100_000) as consumer:
                self._acknowledge(f"prices/{name}", consumer, share * (name != "z"))

    def _acknowledge(self, name: str, consumer: Consumer, share: float) -> None:
        taken: list[Delivery] = []
        while more := consumer.take(1000):
            taken += more
        chosen = [delivery for delivery in taken if self.random.random() < share]
        self.may_be_gone = {name: {delivery.body for delivery in chosen}}
        if chosen:
            consumer.ack(chosen)
        self.may_be_gone = {}
        if name in self.expected:
            self.expected[name] -= {delivery.body for delivery in chosen}

    def look(self, left: Left) -> None:
        bay = self.open(left.disk, left.metadata)
        found = pending_in(bay)
        for name in self.expected.keys() | found.keys():
            expected, there = self.expected.get(name, set()), found.get(name, set())
            assert there <= expected, f"back in {name}: {sorted(body[:8] for body in there - expected)}"
            assert expected - there <= self.may_be_gone.get(name, set()), f"lost in {name}"
        inside(bay).index._check()
        if self.random.random() < 0.1:
            bay.cleanup()
            assert pending_in(bay) == found
            again = self.open(left.disk.crash_power(self.random, PowerCut.SYNCED), SimulatedMetadataStore())
            assert pending_in(again) == found

    def explore(self) -> None:
        for name in ("x", "y"):
            self.bay.topic("prices").subscribe(durable=name).close()
        for turn in range(3):
            for _ in range(self.random.randint(2, 5)):
                for _ in range(self.random.randint(1, 5)):
                    self.send()
                with inside(self.bay).lock:
                    inside(self.bay).journal.roll()
            if turn == 1:
                self.bay.topic("prices").subscribe(durable="z").close()
            self.acknowledge(self.random.choice((0.3, 0.7, 0.95)))
            self.bay.checkpoint()
            self.metadata.synced()
            self.expected = pending_in(self.bay)
            with self.crashing(self.disk, lambda: self.metadata, self.look):
                self._relocate()
                assert pending_in(self.bay) == self.expected
                self.bay.cleanup()
                self.acknowledge(0.4)
                self.bay.cleanup()
            assert pending_in(self.bay) == {name: bodies for name, bodies in self.expected.items() if bodies}

    def _relocate(self) -> None:
        """Copy or name what is live in some data logs, whether that is worth it or not."""
        store = inside(self.bay).store
        for data_log in self.random.sample(sealed := sorted(store.cleanup.remover.relocatable()), min(len(sealed), 3)):
            lock, work = inside(self.bay).lock, store.cleanup.relocation
            is_naming = self.random.random() < 0.4
            if data_log in store.index.data_log_uses:
                all(steps(work, lock, data_log, is_naming=is_naming, freed_bytes=1 << 30))


@pytest.mark.parametrize("seed", sampled(range(10), 4))
def test_power_cut_at_any_call_while_topics_and_transactions_are_moved(seed: int) -> None:
    life = Moved(seed).run()
    assert life.states > 20
    assert inside(life.bay).relocation.messages


def test_what_a_topic_without_its_name_is_needed_for_is_kept_and_told_of_once() -> None:
    bay = small_bay(on_missing_data_log="report")
    prices = bay.bay.topic("prices")
    prices.subscribe(durable="audit").close()
    prices.send_many(Message(b"%d" % n) for n in range(6))
    fill(bay)
    for n in range(8):
        send(bay, "stuck", b"%d" % n)
        fill(bay)
    bay.bay.cleanup()
    homes = {row["data_log"] for row in rows_of(bay.disk, kind="needs")}
    assert homes
    for row in rows_of(bay.disk, kind="state"):
        file = bay.disk.open(data_log_name(row["data_log"]))
        file.seek(row["offset"])
        file.append(bytes(8))
        file.sync()
    bay.crash(is_index_lost=True)
    assert {place.problem for place in bay.bay.recovery.damaged} == {"a record of 0 bytes cannot be"}
    before = pending_in(bay.bay)
    assert {b"%d" % n for n in range(6)} in before.values()
    bay.crash(is_index_lost=True)
    assert bay.bay.recovery.damaged == () and pending_in(bay.bay) == before
    bay.check()
