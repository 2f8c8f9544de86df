"""The metadata store on a damaged, foreign or full disk: refused or exact, never silently wrong."""

from __future__ import annotations

import resource
import sqlite3
from pathlib import Path
from random import Random
from typing import Any

import pytest
from metadata_stores import (
    PAGE_BYTES,
    assert_holds,
    change_at,
    loaded,
    read_all,
    ready_store,
    sqlite_store,
)

from forebay.store.metadata import sqlite as metadata_store
from forebay.store.metadata.metadata_store import MetadataDamaged, MetadataFull
from forebay.store.metadata.sqlite import SqliteMetadataStore

# SQLite: what it refuses


def tamper(tmp_path: Path, statement: str) -> None:
    """Change the file behind the store's back."""
    connection = sqlite3.connect(tmp_path / "places.db", isolation_level=None)
    connection.execute(statement)
    connection.close()


def assert_refused_then_cleared(store: SqliteMetadataStore, reason: str) -> None:
    with pytest.raises(MetadataDamaged, match=reason):
        store.load()
    with pytest.raises(MetadataDamaged):
        store.commit(9, 9, b"", [])
    store.clear()
    assert store.load() is None
    change_at(1).commit_to(store)
    assert_holds(store, 1)
    store.close()


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A directory whose closed store holds the fixed history up to 20."""
    store = ready_store(tmp_path)
    for position in range(1, 21):
        change_at(position).commit_to(store)
    store.close()
    return tmp_path


def test_store_of_another_id_is_refused(written: Path) -> None:
    assert_refused_then_cleared(sqlite_store(written, b"another store id"), "belongs to store 000102")


def test_other_schema_version_is_refused_untouched(written: Path) -> None:
    tamper(written, "PRAGMA user_version = 2")
    before = (written / "places.db").read_bytes()
    store = sqlite_store(written)
    with pytest.raises(MetadataDamaged, match="schema version 2, not 1"):
        store.load()
    store.close()
    assert (written / "places.db").read_bytes() == before
    assert_refused_then_cleared(sqlite_store(written), "schema version 2, not 1")


def test_file_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "places.db").write_bytes(b"no database at all " * 100)
    assert_refused_then_cleared(sqlite_store(tmp_path), "not a database")


def test_another_database_is_refused(tmp_path: Path) -> None:
    tamper(tmp_path, "CREATE TABLE something (else_ TEXT)")
    assert_refused_then_cleared(sqlite_store(tmp_path), "schema version 0")


NEWEST = "WHERE id = (SELECT max(id) FROM blocks)"


@pytest.mark.parametrize(
    "tampering",
    [
        f"DELETE FROM blocks {NEWEST}",
        "DELETE FROM root",
        "INSERT INTO root SELECT 1, store_id, position, epoch, blocks, checksum, crc, root FROM root",
        "UPDATE root SET position = position + 1",
        "UPDATE root SET root = 'text'",
        "UPDATE root SET store_id = NULL",
        f"UPDATE blocks SET crc = 0.5 {NEWEST}",
        f"UPDATE blocks SET lane = 'text' {NEWEST}",
        f"UPDATE blocks SET block = NULL {NEWEST}",
        f"UPDATE blocks SET packed = 'text' {NEWEST}",
        f"UPDATE blocks SET packed = zeroblob(length(packed)) {NEWEST}",
        "PRAGMA journal_mode = DELETE",
    ],
)
def test_tampered_file_is_refused(written: Path, tampering: str) -> None:
    tamper(written, tampering)
    store = sqlite_store(written)
    with pytest.raises(MetadataDamaged):
        read_all(store, loaded(store))
    store.clear()
    change_at(1).commit_to(store)
    assert_holds(store, 1)
    store.close()


@pytest.mark.parametrize(
    "tampering",
    [
        "UPDATE blocks SET crc = (SELECT sum(crc) FROM blocks WHERE lane = 2) - crc WHERE lane = 2",
        "UPDATE blocks SET block = CASE block WHEN 1 THEN 2 ELSE 3 END WHERE lane = 1",
        f"DELETE FROM blocks {NEWEST}",
    ],
    ids=["swapped checksums", "shifted places of equal blocks", "missing block"],
)
def test_load_itself_notices_that_the_index_is_another(tmp_path: Path, tampering: str) -> None:
    store = ready_store(tmp_path)
    store.commit(1, 1, b"", [(1, 1, b"equal"), (1, 4, b"equal"), (2, 1, b"one"), (2, 2, b"two")])
    store.close()
    tamper(tmp_path, tampering)
    with pytest.raises(MetadataDamaged, match="holds"):
        store.load()
    store.close()


def test_failed_commit_is_the_last_until_cleared(written: Path) -> None:
    store = ready_store(written)
    tamper(written, "ALTER TABLE root RENAME TO elsewhere")
    with pytest.raises(MetadataDamaged, match="no such table"):
        change_at(21).commit_to(store)
    tamper(written, "ALTER TABLE elsewhere RENAME TO root")
    with pytest.raises(MetadataDamaged):
        change_at(21).commit_to(store)
    store.clear()
    change_at(1).commit_to(store)
    assert_holds(store, 1)
    store.close()


def test_locked_file_is_refused(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_store, "_BUSY_SECONDS", 0.0)
    other = sqlite3.connect(written / "places.db", isolation_level=None)
    other.execute("PRAGMA locking_mode = EXCLUSIVE")
    other.execute("BEGIN IMMEDIATE")
    store = sqlite_store(written)
    with pytest.raises(MetadataDamaged, match="locked"):
        store.load()
    store.clear()
    change_at(1).commit_to(store)
    assert_holds(store, 1)
    store.close()
    other.close()


@pytest.mark.parametrize(
    "leftover", ["nothing", "empty file", "file without tables", "tables without rows", "write-ahead log alone"]
)
def test_making_of_the_file_may_be_cut_anywhere(written: Path, leftover: str) -> None:
    store = ready_store(written)
    change_at(21).commit_to(store)
    old_log = (written / "places.db-wal").read_bytes()
    store.clear()
    if leftover == "empty file":
        (written / "places.db").write_bytes(b"")
    elif leftover == "file without tables":
        tamper(written, "PRAGMA journal_mode = WAL")
    elif leftover == "tables without rows":
        change_at(1).commit_to(store)
        store.close()
        tamper(written, "DELETE FROM root")
        tamper(written, "DELETE FROM blocks")
    elif leftover == "write-ahead log alone":
        (written / "places.db-wal").write_bytes(old_log)
    store = sqlite_store(written)
    assert store.load() is None
    change_at(1).commit_to(store)
    assert_holds(store, 1)
    store.close()


# SQLite: no room


def assert_full_then_old_state(store: SqliteMetadataStore, position: int) -> None:
    with pytest.raises(MetadataFull):
        store.commit(99, 99, b"new", [(lane, block, bytes(1000)) for lane in range(3) for block in range(2000)])
    assert_holds(store, position)


def test_full_disk_leaves_the_old_checkpoint(written: Path) -> None:
    store = ready_store(written)
    assert store._writer is not None
    store._writer.execute("PRAGMA max_page_count = 1")  # As small as the file is now.
    assert_full_then_old_state(store, 20)
    store._writer.execute("PRAGMA max_page_count = 1000000")
    change_at(21).commit_to(store)
    assert_holds(store, 21)
    store.close()


def test_refused_write_leaves_the_old_checkpoint(written: Path) -> None:
    store = ready_store(written)
    change_at(21).commit_to(store)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, before[1]))
    try:
        assert_full_then_old_state(store, 21)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    change_at(22).commit_to(store)
    assert_holds(store, 22)
    store.close()


def test_no_room_for_the_file_itself_is_full_until_there_is(tmp_path: Path) -> None:
    store = ready_store(tmp_path)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (512, before[1]))
    try:
        with pytest.raises(MetadataFull):
            change_at(1).commit_to(store)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    change_at(1).commit_to(store)
    assert_holds(store, 1)
    store.close()


def test_writer_of_somebody_else_postpones_the_checkpoint(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_store, "_BUSY_SECONDS", 0.0)
    store = ready_store(written)
    other = sqlite3.connect(written / "places.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    assert_full_then_old_state(store, 20)
    other.close()
    change_at(21).commit_to(store)
    assert_holds(store, 21)
    store.close()


def test_log_that_grew_is_folded_later_where_a_reader_of_somebody_else_is_in_the_way(
    written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoint itself stands."""
    monkeypatch.setattr(metadata_store, "_BUSY_SECONDS", 0.0)
    monkeypatch.setattr(metadata_store, "_SURPLUS_BYTES", 0)
    store = ready_store(written)
    other = sqlite3.connect(written / "places.db", isolation_level=None)
    other.execute("BEGIN")
    other.execute("SELECT count(*) FROM blocks").fetchall()
    change_at(21).commit_to(store)
    log = written / "places.db-wal"
    assert log.stat().st_size > 0
    other.close()
    change_at(22).commit_to(store)
    assert log.stat().st_size == 0
    assert_holds(store, 22)
    store.close()


