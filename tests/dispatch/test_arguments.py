"""An argument of a wrong type is one exception, compiled or interpreted, in every public method, and changes nothing.

ArgumentError is a TypeError, as Python programmers expect, and a ForebayError, as everything that the library raises.
"""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import pickle
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from compiled import interpreted
from loops import Inline

import forebay
import forebay.aio
from forebay import ArgumentError, DestinationPolicy, ForebayError, Message, Settings, SettingsError

NONE = type(None)
VALUES: tuple[Any, ...] = (object(), None, True, 7, 1.5, "text", "", b"body", b"", ["x"], [], ("x",), (), {1: 2}, {})
"""Of each kind one that is true and, where there is one, one that is false: `if argument:` must not let it through."""

Types = tuple[type, ...]

SEND: dict[str, Types] = {
    "body": (bytes,),
    "headers": (dict, NONE),
    "priority": (int,),
    "message_id": (str, NONE),
    "transaction": (NONE,),
    "persistent": (bool,),
    "group": (str, NONE),
    "expires_in": (int, float, NONE),
    "delay": (int, float),
    "producer": (str, NONE),
    "timeout": (int, float, NONE),
    "retain": (bool, str),
}
ITERABLES = (str, bytes, list, tuple, dict)
SEND_MANY: dict[str, Types] = {"messages": ITERABLES, "transaction": (NONE,), "timeout": (int, float, NONE)}
SUBSCRIBE: dict[str, Types] = {
    "selector": (str, NONE),
    "prefetch": (int, NONE),
    "exclusive": (bool,),
    "priority": (int,),
    "on_ready": (NONE,),
    "on_slow": (NONE,),
    "ack_deadline_seconds": (int, float, NONE),
}
DURABLE: dict[str, Types] = {"durable": (str, NONE), "shared": (bool,), **SUBSCRIBE}
PLACE: dict[str, Types] = {
    "from_": (str, NONE),
    "sequence": (int, NONE),
    "time": (int, float, NONE),
    "priority": (int,),
    "selector": (str, NONE),
}
TAKE: dict[str, Types] = {"max_messages": (int,), "timeout": (int, float, NONE), "max_bytes": (int, NONE)}
ACK: dict[str, Types] = {"deliveries": (list, tuple), "transaction": (NONE,)}
NACK: dict[str, Types] = {"deliveries": (list, tuple), "delay": (int, float)}

