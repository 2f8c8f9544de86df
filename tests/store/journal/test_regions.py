"""Reading back: few large reads, every message verified on its own, damage never worth more than it hit."""

from __future__ import annotations

import errno
import traceback
from collections.abc import Sequence
from random import Random
from zlib import crc32

import pytest
from journals import append_one, journal_on
from simulated_disk import SimulatedDisk

from forebay.store.disk.layout import data_log_name
from forebay.store.environment.account import Unlimited
from forebay.store.format.contents import Contents
from forebay.store.format.places import Extent, SingleRecords
from forebay.store.format.record import ENTRY_BYTES, SLICE_BYTES
from forebay.store.index.index import Index
from forebay.store.journal.data_log import DATA_LOG_HEADER_BYTES
from forebay.store.journal.journal import Journal
from forebay.store.journal.regions import (
    GAP_BYTES_MAX,
    PIECE_BYTES,
    REGION_BYTES_MAX,
    ReadableFile,
    Region,
    UnopenedDataLog,
    plan_regions,
    read_headers,
    read_regions,
)
from forebay.store.numbering import BLOCK_SHIFT
from forebay.store.stored_message import StoredMessage

TIMESTAMP = 1_700_000_000_000

Content = tuple[bytes, bytes]
SequenceSet = list[tuple[int, int]]


class Lane:
    """One lane in a journal, and what was written to it."""

    def __init__(self, max_file_bytes: int = 1 << 20) -> None:
        self.disk = SimulatedDisk()
        self.journal: Journal = journal_on(self.disk, max_file_bytes=max_file_bytes)
        self.index = Index(account=Unlimited(), cache_bytes=1 << 20, read_block=lambda lane, block: b"")
        self.lane = self.index.ensure_lane(1, 4)
        self.contents: list[Content] = []

    def add(self, *contents: Content) -> None:
        first = self.lane.next_sequence
        assert first == len(self.contents)
        if len(contents) == 1:
            offset = append_one(self.journal, 4, 1, first, TIMESTAMP, *contents[0])
            lengths = [len(contents[0][0]) + len(contents[0][1])]
        else:
            offset, lengths = self.journal.append_slice(4, 1, first, TIMESTAMP, Contents.of(contents))
        data_log = self.journal.data_log
        self.lane.add_slice(data_log, offset, lengths, self.index.use(data_log))
        self.contents += contents

    def other(self, size: int) -> None:
        """Something of another lane lies between."""
        append_one(self.journal, 4, 2, 0, TIMESTAMP, b"", bytes(size))

    def extents(self, *runs: tuple[int, int]) -> list[Extent | SingleRecords]:
        found: list[Extent | SingleRecords] = []
        for first, last in runs:
            while first <= last:
                end = min(last, first | (1 << BLOCK_SHIFT) - 1)
                found += self.lane.extents(first, end)
                first = end + 1
        return found

    def read(self, *runs: tuple[int, int]) -> tuple[list[StoredMessage], list[tuple[int, str]]]:
        return read_regions(plan_regions(self.extents(*runs), self.journal.open_data_logs.reader))

    def scan(self, *runs: tuple[int, int]) -> tuple[list[StoredMessage], list[tuple[int, str]]]:
        """Read, where a judge wants each third message; it is asked once about each."""
        asked: list[int] = []

        def judge(sequences: Sequence[int], properties: Sequence[bytes]) -> list[bool]:
            assert list(properties) == [self.contents[sequence][0] for sequence in sequences]
            asked.extend(sequences)
            return [sequence % 3 == 0 for sequence in sequences]

        found = read_regions(self.plan(*runs), judge)
        assert sorted(asked + places(found[1])) == whole(list(runs))
        return found

    def expected(self, *sequences: int) -> list[StoredMessage]:
        return [(sequence, *self.contents[sequence], TIMESTAMP) for sequence in sequences]

    def regions(self, *runs: tuple[int, int]) -> list[tuple[int, int, int]]:
        """(data log, offset, length) of each planned read."""
        return [(region.data_log, region.offset, region.length) for region in self.plan(*runs)]

    def plan(self, *runs: tuple[int, int]) -> list[Region]:
        return plan_regions(self.extents(*runs), self.journal.open_data_logs.reader)

    def flip(self, data_log: int, offset: int) -> None:
        self.disk.flip_bit(data_log_name(data_log), offset, 3)


