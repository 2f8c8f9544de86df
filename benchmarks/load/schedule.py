"""Schedule: how many messages a second are sent, and so when each of them is due.

A schedule has steps of value:duration, such as "1000:10s,10000:5s". It does not wait for the store. If the store falls
behind, messages are sent late and the delay is measured; the rate does not adapt (no coordinated omission).
"""

from __future__ import annotations

import math
import re
import time
from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

FORM: Final = 'steps of messages a second and duration, such as "1000:10s,10000:5s"; the last one may lack the latter'

_STEP: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)(?::([0-9]{1,9}(?:\.[0-9]{1,3})?)(ms|s|m|h))?")
_UNIT_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


class Schedule:
    """A schedule of messages, which are numbered from 0. steps: rate and seconds of each; the last one never ends."""

    def __init__(self, steps: Sequence[tuple[float, float]]) -> None:
        assert steps and steps[-1][0] > 0 and all(seconds > 0 for _, seconds in steps)
        self.steps = tuple(steps)
        self._begins = [0.0]
        self._firsts = [0]
        for rate, seconds in steps[:-1]:
            self._begins.append(self._begins[-1] + seconds)
            self._firsts.append(self._firsts[-1] + round(rate * seconds))

    @classmethod
    def parse(cls, text: str) -> Schedule:
        """Return the schedule that a text describes. ValueError says what is allowed."""
        steps = []
        for part in text.split(","):
            match = _STEP.fullmatch(part.strip())
            if match is None:
                raise ValueError(FORM)
            rate, duration, unit = match.groups()
            steps.append((float(rate), math.inf if duration is None else float(duration) * _UNIT_SECONDS[unit]))
        if any(math.isinf(seconds) for _, seconds in steps[:-1]) or any(not seconds for _, seconds in steps):
            raise ValueError(FORM)
        if not steps[-1][0]:
            raise ValueError("a last step above 0 messages a second, because it goes on for ever")
        return cls(steps)

    @property
    def messages(self) -> int | None:
        """Number of messages of all steps; None: the last step has no duration."""
        rate, seconds = self.steps[-1]
        return None if math.isinf(seconds) else self._firsts[-1] + round(rate * seconds)

    @property
    def longest_rest(self) -> float:
        """Most seconds between two messages."""
        return max(1 / rate if rate else seconds for rate, seconds in self.steps)

    def due_seconds(self, number: int) -> float:
        """Return when a message is due, in seconds from the beginning."""
        step = bisect_right(self._firsts, number) - 1
        return self._begins[step] + (number - self._firsts[step]) / self.steps[step][0]

    def due_messages(self, seconds: float) -> int:
        """Return how many messages are due by a time, which is also the number of the first one that is not due."""
        step = bisect_right(self._begins, seconds) - 1
        due = self._firsts[step] + int((seconds - self._begins[step]) * self.steps[step][0]) + 1
        return due if step + 1 == len(self.steps) else min(due, self._firsts[step + 1])

    def scaled(self, factor: float) -> Schedule:
        """Return a schedule with the same rates, each for `factor` times its duration, at least a millisecond."""
        return Schedule([(rate, max(seconds * factor, 0.001)) for rate, seconds in self.steps])

    def __str__(self) -> str:
        return ",".join(
            f"{rate:g}" if math.isinf(seconds) else f"{rate:g}:{round(seconds, 3):g}s" for rate, seconds in self.steps
        )


class Turns:
    """One producer's share of a schedule that began at a time: its producers take turns, message by message."""

    def __init__(self, schedule: Schedule, began: float, producer: int, producers: int) -> None:
        self._schedule = schedule
        self._began = began
        self._producer = producer
        self._producers = producers

    def due(self, n: int) -> float:
        """Return when the producer's n-th message is due."""
        return self._began + self._schedule.due_seconds(n * self._producers + self._producer)

    def wait(self, n: int) -> int:
        """Return how many messages are due from this one on, after waiting until this one is."""
        seconds = self.due(n) - time.monotonic()
        if seconds > 0:
            time.sleep(seconds)
        due = self._schedule.due_messages(time.monotonic() - self._began)
        return max(1, -(-(due - self._producer) // self._producers) - n)
