"""Measure opening after a close, a kill and the loss of the index, and the disk that stuck messages keep."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import forebay

from .host import opened, store_of
from .stopwatch import Facts

CLEANUPS: Final = 3
_BROKER: Final = "localhost"


def reopen(directory: Path, messages: int, fill: Callable[[forebay.Queue], None]) -> Facts:
    """Measure `open` over a backlog: kill_seconds, clean_seconds, index_lost_seconds.

    The process that stores them is killed by SIGKILL right after its last send.
    """
    child = os.fork()
    if child == 0:
        try:
            bay = opened(directory)  # with its threads, which end with the process
            fill(bay.queue("bench"))
            os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)  # the send failed: the parent sees another status than that of a kill
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, "the store was not filled"
    facts = {"kill_seconds": _open_seconds(directory, messages)}
    facts["clean_seconds"] = _open_seconds(directory, messages)
    shutil.rmtree(store_of(directory) / _BROKER / "kr-store")
    facts["index_lost_seconds"] = _open_seconds(directory, messages)
    return facts


def _open_seconds(directory: Path, messages: int) -> float:
    os.sync()
    begun = time.perf_counter()
    bay = opened(directory)
    seconds = time.perf_counter() - begun
    with bay:
        assert bay.queue("bench").depth == messages, "the store lost something"
    return seconds


def stuck(directory: Path, data_logs: int, body_bytes: int) -> Facts:
    """Leave one message in each data log: data_logs_written, data_logs_left, journal_bytes, live_bytes."""
    with opened(directory) as bay:
        queue, keeper = bay.queue("bench"), bay.queue("stuck")
        batch = [forebay.Message(os.urandom(body_bytes)) for _ in range(256)]
        with queue.subscribe() as consumer:
            written: set[int] = set()
            while len(written) <= data_logs:
                if (newest := _newest(directory)) not in written:
                    written.add(newest)
                    keeper.send(batch[0].body)
                queue.send_many(batch)
                left = len(batch)
                while left:
                    deliveries = consumer.take(left, timeout=30.0)
                    assert deliveries, "the queue ran dry"
                    consumer.ack(deliveries)
                    left -= len(deliveries)
        for _ in range(CLEANUPS):
            bay.cleanup()
        store = bay.statistics().store
        assert keeper.depth == len(written)
        return {
            "data_logs_written": len(written),
            "data_logs_left": store.data_logs,
            "journal_bytes": store.journal_bytes,
            "live_bytes": store.live_bytes,
        }


def _newest(directory: Path) -> int:
    names = (path.stem for path in (store_of(directory) / _BROKER / "journal").iterdir())
    return max(int(name.removeprefix("data-")) for name in names if name.startswith("data-"))