METHODS: dict[str, tuple[dict[str, Any], dict[str, Types]]] = {
    "queue.send": ({"body": b"x"}, SEND),
    "limited.send": ({"body": b"x"}, SEND),
    "topic.send": ({"body": b"x"}, SEND),
    "limited_topic.send": ({"body": b"x"}, SEND),
    "queue.send_many": ({"messages": []}, SEND_MANY),
    "limited.send_many": ({"messages": []}, SEND_MANY),
    "topic.send_many": ({"messages": []}, SEND_MANY),
    "limited_topic.send_many": ({"messages": []}, SEND_MANY),
    "queue.subscribe": ({}, SUBSCRIBE),
    "topic.subscribe": ({}, DURABLE),
    "topic.unsubscribe": ({}, {"durable": (str,)}),
    "topic.subscription": ({}, {"name": (str,)}),
    "topic.reader": ({"from_": "begin"}, PLACE),
    "queue.get": ({}, {"timeout": (int, float, NONE)}),
    "queue.join": ({}, {"timeout": (int, float, NONE)}),
    "queue.browse": ({}, {"selector": (str, NONE)}),
    "queue.find": ({}, {"message_id": (str,)}),
    "queue.move": ({"to": "others"}, {"to": (str,), "selector": (str, NONE), "limit": (int, NONE)}),
    "consumer.take": ({}, TAKE),
    "limited_consumer.take": ({}, TAKE),
    "consumer.batches": (
        {"max_messages": 1},
        {"max_messages": (int,), "timeout": (int, float, NONE)},
    ),
    "consumer.ack": ({"deliveries": []}, ACK),
    "limited_consumer.ack": ({"deliveries": []}, ACK),
    "subscriber.ack": ({"deliveries": []}, ACK),
    "durable_subscriber.ack": ({"deliveries": []}, ACK),
    "limited_subscriber.ack": ({"deliveries": []}, ACK),
    "consumer.ack_up_to": ({}, {"delivery": ()}),
    "consumer.nack": ({"deliveries": []}, NACK),
    "consumer.release": ({"deliveries": []}, {"deliveries": (list, tuple)}),
    "consumer.extend": (
        {"deliveries": [], "seconds": 1},
        {"deliveries": (list, tuple), "seconds": (int, float)},
    ),
    "consumer.reject": (
        {"deliveries": []},
        {"deliveries": (list, tuple), "reason": (str,), "transaction": (NONE,)},
    ),
    "consumer.process": ({"handler": print}, {"handler": (), "concurrency": (int,), "reject_on": (tuple,)}),
    "consumer.drain": ({}, {"timeout": (int, float, NONE)}),
    "consumer.close": ({}, {"processed": (list, tuple, NONE)}),
    "consumer.prefetch": ({}, {"prefetch": (int,)}),
    "delivery.ack": ({}, {"transaction": (NONE,)}),
    "delivery.reject": ({}, {"reason": (str,), "transaction": (NONE,)}),
    "delivery.nack": ({}, {"delay": (int, float)}),
    "delivery.extend": ({"seconds": 1}, {"seconds": (int, float)}),
    "transaction.prepare": ({}, {"xid": (bytes,)}),
    "bay.queue": ({"name": "orders"}, {"name": (str,), "codec": (NONE,)}),
    "bay.topic": ({"name": "news"}, {"name": (str,), "codec": (NONE,)}),
    "bay.resize": ({}, {"memory_limit": (int, str, NONE)}),
    "bay.explain": ({}, {"subject": (int, str, bytes, NONE)}),
    "bay.close": ({}, {"timeout": (int, float, NONE)}),
}
IN_THREADS_ONLY = {"on_ready"}


def cases(*, in_loop: bool) -> list[Any]:
    return [
        pytest.param(method, parameter, id=f"{method}-{parameter}")
        for method, (_, types) in METHODS.items()
        for parameter in types
        if not (in_loop and (parameter in IN_THREADS_ONLY))
    ]


def wrong(types: Types) -> list[Any]:
    """What of VALUES is no argument of these types. An iterable may be right where there is nothing in it."""
    return [
        value
        for value in VALUES
        if type(value) not in types or (types in (ITERABLES, ACK["deliveries"]) and value)  # of what it should not hold
    ]


def is_one_of_ours(error: BaseException) -> bool:
    return type(error) is ArgumentError and isinstance(error, TypeError) and isinstance(error, SettingsError)


class Facades:
    """All public objects of one store, of one of the two interfaces."""

    def __init__(self, bay: Any, queue: Any, limited: Any, topic: Any, limited_topic: Any) -> None:
        self.bay, self.queue, self.limited, self.topic, self.limited_topic = bay, queue, limited, topic, limited_topic
        self.consumer: Any = None
        self.limited_consumer: Any = None
        self.subscriber: Any = None
        self.durable_subscriber: Any = None
        self.limited_subscriber: Any = None
        self.delivery: Any = None
        self.transaction: Any = None

    def call(self, method: str, arguments: dict[str, Any]) -> Any:
        facade, name = method.split(".")
        if name == "prefetch":
            self.consumer.prefetch = arguments["prefetch"]
            return None
        return getattr(getattr(self, facade), name)(**arguments)

    def state(self) -> object:
        statistics = self.queue.statistics()
        return statistics.depth, self.limited.depth, self.consumer.statistics(), self.transaction.is_open


def opened(directory: Path) -> forebay.Forebay:
    return forebay.open(
        directory,
        memory_limit="16MiB",
        sync="never",
        background=False,
        policies={"limited": DestinationPolicy(max_messages=1000)},
    )


