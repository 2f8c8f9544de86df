"""MemoryWalk: random steps over everything that takes memory, under a limit that is too small for it.

The whole interface is the state machine's subject, a thousand steps a second.
This walk is about one number and fast: after each step what is held, and what
is guaranteed besides, is below the limit, and `held_bytes_max` says that no
charge between two steps was above it. So that nothing passes by doing nothing,
a walk also knows which messages each queue and each subscription owes to its
consumers. Whatever is delivered must be among them, whole, and in the end all
of them have come.

`python tests/model/memory_walk.py FIRST LAST` walks those seeds and tells what they did.
"""

from __future__ import annotations

import gc
import logging
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from itertools import islice
from random import Random
from struct import Struct
from typing import Final

from simulated_bay import SimulatedBay
from walk_places import DURABLE, SELECTOR, SHARED, Branch, LoosePlace, Place, Taker, TopicPlaces, selected

from forebay import Delivery, DestinationPolicy, Empty, Message, StoreFull
from forebay.cache.accounting.charge import charge_of_all
from forebay.store.numbering import UNLIMITED

KIB: Final = 1024
LIMITS_BYTES: Final = (4096 * KIB, 5120 * KIB, 6144 * KIB, 8192 * KIB)
"""The memory limits from which a seed, and `resize`, choose."""
NUMBERED: Final = Struct(">II")
"""The beginning of a body: the number of the message, and how many bytes follow."""
FILLER: Final = Random(7).randbytes(1024 * KIB)
FILLER_STEP: Final = 977
QUEUE_MESSAGES_MAX: Final = 500
"""Together the queues then want about 16 MiB."""
TOPIC_MESSAGES_MAX: Final = 150
"""Most pending messages of the subscription that is farthest behind."""
NEARLY_FULL_BYTES: Final = 256 * KIB
ROUNDS_MAX: Final = 5
"""Most takes in a row that find nothing although a message is owed."""
PHASE_STEPS: Final = 5_000
"""Steps of a phase. Each phase has its own ratio of sends to takes."""
COMPARED_STEPS: Final = 2_500
"""Steps between two audits of every charge and every depth."""
CHECKED_AUDITS: Final = 8
"""Every so many audits, each structure is checked too."""

QUEUES: Final = ("orders", "grouped", "picked", "retries", "shared", "reserved")
LOOSE_QUEUES: Final = ("mortal", "DLQ.mortal")
"""Queues whose messages expire or become dead letters, so that the walk does not know which must be there."""
MOVES: Final = (("picked", "retries"), ("retries", "reserved"), ("reserved", "retries"))
SELECTING: Final = ("picked", "news", "ledger")
"""The destinations whose messages have the header of SELECTOR."""
ONLINE: Final = 20
"""Subscribers of "news" at the same time."""
QUEUE_CONSUMERS_MAX: Final = 3
OPEN_MAX: Final = 4
PREPARED_MAX: Final = 4
IDLE_QUEUES: Final = 300
SYMBOLS: Final = 40
PROPERTIES: Final = 20

POLICIES: Final = {
    "orders": DestinationPolicy(max_attempts=None, duplicate_window=1_000),
    "picked": DestinationPolicy(max_attempts=None, dead_letter_queue=None),
    "retries": DestinationPolicy(max_attempts=None, redelivery_delay_seconds=2, redelivery_backoff=2),
    "shared": DestinationPolicy(max_attempts=None, memory_share="10%"),
    "reserved": DestinationPolicy(max_attempts=None, memory_reserve="5%"),
    "mortal": DestinationPolicy(max_attempts=2, expiry_sweep_seconds=1),
    "ledger": DestinationPolicy(max_attempts=None, retain_bytes="512KiB"),
    "ticks": DestinationPolicy(max_attempts=None, subscriber_max_messages=100, eviction="latest_per_key"),
    ">": DestinationPolicy(max_attempts=None),
}


