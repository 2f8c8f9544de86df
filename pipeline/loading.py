"""load: messages in bulk, which a store takes over at its next open, exactly once for each load id.

Tasks write parts; one rename by the driver makes them an import set (see store/ingest/manifest.py). A kill before the
rename leaves nothing, a kill after it leaves the whole set. A second call with the same load id finds the set, or the
store's note of it, and adds nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..store.disk.disk import OsDisk
from ..store.disk.layout import IMPORT, DirectoryLock, PathArgument, check_path, store_root, validate_load_id
from ..store.environment.clock import SystemClock
from ..store.errors import SettingsError, StoreFailed
from ..store.format.imports import SET_ID_BYTES
from ..store.format.record import RecordDamaged
from ..store.ingest.manifest import PUBLISHED, Manifest, find_load, publish, remove_unnamed_parts
from ..store.ingest.part import PartFacts, PartsWriter
from .kernels.rows import LoadedMessage, check_columns, message_of, parse_line
from .spark.session import require_spark
from .spark.worker import freeze_imports

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

REPORT_SCHEMA: Final = "load_id string, broker string, state string, messages bigint, bytes bigint, parts int"
LOCK_WAIT_SECONDS: Final = 60.0

_PART_SCHEMA: Final = "part long, nonce string, salt long, bytes long, messages long, problem string"
_PARTITION_BITS: Final = 16
PARTITIONS_MAX: Final = (1 << 16) - 1
_LINE: Final = "value"
"""The one column of a frame of JSON Lines, as spark.read.text makes it."""


@dataclass(frozen=True, slots=True)
class LoadReport:
    """The current state of a load."""

    load_id: str
    broker: str
    state: str
    """"published": by this call; "waiting": by an earlier one; "taken": the store has it already."""
    messages: int
    bytes: int
    """Bytes of its parts."""
    parts: int


def load(
    spark: SparkSession, frame: DataFrame, directory: PathArgument, *, load_id: str, broker_name: str = "localhost"
) -> DataFrame:
    """Load a frame's rows into the store below `<directory>/<broker_name>`; return a LoadReport as one row.

    Columns: destination (a queue), body (text or binary), and headers (a map, a struct or JSON), priority, message_id,
    timestamp (a time, or ms), group. A frame of `spark.read.text` has JSON Lines with these fields. The order of
    messages is that of the frame's partitions. Every executor must see the directory under that path. Raise
    SettingsError for the first row that can't be a message; then nothing is published.
    """
    require_spark()
    target = _Target(directory, broker_name, load_id)
    columns = frame.columns
    if columns != [_LINE]:
        check_columns(columns)
    report = target.found()
    if report is None:
        report = target.publish(_write_frame(frame, target))
    return spark.createDataFrame([astuple(report)], REPORT_SCHEMA)


def load_local(
    rows: Iterable[Mapping[str, Any] | bytes | str],
    directory: PathArgument,
    *,
    load_id: str,
    broker_name: str = "localhost",
) -> LoadReport:
    """Load messages without Spark, from mappings or lines of JSON."""
    target = _Target(directory, broker_name, load_id)
    return target.found() or target.publish(target.write(rows, 0))


def lines_of(path: PathArgument) -> Iterator[bytes]:
    """Yield the lines of a file. Raises SettingsError if it can't be read."""
    try:
        with Path(check_path("file", path)).open("rb") as file:
            yield from file
    except OSError as error:
        raise SettingsError(f"{path!s} can't be read ({error.strerror})") from None


