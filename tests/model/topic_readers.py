"""TopicReaders: subscriptions of one topic that lag, meet and drift apart, against the plain model.

The backlog is many times what the lists hold, so that subscriptions share
copies and reads. Between the two halves of a load others take, close, come
and go, and memory changes.
"""

from __future__ import annotations

from random import Random
from typing import Any

from machine_calls import POLICIES, SUBSCRIPTIONS, Shape
from plain_model import Entry, Reader
from simulated_bay import SimulatedBay
from state_machine import StateMachine

from forebay.dispatch.core.lists.load import Load
from forebay.dispatch.core.model.destination import TargetList

SIZES = (40, 300, 1000, 3000)
CALLS = {
    "burst": 12,
    "mixed_burst": 2,
    "join": 10,
    "close_some": 3,
    "end_some": 1,
    "drain_some": 40,
    "take_some": 8,
    "settle_some": 12,
    "begin_load": 5,
    "pass_some_time": 6,
    "resize_some": 2,
    "checkpoint": 2,
    "delete_topic": 1,
    "open_once_more": 1,
}
"""The weight of each call."""
MEANWHILE = ("drain_some", "drain_some", "burst", "join", "close_some", "end_some", "resize_some", "give_back")
"""The calls that may come between the halves of a load."""


class TopicReaders(StateMachine):
    """The state machine with many subscriptions of one topic. A random number chooses each call."""

    entries_max = 40_000
    bytes_max = 60 << 20
    subscriptions = SUBSCRIPTIONS | {f"reader {number}": None for number in range(6)}

    def __init__(self, number: int) -> None:
        super().__init__()
        self.random = Random(number)
        self.sync, self.queues, self.left_out = "never", ["orders"], set()
        self.topic = self.random.choice(("prices", "news"))
        self.topics = [self.topic]
        self.persistent_share = self.random.choice((0.6, 1.0))
        # A load that is under way, and those who wait for it.
        self.loading: tuple[Load[TargetList], list[Reader]] | None = None
        self.store = SimulatedBay(
            number,
            sync="never",
            memory_limit="4MiB",
            max_checkpoint_adds=5_000,
            max_file_length="1MiB",
            index_cache_size="256KiB",
            policies=POLICIES,
        )

    def run(self, steps: int) -> None:
        """Do so many calls, then let everything be taken."""
        for step in range(steps):
            getattr(self, self.random.choices(list(CALLS), list(CALLS.values()))[0])()
            self.stays_below_its_limit()
            if step % 50 == 0:
                self.compare()
            self.check_that_nothing_is_kept_for_nobody()
        self.drain()

    def check_that_nothing_is_kept_for_nobody(self) -> None:
        if not any(reader.place.name == self.topic for reader in self.consumers):
            cache = self.store.memories.common.pending_cache
            assert not [number for number in self.store.index.lanes if cache.has(number)]

    # ------------------------------------------------------------------ what is chosen

    @property
    def pick(self) -> int:
        return self.random.randrange(240)

    def shape(self, size: int) -> Shape:
        random = self.random
        is_persistent = random.random() < self.persistent_share
        lifetime_ms = random.choice((*[None] * 12, 5_000))
        delay_ms = random.choice((*[0] * 8, 500))
        return size, random.randrange(3), random.choice((4, 4, 4, 0)), is_persistent, None, delay_ms, lifetime_ms

    def burst(self) -> None:
        self.publish([self.shape(self.random.choice(SIZES))], self.random.choice((1, 20, 300)))

    def mixed_burst(self) -> None:
        self.publish([self.shape(self.random.choice(SIZES)) for _ in range(5)], self.random.choice((1, 20, 60)))

    def join(self) -> None:
        self.subscribe_topic(self.random.choice((None, *self.subscriptions)), self.random.choice((0, 0, 5, 1000)))

    def close_some(self) -> None:
        readers = list(self.consumers)
        if readers:
            self.leave(self.random.choice(readers), self.pick)

    def end_some(self) -> None:
        self.unsubscribe(self.pick)

    def free_reader(self) -> Reader | None:
        """One that waits for no load, which would hold up this thread for ever."""
        waiting = self.loading[1] if self.loading is not None else []
        free = [reader for reader in self.consumers if reader not in waiting]
        return self.random.choice(free) if free else None

    def take_some(self) -> None:
        reader = self.free_reader()
        if reader is not None:
            self.receive(reader, self.random.choice((1, 10, 100)))

    def drain_some(self) -> None:
        reader = self.free_reader()
        if reader is None:
            return
        for _ in range(self.random.choice((1, 1, 5))):
            most = self.random.choice((1, 5, 20, 100))
            taken = self.receive(reader, most) if self.loading is None else self.receive_what_is_there(reader, most)
            if taken:
                self.consumers[reader].ack([self.deliveries[entry] for entry in taken])
                self.done(reader, taken)

    def receive_what_is_there(self, reader: Reader, most: int) -> list[Entry]:
        """Take without waiting. The take may get less than is offered, because a load under way may have the rest."""
        offered = self.model.offered(reader)
        entries = []
        for delivery in self.consumers[reader].take(most):
            entry = self.entry_of(delivery, offered)
            assert entry is offered.pop(0), f"{entry} came out of turn"
            self.model.hand_out(reader, entry)
            self.deliveries[entry] = delivery
            entries.append(entry)
        self.ready(reader)
        return entries

    def settle_some(self) -> None:
        count = self.random.choice((1, 3, 100))
        verb = self.random.choice(("ack", "nack", "release", "settle_in_a_block", "reject"))
        if verb == "nack":
            self.nack(self.pick, count, self.random.choice((0, 0, 500)))
        elif verb == "settle_in_a_block":
            self.settle_in_a_block(self.pick, self.random.choice(("ends", "raises", "settles")))
        else:
            getattr(self, verb)(self.pick, count)

    def pass_some_time(self) -> None:
        self.wait(0.25)

    def resize_some(self) -> None:
        self.resize(self.random.choice(("4MiB", "5MiB", "8MiB")))

    def give_back(self) -> None:
        """Somebody else needs memory."""
        with self.store.lock:
            self.store.reclaim.make_room(self.random.choice((10_000, 1_000_000)), None)

    def delete_topic(self) -> None:
        if self.topic in self.model.topics and self.random.random() < 0.4:
            self.store.bay.topic(self.topic).delete()
            for place in self.model.topics.pop(self.topic).places.values():
                for reader in place.readers:
                    del self.consumers[reader]

    def open_once_more(self) -> None:
        self.open_again(self.random.choice(("reopen", "kill")), False)

    # ------------------------------------------------------------------ a load in two halves

    def begin_load(self) -> None:
        """Begin a load, which others overtake, and which is given up sometimes."""
        lists = [target for target in self.store.lists() if target.has_supply]
        load = self.begun(self.random.choice(lists)) if lists else None
        if load is None:
            return
        waiting = [
            reader
            for reader, consumer in self.consumers.items()
            if consumer.selector_group is load.target.selector_group
        ]
        self.loading = load, waiting
        is_read = self.random.random() < 0.5
        if is_read:
            self.store.loader.read(load)
        for _ in range(self.random.randrange(1, 8)):
            getattr(self, self.random.choice(MEANWHILE))()
            self.store.audit()
        self.loading = None
        if self.random.random() < 0.2:
            self.store.loader.abandon_interrupted(load)
            return
        if not is_read:
            self.store.loader.read(load)
        with self.store.lock:
            self.store.loader.install(load)

    def begun(self, target: TargetList) -> Any:
        with self.store.lock:
            return self.store.loader.begin(target, is_needed=self.random.random() < 0.5)
