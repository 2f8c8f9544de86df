"""Each record and each data log of a store with topics and transactions damaged in turn, and the store repaired.

What remains is an ordinary store: every structure agrees with itself, it opens in either mode without a further word
about the damage, an index made anew says the same, and all that a store does goes on.
"""

from __future__ import annotations

from collections import Counter

import pytest
from busy_store import busy_store, contents, opened, records
from crashing import same
from interplay import described, use
from interplay_model import QUEUES, TOPICS, check_stored
from simulated_bay import SimulatedBay
from simulated_disk import SimulatedDisk
from simulated_metadata import SimulatedMetadataStore

from forebay import JournalCorrupt, Message
from forebay.store.disk.layout import JOURNAL
from forebay.store.format.record import (
    DESTINATION,
    KIND_NAMES,
    MESSAGE,
    SUBSCRIBE,
    decode_header,
    encode_lost,
    log_sequence_behind,
    verify_head,
)


def damaged(store: SimulatedBay, kind: int, nth: int = 0) -> SimulatedDisk:
    """A closed store's disk with the nth record of a kind damaged."""
    disk = store.disk.crash_process()
    name, offset, _ = [found for found in records(disk) if found[2] == kind][nth]
    disk.flip_bit(name, offset + 20, 1)
    return disk


@pytest.mark.parametrize("length", range(32, 50))
def test_record_of_loss_verifies_whatever_its_length(length: int) -> None:
    """An unsubscribe record has 36 bytes: room for a header and not for the number of records."""
    data = encode_lost(7, 5, 1, 3, length).ljust(length, b"?")
    header = decode_header(data)
    verify_head(header, data[: header.head_bytes], 7)
    assert (header.length, log_sequence_behind(header, data)) == (length, 8)


def one_topic() -> SimulatedBay:
    """A topic that is told of in the first data log, and restated in the second."""
    store = SimulatedBay(max_file_length="64KiB", sync="always")
    store.bay.topic("news").subscribe(durable="all").close()
    store.bay.topic("news").send(b"first")
    store.reopen()
    store.bay.close()
    return store


def test_topic_of_which_the_record_is_lost_is_one_with_all_that_came_for_it() -> None:
    bay = opened(damaged(one_topic(), DESTINATION), SimulatedMetadataStore(), on_missing_data_log="report")
    bay.topic("news").send(b"second")
    assert (bay.destinations(), bay.topics()) == ([], ["news"])
    assert contents(bay)["news", "all"] == [b"first", b"second"]
    check_stored(bay)


def test_lane_of_a_topic_of_which_nothing_is_told_before_its_messages_becomes_a_topics() -> None:
    store = one_topic()
    disk = damaged(store, DESTINATION)
    name, offset, _ = next(found for found in records(store.disk) if found[2] == SUBSCRIBE)
    disk.flip_bit(name, offset + 20, 1)
    bay = opened(disk, SimulatedMetadataStore(), on_missing_data_log="report")
    bay.topic("news").send(b"second")
    assert (bay.destinations(), bay.topics()) == ([], ["news"])
    assert contents(bay)["news", "all"] == [b"second"]
    check_stored(bay)


def test_acks_of_a_subscription_of_which_the_beginning_is_lost_make_no_queue() -> None:
    store = SimulatedBay(max_file_length="64KiB", sync="always")
    with store.bay.topic("news").subscribe(durable="all") as consumer:
        store.bay.topic("news").send_many([Message(b"first"), Message(b"second")])
        consumer.ack(consumer.take(1))
    store.bay.close()
    bay = opened(damaged(store, SUBSCRIBE), SimulatedMetadataStore(), on_missing_data_log="report")
    assert (bay.destinations(), bay.topics()) == ([], ["news"])


def transaction_of_two_slices(*, is_prepared: bool) -> SimulatedBay:
    store = SimulatedBay(max_file_length="64KiB", sync="always")
    transaction = store.bay.transaction()
    for name in ("orders", "prices"):
        store.bay.queue(name).send(b"in", transaction=transaction)
    if is_prepared:
        transaction.prepare(b"xid")
    else:
        transaction.commit()
    store.bay.close()
    return store


def test_lost_slice_costs_its_own_messages_of_a_commit_and_no_later_open_complains() -> None:
    disk = damaged(transaction_of_two_slices(is_prepared=False), MESSAGE)
    for mode in ("report", "refuse"):
        bay = opened(disk, SimulatedMetadataStore(), on_missing_data_log=mode)
        assert [bay.queue(name).depth for name in ("orders", "prices")] == [0, 1]
        disk = disk.crash_process()


