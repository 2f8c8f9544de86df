"""The values that everybody passes around: what a producer sends and a browser sees."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from .inheritance import mypyc_attr, name_slots

HeaderValue: TypeAlias = "str | int | float | bool | bytes | None | list[HeaderValue] | dict[str, HeaderValue]"
"""A header's value. Lists and dicts may hold such values up to 32 deep; an int has at most 512 bytes."""
Headers = Mapping[str, HeaderValue]

DEFAULT_PRIORITY = 4
"""JMS's normal priority; 0 is the lowest and 9 the highest."""


def id_prefix(store_id: bytes, destination: int, priority: int) -> str:
    """Return what the ids that a store generates in one lane begin with; the sequence follows."""
    return f"{store_id[:4].hex()}-{destination}-{priority}-"


def body_bytes(body: object) -> int:
    """Return the size of a body of bytes or of anything like them; 0 for what is no body, which its send refuses."""
    try:
        return memoryview(body).nbytes  # type: ignore[arg-type]
    except (TypeError, ValueError, BufferError):
        return 0


@mypyc_attr(allow_interpreted_subclasses=True)
@dataclass(slots=True, init=False)
class Message:
    """A message to send with `send_many`. Nothing is copied: do not change it before it is stored.

    The body is bytes, or anything with their buffer protocol: bytearray, memoryview. It comes out as bytes.

    Not frozen, because that would double what making one costs.
    """

    body: bytes
    headers: Headers | None = None
    priority: int = DEFAULT_PRIORITY
    message_id: str | None = None
    """The message's own id; None: the store generates one, which `Queue.find` resolves at once."""
    persistent: bool = True
    """False: it is not journaled. It ends with the process, however that ends."""
    group: str | None = None
    """Messages of one group go to one consumer at a time, in order; 1 to 255 bytes of UTF-8."""
    expires_in: float | None = None
    """Seconds from its send on after which nobody is handed it any more; None: never."""
    delay: float = 0.0
    """Seconds from its send or its commit on before which nobody is handed it."""
    producer: str | None = None
    """Name of the producer that gave the message_id: where the policy has a duplicate_window, each producer has its
    own.
    """

    # Written out, because the one that dataclass makes is interpreted in both builds.
    def __init__(
        self,
        body: bytes,
        headers: Headers | None = None,
        priority: int = DEFAULT_PRIORITY,
        message_id: str | None = None,
        persistent: bool = True,
        group: str | None = None,
        expires_in: float | None = None,
        delay: float = 0.0,
        producer: str | None = None,
    ) -> None:
        self.body = body
        self.headers = headers
        self.priority = priority
        self.message_id = message_id
        self.persistent = persistent
        self.group = group
        self.expires_in = expires_in
        self.delay = delay
        self.producer = producer

    def __getstate__(self) -> object:
        """Return what a copy takes along: the fields, and what an inheriting class has besides."""
        return object.__getstate__(self)

    def __repr__(self) -> str:
        """Show sizes only: a payload never reaches a log."""
        return f"Message({body_bytes(self.body)} bytes, {len(self.headers or ())} headers, priority={self.priority})"


name_slots(Message)
