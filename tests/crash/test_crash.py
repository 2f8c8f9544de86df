"""Power cuts and kills at every call that changes the disk: nothing confirmed is lost, nothing acknowledged comes back.

The model says what must, may and must not be there. See crashing.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from crash_workload import Mix, Model, Workload, found_in
from crashing import (
    FIRST_SEED,
    POWER_CUTS,
    SEEDS_APART,
    SYNC_MODES,
    CrashingWorkload,
    Left,
    Life,
    run_seeds,
    same,
    without_logs,
)
from inside import inside
from sampling import sampled
from simulated_disk import PowerCut, SimulatedDisk
from simulated_metadata import SimulatedMetadataStore

from forebay import Delivery, Forebay, StoreFailed
from forebay.dispatch.config.settings import SyncMode
from forebay.store.disk.layout import JOURNAL
from forebay.store.numbering import UNLIMITED

STATES = 14_000
"""Power cuts with sync="always", of which a short run takes half. The tests of this folder together examine more than
ten thousand states in the minutes that it may take, and others by the million in the soak."""
KILLS = 1_000
SHARES = 10
SHORT_SHARES = 5
SOAK_STATES = 1_000_000

DELETION_SEEDS = 40
DELETION_SOAK_SEEDS = 600
DELETION_SHARES = 4
SHORT_DELETION_SHARES = 1
DELETION_CUTS = 4
DELETION_WEIGHTS = {"send": 4, "send_many": 1, "take": 6, "ack": 3, "ack_any": 3, "cleanup": 3, "reopen": 3}
"""Each open begins a data log, so that most hold acks for others."""


@pytest.fixture(autouse=True)
def _without_logs() -> Iterator[None]:
    with without_logs():
        yield


class Queues(CrashingWorkload[Model]):
    """Queues, sent to and taken from one call at a time."""

    kill_share = 0.05
    index_damaged_share = 0.05
    power_cuts = (*POWER_CUTS, PowerCut.STALE)
    cuts_power_too = looks_once = True
    going_on_share = 0.02
    steps = (5, 80)
    later_steps = (1, 20)

    def __init__(
        self, seed: int, sync: SyncMode = "always", *, transaction_adds: int = UNLIMITED, **fields: Any
    ) -> None:
        super().__init__(seed, sync, **fields)
        self._transaction_adds = transaction_adds
        self.mix = Mix.draw(seed)

    def new_metadata(self) -> SimulatedMetadataStore:
        return SimulatedMetadataStore(transaction_adds=self._transaction_adds)

    def new_model(self) -> Model:
        return Model()

    def settle(self, bay: Forebay, model: Model) -> None:
        model.settle(found_in(bay))

    def worker(self, life: Life[Model]) -> Callable[[], object]:
        def step() -> None:
            workload.step()
            assert self.sync != "always" or len(set(model.ids)) == len(model.ids), "an id was given twice"

        model = life.model
        reopen = partial(self.reopen, life)
        workload = Workload(self.mix, self.random, model, life.bay, reopen=reopen, advance=life.clock.advance)
        return step

    def check(self, left: Left, model: Model) -> None:
        image, bay, found = self._recovered(left.disk, left.metadata, left.is_damaged)
        if self.sync == "always" or not self.cuts_power:
            model.check(found)
        else:
            model.check_prefix(found)
        if self.random.random() < 0.1:
            self.place += " again"
            inside(bay).index._check()
            inside(bay).audit()
            model.settle(found)
            model.check(self._recovered(image.crash_process(), same(left.metadata), left.is_damaged)[2])
            # What recovery showed must not vanish in a power cut that follows.
            cut = image.crash_power(self.random, PowerCut.SYNCED)
            model.check(self._recovered(cut, left.metadata.crash(self.random), left.is_damaged)[2])

    def _recovered(
        self, image: SimulatedDisk, metadata: SimulatedMetadataStore, is_damaged: bool
    ) -> tuple[SimulatedDisk, Forebay, dict[str, list[Delivery]]]:
        bay = self.open(image, metadata)
        try:
            return image, bay, found_in(bay)
        except StoreFailed:
            if not is_damaged:
                raise
        # A block of the index turned out to be damaged only when it was needed: the next open rebuilds it.
        image = image.crash_process()
        bay = self.open(image, metadata)
        return image, bay, found_in(bay)


class KilledQueues(Queues):
    """The process is killed, and the power stays."""

    kill_share = 0.5
    cuts_power = False


class Deletions(Queues):
    """Crashes while data logs are deleted, and nowhere else."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.mix = replace(self.mix, weights=DELETION_WEIGHTS)

    def is_looked_at(self, call: str, name: str) -> bool:
        return call in ("remove", "sync_directory") and name.startswith(JOURNAL)

    def crashes(self, disk: SimulatedDisk, metadata: SimulatedMetadataStore) -> Iterator[Left]:
        place = self.place
        for _ in range(DELETION_CUTS):
            self.place = place
            yield from super().crashes(disk, metadata)


