"""Reclaim: which lists and caches give memory back first, how much each keeps, and what stays within a share."""

from __future__ import annotations

import pytest
from loose_areas import KIB, Areas, sequences

from forebay.cache.accounting import holder_names
from forebay.cache.accounting.charge import OVERHEAD_BYTES
from forebay.cache.accounting.shares import QuotaBytes
from forebay.dispatch.core.lanes.persistent_lane_state import PersistentLaneState
from forebay.dispatch.core.memory.memory_rule import MemoryRule
from forebay.dispatch.core.model.destination import TargetList
from forebay.dispatch.planning.rules import ListsFirst

CHARGE = KIB + OVERHEAD_BYTES
"""That of one message of these tests, about."""


def list_with(areas: Areas, name: str, messages: int) -> TargetList:
    """Make a list that has so many messages in RAM."""
    target = areas.list_of(name)
    lane = target.lane
    assert isinstance(lane, PersistentLaneState)
    areas.arrive(lane, messages)
    assert len(target.direct) == messages
    return target


def lists_with(areas: Areas, *messages: int) -> list[TargetList]:
    return [list_with(areas, f"q{number}", count) for number, count in enumerate(messages)]


def make_room(areas: Areas, wanted_bytes: int, asker: TargetList | None = None) -> None:
    """Ask for so much more than is free."""
    areas.reclaim.make_room(areas.budget.free_bytes + wanted_bytes, asker)


class Everywhere:
    """Messages in a list and in both caches."""

    HOLDERS = (holder_names.HEAD_QUEUE_CACHE, holder_names.PENDING_CACHE, holder_names.TARGET_LISTS)

    def __init__(self, memory_rule: MemoryRule | None = None) -> None:
        self.areas = Areas(memory_rule=memory_rule)
        self.areas.arrive(self.areas.lane(self.areas.queue("heads")), 40)
        target = list_with(self.areas, "list", 40)
        lane = target.lane
        assert isinstance(lane, PersistentLaneState)
        self.areas.arrive_unloaded(lane, 1)
        self.areas.arrive(lane, 40)

    def held(self) -> list[int]:
        return [self.areas.budget.held_by(name) for name in self.HOLDERS]


# ------------------------------------------------------------------ the order


