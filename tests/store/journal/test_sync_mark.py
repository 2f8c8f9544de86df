"""The sync mark: how far the journal was synced, said outside of it; whatever becomes of it, no store depends on it."""

from __future__ import annotations

import errno
import logging
from random import Random

import pytest
from message_stores import OpenStore
from simulated_disk import PowerCut, SimulatedDisk
from simulated_inode import WAITING_MAX
from simulated_metadata import SimulatedMetadataStore

from forebay import JournalCorrupt
from forebay.store.disk.layout import DATA_LOG_ID_MAX, STATE_DIRECTORY, data_log_name
from forebay.store.inspect.dump import dump
from forebay.store.journal.shutdown_marker import ShutdownMarker, read_shutdown_marker
from forebay.store.journal.sync_mark import SLOT_BYTES, SLOTS, SYNC_MARK, SyncMark, read_durable_end, read_sync_mark
from forebay.store.numbering import OFFSET_BITS
from forebay.store.recovery.verify import JournalFinding, Verdict, examine_all, judge

STORE_ID, EPOCH = bytes(range(16)), 7
LIFE = ShutdownMarker(STORE_ID, EPOCH, 0, False)
FIRST = 3 << OFFSET_BITS | 64
MARK_BYTES = SLOTS * SLOT_BYTES


def new_disk() -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directory(STATE_DIRECTORY)
    return disk


def marked(*positions: int, disk: SimulatedDisk | None = None, epoch: int = EPOCH) -> SimulatedDisk:
    disk = disk or new_disk()
    mark = SyncMark(disk, STORE_ID, epoch)
    for position in positions:
        mark.note(position)
    mark.close()
    assert not mark.failures
    return disk


def rewritten(disk: SimulatedDisk, content: bytes) -> SimulatedDisk:
    disk = disk.crash_process()
    disk.remove(SYNC_MARK)
    disk.open(SYNC_MARK, create=True).append(content)
    return disk


# What it tells.


def test_nothing_is_told_where_there_is_no_mark_or_no_marker() -> None:
    assert read_sync_mark(new_disk(), LIFE) == 0
    assert read_sync_mark(marked(FIRST), None) == 0
    assert read_sync_mark(marked(), LIFE) == 0


@pytest.mark.parametrize("syncs", [1, 2, SLOTS - 1, SLOTS, SLOTS + 1, 5 * SLOTS + 3])
def test_last_sync_is_told_however_often_the_slots_went_round(syncs: int) -> None:
    disk = marked(*range(FIRST, FIRST + syncs))
    assert read_sync_mark(disk, LIFE) == FIRST + syncs - 1
    assert len(disk.image()[SYNC_MARK]) == MARK_BYTES


def test_mark_of_another_life_or_store_tells_nothing() -> None:
    disk = marked(FIRST)
    assert read_sync_mark(disk, LIFE._replace(epoch=EPOCH + 1)) == 0
    assert read_sync_mark(disk, LIFE._replace(store_id=bytes(16))) == 0


def test_new_life_begins_with_a_mark_that_tells_nothing() -> None:
    disk = marked(FIRST + 5)
    assert read_sync_mark(marked(disk=disk, epoch=EPOCH + 1), LIFE._replace(epoch=EPOCH + 1)) == 0
    assert read_sync_mark(marked(FIRST, disk=disk), LIFE) == FIRST, "an epoch that comes again takes over no position"


def test_torn_slot_leaves_what_was_told_before() -> None:
    whole = marked(FIRST, FIRST + 1).image()[SYNC_MARK]
    for cut in range(1, SLOT_BYTES - 4):
        torn = whole[: SLOT_BYTES + cut] + bytes(SLOT_BYTES - cut) + whole[2 * SLOT_BYTES :]
        told = read_sync_mark(rewritten(marked(), torn), LIFE)
        assert told == FIRST or torn == whole, f"cut behind {cut} bytes"


def test_any_flipped_bit_takes_its_slot_away_at_most() -> None:
    whole = marked(FIRST, FIRST + 1).image()[SYNC_MARK]
    for bit in range(8 * 2 * SLOT_BYTES):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        assert read_sync_mark(rewritten(marked(), bytes(damaged)), LIFE) in (FIRST, FIRST + 1), f"bit {bit}"


