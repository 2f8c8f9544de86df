"""The process of one pass: every figure comes from a fresh interpreter and an empty directory.

So no pass gains from memory, files or caches of an earlier one. The directory is always removed, except after a SIGKILL
of the parent.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from .stopwatch import Facts
from .work import Work, run

PREFIX = "forebay-bench-"


class PassFailed(Exception):
    """A pass ended early. Its standard error has the reason."""


def measure(work: Work, directory: Path, python: str = sys.executable) -> Facts:
    """Run one pass in a process of its own, below a directory, with a Python that has forebay. Raises PassFailed."""
    with TemporaryDirectory(dir=directory, prefix=PREFIX) as place:
        os.sync()  # otherwise the kernel would still write data of the previous pass
        # -P: a forebay in the current directory must not be taken for the one that is measured.
        command = [python, "-P", "-m", __name__, json.dumps(dataclasses.asdict(work)), place]
        ended = subprocess.run(command, stdout=subprocess.PIPE)
    if ended.returncode:
        raise PassFailed(f"{work} ended with exit code {ended.returncode}")
    facts: Facts = json.loads(ended.stdout)
    return facts


def main() -> None:
    """Do the work that the arguments describe, in this fresh process, and print its facts."""
    work, place = sys.argv[1:]
    print(json.dumps(run(Work(**json.loads(work)), Path(place))))


if __name__ == "__main__":
    main()
