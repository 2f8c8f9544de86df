"""Message: what a producer sends and a browser sees."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from .compiler import mypyc_attr, name_slots

HeaderValue: TypeAlias = "str | int | float | bool | bytes | None | list[HeaderValue] | dict[str, HeaderValue]"
"""The value of a header. Lists and dicts may nest up to 32 deep; an int has at most 512 bytes."""
Headers = Mapping[str, HeaderValue]

DEFAULT_PRIORITY: Final = 4
"""The normal priority of JMS; 0 is the lowest and 9 the highest."""
NO_DELAY: Final[Any] = float(0)
"""The delay of a message that is due when it is sent: 0.0. It is compared by identity first, as AT_ONCE is."""


def id_prefix(store_id: bytes, destination_number: int, priority: int) -> str:
    """Return the beginning of the ids that a store generates in one lane; the sequence follows."""
    return f"{store_id[:4].hex()}-{destination_number}-{priority}-"


def body_bytes(body: object) -> int:
    """Return the size of a bytes-like body; 0 for anything else, which `send` refuses."""
    try:
        return memoryview(body).nbytes  # type: ignore[arg-type]
    except (TypeError, ValueError, BufferError):
        return 0


@mypyc_attr(allow_interpreted_subclasses=True)
@dataclass(slots=True, init=False)
class Message:
    """A message to send with `send_many`. Nothing is copied, so do not change it before it is stored.

    The body is bytes, or an object with their buffer protocol: bytearray, memoryview. It is delivered as bytes.

    The class is not frozen, because that would double the cost of making one.
    """

    body: bytes
    headers: Headers | None = None
    priority: int = DEFAULT_PRIORITY
    message_id: str | None = None
    """The id of the message. None: the store generates one, which `Queue.find` resolves at once."""
    persistent: bool = True
    """False: the message is not journaled and ends with the process."""
    group: str | None = None
    """Messages of one group go to one consumer at a time, in order; 1 to 255 bytes of UTF-8."""
    expires_in: float | None = None
    """Seconds after the send until the message is no longer handed out. None: it never expires."""
    delay: float = 0.0
    """Seconds after the send, or the commit, until the message may be handed out."""
    producer: str | None = None
    """Name of the producer that gave the message_id.

    With a duplicate_window in the policy, each producer has its own.
    """

    # Written by hand, because the one that dataclass makes is interpreted in both builds.
    def __init__(
        self,
        body: bytes,
        headers: Headers | None = None,
        priority: int = DEFAULT_PRIORITY,
        message_id: str | None = None,
        persistent: bool = True,
        group: str | None = None,
        expires_in: float | None = None,
        delay: float = NO_DELAY,
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
        """Return the state of a copy: the fields, and the attributes of a subclass."""
        return object.__getstate__(self)

    def __repr__(self) -> str:
        """Show only sizes, so that a payload never reaches a log."""
        return f"Message({body_bytes(self.body)} bytes, {len(self.headers or ())} headers, priority={self.priority})"


name_slots(Message)
