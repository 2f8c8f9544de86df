"""Supervisor: run one scenario, one broker process after the other, and keep the evidence.

Only the broker process is killed. The supervisor never opens the store. If the supervisor ends for any reason, the
broker process finds its pipe broken and ends too.
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
from signal import SIGKILL, Signals
from tempfile import TemporaryDirectory
from typing import Any, Final

from forebay.store.errors import SettingsError

from .bounds import Bounds
from .broker_process import Plan
from .events import Decoder, Event, Kind
from .evidence import Evidence
from .latency import Latencies
from .neighbours import Neighbours
from .orders import Order, Orderer
from .readers import readers_of
from .reads import Reads
from .report import Audience
from .result import Run, Sample
from .scenario import MESSAGE_BYTES, Act, DestinationPlan, Scenario
from .words import counted, mib
from .workload import Workload

STALL_SECONDS: Final = 60.0
"""Seconds without any progress, beyond the pauses of the schedule, after which a run fails."""

_BATCH_MESSAGES: Final = 256  # or a hundredth of a small run, because a kill puts a batch of each thread in doubt
FILLS_MIN: Final = 30
"""Least number of times that a producer fills its queue, so that even a small run has something to compare."""
_PIPE_BYTES: Final = 1 << 20
_START: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from forebay.benchmarks.load.broker_process import main; main()"
)
"""`-m` alone would look into the current directory first, where another forebay may be."""


_NEW_COUNTERS: Final[Mapping[str, Any]] = {"delivered": 0, "misses": 0, "blocked_seconds": 0.0}
_LEVELS: Final = ("held_bytes", "limit_bytes", "uss_bytes", "spilled_bytes", "journal_bytes", "depth")
_NO_GAUGES: Final[Mapping[str, Any]] = {**dict.fromkeys(_LEVELS, 0), **_NEW_COUNTERS}


class Supervisor:
    """Runs one scenario. A supervisor can't be used twice."""

    def __init__(
        self, scenario: Scenario, workload: Workload, directory: str, report: Audience, orderer: Orderer | None = None
    ) -> None:
        """Make a supervisor for one run. orderer: gives orders beside the scenario; None: nobody does."""
        self._scenario = scenario
        self._workload = workload
        self._directory = directory
        self._report = report
        self._orderer = orderer
        self._is_kill_ordered = False
        self._run = Run(scenario, sum(workload.counts), workload.total_bytes)
        unwanted = sum(workload.kinds.get(kind, 0) for kind in scenario.unwanted)
        readers = readers_of(scenario, workload)
        self._evidence = Evidence(workload.counts, readers, workload.lane, unwanted)
        self._unwanted = unwanted
        self._bounds = Bounds(scenario.memory)
        self._reads = Reads(readers.subscriptions)
        self._neighbours = Neighbours([number for number, each in enumerate(scenario.producers) if each.joins_at])
        self._latencies = Latencies(workload.counts, scenario.rate)
        self._acts = list(scenario.acts)
        # Number of sends and deliveries of the scenario.
        self.work = self._run.messages + readers.deliveries(workload.counts)
        self._open = self._finished = False
        self._failure: str | None = None
        self._gauges = self._lined_gauges = _NO_GAUGES
        self._lined_sent = self._lined_settled = 0
        self._delivered = self._misses = 0
        self._stall_seconds = STALL_SECONDS + (0.0 if scenario.rate is None else scenario.rate.longest_rest)
        self._began: float | None = None
        self._began_consuming: set[str] = set()
        self._first_taken: float | None = None
        self._started = self._lined = self._moved = time.monotonic()

    def run(self) -> Run:
        """Run to the end, or until a failure makes going on useless; return the judged run.

        SettingsError: the store raised one.
        """
        while not self._finished and self._failure is None:
            self._run_process()
        self._line()
        run = self._run
        run.seconds = time.monotonic() - self._started
        run.settled_messages = self._evidence.settled_messages
        if self._delivered:
            run.hit_ratio = max(0.0, 1 - self._misses / self._delivered)
        bounds = self._bounds
        run.held_bytes_max, run.uss_bytes_max = bounds.held_bytes_max, bounds.uss_bytes_max
        run.uss_limit_bytes = bounds.uss_limit_bytes
        run.latencies = self._latencies.whole()
        run.checks = [
            *self._evidence.judge(self._failure),
            *self._bounds.judge(),
            *self._reads.judge(),
            *self._neighbours.judge(),
        ]
        return run

    def _run_process(self) -> None:
        """Run one broker process to its end, whatever the cause."""
        plan = self._plan()
        command = [sys.executable, "-c", _START, json.dumps([str(entry) for entry in sys.path])]
        # The process has a session of its own, so that Ctrl-C reaches only the supervisor, and that ends the process.
        # A killed process removes nothing, so the supervisor removes its temporary files.
        with (
            TemporaryDirectory(prefix="forebay-broker-", ignore_cleanup_errors=True) as temporary,
            subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                pipesize=_PIPE_BYTES,
                start_new_session=True,
                env={**os.environ, "TMPDIR": temporary},
            ) as process,
        ):
            assert process.stdin is not None and process.stdout is not None
            try:
                with suppress(BrokenPipeError):  # the process has ended already, which its exit code shows
                    process.stdin.write(plan.as_json())
                    process.stdin.flush()
                if self._orderer is None:
                    process.stdin.close()
                for event in self._events(process):
                    self._take_in(event)
            finally:
                process.kill()  # if it has not ended, nothing that it could still do is wanted
                with suppress(BrokenPipeError):
                    process.stdin.close()
        self._open = False
        if self._finished or self._failure is not None:
            return
        is_planned = bool(self._acts) and self._acts[0].do == "kill"
        if process.returncode == -SIGKILL and (self._is_kill_ordered or is_planned):
            if not self._is_kill_ordered:
                self._acts.pop(0)
            self._is_kill_ordered = False
            self._evidence.killed()
            self._note(
                f"killed with SIGKILL: {self._evidence.sent_messages:,} sent, "
                f"{self._evidence.settled_messages:,} acknowledged"
            )
        else:
            self._failure = f"the broker process ended early: {_ending(process.returncode)}"

    def _plan(self) -> Plan:
        scenario, evidence = self._scenario, self._evidence
        done = evidence.sent_messages + evidence.settled_messages + evidence.purged_messages
        return Plan(
            directory=self._directory,
            limit_bytes=self._bounds.limit_bytes,
            sync=scenario.sync,
            workload=self._workload.as_plan(),
            destinations=scenario.destinations,
            starts=evidence.starts,
            producers_after=[int(destination.joins_at * self.work) - done for destination in scenario.producers],
            backlogs=[self._backlog_messages(*each) for each in enumerate(scenario.producers)],
            batch_messages=max(1, min(_BATCH_MESSAGES, self._run.messages // 100)),
            rate=None if scenario.rate is None else str(scenario.rate),
            began=self._began,
            consumers=scenario.consumers,
            joins_after=[int(consumer.joins_at * self.work) - done for consumer in scenario.consumers],
            paces_after=[
                [(int(share * self.work) - done, pace) for share, pace in consumer.paces]
                for consumer in scenario.consumers
            ],
            acts=self._acts,
            acts_after=[int(act.at * self.work) - done for act in self._acts],
            left_messages=self._unwanted,
            backlog_first=scenario.backlog_first,
        )

    def _backlog_messages(self, producer: int, destination: DestinationPlan) -> int | None:
        """Return how many messages a producer sends to fill its queue, so that it fills the queue FILLS_MIN times."""
        if destination.backlog is None:
            return None
        mean_bytes = self._run.body_bytes // self._run.messages
        messages = int(destination.backlog * self._scenario.memory) // (mean_bytes + MESSAGE_BYTES)
        return max(1, min(messages, self._workload.counts[producer] // FILLS_MIN))

    def _events(self, process: subprocess.Popen[bytes]) -> Iterator[Event]:
        """Yield the events of the process until it ends or stalls; report once a second, and pass on orders."""
        assert process.stdout is not None
        descriptor = process.stdout.fileno()
        heard = [descriptor] if self._orderer is None else [descriptor, self._orderer.fileno()]
        decoder = Decoder()
        while True:
            now = time.monotonic()
            if now - self._lined >= 1:
                self._line()
            if now - self._moved >= self._stall_seconds:
                self._failure = f"nothing was sent or acknowledged for {self._stall_seconds:.0f} s"
                return
            ready = select.select(heard, [], [], max(0.0, self._lined + 1 - now))[0]
            if self._orderer is not None and heard[-1] in ready:
                for order in self._orderer.take():
                    self._pass_on(order, process)
            if descriptor in ready:
                piece = os.read(descriptor, _PIPE_BYTES)
                if not piece:
                    return
                yield from decoder.feed(piece)

    def _pass_on(self, order: Order, process: subprocess.Popen[bytes]) -> None:
        """Pass an order to the broker process, if its store is open."""
        assert process.stdin is not None
        if not self._open:
            return
        if order.do == "kill":
            self._is_kill_ordered = True
            process.kill()
            return
        with suppress(BrokenPipeError):  # it is about to end
            process.stdin.write(order.as_line())
            process.stdin.flush()
        if order.do == "pace":
            self._note("by hand: consumers at another pace")

    def _take_in(self, event: Event) -> None:
        evidence, latencies = self._evidence, self._latencies
        if event.kind is not Kind.GAUGES:
            self._moved = time.monotonic()
        match event.kind:
            case Kind.SENDING:
                evidence.sending(event.who, event.stop)
                latencies.sending(event.who, event.stop, event.at)
                self._neighbours.sending(event.who)
            case Kind.SENT:
                evidence.sent(event.who)
                latencies.sent(event.who, event.at)
                self._run.sent_seconds = self._moved - self._started
            case Kind.SETTLING:
                evidence.settling(event.who, event.keys)
                latencies.taken(event.keys, event.at)
                if self._first_taken is None:
                    self._first_taken = self._moved
            case Kind.SETTLED:
                evidence.settled(event.who)
                if self._first_taken is not None:
                    self._run.acked_seconds = self._moved - self._first_taken
            case Kind.LEFT:
                evidence.left(event.keys)
            case Kind.DAMAGED:
                evidence.damaged(event.facts["text"])
            case Kind.GAUGES:
                self._gauges = event.facts
                for judge in (self._bounds, self._reads, self._neighbours):
                    judge.gauge(self._gauges)
                evidence.depth = self._gauges["depth"]
            case Kind.TOOK:
                self._neighbours.took(*event.took)
            case Kind.OPENED:
                self._opened(event)
            case Kind.ACTED:
                self._acted(self._acts.pop(0), event.facts)
            case Kind.OBEYED:
                self._acted(Act(0, event.facts["do"], event.facts["memory"]), event.facts)
            case Kind.FIRST:
                self._first_message(self._scenario.consumers[event.who].name, event.facts)
            case Kind.DONE:
                self._finished = True
            case Kind.FAILED:
                if event.facts["usage"]:
                    raise SettingsError(event.facts["text"])
                self._failure = f"the broker process gave up: {event.facts['text']}"

    def _first_message(self, name: str, facts: Mapping[str, Any]) -> None:
        """Note when the first consumer of each name gets its first message."""
        if name not in self._began_consuming:
            self._began_consuming.add(name)
            self._note(
                f"{name} has its first message {1000 * facts['seconds']:.0f} ms after subscribing, "
                f"{facts['backlog']:,} waiting"
            )

    def _opened(self, event: Event) -> None:
        self._open = True
        self._began_consuming.clear()
        self._reads.opened()
        self._neighbours.opened()
        self._gauges = self._lined_gauges = {**self._gauges, **_NEW_COUNTERS}
        if self._began is None:
            self._began = event.at
            self._latencies.begin(event.at)
        if self._evidence.kills:
            self._run.recoveries.append(event.facts)
            self._note(_recovered(event.facts))

    def _acted(self, act: Act, facts: Mapping[str, Any]) -> None:
        match act.do:
            case "purge":
                self._evidence.purged_messages += facts["purged"]
                text = f"purged {counted(facts['purged'], 'message')}"
            case "resize":
                assert act.memory is not None
                self._bounds.resized(act.memory)
                text = f"resized to {mib(act.memory)}, {mib(facts['held_bytes'])} held"
            case "explain":
                self._note(f"explained: {facts['sentence']}")
                return
            case _:
                self._bounds.cleaned(facts)
                text = f"cleaned up: {counted(facts['deleted'], 'data log')} deleted, {facts['data_logs']} left"
        self._note(f"{text}, in {1000 * facts['seconds']:.0f} ms")

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
            limit_bytes=self._gauges["limit_bytes"] or self._bounds.limit_bytes,
            uss_bytes=self._gauges["uss_bytes"],
            spilled_bytes=self._gauges["spilled_bytes"],
            journal_bytes=self._gauges["journal_bytes"],
            hit_ratio=max(0.0, 1 - misses / delivered) if delivered else None,
            blocked_seconds=blocked,
            latencies=self._latencies.lap(),
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
        seconds = time.monotonic() - self._started
        self._run.notes.append((seconds, text))
        self._report.note(seconds, text)


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
