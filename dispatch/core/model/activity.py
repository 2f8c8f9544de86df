"""Activity: how fast a consumer takes, and whether it is slow or stuck.

Takes and acks do nothing for it. Once a second, slow.py and stuck.py of dispatch/consumer compare the consumer's counts
with those of a second ago.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Activity:
    """The last observations of one consumer. The state lock guards it."""

    __slots__ = (
        "counts_seen",
        "counts_when_stuck",
        "is_slow",
        "messages_per_second",
        "moved_at",
        "on_slow",
        "slow_seconds",
        "stuck_since",
        "stuck_told_again_at",
    )

    def __init__(self, slow_seconds: float | None, on_slow: Callable[[Any], None] | None, now: float) -> None:
        """Begin to observe a consumer.

        slow_seconds: after how many seconds without a move it is slow; None: never. on_slow: called then, under no
            lock.
        """
        self.slow_seconds = slow_seconds
        self.on_slow = on_slow
        # Whether it has neither taken nor settled for `slow_seconds`, though it holds messages or could have some.
        self.is_slow = False
        # When it was last seen to have taken or settled something.
        self.moved_at = now
        # The values of `delivered` and `in_flight` when it was last checked for being slow.
        self.counts_seen = (0, 0)
        # Its rate of taking in the last measured second.
        self.messages_per_second = 0.0
        # The values of `delivered` and `in_flight` when it was last checked for being stuck.
        self.counts_when_stuck = (0, 0)
        # When it was last seen to have moved, to wait for nothing, or to have an empty queue.
        self.stuck_since = now
        # When the log may report again that it is stuck.
        self.stuck_told_again_at = 0.0