@pytest.fixture(scope="module")
def facades(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Facades]:
    with opened(tmp_path_factory.mktemp("facades")) as bay:
        found = Facades(bay, bay.queue("orders"), bay.queue("limited"), bay.topic("news"), bay.topic("limited"))
        found.consumer = found.queue.subscribe()
        found.limited_consumer = found.limited.subscribe()
        found.subscriber = found.topic.subscribe()
        found.durable_subscriber = found.topic.subscribe(durable="audit")
        found.limited_subscriber = found.limited_topic.subscribe()
        found.queue.send(b"x")
        found.delivery = found.consumer.take()[0]
        found.transaction = bay.transaction()
        yield found


@pytest.fixture(scope="module")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    found = asyncio.new_event_loop()
    yield found
    found.run_until_complete(found.shutdown_default_executor())
    found.close()


@pytest.fixture(scope="module")
def doors_in_loop(tmp_path_factory: pytest.TempPathFactory, loop: asyncio.AbstractEventLoop) -> Iterator[Facades]:
    inner = opened(tmp_path_factory.mktemp("facades"))

    async def open_doors() -> Facades:
        bay = forebay.aio.Forebay(inner, workers=Inline())
        queue, limited, topic = await bay.queue("orders"), await bay.queue("limited"), await bay.topic("news")
        found = Facades(bay, queue, limited, topic, await bay.topic("limited"))
        found.consumer = await found.queue.subscribe()
        found.limited_consumer = await found.limited.subscribe()
        found.subscriber = await found.topic.subscribe()
        found.durable_subscriber = await found.topic.subscribe(durable="audit")
        found.limited_subscriber = await found.limited_topic.subscribe()
        await found.queue.send(b"x")
        found.delivery = (await found.consumer.take())[0]
        found.transaction = bay.transaction()
        return found

    yield loop.run_until_complete(open_doors())
    inner.close()


@pytest.mark.parametrize(("method", "parameter"), cases(in_loop=False))
def test_wrong_type_is_an_argument_error(facades: Facades, method: str, parameter: str) -> None:
    base, types = METHODS[method]
    before = facades.state()
    for value in wrong(types[parameter]):
        with pytest.raises(ForebayError) as caught:
            facades.call(method, base | {parameter: value})
        assert is_one_of_ours(caught.value), (value, caught.value)
    assert facades.state() == before


@pytest.mark.parametrize(("method", "parameter"), cases(in_loop=True))
def test_wrong_type_is_an_argument_error_in_a_loop(
    doors_in_loop: Facades, loop: asyncio.AbstractEventLoop, method: str, parameter: str
) -> None:
    base, types = METHODS[method]

    async def call(value: object) -> None:
        called = doors_in_loop.call(method, base | {parameter: value})
        if inspect.isasyncgen(called):
            await anext(called)
        elif called is not None:
            await called

    before = doors_in_loop.state()
    for value in wrong(types[parameter]):
        with pytest.raises(ForebayError) as caught:
            loop.run_until_complete(call(value))
        assert is_one_of_ours(caught.value), (value, caught.value)
    assert doors_in_loop.state() == before


@pytest.mark.parametrize(
    ("field", "types"),
    [(name, types) for name, types in SEND.items() if name not in ("transaction", "timeout", "retain")],
)
def test_wrong_type_in_a_message_is_an_argument_error(facades: Facades, field: str, types: Types) -> None:
    before = facades.state()
    for queue in (facades.queue, facades.limited):
        for value in wrong(types):
            fields: dict[str, Any] = {"body": b"x", "message_id": "7"} | {field: value}
            for messages in ([Message(**fields)], iter([Message(**fields)])):
                with pytest.raises(ForebayError) as caught:
                    queue.send_many(messages)
                assert is_one_of_ours(caught.value), (value, caught.value)
    assert facades.state() == before


WAYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "delayed": {"delay": 1.0},
    "expiring": {"expires_in": 60.0},
    "non_persistent": {"persistent": False},
    "with_timeout": {"timeout": 0},
    "in_transaction": {"transaction": "open"},
    "delayed_in_transaction": {"transaction": "open", "delay": 1.0},
    "non_persistent_in_transaction": {"transaction": "open", "persistent": False},
    "retained": {"retain": True},
}
"""The ways to send a message, as arguments of `send`; those of the call itself go to `send_many` as they are."""
OF_THE_CALL = ("transaction", "timeout", "retain")
REFUSED: dict[str, tuple[Any, ...]] = {
    "body": ("text", None, 7),
    "headers": (["x"], {7: "x"}, {"x": object()}),
    "priority": (True, 1.0, 10, -1, "1", None),
    "message_id": (7, "", b"id"),
    "persistent": (1, 0, None),
    "group": (7, "", b"group", "x" * 256),
    "expires_in": ("1", -1.0, True),
    "delay": ("1", -1.0, None),
    "producer": (7, "", b"producer"),
}
"""What each way to send refuses, also where the message has nothing else that is special."""


def sends(facades: Facades, way: str, bad: dict[str, Any]) -> Iterator[Callable[[], Any]]:
    """Yield calls that send one message each with a bad argument, one by one and as a batch, to each kind of sender."""
    fields: dict[str, Any] = {"body": b"x"} | WAYS[way] | bad
    if "transaction" in fields:
        fields["transaction"] = facades.transaction
    message = Message(**{name: value for name, value in fields.items() if name not in OF_THE_CALL})
    of_the_call = {name: value for name, value in fields.items() if name in OF_THE_CALL}
    senders = (facades.queue, facades.limited, facades.topic, facades.limited_topic)
    for sender in senders[2:] if way == "retained" else senders:
        yield partial(sender.send, **fields)
        if way != "retained":
            yield partial(sender.send_many, [message], **of_the_call)
            yield partial(sender.send_many, iter([message]), **of_the_call)


@interpreted("machine code refuses a Message with such fields, or makes ints of them, before it is sent")
@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("way", WAYS)
def test_all_ways_to_send_refuse_the_same(
    facades: Facades, doors_in_loop: Facades, loop: asyncio.AbstractEventLoop, way: str, name: str
) -> None:
    async def awaited(call: Callable[[], Any]) -> None:
        await call()

    for value in REFUSED[name]:
        before = facades.state(), doors_in_loop.state()
        for call in sends(facades, way, {name: value}):
            with pytest.raises(SettingsError):
                call()
        for call in sends(doors_in_loop, way, {name: value}):
            with pytest.raises(SettingsError):
                loop.run_until_complete(awaited(call))
        assert (facades.state(), doors_in_loop.state()) == before, value


@interpreted("machine code makes an int of a priority when a Message is made")
@pytest.mark.parametrize("priority", [True, 1.0])
@pytest.mark.parametrize("as_batch", [list, iter])
def test_priority_that_equals_the_one_before_it_is_refused_all_the_same(
    facades: Facades, as_batch: Callable[[Any], Any], priority: Any
) -> None:
    depth = facades.queue.depth
    with pytest.raises(ArgumentError) as caught:
        facades.queue.send_many(as_batch([Message(b"x", priority=1), Message(b"y", priority=priority)]))
    assert facades.queue.depth - depth == getattr(caught.value, "stored") == 1  # noqa: B009 (not of each error)


@pytest.mark.parametrize("headers", [{7: "x"}, {None: "x"}, {"x": object()}, {"x": ()}, {"x": [{1}]}])
def test_wrong_type_in_headers_is_an_argument_error(facades: Facades, headers: Any) -> None:
    for call in (facades.queue.send, facades.limited.send, facades.topic.send):
        with pytest.raises(ArgumentError):
            call(b"x", headers=headers)


@pytest.mark.parametrize("kind", [Settings, DestinationPolicy])
def test_wrong_type_of_a_setting_is_an_argument_error(kind: type[Any]) -> None:
    for entry in dataclasses.fields(kind):
        if entry.init:
            with pytest.raises(ForebayError) as caught:
                kind(**{entry.name: object()})
            assert is_one_of_ours(caught.value), (entry.name, caught.value)


@pytest.mark.parametrize("value", [value for value in VALUES if not isinstance(value, str)])
def test_wrong_type_of_a_path_is_an_argument_error(value: Any) -> None:
    for call in (forebay.open, Settings.from_activemq):
        with pytest.raises(ForebayError) as caught:
            call(value)
        assert is_one_of_ours(caught.value), (value, caught.value)