class RefusesToFold:
    """A connection of which the write-ahead log can't be folded."""

    def __init__(self, connection: sqlite3.Connection, code: int) -> None:
        self._connection = connection
        self._code = code

    def execute(self, statement: str, *arguments: Any) -> sqlite3.Cursor:
        if "wal_checkpoint" in statement:
            error = sqlite3.OperationalError("as the test says")
            error.sqlite_errorcode = self._code
            raise error
        return self._connection.execute(statement, *arguments)

    def __enter__(self) -> sqlite3.Connection:
        return self._connection.__enter__()

    def __exit__(self, *what: Any) -> Any:
        return self._connection.__exit__(*what)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


@pytest.mark.parametrize(("code", "stands"), [(sqlite3.SQLITE_FULL, True), (sqlite3.SQLITE_IOERR_READ, False)])
def test_log_that_finds_no_room_to_be_folded_is_folded_later_and_any_other_failure_ends_the_store(
    written: Path, monkeypatch: pytest.MonkeyPatch, code: int, stands: bool
) -> None:
    monkeypatch.setattr(metadata_store, "_SURPLUS_BYTES", 0)
    store = ready_store(written)
    with monkeypatch.context() as patch:
        assert store._writer is not None
        patch.setattr(store, "_writer", RefusesToFold(store._writer, code))
        if stands:
            change_at(21).commit_to(store)
        else:
            with pytest.raises(MetadataDamaged):
                change_at(21).commit_to(store)
    if stands:
        assert_holds(store, 21)
    else:
        with pytest.raises(MetadataDamaged, match="cut short"):
            change_at(22).commit_to(store)
    store.close()


