"""Cursors: the places of a topic from which a subscription or a reader can go on."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, Protocol

from ....store.errors import ArgumentError, argument_error
from ....store.format.record import SEQUENCES, TIME_MAX
from ....store.index.topic_lane import TopicLane
from ....store.maintenance.time_search import TimeSearch
from ....store.message import DEFAULT_PRIORITY
from ....store.numbering import PRIORITIES
from ...config.sizes import is_number

Edge = Literal["begin", "end"]

BEGIN: Final = "begin"
END: Final = "end"
SEQUENCE_MAX: Final = SEQUENCES - 1
SECONDS_MAX: Final = TIME_MAX // 1000


class Moment(Protocol):
    """The part of a `datetime` that a cursor needs."""

    @property
    def tzinfo(self) -> object: ...

    def timestamp(self) -> float: ...


@dataclass(frozen=True, slots=True)
class Landing:
    """The place of a cursor after a seek."""

    sequences: Mapping[int, int]
    """By priority, the sequence of the next message; if there is none yet, the sequence that it will have."""
    timestamp: int | None
    """When the earliest of those messages was sent, in ms since 1970 (UTC). None: there is none, or a read failed."""
    messages: int
    """Number of messages from there on, including those that a selector does not match."""


class SeekTarget(NamedTuple):
    """A place to go to: an edge, a time, or a sequence of one priority. Fields of the other kinds are None."""

    edge: str | None = None
    time_ms: int | None = None
    sequence: int | None = None
    priority: int = DEFAULT_PRIORITY

    def firsts(self, topic_lanes: Iterable[TopicLane], time_search: TimeSearch) -> list[tuple[int, int]]:
        """Return (priority, sequence) of each lane that is moved. Requires: no lock.

        A time costs O(log messages) reads for each lane.
        """
        if self.sequence is not None:
            return [(each.priority, self.sequence) for each in topic_lanes if each.priority == self.priority]
        if self.time_ms is not None:
            return [(each.priority, time_search.first_sequence_at(each, self.time_ms)) for each in topic_lanes]
        return [(each.priority, 0 if self.edge == BEGIN else SEQUENCE_MAX) for each in topic_lanes]


def within(firsts: Iterable[tuple[int, int]], topic_lanes: Sequence[TopicLane]) -> list[tuple[int, int]]:
    """Return the places, each moved back to the next message to be sent if it is behind that. Requires: the lock."""
    ends = {each.priority: each.next_sequence for each in topic_lanes}
    return [(priority, min(first, ends[priority])) for priority, first in firsts]


def parse_target(edge: object, sequence: object, time: object, priority: object, name: str = "to") -> SeekTarget:
    """Return the place that the arguments of a call name; exactly one of the first three must be given.

    name: what errors call the first argument. ArgumentError, SettingsError.
    """
    if sum(given is not None for given in (edge, sequence, time)) != 1:
        raise ArgumentError(f'give one place to go to: "begin" or "end" ({name}), sequence=… or time=…')
    if type(priority) is not int or not 0 <= priority < PRIORITIES:
        problem = f"priority={reprlib.repr(priority)} must be an int from 0 to {PRIORITIES - 1}"
        raise argument_error(problem, priority, int)
    if edge is not None:
        if edge not in (BEGIN, END):
            raise argument_error(f'{name}={reprlib.repr(edge)} must be "begin" or "end"', edge, str)
        return SeekTarget(edge=str(edge))
    if sequence is not None:
        if type(sequence) is not int or not 0 <= sequence <= SEQUENCE_MAX:
            problem = f"sequence={reprlib.repr(sequence)} must be an int from 0 on, as `delivery.sequence` is"
            raise argument_error(problem, sequence, int)
        return SeekTarget(sequence=sequence, priority=priority)
    return SeekTarget(time_ms=_time_ms(time))


def _time_ms(time: object) -> int:
    told = getattr(time, "timestamp", None)
    if callable(told):
        if getattr(time, "tzinfo", None) is None:
            raise ArgumentError(f"time={time!r} has no time zone: give one with tzinfo, such as datetime.UTC")
        time = told()
    if not is_number(time, 0, SECONDS_MAX):
        problem = f"time={reprlib.repr(time)} must be a datetime, or seconds since 1970"
        raise argument_error(problem, time, int, float)
    assert isinstance(time, int | float)
    return round(time * 1000)
