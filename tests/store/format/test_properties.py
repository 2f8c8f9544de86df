"""Properties: every header comes back as what it was, in type and in every bit."""

from __future__ import annotations

import math
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.store.errors import SettingsError
from forebay.store.format.properties import BIG_INT_BYTES_MAX, NAME_BYTES_MAX, decode_properties, encode_properties
from forebay.store.format.record import PROPERTIES_BYTES_MAX, RecordDamaged
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
]
TEXT = st.text(max_size=20)
HEADER_VALUES = (
    st.none() | st.booleans() | st.integers(-BIG, BIG) | st.floats(allow_nan=False) | TEXT | st.binary(max_size=40)
)


def identity(value: HeaderValue) -> tuple[type, object]:
    """Equal only for the same type and the same bits: True is not 1, 0.0 not -0.0, and nan is nan."""
    return type(value), struct.pack("<d", value) if isinstance(value, float) else value


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
        {"n": [1]},
        {"n": {"m": 1}},
        {"n": 1j},
        {"n": bytearray(b"x")},
        {"n": BIG + 1},
        {"n": -BIG - 1},
        {"x" * (NAME_BYTES_MAX + 1): 1},
        {"ß" * (NAME_BYTES_MAX // 2 + 1): 1},
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
    for headers in ({"n": "secret\ud800"}, {"n": ["secret"]}, {"secret\ud800": 1}):
        with pytest.raises(SettingsError) as caught:
            encode_properties(headers)  # type: ignore[arg-type]
        assert "secret" not in str(caught.value) and caught.value.__cause__ is None


def decode(data: bytes) -> None:
    try:
        headers, message_id = decode_properties(data)
    except RecordDamaged:
        return
    assert all(isinstance(name, str) for name in headers)
    assert message_id is None or isinstance(message_id, str)


SAMPLE = encode_properties({"a": 1, "bb": 2**70, "c": 1.5, "d": "text", "e": b"bytes", "f": None, "g": True}, "id-1")


@pytest.mark.parametrize("length", range(len(SAMPLE)))
def test_cut_properties_are_never_taken_for_others(length: int) -> None:
    """Between two fields nothing shows that more was there: the message's own length and checksum do."""
    try:
        headers, message_id = decode_properties(SAMPLE[:length])
    except RecordDamaged:
        return
    assert encode_properties(headers, message_id) == SAMPLE[:length]


@pytest.mark.parametrize("data", [b"\x08\x05\x00ab", b"\x00\x05\x00ab", b"\x03\x01\x00a\x00", b"\x06\x01\x00a\xff"])
def test_name_or_value_beyond_the_end_is_damage(data: bytes) -> None:
    with pytest.raises(RecordDamaged):
        decode_properties(data)


def test_length_is_not_trusted() -> None:
    with pytest.raises(RecordDamaged):
        decode_properties(b"\x07\x01\x00a" + b"\xff\xff\xff\xff" + b"short")


@pytest.mark.parametrize("tag", range(9, 256, 13))
def test_unknown_type_is_damage(tag: int) -> None:
    with pytest.raises(RecordDamaged):
        decode_properties(bytes((tag,)) + b"\x01\x00a" + bytes(4))


@given(st.binary(max_size=80))
def test_decoder_meets_arbitrary_bytes(data: bytes) -> None:
    decode(data)


@given(st.binary(min_size=1, max_size=6), st.integers(0, len(SAMPLE)))
def test_decoder_meets_mutated_bytes(patch: bytes, at: int) -> None:
    decode(SAMPLE[:at] + patch + SAMPLE[at + len(patch) :])
    decode(SAMPLE[:at] + patch + SAMPLE[at:])
