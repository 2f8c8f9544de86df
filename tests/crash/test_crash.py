"""Power cuts and kills at every call that changes the disk: nothing confirmed is lost, nothing acknowledged comes back.

A seed draws a workload. Before each changing call of its disk the state of
just then is forked, the power cut or the process killed in the fork, and the
store opened again over what is left; the model says what must, may and must
not be there. Some go on from there, recovery included, and crash again. A
failure names its seed, and `CrashRun(seed, Tally()).run()` repeats it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import pytest
from crash_workload import Mix, Model, Workload, found_in
from manual_clock import ManualClock
from simulated_disk import PowerCut, SimulatedDisk
from simulated_metadata import SimulatedMetadataStore

from forebay import Delivery, DestinationPolicy, Forebay, Settings, StoreFailed
from forebay.dispatch.config.settings import SyncMode
from forebay.dispatch.engine.engine import Engine
from forebay.store.disk.layout import JOURNAL
from forebay.store.metadata.checksum import UNBOUNDED

STATES = 60_000
"""Power cuts with sync="always"; with the other modes and settings, the deletions and the kills, they are 100,000."""
KILLS = 2_000
SHARES = 10
SOAK_STATES = 1_000_000
FIRST_SEED = int(os.environ.get("FOREBAY_SEED", "1"))
SEEDS_APART = 1_000_000

POWER_CUTS = (*[PowerCut.ANY] * 5, PowerCut.STALE, PowerCut.STALE, PowerCut.EXTENDED, PowerCut.SYNCED, PowerCut.KEPT)
DELETION_SEEDS = 120
DELETION_CUTS = 4
DELETION_WEIGHTS = {"send": 4, "send_many": 1, "take": 6, "ack": 3, "ack_any": 3, "cleanup": 3, "reopen": 3}
"""Each open begins a data log, so that most hold acks for others."""
CRASHES_MAX = 3
"""One, one of what was recovered from it, and one more."""

SYNC_MODES: tuple[SyncMode, ...] = ("always", "interval", "never")
SETTINGS = {
    sync: Settings(
        background=False,
        memory_limit="16MiB",
        index_cache_size="256KiB",
        max_file_length="64KiB",
        sync=sync,
        policies={">": DestinationPolicy(max_attempts=None)},
    )
    for sync in SYNC_MODES
}


@pytest.fixture(autouse=True)
def _without_logs() -> Iterator[None]:
    """Recoveries by the thousand each say what they cut, which takes longer than cutting it."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@dataclass
class Tally:
    """What was survived: a power cut counts if it could take something away, and once for what it left."""

    power_cuts: set[int] = field(default_factory=set)
    kills: int = 0


class CrashRun:
    """One seed's workload, cut at its calls."""

    def __init__(
        self,
        seed: int,
        tally: Tally,
        *,
        sync: SyncMode = "always",
        with_power_cuts: bool = True,
        transaction_adds: int = UNBOUNDED,
        only_deletions: bool = False,
        **fields: Any,
    ) -> None:
        """only_deletions: crash while data logs are deleted, and nowhere else."""
        self._seed = seed
        self._tally = tally
        self._sync: SyncMode = sync
        self._with_power_cuts = with_power_cuts
        self._transaction_adds = transaction_adds
        self._only_deletions = only_deletions
        self._settings = replace(SETTINGS[sync], **fields)
        self._random = Random(seed)
        self._mix = Mix.draw(seed)
        if only_deletions:
            self._mix = replace(self._mix, weights=DELETION_WEIGHTS)
        self._left: set[int] = set()
        """What the power cuts of this run left; apart from the tally, so that a seed does the same in any company."""
        self._place = ""

    def run(self) -> None:
        try:
            metadata = SimulatedMetadataStore(transaction_adds=self._transaction_adds)
            self._live(SimulatedDisk(), metadata, Model(), 1)
        except Exception as error:
            raise AssertionError(f"seed {self._seed}, sync={self._sync}, {self._place}: {error!r}") from error

    def _live(self, disk: SimulatedDisk, metadata: SimulatedMetadataStore, model: Model, crashes: int) -> None:
        """Open and work, crashing at the calls of both. The model's calls in flight are decided once it is open."""
        random = self._random

        def crash(call: str, name: str) -> None:
            if self._only_deletions and not (call in ("remove", "sync_directory") and name.startswith(JOURNAL)):
                return
            place, self._place = self._place, f"{self._place}/{call} {name}"
            for _ in range(DELETION_CUTS if self._only_deletions else 1):
                self._crash(disk, metadata, model, crashes)
                self._place = place

        clock = ManualClock(random.getrandbits(64))
        disk.on_call = crash
        bay = self._open(disk, metadata, clock)
        model.settle(found_in(self._open(disk.crash_process(), _same(metadata))))

        def reopen() -> Forebay:
            nonlocal bay
            bay.close()
            bay = self._open(disk, metadata, clock)
            return bay

        workload = Workload(self._mix, random, model, bay, reopen=reopen, advance=clock.advance)
        before = self._place
        for step in range(random.randint(5, 80) if crashes == 1 else random.randint(1, 20)):
            self._place = f"{before} step {step}"
            workload.step()
            assert self._sync != "always" or len(set(model.ids)) == len(model.ids), "an id was given twice"
            if random.random() < 0.1:
                metadata.synced()
        self._place = before
        disk.on_call = None

    def _crash(self, disk: SimulatedDisk, metadata: SimulatedMetadataStore, model: Model, crashes: int) -> None:
        random = self._random
        if random.random() < (0.05 if self._with_power_cuts else 0.5):
            self._place += " KILL"
            self._tally.kills += 1
            self._examine(disk.crash_process(), _same(metadata), model, crashes)
        if self._with_power_cuts and disk.has_unsynced:
            mode = random.choice(POWER_CUTS)
            self._place += f" {mode.name}"
            image = disk.crash_power(random, mode)
            left_bytes = image.digest()
            if left_bytes not in self._left:
                self._left.add(left_bytes)
                self._tally.power_cuts.add(left_bytes)
                is_damaged = random.random() < 0.05
                left = metadata.crash(random, damaged=is_damaged)
                self._examine(image, left, model, crashes, is_damaged=is_damaged)

    def _examine(
        self,
        image: SimulatedDisk,
        metadata: SimulatedMetadataStore,
        model: Model,
        crashes: int,
        *,
        is_damaged: bool = False,
    ) -> None:
        random = self._random
        if crashes < CRASHES_MAX and not is_damaged and random.random() < 0.02:
            self._live(image, metadata, model.fork(), crashes + 1)
            return
        image, bay, found = self._recovered(image, metadata, is_damaged)
        if self._sync == "always" or not self._with_power_cuts:
            model.check(found)
        else:
            model.check_prefix(found)
        if random.random() < 0.1:
            self._place += " again"
            bay._engine.store.index._check()
            bay._engine.audit()
            again = model.fork()
            again.settle(found)
            again.check(self._recovered(image.crash_process(), _same(metadata), is_damaged)[2])
            # What recovery showed must not vanish in a power cut that follows.
            cut = image.crash_power(random, PowerCut.SYNCED)
            again.check(self._recovered(cut, metadata.crash(random), is_damaged)[2])

    def _recovered(
        self, image: SimulatedDisk, metadata: SimulatedMetadataStore, is_damaged: bool
    ) -> tuple[SimulatedDisk, Forebay, dict[str, list[Delivery]]]:
        bay = self._open(image, metadata)
        try:
            return image, bay, found_in(bay)
        except StoreFailed:
            if not is_damaged:
                raise
        # A block of the index turned out to be damaged only when it was needed: the next open rebuilds it.
        image = image.crash_process()
        bay = self._open(image, metadata)
        return image, bay, found_in(bay)

    def _open(self, disk: SimulatedDisk, metadata: SimulatedMetadataStore, clock: ManualClock | None = None) -> Forebay:
        clock = clock or ManualClock(self._random.getrandbits(64))
        return Forebay(Engine(disk, lambda store_id, cache_bytes: metadata, self._settings, clock), None)


