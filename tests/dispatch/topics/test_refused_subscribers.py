"""A subscriber for which memory has no room is refused as a whole: what was begun for it is taken back.

Opening or moving a subscription may itself take memory, so its consumer may find no room although there was some
before. Each test tries with a little more free memory each time, until the subscriber is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from delivering import bodies
from simulated_bay import SimulatedBay

from forebay import Consumer, Message, StoreFull, Topic, TopicReader
from forebay.dispatch.topics.state.topic_state import TopicState
from forebay.dispatch.topics.subscriptions.subscription_admin import SubscriptionAdmin
from forebay.store.format.state_record import NAME_BYTES_MAX
from forebay.store.numbering import PRIORITIES

MANY = 40
MOST_BYTES = 64 * 1024
STEP_BYTES = 32


def refusals(simulated: SimulatedBay, subscribe: Callable[[], Consumer | TopicReader]) -> Iterator[None]:
    """Try with more and more free memory; yield after each refusal, and return when the call had room."""
    for left_bytes in range(0, MOST_BYTES, STEP_BYTES):
        with simulated.full_memory(left_bytes):
            try:
                subscribe().close()
                break
            except StoreFull as full:
                assert full.limit == "memory_limit"
        yield
    else:
        pytest.fail("there was never room")


def crowded_bay(**fields: Any) -> SimulatedBay:
    """Return a store whose consumers have used up the memory that is guaranteed to them."""
    simulated = SimulatedBay(**fields)
    simulated.bay.topic("prices")
    simulated.queue().send(b"for which each consumer has a list")
    for number in range(MANY):
        simulated.queue().subscribe(selector=f"n = {number}")
    held = simulated.budget.holders["consumers"]
    assert held.held_bytes > held.guaranteed_bytes
    return simulated


def prices(simulated: SimulatedBay) -> Topic:
    return simulated.bay.topic("prices")


def test_a_refused_reader_gets_nothing_and_keeps_nothing() -> None:
    simulated = crowded_bay()
    with prices(simulated).subscribe(durable="audit") as audit:
        for priority in range(PRIORITIES):
            prices(simulated).send_many(Message(body, priority=priority) for body in (b"1", b"2"))
        audit.ack(audit.take(2 * PRIORITIES)[::2])
    for _ in refusals(simulated, lambda: prices(simulated).reader("begin")):
        assert not simulated.topic_state().online
        simulated.check()
    prices(simulated).send(b"for nobody", persistent=False)
    assert simulated.overflow.lanes == {}
    prices(simulated).unsubscribe("audit")
    simulated.bay.cleanup()
    assert simulated.topic_state().depth == 0
    simulated.check()


@pytest.mark.parametrize("selector", [None, "n < 3"])
def test_a_refused_durable_subscription_is_not_made(selector: str | None) -> None:
    simulated, name = crowded_bay(sync="always"), "n" * NAME_BYTES_MAX
    for _ in refusals(simulated, lambda: prices(simulated).subscribe(durable=name, selector=selector)):
        assert prices(simulated).subscriptions() == []
        assert not simulated.topic_state().online
        simulated.check()
    assert prices(simulated).subscriptions() == [name]
    prices(simulated).unsubscribe(name)
    simulated.check()


def test_a_refused_durable_subscription_is_gone_before_another_consumer_may_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    simulated, name = crowded_bay(sync="always"), "n" * NAME_BYTES_MAX
    found: list[list[str]] = []
    unsubscribe = SubscriptionAdmin.unsubscribe

    def unsubscribe_later(admin: SubscriptionAdmin, topic: TopicState, durable: str) -> None:
        found.append(prices(simulated).subscriptions())
        unsubscribe(admin, topic, durable)

    monkeypatch.setattr(SubscriptionAdmin, "unsubscribe", unsubscribe_later)
    for _ in refusals(simulated, lambda: prices(simulated).subscribe(durable=name)):
        pass
    assert not any(found)
    simulated.check()


def test_a_durable_subscription_whose_consumer_is_refused_stays_offline_with_its_messages() -> None:
    simulated = crowded_bay()
    with prices(simulated).subscribe(durable="audit"):
        for priority in range(PRIORITIES):
            prices(simulated).send(b"%d" % priority, priority=priority, persistent=False)
    for _ in refusals(simulated, lambda: prices(simulated).subscribe(durable="audit")):
        assert not simulated.topic_state().online
        simulated.check()
    with prices(simulated).subscribe(durable="audit") as audit:
        found = [body for _ in range(PRIORITIES) for body in bodies(audit.take(PRIORITIES))]
    assert found == [b"%d" % priority for priority in reversed(range(PRIORITIES))]
