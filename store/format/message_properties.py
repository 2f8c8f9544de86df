"""The encoding of a message's properties: a foreign message id, a group, a producer, headers.

The times of a message come first (format/times.py). Then come id, group and producer, each as tag, length and UTF-8.
Headers come last: one tag byte, and to the end one MessagePack map, in which an int beyond 64 bits has extension type
1. Each part may be missing; a message without any has no bytes of properties. msgspec decodes the headers only when
somebody reads them. No length is trusted before that many bytes are known to be there.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypedDict, cast

from ..errors import ArgumentError, SettingsError, argument_error
from ..message import Headers, HeaderValue
from .record import PROPERTIES_BYTES_MAX, RecordDamaged
from .times import TIME_TAG, TIMES_BYTES

_MESSAGE_ID: Final = 8
_GROUP: Final = 9
_PRODUCER: Final = 11
_HEADERS: Final = 12
_IDENTITY: Final = frozenset((_MESSAGE_ID, _GROUP, _PRODUCER))
_BIG_INT: Final = 1
"""MessagePack extension type of an int beyond 64 bits: signed, little-endian bytes."""

_PLAIN: Final[Any] = str | int | float | bool | None
"""Types that msgspec itself checks while it decodes. Lists, dicts, bytes and wide ints are checked afterwards."""
_EMPTY_MAP: Final = b"\x80"
_TIME: Final = bytes((TIME_TAG,))
_KEY: Final = struct.Struct("<BH")
_HEADERS_FOLLOW: Final = bytes((_HEADERS,))

NAME_BYTES_MAX: Final = 65_535
GROUP_BYTES_MAX: Final = 255
BIG_INT_BYTES_MAX: Final = 512
NESTING_MAX: Final = 32
"""Most levels of lists and dicts in one header."""
WARY_MAPS: Final = 32
"""Maps in a row that must have only plain values before the fast decoder is tried again after a map with others."""
READERS_MAX: Final = 64
"""Most sets of names that have a reader of their own. For any other set, all headers are decoded."""

_BUFFER_BYTES: Final = 256
"""Size with which the buffer of a slice's headers begins."""

_SCALARS: Final[frozenset[type]] = frozenset((str, int, float, bool, bytes, type(None)))
_PLAIN_KINDS: Final[frozenset[type]] = frozenset((str, int, float, bool, type(None)))
_NAMES: Final[frozenset[type]] = frozenset((str,))

Writer = Callable[[object], bytes]
BufferWriter = Callable[[object, bytearray], None]
Reader = Callable[[bytes], "dict[str, HeaderValue]"]


def encode_properties(
    headers: Headers | None, message_id: str | None = None, group: str | None = None, producer: str | None = None
) -> bytes:
    """Return the encoded properties. ArgumentError, SettingsError: a header's name or value is not valid. O(bytes).

    Message id, group and producer come before the headers, so `group_of` and `own_identity` decode no header.
    """
    encoded = _HEADERS_FOLLOW + _headers(headers) if headers else b""
    if producer is not None:
        encoded = _field(_PRODUCER, producer) + encoded
    if group is not None:
        encoded = _field(_GROUP, group) + encoded
    if message_id is not None:
        encoded = _field(_MESSAGE_ID, message_id) + encoded
    _check_length(encoded)
    return encoded


def encode_headers(headers: Headers) -> bytes:
    """Return the encoded properties of a message that has headers alone, as encode_properties does."""
    if not headers:
        return b""
    encoded = _HEADERS_FOLLOW + _headers(headers)
    _check_length(encoded)
    return encoded


def _check_length(encoded: bytes) -> None:
    if len(encoded) > PROPERTIES_BYTES_MAX:
        raise SettingsError(
            f"headers of {len(encoded)} bytes are above the limit of {PROPERTIES_BYTES_MAX}: put them into the body"
        )


