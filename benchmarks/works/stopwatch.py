"""Stopwatch: measure the time, CPU, memory and disk writes of a stretch of a program."""

from __future__ import annotations

import gc
import re
import time
from pathlib import Path
from typing import Final

import psutil

from forebay.dispatch.config.sizes import KIB

_STATUS: Final = Path("/proc/self/status")
_FORGET_PEAK: Final = Path("/proc/self/clear_refs")

Facts = dict[str, float]
"""Facts of a pass by name: seconds, cpu_seconds, others_seconds, peak_bytes, written_bytes, and further ones."""


def others_share(facts: Facts) -> float:
    """Return the part of one core that others used during a pass; 0.0: its clock does not tell."""
    return facts["others_seconds"] / facts["seconds"] if "others_seconds" in facts else 0.0


class Stopwatch:
    """A context manager that measures wall time, and CPU time of this and all other processes.

    `facts` adds the bytes written and the peak of resident memory up to the call.
    """

    def __enter__(self) -> Stopwatch:
        gc.collect()
        _forget_peak()
        self._written = _written_bytes()
        self._busy = _machine_busy_seconds()
        self._cpu = time.process_time()
        self._wall = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self._wall = time.perf_counter() - self._wall
        self._cpu = time.process_time() - self._cpu
        self._busy = _machine_busy_seconds() - self._busy

    def facts(self) -> Facts:
        """Return the facts. Call this after the store is closed, because the writes of the close count too."""
        facts = {
            "seconds": self._wall,
            "cpu_seconds": self._cpu,
            "others_seconds": max(0.0, self._busy - self._cpu),
        }
        if self._written is not None:
            facts["written_bytes"] = (_written_bytes() or 0) - self._written
        if (peak := _peak_bytes()) is not None:
            facts["peak_bytes"] = peak
        return facts


def _machine_busy_seconds() -> float:
    """Return the CPU seconds that all processes used since the machine started, and those that its host withheld."""
    times = psutil.cpu_times()
    return sum(getattr(times, name, 0.0) for name in ("user", "nice", "system", "irq", "softirq", "steal"))


def _written_bytes() -> int | None:
    """Return the bytes of pages that this process has made dirty; None: the system does not count them."""
    counters = psutil.Process().io_counters() if hasattr(psutil.Process, "io_counters") else None
    written: int | None = getattr(counters, "write_bytes", None)
    return written


def _forget_peak() -> None:
    """Reset the peak of resident memory, so that an earlier stretch does not count."""
    try:
        _FORGET_PEAK.write_text("5", encoding="ascii")
    except OSError:
        pass  # another system, or a container without access


def _peak_bytes() -> int | None:
    """Return the peak of resident memory in bytes; None: the system does not keep it."""
    try:
        found = re.search(r"^VmHWM:\s*(\d+) kB$", _STATUS.read_text(encoding="ascii"), re.MULTILINE)
    except OSError:
        return None
    return int(found.group(1)) * KIB if found else None
