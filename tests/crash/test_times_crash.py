"""Times and crashes: whatever call of the disk a crash follows, nothing is early, nothing expired comes back.

One store gets messages with delays and expiries, alone and in transactions,
takes, acknowledges, moves and cleans up while time passes. At each call that
changes its disk the process or the power is cut in a fork, and the next
process must hand out what was due when it opens, nothing else until it is
due, and nothing that has expired, with the index that was left or with none.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from crashing import CrashExplorer, Left
from inside import inside
from simulated_disk import SimulatedDisk
from simulated_metadata import SimulatedMetadataStore

from forebay import Forebay, Message
from forebay.testing import ManualClock

LONG = 10_000.0


@dataclass
class Sent:
    """When a message may be handed out first, and when no more, on the clock of the test."""

    due: float
    expires: float


class Times(CrashExplorer):
    index_lost_share = 0.3
    cuts_synced = True

    def __init__(self, seed: int, operations: int, call_share: float = 1.0) -> None:
        super().__init__(seed, memory_limit="4MiB", max_checkpoint_adds=64, policies={})
        self.call_share = call_share
        self.operations = operations
        self.clock = ManualClock(seed)
        self.disk = SimulatedDisk()
        self.metadata = SimulatedMetadataStore()
        self.sent: dict[int, Sent] = {}
        self.pending: set[int] = set()
        # What the call in flight is about: there or not.
        self.in_flight: set[int] = set()
        self.numbers = 0
        self.bay = self.open(self.disk, self.metadata, self.clock)

    # ------------------------------------------------------------------ after a crash

    def look(self, left: Left) -> None:
        clock = ManualClock(self.states)
        clock.advance(self.clock.monotonic())
        is_set_back = self.random.random() < 0.3
        if is_set_back:
            clock.set_back(LONG * 1000)
        self._examine(self.open(left.disk, left.metadata, clock), clock, is_set_back)

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
            assert number in self.pending | self.in_flight, f"{number} comes back"
            assert sent.due - 0.002 <= at, f"{number} comes {sent.due - at} s early"
            assert is_set_back or at < sent.expires + 0.002, f"{number} has expired"
        lost = {
            number for number in self.pending - self.in_flight - found.keys() if self.sent[number].expires > now + LONG
        }
        assert not lost, f"lost: {sorted(lost)}"
        clock.advance(LONG)
        bay.step()
        bay.step()
        assert bay.queue("orders").depth == bay.queue("prices").depth == 0
        inside(bay).audit()
        inside(bay).index._check()

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
        self.in_flight = {int(message.body[:8]) for message in messages}
        self.bay.queue("orders").send_many(messages)
        self._settle_sends()

    def commit(self) -> None:
        messages = [self.message() for _ in range(self.random.choice((1, 20)))]
        self.in_flight = {int(message.body[:8]) for message in messages}
        transaction = self.bay.transaction()
        self.bay.queue("orders").send_many(messages, transaction=transaction)
        if self.random.random() < 0.3:
            self.clock.advance(1)
            for message in messages:
                self.sent[int(message.body[:8])].due += 1.0 if message.delay else 0.0
        transaction.commit()
        self._settle_sends()

    def _settle_sends(self) -> None:
        self.pending |= self.in_flight
        self.in_flight = set()

    def take(self) -> None:
        with self.bay.queue("orders").subscribe() as consumer:
            batch = consumer.take(self.random.choice((1, 10, 100)))
            done = [delivery for delivery in batch if self.random.random() < 0.8]
            self.in_flight = {int(delivery.body[:8]) for delivery in done}
            now = self.clock.monotonic()
            for delivery in batch:
                sent = self.sent[int(delivery.body[:8])]
                assert sent.due - 0.002 <= now < sent.expires
            if done:
                consumer.ack(done)
            self.pending -= self.in_flight
            self.in_flight = set()

    def explore(self) -> None:
        with self.crashing(self.disk, lambda: self.metadata, self.look):
            for _ in range(self.operations):
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
    assert Times(seed, 60, call_share=0.15).run().states > 10


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 140))
def test_no_crash_makes_a_message_early_or_brings_back_what_has_expired_in_longer_lives(seed: int) -> None:
    print(f"seed {seed}: {Times(seed, 150).run().states} states")
