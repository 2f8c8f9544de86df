"""Fingerprint: what one header is in the messages of a block, in a few bytes.

A selector asks a fingerprint whether any message of the block may match. The answer is exact if the header has few
values in the block. Otherwise bounds and a Bloom filter answer: "no" is always right, "perhaps" may be wrong. A
fingerprint takes at most one byte for each message. Acks do not change it, because it says only what may be there.
Bytes that can't be a fingerprint are UNKNOWN, and then the block is read.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import reduce
from itertools import chain
from operator import itemgetter, mul, or_
from types import NoneType
from typing import Final, cast

from ..format.message_properties import decode_properties, encode_properties, header_values_of_each
from ..format.record import RecordDamaged
from ..message import HeaderValue
from ..numbering import BLOCK_MASK
from ..structures.bits import mask_of, ones

EXACT_VALUES_MAX: Final = 8
EXACT_BYTES_MAX: Final = 128
"""If a block has so few distinct values that they fit into this, the fingerprint has the values themselves."""
STRING_CHARACTERS_MAX: Final = 128
"""If a string of a header is longer, the header is UNKNOWN in that block. Strings stay in RAM while a block is
examined.
"""
FILTER_BYTES_MAX: Final = 368
BITS_A_VALUE: Final = 16
"""Bits of the Bloom filter for each value, as long as the filter is shorter than FILTER_BYTES_MAX."""
HASHES_MAX: Final = 8
DENSE_SHARE: Final = 0.75
"""If a block has this share of all whole numbers between its bounds, a Bloom filter would tell next to nothing."""
PREFIX_BYTES: Final = 16
"""How many bytes of the least and of the greatest string are kept."""

_EXACT: Final = 1
_SUMMARY: Final = 2
_NULL, _TRUE, _FALSE, _NUMBER, _STRING = 1, 2, 4, 8, 16
_HEAD: Final = struct.Struct(f"<BBBdd{PREFIX_BYTES}s{PREFIX_BYTES}s")
FINGERPRINT_BYTES_MAX: Final = _HEAD.size + FILTER_BYTES_MAX
_DOUBLE: Final = struct.Struct("<d")
_STEP: Final = 0x9E3779B97F4A7C15
"""2**64 divided by the golden ratio.

It is multiplied by `mul`, because an interruption inside `*` of large numbers ends the process in machine code.
"""
_MASK: Final = 2**64 - 1
_HALF_MASK: Final = 2**32 - 1
_EVERYTHING: Final = b"\xff"
"""A Bloom filter that rules out nothing."""
_ZERO: Final = b"0"
_ONE: Final = b"1"
_VALUES: Final = "v"

Found = dict[type, set[HeaderValue]]
"""Distinct values of a header, by type, because 1, 1.0 and TRUE are equal."""
_BEYOND: Final = object
"""Stands in Found for values that no fingerprint can describe."""
_SUMMARIZED: Final[frozenset[type]] = frozenset((str, int, float, bool, NoneType))


class Fingerprint:
    """Facts about one header in one block. This base class has none: any test of the header may hold."""

    __slots__ = ()

    def may_be(
        self, name: str, test: Callable[[dict[str, HeaderValue]], bool], ask: Callable[[SummaryFingerprint], bool]
    ) -> bool:
        """Return whether a test of this header alone may hold for a message of the block.

        ask: gives the same answer from a summary.
        """
        return True


UNKNOWN: Final = Fingerprint()


class ExactFingerprint(Fingerprint):
    """All values of the header in the block; None stands for messages without the header."""

    __slots__ = ("values",)

    def __init__(self, values: list[HeaderValue]) -> None:
        self.values = values

    def may_be(
        self, name: str, test: Callable[[dict[str, HeaderValue]], bool], ask: Callable[[SummaryFingerprint], bool]
    ) -> bool:
        """Return whether the test holds for one of the values in the block."""
        for value in self.values:
            if test({name: value}):
                return True
        return False


class SummaryFingerprint(Fingerprint):
    """Types, bounds and a Bloom filter of the values."""

    __slots__ = ("kinds", "hashes", "low", "high", "first", "last", "_data")

    def __init__(self, data: bytes) -> None:
        """Read a summary. data: what `_summary` packed."""
        self.kinds: int
        self.hashes: int
        self.low: float
        self.high: float
        self.first: bytes
        self.last: bytes
        _, self.kinds, self.hashes, self.low, self.high, self.first, self.last = _HEAD.unpack_from(data)
        self._data = data

    def may_be(
        self, name: str, test: Callable[[dict[str, HeaderValue]], bool], ask: Callable[[SummaryFingerprint], bool]
    ) -> bool:
        """Return whether the test may hold for a value, as far as the summary tells."""
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
        """Whether there are numbers. They lie between `low` and `high`."""
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
    """Return the fingerprint in these bytes; UNKNOWN if BlockSurvey can't have packed them."""
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


