"""Interleaved traffic: a small store, and what all its threads do to it at once, drawn with a seed.

Senders, takers, one that closes and subscribes, one that checkpoints and
cleans up, one that resizes, and the threads of the library. Whoever goes on
when: the limit holds at each step, a message has one owner at a time, each is
acknowledged once, and the store that is found after a crash at any step has
all that was confirmed by then.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from random import Random
from typing import Any, Final, NamedTuple
from unittest.mock import patch

from inside import inside, open_forebay
from interleavings import Schedule, Thread, Turns, any_thread, by_priority, in_the_place_of_threading
from simulated_disk import PowerCut, SimulatedDisk
from simulated_metadata import SimulatedMetadataStore

from forebay import Closed, Consumer, Delivery, DestinationPolicy, Forebay, Message, StateError, TransactionError
from forebay.dispatch.config.settings import Settings
from forebay.dispatch.core.areas import consumer_trials
from forebay.store.format.message_properties import WARY_MAPS, decode_headers, encode_properties, header_values
from forebay.testing import ManualClock

SIZES: Final = ((40, 5_000), (40, 20_000), (40, 5_000, 60_000), (40_000, 250_000))
"""Sizes of bodies. Some fill a data log, and the last ones fill memory."""
LIMITS: Final = ("4MiB", "5MiB", "8MiB")
NUMBER_BYTES: Final = 4
RETURNS: Final = 25
"""About the number of confirmed calls in an interleaving."""
PATIENCE_SECONDS: Final = 0.4
"""A thread that waits for longer in the library was not notified."""
STEPS: Final = 700
"""About the number of points in an interleaving at which threads may change."""


class _PausingDisk(SimulatedDisk):
    """Other threads may go on before each of its calls."""

    def __init__(self, turns: Turns) -> None:
        super().__init__()
        self._turns = turns

    def enter(self, call: str, name: str) -> Any:
        self._turns.pause()
        return super().enter(call, name)


class _PausingMetadataStore(SimulatedMetadataStore):
    """Other threads may go on before a commit."""

    def __init__(self, turns: Turns) -> None:
        super().__init__()
        self._turns = turns

    def commit(self, *args: Any, **fields: Any) -> None:
        self._turns.pause()
        super().commit(*args, **fields)
        self.synced()


class _Books:
    """Everything that a caller knows about the messages, by number."""

    def __init__(self) -> None:
        # Messages whose send has begun.
        self.begun: set[int] = set()
        # Messages whose send has returned.
        self.sent: set[int] = set()
        self.persistent: set[int] = set()
        # Messages whose ack has begun.
        self.settling: set[int] = set()
        # Messages whose ack has returned.
        self.acknowledged: set[int] = set()
        self._owners: dict[int, Consumer] = {}

    def number(self, *, persistent: bool) -> int:
        """Return the number of a message that is sent now."""
        number = len(self.begun)
        self.begun.add(number)
        if persistent:
            self.persistent.add(number)
        return number

    def taken(self, consumer: Consumer, deliveries: list[Delivery]) -> None:
        """Assert that no other consumer holds these messages, and that none was acknowledged."""
        for number in map(number_of, deliveries):
            if not consumer.stage.is_closed:  # or others may have them by now
                assert number not in self.acknowledged, f"message {number} comes again"
                owner = self._owners.get(number)
                assert owner is None or owner.stage.is_closed, f"message {number} has two owners"
                self._owners[number] = consumer

    def given_away(self, deliveries: list[Delivery]) -> None:
        for number in map(number_of, deliveries):
            self._owners.pop(number, None)


class _Crash(NamedTuple):
    """The disk after a crash, and the messages that must and may be pending on it."""

    disk: SimulatedDisk
    metadata: SimulatedMetadataStore
    confirmed: frozenset[int]
    """Messages that must be pending."""
    possible: frozenset[int]
    """Messages that may be pending."""


class InterleavedTraffic:
    """One interleaving. by_line: threads change between lines of the library too."""

    def __init__(self, seed: int, *, by_line: bool = False) -> None:
        self._random = random = Random(seed)
        self._time_share = random.choice((0.0, 0.0, 0.0, 0.01))
        line_share = random.choice((0.003, 0.03, 0.1)) if by_line else 0.0
        clock = ManualClock(seed)
        self._chance = Random(f"standing back {seed}")
        self.turns = Turns(random, _schedule(random), clock, time_share=self._time_share, line_share=line_share)
        self._settings = Settings(
            memory_limit="4MiB",
            max_file_length="64KiB",
            sync=random.choice(("never", "always", "interval")),
            background=random.random() < 0.7,
            max_checkpoint_adds=random.choice((3, 10, 1000)),
            checkpoint_interval_seconds=0.5,
            cleanup_interval_seconds=0.5,
            sync_interval_seconds=0.1,
            policies={">": DestinationPolicy(max_attempts=None)},
        )
        # They go on until all is acknowledged; or else for some steps each.
        self._is_emptied = random.random() < 0.5
        self._sizes = random.choice(SIZES)
        self._crash_at_step = self._crash_at_return = -1
        if random.random() < 0.5:
            self._crash_at_step = random.randrange(STEPS)
        else:
            self._crash_at_return = random.randrange(RETURNS)
        # How often a send or an ack was confirmed.
        self._returns = 0
        self._crash: _Crash | None = None
        self._books = _Books()
        self._consumers: list[Consumer] = []
        # How many senders still work.
        self._senders = 2

    def run(self) -> None:
        """Raises what is wrong."""
        _calm_decoders()
        with in_the_place_of_threading(self.turns), _alarmed(self.turns), self._often_left():
            self.turns.run(self._main)

    @contextmanager
    def _often_left(self) -> Iterator[None]:
        """In half of the runs the loader leaves any list to its consumer, and chance says whether that one pauses."""
        if self._chance.random() < 0.5:
            yield
            return
        clock, computed, seen = self.turns.clock, 0.0, 0.0

        def computed_seconds() -> tuple[float, float]:
            nonlocal computed, seen
            computed += self._chance.choice((0.5, 1.0)) * (clock.monotonic() - seen)
            seen = clock.monotonic()
            return computed, computed

        with (
            patch.object(clock, "computed_seconds", computed_seconds),
            patch.multiple(consumer_trials, FILLS_MAX=0, FED_SECONDS=0.0, _may_be_left=consumer_trials._is_alone),
        ):
            yield

    def _main(self) -> None:
        random, books = self._random, self._books
        self._disk: SimulatedDisk = _PausingDisk(self.turns)
        self._metadata: SimulatedMetadataStore = _PausingMetadataStore(self.turns)
        self._bay = self._open()
        self._queue = self._bay.queue("orders")
        for _ in range(random.choice((0, 3, 10))):
            self._send(random)
        shared = self._subscribe(random, None) if random.random() < 0.3 else None
        self._together(
            partial(self._sender, _fork(random)),
            partial(self._sender, _fork(random)),
            partial(self._taker, _fork(random), shared, None),
            partial(self._taker, _fork(random), shared, random.choice((None, None, "n >= 7"))),
            partial(self._closer, _fork(random)),
            partial(self._keeper, _fork(random)),
            partial(self._resizer, _fork(random)),
        )
        crash = self._crash or self._crashed()
        if not self._time_share:
            waited = self.turns.clock.monotonic()
            assert waited < PATIENCE_SECONDS, f"nobody woke who waited for {waited} s"
        self._check()
        for consumer in self._consumers:
            consumer.close()
        left = self._left(self._bay)
        assert left == books.sent - books.acknowledged, f"{left} is left of {books.sent - books.acknowledged}"
        self._check()
        self._bay.close()
        self._disk, self._metadata = crash.disk, crash.metadata
        with self._open() as again:
            left = self._left(again)
            assert crash.confirmed <= left <= crash.possible, f"{left}, {crash}"
            self._check()

    def _open(self) -> Forebay:
        bay = open_forebay(self._disk, lambda store_id, cache_bytes: self._metadata, self._settings, self.turns.clock)
        self._inside = inside(bay)
        self.turns.at_each_step = self._look
        return bay

    def _look(self) -> None:
        """At each step."""
        budget = self._inside.budget
        assert budget.held_bytes <= budget.limit_bytes
        if self.turns.steps == self._crash_at_step:
            self._crash = self._crashed()

    def _returned(self) -> None:
        """Something is confirmed just now."""
        if self._returns == self._crash_at_return:
            self._crash = self._crashed()
        self._returns += 1

    def _crashed(self) -> _Crash:
        """The power fails, if all is synced that is confirmed, or else the process is killed."""
        books = self._books
        with self.turns.alone():  # or the disk would be older than the index
            confirmed = frozenset((books.sent & books.persistent) - books.settling)
            possible = frozenset(books.persistent - books.acknowledged)
            if self._settings.sync == "always":
                disk = self._disk.crash_power(self._random, self._random.choice(list(PowerCut)))
            else:
                disk = self._disk.crash_process()
            metadata = SimulatedMetadataStore(self._metadata.history[-1])
        return _Crash(disk, metadata, confirmed, possible)

    def _together(self, *works: partial[None]) -> None:
        threads = [Thread(self.turns, target=work, name=work.func.__name__) for work in works]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _left(self, bay: Forebay) -> set[int]:
        """Whatever is pending, acknowledged now."""
        found: list[int] = []
        with bay.queue("orders").subscribe(prefetch=0) as consumer:
            while deliveries := consumer.take(10, timeout=1.0):
                found += map(number_of, deliveries)
                consumer.ack(deliveries)
        assert len(set(found)) == len(found)
        return set(found)

    def _check(self) -> None:
        self.turns.rest()  # the ledger knows what is being loaded, the lists do not yet
        self._inside.check()

    # ------------------------------------------------------------------ sending

    def _sender(self, random: Random) -> None:
        for _ in range(random.choice((2, 5))):
            self._send(random)
        self._senders -= 1
        self._look_for_the_end()

    def _send(self, random: Random) -> None:
        dice = random.random()
        persistent = dice >= 0.2
        messages_count = random.choice((2, 5)) if 0.7 < dice < 0.85 else 1
        numbers = [self._books.number(persistent=persistent) for _ in range(messages_count)]
        messages = [
            Message(number.to_bytes(NUMBER_BYTES) + bytes(random.choice(self._sizes)), {"n": number})
            for number in numbers
        ]
        if dice < 0.7:
            priority = random.choice((4, 4, 9))
            self._queue.send(messages[0].body, headers=messages[0].headers, persistent=persistent, priority=priority)
        elif dice < 0.85:
            self._queue.send_many(messages)
        else:
            with self._bay.transaction() as transaction:
                self._queue.send(messages[0].body, headers=messages[0].headers, transaction=transaction)
        self._books.sent.update(numbers)
        self._returned()

    # ------------------------------------------------------------------ taking

    def _taker(self, random: Random, shared: Consumer | None, selector: str | None) -> None:
        consumer = shared or self._subscribe(random, selector)
        for _ in count() if self._is_emptied else range(random.choice((3, 10))):
            if self._is_over:
                return
            timeout = None if self._is_emptied else random.choice((0.0, 0.0, 0.01))
            try:
                self._settle(random, consumer, self._take(consumer, random.choice((1, 1, 3, 10)), timeout))
            except (Closed, StateError, TransactionError):  # the last two: they went back, for others to take
                assert consumer.stage.is_closed
                if not self._is_over:
                    consumer = self._subscribe(random, selector)

    def _subscribe(self, random: Random, selector: str | None) -> Consumer:
        consumer = self._queue.subscribe(selector=selector, prefetch=random.choice((0, 1, 3, 1000)))
        self._consumers.append(consumer)
        self._look_for_the_end()
        return consumer

    def _take(self, consumer: Consumer, most: int, timeout: float | None) -> list[Delivery]:
        deliveries = consumer.take(most, timeout=timeout)
        self._books.taken(consumer, deliveries)
        return deliveries

    def _settle(self, random: Random, consumer: Consumer, deliveries: list[Delivery]) -> None:
        while deliveries:
            some = deliveries[: random.choice((1, len(deliveries)))]
            deliveries = deliveries[len(some) :]
            random.shuffle(some)
            self._books.given_away(some)
            if random.random() < 0.2:
                consumer.nack(some, delay=random.choice((0.0, 0.0, 0.01)))
            elif random.random() < 0.1 and all(delivery.persistent for delivery in some):
                with self._acknowledging(some), self._bay.transaction() as transaction:
                    consumer.ack(some, transaction=transaction)
            else:
                with self._acknowledging(some):
                    consumer.ack(some)
            self._look_for_the_end()

    @contextmanager
    def _acknowledging(self, deliveries: list[Delivery]) -> Iterator[None]:
        numbers = set(map(number_of, deliveries))
        self._books.settling |= numbers
        yield
        self._books.acknowledged |= numbers
        self._returned()

    @property
    def _is_over(self) -> bool:
        return self._is_emptied and not self._senders and self._books.acknowledged == self._books.sent

    def _look_for_the_end(self) -> None:
        """End all waiting takes if the traffic is over."""
        if self._is_over:
            for consumer in self._consumers:
                consumer.close()

    # ------------------------------------------------------------------ what disturbs them

    def _closer(self, random: Random) -> None:
        for _ in range(random.choice((1, 4))):
            if random.random() < 0.5 and self._consumers:
                consumer = random.choice(self._consumers)
                if random.random() < 0.5:
                    consumer.close()
                else:
                    consumer.prefetch = random.choice((0, 1, 3))
                continue
            with self._queue.subscribe(selector=random.choice((None, "n >= 3")), prefetch=2) as consumer:
                deliveries = self._take(consumer, random.choice((1, 3)), 0.0)
                if random.random() < 0.5:
                    self._settle(random, consumer, deliveries)

    def _keeper(self, random: Random) -> None:
        for _ in range(random.choice((1, 4))):
            what = random.choice((self._bay.checkpoint, self._bay.cleanup, self._step, self._ask, self._browse))
            what()

    def _step(self) -> None:
        if not self._settings.background:
            self._bay.step()

    def _ask(self) -> None:
        memory = self._bay.statistics().memory
        assert memory.held_bytes <= memory.limit_bytes

    def _browse(self) -> None:
        for _ in zip(range(3), self._queue.browse(), strict=False):
            pass

    def _resizer(self, random: Random) -> None:
        for _ in range(random.choice((0, 1, 3))):
            self._bay.resize(random.choice(LIMITS))


def number_of(delivery: Delivery) -> int:
    """Return the number of a delivered message, and assert that its body is whole."""
    body = delivery.body
    assert body.endswith(bytes(len(body) - NUMBER_BYTES))
    return int.from_bytes(body[:NUMBER_BYTES])


class _Alarm(logging.Handler):
    """An error that a background thread outlives ends the run. Without a lock, which the turns would not know."""

    def __init__(self, turns: Turns) -> None:
        super().__init__(logging.ERROR)
        self._turns = turns

    def createLock(self) -> None:
        self.lock = None

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info is not None else None
        self._turns.fail(error or AssertionError(record.getMessage()))


@contextmanager
def _alarmed(turns: Turns) -> Iterator[None]:
    logger, alarm = logging.getLogger("forebay"), _Alarm(turns)
    level = logger.level
    logger.setLevel(logging.ERROR)
    logger.addHandler(alarm)
    logger.propagate = False
    try:
        yield
    finally:
        logger.propagate = True
        logger.removeHandler(alarm)
        logger.setLevel(level)


def _fork(random: Random) -> Random:
    """One of its own for each thread."""
    return Random(random.random())


def _calm_decoders() -> None:
    """Read so many plain headers that no decoder is wary any more of what other tests had it read: where one decodes
    in another way, other threads go on between its lines.
    """
    plain = encode_properties({"n": 0})
    for _ in range(WARY_MAPS):
        decode_headers(plain)
        header_values(plain, frozenset(("n",)))


def _schedule(random: Random) -> Schedule:
    if random.random() < 0.5:
        return by_priority(random, changes=random.choice((1, 3, 10, 30)), steps=STEPS)
    return any_thread(random, random.choice((0.03, 0.1, 0.3, 1.0)))
