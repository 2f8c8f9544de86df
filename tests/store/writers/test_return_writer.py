"""ReturnWriter: delivery counts of messages that came back are in RAM at once, and in the journal if it takes them."""

from __future__ import annotations

import errno
import logging

import pytest
from message_stores import OpenStore
from writing import disk_of, killed, number_of

from forebay.store.environment.late_log import emit_late
from forebay.store.format.record import RANGES_MAX, RETURN
from forebay.store.format.return_record import ReturnedRun
from forebay.store.format.state_record import CountedRun
from forebay.store.index.destination_lane import DestinationLane


@pytest.fixture
def lane(opened: OpenStore) -> DestinationLane:
    lane = opened.lane()
    opened.add(b"1", b"2", b"3", lane=lane)
    return lane


def count(opened: OpenStore, lane: DestinationLane, *runs: CountedRun) -> None:
    with opened.lock:
        opened.store.return_writer.count(lane.number, runs)


def counts(opened: OpenStore, lane: DestinationLane) -> list[CountedRun]:
    return list(opened.store.index.delivery_count_table.find(lane.number) or ())


def test_counts_survive_a_kill(opened: OpenStore, lane: DestinationLane) -> None:
    count(opened, lane, CountedRun(0, 1, 1))
    count(opened, lane, CountedRun(1, 1, 2), CountedRun(2, 2, 7))
    assert counts(killed(opened), lane) == counts(opened, lane)
    assert counts(opened, lane) == [CountedRun(0, 0, 1), CountedRun(1, 1, 2), CountedRun(2, 2, 7)]


def test_many_runs_are_in_few_records(opened: OpenStore, lane: DestinationLane) -> None:
    count(opened, lane, *[CountedRun(2 * n, 2 * n, 1) for n in range(RANGES_MAX + 1)])
    assert number_of(RETURN, opened) == 2


@pytest.mark.parametrize(("error", "levels"), [(errno.ENOSPC, [10, 10]), (errno.EIO, [30, 10])])
def test_counts_that_the_journal_does_not_take_are_in_ram_alone(
    opened: OpenStore, lane: DestinationLane, error: int, levels: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    """A full disk is told elsewhere; that the store has failed, once here."""
    caplog.set_level(logging.DEBUG)
    disk_of(opened).fail("write", 1, error, sticky=True)
    count(opened, lane, CountedRun(0, 0, 1))
    count(opened, lane, CountedRun(0, 0, 2))
    emit_late()
    assert counts(opened, lane) == [CountedRun(0, 0, 2)]
    told = [record for record in caplog.records if getattr(record, "event", "") == "attempts_in_ram"]
    assert [record.levelno for record in told] == levels
    disk_of(opened).cure()
    assert counts(killed(opened), lane) == []


def test_counts_of_a_lane_that_ends_with_the_process_have_no_record(opened: OpenStore, lane: DestinationLane) -> None:
    opened.store.index.delivery_count_table.local.add(lane.owner_number)
    before = opened.store.journal.next_log_sequence
    count(opened, lane, CountedRun(0, 2, 3))
    assert counts(opened, lane) == [CountedRun(0, 2, 3)] and opened.store.journal.next_log_sequence == before


def test_times_at_which_messages_are_offered_again_survive_a_kill(opened: OpenStore, lane: DestinationLane) -> None:
    now_ms = opened.store.steady_clock.now_ms()
    with opened.lock:
        opened.store.return_writer.put(lane.number, [ReturnedRun(1, 1, 4, now_ms + 5000)], now_ms)
    again = killed(opened)
    assert counts(again, lane) == [CountedRun(1, 1, 4)]
    delayed = again.lane().delayed
    assert delayed is not None and delayed.is_pending(1) and not delayed.is_pending(0)
    assert again.store.index.latest_ms >= now_ms
