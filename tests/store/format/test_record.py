"""A record: its bytes are as documented, it verifies only where it was written, and no bytes can make it misbehave."""

from __future__ import annotations

import struct
import zlib
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from forebay.store.format import record
from forebay.store.format.contents import Contents
from forebay.store.format.record import (
    ACK,
    ATTEST,
    COUNT_MASK,
    ENTRY_BYTES,
    HEADER_BYTES,
    IDENTIFIED,
    IMPORTED,
    KIND_NAMES,
    MAGIC,
    MAGIC_BYTES,
    MAGIC_OFFSET,
    MESSAGE,
    RECORD_BYTES_MAX,
    RELOCATED,
    SEQUENCE_MAX,
    SLICE_BYTES,
    SLICE_MESSAGES_MAX,
    TIMED,
    TRANSACTIONAL,
    AckRange,
    AckRecord,
    Header,
    MessageRecord,
    RecordDamaged,
    ack_payload,
    decode_ack,
    decode_header,
    decode_slice,
    encode,
    encode_ack,
    encode_one,
    encode_slice,
    stamp,
    verify_head,
)

SALT = 0xDEADBEEF
SEQUENCE = 0x123456789ABC
WORD = SEQUENCE << 16 | MAGIC
EPOCH = 0x0A0B0C0D
DURABLE = 0x1122334455667788
STAMP = stamp(EPOCH, DURABLE)
CONTENTS = [(b"", b"first"), (b"properties", b"second"), (b"only", b""), (b"", b"")]

Content = tuple[bytes, bytes]


def one(properties: bytes = b"", body: bytes = b"body") -> bytes:
    return encode_one(
        SALT, WORD, STAMP, 7, 5, 1 << 40, 1_700_000_000_000, properties, body, len(properties) + len(body)
    )


def several(contents: list[Content] = CONTENTS) -> bytes:
    columns = Contents.of(contents)
    return encode_slice(SALT, WORD, EPOCH, DURABLE, 7, 5, 1 << 40, 1_700_000_000_000, columns, columns.lengths())


def ack(first: int = 9, count: int = 1) -> bytes:
    return encode_ack(SALT, WORD, STAMP, 7, 5, first, count)


def taken_apart(data: bytes) -> tuple[Header, MessageRecord | AckRecord | None]:
    """As the journal reads it: header, checksum, payload."""
    header = decode_header(data)
    verify_head(header, data[: header.head_bytes], SALT)
    if header.kind == MESSAGE:
        return header, decode_slice(header, data)
    return header, decode_ack(header, data) if header.kind == ACK else None


def contents_of(data: bytes) -> list[Content]:
    header, part = taken_apart(data)
    assert isinstance(part, MessageRecord)
    contents = []
    begin = header.head_bytes
    for at in range(0, len(part.table), 3):
        crc, length, properties_bytes = part.table[at : at + 3]
        content = data[begin : begin + length]
        assert zlib.crc32(content) == crc
        contents.append((content[:properties_bytes], content[properties_bytes:]))
        begin += length
    assert begin == len(data)
    return contents


# The layout that is documented, spelled out a second time.


def documented_header(data: bytes) -> bytes:
    """The header's 32 bytes as the module's text has them, with the crc computed by zlib."""
    kind, flags, count = data[8], data[9], int.from_bytes(data[10:12], "little")
    covered = 52 + 12 * count if kind == MESSAGE else len(data)
    return b"".join(
        (
            zlib.crc32(data[4:covered], SALT).to_bytes(4, "little"),
            len(data).to_bytes(4, "little"),
            bytes((kind, flags)),
            count.to_bytes(2, "little"),
            bytes.fromhex("f0ba"),
            SEQUENCE.to_bytes(6, "little"),
            EPOCH.to_bytes(4, "little"),
            DURABLE.to_bytes(8, "little"),
        )
    )


@pytest.mark.parametrize("data", [one(), one(b"p"), several(), ack(), encode(SALT, WORD, EPOCH, DURABLE, 6, 0, 0, b"")])
def test_header_is_laid_out_as_documented(data: bytes) -> None:
    assert len(documented_header(data)) == HEADER_BYTES == 32
    assert data[:HEADER_BYTES] == documented_header(data)
    assert data[MAGIC_OFFSET : MAGIC_OFFSET + 2] == MAGIC_BYTES == b"\xf0\xba"


def test_slice_is_laid_out_as_documented() -> None:
    table = b"".join(
        struct.pack("<III", zlib.crc32(properties + body), len(properties + body), len(properties))
        for properties, body in CONTENTS
    )
    place = (5).to_bytes(4, "little") + (1 << 40).to_bytes(8, "little") + (1_700_000_000_000).to_bytes(8, "little")
    payload = place + table + b"".join(properties + body for properties, body in CONTENTS)
    assert several()[HEADER_BYTES:] == payload
    assert (several()[8:10], several()[10:12]) == (b"\x01\x07", b"\x04\x00")


