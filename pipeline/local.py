"""The questions answered by this process alone: without Spark and Java, with the same rows.

Spark calls these functions in its workers, for one broker or data log at a time. If a part of a broker can't be read,
they raise NotRead or JournalCorrupt. With on_damage="report" such a broker has a row that tells the problem, and the
others continue.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeVar

from ..dispatch.explain.disk import explain_data_log
from ..store.disk.disk import Disk
from ..store.environment.clock import SystemClock
from ..store.errors import ForebayError, JournalCorrupt
from ..store.format.record import (
    ENTRY_BYTES,
    SLICE_BYTES,
    SLICE_MESSAGES_MAX,
    RecordDamaged,
    decode_header,
    decode_slice,
    verify_head,
)
from ..store.format.state_record import TOPIC, Destination
from ..store.index.journaled_lane import JournaledLane
from ..store.inspect.facts import ScanOptions
from ..store.inspect.read_only import ReadOnlyStore, open_read_only
from ..store.journal.sync_mark import read_durable_end
from ..store.maintenance.leases import read_leases
from ..store.recovery.verify import NOTHING_KNOWN, DataLogFacts, examine, examine_all, judge
from .errors import StoreNotRead
from .kernels.fleet import Directories, Store, disk_of, find_stores, plan
from .kernels.progress import Place, ahead
from .kernels.schema import columns

OnDamage = Literal["refuse", "report"]
REPORT: Final = "report"
GO_ON: Final = '; on_damage="report" goes on with the others'


class Problem(NamedTuple):
    """One damaged place, or a broker that could not be examined."""

    broker: str
    data_log: int | None
    offset: int | None
    problem: str


class PinRow(NamedTuple):
    """One reason why a data log remains, as in `bay.explain`."""

    broker: str
    data_log: int | None = None
    reason: str | None = None
    holder: str | None = None
    messages: int | None = None
    bytes: int | None = None
    oldest_seconds: float | None = None
    frees: str | None = None
    data_logs: str | None = None
    """The data logs of the holder's messages. For acks: the data logs at the other end of the chain."""
    problem: str | None = None


class BacklogRow(NamedTuple):
    """The backlog of a queue, or of a durable subscription of a topic."""

    broker: str
    destination: str | None = None
    subscription: str | None = None
    messages: int | None = None
    bytes: int | None = None
    oldest_seconds: float | None = None
    producers: int | None = None
    """Producers whose message ids the store remembers. None: the destination has no deduplication."""
    problem: str | None = None


class LeaseRow(NamedTuple):
    """The lease of one named reader of a journal, and the reader's lag."""

    broker: str
    lease: str
    data_log: int
    offset: int
    behind_bytes: int
    """Bytes from the reader's place to the end of the journal."""
    expires_seconds: float
    """Seconds until the lease ends, unless the reader renews it."""


class IndexRow(NamedTuple):
    """One block of the index as a checkpoint stores it."""

    broker: str
    lane: int
    block: int
    messages: int
    """Pending messages of the block."""
    packed: bytes


def facts(
    directories: Directories,
    *,
    bodies: bool = False,
    relocated: bool = False,
    on_damage: OnDamage = "refuse",
) -> Iterator[Any]:
    """Yield the facts of all stores in the directories as pyarrow.RecordBatch. Needs pyarrow and numpy.

    bodies: include headers (JSON) and bodies. relocated: include copies that relocation made.
    """
    from .kernels.batches import Request, batches

    reports = on_damage == REPORT
    asked = columns(bodies=bodies, problems=reports)
    for store in find_stores(directories):
        request = Request(store.broker, asked, ScanOptions(bodies, relocated), reports)
        for part in plan(disk_of(store)):
            yield from batches(disk_of(store), request, part)


def check(directories: Directories) -> list[Problem]:
    """Return every damaged place of every store, by broker and place; [] if there is none.

    Reads each byte once. A data log without a seal is read again if a later data log has begun.
    """
    return [problem for store in find_stores(directories) for problem in check_store(store, disk_of(store))]


def check_store(store: Store, disk: Disk, known: Mapping[int, DataLogFacts] = NOTHING_KNOWN) -> list[Problem]:
    """Return the problems of one store. known: see `examine_all`."""
    told = read_durable_end(disk)
    examined = list(examine_each(disk, known))
    return [Problem(store.broker, *finding) for finding in judge(examined, told).findings]


def examine_each(disk: Disk, known: Mapping[int, DataLogFacts] = NOTHING_KNOWN) -> Iterator[DataLogFacts]:
    """Examine each data log of one store, by columns where numpy is installed. known: see `examine_all`."""
    try:
        from .kernels.checking import examine_by_columns as examine_one
    except ImportError:
        examine_one = examine
    return examine_all(disk, examine_one, known)


def explain_pins(directories: Directories, *, on_damage: OnDamage = "refuse") -> list[PinRow]:
    """Return why each data log of every store remains, by broker and data log. Replays each journal once."""
    return _each(directories, on_damage, pins_of, lambda store, problem: PinRow(store.broker, problem=problem))


def backlog(directories: Directories, *, on_damage: OnDamage = "refuse") -> list[BacklogRow]:
    """Return the backlog of each queue and durable subscription, by name. Replays each journal once."""
    return _each(directories, on_damage, backlog_of, lambda store, why: BacklogRow(store.broker, problem=why))