def test_short_file_tells_what_its_whole_slots_tell() -> None:
    whole = marked(FIRST, FIRST + 1).image()[SYNC_MARK]
    for length in range(2 * SLOT_BYTES + 1):
        told = read_sync_mark(rewritten(marked(), whole[:length]), LIFE)
        assert told == (0, FIRST, FIRST + 1)[length // SLOT_BYTES], f"{length} bytes"


def test_arbitrary_bytes_tell_nothing() -> None:
    for seed in range(200):
        random = Random(seed)
        content = random.randbytes(random.randrange(2 * MARK_BYTES))
        assert read_sync_mark(rewritten(marked(), content), LIFE) == 0, f"seed {seed}"


def test_numbers_that_no_position_has_are_passed_over() -> None:
    greatest = DATA_LOG_ID_MAX << OFFSET_BITS
    disk = marked(2**64 - 1, 0, 5, (DATA_LOG_ID_MAX + 1) << OFFSET_BITS)
    assert read_sync_mark(disk, LIFE) == 0
    assert read_sync_mark(marked(greatest, 2**64 - 1), LIFE) == greatest


def test_long_file_is_read_as_far_as_slots_go() -> None:
    whole = marked(FIRST).image()[SYNC_MARK]
    behind = marked(FIRST + 9).image()[SYNC_MARK]
    assert read_sync_mark(rewritten(marked(), whole + behind * 1000), LIFE) == FIRST


def test_power_cut_leaves_a_position_that_was_synced_or_none() -> None:
    """Never a later one: each is written when its sync has returned."""
    disk = new_disk()
    mark = SyncMark(disk, STORE_ID, EPOCH)
    disk.sync_directory(STATE_DIRECTORY)
    told, synced = set(), {0}
    for position in range(FIRST, FIRST + 40):
        mark.note(position)
        synced.add(position)
        for seed in range(20):
            for cut in (PowerCut.ANY, PowerCut.STALE):
                told.add(read_sync_mark(disk.crash_power(Random(seed), cut), LIFE))
        assert told <= synced
    assert len(told) > 10, "it was tried enough"
    mark.sync()
    assert {read_sync_mark(image, LIFE) for image in disk.every_power_cut()} == {FIRST + 39}


def test_simulated_disk_keeps_no_endless_history_of_a_mark() -> None:
    disk = marked(*range(FIRST, FIRST + 5 * WAITING_MAX))
    assert len(disk._file(SYNC_MARK)._unsynced) <= WAITING_MAX
    assert read_sync_mark(disk, LIFE) == FIRST + 5 * WAITING_MAX - 1


# Where it can't be written or read.


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO, errno.EROFS])
def test_position_that_cannot_be_written_is_counted_and_its_cause_logged_once(
    error: int, caplog: pytest.LogCaptureFixture
) -> None:
    disk = new_disk()
    mark = SyncMark(disk, STORE_ID, EPOCH)
    mark.note(FIRST)
    disk.fail("write", 1, error, sticky=True)
    for position in range(FIRST + 1, FIRST + 1 + 2 * SLOTS):
        mark.note(position)
    assert mark.failures == 2 * SLOTS and read_sync_mark(disk, LIFE) == FIRST
    # Only the logger of the mark: a test before this one may have left records that are logged late.
    (record,) = [record for record in caplog.records if record.name == "forebay.store"]
    assert (record.levelno, getattr(record, "event", None)) == (logging.WARNING, "sync_mark_not_written")
    disk.cure()
    mark.note(FIRST + 4 * SLOTS)
    assert read_sync_mark(disk, LIFE) == FIRST + 4 * SLOTS and mark.failures == 2 * SLOTS


@pytest.mark.parametrize("call", ["create", "write", "exists", "remove"])
def test_mark_that_cannot_be_made_is_tried_again_when_the_slots_have_gone_round(
    call: str, caplog: pytest.LogCaptureFixture
) -> None:
    disk = marked(FIRST)
    disk.fail(call, 1, errno.EMFILE)
    mark = SyncMark(disk, STORE_ID, EPOCH)
    for position in range(FIRST + 1, FIRST + 1 + SLOTS):
        mark.note(position)
    assert mark.failures == SLOTS and len(caplog.records) == 1
    mark.note(FIRST + 2 * SLOTS)
    assert mark.failures == SLOTS and read_sync_mark(disk, LIFE) == FIRST + 2 * SLOTS