def encode_headers_of_each(each: list[Any], times: bytes) -> list[bytes] | None:
    """Return the encoded properties of messages with these headers and the same times, but no id, group or producer.

    Return None if some headers are not plain: then encode_properties must encode each message by itself, and may raise.
    times: the encoded field; empty: there are none.
    """
    front, encode_into = times + _HEADERS_FOLLOW, _writer.encode_into
    # One buffer for all of them: bytes of its own for each would be enlarged two or three times while it is encoded.
    buffer = bytearray(_BUFFER_BYTES)
    encoded = [times] * len(each)
    try:
        for at, headers in enumerate(each):
            if headers is None:
                continue
            if type(headers) is not dict:
                return None
            # The loop of _headers, without a call: a set of all types is slower in both builds.
            plain = cast("dict[object, object]", headers)
            for name, value in plain.items():
                kind = type(value)
                if type(name) is not str or not name:
                    return None
                if kind is not str and kind is not int and kind is not float and kind not in _SCALARS:
                    return None
            if plain:
                encode_into(plain, buffer)
                properties = encoded[at] = front + buffer
                if len(properties) > PROPERTIES_BYTES_MAX:
                    return None
    except (OverflowError, UnicodeEncodeError):
        return None
    return encoded


def _field(tag: int, name: str) -> bytes:
    try:
        encoded = name.encode()
    except UnicodeEncodeError:
        raise SettingsError("a message id, group or producer holds half a surrogate pair: it is not text") from None
    if len(encoded) > NAME_BYTES_MAX:
        raise SettingsError(f"a message id of {len(encoded)} bytes is above {NAME_BYTES_MAX}")
    return _KEY.pack(tag, len(encoded)) + encoded


def _headers(headers: Headers) -> bytes:
    plain = cast("dict[object, object]", headers if type(headers) is dict else dict(headers))  # with any values
    for name, value in plain.items():
        kind = type(value)
        if type(name) is not str or not name:
            break
        if kind is not str and kind is not int and kind is not float and kind not in _SCALARS:
            break  # the set is asked last: it takes longer than all the rest
    else:
        try:
            return _writer.encode(plain)
        except (OverflowError, UnicodeEncodeError):
            pass  # an int beyond 64 bits, or not text: the code below handles it, or names it
    return _writer.encode({_plain_name(name): _plain(value, 0) for name, value in plain.items()})


def encoded_header(name: str, value: str | int | float | bool | None) -> bytes:
    """Return bytes that are in any encoded headers with this name and value: the text of the name, then the value.

    Equal ints, and equal floats, always have the same encoding. Requires: an int has at most 64 bits.
    """
    return name.encode(errors="surrogatepass") + _writer.encode(value)


class _HeaderWriter:
    """Encodes maps of headers."""

    __slots__ = ("encode", "encode_into")

    def __init__(self) -> None:
        self.encode: Writer = self._encode_first
        # Replaces the content of a buffer by a map, and keeps the buffer's memory.
        self.encode_into: BufferWriter = self._encode_first_into

    def _encode_first(self, headers: object) -> bytes:
        """Encode the first headers, and use msgspec's encoder from then on. An earlier import would cost all hosts."""
        self._use_encoder()
        return self.encode(headers)

    def _encode_first_into(self, headers: object, buffer: bytearray) -> None:
        self._use_encoder()
        self.encode_into(headers, buffer)

    def _use_encoder(self) -> None:
        from msgspec.msgpack import Encoder

        encoder = Encoder()
        self.encode, self.encode_into = encoder.encode, encoder.encode_into


_writer: Final = _HeaderWriter()


def _plain_name(name: object) -> str:
    if not isinstance(name, str) or not name:
        raise argument_error(f"a header's name must be a non-empty str, not {type(name).__name__}", name, str)
    return _text(name, "name")


def _text(text: str, what: str) -> str:
    try:
        return text.encode().decode()
    except UnicodeEncodeError:
        raise SettingsError(f"a header's {what} holds half a surrogate pair: it is not text") from None


