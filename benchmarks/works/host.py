"""The host program of a pass: how it opens its store, and the messages that come to it.

Bodies are random bytes. The measured loop makes each one as a new object, because a broker gets its messages in this
way.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path
from typing import Any, Final, Literal

import forebay
from forebay.dispatch.config.sizes import MIB

MEMORY_LIMIT_BYTES: Final = 64 * MIB
BATCH_MESSAGES: Final = 256
PRODUCERS: Final = 32
"""Number of tasks that send durably at the same time."""
WAIT_SECONDS: Final = 30.0
"""Seconds after which a waiting take fails the pass, far more than any measured wait."""

_NOISE: Final = random.Random(42).randbytes(MIB)
_STRIDE_BYTES: Final = 977

Sync = Literal["always", "never"]


def opened(directory: Path, limit_bytes: int = MEMORY_LIMIT_BYTES, sync: Sync = "never") -> forebay.Forebay:
    return forebay.open(store_of(directory), **settings(limit_bytes, sync))


def store_of(directory: Path) -> Path:
    """Return the directory of a pass's store. Other files of the pass are beside it."""
    return directory / "store"


def touch_memory(directory: Path, size: int) -> None:
    """Use and free this much memory, so that the machine holds it ready for the pass.

    The host of a virtual machine may take back memory that has been free for seconds. To get it again costs time, which
    must not count for the pass that happens to write there first.
    """
    path, block = directory / "touched", bytes(MIB)
    with path.open("wb", buffering=0) as file:
        for _ in range(-(-size // MIB)):
            file.write(block)
    path.unlink()


def settings(limit_bytes: int = MEMORY_LIMIT_BYTES, sync: Sync = "never") -> dict[str, Any]:
    """Return the settings of every store of a pass."""
    return {"memory_limit": limit_bytes, "sync": sync}


def bodies(body_bytes: int, messages: int) -> Iterator[bytes]:
    for at in islice(cycle(range(0, len(_NOISE) - body_bytes, _STRIDE_BYTES)), messages):
        yield _NOISE[at : at + body_bytes]
