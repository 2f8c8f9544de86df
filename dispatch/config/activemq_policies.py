"""Make policies by pattern from the entries of an ActiveMQ configuration.

ActiveMQ looks up a name in several maps: the policy entries of queues, those of topics, and the redelivery policies of
both. In each map the most specific entry decides. A forebay has one map for queues and topics. So each policy made here
has what every map says about the names of its pattern. If two patterns overlap, the names that both match get a policy
of their own.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from ...store.errors import SettingsError
from .policy import matches, specificity

PATTERNS_MAX: Final = 1000
"""Most patterns of one file, and most policies made from them, because each name is compared with all."""

_REST: Final = ">"

Entries = Mapping[str, Mapping[str, Any]]
"""The fields of each entry of one map, by pattern."""


def joined(maps: Sequence[Entries]) -> dict[str, dict[str, Any]]:
    """Return the fields of each policy. If two maps have a field, the more specific entry decides, else the earlier.

    SettingsError for more than PATTERNS_MAX patterns, or ways in which they overlap.
    """
    patterns = list(dict.fromkeys(itertools.chain.from_iterable(maps)))
    if sum(map(bool, maps)) > 1:
        patterns = _with_overlaps(patterns)
    policies: dict[str, dict[str, Any]] = {}
    for pattern in patterns:
        found = [(entries, governing(entries, pattern)) for entries in reversed(maps)]
        deciding = [(entries, entry) for entries, entry in found if entry is not None]
        policies[pattern] = {}
        for entries, entry in sorted(deciding, key=lambda one: specificity(one[1])):
            policies[pattern].update(entries[entry])
    return {pattern: fields for pattern, fields in policies.items() if not _is_needless(pattern, policies)}


def _is_needless(pattern: str, policies: Entries) -> bool:
    """Return whether, without that pattern, another policy with the same fields would decide."""
    parent = governing([other for other in policies if other != pattern], pattern)
    return parent is not None and policies[parent] == policies[pattern]


def governing(patterns: Collection[str], pattern: str) -> str | None:
    """Return the most specific of the patterns that stand for every name of another one; None: there is none."""
    return max((each for each in patterns if _contains(each, pattern)), key=specificity, default=None)


def _contains(outer: str, inner: str) -> bool:
    if not inner.endswith(_REST):
        return matches(outer, inner)
    return outer.endswith(_REST) and matches(outer, inner.removesuffix(_REST).removesuffix("."))


def _with_overlaps(patterns: list[str]) -> list[str]:
    """Return the patterns, and for any two of the result the pattern of the names that both stand for."""
    found = dict.fromkeys(patterns)
    waiting = list(found)
    while waiting:
        pattern = waiting.pop()
        for other in list(found):
            shared = _shared(pattern, other)
            if shared is not None and shared not in found:
                found[shared] = None
                waiting.append(shared)
        if len(found) > PATTERNS_MAX:
            raise SettingsError(f"its policy entries overlap in more than {PATTERNS_MAX:,} ways: merge some of them")
    return list(found)


def _shared(one: str, other: str) -> str | None:
    """Return the pattern of the names that two patterns stand for; None: there is no such name."""
    shorter, longer = sorted((one.split("."), other.split(".")), key=lambda words: len(_fixed(words)))
    head, tail = _fixed(shorter), _fixed(longer)
    has_rest = len(head) < len(shorter), len(tail) < len(longer)
    if len(head) < len(tail) and not has_rest[0]:
        return None
    words = list(tail)
    for place, word in enumerate(head):
        if words[place] == "*":
            words[place] = word
        elif word not in ("*", words[place]):
            return None
    return ".".join([*words, _REST] if all(has_rest) else words)


def _fixed(words: list[str]) -> list[str]:
    """Return the words before the rest."""
    return words[:-1] if words[-1] == _REST else words
