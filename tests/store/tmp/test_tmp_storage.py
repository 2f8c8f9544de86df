"""tmp-storage: overflow comes back as it was, gives its space back at once, and never takes more than its limit."""

from __future__ import annotations

import errno
import logging
import os
import tracemalloc
from pathlib import Path

import pytest
from tmp_storages import ALL, TIMESTAMP, Ledger, Spilling, numbered, one_record, sparse, two_files

from forebay.store.disk.disk import OsDisk
from forebay.store.disk.layout import TMP_STORAGE, tmp_file_name, tmp_file_number
from forebay.store.errors import Closed, StoreFailed, StoreFull
from forebay.store.journal.regions import GAP_BYTES_MAX, REGION_BYTES_MAX
from forebay.store.tmp import chunk as tmp_chunk
from forebay.store.tmp.chunk import TmpFile
from forebay.store.tmp.spilled_message import HEAD_BYTES, read_regions
from forebay.store.tmp.storage import TmpStorage, TmpStorageStatistics
from forebay.store.tmp.tmp_files import BATCH_BYTES_MAX, READERS_MAX

LOGGER = "forebay.store.tmp_storage"
# Coming back.


def test_what_was_spilled_comes_back_in_order_of_sequence() -> None:
    spilling = Spilling()
    messages = numbered(0, 1_000)
    for part in (messages[600:], messages[:200], messages[200:600]):
        spilling.storage.spill([7], part)
        spilling.check()
    assert spilling.all_of(7) == messages
    assert spilling.read(7, (990, 2_000), (5, 6)) == (messages[990:] + messages[5:7], [])
    assert spilling.read(8, ALL) == ([], [])


def test_messages_spilled_between_others_are_found() -> None:
    spilling = Spilling()
    messages = numbered(0, 30)
    spilling.storage.spill([1], messages[::3])
    spilling.storage.spill([1], messages[1::3])
    spilling.storage.spill([1], messages[2::3])
    spilling.check()
    assert spilling.all_of(1) == messages
    assert spilling.storage.remove(1, 4, 8) == 5
    spilling.storage.spill([1], messages[4:9])
    spilling.check()
    assert spilling.all_of(1) == messages


def test_many_messages_come_in_few_reads() -> None:
    spilling = Spilling()
    messages = numbered(0, 400, 1_000)
    spilling.storage.spill([1], messages)
    spilling.storage.remove(1, 100, 102)
    plan = spilling.storage.plan(1, [ALL], most_messages=1_000, most_bytes=1 << 30)
    assert len(plan.regions) == 2
    assert all(sum(region.messages[-1][1:]) <= REGION_BYTES_MAX for region in plan.regions)
    assert (plan.messages, plan.last_sequence) == (397, 399)
    assert read_regions(plan.regions) == (messages[:100] + messages[103:], [])


def test_large_gaps_are_not_read() -> None:
    spilling = Spilling()
    gap = GAP_BYTES_MAX - HEAD_BYTES
    for n, other_bytes in enumerate((gap, gap + 1, 0)):
        spilling.storage.spill([1], [(n, b"", b"wanted", TIMESTAMP)])
        spilling.storage.spill([2], [(n, b"", bytes(other_bytes), TIMESTAMP)])
    regions = spilling.storage.plan(1, [ALL]).regions
    assert [[sequence for sequence, _, _ in region.messages] for region in regions] == [[0, 1], [2]]


def test_plan_ends_at_a_number_of_messages_or_bytes_but_takes_one() -> None:
    spilling = Spilling()
    spilling.storage.spill([1], numbered(0, 10, 98))
    plan = spilling.storage.plan(1, [(2, 9)], most_messages=3)
    assert (plan.messages, plan.content_bytes, plan.last_sequence) == (3, 300, 4)
    assert spilling.storage.plan(1, [(2, 9)], most_bytes=299).last_sequence == 3
    assert spilling.storage.plan(1, [(2, 2), (4, 9)], most_bytes=0).last_sequence == 2
    assert spilling.storage.plan(1, [(2, 2), (4, 9)], most_messages=0).messages == 1
    assert spilling.storage.plan(1, [(20, 30)]).last_sequence == -1


