"""Choices: which brokers with which settings are compared, and what each promises of a confirmed message."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from .broker import Broker
from .embedded import Embedded
from .nats_jetstream import JetStream
from .postgresql import PostgreSQL
from .rabbitmq import AioPika, Pika
from .redis_streams import RedisStreams

SYNCED: Final = "on disk"
SOON: Final = "on disk within about a second"
LATER: Final = "with the system, on disk later"


@dataclass(frozen=True, slots=True)
class Choice:
    """One broker with one setting, a row of the table."""

    title: str
    confirmed: str
    """When a confirmed message is on disk: SYNCED, SOON or LATER."""
    setting: str
    """The setting behind that promise, as text."""
    make: Callable[[], Broker]


CHOICES: Final = (
    Choice("forebay, always", SYNCED, '`sync="always"`, acks too', lambda: Embedded("always")),
    Choice(
        "RabbitMQ classic, pika",
        SYNCED,
        "durable queue, each confirm awaited alone; acks unanswered",
        lambda: Pika("classic"),
    ),
    Choice(
        "RabbitMQ classic, aio-pika",
        SYNCED,
        "the same, confirms of a batch awaited together",
        lambda: AioPika("classic"),
    ),
    Choice(
        "RabbitMQ quorum, pika", SYNCED, "quorum queue of one node, else as the classic one", lambda: Pika("quorum")
    ),
    Choice(
        "RabbitMQ quorum, aio-pika", SYNCED, "the same, confirms of a batch awaited together", lambda: AioPika("quorum")
    ),
    Choice("Redis Streams, always", SYNCED, "`appendfsync always`, acks too", lambda: RedisStreams("always")),
    Choice("PostgreSQL", SYNCED, "`synchronous_commit on`, acks too", lambda: PostgreSQL(True)),
    Choice("forebay, interval", SOON, '`sync="interval"`', lambda: Embedded("interval")),
    Choice("Redis Streams, everysec", SOON, "`appendfsync everysec`", lambda: RedisStreams("everysec")),
    Choice(
        "PostgreSQL, asynchronous",
        SOON,
        "`synchronous_commit off`; a crash of the server loses it too",
        lambda: PostgreSQL(False),
    ),
    Choice("forebay, never", LATER, '`sync="never"`: checkpoints every 5 s', lambda: Embedded("never")),
    Choice("NATS JetStream", LATER, "file storage, synced every 2 minutes; acks unanswered", lambda: JetStream()),
)
BY_TITLE: Final = {choice.title: choice for choice in CHOICES}
PACKAGES: Final = tuple(sorted({choice.make().client for choice in CHOICES} - {""}))
"""Distributions of all clients, as pip names them."""


def needs_client(title: str) -> bool:
    """Return whether a choice must run in the Python that has the clients."""
    return bool(BY_TITLE[title].make().client)
