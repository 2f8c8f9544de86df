"""A checkpoint brings the index on disk up to the journal, never further; an idle store says once what is durable."""

from __future__ import annotations

import errno
from typing import NoReturn

import pytest
from journals import power_cut, walked
from message_stores import OpenStore, WatchedIndex, fill_data_logs
from simulated_disk import SimulatedDisk

from forebay import StoreFailed, StoreFull, TooManyFiles
from forebay.store.format.record import ATTEST
from forebay.store.metadata.metadata_store import MetadataDamaged, MetadataFull, MetadataUnopened
from forebay.store.numbering import OFFSET_BITS, OFFSET_MASK
from forebay.testing import ManualClock


def test_checkpoint_without_news_writes_nothing(metadata: WatchedIndex, opened: OpenStore) -> None:
    opened.add(b"body")
    commits = metadata.commits
    for _ in range(3):
        assert opened.store.checkpointer.checkpoint()
    assert metadata.commits == commits + 1


def test_index_never_runs_ahead_of_the_synced_journal(
    disk: SimulatedDisk, metadata: WatchedIndex, opened: OpenStore
) -> None:
    positions = []

    def look(position: int) -> None:
        data_log, offset = position >> OFFSET_BITS, position & OFFSET_MASK
        walk, _ = walked(power_cut(disk), data_log)
        assert walk.end >= offset, "a power cut would leave the index ahead of the journal"
        positions.append(position)

    metadata.before_commit = look
    for _ in range(5):
        fill_data_logs(opened, 1)
        opened.store.checkpointer.checkpoint()
    opened.store.close()
    assert len(positions) == 6 and positions == sorted(positions)


def test_checkpoint_that_finds_no_space_is_postponed_and_nothing_is_lost(
    disk: SimulatedDisk, metadata: WatchedIndex, opened: OpenStore
) -> None:
    def no_space(position: int) -> None:
        raise MetadataFull("no space")

    fill_data_logs(opened, 1)
    metadata.before_commit = no_space
    for _ in range(3):
        opened.add(b"body")
        opened.remove(0, 1)
        assert not opened.store.checkpointer.checkpoint()
        opened.check()
    assert opened.store.cleanup.run().deleted == ()
    expected = opened.pending()
    metadata.before_commit = lambda position: None
    assert opened.store.checkpointer.checkpoint()
    again = OpenStore(disk.crash_process(), metadata, clock=ManualClock(1))
    assert again.pending() == expected and again.report.replayed_records == 0


def test_no_cleanup_is_asked_for_while_the_index_has_no_space_for_the_checkpoint_before_it(
    metadata: WatchedIndex, opened: OpenStore
) -> None:
    def no_space(position: int) -> None:
        raise MetadataFull("no space")

    def asks_for_cleanup() -> bool:
        opened.clock.advance(1)
        cleanup = opened.store.cleanup
        cleanup.relocation.run_due(opened.clock.monotonic(), opened.store.checkpointer.checkpoint)
        return cleanup.take_request()

    fill_data_logs(opened, 8)
    opened.remove(0, opened.lane().next_sequence - 1)
    metadata.before_commit = no_space
    assert asks_for_cleanup(), "as far as is known a checkpoint would find room"
    assert opened.store.cleanup.delete_data_logs().removed == ()
    assert not asks_for_cleanup()
    metadata.before_commit = lambda position: None
    assert opened.store.checkpointer.checkpoint()
    assert asks_for_cleanup() and opened.store.cleanup.delete_data_logs().removed


@pytest.mark.parametrize("is_at_standstill", [False, True], ids=["before a move", "in the middle of a commit"])
def test_call_that_needs_a_checkpoint_says_whether_space_or_a_file_descriptor_is_missing(
    metadata: WatchedIndex, opened: OpenStore, is_at_standstill: bool
) -> None:
    store = opened.store
    opened.add(b"body")

    def call() -> None:
        if not is_at_standstill:
            store.checkpointer.require_index_room(1 << 20)
            return
        with store.locks.checkpoint, store.locks.sync, opened.lock:
            store.checkpointer.make_index_room(store.journal.end, store.journal.next_log_sequence)

    for problem in (MetadataUnopened, MetadataFull, MetadataUnopened):

        def refused(position: int, problem: type[MetadataFull] = problem) -> None:
            raise problem("as the test says")

        metadata.before_commit = refused
        with pytest.raises(StoreFull) as caught:
            call()
        if problem is MetadataUnopened:
            assert type(caught.value) is TooManyFiles and "RLIMIT_NOFILE" in str(caught.value)
        else:
            assert type(caught.value) is StoreFull and "free disk space" in str(caught.value)
    metadata.before_commit = lambda position: None
    assert store.checkpointer.checkpoint()
    opened.check()


def test_damaged_index_that_cannot_be_removed_fails_the_store(
    metadata: WatchedIndex, opened: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged(position: int) -> NoReturn:
        raise MetadataDamaged("a page does not verify")

    def read_only() -> NoReturn:
        raise OSError(errno.EROFS, "Read-only file system")

    metadata.before_commit = damaged
    monkeypatch.setattr(metadata, "clear", read_only)
    opened.add(b"body")
    with pytest.raises(StoreFailed, match="the index on disk is damaged"):
        opened.store.checkpointer.checkpoint()
    with pytest.raises(StoreFailed, match="the index on disk is damaged"):
        opened.add(b"more")


def test_checkpoint_is_urgent_when_replay_would_grow_too_long(disk: SimulatedDisk, metadata: WatchedIndex) -> None:
    opened = OpenStore(disk, metadata, max_checkpoint_adds=100)
    for _ in range(200):
        assert not opened.store.checkpointer.is_urgent
        opened.add(b"body")
    assert opened.store.checkpointer.is_urgent
    opened.store.checkpointer.checkpoint()
    assert not opened.store.checkpointer.is_urgent


def test_idle_store_attests_once_how_far_it_is_durable(
    disk: SimulatedDisk, metadata: WatchedIndex, opened: OpenStore
) -> None:
    opened.store.syncer.sync()
    while opened.store.attestation.write():
        opened.store.syncer.sync()
    opened.add(b"body")
    assert not opened.store.attestation.write(), "nothing more is durable"
    opened.store.syncer.sync()
    durable = opened.store.journal.durable_end
    assert opened.store.attestation.write()
    _, records = walked(disk, 1)
    assert (records[-1].header.kind, records[-1].header.durable) == (ATTEST, durable)
    for _ in range(3):
        opened.store.syncer.sync()
        assert not opened.store.attestation.write()
    opened.add(b"body")
    opened.store.checkpointer.checkpoint()
    commits, end = metadata.commits, opened.store.journal.end
    for _ in range(3):
        opened.store.syncer.sync()
        opened.store.attestation.write()
        opened.store.checkpointer.checkpoint()
    assert opened.store.journal.end == end + 32, "an idle store grows"
    assert metadata.commits == commits, "an attest record alone is no reason for a checkpoint"
