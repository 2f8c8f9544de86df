"""The index on disk where the process has no descriptor left: nothing is taken for damage, nothing fails for good."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from descriptors import descriptors_left

import forebay
from forebay import Forebay, Message, TooManyFiles
from forebay.store.metadata.metadata_store import MetadataFull
from forebay.store.metadata.sqlite import SqliteMetadataStore

STORE_ID = b"descriptors of 1"
ROW = (4, 7, b"packed")


def opened(path: Path) -> SqliteMetadataStore:
    return SqliteMetadataStore(str(path), STORE_ID, 4096, 1 << 20)


def test_a_first_read_needs_no_descriptor(tmp_path: Path) -> None:
    metadata = opened(tmp_path)
    metadata.load()
    metadata.commit(1, 1, b"root", [ROW])
    with descriptors_left(0):
        assert metadata.read_block(4, 7) == b"packed"
        metadata.commit(2, 1, b"root", [(4, 8, b"more")])
        assert metadata.read_block(4, 8) == b"more"
    metadata.close()


@pytest.mark.parametrize("left", range(7))
def test_a_first_commit_without_descriptors_is_postponed_and_can_be_made_again(tmp_path: Path, left: int) -> None:
    metadata = opened(tmp_path)
    metadata.load()
    with descriptors_left(left):
        try:
            metadata.commit(1, 1, b"root", [ROW])
        except MetadataFull as full:
            assert full.lacks_descriptors
    metadata.commit(2, 1, b"root", [ROW])
    assert metadata.read_block(4, 7) == b"packed"
    metadata.close()
    loaded = opened(tmp_path).load()
    assert loaded is not None and loaded.position == 2


@pytest.mark.parametrize("left", range(7))
def test_a_load_without_descriptors_is_no_damage(tmp_path: Path, left: int) -> None:
    metadata = opened(tmp_path)
    metadata.load()
    metadata.commit(1, 1, b"root", [ROW])
    metadata.close()
    with descriptors_left(left):
        again = opened(tmp_path)
        try:
            assert again.load() is not None
        except OSError as error:
            assert error.strerror == os.strerror(24)
    snapshot = again.load()
    assert snapshot is not None and snapshot.position == 1 and again.read_block(4, 7) == b"packed"
    again.close()


def opening(path: Path) -> Callable[[], Forebay]:
    return lambda: forebay.open(path, memory_limit="4MiB", background=False)


def test_an_open_without_descriptors_says_so_and_leaves_the_index_as_it_was(tmp_path: Path) -> None:
    opens = opening(tmp_path)
    with opens() as bay:
        bay.queue("orders").send_many(Message(b"x") for _ in range(100))
    gc.collect()  # files of other tests are not to be closed in between
    refused, before = 0, len(os.listdir("/proc/self/fd"))
    for left in range(20):
        with descriptors_left(left):
            try:
                opens().close()
            except TooManyFiles:
                refused += 1
            else:
                break
        assert len(os.listdir("/proc/self/fd")) == before, left
    assert 3 < refused < 19
    with opens() as bay:
        assert not bay.recovery.index_rebuilt and bay.queue("orders").depth == 100
