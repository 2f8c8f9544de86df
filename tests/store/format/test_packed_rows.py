"""PackedRows beside a dict: rows come and go, and are found by number wherever they have moved."""

from __future__ import annotations

from random import Random

import pytest

from forebay.store.format.packed_rows import PackedRows


def row_of(number: int, text: bytes) -> bytes:
    return number.to_bytes(4, "little") + bytes((len(text),)) + text


def end_of(data: bytearray, place: int) -> int:
    return place + 5 + data[place + 4]


def check(rows: PackedRows, model: dict[int, bytes]) -> None:
    rows._check()
    assert list(rows.numbers) == sorted(model)
    assert [rows.row_at(place) for place in rows.places] == [model[number] for number in sorted(model)]
    assert rows.live_bytes == sum(map(len, model.values()))


@pytest.mark.parametrize("seed", range(5))
def test_rows_are_those_of_a_dict(seed: int) -> None:
    random, rows, model = Random(seed), PackedRows(end_of), dict[int, bytes]()
    moved = 0
    for _ in range(600):
        number = random.randrange(200)
        if number in model:
            if random.random() < 0.3:
                some = set(random.sample(sorted(model), random.randint(1, len(model) // 2 + 1)))
                moved += rows.remove_all({place for other in some if (place := rows.find(other)) is not None})
                model = {other: row for other, row in model.items() if other not in some}
            else:
                moved += rows.remove(number)
                del model[number]
            assert rows.find(number) is None or number in model
        else:
            model[number] = row_of(number, random.randbytes(random.randrange(250)))
            assert rows.number_at(rows.add(number, model[number])) == number
        check(rows, model)
    assert moved, "rows move together when half of the bytes are gaps"
    rows.clear()
    check(rows, {})


def test_a_place_is_good_until_rows_are_said_to_have_moved() -> None:
    rows = PackedRows(end_of)
    places = {number: rows.add(number, row_of(number, bytes(200))) for number in range(100)}
    for number in range(99):
        if rows.remove(number):
            break
        assert all(rows.number_at(places[other]) == other for other in range(number + 1, 100))
    else:
        pytest.fail("half of the bytes are gaps, and no row has moved")
    assert len(rows.data) == rows.live_bytes


def test_all_rows_together_are_what_a_record_has_of_them_with_gaps_and_without() -> None:
    rows = PackedRows(end_of)
    for number in (3, 1, 2):
        rows.add(number, row_of(number, b"x"))
    assert rows.joined() == row_of(3, b"x") + row_of(1, b"x") + row_of(2, b"x")
    assert not rows.remove(3)
    assert rows.joined() == row_of(1, b"x") + row_of(2, b"x")
