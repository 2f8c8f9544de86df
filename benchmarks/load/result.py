"""Result: the figures of a run, and their JSON.

Series and percentiles have the field names and units of the OpenMessaging Benchmark, so that its charts and scripts can
read them: latencies in milliseconds, delays of sends in microseconds. Further columns, which that benchmark does not
have, are memory, disk, and the verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from forebay.dispatch.config.sizes import MIB

from .evidence import Check
from .latency import DELAY, PERCENTILES, SUFFIXES, TITLES, Latency, aggregated
from .scenario import Scenario
from .words import short


@dataclass(frozen=True, slots=True)
class Sample:
    """One second of a run: rates, times and latencies during it, levels at its end."""

    seconds: float
    phase: str
    sent_per_second: float
    acked_per_second: float
    backlog_messages: int
    held_bytes: int
    limit_bytes: int
    uss_bytes: int
    spilled_bytes: int
    journal_bytes: int
    hit_ratio: float | None
    """None: nothing was delivered."""
    blocked_seconds: float
    latencies: Mapping[str, Latency] = field(default_factory=dict)
    """Empty without hdrhistogram."""

    def __str__(self) -> str:
        hit = "-" if self.hit_ratio is None else f"{100 * self.hit_ratio:.1f}"
        return (
            f"{self.seconds:>7.1f}  {self.phase:<7}{short(self.sent_per_second):>8}{short(self.acked_per_second):>9}"
            f"{short(self.backlog_messages):>9}{self.held_bytes / MIB:>10.1f}{self.uss_bytes / MIB:>9.1f}"
            f"{self.spilled_bytes / MIB:>10.1f}{hit:>7}{1000 * self.blocked_seconds:>12.0f}"
        )


@dataclass(slots=True)
class Run:
    """One run of one scenario."""

    scenario: Scenario
    messages: int
    body_bytes: int
    """Bytes of the bodies of all messages."""
    seconds: float = 0.0
    sent_seconds: float = 0.0
    """Time from the beginning to the last confirmed send, kills and recoveries included."""
    acked_seconds: float = 0.0
    """Time from the first take to the last confirmed ack, kills and recoveries included."""
    settled_messages: int = 0
    hit_ratio: float | None = None
    """Hit ratio of all deliveries that were counted before a kill or the end."""
    held_bytes_max: int = 0
    """Most bytes that were charged to the memory limit."""
    uss_bytes_max: int = 0
    """Most bytes by which a broker process grew."""
    uss_limit_bytes: int = 0
    """Most bytes by which a broker process may grow."""
    latencies: Mapping[str, Latency] = field(default_factory=dict)
    samples: list[Sample] = field(default_factory=list)
    recoveries: list[Mapping[str, Any]] = field(default_factory=list)
    notes: list[tuple[float, str]] = field(default_factory=list)
    """Events of the run, each with its time in seconds from the beginning."""
    checks: list[Check] = field(default_factory=list)

    @property
    def failed(self) -> list[str]:
        return [check.name for check in self.checks if not check.held]

    @property
    def summary(self) -> str:
        """A line about the run, and a table of latencies if they were kept."""
        parts = [f"{self.seconds:.1f} s"]
        if self.sent_seconds:
            parts.append(f"sent at {short(self.messages / self.sent_seconds)}/s")
        if self.acked_seconds:
            parts.append(f"acknowledged at {short(self.settled_messages / self.acked_seconds)}/s")
        if self.hit_ratio is not None:
            parts.append(f"{100 * self.hit_ratio:.1f} % hits")
        if self.recoveries:
            longest = max(recovery["seconds"] for recovery in self.recoveries)
            parts.append(f"recovered in {longest:.2f} s at most")
        return "\n".join([", ".join(parts), *self._latency_table()])

    def _latency_table(self) -> Iterator[str]:
        if self.latencies:
            heads = [f"p{percentile:g}" for percentile in PERCENTILES]
            yield f"\n  {'milliseconds':<22}" + "".join(f"{head:>10}" for head in [*heads, "most"])
        for name, latency in self.latencies.items():
            if latency.most:
                numbers = [*latency.percentiles, latency.most]
                yield f"  {TITLES[name]:<22}" + "".join(f"{number / 1000:>10,.2f}" for number in numbers)

    def as_json(self) -> dict[str, Any]:
        scenario = self.scenario
        return {
            "workload": scenario.name,
            "purpose": scenario.purpose,
            "driver": "forebay",
            "messageSize": self.body_bytes // self.messages,
            "topics": sum(destination.count for destination in scenario.destinations),
            "partitions": 1,
            "producersPerTopic": max(destination.producers for destination in scenario.destinations),
            "consumersPerTopic": len(scenario.consumers),
            **{name: [value(sample) for sample in self.samples] for name, value in _SERIES.items()},
            **self._latency_fields(),
            "messages": self.messages,
            "messageSizes": scenario.size,
            "memoryLimitBytes": scenario.memory,
            "rate": None if scenario.rate is None else str(scenario.rate),
            "seconds": self.seconds,
            "sentPerSecond": self.messages / self.sent_seconds if self.sent_seconds else 0.0,
            "ackedPerSecond": self.settled_messages / self.acked_seconds if self.acked_seconds else 0.0,
            "hitRatioOfAll": self.hit_ratio,
            "heldBytesMax": max(sample.held_bytes for sample in self.samples),
            "ussGrowthBytesMax": max(sample.uss_bytes for sample in self.samples),
            "spilledBytesMax": max(sample.spilled_bytes for sample in self.samples),
            "recoveries": self.recoveries,
            "notes": [{"seconds": seconds, "text": text} for seconds, text in self.notes],
            "checks": [asdict(check) for check in self.checks],
            "allHeld": not self.failed,
        }

    def _latency_fields(self) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        for name, whole in self.latencies.items():
            laps = [_numbers(name, sample.latencies[name]) for sample in self.samples]
            for number, (suffix, value) in enumerate(zip(SUFFIXES, _numbers(name, whole), strict=True)):
                fields[f"{name}{suffix}"] = [lap[number] for lap in laps]
                fields[aggregated(name, suffix)] = value
            _, *quantiles, most = _numbers(name, whole)
            fields[aggregated(name, "Quantiles")] = dict(zip((*PERCENTILES, 100.0), (*quantiles, most), strict=True))
        return fields


_SERIES: Final[Mapping[str, Callable[[Sample], object]]] = {
    "sampleSeconds": lambda sample: sample.seconds,
    "phase": lambda sample: sample.phase,
    "publishRate": lambda sample: sample.sent_per_second,
    "publishErrorRate": lambda sample: 0.0,  # an error ends the run
    "consumeRate": lambda sample: sample.acked_per_second,
    "backlog": lambda sample: sample.backlog_messages,
    "heldBytes": lambda sample: sample.held_bytes,
    "limitBytes": lambda sample: sample.limit_bytes,
    "ussGrowthBytes": lambda sample: sample.uss_bytes,
    "spilledBytes": lambda sample: sample.spilled_bytes,
    "journalBytes": lambda sample: sample.journal_bytes,
    "hitRatio": lambda sample: sample.hit_ratio,
    "blockedSeconds": lambda sample: sample.blocked_seconds,
}


def _numbers(name: str, latency: Latency) -> Sequence[float]:
    """Return the numbers in the order of SUFFIXES and the unit of the field."""
    numbers = (latency.average, *latency.percentiles, latency.most)
    return numbers if name == DELAY else [number / 1000 for number in numbers]
