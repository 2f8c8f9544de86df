"""Broker: what a pass asks of a server and its client, or of a library that needs no server.

A broker belongs to one pass, one process and one event loop. Clients that
block do so: nothing else runs in that loop. Data and settings of a server lie
in the directory of the pass; nothing outside is read or changed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar, Final

from .server import Memory, Server

WAIT_SECONDS: Final = 60.0
"""Seconds after which a message that must be there counts as lost."""


class BrokerFailed(Exception):
    """A server did not start, or did not do what it confirmed."""


class Broker(ABC):
    """One queue, stored on disk. Confirmed: what the setting of the broker promises."""

    client: ClassVar[str] = ""
    """The distribution of the client; "": none is needed."""

    @classmethod
    @abstractmethod
    def missing(cls) -> str:
        """Return what must be installed, in words; "" if everything is there."""

    @abstractmethod
    async def start(self, place: Path) -> str:
        """Start, connect and make the queue; return the versions of server and client."""

    @abstractmethod
    async def put_one(self, body: bytes) -> None:
        """Store a message and wait until it is confirmed."""

    @abstractmethod
    async def put_batch(self, bodies: Sequence[bytes]) -> None:
        """Store messages in the client's fastest way and wait until all are confirmed."""

    @abstractmethod
    async def take_ack(self, messages: int) -> int:
        """Take so many messages, which are there, then acknowledge them; return the bytes of their bodies."""

    @abstractmethod
    def memory(self) -> Memory:
        """Return what the server's processes take, or this process where the broker is a library in it."""

    async def disconnect(self) -> None:  # noqa: B027
        """Close the connections of the client, where it has tasks in the loop that would be told of."""

    @abstractmethod
    def stop(self) -> None:
        """End all that start has started, however far it came. May be called twice."""


class ServedBroker(Broker):
    """A broker in processes of its own."""

    debian: ClassVar[str]
    """The Debian package of the server."""
    module: ClassVar[str]
    """What the client is imported as."""

    def __init__(self) -> None:
        self._servers: list[Server] = []

    @classmethod
    @abstractmethod
    def program(cls) -> Path | None:
        """Return what starts the server; None: it is not installed."""

    @classmethod
    def missing(cls) -> str:
        if cls.program() is None:
            return f"apt-get install --no-install-recommends {cls.debian}"
        return "" if find_spec(cls.module) else f"pip install {cls.client}"

    def memory(self) -> Memory:
        return Memory.total(server.memory() for server in self._servers)

    def stop(self) -> None:
        while self._servers:
            self._servers.pop().stop()

    def _run(self, server: Server) -> Server:
        """Have stop end the server, also if it never answers."""
        self._servers.append(server)
        return server

    def _versions(self, server: str) -> str:
        name = self.client.partition("[")[0]
        return f"{server}, {name} {version(name)}"
