"""Random operations over the public interface against a plain model, under a limit that is far too small.

The model is lists and dicts: each queue's messages that nobody holds, in
order of priority and arrival, and who holds the rest. Whatever the library
does with its memory, a take must give the first of what the model gives, and
the ledger must stay below the limit at every single charge.
"""

from __future__ import annotations

import gc
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random

import pytest
from sampling import sampled
from simulated_bay import SimulatedBay
from sortedcontainers import SortedDict

from forebay import Consumer, Delivery, DestinationPolicy, Message, StoreFull
from forebay.cache.accounting.budget import Budget, Holder
from forebay.cache.accounting.charge import charge_of
from forebay.cache.messages.head_queue_cache import HeadQueueCache
from forebay.cache.messages.pending_cache import PendingCache
from forebay.dispatch.config.sizes import parse_size
from forebay.dispatch.core.areas.list_order import list_to_load
from forebay.store.message import Headers
from forebay.store.stored_message import StoredMessage

KIB = 1024
LIMIT_BYTES = 4096 * KIB
BACKLOG_BYTES_MAX = 8 * LIMIT_BYTES
LIMITS = ("4MiB", "5MiB", "8MiB", "12MiB", "16MiB")
"""The limits from which `resize` chooses."""
RESIZE_STEPS = 50
FILLER = Random(1).randbytes(1024 * KIB)
QUEUES = ("orders", "prices", "audit")

Matches = Callable[[Headers, int, bool], bool]
SELECTORS: dict[str | None, Matches] = {
    None: lambda headers, priority, persistent: True,
    "n = 0": lambda headers, priority, persistent: headers.get("n") == 0,
    "kind IN ('tea', 'salt') AND n > 20": lambda headers, priority, persistent: (
        headers.get("kind") in ("tea", "salt") and headers.get("n", 0) > 20  # type: ignore[operator]
    ),
    "JMSDeliveryMode = 'NON_PERSISTENT'": lambda headers, priority, persistent: not persistent,
    "JMSPriority >= 5 OR kind IS NULL": lambda headers, priority, persistent: (
        priority >= 5 or headers.get("kind") is None
    ),
}


@dataclass
class Sent:
    """One message, and what has become of it. Its body is a part of FILLER: a copy would outweigh the library."""

    id: str
    begin: int
    size: int
    headers: Headers
    priority: int
    arrival: int
    persistent: bool
    matching: frozenset[str | None]
    """The selectors that match it."""
    returns: int = 0
    due: float = 0.0

    @property
    def body(self) -> bytes:
        return FILLER[self.begin : self.begin + self.size]

    @property
    def place(self) -> tuple[int, int]:
        return -self.priority, self.arrival


@dataclass
class Taker:
    """A consumer, with the messages that it should hold in the order of its takes."""

    consumer: Consumer
    queue: str
    selector: str | None
    prefetch: int
    held: dict[str, tuple[Delivery, Sent]] = field(default_factory=dict)


