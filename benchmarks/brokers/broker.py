"""Broker: the interface of a server with its client, or of a library without a server, for a pass.

A broker belongs to one pass, one process and one event loop. Blocking clients may block, because nothing else runs in
that loop. Data and settings of a server are in the directory of the pass; nothing outside is read or changed.
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
"""Seconds after which a confirmed message that does not arrive counts as lost."""


class BrokerFailed(Exception):
    """A server did not start, or did not do what it confirmed."""


class Broker(ABC):
    """One queue, stored on disk. The setting of the broker says when a message is confirmed."""

    client: ClassVar[str] = ""
    """The distribution of the client; "": none is needed."""

    @classmethod
    @abstractmethod
    def missing(cls) -> str:
        """Return text about what must be installed; "" if nothing is missing."""

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
        """Take that many messages, which are stored, and acknowledge them; return the bytes of their bodies."""

    @abstractmethod
    def memory(self) -> Memory:
        """Return the memory of the server's processes, or of this process if the broker is a library."""

    async def disconnect(self) -> None:  # noqa: B027
        """Close the client's connections, if it has tasks in the loop that would warn at the end."""

    @abstractmethod
    def stop(self) -> None:
        """End all that `start` has started, even if it failed half-way. May be called twice."""


class ServedBroker(Broker):
    """A broker in processes of its own."""

    debian: ClassVar[str]
    """The Debian package of the server."""
    module: ClassVar[str]
    """The module name of the client."""

    def __init__(self) -> None:
        self._servers: list[Server] = []

    @classmethod
    @abstractmethod
    def program(cls) -> Path | None:
        """Return the program that starts the server; None: it is not installed."""

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
        """Let `stop` end the server, even if it never answers; return it."""
        self._servers.append(server)
        return server

    def _versions(self, server: str) -> str:
        name = self.client.partition("[")[0]
        return f"{server}, {name} {version(name)}"
