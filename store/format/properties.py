"""The encoding of what travels with a body: headers, a foreign message id, a group, a producer.

Before them comes when the message is due and expires, where it does: see format/times.py. Empty properties are no bytes
at all. Headers are decoded only when somebody looks at them. Nothing here trusts a length before it has seen the bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

from ..errors import ArgumentError, SettingsError, argument_error
from ..message import Headers, HeaderValue
from .record import PROPERTIES_BYTES_MAX, RecordDamaged
from .times import TIME_TAG, TIMES_BYTES

_NONE: Final = 0
_TRUE: Final = 1
_FALSE: Final = 2
_INT: Final = 3
_BIG_INT: Final = 4
_FLOAT: Final = 5
_STR: Final = 6
_BYTES: Final = 7
_MESSAGE_ID: Final = 8
_GROUP: Final = 9
_PRODUCER: Final = 11
_FIXED: Final = {_NONE: 0, _TRUE: 0, _FALSE: 0, _INT: 8, _FLOAT: 8}

_TIME: Final = bytes((TIME_TAG,))
_KEY: Final = struct.Struct("<BH")
_LENGTH: Final = struct.Struct("<I")
_LONG: Final = struct.Struct("<q")
_DOUBLE: Final = struct.Struct("<d")
_LONG_MAX: Final = (1 << 63) - 1

NAME_BYTES_MAX: Final = 65_535
GROUP_BYTES_MAX: Final = 255
BIG_INT_BYTES_MAX: Final = 512


def encode_properties(
    headers: Headers | None, message_id: str | None = None, group: str | None = None, producer: str | None = None
) -> bytes:
    """Encode each field as tag, name, value. SettingsError for a name or value that is not a header. O(bytes).

    The message id comes first, then group and producer, so that `group_of` and `own_identity` decode nothing else.
    """
    parts: list[bytes] = []
    if message_id is not None:
        parts += _named(_MESSAGE_ID, message_id)
    if group is not None:
        parts += _named(_GROUP, group)
    if producer is not None:
        parts += _named(_PRODUCER, producer)
    fields: Iterable[tuple[object, object]] = (headers or {}).items()  # whatever the caller has put there
    for name, value in fields:
        if not isinstance(name, str) or not name:
            raise argument_error(f"a header's name must be a non-empty str, not {type(name).__name__}", name, str)
        parts += _value(name, value)
    encoded = b"".join(parts)
    if len(encoded) > PROPERTIES_BYTES_MAX:
        raise SettingsError(
            f"headers of {len(encoded)} bytes are above the limit of {PROPERTIES_BYTES_MAX}: put them into the body"
        )
    return encoded


def _named(tag: int, name: str, *value: bytes) -> list[bytes]:
    try:
        encoded = name.encode()
    except UnicodeEncodeError:
        raise SettingsError("a header's name or message id holds half a surrogate pair: it is not text") from None
    if len(encoded) > NAME_BYTES_MAX:
        raise SettingsError(f"a header's name or message id of {len(encoded)} bytes is above {NAME_BYTES_MAX}")
    return [_KEY.pack(tag, len(encoded)), encoded, *value]


def _value(name: str, value: object) -> list[bytes]:
    if isinstance(value, str):
        try:
            text = value.encode()
        except UnicodeEncodeError:
            raise SettingsError("a header's value holds half a surrogate pair: it is not text") from None
        return _named(_STR, name, _LENGTH.pack(len(text)), text)
    if value is None:
        return _named(_NONE, name)
    if isinstance(value, bool):
        return _named(_TRUE if value else _FALSE, name)
    if isinstance(value, int):
        if -_LONG_MAX - 1 <= value <= _LONG_MAX:
            return _named(_INT, name, _LONG.pack(value))
        digits = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
        if len(digits) > BIG_INT_BYTES_MAX:
            raise SettingsError(f"an int header of {len(digits)} bytes is above {BIG_INT_BYTES_MAX}")
        return _named(_BIG_INT, name, _LENGTH.pack(len(digits)), digits)
    if isinstance(value, float):
        return _named(_FLOAT, name, _DOUBLE.pack(value))
    if isinstance(value, bytes):
        return _named(_BYTES, name, _LENGTH.pack(len(value)), value)
    raise ArgumentError(f"a header's value must be str, int, float, bool, bytes or None, not {type(value).__name__}")


def own_identity(data: bytes) -> tuple[bytes, bytes] | None:
    """Return (producer, foreign message id) of a message's properties; None: they have no id. O(1).

    The producer is empty where there is none. RecordDamaged when the bytes are not what encode_properties made.
    """
    at = TIMES_BYTES if data[:1] == _TIME else 0
    message_id: bytes | None = None
    try:
        while at < len(data):
            tag, length = _KEY.unpack_from(data, at)
            at += _KEY.size
            value = data[at : at + length]
            at += length
            if at > len(data):
                raise RecordDamaged("a message's id or producer is longer than its headers")
            if tag == _MESSAGE_ID:
                message_id = value
            elif message_id is None or tag not in (_GROUP, _PRODUCER):
                break
            elif tag == _PRODUCER:
                return value, message_id
    except struct.error:
        raise RecordDamaged("a message's headers cannot be read") from None
    return None if message_id is None else (b"", message_id)


def decode_properties(data: bytes) -> tuple[dict[str, HeaderValue], str | None]:
    """Return (headers, foreign message id or None). RecordDamaged when encode_properties can't have made the bytes."""
    headers: dict[str, HeaderValue] = {}
    message_id: str | None = None
    at, end = 0, len(data)
    if data[:1] == _TIME:
        at = TIMES_BYTES
        if end < at:
            raise RecordDamaged("a message's times are incomplete")
    try:
        while at < end:
            tag, length = _KEY.unpack_from(data, at)
            at += 3
            name = str(data[at : at + length], "utf-8")
            at += length
            if at > end:
                raise RecordDamaged("a header's name is longer than its message")
            if tag in _FIXED:
                size = _FIXED[tag]
            elif tag == _MESSAGE_ID:
                message_id = name
                continue
            elif tag in (_GROUP, _PRODUCER):
                continue
            else:
                (size,) = _LENGTH.unpack_from(data, at)
                at += 4
            if at + size > end:
                raise RecordDamaged("a header is longer than its message")
            headers[name] = _decoded(tag, data[at : at + size])
            at += size
    except (struct.error, UnicodeDecodeError):
        raise RecordDamaged("a message's headers cannot be read") from None
    return headers, message_id


