"""The comparison: run all choices in turns, round after round. A choice that is not installed is named and left out."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from forebay.benchmarks.works.build import Build
from forebay.benchmarks.works.stopwatch import Facts

from .choices import CHOICES, Choice, needs_client
from .passes import BODY_BYTES, Sizes
from .process import measure
from .table import table

SECONDS: Final = 5.0
BACKLOG_SECONDS: Final = 60.0
BACKLOG_OF_MESSAGES: Final = 5
_COPIES: Final = 5
"""Most copies of a body on disk at once: log, table, a log that is rewritten, and reserve."""


class Brokers:
    """Our builds, and all other brokers that are installed."""

    def __init__(
        self, messages: int, builds: Sequence[Build], python: str, directory: Path, miss: Callable[[str], None]
    ) -> None:
        """Make a comparison.

        messages: of a W1 pass. builds: of forebay. python: has the clients. directory: on the disk that is measured.
        miss: called with a sentence for each broker that is missing.
        """
        self._builds = builds
        self._sizes = Sizes(messages, SECONDS, BACKLOG_OF_MESSAGES * messages, BACKLOG_SECONDS)
        self._python = python
        self._directory = directory
        self._miss = miss
        self._versions: dict[str, None] = {}
        # By choice, the passes of each of its rows.
        self._found: dict[str, dict[str, list[Facts]]] = {}

    @property
    def disk_bytes(self) -> int:
        """Least bytes of disk that a pass needs."""
        return _COPIES * self._sizes.backlog_messages * BODY_BYTES

    def measure(self, rounds: int) -> None:
        """Measure every choice that is installed. Raises BrokerFailed."""
        for number in range(1, rounds + 1):
            for choice in CHOICES:
                print(f"round {number} of {rounds}: {choice.title}", file=sys.stderr)
                for row, python in self.runs(choice):
                    found = measure(choice.title, self._sizes, python, self._directory)
                    if found.facts is None:
                        self._miss(f"No {choice.title}: {found.missing}")
                        continue
                    self._versions |= dict.fromkeys(found.versions.split(", "))
                    self._found.setdefault(choice.title, {}).setdefault(row, []).append(found.facts)

    def runs(self, choice: Choice) -> Iterator[tuple[str, str]]:
        """Yield title and Python of each row of a choice: a row for each of our builds, or one for another broker."""
        if needs_client(choice.title):
            yield choice.title, self._python
        else:
            several = len(self._builds) > 1
            yield from (
                (f"{choice.title}, {build.name}" if several else choice.title, build.python) for build in self._builds
            )

    def report(self, about: Sequence[str], missing: Sequence[str]) -> Iterator[str]:
        """Yield the lines of the table."""
        return table(about, missing, ", ".join(self._versions), self._sizes, self._found)
