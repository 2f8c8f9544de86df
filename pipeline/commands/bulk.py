"""`forebay pipeline load`, `archive` and `restore`: parse arguments, print lines of JSON, return an exit code."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any, Final

from ...dispatch.commands.shared_arguments import add_json
from ...dispatch.commands.streams import Streams
from ..bulk.archive import ArchiveRow, archive, archive_local, restore, restore_local
from ..kernels.rows import FIELDS
from ..loading import LoadReport, lines_of, load, load_local
from .engines import add_engine, running

_DONE: Final = frozenset(("archived", "restored", "there", "discarded", "in use"))


def add_load(parser: ArgumentParser) -> None:
    """Define `forebay pipeline load`."""
    parser.add_argument("directory", metavar="DIR", help="what is given to forebay.open")
    parser.add_argument("file", metavar="FILE.jsonl", help=f"one object a line: {', '.join(FIELDS)}")
    parser.add_argument("--load-id", required=True, metavar="ID", help="the same one again brings nothing")
    parser.add_argument("--broker", metavar="NAME", default="localhost", help="the store in DIR (%(default)s)")
    add_engine(parser)
    add_json(parser, "it always does")
    parser.set_defaults(run=run_load)


def run_load(arguments: Namespace, streams: Streams) -> int:
    """Print the report; return 0 if the load exists, by this call or an earlier one. The report tells which."""
    where: dict[str, Any] = {"load_id": arguments.load_id, "broker_name": arguments.broker}
    if arguments.engine == "spark":
        with running(arguments.master) as spark:
            (row,) = load(spark, spark.read.text(arguments.file), arguments.directory, **where).collect()
        report = LoadReport(**row.asDict())
    else:
        report = load_local(lines_of(arguments.file), arguments.directory, **where)
    streams.print_json(asdict(report))
    return 0


def add_archive(parser: ArgumentParser) -> None:
    """Define `forebay pipeline archive`."""
    parser.add_argument("directories", metavar="DIR", nargs="+", help="of any number of brokers; a glob is fine")
    parser.add_argument("out", metavar="OUT", help="the archive: broker=<name>/data_log=<id>/data.parquet")
    parser.add_argument(
        "--discard", action="store_true", help="delete from each store's archive/ what was read back and is the same"
    )
    add_engine(parser)
    add_json(parser, "it always does")
    parser.set_defaults(run=run_archive)


def run_archive(arguments: Namespace, streams: Streams) -> int:
    """Archive stores; print a line for each data log, and return 1 if one was left out."""
    if arguments.engine == "spark":
        with running(arguments.master) as spark:
            found = archive(spark, arguments.directories, arguments.out, discard=arguments.discard).collect()
        return _tell((ArchiveRow(**row.asDict()) for row in found), streams)
    with streams.progress() as progress:
        rows = archive_local(arguments.directories, arguments.out, discard=arguments.discard, on_progress=progress)
    return _tell(rows, streams)


def add_restore(parser: ArgumentParser) -> None:
    """Define `forebay pipeline restore`."""
    parser.add_argument("archive", metavar="ARCHIVE", help="what `archive` wrote")
    parser.add_argument("directory", metavar="DIR", help="where no store was opened yet")
    add_engine(parser)
    add_json(parser, "it always does")
    parser.set_defaults(run=run_restore)


def run_restore(arguments: Namespace, streams: Streams) -> int:
    """Restore a store from an archive; print a line for each data log, and return 1 if one was left out."""
    if arguments.engine == "spark":
        with running(arguments.master) as spark:
            found = restore(spark, arguments.archive, arguments.directory).collect()
        return _tell((ArchiveRow(**row.asDict()) for row in found), streams)
    with streams.progress() as progress:
        rows = restore_local(arguments.archive, arguments.directory, on_progress=progress)
    return _tell(rows, streams)


def _tell(rows: Iterable[ArchiveRow], streams: Streams) -> int:
    is_whole = True
    for row in rows:
        is_whole = is_whole and row.state in _DONE
        streams.print_json(asdict(row))
    return 0 if is_whole else 1
