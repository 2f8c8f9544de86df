"""Ingestion: turn the messages of import sets into messages of the store, each once, whatever is killed meanwhile.

Ingestion runs at open, under the directory's lock, before the store is used. A set is verified completely before its
first message is taken. Then its messages are appended like any others, in slices with the flag IMPORTED. These slices
are also the record of the progress, so after a crash ingestion goes on with the next message. A set whose last message
is synced is retired. The journal remembers its load id. So its messages come only once, even if a crash comes before
the set is retired, or a second set has the same load id.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ..directory_store import DirectoryStore, StoreEnvironment, StoreOptions
from ..disk.disk import Disk
from ..disk.layout import IMPORT, import_load_id
from ..environment.account import Account
from ..environment.late_log import LateLogger
from ..environment.locks import OwnedLock
from ..errors import StoreFull
from ..format.contents import Contents
from ..format.imports import IMPORTS_KEPT, ImportRecord, ImportReport, encode_import
from ..format.message_properties import group_of
from ..format.record import IMPORT as IMPORT_KIND
from ..format.record import IMPORTED, RecordDamaged
from ..format.state_record import QUEUE
from ..index.destination_lane import DestinationLane
from ..recovery.recovery import RecoveryReport
from ..store_opener import open_store
from .manifest import (
    PUBLISHED,
    REFUSED,
    TAKEN,
    Manifest,
    forget_taken,
    part_names,
    read_manifest,
    retire,
)
from .part import ImportedSlice, NoRoomForPart, PartDamaged, PartFacts, PartReader

logger = LateLogger("forebay.store.import")

_BUSY: Final = "the index finds no room: it goes on at the next open"


class _Refused(Exception):
    """No message of this set may be taken, now or later."""


class _Waits(Exception):
    """Ingestion can't continue now; the next open tries again."""


def open_and_ingest(
    environment: StoreEnvironment, options: StoreOptions, account: Account, *, message_bytes_max: int
) -> tuple[DirectoryStore, RecoveryReport]:
    """Open the store, and ingest the waiting sets. Errors are those of `open_store` and `ingest_sets`.

    If this fails or is interrupted, it closes the files, and the next open finds the same as after a kill.
    """
    disk, state_lock = environment.disk, environment.state_lock
    directory, recovery = open_store(environment, options)
    try:
        imports = ingest_sets(disk, directory, state_lock, account, message_bytes_max=message_bytes_max)
    except BaseException:
        directory.abandon()
        raise
    return directory, replace(recovery, imports=imports)


def ingest_sets(
    disk: Disk, directory: DirectoryStore, state_lock: OwnedLock, account: Account, *, message_bytes_max: int
) -> tuple[ImportReport, ...]:
    """Ingest all published sets. Requires: the store is open and has no users yet; no lock.

    account: pays for one record at a time. message_bytes_max: a set with a larger message is refused. A set that can't
        be taken is reported, and does not stop the others. StoreFailed: the journal failed.
    """
    try:
        names = disk.list(IMPORT)
    except OSError as error:
        return (_reported(ImportReport("", 0, f"import/ cannot be read ({error.strerror or error})")),)
    reports = []
    for name in names:
        load_id = import_load_id(name, PUBLISHED)
        if load_id is not None:
            reports.append(
                _reported(_Ingestion(disk, directory, state_lock, account, load_id, message_bytes_max).run())
            )
    if any(report.problem is None for report in reports):
        try:
            forget_taken(disk, frozenset(record.load_id for record in directory.imports))
        except OSError as error:
            logger.warning("import/ keeps names of forgotten loads (%s)", error.strerror, event="import_names_kept")
    return tuple(reports)


def _reported(report: ImportReport) -> ImportReport:
    if report.problem is not None:
        logger.error(
            "load %s: %d messages taken over, then: %s",
            report.load_id,
            report.messages,
            report.problem,
            event="import_refused",
        )
    else:
        logger.info("load %s: %d messages taken over", report.load_id, report.messages, event="import_taken")
    return report


