"""Installing a load: put into its list what belongs there, and give back the rest. The state lock guards all of it.

While the load read, messages may have been acknowledged, removed, or claimed by another selector group. Their copies
are dropped, like those of messages that the selector does not match. Messages that can't be read are given up.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...cache.accounting.charge import charge_of
from ...store.environment.late_log import LateLogger
from ...store.stored_message import StoredMessage, sequence_of
from ..core.lists.load import Load
from ..core.model.destination import LaneState, TargetList

logger = LateLogger("forebay.dispatch.loader")


def put_into_list(load: Load[TargetList], *, is_alive: bool) -> None:
    """Put the messages of a load into its list, and drop those that do not belong there. Requires: the lock.

    is_alive: the list has not ended. If it has, it gets nothing.
    """
    lane = load.target.lane
    if load.survey is not None:
        lane.scan().note_survey(load.survey)
    kept = _put(load, is_alive=is_alive)
    if lane.unmatched is not None and is_alive:
        for sequence in load.unwanted.difference(sequence for sequence, _ in load.unreadable):
            lane.unmatched.add(sequence, sequence)
    if load.from_cache:
        _drop_unused_copies(load, {message[0] for message in kept})
    lane.load_rule.on_load_installed(load)
    if load.unreadable and is_alive:  # a later load meets again what lies behind the end of this one
        _give_up(lane, [found for found in load.unreadable if found[0] <= load.last])


def is_stale(load: Load[TargetList]) -> bool:
    """Return whether messages of a load may be gone, because its lane has asked loads to check since it began."""
    return load.recheck_count != load.target.lane.recheck_count


def _put(load: Load[TargetList], *, is_alive: bool) -> list[StoredMessage]:
    """Put the messages that belong to the list into it, in place of the runs; return them. Release the other memory."""
    target = load.target
    if load.brings_all and is_alive and not target.needs_claims and not is_stale(load) and not load.unreadable:
        kept, kept_bytes = load.messages, load.reserved_bytes
    else:
        kept, kept_bytes = _kept(load, is_alive=is_alive)
    target.note_loaded(load.runs, load.last)
    kept_bytes -= target.refer_behind_direct(kept)
    target.release(load.reserved_bytes - kept_bytes)
    if kept and load.is_return:
        target.put_back(kept)
    elif kept:
        target.extend(kept, kept_bytes)
    return kept


def _kept(load: Load[TargetList], *, is_alive: bool) -> tuple[list[StoredMessage], int]:
    """Return the messages of a load that belong to its list, in order, and their charge."""
    target, pending_lane = load.target, load.target.lane.pending_lane
    is_doubtful = target.needs_claims or is_stale(load)
    load.held.update(zip(map(sequence_of, load.messages), load.messages, strict=True))
    kept: list[StoredMessage] = []
    kept_bytes = 0
    # A message may be direct already: it came back, was loaded, went to another selector group, and came back again.
    doubled = target.direct_up_to(load.last) if load.is_return else ()
    for sequence in sorted(load.held.keys() - load.unwanted if load.unwanted else load.held):
        message = load.held[sequence]
        if sequence > load.last or not is_alive or sequence in doubled:
            continue
        if is_doubtful and not pending_lane.is_pending(sequence):
            continue
        kept.append(message)
        kept_bytes += charge_of(message)
    return kept, kept_bytes


def _drop_unused_copies(load: Load[TargetList], kept: set[int]) -> None:
    """Drop messages that came from the caches and did not get into the list."""
    lane = load.target.lane
    dropped: list[StoredMessage] = []
    for sequence in sorted(load.from_cache - kept):
        if is_stale(load) and not lane.pending_lane.is_pending(sequence):
            continue
        message = load.held[sequence]
        is_head = sequence in load.unwanted and lane.memory.head_queue_cache.put(lane.pending_lane.number, message)
        if not is_head:
            dropped.append(message)
    lane.pager.page_out(dropped)


def _give_up(lane: LaneState, unreadable: Iterable[tuple[int, str]]) -> None:
    """Give up pending messages that can't be read, and log each one."""
    for sequence, problem in unreadable:
        if lane.pending_lane.is_pending(sequence):
            lane.unreadable += 1
            place = f"{lane.id_prefix}{sequence}"
            logger.error("message %s can't be read and is passed over: %s", place, problem, event="message_unreadable")
            lane.lose_unreadable(sequence)
