"""The command `forebay bench`: from its arguments to its exit code.

Without --dir, the store is in a temporary directory that is removed after the run, however the run ends.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import textwrap
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from forebay.dispatch.commands.streams import Streams
from forebay.dispatch.config.settings import MEMORY_LIMIT_BYTES_MIN, Settings
from forebay.dispatch.config.sizes import format_size
from forebay.store.disk.layout import check_path
from forebay.store.disk.user_file import write_user_file
from forebay.store.errors import SettingsError

from .comparison import WORSE, compare, lines, read_result
from .input_file import InputFile
from .report import Report
from .result import Run
from .scenario import OWN_MESSAGES, DestinationPlan, Scenario
from .scenario_file import SUFFIX, read_scenario, shipped
from .schedule import Schedule
from .sizes import body_sizes, size_bytes
from .supervisor import Supervisor
from .words import counted, mib, of_sizes
from .workload import Generated, Workload

DEFAULT_SCENARIO: Final = "tour"

DISK_FACTOR: Final = 2.5
"""Disk that a run may need, as a multiple of all bodies: the journal has up to twice the live bytes, and heads."""


def add_bench(parser: ArgumentParser) -> None:
    """Define `forebay bench`."""
    parser.formatter_class = RawDescriptionHelpFormatter
    parser.description = "Send, kill, recover, consume, and account for every message."
    parser.epilog = f"scenarios:\n{_wrapped(catalogue())}"
    parser.add_argument(
        "scenarios", nargs="*", metavar="SCENARIO", help="those below, or your own files: *.toml (tour)"
    )
    parser.add_argument("--list", action="store_true", help="name the scenarios and end")
    parser.add_argument(
        "--input",
        metavar="FILE",
        help="own messages, one JSON object a line: destination, body, headers, priority, message_id",
    )
    parser.add_argument("--memory", metavar="SIZE", help="the memory limit (the scenario's, 64MiB)")
    parser.add_argument("--dir", metavar="DIR", help="keep the store here; empty or new (a temporary directory)")
    parser.add_argument("--json", metavar="FILE", help="write samples, latencies and verdict")
    parser.add_argument("--html", metavar="FILE", help="write a page with plots, as one file (needs forebay[tools])")
    parser.add_argument(
        "--compare",
        nargs=2,
        metavar="FILE",
        help="run nothing: compare two files of --json, and end with 1 where the second is worse",
    )
    parser.add_argument("--messages", metavar="N", type=int, help="how many messages (the scenario's, most: 1000000)")
    parser.add_argument("--scale", metavar="FACTOR", type=float, help="so many times the scenario's messages")
    parser.add_argument("--rate", metavar="STEPS", help='messages a second by schedule, such as "1000:10s,10000:5s"')
    parser.add_argument(
        "--size",
        metavar="SIZES",
        help='bytes of a body; several such as "16,1KiB,64KiB" take turns (the scenario\'s, 1KiB)',
    )
    parser.add_argument("--rounds", metavar="N", type=int, default=1, help="run all so many times (%(default)s)")
    parser.add_argument("--seed", metavar="N", type=int, default=1, help="of the bodies (%(default)s)")
    parser.set_defaults(run=run_bench)


def run_bench(arguments: Namespace, streams: Streams) -> int:
    """Run the load test, which prints its own report; return its exit code."""
    return load(arguments)


def load(arguments: Namespace) -> int:
    """Run the load test; return 0 if all promises held, else 1. SettingsError: the arguments can't be run."""
    if arguments.list:
        print(catalogue())
        return 0
    if arguments.compare is not None:
        return _compare(*arguments.compare)
    write_page = _page_writer(arguments.html)
    planned = _planned(arguments)
    runs = []
    with _directory(arguments.dir) as directory, Report() as report:
        for number, (scenario, workload) in enumerate(planned, start=1):
            place = directory if len(planned) == 1 else os.path.join(directory, f"{number}-{scenario.name}")
            os.makedirs(place, exist_ok=True)
            _check_free_disk(place, workload)
            supervisor = Supervisor(scenario, workload, place, report)
            report.begin(_title(scenario, workload), supervisor.work)
            runs.append(supervisor.run())
            report.verdict(runs[-1].summary, runs[-1].checks)
            if arguments.dir is None:
                shutil.rmtree(place, ignore_errors=True)
    if arguments.json is not None:
        write_result(arguments.json, arguments.seed, runs)
    write_page(_result(arguments.seed, runs))
    failed = [name if len(runs) == 1 else f"{run.scenario.name}/{name}" for run in runs for name in run.failed]
    print(f"failed: {', '.join(failed)}" if failed else "all held")
    return 1 if failed else 0


