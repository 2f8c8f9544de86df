"""The commands that read journals from outside: `forebay verify`, `explain` and `dump`.

They only read journal files, write nothing, take no lock, and work beside the processes that own the directories.
`explain` first asks the owning process, if that is possible. On request Spark spreads the work for many brokers.
"""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator
from typing import Any

from ...dispatch.commands.operating import ask
from ...dispatch.commands.shared_arguments import add_directories, add_json
from ...dispatch.commands.streams import Progress, Streams
from ...dispatch.config.sizes import MIB
from ...dispatch.explain.cause import Explanation
from ...dispatch.explain.disk import explain_data_log, explain_whole
from ...dispatch.explain.texts import age_text, plural, size_text
from ...dispatch.remote.client import Result, ask_store, count_in
from ...dispatch.store_directories import broker_of, only_store, stores_of
from ...dispatch.store_status import printable
from ...store.disk.disk import OsDisk
from ...store.disk.layout import JOURNAL, data_log_id
from ...store.environment.clock import SystemClock
from ...store.errors import SettingsError
from ...store.inspect.dump import dump as rows_of_dump
from ...store.inspect.read_only import ReadOnlyStore, open_read_only
from ...store.journal.sync_mark import read_durable_end
from ...store.recovery.verify import DataLogFacts, Verdict, judge
from ..local import Problem, examine_each
from .engines import add_engine
from .questions import add_on_damage, rows_of, run


def add_verify(parser: ArgumentParser) -> None:
    """Define `forebay verify`."""
    parser.description = "Read the whole journal of each store, and name each damaged place. Exit code 1: there is one."
    add_directories(parser)
    add_json(parser, "an object a damaged place")
    add_engine(parser)
    parser.set_defaults(run=run_verify)


def run_verify(arguments: Namespace, streams: Streams) -> int:
    """Print a line for each damaged place; return 0 if there is none, else 1."""
    if arguments.engine == "spark":
        return run("check", arguments, streams) if arguments.json else _verify_by_spark(arguments, streams)
    damaged = 0
    stores = stores_of(arguments.directories)
    with streams.progress(sum(map(_journal_bytes, stores))) as progress:
        for disk, examined, verdict in _verified(stores, progress):
            damaged += len(verdict.findings)
            progress.clear()
            if arguments.json:
                for finding in verdict.findings:
                    streams.print_json(Problem(broker_of(disk), *finding)._asdict())
                continue
            streams.print(_summary(disk, examined))
            for line in (*_lines(verdict), *_unseen(examined)):
                streams.print(line)
    if not arguments.json:
        streams.print(_damage_text(damaged))
    return 1 if damaged else 0


def _verified(stores: Iterable[OsDisk], progress: Progress) -> Iterator[tuple[OsDisk, list[DataLogFacts], Verdict]]:
    done_bytes = 0
    for disk in stores:
        examined: list[DataLogFacts] = []
        told = read_durable_end(disk)
        for facts in examine_each(disk):
            examined.append(facts)
            done_bytes += facts.size_bytes
            progress(done_bytes, what=f"{broker_of(disk)}, data-{facts.data_log}.log")
        yield disk, examined, judge(examined, told)


def _verify_by_spark(arguments: Namespace, streams: Streams) -> int:
    damaged = 0
    for row in rows_of("check", arguments):
        damaged += 1
        streams.print(f"{row['broker']}: data-{row['data_log']}.log at offset {row['offset']}: {row['problem']}")
    streams.print(_damage_text(damaged))
    return 1 if damaged else 0


def _damage_text(damaged: int) -> str:
    return f"{damaged:,} damaged place{'' if damaged == 1 else 's'}" if damaged else "no damage"


