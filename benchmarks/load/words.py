"""Words: numbers as people read them. Nothing here is read back by a program."""

from __future__ import annotations

from collections.abc import Sequence

from forebay.dispatch.config.sizes import MIB, format_size


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: "1 message", "1,000 messages"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def short(number: float) -> str:
    """Return a number in at most five characters: 0, 950, 12.3k, 1.00M."""
    thousands = 0
    while number >= 999.5:
        number /= 1000
        thousands += 1
    decimals = 0 if not thousands or number >= 99.95 else 1 if number >= 9.995 else 2
    return f"{number:.{decimals}f}{('', 'k', 'M', 'G', 'T')[thousands]}"


def mib(size_bytes: int) -> str:
    return f"{size_bytes / MIB:,.1f} MiB"


def of_sizes(sizes: Sequence[int]) -> str:
    """Return the words behind a number of messages: nothing, " of 1KiB", " of 16B/1KiB/64KiB"."""
    return f" of {'/'.join(map(format_size, sizes))}" if sizes else ""
