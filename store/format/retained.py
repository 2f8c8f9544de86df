"""The bytes of a topic's retained message, and the name that it has among the host's properties.

    value    timestamp u64, priority u8, length of the message's properties u32, those, the body

The name begins with what no property of the host may begin with, and ends with the topic's number, which is never used
again. A value is inside of a record that verifies, so what makes no sense here was written by another version.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from ..numbering import PRIORITIES
from .record import RecordDamaged

RESERVED_PREFIX: Final = "\0"
"""Names that begin so are the store's own."""

_HEAD: Final = struct.Struct("<QBI")


class Retained(NamedTuple):
    """The message that a topic gives to each new subscription."""

    timestamp: int
    priority: int
    properties: bytes
    body: bytes


def retained_name(topic: int) -> str:
    """Return the name under which a topic's retained message is kept."""
    return f"{RESERVED_PREFIX}retained/{topic}"


def encode_retained(message: Retained) -> bytes:
    timestamp, priority, properties, body = message
    return _HEAD.pack(timestamp, priority, len(properties)) + properties + body


def decode_retained(value: bytes) -> Retained:
    """Return the message of a value. RecordDamaged when the bytes can't be one."""
    if len(value) < _HEAD.size:
        raise RecordDamaged("a retained message is incomplete")
    timestamp, priority, properties_bytes = _HEAD.unpack_from(value)
    begin = _HEAD.size + properties_bytes
    if priority >= PRIORITIES or begin > len(value):
        raise RecordDamaged("a retained message is incomplete, or has a priority that cannot be")
    return Retained(timestamp, priority, value[_HEAD.size : begin], value[begin:])
