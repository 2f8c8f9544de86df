"""Converts rows of a table or of JSON Lines to messages. A row that can't be a message gives an error of one line."""

from __future__ import annotations

import json
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from ...dispatch.config.checks import check_name
from ...dispatch.producer.encoding import encoded_properties
from ...store.errors import SettingsError
from ...store.format.message_properties import NESTING_MAX
from ...store.ingest.part import PRIORITY_MAX, TIMESTAMP_MAX
from ...store.message import DEFAULT_PRIORITY, HeaderValue

FIELDS: Final = ("destination", "body", "headers", "priority", "message_id", "timestamp", "group")
REQUIRED: Final = FIELDS[:2]


class LoadedMessage(NamedTuple):
    """One row, encoded as in the store."""

    destination: str
    priority: int
    timestamp: int
    properties: bytes
    body: bytes


def check_columns(names: list[str]) -> None:
    """Raise SettingsError unless a row with these names can be a message."""
    for name in REQUIRED:
        if name not in names:
            raise SettingsError(f"a load needs the column {name!r}; there are: {', '.join(names) or 'none'}")
    if unknown := sorted(set(names) - set(FIELDS)):
        raise SettingsError(f"unknown column {unknown[0]!r} (known: {', '.join(FIELDS)}): drop it before the load")


def message_of(row: Mapping[str, Any], now_ms: int) -> LoadedMessage:
    """Return the message of a row. Raises SettingsError with the problem of the row. now_ms: the default timestamp."""
    destination = check_name(row["destination"])
    body = row["body"]
    if isinstance(body, str):
        try:
            body = body.encode()
        except UnicodeEncodeError:
            raise SettingsError("body holds half a surrogate pair: it is not text") from None
    if not isinstance(body, bytes | bytearray | memoryview):
        raise SettingsError(f"body must be text or bytes, not {_kind(body)}")
    priority = DEFAULT_PRIORITY if row.get("priority") is None else row["priority"]
    if type(priority) is not int or not 0 <= priority <= PRIORITY_MAX:
        raise SettingsError(f"priority must be a whole number from 0 to {PRIORITY_MAX}, not {priority!r}")
    properties = encoded_properties(_headers(row.get("headers")), row.get("message_id"), row.get("group"))
    return LoadedMessage(destination, priority, _timestamp(row.get("timestamp"), now_ms), properties, bytes(body))


def parse_line(line: bytes | str) -> dict[str, Any]:
    """Parse one object of JSON Lines. A body that is not text is {"base64": "..."}. Raises SettingsError."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        raise SettingsError("not JSON in UTF-8") from None
    if not isinstance(row, dict):
        raise SettingsError("not a JSON object")
    check_columns(list(row))
    row["body"] = _plain(row["body"])
    return row


def _headers(headers: object) -> dict[str, HeaderValue] | None:
    if headers is None:
        return None
    if isinstance(headers, str):
        try:
            headers = json.loads(headers)
        except (ValueError, RecursionError):
            raise SettingsError("headers is text, but not JSON") from None
    if isinstance(headers, list) and all(isinstance(pair, tuple) and len(pair) == 2 for pair in headers):
        headers = dict(headers)  # a map in the form of Arrow
    if not isinstance(headers, dict):
        raise SettingsError(f"headers must be an object or a map, not {_kind(headers)}")
    return {name: _plain(value) for name, value in headers.items()}


def _plain(value: Any, depth: int = 0) -> Any:
    """Return the value behind the forms of `forebay dump`: {"base64": "..."}, {"float": "nan"}."""
    if not isinstance(value, list | dict) or depth > NESTING_MAX:
        return value  # deeper values are refused as a header later
    if isinstance(value, list):
        return [_plain(item, depth + 1) for item in value]
    if len(value) == 1:
        ((kind, text),) = value.items()
        try:
            if kind == "base64" and isinstance(text, str):
                return b64decode(text, validate=True)
            if kind == "float" and text in ("nan", "inf", "-inf"):
                return float(text)
            if kind == "object" and isinstance(text, dict):
                value = text
        except NotBase64:
            raise SettingsError("base64 that is none") from None
    return {name: _plain(item, depth + 1) for name, item in value.items()}


def _timestamp(value: object, now_ms: int) -> int:
    if value is None:
        return now_ms
    if isinstance(value, datetime):
        value = int((value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp() * 1000)
    if type(value) is not int or not 0 <= value <= TIMESTAMP_MAX:
        raise SettingsError(f"timestamp must be a time, or whole milliseconds since 1970, not {value!r}")
    return value


def _kind(value: object) -> str:
    return "nothing" if value is None else type(value).__name__
