"""The journal: what append returned for stays, in order and in its place, whatever the disk does next."""

from __future__ import annotations

import errno
import sys
import threading
from collections.abc import Callable
from random import Random
from typing import NoReturn

import pytest
from compiled import interpreted
from journals import (
    FIRST_RECORD,
    all_bodies,
    all_records,
    append_one,
    data_log_header,
    data_logs,
    journal_on,
    power_cut,
    syncer_of,
    walked,
)
from simulated_disk import SimulatedDisk

from forebay.store.disk.layout import JOURNAL, data_log_name
from forebay.store.errors import Closed, NestedCall, StoreFailed, StoreFull
from forebay.store.format.contents import Contents
from forebay.store.format.record import (
    ACK,
    ATTEST,
    DESTINATION,
    DIRECTORY,
    HEADER_BYTES,
    MAGIC,
    MESSAGE,
    RELOCATED,
    STATE,
    TRANSACTIONAL,
    AckRange,
    RecordDamaged,
    decode_ack,
    encode_one,
    stamp,
)
from forebay.store.journal import fullness as fullness_module
from forebay.store.journal.data_log import DATA_LOG_HEADER_BYTES
from forebay.store.journal.journal import Journal
from forebay.store.journal.journal_syncer import JournalSyncer
from forebay.store.numbering import OFFSET_BITS, location_text

FIRST_BYTES = DATA_LOG_HEADER_BYTES + HEADER_BYTES + len(FIRST_RECORD[2])
FILE_BYTES = 4096
NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


@pytest.fixture
def journal(disk: SimulatedDisk) -> Journal:
    return journal_on(disk, max_file_bytes=FILE_BYTES)


@pytest.fixture
def syncer(disk: SimulatedDisk, journal: Journal) -> JournalSyncer:
    return syncer_of(journal, disk)


def send(journal: Journal, body: bytes = b"body") -> int:
    return append_one(journal, 4, 1, 0, 5, b"", body)


def fill(journal: Journal, left_bytes: int = 0) -> bytes:
    """Send one message that leaves so many bytes of the newest data log."""
    body = bytes(FILE_BYTES - journal.offset - 64 - left_bytes)
    send(journal, body)
    return body


APPENDS: dict[str, Callable[[Journal], object]] = {
    "append_one": lambda journal: send(journal, b"x" * 500),
    "append_slice": lambda journal: journal.append_slice(4, 1, 0, 5, Contents([b"p", b""], [b"x" * 250, b"y" * 249])),
    "append_ack": lambda journal: journal.append_ack(4, 1, 0, 5),
    "append": lambda journal: journal.append(DESTINATION, 0, 1, b"x" * 500),
}
every_append = pytest.mark.parametrize("append", APPENDS.values(), ids=APPENDS)


# Appending.


def test_records_lie_where_append_said_with_dense_numbers(disk: SimulatedDisk, journal: Journal) -> None:
    offsets = [send(journal, b"one"), journal.append_slice(4, 1, 1, 5, Contents([b"", b""], [b"two", b"three"]))[0]]
    journal.append_ack(4, 1, 0, 3)
    offsets.append(journal.append(ATTEST, 0, 0, b""))
    _, records = walked(disk, 1)
    assert [record.offset for record in records if record.header.kind != ACK][1:] == offsets
    assert [record.header.kind for record in records] == [STATE, MESSAGE, MESSAGE, ACK, ATTEST]
    assert [record.header.log_sequence for record in records] == [100, 101, 102, 103, 104]
    assert journal.next_log_sequence == 105 and journal.end == 1 << OFFSET_BITS | journal.offset
    assert all_bodies(disk) == [b"one", b"two", b"three"]
    assert decode_ack(records[3].header, records[3].head).ranges == [AckRange(0, 3)]


def test_each_append_is_one_write(disk: SimulatedDisk, journal: Journal) -> None:
    for append in APPENDS.values():
        writes = disk.calls["write"]
        append(journal)
        assert disk.calls["write"] == writes + 1


