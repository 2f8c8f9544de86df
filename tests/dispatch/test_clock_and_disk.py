"""forebay.open with a clock or a disk of the caller's."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from typing import Any

import pytest
from compiled import interpreted

import forebay
import forebay.aio
from forebay.store.disk.memory_disk import MemoryFile
from forebay.testing import ManualClock, MemoryDisk

SMALL: dict[str, Any] = {"memory_limit": "4MiB", "background": False}


class _FailingFile(MemoryFile):
    def sync(self) -> None:
        raise OSError(errno.EIO, "EIO", "as told")


class _FailingDisk(MemoryDisk):
    """Its files created from now on fail each sync."""

    is_failing = False

    def open(self, name: str, *, create: bool = False) -> MemoryFile:
        file = super().open(name, create=create)
        if self.is_failing:
            file.__class__ = _FailingFile
        return file


def test_a_disk_of_the_callers_keeps_messages_over_an_open() -> None:
    disk = MemoryDisk()
    with forebay.open(disk=disk, **SMALL) as bay:
        bay.queue("orders").send(b"kept")
    with forebay.open(disk=disk, **SMALL) as bay:
        assert bay.queue("orders").get(timeout=0.0).body == b"kept"


def test_a_directory_goes_by_the_callers_clock(tmp_path: Path) -> None:
    clock = ManualClock(start_ms=1_000_000_000_000)
    with forebay.open(tmp_path, clock=clock, **SMALL) as bay:
        orders = bay.queue("orders")
        orders.send(b"later", delay=10.0)
        with orders.subscribe() as consumer:
            assert not consumer.take()
            clock.advance(10.0)
            bay.step()
            [delivery] = consumer.take()
            assert delivery.timestamp == 1_000_000_000_000
    assert any(tmp_path.rglob("data-*.log")), "it is a directory as any other"


def test_a_loop_takes_both() -> None:
    async def main() -> None:
        disk, clock = MemoryDisk(), ManualClock(start_ms=1_000_000_000_000)
        async with forebay.aio.open(disk=disk, clock=clock, **SMALL) as bay:
            await (await bay.queue("orders")).send(b"x")
        assert disk.list("journal")

    asyncio.run(main())


def test_an_error_of_the_disk_fails_the_store_as_one_of_the_system() -> None:
    disk = _FailingDisk()
    disk.is_failing = True
    with pytest.raises(forebay.StoreFailed), forebay.open(disk=disk, **SMALL) as bay:
        bay.queue("orders").send(b"x")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({}, "name a directory, or give a disk"),
        ({"directory": "x", "disk": MemoryDisk()}, "give one of the two"),
        ({"disk": MemoryDisk(), "archive_directory": "elsewhere"}, "leave archive_directory out"),
        ({"disk": object()}, "disk must have the methods open, open_for_reading"),
        ({"disk": MemoryDisk(), "clock": object()}, "clock must have the methods monotonic"),
        ({"disk": MemoryDisk(), "clock": MemoryDisk()}, "clock must have the methods monotonic"),
    ],
)
def test_what_can_not_be_opened_is_refused_in_words(arguments: dict[str, Any], problem: str) -> None:
    with pytest.raises(forebay.SettingsError, match=problem):
        forebay.open(**arguments)


@interpreted("has no docstrings")
def test_what_a_disk_can_not_have_is_said_where_it_is_given() -> None:
    said = " ".join((forebay.open.__doc__ or "").split())
    for part in ("Nothing locks it", "replays the whole journal", "no status file", "neither Spark nor the command"):
        assert part in said
