"""Delays of what came back, and crashes: nothing is early, nothing is lost, nothing comes twice.

A queue and a durable subscription get messages that consumers give back with
delays, acknowledge, move and let expire, while checkpoints and cleanups come
between. At each call that changes the disk the process or the power is cut in a
fork. After a kill the next process hands out nothing before it is due, and then
each message once; after a power cut, or with no index left, a message may come
at once whose record was not there.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from crashing import CrashExplorer, Left
from inside import inside
from simulated_disk import SimulatedDisk
from simulated_metadata import SimulatedMetadataStore

from forebay import Consumer, Delivery, DestinationPolicy, Forebay, Message
from forebay.testing import ManualClock

LONG = 1_000.0
NAMES = ("orders", "prices")


@dataclass
class Place:
    """The messages that one consumer must get: by number, the earliest time of each."""

    due: dict[int, float] = field(default_factory=dict)
    doubtful: set[int] = field(default_factory=set)
    """The messages that the call in flight acknowledges, sends or gives back."""


class Delayed(CrashExplorer):
    index_lost_share = 0.2
    cuts_synced = True

    def __init__(self, seed: int, operations: int, call_share: float = 1.0) -> None:
        super().__init__(
            seed, memory_limit="4MiB", max_checkpoint_adds=64, policies={">": DestinationPolicy(max_attempts=None)}
        )
        self.call_share = call_share
        self.operations = operations
        self.clock = ManualClock(seed)
        self.disk = SimulatedDisk()
        self.metadata = SimulatedMetadataStore()
        self.places = {name: Place() for name in NAMES}
        self.numbers = 0
        self.bay = self.open(self.disk, self.metadata, self.clock)
        self.bay.topic("prices").subscribe(durable="audit").close()

    def consumer(self, bay: Forebay, name: str) -> Consumer:
        if name == "prices":
            return bay.topic(name).subscribe(durable="audit", prefetch=0)
        return bay.queue(name).subscribe(prefetch=0)

    # ------------------------------------------------------------------ after a crash

    def look(self, left: Left) -> None:
        clock = ManualClock(self.states)
        clock.advance(self.clock.monotonic())
        bay = self.open(left.disk, left.metadata, clock)
        is_known = left.is_kill and left.metadata.load() is not None
        found: dict[str, dict[int, float]] = {name: {} for name in NAMES}
        for seconds in (0.0, 1.0, 4.0, 5.0, LONG):
            clock.advance(seconds)
            bay.step()
            bay.step()
            for name in NAMES:
                with self.consumer(bay, name) as consumer:
                    while batch := consumer.take(1000):
                        for delivery in batch:
                            number = int(delivery.body)
                            assert number not in found[name], f"{name} {number} comes twice"
                            found[name][number] = clock.monotonic()
                        consumer.ack(batch)
        for name, place in self.places.items():
            for number, at in found[name].items():
                assert number in place.due or number in place.doubtful, f"{name} {number} comes back"
                early = place.due.get(number, 0.0) - at
                assert not is_known or number in place.doubtful or early <= 0.002, f"{name} {number}: {early} s early"
            lost = place.due.keys() - place.doubtful - found[name].keys()
            assert not lost, f"{name}: lost {sorted(lost)}"
        inside(bay).check()

    # ------------------------------------------------------------------ the workload

    def send(self) -> None:
        name = self.random.choice(NAMES)
        place = self.places[name]
        numbers = range(self.numbers, self.numbers + self.random.choice((1, 5, 40)))
        self.numbers = numbers.stop
        place.doubtful = set(numbers)
        messages = [Message(b"%d" % number) for number in numbers]
        (self.bay.topic(name) if name == "prices" else self.bay.queue(name)).send_many(messages)
        place.due |= dict.fromkeys(numbers, 0.0)
        place.doubtful = set()

    def take(self) -> None:
        name = self.random.choice(NAMES)
        place = self.places[name]
        with self.consumer(self.bay, name) as consumer:
            batch = consumer.take(self.random.choice((1, 10, 100)))
            self.random.shuffle(batch)
            while batch:
                part, batch = batch[:20], batch[20:]
                place.doubtful = {int(delivery.body) for delivery in part}
                self._settle(consumer, part, place)
                place.doubtful = set()

    def _settle(self, consumer: Consumer, part: list[Delivery], place: Place) -> None:
        now = self.clock.monotonic()
        for delivery in part:
            assert place.due[int(delivery.body)] <= now + 0.002
        delay = self.random.choice((None, 0.0, 1.0, 4.0, 60.0))
        if delay is None:
            consumer.ack(part)
            for delivery in part:
                del place.due[int(delivery.body)]
        else:
            consumer.nack(part, delay=delay)
            place.due |= {int(delivery.body): now + delay for delivery in part}

    def explore(self) -> None:
        with self.crashing(self.disk, lambda: self.metadata, self.look):
            for _ in range(self.operations):
                self.random.choice(
                    (
                        self.send,
                        self.take,
                        self.take,
                        self.take,
                        lambda: self.clock.advance(self.random.choice((0.1, 1.0, 5.0, 40.0))),
                        self.bay.step,
                        self.bay.checkpoint,
                        self.bay.cleanup,
                    )
                )()


@pytest.mark.parametrize("seed", range(4))
def test_no_crash_makes_what_came_back_early_or_loses_it(seed: int) -> None:
    assert Delayed(seed, 60, call_share=0.5).run().states > 10


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 140))
def test_no_crash_makes_what_came_back_early_or_loses_it_in_longer_lives(seed: int) -> None:
    print(f"seed {seed}: {Delayed(seed, 150).run().states} states")
