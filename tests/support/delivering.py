"""Helpers with which tests send, take and compare messages."""

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
    """Return a body of a size that begins with a number."""
    return (b"%d " % n).ljust(size, b".")


def numbered_messages(count: int) -> list[Message]:
    """Return messages whose body and header n are their number."""
    return [Message(b"%d" % number, {"n": number}) for number in range(count)]


def send_equal(queue: Queue, count: int, body: bytes = b"x", **headers: Any) -> list[str]:
    """Send messages with one body and different headers n; return their ids."""
    return queue.send_many(Message(body, {"n": number, **headers}) for number in range(count))


def fill(bay: SimulatedBay, count: int, name: str = "orders", size: int = 600) -> list[str]:
    """Send equal messages of a size; return their ids."""
    return bay.queue(name).send_many(Message(bytes(size)) for _ in range(count))


# ------------------------------------------------------------------ to take


def take_all(consumer: Consumer, most: int = 100) -> list[Delivery]:
    """Take all messages that the consumer can get, and leave them in flight. most: messages of one take."""
    taken: list[Delivery] = []
    while deliveries := consumer.take(most):
        taken += deliveries
    return taken


def take_up_to(consumer: Consumer, most: int = 10_000) -> list[Delivery]:
    """Take up to this many messages, with as many loads as needed."""
    taken: list[Delivery] = []
    while len(taken) < most and (deliveries := consumer.take(most - len(taken))):
        taken += deliveries
    return taken


def drain(consumer: Consumer) -> list[str]:
    """Take and acknowledge all messages that the consumer can get; return their ids."""
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
    """Return the number with which the body of a message begins."""
    return int(message.body.split()[0])


def numbers(messages: Iterable[Bodied]) -> list[int]:
    return [number_of(message) for message in messages]


def tmp_bytes(bay: SimulatedBay) -> int:
    return bay.bay.statistics().tmp_storage.bytes


def drain_retained(consumer: Consumer) -> list[tuple[bytes, bool]]:
    """Take and acknowledge all messages; return the body of each, and whether it was retained."""
    found: list[tuple[bytes, bool]] = []
    while deliveries := consumer.take(100):
        consumer.ack(deliveries)
        found += [(delivery.body, delivery.retained) for delivery in deliveries]
    return found
