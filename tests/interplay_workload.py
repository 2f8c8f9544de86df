"""Everything at once, drawn by a seed: queues, topics, transactions, purge, relocation, full disks, lost indexes.

A message is known by the number in its body. The model is a set of facts and
the list of events that changed it since the last sync: a crash leaves the facts
of some moment, with the event of just then in part where it is not atomic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple

from forebay import Consumer, Delivery, Forebay, Message, StoreFull, Transaction
from forebay.store.errors import ForebayError
from forebay.store.topic_lane import TopicLane
from test_topic_crash import sequences

FILLER = Random(3).randbytes(64 * 1024)
DIGITS = 8
EVERYTHING = 1_000_000
QUEUES = ("orders", "prices", "audit")
TOPICS = ("prices", "news")
SELECTORS = {"all": None, "late": None, "third": "kind = 0", "none": "kind > 2"}
"""Of each durable subscription, by name."""
PENDING_MAX = 50
UNLIMITED = 1 << 40

Fact = tuple[Any, ...]
"""("queue", number, queue) or ("topic", topic, subscription, number) of what is pending; ("durable", topic,
subscription); ("prepared", xid)."""

WEIGHTS = {
    "send": (1, 4),
    "send_many": (0, 1, 3),
    "take": (3, 6),
    "ack": (1, 4),
    "nack": (0, 1),
    "close_consumer": (0, 1),
    "purge": (0, 0, 1, 2),
    "move": (0, 0, 1, 3),
    "delete": (0, 0, 0, 1),
    "pause": (0, 0, 1),
    "browse": (0, 1),
    "publish": (0, 1, 4),
    "publish_many": (0, 1, 3),
    "subscribe": (0, 1, 2),
    "unsubscribe": (0, 1),
    "read": (0, 2, 5),
    "ack_read": (0, 2, 5),
    "leave": (0, 1),
    "begin": (0, 1, 2),
    "send_in": (1, 4),
    "send_many_in": (0, 2),
    "ack_in": (0, 2, 4),
    "commit": (1, 3),
    "rollback": (0, 1),
    "prepare": (0, 1, 2),
    "end_prepared": (1, 2),
    "checkpoint": (0, 1, 2),
    "cleanup": (0, 1, 4),
    "step": (0, 1, 2),
    "fill_disk": (0, 0, 1, 3),
    "free_disk": (1, 2),
    "reopen": (0, 0, 1),
    "reopen_without_index": (0, 0, 1),
}
"""Of each operation, what one seed may draw."""
NESTED = ("send", "ack", "purge", "commit", "rollback", "prepare", "unsubscribe", "checkpoint", "cleanup", "ack_read")
"""What may happen while a load reads without a lock."""


class Piece(NamedTuple):
    """What is there whole or not at all."""

    adds: frozenset[Fact] = frozenset()
    removes: frozenset[Fact] = frozenset()


class Event(NamedTuple):
    """One call. ordered: its pieces come one after the other; else each for itself."""

    pieces: tuple[Piece, ...]
    is_ordered: bool = True


class Branch(NamedTuple):
    sent: tuple[int, ...] = ()
    acked: tuple[int, ...] = ()


@dataclass
class Model:
    """What must be there, and what may be."""

    seed: int
    now: set[Fact] = field(default_factory=set)
    base: frozenset[Fact] = frozenset()
    """Of the last sync, from which the history leads to now."""
    history: list[Event] = field(default_factory=list)
    coming: Event | None = None
    where: dict[int, tuple[str, str]] = field(default_factory=dict)
    """Of each message, "queue" or "topic", and its name."""
    rank: dict[tuple[int, str], int] = field(default_factory=dict)
    """Of each message where it is, how many came before it."""
    branches: dict[bytes, Branch] = field(default_factory=dict)
    has_lost: bool = False
    """A crash may have taken what was not synced, and no recovery has said yet how much."""

    def fork(self) -> Model:
        return Model(
            self.seed,
            self.now.copy(),
            self.base,
            self.history.copy(),
            self.coming,
            self.where.copy(),
            self.rank.copy(),
            self.branches.copy(),
            self.has_lost,
        )

    def begins(self, *pieces: Piece, is_ordered: bool = True) -> None:
        self.coming = Event(pieces, is_ordered)

    def done(self, pieces: int | None = None) -> None:
        """The event was confirmed; pieces: so many of it alone, and it goes no further."""
        assert self.coming is not None
        event, self.coming = self.coming, None
        event = event if pieces is None else event._replace(pieces=event.pieces[:pieces])
        apply(self.now, event)
        self.history.append(event)

    def syncs(self) -> None:
        self.base = frozenset(self.now)
        self.history.clear()

    def settle(self, found: Iterable[Fact]) -> None:
        """A recovery decided what was open."""
        self.now = set(found)
        self.where |= {fact[1]: ("queue", fact[2]) for fact in self.now if fact[0] == "queue"}
        self.coming, self.has_lost = None, False
        self.syncs()

    def check(self, found: frozenset[Fact], *, loses: bool) -> None:
        """AssertionError unless found is what a crash may leave. loses: it took what was not synced."""
        state = set(self.base if loses or self.has_lost else self.now)
        events = self.history if loses or self.has_lost else []
        for event in [*events, *([self.coming] if self.coming is not None else [])]:
            if explains(state, event, found):
                return
            apply(state, event)
        if state == found:
            return
        missing, strange = sorted(self.now - found, key=str), sorted(found - self.now, key=str)
        raise AssertionError(f"missing {missing}, strange {strange}, in flight {self.coming}")

    def ranked(self, numbers: Iterable[int], queue: str = "") -> None:
        """They come now, behind all others, to where they are or to that queue."""
        first = max(self.rank.values(), default=-1) + 1
        self.rank |= {(number, queue or self.where[number][1]): rank for rank, number in enumerate(numbers, first)}

    # What is asked of now.

    def queued(self, queue: str) -> set[int]:
        return {fact[1] for fact in self.now if fact[0] == "queue" and fact[2] == queue}

    def pending_for(self, topic: str, name: str) -> set[int]:
        return {fact[3] for fact in self.now if fact[:3] == ("topic", topic, name)}

    @property
    def prepared(self) -> list[bytes]:
        return sorted(fact[1] for fact in self.now if fact[0] == "prepared")

    @property
    def parked(self) -> set[int]:
        """What prepared branches want gone."""
        return {number for xid in self.prepared for number in self.branches[xid].acked}

    def durable(self) -> list[tuple[str, str]]:
        return sorted((fact[1], fact[2]) for fact in self.now if fact[0] == "durable")

    # What messages become.

    def arrival(self, number: int) -> Piece:
        kind, name = self.where[number]
        if kind == "queue":
            return Piece(frozenset((("queue", number, name),)))
        return Piece(
            frozenset(
                ("topic", topic, sub, number) for topic, sub in self.durable() if topic == name and matches(sub, number)
            )
        )

    def outcome(self, branch: Branch, xid: bytes | None, *, commits: bool) -> Piece:
        prepared: frozenset[Fact] = frozenset((("prepared", xid),)) if xid is not None else frozenset()
        if not commits:
            return Piece(removes=prepared)
        adds = frozenset(("queue", number, self.where[number][1]) for number in branch.sent)
        return Piece(adds, prepared | {("queue", number, self.where[number][1]) for number in branch.acked})


def apply(state: set[Fact], event: Event) -> None:
    for piece in event.pieces:
        state |= piece.adds
        state -= piece.removes


def explains(state: set[Fact], event: Event, found: frozenset[Fact]) -> bool:
    """Whether a part of the event leads from the state to what was found."""
    if event.is_ordered:
        state = state.copy()
        for piece in event.pieces:
            if state == found:
                return True
            state |= piece.adds
            state -= piece.removes
        return state == found
    removed = {fact for piece in event.pieces if not piece.removes & found for fact in piece.removes}
    return state - removed == found


def matches(name: str, number: int) -> bool:
    return {"third": number % 3 == 0, "none": False}.get(name, True)


def message_of(number: int, seed: int) -> Message:
    """Always the same one."""
    random = Random(seed * 1_000_003 + number)
    size = random.choice((0, random.randrange(64), 3_000, random.randrange(20_000), *SIZES[seed // 2 % len(SIZES)]))
    size = min(size, 100) if is_stuck(number, seed) else size
    body = b"%0*d" % (DIGITS, number) + FILLER[random.randrange(1024) :][:size]
    return Message(body, headers={"kind": number % 3}, priority=random.choice(PRIORITIES[seed % len(PRIORITIES)]))


PRIORITIES = ((4,), (4, 9), tuple(range(10)), (0, 4))
SIZES = ((12_000, 16_000) * 4, (), (12_000, 16_000) * 4, (20,) * 12)
"""What makes a seed one of small messages, or of large ones, of which few are in a data log."""
STUCK = (0.2, 0.0, 0.1, 0.0)
"""The share of messages that are taken and never settled. They are small, so that sparse data logs remain."""


def is_stuck(number: int, seed: int) -> bool:
    return Random(seed * 1_000_033 + number).random() < STUCK[seed % len(STUCK)]


def number_of(delivery: Delivery) -> int:
    return int(delivery.body[:DIGITS])


# ---------------------------------------------------------------------- what is there


def found_in(bay: Forebay, model: Model, *, is_damaged: bool = False) -> frozenset[Fact]:
    """All facts of a store that was just opened, each message as it was sent, once, and in order.

    is_damaged: names and order may be lost.
    """
    found: set[Fact] = set()
    bay.step()  # or a take may end before its scan has found something
    prepared = [transaction.xid for transaction in bay.prepared()]
    assert len(prepared) == len(set(prepared))
    parked: list[int] = []
    for xid in prepared:
        assert xid is not None
        found.add(("prepared", xid))
        parked += model.branches[xid].acked
    for name in bay.destinations():
        with bay.queue(name).subscribe(prefetch=0) as consumer:
            deliveries = _all_of(consumer)
        numbers = _checked(name, deliveries, model, is_damaged=is_damaged)
        mine = [number for number in parked if model.where[number][1] == name]
        assert not set(mine) & set(numbers), f"{set(mine) & set(numbers)} are a transaction's"
        depth = bay.queue(name).depth
        assert is_damaged or depth == len(numbers) + len(mine), f"{name}: depth {depth}, {numbers} and {mine}"
        found.update(("queue", number, name) for number in (*numbers, *mine))
    for topic in bay.topics():
        for name in bay.topic(topic).subscriptions():
            found.add(("durable", topic, name))
            with bay.topic(topic).subscribe(durable=name, selector=SELECTORS[name], prefetch=0) as consumer:
                deliveries = _all_of(consumer)
            numbers = _checked(topic, deliveries, model, is_damaged=is_damaged)
            assert all(model.where[number] == ("topic", topic) for number in numbers)
            depth = bay.topic(topic).statistics().subscriptions[name].depth
            assert is_damaged or depth == len(numbers), f"{topic}/{name}: depth {depth}, {numbers}"
            found.update(("topic", topic, name, number) for number in numbers)
    unreadable = [counts.unreadable for counts in bay.statistics().destinations.values()]
    assert is_damaged or not any(unreadable)
    return frozenset(found)


def _all_of(consumer: Consumer) -> list[Delivery]:
    deliveries: list[Delivery] = []
    while taken := consumer.take(EVERYTHING):
        deliveries += taken
    return deliveries


def _checked(name: str, deliveries: list[Delivery], model: Model, *, is_damaged: bool) -> list[int]:
    numbers = []
    for delivery in deliveries:
        number = number_of(delivery)
        sent = message_of(number, model.seed)
        assert (delivery.body, dict(delivery.headers), delivery.priority) == (sent.body, sent.headers, sent.priority)
        numbers.append(number)
    assert len(set(numbers)) == len(numbers), f"twice: {numbers}"
    if not is_damaged:
        places = model.rank
        order = [
            (-delivery.priority, places[number, name]) for delivery, number in zip(deliveries, numbers, strict=True)
        ]
        assert order == sorted(order), f"out of order: {numbers}"
    return numbers


def check_stored(bay: Forebay) -> None:
    """Every structure agrees with itself and with the ledger."""
    store = bay._engine.store
    bay._engine.audit()
    with bay._engine.lock:
        store.index._check()
        store.subscriptions._check()
        if store.subscriptions.sweep():
            for lane in store.index.lanes.values():
                if isinstance(lane, TopicLane):
                    needed = {pending for sub in lane.subscribers.values() for pending in sequences(sub)}
                    assert sequences(lane) == sorted(needed)
        pending = sum(use.pending_messages for use in store.index.uses.values())
        assert pending == sum(lane.pending_messages for lane in store.index.lanes.values())


# ---------------------------------------------------------------------- what is done


@dataclass(eq=False)
class Taker:
    """A consumer, and what it holds."""

    kind: str
    destination: str
    name: str
    """Of the durable subscription; "" for one that is not durable, and for a queue."""
    consumer: Consumer
    held: list[Delivery] = field(default_factory=list)
    stuck: list[Delivery] = field(default_factory=list)


@dataclass(eq=False)
class Open:
    """A transaction under way, and what it brings and takes so far."""

    transaction: Transaction
    sent: list[int] = field(default_factory=list)
    acked: list[Delivery] = field(default_factory=list)

    @property
    def branch(self) -> Branch:
        return Branch(tuple(self.sent), tuple(map(number_of, self.acked)))


class Workload:
    """One operation a step; the model hears before and after each call."""

    def __init__(
        self,
        model: Model,
        random: Random,
        bay: Forebay,
        *,
        reopen: Callable[[bool], Forebay],
        advance: Callable[[float], None],
        set_room: Callable[[int | None], None],
    ) -> None:
        """reopen(is_index_lost) closes and opens. set_room: bytes the disk has left; None: no bound."""
        self._model, self._random, self.bay = model, random, bay
        self._do_reopen, self._advance, self._set_room = reopen, advance, set_room
        draw = Random(model.seed)
        self._weights = {name: draw.choice(choices) for name, choices in WEIGHTS.items()}
        if STUCK[model.seed % len(STUCK)]:
            # What sparse data logs need to come about, and to be relocated.
            self._weights |= {
                "send_many": 4,
                "ack": 8,
                "take": 8,
                "cleanup": 3,
                "delete": 0,
                "purge": 0,
                "close_consumer": 0,
            }
        self._nests = draw.choice((0.0, 0.1, 0.5))
        self._commits_large = draw.random() < 0.2
        """Each commit as one that the index has no room for at once."""
        self._takers: list[Taker] = []
        self._open: list[Open] = []
        self._paused: set[str] = set()
        self._next_number = max(model.where, default=-1) + 1
        self._live: set[int] = set()
        """What readers that are not durable may get."""
        self._depth = 0
        self.name = ""
        self.refused = 0
        self._watch()

    def _watch(self) -> None:
        self._takers.clear()
        self._open.clear()
        self._paused.clear()
        store = self.bay._engine.store
        read = store.read

        def reading(regions: Any) -> Any:
            self._interrupt()
            found = read(regions)
            self._interrupt()
            return found

        store.read = reading  # type: ignore[method-assign]
        if self._commits_large:
            store.transactions.is_small = lambda branch: False  # type: ignore[method-assign]

    def _interrupt(self) -> None:
        if self._depth == 1 and self._model.coming is None and self._random.random() < self._nests:
            self._run(self._random.choice(NESTED))

    def step(self) -> None:
        name = self._random.choices(list(self._weights), list(self._weights.values()))[0]
        if name in ("send", "send_many", "publish", "publish_many", "send_in", "send_many_in"):
            if sum(fact[0] in ("queue", "topic") for fact in self._model.now) > PENDING_MAX:
                name = self._random.choice(("take", "ack", "read", "ack_read", "purge"))
        self._run(name)

    def _run(self, name: str) -> None:
        outer, self.name = self.name, f"{self.name}>{name}" if self._depth else name
        self._depth += 1
        try:
            getattr(self, f"_{name}")()
        finally:
            self._depth -= 1
        self.name = outer if self._depth else self.name

    def _number(self, kind: str, name: str) -> int:
        number = self._next_number
        self._next_number += 1
        self._model.where[number] = kind, name
        return number

    # ------------------------------------------------------------------ sending

    def _send(self) -> None:
        self._put("queue", self._random.choice(QUEUES))

    def _publish(self) -> None:
        self._put("topic", self._random.choice(TOPICS))

    def _put(self, kind: str, name: str) -> None:
        number = self._number(kind, name)
        message = message_of(number, self._model.seed)
        to = self._destination(kind, name)
        if to is None:
            return
        self._model.ranked((number,))
        self._model.begins(self._model.arrival(number))
        self._live.add(number)
        try:
            to.send(message.body, headers=message.headers, priority=message.priority)
        except StoreFull:
            self._refused(0)
        else:
            self._model.done()

    def _send_many(self) -> None:
        self._put_many("queue", self._random.choice(QUEUES))

    def _publish_many(self) -> None:
        self._put_many("topic", self._random.choice(TOPICS))

    def _put_many(self, kind: str, name: str) -> None:
        numbers = [self._number(kind, name) for _ in range(self._random.choice((2, 5, 30)))]
        to = self._destination(kind, name)
        if to is None:
            return
        self._model.ranked(numbers)
        self._model.begins(*map(self._model.arrival, numbers))
        self._live.update(numbers)
        try:
            to.send_many(message_of(number, self._model.seed) for number in numbers)
        except StoreFull as full:
            self._refused(full.stored)  # type: ignore[attr-defined]
        else:
            self._model.done()

    def _refused(self, pieces: int) -> None:
        self.refused += 1
        if self._model.coming is not None:
            self._model.done(pieces)

    def _destination(self, kind: str, name: str) -> Any:
        """None: the disk has no room for a new one."""
        try:
            return self.bay.queue(name) if kind == "queue" else self.bay.topic(name)
        except StoreFull:
            self.refused += 1
            return None

    # ------------------------------------------------------------------ consumers of queues

    def _take(self) -> None:
        takers = [taker for taker in self._takers if taker.kind == "queue"]
        if not takers or (len(takers) < 4 and self._random.random() < 0.2):
            name = self._random.choice(QUEUES)
            queue = self._destination("queue", name)
            if queue is None:
                return
            selector = self._random.choice((None, None, "kind = 1"))
            consumer = queue.subscribe(prefetch=self._random.choice((0, 3, 1000)), selector=selector)
            takers.append(Taker("queue", name, "", consumer))
            self._takers.append(takers[-1])
        taker = self._random.choice(takers)
        self._receive(taker)

    def _receive(self, taker: Taker) -> None:
        taken = taker.consumer.take(self._random.choice((1, 3, 10, 50)))
        assert not (taken and taker.kind == "queue" and taker.destination in self._paused)
        stuck = [delivery for delivery in taken if is_stuck(number_of(delivery), self._model.seed)]
        taker.held += [delivery for delivery in taken if delivery not in stuck]
        taker.stuck += stuck
        for delivery in taken:
            number = number_of(delivery)
            if taker.kind == "queue":
                assert number in self._model.queued(taker.destination), f"{number} was delivered and is not pending"
                assert number not in self._model.parked, f"{number} was delivered and is a transaction's"
            elif taker.name:
                assert number in self._model.pending_for(taker.destination, taker.name), f"{number} is not for it"
            else:
                assert number in self._live and self._model.where[number] == ("topic", taker.destination)

    def _some(self, kind: str) -> Taker | None:
        holding = [taker for taker in self._takers if taker.kind == kind and taker.held]
        return self._random.choice(holding) if holding else None

    def _part(self, taker: Taker) -> list[Delivery]:
        held = taker.held
        return self._random.choice((held[:1], held[:], self._random.sample(held, self._random.randint(1, len(held)))))

    def _ack(self) -> None:
        taker = self._some("queue")
        if taker is not None:
            self._settle(taker)

    def _ack_read(self) -> None:
        taker = self._some("topic")
        if taker is not None:
            self._settle(taker)

    def _settle(self, taker: Taker) -> None:
        batch = self._part(taker)
        is_up_to = not taker.stuck and self._random.random() < 0.2
        if is_up_to:
            batch = taker.held[: taker.held.index(batch[-1]) + 1]
        numbers = map(number_of, batch)
        if taker.kind == "queue":
            facts: list[Fact] = [("queue", number, taker.destination) for number in numbers]
        else:
            facts = [("topic", taker.destination, taker.name, number) for number in numbers if taker.name]
        self._model.begins(*(Piece(removes=frozenset((fact,))) for fact in facts), is_ordered=False)
        try:
            if is_up_to:
                taker.consumer.ack_up_to(batch[-1])
            elif len(batch) == 1:
                batch[0].ack()
            else:
                taker.consumer.ack(batch)
        except StoreFull:
            self.refused += 1
            acked = [delivery._area.in_flight.get(delivery.sequence) is not delivery for delivery in batch]
            pieces = [piece for piece, is_acked in zip(self._model.coming.pieces, acked, strict=False) if is_acked]  # type: ignore[union-attr]
            self._model.begins(*pieces, is_ordered=False)
            batch = [delivery for delivery, is_acked in zip(batch, acked, strict=True) if is_acked]
        self._model.done()
        taker.held = [delivery for delivery in taker.held if delivery not in batch]

    def _nack(self) -> None:
        taker = self._some(self._random.choice(("queue", "topic")))
        if taker is not None:
            batch = self._part(taker)
            taker.consumer.nack(batch, delay=self._random.choice((0.0, 0.0, 3.0)))
            taker.held = [delivery for delivery in taker.held if delivery not in batch]

    def _close_consumer(self) -> None:
        self._close("queue")

    def _leave(self) -> None:
        self._close("topic")

    def _close(self, kind: str) -> None:
        takers = [taker for taker in self._takers if taker.kind == kind]
        if takers:
            taker = self._random.choice(takers)
            self._takers.remove(taker)
            taker.consumer.close()

    def _free(self, queue: str) -> list[int]:
        """What is pending there and in nobody's hands, in order."""
        takers = [taker for taker in self._takers if taker.kind == "queue"]
        held = {number_of(delivery) for taker in takers for delivery in (*taker.held, *taker.stuck)}
        held |= {number_of(delivery) for found in self._open for delivery in found.acked}
        numbers = self._model.queued(queue) - held - self._model.parked
        priority = {number: message_of(number, self._model.seed).priority for number in numbers}
        return sorted(numbers, key=lambda number: (-priority[number], self._model.rank[number, queue]))

    def _move(self) -> None:
        name, to = self._random.sample(QUEUES, 2)
        if not {name, to} <= set(self.bay.destinations()):
            return
        numbers, selector = self._free(name), self._random.choice((None, None, "kind = 1"))
        limit = self._random.choice((None, 1, 5))
        if selector is not None:
            numbers = [number for number in numbers if number % 3 == 1]
        numbers = numbers[:limit]
        self._model.ranked(numbers, to)
        self._model.begins(
            *(Piece(frozenset((("queue", number, to),)), frozenset((("queue", number, name),))) for number in numbers)
        )
        try:
            moved = self.bay.queue(name).move(to, selector, limit)
            assert moved == len(numbers), f"moved {moved} of {len(numbers)}"
        except StoreFull as full:
            moved = full.stored  # type: ignore[attr-defined]
            self.refused += 1
        self._model.done(moved)
        self._model.where |= {number: ("queue", to) for number in numbers[:moved]}

    def _delete(self) -> None:
        name = self._random.choice(QUEUES)
        branches = [found.branch for found in self._open] + [self._model.branches[xid] for xid in self._model.prepared]
        known = {self._model.where[number][1] for branch in branches for number in (*branch.sent, *branch.acked)}
        if name not in self.bay.destinations() or name in known:
            return
        doomed = frozenset(("queue", number, name) for number in self._model.queued(name))
        self._model.begins(Piece(removes=doomed))
        queue = self.bay.queue(name)
        try:
            queue.delete()
        except StoreFull:
            self._refused(0)
            return
        self._model.done()
        self._paused.discard(name)
        self._takers = [taker for taker in self._takers if (taker.kind, taker.destination) != ("queue", name)]

    def _pause(self) -> None:
        name = self._random.choice(QUEUES)
        if name in self._paused:
            self._paused.remove(name)
            self.bay.queue(name).resume()
        elif name in self.bay.destinations():
            self._paused.add(name)
            self.bay.queue(name).pause()

    def _browse(self) -> None:
        name = self._random.choice(QUEUES)
        if name in self.bay.destinations():
            before = self._model.queued(name)
            numbers = [int(message.body[:DIGITS]) for message in self.bay.queue(name).browse()]
            after = self._model.queued(name)
            assert before & after <= set(numbers) <= before | after and len(set(numbers)) == len(numbers)

    def _purge(self) -> None:
        name = self._random.choice(QUEUES)
        if name not in self.bay.destinations():
            return
        doomed = self._free(name)
        self._model.begins(
            *(Piece(removes=frozenset((("queue", number, name),))) for number in doomed), is_ordered=False
        )
        try:
            removed = self.bay.queue(name).purge()
            assert removed == len(doomed), f"purged {removed} of {len(doomed)}"
        except StoreFull:
            self.refused += 1
            self._set_room(None)
            self.bay.queue(name).purge()
        self._model.done()

    # ------------------------------------------------------------------ subscriptions

    def _subscription(self) -> tuple[str, str]:
        return self._random.choice(TOPICS), self._random.choice(tuple(SELECTORS))

    def _subscribe(self) -> None:
        topic, name = self._subscription()
        if ("durable", topic, name) in self._model.now:
            return
        to = self._destination("topic", topic)
        if to is None:
            return
        self._model.begins(Piece(frozenset((("durable", topic, name),))))
        try:
            to.subscribe(durable=name, selector=SELECTORS[name]).close()
        except StoreFull:
            self._refused(0)
        else:
            self._model.done()

    def _unsubscribe(self) -> None:
        durable = self._model.durable()
        if not durable:
            return
        topic, name = self._random.choice(durable)
        if any(taker.destination == topic and taker.name == name for taker in self._takers):
            return
        doomed = {("topic", topic, name, number) for number in self._model.pending_for(topic, name)}
        self._model.begins(Piece(removes=frozenset({("durable", topic, name), *doomed})))
        try:
            self.bay.topic(topic).unsubscribe(name)
        except StoreFull:
            self._refused(0)
        else:
            self._model.done()

    def _read(self) -> None:
        topic, name = self._random.choice((*self._model.durable(), (TOPICS[0], "")))
        taker = next((t for t in self._takers if (t.kind, t.destination, t.name) == ("topic", topic, name)), None)
        if taker is None:
            to = self._destination("topic", topic)
            if to is None:
                return
            consumer = to.subscribe(durable=name or None, selector=SELECTORS.get(name), prefetch=0)
            taker = Taker("topic", topic, name, consumer)
            self._takers.append(taker)
        self._receive(taker)

    # ------------------------------------------------------------------ transactions

    def _begin_one(self) -> Open:
        self._open.append(Open(self.bay.transaction()))
        return self._open[-1]

    def _one(self) -> Open:
        return self._random.choice(self._open) if self._open else self._begin_one()

    def _begin(self) -> None:
        if len(self._open) < 3:
            self._begin_one()

    def _send_in(self) -> None:
        self._put_in(1)

    def _send_many_in(self) -> None:
        self._put_in(self._random.choice((2, 5, 30)))

    def _put_in(self, count: int) -> None:
        found, name = self._one(), self._random.choice(QUEUES)
        queue = self._destination("queue", name)
        if queue is None or len(found.sent) > PENDING_MAX:
            return
        numbers = [self._number("queue", name) for _ in range(count)]
        stored = count
        try:
            queue.send_many((message_of(number, self._model.seed) for number in numbers), transaction=found.transaction)
        except StoreFull as full:
            self.refused += 1
            stored = full.stored  # type: ignore[attr-defined]
        found.sent += numbers[:stored]

    def _ack_in(self) -> None:
        taker, found = self._some("queue"), self._one()
        if taker is not None:
            batch = self._part(taker)
            taker.consumer.ack(batch, transaction=found.transaction)
            found.acked += batch
            taker.held = [delivery for delivery in taker.held if delivery not in batch]

    def _commit(self) -> None:
        if self._open:
            found = self._one()
            self._model.ranked(found.sent)
            self._model.begins(self._model.outcome(found.branch, None, commits=True))
            self._end(found, found.transaction.commit)

    def _end(self, found: Open, call: Callable[[], None]) -> None:
        try:
            call()
        except StoreFull:
            self._refused(0)
        else:
            self._model.done()
            self._open.remove(found)

    def _rollback(self) -> None:
        if self._open:
            found = self._one()
            self._open.remove(found)
            found.transaction.rollback()

    def _prepare(self) -> None:
        if self._open and len(self._model.prepared) < 3:
            found, xid = self._one(), b"xid %d" % self._random.getrandbits(48)
            self._model.branches[xid] = found.branch
            self._model.begins(Piece(frozenset((("prepared", xid),))))
            self._end(found, lambda: found.transaction.prepare(xid))

    def _end_prepared(self) -> None:
        if self._model.prepared:
            commits = self._random.random() < 0.6
            if not end_prepared(self.bay, self._model, self._random.choice(self._model.prepared), commits=commits):
                self.refused += 1

    # ------------------------------------------------------------------ the store

    def _checkpoint(self) -> None:
        self.bay.checkpoint()
        self._model.syncs()

    def _cleanup(self) -> None:
        try:
            self.bay.cleanup()
        except StoreFull:
            self.refused += 1
        else:
            self._model.syncs()

    def _step(self) -> None:
        self._advance(self._random.choice((0.2, 2.0, 40.0)))
        try:
            self.bay.step()
        except StoreFull:
            self.refused += 1

    def _fill_disk(self) -> None:
        self._set_room(self._random.choice((0, 3_000, 20_000, 70_000, 200_000)))

    def _free_disk(self) -> None:
        self._set_room(None)

    def _reopen(self) -> None:
        self._opened(is_index_lost=False)

    def _reopen_without_index(self) -> None:
        self._opened(is_index_lost=True)

    def _opened(self, *, is_index_lost: bool) -> None:
        self.bay = self._do_reopen(is_index_lost)
        self._model.syncs()
        self._watch()


def end_prepared(bay: Forebay, model: Model, xid: bytes, *, commits: bool) -> bool:
    """Give a prepared branch its outcome. False: the disk is full."""
    (transaction,) = [found for found in bay.prepared() if found.xid == xid]
    branch = model.branches[xid]
    if commits:
        model.ranked(branch.sent)
    model.begins(model.outcome(branch, xid, commits=commits))
    try:
        if commits:
            transaction.commit()
        else:
            transaction.rollback()
    except ForebayError as error:
        if not isinstance(error, StoreFull):
            raise
        model.done(0)
        return False
    model.done()
    return True
