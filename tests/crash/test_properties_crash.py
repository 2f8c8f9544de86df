"""Properties and crashes: at each call of the disk, a change is there whole or not made, alone or in a transaction."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from crashing import FIRST_SEED, SYNC_MODES, StateWalk
from inside import inside
from sampling import sampled

from forebay import Forebay, StoreFull
from forebay.dispatch.config.settings import SyncMode

NAMES = ("a", "b", "ß/c", "d")
SEEDS = 6
SHARES = 3
"""Shares of the seeds. A short run takes another share in each mode of syncing, and so all seeds."""

Changes = dict[str, bytes | None]


@dataclass
class State:
    """The properties of a store, and by xid those that prepared transactions set."""

    properties: dict[str, bytes] = field(default_factory=dict)
    prepared: dict[bytes, Changes] = field(default_factory=dict)

    def changed(self, changes: Changes) -> State:
        seen = {**self.properties, **changes}
        return State({name: value for name, value in seen.items() if value is not None}, dict(self.prepared))


class ChangingProperties(StateWalk[State]):
    """Properties that change, alone and with the outcomes of transactions."""

    steps = 50

    def __init__(self, seed: int, sync: SyncMode) -> None:
        super().__init__(seed, sync, State())

    def step(self, bay: Forebay, number: int) -> None:
        random, now = self.random, self.history[-1]
        changes: Changes = {
            name: random.choice((None, b"", random.randbytes(random.choice((3, 900)))))
            for name in random.sample(NAMES, 2)
        }
        sets = {name: value for name, value in changes.items() if value is not None}
        choice = random.random()
        if choice < 0.3:
            with self.becoming(now.changed(dict(sets))):
                bay.properties.update(sets)
        elif choice < 0.4:
            with self.becoming(now.changed({"a": None})):
                bay.properties.pop("a", None)
        elif choice < 0.45:
            with self.becoming(State({}, now.prepared)):
                bay.properties.clear()
        elif choice < 0.6:
            with self.becoming(now.changed(changes)), bay.transaction() as transaction:
                _stage(transaction.properties, changes)
                if random.random() < 0.5:
                    bay.queue("orders").send(bytes(50), transaction=transaction)
        elif choice < 0.7 and len(now.prepared) < 2:
            xid = random.randbytes(4)
            with self.becoming(State(now.properties, now.prepared | {xid: changes})):
                transaction = bay.transaction()
                _stage(transaction.properties, changes)
                transaction.prepare(xid)
        elif choice < 0.8 and now.prepared:
            self._end(bay, now)
        else:
            self.fill_or_clean(bay, 0.75)
        assert self.state_of(bay).properties == self.history[-1].properties

    def _end(self, bay: Forebay, now: State) -> None:
        transaction = self.random.choice(bay.prepared())
        xid = transaction.xid or b""
        commits = self.random.random() < 0.6
        ended = now.changed(now.prepared[xid] if commits else {})
        del ended.prepared[xid]
        with self.becoming(ended):
            if commits:
                transaction.commit()
            else:
                transaction.rollback()

    def state_of(self, bay: Forebay) -> State:
        branches = inside(bay).store.branches.prepared
        return State(dict(bay.properties), {branch.xid: dict(branch.properties) for branch in branches})


def _stage(properties: object, changes: Changes) -> None:
    for name, value in changes.items():
        properties[name] = b"" if value is None else value  # type: ignore[index]
        if value is None:
            del properties[name]  # type: ignore[attr-defined]


class DeletingOnFullDisk(StateWalk[State]):
    """Properties and retained messages are deleted one by one while the disk has room for nothing else."""

    steps = 24

    def __init__(self, seed: int, sync: SyncMode) -> None:
        self.names = [f"{number}" for number in range(20)]
        self.topics = [f"prices.{number}" for number in range(6)]
        super().__init__(seed, sync, State(dict.fromkeys(self.names + self.topics, b"1042")))

    def begin(self, bay: Forebay) -> None:
        bay.properties.update(dict.fromkeys(self.names, b"1042"))
        for name in self.topics:
            bay.topic(name).send(b"1042", retain=True)
        disk, full = self.disk, 0
        disk.capacity_bytes -= disk.free_bytes() - 40_000
        while full < 2:
            try:
                bay.queue("orders").send(bytes(0 if full else 900))
            except StoreFull:
                full += 1
        bay.checkpoint()  # what a power cut would take of it is another test's

    def step(self, bay: Forebay, number: int) -> None:
        left = list(self.history[-1].properties)
        name = self.random.choice(left)
        with self.becoming(self.history[-1].changed({name: None})):
            if name in self.topics:
                bay.topic(name).send(b"", retain=True)
            else:
                del bay.properties[name]

    def state_of(self, bay: Forebay) -> State:
        retained: dict[str, bytes] = {}
        for name in self.topics:
            with bay.topic(name).subscribe() as consumer:
                for delivery in consumer.take(10):
                    retained[name] = delivery.body
        return State({**bay.properties, **retained})


@pytest.mark.parametrize("sync", SYNC_MODES)
def test_whatever_call_a_crash_follows_each_deletion_on_a_full_disk_is_whole_or_not_made(sync: SyncMode) -> None:
    walk = DeletingOnFullDisk(FIRST_SEED, sync).run()
    assert walk.states > 24 and len(walk.history) == 25


@pytest.mark.parametrize("share", sampled(range(SHARES), 1))
@pytest.mark.parametrize("sync", SYNC_MODES)
def test_whatever_call_a_crash_follows_each_change_of_properties_is_whole_or_not_made(
    sync: SyncMode, share: int
) -> None:
    first_seed = FIRST_SEED + (SYNC_MODES.index(sync) + share) % SHARES * SEEDS // SHARES
    seeds = range(first_seed, first_seed + SEEDS // SHARES)
    assert sum(ChangingProperties(seed, sync).run().states for seed in seeds) > 20 * len(seeds)
