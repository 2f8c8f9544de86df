"""An open store: what was added is there until it is removed, whatever ends the process between, and then its disk is
free again.
"""

from __future__ import annotations

import errno
import logging
from random import Random

import pytest
from journals import all_records, data_logs, power_cut, walked
from message_stores import OpenStore, WatchedIndex, fill_data_logs
from simulated_disk import PowerCut, SimulatedDisk

from forebay.store.destinations_file import DESTINATIONS
from forebay.store.disk.layout import JOURNAL, data_log_name
from forebay.store.errors import Closed, StoreFailed, StoreFull
from forebay.store.format.record import DROP, HEADER_BYTES
from forebay.store.format.state_record import decode_state
from forebay.store.journal.shutdown_marker import read_shutdown_marker
from forebay.store.metadata.metadata_store import MetadataFull
from forebay.store.numbering import OFFSET_BITS
from forebay.testing import ManualClock

BODY = b"x" * 1000
NAME = "orders"


def first_of(opened: OpenStore, data_log: int) -> int:
    """The first pending sequence that lies in this data log."""
    lane = opened.lane()
    return next(
        extent.first_sequence
        for sequence, *_ in opened.pending()
        for extent in lane.extents(sequence, sequence)
        if extent.data_log == data_log
    )


# Opening.


def test_new_store_is_empty_and_says_so(disk: SimulatedDisk, opened: OpenStore) -> None:
    report = opened.report
    assert (report.clean, report.index_rebuilt, report.replayed_records, report.truncated_bytes) == (True, False, 0, 0)
    statistics = opened.store.disk_use.statistics()
    assert (statistics.live_bytes, statistics.pending_messages, statistics.data_logs) == (0, 0, 1)
    assert data_logs(disk) == [1] and opened.store.destination_table == {}


def test_every_life_begins_a_data_log_and_writes_to_no_older_one(disk: SimulatedDisk, metadata: WatchedIndex) -> None:
    image: dict[str, bytes] = {}
    for life in range(1, 5):
        opened = OpenStore(disk, metadata, clock=ManualClock(life))
        assert opened.store.journal.data_log == life
        assert all(
            disk.image()[data_log_name(data_log)] == image[data_log_name(data_log)] for data_log in range(1, life)
        )
        opened.add(b"body")
        opened.store.close()
        image = disk.image()


def test_clean_shutdown_leaves_nothing_to_replay(
    disk: SimulatedDisk, metadata: WatchedIndex, opened: OpenStore
) -> None:
    fill_data_logs(opened, 2)
    before = opened.pending()
    opened.store.close()
    again = OpenStore(disk, metadata, clock=ManualClock(1))
    assert (again.report.clean, again.report.index_rebuilt, again.report.replayed_records) == (True, False, 0)
    assert again.pending() == before
    again.check()


def test_kill_loses_nothing_and_brings_nothing_back(
    disk: SimulatedDisk, metadata: WatchedIndex, opened: OpenStore
) -> None:
    for n in range(20):
        opened.add(b"%d" % n)
    opened.store.checkpointer.checkpoint()
    opened.add(b"20", b"21", b"22")
    opened.remove(3, 7)
    opened.remove(21)
    expected = opened.pending()
    again = OpenStore(disk.crash_process(), metadata, clock=ManualClock(1))
    assert not again.report.clean and not again.report.index_rebuilt
    assert again.pending() == expected and len(expected) == 23 - 6
    again.check()


def test_lost_index_is_rebuilt_from_the_journal_alone(disk: SimulatedDisk, opened: OpenStore) -> None:
    other = opened.lane("other", 9)
    fill_data_logs(opened, 2)
    opened.add(b"a", b"b", lane=other)
    opened.remove(2, 9)
    expected = opened.pending(), opened.pending(other), opened.store.destination_table
    opened.store.close()
    again = OpenStore(disk, WatchedIndex(), clock=ManualClock(1))
    assert again.report.index_rebuilt and again.report.replayed_records > 10
    assert (again.pending(), again.pending(again.lane("other", 9)), again.store.destination_table) == expected
    again.check()


