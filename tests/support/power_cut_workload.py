"""A process at work on a disk whose power is cut, and the model of what the cut may leave.

The process writes to a log on another disk what each of its threads is about to do, and when the call is confirmed.
Each next life also logs what it finds. The model reads the log when the power is back.

A call is described by what it adds and removes: a send adds, an ack removes, and a commit does both, whole or not at
all. A message is described by its key, from which its content follows.
"""

from __future__ import annotations

import asyncio
import faulthandler
import json
import os
import threading
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final, NoReturn

from loop_disk import LoopDisk, Power

import forebay
import forebay.aio
from forebay import Consumer, Delivery, DestinationPolicy, Forebay, Message, Settings

ORDERS, PRICES, DONE, NEWS = "orders", "prices", "done", "news"
QUEUES: Final = (ORDERS, PRICES, DONE)
AUDIT: Final = "audit"
"""The durable subscription of NEWS."""
MAKERS: Final = 16
"""Number of threads and tasks that make keys."""
DEPTH_MAX: Final = 300
"""Producers wait for consumers at this depth."""
LIVES_KEYS: Final = 1_000_000
FILLER: Final = Random(3).randbytes(128 * 1024)
SIZES: Final = (0, 10, 100, 100, 700, 700, 3_000, 20_000)

# What a line of the log begins with.
BRANCHES, FOUND, OPENED = "branches", "found", "opened"
BEGUN, CONFIRMED = "begun", "confirmed"
PREPARING, PREPARED, DECIDING, DECIDED = "preparing", "prepared", "deciding", "decided"
FAILED = "failed"


def settings_for(*, map_journal: bool, verify_on_open: bool) -> Settings:
    """Return settings with small files and short intervals, so that data logs come and go within a short life."""
    return Settings(
        policies={">": DestinationPolicy(max_attempts=None)},
        memory_limit="8MiB",
        max_file_length="128KiB",
        sync="always",
        map_journal=map_journal,
        verify_on_open=verify_on_open,
        checkpoint_interval_seconds=0.02,
        cleanup_interval_seconds=0.03,
        max_checkpoint_adds=300,
    )


# ---------------------------------------------------------------------- messages


def maker_of(key: int) -> int:
    return key % MAKERS


