"""The choice of the engine that answers a question: this process, or Spark."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ...store.errors import ForebayError
from ..errors import SparkFailed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def add_engine(parser: ArgumentParser) -> None:
    """Add the options --engine and --master."""
    parser.add_argument(
        "--engine", choices=("local", "spark"), default="local", help="who does the work: this process, or Spark"
    )
    parser.add_argument("--master", metavar="URL", default="local[*]", help="of Spark (%(default)s)")


@contextmanager
def running(master: str, problem: str = "") -> Iterator[SparkSession]:
    """Provide a session for the body of a `with`, and turn exceptions of Spark into one line.

    problem: text before that line.
    """
    from ..spark.session import session

    spark = session(master)
    try:
        yield spark
    except ForebayError:
        raise
    except Exception as error:
        raise SparkFailed(f"{problem}{_cause(error)}") from error
    finally:
        spark.stop()


def _cause(error: Exception) -> str:
    """Return the line of an error from Spark that tells the cause."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    ours = [line.partition(": ")[2] for line in lines if line.startswith("forebay.")]
    return (ours[-1:] or lines or [type(error).__name__])[0]
