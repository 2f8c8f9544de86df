"""Damage to the stored bytes is noticed: never a wrong message, a lost one or one that comes back.

Each test damages a copy of one store that was closed cleanly and opens it.
The store holds every kind of record, so a flipped bit meets each field once.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest
from inside import inside, open_forebay
from simulated_bay import SimulatedBay
from simulated_disk import SimulatedDisk
from simulated_inode import SECTOR_BYTES
from simulated_metadata import SimulatedMetadataStore

import forebay
from forebay import Forebay, JournalCorrupt, Message, Settings, StoreFailed
from forebay.store.disk.layout import JOURNAL, STATE_DIRECTORY, data_log_id, data_log_name
from forebay.store.format.record import DIRECTORY, MESSAGE, Header, crc32, decode_slice
from forebay.store.journal.data_log import DATA_LOG_HEADER_BYTES, FORMAT_VERSION, RecordWalk, decode_data_log_header
from forebay.store.message import Headers
from forebay.testing import ManualClock

SETTINGS = Settings(background=False, memory_limit="4MiB", max_file_length="64KiB", sync="never")
MARK = f"{STATE_DIRECTORY}/mark"

Place = tuple[str, int, int]
"""(queue, priority, sequence) of one message."""
Contents = dict[Place, tuple[str, bytes, Headers, int]]
"""Id, body, headers and timestamp of each message that can be had."""
Damage = Callable[[SimulatedDisk], object]


@dataclass(frozen=True)
class Stored:
    """A record, or the header of a data log (kind 0), and where its messages lie."""

    data_log: int
    begin: int
    end: int
    kind: int
    head_bytes: int
    messages: dict[Place, range]

    def spoilt(self, damaged: range) -> set[Place]:
        """Its messages that can't be read when these bytes of the data log are wrong."""
        if _meet(range(self.begin, self.begin + self.head_bytes), damaged):
            return set(self.messages)
        return {place for place, content in self.messages.items() if _meet(content, damaged)}


def _meet(one: range, other: range) -> bool:
    return max(one.start, other.start) < min(one.stop, other.stop)


@dataclass(frozen=True)
class ClosedStore:
    """A store that was closed cleanly, and all that is pending in it. Its own disk is never changed."""

    disk: SimulatedDisk
    metadata: SimulatedMetadataStore
    contents: Contents
    records: list[Stored]

    @property
    def data_logs(self) -> list[int]:
        return sorted({record.data_log for record in self.records})

    def copy(self, *, mark: bool = True) -> SimulatedDisk:
        disk = self.disk.crash_process()
        if not mark:
            disk.remove(MARK)
        return disk

    def index(self) -> SimulatedMetadataStore:
        return SimulatedMetadataStore(self.metadata.history[-1])

    def at(self, data_log: int, offset: int) -> Stored:
        return next(
            stored for stored in self.records if stored.data_log == data_log and stored.begin <= offset < stored.end
        )

    def spoilt(self, data_log: int, damaged: range) -> set[Place]:
        """Pending messages that can't be read when these bytes are wrong."""
        records = [stored for stored in self.records if stored.data_log == data_log]
        return set().union(*(stored.spoilt(damaged) for stored in records)) & self.contents.keys()

    def flips(self, data_logs: list[int]) -> Iterator[tuple[int, int, int]]:
        """(data log, offset, bit) of each bit that these data logs hold."""
        for data_log in data_logs:
            for offset in range(_size(self.disk, data_log)):
                yield from ((data_log, offset, bit) for bit in range(8))


def _size(disk: SimulatedDisk, data_log: int) -> int:
    return len(disk.image()[data_log_name(data_log)])


def opened(disk: SimulatedDisk, metadata: SimulatedMetadataStore | None = None) -> Forebay:
    """Without metadata the index is lost."""
    found = metadata if metadata is not None else SimulatedMetadataStore()
    return open_forebay(disk, found, SETTINGS, ManualClock(2))


