"""The workload of the crash tests, drawn by a seed, and the model of what a crash may leave of it.

The body or a header identifies a message. Numbers of the store do not, because they may come again after a lost tail.
The model has three parts: the messages that must be there (send confirmed, ack never asked for), the messages that must
never come again (ack confirmed), and the one call in flight, whose outcome is open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from extents import by_record
from inside import inside

from forebay import Consumer, Delivery, Forebay, Message
from forebay.store.directory_store import DirectoryStore
from forebay.store.message import Headers

FILLER = Random(1).randbytes(64 * 1024)
NUMBER_DIGITS = 8
EVERYTHING = 1_000_000
LONGEST_DELAY_SECONDS = 3.0
"""The longest delay of a nack."""
PENDING_MAX = 50
"""With so many pending messages nothing more is sent: a larger backlog would only make each check dearer."""

WEIGHTS = {
    "send": (1, 3, 8),
    "send_many": (0, 1, 3),
    "take": (3, 6),
    "ack": (0, 3, 6),
    "ack_any": (0, 3, 6),
    "nack": (0, 0, 1, 2),
    "close_consumer": (0, 0, 1),
    "checkpoint": (0, 1, 2),
    "cleanup": (0, 1, 4),
    "reopen": (0, 0, 1, 2),
    "step": (0, 0, 1),
}
"""By operation, the weights of which each seed draws one."""


class Sent(NamedTuple):
    """One message as it was handed to the library."""

    queue: str
    priority: int
    body: bytes
    headers: Headers


@dataclass(frozen=True)
class Mix:
    """The choices of one seed: sizes, destinations, and how often each operation comes."""

    seed: int
    queues: tuple[str, ...]
    priorities: tuple[int, ...]
    body_bytes_max: int
    stuck_share: float
    weights: Mapping[str, int]

    @classmethod
    def draw(cls, seed: int) -> Mix:
        random = Random(seed)
        weights = {name: random.choice(choices) for name, choices in WEIGHTS.items()}
        return cls(
            seed,
            queues=("orders", "prices", "audit")[: random.choice((1, 1, 2, 3))],
            priorities=random.choice(((4,), (4,), (0, 9), tuple(range(10)))),
            body_bytes_max=random.choice((0, 200, 3_000, 20_480, 20_480)),
            stuck_share=random.choice((0.0, 0.0, 0.05, 0.3)),
            weights=weights,
        )

    def message(self, number: int, queue: str) -> Sent:
        """Return the message of a number, always the same. Headers identify it if its body is too short."""
        random = Random(self.seed * 1_000_003 + number)
        size = random.choice((0, random.randrange(64), self.body_bytes_max, random.randint(0, self.body_bytes_max)))
        start = random.randrange(1024)
        body = b"%0*d" % (NUMBER_DIGITS, number) + FILLER[start : start + size]
        headers: Headers = {}
        if random.random() < 0.3:
            headers = {"n": number, "region": random.choice(("eu", "us")), "kg": size / 8, "raw": body[:3], "x": None}
            body = body[random.choice((0, NUMBER_DIGITS)) :]
        return Sent(queue, random.choice(self.priorities), body, headers)

    def is_stuck(self, number: int) -> bool:
        """Return whether nobody ever acknowledges the message of a number."""
        return Random(self.seed * 1_000_033 + number).random() < self.stuck_share


def number_of(delivery: Delivery) -> int:
    """Return the number of a delivered message."""
    return number_in(delivery.headers, delivery.body)


def number_in(headers: Headers, body: bytes) -> int:
    """Return the number of a message with these headers and this body."""
    number = headers.get("n")
    return number if isinstance(number, int) else int(body[:NUMBER_DIGITS])


@dataclass
class Model:
    """The messages that must be there, those that must not, and those that the call in flight leaves open."""

    sent: dict[int, Sent] = field(default_factory=dict)
    pending: set[int] = field(default_factory=set)
    gone: set[int] = field(default_factory=set)
    coming: tuple[int, ...] = ()
    """The messages of the send in flight, in order."""
    going: tuple[int, ...] = ()
    """The messages of the ack in flight, in order."""
    history: list[int] = field(default_factory=list)
    """The confirmed calls, in order: the number of each sent message, the complement for each acknowledged one."""
    synced: int = 0
    """How much of the history is durable, whatever `sync` says."""
    ids: list[str] = field(default_factory=list)
    """The ids that confirmed sends returned."""

    def fork(self) -> Model:
        return Model(
            self.sent.copy(),
            self.pending.copy(),
            self.gone.copy(),
            self.coming,
            self.going,
            self.history.copy(),
            self.synced,
            self.ids.copy(),
        )

    def sending(self, messages: Mapping[int, Sent]) -> None:
        """A call that sends these begins."""
        self.sent.update(messages)
        self.coming = tuple(messages)

    def acknowledging(self, numbers: Iterable[int]) -> None:
        """A call that acknowledges these begins."""
        self.going = tuple(numbers)

    def done(self, ids: Iterable[str] = ()) -> None:
        """The call in flight was confirmed, and returned these ids."""
        self.ids += ids
        self.history += [*self.coming, *(~number for number in self.going)]
        self.pending.update(self.coming)
        self.pending.difference_update(self.going)
        self.gone.update(self.going)
        self.coming = self.going = ()

    def settle(self, found: Mapping[str, Sequence[Delivery]]) -> None:
        """A recovery decided what was open: what it shows is there, all else must never come."""
        self.pending = {number_of(delivery) for deliveries in found.values() for delivery in deliveries}
        self.gone = set(self.sent) - self.pending
        self.coming = self.going = ()
        self.history = sorted(self.pending)
        self.synced = len(self.history)

    def check(self, found: Mapping[str, Sequence[Delivery]]) -> None:
        """AssertionError unless found is what a crash may leave where every confirmed call was made durable."""
        numbers = self._check_contents(found)
        lost = self.pending - numbers - set(self.going)
        assert not lost, f"lost: {sorted(lost)}"
        returned = numbers & self.gone
        assert not returned, f"acknowledged and back again: {sorted(returned)}"
        came = [number in numbers for number in self.coming]
        assert came == sorted(came, reverse=True), f"of the sends {self.coming} these arrived: {came}"

    def check_prefix(self, found: Mapping[str, Sequence[Delivery]]) -> None:
        """AssertionError unless found is what some moment left since the last sync: the newest calls may be undone."""
        numbers = self._check_contents(found)
        events = [*self.history, *self.coming, *(~number for number in self.going)]
        state = {event for event in events[: self.synced] if event >= 0}
        state.difference_update(~event for event in events[: self.synced] if event < 0)
        for event in [*events[self.synced :], None]:
            if state == numbers:
                return
            if event is not None:
                state.symmetric_difference_update((event if event >= 0 else ~event,))
        raise AssertionError(f"no moment of {events} (synced: {self.synced}) left {sorted(numbers)}")

    def _check_contents(self, found: Mapping[str, Sequence[Delivery]]) -> set[int]:
        """Each is one that was sent, as it was sent, once, by priority and then in the order of sends."""
        everything: set[int] = set()
        for queue, deliveries in found.items():
            places = []
            for delivery in deliveries:
                headers, body = delivery.headers, delivery.body
                number = number_in(headers, body)
                sent = self.sent.get(number)
                assert sent is not None, f"{number} was never sent"
                received = Sent(queue, delivery.priority, body, headers)
                assert received == sent, f"{number} was changed"
                assert number not in everything, f"{number} is there twice"
                everything.add(number)
                places.append((-sent.priority, number))
            assert places == sorted(places), f"{queue} is out of order: {places}"
        return everything


def found_in(bay: Forebay) -> dict[str, list[Delivery]]:
    """All that is pending, taken and not acknowledged."""
    found: dict[str, list[Delivery]] = {}
    inside(bay).let_pass(LONGEST_DELAY_SECONDS)
    for name in bay.destinations():
        consumer = bay.queue(name).subscribe(prefetch=EVERYTHING)
        deliveries = found[name] = []
        while taken := consumer.take(EVERYTHING):
            deliveries += taken
        depth = bay.queue(name).depth
        assert len(deliveries) == depth, f"{name} has {depth} messages, {len(deliveries)} can be had"
        unreadable = sum(lane.unreadable for lane in inside(bay).queue_state(name).all_lanes())
        assert not unreadable, f"{name} has {unreadable} messages that can't be read"
    return found


def canonical(store: DirectoryStore) -> dict[int, tuple[int, list[tuple[int, int, int, int]]]]:
    """By lane, the next sequence, and of each pending one its data log, offset and place in the record.

    What two indexes over one journal must agree on, however they came about.
    """
    exported: dict[int, tuple[int, list[tuple[int, int, int, int]]]] = {}
    exported |= {number: (next_sequence, []) for number, next_sequence in store.index.idle}
    for number, lane in store.index.lanes.items():
        places: list[tuple[int, int, int, int]] = []
        run = lane.pending_run(0, EVERYTHING)
        while run is not None:
            for extent in by_record(lane.extents(*run)):
                places += [
                    (extent.first_sequence + n, extent.data_log, extent.offset, extent.skip + n)
                    for n in range(extent.messages)
                ]
            run = lane.pending_run(run[1] + 1, EVERYTHING)
        exported[number] = lane.next_sequence, places
    return exported


@dataclass
class Taker:
    """A consumer, and what it holds that somebody will settle; stuck messages it holds for ever."""

    queue: str
    consumer: Consumer
    held: list[Delivery] = field(default_factory=list)


class Workload:
    """Does what the mix says, one operation a step, and tells the model before and after each call."""

    def __init__(
        self,
        mix: Mix,
        random: Random,
        model: Model,
        bay: Forebay,
        *,
        reopen: Callable[[], Forebay],
        advance: Callable[[float], None],
    ) -> None:
        """reopen: closes the store and opens it again. advance: lets seconds pass."""
        self._mix = mix
        self._random = random
        self._model = model
        self._bay = bay
        self._do_reopen = reopen
        self._advance = advance
        self._takers: list[Taker] = []
        self._operations = list(mix.weights)
        self._weights = list(mix.weights.values())
        self._next_number = max(model.sent, default=-1) + 1

    def step(self) -> None:
        """One operation."""
        name = self._random.choices(self._operations, self._weights)[0]
        if name.startswith("send") and len(self._model.pending) >= PENDING_MAX:
            name = self._random.choice(("take", "ack"))
        getattr(self, f"_{name}")()

    def _new_messages(self, count: int) -> tuple[str, dict[int, Sent]]:
        queue = self._random.choice(self._mix.queues)
        numbers = range(self._next_number, self._next_number + count)
        self._next_number += count
        return queue, {number: self._mix.message(number, queue) for number in numbers}

    def _send(self) -> None:
        name, messages = self._new_messages(1)
        queue = self._bay.queue(name)
        self._model.sending(messages)
        (sent,) = messages.values()
        self._model.done([queue.send(sent.body, headers=sent.headers, priority=sent.priority)])

    def _send_many(self) -> None:
        name, messages = self._new_messages(self._random.choice((2, 3, 12, 40)))
        queue = self._bay.queue(name)
        self._model.sending(messages)
        self._model.done(
            queue.send_many(
                Message(sent.body, headers=sent.headers, priority=sent.priority) for sent in messages.values()
            )
        )

    def _take(self) -> None:
        if not self._takers or (len(self._takers) < 4 and self._random.random() < 0.2):
            queue = self._random.choice(self._mix.queues)
            consumer = self._bay.queue(queue).subscribe(prefetch=self._random.choice((0, 3, EVERYTHING)))
            self._takers.append(Taker(queue, consumer))
        taker = self._random.choice(self._takers)
        for delivery in taker.consumer.take(self._random.choice((1, 3, 10, 50))):
            number = number_of(delivery)
            assert number in self._model.pending, f"{number} was delivered and is not pending"
            if not self._mix.is_stuck(number):
                taker.held.append(delivery)

    def _some_taker(self) -> Taker | None:
        holding = [taker for taker in self._takers if taker.held]
        return self._random.choice(holding) if holding else None

    def _ack(self) -> None:
        """The oldest of what one consumer holds."""
        taker = self._some_taker()
        if taker is not None:
            count = self._random.choice((1, len(taker.held), self._random.randint(1, len(taker.held))))
            self._settle(taker, taker.held[:count])

    def _ack_any(self) -> None:
        taker = self._some_taker()
        if taker is not None:
            self._settle(taker, self._random.sample(taker.held, self._random.randint(1, len(taker.held))))

    def _settle(self, taker: Taker, batch: list[Delivery]) -> None:
        self._model.acknowledging(map(number_of, batch))
        if len(batch) == 1:
            batch[0].ack()
        else:
            taker.consumer.ack(batch)
        self._model.done()
        taker.held = [delivery for delivery in taker.held if delivery not in batch]

    def _nack(self) -> None:
        taker = self._some_taker()
        if taker is not None:
            batch = self._random.sample(taker.held, self._random.randint(1, len(taker.held)))
            taker.consumer.nack(batch, delay=self._random.choice((0.0, 0.0, LONGEST_DELAY_SECONDS)))
            taker.held = [delivery for delivery in taker.held if delivery not in batch]

    def _close_consumer(self) -> None:
        if self._takers:
            taker = self._takers.pop(self._random.randrange(len(self._takers)))
            taker.consumer.close()

    def _checkpoint(self) -> None:
        self._bay.checkpoint()
        self._model.synced = len(self._model.history)

    def _cleanup(self) -> None:
        self._bay.cleanup()
        self._model.synced = len(self._model.history)

    def _reopen(self) -> None:
        self._takers.clear()
        self._bay = self._do_reopen()
        self._model.synced = len(self._model.history)

    def _step(self) -> None:
        self._advance(self._random.choice((0.2, 2.0, 20.0)))
        self._bay.step()
