"""Benchmarks of TargetList: append direct messages, turn them into references, put them back, forget them."""

from __future__ import annotations

from functools import partial

import forebay
from forebay.benchmarks.calibration import AgainstFloor
from forebay.benchmarks.inside import areas_of, index_of
from forebay.cache.accounting.charge import charge_of
from forebay.dispatch.core.destinations.queue_state import QueueState
from forebay.dispatch.core.lanes.persistent_lane_state import PersistentLaneState
from forebay.dispatch.core.model.destination import SelectorGroup, TargetList
from forebay.store.stored_message import StoredMessage
from forebay.store.structures.sequence_set import SequenceSet

MESSAGES = 5000
BODY = bytes(1024)
ENTRIES: list[StoredMessage] = [(sequence, b"", BODY, 0) for sequence in range(MESSAGES)]
CHARGE = charge_of(ENTRIES[0])


def empty(bay: forebay.Forebay) -> TargetList:
    lane = PersistentLaneState(
        QueueState(areas_of(bay).destination_state_parts, 1, "bench"), index_of(bay).ensure_lane(1, 4), ""
    )
    target = TargetList(lane, SelectorGroup(None), areas_of(bay).memory.consumer_memory)
    target.move_high_watermark(1 << 30, 1.0)
    return target


def filled(bay: forebay.Forebay) -> TargetList:
    target = empty(bay)
    append(target)
    return target


def append(target: TargetList) -> None:
    for entry in ENTRIES:
        target.append(entry, CHARGE)


def test_appends(against_floor: AgainstFloor, bay: forebay.Forebay) -> None:
    against_floor(MESSAGES, partial(empty, bay), append)


def test_evictions_from_the_end(against_floor: AgainstFloor, bay: forebay.Forebay) -> None:
    def evict(target: TargetList) -> None:
        for _ in range(MESSAGES):
            target.evict_last()

    against_floor(MESSAGES, partial(filled, bay), evict)


def test_messages_put_back_among_others(against_floor: AgainstFloor, bay: forebay.Forebay) -> None:
    def every_other() -> TargetList:
        target = empty(bay)
        for entry in ENTRIES[::2]:
            target.append(entry, CHARGE)
        return target

    against_floor(MESSAGES // 2, every_other, lambda target: target.put_back(ENTRIES[1::2]))


def test_runs_forgotten(against_floor: AgainstFloor, bay: forebay.Forebay) -> None:
    gone = SequenceSet()
    for first in range(0, MESSAGES, 100):
        gone.add(first, first + 50)
    against_floor(MESSAGES, partial(filled, bay), lambda target: target.forget(gone))
