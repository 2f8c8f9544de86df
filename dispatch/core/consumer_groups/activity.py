"""Activity: how a consumer moves: how fast it takes, and whether it is slow or stuck.

No take and no ack does anything for it: once a second slow.py and stuck.py of dispatch/consumer compare the consumer's
counts with those of before. Nothing here survives the process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Activity:
    """What was last seen of one consumer. The state lock guards it."""

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
        """slow_seconds: after how long without a move it is slow; None: never. on_slow: called then, under no lock."""
        self.slow_seconds = slow_seconds
        self.on_slow = on_slow
        self.is_slow = False
        """It has neither taken nor settled anything for `slow_seconds`, and holds messages or could have some."""
        self.moved_at = now
        """When it last was seen to have taken or settled something."""
        self.counts_seen = (0, 0)
        """What `delivered` and `in_flight` were when somebody last looked whether it is slow."""
        self.messages_per_second = 0.0
        """How fast it took in the last second that was measured."""
        self.counts_when_stuck = (0, 0)
        """What `delivered` and `in_flight` were when somebody last looked whether it is stuck."""
        self.stuck_since = now
        """When it last was seen to have moved, to wait for nothing, or to have an empty queue."""
        self.stuck_told_again_at = 0.0
        """When the log may say again that it is stuck."""