def whole(runs: SequenceSet) -> list[int]:
    return [sequence for first, last in runs for sequence in range(first, last + 1)]


# What comes back.


@pytest.mark.parametrize("seed", range(8))
def test_any_runs_of_any_records_come_back_in_order(seed: int) -> None:
    random = Random(seed)
    lane = Lane(max_file_bytes=random.choice((3_000, 1 << 18)))
    while len(lane.contents) < 1500:
        if random.random() < 0.2:
            lane.other(random.choice((0, 100, 9000)))
        count = min(random.choice((1, 1, 2, 32, 256)), lane.lane.slice_capacity)
        lane.add(
            *(
                (random.randbytes(random.choice((0, 0, 30))), random.randbytes(random.choice((0, 10, 1000))))
                for _ in range(count)
            )
        )
    for _ in range(20):
        edges = sorted(random.sample(range(len(lane.contents)), 2 * random.randint(1, 8)))
        runs = list(zip(edges[::2], edges[1::2], strict=True))
        assert lane.read(*runs) == (lane.expected(*whole(runs)), [])
        assert lane.scan(*runs) == (lane.expected(*[sequence for sequence in whole(runs) if sequence % 3 == 0]), [])


def test_nothing_asked_is_nothing_read() -> None:
    lane = Lane()
    assert plan_regions([], lane.journal.open_data_logs.reader) == [] and read_regions([]) == ([], [])


def test_messages_are_plain_tuples_with_properties_apart_from_the_body() -> None:
    lane = Lane()
    lane.add((b"properties", b"body"))
    lane.add((b"", b"alone"), (b"p", b""))
    assert lane.read((0, 2))[0] == [
        (0, b"properties", b"body", TIMESTAMP),
        (1, b"", b"alone", TIMESTAMP),
        (2, b"p", b"", TIMESTAMP),
    ]


# What is read at once.


def test_neighbours_come_in_one_read() -> None:
    lane = Lane()
    for _ in range(100):
        lane.add((b"", bytes(1000)))
    lane.add(*[(b"", bytes(100))] * 32)
    reads = lane.disk.calls["read"]
    messages, _ = lane.read((0, 131))
    assert len(messages) == 132 and lane.disk.calls["read"] == reads + 1


def test_small_gap_is_read_and_a_large_one_skipped() -> None:
    lane = Lane()
    overhead = SLICE_BYTES + ENTRY_BYTES
    lane.add((b"", b"a"))
    lane.other(GAP_BYTES_MAX - overhead)
    lane.add((b"", b"b"))
    lane.other(GAP_BYTES_MAX - overhead + 1)
    lane.add((b"", b"c"))
    first, second = lane.regions((0, 2))
    assert (first[2], second[2]) == (2 * (overhead + 1) + GAP_BYTES_MAX, overhead + 1)
    assert lane.read((0, 2)) == (lane.expected(0, 1, 2), [])


def test_no_read_is_longer_than_a_region_unless_one_record_is() -> None:
    lane = Lane(max_file_bytes=4 << 20)
    for size in (100_000, 100_000, 100_000, 1 << 20, 10, 10):
        lane.add((b"", bytes(size)))
    lengths = [length for _, _, length in lane.regions((0, 5))]
    assert [length > REGION_BYTES_MAX for length in lengths] == [False, False, True, False]
    assert lane.read((0, 5)) == (lane.expected(*range(6)), [])


def test_each_data_log_is_read_by_itself() -> None:
    lane = Lane(max_file_bytes=600)
    for _ in range(6):
        lane.add((b"", bytes(150)))
    regions = lane.regions((0, 5))
    assert [data_log for data_log, _, _ in regions] == [1, 2, 3]
    assert lane.read((0, 5)) == (lane.expected(*range(6)), [])


def test_two_runs_of_one_slice_share_a_read() -> None:
    lane = Lane()
    lane.add(*[(b"", bytes([n])) for n in range(32)])
    assert len(lane.regions((0, 0), (5, 9), (31, 31))) == 1
    assert lane.read((0, 0), (5, 9), (31, 31)) == (lane.expected(0, *range(5, 10), 31), [])


