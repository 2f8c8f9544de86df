"""The other side: ActiveMQ's KahaDB and its broker, driven by a `run.sh` that is not part of this project.

The user gives a folder with that script. `run.sh W1 sync` and the like, with N, LAG, DATA (a directory to work in),
CLASSES and JOPT (options of Java) in the environment, must print one JSON line a pass: case, msgs, rate,
cpu_us_per_msg, other_cpu_s, wall_s, written_mib, peak_rss_mib, and for W1 journal_alloc_mib and index_alloc_mib. W4
leaves a store for W5. W8 takes M messages twice from the head of a backlog of N before it sends and takes as many. For
W9 there is one line more, with the case W9-after-every, written_files, files_left, journal_mib and live_bytes.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Any, Final

from forebay.dispatch.config.sizes import MIB

from .disturbance import Undisturbed
from .process import PREFIX, PassFailed
from .stopwatch import Facts

LAG: Final = 1000
NEEDED: Final = (
    "KahaDB needs a JDK and ActiveMQ's jars; on Debian and Ubuntu: "
    "apt-get install --no-install-recommends libactivemq-java default-jdk-headless"
)
_BARE: Final = "W3-bare-append"
_HEAD_PASSES: Final = 2
_RESTARTS: Final = {
    "W4-restart-clean": "clean_seconds",
    "W4-restart-kill": "kill_seconds",
    "W4-restart-noidx": "index_lost_seconds",
}


@dataclass(frozen=True, slots=True)
class Peer:
    """One case that a command of the driver, such as "W1 sync", prints, and its number of messages."""

    command: str
    case: str
    messages: int
    java_options: str = ""
    backlog: int = 0
    """Messages that stay in the queue during the work."""

    @property
    def sizes(self) -> dict[str, str]:
        """The environment variables with the numbers of messages."""
        if not self.backlog:
            return {"N": str(self.messages)}
        return {"N": str(self.backlog + _HEAD_PASSES * self.messages), "M": str(self.messages)}


class KahaDB:
    """Runs the driver. A context manager, which keeps the compiled driver for all passes."""

    def __init__(self, folder: Path, directory: Path, undisturbed: Undisturbed) -> None:
        """Prepare the driver. folder: has run.sh. directory: on the disk that is measured."""
        self._undisturbed = undisturbed
        self._script = folder.resolve() / "run.sh"
        self._directory = directory
        self._classes = TemporaryDirectory(dir=directory, prefix=PREFIX)
        self._printed: dict[tuple[str, str], list[dict[str, Any]]] = {}

    def __enter__(self) -> KahaDB:
        return self

    def __exit__(self, *_: object) -> None:
        self._classes.cleanup()

    def begin_round(self) -> None:
        """Begin a round, in which each command is run once, whatever cases it has."""
        self._printed.clear()

    def measure(self, peer: Peer) -> Facts:
        """Measure the last pass of a fresh virtual machine, which is the warm one. Raises PassFailed."""
        key = (peer.command, peer.java_options)
        if key not in self._printed:
            self._printed[key] = self._undisturbed.measure(lambda: self._run(peer), _others_share)
        lines = self._printed[key]
        own = [line for line in lines if line["case"] == peer.case]
        if not own:
            raise PassFailed(f"run.sh {peer.command} printed nothing of {peer.case}")
        if peer.case.startswith("W9"):
            return _stuck(own[-1])
        return _facts(own[-1], peer.messages) | _beside(peer.case, own[-1], lines)

    def _run(self, peer: Peer) -> list[dict[str, Any]]:
        with TemporaryDirectory(dir=self._directory, prefix=PREFIX) as place:
            environment = (
                os.environ
                | peer.sizes
                | {
                    "LAG": str(LAG),
                    "DATA": f"{place}/data",
                    "CLASSES": self._classes.name,
                    "JOPT": peer.java_options,
                }
            )
            lines: list[dict[str, Any]] = []
            for command in ("W4", "W5") if peer.command == "W4" else (peer.command,):
                os.sync()
                ended = subprocess.run(
                    ["sh", str(self._script), *command.split()], env=environment, capture_output=True, text=True
                )
                printed = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]
                if ended.returncode or not printed:
                    problem = f"ended with exit code {ended.returncode}: {ended.stderr[-2000:].strip()}"
                    raise PassFailed(f"run.sh {command} {problem}\n{NEEDED}")
                lines += printed
        return lines


def has_java() -> bool:
    """Return whether Java and its compiler are installed. Missing jars show only when the driver runs."""
    return shutil.which("java") is not None and shutil.which("javac") is not None


def java_version() -> str:
    """Return the version that `java` reports."""
    told = subprocess.run(["java", "-version"], capture_output=True, text=True).stderr.split('"')
    return f"Java {told[1]}" if len(told) > 1 else "Java"


def _others_share(lines: list[dict[str, Any]]) -> float:
    """Return the part of one core that others used during the last pass of any case of a command."""
    last = {line["case"]: line for line in lines if "other_cpu_s" in line}
    return max((line["other_cpu_s"] / line["wall_s"] for line in last.values()), default=0.0)


def _facts(line: dict[str, Any], messages: int) -> Facts:
    """Return the facts, scaled to this many messages, because several threads store more than one is told to."""
    scale = messages / line["msgs"]
    return {
        "seconds": line["wall_s"] * scale,
        "cpu_seconds": line["cpu_us_per_msg"] * messages / 1e6,
        "others_seconds": max(0.0, line["other_cpu_s"]) * scale,
        "written_bytes": line["written_mib"] * MIB * scale,
        "peak_bytes": line["peak_rss_mib"] * MIB,
    }


def _beside(case: str, line: dict[str, Any], lines: Iterable[dict[str, Any]]) -> Facts:
    """Return the facts that only some cases have."""
    if case.startswith("W1"):  # in other cases, the disk has files that cleanup has not reached yet
        return {"disk_bytes": (line["journal_alloc_mib"] + line["index_alloc_mib"]) * MIB}
    if case.startswith("W3"):
        return {"times_bare": line["rate"] / mean(bare["rate"] for bare in lines if bare["case"] == _BARE)}
    if case.startswith("W5"):
        return {_RESTARTS[other["case"]]: other["wall_s"] for other in lines if other["case"] in _RESTARTS}
    return {}


def _stuck(line: dict[str, Any]) -> Facts:
    return {
        "data_logs_written": line["written_files"],
        "data_logs_left": line["files_left"],
        "journal_bytes": line["journal_mib"] * MIB,
        "live_bytes": line["live_bytes"],
    }
