"""A data log: its header is as documented, and a walk yields exactly the records before the first damage."""

from __future__ import annotations

import struct
import sys
import zlib
from array import array
from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from journals import STORE_ID, FoundRecord, append_one, data_log_header, journal_on, walked
from simulated_disk import SimulatedDisk, SimulatedFile

from forebay.store.disk.layout import data_log_name
from forebay.store.format.contents import Contents
from forebay.store.format.record import (
    ACK,
    ATTEST,
    DIRECTORY,
    ENTRY,
    HEADER_BYTES,
    MAGIC,
    MAGIC_BYTES,
    MAGIC_OFFSET,
    MESSAGE,
    SEQUENCE_MAX,
    SLICE,
    STATE,
    RecordDamaged,
    crc32,
    decode_ack,
    decode_slice,
    encode,
    encode_one,
    encode_slice,
    stamp,
)
from forebay.store.journal import data_log as data_log_module
from forebay.store.journal import forward_reader as window_module
from forebay.store.journal.data_log import (
    DATA_LOG_HEADER_BYTES,
    DIRECTORY_MARK,
    FORMAT_VERSION,
    DataLogHeader,
    Plain,
    RecordWalk,
    UnknownVersion,
    attested_behind,
    crc_of,
    decode_data_log_header,
    directory_payload,
    encode_header,
    find_records,
)
from forebay.store.journal.scan import Damage, scan

HEADER = DataLogHeader(0x01020304, STORE_ID, 86, 9, 2**40, 1_700_000_000_000)
NAME = data_log_name(1)


def small_data_log() -> SimulatedDisk:
    """Records of several kinds, among them a slice and an empty message; sealed."""
    disk = SimulatedDisk()
    journal = journal_on(disk)
    append_one(journal, 4, 1, 0, 5, b"", b"first" * 10)
    journal.append_slice(4, 1, 1, 5, Contents.of([(b"properties", b"a" * 50), (b"", b""), (b"", b"b" * 200)]))
    journal.append_ack(4, 1, 0, 3)
    append_one(journal, 4, 1, 4, 5, b"", b"")
    journal.append(ATTEST, 0, 0, b"")
    append_one(journal, 4, 1, 5, 5, b"p", b"last" * 30)
    journal.seal()
    return disk


SMALL = small_data_log()
IMAGE = SMALL.image()[NAME]
_, RECORDS = walked(SMALL, 1)
ENDS = [record.offset + record.header.length for record in RECORDS]


def disk_with(image: bytes) -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directory("journal")
    disk.open(NAME, create=True).append(image)
    return disk


def walk_of(image: bytes) -> tuple[RecordWalk, list[FoundRecord]]:
    return walked(disk_with(image), 1)


# The header.


def test_header_is_laid_out_as_documented() -> None:
    data = b"".join(
        (
            b"FOREBAY1",
            (3).to_bytes(2, "little"),
            (64).to_bytes(2, "little"),
            (0x01020304).to_bytes(4, "little"),
            STORE_ID,
            (86).to_bytes(4, "little"),
            (9).to_bytes(4, "little"),
            (2**40).to_bytes(8, "little"),
            (1_700_000_000_000).to_bytes(8, "little"),
        )
    )
    data += zlib.crc32(data).to_bytes(4, "little")
    assert encode_header(HEADER) == data + bytes(4)
    assert len(encode_header(HEADER)) == DATA_LOG_HEADER_BYTES == 64 and FORMAT_VERSION == 3


@given(
    st.builds(
        DataLogHeader,
        st.integers(0, 2**32 - 1),
        st.binary(min_size=16, max_size=16),
        st.integers(0, 2**32 - 1),
        st.integers(0, 2**32 - 1),
        st.integers(0, SEQUENCE_MAX),
        st.integers(0, 2**64 - 1),
    )
)
def test_header_comes_back(header: DataLogHeader) -> None:
    assert decode_data_log_header(encode_header(header) + b"what follows") == header