def contents_of(bay: Forebay, *, unreadable: int = 0) -> Contents:
    """All that can be had. What is pending and can't be read is counted, and stays."""
    contents: Contents = {}
    for name in bay.destinations():
        consumer = bay.queue(name).subscribe(prefetch=0)
        while deliveries := consumer.take(1000):
            for found in deliveries:
                place = (name, found.priority, found.sequence)
                assert place not in contents
                contents[place] = (found.id, found.body, found.headers, found.timestamp)
    statistics = bay.statistics().destinations.values()
    assert sum(numbers.unreadable for numbers in statistics) == unreadable
    assert sum(numbers.depth for numbers in statistics) == len(contents) + unreadable
    return contents


def _read_records(disk: SimulatedDisk, names: dict[int, str]) -> Iterator[Stored]:
    for data_log in sorted(filter(None, map(data_log_id, disk.list(JOURNAL)))):
        file = disk.open_for_reading(data_log_name(data_log))
        header = decode_data_log_header(file.read(0, DATA_LOG_HEADER_BYTES))
        yield Stored(data_log, 0, DATA_LOG_HEADER_BYTES, 0, DATA_LOG_HEADER_BYTES, {})
        for offset, record, head in RecordWalk(file, header, DATA_LOG_HEADER_BYTES):
            messages = _messages(offset, record, head, names) if record.kind == MESSAGE else {}
            yield Stored(data_log, offset, offset + record.length, record.kind, record.head_bytes, messages)


def _messages(offset: int, record: Header, head: bytes, names: dict[int, str]) -> dict[Place, range]:
    part = decode_slice(record, head)
    messages = {}
    begin = offset + record.head_bytes
    for sequence, length in enumerate(part.lengths, part.first_sequence):
        messages[names[part.destination_number], part.priority, sequence] = range(begin, begin + length)
        begin += length
    return messages


@pytest.fixture(scope="module")
def store() -> ClosedStore:
    """Three data logs of about 2 KiB together; one before them was emptied and deleted."""
    bay = SimulatedBay(max_file_length="64KiB")
    orders = bay.queue("orders")
    orders.send(b"long gone")
    with orders.subscribe() as consumer:
        consumer.take()[0].ack()
    bay.reopen()
    orders, prices = bay.queue("orders"), bay.queue("prices")
    assert bay.bay.cleanup().deleted == (1,)
    bay.clock.advance(1.0)
    orders.send(b"acknowledged later")
    orders.send(b"kept", headers={"n": 1, "region": "eu"}, message_id="mine")
    prices.send_many(Message(b"price %d" % n, {"n": n}) for n in range(3))
    orders.send(b"urgent", priority=9)
    with prices.subscribe() as consumer:
        consumer.take()[0].ack()
    bay.bay.checkpoint()
    assert bay.bay.step() == 1, "an attest record"
    bay.reopen()
    orders, audit = bay.queue("orders"), bay.queue("audit")
    audit.send(b"")
    orders.send_many(Message(b"many %d" % n) for n in range(2))
    bay.reopen()
    with bay.queue("orders").subscribe() as consumer:
        assert consumer.take()[0].body == b"urgent"
        consumer.take()[0].ack()
    bay.queue("audit").send(b"last", headers={"x": None})
    bay.bay.close()
    names = {destination.number: destination.name for destination in bay.store.destination_table.values()}
    metadata = SimulatedMetadataStore(bay.metadata.history[-1])
    contents = contents_of(opened(bay.disk.crash_process(), SimulatedMetadataStore(metadata.history[-1])))
    bodies = [body for _, body, _, _ in contents.values()]
    assert bodies == [b"", b"last", b"urgent", b"kept", b"many 0", b"many 1", b"price 1", b"price 2"]
    return ClosedStore(bay.disk, metadata, contents, list(_read_records(bay.disk, names)))


