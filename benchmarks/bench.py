"""`make bench`: the figures of this machine, as Markdown on standard output.

    python benchmarks/bench.py                       everything of ours
    python benchmarks/bench.py W1 W2 --messages 20000
    python benchmarks/bench.py --kahadb FOLDER > benchmarks/RESULTS.md

Passes of all rows take turns, round after round, so that whatever else the
machine does falls on all of them; a figure is the median of its rounds.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from forebay.benchmarks.bench_kahadb import KahaDB, java_version
from forebay.benchmarks.bench_machine import file_system, machine, software
from forebay.benchmarks.bench_plan import GROUPS, MESSAGES, ROUNDS, Row, rows
from forebay.benchmarks.bench_process import PassFailed, measure
from forebay.benchmarks.bench_report import Measured, report
from forebay.benchmarks.bench_stopwatch import Facts
from forebay.benchmarks.bench_work import Work
from forebay.benchmarks.load.words import counted
from forebay.dispatch.sizes import GIB

KAHADB_VARIABLE: Final = "FOREBAY_KAHADB"
MIN_MESSAGES: Final = 100


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print; the exit code. Wrong usage leaves by SystemExit."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    arguments.works = arguments.works or list(GROUPS)
    if unknown := set(arguments.works) - set(GROUPS):
        parser.error(f"there is no {' and no '.join(sorted(unknown))}: choose among {', '.join(GROUPS)}")
    if arguments.messages < MIN_MESSAGES or arguments.rounds < 1:
        parser.error(f"--messages must be at least {MIN_MESSAGES} and --rounds at least 1")
    if arguments.kahadb is not None and not (arguments.kahadb / "run.sh").is_file():
        parser.error("--kahadb must be a folder that holds run.sh")
    plan = rows(arguments.messages, arguments.works, arguments.kahadb is not None)
    needed_bytes = max(row.work.disk_bytes for row in plan if isinstance(row.work, Work))
    if shutil.disk_usage(arguments.dir).free < needed_bytes:
        parser.error(f"the directory to work in needs {needed_bytes / GIB:.1f} GiB free: choose another with --dir")
    try:
        results = _measure_all(plan, arguments)
    except PassFailed as failure:
        print(f"bench: {failure}", file=sys.stderr)
        return 1
    for line in report(_about(arguments), arguments.messages, results):
        print(line)
    return 0


def _parser() -> ArgumentParser:
    kahadb = os.environ.get(KAHADB_VARIABLE)
    parser = ArgumentParser(prog="bench.py", description="Print the figures of this machine as Markdown.")
    parser.add_argument("works", nargs="*", metavar="WORK", help=f"{', '.join(GROUPS)} (all)")
    parser.add_argument("--messages", type=int, default=MESSAGES, metavar="N", help="of a W1 pass (%(default)s)")
    parser.add_argument("--rounds", type=int, default=ROUNDS, metavar="N", help="passes of each row (%(default)s)")
    parser.add_argument(
        "--kahadb",
        type=Path,
        default=kahadb and Path(kahadb),
        metavar="FOLDER",
        help=f"one that holds a run.sh for KahaDB; or {KAHADB_VARIABLE} in the environment",
    )
    parser.add_argument(
        "--dir",
        type=Path,
        default=Path(tempfile.gettempdir()),
        metavar="DIR",
        help="where to work, on the disk to measure (the system's temporary directory)",
    )
    return parser


def _measure_all(plan: Sequence[Row], arguments: Namespace) -> list[Measured]:
    passes: dict[str, list[Facts]] = {row.title: [] for row in plan}
    with ExitStack() as stack:
        kahadb = stack.enter_context(KahaDB(arguments.kahadb, arguments.dir)) if arguments.kahadb else None
        for number in range(1, arguments.rounds + 1):
            for row in plan:
                print(f"round {number} of {arguments.rounds}: {row.group} {row.title}", file=sys.stderr)
                if isinstance(row.work, Work):
                    facts = measure(row.work, arguments.dir)
                else:
                    assert kahadb is not None
                    facts = kahadb.measure(row.work)
                passes[row.title].append(facts)
    return [Measured(row, row.work.messages, passes[row.title]) for row in plan]


def _about(arguments: Namespace) -> list[str]:
    """What a reader must know, the paths of this machine left out."""
    command = ["python benchmarks/bench.py"]
    if arguments.works != list(GROUPS):
        command += arguments.works
    if arguments.messages != MESSAGES:
        command.append(f"--messages {arguments.messages}")
    if arguments.rounds != ROUNDS:
        command.append(f"--rounds {arguments.rounds}")
    if arguments.kahadb is not None:
        command.append("--kahadb FOLDER")
    return [
        f"{datetime.now(UTC):%Y-%m-%d}, `{' '.join(command)}`: medians of {counted(arguments.rounds, 'round')}, "
        "each pass in a fresh process",
        f"{machine()}, {file_system(arguments.dir)}",
        software() + (f", {java_version()}" if arguments.kahadb is not None else ""),
    ]


if __name__ == "__main__":
    sys.exit(main())
