"""`make bench-peers`: W1 to W10 beside the peers that are there, as Markdown on standard output.

    python benchmarks/peers.py                       ours alone
    python benchmarks/peers.py W1 W2 --messages 20000
    python benchmarks/peers.py --peers FOLDER --write

Passes of all rows take turns, round after round, so that whatever else the
machine does falls on all of them; a figure is the median of its rounds.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from forebay.benchmarks.load.words import counted
from forebay.benchmarks.works.claims import judged
from forebay.benchmarks.works.kahadb import NEEDED, KahaDB, Peer, has_java, java_version
from forebay.benchmarks.works.machine import file_system, machine, software
from forebay.benchmarks.works.measured import Measured
from forebay.benchmarks.works.picture import picture
from forebay.benchmarks.works.plan import GROUPS, MESSAGES, ROUNDS, SLOW_GROUPS, Row, rows
from forebay.benchmarks.works.process import PassFailed, measure
from forebay.benchmarks.works.python_queues import PACKAGES, NotThere, PythonQueue, PythonQueues
from forebay.benchmarks.works.report import report
from forebay.benchmarks.works.results import write_results
from forebay.benchmarks.works.stopwatch import Facts
from forebay.benchmarks.works.work import Work
from forebay.dispatch.config.sizes import GIB

PEERS_VARIABLE: Final = "FOREBAY_PEERS"
MIN_MESSAGES: Final = 100
RESULTS: Final = Path(__file__).with_name("RESULTS.md")


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print; the exit code. Wrong usage leaves by SystemExit."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    arguments.works = arguments.works or list(GROUPS)
    if unknown := set(arguments.works) - set(GROUPS):
        parser.error(f"there is no {' and no '.join(sorted(unknown))}: choose among {', '.join(GROUPS)}")
    if arguments.messages < MIN_MESSAGES or (arguments.rounds is not None and arguments.rounds < 1):
        parser.error(f"--messages must be at least {MIN_MESSAGES} and --rounds at least 1")
    if arguments.peers is not None and not arguments.peers.is_dir():
        parser.error("--peers must be a folder, with kahadb/run.sh or python/peers.py or both")
    plan = rows(arguments.messages, arguments.works)
    needed_bytes = max(row.work.disk_bytes for row in plan if isinstance(row.work, Work))
    if shutil.disk_usage(arguments.dir).free < needed_bytes:
        parser.error(f"the directory to work in needs {needed_bytes / GIB:.1f} GiB free: choose another with --dir")
    try:
        with ExitStack() as stack:
            sides = Sides(arguments, stack)
            results = sides.measure_all(plan)
    except PassFailed as failure:
        print(f"peers: {failure}", file=sys.stderr)
        return 1
    about = _about(arguments, has_kahadb=sides.kahadb is not None)
    lines = list(report(about, sides.missing, arguments.messages, results))
    print("\n".join(lines))
    if arguments.write:
        found = judged(arguments.messages, {measured.row.title: measured for measured in results})
        write_results(RESULTS, lines, picture(found))
    return 0


def _parser() -> ArgumentParser:
    peers = os.environ.get(PEERS_VARIABLE)
    parser = ArgumentParser(prog="peers.py", description="W1 to W10 beside other queues, as Markdown.")
    parser.add_argument("works", nargs="*", metavar="WORK", help=f"{', '.join(GROUPS)} (all)")
    parser.add_argument("--messages", type=int, default=MESSAGES, metavar="N", help="of a W1 pass (%(default)s)")
    parser.add_argument(
        "--rounds",
        type=int,
        metavar="N",
        help=f"passes of each row ({ROUNDS}; {', '.join(SLOW_GROUPS)}, which take long: 1)",
    )
    parser.add_argument(
        "--peers",
        type=Path,
        default=peers and Path(peers),
        metavar="FOLDER",
        help=f"one that holds kahadb/run.sh and python/peers.py; or {PEERS_VARIABLE} in the environment",
    )
    parser.add_argument(
        "--peers-python",
        default=sys.executable,
        metavar="PYTHON",
        help=f"one that has {', '.join(PACKAGES)} (this one)",
    )
    parser.add_argument(
        "--dir",
        type=Path,
        default=Path(tempfile.gettempdir()),
        metavar="DIR",
        help="where to work, on the disk to measure (the system's temporary directory)",
    )
    parser.add_argument(
        "--write", action="store_true", help="also make the measured part of RESULTS.md, and its picture"
    )
    return parser


class Sides:
    """Ours, and the others that are there."""

    def __init__(self, arguments: Namespace, stack: ExitStack) -> None:
        self._arguments = arguments
        self.missing: list[str] = []
        """Sentences about those that are not."""
        peers: Path | None = arguments.peers
        self.kahadb: KahaDB | None = None
        self._queues: PythonQueues | None = None
        if peers is None:
            self._miss("Neither KahaDB nor Python queues: no --peers FOLDER was given")
            return
        if not (peers / "kahadb" / "run.sh").is_file():
            self._miss("No KahaDB: the folder has no kahadb/run.sh")
        elif not has_java():
            self._miss(f"No KahaDB: there is no java or no javac. {NEEDED}")
        else:
            self.kahadb = stack.enter_context(KahaDB(peers / "kahadb", arguments.dir))
        if (peers / "python" / "peers.py").is_file():
            self._queues = PythonQueues(peers / "python", arguments.peers_python, arguments.dir)
        else:
            self._miss("No Python queues: the folder has no python/peers.py")

    def measure_all(self, plan: Sequence[Row]) -> list[Measured]:
        """Round after round. Raises PassFailed."""
        passes: dict[str, list[Facts]] = {row.title: [] for row in plan}
        rounds = self._arguments.rounds or ROUNDS
        for number in range(1, rounds + 1):
            if self.kahadb is not None:
                self.kahadb.begin_round()
            for row in self._due(plan, number):
                print(f"round {number} of {rounds}: {row.group} {row.title}", file=sys.stderr)
                if (facts := self._measure(row)) is not None:
                    passes[row.title].append(facts)
        return [Measured(row, row.work.messages, passes[row.title]) for row in plan if passes[row.title]]

    def _due(self, plan: Sequence[Row], number: int) -> Iterable[Row]:
        once = number > 1 and self._arguments.rounds is None
        return (row for row in plan if not (once and row.group in SLOW_GROUPS))

    def _measure(self, row: Row) -> Facts | None:
        """None: the one to measure is not there."""
        work = row.work
        if isinstance(work, Work):
            return measure(work, self._arguments.dir)
        if isinstance(work, Peer):
            return self.kahadb.measure(work) if self.kahadb is not None else None
        return self._measure_queue(work) if self._queues is not None else None

    def _measure_queue(self, queue: PythonQueue) -> Facts | None:
        assert self._queues is not None
        try:
            return self._queues.measure(queue)
        except NotThere:
            self._miss(f"No {queue.name}: its package is not there; pip install {' '.join(PACKAGES)}")
            return None

    def _miss(self, sentence: str) -> None:
        if sentence not in self.missing:
            self.missing.append(sentence)
            print(f"peers: {sentence}", file=sys.stderr)


def _about(arguments: Namespace, has_kahadb: bool) -> list[str]:
    """Return what a reader must know, the paths of this machine left out."""
    command = ["python benchmarks/peers.py"]
    if arguments.works != list(GROUPS):
        command += arguments.works
    if arguments.messages != MESSAGES:
        command.append(f"--messages {arguments.messages}")
    if arguments.rounds is not None:
        command.append(f"--rounds {arguments.rounds}")
    if arguments.peers is not None:
        command.append("--peers FOLDER")
    rounds = counted(arguments.rounds or ROUNDS, "round")
    if arguments.rounds is None:
        rounds += f" ({', '.join(SLOW_GROUPS)}: one)"
    return [
        f"{datetime.now(UTC):%Y-%m-%d}, `{' '.join(command)}`: medians of {rounds}, each pass in a fresh process",
        f"{machine()}, {file_system(arguments.dir)}",
        software() + (f", {java_version()}" if has_kahadb else ""),
    ]


if __name__ == "__main__":
    sys.exit(main())
