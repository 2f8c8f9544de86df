"""The output of `forebay plan`: parses the requested limits, and formats a plan or a lab as a table or as plain
data.
"""

from __future__ import annotations

import dataclasses
from typing import Final

from ...store.errors import SettingsError
from ..config.settings import MEMORY_LIMIT_BYTES_MIN
from ..config.sizes import MIB, format_size, parse_size
from .lab import PlayedRule, PlayedRules, RuleComparison
from .plan import LIMITS_MAX, Plan

LIMIT_BYTES_MAX: Final = 1 << 50


def parse_limits(text: str | None) -> list[int]:
    """Return the memory limits of --limits, the smallest first, and none for None. SettingsError: one is no size."""
    if text is None:
        return []
    parts = text.split(",")
    if len(parts) > LIMITS_MAX:
        raise SettingsError(f"--limits has {len(parts)} sizes, above {LIMITS_MAX}")
    limits = [
        parse_size("--limits", part.strip(), minimum=MEMORY_LIMIT_BYTES_MIN, maximum=LIMIT_BYTES_MAX) for part in parts
    ]
    return sorted(set(limits))


def table(plan: Plan) -> list[str]:
    """Return the plan as lines for a terminal."""
    curve = plan.curve
    recommended = curve.recommended_limit_bytes
    lines = [
        f"{curve.deliveries:,} deliveries in {plan.seconds:,.0f} s, recorded with memory_limit="
        f"{format_size(plan.recorded_limit_bytes)}",
        "",
        f"{'memory_limit':>12}  {'hit ratio':>9}  {'read back':>10}  {'reads':>8}",
    ]
    for planned in plan.limits:
        mark = "  <- recommended" if planned.limit_bytes == recommended else ""
        missed = planned.deliveries - planned.hits
        size = format_size(planned.limit_bytes)
        lines.append(f"{size:>12}  {planned.hit_ratio:>9.4f}  {missed:>10,}  {planned.reads:>8,}{mark}")
    lines.append("")
    if recommended is None:
        lines.append("nothing was delivered: there is nothing to recommend")
    else:
        lines.append(f"memory_limit={format_size(recommended)}: the smallest of them within 0.01 of the best hit ratio")
    lines += _left_out(plan.unread_bytes)
    strays = max(planned.strays for planned in plan.limits)
    if strays:
        lines.append(_strayed(strays))
    lines += [_too_small(planned.limit_bytes, planned.held_back) for planned in plan.limits if planned.held_back]
    return lines


def _left_out(unread_bytes: int) -> list[str]:
    return [f"the last {unread_bytes:,} bytes are no whole block, and were left out"] if unread_bytes else []


def _strayed(deliveries: int) -> str:
    return f"{deliveries:,} deliveries came in another order than recorded"


def _too_small(limit_bytes: int, held_back: int) -> str:
    return (
        f"memory_limit={format_size(limit_bytes)} is too small for what was in flight: "
        f"{held_back:,} deliveries had to wait for an ack"
    )


def as_json(plan: Plan) -> dict[str, object]:
    """Return the plan as plain data."""
    limits = [dataclasses.asdict(planned) | {"hit_ratio": planned.hit_ratio} for planned in plan.limits]
    return dataclasses.asdict(plan) | {
        "limits": limits,
        "recommended_limit_bytes": plan.curve.recommended_limit_bytes,
    }


# ---------------------------------------------------------------------- rules


def rules_table(comparison: RuleComparison) -> list[str]:
    """Return a lab as lines for a terminal: a table for each limit."""
    lines: list[str] = []
    for played in comparison.limits:
        lines += [*_rules_under(played), ""]
    if not comparison.limits[0].deliveries:
        lines.append("nothing was delivered: there is nothing to compare")
    lines += _left_out(comparison.unread_bytes)
    return lines if lines[-1] else lines[:-1]


def _rules_under(played: PlayedRules) -> list[str]:
    lines = [
        f"{played.deliveries:,} deliveries, {_mib(played.delivered_bytes)}, "
        f"memory_limit={format_size(played.limit_bytes)}",
        "",
        f"{'rule':<32}  {'hit ratio':>9}  {'read back':>12}  {'waits':>7}  {'regret':>7}",
    ]
    lines += [_rule_line(played, rule) for rule in played.rules]
    regret = _points(played.clairvoyant_regret)
    read_back = _mib(played.clairvoyant_bytes)
    lines += [
        f"{'clairvoyant':<32}  {played.clairvoyant_hit_ratio:>9.4f}  {read_back:>12}  {'':>7}  {regret:>7}",
        "",
        f"regret of ours: {_points(played.regret)} beside the best rule ({played.best.name}),",
        f"{regret} beside one that knows the future",
    ]
    strays = max(rule.strays for rule in played.rules)
    if strays:
        lines.append(f"{_strayed(strays)}: the clairvoyant one is no bound then")
    if played.ours.held_back:
        lines.append(_too_small(played.limit_bytes, played.ours.held_back))
    return lines


def _rule_line(played: PlayedRules, rule: PlayedRule) -> str:
    regret = _points(played.regret_of(played.ours.read_back_bytes, rule.read_back_bytes))
    read_back = _mib(rule.read_back_bytes)
    return f"{rule.name:<32}  {rule.hit_ratio:>9.4f}  {read_back:>12}  {rule.waits:>7,}  {regret:>7}"


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / MIB:,.1f} MiB"


def _points(regret: float) -> str:
    return f"{100 * regret:.1f} %"


def rules_as_json(comparison: RuleComparison) -> dict[str, object]:
    """Return a lab as plain data."""
    limits = [
        dataclasses.asdict(played)
        | {
            "rules": [
                dataclasses.asdict(rule)
                | {"regret": played.regret_of(played.ours.read_back_bytes, rule.read_back_bytes)}
                for rule in played.rules
            ],
            "best": played.best.name,
            "regret": played.regret,
            "clairvoyant_regret": played.clairvoyant_regret,
        }
        for played in comparison.limits
    ]
    return dataclasses.asdict(comparison) | {"limits": limits}
