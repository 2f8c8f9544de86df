"""An index on disk whose blocks are damaged, or of another form: never served, and rebuilt from the journal."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from message_stores import OpenStore
from simulated_disk import SimulatedDisk
from simulated_metadata import SimulatedMetadataStore

from forebay.store.errors import StoreFailed, StoreFull
from forebay.store.metadata.metadata_store import MetadataDamaged, MetadataFull
from forebay.testing import ManualClock


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


@pytest.fixture
def metadata() -> SimulatedMetadataStore:
    return SimulatedMetadataStore()


@pytest.mark.parametrize("is_readable", [False, True], ids=["unreadable", "readable, but no block"])
def test_index_that_is_damaged_in_use_stops_the_store_and_is_rebuilt_by_the_next_open(
    disk: SimulatedDisk, metadata: SimulatedMetadataStore, is_readable: bool
) -> None:
    opened = OpenStore(disk, metadata, index_cache_bytes=0)
    lane = opened.lane()
    for _ in range(40):
        opened.add(*[b"x"] * 256)
        opened.add(*[b"x"] * 256)
        if opened.store.index.is_crowded:
            opened.store.checkpointer.checkpoint()
    opened.store.checkpointer.checkpoint()
    [cold, *_] = [number for number in range(40) if number not in lane.resident_blocks]

    def damaged(lane: int, block: int) -> bytes:
        if not is_readable:
            raise MetadataDamaged("a flipped bit")
        return b"a block of another library"

    metadata.read_block = damaged  # type: ignore[method-assign]
    with pytest.raises(StoreFailed):
        lane.is_pending(cold * 512)
    with pytest.raises(StoreFailed):
        opened.add(b"refused")
    del metadata.read_block
    again = OpenStore(disk.crash_process(), metadata, clock=ManualClock(1))
    assert again.report.index_rebuilt and again.lane().pending_messages == 40 * 512


def test_index_of_another_form_is_rebuilt_when_a_replay_meets_it(
    disk: SimulatedDisk, metadata: SimulatedMetadataStore
) -> None:
    opened = OpenStore(disk, metadata)
    first = opened.add(b"gone", b"here")
    opened.store.checkpointer.checkpoint()
    opened.remove(first)
    checkpoint = metadata.history[-1]
    assert checkpoint is not None
    blocks = dict.fromkeys(checkpoint.blocks, b"a block of another library")
    metadata.history[-1] = replace(checkpoint, blocks=blocks)
    again = OpenStore(disk.crash_process(), metadata, clock=ManualClock(1))
    assert again.report.index_rebuilt and again.bodies() == [b"here"]
    again.check()


@pytest.mark.parametrize("is_at_standstill", [False, True], ids=["checkpoint", "in the middle of a commit"])
@pytest.mark.parametrize("problem", [MetadataDamaged, MetadataFull])
def test_checkpoint_that_the_index_refuses_is_postponed_or_stops_the_store(
    disk: SimulatedDisk, metadata: SimulatedMetadataStore, problem: type[MetadataDamaged], is_at_standstill: bool
) -> None:
    opened = OpenStore(disk, metadata)
    opened.add(b"here")
    store = opened.store

    def refused(*_: Any, **__: Any) -> None:
        raise problem("as the test says")

    def checkpoint() -> bool:
        if not is_at_standstill:
            return store.checkpointer.checkpoint()
        with store.locks.checkpoint, store.locks.sync, opened.lock:
            store.checkpointer.make_index_room(store.journal.end, store.journal.next_log_sequence)
        return True

    metadata.commit = refused  # type: ignore[method-assign]
    if problem is MetadataDamaged:
        with pytest.raises(StoreFailed, match="rebuilt at the next open"):
            checkpoint()
        with pytest.raises(StoreFailed):
            opened.add(b"refused")
    elif is_at_standstill:
        with pytest.raises(StoreFull):
            checkpoint()
    else:
        assert not checkpoint()
    del metadata.commit
    if problem is MetadataFull:
        assert checkpoint()
        opened.check()
    again = OpenStore(disk.crash_process(), metadata, clock=ManualClock(1))
    assert again.report.index_rebuilt == (problem is MetadataDamaged) and again.bodies() == [b"here"]
    again.check()
