"""Properties and crashes: at each call of the disk, a change is there whole or not made, alone or in a transaction."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from crashing import FIRST_SEED, SYNC_MODES, CrashExplorer, Left
from inside import inside
from simulated_disk import SimulatedDisk
from simulated_metadata import SimulatedMetadataStore

from forebay import Forebay
from forebay.dispatch.config.settings import SyncMode

NAMES = ("a", "b", "ß/c", "d")
SEEDS = 5

Changes = dict[str, bytes | None]


@dataclass
class State:
    """What a store has: properties, and by xid what prepared transactions set."""

    properties: dict[str, bytes] = field(default_factory=dict)
    prepared: dict[bytes, Changes] = field(default_factory=dict)

    def changed(self, changes: Changes) -> State:
        seen = {**self.properties, **changes}
        return State({name: value for name, value in seen.items() if value is not None}, dict(self.prepared))


class ChangingProperties(CrashExplorer):
    """One store that is worked on, reopened, and cut; `history` has all that it ever was."""

    kill_share = 0.5
    cuts_power_too = True
    index_lost_share = 0.3

    def __init__(self, seed: int, sync: SyncMode) -> None:
        super().__init__(seed, sync)
        self.history = [State()]
        self.wanted: State | None = None
        """What the call under way makes of it."""

    def explore(self) -> None:
        disk, metadata = SimulatedDisk(), SimulatedMetadataStore()
        bay = self.open(disk, metadata)
        with self.crashing(disk, lambda: metadata, self._examine):
            for step in range(50):
                self.place = f"step {step}"
                self._step(bay)
                if self.random.random() < 0.15:
                    metadata.synced()
                if self.random.random() < 0.1:
                    bay.close()
                    bay = self.open(disk, metadata)
        assert _state_of(bay) == self.history[-1]

    def _step(self, bay: Forebay) -> None:
        random, now = self.random, self.history[-1]
        changes: Changes = {
            name: random.choice((None, b"", random.randbytes(random.choice((3, 900)))))
            for name in random.sample(NAMES, 2)
        }
        sets = {name: value for name, value in changes.items() if value is not None}
        choice = random.random()
        if choice < 0.3:
            self.wanted = now.changed(dict(sets))
            bay.properties.update(sets)
        elif choice < 0.4:
            self.wanted = now.changed({"a": None})
            bay.properties.pop("a", None)
        elif choice < 0.45:
            self.wanted = State({}, now.prepared)
            bay.properties.clear()
        elif choice < 0.6:
            self.wanted = now.changed(changes)
            with bay.transaction() as transaction:
                _stage(transaction.properties, changes)
                if random.random() < 0.5:
                    bay.queue("orders").send(bytes(50), transaction=transaction)
        elif choice < 0.7 and len(now.prepared) < 2:
            xid = random.randbytes(4)
            self.wanted = State(now.properties, now.prepared | {xid: changes})
            transaction = bay.transaction()
            _stage(transaction.properties, changes)
            transaction.prepare(xid)
        elif choice < 0.8 and now.prepared:
            self._end(bay, now)
        elif choice < 0.95:
            bay.queue("orders").send(bytes(random.choice((100, 9_000))))
        else:
            bay.queue("orders").purge()
            bay.cleanup()
        if self.wanted is not None:
            self.history.append(self.wanted)
            self.wanted = None
        assert _state_of(bay).properties == self.history[-1].properties

    def _end(self, bay: Forebay, now: State) -> None:
        transaction = self.random.choice(bay.prepared())
        xid = transaction.xid or b""
        commits = self.random.random() < 0.6
        ended = now.changed(now.prepared[xid] if commits else {})
        del ended.prepared[xid]
        self.wanted = ended
        if commits:
            transaction.commit()
        else:
            transaction.rollback()

    def _examine(self, left: Left) -> None:
        bay = self.open(left.disk, left.metadata)
        found = _state_of(bay)
        expected = [self.history[-1], *([self.wanted] if self.wanted is not None else [])]
        if self.sync != "always" and not left.is_kill:
            expected = [*self.history, *expected]
        assert found in expected, f"{found} is none of {expected}"
        inside(bay).audit()


def _stage(properties: object, changes: Changes) -> None:
    for name, value in changes.items():
        properties[name] = b"" if value is None else value  # type: ignore[index]
        if value is None:
            del properties[name]  # type: ignore[attr-defined]


def _state_of(bay: Forebay) -> State:
    branches = inside(bay).store.branches.prepared
    return State(dict(bay.properties), {branch.xid: dict(branch.properties) for branch in branches})


@pytest.mark.parametrize("sync", SYNC_MODES)
def test_whatever_call_a_crash_follows_each_change_of_properties_is_whole_or_not_made(sync: SyncMode) -> None:
    states = sum(ChangingProperties(seed, sync).run().states for seed in range(FIRST_SEED, FIRST_SEED + SEEDS))
    assert states > 20 * SEEDS
