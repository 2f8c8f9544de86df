"""Relocated messages: which copy has which messages of a block, however often they move."""

from __future__ import annotations

from array import array
from random import Random

import pytest
from extents import by_record

from forebay.store.format.places import Extent
from forebay.store.index.block import Block, BlockDamaged
from forebay.store.index.relocated import CopiedRun, RelocatedPlaces
from forebay.store.numbering import BLOCK_MESSAGES


@pytest.mark.parametrize("seed", range(30))
def test_random_moves_agree_with_a_plain_dict(seed: int) -> None:
    random = Random(seed)
    block = Block(random.randrange(100))
    # Index -> data log, offset, place in the record.
    places: dict[int, tuple[int, int, int]] = {}
    data_log = 1
    while len(block.lengths) < BLOCK_MESSAGES:
        count = min(random.choice((1, 1, 7, 60)), BLOCK_MESSAGES - len(block.lengths))
        offset = random.randrange(1, 1 << 20)
        for n in range(count):
            places[len(block.lengths) + n] = data_log, offset, n
        block.add_slice(data_log, offset, array("I", [random.randrange(2000) for _ in range(count)]))
        data_log += random.random() < 0.1
    lengths = block.lengths[:]
    for _ in range(60):
        first = random.randrange(BLOCK_MESSAGES)
        count = random.randint(1, min(40, BLOCK_MESSAGES - first))
        if random.random() < 0.3:
            mask = ((1 << count) - 1) << first
            block.gone |= mask
            for index in range(first, first + count):
                places.pop(index, None)
            continue
        data_log += 1
        offset = random.randrange(1, 1 << 20)
        block.note_copy(data_log, offset, first, lengths[first : first + count])
        for n in range(count):
            places[first + n] = data_log, offset, n
        if random.random() < 0.2:
            block = Block.unpack(block.number, block.pack())
        block._check()
        assert found_in(block) == places
        for low, high in [(first, first + count - 1), (0, BLOCK_MESSAGES - 1)]:
            runs = block.data_log_runs(low, high)
            data_logs = {index: data_log for data_log, begin, end in runs for index in range(begin, end + 1)}
            assert all(data_logs[index] == places[index][0] for index in places if low <= index <= high)
    assert block.lengths == lengths


def found_in(block: Block) -> dict[int, tuple[int, int, int]]:
    found = {}
    at = 0
    base = block.number * BLOCK_MESSAGES
    while (run := block.pending_run(at, BLOCK_MESSAGES)) is not None:
        for extent in by_record(block.extents(*run)):
            assert isinstance(extent, Extent)
            for n in range(extent.messages):
                found[extent.first_sequence + n - base] = extent.data_log, extent.offset, extent.skip + n
        at = run[1] + 1
    return found


def test_a_hole_becomes_pending_where_its_copy_lies() -> None:
    block = Block(0)
    block.note_copy(7, 640, 100, array("I", [5, 6]))
    assert block.pending_messages == 2 and len(block.lengths) == 102
    assert found_in(block) == {100: (7, 640, 0), 101: (7, 640, 1)}
    block = Block.unpack(0, block.pack())
    block._check()
    block.begin_data_log(9)
    block.add_slice(9, 64, array("I", [1]))
    assert found_in(block) == {100: (7, 640, 0), 101: (7, 640, 1), 102: (9, 64, 0)}


@pytest.mark.parametrize(
    "stretch",
    [
        CopiedRun(3, 2, 3, 1, 1, 64),
        CopiedRun(3, 4, 4, 2, 1, 64),
        CopiedRun(3, 5, 3, 2, 1, 64),
        CopiedRun(8, 11, 8, 4, 1, 64),
    ],
)
def test_stretches_that_cannot_be_are_refused(stretch: CopiedRun) -> None:
    block = Block(0)
    block.add_slice(1, 64, array("I", [1] * 10))
    block.relocated = RelocatedPlaces()
    block.relocated.put(stretch)
    with pytest.raises(BlockDamaged):
        Block.unpack(0, block.pack())


@pytest.mark.parametrize("cut", [1, 5, 17])
def test_packed_stretches_that_do_not_add_up_are_refused(cut: int) -> None:
    block = Block(0)
    block.add_slice(1, 64, array("I", [1] * 10))
    block.note_copy(2, 64, 3, array("I", [1, 1]))
    packed = block.pack()
    for damaged in (packed[:-cut], packed + bytes(cut)):
        with pytest.raises(BlockDamaged):
            Block.unpack(0, damaged)
