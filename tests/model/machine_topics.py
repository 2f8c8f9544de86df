"""The calls of the state machine for topics: cursors, readers, patterns, retained messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest
from hypothesis import strategies as st
from machine_calls import (
    HEADER_BYTES_MAX,
    PATTERNED,
    PATTERNS,
    ROUNDS_MAX,
    START_MS,
    Shape,
    body_of,
    call,
    message_of,
    picks,
    shapes,
)
from machine_traffic import Traffic
from plain_model import SELECTORS, Letter, Place, Reader, Sent, Topic

from forebay import PropertiesFull, SettingsError, SubscriptionInUse, TopicReader
from forebay.dispatch.engine.statistics import TopicStatistics

PROPERTY_BYTES = 256
"""The charge of a property beside its name and value."""
NAME_BYTES = 4
"""The charge of a character of its name."""
RETAINED_BYTES_MAX = 1024
"""Most bytes that a retained message is charged beside its body."""
NOWHERE = 10**9
"""A sequence that no message has."""


def properties_charge(properties: dict[str, bytes | None]) -> int:
    """Return the charge of properties, including those that a transaction deletes."""
    return sum(PROPERTY_BYTES + NAME_BYTES * len(name) + len(value or b"") for name, value in properties.items())


class TopicTraffic(Traffic):
    """The part of the state machine that reads existing messages of topics again."""

    def __init__(self) -> None:
        super().__init__()
        self.readers: dict[Reader, TopicReader] = {}

    # ------------------------------------------------------------------ what exists

    def known_topic(self, pick: int) -> Topic | None:
        """One that was spoken of. What is too old has left it, and what selectors do not match is settled.

        None too where something is not due yet: until then what a selector does not match may be there, or not.
        """
        topic = self.model.topics.get(self.some_topic(pick))
        if topic is not None:
            self.settle()
            topic = self.model.topics.get(topic.name)
        if topic is not None:
            self.compare_topic(topic, self.store.bay.topic(topic.name).statistics())
            if any(sent.due_ms > self.model.now_ms for sent in topic.sent):
                return None
        return topic

    def compare_topic(self, topic: Topic, found: TopicStatistics) -> None:
        """Check a topic. The number of its retained messages tells which: the newest, and all that are young enough."""
        durable = {name: place for name, place in topic.places.items() if isinstance(name, str)}
        assert sorted(found.subscriptions) == sorted(durable)
        for name, place in durable.items():
            if place.selector is None:
                assert found.subscriptions[name].depth in self.model.depths(place), f"{topic.name}/{name}"
        retained = [sent for sent in topic.sent if sent.is_retained]
        count = found.retained_messages
        assert count <= len(retained), f"{topic.name} retains what it let go of"
        held = self.model.held_of(topic)
        if any(self.model.is_over(sent.letter) and sent.letter.number not in held for sent in retained):
            return  # which of those have left is not seen from their count
        gone, left = retained[: len(retained) - count], retained[len(retained) - count :]
        rule = topic.rule
        if rule.retain_ms is not None:
            assert all(sent.sent_ms < self.model.now_ms - rule.retain_ms for sent in gone), f"{gone[-1]} is young"
            assert all(sent.sent_ms >= self.trimmed_ms - rule.retain_ms for sent in left), f"{left[0]} is old"
            assert not (gone and left and gone[-1].sent_ms == left[0].sent_ms)
        if rule.retain_bytes is not None:
            least = sum(len(body_of(sent.letter)) for sent in left)
            assert least <= found.retained_bytes <= least + HEADER_BYTES_MAX * count
            next_bytes = len(body_of(gone[-1].letter)) + HEADER_BYTES_MAX if gone else NOWHERE
            assert found.retained_bytes + next_bytes > rule.retain_bytes, f"{gone[-1]} had room"
        self.model.keep_newest(topic, count)

    @call(picks)
    def cleanup(self, pick: int = 0) -> None:
        """Clean up. Messages that were retained long enough go."""
        self.store.bay.cleanup()
        self.trimmed_ms = self.model.now_ms
        for topic in self.model.topics.values():
            found = self.store.bay.topic(topic.name).statistics()
            if topic.rule.retain_bytes is not None:
                assert found.retained_bytes <= topic.rule.retain_bytes
            self.compare_topic(topic, found)

    # ------------------------------------------------------------------ cursors

    def place_of(self, topic: Topic, sent: list[Sent], pick: int, form: str) -> tuple[dict[str, Any], list[Sent]]:
        """Arguments that name a place, and what there is from there on of what is sent."""
        if form in ("begin", "end") or not topic.sent:
            form = form if form == "end" else "begin"
            return {"edge": form}, sent if form == "begin" else []
        known = [each for each in topic.sent if each.sequence is not None]
        if form == "sequence" and known:
            at = known[pick % len(known)]
            assert at.sequence is not None
            sequence, rank = at.sequence + pick % 2, at.rank + pick % 2 / 2
            if pick % 16 == 0:
                sequence, rank = 0, 0
            elif pick % 16 == 1:
                sequence = rank = NOWHERE
            priority = at.letter.priority
            chosen = [each for each in sent if each.letter.priority == priority and each.rank >= rank]
            return {"sequence": sequence, "priority": priority}, chosen
        at_ms = topic.sent[pick % len(topic.sent)].sent_ms + pick % 2
        moment = (START_MS + at_ms) / 1000
        time = datetime.fromtimestamp(moment, UTC) if form == "datetime" else moment
        return {"time": time}, [each for each in sent if each.sent_ms >= at_ms]

    @call(
        picks,
        picks,
        picks,
        st.sampled_from(("begin", "begin", "end", "sequence", "sequence", "time", "datetime")),
        weight=3,
    )
    def seek(self, where: int, which: int, pick: int, form: str) -> None:
        topic = self.known_topic(where)
        if topic is None:
            return
        names = [name for name in topic.places if isinstance(name, str)]
        handle = self.store.bay.topic(topic.name).subscription(names[which % len(names)] if names else "nobody's")
        arguments, chosen = self.place_of(topic, self.model.existing(topic, for_reader=False), pick, form)
        if "edge" in arguments:
            arguments["to"] = arguments.pop("edge")
        place = topic.places.get(handle.name)
        if place is None or place.readers:
            with pytest.raises(SettingsError if place is None else SubscriptionInUse):
                handle.seek(**arguments)
            return
        landing = handle.seek(**arguments)
        priority = arguments.get("priority")
        self.model.seek(topic, place, chosen, priority)
        others = [
            entry
            for entry in place.entries
            if priority is not None and entry.letter.priority != priority and entry.letter.is_persistent
        ]
        fresh = [sent for sent in chosen if not self.model.is_over(sent.letter)]
        least = len(fresh) + sum(not self.model.has_expired(entry) for entry in others)
        # Messages that the selector does not match count while they exist. No call tells how long that is.
        most = len(chosen) + len(others) if place.selector is None else landing.messages
        assert least <= landing.messages <= most, f"{landing}: {least} to {len(chosen)} {others}"
        if least == landing.messages and priority is None:
            timestamp = min((START_MS + sent.sent_ms for sent in chosen), default=None)
            assert landing.timestamp == timestamp, f"{landing} is not at {timestamp}: {chosen[:1]}"
            self.check_sequences(chosen, landing.sequences)

    def check_sequences(self, chosen: Iterable[Sent], found: dict[int, int] | Any) -> None:
        """Assert that a cursor landed at the first of these messages in each priority."""
        firsts: dict[int, Sent] = {}
        for sent in chosen:
            firsts.setdefault(sent.letter.priority, sent)
        for priority, sent in firsts.items():
            assert sent.sequence in (None, found[priority])
            sent.sequence = found[priority]

    # ------------------------------------------------------------------ readers

    @call(
        picks,
        picks,
        st.sampled_from(("begin", "begin", "end", "sequence", "time", "datetime")),
        st.sampled_from((None, None, *SELECTORS)),
        weight=2,
    )
    def open_reader(self, where: int, pick: int, form: str, selector: str | None) -> None:
        topic = self.known_topic(where)
        if topic is None or len(self.readers) > 2:
            return
        arguments, chosen = self.place_of(topic, self.model.existing(topic, for_reader=True), pick, form)
        if "edge" in arguments:
            arguments["from_"] = arguments.pop("edge")
        place = Place(topic.name, topic.rule, selector, is_durable=False)
        self.model.begin(topic, place, chosen)
        topic.places[place] = place
        reader = Reader(place, selector)
        self.readers[reader] = self.store.bay.topic(topic.name).reader(**arguments, selector=selector)
        self.model.join(reader)

    @call(picks, st.sampled_from((1, 3, 10, 100)), weight=3)
    def read(self, pick: int, most: int) -> None:
        """Read on with a reader, which settles what the previous read returned."""
        if not self.readers:
            return
        reader = list(self.readers)[pick % len(self.readers)]
        self.model.acknowledge(reader.place, list(reader.held))
        taken = self.readers[reader].take(most)
        self.notice_late()
        rounds = 0
        while not taken and self.must_get(reader):
            self.settle()
            taken = self.readers[reader].take(most)
            rounds += 1
            assert rounds < ROUNDS_MAX, f"{self.model.offered(reader)[0]} is not read"
        assert len(taken) <= most
        offered = self.model.offered(reader)
        for delivery in taken:
            self.handed_out(reader, delivery, offered)

    @call(picks)
    def close_reader(self, pick: int) -> None:
        if self.readers and pick % 2:
            self.end_reader(list(self.readers)[pick % len(self.readers)])

    def end_reader(self, reader: Reader) -> None:
        self.readers.pop(reader).close()
        self.model.acknowledge(reader.place, list(reader.held))
        self.model.close(reader)

    # ------------------------------------------------------------------ patterns

    @call(st.sampled_from(PATTERNS), st.sampled_from((None, None, *SELECTORS)), st.sampled_from((0, 5, 1000)))
    def subscribe_pattern(self, pattern: str, selector: str | None, prefetch: int) -> None:
        if sum(map(len, self.model.patterns.values())) > 1:
            return
        place = self.model.subscribe_pattern(PATTERNED, pattern, selector)
        reader = Reader(place, selector, prefetch)
        if self.attach(reader, partial(self.store.bay.topic(pattern).subscribe, selector=selector, prefetch=prefetch)):
            self.model.join(reader)
        else:
            self.model.forget(place)

    # ------------------------------------------------------------------ retained messages

    @call(picks, shapes, st.sampled_from((False, False, False, True)), weight=2)
    def send_retained(self, where: int, shape: Shape, is_last: bool) -> None:
        """is_last: it has no body, and nothing is retained behind it."""
        name = self.some_topic(where)
        size, *others = shape
        for letter in self.letters([(-1 if is_last else size, *others)], name):  # type: ignore[list-item]
            self.retain(name, letter)

    def retain(self, name: str, letter: Letter) -> None:
        message = message_of(letter, self.model.now_ms)
        topic = self.store.bay.topic(name)
        self.model.topic(name)
        options: dict[str, Any] = {
            "headers": message.headers,
            "priority": message.priority,
            "message_id": message.message_id,
            "persistent": message.persistent,
            "expires_in": message.expires_in,
            "retain": True,
        }
        if letter.delay_ms:
            with pytest.raises(SettingsError):
                topic.send(message.body, delay=message.delay, **options)
            return
        ids: list[str] = []
        more = len(message.body) + RETAINED_BYTES_MAX
        if self.has_changed(more, lambda: ids.append(topic.send(message.body, **options))):
            (sent,) = self.sent([letter], ids)
            self.model.publish(name, [sent])
            self.model.retain(name, sent)

    def has_changed(self, more: int, change: Callable[[], object]) -> bool:
        """Make a change for which there may be no room; return whether it was made. more: most bytes that it adds."""
        known = properties_charge(dict(self.model.properties))
        known += sum(
            properties_charge(branch.properties) for branch in (*self.model.open, *self.model.prepared.values())
        )
        retained = [topic.retained for topic in self.model.topics.values() if topic.retained is not None]
        living = [
            letter for letter in retained if not self.model.is_over(letter)
        ]  # the others make room where it is needed
        least = known + sum(PROPERTY_BYTES + len(body_of(letter)) for letter in living)
        most = known + sum(RETAINED_BYTES_MAX + len(body_of(letter)) for letter in retained)
        try:
            change()
        except PropertiesFull:
            assert most + more > self.properties_max
            return False
        assert more <= RETAINED_BYTES_MAX or least + more - RETAINED_BYTES_MAX <= self.properties_max
        return True
