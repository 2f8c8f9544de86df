"""Reads: compare the bytes that lagging subscriptions read from disk with the backlog that they have to read.

Subscriptions share reads while they are near each other, that is while the messages between them fit into half the
PendingCache. If they were ever farther apart, as with large bodies under a small limit, the bytes read are reported but
not judged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from forebay.dispatch.config.sizes import KIB

from .evidence import Check
from .words import mib

READ_FACTOR: Final = 1.1
"""Bytes that may be read for each byte of the backlog, because subscriptions near each other share reads."""
READ_ALLOWANCE_BYTES: Final = 128 * KIB
"""Further bytes that each subscription may read after each open, for its list, before it is near another one."""


class Reads:
    """The reads of one run, over all its kills. Each new process finds a backlog of its own."""

    def __init__(self, subscriptions: int) -> None:
        self._subscriptions = subscriptions
        self._opens = 0
        # Totals of processes that have ended.
        self._read_bytes = self._backlog_bytes = 0
        self._gauged: Mapping[str, Any] = {"read_bytes": 0, "topic_bytes": 0}
        # The greatest distance of subscriptions that the cache did not cover, and the distance that it covered then.
        # None: it always covered enough.
        self._apart: tuple[int, int] | None = None

    def opened(self) -> None:
        """Note that another process begins to count at 0."""
        self._opens += 1
        self._read_bytes += self._gauged["read_bytes"]
        self._backlog_bytes += self._gauged["topic_bytes"]
        self._gauged = {"read_bytes": 0, "topic_bytes": 0}

    def gauge(self, facts: Mapping[str, Any]) -> None:
        """Note what the process has read since it opened the store, and the backlog and arrivals of topics.

        spread_bytes: distance of subscriptions that should be close together. reach_bytes: greatest distance at which
        they share reads.
        """
        self._gauged = facts
        spread_bytes, reach_bytes = facts["spread_bytes"], facts["reach_bytes"]
        if spread_bytes > reach_bytes and (self._apart is None or spread_bytes > self._apart[0]):
            self._apart = (spread_bytes, reach_bytes)

    def judge(self) -> Iterator[Check]:
        """Yield the check, or nothing if there is no topic or the system does not count the reads of a process."""
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