def test_one_large_message_is_written_without_a_copy() -> None:
    spilling = Spilling(max_file_bytes=1 << 20)
    large = [(1, b"pp", bytes(3 * BATCH_BYTES_MAX), TIMESTAMP)]
    spilling.storage.spill([1], numbered(0, 1) + large + numbered(2, 1))
    assert spilling.disk.calls["write"] == 4
    assert spilling.ledger.held_bytes_max < 10_000
    assert spilling.all_of(1) == numbered(0, 1) + large + numbered(2, 1)
    spilling.check()


def test_sequences_far_apart_are_found() -> None:
    spilling = Spilling()
    messages = [(n << 33, b"", b"%d" % n, TIMESTAMP) for n in range(4)]
    spilling.storage.spill([1], messages[:3])
    spilling.storage.spill([1], messages[3:])
    spilling.check()
    assert spilling.all_of(1) == messages


def test_a_read_goes_on_though_its_messages_are_removed_and_its_file_is_deleted() -> None:
    spilling = two_files()
    sparse(spilling, kept=(3, 5))
    plan = spilling.storage.plan(1, [ALL])
    assert spilling.storage.compact() is not None
    spilling.storage.remove_owner(1)
    spilling.storage.remove_owner(2)
    assert spilling.files() == {}
    assert read_regions(plan.regions) == (numbered(0, 10, 1_000)[3:6:2], [])


# Space.


def test_file_goes_with_its_last_message() -> None:
    spilling = two_files()
    for first in (0, 10, 20):
        spilling.storage.spill([1], numbered(first, 10, 990))
    assert list(spilling.files()) == ["tmp-1.dat", "tmp-2.dat", "tmp-3.dat"]
    spilling.storage.remove(1, 10, 18)
    assert len(spilling.files()) == 3
    spilling.storage.remove(1, 19, 19)
    spilling.check()
    assert list(spilling.files()) == ["tmp-1.dat", "tmp-3.dat"]
    spilling.storage.remove(1, 0, 100)
    assert spilling.files() == {} and spilling.ledger.held_bytes == 0
    assert spilling.storage.remove(1, 0, 100) == spilling.storage.remove_owner(1) == 0


def test_a_stream_through_a_small_limit_leaves_nothing() -> None:
    spilling = Spilling(limit_bytes=1 << 18, max_file_bytes=1 << 20)
    spilling.disk.on_call = None
    behind = 1_000
    for first in range(0, 100_000, 200):
        spilling.storage.spill([1], numbered(first, 200, 60))
        assert spilling.storage.statistics.bytes <= spilling.limit_bytes
        if first >= behind:
            low = first - behind
            assert spilling.read(1, (low, low + 199)) == (numbered(low, 200, 60), [])
            assert spilling.storage.remove(1, low, low + 199) == 200
    spilling.check()
    assert spilling.storage.remove(1, *ALL) == behind
    assert spilling.files() == {} and spilling.ledger.held_bytes == 0
    assert spilling.disk.calls["sync"] == 0


def test_limit_is_checked_before_the_write_and_its_numbers_are_told() -> None:
    spilling = Spilling(limit_bytes=16_000)
    spilling.storage.spill([1], numbered(0, 5, 1_000))
    before = spilling.storage.statistics, spilling.ledger.held_bytes, spilling.disk.calls["write"]
    with pytest.raises(StoreFull) as full:
        spilling.storage.spill([1], numbered(5, 20, 1_000))
    assert (spilling.storage.statistics, spilling.ledger.held_bytes, spilling.disk.calls["write"]) == before
    headroom = 500
    available = 16_000 - headroom - before[0].bytes
    assert (full.value.limit, full.value.available_bytes) == ("temp_limit", available)
    spilling.storage.spill([1], [(5, b"", bytes(available - HEAD_BYTES), TIMESTAMP)])
    spilling.storage.limit_bytes = 100
    with pytest.raises(StoreFull) as full:
        spilling.storage.spill([1], numbered(6, 1))
    assert full.value.available_bytes == 0
    assert spilling.storage.limit_bytes == 100


def test_statistics_count_bytes_on_disk_and_messages_once() -> None:
    spilling = Spilling()
    spilling.storage.spill([1, 2], numbered(0, 10, 98))
    spilling.storage.remove(1, 0, 9)
    spilling.storage.remove(2, 0, 3)
    assert spilling.storage.statistics == TmpStorageStatistics(1_280, 1_280, 6)
    spilling.storage.remove_owner(2)
    assert spilling.storage.statistics == TmpStorageStatistics(0, 1_280, 0)