def test_two_runs_of_one_large_slice_share_a_read() -> None:
    lane = Lane(max_file_bytes=4 << 20)
    lane.add((b"", b"before"))
    lane.add(*[(b"", bytes(200_000))] * 3)
    assert len(lane.regions((0, 0), (1, 1), (3, 3))) == 2
    assert lane.read((0, 0), (1, 1), (3, 3)) == (lane.expected(0, 1, 3), [])


def test_runs_in_any_order_are_answered_in_that_order() -> None:
    lane = Lane()
    for n in range(9):
        lane.add((b"", bytes([n])))
    assert lane.read((6, 7), (0, 1), (7, 7)) == (lane.expected(6, 7, 0, 1, 7), [])


# Damage.


def slice_and_singles() -> Lane:
    """A slice of four at sequence 1, and single messages around it."""
    lane = Lane()
    lane.add((b"", b"first"))
    lane.add(*[(b"pp", bytes([n]) * 100) for n in range(4)])
    lane.add((b"properties", b"last"))
    return lane


def places(unreadable: list[tuple[int, str]]) -> list[int]:
    assert all(f"data-{1}.log at " in problem for _, problem in unreadable)
    return [sequence for sequence, _ in unreadable]


def test_damaged_body_costs_that_message_alone() -> None:
    for hit in range(4):
        lane = slice_and_singles()
        [_, extent, _] = lane.extents((0, 5))
        lane.flip(1, extent.offset + SLICE_BYTES + 4 * ENTRY_BYTES + 102 * hit + 50)
        messages, unreadable = lane.read((0, 5))
        assert messages == lane.expected(*(n for n in range(6) if n != 1 + hit)) and places(unreadable) == [1 + hit]


def test_any_damaged_messages_of_a_slice_cost_themselves_alone() -> None:
    """In their headers as in their bodies, and with headers of different lengths."""
    contents = [(b"h" * (n % 3), bytes([n]) * 9) for n in range(6)]
    for hits in range(1 << 6):
        lane = Lane()
        lane.add(*contents)
        [extent] = lane.extents((0, 5))
        at = extent.offset + SLICE_BYTES + 6 * ENTRY_BYTES
        for n, (headers, body) in enumerate(contents):
            if hits >> n & 1:
                lane.flip(1, at)  # of the headers, if the message has any
            at += len(headers) + len(body)
        messages, unreadable = lane.read((0, 5))
        assert messages == lane.expected(*(n for n in range(6) if not hits >> n & 1))
        assert places(unreadable) == [n for n in range(6) if hits >> n & 1]


def test_headers_may_be_longer_than_another_message_of_the_slice() -> None:
    lane = Lane()
    lane.add((b"h" * 50, b""), (b"", b"body"), (b"", b""))
    assert lane.read((0, 2)) == (lane.expected(0, 1, 2), [])


@pytest.mark.parametrize("at", [0, 4, 8, 12, 31, 32, 40, SLICE_BYTES, SLICE_BYTES + 4 * ENTRY_BYTES - 1])
def test_damaged_head_costs_the_slice_alone(at: int) -> None:
    lane = slice_and_singles()
    lane.flip(1, lane.extents((1, 1))[0].offset + at)
    messages, unreadable = lane.read((0, 5))
    assert messages == lane.expected(0, 5) and places(unreadable) == [1, 2, 3, 4]


def test_any_flipped_bit_of_a_single_message_costs_it_alone() -> None:
    lane = slice_and_singles()
    extent = lane.extents((5, 5))[0]
    for at in range(extent.record_bytes):
        lane.flip(1, extent.offset + at)
        messages, unreadable = lane.read((0, 5))
        assert messages == lane.expected(0, 1, 2, 3, 4) and places(unreadable) == [5], f"byte {at}"
        lane.flip(1, extent.offset + at)
    assert lane.read((5, 5)) == (lane.expected(5), [])


def test_data_log_that_ends_too_soon_costs_what_lay_behind_its_end() -> None:
    lane = slice_and_singles()
    lane.disk.open(data_log_name(1)).truncate(lane.extents((5, 5))[0].offset + 5)
    messages, unreadable = lane.read((0, 5))
    assert messages == lane.expected(0, 1, 2, 3, 4) and places(unreadable) == [5]


