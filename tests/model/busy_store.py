"""A store with every kind of record that queues, topics and transactions leave, to be damaged and forged."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from inside import open_forebay
from interplay_model import QUEUES, TOPICS
from simulated_bay import SimulatedBay
from simulated_disk import SimulatedDisk
from simulated_metadata import SimulatedMetadataStore

from forebay import Forebay, Message, Settings
from forebay.store.disk.layout import JOURNAL
from forebay.store.journal.data_log import DATA_LOG_HEADER_BYTES, RecordWalk, decode_data_log_header
from forebay.testing import ManualClock

SELECTORS = {"third": "kind = 0"}


def busy_store(*, reopens: bool) -> SimulatedBay:
    """Every kind of record that queues, topics and transactions leave. reopens: over many data logs."""
    store = SimulatedBay(max_file_length="64KiB", sync="always")
    for name in TOPICS:
        store.bay.topic(name).subscribe(durable="all").close()
    store.bay.topic("news").subscribe(durable="third", selector=SELECTORS["third"]).close()
    for turn in range(3):
        _send_and_prepare(store.bay, turn)
        if reopens:
            store.reopen()
        _settle(store.bay, turn)
        if reopens:
            store.reopen()
    store.bay.close()
    return store


def _send_and_prepare(bay: Forebay, turn: int) -> None:
    for name in QUEUES:
        bay.queue(name).send_many(
            Message(b"%d %d" % (turn, n), priority=priority) for n in range(6) for priority in (4, 9)
        )
    for name in TOPICS:
        bay.topic(name).send_many(Message(b"%d %d" % (turn, n), {"kind": n % 3}) for n in range(6))
        bay.topic(name).send(b"alone")
    consumer = bay.queue("orders").subscribe()
    with bay.transaction() as transaction:
        bay.queue("audit").send_many((Message(b"in %d" % n) for n in range(5)), transaction=transaction)
        bay.queue("prices").send(b"in", transaction=transaction)
        consumer.ack(consumer.take(4), transaction=transaction)
    prepared = bay.transaction()
    bay.queue("audit").send(b"prepared", transaction=prepared)
    consumer.ack(consumer.take(2), transaction=prepared)
    prepared.prepare(b"xid %d" % turn)


def _settle(bay: Forebay, turn: int) -> None:
    if turn:
        (prepared,) = [found for found in bay.prepared() if found.xid == b"xid %d" % (turn - 1)]
        (prepared.commit if turn == 1 else prepared.rollback)()
    with bay.topic("prices").subscribe(durable="all") as reader:
        reader.ack(reader.take(3))
    bay.step()
    bay.topic("news").subscribe(durable=f"turn {turn}").close()
    if turn:
        bay.topic("news").unsubscribe(f"turn {turn - 1}")
    transaction = bay.transaction()
    bay.queue("audit").send(b"rolled back", transaction=transaction)
    bay.queue("audit").send(bytes(20_000), transaction=transaction)
    transaction.rollback()
    with bay.queue("audit").subscribe() as consumer:
        consumer.ack(consumer.take(3))
    bay.queue("prices").purge()


def opened(disk: SimulatedDisk, metadata: SimulatedMetadataStore, **fields: Any) -> Forebay:
    settings = Settings(background=False, memory_limit="8MiB", max_file_length="64KiB", **fields)
    return open_forebay(disk, metadata, settings, ManualClock())


def contents(bay: Forebay) -> dict[Any, Any]:
    """All that can be taken, by queue and by subscription, and what waits for its outcome."""
    bay.step()
    found: dict[Any, Any] = {"prepared": sorted(transaction.xid or b"" for transaction in bay.prepared())}
    for name in bay.destinations():
        with bay.queue(name).subscribe() as consumer:
            found[name] = bay.queue(name).depth, [(taken.priority, taken.body) for taken in consumer.take(1000)]
    for topic in bay.topics():
        for name in bay.topic(topic).subscriptions():
            with bay.topic(topic).subscribe(durable=name, selector=SELECTORS.get(name)) as consumer:
                found[topic, name] = [taken.body for taken in consumer.take(1000)]
    return found


def records(disk: SimulatedDisk) -> Iterator[tuple[str, int, int]]:
    """(name of the data log, offset, kind) of each record, and (name, 0, 0) for the data log."""
    for name in [f"{JOURNAL}/{name}" for name in disk.list(JOURNAL) if name.endswith(".log")]:
        file = disk.open_for_reading(name)
        header = decode_data_log_header(file.read(0, DATA_LOG_HEADER_BYTES))
        yield name, 0, 0
        yield from (
            (name, offset, record.kind) for offset, record, _ in RecordWalk(file, header, DATA_LOG_HEADER_BYTES)
        )