def leases(directories: Directories) -> list[LeaseRow]:
    """Return the leases of all stores that have not expired, by broker and name: the lag of streams."""
    now_ms = SystemClock().time_ms()
    rows = []
    for store in find_stores(directories):
        disk = disk_of(store)
        for lease in read_leases(disk, now_ms):
            behind = ahead(disk, Place(lease.data_log, lease.offset), None)[2]
            seconds = (lease.expires_ms - now_ms) / 1000
            rows.append(LeaseRow(store.broker, lease.name, lease.data_log, lease.offset, behind, seconds))
    return rows


def rebuild_index(directory: Directories) -> list[IndexRow]:
    """Return the blocks of the index that opening would make from the journal, by broker, lane and block."""
    rows: list[IndexRow] = []
    for store in find_stores(directory):
        try:
            rows += index_of(store, disk_of(store))
        except (ForebayError, OSError) as error:
            raise named(store, error) from error
    return rows


Row = TypeVar("Row")


def _each(
    directories: Directories,
    on_damage: OnDamage,
    ask: Callable[[Store, Disk, int], list[Row]],
    not_read: Callable[[Store, str], Row],
) -> list[Row]:
    rows: list[Row] = []
    now_ms = SystemClock().time_ms()
    for store in find_stores(directories):
        try:
            rows += ask(store, disk_of(store), now_ms)
        except (ForebayError, OSError) as error:
            if on_damage != REPORT:
                raise named(store, error, GO_ON) from error
            rows.append(not_read(store, problem_text(error)))
    return rows


def problem_text(error: Exception) -> str:
    """Return the text for a row: the problem without the advice on opening the store."""
    if isinstance(error, JournalCorrupt):
        return f"data-{error.data_log}.log at offset {error.offset}: {error.problem}"
    if isinstance(error, OSError):
        name = os.path.basename(error.filename) if isinstance(error.filename, str) else "the journal"
        return f"{name} cannot be read ({error.strerror or error})"
    return str(error)


def named(store: Store, error: Exception, advice: str = "") -> StoreNotRead:
    return StoreNotRead(f"{store.broker}: {problem_text(error)}{advice}")


def pins_of(store: Store, disk: Disk, now_ms: int) -> list[PinRow]:
    """Return the reasons why data logs of one store remain. Raises JournalCorrupt if an open would be refused."""
    seen = open_read_only(disk, now_ms)
    rows = []
    for data_log, reasons in seen.retention_reasons.each():
        if data_log not in seen.sizes:
            continue  # it was dropped, but not deleted yet
        causes = explain_data_log(data_log, seen.sizes[data_log], reasons, now_ms).causes
        for reason, cause in zip(reasons, causes, strict=True):
            where = ",".join(map(str, reason.data_logs))
            rows.append(
                PinRow(
                    store.broker,
                    data_log,
                    cause.reason,
                    cause.holder,
                    cause.messages,
                    cause.bytes,
                    cause.oldest_seconds,
                    cause.frees,
                    where,
                )
            )
    return rows


def backlog_of(store: Store, disk: Disk, now_ms: int) -> list[BacklogRow]:
    """Return the backlog of one store. Raises JournalCorrupt if an open would be refused."""
    seen = open_read_only(disk)
    rows = []
    lanes_of: dict[int, list[JournaledLane]] = {}
    for lane in seen.index.lanes.values():
        lanes_of.setdefault(lane.owner_number, []).append(lane)
    for destination in seen.destinations.values():
        if destination.kind != TOPIC:
            rows.append(_row(store, destination, None, lanes_of.get(destination.number, ()), seen, now_ms))
    for subscriber in seen.subscriptions.readers():
        topic = seen.destinations[subscriber.facts.topic]
        mine: list[JournaledLane] = []
        for reading in filter(None, subscriber.lanes):
            reading.catch_up()
            mine.append(reading)
        rows.append(_row(store, topic, subscriber.facts.name, mine, seen, now_ms))
    return sorted(rows, key=lambda row: (row.destination or "", row.subscription or ""))


def _row(
    store: Store,
    destination: Destination,
    subscription: str | None,
    lanes: Sequence[JournaledLane],
    seen: ReadOnlyStore,
    now_ms: int,
) -> BacklogRow:
    times = [time for lane in lanes if (time := _oldest_ms(lane, seen)) is not None]
    return BacklogRow(
        store.broker,
        destination.name,
        subscription,
        sum(lane.pending_messages for lane in lanes),
        sum(lane.pending_bytes for lane in lanes),
        max((now_ms - min(times)) / 1000, 0.0) if times else None,
        seen.duplicates.producers(destination.number) or None,
    )


def _oldest_ms(lane: JournaledLane, seen: ReadOnlyStore) -> int | None:
    """Return when the first pending message of a lane was sent. Does one read. OSError: the disk refused it."""
    run = lane.pending_run(0, 1)
    if run is None:
        return None
    extent = next(iter(lane.extents(run[0], run[0])))
    try:
        file, salt = seen.reader(extent.data_log)
        try:
            head = file.read(extent.offset, SLICE_BYTES + ENTRY_BYTES * SLICE_MESSAGES_MAX)
        finally:
            file.close()
        header = decode_header(head)
        verify_head(header, head, salt)
        return decode_slice(header, head).timestamp
    except (FileNotFoundError, RecordDamaged):
        return None  # deleted by the owner meanwhile, or damaged there


def index_of(store: Store, disk: Disk) -> list[IndexRow]:
    """Return the blocks of one store that have pending messages. Raises JournalCorrupt if an open would be refused."""
    seen = open_read_only(disk)
    return [
        IndexRow(store.broker, number, block, found.pending_messages, found.pack())
        for number, lane in sorted(seen.index.lanes.items())
        for block, found in sorted(lane.resident_blocks.items())
        if found.pending_messages
    ]