class Model:
    """Makes each call on the library and on the model. `steps` counts the calls."""

    def __init__(self, seed: int, *, is_resized: bool = False) -> None:
        self.random = Random(seed)
        self.is_resized = is_resized
        self.limit = "4MiB"
        self.store = SimulatedBay(
            seed,
            memory_limit=LIMIT_BYTES,
            max_file_length="1MiB",
            max_checkpoint_adds=self.random.choice((50, 5_000)),
            policies={">": DestinationPolicy(max_attempts=None)},
        )
        self.free: dict[str, SortedDict[tuple[int, int], Sent]] = {name: SortedDict() for name in QUEUES}
        self.parked: list[tuple[str, Sent]] = []
        self.takers: list[Taker] = []
        self.non_persistent_share = self.random.choice((0.0, 0.1, 0.5, 0.9, 1.0))
        # Seeds that seldom acknowledge fill memory with what is in flight.
        self.ack_weight = self.random.choice((1.0, 1.0, 0.1))
        self.arrivals = 0
        self.backlog_bytes = 0
        self.done: Counter[str] = Counter()

    def run(self, steps: int) -> None:
        operations: dict[Callable[[], None], float] = {
            self.send: 20,
            self.send_many: 6,
            self.take: 40,
            self.ack_some: 22 * self.ack_weight,
            self.ack_one: 10 * self.ack_weight,
            self.nack: 5,
            self.subscribe: 2,
            self.close_consumer: 1.5,
            self.step: 10,
            self.advance: 3,
            self.set_prefetch: 0.5,
            self.checkpoint: 0.3,
            self.cleanup: 0.3,
            self.reopen: 0.05,
        }
        names, weights = list(operations), list(operations.values())
        for number, operation in enumerate(self.random.choices(names, weights, k=steps), start=1):
            operation()
            self.done[operation.__name__] += 1
            memory = self.store.budget
            assert memory.held_bytes <= memory.limit_bytes
            if self.is_resized and number % RESIZE_STEPS == 0:
                self.resize()
            if number % 1000 == 0:
                self.store.check()
                self.compare_depths()
        self.drain()

    # What is sent.

    def message(self) -> tuple[Message, int]:
        """Return a message, and the place in FILLER where its body begins."""
        random = self.random
        dice = random.random()
        if dice < 0.85:
            size = random.randrange(2 * KIB)
        elif dice < 0.997:
            size = random.randrange(100 * KIB)
        else:
            size = random.randrange(400 * KIB, 700 * KIB)  # an eighth of the limit is 512 KiB
        begin = random.randrange(len(FILLER) - size)
        headers: Headers | None = None
        if random.random() < 0.7:
            headers = {"n": random.randrange(100), "kind": random.choice(("tea", "salt", "rice", None))}
        priority = random.choice((4, 4, 4, 4, 0, 9, 5))
        own_id = f"own-{self.arrivals}-{random.random()}" if random.random() < 0.05 else None
        persistent = random.random() > self.non_persistent_share
        return Message(FILLER[begin : begin + size], headers, priority, own_id, persistent), begin

    def sent(self, queue: str, message: Message, begin: int, message_id: str) -> None:
        assert message.message_id in (None, message_id)
        self.arrivals += 1
        headers, priority = message.headers or {}, message.priority
        matching = frozenset(
            text for text, matches in SELECTORS.items() if matches(headers, priority, message.persistent)
        )
        size = len(message.body)
        sent = Sent(message_id, begin, size, headers, priority, self.arrivals, message.persistent, matching)
        self.free[queue][sent.place] = sent
        self.backlog_bytes += len(message.body)

    def send(self) -> None:
        if self.backlog_bytes > BACKLOG_BYTES_MAX:
            return
        name = self.random.choice(QUEUES)
        message, begin = self.message()
        message_id = self.store.queue(name).send(
            message.body,
            headers=message.headers,
            priority=message.priority,
            message_id=message.message_id,
            persistent=message.persistent,
        )
        self.sent(name, message, begin, message_id)

    def send_many(self) -> None:
        if self.backlog_bytes > BACKLOG_BYTES_MAX:
            return
        name = self.random.choice(QUEUES)
        messages = [self.message() for _ in range(self.random.choice((1, 3, 30, 300)))]
        ids = self.store.queue(name).send_many(message for message, _ in messages)
        assert len(ids) == len(messages)
        for (message, begin), message_id in zip(messages, ids, strict=True):
            self.sent(name, message, begin, message_id)

    # Who takes it.

    def subscribe(self) -> None:
        if len(self.takers) >= 6:
            return
        random = self.random
        name, selector = random.choice(QUEUES), random.choice((None, None, *SELECTORS))
        prefetch = random.choice((0, 1, 10, 1000))
        try:
            consumer = self.store.queue(name).subscribe(selector=selector, prefetch=prefetch)
        except StoreFull:  # consumers and lists are charged, and here what is in flight may hold all that memory has
            assert self.takers, "nothing is in flight, so there is room for a consumer"
            return
        self.takers.append(Taker(consumer, name, selector, prefetch))

    def expected(self, taker: Taker) -> Iterator[Sent]:
        """Yield the messages that a consumer could get, in order."""
        free = self.free[taker.queue]
        for place in free:
            sent = free[place]
            if taker.selector in sent.matching:
                yield sent

    def take(self) -> None:
        if not self.takers:
            return self.subscribe()
        random = self.random
        taker = random.choice(self.takers)
        most = random.choice((1, 1, 5, 50, 300))
        max_bytes = random.choice((None, None, 1, 10 * KIB, 300 * KIB))
        credit = taker.prefetch - len(taker.held) if taker.prefetch else most
        if taker.held and self.store.dispatch_area.is_short:
            credit = 0  # what is in flight fills memory: who holds something must settle it first
        expected = next(self.expected(taker), None) if credit > 0 else None
        deliveries = taker.consumer.take(most, max_bytes=max_bytes)
        scans = 0
        while expected is not None and taker.selector is not None and not deliveries:
            # A take that does not wait may leave the scan to the background, or, where memory is short, to the next.
            starving = list_to_load(taker.consumer.selector_group)
            assert starving is None or starving in self.store.loads.running_low, "nobody goes on with the scan"
            # One load may want a message of an eighth of the limit, and the buffer that it is read into.
            is_short = self.store.budget.free_bytes < self.store.budget.target_bytes // 4 + KIB
            went_on = self.store.bay.step() or taker.consumer.statistics().direct_entries
            assert went_on or is_short, "the scan ended too early"
            loads = self.store.loader.durations.count
            deliveries = taker.consumer.take(most, max_bytes=max_bytes)
            assert deliveries or self.store.loader.durations.count > loads, "the take did not go on with the scan"
            scans += 1
            assert scans <= self.store.queue(taker.queue).depth, "the scan does not end"
        assert (expected is not None) == bool(deliveries), f"{len(deliveries)} deliveries, expected {expected}"
        assert len(deliveries) <= min(most, max(credit, 0))
        self.delivered(taker, deliveries)
        if max_bytes is not None and len(deliveries) > 1:
            assert sum(len(delivery.body) for delivery in deliveries[1:]) <= max_bytes

    def delivered(self, taker: Taker, deliveries: list[Delivery]) -> None:
        expected = self.expected(taker)
        taken = [(delivery, next(expected)) for delivery in deliveries]
        for delivery, sent in taken:
            assert delivery.id == sent.id, f"{delivery!r} came instead of {sent.id}"
            assert delivery.attempts == sent.returns + 1
            assert delivery.body == sent.body
            assert delivery.headers == sent.headers
            assert delivery.persistent == sent.persistent
            assert (delivery.priority, delivery.destination) == (sent.priority, taker.queue)
            taker.held[sent.id] = delivery, sent
            del self.free[taker.queue][sent.place]

    def set_prefetch(self) -> None:
        if self.takers:
            taker = self.random.choice(self.takers)
            taker.prefetch = taker.consumer.prefetch = self.random.choice((0, 1, 10, 1000))

    def some_held(self) -> tuple[Taker, list[str]]:
        taker = self.random.choice(self.takers)
        ids = list(taker.held)
        count = self.random.choice((1, 10, len(ids), len(ids)))
        how = self.random.random()
        if how < 0.6:
            return taker, ids[:count]
        if how < 0.8:
            return taker, ids[-count:]
        return taker, self.random.sample(ids, min(count, len(ids)))

    def ack_some(self) -> None:
        if not self.takers:
            return
        taker, ids = self.some_held()
        if ids and self.random.random() < 0.2:
            ids = list(taker.held)[: list(taker.held).index(ids[0]) + 1]
            taker.consumer.ack_up_to(taker.held[ids[-1]][0])
        else:
            taker.consumer.ack([taker.held[name][0] for name in ids])
        for name in ids:
            self.acknowledged(taker, name)

    def ack_one(self) -> None:
        if self.takers and (taker := self.random.choice(self.takers)).held:
            name = next(iter(taker.held))
            taker.held[name][0].ack()
            self.acknowledged(taker, name)

    def acknowledged(self, taker: Taker, name: str) -> None:
        self.backlog_bytes -= taker.held.pop(name)[1].size

    def returned(self, taker: Taker, name: str, due: float = 0.0) -> None:
        _, sent = taker.held.pop(name)
        sent.returns += 1
        sent.due = due
        if due:
            self.parked.append((taker.queue, sent))
        else:
            self.free[taker.queue][sent.place] = sent

    def nack(self) -> None:
        if not self.takers:
            return
        taker, ids = self.some_held()
        delay = self.random.choice((0.0, 0.0, 0.5, 3))
        taker.consumer.nack([taker.held[name][0] for name in ids], delay=delay)
        for name in ids:
            self.returned(taker, name, self.store.clock.monotonic() + delay if delay else 0.0)

    def close_consumer(self) -> None:
        if self.takers:
            taker = self.takers.pop(self.random.randrange(len(self.takers)))
            taker.consumer.close()
            for name in list(taker.held):
                self.returned(taker, name)

    # What goes on behind.

    def step(self) -> None:
        self.store.bay.step()

    def advance(self) -> None:
        self.store.clock.advance(self.random.choice((0.01, 0.3, 2.0)))
        self.store.bay.step()
        now = self.store.clock.monotonic()
        for queue, sent in self.parked:
            if sent.due <= now:
                self.free[queue][sent.place] = sent
        self.parked = [(queue, sent) for queue, sent in self.parked if sent.due > now]

    def resize(self) -> None:
        before = self.store.bay.statistics().memory.limit_bytes
        self.limit = self.random.choice(LIMITS)
        report = self.store.bay.resize(self.limit)
        target = self.store.bay.settings.memory_limit_bytes
        assert target <= report.limit_bytes <= max(before, target)
        assert report.held_bytes <= report.limit_bytes
        assert report.is_settled == (not report.awaited)
        if report.is_settled:
            assert report.limit_bytes == target
        else:
            self.done["awaited"] += 1
            assert report.awaited.keys() <= {"attempts", "dispatch_area", "target_lists", "spill_buffer", "tmp_storage"}
        self.store.audit()

    def checkpoint(self) -> None:
        self.store.bay.checkpoint()

    def cleanup(self) -> None:
        self.store.bay.cleanup()

    def reopen(self) -> None:
        """Close and reopen the store, which loses only non-persistent messages."""
        for taker in self.takers:
            for name in list(taker.held):
                self.returned(taker, name)
        self.takers.clear()
        for queue, sent in self.parked:
            if not sent.persistent:
                self.free[queue][sent.place] = sent
        self.parked = [(queue, sent) for queue, sent in self.parked if sent.persistent]
        self.store.reopen()
        self.limit = "4MiB"
        for messages in self.free.values():
            for place, sent in list(messages.items()):
                if not sent.persistent:
                    self.backlog_bytes -= sent.size
                    del messages[place]
        self.compare_depths()

    # What must be true.

    def compare_depths(self) -> None:
        for name in QUEUES:
            held = [sent for taker in self.takers if taker.queue == name for _, sent in taker.held.values()]
            parked = [sent for queue, sent in self.parked if queue == name]
            assert self.store.queue(name).depth == len(self.free[name]) + len(held) + len(parked)

    def drain(self) -> None:
        """Nothing lost, nothing twice, all in order."""
        while self.takers:
            self.close_consumer()
        self.store.clock.advance(10)
        self.advance()
        for name in QUEUES:
            with self.store.queue(name).subscribe(prefetch=0) as consumer:
                taker = Taker(consumer, name, None, 0)
                while deliveries := consumer.take(100):
                    self.delivered(taker, deliveries)
                    consumer.ack(deliveries)
                    taker.held.clear()
            assert not self.free[name]
            assert self.store.queue(name).depth == 0
        self.store.check()
        assert self.store.bay.statistics().tmp_storage.bytes == 0
        assert self.store.disk.list("tmp-storage") == []
        self.store.bay.step()
        memory = self.store.bay.statistics().memory
        assert memory.limit_bytes == parse_size("memory_limit", self.limit, minimum=0)
        assert not self.store.resizing.is_under_way


