"""What reading the id of a delivery costs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType

import pytest
from compiled import interpreted
from simulated_bay import SimulatedBay


def decodes(call: Callable[[], object]) -> int:
    """Return how often a call decodes headers."""
    found = 0

    def look(_: FrameType, event: str, called: object) -> None:
        nonlocal found
        found += event == "c_call" and type(getattr(called, "__self__", None)).__name__ == "Decoder"

    sys.setprofile(look)
    try:
        call()
    finally:
        sys.setprofile(None)
    return found


@interpreted("a profile sees no call by a compiled function")
@pytest.mark.parametrize("message_id", [None, "a 7"])
def test_the_id_is_read_without_the_headers_and_the_headers_are_decoded_once(message_id: str | None) -> None:
    queue = SimulatedBay().queue()
    sent_id = queue.send(b"x", headers={"a": 1}, message_id=message_id)
    with queue.subscribe() as consumer:
        [delivery] = consumer.take()
        assert decodes(lambda: delivery.id) == 0
        assert decodes(lambda: (delivery.id, delivery.headers)) == 1
        assert (delivery.id, delivery.headers) == (sent_id, {"a": 1})
