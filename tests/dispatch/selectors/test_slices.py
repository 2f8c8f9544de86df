"""Selectors over slices: the messages of a slice are offered as messages that come one by one are."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from compiled import interpreted
from simulated_bay import SimulatedBay

from forebay import Message
from forebay.store.format.message_properties import header_values, header_values_of_each
from forebay.store.message import HeaderValue

SELECTORS = (
    None,
    "part = 7",
    "part < 50 AND price IS NOT NULL",
    "region = 'eu'",
    "JMSPriority = 4 AND part > 90",
    "order.to = 'eu'",
    "raw IS NOT NULL",
)
"""None, one header, two of them, a string that is looked for in the bytes, a field, a name with points, bytes."""


def headers_of(number: int) -> dict[str, HeaderValue]:
    """Return headers of many kinds; some of each slice have bytes, a dict, a wide int, or none at all."""
    headers: dict[str, HeaderValue] = {"region": ("eu", "us", "ap")[number % 3], "part": number % 100, "price": 0.5}
    if number % 11 == 0:
        headers |= {"raw": b"\xff", "part": 2**70}
    if number % 13 == 0:
        headers |= {"order": {"to": "eu" if number % 2 else "us"}}
    return headers if number % 17 else {}


@pytest.mark.parametrize("text", SELECTORS)
def test_slice_reaches_the_same_consumers_as_single_messages(text: str | None) -> None:
    messages = [Message(b"%d" % number, headers_of(number)) for number in range(600)]
    taken: list[list[bytes]] = []
    for as_slices in (False, True):
        bay = SimulatedBay()
        queue = bay.queue()
        with queue.subscribe(selector=text) as consumer, queue.subscribe(selector="part = 3") as other:
            if as_slices:
                queue.send_many(messages)
            else:
                for message in messages:
                    queue.send(message.body, headers=message.headers)
            taken += [[delivery.body for delivery in some.take(600)] for some in (other, consumer)]
    assert taken[:2] == taken[2:] and all(taken)


def test_slice_is_judged_as_it_arrives_and_never_read() -> None:
    bay = SimulatedBay()
    queue = bay.queue()
    with queue.subscribe(selector="part = 7") as consumer:
        before = bay.reads
        queue.send_many([Message(b"%d" % number, headers_of(number)) for number in range(200)])
        assert [delivery.body for delivery in consumer.take(200)] == [b"7", b"107"]
        assert bay.reads == before


@interpreted("replaces what compiled code has linked")
def test_headers_of_a_slice_are_decoded_once_for_all_lists_that_ask_for_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    decoded: list[frozenset[str]] = []

    def counted(properties: Sequence[bytes], names: frozenset[str]) -> Sequence[dict[str, HeaderValue] | None]:
        decoded.append(names)
        return header_values_of_each(properties, names)

    monkeypatch.setattr("forebay.dispatch.core.areas.target_area.header_values_of_each", counted)
    queue = SimulatedBay().queue()
    consumers = [queue.subscribe(selector=f"part = {part}") for part in range(20)]
    queue.send_many([Message(b"%d" % number, headers_of(number)) for number in range(200)])
    assert decoded == [frozenset({"part"})]
    assert [delivery.body for delivery in consumers[7].take(200)] == [b"7", b"107"]


@interpreted("replaces what compiled code has linked")
def test_headers_of_a_slice_are_not_decoded_for_a_list_whose_selector_rejects_their_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    decoded: list[bytes] = []

    def counted(properties: bytes, names: frozenset[str]) -> dict[str, HeaderValue]:
        decoded.append(properties)
        return header_values(properties, names)

    monkeypatch.setattr("forebay.dispatch.core.model.matching.header_values", counted)
    queue = SimulatedBay().queue()
    with queue.subscribe(selector="part = 7") as consumer:
        queue.send_many([Message(b"%d" % number, headers_of(number)) for number in range(200)])
        assert len(decoded) == 2
        assert [delivery.body for delivery in consumer.take(200)] == [b"7", b"107"]
