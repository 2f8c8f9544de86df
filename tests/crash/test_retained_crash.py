"""Retained messages and crashes: at each call of the disk a retained send is made, live and kept, or not at all."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from crashing import FIRST_SEED, SYNC_MODES, StateWalk

from forebay import Consumer, Forebay
from forebay.dispatch.config.settings import SyncMode

SEEDS = 3
TOPIC = "prices"


class State(NamedTuple):
    """The messages of a durable subscription that took nothing, and those that a new one gets."""

    got: tuple[bytes, ...] = ()
    retained: bytes = b""


class RetainingSends(StateWalk[State]):
    """A topic that retains, and ends and begins anew, with a durable subscription that takes nothing."""

    def __init__(self, seed: int, sync: SyncMode) -> None:
        super().__init__(seed, sync, State())

    def begin(self, bay: Forebay) -> None:
        bay.topic(TOPIC).subscribe(durable="ledger").close()

    def step(self, bay: Forebay, number: int) -> None:
        random, now, choice = self.random, self.history[-1], self.random.random()
        body = b"%d " % number + bytes(random.choice((3, 900)))
        if choice < 0.45:
            with self.becoming(State((*now.got, body), body)):
                bay.topic(TOPIC).send(body, retain=True)
        elif choice < 0.55:
            with self.becoming(State((*now.got, b""), b"")):
                bay.topic(TOPIC).send(b"", retain=True)
        elif choice < 0.65:
            with self.becoming(State((*now.got, body), now.retained)):
                bay.topic(TOPIC).send(body)
        elif choice < 0.72:
            with self.becoming(State()):
                bay.topic(TOPIC).delete()
            self.begin(bay)
        else:
            self.fill_or_clean(bay, 0.8)

    def state_of(self, bay: Forebay) -> State:
        topic = bay.topic(TOPIC)
        with topic.subscribe() as new, topic.subscribe(durable="ledger", prefetch=0) as ledger:
            given, got = _bodies(new), _bodies(ledger)
        assert len(given) <= 1
        return State(tuple(got), given[0] if given else b"")


class Keeping(NamedTuple):
    """The messages of a durable subscription that took nothing, and those that a new one gets, in order."""

    got: tuple[bytes, ...] = ()
    retained: tuple[bytes, ...] = ()

    def sent(self, key: bytes, body: bytes) -> Keeping:
        """Return what a message leaves that is kept by its first byte; an empty one leaves none of that key."""
        others = tuple(known for known in self.retained if known[:1] != key)
        return Keeping((*self.got, body), (*others, body) if body else others)


class RetainingByHeader(StateWalk[Keeping]):
    """A topic that retains by a header, and as a whole, and ends and begins anew."""

    def __init__(self, seed: int, sync: SyncMode) -> None:
        super().__init__(seed, sync, Keeping())

    def begin(self, bay: Forebay) -> None:
        bay.topic(TOPIC).subscribe(durable="ledger").close()

    def step(self, bay: Forebay, number: int) -> None:
        random, now, choice = self.random, self.history[-1], self.random.random()
        key = random.choice((b"A", b"B", b"C", b"*"))
        body = key + b"%d " % number + bytes(random.choice((3, 900))) if choice < 0.5 else b""
        if choice < 0.65:
            with self.becoming(now.sent(key, body)):
                if key == b"*":
                    bay.topic(TOPIC).send(body, retain=True)
                else:
                    bay.topic(TOPIC).send(body, headers={"symbol": key}, retain="symbol")
        elif choice < 0.7:
            with self.becoming(Keeping()):
                bay.topic(TOPIC).delete()
            self.begin(bay)
        else:
            self.fill_or_clean(bay, 0.8)

    def state_of(self, bay: Forebay) -> Keeping:
        topic = bay.topic(TOPIC)
        with topic.subscribe() as new, topic.subscribe(durable="ledger", prefetch=0) as ledger:
            given, got = _bodies(new), _bodies(ledger)
        return Keeping(tuple(got), tuple(given))


def _bodies(consumer: Consumer) -> list[bytes]:
    found: list[bytes] = []
    while taken := consumer.take(100):
        found += [delivery.body for delivery in taken]
    return found


@pytest.mark.parametrize("sync", SYNC_MODES)
def test_whatever_call_a_crash_follows_a_retained_send_is_whole_or_not_made(sync: SyncMode) -> None:
    states = sum(RetainingSends(seed, sync).run().states for seed in range(FIRST_SEED, FIRST_SEED + SEEDS))
    assert states > 20 * SEEDS


@pytest.mark.parametrize("sync", SYNC_MODES)
def test_whatever_call_a_crash_follows_what_is_retained_by_a_header_is_whole_and_in_order(sync: SyncMode) -> None:
    states = sum(RetainingByHeader(seed, sync).run().states for seed in range(FIRST_SEED, FIRST_SEED + SEEDS))
    assert states > 20 * SEEDS
