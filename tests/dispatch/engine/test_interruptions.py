"""Every public call may be interrupted anywhere: it has happened or not, and the store is whole or says StoreFailed.

Each operation runs again and again on a store that is made anew, and each time
an exception breaks in at another place (see interrupting.py). FOREBAY_SEED: the
first place; FOREBAY_PLACES: about how many places of an operation are tried,
in the soak all of them.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest
from compiled import interpreted
from interrupting import Interruption, interrupted
from simulated_bay import SimulatedBay

from forebay import Closed, DestinationPolicy, ForebayError, Message, StoreFailed
from forebay.store.environment.locks import owned_locks

pytestmark = [
    interpreted("calls nothing that a profiler sees"),
    # An exception in the last breath of a generator is told to nobody but this hook.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

SEED = int(os.environ.get("FOREBAY_SEED", "1"))
PLACES = int(os.environ.get("FOREBAY_PLACES", "30"))
STORED = 40
HELD = 8
NON_PERSISTENT = 1000
"""From this number on messages are not persistent."""


def body(number: int) -> bytes:
    return b"%d|" % number + bytes(number % 7 * 300)


def number_of(content: bytes) -> int:
    return int(content.partition(b"|")[0])


class World:
    """A store with messages, and a consumer that holds some; what must be there afterwards, and what may be."""

    def __init__(self, queue: str = "orders", **fields: Any) -> None:
        policies = {"limited": DestinationPolicy(max_messages=1000), ">": DestinationPolicy(max_attempts=3)}
        self.store = SimulatedBay(1, max_file_length="256KiB", policies=policies, **fields)
        self.queue, self.other = self.store.queue(queue), self.store.queue("other")
        self.queue.send_many([Message(body(n)) for n in range(STORED)])
        self.queue.send_many([Message(body(n), persistent=False) for n in range(NON_PERSISTENT, NON_PERSISTENT + 10)])
        self.consumer = self.queue.subscribe(prefetch=20)
        self.held = self.consumer.take(HELD)
        self.must = set(range(STORED))
        self.may = set(range(NON_PERSISTENT, NON_PERSISTENT + 10))
        self.is_closed = self.is_deleted = False

    def sent(self, *numbers: int) -> None:
        self.may.update(numbers)

    def settled(self) -> None:
        gone = {number_of(delivery.body) for delivery in self.held}
        self.must -= gone
        self.may |= gone

    def moved(self) -> None:
        self.may |= self.must
        self.must = set()


Operation = Callable[[World], Callable[[], object]]
"""Prepares a world; returns the call that is interrupted."""


def send(world: World, **fields: Any) -> Callable[[], object]:
    world.sent(500)
    return lambda: world.queue.send(body(500), **fields)


def send_many(world: World) -> Callable[[], object]:
    world.sent(*range(500, 600))
    messages = [Message(body(n)) for n in range(500, 600)]
    return lambda: world.queue.send_many(messages)


def ack(world: World) -> Callable[[], object]:
    world.settled()
    return lambda: world.consumer.ack(world.held)


def ack_one(world: World) -> Callable[[], object]:
    world.settled()
    return lambda: world.consumer.ack(world.held[0])


def reject(world: World) -> Callable[[], object]:
    world.settled()
    return lambda: world.consumer.reject(world.held)


def commit(world: World) -> Callable[[], object]:
    world.sent(500, 501)
    world.settled()

    def call() -> None:
        with world.store.bay.transaction() as transaction:
            world.queue.send(body(500), transaction=transaction)
            world.queue.send(body(501), transaction=transaction)
            world.consumer.ack(world.held, transaction=transaction)

    return call


def rollback(world: World) -> Callable[[], object]:
    world.sent(500)
    transaction = world.store.bay.transaction()

    def call() -> None:
        try:
            world.queue.send(body(500), transaction=transaction)
            world.consumer.ack(world.held, transaction=transaction)
            transaction.rollback()
        except Interruption:
            with suppress(ForebayError):
                transaction.rollback()
            raise

    return call


def topic(world: World) -> Callable[[], object]:
    def call() -> None:
        prices = world.store.bay.topic("prices")
        subscriber = prices.subscribe(durable="audit")
        prices.send(b"1|")
        subscriber.ack(subscriber.take())
        subscriber.close()
        prices.unsubscribe("audit")

    return call


def pause(world: World) -> Callable[[], object]:
    def call() -> None:
        world.queue.pause()
        world.queue.resume()

    return call


def purge(world: World) -> Callable[[], object]:
    world.moved()
    return world.queue.purge


def delete(world: World) -> Callable[[], object]:
    world.other.send(b"700|")
    world.sent(700)
    world.is_deleted = True
    return world.other.delete


def close(world: World) -> Callable[[], object]:
    world.is_closed = True
    return world.store.bay.close


OPERATIONS: dict[str, Operation] = {
    "send": send,
    "send with headers and a group": lambda world: send(world, headers={"kind": 1}, group="a"),
    "send with a lifetime": lambda world: send(world, expires_in=1000.0),
    "send with a delay": lambda world: send(world, delay=1.0),
    "send, not persistent": lambda world: send(world, persistent=False),
    "send_many": send_many,
    "take one": lambda world: world.consumer.take,
    "take": lambda world: lambda: world.consumer.take(10),
    "take all": lambda world: lambda: world.consumer.take(1000),
    "ack one": ack_one,
    "ack": ack,
    "nack": lambda world: lambda: world.consumer.nack(world.held),
    "nack with a delay": lambda world: lambda: world.consumer.nack(world.held, delay=1.0),
    "release": lambda world: lambda: world.consumer.release(world.held),
    "close that names what was processed": lambda world: lambda: world.consumer.close(processed=world.held[:3]),
    "reject": reject,
    "subscribe": lambda world: lambda: world.queue.subscribe(selector="kind = 1"),
    "close of a consumer": lambda world: world.consumer.close,
    "commit": commit,
    "rollback": rollback,
    "checkpoint": lambda world: world.store.bay.checkpoint,
    "cleanup": lambda world: world.store.bay.cleanup,
    "browse": lambda world: lambda: list(world.queue.browse()),
    "purge": purge,
    "move": lambda world: lambda: world.queue.move(world.other),
    "background": lambda world: world.store.bay.step,
    "resize": lambda world: lambda: world.store.bay.resize("6MiB"),
    "topic": topic,
    "pause": pause,
    "a new queue": lambda world: lambda: world.store.bay.queue("fresh"),
    "delete": delete,
    "close": close,
}
LIMITED = ("send", "send, not persistent", "send_many", "ack", "commit", "rollback", "move")


@dataclass
class Outcome:
    whole: int = 0
    failed: int = 0


def drained(world: World) -> Counter[int]:
    """All that is delivered when nothing is held any more."""
    found: Counter[int] = Counter()
    world.queue.resume()
    world.consumer.close()
    world.store.clock.advance(5.0)
    for queue in (world.queue,) if world.is_deleted else (world.queue, world.other):
        with queue.subscribe(prefetch=0) as consumer:
            for _ in range(20):
                world.store.bay.step()
                found.update(number_of(delivery.body) for delivery in consumer.take(1000))
            assert sum(1 for _ in queue.browse()) == queue.depth
    return found


def check_contents(world: World, found: Counter[int], *, are_non_persistent_kept: bool) -> None:
    assert not [number for number, times in found.items() if times > 1], "delivered twice"
    assert world.must <= found.keys(), "lost"
    assert found.keys() <= world.must | world.may, "from nowhere"
    assert are_non_persistent_kept or not any(NON_PERSISTENT <= number < NON_PERSISTENT + 10 for number in found)


def check_after(world: World, outcome: Outcome) -> None:
    store = world.store
    assert not owned_locks(), "a lock is held"
    failure = store.lock.failure
    if failure is None:
        outcome.whole += 1
        if not world.is_closed:
            store.check()
            check_contents(world, drained(world), are_non_persistent_kept=True)
            store.check()
    else:
        outcome.failed += 1
        calls: list[Callable[[], object]] = [
            lambda: world.queue.send(b"x"),
            lambda: world.consumer.take(1),
            lambda: world.consumer.ack(world.held),
            lambda: store.bay.queue("another"),
            store.bay.statistics,
            store.bay.checkpoint,
        ]
        for call in calls:
            with pytest.raises((StoreFailed, Closed) if world.is_closed else StoreFailed):
                call()
    store.bay.close()
    store.crash()
    found: Counter[int] = Counter()
    for name in store.bay.destinations():
        found.update(number_of(message.body) for message in store.queue(name).browse())
    check_contents(world, found, are_non_persistent_kept=False)
    store.check()


def go_through(name: str, queue: str, sync: str, most: int) -> None:
    operation = OPERATIONS[name]
    _, places = interrupted(operation(World(queue, sync=sync)))
    assert places > 5
    step = max(1, -(-places // most))
    outcome = Outcome()
    for at in range(1 + SEED % step, places + 1, step):
        world = World(queue, sync=sync)
        where, _ = interrupted(operation(world), at)
        if not where:
            continue  # this time it took another way
        try:
            check_after(world, outcome)
        except BaseException as error:
            error.add_note(f"{name} to {queue!r}, sync {sync!r}, interrupted at place {at} of {places}: {where}")
            raise
    assert outcome.whole and outcome.failed


CASES = [(name, "orders") for name in OPERATIONS] + [(name, "limited") for name in LIMITED]


@pytest.mark.parametrize("sync", ["always", "never"])
@pytest.mark.parametrize(("name", "queue"), CASES)
def test_whatever_breaks_in_the_store_is_whole_or_says_that_it_failed(name: str, queue: str, sync: str) -> None:
    go_through(name, queue, sync, PLACES)


@pytest.mark.soak
@pytest.mark.parametrize("sync", ["always", "never"])
@pytest.mark.parametrize(("name", "queue"), CASES)
def test_each_place_at_which_something_can_break_in(name: str, queue: str, sync: str) -> None:
    go_through(name, queue, sync, 1 << 30)
