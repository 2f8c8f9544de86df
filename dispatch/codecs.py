"""forebay.codecs: turn a value into the body of a message, and a body into a value.

    >>> from forebay import codecs
    >>> orders = bay.queue("orders", codec=codecs.JSON)
    >>> message_id = orders.send({"item": "tea", "kg": 1})
    >>> orders.get()["item"]
    'tea'

None of them executes what it reads: there is no pickle. A body may come from anywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Final, Protocol, TypeVar

__all__ = ["BYTES", "JSON", "MESSAGEPACK", "TEXT", "Codec", "json_of", "messagepack_of"]

T = TypeVar("T")


def __dir__() -> list[str]:
    """Return the public names."""
    return list(__all__)


class Codec(Protocol[T]):
    """The two methods that `Forebay.queue(name, codec=…)` needs.

    They are inverses of each other, and any thread calls them.
    """

    def encode(self, value: T, /) -> bytes:
        """Return the body for a value. The sender gets an error of it as ArgumentError; nothing was stored."""

    def decode(self, body: bytes, /) -> T:
        """Return the value of a body. The consumer gets an error of it as DecodeError when it reads `value`."""


class _Msgspec:
    """A format of msgspec, into plain values or into values of one type."""

    def __init__(self, name: str, kind: Any = Any) -> None:
        """Make a codec. name: that of the module of msgspec. kind: the type of the values."""
        self._name = name
        self._kind = kind
        self._encode: Callable[[Any], bytes] | None = None
        self._decode: Callable[[bytes], Any] | None = None

    def encode(self, value: Any, /) -> bytes:
        """Return the value as msgspec encodes it. The encoder is made by the first call."""
        if self._encode is None:
            self._encode = self._module().Encoder().encode
        return self._encode(value)

    def decode(self, body: bytes, /) -> Any:
        """Return the value that msgspec decodes. The decoder is made by the first call."""
        if self._decode is None:
            self._decode = self._module().Decoder(self._kind).decode
        return self._decode(body)

    def _module(self) -> Any:
        return import_module(f"msgspec.{self._name}")  # imported with the first value, not with the package


class _Text:
    def encode(self, value: str, /) -> bytes:
        """Return the text as UTF-8."""
        return value.encode()

    def decode(self, body: bytes, /) -> str:
        """Return the text. UnicodeDecodeError: the body is not UTF-8."""
        return str(body, "utf-8")


class _Bytes:
    def encode(self, value: bytes, /) -> bytes:
        """Return the bytes as they are."""
        return value

    def decode(self, body: bytes, /) -> bytes:
        """Return the body as it is."""
        return body


JSON: Final[Codec[Any]] = _Msgspec("json")
"""Everything that JSON can express, by msgspec: dicts, lists, str, numbers, None.

It also encodes dataclasses and dates.
"""
MESSAGEPACK: Final[Codec[Any]] = _Msgspec("msgpack")
"""The same values as MessagePack, and bytes: smaller, and faster to read."""
TEXT: Final[Codec[str]] = _Text()
"""Text as UTF-8."""
BYTES: Final[Codec[bytes]] = _Bytes()
"""Bytes, unchanged."""


def json_of(kind: type[T]) -> Codec[T]:
    """Return JSON for values of one type (msgspec.Struct, a dataclass, a TypedDict, list[int]), which are checked.

    A body that does not fit the type raises DecodeError when its value is read.
    """
    return _Msgspec("json", kind)


def messagepack_of(kind: type[T]) -> Codec[T]:
    """Return MessagePack for values of one type, as `json_of` does."""
    return _Msgspec("msgpack", kind)