def _plain(value: object, depth: int) -> object:
    """Return a header's value in a form that msgspec encodes: subclasses as base types, wide ints as an extension."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _text(value, "value")
    if isinstance(value, int):
        return _plain_int(int(value))
    if isinstance(value, float):
        return float(value)
    if isinstance(value, bytes):
        return b"".join((value,))
    if not isinstance(value, (list, dict)):
        raise ArgumentError(
            "a header's value must be str, int, float, bool, bytes, None, or a list or dict of them, not "
            f"{type(value).__name__}"
        )
    if depth == NESTING_MAX:
        raise SettingsError(f"a header's lists and dicts are more than {NESTING_MAX} deep: put them into the body")
    if isinstance(value, list):
        return [_plain(item, depth + 1) for item in value]
    return {_plain_name(name): _plain(item, depth + 1) for name, item in value.items()}


def _plain_int(value: int) -> object:
    if -1 << 63 <= value < 1 << 64:
        return value
    digits = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    if len(digits) > BIG_INT_BYTES_MAX:
        raise SettingsError(f"an int header of {len(digits)} bytes is above {BIG_INT_BYTES_MAX}")
    from msgspec.msgpack import Ext

    return Ext(_BIG_INT, digits)


def _extension(code: int, data: memoryview) -> int:
    if code != _BIG_INT or not 0 < len(data) <= BIG_INT_BYTES_MAX:
        raise RecordDamaged(f"a header of unknown type {code}")
    return int.from_bytes(data, "little", signed=True)


def _map_type(names: frozenset[str] | None, value: object) -> Any:
    """Return the type of a map of such values. names: the only ones to decode; None: decode all."""
    if names is None:
        return cast("Any", dict)[str, value]
    make = cast("Any", TypedDict)  # in the functional form, because the names are known only here
    return make("Wanted", dict.fromkeys(sorted(names), value), total=False)


class _HeaderReader:
    """Decodes the map of headers of a message: all of them, or those with some names."""

    __slots__ = ("read_plain", "_read_any", "wary_maps")

    def __init__(self, names: frozenset[str] | None) -> None:
        from msgspec.msgpack import Decoder

        # Decodes a map of plain values; raises one of _unreadable() for other values, and for bytes that are no map.
        self.read_plain: Reader = Decoder(_map_type(names, _PLAIN)).decode
        self._read_any: Reader = Decoder(_map_type(names, Any), ext_hook=_extension).decode
        # Maps that are still decoded with any values, because a failed attempt with plain values costs as much as
        # ten maps. Counts down from WARY_MAPS while the maps have plain values.
        self.wary_maps = 0

    def read(self, data: bytes) -> dict[str, HeaderValue]:
        """Decode a map of headers. RecordDamaged: the bytes are no map, or a value is none that a header can have."""
        if not self.wary_maps:
            try:
                return self.read_plain(data)
            except _unreadable():
                pass
        return self.read_checked(data)

    def read_checked(self, data: bytes) -> dict[str, HeaderValue]:
        """Decode a map of headers with any values and check each, as `read` does where not all are plain."""
        wary_maps = self.wary_maps
        try:
            headers = self._read_any(data)
        except _unreadable():
            raise RecordDamaged("a message's headers cannot be read") from None
        wary_maps = wary_maps - 1 if wary_maps else WARY_MAPS
        values: Iterable[object] = headers.values()  # any MessagePack value
        for value in values:
            kind = type(value)
            if kind not in _PLAIN_KINDS:
                wary_maps = WARY_MAPS
                if kind is not bytes:
                    _check(value, 0)
        self.wary_maps = wary_maps
        return headers


class _AllHeaders:
    """Holds the reader of all headers. The reader is made on first use, because making it imports msgspec."""

    __slots__ = ("reader",)

    def __init__(self) -> None:
        self.reader: _HeaderReader | None = None


_all_headers: Final = _AllHeaders()
_readers: Final[dict[frozenset[str] | None, _HeaderReader]] = {}


def _reader(names: frozenset[str] | None) -> _HeaderReader:
    """Return the reader for at least the headers of these names; None: of all. At most READERS_MAX sets are kept."""
    reader = _readers.get(names)
    if reader is None:
        if names is not None and (len(_readers) >= READERS_MAX or not all(map(_is_plain, names))):
            return _reader(None)
        reader = _readers[names] = _HeaderReader(names)
    return reader


def _is_plain(name: str) -> bool:
    """Return whether msgspec can find a field of that name, which it compares as ASCII bytes up to a NUL."""
    return name.isascii() and "\0" not in name


def _identity_end(data: bytes) -> int:
    """Return the offset behind times, id, group and producer. RecordDamaged: neither the end nor headers follow."""
    at, end = 0, len(data)
    if data[:1] == _TIME:
        at = TIMES_BYTES
        if end < at:
            raise RecordDamaged("a message's times are incomplete")
    while at < end:
        tag = data[at]
        if tag == _HEADERS:
            break
        if tag not in _IDENTITY:
            raise RecordDamaged(f"a header of unknown type {tag}")
        if at + _KEY.size > end:
            raise RecordDamaged("a message's headers cannot be read")
        at += _KEY.size + int.from_bytes(data[at + 1 : at + 3], "little")
    if at > end:
        raise RecordDamaged("a message's id, group or producer is longer than its headers")
    return at


def _unreadable() -> tuple[type[Exception], ...]:
    """Return the errors that a reader raises for invalid headers. Called only after an error: it imports msgspec."""
    from msgspec import MsgspecError

    return MsgspecError, UnicodeDecodeError, RecursionError


def _check(value: object, depth: int) -> None:
    """Raise RecordDamaged for a MessagePack value that no header can be."""
    if type(value) in _SCALARS:
        return
    items: list[object] | None = None
    if isinstance(value, list):
        items = value
    elif isinstance(value, dict) and _NAMES.issuperset(map(type, value)):
        items = list(value.values())
    if items is None or depth == NESTING_MAX:
        raise RecordDamaged("a header that cannot be")
    for item in items:
        _check(item, depth + 1)


def own_identity(data: bytes) -> tuple[bytes, bytes] | None:
    """Return (producer, foreign message id) of a message's properties. None: they have no id. O(1).

    The producer is empty if there is none. RecordDamaged: encode_properties can't have made the bytes.
    """
    found = _named(data, _MESSAGE_ID)
    return None if found is None else (_named(data, _PRODUCER) or b"", found)


def _named(data: bytes, wanted: int) -> bytes | None:
    """Return one of id, group and producer. None: the message has none. Reads no header."""
    at, end = TIMES_BYTES if data[:1] == _TIME else 0, len(data)
    while at < end and data[at] in _IDENTITY:
        first = at + _KEY.size
        behind = first + data[at + 1] + (data[at + 2] << 8) if first <= end else first
        if behind > end:
            raise RecordDamaged("a message's id, group or producer is longer than its headers")
        if data[at] == wanted:
            return data[first:behind]
        at = behind
    return None


def decode_properties(data: bytes) -> tuple[dict[str, HeaderValue], str | None]:
    """Return (headers, foreign message id or None). RecordDamaged: encode_properties can't have made the bytes."""
    if data[:1] == _HEADERS_FOLLOW:
        return _reader(None).read(data[1:]), None
    return _reader(None).read(_map_of(data)), message_id_of(data)


