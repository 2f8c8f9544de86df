"""Measure which share of their rate sends keep beside a thread that computes without a pause.

If another thread computes, a thread that gives up the interpreter lock gets it back only after the switch interval of
5 ms. So each call that releases the lock costs 5 ms, and a plain write loop falls to 200 calls a second.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from .host import bodies, opened
from .stopwatch import Facts

SECONDS_MAX: Final = 3.0
"""Most seconds for which sends go on beside the other thread."""


def contended(directory: Path, messages: int, body_bytes: int) -> Facts:
    """Return share, the rate of `send` beside the thread over the rate alone, and bare_share, that of `os.write`."""
    with opened(directory) as bay:
        queue = bay.queue("bench")
        alone = _rate(queue.send, messages, body_bytes)
        with _Computing():
            beside = _rate(queue.send, messages, body_bytes)
    descriptor = os.open(directory / "bare", os.O_CREAT | os.O_WRONLY)

    def write(body: bytes) -> None:
        os.write(descriptor, body)

    bare_alone = _rate(write, messages, body_bytes)
    with _Computing():
        bare_beside = _rate(write, messages, body_bytes)
    os.close(descriptor)
    return {"seconds": messages / beside, "share": beside / alone, "bare_share": bare_beside / bare_alone}


def _rate(send: Callable[[bytes], object], messages: int, body_bytes: int) -> float:
    begun = time.perf_counter()
    ends = begun + SECONDS_MAX
    sent = 0
    for body in bodies(body_bytes, messages):
        send(body)
        sent += 1
        if time.perf_counter() > ends:
            break
    return sent / (time.perf_counter() - begun)


class _Computing:
    """A thread that computes until the end of the `with` block."""

    def __enter__(self) -> None:
        self._is_over = False
        self._thread = threading.Thread(target=self._compute)
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        self._thread.join()

    def _compute(self) -> None:
        number = 0
        while not self._is_over:
            number = (number * 31 + 7) % 1_000_003
