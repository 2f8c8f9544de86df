"""Names of temporary destinations: generated, impossible to guess, and of a form that no other destination gets.

A sender that uses such a name wants to reach the client that made the destination, not a new queue that nobody reads.
So the name of a temporary destination that is gone is refused, and no destination is made for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ...store.errors import Closed

TEMPORARY_QUEUE: Final = "temporary-queue."
TEMPORARY_TOPIC: Final = "temporary-topic."
NAME_RANDOM_BYTES: Final = 16


def temporary_name(prefix: str, random_bytes: Callable[[int], bytes]) -> str:
    """Return a new name behind one of the prefixes."""
    return prefix + random_bytes(NAME_RANDOM_BYTES).hex()


def raise_if_temporary(name: str) -> None:
    """Raise Closed for a name that only a temporary destination can have. Requires: there is none of that name."""
    if name.startswith((TEMPORARY_QUEUE, TEMPORARY_TOPIC)):
        raise Closed(f"the temporary destination {name!r}", "gone, or never was", "its client is to name another one")


def lasting_name(name: str) -> str:
    """Return the name of a destination, without the random part if the destination is temporary.

    So all temporary queues share one dead-letter queue; otherwise each of them would leave one behind.
    """
    for prefix in (TEMPORARY_QUEUE, TEMPORARY_TOPIC):
        if name.startswith(prefix):
            return prefix.removesuffix(".")
    return name
