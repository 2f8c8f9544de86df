"""The data source "forebay": journals as tables of Spark, read where its tasks run.

    spark.read.format("forebay").load("/brokers/*")
    CREATE TEMPORARY VIEW facts USING forebay OPTIONS (path '/brokers/*')

Options: `table` (facts, pins, backlog, index, examined), `bodies`,
`relocated`, `onDamage` (refuse, report), `partitionBytes`, `parallelism`;
those of a stream are in spark/stream.py. A given schema chooses among the columns
of facts, and what is not in it is never made.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.types import StructType

from ...dispatch.config.sizes import parse_size
from ...store.clock import SystemClock
from ...store.disk.disk import OsDisk
from ...store.errors import ForebayError, SettingsError
from ...store.inspect.facts import Wanted
from ...store.journal.scan import open_data_logs
from .. import local
from ..kernels.filters import Condition, applied, condition_of, prunes
from ..kernels.fleet import Part, Store, find_stores, plan
from ..kernels.schema import BACKLOG_COLUMNS, INDEX_COLUMNS, PINS_COLUMNS, PROBLEM_COLUMNS, columns, ddl
from .stream import ForebayStream, StreamOptions
from .worker import settle

PARTITION_BYTES: Final = 512 << 20
"""A task costs as much as reading 100 MiB, so data logs are packed."""
PARTITION_BYTES_MIN: Final = 64 << 20
"""Smaller ones are not made to keep more cores busy."""
PARALLELISM: Final = 2

FACTS: Final = "facts"
EXAMINED: Final = "examined"
_TABLES: Final = {
    "pins": PINS_COLUMNS,
    "backlog": BACKLOG_COLUMNS,
    "index": INDEX_COLUMNS,
    EXAMINED: {"broker": "string", "root": "string", "data_log": "int", "found": "string"},
}
_BATCH: Final = frozenset(
    ("path", "paths", "table", "bodies", "relocated", "ondamage", "partitionbytes", "parallelism")
)
_STREAM: Final = frozenset(("lease", "leaseseconds", "maxbytespertrigger", "startingoffset"))
_PUSHDOWN_WORKER: Final = "pyspark.sql.worker.data_source_pushdown_filters"


@dataclass(frozen=True)
class Options:
    """What the reader asked for, checked."""

    directories: tuple[str, ...]
    table: str = FACTS
    bodies: bool = False
    relocated: bool = False
    reports: bool = False
    partition_bytes: int = PARTITION_BYTES
    parallelism: int = PARALLELISM

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> Options:
        """SettingsError names the option that cannot be honoured."""
        options = {name.lower(): value for name, value in given.items()}
        unknown = sorted(set(options) - _BATCH - _STREAM)
        if unknown:
            raise SettingsError(f"unknown option {unknown[0]!r}: there are {', '.join(sorted(_BATCH | _STREAM))}")
        table = options.get("table", FACTS)
        if table not in (FACTS, *_TABLES):
            raise SettingsError(f"table={table!r}: there are {', '.join((FACTS, *_TABLES))}")
        return cls(
            _directories(options),
            table,
            flag(options, "bodies"),
            flag(options, "relocated"),
            choice(options, "ondamage", "refuse", local.REPORT) == local.REPORT,
            byte_count(options, "partitionbytes", PARTITION_BYTES),
            count(options, "parallelism", PARALLELISM),
        )

    @property
    def columns(self) -> dict[str, str]:
        if self.table == FACTS:
            return columns(bodies=self.bodies, problems=self.reports)
        has_problem = self.reports and self.table in ("pins", "backlog")
        return _TABLES[self.table] | (PROBLEM_COLUMNS if has_problem else {})

    def chosen(self, schema: StructType) -> dict[str, str]:
        """The columns of a schema. SettingsError for one that there is not, or of another type."""
        known = columns(bodies=True, problems=self.reports) if self.table == FACTS else self.columns
        asked = {field.name: field.dataType.simpleString().replace("bigint", "long") for field in schema.fields}
        for name, kind in asked.items():
            if known.get(name) != kind:
                there = ddl(known)
                raise SettingsError(f"column {name} {kind} is not one of: {there}")
        if self.table != FACTS and list(asked) != list(known):
            raise SettingsError(f"the columns of {self.table} are {ddl(known)}")
        return asked


def _directories(options: Mapping[str, str]) -> tuple[str, ...]:
    if "paths" in options:
        return tuple(json.loads(options["paths"]))
    if "path" not in options:
        raise SettingsError("no path: name what was given to forebay.open, several, or a glob of them")
    return (options["path"],)


def flag(options: Mapping[str, str], name: str) -> bool:
    return choice(options, name, "false", "true") == "true"


def choice(options: Mapping[str, str], name: str, *choices: str) -> str:
    value = options.get(name, choices[0]).lower()
    if value not in choices:
        raise SettingsError(f"{name}={options[name]!r} must be {' or '.join(choices)}")
    return value


def byte_count(options: Mapping[str, str], name: str, default: int) -> int:
    if name not in options:
        return default
    text = options[name]
    return parse_size(name, int(text) if text.isdecimal() else text, minimum=1)


def count(options: Mapping[str, str], name: str, default: int) -> int:
    text = options.get(name, str(default))
    if not text.isdecimal() or int(text) < 1:
        raise SettingsError(f"{name}={text!r} must be a number above 0")
    return int(text)


class StorePart(InputPartition):
    """What one task reads: parts of stores, or whole stores (of which the parts are empty)."""

    def __init__(self, stores: list[tuple[Store, list[Part]]]) -> None:
        super().__init__(None)
        self.stores = stores


class ForebaySource(DataSource):
    """See the module. Spark makes it by its name."""

    @classmethod
    def name(cls) -> str:
        return "forebay"

    def _parsed(self) -> Options:
        return Options.parse(dict(self.options.items()))

    def schema(self) -> str:
        return ddl(self._parsed().columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        options = self._parsed()
        asked = options.chosen(schema)
        if options.table != FACTS:
            return TableReader(options)
        # Spark refuses a reader that takes filters where its setting does not allow it, and says so by nothing else.
        return (FilteringReader if _PUSHDOWN_WORKER in sys.modules else FactsReader)(options, asked)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        options = self._parsed()
        if options.table != FACTS:
            raise SettingsError(f"a stream has facts, not {options.table}")
        asked = options.chosen(schema)
        wanted = Wanted("headers" in asked or "body" in asked, options.relocated)
        stream = StreamOptions.parse(dict(self.options.items()))
        return ForebayStream(options.directories, asked, wanted, options.reports, stream)


class FactsReader(DataSourceReader):
    """Rows of facts."""

    def __init__(self, options: Options, asked: dict[str, str]) -> None:
        self._options = options
        self._asked = asked
        self._conditions: list[Condition] = []

    def partitions(self) -> Sequence[InputPartition]:
        """The data logs that are there now, packed."""
        found = [
            (store, part)
            for store in find_stores(self._options.directories)
            for part in plan(OsDisk(store.root))
            if not prunes(self._conditions, store.broker, part.data_log)
        ]
        return packed(found, self._options)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        if not isinstance(partition, StorePart):
            return  # there was nothing to read
        from ..kernels.batches import Request, batches

        settle()
        options = self._options
        asked = self._asked
        hidden = {
            name: columns()[name] for condition in self._conditions for name in [condition.column] if name not in asked
        }
        wanted = Wanted("headers" in asked or "body" in asked, options.relocated)
        keep = partial(applied, conditions=self._conditions, names=tuple(asked)) if self._conditions else None
        for store, parts in partition.stores:
            request = Request(store.broker, asked | hidden, wanted, options.reports, keep)
            for part in parts:
                yield from batches(OsDisk(store.root), request, part)


class FilteringReader(FactsReader):
    """The same, with conditions: rows are left out before Spark gets them, and data logs before they are read."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Take over those that can be; the others are Spark's."""
        for one in filters:
            condition = condition_of(one, columns(problems=self._options.reports))
            if condition is None:
                yield one
            else:
                self._conditions.append(condition)


