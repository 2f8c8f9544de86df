"""ForwardReader: a file read forward once, with the checksum of any range of it, for a search behind damage.

A hostile body may contain thousands of headers, each of a long record. Computing the checksum of each such record byte
by byte would cost the square of the file's size. But a CRC is linear: the checksum of a range follows from two
checksums that begin at the origin, one up to the beginning of the range and one up to its end. So each byte is read
once, and a range costs two pieces of 1 KiB and a few multiplications.
"""

from __future__ import annotations

from array import array
from typing import Final

from ..disk.disk import File
from ..format.record import crc32

PIECE_BYTES: Final = 1 << 10
_READ_BYTES: Final = 1 << 16

_POLYNOMIAL: Final = 0xEDB88320
_TOP: Final = 1 << 31
"""The polynomial 1, in this bit order."""
_MASK: Final = (1 << 32) - 1


class ForwardReader:
    """The bytes of a file from an offset on, read only forward."""

    def __init__(self, file: File, offset: int) -> None:
        self._file = file
        self._origin = offset
        # Checksums from the origin: of no piece (0), of the first piece, of the first two, and so on.
        self._marks = array("I", (0,))
        # Offset of the first byte that is held.
        self.begin = offset
        self.data = b""

    @property
    def end(self) -> int:
        """Offset behind the last byte that is in memory."""
        return self.begin + len(self.data)

    def read_up_to(self, end: int) -> bool:
        """Read on until all bytes up to `end` are held. False: the file ends before it."""
        while self.end < end:
            more = self._file.read(self.end, max(_READ_BYTES, end - self.end))
            if not more:
                return False
            self.data += more
        while self._origin + len(self._marks) * PIECE_BYTES <= self.end:
            at = self._origin + len(self._marks) * PIECE_BYTES - self.begin
            self._marks.append(crc32(self.data[at - PIECE_BYTES : at], self._marks[-1]))
        return True

    def forget(self, before: int) -> None:
        """Drop bytes before an offset that is held, in whole pieces."""
        begin = before - (before - self._origin) % PIECE_BYTES
        self.data = self.data[begin - self.begin :]
        self.begin = begin

    def checksum(self, begin: int, end: int, initial: int) -> int:
        """Return the crc32 of the bytes from begin to end, continued from `initial`. Requires: these bytes are held.

        It computes up to two pieces byte by byte, and the rest by arithmetic.
        """
        if end - begin <= 2 * PIECE_BYTES:
            return crc32(self.data[begin - self.begin : end - self.begin], initial)
        return _followed_by_zeros(initial ^ self._up_to(begin), end - begin) ^ self._up_to(end)

    def _up_to(self, end: int) -> int:
        """Return the checksum of everything from the origin to end."""
        piece = (end - self._origin) // PIECE_BYTES
        at = self._origin + piece * PIECE_BYTES - self.begin
        return crc32(self.data[at : end - self.begin], self._marks[piece])


def _times(factor: int, other: int) -> int:
    """Return the product of two polynomials modulo that of CRC-32."""
    product = 0
    while factor:
        if factor & _TOP:
            product ^= other
        factor = factor << 1 & _MASK
        other = other >> 1 ^ (_POLYNOMIAL if other & 1 else 0)
    return product


def _powers() -> list[int]:
    """Return x**8, x**16, x**32, ...: the factors that one, two, four more bytes put on a checksum."""
    powers = [_TOP >> 8]
    for _ in range(31):
        powers.append(_times(powers[-1], powers[-1]))
    return powers


_POWERS: Final = _powers()


def _followed_by_zeros(crc: int, zeros: int) -> int:
    """Return the difference of two checksums after that many equal bytes."""
    for power in _POWERS:
        if zeros & 1:
            crc = _times(crc, power)
        zeros >>= 1
    return crc


def initial_of(data: bytes, crc: int) -> int:
    """Return the initial value with which the crc32 of data is `crc`."""
    # x has the order 2**32 - 1. So going back by some bytes is going forward by all others of that order.
    return _followed_by_zeros(crc ^ crc32(data), _MASK - len(data))
