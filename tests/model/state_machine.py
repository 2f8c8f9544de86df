"""StateMachine: each call of the public interface, done to a store on a simulated disk and to the plain model."""

from __future__ import annotations

import sys
from typing import ClassVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import invariant
from machine_calls import (
    REJECTING,
    SELDOM,
    STEPS_UNTIL_COMPARED,
    Shape,
    body_of,
    call,
    identity_of,
    message_of,
    picks,
    seen,
    shapes,
)
from machine_handling import Handling, change, values
from machine_topics import properties_charge
from plain_model import SELECTORS, Branch, Entry, Place, Reader
from simulated_disk import PowerCut

from forebay import Closed, TransactionError


class StateMachine(Handling):
    """Beside the traffic: transactions, whole queues, and the end of the process."""

    steps: ClassVar[int] = 0
    """Calls done by all machines."""
    steps_until_audited: ClassVar[int] = 1

    # ------------------------------------------------------------------ transactions

    def some_open(self, pick: int) -> Branch:
        """One of those under way, or another one."""
        if len(self.model.open) <= pick % 3:
            self.model.open.append(Branch())
            self.transactions[self.model.open[-1]] = self.store.bay.transaction()
        return self.model.open[pick % len(self.model.open)]

    @call(picks, picks, st.lists(shapes, min_size=1, max_size=4), st.sampled_from((1, 1, 8)), weight=2)
    def send_in(self, pick: int, where: int, given: list[Shape], times: int) -> None:
        lasting = self.lasting_queues()
        name = lasting[where % len(lasting)]
        branch = self.some_open(pick)
        letters = self.letters(given * times, name, only_persistent=True)
        ids = self.store.queue(name).send_many(
            [message_of(letter, self.model.now_ms) for letter in letters], transaction=self.transactions[branch]
        )
        self.model.queue(name)
        branch.sent += [(name, letter) for letter in self.sent(letters, ids)]

    @call(picks, st.sampled_from((1, 3, 100)), weight=5)
    def ack_in(self, pick: int, count: int) -> None:
        found = self.some_held(pick, count)
        if found is None or found[0].place not in self.queue_places() or found[0].place.name in self.temporary:
            return
        branch = self.some_open(pick // 3)
        reader, entries = found
        entries = [entry for entry in entries if entry.letter.is_persistent]
        if entries:
            self.consumers[reader].ack(
                [self.deliveries[entry] for entry in entries], transaction=self.transactions[branch]
            )
            self.model.hold(branch, entries)
            with pytest.raises(TransactionError):
                self.deliveries[entries[0]].ack()

    @call(picks, st.sampled_from((1, 3, 100)), weight=2)
    def reject_in(self, pick: int, count: int) -> None:
        found = self.some_held(pick, count)
        if found is None or found[0].place not in self.queue_places() or found[0].place.name not in REJECTING:
            return
        branch = self.some_open(pick // 3)
        reader, entries = found
        entries = [entry for entry in entries if entry.letter.is_persistent]
        if entries:
            held = [self.deliveries[entry] for entry in entries]
            self.consumers[reader].reject(held, reason="not now", transaction=self.transactions[branch])
            self.model.reject_in(branch, reader.place, entries, "not now")
            with pytest.raises(TransactionError):
                held[0].reject()

    @call(picks, st.sampled_from(("commit", "rollback", "prepare")), weight=3)
    def end(self, pick: int, outcome: str) -> None:
        if not self.model.open:
            return
        branch = self.model.open[pick % len(self.model.open)]
        transaction = self.transactions[branch]
        if outcome == "prepare":
            xid = b"%d" % self.numbers + b"-%d" % len(self.model.prepared)
            self.numbers += 1
            transaction.prepare(xid)
            self.model.prepare(branch, xid)
        else:
            transaction.commit() if outcome == "commit" else transaction.rollback()
            self.model.end(branch, commits=outcome == "commit")
            with pytest.raises(TransactionError):
                transaction.commit()

    @call(picks, picks, values, weight=2)
    def set_property_in(self, pick: int, which: int, size: int | None) -> None:
        branch = self.some_open(pick)
        name, value = self.some_property(which, size)
        properties = self.transactions[branch].properties
        found = branch.applied_to(self.model.properties)
        assert dict(properties) == found
        if value is None and name not in found:
            with pytest.raises(KeyError):
                del properties[name]
            return
        more = properties_charge({name: value}) - properties_charge(
            {name: branch.properties[name]} if name in branch.properties else {}
        )
        if self.has_changed(more, lambda: change(properties, {name: value})):
            branch.properties[name] = value
        assert dict(properties) == branch.applied_to(self.model.properties)

    @call(picks, st.booleans())
    def end_prepared(self, pick: int, commits: bool) -> None:
        if not self.model.prepared:
            return
        xid = list(self.model.prepared)[pick % len(self.model.prepared)]
        (transaction,) = (found for found in self.store.bay.prepared() if found.xid == xid)
        transaction.commit() if commits else transaction.rollback()
        self.model.end(self.model.prepared[xid], commits=commits)

    # ------------------------------------------------------------------ many at once

    def some_queue(self, pick: int) -> Place | None:
        queues = self.queue_places()
        return queues[pick % len(queues)] if queues else None

    @call(picks)
    def purge(self, pick: int) -> None:
        place = self.some_queue(pick)
        if place is not None and pick % SELDOM == 0:
            doomed = self.model.pending(place)
            old = sum(map(self.model.has_expired, doomed))
            assert len(doomed) - old <= self.store.queue(place.name).purge() <= len(doomed)
            self.model.remove(place, doomed)

    @call(
        picks,
        picks,
        st.sampled_from((None, *SELECTORS)),
        st.sampled_from((None, None, 0, 1, 5)),
    )
    def move(self, pick: int, where: int, selector: str | None, limit: int | None) -> None:
        source, to = self.some_queue(pick), self.queues[where % len(self.queues)]
        if source is not None and source.name != to:
            if any(self.model.has_expired(entry) for entry in source.entries):
                self.settle()  # or it depends on who has met it already
            target = self.model.queue(to)
            chosen = self.model.pending(source, selector)[:limit]
            assert self.store.queue(source.name).move(to, selector, limit) == len(chosen)
            self.model.move(source, target, chosen)

    @call(picks)
    def delete(self, pick: int) -> None:
        place = self.some_queue(pick)
        if place is None or pick % SELDOM:
            return
        queue = self.store.queue(place.name)
        if self.model.is_known_to_a_branch(place):
            with pytest.raises(TransactionError):
                queue.delete()
            return
        queue.delete()
        with pytest.raises(Closed):
            queue.send(b"late")
        assert queue.depth == 0
        self.deleted(place)

    def deleted(self, place: Place) -> None:
        for reader in place.readers:
            del self.consumers[reader]
        self.handles.pop(place.name, None)
        self.model.delete(place.name)
        if self.temporary.pop(place.name, None) is not None:
            self.queues.remove(place.name)
            with pytest.raises(Closed):
                self.store.queue(place.name)

    @call()
    def make_temporary(self) -> None:
        """Make a temporary queue. No transaction uses it, because it may be deleted before the outcome."""
        if len(self.temporary) < 2:
            queue = self.store.bay.temporary_queue()
            self.temporary[queue.name] = queue
            self.queues.append(queue.name)
            self.model.queue(queue.name)

    @call(picks)
    def close_temporary(self, pick: int) -> None:
        if self.temporary:
            name = list(self.temporary)[pick % len(self.temporary)]
            self.temporary[name].close()
            self.deleted(self.model.queues[name])

    def lasting_queues(self) -> list[str]:
        return [name for name in self.queues if name not in self.temporary]

    @call(picks)
    def pause(self, pick: int) -> None:
        place = self.some_queue(pick)
        if place is not None:
            queue = self.store.queue(place.name)
            queue.resume() if place.is_paused else queue.pause()
            place.is_paused = not place.is_paused

    @call(picks, st.sampled_from((None, *SELECTORS)))
    def browse(self, pick: int, selector: str | None) -> None:
        place = self.some_queue(pick)
        if place is not None:
            found = [seen(message) for message in self.store.queue(place.name).browse(selector)]
            there = [entry for entry in place.entries if SELECTORS[selector](entry.letter.kind)]
            assert found == [identity_of(entry) for entry in there if not self.model.has_expired(entry)]

    @call(picks)
    def find(self, pick: int) -> None:
        place = self.some_queue(pick)
        if place is not None and place.entries:
            entry = place.entries[pick % len(place.entries)]
            found = self.store.queue(place.name).find(entry.letter.id or "nobody's")
            if entry.letter.id is None:
                assert found is None
            elif not self.model.has_expired(entry):
                assert found is not None and found.body == body_of(entry.letter)

    # ------------------------------------------------------------------ the store

    @call()
    def checkpoint(self) -> None:
        self.store.bay.checkpoint()

    @call()
    def close_idle(self) -> None:
        """Close idle destinations. A later use notices nothing."""
        self.store.close_idle()

    @call(st.sampled_from(("4MiB", "5MiB", "8MiB")))
    def resize(self, limit: str) -> None:
        report = self.store.bay.resize(limit)
        assert report.is_settled == (not report.awaited)

    @call(
        st.sampled_from((*[""] * 6, "reopen", "kill", "kill", "power cut", "power cut")),
        st.booleans(),
    )
    def open_again(self, how: str, is_index_lost: bool) -> None:
        """Ends cleanly or not. What is synced with each call outlives a power cut."""
        if not how:
            return
        if how == "reopen":
            self.model.close_store()
            self.store.reopen()
        elif how == "power cut" and self.sync == "always":
            mode = self.random.choice(list(PowerCut))
            self.model.crash(is_power_cut=True)
            self.store.power_cut(self.random, mode)
        else:
            self.model.crash(is_power_cut=False)
            self.store.crash(is_index_lost=is_index_lost)
        for name in self.temporary:
            self.model.delete(name)
        self.queues = self.lasting_queues()
        for kept in (self.consumers, self.deliveries, self.transactions, self.settled, self.searching, self.temporary):
            kept.clear()
        for other in (self.readers, self.handles, self.late):
            other.clear()
        bay = self.store.bay
        assert sorted(found.xid for found in bay.prepared() if found.xid) == sorted(self.model.prepared)
        self.forget_empty()
        self.resolve_doubts()
        # What a power cut, or the loss of the index, leaves of a delay is not known: all that wait are due behind this.
        is_known = how == "reopen" or not (is_index_lost or self.sync == "always")
        waiting = [entry.back_ms for place in self.model.places() for entry in place.entries]
        longest_ms = 0 if is_known else max(waiting, default=0) - self.model.now_ms
        self.settle(max(longest_ms / 1000, 0.25))
        self.compare()

    def forget_empty(self) -> None:
        """Forget queues and topics without messages that are gone. A power cut may take them."""
        bay = self.store.bay
        for place in self.queue_places():
            if place.name not in bay.destinations():
                assert not self.model.pending(place) and self.sync == "always"
                del self.model.queues[place.name]
        for name in self.model.topics.keys() - set(bay.topics()):
            topic = self.model.topics.pop(name)
            assert not topic.places and not topic.retained and self.sync == "always"

    def resolve_doubts(self) -> None:
        """After a power cut, find out by their place which messages had their last attempt."""
        doubtful = {
            place: [entry for entry in place.entries if entry.is_doubtful and entry.is_dead]
            for place in self.model.places()
        }
        if any(doubtful.values()):
            for _ in range(3):
                self.store.bay.step()
        for place, entries in doubtful.items():
            for entry in self.still_there(place, entries) if entries else ():
                entry.is_dead = False
                entry.attempts = min(entry.attempts, (place.rule.max_attempts or 1) - 1)

    def still_there(self, place: Place, entries: list[Entry]) -> list[Entry]:
        """Return the entries that have not left as dead letters."""
        if place.subscription is None:
            found = [*map(seen, self.store.queue(place.name).browse())]
            return [entry for entry in entries if identity_of(entry) in found]
        if place.rule.dead_letters is None:
            return self.not_dropped(place, place.subscription, entries)
        # Of several of one message, after seeks, the last one is new. Asking for that queue would make it.
        is_there = place.rule.dead_letters in self.store.bay.destinations()
        found = [*map(seen, self.store.queue(place.rule.dead_letters).browse())] if is_there else []
        known = self.model.queues.get(place.rule.dead_letters)
        before = [*map(identity_of, known.entries)] if known is not None else []
        stamps = [(entry.letter.number, place.name, place.subscription, "max_attempts") for entry in entries]
        return [
            entry for entry, stamp in zip(entries, stamps, strict=True) if found.count(stamp) == before.count(stamp)
        ]

    def not_dropped(self, place: Place, subscription: str, entries: list[Entry]) -> list[Entry]:
        """The same where dead letters go nowhere: how many were dropped is all that is told.

        Where that says nothing about each of them the subscription ends.
        """
        topic = self.store.bay.topic(place.name)
        sure = sum(entry.is_dead for entry in place.entries) - len(entries)
        dropped = topic.statistics().subscriptions[subscription].dead_lettered - sure
        assert 0 <= dropped <= len(entries), f"{dropped} of {entries} were dropped"
        if 0 < dropped < len(entries):
            topic.unsubscribe(subscription)
            self.model.forget(place)
        return [] if dropped else entries

    # ------------------------------------------------------------------ what must be true

    @invariant()
    def stays_below_its_limit(self) -> None:
        StateMachine.steps += 1
        budget = self.store.budget
        assert budget.held_bytes <= budget.limit_bytes
        if StateMachine.steps % self.steps_until_audited == 0:
            self.store.audit()
        if self.numbers % STEPS_UNTIL_COMPARED == 0:
            self.compare()

    def compare(self) -> None:
        """Compare every figure and every pending message with the model."""
        statistics = self.store.bay.statistics()
        differing = statistics.destinations.keys() ^ self.model.queues.keys()
        assert not differing, f"{differing} of queues"
        for name, place in self.model.queues.items():
            found = statistics.destinations[name]
            assert found.depth in self.model.depths(place), f"{name}: {found.depth} of {len(place.entries)}"
            assert found.consumers == len(place.readers)
            assert found.is_paused == place.is_paused
            counts = {count: getattr(found, count) for count in place.counts}
            assert counts == place.counts
        differing = statistics.topics.keys() ^ self.model.topics.keys()
        assert not differing, f"{differing} of topics"
        for name, topic in self.model.topics.items():
            self.compare_topic(topic, statistics.topics[name])
        assert dict(self.store.bay.properties) == self.model.properties

    def teardown(self) -> None:
        if sys.exc_info()[0] is None and hasattr(self, "store"):
            self.drain()

    def drain(self) -> None:
        """At the end everything is taken, once, in order, and nothing is left."""
        for xid in list(self.model.prepared):
            (transaction,) = (found for found in self.store.bay.prepared() if found.xid == xid)
            transaction.commit()
            self.model.end(self.model.prepared[xid], commits=True)
        for branch in list(self.model.open):
            self.transactions[branch].rollback()
            self.model.end(branch, commits=False)
        for reader in list(self.consumers):
            self.leave(reader)
        for reader in list(self.readers):
            self.end_reader(reader)
        self.settle(1_000)
        self.compare()
        for place in list(self.model.places()):
            if place.is_paused:
                self.store.queue(place.name).resume()
                place.is_paused = False
            reader = Reader(place, place.selector)
            if place.subscription is None:
                self.consumers[reader] = self.store.queue(place.name).subscribe(prefetch=0)
            else:
                self.consumers[reader] = self.store.bay.topic(place.name).subscribe(
                    durable=place.subscription, selector=place.selector, prefetch=0
                )
            self.model.join(reader)
            while entries := self.receive(reader, 100):
                self.consumers[reader].ack([self.deliveries[entry] for entry in entries])
                self.model.acknowledge(place, entries)
            assert not place.entries, f"{place.entries[0]} is lost"
        self.store.check()
        assert self.store.bay.statistics().tmp_storage.bytes == 0
