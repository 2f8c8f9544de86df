"""Real kills: SIGKILL hits a process at work on a real disk, and the next one finds all that was confirmed.

The process to be killed runs producers and consumers in threads of its own
and tells its parent, through a pipe, what each is about to do and when that
is confirmed. It is killed wherever it is then, its opening included; the next
process opens the same directory, shows what it finds, and goes on. A failure
names its seed, which repeats the work, but not the moment of the kill.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import struct
import threading
import time
import traceback
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import NamedTuple, NoReturn

import pytest
from crashing import FIRST_SEED

import forebay
from forebay import Consumer, Delivery, DestinationPolicy, Forebay, Message, Settings
from forebay.dispatch.config.settings import SyncMode

# From 3.12 on a fork beside another thread warns. Ours are ended by then: it is pytest's own watchdog that counts.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")

SYNC_MODES: tuple[SyncMode, ...] = ("always", "interval", "never")
ROUNDS_MAX = 10
"""Kills of one directory."""
SOAK_KILLS = 10_000

QUEUES = ("orders", "prices")
PRODUCERS = 2
CONSUMERS = 2
DEPTH_MAX = 1_000
"""Producers wait for consumers at this depth."""
CONFIRMATIONS_MAX = 400
LIVE_SECONDS_MAX = 0.04
"""A kill comes after this number of confirmed calls, or this time after the first one."""
OPENING_SECONDS_MAX = 0.03
SILENCE_SECONDS_MAX = 60.0

FILLER = Random(1).randbytes(128 * 1024)
SIZES = (0, 10, 100, 100, 300, 1_000, 1_000, 16_000)
KEY = struct.Struct("<I")


def settings_for(sync: SyncMode) -> Settings:
    """Small and hurried, so that data logs roll and go, and checkpoints come, within a short life."""
    return Settings(
        policies={">": DestinationPolicy(max_attempts=None)},
        memory_limit="8MiB",
        max_file_length="256KiB",
        sync=sync,
        sync_interval_seconds=0.005,
        checkpoint_interval_seconds=0.005,
        cleanup_interval_seconds=0.01,
        max_checkpoint_adds=300,
    )


# ---------------------------------------------------------------------- messages: all of one follows from its key


def key_of(number: int, producer: int, queue: int) -> int:
    return (number * PRODUCERS + producer) * len(QUEUES) + queue


def queue_of(key: int) -> int:
    return key % len(QUEUES)


def producer_of(key: int) -> int:
    return key // len(QUEUES) % PRODUCERS


def number_of(key: int) -> int:
    return key // len(QUEUES) // PRODUCERS


def priority_of(key: int) -> int:
    """For a while the same, or a send_many would be all slices of one message."""
    return (4, 9, 4, 0)[number_of(key) // 64 % 4]


def message_of(key: int) -> Message:
    scattered = key * 2_654_435_761 % 2**32
    start = scattered % 65_536
    body = KEY.pack(key) + FILLER[start : start + SIZES[scattered >> 29]]
    return Message(body, headers={"key": key} if scattered >> 20 & 3 == 0 else {}, priority=priority_of(key))


def is_stuck(key: int) -> bool:
    """Whether nobody ever acknowledges this one."""
    return key % 97 == 0


def checked_key(delivery: Delivery, queue: int) -> int:
    """Return the number of a message. AssertionError: a part of it is not as it was sent."""
    (key,) = KEY.unpack_from(delivery.body)
    received = Message(delivery.body, headers=delivery.headers, priority=delivery.priority)
    assert received == message_of(key) and queue == queue_of(key), f"message {key} was changed"
    return int(key)


def found_in(bay: Forebay) -> list[int]:
    """Keys of all that is pending, in the order in which each queue hands it out."""
    keys: list[int] = []
    for number, name in enumerate(QUEUES):
        queue = bay.queue(name)
        with queue.subscribe(prefetch=0) as consumer:
            found = [checked_key(delivery, number) for delivery in taken(consumer)]
        assert len(found) == queue.depth, f"{name} has {queue.depth} messages, {len(found)} can be had"
        keys += found
    return keys


def taken(consumer: Consumer) -> Iterator[Delivery]:
    while deliveries := consumer.take(1_000):
        yield from deliveries


# ---------------------------------------------------------------------- the pipe

FOUND, OPENED, SENDING, SENT, SETTLING, SETTLED, FAILED = range(7)
HEAD = struct.Struct("<BBH")
"""Kind of the event, thread, bytes of what follows: keys, or for OPENED and FAILED as below."""
OPENING = struct.Struct("<?QQ")
"""Whether the index was rebuilt, replayed records, truncated bytes."""


class Event(NamedTuple):
    kind: int
    thread: int
    payload: bytes

    @property
    def keys(self) -> array[int]:
        return array("I", self.payload)


class Teller:
    """The way to the parent. What was told when a kill comes arrives, and arrives whole."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def tell(self, kind: int, thread: int = 0, payload: bytes = b"") -> None:
        frame = HEAD.pack(kind, thread, len(payload)) + payload
        assert len(frame) <= select.PIPE_BUF, "only what is as short goes into a pipe in one piece"
        os.write(self._descriptor, frame)

    def tell_keys(self, kind: int, thread: int, keys: list[int]) -> None:
        self.tell(kind, thread, array("I", keys).tobytes())


