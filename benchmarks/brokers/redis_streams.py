"""Redis Streams: one stream, one consumer group, an append-only file; redis-py.

An acknowledged message is also deleted; otherwise the stream would keep it.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal

from .broker import WAIT_SECONDS, BrokerFailed, ServedBroker
from .server import HOST, Server, free_port

_STREAM: Final = "bench"
_GROUP: Final = "group"


class RedisStreams(ServedBroker):
    """The server. fsync: its setting appendfsync."""

    debian = "redis-server"
    client = module = "redis"

    def __init__(self, fsync: Literal["always", "everysec"]) -> None:
        super().__init__()
        self._fsync = fsync

    @classmethod
    def program(cls) -> Path | None:
        found = shutil.which("redis-server")
        return Path(found) if found else None

    async def start(self, place: Path) -> str:
        import redis

        program, port = self.program(), free_port()
        assert program is not None
        options = {
            "bind": HOST,
            "port": str(port),
            "dir": str(place),
            "appendonly": "yes",
            "appendfsync": self._fsync,
            "save": "",
        }
        command = [str(program), *(part for name, value in options.items() for part in (f"--{name}", value))]
        await self._run(Server(command, place)).answers(port)
        self._redis = redis.Redis(HOST, port, socket_timeout=WAIT_SECONDS)
        self._redis.xgroup_create(_STREAM, _GROUP, mkstream=True)
        return self._versions(f"Redis {self._redis.info('server')['redis_version']}")

    async def put_one(self, body: bytes) -> None:
        self._redis.xadd(_STREAM, {b"body": body})

    async def put_batch(self, bodies: Sequence[bytes]) -> None:
        pipeline = self._redis.pipeline(transaction=False)
        for body in bodies:
            pipeline.xadd(_STREAM, {b"body": body})
        pipeline.execute()

    async def take_ack(self, messages: int) -> int:
        size = 0
        while messages:
            told = self._redis.xreadgroup(_GROUP, "consumer", {_STREAM: ">"}, count=messages)
            if not told:
                raise BrokerFailed("Redis has nothing more in the stream")
            [(_, entries)] = told
            pipeline = self._redis.pipeline(transaction=False)
            ids = [entry for entry, _ in entries]
            pipeline.xack(_STREAM, _GROUP, *ids)
            pipeline.xdel(_STREAM, *ids)
            pipeline.execute()
            size += sum(len(fields[b"body"]) for _, fields in entries)
            messages -= len(entries)
        return size
