"""`make bench-bounds`: every scenario of the load test with small, large and mixed bodies under small and large limits.

    python benchmarks/bench_bounds.py                                   all of it, half an hour to an hour
    python benchmarks/bench_bounds.py fanout retry --limits 4MiB --bodies 16,64KiB
    python benchmarks/bench_bounds.py --full                            with as many messages as the scenarios say

Prints a table as Markdown, with a row after each run. The exit code is 1 if a run broke a promise. Each run has a
broker process and a directory of its own. The column "wanted" says how many times the limit its messages would take in
RAM.
"""

from __future__ import annotations

import sys
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from forebay.benchmarks.load.command import generated
from forebay.benchmarks.load.result import Run, Sample
from forebay.benchmarks.load.scenario import MESSAGE_BYTES, Scenario
from forebay.benchmarks.load.scenario_file import shipped
from forebay.benchmarks.load.sizes import body_sizes, size_bytes
from forebay.benchmarks.load.supervisor import Supervisor
from forebay.benchmarks.works.machine import machine, software
from forebay.dispatch.config.memory_plan import shares_of
from forebay.dispatch.config.settings import MEMORY_LIMIT_BYTES_MIN, Settings
from forebay.dispatch.config.sizes import MIB, format_size
from forebay.store.errors import SettingsError

BODIES: Final = "16;1KiB;64KiB;16,1KiB,64KiB"
LIMITS: Final = "4MiB,16MiB,64MiB"

LIMIT_FACTOR: Final = 3
"""RAM that the messages of a run would take, as a multiple of the limit, so that most find no room there."""
SCHEDULED_SECONDS_MAX: Final = 8
"""Longest schedule of a run without --full."""
DELIVERIES_MAX: Final = 200_000
"""Most deliveries of a run without --full. A message of a topic counts once for each subscription."""
DELIVERED_BYTES_MAX: Final = 2048 * MIB
"""Most bytes of bodies that a run without --full delivers, because each body is verified."""
CONSUMER_BYTES: Final = 2_090
"""Charged, about, for a consumer with a selector of its own."""
QUEUE_BYTES: Final = 4_096
"""Charged, about, for a queue that has messages of one priority: its row and its name, the open queue, its lane, and
what handles of it keep that others have closed and opened since."""
SPILLED_BYTES: Final = 18
"""Charged, about, for a non-persistent message in tmp-storage."""
SPILLED_SHARE: Final = 0.75
"""Share of the memory beside the fixed parts that spilled messages may be charged, under the lowest limit."""
EXAMINED_MAX: Final = 3_000_000
"""Most messages that all selectors of a run examine together."""

COLUMNS: Final = (
    "scenario",
    "bodies",
    "limit",
    "messages",
    "wanted",
    "charged",
    "grew",
    "allowed",
    "seconds",
    "verdict",
)


class Mute:
    """An audience that shows nothing, because the table has the result."""

    def line(self, sample: Sample, done: int) -> None:
        """Do nothing with a sample."""

    def note(self, seconds: float, text: str) -> None:
        """Do nothing with what happened."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run and print; return the exit code. SystemExit: wrong usage."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    if unknown := set(arguments.scenarios) - set(shipped()):
        parser.error(f"there is no {' and no '.join(sorted(unknown))}: choose among {', '.join(shipped())}")
    try:
        planned = list(cases(arguments))
    except SettingsError as problem:
        parser.error(str(problem))
    print(f"{datetime.now(UTC):%Y-%m-%d}, {len(planned)} runs. {machine()}. {software()}.\n")
    print(_row(COLUMNS), _row(["---"] * len(COLUMNS)), sep="\n", flush=True)
    failed = 0
    for scenario in planned:
        with TemporaryDirectory(dir=arguments.dir, prefix="forebay-bounds-", ignore_cleanup_errors=True) as directory:
            run = Supervisor(scenario, generated(scenario, seed=1), directory, Mute()).run()
        failed += bool(run.failed)
        print(_row(cells(run)), flush=True)
        for check in run.checks:
            if not check.held:
                print(f"{scenario.name}: {check.name}: {check.text}", file=sys.stderr)
    print(f"\n{failed} of {len(planned)} runs did not hold" if failed else "\nall held")
    return 1 if failed else 0


def _parser() -> ArgumentParser:
    parser = ArgumentParser(prog="bench_bounds.py", description="The memory bound of every scenario, as Markdown.")
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=f"{', '.join(shipped())} (all)")
    parser.add_argument(
        "--bodies", default=BODIES, metavar="SIZES", help="sizes that take turns; and more (%(default)s)"
    )
    parser.add_argument("--limits", default=LIMITS, metavar="SIZES", help="(%(default)s)")
    parser.add_argument("--full", action="store_true", help="with as many messages as the scenarios say")
    parser.add_argument("--messages", type=int, metavar="N", help="of each run, at most")
    parser.add_argument(
        "--dir", type=Path, default=Path(tempfile.gettempdir()), metavar="DIR", help="where to work (%(default)s)"
    )
    return parser


def cases(arguments: Namespace) -> Iterator[Scenario]:
    """Yield what to run, with its bodies, limit and number of messages. SettingsError for a size that can't be."""
    limits = [size_bytes("limits", limit, minimum=MEMORY_LIMIT_BYTES_MIN) for limit in arguments.limits.split(",")]
    for name in arguments.scenarios or shipped():
        for bodies in arguments.bodies.split(";"):
            for limit in limits:
                most = min(Settings(memory_limit=limit).max_message_size_bytes, limit)
                sizes = body_sizes(bodies.split(","), maximum=most)
                scenario = _fitting(replace(_under(shipped()[name], limit), size=sizes))
                messages = scenario.messages if arguments.full else min(scenario.messages, _messages(scenario))
                if arguments.messages is not None:
                    messages = min(messages, max(arguments.messages, 1))
                yield scenario.scaled(messages / scenario.messages)


