"""TransactionWriter: a branch takes effect with its commit record, waits with its prepare record, or never was."""

from __future__ import annotations

import pytest
from message_stores import OpenStore
from writing import killed, refused_by_a_full_disk

from forebay.store.format.branch import Branch
from forebay.store.format.contents import Contents
from forebay.store.index.destination_lane import DestinationLane
from forebay.store.writers.transaction_writer import TransactionWriter


@pytest.fixture
def lane(opened: OpenStore) -> DestinationLane:
    lane = opened.lane()
    opened.add(b"before", lane=lane)
    return lane


@pytest.fixture
def writer(opened: OpenStore) -> TransactionWriter:
    return opened.store.transaction_writer


@pytest.fixture
def branch(opened: OpenStore, lane: DestinationLane, writer: TransactionWriter) -> Branch:
    """A branch that sends two messages and acknowledges the one that was there before."""
    contents = Contents.of((b"", body) for body in (b"first", b"second"))
    with opened.lock:
        branch = writer.begin()
        assert writer.append_slice(branch, lane, 0, contents) == [5, 6]
        branch.acknowledge(lane.number, 0, 0)
    return branch


def test_branch_that_is_not_committed_never_was(opened: OpenStore, lane: DestinationLane, branch: Branch) -> None:
    assert opened.bodies(lane) == killed(opened).bodies() == [b"before"]
    assert not branch.is_prepared


def test_commit_sends_and_acknowledges_at_once(
    opened: OpenStore, lane: DestinationLane, writer: TransactionWriter, branch: Branch
) -> None:
    with opened.lock:
        writer.commit(branch, {})
    assert [(placed.first, placed.messages) for placed in branch.committed()] == [(1, 2)]
    assert opened.bodies(lane) == killed(opened).bodies() == [b"first", b"second"]
    assert opened.store.branches.find(branch.number) is None


def test_commit_that_a_full_disk_refuses_changes_nothing_and_may_be_repeated(
    opened: OpenStore, lane: DestinationLane, writer: TransactionWriter, branch: Branch
) -> None:
    with refused_by_a_full_disk(opened), opened.lock:
        writer.commit(branch, {})
    assert opened.bodies(lane) == [b"before"]
    with opened.lock:
        writer.commit(branch, {})
    assert opened.bodies(lane) == killed(opened).bodies() == [b"first", b"second"]


def test_prepared_branch_waits_for_its_outcome_in_the_next_process(
    opened: OpenStore, writer: TransactionWriter, branch: Branch
) -> None:
    with opened.lock:
        writer.prepare(branch, b"xid")
    for outcome, bodies in (("commit", [b"first", b"second"]), ("rollback", [b"before"])):
        again = killed(opened)
        assert again.bodies() == [b"before"]
        (waiting,) = again.store.branches.prepared
        assert waiting.xid == b"xid"
        with again.lock:
            if outcome == "commit":
                again.store.transaction_writer.commit(waiting, {})
            else:
                again.store.transaction_writer.rollback(waiting)
        assert again.bodies() == bodies
        last = killed(again)
        assert last.bodies() == bodies and last.store.branches.prepared == []


def test_branch_whose_prepare_record_a_full_disk_refuses_is_still_open(
    opened: OpenStore, writer: TransactionWriter, branch: Branch
) -> None:
    with refused_by_a_full_disk(opened), opened.lock:
        writer.prepare(branch, b"xid")
    assert not branch.is_prepared and opened.store.branches.open == [branch]
    assert killed(opened).store.branches.prepared == []


def test_numbers_are_used_once_in_the_life_of_a_store(opened: OpenStore) -> None:
    numbers: list[int] = []
    for _ in range(3):
        with opened.lock:
            numbers += [opened.store.transaction_writer.begin().number for _ in range(2)]
        opened = killed(opened)
    assert len(set(numbers)) == 6
