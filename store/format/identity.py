"""Identities: digests of a fixed size by which two messages count as the same."""

from __future__ import annotations

from typing import Final, NamedTuple

DIGEST_BYTES: Final = 16


class Identity(NamedTuple):
    """The destination, producer and id by which two messages count as the same. Both digests have 16 bytes."""

    destination: int
    producer: bytes
    message: bytes


def identity(destination: int, producer: bytes, message_id: bytes) -> Identity:
    """Return the identity of a message. producer: empty if the sender gives no name. It takes about 2 µs."""
    return Identity(destination, _digest(producer), _digest(message_id))


def _digest(data: bytes) -> bytes:
    import hashlib  # imported here, so that other stores need not wait for the interpreter's OpenSSL

    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).digest()