class TableReader(DataSourceReader):
    """Rows of the other tables: a task a store, or a few data logs."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._now_ms = SystemClock().time_ms()

    def partitions(self) -> Sequence[InputPartition]:
        stores = find_stores(self._options.directories)
        if self._options.table != EXAMINED:
            return [StorePart([(store, [])]) for store in stores]
        found = [(store, Part(data_log, size)) for store in stores for data_log, size in _sizes(OsDisk(store.root))]
        return packed(found, self._options)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        if not isinstance(partition, StorePart):
            return
        settle()
        for store, parts in partition.stores:
            if self._options.table == EXAMINED:
                yield from examined(store, parts)
            else:
                yield from self._rows(store)

    def _rows(self, store: Store) -> Iterator[tuple[Any, ...]]:
        disk, table = OsDisk(store.root), self._options.table
        width = len(self._options.columns)
        try:
            if table == "pins":
                rows: Sequence[tuple[Any, ...]] = local.pins_of(store, disk, self._now_ms)
            elif table == "backlog":
                rows = local.backlog_of(store, disk, self._now_ms)
            else:
                rows = local.index_of(store, disk, self._now_ms)
        except (ForebayError, OSError) as error:
            if table == "index":
                raise local.named(store, error) from error
            if not self._options.reports:
                raise local.named(store, error, local.GO_ON) from error
            yield (store.broker, *[None] * (width - 2), local.problem_text(error))
        else:
            for row in rows:
                yield tuple(row)[:width]


def _sizes(disk: OsDisk) -> Iterator[tuple[int, int]]:
    for data_log, file in open_data_logs(disk):
        yield data_log, 0 if isinstance(file, OSError) else file.size()


def examined(store: Store, parts: list[Part]) -> Iterator[tuple[Any, ...]]:
    """(broker, root, data log, what was found in it as JSON)."""
    from ..kernels.checking import examine_by_columns, to_text

    wanted = {part.data_log for part in parts}
    disk = OsDisk(store.root)
    for data_log in sorted(wanted):
        # One that has gone by now is passed over as in a listing made now; judging misses it where nothing dropped it.
        for found, file in open_data_logs(disk, data_log - 1):
            if found == data_log:
                yield store.broker, store.root, data_log, to_text(examine_by_columns(data_log, file))
            break


def packed(found: Sequence[tuple[Store, Part]], options: Options) -> list[InputPartition]:
    """Parts in bins of about the same size, each at most about partition_bytes, in order within.

    More bins than tasks at once are a multiple of those: else the last ones would leave cores idle.
    """
    total = sum(part.size_bytes for _, part in found)
    bins, at_once = -(-total // options.partition_bytes), options.parallelism
    if bins > at_once:
        bins = -(-bins // at_once) * at_once
    else:
        bins = max(bins, min(at_once, -(-total // PARTITION_BYTES_MIN)), 1)
    filled = [0] * bins
    chosen: list[list[tuple[Store, Part]]] = [[] for _ in range(bins)]
    for one in sorted(found, key=lambda item: -item[1].size_bytes):
        least = filled.index(min(filled))
        filled[least] += one[1].size_bytes
        chosen[least].append(one)
    partitions: list[InputPartition] = []
    for members in chosen:
        stores: dict[Store, list[Part]] = {}
        for store, part in sorted(members, key=lambda item: (item[0], item[1].data_log)):
            stores.setdefault(store, []).append(part)
        if stores:
            partitions.append(StorePart(list(stores.items())))
    return partitions
