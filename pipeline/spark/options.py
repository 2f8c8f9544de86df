"""The checked options of the data source "forebay": those of a table and those of a stream."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql.types import StructType

from ...dispatch.config.sizes import parse_size
from ...store.errors import SettingsError
from ...store.maintenance.leases import validate_lease_name
from .. import local
from ..kernels.schema import BACKLOG_COLUMNS, INDEX_COLUMNS, PINS_COLUMNS, PROBLEM_COLUMNS, columns, ddl

PARTITION_BYTES: Final = 512 << 20
"""Bytes of data logs in a task. A task itself costs as much as reading 100 MiB."""
PARALLELISM: Final = 2
LEASE_SECONDS: Final = 3600

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


@dataclass(frozen=True)
class Options:
    """The checked options of a table."""

    directories: tuple[str, ...]
    table: str = FACTS
    bodies: bool = False
    relocated: bool = False
    reports: bool = False
    partition_bytes: int = PARTITION_BYTES
    parallelism: int = PARALLELISM

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> Options:
        """Check options as Spark gives them. Raises SettingsError for an invalid one."""
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
            _flag(options, "bodies"),
            _flag(options, "relocated"),
            _choice(options, "ondamage", "refuse", local.REPORT) == local.REPORT,
            _byte_count(options, "partitionbytes", PARTITION_BYTES),
            _count(options, "parallelism", PARALLELISM),
        )

    @property
    def columns(self) -> dict[str, str]:
        if self.table == FACTS:
            return columns(bodies=self.bodies, problems=self.reports)
        has_problem = self.reports and self.table in ("pins", "backlog")
        return _TABLES[self.table] | (PROBLEM_COLUMNS if has_problem else {})

    def chosen(self, schema: StructType) -> dict[str, str]:
        """Return the columns of a schema. Raises SettingsError if there is no such column, or it has another type."""
        known = columns(bodies=True, problems=self.reports) if self.table == FACTS else self.columns
        asked = {field.name: field.dataType.simpleString().replace("bigint", "long") for field in schema.fields}
        for name, kind in asked.items():
            if known.get(name) != kind:
                there = ddl(known)
                raise SettingsError(f"column {name} {kind} is not one of: {there}")
        if self.table != FACTS and list(asked) != list(known):
            raise SettingsError(f"the columns of {self.table} are {ddl(known)}")
        return asked


@dataclass(frozen=True)
class StreamOptions:
    """The checked options of a stream."""

    lease: str | None
    lease_ms: int
    max_bytes: int | None
    is_latest: bool

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> StreamOptions:
        """Check options as Spark gives them. Raises SettingsError for an invalid one."""
        options = {name.lower(): value for name, value in given.items()}
        lease = options.get("lease")
        if lease is not None:
            validate_lease_name(lease)
        elif "leaseseconds" in options:
            raise SettingsError("leaseSeconds says how long a lease holds: name one with lease")
        return cls(
            lease,
            1000 * _count(options, "leaseseconds", LEASE_SECONDS),
            _byte_count(options, "maxbytespertrigger", 0) or None,
            _choice(options, "startingoffset", "earliest", "latest") == "latest",
        )


def _directories(options: Mapping[str, str]) -> tuple[str, ...]:
    if "paths" in options:
        return tuple(json.loads(options["paths"]))
    if "path" not in options:
        raise SettingsError("no path: name what was given to forebay.open, several, or a glob of them")
    return (options["path"],)


def _flag(options: Mapping[str, str], name: str) -> bool:
    return _choice(options, name, "false", "true") == "true"


def _choice(options: Mapping[str, str], name: str, *choices: str) -> str:
    value = options.get(name, choices[0]).lower()
    if value not in choices:
        raise SettingsError(f"{name}={options[name]!r} must be {' or '.join(choices)}")
    return value


def _byte_count(options: Mapping[str, str], name: str, default: int) -> int:
    if name not in options:
        return default
    text = options[name]
    return parse_size(name, int(text) if text.isdecimal() else text, minimum=1)


def _count(options: Mapping[str, str], name: str, default: int) -> int:
    text = options.get(name, str(default))
    if not text.isdecimal() or int(text) < 1:
        raise SettingsError(f"{name}={text!r} must be a number above 0")
    return int(text)