def test_every_data_log_opens_with_the_first_record_and_its_header(disk: SimulatedDisk, journal: Journal) -> None:
    for _ in range(3):
        fill(journal)
        send(journal)
    for data_log in data_logs(disk):
        header = data_log_header(disk, data_log)
        _, (first, *_) = walked(disk, data_log)
        assert (header.data_log, header.epoch, header.first_log_sequence) == (data_log, 7, first.header.log_sequence)
        assert (first.offset, first.header.kind) == (DATA_LOG_HEADER_BYTES, STATE)
        assert first.head[HEADER_BYTES:] == FIRST_RECORD[2]
    assert len({data_log_header(disk, data_log).salt for data_log in data_logs(disk)}) == 4


def test_kill_takes_nothing_that_was_appended(disk: SimulatedDisk, journal: Journal) -> None:
    bodies = [b"%d" % n * 50 for n in range(100)]
    for n, body in enumerate(bodies):
        send(journal, body)
        assert all_bodies(disk.crash_process()) == bodies[: n + 1]


def test_kill_inside_a_write_takes_that_record_alone(disk: SimulatedDisk, journal: Journal) -> None:
    send(journal, b"whole")
    for written in range(0, 164, 7):
        torn = SimulatedDisk()
        other = journal_on(torn, max_file_bytes=FILE_BYTES)
        send(other, b"whole")
        torn.fail("write", 1, errno.EIO, written_bytes=written)
        with pytest.raises(StoreFailed):
            send(other, b"x" * 100)
        assert all_bodies(torn.crash_process()) == [b"whole"], f"{written} bytes of it arrived"


# Rolling.


def test_full_data_log_is_sealed_and_cut_to_its_end(disk: SimulatedDisk, journal: Journal) -> None:
    assert disk.open_for_reading(data_log_name(1)).size() == FILE_BYTES
    fill(journal)
    assert (journal.data_log, journal.offset) == (1, FILE_BYTES)
    send(journal)
    assert (journal.data_log, journal.offset) == (2, FIRST_BYTES + 68)
    walk, records = walked(disk, 1)
    assert walk.is_sealed and records[-1].header.kind == DIRECTORY
    assert disk.open_for_reading(data_log_name(1)).size() == walk.end == journal.sizes[1]
    assert disk.open_for_reading(data_log_name(2)).size() == FILE_BYTES


@every_append
def test_record_goes_whole_into_the_next_data_log(
    disk: SimulatedDisk, journal: Journal, append: Callable[[Journal], object]
) -> None:
    fill(journal, left_bytes=47)
    append(journal)
    assert journal.data_log == 2
    assert [data_log for data_log, _ in all_records(disk)] == [1, 1, 1, 2, 2]


def test_message_larger_than_a_file_has_a_larger_file_to_itself(disk: SimulatedDisk, journal: Journal) -> None:
    bodies = [b"before", b"x" * 10 * FILE_BYTES, b"y" * 3 * FILE_BYTES, b"after"]
    for body in bodies:
        send(journal, body)
    assert all_bodies(disk) == bodies
    assert [len(walked(disk, data_log)[1]) - 1 for data_log in (1, 2, 3)] == [2, 2, 2]
    assert journal.data_log == 4


@interpreted("replaces what compiled code has linked")
def test_data_log_holds_no_more_records_than_its_directory_may_name(
    disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fullness_module, "RECORDS_MAX", 5)
    journal = journal_on(disk, max_file_bytes=1 << 20)
    random = Random(1)
    for n in range(60):
        random.choice([*APPENDS.values()])(journal)
        assert journal.data_log == 1 + n // 4
    for data_log in data_logs(disk)[:-1]:
        assert len(walked(disk, data_log)[1]) == 5 + 1


