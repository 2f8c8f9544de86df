"""Benchmarks of the index: add, look up and remove places, and pack the rows of a checkpoint."""

from __future__ import annotations

from forebay.benchmarks.calibration import AgainstFloor
from forebay.store.environment.account import Unlimited
from forebay.store.index.data_log_use import use_of
from forebay.store.index.destination_lane import DestinationLane
from forebay.store.index.index import Index

MESSAGES = 20_000
SLICE = [1024] * 256
RECORD_BYTES = 1100


def empty() -> DestinationLane:
    def read_nothing(lane: int, block: int) -> bytes:
        raise AssertionError("all of it is in RAM")

    return Index(account=Unlimited(), cache_bytes=16 << 20, read_block=read_nothing).ensure_lane(1, 4)


def filled() -> DestinationLane:
    lane = empty()
    use = use_of(lane.data_log_uses, 1)
    for sequence in range(MESSAGES):
        lane.add_one(1, sequence * RECORD_BYTES, 1024, use)
    return lane


def test_adds_one_by_one(against_floor: AgainstFloor) -> None:
    def add(lane: DestinationLane) -> None:
        use = use_of(lane.data_log_uses, 1)
        for sequence in range(MESSAGES):
            lane.add_one(1, sequence * RECORD_BYTES, 1024, use)

    against_floor(MESSAGES, empty, add)


def test_adds_in_slices(against_floor: AgainstFloor) -> None:
    def add(lane: DestinationLane) -> None:
        use = use_of(lane.data_log_uses, 1)
        for number in range(MESSAGES // len(SLICE)):
            lane.add_slice(1, number * len(SLICE) * RECORD_BYTES, SLICE, use)

    against_floor(MESSAGES // len(SLICE) * len(SLICE), empty, add)


def test_removes_one_by_one(against_floor: AgainstFloor) -> None:
    def remove(lane: DestinationLane) -> None:
        for sequence in range(MESSAGES):
            lane.remove_one(sequence, 1)

    against_floor(MESSAGES, filled, remove)


def test_removes_in_runs(against_floor: AgainstFloor) -> None:
    def remove(lane: DestinationLane) -> None:
        for first in range(0, MESSAGES, 256):
            lane.remove(first, first + 255, 1)

    against_floor(MESSAGES, filled, remove)


def test_places_of_what_is_pending(against_floor: AgainstFloor) -> None:
    def look(lane: DestinationLane) -> None:
        for first in range(0, MESSAGES - 512, 256):
            run = lane.pending_run(first, 256)
            assert run is not None
            list(lane.extents(*run))

    against_floor(MESSAGES, filled, look)


def test_rows_of_a_checkpoint(against_floor: AgainstFloor) -> None:
    against_floor(MESSAGES, filled, lambda lane: lane.cache.take_dirty())
