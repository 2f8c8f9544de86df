"""NATS JetStream: a work-queue stream in files, a durable pull consumer with explicit acks; nats-py."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from .broker import WAIT_SECONDS, ServedBroker
from .server import HOST, Server, free_port

_STREAM: Final = "bench"
_SUBJECT: Final = "bench.messages"


class JetStream(ServedBroker):
    """The server. It syncs its files every two minutes; version 2.9 has no setting for that."""

    debian = "nats-server"
    client, module = "nats-py", "nats"

    @classmethod
    def program(cls) -> Path | None:
        found = shutil.which("nats-server")
        return Path(found) if found else None

    async def start(self, place: Path) -> str:
        import nats
        from nats.js.api import AckPolicy, ConsumerConfig, RetentionPolicy, StorageType, StreamConfig

        program, port = self.program(), free_port()
        assert program is not None
        settings = {"host": HOST, "port": port, "jetstream": {"store_dir": str(place / "data")}}
        (place / "nats.conf").write_text(json.dumps(settings), encoding="utf-8")
        await self._run(Server([program, "-c", place / "nats.conf"], place)).answers(port)
        self._client = await nats.connect(f"nats://{HOST}:{port}", allow_reconnect=False)
        self._stream = self._client.jetstream(timeout=WAIT_SECONDS)
        await self._stream.add_stream(
            StreamConfig(
                name=_STREAM, subjects=[_SUBJECT], storage=StorageType.FILE, retention=RetentionPolicy.WORK_QUEUE
            )
        )
        explicit = ConsumerConfig(ack_policy=AckPolicy.EXPLICIT, ack_wait=WAIT_SECONDS)
        self._consumer = await self._stream.pull_subscribe(_SUBJECT, durable="consumer", config=explicit)
        found = self._client.connected_server_version
        return self._versions(f"NATS {found.major}.{found.minor}.{found.patch}")

    async def disconnect(self) -> None:
        await self._client.close()

    async def put_one(self, body: bytes) -> None:
        await self._stream.publish(_SUBJECT, body)

    async def put_batch(self, bodies: Sequence[bytes]) -> None:
        await asyncio.gather(*[await self._stream.publish_async(_SUBJECT, body) for body in bodies])

    async def take_ack(self, messages: int) -> int:
        size = 0
        while messages:
            taken = await self._consumer.fetch(messages, timeout=WAIT_SECONDS)
            for message in taken:
                await message.ack()
            await self._client.flush()
            size += sum(len(message.data) for message in taken)
            messages -= len(taken)
        return size
