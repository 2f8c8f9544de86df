"""RabbitMQ: a durable queue, persistent messages, publisher confirms; pika, which blocks, and aio-pika.

An ack has no answer in AMQP, so a client learns only that the ack was sent.
"""

from __future__ import annotations

import asyncio
import shutil
from abc import abstractmethod
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final, Literal

from forebay.benchmarks.works.host import BATCH_MESSAGES

from .broker import WAIT_SECONDS, BrokerFailed, ServedBroker
from .server import HOST, Server, free_port

QueueType = Literal["classic", "quorum"]
_QUEUE: Final = "bench"
_SCRIPTS: Final = Path("/usr/lib/rabbitmq/lib")


class RabbitMQ(ServedBroker):
    """The server, started without the package's script, which would change the user and read the system's settings."""

    debian = "rabbitmq-server"

    def __init__(self, queue_type: QueueType) -> None:
        super().__init__()
        self._arguments = {"x-queue-type": queue_type}

    @classmethod
    def program(cls) -> Path | None:
        return next(_SCRIPTS.glob("rabbitmq_server-*/sbin/rabbitmq-server"), None)

    async def start(self, place: Path) -> str:
        program, epmd = self.program(), shutil.which("epmd")
        assert program is not None and epmd is not None
        port, names, distribution = free_port(), free_port(), free_port()
        # With a port mapper from here, the node does not start one that would outlive the pass.
        mapper = self._run(Server([epmd, "-port", str(names), "-address", HOST], place))
        await mapper.answers(names)
        (place / "rabbitmq.conf").write_text(f"listeners.tcp.1 = {HOST}:{port}\n", encoding="ascii")
        (place / "plugins").write_text("[].\n", encoding="ascii")
        environment = {
            "HOME": str(place),
            "ERL_EPMD_PORT": str(names),
            "RABBITMQ_NODENAME": f"bench{port}@localhost",
            "RABBITMQ_DIST_PORT": str(distribution),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
            "RABBITMQ_CONFIG_FILE": str(place / "rabbitmq.conf"),
            "RABBITMQ_CONF_ENV_FILE": str(place / "none"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(place / "plugins"),
            "RABBITMQ_FEATURE_FLAGS_FILE": str(place / "feature_flags"),
            "RABBITMQ_MNESIA_BASE": str(place / "data"),
            "RABBITMQ_LOG_BASE": str(place / "log"),
            "RABBITMQ_PID_FILE": str(place / "pid"),
        }
        await self._run(Server([program], place, environment=environment)).answers(port)
        await self._connect(port)
        return self._versions(f"RabbitMQ {program.parts[-3].rpartition('-')[2]}")

    @abstractmethod
    async def _connect(self, port: int) -> None:
        """Connect and declare the queue."""


class Pika(RabbitMQ):
    """The pika client. Its blocking channel waits for the confirm of each message, even in a batch."""

    client = module = "pika"

    async def _connect(self, port: int) -> None:
        import pika

        self._properties = pika.BasicProperties(delivery_mode=pika.DeliveryMode.Persistent)
        connection = pika.BlockingConnection(pika.ConnectionParameters(HOST, port))
        self._out, self._in = connection.channel(), connection.channel()
        self._out.confirm_delivery()
        self._out.queue_declare(_QUEUE, durable=True, arguments=self._arguments)
        self._in.basic_qos(prefetch_count=BATCH_MESSAGES)
        self._deliveries = self._in.consume(_QUEUE, inactivity_timeout=WAIT_SECONDS)

    async def put_one(self, body: bytes) -> None:
        self._out.basic_publish("", _QUEUE, body, self._properties)

    async def put_batch(self, bodies: Sequence[bytes]) -> None:
        for body in bodies:
            self._out.basic_publish("", _QUEUE, body, self._properties)

    async def take_ack(self, messages: int) -> int:
        size, method = 0, None
        for method, _, body in islice(self._deliveries, messages):
            if method is None:
                raise BrokerFailed("RabbitMQ delivers nothing more")
            size += len(body)
        assert method is not None
        self._in.basic_ack(method.delivery_tag, multiple=True)
        return size


class AioPika(RabbitMQ):
    """The aio-pika client. It publishes a batch at once and awaits all confirms."""

    client, module = "aio-pika", "aio_pika"

    async def _connect(self, port: int) -> None:
        import aio_pika

        self._message = aio_pika.Message
        self._mode = aio_pika.DeliveryMode.PERSISTENT
        self._connection = await aio_pika.connect(host=HOST, port=port)
        out, incoming = await self._connection.channel(), await self._connection.channel()
        self._exchange = out.default_exchange
        await out.declare_queue(_QUEUE, durable=True, arguments=self._arguments)
        await incoming.set_qos(prefetch_count=BATCH_MESSAGES)
        self._deliveries: asyncio.Queue[Any] = asyncio.Queue()
        await (await incoming.get_queue(_QUEUE)).consume(self._deliveries.put)

    async def disconnect(self) -> None:
        await self._connection.close()

    async def put_one(self, body: bytes) -> None:
        await self._exchange.publish(self._message(body, delivery_mode=self._mode), _QUEUE)

    async def put_batch(self, bodies: Sequence[bytes]) -> None:
        await asyncio.gather(*map(self.put_one, bodies))

    async def take_ack(self, messages: int) -> int:
        size = 0
        for _ in range(messages):
            if self._deliveries.empty():
                delivery = await asyncio.wait_for(self._deliveries.get(), WAIT_SECONDS)
            else:
                delivery = self._deliveries.get_nowait()
            size += len(delivery.body)
        await delivery.ack(multiple=True)
        return size
