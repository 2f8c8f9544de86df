"""A damaged journal that is opened with on_missing_data_log="report": all that is intact is served, and named once."""

from __future__ import annotations

import errno
import logging
from random import Random

import pytest
from delivering import take_up_to
from inside import open_forebay
from journals import data_logs, walked
from message_stores import OpenStore
from simulated_bay import SimulatedBay
from simulated_disk import PowerCut, SimulatedDisk
from simulated_metadata import SimulatedMetadataStore

from forebay import JournalCorrupt, Message, Settings, StoreFailed
from forebay.store.disk.layout import JOURNAL, QUARANTINE, STATE_DIRECTORY, data_log_name
from forebay.store.format.record import ACK, LOST, LOST_BYTES, MESSAGE
from forebay.store.journal.data_log import DATA_LOG_HEADER_BYTES
from forebay.store.numbering import OFFSET_MASK
from forebay.store.quarantine import DATA_LOGS_MAX, PART_BYTES_MAX, PARTS_MAX
from forebay.store.recovery.repair import DamagedPlace
from forebay.store.recovery.verify import examine_all, judge
from forebay.testing import ManualClock

FILE_BYTES = 8192
BODY = b"body of a message " * 10


class Filled:
    """A store that was closed, and copies of it: three data logs of one queue, some of it acknowledged."""

    def __init__(self) -> None:
        self.disk = SimulatedDisk()
        self.metadata = SimulatedMetadataStore()
        opened = OpenStore(self.disk, self.metadata, max_file_bytes=FILE_BYTES)
        lane = opened.lane()
        self.bodies: dict[int, bytes] = {}
        while opened.store.journal.data_log < 3 or opened.store.journal.offset < 4000:
            bodies = [b"%d " % (lane.next_sequence + n) + BODY for n in range(1 + lane.next_sequence % 3)]
            self.bodies.update(enumerate(bodies, opened.add(*bodies, lane=lane)))
            opened.store.syncer.sync()
            if lane.next_sequence >= 3 and lane.next_sequence % 10 < 3:
                opened.remove(lane.next_sequence - 3)
        self.gone = set(self.bodies) - {message[0] for message in opened.pending()}
        opened.store.close()
        self.metadata.synced()

    def copy(self) -> SimulatedDisk:
        return self.disk.crash_process()

    def index(self) -> SimulatedMetadataStore:
        return SimulatedMetadataStore(self.metadata.history[-1])

    def sequences_of(self, data_log: int, begin: int, end: int) -> set[int]:
        """Messages whose record, or the ack of which, meets these bytes."""
        found: set[int] = set()
        for offset, header, head in walked(self.disk, data_log)[1]:
            if offset < end and begin < offset + header.length:
                first = int.from_bytes(head[36:44], "little")
                if header.kind == MESSAGE:
                    found.update(range(first, first + header.entries))
                elif header.kind == ACK:
                    found.add(first)
        return found


FILLED = Filled()


def reopened(disk: SimulatedDisk, metadata: SimulatedMetadataStore | None = None, *, report: bool = True) -> OpenStore:
    return OpenStore(
        disk,
        metadata or SimulatedMetadataStore(),
        max_file_bytes=FILE_BYTES,
        clock=ManualClock(7),
        accepts_loss=report,
    )


def readable(opened: OpenStore) -> dict[int, bytes]:
    """Pending messages that can be read; some cannot."""
    found: dict[int, bytes] = {}
    lane, at = opened.lane(), 0
    while True:
        with opened.lock:
            run = lane.pending_run(at, 1 << 30)
            if run is None:
                return found
            regions = opened.store.message_store.plan(lane, [run])
        messages, _ = opened.store.message_store.read(regions)
        found.update({message[0]: message[2] for message in messages if message[2] is not None})
        at = run[1] + 1


