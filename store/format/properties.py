"""The encoding of a message's properties: a foreign message id, a group, a producer, headers.

If a message has times, these come first; see format/times.py. Empty properties are no bytes at all. Id, group and
producer are fields of (tag, length, UTF-8). Headers come last: one byte that says so, and then to the end one
MessagePack map, whose ints beyond 64 bits have extension type 1. msgspec decodes the headers only when somebody reads
them. No length is trusted before the bytes are known to be there.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
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
"""Extension type of an int beyond 64 bits: its bytes, signed, lowest first."""

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
"""How deep lists and dicts may nest in one header."""
WARY_MAPS: Final = 32
"""After a map with other values, this many maps in a row must have only plain values before plain ones are expected
again.
"""
READERS_MAX: Final = 64
"""Number of sets of names with a reader of their own; for other sets all headers are decoded."""

_SCALARS: Final[frozenset[type]] = frozenset((str, int, float, bool, bytes, type(None)))
_PLAIN_KINDS: Final[frozenset[type]] = frozenset((str, int, float, bool, type(None)))
_NAMES: Final[frozenset[type]] = frozenset((str,))
_MAPS: Final[frozenset[type]] = frozenset((dict, type(None)))
_values_of: Final[Callable[[dict[object, object]], Iterable[object]]] = dict.values

Writer = Callable[[object], bytes]
Reader = Callable[[bytes], "dict[str, HeaderValue]"]


def encode_properties(
    headers: Headers | None, message_id: str | None = None, group: str | None = None, producer: str | None = None
) -> bytes:
    """Encode what is given. ArgumentError or SettingsError: a name or value is not valid for a header. O(bytes).

    The message id comes first, then group and producer, so `group_of` and `own_identity` decode nothing else.
    """
    encoded = _HEADERS_FOLLOW + _headers(headers) if headers else b""
    if producer is not None:
        encoded = _field(_PRODUCER, producer) + encoded
    if group is not None:
        encoded = _field(_GROUP, group) + encoded
    if message_id is not None:
        encoded = _field(_MESSAGE_ID, message_id) + encoded
    if len(encoded) > PROPERTIES_BYTES_MAX:
        raise SettingsError(
            f"headers of {len(encoded)} bytes are above the limit of {PROPERTIES_BYTES_MAX}: put them into the body"
        )
    return encoded


def encode_headers_of_each(each: Sequence[object], times: bytes) -> list[bytes] | None:
    """Return the properties of messages that have these headers and the same times, but no id, group or producer.

    times: their encoded field; empty: they have none. None: some headers are not plain, so encode_properties must take
    each by itself, and may raise. All are checked together, without a loop of ours.
    """
    if not _MAPS.issuperset(map(type, each)):
        return None
    maps = cast("list[dict[object, object]]", [headers for headers in each if headers])
    names = set(chain.from_iterable(maps))
    if (
        "" in names
        or not _NAMES.issuperset(map(type, names))
        or not _SCALARS.issuperset(map(type, chain.from_iterable(map(_values_of, maps))))
    ):
        return None
    front, encode = times + _HEADERS_FOLLOW, _writer.encode
    try:
        encoded = [front + encode(headers) if headers else times for headers in each]
    except (OverflowError, UnicodeEncodeError):
        return None
    return encoded if max(map(len, encoded)) <= PROPERTIES_BYTES_MAX else None


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
        if type(name) is not str or not name or type(value) not in _SCALARS:
            break
    else:
        try:
            return _writer.encode(plain)
        except (OverflowError, UnicodeEncodeError):
            pass  # an int beyond 64 bits, or not text: the code below handles it, or names it
    return _writer.encode({_plain_name(name): _plain(value, 0) for name, value in plain.items()})


def encoded_header(name: str, value: str | int | float | bool | None) -> bytes:
    """Return the bytes that any headers with this name and value have in a row: the name's text and the value.

    The same int or float is always encoded alike. Requires: an int of 64 bits.
    """
    return name.encode(errors="surrogatepass") + _writer.encode(value)


class _HeaderWriter:
    """Encodes maps of headers."""

    __slots__ = ("encode",)

    def __init__(self) -> None:
        self.encode: Writer = self._encode_first

    def _encode_first(self, headers: object) -> bytes:
        """Import msgspec with the first header, encode it, and replace this function by that of msgspec."""
        from msgspec.msgpack import Encoder

        self.encode = Encoder().encode
        return self.encode(headers)


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
    """Return a header's value as msgspec takes it: subclasses as their base types, wide ints as an extension."""
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
    """Return the type of a map of such values: of all names, or only of these, so that others are skipped."""
    if names is None:
        return cast("Any", dict)[str, value]
    make = cast("Any", TypedDict)  # in the functional form, because the names are known only here
    return make("Wanted", dict.fromkeys(sorted(names), value), total=False)


