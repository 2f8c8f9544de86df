"""Why messages that are in nobody's hands are not for a consumer: groups, priorities, an exclusive consumer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ...store.numbering import BLOCK_MESSAGES
from ..consumer.consumer import Consumer
from ..core.model import LaneState, QueueArea, Taker
from ..distribution.grouped import GroupAssigner
from .cause import Cause
from .disk import plural

EXCLUSIVE: Final = "exclusive"
GROUP: Final = "group"
GROUP_DELAYED: Final = "group_delayed"
GROUP_MEMORY: Final = "group_memory"
PRIORITY: Final = "priority"


def exclusive_cause(queue: QueueArea, messages: int) -> Cause:
    return Cause(EXCLUSIVE, "another consumer", messages, 0, None, "the close of the exclusive consumer")


def assignment_causes(consumer: Consumer, free: int) -> list[Cause]:
    """Say how many of the free messages others come first for. Requires: the lock; nothing is within its reach."""
    assigner = consumer.queue.assigner
    if not isinstance(assigner, GroupAssigner):
        return []
    causes: list[Cause] = []
    owners = {other: _in_hand(assigner, other) for other in assigner.assigned_by_consumer if other is not consumer}
    unassigned = assigner.assigned_by_consumer[consumer].unassigned
    behind = ((promise.consumer, promise.waiting) for promise in unassigned.promises.values())
    for other, held in (*unassigned.withheld.items(), *unassigned.left.items(), *behind):
        if other is not consumer and other in owners and not owners[other]:
            owners[other] = sum(_pending(lane, runs) for lane, runs in held.items())
    owned = min(sum(owners.values()), free)
    if owned:
        count = sum(map(bool, owners.values()))
        holder = f"{count} other consumer{plural(count)}"
        their = "its" if count == 1 else "their"
        causes.append(Cause(GROUP, holder, owned, 0, None, f"{their} takes, or {their} close"))
    waiting = min(waiting_messages(consumer.queue), free - owned)
    if waiting:
        causes.append(group_delayed_cause(waiting))
    rest = free - owned - waiting
    if rest and assigner.is_held_up:
        return [*causes, group_memory_cause(rest)]
    if rest and not assigner.left(unassigned, consumer.priority):
        causes.append(Cause(PRIORITY, "a consumer of higher priority", rest, 0, None, "its takes, or its close"))
    return causes


def waiting_messages(queue: QueueArea) -> int:
    """Count the messages behind one of their group that comes back later."""
    assigner = queue.assigner
    if not isinstance(assigner, GroupAssigner):
        return 0
    return sum(assigner.groups.waiting(lane) for lane in queue.all_lanes())


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


def _in_hand(assigner: GroupAssigner, consumer: Taker) -> int:
    lists = assigner.assigned_by_consumer[consumer].lists
    direct = sum(len(target.direct) for target in lists)
    return direct + sum(_pending(own.lane, [*own.returned, *own.references]) for own in lists)


def _pending(lane: LaneState, runs: Iterable[tuple[int, int]]) -> int:
    count = 0
    for at, last in runs:
        while (found := lane.stored.pending_run(at, BLOCK_MESSAGES)) is not None and found[0] <= last:
            end = min(found[1], last)
            count += sum(
                not (number in lane.in_flight or number in lane.parked or lane.stored.is_put_off(number))
                for number in range(found[0], end + 1)
            )
            at = end + 1
    return count
