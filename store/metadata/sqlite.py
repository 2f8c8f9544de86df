"""SqliteMetadataStore: the metadata store on disk, in SQLite, as metadata/metadata_store.py describes it.

SQLite keeps its own files, and can't write through the disk interface. So it is one implementation of a Protocol. A
second one is in memory, and a third one in the tests, for simulated crashes.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import struct
import zlib
from collections.abc import Sequence, Set
from threading import RLock
from typing import Any, Final

from ..disk.thrifty_disk import lacks_descriptors
from ..format.times import NEVER
from ..index.fingerprints import Row as FingerprintRow
from ..numbering import UNLIMITED
from .checksum import BlockChecksum, parts_of, ranges, row_of, survey
from .metadata_store import MetadataDamaged, MetadataFull, MetadataUnopened, Snapshot

_SCHEMA_VERSION: Final = 1
_SCHEMA: Final = (
    "CREATE TABLE root (id INTEGER PRIMARY KEY, store_id BLOB, position INTEGER, epoch INTEGER,"
    " blocks INTEGER, checksum INTEGER, crc INTEGER, root BLOB)",
    # Ids ascend with time, so new blocks fill whole pages at the end instead of splitting pages in the middle.
    "CREATE TABLE blocks (id INTEGER PRIMARY KEY, lane INTEGER, block INTEGER, crc INTEGER, due INTEGER,"
    " expiry INTEGER, packed BLOB)",
    "CREATE UNIQUE INDEX places ON blocks (lane, block, crc, due, expiry)",
    "CREATE INDEX dues ON blocks (lane, due, block) WHERE due > 0",
    "CREATE INDEX expiries ON blocks (lane, expiry, block) WHERE expiry > 0",
    f"PRAGMA user_version = {_SCHEMA_VERSION}",
)
# Made with the first fingerprint. A release that does not know the table leaves it alone, and its rows stay right.
_FINGERPRINTS: Final = (
    "CREATE TABLE IF NOT EXISTS fingerprints (lane INTEGER, block INTEGER, name TEXT, crc INTEGER, fingerprint BLOB,"
    " PRIMARY KEY (lane, block, name)) WITHOUT ROWID"
)
_HAS_FINGERPRINTS: Final = "SELECT count(*) FROM sqlite_master WHERE name = 'fingerprints'"
_FIND_FINGERPRINTS: Final = "SELECT block, name, crc, fingerprint FROM fingerprints"
_PLACES: Final = "SELECT lane, block, crc, due, expiry FROM blocks INDEXED BY places"
_PLACES_AND_IDS: Final = "SELECT lane, block, crc, due, expiry, id FROM blocks INDEXED BY places"
_RANGE: Final = " WHERE lane = ? AND block BETWEEN ? AND ?"
# The checksum comes from the index `places`, which `load` has verified, and the bytes come from the table. After a lost
# write, an old row agrees with its own checksum, but not with the one in the index.
_READ: Final = (
    "SELECT place.crc, held.packed FROM blocks AS place INDEXED BY places"
    " CROSS JOIN blocks AS held ON held.id = place.id WHERE place.lane = ? AND place.block = ?"
)
_TIMED: Final = (
    "SELECT due, block FROM blocks INDEXED BY dues WHERE lane = ? AND due > 0 AND (due, block) > (?, ?) AND due <= ?"
    " ORDER BY due, block LIMIT ?",
    "SELECT expiry, block FROM blocks INDEXED BY expiries WHERE lane = ? AND expiry > 0 AND (expiry, block) > (?, ?)"
    " AND expiry <= ? ORDER BY expiry, block LIMIT ?",
)
_TIMES: Final = (
    ("SELECT lane, block, 0, due, 0 FROM blocks INDEXED BY {} WHERE due > 0", "dues"),
    ("SELECT lane, block, 0, 0, expiry FROM blocks INDEXED BY {} WHERE expiry > 0", "expiries"),
)
_FILES: Final = ("places.db", "places.db-wal", "places.db-shm", "places.db-journal")

_ROOT_HEAD: Final = struct.Struct("<16sqqqq")
_SURPLUS_BYTES = 8 << 20
"""If the write-ahead log, or the unused end of the file, is larger than this, a commit gives the surplus back."""
_BUSY_SECONDS: Final = 0.5
"""How long to wait for another connection. Only an operator has one: the directory lock keeps other stores out."""
_TROUBLE: Final = (sqlite3.DatabaseError, UnicodeDecodeError, OSError)
"""Errors that Python's sqlite3 raises for damage and disks, not for mistakes of ours. UnicodeDecodeError comes if
SQLite quotes a damaged schema.
"""
_NO_ROOM: Final = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE)
"""A quota, and perhaps a failing disk, shows as a write error. In both cases the committed state is untouched."""
_DESCRIPTORS: Final = 6
"""File descriptors that both connections need: the file and its write-ahead log each, their index, a directory to
sync.
"""


class SqliteMetadataStore:
    """A B-tree in `directory`/places.db. The directory must exist; the first commit makes the file.

    `page_bytes` is a power of two from 512 to 65,536 and is used when the file is made. `cache_bytes` bounds SQLite's
    page caches, of which a writer and a reader connection have half each.

    All files are open from the first load or commit that finds or makes them, so nothing else needs a descriptor.

    A checkpoint of more than `transaction_adds` references takes several transactions. The last one has the root. After
    a crash between them, count and checksum differ from those in the old root, so `load` refuses the files.
    """

    is_persistent = True
    is_filling = False

    def __init__(
        self,
        directory: str,
        store_id: bytes,
        page_bytes: int,
        cache_bytes: int,
        *,
        transaction_adds: int = UNLIMITED,
    ) -> None:
        assert len(store_id) == 16, len(store_id)
        assert 512 <= page_bytes <= 65536 and page_bytes & (page_bytes - 1) == 0, page_bytes
        self._directory = directory
        self._store_id = store_id
        self._page_bytes = page_bytes
        self._transaction_adds = transaction_adds
        # Places of blocks that a checkpoint has put before it found no room. The old root does not count them.
        self._unfinished: set[tuple[int, int]] = set()
        self._cache_bytes = cache_bytes
        # Start value of checksums of fingerprints, so that rows of another store do not match.
        self._seed = zlib.crc32(store_id)
        self._path = os.path.join(directory, _FILES[0])
        # If both are held, _writing was taken first.
        self._writing = RLock()  # a signal handler may come back to it between two bytecodes
        self._reading = RLock()
        self._writer: sqlite3.Connection | None = None
        self._reader: sqlite3.Connection | None = None
        self._is_sound = False
        self._has_fingerprints = False
        self._checksum = BlockChecksum()

    def load(self) -> Snapshot | None:
        """Verify the newest checkpoint and describe it. About 0.8 µs per block, and RAM only for its runs.

        OSError: no descriptor is left to open the files, which are unchanged.
        """
        with self._writing:
            self._is_sound = False
            self._checksum = BlockChecksum()
            self._unfinished.clear()
            try:
                snapshot = self._load()
            except _TROUBLE as error:
                if _is_unopened(error):
                    self._disconnect()
                    self._require_descriptors()
                raise MetadataDamaged(f"{_FILES[0]}: {error}") from error
            self._is_sound = True
            return snapshot

    def _load(self) -> Snapshot | None:
        writer = self._writer
        if writer is None:
            if not os.path.exists(self._path) or os.path.getsize(self._path) == 0:
                return None
            writer = self._connect()
        version = _scalar(writer, "PRAGMA user_version")
        if version == 0 and _scalar(writer, "SELECT count(*) FROM sqlite_master") == 0:
            self._disconnect()  # A kill came between the file and its tables: the next commit makes both again.
            return None
        if version != _SCHEMA_VERSION:
            raise MetadataDamaged(f"{_FILES[0]} has schema version {version}, not {_SCHEMA_VERSION}")
        if _scalar(writer, "PRAGMA journal_mode") != "wal":
            raise MetadataDamaged(f"{_FILES[0]} is not in WAL mode")
        with writer:
            writer.execute("BEGIN")
            self._open_all()
            roots = writer.execute("SELECT store_id, position, epoch, blocks, checksum, crc, root FROM root").fetchall()
            blocks, checksum = survey(writer.execute(_PLACES + " ORDER BY lane, block"))
            earliest = _earliest(writer)
            self._has_fingerprints = _scalar(writer, _HAS_FINGERPRINTS) > 0
        if not roots and not checksum.blocks:
            return None
        if len(roots) != 1:
            raise MetadataDamaged(f"{_FILES[0]} has {len(roots)} roots and {checksum.blocks} blocks")
        *head, crc, root = roots[0]
        if _root_crc(head, root) != crc:
            raise MetadataDamaged(f"{_FILES[0]}: the root does not match its checksum")
        store_id, position, epoch, *expected = head
        if store_id != self._store_id:
            raise MetadataDamaged(f"{_FILES[0]} belongs to store {store_id.hex()}, not {self._store_id.hex()}")
        if checksum != BlockChecksum(*expected):
            raise MetadataDamaged(f"{_FILES[0]} holds {checksum}, not {BlockChecksum(*expected)}")
        self._checksum = checksum
        return Snapshot(position, epoch, root, blocks, earliest)

    def commit(
        self,
        position: int,
        epoch: int,
        root: bytes,
        puts: Sequence[tuple[int, int, bytes]],
        deletes: Sequence[tuple[int, int]] = (),
        fingerprints: Sequence[FingerprintRow] = (),
    ) -> None:
        """Replace the checkpoint, all or nothing.

        About 30 µs per block of 4 KiB, syncs included, and 100 µs if a block is replaced at random.
        """
        with self._writing:
            if not self._is_sound:
                raise MetadataDamaged(f"{_FILES[0]}: not loaded, or a commit was cut short")
            self._is_sound = False
            try:
                if self._writer is None:
                    self._create()
                self._commit((position, epoch, root), puts, deletes, fingerprints)
                self._give_back()
            except _TROUBLE as error:
                problem = f"{_FILES[0]}: {error}"
                if _is_unopened(error):  # files that were open before stay open, so nothing was begun
                    self._is_sound = True
                    raise MetadataUnopened(f"{problem}; no file descriptor is left") from error
                self._is_sound = _is_no_room(error)
                raise (MetadataFull if self._is_sound else MetadataDamaged)(problem) from error
            self._is_sound = True

    def _commit(
        self,
        root: tuple[int, int, bytes],
        puts: Sequence[tuple[int, int, bytes]],
        deletes: Sequence[tuple[int, int]],
        fingerprints: Sequence[FingerprintRow],
    ) -> None:
        places = {(lane_number, block) for lane_number, block, _ in puts}
        assert len(places) == len(puts), "a block is put twice"
        # Nobody else asks to delete blocks that a failed checkpoint has put and that became empty since.
        doomed = ranges({*deletes, *self._unfinished} - places)
        *parts, last = parts_of(puts, self._transaction_adds)
        for part in parts:
            self._transact(doomed, part, None, ())
            self._unfinished.update((lane_number, block) for lane_number, block, _ in part)
            doomed = []
        self._transact(doomed, last, root, fingerprints)
        self._unfinished.clear()

    def _transact(
        self,
        doomed: Sequence[tuple[int, int, int]],
        puts: Sequence[tuple[int, int, bytes]],
        root: tuple[int, int, bytes] | None,
        fingerprints: Sequence[FingerprintRow],
    ) -> None:
        """Run one transaction: delete ranges of blocks, and put blocks. A root completes the checkpoint."""
        writer = self._writer
        assert writer is not None
        with writer:
            writer.execute("BEGIN IMMEDIATE")
            checksum = self._checksum - self._delete_blocks(writer, doomed)
            added, replaced = _put_blocks(writer, puts)
            checksum += added
            checksum -= replaced
            if fingerprints:
                self._put_fingerprints(writer, fingerprints)
            if root is not None:
                self._put_root(writer, root, checksum)
        self._checksum = checksum
        self._has_fingerprints |= len(fingerprints) > 0

    def _delete_blocks(self, writer: sqlite3.Connection, doomed: Sequence[tuple[int, int, int]]) -> BlockChecksum:
        """Delete ranges of blocks with their fingerprints; return the checksum of what was deleted."""
        deleted = BlockChecksum()
        for place_range in doomed:
            deleted += survey(writer.execute(_PLACES + _RANGE, place_range))[1]
            writer.execute("DELETE FROM blocks" + _RANGE, place_range)
            if self._has_fingerprints:
                writer.execute("DELETE FROM fingerprints" + _RANGE, place_range)
        return deleted

    def _put_fingerprints(self, writer: sqlite3.Connection, fingerprints: Sequence[FingerprintRow]) -> None:
        writer.execute(_FINGERPRINTS)
        writer.executemany(
            "REPLACE INTO fingerprints VALUES (?, ?, ?, ?, ?)",
            (
                (lane_number, block, name, self._crc(lane_number, block, _encoded(name), data), data)
                for lane_number, block, name, data in fingerprints
            ),
        )

    def _put_root(self, writer: sqlite3.Connection, root: tuple[int, int, bytes], checksum: BlockChecksum) -> None:
        """Put the root, which says how many blocks there are now and what their checksum is."""
        position, epoch, value = root
        head = (self._store_id, position, epoch, checksum.blocks, checksum.checksum)
        row = (*head, _root_crc(head, value), value)
        writer.execute("REPLACE INTO root VALUES (0, ?, ?, ?, ?, ?, ?, ?)", row)

    def _crc(self, lane_number: int, block: int, name: bytes, data: bytes) -> int:
        """Return the checksum of a fingerprint and of its place."""
        return zlib.crc32(data, zlib.crc32(b"%d %d %b" % (lane_number, block, name), self._seed))

    def read_block(self, lane_number: int, block: int) -> bytes:
        """Return a block as it was put, verified.

        About 10 µs if the system has the page; a commit does not delay it.
        """
        with self._reading:
            try:
                rows = [] if self._reader is None else self._reader.execute(_READ, (lane_number, block)).fetchall()
            except _TROUBLE as error:
                raise MetadataDamaged(f"{_FILES[0]}: {error}") from error
        if len(rows) != 1:
            raise MetadataDamaged(f"{_FILES[0]} has {len(rows)} blocks {block} of lane {lane_number}")
        crc, packed = rows[0]
        if not isinstance(packed, bytes) or zlib.crc32(packed) != crc:
            raise MetadataDamaged(f"{_FILES[0]}: block {block} of lane {lane_number} does not match its checksum")
        return packed

    def timed(
        self, kind: int, lane_number: int, behind: tuple[int, int], until_ms: int, most: int
    ) -> list[tuple[int, int]]:
        """Return (time, block) of blocks of a lane by their times, in order; see MetadataStore."""
        with self._reading:
            try:
                query = (lane_number, *behind, until_ms, most)
                rows = [] if self._reader is None else self._reader.execute(_TIMED[kind], query).fetchall()
            except _TROUBLE as error:
                raise MetadataDamaged(f"{_FILES[0]}: {error}") from error
        if not all(type(number) is int for row in rows for number in row):
            raise MetadataDamaged(f"{_FILES[0]}: a time that is no number")
        return rows

    def fingerprints(self, lane_number: int, first: int, last: int, names: Set[str]) -> list[tuple[int, str, bytes]]:
        """Return (block, name, bytes) of the fingerprints of these headers and blocks, verified.

        Takes about 1 µs each.
        """
        if not self._has_fingerprints:
            return []
        with self._reading:
            try:
                found = (
                    []
                    if self._reader is None
                    else self._reader.execute(
                        f"{_FIND_FINGERPRINTS}{_RANGE} AND name IN ({', '.join('?' * len(names))})",
                        (lane_number, first, last, *names),
                    )
                )
                rows = list(found)
            except _TROUBLE as error:
                raise MetadataDamaged(f"{_FILES[0]}: {error}") from error
        encoded = {name: _encoded(name) for name in names}
        return [
            (block, name, data)
            for block, name, crc, data in rows
            if type(block) is int and type(data) is bytes and name in encoded
            if self._crc(lane_number, block, encoded[name], data) == crc
        ]

    def resize_cache(self, cache_bytes: int) -> int:
        """Keep at most `cache_bytes` in RAM; SQLite drops pages at once. Return how many it may keep."""
        with self._writing, self._reading:
            before, self._cache_bytes = self._cache_bytes, cache_bytes
            try:
                for connection in filter(None, (self._writer, self._reader)):
                    connection.execute(f"PRAGMA cache_size = {self._cache_size}")
                    connection.execute("PRAGMA shrink_memory")
            except _TROUBLE:
                self._cache_bytes = max(before, cache_bytes)
            return self._cache_bytes

    def clear(self) -> None:
        """Remove the files; the next commit makes them again."""
        with self._writing:
            self._disconnect()
            self._remove_files()
            self._has_fingerprints = False
            self._checksum = BlockChecksum()
            self._unfinished.clear()
            self._is_sound = True

    def close(self) -> None:
        """Close the files. SQLite moves its write-ahead log into the file."""
        with self._writing:
            self._disconnect()
            self._is_sound = False

    def _create(self) -> None:
        self._remove_files()
        # SQLite gives its further files the mode of the first.
        os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
        try:
            writer = self._connect()
            writer.execute(f"PRAGMA page_size = {self._page_bytes}")
            # Drained pages leave the file at once, for 10 µs more per deleted block. Vacuuming in steps was no cheaper.
            writer.execute("PRAGMA auto_vacuum = FULL")
            writer.execute("PRAGMA journal_mode = WAL")
            with writer:
                writer.execute("BEGIN IMMEDIATE")
                for statement in _SCHEMA:
                    writer.execute(statement)
            self._open_all()
        except BaseException:
            self._disconnect()  # Half made: the next commit begins again.
            raise

    def _connect(self) -> sqlite3.Connection:
        writer = self._writer = self._connection()
        with self._reading:
            self._reader = self._connection()
            self._reader.execute("PRAGMA query_only = ON")
        return writer

    def _open_all(self) -> None:
        """Make SQLite open now what it would open with the first read. A failure now concerns no message."""
        with self._reading:
            for connection in filter(None, (self._writer, self._reader)):
                # Not from a table: an error that keeps SQLite from reading the schema would show as "no such table".
                connection.execute("PRAGMA user_version").fetchall()

    def _require_descriptors(self) -> None:
        """Raise OSError if the process has too few descriptors left for all files."""
        opened: list[int] = []
        try:
            for _ in range(_DESCRIPTORS):
                opened.append(os.open(self._directory, os.O_RDONLY | os.O_CLOEXEC))
        except OSError as error:
            if lacks_descriptors(error):
                raise
        finally:
            for descriptor in opened:
                os.close(descriptor)

    @property
    def _cache_size(self) -> int:
        """The page cache of each connection in KiB, negative as SQLite wants it."""
        return -max(self._cache_bytes // 2 // 1024, 1)

    def _connection(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            for setting in (
                "synchronous = NORMAL",
                f"cache_size = {self._cache_size}",
                "wal_autocheckpoint = 0",  # _give_back does it, and handles its errors
                "mmap_size = 0",  # a device error in a mapped page would kill the process
                "temp_store = MEMORY",
                "secure_delete = OFF",  # places are no secret; wiping them doubles the writes of a delete
                "cell_size_check = ON",
                "trusted_schema = OFF",
            ):
                connection.execute("PRAGMA " + setting)
        except BaseException:
            connection.close()  # else the file stays open until the garbage collector runs
            raise
        return connection

    def _disconnect(self) -> None:
        with self._reading:
            if self._reader is not None:
                self._reader.close()
                self._reader = None
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _remove_files(self) -> None:
        # Remove the file first: SQLite drops a write-ahead log without a file, but would cut a file without its log.
        for name in _FILES:
            try:
                os.unlink(os.path.join(self._directory, name))
            except FileNotFoundError:
                continue
        directory = os.open(self._directory, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(directory)  # otherwise a power cut could put an old write-ahead log beside the new file
        finally:
            os.close(directory)

    def _give_back(self) -> None:
        """Fold the write-ahead log into the file and cut both.

        If readers are in the way, the next commit tries again.
        """
        writer = self._writer
        assert writer is not None
        wal_bytes = os.stat(self._path + "-wal").st_size
        tree_bytes = _scalar(writer, "PRAGMA page_count") * _scalar(writer, "PRAGMA page_size")
        if max(wal_bytes, os.stat(self._path).st_size - tree_bytes) > _SURPLUS_BYTES:
            try:
                writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            except _TROUBLE as error:
                if not _is_no_room(error):
                    raise


def _scalar(connection: sqlite3.Connection, query: str) -> Any:
    return connection.execute(query).fetchone()[0]


def _put_blocks(
    writer: sqlite3.Connection, puts: Sequence[tuple[int, int, bytes]]
) -> tuple[BlockChecksum, BlockChecksum]:
    """Put blocks; return the checksum of the new rows, and that of the rows that they replace.

    An existing block keeps its id, and so its page: a third less is written, and the file stays dense.
    """
    rows = [row_of(*put) for put in puts]
    ids: dict[tuple[int, int], int] = {}
    replaced = BlockChecksum()
    for place_range in ranges({(lane_number, block) for lane_number, block, _ in puts}):
        old_rows = writer.execute(_PLACES_AND_IDS + _RANGE, place_range).fetchall()
        ids.update((row[:2], row[-1]) for row in old_rows)
        replaced += survey(row[:-1] for row in old_rows)[1]
    writer.executemany(
        "REPLACE INTO blocks (id, lane, block, crc, due, expiry, packed) VALUES (?, ?, ?, ?, ?, ?, ?)",
        ((ids.get(row[:2]), *row, put[2]) for row, put in zip(rows, puts, strict=True)),
    )
    return survey(rows)[1], replaced


def _encoded(name: str) -> bytes:
    """Return the name of a header as the checksum of its fingerprint covers it."""
    return name.encode(errors="replace")


def _is_no_room(error: Exception) -> bool:
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    return code in _NO_ROOM or code & 0xFF == sqlite3.SQLITE_BUSY


def _is_unopened(error: Exception) -> bool:
    """Return whether a file could not be opened for want of a descriptor, and not because something else is in its
    place.
    """
    if isinstance(error, OSError):
        return lacks_descriptors(error)
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF == sqlite3.SQLITE_CANTOPEN


def _earliest(connection: sqlite3.Connection) -> dict[int, tuple[int, int]]:
    """Return the earliest times of each lane. MetadataDamaged: the index by time disagrees with that by place."""
    earliest: dict[int, list[int]] = {}
    for kind, (query, index) in enumerate(_TIMES):
        rows = connection.execute(query.format(index)).fetchall()
        if survey(rows)[1] != survey(connection.execute(query.format("places")))[1]:
            raise MetadataDamaged(f"{_FILES[0]}: the index of times does not agree with the blocks")
        for row in rows:
            known = earliest.setdefault(row[0], [0, 0])
            known[kind] = min(known[kind] or NEVER, row[3 + kind])
    return {lane_number: (due, expiry) for lane_number, (due, expiry) in earliest.items()}


def _root_crc(head: Sequence[Any], root: bytes) -> int:
    try:
        return zlib.crc32(root, zlib.crc32(_ROOT_HEAD.pack(*head)))
    except (struct.error, TypeError) as error:
        raise MetadataDamaged(f"{_FILES[0]}: a root of the wrong types") from error
