"""Duplicate windows and crashes: what was not confirmed is sent again, and is there once."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from crashing import CrashExplorer, Left
from inside import inside
from simulated_bay import SimulatedBay
from simulated_disk import SimulatedDisk
from simulated_metadata import SimulatedMetadataStore

import forebay
from forebay import DestinationPolicy, Forebay, Message

WINDOW = 8


def watched() -> SimulatedBay:
    policies = {"orders": DestinationPolicy(duplicate_window=WINDOW)}
    return SimulatedBay(policies=policies, sync="always", max_file_length="64KiB")


@dataclass
class Producers:
    """The messages that were sent, with their outcomes."""

    sent: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """By producer, the ids in order, the one under way included."""
    acknowledged: set[str] = field(default_factory=set)
    acknowledging: set[str] = field(default_factory=set)
    """Messages whose ack is not confirmed."""


class Resending(CrashExplorer):
    """Each producer then sends again what its window should know."""

    call_share = 0.25
    index_lost_share = 0.2

    def __init__(self, seed: int) -> None:
        super().__init__(seed, policies={"orders": DestinationPolicy(duplicate_window=WINDOW)})
        self._producers = Producers()

    def explore(self) -> None:
        disk, metadata = SimulatedDisk(), SimulatedMetadataStore()
        bay = self.open(disk, metadata)
        with self.crashing(disk, lambda: metadata, self._examine):
            for n in range(60):
                self._step(bay, f"{n}")
                if self.random.random() < 0.1:
                    metadata.synced()
                if self.random.random() < 0.05:
                    bay.close()
                    bay = self.open(disk, metadata)

    def _step(self, bay: Forebay, name: str) -> None:
        random, queue = self.random, bay.queue("orders")
        producer = random.choice("pq")
        ids = self._producers.sent[producer]
        choice = random.random()
        size = random.choice((10, 10, 4_000, 9_000))
        if choice < 0.45:
            ids.append(f"{producer}{name}")
            queue.send(bytes(size), message_id=ids[-1], producer=producer)
        elif choice < 0.6:
            # One slice: as a batch is atomic slice by slice, it is all there or nothing.
            names = [f"{producer}{name}.{part}" for part in range(3)]
            ids += names
            queue.send_many([Message(bytes(size), message_id=own, producer=producer) for own in names])
        elif choice < 0.7:
            ids.append(f"{producer}{name}")
            with bay.transaction() as transaction:
                queue.send(bytes(size), message_id=ids[-1], producer=producer, transaction=transaction)
        elif choice < 0.9:
            with queue.subscribe() as consumer:
                taken = consumer.take(random.randint(1, 4))
                names = [delivery.id for delivery in taken]
                self._producers.acknowledging.update(names)
                if taken:
                    consumer.ack(taken)
                self._producers.acknowledged.update(names)
        else:
            bay.cleanup()

    def _examine(self, left: Left) -> None:
        bay = self.open(left.disk, left.metadata)
        queue = bay.queue("orders")
        again: list[str] = []
        for producer, ids in self._producers.sent.items():
            for own in ids[-WINDOW + 3 :]:
                queue.send(b"again", message_id=own, producer=producer)
                again.append(own)
        inside(bay).audit()
        inside(bay).store.duplicates._check()
        found = Counter(message.message_id for message in queue.browse())
        for own in again:
            least = 0 if own in self._producers.acknowledging else 1
            most = 0 if own in self._producers.acknowledged else 1
            assert least <= found[own] <= most, f"{found[own]} copies of {own}"


def test_whatever_call_a_crash_follows_what_is_sent_again_is_stored_once() -> None:
    states = sum(Resending(seed).run().states for seed in range(15))
    assert states > 600


def test_a_cut_at_any_byte_of_a_send_takes_message_and_id_together() -> None:
    bay = watched()
    bay.queue().send(b"before", message_id="0")
    taken = {}

    def cut(call: str, name: str) -> None:
        if call == "sync":
            taken.update({image.digest(): image for image in islice(bay.disk.every_power_cut(), 200)})

    bay.disk.on_call = cut
    bay.queue().send(bytes(1500), message_id="a")
    bay.disk.on_call = None
    assert len(taken) > 2
    stored = []
    for image in taken.values():
        left = watched()
        left.disk, left.metadata = image, type(left.metadata)()
        left.open_again()
        stored.append(left.queue().depth)
        left.queue().send(bytes(1500), message_id="a")
        left.queue().send(b"before", message_id="0")
        assert left.queue().depth == 2
    assert set(stored) == {1, 2}


def test_a_producer_that_is_killed_sends_again(tmp_path: Path) -> None:
    policies = {"orders": DestinationPolicy(duplicate_window=100)}
    for _ in range(3):
        with forebay.open(tmp_path, memory_limit="16MiB", background=False, policies=policies) as bay:
            bay.queue("orders").send_many([Message(b"x", message_id=f"{n}", producer="p") for n in range(50)])
            assert bay.queue("orders").depth == 50
