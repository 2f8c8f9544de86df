"""Replay: records that verify and yet say what cannot be are refused with their place, or passed over where loss is
accepted. Each is written by a store's own journal, then read by the next life of that store."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from closed_stores import records
from journals import append_one, data_logs
from message_stores import OpenStore
from simulated_disk import SimulatedDisk
from simulated_metadata import SimulatedMetadataStore

from forebay import JournalCorrupt
from forebay.store.disk.layout import data_log_name
from forebay.store.format.branch import Branch, encode_branch, encode_commit
from forebay.store.format.contents import Contents
from forebay.store.format.record import (
    ACK,
    COMMIT,
    DESTINATION,
    NUMBERS,
    PREPARE,
    RELOCATED,
    RETURN,
    SEQUENCES,
    SUBSCRIBE,
    SURVIVORS,
    TRANSACTIONAL,
    UNSUBSCRIBE,
    LaneRun,
)
from forebay.store.format.return_record import ReturnedRun, returns_payload
from forebay.store.format.state_record import (
    TOPIC,
    Destination,
    Subscription,
    encode_destination,
    encode_subscription,
    encode_unsubscribe,
)
from forebay.store.format.survivors_record import survivors_payload
from forebay.store.index.destination_lane import DestinationLane
from forebay.store.journal.journal import Journal
from forebay.store.numbering import BLOCK_MESSAGES, OFFSET_BITS

NUMBER = 77 << 32 | 1


def opened_on(disk: SimulatedDisk, *, accepts_loss: bool = False) -> OpenStore:
    return OpenStore(disk, SimulatedMetadataStore(), accepts_loss=accepts_loss)


def place(journal: Journal, offset: int) -> int:
    return journal.data_log << OFFSET_BITS | offset


def committed(number: int, lane: int, position: int, messages: int = 1) -> bytes:
    """A commit record's payload: of one slice that lies there, with sequences from 10 on."""
    branch = Branch(number)
    branch.add(lane, position, messages, 100)
    branch.give_sequences(lambda _: 10)
    return encode_commit(branch)


def slice_across_blocks(journal: Journal, lane: DestinationLane, flags: int) -> None:
    journal.append_slice(flags | 4, lane.owner_number, BLOCK_MESSAGES - 1, 0, Contents([b"", b""], [b"a", b"b"]))


def copy_of_another_length(journal: Journal, lane: DestinationLane) -> None:
    append_one(journal, 4 | RELOCATED, lane.owner_number, 0, 0, b"", b"not what was sent before")


def subscription_to_nothing(journal: Journal, lane: DestinationLane) -> None:
    journal.append(SUBSCRIBE, 0, 1, encode_subscription(Subscription(50, lane.owner_number, "audit", None)))


def commit_of_nothing(journal: Journal, lane: DestinationLane) -> None:
    journal.append(COMMIT, 0, 0, committed(NUMBER, lane.number, place(journal, 64)))


def commit_of_a_slice_across_blocks(journal: Journal, lane: DestinationLane) -> None:
    contents = Contents([b"", b""], [b"a", b"b"])
    offset, _ = journal.append_slice(4 | TRANSACTIONAL, lane.owner_number, NUMBER, 0, contents)
    branch = Branch(NUMBER)
    branch.add(lane.number, place(journal, offset), 2, 100)
    branch.give_sequences(lambda _: 0)
    branch._firsts[0] = BLOCK_MESSAGES - 1
    journal.append(COMMIT, 0, 0, encode_commit(branch))


def commit_of_another_number_of_messages(journal: Journal, lane: DestinationLane) -> None:
    offset = append_one(journal, 4 | TRANSACTIONAL, lane.owner_number, NUMBER, 0, b"", b"a")
    journal.append(COMMIT, 0, 0, committed(NUMBER, lane.number, place(journal, offset), 2))


def prepared(journal: Journal, lane: DestinationLane, position: int) -> None:
    """A branch whose slice is said to lie there, and its commit."""
    branch = Branch(NUMBER, b"xid")
    branch.add(lane.number, position, 1, 100)
    journal.append(PREPARE, 0, 0, encode_branch(branch))
    journal.append(COMMIT, 0, 0, committed(NUMBER, lane.number, position))


