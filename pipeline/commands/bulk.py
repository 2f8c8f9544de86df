"""`forebay pipeline load`, `archive`, `restore` and `tune`: arguments to lines of JSON and an exit code."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ...store.errors import ForebayError
from ..bulk.archive import ArchiveRow, archive, archive_local, restore, restore_local
from ..bulk.tune import LimitRow, recommend_limits, recommend_limits_local
from ..errors import SparkFailed
from ..kernels.rows import FIELDS
from ..loading import LoadReport, lines_of, load, load_local
from ..spark.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Print = Callable[[str], object]

_LIMITS = "4MiB,8MiB,16MiB,32MiB,64MiB,128MiB,256MiB,512MiB"
_DONE = frozenset(("archived", "restored", "there", "discarded", "in use"))


def add_commands(add_parser: Callable[..., ArgumentParser]) -> None:
    """load, archive and restore, beside what else `forebay pipeline` can do."""
    loading = add_parser("load", help="messages of a JSON Lines file for a store to take over at its next open, once")
    loading.add_argument("directory", metavar="DIR", help="what is given to forebay.open")
    loading.add_argument("file", metavar="FILE.jsonl", help=f"one object a line: {', '.join(FIELDS)}")
    loading.add_argument("--load-id", required=True, metavar="ID", help="the same one again brings nothing")
    loading.add_argument("--broker", metavar="NAME", default="localhost", help="the store in DIR (%(default)s)")
    archiving = add_parser("archive", help="sealed data logs as Parquet, each verified")
    archiving.add_argument("directories", metavar="DIR", nargs="+", help="of any number of brokers; a glob is fine")
    archiving.add_argument("out", metavar="OUT", help="the archive: broker=<name>/data_log=<id>/data.parquet")
    archiving.add_argument(
        "--discard", action="store_true", help="delete from each store's archive/ what was read back and is the same"
    )
    restoring = add_parser("restore", help="an archive's data logs again, byte for byte")
    restoring.add_argument("archive", metavar="ARCHIVE", help="what `archive` wrote")
    restoring.add_argument("directory", metavar="DIR", help="where no store was opened yet")
    tuning = add_parser("tune", help="what each memory limit would have made of recorded traffic, a line each")
    tuning.add_argument("traces", metavar="TRACE", nargs="+", help="files that Settings(record_trace=...) wrote")
    tuning.add_argument("--limits", metavar="SIZES", default=_LIMITS, help="(%(default)s)")
    runs = (loading, load_command), (archiving, archive_command), (restoring, restore_command), (tuning, tune_command)
    for parser, run in runs:
        parser.add_argument("--engine", choices=("local", "spark"), default="local", help="(%(default)s)")
        parser.add_argument("--master", default="local[*]", help="of Spark (%(default)s)")
        parser.set_defaults(run=run)


def load_command(arguments: Namespace, print_line: Print = print) -> int:
    """0: it is there, by this call or an earlier one; the report says which."""
    where: dict[str, Any] = {"load_id": arguments.load_id, "broker_name": arguments.broker}
    if arguments.engine == "spark":
        with _running(arguments.master) as spark:
            (row,) = load(spark, spark.read.text(arguments.file), arguments.directory, **where).collect()
        report = LoadReport(**row.asDict())
    else:
        report = load_local(lines_of(arguments.file), arguments.directory, **where)
    print_line(json.dumps(asdict(report)))
    return 0


def archive_command(arguments: Namespace, print_line: Print = print) -> int:
    """Print a line for each data log; return 1 where one was left out."""
    if arguments.engine == "spark":
        with _running(arguments.master) as spark:
            found = archive(spark, arguments.directories, arguments.out, discard=arguments.discard).collect()
        return _tell([ArchiveRow(**row.asDict()) for row in found], print_line)
    return _tell(archive_local(arguments.directories, arguments.out, discard=arguments.discard), print_line)


def restore_command(arguments: Namespace, print_line: Print = print) -> int:
    """Print a line for each data log; return 1 where one was left out."""
    if arguments.engine == "spark":
        with _running(arguments.master) as spark:
            found = restore(spark, arguments.archive, arguments.directory).collect()
        return _tell([ArchiveRow(**row.asDict()) for row in found], print_line)
    return _tell(restore_local(arguments.archive, arguments.directory), print_line)


def tune_command(arguments: Namespace, print_line: Print = print) -> int:
    """Print a line for each trace and limit; return 1 where a trace could not be played."""
    limits = [limit.strip() for limit in arguments.limits.split(",")]
    if arguments.engine == "spark":
        with _running(arguments.master) as spark:
            rows = [LimitRow(**row.asDict()) for row in recommend_limits(spark, arguments.traces, limits).collect()]
    else:
        rows = recommend_limits_local(arguments.traces, limits)
    for row in rows:
        print_line(json.dumps(asdict(row)))
    return 1 if any(row.problem is not None for row in rows) else 0


@contextmanager
def _running(master: str) -> Iterator[SparkSession]:
    """Hold a session until the work is done, and make one line of what Spark raises."""
    spark = session(master)
    try:
        yield spark
    except ForebayError:
        raise
    except Exception as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        ours = [line.partition(": ")[2] for line in lines if line.startswith("forebay.")]
        raise SparkFailed((ours[-1:] or lines or [type(error).__name__])[0]) from error
    finally:
        spark.stop()


def _tell(rows: list[ArchiveRow], print_line: Print) -> int:
    for row in rows:
        print_line(json.dumps(asdict(row)))
    return 0 if all(row.state in _DONE for row in rows) else 1