def test_no_more_files_are_open_than_readers_are_kept() -> None:
    spilling = Spilling(limit_bytes=1 << 20, max_file_bytes=100)
    count = READERS_MAX + 10
    for n in range(count):
        spilling.storage.spill([1], numbered(n, 1))
    opened = spilling.disk.calls["open"]
    assert spilling.all_of(1) == numbered(0, count)
    assert spilling.disk.calls["open"] > opened
    spilling.check()


# Owners.


def test_shared_message_is_stored_once_and_goes_with_its_last_owner() -> None:
    spilling = Spilling()
    owners = list(range(100, 1_100))
    spilling.storage.spill(owners, numbered(0, 20))
    spilling.storage.spill(owners, numbered(20, 20))
    assert spilling.storage.statistics.messages == 40
    for owner in owners[:-1]:
        assert spilling.storage.remove(owner, 0, 39) == 40
    spilling.check()
    assert spilling.all_of(owners[-1]) == numbered(0, 40)
    spilling.storage.remove(owners[-1], 0, 38)
    assert spilling.storage.statistics.messages == 1
    spilling.storage.remove_owner(owners[-1])
    assert spilling.files() == {} and spilling.ledger.held_bytes == 0


def test_what_an_owner_alone_held_goes_when_it_is_dropped() -> None:
    spilling = two_files()
    spilling.storage.spill([1], numbered(0, 10, 990))
    spilling.storage.spill([1, 2], numbered(10, 10, 990))
    spilling.storage.spill([2], numbered(20, 10, 990))
    assert spilling.storage.remove_owner(1) == 20
    spilling.check()
    assert list(spilling.files()) == ["tmp-2.dat", "tmp-3.dat"]
    assert spilling.all_of(2) == numbered(10, 20, 990)


def test_owners_that_share_only_in_part_each_keep_their_own() -> None:
    spilling = Spilling()
    spilling.storage.spill([1, 2], numbered(0, 10))
    spilling.storage.spill([1], numbered(10, 10))
    spilling.storage.spill([2], numbered(15, 10))
    spilling.storage.spill([2, 1], numbered(30, 10))
    spilling.check()
    assert spilling.all_of(1) == numbered(0, 20) + numbered(30, 10)
    assert spilling.all_of(2) == numbered(0, 10) + numbered(15, 10) + numbered(30, 10)


def test_each_owner_holds_what_it_is_given_of_one_write() -> None:
    spilling = Spilling()
    messages = numbered(0, 600)
    thirds = [sum(1 << n for n in range(600) if n % 3 != rest) for rest in range(3)]
    writes = spilling.disk.calls["write"]
    spilling.storage.spill([1, 2, 3], messages, thirds)
    assert spilling.disk.calls["write"] == writes + 2, "600 messages are two chunks"
    spilling.check()
    for owner, rest in ((1, 0), (2, 1), (3, 2)):
        assert spilling.all_of(owner) == [message for message in messages if message[0] % 3 != rest]
    spilling.storage.remove_owner(1)
    assert spilling.storage.remove(2, 0, 599) == 400
    assert spilling.storage.statistics.messages == 400
    spilling.check()
    spilling.storage.remove_owner(3)
    assert spilling.files() == {} and spilling.ledger.held_bytes == 0


# Memory.


