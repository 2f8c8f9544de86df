"""The command `forebay load`: from its arguments to its exit code.

Without --dir the store lies in a temporary directory that goes with the run,
however it ends.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from forebay.dispatch.settings import Settings
from forebay.dispatch.sizes import format_size, parse_size
from forebay.store.errors import SettingsError

from .input_file import InputFile
from .report import Report
from .scenarios import OWN_MESSAGES, SCENARIOS, Scenario
from .supervisor import Run, Supervisor
from .words import counted, mib
from .workload import MIN_SIZE_BYTES, Generated, Workload

DEFAULT_SCENARIO: Final = "tour"
DEFAULT_MESSAGES: Final = 1_000_000
DEFAULT_SIZE: Final = "1KiB"

DISK_FACTOR: Final = 2.5
"""Disk that a run may need, in bytes of all bodies: the journal's bound is 2 × live, and records have heads."""


def load(arguments: Namespace) -> int:
    """0: all held; 1: something did not. SettingsError for what cannot be run."""
    settings = Settings(memory_limit=_size(arguments.memory))
    limit_bytes = settings.memory_limit_bytes
    planned = _planned(arguments, settings)
    runs = []
    with _directory(arguments.dir) as directory, Report() as report:
        for scenario, workload in planned:
            place = directory if len(planned) == 1 else os.path.join(directory, scenario.name)
            os.makedirs(place, exist_ok=True)
            _check_free_disk(place, workload)
            report.begin(_title(scenario, workload, limit_bytes), 2 * sum(workload.counts))
            runs.append(Supervisor(scenario, workload, place, limit_bytes, report).run())
            report.verdict(runs[-1].summary, runs[-1].checks)
            if arguments.dir is None:
                shutil.rmtree(place, ignore_errors=True)
    if arguments.json is not None:
        Path(arguments.json).write_text(json.dumps(_result(limit_bytes, arguments.seed, runs), indent=1) + "\n")
    failed = [name if len(runs) == 1 else f"{run.scenario}/{name}" for run in runs for name in run.failed]
    print(f"failed: {', '.join(failed)}" if failed else "all held")
    return 1 if failed else 0


def _planned(arguments: Namespace, settings: Settings) -> list[tuple[Scenario, Workload]]:
    """What is to be run, every argument looked at before the first message is made."""
    if arguments.json is not None:
        try:
            Path(arguments.json).open("a").close()  # rather now than after a minute's work
        except OSError as error:
            raise SettingsError(f"json={arguments.json}: {error.strerror}") from None
    if arguments.input is not None:
        if arguments.scenarios or arguments.messages is not None or arguments.size is not None:
            raise SettingsError("--input brings its own messages: leave out scenarios, --messages and --size")
        own = InputFile(arguments.input)
        own.examine()
        return [(OWN_MESSAGES, own)]
    messages = DEFAULT_MESSAGES if arguments.messages is None else arguments.messages
    if messages < 1:
        raise SettingsError(f"messages={messages} must be at least 1")
    size_bytes = parse_size(
        "size",
        _size(DEFAULT_SIZE if arguments.size is None else arguments.size),
        minimum=MIN_SIZE_BYTES,
        maximum=min(settings.max_message_size_bytes, settings.memory_limit_bytes),
    )
    planned: list[tuple[Scenario, Workload]] = []
    for name in dict.fromkeys(arguments.scenarios or [DEFAULT_SCENARIO]):
        if name not in SCENARIOS:
            raise SettingsError(f"no scenario {name!r}; there are {', '.join(SCENARIOS)}")
        scenario = SCENARIOS[name]
        planned.append((scenario, Generated(messages, size_bytes, scenario.producers, arguments.seed)))
    return planned


def _size(text: str) -> int | str:
    """A bare number is bytes. A very long one stays text: it is no size, and int() would refuse it in its own words."""
    return int(text) if text.isdecimal() and len(text) <= 18 else text


@contextmanager
def _directory(given: str | None) -> Iterator[str]:
    if given is None:
        with TemporaryDirectory(prefix="forebay-load-", ignore_cleanup_errors=True) as directory:
            yield directory
        return
    # What lies there already would be taken for messages of this run.
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


def _title(scenario: Scenario, workload: Workload, limit_bytes: int) -> str:
    return (
        f"{scenario.name}: {scenario.purpose}\n"
        f"{counted(sum(workload.counts), 'message')}, {mib(workload.total_bytes)}, "
        f"through a memory limit of {format_size(limit_bytes)}"
    )


def _result(limit_bytes: int, seed: int, runs: Sequence[Run]) -> dict[str, Any]:
    """What --json writes: neither host nor paths."""
    return {
        "machine": {
            "cores": os.cpu_count(),
            "python": f"{platform.python_implementation()} {platform.python_version()}",
        },
        "settings": {"memory_limit_bytes": limit_bytes, "seed": seed},
        "runs": [run.as_json() for run in runs],
    }
