"""The crashes of storm.py: the depth of a queue is always the number of its messages."""

from __future__ import annotations

import pytest
from crashing import FIRST_SEED, SEEDS_APART, SYNC_MODES, CrashExplorer, Left, run_seeds
from simulated_disk import SimulatedDisk
from simulated_metadata import SimulatedMetadataStore
from storm import Storm

from forebay.dispatch.config.settings import SyncMode
from forebay.testing import ManualClock

STATES = 90
SOAK_STATES = 30_000


@pytest.mark.parametrize("sync", SYNC_MODES)
def test_depth_is_what_is_browsed_and_delivered_after_a_storm_of_crashes(sync: SyncMode) -> None:
    run_seeds(lambda seed: Storm(seed, sync), states=STATES)


class BackgroundWork(CrashExplorer):
    """Finds fault with whatever a crash inside background work leaves."""

    is_stepping = False

    def explore(self) -> None:
        disk, metadata, clock = SimulatedDisk(), SimulatedMetadataStore(), ManualClock()
        with self.crashing(disk, lambda: metadata, self.examine):
            bay = self.open(disk, metadata, clock)
            bay.queue("orders").send(b"x")
            clock.advance(1.0)
            self.is_stepping = True
            bay.step()
            self.is_stepping = False

    def examine(self, left: Left) -> None:
        assert not self.is_stepping, "not survived"


def test_a_crash_inside_background_work_is_judged_though_that_keeps_its_errors() -> None:
    with pytest.raises(AssertionError, match=r"BackgroundWork\(1, 'interval'\), .*not survived"):
        BackgroundWork(1, "interval").run()


@pytest.mark.soak
@pytest.mark.parametrize("sync", SYNC_MODES)
def test_soak_of_crashes_over_all_that_moves_messages(sync: SyncMode) -> None:
    """FOREBAY_SEED draws others than the last time."""
    run_seeds(lambda seed: Storm(seed, sync), FIRST_SEED + SEEDS_APART, states=SOAK_STATES)