class _Ingestion:
    """The ingestion of one load."""

    def __init__(
        self,
        disk: Disk,
        directory: DirectoryStore,
        state_lock: OwnedLock,
        account: Account,
        load_id: str,
        message_bytes_max: int,
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._state_lock = state_lock
        self._account = _Locked(state_lock, account)
        self._load_id = load_id
        self._message_bytes_max = message_bytes_max
        self._taken = 0
        self._queues = {
            destination.name: destination.number
            for destination in directory.destination_table.values()
            if destination.kind == QUEUE
        }

    def run(self) -> ImportReport:
        problem: str | None = None
        try:
            self._run()
        except _Refused as refusal:
            problem = f"{refusal}; it was refused, and lies there as {self._load_id}.{REFUSED}"
            try:
                retire(self._disk, self._load_id, REFUSED, ())
            except OSError as error:
                problem = f"{refusal}; it could not even be set aside ({error.strerror})"
        except (_Waits, NoRoomForPart, StoreFull) as reason:
            problem = str(reason)
        except OSError as error:
            problem = f"it cannot be read or retired ({error.strerror or error})"
        return ImportReport(self._load_id, self._taken, problem)

    def _run(self) -> None:
        try:
            manifest = read_manifest(self._disk, self._load_id)
        except RecordDamaged as damage:
            raise _Refused(str(damage)) from None
        record = self._directory.imports.find(self._load_id)
        if record is not None and not record.is_done and record.set_id != manifest.set_id:
            taken = f"{record.taken:,} of {record.messages:,} messages"
            raise _Refused(f"{taken} were taken from another set of that load id")
        if record is None or not record.is_done:
            self._take(manifest, record)
        self._directory.syncer.sync()
        retire(self._disk, self._load_id, TAKEN, part_names(manifest))

    def _take(self, manifest: Manifest, record: ImportRecord | None) -> None:
        directory = self._directory
        if record is None and not directory.imports.has_room:
            raise _Waits(f"{IMPORTS_KEPT} other loads have begun and not ended")
        try:
            for part in manifest.parts:
                for _ in self._reader(manifest, part):
                    pass
        except PartDamaged as damage:
            raise _Refused(str(damage)) from None
        record = record or ImportRecord(manifest.load_id, manifest.set_id, manifest.messages, 0)
        self._write(record)
        try:
            self._append_from(manifest, record.taken)
        except PartDamaged as damage:
            raise _Waits(f"it changed while it was taken over: {damage}") from None
        done = directory.imports.find(self._load_id)
        assert done is not None and done.is_done
        self._write(done)

    def _append_from(self, manifest: Manifest, taken: int) -> None:
        """Append the messages of a set but the first `taken` ones. Parts that were taken as a whole are not read."""
        place = 0
        for part in manifest.parts:
            if place + part.messages <= taken:
                place += part.messages
                continue
            for found in self._reader(manifest, part):
                left_out = min(max(taken - place, 0), len(found.contents))
                place += len(found.contents)
                self._append(found, left_out)

    def _reader(self, manifest: Manifest, part: PartFacts) -> PartReader:
        return PartReader(
            self._disk, manifest.set_id, part, account=self._account, message_bytes_max=self._message_bytes_max
        )

    def _write(self, record: ImportRecord) -> None:
        """Record how far the load is, and reset the count."""
        directory = self._directory
        with self._state_lock, directory.journal.all_or_broken:
            directory.journal.append(IMPORT_KIND, 0, 0, encode_import(record))
            directory.imports.note(record)

    def _append(self, found: ImportedSlice, left_out: int) -> None:
        lane = self._lane(found.destination, found.priority)
        at = left_out
        while at < len(found.contents):
            if self._directory.checkpointer.is_urgent and not self._directory.checkpointer.checkpoint():
                raise _Waits(_BUSY)
            contents = found.contents.part(at, at + lane.slice_capacity)
            with self._state_lock:
                if any(properties and group_of(properties) is not None for properties in contents.properties):
                    self._directory.destination_writer.note_message_groups(lane.owner_number)
                self._append_slice(lane, found.timestamp, contents)
            at += len(contents)
            self._taken += len(contents)

    def _lane(self, name: str, priority: int) -> DestinationLane:
        directory = self._directory
        with self._state_lock:
            number = self._queues.get(name)
            if number is None:
                number = self._queues[name] = directory.destination_writer.create(name).number
            return directory.message_store.ensure_lane(number, priority)

    def _append_slice(self, lane: DestinationLane, timestamp: int, contents: Contents) -> None:
        """Append messages that count as taken from this load. Requires: the lock."""
        directory = self._directory
        if directory.journal.fullness.stall is not None:
            raise _Waits(_BUSY)
        with directory.journal.all_or_broken:
            directory.message_store.append_slice(lane, timestamp, contents, flags=IMPORTED)
            directory.imports.count(len(contents))


class _Locked:
    """An account that takes its owner's lock for each call."""

    def __init__(self, lock: OwnedLock, account: Account) -> None:
        self._lock = lock
        self._account = account

    def reserve(self, charge_bytes: int) -> bool:
        with self._lock:
            return self._account.reserve(charge_bytes)

    def release(self, charge_bytes: int) -> None:
        with self._lock:
            self._account.release(charge_bytes)
