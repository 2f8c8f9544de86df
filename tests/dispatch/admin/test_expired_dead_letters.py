"""What expires goes to the dead-letter queue where a policy says so, and is removed elsewhere."""

from __future__ import annotations

from typing import Any, Final

import pytest
from compiled import interpreted
from simulated_bay import SimulatedBay

from forebay import DestinationPolicy, Message
from forebay.dispatch.admin.dead_letter_writer import BATCH_MESSAGES
from forebay.dispatch.config.settings import Settings
from forebay.store.checkpoint.checkpointer import Checkpointer
from forebay.store.errors import SettingsError, StoreFull
from forebay.store.format.message_properties import encode_properties
from forebay.store.format.record import PROPERTIES_BYTES_MAX
from forebay.store.format.times import encode_times
from forebay.store.stored_message import StoredMessage


def accepting_dead_letters(memory_limit: str = "4MiB", **policy: Any) -> SimulatedBay:
    """What expires in any queue is a dead letter."""
    return SimulatedBay(
        memory_limit=memory_limit,
        policies={">": DestinationPolicy(expired_to_dead_letter=True, expiry_sweep_seconds=1, **policy)},
    )


def later(simulated: SimulatedBay, seconds: float) -> None:
    simulated.clock.advance(seconds)
    simulated.bay.step()


def test_expired_messages_go_to_the_dead_letter_queue_and_say_why() -> None:
    simulated = accepting_dead_letters()
    orders = simulated.queue()
    sent = orders.send(b"1", headers={"n": 1}, expires_in=5)
    orders.send(b"2")
    orders.send_many([Message(b"3", expires_in=5), Message(b"4", priority=9, expires_in=5)])
    later(simulated, 4)
    assert simulated.bay.destinations() == ["orders"]
    later(simulated, 2)
    dead = list(simulated.queue("DLQ.orders").browse())
    assert sorted(message.body for message in dead) == [b"1", b"3", b"4"]
    (first,) = [message for message in dead if message.body == b"1"]
    assert first.message_id == sent and first.headers is not None
    assert {"n": 1, "dead_letter_from": "orders", "dead_letter_reason": "expired"}.items() <= first.headers.items()
    assert [message.body for message in orders.browse()] == [b"2"]
    found = simulated.bay.statistics().destinations["orders"]
    assert (found.expired, found.dead_lettered, found.depth) == (3, 3, 1)
    simulated.check()


def test_dead_letter_does_not_expire_again() -> None:
    simulated = accepting_dead_letters()
    simulated.queue().send(b"1", expires_in=5)
    later(simulated, 6)
    later(simulated, 1000)
    simulated.crash(is_index_lost=True)
    later(simulated, 1000)
    assert [message.body for message in simulated.queue("DLQ.orders").browse()] == [b"1"]


HEADERS_BESIDE: Final = 9
"""Bytes of the tags and the name of headers with one value of bytes, whose name has one letter."""


@pytest.mark.parametrize("own_id", [None, "mine"])
@pytest.mark.parametrize("free_bytes", [0, 20, 60])
def test_dead_letter_without_room_for_more_headers_keeps_its_id_and_does_not_expire_again(
    own_id: str | None, free_bytes: int
) -> None:
    simulated = accepting_dead_letters(memory_limit="64MiB")
    beside = HEADERS_BESIDE + len(encode_properties(None, own_id))
    headers = {"a": bytes(PROPERTIES_BYTES_MAX - beside - free_bytes)}
    sent = simulated.queue().send(b"1", headers=headers, expires_in=5, message_id=own_id)
    later(simulated, 6)
    later(simulated, 1000)
    dead_letters = simulated.queue("DLQ.orders")
    [dead] = dead_letters.browse()
    assert (dead.message_id, dead.body, dead.headers) == (sent, b"1", headers)
    simulated.check()
    simulated.crash()
    with simulated.queue("DLQ.orders").subscribe() as consumer:
        [delivery] = consumer.take()
        assert (delivery.id, delivery.headers) == (sent, headers)
        delivery.reject()


@pytest.mark.parametrize(
    ("damaged", "has_id"), [(b"\x0c\xc1", True), (b"\x0b\xff\xff", False)], ids=["headers", "producer"]
)
def test_dead_letter_whose_headers_cannot_be_read_does_not_expire_again(damaged: bytes, has_id: bool) -> None:
    simulated = accepting_dead_letters()
    simulated.queue().send(b"1")
    lane = simulated.lane(simulated.queue_state(), 4)
    message: StoredMessage = (1, encode_times(5000, 2000) + damaged, b"1", 1)
    kept = encode_properties(None, f"{lane.id_prefix}1") if has_id else b""
    assert simulated.dead_letter_writer.stamped(lane, message, "expired", 0) == (1, kept + damaged, b"1", 1)


