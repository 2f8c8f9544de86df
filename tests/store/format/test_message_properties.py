"""Properties: every header comes back as what it was, in type and in every bit."""

from __future__ import annotations

import math
import struct
import tracemalloc
from datetime import UTC, datetime
from enum import IntEnum, StrEnum
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.store.errors import SettingsError
from forebay.store.format.message_properties import (
    BIG_INT_BYTES_MAX,
    NAME_BYTES_MAX,
    NESTING_MAX,
    READERS_MAX,
    decode_properties,
    encode_headers_of_each,
    encode_properties,
    group_of,
    header_values,
    header_values_of_each,
    message_id_of,
    own_identity,
)
from forebay.store.format.record import PROPERTIES_BYTES_MAX, RecordDamaged
from forebay.store.format.times import encode_times
from forebay.store.message import Headers, HeaderValue

BIG = (1 << 8 * BIG_INT_BYTES_MAX - 1) - 1
VALUES: list[HeaderValue] = [
    None,
    True,
    False,
    0,
    1,
    -1,
    2**63 - 1,
    2**63,
    -(2**63),
    -(2**63) - 1,
    2**64,
    BIG,
    -BIG,
    0.0,
    -0.0,
    math.inf,
    -math.inf,
    math.nan,
    5e-324,
    1.7976931348623157e308,
    "",
    "eu",
    "\0",
    "ß→𝄞\U0010ffff",
    b"",
    b"\x00\xff",
    b"x" * 70_000,
    2**64 - 1,
    [],
    {},
    [1, "two", b"three", None, 2**70, [math.inf, {"deep": [True]}]],
    {"n": 1, "list": [2**70, {"raw": b"\xff"}]},
]
TEXT = st.text(max_size=20)
SCALARS = (
    st.none() | st.booleans() | st.integers(-BIG, BIG) | st.floats(allow_nan=False) | TEXT | st.binary(max_size=40)
)
HEADER_VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT.filter(bool), inner, max_size=3),
    max_leaves=5,
)


def nested(depth: int) -> list[Any]:
    """Lists inside each other."""
    value: list[Any] = []
    for _ in range(depth - 1):
        value = [value]
    return value


def identity(value: HeaderValue) -> tuple[type, object]:
    """Equal only for the same type and the same bits: True is not 1, 0.0 not -0.0, and nan is nan."""
    if isinstance(value, list):
        return list, [identity(item) for item in value]
    if isinstance(value, dict):
        return dict, identities(value)
    return type(value), struct.pack("<d", value) if isinstance(value, float) else value


def test_nesting_up_to_the_limit_comes_back() -> None:
    deepest = nested(NESTING_MAX)
    assert decode_properties(encode_properties({"n": deepest}))[0] == {"n": deepest}


def identities(headers: Headers) -> list[tuple[str, tuple[type, object]]]:
    return [(name, identity(value)) for name, value in headers.items()]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: f"{type(value).__name__} {str(value)[:12]!r}")
def test_value_comes_back_exactly(value: HeaderValue) -> None:
    headers, message_id = decode_properties(encode_properties({"name": value}))
    assert identities(headers) == [("name", identity(value))] and message_id is None


def test_nan_keeps_its_payload() -> None:
    (nan,) = struct.unpack("<d", bytes.fromhex("efcdab896745ff7f"))
    assert math.isnan(nan)
    assert identities(decode_properties(encode_properties({"n": nan}))[0]) == [("n", identity(nan))]


@given(st.dictionaries(TEXT.filter(bool), HEADER_VALUES, max_size=8), st.none() | TEXT)
def test_any_headers_come_back_in_order(headers: dict[str, HeaderValue], message_id: str | None) -> None:
    found, found_id = decode_properties(encode_properties(headers, message_id))
    assert identities(found) == identities(headers) and found_id == message_id


def test_no_headers_are_no_bytes() -> None:
    assert encode_properties(None) == encode_properties({}) == b""
    assert decode_properties(b"") == ({}, None)