@interpreted("replaces what compiled code has linked")
def test_records_are_capped_though_they_are_the_smallest(disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fullness_module, "RECORDS_MAX", 300)
    journal = journal_on(disk, max_file_bytes=1 << 20)
    for _ in range(1000):
        journal.append(ATTEST, 0, 0, b"")
    assert [len(walked(disk, data_log)[1]) for data_log in data_logs(disk)] == [301, 301, 301, 104]


def test_seal_ends_the_data_log_for_good(disk: SimulatedDisk, journal: Journal) -> None:
    send(journal, b"last")
    journal.seal()
    for append in APPENDS.values():
        with pytest.raises(Closed):
            append(journal)
    assert all_bodies(disk) == [b"last"] and walked(disk, 1)[0].is_sealed


@pytest.mark.parametrize("seed", range(4))
def test_random_appends_are_all_found_again(seed: int) -> None:
    random, disk = Random(seed), SimulatedDisk()
    journal = journal_on(disk, max_file_bytes=random.choice((200, 1000, FILE_BYTES)), seed=seed)
    bodies: list[bytes] = []
    places: list[tuple[int, int]] = []
    for _ in range(150):
        if random.random() < 0.3:
            journal.append_ack(4, 1, 0, 1)
            continue
        part = [random.randbytes(random.choice((0, 50, 900))) for _ in range(random.choice((1, 1, 2, 9)))]
        if len(part) == 1:
            offset = send(journal, part[0])
        else:
            offset, lengths = journal.append_slice(4, 1, 0, 5, Contents.of((b"", body) for body in part))
            assert lengths == [len(body) for body in part]
        places.append((journal.data_log, offset))
        bodies += part
        if random.random() < 0.05:
            journal.roll()
    assert all_bodies(disk) == bodies
    records = all_records(disk)
    assert [(log, record.offset) for log, record in records if record.header.kind == MESSAGE] == places
    assert [record.header.log_sequence for _, record in records] == list(range(100, 100 + len(records)))
    assert (
        journal.journal_bytes
        == sum(disk.open_for_reading(data_log_name(data_log)).size() for data_log in data_logs(disk)[:-1])
        + journal.offset
    )


class SizesThatAreNotAddedUp(dict[int, int]):
    """The sizes of data logs, for a journal that must not walk over them."""

    def values(self) -> NoReturn:
        raise AssertionError("all data logs are looked at")


def test_the_size_of_the_journal_is_known_without_a_look_at_each_data_log(
    disk: SimulatedDisk, journal: Journal
) -> None:
    for _ in range(20):
        send(journal, b"body")
        journal.roll()
    journal.files.remove([3, 4])
    journal.forget([3, 4])
    journal._check()
    older_bytes = sum(disk.open_for_reading(data_log_name(data_log)).size() for data_log in data_logs(disk)[:-1])
    journal.sizes = SizesThatAreNotAddedUp(journal.sizes)
    assert journal.journal_bytes == older_bytes + journal.offset


# Syncing.


def test_power_cut_takes_nothing_that_was_synced(disk: SimulatedDisk, journal: Journal, syncer: JournalSyncer) -> None:
    bodies: list[bytes] = []
    for n in range(8):
        for body in (b"%d" % n * 700, b"%d" % n * 700):
            send(journal, body)
            bodies.append(body)
        syncer.sync()
        assert journal.durable_end == journal.end
        assert all_bodies(power_cut(disk)) == bodies
    assert len(data_logs(disk)) > 3


def test_power_cut_may_take_all_that_was_not_synced(
    disk: SimulatedDisk, journal: Journal, syncer: JournalSyncer
) -> None:
    syncer.sync()
    send(journal)
    assert all_bodies(power_cut(disk)) == []


def test_one_sync_serves_all_that_was_appended_before(
    disk: SimulatedDisk, journal: Journal, syncer: JournalSyncer
) -> None:
    positions = []
    for _ in range(10):
        send(journal)
        positions.append(journal.end)
    syncs = disk.calls["sync"]
    for position in positions[::-1]:
        syncer.sync(position)
    assert disk.calls["sync"] == syncs + 1 and syncer.durations.count == 1