def test_failed_read_names_the_place_and_the_others_go_on() -> None:
    lane = Lane(max_file_bytes=600)
    for _ in range(6):
        lane.add((b"", bytes(150)))
    lane.disk.fail("read", 2, errno.EIO)
    lane.disk.fail("read", 3, errno.EIO)
    messages, unreadable = lane.read((0, 5))
    assert messages == lane.expected(0, 1, 3, 4, 5)
    assert [sequence for sequence, _ in unreadable] == [2] and "Input/output error" in unreadable[0][1]


class BadSector:
    """A file of which one byte cannot be read."""

    def __init__(self, file: ReadableFile, bad_offset: int) -> None:
        self._file = file
        self._bad_offset = bad_offset

    def read(self, offset: int, length: int) -> bytes:
        if offset <= self._bad_offset < offset + length:
            raise OSError(errno.EIO, "Input/output error")
        return self._file.read(offset, length)


def test_sector_that_cannot_be_read_costs_the_record_in_it_alone() -> None:
    lane = slice_and_singles()
    plan = lane.plan((0, 5))
    for sequence in range(6):
        (extent,) = lane.extents((sequence, sequence))
        bad = [region._replace(file=BadSector(region.file, extent.offset + 40)) for region in plan]
        messages, unreadable = read_regions(bad)
        spoilt = {other for other in range(6) if lane.extents((other, other))[0].offset == extent.offset}
        assert messages == lane.expected(*sorted(set(range(6)) - spoilt))
        assert {other for other, _ in unreadable} == spoilt


def test_place_where_something_else_lies_is_told() -> None:
    lane = slice_and_singles()
    single, part, last = lane.extents((0, 5))
    assert isinstance(single, Extent) and isinstance(part, Extent)
    reader = lane.journal.open_data_logs.reader
    for wrong in (
        single._replace(first_sequence=5),
        single._replace(offset=last.offset, record_bytes=last.record_bytes),
        single._replace(offset=part.offset, record_bytes=part.record_bytes),
        single._replace(offset=single.offset + 1),
        single._replace(offset=DATA_LOG_HEADER_BYTES),
        part._replace(first_sequence=2),
        part._replace(record_messages=3),
        part._replace(record_bytes=part.record_bytes - 1),
        part._replace(offset=single.offset),
        part._replace(offset=DATA_LOG_HEADER_BYTES - 1),
    ):
        messages, unreadable = read_regions(plan_regions([wrong], reader))
        assert messages == [] and len(unreadable) == wrong.messages, wrong


def test_single_message_of_another_sequence_is_not_taken_for_the_one_that_is_wanted() -> None:
    """Lengths and checksums of both are right."""
    lane = Lane()
    for n in range(3):
        lane.add((b"", b"body %d" % n))
    [extent] = lane.extents((1, 2))
    assert isinstance(extent, SingleRecords)
    messages, unreadable = read_regions(
        plan_regions([extent._replace(first_sequence=0)], lane.journal.open_data_logs.reader)
    )
    assert messages == [] and places(unreadable) == [0, 1]


@pytest.mark.parametrize("count", [1, 2])
def test_properties_longer_than_their_message_are_damage(count: int) -> None:
    """Every checksum is right: somebody made it so."""
    lane = Lane()
    lane.add(*[(b"", b"body")] * count)
    [extent] = lane.extents((0, count - 1))
    file = lane.disk.open(data_log_name(1))
    record = bytearray(file.read(extent.offset, extent.record_bytes))
    head_bytes = SLICE_BYTES + count * ENTRY_BYTES
    record[head_bytes - 4 : head_bytes] = (5).to_bytes(4, "little")
    _, salt = lane.journal.open_data_logs.reader(1)
    record[:4] = crc32(record[4:head_bytes], salt).to_bytes(4, "little")
    file.seek(extent.offset)
    file.append(bytes(record))
    messages, unreadable = lane.read((0, count - 1))
    assert messages == lane.expected(*range(count - 1)) and places(unreadable) == [count - 1]


def test_no_payload_is_in_a_problem() -> None:
    lane = Lane()
    lane.add((b"secret", b"secret"))
    extent = lane.extents((0, 0))[0]
    lane.flip(1, extent.offset + extent.record_bytes - 1)
    assert "secret" not in str(lane.read((0, 0)))


