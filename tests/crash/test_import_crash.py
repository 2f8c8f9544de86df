"""Taking over, cut at every call that changes the disk: each message of each set comes, once, in order.

See crashing.py.
"""

from __future__ import annotations

import pytest
from crashing import FIRST_SEED, SYNC_MODES, CrashExplorer, Left, same
from import_sets import Row, bring, expected, pending, rows_of, stage
from inside import inside
from sampling import sampled
from simulated_disk import SimulatedDisk
from simulated_metadata import SimulatedMetadataStore

from forebay import Forebay
from forebay.dispatch.config.settings import SyncMode
from forebay.store.disk.layout import IMPORT, import_load_id
from forebay.store.ingest.manifest import PUBLISHED, find_load, publish

SEEDS = 6
SHARES = 3
SHORT_SHARES = 2
"""Shares of the seeds. A short run takes others in each mode of syncing, and so each seed in two modes."""
STATES_MAX = 250
"""Most states of one seed. Where lives go on after a crash during ingestion there may be thousands, for the soak."""
SOAK_SEEDS = 400
DEPTH_MAX = 4


class Imports(CrashExplorer):
    """A store with some messages, sets that come, an open that is cut at its calls and done again."""

    index_lost_share = 0.2

    def __init__(self, seed: int, sync: SyncMode) -> None:
        super().__init__(
            seed,
            sync,
            max_file_length="256KiB",
            max_checkpoint_adds=1024 if seed % 2 else 131_072,
            on_missing_data_log="refuse",
            policies={},
        )
        self._sets: dict[str, list[Row]] = {}
        self._slices = 0

    def explore(self) -> None:
        random = self.random
        disk, metadata = SimulatedDisk(), SimulatedMetadataStore()
        before = rows_of("before", random.choice((0, 1, 50)), random)
        bay = self.open(disk, metadata)
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
            bring(disk, load_id, *tasks, seed=self.seed, part_bytes_max=random.choice((20_000, 1 << 28)))
            self._sets[load_id] = [row for rows in tasks for row in rows]
        self._slices = sum(len(rows) if len(rows[0].body) > 20 else len(rows) // 50 for rows in self._sets.values())
        self._expected = expected(before, *self._sets.values())
        self._open_cut(disk.crash_process(), metadata, 1)

    def _open_cut(self, disk: SimulatedDisk, metadata: SimulatedMetadataStore, depth: int) -> None:
        """Open, and at some of its calls look what a crash would leave. All are looked at where there are few."""
        share = min(1.0, self.random.choice((10, 40)) / len(self._sets) / (20 + self._slices))

        def examine(left: Left) -> None:
            if depth < DEPTH_MAX and self.random.random() < 0.03:
                self._open_cut(left.disk, left.metadata, depth + 1)
                self.call_share = share
            else:
                self.found(left, lambda bay: self._check(bay, left.disk))

        self.call_share = share
        with self.crashing(disk, lambda: metadata, examine):
            bay = self.open(disk, metadata)
        self._check(bay, disk)
        self._go_on(bay, disk, metadata)

    def _check(self, bay: Forebay, disk: SimulatedDisk) -> None:
        assert not [report.problem for report in bay.recovery.imports if report.problem is not None]
        found = pending(bay)
        assert found == self._expected, difference(found, self._expected)
        assert not [name for name in disk.list(IMPORT) if name.startswith("part")], "parts are left"
        assert all(mark.is_done for mark in inside(bay).store.imports)
        inside(bay).audit()
        inside(bay).index._check()

    def _go_on(self, bay: Forebay, disk: SimulatedDisk, metadata: SimulatedMetadataStore) -> None:
        """Acknowledge, load again under the same ids, lose everything but the journal: nothing comes back."""
        random = self.random
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
            manifest = stage(image, load_id, [rows], seed=self.seed + 1)
            if random.random() < 0.5:
                publish(image, manifest)
        again = self.open(image, SimulatedMetadataStore() if random.random() < 0.5 else same(metadata))
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


def survived(seed: int, sync: SyncMode) -> int:
    """Run a seed; return how many crashes it survived."""
    imports = Imports(seed, sync)
    imports.is_enough = lambda: imports.states >= STATES_MAX
    return imports.run().states


@pytest.mark.parametrize("share", sampled(range(SHARES), SHORT_SHARES))
@pytest.mark.parametrize("sync", SYNC_MODES)
def test_crash_at_any_call_of_a_take_over_loses_and_doubles_nothing(sync: SyncMode, share: int) -> None:
    first_seed = FIRST_SEED + (SYNC_MODES.index(sync) + share) % SHARES * SEEDS // SHARES
    seeds = range(first_seed, first_seed + SEEDS // SHARES)
    assert sum(survived(seed, sync) for seed in seeds) > 10 * len(seeds)


@pytest.mark.soak
@pytest.mark.parametrize("sync", SYNC_MODES)
def test_soak_of_crashes_in_take_overs(sync: SyncMode) -> None:
    seeds = range(FIRST_SEED + SEEDS, FIRST_SEED + SEEDS + SOAK_SEEDS)
    states = sum(Imports(seed, sync).run().states for seed in seeds)
    print(f"{seeds}, sync={sync}: {states} states")
