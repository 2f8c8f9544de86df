"""forebay.codecs: how a value becomes the body of a message, and a value again.

>>> from forebay import codecs
>>> orders = bay.queue("orders", codec=codecs.JSON)
>>> message_id = orders.send({"item": "tea", "kg": 1})
>>> orders.get()["item"]
'tea'

None of them runs what it reads: no pickle. What a decoder meets may come from anywhere.
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
    """What `Forebay.queue(name, codec=…)` needs: two methods that are each other's inverse, called in any thread."""

    def encode(self, value: T, /) -> bytes:
        """Return the body for a value. What it raises the sender gets, as ArgumentError; nothing was stored."""

    def decode(self, body: bytes, /) -> T:
        """Return the value of a body. What it raises the consumer gets, as DecodeError, when it reads `value`."""


class _Msgspec:
    """A format of msgspec, into plain values or into values of one type."""

    def __init__(self, name: str, kind: Any = Any) -> None:
        """name: of the module of msgspec."""
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
        return import_module(f"msgspec.{self._name}")  # with the first value, not with the package


class _Text:
    def encode(self, value: str, /) -> bytes:
        """Return the text as UTF-8."""
        return value.encode()

    def decode(self, body: bytes, /) -> str:
        """Return the text. UnicodeDecodeError for a body that is no UTF-8."""
        return str(body, "utf-8")


class _Bytes:
    def encode(self, value: bytes, /) -> bytes:
        """Return the bytes as they are."""
        return value

    def decode(self, body: bytes, /) -> bytes:
        """Return the body as it is."""
        return body


JSON: Final[Codec[Any]] = _Msgspec("json")
"""Whatever JSON can say, by msgspec: dicts, lists, str, numbers, None; also dataclasses and dates, on their way in."""
MESSAGEPACK: Final[Codec[Any]] = _Msgspec("msgpack")
"""The same in MessagePack, and bytes besides: smaller, and faster to read."""
TEXT: Final[Codec[str]] = _Text()
"""UTF-8."""
BYTES: Final[Codec[bytes]] = _Bytes()
"""As it is."""


def json_of(kind: type[T]) -> Codec[T]:
    """Return JSON for values of one type (msgspec.Struct, a dataclass, a TypedDict, list[int]) that are checked.

    A body that says another thing than the type raises DecodeError where its value is read.
    """
    return _Msgspec("json", kind)


def messagepack_of(kind: type[T]) -> Codec[T]:
    """Return MessagePack for values of one type, as `json_of` does."""
    return _Msgspec("msgpack", kind)