@pytest.mark.parametrize("seed", range(5))
def test_arbitrary_damage_never_gives_a_wrong_message_and_never_raises(seed: int) -> None:
    random = Random(seed)
    for _ in range(100):
        lane = slice_and_singles()
        name, end = data_log_name(1), lane.journal.offset
        for _ in range(random.randint(1, 4)):
            file = lane.disk.open(name)
            file.seek(random.randrange(DATA_LOG_HEADER_BYTES, end))
            file.append(random.choice((bytes(20), random.randbytes(random.randint(1, 40)), b"\xff" * 4)))
        messages, unreadable = lane.read((0, 5))
        found = [message[0] for message in messages]
        assert messages == lane.expected(*found), "a message that was never sent"
        assert sorted(found + places(unreadable)) == list(range(6))
        assert lane.scan((0, 5)) == ([message for message in messages if message[0] % 3 == 0], unreadable)


# Headers alone.


class Watched:
    """A file that notes how much each read brings."""

    def __init__(self, file: ReadableFile) -> None:
        self.file = file
        self.reads: list[int] = []

    def read(self, offset: int, length: int) -> bytes:
        self.reads.append(length)
        return self.file.read(offset, length)


def headers_of(lane: Lane, sequence: int) -> tuple[list[StoredMessage], list[tuple[int, str]], list[int], list[int]]:
    """What read_headers returns, what it pays, and the bytes of its reads."""
    (region,) = lane.plan((sequence, sequence))
    watched, paid = Watched(region.file), list[int]()
    found, unreadable = read_headers(region._replace(file=watched), paid.append)
    return found, unreadable, paid, watched.reads


@pytest.mark.parametrize("properties_bytes", [0, 100, PIECE_BYTES, 3 * PIECE_BYTES])
@pytest.mark.parametrize("before", [0, 2])
def test_headers_come_without_the_body_and_no_more_is_in_ram_than_was_paid_for(
    properties_bytes: int, before: int
) -> None:
    lane, properties = Lane(), b"p" * properties_bytes
    lane.add(*[(b"x", b"before")] * before, (properties, bytes(5 * PIECE_BYTES + 7)), *[(b"", b"after")] * before)
    found, unreadable, paid, reads = headers_of(lane, before)
    assert found == [(before, properties, b"", TIMESTAMP)] and not unreadable
    assert paid == ([PIECE_BYTES] if properties_bytes <= PIECE_BYTES else [PIECE_BYTES, properties_bytes])
    assert max(reads) <= max(PIECE_BYTES, properties_bytes) and sum(reads) > 5 * PIECE_BYTES + properties_bytes


@pytest.mark.parametrize("at", [10, SLICE_BYTES + 2, SLICE_BYTES + ENTRY_BYTES + 3, 3 * PIECE_BYTES, 4 * PIECE_BYTES])
@pytest.mark.parametrize("others", [0, 1])
def test_headers_of_a_message_are_not_believed_where_anything_of_it_is_damaged(at: int, others: int) -> None:
    lane = Lane()
    lane.add((b"properties", bytes(4 * PIECE_BYTES)), *[(b"", b"other")] * others)
    lane.flip(lane.journal.data_log, lane.plan((0, 0))[0].offset + at)
    found, unreadable, _, _ = headers_of(lane, 0)
    assert not found and [sequence for sequence, _ in unreadable] == [0]
    assert unreadable[0][1].startswith(f"data-{lane.journal.data_log}.log at ")


def test_headers_that_the_disk_does_not_give_say_so() -> None:
    lane = Lane()
    lane.add((b"properties", bytes(4 * PIECE_BYTES)))
    lane.disk.fail("read", 2, errno.EIO)
    found, unreadable, _, _ = headers_of(lane, 0)
    assert not found and "the read failed" in unreadable[0][1]


def test_a_data_log_that_could_not_be_opened_keeps_no_frame_of_its_reads() -> None:
    error = OSError(errno.EIO, "Input/output error")
    unopened = UnopenedDataLog(error)
    lengths = []
    for _ in range(3):
        with pytest.raises(OSError, match="Input/output error") as caught:
            unopened.read(0, 1)
        lengths.append(len(list(traceback.walk_tb(caught.value.__traceback__))))
    assert len(set(lengths)) == 1
