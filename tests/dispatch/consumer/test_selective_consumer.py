"""A consumer with a selector: it finds matches at any depth, keeps to its timeouts, and starves nobody meanwhile."""

from __future__ import annotations

import pytest
from simulated_bay import SimulatedBay

from forebay import Message
from forebay.dispatch.loading.chooser import LOAD_MESSAGES_MAX
from forebay.store.environment.locks import OwnedCondition

DEPTH = 10 * LOAD_MESSAGES_MAX


def bay_with_a_rare_message() -> SimulatedBay:
    """A backlog that only its last message ends differently, and that no cache holds."""
    store = SimulatedBay(max_file_length="64KiB")
    queue = store.queue()
    queue.send_many(Message(bytes(100), {"kind": "plain"}) for _ in range(DEPTH - 1))
    queue.send(b"found", headers={"kind": "rare"})
    store.reopen()
    return store


def test_take_without_a_timeout_looks_once_and_the_next_one_goes_on() -> None:
    store = bay_with_a_rare_message()
    with store.queue().subscribe(selector="kind = 'rare'") as consumer:
        takes = [consumer.take(10) for _ in range(DEPTH // LOAD_MESSAGES_MAX + 2)]
    assert takes[0] == []
    [[delivery]] = filter(None, takes)
    assert delivery.sequence == DEPTH - 1


def test_take_that_may_wait_finds_a_match_at_any_depth() -> None:
    store = bay_with_a_rare_message()
    with store.queue().subscribe(selector="kind = 'rare'") as consumer:
        [delivery] = consumer.take(timeout=None)
        assert delivery.body == b"found"
    store.check()


def test_background_work_finds_a_match_before_it_is_asked_for() -> None:
    store = bay_with_a_rare_message()
    with store.queue().subscribe(selector="kind = 'rare'") as consumer:
        while store.bay.step():
            pass
        reads = store.reads
        assert len(consumer.take()) == 1
        assert store.reads == reads


def test_scan_that_finds_nothing_leaves_every_other_load_to_the_others() -> None:
    store = bay_with_a_rare_message()
    queue = store.queue()
    with queue.subscribe(selector="kind = 'none'"), queue.subscribe():
        scanned, plain = store.lists()
        assert store.loader.step() and store.loader.step()
        assert scanned.frontier == LOAD_MESSAGES_MAX
        assert plain.direct


def test_take_does_not_wait_for_a_load_of_what_others_have_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    store = bay_with_a_rare_message()
    queue = store.queue()
    with queue.subscribe(selector="kind = 'rare'") as selective, queue.subscribe(prefetch=0) as plain:
        while batch := plain.take(1000):
            plain.ack(batch)
        monkeypatch.setattr(OwnedCondition, "wait", lambda condition, timeout: pytest.fail("waited"))
        assert selective.take() == []
