"""Dump: every record is a row, every message one of its own, and no body is among them."""

from __future__ import annotations

import json
from typing import Any

from closed_stores import place_of, records, small_bay, two_data_logs, verdict_of
from journals import rows_of
from relocating import steps

from forebay import Message
from forebay.store.disk.layout import STATE_DIRECTORY, data_log_name
from forebay.store.format.record import ACK, MESSAGE


def test_dump_has_a_row_a_record_and_a_row_a_message_of_a_batch() -> None:
    disk = two_data_logs()
    kinds = [row["kind"] for row in rows_of(disk)]
    assert kinds[:3] == ["state", "destination", "message"]
    assert (kinds.count("message"), kinds.count("ack"), kinds.count("directory")) == (11, 1, 2)
    for data_log in (1, 2):
        places = {(row["offset"], row["length"]) for row in rows_of(disk) if row["data_log"] == data_log}
        assert places == {(offset, record.length) for offset, record in records(disk, data_log)}


def test_message_rows_tell_all_but_the_body_and_headers_on_request() -> None:
    disk = two_data_logs()
    row = rows_of(disk, kind="message")[4]
    assert {name: row[name] for name in ("destination", "priority", "sequence", "timestamp")} == {
        "destination": "orders",
        "priority": 4,
        "sequence": 4,
        "timestamp": 1_700_000_000_000,
    }
    assert "headers" not in row
    assert [row["headers"] for row in rows_of(disk, kind="message", with_headers=True)] == [{"n": n} for n in range(11)]
    assert "body" not in json.dumps(rows_of(disk, with_headers=True))


def test_rows_tell_who_subscribed_to_what_and_what_they_acknowledged() -> None:
    store = small_bay()
    topic = store.bay.topic("prices")
    consumer = topic.subscribe(durable="audit", selector="n > 0")
    topic.subscribe(durable="short").close()
    topic.send_many([Message(bytes(40_000), {"n": n}) for n in (1, 2)])
    consumer.ack(consumer.take(2))
    topic.unsubscribe("short")
    audit = {"destination": "prices", "subscription": "audit"}
    for field, kind in ((audit | {"selector": "n>0"}, "subscribe"), (audit | {"ranges": [[0, 1]]}, "ack")):
        row = rows_of(store.disk, kind=kind)[0]
        assert {name: row[name] for name in field} == field
    assert [row["subscription"] for row in rows_of(store.disk, kind="unsubscribe")] == ["short"]


def test_ids_are_those_that_send_returned() -> None:
    store = small_bay()
    sent = store.queue("a").send_many(
        [Message(b""), Message(b"", message_id="own"), Message(b"", {"x": 1}, priority=9)]
    )
    sent.append(store.queue("b").send(b""))
    assert [row["message_id"] for row in rows_of(store.disk, kind="message")] == sent


def test_headers_behind_a_body_of_megabytes_are_read_too() -> None:
    store = small_bay(memory_limit="64MiB")
    store.queue().send(bytes(2 << 20), headers={"n": 1})
    store.queue().send_many([Message(b"", {"n": 2}), Message(bytes(2 << 20), {"n": 3})])
    assert [row["headers"] for row in rows_of(store.disk, kind="message", with_headers=True)] == [
        {"n": 1},
        {"n": 2},
        {"n": 3},
    ]


def test_acks_are_ranges() -> None:
    [row] = rows_of(two_data_logs(), kind="ack")
    assert (row["destination"], row["priority"], row["ranges"]) == ("orders", 4, [[0, 3]])


def test_every_header_value_becomes_json() -> None:
    store = small_bay()
    headers: dict[str, Any] = {
        "a": b"\xff",
        "b": float("inf"),
        "c": 1 << 100,
        "d": None,
        "e": True,
        "f": 0.5,
        "g": "\u00fc",
    }
    store.queue().send(b"", headers=headers)
    [row] = rows_of(store.disk, kind="message", with_headers=True)
    plain = headers | {"a": {"base64": "/w=="}, "b": {"float": "inf"}}
    assert json.loads(json.dumps(row["headers"], allow_nan=False)) == plain


def test_damage_is_a_row_and_costs_only_what_it_hit() -> None:
    disk = two_data_logs()
    name, offset = data_log_name(1), place_of(disk, 1, MESSAGE, 1)
    _, record = next(found for found in records(disk, 1) if found[0] == offset)
    disk.flip_bit(name, offset + record.length - 1, 0)  # a body
    disk.flip_bit(name, place_of(disk, 1, ACK), 0)  # a head
    damaged = rows_of(disk, kind="damaged")
    assert [row.get("sequence") for row in damaged] == [5, None]
    assert len(rows_of(disk, kind="message")) == 10


def test_copies_and_survivors_are_told_as_what_they_are() -> None:
    store = small_bay()
    queue = store.queue()
    ids = queue.send_many([Message(b"%d" % n) for n in range(3)])
    work = store.relocation
    for is_naming in (True, False):
        with store.lock:
            store.journal.roll()
        store.bay.checkpoint()
        assert list(steps(work, store.lock, 1, is_naming=is_naming, freed_bytes=1 << 20)) == [True]
    messages = rows_of(store.disk, kind="message")
    assert [(row["message_id"], row.get("relocated", False)) for row in messages] == [
        *((name, False) for name in ids),
        *((name, True) for name in ids),
    ]
    (row,) = rows_of(store.disk, kind="survivors")
    assert row["survivors_of"] == 1
    assert row["survivors"] == [{"destination": "orders", "priority": 4, "range": [0, 2]}]
    assert verdict_of(store.disk).findings == ()
    json.dumps(row)


def test_headers_of_megabytes_are_read_too() -> None:
    store = small_bay(memory_limit="64MiB")
    text = "x" * (3 << 20)
    store.queue().send(b"", headers={"text": text})
    assert [row["headers"] for row in rows_of(store.disk, kind="message", with_headers=True)] == [{"text": text}]


def test_what_is_torn_is_damage_only_where_a_data_log_behind_it_has_begun() -> None:
    """While it goes on in the next one, a process has made that, and written neither its header nor the last seal."""
    disk = two_data_logs()
    disk.remove(f"{STATE_DIRECTORY}/mark")
    seal = records(disk, 1)[-1][0]
    disk.flip_bit(data_log_name(1), seal, 0)
    assert [row["offset"] for row in rows_of(disk, kind="damaged")] == [seal]
    disk.zero(data_log_name(2), 0, disk.open_for_reading(data_log_name(2)).size())
    assert [(row["data_log"], row["offset"]) for row in rows_of(disk, kind="torn")] == [(1, seal), (2, 0)]
    assert not rows_of(disk, kind="damaged")
