"""`forebay pipeline facts`, `check`, `pins`, `backlog` and `rebuild`: arguments to lines of JSON and an exit code.

A line is a row; what could not be read is a row too, and the exit code says
so: 0 done and whole, 1 damage or something not read, 2 wrong usage.
"""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any, Final
from zlib import crc32

from ...store.errors import ForebayError
from .. import local
from ..errors import SparkFailed, SparkMissing
from ..kernels.fleet import find_stores

Print = Callable[[str], object]
Row = dict[str, Any]

_HELP: Final = {
    "facts": "each message, ack and other record of the journals, a line each",
    "check": "verify every byte, a line a damaged place",
    "pins": "why data logs remain, a line a reason",
    "backlog": "what is pending, a line a queue and durable subscription",
    "rebuild": "the blocks of the index made from the journal, a line each, with the checksum of its bytes",
}


def add_commands(add_parser: Callable[..., ArgumentParser]) -> None:
    """Add the commands of `forebay pipeline` that answer questions."""
    for name, text in _HELP.items():
        parser = add_parser(name, help=text)
        parser.add_argument("directories", metavar="DIR", nargs="+", help="of any number of brokers; a glob is fine")
        parser.add_argument("--engine", choices=("local", "spark"), default="local", help="(%(default)s)")
        parser.add_argument("--master", default="local[*]", help="of Spark (%(default)s)")
        if name in ("facts", "pins", "backlog"):
            parser.add_argument(
                "--on-damage",
                choices=("refuse", "report"),
                default="refuse",
                help="what cannot be read ends the command, or is a line of its own (%(default)s)",
            )
        if name == "facts":
            parser.add_argument("--bodies", action="store_true", help="with headers and bodies")
            parser.add_argument("--relocated", action="store_true", help="with the copies that relocation made")
        parser.set_defaults(run=run, question=name)


def run(arguments: Namespace, print_line: Print = print) -> int:
    """Print the rows. Their order is by place with one process, and Spark's own with Spark."""
    rows = _by_spark(arguments) if arguments.engine == "spark" else _by_this_process(arguments)
    is_whole = True
    for row in rows:
        is_whole = is_whole and row.get("problem") is None
        print_line(json.dumps(_plain(row)))
    return 0 if is_whole else 1


def _fields(arguments: Namespace) -> dict[str, Any]:
    names = ("bodies", "relocated", "on_damage")
    return {name: getattr(arguments, name) for name in names if hasattr(arguments, name)}


def _by_this_process(arguments: Namespace) -> Iterator[Row]:
    question, directories, fields = arguments.question, arguments.directories, _fields(arguments)
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


def _by_spark(arguments: Namespace) -> Iterator[Row]:
    from ..spark import questions
    from ..spark.session import session

    asked: dict[str, Callable[..., Any]] = {
        "facts": questions.facts,
        "check": questions.check,
        "pins": questions.explain_pins,
        "backlog": questions.backlog,
        "rebuild": questions.rebuild_index,
    }
    find_stores(arguments.directories)  # before a JVM is started for nothing
    spark = session(arguments.master)
    try:
        frame = asked[arguments.question](spark, arguments.directories, **_fields(arguments))
        yield from _rows_of(spark.sparkContext, frame.rdd)
    except ForebayError:
        raise
    except Exception as error:
        raise SparkFailed(_cause(error)) from error
    finally:
        spark.stop()


def _rows_of(context: Any, rdd: Any) -> Iterator[Row]:
    """Yield the rows of all partitions in their order. Twice as many partitions as there are cores are at work, and in
    memory, at a time: `toLocalIterator` would run one after the other.
    """
    partitions, at_once = rdd.getNumPartitions(), 2 * context.defaultParallelism
    for first in range(0, partitions, at_once):
        for row in context.runJob(rdd, list, range(first, min(first + at_once, partitions))):
            yield row.asDict()


def _cause(error: Exception) -> str:
    """Return the line of an error from Spark that says what was wrong."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith("forebay.")]
    text = ours[-1].partition(": ")[2] if ours else (lines or [type(error).__name__])[0]
    return f"not everything was read: {text}"


def _plain(row: Row) -> Row:
    """Return a value that JSON can hold: the bytes of a block as their checksum, those of a body in base64."""
    return {name: _plain_value(name, value) for name, value in row.items()}


def _plain_value(name: str, value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, bytes | bytearray):
        return f"{crc32(value):08x}" if name == "packed" else b64encode(value).decode()
    return value