def test_message_id_is_no_header_though_it_has_the_name_of_one() -> None:
    assert decode_properties(encode_properties({"id": "a"}, "id")) == ({"id": "a"}, "id")
    assert decode_properties(encode_properties(None, "")) == ({}, "")


@pytest.mark.parametrize(
    "headers",
    [
        {"": 1},
        {1: 1},
        {None: 1},
        {b"name": 1},
        {"\ud800": 1},
        {"n": "\udfff"},
        {"n": object()},
        {"n": (1,)},
        {"n": [object()]},
        {"n": {"m": {1}}},
        {"n": {1: 1}},
        {"n": {"": 1}},
        {"n": ["\udfff"]},
        {"n": [BIG + 1]},
        {"n": nested(NESTING_MAX + 1)},
        {"n": nested(300)},
        {"n": datetime(2026, 11, 23, tzinfo=UTC)},
        {"n": 1j},
        {"n": bytearray(b"x")},
        {"n": BIG + 1},
        {"n": -BIG - 1},
        {"n": b"x" * PROPERTIES_BYTES_MAX},
    ],
    ids=lambda headers: str(headers).split(" at 0x")[0][:30],
)
def test_what_is_no_header_is_refused(headers: Any) -> None:
    with pytest.raises(SettingsError) as caught:
        encode_properties(headers)
    assert len(str(caught.value)) < 200


def test_foreign_message_id_is_bounded_and_text() -> None:
    assert decode_properties(encode_properties(None, "x" * NAME_BYTES_MAX))[1] == "x" * NAME_BYTES_MAX
    for message_id in ("x" * (NAME_BYTES_MAX + 1), "\ud800"):
        with pytest.raises(SettingsError):
            encode_properties(None, message_id)


def test_refusal_never_shows_a_value() -> None:
    for headers in ({"n": "secret\ud800"}, {"n": [object(), "secret"]}, {"secret\ud800": 1}):
        with pytest.raises(SettingsError) as caught:
            encode_properties(headers)  # type: ignore[arg-type]
        assert "secret" not in str(caught.value) and caught.value.__cause__ is None


def decode(data: bytes) -> None:
    try:
        headers, message_id = decode_properties(data)
    except RecordDamaged:
        return
    assert message_id is None or isinstance(message_id, str)
    # What was decoded is headers: it can be sent again.
    encode_properties({name or "no name": plain(value) for name, value in headers.items()}, message_id)


def plain(value: HeaderValue) -> HeaderValue:
    """Return the value without what alone arbitrary bytes can say: names that are empty."""
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {name or "no name": plain(item) for name, item in value.items()}
    return value


SAMPLE = encode_properties({"a": 1, "bb": 2**70, "c": 1.5, "d": "text", "e": b"bytes", "f": None, "g": [True]}, "id-1")


@pytest.mark.parametrize("length", range(len(SAMPLE)))
def test_cut_properties_are_never_taken_for_others(length: int) -> None:
    """Between id and headers nothing shows that more was there: the message's own length and checksum do."""
    try:
        headers, message_id = decode_properties(SAMPLE[:length])
    except RecordDamaged:
        return
    assert encode_properties(headers, message_id) == SAMPLE[:length]


@pytest.mark.parametrize(
    "data",
    [
        b"\x08\x05\x00ab",
        b"\x08\x05",
        b"\x08\x01\x00\xff",
        b"\x0c",
        b"\x0c\x81\xa5ab",
        b"\x0c\x81\xa1\xff\x01",
        b"\x0c\x81\x01\x01",
        b"\x0c\x91\x01",
        b"\x0c\x80\x80",
        b"\x0c\x81\xa1a\xd6\xff\x00\x00\x00\x01",
        b"\x0c\x81\xa1a\xd4\x02\x01",
        b"\x0c\x81\xa1a\x81\x01\x02",
        b"\x0c\x81\xa1a" + b"\x91" * 40 + b"\x01",
        b"\x0c\x81\xa1a" + b"\x91" * 100_000,
    ],
    ids=lambda data: data[:12].hex(),
)
def test_what_no_encoder_makes_is_damage(data: bytes) -> None:
    with pytest.raises(RecordDamaged):
        decode_properties(data)


