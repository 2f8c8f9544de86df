"""A subscription with a selector passes over blocks in which nothing matches, and what it passes is acknowledged."""

from __future__ import annotations

import pytest
from inside import inside
from simulated_bay import SimulatedBay

from forebay import Message, Topic
from forebay.store.numbering import BLOCK_MESSAGES

BLOCKS = 16
MESSAGES = BLOCKS * BLOCK_MESSAGES
RARE = 9 * BLOCK_MESSAGES + 77
EU = "region = 'eu'"


@pytest.fixture
def simulated() -> SimulatedBay:
    """A topic that one subscription keeps, of which RAM has next to nothing."""
    simulated = SimulatedBay(memory_limit="4MiB")
    topic(simulated).subscribe(durable="all").close()
    for first in range(0, MESSAGES, 256):
        topic(simulated).send_many(
            Message(b"%d" % n, headers={"n": n, "region": "eu" if n == RARE else "us"})
            for n in range(first, first + 256)
        )
    simulated.reopen()
    return simulated


def topic(simulated: SimulatedBay) -> Topic:
    return simulated.bay.topic("prices")


def read(simulated: SimulatedBay, selector: str) -> tuple[list[int], int]:
    """Return what a reader from the begin on finds, and how often the disk was read for it."""
    before = simulated.reads
    numbers: list[int] = []
    with topic(simulated).reader("begin", selector=selector) as reader:
        while (taken := reader.take(1000)) or inside(simulated.bay).loader.step():
            numbers += [int(delivery.body) for delivery in taken]
    return numbers, simulated.reads - before


def wait(simulated: SimulatedBay, name: str, selector: str) -> None:
    """Make a subscription whose cursor is at the first message, and which nobody reads."""
    topic(simulated).subscribe(durable=name, selector=selector).close()
    topic(simulated).subscription(name).seek("begin")


def backlog(simulated: SimulatedBay, name: str, selector: str) -> list[int]:
    with topic(simulated).subscribe(durable=name, selector=selector, prefetch=0) as consumer:
        numbers: list[int] = []
        while (taken := consumer.take(1000)) or inside(simulated.bay).loader.step():
            numbers += [int(delivery.body) for delivery in taken]
    return numbers


def examine(simulated: SimulatedBay) -> int:
    """Let the UnmatchedAcker examine what subscriptions have; return how often the disk was read for it."""
    before = simulated.reads
    while simulated.bay.step():
        pass
    return simulated.reads - before


def depth(simulated: SimulatedBay, name: str) -> int:
    return topic(simulated).statistics().subscriptions[name].depth


def test_the_second_reader_with_a_selector_reads_the_block_of_the_match_alone(simulated: SimulatedBay) -> None:
    found, reads = read(simulated, EU)
    assert found == [RARE] and reads >= BLOCKS
    found, reads = read(simulated, EU)
    assert found == [RARE] and reads <= 3
    assert read(simulated, "region = 'nowhere'")[1] <= 2


def test_what_fingerprints_rule_out_is_acknowledged_for_a_subscription_unread(simulated: SimulatedBay) -> None:
    read(simulated, EU)
    wait(simulated, "some", EU)
    assert depth(simulated, "some") == MESSAGES
    assert examine(simulated) <= 3
    assert depth(simulated, "some") == 1
    simulated.crash()
    assert depth(simulated, "some") == 1
    assert backlog(simulated, "some", EU) == [RARE]
    assert depth(simulated, "all") == MESSAGES


def test_a_subscription_that_is_read_acknowledges_what_its_consumer_passes_over(simulated: SimulatedBay) -> None:
    read(simulated, EU)
    wait(simulated, "some", EU)
    before = simulated.reads
    with topic(simulated).subscribe(durable="some", selector=EU) as consumer:
        while not (taken := consumer.take(10)):
            assert inside(simulated.bay).loader.step()
        consumer.ack(taken)
        while not consumer.take(10) and inside(simulated.bay).loader.step():
            pass
        assert simulated.reads - before <= 4
        examine(simulated)
        assert depth(simulated, "some") == 0


def test_an_offline_subscription_makes_the_fingerprints_that_the_next_one_uses(simulated: SimulatedBay) -> None:
    wait(simulated, "first", EU)
    assert examine(simulated) >= BLOCKS
    wait(simulated, "second", "region = 'de' OR region = 'eu'")
    assert examine(simulated) <= 3
    assert [depth(simulated, name) for name in ("first", "second")] == [1, 1]


def test_an_offline_subscription_leaves_all_fingerprints_although_ram_holds_those_of_few_blocks() -> None:
    simulated = SimulatedBay(memory_limit="4MiB", index_cache_size="256KiB")
    topic(simulated).subscribe(durable="all").close()
    for first in range(0, MESSAGES, 256):
        topic(simulated).send_many(
            Message(b"%d" % n, headers={name: f"{name}{n}" for name in "abcd"}) for n in range(first, first + 256)
        )
    simulated.reopen()
    wait(simulated, "first", f"a = 'a{RARE}' AND (b = 'x' OR c = 'x' OR d = 'd{RARE}')")
    assert examine(simulated) >= BLOCKS
    simulated.reopen()
    wait(simulated, "second", f"a = 'x' OR b = 'b{RARE}' OR c = 'x' OR d = 'x'")
    assert examine(simulated) <= 4
    assert [depth(simulated, name) for name in ("first", "second")] == [1, 1]


def test_what_was_passed_over_is_acknowledged_a_part_at_a_time(
    simulated: SimulatedBay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forebay.dispatch.topics.subscriptions.unmatched.UNMATCHED_MESSAGES_MAX", 3 * BLOCK_MESSAGES)
    read(simulated, EU)
    wait(simulated, "some", EU)
    assert examine(simulated) <= 3
    for _ in range(BLOCKS):
        simulated.bay.step()
    assert depth(simulated, "some") == 1
    assert backlog(simulated, "some", EU) == [RARE]


def test_what_is_sent_after_a_block_got_its_fingerprint_is_found(simulated: SimulatedBay) -> None:
    read(simulated, EU)
    topic(simulated).send(b"77777", headers={"region": "eu"})
    wait(simulated, "some", EU)
    examine(simulated)
    assert backlog(simulated, "some", EU) == [RARE, 77777]
    assert read(simulated, EU)[0] == [RARE, 77777]


def test_a_lost_index_costs_one_more_scan_and_no_message(simulated: SimulatedBay) -> None:
    read(simulated, EU)
    wait(simulated, "some", EU)
    simulated.crash(is_index_lost=True)
    assert examine(simulated) >= BLOCKS - 1
    assert backlog(simulated, "some", EU) == [RARE]
    assert read(simulated, EU)[1] <= 3
