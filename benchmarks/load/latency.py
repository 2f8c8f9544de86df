"""Latencies: how long sends took, how late they began, and how old messages were when they were taken.

Ages and delays begin when a message was due by the schedule, not when the store accepted it. So a store that stands
still is charged for all messages that had to wait (no coordinated omission). Without a schedule, a message is due when
its send begins. The supervisor keeps the latencies, so a kill does not lose them and the broker process spends no time
on them. This module needs hdrhistogram, from `forebay[tools]`.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from .events import CAME_AGAIN, N_MASK, PRODUCER_SHIFT
from .schedule import Schedule, Turns

if TYPE_CHECKING:
    from hdrh.histogram import HdrHistogram

PERCENTILES: Final = (50.0, 75.0, 95.0, 99.0, 99.9, 99.99)
PUBLISH: Final = "publishLatency"
"""Time from the call of a send to its return."""
DELAY: Final = "publishDelayLatency"
"""Time from when a message was due to the call of its send."""
END_TO_END: Final = "endToEndLatency"
"""Time from when a message was due to the return of the take that brought it."""

TITLES: Final = {PUBLISH: "send", DELAY: "send begun late by", END_TO_END: "due to taken"}
"""Titles for people, by the names that the OpenMessaging Benchmark gives to the figures."""
SUFFIXES: Final = ("Avg", *(f"{percentile:g}pct".replace(".", "") for percentile in PERCENTILES), "Max")
"""Suffixes of the names of these figures in the OpenMessaging Benchmark."""

_HIGHEST_US: Final = 3600 * 10**6
_DIGITS: Final = 3


@dataclass(frozen=True, slots=True)
class Latency:
    """The latencies of one kind, in microseconds; all are 0 if nothing was measured."""

    average: float = 0.0
    percentiles: tuple[int, ...] = (0,) * len(PERCENTILES)
    """Latencies at PERCENTILES, rounded up to three digits."""
    most: int = 0


def aggregated(name: str, suffix: str) -> str:
    """Return the name that the figure of a whole run has in the OpenMessaging Benchmark."""
    return f"aggregated{name[0].upper()}{name[1:]}{suffix}"


class Latencies:
    """The latencies of one run, over all its kills. Without hdrhistogram nothing is kept."""

    def __init__(self, counts: Sequence[int], schedule: Schedule | None) -> None:
        self._schedule = schedule
        self._began = 0.0
        self._due = [array("d", bytes(8 * count)) for count in counts]
        self._sent = [0] * len(counts)
        self._sending = [(0, 0.0)] * len(counts)
        names = (PUBLISH, DELAY, END_TO_END) if find_spec("hdrh") is not None else ()
        self._tracks = {name: _Track() for name in names}

    def begin(self, at: float) -> None:
        """Note when the schedule begins. at: a time as in events."""
        self._began = at

    def sending(self, producer: int, stop: int, at: float) -> None:
        if not self._tracks:
            return
        start, due = self._sent[producer], self._due[producer]
        self._sent[producer] = stop
        self._sending[producer] = (stop - start, at)
        if self._schedule is None:
            due[start:stop] = array("d", [at]) * (stop - start)
            return
        turns = Turns(self._schedule, self._began, producer, len(self._due))
        due[start:stop] = array("d", map(turns.due, range(start, stop)))
        self._tracks[DELAY].record(_microseconds(at - then) for then in due[start:stop])

    def sent(self, producer: int, at: float) -> None:
        if not self._tracks:
            return
        messages, began = self._sending[producer]
        self._tracks[PUBLISH].record([_microseconds(at - began)] * messages)

    def taken(self, keys: Sequence[int], at: float) -> None:
        """Note messages that were taken. Unknown keys are skipped; the evidence reports them."""
        if not self._tracks:
            return
        due = self._due
        self._tracks[END_TO_END].record(
            _microseconds(at - due[producer][key & N_MASK])
            for key in keys
            if (producer := (key & ~CAME_AGAIN) >> PRODUCER_SHIFT) < len(due) and key & N_MASK < len(due[producer])
        )

    def lap(self) -> Mapping[str, Latency]:
        """Return the latencies since the previous lap."""
        return {name: track.lap() for name, track in self._tracks.items()}

    def whole(self) -> Mapping[str, Latency]:
        """Return the latencies of all laps."""
        return {name: track.whole() for name, track in self._tracks.items()}


class _Track:
    def __init__(self) -> None:
        from hdrh.histogram import HdrHistogram

        self._lap, self._whole = (HdrHistogram(1, _HIGHEST_US, _DIGITS) for _ in range(2))
        self._lap_sum = self._whole_sum = 0

    def record(self, microseconds: Iterable[int]) -> None:
        for value, count in Counter(microseconds).items():
            self._lap.record_value(value, count)
            self._lap_sum += value * count

    def lap(self) -> Latency:
        latency = _latency(self._lap, self._lap_sum)
        self._whole.add(self._lap)
        self._whole_sum += self._lap_sum
        self._lap.reset()
        self._lap_sum = 0
        return latency

    def whole(self) -> Latency:
        return _latency(self._whole, self._whole_sum)


def _microseconds(seconds: float) -> int:
    return min(max(1, int(seconds * 1e6)), _HIGHEST_US)


def _latency(histogram: HdrHistogram, total: int) -> Latency:
    if not histogram.total_count:
        return Latency()
    found = histogram.get_percentile_to_value_dict(list(PERCENTILES))
    return Latency(
        total / histogram.total_count,
        tuple(int(found[percentile]) for percentile in PERCENTILES),
        int(histogram.get_max_value()),
    )
