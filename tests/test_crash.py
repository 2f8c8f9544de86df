"""Power cuts and kills at every call that changes the disk: nothing confirmed is lost, nothing acknowledged comes back.

A seed draws a workload. Before each changing call of its disk the state of
just then is forked, the power cut or the process killed in the fork, and the
store opened again over what is left; the model says what must, may and must
not be there. Some go on from there and crash again. A failure names its seed:

    pytest tests/test_crash.py --crash-seed N
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Literal

import pytest
from crash_workload import Mix, Model, Workload, found_in
from manual_clock import ManualClock

from forebay import Forebay, Settings
from forebay.dispatch.engine import Engine
from forebay.store.metadata_store import MemoryMetadataStore
from forebay.store.simulated_disk import PowerCut, SimulatedDisk

POWER_CUTS = (*[PowerCut.ANY] * 5, PowerCut.STALE, PowerCut.STALE, PowerCut.EXTENDED, PowerCut.SYNCED, PowerCut.KEPT)
DEPTH_MAX = 3
"""A crash, a crash of what was recovered from it, and one more."""

SETTINGS = {
    sync: Settings(background=False, memory_limit="4MiB", max_file_length="64KiB", sync=sync)
    for sync in ("always", "interval", "never")
}
