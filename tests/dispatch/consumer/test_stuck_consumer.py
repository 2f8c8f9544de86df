"""A consumer that waits and gets nothing is explained in the log, and so is an ack that nobody calls."""

from __future__ import annotations

import logging

import pytest
from simulated_bay import SimulatedBay

from forebay import Message, Queue


def send(queue: Queue, count: int, **headers: str) -> None:
    queue.send_many(Message(b"%d" % number, headers) for number in range(count))


def wait(bay: SimulatedBay, seconds: int) -> None:
    for _ in range(seconds):
        bay.clock.advance(1.0)
        bay.bay.step()


def told(caplog: pytest.LogCaptureFixture, event: str) -> list[tuple[int, str]]:
    return [(record.levelno, record.getMessage()) for record in caplog.records if vars(record).get("event") == event]


@pytest.fixture(autouse=True)
def all_levels(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "forebay.dispatch")


def test_one_whose_prefetch_is_used_up_is_told_of_after_two_seconds_and_once(
    bay: SimulatedBay, queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    consumer = queue.subscribe(prefetch=3)
    send(queue, 5)
    consumer.take(3)
    assert consumer.take() == []
    wait(bay, 2)
    assert told(caplog, "consumer_stuck") == []
    wait(bay, 20)
    [(level, text)] = told(caplog, "consumer_stuck")
    assert level == logging.WARNING
    assert bay.bay.explain(consumer).sentence in text and "as many as its prefetch admits" in text
    assert text.endswith("It has acknowledged none so far: call ack() of each delivery when it is processed.")


def test_one_that_is_told_of_and_moved_is_told_of_again_but_not_for_ten_minutes(
    bay: SimulatedBay, queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    consumer = queue.subscribe(prefetch=1)
    send(queue, 3)
    for expected, seconds in ((1, 10), (1, 10), (2, 600)):
        [held] = consumer.take()
        assert consumer.take() == []
        wait(bay, seconds)
        assert len(told(caplog, "consumer_stuck")) == expected
        consumer.ack(held)


def test_one_whose_selector_matches_nothing_is_warned_of_where_nobody_else_takes(
    bay: SimulatedBay, queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    queue.subscribe(selector="region = 'EU'", on_ready=lambda: None).take()
    send(queue, 5, region="eu")
    wait(bay, 5)
    [(level, text)] = told(caplog, "consumer_stuck")
    assert level == logging.WARNING and "its selector does not match 5 messages" in text


def test_one_whose_selector_matches_nothing_beside_others_is_no_warning(
    bay: SimulatedBay, queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    queue.subscribe(selector="region = 'us'", on_ready=lambda: None).take()
    queue.subscribe(selector="region = 'eu'")
    send(queue, 5, region="eu")
    wait(bay, 5)
    assert [level for level, _ in told(caplog, "consumer_stuck")] == [logging.INFO]


def test_one_that_waits_at_an_empty_queue_or_works_is_not_told_of(
    bay: SimulatedBay, queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    waiting = queue.subscribe(on_ready=lambda: None)
    assert waiting.take() == []
    wait(bay, 10)
    send(queue, 1)
    [held] = waiting.take()
    wait(bay, 10)  # it works on it, and asks for nothing
    waiting.ack(held)
    assert told(caplog, "consumer_stuck") == []


@pytest.mark.parametrize("looks", [True, False])
def test_close_without_any_ack_is_told_of_once_where_messages_were_looked_at(
    bay: SimulatedBay, queue: Queue, caplog: pytest.LogCaptureFixture, looks: bool
) -> None:
    send(queue, 3)
    for _ in range(2):
        with queue.subscribe() as consumer:
            for delivery in consumer.take(3):
                assert not looks or delivery.body
    found = told(caplog, "ack_forgotten")
    assert len(found) == looks
    assert not looks or ("'orders'" in found[0][1] and "none of its 3 deliveries" in found[0][1])


def test_close_after_an_ack_is_not_told_of(bay: SimulatedBay, queue: Queue, caplog: pytest.LogCaptureFixture) -> None:
    send(queue, 3)
    with queue.subscribe() as consumer:
        held = consumer.take(3)
        assert held[1].body
        consumer.ack(held[:1])
    assert told(caplog, "ack_forgotten") == []