def test_sequences_never_restart_though_all_messages_and_their_data_logs_are_gone(disk: SimulatedDisk) -> None:
    opened = OpenStore(disk, WatchedIndex())
    *_, last = fill_data_logs(opened, 3)
    opened.remove(0, last)
    opened.store.close()
    for life in range(1, 4):
        opened = OpenStore(disk, WatchedIndex(), clock=ManualClock(life))
        assert opened.store.cleanup.run().remaining == (opened.store.journal.data_log,)
        assert opened.lane().next_sequence == last + 1
        opened.store.close()


def test_store_keeps_its_id_and_with_it_the_prefix_of_message_ids(disk: SimulatedDisk, opened: OpenStore) -> None:
    prefix = opened.store.message_store.id_prefix(1, 4)
    opened.store.close()
    again = OpenStore(disk, WatchedIndex(), clock=ManualClock(99))
    assert again.store.message_store.id_prefix(1, 4) == prefix


# Adding and removing.


def test_message_is_where_the_index_says_when_add_returns(opened: OpenStore) -> None:
    for n in range(30):
        opened.add(b"%d" % n * 100)
        assert opened.bodies()[-1] == b"%d" % n * 100
        opened.check()


def test_ack_that_begins_a_data_log_is_counted_there(opened: OpenStore) -> None:
    """The record that did not fit any more is an ack, and it is the first use of the new data log."""
    opened.add(b"first")
    journal = opened.store.journal
    opened.add(bytes(8192 - journal.offset - 64 - 47))
    assert opened.remove(0) == 1 and journal.data_log == 2
    assert opened.store.index.data_log_uses[2].acked_data_logs == {1}
    opened.check()


def test_removing_again_removes_nothing(opened: OpenStore) -> None:
    opened.add(b"a", b"b", b"c")
    assert [opened.remove(1), opened.remove(1), opened.remove(0, 2), opened.remove(0, 2)] == [1, 0, 2, 0]


def test_purge_of_any_depth_is_one_record_of_48_bytes(opened: OpenStore) -> None:
    for _ in range(40):
        opened.add(*[b""] * 32)
    opened.store.journal.roll()
    end = opened.store.journal.end
    assert opened.remove(0, 40 * 32 - 1) == 40 * 32
    assert opened.store.journal.end == end + 48


def test_statistics_count_what_is_there(opened: OpenStore) -> None:
    opened.add(b"12345", b"678")
    opened.add(b"90")
    opened.remove(0)
    statistics = opened.store.disk_use.statistics()
    assert (statistics.pending_messages, statistics.live_bytes, statistics.data_logs) == (2, 5, 1)
    assert statistics.journal_bytes == opened.store.journal.offset
    assert statistics.index_bytes == opened.store.index.held_bytes > 0


# Full and failing disks.


def test_full_disk_refuses_a_message_whole_and_takes_the_next_when_there_is_space(
    disk: SimulatedDisk, metadata: WatchedIndex
) -> None:
    disk.capacity_bytes = 24_000
    opened = OpenStore(disk, metadata)
    sent: list[bytes] = []
    with pytest.raises(StoreFull):
        while True:
            opened.add(b"%d" % len(sent) * 500)
            sent.append(b"%d" % len(sent) * 500)
    with pytest.raises(StoreFull):
        opened.add(*[BODY] * 9)
    assert opened.bodies() == sent
    opened.check()
    disk.capacity_bytes *= 2
    opened.add(b"at last", b"and more")
    assert opened.bodies() == [*sent, b"at last", b"and more"]
    opened.check()
    again = OpenStore(disk.crash_process(), metadata, clock=ManualClock(1))
    assert again.bodies() == [*sent, b"at last", b"and more"]