def test_path_that_can_be_no_directory_is_a_settings_error_without_advice_about_the_disk(tmp_path: Path) -> None:
    """In /proc the system makes no directory, and says that the parent is missing, which it is not."""
    file = tmp_path / "file"
    file.touch()
    for path, reason in (
        (file, f"{file} is not a directory"),
        (file / "below", f"{file} is not a directory"),
        (tmp_path / ("x" * 300), "File name too long"),
        (Path("/proc/forebay"), "refuses to make it in /proc"),
        (Path("/proc/self/forebay/below"), "refuses to make it in /proc/self"),
    ):
        with pytest.raises(SettingsError) as caught:
            forebay.open(path)
        assert reason in str(caught.value) and "cure the disk" not in str(caught.value)


def test_settings_that_are_none_are_an_argument_error(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError):
        forebay.open(tmp_path, "16MiB")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError):
        asyncio.run(_open_in_loop(tmp_path, "16MiB"))
    assert not list(tmp_path.iterdir())


async def _open_in_loop(directory: Path, settings: Any) -> None:
    await forebay.aio.open(directory, settings)


def test_wrong_value_of_the_right_type_is_no_type_error(facades: Facades) -> None:
    calls: list[Callable[[], object]] = [
        lambda: facades.queue.send(b"x", priority=10),
        lambda: facades.queue.send(b"x", delay=-1),
        lambda: facades.queue.send(b"x", message_id=""),
        lambda: facades.bay.queue(""),
        lambda: facades.consumer.take(0),
        lambda: Settings(memory_limit="1KiB"),
    ]
    for call in calls:
        with pytest.raises(SettingsError) as caught:
            call()
        assert not isinstance(caught.value, TypeError)


def test_loop_opens_nothing_but_a_forebay(facades: Facades) -> None:
    async def wrap(value: Any) -> None:
        forebay.aio.Forebay(value)

    for value in VALUES:
        with pytest.raises(ArgumentError):
            asyncio.run(wrap(value))


def test_argument_error_pickles() -> None:
    again = pickle.loads(pickle.dumps(ArgumentError("a body must be bytes")))
    assert is_one_of_ours(again) and str(again) == "a body must be bytes"


@interpreted("reads the signatures of methods")
@pytest.mark.parametrize("interface", [forebay, forebay.aio])
def test_every_public_method_is_called_here(interface: Any) -> None:
    """Compiled classes tell nobody what they take."""
    called = {
        (kind, name, parameter)
        for method, (_, types) in METHODS.items()
        for kind, name in [(_kind(method.split(".")[0]), method.split(".")[1])]
        for parameter in types
    }
    for kind in ("Forebay", "Queue", "Topic", "Consumer", "Delivery", "Transaction"):
        for name, member in inspect.getmembers(getattr(interface, kind)):
            function = member.fset if isinstance(member, property) else member
            if name.startswith("_") or not inspect.isfunction(function) or name in INTERNAL:
                continue
            for parameter in list(inspect.signature(function).parameters)[1:]:
                assert (kind, name, parameter) in called


def _kind(facade: str) -> str:
    if facade == "bay":
        return "Forebay"
    if facade.endswith(("consumer", "subscriber")):
        return "Consumer"
    return "Topic" if facade.endswith("topic") else "Queue" if facade == "limited" else facade.capitalize()


INTERNAL = {
    "attach_loop",
    "check_held",
    "allowance",
    "search",
    "checked_transaction",
    "send_many_steps",
    "send_message",
    "send_steps",
    "become_ready",
    "move_to",
    "add",
    "acknowledged_in",
    "add_non_persistent",
    "recover",
    "keep_room",
    "retain",
    "hold",
    "hold_rejected",
    "holds",
    "uses_destinations",
    "close_with_destination",
    "return_untried",
    "windows",
    "withdraw",
    "read_from",
}
"""What only the dispatch calls, of topics, consumers and transactions."""