@dataclass
class Report:
    """The counts of what walks did."""

    steps: int = 0
    delivered: int = 0
    refused: int = 0
    """Calls that memory, or the properties, had no room for."""
    refused_sends: int = 0
    """Non-persistent messages that found no place, because nobody could give memory for them."""
    full: int = 0
    """Steps behind which memory was nearly full."""
    loads: int = 0
    spilled: int = 0
    """Comparisons that found messages in tmp-storage."""
    compared: int = 0
    delayed: int = 0
    """Messages that wait out the delay of a nack, counted at each comparison."""
    held_peak: float = 0.0
    """The most that was held, at any charge, as a part of the limit."""
    committed_peak: float = 0.0
    """The most that was held behind a step, or guaranteed to somebody and not held."""
    done: Counter[str] = field(default_factory=Counter)

    def add(self, other: Report) -> None:
        held_peak, committed_peak = max(self.held_peak, other.held_peak), max(self.committed_peak, other.committed_peak)
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))
        self.held_peak, self.committed_peak = held_peak, committed_peak

    def __str__(self) -> str:
        mix = ", ".join(f"{name} {count:,}" for name, count in self.done.most_common())
        return (
            f"{self.steps:,} steps; at most {self.held_peak:.4f} of the limit held at any charge, and "
            f"{self.committed_peak:.4f} with what was guaranteed; nearly full behind {self.full:,} steps; "
            f"{self.delivered:,} delivered, {self.loads:,} loads, {self.refused:,} refused, "
            f"{self.refused_sends:,} of single sends; of {self.compared:,} "
            f"comparisons {self.spilled:,} found spilled messages, and all together {self.delayed:,} delayed\n{mix}"
        )


