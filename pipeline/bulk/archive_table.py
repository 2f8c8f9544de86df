"""One data log as one Parquet file, and back, byte for byte.

There is one row for each message, and one for each record without messages; the first row is the data log's header. The
columns `head`, `properties` and `body` of all rows, one after the other, are the bytes of the data log. The other
columns describe the content, for queries with SQL. The file's metadata has size and checksum of the whole. A file is
written under another name, read back and compared, synced, and then renamed. So a crash leaves the whole file, or one
under a temporary name that does not count.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from ...store.disk.disk import File
from ...store.errors import ForebayError
from ...store.format.message_properties import decode_properties
from ...store.format.record import (
    DESTINATION,
    HEADER_BYTES,
    KIND_NAMES,
    MESSAGE,
    RELOCATED,
    STATE,
    RecordDamaged,
    crc32,
    decode_slice,
)
from ...store.format.state_record import decode_destination, decode_state
from ...store.inspect.dump import plain_headers
from ...store.journal.data_log import DATA_LOG_HEADER_BYTES, DataLogHeader, crc_of, decode_data_log_header
from ...store.journal.scan import Damage, FoundRecord, scan
from ...store.message import id_prefix

SCHEMA: Final = pa.schema(
    [
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("destination", pa.string()),
        pa.field("priority", pa.int32()),
        pa.field("sequence", pa.int64()),
        pa.field("timestamp", pa.timestamp("ms", tz="UTC")),
        pa.field("message_id", pa.string()),
        pa.field("relocated", pa.bool_(), nullable=False),
        pa.field("transaction", pa.string()),
        pa.field("headers", pa.string()),
        pa.field("head", pa.binary()),
        pa.field("properties", pa.binary()),
        pa.field("body", pa.binary()),
    ]
)
BYTES_COLUMNS: Final = ["head", "properties", "body"]
BATCH_BYTES: Final = 8 << 20
"""Bytes of contents in a row group. One message may be larger."""

_META: Final = b"forebay"
_ROWS_AT_ONCE: Final = 256


class NotArchived(ForebayError):
    """A data log, or an archived one, is not whole. The text names the place; nothing was written in its name."""


class Archived(NamedTuple):
    """The metadata of a file about the data log in it."""

    broker: str
    data_log: int
    store_id: str
    salt: int
    size_bytes: int
    crc: int
    records: int
    messages: int


def write_archive(source: File, broker: str, path: Path) -> Archived:
    """Write the file of a whole data log; return its metadata.

    Raises NotArchived if the data log is damaged or incomplete.
    """
    try:
        header = decode_data_log_header(source.read(0, DATA_LOG_HEADER_BYTES))
    except RecordDamaged as damage:
        raise NotArchived(f"at offset 0: {damage}") from None
    part = path.with_name(f".{path.name}.part-{os.getpid()}")
    path.parent.mkdir(parents=True, exist_ok=True)
    size = source.size()
    crc = crc_of(source, 0, size)
    try:
        rows = _Rows(source, header)
        with pq.ParquetWriter(part, SCHEMA, compression="zstd") as writer:
            for batch in rows:
                writer.write_batch(batch)
            archived = Archived(
                broker, header.data_log, header.store_id.hex(), header.salt, size, crc, rows.records, rows.messages
            )
            writer.add_key_value_metadata({_META: json.dumps(archived._asdict())})
        if rows.end != size:
            raise NotArchived(f"at offset {rows.end}: {size - rows.end:,} bytes that are no records")
        for _ in read_back(part):
            pass
        _sync(part)
        part.rename(path)
        _sync(path.parent)
        _sync(path.parent.parent)
    finally:
        with suppress(FileNotFoundError):
            part.unlink()
    return archived


def facts_of_archive(path: Path) -> Archived:
    """Return the metadata of a file. Raises NotArchived if it is not an archived data log."""
    try:
        metadata = pq.read_metadata(path).metadata or {}
        found = json.loads(metadata[_META])
        facts = Archived(**found)
    except (pa.ArrowException, KeyError, TypeError, ValueError):
        raise NotArchived(f"{path} is not a data log that was archived") from None
    kinds = {"broker": str, "store_id": str}
    if any(type(value) is not kinds.get(name, int) for name, value in facts._asdict().items()):
        raise NotArchived(f"{path} is not a data log that was archived")
    return facts


def read_back(path: Path) -> Iterator[bytes]:
    """Yield the data log's bytes. Raises NotArchived, at the end at the latest, if they are not the archived ones."""
    facts = facts_of_archive(path)
    size = crc = 0
    try:
        with pq.ParquetFile(path) as file:
            for piece in _pieces(file):
                size += len(piece)
                crc = crc32(piece, crc)
                if size > facts.size_bytes:
                    raise NotArchived(f"{path} holds more than the data log that it names")
                yield piece
    except (pa.ArrowException, OSError, KeyError) as error:
        raise NotArchived(f"{path} can't be read: {str(error).splitlines()[0]}") from None
    if (size, crc) != (facts.size_bytes, facts.crc):
        raise NotArchived(f"{path} is damaged: its {size:,} bytes are not the data log that was archived")


