"""The table of destinations: whatever comes and goes, it is what a dict of them would be."""

from __future__ import annotations

from random import Random

import pytest

from forebay.store.format.destination_table import DestinationTable
from forebay.store.format.state_record import QUEUE, TOPIC, Destination, StateRecord, decode_state, encode_state


def some(random: Random, number: int) -> Destination:
    name = random.choice(("orders", "ß", "a" * 200, "tenant.")) + str(random.randrange(10**6))
    return Destination(number, random.choice((QUEUE, TOPIC)), name, random.random() < 0.2, random.random() < 0.2)


@pytest.mark.parametrize("seed", range(5))
def test_whatever_comes_and_goes_the_table_says_what_a_dict_would(seed: int) -> None:
    random, table, model = Random(seed), DestinationTable(), dict[int, Destination]()
    for step in range(600):
        number = random.randrange(1, 200)
        if random.random() < 0.4 and model:
            gone = random.choice(list(model))
            assert table.pop(gone) == model.pop(gone)
        else:
            model[number] = table[number] = some(random, number)
        if step % 50 == 0:
            table._check()
    assert dict(table) == model and list(table) == sorted(model) and len(table) == len(model)
    assert [table.get(number) for number in range(250)] == [model.get(number) for number in range(250)]
    for kind in (QUEUE, TOPIC):
        named = sorted((found.name, found.number) for found in model.values() if found.kind == kind)
        assert table.names(kind) == [name for name, _ in named] and table.count(kind) == len(named)
        assert table.numbers(kind) == [number for _, number in named]
        assert [table.number_of(kind, name) for name, _ in named] == [number for _, number in named]
    assert table.name_bytes == sum(len(found.name.encode()) for found in model.values())
    assert list(table.encoded()) == [model[number] for number in sorted(model)]


def test_what_a_record_has_of_the_table_is_what_it_has_of_a_list() -> None:
    destinations = [Destination(1, QUEUE, "orders"), Destination(4, TOPIC, "prices", is_temporary=True)]
    table = DestinationTable(destinations)
    packed = encode_state(StateRecord(table.encoded()))
    assert packed == encode_state(StateRecord(destinations))
    assert decode_state(packed).destinations == destinations
    table[1] = destinations[0]._replace(has_message_groups=True)
    assert sorted(table.encoded()) == [table[1], table[4]]


def test_a_queue_and_a_topic_may_have_one_name_and_nobody_has_another() -> None:
    table = DestinationTable([Destination(1, QUEUE, "a"), Destination(2, TOPIC, "a")])
    assert (table.number_of(QUEUE, "a"), table.number_of(TOPIC, "a")) == (1, 2)
    assert table.number_of(QUEUE, "aa") is table.number_of(QUEUE, "") is table.number_of(TOPIC, "\udc80") is None
    with pytest.raises(KeyError):
        del table[3]
    table.clear()
    assert not table and not table.names(QUEUE) and table.name_bytes == 0


def test_rows_that_are_gone_leave_nothing() -> None:
    table = DestinationTable()
    for number in range(1, 20_000):
        table[number] = Destination(number, QUEUE, f"temporary.{number}")
        if number > 10:
            del table[number - 10]
    assert len(table) == 10 and table.held_bytes < 10_000
    table._check()
