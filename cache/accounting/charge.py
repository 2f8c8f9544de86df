"""The charge of a message: the bytes of RAM that it costs, with the objects around it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ...store.stored_message import StoredMessage

OVERHEAD_BYTES: Final = 384
"""Bytes in addition to the content of a message on its way through cache, list and delivery.

They are the tuple, two ints, the header of the body and its rounding, one slot of a deque or dict that is up to half
empty, and the Delivery.
"""


def charge_of(message: StoredMessage) -> int:
    """Return the charge of one message."""
    body = message[2]
    return len(message[1]) + OVERHEAD_BYTES + (len(body) if body is not None else 0)


def charge_of_all(messages: Sequence[StoredMessage]) -> int:
    """Return the charge of all of these messages."""
    charge = OVERHEAD_BYTES * len(messages)
    for message in messages:  # not unpacked: compiled code would make objects of its numbers
        body = message[2]
        charge += len(message[1]) + (len(body) if body is not None else 0)
    return charge


def charge_of_slice(messages: int, content_bytes: int) -> int:
    """Return the charge of so many messages with so many bytes in total."""
    return OVERHEAD_BYTES * messages + content_bytes


def charge_of_size(content_bytes: int) -> int:
    """Return the charge of a message of this length."""
    return content_bytes + OVERHEAD_BYTES
