"""Bytes of host properties: what goes in comes out, and what cannot be is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.store.format.branch import (
    Branch,
    decode_branch,
    decode_commit,
    encode_branch,
    encode_commit,
)
from forebay.store.format.host_properties import decode_changes, decode_properties_record, encode_changes
from forebay.store.format.record import RecordDamaged
from forebay.store.format.state_record import StateRecord, decode_state, encode_state

NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)
CHANGES = st.dictionaries(NAMES, st.none() | st.binary(max_size=50), max_size=5)


def test_changes_have_the_bytes_that_the_page_of_the_format_says() -> None:
    expected = b"\x02\0\0\0" + b"\x02\0\x03\0\0\0" + "ß".encode() + b"abc" + b"\x01\0\xff\xff\xff\xff" + b"d"
    assert encode_changes({"ß": b"abc", "d": None}) == expected


@given(CHANGES)
def test_changes_come_back(changes: dict[str, bytes | None]) -> None:
    data = encode_changes(changes)
    assert decode_properties_record(data).changes == changes
    assert decode_changes(b"ab" + data + b"more", 2) == (changes, 2 + len(data))


@given(CHANGES)
def test_branch_and_commit_and_state_have_them_or_nothing_of_them(changes: dict[str, bytes | None]) -> None:
    branch = Branch(7, b"xid")
    branch.properties = changes
    branch.add(1 << 4, 2 << 32, 3, 400)
    branch.give_sequences(lambda lane: 0)
    decoded, end = decode_branch(encode_branch(branch))
    assert decoded.properties == changes and end == len(encode_branch(branch)) and len(decoded) == 1
    commit = decode_commit(encode_commit(branch))
    assert commit.properties == changes and len(list(commit.slices)) == 1 and not commit.identities
    values = {name: value for name, value in changes.items() if value is not None}
    state = decode_state(encode_state(StateRecord(branches=[branch], properties=values)))
    assert state.properties == values and state.branches[0].properties == changes


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x01\0\0\0",
        b"\x01\0\0\0\0\0\0\0\0\0",  # no name
        b"\x01\0\0\0\x01\0\x05\0\0\0ab",  # a value beyond the end
        b"\x01\0\0\0\x01\0\0\0\0\0\xff",  # no UTF-8
        b"\x02\0\0\0" + 2 * b"\x01\0\0\0\0\0a",
        b"\0\0\0\0more",
        b"\xff\xff\xff\xff",
    ],
)
def test_what_cannot_be_is_refused(data: bytes) -> None:
    with pytest.raises(RecordDamaged):
        decode_properties_record(data)