class Listener:
    """The parent's end."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._bytes = b""
        self.is_at_end = False

    def events(self, wait_seconds: float) -> Iterator[Event]:
        """Yield the events that come first within a time, if any come."""
        if not select.select([self._descriptor], [], [], max(wait_seconds, 0.0))[0]:
            return
        read = os.read(self._descriptor, 65_536)
        self.is_at_end = not read
        self._bytes += read
        place = 0
        while len(self._bytes) - place >= HEAD.size:
            kind, thread, size = HEAD.unpack_from(self._bytes, place)
            end = place + HEAD.size + size
            if end > len(self._bytes):
                break
            yield Event(kind, thread, self._bytes[place + HEAD.size : end])
            place = end
        self._bytes = self._bytes[place:]


# ---------------------------------------------------------------------- the process to be killed


class Victim:
    """Opens the directory, tells what it finds, and works until it is killed."""

    def __init__(self, directory: Path, sync: SyncMode, seed: int, starts: list[int], teller: Teller) -> None:
        """starts: number of the first message that each producer sends."""
        self._directory = directory
        self._sync: SyncMode = sync
        self._seed = seed
        self._starts = starts
        self._teller = teller
        self._never = threading.Event()

    def live(self) -> NoReturn:
        """Ends by a kill, or with a FAILED event, or because the parent is gone."""
        try:
            bay = forebay.open(self._directory, settings_for(self._sync))
            keys = found_in(bay)
            for begin in range(0, len(keys), 500):
                self._teller.tell_keys(FOUND, 0, keys[begin : begin + 500])
            report = bay.recovery
            opening = OPENING.pack(report.index_rebuilt, report.replayed_records, report.truncated_bytes)
            self._teller.tell(OPENED, 0, opening)
            for thread in range(PRODUCERS + CONSUMERS):
                threading.Thread(target=self._work, args=(bay, thread)).start()
            self._never.wait()
        finally:
            self._fail()

    def _work(self, bay: Forebay, thread: int) -> None:
        try:
            random = Random(self._seed * 100 + thread)
            if thread < PRODUCERS:
                self._produce(bay, thread, random)
            else:
                self._consume(bay, thread, random)
        finally:
            self._fail()

    def _fail(self) -> NoReturn:
        try:
            self._teller.tell(FAILED, 0, traceback.format_exc().encode()[-3_000:])
        finally:
            os._exit(1)

    def _produce(self, bay: Forebay, producer: int, random: Random) -> None:
        queues = [bay.queue(name) for name in QUEUES]
        number = self._starts[producer]
        while True:
            chosen = random.randrange(len(QUEUES))
            queue = queues[chosen]
            while queue.depth >= DEPTH_MAX:
                self._never.wait(0.001)
            count = random.choice((1, 1, 1, 1, 1, 1, 1, 2, 20, 300))
            keys = [key_of(number + ahead, producer, chosen) for ahead in range(count)]
            number += count
            messages = list(map(message_of, keys))
            self._teller.tell_keys(SENDING, producer, keys)
            if count == 1:
                queue.send(messages[0].body, headers=messages[0].headers, priority=messages[0].priority)
            else:
                queue.send_many(messages)
            self._teller.tell(SENT, producer)

    def _consume(self, bay: Forebay, thread: int, random: Random) -> None:
        consumers = [bay.queue(name).subscribe(prefetch=random.choice((0, 1_000))) for name in QUEUES]
        while True:
            chosen = random.randrange(len(QUEUES))
            consumer = consumers[chosen]
            deliveries = consumer.take(random.choice((1, 1, 10, 100)), timeout=0.001)
            loose = [delivery for delivery in deliveries if not is_stuck(checked_key(delivery, chosen))]
            if random.random() < 0.2:
                random.shuffle(loose)
            if random.random() < 0.1:
                consumer.nack([loose.pop() for _ in loose[::2]])
            if not loose:
                continue
            self._teller.tell_keys(SETTLING, thread, [checked_key(delivery, chosen) for delivery in loose])
            if len(loose) == 1:
                loose[0].ack()
            else:
                consumer.ack(loose)
            self._teller.tell(SETTLED, thread)


# ---------------------------------------------------------------------- the parent


@dataclass
class Model:
    """The messages that must be there, those that must never come again, and the call in flight of each thread."""

    sent: set[int] = field(default_factory=set)
    """All that any call was ever given, confirmed or not."""
    pending: set[int] = field(default_factory=set)
    gone: set[int] = field(default_factory=set)
    coming: dict[int, array[int]] = field(default_factory=dict)
    going: dict[int, array[int]] = field(default_factory=dict)
    confirmed: int = 0

    def tell(self, event: Event) -> None:
        thread, keys = event.thread, event.keys
        if event.kind == SENDING:
            self.coming[thread] = keys
            self.sent.update(keys)
        elif event.kind == SETTLING:
            assert self.sent.issuperset(keys), f"delivered and never sent: {sorted(set(keys) - self.sent)}"
            assert self.gone.isdisjoint(keys), f"acknowledged and delivered again: {sorted(self.gone & set(keys))}"
            self.going[thread] = keys
        elif event.kind == SENT:
            # It may be taken and acknowledged before its own producer goes on.
            self.pending.update(set(self.coming.pop(thread)) - self.gone)
            self.confirmed += 1
        else:
            assert event.kind == SETTLED
            self.gone.update(self.going[thread])
            self.pending.difference_update(self.going.pop(thread))
            self.confirmed += 1

    def settle(self, found: list[int]) -> None:
        """AssertionError unless a kill may leave what was found; from now on that is what must be there."""
        keys = set(found)
        assert len(keys) == len(found), "a message is there twice"
        assert keys <= self.sent, f"found and never sent: {sorted(keys - self.sent)}"
        assert not keys & self.gone, f"acknowledged and back again: {sorted(keys & self.gone)}"
        lost = self.pending.difference(keys, *self.going.values())
        assert not lost, f"lost: {sorted(lost)}"
        acknowledged = self.gone.union(*self.going.values())
        for sending in self.coming.values():
            came = [key in keys for key in sending if key not in acknowledged]
            assert came == sorted(came, reverse=True), f"of one call's messages {list(sending)} there are {came}"
        last: dict[tuple[int, int, int], int] = {}
        for key in found:
            line = queue_of(key), producer_of(key), priority_of(key)
            assert last.get(line, -1) < key, f"out of order: {key} after {last[line]}"
            last[line] = key
        self.pending = keys
        self.gone = self.sent - keys
        self.coming.clear()
        self.going.clear()

    def starts(self) -> list[int]:
        numbers: list[list[int]] = [[-1] for _ in range(PRODUCERS)]
        for key in self.sent:
            numbers[producer_of(key)].append(number_of(key))
        return [max(some) + 1 for some in numbers]


@dataclass
class Tally:
    """The counts of what was checked, over all directories."""

    kills: int = 0
    kills_while_opening: int = 0
    kills_with_a_call_in_flight: int = 0
    messages: int = 0
    acknowledged: int = 0
    confirmed_calls: int = 0
    recoveries_with_replay: int = 0
    recoveries_with_a_torn_tail: int = 0
    data_logs_deleted: int = 0


class Chain:
    """One directory, whose process is killed again and again."""

    def __init__(self, seed: int, sync: SyncMode, directory: Path, tally: Tally) -> None:
        self._seed = seed
        self._sync: SyncMode = sync
        self._directory = directory
        self._tally = tally
        self._random = Random(f"{seed} {sync}")
        self._model = Model()
        self._found: list[int] = []
        self._round = 0

    def run(self, rounds: int) -> None:
        try:
            for self._round in range(rounds):
                self._kill_one()
                if self._random.random() < 0.2:
                    self._open_and_close()
            self._open_and_close()
        except Exception as error:
            raise AssertionError(f"seed {self._seed}, sync={self._sync}, round {self._round}: {error}") from error
        self._count()
        shutil.rmtree(self._directory)

    def _kill_one(self) -> None:
        reading, writing = os.pipe()
        starts, seed = self._model.starts(), self._random.getrandbits(32)
        child = os.fork()
        if not child:
            try:
                os.close(reading)
                Victim(self._directory, self._sync, seed, starts, Teller(writing)).live()
            finally:
                os._exit(1)
        os.close(writing)
        listener = Listener(reading)
        is_open = False
        try:
            is_open = self._watch(listener)
        finally:
            os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
        while not listener.is_at_end:
            is_open |= any([self._hear(event) for event in listener.events(SILENCE_SECONDS_MAX)])
        os.close(reading)
        assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL, f"it ended before it was killed: {status}"
        self._found.clear()
        self._tally.kills += 1
        self._tally.kills_while_opening += not is_open
        self._tally.kills_with_a_call_in_flight += bool(is_open and (self._model.coming or self._model.going))

    def _watch(self, listener: Listener) -> bool:
        """Until its last moment has come; returns whether it was open by then."""
        random, model = self._random, self._model
        if random.random() < 0.15:
            return self._listen(listener, random.uniform(0, OPENING_SECONDS_MAX))
        is_open = False
        before = model.confirmed
        last = before + int(CONFIRMATIONS_MAX * random.random() ** 3)
        live_seconds, pause_seconds = random.uniform(0, LIVE_SECONDS_MAX), random.uniform(0, 0.001)
        deadline: float | None = None
        while not is_open or model.confirmed < last:
            wait_seconds = SILENCE_SECONDS_MAX if deadline is None else deadline - time.monotonic()
            heard = [self._hear(event) for event in listener.events(wait_seconds)]
            if not heard:
                assert deadline is not None, f"no word for {SILENCE_SECONDS_MAX} seconds"
                break
            is_open |= any(heard)
            if deadline is None and model.confirmed > before:
                deadline = time.monotonic() + live_seconds
        self._listen(listener, pause_seconds)
        return is_open

    def _listen(self, listener: Listener, seconds: float) -> bool:
        """For so long; returns whether it told that it is open."""
        is_open = False
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0 and not listener.is_at_end:
            is_open |= any([self._hear(event) for event in listener.events(left)])
        return is_open

    def _hear(self, event: Event) -> bool:
        """Returns whether this tells that the store is open."""
        assert event.kind != FAILED, event.payload.decode(errors="replace")
        if event.kind == FOUND:
            self._found += event.keys
        elif event.kind == OPENED:
            is_rebuilt, replayed, truncated = OPENING.unpack(event.payload)
            assert not is_rebuilt or not self._model.sent, "the index was lost, which a kill may only do to the first"
            self._tally.recoveries_with_replay += bool(replayed)
            self._tally.recoveries_with_a_torn_tail += bool(truncated)
            self._model.settle(self._found)
        else:
            self._model.tell(event)
        return event.kind == OPENED

    def _open_and_close(self) -> None:
        """A life without a kill, in this process, that leaves the marker of a clean shutdown."""
        with forebay.open(self._directory, settings_for(self._sync)) as bay:
            self._model.settle(found_in(bay))

    def _count(self) -> None:
        tally, model = self._tally, self._model
        tally.messages += len(model.sent)
        tally.acknowledged += len(model.gone)
        tally.confirmed_calls += model.confirmed
        data_logs = [int(path.stem.removeprefix("data-")) for path in self._directory.rglob("data-*.log")]
        tally.data_logs_deleted += max(data_logs) - len(data_logs)


def kill(kills: int, sync: SyncMode, directory: Path) -> Tally:
    tally = Tally()
    for seed in range(FIRST_SEED, FIRST_SEED + -(-kills // ROUNDS_MAX)):
        Chain(seed, sync, directory / f"{sync}-{seed}", tally).run(min(ROUNDS_MAX, kills - tally.kills))
    return tally


@pytest.mark.slow
@pytest.mark.parametrize("sync", SYNC_MODES)
def test_kill_loses_nothing_confirmed_and_brings_nothing_back(sync: SyncMode, tmp_path: Path) -> None:
    tally = kill(15, sync, tmp_path)
    print(tally)
    assert tally.kills == 15 and tally.messages and tally.acknowledged and tally.data_logs_deleted


@pytest.mark.soak
@pytest.mark.parametrize("sync", SYNC_MODES)
def test_ten_thousand_kills_lose_nothing_confirmed_and_bring_nothing_back(sync: SyncMode, tmp_path: Path) -> None:
    share = SOAK_KILLS // len(SYNC_MODES) + (sync == "always")
    tally = kill(share, sync, tmp_path)
    print(tally)
    assert tally.kills == share and tally.kills_while_opening and tally.kills_with_a_call_in_flight
