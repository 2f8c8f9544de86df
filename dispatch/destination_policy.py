"""DestinationPolicy: what may be chosen for some destinations only, and how their names are matched.

A pattern is a destination's name in words divided by ".", where "*" stands
for any one word and ">", as the last word, for the rest, which may be
nothing. Of the patterns that match a name the most specific one decides
alone: policies are not mixed.
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ..store.errors import SettingsError

PREFETCH_MAX: Final = 1_000_000

_END, _WORD, _ANY_WORD, _REST = 3, 2, 1, 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DestinationPolicy:
    """The rules of the destinations whose names match a pattern of `Settings.policies`."""

    prefetch: int = 1000
    """Most deliveries that a consumer may hold unsettled, where `subscribe` does not say it; from 0 to 1,000,000.
    More: fewer waits for acks, more to come again when the consumer dies."""

    def __post_init__(self) -> None:
        check_prefetch(self.prefetch)


def check_prefetch(prefetch: int) -> None:
    if type(prefetch) is not int or not 0 <= prefetch <= PREFETCH_MAX:
        raise SettingsError(f"prefetch={reprlib.repr(prefetch)} must be an int from 0 to {PREFETCH_MAX:,}")


def check_policies(policies: object) -> None:
    """Raise SettingsError unless these are policies by pattern."""
    given = f"policies={reprlib.repr(policies)}"
    if not isinstance(policies, Mapping):
        raise SettingsError(f"{given} must map patterns to DestinationPolicy objects")
    for pattern, policy in policies.items():
        problem = pattern_problem(pattern)
        if problem is None and not isinstance(policy, DestinationPolicy):
            problem = f"{reprlib.repr(pattern)} must have a DestinationPolicy, not {type(policy).__name__}"
        if problem is not None:
            raise SettingsError(f"{given}: {problem}")


def pattern_problem(pattern: object) -> str | None:
    """What is wrong with a pattern; None: nothing."""
    shown = reprlib.repr(pattern)
    if not isinstance(pattern, str) or not pattern:
        return f'a pattern must be a str such as "orders.*", not {shown}'
    words = pattern.split(".")
    if ">" in words[:-1]:
        return f'the pattern {shown} goes on behind ">", which stands for the rest'
    if any(len(word) > 1 and ("*" in word or ">" in word) for word in words):
        return f'in the pattern {shown}, "*" and ">" must be whole words, which "." divides'
    return None


def policy_for(policies: Mapping[str, DestinationPolicy], name: str) -> DestinationPolicy:
    """That of the most specific pattern; the defaults where none matches. O(patterns).

    Words are compared from the left, a word before "*", "*" before ">", and
    the name's end before ">".
    """
    found = [pattern for pattern in policies if matches(pattern, name)]
    return policies[max(found, key=_specificity)] if found else DestinationPolicy()


def matches(pattern: str, name: str) -> bool:
    """Whether a valid pattern stands for this name."""
    wanted, words = pattern.split("."), name.split(".")
    if wanted[-1] == ">":
        wanted.pop()
        words = words[: len(wanted)]
    return len(wanted) == len(words) and all(word in ("*", actual) for word, actual in zip(wanted, words, strict=True))


def _specificity(pattern: str) -> list[int]:
    words = pattern.split(".")
    ranks = [{"*": _ANY_WORD, ">": _REST}.get(word, _WORD) for word in words]
    return ranks if words[-1] == ">" else [*ranks, _END]