def fingerprint_of_all(packed: Sequence[bytes]) -> Fingerprint:
    """Return what is known of a header in several blocks together, without a filter: a "no" is one for each of them.

    UNKNOWN if one of them has no summary. A third of the time of the single fingerprints.
    """
    heads = [_HEAD.unpack_from(data) for data in packed if len(data) > _HEAD.size and data[0] == _SUMMARY]
    if len(heads) < len(packed):
        return UNKNOWN
    _, kinds, hashes, lows, highs, firsts, lasts = zip(*heads, strict=True)
    if min(hashes) < 1 or max(hashes) > HASHES_MAX:
        return UNKNOWN
    head = (reduce(or_, kinds), 1, min(lows), max(highs), min(firsts), max(lasts))
    return SummaryFingerprint(_HEAD.pack(_SUMMARY, *head) + _EVERYTHING)


class BlockSurvey:
    """The values of some headers in the messages of one block, as far as these were examined. Not thread-safe."""

    __slots__ = ("names", "number", "_examined", "_found", "noted")

    def __init__(self, names: frozenset[str], number: int) -> None:
        """Make an empty survey. names: the headers. number: the block."""
        self.names = names
        self.number = number
        # One bit per message of the block.
        self._examined = 0
        self._found: dict[str, Found] = {name: {} for name in names}
        # Headers that were noted recently and are not summed up yet, by index in the block. Only this class changes it.
        self.noted: dict[int, dict[str, HeaderValue]] = {}

    @property
    def examined(self) -> int:
        """One bit for each examined message of the block."""
        self._sum_up()
        return self._examined

    def decode(
        self, indexes: list[int], properties: Sequence[bytes], names: frozenset[str]
    ) -> list[dict[str, HeaderValue] | None]:
        """Note the headers of messages and return them; None where they can't be decoded.

        indexes, properties: the index in the block and the properties of each message.
        names: the headers to decode, at least those of the survey. Decoding many messages together takes half the time.
        """
        decoded = header_values_of_each(properties, names)
        noted = self.noted
        for at, values in enumerate(decoded):  # machine code would make a tuple for each step of a strict zip
            if values is not None:
                noted[indexes[at]] = values
        return decoded

    def take_in(self, sequences: Sequence[int], decoded: Sequence[dict[str, HeaderValue] | None]) -> None:
        """Take in the headers of messages of the block, at least one. decoded: of each at least these headers, or None.

        It sums them up at once, by columns: to note each of them for later would take as long again.
        """
        if not all(decoded):  # some message has none of the headers, or they cannot be decoded
            known = [
                (sequence, values) for sequence, values in zip(sequences, decoded, strict=True) if values is not None
            ]
            if not known:
                return
            sequences, decoded = [sequence for sequence, _ in known], [values for _, values in known]
        rows = cast("Sequence[dict[str, HeaderValue]]", decoded)
        # They nearly always are, and then a sort takes a fifth of min and max.
        ascending = sequences if type(sequences) is range else sorted(sequences)
        low, high = ascending[0], ascending[-1]
        if high - low + 1 == len(ascending):
            self._examined |= ones(low & BLOCK_MASK, high & BLOCK_MASK)
        else:
            self._examined |= mask_of([sequence & BLOCK_MASK for sequence in sequences])
        for name, values_by_kind in self._found.items():
            _add_different(values_by_kind, _column(name, rows))

    def add(self, index: int, values: dict[str, HeaderValue]) -> None:
        """Note the headers of the message at an index of the block. values: at least these headers."""
        self.noted[index] = values

    def _sum_up(self) -> None:
        """Reduce what was noted to distinct values. O(messages noted since the last time)."""
        if not self.noted:
            return
        self._examined |= mask_of(self.noted)
        for name, values_by_kind in self._found.items():
            _add_different(values_by_kind, _column(name, self.noted.values()))
        self.noted.clear()

    def merge(self, other: BlockSurvey) -> None:
        """Take over the notes of another survey of the same block and headers."""
        assert other.number == self.number and other.names == self.names
        self._sum_up()
        self._examined |= other.examined
        for name, found in self._found.items():
            for kind, values in other._found[name].items():
                found.setdefault(kind, set()).update(values)

    def pack(self) -> dict[str, bytes]:
        """Return the fingerprint of each header. O(messages)."""
        self._sum_up()
        return {name: _pack(found) for name, found in self._found.items()}


def _column(name: str, rows: Collection[dict[str, HeaderValue]]) -> list[HeaderValue]:
    """Return one header of many messages; None for messages without it."""
    try:
        return list(map(itemgetter(name), rows))
    except KeyError:
        return [values.get(name) for values in rows]