def test_a_batch_size_that_falls_in_another_thread_leaves_no_message_behind() -> None:
    simulated = accepting_dead_letters()
    simulated.queue().send_many([Message(b"%d" % number) for number in range(12)])
    lane, writer = simulated.lane(simulated.queue_state(), 4), simulated.dead_letter_writer
    end = lane.published_end
    writer.batch_messages = 4
    moving = writer.move(lane, "DLQ.orders", [lane.read_one(sequence) for sequence in range(end - 12, end)], "expired")
    assert next(moving) == 4
    writer.batch_messages = 1
    assert list(moving) == [4, 4]
    assert list(simulated.queue().browse()) == []
    assert [dead.body for dead in simulated.queue("DLQ.orders").browse()] == [b"%d" % number for number in range(12)]
    simulated.check()


def test_what_expires_in_a_dead_letter_queue_is_removed() -> None:
    simulated = accepting_dead_letters()
    simulated.queue("DLQ.orders").send(b"1", expires_in=5)
    later(simulated, 6)
    assert simulated.queue("DLQ.orders").depth == 0
    assert simulated.bay.destinations() == ["DLQ.orders"]


def test_without_a_dead_letter_queue_what_expires_is_removed() -> None:
    simulated = accepting_dead_letters(dead_letter_queue=None)
    simulated.queue().send(b"1", expires_in=5)
    later(simulated, 6)
    assert simulated.queue().depth == 0 and simulated.bay.destinations() == ["orders"]


def test_what_is_not_persistent_or_a_topics_is_removed() -> None:
    simulated = accepting_dead_letters()
    simulated.queue().send(b"1", expires_in=5, persistent=False)
    prices = simulated.bay.topic("prices")
    prices.subscribe(durable="audit").close()
    prices.send(b"2", expires_in=5)
    later(simulated, 6)
    later(simulated, 6)
    assert simulated.queue().depth == 0 and simulated.bay.destinations() == ["orders"]
    assert simulated.bay.statistics().store.pending_messages == 0


def test_delivery_in_flight_stays_its_consumers() -> None:
    simulated = accepting_dead_letters()
    simulated.queue().send(b"1", expires_in=5)
    consumer = simulated.queue().subscribe()
    (delivery,) = consumer.take()
    later(simulated, 6)
    assert simulated.bay.destinations() == ["orders"]
    delivery.ack()
    later(simulated, 6)
    assert simulated.queue().depth == 0 and simulated.bay.destinations() == ["orders"]


def test_thousands_expire_behind_a_stuck_consumer() -> None:
    simulated = accepting_dead_letters()
    orders = simulated.queue()
    orders.send(b"stuck")
    with orders.subscribe(prefetch=1) as consumer:
        assert len(consumer.take(10)) == 1
        orders.send_many(Message(b"%d" % n, expires_in=5) for n in range(3000))
        for _ in range(5):
            later(simulated, 6)
        assert simulated.queue("DLQ.orders").depth == 3000 and orders.depth == 1
    bodies = [message.body for message in simulated.queue("DLQ.orders").browse()]
    assert bodies == [b"%d" % n for n in range(3000)]
    simulated.check()


@interpreted("replaces a method of the library")
def test_what_went_before_the_store_was_full_counts_as_expired(monkeypatch: pytest.MonkeyPatch) -> None:
    simulated = accepting_dead_letters()
    orders = simulated.queue()
    orders.send_many(Message(b"%d" % n, expires_in=5) for n in range(2 * BATCH_MESSAGES))
    asked: list[int] = []

    def room_for_one_batch(_: Checkpointer, blocks: int) -> None:
        asked.append(blocks)
        if len(asked) > 1:
            raise StoreFull(1, 0, "store_limit")

    with monkeypatch.context() as patch:
        patch.setattr(Checkpointer, "require_index_room", room_for_one_batch)
        later(simulated, 6)
    assert simulated.queue("DLQ.orders").depth == orders.statistics().expired == BATCH_MESSAGES
    later(simulated, 6)
    assert simulated.queue("DLQ.orders").depth == orders.statistics().expired == 2 * BATCH_MESSAGES


@pytest.mark.parametrize("value", [1, "yes", None])
def test_what_is_no_bool_is_refused(value: Any) -> None:
    with pytest.raises(SettingsError, match="expired_to_dead_letter"):
        Settings(policies={">": DestinationPolicy(expired_to_dead_letter=value)})