def commit_of_a_message_of_no_transaction(journal: Journal, lane: DestinationLane) -> None:
    prepared(journal, lane, place(journal, append_one(journal, 4, lane.owner_number, 5, 0, b"", b"a")))


def commit_of_another_transaction(journal: Journal, lane: DestinationLane) -> None:
    offset = append_one(journal, 4 | TRANSACTIONAL, lane.owner_number, NUMBER + 1, 0, b"", b"a")
    prepared(journal, lane, place(journal, offset))


def commit_of_a_slice_of_nothing(journal: Journal, lane: DestinationLane) -> None:
    offset = append_one(journal, 4 | TRANSACTIONAL, lane.owner_number, NUMBER, 0, b"", b"a")
    journal.append(COMMIT, 0, 0, committed(NUMBER, lane.number, place(journal, offset), 0))


def commit_into_another_lane(journal: Journal, lane: DestinationLane) -> None:
    offset = append_one(journal, 4 | TRANSACTIONAL, lane.owner_number, NUMBER, 0, b"", b"a")
    journal.append(COMMIT, 0, 0, committed(NUMBER, lane.number + 1, place(journal, offset)))


def return_of_a_sequence_that_cannot_be(journal: Journal, lane: DestinationLane) -> None:
    journal.append(RETURN, 4, 1, returns_payload(lane.owner_number, [ReturnedRun(SEQUENCES, 1, 1)]))


def destination_that_was_of_another_kind(journal: Journal, lane: DestinationLane) -> None:
    journal.append(DESTINATION, 0, 1, encode_destination(Destination(lane.owner_number, TOPIC, "orders")))


def message_of_a_sequence_that_cannot_be(journal: Journal, lane: DestinationLane) -> None:
    append_one(journal, 4, lane.owner_number, SEQUENCES, 0, b"", b"a")


def ack_of_a_destination_that_cannot_be(journal: Journal, lane: DestinationLane) -> None:
    journal.append_ack(4, NUMBERS, 0, 1)


def commit_of_an_ack(journal: Journal, lane: DestinationLane) -> None:
    offset = journal.offset
    journal.append_ack(4, lane.owner_number, 0, 1)
    prepared(journal, lane, place(journal, offset))


@pytest.mark.parametrize(
    ("write", "problem"),
    [
        (lambda journal, lane: slice_across_blocks(journal, lane, 0), "a slice crosses a block"),
        (lambda journal, lane: slice_across_blocks(journal, lane, RELOCATED), "a slice crosses a block"),
        (copy_of_another_length, "has another length than before"),
        (subscription_to_nothing, "a subscription to what is no topic"),
        (commit_of_nothing, "that is not there"),
        (commit_of_a_slice_across_blocks, "a slice of a commit crosses a block"),
        (commit_of_another_number_of_messages, "a commit names 2 messages of a slice that has 1"),
        (commit_of_a_message_of_no_transaction, "the slice belongs to another transaction"),
        (commit_of_another_transaction, "the slice belongs to another transaction"),
        (commit_of_an_ack, "another record lies there"),
        (commit_of_a_slice_of_nothing, "a slice of 0 messages cannot be"),
        (commit_into_another_lane, "the slice belongs to another lane"),
        (return_of_a_sequence_that_cannot_be, "cannot be"),
        (destination_that_was_of_another_kind, "was of another kind"),
        (message_of_a_sequence_that_cannot_be, "cannot be"),
        (ack_of_a_destination_that_cannot_be, "cannot be"),
        (lambda journal, lane: journal.append(ACK, 4, 3, b"") and None, "the ranges of an ack do not add up"),
    ],
)
def test_record_that_verifies_and_cannot_be_is_refused_with_its_place(
    write: Callable[[Journal, DestinationLane], None], problem: str
) -> None:
    disk = SimulatedDisk()
    opened = opened_on(disk)
    lane = opened.lane()
    opened.add(b"before")
    with opened.lock:
        write(opened.store.journal, lane)
    opened.store.syncer.sync()
    found = disk.crash_process()
    last = records(found, 1)[-1][0]
    before = found.image()[data_log_name(1)]
    with pytest.raises(JournalCorrupt, match=problem) as refused:
        opened_on(found)
    assert (refused.value.data_log, refused.value.offset) == (1, last)
    assert found.image()[data_log_name(1)] == before


