"""tmp-storage on a disk that fails or is full of what is dead: nothing half done, nothing silent, space won back."""

from __future__ import annotations

import errno

import pytest
from tmp_storages import ALL, TIMESTAMP, Spilling, numbered, one_record, sparse, two_files

from forebay.store.disk.layout import tmp_file_name
from forebay.store.errors import SpillFailed, StoreFull
from forebay.store.tmp.chunk import CHUNK_MESSAGES_MAX
from forebay.store.tmp.storage import TmpStorageStatistics

# A disk that fails.


@pytest.mark.parametrize("written_bytes", [0, 1, 500])
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("count", [3, 600])
def test_failed_write_leaves_nothing_behind(error: int, written_bytes: int, count: int) -> None:
    spilling = Spilling(max_file_bytes=20_000)
    spilling.storage.spill([1], numbered(0, 10))
    before = spilling.storage.statistics, spilling.ledger.held_bytes, spilling.files()
    spilling.disk.fail("write", 1 if count == 3 else 2, error, written_bytes=written_bytes)
    with pytest.raises(StoreFull if error == errno.ENOSPC else SpillFailed) as failure:
        spilling.storage.spill([1], numbered(10, count))
    assert getattr(failure.value, "needed_bytes", 0) > 100 * count
    spilling.check()
    after = spilling.storage.statistics
    assert (after.bytes, after.messages) == (before[0].bytes, before[0].messages)
    assert (spilling.ledger.held_bytes, spilling.files()) == before[1:]
    spilling.storage.spill([1], numbered(10, count))
    assert spilling.all_of(1) == numbered(0, 10 + count)


def test_full_disk_tells_its_free_space_if_it_can() -> None:
    spilling = Spilling()
    spilling.disk.capacity_bytes = 100
    with pytest.raises(StoreFull) as full:
        spilling.storage.spill([1], numbered(0, 10))
    assert (full.value.available_bytes, full.value.limit) == (100, "the disk's free space")
    spilling.disk.fail("free_bytes", 1, errno.EIO)
    with pytest.raises(StoreFull) as full:
        spilling.storage.spill([1], numbered(0, 10))
    assert full.value.available_bytes == 0
    assert spilling.files() == {} and spilling.ledger.held_bytes == 0


def test_remains_that_can_not_be_cut_stay_counted_and_are_never_written_behind() -> None:
    spilling = Spilling()
    spilling.storage.spill([1], numbered(0, 10))
    spilling.disk.fail("write", 1, errno.EIO, written_bytes=50)
    spilling.disk.fail("truncate", 1, errno.EIO)
    with pytest.raises(SpillFailed):
        spilling.storage.spill([1], numbered(10, 10))
    spilling.storage._check()
    assert sum(spilling.files().values()) <= spilling.storage.statistics.bytes
    spilling.storage.spill([1], numbered(10, 10))
    assert len(spilling.files()) == 2 and spilling.all_of(1) == numbered(0, 20)
    spilling.storage.remove(1, 0, 9)
    spilling.check()


def test_remains_in_a_file_that_was_filled_on_the_way_stay_counted_too() -> None:
    spilling = two_files()
    spilling.storage.spill([1], numbered(0, 1, 1_000))
    spilling.disk.fail("write", 2, errno.EIO)
    spilling.disk.fail("truncate", 1, errno.EIO)
    with pytest.raises(SpillFailed):
        spilling.storage.spill([1], numbered(1, 600, 1))
    spilling.storage._check()
    assert spilling.all_of(1) == numbered(0, 1, 1_000)


def test_file_that_can_not_be_deleted_stays_counted_and_is_tried_again() -> None:
    spilling = Spilling()
    spilling.storage.spill([1], numbered(0, 10))
    size = spilling.storage.statistics.bytes
    spilling.disk.fail("remove", 1, errno.EIO, sticky=True)
    spilling.storage.remove_owner(1)
    spilling.check()
    assert spilling.storage.statistics == TmpStorageStatistics(size, size, 0)
    spilling.disk.cure()
    assert spilling.storage.compact() is None
    spilling.check()
    assert spilling.storage.statistics.bytes == spilling.ledger.held_bytes == 0


