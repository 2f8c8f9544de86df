"""`make bench-peers`: W1 to W12 and brokers beside the peers that are there, as Markdown on standard output.

    python benchmarks/peers.py                       ours alone
    python benchmarks/peers.py W1 W2 --messages 20000
    python benchmarks/peers.py --peers FOLDER --write
    python benchmarks/peers.py Brokers --write      RabbitMQ, Redis, PostgreSQL, NATS beside forebay
    python benchmarks/peers.py --also PYTHON        what that Python has of forebay too, in the same run

Passes of all rows take turns, round after round, so that other work of the machine slows all of them alike. A pass that
was disturbed is measured again (works/disturbance.py). A figure is the median of its rounds.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NoReturn

from forebay.benchmarks.brokers.broker import BrokerFailed
from forebay.benchmarks.brokers.choices import PACKAGES as CLIENTS
from forebay.benchmarks.brokers.comparison import Brokers
from forebay.benchmarks.load.words import counted
from forebay.benchmarks.works.build import Build, NoBuild, build_of, this_build
from forebay.benchmarks.works.claims import judged
from forebay.benchmarks.works.disturbance import Undisturbed
from forebay.benchmarks.works.kahadb import NEEDED, KahaDB, Peer, has_java, java_version
from forebay.benchmarks.works.machine import file_system, machine
from forebay.benchmarks.works.measured import Measured
from forebay.benchmarks.works.picture import picture
from forebay.benchmarks.works.plan import GROUPS, MESSAGES, ROUNDS, SLOW_GROUPS, TURNS, Row, in_turns, rows
from forebay.benchmarks.works.process import PassFailed, measure
from forebay.benchmarks.works.python_queues import PACKAGES, NotThere, PythonQueue, PythonQueues
from forebay.benchmarks.works.report import report
from forebay.benchmarks.works.results import BROKERS, MEASURED, write_results
from forebay.benchmarks.works.stopwatch import Facts, others_share
from forebay.benchmarks.works.work import Work
from forebay.dispatch.config.sizes import GIB

PEERS_VARIABLE: Final = "FOREBAY_PEERS"
MESSAGES_MIN: Final = 100
BROKERS_GROUP: Final = "Brokers"
EVERYTHING: Final = (*GROUPS, BROKERS_GROUP)
RESULTS: Final = Path(__file__).with_name("RESULTS.md")


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print; return the exit code. SystemExit: wrong usage."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    arguments.works = arguments.works or list(EVERYTHING)
    if unknown := set(arguments.works) - set(EVERYTHING):
        parser.error(f"there is no {' and no '.join(sorted(unknown))}: choose among {', '.join(EVERYTHING)}")
    if arguments.messages < MESSAGES_MIN or (arguments.rounds is not None and arguments.rounds < 1):
        parser.error(f"--messages must be at least {MESSAGES_MIN} and --rounds at least 1")
    if arguments.peers is not None and not arguments.peers.is_dir():
        parser.error("--peers must be a folder, with kahadb/run.sh or python/peers.py or both")
    builds = [this_build()]
    if arguments.also is not None:
        try:
            builds.append(build_of(arguments.also))
        except NoBuild as failure:
            parser.error(f"--also: {failure}")
        if builds[0].name == builds[1].name:
            parser.error(f"--also: {arguments.also} has the {builds[1].name} build, as this Python has")
    parts = []
    if set(arguments.works) & set(GROUPS):
        parts.append(_works)
    if BROKERS_GROUP in arguments.works:
        parts.append(_brokers)
    try:
        for part in parts:
            part(arguments, builds, parser.error)
    except (PassFailed, BrokerFailed) as failure:
        print(f"peers: {failure}", file=sys.stderr)
        return 1
    return 0


def _works(arguments: Namespace, builds: Sequence[Build], refuse: Callable[[str], NoReturn]) -> None:
    plan = rows(arguments.messages, arguments.works)
    _require_room(arguments.dir, max(row.work.disk_bytes for row in plan if isinstance(row.work, Work)), refuse)
    with ExitStack() as stack:
        sides = Sides(arguments, builds, stack)
        results = sides.measure_all(plan)
    rounds = counted(arguments.rounds or ROUNDS, "round")
    if arguments.rounds is None:
        rounds += f" ({', '.join(SLOW_GROUPS)}: one)"
    java = java_version() if sides.kahadb is not None else ""
    about = _about(arguments, builds, rounds, java, sides.undisturbed.sentence())
    lines = list(report(about, sides.missing.sentences, arguments.messages, results))
    print("\n".join(lines))
    if arguments.write:
        found = judged(arguments.messages, {measured.row.title: measured for measured in results[builds[0].name]})
        write_results(RESULTS, MEASURED, lines, picture(found))


def _brokers(arguments: Namespace, builds: Sequence[Build], refuse: Callable[[str], NoReturn]) -> None:
    missing = Missing()
    brokers = Brokers(arguments.messages, builds, arguments.peers_python, arguments.dir, missing)
    _require_room(arguments.dir, brokers.disk_bytes, refuse)
    rounds = arguments.rounds or 1
    brokers.measure(rounds)
    lines = list(brokers.report(_about(arguments, builds, counted(rounds, "round")), missing.sentences))
    print("\n".join(lines))
    if arguments.write:
        write_results(RESULTS, BROKERS, lines)


def _require_room(directory: Path, needed_bytes: int, refuse: Callable[[str], NoReturn]) -> None:
    if shutil.disk_usage(directory).free < needed_bytes:
        refuse(f"the directory to work in needs {needed_bytes / GIB:.1f} GiB free: choose another with --dir")


def _parser() -> ArgumentParser:
    peers = os.environ.get(PEERS_VARIABLE)
    parser = ArgumentParser(prog="peers.py", description="W1 to W12 beside other queues, as Markdown.")
    parser.add_argument("works", nargs="*", metavar="WORK", help=f"{', '.join(EVERYTHING)} (all)")
    parser.add_argument("--messages", type=int, default=MESSAGES, metavar="N", help="of a W1 pass (%(default)s)")
    parser.add_argument(
        "--rounds",
        type=int,
        metavar="N",
        help=f"passes of each row ({ROUNDS}; {', '.join((*SLOW_GROUPS, BROKERS_GROUP))}, which take long: 1)",
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
        help=f"one that has forebay, {', '.join((*PACKAGES, *CLIENTS))} (this one)",
    )
    parser.add_argument(
        "--also",
        metavar="PYTHON",
        help="one that has another build of forebay, whose passes take turns with those of this one",
    )
    parser.add_argument(
        "--dir",
        type=Path,
        default=Path(tempfile.gettempdir()),
        metavar="DIR",
        help="where to work, on the disk to measure (the system's temporary directory)",
    )
    parser.add_argument(
        "--write", action="store_true", help="also make the measured parts of RESULTS.md, and its picture"
    )
    return parser


class Missing:
    """Sentences about peers that were not measured. Each is printed once, when the peer is found missing."""

    def __init__(self) -> None:
        self.sentences: list[str] = []

    def __call__(self, sentence: str) -> None:
        if sentence not in self.sentences:
            self.sentences.append(sentence)
            print(f"peers: {sentence}", file=sys.stderr)


class Sides:
    """Our builds, and the peers that are installed."""

    def __init__(self, arguments: Namespace, builds: Sequence[Build], stack: ExitStack) -> None:
        self._arguments = arguments
        self._builds = builds
        self.missing = Missing()
        self.undisturbed = Undisturbed()
        peers: Path | None = arguments.peers
        self.kahadb: KahaDB | None = None
        self._queues: PythonQueues | None = None
        if peers is None:
            self.missing("Neither KahaDB nor Python queues: no --peers FOLDER was given")
            return
        if not (peers / "kahadb" / "run.sh").is_file():
            self.missing("No KahaDB: the folder has no kahadb/run.sh")
        elif not has_java():
            self.missing(f"No KahaDB: there is no java or no javac. {NEEDED}")
        else:
            self.kahadb = stack.enter_context(KahaDB(peers / "kahadb", arguments.dir, self.undisturbed))
        if (peers / "python" / "peers.py").is_file():
            self._queues = PythonQueues(peers / "python", arguments.peers_python, arguments.dir)
        else:
            self.missing("No Python queues: the folder has no python/peers.py")

    def measure_all(self, plan: Sequence[Row]) -> dict[str, list[Measured]]:
        """Measure round after round. Return what was found by the name of our build, that of others under each.

        Raises PassFailed.
        """
        passes: dict[str, dict[str, list[Facts]]] = {build.name: {} for build in self._builds}
        rounds = self._arguments.rounds or ROUNDS
        for number in range(1, rounds + 1):
            if self.kahadb is not None:
                self.kahadb.begin_round()
            for compared in in_turns(self._due(plan, number)):
                print(f"round {number} of {rounds}: {compared[0].group} {compared[0].title}", file=sys.stderr)
                measured = self._measure(compared[0]) if len(compared) == 1 else self._measure_in_turns(compared)
                for name, row, facts in measured:
                    passes[name].setdefault(row.title, []).append(facts)
        return {
            name: [Measured(row, row.work.messages, found[row.title]) for row in plan if row.title in found]
            for name, found in passes.items()
        }

    def _due(self, plan: Sequence[Row], number: int) -> Iterable[Row]:
        once = number > 1 and self._arguments.rounds is None
        return (row for row in plan if not (once and row.group in SLOW_GROUPS))

    def _measure(self, row: Row) -> Iterator[tuple[str, Row, Facts]]:
        """Yield a pass of each of our builds, or the one pass of another's work for each of them."""
        work = row.work
        if isinstance(work, Work):
            for build in self._builds:
                yield build.name, row, self._measure_ours(work, build)
        elif (facts := self._measure_other(work)) is not None:
            yield from ((build.name, row, facts) for build in self._builds)

    def _measure_in_turns(self, compared: Sequence[Row]) -> Iterator[tuple[str, Row, Facts]]:
        """Yield short passes of rows that are compared, in turns: the pace of a shared machine changes in seconds.

        Every other turn goes backwards, so that a machine that slows down favours none of them.
        """
        for build in self._builds:
            for turn in range(TURNS):
                for row in compared if turn % 2 == 0 else reversed(compared):
                    assert isinstance(row.work, Work)
                    yield build.name, row, measure(row.work, self._arguments.dir, build.python)

    def _measure_ours(self, work: Work, build: Build) -> Facts:
        return self.undisturbed.measure(lambda: measure(work, self._arguments.dir, build.python), others_share)

    def _measure_other(self, work: Peer | PythonQueue) -> Facts | None:
        """Measure a peer once. None: it is not installed."""
        if isinstance(work, Peer):
            return self.kahadb.measure(work) if self.kahadb is not None else None
        return self._measure_queue(work) if self._queues is not None else None

    def _measure_queue(self, queue: PythonQueue) -> Facts | None:
        queues = self._queues
        assert queues is not None
        try:
            return self.undisturbed.measure(lambda: queues.measure(queue), others_share)
        except NotThere:
            self.missing(f"No {queue.name}: its package is not there; pip install {' '.join(PACKAGES)}")
            return None


def _about(
    arguments: Namespace, builds: Sequence[Build], rounds: str, java: str = "", disturbance: str = ""
) -> list[str]:
    """Return lines about the machine and the run, without paths of this machine."""
    command = ["python benchmarks/peers.py"]
    if arguments.works != list(EVERYTHING):
        command += arguments.works
    if arguments.messages != MESSAGES:
        command.append(f"--messages {arguments.messages}")
    if arguments.rounds is not None:
        command.append(f"--rounds {arguments.rounds}")
    if arguments.peers is not None:
        command.append("--peers FOLDER")
    if arguments.also is not None:
        command.append("--also PYTHON")
    return [
        f"{datetime.now(UTC):%Y-%m-%d}, `{' '.join(command)}`: medians of {rounds}, each pass in a fresh process",
        f"{machine()}, {file_system(arguments.dir)}",
        *(build.software for build in builds),
        *filter(None, [java, disturbance]),
    ]


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # servers and directories go, as at a Ctrl-C
    sys.exit(main())
