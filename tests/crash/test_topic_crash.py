"""Power cuts and kills at every call that changes the disk, with topics.

For each durable subscription: nothing confirmed is lost, nothing acknowledged
comes back, nothing appears that was sent before it; and it exists, or not, as
was confirmed. See crash.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random

import pytest
from extents import sequences
from inside import inside
from manual_clock import ManualClock

from crash import FIRST_SEED, SEEDS_APART, CrashingWorkload, Left, Life, run_seeds, same
from forebay import Consumer, Delivery, Forebay, Message
from forebay.dispatch.config.settings import SyncMode
from forebay.store.disk.simulated_disk import PowerCut
from forebay.store.index.topic_lane import TopicLane
from forebay.store.metadata.sqlite import MemoryMetadataStore

STATES = 6_000
KILLS = 2_000
SOAK_STATES = 200_000
SHARES = 4
PENDING_MAX = 60
EVERYTHING = 1_000_000

TOPICS = ("prices", "news")
SELECTORS = {"all": None, "late": None, "third": "kind = 0", "none": "kind > 2"}
"""Of each durable subscription, by name."""
WEIGHTS = {
    "send": (2, 8),
    "send_many": (0, 2, 4),
    "subscribe": (1, 3),
    "unsubscribe": (0, 1, 2),
    "read": (3, 8),
    "ack": (3, 8),
    "leave": (0, 1),
    "checkpoint": (0, 1, 2),
    "cleanup": (0, 1, 4),
    "reopen": (0, 0, 1),
    "step": (0, 1, 2),
}

Name = tuple[str, str]
"""A topic, and a durable subscription of it; "" stands for one that is not durable."""


def matches(name: str, number: int) -> bool:
    return {"third": number % 3 == 0, "none": False}.get(name, True)


def message(seed: int, number: int) -> Message:
    random = Random(seed * 1_000_003 + number)
    body = b"%08d" % number + bytes(random.choice((0, 40, 3_000, 20_000)))
    return Message(body, headers={"kind": number % 3}, priority=random.choice((4, 4, 9)))


@dataclass
class TopicModel:
    """What each durable subscription must have, and the one call in flight."""

    pending: dict[Name, set[int]] = field(default_factory=dict)
    coming: tuple[str, tuple[int, ...]] = ("", ())
    going: tuple[Name, tuple[int, ...]] = (("", ""), ())
    beginning: Name | None = None
    ending: Name | None = None
    next_number: int = 0

    def fork(self) -> TopicModel:
        return replace(self, pending={name: numbers.copy() for name, numbers in self.pending.items()})

    def done(self) -> None:
        topic, numbers = self.coming
        for (its_topic, name), pending in self.pending.items():
            if its_topic == topic:
                pending.update(number for number in numbers if matches(name, number))
        self.pending.get(self.going[0], set()).difference_update(self.going[1])
        if self.beginning is not None:
            self.pending.setdefault(self.beginning, set())
        if self.ending is not None:
            del self.pending[self.ending]
        self.coming, self.going, self.beginning, self.ending = ("", ()), (("", ""), ()), None, None

    def settle(self, found: dict[Name, list[int]]) -> None:
        """What was in flight is decided."""
        self.pending = {name: set(numbers) for name, numbers in found.items()}
        self.coming, self.going, self.beginning, self.ending = ("", ()), (("", ""), ()), None, None

    def check(self, found: dict[Name, list[int]]) -> None:
        assert found.keys() - {self.beginning} <= self.pending.keys(), f"came back: {found.keys()}"
        assert self.pending.keys() - {self.ending} <= found.keys(), f"vanished: {self.pending.keys() - found.keys()}"
        for name, numbers in found.items():
            pending = self.pending.get(name, set())
            going = set(self.going[1]) if self.going[0] == name else set()
            lost = pending - set(numbers) - going
            assert not lost, f"{name} lost {sorted(lost)}"
            coming = self.coming[1] if self.coming[0] == name[0] and name in self.pending else ()
            strange = set(numbers) - pending - set(coming)
            assert not strange, f"{name} has {sorted(strange)}, acknowledged or never meant for it"
            came = [number in numbers for number in coming if matches(name[1], number)]
            assert came == sorted(came, reverse=True), f"of the sends {coming} {name} has {came}"


def found_in(bay: Forebay) -> dict[Name, list[int]]:
    found: dict[Name, list[int]] = {}
    bay.step()  # or a take may end before its scan has found something
    for topic in bay.topics():
        for name in bay.topic(topic).subscriptions():
            with bay.topic(topic).subscribe(durable=name, selector=SELECTORS[name], prefetch=EVERYTHING) as consumer:
                deliveries: list[Delivery] = []
                while taken := consumer.take(EVERYTHING):
                    deliveries += taken
                places = [(-delivery.priority, delivery.sequence) for delivery in deliveries]
                assert places == sorted(places)
                numbers = found[topic, name] = [int(delivery.body[:8]) for delivery in deliveries]
                assert len(set(numbers)) == len(numbers)
                statistics = bay.topic(topic).statistics().subscriptions[name]
                assert statistics.depth == len(numbers) and not statistics.unreadable
    return found


def check_stored(bay: Forebay) -> None:
    """What a topic's lane holds is what its subscriptions need, and the counts of data logs add up."""
    store = inside(bay).store
    inside(bay).audit()
    store.index._check()
    store.subscriptions._check()
    with inside(bay).lock:
        assert store.subscriptions.sweep()
        for lane in store.index.lanes.values():
            if isinstance(lane, TopicLane):
                needed = [pending for sub in lane.subscribers.values() for pending in sequences(sub)]
                assert sequences(lane) == sorted(set(needed))
        pending = sum(use.pending_messages for use in store.index.uses.values())
        assert pending == sum(lane.pending_messages for lane in store.index.lanes.values())


