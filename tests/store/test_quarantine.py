"""The folder of what is set aside: whole copies, within a bound."""

from __future__ import annotations

import errno

import pytest
from simulated_disk import SimulatedDisk

from forebay.store.disk.layout import QUARANTINE
from forebay.store.quarantine import PART_BYTES_MAX, quarantine_bytes


@pytest.mark.parametrize(("call", "written_bytes"), [("write", 10), ("sync", 0), ("rename", 0)])
def test_a_copy_that_fails_leaves_nothing_behind(call: str, written_bytes: int) -> None:
    disk = SimulatedDisk()
    disk.fail(call, 1, errno.ENOSPC, written_bytes=written_bytes)
    with pytest.raises(OSError):
        quarantine_bytes(disk, f"{QUARANTINE}/damage", bytes(100))
    assert disk.list(QUARANTINE) == []


def test_part_is_bounded_and_taken_once() -> None:
    disk = SimulatedDisk()
    assert quarantine_bytes(disk, f"{QUARANTINE}/damage-1-64", bytes(PART_BYTES_MAX + 1))
    assert quarantine_bytes(disk, f"{QUARANTINE}/damage-1-64", b"again")
    assert disk.image() == {f"{QUARANTINE}/damage-1-64": bytes(PART_BYTES_MAX)}
