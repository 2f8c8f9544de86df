"""A block: 512 places in few bytes, found by arithmetic, with holes and removals, and back from its packed bytes."""

from __future__ import annotations

import struct
from array import array
from random import Random
from typing import NamedTuple

import pytest
from extents import by_record
from hypothesis import given
from hypothesis import strategies as st

from forebay.store.format.places import Extent, SingleRecords
from forebay.store.format.record import ENTRY_BYTES, SLICE_BYTES
from forebay.store.index.block import BLOCK_CHARGE_BYTES, Block, BlockDamaged
from forebay.store.numbering import BLOCK_MESSAGES, BLOCK_SHIFT

NUMBER = 3
BASE = NUMBER << BLOCK_SHIFT


class Place(NamedTuple):
    """What the model knows of one message that was added."""

    data_log: int
    offset: int
    length: int
    record: int
    """Index in the block of the first message of its record."""


class Model:
    """The same as a Block, as a plain list. None: a hole."""

    def __init__(self) -> None:
        self.block = Block(NUMBER)
        self.places: list[Place | None] = []
        self.gone: set[int] = set()

    def add(self, data_log: int, offset: int, lengths: list[int]) -> None:
        self.block.add_slice(data_log, offset, array("I", lengths))
        record = len(self.places)
        self.places += [Place(data_log, offset, length, record) for length in lengths]

    def fill(self, index: int) -> None:
        self.block.fill(index)
        self.gone.update(range(len(self.places), index))
        self.places += [None] * (index - len(self.places))

    def remove(self, index: int) -> None:
        self.block.gone |= 1 << index
        self.gone.add(index)

    def is_pending(self, index: int) -> bool:
        return index < len(self.places) and index not in self.gone

    def run(self, first: int, most: int) -> tuple[int, int] | None:
        pending = [index for index in range(first, len(self.places)) if index not in self.gone]
        if not pending:
            return None
        last = pending[0]
        while last - pending[0] + 1 < most and self.is_pending(last + 1):
            last += 1
        return pending[0], last

    def check(self) -> None:
        block = self.block
        block._check()
        assert list(block.lengths) == [place.length if place else 0 for place in self.places]
        assert block.pending_messages == len(self.places) - len(self.gone)
        assert {index for index in range(600) if block.gone >> index & 1} == self.gone

    def check_extents(self, first: int, last: int) -> None:
        """Every message once, in order, each in the record that it was added with."""
        found: list[int] = []
        for extent in by_record(self.block.extents(first, last)):
            place = self.places[extent.first_sequence - BASE]
            assert place is not None
            mates = [other for other in self.places if other and other.record == place.record]
            size = SLICE_BYTES + sum(ENTRY_BYTES + mate.length for mate in mates)
            skip = extent.first_sequence - BASE - place.record
            assert extent == Extent(
                place.data_log, place.offset, size, len(mates), skip, extent.first_sequence, extent.messages
            )
            found += range(extent.first_sequence - BASE, extent.first_sequence - BASE + extent.messages)
        assert found == list(range(first, last + 1))