def check(disk: SimulatedDisk, metadata: SimulatedMetadataStore | None, touched: set[int]) -> tuple[DamagedPlace, ...]:
    """All that was not touched is there; and what the repair left opens in the other mode without another word.

    Where the index is there, damage that it need not look at is not noticed.
    """
    index = metadata or SimulatedMetadataStore()
    opened = reopened(disk, index)
    found = readable(opened)
    untouched = set(FILLED.bodies) - FILLED.gone - touched
    assert untouched <= set(found), f"lost: {untouched - set(found)}"
    assert set(found) & FILLED.gone <= touched, "came back though its ack is there"
    assert all(body == FILLED.bodies[sequence] for sequence, body in found.items())
    assert opened.lane().next_sequence >= max(found, default=0)
    opened.add(b"more")
    opened.store.close()
    for _ in range(2):
        again = reopened(disk, index if metadata is not None else None, report=False)
        assert again.report.damaged == () and again.report.truncated_bytes == 0
        assert readable(again) == found | {again.lane().next_sequence - 1: b"more"}
        again.store.close()
    return opened.report.damaged


@pytest.mark.parametrize("with_index", [False, True])
def test_every_damaged_record_costs_itself_alone(with_index: bool) -> None:
    random, repaired = Random(1), 0
    for data_log in (1, 2, 3):
        for offset, header, _ in walked(FILLED.disk, data_log)[1]:
            disk = FILLED.copy()
            disk.flip_bit(data_log_name(data_log), offset + random.randrange(32), random.randrange(8))
            touched = FILLED.sequences_of(data_log, offset, offset + header.length)
            damaged = check(disk, FILLED.index() if with_index else None, touched)
            for place in damaged:
                assert (place.data_log, place.offset) == (data_log, offset)
            repaired += len(damaged)
    assert repaired == 0 if with_index else repaired >= 60


def test_every_byte_of_a_header_may_be_damaged_and_nothing_is_lost() -> None:
    """Even the salt: it follows from the first record, and the second confirms it."""
    for data_log in (1, 2, 3):
        for offset in range(DATA_LOG_HEADER_BYTES):
            if offset in (8, 9, 10, 11):
                continue  # the version: the crc tells that it is damaged as well, see below
            disk = FILLED.copy()
            disk.flip_bit(data_log_name(data_log), offset, offset % 8)
            damaged = check(disk, None, set())
            assert [place.data_log for place in damaged] == [data_log] and damaged[0].lost_records == 0
    disk = FILLED.copy()
    disk.open(data_log_name(2)).append(bytes(DATA_LOG_HEADER_BYTES))
    assert len(check(disk, None, set())) == 1


@pytest.mark.parametrize("with_index", [False, True])
@pytest.mark.parametrize("data_log", [1, 2, 3])
def test_missing_data_log_costs_its_messages_alone(data_log: int, with_index: bool) -> None:
    disk = FILLED.copy()
    disk.remove(data_log_name(data_log))
    touched = FILLED.sequences_of(data_log, 0, 1 << 30)
    (place, *_) = check(disk, FILLED.index() if with_index else None, touched)
    assert place.data_log == data_log and "missing" in place.problem
    if data_log == 2:
        assert place.lost_records == len(walked(FILLED.disk, 2)[1])


@pytest.mark.parametrize("lost", [(1,), (3,), (3, 4)])
@pytest.mark.parametrize("is_clean", [True, False])
def test_messages_of_a_missing_data_log_leave_depth_lists_and_index_where_the_index_is_intact(
    is_clean: bool, lost: tuple[int, ...], caplog: pytest.LogCaptureFixture
) -> None:
    bay = SimulatedBay(max_file_length="64KiB", on_missing_data_log="report")
    topic, subscription = bay.bay.topic("prices"), "audit"
    topic.subscribe(durable=subscription).close()
    for _ in range(40):
        bay.queue().send_many(Message(bytes(1_000)) for _ in range(6))
        topic.send_many(Message(bytes(1_000)) for _ in range(2))
    bay.bay.checkpoint()
    if is_clean:
        bay.bay.close()
    for data_log in lost:
        bay.disk.remove(data_log_name(data_log))
    bay.disk.sync_directory(JOURNAL)
    for is_first in (True, False):
        caplog.clear()
        bay.crash()
        places = [place.data_log for place in bay.bay.recovery.damaged]
        assert places == (list(lost) if is_first else []) and not bay.bay.recovery.index_rebuilt
        said = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
        assert len(said) == (2 * len(lost) if is_first else 0), said
        queue, topic = bay.queue(), bay.bay.topic("prices")
        depths = queue.depth, topic.statistics().subscriptions[subscription].depth
        assert depths[0] < 240 and depths[1] < 80 and sum(depths) < 320 - 30 * len(lost)
        assert len(list(queue.browse())) == depths[0]
        for consumer, depth in (queue.subscribe(), depths[0]), (topic.subscribe(durable=subscription), depths[1]):
            with consumer:
                assert len(take_up_to(consumer, 400)) == depth
        assert queue.statistics().unreadable == 0
        bay.check()