def test_ack_is_laid_out_as_documented() -> None:
    data = ack(first=1 << 40, count=1_000_000)
    assert data[HEADER_BYTES:] == struct.pack("<IQI", 5, 1 << 40, 1_000_000)
    assert (data[8:10], data[10:12]) == (b"\x02\x07", b"\x01\x00")


def test_single_message_has_64_bytes_of_overhead_and_an_ack_of_any_run_48() -> None:
    assert len(one(b"", b"x" * 1000)) == 1064
    assert len(one(b"p" * 10, b"x" * 990)) == 1064
    assert len(ack()) == len(ack(0, 2**32 - 1)) == 48


def test_further_messages_of_a_slice_have_12_bytes_of_overhead() -> None:
    assert len(several([(b"", b"x" * 100)] * 256)) == SLICE_BYTES + 256 * (ENTRY_BYTES + 100) == 52 + 256 * 112


def test_numbers_of_kinds_and_limits_of_records_never_change() -> None:
    assert KIND_NAMES == {
        1: "message",
        2: "ack",
        3: "return",
        4: "destination",
        5: "state",
        6: "attest",
        7: "drop",
        8: "directory",
        13: "subscribe",
        14: "unsubscribe",
        12: "survivors",
        9: "commit",
        10: "prepare",
        11: "rollback",
        15: "lost",
        16: "delete",
        17: "import",
        20: "needs",
        21: "properties",
        22: "seek",
    }
    assert (SLICE_MESSAGES_MAX, RECORD_BYTES_MAX, SEQUENCE_MAX) == (256, (1 << 30) + (1 << 20), 2**48 - 1)


# What goes in comes out.


def test_header_comes_back_field_by_field() -> None:
    header, _ = taken_apart(one())
    assert header[1:] == (68, MESSAGE, 7, 1, SEQUENCE, EPOCH, DURABLE)
    assert (header.priority, header.head_bytes) == (7, 64)


def test_single_message_is_a_slice_of_one() -> None:
    assert one(b"p", b"b") == several([(b"p", b"b")])
    _, part = taken_apart(one(b"p", b"bb"))
    assert isinstance(part, MessageRecord)
    assert part[:4] == (5, 7, 1 << 40, 1_700_000_000_000) and part.lengths == (3,)


@given(
    st.lists(st.tuples(st.binary(max_size=20), st.binary(max_size=60)), min_size=1, max_size=256),
    st.integers(0, SEQUENCE_MAX),
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**64 - 1),
    st.integers(0, 9),
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**64 - 1),
)
def test_any_slice_comes_back(
    contents: list[Content], sequence: int, epoch: int, durable: int, priority: int, destination: int, first: int
) -> None:
    columns = Contents.of(contents)
    lengths = columns.lengths()
    data = encode_slice(
        SALT, sequence << 16 | MAGIC, epoch, durable, priority, destination, first, first, columns, lengths
    )
    header, part = taken_apart(data)
    assert isinstance(part, MessageRecord)
    assert header[1:] == (len(data), MESSAGE, priority, len(contents), sequence, epoch, durable)
    assert part[:4] == (destination, priority, first, first)
    assert lengths == list(part.lengths) == [len(properties) + len(body) for properties, body in contents]
    assert contents_of(data) == contents


@given(st.lists(st.builds(AckRange, st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1)), max_size=50))
def test_any_ranges_come_back(ranges: list[AckRange]) -> None:
    data = encode(SALT, WORD, EPOCH, DURABLE, ACK, 4, len(ranges), ack_payload(77, ranges))
    assert taken_apart(data)[1] == (77, 4, ranges)


def test_ack_of_a_run_is_an_ack_of_one_range() -> None:
    assert ack(9, 4) == encode(SALT, WORD, EPOCH, DURABLE, ACK, 7, 1, ack_payload(5, [AckRange(9, 4)]))


def test_decoding_works_from_the_middle_of_a_buffer() -> None:
    buffer = b"noise" + several()
    header = decode_header(buffer, 5)
    assert header == decode_header(memoryview(several()))
    assert decode_slice(header, buffer, 5) == taken_apart(several())[1]


# What is not a record.


