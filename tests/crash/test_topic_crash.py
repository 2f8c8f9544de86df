"""Power cuts and kills at every call that changes the disk, with topics.

For each durable subscription: nothing confirmed is lost, nothing acknowledged
comes back, nothing appears that was sent before it; and it exists, or not, as
was confirmed. A failure names its seed, and `TopicCrashRun(seed, Tally()).run()`
repeats it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from random import Random

import pytest
from manual_clock import ManualClock
from simulated_disk import PowerCut, SimulatedDisk
from simulated_metadata import SimulatedMetadataStore
from test_crash import POWER_CUTS, Tally, _same

from forebay import Consumer, Delivery, DestinationPolicy, Forebay, Message, Settings
from forebay.dispatch.config.settings import SyncMode
from forebay.dispatch.engine.engine import Engine
from forebay.store.bits import runs_of_ones
from forebay.store.index.topic_lane import SubscriptionLane, TopicLane

STATES = 6_000
KILLS = 2_000
SOAK_STATES = 200_000
SHARES = 4
FIRST_SEED = int(os.environ.get("FOREBAY_SEED", "1"))
SEEDS_APART = 1_000_000
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
    store = bay._engine.store
    bay._engine.audit()
    store.index._check()
    store.subscriptions._check()
    with bay._engine.lock:
        assert store.subscriptions.sweep()
        for lane in store.index.lanes.values():
            if isinstance(lane, TopicLane):
                needed = [pending for sub in lane.subscribers.values() for pending in sequences(sub)]
                assert sequences(lane) == sorted(set(needed))
        pending = sum(use.pending_messages for use in store.index.uses.values())
        assert pending == sum(lane.pending_messages for lane in store.index.lanes.values())


def sequences(lane: TopicLane | SubscriptionLane) -> list[int]:
    found: list[int] = []
    if isinstance(lane, SubscriptionLane):
        lane.catch_up()
        for first, last in lane.pending.blocks:
            for number in range(first, last + 1):
                for low, high in runs_of_ones(lane.pending.mask(number)):
                    found += range(number * 512 + low, number * 512 + high + 1)
        return found
    run = lane.pending_run(0, EVERYTHING)
    while run is not None:
        found += range(run[0], run[1] + 1)
        run = lane.pending_run(run[1] + 1, EVERYTHING)
    return found


class Workload:
    """One operation a step; the model is told before and after each call."""

    def __init__(self, seed: int, random: Random, model: TopicModel, bay: Forebay, clock: ManualClock) -> None:
        self._seed, self._random, self._model, self.bay, self._clock = seed, random, model, bay, clock
        draw = Random(seed)
        self._weights = {name: draw.choice(choices) for name, choices in WEIGHTS.items()}
        self._readers: dict[Name, Consumer] = {}
        self._held: dict[Name, list[Delivery]] = {}
        self._live: set[int] = set()
        """What the reader without a name may get."""
        self.next_number = 0

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
        numbers = tuple(range(self.next_number, self.next_number + count))
        self.next_number += count
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
        self.bay = self.do_reopen()

    def do_reopen(self) -> Forebay:
        raise NotImplementedError

    def _step(self) -> None:
        self._clock.advance(self._random.choice((0.2, 2.0, 20.0)))
        self.bay.step()


class TopicCrashRun:
    """One seed's workload, cut at its calls."""

    def __init__(self, seed: int, tally: Tally, *, sync: SyncMode = "always", with_power_cuts: bool = True) -> None:
        self._seed, self._tally, self._with_power_cuts = seed, tally, with_power_cuts
        self._random = Random(seed)
        self._left: set[int] = set()
        self._settings = Settings(
            background=False,
            memory_limit="16MiB",
            index_cache_size="256KiB",
            max_file_length="64KiB",
            sync=sync,
            policies={">": DestinationPolicy(max_attempts=None)},
        )
        self._place = ""

    def run(self) -> None:
        try:
            self._live(SimulatedDisk(), SimulatedMetadataStore(), TopicModel(), 1, 0)
        except Exception as error:
            raise AssertionError(f"seed {self._seed}, {self._place}: {error!r}") from error

    def _live(
        self, disk: SimulatedDisk, metadata: SimulatedMetadataStore, model: TopicModel, crashes: int, next_number: int
    ) -> None:
        clock = ManualClock(self._random.getrandbits(64))

        def crash(call: str, name: str) -> None:
            place, self._place = self._place, f"{self._place}/{call} {name}"
            self._crash(disk, metadata, model, crashes, workload.next_number)
            self._place = place

        def reopen() -> Forebay:
            workload.bay.close()
            return self._open(disk, metadata, clock)

        bay = self._open(disk, metadata, clock)
        found = found_in(self._open(disk.crash_process(), _same(metadata)))
        model.pending = {name: set(numbers) for name, numbers in found.items()}
        model.coming, model.going, model.beginning, model.ending = ("", ()), (("", ""), ()), None, None
        workload = Workload(self._seed, self._random, model, bay, clock)
        workload.next_number = next_number
        workload.do_reopen = reopen  # type: ignore[method-assign]
        disk.on_call = crash
        before = self._place
        for step in range(self._random.randint(10, 80) if crashes == 1 else self._random.randint(1, 20)):
            self._place = f"{before} step {step}"
            self._place += f" {workload.step()}"
            if self._random.random() < 0.1:
                metadata.synced()
        disk.on_call = None
        self._place = f"{before} end"
        check_stored(workload.bay)

    def _crash(
        self, disk: SimulatedDisk, metadata: SimulatedMetadataStore, model: TopicModel, crashes: int, next_number: int
    ) -> None:
        random = self._random
        if random.random() < (0.05 if self._with_power_cuts else 0.5):
            self._place += " KILL"
            self._tally.kills += 1
            left = SimulatedMetadataStore() if random.random() < 0.3 else _same(metadata)
            self._examine(disk.crash_process(), left, model, crashes, next_number)
        if self._with_power_cuts and disk.has_unsynced:
            mode = random.choice(POWER_CUTS)
            self._place += f" {mode.name}"
            image = disk.crash_power(random, mode)
            left_bytes = image.digest()
            if left_bytes not in self._left:
                self._left.add(left_bytes)
                self._tally.power_cuts.add(left_bytes)
                self._examine(image, metadata.crash(random), model, crashes, next_number)

    def _examine(
        self,
        image: SimulatedDisk,
        metadata: SimulatedMetadataStore,
        model: TopicModel,
        crashes: int,
        next_number: int,
    ) -> None:
        random = self._random
        if crashes < 3 and random.random() < 0.03:
            self._live(image, metadata, model.fork(), crashes + 1, next_number)
            return
        bay = self._open(image, metadata)
        check_stored(bay)
        found = found_in(bay)
        model.check(found)
        if random.random() < 0.1:
            self._place += " again"
            again = TopicModel({name: set(numbers) for name, numbers in found.items()})
            again.check(found_in(self._open(image.crash_process(), _same(metadata))))
            again.check(found_in(self._open(image.crash_process(), SimulatedMetadataStore())))
            again.check(found_in(self._open(image.crash_power(random, PowerCut.SYNCED), metadata.crash(random))))

    def _open(self, disk: SimulatedDisk, metadata: SimulatedMetadataStore, clock: ManualClock | None = None) -> Forebay:
        clock = clock or ManualClock(self._random.getrandbits(64))
        return Forebay(Engine(disk, lambda store_id, cache_bytes: metadata, self._settings, clock), None)


def run_seeds(first_seed: int, *, states: int) -> None:
    tally = Tally()
    seed = first_seed
    while len(tally.power_cuts) < states:
        TopicCrashRun(seed, tally).run()
        seed += 1
    print(f"seeds {first_seed} to {seed - 1}: {len(tally.power_cuts)} power cuts")


@pytest.mark.parametrize("share", range(SHARES))
def test_power_cut_at_any_call_leaves_each_subscription_whole(share: int) -> None:
    run_seeds(FIRST_SEED + share * SEEDS_APART, states=STATES // SHARES)


@pytest.mark.parametrize("sync", ["always", "never"])
def test_kill_at_any_call_leaves_each_subscription_whole(sync: SyncMode) -> None:
    tally = Tally()
    seed = FIRST_SEED
    while tally.kills < KILLS:
        TopicCrashRun(seed, tally, sync=sync, with_power_cuts=False).run()
        seed += 1


@pytest.mark.soak
@pytest.mark.parametrize("share", range(SHARES))
def test_soak_of_power_cuts_with_topics(share: int) -> None:
    run_seeds(FIRST_SEED + (SHARES + share) * SEEDS_APART, states=SOAK_STATES // SHARES)