@pytest.mark.parametrize("call", ["exists", "open", "read"])
def test_mark_that_cannot_be_read_tells_nothing_and_is_logged(call: str, caplog: pytest.LogCaptureFixture) -> None:
    disk = marked(FIRST)
    disk.fail(call, 1, errno.EIO)
    assert read_sync_mark(disk, LIFE) == 0
    assert [getattr(record, "event", None) for record in caplog.records] == ["sync_mark_not_read"]


def test_failed_sync_of_the_mark_is_logged_and_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    disk = new_disk()
    mark = SyncMark(disk, STORE_ID, EPOCH)
    disk.fail("sync", 1, errno.EIO)
    mark.sync()
    assert len(caplog.records) == 1 and not mark.failures


def test_closed_mark_takes_no_position_and_counts_none() -> None:
    disk = new_disk()
    mark = SyncMark(disk, STORE_ID, EPOCH)
    mark.note(FIRST)
    mark.close()
    mark.close()
    mark.sync()
    mark.note(FIRST + 1)
    assert read_sync_mark(disk, LIFE) == FIRST and not mark.failures


# In a store.


def sent_and_synced(disk: SimulatedDisk, metadata: SimulatedMetadataStore, messages: int) -> OpenStore:
    opened = OpenStore(disk, metadata)
    for n in range(messages):
        opened.add(b"message %d" % n)
        opened.store.syncer.sync()
    return opened


def test_mark_tells_of_every_sync_of_a_store() -> None:
    disk = SimulatedDisk()
    opened = sent_and_synced(disk, SimulatedMetadataStore(), 3)
    assert read_durable_end(disk) == opened.store.journal.end
    opened.add(b"not synced")
    assert read_durable_end(disk) < opened.store.journal.end
    with opened.store.locks.sync, opened.lock:
        opened.store.syncer.sync_at_standstill()
    assert read_durable_end(disk) == opened.store.journal.end
    opened.store.close()
    assert read_durable_end(disk) == opened.store.journal.end and read_shutdown_marker(disk) is not None


def test_store_goes_on_and_counts_where_its_mark_cannot_be_written() -> None:
    disk = SimulatedDisk()
    opened = sent_and_synced(disk, SimulatedMetadataStore(), 3)

    def refuse(call: str, name: str) -> None:
        if name == SYNC_MARK:
            raise OSError(errno.EIO, "Input/output error")

    disk.on_call = refuse
    opened.add(b"more")
    opened.store.syncer.sync()
    assert opened.store.disk_use.statistics().unmarked_syncs == 1
    opened.store.close()
    disk.on_call = None
    assert len(OpenStore(disk, SimulatedMetadataStore()).bodies()) == 4


@pytest.mark.parametrize("with_index", [True, False])
def test_journal_that_ends_before_its_mark_is_refused_in_words_and_opens_with_report(with_index: bool) -> None:
    """So does a copy of a live store look whose mark was copied last, and a disk that did not do what a sync asks."""
    disk, metadata = SimulatedDisk(), SimulatedMetadataStore()
    opened = OpenStore(disk, metadata)
    ends = []
    for n in range(4):
        opened.add(b"message %d" % n)
        opened.store.syncer.sync()
        ends.append(opened.store.journal.offset)
    image = disk.crash_process()
    image.open(data_log_name(1)).truncate(ends[1])

    def index() -> SimulatedMetadataStore:
        return SimulatedMetadataStore(metadata.history[-1]) if with_index else SimulatedMetadataStore()

    with pytest.raises(JournalCorrupt) as caught:
        OpenStore(image.crash_process(), index())
    assert (caught.value.data_log, caught.value.offset) == (1, ends[1])
    assert f"{SYNC_MARK} tells so up to 1:{ends[3]}" in str(caught.value)
    assert f"delete {STATE_DIRECTORY}" in str(caught.value)
    reported = OpenStore(image.crash_process(), index(), accepts_loss=True)
    assert [(place.data_log, place.offset) for place in reported.report.damaged] == [(1, ends[1])]
    assert reported.bodies() == [b"message 0", b"message 1"]
    again = OpenStore(reported.disk, reported.metadata)
    assert not again.report.damaged, "it is told once"
    as_it_was = image.crash_process()
    for name in as_it_was.list(STATE_DIRECTORY):
        as_it_was.remove(f"{STATE_DIRECTORY}/{name}")
    assert OpenStore(as_it_was, index()).bodies() == [b"message 0", b"message 1"]


