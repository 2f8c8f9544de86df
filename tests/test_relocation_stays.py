"""What relocation leaves where it is, messages of topics and of transactions, without a word of warning."""

from __future__ import annotations

import logging

import pytest

from forebay import Message
from simulated_bay import SimulatedBay
from staged_stores import newest, roll, settle, small_bay


def send_stuck(bay: SimulatedBay, is_topic: bool) -> None:
    if is_topic:
        bay.bay.topic("prices").subscribe(durable="audit").close()
        bay.bay.topic("prices").send(b"stuck")
    else:
        with bay.bay.transaction() as transaction:
            bay.queue("stuck").send(b"stuck", transaction=transaction)


def stuck_bodies(bay: SimulatedBay, is_topic: bool) -> list[bytes]:
    place = bay.bay.topic("prices").subscribe(durable="audit") if is_topic else bay.queue("stuck").subscribe()
    with place as consumer:
        return [delivery.body for delivery in consumer.take(10)]


@pytest.mark.parametrize("is_topic", [True, False])
def test_message_that_is_never_copied_keeps_its_data_log_and_nobody_is_warned(
    is_topic: bool, caplog: pytest.LogCaptureFixture
) -> None:
    bay = small_bay()
    homes = set()
    for _ in range(8):
        homes.add(newest(bay))
        send_stuck(bay, is_topic)
        bay.queue("filler").send_many(Message(bytes(1000)) for _ in range(30))
        settle(bay, "filler", 30)
        roll(bay)
    with caplog.at_level(logging.DEBUG, logger="forebay.store"):
        report = bay.bay.cleanup()
    assert homes <= set(report.remaining) and report.relocated_messages == 0
    assert "data-1.log stays as it is" in caplog.text
    assert [record.message for record in caplog.records if record.levelno > logging.DEBUG] == []
    assert stuck_bodies(bay, is_topic) == [b"stuck"] * 8
    bay.check()