def test_an_index_of_before_the_repair_forgets_them_too() -> None:
    """As a crash leaves it that comes before the checkpoint."""
    disk = FILLED.copy()
    disk.remove(data_log_name(2))
    pending = {message[0] for message in reopened(disk, FILLED.index()).pending()}
    opened = reopened(disk.crash_process(), FILLED.index())
    assert opened.report.damaged == () and not opened.report.index_rebuilt
    lane = opened.lane()
    assert {number for number in FILLED.bodies if lane.is_pending(number)} == pending
    assert len(pending) < len(FILLED.bodies) - len(FILLED.gone)
    opened.store.index._check()


def test_the_newest_data_log_is_named_once_where_it_is_missing_and_index_and_mark_knew_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bay = SimulatedBay(max_file_length="64KiB", on_missing_data_log="report")
    bay.queue().send_many(Message(bytes(1_000)) for _ in range(100))
    bay.bay.close()
    newest = data_logs(bay.disk)[-1]
    bay.disk.remove(data_log_name(newest))
    bay.open_again()
    assert [place.data_log for place in bay.bay.recovery.damaged] == [newest]
    assert len([record for record in caplog.records if record.levelno >= logging.ERROR]) == 1


def test_unreadable_newest_data_log_and_a_missing_one_before_it_cost_what_was_in_them_where_the_index_knew_both() -> (
    None
):
    bay = SimulatedBay(max_file_length="64KiB", on_missing_data_log="report")
    for n in range(200):
        bay.queue().send(b"%d|" % n + bytes(1_000))
    bay.bay.checkpoint()
    *kept, missing, newest = data_logs(bay.disk)
    in_kept = len([1 for data_log in kept for record in walked(bay.disk, data_log)[1] if record.header.kind == MESSAGE])
    bay.disk.remove(data_log_name(missing))
    bay.disk.sync_directory(JOURNAL)
    bay.disk.zero(data_log_name(newest), 0, len(bay.disk.image()[data_log_name(newest)]))
    for is_first in (True, False):
        bay.crash()
        places = [place.data_log for place in bay.bay.recovery.damaged]
        assert sorted(places) == ([missing, newest] if is_first else [])
        assert len(list(bay.queue().browse())) == bay.queue().depth == in_kept
        bay.check()


def test_sequences_of_what_is_lost_are_not_given_again() -> None:
    disk = FILLED.copy()
    disk.remove(data_log_name(3))
    opened = reopened(disk, FILLED.index())
    assert opened.add(b"next") == max(FILLED.bodies) + 1 and opened.store.journal.data_log > 3


@pytest.mark.parametrize("data_log", [1, 2, 3])
def test_truncated_data_log_costs_what_was_behind(data_log: int) -> None:
    size = len(FILLED.disk.image()[data_log_name(data_log)])
    for length in range(0, size, 97):
        disk = FILLED.copy()
        disk.open(data_log_name(data_log)).truncate(length)
        check(disk, None, FILLED.sequences_of(data_log, length if length >= 400 else 0, 1 << 30))


