"""InputFile: a user's own messages as the workload, one JSON object a line.

A line that can't be sent is refused with its number before anything is sent; nothing is skipped. Each message gets two
more headers, its line and the checksum of its body. So a delivery can be identified and verified without a record of
what was sent.
"""

from __future__ import annotations

import json
import os
import zlib
from array import array
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from forebay.store.errors import SettingsError
from forebay.store.format.message_properties import encode_properties
from forebay.store.message import DEFAULT_PRIORITY, Message

from .scenario import ConsumerPlan, Kind
from .workload import BATCH_BYTES, LoadBatch, Room

if TYPE_CHECKING:
    from forebay import Delivery

LINE_HEADER: Final = "load_line"
CRC32_HEADER: Final = "load_crc32"

_FIELDS: Final = ("destination", "body", "headers", "priority", "message_id", "group")


class InputFile:
    """The file as one producer; n is the line, counted from 0. Empty until examined."""

    def __init__(self, path: str) -> None:
        self.counts = [0]
        self.total_bytes = 0
        self._lanes = array("I")
        self.destinations: list[str] = []
        self._path = path

    def examine(self) -> None:
        """Read the file once from end to end; SettingsError names the first line that cannot be sent."""
        if not os.path.isfile(self._path):
            raise SettingsError(f"input={self._path} is not a file")
        lanes: dict[tuple[str, int, str | None], int] = {}
        for destination, message in self._messages(0):
            self._lanes.append(lanes.setdefault((destination, message.priority, message.group), len(lanes)))
            self.total_bytes += len(message.body)
        if not lanes:
            raise SettingsError(f"input={self._path} is empty")
        self.counts = [len(self._lanes)]
        self.destinations = list(dict.fromkeys(destination for destination, _, _ in lanes))

    @property
    def kinds(self) -> Mapping[Kind, int]:
        return {"plain": self.counts[0]}

    def lane(self, producer: int, n: int) -> int:
        return self._lanes[n]

    def is_for(self, consumer: ConsumerPlan, producer: int, n: int) -> bool:
        return True

    def batches(self, producer: int, start: int, room: Room) -> Iterator[LoadBatch]:
        assert producer == 0
        stop = start
        left = size_bytes = 0
        messages: dict[str, list[Message]] = {}
        for destination, message in self._messages(start):
            left = left or room(stop)
            messages.setdefault(destination, []).append(message)
            stop += 1
            left -= 1
            size_bytes += len(message.body)
            if not left or size_bytes >= BATCH_BYTES:
                yield LoadBatch(stop, messages)
                messages, left, size_bytes = {}, 0, 0
        if messages:
            yield LoadBatch(stop, messages)

    def check(self, arrived: Sequence[Delivery | Message]) -> tuple[array[int], list[str]]:
        keys = array("Q")
        damaged = []
        for message in arrived:
            body, headers = message.body, message.headers or {}
            n = headers.get(LINE_HEADER)
            if isinstance(n, int) and zlib.crc32(body) == headers.get(CRC32_HEADER):
                keys.append(n)
            else:
                damaged.append(f"line {n!r}, {len(body)} bytes")
        return keys, damaged

    def as_plan(self) -> dict[str, Any]:
        return {"path": self._path}

    def _messages(self, start: int) -> Iterator[tuple[str, Message]]:
        with Path(self._path).open("rb") as file:
            for n, line in islice(enumerate(file), start, None):
                try:
                    yield _parse(n, line)
                except (ValueError, RecursionError) as problem:
                    raise SettingsError(f"input={self._path}, line {n + 1}: {problem}") from None


def _parse(n: int, line: bytes) -> tuple[str, Message]:
    """Return destination and message of one line. ValueError names the problem."""
    try:
        fields = json.loads(line.decode())
    except UnicodeDecodeError:
        raise ValueError("not UTF-8") from None
    except json.JSONDecodeError as problem:
        raise ValueError(f"not JSON ({problem.msg}, column {problem.colno})") from None
    if not isinstance(fields, dict):
        raise ValueError("not a JSON object")
    if unknown := set(fields) - set(_FIELDS):
        raise ValueError(f"unknown field {min(unknown)!r} (known: {', '.join(_FIELDS)})")
    destination = _text(fields, "destination")
    if not destination:
        raise ValueError("destination is empty")
    body = _text(fields, "body").encode()
    headers = {} if fields.get("headers") is None else fields["headers"]
    if not isinstance(headers, dict):
        raise ValueError("headers is not an object")
    if taken := {LINE_HEADER, CRC32_HEADER} & set(headers):
        raise ValueError(f"the load test needs the header {min(taken)!r} for itself")
    priority = fields.get("priority", DEFAULT_PRIORITY)
    if type(priority) is not int or not 0 <= priority <= 9:
        raise ValueError("priority is not a whole number from 0 to 9")
    message_id = None if fields.get("message_id") is None else _text(fields, "message_id")
    group = None if fields.get("group") is None else _text(fields, "group")
    if group == "":
        raise ValueError("group is empty")
    headers |= {LINE_HEADER: n, CRC32_HEADER: zlib.crc32(body)}
    encode_properties(headers, message_id, group)
    return destination, Message(body, headers, priority=priority, message_id=message_id, group=group)


def _text(fields: dict[str, Any], name: str) -> str:
    if name not in fields:
        raise ValueError(f"{name} is missing")
    if not isinstance(fields[name], str):
        raise ValueError(f"{name} is not a string")
    value: str = fields[name]
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{name} holds half a surrogate pair: it is not text") from None
    return value