class _Target:
    """The import/ of one store, and the set that one call writes there. It is sent to tasks."""

    def __init__(self, directory: PathArgument, broker_name: str, load_id: str) -> None:
        self.load_id = validate_load_id(load_id)
        self._broker = broker_name
        self._root = str(Path(store_root(directory, broker_name)).absolute())
        if not Path(directory).is_dir():
            raise SettingsError(f"{directory!s} is not a directory: make it, or open a store there first")
        clock = SystemClock()
        self._set_id = clock.random_bytes(SET_ID_BYTES)
        self._now_ms = clock.time_ms()
        try:
            OsDisk(self._root).make_directory(IMPORT)
        except OSError as error:
            raise SettingsError(f"{self._root}/{IMPORT} can't be made ({error.strerror})") from None

    def found(self) -> LoadReport | None:
        """Return the report of an earlier call with that load id. It is cheap; `publish` asks again."""
        try:
            found = find_load(OsDisk(self._root), self.load_id)
        except RecordDamaged as damage:
            raise SettingsError(f"load {self.load_id}: what an earlier load left is damaged ({damage})") from None
        if found is None:
            return None
        state, manifest = found
        return self._report("waiting" if state == PUBLISHED else state, manifest)

    def _report(self, state: str, manifest: Manifest) -> LoadReport:
        parts = len(manifest.parts)
        return LoadReport(self.load_id, self._broker, state, manifest.messages, manifest.size_bytes, parts)

    def write(self, rows: Iterable[Mapping[str, Any] | bytes | str], partition: int) -> list[PartFacts]:
        """Write the part of one task. Raises SettingsError for the first row that can't be a message."""
        disk = OsDisk(self._root)
        if partition >= PARTITIONS_MAX:
            raise SettingsError(f"a frame of more than {PARTITIONS_MAX:,} partitions: coalesce it")
        if not disk.exists(IMPORT):
            raise SettingsError(f"{self._root} is not to be seen from every executor")
        clock = SystemClock()
        writer = PartsWriter(
            disk, self._set_id, partition << _PARTITION_BITS, now_ms=self._now_ms, random_bytes=clock.random_bytes
        )
        try:
            for number, row in enumerate(rows, start=1):
                writer.add(*self._message(row, number, partition))
            return writer.finish()
        except OSError as error:
            raise StoreFailed(f"a part of load {self.load_id} could not be written ({error.strerror})") from error
        finally:
            writer.abandon()

    def _message(self, row: Mapping[str, Any] | bytes | str, number: int, partition: int) -> LoadedMessage:
        try:
            return message_of(parse_line(row) if isinstance(row, bytes | str) else row, self._now_ms)
        except SettingsError as problem:
            raise SettingsError(f"load {self.load_id}, partition {partition}, row {number}: {problem}") from None
        except KeyError as missing:
            raise SettingsError(
                f"load {self.load_id}, partition {partition}, row {number}: no field {missing}"
            ) from None

    def publish(self, parts: list[PartFacts]) -> LoadReport:
        """Make a set of the tasks' parts, unless another call was first. Unused parts of this call are removed."""
        disk = OsDisk(self._root)
        manifest = Manifest(self.load_id, self._set_id, tuple(sorted(parts)))
        lock = DirectoryLock(f"{self._root}/{IMPORT}")
        lock.acquire(LOCK_WAIT_SECONDS)
        try:
            report = self.found()
            if report is None:
                publish(disk, manifest)
                report = self._report("published", manifest)
            remove_unnamed_parts(disk, self._set_id, self._now_ms)
            return report
        except RecordDamaged as damage:
            raise StoreFailed(f"load {self.load_id}: {damage}; was it written on another machine?") from None
        except OSError as error:
            raise StoreFailed(f"load {self.load_id} could not be published ({error.strerror})") from error
        finally:
            lock.release()

    def give_up(self) -> None:
        """Remove the written parts: none of them counts."""
        lock = DirectoryLock(f"{self._root}/{IMPORT}")
        lock.acquire(LOCK_WAIT_SECONDS)
        try:
            remove_unnamed_parts(OsDisk(self._root), self._set_id, self._now_ms)
        finally:
            lock.release()


def _write_frame(frame: DataFrame, target: _Target) -> list[PartFacts]:
    """Return each partition's parts, of the winning attempt.

    Raises SettingsError for the first row that can't be a message.
    """
    is_lines = frame.columns == [_LINE]

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        from pyspark import TaskContext

        freeze_imports()
        context = TaskContext.get()
        assert context is not None
        rows = (row[_LINE] if is_lines else row for batch in batches for row in batch.to_pylist())
        found: list[tuple[Any, ...]] = []
        try:
            for number, nonce, *counts in target.write(rows, context.partitionId()):
                found.append((number, f"{nonce:x}", *counts, None))
        except SettingsError as problem:  # another attempt would not help
            found = [(context.partitionId(), "", 0, 0, 0, str(problem))]
        fields = ("part", "nonce", "salt", "bytes", "messages", "problem")
        types = (pa.int64(), pa.string(), pa.int64(), pa.int64(), pa.int64(), pa.string())
        columns = [pa.array([row[n] for row in found], kind) for n, kind in enumerate(types)]
        yield pa.RecordBatch.from_arrays(columns, names=list(fields))

    found = frame.mapInArrow(write, _PART_SCHEMA).collect()
    problems = sorted(row["problem"] for row in found if row["problem"] is not None)
    if problems:
        target.give_up()
        raise SettingsError(problems[0])
    return [PartFacts(row["part"], int(row["nonce"], 16), row["salt"], row["bytes"], row["messages"]) for row in found]