@pytest.mark.parametrize("data", [one(b"pp", b"body"), several(), ack()], ids=["one", "several", "ack"])
def test_every_flipped_bit_is_seen(data: bytes) -> None:
    """In the head by its checksum, in a message by the checksum of that message."""
    head_bytes = decode_header(data).head_bytes
    for at in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[at // 8] ^= 1 << at % 8
        if at // 8 < head_bytes:
            with pytest.raises(RecordDamaged):
                taken_apart(bytes(damaged))
        else:
            with pytest.raises(AssertionError):
                contents_of(bytes(damaged))


def test_record_verifies_under_its_own_salt_only() -> None:
    header = decode_header(one())
    for bit in range(32):
        with pytest.raises(RecordDamaged):
            verify_head(header, one(), SALT ^ 1 << bit)


def test_zeros_are_no_record() -> None:
    with pytest.raises(RecordDamaged):
        decode_header(bytes(64))


@pytest.mark.parametrize("length", [0, 31, 63, RECORD_BYTES_MAX + 1, 2**32 - 1])
def test_impossible_length_is_refused_before_anything_is_allocated(length: int) -> None:
    data = one()[:4] + length.to_bytes(4, "little") + one()[8:]
    with pytest.raises(RecordDamaged, match="cannot be"):
        decode_header(data)


@pytest.mark.parametrize("count", [0, 257, 32_768, 65_535])
def test_slice_of_no_or_too_many_messages_is_refused_though_its_checksum_is_right(count: int) -> None:
    payload = bytes(SLICE_BYTES - HEADER_BYTES + ENTRY_BYTES * (count & COUNT_MASK))
    data = encode(SALT, WORD, EPOCH, DURABLE, MESSAGE, 0, count, payload)
    header = decode_header(data)
    verify_head(header, data, SALT)
    with pytest.raises(RecordDamaged):
        decode_slice(header, data)


def test_table_and_ranges_must_add_up_to_the_length() -> None:
    longer = bytearray(one() + b"x")
    longer[4:8] = len(longer).to_bytes(4, "little")
    longer[:4] = zlib.crc32(longer[4:64], SALT).to_bytes(4, "little")
    with pytest.raises(RecordDamaged, match="add up"):
        taken_apart(bytes(longer))
    for payload in (ack()[HEADER_BYTES:-1], ack()[HEADER_BYTES:] + b"x"):
        with pytest.raises(RecordDamaged, match="add up"):
            taken_apart(encode(SALT, WORD, EPOCH, DURABLE, ACK, 0, 1, payload))


def all_decoders(data: bytes) -> None:
    """Nothing but RecordDamaged may come out, and nothing that bytes claim may be allocated."""
    try:
        header = decode_header(data)
    except RecordDamaged:
        return
    assert HEADER_BYTES <= header.head_bytes <= header.length <= RECORD_BYTES_MAX
    for decoder in (lambda: verify_head(header, data, SALT), lambda: decode_slice(header, data)):
        try:
            decoder()
        except RecordDamaged:
            continue
    if header.kind != MESSAGE:
        try:
            decode_ack(header, data)
        except RecordDamaged:
            return


@given(st.binary(max_size=200))
def test_decoders_meet_arbitrary_bytes(data: bytes) -> None:
    all_decoders(data)
    all_decoders(data[:MAGIC_OFFSET] + MAGIC_BYTES + data[MAGIC_OFFSET + 2 :])


@given(st.sampled_from([one(), several(), ack()]), st.binary(min_size=1, max_size=12), st.integers(0, 60))
@example(ack(), b"\xff\xff\xff\x00\x01", 4)
def test_decoders_meet_mutated_records(data: bytes, patch: bytes, at: int) -> None:
    mutated = data[:at] + patch + data[at + len(patch) :]
    all_decoders(mutated)
    all_decoders(mutated[:at])


def test_the_fast_and_the_plain_checksum_are_one_polynomial() -> None:
    data = Random(1).randbytes(1000)
    assert record.crc32(data, SALT) == zlib.crc32(data, SALT)


@pytest.mark.parametrize("kind", [MESSAGE, ACK, ATTEST])
def test_priority_that_cannot_be_is_no_record(kind: int) -> None:
    decode_header(encode(SALT, WORD, EPOCH, DURABLE, kind, 9, 0, bytes(20)))
    with pytest.raises(RecordDamaged, match="a priority of 10"):
        decode_header(encode(SALT, WORD, EPOCH, DURABLE, kind, 10, 0, bytes(20)))


def test_attest_record_is_a_header_alone() -> None:
    assert len(encode(SALT, WORD, EPOCH, DURABLE, ATTEST, 0, 0, b"")) == 32


@pytest.mark.parametrize("count", [1, 2, 256])
def test_ids_that_count_once_lie_in_the_highest_bit_of_a_slices_count(count: int) -> None:
    contents = Contents.of((b"", b"%d" % n) for n in range(count))
    flags = IDENTIFIED | TIMED | 7
    data = encode_slice(SALT, WORD, EPOCH, DURABLE, flags, 5, 0, 0, contents, contents.lengths())
    if count == 1:
        assert data == encode_one(SALT, WORD, STAMP, IDENTIFIED | TIMED | 7, 5, 0, 0, b"", b"0", 1)
    assert int.from_bytes(data[9:10], "little") == TIMED | 7
    assert int.from_bytes(data[10:12], "little") == 0x8000 | count
    header = decode_header(data)
    verify_head(header, data[: header.head_bytes], SALT)
    assert header.is_identified
    assert (header.flags & TIMED, header.priority, header.entries) == (TIMED, 7, count)


@pytest.mark.parametrize("flag", [RELOCATED, TRANSACTIONAL, IMPORTED])
def test_ids_of_copies_imports_and_transactions_never_count_once(flag: int) -> None:
    data = encode_slice(SALT, WORD, EPOCH, DURABLE, IDENTIFIED | flag, 5, 0, 0, Contents([b""], [b"x"]), [1])
    with pytest.raises(RecordDamaged, match="count once"):
        decode_header(data)
