"""archive: writes finished data logs as partitioned Parquet. restore: writes the same data logs again from Parquet.

There is one file for each data log, `<out>/broker=<name>/data_log=<id>/data.parquet`. So finished work is visible, and
a call after a kill continues where the killed one stopped. Both engines run the same code for a data log; Spark spreads
the data logs. Sources are only read. With `discard`, data logs in a store's archive/ are deleted, each only after its
file was read back and compared.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from ...store.disk.disk import OsDisk
from ...store.disk.layout import (
    ARCHIVE,
    JOURNAL,
    LOCK,
    PathArgument,
    check_path,
    data_log_id,
    data_log_name,
    validate_broker_name,
)
from ...store.environment.progress import OnProgress, tell_nobody
from ...store.errors import SettingsError
from ...store.format.record import RecordDamaged
from ...store.journal.data_log import DATA_LOG_HEADER_BYTES, UnknownVersion, decode_data_log_header, record_at
from ..errors import SparkMissing
from ..kernels.fleet import Directories, find_stores
from ..spark.session import require_spark
from ..spark.worker import freeze_imports

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

FILE_NAME: Final = "data.parquet"
REPORT_SCHEMA: Final = (
    "broker string, data_log int, place string, state string, records bigint, messages bigint, bytes bigint, "
    "archived_bytes bigint, problem string"
)
_BROKER: Final = "broker="
_DATA_LOG: Final = "data_log="
_TASKS_MAX: Final = 4096


@dataclass(frozen=True, slots=True)
class ArchiveRow:
    """One data log, and the result of archiving or restoring it."""

    broker: str
    data_log: int
    place: str
    """The directory of the data log: "journal" or "archive"."""
    state: str
    """"archived", "restored": by this call. "there": by an earlier one. "discarded": archived, and deleted from
    archive/. "in use": it may still be written to. "left out": see the problem.
    """
    records: int = 0
    messages: int = 0
    bytes: int = 0
    """Size of the data log."""
    archived_bytes: int = 0
    """Size of the Parquet file."""
    problem: str | None = None


class _Job(NamedTuple):
    """One data log to archive. Sent to tasks."""

    broker: str
    root: str
    name: str
    data_log: int
    path: str
    discards: bool


def archive(spark: SparkSession, directories: Directories, out: PathArgument, *, discard: bool = False) -> DataFrame:
    """Archive every sealed data log below the directories; return an ArchiveRow for each data log.

    out: a directory that every executor sees. discard: delete those in a store's archive/, each after its file was read
    back and compared. To query the archive with SQL, read `out` as Parquet, partitioned by broker and data_log.
    """
    require_spark()
    jobs, rows = _plan(directories, out, discard=discard)
    return _spread(spark, jobs, _archive_one, rows)


def archive_local(
    directories: Directories,
    out: PathArgument,
    *,
    discard: bool = False,
    on_progress: OnProgress = tell_nobody,
) -> list[ArchiveRow]:
    """Run `archive` without Spark, in this process. Raises SparkMissing: it needs pyarrow.

    on_progress(done_bytes, total_bytes): called before the first data log and after each, by their sizes.
    """
    _require_arrow()
    jobs, rows = _plan(directories, out, discard=discard)
    sizes = [_size_of(f"{job.root}/{job.name}") for job in jobs]
    return sorted([*_each(jobs, sizes, _archive_one, on_progress), *rows], key=_order)


def restore(spark: SparkSession, archived: PathArgument, directory: PathArgument) -> DataFrame:
    """Write the data logs of an archive again, byte for byte, as journals below `<directory>/<broker>`.

    Returns an ArchiveRow for each. It never touches a store that was opened there (SettingsError). With all data logs
    of a store, the result opens as that store. With some of them, it serves `forebay dump`, `facts` and SQL.
    """
    require_spark()
    return _spread(spark, _plan_restore(archived, directory), _restore_one, [])


def restore_local(
    archived: PathArgument,
    directory: PathArgument,
    *,
    on_progress: OnProgress = tell_nobody,
) -> list[ArchiveRow]:
    """Run `restore` without Spark, in this process. Raises SparkMissing: it needs pyarrow.

    on_progress(done_bytes, total_bytes): called before the first file of the archive and after each, by their sizes.
    """
    _require_arrow()
    jobs = _plan_restore(archived, directory)
    return sorted(_each(jobs, [_size_of(job.path) for job in jobs], _restore_one, on_progress), key=_order)


def _each(
    jobs: Sequence[_Job],
    sizes: Sequence[int],
    work: Callable[[_Job], ArchiveRow],
    on_progress: OnProgress,
) -> Iterator[ArchiveRow]:
    done_bytes, total_bytes = 0, sum(sizes)
    on_progress(0, total_bytes)
    for job, size_bytes in zip(jobs, sizes, strict=True):
        yield work(job)
        done_bytes += size_bytes
        on_progress(done_bytes, total_bytes)


def _size_of(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0  # its problem is reported when its turn comes


def _require_arrow() -> None:
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        raise SparkMissing("pyarrow is not installed, and Parquet needs it: pip install 'forebay[spark]'") from None


def _order(row: ArchiveRow) -> tuple[str, int]:
    return row.broker, row.data_log


def _spread(
    spark: SparkSession, jobs: list[_Job], work: Callable[[_Job], ArchiveRow], rows: list[ArchiveRow]
) -> DataFrame:
    """Run one task for each data log: it reads, writes and reads back tens of MiB."""
    done = list(rows)
    if jobs:
        fields = ", ".join(
            f"{name} {kind}"
            for name, kind in zip(_Job._fields, ("string", "string", "string", "int", "string", "boolean"), strict=True)
        )
        names = [field.partition(" ")[0] for field in REPORT_SCHEMA.split(", ")]

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            import pyarrow as pa

            freeze_imports()
            for batch in batches:
                found = [astuple(work(_Job(**row))) for row in batch.to_pylist()]
                kinds = (pa.string(), pa.int32(), pa.string(), pa.string(), *[pa.int64()] * 4, pa.string())
                columns = [pa.array([row[n] for row in found], kind) for n, kind in enumerate(kinds)]
                yield pa.RecordBatch.from_arrays(columns, names=names)

        frame = spark.createDataFrame([tuple(job) for job in jobs], fields)
        spread = frame.repartition(min(len(jobs), _TASKS_MAX), "path").mapInArrow(run, REPORT_SCHEMA)
        done += [ArchiveRow(**row.asDict()) for row in spread.collect()]
    return spark.createDataFrame([astuple(row) for row in sorted(done, key=_order)], REPORT_SCHEMA)


# ---------------------------------------------------------------------- archive


def _plan(directories: Directories, out: PathArgument, *, discard: bool) -> tuple[list[_Job], list[ArchiveRow]]:
    """Return (jobs, rows of data logs that are in use)."""
    target = Path(check_path("out", out)).absolute()
    jobs: list[_Job] = []
    rows: list[ArchiveRow] = []
    brokers: dict[str, str] = {}
    for store in find_stores(directories):
        if brokers.setdefault(store.broker, store.root) != store.root:
            raise SettingsError(
                f"{brokers[store.broker]} and {store.root} have one broker name: archive them to two directories"
            )
        if target == Path(store.root) or target.is_relative_to(store.root):
            raise SettingsError(f"{target} lies in the store of {store.broker}: name another place")
        disk = OsDisk(store.root)
        places = {data_log: ARCHIVE for data_log in filter(None, map(data_log_id, disk.list(ARCHIVE)))}
        journal = sorted(filter(None, map(data_log_id, disk.list(JOURNAL))))
        places |= dict.fromkeys(journal, JOURNAL)
        newest = journal[-1] if journal else 0
        for data_log, place in sorted(places.items()):
            name = data_log_name(data_log).replace(JOURNAL, place, 1)
            if data_log == newest and not _is_sealed(disk, name):
                rows.append(ArchiveRow(store.broker, data_log, place, "in use"))
                continue
            path = target / f"{_BROKER}{store.broker}" / f"{_DATA_LOG}{data_log}" / FILE_NAME
            jobs.append(_Job(store.broker, store.root, name, data_log, str(path), discard and place == ARCHIVE))
    return jobs, rows


def _is_sealed(disk: OsDisk, name: str) -> bool:
    """Return whether the data log ends with a directory record that names its own place there."""
    try:
        file = disk.open_for_reading(name)
    except OSError:
        return False
    try:
        header = decode_data_log_header(file.read(0, DATA_LOG_HEADER_BYTES))
        size = file.size()
        offset = int.from_bytes(file.read(max(size - 12, 0), 4), "little")
        found = record_at(file, header, offset) if DATA_LOG_HEADER_BYTES <= offset < size else None
        return found is not None and offset + found[0].length == size
    except (RecordDamaged, UnknownVersion, OSError):
        return False
    finally:
        file.close()


def _archive_one(job: _Job) -> ArchiveRow:
    from .archive_table import NotArchived, facts_of_archive, write_archive

    disk, path = OsDisk(job.root), Path(job.path)
    row = ArchiveRow(job.broker, job.data_log, job.name.partition("/")[0], "archived")
    try:
        source = disk.open_for_reading(job.name)
    except FileNotFoundError:
        return replace(row, state="left out", problem="the data log was deleted meanwhile")
    except OSError as error:
        return replace(row, state="left out", problem=f"the data log cannot be read ({error.strerror})")
    try:
        if path.exists():
            row = replace(row, state="there")
            facts = facts_of_archive(path)
            header = decode_data_log_header(source.read(0, DATA_LOG_HEADER_BYTES))
            if (facts.store_id, facts.salt, facts.data_log) != (header.store_id.hex(), header.salt, header.data_log):
                return replace(row, state="left out", problem=f"{path} holds another data log")
        else:
            facts = write_archive(source, job.broker, path)
        row = replace(row, records=facts.records, messages=facts.messages, bytes=facts.size_bytes)
        row = replace(row, archived_bytes=path.stat().st_size)
        if job.discards:
            _compare(path, source.read, facts.size_bytes)
            disk.remove(job.name)
            disk.sync_directory(ARCHIVE)
            row = replace(row, state="discarded")
        return row
    except (NotArchived, RecordDamaged, UnknownVersion) as problem:
        return replace(row, state="left out", problem=str(problem))
    except OSError as error:
        return replace(row, state="left out", problem=f"it could not be archived ({error.strerror or error})")
    finally:
        source.close()


def _compare(path: Path, read: Callable[[int, int], bytes], size: int) -> None:
    """Raise NotArchived unless the archived file gives back exactly these bytes."""
    from .archive_table import NotArchived, read_back

    offset = 0
    for piece in read_back(path):
        if read(offset, len(piece)) != piece:
            raise NotArchived(f"{path} differs from the data log at offset {offset}: nothing was discarded")
        offset += len(piece)
    if offset != size or read(offset, 1):
        raise NotArchived(f"{path} is not as long as the data log: nothing was discarded")


# ---------------------------------------------------------------------- restore


def _plan_restore(archived: PathArgument, directory: PathArgument) -> list[_Job]:
    source, target = Path(check_path("archive", archived)), Path(check_path("directory", directory)).absolute()
    jobs: list[_Job] = []
    for path in sorted(source.glob(f"{_BROKER}*/{_DATA_LOG}*/{FILE_NAME}")):
        broker, number = path.parts[-3].removeprefix(_BROKER), path.parts[-2].removeprefix(_DATA_LOG)
        validate_broker_name(broker)
        data_log = data_log_id(f"data-{number}.log")
        if data_log is None:
            raise SettingsError(f"{path} is not named as an archived data log")
        root = str(target / broker)
        jobs.append(_Job(broker, root, data_log_name(data_log), data_log, str(path), discards=False))
    if not jobs:
        raise SettingsError(f"{source} is no archive: it has no {_BROKER}<name>/{_DATA_LOG}<id>/{FILE_NAME}")
    for root in sorted({job.root for job in jobs}):
        if OsDisk(root).exists(LOCK):
            raise SettingsError(f"{root} holds a store that was opened: restore to another directory")
        OsDisk(root).make_directory(JOURNAL)
    return jobs


def _restore_one(job: _Job) -> ArchiveRow:
    from .archive_table import NotArchived, facts_of_archive, read_back

    disk, path = OsDisk(job.root), Path(job.path)
    row = ArchiveRow(job.broker, job.data_log, JOURNAL, "restored")
    part = f"{job.name}.part-{os.getpid()}"
    try:
        facts = facts_of_archive(path)
        if (facts.broker, facts.data_log) != (job.broker, job.data_log):
            raise NotArchived(f"{path} holds data log {facts.data_log} of {facts.broker}")
        row = replace(row, records=facts.records, messages=facts.messages, bytes=facts.size_bytes)
        row = replace(row, archived_bytes=path.stat().st_size)
        if disk.exists(job.name):
            file = disk.open_for_reading(job.name)
            try:
                _compare(path, file.read, facts.size_bytes)
            finally:
                file.close()
            return replace(row, state="there")
        _write(disk, part, read_back(path))
        disk.rename(part, job.name)
        disk.sync_directory(JOURNAL)
        return row
    except NotArchived as problem:
        return replace(row, state="left out", problem=str(problem))
    except OSError as error:
        return replace(row, state="left out", problem=f"it could not be restored ({error.strerror or error})")
    finally:
        with suppress(FileNotFoundError):
            disk.remove(part)


def _write(disk: OsDisk, name: str, pieces: Iterable[bytes]) -> None:
    with suppress(FileNotFoundError):
        disk.remove(name)
    file = disk.open(name, create=True)
    try:
        for piece in pieces:
            file.append(piece)
        file.sync()
    finally:
        file.close()
