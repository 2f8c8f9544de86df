"""A damaged message is passed over, and set aside where damage is reported."""

from __future__ import annotations

import errno
import logging
from typing import Any

import pytest
from simulated_bay import SimulatedBay

from forebay import Queue, StoreFailed, Topic
from forebay.store.disk.layout import QUARANTINE
from forebay.store.format.record import crc32
from forebay.store.journal.data_log import decode_data_log_header
from forebay.store.quarantine import PARTS_MAX

SECRET = b"the body that nobody may read in a log"


def damaged_bay(**fields: Any) -> SimulatedBay:
    """Three messages, opened again; the second of them does not verify."""
    bay = SimulatedBay(max_file_length="64KiB", **fields)
    for body in (b"first", SECRET, b"last"):
        bay.queue().send(body, headers={"n": 1})
    bay.reopen()
    name = "journal/data-1.log"
    bay.disk.flip_bit(name, bay.disk.image()[name].index(SECRET), 3)
    return bay


def taken(bay: SimulatedBay, selector: str | None = None) -> list[bytes]:
    with bay.queue().subscribe(selector=selector) as consumer:
        return [delivery.body for delivery in consumer.take(10)]


@pytest.mark.parametrize("selector", [None, "n = 1"])
def test_damaged_message_stays_where_damage_is_refused_and_is_counted_after_reopening_too(
    selector: str | None,
) -> None:
    bay = damaged_bay()
    for _ in range(2):
        assert taken(bay, selector) == [b"first", b"last"]
        bay.bay.step()
        assert bay.bay.statistics().destinations["orders"].unreadable == 1 and bay.queue().depth == 3
        bay.check()
        bay.reopen()
    assert bay.disk.list(QUARANTINE) == []


def test_damaged_message_is_set_aside_and_acknowledged_where_damage_is_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bay = damaged_bay(on_missing_data_log="report")
    with caplog.at_level(logging.DEBUG):
        assert taken(bay) == [b"first", b"last"]
        bay.bay.step()
    assert bay.queue().depth == 2 and "is in the quarantine" in caplog.text
    (name,) = bay.disk.list(QUARANTINE)
    assert SECRET[1:] in bay.disk.image()[f"{QUARANTINE}/{name}"]
    assert SECRET[5:].decode() not in caplog.text
    bay.check()
    bay.reopen()
    assert taken(bay) == [b"first", b"last"] and bay.bay.statistics().destinations["orders"].unreadable == 0
    with bay.queue().subscribe() as consumer:
        consumer.ack(consumer.take(10))
    assert bay.bay.cleanup().deleted, "its data log is free"


def test_read_that_fails_may_succeed_later_so_the_message_is_kept() -> None:
    bay = damaged_bay(on_missing_data_log="report")
    bay.disk.fail("read", 1, errno.EIO, sticky=True)
    assert taken(bay) == []
    bay.bay.step()
    assert bay.bay.statistics().destinations["orders"].unreadable == 3
    bay.disk.cure()
    bay.reopen()
    assert taken(bay) == [b"first", b"last"] and bay.disk.list(QUARANTINE) == []


@pytest.mark.parametrize("call", ["write", "sync"])
@pytest.mark.parametrize("is_killed", [False, True])
def test_message_for_whose_copy_the_disk_has_no_space_is_kept_until_it_has(call: str, is_killed: bool) -> None:
    bay = damaged_bay(on_missing_data_log="report")
    assert taken(bay) == [b"first", b"last"]
    bay.disk.fail(call, 1, errno.ENOSPC)
    bay.bay.step()
    assert bay.queue().depth == 3 and list(bay.bay.statistics().failing) == ["quarantine"]
    bay.disk.cure()
    if is_killed:
        bay.crash()
        assert taken(bay) == [b"first", b"last"]
    bay.bay.step()
    assert bay.queue().depth == 2
    (name,) = bay.disk.list(QUARANTINE)
    assert SECRET[1:] in bay.disk.image()[f"{QUARANTINE}/{name}"]
    bay.check()


def test_message_is_kept_where_the_quarantine_is_full() -> None:
    bay = damaged_beside("")
    assert bay.queue().depth == 3 and len(bay.disk.list(QUARANTINE)) == PARTS_MAX


def test_copies_that_crashes_left_unfinished_take_no_place_in_the_quarantine() -> None:
    assert damaged_beside(".part").queue().depth == 2


