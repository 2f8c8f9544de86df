"""Relocation of a data log with messages of transactions: a search of the index finds them, whatever happens between
its steps.
"""

from __future__ import annotations

import pytest
from compiled import interpreted
from relocating import place_of, steps
from simulated_bay import SimulatedBay
from staged_stores import fill, newest, settle, small_bay

from forebay import Message, Transaction
from forebay.store.environment.late_log import emit_late
from forebay.store.maintenance import live_search, relocation

QUEUES = 60
"""More blocks than the index may have dirty at once, so that a checkpoint must come between two steps."""


def send_committed(bay: SimulatedBay, body: bytes) -> None:
    """Send a message to each queue, in one transaction."""
    with bay.bay.transaction() as transaction:
        for n in range(QUEUES):
            bay.queue(f"stuck {n}").send(body, transaction=transaction)


def send_undecided(bay: SimulatedBay, queue: str, *bodies: bytes, is_prepared: bool) -> Transaction:
    """Write messages of a transaction to the journal; return it without an outcome."""
    transaction = bay.bay.transaction()
    bay.queue(queue).send_many([Message(body) for body in bodies], transaction=transaction)
    if is_prepared:
        transaction.prepare(queue.encode())
    else:
        with bay.lock:
            transaction.write_gathered()
    return transaction


def taken(bay: SimulatedBay, queue: str) -> list[bytes]:
    with bay.queue(queue).subscribe() as consumer:
        deliveries = consumer.take(1000)
        consumer.ack(deliveries)
    return [delivery.body for delivery in deliveries]


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    emit_late()
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


def test_messages_of_transactions_in_more_blocks_than_may_be_dirty_free_their_data_logs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bay = small_bay()
    bodies = [b"%d" % n for n in range(12)]
    for body in bodies:
        send_committed(bay, body)
        fill(bay)
    report = bay.bay.cleanup()
    assert report.relocated_messages > QUEUES and len(report.remaining) <= 3
    assert not warnings(caplog)
    bay.check()
    bay.crash(is_index_lost=True)
    assert all(taken(bay, f"stuck {n}") == bodies for n in range(QUEUES))
    bay.check()


def test_search_that_a_crowded_index_ends_goes_on_with_what_was_not_copied(caplog: pytest.LogCaptureFixture) -> None:
    bay = small_bay()
    home = newest(bay)
    send_committed(bay, b"stuck")
    fill(bay)
    bay.bay.checkpoint()
    crowded = 0
    for _ in steps(bay.relocation, bay.lock, home, is_naming=False):
        crowded += bay.store.index.is_crowded
        bay.bay.checkpoint()
    assert crowded and not warnings(caplog)
    assert bay.relocation.messages == QUEUES and not bay.store.index.data_log_uses[home].pending_messages
    assert home in bay.bay.cleanup().deleted
    bay.check()


@interpreted("replaces what compiled code has linked")
@pytest.mark.parametrize("is_prepared", [False, True])
@pytest.mark.parametrize("acked", [0, 1, 2])
@pytest.mark.parametrize("is_naming", [False, True])
def test_messages_that_a_commit_adds_between_two_steps_are_found(
    is_naming: bool,
    acked: int,
    is_prepared: bool,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also if a step has found as many that are acknowledged since, so that the number of messages is as expected."""
    monkeypatch.setattr(live_search, "SCAN_BLOCKS", 1)
    monkeypatch.setattr(relocation, "SCAN_BYTES", 1)
    places = [
        find_what_is_committed_after(step, acked, is_naming=is_naming, is_prepared=is_prepared) for step in range(1, 6)
    ]
    assert places == ["heads", "heads", "index", "index", "end"]
    assert not warnings(caplog)


def find_what_is_committed_after(step: int, acked: int, *, is_naming: bool, is_prepared: bool) -> str:
    """Relocate, and commit in two queues after that step; return how far the relocation had come then."""
    bay = small_bay()
    work, home, place = bay.relocation, newest(bay), "end"
    transactions = []
    for queue in ("first", "last"):
        with bay.bay.transaction() as sent:
            bay.queue(queue).send_many([Message(b"%d" % n) for n in range(5)], transaction=sent)
        transactions.append(send_undecided(bay, queue, b"5", b"6", is_prepared=is_prepared))
    fill(bay)
    for at, _ in enumerate(steps(work, bay.lock, home, is_naming=is_naming, freed_bytes=1 << 30), 1):
        if at == step:
            place = place_of(work)
            commit_and_settle(bay, transactions, acked)
    if at < step:
        commit_and_settle(bay, transactions, acked)
    elif place != "end" and not is_naming:
        assert not bay.store.index.data_log_uses[home].pending_messages
    bay.check()
    bay.bay.cleanup()
    bay.crash(is_index_lost=True)
    assert taken(bay, "first") == taken(bay, "last") == [b"%d" % n for n in range(acked, 7)]
    bay.check()
    return place


def commit_and_settle(bay: SimulatedBay, transactions: list[Transaction], acked: int) -> None:
    for transaction in transactions:
        transaction.commit()
    for queue in ("first", "last"):
        if acked:
            settle(bay, queue, acked)