def test_file_that_somebody_else_deleted_is_no_error() -> None:
    spilling = Spilling()
    spilling.storage.spill([1], numbered(0, 10))
    spilling.disk.remove(tmp_file_name(1))
    spilling.storage.remove_owner(1)
    assert spilling.storage.statistics.bytes == spilling.ledger.held_bytes == 0


@pytest.mark.parametrize("call", ["create", "make_directory"])
def test_file_that_can_not_be_created_refuses_the_spill(call: str) -> None:
    spilling = Spilling()
    spilling.disk.fail(call, 1, errno.EACCES)
    with pytest.raises(SpillFailed, match="Permission denied"):
        spilling.storage.spill([1], numbered(0, 10))
    spilling.storage.spill([1], numbered(0, 10))
    spilling.check()


def test_unreadable_file_costs_its_own_messages_for_as_long_as_that_lasts() -> None:
    spilling = two_files()
    messages = numbered(0, 10, 990) + numbered(10, 10, 990)
    spilling.storage.spill([1], messages[:10])
    spilling.storage.spill([1], messages[10:])
    spilling.disk.fail("read", 1, errno.EIO)
    found, unreadable = spilling.read(1, ALL)
    assert found == messages[10:] and [n for n, _ in unreadable] == list(range(10))
    assert "tmp-1.dat: the read failed" in unreadable[0][1]
    spilling.storage._files._readers.clear()
    spilling.disk.fail("open", 1, errno.EIO)
    found, unreadable = spilling.read(1, ALL)
    assert found == messages[10:] and "tmp-1.dat could not be opened" in unreadable[0][1]
    assert spilling.all_of(1) == messages


def test_every_flipped_bit_is_noticed_and_costs_one_message() -> None:
    spilling = Spilling()
    messages = [(5, b"", b"tea", TIMESTAMP), (6, b"headers", b"", TIMESTAMP), (9, b"p", b"coffee", TIMESTAMP)]
    spilling.storage.spill([1], messages)
    [size] = spilling.files().values()
    for at in range(size):
        for bit in range(8):
            spilling.disk.flip_bit(tmp_file_name(1), at, bit)
            found, unreadable = spilling.read(1, ALL)
            [(sequence, problem)] = unreadable
            assert "tmp-1.dat at " in problem
            assert found == [message for message in messages if message[0] != sequence]
            spilling.disk.flip_bit(tmp_file_name(1), at, bit)
    assert spilling.all_of(1) == messages


def test_file_that_was_cut_costs_its_messages() -> None:
    spilling = Spilling()
    spilling.storage.spill([1], numbered(0, 3))
    spilling.disk.open(tmp_file_name(1)).truncate(200)
    found, unreadable = spilling.read(1, ALL)
    assert found == [] and all("tmp-1.dat ends before it" in problem for _, problem in unreadable)


def test_messages_that_changed_places_are_noticed() -> None:
    spilling = Spilling()
    spilling.storage.spill([1], numbered(0, 3, 8))
    content = spilling.disk.image()[tmp_file_name(1)]
    size = len(content) // 3
    spilling.disk.open(tmp_file_name(1)).append(content[size : 2 * size] + content[:size])
    found, unreadable = spilling.read(1, ALL)
    assert found == numbered(2, 1, 8) and [n for n, _ in unreadable] == [0, 1]


def test_the_same_message_in_another_file_does_not_verify() -> None:
    spilling = two_files()
    spilling.storage.spill([1], numbered(0, 10, 1_000))
    spilling.storage.spill([2], numbered(0, 10, 1_000))
    image = spilling.disk.image()
    spilling.disk.open(tmp_file_name(2)).append(image[tmp_file_name(1)])
    assert len(spilling.read(2, ALL)[1]) == 10


