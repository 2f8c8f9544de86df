"""Transactions cut at every call that changes the disk: all of each, or nothing; what was prepared waits.

See crashing.py.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from crashing import FIRST_SEED, SYNC_MODES, CrashingWorkload, Left, Life
from inside import inside
from sampling import sampled
from simulated_disk import SimulatedDisk
from simulated_metadata import SimulatedMetadataStore
from transaction_workload import Model, Workload, check_state, deliverable_in, end

from forebay import Forebay
from forebay.dispatch.config.settings import SyncMode

SEEDS = 60
SHARES = 4
SHORT_SHARES = 1
SOAK_SEEDS = 2_000


class Transactions(CrashingWorkload[Model]):
    call_share = 0.3

    def new_model(self) -> Model:
        return Model()

    def settle(self, bay: Forebay, model: Model) -> None:
        model.settle(check_state(bay, model, self.seed, loses_unsynced=True))

    def worker(self, life: Life[Model]) -> Callable[[], object]:
        def step() -> None:
            workload.step()
            life.clock.advance(self.random.choice((0.0, 0.2, 2.0)))

        workload = Workload(self.seed, self.random, life.model, life.bay, partial(self.reopen, life))
        return step

    def between(self, life: Life[Model]) -> None:
        inside(life.bay).audit()

    def goes_on(self, left: Left, model: Model) -> None:
        model.has_lost |= self._loses_unsynced(left)

    def _loses_unsynced(self, left: Left) -> bool:
        return not left.is_kill and self.sync != "always"

    def check(self, left: Left, model: Model) -> None:
        random, image = self.random, left.disk
        bay = self.open(image, left.metadata)
        model.settle(check_state(bay, model, self.seed, loses_unsynced=self._loses_unsynced(left)))
        if random.random() < 0.2:
            self.place += " rebuilt"
            bay = self.open(image.crash_process(), SimulatedMetadataStore())
            check_state(bay, model, self.seed, loses_unsynced=False)
        inside(bay).audit()
        inside(bay).index._check()
        if model.now.prepared:
            self._end_prepared(image.crash_process(), model)

    def _end_prepared(self, image: SimulatedDisk, model: Model) -> None:
        """Give the prepared transactions their outcome. It must hold, also after a loss of the index."""
        random = self.random
        self.place += " ended"
        bay = self.open(image, SimulatedMetadataStore())
        for xid, branch in sorted(model.now.prepared, key=lambda found: found[0]):
            end(bay, model, xid, branch, commits=random.random() < 0.5)
        if random.random() < 0.3:
            bay.cleanup()
        assert not bay.prepared()
        assert deliverable_in(bay, model, self.seed) == model.now.pending
        inside(bay).audit()
        bay = self.open(image.crash_process(), SimulatedMetadataStore())
        check_state(bay, model, self.seed, loses_unsynced=False)


@pytest.mark.parametrize("share", sampled(range(SHARES), SHORT_SHARES))
@pytest.mark.parametrize("sync", SYNC_MODES)
def test_crash_at_any_call_leaves_all_of_a_transaction_or_nothing(sync: SyncMode, share: int) -> None:
    seeds = range(FIRST_SEED + share, FIRST_SEED + SEEDS, SHARES)
    assert sum(Transactions(seed, sync).run().states for seed in seeds) > 20 * len(seeds)


def test_seed_in_which_parts_of_a_prepared_transaction_are_deleted_before_the_index_is_lost() -> None:
    Transactions(210, "never").run()


@pytest.mark.soak
@pytest.mark.parametrize("sync", SYNC_MODES)
def test_soak_of_crashes_in_transactions(sync: SyncMode) -> None:
    seeds = range(FIRST_SEED + SEEDS, FIRST_SEED + SEEDS + SOAK_SEEDS)
    states = sum(Transactions(seed, sync).run().states for seed in seeds)
    print(f"{seeds}, sync={sync}: {states} states")