@pytest.mark.parametrize("call", ["write", "sync", "sync_directory"])
def test_failed_disk_is_refused_until_opened_again_and_keeps_what_was_durable(
    disk: SimulatedDisk, metadata: WatchedIndex, opened: OpenStore, call: str
) -> None:
    opened.add(b"durable")
    opened.store.syncer.sync()
    disk.fail(call, 1, errno.EIO, sticky=True)
    with pytest.raises(StoreFailed):
        fill_data_logs(opened, 2)
        opened.store.syncer.sync()
    disk.cure()
    for attempt in (
        lambda: opened.add(b"refused"),
        lambda: opened.remove(0),
        opened.store.checkpointer.checkpoint,
        opened.store.cleanup.run,
    ):
        with pytest.raises(StoreFailed):
            attempt()
    opened.store.close()
    mark = read_shutdown_marker(disk)
    assert mark is not None and not mark.is_clean
    again = OpenStore(power_cut(disk), metadata, clock=ManualClock(1))
    assert again.bodies()[:1] == [b"durable"]
    again.check()


# Checkpoints.


# Cleanup.


def test_acknowledged_data_logs_are_deleted_and_the_newest_stays(disk: SimulatedDisk, opened: OpenStore) -> None:
    sent = fill_data_logs(opened, 3)
    opened.remove(sent[0], sent[-1])
    newest = opened.store.journal.data_log
    report = opened.store.cleanup.run()
    assert (report.deleted, report.remaining) == ((1, 2, 3), (newest,)) and data_logs(disk) == [newest]
    assert opened.store.disk_use.statistics().data_logs == 1
    opened.check()


def test_pending_message_keeps_its_data_log(disk: SimulatedDisk, opened: OpenStore) -> None:
    sent = fill_data_logs(opened, 4)
    stuck = first_of(opened, 3)
    opened.remove(sent[0], stuck - 1)
    opened.remove(stuck + 1, sent[-1])
    assert opened.store.cleanup.run().deleted == (1, 2, 4)
    assert [sequence for sequence, *_ in opened.pending()] == [stuck]
    opened.remove(stuck)
    assert opened.store.cleanup.run().deleted == (3,)


def test_acks_pin_their_data_logs_in_a_chain(opened: OpenStore) -> None:
    """Each data log holds the acks for the one before: one stuck message in the first keeps all of them."""
    opened.add(b"stuck")
    for _ in range(5):
        sequence = opened.add(b"acknowledged in the next data log")
        opened.store.journal.roll()
        opened.remove(sequence)
    assert opened.store.cleanup.run().deleted == ()
    opened.remove(0)
    assert opened.store.cleanup.run().deleted == (1, 2, 3, 4, 5)


def test_cleanup_without_work_writes_no_record(opened: OpenStore) -> None:
    fill_data_logs(opened, 2)
    end = opened.store.journal.end
    assert opened.store.cleanup.run().deleted == () and opened.store.journal.end == end


def test_cleanup_tells_its_logger_what_it_removes(opened: OpenStore, caplog: pytest.LogCaptureFixture) -> None:
    sent = fill_data_logs(opened, 2)
    opened.remove(sent[0], sent[-1])
    with caplog.at_level(logging.DEBUG, logger="forebay.store.cleanup"):
        opened.store.cleanup.run()
    assert "Cleanup removing the data logs: [1, 2]" in caplog.messages


def test_drop_record_is_durable_before_the_first_name_goes(disk: SimulatedDisk, opened: OpenStore) -> None:
    sent = fill_data_logs(opened, 3)
    opened.remove(sent[0], sent[-1])
    dropped: list[list[int]] = []

    def look(call: str, name: str) -> None:
        if call == "remove" and name.startswith(JOURNAL):
            records = [record for _, record in all_records(power_cut(disk)) if record.header.kind == DROP]
            dropped.append(decode_state(records[-1].head[HEADER_BYTES:]).data_logs)

    disk.on_call = look
    opened.store.cleanup.run()
    assert dropped == [[1, 2, 3]] * 3


