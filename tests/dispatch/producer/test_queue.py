"""Queue: what is sent is there, in order and once; what can't be sent changes nothing."""

from __future__ import annotations

import errno
import math
from array import array
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from simulated_bay import SimulatedBay

from forebay import (
    ArgumentError,
    Closed,
    Consumer,
    Delivery,
    ForebayError,
    Message,
    MessageTooLarge,
    Queue,
    SelectorError,
    SettingsError,
    StoreFailed,
    StoreFull,
)
from forebay.store.message import HeaderValue

KIB = 1024


def take_all(queue: Queue) -> list[Delivery]:
    """Everything, acknowledged."""
    taken: list[Delivery] = []
    with queue.subscribe(prefetch=0) as consumer:
        while deliveries := consumer.take(100):
            taken += deliveries
            consumer.ack(deliveries)
    return taken


# Sending.


def test_what_was_sent_is_what_is_delivered(bay: SimulatedBay, queue: Queue) -> None:
    bay.clock.advance(1.5)
    message_id = queue.send(b"1 kg tea", headers={"region": "eu", "kg": 1}, priority=7)
    with queue.subscribe() as consumer:
        (delivery,) = consumer.take()
        assert delivery.id == message_id
        assert delivery.body == b"1 kg tea"
        assert delivery.headers == {"region": "eu", "kg": 1}
        assert (delivery.priority, delivery.destination, delivery.attempts) == (7, "orders", 1)
        assert delivery.timestamp == bay.clock.time_ms()
        assert delivery.persistent


@pytest.mark.parametrize(
    "value", ["", "ä\0", 0, -(2**63), 2**63 - 1, 10**40, -(10**40), 0.5, -math.inf, True, False, b"", b"\xff", None]
)
def test_a_header_comes_back_as_the_same_value_of_the_same_type(queue: Queue, value: HeaderValue) -> None:
    queue.send(b"", headers={"name": value})
    (delivery,) = take_all(queue)
    assert delivery.headers == {"name": value}
    assert type(delivery.headers["name"]) is type(value)


def test_headers_are_the_callers_own_copy(queue: Queue) -> None:
    queue.send(b"", headers={"n": 1})
    with queue.subscribe() as consumer:
        (delivery,) = consumer.take()
        delivery.headers["n"] = 2
        assert delivery.headers == {"n": 1}


class HeadersReadMeanwhile(Mapping[str, HeaderValue]):
    """Headers: while they are read, another thread takes group and id out of their message."""

    message: Message

    def __iter__(self) -> Iterator[str]:
        self.message.group = self.message.message_id = None
        return iter(["kg"])

    def __len__(self) -> int:
        return 1

    def __getitem__(self, name: str) -> HeaderValue:
        return {"kg": 1}[name]


@pytest.mark.parametrize(
    "send",
    [
        lambda queue, message: queue.send_many([message]),
        lambda queue, message: queue.send_message(message, False, None, None),
    ],
)
def test_a_group_counts_as_it_was_when_the_message_was_encoded(
    queue: Queue, send: Callable[[Queue, Message], object]
) -> None:
    for _ in range(2):
        headers = HeadersReadMeanwhile()
        message = headers.message = Message(b"", headers, group="tea")
        send(queue, message)
        assert message.group is None
    with queue.subscribe(prefetch=1) as one, queue.subscribe(prefetch=1) as other:
        (delivery,) = one.take(10) + other.take(10)  # the next of the group waits for it
        assert delivery.group == "tea"


@pytest.mark.parametrize(
    "send",
    [
        lambda queue, message: queue.send_many([message])[0],
        lambda queue, message: queue.send_message(message, False, None, None),
    ],
)
def test_an_id_counts_as_it_was_when_the_message_was_encoded(
    queue: Queue, send: Callable[[Queue, Message], str]
) -> None:
    headers = HeadersReadMeanwhile()
    message = headers.message = Message(b"", headers, message_id="mine")
    assert send(queue, message) == "mine" and message.message_id is None
    assert [delivery.id for delivery in take_all(queue)] == ["mine"]


