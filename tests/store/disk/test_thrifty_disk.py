"""ThriftyDisk: a call that finds no descriptor is made again after readers were given up."""

from __future__ import annotations

import errno
import os
from typing import Final

import pytest
from simulated_disk import SimulatedDisk

from forebay.store.disk.thrifty_disk import ThriftyDisk

NEEDING: Final = ("open", "create", "list", "sync_directory", "make_directory")
"""Calls that need a descriptor."""


class Shortage:
    """No descriptor is left until readers are given up."""

    def __init__(self, disk: SimulatedDisk, readers: int) -> None:
        self.disk = disk
        self.readers = readers
        self.asked = 0
        for call in NEEDING:
            disk.fail(call, 1, errno.EMFILE, sticky=True)

    def give_up(self) -> int:
        self.asked += 1
        if self.readers:
            self.disk.cure()
        return self.readers


@pytest.mark.parametrize("call", ["open", "create", "read", "list", "sync_directory", "make_directory"])
def test_a_call_is_made_again_after_readers_were_given_up(call: str) -> None:
    inner = SimulatedDisk()
    inner.make_directory("here")
    inner.open("here/file", create=True).append(b"x")
    shortage = Shortage(inner, readers=3)
    disk = ThriftyDisk(inner)
    disk.add_giver(shortage.give_up)
    if call == "open":
        disk.open("here/file")
    elif call == "create":
        disk.open("here/new", create=True)
    elif call == "read":
        assert disk.open_for_reading("here/file").read(0, 1) == b"x"
    elif call == "list":
        assert disk.list("here") == ["file"]
    else:
        getattr(disk, call)("here")
    assert shortage.asked == 1


def test_where_nothing_is_given_up_the_error_is_that_of_the_system() -> None:
    inner = SimulatedDisk()
    shortage = Shortage(inner, readers=0)
    disk = ThriftyDisk(inner)
    disk.add_giver(shortage.give_up)
    with pytest.raises(OSError, match=os.strerror(errno.EMFILE)):
        disk.list("")
    assert shortage.asked == 1


def test_other_errors_ask_for_no_reader() -> None:
    inner = SimulatedDisk()
    disk = ThriftyDisk(inner)
    asked = iter(range(1, 9))
    disk.add_giver(lambda: next(asked))
    with pytest.raises(FileNotFoundError):
        disk.open("missing")
    assert next(asked) == 1, "nobody was asked"
