"""Explains why free messages are not for a consumer: groups, priorities, an exclusive consumer."""

from __future__ import annotations

from collections.abc import Iterable

from ..consumer.consumer import Consumer
from ..core.model.destination import CoreConsumer, CoreDestination
from .cause import Cause
from .reasons import EXCLUSIVE, GROUP, GROUP_DELAYED, GROUP_MEMORY, PRIORITY
from .texts import plural


def exclusive_cause(messages: int) -> Cause:
    return Cause(EXCLUSIVE, "another consumer", messages, 0, None, "the close of the exclusive consumer")


def assignment_causes(consumer: Consumer, free: int) -> list[Cause]:
    """Say how many of the free messages other consumers get first.

    Requires: the lock, and no free message is within the consumer's reach.
    """
    distribution = consumer.destination.distribution
    causes: list[Cause] = []
    kept = distribution.kept_for_others(consumer)
    owned = min(sum(kept), free)
    if owned:
        count = len(kept)
        holder = f"{count} other consumer{plural(count)}"
        their = "its" if count == 1 else "their"
        causes.append(Cause(GROUP, holder, owned, 0, None, f"{their} takes, or {their} close"))
    waiting = min(waiting_messages(consumer.destination), free - owned)
    if waiting:
        causes.append(group_delayed_cause(waiting))
    rest = free - owned - waiting
    if rest and distribution.is_held_up:
        return [*causes, group_memory_cause(rest)]
    if rest and distribution.is_outranked(consumer):
        causes.append(Cause(PRIORITY, "a consumer of higher priority", rest, 0, None, "its takes, or its close"))
    return causes


def unmatched_by_owners(destination: CoreDestination, consumers: Iterable[CoreConsumer], free: int) -> int:
    """Count the free messages whose group is owned by a consumer that does not match them.

    consumers: all of the destination. Requires: the lock, and no free message is within the reach of any of them.
    """
    return min(destination.distribution.count_kept_from(consumers), free)


def unmatched_by_owners_cause(messages: int) -> Cause:
    return Cause(GROUP, "the owners of their groups", messages, 0, None, "the close of these consumers")


def waiting_messages(destination: CoreDestination) -> int:
    """Count the messages that wait behind a message of their group that comes back later."""
    return destination.distribution.count_waiting()


def group_delayed_cause(messages: int) -> Cause:
    return Cause(
        GROUP_DELAYED,
        "a delayed message",
        messages,
        0,
        None,
        f"time, or the message before {'it' if messages == 1 else 'them'}",
    )


def group_memory_cause(messages: int) -> Cause:
    return Cause(GROUP_MEMORY, "delayed messages of groups", messages, 0, None, "time, or a higher memory_limit")
