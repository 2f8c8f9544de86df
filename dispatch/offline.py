"""The commands that inspect a directory from outside: `forebay verify`, `forebay dump` and `forebay explain`.

They read journal files only, write nothing, take no lock, and work beside the
process that owns the directory.
"""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Callable, Iterator

from ..store.clock import SystemClock
from ..store.disk.disk import OsDisk
from ..store.disk.layout import JOURNAL, LOCK, data_log_id
from ..store.errors import SettingsError
from ..store.inspect.dump import dump
from ..store.inspect.read_only import open_read_only
from ..store.journal.sync_mark import told_durable
from ..store.recovery.verify import DataLogFacts, Verdict, examine_all, judge
from .config.sizes import MIB
from .explain.cause import Explanation
from .explain.disk import age_text, explain_data_log, explain_whole, plural, size_text

Print = Callable[[str], object]
"""Takes a line to print."""


def stores_in(directory: str) -> list[OsDisk]:
    """Return the stores in a directory that was given to `forebay.open`, by broker name, or the one that it is.

    SettingsError where there is none.
    """
    disk = OsDisk(directory)
    if _is_store(disk):
        return [disk]
    if not disk.exists(""):
        raise SettingsError(f"{directory} does not exist")
    try:
        names = disk.list("")
    except NotADirectoryError:
        raise SettingsError(f"{directory} is not a directory") from None
    stores = [store for store in (OsDisk(f"{disk.root}/{name}") for name in names) if _is_store(store)]
    if not stores:
        raise SettingsError(
            f"{directory} is not a forebay directory: neither it nor a directory in it has a journal/ with data logs"
        )
    return stores


def _is_store(disk: OsDisk) -> bool:
    try:
        # A journal/ alone may be anybody's; the lock file tells a store that was opened and not yet written to.
        return disk.exists(JOURNAL) and (disk.exists(LOCK) or any(map(data_log_id, disk.list(JOURNAL))))
    except NotADirectoryError:
        return False


def verify_command(arguments: Namespace, print_line: Print, show: Print) -> int:
    """Run `forebay verify DIR`: print a line for each damaged place; return 0 if there is none, else 1.

    show: gets the progress as text, and "" at the end.
    """
    damaged = 0
    for disk in stores_in(arguments.directory):
        examined: list[DataLogFacts] = []
        told = told_durable(disk)
        for facts in examine_all(disk):
            examined.append(facts)
            show(f"data-{facts.data_log}.log, {sum(one.end for one in examined) / MIB:,.0f} MiB so far")
        show("")
        verdict = judge(examined, told)
        damaged += len(verdict.findings)
        print_line(_summary(disk, examined))
        for line in _lines(verdict):
            print_line(line)
        for facts in examined:
            if facts.unseen_from is not None:
                print_line(
                    f"  unseen  data-{facts.data_log}.log behind offset {facts.unseen_from}: its process writes there"
                    " faster than it can be verified; everything before it was"
                )
    print_line(f"{damaged:,} damaged place{'' if damaged == 1 else 's'}" if damaged else "no damage")
    return 1 if damaged else 0


def dump_command(arguments: Namespace, print_line: Print) -> int:
    """Run `forebay dump DIR`: print JSON Lines; return 1 where one of them says damaged."""
    is_damaged = False
    for disk in stores_in(arguments.directory):
        for row in dump(disk, with_headers=arguments.headers):
            is_damaged = is_damaged or row["kind"] == "damaged"
            print_line(json.dumps({"broker": _broker(disk)} | row))
    return 1 if is_damaged else 0


def explain_command(arguments: Namespace, print_line: Print) -> int:
    """Run `forebay explain DIR [DATA_LOG]`: say why data logs remain. JournalCorrupt: run verify."""
    now_ms = SystemClock().time_ms()
    stores = [(_broker(disk), open_read_only(disk, now_ms)) for disk in stores_in(arguments.directory)]
    data_log: int | None = arguments.data_log
    if data_log is not None:
        stores = [found for found in stores if data_log in found[1].sizes]
        if not stores:
            raise SettingsError(f"there is no data log {data_log} in {arguments.directory}")
    for broker, seen in stores:
        if data_log is not None:
            explanation = explain_data_log(data_log, seen.sizes[data_log], seen.retention.of(data_log), now_ms)
        else:
            pins = seen.retention.all()
            explanation = explain_whole(seen.sizes, pins, now_ms)
        print_line(f"{broker}: {explanation.sentence}")
        for line in _causes(explanation):
            print_line(line)
        if data_log is None:
            for number in sorted(seen.sizes):
                found = explain_data_log(number, seen.sizes[number], pins.get(number, ()), now_ms)
                print_line(f"  {found.sentence}")
    return 0


def _causes(explanation: Explanation) -> Iterator[str]:
    for cause in explanation.causes:
        age = age_text(cause.oldest_seconds) if cause.oldest_seconds is not None else "-"
        numbers = f"{cause.messages:,} message{plural(cause.messages)}, {size_text(cause.bytes)}, {age}"
        yield f"  {cause.reason:<16} {cause.holder}: {numbers}; freed by {cause.frees}"


def _broker(disk: OsDisk) -> str:
    return disk.root.rpartition("/")[2]


def _summary(disk: OsDisk, examined: list[DataLogFacts]) -> str:
    return (
        f"{_broker(disk)}: {len(examined):,} data log{'' if len(examined) == 1 else 's'}, "
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
