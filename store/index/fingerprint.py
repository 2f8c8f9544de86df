"""The fingerprint of a block: what one header is in the messages of a block, in a few bytes.

A selector asks a fingerprint whether any message of the block may match. The answer is exact where the header has few
values in the block; else bounds and a Bloom filter answer. "No" is always right, "perhaps" may be wrong. A fingerprint
costs at most a byte a message. Acks leave it right, because it says what may be there. Bytes that describe nothing
plainly are UNKNOWN, and then the block is read.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from ..format.properties import decode_properties, encode_properties
from ..format.record import RecordDamaged
from ..message import HeaderValue

EXACT_VALUES_MAX: Final = 8
EXACT_BYTES_MAX: Final = 128
"""A block with so few different values, in so few bytes, keeps the values themselves."""
STRING_CHARACTERS_MAX: Final = 128
"""A header with a longer string in a block is UNKNOWN there, because strings stay in RAM while a block is examined."""
FILTER_BYTES_MAX: Final = 368
BITS_A_VALUE: Final = 16
"""Of the Bloom filter, as long as it is shorter than FILTER_BYTES_MAX."""
HASHES_MAX: Final = 8
PREFIX_BYTES: Final = 16
"""Bytes of the least and of the greatest string that are kept."""

_EXACT: Final = 1
_SUMMARY: Final = 2
_NULL, _TRUE, _FALSE, _NUMBER, _STRING = 1, 2, 4, 8, 16
_HEAD: Final = struct.Struct(f"<BBBdd{PREFIX_BYTES}s{PREFIX_BYTES}s")
_DOUBLE: Final = struct.Struct("<d")
_STEP: Final = 0x9E3779B97F4A7C15  # 2**64 by the golden ratio
_MASK: Final = 2**64 - 1
_ONE: Final = ord("1")
_VALUES: Final = "v"

Found = set[tuple[type, HeaderValue]]
"""Different values of a header. The type comes with each, because 1, 1.0 and TRUE are equal."""
_BEYOND: Final[tuple[type, HeaderValue]] = (object, None)
"""Stands in Found for a value that no fingerprint describes."""


class Fingerprint:
    """What is known of one header in one block. This one knows nothing."""

    __slots__ = ()

    def may_be(
        self, name: str, test: Callable[[Mapping[str, HeaderValue]], bool], ask: Callable[[SummaryFingerprint], bool]
    ) -> bool:
        """Return whether a test of this header alone may hold for a message of the block.

        ask: answers the same from a summary.
        """
        return True


UNKNOWN: Final = Fingerprint()


class ExactFingerprint(Fingerprint):
    """All values of the header in the block; None where a message lacks the header."""

    __slots__ = ("values",)

    def __init__(self, values: list[HeaderValue]) -> None:
        self.values = values

    def may_be(
        self, name: str, test: Callable[[Mapping[str, HeaderValue]], bool], ask: Callable[[SummaryFingerprint], bool]
    ) -> bool:
        """See Fingerprint."""
        for value in self.values:
            if test({name: value}):
                return True
        return False


class SummaryFingerprint(Fingerprint):
    """Kinds, bounds and a Bloom filter of the values."""

    __slots__ = ("kinds", "hashes", "low", "high", "first", "last", "_data")

    def __init__(self, data: bytes) -> None:
        """data: what `_summary` packed."""
        _, kinds, hashes, low, high, first, last = _HEAD.unpack_from(data)
        self.kinds: int = kinds
        self.hashes: int = hashes
        self.low: float = low
        self.high: float = high
        self.first: bytes = first
        self.last: bytes = last
        self._data = data

    def may_be(
        self, name: str, test: Callable[[Mapping[str, HeaderValue]], bool], ask: Callable[[SummaryFingerprint], bool]
    ) -> bool:
        """See Fingerprint."""
        return ask(self)

    @property
    def has_null(self) -> bool:
        """Whether a message lacks the header, or has NULL there."""
        return self.kinds & _NULL != 0

    @property
    def has_values(self) -> bool:
        return self.kinds & ~_NULL != 0

    @property
    def has_strings(self) -> bool:
        return self.kinds & _STRING != 0

    @property
    def has_numbers(self) -> bool:
        """Whether there are numbers, which lie between `low` and `high`."""
        return self.kinds & _NUMBER != 0

    def has_bool(self, value: bool) -> bool:
        return self.kinds & (_TRUE if value else _FALSE) != 0

    def may_have_string(self, strings: Iterable[str]) -> bool:
        """Return whether one of the strings may be among the values. O(strings)."""
        for string in strings if self.has_strings else ():
            encoded = string.encode(errors="surrogatepass")
            if self.first <= _prefix(encoded) <= self.last and self._may_have(zlib.crc32(encoded)):
                return True
        return False

    def may_have_number(self, number: int | float) -> bool:
        """Return whether the number may be among the values."""
        if not self.has_numbers or not self.low <= number <= self.high:
            return False
        try:
            return self._may_have(_number_hash(number))
        except OverflowError:
            return True

    def _may_have(self, hashed: int) -> bool:
        data, begin = self._data, _HEAD.size
        bits = 8 * (len(data) - begin)
        return all([data[begin + (bit >> 3)] >> (bit & 7) & 1 for bit in _filter_bits(hashed, self.hashes, bits)])


def fingerprint_of(data: bytes) -> Fingerprint:
    """Return the fingerprint in these bytes; UNKNOWN for bytes that BlockSurvey can't have packed."""
    form = data[0] if data else 0
    if form == _EXACT:
        try:
            values = decode_properties(data[1:])[0].get(_VALUES)
        except RecordDamaged:
            return UNKNOWN
        return ExactFingerprint(values) if isinstance(values, list) else UNKNOWN
    if form == _SUMMARY and len(data) > _HEAD.size:
        found = SummaryFingerprint(data)
        return found if 0 < found.hashes <= HASHES_MAX else UNKNOWN
    return UNKNOWN