@pytest.mark.parametrize("share", sampled(range(SHARES), SHORT_SHARES))
def test_power_cut_at_any_call_loses_nothing_confirmed(share: int) -> None:
    run_seeds(Queues, FIRST_SEED + share * SEEDS_APART, power_cuts=STATES // SHARES)


@pytest.mark.parametrize("share", sampled(range(2), 1))
@pytest.mark.parametrize("sync", ["interval", "never"])
def test_power_cut_without_syncs_leaves_what_some_moment_left(sync: SyncMode, share: int) -> None:
    """Calls before the checkpoint have survived. Of later calls the newest are undone, in order."""
    run_seeds(lambda seed: Queues(seed, sync), FIRST_SEED + share * SEEDS_APART, power_cuts=STATES // SHARES // 2)


@pytest.mark.parametrize("share", sampled(range(2), 1))
@pytest.mark.parametrize("sync", SYNC_MODES)
def test_kill_at_any_call_loses_nothing_confirmed(sync: SyncMode, share: int) -> None:
    run_seeds(lambda seed: KilledQueues(seed, sync), FIRST_SEED + share * SEEDS_APART, kills=KILLS // 2)


@pytest.mark.parametrize("share", sampled(range(2), 1))
@pytest.mark.parametrize("options", [{"verify_on_open": True}, {"use_vectored_io": False}, {"transaction_adds": 1}])
def test_power_cut_loses_nothing_with_other_settings(options: dict[str, Any], share: int) -> None:
    first_seed = FIRST_SEED + share * SEEDS_APART
    run_seeds(lambda seed: Queues(seed, **options), first_seed, power_cuts=STATES // SHARES // 4)


def survive_deletions(seeds: range) -> None:
    left: set[int] = set()
    for seed in seeds:
        left |= Deletions(seed).run().left
    assert len(left) > len(seeds)


@pytest.mark.parametrize("share", sampled(range(DELETION_SHARES), SHORT_DELETION_SHARES))
def test_power_cut_while_data_logs_are_deleted_brings_back_nothing_acknowledged(share: int) -> None:
    """Messages may remain whose acks are deleted already. That is so rare that no other test meets it."""
    survive_deletions(range(FIRST_SEED + share, FIRST_SEED + DELETION_SEEDS, DELETION_SHARES))


@pytest.mark.soak
@pytest.mark.parametrize("share", range(DELETION_SHARES))
def test_soak_of_power_cuts_while_data_logs_are_deleted(share: int) -> None:
    first_seed = FIRST_SEED + SEEDS_APART + share
    survive_deletions(range(first_seed, first_seed + DELETION_SOAK_SEEDS, DELETION_SHARES))


@pytest.mark.soak
@pytest.mark.parametrize("share", range(SHARES))
@pytest.mark.parametrize("sync, states", [("always", SOAK_STATES), ("never", SOAK_STATES // 10)])
def test_soak_of_power_cuts(sync: SyncMode, states: int, share: int) -> None:
    """FOREBAY_SEED draws others than the last time."""
    first_seed = FIRST_SEED + (SHARES + share) * SEEDS_APART
    run_seeds(lambda seed: Queues(seed, sync), first_seed, power_cuts=states // SHARES)
