"""The host program of a pass: how it opens its store, and the messages that come to it.

Bodies are random bytes, each a new object made in the measured loop, because
a broker gets its messages like that.
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
"""Tasks that send durably at the same time."""
WAIT_SECONDS: Final = 30.0
"""Seconds after which a take that waits fails the pass. Nothing measured comes near."""

_NOISE: Final = random.Random(42).randbytes(MIB)
_STRIDE_BYTES: Final = 977

Sync = Literal["always", "never"]


def opened(directory: Path, limit_bytes: int = MEMORY_LIMIT_BYTES, sync: Sync = "never") -> forebay.Forebay:
    return forebay.open(store_of(directory), **settings(limit_bytes, sync))


def store_of(directory: Path) -> Path:
    """Return where the store of a pass is; beside it is room for what the pass needs else."""
    return directory / "store"


def touch_memory(directory: Path, size: int) -> None:
    """Have the machine hold so much free memory that was in use just now.

    What has been free for seconds the host of a virtual machine may have
    taken back. To get it again costs 1.4 µs a KiB on the one of RESULTS.md,
    which is no work of the pass that happens to write there first.
    """
    path, block = directory / "touched", bytes(MIB)
    with path.open("wb", buffering=0) as file:
        for _ in range(-(-size // MIB)):
            file.write(block)
    path.unlink()


def settings(limit_bytes: int = MEMORY_LIMIT_BYTES, sync: Sync = "never") -> dict[str, Any]:
    """Return what every store of a pass is opened with."""
    return {"memory_limit": limit_bytes, "sync": sync}


def bodies(body_bytes: int, messages: int) -> Iterator[bytes]:
    for at in islice(cycle(range(0, len(_NOISE) - body_bytes, _STRIDE_BYTES)), messages):
        yield _NOISE[at : at + body_bytes]
