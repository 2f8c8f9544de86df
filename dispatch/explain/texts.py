"""Writes ages, sizes and counts for sentences."""

from __future__ import annotations

from ..config.sizes import GIB, KIB, MIB


def age_text(seconds: float) -> str:
    """Return an age in the largest unit of which there is more than one."""
    for unit, unit_seconds in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds >= 2 * unit_seconds:
            return f"{int(seconds // unit_seconds):,} {unit}s"
    return f"{seconds:.0f} second{plural(round(seconds))}"


def size_text(size_bytes: int) -> str:
    for unit, unit_bytes in (("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if size_bytes >= unit_bytes:
            return f"{size_bytes / unit_bytes:,.1f} {unit}"
    return f"{size_bytes} byte{plural(size_bytes)}"


def plural(count: int) -> str:
    return "" if count == 1 else "s"
