"""What an explanation is made of: causes, as data, and a sentence."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cause:
    """One reason, and who could do something about it."""

    reason: str
    """Of disk: "pending_message", "retention", "ack", "transaction", "lease" or "in_use". Of memory: "memory". Of a
    topic: "subscription". Of a queue or a consumer: see dispatch/explain/queues.py."""
    holder: str
    """A destination ("0:orders" is the queue), a durable subscription ("1:prices/audit"), the xid of a prepared
    transaction or the number of an open one, "journal", "checkpoint", or a holder of memory; of a
    queue or a consumer also who has the messages, such as "2 other consumers", or the limit that a send waits for.

    Of an ack it is who keeps the data logs whose messages would come back if the ack were deleted.
    """
    messages: int
    bytes: int
    oldest_seconds: float | None
    """How long ago the first of the messages was sent; None where there is none, or it cannot be read."""
    frees: str
    """What would end it."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """No causes: nothing holds it any more."""

    sentence: str
    causes: tuple[Cause, ...]


@dataclass(frozen=True, slots=True)
class DataLogReport:
    """One data log of a journal, and why it remains."""

    data_log: int
    """Its id: 7 is data-7.log."""
    bytes: int
    live_bytes: int
    """Of them, those of pending messages."""
    explanation: Explanation
