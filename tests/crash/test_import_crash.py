"""Taking over, cut at every call that changes the disk: each message of each set comes, once, in order.

A failure names its seed, and `CrashRun(seed, sync).run()` repeats it.
"""

from __future__ import annotations

import os
from random import Random

import pytest
from import_sets import Row, bring, expected, pending, rows_of, stage
from manual_clock import ManualClock
from simulated_disk import PowerCut, SimulatedDisk
from simulated_metadata import SimulatedMetadataStore

from forebay import Forebay, Settings
from forebay.dispatch.config.settings import SyncMode
from forebay.dispatch.engine.engine import Engine
from forebay.store.disk.layout import IMPORT, import_load_id
from forebay.store.ingest.manifest import PUBLISHED, find_load, publish

FIRST_SEED = int(os.environ.get("FOREBAY_SEED", "1"))
SEEDS = 5
SOAK_SEEDS = 400
CRASHES_MAX = 4
POWER_CUTS = (*[PowerCut.ANY] * 5, PowerCut.STALE, PowerCut.EXTENDED, PowerCut.SYNCED, PowerCut.KEPT)
SYNC_MODES: tuple[SyncMode, ...] = ("always", "interval", "never")


class CrashRun:
    """One seed: a store with some messages, sets that come, an open that is cut at its calls and done again."""

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
            max_file_length="256KiB",
            sync=sync,
            max_checkpoint_adds=1024 if seed % 2 else 131_072,
            on_missing_data_log="refuse",
        )
        self._sets: dict[str, list[Row]] = {}
        self._slices = 0

    def run(self) -> CrashRun:
        try:
            self._run()
        except Exception as error:
            raise AssertionError(f"seed {self._seed}, sync={self._sync}, {self._place}: {error!r}") from error
        return self

    def _run(self) -> None:
        random = self._random
        disk, metadata = SimulatedDisk(), SimulatedMetadataStore()
        before = rows_of("before", random.choice((0, 1, 50)), random)
        bay = self._open(disk, metadata)
        for row in before:
            bay.queue(row.destination).send(row.body, priority=row.priority)
        bay.checkpoint()
        if random.random() < 0.7:
            bay.close()
        metadata.synced()
        for load_id in ("a", "b")[: random.choice((1, 2))]:
            count = random.choice((1, 10, 60, 200, 1500))
            tasks = [rows_of(f"{load_id}{task}", count, random) for task in range(random.choice((1, 2)))]
            if count == 1500:  # many in a slice
                tasks = [[row._replace(body=row.body[:20], timestamp=5) for row in rows] for rows in tasks]
            bring(disk, load_id, *tasks, seed=self._seed, part_bytes_max=random.choice((20_000, 1 << 28)))
            self._sets[load_id] = [row for rows in tasks for row in rows]
        self._slices = sum(len(rows) if len(rows[0].body) > 20 else len(rows) // 50 for rows in self._sets.values())
        self._expected = expected(before, *self._sets.values())
        self._open_cut(disk.crash_process(), metadata, 1)

    def _open(self, disk: SimulatedDisk, metadata: SimulatedMetadataStore) -> Forebay:
        clock = ManualClock(self._random.getrandbits(64))
        return Forebay(Engine(disk, lambda store_id, cache_bytes: metadata, self._settings, clock), None)

    def _open_cut(self, disk: SimulatedDisk, metadata: SimulatedMetadataStore, crashes: int) -> None:
        """Open, and at some of its calls look what a crash would leave. All are looked at where there are few."""
        random = self._random
        share = min(1.0, random.choice((10, 40)) / len(self._sets) / (20 + self._slices))
        place = self._place

        def crash(call: str, name: str) -> None:
            if random.random() < share:
                self._place = f"{place}/{call} {name}"
                self._crash(disk, metadata, crashes)

        disk.on_call = crash
        bay = self._open(disk, metadata)
        disk.on_call = None
        self._place = place
        self._check(bay, disk)
        self._go_on(bay, disk, metadata)

    def _crash(self, disk: SimulatedDisk, metadata: SimulatedMetadataStore, crashes: int) -> None:
        random = self._random
        if random.random() < 0.3:
            self._place += " KILL"
            image, left = disk.crash_process(), same(metadata)
        elif disk.has_unsynced:
            mode = random.choice(POWER_CUTS)
            self._place += f" {mode.name}"
            image, left = disk.crash_power(random, mode), metadata.crash(random)
        else:
            return
        self.states += 1
        if random.random() < 0.2:
            self._place += " index lost"
            left = SimulatedMetadataStore()
        if crashes < CRASHES_MAX and random.random() < 0.03:
            self._open_cut(image, left, crashes + 1)
        else:
            self._check(self._open(image, left), image)

    def _check(self, bay: Forebay, disk: SimulatedDisk) -> None:
        assert not [report.problem for report in bay.recovery.imports if report.problem is not None]
        found = pending(bay)
        assert found == self._expected, difference(found, self._expected)
        assert not [name for name in disk.list(IMPORT) if name.startswith("part")], "parts are left"
        assert all(mark.is_done for mark in bay._engine.store.imports)
        bay._engine.audit()
        bay._engine.store.index._check()

    def _go_on(self, bay: Forebay, disk: SimulatedDisk, metadata: SimulatedMetadataStore) -> None:
        """Acknowledge, load again under the same ids, lose everything but the journal: nothing comes back."""
        random = self._random
        if random.random() < 0.5:
            return
        left: dict[tuple[str, int], list[bytes]] = {}
        for name in bay.destinations():
            with bay.queue(name).subscribe(prefetch=0) as consumer:
                while taken := consumer.take(1_000_000):
                    for delivery in taken:
                        if random.random() < 0.7:
                            delivery.ack()
                        else:
                            left.setdefault((name, delivery.priority), []).append(delivery.body)
        if random.random() < 0.5:
            bay.cleanup()
        image = disk.crash_process()
        for load_id, rows in self._sets.items():
            assert find_load(image, load_id) is not None
            manifest = stage(image, load_id, [rows], seed=self._seed + 1)
            if random.random() < 0.5:
                publish(image, manifest)
        again = self._open(image, SimulatedMetadataStore() if random.random() < 0.5 else same(metadata))
        assert pending(again) == left
        assert not [name for name in image.list(IMPORT) if import_load_id(name, PUBLISHED)]


def difference(found: dict[tuple[str, int], list[bytes]], wanted: dict[tuple[str, int], list[bytes]]) -> str:
    """The first place of each lane where two differ, by the beginning of the body."""
    lines = []
    for lane in sorted(found.keys() | wanted.keys()):
        have, want = found.get(lane, []), wanted.get(lane, [])
        if have != want:
            at = next((n for n, (one, other) in enumerate(zip(have, want, strict=False)) if one != other), -1)
            lines.append(f"{lane}: {len(have)} of {len(want)}, first at {at}")
    return "; ".join(lines)


def same(metadata: SimulatedMetadataStore) -> SimulatedMetadataStore:
    """What a killed process leaves of it."""
    fork = SimulatedMetadataStore()
    fork._history = metadata._history.copy()
    return fork


@pytest.mark.parametrize("sync", SYNC_MODES)
def test_crash_at_any_call_of_a_take_over_loses_and_doubles_nothing(sync: SyncMode) -> None:
    states = sum(CrashRun(seed, sync).run().states for seed in range(FIRST_SEED, FIRST_SEED + SEEDS))
    assert states > 10 * SEEDS


@pytest.mark.soak
@pytest.mark.parametrize("sync", SYNC_MODES)
def test_soak_of_crashes_in_take_overs(sync: SyncMode) -> None:
    seeds = range(FIRST_SEED + SEEDS, FIRST_SEED + SEEDS + SOAK_SEEDS)
    states = sum(CrashRun(seed, sync).run().states for seed in seeds)
    print(f"{seeds}, sync={sync}: {states} states")
