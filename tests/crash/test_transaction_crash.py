"""Transactions cut at every call that changes the disk: all of each, or nothing; what was prepared waits.

A failure names its seed, and `CrashRun(seed, sync).run()` repeats it.
"""

from __future__ import annotations

import os
from random import Random

import pytest
from manual_clock import ManualClock
from simulated_disk import PowerCut, SimulatedDisk
from simulated_metadata import SimulatedMetadataStore
from transaction_workload import Model, Workload, check_state, deliverable_in, end

from forebay import DestinationPolicy, Forebay, Settings
from forebay.dispatch.config.settings import SyncMode
from forebay.dispatch.engine.engine import Engine

FIRST_SEED = int(os.environ.get("FOREBAY_SEED", "1"))
SEEDS = 60
SOAK_SEEDS = 2_000
CRASHES_MAX = 3
POWER_CUTS = (*[PowerCut.ANY] * 5, PowerCut.STALE, PowerCut.EXTENDED, PowerCut.SYNCED, PowerCut.KEPT)
SYNC_MODES: tuple[SyncMode, ...] = ("always", "interval", "never")


class CrashRun:
    """One seed's workload, cut at its calls; some go on from what was left, and are cut again."""

    def __init__(self, seed: int, sync: SyncMode) -> None:
        self._seed = seed
        self._sync = sync
        self._random = Random(seed)
        self._place = ""
        self.states = 0
        self._settings = Settings(
            background=False,
            memory_limit="16MiB",
            index_cache_size="256KiB",
            max_file_length="64KiB",
            sync=sync,
            policies={">": DestinationPolicy(max_attempts=None)},
        )

    def run(self) -> CrashRun:
        try:
            self._live(SimulatedDisk(), SimulatedMetadataStore(), Model(), 1)
        except Exception as error:
            raise AssertionError(f"seed {self._seed}, sync={self._sync}, {self._place}: {error!r}") from error
        return self

    def _open(self, disk: SimulatedDisk, metadata: SimulatedMetadataStore, clock: ManualClock | None = None) -> Forebay:
        clock = clock or ManualClock(self._random.getrandbits(64))
        return Forebay(Engine(disk, lambda store_id, cache_bytes: metadata, self._settings, clock), None)

    def _live(self, disk: SimulatedDisk, metadata: SimulatedMetadataStore, model: Model, crashes: int) -> None:
        random = self._random
        clock = ManualClock(random.getrandbits(64))

        def crash(call: str, name: str) -> None:
            if random.random() < 0.3:
                place, self._place = self._place, f"{self._place}/{call} {name}"
                self._crash(disk, metadata, model, crashes)
                self._place = place

        disk.on_call = crash
        bay = self._open(disk, metadata, clock)
        if crashes > 1:
            copy = self._open(disk.crash_process(), same(metadata))
            model.settle(check_state(copy, model, self._seed, loses_unsynced=True))

        def reopen() -> Forebay:
            nonlocal bay
            bay.close()
            bay = self._open(disk, metadata, clock)
            return bay

        workload = Workload(self._seed, random, model, bay, reopen)
        before = self._place
        for step in range(random.randint(20, 150) if crashes == 1 else random.randint(5, 40)):
            self._place = f"{before} step {step}"
            workload.step()
            clock.advance(random.choice((0.0, 0.2, 2.0)))
            if random.random() < 0.1:
                metadata.synced()
                bay._engine.audit()
        self._place = before
        disk.on_call = None

    def _crash(self, disk: SimulatedDisk, metadata: SimulatedMetadataStore, model: Model, crashes: int) -> None:
        random = self._random
        if random.random() < 0.3:
            self._place += " KILL"
            self._examine(disk.crash_process(), same(metadata), model, crashes, loses_unsynced=False)
        elif disk.has_unsynced:
            mode = random.choice(POWER_CUTS)
            self._place += f" {mode.name}"
            image, left = disk.crash_power(random, mode), metadata.crash(random)
            self._examine(image, left, model, crashes, loses_unsynced=self._sync != "always")

    def _examine(
        self,
        image: SimulatedDisk,
        metadata: SimulatedMetadataStore,
        model: Model,
        crashes: int,
        *,
        loses_unsynced: bool,
    ) -> None:
        random = self._random
        self.states += 1
        model = model.fork()
        if crashes < CRASHES_MAX and random.random() < 0.03:
            model.has_lost |= loses_unsynced
            self._live(image, metadata, model, crashes + 1)
            return
        bay = self._open(image, metadata)
        model.settle(check_state(bay, model, self._seed, loses_unsynced=loses_unsynced))
        if random.random() < 0.2:
            self._place += " rebuilt"
            bay = self._open(image.crash_process(), SimulatedMetadataStore())
            check_state(bay, model, self._seed, loses_unsynced=False)
        bay._engine.audit()
        bay._engine.store.index._check()
        if model.now.prepared:
            self._end_prepared(image.crash_process(), model)

    def _end_prepared(self, image: SimulatedDisk, model: Model) -> None:
        """What survived is given its outcome, which must hold as any other does, also after a loss of the index."""
        random = self._random
        self._place += " ended"
        bay = self._open(image, SimulatedMetadataStore())
        for xid, branch in sorted(model.now.prepared, key=lambda found: found[0]):
            end(bay, model, xid, branch, commits=random.random() < 0.5)
        if random.random() < 0.3:
            bay.cleanup()
        assert not bay.prepared()
        assert deliverable_in(bay, model, self._seed) == model.now.pending
        bay._engine.audit()
        bay = self._open(image.crash_process(), SimulatedMetadataStore())
        check_state(bay, model, self._seed, loses_unsynced=False)


def same(metadata: SimulatedMetadataStore) -> SimulatedMetadataStore:
    """What a killed process leaves of it."""
    fork = SimulatedMetadataStore()
    fork._history = metadata._history.copy()
    return fork


@pytest.mark.parametrize("sync", SYNC_MODES)
def test_crash_at_any_call_leaves_all_of_a_transaction_or_nothing(sync: SyncMode) -> None:
    states = sum(CrashRun(seed, sync).run().states for seed in range(FIRST_SEED, FIRST_SEED + SEEDS))
    assert states > 20 * SEEDS


def test_seed_in_which_parts_of_a_prepared_transaction_are_deleted_before_the_index_is_lost() -> None:
    CrashRun(210, "never").run()


@pytest.mark.soak
@pytest.mark.parametrize("sync", SYNC_MODES)
def test_soak_of_crashes_in_transactions(sync: SyncMode) -> None:
    seeds = range(FIRST_SEED + SEEDS, FIRST_SEED + SEEDS + SOAK_SEEDS)
    states = sum(CrashRun(seed, sync).run().states for seed in seeds)
    print(f"{seeds}, sync={sync}: {states} states")
