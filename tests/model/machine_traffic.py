"""The state machine's first half: messages sent, taken and settled."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from random import Random
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from machine_calls import (
    ALWAYS,
    BYTES_MAX,
    CALLS,
    ENTRIES_MAX,
    EVERYTHING,
    EXCLUSIVE,
    EXCLUSIVE_SUBSCRIPTIONS,
    EXPIRING,
    FILE_LENGTHS,
    GROUPED,
    IDLE,
    LOOK_SECONDS,
    ONE_PRIORITY,
    POLICIES,
    QUEUE_RULES,
    QUEUES,
    RANKED,
    RANKED_SUBSCRIPTIONS,
    REJECTING,
    ROUNDS_MAX,
    START_MS,
    SUBSCRIPTIONS,
    TOPIC_RULES,
    TOPICS,
    Shape,
    body_of,
    call,
    calls,
    deadlines,
    delays,
    identity,
    identity_of,
    message_of,
    number_of,
    picks,
    seen,
    shapes,
)
from plain_model import SELECTORS, Branch, Entry, Letter, Place, PlainModel, Reader, own_id
from simulated_bay import SimulatedBay

from forebay import (
    Closed,
    Consumer,
    Delivery,
    Queue,
    SettingsError,
    StateError,
    StoreFull,
    SubscriptionInUse,
    TemporaryQueue,
    Transaction,
    TransactionError,
)
from forebay.dispatch.config.settings import MEMORY_LIMIT_BYTES_MIN
from forebay.dispatch.core.model.delivery import is_in_flight


class Traffic(RuleBasedStateMachine):
    """The store, the model, and what is sent to both and taken from both."""

    entries_max = ENTRIES_MAX
    bytes_max = BYTES_MAX
    subscriptions = SUBSCRIPTIONS
    """The durable subscriptions of each topic, by name, with their selectors."""
    subscriptions_max = 8

    def __init__(self) -> None:
        super().__init__()
        self.model = PlainModel(QUEUE_RULES, TOPIC_RULES)
        self.consumers: dict[Reader, Consumer] = {}
        self.deliveries: dict[Entry, Delivery] = {}
        self.transactions: dict[Branch, Transaction] = {}
        self.settled: list[tuple[Consumer, Delivery]] = []
        # What was not settled before its deadline.
        self.late: list[Delivery] = []
        # When topics have last let go of what is too old to be retained, at the least.
        self.trimmed_ms = 0
        # Whose last take found nothing, and who was not called since.
        self.searching: set[Reader] = set()
        self.numbers = 0
        self.temporary: dict[str, TemporaryQueue] = {}
        # Of queues that go when nobody uses them: a handle outlives that.
        self.handles: dict[str, Queue] = {}

    @initialize(
        sync=st.sampled_from(("always", "always", "never", "interval")),
        adds=st.sampled_from((50, 5_000)),
        file_length=st.sampled_from(tuple(FILE_LENGTHS)),
        queues=st.lists(st.sampled_from(QUEUES), min_size=1, max_size=3, unique=True),
        topics=st.lists(st.sampled_from(TOPICS), min_size=1, max_size=3, unique=True),
        left_out=st.sets(st.deferred(lambda: st.sampled_from(sorted(CALLS.keys() - ALWAYS))), max_size=8),
        number=picks,
    )
    def opened(
        self,
        sync: str,
        adds: int,
        file_length: str,
        queues: list[str],
        topics: list[str],
        left_out: set[str],
        number: int,
    ) -> None:
        self.sync, self.queues, self.topics, self.left_out = sync, list(queues), list(topics), left_out
        self.properties_max = FILE_LENGTHS[file_length] // 4
        self.random = Random(number)
        self.store = SimulatedBay(
            number,
            sync=sync,
            max_checkpoint_adds=adds,
            max_file_length=file_length,
            index_cache_size="256KiB",
            policies=POLICIES,
        )

    @rule(chosen=calls())
    def do(self, chosen: tuple[Any, ...]) -> None:
        name, *arguments = chosen
        if name not in self.left_out:
            getattr(self, name)(*arguments)

    # ------------------------------------------------------------------ sending

    def letters(self, given: list[Shape], place: str, *, only_persistent: bool = False) -> list[Letter]:
        """only_persistent: where messages that are not persistent are refused."""
        if sum(len(found.entries) for found in self.model.places()) + len(given) > self.entries_max:
            return []
        if sum(entry.letter.size for found in self.model.places() for entry in found.entries) > self.bytes_max:
            return []
        letters = []
        for size, kind, priority, is_persistent, group, delay_ms, lifetime_ms in given:
            self.numbers += 1
            letters.append(
                Letter(
                    self.numbers,
                    size,
                    kind,
                    4 if place in ONE_PRIORITY else priority,
                    is_persistent or only_persistent,
                    group if place in GROUPED else None,
                    delay_ms,
                    None if lifetime_ms is None or place not in EXPIRING else self.model.now_ms + lifetime_ms,
                )
            )
        return letters

    def sent(self, letters: list[Letter], ids: list[str]) -> list[Letter]:
        assert len(ids) == len(letters)
        assert all(own_id(letter.number) in (None, id) for letter, id in zip(letters, ids, strict=True))
        return [Letter(**(vars(letter) | {"id": id})) for letter, id in zip(letters, ids, strict=True)]

    @call(picks, shapes, weight=3)
    def send(self, where: int, shape: Shape) -> None:
        name = self.queues[where % len(self.queues)]
        for letter in self.letters([shape], name):
            message = message_of(letter, self.model.now_ms)
            id = self.handle(name).send(
                message.body,
                headers=message.headers,
                priority=message.priority,
                message_id=message.message_id,
                persistent=message.persistent,
                group=message.group,
                expires_in=message.expires_in,
                delay=message.delay,
            )
            self.model.arrive(self.model.queue(name), self.sent([letter], [id]))

    def handle(self, name: str) -> Queue:
        """The first one goes on where the queue was deleted for want of use."""
        if name not in IDLE:
            return self.store.queue(name)
        if name not in self.handles:
            self.handles[name] = self.store.queue(name)
        return self.handles[name]

    @call(picks, st.lists(shapes, max_size=5), st.sampled_from((1, 1, 8)), weight=4)
    def send_many(self, where: int, given: list[Shape], times: int) -> None:
        name = self.queues[where % len(self.queues)]
        letters = self.letters(given * times, name)
        ids = self.store.queue(name).send_many(message_of(letter, self.model.now_ms) for letter in letters)
        self.model.arrive(self.model.queue(name), self.sent(letters, ids))

    def some_topic(self, pick: int) -> str:
        return self.topics[pick % len(self.topics)]

    @call(st.lists(shapes, min_size=1, max_size=4), st.sampled_from((1, 1, 5)), picks, weight=4)
    def publish(self, given: list[Shape], times: int, where: int = 0) -> None:
        name = self.some_topic(where)
        letters = self.letters(given * times, name)
        self.model.topic(name)
        ids = self.store.bay.topic(name).send_many(message_of(letter, self.model.now_ms) for letter in letters)
        self.model.publish(name, self.sent(letters, ids))

    # ------------------------------------------------------------------ consumers

    def ready(self, reader: Reader) -> None:
        self.searching.discard(reader)

    def attach(self, reader: Reader, subscribe: Callable[..., Consumer]) -> bool:
        """Return whether there is room for it: what is in flight may leave none of the least limit."""
        try:
            self.consumers[reader] = subscribe(on_ready=lambda: self.ready(reader))
        except StoreFull as full:
            assert full.limit == "memory_limit" and self.store.budget.limit_bytes == MEMORY_LIMIT_BYTES_MIN
            return False
        return True

    @call(
        picks,
        st.sampled_from((None, None, None, *SELECTORS)),
        st.sampled_from((0, 1, 5, 1000)),
        st.sampled_from((0, 0, 5, -5)),
        st.booleans(),
        deadlines,
        weight=4,
    )
    def subscribe(
        self, where: int, selector: str | None, prefetch: int, priority: int, is_exclusive: bool, deadline: int
    ) -> None:
        names = (*self.queues, *self.queues, *self.model.queues)
        name = names[where % len(names)]
        place = self.model.queue(name)
        if len(place.readers) < 4:
            priority = priority if name in RANKED else 0
            is_exclusive = is_exclusive and name in EXCLUSIVE
            reader = Reader(place, selector, prefetch, priority, deadline * 1000)
            queue = self.store.queue(name)
            subscribe = partial(queue.subscribe, selector=selector, exclusive=is_exclusive)
            options: dict[str, Any] = {"prefetch": prefetch, "priority": priority, "ack_deadline_seconds": deadline}
            if self.attach(reader, partial(subscribe, **options)):
                self.model.join(reader, is_exclusive=is_exclusive)

    @call(
        st.sampled_from((None, *SUBSCRIPTIONS)),
        st.sampled_from((0, 5, 1000)),
        st.sampled_from((0, 0, 5, -5)),
        st.booleans(),
        st.booleans(),
        picks,
        deadlines,
        weight=4,
    )
    def subscribe_topic(
        self,
        name: str | None,
        prefetch: int,
        priority: int = 0,
        is_shared: bool = False,
        is_exclusive: bool = False,
        where: int = 0,
        deadline: int = 0,
    ) -> None:
        topic = self.some_topic(where)
        places = self.model.topic(topic).places
        selector = self.subscriptions[name] if name is not None else None
        key = name or object()
        known = places.get(key)
        readers = len(known.readers) if known is not None else 0
        if readers > 3 or (known is None and len(places) >= self.subscriptions_max):
            self.store.bay.topic(topic)
            return
        options: dict[str, Any] = {"durable": name, "selector": selector, "prefetch": prefetch}
        options |= {"ack_deadline_seconds": deadline}
        is_shared = is_shared and name is not None
        if known is not None and readers and not (is_shared and known.is_shared):
            with pytest.raises(SubscriptionInUse):
                self.store.bay.topic(topic).subscribe(**options, shared=is_shared)
            return
        place = self.model.subscribe(topic, key, selector, is_durable=name is not None)
        place.is_shared = is_shared
        priority = priority if name in RANKED_SUBSCRIPTIONS else 0
        is_exclusive = is_exclusive and name in EXCLUSIVE_SUBSCRIPTIONS
        reader = Reader(place, selector, prefetch, priority, deadline * 1000)
        options |= {"shared": is_shared, "priority": priority, "exclusive": is_exclusive}
        if self.attach(reader, partial(self.store.bay.topic(topic).subscribe, **options)):
            self.model.join(reader, is_exclusive=is_exclusive)
        elif known is None:
            self.model.forget(place)

    @call(picks)
    def unsubscribe(self, pick: int) -> None:
        idle = [
            place
            for topic in self.model.topics.values()
            for place in topic.places.values()
            if place.is_durable and not place.readers
        ]
        if idle:
            place = idle[pick % len(idle)]
            assert place.subscription is not None
            self.store.bay.topic(place.name).unsubscribe(place.subscription)
            self.model.forget(place)

    @call(picks, st.sampled_from((1, 1, 3, 10, 100)), weight=10)
    def take(self, pick: int, most: int) -> None:
        if not self.consumers:
            self.subscribe(pick, None, 1000, 0, False, 0)
        if self.consumers:
            self.receive(list(self.consumers)[pick % len(self.consumers)], most)

    def receive(self, reader: Reader, most: int) -> list[Entry]:
        """Take, check each delivery, and return the entries that were taken."""
        consumer, place = self.consumers[reader], reader.place
        if reader.is_draining:
            with pytest.raises(Closed):
                consumer.take(most)
            return []
        taken = consumer.take(most)
        self.notice_late()
        room = most if reader.credit is None else max(min(most, reader.credit), 0)
        assert not (taken and reader in self.searching), "nobody said that there is something"
        rounds = 0
        while not taken and room and self.must_get(reader):
            # What does not wait may leave a search, or room for what it found, to the background.
            self.settle()
            taken = consumer.take(most)
            self.notice_late()
            room = most if reader.credit is None else max(min(most, reader.credit), 0)
            rounds += 1
            assert rounds < ROUNDS_MAX, f"{self.model.offered(reader)[0]} is not handed out"
        assert len(taken) <= room
        offered = self.model.offered(reader)
        if not taken:
            self.searching.add(reader)
            if offered and room:
                self.settle()  # a search that the take left to the background comes to its end, and tells
        entries = []
        for delivery in taken:
            if place.is_dealt or place.is_pattern:
                offered = self.model.offered(reader)
            entries.append(self.handed_out(reader, delivery, offered))
        return entries

    def handed_out(self, reader: Reader, delivery: Delivery, offered: list[Entry]) -> Entry:
        """Return the entry of a delivery. Assert that it was offered, and that it was its turn."""
        entry = self.entry_of(delivery, offered)
        if reader.place.is_dealt or reader.place.is_pattern:
            self.check_turn(reader, entry, offered)
        else:
            first = offered.pop(0)
            assert entry is first, f"{entry} came before {first}"
        self.check_delivery(entry, delivery)
        self.model.hand_out(reader, entry)
        assert delivery.attempts == entry.tried
        self.deliveries[entry] = delivery
        return entry

    def must_get(self, reader: Reader) -> bool:
        """Whether there is something for it, and for nobody else rather than for it."""
        offered, place = self.model.offered(reader), reader.place
        if not offered or (reader.credit != reader.prefetch and self.store.dispatch_area.is_short):
            return False  # where what is in flight fills memory, who holds something settles it first
        readers = [other for other in place.readers if not other.is_draining]
        if not place.is_dealt or len(readers) == 1:
            return True
        is_first = reader.priority == max(other.priority for other in readers)
        return is_first and any(entry.letter.group is None for entry in offered)

    def entry_of(self, delivery: Delivery, offered: list[Entry]) -> Entry:
        found = identity(number_of(delivery.body, delivery.headers), delivery.headers)
        entry = next(
            (other for other in offered if identity_of(other) == found and other.is_retained == delivery.retained), None
        )
        assert entry is not None, f"{found} is not for this consumer now"
        return entry

    def check_delivery(self, entry: Entry, delivery: Delivery) -> None:
        """Assert that a delivery shows what was sent."""
        letter = entry.letter
        assert delivery.body == body_of(letter)
        assert delivery.headers["kind"] == letter.kind
        assert delivery.destination == (entry.topic or delivery.destination)
        if entry.topic and letter.is_persistent:
            (sent,) = (sent for sent in self.model.topics[entry.topic].sent if sent.letter.number == letter.number)
            assert sent.sequence in (None, delivery.sequence)
            sent.sequence = delivery.sequence
        assert (delivery.priority, delivery.persistent) == (letter.priority, letter.is_persistent)
        assert delivery.group == letter.group
        assert letter.id in (None, delivery.id)
        expires_at_ms = letter.expires_at_ms
        assert delivery.expires_at == (None if expires_at_ms is None else START_MS + expires_at_ms)
        if letter.stamp is not None and letter.stamp[2] == "max_attempts":
            assert delivery.headers["dead_letter_attempts"] == letter.stamp[3]
        if entry.is_doubtful:
            assert 1 <= delivery.attempts <= entry.attempts + 1
            entry.attempts = delivery.attempts - 1
            entry.is_doubtful = delivery.attempts == 1

    def check_turn(self, reader: Reader, entry: Entry, offered: list[Entry]) -> None:
        """Assert the order that is promised: of a group where messages are assigned, and of a topic in a pattern."""
        if reader.place.is_pattern:
            assert entry is next(other for other in offered if other.topic == entry.topic)
            assert entry.letter.priority == offered[0].letter.priority
        group = entry.letter.group
        if group is not None:
            peers = [
                other
                for other in offered
                if other.letter.group == group and other.letter.priority == entry.letter.priority
            ]
            assert entry is peers[0], f"{entry} was handed out before {peers[0]}"

    def some_held(self, pick: int, count: int, *, is_timed: bool = False) -> tuple[Reader, list[Entry]] | None:
        """is_timed: of a consumer that has a deadline, if there is one."""
        holding = [reader for reader in self.consumers if reader.held]
        if is_timed:
            holding = [reader for reader in holding if reader.deadline_ms] or holding
        if not holding:
            return None
        reader = holding[pick % len(holding)]
        chosen = reader.held[:count] if pick & 64 else Random(pick).sample(reader.held, min(count, len(reader.held)))
        return reader, chosen

    @call(picks, st.sampled_from((1, 1, 3, 100)), weight=4)
    def ack(self, pick: int, count: int) -> None:
        found = self.some_held(pick, count)
        if found is not None:
            reader, entries = found
            if pick & 128 and len(entries) == 1:
                self.deliveries[entries[0]].ack()
            else:
                self.consumers[reader].ack([self.deliveries[entry] for entry in entries])
            self.done(reader, entries)

    @call(picks)
    def ack_up_to(self, pick: int) -> None:
        found = self.some_held(pick, 1)
        if found is not None:
            reader, (entry,) = found
            self.consumers[reader].ack_up_to(self.deliveries[entry])
            self.done(reader, reader.held[: reader.held.index(entry) + 1])

    def done(self, reader: Reader, entries: list[Entry]) -> None:
        self.settled = [(self.consumers[reader], self.deliveries[entries[0]])]
        self.model.acknowledge(reader.place, entries)

    @call(picks, st.sampled_from((1, 3, 100)), delays, weight=3)
    def nack(self, pick: int, count: int, delay_ms: int) -> None:
        found = self.some_held(pick, count)
        if found is not None:
            reader, entries = found
            self.consumers[reader].nack([self.deliveries[entry] for entry in entries], delay=delay_ms / 1000)
            self.settled = [(self.consumers[reader], self.deliveries[entries[0]])]
            self.model.give_back(reader.place, entries, delay_ms)

    @call(picks, st.sampled_from((1, 3, 100)), weight=2)
    def release(self, pick: int, count: int) -> None:
        found = self.some_held(pick, count)
        if found is not None:
            reader, entries = found
            if pick & 128 and len(entries) == 1:
                self.deliveries[entries[0]].release()
            else:
                self.consumers[reader].release([self.deliveries[entry] for entry in entries])
            self.settled = [(self.consumers[reader], self.deliveries[entries[0]])]
            self.model.release(reader.place, entries)

    @call(picks, st.sampled_from((1, 3, 100)))
    def reject(self, pick: int, count: int) -> None:
        found = self.some_held(pick, count)
        if found is not None:
            reader, entries = found
            if reader.place.name not in REJECTING:
                return
            if pick & 128 and len(entries) == 1:
                self.deliveries[entries[0]].reject("no good")
            else:
                self.consumers[reader].reject([self.deliveries[entry] for entry in entries], reason="no good")
            self.settled = [(self.consumers[reader], self.deliveries[entries[0]])]
            self.model.reject(reader.place, entries, "no good")
            for place in self.queue_places():
                self.untie(place)

    @call(picks, st.sampled_from(("ends", "raises", "settles")), weight=2)
    def settle_in_a_block(self, pick: int, how: str) -> None:
        found = self.some_held(pick, 1)
        if found is None:
            return
        reader, (entry,) = found
        delivery = self.deliveries[entry]
        with suppress(KeyError), delivery:
            if how == "raises":
                raise KeyError(entry)
            if how == "settles":
                delivery.release()
        self.settled = [(self.consumers[reader], delivery)]
        if how == "ends":
            self.model.acknowledge(reader.place, [entry])
        elif how == "raises":
            self.model.give_back(reader.place, [entry], 0)
        else:
            self.model.release(reader.place, [entry])

    @call(picks, st.sampled_from((0, 1, 5, 1000)))
    def set_prefetch(self, pick: int, prefetch: int) -> None:
        if self.consumers:
            reader = list(self.consumers)[pick % len(self.consumers)]
            reader.prefetch = self.consumers[reader].prefetch = prefetch
            assert self.consumers[reader].prefetch == (0 if reader.is_draining else prefetch)

    @call(picks)
    def close_consumer(self, pick: int) -> None:
        if self.consumers and pick % 2 == 0:
            self.leave(list(self.consumers)[pick % len(self.consumers)], pick)

    def leave(self, reader: Reader, pick: int = 0) -> None:
        """All that was handed out was looked at: one close in four names what was processed."""
        consumer = self.consumers.pop(reader)
        tried = Random(pick).sample(reader.held, len(reader.held) // 2) if pick & 6 == 6 else list(reader.held)
        if len(tried) < len(reader.held):
            settled = [delivery for other, delivery in self.settled if other is consumer]
            consumer.close(processed=[*settled, *(self.deliveries[entry] for entry in tried)])
        else:
            consumer.close()
        with pytest.raises(Closed):
            consumer.take()
        self.model.close(reader, [entry for entry in reader.held if entry not in tried])

    @call(picks)
    def misuse(self, pick: int) -> None:
        """Settle deliveries twice, or those of another consumer. Each call is refused and changes nothing."""
        if not self.settled:
            return
        consumer, delivery = self.settled[0]
        # It came back perhaps, and a transaction decides about it now.
        verbs = (delivery.ack, delivery.nack, delivery.release, delivery.reject)
        with pytest.raises((SettingsError, StateError, TransactionError)):
            verbs[pick % len(verbs)]()
        found = self.some_held(pick, 100)
        if found is not None and self.consumers[found[0]] is not consumer:
            held, own = [self.deliveries[entry] for entry in found[1]], self.consumers[found[0]]
            with pytest.raises(SettingsError):
                (consumer.ack, consumer.nack, consumer.release, consumer.reject)[pick % len(verbs)](held)
            with pytest.raises((SettingsError, StateError, TransactionError)):
                (own.ack, own.nack, own.release, own.reject)[pick % len(verbs)]([*held, delivery])

    # ------------------------------------------------------------------ time

    @call(st.sampled_from((0.25, 1.0, 1.0, 4.0, 40.0)), weight=2)
    def wait(self, seconds: float) -> None:
        self.settle(seconds)

    @call(st.sampled_from((500, 1_000)))
    def pass_time(self, ms: int) -> None:
        """Let time pass without background work. So no work may become due meanwhile, except that messages expire."""
        coming = range(self.model.now_ms + 1, self.model.now_ms + ms + 1)
        entries = [entry for place in self.model.places() for entry in place.entries]
        if self.is_watched or any(
            entry.is_dead or entry.due_ms in coming or entry.back_ms in coming for entry in entries
        ):
            return
        self.model.now_ms += ms
        self.store.clock.advance(ms / 1000)

    @property
    def is_watched(self) -> bool:
        """Whether something happens when time has passed, some time after that unless somebody looks often."""
        has_deadline = any(reader.deadline_ms and reader.held for reader in self.consumers)
        return has_deadline or any(self.model.inactive())

    def settle(self, seconds: float = 0.25) -> None:
        """Time passes, and all that is due is done."""
        self.store.bay.step()
        self.notice_late()
        self.notice_gone()
        self.let_dead_leave()
        while seconds > 0:
            part = min(seconds, LOOK_SECONDS) if self.is_watched else seconds
            self.let_pass(part)
            seconds -= part

    def let_pass(self, seconds: float) -> None:
        self.model.note_use()
        self.store.clock.advance(seconds)
        self.model.now_ms += int(seconds * 1000)
        for _ in range(3):
            self.store.bay.step()
        self.model.note_use(is_look=seconds >= LOOK_SECONDS)
        self.notice_late()
        self.model.let_expired_leave()
        for reader in self.consumers:
            for entry in reader.held if reader.deadline_ms else ():
                latest_ms = entry.late_ms + entry.slack_ms + 2 * LOOK_SECONDS * 1000
                assert self.model.now_ms <= latest_ms, f"{entry} was not settled in time, and does not come back"
        for place in self.queue_places():
            self.untie(place)
        self.notice_gone()
        self.trimmed_ms = self.model.now_ms - 1000

    def notice_late(self) -> None:
        """Take over deliveries that came back after their deadline, each as a failed attempt. None came too early."""
        has_dead = False
        for reader in self.consumers:
            if not reader.deadline_ms:
                continue
            late = [entry for entry in reader.held if not is_in_flight(self.deliveries[entry])]
            for entry in late:
                assert entry.late_ms <= self.model.now_ms, f"{entry} came back too early"
            self.late += [self.deliveries[entry] for entry in late]
            self.model.give_back(reader.place, late, 0)
            has_dead = has_dead or any(entry.is_dead for entry in late)
        if has_dead:
            # One look finds what all consumers are late with: nobody promises whose dead letters come first.
            self.store.bay.step()
            self.let_dead_leave()

    def let_dead_leave(self) -> None:
        self.model.let_dead_leave()
        for place in self.queue_places():
            self.untie(place)

    def notice_gone(self) -> None:
        """Take over the deletion of inactive destinations. None went too early, and each goes in the end."""
        bay = self.store.bay
        there = {"queue": bay.destinations(), "topic": bay.topics()}
        for kind, found in list(self.model.inactive()):
            unused_ms, inactive_ms = self.model.now_ms - found.used_ms, found.rule.inactive_ms or 0
            if found.name in there[kind]:
                unused_ms = self.model.now_ms - max(found.used_ms, found.met_ms)
                assert unused_ms <= 1.2 * inactive_ms + 2 * LOOK_SECONDS * 1000, f"{found.name} stays"
            else:
                assert unused_ms >= inactive_ms and not found.is_used, f"{found.name} went"
                del (self.model.queues if kind == "queue" else self.model.topics)[found.name]

    def untie(self, place: Place) -> None:
        """Give entries that came at once from several places the order that was seen."""
        if len({entry.order for entry in place.entries}) < len(place.entries):
            order = {seen(message): n for n, message in enumerate(self.store.queue(place.name).browse())}
            for entry in place.entries:
                entry.rank += order[identity_of(entry)] / EVERYTHING
            place.entries.sort(key=lambda entry: entry.order)

    def queue_places(self) -> list[Place]:
        return list(self.model.queues.values())
