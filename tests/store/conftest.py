"""A store of messages on a simulated disk, for the tests of what it does as a whole."""

from __future__ import annotations

import pytest
from message_stores import OpenStore, WatchedIndex
from simulated_disk import SimulatedDisk


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


@pytest.fixture
def metadata() -> WatchedIndex:
    return WatchedIndex()


@pytest.fixture
def opened(disk: SimulatedDisk, metadata: WatchedIndex) -> OpenStore:
    return OpenStore(disk, metadata)