def check_all_but(bay: Forebay, store: ClosedStore, data_log: int, damaged: range) -> None:
    """What these bytes belong to is counted as unreadable, all else is there."""
    spoilt = store.spoilt(data_log, damaged)
    found = contents_of(bay, unreadable=len(spoilt))
    assert found == {at: message for at, message in store.contents.items() if at not in spoilt}


def refused(disk: SimulatedDisk, metadata: SimulatedMetadataStore | None = None) -> tuple[int, int]:
    """Opening must be refused and must change nothing; returns the place that it names."""
    before = disk.image()
    with pytest.raises(JournalCorrupt) as raised:
        opened(disk, metadata)
    assert disk.image() == before
    assert f"data-{raised.value.data_log}.log at offset {raised.value.offset}:" in str(raised.value)
    return raised.value.data_log, raised.value.offset


# ---------------------------------------------------------------------- flipped bits


def test_the_store_that_is_damaged_here_has_every_kind_of_record(store: ClosedStore) -> None:
    assert {record.kind for record in store.records} == {0, 1, 2, 3, 4, 5, 6, 7, 8}
    assert store.data_logs == [2, 3, 4]


@pytest.mark.slow
def test_each_flipped_bit_is_refused_with_its_place_where_the_whole_index_directory_is_lost(
    store: ClosedStore,
) -> None:
    """But for the newest data log's own header and its last record: nothing else tells that those were durable."""
    newest = store.data_logs[-1]
    shorter = store.copy(mark=False)
    shorter.remove(data_log_name(newest))
    before_newest = contents_of(opened(shorter))
    for data_log, offset, bit in store.flips(store.data_logs):
        stored = store.at(data_log, offset)
        disk = store.copy(mark=False)
        disk.flip_bit(data_log_name(data_log), offset, bit)
        try:
            bay = opened(disk)
        except JournalCorrupt as corrupt:
            assert (corrupt.data_log, corrupt.offset) == (data_log, stored.begin)
            continue
        recovery = bay.recovery
        assert recovery.index_rebuilt and not recovery.clean
        if stored.kind == DIRECTORY:
            assert data_log == newest
            assert (recovery.truncated_bytes, recovery.quarantined) == (stored.end - stored.begin, 0)
            assert contents_of(bay) == store.contents
        else:
            assert (data_log, stored.kind) == (newest, 0), f"{data_log}:{offset} bit {bit} was taken for a torn tail"
            assert (recovery.truncated_bytes, recovery.quarantined) == (_size(store.disk, newest), 1)
            assert contents_of(bay) == before_newest


def test_each_damaged_byte_is_refused_or_costs_its_message_where_the_mark_is_left(store: ClosedStore) -> None:
    """The mark tells that all was durable, so a body that does not verify is one message that can't be read."""
    random = Random(3)
    for stored in store.records:
        for offset in range(stored.begin, stored.end):
            disk = store.copy()
            disk.flip_bit(data_log_name(stored.data_log), offset, random.randrange(8))
            if offset < stored.begin + stored.head_bytes:
                assert refused(disk) == (stored.data_log, stored.begin)
                continue
            bay = opened(disk)
            assert bay.recovery.index_rebuilt and bay.recovery.truncated_bytes == 0
            check_all_but(bay, store, stored.data_log, range(offset, offset + 1))


def test_each_flipped_bit_of_a_header_is_refused_with_the_index_too(store: ClosedStore) -> None:
    for data_log in store.data_logs:
        for offset in range(DATA_LOG_HEADER_BYTES):
            disk = store.copy()
            disk.flip_bit(data_log_name(data_log), offset, offset % 8)
            assert refused(disk, store.index()) == (data_log, 0)