def test_commit_whose_slices_are_lost_gives_no_sequence_twice_where_loss_is_accepted() -> None:
    disk = SimulatedDisk()
    opened = opened_on(disk)
    lane = opened.lane()
    opened.add(b"before")
    with opened.lock:
        commit_of_nothing(opened.store.journal, lane)
    opened.store.syncer.sync()
    again = opened_on(disk.crash_process(), accepts_loss=True)
    assert again.bodies() == [b"before"]
    assert again.add(b"behind") == 11
    again.check()


def test_end_of_a_subscription_that_nobody_knows_means_nothing() -> None:
    disk = SimulatedDisk()
    opened = opened_on(disk)
    opened.add(b"here")
    with opened.lock:
        opened.store.journal.append(UNSUBSCRIBE, 0, 1, encode_unsubscribe(50))
    opened.store.syncer.sync()
    assert opened_on(disk.crash_process()).bodies() == [b"here"]


def test_data_log_whose_header_is_damaged_while_it_is_in_use_costs_its_own_messages() -> None:
    disk = SimulatedDisk()
    metadata = SimulatedMetadataStore()
    OpenStore(disk, metadata).add(b"in the first")
    opened = OpenStore(disk, metadata)
    opened.add(b"in the second")
    disk.flip_bit(data_log_name(1), 3, 1)
    with opened.lock:
        regions = opened.store.message_store.plan(opened.store.index.ensure_lane(1, 4), [(0, 1)])
    messages, [(sequence, problem)] = opened.store.message_store.read(regions)
    assert [body for _, _, body, _ in messages] == [b"in the second"]
    assert sequence == 0 and "the data log's header does not verify" in problem


def test_survivors_of_a_data_log_that_is_gone_mean_nothing() -> None:
    disk = SimulatedDisk()
    opened = opened_on(disk)
    lane = opened.lane()
    opened.add(b"here")
    with opened.lock:
        payload = survivors_payload(40, [LaneRun(lane.number, 0, 1)])
        opened.store.journal.append(SURVIVORS, 0, 1, payload)
    opened.store.syncer.sync()
    again = opened_on(disk.crash_process())
    assert again.bodies() == [b"here"]
    again.check()


@pytest.mark.parametrize("is_committed", [True, False])
def test_survivors_undo_what_acks_did_that_are_gone(is_committed: bool) -> None:
    """Of messages that a commit numbered as well, which the records of the data log itself do not tell."""
    disk = SimulatedDisk()
    opened = opened_on(disk)
    lane = opened.lane()
    journal = opened.store.journal
    if is_committed:
        with opened.lock:
            writer = opened.store.transaction_writer
            branch = writer.begin()
            lengths = writer.append_slice(branch, lane, 0, Contents.of((b"", b"%d" % n) for n in range(5)))
            writer.commit(branch, {branch.last_position: lengths})
    else:
        opened.add(*(b"%d" % n for n in range(5)))
    with opened.lock:
        journal.roll()
        journal.append(SURVIVORS, 0, 2, survivors_payload(1, [LaneRun(lane.number, 1, 1), LaneRun(lane.number, 4, 1)]))
    opened.store.syncer.sync()
    again = opened_on(disk.crash_process())
    assert again.bodies() == [b"1", b"4"]
    again.check()


def test_survivors_of_a_data_log_with_a_hole_are_refused() -> None:
    """What is missing in it may be just what must not come back."""
    disk = SimulatedDisk()
    metadata = SimulatedMetadataStore()
    opened = OpenStore(disk, metadata)
    lane = opened.lane()
    for n in range(4):
        opened.add(b"%d" % n)
    middle = records(disk, 1)[-3][0]
    opened.store.checkpointer.checkpoint()
    with opened.lock:
        opened.store.journal.roll()
        payload = survivors_payload(1, [LaneRun(lane.number, 0, 1)])
        opened.store.journal.append(SURVIVORS, 0, 1, payload)
    opened.store.syncer.sync()
    found = disk.crash_process()
    name = data_log_name(1)
    content = bytearray(found.image()[name])
    content[middle + 10] ^= 1
    found.remove(name)
    found.open(name, create=True).append(bytes(content))
    assert data_logs(found)[:2] == [1, 2]
    with pytest.raises(JournalCorrupt) as refused:
        OpenStore(found, metadata)
    assert (refused.value.data_log, refused.value.offset) == (1, middle)