def group_of(data: bytes) -> str | None:
    """Return the group of the message with these properties; None: it is in none. O(1). RecordDamaged as
    decode_properties.
    """
    at = TIMES_BYTES if data[:1] == _TIME else 0
    try:
        while at < len(data):
            tag, length = _KEY.unpack_from(data, at)
            if tag == _GROUP and at + 3 + length <= len(data):
                return str(data[at + 3 : at + 3 + length], "utf-8")
            if tag != _MESSAGE_ID:
                return None
            at += 3 + length
    except (struct.error, UnicodeDecodeError):
        raise RecordDamaged("a message's group cannot be read") from None
    return None


def _decoded(tag: int, value: bytes) -> HeaderValue:
    if tag == _STR:
        return str(value, "utf-8")
    if tag == _INT:
        number: int = _LONG.unpack(value)[0]
        return number
    if tag == _BYTES:
        return value
    if tag == _FLOAT:
        real: float = _DOUBLE.unpack(value)[0]
        return real
    if tag == _BIG_INT and 0 < len(value) <= BIG_INT_BYTES_MAX:
        return int.from_bytes(value, "little", signed=True)
    if tag in (_NONE, _TRUE, _FALSE):
        return {_NONE: None, _TRUE: True, _FALSE: False}[tag]
    raise RecordDamaged(f"a header of unknown type {tag}")
