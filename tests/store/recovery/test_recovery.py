"""What opening finds after a crash, what it does about it, and what it reports."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from crash_workload import canonical, found_in
from journals import data_log_header, data_logs, power_cut
from message_stores import OpenStore
from simulated_bay import SimulatedBay
from simulated_disk import PowerCut, SimulatedDisk, SimulatedFile
from simulated_metadata import SimulatedMetadataStore

from forebay.store.disk.layout import JOURNAL, QUARANTINE, data_log_name
from forebay.store.environment.account import Unlimited
from forebay.store.errors import JournalCorrupt
from forebay.store.journal.sync_mark import SYNC_MARK
from forebay.store.quarantine import DATA_LOGS_MAX
from forebay.testing import ManualClock

BODY = bytes(1000)
LIVES = iter(range(1, 1 << 30))


def reopen(disk: SimulatedDisk, metadata: SimulatedMetadataStore | None = None, **fields: int) -> OpenStore:
    """The next process, with salts of its own; without metadata the index is lost."""
    return OpenStore(disk, metadata or SimulatedMetadataStore(), clock=ManualClock(next(LIVES)), **fields)


@pytest.fixture
def metadata() -> SimulatedMetadataStore:
    return SimulatedMetadataStore()


@pytest.fixture
def opened(metadata: SimulatedMetadataStore) -> OpenStore:
    return OpenStore(SimulatedDisk(), metadata)


def disk_of(opened: OpenStore) -> SimulatedDisk:
    assert isinstance(opened.disk, SimulatedDisk)
    return opened.disk


def exported(opened: OpenStore) -> object:
    return canonical(opened.store)


def fill(opened: OpenStore, data_logs: int) -> None:
    """Add messages until that many data logs are sealed."""
    until = opened.store.journal.data_log + data_logs
    while opened.store.journal.data_log < until:
        opened.add(BODY)


def test_every_data_log_has_a_salt_of_its_own_and_every_life_a_greater_epoch(opened: OpenStore) -> None:
    """Or the leavings of one could be taken for records of another."""
    salts: list[int] = []
    epochs: list[int] = []
    for _ in range(3):
        fill(opened, 2)
        disk = disk_of(opened)
        headers = [data_log_header(disk, data_log) for data_log in data_logs(disk)[len(salts) :]]
        salts += [header.salt for header in headers]
        epochs.append(headers[0].epoch)
        assert len(headers) > 1 and {header.epoch for header in headers} == {epochs[-1]}
        opened = reopen(disk)
    assert len(set(salts)) == len(salts) and epochs == sorted(set(epochs))


def test_power_cut_at_any_call_of_an_open_after_a_kill_takes_nothing_that_the_open_relies_on(opened: OpenStore) -> None:
    """Neither names nor content of the killed process were durable: all that is left are the newest messages fewer."""
    fill(opened, 2)
    bodies = opened.bodies()
    disk = disk_of(opened).crash_process()
    cuts: list[SimulatedDisk] = []
    disk.on_call = lambda call, name: cuts.append(power_cut(disk))
    reopen(disk)
    found = [reopen(cut).bodies() for cut in cuts]
    assert all(left == bodies[: len(left)] for left in found)
    assert found[0] == [] and found[-1] == bodies


# The torn tail.


@pytest.mark.parametrize("kept", range(0, 1064, 41))
def test_torn_tail_is_cut_and_counted_to_the_byte(opened: OpenStore, kept: int) -> None:
    for body in (b"a" * 1000, b"b" * 1000, b"c" * 1000):
        opened.add(body)
    opened.store.syncer.sync()
    end = opened.store.journal.offset
    opened.add(b"d" * 1000)
    disk = disk_of(opened).crash_process()
    file = disk.open(data_log_name(1))
    torn = file.read(end, 1064)[:kept]
    file.truncate(end)
    file.seek(end)
    file.append(torn + bytes(8192 - end - kept))
    again = reopen(disk)
    assert again.report.truncated_bytes == len(torn.rstrip(b"\0"))
    assert again.bodies() == [b"a" * 1000, b"b" * 1000, b"c" * 1000]
    assert disk.image()[data_log_name(1)] == disk_of(opened).image()[data_log_name(1)][:end]


def test_data_logs_behind_a_torn_place_go_to_quarantine(opened: OpenStore) -> None:
    opened.add(b"kept")
    opened.store.syncer.sync()
    fill(opened, 3)
    disk = disk_of(opened).crash_process()
    disk.flip_bit(data_log_name(2), 4000, 0)
    again = reopen(disk)
    kept = opened.bodies()[: len(again.bodies())]
    assert again.bodies() == kept and kept[0] == b"kept" and len(kept) > 7
    assert again.report.quarantined == 2 and again.report.truncated_bytes > 8192
    assert disk.list(QUARANTINE) == ["data-3.log", "data-4.log"]
    assert data_logs(disk) == [1, 2, 5]
    assert reopen(disk.crash_process()).report.truncated_bytes == 0


def test_what_a_killed_recovery_set_aside_does_not_come_back_with_a_power_cut(opened: OpenStore) -> None:
    """The rename was done and not synced; the journal goes on behind it."""
    opened.add(b"kept")
    opened.store.syncer.sync()
    fill(opened, 2)
    disk = disk_of(opened).crash_process()
    for data_log in (2, 3):
        disk.flip_bit(data_log_name(data_log), 10, 0)
    left: list[SimulatedDisk] = []

    def kill(call: str, name: str) -> None:
        if (call, name) == ("sync_directory", QUARANTINE):
            left.append(disk.crash_process())

    disk.on_call = kill
    reopen(disk)
    assert left
    for killed in left:
        again = reopen(killed)
        again.add(b"later")
        again.store.syncer.sync()
        bodies = reopen(killed.crash_power(Random(1), PowerCut.SYNCED)).bodies()
        assert bodies[0] == b"kept" and bodies[-1] == b"later"


def test_ids_in_quarantine_are_not_given_again(opened: OpenStore) -> None:
    opened.add(b"kept")
    opened.store.syncer.sync()
    fill(opened, 1)
    disk = disk_of(opened).crash_process()
    disk.flip_bit(data_log_name(1), 4000, 0)

    def stop(call: str, name: str) -> None:
        if call == "create":
            raise RuntimeError

    disk.on_call = stop
    with pytest.raises(RuntimeError):
        reopen(disk)
    disk.on_call = None
    assert disk.list(QUARANTINE) == ["data-2.log"]
    assert reopen(disk).store.journal.data_log == 3


def test_quarantine_is_bounded_and_keeps_the_newest_without_the_space_they_had_in_reserve(opened: OpenStore) -> None:
    disk = disk_of(opened)
    for _ in range(30):
        opened = reopen(disk)
        opened.store.syncer.sync()
        opened.add(b"torn")
        fill(opened, 1)
        disk = disk_of(opened).crash_process()
        disk.flip_bit(data_log_name(opened.store.journal.data_log - 1), 400, 0)
    reopen(disk)
    assert len(disk.list(QUARANTINE)) == DATA_LOGS_MAX
    assert f"data-{opened.store.journal.data_log}.log" in disk.list(QUARANTINE)
    assert all(len(content) < 4096 for name, content in disk.image().items() if name.startswith(QUARANTINE))


def test_empty_next_data_log_is_removed(opened: OpenStore) -> None:
    """A crash may come after the next data log was made and before the full one was sealed."""
    opened.add(b"a")
    disk = disk_of(opened).crash_process()
    disk.open(data_log_name(2), create=True).preallocate(8192)
    again = reopen(disk)
    assert (again.report.truncated_bytes, again.report.quarantined) == (0, 0)
    assert again.bodies() == [b"a"] and data_logs(disk) == [1, 3]


def test_tail_that_a_later_record_knew_is_corruption(opened: OpenStore) -> None:
    for n in range(5):
        opened.add(b"%d" % n)
        opened.store.syncer.sync()
    disk = disk_of(opened).crash_process()
    end = opened.store.journal.offset
    disk.flip_bit(data_log_name(1), end - 1, 0)  # the last body: its head still knows of the one before
    disk.flip_bit(data_log_name(1), end - 66, 0)
    disk.remove(SYNC_MARK)
    place = end - 2 * 65
    with pytest.raises(JournalCorrupt) as caught:
        reopen(disk)
    assert (caught.value.data_log, caught.value.offset) == (1, place)


# What is reported and how much is replayed.


def test_report_of_a_clean_shutdown(opened: OpenStore, metadata: SimulatedMetadataStore) -> None:
    fill(opened, 2)
    opened.store.close()
    report = reopen(disk_of(opened), metadata).report
    assert (report.clean, report.index_rebuilt, report.replayed_records) == (True, False, 0)
    assert (report.truncated_bytes, report.quarantined, report.prepared) == (0, 0, 0)


def test_clean_open_reads_no_message(opened: OpenStore, metadata: SimulatedMetadataStore) -> None:
    fill(opened, 20)
    opened.store.close()
    disk = disk_of(opened)
    reads = disk.calls["read"]
    reopen(disk, metadata)
    assert disk.calls["read"] - reads <= len(data_logs(disk)) + 3  # headers, the mark, and the end of the newest


def test_kill_replays_only_what_follows_the_checkpoint(opened: OpenStore, metadata: SimulatedMetadataStore) -> None:
    fill(opened, 3)
    opened.store.checkpointer.checkpoint()
    opened.add(b"x", b"y", b"z")
    opened.remove(4)
    report = reopen(disk_of(opened).crash_process(), metadata).report
    assert (report.clean, report.index_rebuilt, report.replayed_records) == (False, False, 2)


def test_time_of_recovery_is_reported() -> None:
    clock = ManualClock()
    disk = SimulatedDisk()
    disk.on_call = lambda call, name: clock.advance(0.25)
    opened = OpenStore(disk, SimulatedMetadataStore(), clock=clock)
    assert opened.report.seconds >= 0.25 * 10


# The index.


def random_work(opened: OpenStore, random: Random, steps: int) -> None:
    lanes = [opened.lane("orders", 4), opened.lane("orders", 9), opened.lane("prices", 0)]
    for _ in range(steps):
        lane = random.choice(lanes)
        match random.randrange(8):
            case 0 | 1 | 2:
                opened.add(random.randbytes(random.choice((0, 10, 900))), lane=lane)
            case 3:
                opened.add(
                    *(b"%d" % n for n in range(random.randint(2, min(40, lane.slice_capacity + 1)) - 1)), lane=lane
                )
            case 4 | 5:
                first = random.randint(0, lane.next_sequence)
                run = lane.pending_run(first, random.choice((1, 5, 100)))
                if run is not None:
                    opened.remove(*run, lane=lane)
            case 6:
                opened.store.checkpointer.checkpoint()
            case 7:
                opened.store.cleanup.run()


@pytest.mark.parametrize("seed", range(25))
def test_full_replay_and_replay_since_the_checkpoint_both_equal_the_live_index(seed: int) -> None:
    random = Random(seed)
    metadata = SimulatedMetadataStore()
    opened = OpenStore(SimulatedDisk(), metadata, clock=ManualClock(next(LIVES)))
    for _ in range(3):
        random_work(opened, random, 150)
        live = exported(opened)
        assert exported(reopen(disk_of(opened).crash_process())) == live
        disk = disk_of(opened).crash_process()
        opened = reopen(disk, metadata)
        assert exported(opened) == live
        opened.check()


class Meter(Unlimited):
    """An account that remembers the most it held."""

    held_bytes_max = 0

    def reserve(self, charge_bytes: int) -> bool:
        super().reserve(charge_bytes)
        self.held_bytes_max = max(self.held_bytes_max, self.held_bytes)
        return True


def test_full_replay_of_any_backlog_stays_within_what_the_index_is_guaranteed(
    opened: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """200 blocks of which each has an ack, replayed with room for 23: checkpoints on the way make it possible."""
    for _ in range(400):
        opened.add(*[b""] * 256)
    for first in range(0, opened.lane().next_sequence, 300):
        opened.remove(first)
    live = exported(opened)
    monkeypatch.setattr("message_stores.Unlimited", Meter)
    index_cache_bytes = 128 * 1024
    again = reopen(disk_of(opened).crash_process(), index_cache_bytes=index_cache_bytes)
    assert isinstance(again.account, Meter)
    assert again.account.held_bytes_max <= index_cache_bytes * 3 // 2
    assert exported(again) == live
    again.check()


class Killed(Exception):
    """The process ended here."""


class Metadata(SimulatedMetadataStore):
    """The process is killed behind its second commit."""

    commits = 0

    def commit(self, *args: Any, **fields: Any) -> None:
        super().commit(*args, **fields)
        self.commits += 1
        if self.commits == 2:
            raise Killed


@pytest.mark.parametrize("cut", [PowerCut.KEPT, PowerCut.SYNCED])
def test_crash_in_the_middle_of_a_full_replay_costs_only_time(opened: OpenStore, cut: PowerCut) -> None:
    """Also where the journal was never synced: a checkpoint on the way stands for nothing that can still be lost."""
    for _ in range(100):
        opened.add(*[b""] * 256)
    opened.remove(100, 9_000)
    disk = disk_of(opened).crash_process()
    metadata = Metadata()
    with pytest.raises(Killed):
        reopen(disk, metadata, index_cache_bytes=128 * 1024)
    again = reopen(disk.crash_power(Random(1), cut), metadata)
    assert not again.report.index_rebuilt
    if cut is PowerCut.KEPT:
        assert exported(again) == exported(opened)
        full = reopen(disk_of(opened).crash_process())
        assert 0 < again.report.replayed_records < full.report.replayed_records * 2 // 3
    else:
        assert len(again.bodies()) == again.lane().next_sequence > 10_000


def test_index_from_before_a_cleanup_is_rebuilt(opened: OpenStore, metadata: SimulatedMetadataStore) -> None:
    """A power cut may take the newest checkpoints, but never a data log that they did not need any more."""
    fill(opened, 3)
    opened.store.checkpointer.checkpoint()
    old = metadata.load()
    assert old is not None
    stale = SimulatedMetadataStore()
    blocks = [(lane, block) for lane, runs in old.blocks.items() for run in runs for block in range(run[0], run[1] + 1)]
    stale.commit(old.position, old.epoch, old.root, [(*place, metadata.read_block(*place)) for place in blocks])
    newest = opened.add(b"newest")
    opened.remove(0, newest - 1)
    fill(opened, 2)
    opened.store.checkpointer.checkpoint()
    assert opened.store.cleanup.run().deleted == (1, 2, 3)
    live = exported(opened)
    again = reopen(disk_of(opened).crash_process(), stale)
    assert exported(again) == live
    again.check()
    again.store.cleanup.run()


def test_index_from_before_a_cleanup_that_took_acks_with_their_messages_is_rebuilt(
    opened: OpenStore, metadata: SimulatedMetadataStore
) -> None:
    """Its own data log remains, and what follows that says nothing of the messages that it has pending."""
    fill(opened, 1)
    last = opened.lane().next_sequence - 2
    opened.add(b"stays")
    opened.store.checkpointer.checkpoint()
    stale = metadata.crash(Random(0))
    assert stale.load() == metadata.load()
    fill(opened, 1)
    first = opened.lane().next_sequence - 1
    opened.remove(0, last)
    fill(opened, 1)
    opened.remove(first, opened.lane().next_sequence - 1)
    opened.add(b"last")
    assert opened.store.cleanup.run().deleted == (1, 3)
    live = exported(opened)
    again = reopen(disk_of(opened).crash_process(), stale)
    assert again.report.index_rebuilt and exported(again) == live
    assert all(again.bodies())
    again.check()


# Data logs that are gone, or should be.


def names_left_at_each_unlink(opened: OpenStore) -> Iterator[SimulatedDisk]:
    """Clean up, and give every disk that a power cut while names go may leave."""
    cuts: list[SimulatedDisk] = []

    def fork(call: str, name: str) -> None:
        if call == "sync_directory" and name == JOURNAL:
            cuts.extend(disk.every_power_cut())

    disk = disk_of(opened)
    disk.on_call = fork
    assert opened.store.cleanup.run().deleted
    disk.on_call = None
    return iter(cuts)


def test_no_order_of_unlinks_brings_back_what_was_acknowledged(opened: OpenStore) -> None:
    """Messages in the first data logs, their acks in later ones: with the acks gone first, nothing may come back."""
    fill(opened, 2)
    last = opened.lane().next_sequence - 1
    fill(opened, 1)
    opened.remove(0, last)
    fill(opened, 1)
    opened.remove(last + 1, opened.lane().next_sequence - 1)
    opened.add(b"stays")
    fill(opened, 1)
    opened.store.checkpointer.checkpoint()
    disk_of(opened).open(SYNC_MARK).sync()  # or its versions are all tried, too
    live = exported(opened)
    states = 0
    for disk in names_left_at_each_unlink(opened):
        again = reopen(disk)
        assert exported(again) == live
        assert len(data_logs(disk)) == again.store.disk_use.statistics().data_logs
        states += 1
    assert states >= 2**3


def test_leftovers_of_a_drop_are_unlinked_and_named_nowhere(
    opened: OpenStore, metadata: SimulatedMetadataStore
) -> None:
    fill(opened, 3)
    opened.remove(0, opened.add(b"last"))
    before = disk_of(opened).crash_process()
    deleted = opened.store.cleanup.run().deleted
    assert deleted == (1, 2, 3)
    disk = disk_of(opened).crash_process()
    for data_log in deleted:
        file = disk.open(data_log_name(data_log), create=True)
        file.append(before.image()[data_log_name(data_log)])
    again = reopen(disk, metadata)
    assert data_logs(disk) == [4, 5]
    assert again.store.disk_use.statistics().data_logs == 2
    # The next life must not miss them.
    again.store.close()
    assert reopen(disk).report.quarantined == 0


def test_dropped_data_logs_are_forgotten_by_the_next_life(opened: OpenStore, metadata: SimulatedMetadataStore) -> None:
    fill(opened, 3)
    opened.remove(0, opened.add(b"last"))
    assert opened.store.cleanup.run().deleted == (1, 2, 3)
    again = reopen(disk_of(opened).crash_process(), metadata)
    assert set(again.store.index.data_log_uses) == {4, 5}
    assert again.store.cleanup.run().deleted == (4,)


def test_sequences_go_on_after_all_was_consumed_cleaned_up_and_the_index_lost(opened: OpenStore) -> None:
    fill(opened, 3)
    last = opened.add(b"last")
    opened.remove(0, last)
    for _ in range(3):
        opened.store.cleanup.run()
        opened.store.close()
        opened = reopen(disk_of(opened))
        assert opened.lane().next_sequence == last + 1
        assert opened.store.cleanup.run().remaining == (opened.store.journal.data_log,)
    assert opened.add(b"next") == last + 1


def test_missing_data_log_is_refused_unless_it_was_dropped(opened: OpenStore, metadata: SimulatedMetadataStore) -> None:
    fill(opened, 4)
    opened.remove(7, 20)
    opened.store.close()
    for index in (metadata, None):
        disk = disk_of(opened).crash_process()
        disk.remove(data_log_name(3))
        with pytest.raises(JournalCorrupt, match="missing") as caught:
            reopen(disk, index)
        assert caught.value.data_log == 3


def test_missing_data_log_is_missed_again_at_the_next_try(opened: OpenStore, metadata: SimulatedMetadataStore) -> None:
    """The first try must not forget what it knew."""
    fill(opened, 2)
    disk = disk_of(opened).crash_process()
    opened.store.syncer.sync()
    opened.store.checkpointer.checkpoint()
    disk = disk_of(opened).crash_process()
    disk.remove(data_log_name(3))
    for _ in range(3):
        with pytest.raises(JournalCorrupt, match="missing") as caught:
            reopen(disk, metadata)
        assert caught.value.data_log == 3


@pytest.mark.parametrize("is_gone", [True, False])
def test_data_log_that_cannot_be_opened_costs_its_messages_alone_until_it_can(is_gone: bool) -> None:
    """It was moved away below the open store, or the disk can't say where it is."""
    simulated = SimulatedBay(max_file_length="64KiB")
    bodies = [b"%03d" % n + bytes(10_000) for n in range(20)]
    for body in bodies:
        simulated.queue().send(body)
    simulated.reopen()
    content = simulated.disk.image()[data_log_name(2)]
    if is_gone:
        simulated.disk.remove(data_log_name(2))
    else:
        simulated.disk.fail("open", 2, errno.EIO)
    consumer = simulated.queue().subscribe()
    taken: list[bytes] = []
    while deliveries := consumer.take(100):
        taken += [delivery.body for delivery in deliveries]
    unreadable = simulated.bay.statistics().destinations["orders"].unreadable
    assert 0 < unreadable < len(bodies) - unreadable
    assert taken == [body for body in bodies if body in taken] and len(taken) == len(bodies) - unreadable
    if is_gone:
        file = simulated.disk.open(data_log_name(2), create=True)
        file.append(content)
    simulated.reopen()
    found = found_in(simulated.bay)["orders"]
    assert [delivery.body for delivery in found] == bodies


