"""The bytes of host properties: small named values that the host keeps in the store.

    changes    count u32, then of each: length of the name u16, length of the value u32, the name in UTF-8, the value

A length of 2^32 - 1 means that the property is deleted. The same bytes are in properties records, in commit records and
branches, and, without deletions, in each state record. (Those of a message are in format/message_properties.py.)
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final, NamedTuple

from .record import RecordDamaged

PROPERTY_NAME_BYTES_MAX: Final = 1_024

_COUNT: Final = struct.Struct("<I")
_CHANGE: Final = struct.Struct("<HI")
_DELETED: Final = (1 << 32) - 1

Changes = Mapping[str, bytes | None]
"""Name -> the new value; None: the property is deleted."""


class PropertiesRecord(NamedTuple):
    """A properties record: all of its changes take effect, or none."""

    changes: Changes


def encode_changes(changes: Changes) -> bytes:
    parts = [_COUNT.pack(len(changes))]
    for name, value in changes.items():
        encoded = name.encode()
        parts += (_CHANGE.pack(len(encoded), _DELETED if value is None else len(value)), encoded, value or b"")
    return b"".join(parts)


def decode_changes(data: bytes, at: int = 0) -> tuple[dict[str, bytes | None], int]:
    """Return the changes that begin there, and where they end. RecordDamaged: the bytes are no changes."""
    changes: dict[str, bytes | None] = {}
    try:
        (count,) = _COUNT.unpack_from(data, at)
        at += _COUNT.size
        for _ in range(count):
            name_bytes, value_bytes = _CHANGE.unpack_from(data, at)
            at += _CHANGE.size
            if value_bytes == _DELETED:
                is_deleted, value_bytes = True, 0
            else:
                is_deleted = False
            name_end = at + name_bytes
            end = name_end + value_bytes
            if not 0 < name_bytes <= PROPERTY_NAME_BYTES_MAX or end > len(data):
                raise RecordDamaged("a property is incomplete, or has a name that cannot be")
            name = str(data[at:name_end], "utf-8")
            changes[name] = None if is_deleted else data[name_end:end]
            at = end
    except struct.error:
        raise RecordDamaged("properties are incomplete") from None
    except UnicodeDecodeError:
        raise RecordDamaged("the name of a property is not text") from None
    if len(changes) != count:
        raise RecordDamaged("a property is named twice")
    return changes, at


def decode_properties_record(data: bytes) -> PropertiesRecord:
    changes, end = decode_changes(data)
    if end != len(data):
        raise RecordDamaged("bytes follow the properties")
    return PropertiesRecord(changes)
