"""What `forebay plan` prints: the limits that were asked for, and a plan as a table or as plain data."""

from __future__ import annotations

import dataclasses
from typing import Final

from ...store.errors import SettingsError
from ..config.settings import MIN_MEMORY_LIMIT_BYTES
from ..config.sizes import format_size, parse_size
from .plan import LIMITS_MAX, Plan

LIMIT_BYTES_MAX: Final = 1 << 50


def parse_limits(text: str | None) -> list[int]:
    """Return the memory limits of --limits, the smallest first; none for None. SettingsError."""
    if text is None:
        return []
    parts = text.split(",")
    if len(parts) > LIMITS_MAX:
        raise SettingsError(f"--limits has {len(parts)} sizes, above {LIMITS_MAX}")
    limits = [
        parse_size("--limits", part.strip(), minimum=MIN_MEMORY_LIMIT_BYTES, maximum=LIMIT_BYTES_MAX) for part in parts
    ]
    return sorted(set(limits))


def table(found: Plan) -> list[str]:
    """Return the plan as lines for a terminal."""
    curve = found.curve
    recommended = curve.recommended_limit_bytes
    lines = [
        f"{curve.deliveries:,} deliveries in {found.seconds:,.0f} s, recorded with memory_limit="
        f"{format_size(found.recorded_limit_bytes)}",
        "",
        f"{'memory_limit':>12}  {'hit ratio':>9}  {'read back':>10}  {'reads':>8}",
    ]
    for planned in found.limits:
        mark = "  <- recommended" if planned.limit_bytes == recommended else ""
        missed = planned.deliveries - planned.hits
        size = format_size(planned.limit_bytes)
        lines.append(f"{size:>12}  {planned.hit_ratio:>9.4f}  {missed:>10,}  {planned.reads:>8,}{mark}")
    lines.append("")
    if recommended is None:
        lines.append("nothing was delivered: there is nothing to recommend")
    else:
        lines.append(f"memory_limit={format_size(recommended)}: the smallest of them within 0.01 of the best hit ratio")
    if found.unread_bytes:
        lines.append(f"the last {found.unread_bytes:,} bytes are no whole block, and were left out")
    strays = max(planned.strays for planned in found.limits)
    if strays:
        lines.append(f"{strays:,} deliveries came in another order than recorded")
    lines += [
        f"memory_limit={format_size(planned.limit_bytes)} is too small for what was in flight: "
        f"{planned.held_back:,} deliveries had to wait for an ack"
        for planned in found.limits
        if planned.held_back
    ]
    return lines


def as_json(found: Plan) -> dict[str, object]:
    """Return the plan as plain data."""
    limits = [dataclasses.asdict(planned) | {"hit_ratio": planned.hit_ratio} for planned in found.limits]
    return dataclasses.asdict(found) | {
        "limits": limits,
        "recommended_limit_bytes": found.curve.recommended_limit_bytes,
    }
