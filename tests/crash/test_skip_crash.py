"""Fingerprints and crashes: whatever call of the disk a crash follows, a selector finds all that matches.

A queue is sent to, searched and browsed by selectors, and acknowledged, with
checkpoints in between. At calls that change its disk the process or the power
is cut in a fork. What is left is searched, sent to and searched again: a
fingerprint that tells of messages that were lost, or that knows acks that
were, would hide some. Beside it a topic has a subscription for which what does
not match is acknowledged unread: what matches must stay.
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
from forebay.store.message import HeaderValue
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
        expected = [int(message.body) for message in messages if matches(dict(message.headers or {}))]
        assert found(bay, selector) == expected, selector
        assert [int(message.body) for message in bay.queue("orders").browse(selector)] == expected, selector


class Skips(CrashExplorer):
    index_lost_share = 0.2
    cuts_synced = True
    memory_limit = "4MiB"

    def __init__(self, seed: int, operations: int, call_share: float) -> None:
        super().__init__(seed, "never", memory_limit=self.memory_limit, max_checkpoint_adds=256)
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

    def browse(self) -> None:
        list(self.bay.queue("orders").browse(self.random.choice(SELECTORS)))

    def acknowledge(self) -> None:
        with self.bay.queue("orders").subscribe() as consumer:
            consumer.ack(consumer.take(self.random.choice((1, 100, 400))))

    def explore(self) -> None:
        chosen: list[Callable[[], object]] = [
            *[self.send] * 4,
            *[self.search] * 3,
            self.browse,
            self.acknowledge,
            self.bay.checkpoint,
            self.bay.step,
        ]
        with self.crashing(self.disk, lambda: self.metadata, self.look):
            for _ in range(self.operations):
                self.random.choice(chosen)()


def kept(bay: Forebay, name: str, selector: str | None) -> list[int]:
    """Return the sequences of what a subscription has not acknowledged."""
    with bay.topic("prices").subscribe(durable=name, selector=selector, prefetch=0) as consumer:
        batch: list[Delivery] = []
        while (more := consumer.take(10_000)) or inside(bay).loader.step():
            batch += more
        return [delivery.sequence for delivery in batch]


class SkipsForSubscriptions(Skips):
    """One subscription keeps all. The others acknowledge what does not match, and nothing else."""

    memory_limit = "8MiB"  # all that one subscription keeps is in flight at once

    def __init__(self, seed: int, operations: int, call_share: float) -> None:
        super().__init__(seed, operations, call_share)
        topic = self.bay.topic("prices")
        topic.subscribe(durable="all").close()
        for selector in SELECTORS:
            topic.subscribe(durable=selector, selector=selector).close()
        self.bay.checkpoint()

    def look(self, left: Left) -> None:
        bay = self.open(left.disk, left.metadata)
        self.require_all_kept(bay)
        bay.topic("prices").send_many([Message(b"%d" % n, headers={"region": "de", "n": n}) for n in range(250)])
        self.require_all_kept(bay)
        bay.step()
        self.require_all_kept(bay)
        inside(bay).index._check()

    def require_all_kept(self, bay: Forebay) -> None:
        everything = kept(bay, "all", None)
        assert len(everything) == bay.topic("prices").statistics().subscriptions["all"].depth
        with bay.topic("prices").reader("begin") as reader:
            headers: dict[int, dict[str, HeaderValue]] = {}
            while (more := reader.take(1000)) or inside(bay).loader.step():
                headers |= {delivery.sequence: delivery.headers for delivery in more}
        for selector in SELECTORS:
            matches = compile_selector(selector).matches
            assert kept(bay, selector, selector) == [
                number for number in everything if matches(dict(headers[number]))
            ], selector

    def send(self) -> None:
        messages: list[Message] = []
        for _ in range(self.random.choice((5, 150, 256))):
            self.numbers += 1
            region = self.random.choice(("us",) * 200 + ("eu",))
            messages.append(Message(b"%d" % self.numbers, headers={"n": self.numbers, "region": region}))
        self.bay.topic("prices").send_many(messages)

    def search(self) -> None:
        with self.bay.topic("prices").reader("begin", selector=self.random.choice(SELECTORS)) as reader:
            while reader.take(1000) or inside(self.bay).loader.step():
                pass

    def browse(self) -> None:
        """Let a subscription begin again, over blocks that have fingerprints by now."""
        self.bay.topic("prices").subscription(self.random.choice(SELECTORS)).seek("begin")

    def acknowledge(self) -> None:
        selector = self.random.choice(SELECTORS)
        kept(self.bay, selector, selector)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_no_crash_leaves_a_fingerprint_by_which_a_subscription_loses_a_message(seed: int) -> None:
    explorer = SkipsForSubscriptions(seed, 60, call_share=0.3).run()
    assert explorer.states > 5 and explorer.numbers > 2 * BLOCK_MESSAGES


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_no_crash_leaves_a_fingerprint_that_hides_a_message(seed: int) -> None:
    explorer = Skips(seed, 50, call_share=0.3).run()
    assert explorer.states > 5 and explorer.numbers > 2 * BLOCK_MESSAGES


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 140))
def test_no_crash_leaves_a_fingerprint_that_hides_a_message_in_longer_lives(seed: int) -> None:
    print(f"seed {seed}: {Skips(seed, 120, call_share=0.5).run().states} states")


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(200, 220))
def test_no_crash_leaves_a_fingerprint_by_which_a_subscription_loses_a_message_in_longer_lives(seed: int) -> None:
    print(f"seed {seed}: {SkipsForSubscriptions(seed, 120, call_share=0.3).run().states} states")