def test_heads_give_first_then_what_came_last_to_the_pending_cache_and_lists_last() -> None:
    everywhere = Everywhere()
    heads, pending, lists = everywhere.held()
    assert heads and pending and lists
    make_room(everywhere.areas, heads // 2)
    half, *rest = everywhere.held()
    assert half <= heads - heads // 2 and rest == [pending, lists]
    make_room(everywhere.areas, half + pending // 2)
    none, fewer, same = everywhere.held()
    assert (none, same) == (0, lists) and 0 < fewer <= pending - pending // 2
    make_room(everywhere.areas, fewer + lists // 2)
    none, nothing, shorter = everywhere.held()
    assert (none, nothing) == (0, 0) and 0 < shorter <= lists - lists // 2
    everywhere.areas.check()


def test_by_a_rule_with_lists_first_the_caches_keep_what_they_have() -> None:
    everywhere = Everywhere(ListsFirst())
    heads, pending, lists = everywhere.held()
    make_room(everywhere.areas, lists // 2)
    *caches, shorter = everywhere.held()
    assert caches == [heads, pending] and shorter < lists
    everywhere.areas.check()


@pytest.mark.parametrize(
    ("memory_rule", "names"),
    [
        (MemoryRule(), list(Everywhere.HOLDERS)),
        (ListsFirst(), [holder_names.TARGET_LISTS, holder_names.HEAD_QUEUE_CACHE, holder_names.PENDING_CACHE]),
    ],
    ids=["caches_first", "lists_first"],
)
def test_the_order_names_all_that_could_give(memory_rule: MemoryRule, names: list[str]) -> None:
    assert [name for name, _ in Everywhere(memory_rule).areas.reclaim.order()] == names


def test_of_lists_the_one_with_the_most_supply_gives() -> None:
    areas = Areas()
    rich, poor = lists_with(areas, 60, 20)
    make_room(areas, 10 * CHARGE)
    assert len(rich.direct) < 60 and len(poor.direct) == 20
    areas.check()


def test_no_list_gives_more_than_half_before_another_is_asked() -> None:
    areas = Areas()
    lists = lists_with(areas, 40, 40)
    make_room(areas, 30 * CHARGE)
    assert [20 <= len(target.direct) <= 30 for target in lists] == [True, True]


def test_who_takes_faster_has_less_supply_of_as_many_messages() -> None:
    areas = Areas()
    slow, fast = lists_with(areas, 40, 50)
    fast.bytes_per_second *= 4
    make_room(areas, 10 * CHARGE)
    assert len(slow.direct) < 40 and len(fast.direct) == 50


# ------------------------------------------------------------------ what each list keeps


def test_the_list_that_asks_gives_nothing_and_each_other_keeps_its_first_message() -> None:
    areas = Areas()
    asker, *others = lists_with(areas, 30, 30, 30)
    areas.reclaim.make_room(areas.budget.limit_bytes, asker)
    assert len(asker.direct) == 30
    assert [sequences(target) for target in others] == [[0], [0]]
    assert [list(target.references) for target in others] == [[(1, 29)], [(1, 29)]], "what they gave can be read again"
    areas.check()


def test_lists_that_may_keep_nothing_give_their_last_message_too() -> None:
    areas = Areas()
    lists = lists_with(areas, 3, 3)
    areas.reclaim.make_room(areas.budget.limit_bytes, None, messages_min=0)
    assert not any(target.direct for target in lists)


def test_a_list_keeps_so_many_seconds_of_supply() -> None:
    areas = Areas()
    rich, asker = lists_with(areas, 100, 1)
    seconds = 40 * KIB / rich.bytes_per_second
    areas.reclaim.make_room(areas.budget.limit_bytes, asker, supply_seconds_min=seconds)
    assert 40 * KIB <= rich.direct_bytes < 40 * KIB + 2 * CHARGE


def test_lists_that_had_nothing_to_give_are_asked_again_after_a_change() -> None:
    areas = Areas()
    rich, asker = lists_with(areas, 60, 1)
    seconds = rich.direct_bytes / rich.bytes_per_second
    areas.reclaim.make_room(areas.budget.limit_bytes, asker, supply_seconds_min=seconds)
    assert len(rich.direct) == 60, "nobody has so much"
    rich.bytes_per_second *= 2
    areas.reclaim.make_room(areas.budget.limit_bytes, asker, supply_seconds_min=seconds / 2)
    assert len(rich.direct) == 60, "a higher rate needs as much for half of the time"
    areas.reclaim.make_room(areas.budget.limit_bytes, asker, supply_seconds_min=seconds / 4)
    assert 28 <= len(rich.direct) <= 32, "who asks for less is heard"


# ------------------------------------------------------------------ shares


def test_what_exceeds_a_share_is_given_back_and_others_give_nothing() -> None:
    areas = Areas(quotas={"kept": QuotaBytes(share_bytes=512 * KIB, reserve_bytes=0)})
    kept, other = list_with(areas, "kept", 80), list_with(areas, "other", 80)
    quota = areas.memory.memories.of_patterns["kept"].quota
    quota.resize(64 * KIB, 0)
    areas.reclaim.give_back_excess(kept.memory)
    assert quota.held_bytes <= 64 * KIB and 0 < len(kept.direct) < 80
    assert len(other.direct) == 80
    areas.check()


def test_a_list_makes_room_within_its_share_though_the_limit_has_room() -> None:
    areas = Areas(quotas={"kept": QuotaBytes(share_bytes=512 * KIB, reserve_bytes=0)})
    queue = areas.queue("kept")
    for priority in (4, 5):
        areas.arrive(areas.lane(queue, priority), 0)
    asker, giver = areas.subscribe(queue).lists
    lane = giver.lane
    assert isinstance(lane, PersistentLaneState)
    areas.arrive(lane, 60)
    other = list_with(areas, "other", 90)
    quota = areas.memory.memories.of_patterns["kept"].quota
    areas.reclaim.make_room(quota.share_bytes - quota.held_bytes + 10 * CHARGE, asker)
    assert len(giver.direct) < 60 and len(other.direct) == 90


def test_what_is_within_a_reserve_is_not_given_to_others() -> None:
    areas = Areas(quotas={"kept": QuotaBytes(share_bytes=1024 * KIB, reserve_bytes=512 * KIB)})
    kept, other = list_with(areas, "kept", 60), list_with(areas, "other", 60)
    areas.reclaim.make_room(areas.budget.limit_bytes, None)
    assert len(kept.direct) == 60 and len(other.direct) == 1
    areas.check()
