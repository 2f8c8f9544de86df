"""The calls of the state machine for handlers, drains, `get`, deadlines and properties."""

from __future__ import annotations

from threading import Timer
from typing import Any

import pytest
from crashing import without_logs
from hypothesis import strategies as st
from machine_calls import REJECTING, ROUNDS_MAX, body_of, call, identity, identity_of, number_of, picks, seen
from machine_topics import TopicTraffic, properties_charge
from plain_model import Reader

from forebay import AckTooLate, Delivery, Empty, Properties

PROPERTIES = ("a", "cursor/eu", "n" * 100)
PATIENCE_SECONDS = 20.0
"""How long a handler waits for a message before its consumer is closed, which ends the wait."""
values = st.sampled_from((None, None, 0, 10, 10, 3_000, 9_000))
"""Length of a property; None: it is deleted."""


def change(properties: Properties, changes: dict[str, bytes | None]) -> None:
    for name, value in changes.items():
        if value is None:
            del properties[name]
        else:
            properties[name] = value


class Handling(TopicTraffic):
    """The part of the state machine in which a handler, or a deadline, settles deliveries."""

    # ------------------------------------------------------------------ draining and handlers

    @call(picks)
    def drain_consumer(self, pick: int) -> None:
        if self.consumers and pick % 3 == 0:
            reader = list(self.consumers)[pick % len(self.consumers)]
            self.begin_drain(reader)

    def begin_drain(self, reader: Reader) -> None:
        reader.is_draining = True
        holds = any(entry.reader is reader for entry in reader.place.entries)
        assert self.consumers[reader].drain(timeout=0) == (not holds)

    @call(
        picks,
        st.lists(
            st.sampled_from(("ends", "ends", "raises", "rejects", "settles", "interrupts")), min_size=1, max_size=5
        ),
        weight=2,
    )
    def process(self, pick: int, outcomes: list[str]) -> None:
        """Have a handler process one message for each outcome, if there are so many. Then the consumer has drained."""
        idle = [
            reader
            for reader in self.consumers
            if not reader.is_draining
            and not any(entry.reader is reader for entry in reader.place.entries)
            and self.must_get(reader)
        ]
        if not idle:
            return
        reader = idle[pick % len(idle)]
        consumer = self.consumers[reader]
        failures: list[AssertionError] = []

        def handle(delivery: Delivery) -> None:
            try:
                outcome = self.handled(reader, delivery, outcomes)
            except AssertionError as failure:
                failures.append(failure)
                consumer.drain(timeout=0)
                return
            if outcome == "raises":
                raise KeyError("not now")
            if outcome == "rejects":
                raise ValueError("no good")
            if outcome == "interrupts":
                raise KeyboardInterrupt

        patience = Timer(PATIENCE_SECONDS, consumer.close)
        patience.start()
        try:
            with without_logs():
                consumer.process(handle, reject_on=ValueError)
        except KeyboardInterrupt:
            reader.is_draining = True
        finally:
            patience.cancel()
        if failures:
            raise failures[0]
        assert reader.is_draining and not consumer.in_flight, "a handler waits for what there is"
        self.leave(reader)
        for place in self.queue_places():
            self.untie(place)

    def handled(self, reader: Reader, delivery: Delivery, outcomes: list[str]) -> str:
        """Do with the model what the handler ends with."""
        self.notice_late()
        entry = self.handed_out(reader, delivery, self.model.offered(reader))
        outcome, place = outcomes.pop(), reader.place
        if outcome == "rejects" and place.name not in REJECTING:
            outcome = "raises"
        if outcome == "settles":
            delivery.ack()
        if outcome in ("ends", "settles"):
            self.model.acknowledge(place, [entry])
        elif outcome == "raises":
            self.model.give_back(place, [entry], 0)
        elif outcome == "rejects":
            self.model.reject(place, [entry], "ValueError: no good")
        else:
            self.model.release(place, [entry])
        if outcome != "interrupts" and (not outcomes or not self.must_get(reader)):
            reader.is_draining = True
            self.consumers[reader].drain(timeout=0)
        return outcome

    # ------------------------------------------------------------------ one message

    @call(picks, weight=2)
    def get(self, pick: int) -> None:
        """Get a message, which is acknowledged before the call returns."""
        name = self.queues[pick % len(self.queues)]
        place = self.model.queue(name)
        reader = Reader(place, prefetch=1)
        self.model.join(reader)
        found = None
        for _ in range(ROUNDS_MAX):
            try:
                found = self.store.queue(name).get(timeout=0)
                break
            except Empty:
                self.notice_late()
                if not self.must_get(reader):
                    break
                self.settle()
        else:
            raise AssertionError(f"{self.model.offered(reader)[0]} is not got")
        if found is not None:
            self.notice_late()
            offered = self.model.offered(reader)
            headers = dict(found.headers or {})
            wanted = identity(number_of(found.body, headers), headers)
            entry = next((other for other in offered if identity_of(other) == wanted), None)
            assert entry is not None, f"{wanted} was not to be had"
            if place.is_dealt:
                self.check_turn(reader, entry, offered)
            else:
                assert entry is offered[0], f"{entry} came out of turn"
            letter = entry.letter
            assert (found.body, found.priority, found.group) == (body_of(letter), letter.priority, letter.group)
            assert letter.id in (None, found.message_id) and found.persistent == letter.is_persistent
            self.model.hand_out(reader, entry)
            self.model.acknowledge(place, [entry])
        self.model.close(reader)

    @call(picks)
    def peek(self, pick: int) -> None:
        if self.model.queues:
            place = self.queue_places()[pick % len(self.model.queues)]
            first = next((entry for entry in place.entries if not self.model.has_expired(entry)), None)
            found = self.store.queue(place.name).peek()
            assert (found and seen(found)) == (first and identity_of(first))

    @call(picks)
    def join_queue(self, pick: int) -> None:
        if self.model.queues:
            place = self.queue_places()[pick % len(self.model.queues)]
            depths = self.model.depths(place)
            is_empty = self.store.queue(place.name).join(timeout=0)
            assert 0 in depths if is_empty else depths[-1] > 0

    # ------------------------------------------------------------------ deadlines

    @call(picks, st.sampled_from((1, 3, 100)), st.sampled_from((1, 5, 20)), weight=2)
    def extend(self, pick: int, count: int, seconds: int) -> None:
        if not any(reader.deadline_ms and reader.held for reader in self.consumers):
            self.subscribe(pick, None, 1000, 0, False, 2)
            for reader in [reader for reader in self.consumers if reader.deadline_ms]:
                self.receive(reader, 10)
        found = self.some_held(pick, count, is_timed=True)
        if found is None:
            return
        reader, entries = found
        if pick & 128 and len(entries) == 1:
            self.deliveries[entries[0]].extend(seconds)
        else:
            self.consumers[reader].extend([self.deliveries[entry] for entry in entries], seconds)
        for entry in entries:
            entry.late_ms, entry.slack_ms = self.model.now_ms + seconds * 1000, 0
        if pick % 4 == 0:
            self.settle(reader.deadline_ms / 500)  # what it had before is over then

    @call(picks, weight=2)
    def settle_late(self, pick: int) -> None:
        """Nothing comes of it, and of what is settled together with it neither."""
        if not self.late:
            return
        delivery = self.late[pick % len(self.late)]
        verbs: list[Any] = [delivery.ack, delivery.nack, delivery.release, delivery.reject, lambda: delivery.extend(5)]
        with pytest.raises(AckTooLate):
            verbs[pick % len(verbs)]()
        consumer = delivery.consumer
        for reader, other in self.consumers.items():
            if other is consumer and reader.held:
                both = [*(self.deliveries[entry] for entry in reader.held), delivery]
                with pytest.raises(AckTooLate):
                    (consumer.ack, consumer.nack, consumer.release, consumer.reject)[pick % 4](both)

    # ------------------------------------------------------------------ properties

    def some_property(self, pick: int, size: int | None) -> tuple[str, bytes | None]:
        self.numbers += 1
        value = None if size is None else b"%d" % self.numbers + b"." * size
        return PROPERTIES[pick % len(PROPERTIES)], value

    @call(picks, values, weight=2)
    def set_property(self, pick: int, size: int | None) -> None:
        name, value = self.some_property(pick, size)
        properties, known = self.store.bay.properties, self.model.properties
        if value is None:
            found = properties.pop(name, None)
            assert found == known.pop(name, None)
            return
        more = len(value) - len(known[name]) if name in known else properties_charge({name: value})
        if self.has_changed(more, lambda: change(properties, {name: value})):
            known[name] = value
        assert properties.get(name) == known.get(name)

    @call(picks, values)
    def set_all_properties(self, pick: int, size: int | None) -> None:
        """All of them, or none."""
        properties, known = self.store.bay.properties, self.model.properties
        if size is None:
            if pick % 4 == 0:
                properties.clear()
                known.clear()
            return
        changes = {name: value for each in range(len(PROPERTIES)) for name, value in [self.some_property(each, size)]}
        given = {name: value for name, value in changes.items() if value is not None}
        replaced = {name: value for name, value in known.items() if name in given}
        more = properties_charge(dict(given)) - properties_charge(dict(replaced))
        if self.has_changed(more, lambda: properties.update(given)):
            known |= given
