"""The process of a broker's pass: a fresh interpreter, which has the client, owns the servers and ends them.

After a Ctrl-C or a failure, the parent sends SIGTERM. The process then ends its servers before it ends itself.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from forebay.benchmarks.works.process import PREFIX
from forebay.benchmarks.works.stopwatch import Facts

from .broker import BrokerFailed
from .choices import BY_TITLE, Choice
from .passes import Sizes, measured
from .server import START_SECONDS, ServerFailed

_END_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class Found:
    """The result of a pass. missing: text about what must be installed for the pass; if given, there are no figures."""

    missing: str = ""
    versions: str = ""
    facts: Facts | None = None


def measure(title: str, sizes: Sizes, python: str, directory: Path) -> Found:
    """Run a pass below a directory, with a Python that has the client. Raises BrokerFailed."""
    most_seconds = longest_seconds(sizes)
    with TemporaryDirectory(dir=directory, prefix=PREFIX) as place:
        os.sync()  # otherwise the kernel would still write data of the previous pass
        command = [python, "-P", "-m", __name__, title, json.dumps(asdict(sizes)), place]
        # In a session of its own, so that a Ctrl-C comes to this process alone, which passes it on.
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as running:
            try:
                told, _ = running.communicate(timeout=most_seconds)
            except subprocess.TimeoutExpired:
                raise BrokerFailed(f"{title} took more than {most_seconds:.0f} s") from None
            finally:
                running.terminate()
                running.wait(_END_SECONDS)
    if running.returncode:
        raise BrokerFailed(f"{title} ended with exit code {running.returncode}: {told.strip()}")
    found: dict[str, Any] = json.loads(told)
    return Found(**found)


def longest_seconds(sizes: Sizes) -> float:
    """Return the seconds after which a pass counts as hung: twice its phases, and a slow start of two servers."""
    return 2 * START_SECONDS + 2 * (5 * sizes.seconds + 3 * sizes.backlog_seconds)


def main() -> int:
    """Do the pass that the arguments name, in this fresh process, and print its result."""
    title, sizes, place = sys.argv[1:]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        found = run(BY_TITLE[title], Sizes(**json.loads(sizes)), Path(place))
    except (BrokerFailed, ServerFailed) as failure:
        print(failure)
        return 1
    print(json.dumps(asdict(found)))
    return 0


def run(choice: Choice, sizes: Sizes, place: Path) -> Found:
    """Do a pass in this process, and leave no server behind."""
    broker = choice.make()
    if missing := broker.missing():
        return Found(missing)
    try:
        versions, facts = asyncio.run(measured(broker, place, sizes))
    finally:
        broker.stop()
    return Found("", versions, facts)


if __name__ == "__main__":
    sys.exit(main())
