"""Imports: the loads that the store has taken over, as the journal tells them.

    import     messages u64, taken u64, set id 16 bytes, length of the load id u8, the load id

An import record begins or continues the load that it names. Each later slice with the flag IMPORTED counts its messages
as taken. So slice and progress are one write, and a journal that is cut anywhere tells exactly which messages are still
missing. Each state record restates all loads, with the current one last.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from ..disk.layout import validate_load_id
from ..errors import SettingsError
from .record import RecordDamaged

IMPORTS_KEPT: Final = 256
"""Number of loads that are remembered. An older load with the same id would be taken over again."""

SET_ID_BYTES: Final = 16

_FORM: Final = struct.Struct("<QQ16sB")


class ImportRecord(NamedTuple):
    """The progress of one load."""

    load_id: str
    set_id: bytes
    """Id of the import set of the load. Another set with the same load id has another order of messages."""
    messages: int
    taken: int
    """Number of messages of the set, from its beginning, that are in the journal."""

    @property
    def is_done(self) -> bool:
        return self.taken >= self.messages


@dataclass(frozen=True, slots=True)
class ImportReport:
    """The result for one load that was found in import/."""

    load_id: str
    """Empty if import/ itself could not be read."""
    messages: int
    """Messages taken over by this open; 0 if an earlier one had taken all."""
    problem: str | None = None
    """Why not all of it was taken over. None: all of it was."""


def encode_import(record: ImportRecord) -> bytes:
    load_id = record.load_id.encode()
    return _FORM.pack(record.messages, record.taken, record.set_id, len(load_id)) + load_id


def decode_import(data: bytes, at: int = 0) -> tuple[ImportRecord, int]:
    """Return the record that begins there, and where it ends. RecordDamaged: the bytes are none."""
    try:
        messages, taken, set_id, size = _FORM.unpack_from(data, at)
        at += _FORM.size
        if at + size > len(data):
            raise RecordDamaged("an import is incomplete")
        load_id = validate_load_id(str(data[at : at + size], "ascii"))
    except struct.error:
        raise RecordDamaged("an import is incomplete") from None
    except (SettingsError, UnicodeDecodeError):
        raise RecordDamaged("a load id cannot be") from None
    if taken > messages:
        raise RecordDamaged(f"{taken} messages of {messages} cannot be taken over")
    return ImportRecord(load_id, set_id, messages, taken), at + size


class Imports:
    """The remembered loads. The state lock guards it."""

    def __init__(self) -> None:
        self._records: dict[str, ImportRecord] = {}

    def __iter__(self) -> Iterator[ImportRecord]:
        """Yield the records in the order in which their loads last began."""
        return iter(self._records.values())

    def find(self, load_id: str) -> ImportRecord | None:
        return self._records.get(load_id)

    @property
    def has_room(self) -> bool:
        """Whether one more load may begin: not all remembered ones are unfinished."""
        return len(self._records) < IMPORTS_KEPT or any(record.is_done for record in self)

    def note(self, record: ImportRecord) -> None:
        """Note that this load is under way from here on, and how far it is."""
        self._records.pop(record.load_id, None)
        self._records[record.load_id] = record
        if len(self._records) > IMPORTS_KEPT:
            oldest = next((known.load_id for known in self if known.is_done), None)
            if oldest is not None:
                del self._records[oldest]

    def count(self, messages: int) -> None:
        """Count more messages of the present load as taken. Does nothing if a repair lost which load that is."""
        record = next(reversed(self._records.values()), None)
        if record is not None:
            taken = min(record.taken + messages, record.messages)
            self._records[record.load_id] = record._replace(taken=taken)

    def restate(self, records: Iterable[ImportRecord]) -> None:
        """Replace all records by those of a state record."""
        self._records = {record.load_id: record for record in records}