# SQLite: damage


def assert_damaged_or_exact(directory: Path, first: int, last: int, what: str) -> bool:
    """Load and read all, then commit on top of it, load and read all again: damage is said, or all is right.

    Returns whether damage was said. The store may hold any of the positions from first to last.
    """
    store = sqlite_store(directory)
    try:
        position = loaded(store).position
        assert first <= position <= last, what
        assert_holds(store, position)
        change_at(position + 1).commit_to(store)
        store.close()
        assert_holds(store, position + 1)
    except MetadataDamaged:
        return True
    except Exception as error:
        raise AssertionError(f"after {what}") from error
    finally:
        store.close()
    return False


def flipped(image: bytes, offset: int, bits: int) -> bytes:
    return image[:offset] + bytes([image[offset] ^ bits]) + image[offset + 1 :]


def restore(directory: Path, image: bytes, log: bytes = b"") -> None:
    for path in directory.iterdir():
        path.unlink()
    (directory / "places.db").write_bytes(image)
    if log:
        (directory / "places.db-wal").write_bytes(log)


def test_flipped_bits_of_the_file_are_never_served(written: Path) -> None:
    image = (written / "places.db").read_bytes()
    random = Random(17)
    schema = image.rindex(b"CREATE TABLE")
    flips = [(offset, 1 << random.randrange(8)) for offset in range(100)]
    flips += [(offset, 0x80) for offset in range(schema, schema + 60)]  # SQLite quotes it in errors: no valid UTF-8.
    flips += [(random.randrange(100, len(image)), random.randrange(1, 256)) for _ in range(200)]
    refused = 0
    for offset, bits in flips:
        restore(written, flipped(image, offset, bits))
        refused += assert_damaged_or_exact(written, 20, 20, f"bits {bits:08b} of byte {offset}")
    assert refused > 100


def test_flipped_bits_of_the_write_ahead_log_give_an_older_checkpoint_or_damage(written: Path) -> None:
    store = ready_store(written)
    for position in range(21, 25):
        change_at(position).commit_to(store)
    image, log = (written / "places.db").read_bytes(), (written / "places.db-wal").read_bytes()
    store.close()
    random = Random(18)
    for offset in [*range(32), *(random.randrange(32, len(log)) for _ in range(100))]:
        restore(written, image, flipped(log, offset, 1 << random.randrange(8)))
        assert_damaged_or_exact(written, 20, 24, f"a bit of byte {offset}")


def test_page_that_a_lost_write_left_old_is_never_served(written: Path) -> None:
    old = (written / "places.db").read_bytes()
    store = ready_store(written)
    change_at(21).commit_to(store)
    store.close()
    new = (written / "places.db").read_bytes()
    changed = [at for at in range(0, len(new), PAGE_BYTES) if old[at : at + PAGE_BYTES] != new[at : at + PAGE_BYTES]]
    assert len(changed) > 5
    for at in changed:
        stale = old[at : at + PAGE_BYTES] or bytes(PAGE_BYTES)
        restore(written, new[:at] + stale + new[at + PAGE_BYTES :])
        assert_damaged_or_exact(written, 21, 21, f"the old page at {at}")


def test_row_that_is_right_in_itself_but_old_is_never_served(written: Path) -> None:
    store = ready_store(written)
    lane, block = 7, 7
    store.commit(21, 3, b"", [(lane, block, b"old" * 100)])
    store.close()
    old = (written / "places.db").read_bytes()
    store = ready_store(written)
    store.commit(22, 3, b"", [(lane, block, b"new" * 100)])
    store.close()
    new = (written / "places.db").read_bytes()
    at = new.index(b"new" * 100) // PAGE_BYTES * PAGE_BYTES
    assert b"old" * 100 in old[at : at + PAGE_BYTES]
    restore(written, new[:at] + old[at : at + PAGE_BYTES] + new[at + PAGE_BYTES :])
    store = sqlite_store(written)
    with pytest.raises(MetadataDamaged):
        store.load()
        store.read_block(lane, block)
    store.close()


@pytest.mark.parametrize("kept", [0.1, 0.3, 0.7, 0.95])
def test_cut_file_is_refused(written: Path, kept: float) -> None:
    image = (written / "places.db").read_bytes()
    (written / "places.db").write_bytes(image[: int(len(image) * kept)])
    store = sqlite_store(written)
    with pytest.raises(MetadataDamaged):
        read_all(store, loaded(store))
    store.close()
