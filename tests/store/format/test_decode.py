"""Decoding: each kind of record means something of its own, and only kinds of newer versions mean nothing."""

from __future__ import annotations

from contextlib import suppress
from typing import get_args

import pytest

from forebay.store.format.decode import Payload, UnknownRecord, decode
from forebay.store.format.record import DIRECTORY, HEADER_BYTES, KIND_NAMES, DirectoryRecord, Header, RecordDamaged

KINDS = range(256)


def decoded(kind: int, payload: bytes = bytes(64)) -> object:
    """What a record of this kind says; None where it can say nothing of the kind."""
    head = bytes(HEADER_BYTES) + payload
    with suppress(RecordDamaged):
        return decode(Header(0, len(head), kind, 0, 1, 1, 1, 0), head)
    return None


@pytest.mark.parametrize("kind", sorted(KIND_NAMES), ids=KIND_NAMES.get)
def test_no_known_kind_is_taken_for_one_of_a_newer_version(kind: int) -> None:
    assert not isinstance(decoded(kind), UnknownRecord)


def test_a_kind_of_a_newer_version_is_passed_on_as_unknown() -> None:
    assert {kind for kind in KINDS if isinstance(decoded(kind), UnknownRecord)} == set(KINDS) - KIND_NAMES.keys()


def test_a_directory_says_that_its_data_log_is_sealed() -> None:
    assert decoded(DIRECTORY) == DirectoryRecord()


def test_payload_of_a_kind_has_the_name_of_the_kind() -> None:
    named = {f"{name.title()}Record" for name in KIND_NAMES.values()}
    assert {payload.__name__ for payload in get_args(Payload)} == named | {"UnknownRecord"}
