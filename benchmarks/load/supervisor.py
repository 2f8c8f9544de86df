"""Supervisor: runs one scenario, one broker process after the other, and keeps what they tell.

The broker process is killed and the supervisor is not; it never opens the
store. When it ends for whatever reason, the broker process finds its pipe
broken and ends too.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from signal import SIGKILL, Signals
from typing import Any, Final

from forebay.store.errors import SettingsError

from .broker_process import Plan
from .events import Decoder, Event, Kind
from .evidence import Check, Evidence
from .report import Report, Sample
from .scenarios import Scenario
from .words import counted, short
from .workload import Workload

STALL_SECONDS: Final = 60.0
"""So long without a message sent or acknowledged: the run is given up as failed."""

_BATCH_MESSAGES: Final = 256  # or a hundredth of a small run, because a kill puts a batch of each thread in doubt
_PIPE_BYTES: Final = 1 << 20
_START: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from forebay.benchmarks.load.broker_process import main; main()"
)
"""`-m` would look into the current directory first, where another forebay may lie."""


@dataclass(slots=True)
class Run:
    """What is left of a run of one scenario."""

    scenario: str
    messages: int
    body_bytes: int
    """Of all messages."""
    seconds: float = 0.0
    sent_seconds: float = 0.0
    """From the beginning to the last confirmed send, kills and recoveries included."""
    acked_seconds: float = 0.0
    """From the first take to the last confirmed ack, likewise."""
    hit_ratio: float | None = None
    """Of all deliveries that were counted before a kill or the end."""
    samples: list[Sample] = field(default_factory=list)
    recoveries: list[Mapping[str, Any]] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)

    @property
    def failed(self) -> list[str]:
        return [check.name for check in self.checks if not check.held]

    @property
    def summary(self) -> str:
        """How it went, in a line."""
        parts = [f"{self.seconds:.1f} s"]
        for word, seconds in (("sent", self.sent_seconds), ("acknowledged", self.acked_seconds)):
            if seconds:
                parts.append(f"{word} at {short(self.messages / seconds)}/s")
        if self.hit_ratio is not None:
            parts.append(f"{100 * self.hit_ratio:.1f} % hits")
        if self.recoveries:
            longest = max(recovery["seconds"] for recovery in self.recoveries)
            parts.append(f"recovered in {longest:.2f} s at most")
        return ", ".join(parts)

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"all_held": not self.failed}


_NEW_COUNTERS: Final[Mapping[str, Any]] = {"delivered": 0, "misses": 0, "blocked_seconds": 0.0}


class Supervisor:
    """One run. Not to be used twice."""

    def __init__(
        self, scenario: Scenario, workload: Workload, directory: str, limit_bytes: int, report: Report
    ) -> None:
        self._scenario = scenario
        self._workload = workload
        self._directory = directory
        self._limit_bytes = limit_bytes
        self._report = report
        self._run = Run(scenario.name, sum(workload.counts), workload.total_bytes)
        self._evidence = Evidence(workload.counts, workload.lanes)
        self._work = 2 * self._run.messages
        self._open = self._finished = False
        self._failure: str | None = None
        self._gauges = self._lined_gauges = {"held_bytes": 0, "uss_bytes": 0, "depth": 0, **_NEW_COUNTERS}
        self._lined_sent = self._lined_settled = 0
        self._delivered = self._misses = 0
        self._first_taken: float | None = None
        self._started = self._lined = self._moved = time.monotonic()

    def run(self) -> Run:
        """Work to the end, or until going on is senseless, and judge. SettingsError where the store raises one."""
        kills = list(self._scenario.kills)
        while not self._finished and self._failure is None:
            self._run_process(kills.pop(0) if kills else None)
        self._line()
        self._run.seconds = time.monotonic() - self._started
        if self._delivered:
            self._run.hit_ratio = max(0.0, 1 - self._misses / self._delivered)
        self._run.checks = self._evidence.judge(self._failure)
        return self._run

    def _run_process(self, kill_at: float | None) -> None:
        """One broker process, to its end by whatever cause."""
        plan = self._plan(kill_at)
        command = [sys.executable, "-c", _START, json.dumps([str(entry) for entry in sys.path])]
        # A session of its own: Ctrl-C reaches the supervisor only, which then ends the broker process.
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pipesize=_PIPE_BYTES, start_new_session=True
        ) as process:
            assert process.stdin is not None and process.stdout is not None
            try:
                with suppress(BrokenPipeError):  # it has ended already, and its exit code will say so
                    process.stdin.write(plan.as_json())
                    process.stdin.close()
                for event in self._events(process.stdout.fileno()):
                    self._take_in(event)
            finally:
                process.kill()  # where it has not ended: nothing it could still do is wanted
        self._open = False
        if self._finished or self._failure is not None:
            return
        if process.returncode == -SIGKILL and plan.kill_after is not None:
            self._evidence.killed()
            self._note(
                f"killed with SIGKILL: {self._evidence.sent_messages:,} sent, "
                f"{self._evidence.settled_messages:,} acknowledged"
            )
        else:
            self._failure = f"the broker process ended early: {_ending(process.returncode)}"

    def _plan(self, kill_at: float | None) -> Plan:
        done = self._evidence.sent_messages + self._evidence.settled_messages
        return Plan(
            directory=self._directory,
            limit_bytes=self._limit_bytes,
            workload=self._workload.as_plan(),
            destinations=self._workload.destinations,
            starts=self._evidence.starts,
            batch_messages=max(1, min(_BATCH_MESSAGES, self._run.messages // 100)),
            consumers=self._scenario.consumers,
            joins_after=[int(consumer.joins_at * self._work) - done for consumer in self._scenario.consumers],
            kill_after=None if kill_at is None else int(kill_at * self._work) - done,
            backlog_first=self._scenario.backlog_first,
        )

    def _events(self, descriptor: int) -> Iterator[Event]:
        """What the process tells, until it has ended or stalled; meanwhile a line a second."""
        decoder = Decoder()
        while True:
            now = time.monotonic()
            if now - self._lined >= 1:
                self._line()
            if now - self._moved >= STALL_SECONDS:
                self._failure = f"nothing was sent or acknowledged for {STALL_SECONDS:.0f} s"
                return
            if select.select([descriptor], [], [], max(0.0, self._lined + 1 - now))[0]:
                piece = os.read(descriptor, _PIPE_BYTES)
                if not piece:
                    return
                yield from decoder.feed(piece)

    def _take_in(self, event: Event) -> None:
        evidence = self._evidence
        match event.kind:
            case Kind.SENDING:
                evidence.sending(event.who, event.stop)
            case Kind.SENT:
                evidence.sent(event.who)
                self._moved = time.monotonic()
                self._run.sent_seconds = self._moved - self._started
            case Kind.SETTLING:
                evidence.settling(event.who, event.keys)
                if self._first_taken is None:
                    self._first_taken = time.monotonic()
            case Kind.SETTLED:
                evidence.settled(event.who)
                self._moved = time.monotonic()
                if self._first_taken is not None:
                    self._run.acked_seconds = self._moved - self._first_taken
            case Kind.DAMAGED:
                evidence.damaged(event.facts["text"])
            case Kind.GAUGES:
                self._gauges = event.facts
                evidence.gauge(
                    held_bytes_max=event.facts["held_bytes_max"],
                    limit_bytes=event.facts["limit_bytes"],
                    uss_bytes=event.facts["uss_bytes"],
                )
            case Kind.OPENED:
                self._open = True
                self._gauges = self._lined_gauges = {**self._gauges, **_NEW_COUNTERS}
                if evidence.kills:
                    self._run.recoveries.append(event.facts)
                    self._note(_recovered(event.facts))
            case Kind.FIRST:
                self._note(
                    f"{self._scenario.consumers[event.who].name} has its first message "
                    f"{1000 * event.facts['seconds']:.0f} ms after subscribing, {event.facts['backlog']:,} in the queue"
                )
            case Kind.DONE:
                self._finished = True
            case Kind.FAILED:
                if event.facts["usage"]:
                    raise SettingsError(event.facts["text"])
                self._failure = f"the broker process gave up: {event.facts['text']}"

    def _line(self) -> None:
        now = time.monotonic()
        elapsed = max(now - self._lined, 0.001)
        sent, settled = self._evidence.sent_messages, self._evidence.settled_messages
        delivered, misses, blocked = (
            self._gauges[name] - self._lined_gauges[name] for name in ("delivered", "misses", "blocked_seconds")
        )
        sample = Sample(
            seconds=now - self._started,
            phase=self._phase(),
            sent_per_second=(sent - self._lined_sent) / elapsed,
            acked_per_second=(settled - self._lined_settled) / elapsed,
            backlog_messages=self._gauges["depth"],
            held_bytes=self._gauges["held_bytes"],
            uss_bytes=self._gauges["uss_bytes"],
            hit_ratio=max(0.0, 1 - misses / delivered) if delivered else None,
            blocked_seconds=blocked,
        )
        self._delivered += delivered
        self._misses += misses
        self._run.samples.append(sample)
        self._report.line(sample, sent + settled)
        self._lined, self._lined_sent, self._lined_settled = now, sent, settled
        self._lined_gauges = self._gauges

    def _phase(self) -> str:
        if self._finished:
            return "done"
        if not self._open:
            return "recover" if self._evidence.kills else "open"
        if self._evidence.all_sent:
            return "drain"
        return "fill" if self._scenario.backlog_first else "flow"

    def _note(self, text: str) -> None:
        self._report.note(time.monotonic() - self._started, text)


def _recovered(facts: Mapping[str, Any]) -> str:
    index = "the index rebuilt, " if facts["index_rebuilt"] else ""
    quarantined = f", {facts['quarantined']} put into quarantine" if facts["quarantined"] else ""
    return (
        f"recovered in {facts['seconds']:.2f} s: {counted(facts['pending_messages'], 'message')} pending, {index}"
        f"{counted(facts['replayed_records'], 'record')} replayed, "
        f"{counted(facts['truncated_bytes'], 'torn byte')} cut{quarantined}"
    )


def _ending(returncode: int) -> str:
    return f"exit code {returncode}" if returncode >= 0 else Signals(-returncode).name