def test_sync_without_a_position_always_syncs(disk: SimulatedDisk, journal: Journal, syncer: JournalSyncer) -> None:
    syncer.sync()
    syncs = disk.calls["sync"]
    syncer.sync()
    assert disk.calls["sync"] == syncs + 1


def test_directory_is_synced_once_for_a_new_data_log(
    disk: SimulatedDisk, journal: Journal, syncer: JournalSyncer
) -> None:
    calls = disk.calls["sync_directory"]
    syncer.sync()
    assert disk.calls["sync_directory"] == calls + 1
    send(journal)
    syncer.sync()
    assert disk.calls["sync_directory"] == calls + 1


def test_durable_end_tells_what_was_appended_before_the_sync_and_not_during_it(
    disk: SimulatedDisk, journal: Journal, syncer: JournalSyncer
) -> None:
    send(journal)
    end = journal.end

    def append(call: str, name: str) -> None:
        if call == "sync":
            send(journal)

    disk.on_call = append
    syncer.sync()
    assert journal.durable_end == end < journal.end


def test_the_listener_hears_of_each_sync_under_the_lock_when_its_records_are_durable(
    journal: Journal, syncer: JournalSyncer
) -> None:
    told: list[int] = []

    def listen() -> None:
        with pytest.raises(NestedCall):  # the lock is held
            syncer.sync()
        told.append(journal.durable_end)

    syncer.tell_of_syncs(listen)
    ends = []
    for sequence in range(2):
        append_one(journal, 0, 1, sequence, 0, b"", b"body")
        ends.append(journal.end)
        assert syncer.sync(journal.end)
        assert not syncer.sync(journal.end)  # it was durable already
    assert told == ends


def test_data_log_that_is_rolled_during_a_sync_is_synced_by_the_next(
    disk: SimulatedDisk, journal: Journal, syncer: JournalSyncer
) -> None:
    send(journal, b"before")
    end = journal.end

    def roll(call: str, name: str) -> None:
        disk.on_call = None
        send(journal, b"meanwhile")
        journal.roll()
        send(journal, b"behind")

    disk.on_call = roll
    syncer.sync()
    assert journal.durable_end == end and journal.data_log == 2
    syncer.sync()
    assert all_bodies(power_cut(disk)) == [b"before", b"meanwhile", b"behind"]


def test_concurrent_callers_share_one_sync(disk: SimulatedDisk, journal: Journal, syncer: JournalSyncer) -> None:
    entered, released = threading.Event(), threading.Event()

    def hold(call: str, name: str) -> None:
        if call == "sync" and not entered.is_set():
            entered.set()
            assert released.wait(30)

    disk.on_call = hold
    send(journal)
    threads = [threading.Thread(target=syncer.sync, args=(journal.end,))]
    threads[0].start()
    assert entered.wait(30)
    for _ in range(16):
        send(journal)
        threads.append(threading.Thread(target=syncer.sync, args=(journal.end,)))
    for thread in threads[1:]:
        thread.start()
    released.set()
    for thread in threads:
        thread.join(30)
    assert journal.durable_end == journal.end and syncer.durations.count == 2


def test_records_say_what_was_durable_when_they_were_written(
    disk: SimulatedDisk, journal: Journal, syncer: JournalSyncer
) -> None:
    send(journal)
    syncer.sync()
    durable = journal.durable_end
    for append in APPENDS.values():
        append(journal)
    assert journal.attested_end == durable
    _, records = walked(disk, 1)
    assert [record.header.durable for record in records] == [0, 0, *[durable] * 4]


# A full disk.


