"""Transactions over queues, topics and durable subscriptions, with and without a journal, drawn by a seed.

As in transaction_workload.py a crash leaves one of the states that there have
been. What no record has, which is non-persistent messages and all that a
subscription without a name gets, belongs to one process: the workload counts
it itself, and no crash may leave any of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product
from random import Random
from typing import NamedTuple

import pytest
from transaction_workload import EVERYTHING, body_of, number_of

from forebay import Delivery, Forebay, Message, Queue, Topic, Transaction, TransactionError

QUEUES = ("orders", "invoices")
DURABLE_TOPIC = "prices"
"""A topic with durable subscriptions only."""
NAMELESS_TOPIC = "ticks"
"""A topic whose only subscription has no name."""
DESTINATIONS = (*QUEUES, DURABLE_TOPIC, NAMELESS_TOPIC)
SUBSCRIPTIONS = ("audit", "fast")
NAMELESS = f"{NAMELESS_TOPIC}/"
PENDING_MAX = 50

Place = str
"""The name of a queue, or "topic/subscription"."""
Message_ = tuple[Place, int]

KINDS = ("queue", "topic", "durable")
COMBINATIONS = frozenset(
    product(KINDS, ("send", "ack"), ("persistent", "not"), ("commit", "rollback", "prepare", "crash"))
)
"""All combinations that the runs together must meet. A part that no record has can't be prepared."""


def kind_of(place: Place) -> str:
    if place in QUEUES:
        return "queue"
    return "topic" if place.startswith(NAMELESS_TOPIC) else "durable"


class Branch(NamedTuple):
    """The recorded messages of a transaction: those it sends, by destination, and those it acknowledges, by place."""

    sent: frozenset[Message_] = frozenset()
    acked: frozenset[Message_] = frozenset()


class State(NamedTuple):
    """Pending messages by place, prepared branches by xid, and the durable subscriptions."""

    pending: frozenset[Message_] = frozenset()
    prepared: frozenset[tuple[bytes, Branch]] = frozenset()
    subscriptions: frozenset[str] = frozenset()

    def committed(self, branch: Branch) -> State:
        arrived = {(place, number) for to, number in branch.sent for place in self.places_of(to)}
        return self._replace(pending=(self.pending | arrived) - branch.acked)

    def places_of(self, destination: str) -> list[Place]:
        if destination in QUEUES:
            return [destination]
        return [f"{destination}/{name}" for name in self.subscriptions if destination == DURABLE_TOPIC]

    def with_prepared(self, xid: bytes, branch: Branch) -> State:
        return self._replace(prepared=self.prepared | {(xid, branch)})

    def without(self, xid: bytes) -> State:
        return self._replace(prepared=frozenset(found for found in self.prepared if found[0] != xid))

    def subscribed(self, name: str) -> State:
        return self._replace(subscriptions=self.subscriptions | {name})

    def unsubscribed(self, name: str) -> State:
        place = f"{DURABLE_TOPIC}/{name}"
        pending = frozenset(message for message in self.pending if message[0] != place)
        return self._replace(pending=pending, subscriptions=self.subscriptions - {name})

    @property
    def deliverable(self) -> frozenset[Message_]:
        """The pending messages that no undecided transaction has acknowledged."""
        return self.pending.difference(*(branch.acked for _, branch in self.prepared))


@dataclass
class Model:
    """The states that there have been, and the one that the call in flight leads to."""

    states: list[State] = field(default_factory=lambda: [State()])
    coming: State | None = None
    synced: int = 0
    """The device must hold this one or a later one whatever `sync` says."""
    next_number: int = 0
    has_lost: bool = False
    """Whether a crash may have taken records that were not synced, and no recovery has shown yet how many."""
    open_parts: frozenset[tuple[str, str, str]] = frozenset()
    """(kind, "send" or "ack", "persistent" or "not") of what transactions without an outcome have just now."""

    @property
    def now(self) -> State:
        return self.states[-1]

    def fork(self) -> Model:
        return Model(self.states.copy(), self.coming, self.synced, self.next_number, self.has_lost, self.open_parts)

    def syncs(self) -> None:
        self.synced = len(self.states) - 1

    def does(self, state: State, call: Callable[[], object]) -> None:
        """Make a call that leads there."""
        self.coming = state
        call()
        self.states.append(state)
        self.coming = None

    def possible(self, *, loses_unsynced: bool) -> list[State]:
        first = self.synced if loses_unsynced or self.has_lost else len(self.states) - 1
        return [*self.states[first:], *([self.coming] if self.coming is not None else [])]

    def settle(self, state: State) -> None:
        """Note what a recovery has found: it decides what was open."""
        self.states, self.coming, self.synced, self.has_lost = [state], None, 0, False
        self.open_parts = frozenset()