def test_data_log_that_is_gone_and_was_synced_is_refused() -> None:
    disk, metadata = SimulatedDisk(), SimulatedMetadataStore()
    opened = OpenStore(disk, metadata)
    while opened.store.journal.data_log < 3:
        opened.add(bytes(500))
    opened.store.syncer.sync()
    image = disk.crash_process()
    image.remove(data_log_name(3))
    with pytest.raises(JournalCorrupt) as caught:
        OpenStore(image.crash_process(), SimulatedMetadataStore())
    assert caught.value.data_log == 3 and SYNC_MARK in str(caught.value)
    reported = OpenStore(image, SimulatedMetadataStore(), accepts_loss=True)
    assert [place.data_log for place in reported.report.damaged] == [3]
    assert reported.store.journal.data_log == 4, "its number is not used again"


def test_directory_or_link_in_the_place_of_the_mark_stops_no_store() -> None:
    disk = SimulatedDisk()
    opened = sent_and_synced(disk, SimulatedMetadataStore(), 2)
    image = opened.disk.crash_process()  # type: ignore[attr-defined]
    image.remove(SYNC_MARK)
    image.make_directory(SYNC_MARK)
    again = OpenStore(image, SimulatedMetadataStore())
    again.add(b"more")
    again.store.syncer.sync()
    assert len(again.bodies()) == 3 and again.store.disk_use.statistics().unmarked_syncs > 0
    again.store.close()


# Verify and dump.


def killed_store() -> tuple[SimulatedDisk, int, int]:
    """A killed store of which all was synced; where its last record begins, and where that ends."""
    opened = sent_and_synced(SimulatedDisk(), SimulatedMetadataStore(), 3)
    begin = opened.store.journal.offset
    opened.add(b"the last")
    opened.store.syncer.sync()
    return opened.disk.crash_process(), begin, opened.store.journal.offset  # type: ignore[attr-defined]


def test_verify_and_dump_find_nothing_where_the_journal_has_all_that_its_mark_tells() -> None:
    disk, _, _ = killed_store()
    assert judge(list(examine_all(disk)), read_durable_end(disk)) == Verdict((), None, 0)
    assert not [row for row in dump(disk) if row["kind"] in ("damaged", "torn")]


def test_verify_and_dump_say_when_the_journal_ends_below_its_mark() -> None:
    disk, begin, end = killed_store()
    disk.open(data_log_name(1)).truncate(begin)
    problem = f"the data log ends, and was durable up to offset {end}"
    verdict = judge(list(examine_all(disk)), read_durable_end(disk))
    assert verdict.findings == (JournalFinding(1, begin, problem),) and verdict.tail is None
    *_, row = dump(disk)
    assert row == {"data_log": 1, "offset": begin, "length": 0, "kind": "damaged", "problem": problem}


def test_verify_and_dump_take_no_bytes_that_were_synced_for_a_torn_tail() -> None:
    disk, begin, _ = killed_store()
    disk.flip_bit(data_log_name(1), begin + 5, 0)
    assert judge(list(examine_all(disk))).tail is not None, "the journal alone can't know"
    verdict = judge(list(examine_all(disk)), read_durable_end(disk))
    assert [(found.data_log, found.offset) for found in verdict.findings] == [(1, begin)] and verdict.tail is None
    *_, row = dump(disk)
    assert (row["kind"], row["offset"]) == ("damaged", begin) and row["problem"].endswith(", and was durable")


def test_verify_and_dump_name_a_data_log_that_is_gone_and_was_synced() -> None:
    disk, _, end = killed_store()
    disk.remove(data_log_name(1))
    problem = f"the data log is missing, and was durable up to offset {end}"
    assert judge(list(examine_all(disk)), read_durable_end(disk)).findings == (JournalFinding(1, 0, problem),)
    (row,) = dump(disk)
    assert (row["kind"], row["data_log"], row["problem"]) == ("damaged", 1, problem)


def test_tail_that_was_never_synced_is_a_tail_to_verify_and_dump() -> None:
    opened = sent_and_synced(SimulatedDisk(), SimulatedMetadataStore(), 3)
    begin = opened.store.journal.offset
    opened.add(b"not synced")
    disk = opened.disk.crash_process()  # type: ignore[attr-defined]
    disk.flip_bit(data_log_name(1), begin + 5, 0)
    verdict = judge(list(examine_all(disk)), read_durable_end(disk))
    assert not verdict.findings and verdict.tail is not None and verdict.tail.offset == begin
    *_, row = dump(disk)
    assert (row["kind"], row["offset"]) == ("torn", begin)