def test_an_id_of_the_callers_own_is_kept(queue: Queue) -> None:
    assert queue.send(b"", message_id="mine") == "mine"
    assert queue.send_many([Message(b"", message_id="yours"), Message(b"")])[0] == "yours"
    assert [delivery.id for delivery in take_all(queue)][:2] == ["mine", "yours"]


def test_ids_are_never_given_twice_not_even_by_the_next_process(bay: SimulatedBay) -> None:
    ids = [bay.queue().send(b"") for _ in range(10)] + bay.queue("other").send_many([Message(b"")] * 10)
    take_all(bay.queue())
    bay.reopen()
    ids += [bay.queue().send(b"") for _ in range(10)]
    assert len(set(ids)) == 30


@pytest.mark.parametrize(
    ("count", "body_bytes"), [(0, 0), (1, 0), (256, 1), (257, 1), (513, 10), (1500, 300), (40, 20 * KIB)]
)
def test_many_messages_arrive_in_order_whatever_slices_they_make(queue: Queue, count: int, body_bytes: int) -> None:
    bodies = [str(number).encode().ljust(body_bytes) for number in range(count)]
    ids = queue.send_many(Message(body) for body in bodies)
    assert len(set(ids)) == count
    taken = take_all(queue)
    assert [delivery.id for delivery in taken] == ids
    assert [delivery.body for delivery in taken] == bodies


def test_one_batch_may_mix_priorities(queue: Queue) -> None:
    ids = queue.send_many(Message(b"", priority=priority) for priority in (0, 9, 9, 4, 0))
    assert [delivery.id for delivery in take_all(queue)] == [ids[1], ids[2], ids[3], ids[0], ids[4]]


def test_a_higher_priority_that_comes_later_is_delivered_first(queue: Queue) -> None:
    low = [queue.send(b"low", priority=0) for _ in range(3)]
    with queue.subscribe() as consumer:
        assert [delivery.id for delivery in consumer.take(1)] == low[:1]
        high = [queue.send(b"high", priority=9) for _ in range(2)]
        assert [delivery.id for delivery in consumer.take(10)] == high + low[1:]


def test_a_backlog_survives_a_reopen_in_order(bay: SimulatedBay) -> None:
    ids = bay.queue().send_many(Message(b"x" * 100, priority=number % 3) for number in range(2000))
    expected = [ids[number] for priority in (2, 1, 0) for number in range(priority, 2000, 3)]
    bay.reopen()
    assert bay.queue().depth == 2000
    assert [delivery.id for delivery in take_all(bay.queue())] == expected


def test_depth_counts_what_is_in_flight_until_it_is_acknowledged(queue: Queue) -> None:
    queue.send(b"12345", headers={"n": 1})
    one = queue.depth_bytes
    queue.send(b"12345", headers={"n": 1}, priority=9)
    assert (queue.depth, queue.depth_bytes) == (2, 2 * one)
    with queue.subscribe() as consumer:
        deliveries = consumer.take(2)
        assert queue.depth == 2
        consumer.ack(deliveries[:1])
        assert (queue.depth, queue.depth_bytes) == (1, one)


def test_two_objects_of_one_name_are_one_queue_and_names_are_listed_sorted(bay: SimulatedBay) -> None:
    bay.queue("b").send(b"")
    assert bay.queue("b").depth == 1
    assert bay.queue("a").depth == 0
    assert bay.bay.destinations() == ["a", "b"]
    bay.reopen()
    assert bay.bay.destinations() == ["a", "b"]


def test_a_send_never_waits_for_memory(bay: SimulatedBay, queue: Queue) -> None:
    hog = queue.subscribe(prefetch=0)
    for _ in range(3000):
        queue.send(bytes(2 * KIB))
        hog.take(10)
    memory = bay.bay.statistics().memory
    assert memory.held_bytes_max <= memory.limit_bytes
    assert queue.depth == 3000
    bay.check()


