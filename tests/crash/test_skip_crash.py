"""Fingerprints and crashes: whatever call of the disk a crash follows, a selector finds all that matches.

A queue is sent to, searched by selectors, and acknowledged, with checkpoints
in between. At calls that change its disk the process or the power is cut in a
fork. What is left is searched, sent to and searched again: a fingerprint that
tells of messages that were lost, or that knows acks that were, would hide
some.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from crashing import CrashExplorer, Left
from inside import inside
from simulated_disk import SimulatedDisk
from simulated_metadata import SimulatedMetadataStore

from forebay import Delivery, Forebay, Message
from forebay.dispatch.selectors.selector import compile_selector
from forebay.store.numbering import BLOCK_MESSAGES

SELECTORS = ("region = 'eu'", "region <> 'us'", "n BETWEEN 300 AND 340", "n = 700 OR region = 'de'", "region IS NULL")


def found(bay: Forebay, selector: str, most: int | None = None) -> list[int]:
    """Return what a selector finds; acknowledge the first of it, and let the rest be."""
    with bay.queue("orders").subscribe(selector=selector, prefetch=0) as consumer:
        batch: list[Delivery] = []
        while (more := consumer.take(10_000)) or inside(bay).loader.step():
            batch += more
        if most and batch:
            consumer.ack(batch[:most])
        return [int(delivery.body) for delivery in batch]


def require_all_found(bay: Forebay) -> None:
    """Compare with a walk over all messages, which knows no fingerprint."""
    messages = list(bay.queue("orders").browse())
    for selector in SELECTORS:
        matches = compile_selector(selector).matches
        assert found(bay, selector) == [int(message.body) for message in messages if matches(message.headers or {})], (
            selector
        )


class Skips(CrashExplorer):
    index_lost_share = 0.2
    cuts_synced = True

    def __init__(self, seed: int, operations: int, call_share: float) -> None:
        super().__init__(seed, "never", memory_limit="4MiB", max_checkpoint_adds=256)
        self.call_share = call_share
        self.operations = operations
        self.disk = SimulatedDisk()
        self.metadata = SimulatedMetadataStore()
        self.numbers = 0
        self.bay = self.open(self.disk, self.metadata)

    def look(self, left: Left) -> None:
        bay = self.open(left.disk, left.metadata)
        require_all_found(bay)
        # What was lost had numbers that are given again.
        bay.queue("orders").send_many([Message(b"%d" % n, headers={"region": "de", "n": n}) for n in range(250)])
        require_all_found(bay)
        bay.checkpoint()
        require_all_found(bay)
        inside(bay).index._check()

    def send(self) -> None:
        messages: list[Message] = []
        for _ in range(self.random.choice((5, 150, 256))):
            self.numbers += 1
            region = self.random.choice(("us",) * 200 + ("eu",))
            headers = {"n": self.numbers} | ({"region": region} if self.random.random() < 0.998 else {})
            messages.append(Message(b"%d" % self.numbers, headers=headers))
        self.bay.queue("orders").send_many(messages)

    def search(self) -> None:
        found(self.bay, self.random.choice(SELECTORS), self.random.choice((0, 1, 50)))

    def acknowledge(self) -> None:
        with self.bay.queue("orders").subscribe() as consumer:
            consumer.ack(consumer.take(self.random.choice((1, 100, 400))))

    def explore(self) -> None:
        chosen: list[Callable[[], object]] = [
            *[self.send] * 4,
            *[self.search] * 3,
            self.acknowledge,
            self.bay.checkpoint,
            self.bay.step,
        ]
        with self.crashing(self.disk, lambda: self.metadata, self.look):
            for _ in range(self.operations):
                self.random.choice(chosen)()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_no_crash_leaves_a_fingerprint_that_hides_a_message(seed: int) -> None:
    explorer = Skips(seed, 40, call_share=0.2).run()
    assert explorer.states > 5 and explorer.numbers > 3 * BLOCK_MESSAGES


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 140))
def test_no_crash_leaves_a_fingerprint_that_hides_a_message_in_longer_lives(seed: int) -> None:
    print(f"seed {seed}: {Skips(seed, 120, call_share=0.5).run().states} states")