@pytest.mark.parametrize("error", NO_SPACE, ids=errno.errorcode.get)
@pytest.mark.parametrize("written", [0, 1, 40, 10_000])
@every_append
def test_full_disk_refuses_one_append_and_the_next_goes_through(
    disk: SimulatedDisk, journal: Journal, append: Callable[[Journal], object], written: int, error: int
) -> None:
    send(journal, b"before")
    end, sequence, attested = journal.end, journal.next_log_sequence, journal.attested_end
    disk.fail("write", 1, error, written_bytes=written)
    with pytest.raises(StoreFull) as caught:
        append(journal)
    assert 48 <= caught.value.needed_bytes <= 700 and caught.value.available_bytes == disk.free_bytes()
    assert (journal.end, journal.next_log_sequence, journal.attested_end) == (end, sequence, attested)
    assert journal.failure is None
    send(journal, b"after")
    _, records = walked(disk, 1)
    assert all_bodies(disk) == [b"before", b"after"] and records[-1].header.epoch == 8
    append(journal)
    assert all_bodies(disk)[:2] == [b"before", b"after"]
    assert [record.header.log_sequence for record in walked(disk, 1)[1]] == [100, 101, 102, 103]


def test_remains_of_a_failed_write_are_never_taken_for_records(disk: SimulatedDisk, journal: Journal) -> None:
    """The message that failed holds what would be the next record of just this place, had the epoch stayed."""
    salt = data_log_header(disk, 1).salt
    forged = encode_one(
        salt, (journal.next_log_sequence + 1) << 16 | MAGIC, stamp(journal.epoch, 0), 4, 1, 1, 5, b"", b"forged", 6
    )
    disk.fail("write", 1, errno.ENOSPC, written_bytes=10_000)
    with pytest.raises(StoreFull):
        send(journal, b"body" + forged)
    send(journal, b"true")
    image = disk.image()[data_log_name(1)]
    assert image[journal.offset :].startswith(forged), "the remains do not lie where they could be taken"
    walk, _ = walked(disk, 1)
    assert all_bodies(disk) == [b"true"] and walk.problem is not None and walk.end == journal.offset


def test_traffic_resumes_when_there_is_space_again(disk: SimulatedDisk) -> None:
    disk.capacity_bytes = 3 * FILE_BYTES + 100
    journal = journal_on(disk, max_file_bytes=FILE_BYTES)
    syncer = syncer_of(journal, disk)
    bodies: list[bytes] = []

    def send_until_full() -> None:
        while True:
            body = b"%d" % len(bodies) * 200
            send(journal, body)
            bodies.append(body)

    for _ in range(3):
        with pytest.raises(StoreFull):
            send_until_full()
        journal.append_ack(4, 1, 0, 1)
        with pytest.raises(StoreFull):
            journal.roll()
        assert all_bodies(disk) == bodies and journal.data_log == data_logs(disk)[-1]
        disk.capacity_bytes += 2 * FILE_BYTES
    send(journal, b"at last")
    assert all_bodies(disk) == [*bodies, b"at last"] and journal.failure is None
    syncer.sync()
    assert all_bodies(power_cut(disk)) == [*bodies, b"at last"]


def test_message_that_is_too_large_for_the_disk_leaves_room_for_others(disk: SimulatedDisk) -> None:
    disk.capacity_bytes = 5 * FILE_BYTES
    journal = journal_on(disk, max_file_bytes=FILE_BYTES)
    send(journal, b"before")
    with pytest.raises(StoreFull) as caught:
        send(journal, bytes(20 * FILE_BYTES))
    assert caught.value.needed_bytes > 20 * FILE_BYTES
    send(journal, b"after")
    assert all_bodies(disk) == [b"before", b"after"] and data_logs(disk) == [1]


# A failing disk.