def test_a_repr_shows_no_payload(queue: Queue) -> None:
    queue.send(b"secret", headers={"password": "secret"})
    with queue.subscribe() as consumer:
        shown = f"{queue!r} {consumer.take()!r} {Message(b'secret', {'password': 'secret'})!r}"
    assert "secret" not in shown


# What is too large, or does not fit.


def test_a_message_above_the_setting_is_refused_with_the_numbers(bay: SimulatedBay) -> None:
    bay = SimulatedBay(max_message_bytes="1KiB")
    queue = bay.queue()
    queue.send(bytes(KIB))
    with pytest.raises(MessageTooLarge) as caught:
        queue.send(bytes(KIB), headers={"n": None})
    assert (caught.value.limit, caught.value.limit_bytes) == ("max_message_bytes", KIB)
    assert caught.value.message_bytes > KIB
    assert queue.depth == 1


def test_a_message_above_all_memory_is_refused_and_one_of_just_that_size_is_delivered(queue: Queue) -> None:
    with pytest.raises(MessageTooLarge) as caught:
        queue.send(bytes(4096 * KIB + 1))
    assert caught.value.limit == "memory_limit"
    queue.send(b"\1" * (4096 * KIB))
    (delivery,) = take_all_lazily(queue)
    assert delivery == b"\1" * (4096 * KIB)


def take_all_lazily(queue: Queue) -> list[bytes]:
    with queue.subscribe() as consumer:
        return [delivery.body for delivery in consumer.take(10)]


def test_an_error_in_a_batch_says_how_many_of_the_first_are_in(queue: Queue) -> None:
    messages = [Message(b"x" * 100)] * 600 + [Message(bytes(4097 * KIB))]
    with pytest.raises(MessageTooLarge) as caught:
        queue.send_many(messages)
    assert caught.value.stored == queue.depth == 512


@pytest.mark.parametrize("sync", ["never", "always"])
def test_what_was_written_before_a_generator_raised_is_delivered(sync: str) -> None:
    queue = SimulatedBay(sync=sync).queue()

    def messages() -> Iterator[Message]:
        yield from [Message(b"x")] * 700
        raise ZeroDivisionError

    with queue.subscribe() as consumer:
        with pytest.raises(ZeroDivisionError):
            queue.send_many(messages())
        assert len(consumer.take(1000)) == queue.depth == 512


@pytest.mark.parametrize("sync", ["never", "always"])
@pytest.mark.parametrize("already", [0, 300])
def test_what_was_written_before_the_disk_was_full_is_delivered(sync: str, already: int) -> None:
    """300 messages bring the next slice to the end of a block, where it becomes two records."""
    bay = SimulatedBay(sync=sync)
    queue = bay.queue()
    queue.send_many([Message(b"before")] * already)
    with queue.subscribe() as consumer:
        consumer.ack(consumer.take(1000)) if already else None
        bay.disk.fail("write", 2, errno.ENOSPC)
        with pytest.raises(StoreFull) as caught:
            queue.send_many([Message(b"x")] * 600)
        assert caught.value.stored == queue.depth > 0
        assert len(consumer.take(1000)) == caught.value.stored
    queue.send(b"there is room again")


def test_a_send_to_a_full_disk_changes_nothing(bay: SimulatedBay, queue: Queue) -> None:
    bay.disk.fail("write", 1, errno.ENOSPC)
    with pytest.raises(StoreFull):
        queue.send(b"x")
    assert queue.depth == 0
    assert take_all(queue) == []
    queue.send(b"y")
    assert [delivery.body for delivery in take_all(queue)] == [b"y"]


def test_a_store_that_failed_says_of_each_call_how_many_messages_of_that_call_are_stored() -> None:
    bay = SimulatedBay()
    queue = bay.queue()
    bay.disk.fail("write", 2, errno.EIO)
    with pytest.raises(StoreFailed) as failed:
        queue.send_many([Message(b"x")] * 600)
    assert getattr(failed.value, "stored") == 256  # noqa: B009 (not of each error)
    with pytest.raises(StoreFailed) as again:
        queue.send_many([Message(b"x")] * 600)
    assert getattr(again.value, "stored") == 0  # noqa: B009


