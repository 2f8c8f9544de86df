"""index_transaction_adds: a checkpoint in several transactions is trusted whole or not at all."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from compiled import interpreted
from inside import inside
from metadata_stores import CACHE_BYTES, PAGE_BYTES, STORE_ID, assert_holds, change_at, history_until, loaded, read_all

import forebay
from forebay import Message
from forebay.store.metadata import checksum as checksum
from forebay.store.metadata.metadata_store import MetadataDamaged, MetadataFull
from forebay.store.metadata.sqlite import SqliteMetadataStore

Transact = Callable[..., None]
BLOCK_MESSAGES = 512


def store_of(directory: Path, transaction_blocks: int) -> SqliteMetadataStore:
    """Blocks are whatever bytes there are in these tests: each counts as one reference."""
    return SqliteMetadataStore(str(directory), STORE_ID, PAGE_BYTES, CACHE_BYTES, transaction_adds=transaction_blocks)


@pytest.fixture
def one_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checksum, "packed_messages", lambda packed: 1)


class Watch:
    """Stands before each transaction: notes its size, and does something before the one of that number."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sizes: list[int] = []
        self.before: dict[int, Callable[[], None]] = {}
        original: Transact = SqliteMetadataStore._transact

        def transact(store: SqliteMetadataStore, doomed: Any, puts: Any, root: Any, fingerprints: Any) -> None:
            self.before.get(len(self.sizes), lambda: None)()
            self.sizes.append(len(puts))
            original(store, doomed, puts, root, fingerprints)

        monkeypatch.setattr(SqliteMetadataStore, "_transact", transact)


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    return Watch(monkeypatch)


def in_child(work: Callable[[], None]) -> int:
    """The signal that ended it."""
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(1)
    return -os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def refuse() -> None:
    raise OSError(28, "No space left on device")


@interpreted("replaces what compiled code has linked")
@pytest.mark.parametrize("transaction_blocks", [1, 2, 4, 8, 9, 100])
def test_a_checkpoint_holds_the_same_in_however_many_transactions(
    transaction_blocks: int, tmp_path: Path, watch: Watch, one_each: None
) -> None:
    store = store_of(tmp_path, transaction_blocks)
    store.load()
    for position in range(1, 40):
        change_at(position).commit_to(store)
    assert_holds(store, 39)
    assert max(watch.sizes) == min(transaction_blocks, 9)
    store.close()


@pytest.mark.parametrize("transactions", range(1, 6))
def test_a_kill_between_transactions_is_noticed_at_load(
    transactions: int, tmp_path: Path, watch: Watch, one_each: None
) -> None:
    """Nine blocks in transactions of two are five: before the first the old checkpoint stands, after it none does."""
    store = store_of(tmp_path, 2)
    store.load()
    for position in range(1, 21):
        change_at(position).commit_to(store)
    store.close()

    def work() -> None:
        watch.sizes.clear()
        watch.before[transactions - 1] = die
        again = store_of(tmp_path, 2)
        again.load()
        change_at(21).commit_to(again)

    assert in_child(work) == signal.SIGKILL
    found = store_of(tmp_path, 2)
    if transactions == 1:
        assert_holds(found, 20)
    else:
        with pytest.raises(MetadataDamaged, match="holds .* not "):
            found.load()
        found.clear()
        assert found.load() is None
    found.close()


@pytest.mark.parametrize("transactions", range(1, 6))
def test_a_checkpoint_that_found_no_room_half_way_leaves_nothing_behind_once_the_next_is_complete(
    transactions: int, tmp_path: Path, watch: Watch, one_each: None
) -> None:
    """Its new blocks may be dead by then, and then nobody asks to delete them."""
    store = store_of(tmp_path, 2)
    store.load()
    change_at(1).commit_to(store)
    before = history_until(1)
    watch.sizes.clear()
    watch.before[transactions - 1] = refuse
    puts = [(9, block, b"in vain") for block in range(9)]
    with pytest.raises(MetadataFull):
        store.commit(2, 0, b"two", puts)
    watch.before.clear()
    assert store.read_block(0, min(block for lane, block in before if lane == 0))
    store.commit(3, 0, b"three", [(9, 0, b"alive"), (9, 20, b"alive")])
    expected = before | {(9, 0): b"alive", (9, 20): b"alive"}
    assert read_all(store, loaded(store)) == expected
    store.commit(4, 0, b"four", [(9, 1, b"later")])
    assert read_all(store, loaded(store)) == expected | {(9, 1): b"later"}
    store.close()


def test_blocks_with_few_references_share_a_transaction(tmp_path: Path, watch: Watch) -> None:
    """A block for each of many lanes is no reason to divide a checkpoint."""
    with forebay.open(tmp_path, sync="never", background=False, index_transaction_adds=512) as bay:
        watch.sizes.clear()
        for n in range(20):
            bay.queue(f"orders.{n}").send_many(Message(b"") for _ in range(30))
        bay.checkpoint()
        assert watch.sizes == [17, 3]


def test_no_transaction_of_a_store_has_more_references_than_the_setting(tmp_path: Path, watch: Watch) -> None:
    for adds, blocks in ((512, 1), (1500, 2), (4096, 8), (1_000_000, 20)):
        with forebay.open(tmp_path / str(adds), sync="never", background=False, index_transaction_adds=adds) as bay:
            watch.sizes.clear()
            bay.queue("orders").send_many(Message(b"") for _ in range(20 * BLOCK_MESSAGES))
            bay.checkpoint()
            assert max(watch.sizes) == blocks
            assert sum(watch.sizes) == 20


@pytest.mark.parametrize("transaction", [1, 3, 4])
def test_a_store_killed_in_a_checkpoint_rebuilds_its_index_and_loses_nothing(
    transaction: int, tmp_path: Path, watch: Watch
) -> None:
    def opened() -> forebay.Forebay:
        return forebay.open(tmp_path, sync="never", background=False, index_transaction_adds=BLOCK_MESSAGES)

    def work() -> None:
        bay = opened()
        orders = bay.queue("orders")
        orders.send_many(Message(b"%d" % n) for n in range(3 * BLOCK_MESSAGES))
        bay.checkpoint()
        consumer = orders.subscribe(prefetch=0)
        consumer.ack(consumer.take(BLOCK_MESSAGES)[:100])
        orders.send_many(Message(b"%d" % n) for n in range(3 * BLOCK_MESSAGES, 6 * BLOCK_MESSAGES))
        watch.sizes.clear()
        watch.before[transaction - 1] = die
        bay.checkpoint()

    assert in_child(work) == signal.SIGKILL
    with opened() as bay:
        assert bay.recovery.index_rebuilt == (transaction > 1)
        consumer = bay.queue("orders").subscribe(prefetch=0)
        found: list[int] = []
        while taken := consumer.take(1000):
            found += [int(delivery.body) for delivery in taken]
            consumer.ack(taken)
        assert found == list(range(100, 6 * BLOCK_MESSAGES))
        inside(bay).audit()


def test_a_checkpoint_is_one_transaction_unless_the_settings_say_less(tmp_path: Path, watch: Watch) -> None:
    """However much comes before it: else a kill would cost a replay of the whole journal, the more the deeper it is."""
    with forebay.open(tmp_path, sync="never", background=False) as bay:
        watch.sizes.clear()
        bay.queue("orders").send_many(Message(b"") for _ in range(bay.settings.max_checkpoint_adds - 1))
        bay.checkpoint()
        assert watch.sizes == [256]
