"""The metadata store: what a checkpoint committed comes back verified, or not at all."""

from __future__ import annotations

import os
import resource
import signal
import sqlite3
import stat
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from forebay.store import metadata_store
from forebay.store.metadata_store import (
    MemoryMetadataStore,
    MetadataDamaged,
    MetadataFull,
    MetadataStore,
    Snapshot,
    SqliteMetadataStore,
)

STORE_ID = bytes(range(16))
PAGE_BYTES = 1024
CACHE_BYTES = 64 * 1024

Place = tuple[int, int]
Blocks = dict[Place, bytes]


def sqlite_store(directory: Path, store_id: bytes = STORE_ID) -> SqliteMetadataStore:
    return SqliteMetadataStore(str(directory), store_id, PAGE_BYTES, CACHE_BYTES)


def ready_store(directory: Path) -> SqliteMetadataStore:
    store = sqlite_store(directory)
    store.load()
    return store


def read_all(store: MetadataStore, snapshot: Snapshot) -> Blocks:
    return {
        (lane, block): store.read_block(lane, block)
        for lane, runs in snapshot.blocks.items()
        for first, last in runs
        for block in range(first, last + 1)
    }


def loaded(store: MetadataStore) -> Snapshot:
    snapshot = store.load()
    assert snapshot is not None
    return snapshot


