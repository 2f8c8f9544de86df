"""The other side: ActiveMQ's KahaDB under the same memoryLimit, driven by a `run.sh` that is not part of this project.

`run.sh W7` and `run.sh W8`, with N, M, DATA, CLASSES and JOPT=-Dmem=<MiB> in the environment, must print one JSON line
a pass with case and rate. Its queues, topics and speeds can't be varied, and it reports no hit ratio. So the comparison
has one queue that overflows, and one deep queue.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from forebay.dispatch.config.sizes import MIB

CASES: Final = {
    "W7-fill": "fill",
    "W7-drain": "drain",
    "W8-consume-at-depth": "consume",
    "W8-send+consume-at-depth": "path",
}

PREFIX: Final = "forebay-bench-"


class KahaFailed(Exception):
    """run.sh ended early. The text has the end of its output."""


class KahaDB:
    """Runs the driver. A context manager, which keeps the compiled driver for all passes."""

    def __init__(self, folder: Path, directory: Path) -> None:
        """Prepare the driver. folder: has run.sh. directory: on the disk that is measured."""
        self._script = folder.resolve() / "run.sh"
        self._directory = directory
        self._classes = TemporaryDirectory(dir=directory, prefix=PREFIX)

    def __enter__(self) -> KahaDB:
        return self

    def __exit__(self, *_: object) -> None:
        self._classes.cleanup()

    def rates(self, limit_bytes: int, case: str, messages: int, moved: int = 0) -> dict[str, float]:
        """Return messages a second of the last pass, which is the warm one, by the names of CASES.

        Raises KahaFailed.
        """
        with TemporaryDirectory(dir=self._directory, prefix=PREFIX) as place:
            environment = os.environ | {
                "N": str(messages),
                "M": str(moved),
                "DATA": f"{place}/data",
                "CLASSES": self._classes.name,
                "JOPT": f"-Dmem={limit_bytes // MIB}",
            }
            ended = subprocess.run(["sh", str(self._script), case], env=environment, capture_output=True, text=True)
        lines = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]
        rates = {CASES[line["case"]]: float(line["rate"]) for line in lines if line["case"] in CASES}
        if ended.returncode or not rates:
            raise KahaFailed(f"run.sh {case} ended with exit code {ended.returncode}: {ended.stderr[-2000:].strip()}")
        return rates
