"""Retained messages and crashes: at each call of the disk a retained send is made, live and kept, or not at all."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from crashing import FIRST_SEED, SYNC_MODES, CrashExplorer, Left
from inside import inside
from simulated_disk import SimulatedDisk
from simulated_metadata import SimulatedMetadataStore

from forebay import Consumer, Forebay
from forebay.dispatch.config.settings import SyncMode

SEEDS = 3
TOPIC = "prices"


class State(NamedTuple):
    """What a durable subscription that took nothing has got, and what a new one is given."""

    got: tuple[bytes, ...] = ()
    retained: bytes = b""


class RetainingSends(CrashExplorer):
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
        bay.topic(TOPIC).subscribe(durable="ledger").close()
        with self.crashing(disk, lambda: metadata, self._examine):
            for step in range(30):
                self.place = f"step {step}"
                self._step(bay, step)
                if self.random.random() < 0.15:
                    metadata.synced()
                if self.random.random() < 0.1:
                    bay.close()
                    bay = self.open(disk, metadata)
        assert _state_of(bay) == self.history[-1]

    def _step(self, bay: Forebay, step: int) -> None:
        random, now, choice = self.random, self.history[-1], self.random.random()
        body = b"%d " % step + bytes(random.choice((3, 900)))
        if choice < 0.45:
            self.wanted = State((*now.got, body), body)
            bay.topic(TOPIC).send(body, retain=True)
        elif choice < 0.55:
            self.wanted = State((*now.got, b""), b"")
            bay.topic(TOPIC).send(b"", retain=True)
        elif choice < 0.65:
            self.wanted = State((*now.got, body), now.retained)
            bay.topic(TOPIC).send(body)
        elif choice < 0.72:
            self.wanted = State()
            bay.topic(TOPIC).delete()
        elif choice < 0.95:
            bay.queue("orders").send(bytes(random.choice((100, 9_000))))
        else:
            bay.queue("orders").purge()
            bay.cleanup()
        if self.wanted is not None:
            self.history.append(self.wanted)
            self.wanted = None
        if 0.65 <= choice < 0.72:
            bay.topic(TOPIC).subscribe(durable="ledger").close()

    def _examine(self, left: Left) -> None:
        bay = self.open(left.disk, left.metadata)
        found = _state_of(bay)
        expected = [self.history[-1], *([self.wanted] if self.wanted is not None else [])]
        if self.sync != "always" and not left.is_kill:
            expected = [*self.history, *expected]
        assert found in expected, f"{found} is none of {expected}"
        inside(bay).audit()


def _state_of(bay: Forebay) -> State:
    topic = bay.topic(TOPIC)
    with topic.subscribe() as new, topic.subscribe(durable="ledger", prefetch=0) as ledger:
        given = _bodies(new)
        got = _bodies(ledger)
    assert len(given) <= 1
    return State(tuple(got), given[0] if given else b"")


def _bodies(consumer: Consumer) -> list[bytes]:
    found: list[bytes] = []
    while taken := consumer.take(100):
        found += [delivery.body for delivery in taken]
    return found


@pytest.mark.parametrize("sync", SYNC_MODES)
def test_whatever_call_a_crash_follows_a_retained_send_is_whole_or_not_made(sync: SyncMode) -> None:
    states = sum(RetainingSends(seed, sync).run().states for seed in range(FIRST_SEED, FIRST_SEED + SEEDS))
    assert states > 20 * SEEDS