def test_any_flipped_bit_or_cut_of_the_header_is_damage() -> None:
    data = encode_header(HEADER)
    for at in range(8 * DATA_LOG_HEADER_BYTES):
        damaged = bytearray(data)
        damaged[at // 8] ^= 1 << at % 8
        with pytest.raises(RecordDamaged):
            decode_data_log_header(bytes(damaged))
    for length in range(DATA_LOG_HEADER_BYTES):
        with pytest.raises(RecordDamaged):
            decode_data_log_header(data[:length])


def test_newer_format_is_told_from_damage() -> None:
    data = bytearray(encode_header(HEADER))
    data[8:10] = (4).to_bytes(2, "little")
    data[56:60] = zlib.crc32(data[:56]).to_bytes(4, "little")
    with pytest.raises(UnknownVersion, match="format version 4"):
        decode_data_log_header(bytes(data))


@given(st.binary(max_size=80))
def test_header_decoder_meets_arbitrary_bytes(data: bytes) -> None:
    for candidate in (data, b"FOREBAY1" + data):
        with pytest.raises(RecordDamaged):
            decode_data_log_header(candidate)


# What a walk finds.


def test_walk_yields_every_record_with_its_place() -> None:
    walk, records = walk_of(IMAGE)
    kinds = [record.header.kind for record in records]
    assert kinds == [STATE, MESSAGE, MESSAGE, ACK, MESSAGE, ATTEST, MESSAGE, DIRECTORY]
    assert [record.offset for record in records] == [DATA_LOG_HEADER_BYTES, *ENDS[:-1]]
    assert [record.header.log_sequence for record in records] == list(range(100, 108))
    assert all(IMAGE[offset : offset + header.head_bytes] == head for offset, header, head in records)
    assert (walk.is_sealed, walk.problem, walk.end, walk.next_log_sequence) == (True, None, len(IMAGE), 108)


def test_sealed_data_log_ends_with_the_offsets_of_its_records() -> None:
    *records, seal = RECORDS
    assert struct.unpack("<III", IMAGE[-12:]) == (seal.offset, len(records), DIRECTORY_MARK)
    offsets = struct.unpack(f"<{len(records)}I", IMAGE[-12 - 4 * len(records) : -12])
    assert list(offsets) == [record.offset for record in records]


def test_walk_reads_nothing_behind_the_seal() -> None:
    walk, records = walk_of(IMAGE + IMAGE[DATA_LOG_HEADER_BYTES:])
    assert (records, walk.end, walk.problem) == (RECORDS, len(IMAGE), None)


def test_walk_from_the_middle_takes_the_first_log_sequence_on_trust() -> None:
    walk = RecordWalk(SMALL.open_for_reading(NAME), data_log_header(SMALL, 1), RECORDS[3].offset)
    assert [FoundRecord(*found) for found in walk] == RECORDS[3:]


@pytest.mark.parametrize("chunk_bytes", [100, 333, 1000])
def test_walk_is_the_same_whatever_it_reads_at_once(monkeypatch: pytest.MonkeyPatch, chunk_bytes: int) -> None:
    monkeypatch.setattr(data_log_module, "_CHUNK_BYTES", chunk_bytes)
    walk, records = walk_of(IMAGE)
    assert (records, walk.is_sealed) == (RECORDS, True)
    for record in RECORDS:
        if record.header.kind == MESSAGE and record.header.length > record.header.head_bytes:
            damaged = bytearray(IMAGE)
            damaged[record.offset + record.header.length - 1] ^= 1
            walk, records = walk_of(bytes(damaged))
            assert walk.end == record.offset and walk.problem is not None


def before(offset: int) -> list[FoundRecord]:
    """The records that a walk must yield when the byte at offset is damaged."""
    return [record for record, end in zip(RECORDS, ENDS, strict=True) if end <= offset]


def test_walk_stops_at_any_flipped_bit() -> None:
    random = Random(1)
    for at in range(DATA_LOG_HEADER_BYTES, len(IMAGE)):
        damaged = bytearray(IMAGE)
        damaged[at] ^= 1 << random.randrange(8)
        walk, records = walk_of(bytes(damaged))
        assert records == before(at), f"byte {at}"
        assert walk.problem is not None and walk.end == (ENDS[len(records) - 1] if records else DATA_LOG_HEADER_BYTES)
        assert walk.next_log_sequence == 100 + len(records), "what follows a damaged record takes its number"


def test_every_single_flipped_bit_of_a_sealed_data_log_is_noticed() -> None:
    """From the first bit of the header to the last of the directory, by whoever walks it and verifies bodies."""
    for at in range(8 * len(IMAGE)):
        image = bytearray(IMAGE)
        image[at // 8] ^= 1 << at % 8
        try:
            walk, _ = walk_of(bytes(image))
        except RecordDamaged:
            continue
        assert not walk.is_sealed or walk.end != len(IMAGE), f"byte {at // 8}, bit {at % 8}"


def test_walk_stops_at_any_cut() -> None:
    for length in range(DATA_LOG_HEADER_BYTES, len(IMAGE)):
        for image in (IMAGE[:length], IMAGE[:length] + bytes(len(IMAGE) - length)):
            walk, records = walk_of(image)
            whole = [record for record, end in zip(RECORDS, ENDS, strict=True) if image[:end] == IMAGE[:end]]
            assert records == whole, f"cut to {length} bytes"
            assert (walk.problem is None) == (walk.end >= length or walk.is_sealed)


def test_walk_that_need_not_verify_bodies_sees_damaged_heads_only() -> None:
    body = RECORDS[1].offset + 64
    damaged = bytearray(IMAGE)
    damaged[body] ^= 1
    header = data_log_header(SMALL, 1)
    for verify_from, expected in ((None, 8), (body - 64, 1), (body - 63, 8), (len(IMAGE), 8)):
        file = disk_with(bytes(damaged)).open_for_reading(NAME)
        walk = RecordWalk(file, header, DATA_LOG_HEADER_BYTES, verify_from=verify_from)
        assert len(list(walk)) == expected, f"verify_from={verify_from}"


def test_untouched_space_is_no_problem_and_anything_else_is() -> None:
    end = ENDS[3]
    for behind, is_problem in (
        (b"", False),
        (bytes(5), False),
        (bytes(4096), False),
        (b"x", True),
        (b"\x01" * 99, True),
    ):
        walk, records = walk_of(IMAGE[:end] + behind)
        assert (len(records), walk.end, walk.problem is not None) == (4, end, is_problem)


# What is no record of this data log.


def behind_the_first(data: bytes) -> tuple[RecordWalk, list[FoundRecord]]:
    """The small data log with other bytes behind its first two records."""
    return walk_of(IMAGE[: ENDS[1]] + data + bytes(100))


def message(salt: int, sequence: int, epoch: int, durable: int = 0) -> bytes:
    return encode_one(salt, sequence << 16 | MAGIC, stamp(epoch, durable), 4, 1, 9, 5, b"", b"body", 4)


def test_only_the_next_log_sequence_is_taken() -> None:
    salt = data_log_header(SMALL, 1).salt
    assert len(behind_the_first(message(salt, 102, 7))[1]) == 3
    for sequence in (0, 100, 101, 103, 2**48 - 1):
        walk, records = behind_the_first(message(salt, sequence, 7))
        assert len(records) == 2 and walk.problem is not None, f"log sequence {sequence}"


def test_no_older_epoch_is_taken() -> None:
    salt = data_log_header(SMALL, 1).salt
    assert len(behind_the_first(message(salt, 102, 8))[1]) == 3
    assert len(behind_the_first(message(salt, 102, 6))[1]) == 2


def test_record_of_another_data_log_is_not_taken() -> None:
    salt = data_log_header(SMALL, 1).salt
    assert len(behind_the_first(message(salt ^ 1, 102, 7))[1]) == 2


def test_walk_remembers_the_greatest_durable_end_and_epoch() -> None:
    salt = data_log_header(SMALL, 1).salt
    walk, _ = behind_the_first(message(salt, 102, 7, durable=900) + message(salt, 103, 9, durable=800))
    assert (walk.durable_end, walk.epoch) == (900, 9)


class Meter:
    """A file that notes how much is asked of it at once."""

    def __init__(self, file: SimulatedFile) -> None:
        self._file = file
        self.longest = 0
        self.read_bytes = 0
        self.size = file.size

    def read(self, offset: int, length: int) -> bytes:
        data = self._file.read(offset, length)
        self.longest = max(self.longest, length)
        self.read_bytes += len(data)
        return data


def test_length_that_lies_is_never_read() -> None:
    salt = data_log_header(SMALL, 1).salt
    huge = bytearray(encode(salt, 102 << 16 | MAGIC, 7, 0, ACK, 4, 1, bytes(16)))
    for length in (1 << 30, 3 << 20, 5000):
        huge[4:8] = length.to_bytes(4, "little")
        meter = Meter(disk_with(IMAGE[: ENDS[1]] + huge).open_for_reading(NAME))
        walk = RecordWalk(meter, data_log_header(SMALL, 1), DATA_LOG_HEADER_BYTES, verify_from=0)  # type: ignore[arg-type]
        assert len(list(walk)) == 2 and walk.problem == "the record reaches beyond the end of the file"
        assert meter.longest <= 1 << 20
        attested_behind(meter, data_log_header(SMALL, 1), ENDS[1])  # type: ignore[arg-type]
        assert meter.longest <= 1 << 20


def test_large_message_is_verified_in_pieces() -> None:
    disk = SimulatedDisk()
    journal = journal_on(disk)
    append_one(journal, 4, 1, 0, 5, b"", bytes(3 << 20))
    header = data_log_header(disk, journal.data_log)
    meter = Meter(disk.open_for_reading(data_log_name(journal.data_log)))
    walk = RecordWalk(meter, header, DATA_LOG_HEADER_BYTES, verify_from=0)  # type: ignore[arg-type]
    assert len(list(walk)) == 2 and walk.problem is None and meter.longest <= 1 << 20


@given(st.integers(DATA_LOG_HEADER_BYTES, len(IMAGE)), st.binary(min_size=1, max_size=100), st.booleans())
def test_walk_meets_arbitrary_bytes(at: int, noise: bytes, is_insertion: bool) -> None:
    image = IMAGE[:at] + noise + IMAGE[at if is_insertion else at + len(noise) :]
    walk, records = walk_of(image)
    assert records[: len(before(at))] == before(at)
    assert walk.end <= len(image) and len(records) <= len(RECORDS)
    attested_behind(disk_with(image).open_for_reading(NAME), data_log_header(SMALL, 1), walk.end)


# The short cut over plain records.


def plain_data_log(seed: int) -> SimulatedDisk:
    """Single messages of two lanes and acks of one run, now and then something else."""
    random = Random(seed)
    disk = SimulatedDisk()
    journal = journal_on(disk, max_file_bytes=1 << 20)
    for number in range(40):
        body = random.randbytes(random.choice((0, 1, 300)))
        dice = random.random()
        if dice < 0.6:
            append_one(journal, random.choice((4, 9)), 1, number, 5, random.choice((b"", b"properties")), body)
        elif dice < 0.85:
            journal.append_ack(4, 1, random.randrange(number + 1), random.randint(1, 3))
        elif dice < 0.95:
            journal.append_slice(4, 1, number, 5, Contents.of([(b"", body), (b"p", b"second")]))
        else:
            journal.append(ATTEST, 0, 0, b"")
    return disk


One = tuple[int, int, int, int, int]
"""Offset, lane number, first sequence, messages that an ack removes, bytes of a message's content."""


def gathered(disk: SimulatedDisk, verify_from: int | None) -> tuple[RecordWalk, list[One]]:
    """Every plain record, however the walk came to it, and the walk."""
    file = disk.open_for_reading(NAME)
    walk = RecordWalk(
        file, data_log_header(disk, 1), DATA_LOG_HEADER_BYTES, next_log_sequence=100, verify_from=verify_from
    )
    plain: list[One] = []
    for offset, header, head in walk:
        plain += as_plain([FoundRecord(offset, header, head)])
        while found := walk.gather(3):
            plain += each_of(found)
    return walk, plain


def each_of(found: list[Plain]) -> Iterator[One]:
    for offset, lane, first, messages, offsets, lengths in found:
        if messages:
            yield offset, lane, first, messages, 0
        for sequence, (place, length) in enumerate(zip(offsets, lengths, strict=True), first):
            yield place, lane, sequence, 0, length


def as_plain(records: list[FoundRecord]) -> list[One]:
    plain: list[One] = []
    for offset, header, head in records:
        if header.kind == MESSAGE and header.entries == 1:
            part = decode_slice(header, head)
            plain.append(
                (offset, part.destination_number << 4 | part.priority, part.first_sequence, 0, part.lengths[0])
            )
        elif header.kind == ACK and header.entries == 1:
            ack = decode_ack(header, head)
            [run] = ack.ranges
            plain.append((offset, ack.number << 4 | ack.priority, run.first, run.messages, 0))
    return plain


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("chunk_bytes", [150, 700, 1 << 20])
def test_short_cut_takes_the_same_records_as_the_walk_whatever_is_damaged(
    monkeypatch: pytest.MonkeyPatch, chunk_bytes: int, seed: int
) -> None:
    monkeypatch.setattr(data_log_module, "_CHUNK_BYTES", chunk_bytes)
    disk = plain_data_log(seed)
    image = disk.image()[NAME].rstrip(b"\0")
    random = Random(seed)
    for round_number in range(60):
        damaged = bytearray(image)
        if round_number:
            damaged[random.randrange(DATA_LOG_HEADER_BYTES, len(image))] ^= 1 << random.randrange(8)
        file = disk_with(bytes(damaged))
        verify_from = random.choice((None, 0, random.randrange(len(image))))
        plainly = RecordWalk(
            file.open_for_reading(NAME),
            data_log_header(disk, 1),
            DATA_LOG_HEADER_BYTES,
            next_log_sequence=100,
            verify_from=verify_from,
        )
        expected = as_plain([FoundRecord(*record) for record in plainly])
        walk, plain = gathered(file, verify_from)
        assert plain == expected
        for name in ("end", "next_log_sequence", "epoch", "durable_end", "problem"):
            assert getattr(walk, name) == getattr(plainly, name), name


# What lies behind damage.


@pytest.mark.parametrize("chunk_bytes", [100, 1 << 20])
def test_durable_end_is_found_behind_any_damage(monkeypatch: pytest.MonkeyPatch, chunk_bytes: int) -> None:
    monkeypatch.setattr(data_log_module, "_CHUNK_BYTES", chunk_bytes)
    header = data_log_header(SMALL, 1)
    for gap in (*range(130), 500, 5000):
        noise = Random(gap).randbytes(gap)
        record = message(header.salt, 555, 1, durable=4711)
        file = disk_with(IMAGE[: ENDS[0]] + noise + record + noise).open_for_reading(NAME)
        assert attested_behind(file, header, ENDS[0]) == 4711, f"gap of {gap} bytes"


def test_greatest_durable_end_counts_and_records_of_other_files_do_not() -> None:
    header = data_log_header(SMALL, 1)
    records = [message(header.salt, 1, 1, durable) for durable in (5, 900, 7)]
    foreign = message(header.salt ^ 1, 1, 1, 10**9)
    file = disk_with(IMAGE[: ENDS[0]] + b"noise".join([*records, foreign])).open_for_reading(NAME)
    assert attested_behind(file, header, ENDS[0]) == 900


def test_record_with_a_damaged_body_still_attests() -> None:
    """Its head verifies, and so does what the head says."""
    header = data_log_header(SMALL, 1)
    torn = encode_slice(header.salt, 1 << 16 | MAGIC, 1, 4711, 4, 1, 0, 0, Contents([b""], [b"x" * 99]), [99])
    file = disk_with(IMAGE[: ENDS[0]] + torn[:-9] + b"y" * 9).open_for_reading(NAME)
    assert attested_behind(file, header, ENDS[0]) == 4711


def test_nothing_is_attested_by_zeros_noise_or_the_magic_alone() -> None:
    header = data_log_header(SMALL, 1)
    for behind in (
        b"",
        bytes(5000),
        Random(1).randbytes(5000),
        MAGIC_BYTES * 1000,
        message(header.salt, 1, 1, 5)[:-20],
    ):
        assert attested_behind(disk_with(IMAGE[: ENDS[0]] + behind).open_for_reading(NAME), header, ENDS[0]) == 0


def test_record_of_any_length_is_found_wherever_it_begins() -> None:
    header = data_log_header(SMALL, 1)
    for length in (0, 100, 2016, 2017, 5000, 70_000, 1_500_000):
        for gap in (0, 1, 1000, 65_535, 200_001):
            record = encode(header.salt, 7 << 16 | MAGIC, 1, 5, STATE, 0, 0, Random(length).randbytes(length))
            noise = Random(gap).randbytes(gap)
            file = disk_with(IMAGE[: ENDS[0]] + noise + record + noise[:50]).open_for_reading(NAME)
            found = list(find_records(file, header, ENDS[0]))
            assert [(offset, record.log_sequence) for offset, record in found] == [(ENDS[0] + gap, 7)]


def forged_headers(header: DataLogHeader, claimed_bytes: int) -> bytes:
    """4 MiB of headers, one each KiB: what somebody who does not know the salt can put into a body."""
    forged = encode(header.salt ^ 1, 1 << 16 | MAGIC, 1, 5, STATE, 0, 0, bytes(claimed_bytes - 32))
    return forged[:32].ljust(1024, b"x") * 4096 + bytes(claimed_bytes)


@pytest.mark.parametrize("is_in_record", [False, True])
@pytest.mark.parametrize("claimed_bytes", [3000, 1 << 20])
def test_search_through_forged_headers_reads_and_hashes_little_more_than_the_file(
    monkeypatch: pytest.MonkeyPatch, claimed_bytes: int, is_in_record: bool
) -> None:
    """Byte by byte, 4,096 headers that claim 1 MiB each would be 4 GiB."""
    header = data_log_header(SMALL, 1)
    hashed_bytes = 0

    def counted(data: bytes, crc: int = 0) -> int:
        nonlocal hashed_bytes
        hashed_bytes += len(data)
        return crc32(data, crc)

    forged = forged_headers(header, claimed_bytes)
    head = (
        encode_one(header.salt, 3 << 16 | MAGIC, stamp(1, 5), 4, 1, 0, 0, b"", forged, len(forged))
        if is_in_record
        else b""
    )
    image = IMAGE[: ENDS[0]] + head + forged + message(header.salt, 555, 1, durable=4711)
    meter = Meter(disk_with(image).open_for_reading(NAME))
    monkeypatch.setattr(data_log_module, "crc32", counted)
    monkeypatch.setattr(window_module, "crc32", counted)
    assert attested_behind(meter, header, ENDS[0]) == 4711  # type: ignore[arg-type]
    assert meter.read_bytes <= 2 * len(image)
    assert hashed_bytes <= 2 * len(image) + 4096 * 3 * window_module.PIECE_BYTES


def test_marks_of_a_record_at_the_very_end_are_no_record() -> None:
    header = data_log_header(SMALL, 1)
    for cut in range(1, HEADER_BYTES):
        file = disk_with(
            IMAGE + bytes(HEADER_BYTES) + MAGIC_BYTES.rjust(MAGIC_OFFSET + 2, b"x").ljust(HEADER_BYTES, b"x")[:-cut]
        )
        assert list(find_records(file.open_for_reading(NAME), header, len(IMAGE))) == []


def test_slice_whose_table_does_not_add_up_hides_nothing_behind_it() -> None:
    """Its head verifies, so whoever wrote it was wrong: it is no whole record, and what lies in it is looked at."""
    disk = SimulatedDisk()
    journal = journal_on(disk)
    table = SLICE.pack(1, 0, 5) + ENTRY.pack(0, 999, 0)
    offset = journal.append(MESSAGE, 4, 1, table)
    behind = journal.append(ATTEST, 0, 0, b"")
    file, header = disk.open_for_reading(NAME), data_log_header(disk, 1)
    assert [place for place, _ in find_records(file, header, offset)] == [offset, behind]
    walk, found = walked(disk, 1)
    assert walk.end == offset and walk.problem == "the table of a slice does not add up to its length"
    damages = [found for found in scan(file, header) if isinstance(found, Damage)]
    assert [(damage.offset, damage.length) for damage in damages] == [(offset, behind - offset)]


def test_stretch_that_the_file_has_not_matches_no_checksum() -> None:
    file = disk_with(b"1234").open_for_reading(NAME)
    assert crc_of(file, 0, 4) == crc32(b"1234") and crc_of(file, 0, 5) == crc_of(file, 4, 1) == -1


def test_directory_has_the_same_bytes_on_every_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Offsets as a machine of the other byte order holds them are written in the order of the format."""
    offsets = array("I", [64, 207, 70_000])
    written = directory_payload(offsets, 80_000)
    offsets.byteswap()
    before = offsets[:]
    monkeypatch.setattr(sys, "byteorder", "big")
    assert directory_payload(offsets, 80_000) == written and offsets == before
