"""The command `forebay plan`: plays recorded traffic under several memory limits."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from itertools import groupby
from typing import Any, Final

from ...dispatch.commands.shared_arguments import add_json
from ...dispatch.commands.streams import Streams
from ...dispatch.config.sizes import format_size
from ...dispatch.planning.lab import play_rules_file
from ...dispatch.planning.picture import draw, require
from ...dispatch.planning.plan import LIMITS, plan_file
from ...dispatch.planning.report import as_json, parse_limits, rules_as_json, rules_table, table
from ...store.errors import ForebayError, SettingsError
from ..bulk.tune import LimitRow, recommend_limits, recommend_limits_local
from .engines import add_engine, running

_LIMITS: Final = ",".join(map(format_size, LIMITS))


def add_plan(parser: ArgumentParser) -> None:
    """Define `forebay plan`."""
    parser.description = "Play recorded traffic with other memory limits, and recommend one for each trace."
    _add_traces(parser)
    parser.add_argument("--limits", metavar="SIZES", help='such as "16MiB,24MiB" (4MiB doubled up to 512MiB)')
    parser.add_argument("--svg", metavar="FILE", help="draw the curve of one trace (needs forebay[tools])")
    parser.add_argument(
        "--policies",
        action="store_true",
        help="play other rules about memory beside the library's (the recorded limit)",
    )
    add_json(parser, "an object a trace")
    add_engine(parser)
    parser.set_defaults(run=run_plan)


def run_plan(arguments: Namespace, streams: Streams) -> int:
    """Print a table or a JSON object for each trace. Return 1 if one has no deliveries or could not be played."""
    limits = parse_limits(arguments.limits)
    if arguments.policies and (arguments.svg is not None or arguments.engine == "spark"):
        raise SettingsError("--policies prints tables, by this process: leave out --svg and --engine spark")
    if arguments.svg is not None:
        if len(arguments.traces) > 1 or arguments.engine == "spark":
            raise SettingsError("--svg draws one trace, by this process")
        require()
    if arguments.engine == "spark":
        return _plan_by_spark(arguments, limits or list(LIMITS), streams)
    if len(arguments.traces) == 1:
        return 0 if _plan_one(arguments, arguments.traces[0], limits, streams) else 1
    is_done = True
    for trace in arguments.traces:
        try:
            is_done = _plan_one(arguments, trace, limits, streams) and is_done
        except ForebayError as error:
            is_done = False
            _print_problem(trace, str(error), streams, is_json=arguments.json)
    return 0 if is_done else 1


def _plan_one(arguments: Namespace, trace: str, limits: list[int], streams: Streams) -> bool:
    if arguments.policies:
        return _compare_rules(arguments, trace, limits, streams)
    found = plan_file(trace, limits)
    if arguments.svg is not None:
        draw(found, arguments.svg)
    if arguments.json:
        streams.print_json({"trace": trace} | as_json(found))
    else:
        if len(arguments.traces) > 1:
            streams.print(f"{trace}:")
        for line in table(found):
            streams.print(line)
    return found.curve.deliveries > 0


def _compare_rules(arguments: Namespace, trace: str, limits: list[int], streams: Streams) -> bool:
    with streams.progress() as progress:
        found = play_rules_file(trace, limits, progress)
    if arguments.json:
        streams.print_json({"trace": trace} | rules_as_json(found))
    else:
        if len(arguments.traces) > 1:
            streams.print(f"{trace}:")
        for line in rules_table(found):
            streams.print(line)
    return found.limits[0].deliveries > 0


def _print_problem(trace: str, problem: str, streams: Streams, *, is_json: bool) -> None:
    if is_json:
        streams.print_json({"trace": trace, "problem": problem})
    else:
        streams.print(f"{trace}: {problem}")


_HEAD: Final = ("memory_limit", "hit ratio", "read back", "reads", "")


def _plan_by_spark(arguments: Namespace, limits: list[int], streams: Streams) -> int:
    is_done = True
    for trace, found in groupby(_rows_by_spark(arguments, limits), lambda row: row.trace):
        rows = list(found)
        problem = rows[0].problem
        is_done = is_done and problem is None and bool(rows[0].deliveries)
        if problem is not None:
            _print_problem(trace, problem, streams, is_json=arguments.json)
        elif arguments.json:
            streams.print_json({"trace": trace} | _as_json(rows))
        else:
            streams.print(f"{trace}:")
            streams.print_table(_HEAD, [_cells(row) for row in rows], numbers=_HEAD[:4])
    return 0 if is_done else 1


def _cells(row: LimitRow) -> list[str]:
    missed = (row.deliveries or 0) - (row.hits or 0)
    mark = "<- recommended" if row.is_recommended else ""
    return [format_size(row.limit_bytes or 0), f"{row.hit_ratio or 0:.4f}", f"{missed:,}", f"{row.reads or 0:,}", mark]


def _as_json(rows: Iterable[LimitRow]) -> dict[str, Any]:
    limits = [asdict(row) for row in rows]
    recommended = [row["limit_bytes"] for row in limits if row.pop("is_recommended")]
    for row in limits:
        del row["trace"], row["problem"]
    return {"limits": limits, "recommended_limit_bytes": recommended[0] if recommended else None}


def _rows_by_spark(arguments: Namespace, limits: list[int]) -> Iterator[LimitRow]:
    with running(arguments.master) as spark:
        for row in recommend_limits(spark, arguments.traces, limits).collect():
            yield LimitRow(**row.asDict())


def _add_traces(parser: ArgumentParser) -> None:
    parser.add_argument("traces", metavar="TRACE", nargs="+", help="files that Settings(record_trace=...) wrote")


# ---------------------------------------------------------------------- the old command `tune`


def add_tune(parser: ArgumentParser) -> None:
    """Define `forebay pipeline tune`, which has a line for each trace and limit."""
    _add_traces(parser)
    parser.add_argument("--limits", metavar="SIZES", default=_LIMITS, help="(%(default)s)")
    add_engine(parser)
    parser.set_defaults(run=run_tune)


def run_tune(arguments: Namespace, streams: Streams) -> int:
    """Print a line for each trace and limit; return 1 if a trace could not be played."""
    limits = [limit.strip() for limit in arguments.limits.split(",")]
    if arguments.engine == "spark":
        with running(arguments.master) as spark:
            rows = [LimitRow(**row.asDict()) for row in recommend_limits(spark, arguments.traces, limits).collect()]
    else:
        rows = recommend_limits_local(arguments.traces, limits)
    for row in rows:
        streams.print_json(asdict(row))
    return 1 if any(row.problem is not None for row in rows) else 0
