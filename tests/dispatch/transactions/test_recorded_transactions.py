"""Transactions in the journal: what they keep of it, what is left of them after a crash, and commits of any size."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import threading
import traceback
from copy import copy
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from inside import inside, open_forebay
from simulated_bay import SimulatedBay
from simulated_disk import PowerCut, SimulatedDisk
from simulated_metadata import SimulatedMetadataStore
from waiting_senders import TellingClock

import forebay
from forebay import DestinationPolicy, Forebay, JournalCorrupt, Message, Settings, StoreFailed, StoreFull
from forebay.store.format.record import RecordDamaged
from forebay.store.inspect.dump import dump
from forebay.store.metadata.metadata_store import MetadataFull, MetadataUnopened
from forebay.store.numbering import OFFSET_BITS
from forebay.store.recovery.verify import examine_all, judge
from forebay.store.state.branches import read_lengths
from forebay.testing import ManualClock

SMALL_FILES: dict[str, Any] = {"max_file_length": "64KiB", "memory_limit": "16MiB"}
FILLER = bytes(20_000)


def fill(bay: SimulatedBay, name: str = "filler") -> None:
    """Begin data logs that nothing needs."""
    queue = bay.queue(name)
    consumer = queue.subscribe(prefetch=0)
    queue.send_many(Message(FILLER) for _ in range(12))
    while deliveries := consumer.take(100):
        consumer.ack(deliveries)
    consumer.close()


def data_logs(bay: SimulatedBay) -> list[int]:
    return sorted(bay.journal.sizes)


def crashed(bay: SimulatedBay, *, with_index: bool = True) -> SimulatedBay:
    """The process was killed, and the next one opens what it left."""
    again = copy(bay)
    again.disk, again.clock = bay.disk.crash_process(), TellingClock(99)
    again.metadata = type(bay.metadata)()
    if with_index:
        again.metadata.history = bay.metadata.history.copy()
    again.open_again()
    return again


# ------------------------------------------------------------------ what stays of the journal


@pytest.mark.parametrize("outcome", ["commit", "rollback", "prepare"])
def test_an_open_transaction_keeps_its_data_logs_until_its_outcome(outcome: str) -> None:
    bay = SimulatedBay(**SMALL_FILES)
    queue = bay.queue()
    transaction = bay.bay.transaction()
    queue.send_many((Message(FILLER) for _ in range(12)), transaction=transaction)
    transaction.write_gathered()
    home = {placed.position >> 32 for branch in bay.store.branches.open for placed in branch}
    assert home and bay.store.branches.data_logs() == {transaction.name: home}
    fill(bay)
    bay.bay.cleanup()
    assert home <= set(data_logs(bay))
    if outcome == "commit":
        transaction.commit()
        bay.bay.cleanup()
        assert home <= set(data_logs(bay)), "its messages are pending"
        consumer = queue.subscribe()
        while deliveries := consumer.take(100):
            consumer.ack(deliveries)
    elif outcome == "prepare":
        transaction.prepare(b"x")
        fill(bay)
        bay.bay.cleanup()
        assert home <= set(data_logs(bay))
        transaction.rollback()
    else:
        transaction.rollback()
    fill(bay)
    bay.bay.cleanup()
    assert home.isdisjoint(data_logs(bay))
    assert all(use.committed_data_logs <= set(data_logs(bay)) for use in bay.index.data_log_uses.values())
    bay.check()


@pytest.mark.parametrize("with_index", [True, False])
def test_a_commit_record_stays_as_long_as_a_message_of_it(with_index: bool) -> None:
    bay = SimulatedBay(**SMALL_FILES)
    queue = bay.queue()
    transaction = bay.bay.transaction()
    queue.send_many((Message(FILLER) for _ in range(12)), transaction=transaction)
    transaction.write_gathered()
    fill(bay)
    transaction.commit()
    home = bay.journal.data_log
    fill(bay)
    bay.bay.cleanup()
    assert home in data_logs(bay)
    again = crashed(bay, with_index=with_index)
    assert again.queue().depth == 12
    consumer = again.queue().subscribe(prefetch=0)
    count = 0
    while deliveries := consumer.take(100):
        count += len(deliveries)
        consumer.ack(deliveries)
    assert count == 12
    fill(again)
    again.bay.cleanup()
    assert home not in data_logs(again)
    assert crashed(again, with_index=False).queue().depth == 0


def test_a_part_of_a_transaction_that_is_deleted_leaves_holes() -> None:
    bay = SimulatedBay(**SMALL_FILES)
    queue = bay.queue()
    with bay.bay.transaction() as transaction:
        queue.send_many((Message(b"%02d" % n + FILLER) for n in range(40)), transaction=transaction)
        transaction.write_gathered()
        homes = sorted({placed.position >> 32 for branch in bay.store.branches.open for placed in branch})
    consumer = queue.subscribe(prefetch=0)
    while deliveries := consumer.take(100):
        consumer.ack([delivery for delivery in deliveries if delivery.body[:2] != b"39"])
    fill(bay)
    bay.bay.cleanup()
    assert homes[0] not in data_logs(bay) and homes[-1] in data_logs(bay)
    again = crashed(bay, with_index=False)
    (delivery,) = again.queue().subscribe().take(10)
    assert delivery.body[:2] == b"39" and delivery.sequence == 39
    again.queue().send(b"next")
    again.check()


def prepare_and_outlive(bay: SimulatedBay, transaction: forebay.Transaction) -> None:
    """Prepare a transaction in a data log of its own, and clean up until that data log is gone."""
    transaction.write_gathered()
    fill(bay)
    bay.journal.roll()
    transaction.prepare(b"x")
    home = bay.journal.data_log
    for _ in range(3):
        fill(bay)
        bay.bay.cleanup()
    assert home not in data_logs(bay)


def test_a_prepared_branch_outlives_the_data_log_of_its_prepare_record() -> None:
    bay = SimulatedBay(**SMALL_FILES)
    queue = bay.queue()
    queue.send_many([Message(b"0"), Message(b"1")])
    transaction = bay.bay.transaction()
    queue.send(b"2", transaction=transaction)
    consumer = queue.subscribe()
    consumer.take()[0].ack(transaction)
    prepare_and_outlive(bay, transaction)
    for with_index in (True, False):
        again = crashed(bay, with_index=with_index)
        (branch,) = again.bay.prepared()
        assert [delivery.body for delivery in again.queue().subscribe().take(10)] == [b"1"]
        branch.commit()
        assert again.queue().depth == 2
        rebuilt = crashed(again, with_index=False)
        assert not rebuilt.bay.prepared()
        assert sorted(delivery.body for delivery in rebuilt.queue().subscribe().take(10)) == [b"1", b"2"]


def test_an_index_found_damaged_on_the_way_leaves_no_second_copy_of_a_branch() -> None:
    bay = SimulatedBay(**SMALL_FILES)
    queue = bay.queue()
    transaction = bay.bay.transaction()
    bay.journal.roll()
    queue.send_many([Message(b"0"), Message(b"1")])
    consumer = queue.subscribe()
    deliveries = consumer.take(2)
    queue.send(b"2", transaction=transaction)
    prepare_and_outlive(bay, transaction)
    bay.bay.checkpoint()
    deliveries[0].ack()
    checkpoint = bay.metadata.history[-1]
    assert checkpoint is not None and checkpoint.blocks
    bay.metadata.history[-1] = replace(checkpoint, blocks=dict.fromkeys(checkpoint.blocks))
    again = crashed(bay)
    assert again.bay.recovery.index_rebuilt
    (branch,) = again.bay.prepared()
    branch.commit()
    assert sorted(delivery.body for delivery in again.queue().subscribe().take(10)) == [b"1", b"2"]
    again.check()


def test_an_outcome_does_not_end_with_the_data_log_of_its_record() -> None:
    """The prepare record stays for a pending message beside it; the rollback record goes."""
    bay = SimulatedBay(**SMALL_FILES)
    queue = bay.queue()
    transaction = bay.bay.transaction()
    queue.send(b"never", transaction=transaction)
    queue.send(b"stuck")
    transaction.prepare(b"x")
    fill(bay)
    bay.journal.roll()
    transaction.rollback()
    home = bay.journal.data_log
    for _ in range(3):
        fill(bay)
        bay.bay.cleanup()
    assert home not in data_logs(bay)
    again = crashed(bay, with_index=False)
    assert not again.bay.prepared()
    assert [delivery.body for delivery in again.queue().subscribe().take(10)] == [b"stuck"]


@pytest.mark.parametrize("with_index", [True, False])
def test_a_prepare_that_the_disk_refuses_in_a_new_data_log_leaves_the_transaction_open(with_index: bool) -> None:
    """The first record of that data log does not call it prepared: a crash would bring it back as such."""
    bay = SimulatedBay(**SMALL_FILES)
    queue = bay.queue()
    transaction = bay.bay.transaction()
    queue.send(b"never", transaction=transaction)
    transaction.write_gathered()
    before = bay.journal.data_log
    queue.send(bytes((1 << 16) - bay.journal.offset - 200))
    assert bay.journal.data_log == before
    bay.disk.fail("write", 3, errno.ENOSPC)  # behind the seal and the first record of the next data log
    with pytest.raises(StoreFull):
        transaction.prepare(bytes(255))
    assert bay.journal.data_log == before + 1 and transaction.is_open
    bay.disk.cure()
    again = crashed(bay, with_index=with_index)
    assert not again.bay.prepared() and again.queue().depth == 1
    bay.bay.checkpoint()
    assert not crashed(bay, with_index=with_index).bay.prepared()
    transaction.prepare(b"x")
    assert [branch.xid for branch in crashed(bay, with_index=with_index).bay.prepared()] == [b"x"]
    transaction.commit()
    assert queue.depth == 2
    bay.check()


def test_what_was_open_at_a_crash_is_forgotten() -> None:
    bay = SimulatedBay(**SMALL_FILES)
    transaction = bay.bay.transaction()
    for _ in range(2):
        bay.queue().send_many((Message(FILLER) for _ in range(12)), transaction=transaction)
        transaction.write_gathered()
        bay.bay.checkpoint()
    bay.queue().send(b"behind the checkpoint", transaction=transaction)
    transaction.write_gathered()
    for with_index in (True, False):
        again = crashed(bay, with_index=with_index)
        assert again.queue().depth == 0 and not again.bay.prepared()
        assert not again.store.branches.undecided_data_logs
        fill(again)
        again.bay.cleanup()
        assert data_logs(again)[0] > data_logs(bay)[-1]


# ------------------------------------------------------------------ commits larger than the index


def engine_on(disk: SimulatedDisk, metadata: SimulatedMetadataStore) -> Forebay:
    settings = Settings(background=False, memory_limit="16MiB", index_cache_size="256KiB", sync="never")
    return open_forebay(disk, metadata, settings, ManualClock(3))


@pytest.mark.slow
def test_a_crash_in_a_commit_that_the_index_cannot_hold_leaves_all_of_it_or_nothing() -> None:
    """23 blocks of index for 38: checkpoints are made in the middle of the commit record."""
    disk, metadata, random = SimulatedDisk(), SimulatedMetadataStore(), Random(5)
    bay = engine_on(disk, metadata)
    first, second = bay.queue("first"), bay.queue("second")
    first.send_many(Message(b"old %d" % n) for n in range(5_000))
    consumer = first.subscribe(prefetch=0)
    transaction = bay.transaction()
    while deliveries := consumer.take(1_000):
        consumer.ack([delivery for delivery in deliveries if delivery.sequence % 64], transaction=transaction)
    for begin in range(0, 7_000, 500):
        first.send_many((Message(b"%d" % n) for n in range(begin, begin + 500)), transaction=transaction)
        second.send_many((Message(b"%d" % n) for n in range(begin, begin + 500)), transaction=transaction)
    before, after = (5_000, 0), (7_000 + 79, 7_000)
    outcomes: list[tuple[int, int]] = []

    def crash(call: str, name: str) -> None:
        for image, left in (
            (disk.crash_process(), SimulatedMetadataStore(metadata.history[-1])),
            (disk.crash_power(random, PowerCut.ANY), metadata.crash(random)),
            (disk.crash_power(random, PowerCut.SYNCED), SimulatedMetadataStore(metadata.history[-1])),
        ):
            opened = engine_on(image, left)
            outcomes.append((opened.queue("first").depth, opened.queue("second").depth))
            if not len(outcomes) % 10:
                inside(opened).index._check()

    disk.on_call = crash
    checkpoints = len(metadata.history)
    transaction.commit()
    disk.on_call = None
    assert len(metadata.history) - checkpoints > 2
    assert (first.depth, second.depth) == after
    assert set(outcomes) == {before, after}
    inside(bay).audit()
    memory = bay.statistics().memory
    assert memory.held_bytes_max <= memory.limit_bytes
    rebuilt = engine_on(disk.crash_process(), SimulatedMetadataStore())
    assert (rebuilt.queue("first").depth, rebuilt.queue("second").depth) == after
    taken = rebuilt.queue("second").subscribe(prefetch=0)
    number = 0
    while deliveries := taken.take(1_000):
        for delivery in deliveries:
            assert delivery.body == b"%d" % number
            number += 1
        taken.ack(deliveries)
    assert number == 7_000


def test_others_go_on_beside_a_large_commit() -> None:
    bay = engine_on(SimulatedDisk(), SimulatedMetadataStore())
    queue, other = bay.queue("large"), bay.queue("other")
    transaction = bay.transaction()
    queue.send_many((Message(b"x") for _ in range(20_000)), transaction=transaction)
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            other.send(b"y")
            bay.checkpoint()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        transaction.commit()
    finally:
        stop.set()
        thread.join()
    assert queue.depth == 20_000 and other.depth > 0
    inside(bay).index._check()


@pytest.mark.parametrize(
    ("problem", "missing"), [(MetadataFull, "the index has no room"), (MetadataUnopened, "no file descriptor is left")]
)
def test_a_large_commit_that_the_index_cannot_follow_says_what_is_missing(
    problem: type[MetadataFull], missing: str
) -> None:
    metadata = SimulatedMetadataStore()
    bay = engine_on(SimulatedDisk(), metadata)
    transaction = bay.transaction()
    bay.queue("large").send_many((Message(b"x") for _ in range(20_000)), transaction=transaction)
    commit, checkpoints = metadata.commit, 0

    def refused(*args: Any, **fields: Any) -> None:
        nonlocal checkpoints
        checkpoints += 1
        if checkpoints > 1:  # the first one is made before the commit record
            raise problem("as the test says")
        commit(*args, **fields)

    metadata.commit = refused  # type: ignore[method-assign]
    with pytest.raises(StoreFailed, match=missing):
        transaction.commit()


# ------------------------------------------------------------------ a disk that is full or fails


def test_a_commit_without_space_changes_nothing_and_can_be_repeated() -> None:
    bay = SimulatedBay(**SMALL_FILES)
    queue = bay.queue()
    queue.send(b"before")
    (delivery,) = queue.subscribe().take()
    transaction = bay.bay.transaction()
    queue.send(b"a", transaction=transaction)
    delivery.ack(transaction)
    for nth in (1, 2):
        bay.disk.fail("write", nth, 28)
        with pytest.raises(StoreFull):
            transaction.commit()
        bay.disk.cure()
        assert queue.depth == 1
        bay.check()
    transaction.commit()
    assert queue.depth == 1
    bay.check()
    again = crashed(bay, with_index=False)
    assert [delivery.body for delivery in again.queue().subscribe().take(10)] == [b"a"]


def test_a_block_that_finds_no_space_is_rolled_back() -> None:
    bay = SimulatedBay(**SMALL_FILES)
    queue = bay.queue()
    with pytest.raises(StoreFull), bay.bay.transaction() as transaction:
        queue.send(b"a", transaction=transaction)
        bay.disk.fail("write", 1, 28, sticky=True)
    bay.disk.cure()
    assert queue.depth == 0 and bay.bay.statistics().memory.holders["transactions"] == 0
    bay.check()


def test_a_prepare_without_space_leaves_it_open() -> None:
    bay = SimulatedBay(**SMALL_FILES)
    transaction = bay.bay.transaction()
    bay.queue().send(b"a", transaction=transaction)
    for nth in (1, 2):
        bay.disk.fail("write", nth, 28)
        with pytest.raises(StoreFull):
            transaction.prepare(b"x")
        bay.disk.cure()
    assert not bay.bay.prepared()
    bay.check()
    transaction.prepare(b"x")
    bay.check()
    transaction.commit()
    assert bay.queue().depth == 1


def test_after_a_failed_write_nothing_is_committed_and_the_next_open_decides() -> None:
    bay = SimulatedBay(**SMALL_FILES)
    queue = bay.queue()
    transaction = bay.bay.transaction()
    queue.send(b"a", transaction=transaction)
    bay.disk.fail("write", 2, 5)
    with pytest.raises(StoreFailed):
        transaction.commit()
    transaction.rollback()
    bay.disk.cure()
    assert crashed(bay).queue().depth == 0


# ------------------------------------------------------------------ damage, and who reads from outside


def test_a_commit_whose_slice_is_missing_is_corruption() -> None:
    bay = SimulatedBay(**SMALL_FILES)
    queue = bay.queue()
    transaction = bay.bay.transaction()
    queue.send_many([Message(b"a"), Message(b"b")], transaction=transaction)
    transaction.write_gathered()
    transaction._branch._positions[0] += 8
    transaction.prepare(b"x")
    with pytest.raises(StoreFailed, match="read again"):
        transaction.commit()
    with pytest.raises(JournalCorrupt):
        crashed(bay, with_index=False)


def test_the_slice_of_another_transaction_is_not_taken_for_one_of_a_commit() -> None:
    """Of the same number of messages, and every checksum is right."""
    bay = SimulatedBay()
    queue = bay.queue()
    for transaction in (bay.bay.transaction(), bay.bay.transaction()):
        queue.send_many([Message(b"a"), Message(b"b")], transaction=transaction)
        transaction.write_gathered()
    branches = bay.store.branches.open
    for branch in branches:
        branch.give_sequences(lambda lane: 0)
    (own,), (other,) = (branch.committed() for branch in branches)
    file, salt = bay.journal.open_data_logs.reader(own.position >> OFFSET_BITS)
    assert len(read_lengths(file, salt, branches[0].number, own)) == 2
    with pytest.raises(RecordDamaged, match="another transaction"):
        read_lengths(file, salt, branches[0].number, other)


def test_dump_and_verify_know_transactions() -> None:
    bay = SimulatedBay(**SMALL_FILES)
    queue = bay.queue()
    queue.send(b"old")
    (delivery,) = queue.subscribe().take()
    with bay.bay.transaction() as transaction:
        queue.send_many([Message(b"a"), Message(b"b", message_id="own")], transaction=transaction)
        delivery.ack(transaction)
    prepared = bay.bay.transaction()
    queue.send(b"c", transaction=prepared)
    prepared.prepare(b"xid")
    prepared.rollback()
    rows = list(dump(bay.disk))
    number = transaction.name
    messages = [row for row in rows if row["kind"] == "message" and "transaction" in row]
    assert [(row["transaction"], row["sequence"]) for row in messages[:2]] == [(number, None)] * 2
    assert messages[1]["message_id"] == "own" and number in messages[0]["message_id"]
    (commit,) = [row for row in rows if row["kind"] == "commit"]
    assert commit["messages"] == 2 and commit["transaction"] == number
    assert commit["acks"] == [{"destination": "orders", "priority": 4, "range": [0, 0]}]
    (prepare,) = [row for row in rows if row["kind"] == "prepare"]
    assert prepare["xid"] == b"xid".hex() and prepare["messages"] == 1
    (rollback,) = [row for row in rows if row["kind"] == "rollback"]
    assert rollback["transaction"] == prepare["transaction"]
    verdict = judge(list(examine_all(bay.disk)))
    assert verdict.findings == () and verdict.tail is None
    bay.bay.close()
    place = messages[0]["offset"] + messages[0]["length"] - 1
    bay.disk.flip_bit(f"journal/data-{messages[0]['data_log']}.log", place, 0)
    (finding,) = judge(list(examine_all(bay.disk))).findings
    assert f"of transaction {number}, place 1" in finding.problem


# ------------------------------------------------------------------ a process that is really killed


@pytest.mark.slow
@pytest.mark.parametrize("sync", ["always", "never"])
@pytest.mark.parametrize("loses_index", [False, True])
def test_a_kill_after_prepare_leaves_the_branch(sync: str, loses_index: bool, tmp_path: Path) -> None:
    fields: dict[str, Any] = {"memory_limit": "16MiB", "sync": sync, "background": False}
    child = os.fork()
    if not child:
        try:
            bay = forebay.open(tmp_path, **fields)
            orders, prices = bay.queue("orders"), bay.queue("prices")
            orders.send_many(Message(b"%d" % n) for n in range(1_000))
            consumer = orders.subscribe(prefetch=0)
            open_one, prepared = bay.transaction(), bay.transaction()
            consumer.ack(consumer.take(100), transaction=prepared)
            prices.send_many((Message(b"%d" % n) for n in range(3_000)), transaction=prepared)
            prices.send_many((Message(b"%d" % n) for n in range(3_000)), transaction=open_one)
            prepared.prepare(b"branch")
            os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    if loses_index:
        for path in tmp_path.rglob("places.db*"):
            path.unlink()
    with forebay.open(tmp_path, **fields) as bay:
        assert bay.recovery.prepared == 1
        assert (bay.queue("orders").depth, bay.queue("prices").depth) == (1_000, 0)
        (delivery,) = bay.queue("orders").subscribe().take()
        assert delivery.body == b"100"
        (branch,) = bay.prepared()
        assert branch.xid == b"branch"
        branch.commit()
    with forebay.open(tmp_path, **fields) as bay:
        assert not bay.prepared()
        assert (bay.queue("orders").depth, bay.queue("prices").depth) == (900, 3_000)


@pytest.mark.slow
@pytest.mark.parametrize("sync", ["always", "never"])
def test_messages_moved_by_many_threads_are_neither_lost_nor_doubled(sync: str, tmp_path: Path) -> None:
    """Each moves messages in a ring of queues, one transaction a batch, under a limit that is always short."""
    fields: dict[str, Any] = {"memory_limit": "4MiB", "max_file_length": "256KiB", "sync": sync}
    fields["policies"] = {">": DestinationPolicy(max_attempts=None)}  # or a message of six rollbacks is a dead letter
    names = ("first", "second", "third")
    failures: list[str] = []
    bay = forebay.open(tmp_path, checkpoint_interval_seconds=0.05, cleanup_interval_seconds=0.1, **fields)
    bay.queue("first").send_many(Message(b"%d" % n + bytes(n % 2_000)) for n in range(2_000))

    def move(thread: int) -> None:
        random = Random(thread)
        source, target = bay.queue(names[thread % 3]), bay.queue(names[(thread + 1) % 3])
        consumer = source.subscribe(prefetch=random.choice((10, 100, 0)))
        for number in range(60):
            deliveries = consumer.take(random.choice((1, 5, 50, 300)), timeout=0.01)
            transaction = bay.transaction()
            if deliveries:
                consumer.ack(deliveries, transaction=transaction)
                target.send_many((Message(delivery.body) for delivery in deliveries), transaction=transaction)
            if random.random() < 0.3:
                transaction.prepare(b"%d %d" % (thread, number))
            if random.random() < 0.7:
                transaction.commit()
            else:
                transaction.rollback()
        consumer.close()

    def work(thread: int) -> None:
        try:
            move(thread)
        except Exception:
            failures.append(traceback.format_exc())

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures[0]
    inside(bay).audit()
    bay.close()
    for loses_index in (False, True):
        copied = tmp_path.with_name(f"{tmp_path.name}-{loses_index}")
        shutil.copytree(tmp_path, copied)
        if loses_index:
            for path in copied.rglob("places.db*"):
                path.unlink()
        with forebay.open(copied, background=False, **fields) as bay:
            found: list[bytes] = []
            for name in names:
                consumer = bay.queue(name).subscribe(prefetch=0)
                while deliveries := consumer.take(100):
                    found += [delivery.body.rstrip(b"\0") for delivery in deliveries]
                    assert len(found) <= 2_000
                    consumer.nack(deliveries, delay=1_000)
            assert sorted(map(int, found)) == list(range(2_000))