def _compare(first: str, second: str) -> int:
    """Compare two results; return 1 if a figure of the second is worse with confidence, else 0."""
    comparisons = compare(read_result(first), read_result(second))
    for line in lines(comparisons):
        print(line)
    return 1 if any(comparison.verdict == WORSE for comparison in comparisons) else 0


def catalogue() -> str:
    """Return a line for each scenario."""
    scenarios = shipped()
    width = max(map(len, scenarios)) + 2
    return "\n".join(f"  {name:<{width}}{scenario.purpose}" for name, scenario in scenarios.items())


def _wrapped(text: str) -> str:
    """Return the catalogue with lines that fit a terminal of 80 columns, each below its own column."""
    column = 2 + max(map(len, shipped())) + 2
    return "\n".join(textwrap.fill(line, 79, subsequent_indent=" " * column) for line in text.splitlines())


def _planned(arguments: Namespace) -> list[tuple[Scenario, Workload]]:
    """Return the scenarios to run; every argument is checked before the first message is made."""
    check_writable("json", arguments.json)
    check_writable("html", arguments.html)
    if arguments.rounds < 1:
        raise SettingsError(f"rounds={arguments.rounds} must be at least 1")
    if arguments.input is not None:
        return _planned_input(arguments)
    names = dict.fromkeys(arguments.scenarios or [DEFAULT_SCENARIO])
    scenarios = [_scenario(name, arguments) for name in names]
    return [(scenario, generated(scenario, arguments.seed)) for scenario in scenarios * arguments.rounds]


def _page_writer(path: str | None) -> Callable[[Mapping[str, Any]], object]:
    """Return a function that writes a result to this file as a page; path None: a function that does nothing.

    SettingsError: a package that makes pages is not installed. The check comes before the run, not after it.
    """
    if path is None:
        return lambda result: None
    try:
        from .page import page
    except ImportError as missing:
        raise SettingsError(f"--html needs {missing.name}, which is not there: pip install 'forebay[tools]'") from None
    return lambda result: write_user_file(path, page(result).encode())


def check_writable(name: str, path: str | None) -> None:
    """Raise SettingsError before the work if a file can't be written. An existing file keeps its content."""
    if path is not None:
        try:
            Path(path).open("a").close()
        except OSError as error:
            raise SettingsError(f"{name}={path}: {error.strerror}") from None


def _planned_input(arguments: Namespace) -> list[tuple[Scenario, Workload]]:
    if arguments.scenarios or any(
        value is not None for value in (arguments.messages, arguments.scale, arguments.size, arguments.rate)
    ):
        raise SettingsError("--input brings its own messages: leave out scenarios, --messages, --scale, --size, --rate")
    own = InputFile(arguments.input)
    own.examine()
    destinations = [DestinationPlan(name, producers=not number) for number, name in enumerate(own.destinations)]
    scenario = replace(OWN_MESSAGES, destinations=tuple(destinations))
    return [(_with_memory(scenario, arguments), own)] * arguments.rounds


