"""Forged records: whoever computed the checksums anew may have written anything into a journal.

One number of one record, or of one data log's header, becomes another, often the least or the greatest there is, and
all checksums are made right. Whoever reads such a directory ends with an answer or with an error of the library: no
other exception, no walk without an end. A failure names its seed.
"""

from __future__ import annotations

import json
import struct
from collections import defaultdict
from collections.abc import Callable, Iterator
from random import Random

import pytest
from busy_store import busy_store, contents, opened, records
from crashing import FIRST_SEED, same, without_logs
from inside import inside
from simulated_bay import SimulatedBay
from simulated_disk import SimulatedDisk
from simulated_metadata import SimulatedMetadataStore

from forebay import Forebay, Message
from forebay.dispatch.explain.disk import explain_data_log, explain_whole
from forebay.store.errors import ForebayError
from forebay.store.format.record import (
    ENTRY,
    HEADER_BYTES,
    KIND_NAMES,
    MESSAGE,
    SLICE_BYTES,
    RecordDamaged,
    crc32,
    decode_header,
    decode_slice,
)
from forebay.store.inspect.dump import dump
from forebay.store.inspect.read_only import open_read_only
from forebay.store.journal.data_log import DATA_LOG_HEADER_BYTES
from forebay.store.recovery.verify import examine_all, judge

SEEDS = 100
SOAK_SEEDS = 5_000
EDGES = (0, 1, 9, 15, 255, 512, 2**15, 2**16 - 1, 2**24, 2**31, 2**32 - 1, 2**48 - 1, 2**62, 2**63, 2**64 - 1)


@pytest.fixture(autouse=True)
def _without_logs() -> Iterator[None]:
    with without_logs():
        yield


@pytest.fixture(scope="module")
def store() -> SimulatedBay:
    """With what interplay leaves, and returns, times, groups, a deletion and an acknowledged middle besides."""
    store = busy_store(reopens=True)
    store.open_again()
    bay = store.bay
    bay.queue("timed").send_many(Message(b"later", delay=5.0 + n, expires_in=60.0) for n in range(5))
    bay.queue("grouped").send(b"first", group="g")
    with bay.queue("again").subscribe() as consumer:
        bay.queue("again").send_many(Message(b"%d" % n) for n in range(9))
        consumer.nack(consumer.take(3))
    bay.queue("gone").send(b"with it")
    bay.queue("gone").delete()
    bay.queue("audit").move(bay.queue("moved"), limit=3)
    bay.close()
    return store


def edit(random: Random, data: bytearray, begin: int, end: int) -> None:
    """One number between begin and end becomes another."""
    size = random.choice([size for size in (1, 2, 4, 8) if begin + size <= end])
    at = random.randint(begin, end - size)
    before = int.from_bytes(data[at : at + size], "little")
    after = random.choice((random.choice(EDGES), before + 1, before - 1, before ^ 1 << random.randrange(8 * size)))
    data[at : at + size] = (after % (1 << 8 * size)).to_bytes(size, "little")


def forge(random: Random, disk: SimulatedDisk) -> str:
    """Returns what was changed. Kinds of records are equally likely, however many there are of each."""
    by_kind: dict[int, list[tuple[str, int, int]]] = defaultdict(list)
    for found in records(disk):
        by_kind[found[2]].append(found)
    name, offset, kind = random.choice(by_kind[random.choice(list(by_kind))])
    file = disk.open(name)
    if not kind:
        data = bytearray(file.read(0, DATA_LOG_HEADER_BYTES))
        edit(random, data, 8, 56)
        data[56:60] = crc32(bytes(data[:56])).to_bytes(4, "little")
    else:
        data = bytearray(file.read(offset, decode_header(file.read(offset, HEADER_BYTES)).length))
        is_in_header = len(data) == HEADER_BYTES or random.random() < 0.25
        edit(random, data, *((4, HEADER_BYTES) if is_in_header else (HEADER_BYTES, len(data))))
        if random.random() < 0.1:
            data[8] = random.choice(list(KIND_NAMES))
        make_right(data, int.from_bytes(file.read(12, 4), "little"))
    file.seek(offset)
    file.append(bytes(data))
    return f"{KIND_NAMES.get(kind, 'header')} at {offset} of {name}"


def make_right(data: bytearray, salt: int) -> None:
    """Its checksums, as far as there are such."""
    try:
        header = decode_header(bytes(data))
        if header.kind == MESSAGE:
            at = header.head_bytes
            for n, length in enumerate(decode_slice(header, bytes(data)).lengths):
                struct.pack_into("<I", data, SLICE_BYTES + ENTRY.size * n, crc32(bytes(data[at : at + length])))
                at += length
        head_bytes = header.head_bytes
    except (RecordDamaged, struct.error):
        head_bytes = len(data)
    data[:4] = crc32(bytes(data[4:head_bytes]), salt).to_bytes(4, "little")


def explain_all(disk: SimulatedDisk) -> None:
    seen = open_read_only(disk, 0)
    explain_whole(seen.sizes, seen.retention_reasons.all(), 0)
    for data_log, size in seen.sizes.items():
        explain_data_log(data_log, size, seen.retention_reasons.of(data_log), 0)


def use(bay: Forebay) -> None:
    """What a host does, and the background."""
    contents(bay)
    for name in bay.destinations():
        queue = bay.queue(name)
        list(queue.browse())
        list(queue.browse("n = 1"))
        queue.find("nothing")
        queue.move(bay.queue("aside"), limit=1)
        queue.send(b"more")
        with queue.subscribe() as consumer:
            consumer.ack(consumer.take(5))
    for transaction in bay.prepared():
        transaction.rollback()
    bay.explain()
    bay.checkpoint()
    bay.cleanup()
    inside(bay).audit()
    bay.close()


def examine(seed: int, store: SimulatedBay) -> None:
    random = Random(seed)
    disk = store.disk.crash_process()
    what = forge(random, disk)
    metadata = SimulatedMetadataStore() if random.random() < 0.6 else same(store.metadata)
    mode = random.choice(("refuse", "report"))
    readers: tuple[Callable[[], object], ...] = (
        lambda: judge(list(examine_all(disk))),
        lambda: [json.dumps(row) for row in dump(disk, with_headers=True)],
        lambda: explain_all(disk),
        lambda: use(opened(disk.crash_process(), metadata, on_missing_data_log=mode)),
    )
    for reader in readers:
        try:
            reader()
        except ForebayError:
            continue
        except Exception as error:
            raise AssertionError(f"seed {seed}, {mode}, {what}: {error!r}") from error


def test_whatever_is_forged_has_an_answer_or_an_error_of_the_library(store: SimulatedBay) -> None:
    for seed in range(FIRST_SEED, FIRST_SEED + SEEDS):
        examine(seed, store)


@pytest.mark.soak
def test_soak_of_forged_records(store: SimulatedBay) -> None:
    """FOREBAY_SEED draws others than the last time."""
    for seed in range(FIRST_SEED + SEEDS, FIRST_SEED + SEEDS + SOAK_SEEDS):
        examine(seed, store)
