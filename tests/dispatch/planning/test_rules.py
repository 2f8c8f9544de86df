"""A rule about memory reaches all destinations, those with a memory_share or memory_reserve too."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from forebay.cache.accounting.charge import OVERHEAD_BYTES
from forebay.cache.accounting.shares import PENDING_CACHE_SHARE
from forebay.cache.messages.message_memory import MessageMemory
from forebay.dispatch.config.memory_plan import shares_of
from forebay.dispatch.config.policy import DestinationPolicy
from forebay.dispatch.config.settings import Settings
from forebay.dispatch.core.memory.memory_rule import MemoryRule
from forebay.dispatch.planning.player import TracePlayer
from forebay.dispatch.planning.rules import KeepAll, KeepNone, OldestFirst, OverflowShare
from forebay.store.stored_message import StoredMessage

LANE = 20
QUOTA_BYTES = 1 << 20
CHARGE = 1000
MEMORIES = [None, "logs.>"]


def message(sequence: int) -> StoredMessage:
    return sequence, b"", bytes(CHARGE - OVERHEAD_BYTES), 0


def memory_under(rule: MemoryRule, pattern: str | None) -> MessageMemory:
    """The memory that destinations have under a rule: what all share, or what those of one pattern have."""
    policy = DestinationPolicy(memory_share=QUOTA_BYTES, memory_reserve=QUOTA_BYTES // 2)
    player = TracePlayer(shares_of(Settings(memory_limit="8MiB", policies={"logs.>": policy})), {}, rule)
    memories = player.destination_state_parts.memories
    return memories.of_patterns[pattern] if pattern is not None else memories.common


def keeps_far_behind_what_is_loaded(memory: MessageMemory) -> bool:
    return memory.pending_cache.admit(LANE, message(7), is_near=False)


@pytest.mark.parametrize("pattern", MEMORIES)
@pytest.mark.parametrize(("make", "keeps_far"), [(MemoryRule, False), (KeepAll, True), (KeepNone, False)])
def test_a_rule_says_what_is_kept_far_behind_what_is_loaded(
    make: Callable[[], MemoryRule], keeps_far: bool, pattern: str | None
) -> None:
    assert keeps_far_behind_what_is_loaded(memory_under(make(), pattern)) is keeps_far


@pytest.mark.parametrize("pattern", MEMORIES)
def test_under_keep_none_nothing_that_overflows_is_kept(pattern: str | None) -> None:
    assert memory_under(MemoryRule(), pattern).pending_cache.admit(LANE, message(7), is_near=True)
    assert not memory_under(KeepNone(), pattern).pending_cache.admit(LANE, message(7), is_near=True)


@pytest.mark.parametrize("pattern", MEMORIES)
@pytest.mark.parametrize(("rule", "left"), [(MemoryRule(), [0, 1, 2, 3, 4, 5]), (OldestFirst(), [2, 3, 4, 5, 6, 7])])
def test_a_rule_says_which_message_of_a_lane_leaves_first(
    rule: MemoryRule, left: list[int], pattern: str | None
) -> None:
    cache = memory_under(rule, pattern).pending_cache
    for sequence in range(8):
        assert cache.put(LANE, message(sequence))
    assert cache.give_back(2 * CHARGE) == 2 * CHARGE
    assert [sequence for sequence in range(8) if cache.peek(LANE, sequence) is not None] == left
    cache._check()


@pytest.mark.parametrize("pattern", MEMORIES)
def test_under_oldest_first_the_keeper_of_a_lane_gets_what_is_given_back(pattern: str | None) -> None:
    cache = memory_under(OldestFirst(), pattern).pending_cache
    kept: list[StoredMessage] = []
    cache.register_keeper(LANE, kept.extend)
    for sequence in range(4):
        cache.put(LANE, message(sequence))
    cache.give_back(CHARGE)
    assert kept == [message(0), message(1)]  # a lane gives up to half of what it has, if it is little


@pytest.mark.parametrize("pattern", MEMORIES)
def test_a_rule_says_which_share_the_pending_cache_may_hold(pattern: str | None) -> None:
    ours, half, whole = (
        memory_under(rule, pattern).pending_cache.share_bytes
        for rule in (MemoryRule(), OverflowShare(0.5), OverflowShare(1.0))
    )
    assert 0 < half < ours <= whole
    assert half == pytest.approx(whole / 2, abs=1) and ours == pytest.approx(whole * PENDING_CACHE_SHARE, abs=1)
    assert whole == QUOTA_BYTES if pattern is not None else whole > QUOTA_BYTES
