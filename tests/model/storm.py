"""A storm of crashes over all that moves messages: the depth of a queue is what a browser finds and a consumer gets.

Dead letters of each kind, moves, purges, transactions, durable subscriptions,
groups, priorities, delays and expiry, with checkpoints and cleanups in
between. A seed draws it all; see crashing.py. The model knows no order and no
place: a message is pending once, somewhere, or it is not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple

from crashing import POWER_CUTS, CrashingWorkload, Left, Life, same
from inside import inside
from interplay_model import check_stored
from simulated_disk import SimulatedDisk
from simulated_metadata import SimulatedMetadataStore

from forebay import Consumer, Delivery, DestinationPolicy, Forebay, Message, Transaction
from forebay.dispatch.config.redelivery_delays import SUBSCRIPTION
from forebay.dispatch.config.settings import SyncMode
from forebay.testing import ManualClock

QUEUES = ("orders", "prices", "bounded", "fading", "plain", "worthless")
DEAD_LETTER_QUEUES = ("DLQ.orders", "dead", "DLQ.news")
TOPICS = ("news", "ticks")
SUBSCRIPTIONS = ("first", "second")
POLICIES = {
    "orders": DestinationPolicy(max_attempts=2),
    "prices": DestinationPolicy(max_attempts=1, dead_letter_queue="dead", redelivery_delay_seconds=1.0),
    "bounded": DestinationPolicy(max_messages=12, when_full="dead_letter", dead_letter_queue="dead", max_attempts=3),
    "fading": DestinationPolicy(expired_to_dead_letter=True, dead_letter_queue="dead", expiry_sweep_seconds=0.5),
    "plain": DestinationPolicy(max_attempts=None, expiry_sweep_seconds=1.0),
    "worthless": DestinationPolicy(max_attempts=1, dead_letter_queue=None),
    "news": DestinationPolicy(max_attempts=2, count_on_close="all"),
    "ticks": DestinationPolicy(max_attempts=1, dead_letter_queue="dead", expiry_sweep_seconds=0.5),
}
EVERYTHING = 1_000_000
DIGITS = 8
LONG_SECONDS = 100.0
"""Behind every delay and every expiry."""
STEPS = 10
"""Steps after which every message with enough attempts has been given up."""
PENDING_MAX = 120

Key = tuple[int, str]
"""A message, by the number in its body, and the durable subscription that it waits for or that gave it up; "" without
one."""

WEIGHTS = {
    "send": (2, 5),
    "send_many": (1, 3),
    "publish": (0, 1, 3),
    "publish_many": (0, 1, 3),
    "subscribe": (1,),
    "unsubscribe": (0, 0, 1),
    "take": (6, 12),
    "ack": (1, 4),
    "nack": (2, 8),
    "close_consumer": (0, 1, 2),
    "purge": (0, 0, 1),
    "move": (0, 1, 3),
    "send_in": (0, 1, 3),
    "ack_in": (0, 1, 3),
    "commit": (1, 3),
    "rollback": (0, 1),
    "prepare": (0, 1),
    "end_prepared": (1, 2),
    "checkpoint": (0, 1, 2),
    "cleanup": (0, 1, 2),
    "step": (2, 4, 8),
    "reopen": (0, 1),
    "compare": (1, 2),
}
"""By operation, the weights of which each seed draws one."""


class Branch(NamedTuple):
    sent: frozenset[Key]
    acked: frozenset[Key]
    back: frozenset[Key]
    """The acknowledged messages that are certainly pending again after a rollback."""


@dataclass
class Model:
    """The messages that must be pending, and those that may be."""

    seed: int
    next_number: int = 0
    sure: set[Key] = field(default_factory=set)
    maybe: set[Key] = field(default_factory=set)
    """Messages that may be pending: a call without an outcome, or time, decides. No others are pending."""
    worthless: set[Key] = field(default_factory=set)
    """Messages that were in a queue which discards dead letters. A power cut may bring them back there."""
    branches: dict[bytes, Branch] = field(default_factory=dict)
    prepared: set[bytes] = field(default_factory=set)
    subscriptions: set[tuple[str, str]] = field(default_factory=set)
    has_lost: bool = False
    """Whether a power cut may have taken records that were not synced, and no recovery has shown yet how many."""
    is_vague: bool = False
    """Whether a power cut ever did so: then messages that came back and went again unseen may be delivered."""

    def fork(self) -> Model:
        return Model(
            self.seed,
            self.next_number,
            self.sure.copy(),
            self.maybe.copy(),
            self.worthless.copy(),
            self.branches.copy(),
            self.prepared.copy(),
            self.subscriptions.copy(),
            self.has_lost,
            self.is_vague,
        )

    def number(self) -> int:
        self.next_number += 1
        return self.next_number

    def begins(self, keys: Iterable[Key]) -> None:
        """Note that a call decides about these messages."""
        self.maybe.update(keys)
        self.sure -= self.maybe

    def are_sure(self, keys: Iterable[Key]) -> None:
        """They are pending, if time and the last attempt do not decide."""
        sure = {key for key in keys if not is_mortal(key[0], self.seed)} - self.worthless
        self.sure |= sure
        self.maybe -= sure

    def discards(self, keys: Iterable[Key]) -> None:
        """They go where their last attempt is their end."""
        keys = set(keys)
        self.worthless |= keys
        self.begins(keys)

    def are_gone(self, keys: Iterable[Key]) -> None:
        gone = set(keys)
        self.sure -= gone
        self.maybe -= gone

    def check(self, found: set[Key], *, loses: bool) -> None:
        if loses or self.has_lost:
            return
        missing, strange = self.sure - found, found - self.sure - self.maybe
        assert not missing, f"missing {sorted(missing)}"
        assert self.is_vague or not strange, f"came back {sorted(strange)}"

    def settle(self, found: set[Key]) -> None:
        """This was found in a copy, behind all times: what time decides about stays open."""
        self.sure &= found
        self.are_sure(found - self.maybe)
        self.is_vague |= self.has_lost
        self.has_lost = False

    def ends(self, branch: Branch, *, commits: bool) -> None:
        """Note that a transaction has its outcome."""
        if commits:
            self.are_gone(branch.acked)
            self.begins(branch.sent)
            self.are_sure(branch.sent)
        else:
            self.are_sure(branch.back)


def is_mortal(number: int, seed: int) -> bool:
    """Whether a message has an expiry."""
    return Random(seed * 1_000_037 + number).random() < 0.15


def message_of(number: int, seed: int, *, is_timed: bool = True) -> Message:
    """Always the same one."""
    random = Random(seed * 1_000_003 + number)
    size = random.choice((0, 20, random.randrange(400), 400, random.randrange(8_000)))
    expires_in = random.choice((0.3, 1.0, 5.0)) if is_mortal(number, seed) and is_timed else None
    delay = random.choice((0.5, 3.0)) if is_timed and random.random() < 0.1 else 0.0
    return Message(
        b"%0*d" % (DIGITS, number) + bytes(size),
        headers={"kind": number % 3} if random.random() < 0.5 else None,
        priority=random.choice(((4,), (4, 9), tuple(range(10)))[seed % 3]),
        message_id=f"own-{number}" if random.random() < 0.2 else None,
        group=random.choice("abc") if random.random() < (0.0, 0.3)[seed // 3 % 2] else None,
        expires_in=expires_in,
        delay=delay,
    )


def key_of(found: Message | Delivery, subscription: str = "") -> Key:
    headers = found.headers or {}
    return int(found.body[:DIGITS]), subscription or str(headers.get(SUBSCRIPTION, ""))


# ---------------------------------------------------------------------- what is there


def compare(bay: Forebay) -> None:
    """Each depth is the number of messages that a browser meets there, those that have expired included."""
    statistics = bay.statistics().destinations
    for name in bay.destinations():
        walked = [
            key
            for lane, messages in inside(bay).browsers.walk(inside(bay).queue_state(name), None)
            for key in [(lane.pending_lane.number, lane.is_persistent, message[0]) for message in messages]
        ]
        browsed = [key_of(message) for message in bay.queue(name).browse()]
        depth = bay.queue(name).depth
        assert depth == statistics[name].depth == len(walked), f"{name}: depth {depth}, walked {len(walked)}"
        assert len(set(walked)) == len(walked), f"{name}: one place twice"
        assert len(set(browsed)) == len(browsed) <= depth, f"{name}: browsed twice {twice(browsed)}"


def twice(keys: Iterable[Key]) -> list[Key]:
    return [key for key, times in Counter(keys).items() if times > 1]


def drained(bay: Forebay, clock: ManualClock, model: Model) -> set[Key]:
    """All that is pending, once nothing is delayed any more and all that has expired or was given up is gone."""
    compare(bay)
    for transaction in bay.prepared():
        assert transaction.xid is not None
        commits = transaction.xid[-1] % 2 == 0
        (transaction.commit if commits else transaction.rollback)()
        model.ends(model.branches[transaction.xid], commits=commits)
        compare(bay)
    clock.advance(LONG_SECONDS)
    for _ in range(STEPS):
        bay.step()
        clock.advance(1.0)
    compare(bay)
    browsed = {name: [key_of(message) for message in bay.queue(name).browse()] for name in bay.destinations()}
    keys: list[Key] = []
    for name in bay.destinations():
        with bay.queue(name).subscribe(prefetch=0) as consumer:
            taken = all_of(consumer)
        found = [key_of(delivery) for delivery in taken]
        assert sorted(found) == sorted(browsed[name]), f"{name}: {len(found)} delivered, {len(browsed[name])} browsed"
        assert bay.queue(name).depth == len(found), f"{name}: depth {bay.queue(name).depth}, {len(found)} delivered"
        keys += found
    for topic in bay.topics():
        for name in bay.topic(topic).subscriptions():
            depth = bay.topic(topic).statistics().subscriptions[name].depth
            with bay.topic(topic).subscribe(durable=name, prefetch=0) as consumer:
                found = [key_of(delivery, name) for delivery in all_of(consumer)]
            assert depth == len(found), f"{topic}/{name}: depth {depth}, {len(found)} delivered"
            keys += found
    assert len(set(keys)) == len(keys), f"in two places: {twice(keys)}"
    return set(keys)


def all_of(consumer: Consumer) -> list[Delivery]:
    deliveries: list[Delivery] = []
    while taken := consumer.take(EVERYTHING):
        deliveries += taken
    return deliveries


# ---------------------------------------------------------------------- what is done


@dataclass(eq=False)
class Taker:
    destination: str
    subscription: str
    consumer: Consumer
    held: list[Delivery] = field(default_factory=list)


@dataclass(eq=False)
class Open:
    """A transaction under way."""

    transaction: Transaction
    sent: set[Key] = field(default_factory=set)
    acked: set[Key] = field(default_factory=set)

    def branch(self, model: Model) -> Branch:
        return Branch(frozenset(self.sent), frozenset(self.acked), frozenset(self.acked & model.sure))


class Workload:
    """One operation a step; the model hears before and after each call."""

    def __init__(
        self,
        model: Model,
        random: Random,
        bay: Forebay,
        reopen: Callable[[], Forebay],
        advance: Callable[[float], None],
    ) -> None:
        self._model, self._random, self._bay = model, random, bay
        self._do_reopen, self._advance = reopen, advance
        draw = Random(model.seed)
        self._weights = {name: draw.choice(choices) for name, choices in WEIGHTS.items()}
        self._takers: list[Taker] = []
        self._open: list[Open] = []
        self.name = ""

    def step(self) -> None:
        names, weights = list(self._weights), list(self._weights.values())
        self.name = self._random.choices(names, weights)[0]
        if "send" in self.name or "publish" in self.name:
            if len(self._model.sure) > PENDING_MAX:
                self.name = self._random.choice(("take", "ack", "purge"))
        getattr(self, f"_{self.name}")()

    # ------------------------------------------------------------------ sending

    def _messages(self, count: int, *, is_timed: bool = True) -> list[tuple[int, Message]]:
        numbers = [self._model.number() for _ in range(count)]
        return [(number, message_of(number, self._model.seed, is_timed=is_timed)) for number in numbers]

    def _send(self) -> None:
        name = self._random.choice(QUEUES)
        [(number, message)] = self._messages(1)
        self._put({(number, "")}, name, lambda: send(self._bay.queue(name), message))

    def _send_many(self) -> None:
        name = self._random.choice(QUEUES)
        messages = self._messages(self._random.choice((2, 5, 30)))
        keys = {(number, "") for number, _ in messages}
        self._put(keys, name, lambda: self._bay.queue(name).send_many(message for _, message in messages))

    def _publish(self) -> None:
        self._put_topic(1)

    def _publish_many(self) -> None:
        self._put_topic(self._random.choice((2, 5, 30)))

    def _put_topic(self, count: int) -> None:
        topic = self._random.choice(TOPICS)
        subscribed = [name for found, name in self._model.subscriptions if found == topic]
        messages = self._messages(count)
        keys = {(number, name) for number, _ in messages for name in subscribed}
        self._put(keys, topic, lambda: self._bay.topic(topic).send_many(message for _, message in messages))

    def _put(self, keys: set[Key], name: str, call: Callable[[], object]) -> None:
        if name == "worthless":
            self._model.discards(keys)
        self._model.begins(keys)
        call()
        self._model.are_sure(keys)

    # ------------------------------------------------------------------ subscriptions

    def _subscribe(self) -> None:
        topic, name = self._random.choice(TOPICS), self._random.choice(SUBSCRIPTIONS)
        if (topic, name) not in self._model.subscriptions:
            self._bay.topic(topic).subscribe(durable=name).close()
            self._model.subscriptions.add((topic, name))

    def _unsubscribe(self) -> None:
        if not self._model.subscriptions:
            return
        topic, name = self._random.choice(sorted(self._model.subscriptions))
        if any((taker.destination, taker.subscription) == (topic, name) for taker in self._takers):
            return
        # A number is in one topic alone; which of the two is not known here, nor what is in a dead-letter queue.
        self._model.begins({key for key in self._model.sure if key[1] == name})
        self._bay.topic(topic).unsubscribe(name)
        self._model.subscriptions.remove((topic, name))

    # ------------------------------------------------------------------ consumers

    def _take(self) -> None:
        if not self._takers or (len(self._takers) < 6 and self._random.random() < 0.4):
            self._takers.append(self._new_taker())
        taker = self._random.choice(self._takers)
        taken = taker.consumer.take(self._random.choice((1, 3, 10, 50)))
        for delivery in taken:
            key = key_of(delivery, taker.subscription)
            is_known = key in self._model.sure or key in self._model.maybe or self._model.is_vague
            assert is_known, f"{key} was delivered and is not pending"
        taker.held += taken

    def _new_taker(self) -> Taker:
        random = self._random
        prefetch = random.choice((0, 3, 1000))
        offline = sorted(self._model.subscriptions - {(t.destination, t.subscription) for t in self._takers})
        if offline and random.random() < 0.4:
            topic, name = random.choice(offline)
            return Taker(topic, name, self._bay.topic(topic).subscribe(durable=name, prefetch=prefetch))
        name = random.choice((*QUEUES, *QUEUES, *DEAD_LETTER_QUEUES))
        return Taker(name, "", self._bay.queue(name).subscribe(prefetch=prefetch))

    def _batch(self, *, of_queues: bool = False) -> tuple[Taker, list[Delivery]] | None:
        holding = [taker for taker in self._takers if taker.held and not (of_queues and taker.subscription)]
        if not holding:
            return None
        taker = self._random.choice(holding)
        held = taker.held
        batch = self._random.choice((held[:1], held[:], self._random.sample(held, self._random.randint(1, len(held)))))
        taker.held = [delivery for delivery in held if delivery not in batch]
        return taker, batch

    def _ack(self) -> None:
        found = self._batch()
        if found is not None:
            taker, batch = found
            keys = {key_of(delivery, taker.subscription) for delivery in batch}
            self._model.begins(keys)
            taker.consumer.ack(batch)
            self._model.are_gone(keys)

    def _nack(self) -> None:
        found = self._batch()
        if found is not None:
            taker, batch = found
            taker.consumer.nack(batch, delay=self._random.choice((0.0, 0.0, 3.0)))

    def _close_consumer(self) -> None:
        if self._takers:
            taker = self._takers.pop(self._random.randrange(len(self._takers)))
            taker.consumer.close()

    # ------------------------------------------------------------------ queues

    def _name(self) -> str | None:
        names = [name for name in (*QUEUES, *DEAD_LETTER_QUEUES) if name in self._bay.destinations()]
        return self._random.choice(names) if names else None

    def _purge(self) -> None:
        name = self._name()
        if name is None:
            return
        before = {key_of(message) for message in self._bay.queue(name).browse()}
        were_sure = before & self._model.sure
        self._model.begins(before)
        self._bay.queue(name).purge()
        after = {key_of(message) for message in self._bay.queue(name).browse()}
        self._model.are_gone(before - after)
        self._model.are_sure(were_sure & after)

    def _move(self) -> None:
        name, to = self._name(), self._random.choice(QUEUES)
        if name is None or name == to:
            return
        if "bounded" not in (name, to):
            if to == "worthless":
                self._model.discards(key_of(message) for message in self._bay.queue(name).browse())
            limit = self._random.choice((None, 1, 5))
            self._bay.queue(name).move(to, self._random.choice((None, None, "kind = 1")), limit)

    # ------------------------------------------------------------------ transactions

    def _one(self) -> Open:
        if not self._open or (len(self._open) < 3 and self._random.random() < 0.3):
            self._open.append(Open(self._bay.transaction()))
        return self._random.choice(self._open)

    def _send_in(self) -> None:
        found, name = self._one(), self._random.choice(("orders", "prices", "plain"))
        messages = self._messages(self._random.choice((1, 2, 30)), is_timed=False)
        self._bay.queue(name).send_many((message for _, message in messages), transaction=found.transaction)
        found.sent |= {(number, "") for number, _ in messages}

    def _ack_in(self) -> None:
        batch = self._batch(of_queues=True)
        if batch is not None:
            taker, deliveries = batch
            found = self._one()
            taker.consumer.ack(deliveries, transaction=found.transaction)
            found.acked |= {key_of(delivery, taker.subscription) for delivery in deliveries}

    def _commit(self) -> None:
        if self._open:
            found = self._open.pop(self._random.randrange(len(self._open)))
            self._commits(found.branch(self._model), found.transaction)

    def _commits(self, branch: Branch, transaction: Transaction) -> None:
        self._model.begins(branch.sent | branch.acked)
        transaction.commit()
        self._model.ends(branch, commits=True)

    def _rollback(self) -> None:
        if self._open:
            found = self._open.pop(self._random.randrange(len(self._open)))
            self._rolls_back(found.branch(self._model), found.transaction)

    def _rolls_back(self, branch: Branch, transaction: Transaction) -> None:
        transaction.rollback()
        self._model.ends(branch, commits=False)

    def _prepare(self) -> None:
        if self._open and len(self._model.prepared) < 3:
            found, xid = self._open.pop(0), b"xid %d" % self._random.getrandbits(48)
            self._model.branches[xid] = found.branch(self._model)
            self._model.begins(found.acked)
            found.transaction.prepare(xid)
            self._model.prepared.add(xid)

    def _end_prepared(self) -> None:
        transactions = self._bay.prepared()
        if transactions:
            transaction = self._random.choice(transactions)
            assert transaction.xid is not None
            branch = self._model.branches[transaction.xid]
            self._model.prepared.discard(transaction.xid)
            if self._random.random() < 0.6:
                self._commits(branch, transaction)
            else:
                self._rolls_back(branch, transaction)

    # ------------------------------------------------------------------ the store

    def _checkpoint(self) -> None:
        self._bay.checkpoint()

    def _cleanup(self) -> None:
        self._bay.cleanup()

    def _step(self) -> None:
        self._advance(self._random.choice((0.2, 2.0, 40.0)))
        self._bay.step()

    def _compare(self) -> None:
        compare(self._bay)

    def _reopen(self) -> None:
        self._takers.clear()
        self._open.clear()
        self._bay = self._do_reopen()


def send(queue: Any, message: Message) -> None:
    queue.send(
        message.body,
        headers=message.headers,
        priority=message.priority,
        message_id=message.message_id,
        group=message.group,
        expires_in=message.expires_in,
        delay=message.delay,
    )


# ---------------------------------------------------------------------- crashes


class Storm(CrashingWorkload[Model]):
    kill_share = 0.6
    going_on_share = 0.05
    depth_max = 3
    index_lost_share = 0.05
    steps = (30, 250)
    later_steps = (0, 40)
    power_cuts = POWER_CUTS

    def __init__(self, seed: int, sync: SyncMode, **fields: Any) -> None:
        fields = {"memory_limit": "8MiB", "policies": POLICIES} | fields
        super().__init__(seed, sync, **fields)
        self.call_share = Random(seed).choice((0.01, 0.02, 0.05))

    def new_model(self) -> Model:
        return Model(self.seed)

    def open(
        self,
        disk: SimulatedDisk,
        metadata: SimulatedMetadataStore,
        clock: ManualClock | None = None,
        **fields: Any,
    ) -> Forebay:
        self._clock = clock or ManualClock(self.random.getrandbits(64))
        return super().open(disk, metadata, self._clock, use_vectored_io=self.random.random() < 0.7, **fields)

    def worker(self, life: Life[Model]) -> Callable[[], object]:
        random = self.random

        def step() -> None:
            try:
                workload.step()
            finally:
                self.place += f" {workload.name}"
            life.clock.advance(random.choice((0.0, 0.2, 2.0)))

        def reopen() -> Forebay:
            return self.reopen(life)

        workload = Workload(life.model, random, life.bay, reopen, life.clock.advance)
        return step

    def between(self, life: Life[Model]) -> None:
        check_stored(life.bay)
        compare(life.bay)

    def _loses(self, left: Left) -> bool:
        return not left.is_kill and self.sync != "always"

    def goes_on(self, left: Left, model: Model) -> None:
        model.has_lost |= self._loses(left)

    def settle(self, bay: Forebay, model: Model) -> None:
        model.subscriptions = {(topic, name) for topic in bay.topics() for name in bay.topic(topic).subscriptions()}
        prepared = {transaction.xid for transaction in bay.prepared() if transaction.xid is not None}
        copied = model.fork()
        found = self._found(bay, copied, loses=False)
        if model.has_lost:
            model.sure.clear()
            model.maybe.clear()
        model.settle(found)
        model.begins(key for xid in prepared for key in (*model.branches[xid].sent, *model.branches[xid].acked))
        model.prepared = prepared

    def check(self, left: Left, model: Model) -> None:
        random = self.random
        image, metadata = left.disk, left.metadata
        for _ in range(random.choice((0, 0, 1, 3))):
            self.place += " opened"
            bay = self.open(image, metadata)
            for _ in range(random.choice((0, 0, 1, 5))):
                bay.step()
            image, metadata = image.crash_process(), same(metadata)
        self._found(self.open(image, metadata), model, loses=self._loses(left))

    def _found(self, bay: Forebay, model: Model, *, loses: bool) -> set[Key]:
        assert bay.recovery.damaged == ()
        check_stored(bay)
        found = {transaction.xid for transaction in bay.prepared()}
        assert loses or model.has_lost or model.prepared <= found, f"prepared {model.prepared}, {found} are there"
        keys = drained(bay, self._clock, model)
        model.check(keys, loses=loses)
        return keys
