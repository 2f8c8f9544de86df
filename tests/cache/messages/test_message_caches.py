"""One suite for both caches, then what each promises alone."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from compiled import interpreted
from counting import counted_calls

from forebay.cache.accounting.budget import Budget
from forebay.cache.accounting.charge import OVERHEAD_BYTES, charge_of, charge_of_size
from forebay.cache.messages.head_queue_cache import HeadQueueCache
from forebay.cache.messages.message_cache import MessageCache
from forebay.cache.messages.pending_cache import PendingCache
from forebay.store.stored_message import StoredMessage

LANE, OTHER_LANE = 20, 36
BODY_BYTES = 1000 - OVERHEAD_BYTES
CHARGE = 1000


def message(sequence: int, body_bytes: int = BODY_BYTES) -> StoredMessage:
    return sequence, b"", bytes(body_bytes), 0


def head_queue_cache(budget: Budget, share_bytes: int) -> MessageCache:
    return HeadQueueCache(budget.holder("head"), share_bytes)


def pending_cache(budget: Budget, share_bytes: int) -> MessageCache:
    return PendingCache(budget.holder("pending"), HeadQueueCache(budget.holder("head"), 0), share_bytes)


Maker = Callable[[Budget, int], MessageCache]


@pytest.fixture(params=[head_queue_cache, pending_cache])
def make(request: pytest.FixtureRequest) -> Maker:
    maker: Maker = request.param
    return maker


def test_a_message_costs_its_bytes_and_what_stands_around_them() -> None:
    assert charge_of((1, b"12", b"345", 0)) == charge_of_size(5) == 5 + OVERHEAD_BYTES
    assert charge_of((1, b"", None, 0)) == OVERHEAD_BYTES


def test_what_was_put_is_found_and_taken_once(make: Maker) -> None:
    budget = Budget(10_000)
    cache = make(budget, 10_000)
    assert cache.put(LANE, message(7))
    assert cache.peek(LANE, 7) == cache.peek(LANE, 7) == message(7)
    assert cache.has(LANE) and len(cache) == 1
    assert cache.take(LANE, 7) == message(7)
    assert cache.take(LANE, 7) is None and cache.peek(LANE, 7) is None
    assert not cache.has(LANE)
    assert budget.held_bytes == 0


def test_lanes_do_not_see_each_others_sequences(make: Maker) -> None:
    cache = make(Budget(10_000), 10_000)
    cache.put(LANE, message(7))
    assert not cache.has(OTHER_LANE)
    assert cache.take(OTHER_LANE, 7) is None
    assert cache.put(OTHER_LANE, message(7, 1))
    assert cache.take(LANE, 7) == message(7)


def test_a_message_put_twice_is_charged_once(make: Maker) -> None:
    budget = Budget(10_000)
    cache = make(budget, 10_000)
    assert cache.put(LANE, message(7)) and cache.put(LANE, message(7))
    assert (len(cache), budget.held_bytes) == (1, CHARGE)


def test_arrivals_in_a_row_are_kept_until_the_cache_has_given_something_back() -> None:
    budget = Budget(10_000)
    cache = PendingCache(budget.holder("pending"), HeadQueueCache(budget.holder("head"), 0), 10_000)
    assert cache.admit(LANE, message(1), is_near=True)
    cache.take(LANE, 1)
    assert cache.give_back(0) == cache.give_back(CHARGE) == 0  # nothing is asked for, or nothing is there
    assert cache.admit(LANE, message(2), is_near=False)
    assert cache.give_back(0) == 0 and cache.give_back(CHARGE) == CHARGE
    assert not cache.admit(LANE, message(3), is_near=False)


def test_what_does_not_fit_into_the_share_is_refused(make: Maker) -> None:
    budget = Budget(100_000)
    cache = make(budget, 3 * CHARGE)
    assert [cache.put(LANE, message(n)) for n in range(5)] == [True, True, True, False, False]
    assert budget.held_bytes == 3 * CHARGE


def test_pending_cache_tells_of_a_message_that_it_has_whatever_room_is_left() -> None:
    budget = Budget(10_000)
    cache = pending_cache(budget, CHARGE)
    assert cache.put(LANE, message(7))
    assert cache.put(LANE, message(7))
    assert not cache.put(LANE, message(8)) and not cache.put(OTHER_LANE, message(7))
    assert len(cache) == 1 and budget.held_bytes == CHARGE


def test_a_share_of_nothing_switches_the_cache_off(make: Maker) -> None:
    budget = Budget(100_000)
    cache = make(budget, 0)
    assert not cache.put(LANE, message(1, 0))
    assert len(cache) == budget.held_bytes == 0


def test_what_does_not_fit_into_the_budget_is_refused(make: Maker) -> None:
    budget = Budget(10 * CHARGE)
    cache = make(budget, 10 * CHARGE)
    budget.holder("others").reserve(9 * CHARGE)
    assert cache.put(LANE, message(1))
    assert not cache.put(LANE, message(2))
    assert budget.held_bytes == budget.limit_bytes


def test_what_came_last_is_given_back_first_and_no_more_than_is_wanted(make: Maker) -> None:
    budget = Budget(10 * CHARGE)
    cache = make(budget, 10 * CHARGE)
    for sequence in range(8):
        cache.put(LANE, message(sequence))
    assert cache.give_back(2 * CHARGE + 1) == 3 * CHARGE
    assert [sequence for sequence in range(8) if cache.peek(LANE, sequence)] == [0, 1, 2, 3, 4]
    assert budget.held_bytes == 5 * CHARGE


def test_the_lane_with_the_most_messages_gives_back_first(make: Maker) -> None:
    cache = make(Budget(20 * CHARGE), 20 * CHARGE)
    cache.put(OTHER_LANE, message(0))
    for sequence in range(9):
        cache.put(LANE, message(sequence))
    cache.give_back(4 * CHARGE)
    assert cache.peek(OTHER_LANE, 0) and cache.peek(LANE, 4) and not cache.peek(LANE, 5)


def test_more_than_there_is_can_not_be_given_back(make: Maker) -> None:
    budget = Budget(10 * CHARGE)
    cache = make(budget, 10 * CHARGE)
    for lane in (LANE, OTHER_LANE):
        cache.put(lane, message(1))
    assert cache.give_back(100 * CHARGE) == 2 * CHARGE
    assert cache.give_back(1) == len(cache) == budget.held_bytes == 0


def test_a_lane_is_forgotten_with_its_charge(make: Maker) -> None:
    budget = Budget(10 * CHARGE)
    cache = make(budget, 10 * CHARGE)
    for sequence in range(3):
        cache.put(LANE, message(sequence))
    cache.put(OTHER_LANE, message(5))
    cache.discard_lane(LANE)
    cache.discard_lane(99)
    assert (len(cache), budget.held_bytes) == (1, CHARGE)


@pytest.mark.parametrize("seed", range(10))
def test_the_charge_is_that_of_what_is_there_whatever_happened(make: Maker, seed: int) -> None:
    random = Random(seed)
    budget = Budget(30 * CHARGE)
    others = budget.holder("others")
    cache = make(budget, 20 * CHARGE)
    known: dict[tuple[int, int], StoredMessage] = {}
    for step in range(3000):
        lane, sequence = random.choice((LANE, OTHER_LANE)), random.randrange(60)
        action = random.random()
        if action < 0.5:
            stored = message(sequence, random.choice((0, 100, 3000)))
            if (lane, sequence) not in known and cache.put(lane, stored):
                known[lane, sequence] = stored
        elif action < 0.8:
            assert cache.take(lane, sequence) == known.pop((lane, sequence), None)
        elif action < 0.9:
            cache.give_back(random.randrange(5 * CHARGE))
        elif action < 0.95 and isinstance(cache, HeadQueueCache):
            cache.reopen(lane)
        elif others.held_bytes:
            others.release(others.held_bytes)
        else:
            others.reserve(random.randrange(25 * CHARGE))
        assert cache.holder.held_bytes <= 20 * CHARGE, f"seed {seed}, step {step}"
        cache._check()
        budget._check()
        known = {place: stored for place, stored in known.items() if cache.peek(*place) == stored}
        assert len(known) == len(cache)


# The HeadQueueCache alone.


def test_head_queue_cache_keeps_the_oldest_without_a_gap() -> None:
    cache = HeadQueueCache(Budget(100_000).holder("head"), 2 * CHARGE)
    assert cache.put(LANE, message(0)) and cache.put(LANE, message(1))
    assert not cache.put(LANE, message(2))
    cache.take(LANE, 0)
    assert not cache.put(LANE, message(3)), "message 2 is missing between"
    assert cache.put(OTHER_LANE, message(0)), "another lane has its own head"


def test_head_queue_cache_fills_again_when_the_head_begins_anew() -> None:
    cache = HeadQueueCache(Budget(100_000).holder("head"), CHARGE)
    cache.put(LANE, message(0))
    cache.put(LANE, message(1))
    cache.take(LANE, 0)
    cache.reopen(LANE)
    assert cache.put(LANE, message(2))


def test_head_queue_cache_does_not_go_on_behind_what_it_gave_back() -> None:
    cache = HeadQueueCache(Budget(100_000).holder("head"), 10 * CHARGE)
    for sequence in range(4):
        cache.put(LANE, message(sequence))
    cache.give_back(CHARGE)
    assert not cache.put(LANE, message(4))


# The PendingCache alone.


def test_head_queue_cache_shrinks_as_pending_cache_grows() -> None:
    budget = Budget(10 * CHARGE)
    head = HeadQueueCache(budget.holder("head"), 10 * CHARGE)
    pending = PendingCache(budget.holder("pending"), head, 6 * CHARGE)
    for sequence in range(10):
        assert head.put(LANE, message(sequence))
    for count in range(1, 7):
        assert pending.put(OTHER_LANE, message(count))
        assert (len(head), len(pending)) == (10 - count, count)
    assert not pending.put(OTHER_LANE, message(7)), "its share is used up"
    assert len(head) == 4
    assert head.peek(LANE, 3) and not head.peek(LANE, 4), "the newest went first"


def test_pending_cache_takes_nothing_from_the_head_queue_cache_while_there_is_room() -> None:
    budget = Budget(10 * CHARGE)
    head = HeadQueueCache(budget.holder("head"), 10 * CHARGE)
    pending = PendingCache(budget.holder("pending"), head, 10 * CHARGE)
    head.put(LANE, message(0))
    for sequence in range(9):
        assert pending.put(LANE, message(sequence))
    assert len(head) == 1


def test_overflow_goes_on_behind_what_another_list_took() -> None:
    budget = Budget(100_000)
    cache = PendingCache(budget.holder("pending"), HeadQueueCache(budget.holder("head"), 0), 100_000)
    assert cache.admit(LANE, message(1), is_near=True)
    assert cache.take(LANE, 1) is not None
    assert cache.admit(LANE, message(2), is_near=False)
    assert not cache.admit(LANE, message(4), is_near=False), "3 has to be read anyway"
    assert not cache.admit(LANE, message(5), is_near=False)
    assert not cache.admit(OTHER_LANE, message(3), is_near=False)


@pytest.mark.parametrize("end", ["give_back", "forget"])
def test_overflow_does_not_go_on_behind_what_was_given_back(end: str) -> None:
    budget = Budget(100_000)
    cache = PendingCache(budget.holder("pending"), HeadQueueCache(budget.holder("head"), 0), 100_000)
    assert cache.admit(LANE, message(1), is_near=True)
    assert cache.admit(LANE, message(2), is_near=False)
    if end == "give_back":
        cache.give_back(1)
    else:
        cache.discard_lane(LANE)
    assert not cache.admit(LANE, message(3), is_near=False)


# ---------------------------------------------------------------------- many lanes


@interpreted("counts calls of Python functions")
def test_giving_back_costs_the_same_however_many_lanes_there_are(make: Maker) -> None:
    def calls_with(lanes: int) -> int:
        cache = make(Budget(10**9), 10**9)
        for lane in range(lanes):
            assert all(cache.put(lane, message(sequence)) for sequence in range(3))
        with counted_calls() as calls:
            for _ in range(5):
                assert cache.give_back(2 * CHARGE) == 2 * CHARGE
        cache._check()
        return calls.total()

    assert calls_with(5000) == calls_with(50)


def test_the_lane_that_gives_first_has_more_than_half_as_many_as_the_fullest(make: Maker) -> None:
    random = Random(5)
    cache = make(Budget(10**9), 10**9)
    held: dict[int, list[int]] = {lane: [] for lane in range(40)}
    for step in range(4000):
        lane = random.randrange(40)
        if random.random() < 0.6:
            if cache.put(lane, message(step)):
                held[lane].append(step)
        elif held[lane]:
            assert cache.take(lane, held[lane].pop(0)) is not None
        if random.random() < 0.2 and any(held.values()):
            assert cache.give_back(1) == CHARGE
            [(lane, gone)] = [(lane, each) for lane in held for each in held[lane] if cache.peek(lane, each) is None]
            assert 2 * len(held[lane]) > max(map(len, held.values()))
            held[lane].remove(gone)
        cache._check()


def test_a_lane_that_is_empty_again_leaves_nothing(make: Maker) -> None:
    budget = Budget(10 * CHARGE)
    cache = make(budget, 10 * CHARGE)
    for lane in range(100):
        assert cache.put(lane, message(1)) and cache.take(lane, 1)
        assert cache.put(lane, message(1))
        cache.discard_lane(lane)
    assert all(cache.put(7, message(sequence)) for sequence in range(10)) and not cache.put(8, message(1))
    cache.give_back(10 * CHARGE)
    cache._check()  # no lane without messages
    assert not len(cache) and not budget.held_bytes
