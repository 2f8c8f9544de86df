"""The commands that look at a directory from outside: `forebay verify` and `forebay dump`.

They read journal files only, write nothing, take no lock, and work beside the
process that owns the directory.
"""

from __future__ import annotations

import json
import os
import sys
from argparse import Namespace
from collections.abc import Iterator

from ..store.disk import OsDisk
from ..store.dump import dump
from ..store.errors import SettingsError
from ..store.files import JOURNAL, LOCK, data_log_id
from ..store.verify import DataLogFacts, Verdict, examine_all, judge
from .sizes import MIB


def stores_in(directory: str) -> list[OsDisk]:
    """The stores in what was given to `forebay.open`, by broker name, or the one that the directory itself is.

    SettingsError where there is none.
    """
    if _is_store(directory):
        return [OsDisk(directory)]
    try:
        names = sorted(os.listdir(directory))
    except FileNotFoundError:
        raise SettingsError(f"{directory} does not exist") from None
    except NotADirectoryError:
        raise SettingsError(f"{directory} is not a directory") from None
    stores = [OsDisk(path) for path in (os.path.join(directory, name) for name in names) if _is_store(path)]
    if not stores:
        raise SettingsError(
            f"{directory} is not a forebay directory: neither it nor a directory in it has a journal/ with data logs"
        )
    return stores


def _is_store(directory: str) -> bool:
    journal = os.path.join(directory, JOURNAL)
    # A journal/ alone may be anybody's; the lock file tells a store that was opened and not yet written to.
    return os.path.isdir(journal) and (
        os.path.exists(os.path.join(directory, LOCK)) or any(data_log_id(name) for name in os.listdir(journal))
    )


def verify_command(arguments: Namespace) -> int:
    """`forebay verify DIR`: 0 whole, 1 damaged; a line a place."""
    damaged = 0
    for disk in stores_in(arguments.directory):
        examined = []
        with _Progress() as progress:
            for facts in examine_all(disk):
                examined.append(facts)
                progress.show(facts)
        verdict = judge(examined)
        damaged += len(verdict.findings)
        print(_summary(disk, examined))
        for line in _lines(verdict):
            print(line)
    print(f"{damaged:,} damaged place{'' if damaged == 1 else 's'}" if damaged else "no damage")
    return 1 if damaged else 0


def dump_command(arguments: Namespace) -> int:
    """`forebay dump DIR`: JSON Lines; 1 where one of them says damaged."""
    is_damaged = False
    for disk in stores_in(arguments.directory):
        broker = os.path.basename(disk.root)
        for row in dump(disk, with_headers=arguments.headers):
            is_damaged = is_damaged or row["kind"] == "damaged"
            print(json.dumps({"broker": broker} | row))
    return 1 if is_damaged else 0


def _summary(disk: OsDisk, examined: list[DataLogFacts]) -> str:
    return (
        f"{os.path.basename(disk.root)}: {len(examined):,} data log{'' if len(examined) == 1 else 's'}, "
        f"{sum(facts.end for facts in examined) / MIB:,.1f} MiB, "
        f"{sum(facts.records for facts in examined):,} records, "
        f"{sum(facts.messages for facts in examined):,} messages"
    )


def _lines(verdict: Verdict) -> Iterator[str]:
    for data_log, offset, problem in verdict.findings:
        yield f"  damage  data-{data_log}.log at offset {offset}: {problem}"
    if verdict.tail is not None:
        data_log, offset, problem = verdict.tail
        yield f"  tail    data-{data_log}.log at offset {offset}: {problem}"
        yield f"          {verdict.tail_bytes:,} bytes that were not yet durable at a crash, or are being written now"


class _Progress:
    """A line that overwrites itself, on a terminal only; a context manager that leaves it empty."""

    def __init__(self) -> None:
        self._is_shown = sys.stderr.isatty()
        self._data_logs = self._bytes = 0

    def __enter__(self) -> _Progress:
        return self

    def show(self, facts: DataLogFacts) -> None:
        self._data_logs += 1
        self._bytes += facts.end
        if self._is_shown:
            text = f"data-{facts.data_log}.log: {self._data_logs:,} data logs, {self._bytes / MIB:,.0f} MiB"
            print(f"\r{text}\x1b[K", end="", file=sys.stderr, flush=True)

    def __exit__(self, *_: object) -> None:
        if self._is_shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