def spoil(disk: SimulatedDisk, random: Random) -> set[int]:
    """Damage it in several places at once, headers and whole data logs included; returns the messages that it meets."""
    touched, gone, hurt = set[int](), set[int](), set[tuple[int, bool]]()
    if random.random() < 0.3:
        data_log = random.choice((1, 2, 3))
        disk.remove(data_log_name(data_log))
        gone.add(data_log)
        touched |= FILLED.sequences_of(data_log, 0, 1 << 30)
    for _ in range(random.choice((0, 1, 2, 5, 9))):
        data_log = random.choice([other for other in (1, 2, 3) if other not in gone])
        size = len(disk.image()[data_log_name(data_log)])
        begin = random.randrange(12 if random.random() < 0.3 else DATA_LOG_HEADER_BYTES, size - 1)
        length = min(random.choice((1, 1, 8, 40, 512, 3000)), size - begin)
        if begin < DATA_LOG_HEADER_BYTES:
            length = min(length, DATA_LOG_HEADER_BYTES - begin)
        is_first = begin < 400 and begin + length > DATA_LOG_HEADER_BYTES
        if begin < DATA_LOG_HEADER_BYTES or is_first:
            hurt.add((data_log, is_first))
        file = disk.open(data_log_name(data_log))
        file.seek(begin)
        file.append(random.choice((bytes(length), random.randbytes(length))))
        touched |= FILLED.sequences_of(data_log, begin, begin + length)
    for data_log in (1, 2, 3):
        if {(data_log, True), (data_log, False)} <= hurt:
            # Neither the salt nor what proves it: nothing of this data log can be told from noise.
            touched |= FILLED.sequences_of(data_log, 0, 1 << 30)
    return touched


@pytest.mark.parametrize("with_index", [False, True])
@pytest.mark.parametrize("share", range(4))
def test_any_damage_costs_the_records_that_it_meets(share: int, with_index: bool) -> None:
    for seed in range(share, 120, 4):
        disk = FILLED.copy()
        touched = spoil(disk, Random(seed))
        try:
            check(disk, FILLED.index() if with_index else None, touched)
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error


def test_damaged_header_and_first_record_cost_only_themselves_where_the_salt_is_intact() -> None:
    disk = FILLED.copy()
    disk.flip_bit(data_log_name(2), 58, 1)
    disk.flip_bit(data_log_name(2), DATA_LOG_HEADER_BYTES + 20, 1)
    assert len(check(disk, None, set())) == 2


def test_zeroed_header_but_for_its_salt_and_first_record_cost_only_themselves() -> None:
    """Where the data log begins is told by the one before."""
    disk = FILLED.copy()
    disk.zero(data_log_name(2), 16, DATA_LOG_HEADER_BYTES)
    places = check(disk, None, set())
    assert [(place.data_log, place.lost_records) for place in places] == [(2, 0), (2, 1)]


@pytest.mark.parametrize("data_log", [1, 2, 3])
def test_data_log_that_has_moved_forward_by_its_first_record_is_given_up(data_log: int) -> None:
    """The records behind verify, but what names their places finds others there, or none."""
    disk = FILLED.copy()
    behind = walked(disk, data_log)[1][1].offset
    moved = bytes(DATA_LOG_HEADER_BYTES) + disk.image()[data_log_name(data_log)][behind:]
    disk.remove(data_log_name(data_log))
    disk.open(data_log_name(data_log), create=True).append(moved)
    (place,) = check(disk, None, FILLED.sequences_of(data_log, 0, 1 << 30))
    assert place.data_log == data_log and place.lost_records != 0, "it is not said that anything is lost"


def test_missing_data_log_that_the_index_alone_knew_is_named() -> None:
    """What the others knew of it was in a record that is damaged."""
    disk = FILLED.copy()
    disk.remove(data_log_name(2))
    disk.flip_bit(data_log_name(3), DATA_LOG_HEADER_BYTES + 20, 1)
    damaged = check(disk, FILLED.index(), FILLED.sequences_of(2, 0, 1 << 30))
    assert {place.data_log for place in damaged} == {2, 3}


def test_newest_data_log_of_which_nothing_can_be_read_is_set_aside() -> None:
    for index in (None, FILLED.index()):
        disk = FILLED.copy()
        file = disk.open(data_log_name(3))
        file.append(Random(1).randbytes(600))
        damaged = check(disk, index, FILLED.sequences_of(3, 0, 1 << 30))
        assert [place.data_log for place in damaged] == [3] and disk.list(QUARANTINE) == ["data-3.log"]


@pytest.mark.parametrize("nth", range(5, 25, 4))
def test_damaged_body_costs_its_message_alone_where_only_later_records_knew_that_it_was_durable(nth: int) -> None:
    disk = FILLED.copy()
    disk.remove(f"{STATE_DIRECTORY}/mark")
    offset, header, _ = [record for record in walked(disk, 1)[1] if record.header.kind == MESSAGE][nth]
    disk.flip_bit(data_log_name(1), offset + header.length - 1, 1)
    (spoilt,) = {max(FILLED.sequences_of(1, offset, offset + 1))}
    opened = reopened(disk)
    assert opened.report.damaged == () and opened.lane().is_pending(spoilt)
    assert set(readable(opened)) == set(FILLED.bodies) - FILLED.gone - {spoilt}