def _scenario(name: str, arguments: Namespace) -> Scenario:
    """Return the scenario of this name or file, as the other arguments change it."""
    if name.endswith(SUFFIX):
        scenario = read_scenario(name)
    elif name in shipped():
        scenario = shipped()[name]
    else:
        raise SettingsError(f"no scenario {name!r}; there are {', '.join(shipped())}, and files named *{SUFFIX}")
    if arguments.rate is not None:
        try:
            rate = Schedule.parse(arguments.rate)
        except ValueError as allowed:
            raise SettingsError(f"rate={arguments.rate} must be {allowed}") from None
        scenario = replace(scenario, rate=rate, messages=rate.messages or scenario.messages)
    scenario = _with_sizes(_with_memory(scenario, arguments), arguments)
    if arguments.messages is not None:
        if arguments.messages < 1:
            raise SettingsError(f"messages={arguments.messages} must be at least 1")
        return scenario.scaled(arguments.messages / scenario.messages)
    if arguments.scale is not None:
        if not 0 < arguments.scale <= 1000:
            raise SettingsError(f"scale={arguments.scale} must be above 0 and at most 1,000")
        return scenario.scaled(arguments.scale)
    return scenario


def _with_memory(scenario: Scenario, arguments: Namespace) -> Scenario:
    """Return the scenario with the memory limit of the arguments."""
    if arguments.memory is None:
        return scenario
    return replace(scenario, memory=size_bytes("memory_limit", arguments.memory, minimum=MEMORY_LIMIT_BYTES_MIN))


def _with_sizes(scenario: Scenario, arguments: Namespace) -> Scenario:
    """Return the scenario with the sizes of the arguments. SettingsError: a size does not fit the memory limit."""
    most = min(Settings(memory_limit=scenario.memory).max_message_size_bytes, scenario.memory)
    values = scenario.size if arguments.size is None else arguments.size.split(",")
    return replace(scenario, size=body_sizes(values, maximum=most))


def generated(scenario: Scenario, seed: int) -> Generated:
    """Return the messages of a scenario."""
    return Generated(
        scenario.messages,
        scenario.size,
        scenario.destinations,
        seed,
        persistent=scenario.persistent,
        stuck_every=scenario.stuck_every,
        keys=scenario.keys,
    )


@contextmanager
def _directory(given: str | None) -> Iterator[str]:
    if given is None:
        with TemporaryDirectory(prefix="forebay-load-", ignore_cleanup_errors=True) as directory:
            yield directory
        return
    # Existing messages there would be taken for messages of this run.
    check_path("dir", given)
    if os.path.exists(given) and (not os.path.isdir(given) or os.listdir(given)):
        raise SettingsError(f"dir={given} is not an empty directory: choose another")
    os.makedirs(given, exist_ok=True)
    yield given


def _check_free_disk(directory: str, workload: Workload) -> None:
    needed_bytes, free_bytes = int(DISK_FACTOR * workload.total_bytes), shutil.disk_usage(directory).free
    if free_bytes < needed_bytes:
        raise SettingsError(
            f"the run may need {mib(needed_bytes)} of disk and {mib(free_bytes)} are free: "
            "choose another --dir, or fewer --messages"
        )


def _title(scenario: Scenario, workload: Workload) -> str:
    return (
        f"{scenario.name}: {scenario.purpose}\n"
        f"{counted(sum(workload.counts), 'message')}{of_sizes(scenario.size)}, {mib(workload.total_bytes)}, "
        f"through a memory limit of {format_size(scenario.memory)}"
    )


def write_result(path: str, seed: int, runs: Sequence[Run]) -> None:
    """Write the result of all runs to the file of --json."""
    write_user_file(path, f"{json.dumps(_result(seed, runs), indent=1)}\n".encode())


def _result(seed: int, runs: Sequence[Run]) -> dict[str, Any]:
    """Return the result for --json, without host name and paths."""
    return {
        "machine": {
            "cores": os.cpu_count(),
            "python": f"{platform.python_implementation()} {platform.python_version()}",
        },
        "seed": seed,
        "runs": [run.as_json() for run in runs],
    }
