"""Reads: what subscriptions that lag behind cost of the disk, against the backlog that is theirs to read.

Subscriptions share reads while they are near each other: half the PendingCache
holds what lies between them. Where the scenario's are ever farther apart, as
large bodies under a small limit make them, what was read is said and not judged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from forebay.dispatch.config.sizes import KIB

from .evidence import Check
from .words import mib

READ_FACTOR: Final = 1.1
"""Bytes that may be read for each byte of the backlog: subscriptions that are near each other share a read."""
READ_ALLOWANCE_BYTES: Final = 128 * KIB
"""Bytes that each subscription may read beside them whenever a store is opened: its list, before it is near another."""


class Reads:
    """One run, over all its kills: a new process finds its own backlog."""

    def __init__(self, subscriptions: int) -> None:
        self._subscriptions = subscriptions
        self._opens = 0
        # Of processes that have ended.
        self._read_bytes = self._backlog_bytes = 0
        self._gauged: Mapping[str, Any] = {"read_bytes": 0, "topic_bytes": 0}
        # How far apart subscriptions were, and how far the cache reached, when it was farthest from reaching.
        self._apart: tuple[int, int] | None = None

    def opened(self) -> None:
        """Note that another process begins to count at 0."""
        self._opens += 1
        self._read_bytes += self._gauged["read_bytes"]
        self._backlog_bytes += self._gauged["topic_bytes"]
        self._gauged = {"read_bytes": 0, "topic_bytes": 0}

    def gauge(self, facts: Mapping[str, Any]) -> None:
        """Take what the process has read since it opened the store, and what topics found there or got since.

        spread_bytes: how far subscriptions are apart that are to lie side by side. reach_bytes: what may be between
        them so that they share reads.
        """
        self._gauged = facts
        spread_bytes, reach_bytes = facts["spread_bytes"], facts["reach_bytes"]
        if spread_bytes > reach_bytes and (self._apart is None or spread_bytes > self._apart[0]):
            self._apart = (spread_bytes, reach_bytes)

    def judge(self) -> Iterator[Check]:
        """Yield nothing where there is no topic, or where the system does not tell what a process reads."""
        read_bytes = self._read_bytes + self._gauged["read_bytes"]
        backlog_bytes = self._backlog_bytes + self._gauged["topic_bytes"]
        allowance_bytes = READ_ALLOWANCE_BYTES * self._subscriptions * self._opens
        if read_bytes and backlog_bytes:
            text = (
                f"{mib(read_bytes)} read from disk for {mib(backlog_bytes)} of backlog, "
                f"{read_bytes / backlog_bytes:.2f} times"
            )
            if self._apart is not None:
                spread, reach = map(mib, self._apart)
                yield Check(
                    "reads", True, f"{text}; not judged, subscriptions were {spread} apart and share within {reach}"
                )
                return
            is_held = read_bytes <= READ_FACTOR * backlog_bytes + allowance_bytes
            yield Check("reads", is_held, f"{text}; allowed {READ_FACTOR:g} times, and {mib(allowance_bytes)}")