def test_repaired_journal_verifies() -> None:
    disk = FILLED.copy()
    offset, header, _ = walked(disk, 2)[1][5]
    disk.flip_bit(data_log_name(2), offset + 20, 1)
    opened = reopened(disk)
    (place,) = opened.report.damaged
    assert (place.lost_bytes, place.lost_records) == (header.length, 1)
    opened.store.close()
    assert judge(list(examine_all(disk))).findings == ()
    assert walked(disk, 2)[1][5].header.kind == LOST


def test_damaged_bytes_are_copied_to_the_quarantine_before() -> None:
    disk = FILLED.copy()
    offset, header, _ = walked(disk, 2)[1][5]
    disk.flip_bit(data_log_name(2), offset + 20, 1)
    damaged = disk.image()[data_log_name(2)][offset : offset + header.length]
    (place,) = reopened(disk).report.damaged
    assert disk.image()[f"{QUARANTINE}/damage-2-{offset}"] == damaged and place.unkept_bytes == 0


def test_quarantine_of_damage_is_bounded() -> None:
    disk = FILLED.copy()
    disk.make_directory(QUARANTINE)
    for n in range(PARTS_MAX):
        disk.open(f"{QUARANTINE}/damage-9-{n}", create=True)
    offset = walked(disk, 2)[1][5].offset
    disk.flip_bit(data_log_name(2), offset + 20, 1)
    assert len(reopened(disk).report.damaged) == 1
    assert len(disk.list(QUARANTINE)) == PARTS_MAX


def test_data_logs_in_the_quarantine_take_no_place_of_a_part() -> None:
    disk = FILLED.copy()
    disk.make_directory(QUARANTINE)
    for n in range(PARTS_MAX):
        disk.open(f"{QUARANTINE}/data-{100 + n}.log", create=True)
    offset = walked(disk, 2)[1][5].offset
    disk.flip_bit(data_log_name(2), offset + 20, 1)
    (place,) = reopened(disk).report.damaged
    assert f"damage-2-{offset}" in disk.list(QUARANTINE) and place.unkept_bytes == 0


def spoil_all_of(disk: SimulatedDisk, data_log: int) -> bytes:
    """Make a data log unreadable; return what it is now."""
    name = data_log_name(data_log)
    disk.open(name).append(Random(data_log).randbytes(len(disk.image()[name])))
    return disk.image()[name]


def with_unreadable(data_logs: int) -> SimulatedDisk:
    """A journal whose first data logs can't be read, with an intact one behind them."""
    opened = OpenStore(SimulatedDisk(), SimulatedMetadataStore(), max_file_bytes=FILE_BYTES)
    for _ in range(data_logs):
        opened.add(BODY)
        with opened.lock:
            opened.store.journal.roll()
    opened.store.close()
    assert isinstance(opened.disk, SimulatedDisk)
    for data_log in range(1, data_logs + 1):
        spoil_all_of(opened.disk, data_log)
    return opened.disk


def test_of_unreadable_data_logs_the_newest_are_kept_and_what_is_deleted_is_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = with_unreadable(DATA_LOGS_MAX + 1)
    oldest = disk.image()[data_log_name(1)]
    damaged = reopened(disk).report.damaged
    assert disk.list(QUARANTINE) == sorted(f"data-{data_log}.log" for data_log in range(2, DATA_LOGS_MAX + 2))
    assert {place.data_log: place.unkept_bytes for place in damaged if place.unkept_bytes} == {1: len(oldest)}
    assert "data-1.log was deleted from the quarantine" in caplog.text


def test_data_log_in_the_quarantine_stays_when_the_one_that_took_its_place_can_be_read_no_more() -> None:
    disk = with_unreadable(1)
    before = disk.image()[data_log_name(1)]
    reopened(disk).store.close()
    spoiled = spoil_all_of(disk, 1)
    (place,) = reopened(disk).report.damaged
    assert disk.image()[f"{QUARANTINE}/data-1.log"] == before != spoiled
    assert place.unkept_bytes == len(spoiled)