def _same(metadata: SimulatedMetadataStore) -> SimulatedMetadataStore:
    """What a killed process leaves: all that was committed, with what a power cut may still take."""
    fork = SimulatedMetadataStore(transaction_adds=metadata._transaction_adds)
    fork._history = metadata._history.copy()
    return fork


def run_seeds(first_seed: int, *, sync: SyncMode, states: int, **options: Any) -> None:
    """Seed after seed, until that many different power cuts were survived."""
    tally = Tally()
    seed = first_seed
    while len(tally.power_cuts) < states:
        CrashRun(seed, tally, sync=sync, **options).run()
        seed += 1
    print(f"seeds {first_seed} to {seed - 1}, sync={sync}: {len(tally.power_cuts)} power cuts, {tally.kills} kills")


@pytest.mark.parametrize("share", range(SHARES))
def test_power_cut_at_any_call_loses_nothing_confirmed(share: int) -> None:
    run_seeds(FIRST_SEED + share * SEEDS_APART, sync="always", states=STATES // SHARES)


@pytest.mark.parametrize("sync", ["interval", "never"])
def test_power_cut_without_syncs_leaves_what_some_moment_left(sync: SyncMode) -> None:
    """What a checkpoint made durable is there, and of the rest the newest calls are undone, in order."""
    run_seeds(FIRST_SEED, sync=sync, states=STATES // SHARES)


@pytest.mark.parametrize("sync", SYNC_MODES)
def test_kill_at_any_call_loses_nothing_confirmed(sync: SyncMode) -> None:
    tally = Tally()
    seed = FIRST_SEED
    while tally.kills < KILLS:
        CrashRun(seed, tally, sync=sync, with_power_cuts=False).run()
        seed += 1


@pytest.mark.parametrize("options", [{"verify_on_open": True}, {"use_vectored_io": False}, {"transaction_adds": 1}])
def test_power_cut_loses_nothing_with_other_settings(options: dict[str, Any]) -> None:
    run_seeds(FIRST_SEED, sync="always", states=STATES // SHARES // 2, **options)


def test_power_cut_while_data_logs_are_deleted_brings_back_nothing_acknowledged() -> None:
    """Where messages are left of which the acks are deleted already: so rare that only this looks for it."""
    tally = Tally()
    for seed in range(FIRST_SEED, FIRST_SEED + DELETION_SEEDS):
        CrashRun(seed, tally, only_deletions=True).run()
    assert len(tally.power_cuts) > DELETION_SEEDS


@pytest.mark.soak
@pytest.mark.parametrize("share", range(SHARES))
@pytest.mark.parametrize("sync, states", [("always", SOAK_STATES), ("never", SOAK_STATES // 10)])
def test_soak_of_power_cuts(sync: SyncMode, states: int, share: int) -> None:
    """FOREBAY_SEED draws others than the last time."""
    run_seeds(FIRST_SEED + (SHARES + share) * SEEDS_APART, sync=sync, states=states // SHARES)