@pytest.fixture(autouse=True)
def _limit_at_every_charge(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("reserve", "reserve_for_progress"):
        monkeypatch.setattr(Holder, name, checked(getattr(Holder, name)))


def checked(reserve: Callable[[Holder, int], bool]) -> Callable[[Holder, int], bool]:
    def reserve_and_check(self: Holder, charge_bytes: int) -> bool:
        budget = self._budget
        was_above = budget.held_bytes > budget.ceiling_bytes
        admitted = reserve(self, charge_bytes)
        assert budget.committed_bytes <= budget.limit_bytes
        if was_above and admitted and reserve.__name__ == "reserve":
            assert self.held_bytes <= self.guaranteed_bytes, "charged above a limit that falls"
        return admitted

    return reserve_and_check


@pytest.mark.parametrize("seed", sampled(range(10), 4))
def test_what_is_taken_is_what_the_model_says(seed: int) -> None:
    run(seed, 3_000)


@pytest.mark.parametrize("seed", sampled(range(10), 4))
def test_what_is_taken_is_what_the_model_says_whatever_the_limit_becomes_meanwhile(seed: int) -> None:
    run(seed, 3_000, is_resized=True)


def test_lists_do_not_take_memory_from_each_other_for_ever() -> None:
    """Here one list's load once took 32 KiB from another, whose load took it back."""
    run(127, 10_000, is_resized=True)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 200))