class Workload:
    """One operation a step; the model is told before and after each call."""

    def __init__(
        self,
        seed: int,
        random: Random,
        model: TopicModel,
        bay: Forebay,
        clock: ManualClock,
        reopen: Callable[[], Forebay],
    ) -> None:
        self._seed, self._random, self._model, self.bay, self._clock = seed, random, model, bay, clock
        self._do_reopen = reopen
        draw = Random(seed)
        self._weights = {name: draw.choice(choices) for name, choices in WEIGHTS.items()}
        self._readers: dict[Name, Consumer] = {}
        self._held: dict[Name, list[Delivery]] = {}
        self._live: set[int] = set()
        """What the reader without a name may get."""

    def step(self) -> str:
        name = self._random.choices(list(self._weights), list(self._weights.values()))[0]
        if name.startswith("send") and max(map(len, self._model.pending.values()), default=0) > PENDING_MAX:
            name = self._random.choice(("read", "ack"))
        getattr(self, f"_{name}")()
        return name

    def _some(self) -> Name:
        return self._random.choice(TOPICS), self._random.choice((*SELECTORS, ""))

    def _send(self) -> None:
        self._send_many(1)

    def _send_many(self, count: int = 0) -> None:
        topic = self._random.choice(TOPICS)
        count = count or self._random.choice((2, 7, 30))
        numbers = tuple(range(self._model.next_number, self._model.next_number + count))
        self._model.next_number += count
        self._model.coming = topic, numbers
        if topic == TOPICS[0]:
            self._live.update(numbers)
        messages = [message(self._seed, number) for number in numbers]
        if count == 1:
            self.bay.topic(topic).send(messages[0].body, headers=messages[0].headers, priority=messages[0].priority)
        else:
            self.bay.topic(topic).send_many(messages)
        self._model.done()

    def _subscribe(self) -> None:
        topic, name = self._some()
        if name and (topic, name) not in self._model.pending:
            self._model.beginning = topic, name
            self.bay.topic(topic).subscribe(durable=name, selector=SELECTORS[name]).close()
            self._model.done()

    def _unsubscribe(self) -> None:
        topic, name = self._some()
        if (topic, name) in self._model.pending and (topic, name) not in self._readers:
            self._model.ending = topic, name
            self.bay.topic(topic).unsubscribe(name)
            self._model.done()

    def _read(self) -> None:
        topic, name = self._some()
        topic = topic if name else TOPICS[0]
        if name and (topic, name) not in self._model.pending:
            return
        reader = self._readers.get((topic, name))
        if reader is None:
            if not name:
                self._live.clear()
            reader = self.bay.topic(topic).subscribe(durable=name or None, selector=SELECTORS.get(name), prefetch=0)
            self._readers[topic, name] = reader
        taken = reader.take(self._random.choice((1, 5, 40)))
        expected = self._model.pending[topic, name] if name else self._live
        for delivery in taken:
            assert int(delivery.body[:8]) in expected, f"{int(delivery.body[:8])} is not for {topic}/{name}"
        self._held.setdefault((topic, name), []).extend(taken)

    def _ack(self) -> None:
        holding = [name for name, held in self._held.items() if held]
        if not holding:
            return
        name = self._random.choice(holding)
        held = self._held[name]
        batch = self._random.choice((held[:1], held[:], self._random.sample(held, self._random.randint(1, len(held)))))
        self._held[name] = [delivery for delivery in held if delivery not in batch]
        numbers = tuple(int(delivery.body[:8]) for delivery in batch)
        if name[1]:
            self._model.going = name, numbers
        else:
            self._live.difference_update(numbers)
        self._readers[name].ack(batch)
        self._model.done()

    def _leave(self) -> None:
        if self._readers:
            name = self._random.choice(sorted(self._readers))
            self._readers.pop(name).close()
            self._held.pop(name, None)

    def _checkpoint(self) -> None:
        self.bay.checkpoint()

    def _cleanup(self) -> None:
        self.bay.cleanup()

    def _reopen(self) -> None:
        self._readers.clear()
        self._held.clear()
        self.bay = self._do_reopen()

    def _step(self) -> None:
        self._clock.advance(self._random.choice((0.2, 2.0, 20.0)))
        self.bay.step()


