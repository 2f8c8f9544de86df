"""The mark: it comes back whole, or is not there at all."""

from __future__ import annotations

import errno
from random import Random

import pytest
from simulated_disk import PowerCut, SimulatedDisk

from forebay.store.disk.layout import STATE_DIRECTORY
from forebay.store.journal.marker import Mark, read_mark, write_mark

NAME = f"{STATE_DIRECTORY}/mark"
OLD = Mark(bytes(16), 6, 7 << 32 | 64, False)
NEW = Mark(bytes(range(16)), 2**32 - 1, 2**64 - 1, True)


def marked(mark: Mark = OLD) -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directory(STATE_DIRECTORY)
    write_mark(disk, mark)
    return disk


def test_no_mark_is_none() -> None:
    assert read_mark(SimulatedDisk()) is None


@pytest.mark.parametrize("mark", [OLD, NEW])
def test_mark_comes_back(mark: Mark) -> None:
    assert read_mark(marked(mark)) == mark


def test_mark_is_replaced() -> None:
    disk = marked()
    write_mark(disk, NEW)
    assert read_mark(disk) == NEW and list(disk.image()) == [NAME]


def test_a_written_mark_survives_every_power_cut() -> None:
    assert {read_mark(image) for image in marked().every_power_cut()} == {OLD}


def test_power_cut_at_any_call_leaves_the_old_or_the_new_mark() -> None:
    disk = marked()
    found: set[Mark | None] = set()

    def cut(call: str, name: str) -> None:
        for image in disk.every_power_cut():
            found.add(read_mark(image))
            write_mark(image, NEW)
            assert read_mark(image) == NEW
        for seed in range(5):
            found.add(read_mark(disk.crash_power(Random(seed), PowerCut.STALE)))

    disk.on_call = cut
    write_mark(disk, NEW)
    assert found == {OLD, NEW}


def test_failure_of_any_call_leaves_the_old_mark_and_the_next_write_goes_through() -> None:
    calls = 0
    for nth in range(1, 100):
        disk = marked()
        disk.fail(None, nth, errno.EIO)
        try:
            write_mark(disk, NEW)
        except OSError:
            calls += 1
        else:
            break
        disk.cure()
        assert read_mark(disk) in (OLD, NEW)
        write_mark(disk, NEW)
        assert read_mark(disk) == NEW
    assert calls >= 6


def test_any_flipped_bit_or_cut_makes_it_no_mark() -> None:
    image = marked(NEW).image()[NAME]
    for at in range(len(image)):
        for bit in range(8):
            disk = marked(NEW)
            disk.flip_bit(NAME, at, bit)
            assert read_mark(disk) is None, f"byte {at}, bit {bit}"
    for length in range(len(image)):
        disk = marked(NEW)
        disk.open(NAME).truncate(length)
        assert read_mark(disk) is None, f"cut to {length} bytes"


def test_arbitrary_bytes_are_no_mark() -> None:
    random = Random(1)
    for _ in range(300):
        disk = SimulatedDisk()
        disk.make_directory(STATE_DIRECTORY)
        disk.open(NAME, create=True).append(random.randbytes(random.randrange(80)))
        assert read_mark(disk) is None
