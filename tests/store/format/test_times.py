"""Times: their bytes, their columns, and the index by time."""

from __future__ import annotations

import sqlite3
from array import array
from pathlib import Path
from random import Random

import pytest
from simulated_metadata import SimulatedMetadataStore

from forebay.store.environment.clock import SteadyClock
from forebay.store.format.message_properties import decode_properties, encode_properties
from forebay.store.format.record import RecordDamaged
from forebay.store.format.times import (
    DUE,
    EXPIRY,
    NEVER,
    NO_TIMES,
    TIMES_BYTES,
    BlockTimes,
    MessageTimes,
    encode_times,
    has_times,
    split_times,
    times_of,
    times_of_each,
)
from forebay.store.index.block import Block, BlockDamaged, packed_earliest
from forebay.store.metadata.memory_store import MemoryMetadataStore
from forebay.store.metadata.metadata_store import MetadataDamaged, MetadataStore
from forebay.store.metadata.sqlite import SqliteMetadataStore
from forebay.store.numbering import BLOCK_MESSAGES
from forebay.testing import ManualClock

NOW = 1_700_000_000_000


def test_times_come_before_other_properties_and_leave_them_as_they_are() -> None:
    rest = encode_properties({"kg": 1}, "mine")
    properties = encode_times(NOW, -5) + rest
    assert times_of(properties) == MessageTimes(NOW, -5) and has_times(properties)
    assert decode_properties(properties) == ({"kg": 1}, "mine")
    assert split_times(properties) == (properties[:TIMES_BYTES], rest)
    assert times_of(rest) == times_of(b"") == NO_TIMES and split_times(rest) == (b"", rest)


@pytest.mark.parametrize("seed", range(20))
def test_times_put_together_are_those_put_one_by_one(seed: int) -> None:
    random, together, one_by_one = Random(seed), BlockTimes(), BlockTimes()
    kinds = random.choice(
        (
            [MessageTimes(NOW, 0)],
            [MessageTimes(NOW, 0), MessageTimes(NOW + 5, 0)],
            [NO_TIMES, MessageTimes(NOW, 0), MessageTimes(0, 9)],
        )
    )
    at = 0
    while at < BLOCK_MESSAGES - 40:
        at = max(at + random.choice((-3, 0, 0, 7)), 0)
        each = [random.choice(kinds) for _ in range(random.randrange(1, 30))]
        together.put_each(at, each)
        for times in each:
            one_by_one.put(at, times)
            at += 1
        assert [together.of(index) for index in range(at)] == [one_by_one.of(index) for index in range(at)]
        assert (together.not_due_bits, together.earliest) == (one_by_one.not_due_bits, one_by_one.earliest)


def test_times_of_each_are_those_of_one() -> None:
    fields = [encode_times(NOW, 0), encode_times(NOW, 5), encode_times(NOW + 1, 0), b"", encode_times(NOW, 0)[:-1]]
    properties_of_each = [field + b"rest" for field in fields for _ in range(3)]
    assert times_of_each(properties_of_each) == [times_of(properties) for properties in properties_of_each]


def test_delay_of_a_transaction_begins_with_its_commit() -> None:
    assert MessageTimes(7, -5).committed(NOW) == MessageTimes(7, NOW + 5)
    assert MessageTimes(7, 5).committed(NOW) == MessageTimes(7, 5)


