"""Check a store's answers for the pages. The answers may come from anybody who listens in the store's directory.

Every field is checked here: an invalid part is missing or zero, and texts have no control characters. So the templates
may trust these rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ..dispatch.screen.view import ROWS_MAX, DataLogView, number, printable

HEADERS_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class MessageRow:
    """A pending message."""

    message_id: str
    bytes: int
    priority: int
    persistent: bool
    group: str
    """The group of the message; "": it has none."""
    headers: tuple[tuple[str, str], ...]
    other_headers: int
    """Number of further headers, which are not shown."""
    body: str
    """The beginning of the body; "": bodies are not shown."""


@dataclass(frozen=True, slots=True)
class CauseRow:
    """One reason why some messages of a queue are not delivered, and who holds them."""

    reason: str
    holder: str
    messages: int
    bytes: int
    frees: str


@dataclass(frozen=True, slots=True)
class DataLogRow:
    """A data log, and what keeps it."""

    view: DataLogView
    sentence: str

    @property
    def data_log(self) -> int:
        """The id of the data log."""
        return int(self.view.first)

    @property
    def live_percent(self) -> float:
        """The percentage of its bytes that are live."""
        return round(100 * min(self.view.live_bytes / self.view.bytes, 1.0), 1) if self.view.bytes else 0.0


def message_rows(told: Mapping[str, Any]) -> list[MessageRow]:
    """Return the messages in an answer to `browse`."""
    return [_message(row) for row in _rows(told, "messages")]


def cause_rows(told: Mapping[str, Any]) -> list[CauseRow]:
    """Return the causes in an answer to `explain`."""
    return [
        CauseRow(
            reason=text(row, "reason"),
            holder=text(row, "holder"),
            messages=whole(row, "messages"),
            bytes=whole(row, "bytes"),
            frees=text(row, "frees"),
        )
        for row in _rows(told, "causes")
    ]


def data_log_rows(told: Mapping[str, Any]) -> list[DataLogRow]:
    """Return the data logs in an answer to `data_logs`."""
    return [_data_log(row) for row in _rows(told, "data_logs")]


def text(told: Mapping[str, Any], name: str) -> str:
    """Return a text of an answer; "" where there is none."""
    found = told.get(name)
    return printable(found) if isinstance(found, str) else ""


def whole(told: Mapping[str, Any], name: str) -> int:
    """Return a whole number from 0 on; 0 where there is none."""
    return int(number(told.get(name)))


def _message(row: Mapping[str, Any]) -> MessageRow:
    headers = tuple(_headers(row.get("headers")))
    return MessageRow(
        message_id=text(row, "id"),
        bytes=whole(row, "bytes"),
        priority=whole(row, "priority"),
        persistent=row.get("persistent") is not False,
        group=text(row, "group"),
        headers=headers,
        other_headers=max(whole(row, "header_count") - len(headers), 0),
        body=text(row, "body"),
    )


def _headers(found: object) -> Iterator[tuple[str, str]]:
    for header in found[:HEADERS_MAX] if isinstance(found, list) else ():
        if isinstance(header, list) and len(header) == 2:
            yield printable(header[0]), printable(header[1])


def _data_log(row: Mapping[str, Any]) -> DataLogRow:
    data_log, size_bytes, live_bytes = (number(row.get(name)) for name in ("data_log", "bytes", "live_bytes"))
    return DataLogRow(DataLogView(data_log, data_log, size_bytes, live_bytes), text(row, "sentence"))


def _rows(told: Mapping[str, Any], name: str) -> Iterator[Mapping[str, Any]]:
    found = told.get(name)
    for row in found[:ROWS_MAX] if isinstance(found, list) else ():
        if isinstance(row, dict):
            yield row
