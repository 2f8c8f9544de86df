"""Names of temporary destinations: generated, not to be guessed, and of a form that no other destination gets.

Whoever names one that is gone means the client that made it, and not a new queue that nobody reads. So such a name is
refused where it is not found.
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
    """Return the name of a destination without what only one client's temporary destination has in it.

    The dead letters of all temporary queues meet in one queue, where each would else leave one behind.
    """
    for prefix in (TEMPORARY_QUEUE, TEMPORARY_TOPIC):
        if name.startswith(prefix):
            return prefix.removesuffix(".")
    return name