def full(slice_messages: int, length: int = 1024) -> Block:
    block = Block(NUMBER)
    for offset in range(BLOCK_MESSAGES // slice_messages):
        block.add_slice(7, 64 + 2000 * offset, array("I", [length] * slice_messages))
    return block


def repacked(block: Block) -> Block:
    packed = block.pack()
    again = Block.unpack(block.number, packed)
    for column in ("number", "offsets", "lengths", "starts", "data_log_starts", "data_logs", "gone"):
        assert getattr(again, column) == getattr(block, column), column
    assert again.pack() == packed and not again.is_dirty
    again._check()
    return again


@pytest.mark.parametrize("seed", range(8))
def test_random_blocks_agree_with_a_list(seed: int) -> None:
    random = Random(seed)
    model = Model()
    data_log, offset = 1, 64
    while len(model.places) < BLOCK_MESSAGES:
        room = BLOCK_MESSAGES - len(model.places)
        action = random.random()
        if action < 0.05 and model.places:
            data_log, offset = data_log + random.randint(1, 3), 64
        elif action < 0.1:
            model.fill(len(model.places) + random.randint(0, min(room, 20)))
        else:
            count = min(room, random.choice((1, 1, 1, 2, 32, 256) if seed % 2 else (1,)))
            model.add(data_log, offset, [random.choice((0, 1, 100, 70_000)) for _ in range(count)])
            offset += random.randint(64, 300_000)
        for _ in range(random.randint(0, 3)):
            if model.places:
                model.remove(random.randrange(len(model.places)))
        model.check()
        first, most = random.randrange(BLOCK_MESSAGES), random.randint(1, BLOCK_MESSAGES)
        run = model.run(first, most)
        assert model.block.pending_run(first, most) == run, f"from {first}, at most {most}"
        if run is not None:
            model.check_extents(*run)
        model.block = repacked(model.block)


def test_slices_of_one_message_behind_a_roll_are_read_as_singles() -> None:
    block = Block(NUMBER)
    for data_log, offset in ((1, 5_000), (1, 6_000), (2, 24), (2, 100)):
        block.add_slice(data_log, offset, array("I", [10]))
    assert block.starts is None
    assert list(block.extents(0, 3)) == [
        SingleRecords(1, BASE, array("I", [5_000, 6_000]), array("I", [10, 10])),
        SingleRecords(2, BASE + 2, array("I", [24, 100]), array("I", [10, 10])),
    ]
    block._check()


def test_slice_of_one_message_before_the_last_record_of_its_data_log_is_a_record_by_itself() -> None:
    """A transaction wrote it, and was committed after the last record."""
    block = Block(NUMBER)
    for data_log, offset in ((1, 5_000), (2, 100), (2, 24)):
        block.add_slice(data_log, offset, array("I", [10]))
    assert block.starts == array("H", [0, 1, 2])
    assert [extent.offset for extent in block.extents(0, 2) if isinstance(extent, Extent)] == [5_000, 100, 24]
    block._check()


def test_empty_block_has_nothing_pending() -> None:
    block = repacked(Block(NUMBER))
    assert block.pending_messages == 0 and block.pending_run(0, 9) is None


def test_pending_run_ends_at_what_is_gone_at_the_end_and_at_the_limit() -> None:
    block = full(32)
    block.gone = 1 << 5 | 1 << 500
    assert block.pending_run(0, 512) == (0, 4)
    assert block.pending_run(5, 512) == (6, 499)
    assert block.pending_run(5, 10) == (6, 15)
    assert block.pending_run(501, 512) == (501, 511)
    assert block.pending_run(511, 1) == (511, 511)
    assert block.pending_run(512, 1) is None
    block.gone = (1 << 512) - 1
    assert block.pending_run(0, 1) is None


def test_one_read_of_a_slice_serves_a_part_of_it() -> None:
    model = Model()
    model.add(4, 64, [10, 20, 30, 40])
    assert list(model.block.extents(1, 2)) == [Extent(4, 64, SLICE_BYTES + 4 * ENTRY_BYTES + 100, 4, 1, BASE + 1, 2)]


def test_holes_at_the_front_belong_to_no_data_log() -> None:
    model = Model()
    model.fill(100)
    assert list(model.block.data_log_runs(0, 511)) == []
    model.add(4, 64, [10])
    model.check()
    assert list(model.block.data_log_runs(0, 100)) == [(4, 100, 100)]
    model.check_extents(100, 100)
    repacked(model.block)


def test_files_are_cut_to_what_was_asked() -> None:
    model = Model()
    for data_log in (4, 6, 9):
        model.add(data_log, 64, [1] * 10)
    assert list(model.block.data_log_runs(5, 24)) == [(4, 5, 9), (6, 10, 19), (9, 20, 24)]
    assert list(model.block.data_log_runs(12, 12)) == [(6, 12, 12)]


def test_filling_to_where_the_block_is_already_changes_nothing() -> None:
    model = Model()
    model.add(4, 64, [10])
    model.fill(1)
    model.fill(0)
    model.check()
    assert model.block.starts is None


# What a message costs.


def test_packed_block_is_below_8_bytes_a_message_sent_alone() -> None:
    assert len(full(1).pack()) < 6.2 * BLOCK_MESSAGES
    assert len(full(1, length=1 << 20).pack()) < 8 * BLOCK_MESSAGES


def test_packed_block_is_below_3_bytes_a_message_in_slices_of_32() -> None:
    assert len(full(32).pack()) < 2.4 * BLOCK_MESSAGES
    assert len(full(32, length=1 << 20).pack()) < 5 * BLOCK_MESSAGES


def test_the_dearest_block_is_below_16_bytes_a_message() -> None:
    block = Block(NUMBER)
    for index in range(BLOCK_MESSAGES):
        block.add_slice(1 + index % 2, 64 + index, array("I", [2**32 - 1]))
    block.gone = (1 << BLOCK_MESSAGES) - 2
    assert len(repacked(block).pack()) < 16 * BLOCK_MESSAGES


def test_charge_covers_what_a_full_block_holds() -> None:
    block = Block(NUMBER)
    for index in range(BLOCK_MESSAGES):
        block.add_slice(7, 64 + index, array("I", [1024]))
    columns = (block.offsets, block.lengths, block.data_log_starts, block.data_logs)
    assert sum(column.__sizeof__() for column in columns) + (1 << 512).__sizeof__() <= BLOCK_CHARGE_BYTES


# Damage.


def sample() -> bytes:
    model = Model()
    model.fill(3)
    model.add(4, 64, [10, 20, 30])
    model.add(5, 64, [70_000])
    model.add(5, 90_000, [1, 2])
    model.remove(4)
    return model.block.pack()


def unpack_or_refuse(data: bytes) -> None:
    """Either it is no block, or it is one that can be used: nothing else may come out."""
    try:
        block = Block.unpack(NUMBER, data)
    except BlockDamaged:
        return
    block._check()
    at = 0
    while (run := block.pending_run(at, BLOCK_MESSAGES)) is not None:
        assert sum(extent.messages for extent in by_record(block.extents(*run))) == run[1] - run[0] + 1
        at = run[1] + 1
    assert len(block.pack()) <= len(data)


@given(st.binary(max_size=300))
def test_arbitrary_bytes_are_no_block_or_a_sound_one(data: bytes) -> None:
    unpack_or_refuse(data)


def test_any_flipped_bit_or_cut_gives_no_block_or_a_sound_one() -> None:
    data = sample()
    for at in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[at // 8] ^= 1 << at % 8
        unpack_or_refuse(bytes(damaged))
    for length in range(len(data)):
        with pytest.raises(BlockDamaged):
            Block.unpack(NUMBER, data[:length])
    with pytest.raises(BlockDamaged):
        Block.unpack(NUMBER, data + b"\0")


HEAD = struct.Struct("<HHHBB64s")


@given(
    st.tuples(*[st.integers(0, 4)] * 3, st.integers(0, 2), st.integers(0, 5)),
    st.integers(0, 31),
    st.binary(min_size=40, max_size=40),
)
def test_parts_that_add_up_but_contradict_each_other_are_refused(
    counts: tuple[int, ...], gone: int, noise: bytes
) -> None:
    messages, records, files, has_starts, planes = counts
    size = planes * messages + 4 * records + 6 * files + (2 * records if has_starts else 0)
    unpack_or_refuse(HEAD.pack(*counts, gone.to_bytes(64, "little")) + (noise + bytes(60))[:size])


def test_every_contradiction_is_seen() -> None:
    def packed(
        messages: int, starts: list[int] | None, file_starts: list[int], gone: int = 0, records: int = 2
    ) -> bytes:
        head = HEAD.pack(messages, records, len(file_starts), starts is not None, 1, gone.to_bytes(64, "little"))
        files = array("I", file_starts).tobytes() + array("H", file_starts).tobytes()
        return head + b"x" * messages + bytes(4 * records) + files + array("H", starts or []).tobytes()

    Block.unpack(NUMBER, packed(4, [0, 2], [0, 3]))._check()
    Block.unpack(NUMBER, packed(4, [0, 2], [1], gone=1))._check()
    Block.unpack(NUMBER, packed(2, None, [0]))._check()
    for wrong in (
        packed(4, [0, 2], [0], gone=1 << 4),
        packed(4, [1, 2], [0]),
        packed(4, [0, 0], [0]),
        packed(4, [2, 0], [0]),
        packed(4, [0, 4], [0]),
        packed(4, [0, 2], []),
        packed(4, [0, 2], [1]),
        packed(4, [0, 2], [3, 0]),
        packed(4, [0, 2], [0, 4]),
        packed(3, None, [0]),
        packed(2, [], [0], records=0),
        packed(513, [0, 2], [0]),
    ):
        with pytest.raises(BlockDamaged):
            Block.unpack(NUMBER, wrong)