def test_each_flipped_bit_below_an_open_store_spoils_the_messages_it_belongs_to_and_no_other(
    store: ClosedStore,
) -> None:
    disk = store.copy()
    bay = opened(disk, store.index())
    directory = inside(bay).store
    names = {destination.number: destination.name for destination in directory.destination_table.values()}
    lanes = []
    with inside(bay).lock:
        for lane in directory.index.lanes.values():
            runs, at = [], 0
            while run := lane.pending_run(at, 1000):
                runs.append(run)
                at = run[1] + 1
            regions = directory.message_store.plan(lane, runs)
            lanes.append((names[lane.owner_number], lane.priority, regions, directory.message_store.read(regions)[0]))
    assert sum(len(messages) for *_, messages in lanes) == len(store.contents)
    for data_log, offset, bit in store.flips(store.data_logs):
        spoilt = store.spoilt(data_log, range(offset, offset + 1))
        disk.flip_bit(data_log_name(data_log), offset, bit)
        for queue, priority, regions, messages in lanes:
            found, unreadable = directory.message_store.read(regions)
            expected = [message for message in messages if (queue, priority, message[0]) not in spoilt]
            assert found == expected, f"{data_log}:{offset} bit {bit}"
            assert len(unreadable) == len(messages) - len(expected)
            assert all(problem.startswith(f"data-{data_log}.log at ") for _, problem in unreadable)
        disk.flip_bit(data_log_name(data_log), offset, bit)


@pytest.mark.parametrize("place", [0.0, 0.5, 0.999])
def test_damaged_record_behind_a_checkpoint_costs_its_messages_alone_and_they_are_counted(
    store: ClosedStore, place: float
) -> None:
    for stored in store.records[1:]:
        if stored.kind:
            offset = stored.begin + int((stored.end - stored.begin) * place)
            disk = store.copy()
            disk.flip_bit(data_log_name(stored.data_log), offset, offset % 8)
            check_all_but(opened(disk, store.index()), store, stored.data_log, range(offset, offset + 1))


# ---------------------------------------------------------------------- sectors


def _sectors(store: ClosedStore) -> Iterator[tuple[int, range]]:
    for data_log in store.data_logs:
        size = _size(store.disk, data_log)
        for begin in range(0, size, SECTOR_BYTES):
            yield data_log, range(begin, min(begin + SECTOR_BYTES, size))


def _zero(disk: SimulatedDisk, data_log: int, sector: range) -> SimulatedDisk:
    disk.zero(data_log_name(data_log), sector.start, len(sector))
    return disk


def test_zeroed_sector_behind_a_checkpoint_costs_the_messages_in_it(store: ClosedStore) -> None:
    for data_log, sector in _sectors(store):
        disk = _zero(store.copy(), data_log, sector)
        if not sector.start:
            assert refused(disk, store.index()) == (data_log, 0)
            continue
        check_all_but(opened(disk, store.index()), store, data_log, sector)


def test_zeroed_sector_is_refused_with_its_place_where_the_index_is_lost(store: ClosedStore) -> None:
    for data_log, sector in _sectors(store):
        stored = store.at(data_log, sector.start)
        is_body_alone = sector.start >= stored.begin + stored.head_bytes
        disk = _zero(store.copy(), data_log, sector)
        assert refused(disk) == (data_log, stored.end if is_body_alone else stored.begin)


def test_zeroed_end_looks_like_a_kill_where_the_whole_index_directory_is_lost(store: ClosedStore) -> None:
    newest = store.data_logs[-1]
    for data_log, sector in _sectors(store):
        place = store.at(data_log, sector.start).begin
        disk = _zero(store.copy(mark=False), data_log, sector)
        if data_log != newest or sector.stop < _size(store.disk, newest):
            assert refused(disk) == (data_log, place)
            continue
        cut = store.copy(mark=False)
        if place:
            cut.open(data_log_name(newest)).truncate(place)
        else:
            cut.remove(data_log_name(newest))
        bay = opened(disk)
        assert not bay.recovery.clean and bay.recovery.index_rebuilt
        assert contents_of(bay) == contents_of(opened(cut))


