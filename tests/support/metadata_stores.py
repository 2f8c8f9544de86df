"""Helpers of the tests of the metadata store: stores of small pages, and a fixed history of checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

from forebay.store.metadata.metadata_store import MetadataStore, Snapshot
from forebay.store.metadata.sqlite import SqliteMetadataStore

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
    """The arguments of one commit of a history."""

    position: int
    root: bytes
    puts: list[tuple[int, int, bytes]]
    deletes: list[Place]

    def commit_to(self, store: MetadataStore) -> None:
        store.commit(self.position, self.position // 7, self.root, self.puts, self.deletes)

    def apply_to(self, blocks: Blocks) -> None:
        for place in self.deletes:
            blocks.pop(place, None)
        blocks.update({(lane, block): packed for lane, block, packed in self.puts})


def change_at(position: int) -> Change:
    """Return a change of the fixed history: lanes grow, rewrite their newest blocks, drain from the front, vanish."""
    random = Random(position)
    puts = {(lane, position // 2 + n): random.randbytes(random.randrange(700)) for lane in range(3) for n in range(3)}
    deletes = [(random.randrange(3), max(position // 2 - random.randrange(12), 0)) for _ in range(4)]
    root = random.randbytes(random.randrange(3000))
    if random.random() < 0.1:
        vanishing = random.randrange(3)
        deletes += [(vanishing, block) for block in range(position // 2 + 3)]
    return Change(position, root, [(lane, block, packed) for (lane, block), packed in puts.items()], deletes)


def history_until(position: int) -> Blocks:
    blocks: Blocks = {}
    for earlier in range(1, position + 1):
        change_at(earlier).apply_to(blocks)
    return blocks


def assert_holds(store: MetadataStore, position: int) -> None:
    """Assert that the store has the fixed history up to the position, and nothing else."""
    snapshot = loaded(store)
    assert (snapshot.position, snapshot.epoch) == (position, position // 7)
    assert snapshot.root == change_at(position).root
    assert read_all(store, snapshot) == history_until(position)


Reopen = Callable[[MetadataStore], MetadataStore]
