"""{queue, topic, durable subscription} x {send, ack} x {persistent, not} x {commit, rollback, prepare, crash}.

Whatever call of the disk a crash comes at, of each transaction there is all
that its records say, or nothing; of what no record has there is nothing; and
what is prepared waits. Before the crash every depth is right after each call.
`FOREBAY_BRANCH_STATES` says how many crashes the soak survives.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from functools import partial

import pytest
from branch_workload import COMBINATIONS, BranchWorkload, Model, check_state, deliverable_in, end
from crashing import FIRST_SEED, SEEDS_APART, SYNC_MODES, CrashingWorkload, Left, Life
from inside import inside
from simulated_disk import SimulatedDisk
from simulated_metadata import SimulatedMetadataStore

from forebay import Forebay
from forebay.dispatch.config.settings import SyncMode

STATES = 1_200
"""The states that are explored, and more until each combination was met."""
MOST_STATES = 6_000
SHARES = 2
SOAK_STATES = int(os.environ.get("FOREBAY_BRANCH_STATES", "100000"))


class Branches(CrashingWorkload[Model]):
    call_share = 0.15

    def __init__(self, seed: int, sync: SyncMode) -> None:
        super().__init__(seed, sync)
        self.seen: Counter[tuple[str, str, str, str]] = Counter()

    def new_model(self) -> Model:
        return Model()

    def settle(self, bay: Forebay, model: Model) -> None:
        model.settle(check_state(bay, model, self.seed, loses_unsynced=True))

    def worker(self, life: Life[Model]) -> Callable[[], object]:
        def step() -> None:
            workload.step()
            life.clock.advance(self.random.choice((0.0, 0.2, 2.0)))

        workload = BranchWorkload(self.seed, self.random, life.model, life.bay, partial(self.reopen, life))
        workload.seen = self.seen
        return step

    def between(self, life: Life[Model]) -> None:
        inside(life.bay).audit()

    def goes_on(self, left: Left, model: Model) -> None:
        model.has_lost |= self._loses_unsynced(left)
        self._note(model)

    def _note(self, model: Model) -> None:
        self.seen.update((*part, "crash") for part in model.open_parts)

    def _loses_unsynced(self, left: Left) -> bool:
        return not left.is_kill and self.sync != "always"

    def check(self, left: Left, model: Model) -> None:
        random, image = self.random, left.disk
        self._note(model)
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
        assert deliverable_in(bay, self.seed) == model.now.pending
        inside(bay).audit()
        bay = self.open(image.crash_process(), SimulatedMetadataStore())
        check_state(bay, model, self.seed, loses_unsynced=False)


def survive(first_seed: int, states: int) -> None:
    """Seed after seed in each sync mode, until that many crashes were survived and each combination was met."""
    seed, survived = first_seed, 0
    seen: Counter[tuple[str, str, str, str]] = Counter()
    while survived < states or (seen.keys() != COMBINATIONS and survived < MOST_STATES):
        for sync in SYNC_MODES:
            run = Branches(seed, sync).run()
            survived += run.states
            seen += run.seen
        seed += 1
    print(f"seeds {first_seed} to {seed - 1}: {survived} states")
    assert seen.keys() == COMBINATIONS, f"never met: {sorted(COMBINATIONS - seen.keys())}"


def test_crash_at_any_call_leaves_all_that_records_say_of_a_transaction_or_nothing() -> None:
    survive(FIRST_SEED, STATES)


@pytest.mark.soak
@pytest.mark.parametrize("share", range(SHARES))
def test_soak_of_crashes_in_transactions_over_everything(share: int) -> None:
    survive(FIRST_SEED + (share + 1) * SEEDS_APART, SOAK_STATES // SHARES)
