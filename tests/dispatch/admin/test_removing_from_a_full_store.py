"""A full store: whatever takes something away goes on, because that is how its host makes room."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from forebay import Consumer, Message, PropertiesFull, StoreFull
from forebay.testing import MemoryDisk, MemoryForebay

KIB = 1024
FILE_BYTES = 64 * KIB


class FullStore:
    """A store with a little of everything that can be taken away, then filled until it refuses sends."""

    def __init__(self, bay: MemoryForebay) -> None:
        self.bay = bay
        bay.properties.update({"cursor": b"1042", "binding": b"orders", "session": b"7"})
        self.prices, self.news = bay.topic("prices"), bay.topic("news")
        self.prices.send(b"1.20", retain=True)
        self.news.subscribe(durable="ledger").close()
        self.news.subscribe(durable="audit").close()
        self.news.send(b"headline", retain=True)
        self.orders = bay.queue("orders")
        self.orders.send_many(Message(b"%d" % n) for n in range(10))
        self.consumer: Consumer = self.orders.subscribe(prefetch=10)
        self.held = self.consumer.take(10)

    def fill(self, send: Callable[[], object]) -> None:
        """Call it until it finds no room."""
        with pytest.raises(StoreFull):
            while True:
                send()


def disk_full() -> FullStore:
    disk = MemoryDisk(16 * FILE_BYTES)
    store = FullStore(MemoryForebay(disk=disk, max_file_length=FILE_BYTES, memory_limit="4MiB"))
    filler = store.bay.queue("filler")
    for size in (KIB, 0):
        store.fill(lambda size=size: filler.send(bytes(size)))  # type: ignore[misc]
    return store


def limit_reached() -> FullStore:
    store = FullStore(MemoryForebay(store_limit="1MiB", max_file_length=FILE_BYTES, memory_limit="4MiB"))
    filler = store.bay.queue("filler")
    for size in (KIB, 0):
        store.fill(lambda size=size: filler.send(bytes(size)))  # type: ignore[misc]
    return store


def index_full() -> FullStore:
    store = FullStore(MemoryForebay(persistent_index=False, memory_limit="4MiB"))
    filler = store.bay.queue("filler")
    n = 0

    def send() -> None:
        nonlocal n
        n += 1
        filler.send_many([Message(b"1", delay=10.0 + n % 7)] * 500)
        store.bay.step()

    store.fill(send)
    return store


def memory_full() -> FullStore:
    store = FullStore(MemoryForebay(memory_limit="4MiB"))
    store.fill(store.bay.transaction)
    return store


FULL = (disk_full, limit_reached, index_full, memory_full)


@pytest.fixture(params=FULL, ids=lambda fill: fill.__name__)
def store(request: pytest.FixtureRequest) -> Iterator[FullStore]:
    store: FullStore = request.param()
    yield store
    store.bay.close()


def test_properties_are_deleted(store: FullStore) -> None:
    properties = store.bay.properties
    del properties["cursor"]
    assert properties.pop("binding") == b"orders"
    assert dict(store.bay.crash().properties) == {"session": b"7"}
    properties.clear()
    assert dict(store.bay.crash().properties) == {}


def test_a_retained_message_that_nobody_is_told_of_is_deleted(store: FullStore) -> None:
    store.prices.send(b"", retain=True)
    again = store.bay.crash()
    assert again.topic("prices").subscribe().take(10) == []


def test_a_retained_message_is_deleted_where_subscriptions_are_told_of_it(store: FullStore) -> None:
    store.news.send(b"", retain=True)
    again = store.bay.crash()
    for name in ("ledger", "audit"):
        assert [each.body for each in again.topic("news").subscribe(durable=name).take(10)] == [b"headline", b""]
    assert again.topic("news").subscribe().take(10) == []


def test_durable_subscriptions_and_topics_are_deleted(store: FullStore) -> None:
    store.news.unsubscribe("audit")
    assert store.bay.crash().topic("news").subscriptions() == ["ledger"]
    store.news.delete()
    store.prices.delete()
    assert list(store.bay.crash().topics()) == []


def test_messages_are_acknowledged_and_queues_purged_and_deleted(store: FullStore) -> None:
    store.held[0].ack()
    store.consumer.ack(store.held[1:5])
    assert store.bay.crash().queue("orders").depth == 5
    store.consumer.ack_up_to(store.held[8])
    store.orders.purge()
    assert store.bay.crash().queue("orders").depth == 1
    store.orders.delete()
    assert "orders" not in store.bay.crash().destinations()


def test_a_full_table_of_properties_is_emptied_alone_and_by_transactions() -> None:
    bay = MemoryForebay(max_file_length=FILE_BYTES, memory_limit="4MiB")
    prices = bay.topic("prices")
    prices.subscribe(durable="ledger").close()
    prices.send(b"1.20", retain=True)
    names = iter(range(1_000))
    for size in (KIB, 0):
        with pytest.raises(PropertiesFull):
            while True:
                bay.properties[f"{next(names)}"] = bytes(size)
    prices.send(b"", retain=True)
    with prices.subscribe() as consumer:
        assert consumer.take(10) == []
    bay.properties["more"] = b""
    with bay.transaction() as transaction:
        for name in list(transaction.properties)[:5]:
            del transaction.properties[name]
    bay.properties["large"] = bytes(4 * KIB)
    bay.properties.clear()
    assert dict(bay.crash().properties) == {}


def test_what_transactions_delete_is_bounded_too() -> None:
    bay = MemoryForebay(max_file_length=FILE_BYTES, memory_limit="4MiB")
    bay.properties["name"] = b""
    with pytest.raises(PropertiesFull):
        while True:
            del bay.transaction().properties["name"]
    del bay.properties["name"]
