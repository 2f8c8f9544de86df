"""One way of a send for threads and event loops: at once where there is room, in steps where it must wait."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest
from compiled import interpreted
from simulated_bay import SimulatedBay

from forebay import DestinationPolicy, StoreFull
from forebay.dispatch.admission.limits import Reservation, Wait
from forebay.store.environment.locks import condition_of

POLICIES = {
    "limited": DestinationPolicy(max_messages=10),
    "dropping": DestinationPolicy(max_messages=10, when_full="drop_oldest"),
    "watched": DestinationPolicy(duplicate_window=100),
}
SENDS: list[dict[str, object]] = [{}, {"headers": {"a": 1}}, {"message_id": "7"}, {"persistent": False}]


def steps_of(call: Callable[[], object]) -> list[str]:
    """Names of the steps that a call enters."""
    entered: list[str] = []

    def look(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        is_step = Path(code.co_filename).parent.name in ("producer", "admission")
        if event == "call" and is_step and code.co_flags & inspect.CO_GENERATOR:
            entered.append(code.co_name)

    sys.setprofile(look)
    try:
        call()
    finally:
        sys.setprofile(None)
    return entered


@interpreted("a profile sees no compiled function")
@pytest.mark.parametrize("fields", SENDS, ids=str)
@pytest.mark.parametrize("name", ["plain", *POLICIES])
def test_a_send_that_finds_room_enters_no_step(name: str, fields: dict[str, object]) -> None:
    queue = SimulatedBay(policies=POLICIES).queue(name)
    assert steps_of(lambda: queue.send(b"x", **fields)) == []  # type: ignore[arg-type]
    assert queue.depth == 1


@interpreted("a profile sees no compiled function")
def test_a_send_that_must_wait_goes_through_the_steps() -> None:
    queue = SimulatedBay(policies={"orders": DestinationPolicy(max_messages=1)}).queue()
    queue.send(b"1")

    def send() -> None:
        with pytest.raises(StoreFull):
            queue.send(b"2", timeout=0.0)

    assert "_send_steps" in steps_of(send)


class Interrupted(BaseException):
    pass


def test_an_interrupted_wait_gives_back_its_place_and_its_room() -> None:
    queue = SimulatedBay(policies={"orders": DestinationPolicy(max_messages=1)}).queue()
    queue.send(b"1")
    limits = queue.current.limits
    assert limits is not None
    steps = limits.wait_for_room((1,), Reservation(), condition_of(queue.monitor.lock))
    wait = next(steps)
    assert isinstance(wait, Wait) and len(limits.blocked()) == 1
    with pytest.raises(Interrupted):
        steps.throw(Interrupted())
    assert not limits.has_senders

    other = limits.wait_for_room((1,), Reservation(), condition_of(queue.monitor.lock))
    next(other)
    with queue.subscribe() as consumer:
        consumer.take()[0].ack()  # serves who waits
    assert limits.has_senders
    other.close()
    assert not limits.has_senders and queue.send(b"2")
