"""What tests send, take and compare again and again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from simulated_bay import SimulatedBay

from forebay import Consumer, Delivery, Message, Queue

KIB = 1024


class Bodied(Protocol):
    """A message as it was sent, browsed, or delivered."""

    @property
    def body(self) -> bytes: ...


# ------------------------------------------------------------------ to send


def numbered_body(n: int, size: int = KIB) -> bytes:
    """A body of that size, which begins with its number."""
    return (b"%d " % n).ljust(size, b".")


def numbered_messages(count: int) -> list[Message]:
    """The number is the body, and in the headers."""
    return [Message(b"%d" % number, {"n": number}) for number in range(count)]


def send_equal(queue: Queue, count: int, body: bytes = b"x", **headers: Any) -> list[str]:
    """Messages with one body; the header n tells them apart. Returns their ids."""
    return queue.send_many(Message(body, {"n": number, **headers}) for number in range(count))


def fill(bay: SimulatedBay, count: int, name: str = "orders", size: int = 600) -> list[str]:
    """Messages of that size, all alike. Returns their ids."""
    return bay.queue(name).send_many(Message(bytes(size)) for _ in range(count))


# ------------------------------------------------------------------ to take


def take_all(consumer: Consumer, most: int = 100) -> list[Delivery]:
    """All that it can be given, in flight. most: with one take."""
    taken: list[Delivery] = []
    while deliveries := consumer.take(most):
        taken += deliveries
    return taken


def take_up_to(consumer: Consumer, most: int = 10_000) -> list[Delivery]:
    """So many if they are there, however many loads that takes."""
    taken: list[Delivery] = []
    while len(taken) < most and (deliveries := consumer.take(most - len(taken))):
        taken += deliveries
    return taken


def drain(consumer: Consumer) -> list[str]:
    """The ids of all that it can be given, acknowledged."""
    taken: list[str] = []
    while deliveries := consumer.take(100):
        taken += ids(deliveries)
        consumer.ack(deliveries)
    return taken


# ------------------------------------------------------------------ to compare


def ids(deliveries: Iterable[Delivery]) -> list[str]:
    return [delivery.id for delivery in deliveries]


def bodies(messages: Iterable[Bodied]) -> list[bytes]:
    return [message.body for message in messages]


def number_of(message: Bodied) -> int:
    """With which its body begins."""
    return int(message.body.split()[0])


def numbers(messages: Iterable[Bodied]) -> list[int]:
    return [number_of(message) for message in messages]


def tmp_bytes(bay: SimulatedBay) -> int:
    return bay.bay.statistics().tmp_storage.bytes


def drain_retained(consumer: Consumer) -> list[tuple[bytes, bool]]:
    """The body of each message there is, and whether it was retained; all are acknowledged."""
    found: list[tuple[bytes, bool]] = []
    while deliveries := consumer.take(100):
        consumer.ack(deliveries)
        found += [(delivery.body, delivery.retained) for delivery in deliveries]
    return found