def test_crash_at_any_call_of_a_cleanup_neither_loses_nor_redelivers(disk: SimulatedDisk, opened: OpenStore) -> None:
    sent = fill_data_logs(opened, 5)
    stuck = first_of(opened, 3)
    opened.remove(sent[0], stuck - 1)
    opened.remove(stuck + 1, sent[-1])
    opened.store.syncer.sync()
    images: list[SimulatedDisk] = []

    def fork(call: str, name: str) -> None:
        images.append(disk.crash_process())
        images.extend(disk.crash_power(Random(len(images)), mode) for mode in PowerCut)

    disk.on_call = fork
    opened.store.cleanup.run()
    disk.on_call = None
    fork("", "")
    assert len(images) > 40
    for at, image in enumerate(images):
        again = OpenStore(image, WatchedIndex(), clock=ManualClock(at))
        assert [sequence for sequence, *_ in again.pending()] == [stuck], f"image {at}"
        again.store.cleanup.run()
        assert [sequence for sequence, *_ in again.pending()] == [stuck], f"image {at}"


def test_cleanup_that_could_not_delete_goes_on_where_it_stopped(disk: SimulatedDisk, opened: OpenStore) -> None:
    sent = fill_data_logs(opened, 3)
    opened.remove(sent[0], sent[-1])
    disk.fail("remove", 2, errno.EIO)
    report = opened.store.cleanup.run()
    assert report.deleted == () and report.remaining == (1, 2, 3, 4)
    assert data_logs(disk) == [2, 3, 4]
    opened.add(b"traffic goes on")
    assert opened.store.cleanup.run().deleted == (1, 2, 3) and data_logs(disk) == [4]
    assert opened.bodies() == [b"traffic goes on"]


def test_data_log_that_the_disk_refuses_to_delete_is_dropped_once_and_never_counts_again(
    disk: SimulatedDisk, opened: OpenStore, caplog: pytest.LogCaptureFixture
) -> None:
    disk.fail("remove", 1, errno.EIO, sticky=True)
    images: list[SimulatedDisk] = []
    with caplog.at_level(logging.DEBUG, logger="forebay.store.cleanup"):
        for _ in range(4):
            sent = fill_data_logs(opened, 2)
            opened.remove(sent[0], sent[-1])
            for _ in range(2):
                opened.store.cleanup.run()
            images += [disk.crash_process(), *(disk.crash_power(Random(len(images)), mode) for mode in PowerCut)]
    dropped = [
        data_log
        for _, record in all_records(disk)
        if record.header.kind == DROP
        for data_log in decode_state(record.head[HEADER_BYTES:]).data_logs
    ]
    assert dropped == sorted(set(dropped)) == data_logs(disk)[:-1], "each is named once"
    assert len([line for line in caplog.messages if line.startswith("Cleanup removing")]) == 4
    for image in images:
        image.cure()
        assert OpenStore(image, WatchedIndex(), clock=ManualClock(1)).pending() == []
    disk.cure()
    end = opened.store.journal.end
    assert opened.store.cleanup.run().deleted == tuple(dropped) and data_logs(disk) == [dropped[-1] + 1]
    assert opened.store.journal.end == end


def test_data_log_from_which_recovery_would_replay_is_never_deleted(
    disk: SimulatedDisk, metadata: WatchedIndex, opened: OpenStore
) -> None:
    def no_space(position: int) -> None:
        raise MetadataFull("no space")

    sent = fill_data_logs(opened, 3)
    opened.store.checkpointer.checkpoint()
    at = opened.store.journal.data_log
    sent += fill_data_logs(opened, 3)
    opened.remove(sent[0], sent[-1])
    metadata.before_commit = no_space
    assert max(opened.store.cleanup.run().deleted) < at
    assert OpenStore(disk.crash_process(), metadata, clock=ManualClock(1)).pending() == []


# Attesting and closing.


