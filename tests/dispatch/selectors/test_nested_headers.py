"""Selectors that reach into nested headers, through a queue: in RAM, read from the journal, and browsed."""

from __future__ import annotations

from simulated_bay import SimulatedBay

from forebay import Message


def test_consumer_with_points_in_its_selector_gets_its_messages_at_any_depth_and_after_a_restart() -> None:
    bay = SimulatedBay()
    regions = ("us", "eu", "asia")
    bay.queue().send_many(
        Message(b"%d" % n, {"order": {"to": {"region": regions[n % 3]}, "kg": n}, "other": [n]}) for n in range(300)
    )
    text = "order.to.region = 'eu' AND order.kg >= 150"
    expected = [b"%d" % n for n in range(150, 300) if n % 3 == 1]
    assert [message.body for message in bay.queue().browse(text)] == expected
    with bay.queue().subscribe(selector=text) as consumer:
        assert [delivery.body for delivery in consumer.take(300)] == expected
    bay.reopen()
    with bay.queue().subscribe(selector=text) as consumer:
        while bay.step():
            pass
        assert [delivery.body for delivery in consumer.take(300)] == expected
