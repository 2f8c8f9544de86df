"""The figures of the data pipeline on this machine, as Markdown on standard output. Needs the extra `spark`.

    python benchmarks/bench_pipeline.py DIR                  made once in DIR, 4 GiB of it, then measured
    python benchmarks/bench_pipeline.py DIR --gib 1 --rounds 1

Each broker's directory has 1 GiB of records of 1 KiB. A curve beyond those reads the same data logs through further
directories of hard links: it takes no disk, but must fit into the page cache. A figure is the median of its rounds. The
first rounds are not counted, because a JVM is slow until it has compiled the code that runs often.
"""

from __future__ import annotations

import os
import random
import sys
import time
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path
from statistics import linear_regression, median
from typing import TYPE_CHECKING, Final

import psutil

import forebay
from forebay.benchmarks.works.machine import machine, software
from forebay.dispatch.config.sizes import GIB, KIB, MIB
from forebay.pipeline import check, rebuild_index
from forebay.pipeline.kernels.fleet import disk_of, find_stores, plan
from forebay.pipeline.kernels.schema import COLUMNS, ddl
from forebay.pipeline.spark.questions import register
from forebay.pipeline.spark.session import session
from forebay.store.disk.layout import JOURNAL

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CURVE_GIB: Final = (1, 2, 4, 8, 16)
FACTS_COLUMNS: Final = ("data_log", "offset", "length", "kind", "destination", "sequence", "timestamp")
"""The columns that most questions need; the schema that is given to the source chooses them."""
RECORD_BYTES: Final = 64 + KIB
MIB_A_SECOND_WANTED: Final = {"facts": 2500, "check": 2000}
SHARE_OF_PLAIN_WANTED: Final = 0.8
RECORDS_A_CORE_WANTED: Final = 500_000
WARMING_ROUNDS: Final = 5
"""Rounds before each figure that are not counted."""

_NOISE: Final = random.Random(42).randbytes(MIB)


@dataclass(frozen=True, slots=True)
class Figure:
    """The rounds of one question over a number of bytes. cpu_seconds: of Spark's JVM, its workers and this process."""

    title: str
    size_bytes: int
    records: int
    seconds: float
    cpu_seconds: float

    @property
    def mib_a_second(self) -> float:
        return self.size_bytes / MIB / self.seconds

    @property
    def cpu_seconds_a_gib(self) -> float:
        return self.cpu_seconds * GIB / self.size_bytes

    def line(self) -> str:
        return (
            f"| {self.title} | {self.size_bytes / GIB:.1f} | {self.seconds:.2f} | {self.mib_a_second:,.0f} "
            f"| {self.records / self.seconds:,.0f} | {self.cpu_seconds_a_gib:.2f} |"
        )


