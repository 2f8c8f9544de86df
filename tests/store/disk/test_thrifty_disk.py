"""Descriptors: a store gives up readers of its own before it fails, and a shortage that passes costs nothing."""

from __future__ import annotations

import errno
import os
from typing import Any, Final

import pytest
from simulated_bay import SimulatedBay
from simulated_disk import SimulatedDisk

from forebay import Consumer, Delivery, Message, TooManyFiles
from forebay.store.disk.thrifty_disk import ThriftyDisk

BODY = b"x" * 3000


NEEDING: Final = ("open", "create", "list", "sync_directory", "make_directory")
"""Calls that need a descriptor."""


class Shortage:
    """No descriptor is left until readers are given up."""

    def __init__(self, disk: SimulatedDisk, readers: int) -> None:
        self.disk = disk
        self.readers = readers
        self.asked = 0
        for call in NEEDING:
            disk.fail(call, 1, errno.EMFILE, sticky=True)

    def give_up(self) -> int:
        self.asked += 1
        if self.readers:
            self.disk.cure()
        return self.readers


@pytest.mark.parametrize("call", ["open", "create", "read", "list", "sync_directory", "make_directory"])
def test_a_call_is_made_again_after_readers_were_given_up(call: str) -> None:
    inner = SimulatedDisk()
    inner.make_directory("here")
    inner.open("here/file", create=True).append(b"x")
    shortage = Shortage(inner, readers=3)
    disk = ThriftyDisk(inner)
    disk.add_giver(shortage.give_up)
    if call == "open":
        disk.open("here/file")
    elif call == "create":
        disk.open("here/new", create=True)
    elif call == "read":
        assert disk.open_for_reading("here/file").read(0, 1) == b"x"
    elif call == "list":
        assert disk.list("here") == ["file"]
    else:
        getattr(disk, call)("here")
    assert shortage.asked == 1


def test_where_nothing_is_given_up_the_error_is_that_of_the_system() -> None:
    inner = SimulatedDisk()
    shortage = Shortage(inner, readers=0)
    disk = ThriftyDisk(inner)
    disk.add_giver(shortage.give_up)
    with pytest.raises(OSError, match=os.strerror(errno.EMFILE)):
        disk.list("")
    assert shortage.asked == 1


def test_other_errors_ask_for_no_reader() -> None:
    inner = SimulatedDisk()
    disk = ThriftyDisk(inner)
    asked = iter(range(1, 9))
    disk.add_giver(lambda: next(asked))
    with pytest.raises(FileNotFoundError):
        disk.open("missing")
    assert next(asked) == 1, "nobody was asked"


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