def deliverable_in(bay: Forebay, seed: int) -> frozenset[Message_]:
    """All that can be taken, each as it was sent, and once at each place."""
    found: list[Message_] = []
    consumers = {name: bay.queue(name).subscribe(prefetch=0) for name in QUEUES}
    topic = bay.topic(DURABLE_TOPIC)
    for name in topic.subscriptions():
        consumers[f"{DURABLE_TOPIC}/{name}"] = topic.subscribe(durable=name, prefetch=0)
    for place, consumer in consumers.items():
        with consumer:
            while taken := consumer.take(EVERYTHING):
                for delivery in taken:
                    number = number_of(delivery)
                    found.append((place, number))
                    assert delivery.persistent, f"{place} has {number}, which no record has"
                    assert delivery.body == body_of(number, seed), f"{number} was changed"
    assert len(set(found)) == len(found), f"twice: {sorted(found)}"
    return frozenset(found)


def check_state(bay: Forebay, model: Model, seed: int, *, loses_unsynced: bool) -> State:
    """AssertionError unless the store is in a state that the crash may have left; which one."""
    deliverable = deliverable_in(bay, seed)
    xids = {transaction.xid for transaction in bay.prepared()}
    subscriptions = frozenset(bay.topic(DURABLE_TOPIC).subscriptions())
    for state in reversed(model.possible(loses_unsynced=loses_unsynced)):
        if (
            state.deliverable == deliverable
            and {xid for xid, _ in state.prepared} == xids
            and state.subscriptions == subscriptions
        ):
            check_depths(bay, Counter(place for place, _ in state.pending), state)
            return state
    wanted = [
        (sorted(state.deliverable), state.prepared, state.subscriptions)
        for state in model.possible(loses_unsynced=loses_unsynced)
    ]
    raise AssertionError(f"found {sorted(deliverable)}, {xids} and {subscriptions}, wanted one of {wanted}")


def check_depths(bay: Forebay, depths: Counter[Place], state: State) -> None:
    found = {name: bay.queue(name).depth for name in QUEUES}
    for name in state.subscriptions:
        found[f"{DURABLE_TOPIC}/{name}"] = bay.topic(DURABLE_TOPIC).statistics().subscriptions[name].depth
    assert found == {place: depths[place] for place in found}


@dataclass
class _Open:
    """A transaction under way, with the messages that it has sent and acknowledged so far."""

    transaction: Transaction
    sent: set[Message_] = field(default_factory=set)
    acked: set[Message_] = field(default_factory=set)
    kept: list[Message_] = field(default_factory=list)
    """Non-persistent messages, and all to the topic without a name, by destination."""
    settled: list[Message_] = field(default_factory=list)
    """Acknowledged messages that no record has, by place."""
    parts: set[tuple[str, str, str]] = field(default_factory=set)

    @property
    def branch(self) -> Branch:
        return Branch(frozenset(self.sent), frozenset(self.acked))


