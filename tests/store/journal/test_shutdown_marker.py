"""The marker: it comes back whole, or is not there at all."""

from __future__ import annotations

import errno
from random import Random

import pytest
from simulated_disk import PowerCut, SimulatedDisk

from forebay.store.disk.layout import STATE_DIRECTORY
from forebay.store.journal.shutdown_marker import ShutdownMarker, read_shutdown_marker, write_shutdown_marker

NAME = f"{STATE_DIRECTORY}/mark"
OLD = ShutdownMarker(bytes(16), 6, 7 << 32 | 64, False)
NEW = ShutdownMarker(bytes(range(16)), 2**32 - 1, 2**64 - 1, True)


def marked(marker: ShutdownMarker = OLD) -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directory(STATE_DIRECTORY)
    write_shutdown_marker(disk, marker)
    return disk


def test_no_marker_is_none() -> None:
    assert read_shutdown_marker(SimulatedDisk()) is None


@pytest.mark.parametrize("marker", [OLD, NEW])
def test_marker_comes_back(marker: ShutdownMarker) -> None:
    assert read_shutdown_marker(marked(marker)) == marker


def test_marker_is_replaced() -> None:
    disk = marked()
    write_shutdown_marker(disk, NEW)
    assert read_shutdown_marker(disk) == NEW and list(disk.image()) == [NAME]


def test_a_written_marker_survives_every_power_cut() -> None:
    assert {read_shutdown_marker(image) for image in marked().every_power_cut()} == {OLD}


def test_power_cut_at_any_call_leaves_the_old_or_the_new_marker() -> None:
    disk = marked()
    found: set[ShutdownMarker | None] = set()

    def cut(call: str, name: str) -> None:
        for image in disk.every_power_cut():
            found.add(read_shutdown_marker(image))
            write_shutdown_marker(image, NEW)
            assert read_shutdown_marker(image) == NEW
        for seed in range(5):
            found.add(read_shutdown_marker(disk.crash_power(Random(seed), PowerCut.STALE)))

    disk.on_call = cut
    write_shutdown_marker(disk, NEW)
    assert found == {OLD, NEW}


def test_failure_of_any_call_leaves_the_old_marker_and_the_next_write_goes_through() -> None:
    calls = 0
    for nth in range(1, 100):
        disk = marked()
        disk.fail(None, nth, errno.EIO)
        try:
            write_shutdown_marker(disk, NEW)
        except OSError:
            calls += 1
        else:
            break
        disk.cure()
        assert read_shutdown_marker(disk) in (OLD, NEW)
        write_shutdown_marker(disk, NEW)
        assert read_shutdown_marker(disk) == NEW
    assert calls >= 6


def test_any_flipped_bit_or_cut_makes_it_no_marker() -> None:
    image = marked(NEW).image()[NAME]
    for at in range(len(image)):
        for bit in range(8):
            disk = marked(NEW)
            disk.flip_bit(NAME, at, bit)
            assert read_shutdown_marker(disk) is None, f"byte {at}, bit {bit}"
    for length in range(len(image)):
        disk = marked(NEW)
        disk.open(NAME).truncate(length)
        assert read_shutdown_marker(disk) is None, f"cut to {length} bytes"


def test_arbitrary_bytes_are_no_marker() -> None:
    random = Random(1)
    for _ in range(300):
        disk = SimulatedDisk()
        disk.make_directory(STATE_DIRECTORY)
        disk.open(NAME, create=True).append(random.randbytes(random.randrange(80)))
        assert read_shutdown_marker(disk) is None
