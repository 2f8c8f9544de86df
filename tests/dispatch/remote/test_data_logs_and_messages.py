"""What other processes may look at through the admin socket: data logs and messages, a bounded part at a time."""

from __future__ import annotations

import json
from typing import Any

import pytest
from simulated_bay import SimulatedBay

from forebay import Message
from forebay.dispatch.remote.admin_socket import ANSWER_BYTES_MAX
from forebay.dispatch.remote.requests import (
    BODY_MAX,
    BROWSE_MAX,
    DATA_LOGS_MAX,
    HEADERS_MAX,
    NAME_MAX,
    SKIP_MAX,
    answer,
)


def asked(store: SimulatedBay, **request: Any) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(answer(store.bay, json.dumps(request).encode()))
    return told


def result_of(store: SimulatedBay, **request: Any) -> dict[str, Any]:
    told = asked(store, **request)
    assert told["ok"], told
    result: dict[str, Any] = told["result"]
    return result


def test_each_data_log_is_told_with_what_keeps_it_in_pages() -> None:
    store = SimulatedBay(max_file_length="64KiB", memory_limit="8MiB")
    for _ in range(DATA_LOGS_MAX + 8):
        store.queue().send_many(Message(bytes(1000)) for _ in range(50))
    whole = store.bay.data_logs()
    first = result_of(store, do="data_logs")
    assert len(first["data_logs"]) == DATA_LOGS_MAX and first["more"] == len(whole) - DATA_LOGS_MAX
    rest = result_of(store, do="data_logs", after=first["data_logs"][-1]["data_log"])
    told = [*first["data_logs"], *rest["data_logs"]]
    assert rest["more"] == 0 and [row["data_log"] for row in told] == [one.data_log for one in whole]
    for row, one in zip(told, whole, strict=True):
        assert (row["bytes"], row["live_bytes"]) == (one.bytes, one.live_bytes)
        assert row["sentence"] == one.explanation.sentence == store.bay.explain(one.data_log).sentence
    assert sum(one.live_bytes for one in whole) == store.bay.statistics().store.live_bytes


def test_messages_are_told_in_pages_with_their_bodies_only_where_they_are_asked_for() -> None:
    store = SimulatedBay()
    store.queue().send_many(Message(b"%d" % n, headers={"n": n}, priority=4 + n % 2) for n in range(BROWSE_MAX + 10))
    pages = [result_of(store, do="browse", queue="orders", skip=skip) for skip in (0, BROWSE_MAX)]
    assert [len(page["messages"]) for page in pages] == [BROWSE_MAX, 10]
    assert [page["is_more"] for page in pages] == [True, False]
    rows = [row for page in pages for row in page["messages"]]
    assert [row["id"] for row in rows] == [message.message_id for message in store.queue().browse()]
    assert rows[0]["headers"] == [["n", "1"]] and rows[0]["priority"] == 5 and rows[0]["bytes"] == 1
    assert not any("body" in row for row in rows)
    [first, *_] = result_of(store, do="browse", queue="orders", bodies=True)["messages"]
    assert first["body"] == "1"


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"", ""),
        (b"\xff\x00", "ff 00"),
        ("\u00e4".encode() * 600, "\u00e4" * (BODY_MAX // 2)),
        (("x" + "\u00e4" * 600).encode(), "x" + "\u00e4" * (BODY_MAX // 2 - 1)),
        (b"x" * 510 + b"\xff\xff", (b"x" * 510 + b"\xff\xff").hex(" ")),
    ],
)
def test_beginning_of_a_body_is_text_where_it_is_one(body: bytes, told: str) -> None:
    store = SimulatedBay()
    store.queue().send(body)
    [row] = result_of(store, do="browse", queue="orders", bodies=True)["messages"]
    assert row["body"] == told and row["bytes"] == len(body)


def test_answer_stays_bounded_whatever_the_messages_are() -> None:
    store = SimulatedBay(memory_limit="32MiB")
    headers = {f"{n:02}" + "\U0001f4a9" * 200: "\x01" * 2_000 for n in range(HEADERS_MAX + 5)}
    message = Message(b"\x01" * 5_000, headers=headers, message_id="\x01" * 60_000, group="g" * 255)
    store.queue().send_many(message for _ in range(BROWSE_MAX))
    line = json.dumps({"do": "browse", "queue": "orders", "bodies": True}).encode()
    said = answer(store.bay, line)
    assert len(said) < ANSWER_BYTES_MAX
    [row, *_] = json.loads(said)["result"]["messages"]
    assert len(row["headers"]) == HEADERS_MAX and row["header_count"] == HEADERS_MAX + 5
    assert len(row["group"]) == len(row["id"]) == NAME_MAX


@pytest.mark.parametrize(
    ("request_", "problem"),
    [
        ({"do": "browse"}, "browse needs queue"),
        ({"do": "browse", "queue": "orderz"}, "there is no queue"),
        ({"do": "browse", "queue": "\ud800"}, "there is no queue"),
        ({"do": "browse", "queue": "orders", "skip": -1}, f"skip must be an int from 0 to {SKIP_MAX:,}"),
        ({"do": "browse", "queue": "orders", "skip": SKIP_MAX + 1}, "skip must be"),
        ({"do": "browse", "queue": "orders", "skip": True}, "skip must be"),
        ({"do": "browse", "queue": "orders", "bodies": 1}, "bodies must be true or false"),
        ({"do": "data_logs", "after": "x"}, "after must be"),
    ],
)
def test_look_that_makes_no_sense_is_refused(request_: dict[str, Any], problem: str) -> None:
    store = SimulatedBay()
    store.queue()
    told = asked(store, **request_)
    assert not told["ok"] and told["error"] == "SettingsError" and problem in told["problem"]


def test_looking_is_not_logged_as_a_change(caplog: pytest.LogCaptureFixture) -> None:
    store = SimulatedBay()
    store.queue().send(b"x")
    with caplog.at_level("INFO"):
        for request in ({"do": "browse", "queue": "orders"}, {"do": "data_logs"}, {"do": "explain"}):
            result_of(store, **request)
        assert caplog.text == ""
        result_of(store, do="pause", queue="orders")
    assert "admin socket: pause orders" in caplog.text
