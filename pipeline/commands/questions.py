"""`forebay pipeline facts`, `backlog` and `rebuild`, and the rows of every question as lines of JSON.

A line is a row. Damage and unread parts are rows too. The exit code is 0 for a whole answer, 1 for damage or unread
parts, 2 for wrong usage.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from functools import partial
from typing import Any
from zlib import crc32

from ...dispatch.commands.shared_arguments import add_json
from ...dispatch.commands.streams import Streams
from .. import local
from ..errors import SparkMissing
from ..kernels.fleet import find_stores
from .engines import add_engine, running

Row = dict[str, Any]


def add_facts(parser: ArgumentParser) -> None:
    """Define `forebay pipeline facts`."""
    parser.description = "Print each message, ack and other record of the journals, a line of JSON each."
    _add(parser, "facts")
    add_on_damage(parser)
    parser.add_argument("--bodies", action="store_true", help="with headers and bodies")
    parser.add_argument("--relocated", action="store_true", help="with the copies that relocation made")


def add_backlog(parser: ArgumentParser) -> None:
    """Define `forebay pipeline backlog`."""
    parser.description = "Print what is pending, a line of JSON a queue and durable subscription."
    _add(parser, "backlog")
    add_on_damage(parser)


def add_rebuild(parser: ArgumentParser) -> None:
    """Define `forebay pipeline rebuild`."""
    parser.description = (
        "Print the blocks of the index made from the journal, a line of JSON each, with the checksum of its bytes."
    )
    _add(parser, "rebuild")


def add_check(parser: ArgumentParser) -> None:
    """Define `forebay pipeline check`, which is `forebay verify --json` now."""
    _add(parser, "check")


def add_pins(parser: ArgumentParser) -> None:
    """Define `forebay pipeline pins`, which is `forebay explain --json` now."""
    _add(parser, "pins")
    add_on_damage(parser)


def _add(parser: ArgumentParser, question: str) -> None:
    parser.add_argument("directories", metavar="DIR", nargs="+", help="of any number of brokers; a glob is fine")
    add_engine(parser)
    add_json(parser, "it always does")
    parser.set_defaults(run=partial(run, question))


def add_on_damage(parser: ArgumentParser) -> None:
    """Add the option --on-damage."""
    parser.add_argument(
        "--on-damage",
        choices=("refuse", "report"),
        default="refuse",
        help="what cannot be read ends the command, or is a line of its own (%(default)s)",
    )


def run(question: str, arguments: Namespace, streams: Streams) -> int:
    """Print the rows. With one process they are ordered by place; with Spark the order is Spark's."""
    is_whole = True
    for row in rows_of(question, arguments):
        is_whole = is_whole and row.get("problem") is None
        streams.print_json(_plain(row))
    return 0 if is_whole else 1


def rows_of(question: str, arguments: Namespace) -> Iterator[Row]:
    """Yield the rows that answer a question, by the requested engine."""
    by_engine = _by_spark if arguments.engine == "spark" else _by_this_process
    return by_engine(question, arguments)


def _fields(arguments: Namespace) -> dict[str, Any]:
    names = ("bodies", "relocated", "on_damage")
    return {name: getattr(arguments, name) for name in names if hasattr(arguments, name)}


def _by_this_process(question: str, arguments: Namespace) -> Iterator[Row]:
    directories, fields = arguments.directories, _fields(arguments)
    if question == "facts":
        try:
            for batch in local.facts(directories, **fields):
                yield from batch.to_pylist()
        except ImportError as error:
            raise SparkMissing(f"facts need {error.name}, without Spark too: pip install 'forebay[spark]'") from error
        return
    asked: dict[str, Callable[..., Iterable[Any]]] = {
        "check": local.check,
        "pins": local.explain_pins,
        "backlog": local.backlog,
        "rebuild": local.rebuild_index,
    }
    for row in asked[question](directories, **fields):
        yield row._asdict()


def _by_spark(question: str, arguments: Namespace) -> Iterator[Row]:
    from ..spark import questions

    asked: dict[str, Callable[..., Any]] = {
        "facts": questions.facts,
        "check": questions.check,
        "pins": questions.explain_pins,
        "backlog": questions.backlog,
        "rebuild": questions.rebuild_index,
    }
    find_stores(arguments.directories)  # check the directories before a JVM is started
    with running(arguments.master, "not everything was read: ") as spark:
        frame = asked[question](spark, arguments.directories, **_fields(arguments))
        yield from rows_of_partitions(spark.sparkContext, frame.rdd)


def rows_of_partitions(context: Any, rdd: Any) -> Iterator[Row]:
    """Yield the rows of all partitions in order. Twice as many partitions as cores are computed and in memory at a
    time: `toLocalIterator` would run one after the other.
    """
    partitions, at_once = rdd.getNumPartitions(), 2 * context.defaultParallelism
    for first in range(0, partitions, at_once):
        for row in context.runJob(rdd, list, range(first, min(first + at_once, partitions))):
            yield row.asDict()


def _plain(row: Row) -> Row:
    """Return a row that JSON can express: the bytes of a block as their checksum, those of a body in base64."""
    return {name: _plain_value(name, value) for name, value in row.items()}


def _plain_value(name: str, value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, bytes | bytearray):
        return f"{crc32(value):08x}" if name == "packed" else b64encode(value).decode()
    return value
