"""Who holds memory, and who would give it back next: staged situations, each with its one true answer."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from simulated_bay import SimulatedBay

from forebay import Message
from forebay.dispatch.core.memory.memory_rule import MemoryRule
from forebay.dispatch.explain.disk import MEMORY
from forebay.dispatch.planning.rules import ListsFirst

KIB = 1024
Staged = tuple[SimulatedBay, str, str]
"""A store, who holds most of what is not fixed, and what is said of giving back (its beginning)."""
FIXED = {"metadata_store", "write_buffers", "index"}
NOBODY = "nobody could give any back"
FIRST = "given back first by "


def fill(bay: SimulatedBay, messages: int, name: str = "orders", size: int = 600, persistent: bool = True) -> None:
    bay.queue(name).send_many(Message(bytes(size), persistent=persistent) for _ in range(messages))


def nothing_is_there() -> Staged:
    bay = SimulatedBay()
    bay.queue()
    return bay, "destinations", NOBODY


def a_queue_that_nobody_reads() -> Staged:
    bay = SimulatedBay()
    fill(bay, 100)
    return bay, "head_queue_cache", FIRST + "head_queue_cache"


def a_list_that_is_ahead() -> Staged:
    bay = SimulatedBay()
    bay.queue().subscribe()
    fill(bay, 100)
    return bay, "target_lists", FIRST + "target_lists"


def one_message_for_a_ready_consumer() -> Staged:
    bay = SimulatedBay()
    bay.queue().subscribe()
    bay.queue().send(bytes(10 * KIB))
    return bay, "target_lists", NOBODY


def an_overflow(rule: MemoryRule | None = None) -> Staged:
    bay = SimulatedBay(memory_limit="16MiB", memory_rule=rule)
    consumer = bay.queue().subscribe()
    fill(bay, 1)
    consumer.ack(consumer.take())
    bay.clock.advance(1.0)
    bay.bay.step()
    fill(bay, 1000)
    return bay, "pending_cache", FIRST + "pending_cache"


def an_overflow_beside_a_queue_that_nobody_reads(rule: MemoryRule | None = None) -> Staged:
    bay, _, _ = an_overflow(rule)
    fill(bay, 10, "idle")
    return bay, "pending_cache", FIRST + "head_queue_cache"


def non_persistent_messages_that_wait_for_a_write() -> Staged:
    bay = SimulatedBay()
    bay.memories.common.head_queue_cache.resize(0)
    fill(bay, 60, persistent=False)
    return bay, "spill_buffer", FIRST + "spill_buffer"


def a_consumer_that_does_not_acknowledge() -> Staged:
    bay = SimulatedBay()
    consumer = bay.queue().subscribe()
    fill(bay, 100)
    consumer.take(100)
    return bay, "dispatch_area", NOBODY


def an_open_transaction() -> Staged:
    bay = SimulatedBay()
    bay.queue().send(bytes(10 * KIB), transaction=bay.bay.transaction())
    return bay, "transactions", NOBODY


def a_browse_that_stands_still() -> Staged:
    bay = SimulatedBay()
    fill(bay, 100)
    bay.memories.common.head_queue_cache.resize(0)
    browse = bay.queue().browse()
    next(iter(browse))
    KEPT.append(browse)
    return bay, "browsers", NOBODY


def many_destinations() -> Staged:
    bay = SimulatedBay()
    for number in range(500):
        bay.queue(f"q{number}")
    return bay, "destinations", NOBODY


KEPT: list[object] = []
"""What must live as long as its situation."""
STAGES: list[Callable[[], Staged]] = [
    nothing_is_there,
    a_queue_that_nobody_reads,
    a_list_that_is_ahead,
    one_message_for_a_ready_consumer,
    an_overflow,
    an_overflow_beside_a_queue_that_nobody_reads,
    non_persistent_messages_that_wait_for_a_write,
    a_consumer_that_does_not_acknowledge,
    an_open_transaction,
    a_browse_that_stands_still,
    many_destinations,
]


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.__name__)
def test_who_holds_memory_and_who_gives_back_next(stage: Callable[[], Staged]) -> None:
    bay, holder, turn = stage()
    explanation = bay.bay.explain()
    causes = [cause for cause in explanation.causes if cause.reason == MEMORY]
    assert next(cause.holder for cause in causes if cause.holder not in FIXED) == holder
    assert f"); {turn}" in explanation.sentence
    assert sum(cause.bytes for cause in causes) == bay.bay.statistics().memory.held_bytes
    KEPT.clear()


def test_every_holder_is_named_with_what_would_free_it() -> None:
    bay = SimulatedBay()
    for name, holder in bay.budget.holders.items():
        if not holder.held_bytes:
            assert holder.reserve(1), name
    causes = [cause for cause in bay.bay.explain().causes if cause.reason == MEMORY]
    assert {cause.holder for cause in causes} == set(bay.budget.holders)
    assert all(cause.frees and cause.frees != "its own end" for cause in causes)


@pytest.mark.parametrize(
    "rule, turns",
    [
        (MemoryRule, ["spill_buffer", "head_queue_cache", "pending_cache", "target_lists"]),
        (ListsFirst, ["spill_buffer", "target_lists", "head_queue_cache", "pending_cache"]),
    ],
)
def test_what_is_said_to_be_given_back_first_is_as_long_as_anybody_gives(
    rule: type[MemoryRule], turns: list[str]
) -> None:
    bay, _, _ = an_overflow_beside_a_queue_that_nobody_reads(rule())
    heads = bay.memories.common.head_queue_cache
    heads.resize(heads.holder.held_bytes)
    fill(bay, 20, "flood", persistent=False)
    givers: list[str] = []
    while order := bay.watermarks.reclaim.order():
        before = dict(bay.bay.statistics().memory.holders)
        bay.reclaim.make_room(bay.budget.free_bytes + 1, None)
        after = bay.bay.statistics().memory.holders
        assert [name for name in before if after[name] < before[name]] == [order[0][0]]
        if order[0][0] not in givers:
            givers.append(order[0][0])
    assert givers == turns