class BlockSurvey:
    """What some headers are in the messages of one block, as far as they were examined. Not thread-safe."""

    __slots__ = ("names", "number", "_examined", "_found", "_indexes", "_noted")

    def __init__(self, names: frozenset[str], number: int) -> None:
        """names: of the headers. number: of the block."""
        self.names = names
        self.number = number
        self._examined = 0
        """Bit per message of the block."""
        self._found: dict[str, Found] = {name: set() for name in names}
        self._indexes: list[int] = []
        self._noted: list[Mapping[str, HeaderValue]] = []
        """Of the messages at `_indexes`, which `_examined` and `_found` do not have yet."""

    @property
    def examined(self) -> int:
        """A bit for each message of the block that was examined."""
        self._sum_up()
        return self._examined

    def add(self, index: int, values: Mapping[str, HeaderValue]) -> None:
        """Note the headers of the message at an index of the block. values: these headers at least."""
        self._indexes.append(index)
        self._noted.append(values)

    def _sum_up(self) -> None:
        """Reduce what was noted to the different values. O(messages noted since the last time)."""
        for index in self._indexes:
            self._examined |= 1 << index
        self._indexes.clear()
        for name, found in self._found.items() if self._noted else ():
            found |= _different([values.get(name) for values in self._noted])
        self._noted.clear()

    def merge(self, other: BlockSurvey) -> None:
        """Take over what another survey of the same block and headers has noted."""
        assert other.number == self.number and other.names == self.names
        self._sum_up()
        self._examined |= other.examined
        for name, found in self._found.items():
            found |= other._found[name]

    def pack(self) -> dict[str, bytes]:
        """Return the fingerprint of each header. O(messages)."""
        self._sum_up()
        return {name: _pack(found) for name, found in self._found.items()}


def _different(column: list[HeaderValue]) -> Found:
    """Return the different values; _BEYOND for those that no fingerprint describes."""
    kinds = set(map(type, column))
    if list in kinds or dict in kinds:
        column = [value for value in column if not isinstance(value, (list, dict))]
    found = set(zip(map(type, column), column, strict=True))
    if list in kinds or dict in kinds:
        found.add(_BEYOND)
    if str in kinds:
        long = [each for each in found if isinstance(each[1], str) and len(each[1]) > STRING_CHARACTERS_MAX]
        if long:
            found.difference_update(long)
            found.add(_BEYOND)
    return found


def _pack(found: Found) -> bytes:
    if _BEYOND in found:
        return b""
    if len(found) <= EXACT_VALUES_MAX:
        packed = encode_properties({_VALUES: [value for _, value in found]})
        if len(packed) < EXACT_BYTES_MAX:
            return bytes((_EXACT,)) + packed
    try:
        return _summary(found)
    except OverflowError:  # an int too wide for a float
        return b""


def _summary(found: Found) -> bytes:
    """Return the summary of values; no bytes for what it can't describe. OverflowError: an int is too wide."""
    kinds = 0
    numbers: list[int | float] = []
    strings: list[bytes] = []
    for _, value in found:
        if isinstance(value, str):
            strings.append(value.encode())
        elif value is None:
            kinds |= _NULL
        elif isinstance(value, bool):
            kinds |= _TRUE if value else _FALSE
        elif isinstance(value, (int, float)) and value == value:
            numbers.append(value)
        else:  # bytes, or no number
            return b""
    hashes = [zlib.crc32(encoded) for encoded in strings]
    low, high = math.inf, -math.inf
    if numbers:
        kinds |= _NUMBER
        low, high = _around(min(numbers))[0], _around(max(numbers))[1]
        hashes += map(_number_hash, numbers)
    first = last = b""
    if strings:
        kinds |= _STRING
        first, last = _prefix(min(strings)), _prefix(max(strings))
    size = max(min(BITS_A_VALUE * len(hashes) + 7 >> 3, FILTER_BYTES_MAX), 1)
    count = max(min(8 * size * 7 // (10 * max(len(hashes), 1)), HASHES_MAX), 1)
    return _HEAD.pack(_SUMMARY, kinds, count, low, high, first, last) + _filter(hashes, count, size)


def _filter(hashes: list[int], count: int, size: int) -> bytes:
    """Return the Bloom filter of so many bytes that has these."""
    bits = 8 * size
    digits = bytearray(b"0" * bits)
    for hashed in hashes:
        at, step = _walk(hashed)
        for _ in range(count):
            digits[at % bits] = _ONE
            at += step
    digits.reverse()
    return int(digits, 2).to_bytes(size, "little")


def _walk(hashed: int) -> tuple[int, int]:
    """Return where the bits of a value begin in a Bloom filter, and how far apart they are, both modulo its bits."""
    mixed = (hashed + 1) * _STEP & _MASK
    return mixed >> 32, (mixed & 0xFFFFFFFF) | 1


def _filter_bits(hashed: int, count: int, bits: int) -> list[int]:
    """Return the bits of a value in a Bloom filter of so many bits."""
    at, step = _walk(hashed)
    return [(at + turn * step) % bits for turn in range(count)]


def _prefix(encoded: bytes) -> bytes:
    return encoded[:PREFIX_BYTES].ljust(PREFIX_BYTES, b"\0")


def _number_hash(number: int | float) -> int:
    return zlib.crc32(_DOUBLE.pack(float(number) + 0.0))  # so that both zeros are one


def _around(number: int | float) -> tuple[float, float]:
    """Return the number as a float, rounded down and up."""
    near = float(number)
    if near == number:
        return near, near
    return math.nextafter(near, -math.inf), math.nextafter(near, math.inf)
