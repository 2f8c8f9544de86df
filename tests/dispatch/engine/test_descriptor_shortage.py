"""A shortage of file descriptors refuses calls, loses nothing, and passes."""

from __future__ import annotations

import errno
from typing import Any

import pytest
from simulated_bay import SimulatedBay

from forebay import Consumer, Delivery, Message, TooManyFiles

BODY = b"x" * 3000


def filled(**fields: Any) -> SimulatedBay:
    """Many data logs of which readers are open, and messages that are in none of the caches."""
    bay = SimulatedBay(memory_limit="4MiB", max_file_length="64KiB", **fields)
    queue = bay.queue()
    for _ in range(40):
        queue.send_many(Message(BODY) for _ in range(60))
    return bay


def settle(consumer: Consumer, most: int) -> int:
    """Take and acknowledge; how many."""
    done = 0
    while done < most and (deliveries := consumer.take(min(60, most - done))):
        assert all(delivery.body == BODY for delivery in deliveries)
        consumer.ack(deliveries)
        done += len(deliveries)
    return done


def test_a_shortage_that_own_readers_end_is_not_noticed() -> None:
    bay = filled()
    queue = bay.queue()
    with queue.subscribe(prefetch=0) as consumer:
        taken = settle(consumer, 600)
        bay.disk.fail("open", 1, errno.EMFILE)
        bay.disk.fail("create", 1, errno.EMFILE)
        for _ in range(30):
            queue.send_many(Message(BODY) for _ in range(60))
        taken += settle(consumer, 10_000)
    assert taken == 70 * 60
    assert bay.bay.statistics().destinations["orders"].unreadable == 0
    bay.check()


def test_a_shortage_that_lasts_refuses_calls_loses_nothing_and_passes() -> None:
    bay = filled()
    queue = bay.queue()
    with queue.subscribe(prefetch=0) as consumer:
        bay.disk.fail("open", 1, errno.EMFILE, sticky=True)
        bay.disk.fail("create", 1, errno.EMFILE, sticky=True)
        sent = refused = 0
        held: list[Delivery] = []
        for _ in range(50):
            try:
                queue.send(BODY)
                sent += 1
            except TooManyFiles:
                refused += 1
            try:
                held += consumer.take(60)
            except TooManyFiles:
                refused += 1
            bay.clock.advance(1.0)
            bay.bay.step()
            bay.check()
        assert refused and not bay.bay.statistics().destinations["orders"].unreadable
        bay.disk.cure()
        queue.send(BODY)
        consumer.ack(held)
        taken = len(held) + settle(consumer, 10_000)
    assert taken == 40 * 60 + sent + 1
    bay.clock.advance(30.0)
    bay.bay.step()
    assert bay.bay.statistics().failing == {}
    bay.check()


def test_a_browse_in_a_shortage_that_lasts_raises_in_words_and_can_be_made_again() -> None:
    bay = filled()
    bay.reopen()
    bay.disk.fail("open", 1, errno.EMFILE, sticky=True)
    with pytest.raises(TooManyFiles, match="RLIMIT_NOFILE"):
        list(bay.queue().browse())
    bay.disk.cure()
    assert len(list(bay.queue().browse())) == 40 * 60
    bay.check()


def test_spilled_messages_are_not_unreadable_for_want_of_a_descriptor() -> None:
    bay = SimulatedBay(memory_limit="4MiB", max_file_length="64KiB", temp_limit="64MiB")
    queue = bay.queue()
    for _ in range(40):
        queue.send_many(Message(BODY, persistent=False) for _ in range(60))
    held: list[Delivery] = []
    with queue.subscribe(prefetch=0) as consumer:
        bay.give_up_readers()
        bay.disk.fail("open", 1, errno.EMFILE, sticky=True)
        with pytest.raises(TooManyFiles):
            while batch := consumer.take(60):
                held += batch
        bay.check()
        bay.disk.cure()
        consumer.ack(held)
        taken = len(held) + settle(consumer, 10_000)
    assert taken == 40 * 60
    bay.check()
