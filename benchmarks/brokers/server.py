"""Server: a child process on loopback that ends with its pass, and its memory."""

from __future__ import annotations

import asyncio
import os
import pwd
import signal
import socket
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

HOST: Final = "127.0.0.1"
START_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 10.0
_TOLD_CHARACTERS: Final = 2000


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory of processes. A page that several processes share counts for each in rss_bytes, but once in pss_bytes."""

    rss_bytes: int
    pss_bytes: int

    @staticmethod
    def total(parts: Iterable[Memory]) -> Memory:
        found = list(parts)
        return Memory(sum(part.rss_bytes for part in found), sum(part.pss_bytes for part in found))

    @staticmethod
    def of_process(process: psutil.Process) -> Memory:
        """Return the memory of a process; zeros if the process has just ended."""
        try:
            told = process.memory_full_info()
        except psutil.NoSuchProcess:
            return Memory(0, 0)
        return Memory(told.rss, told.pss)


class ServerFailed(Exception):
    """A server ended early or did not answer in time. The text has the end of its output."""


class Server:
    """A child with all its children."""

    def __init__(
        self,
        command: Sequence[str | Path],
        place: Path,
        *,
        environment: Mapping[str, str] | None = None,
        user: str | None = None,
        farewell: signal.Signals = signal.SIGKILL,
    ) -> None:
        """Start a server.

        place: directory for its output. user: the user to run as; None: that of this process. farewell: the signal that
        ends it at once; SIGKILL, unless that would leave something behind in the system.
        """
        self._farewell = farewell
        self._name = Path(command[0]).name
        self._log = place / f"{self._name}.log"
        with self._log.open("wb") as log:
            self._process = psutil.Popen(
                [str(part) for part in command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=place,
                env=dict(os.environ) | dict(environment or {}),
                user=user,
            )

    async def answers(self, port: int, said: str = "") -> None:
        """Wait until the server listens on the port and has said so in its output. Raises ServerFailed."""
        ends = time.monotonic() + START_SECONDS
        while self._process.poll() is None and time.monotonic() < ends:
            if said in self._told() and _listens(port):
                return
            await asyncio.sleep(0.05)
        raise ServerFailed(f"{self._name} did not begin to listen: {self._told()[-_TOLD_CHARACTERS:].strip()}")

    def memory(self) -> Memory:
        return Memory.total(Memory.of_process(process) for process in self._processes())

    def stop(self) -> None:
        """End the server at once, because nobody needs its data. No other process is touched."""
        processes = self._processes()
        _tell(self._process, self._farewell)
        _, alive = psutil.wait_procs(processes, timeout=_STOP_SECONDS if self._farewell != signal.SIGKILL else 0)
        for process in alive:
            _tell(process, signal.SIGKILL)
        psutil.wait_procs(alive, timeout=_STOP_SECONDS)

    def _told(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")

    def _processes(self) -> list[psutil.Process]:
        try:
            return [self._process, *self._process.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []


def _tell(process: psutil.Process, what: signal.Signals) -> None:
    try:
        process.send_signal(what)
    except psutil.NoSuchProcess:
        pass  # it has ended by itself


def _listens(port: int) -> bool:
    try:
        socket.create_connection((HOST, port), timeout=1.0).close()
    except OSError:
        return False
    return True


def free_port() -> int:
    """Return a free port of loopback."""
    with socket.socket() as found:
        found.bind((HOST, 0))
        port: int = found.getsockname()[1]
    return port


def unprivileged(name: str) -> str | None:
    """Return the user for a server that refuses to run as root; None: the present user will do.

    Raises ServerFailed if this is root and there is no such user.
    """
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam(name).pw_name
    except KeyError:
        raise ServerFailed(f"it refuses to run as root, and there is no user {name}") from None