def _summary(disk: OsDisk, examined: list[DataLogFacts]) -> str:
    return (
        f"{broker_of(disk)}: {len(examined):,} data log{'' if len(examined) == 1 else 's'}, "
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


def _unseen(examined: Iterable[DataLogFacts]) -> Iterator[str]:
    for facts in examined:
        if facts.unseen_from is not None:
            yield (
                f"  unseen  data-{facts.data_log}.log behind offset {facts.unseen_from}: its process writes there"
                " faster than it can be verified; everything before it was"
            )


def _journal_bytes(disk: OsDisk) -> int:
    """Return the total size of a store's data logs, as far as it can be read."""
    return sum(_data_log_sizes(disk).values())


def _data_log_sizes(disk: OsDisk) -> dict[int, int]:
    sizes: dict[int, int] = {}
    for name in disk.list(JOURNAL):
        data_log = data_log_id(name)
        if data_log is not None:
            try:
                sizes[data_log] = os.stat(f"{disk.root}/{JOURNAL}/{name}").st_size
            except OSError:
                continue  # its problem is reported when its turn comes
    return sizes


# ---------------------------------------------------------------------- dump


def add_dump(parser: ArgumentParser) -> None:
    """Define `forebay dump`."""
    parser.description = (
        "Print the journal of each store as JSON Lines, a line a record or message. Exit code 1: a part is damaged."
    )
    add_directories(parser)
    parser.add_argument("--headers", action="store_true", help="with the headers of each message; bodies never")
    add_json(parser, "it always does")
    parser.set_defaults(run=run_dump)


def run_dump(arguments: Namespace, streams: Streams) -> int:
    """Print JSON Lines; return 1 if one of them is of kind damaged."""
    is_damaged, done_bytes = False, 0
    stores = stores_of(arguments.directories)
    with streams.progress(sum(map(_journal_bytes, stores))) as progress:
        for disk in stores:
            sizes, data_log = _data_log_sizes(disk), 0
            for row in rows_of_dump(disk, with_headers=arguments.headers):
                if row["data_log"] != data_log:
                    done_bytes += sizes.get(data_log, 0)
                    data_log = row["data_log"]
                is_damaged = is_damaged or row["kind"] == "damaged"
                streams.print_json({"broker": broker_of(disk)} | row)
                if not streams.out_is_terminal:
                    progress(done_bytes + row["offset"], what=broker_of(disk))
            done_bytes += sizes.get(data_log, 0)
    return 1 if is_damaged else 0


# ---------------------------------------------------------------------- explain


def add_explain(parser: ArgumentParser) -> None:
    """Define `forebay explain`."""
    parser.description = (
        "Say why data logs remain on disk, from the journals alone. A single store whose process has admin=True is "
        "asked instead, and tells of memory too."
    )
    add_directories(parser)
    parser.add_argument("data_log", metavar="DATA_LOG", nargs="?", help="the id of one (all of them)")
    parser.add_argument("--queue", metavar="NAME", help="who holds its messages; of a running store with admin=True")
    add_json(parser, "an object a data log and reason, from the journals; with --queue a single one")
    add_on_damage(parser)
    add_engine(parser)
    parser.set_defaults(run=run_explain)


def run_explain(arguments: Namespace, streams: Streams) -> int:
    """Print why data logs remain, or who holds the messages of a queue."""
    data_log = _split_data_log(arguments)
    if arguments.queue is not None:
        if data_log is not None or len(arguments.directories) > 1:
            raise SettingsError("--queue asks one running store about one queue: leave out other directories and ids")
        result = ask(only_store(arguments.directories[0]), {"do": "explain", "queue": arguments.queue})
        _print_answer(result, streams, is_json=arguments.json)
        return 0
    by_rows = arguments.json or arguments.engine == "spark" or arguments.on_damage == "report"
    if by_rows:
        return _explain_in_rows(arguments, data_log, streams)
    stores = stores_of(arguments.directories)
    if len(stores) == 1 and data_log is None:
        answer = ask_store(stores[0].root, {"do": "explain"})
        if answer is not None:
            _print_answer(answer, streams, is_json=False)
            return 0
    return _explain_journals(stores, data_log, streams)


def _split_data_log(arguments: Namespace) -> int | None:
    """Remove the id of a data log from the end of the directories, if there is one: argparse counts it among them."""
    *others, last = arguments.directories
    if not others or not (last.isascii() and last.isdigit()):
        return None
    data_log = data_log_id(f"data-{last}.log")
    if data_log is None:
        raise SettingsError(f"{last[:20]} is not the id of a data log; write ./{last[:20]} for a directory")
    arguments.directories = others
    return data_log


def _explain_in_rows(arguments: Namespace, data_log: int | None, streams: Streams) -> int:
    is_whole = True
    for row in rows_of("pins", arguments):
        if data_log is not None and row["data_log"] not in (None, data_log):
            continue
        problem = row.setdefault("problem", None)  # Spark leaves it out if damage is refused
        is_whole = is_whole and problem is None
        if arguments.json:
            streams.print_json(row)
        elif problem is not None:
            streams.print(f"{row['broker']}: {problem}")
        else:
            streams.print(f"{row['broker']}: data-{row['data_log']}.log  {_cause_text(row)}")
    return 0 if is_whole else 1


def _explain_journals(stores: list[OsDisk], data_log: int | None, streams: Streams) -> int:
    now_ms = SystemClock().time_ms()
    found = [(broker_of(disk), _read(disk, now_ms, streams)) for disk in stores]
    if data_log is not None:
        found = [(broker, seen) for broker, seen in found if data_log in seen.sizes]
        if not found:
            raise SettingsError(f"there is no data log {data_log} in {', '.join(disk.root for disk in stores[:5])}")
    for broker, seen in found:
        if data_log is not None:
            reasons = seen.retention_reasons.of(data_log)
            _print_explanation(broker, explain_data_log(data_log, seen.sizes[data_log], reasons, now_ms), streams)
            continue
        all_reasons = seen.retention_reasons.all()
        _print_explanation(broker, explain_whole(seen.sizes, all_reasons, now_ms), streams)
        for number in sorted(seen.sizes):
            one = explain_data_log(number, seen.sizes[number], all_reasons.get(number, ()), now_ms)
            streams.print(f"  {one.sentence}")
    return 0


def _read(disk: OsDisk, now_ms: int, streams: Streams) -> ReadOnlyStore:
    with streams.progress() as progress:
        return open_read_only(disk, now_ms, progress)


def _print_explanation(broker: str, explanation: Explanation, streams: Streams) -> None:
    streams.print(f"{broker}: {explanation.sentence}")
    for cause in explanation.causes:
        age = age_text(cause.oldest_seconds) if cause.oldest_seconds is not None else "-"
        numbers = f"{cause.messages:,} message{plural(cause.messages)}, {size_text(cause.bytes)}, {age}"
        streams.print(f"  {cause.reason:<16} {cause.holder}: {numbers}; freed by {cause.frees}")


def _print_answer(result: Result, streams: Streams, *, is_json: bool) -> None:
    if is_json:
        streams.print_json(result)
        return
    streams.print(printable(result.get("sentence", "")))
    causes = result.get("causes")
    for cause in causes if isinstance(causes, list) else ():
        if isinstance(cause, dict):
            streams.print(f"  {_cause_text(cause)}")


def _cause_text(cause: dict[str, Any]) -> str:
    messages = count_in(cause, "messages")
    what = f"{messages:,} message{plural(messages)}, {size_text(count_in(cause, 'bytes'))}"
    reason, holder, frees = (printable(cause.get(name, "")) for name in ("reason", "holder", "frees"))
    return f"{reason:<16} {holder}: {what}; freed by {frees}"
