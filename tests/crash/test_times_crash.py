"""Times and crashes: whatever call of the disk a crash follows, nothing is early, nothing expired comes back.

One life sends messages with delays and expiries, alone and in transactions,
takes, acknowledges, moves and cleans up while time passes. At each call that
changes its disk the process or the power is cut in a fork, and the next
process must hand out what was due when it opens, nothing else until it is
due, and nothing that has expired, with the index that was left or with none.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import pytest
from manual_clock import ManualClock
from simulated_disk import MUTATING_CALLS, PowerCut, SimulatedDisk
from simulated_metadata import SimulatedMetadataStore

from forebay import Forebay, Message
from forebay.dispatch.config.settings import Settings
from forebay.dispatch.engine.engine import Engine

POWER_CUTS = (PowerCut.ANY, PowerCut.STALE, PowerCut.EXTENDED, PowerCut.SYNCED, PowerCut.KEPT)
SETTINGS = Settings(
    memory_limit="4MiB", background=False, max_file_length="64KiB", sync="always", max_checkpoint_adds=64
)
LONG = 10_000.0


@dataclass
class Sent:
    """Of one message: when it may be handed out first, and when no more; on the clock of the test."""

    due: float
    expires: float


class Life:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.clock = ManualClock(seed)
        self.disk = SimulatedDisk()
        self.metadata = SimulatedMetadataStore()
        self.sent: dict[int, Sent] = {}
        self.pending: set[int] = set()
        self.open: set[int] = set()
        """What the call in flight is about: there or not."""
        self.states = 0
        self.share = 1.0
        self.numbers = 0
        self.bay = self._opened(self.disk, self.metadata, self.clock)
        self.disk.on_call = self._maybe_crash

    def _opened(self, disk: SimulatedDisk, metadata: SimulatedMetadataStore, clock: ManualClock) -> Forebay:
        return Forebay(Engine(disk, lambda store_id, cache_bytes: metadata, SETTINGS, clock), None)

    # ------------------------------------------------------------------ after a crash

    def _maybe_crash(self, call: str, name: str) -> None:
        if call not in MUTATING_CALLS or self.random.random() > self.share:
            return
        self.states += 1
        is_power = self.random.random() < 0.7
        image = (
            self.disk.crash_power(self.random, self.random.choice(POWER_CUTS))
            if is_power
            else self.disk.crash_process()
        )
        metadata = self.metadata.crash(self.random) if self.random.random() < 0.7 else SimulatedMetadataStore()
        clock = ManualClock(self.states)
        clock.advance(self.clock.monotonic())
        is_set_back = self.random.random() < 0.3
        if is_set_back:
            clock.set_back(LONG * 1000)
        self._examine(self._opened(image, metadata, clock), clock, is_set_back)

    def _examine(self, bay: Forebay, clock: ManualClock, is_set_back: bool) -> None:
        """is_set_back: how much time has passed since the last send with times is not known then."""
        found: dict[int, float] = {}
        for seconds in (0.0, 1.0, 4.0, 5.0, LONG):
            clock.advance(seconds)
            bay.step()
            bay.step()
            for name in ("orders", "prices"):
                with bay.queue(name).subscribe(prefetch=0) as consumer:
                    while batch := consumer.take(1000):
                        for delivery in batch:
                            found.setdefault(int(delivery.body[:8]), clock.monotonic())
                        consumer.ack(batch)
        now = clock.monotonic()
        for number, at in found.items():
            sent = self.sent[number]
            assert number in self.pending | self.open, f"{number} comes back"
            assert sent.due - 0.002 <= at, f"{number} comes {sent.due - at} s early"
            assert is_set_back or at < sent.expires + 0.002, f"{number} has expired"
        lost = {number for number in self.pending - self.open - found.keys() if self.sent[number].expires > now + LONG}
        assert not lost, f"lost: {sorted(lost)}"
        clock.advance(LONG)
        bay.step()
        bay.step()
        assert bay.queue("orders").depth == bay.queue("prices").depth == 0
        bay._engine.audit()
        bay._engine.store.index._check()

    # ------------------------------------------------------------------ the workload

    def message(self) -> Message:
        self.numbers += 1
        delay = self.random.choice((0.0, 0.0, 1.0, 4.0, 60.0))
        expires_in = self.random.choice((None, None, None, 2.0, 8.0))
        now = self.clock.monotonic()
        self.sent[self.numbers] = Sent(now + delay, LONG * 1000 if expires_in is None else now + expires_in)
        return Message(
            b"%08d" % self.numbers + bytes(self.random.choice((0, 100, 5000))), delay=delay, expires_in=expires_in
        )

    def send(self) -> None:
        messages = [self.message() for _ in range(self.random.choice((1, 1, 5, 30)))]
        self.open = {int(message.body[:8]) for message in messages}
        self.bay.queue("orders").send_many(messages)
        self._settle_sends()

    def commit(self) -> None:
        messages = [self.message() for _ in range(self.random.choice((1, 20)))]
        self.open = {int(message.body[:8]) for message in messages}
        transaction = self.bay.transaction()
        self.bay.queue("orders").send_many(messages, transaction=transaction)
        if self.random.random() < 0.3:
            self.clock.advance(1)
            for message in messages:
                self.sent[int(message.body[:8])].due += 1.0 if message.delay else 0.0
        transaction.commit()
        self._settle_sends()

    def _settle_sends(self) -> None:
        self.pending |= self.open
        self.open = set()

    def take(self) -> None:
        with self.bay.queue("orders").subscribe() as consumer:
            batch = consumer.take(self.random.choice((1, 10, 100)))
            done = [delivery for delivery in batch if self.random.random() < 0.8]
            self.open = {int(delivery.body[:8]) for delivery in done}
            now = self.clock.monotonic()
            for delivery in batch:
                sent = self.sent[int(delivery.body[:8])]
                assert sent.due - 0.002 <= now < sent.expires
            if done:
                consumer.ack(done)
            self.pending -= self.open
            self.open = set()

    def live(self, operations: int) -> None:
        for _ in range(operations):
            self.random.choice(
                (
                    self.send,
                    self.send,
                    self.commit,
                    self.take,
                    self.take,
                    lambda: self.clock.advance(self.random.choice((0.1, 1.0, 5.0, 40.0))),
                    self.bay.step,
                    self.bay.checkpoint,
                    self.bay.cleanup,
                    lambda: self.bay.queue("orders").move(self.bay.queue("prices"), limit=7),
                    lambda: self.bay.queue("prices").move(self.bay.queue("orders")),
                )
            )()


@pytest.mark.parametrize("seed", range(4))
def test_no_crash_makes_a_message_early_or_brings_back_what_has_expired(seed: int) -> None:
    life = Life(seed)
    life.share = 0.15
    life.live(60)
    assert life.states > 10


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 140))
def test_no_crash_makes_a_message_early_or_brings_back_what_has_expired_in_longer_lives(seed: int) -> None:
    life = Life(seed)
    life.live(150)
    print(f"seed {seed}: {life.states} states")
