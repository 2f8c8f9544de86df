"""Lanes that nobody uses: a next sequence each, and no object."""

from __future__ import annotations

import pytest
from message_stores import OpenStore
from simulated_disk import SimulatedDisk
from simulated_metadata import SimulatedMetadataStore

from forebay.store.index.idle_lanes import IdleLanes


def test_next_sequences_are_kept_until_somebody_has_the_lane() -> None:
    idle = IdleLanes()
    for number in (36, 20, 21, 164):
        idle.put(number, number * 10)
    idle.put(37, 0)
    assert list(idle) == [(20, 200), (21, 210), (36, 360), (164, 1640)]
    assert idle.find(36) == idle.take(36) == 360 and idle.take(36) == idle.find(37) == 0
    idle.put(20, 201)
    idle.forget(1)
    assert list(idle) == [(164, 1640)] and 164 in idle and 20 not in idle
    idle._check()


@pytest.fixture
def opened() -> OpenStore:
    return OpenStore(SimulatedDisk(), SimulatedMetadataStore())


def test_a_lane_that_has_leaving_lanes_goes_on_where_it_ended(opened: OpenStore) -> None:
    lane, index = opened.lane(), opened.store.index
    opened.remove(opened.add(b"x"))
    index.shrink_to_row(lane.number)
    assert lane.number not in index.lanes and list(index.idle) == list(index.next_sequences()) == [(lane.number, 1)]
    again = index.ensure_lane_numbered(lane.number)
    assert again is not lane and again.next_sequence == 1 and not len(index.idle)
    opened.check()


def test_what_has_messages_is_not_put_away(opened: OpenStore) -> None:
    opened.add(b"x")
    opened.store.index.shrink_to_row(opened.lane().number)
    assert opened.store.index.lanes == {opened.lane().number: opened.lane()}


def test_a_lane_that_is_asked_for_again_before_the_checkpoint_stays(opened: OpenStore) -> None:
    """Its rows are deleted all the same, and those of what came since are stored."""
    index, lane = opened.store.index, opened.lane()
    opened.add(b"x", b"y")
    opened.store.checkpointer.checkpoint()
    opened.remove(0, 1)
    index.shrink_to_row(lane.number)
    assert lane.number in index.lanes and index.has_leaving_lanes
    assert opened.lane() is lane and not index.has_leaving_lanes
    opened.add(b"z")
    opened.store.checkpointer.checkpoint()
    assert index.lanes == {lane.number: lane} and opened.bodies() == [b"z"]
    opened.check()
    again = OpenStore(opened.disk.crash_process(), opened.metadata)
    assert again.bodies() == [b"z"]
    again.check()