@pytest.mark.parametrize("kind", [b"\xdb", b"\xc6", b"\xdd", b"\xdf", b"\xc9"], ids=bytes.hex)
def test_length_is_not_trusted(kind: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(RecordDamaged):
            decode_properties(b"\x0c\x81\xa1a" + kind + b"\x7f\xff\xff\xff" + b"short")
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("tag", [*range(8), *range(13, 256, 13)])
def test_unknown_field_is_damage(tag: int) -> None:
    with pytest.raises(RecordDamaged):
        decode_properties(bytes((tag,)) + b"\x01\x00a" + bytes(4))


class Region(StrEnum):
    EU = "eu"


class Level(IntEnum):
    HIGH = 7


class Words(str):
    __slots__ = ()


def test_values_of_subclasses_come_back_as_what_they_are_made_of() -> None:
    sent: dict[str, HeaderValue] = {
        "region": Region.EU,
        "level": Level.HIGH,
        Words("words"): Words("two words"),
        "list": [Region.EU],
    }
    found = decode_properties(encode_properties(sent))[0]
    assert found == {"region": "eu", "level": 7, "words": "two words", "list": ["eu"]}
    assert [type(value) for value in found.values()] == [str, int, str, list]
    assert {type(name) for name in found} == {str}


def test_any_mapping_will_do() -> None:
    assert decode_properties(encode_properties(MappingProxyType({"a": 1})))[0] == {"a": 1}


@given(st.dictionaries(TEXT.filter(bool), HEADER_VALUES, max_size=8), st.frozensets(TEXT, max_size=3), st.none() | TEXT)
def test_headers_of_some_names_are_those_among_all(
    headers: dict[str, HeaderValue], names: frozenset[str], message_id: str | None
) -> None:
    names |= frozenset(list(headers)[:2])
    found = header_values(encode_properties(headers, message_id, "group"), names)
    assert identities({name: found[name] for name in headers if name in names}) == identities(
        {name: headers[name] for name in headers if name in names}
    )


def test_what_is_not_asked_for_is_not_decoded_however_many_ask() -> None:
    headers: dict[str, HeaderValue] = {f"name {n}": n for n in range(2 * READERS_MAX)}
    data = encode_properties(headers)
    counts = [len(header_values(data, frozenset((name,)))) for name in headers]
    assert {1, len(headers)} >= set(counts), "each reader has its own names, and beyond the last reader all are read"
    assert counts[-1] == len(headers)


def each_by_itself(properties: list[bytes], names: frozenset[str]) -> list[object]:
    found: list[object] = []
    for data in properties:
        try:
            found.append(identities(header_values(data, names)))
        except RecordDamaged:
            found.append(None)
    return found


def together(properties: list[bytes], names: frozenset[str]) -> list[object]:
    return [None if values is None else identities(values) for values in header_values_of_each(properties, names)]


@given(
    st.lists(st.tuples(st.none() | TEXT, st.dictionaries(TEXT.filter(bool), HEADER_VALUES, max_size=3)), max_size=5),
    st.frozensets(TEXT.filter(bool), max_size=2),
    st.none() | st.tuples(st.integers(0, 4), st.binary(max_size=30)),
)
def test_headers_of_many_are_what_each_has_by_itself(
    messages: list[tuple[str | None, dict[str, HeaderValue]]],
    names: frozenset[str],
    damaged: tuple[int, bytes] | None,
) -> None:
    properties = [encode_properties(headers, message_id) for message_id, headers in messages]
    names |= frozenset(name for _, headers in messages[:2] for name in list(headers)[:1])
    if damaged is not None and properties:
        properties[damaged[0] % len(properties)] = damaged[1]
    assert together(properties, names) == each_by_itself(properties, names)


def test_the_headers_of_one_message_never_reach_into_those_of_the_next() -> None:
    """Bytes that end in the middle of a map, which what comes next would complete."""
    whole = encode_properties({"a": 1})
    begun = b"\x0c\x81\xa1a\x05\x81\xa1c"
    for properties in ([begun, whole], [begun, begun, whole], [b"\x0c\x81\xa1a", b"\x0c\x05", whole]):
        found = together(properties, frozenset("ab"))
        assert found == each_by_itself(properties, frozenset("ab"))
        assert found[-1] == identities({"a": 1}) and found[:-1] == [None] * (len(properties) - 1)


@given(st.lists(st.sampled_from(VALUES), max_size=8))
def test_what_one_message_has_changes_nothing_of_the_next(values: list[HeaderValue]) -> None:
    properties = [encode_properties({"a": value, "b": 1}) for value in values]
    read = [decode_properties(data)[0] for data in properties]
    assert list(map(identities, read)) == [identities({"a": value, "b": 1}) for value in values]
    asked = [header_values(data, frozenset("a"))["a"] for data in properties]
    assert list(map(identity, asked)) == list(map(identity, values))


@given(
    st.none() | TEXT, st.none() | TEXT, st.none() | TEXT, st.dictionaries(TEXT.filter(bool), HEADER_VALUES, max_size=2)
)
def test_id_group_and_producer_are_found_without_the_headers(
    message_id: str | None, group: str | None, producer: str | None, headers: dict[str, HeaderValue]
) -> None:
    data = encode_properties(headers, message_id, group, producer)
    assert (message_id_of(data), group_of(data)) == (message_id, group)
    named = None if message_id is None else ((producer or "").encode(), message_id.encode())
    assert own_identity(data) == named


@given(st.binary(max_size=80))
def test_decoder_meets_arbitrary_bytes(data: bytes) -> None:
    decode(data)
    decode(b"\x0c" + data)


@given(st.binary(min_size=1, max_size=6), st.integers(0, len(SAMPLE)))
def test_decoder_meets_mutated_bytes(patch: bytes, at: int) -> None:
    decode(SAMPLE[:at] + patch + SAMPLE[at + len(patch) :])
    decode(SAMPLE[:at] + patch + SAMPLE[at:])


@pytest.mark.parametrize("value", [*VALUES, [1], {"a": 1}])
def test_headers_of_many_messages_are_encoded_as_those_of_one(value: HeaderValue) -> None:
    each: list[Headers | None] = [{"a": value, "b": 1}, None, {}, {"b": 2}]
    for times in (b"", encode_times(1, 0)):
        encoded = encode_headers_of_each(each, times)
        is_plain = type(value) in (str, int, float, bool, bytes, type(None)) and not is_wide(value)
        assert (encoded is not None) == is_plain
        assert encoded is None or encoded == [times + encode_properties(headers) for headers in each]


@pytest.mark.parametrize(
    "headers",
    [{"": 1}, {1: 1}, {"a": object()}, {"a": "\ud800"}, {"\ud800": 1}, MappingProxyType({"a": 1}), 1, "a", 0, "", []],
)
def test_headers_that_are_not_plain_are_left_to_be_encoded_one_by_one(headers: object) -> None:
    assert encode_headers_of_each([{"a": 1}, headers, None], b"") is None


def test_headers_of_many_messages_above_the_limit_are_left_to_be_encoded_one_by_one() -> None:
    beside = len(encode_properties({"a": bytes(1 << 16)})) - (1 << 16)
    largest: Headers = {"a": bytes(PROPERTIES_BYTES_MAX - beside)}
    assert encode_headers_of_each([largest], b"") == [encode_properties(largest)]
    assert encode_headers_of_each([{"a": bytes(PROPERTIES_BYTES_MAX - beside + 1)}], b"") is None


def is_wide(value: object) -> bool:
    return isinstance(value, int) and not -(2**63) <= value < 2**64