def test_lost_slice_costs_its_own_messages_of_a_prepared_transaction() -> None:
    disk = damaged(transaction_of_two_slices(is_prepared=True), MESSAGE)
    opened(disk, SimulatedMetadataStore(), on_missing_data_log="report")
    disk = disk.crash_process()
    bay = opened(disk, SimulatedMetadataStore())
    (transaction,) = bay.prepared()
    transaction.commit()
    for found in (bay, opened(disk.crash_process(), SimulatedMetadataStore())):
        assert [found.queue(name).depth for name in ("orders", "prices")] == [0, 1]
        check_stored(found)


def test_damaged_slice_of_a_prepared_transaction_is_met_by_opening_and_not_by_the_commit() -> None:
    """The index has no reason to read it."""
    store = transaction_of_two_slices(is_prepared=True)
    store.open_again()
    store.bay.close()
    disk = damaged(store, MESSAGE)
    with pytest.raises(JournalCorrupt):
        opened(disk.crash_process(), same(store.metadata))
    bay = opened(disk, same(store.metadata), on_missing_data_log="report")
    (transaction,) = bay.prepared()
    transaction.commit()
    assert [bay.queue(name).depth for name in ("orders", "prices")] == [0, 1]


def test_data_log_that_breaks_off_before_one_whose_number_is_not_the_next_is_repaired() -> None:
    """A power cut took the one between when it was begun, and its number is not given again."""
    disk = SimulatedDisk()
    opened(disk, SimulatedMetadataStore())
    torn = disk.open("journal/data-2.log", create=True)
    torn.preallocate(65_536)
    opened(disk, SimulatedMetadataStore())
    assert [name for name in disk.list(JOURNAL) if name.startswith("data")] == ["data-1.log", "data-3.log"]
    disk.flip_bit("journal/data-1.log", 64 + 20, 1)
    for mode, places in (("report", 1), ("refuse", 0)):
        bay = opened(disk, SimulatedMetadataStore(), on_missing_data_log=mode)
        assert len(bay.recovery.damaged) == places
        disk = disk.crash_process()


def examine(store: SimulatedBay, name: str, offset: int, kind: int, *, is_index_lost: bool) -> None:
    disk = store.disk.crash_process()
    if kind:
        disk.flip_bit(name, offset + 20, 1)
    else:
        disk.remove(name)
        disk.sync_directory(JOURNAL)
    metadata = SimulatedMetadataStore() if is_index_lost else same(store.metadata)
    bay = opened(disk, metadata, on_missing_data_log="report")
    check_stored(bay)
    found = contents(bay)
    if is_index_lost:
        bay = opened(disk.crash_process(), SimulatedMetadataStore())
        assert bay.recovery.damaged == ()
        assert contents(bay) == found
        assert described(bay) == described(opened(disk.crash_process(), same(metadata)))
    if kind not in (0, DESTINATION):
        assert {*bay.destinations(), *bay.topics()} <= {*QUEUES, *TOPICS}
    disk = disk.crash_process()
    bay = opened(disk, metadata)
    use(bay)
    if is_index_lost:
        assert contents(opened(disk.crash_process(), SimulatedMetadataStore())) == contents(bay)


def examine_all(*, reopens: bool, is_index_lost: bool, most: int = 1000) -> None:
    """most: so many records of each kind."""
    store = busy_store(reopens=reopens)
    seen: Counter[int] = Counter()
    for name, offset, kind in records(store.disk):
        seen[kind] += 1
        if seen[kind] > most:
            continue
        try:
            examine(store, name, offset, kind, is_index_lost=is_index_lost)
        except Exception as error:
            what = KIND_NAMES.get(kind, "all of it")
            raise AssertionError(f"{name} at {offset} ({what}): {error!r}") from error
    assert len(seen) >= 11


def test_any_damaged_record_leaves_an_ordinary_store() -> None:
    examine_all(reopens=False, is_index_lost=True, most=2)


@pytest.mark.soak
@pytest.mark.parametrize("reopens, is_index_lost", [(False, False), (False, True), (True, False), (True, True)])
def test_any_damaged_record_leaves_an_ordinary_store_of_many_data_logs_and_with_its_index(
    reopens: bool, is_index_lost: bool
) -> None:
    examine_all(reopens=reopens, is_index_lost=is_index_lost)
