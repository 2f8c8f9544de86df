"""Build: a forebay to measure, interpreted or compiled, given by the Python that has it."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from typing import Final

from forebay.store import message_store

from .machine import software

INTERPRETED: Final = "interpreted"
COMPILED: Final = "compiled"


@dataclass(frozen=True, slots=True)
class Build:
    """A build. python: runs the passes. name: INTERPRETED or COMPILED. software: versions, as text for a reader."""

    python: str
    name: str
    software: str


class NoBuild(Exception):
    """The given Python does not run forebay."""


def this_build() -> Build:
    """Return the build that runs this process."""
    name = INTERPRETED if str(message_store.__file__).endswith(".py") else COMPILED
    return Build(sys.executable, name, software())


def build_of(python: str) -> Build:
    """Ask another Python which build it has. Raises NoBuild."""
    # -P: a forebay in the current directory must not be taken for the one that is asked about.
    try:
        ended = subprocess.run([python, "-P", "-m", __name__], stdout=subprocess.PIPE, check=True, text=True)
        name, words = json.loads(ended.stdout)
    except (OSError, subprocess.CalledProcessError, ValueError) as error:
        raise NoBuild(f"{python} does not run forebay's benchmarks: {error}") from error
    return Build(python, name, words)


if __name__ == "__main__":
    built = this_build()
    print(json.dumps([built.name, built.software]))
