"""SharedCache: readers of the same messages find each message once, for as long as one of them may look for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from compiled import interpreted

from forebay.cache.accounting.budget import Budget
from forebay.cache.accounting.charge import charge_of
from forebay.cache.messages.head_queue_cache import HeadQueueCache
from forebay.cache.messages.pending_cache import PendingCache
from forebay.cache.messages.shared_cache import SharedCache
from forebay.store.stored_message import StoredMessage
from forebay.store.structures.sequence_set import SequenceSet

TOPIC, MINE = 100, 7


class Readers:
    """A PendingCache, and one reader's view of it beside others that are at `others`."""

    def __init__(self, share_bytes: int = 1 << 19) -> None:
        budget = Budget(1 << 20)
        heads = HeadQueueCache(budget.holder("head_queue_cache"), 0)
        self.cache = PendingCache(budget.holder("pending_cache"), heads, share_bytes)
        self.others = 0
        self.mine = SharedCache(self.cache, TOPIC, lambda: self.others)

    def held(self) -> list[int]:
        self.cache._check()
        return [sequence for sequence in range(200) if self.cache.peek(TOPIC, sequence) is not None]


@pytest.fixture
def readers() -> Readers:
    return Readers()


def message(sequence: int) -> StoredMessage:
    return sequence, b"", bytes(100), 0


def test_what_two_readers_put_is_charged_once(readers: Readers) -> None:
    other = SharedCache(readers.cache, TOPIC, lambda: 0)
    assert readers.mine.put(MINE, message(1)) and other.put(MINE + 1, message(1))
    assert readers.cache.holder.held_bytes == charge_of(message(1))
    assert readers.mine.peek(MINE, 1) == other.peek(MINE + 1, 1) == message(1)


def test_a_message_leaves_with_the_last_reader_that_may_look_for_it(readers: Readers) -> None:
    for sequence in range(4):
        readers.mine.put(MINE, message(sequence))
    readers.others = 2
    assert readers.mine.may_have(MINE, 3)
    assert [readers.mine.take(MINE, sequence) for sequence in range(4)] == [message(sequence) for sequence in range(4)]
    assert readers.held() == [2, 3]


def test_what_all_have_passed_is_dropped(readers: Readers) -> None:
    for sequence in range(5):
        readers.mine.put(MINE, message(sequence))
    readers.mine.discard_before(3)
    assert readers.held() == [3, 4]


def test_what_is_gone_for_one_reader_stays_for_the_others(readers: Readers) -> None:
    for sequence in range(6):
        readers.mine.put(MINE, message(sequence))
    readers.others = 3
    gone = SequenceSet()
    gone.add(1, 4)
    readers.mine.discard_runs(MINE, gone)
    assert readers.held() == [0, 3, 4, 5]


def test_forgetting_all_that_a_topic_ever_had_costs_what_is_here() -> None:
    """A subscription whose cursor moves forgets everything up to the farthest reader, under the state lock."""
    readers = Readers()
    readers.others = 10**12
    for sequence in (5, 10**12 - 1, 10**12):
        readers.mine.put(MINE, message(sequence))
    everything = SequenceSet()
    everything.add(0, 2 * 10**12)
    readers.mine.discard_runs(MINE, everything)
    assert readers.held() == [] and readers.cache.peek(TOPIC, 10**12) is not None


@interpreted("machine code has no subclass of a set of sequences")
def test_forgetting_what_another_reader_still_needs_costs_nothing() -> None:
    """The end of a topic with many subscriptions forgets everything once for each, under the state lock."""

    class Uncounted(SequenceSet):
        def __iter__(self) -> Iterator[tuple[int, int]]:
            raise AssertionError("the runs are gone through")

        def __contains__(self, number: int) -> bool:
            raise AssertionError("the messages here are gone through")

    readers = Readers()
    readers.others = 3
    for sequence in range(3, 9):
        readers.mine.put(MINE, message(sequence))
    everything = Uncounted()
    everything.add(3, 2 * 10**12)
    readers.mine.discard_runs(MINE, everything)
    assert readers.held() == [3, 4, 5, 6, 7, 8]


def test_an_overflow_behind_a_gap_is_not_kept(readers: Readers) -> None:
    assert readers.mine.admit(MINE, message(3), is_near=True)
    assert readers.mine.admit(MINE, message(4), is_near=False), "the one before is here"
    assert not readers.mine.admit(MINE, message(9), is_near=False)
    assert readers.mine.has(MINE) and readers.mine.shares_messages(MINE) and readers.held() == [3, 4]


def test_a_forgotten_run_of_an_empty_cache_asks_nobody(readers: Readers) -> None:
    gone = SequenceSet()
    gone.add(1, 4)
    readers.mine.discard_runs(MINE, gone)
    assert not readers.mine.may_have(MINE, 9) and readers.mine.take(MINE, 1) is None
    assert readers.mine.served == 0 and readers.mine.share_bytes == 1 << 19


def test_what_is_near_a_reader_takes_the_place_of_what_is_far_from_all() -> None:
    readers = Readers(share_bytes=6 * charge_of(message(0)))
    for sequence in range(6):
        assert readers.mine.put(MINE, message(sequence))
    readers.mine.follow_readers([0, 100])
    assert readers.mine.put(MINE, message(100)) and readers.mine.put(MINE, message(101))
    assert readers.held() == [0, 1, 2, 3, 100, 101]
    assert not readers.mine.put(MINE, message(104)), "farther than any other"
    assert readers.held() == [0, 1, 2, 3, 100, 101]