class MemoryWalk:
    """One seed. It draws how messages persist, how busy consumers are, and whether the limit changes meanwhile."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        self.report = Report()
        self._is_resized = seed % 4 == 3
        self._number = 0
        self._xids = 0
        self._fleeting_share = random.choice((0.0, 0.1, 0.5, 0.9))
        # Seeds that seldom acknowledge fill memory with what is in flight.
        self._ack_weight = random.choice((1.0, 1.0, 0.2))
        # That each open begins with.
        self._limit_bytes = random.choice(LIMITS_BYTES)
        self._takers: list[Taker] = []
        self._open: list[Branch] = []
        self._prepared: dict[bytes, Branch] = {}
        self._queues: dict[str, Place] = {name: Place(name) for name in QUEUES}
        self._queues |= {name: LoosePlace(name) for name in LOOSE_QUEUES}
        self._topics = {name: TopicPlaces(name) for name in ("news", "ledger", "symbols", "ticks")}
        self.store = SimulatedBay(
            seed,
            memory_limit=self._limit_bytes,
            sync=random.choice(("never", "never", "interval", "always")),
            max_file_length="1MiB",
            max_checkpoint_adds=random.choice((200, 5_000)),
            policies=POLICIES,
        )
        self.store.bay.topic("ledger")
        self._opened()
        for name, selector in DURABLE.items():
            self._subscribe_durable(name, selector)

    def _opened(self) -> None:
        self.budget = self.store.budget
        # The highest limit since then.
        self._limit_bytes_max = self._limit_bytes
        for _ in range(ONLINE):
            self._subscribe_online("news")
        self._compare()

    def run(self, steps: int) -> Report:
        operations = self._operations()
        done, full, committed_peak = self.report.done, 0, 0.0
        for at in range(steps):
            if at % PHASE_STEPS == 0:
                drawn = iter(self._drawn(operations))
            operation = next(drawn)
            done[operation.__name__ if operation() else self._instead()] += 1
            budget = self.budget
            committed = budget.committed_bytes / budget.limit_bytes
            assert committed <= 1, f"{budget.committed_bytes} of {budget.limit_bytes} are held or guaranteed"
            assert budget.held_bytes_max <= self._limit_bytes_max, f"{budget.held_bytes_max} were held"
            committed_peak = max(committed_peak, committed)
            full += budget.free_bytes < NEARLY_FULL_BYTES
            if (at + 1) % COMPARED_STEPS == 0:
                self._compare()
        self.report.steps, self.report.full, self.report.committed_peak = steps, full, committed_peak
        self._drain()
        return self.report

    def _instead(self) -> str:
        """Do what consumers do, where a step has nothing to begin with, or no room; return its name."""
        if self.random.random() < 0.5 and self.ack():
            return "ack"
        self.take()
        return "take"

    @contextmanager
    def _refusable(self) -> Iterator[None]:
        """Allow the call in the block to find no room in memory. Then it has changed nothing."""
        try:
            yield
        except StoreFull:
            self.report.refused += 1

    @contextmanager
    def refused_at_the_end_of_memory(self, *, persistent: bool) -> Iterator[None]:
        """Let only a non-persistent send in the block find no room, and only if nothing could give memory back."""
        try:
            yield
        except StoreFull as full:
            if persistent or full.limit != "memory_limit":
                raise
            free_bytes, could_give = self.budget.free_bytes, self._could_give()
            needed_bytes = full.needed_bytes + self.store.overflow.account.lent_bytes
            assert not could_give, f"{could_give} could be given back, and a message is refused"
            assert free_bytes < needed_bytes, f"{free_bytes} bytes are free for {needed_bytes}"
            self.report.refused += 1
            self.report.refused_sends += 1

    def _could_give(self) -> dict[str, int]:
        """Bytes that could be given back, without those that a reserve keeps and the last message of each list."""
        store = self.store
        found = {"spill_buffer": store.overflow.could_give_bytes}
        for memory in store.watermarks.reclaim.memories:
            direct = [target.direct for target in store.lists() if target.memory is memory and len(target.direct) > 1]
            found[f"caches {len(found)}"] = min(
                memory.head_queue_cache.holder.held_bytes + memory.pending_cache.holder.held_bytes, memory.spare_bytes
            )
            found[f"lists {len(found)}"] = min(
                sum(charge_of_all([*messages][1:]) for messages in direct), memory.spare_bytes
            )
        return {name: size_bytes for name, size_bytes in found.items() if size_bytes > 0}

    def _operations(self) -> dict[Callable[[], bool], float]:
        """Each with how often it is drawn beside the others."""
        ack_weight = self._ack_weight
        return {
            self.send: 20,
            self.send_many: 0.7,
            self.publish: 3,
            self.publish_many: 0.2,
            self.take: 24,
            self.ack: 30 * ack_weight,
            self.nack: 3,
            self.reject: 0.3,
            self.subscribe: 0.6,
            self.close: 0.4,
            self.unsubscribe: 0.05,
            self.step: 0.4,
            self.advance: 0.3,
            self.send_in: 2,
            self.ack_in: 3,
            self.end: 1.2,
            self.end_prepared: 0.3,
            self.set_property: 0.5,
            self.retain: 0.5,
            self.browse: 0.1,
            self.take_with_deadline: 0.2,
            self.read_again: 0.1,
            self.use_idle: 0.5,
            self.set_prefetch: 0.2,
            self.checkpoint: 0.02,
            self.cleanup: 0.05,
            self.move: 0.004,
            self.purge: 0.004,
            self.resize: 0.02 if self._is_resized else 0.0,
            self.reopen: 0.002,
            self.kill: 0.002,
        }

    def _drawn(self, operations: dict[Callable[[], bool], float]) -> list[Callable[[], bool]]:
        """The steps of a phase, in which senders outdo the consumers, or these catch up."""
        haste = self.random.choice((0.3, 2.0, 4.0, 4.0))
        sending = (self.send, self.send_many, self.publish, self.publish_many)
        weights = [weight * haste if operation in sending else weight for operation, weight in operations.items()]
        return self.random.choices([*operations], weights, k=PHASE_STEPS)

    # ------------------------------------------------------------------ what is sent

    def _body(self, most_bytes: int = len(FILLER)) -> tuple[int, bytes]:
        """The next number, and the body of its message."""
        random = self.random
        self._number += 1
        dice = random.random()
        if dice < 0.6:
            size = int(random.random() * KIB)
        elif dice < 0.93:
            size = int(random.random() * 8 * KIB)
        elif dice < 0.999:
            size = int(random.random() * 64 * KIB)
        else:
            size = int((500 + 200 * random.random()) * KIB)  # an eighth of the limit is 512 KiB
        size = min(size, most_bytes)
        begin = self._number * FILLER_STEP % (len(FILLER) - size)
        return self._number, NUMBERED.pack(self._number, size) + FILLER[begin : begin + size]

    def _message(self, name: str, *, persistent: bool) -> tuple[int, Message]:
        number, body = self._body()
        message = Message(body, persistent=persistent)
        if name in SELECTING:
            message.headers = {"n": number % 10}
        elif name == "grouped":
            message.group = f"group {number % 50}"
        elif name == "ticks":
            message.headers = {"JMSXGroupID": f"key {number % 60}"}
        elif name == "mortal":
            message.expires_in = self.random.choice((None, 0.5, 60.0))
        if self.random.random() < 0.1:
            message.delay = self.random.choice((0.1, 0.5, 10.0))
        return number, message

    def _persists(self) -> bool:
        return self.random.random() >= self._fleeting_share

    def _a_queue(self) -> Place | None:
        """One that has room."""
        name = self.random.choice(QUEUES) if self.random.random() < 0.95 else "mortal"
        place = self._queues[name]
        behind = self.store.queue(name).depth if name == "mortal" else place.behind
        return place if behind < QUEUE_MESSAGES_MAX else None

    def _a_topic(self) -> TopicPlaces | None:
        topic = self._topics[self.random.choice(("news", "ledger", "ledger", "ticks"))]
        return topic if topic.behind < TOPIC_MESSAGES_MAX else None

    def send(self) -> bool:
        place = self._a_queue()
        if place is None:
            return False
        persistent = self._persists()
        number, message = self._message(place.name, persistent=persistent)
        with self.refused_at_the_end_of_memory(persistent=persistent):
            self.store.queue(place.name).send(
                message.body,
                headers=message.headers,
                persistent=persistent,
                group=message.group,
                expires_in=message.expires_in,
                delay=message.delay,
                message_id=f"own {number}" if place.name == "orders" and number % 3 == 0 else None,
            )
            place.arrive((number,), persistent=persistent)
        return True

    def send_many(self) -> bool:
        place = self._a_queue()
        if place is None:
            return False
        count, persistent = self.random.choice((3, 10, 30)), self._persists()
        with self.refused_at_the_end_of_memory(persistent=persistent):  # times of those that are not take memory
            self._send_many(place, self.store.queue(place.name).send_many, count, persistent=persistent)
        return True

    def _send_many(
        self,
        to: Place | TopicPlaces,
        send_many: Callable[[list[Message]], list[str]],
        messages_count: int,
        *,
        persistent: bool,
    ) -> None:
        messages = [self._message(to.name, persistent=persistent) for _ in range(messages_count)]
        numbers = [number for number, _ in messages]
        try:
            send_many([message for _, message in messages])
        except StoreFull as full:
            numbers = numbers[: getattr(full, "stored", 0)]  # which are in
            raise
        finally:
            to.arrive(numbers, persistent=persistent)

    def publish(self) -> bool:
        topic = self._a_topic()
        if topic is None:
            return False
        with self._refusable():  # one that nobody uses is closed, and opened again here
            self._send_many(topic, self.store.bay.topic(topic.name).send_many, 1, persistent=self._persists())
        return True

    def publish_many(self) -> bool:
        topic = self._a_topic()
        if topic is None:
            return False
        with self._refusable():
            self._send_many(topic, self.store.bay.topic(topic.name).send_many, 10, persistent=self._persists())
        return True

    def retain(self) -> bool:
        """The newest of each symbol is what a later subscriber is given."""
        topic = self._topics["symbols"]
        number, body = self._body(KIB)
        symbol = number % SYMBOLS
        with self._refusable():
            self.store.bay.topic("symbols").send(body, headers={"symbol": symbol}, retain="symbol")
            topic.arrive((number,), persistent=True)
            topic.retained[symbol] = number
        return True

    # ------------------------------------------------------------------ who takes it

    def _subscribe_online(self, name: str) -> None:
        topic = self._topics[name]
        selector = SELECTOR if name == "news" and self.random.random() < 0.2 else None
        consumer = self.store.bay.topic(name).subscribe(selector=selector, prefetch=self.random.choice((10, 1000)))
        place = topic.begin((LoosePlace if name == "ticks" else Place)(name, topic, selector))
        place.consumers = 1
        self._takers.append(Taker(consumer, place))

    def _subscribe_durable(self, name: str, selector: str | None) -> bool:
        topic = self._topics["ledger"]
        place = next((each for each in topic.places if each.durable == name), None)
        if place is not None and place.consumers >= (2 if place.is_shared else 1):
            return False
        with self._refusable():
            consumer = self.store.bay.topic("ledger").subscribe(
                durable=name, selector=selector, shared=name == SHARED, prefetch=self.random.choice((0, 10, 1000))
            )
            if place is None:
                place = topic.begin(Place("ledger", topic, selector, name))
            place.consumers += 1
            self._takers.append(Taker(consumer, place))
        return True

    def subscribe(self) -> bool:
        random = self.random
        dice = random.random()
        if dice < 0.25:
            return self._subscribe_durable(*random.choice([*DURABLE.items()]))
        if dice < 0.5:
            name = random.choice(("news", "symbols", "ticks"))
            if len(self._topics[name].places) >= (ONLINE if name == "news" else 2):
                return False
            with self._refusable():
                self._subscribe_online(name)
            return True
        place = self._queues[random.choice((*QUEUES, *LOOSE_QUEUES))]
        if place.consumers >= QUEUE_CONSUMERS_MAX:
            return False
        selector = SELECTOR if place.name == "picked" and random.random() < 0.5 else None
        with self._refusable():
            consumer = self.store.queue(place.name).subscribe(selector=selector, prefetch=random.choice((0, 10, 1000)))
            place.consumers += 1
            self._takers.append(Taker(consumer, place, selector))
        return True

    def take(self) -> bool:
        random = self.random
        taker = random.choice(self._takers)
        self._receive(taker, taker.consumer.take(random.choice((1, 1, 3, 10, 50))))
        return True

    def _receive(self, taker: Taker, deliveries: list[Delivery]) -> None:
        for delivery in deliveries:
            number = number_of(delivery.body)
            taker.place.hand_out(number)
            assert taker.selector is None or selected(number)
            taker.held[number] = delivery
        self.report.delivered += len(deliveries)

    def set_prefetch(self) -> bool:
        self.random.choice(self._takers).consumer.prefetch = self.random.choice((0, 10, 1000))
        return True

    def _some_held(self) -> tuple[Taker, list[int]] | None:
        """Return a consumer and some messages that it holds. None: the few that were asked hold none."""
        for taker in self.random.choices(self._takers, k=5):
            if taker.held:
                break
        else:
            return None
        held = taker.held
        count = self.random.choice((1, 1, 3, 10, 1000))
        return taker, [*islice(held if self.random.random() < 0.8 else reversed(held), count)]

    def ack(self) -> bool:
        found = self._some_held()
        if found is None:
            return False
        taker, numbers = found
        taker.consumer.ack([taker.held.pop(number) for number in numbers])
        taker.place.done(numbers)
        return True

    def nack(self) -> bool:
        found = self._some_held()
        if found is None:
            return False
        taker, numbers = found
        taker.consumer.nack(
            [taker.held.pop(number) for number in numbers], delay=self.random.choice((0.0, 0.0, 0.5, 10.0))
        )
        taker.place.back(numbers)
        return True

    def reject(self) -> bool:
        """Reject in a queue without a dead-letter queue, so that the messages are gone."""
        takers = [taker for taker in self._takers if taker.place.name == "picked" and taker.held]
        if not takers:
            return False
        taker = self.random.choice(takers)
        numbers = [*islice(taker.held, 3)]
        taker.consumer.reject([taker.held.pop(number) for number in numbers])
        taker.place.done(numbers)
        return True

    def close(self) -> bool:
        if len(self._takers) > ONLINE:
            self._close(self._takers.pop(self.random.randrange(len(self._takers))))
            return True
        return False

    def _close(self, taker: Taker) -> None:
        taker.consumer.close()
        place = taker.place
        place.consumers -= 1
        if place.topic is not None and not place.durable:
            place.topic.places.remove(place)
        else:
            place.back(taker.held)

    def unsubscribe(self) -> bool:
        topic = self._topics["ledger"]
        undecided = {place for branch in (*self._open, *self._prepared.values()) for place, _ in branch.acked}
        idle = [place for place in topic.places if not place.consumers and place not in undecided]
        if not idle:
            return False
        place = self.random.choice(idle)
        self.store.bay.topic("ledger").unsubscribe(place.durable)
        topic.places.remove(place)
        return True

    def take_with_deadline(self) -> bool:
        """Take with a deadline, and close the consumer before it passes, so that all messages come back."""
        place = self._queues["orders"]
        with self._refusable(), self.store.queue("orders").subscribe(ack_deadline_seconds=5, prefetch=10) as consumer:
            taker = Taker(consumer, place)
            deliveries = consumer.take(10)
            self._receive(taker, deliveries)
            place.back(taker.held)
            consumer.extend(deliveries, 60)
        return True

    def read_again(self) -> bool:
        with self._refusable(), self.store.bay.topic("ledger").reader("begin") as reader:
            for delivery in reader.take(20):
                number_of(delivery.body)
        return True

    def browse(self) -> bool:
        name = self.random.choice(QUEUES)
        selector = SELECTOR if name == "picked" else None
        for message in islice(self.store.queue(name).browse(selector), self.random.choice((1, 20, 200))):
            number_of(message.body)
        return True

    def use_idle(self) -> bool:
        """One of many queues that nobody uses otherwise."""
        number, body = self._body()
        with self._refusable():
            queue = self.store.queue(f"idle.{self.random.randrange(IDLE_QUEUES)}")
            queue.send(body)
            try:
                assert number_of(queue.get(timeout=0).body) == number
            except (Empty, StoreFull):  # a take without a wait may leave the load to others, and needs a consumer
                assert queue.purge() == 1
        return True

    # ------------------------------------------------------------------ transactions

    def _a_branch(self) -> Branch:
        if len(self._open) < OPEN_MAX and self.random.random() < 0.3 or not self._open:
            self._open.append(Branch(self.store.bay.transaction()))
        return self.random.choice(self._open)

    def send_in(self) -> bool:
        to = self._a_queue() if self.random.random() < 0.8 else self._topics["ledger"]
        if to is None or to.name == "mortal" or to.behind >= QUEUE_MESSAGES_MAX:
            return False
        persistent = self.random.random() < 0.9
        messages = [self._message(to.name, persistent=persistent) for _ in range(self.random.choice((1, 5, 40)))]
        bay = self.store.bay
        sender = bay.topic(to.name) if isinstance(to, TopicPlaces) else bay.queue(to.name)
        try:
            branch = self._a_branch()
            sender.send_many([message for _, message in messages], transaction=branch.transaction)
            sent = len(messages)
        except StoreFull as full:
            self.report.refused += 1
            sent = full.stored
        if sent:
            branch.sent.append((to, [number for number, _ in messages[:sent]], persistent))
        return True

    def ack_in(self) -> bool:
        found = self._some_held()
        if found is None:
            return False
        taker, numbers = found
        numbers = [*filter(taker.place.persists, numbers)]
        if not numbers or not self._is_decidable(taker.place):
            return False
        with self._refusable():
            branch = self._a_branch()
            taker.consumer.ack([taker.held[number] for number in numbers], transaction=branch.transaction)
            for number in numbers:
                del taker.held[number]
            branch.acked.append((taker.place, numbers))
        return True

    def _is_decidable(self, place: Place) -> bool:
        """Whether it outlives its consumers."""
        return place.topic is None or bool(place.durable)

    def end(self) -> bool:
        if not self._open:
            return False
        branch = self._open.pop(self.random.randrange(len(self._open)))
        dice = self.random.random()
        if dice < 0.2 and branch.persists and len(self._prepared) < PREPARED_MAX:
            self._xids += 1
            xid = b"%d" % self._xids
            branch.transaction.prepare(xid)
            self._prepared[xid] = branch
            return True
        commits = dice < 0.8
        branch.transaction.commit() if commits else branch.transaction.rollback()
        branch.end(commits=commits)
        return True

    def end_prepared(self) -> bool:
        if not self._prepared:
            return False
        xid = self.random.choice([*self._prepared])
        (transaction,) = (found for found in self.store.bay.prepared() if found.xid == xid)
        commits = self.random.random() < 0.6
        transaction.commit() if commits else transaction.rollback()
        self._prepared.pop(xid).end(commits=commits)
        return True

    def set_property(self) -> bool:
        random = self.random
        with self._refusable():
            branch = self._a_branch() if random.random() < 0.3 else None
            properties = self.store.bay.properties if branch is None else branch.transaction.properties
            name = f"property {random.randrange(PROPERTIES)}"
            if random.random() < 0.3 and name in properties:
                del properties[name]
            else:
                properties[name] = FILLER[: random.randrange(9 * KIB)]
        return True

    # ------------------------------------------------------------------ what goes on behind

    def step(self) -> bool:
        self.store.bay.step()
        return True

    def advance(self) -> bool:
        self.store.clock.advance(self.random.choice((0.02, 0.1, 0.1, 0.5, 5.0)))
        self.store.bay.step()
        return True

    def checkpoint(self) -> bool:
        self.store.bay.checkpoint()
        return True

    def cleanup(self) -> bool:
        self.store.bay.cleanup()
        return True

    def move(self) -> bool:
        source, to = (self._queues[name] for name in self.random.choice(MOVES))
        fleeting = {number for number in source.free if not source.persists(number)}
        moved = source.empty()
        assert self.store.queue(source.name).move(to.name) == len(moved)
        to.arrive(moved - fleeting, persistent=True)
        to.arrive(fleeting, persistent=False)
        return True

    def purge(self) -> bool:
        name = self.random.choice((*QUEUES, *LOOSE_QUEUES))
        doomed = len(self._queues[name].empty())
        purged = self.store.queue(name).purge()
        assert name in LOOSE_QUEUES or purged == doomed, f"{purged} of {doomed} messages of {name} purged"
        return True

    def resize(self) -> bool:
        report = self.store.bay.resize(self.random.choice(LIMITS_BYTES))
        self._limit_bytes_max = max(self._limit_bytes_max, report.limit_bytes)
        return True

    def reopen(self) -> bool:
        self._end_process()
        self.store.reopen()
        self._opened()
        return True

    def kill(self) -> bool:
        self._end_process()
        self.store.crash()
        self._opened()
        return True

    def _end_process(self) -> None:
        """Prepared transactions outlive it, and durable subscriptions, and what is persistent."""
        self._note_peak()
        for branch in self._open:
            branch.end(commits=False)
        self._open.clear()
        for taker in self._takers:
            taker.place.back(taker.held)
        self._takers.clear()
        for topic in self._topics.values():
            topic.places = [place for place in topic.places if place.durable]
        for place in self._places():
            place.end_process()

    # ------------------------------------------------------------------ what must be true

    def _places(self) -> list[Place]:
        return [*self._queues.values(), *(place for topic in self._topics.values() for place in topic.places)]

    def _note_peak(self) -> None:
        report = self.report
        report.held_peak = max(report.held_peak, self.budget.held_bytes_max / self._limit_bytes_max)
        report.loads += self.store.loader.durations.count

    def _compare(self) -> None:
        """Each charge with what it is for, and each depth with what is owed."""
        report = self.report
        report.compared += 1
        if report.compared % CHECKED_AUDITS == 0:
            self.store.check()
        else:
            self.store.audit()
        for name in QUEUES:
            place, found = self._queues[name], self.store.queue(name).statistics()
            owed = len(place.free) + len(place.held)
            assert found.depth == owed, f"{name} has {found.depth} messages, not {owed}"
            report.delayed += found.depth - found.ready - found.in_flight
        subscriptions = self.store.bay.topic("ledger").statistics().subscriptions
        for place in self._topics["ledger"].places:
            if place.selector is None:
                depth, owed = subscriptions[place.durable].depth, len(place.free) + len(place.held)
                assert depth == owed, f"{depth} for {place.durable}, not {owed}"
        report.spilled += self.store.bay.statistics().tmp_storage.messages > 0
        given_up = [home for home, size in self.store.relocation.left.unnameable.items() if size == UNLIMITED]
        assert not given_up, f"relocation did not find all that is in data logs {given_up}"

    def _drain(self) -> None:
        """All that is owed comes, and nothing of it twice."""
        for branch in self._open:
            branch.transaction.rollback()
            branch.end(commits=False)
        self._open.clear()
        while self._prepared:
            self.end_prepared()
        while self._takers:
            self._close(self._takers.pop())
        for name in LOOSE_QUEUES:
            self.store.queue(name).purge()
        self.store.clock.advance(10_000)
        self.store.bay.step()
        for place in self._places():
            if place.name not in LOOSE_QUEUES:
                self._drain_place(place)
        self.store.check()
        self.store.queue("DLQ.mortal").purge()
        self.store.bay.step()
        assert self.store.bay.statistics().tmp_storage.bytes == 0
        self._note_peak()

    def _drain_place(self, place: Place) -> None:
        bay = self.store.bay
        if place.topic is None:
            consumer = bay.queue(place.name).subscribe(prefetch=0)
        else:
            shared = place.is_shared
            consumer = bay.topic(place.name).subscribe(
                durable=place.durable, selector=place.selector, shared=shared, prefetch=0
            )
        with consumer:
            taker = Taker(consumer, place)
            rounds = 0
            while place.free:
                deliveries = consumer.take(100)
                rounds = 0 if deliveries else rounds + 1  # a take without a wait may leave a search to the background
                assert deliveries or bay.step() or rounds < ROUNDS_MAX, f"{place.behind} of {place.name} do not come"
                self._receive(taker, deliveries)
                consumer.ack(deliveries)
                place.done(taker.held)
                taker.held.clear()
            assert not consumer.take(), f"{place.name} has what is not owed"


def number_of(body: bytes) -> int:
    """The message's number; its body is whole."""
    number, size = NUMBERED.unpack_from(body)
    begin = number * FILLER_STEP % (len(FILLER) - size)
    assert body[NUMBERED.size :] == FILLER[begin : begin + size], f"message {number} is damaged"
    assert isinstance(number, int)
    return number


def walk(seed: int, steps: int) -> Report:
    """Walk so many steps. An error says which seed it was, and after what."""
    found = MemoryWalk(seed)
    try:
        return found.run(steps)
    except BaseException as error:
        error.add_note(f"seed {seed}, {steps} steps, after {sum(found.report.done.values())}: {found.report.done}")
        raise
    finally:
        del found
        gc.collect()  # a store is a cycle of objects, and its disk holds a hundred MiB


def main(first: int, last: int, steps: int) -> None:
    """Walk some seeds, and say after each what came of all so far."""
    logging.disable(logging.WARNING)
    total, began = Report(), time.process_time()
    for seed in range(first, last + 1):
        total.add(walk(seed, steps))
        print(f"seeds {first} to {seed}, {time.process_time() - began:.0f} s of CPU: {total}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 100_000)