def decode_headers(data: bytes) -> dict[str, HeaderValue]:
    """Return all headers of a message, as a new dict. `data` is not empty. RecordDamaged as decode_properties.

    Each read of a delivery's headers calls this function, so it does not look up the reader in a dict, and has the
    first part of `read` inline.
    """
    reader = _all_headers.reader
    if reader is None:
        reader = _all_headers.reader = _reader(None)
    encoded = data[1:] if data[0] == _HEADERS else _map_of(data)
    if not reader.wary_maps:
        try:
            return reader.read_plain(encoded)
        except _unreadable():
            pass
    return reader.read_checked(encoded)


def header_values(data: bytes, names: frozenset[str]) -> dict[str, HeaderValue]:
    """Return the headers with these names, and perhaps others. RecordDamaged as decode_properties.

    Other headers are skipped without decoding, so few names of many headers cost much less than all.
    """
    return _reader(names).read(data[1:] if data and data[0] == _HEADERS else _map_of(data))


def header_values_of_each(properties: Sequence[bytes], names: frozenset[str]) -> list[dict[str, HeaderValue] | None]:
    """Return header_values of each message, None in place of RecordDamaged. Faster than single calls."""
    read = _reader(names).read_plain
    try:
        return [read(data[1:] if data and data[0] == _HEADERS else _map_of(data)) for data in properties]
    except RecordDamaged:
        pass
    except _unreadable():
        pass
    return [_read_or_none(data, names) for data in properties]  # some message has other values, or is damaged


def _map_of(data: bytes) -> bytes:
    """Return the map of headers behind id, group and producer."""
    at = _identity_end(data)
    begin = at + 1
    return data[begin:] if at < len(data) else _EMPTY_MAP


def _read_or_none(data: bytes, names: frozenset[str]) -> dict[str, HeaderValue] | None:
    try:
        return header_values(data, names)
    except RecordDamaged:
        return None


def message_id_of(data: bytes) -> str | None:
    """Return the foreign message id. None: there is none. O(1). RecordDamaged as decode_properties."""
    return _text_of(data, _MESSAGE_ID)


def group_of(data: bytes) -> str | None:
    """Return the group of the message with these properties. None: it has none. O(1).

    RecordDamaged as decode_properties.
    """
    if not data or data[0] == _HEADERS:
        return None
    return _text_of(data, _GROUP)


def _text_of(data: bytes, tag: int) -> str | None:
    found = _named(data, tag)
    try:
        return None if found is None else found.decode()
    except UnicodeDecodeError:
        raise RecordDamaged("a message's id or group cannot be read") from None