class Subscriptions(CrashingWorkload[TopicModel]):
    kill_share = 0.05
    index_lost_share = 0.1
    looks_once = True
    steps = (10, 80)
    later_steps = (1, 20)

    def new_model(self) -> TopicModel:
        return TopicModel()

    def settle(self, bay: Forebay, model: TopicModel) -> None:
        model.settle(found_in(bay))

    def worker(self, life: Life[TopicModel]) -> Callable[[], object]:
        return Workload(self.seed, self.random, life.model, life.bay, life.clock, partial(self.reopen, life)).step

    def between(self, life: Life[TopicModel]) -> None:
        check_stored(life.bay)

    def check(self, left: Left, model: TopicModel) -> None:
        bay, image = self.open(left.disk, left.metadata), left.disk
        check_stored(bay)
        found = found_in(bay)
        model.check(found)
        if self.random.random() < 0.1:
            self.place += " again"
            model.settle(found)
            model.check(found_in(self.open(image.crash_process(), same(left.metadata))))
            model.check(found_in(self.open(image.crash_process(), MemoryMetadataStore())))
            cut = image.crash_power(self.random, PowerCut.SYNCED)
            model.check(found_in(self.open(cut, left.metadata.crash(self.random))))


class KilledSubscriptions(Subscriptions):
    """The process is killed, and the power stays."""

    kill_share = 0.5
    index_lost_share = 0.3
    cuts_power = False


@pytest.mark.parametrize("share", range(SHARES))
def test_power_cut_at_any_call_leaves_each_subscription_whole(share: int) -> None:
    run_seeds(Subscriptions, FIRST_SEED + share * SEEDS_APART, power_cuts=STATES // SHARES)


@pytest.mark.parametrize("sync", ["always", "never"])
def test_kill_at_any_call_leaves_each_subscription_whole(sync: SyncMode) -> None:
    run_seeds(lambda seed: KilledSubscriptions(seed, sync), kills=KILLS)


@pytest.mark.soak
@pytest.mark.parametrize("share", range(SHARES))
def test_soak_of_power_cuts_with_topics(share: int) -> None:
    run_seeds(Subscriptions, FIRST_SEED + (SHARES + share) * SEEDS_APART, power_cuts=SOAK_STATES // SHARES)