def test_owners_that_come_and_go_fill_one_chunk() -> None:
    spilling = Spilling()
    for n in range(100):
        spilling.storage.spill([owner for owner in (1, 2, 3) if owner == 1 or n // owner % 2], numbered(n, 1))
    spilling.check()
    assert spilling.ledger.held_bytes < 100 * 13 + 720 + 3 * (320 + 180) + 1_000


def test_places_of_a_message_cost_at_most_16_bytes_however_it_was_spilled() -> None:
    for batch in (1, 32, 256, 512):
        spilling = Spilling(limit_bytes=1 << 34, max_file_bytes=1 << 30)
        spilling.disk.on_call = None
        for first in range(0, 2_048, batch):
            spilling.storage.spill([1], numbered(first, batch, 900))
            spilling.storage.spill([2], numbered(first, batch, 900))
        assert spilling.ledger.held_bytes <= 16 * 4_096


def test_places_of_messages_that_lie_one_behind_the_other_cost_11_bytes() -> None:
    spilling = Spilling(limit_bytes=1 << 34, max_file_bytes=1 << 30)
    for first in range(0, 4_096, 64):
        spilling.storage.spill([1], numbered(first, 64, 900))
    spilling.check()
    assert spilling.ledger.held_bytes <= 11 * 4_096 + 1_000


def test_what_is_rewritten_lies_one_behind_the_other_again() -> None:
    spilling = Spilling(max_file_bytes=200 * one_record(900))
    for n in range(20):
        spilling.storage.spill([1], numbered(n, 1, 900))
        spilling.storage.spill([2], numbered(n, 1, 900))
    before = spilling.all_of(1)
    spilling.storage.spill([2], numbered(20, 150, 900))
    spilling.storage.spill([3], numbered(0, 50, 900))
    spilling.storage.remove_owner(2)
    scattered_bytes = spilling.ledger.held_bytes
    assert spilling.storage.compact() is not None
    spilling.check()
    assert spilling.all_of(1) == before
    assert spilling.ledger.held_bytes <= scattered_bytes - 20 * 4, "the column of offsets is still charged"


@pytest.mark.parametrize("owners, batch", [(1, 1), (1, 200), (1, 512), (10, 512)])
def test_charge_is_what_the_process_pays(owners: int, batch: int) -> None:
    spilling = Spilling(limit_bytes=1 << 34, max_file_bytes=1 << 30)
    messages = [(n << 32 if batch == 1 else n, b"", b"", TIMESTAMP) for n in range(100 * batch)]
    discarding = _Discarding()
    spilling.storage = TmpStorage(
        discarding,  # type: ignore[arg-type]
        spilling.ledger,
        limit_bytes=1 << 34,
        max_file_bytes=1 << 30,
        random_salt=lambda: 1,
    )
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for at in range(0, len(messages), batch):
            spilling.storage.spill(range(owners), messages[at : at + batch])
        paid = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert 0.5 * spilling.ledger.held_bytes < paid < 1.02 * spilling.ledger.held_bytes


class _Discarding:
    """A disk that keeps nothing, so that only the storage's own memory is measured."""

    def list(self, directory: str) -> list[str]:
        return []

    def open(self, name: str, *, create: bool = False) -> _Discarding:
        return self

    def append(self, data: bytes) -> None:
        """Nowhere."""


def test_memory_is_reserved_before_it_is_taken_and_refused_memory_changes_nothing() -> None:
    spilling = Spilling()
    spilling.storage.spill([1], numbered(0, 10))
    spilling.storage.spill([1], numbered(100, 10))
    needed: list[int] = []
    for limit in range(spilling.ledger.held_bytes, spilling.ledger.held_bytes + 8_000, 37):
        spilling.ledger.limit_bytes = limit
        before = spilling.storage.statistics, spilling.ledger.held_bytes
        try:
            spilling.storage.spill([1, 2], numbered(50, 20))
        except StoreFull as full:
            assert full.limit == "memory_limit"
            assert (spilling.storage.statistics, spilling.ledger.held_bytes) == before
            needed.append(limit)
            continue
        break
    spilling.check()
    assert needed and spilling.all_of(2) == numbered(50, 20)
    assert len(spilling.all_of(1)) == 40


def test_a_new_file_that_memory_refuses_leaves_nothing_of_the_spill() -> None:
    spilling = two_files()
    spilling.storage.spill([1], numbered(0, 5, 1_000))
    before = spilling.storage.statistics, spilling.ledger.held_bytes
    rehearsal = Ledger()
    spilling.storage._account = rehearsal
    spilling.ledger.limit_bytes = spilling.ledger.held_bytes + 100
    with pytest.raises(StoreFull, match="memory_limit"):
        spilling.storage.spill([1], numbered(5, 600, 10))
    assert rehearsal.held_bytes == 0
    assert (spilling.storage.statistics.messages, spilling.ledger.held_bytes) == (5, before[1])
    spilling.storage._account = spilling.ledger
    spilling.check()


# Opening, closing, logging.


def test_leavings_of_an_earlier_process_are_deleted_unread_at_open() -> None:
    spilling = Spilling()
    spilling.storage.spill([1], numbered(0, 10))
    reads = spilling.disk.calls["read"]
    spilling.ledger = Ledger()
    spilling.storage = spilling.open()
    assert spilling.files() == {} and spilling.disk.calls["read"] == reads
    assert spilling.all_of(1) == []
    spilling.storage.spill([1], numbered(0, 10))
    assert list(spilling.files()) == ["tmp-2.dat"]


def test_strangers_and_what_can_not_be_deleted_stay(caplog: pytest.LogCaptureFixture) -> None:
    spilling = Spilling()
    spilling.storage.spill([1], numbered(0, 10))
    spilling.disk.open(f"{TMP_STORAGE}/tmp-007.dat", create=True)
    spilling.disk.fail("remove", 1, errno.EIO)
    spilling.ledger = Ledger()
    spilling.storage = spilling.open()
    assert sorted(spilling.files()) == ["tmp-007.dat", "tmp-1.dat"]
    assert "tmp-007.dat is none of ours" in caplog.text and "tmp-1.dat could not be deleted" in caplog.text
    spilling.storage.spill([1], numbered(0, 10))
    assert spilling.all_of(1) == numbered(0, 10)


def test_directory_that_can_not_be_listed_fails_the_open() -> None:
    spilling = Spilling()
    spilling.disk.fail("list", 1, errno.EIO)
    with pytest.raises(StoreFailed, match="tmp-storage could not be listed"):
        spilling.open()


def test_closed_storage_has_deleted_everything_and_refuses() -> None:
    spilling = Spilling()
    spilling.storage.spill([1, 2], numbered(0, 10))
    spilling.storage.close()
    assert spilling.files() == {} and spilling.ledger.held_bytes == 0
    with pytest.raises(Closed):
        spilling.storage.spill([1], numbered(0, 10))


def test_nothing_spilled_makes_no_file() -> None:
    spilling = Spilling()
    spilling.storage.spill([1], [])
    assert spilling.disk.calls["create"] == spilling.disk.calls["make_directory"] == 0


def test_its_logger_tells_what_becomes_of_files_and_can_be_switched_alone(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, LOGGER):
        spilling = two_files()
        sparse(spilling)
        spilling.storage.compact()
    assert [record.getMessage() for record in caplog.records if record.name == LOGGER] == [
        "emptied at open: 0 files",
        "created: tmp-1.dat",
        "created: tmp-2.dat",
        "created: tmp-3.dat",
        "deleted: tmp-1.dat, 10300 bytes",
        "rewritten: tmp-1.dat, 1 messages of 1030 bytes moved, 10300 bytes freed",
    ]
    caplog.clear()
    with caplog.at_level(logging.INFO, LOGGER):
        spilling.storage.remove_owner(2)
    assert not caplog.records


def test_file_names_are_numbers_and_nothing_else_is_one() -> None:
    assert tmp_file_number("tmp-12.dat") == 12 and tmp_file_name(12) == "tmp-storage/tmp-12.dat"
    for name in ("tmp-0.dat", "tmp-01.dat", "tmp-1.dat.old", "data-1.log", "tmp--1.dat", "tmp-1.dat\n"):
        assert tmp_file_number(name) is None


def test_on_the_system_s_disk(tmp_path: Path) -> None:
    disk = OsDisk(os.fspath(tmp_path))
    ledger = Ledger()
    storage = TmpStorage(disk, ledger, limit_bytes=1 << 24, max_file_bytes=1 << 18, random_salt=lambda: 77)
    messages = numbered(0, 1_000, 1_000)
    storage.spill([1], messages)
    paths = list((tmp_path / TMP_STORAGE).iterdir())
    assert len(paths) > 1 and all(path.stat().st_mode & 0o777 == 0o600 for path in paths)
    assert sum(path.stat().st_size for path in paths) == storage.statistics.bytes
    assert read_regions(storage.plan(1, [ALL], most_messages=1_000, most_bytes=1 << 30).regions) == (messages, [])
    storage.remove(1, *ALL)
    assert not list((tmp_path / TMP_STORAGE).iterdir()) and ledger.held_bytes == 0


def test_counts_of_owners_are_exact_for_any_number_of_them() -> None:
    for owners in (1, 2, 3, 7, 8, 64):
        chunk = tmp_chunk.Chunk(TmpFile(1, 0), 0)
        assert chunk.add(range(5), 0, [10] * 5, [0b11111] * owners) == 0
        gone = [chunk.drop_owner(0b11111) for _ in range(owners)]
        assert gone == [0] * (owners - 1) + [5] and chunk.live_bytes == 0
        with pytest.raises(AssertionError, match="more than held it"):
            chunk.drop_owner(1)
