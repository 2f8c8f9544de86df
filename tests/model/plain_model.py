"""The library as lists and dictionaries: what a caller may count on, and nothing of how it is done.

Consumers take from a `Place`: a queue, or one subscription of a topic. It is a list of entries in order. An entry is a
message with its state in that place. Time is a number that the caller moves.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

SELECTORS: Final[dict[str | None, Callable[[int], bool]]] = {
    None: lambda kind: True,
    "kind = 0": lambda kind: kind == 0,
    "kind > 0": lambda kind: kind > 0,
    "kind > 2": lambda kind: False,
}
"""Kinds are 0, 1 and 2, so the last one matches nothing."""


COUNTS: Final = ("enqueued", "delivered", "acknowledged", "redelivered", "dead_lettered")
"""The counters of the statistics, which begin anew with each open."""


@dataclass(frozen=True)
class Letter:
    """A message as it was sent. Letters with the same number have the same body."""

    number: int
    size: int = 0
    kind: int = 0
    priority: int = 4
    is_persistent: bool = True
    group: str | None = None
    delay_ms: int = 0
    expires_at_ms: int | None = None
    id: str | None = None
    """None: nobody knows it, because the message was moved and the library gave it a new one."""
    stamp: tuple[str, str | None, str, int] | None = None
    """For a dead letter: its destination, its durable subscription, the reason, and the number of attempts."""


@dataclass(eq=False)
class Entry:
    """A letter in one place."""

    letter: Letter
    rank: float
    """A later arrival has a higher rank. Ranks are equal where the order is not promised."""
    due_ms: int = 0
    """The time before which nobody gets it, also after a crash: it was sent with a delay."""
    back_ms: int = 0
    """The time before which nobody gets it, because it came back with a delay."""
    attempts: int = 0
    """The attempts that are recorded, so that the next process knows them."""
    tried: int = 0
    """The attempts that its consumers have seen."""
    is_counted: bool = False
    """Whether each attempt is recorded at once: it came back, or may have been in flight when a process died."""
    is_doubtful: bool = False
    """Whether a power cut may have taken records of attempts."""
    is_dead: bool = False
    """Whether it had its last attempt, and is about to leave."""
    topic: str = ""
    """The topic to which it was sent; "" in a queue."""
    is_retained: bool = False
    """Whether it was given to a new subscription as the retained message of the topic."""
    late_ms: int = 0
    """The time before which it is not late, if its reader has a deadline."""
    slack_ms: int = 0
    """How long after late_ms it comes back at the latest."""
    reader: Reader | None = None
    """The consumer whose prefetch it counts for."""
    branch: Branch | None = None
    """The transaction without an outcome that has acknowledged it."""

    @property
    def order(self) -> tuple[int, float]:
        return -self.letter.priority, self.rank

    @property
    def is_in_hands(self) -> bool:
        return self.reader is not None or self.branch is not None


@dataclass(eq=False)
class Reader:
    """A consumer."""

    place: Place
    selector: str | None = None
    prefetch: int = 0
    priority: int = 0
    deadline_ms: int = 0
    """The time that it has to settle a delivery; 0: there is no deadline."""
    is_draining: bool = False
    """Whether it takes nothing more."""
    held: list[Entry] = field(default_factory=list)
    """The entries that it may still settle, in the order of its takes."""

    def wants(self, entry: Entry) -> bool:
        return SELECTORS[self.selector](entry.letter.kind)

    @property
    def credit(self) -> int | None:
        """How many more it may take; None: any number."""
        return self.prefetch - sum(entry.reader is self for entry in self.place.entries) if self.prefetch else None


@dataclass(eq=False)
class Branch:
    """A transaction."""

    sent: list[tuple[str, Letter]] = field(default_factory=list)
    acked: list[Entry] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)
    """The acknowledged entries that become dead letters with the commit, in order."""
    properties: dict[str, bytes | None] = field(default_factory=dict)
    """The properties that it sets; None: it deletes the property."""
    xid: bytes | None = None
    is_of_a_process_before: bool = False
    """Whether an earlier process prepared it: then nobody knows which of its acks are rejections."""

    def applied_to(self, properties: dict[str, bytes]) -> dict[str, bytes]:
        """Return the properties after the commit."""
        both = properties | self.properties
        return {name: value for name, value in both.items() if value is not None}


@dataclass(frozen=True)
class Rejected:
    """An entry that a transaction makes a dead letter."""

    place: Place
    entry: Entry
    reason: str
    attempts: int


@dataclass(frozen=True)
class Rule:
    """The rules that a policy sets. dead_letters: the queue for dead letters; None: they are discarded."""

    max_attempts: int | None = None
    delay_ms: int = 0
    backoff: int = 1
    dead_letters: str | None = None
    keeps_expired: bool = False
    retain_ms: int | None = None
    """How long a topic keeps messages that nobody needs."""
    retain_bytes: int | None = None
    """How many bytes of its newest messages a topic keeps although nobody needs them."""
    inactive_ms: int | None = None
    """The time after which an empty destination that nobody uses is deleted."""

    def wait_ms(self, attempts: int) -> int:
        return self.delay_ms * int(self.backoff ** (attempts - 1))

    def is_last(self, attempts: int) -> bool:
        return self.max_attempts is not None and attempts >= self.max_attempts

    @property
    def retains(self) -> bool:
        return self.retain_ms is not None or self.retain_bytes is not None


@dataclass(eq=False)
class Place:
    """A queue, or one subscription of a topic."""

    name: str
    """The name of the queue, or of the topic."""
    rule: Rule
    selector: str | None = None
    """The selector of a subscription, which gets only messages that match."""
    subscription: str | None = None
    is_durable: bool = True
    is_shared: bool = False
    """Whether its readers admit other readers."""
    entries: list[Entry] = field(default_factory=list)
    readers: list[Reader] = field(default_factory=list)
    line: list[Reader] = field(default_factory=list)
    """The exclusive consumers in line: the first one gets all messages."""
    is_paused: bool = False
    has_message_groups: bool = False
    """Whether a message ever had a group: then the order alone does not decide who gets a message."""
    has_ranks: bool = False
    """Whether a consumer had a priority since the store was opened, with the same effect."""
    is_pattern: bool = False
    """Whether it gets the messages of several topics: the highest priority first, and those of one topic in order."""
    used_ms: int = 0
    """When it was last seen in use. It matters if the place can become inactive."""
    met_ms: int = 0
    """When a consumer was last there and got nothing. The library may not have seen it between two looks."""
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTS, 0))

    @property
    def is_dealt(self) -> bool:
        return self.has_message_groups or self.has_ranks

    @property
    def is_used(self) -> bool:
        return bool(self.entries or self.readers or self.is_paused)


@dataclass(eq=False)
class Sent:
    """A persistent message of a topic that can be read again."""

    letter: Letter
    rank: float
    sent_ms: int
    due_ms: int
    is_retained: bool
    """Whether the policy of the topic keeps it."""
    sequence: int | None = None
    """Its sequence; None: no delivery has shown it yet."""


@dataclass(eq=False)
class Topic:
    """A topic with its subscriptions, and the messages that can be read again."""

    name: str
    rule: Rule
    places: dict[object, Place] = field(default_factory=dict)
    """The places of its subscriptions, by name, or by an object that stands for a subscription without a name."""
    sent: list[Sent] = field(default_factory=list)
    """The existing messages, in order."""
    retained: Letter | None = None
    """The retained message, which each new subscription gets."""
    used_ms: int = 0
    met_ms: int = 0

    @property
    def is_used(self) -> bool:
        return bool(self.places or self.retained) or any(sent.is_retained for sent in self.sent)


class PlainModel:
    """All places of a store, and all that a caller may do to them."""

    def __init__(self, rules: dict[str, Rule], topic_rules: dict[str, Rule]) -> None:
        """Make an empty store. Rules are by name; a destination without one has no last attempt."""
        self._rules, self._topic_rules = rules, topic_rules
        self.now_ms = 0
        self.queues: dict[str, Place] = {}
        self.topics: dict[str, Topic] = {}
        # The places of patterns, by the beginning that the names of their topics share.
        self.patterns: dict[str, list[Place]] = {}
        self.properties: dict[str, bytes] = {}
        self.open: list[Branch] = []
        self.prepared: dict[bytes, Branch] = {}
        self._ranks = 0

    # ------------------------------------------------------------------ places

    def queue(self, name: str) -> Place:
        """Return the place of a queue, which exists from its first use on."""
        if name not in self.queues:
            self.queues[name] = Place(name, self._rules.get(name, Rule()), used_ms=self.now_ms)
        return self.queues[name]

    def topic(self, name: str) -> Topic:
        """Return a topic, which exists from its first use on. Patterns that match include it at once."""
        if name not in self.topics:
            found = Topic(name, self._topic_rules.get(name, Rule()), used_ms=self.now_ms)
            found.places |= {place: place for place in self._matching(name)}
            self.topics[name] = found
        return self.topics[name]

    def _matching(self, name: str) -> Iterator[Place]:
        return (place for beginning, found in self.patterns.items() if name.startswith(beginning) for place in found)

    def subscribe(self, topic: str, key: object, selector: str | None, *, is_durable: bool) -> Place:
        """Return the place of a subscription. A new one gets the retained message of the topic."""
        found = self.topic(topic)
        if key not in found.places:
            name = key if isinstance(key, str) else None
            place = found.places[key] = Place(topic, found.rule, selector, name, is_durable)
            self._give_retained(found, place)
        return found.places[key]

    def subscribe_pattern(self, beginning: str, pattern: str, selector: str | None) -> Place:
        place = Place(pattern, Rule(), selector, is_durable=False, is_pattern=True)
        self.patterns.setdefault(beginning, []).append(place)
        for name, topic in self.topics.items():
            if name.startswith(beginning):
                topic.places[place] = place
                self._give_retained(topic, place)
        return place

    def _give_retained(self, topic: Topic, place: Place) -> None:
        letter = topic.retained
        if letter is not None and SELECTORS[place.selector](letter.kind):
            self._ranks += 1
            copy = replace(letter, is_persistent=False)
            self._arrive(place, Entry(copy, self._ranks, topic=topic.name, is_retained=True))

    def places(self) -> Iterator[Place]:
        yield from self.queues.values()
        places = [place for topic in self.topics.values() for place in topic.places.values()]
        yield from dict.fromkeys(places)

    def inactive(self) -> Iterator[tuple[str, Place | Topic]]:
        """Yield the destinations that are deleted in the end, because nobody uses them."""
        kinds: dict[str, list[Place | Topic]] = {"queue": [*self.queues.values()], "topic": [*self.topics.values()]}
        for kind, found in kinds.items():
            for each in found:
                if each.rule.inactive_ms is not None and not each.is_used and not self.is_known_to_a_branch(each):
                    yield kind, each

    def note_use(self, *, is_look: bool = False) -> None:
        """Note which destinations are in use, before time passes: their inactive time has not begun.

        is_look: the library has looked too. It notices a message whenever that came, all else at a look.
        """
        everything: list[Place | Topic] = [*self.queues.values(), *self.topics.values()]
        for found in everything:
            if found.rule.inactive_ms is not None and (found.is_used or self.is_known_to_a_branch(found)):
                found.met_ms = self.now_ms
                if is_look or (isinstance(found, Place) and found.entries):
                    found.used_ms = self.now_ms

    def delete(self, name: str) -> None:
        """Delete a queue with all its messages, also those that somebody holds."""
        del self.queues[name]

    def is_known_to_a_branch(self, place: Place | Topic) -> bool:
        """Return whether a transaction knows the place, so that it can't be deleted."""
        if isinstance(place, Topic):
            return False
        branches = (*self.open, *self.prepared.values())
        return any(
            place.name in (name for name, _ in branch.sent)
            or place.name in (rejected.place.rule.dead_letters for rejected in branch.rejected)
            or any(entry in place.entries for entry in branch.acked)
            for branch in branches
        )

    # ------------------------------------------------------------------ what is there

    def is_over(self, letter: Letter) -> bool:
        return letter.expires_at_ms is not None and letter.expires_at_ms <= self.now_ms

    def has_expired(self, entry: Entry) -> bool:
        return self.is_over(entry.letter)

    def held_of(self, topic: Topic) -> set[int]:
        """Return the numbers of the persistent messages that consumers or transactions of any subscription hold."""
        entries = [entry for place in topic.places.values() for entry in place.entries if entry.letter.is_persistent]
        return {entry.letter.number for entry in entries if entry.is_in_hands}

    def is_held_elsewhere(self, entry: Entry) -> bool:
        """Return whether another subscription may hold the message: then it expires for none."""
        is_shared = entry.topic and entry.letter.is_persistent
        return bool(is_shared) and entry.letter.number in self.held_of(self.topics[entry.topic])

    def free(self, place: Place) -> list[Entry]:
        """Return the entries of a place that may be handed out now, in order."""
        return [
            entry
            for entry in place.entries
            if not (entry.is_in_hands or entry.is_dead or self.has_expired(entry))
            and max(entry.due_ms, entry.back_ms) <= self.now_ms
        ]

    def offered(self, reader: Reader) -> list[Entry]:
        """Return the entries that a consumer may be handed now, in order unless messages are assigned."""
        place = reader.place
        if place.is_paused or reader.is_draining or (place.line and place.line[0] is not reader):
            return []
        return [entry for entry in self.free(place) if reader.wants(entry) and not self.is_withheld(reader, entry)]

    def is_withheld(self, reader: Reader, entry: Entry) -> bool:
        """Return whether a message must wait for its group, which has one owner and stays in order."""
        group, place = entry.letter.group, reader.place
        if group is None or not place.has_message_groups:
            return False
        for other in place.entries:
            if other.letter.group != group or other is entry:
                continue
            if other.reader not in (None, reader):
                return True
            is_before = other.letter.priority == entry.letter.priority and other.rank < entry.rank
            halts = other.back_ms > self.now_ms or (other.branch in self.open and other.reader is None)
            if is_before and halts and not other.is_dead:
                return True
        return False

    def depths(self, place: Place) -> range:
        """Return the depths that a place may report: expired messages count until they have left."""
        most = len(place.entries)
        gone = sum(self.has_expired(entry) and not entry.is_in_hands for entry in place.entries)
        return range(most - gone, most + 1)

    # ------------------------------------------------------------------ sending

    def arrive(self, place: Place, letters: Iterable[Letter], *, are_tied: bool = False) -> None:
        """Let letters arrive behind all others of their priority. are_tied: their order is not promised."""
        for letter in letters:
            self._ranks += not are_tied
            place.has_message_groups |= letter.group is not None and place.name in self.queues
            self._arrive(place, Entry(replace(letter, delay_ms=0), self._ranks, due_ms=self.now_ms + letter.delay_ms))

    def _arrive(self, place: Place, entry: Entry) -> None:
        place.counts["enqueued"] += 1
        place.used_ms = self.now_ms
        insort(place.entries, entry, key=lambda other: other.order)

    def publish(self, name: str, letters: Iterable[Letter]) -> None:
        """Send to a topic. Non-persistent letters reach only subscriptions with a consumer."""
        topic = self.topic(name)
        for letter in letters:
            self._ranks += 1
            topic.used_ms = self.now_ms
            due_ms = self.now_ms + letter.delay_ms
            if letter.is_persistent:
                topic.sent.append(Sent(letter, self._ranks, self.now_ms, due_ms, topic.rule.retains))
            for place in topic.places.values():
                if (letter.is_persistent or place.readers) and SELECTORS[place.selector](letter.kind):
                    self._arrive(place, Entry(replace(letter, delay_ms=0), self._ranks, due_ms, topic=name))

    def retain(self, name: str, letter: Letter) -> None:
        """Replace the retained message of a topic. A letter without a body deletes it."""
        self.topics[name].retained = letter if letter.size >= 0 else None

    # ------------------------------------------------------------------ topics again

    def existing(self, topic: Topic, *, for_reader: bool) -> list[Sent]:
        """Return the messages that can be read again: retained ones, and those that a subscription needs.

        for_reader: any subscription counts; False, for a cursor: only durable ones.
        """
        needed = {
            entry.letter.number
            for place in topic.places.values()
            if place.is_durable or for_reader
            for entry in place.entries
            if entry.letter.is_persistent
        }
        return [sent for sent in topic.sent if sent.is_retained or sent.letter.number in needed]

    def keep_newest(self, topic: Topic, count: int) -> None:
        """Retain only the newest messages. Older ones are gone once they are due and nobody needs them."""
        retained = [sent for sent in topic.sent if sent.is_retained]
        for sent in retained[: len(retained) - count]:
            sent.is_retained = False
        needed = self.existing(topic, for_reader=True)
        topic.sent = [sent for sent in topic.sent if sent in needed or sent.due_ms > self.now_ms]

    def seek(self, topic: Topic, place: Place, chosen: Iterable[Sent], priority: int | None) -> None:
        """Move a cursor: only the chosen messages of a priority are pending, as if never delivered. None: of all."""
        left = [
            entry
            for entry in place.entries
            if not entry.letter.is_persistent or priority not in (None, entry.letter.priority)
        ]
        for entry in left:
            if entry.letter.is_persistent:
                entry.attempts = entry.tried = entry.back_ms = 0
                entry.is_counted = entry.is_doubtful = False
        place.entries = left
        self.begin(topic, place, chosen)

    def begin(self, topic: Topic, place: Place, chosen: Iterable[Sent]) -> None:
        """Let a reader begin: the chosen messages are pending there, in their old order."""
        for sent in chosen:
            if SELECTORS[place.selector](sent.letter.kind):
                letter = replace(sent.letter, delay_ms=0)
                self._arrive(place, Entry(letter, sent.rank, sent.due_ms, topic=topic.name))

    # ------------------------------------------------------------------ consumers

    def join(self, reader: Reader, *, is_exclusive: bool = False) -> None:
        reader.place.readers.append(reader)
        reader.place.has_ranks |= reader.priority != 0
        if is_exclusive:
            reader.place.line.append(reader)

    def hand_out(self, reader: Reader, entry: Entry) -> None:
        entry.reader = reader
        entry.tried = entry.attempts + 1
        if entry.is_counted:
            entry.attempts = entry.tried
        entry.late_ms, entry.slack_ms = self.now_ms + reader.deadline_ms, reader.deadline_ms // 8
        reader.held.append(entry)
        reader.place.counts["delivered"] += 1

    def acknowledge(self, place: Place, entries: Iterable[Entry]) -> None:
        for entry in entries:
            self._let_go(entry)
            place.entries.remove(entry)
            place.counts["acknowledged"] += 1

    def give_back(self, place: Place, entries: Iterable[Entry], delay_ms: int | None) -> None:
        """Give entries back after a failed attempt. delay_ms: the least delay; None: at once, by a close."""
        for entry in entries:
            self._let_go(entry)
            entry.attempts, entry.is_counted = max(entry.tried, entry.attempts, 1), True
            entry.is_dead = place.rule.is_last(entry.attempts)
            if not entry.is_dead:
                place.counts["redelivered"] += 1
                wait_ms = 0 if delay_ms is None else max(delay_ms, place.rule.wait_ms(entry.attempts))
                entry.back_ms = self.now_ms + wait_ms if wait_ms else 0

    def release(self, place: Place, entries: Iterable[Entry]) -> None:
        """Give entries back untried. The attempt that a hand-out has recorded is taken back, but never below 1."""
        for entry in entries:
            self._let_go(entry)
            entry.attempts = max(entry.tried - 1, 1) if entry.is_counted else entry.attempts
            entry.back_ms = 0
            place.counts["redelivered"] += 1

    def reject(self, place: Place, entries: Iterable[Entry], reason: str) -> None:
        """Make dead letters of entries at once. Without a dead-letter queue, and in one, they are gone."""
        self._ranks += 1
        for entry in entries:
            self._let_go(entry)
            entry.attempts = entry.tried
            self._bury(place, entry, reason)

    def _let_go(self, entry: Entry) -> None:
        if entry.reader is not None and entry in entry.reader.held:
            entry.reader.held.remove(entry)
        entry.reader = entry.branch = None

    def close(self, reader: Reader, untried: Iterable[Entry] = ()) -> None:
        place = reader.place
        place.readers.remove(reader)
        self.release(place, list(untried))
        self.give_back(place, list(reader.held), None)
        for entry in place.entries:
            if entry.reader is reader:
                entry.reader = None  # an open transaction has it
        if reader in place.line:
            was_first = place.line[0] is reader
            place.line.remove(reader)
            if was_first and place.line:
                following = max(place.line, key=lambda other: other.priority)
                place.line.remove(following)
                place.line.insert(0, following)
        if not place.is_durable:
            self.forget(place)

    def forget(self, place: Place) -> None:
        """End a subscription."""
        for topic in self.topics.values():
            topic.places = {key: found for key, found in topic.places.items() if found is not place}
        for places in self.patterns.values():
            if place in places:
                places.remove(place)

    # ------------------------------------------------------------------ transactions

    def hold(self, branch: Branch, entries: Iterable[Entry]) -> None:
        """Acknowledge entries in a transaction. Until its commit they count for the credit of their consumer."""
        for entry in entries:
            assert entry.reader is not None
            entry.reader.held.remove(entry)
            entry.branch = branch
            branch.acked.append(entry)

    def reject_in(self, branch: Branch, place: Place, entries: Iterable[Entry], reason: str) -> None:
        """Reject entries in a transaction. The dead-letter queue is made at once; they go there with the commit."""
        entries = list(entries)
        branch.rejected += [Rejected(place, entry, reason, entry.tried) for entry in entries]
        if place.rule.dead_letters is not None and entries:
            self.queue(place.rule.dead_letters).has_message_groups |= place.has_message_groups
        self.hold(branch, entries)

    def prepare(self, branch: Branch, xid: bytes) -> None:
        self.open.remove(branch)
        branch.xid = xid
        self.prepared[xid] = branch
        for entry in branch.acked:
            entry.attempts, entry.is_counted, entry.reader = entry.tried, True, None

    def end(self, branch: Branch, *, commits: bool) -> None:
        if branch.xid is None:
            self.open.remove(branch)
        else:
            del self.prepared[branch.xid]
        for place in list(self.places()):
            mine = [entry for entry in place.entries if entry.branch is branch]
            if commits:
                rejected = [found.entry for found in branch.rejected]
                self.acknowledge(place, [entry for entry in mine if entry not in rejected])
            else:
                self.give_back(place, mine, 0 if branch.xid is None else None)
        if commits:
            for found in branch.rejected:
                self._ranks += 1
                self._let_go(found.entry)
                counted = found.place.counts
                counted["acknowledged"] += branch.is_of_a_process_before
                counted["dead_lettered"] -= branch.is_of_a_process_before
                found.entry.attempts = found.attempts
                self._bury(found.place, found.entry, found.reason)
            for name, letter in branch.sent:
                self.arrive(self.queue(name), (letter,))
            self.properties = branch.applied_to(self.properties)

    # ------------------------------------------------------------------ many at once

    def pending(self, place: Place, selector: str | None = None) -> list[Entry]:
        """Return the entries that neither a consumer nor a transaction holds, due or not."""
        return [entry for entry in place.entries if not entry.is_in_hands and SELECTORS[selector](entry.letter.kind)]

    def remove(self, place: Place, entries: Iterable[Entry]) -> None:
        for entry in entries:
            place.entries.remove(entry)

    def move(self, source: Place, target: Place, entries: list[Entry]) -> None:
        """Move entries to another queue. They arrive there anew; the delay of their send continues."""
        self.remove(source, entries)
        own = (replace(entry.letter, id=_own_id(entry.letter)) for entry in entries)
        letters = [
            replace(letter, delay_ms=max(entry.due_ms - self.now_ms, 0))
            for letter, entry in zip(own, entries, strict=True)
        ]
        target.has_message_groups |= source.has_message_groups
        self.arrive(target, letters)

    # ------------------------------------------------------------------ what happens by itself

    def let_dead_leave(self) -> None:
        """Let entries leave after their last attempt, as background work does."""
        self._ranks += 1
        for place in list(self.places()):
            for entry in self.pending(place):
                if entry.is_dead:
                    self._bury(place, entry, "max_attempts")

    def let_expired_leave(self) -> None:
        """Let expired entries leave, as background work does. Those of topics leave when nobody holds them."""
        self._ranks += 1
        for topic in self.topics.values():
            held = self.held_of(topic)
            for sent in topic.sent:
                sent.is_retained &= not self.is_over(sent.letter) or sent.letter.number in held
        for place in list(self.places()):
            for entry in self.pending(place):
                if self.has_expired(entry) and not self.is_held_elsewhere(entry):
                    keeps = place.rule.keeps_expired and entry.letter.is_persistent
                    self._bury(place, entry, "expired" if keeps else "")

    def _bury(self, place: Place, entry: Entry, reason: str) -> None:
        place.entries.remove(entry)
        if reason:
            place.counts["dead_lettered"] += 1
            if place.rule.dead_letters is not None:
                target = self.queue(place.rule.dead_letters)
                target.has_message_groups |= place.has_message_groups
                stamp = (place.name, place.subscription, reason, entry.attempts)
                letter = replace(entry.letter, delay_ms=0, expires_at_ms=None, stamp=stamp)
                self.arrive(target, (letter,), are_tied=True)

    # ------------------------------------------------------------------ the end of a process

    def close_store(self) -> None:
        """Close and reopen the store. Held messages come back, each as a failed attempt."""
        for branch in list(self.open):
            self.end(branch, commits=False)
        for place in list(self.places()):
            for reader in list(place.readers):
                self.close(reader)
        self._reopen()
        for place in self.places():
            for entry in place.entries:
                entry.is_counted = entry.attempts > 0

    def crash(self, *, is_power_cut: bool) -> None:
        """Reopen the store after a crash. Consumers and open transactions are gone with what they held."""
        self.open.clear()
        self._reopen()
        for place in self.places():
            for entry in place.entries:
                entry.is_doubtful |= is_power_cut and entry.attempts > 0
                entry.is_counted = True
                entry.tried = entry.attempts

    def _reopen(self) -> None:
        for branch in self.prepared.values():
            branch.is_of_a_process_before = True
        self.patterns.clear()
        for topic in self.topics.values():
            topic.places = {key: place for key, place in topic.places.items() if place.is_durable}
            topic.used_ms = self.now_ms
        for place in self.places():
            place.entries = [entry for entry in place.entries if entry.letter.is_persistent]
            place.readers, place.line = [], []
            place.is_paused = place.has_ranks = False
            place.used_ms = self.now_ms
            place.counts = dict.fromkeys(COUNTS, 0)
            for entry in place.entries:
                entry.reader = None
                entry.branch = entry.branch if entry.branch in self.prepared.values() else None
                entry.is_dead = entry.branch is None and place.rule.is_last(entry.attempts)


def own_id(number: int) -> str | None:
    """Return the id that a message brings itself, as every fourth does."""
    return f"own-{number}" if number % 4 == 0 else None


def _own_id(letter: Letter) -> str | None:
    return letter.id if letter.id == own_id(letter.number) or letter.stamp is not None else None