@pytest.mark.parametrize("is_cut", [False, True])
def test_bytes_that_a_full_quarantine_has_no_copy_of_are_told(caplog: pytest.LogCaptureFixture, is_cut: bool) -> None:
    disk = FILLED.copy()
    disk.make_directory(QUARANTINE)
    for n in range(PARTS_MAX):
        disk.open(f"{QUARANTINE}/damage-9-{n}", create=True)
    offset = walked(disk, 2)[1][5].offset
    overwritten = LOST_BYTES
    if is_cut:
        overwritten = spoil_behind(disk, 2, offset)
    else:
        disk.flip_bit(data_log_name(2), offset + 20, 1)
    (place,) = reopened(disk).report.damaged
    assert (place.offset, place.unkept_bytes) == (offset, overwritten)
    assert f"the quarantine has no copy of {overwritten} of the bytes" in caplog.text


def test_bytes_are_told_of_which_the_quarantine_has_only_those_that_were_there_before() -> None:
    disk = FILLED.copy()
    offset = walked(disk, 2)[1][5].offset
    disk.flip_bit(data_log_name(2), offset + 20, 1)
    assert [place.unkept_bytes for place in reopened(disk).report.damaged] == [0]
    before = disk.image()[f"{QUARANTINE}/damage-2-{offset}"]
    cut_bytes = spoil_behind(disk, 2, offset)
    (place,) = reopened(disk).report.damaged
    assert (place.offset, place.unkept_bytes) == (offset, cut_bytes)
    assert disk.image()[f"{QUARANTINE}/damage-2-{offset}"] == before


def test_bytes_beyond_one_part_that_are_cut_are_told() -> None:
    disk = SimulatedDisk()
    opened = OpenStore(disk, SimulatedMetadataStore(), max_file_bytes=FILE_BYTES)
    for _ in range(2):
        opened.add(b"x" * (PART_BYTES_MAX + 1000))
    opened.store.close()
    offset = walked(disk, 2)[1][1].offset
    cut_bytes = spoil_behind(disk, 2, offset)
    (place,) = reopened(disk).report.damaged
    assert (place.offset, place.unkept_bytes) == (offset, cut_bytes - PART_BYTES_MAX)
    assert len(disk.image()[f"{QUARANTINE}/damage-2-{offset}"]) == PART_BYTES_MAX


def test_disk_without_space_for_the_copy_leaves_the_journal_as_it_is() -> None:
    disk = FILLED.copy()
    disk.flip_bit(data_log_name(2), walked(disk, 2)[1][5].offset + 20, 1)
    before = [disk.image()[data_log_name(data_log)] for data_log in data_logs(disk)]
    disk.fail("write", 1, errno.ENOSPC)
    with pytest.raises(StoreFailed, match="could not be opened"):
        reopened(disk)
    assert [disk.image()[data_log_name(data_log)] for data_log in data_logs(disk)] == before
    disk.cure()
    assert len(reopened(disk).report.damaged) == 1


def spoil_behind(disk: SimulatedDisk, data_log: int, offset: int) -> int:
    """Overwrite a data log from there to its end, so that nothing behind is a record; return how many bytes."""
    size = len(disk.image()[data_log_name(data_log)]) - offset
    file = disk.open(data_log_name(data_log))
    file.seek(offset)
    file.append(b"\xff" * size)
    return size