def test_what_is_taken_is_what_the_model_says_a_million_times(seed: int) -> None:
    run(seed, 10_000, is_resized=seed % 2 == 1)


LEDGER_STEPS = 100_000
SHORT_SEEDS = 2


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=[pytest.mark.soak] if seed >= SHORT_SEEDS else []) for seed in range(100)]
)
def test_the_ledger_stays_below_the_limit_ten_million_times(seed: int) -> None:
    """Ten million steps of the memory layer alone: the budget, its guarantees, both caches and a limit that changes."""
    steps = LEDGER_STEPS if seed >= SHORT_SEEDS else LEDGER_STEPS // 10
    LedgerModel(seed).run(steps)


class LedgerModel:
    """Charges the ledger as lists, deliveries, loads and acks do, without a journal."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.budget = Budget(LIMIT_BYTES)
        self.index = self.budget.holder("index", guaranteed_bytes=512 * KIB)
        self.reading = self.budget.holder("read_buffers", guaranteed_bytes=256 * KIB)
        self.lists = self.budget.holder("target_lists")
        self.dispatch = self.budget.holder("dispatch_area")
        self.head = HeadQueueCache(self.budget.holder("head_queue_cache"), LIMIT_BYTES // 4)
        self.pending = PendingCache(self.budget.holder("pending_cache"), self.head, LIMIT_BYTES // 4)
        self.direct: deque[StoredMessage] = deque()
        self.in_flight: list[StoredMessage] = []
        self.sequence = 0
        # Steps that found memory nearly full.
        self.full = 0

    def run(self, steps: int) -> None:
        operations = [self.arrive, self.take, self.ack, self.give_back, self.load, self.use_index]
        budget = self.budget
        for number, operation in enumerate(self.random.choices(operations, (8, 3, 1.8, 0.4, 2, 2), k=steps)):
            operation()
            assert budget.held_bytes <= budget.limit_bytes
            self.full += budget.free_bytes < 64 * KIB
            if number % 5_000 == 0:
                budget.resize(self.random.randrange(LIMIT_BYTES // 2, 2 * LIMIT_BYTES))
                self.check()
        self.check()
        assert self.full > steps // 10, "memory was seldom full"

    def check(self) -> None:
        self.budget._check()
        self.head._check()
        self.pending._check()
        assert self.lists.held_bytes == sum(map(charge_of, self.direct))
        assert self.dispatch.held_bytes == sum(map(charge_of, self.in_flight))

    def arrive(self) -> None:
        self.sequence += 1
        begin = self.random.randrange(len(FILLER) - 64 * KIB)
        message = (self.sequence, b"", FILLER[begin : begin + int(self.random.expovariate(1 / (8 * KIB)))], 0)
        if self.lists.reserve(charge_of(message)):
            self.direct.append(message)
        elif not self.pending.put(self.sequence % 3, message):
            self.head.put(self.sequence % 5, message)

    def take(self) -> None:
        if self.direct:
            message = self.direct.popleft()
            self.lists.transfer(self.dispatch, charge_of(message))
            self.in_flight.append(message)

    def ack(self) -> None:
        for _ in range(min(len(self.in_flight), self.random.randrange(4))):
            message = self.in_flight.pop(self.random.randrange(len(self.in_flight)))
            self.dispatch.release(charge_of(message))

    def give_back(self) -> None:
        wanted = self.random.randrange(64 * KIB)
        wanted -= self.head.give_back(wanted)
        if wanted > 0:
            wanted -= self.pending.give_back(wanted)
        while wanted > 0 and self.direct:
            message = self.direct.pop()
            self.lists.release(charge_of(message))
            wanted -= charge_of(message)
        self.budget.approach_target()

    def load(self) -> None:
        """Charge a read buffer, and let a message of a cache change its owner."""
        size = self.random.randrange(512 * KIB)
        if self.reading.reserve(size):
            message = self.pending.take(self.sequence % 3, self.sequence - self.random.randrange(50))
            if message is not None:
                assert self.lists.reserve_released(charge_of(message)), "what was just released can be reserved again"
                self.direct.append(message)
            self.reading.release(size)

    def use_index(self) -> None:
        """Let acks reserve blocks of the index, which must succeed at any usage."""
        if self.index.held_bytes < 512 * KIB:
            assert self.index.reserve(5632) or self.index.held_bytes + 5632 > 512 * KIB
        else:
            self.index.release(self.index.held_bytes)


@pytest.fixture(autouse=True)
def _one_disk_at_a_time() -> Iterator[None]:
    """Collect each bay after its test. A bay is a cycle of objects, and its simulated disk holds 100 MiB."""
    yield
    gc.collect()


def run(seed: int, steps: int, *, is_resized: bool = False) -> None:
    model = Model(seed, is_resized=is_resized)
    try:
        model.run(steps)
    except BaseException as error:
        error.add_note(f"seed {seed}, {steps} steps, after {sum(model.done.values())}: {dict(model.done)}")
        raise
