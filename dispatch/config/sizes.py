"""Sizes: a number of bytes, given as an int or as a string such as "64MiB".

kB, MB and GB count in thousands, KiB, MiB and GiB in 1,024s. A letter alone, as in "64M", counts in 1,024s too, as in
systemd and a JVM. Capitals and small letters mean the same. A value that may not be a size is refused, never
guessed: "64" and 1.5 raise SettingsError.
"""

from __future__ import annotations

import re
import reprlib
from typing import Final

from ...store.errors import SettingsError, argument_error

KIB: Final = 2**10
MIB: Final = 2**20
GIB: Final = 2**30

_UNIT_BYTES: Final = {"B": 1, "kB": 10**3, "KiB": KIB, "MB": 10**6, "MiB": MIB, "GB": 10**9, "GiB": GIB}
_BYTES_OF: Final = {unit.lower(): size for unit, size in _UNIT_BYTES.items()} | {"k": KIB, "m": MIB, "g": GIB}

# At most 18 digits: int() of a longer string is slow, and above 4,300 digits it raises an error of its own.
_SIZE: Final = re.compile(rf"([0-9]{{1,18}})(?:\.([0-9]{{1,18}}))? ?({'|'.join(_BYTES_OF)})", re.IGNORECASE | re.ASCII)
_PERCENT: Final = re.compile(r"([0-9]{1,3})%")


def is_number(value: object, least: float, most: float) -> bool:
    """Return whether the value is an int or a float, no bool and no NaN, from least to most."""
    return isinstance(value, (int, float)) and type(value) is not bool and least <= value <= most


SIZE_MAX: Final = (1 << 63) - 1
"""The largest size. No disk or memory has as much, so a larger number is a typing error."""


def parse_size(name: str, value: object, *, minimum: int = 0, maximum: int | None = None) -> int:
    """Return the bytes that a value stands for, fractions of a byte dropped.

    The bounds are bytes and inclusive. SettingsError names the field, the value and what would be accepted.
    """
    size_bytes = _to_bytes(value)
    if size_bytes is None:
        problem = (
            f"{name}={reprlib.repr(value)} is not a size: give bytes as an int, "
            f'or a string such as "64MiB" (units: {", ".join(_UNIT_BYTES)})'
        )
        raise argument_error(problem, value, int, str)
    if size_bytes < minimum or size_bytes > (SIZE_MAX if maximum is None else maximum):
        most = "" if maximum is None and size_bytes <= SIZE_MAX else f" and at most {format_size(maximum or SIZE_MAX)}"
        raise SettingsError(f"{name}={reprlib.repr(value)} must be at least {format_size(minimum)}{most}")
    return size_bytes


def parse_share(name: str, value: object) -> float | None:
    """Return the share that a percentage such as "80%" stands for, or None when the value is no percentage.

    SettingsError: it is below 1% or above 100%.
    """
    match = _PERCENT.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return None
    if not 1 <= int(match[1]) <= 100:
        raise SettingsError(f"{name}={reprlib.repr(value)} must be from 1% to 100%")
    return int(match[1]) / 100


def format_size(size_bytes: int) -> str:
    """Return the shortest exact string that parse_size reads back: "64MiB", "1500B"."""
    for unit in ("GiB", "MiB", "KiB"):
        whole, rest = divmod(size_bytes, _UNIT_BYTES[unit])
        if whole and not rest:
            return f"{whole}{unit}"
    return f"{size_bytes}B"


def _to_bytes(value: object) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if not isinstance(value, str) or (match := _SIZE.fullmatch(value)) is None:
        return None
    whole, fraction, unit = match.group(1), match.group(2) or "", match.group(3).lower()
    # In integers, because a float would make "2.01MB" 2,009,999 bytes.
    scale: int = 10 ** len(fraction)
    return int(whole + fraction) * _BYTES_OF[unit] // scale