def _add_different(values_by_kind: Found, column: list[HeaderValue]) -> None:
    """Add distinct values; _BEYOND stands for those that no fingerprint can describe."""
    kinds = set(map(type, column))
    for kind in kinds:
        if kind is list or kind is dict:
            values_by_kind[_BEYOND] = set()
            continue
        values = set(column) if len(kinds) == 1 else {value for value in column if type(value) is kind}
        if kind is str and max(map(len, cast("set[str]", values))) > STRING_CHARACTERS_MAX:
            values_by_kind[_BEYOND] = set()
        else:
            values_by_kind.setdefault(kind, set()).update(values)


def _pack(values_by_kind: Found) -> bytes:
    if _BEYOND in values_by_kind:
        return b""
    if sum(map(len, values_by_kind.values())) <= EXACT_VALUES_MAX:
        packed = encode_properties({_VALUES: list(chain.from_iterable(values_by_kind.values()))})
        if len(packed) < EXACT_BYTES_MAX:
            return bytes((_EXACT,)) + packed
    try:
        return _summary(values_by_kind)
    except OverflowError:  # an int too wide for a float
        return b""


def _summary(values_by_kind: Found) -> bytes:
    """Return the summary of values; no bytes if it can't describe them. OverflowError: an int is too wide."""
    # Keep an int an int: machine code would make a float of it, which rounds.
    numbers: list[int | float] = [
        *cast("set[int]", values_by_kind.get(int, set())),
        *cast("set[float]", values_by_kind.get(float, set())),
    ]
    if not _SUMMARIZED.issuperset(values_by_kind) or any([number != number for number in numbers]):  # bytes, or NaN
        return b""
    strings = list(map(str.encode, cast("set[str]", values_by_kind.get(str, set()))))
    truths = values_by_kind.get(bool, set())
    kinds = (NoneType in values_by_kind) * _NULL | (True in truths) * _TRUE | (False in truths) * _FALSE
    hashes = list(map(zlib.crc32, strings))
    low, high = math.inf, -math.inf
    if numbers:
        kinds |= _NUMBER
        low, high = _around(min(numbers))[0], _around(max(numbers))[1]
        if not strings and float not in values_by_kind and len(numbers) >= DENSE_SHARE * (high - low + 1):
            return _HEAD.pack(_SUMMARY, kinds, 1, low, high, b"", b"") + _EVERYTHING
        hashes += _number_hashes(numbers)
    first = last = b""
    if strings:
        kinds |= _STRING
        first, last = _prefix(min(strings)), _prefix(max(strings))
    size = max(min(BITS_A_VALUE * len(hashes) + 7 >> 3, FILTER_BYTES_MAX), 1)
    count = max(min(8 * size * 7 // (10 * max(len(hashes), 1)), HASHES_MAX), 1)
    return _HEAD.pack(_SUMMARY, kinds, count, low, high, first, last) + _filter(hashes, count, size)


def _filter(hashes: list[int], count: int, size: int) -> bytes:
    """Return a Bloom filter of `size` bytes with these hashes."""
    bits = 8 * size
    digits = [_ZERO] * bits
    for hashed in hashes:  # as _filter_bits, written inline: a scan passes here for each value
        mixed = mul(hashed + 1, _STEP) & _MASK
        at: int = (mixed >> 32) % bits
        step: int = ((mixed & _HALF_MASK) | 1) % bits
        for _ in range(count):
            digits[at] = _ONE
            at += step
            if at >= bits:
                at -= bits
    digits.reverse()
    return int(b"".join(digits), 2).to_bytes(size, "little")


def _filter_bits(hashed: int, count: int, bits: int) -> list[int]:
    """Return the bits of a value in a Bloom filter."""
    mixed = mul(hashed + 1, _STEP) & _MASK
    at, step = mixed >> 32, (mixed & _HALF_MASK) | 1
    return [(at + turn * step) % bits for turn in range(count)]


def _prefix(encoded: bytes) -> bytes:
    return encoded[:PREFIX_BYTES].ljust(PREFIX_BYTES, b"\0")


def _number_hashes(numbers: Sequence[int | float]) -> list[int]:
    """Return _number_hash of each. OverflowError: one is too wide."""
    packed = struct.pack(f"<{len(numbers)}d", *[float(number) + 0.0 for number in numbers])
    return [zlib.crc32(packed[at : at + 8]) for at in range(0, len(packed), 8)]


def _number_hash(number: int | float) -> int:
    return zlib.crc32(_DOUBLE.pack(float(number) + 0.0))  # adding 0.0 makes both zeros the same


def _around(number: int | float) -> tuple[float, float]:
    """Return the number as a float, rounded down and rounded up."""
    near = float(number)
    if near == number:
        return near, near
    return math.nextafter(near, -math.inf), math.nextafter(near, math.inf)
