"""The golden stores: stores that each version of the format wrote once, which every later version must read.

`PYTHONPATH=tests/model python tests/support/golden_store.py` writes the store of the present version. Do this only for
a new version of the format, because the store of a released version never changes.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

from import_sets import Row, bring
from message_stores import OpenStore
from relocating import steps

from forebay.store.disk.disk import OsDisk
from forebay.store.disk.layout import INDEX_DIRECTORY
from forebay.store.format.contents import Contents
from forebay.store.format.message_properties import encode_properties
from forebay.store.format.state_record import TOPIC, CountedRun
from forebay.store.index.destination_lane import DestinationLane
from forebay.store.index.journaled_lane import JournaledLane
from forebay.store.ingest.ingest import ingest_sets
from forebay.store.journal.data_log import FORMAT_VERSION
from forebay.store.message import HeaderValue
from forebay.store.metadata.sqlite import SqliteMetadataStore
from forebay.testing import ManualClock

GOLDEN = Path(__file__).parent / "golden"
EXPECTED = "expected.json"
SEED = 1
PAGE_BYTES = 1024

HEADERS: dict[str, HeaderValue] = {
    "region": "eu → 𝄞",
    "kg": -1,
    "big": 2**80,
    "ratio": -0.0,
    "none": math.inf,
    "raw": b"\x00\xff",
    "yes": True,
    "nothing": None,
}

PROPERTIES = {"cursor/ß": b"\x00\xff" * 20, "empty": b""}
"""The host properties in the store at the end."""

Pending = dict[str, list[tuple[int, str, str, int]]]
"""Lane (of a queue, topic or subscription) -> (sequence, properties, body, timestamp in ms) of each pending message,
the bytes in hexadecimal."""


def golden(version: int) -> Path:
    return GOLDEN / f"version-{version}"


def open_golden(root: Path, clock: ManualClock) -> OpenStore:
    """Open the store in a directory, with its index in SQLite."""
    store_id = ManualClock(SEED).random_bytes(16)
    metadata = SqliteMetadataStore(str(root / INDEX_DIRECTORY), store_id, PAGE_BYTES, 64 * 1024)
    disk = OsDisk(str(root))
    disk.make_directory("")
    return OpenStore(disk, metadata, clock=clock, max_file_bytes=2048)


def pending_in(opened: OpenStore) -> Pending:
    names = {destination.number: destination.name for destination in opened.store.destination_table.values()}
    lanes: list[JournaledLane] = list(opened.store.index.lanes.values())
    for subscriber in opened.store.subscriptions.readers():
        names[subscriber.facts.number] = f"{names[subscriber.facts.topic]}/{subscriber.facts.name}"
        lanes += filter(None, subscriber.lanes)
    return {
        f"{names[lane.owner_number]}:{lane.priority}": [
            (sequence, properties.hex(), (body or b"").hex(), timestamp)
            for sequence, properties, body, timestamp in opened.pending(lane)
        ]
        for lane in lanes
    }


def write_golden(root: Path) -> Pending:
    """Write a store with every kind of record of this version; return the messages that stay pending."""
    clock = ManualClock(SEED)
    opened = open_golden(root, clock)
    store = opened.store
    orders, urgent, other = opened.lane("orders"), opened.lane("orders", 9), opened.lane("ß.other", 0)
    for n in range(40):
        clock.advance(0.25)
        opened.add(*[b"%d of %d" % (m, n) * 5 for m in range(1 + n % 4)], lane=(orders, urgent, other)[n % 3])
        if n % 5 == 4:
            opened.remove(n - 3, n - 1, orders)
            opened.remove(n - 4, lane=other)
        if n == 20:
            opened.remove(0, 30, urgent)
    for lane in (orders, urgent, other):
        opened.remove(0, lane.next_sequence * 3 // 4, lane)
    assert store.cleanup.run().deleted, "a drop record belongs to what is shown"
    _write_transactions(opened, urgent, orders)
    opened.add(b"to a queue that came late", lane=opened.lane("late"))
    with opened.lock:
        store.property_writer.change({"deleted": b"soon", "empty": b""})
        store.property_writer.change({"deleted": None, "cursor/ß": PROPERTIES["cursor/ß"]})
    topic_log = store.journal.data_log
    _publish(opened)
    with opened.lock:
        store.return_writer.count(orders.number, [CountedRun(orders.next_sequence - 1, orders.next_sequence - 1, 2)])
    bring(opened.disk, "day-1", [Row("orders", b"loaded"), Row("loaded", b"loaded too", 9)])
    ingest_sets(opened.disk, store, opened.lock, opened.account, message_bytes_max=1 << 20)
    deleted = opened.lane("deleted")
    opened.add(b"goes with its queue", lane=deleted)
    with opened.lock:
        store.destination_writer.delete(deleted.owner_number)
    relocation = store.cleanup.relocation
    for is_naming, source in ((True, None), (False, None), (True, topic_log)):
        with opened.lock:
            source = max(store.cleanup.remover.relocatable()) if source is None else source
        assert all(steps(relocation, opened.lock, source, is_naming=is_naming, freed_bytes=1 << 20))
    store.syncer.sync()
    store.attestation.write()
    with opened.lock:
        store.message_store.add(orders, clock.time_ms(), encode_properties(HEADERS, "foreign id"), b"all headers")
    store.checkpointer.checkpoint()
    pending = pending_in(opened)
    store.close()
    return pending


def _publish(opened: OpenStore) -> None:
    """Write a topic with two subscriptions, one that has ended, and a message sent before all of them."""
    store, writer = opened.store, opened.store.subscription_writer
    with opened.lock:
        number = opened.store.destination_writer.create("prices", TOPIC).number
        lane = opened.store.index.ensure_lane(number, 4)
        store.message_store.add(lane, 0, b"", b"to nobody")
        ended, audit = writer.subscribe(number, "ended", None), writer.subscribe(number, "audit", "kg > 1")
        for n in range(6):
            store.message_store.add(lane, opened.clock.time_ms(), b"", b"price %d" % n)
        writer.unsubscribe(ended)
        late = writer.subscribe(number, "late", None)
        both = Contents.of([(b"", b"for both"), (b"", b"for the late one")])
        store.message_store.append_slice(lane, opened.clock.time_ms(), both)
        audited = audit.lanes[4]
        assert audited is not None
        writer.acknowledge_runs(audited, [(1, 2), (4, 4), (8, 8)], is_durable=True)
        writer.seek(late, [(4, 8)])


def _write_transactions(opened: OpenStore, lane: DestinationLane, acked: DestinationLane) -> None:
    """Write a transaction with each outcome, and one without an outcome yet."""
    transactions = opened.store.transaction_writer
    with opened.lock:
        committed, prepared, rolled_back = (transactions.begin() for _ in range(3))
        for branch in (committed, prepared, rolled_back):
            contents = Contents.of((b"", b"%d of transaction %d" % (n, branch.number)) for n in range(3))
            transactions.append_slice(branch, lane, opened.clock.time_ms(), contents)
            transactions.append_slice(branch, acked, opened.clock.time_ms(), contents.part(0, 1))
        first = acked.next_sequence - 2
        committed.acknowledge(acked.number, first, first)
        prepared.acknowledge(acked.number, first + 1, first + 1)
        opened.store.property_writer.stage(committed, {"cursor/ß": b"of the transaction", "gone": None})
        opened.store.property_writer.stage(prepared, {"prepared": b"waits", "empty": None})
        transactions.commit(committed, {})
        transactions.prepare(prepared, b"golden xid")
        transactions.rollback(rolled_back)


def main() -> None:
    root = golden(FORMAT_VERSION)
    pending = write_golden(root)
    (root / EXPECTED).write_text(json.dumps(pending, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