def damaged_beside(suffix: str) -> SimulatedBay:
    """A store that has met a damaged message, with as many files of that suffix in the quarantine as it may have."""
    bay = damaged_bay(on_missing_data_log="report")
    bay.disk.make_directory(QUARANTINE)
    for n in range(PARTS_MAX):
        bay.disk.open(f"{QUARANTINE}/{n}{suffix}", create=True)
    taken(bay)
    bay.bay.step()
    return bay


def poisoned_bay(*, is_topic: bool = False, **fields: Any) -> SimulatedBay:
    """As damaged_bay, but the headers of the second make no sense and all checksums are right.

    is_topic: they were sent to a topic, with one durable subscription.
    """
    bay = SimulatedBay(max_file_length="64KiB", **fields)
    to: Queue | Topic = bay.queue()
    if is_topic:
        to = bay.bay.topic("prices")
        to.subscribe(durable="audit", selector="n = 2").close()
    for body in (b"first", SECRET, b"last"):
        to.send(body, headers={"n": 1})
    name = "journal/data-1.log"
    bay.reopen()
    image = bytearray(bay.disk.image()[name])
    salt = decode_data_log_header(bytes(image)).salt
    body_at = image.index(SECRET)
    properties = int.from_bytes(image[body_at - 5 - 4 : body_at - 5], "little")
    head = body_at - properties - 64
    assert properties == 5 and image[head + 12 : head + 14] == b"\xf0\xba"
    image[head + 64] ^= 0x77
    image[head + 52 : head + 56] = crc32(bytes(image[head + 64 : body_at + len(SECRET)])).to_bytes(4, "little")
    image[head : head + 4] = crc32(bytes(image[head + 4 : head + 64]), salt).to_bytes(4, "little")
    bay.disk.open(name).append(bytes(image))
    return bay


def test_poison_is_passed_over_by_a_selector_and_seen_by_who_has_none() -> None:
    bay = poisoned_bay()
    assert taken(bay, "n = 1") == [b"first", b"last"]
    assert bay.bay.statistics().destinations["orders"].unreadable == 1
    with bay.queue().subscribe() as consumer:
        _, poison, _ = consumer.take(10)
        assert poison.body == SECRET
        with pytest.raises(StoreFailed, match="of 'orders' can't be read"):
            _ = poison.headers
        poison.ack()
    assert bay.queue().depth == 2
    bay.check()


def test_poison_is_passed_over_by_who_browses_and_moved_as_it_is() -> None:
    bay = poisoned_bay()
    for selector in (None, "n = 1"):
        assert [message.body for message in bay.queue().browse(selector)] == [b"first", b"last"]
    prices = bay.queue("prices")
    with prices.subscribe(selector="n = 1") as consumer:
        assert bay.queue().move(prices) == 3
        taken = [delivery for _ in range(3) for delivery in consumer.take(10)]
        assert [delivery.body for delivery in taken] == [b"first", b"last"]
        assert prices.depth == 3 and bay.bay.statistics().destinations["prices"].unreadable == 1
    bay.check()


def test_poison_that_is_given_back_beside_a_selector_stays_pending() -> None:
    bay = poisoned_bay()
    with bay.queue().subscribe() as consumer, bay.queue().subscribe(selector="n = 2") as other:
        assert other.take(10) == []
        taken = consumer.take(10)
        consumer.nack(taken)
        assert other.take(10) == []
        assert len(consumer.take(10)) == bay.queue().depth == 3
    bay.check()


def test_sieve_leaves_poison_where_it_is() -> None:
    """Or the background would end with it, and what comes behind it would never be examined."""
    bay = poisoned_bay(is_topic=True)
    bay.bay.step()
    [subscription] = bay.bay.topic("prices").statistics().subscriptions.values()
    assert subscription.depth == 1
    bay.check()


def test_poison_is_set_aside_where_damage_is_reported() -> None:
    bay = poisoned_bay(on_missing_data_log="report")
    assert taken(bay, "n = 1") == [b"first", b"last"]
    bay.bay.step()
    assert bay.queue().depth == 2 and len(bay.disk.list(QUARANTINE)) == 1


def test_message_that_can_be_read_after_all_is_not_set_aside() -> None:
    """As one whose read failed, and succeeds when it is to be set aside."""
    bay = damaged_bay(on_missing_data_log="report")
    store = bay.store
    lane = next(iter(store.index.lanes.values()))
    assert [store.message_store.quarantine(lane, sequence) for sequence in (0, 2, 3)] == [False] * 3, (
        "two intact ones, and none"
    )
    assert bay.queue().depth == 3 and bay.disk.list(QUARANTINE) == []
    assert store.message_store.quarantine(lane, 1)
    assert bay.queue().depth == 2
