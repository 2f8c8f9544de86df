"""A store and its queue "orders", for tests that need no settings of their own."""

from __future__ import annotations

import pytest
from simulated_bay import SimulatedBay

from forebay import Queue


@pytest.fixture
def bay() -> SimulatedBay:
    return SimulatedBay()


@pytest.fixture
def queue(bay: SimulatedBay) -> Queue:
    return bay.queue()