# ---------------------------------------------------------------------- whole files


@pytest.mark.parametrize("with_index", [True, False])
def test_missing_data_log_is_named(store: ClosedStore, with_index: bool) -> None:
    for data_log in store.data_logs:
        disk = store.copy()
        disk.remove(data_log_name(data_log))
        assert refused(disk, store.index() if with_index else None) == (data_log, 0)


def test_missing_data_log_is_named_by_the_newest_alone(store: ClosedStore) -> None:
    for data_log in store.data_logs[:-1]:
        disk = store.copy(mark=False)
        disk.remove(data_log_name(data_log))
        assert refused(disk) == (data_log, 0)


def _rewrite(disk: SimulatedDisk, data_log: int, content: bytes) -> None:
    name = data_log_name(data_log)
    if disk.exists(name):
        disk.remove(name)
    disk.open(name, create=True).append(content)


@pytest.mark.parametrize("with_index", [True, False])
def test_swapped_data_logs_are_refused(store: ClosedStore, with_index: bool) -> None:
    for one, other in ((2, 3), (3, 4), (2, 4)):
        disk = store.copy()
        image = disk.image()
        _rewrite(disk, one, image[data_log_name(other)])
        _rewrite(disk, other, image[data_log_name(one)])
        place = refused(disk, store.index() if with_index else None)
        assert place == (one, 0) or (with_index and place[0] == other == 4)  # that ends before a place that was durable


def _foreign(data_log: int) -> bytes:
    """A data log of that id, which another store wrote."""
    other = SimulatedBay(9, max_file_length="64KiB")
    other.queue("orders").send(b"of another store")
    for _ in range(data_log - 1):
        other.reopen()
    other.bay.close()
    return other.disk.image()[data_log_name(data_log)]


@pytest.mark.parametrize("with_index", [True, False])
def test_data_log_of_another_store_in_the_place_of_ours_is_refused(store: ClosedStore, with_index: bool) -> None:
    for data_log in store.data_logs:
        disk = store.copy()
        _rewrite(disk, data_log, _foreign(data_log))
        assert refused(disk, store.index() if with_index else None)[0] == data_log


@pytest.mark.parametrize("with_index", [True, False])
def test_data_log_of_another_store_behind_ours_is_set_aside_and_counted(store: ClosedStore, with_index: bool) -> None:
    disk = store.copy()
    foreign = _foreign(5)
    _rewrite(disk, 5, foreign)
    bay = opened(disk, store.index() if with_index else None)
    assert (bay.recovery.truncated_bytes, bay.recovery.quarantined) == (len(foreign), 1)
    assert not bay.recovery.clean
    assert contents_of(bay) == store.contents
    assert disk.image()["quarantine/data-5.log"] == foreign
    assert data_log_name(6) in disk.image(), "an id is never used twice"


@pytest.mark.parametrize("mark", [True, False])
def test_data_log_of_a_newer_format_is_refused_and_left_as_it_is(store: ClosedStore, mark: bool) -> None:
    for data_log in store.data_logs:
        disk = store.copy(mark=mark)
        content = bytearray(disk.image()[data_log_name(data_log)])
        content[8:10] = (FORMAT_VERSION + 1).to_bytes(2, "little")
        content[56:60] = crc32(bytes(content[:56])).to_bytes(4, "little")
        _rewrite(disk, data_log, bytes(content))
        assert refused(disk, store.index() if mark else None) == (data_log, 0)


def _cuts(store: ClosedStore) -> Iterator[tuple[Stored, int]]:
    for stored in store.records:
        yield stored, stored.begin
        yield stored, (stored.begin + stored.end) // 2


def test_truncated_data_log_is_refused_with_its_place_where_the_index_is_lost(store: ClosedStore) -> None:
    for stored, offset in _cuts(store):
        disk = store.copy()
        disk.open(data_log_name(stored.data_log)).truncate(offset)
        assert refused(disk) == (stored.data_log, stored.begin)


