"""Helpers for tests of the writers: a store on a simulated disk, and the next one after a kill."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from journals import all_records
from message_stores import OpenStore
from simulated_disk import SimulatedDisk
from simulated_metadata import SimulatedMetadataStore

from forebay import StoreFull


def killed(opened: OpenStore, **fields: Any) -> OpenStore:
    """Return the store of the next process, which has nothing but the journal."""
    return OpenStore(disk_of(opened).crash_process(), SimulatedMetadataStore(), **fields)


@contextmanager
def refused_by_a_full_disk(opened: OpenStore) -> Iterator[None]:
    """Let the next write find no space. The block must raise StoreFull."""
    disk_of(opened).fail("write", 1, errno.ENOSPC)
    with pytest.raises(StoreFull):
        yield
    disk_of(opened).cure()


def number_of(kind: int, opened: OpenStore) -> int:
    """Return how many records of a kind the journal has."""
    return sum(record.header.kind == kind for _, record in all_records(disk_of(opened).crash_process()))


def disk_of(opened: OpenStore) -> SimulatedDisk:
    assert isinstance(opened.disk, SimulatedDisk)
    return opened.disk