def test_closed_store_refuses_and_closing_twice_is_closing_once(disk: SimulatedDisk, opened: OpenStore) -> None:
    lane = opened.lane()
    opened.store.close()
    image = disk.image()
    opened.store.close()
    with pytest.raises(Closed):
        opened.add(b"refused", lane=lane)
    with pytest.raises(Closed):
        opened.store.message_store.raise_if_closed()
    assert disk.image() == image


def test_close_seals_and_marks_behind_everything(disk: SimulatedDisk, opened: OpenStore) -> None:
    opened.add(b"body")
    opened.store.close()
    walk, _ = walked(disk, 1)
    mark = read_shutdown_marker(disk)
    assert walk.is_sealed and mark is not None and mark.is_clean
    assert mark.durable_end == 1 << OFFSET_BITS | walk.end
    for image in disk.every_power_cut():
        assert _what_counts(image) == _what_counts(disk), "a clean shutdown is durable as a whole"


def _what_counts(disk: SimulatedDisk) -> dict[str, bytes]:
    """Return all files but the list for people, which is never synced and never read back."""
    return {name: content for name, content in disk.image().items() if name != DESTINATIONS}


# Against a model.


class Life:
    """A store, and per lane what must be pending in it: sequence -> body."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.disk = SimulatedDisk()
        self.metadata = WatchedIndex()
        self.lives = 0
        self.pending: dict[str, dict[int, bytes]] = {"orders": {}, "other": {}}
        self.sequences = {"orders": 0, "other": 0}
        self.max_file_bytes = self.random.choice((1500, 8192, 1 << 16))
        self.open()

    def open(self) -> None:
        self.lives += 1
        self.opened = OpenStore(
            self.disk,
            self.metadata,
            clock=ManualClock(self.lives),
            max_file_bytes=self.max_file_bytes,
            index_cache_bytes=0,
        )

    def add(self, name: str) -> None:
        lane = self.opened.lane(name)
        count = min(self.random.choice((1, 1, 3, 32, 256)), lane.slice_capacity)
        bodies = [self.random.randbytes(self.random.choice((0, 5, 300))) for _ in range(count)]
        first = self.opened.add(*bodies, lane=lane)
        assert first == self.sequences[name]
        self.pending[name].update(enumerate(bodies, first))
        self.sequences[name] += count

    def remove(self, name: str) -> None:
        first = self.random.randrange(self.sequences[name] + 5)
        last = first + self.random.choice((0, 0, 3, 40, 2000))
        hit = [sequence for sequence in self.pending[name] if first <= sequence <= last]
        removed = self.opened.remove(first, last if last > first else None, self.opened.lane(name))
        assert removed == len(hit)
        for sequence in hit:
            del self.pending[name][sequence]

    def restart(self) -> None:
        way = self.random.choice(("close", "kill", "power", "index lost"))
        if way in ("close", "index lost"):
            self.opened.store.close()
        elif way == "power":
            self.opened.store.syncer.sync()
            self.disk = power_cut(self.disk)
        else:
            self.disk = self.disk.crash_process()
        if way == "index lost":
            self.metadata = WatchedIndex()
        self.open()
        assert self.opened.report.clean == (way == "close")

    def check(self) -> None:
        self.opened.check()
        for name, pending in self.pending.items():
            lane = self.opened.lane(name)
            assert lane.next_sequence == self.sequences[name]
            found = [(sequence, body) for sequence, _, body, _ in self.opened.pending(lane)]
            assert found == sorted(pending.items()), name


@pytest.mark.parametrize("seed", range(6))
def test_random_lives_agree_with_a_dict(seed: int) -> None:
    life = Life(seed)
    for _ in range(150):
        if life.opened.store.index.is_crowded:
            life.opened.store.checkpointer.checkpoint()
        name = life.random.choice(("orders", "orders", "other"))
        action = life.random.random()
        if action < 0.5:
            life.add(name)
        elif action < 0.8:
            life.remove(name)
        elif action < 0.85:
            life.opened.store.checkpointer.checkpoint()
        elif action < 0.92:
            life.opened.store.cleanup.run()
        else:
            life.restart()
            life.check()
    life.check()
