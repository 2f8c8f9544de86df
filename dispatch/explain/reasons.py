"""The reasons why a consumer gets nothing, or why a queue keeps its messages: the words that `Cause.reason` has."""

from __future__ import annotations

from typing import Final

EMPTY: Final = "empty"
CLOSED: Final = "closed"
DRAINING: Final = "draining"
PAUSED: Final = "paused"
PREFETCH: Final = "prefetch"
LOADING: Final = "loading"
READY: Final = "ready"
IN_FLIGHT: Final = "in_flight"
DELAYED: Final = "delayed"
DUE_LATER: Final = "due_later"
EXPIRED: Final = "expired"
DEAD_LETTER: Final = "dead_letter"
SELECTOR: Final = "selector"
UNREADABLE: Final = "unreadable"
SYNC: Final = "sync"
NO_CONSUMER: Final = "no_consumer"
EXCLUSIVE: Final = "exclusive"
GROUP: Final = "group"
GROUP_DELAYED: Final = "group_delayed"
GROUP_MEMORY: Final = "group_memory"
PRIORITY: Final = "priority"
TRANSACTION: Final = "transaction"