def test_the_first_messages_of_an_empty_cache_are_kept_by_where_their_readers_are() -> None:
    readers = Readers(share_bytes=6 * charge_of(message(0)))
    readers.mine.follow_readers([0, 100])
    for sequence in range(6):
        assert readers.mine.put(MINE, message(sequence))
    assert readers.mine.put(MINE, message(100)) and readers.mine.put(MINE, message(101))
    assert readers.held() == [0, 1, 2, 3, 100, 101]


def test_a_cache_that_had_no_room_for_the_first_message_keeps_the_later_ones_by_their_readers() -> None:
    readers = Readers(share_bytes=2 * charge_of(message(0)))
    readers.cache.put(TOPIC + 1, message(0))
    readers.cache.put(TOPIC + 1, message(1))
    readers.mine.follow_readers([0, 100])
    assert not readers.mine.put(MINE, message(0))
    readers.cache.discard_lane(TOPIC + 1)
    assert readers.mine.put(MINE, message(0)) and readers.mine.put(MINE, message(1))
    assert readers.mine.put(MINE, message(100)), "nearer to its reader than the one before"
    assert readers.held() == [0, 100]


def test_a_message_that_takes_the_place_of_the_only_one_leaves_the_readers_where_they_are() -> None:
    readers = Readers(share_bytes=2 * charge_of(message(0)))
    readers.mine.follow_readers([0, 100])
    readers.cache.put(TOPIC + 1, message(0))
    assert readers.mine.put(MINE, message(50)) and readers.mine.put(MINE, message(101))
    assert not readers.mine.put(MINE, message(90)), "far from the reader that comes to it next"
    assert readers.held() == [101]


def test_a_message_that_finds_no_room_even_in_the_place_of_the_only_one_leaves_the_readers_where_they_are() -> None:
    large: StoredMessage = (1, b"", bytes(1000), 0)
    readers = Readers(share_bytes=charge_of(large) + charge_of(message(0)))
    readers.mine.follow_readers([0, 100])
    readers.cache.put(TOPIC + 1, message(0))
    readers.cache.put(TOPIC + 1, message(1))
    assert readers.mine.put(MINE, message(50))
    assert not readers.mine.put(MINE, large)
    assert readers.held() == []
    readers.cache.discard_lane(TOPIC + 1)
    assert readers.mine.put(MINE, message(50)) and readers.mine.put(MINE, message(101))
    readers.cache.give_back(1)
    assert readers.held() == [101], "50 is farther from the reader that comes to it next"


def test_readers_of_whose_messages_none_came_are_forgotten(readers: Readers) -> None:
    readers.mine.follow_readers([0, 100])
    readers.mine.discard_before(0)
    assert not readers.cache._orders
    readers.mine.put(MINE, message(3))
    readers.mine.follow_readers([0, 100])
    readers.mine.discard_before(4)
    assert not readers.cache._orders and readers.held() == []


def test_what_is_far_from_all_readers_is_given_back_first(readers: Readers) -> None:
    for sequence in (*range(8), *range(100, 103)):
        readers.mine.put(MINE, message(sequence))
    readers.mine.follow_readers([0, 100])
    readers.cache.give_back(5 * charge_of(message(0)))
    assert readers.held() == [0, 1, 2, 100, 101, 102]


def test_what_overflowed_is_given_back_in_the_same_order(readers: Readers) -> None:
    for sequence in (*range(100, 103), *range(8)):
        assert readers.mine.admit(MINE, message(sequence), is_near=True)
    readers.mine.follow_readers([0, 100])
    readers.cache.give_back(5 * charge_of(message(0)))
    assert readers.held() == [0, 1, 2, 100, 101, 102]


def test_what_one_reader_took_for_good_does_not_keep_others_from_giving_back(readers: Readers) -> None:
    for sequence in range(8):
        readers.mine.put(MINE, message(sequence))
    readers.others = 8
    readers.mine.follow_readers([0])
    assert readers.mine.may_have(MINE, 7) and readers.mine.take(MINE, 7) == message(7)
    readers.cache.give_back(charge_of(message(0)))
    assert readers.held() == [0, 1, 2, 3, 4, 5]


def test_what_all_have_passed_is_dropped_also_where_it_came_after_later_messages(readers: Readers) -> None:
    for sequence in (90, *range(10)):
        readers.cache.put_shared(TOPIC, message(sequence))
    readers.mine.discard_before(50)
    assert readers.held() == [90]


def test_behind_a_message_that_made_room_the_next_arrival_would_leave_a_gap() -> None:
    readers = Readers(share_bytes=2 * charge_of(message(0)))
    readers.mine.follow_readers([0])
    assert readers.mine.put(MINE, message(0)) and readers.mine.admit(MINE, message(9), is_near=True)
    assert readers.mine.put(MINE, message(1)) and readers.held() == [0, 1], "9 is farther from the reader"
    readers.cache.take(TOPIC, 0)
    assert not readers.mine.admit(MINE, message(10), is_near=False)