def _pieces(file: pq.ParquetFile) -> Iterator[bytes]:
    """Yield the values of the columns of bytes that are not empty, row by row."""
    for batch in file.iter_batches(_ROWS_AT_ONCE, columns=BYTES_COLUMNS):
        for row in zip(*(batch.column(name) for name in BYTES_COLUMNS), strict=True):
            yield from (piece for value in row if (piece := value.as_py()))


class _Rows:
    """The rows of one data log, in batches."""

    def __init__(self, file: File, header: DataLogHeader) -> None:
        self._file = file
        self._header = header
        self._names: dict[int, str] = {}
        self.records = self.messages = 0
        # Offset behind the last record.
        self.end = DATA_LOG_HEADER_BYTES

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        rows: list[dict[str, Any]] = []
        size = 0
        for row in self._rows():
            rows.append(row)
            size += sum(len(row.get(name) or b"") for name in BYTES_COLUMNS)
            if size >= BATCH_BYTES or len(rows) >= 65_536:
                yield pa.RecordBatch.from_pylist(rows, SCHEMA)
                rows, size = [], 0
        yield pa.RecordBatch.from_pylist(rows, SCHEMA)

    def _rows(self) -> Iterator[dict[str, Any]]:
        head = self._file.read(0, DATA_LOG_HEADER_BYTES)
        yield {"offset": 0, "kind": "header", "relocated": False, "head": head}
        for found in scan(self._file, self._header):
            if isinstance(found, Damage):
                raise NotArchived(f"at offset {found.offset}: {found.problem}")
            if found.bad_messages:
                raise NotArchived(f"at offset {found.offset}: {len(found.bad_messages)} messages do not verify")
            self.records += 1
            self.end = found.offset + found.header.length
            if found.header.kind == MESSAGE:
                yield from self._slice(found)
            else:
                yield self._other(found)

    def _other(self, found: FoundRecord) -> dict[str, Any]:
        kind = KIND_NAMES.get(found.header.kind, f"kind {found.header.kind}")
        row: dict[str, Any] = {"offset": found.offset, "kind": kind, "relocated": False, "head": found.head}
        if len(found.head) < found.header.length:
            rest = self._file.read(found.offset + len(found.head), found.header.length - len(found.head))
            row["body"] = rest  # a lost record: the bytes that were given up
        with suppress(RecordDamaged):
            if found.header.kind == STATE:
                destinations = decode_state(found.head[HEADER_BYTES:]).destinations
                self._names |= {destination.number: destination.name for destination in destinations}
            elif found.header.kind == DESTINATION:
                destination = decode_destination(found.head[HEADER_BYTES:])
                self._names[destination.number] = row["destination"] = destination.name
        return row

    def _slice(self, found: FoundRecord) -> Iterator[dict[str, Any]]:
        part = decode_slice(found.header, found.head)
        prefix = id_prefix(self._header.store_id, part.destination_number, part.priority)
        at = found.offset + found.header.head_bytes
        for index in range(found.header.entries):
            _, length, properties_bytes = part.table[3 * index : 3 * index + 3]
            content = self._file.read(at, length)
            properties, body = content[:properties_bytes], content[properties_bytes:]
            row: dict[str, Any] = {
                "offset": found.offset,
                "kind": KIND_NAMES[MESSAGE],
                "destination": self._names.get(part.destination_number),
                "priority": part.priority,
                "timestamp": part.timestamp,
                "relocated": bool(found.header.flags & RELOCATED),
                "head": found.head if not index else None,
                "properties": properties,
                "body": body,
            }
            own_id = None
            with suppress(RecordDamaged):  # kept as they are; nobody can read them
                headers, own_id = decode_properties(properties)
                row["headers"] = json.dumps(plain_headers(headers)) if headers else None
            if found.header.is_transactional:
                row |= {"transaction": f"{part.first_sequence:x}", "message_id": own_id}
            else:
                sequence = part.first_sequence + index
                row |= {"sequence": sequence, "message_id": own_id or f"{prefix}{sequence}"}
            yield row
            self.messages += 1
            at += length


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
