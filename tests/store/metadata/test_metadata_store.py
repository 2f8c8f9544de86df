"""The metadata store: what a checkpoint committed comes back verified, or not at all."""

from __future__ import annotations

import os
import signal
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from metadata_stores import (
    PAGE_BYTES,
    Reopen,
    assert_holds,
    change_at,
    loaded,
    read_all,
    ready_store,
    sqlite_store,
)
from simulated_metadata import SimulatedMetadataStore

from forebay.store.metadata import sqlite as metadata_store
from forebay.store.metadata.metadata_store import MetadataDamaged, MetadataStore, Snapshot


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
    return SimulatedMetadataStore(), reopen_memory


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


def test_deleted_blocks_are_gone(store: MetadataStore) -> None:
    store.commit(1, 1, b"", [(lane, block, b"x") for lane in range(4) for block in range(10)])
    whole = [(lane, block) for lane in (0, 2) for block in range(10)]
    store.commit(2, 1, b"", [], [*whole, *((1, block) for block in range(7)), (3, 5)])
    assert loaded(store).blocks == {1: [(7, 9)], 3: [(0, 4), (6, 9)]}
    with pytest.raises(MetadataDamaged):
        store.read_block(0, 0)


def test_deleting_what_is_absent_changes_nothing(store: MetadataStore) -> None:
    store.commit(1, 1, b"", [(1, 1, b"x")], [(1, 2), (9, 9)])
    assert loaded(store).blocks == {1: [(1, 1)]}


def test_put_wins_over_a_delete_of_its_block(store: MetadataStore) -> None:
    store.commit(1, 1, b"", [(1, 1, b"old"), (1, 2, b"old"), (2, 1, b"old")])
    store.commit(2, 1, b"", [(1, 1, b"new"), (2, 1, b"new")], [(1, 1)])
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
    store.commit(2, 1, b"", [], [(lane, block) for lane in range(5) for block in range(100)])
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


def history_of_five() -> SimulatedMetadataStore:
    store = SimulatedMetadataStore()
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
