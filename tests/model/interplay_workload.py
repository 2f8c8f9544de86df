"""Everything at once, drawn by a seed: queues, topics, transactions, purge, relocation, full disks, lost indexes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from compiled import IS_COMPILED
from inside import inside
from interplay_model import (
    DIGITS,
    LONGEST_DELAY_SECONDS,
    QUEUES,
    SELECTORS,
    STUCK,
    TOPICS,
    Branch,
    Fact,
    Model,
    Piece,
    end_prepared,
    is_stuck,
    message_of,
    number_of,
)

from forebay import Consumer, Delivery, Forebay, StoreFull, Transaction

PENDING_MAX = 50

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
"""By operation, the weights of which each seed draws one."""
SPARSE_WEIGHTS = {"send_many": 4, "ack": 8, "take": 8, "cleanup": 3, "delete": 0, "purge": 0, "close_consumer": 0}
"""Weights under which data logs become sparse and are relocated."""
NESTED = ("send", "ack", "purge", "commit", "rollback", "prepare", "unsubscribe", "checkpoint", "cleanup", "ack_read")
"""The operations that may happen while a load reads without a lock."""


@dataclass(eq=False)
class Taker:
    """A consumer with the deliveries that it holds."""

    kind: str
    destination: str
    name: str
    """The name of the durable subscription; "": a queue, or a subscription without a name."""
    consumer: Consumer
    held: list[Delivery] = field(default_factory=list)
    stuck: list[Delivery] = field(default_factory=list)


@dataclass(eq=False)
class Open:
    """A transaction under way, with the messages that it has sent and acknowledged so far."""

    transaction: Transaction
    sent: list[int] = field(default_factory=list)
    to: list[str] = field(default_factory=list)
    acked: list[Delivery] = field(default_factory=list)

    @property
    def branch(self) -> Branch:
        queues = tuple(delivery.destination for delivery in self.acked)
        return Branch(tuple(self.sent), tuple(map(number_of, self.acked)), tuple(self.to), queues)


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
        weights: Mapping[str, Sequence[int]] = WEIGHTS,
        pending_max: int = PENDING_MAX,
    ) -> None:
        """reopen(is_index_lost) closes and opens. set_room: bytes the disk has left; None: no bound.

        weights: of each operation that there is to be, what one seed may draw.
        """
        self._model, self._random, self.bay = model, random, bay
        self._do_reopen, self._advance, self._set_room = reopen, advance, set_room
        draw = Random(model.seed)
        self._weights = {name: draw.choice(choices) for name, choices in weights.items()}
        if STUCK[model.seed % len(STUCK)]:
            self._weights |= {name: weight for name, weight in SPARSE_WEIGHTS.items() if name in weights}
        self._pending_max = pending_max
        self._nests = draw.choice((0.0, 0.1, 0.5))
        # Each commit as one that the index has no room for at once.
        self._commits_large = draw.random() < 0.2
        self._takers: list[Taker] = []
        self._open: list[Open] = []
        self._paused: set[str] = set()
        self._next_number = max(model.where, default=-1) + 1
        # Messages that subscriptions without a name may get.
        self._live: set[int] = set()
        self._depth = 0
        self.name = ""
        self.refused = 0
        self._watch()

    def _watch(self) -> None:
        self._takers.clear()
        self._open.clear()
        self._paused.clear()
        if IS_COMPILED:
            return  # nothing comes in between there
        store = inside(self.bay).store
        read = store.message_store.read

        def reading(regions: Any, judge: Any = None) -> Any:
            self._interrupt()
            found = read(regions, judge)
            self._interrupt()
            return found

        store.message_store.read = reading  # type: ignore[method-assign]
        if self._commits_large:
            store.transaction_writer.is_small = lambda branch: False  # type: ignore[method-assign]

    def _interrupt(self) -> None:
        if self._depth == 1 and self._model.coming is None and self._random.random() < self._nests:
            self._run(self._random.choice(NESTED))

    def step(self) -> None:
        name = self._random.choices(list(self._weights), list(self._weights.values()))[0]
        if name in ("send", "send_many", "publish", "publish_many", "send_in", "send_many_in"):
            if sum(fact[0] in ("queue", "topic") for fact in self._model.now) > self._pending_max:
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
            self._refused(full.stored)
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
            acked = [delivery.lane.deliveries.get(delivery.sequence) is not delivery for delivery in batch]
            pieces = [piece for piece, is_acked in zip(self._model.coming.pieces, acked, strict=False) if is_acked]  # type: ignore[union-attr]
            self._model.begins(*pieces, is_ordered=False)
            batch = [delivery for delivery, is_acked in zip(batch, acked, strict=True) if is_acked]
        self._model.done()
        taker.held = [delivery for delivery in taker.held if delivery not in batch]

    def _nack(self) -> None:
        taker = self._some(self._random.choice(("queue", "topic")))
        if taker is not None:
            batch = self._part(taker)
            taker.consumer.nack(batch, delay=self._random.choice((0.0, 0.0, LONGEST_DELAY_SECONDS)))
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
        """Return the pending messages of a place that no consumer holds, in order."""
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
            moved = full.stored
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
        if queue is None or len(found.sent) > self._pending_max:
            return
        numbers = [self._number("queue", name) for _ in range(count)]
        stored = count
        try:
            queue.send_many((message_of(number, self._model.seed) for number in numbers), transaction=found.transaction)
        except StoreFull as full:
            self.refused += 1
            stored = full.stored
        found.sent += numbers[:stored]
        found.to += [name] * len(numbers[:stored])

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
