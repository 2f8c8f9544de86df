"""The bytes of the messages that a topic retains, and their names among the host's properties.

    name     "\\0retained/", the topic's number; of one that is kept by a header: "/", the key
    key      length of the header's name, "/", the name, "/", a letter for the type of its value, the value
    value    timestamp u64, priority u8, length of the message's properties u32, those, the body

No property of the host has such a name, and a topic's number is never used again. A value is part of a record that
verifies. So a value that can't be decoded was written by another version.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from ..errors import ArgumentError, SettingsError
from ..numbering import NO_DESTINATION, PRIORITIES
from .message_properties import header_values
from .record import RecordDamaged
from .times import has_times, split_times, times_of

RESERVED_PREFIX: Final = "\0"
"""Names with this prefix belong to the store."""

RETAIN_KEY_BYTES_MAX: Final = 512
"""Most bytes of UTF-8 of a header's name and value that identify a retained message.

Values of type bytes count twice.
"""

_PREFIX: Final = f"{RESERVED_PREFIX}retained/"
_HEAD: Final = struct.Struct("<QBI")


class RetainedMessage(NamedTuple):
    """A message that a topic gives to each new subscription."""

    timestamp: int
    priority: int
    properties: bytes
    body: bytes

    def is_expired(self, now_ms: int) -> bool:
        """Return whether it has expired, so that new subscriptions do not get it."""
        return has_times(self.properties) and 0 < times_of(self.properties).expires_at <= now_ms


def retained_name(topic: int, key: str = "") -> str:
    """Return the name under which a topic's retained message is kept. key: see `retain_key`; "": the topic has one."""
    return f"{_PREFIX}{topic}/{key}" if key else f"{_PREFIX}{topic}"


def retaining_topic(name: str) -> int:
    """Return the topic of a name. NO_DESTINATION: it is a name of another version."""
    number = name.removeprefix(_PREFIX).partition("/")[0]
    return int(number) if number.isdecimal() else NO_DESTINATION


def retain_key(header: str, properties: bytes) -> str:
    """Return the key that tells the message with these properties from others that a topic retains by the same header.

    Values of different types differ: 1, 1.0, True and "1". SettingsError: the header is missing, too long, or of a type
    that identifies nothing.
    """
    value = header_values(split_times(properties)[1], frozenset((header,))).get(header)
    if value is None:
        raise SettingsError(
            f"the message has no header {header!r}, by which retain={header!r} tells retained messages apart: "
            "give it that header, or retain=True for one message of the whole topic"
        )
    if isinstance(value, str):
        text = f"s{value}"
    elif isinstance(value, bool):
        text = f"b{int(value)}"
    elif isinstance(value, int):
        text = f"i{value}"
    elif isinstance(value, float):
        text = f"f{value!r}"
    elif isinstance(value, bytes):
        text = f"x{value.hex()}"
    else:
        kind = type(value).__name__
        raise ArgumentError(
            f"the header {header!r} is a {kind}, which tells no retained messages apart: give it a str, bytes, a "
            "number or a bool"
        )
    size = len(f"{header}{text[1:]}".encode())
    if size > RETAIN_KEY_BYTES_MAX:
        raise SettingsError(
            f"the header {header!r} and its value take {size:,} bytes, and at most {RETAIN_KEY_BYTES_MAX} may tell "
            "retained messages apart: shorten it"
        )
    return f"{len(header)}/{header}/{text}"


def encode_retained(message: RetainedMessage) -> bytes:
    timestamp, priority, properties, body = message
    return _HEAD.pack(timestamp, priority, len(properties)) + properties + body


def decode_retained(value: bytes) -> RetainedMessage:
    """Return the message in a value. RecordDamaged: the bytes are no message."""
    if len(value) < _HEAD.size:
        raise RecordDamaged("a retained message is incomplete")
    timestamp, priority, properties_bytes = _HEAD.unpack_from(value)
    begin = _HEAD.size + properties_bytes
    if priority >= PRIORITIES or begin > len(value):
        raise RecordDamaged("a retained message is incomplete, or has a priority that cannot be")
    return RetainedMessage(timestamp, priority, value[_HEAD.size : begin], value[begin:])


def has_expired(value: bytes, now_ms: int) -> bool:
    """Return whether the message in a value has expired, so that new subscriptions do not get it."""
    try:
        return decode_retained(value).is_expired(now_ms)
    except RecordDamaged:
        return False  # a subscribe reports it