@dataclass
class Change:
    """What one commit of a history does."""

    position: int
    root: bytes
    puts: list[tuple[int, int, bytes]]
    deletes: list[Place]
    delete_lanes: list[int]

    def commit_to(self, store: MetadataStore) -> None:
        store.commit(self.position, self.position // 7, self.root, self.puts, self.deletes, self.delete_lanes)

    def apply_to(self, blocks: Blocks) -> None:
        for place in [place for place in blocks if place[0] in self.delete_lanes] + self.deletes:
            blocks.pop(place, None)
        blocks.update({(lane, block): packed for lane, block, packed in self.puts})


def change_at(position: int) -> Change:
    """The change of a fixed history: lanes that grow, rewrite their newest blocks, drain from the front, vanish."""
    random = Random(position)
    puts = {(lane, position // 2 + n): random.randbytes(random.randrange(700)) for lane in range(3) for n in range(3)}
    deletes = [(random.randrange(3), max(position // 2 - random.randrange(12), 0)) for _ in range(4)]
    return Change(
        position,
        random.randbytes(random.randrange(3000)),
        [(lane, block, packed) for (lane, block), packed in puts.items()],
        deletes,
        [random.randrange(3)] if random.random() < 0.1 else [],
    )


def history_until(position: int) -> Blocks:
    blocks: Blocks = {}
    for earlier in range(1, position + 1):
        change_at(earlier).apply_to(blocks)
    return blocks


def assert_holds(store: MetadataStore, position: int) -> None:
    """The store holds the fixed history up to the position, and nothing else."""
    snapshot = loaded(store)
    assert (snapshot.position, snapshot.epoch) == (position, position // 7)
    assert snapshot.root == change_at(position).root
    assert read_all(store, snapshot) == history_until(position)


Reopen = Callable[[MetadataStore], MetadataStore]


@pytest.fixture(params=["sqlite", "memory"])
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[MetadataStore, Reopen]:
    """A new store and how to close it and open it again."""

    def reopen_sqlite(store: MetadataStore) -> MetadataStore:
        store.close()
        return sqlite_store(tmp_path)

    def reopen_memory(store: MetadataStore) -> MetadataStore:
        store.close()
        return store

    if request.param == "sqlite":
        return sqlite_store(tmp_path), reopen_sqlite
    return MemoryMetadataStore(), reopen_memory


@pytest.fixture
def store(kind: tuple[MetadataStore, Reopen]) -> Iterator[MetadataStore]:
    new, _ = kind
    assert new.load() is None
    yield new
    new.close()


# What both promise


def test_committed_checkpoint_is_loaded_after_reopening(kind: tuple[MetadataStore, Reopen]) -> None:
    store, reopen = kind
    assert store.load() is None
    store.commit(2**40, 7, b"root", [(5, 9, b"nine"), (5, 10, b""), (0, 0, b"zero")])
    store = reopen(store)
    assert store.load() == Snapshot(2**40, 7, b"root", {0: [(0, 0)], 5: [(9, 10)]})
    assert (store.read_block(5, 9), store.read_block(5, 10), store.read_block(0, 0)) == (b"nine", b"", b"zero")
    store.close()


def test_consecutive_blocks_are_one_run(store: MetadataStore) -> None:
    places = [(1, block) for block in range(100) if block not in (40, 42)] + [(2, 100), (2, 101)]
    Random(1).shuffle(places)
    store.commit(1, 1, b"", [(lane, block, b"x") for lane, block in places])
    assert loaded(store).blocks == {1: [(0, 39), (41, 41), (43, 99)], 2: [(100, 101)]}


def test_put_replaces_the_block_and_the_root(store: MetadataStore) -> None:
    store.commit(1, 1, b"old root", [(1, 1, b"old"), (1, 2, b"kept")])
    store.commit(2, 1, b"new root", [(1, 1, b"a new and longer one")])
    snapshot = loaded(store)
    assert snapshot == Snapshot(2, 1, b"new root", {1: [(1, 2)]})
    assert read_all(store, snapshot) == {(1, 1): b"a new and longer one", (1, 2): b"kept"}


def test_deleted_blocks_and_lanes_are_gone(store: MetadataStore) -> None:
    store.commit(1, 1, b"", [(lane, block, b"x") for lane in range(4) for block in range(10)])
    store.commit(2, 1, b"", [], [(1, block) for block in range(7)] + [(3, 5)], [0, 2])
    assert loaded(store).blocks == {1: [(7, 9)], 3: [(0, 4), (6, 9)]}
    with pytest.raises(MetadataDamaged):
        store.read_block(0, 0)


def test_deleting_what_is_absent_changes_nothing(store: MetadataStore) -> None:
    store.commit(1, 1, b"", [(1, 1, b"x")], [(1, 2), (9, 9)], [8])
    assert loaded(store).blocks == {1: [(1, 1)]}


def test_put_wins_over_a_delete_of_its_block_or_lane(store: MetadataStore) -> None:
    store.commit(1, 1, b"", [(1, 1, b"old"), (1, 2, b"old"), (2, 1, b"old"), (2, 2, b"old")])
    store.commit(2, 1, b"", [(1, 1, b"new"), (2, 1, b"new")], [(1, 1)], [2])
    assert read_all(store, loaded(store)) == {(1, 1): b"new", (1, 2): b"old", (2, 1): b"new"}


def test_absent_block_is_damage(store: MetadataStore) -> None:
    with pytest.raises(MetadataDamaged):
        store.read_block(1, 1)
    store.commit(1, 1, b"", [(1, 1, b"x")])
    with pytest.raises(MetadataDamaged):
        store.read_block(1, 2)


def test_cleared_store_is_empty_and_takes_a_checkpoint(store: MetadataStore) -> None:
    store.commit(5, 1, b"root", [(1, 1, b"x")])
    store.clear()
    assert store.load() is None
    with pytest.raises(MetadataDamaged):
        store.read_block(1, 1)
    store.commit(6, 1, b"", [(2, 2, b"y")])
    assert read_all(store, loaded(store)) == {(2, 2): b"y"}


def test_any_history_of_commits_agrees_with_a_dict(kind: tuple[MetadataStore, Reopen]) -> None:
    store, reopen = kind
    assert store.load() is None
    for position in range(1, 120):
        change_at(position).commit_to(store)
        if position % 10 == 0:
            store = reopen(store)
        assert_holds(store, position)
    store.close()


# SQLite: its file


def test_file_is_made_by_the_first_commit(tmp_path: Path) -> None:
    store = ready_store(tmp_path)
    assert os.listdir(tmp_path) == []
    store.commit(1, 1, b"", [])
    assert "places.db" in os.listdir(tmp_path)
    store.close()
    assert os.listdir(tmp_path) == ["places.db"]


def test_files_are_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        store = ready_store(tmp_path)
        store.commit(1, 1, b"", [(1, 1, b"x")])
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
        store.close()
    finally:
        os.umask(before)
    assert modes == {"places.db": 0o600, "places.db-wal": 0o600, "places.db-shm": 0o600}


def test_page_size_is_the_one_asked_for(tmp_path: Path) -> None:
    store = ready_store(tmp_path)
    store.commit(1, 1, b"", [])
    store.close()
    assert int.from_bytes((tmp_path / "places.db").read_bytes()[16:18], "big") == PAGE_BYTES


def test_drained_disk_is_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    surplus_bytes = 100_000
    monkeypatch.setattr(metadata_store, "_SURPLUS_BYTES", surplus_bytes)
    store = ready_store(tmp_path)
    store.commit(1, 1, b"", [(lane, block, bytes(4000)) for lane in range(5) for block in range(100)])
    assert (tmp_path / "places.db").stat().st_size > 2_000_000
    store.commit(2, 1, b"", [], [(0, block) for block in range(100)], [1, 2, 3, 4])
    assert (tmp_path / "places.db").stat().st_size < 20_000
    assert (tmp_path / "places.db-wal").stat().st_size <= surplus_bytes
    store.close()


def test_write_ahead_log_stays_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    surplus_bytes = 100_000
    monkeypatch.setattr(metadata_store, "_SURPLUS_BYTES", surplus_bytes)
    store = ready_store(tmp_path)
    for position in range(1, 60):
        change_at(position).commit_to(store)
        assert (tmp_path / "places.db-wal").stat().st_size <= surplus_bytes
    store.close()


def test_read_goes_on_beside_commits_of_another_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_store, "_SURPLUS_BYTES", 50_000)
    store = ready_store(tmp_path)
    versions = [bytes([version]) * 3000 for version in range(40)]
    store.commit(0, 1, b"", [(1, block, versions[0]) for block in range(20)])
    problems: list[str] = []
    reads = 0
    done = threading.Event()

    def read() -> None:
        nonlocal reads
        newest = [0] * 20
        while not done.is_set() or not reads:
            for block in range(20):
                packed = store.read_block(1, block)
                if packed != versions[packed[0]] or packed[0] < newest[block]:
                    problems.append(f"block {block}: {packed[0]} after {newest[block]}")
                newest[block] = packed[0]
                reads += 1

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    try:
        for position in range(1, 40):
            store.commit(position, 1, b"", [(1, block, versions[position]) for block in range(20)])
    finally:
        done.set()
        for reader in readers:
            reader.join()
    assert not problems
    assert reads
    store.close()


def test_commits_of_two_threads_are_one_after_the_other(tmp_path: Path) -> None:
    store = ready_store(tmp_path)
    problems: list[BaseException] = []

    def commit(lane: int) -> None:
        try:
            for block in range(50):
                store.commit(block, 1, b"", [(lane, block, b"x" * 500)])
        except BaseException as error:
            problems.append(error)

    committers = [threading.Thread(target=commit, args=(lane,)) for lane in range(2)]
    for committer in committers:
        committer.start()
    for committer in committers:
        committer.join()
    assert not problems
    assert loaded(store).blocks == {0: [(0, 49)], 1: [(0, 49)]}
    store.close()


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


@pytest.mark.parametrize("leftover", ["nothing", "empty file", "file without tables", "write-ahead log alone"])
def test_making_of_the_file_may_be_cut_anywhere(written: Path, leftover: str) -> None:
    store = ready_store(written)
    change_at(21).commit_to(store)
    old_log = (written / "places.db-wal").read_bytes()
    store.clear()
    if leftover == "empty file":
        (written / "places.db").write_bytes(b"")
    elif leftover == "file without tables":
        tamper(written, "PRAGMA journal_mode = WAL")
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


# SQLite: kill -9


def commit_until_killed(directory: Path, confirmations: int) -> None:
    """In the child: continue the fixed history and confirm each position once its commit returned."""
    metadata_store._SURPLUS_BYTES = 30_000  # So that kills also meet the folding of the write-ahead log.
    store = sqlite_store(directory)
    snapshot = store.load()
    position = 0 if snapshot is None else snapshot.position
    while True:
        position += 1
        change_at(position).commit_to(store)
        os.write(confirmations, position.to_bytes(8, "little"))


def test_kill_leaves_a_checkpoint_not_older_than_the_last_confirmed(tmp_path: Path) -> None:
    random = Random(19)
    confirmed = 0
    for round_ in range(30):
        if round_ % 6 == 0:
            for path in tmp_path.iterdir():
                path.unlink()
            confirmed = 0
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                commit_until_killed(tmp_path, writing)
            finally:
                os._exit(1)
        os.close(writing)
        for _ in range(random.randrange(4)):
            confirmed = int.from_bytes(os.read(reading, 8), "little")
        for _ in range(random.randrange(100_000)):
            pass  # The kill falls anywhere in a commit, or in the making of the file.
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL
        while position := os.read(reading, 8):
            confirmed = int.from_bytes(position, "little")
        os.close(reading)
        store = sqlite_store(tmp_path)
        snapshot = store.load()
        found = 0 if snapshot is None else snapshot.position
        assert confirmed <= found <= confirmed + 1, f"round {round_}"
        if snapshot is not None:
            assert_holds(store, found)
        confirmed = found
        store.close()


# Memory: simulated crashes


def history_of_five() -> MemoryMetadataStore:
    store = MemoryMetadataStore()
    for position in range(1, 6):
        change_at(position).commit_to(store)
        if position == 3:
            store.synced()
    return store


def test_simulated_crash_finds_any_checkpoint_since_the_last_synced_one_or_nothing() -> None:
    store = history_of_five()
    found = set()
    for seed in range(60):
        crashed = store.crash(Random(seed))
        snapshot = crashed.load()
        found.add(snapshot and snapshot.position)
        if snapshot is not None:
            assert_holds(crashed, snapshot.position)
    assert found == {None, 3, 4, 5}


def test_simulated_crash_leaves_the_store_it_was_taken_from_alone() -> None:
    store = history_of_five()
    crashed = store.crash(Random(1))
    crashed.clear()
    crashed.commit(100, 1, b"", [(1, 1, b"other")])
    assert_holds(store, 5)


def test_simulated_damage_is_refused_at_load_or_at_a_read_until_cleared() -> None:
    at_load = at_read = 0
    for seed in range(60):
        crashed = history_of_five().crash(Random(seed), damaged=True)
        try:
            snapshot = loaded(crashed)
        except MetadataDamaged:
            at_load += 1
            with pytest.raises(MetadataDamaged):
                crashed.commit(9, 9, b"", [])
        else:
            at_read += 1
            with pytest.raises(MetadataDamaged):
                read_all(crashed, snapshot)
        crashed.clear()
        assert crashed.load() is None
        change_at(1).commit_to(crashed)
        assert_holds(crashed, 1)
    assert at_load and at_read


def test_simulated_power_cut_may_bring_back_what_was_cleared() -> None:
    store = history_of_five()
    store.clear()
    positions = {snapshot.position for seed in range(60) if (snapshot := store.crash(Random(seed)).load())}
    assert positions == {3, 4, 5}
    store.synced()
    assert all(store.crash(Random(seed)).load() is None for seed in range(60))
