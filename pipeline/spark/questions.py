"""The questions answered by Spark: DataFrames with the rows of `local.py`.

It only uses DataFrames. If a part of a journal can't be read, the query fails with one line that names it. With
on_damage="report" the query continues and names it in a row.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from ...store.disk.disk import Disk
from ...store.journal.sync_mark import read_durable_end
from ...store.recovery.verify import DataLogFacts, judge
from ..kernels.fleet import Directories, Store, disk_of, find_stores
from ..kernels.schema import CHECK_COLUMNS, ddl
from ..local import OnDamage, Problem, check_store
from .session import require_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_registered: WeakSet[Any] = WeakSet()


def facts(
    spark: SparkSession,
    directories: Directories,
    *,
    bodies: bool = False,
    relocated: bool = False,
    on_damage: OnDamage = "refuse",
) -> DataFrame:
    """Return a row for each message, run of similar records, or other record; see `forebay.store.inspect.facts.Fact`.

    bodies: include headers (a JSON object) and bodies. relocated: include copies that relocation made; then a message
    may have several rows.
    """
    return _table(spark, directories, "facts", on_damage, bodies=bodies, relocated=relocated)


def check(spark: SparkSession, directories: Directories) -> DataFrame:
    """Return every damaged place: broker, data_log, offset, problem. Runs at once."""
    from ..kernels.checking import from_text

    found: dict[Store, dict[int, DataLogFacts]] = {}
    for row in _table(spark, directories, "examined", "refuse").collect():
        found.setdefault(Store(row.broker, row.root), {})[row.data_log] = from_text(row.found)
    problems = [problem for store in sorted(found) for problem in problems_of(store, disk_of(store), found[store])]
    return spark.createDataFrame([tuple(problem) for problem in problems], ddl(CHECK_COLUMNS))


def problems_of(store: Store, disk: Disk, found: Mapping[int, DataLogFacts]) -> list[Problem]:
    """Combine the findings of tasks in the data logs of a store.

    Tasks read in no order. If the findings do not fit together, this process examines data logs without a seal, and
    later ones, again. There are two causes beside a live owner: a data log may be read before it is finished, and the
    next one after that; or it may be gone before the record that drops it is read. Also, damage may look like the
    journal's tail as long as the record that knows better was not read.
    """
    verdict = judge([found[data_log] for data_log in sorted(found)], read_durable_end(disk))
    if not verdict.findings and verdict.tail is None:
        return []
    return check_store(store, disk, {data_log: facts for data_log, facts in found.items() if facts.is_sealed})


def explain_pins(spark: SparkSession, directories: Directories, *, on_damage: OnDamage = "refuse") -> DataFrame:
    """Return why data logs remain, a row for each reason, as in `bay.explain`."""
    return _table(spark, directories, "pins", on_damage)


def backlog(spark: SparkSession, directories: Directories, *, on_damage: OnDamage = "refuse") -> DataFrame:
    """Return the backlog, a row for each queue and durable subscription: messages, bytes, oldest_seconds."""
    return _table(spark, directories, "backlog", on_damage)


def rebuild_index(spark: SparkSession, directory: Directories) -> DataFrame:
    """Return the blocks of the index, made from the journal: broker, lane, block, messages, packed; sorted.

    The source gives them in this order. To sort, Spark would replay each journal twice: once for a sample.
    """
    return _table(spark, directory, "index", "refuse")


def register(spark: SparkSession) -> None:
    """Make the data source known to a session that did not find it by itself. Call it once for each session."""
    require_spark()
    from .source import ForebaySource

    if spark not in _registered:
        spark.dataSource.register(ForebaySource)
        _registered.add(spark)


def _table(spark: SparkSession, directories: Directories, table: str, on_damage: OnDamage, **flags: bool) -> DataFrame:
    register(spark)
    find_stores(directories)  # an invalid directory is reported here, in one line
    reader = spark.read.format("forebay").option("table", table).option("onDamage", on_damage)
    for name, value in flags.items():
        reader = reader.option(name, value)
    context = getattr(spark, "sparkContext", None)
    if context is not None:
        reader = reader.option("parallelism", context.defaultParallelism)
    return reader.load(paths_of(directories))


def paths_of(directories: Directories) -> list[str]:
    """Return absolute paths, because workers have another working directory."""
    given: Iterable[Any] = [directories] if isinstance(directories, str | os.PathLike) else directories
    return [os.path.abspath(os.fspath(one)) for one in given]
