"""ReadingOrder: what is farthest from the reader that comes to it next leaves first."""

from __future__ import annotations

from random import Random

from forebay.cache.messages.reading_order import ReadingOrder

SEED = 11


def order_of(sequences: range | list[int], fronts: list[int]) -> ReadingOrder:
    order = ReadingOrder()
    for sequence in sequences:
        order.add(sequence)
    order.follow(fronts)
    return order


def all_of(order: ReadingOrder) -> list[int]:
    found = []
    while (sequence := order.pop_farthest()) is not None:
        found.append(sequence)
    return found


def test_of_one_reader_the_newest_leaves_first() -> None:
    assert all_of(order_of(range(5), [0])) == [4, 3, 2, 1, 0]


def test_two_readers_far_apart_keep_what_is_near_each_of_them() -> None:
    assert all_of(order_of([*range(10), *range(100, 104)], [0, 100])) == [
        9,
        8,
        7,
        6,
        5,
        4,
        3,
        103,
        2,
        102,
        1,
        101,
        0,
        100,
    ]


def test_what_all_have_passed_leaves_before_anything_else() -> None:
    assert all_of(order_of(range(6), [3])) == [2, 1, 0, 5, 4, 3]


def test_without_a_reader_the_newest_leaves_first() -> None:
    assert all_of(order_of(range(3), [])) == [2, 1, 0]


def test_a_message_takes_no_place_of_one_that_is_as_near() -> None:
    order = order_of([0, 1, 2, 100, 101], [0, 100])
    assert order.pop_farther_than(102) is None
    assert order.pop_farther_than(101) == 2
    assert order.pop_farther_than(101) is None


def test_what_no_reader_comes_to_takes_nobody_s_place() -> None:
    assert order_of(range(5, 9), [5]).pop_farther_than(4) is None


def test_readers_that_went_on_are_nearer() -> None:
    order = order_of([0, 1, 2, 100], [0])
    assert order.pop_farthest() == 100
    order.add(100)
    order.follow([0, 99])
    assert all_of(order) == [2, 1, 100, 0]


def test_what_was_added_since_leaves_first_if_it_is_farther() -> None:
    order = order_of(range(2), [0])
    assert order.pop_farthest() == 1
    order.add(7)
    assert all_of(order) == [7, 0]


def test_what_was_dropped_does_not_leave_once_more() -> None:
    order = order_of(range(8), [0])
    order.discard_before(6)
    assert all_of(order) == [7, 6]


def test_it_says_the_same_as_a_look_at_every_message() -> None:
    print(f"seed {SEED}")
    random = Random(SEED)
    for _ in range(200):
        sequences = random.sample(range(60), random.randrange(1, 40))
        fronts = random.sample(range(60), random.randrange(1, 6))

        def distance(sequence: int, fronts: list[int] = fronts) -> int:
            return min((sequence - front for front in fronts if front <= sequence), default=1000 + sequence)

        found = all_of(order_of(sequences, fronts))
        assert sorted(found) == sorted(sequences)
        assert [distance(sequence) for sequence in found] == sorted(map(distance, sequences), reverse=True)


def test_what_is_dropped_is_returned_as_runs() -> None:
    order = order_of([1, 2, 5, 8], [0])
    assert order.discard_before(6) == [(1, 2), (5, 5)]
    assert order.discard_before(6) == []
    assert all_of(order) == [8]


def test_a_message_finds_its_place_although_all_before_it_have_left() -> None:
    order = order_of([5], [5])
    assert order.pop_farthest() == 5
    order.add(20)
    order.add(30)
    assert order.pop_farther_than(25) == 30
