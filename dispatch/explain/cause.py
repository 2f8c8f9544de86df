"""The form of an explanation: causes as data, and a sentence."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cause:
    """One reason, and who could do something about it."""

    reason: str
    """A word for the reason.

    Of disk: "pending_message", "retention", "ack", "transaction", "lease" or "in_use". Of memory: "memory". Of a topic:
    "subscription". dispatch/explain/reasons.py lists those of a queue or a consumer.
    """
    holder: str
    """A destination ("0:orders" is the queue), a durable subscription ("1:prices/audit"), the xid of a prepared
    transaction or the number of an open one, "journal", "checkpoint", or a holder of memory. For a queue or a consumer
    also the holder of the messages, such as "2 other consumers", or the limit that a send waits for.

    For an ack: the holder of the data logs whose messages would come back if the ack were deleted.
    """
    messages: int
    bytes: int
    oldest_seconds: float | None
    """How long ago the first of the messages was sent, or None where there is none, or it cannot be read."""
    frees: str
    """What would end the reason."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Causes and a sentence. No causes mean that nothing holds the subject any more."""

    sentence: str
    causes: tuple[Cause, ...]


@dataclass(frozen=True, slots=True)
class DataLogReport:
    """One data log of a journal, and why it remains."""

    data_log: int
    """The id of the data log: 7 is data-7.log."""
    bytes: int
    live_bytes: int
    """The bytes of pending messages in it."""
    explanation: Explanation
