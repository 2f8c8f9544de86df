"""Encoding: what is stored of a message that a host sends. What cannot be stored is refused here."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from typing import Any

from ...store.errors import ArgumentError, argument_error
from ...store.format.message_properties import GROUP_BYTES_MAX, encode_headers, encode_properties
from ...store.message import Message
from .sender_parts import SenderParts


def encoded_properties(headers: object, message_id: object, group: object = None, producer: object = None) -> bytes:
    """Encode the properties of a message. SettingsError for invalid headers, id, group or producer."""
    if type(headers) is not dict and headers is not None and not isinstance(headers, Mapping):
        raise ArgumentError(f"headers must be a mapping of names to values, not {type(headers).__name__}")
    if message_id is not None and (not isinstance(message_id, str) or not message_id):
        raise argument_error(f"a message id must be a non-empty str, not {type(message_id).__name__}", message_id, str)
    if group is not None and (
        not isinstance(group, str) or not 1 <= len(group.encode(errors="replace")) <= GROUP_BYTES_MAX
    ):
        raise argument_error(
            f"a group must be a str of 1 to {GROUP_BYTES_MAX} bytes of UTF-8, not {reprlib.repr(group)}", group, str
        )
    if producer is not None and (not isinstance(producer, str) or not producer):
        raise argument_error(f"a producer must be a non-empty str, not {type(producer).__name__}", producer, str)
    return encode_properties(headers, message_id, group, producer if message_id is not None else None)


def encoded_headers(headers: object) -> bytes:
    """Encode the properties of a message that has only headers. SettingsError for invalid ones."""
    return encode_headers(headers) if type(headers) is dict else encoded_properties(headers, None)


def as_bytes(body: object) -> bytes:
    """Return a copy of a bytes-like body. ArgumentError for anything else."""
    if isinstance(body, bytes):  # an instance of a subclass
        return bytes(memoryview(body))
    try:
        view = memoryview(body)  # type: ignore[arg-type]
    except (TypeError, ValueError, BufferError):
        raise ArgumentError(f"a body must be bytes, not {type(body).__name__}: encode it first") from None
    return view.tobytes()


def encoded_message(
    parts: SenderParts, message: Any, is_in_transaction: bool
) -> tuple[bytes, bytes, str | None, str | None]:
    """Return properties and body of a message as they are stored, and the group and the id in them.

    Each is read once, because another thread may set it meanwhile. MessageTooLarge, SettingsError.
    """
    if not issubclass(type(message), Message):
        raise ArgumentError(f"send_many takes Message objects, not {type(message).__name__}")
    body, headers, message_id = message.body, message.headers, message.message_id
    if type(body) is not bytes:
        body = as_bytes(body)
    producer, group = message.producer, message.group
    if group is not None or message_id is not None or producer is not None:
        properties = encoded_properties(headers, message_id, group, producer)
    elif headers is not None:
        properties = encoded_headers(headers)
    else:
        properties = b""
    delay, expires_in = message.delay, message.expires_in
    if delay != 0.0 or expires_in is not None:
        properties = parts.lifetimes.times(expires_in, delay, is_relative=is_in_transaction) + properties
    if len(body) + len(properties) > parts.max_message_bytes:
        raise parts.too_large(len(body) + len(properties))
    return properties, body, group, message_id