@pytest.mark.parametrize("error", [errno.EIO, errno.EROFS, errno.EBADF], ids=errno.errorcode.get)
@every_append
def test_failed_write_refuses_everything_until_the_store_is_opened_again(
    disk: SimulatedDisk, journal: Journal, append: Callable[[Journal], object], error: int
) -> None:
    send(journal, b"before")
    disk.fail("write", 1, error, written_bytes=20)
    with pytest.raises(StoreFailed) as caught:
        append(journal)
    disk.cure()
    assert str(journal.failure) == str(caught.value)
    writes, syncs = disk.calls["write"], disk.calls["sync"]
    for call in (*APPENDS.values(), lambda journal: syncer_of(journal, disk).sync(), Journal.roll, Journal.seal):
        with pytest.raises(StoreFailed) as again:
            call(journal)
        assert again.value is not caught.value and str(again.value) == str(caught.value)
    journal.close()
    assert (disk.calls["write"], disk.calls["sync"]) == (writes, syncs)
    assert all_bodies(disk) == [b"before"]


@pytest.mark.parametrize("call", ["sync", "sync_directory"])
def test_failed_sync_is_never_tried_again(
    disk: SimulatedDisk, journal: Journal, syncer: JournalSyncer, call: str
) -> None:
    send(journal)
    disk.fail(call, 1, errno.EIO)
    with pytest.raises(StoreFailed) as caught:
        syncer.sync()
    disk.cure()
    calls = disk.calls.copy()
    for _ in range(2):
        with pytest.raises(StoreFailed) as again:
            syncer.sync(journal.end)
        assert again.value is not caught.value and str(again.value) == str(caught.value)
    with pytest.raises(StoreFailed):
        send(journal)
    assert disk.calls == calls and journal.durable_end == 0 and syncer.durations.count == 0


def test_failed_sync_leaves_what_was_durable_before(
    disk: SimulatedDisk, journal: Journal, syncer: JournalSyncer
) -> None:
    send(journal)
    syncer.sync()
    durable = journal.durable_end
    send(journal)
    disk.fail("sync", 1, errno.EIO)
    with pytest.raises(StoreFailed):
        syncer.sync()
    assert journal.durable_end == durable
    syncer.sync(durable)


def test_callers_that_wait_for_a_sync_that_fails_all_hear_of_it(
    disk: SimulatedDisk, journal: Journal, syncer: JournalSyncer
) -> None:
    send(journal)
    disk.fail("sync", 1, errno.EIO)
    heard: list[StoreFailed] = []

    def sync() -> None:
        try:
            syncer.sync(journal.end)
        except StoreFailed as failure:
            heard.append(failure)

    threads = [threading.Thread(target=sync) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(heard) == 8 and len(set(map(str, heard))) == 1 and disk.calls["sync"] == 1
    assert len(set(map(id, heard))) == 8, "no thread changes the error of another"


def test_a_failed_journal_keeps_no_message_and_no_frame_of_those_it_refused(
    disk: SimulatedDisk, journal: Journal, syncer: JournalSyncer
) -> None:
    body = bytes(5_000)
    references = sys.getrefcount(body)
    disk.fail("write", 1, errno.EIO)
    for _ in range(3):
        with pytest.raises(StoreFailed):
            send(journal, body)
    assert journal.failure is not None and journal.failure.__traceback__ is None
    assert sys.getrefcount(body) == references
    with pytest.raises(StoreFailed, match="a journal write failed") as later:
        syncer.sync()
    assert isinstance(later.value.__cause__, OSError) and later.value.__cause__.errno == errno.EIO


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC], ids=errno.errorcode.get)
@pytest.mark.parametrize("written", [0, 30, 10_000])
def test_failure_of_any_call_of_a_roll_takes_nothing_that_was_confirmed(error: int, written: int) -> None:
    """Whatever fails: nothing appended is lost, what a later sync confirms is durable, and no half roll stays."""
    outcomes = []
    for nth in range(1, 30):
        disk = SimulatedDisk()
        journal = journal_on(disk, max_file_bytes=FILE_BYTES)
        syncer = syncer_of(journal, disk)
        confirmed = [fill(journal, left_bytes=100)]
        calls = sum(disk.calls.values())
        disk.fail(None, nth, error, written_bytes=written)
        try:
            send(journal, b"x" * 300)
            confirmed.append(b"x" * 300)
        except (StoreFull, StoreFailed) as refusal:
            outcomes.append(type(refusal))
        if sum(disk.calls.values()) - calls < nth:
            break
        disk.cure()
        assert bodies_for_recovery(disk)[: len(confirmed)] == confirmed, f"call {nth}"
        if journal.failure is None:
            journal.append_ack(4, 1, 0, 1)
            send(journal, b"y" * 300)
            confirmed.append(b"y" * 300)
            syncer.sync()
            assert all_bodies(power_cut(disk)) == confirmed, f"call {nth}"
    else:
        pytest.fail("the roll never ends")
    assert len(outcomes) >= 4 and (StoreFull in outcomes) == (error == errno.ENOSPC)