# Rewriting.


def test_sparse_file_is_rewritten_forward() -> None:
    spilling = two_files()
    sparse(spilling, kept=(3, 5))
    charge = spilling.ledger.held_bytes
    step = spilling.storage.compact()
    spilling.check()
    assert step is not None and (step.file, step.messages) == (1, 2)
    assert step.moved_bytes == 2 * one_record(1_000) and step.freed_bytes == 10 * one_record(1_000)
    assert "tmp-1.dat" not in spilling.files() and spilling.ledger.held_bytes < charge
    assert spilling.all_of(1) == numbered(0, 10, 1_000)[3:6:2]
    assert spilling.storage.compact() is None


def test_a_quarter_alive_is_not_worth_it_unless_space_is_short() -> None:
    spilling = two_files()
    sparse(spilling, kept=(1, 4, 7))
    assert spilling.storage.compact() is None
    spilling.limit_bytes = spilling.storage.limit_bytes = spilling.storage.statistics.bytes + 4_000
    assert spilling.storage.compact() is not None
    spilling.check()


def test_rewriting_waits_for_room_under_the_limit() -> None:
    spilling = two_files()
    sparse(spilling)
    spilling.storage.limit_bytes = spilling.storage.statistics.bytes
    assert spilling.storage.compact() is None
    spilling.storage.remove(2, *ALL)
    assert spilling.storage.compact() is not None
    spilling.check()


def test_full_storage_can_still_be_rewritten() -> None:
    spilling = Spilling(limit_bytes=64_000)
    n = 0
    with pytest.raises(StoreFull):
        while True:
            spilling.storage.spill([1], numbered(n, 1))
            n += 1
    for sequence in range(n):
        if sequence % 8:
            spilling.storage.remove(1, sequence, sequence)
    while spilling.storage.compact() is not None:
        spilling.check()
    spilling.storage.spill([1], numbered(n, n // 2))


def test_one_step_is_bounded() -> None:
    spilling = Spilling(limit_bytes=1 << 30, max_file_bytes=16 << 20)
    spilling.disk.on_call = None
    count = 16 * CHUNK_MESSAGES_MAX
    for first in range(0, count, CHUNK_MESSAGES_MAX):
        spilling.storage.spill([1], numbered(first, CHUNK_MESSAGES_MAX, 900))
    spilling.storage.spill([2], numbered(0, 1, 15 << 20))
    for n in range(count):
        if n % 5:
            spilling.storage.remove(1, n, n)
    steps = []
    while (step := spilling.storage.compact()) is not None:
        steps.append(step.moved_bytes)
        spilling.check()
    assert len(steps) > 3 and max(steps) < 512 * 1024
    assert spilling.all_of(1) == numbered(0, count, 900)[::5]


def test_damaged_file_is_left_where_it_is() -> None:
    spilling = two_files()
    sparse(spilling, kept=(0, 1))
    spilling.disk.flip_bit(tmp_file_name(1), 50, 1)
    assert spilling.storage.compact() is None
    assert spilling.storage.compact() is None
    found, unreadable = spilling.read(1, ALL)
    assert found == numbered(1, 1, 1_000) and [n for n, _ in unreadable] == [0]
    spilling.storage.remove_owner(1)
    spilling.check()
    assert "tmp-1.dat" not in spilling.files()


def test_rewriting_that_fails_changes_nothing() -> None:
    spilling = two_files()
    sparse(spilling)
    before = spilling.files(), spilling.ledger.held_bytes
    spilling.disk.fail("write", 1, errno.ENOSPC)
    assert spilling.storage.compact() is None
    spilling.ledger.limit_bytes = spilling.ledger.held_bytes + 1_000
    assert spilling.storage.compact() is None
    spilling.check()
    assert (spilling.files(), spilling.ledger.held_bytes) == before
    spilling.ledger.limit_bytes = 1 << 40
    assert spilling.storage.compact() is not None