# Bad arguments.


BAD_NAMES: list[Any] = ["", "x" * 256, "ä" * 128, "a\nb", "a\0b", "\udc80", None, 5, b"orders", ["orders"]]


@pytest.mark.parametrize("name", BAD_NAMES, ids=ascii)
def test_a_name_that_can_not_be_is_refused(bay: SimulatedBay, name: Any) -> None:
    with pytest.raises(SettingsError):
        bay.queue(name)
    assert bay.bay.destinations() == []


@pytest.mark.parametrize("name", ["x" * 255, "../../etc/passwd", "a b", "/", ".", "ä", "orders.eu>"])
def test_a_name_is_data_and_never_a_path(bay: SimulatedBay, name: str) -> None:
    bay.queue(name).send(b"x")
    bay.reopen()
    assert bay.bay.destinations() == [name]
    assert len(take_all(bay.queue(name))) == 1


BAD_SENDS: list[dict[str, Any]] = [
    *({"body": body} for body in (None, "text", 5, [b"x"])),
    *({"priority": priority} for priority in (-1, 10, True, False, 4.0, "4", None, math.nan, [4])),
    *({"headers": headers} for headers in (5, "ab", b"ab", ["ab"], [("a", 1)], {"a"})),
    *({"headers": {name: 1}} for name in ("", "\udc80", 5, None, b"n")),
    *({"headers": {"n": value}} for value in (object(), (1,), [{1}], {1: 2}, "\ud800", 1j, 1 << 5000, bytearray(b"x"))),
    *({"message_id": own} for own in ("", 5, b"id", True, ["id"], "\udfff", "i" * 65_536)),
]


@pytest.mark.parametrize("fields", BAD_SENDS, ids=lambda fields: ascii(fields).split(" at 0x")[0][:60])
def test_a_bad_argument_of_send_is_refused_and_changes_nothing(
    bay: SimulatedBay, queue: Queue, fields: dict[str, Any]
) -> None:
    before = bay.bay.statistics()
    message: dict[str, Any] = {"body": b"x"} | fields
    with pytest.raises(SettingsError):
        queue.send(**message)
    with pytest.raises(SettingsError) as caught:
        queue.send_many([Message(**message)])
    assert caught.value.stored == 0
    assert bay.bay.statistics() == before


@pytest.mark.parametrize("timeout", [-1, -0.5, math.nan, math.inf, "1", True, b"1"], ids=ascii)
def test_a_timeout_that_can_not_be_is_refused_also_where_there_is_room(queue: Queue, timeout: Any) -> None:
    for call in (lambda: queue.send(b"x", timeout=timeout), lambda: queue.send_many([Message(b"x")], timeout=timeout)):
        with pytest.raises(SettingsError, match="timeout"):
            call()
    assert not take_all(queue)


@pytest.mark.parametrize("messages", [None, 5, [b"body"], b"bodies", [None], {"body": b"x"}, Message(b"x")], ids=ascii)
def test_what_is_no_iterable_of_messages_is_refused(queue: Queue, messages: Any) -> None:
    with pytest.raises(SettingsError):
        queue.send_many(messages)
    assert queue.depth == 0


BAD_CALLBACKS: list[Any] = [5, "callback", []]
BAD_SUBSCRIPTIONS: list[tuple[dict[str, Any], type[ForebayError]]] = [
    *(({"prefetch": prefetch}, SettingsError) for prefetch in (-1, True, 1.5, "10", 1_000_001, math.nan)),
    *(({"on_ready": callback}, SettingsError) for callback in BAD_CALLBACKS),
    *(({"selector": selector}, SettingsError) for selector in (5, b"n = 1", ["n = 1"], True)),
    *(({"selector": selector}, SelectorError) for selector in ("", "n =", "\udc80", "n = 1 AND", "x" * 100_000)),
]