def bodies_for_recovery(disk: SimulatedDisk) -> list[bytes]:
    """As all_bodies, but for a newest data log that was never begun: recovery sets it aside."""
    image = disk.crash_process()
    newest = data_logs(image)[-1]
    try:
        data_log_header(image, newest)
    except RecordDamaged:
        image.remove(data_log_name(newest))
    return all_bodies(image)


# Closing.


def test_stopped_and_closed_journals_refuse(journal: Journal) -> None:
    journal.stop()
    for append in APPENDS.values():
        with pytest.raises(Closed):
            append(journal)
    journal.close()
    journal.close()


def test_removal_is_durable_on_return(disk: SimulatedDisk, journal: Journal, syncer: JournalSyncer) -> None:
    journal.roll()
    syncer.sync()
    journal.files.remove([1])
    assert data_logs(power_cut(disk)) == [2]


def test_begin_goes_on_with_number_and_epoch_in_a_file_of_its_own(disk: SimulatedDisk, journal: Journal) -> None:
    send(journal, b"earlier")
    journal.seal()
    later = journal_on(disk, data_log=2, next_log_sequence=journal.next_log_sequence, epoch=8, seed=1)
    send(later, b"later")
    assert all_bodies(disk) == [b"earlier", b"later"]
    assert data_log_header(disk, 2).epoch == 8


def test_begin_never_takes_over_a_file_that_exists(disk: SimulatedDisk, journal: Journal) -> None:
    with pytest.raises(FileExistsError):
        journal_on(disk, data_log=1)
    assert disk.list(JOURNAL) == ["data-1.log"]


def test_location_is_printed_as_data_log_and_offset() -> None:
    assert location_text(164 << OFFSET_BITS | 41712) == "164:41712"


def test_a_write_stall_refuses_new_messages_alone_and_ends_without_a_trace(journal: Journal) -> None:
    journal.set_write_stall("the limit at hand")
    assert journal.fullness.stall is not None
    with pytest.raises(StoreFull, match="the limit at hand"):
        send(journal, b"one")
    with pytest.raises(StoreFull, match="the limit at hand"):
        journal.append_slice(4, 1, 0, 5, Contents([b"", b""], [b"two", b"three"]))
    with pytest.raises(StoreFull, match="the limit at hand"):
        append_one(journal, 4 | TRANSACTIONAL, 1, 0, 5, b"", b"in a transaction")
    assert not journal.fullness.is_disk_full and not journal.fullness.has_disk_refused
    newest = journal.data_log
    while journal.data_log < newest + 2:  # acks go on, from data log to data log
        journal.append_ack(4, 1, 0, 1)
        append_one(journal, 4 | RELOCATED, 1, 0, 5, b"", b"a copy")
    with pytest.raises(StoreFull):
        send(journal, b"one")
    with journal.fullness.accepting_replacements():
        append_one(journal, 4 | TRANSACTIONAL, 1, 0, 5, b"", b"a dead letter")
    journal.set_write_stall(None)
    assert journal.fullness.stall is None
    send(journal, b"one")


def test_a_write_stall_opens_no_journal_that_was_closed(journal: Journal) -> None:
    journal.stop()
    journal.set_write_stall("the limit at hand")
    journal.set_write_stall(None)
    with pytest.raises(Closed):
        send(journal, b"one")