def _under(scenario: Scenario, limit_bytes: int) -> Scenario:
    """Return the scenario under another limit, with its resizes to the same parts of that."""
    acts = [
        act
        if act.memory is None
        else replace(act, memory=max(act.memory * limit_bytes // scenario.memory, MEMORY_LIMIT_BYTES_MIN))
        for act in scenario.acts
    ]
    return replace(scenario, memory=limit_bytes, acts=tuple(acts))


def _fitting(scenario: Scenario) -> Scenario:
    """Return the scenario with no more queues, or consumers with keys of their own, than memory has room for."""
    room_bytes = shares_of(Settings(memory_limit=scenario.memory)).destinations_bytes
    keys = min(scenario.keys, room_bytes * 7 // 8 // CONSUMER_BYTES)  # and for what those that came first hold
    queues = room_bytes // QUEUE_BYTES
    return replace(
        scenario,
        keys=keys,
        consumers=tuple(each for each in scenario.consumers if not each.own_key or each.number < keys),
        destinations=tuple(replace(each, count=min(each.count, queues)) for each in scenario.destinations),
    )


def _messages(scenario: Scenario) -> int:
    """Return how many messages make a run that is not --full."""
    subscriptions = sum(scenario.consumed_by(consumer)[0].kind == "topic" for consumer in scenario.consumers)
    selectors = sum(consumer.own_key for consumer in scenario.consumers)
    return min(
        int(LIMIT_FACTOR * scenario.memory / _message_bytes(scenario)),
        _scheduled(scenario),
        _spillable(scenario),
        DELIVERIES_MAX // max(subscriptions, 1),
        int(DELIVERED_BYTES_MAX / _message_bytes(scenario)) // max(subscriptions, 1),
        EXAMINED_MAX // max(selectors, 1),
    )


def _message_bytes(scenario: Scenario) -> float:
    """Return what a message takes in RAM, about."""
    return sum(scenario.size) / len(scenario.size) + MESSAGE_BYTES


def _spillable(scenario: Scenario) -> int:
    """Return how many messages tmp-storage may hold at once under the lowest limit of the run."""
    if scenario.persistent:
        return scenario.messages
    lowest = min([scenario.memory, *(act.memory for act in scenario.acts if act.memory is not None)])
    left_bytes = 2 * shares_of(Settings(memory_limit=lowest)).destinations_bytes  # which are half of it
    return int(SPILLED_SHARE * left_bytes) // SPILLED_BYTES


def _scheduled(scenario: Scenario) -> int:
    """Return how many messages the schedule sends in SCHEDULED_SECONDS_MAX, if it is shortened to that."""
    seconds = 0.0 if scenario.rate is None else sum(seconds for _, seconds in scenario.rate.steps)
    return int(scenario.messages * min(SCHEDULED_SECONDS_MAX / seconds, 1.0)) if seconds else scenario.messages


def cells(run: Run) -> list[str]:
    """Return the row of a run."""
    return [
        run.scenario.name,
        "/".join(map(format_size, run.scenario.size)),
        format_size(run.scenario.memory),
        f"{run.messages:,}",
        f"{run.messages * _message_bytes(run.scenario) / run.scenario.memory:.1f}",
        f"{run.held_bytes_max / MIB:.1f}",
        f"{run.uss_bytes_max / MIB:.1f}",
        f"{run.uss_limit_bytes / MIB:.1f}",
        f"{run.seconds:.0f}",
        f"**{', '.join(run.failed)}**" if run.failed else "held",
    ]


def _row(fields: Sequence[str]) -> str:
    return f"| {' | '.join(fields)} |"


if __name__ == "__main__":
    sys.exit(main())