@pytest.mark.parametrize("gone", [2, 3])
@pytest.mark.parametrize("cut", [PowerCut.ANY, PowerCut.SYNCED, None])
def test_crash_at_any_call_of_a_repair_is_repaired_by_the_next(cut: PowerCut | None, gone: int) -> None:
    random = Random(5)
    disk = FILLED.copy()
    touched = set[int]()
    for data_log, nth in ((1, 3), (5 - gone, 2), (5 - gone, 3)):
        offset, header, _ = walked(FILLED.disk, data_log)[1][nth]
        disk.flip_bit(data_log_name(data_log), offset + 20, 1)
        touched |= FILLED.sequences_of(data_log, offset, offset + header.length)
    disk.remove(data_log_name(gone))
    touched |= FILLED.sequences_of(gone, 0, 1 << 30)
    images: list[SimulatedDisk] = []

    def crash(call: str, name: str) -> None:
        images.append(disk.crash_power(random, cut) if cut is not None else disk.crash_process())

    disk.on_call = crash
    reopened(disk)
    for image in images[:: len(images) // 25]:
        check(image, None, touched)
    assert len(images) > 25


# What is said.


def test_refusal_names_place_bytes_behind_it_and_remedy() -> None:
    disk = FILLED.copy()
    offset = walked(disk, 2)[1][5].offset
    disk.flip_bit(data_log_name(2), offset + 20, 1)
    sizes = {data_log: len(disk.image()[data_log_name(data_log)]) for data_log in data_logs(disk)}
    before = disk.image()
    with pytest.raises(JournalCorrupt, match='on_missing_data_log="report"') as caught:
        reopened(disk, report=False)
    assert (caught.value.data_log, caught.value.offset) == (2, offset)
    assert caught.value.behind_bytes == sizes[2] + sizes[3] - offset
    assert f"{caught.value.behind_bytes} bytes" in str(caught.value) and disk.image() == before


def test_log_and_report_name_each_place_and_no_body(caplog: pytest.LogCaptureFixture) -> None:
    disk = FILLED.copy()
    for nth in (5, 9):
        disk.flip_bit(data_log_name(2), walked(FILLED.disk, 2)[1][nth].offset + 20, 1)
    with caplog.at_level(logging.DEBUG):
        opened = reopened(disk)
        readable(opened)
    assert len(opened.report.damaged) == 2 and not opened.report.clean
    for place in opened.report.damaged:
        assert f"data-2.log at offset {place.offset}:" in caplog.text and "1 records are lost" in caplog.text
    assert "body" not in caplog.text


def boundaries(data_log: int) -> list[int]:
    walk, records = walked(FILLED.disk, data_log)
    return [record.offset for record in records[1:]] + [walk.end]


@pytest.mark.parametrize("is_short", [False, True])
def test_every_byte_of_what_was_durable_at_the_end_is_counted_and_logged_once(
    caplog: pytest.LogCaptureFixture, is_short: bool
) -> None:
    """Also where it reads as zeros, or the file ends before it, so that there is nothing to cut."""
    begins = boundaries(3)
    for begin in begins[:-1]:
        disk = FILLED.copy()
        if is_short:
            disk.open(data_log_name(3)).truncate(begin)
        else:
            disk.zero(data_log_name(3), begin, begins[-1] - begin)
        caplog.clear()
        opened = reopened(disk)
        lost_bytes = begins[-1] - begin
        assert opened.report.truncated_bytes == (0 if is_short else lost_bytes)
        assert [(place.data_log, place.offset, place.lost_bytes) for place in opened.report.damaged] == [
            (3, begin, lost_bytes)
        ]
        told = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
        assert [text for text in told if f"data-3.log at offset {begin}:" in text and f"{lost_bytes} bytes" in text]
        assert len(told) == 1, told


def test_zeros_where_the_end_of_a_sealed_data_log_was_are_counted() -> None:
    begins = boundaries(2)
    for begin in begins[:-1:7]:
        disk = FILLED.copy()
        disk.zero(data_log_name(2), begin, begins[-1] - begin)
        assert [place.lost_bytes for place in reopened(disk).report.damaged] == [begins[-1] - begin]


def test_newer_format_is_refused_in_either_mode_and_left_as_it_is() -> None:
    disk = FILLED.copy()
    from zlib import crc32

    data = bytearray(disk.image()[data_log_name(2)][:DATA_LOG_HEADER_BYTES])
    data[8] = 4
    data[56:60] = crc32(data[:56]).to_bytes(4, "little")
    disk.open(data_log_name(2)).append(bytes(data))
    before = disk.image()
    with pytest.raises(JournalCorrupt, match="version 4"):
        reopened(disk)
    assert disk.image() == before


def test_torn_tail_is_no_damage() -> None:
    opened = OpenStore(SimulatedDisk(), SimulatedMetadataStore(), max_file_bytes=FILE_BYTES)
    opened.add(BODY)
    assert isinstance(opened.disk, SimulatedDisk)
    opened.disk.fail("write", 1, 5, written_bytes=100)
    with pytest.raises(Exception, match="write failed"):
        opened.add(BODY)
    again = reopened(opened.disk.crash_process())
    assert again.report.damaged == () and again.report.truncated_bytes == 100


def test_queue_whose_name_is_lost_is_served_by_its_number() -> None:
    bay = SimulatedBay(max_file_length="64KiB")
    bay.queue("orders").send(b"kept")
    disk = bay.disk.crash_process()
    (record,) = [record for record in walked(disk, 1)[1] if record.header.kind == 4]
    disk.flip_bit(data_log_name(1), record.offset + 20, 1)
    bay.bay.close()
    settings = Settings(background=False, memory_limit="4MiB", max_file_length="64KiB", on_missing_data_log="report")
    damaged = bay.disk.crash_process()
    damaged.flip_bit(data_log_name(1), record.offset + 20, 1)
    again = open_forebay(damaged, SimulatedMetadataStore(), settings, ManualClock(3))
    assert again.destinations() == ["recovered-1"] and len(again.recovery.damaged) == 1
    with again.queue("recovered-1").subscribe() as consumer:
        assert [delivery.body for delivery in consumer.take(10)] == [b"kept"]


def test_record_of_loss_has_room_in_the_smallest_record() -> None:
    """An attest record has 32 bytes."""
    opened = OpenStore(SimulatedDisk(), SimulatedMetadataStore(), max_file_bytes=FILE_BYTES)
    opened.add(BODY)
    opened.store.syncer.sync()
    assert opened.store.attestation.write()
    offset = opened.store.journal.offset - 32
    opened.add(BODY)
    opened.store.close()
    disk = opened.disk
    assert isinstance(disk, SimulatedDisk) and LOST_BYTES > 32
    disk.flip_bit(data_log_name(1), offset + 20, 1)
    again = reopened(disk)
    assert [(place.lost_bytes, place.lost_records) for place in again.report.damaged] == [(32, 1)]
    assert again.bodies() == [BODY, BODY] and data_log_name(1).startswith(JOURNAL)


def test_data_log_that_was_dropped_is_not_reported_as_missing() -> None:
    """The newest state record still names it; the drop record behind that says why it is not there."""
    bay = SimulatedBay(max_file_length="64KiB", sync="always", on_missing_data_log="report")
    queue = bay.queue("orders")
    with queue.subscribe(prefetch=0) as consumer:
        for _ in range(3):
            queue.send_many(Message(bytes(1000)) for _ in range(60))
            consumer.ack(consumer.take(60))
        deleted = bay.bay.cleanup().deleted
        for n in range(4):
            queue.send(b"body %d" % n)
    newest = bay.journal.data_log
    assert deleted and max(deleted) < newest
    bay.disk.flip_bit(data_log_name(newest), bay.disk.image()[data_log_name(newest)].index(b"body 1") - 20, 1)
    bay.crash(is_index_lost=True)
    assert [place.data_log for place in bay.bay.recovery.damaged] == [newest]
    assert [delivery.body for delivery in bay.queue("orders").subscribe().take(10)] == [b"body 0", b"body 2", b"body 3"]
    assert not set(deleted) & set(bay.bay.cleanup().remaining)
    bay.check()


def test_a_checkpoint_at_a_record_that_is_lost_tells_the_sequences_of_queues_and_not_of_what_was_delayed() -> None:
    made = SimulatedBay(max_file_length="64KiB", on_missing_data_log="report", sync="always")
    queue = made.queue()
    for body in (b"back later", b"kept"):
        queue.send(body)
    with queue.subscribe() as consumer:
        later, kept = take_up_to(consumer, 2)
        later.nack(delay=60.0)
        kept.nack()
    made.bay.checkpoint()
    position = made.journal.end
    queue.send(b"behind the checkpoint")
    made.disk.flip_bit(data_log_name(1), (position & OFFSET_MASK) + 20, 1)
    made.crash()
    assert len(made.bay.recovery.damaged) == 1
    with made.queue().subscribe() as consumer:
        assert [delivery.body for delivery in take_up_to(consumer, 5)] == [b"kept"]
        made.clock.advance(60.0)
        assert [delivery.body for delivery in take_up_to(consumer, 5)] == [b"back later"]
