"""The other side in Python: packaged queues on disk, driven by a `peers.py` that is not part of this project.

The user gives a folder with that script, and a Python that has the packages.
`peers.py W2 --child NAME --n N --depth DEPTH --limit-s SECONDS --vary` must store, get and acknowledge one message
after the other over a backlog and print one JSON line: n, wall, cpu.
"""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from .kahadb import LAG
from .process import PREFIX, PassFailed
from .stopwatch import Facts

SECONDS_MAX: Final = 2.0
"""Seconds for which each queue is measured. Most would need minutes for all messages of a pass."""

ONE_BY_ONE: Final = (
    "persist-queue Queue(file)",
    "persist-queue SQLiteQueue",
    "persist-queue SQLiteAckQueue",
    "persist-queue SQLiteAckQueue+clear",
    "queuelib FifoSQLiteQueue",
    "litequeue",
    "diskcache Deque",
    "huey SqliteStorage",
    "localqueue",
)
"""The queues that survive a kill."""
BATCHED: Final = ("persist-queue SQLiteQueue batch", "localqueue put_many")
PACKAGES: Final = ("persist-queue", "queuelib", "litequeue", "diskcache", "huey", "localqueue")


@dataclass(frozen=True, slots=True)
class PythonQueue:
    """One queue, with its name in the driver, and the most messages that it gets."""

    name: str
    messages: int


class NotThere(Exception):
    """The package of a queue is not installed."""


class PythonQueues:
    """Measures these queues, each pass in a process of its own."""

    def __init__(self, folder: Path, python: str, directory: Path) -> None:
        """Prepare the driver. folder: has peers.py. python: runs it. directory: on the disk that is measured."""
        self._script = folder.resolve() / "peers.py"
        self._python = python
        self._directory = directory

    def measure(self, queue: PythonQueue) -> Facts:
        """Measure one of the queues. Raises PassFailed, and NotThere without its package."""
        options = {"--child": queue.name, "--n": queue.messages, "--depth": LAG, "--limit-s": SECONDS_MAX}
        with TemporaryDirectory(dir=self._directory, prefix=PREFIX) as place:
            os.sync()
            ended = subprocess.run(
                [self._python, str(self._script), "W2", *(str(each) for item in options.items() for each in item)]
                + ["--vary"],
                env=os.environ | {"PEERS_DIR": place},
                capture_output=True,
                text=True,
            )
        if "ModuleNotFoundError" in ended.stderr:
            raise NotThere(queue.name)
        if ended.returncode:
            raise PassFailed(f"{queue.name} ended with exit code {ended.returncode}: {ended.stderr[-2000:].strip()}")
        told = json.loads(ended.stdout.splitlines()[-1])
        each = queue.messages / told["n"]
        return {"seconds": told["wall"] * each, "cpu_seconds": told["cpu"] * each}
