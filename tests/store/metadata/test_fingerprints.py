"""Fingerprints in the metadata store: they go with their blocks, and a damaged one is as one that was never made."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from metadata_stores import loaded, ready_store, sqlite_store

from forebay.store.metadata.memory_store import MemoryMetadataStore
from forebay.store.metadata.metadata_store import MetadataStore

NAMES = {"n", "region"}
ROWS = [(1, block, name, b"%d" % block) for block in range(4) for name in ("n", "region")]
BLOCKS = [(1, block, b"packed") for block in range(4)]


def filled(store: MetadataStore) -> MetadataStore:
    store.commit(1, 1, b"root", BLOCKS, (), ROWS)
    return store


@pytest.fixture(params=["sqlite", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> MetadataStore:
    return filled(ready_store(tmp_path) if request.param == "sqlite" else MemoryMetadataStore())


def test_fingerprints_are_found_by_lane_and_blocks(store: MetadataStore) -> None:
    assert sorted(store.fingerprints(1, 1, 2, NAMES)) == [(b, n, b"%d" % b) for b in (1, 2) for n in ("n", "region")]
    assert store.fingerprints(2, 0, 9, NAMES) == []
    assert store.fingerprints(1, 2, 3, {"n", "other"}) == [(2, "n", b"2"), (3, "n", b"3")]


def test_fingerprints_go_with_their_block(store: MetadataStore) -> None:
    store.commit(2, 1, b"root", [], [(1, 1)])
    assert {block for block, _, _ in store.fingerprints(1, 0, 9, NAMES)} == {0, 2, 3}
    store.commit(3, 1, b"root", [], [(1, block) for block in range(4)])
    assert store.fingerprints(1, 0, 9, NAMES) == []


def test_a_later_fingerprint_replaces_the_one_before(store: MetadataStore) -> None:
    store.commit(2, 1, b"root", [], [], [(1, 0, "n", b"new")])
    assert sorted(store.fingerprints(1, 0, 0, NAMES)) == [(0, "n", b"new"), (0, "region", b"0")]


def test_they_outlive_the_process_and_not_a_clear(tmp_path: Path) -> None:
    filled(ready_store(tmp_path)).close()
    store = sqlite_store(tmp_path)
    loaded(store)
    assert len(store.fingerprints(1, 0, 9, NAMES)) == len(ROWS)
    store.clear()
    store.commit(1, 1, b"root", BLOCKS)
    assert store.fingerprints(1, 0, 9, NAMES) == []


@pytest.mark.parametrize(
    "damage",
    ["fingerprint = x'00'", "crc = crc + 1", "block = 9", "lane = 1, name = 'm'", "fingerprint = 5", "crc = 'x'"],
)
def test_a_row_that_is_not_what_was_stored_is_absent(tmp_path: Path, damage: str) -> None:
    filled(ready_store(tmp_path)).close()
    with sqlite3.connect(tmp_path / "places.db") as connection:
        connection.execute(f"UPDATE fingerprints SET {damage} WHERE block = 2 AND name = 'n'")
    connection.close()
    store = sqlite_store(tmp_path)
    loaded(store)
    assert sorted(store.fingerprints(1, 0, 9, NAMES)) == sorted(row[1:] for row in ROWS if row[1:3] != (2, "n"))
    store.close()
