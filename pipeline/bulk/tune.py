"""recommend_limits: plays many recorded traces under several memory limits, and recommends a limit for each.

Each task plays one trace under some limits, with the policy code of the library itself (`forebay plan`). A trace that
can't be played has one row, which tells the problem.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Final

from ...dispatch.config.settings import MEMORY_LIMIT_BYTES_MIN
from ...dispatch.config.sizes import parse_size
from ...dispatch.core.memory.curve import Curve, CurvePoint
from ...dispatch.planning.plan import LIMITS_MAX, plan_file
from ...store.disk.layout import PathArgument
from ...store.errors import ForebayError, SettingsError
from ..spark.session import require_spark
from ..spark.worker import freeze_imports

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

Traces = PathArgument | Sequence[PathArgument]
LIMITS_OF_A_TASK: Final = 8
"""Each task reads its trace again, and plays it under this many limits in one pass."""

REPORT_SCHEMA: Final = (
    "trace string, limit_bytes bigint, hit_ratio double, deliveries bigint, hits bigint, reads bigint, "
    "read_messages bigint, strays bigint, held_back bigint, is_recommended boolean, problem string"
)


@dataclass(frozen=True, slots=True)
class LimitRow:
    """One trace under one limit. See `forebay.dispatch.planning.plan.PlannedLimit`."""

    trace: str
    limit_bytes: int | None = None
    hit_ratio: float | None = None
    deliveries: int | None = None
    hits: int | None = None
    """Deliveries whose message had stayed in RAM since its arrival."""
    reads: int | None = None
    read_messages: int | None = None
    strays: int | None = None
    held_back: int | None = None
    """Deliveries for which the limit has no room beside the messages in flight at that time."""
    is_recommended: bool = False
    """Whether it is the smallest limit of this trace within 0.01 of its best hit ratio."""
    problem: str | None = None
    """Why this trace could not be played. It then has no other row."""


def recommend_limits(spark: SparkSession, traces: Traces, limits: Sequence[int | str]) -> DataFrame:
    """Return a LimitRow for each trace and limit, ordered by both. limits: bytes, or "64MiB".

    Raises SettingsError for an invalid limit. Every executor must see the traces under their paths.
    """
    require_spark()
    paths, sizes = _paths(traces), _sizes(limits)
    parts = [sizes[at : at + LIMITS_OF_A_TASK] for at in range(0, len(sizes), LIMITS_OF_A_TASK)]
    jobs = [(path, part) for path in paths for part in parts]
    names = [field.partition(" ")[0] for field in REPORT_SCHEMA.split(", ")]

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        freeze_imports()
        kinds = (pa.string(), pa.int64(), pa.float64(), *[pa.int64()] * 6, pa.bool_(), pa.string())
        for batch in batches:
            for job in batch.to_pylist():
                rows = [astuple(row) for row in _played(job["path"], job["limits"])]
                columns = [pa.array([row[n] for row in rows], kind) for n, kind in enumerate(kinds)]
                yield pa.RecordBatch.from_arrays(columns, names=names)

    frame = spark.createDataFrame(jobs, "path string, limits array<bigint>").repartition(len(jobs))
    rows = [LimitRow(**row.asDict()) for row in frame.mapInArrow(run, REPORT_SCHEMA).collect()]
    return spark.createDataFrame([astuple(row) for row in _recommended(rows)], REPORT_SCHEMA)


def recommend_limits_local(traces: Traces, limits: Sequence[int | str]) -> list[LimitRow]:
    """Return the rows of `recommend_limits` without Spark, in this process."""
    sizes = _sizes(limits)
    return _recommended([row for path in _paths(traces) for row in _played(path, sizes)])


def _paths(traces: Traces) -> list[str]:
    given = [traces] if isinstance(traces, str | os.PathLike) else list(traces)
    if not given:
        raise SettingsError("no trace was named")
    return sorted({os.path.abspath(os.fspath(one)) for one in given})


def _sizes(limits: Sequence[int | str]) -> list[int]:
    sizes = sorted({parse_size("limits", limit, minimum=MEMORY_LIMIT_BYTES_MIN) for limit in limits})
    if not 0 < len(sizes) <= LIMITS_MAX:
        raise SettingsError(f"limits has {len(sizes)} sizes: 1 to {LIMITS_MAX}")
    return sizes


def _played(path: str, limits: Sequence[int]) -> list[LimitRow]:
    try:
        found = plan_file(path, limits)
    except ForebayError as error:
        return [LimitRow(path, problem=str(error))]
    return [
        LimitRow(
            path,
            planned.limit_bytes,
            planned.hit_ratio,
            planned.deliveries,
            planned.hits,
            planned.reads,
            planned.read_messages,
            planned.strays,
            planned.held_back,
        )
        for planned in found.limits
    ]


def _recommended(rows: list[LimitRow]) -> list[LimitRow]:
    """Return the rows sorted, with each trace's recommendation marked. A trace that failed has one row."""
    done: list[LimitRow] = []
    for _, found in groupby(sorted(rows, key=lambda row: (row.trace, row.limit_bytes or 0)), lambda row: row.trace):
        of_trace = list(found)
        failed = [row for row in of_trace if row.problem is not None]
        if failed:
            done.append(failed[0])
            continue
        points = tuple(CurvePoint(row.limit_bytes or 0, row.hit_ratio or 0.0) for row in of_trace)
        chosen = Curve(points, of_trace[0].deliveries or 0).recommended_limit_bytes
        done += [replace(row, is_recommended=row.limit_bytes == chosen) for row in of_trace]
    return done