class BranchWorkload:
    """One operation a step; the model hears before and after each call."""

    def __init__(self, seed: int, random: Random, model: Model, bay: Forebay, reopen: Callable[[], Forebay]) -> None:
        self._seed = seed
        self._random = random
        self._model = model
        self._bay = bay
        self._reopen = reopen
        self._open: list[_Open] = []
        self._operations = (
            ["send", "send_kept", "take", "take", "take", "ack", "begin", "send_in", "send_in", "send_in", "send_many"]
            + ["ack_in", "ack_in", "ack_in", "ack_in", "commit", "rollback", "rollback", "prepare", "prepare"]
            + ["end_prepared", "end_prepared", "resubscribe"]
            + random.choice((["checkpoint"], ["checkpoint", "cleanup"], ["cleanup"] * 4, ["step"]))
            + random.choice(([], ["reopen"]))
        )
        # How often which combination met which outcome.
        self.seen: Counter[tuple[str, str, str, str]] = Counter()
        self._begin()

    def _begin(self) -> None:
        """Begin a process: nothing is in RAM, and all consumers subscribe."""
        self._open.clear()
        # Pending messages of this process that no record has, by place.
        self._kept: Counter[Message_] = Counter()
        self._held: list[tuple[Place, Delivery]] = []
        self._consumers = {name: self._bay.queue(name).subscribe(prefetch=0) for name in QUEUES}
        self._consumers[NAMELESS] = self._bay.topic(NAMELESS_TOPIC).subscribe(prefetch=0)
        for name in SUBSCRIPTIONS:
            self._subscribe(name)

    def _subscribe(self, name: str) -> None:
        def call() -> None:
            topic = self._bay.topic(DURABLE_TOPIC)
            self._consumers[f"{DURABLE_TOPIC}/{name}"] = topic.subscribe(durable=name, prefetch=0)

        self._model.does(self._model.now.subscribed(name), call)

    def step(self) -> None:
        getattr(self, f"_do_{self._random.choice(self._operations)}")()
        self._model.open_parts = frozenset().union(*(found.parts for found in self._open))
        self.check()

    def check(self) -> None:
        """Assert that every depth is the one of the model."""
        depths = Counter(place for place, _ in self._model.now.pending)
        depths += Counter(place for place, _ in self._kept)
        check_depths(self._bay, depths, self._model.now)

    # ------------------------------------------------------------------ choosing

    def _number(self) -> int:
        self._model.next_number += 1
        return self._model.next_number - 1

    def _destination(self, name: str) -> Queue | Topic:
        return self._bay.queue(name) if name in QUEUES else self._bay.topic(name)

    def _some(self) -> _Open | None:
        return self._random.choice(self._open) if self._open else None

    @property
    def _is_full(self) -> bool:
        sent = sum(len(found.sent) + len(found.kept) for found in self._open)
        return len(self._model.now.pending) + len(self._kept) + sent >= PENDING_MAX

    def _readers_of(self, destination: str) -> list[Place]:
        """Return the places with a consumer: only they get messages that no record has."""
        return [place for place in self._consumers if place.split("/")[0] == destination]

    def _arrives(self, destination: str, number: int) -> None:
        """No record has it."""
        for place in self._readers_of(destination):
            self._kept[place, number] += 1

    def _is_recorded(self, place: Place, delivery: Delivery) -> bool:
        return delivery.persistent and place != NAMELESS

    # ------------------------------------------------------------------ without a transaction

    def _do_send(self) -> None:
        if self._is_full:
            return
        to, number = self._random.choice(DESTINATIONS), self._number()
        state = self._model.now.committed(Branch(frozenset(((to, number),))))
        priority = self._random.choice((4, 9))
        self._model.does(state, lambda: self._destination(to).send(body_of(number, self._seed), priority=priority))
        if to == NAMELESS_TOPIC:
            self._arrives(to, number)

    def _do_send_kept(self) -> None:
        if not self._is_full:
            to, number = self._random.choice(DESTINATIONS), self._number()
            self._destination(to).send(body_of(number, self._seed), persistent=False)
            self._arrives(to, number)

    def _do_take(self) -> None:
        self._take(self._random.choice(list(self._consumers)))

    def _take(self, place: Place) -> None:
        for delivery in self._consumers[place].take(self._random.choice((1, 5, 30))):
            number = number_of(delivery)
            if self._is_recorded(place, delivery):
                assert (place, number) in self._model.now.deliverable, f"{number} was delivered at {place}"
            else:
                assert self._kept[place, number] == 1, f"{number} was delivered at {place}"
            assert delivery.body == body_of(number, self._seed)
            self._held.append((place, delivery))

    def _take_held(self) -> tuple[Place, list[Delivery]]:
        """Return some deliveries of one consumer, which takes first if it holds none."""
        place = self._random.choice(list(self._consumers))
        if all(found[0] != place for found in self._held):
            self._take(place)
        mine = [found for found in self._held if found[0] == place]
        chosen = self._random.sample(mine, self._random.randint(1, len(mine))) if mine else []
        self._held = [found for found in self._held if found not in chosen]
        return place, [delivery for _, delivery in chosen]

    def _do_ack(self) -> None:
        place, chosen = self._take_held()
        for delivery in chosen[:1]:
            message = place, number_of(delivery)
            if self._is_recorded(place, delivery):
                self._model.does(self._model.now.committed(Branch(acked=frozenset((message,)))), delivery.ack)
            else:
                delivery.ack()
                del self._kept[message]
        self._held += [(place, delivery) for delivery in chosen[1:]]

    def _do_resubscribe(self) -> None:
        """End a durable subscription and make it anew, unless a transaction knows it."""
        name = self._random.choice(SUBSCRIPTIONS)
        place = f"{DURABLE_TOPIC}/{name}"
        if self._random.random() < 0.7:
            return
        self._consumers.pop(place).close()
        self._held = [found for found in self._held if found[0] != place]
        takes = [frozenset(found.acked).union(found.settled) for found in self._open]
        takes += [branch.acked for _, branch in self._model.now.prepared]
        topic = self._bay.topic(DURABLE_TOPIC)
        if any(taken == place for found in takes for taken, _ in found):
            with pytest.raises(TransactionError, match="durable subscription"):
                topic.unsubscribe(name)
        else:
            self._model.does(self._model.now.unsubscribed(name), lambda: topic.unsubscribe(name))
            for message in [message for message in self._kept if message[0] == place]:
                del self._kept[message]
        self._subscribe(name)

    # ------------------------------------------------------------------ in a transaction

    def _do_begin(self) -> None:
        if len(self._open) < 3:
            self._open.append(_Open(self._bay.transaction()))

    def _do_send_in(self) -> None:
        found = self._some()
        if found is not None and not self._is_full:
            to, number = self._random.choice(DESTINATIONS), self._number()
            is_persistent = self._random.random() < 0.6
            self._destination(to).send(
                body_of(number, self._seed), transaction=found.transaction, persistent=is_persistent
            )
            self._note_sent(found, to, number, is_persistent=is_persistent)

    def _note_sent(self, found: _Open, to: str, number: int, *, is_persistent: bool) -> None:
        if is_persistent:
            found.sent.add((to, number))
        if not is_persistent or to == NAMELESS_TOPIC:
            found.kept.append((to, number))
        found.parts.add((kind_of(to), "send", "persistent" if is_persistent else "not"))

    def _do_send_many(self) -> None:
        found = self._some()
        if found is None or self._is_full:
            return
        to = self._random.choice(DESTINATIONS)
        sent = [(self._number(), self._random.random() < 0.7) for _ in range(self._random.choice((2, 5, 30)))]
        messages = [
            Message(body_of(number, self._seed), priority=self._random.choice((4, 4, 7)), persistent=is_persistent)
            for number, is_persistent in sent
        ]
        self._destination(to).send_many(messages, transaction=found.transaction)
        for number, is_persistent in sent:
            self._note_sent(found, to, number, is_persistent=is_persistent)

    def _do_ack_in(self) -> None:
        found = self._some()
        place, chosen = self._take_held() if found is not None else ("", [])
        if found is None or not chosen:
            return
        self._consumers[place].ack(chosen, transaction=found.transaction)
        for delivery in chosen:
            message = place, number_of(delivery)
            if self._is_recorded(place, delivery):
                found.acked.add(message)
            else:
                found.settled.append(message)
            found.parts.add((kind_of(place), "ack", "persistent" if delivery.persistent else "not"))

    def _ends(self, found: _Open, outcome: str) -> None:
        self._open.remove(found)
        self.seen.update((*part, outcome) for part in found.parts)

    def _do_commit(self) -> None:
        found = self._some()
        if found is not None:
            self._ends(found, "commit")
            self._model.does(self._model.now.committed(found.branch), found.transaction.commit)
            for to, number in found.kept:
                self._arrives(to, number)
            for message in found.settled:
                del self._kept[message]

    def _do_rollback(self) -> None:
        found = self._some()
        if found is not None:
            self._ends(found, "rollback")
            found.transaction.rollback()

    def _do_prepare(self) -> None:
        found = self._some()
        if found is None or len(self._model.now.prepared) >= 3:
            return
        xid = b"xid %d" % self._random.getrandbits(48)
        is_kept = bool(found.settled) or any(part[1:] == ("send", "not") for part in found.parts)
        if is_kept:
            with pytest.raises(TransactionError, match="can't be prepared"):
                found.transaction.prepare(xid)
            self.seen.update((*part, "prepare") for part in found.parts)
            return
        self._ends(found, "prepare")
        # The subscription without a name gets it with the commit, and that may come in another process.
        self._model.does(self._model.now.with_prepared(xid, found.branch), lambda: found.transaction.prepare(xid))

    def _do_end_prepared(self) -> None:
        prepared = sorted(self._model.now.prepared, key=lambda found: found[0])
        if prepared:
            xid, branch = self._random.choice(prepared)
            is_committed = self._random.random() < 0.6
            end(self._bay, self._model, xid, branch, commits=is_committed)
            for to, number in branch.sent if is_committed else ():
                if to == NAMELESS_TOPIC:
                    self._arrives(to, number)

    # ------------------------------------------------------------------ the store

    def _do_checkpoint(self) -> None:
        self._bay.checkpoint()
        self._model.syncs()

    def _do_cleanup(self) -> None:
        self._bay.cleanup()
        self._model.syncs()

    def _do_step(self) -> None:
        self._bay.step()

    def _do_reopen(self) -> None:
        self._bay = self._reopen()
        self._model.syncs()
        self._begin()


def end(bay: Forebay, model: Model, xid: bytes, branch: Branch, *, commits: bool) -> None:
    """Give a prepared branch its outcome."""
    (transaction,) = [found for found in bay.prepared() if found.xid == xid]
    state = model.now.without(xid)
    model.does(state.committed(branch) if commits else state, transaction.commit if commits else transaction.rollback)
