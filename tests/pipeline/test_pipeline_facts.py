"""Facts by columns are the facts row by row, whatever a journal looks like."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest
from journals import data_logs
from pipeline_stores import damaged, random_stores, rows_of_batches

from forebay.store.disk.disk import Disk
from forebay.store.disk.layout import data_log_name
from forebay.store.format.record import RecordDamaged, crc32
from forebay.store.inspect.facts import Fact, ScanOptions, UnreadableRange, facts_of
from forebay.store.journal.data_log import DATA_LOG_HEADER_BYTES, UnknownVersion, decode_data_log_header
from forebay.store.journal.scan import open_data_logs
from forebay.store.recovery.verify import examine

pytest.importorskip("pyarrow")
np = pytest.importorskip("numpy")

from forebay.pipeline.kernels.batches import Request, batches  # noqa: E402
from forebay.pipeline.kernels.checking import examine_by_columns, from_text, to_text  # noqa: E402
from forebay.pipeline.kernels.checksums import checksums  # noqa: E402
from forebay.pipeline.kernels.fleet import Part  # noqa: E402
from forebay.pipeline.kernels.schema import columns  # noqa: E402

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def row_by_row(disk: Disk, data_log: int, wanted: ScanOptions) -> list[dict[str, Any]] | None:
    """The store's own rows of one data log. None: it has no header."""
    file = disk.open_for_reading(data_log_name(data_log))
    try:
        header = decode_data_log_header(file.read(0, DATA_LOG_HEADER_BYTES))
    except (RecordDamaged, UnknownVersion):
        return None
    if header.data_log != data_log:
        return None  # a power cut left the bytes of another one
    return [as_row(fact, data_log) for fact in facts_of(file, header, wanted, is_newest=False)]


def as_row(fact: Fact | UnreadableRange, data_log: int) -> dict[str, Any]:
    problem = fact.problem if isinstance(fact, UnreadableRange) else None
    if isinstance(fact, UnreadableRange):
        fact = Fact(fact.offset, fact.length, "damaged")
    row = fact._asdict() | {"broker": "localhost", "data_log": data_log, "problem": problem}
    return row


def by_columns(disk: Disk, data_log: int, wanted: ScanOptions) -> list[dict[str, Any]]:
    asked = columns(bodies=wanted.bodies, problems=True)
    request = Request("localhost", asked, wanted, reports=True)
    found = rows_of_batches(batches(disk, request, Part(data_log, is_newest=False)))
    for row in found:
        for name in ("timestamp", "expires_at"):
            if row[name] is not None:
                row[name] = round((row[name] - EPOCH).total_seconds() * 1000)
        row.setdefault("headers", None)
        row.setdefault("body", None)
    return found


def same_rows(disk: Disk, data_log: int, wanted: ScanOptions) -> list[dict[str, Any]]:
    rows, expected = by_columns(disk, data_log, wanted), row_by_row(disk, data_log, wanted)
    if expected is None:
        assert [row["kind"] for row in rows] == ["damaged"]
    else:
        assert rows == expected
    return rows


def each_data_log(seeds: range) -> Iterator[tuple[Disk, int]]:
    for disk in random_stores(seeds):
        for data_log in data_logs(disk):
            yield disk, data_log


@pytest.mark.parametrize("wanted", [ScanOptions(), ScanOptions(bodies=True, relocated=True)], ids=["heads", "bodies"])
def test_columns_say_what_the_rows_say(wanted: ScanOptions) -> None:
    kinds: set[str] = set()
    for disk, data_log in each_data_log(range(1, 13)):
        rows = same_rows(disk, data_log, wanted)
        kinds.update(row["kind"] for row in rows)
    assert {"message", "ack", "state", "directory", "commit", "subscribe"} <= kinds
    assert ("relocate" in kinds) == wanted.relocated


@pytest.mark.parametrize("wanted", [ScanOptions(), ScanOptions(bodies=True)], ids=["heads", "bodies"])
def test_what_is_damaged_is_named_and_the_rest_is_there(wanted: ScanOptions) -> None:
    random = Random(7)
    named = 0
    for disk in random_stores(range(20, 28)):
        for _ in range(4):
            hurt = damaged(disk, random)
            for data_log in data_logs(hurt):
                rows = same_rows(hurt, data_log, wanted)
                named += sum(row["kind"] == "damaged" for row in rows)
    assert named > 4


def test_examining_by_columns_finds_what_verify_finds() -> None:
    random = Random(11)
    damages = sealed = 0
    for disk in random_stores(range(30, 40)):
        for image in (disk, damaged(disk, random), damaged(disk, random)):
            for data_log, file in open_data_logs(image):
                expected = examine(data_log, file)
                found = examine_by_columns(data_log, file)
                assert found == expected
                assert from_text(to_text(found)) == expected
                damages += len(expected.damages) + len(expected.findings)
                sealed += expected.is_sealed
    assert damages > 10 and sealed > 30


def test_checksums_taken_together_are_those_taken_one_by_one() -> None:
    random = Random(13)
    for length in (48, 64):
        stretches = [bytearray(random.randbytes(length)) for _ in range(50)]
        stretches += [bytearray(stretches[0]) for _ in range(200)]
        for stretch in stretches[50:]:
            stretch[random.randrange(length)] ^= 1 << random.randrange(8)
        table = np.frombuffer(b"".join(stretches), np.uint8).reshape(-1, length)
        for seed in (0, random.getrandbits(32)):
            expected = [crc32(bytes(stretch[4:]), seed) for stretch in stretches]
            for begin, end in ((0, 250), (0, 1), (50, 60), (50, 82), (50, 83)):  # of many kinds, and of few
                assert checksums(table[begin:end], 4, seed).tolist() == expected[begin:end]
