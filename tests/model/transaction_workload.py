"""Transactions drawn by a seed, and the model of what a crash may leave of them.

Every confirmed call is one event, which a crash leaves whole or not at all:
the model is the list of states that there have been. A state is what is
pending, and which branches are prepared with what they bring and take.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from forebay import Delivery, Forebay, Message, Transaction

FILLER = Random(2).randbytes(64 * 1024)
DIGITS = 8
EVERYTHING = 1_000_000
QUEUES = ("orders", "prices", "audit")
PENDING_MAX = 60


class Branch(NamedTuple):
    """The messages that a transaction sends and acknowledges."""

    sent: frozenset[int] = frozenset()
    acked: frozenset[int] = frozenset()


class State(NamedTuple):
    """Pending messages, and prepared branches by xid."""

    pending: frozenset[int] = frozenset()
    prepared: frozenset[tuple[bytes, Branch]] = frozenset()

    def committed(self, branch: Branch) -> State:
        return State((self.pending | branch.sent) - branch.acked, self.prepared)

    def with_prepared(self, xid: bytes, branch: Branch) -> State:
        return State(self.pending, self.prepared | {(xid, branch)})

    def without(self, xid: bytes) -> State:
        return State(self.pending, frozenset(found for found in self.prepared if found[0] != xid))

    @property
    def deliverable(self) -> frozenset[int]:
        """The pending messages that no undecided transaction has acknowledged."""
        return self.pending.difference(*(branch.acked for _, branch in self.prepared))


@dataclass
class Model:
    """The states that there have been, and the one that the call in flight leads to."""

    states: list[State] = field(default_factory=lambda: [State()])
    coming: State | None = None
    synced: int = 0
    """The device must hold this one or a later one whatever `sync` says."""
    queue_of: dict[int, str] = field(default_factory=dict)
    has_lost: bool = False
    """Whether a crash may have taken records that were not synced, and no recovery has shown yet how many."""

    @property
    def now(self) -> State:
        return self.states[-1]

    def fork(self) -> Model:
        return Model(self.states.copy(), self.coming, self.synced, self.queue_of.copy(), self.has_lost)

    def begins(self, state: State) -> None:
        self.coming = state

    def done(self) -> None:
        assert self.coming is not None
        self.states.append(self.coming)
        self.coming = None

    def syncs(self) -> None:
        self.synced = len(self.states) - 1

    def possible(self, *, loses_unsynced: bool) -> list[State]:
        first = self.synced if loses_unsynced or self.has_lost else len(self.states) - 1
        return [*self.states[first:], *([self.coming] if self.coming is not None else [])]

    def settle(self, state: State) -> None:
        """Note what a recovery has found: it decides what was open."""
        self.states, self.coming, self.synced, self.has_lost = [state], None, 0, False


def number_of(delivery: Delivery) -> int:
    return int(delivery.body[:DIGITS])


def body_of(number: int, seed: int) -> bytes:
    random = Random(seed * 1_000_003 + number)
    size = random.choice((0, random.randrange(64), 3_000, random.randrange(20_000)))
    return b"%0*d" % (DIGITS, number) + FILLER[random.randrange(1024) :][:size]


def deliverable_in(bay: Forebay, model: Model, seed: int) -> frozenset[int]:
    """All that can be taken, each in its queue, as it was sent, once."""
    numbers: list[int] = []
    for name in bay.destinations():
        with bay.queue(name).subscribe(prefetch=0) as consumer:
            while taken := consumer.take(EVERYTHING):
                for delivery in taken:
                    number = number_of(delivery)
                    numbers.append(number)
                    assert delivery.body == body_of(number, seed), f"{number} was changed"
                    assert model.queue_of[number] == name, f"{number} is in {name}"
    assert len(set(numbers)) == len(numbers), f"twice: {sorted(numbers)}"
    assert not any(found.unreadable for found in bay.statistics().destinations.values())
    return frozenset(numbers)


def check_state(bay: Forebay, model: Model, seed: int, *, loses_unsynced: bool) -> State:
    """AssertionError unless the store is in a state that the crash may have left; which one."""
    deliverable = deliverable_in(bay, model, seed)
    xids = {transaction.xid for transaction in bay.prepared()}
    depth = sum(bay.queue(name).depth for name in bay.destinations())
    assert bay.recovery.prepared == len(xids)
    for state in reversed(model.possible(loses_unsynced=loses_unsynced)):
        if state.deliverable == deliverable and {xid for xid, _ in state.prepared} == xids:
            assert depth == len(state.pending), f"depth {depth} of {len(state.pending)}"
            return state
    wanted = [(sorted(state.deliverable), state.prepared) for state in model.possible(loses_unsynced=loses_unsynced)]
    raise AssertionError(f"found {sorted(deliverable)} and {xids}, wanted one of {wanted}")


@dataclass
class _Open:
    """A transaction under way, with the messages that it has sent and acknowledged so far."""

    transaction: Transaction
    sent: set[int] = field(default_factory=set)
    acked: set[int] = field(default_factory=set)

    @property
    def branch(self) -> Branch:
        return Branch(frozenset(self.sent), frozenset(self.acked))


class Workload:
    """One operation a step; the model hears before and after each call."""

    def __init__(self, seed: int, random: Random, model: Model, bay: Forebay, reopen: Callable[[], Forebay]) -> None:
        self._seed = seed
        self._random = random
        self._model = model
        self._bay = bay
        self._reopen = reopen
        self._open: list[_Open] = []
        self._next_number = max(model.queue_of, default=-1) + 1
        self._consumers = {name: bay.queue(name).subscribe(prefetch=0) for name in QUEUES}
        self._held: list[Delivery] = []
        self._operations = (
            ["send", "take", "take", "ack", "begin", "send_in", "send_in", "send_many_in", "ack_in", "ack_in"]
            + ["commit", "commit", "rollback", "prepare", "end_prepared", "end_prepared"]
            + random.choice((["checkpoint"], ["checkpoint", "cleanup"], ["cleanup"] * 4, ["step"]))
            + random.choice(([], ["reopen"]))
        )

    def step(self) -> None:
        getattr(self, f"_do_{self._random.choice(self._operations)}")()

    def _number(self, queue: str) -> int:
        number = self._next_number
        self._next_number += 1
        self._model.queue_of[number] = queue
        return number

    def _queue(self) -> str:
        return self._random.choice(QUEUES)

    def _some(self) -> _Open | None:
        return self._random.choice(self._open) if self._open else None

    def _do_send(self) -> None:
        if len(self._model.now.pending) >= PENDING_MAX:
            return
        name = self._queue()
        number = self._number(name)
        self._model.begins(self._model.now.committed(Branch(frozenset((number,)))))
        self._bay.queue(name).send(body_of(number, self._seed), priority=self._random.choice((4, 9)))
        self._model.done()

    def _do_take(self) -> None:
        for delivery in self._consumers[self._queue()].take(self._random.choice((1, 5, 30))):
            number = number_of(delivery)
            assert number in self._model.now.deliverable, f"{number} was delivered"
            self._held.append(delivery)

    def _take_held(self) -> list[Delivery]:
        """Return some deliveries of one consumer."""
        if not self._held:
            return []
        queue = self._random.choice(self._held).destination
        mine = [delivery for delivery in self._held if delivery.destination == queue]
        chosen = self._random.sample(mine, self._random.randint(1, len(mine)))
        self._held = [delivery for delivery in self._held if delivery not in chosen]
        return chosen

    def _do_ack(self) -> None:
        chosen = self._take_held()[:1]
        if chosen:
            self._model.begins(self._model.now.committed(Branch(acked=frozenset(map(number_of, chosen)))))
            chosen[0].ack()
            self._model.done()

    def _do_begin(self) -> None:
        if len(self._open) < 3:
            self._open.append(_Open(self._bay.transaction()))

    def _do_send_in(self) -> None:
        found = self._some()
        if found is not None and len(self._model.now.pending) + len(found.sent) < PENDING_MAX:
            name = self._queue()
            number = self._number(name)
            self._bay.queue(name).send(body_of(number, self._seed), transaction=found.transaction)
            found.sent.add(number)

    def _do_send_many_in(self) -> None:
        found = self._some()
        if found is not None and len(self._model.now.pending) + len(found.sent) < PENDING_MAX:
            name = self._queue()
            numbers = [self._number(name) for _ in range(self._random.choice((2, 5, 30)))]
            messages = [
                Message(body_of(number, self._seed), priority=self._random.choice((4, 4, 4, 7))) for number in numbers
            ]
            self._bay.queue(name).send_many(messages, transaction=found.transaction)
            found.sent.update(numbers)

    def _do_ack_in(self) -> None:
        found = self._some()
        if found is not None:
            chosen = self._take_held()
            if chosen:
                self._consumers[chosen[0].destination].ack(chosen, transaction=found.transaction)
                found.acked.update(map(number_of, chosen))

    def _do_commit(self) -> None:
        found = self._some()
        if found is not None:
            self._open.remove(found)
            self._model.begins(self._model.now.committed(found.branch))
            found.transaction.commit()
            self._model.done()

    def _do_rollback(self) -> None:
        found = self._some()
        if found is not None:
            self._open.remove(found)
            found.transaction.rollback()

    def _do_prepare(self) -> None:
        found = self._some()
        if found is not None and len(self._model.now.prepared) < 3:
            self._open.remove(found)
            xid = b"xid %d" % self._random.getrandbits(48)
            self._model.begins(self._model.now.with_prepared(xid, found.branch))
            found.transaction.prepare(xid)
            self._model.done()

    def _do_end_prepared(self) -> None:
        prepared = sorted(self._model.now.prepared, key=lambda found: found[0])
        if prepared:
            xid, branch = self._random.choice(prepared)
            end(self._bay, self._model, xid, branch, commits=self._random.random() < 0.6)

    def _do_checkpoint(self) -> None:
        self._bay.checkpoint()
        self._model.syncs()

    def _do_cleanup(self) -> None:
        self._bay.cleanup()
        self._model.syncs()

    def _do_step(self) -> None:
        self._bay.step()

    def _do_reopen(self) -> None:
        self._open.clear()
        self._held.clear()
        self._bay = self._reopen()
        self._model.syncs()
        self._consumers = {name: self._bay.queue(name).subscribe(prefetch=0) for name in QUEUES}


def end(bay: Forebay, model: Model, xid: bytes, branch: Branch, *, commits: bool) -> None:
    """Give a prepared branch its outcome."""
    (transaction,) = [found for found in bay.prepared() if found.xid == xid]
    state = model.now.without(xid)
    model.begins(state.committed(branch) if commits else state)
    if commits:
        transaction.commit()
    else:
        transaction.rollback()
    model.done()
