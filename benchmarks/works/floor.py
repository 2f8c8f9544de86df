"""The floor: the time that the machine needs for the parts of the work that no store can avoid.

The floor is printed beside the figures, so that a reader can tell a slow library from a slow machine.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Final

import forebay
from forebay.dispatch.config.sizes import KIB, MIB
from forebay.store.format.record import crc32

from .host import BATCH_MESSAGES, PRODUCERS, bodies
from .minimal import batches_cpu_seconds, durable_seconds, path_cpu_seconds, slices_cpu_seconds
from .syncing import BARE_SYNCS, bare_seconds

_FILE_BYTES: Final = 32 * MIB
_HEADER: Final = bytes(64)
_SLICES_MESSAGES: Final = 64 * BATCH_MESSAGES

_SAID: Final = ("", ", 4 headers", ", 4 headers, a selector for 1 %")
PATH: Final = "`send`, `take(1)`, `ack` of the least program, CPU"
SENT: Final = tuple(f"`send_many` of {BATCH_MESSAGES} of the least program{said}, CPU" for said in _SAID)
CROSSED: Final = tuple(f"`send_many`, `take`, `ack` of {BATCH_MESSAGES} of it{said}, CPU" for said in _SAID)
READ: Final = tuple(f"slices of {BATCH_MESSAGES} read back by the least program{said}, CPU" for said in _SAID)
"""Parts of the least programs: without headers, with four, and with a selector that names one of them."""


def floor(directory: Path, messages: int) -> dict[str, float]:
    """Return microseconds a message of 1 KiB for each part, by its name.

    times_bare: how many messages the least program stores durably in the time of one bare sync, as W3's row of as many
    tasks says it of ours.
    """
    body = os.urandom(KIB)
    batches = max(1, messages // BATCH_MESSAGES)
    noise = body * 1024
    lock = threading.Lock()

    def checksum() -> None:
        for _ in range(messages):
            crc32(body)

    def copy() -> None:
        for at in range(messages):
            noise[at & 0xFFFF : (at & 0xFFFF) + KIB]

    def locked_calls() -> None:
        def call() -> None:
            with lock:
                pass

        for _ in range(messages):
            call()

    def making() -> None:
        made = bodies(KIB, messages)
        while [forebay.Message(body) for body in islice(made, BATCH_MESSAGES)]:
            pass

    return {
        "one `os.write` of header and 1 KiB": _writing(directory, [_HEADER, body], messages, 1),
        "one `os.write` of 256 of them": _writing(directory, [_HEADER, body] * BATCH_MESSAGES, batches, BATCH_MESSAGES),
        "CRC-32 of 1 KiB": _timed(checksum, messages),
        "a new `bytes` of 1 KiB": _timed(copy, messages),
        "a `Message` of a new body, 256 in a list": _timed(making, messages),
        "a call that takes a lock": _timed(locked_calls, messages),
        PATH: _path_cpu(directory, messages),
        **_batches(directory, messages),
        **_slices(directory, messages),
    } | _durable(directory, messages)


def _batches(directory: Path, messages: int) -> dict[str, float]:
    """Return the CPU of the least program for batches, without headers, with four, and with a selector."""
    found: dict[str, float] = {}
    for number, (sending, whole) in enumerate(batches_cpu_seconds(directory, messages, KIB)):
        found[SENT[number]] = sending * 1e6 / messages
        found[CROSSED[number]] = whole * 1e6 / messages
    return found


def _slices(directory: Path, messages: int) -> dict[str, float]:
    """Return the CPU of the least program for reading messages back, without headers, with four, and by a scan."""
    few = min(messages, _SLICES_MESSAGES)
    found = slices_cpu_seconds(directory, few, KIB)
    return {name: seconds * 1e6 / few for name, seconds in zip(READ, found, strict=True)}


def _path_cpu(directory: Path, messages: int) -> float:
    return path_cpu_seconds(directory, messages, KIB) * 1e6 / messages


def _durable(directory: Path, messages: int) -> dict[str, float]:
    """Return the bare rates to which W3's rows are compared, and the rates of the least program."""
    syncs, sends = min(BARE_SYNCS, messages), max(messages // 4, PRODUCERS)
    before = bare_seconds(directory, syncs, KIB)
    wall, cpu = durable_seconds(directory, sends, KIB, PRODUCERS)
    bare = (before + bare_seconds(directory, syncs, KIB)) / (2 * syncs)
    return {
        "write and `fdatasync` of 1 KiB": bare * 1e6,
        f"durable `send` of {PRODUCERS} tasks of the least program": wall * 1e6 / sends,
        f"durable `send` of {PRODUCERS} tasks of the least program, CPU": cpu * 1e6 / sends,
        "times_bare": bare * sends / wall,
    }


def _writing(directory: Path, parts: list[bytes], calls: int, messages_a_call: int) -> float:
    """Return the time of joined writes into preallocated files, as a journal makes them, including preallocation."""

    def write() -> None:
        descriptor, left = -1, 0
        for call in range(calls):
            data = b"".join(parts)
            if left < len(data):
                if descriptor >= 0:
                    os.close(descriptor)
                descriptor = os.open(
                    directory / f"floor-{messages_a_call}-{call}", os.O_CREAT | os.O_EXCL | os.O_WRONLY
                )
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(descriptor, 0, _FILE_BYTES)
                left = _FILE_BYTES
            left -= os.write(descriptor, data)
        os.close(descriptor)

    return _timed(write, calls * messages_a_call)


def _timed(work: Callable[[], None], messages: int) -> float:
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1e6 / messages