class _HeaderReader:
    """Decodes the map of headers of a message: all of them, or those with some names."""

    __slots__ = ("read_plain", "_read_any", "_wary_maps")

    def __init__(self, names: frozenset[str] | None) -> None:
        from msgspec.msgpack import Decoder

        # Decodes a map whose values are plain; raises one of _unreadable where they are not, or it is no such map.
        self.read_plain: Reader = Decoder(_map_type(names, _PLAIN)).decode
        self._read_any: Reader = Decoder(_map_type(names, Any), ext_hook=_extension).decode
        # How many maps are still read as if their values were not plain: what is raised where they are not costs as
        # much as ten maps, so after such a one WARY_MAPS in a row must be plain.
        self._wary_maps = 0

    def read(self, data: bytes) -> dict[str, HeaderValue]:
        """Decode a map. Raises RecordDamaged for bytes that are not a map, or that have a value that no header can
        have.
        """
        wary_maps = self._wary_maps
        if not wary_maps:
            try:
                return self.read_plain(data)
            except _unreadable():
                pass
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
        self._wary_maps = wary_maps
        return headers


class _AllHeaders:
    """The reader of all headers, made when it is first needed, because it imports msgspec."""

    __slots__ = ("reader",)

    def __init__(self) -> None:
        self.reader: _HeaderReader | None = None


_all_headers: Final = _AllHeaders()
_readers: Final[dict[frozenset[str] | None, _HeaderReader]] = {}


def _reader(names: frozenset[str] | None) -> _HeaderReader:
    """Return the reader for at least the headers of these names, or all. There are few sets, so none is forgotten."""
    found = _readers.get(names)
    if found is None:
        if names is not None and (len(_readers) >= READERS_MAX or not all(map(_is_plain, names))):
            return _reader(None)
        found = _readers[names] = _HeaderReader(names)
    return found


def _is_plain(name: str) -> bool:
    """Return whether msgspec finds a field of that name: it compares ASCII bytes up to a NUL."""
    return name.isascii() and "\0" not in name


def _identity_end(data: bytes) -> int:
    """Return where times, id, group and producer end. RecordDamaged: neither the end nor headers follow."""
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
    """Return the errors that a reader raises for invalid headers. It is called only once something was raised."""
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
    """Return one of id, group and producer. None: there is none. It reads no header: the first bytes suffice."""
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

    Whoever reads the headers of a delivery passes here, so the reader is not looked up in a dict.
    """
    reader = _all_headers.reader
    if reader is None:
        reader = _all_headers.reader = _reader(None)
    return reader.read(data[1:] if data[0] == _HEADERS else _map_of(data))


def header_values(data: bytes, names: frozenset[str]) -> dict[str, HeaderValue]:
    """Return the headers with these names, and perhaps others. RecordDamaged as decode_properties.

    Other headers are skipped without decoding: one of 20 headers takes a fifth of the time of all.
    """
    return _reader(names).read(data[1:] if data[:1] == _HEADERS_FOLLOW else _map_of(data))


def header_values_of_each(
    properties: Sequence[bytes], names: frozenset[str]
) -> Sequence[dict[str, HeaderValue] | None]:
    """Return header_values of each message; None if that raises RecordDamaged. Takes half the time of single calls."""
    read = _reader(names).read_plain
    try:
        return [read(data[1:] if data[:1] == _HEADERS_FOLLOW else _map_of(data)) for data in properties]
    except RecordDamaged:
        pass
    except _unreadable():
        pass
    return [_read_or_none(data, names) for data in properties]  # one of them has other values, or is damaged


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