def test_every_flipped_bit_of_times_is_noticed() -> None:
    field = encode_times(NOW, NOW + 1)
    for bit in range(8 * len(field)):
        damaged = bytearray(field)
        damaged[bit // 8] ^= 1 << bit % 8
        assert times_of(bytes(damaged)) == NO_TIMES
    for end in range(1, len(field)):
        assert times_of(field[:end]) == NO_TIMES
        with pytest.raises(RecordDamaged):
            decode_properties(field[:end])


def drawn(random: Random) -> Block:
    """A block of which some messages have times and some are gone."""
    block = Block(3)
    for at in range(random.choice((1, 100, BLOCK_MESSAGES))):
        block.add_slice(1, 64 + 200 * at, array("I", [at]))
    block.times = BlockTimes()
    for at in random.sample(range(len(block.lengths)), min(len(block.lengths), 50)):
        block.times.put(
            at,
            MessageTimes(random.choice((0, NOW + random.getrandbits(random.choice((3, 40))))), random.choice((0, NOW))),
        )
    for at in range(len(block.lengths)):
        block.gone |= (random.random() < 0.3) << at
    block.times.refresh(block.gone)
    return block


def test_block_with_times_is_unpacked_as_it_was_packed() -> None:
    for seed in range(50):
        block = drawn(Random(seed))
        packed = block.pack()
        again = Block.unpack(3, packed)
        assert again.gone == block.gone and again.lengths == block.lengths
        earliest = block.times.earliest if block.times is not None else [NEVER, NEVER]
        assert packed_earliest(packed) == tuple(time if time < NEVER else 0 for time in earliest)
        if earliest == [NEVER, NEVER]:
            assert again.times is None
            continue
        assert again.times is not None and block.times is not None
        for at in range(len(block.lengths)):
            assert again.times.of(at) == block.times.of(at)
        assert again.times.not_due_bits == block.times.not_due_bits
        assert again.pack() == packed


def test_cut_or_damaged_times_are_a_damaged_block_or_a_sound_one() -> None:
    packed = drawn(Random(1)).pack()
    for end in range(len(packed)):
        with pytest.raises(BlockDamaged):
            Block.unpack(3, packed[:end])
    for at in range(len(packed)):
        damaged = bytearray(packed)
        damaged[at] ^= 0xFF
        try:
            Block.unpack(3, bytes(damaged))._check()
        except BlockDamaged:
            continue


def test_release_and_expiry_find_what_is_pending_and_whose_time_has_come() -> None:
    times = BlockTimes()
    for at in range(10):
        times.put(at, MessageTimes(100 + at, 50 + at))
    gone = 1 << 3
    assert times.take_due(49, gone) == 0 and times.earliest == [50, 100]
    assert times.take_due(55, gone) == 0b110111
    assert times.not_due_bits == 0b1111000000 and times.earliest == [56, 100]
    assert times.expired(104, gone) == 0b10111
    assert times.take_due(1000, gone) == 0b1111000000 and times.earliest[DUE] == NEVER


def timed(time: int, kind: int) -> bytes:
    block = Block(0)
    block.add_slice(1, 64, array("I", [5]))
    block.times = BlockTimes()
    block.times.put(0, MessageTimes(time, 0) if kind == EXPIRY else MessageTimes(0, time))
    return block.pack()


@pytest.mark.parametrize("maker", ["sqlite", "memory", "non_persistent"])
@pytest.mark.parametrize("kind", [DUE, EXPIRY])
def test_index_by_time_gives_blocks_of_a_lane_in_the_order_of_their_times(
    kind: int, maker: str, tmp_path: Path
) -> None:
    store: MetadataStore = SimulatedMetadataStore()
    if maker == "sqlite":
        store = SqliteMetadataStore(str(tmp_path), bytes(16), 4096, 1 << 20)
    elif maker == "non_persistent":
        store = MemoryMetadataStore(1 << 20)
    store.load()
    puts = [(5, number, timed(100 - number // 2, kind)) for number in range(20)]
    store.commit(1, 1, b"root", [*puts, (6, 1, timed(1, kind)), (5, 99, timed(7, 1 - kind)), (5, 98, b"")])
    expected = [(100 - number // 2, number) for number in range(20)]
    expected.sort()
    assert store.timed(kind, 5, (0, -1), NEVER, 100) == expected
    assert store.timed(kind, 5, (0, -1), 95, 3) == expected[:3]
    assert store.timed(kind, 5, expected[2], 95, 100) == [row for row in expected[3:] if row[0] <= 95]
    store.commit(2, 1, b"root", [(5, 19, timed(200, kind)), (5, 18, b"")], [(5, 17)])
    changed = [row for row in expected if row[1] < 17] + [(200, 19)]
    assert store.timed(kind, 5, (0, -1), NEVER, 100) == changed
    if maker != "non_persistent":
        snapshot = store.load()
        assert snapshot is not None
        assert {lane: times[kind] for lane, times in snapshot.earliest.items()} == {5: changed[0][0], 6: 1}
    store.close()


@pytest.mark.parametrize("change", ["due = due + 1", "expiry = 7", "due = 0"])
def test_time_that_was_changed_in_the_index_is_noticed(change: str, tmp_path: Path) -> None:
    store = SqliteMetadataStore(str(tmp_path), bytes(16), 4096, 1 << 20)
    store.load()
    store.commit(1, 1, b"root", [(5, 1, timed(100, DUE))])
    store.close()
    with sqlite3.connect(tmp_path / "places.db") as connection:
        connection.execute(f"UPDATE blocks SET {change}")
    connection.close()
    with pytest.raises(MetadataDamaged):
        store.load()
    store.close()


def test_steady_clock_counts_intervals_and_never_goes_behind_what_was() -> None:
    clock = ManualClock()
    steady = SteadyClock(clock.time_ms, clock.monotonic)
    began = steady.now_ms()
    assert began == clock.time_ms()
    clock.set_back(1000)
    clock.advance(2)
    assert steady.now_ms() == began + 2000
    steady.advance_to(began)
    assert steady.now_ms() == began + 2000
    steady.advance_to(began + 5000)
    clock.advance(1)
    assert steady.now_ms() == began + 6000
