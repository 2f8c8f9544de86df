"""Writes causes of a queue or a consumer as clauses of a sentence."""

from __future__ import annotations

from .cause import Cause
from .disk import MEMORY
from .reasons import (
    CLOSED,
    DEAD_LETTER,
    DELAYED,
    DRAINING,
    DUE_LATER,
    EMPTY,
    EXCLUSIVE,
    EXPIRED,
    GROUP,
    GROUP_DELAYED,
    GROUP_MEMORY,
    IN_FLIGHT,
    LOADING,
    NO_CONSUMER,
    PAUSED,
    PREFETCH,
    PRIORITY,
    READY,
    SELECTOR,
    SYNC,
    TRANSACTION,
    UNREADABLE,
)
from .texts import plural, size_text


def because(cause: Cause) -> str:
    """Say why a consumer gets nothing, as a clause that follows "because"."""
    messages = f"{cause.messages:,} message{plural(cause.messages)}"
    held = f", with {messages} that nobody else holds" if cause.messages else ""
    groups = "the group of 1 message is" if cause.messages == 1 else f"the groups of {messages} are"
    found = {
        EMPTY: "nothing is pending there",
        CLOSED: "it is closed",
        DRAINING: "it drains: it takes nothing more and settles what it holds",
        PAUSED: f"the queue is paused{held}",
        PREFETCH: f"it holds {messages}, as many as its prefetch admits",
        MEMORY: f"memory is used up, most of it by {cause.holder} ({size_text(cause.bytes)})",
        LOADING: f"its next messages must be read from disk first, up to {cause.messages:,}",
        EXCLUSIVE: f"another consumer is exclusive, with {messages} that nobody holds",
        GROUP: f"{groups} owned by {cause.holder}",
        PRIORITY: f"a consumer of higher priority takes all, {messages} now",
        SELECTOR: f"its selector does not match {messages}",
    }.get(cause.reason)
    return found if found is not None else state(cause)


def state(cause: Cause) -> str:
    """Say how many messages are in the state that a cause describes."""
    one = cause.messages == 1
    messages, verb = f"{cause.messages:,} message{plural(cause.messages)}", "is" if one else "are"
    wait = "waits" if one else "wait"
    return {
        IN_FLIGHT: f"{messages} {verb} in flight with {cause.holder}",
        DELAYED: f"{messages} {verb} delayed",
        DUE_LATER: f"{messages} {verb} {cause.holder}",
        EXPIRED: f"{messages} {'has' if one else 'have'} expired and {'leaves' if one else 'leave'} soon",
        DEAD_LETTER: f"{messages} had the last attempt",
        TRANSACTION: f"{messages} {verb} acknowledged in transaction {cause.holder}",
        SYNC: f"{messages} {verb} stored and not synced yet",
        UNREADABLE: f"{messages} can't be read",
        GROUP: f"{messages} {'is' if one else 'are'} not matched by the owner of {'its' if one else 'their'} group",
        GROUP_DELAYED: f"{messages} {wait} for a delayed one of the same group",
        GROUP_MEMORY: f"{messages} {wait}, as no further group can be held back behind a delayed message",
        SELECTOR: f"no selector of a consumer matches {messages}",
        NO_CONSUMER: f"{messages} {wait} for a consumer, of which there is none",
        PAUSED: f"{messages} {wait} for the queue to be resumed" if cause.messages else "the queue is paused",
        PREFETCH: f"{messages} {wait} for room in the prefetch of {cause.holder}",
        MEMORY: f"{messages} {wait} for memory, which what is in flight has used up",
        READY: f"{messages} {wait} for the next take of {cause.holder}",
        LOADING: f"up to {messages} {wait} to be read from disk",
    }[cause.reason]


def them(messages: int) -> str:
    """Return the pronoun for so many messages."""
    return "it" if messages == 1 else "them"