def main(argv: Sequence[str] | None = None) -> int:
    """Make the stores that are missing, measure and print. SystemExit: wrong usage."""
    parser = ArgumentParser(prog="bench_pipeline.py", description="Print the figures of the data pipeline as Markdown.")
    parser.add_argument("directory", type=Path, metavar="DIR", help="where the journals are, or are made")
    parser.add_argument("--gib", type=int, default=4, metavar="N", help="to make and to measure (%(default)s)")
    parser.add_argument("--tasks", type=int, default=2, metavar="N", help="at once: local[N] (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="of each figure (%(default)s)")
    arguments = parser.parse_args(argv)
    if min(arguments.gib, arguments.tasks, arguments.rounds) < 1:
        parser.error("--gib, --tasks and --rounds must be at least 1")
    brokers = made(arguments.directory, arguments.gib)
    spark = session(f"local[{arguments.tasks}]", configuration={"spark.driver.memory": "2g"})
    for line in report(spark, brokers, arguments.tasks, arguments.rounds):
        print(line, flush=True)
    spark.stop()
    return 0


# ---------------------------------------------------------------------- what is read


def made(directory: Path, gib: int) -> list[Path]:
    """Return the brokers' directories, 1 GiB each. gib: how many are made; the others link to these."""
    brokers: list[Path] = []
    for number in range(max(gib, CURVE_GIB[-1])):
        broker = directory / f"broker-{number:02}"
        if not broker.exists():
            _say(f"making {broker.name}")
            if number < gib:
                fill(broker)
            else:
                link(brokers[number % gib], broker)
        brokers.append(broker)
    return brokers


def fill(broker: Path) -> None:
    """Store 1 GiB of records with single sends. The directory gets its name once it is complete."""
    partial = broker.with_suffix(".partial")
    with forebay.open(partial, broker_name=broker.name, memory_limit=64 * MIB, sync="never") as bay:
        send = bay.queue("orders").send
        for number in range(GIB // RECORD_BYTES):
            at = number * 977 % (MIB - KIB)
            send(_NOISE[at : at + KIB])
    partial.rename(broker)


def link(broker: Path, copy: Path) -> None:
    """Make a directory of the same data logs, for a broker of another name."""
    journal = copy / copy.name / JOURNAL
    journal.mkdir(parents=True)
    for path in (broker / broker.name / JOURNAL).iterdir():
        os.link(path, journal / path.name)


# ---------------------------------------------------------------------- measuring


def report(spark: SparkSession, brokers: list[Path], tasks: int, rounds: int) -> Iterator[str]:
    """Yield the lines of the report, as they are measured."""
    from forebay.benchmarks.ready_made import ready_made  # not for the plain processes, which know no Spark
    from forebay.pipeline.spark.options import PARTITION_BYTES

    register(spark)
    measure = Measure(spark, rounds)
    some = brokers[: CURVE_GIB[2]]
    yield (
        f"{datetime.now(UTC):%Y-%m-%d}, `local[{tasks}]`, page cache warm, records of {RECORD_BYTES:,} bytes, "
        f"medians of {rounds} rounds; {machine()}; {software()}, Spark {spark.version}"
    )
    yield ""
    yield "| | GiB | seconds | MiB/s | records/s | CPU s/GiB |"
    yield "|---|---|---|---|---|---|"
    every = measure("`facts`, all columns", some, _reading(spark, some, tuple(COLUMNS)))
    checked = measure("`check`", some, lambda: _whole(check(spark, some)))
    rebuilt = measure("`rebuild_index`", some, lambda: drain(rebuild_index(spark, some)))
    curve = {
        gib: measure("`facts`, 7 columns", brokers[:gib], _reading(spark, brokers[:gib], FACTS_COLUMNS))
        for gib in CURVE_GIB
    }
    facts = curve[len(some)]
    for figure in (every, checked, rebuilt, *(curve[gib] for gib in CURVE_GIB)):
        yield figure.line()
    parts = -(-facts.size_bytes // PARTITION_BYTES)
    rows = ready_made(spark, some[0], FACTS_COLUMNS, facts.records, parts)
    made_before = measure("as many rows, made before", some, lambda: drain(rows))
    plain = measure_plain("the same 7 columns in plain processes", some, tasks, rounds)
    yield made_before.line()
    yield plain.line()
    yield ""
    share, a_core = facts.mib_a_second / plain.mib_a_second, rebuilt.records / rebuilt.seconds / tasks
    price = made_before.cpu_seconds_a_gib
    at_best = plain.cpu_seconds_a_gib / (plain.cpu_seconds_a_gib + price)
    rates = [figure.mib_a_second for gib, figure in curve.items() if gib >= len(some)]
    yield f"- `facts`: {facts.mib_a_second:,.0f} MiB/s (wanted {MIB_A_SECOND_WANTED['facts']:,})"
    yield f"- of the same kernel in {tasks} plain processes: {share:.0%} (wanted {SHARE_OF_PLAIN_WANTED:.0%})"
    yield (
        f"- Spark alone, with rows that were made before: {made_before.mib_a_second:,.0f} MiB/s, {price:.2f} CPU "
        f"s/GiB: beside it the kernel cannot have more than {at_best:.0%}"
    )
    yield f"- `check`: {checked.mib_a_second:,.0f} MiB/s (wanted {MIB_A_SECOND_WANTED['check']:,})"
    yield f"- `rebuild_index`: {a_core:,.0f} records/s a core (wanted {RECORDS_A_CORE_WANTED:,})"
    yield f"- from {len(some)} to {CURVE_GIB[-1]} GiB the rate differs by {max(rates) / min(rates) - 1:.0%}"
    yield fitted(list(curve.values()))


def fitted(curve: list[Figure]) -> str:
    """Return the cost of a question and of each GiB, by the straight line that fits the curve best."""
    gib = [figure.size_bytes / GIB for figure in curve]
    slope, fixed = linear_regression(gib, [figure.seconds for figure in curve])
    off = max(abs(fixed + slope * at - figure.seconds) / figure.seconds for at, figure in zip(gib, curve, strict=True))
    return f"- a question costs {fixed:.2f} s, and {slope:.3f} s a GiB: within {off:.0%} of each figure of the curve"


class Measure:
    """Rounds of one question with a session that runs."""

    def __init__(self, spark: SparkSession, rounds: int) -> None:
        self._rounds = rounds
        self._root = psutil.Process()

    def __call__(self, title: str, brokers: list[Path], run: Callable[[], None]) -> Figure:
        _say(title)
        seconds: list[float] = []
        cpu_seconds: list[float] = []
        for _ in range(WARMING_ROUNDS + self._rounds):
            before, wall = self._cpu_seconds(), time.perf_counter()
            run()
            seconds.append(time.perf_counter() - wall)
            after = self._cpu_seconds()
            cpu_seconds.append(sum(after.values()) - sum(before[process] for process in before.keys() & after.keys()))
        counted = slice(WARMING_ROUNDS, None)
        return Figure(title, *_size_of(brokers), median(seconds[counted]), median(cpu_seconds[counted]))

    def _cpu_seconds(self) -> dict[int, float]:
        """Return the CPU seconds of this process and all below it, by id."""
        found = {}
        for process in (self._root, *self._root.children(recursive=True)):
            with suppress(psutil.Error):  # it has ended
                times = process.cpu_times()
                found[process.pid] = times.user + times.system
        return found


def measure_plain(title: str, brokers: list[Path], processes: int, rounds: int) -> Figure:
    """Measure the kernel of `facts` in processes that do nothing else and share the bytes evenly."""
    _say(title)
    shares = [brokers[first::processes] for first in range(processes)]
    with get_context("spawn").Pool(processes) as pool:
        seconds: list[float] = []
        cpu_seconds: list[float] = []
        for _ in range(WARMING_ROUNDS + rounds):
            wall = time.perf_counter()
            cpu_seconds.append(sum(pool.map(read, shares, chunksize=1)))
            seconds.append(time.perf_counter() - wall)
    counted = slice(WARMING_ROUNDS, None)
    return Figure(title, *_size_of(brokers), median(seconds[counted]), median(cpu_seconds[counted]))


def read(brokers: list[Path]) -> float:
    """Make the batches of these brokers; return the CPU seconds."""
    from forebay.pipeline.kernels.batches import Request, batches

    begun = time.process_time()
    for store in find_stores(brokers):
        request = Request(store.broker, {name: COLUMNS[name] for name in FACTS_COLUMNS})
        for part in plan(disk_of(store)):
            for _ in batches(disk_of(store), request, part):
                pass
    return time.process_time() - begun


def drain(frame: DataFrame) -> None:
    """Compute every row and column of a frame, and keep nothing."""
    frame.write.format("noop").mode("overwrite").save()


def _reading(spark: SparkSession, brokers: list[Path], columns: Sequence[str]) -> Callable[[], None]:
    schema = ddl({name: COLUMNS[name] for name in columns})
    paths = [str(broker) for broker in brokers]
    return lambda: drain(spark.read.format("forebay").schema(schema).load(paths))


def _whole(damages: DataFrame) -> None:
    assert not damages.count(), "the journals are damaged: make them again in another directory"


def _size_of(brokers: list[Path]) -> tuple[int, int]:
    """Return bytes and records. Both are approximate: a data log also has a header, a state record and a directory."""
    paths = [path for broker in brokers for path in (broker / broker.name / JOURNAL).glob("data-*.log")]
    return sum(path.stat().st_size for path in paths), len(brokers) * (GIB // RECORD_BYTES)


def _say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
