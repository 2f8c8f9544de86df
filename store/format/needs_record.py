"""Needs records: which subscriptions need messages of a topic that the next record copies or names.

needs      (lane u64, first u64, messages u32); of each need (subscription u64, first u64, messages u32)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from .record import HEADER_BYTES, LANE_RUN, Header, LaneRun, RecordDamaged, check_run


class NeededRun(NamedTuple):
    """A run of sequences of a topic's lane that one subscription needs."""

    subscription: int
    """The number of the subscription."""
    first: int
    messages: int


class NeedsRecord(NamedTuple):
    """A needs record: tells which subscriptions need some messages of a topic's lane."""

    run: LaneRun
    """The messages, in one block of the lane."""
    needs: list[NeededRun]
    """The part of the run that each subscription needs."""


def needs_bytes(needs: int) -> int:
    """Return the size of a needs record with that many ranges."""
    return HEADER_BYTES + LANE_RUN.size * (1 + needs)


def needs_payload(run: LaneRun, needs: Iterable[NeededRun]) -> bytes:
    return LANE_RUN.pack(*run) + b"".join([LANE_RUN.pack(*need) for need in needs])


def decode_needs(header: Header, head: bytes | memoryview) -> NeedsRecord:
    """Decode the payload of a verified needs record. RecordDamaged: it says what is not possible."""
    if header.length != needs_bytes(header.entries) or len(head) < header.length:
        raise RecordDamaged("the ranges of needs do not add up to their record's length")
    announced, *found = LANE_RUN.iter_unpack(head[HEADER_BYTES : header.length])
    run, needs = LaneRun(*announced), [NeededRun(*need) for need in found]
    check_run(*run)
    if any(not run.first <= need.first <= need.first + need.messages <= run.first + run.messages for need in needs):
        raise RecordDamaged("needs of other messages than they say")
    return NeedsRecord(run, needs)