# Sizes.


@pytest.mark.parametrize("is_sealed", [False, True])
def test_message_larger_than_a_data_log_comes_back(is_sealed: bool) -> None:
    opened = OpenStore(SimulatedDisk(), SimulatedMetadataStore(), max_file_bytes=4096)
    bodies = [b"small", Random(1).randbytes(50_000), b"small too"]
    for body in bodies:
        opened.add(body)
    if is_sealed:
        opened.store.close()
    again = reopen(disk_of(opened).crash_process())
    assert again.bodies() == bodies
    assert again.report.truncated_bytes == 0


def test_torn_message_larger_than_a_data_log_is_cut(opened: OpenStore) -> None:
    opened.add(b"small")
    opened.store.syncer.sync()
    opened.add(bytes(1) * 50_000)
    disk = disk_of(opened).crash_process()
    disk.flip_bit(data_log_name(2), 30_000, 5)
    again = reopen(disk)
    assert again.bodies() == [b"small"]
    assert again.report.truncated_bytes > 0


def test_recovery_holds_few_files_open_however_many_data_logs_there_are(
    opened: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(opened, 40)
    held: set[SimulatedFile] = set()
    held_max = 0

    class CountingDisk(SimulatedDisk):
        def _counted(self, file: SimulatedFile) -> SimulatedFile:
            nonlocal held_max
            held.add(file)
            held_max = max(held_max, len(held))
            return file

        def open(self, name: str, *, create: bool = False) -> SimulatedFile:
            return self._counted(super().open(name, create=create))

        def open_for_reading(self, name: str) -> SimulatedFile:
            return self._counted(super().open_for_reading(name))

    monkeypatch.setattr(SimulatedFile, "close", lambda file: held.discard(file))
    disk = disk_of(opened).crash_process()
    disk.__class__ = CountingDisk
    again = reopen(disk)
    assert again.report.index_rebuilt and again.store.disk_use.statistics().data_logs == 42
    assert held_max <= 3  # the sync mark is one of them


def test_a_directory_made_just_now_is_clean_and_one_whose_first_process_was_killed_is_not() -> None:
    bay = SimulatedBay()
    assert bay.bay.recovery.clean and not bay.bay.recovery.index_rebuilt
    bay.crash()
    assert not bay.bay.recovery.clean
    bay.bay.close()
    bay.reopen()
    assert bay.bay.recovery.clean
