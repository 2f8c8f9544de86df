"""The columns of facts, for Arrow and for Spark. They are in one place, because Spark compares both exactly."""

from __future__ import annotations

from typing import Any, Final

COLUMNS: Final = {
    "broker": "string",
    "data_log": "int",
    "offset": "long",
    "length": "long",
    "kind": "string",
    "destination": "string",
    "sequence": "long",
    "message_id": "string",
    "timestamp": "timestamp",
    "priority": "int",
    "expires_at": "timestamp",
    "transaction": "string",
    "subscription": "string",
    "producer": "string",
    "messages": "long",
    "content_bytes": "long",
}
"""Name and type in Spark's SQL."""
BODY_COLUMNS: Final = {"headers": "string", "body": "binary"}
PROBLEM_COLUMNS: Final = {"problem": "string"}

CHECK_COLUMNS: Final = {"broker": "string", "data_log": "int", "offset": "long", "problem": "string"}
PINS_COLUMNS: Final = {
    "broker": "string",
    "data_log": "int",
    "reason": "string",
    "holder": "string",
    "messages": "long",
    "bytes": "long",
    "oldest_seconds": "double",
    "frees": "string",
    "data_logs": "string",
}
BACKLOG_COLUMNS: Final = {
    "broker": "string",
    "destination": "string",
    "subscription": "string",
    "messages": "long",
    "bytes": "long",
    "oldest_seconds": "double",
    "producers": "long",
}
INDEX_COLUMNS: Final = {"broker": "string", "lane": "long", "block": "long", "messages": "int", "packed": "binary"}

TIME_MS_MAX: Final = 253_402_300_799_999
"""The end of the year 9999, the last one that Spark supports."""


def columns(*, bodies: bool = False, problems: bool = False) -> dict[str, str]:
    """Return all columns, in order."""
    return COLUMNS | (BODY_COLUMNS if bodies else {}) | (PROBLEM_COLUMNS if problems else {})


def ddl(names: dict[str, str]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in names.items())


def arrow_schema(names: dict[str, str]) -> Any:
    """Return the columns as a pyarrow.Schema."""
    import pyarrow as pa

    kinds = {
        "string": pa.string(),
        "int": pa.int32(),
        "long": pa.int64(),
        "double": pa.float64(),
        "binary": pa.binary(),
        "timestamp": pa.timestamp("us", tz="UTC"),
    }
    return pa.schema([(name, kinds[kind]) for name, kind in names.items()])
