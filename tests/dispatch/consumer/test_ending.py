"""ConsumerEnding: a consumer drains or closes at once, or as soon as the call that it was asked in has ended."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from delivering import numbered_messages
from simulated_bay import SimulatedBay

from forebay import ArgumentError, Consumer, SettingsError
from forebay.dispatch.consumer.ending import ConsumerEnding
from forebay.dispatch.consumer.settlements import held_by
from forebay.dispatch.core.model.consumer_stage import CLOSED, DRAINED, DRAINING, TAKING, ConsumerStage


def test_a_drain_begins_once_and_is_over_with_the_last_message_that_is_settled() -> None:
    bay = SimulatedBay()
    bay.queue().send_many(numbered_messages(3))
    with bay.queue().subscribe() as consumer:
        held = consumer.take(2)
        bay.ending.begin_drain(consumer)
        bay.ending.begin_drain(consumer)
        assert consumer.stage is DRAINING and not bay.ending.is_drained(consumer)
        consumer.ack(held)
        assert bay.ending.is_drained(consumer)
    assert consumer.stage is DRAINED
    bay.check()


@pytest.mark.parametrize(
    ("end", "stage"),
    [
        pytest.param(lambda ending, consumer: ending.drain(consumer, None), DRAINING, id="drain"),
        pytest.param(lambda ending, consumer: ending.close(consumer, None), CLOSED, id="close"),
    ],
)
def test_an_end_from_inside_a_call_comes_when_that_call_has_ended(
    end: Callable[[ConsumerEnding, Consumer], object], stage: ConsumerStage
) -> None:
    bay = SimulatedBay()
    bay.queue().send(b"x")
    with bay.queue().subscribe() as consumer:
        held = consumer.take()
        with bay.lock:
            assert not end(bay.ending, consumer)
            assert consumer.stage is TAKING
        bay.run_nested_calls()
        assert consumer.stage is stage
        assert consumer.in_flight == (len(held) if stage is DRAINING else 0)
    bay.check()


def test_a_close_with_what_is_none_of_its_deliveries_closes_nothing() -> None:
    bay = SimulatedBay()
    bay.queue().send(b"x")
    with bay.queue().subscribe() as consumer, bay.queue().subscribe() as other:
        [delivery] = other.take()
        with pytest.raises(SettingsError, match="another consumer"):
            bay.ending.close(consumer, delivery)
        with pytest.raises(ArgumentError):
            bay.ending.close(consumer, [b"x"])  # type: ignore[list-item]
        assert consumer.stage is TAKING and other.in_flight == 1
    bay.check()


def test_a_host_that_has_not_got_its_consumer_yet_is_not_told_of_its_end() -> None:
    bay = SimulatedBay()
    calls: list[str] = []
    withdrawn = bay.queue("one").subscribe(on_ready=lambda: calls.append("withdrawn"))
    ended = bay.queue("other").subscribe(on_ready=lambda: calls.append("ended"))
    with bay.lock:
        bay.ending.withdraw(withdrawn)
        bay.ending.close_with_destination(ended, ())
    bay.call_ready()
    assert calls == ["ended"]
    assert withdrawn.stage is CLOSED and ended.stage is CLOSED
    bay.check()


def test_what_a_consumer_holds_is_found_in_all_its_lanes() -> None:
    bay = SimulatedBay()
    queue = bay.queue()
    queue.send(b"urgent", priority=9)
    queue.send(b"plain")
    queue.send(b"light", persistent=False)
    queue.send(b"of the other")
    with queue.subscribe() as consumer, queue.subscribe() as other:
        held = consumer.take(3)
        assert len(other.take()) == 1
        with bay.lock:
            assert set(held_by(consumer)) == set(held)
        consumer.ack(held)
        with bay.lock:
            assert held_by(consumer) == []
    bay.check()
