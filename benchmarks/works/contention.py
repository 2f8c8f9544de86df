"""Sends beside a thread that computes without a pause: what is left of their rate.

A thread that gives up the interpreter lock gets it back after the switch
interval, 5 ms, if another one computes. So each call that waits for the
kernel costs that much, and a plain write loop falls to 200 a second.
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
"""Seconds for which sends go on beside the other thread, if they are not through before."""


def contended(directory: Path, messages: int, body_bytes: int) -> Facts:
    """share: the rate of `send` beside the thread over the rate alone. bare_share: the same of a plain `os.write`."""
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
    """A context manager: a thread that computes."""

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
