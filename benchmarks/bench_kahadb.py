"""The other side: ActiveMQ's KahaDB, driven by a `run.sh` that is no part of this project.

Given is a folder with that script. `run.sh W1 sync` and the like, with N, LAG,
DATA (a directory to work in) and CLASSES in the environment, must print one
JSON line a pass: case, msgs, rate, cpu_us_per_msg, other_cpu_s, wall_s,
written_mib, journal_alloc_mib, index_alloc_mib; for W4 one line each with
the cases W4-restart-clean, -kill and -noidx; for W9 one with the case
W9-after-every, written_files, files_left, journal_mib and live_bytes.
"""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from forebay.dispatch.sizes import MIB

from .bench_process import PREFIX, PassFailed
from .bench_stopwatch import Facts

LAG: Final = 1000
_RESTARTS: Final = {
    "W4-restart-clean": "clean_seconds",
    "W4-restart-kill": "kill_seconds",
    "W4-restart-noidx": "index_lost_seconds",
}


@dataclass(frozen=True, slots=True)
class Peer:
    """A case of the driver, such as "W1 sync", and of how many messages."""

    case: str
    messages: int


class KahaDB:
    """A context manager, which keeps the compiled driver for all passes."""

    def __init__(self, folder: Path, directory: Path) -> None:
        """folder: holds run.sh. directory: where to work, on the disk that is measured."""
        self._script = folder.resolve() / "run.sh"
        self._directory = directory
        self._classes = TemporaryDirectory(dir=directory, prefix=PREFIX)

    def __enter__(self) -> KahaDB:
        return self

    def __exit__(self, *_: object) -> None:
        self._classes.cleanup()

    def measure(self, peer: Peer) -> Facts:
        """The last pass of a fresh virtual machine, which is the warm one. Raises PassFailed."""
        with TemporaryDirectory(dir=self._directory, prefix=PREFIX) as place:
            environment = os.environ | {
                "N": str(peer.messages),
                "LAG": str(LAG),
                "DATA": f"{place}/data",
                "CLASSES": self._classes.name,
            }
            os.sync()
            ended = subprocess.run(
                ["sh", str(self._script), *peer.case.split()],
                env=environment,
                capture_output=True,
                text=True,
            )
        lines = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]
        if ended.returncode or not lines:
            problem = f"ended with exit code {ended.returncode}: {ended.stderr[-2000:].strip()}"
            raise PassFailed(f"run.sh {peer.case} {problem}")
        if peer.case.startswith("W4"):
            return {_RESTARTS[line["case"]]: line["wall_s"] for line in lines if line["case"] in _RESTARTS}
        if peer.case.startswith("W9"):
            return next(_stuck(line) for line in lines if line["case"] == "W9-after-every")
        line = lines[-1]
        facts = _facts(line)
        if peer.case.startswith("W1"):  # elsewhere it is what cleanup has not come to yet
            facts["disk_bytes"] = (line["journal_alloc_mib"] + line["index_alloc_mib"]) * MIB
        return facts


def java_version() -> str:
    """What `java` says it is."""
    told = subprocess.run(["java", "-version"], capture_output=True, text=True).stderr.split('"')
    return f"Java {told[1]}" if len(told) > 1 else "Java"


def _facts(line: dict[str, Any]) -> Facts:
    return {
        "seconds": line["wall_s"],
        "cpu_seconds": line["cpu_us_per_msg"] * line["msgs"] / 1e6,
        "others_seconds": max(0.0, line["other_cpu_s"]),
        "written_bytes": line["written_mib"] * MIB,
    }


def _stuck(line: dict[str, Any]) -> Facts:
    return {
        "data_logs_written": line["written_files"],
        "data_logs_left": line["files_left"],
        "journal_bytes": line["journal_mib"] * MIB,
        "live_bytes": line["live_bytes"],
    }
