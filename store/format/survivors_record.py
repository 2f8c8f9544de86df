"""Survivors records: what is live in a data log. It takes the place of all acks into that data log.

survivors  data log u32; runs of (lane u64, first u64, messages u32)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from .record import HEADER_BYTES, LANE_RUN, NUMBER, NUMBERED_BYTES, Header, LaneRun, RecordDamaged, check_run

SURVIVOR_RANGES_MAX: Final = 16_384


class SurvivorsRecord(NamedTuple):
    """A survivors record: nothing else is left of a data log."""

    data_log: int
    """Id of the data log that has them. All else in it is settled, so acks into it are no longer needed."""
    ranges: list[LaneRun]
    """Its live messages."""


def survivors_payload(data_log: int, ranges: Iterable[LaneRun]) -> bytes:
    return NUMBER.pack(data_log) + b"".join([LANE_RUN.pack(*run) for run in ranges])


def decode_survivors(header: Header, head: bytes | memoryview) -> SurvivorsRecord:
    """Decode the payload of a verified survivors record. RecordDamaged: it says what is not possible."""
    if header.length != NUMBERED_BYTES + LANE_RUN.size * header.entries or len(head) < header.length:
        raise RecordDamaged("the ranges of survivors do not add up to their record's length")
    (data_log,) = NUMBER.unpack_from(head, HEADER_BYTES)
    survivors = [LaneRun(*run) for run in LANE_RUN.iter_unpack(head[NUMBERED_BYTES : header.length])]
    for run in survivors:
        check_run(*run)
    return SurvivorsRecord(data_log, survivors)
