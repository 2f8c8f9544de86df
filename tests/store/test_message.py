"""Message: a dataclass that users make, copy, compare and inherit from, in both builds."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from pathlib import Path
from typing import Any

import pytest

import forebay
from forebay import Message
from forebay.store.message import DEFAULT_PRIORITY

SENT = Message(b"body", {"a": 1}, 7, "own", False, "group", 5.0, 1.5, "producer")


class WithDict(Message):
    """Has room for anything."""

    def __init__(self, body: bytes, note: str) -> None:
        super().__init__(body)
        self.note = note


class WithSlot(Message):
    __slots__ = ("note",)
    note: str


@dataclasses.dataclass
class Order(Message):
    number: int = 0


@dataclasses.dataclass(slots=True)
class SlottedOrder(Message):
    number: int = 0


class Shouted(Message):
    """Computes a field."""

    @property
    def body(self) -> bytes:
        return str(self.message_id).upper().encode()

    @body.setter
    def body(self, body: bytes) -> None:
        """Ignore what the constructor says."""


def with_slot() -> WithSlot:
    made = WithSlot(b"body")
    made.note = "read me"
    return made


INHERITED = [WithDict(b"body", "read me"), with_slot(), Order(b"body", number=3), SlottedOrder(b"body", number=3)]


def test_constructor_takes_the_fields_in_their_order_with_their_defaults() -> None:
    names = [field.name for field in dataclasses.fields(Message)]
    assert dataclasses.astuple(SENT) == tuple(getattr(SENT, name) for name in names)
    assert Message(**{name: getattr(SENT, name) for name in names}) == SENT
    plain: Any = Message(b"")
    assert plain.priority == DEFAULT_PRIORITY
    assert all(getattr(plain, field.name) == field.default for field in dataclasses.fields(Message)[1:])


@pytest.mark.parametrize("arguments, fields", [((), {}), ((b"",), {"nothing": 1}), ((b"",) * 10, {})])
def test_constructor_refuses_what_is_no_field(arguments: tuple[Any, ...], fields: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        Message(*arguments, **fields)


def test_messages_are_equal_when_all_their_fields_are() -> None:
    for field in dataclasses.fields(Message):
        change: dict[str, Any] = {field.name: b"another"}
        assert dataclasses.replace(SENT, **change) != SENT
    assert dataclasses.replace(SENT) == SENT
    assert SENT != WithDict(b"body", "")


def test_message_is_taken_apart_by_match_and_as_a_dict() -> None:
    match SENT:
        case Message(body, headers, priority=7):
            assert (body, headers) == (b"body", {"a": 1})
        case _:
            pytest.fail("it does not match")
    assert dataclasses.asdict(SENT)["message_id"] == "own"


def test_message_has_its_fields_and_no_more() -> None:
    message: Any = Message(b"")
    for field in dataclasses.fields(Message):
        setattr(message, field.name, pytest)
        assert getattr(message, field.name) is pytest
    with pytest.raises(AttributeError):
        message.another = 1
    assert not hasattr(message, "__dict__")


@pytest.mark.parametrize("message", [SENT, *INHERITED], ids=lambda message: type(message).__name__)
def test_copies_have_all_that_the_message_has(message: Message) -> None:
    pickled = [pickle.loads(pickle.dumps(message, protocol)) for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1)]
    for made in (copy.copy(message), copy.deepcopy(message), *pickled):
        assert type(made) is type(message) and made == message
        for name in ("note", "number"):
            assert getattr(made, name, None) == getattr(message, name, None)


def test_message_of_an_inheriting_class_is_sent_as_its_fields_say(tmp_path: Path) -> None:
    with forebay.open(tmp_path) as bay:
        queue = bay.queue("a")
        queue.send_many([*INHERITED, Shouted(b"", message_id="shouted")])
        queue.send_many(iter([Shouted(b"", message_id="once more")]))
        with queue.subscribe() as consumer:
            assert [delivery.body for delivery in consumer.take(10)] == [b"body"] * 4 + [b"SHOUTED", b"ONCE MORE"]