@pytest.mark.parametrize(("fields", "error"), BAD_SUBSCRIPTIONS, ids=lambda value: ascii(value)[:40])
def test_a_bad_argument_of_subscribe_is_refused_and_nobody_is_subscribed(
    bay: SimulatedBay, queue: Queue, fields: dict[str, Any], error: type[ForebayError]
) -> None:
    with pytest.raises(error):
        queue.subscribe(**fields)
    assert bay.bay.statistics().destinations["orders"].consumers == 0
    assert bay.lists() == []


# After the end.

AFTER_CLOSE: Mapping[str, Callable[[SimulatedBay, Queue, Consumer], object]] = {
    "send": lambda bay, queue, consumer: queue.send(b"x"),
    "send a new priority": lambda bay, queue, consumer: queue.send(b"x", priority=9),
    "send_many": lambda bay, queue, consumer: queue.send_many([Message(b"x")]),
    "subscribe": lambda bay, queue, consumer: queue.subscribe(),
    "take": lambda bay, queue, consumer: consumer.take(),
    "take a batch": lambda bay, queue, consumer: consumer.take(10, timeout=None),
    "queue": lambda bay, queue, consumer: bay.bay.queue("orders"),
    "new queue": lambda bay, queue, consumer: bay.bay.queue("new"),
    "step": lambda bay, queue, consumer: bay.bay.step(),
    "checkpoint": lambda bay, queue, consumer: bay.bay.checkpoint(),
    "cleanup": lambda bay, queue, consumer: bay.bay.cleanup(),
}


@pytest.mark.parametrize("call", AFTER_CLOSE)
@pytest.mark.parametrize("sync", ["never", "always", "interval"])
def test_a_closed_store_says_so(call: str, sync: str) -> None:
    bay = SimulatedBay(sync=sync)
    queue = bay.queue()
    queue.send(b"x")
    consumer = queue.subscribe()
    bay.bay.close()
    with pytest.raises(Closed):
        AFTER_CLOSE[call](bay, queue, consumer)
    bay.bay.close()
    bay.reopen()
    assert bay.queue().depth == 1


def test_statistics_of_a_queue_are_what_the_store_says_of_it(bay: SimulatedBay, queue: Queue) -> None:
    queue.send_many([Message(b"first"), Message(b"second")])
    bay.queue("other").send(b"elsewhere")
    with queue.subscribe() as consumer:
        consumer.ack(consumer.take())
        found = queue.statistics()
    assert (found.depth, found.enqueued, found.delivered, found.acknowledged, found.consumers) == (1, 2, 1, 1, 1)
    assert queue.statistics() == bay.bay.statistics().destinations["orders"]


class Text(bytes):
    """A class of the user's own."""


@pytest.mark.parametrize(
    "like",
    [
        bytearray,
        memoryview,
        lambda body: memoryview(bytearray(body)),
        lambda body: memoryview(body + body)[: len(body)],
        lambda body: memoryview(body).cast("H"),
        lambda body: array("B", body),
        Text,
    ],
)
def test_a_body_like_bytes_is_stored_as_the_bytes_that_it_has_now(queue: Queue, like: Callable[[bytes], Any]) -> None:
    sent = b"1 kg of tea!"
    body = like(sent)
    queue.send(body)
    queue.send(body, headers={"kg": 1}, delay=0.0)
    queue.send(body, persistent=False)
    queue.send(body, expires_in=60.0, persistent=False)
    queue.send_many([Message(body), Message(sent), Message(body, {"kg": 1}), Message(body, expires_in=60.0)])
    if isinstance(body, bytearray):
        body[:2] = b"9 "
    found = [delivery.body for delivery in take_all(queue)]
    assert found == [sent] * 8
    assert {type(each) for each in found} == {bytes}
    assert repr(Message(body)).startswith(f"Message({len(sent)} bytes")


def test_a_view_that_was_released_is_no_body(queue: Queue) -> None:
    view = memoryview(b"x")
    view.release()
    with pytest.raises(ArgumentError, match="a body must be bytes"):
        queue.send(view)
    assert queue.depth == 0