def priority_of(key: int) -> int:
    """Return the priority of a key. Consecutive keys share it, so that a send_many writes larger slices."""
    return (4, 9, 4, 0)[key // MAKERS // 64 % 4]


def body_of(key: int) -> bytes:
    scattered = key * 2_654_435_761 % 2**32
    start = scattered % 65_536
    return b"%d|" % key + FILLER[start : start + SIZES[scattered >> 29]]


def message_of(key: int) -> Message:
    return Message(body_of(key), priority=priority_of(key))


def key_of(found: Message | Delivery | forebay.aio.Delivery) -> int:
    """Return the key of a message. AssertionError: a part of the message is not as it was sent."""
    key = int(found.body.partition(b"|")[0])
    assert found.body == body_of(key) and found.priority == priority_of(key), f"message {key} was changed"
    return key


# ---------------------------------------------------------------------- the process


class Log:
    """The log that the model reads. A kill of the process leaves whole lines."""

    def __init__(self, path: Path, power: Power) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._power = power

    def tell(self, *event: object) -> None:
        """Write an event, unless the power is cut: a machine without power could not write it."""
        self._power.end_with_it()
        os.write(self._descriptor, json.dumps(event).encode() + b"\n")

    def fail(self) -> NoReturn:
        """Write the present exception and end the process. After the cut, when anything may fail, write nothing."""
        text = traceback.format_exc()
        self._power.end_with_it()
        self.tell(FAILED, text[-3_000:])
        os._exit(1)


class Life:
    """Opens the store, logs what it finds, and works until it is killed."""

    def __init__(self, disk: LoopDisk, log: Path, settings: Settings, seed: int, life: int) -> None:
        self._directory = disk.mount_point / "store"
        self._settings = settings
        self._seed = seed
        self._life = life
        self._log = Log(log, Power(disk))
        self._never = threading.Event()
        self._next_number = [life * LIVES_KEYS] * MAKERS

    def live(self) -> NoReturn:
        """Work until a kill, or until a failure, which is logged."""
        faulthandler.disable()  # after the cut, a lost mapped page may end the process with a signal
        self._do(self._open_and_work)
        raise AssertionError("unreachable")

    def _do(self, work: Callable[[], None]) -> None:
        try:
            work()
        finally:
            self._log.fail()

    def _open_and_work(self) -> None:
        bay = forebay.open(self._directory, self._settings)
        random = Random(self._seed)
        self._decide_branches(bay, random)
        self._say_what_is_there(bay)
        works: list[Callable[[Forebay, int, Random], None]] = [
            self._produce,
            self._produce,
            self._publish,
            self._transact,
            self._consume,
            self._consume,
            self._audit,
            self._keep_house,
            self._run_loop,
        ]
        for number, work in enumerate(works):
            what = bay, number, Random(f"{self._seed} {number}")
            thread = threading.Thread(target=self._do, args=(lambda work=work, what=what: work(*what),), daemon=True)
            thread.start()
        self._never.wait()

    def _decide_branches(self, bay: Forebay, random: Random) -> None:
        found = bay.prepared()
        names = {branch: (branch.xid or b"").decode() for branch in found}
        self._log.tell(BRANCHES, sorted(names.values()))
        for branch, name in names.items():
            is_commit = random.random() < 0.5
            self._log.tell(DECIDING, name, is_commit)
            if is_commit:
                branch.commit()
            else:
                branch.rollback()
            self._log.tell(DECIDED, name)

    def _say_what_is_there(self, bay: Forebay) -> None:
        for name in QUEUES:
            queue = bay.queue(name)
            keys = [key_of(message) for message in queue.browse()]
            assert len(keys) == queue.depth, f"{name} has {queue.depth} messages, {len(keys)} can be seen"
            self._log.tell(FOUND, name, keys)
        with bay.topic(NEWS).subscribe(durable=AUDIT, prefetch=0) as consumer:
            keys = []
            while deliveries := consumer.take(1_000):
                keys += map(key_of, deliveries)
            self._log.tell(FOUND, AUDIT, keys)
        report = bay.recovery
        assert not report.quarantined, f"{report.quarantined} data logs were set aside"
        self._log.tell(OPENED, report.replayed_records, report.truncated_bytes, report.index_rebuilt)

    def _new_keys(self, maker: int, count: int) -> list[int]:
        number = self._next_number[maker]
        self._next_number[maker] += count
        return [ahead * MAKERS + maker for ahead in range(number, number + count)]

    def _produce(self, bay: Forebay, maker: int, random: Random) -> None:
        queues = [bay.queue(ORDERS), bay.queue(PRICES)]
        while True:
            queue = random.choice(queues)
            while queue.depth >= DEPTH_MAX:
                self._never.wait(0.001)
            keys = self._new_keys(maker, random.choice((1, 1, 1, 1, 2, 20)))
            self._log.tell(BEGUN, maker, keys, [], False)
            if len(keys) == 1:
                queue.send(body_of(keys[0]), priority=priority_of(keys[0]))
            else:
                queue.send_many(map(message_of, keys))
            self._log.tell(CONFIRMED, maker)

    def _publish(self, bay: Forebay, maker: int, random: Random) -> None:
        topic = bay.topic(NEWS)
        while True:
            (key,) = self._new_keys(maker, 1)
            self._log.tell(BEGUN, maker, [key], [], False)
            topic.send(body_of(key), priority=priority_of(key))
            self._log.tell(CONFIRMED, maker)
            self._never.wait(random.choice((0.0, 0.002)))

    def _transact(self, bay: Forebay, maker: int, random: Random) -> None:
        done = bay.queue(DONE)
        with bay.queue(ORDERS).subscribe(prefetch=50) as consumer:
            while True:
                taken = consumer.take(random.randint(1, 12), timeout=0.01)
                removes = list(map(key_of, taken))
                adds = self._new_keys(maker, random.randint(0, 6)) if done.depth < DEPTH_MAX else []
                transaction = bay.transaction()
                for key in adds:
                    done.send(body_of(key), priority=priority_of(key), transaction=transaction)
                for delivery in taken:
                    delivery.ack(transaction)
                chosen = random.random()
                if chosen < 0.6:
                    self._log.tell(BEGUN, maker, adds, removes, True)
                    transaction.commit()
                    self._log.tell(CONFIRMED, maker)
                elif chosen < 0.75:
                    transaction.rollback()
                else:
                    name = f"branch {adds[:1]} {removes[:1]} {self._new_keys(maker, 1)}"
                    self._log.tell(PREPARING, name, adds, removes)
                    transaction.prepare(name.encode())
                    self._log.tell(PREPARED, name)
                    if chosen < 0.95:
                        self._log.tell(DECIDING, name, chosen < 0.85)
                        if chosen < 0.85:
                            transaction.commit()
                        else:
                            transaction.rollback()
                        self._log.tell(DECIDED, name)

    def _settle(self, consumer: Consumer, taken: list[Delivery], number: int, random: Random) -> None:
        """Acknowledge most of these deliveries, together or one by one."""
        if not taken:
            return
        if random.random() < 0.1:
            consumer.nack([taken.pop() for _ in taken[::2]])
        if random.random() < 0.5:
            self._log.tell(BEGUN, number, [], list(map(key_of, taken)), False)
            consumer.ack(taken)
            self._log.tell(CONFIRMED, number)
            return
        for delivery in taken:
            self._log.tell(BEGUN, number, [], [key_of(delivery)], False)
            delivery.ack()
            self._log.tell(CONFIRMED, number)

    def _is_stuck(self, key: int) -> bool:
        """Return whether this message stays unacknowledged in its first life, so that relocation has work."""
        life, number = divmod(key // MAKERS, LIVES_KEYS)
        return life == self._life and number % 97 == 0

    def _consume(self, bay: Forebay, number: int, random: Random) -> None:
        consumers = [bay.queue(name).subscribe(prefetch=random.choice((0, 20, 200))) for name in QUEUES]
        while True:
            consumer = random.choice(consumers)
            taken = consumer.take(random.choice((1, 1, 10, 40)), timeout=0.001)
            self._settle(consumer, [found for found in taken if not self._is_stuck(key_of(found))], number, random)

    def _audit(self, bay: Forebay, number: int, random: Random) -> None:
        topic = bay.topic(NEWS)
        while True:
            with topic.subscribe(durable=AUDIT, prefetch=64) as consumer:
                for _ in range(random.randint(5, 60)):
                    self._settle(consumer, consumer.take(random.randint(1, 30), timeout=0.01), number, random)

    def _keep_house(self, bay: Forebay, number: int, random: Random) -> None:
        while True:
            random.choice((bay.cleanup, bay.checkpoint))()
            self._never.wait(random.random() * 0.02)

    def _run_loop(self, bay: Forebay, number: int, random: Random) -> None:
        """Run three senders and a consumer in asyncio, which syncs in a different way than threads."""

        async def send(name: str, maker: int) -> None:
            queue = await forebay.aio.Forebay(bay).queue(name)
            while True:
                (key,) = self._new_keys(maker, 1)
                self._log.tell(BEGUN, maker, [key], [], False)
                await queue.send(body_of(key), priority=priority_of(key))
                self._log.tell(CONFIRMED, maker)
                while queue.depth >= DEPTH_MAX:
                    await asyncio.sleep(0.002)

        async def consume(call: int) -> None:
            queue = await forebay.aio.Forebay(bay).queue(PRICES)
            async with queue.subscribe(prefetch=30) as consumer:
                while True:
                    taken = await consumer.take(10, timeout=0.05)
                    keys = [key_of((await found.read()) if found.is_lazy else found) for found in taken]
                    self._log.tell(BEGUN, call, [], keys, False)
                    await consumer.ack(taken)
                    self._log.tell(CONFIRMED, call)

        async def work() -> None:
            await asyncio.gather(consume(number), *(send(PRICES, number + ahead) for ahead in (1, 2, 3)))

        asyncio.run(work())


# ---------------------------------------------------------------------- the model


@dataclass
class Call:
    """The messages that a call adds and removes. is_whole: all of them or none."""

    adds: list[int]
    removes: list[int]
    is_whole: bool = False


@dataclass
class Branch:
    """A transaction that is prepared, or about to be. `outcome`: the requested outcome, if there is one."""

    call: Call
    is_prepared: bool = False
    outcome: bool | None = None


@dataclass
class Model:
    """The messages that must be there, those that must never come again, and the calls without a known outcome."""

    sent: set[int] = field(default_factory=set)
    pending: set[int] = field(default_factory=set)
    gone: set[int] = field(default_factory=set)
    calls: dict[int, Call] = field(default_factory=dict)
    """The present call of each thread or task."""
    open: list[Call] = field(default_factory=list)
    """Calls of earlier lives whose outcome no life has found yet."""
    branches: dict[str, Branch] = field(default_factory=dict)
    found: list[list[int]] = field(default_factory=list)
    """Keys found in each queue and subscription, as far as this life has logged them."""
    confirmed: int = 0
    opened: int = 0
    replayed: int = 0
    truncated: int = 0

    def read(self, log: Path) -> None:
        """Read the log of one life. AssertionError: it has something that must not happen."""
        self.found.clear()
        if log.exists():
            for line in log.read_bytes().splitlines():
                kind, *rest = json.loads(line)
                getattr(self, f"_hear_{kind}")(*rest)
        self.open += self.calls.values()
        self.calls.clear()

    def _hear_failed(self, text: str) -> None:
        raise AssertionError(text)

    def _hear_begun(self, number: int, adds: list[int], removes: list[int], is_whole: bool) -> None:
        self._begin(Call(adds, removes, is_whole))
        self.calls[number] = Call(adds, removes, is_whole)

    def _begin(self, call: Call) -> None:
        self.sent.update(call.adds)
        assert self.sent.issuperset(call.removes), f"delivered and never sent: {set(call.removes) - self.sent}"
        returned = self.gone.intersection(call.removes)
        assert not returned, f"acknowledged and delivered again: {sorted(returned)}"

    def _hear_confirmed(self, number: int) -> None:
        self._confirm(self.calls.pop(number))

    def _confirm(self, call: Call) -> None:
        self.confirmed += 1
        # A message may be taken and acknowledged before its producer has logged the send.
        self.pending.update(set(call.adds) - self.gone)
        self.pending.difference_update(call.removes)
        self.gone.update(call.removes)

    def _undo(self, call: Call) -> None:
        self.gone.update(call.adds)

    def _hear_preparing(self, name: str, adds: list[int], removes: list[int]) -> None:
        call = Call(adds, removes, True)
        self._begin(call)
        self.branches[name] = Branch(call)

    def _hear_prepared(self, name: str) -> None:
        self.confirmed += 1
        self.branches[name].is_prepared = True

    def _hear_deciding(self, name: str, is_commit: bool) -> None:
        self.branches[name].outcome = is_commit

    def _hear_decided(self, name: str) -> None:
        branch = self.branches.pop(name)
        (self._confirm if branch.outcome else self._undo)(branch.call)

    def _hear_branches(self, names: list[str]) -> None:
        """Note the prepared transactions. All others have been decided or were never prepared."""
        alien = set(names) - self.branches.keys()
        assert not alien, f"prepared, and never asked for: {alien}"
        for name in self.branches.keys() - set(names):
            branch = self.branches[name]
            assert not branch.is_prepared or branch.outcome is not None, f"a prepared branch is lost: {name}"
            branch.outcome = branch.is_prepared and branch.outcome
            self._hear_decided(name)
        for name in names:
            self.branches[name].is_prepared = True

    def _hear_found(self, name: str, keys: list[int]) -> None:
        last: dict[tuple[int, int], int] = {}
        for key in keys if name != DONE else ():  # in DONE, commits decide the order
            line = maker_of(key), priority_of(key)
            assert last.get(line, -1) < key, f"out of order: {key} after {last[line]}"
            last[line] = key
        self.found.append(keys)

    def _hear_opened(self, replayed: int, truncated: int, is_rebuilt: bool) -> None:
        self.opened += 1
        self.replayed += bool(replayed)
        self.truncated += bool(truncated)
        self.settle([key for keys in self.found for key in keys])

    def settle(self, found: list[int]) -> None:
        """Raise AssertionError unless a cut may leave what was found. From now on, exactly that must be there."""
        assert not self.branches, f"decided, and still known: {self.branches}"
        keys = set(found)
        assert len(keys) == len(found), "a message is there twice"
        assert keys <= self.sent, f"found and never sent: {sorted(keys - self.sent)}"
        assert not keys & self.gone, f"acknowledged and back again: {sorted(keys & self.gone)}"
        going = set().union(*(call.removes for call in self.open))
        lost = self.pending - keys - going
        assert not lost, f"lost: {sorted(lost)} of {len(self.pending)}"
        for call in self.open:
            self._check_open(call, keys, self.gone | going)
        self.pending = keys
        self.gone = self.sent - keys
        self.open.clear()

    def _check_open(self, call: Call, keys: set[int], acknowledged: Iterable[int]) -> None:
        came = [key in keys for key in call.adds if key not in acknowledged]
        assert came == sorted(came, reverse=True), f"of one call's messages {call.adds} there are {came}"
        if call.is_whole:
            went = [key not in keys for key in call.removes]
            assert len({*came, *went}) < 2, f"a transaction in part: sends {came}, acks {went}"


def recorded(log: Path) -> bytes:
    """Return the bytes that a life has logged so far."""
    with suppress(FileNotFoundError):
        return log.read_bytes()
    return b""
