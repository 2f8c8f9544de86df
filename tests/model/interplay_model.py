"""The model of the random workload of everything at once: facts, the events that change them, and checks.

The number in its body identifies a message. The model is a set of facts, and the list of events that changed it since
the last sync. A crash leaves the facts of some moment, with a part of the event of that moment if it is not atomic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple

from extents import sequences
from inside import inside

from forebay import Consumer, Delivery, Forebay, Message, StoreFull
from forebay.store.errors import ForebayError
from forebay.store.index.topic_lane import TopicLane

FILLER = Random(3).randbytes(64 * 1024)
DIGITS = 8
EVERYTHING = 1_000_000
LONGEST_DELAY_SECONDS = 3.0
"""The longest delay of a nack."""
QUEUES = ("orders", "prices", "audit")
TOPICS = ("prices", "news")
SELECTORS = {"all": None, "late": None, "third": "kind = 0", "none": "kind > 2"}
"""The selector of each durable subscription, by name."""
UNLIMITED = 1 << 40

Fact = tuple[Any, ...]
"""("queue", number, queue) or ("topic", topic, subscription, number) of what is pending; ("durable", topic,
subscription); ("prepared", xid)."""


class Piece(NamedTuple):
    """Facts that a crash leaves together or not at all."""

    adds: frozenset[Fact] = frozenset()
    removes: frozenset[Fact] = frozenset()


class Event(NamedTuple):
    """One call. is_ordered: a crash leaves a beginning of its pieces; otherwise any of them."""

    pieces: tuple[Piece, ...]
    is_ordered: bool = True


class Branch(NamedTuple):
    sent: tuple[int, ...] = ()
    acked: tuple[int, ...] = ()
    to: tuple[str, ...] = ()
    """The queue of each sent message."""
    of: tuple[str, ...] = ()
    """The queue of each acknowledged message. It stands here, because a crash may lose the outcome and a later move."""


@dataclass
class Model:
    """The facts that must hold after a crash, and those that may."""

    seed: int
    now: set[Fact] = field(default_factory=set)
    base: frozenset[Fact] = frozenset()
    """The facts at the last sync. The history leads from there to now."""
    history: list[Event] = field(default_factory=list)
    coming: Event | None = None
    where: dict[int, tuple[str, str]] = field(default_factory=dict)
    """By message, "queue" or "topic" and the name."""
    rank: dict[tuple[int, str], int] = field(default_factory=dict)
    """By message and destination, how many messages came there before it."""
    returned: set[tuple[int, str]] = field(default_factory=set)
    """Messages that were moved back to an earlier queue. After a power cut they may be in either of their places."""
    branches: dict[bytes, Branch] = field(default_factory=dict)
    has_lost: bool = False
    """Whether a crash may have taken records that were not synced, and no recovery has shown yet how many."""

    def fork(self) -> Model:
        return Model(
            self.seed,
            self.now.copy(),
            self.base,
            self.history.copy(),
            self.coming,
            self.where.copy(),
            self.rank.copy(),
            self.returned.copy(),
            self.branches.copy(),
            self.has_lost,
        )

    def begins(self, *pieces: Piece, is_ordered: bool = True) -> None:
        self.coming = Event(pieces, is_ordered)

    def done(self, pieces: int | None = None) -> None:
        """Note that the call was confirmed. pieces: how many of its pieces were done; None: all."""
        assert self.coming is not None
        event, self.coming = self.coming, None
        event = event if pieces is None else event._replace(pieces=event.pieces[:pieces])
        apply(self.now, event)
        self.history.append(event)

    def syncs(self) -> None:
        self.base = frozenset(self.now)
        self.history.clear()

    def settle(self, found: Iterable[Fact]) -> None:
        """Note what a recovery has found: it decides what was open."""
        self.now = set(found)
        self.where |= {fact[1]: ("queue", fact[2]) for fact in self.now if fact[0] == "queue"}
        for branch in map(self.branches.__getitem__, self.prepared):
            self.where |= {number: ("queue", queue) for number, queue in zip(branch.sent, branch.to, strict=True)}
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
        numbers = list(numbers)
        self.returned.update((number, queue) for number in numbers if (number, queue) in self.rank)
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
        """The messages that prepared branches have acknowledged."""
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
"""Sizes of bodies by seed. A seed has small messages, or large ones of which few fit into a data log."""
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
    inside(bay).let_pass(LONGEST_DELAY_SECONDS)  # without a step behind it: nothing but what was delayed is due
    prepared = [transaction.xid for transaction in bay.prepared()]
    assert len(prepared) == len(set(prepared))
    parked: list[tuple[int, str]] = []
    for xid in prepared:
        assert xid is not None
        found.add(("prepared", xid))
        parked += zip(model.branches[xid].acked, model.branches[xid].of, strict=True)
    for name in bay.destinations():
        with bay.queue(name).subscribe(prefetch=0) as consumer:
            deliveries = _all_of(consumer)
        numbers = _checked(name, deliveries, model, is_damaged=is_damaged)
        mine = [number for number, queue in parked if queue == name]
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
    places_in_lanes = {(delivery.priority, delivery.sequence) for delivery in deliveries}
    assert len(places_in_lanes) == len(deliveries), f"one place twice: {numbers}"
    # A message that was moved back is in the journal twice there. Both are found if the ack of the first one is lost.
    twice = {number for number, times in Counter(numbers).items() if times > 1}
    assert all(is_damaged and (number, name) in model.returned for number in twice), f"twice: {numbers}"
    if not is_damaged:
        places = model.rank
        order = [
            (-delivery.priority, places[number, name])
            for delivery, number in zip(deliveries, numbers, strict=True)
            if (number, name) not in model.returned
        ]
        assert order == sorted(order), f"out of order: {numbers}"
    return numbers


def check_stored(bay: Forebay) -> None:
    """Assert that every structure agrees with itself and with the ledger."""
    store = inside(bay).store
    inside(bay).audit()
    with inside(bay).lock:
        store.index._check()
        store.subscriptions._check()
        store.subscriptions.remove_unneeded()
        if not store.subscriptions.is_behind:
            for lane in store.index.lanes.values():
                if isinstance(lane, TopicLane):
                    needed = {pending for sub in lane.subscribers.values() for pending in sequences(sub)}
                    needed |= {n for _, found in lane.cursors for n in range(found.next_sequence, lane.next_sequence)}
                    assert sequences(lane) == sorted(needed)
        pending = sum(use.pending_messages for use in store.index.data_log_uses.values())
        assert pending == sum(lane.pending_messages for lane in store.index.lanes.values())


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