def test_truncated_data_log_behind_a_checkpoint_is_refused_or_its_messages_are_counted(store: ClosedStore) -> None:
    newest = store.data_logs[-1]
    for stored, offset in _cuts(store):
        data_log = stored.data_log
        disk = store.copy()
        disk.open(data_log_name(data_log)).truncate(offset)
        if not stored.kind or data_log == newest:
            assert refused(disk, store.index()) == (data_log, offset if data_log == newest else 0)
            continue
        check_all_but(opened(disk, store.index()), store, data_log, range(offset, _size(store.disk, data_log)))


# ---------------------------------------------------------------------- the index


def test_each_flipped_bit_of_the_mark_costs_a_full_replay_and_nothing_else(store: ClosedStore) -> None:
    for offset in range(len(store.disk.image()[MARK])):
        disk = store.copy()
        disk.flip_bit(MARK, offset, offset % 8)
        bay = opened(disk, store.index())
        assert bay.recovery.index_rebuilt and not bay.recovery.clean
        assert bay.recovery.truncated_bytes == 0
        assert contents_of(bay) == store.contents


def test_index_that_does_not_verify_is_rebuilt(store: ClosedStore) -> None:
    refusing = store.index().crash(Random(1), damaged=True)
    assert not refusing.history[-1].is_readable  # type: ignore[union-attr]
    bay = opened(store.copy(), refusing)
    assert bay.recovery.index_rebuilt and not bay.recovery.clean
    assert contents_of(bay) == store.contents


def test_index_with_a_damaged_block_stops_the_store_until_it_is_opened_again(store: ClosedStore) -> None:
    damaged = store.index().crash(Random(4), damaged=True)
    assert None in damaged.history[-1].blocks.values()  # type: ignore[union-attr]
    disk = store.copy()
    with pytest.raises(StoreFailed, match="damaged"):
        contents_of(opened(disk, damaged))
    bay = opened(disk.crash_process(), damaged)
    assert bay.recovery.index_rebuilt
    assert contents_of(bay) == store.contents


@pytest.mark.parametrize("lost", ["kr-store", "kr-store/data", "kr-store/data/places.db", "kr-store/state"])
def test_index_whose_files_are_deleted_is_rebuilt(tmp_path: Path, lost: str) -> None:
    before = _closed_directory(tmp_path)
    gone = tmp_path / "localhost" / lost
    if gone.is_dir():
        shutil.rmtree(gone)
    else:
        for file in gone.parent.glob(f"{gone.name}*"):
            file.unlink()
    _check_rebuilt(tmp_path, before)


@pytest.mark.parametrize("seed", range(5))
def test_index_file_that_is_overwritten_is_rebuilt(tmp_path: Path, seed: int) -> None:
    before = _closed_directory(tmp_path)
    file = tmp_path / "localhost/kr-store/data/places.db"
    content = bytearray(file.read_bytes())
    begin = Random(seed).randrange(len(content) - 4096) if seed else 0
    content[begin : begin + 4096] = Random(seed).randbytes(4096)
    file.write_bytes(content)
    _check_rebuilt(tmp_path, before)


def _closed_directory(directory: Path) -> Contents:
    with forebay.open(directory, SETTINGS) as bay:
        queue = bay.queue("orders")
        queue.send_many(Message(b"body %d" % n, {"n": n}) for n in range(2000))
        with queue.subscribe() as consumer:
            consumer.ack([delivery for delivery in consumer.take(900) if delivery.sequence % 3])
        return contents_of(bay)


def _check_rebuilt(directory: Path, before: Contents) -> None:
    try:
        with forebay.open(directory, SETTINGS) as bay:
            assert contents_of(bay) == before
    except StoreFailed:  # a damaged block was met only when it was needed
        pass
    with forebay.open(directory, SETTINGS) as bay:
        assert contents_of(bay) == before
