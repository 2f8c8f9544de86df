"""One runner for all crash tests: a store is worked on, and at calls of its disk what a crash would leave is opened.

An explorer draws everything from one seed. Before calls that change the disk
the state of just then is forked, the power cut or the process killed in the
fork, and what was left is examined; some lives go on from there, recovery
included, and crash again. A failure names the class, its arguments and the
place, and `Explorer(seed, ...).run()` repeats it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar

from inside import inside, open_forebay
from simulated_disk import PowerCut, SimulatedDisk
from simulated_metadata import SimulatedMetadataStore

from forebay import DestinationPolicy, Forebay, Settings
from forebay.dispatch.config.settings import SyncMode
from forebay.testing import ManualClock

FIRST_SEED = int(os.environ.get("FOREBAY_SEED", "1"))
SEEDS_APART = 1_000_000
"""Between the first seeds of two shares of one test."""

SYNC_MODES: tuple[SyncMode, ...] = ("always", "interval", "never")
POWER_CUTS = (*[PowerCut.ANY] * 5, PowerCut.STALE, PowerCut.EXTENDED, PowerCut.SYNCED, PowerCut.KEPT)
"""What a power cut may do, as often as it is drawn."""

SETTINGS = Settings(
    background=False,
    memory_limit="16MiB",
    index_cache_size="256KiB",
    max_file_length="64KiB",
    policies={">": DestinationPolicy(max_attempts=None)},
)
"""A small store, in which a few messages fill a data log."""


def same(metadata: SimulatedMetadataStore) -> SimulatedMetadataStore:
    """What a killed process leaves of it: all that was committed, with what a power cut may still take."""
    fork = SimulatedMetadataStore(transaction_adds=metadata._transaction_adds)
    fork.history = metadata.history.copy()
    return fork


def crashes_at(
    disk: SimulatedDisk,
    metadata: SimulatedMetadataStore,
    sync: SyncMode,
    random: Random,
    modes: Iterable[PowerCut] = (PowerCut.ANY, PowerCut.STALE, PowerCut.SYNCED, PowerCut.KEPT),
    *,
    loses_index: bool = True,
) -> Iterator[tuple[SimulatedDisk, SimulatedMetadataStore, object]]:
    """What a kill just now leaves, and where all is synced what each power cut does; last, how it came about.

    loses_index: one of the power cuts takes the index too.
    """
    yield disk.crash_process(), same(metadata), "kill"
    if sync == "always":
        for mode in modes:
            yield disk.crash_power(random, mode), metadata.crash(random), mode
        if loses_index:
            yield disk.crash_power(random, PowerCut.SYNCED), SimulatedMetadataStore(), "index lost"


@contextmanager
def without_logs() -> Iterator[None]:
    """Recoveries by the thousand each say what they cut, which takes longer than cutting it."""
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


class Left(NamedTuple):
    """What a crash leaves."""

    disk: SimulatedDisk
    metadata: SimulatedMetadataStore
    is_kill: bool
    """Nothing that was written is lost."""
    is_damaged: bool = False
    """The index is."""


class CrashExplorer:
    """One seed. A subclass says in `explore` what is done, and within `crashing` who examines what a crash leaves."""

    call_share = 1.0
    """Of the calls that change the disk, how many are looked at."""
    kill_share = 0.3
    """Of those, at how many the process is killed; at the others the power is cut."""
    index_lost_share = 0.0
    """Of the crashes, how many leave no index."""
    index_damaged_share = 0.0
    """Of the power cuts, how many leave a damaged one."""
    power_cuts = POWER_CUTS
    cuts_power = True
    cuts_power_too = False
    """The power is cut also where the process is killed."""
    cuts_synced = False
    """The power is cut also where that takes nothing away."""
    looks_once = False
    """What a power cut left is not examined again where another leaves the same bytes."""

    def __init__(self, seed: int, sync: SyncMode = "always", **fields: Any) -> None:
        """fields: of Settings, in the place of those of SETTINGS."""
        self.seed, self.sync = seed, sync
        self.random = Random(seed)
        self.settings = replace(SETTINGS, sync=sync, **fields)
        # Where it is just now, for a failure to name.
        self.place = ""
        # Where a crash was examined that is not survived.
        self.failed_place = ""
        # That were examined.
        self.states = self.kills = 0
        # Digests of what power cuts left, if the same is not to be looked at twice.
        self.left: set[int] = set()
        # Whether no more calls are to be looked at: one seed may have calls by the thousand.
        self.is_enough: Callable[[], bool] = lambda: False

    def run(self) -> Self:
        try:
            self.explore()
        except Exception as error:
            name = f"{type(self).__name__}({self.seed}, {self.sync!r})"
            raise AssertionError(f"{name}, {self.failed_place or self.place}: {error!r}") from error
        return self

    def explore(self) -> None:
        raise NotImplementedError

    def open(
        self, disk: SimulatedDisk, metadata: SimulatedMetadataStore, clock: ManualClock | None = None, **fields: Any
    ) -> Forebay:
        clock = clock or ManualClock(self.random.getrandbits(64))
        return open_forebay(disk, metadata, replace(self.settings, **fields) if fields else self.settings, clock)

    @contextmanager
    def crashing(
        self, disk: SimulatedDisk, metadata: Callable[[], SimulatedMetadataStore], examine: Callable[[Left], None]
    ) -> Iterator[None]:
        """Within it, calls of that disk are looked at."""

        failures: list[Exception] = []

        def crash(call: str, name: str) -> None:
            if failures or self.is_enough() or not self.is_looked_at(call, name):
                return
            place = self.place
            self.place = f"{place}/{call} {name}"
            try:
                for left in self.crashes(disk, metadata()):
                    self.states += 1
                    examine(left)
            except Exception as failure:
                # It passes through the store, and background work that fails is kept there and tried again.
                failures.append(failure)
                self.failed_place = self.failed_place or self.place
                raise
            self.place = place

        disk.on_call = crash
        try:
            yield
        finally:
            disk.on_call = None
            if failures:
                raise failures[0]

    def is_looked_at(self, call: str, name: str) -> bool:
        return self.call_share == 1.0 or self.random.random() < self.call_share

    def crashes(self, disk: SimulatedDisk, metadata: SimulatedMetadataStore) -> Iterator[Left]:
        """What crashes just now would leave."""
        random = self.random
        is_kill = random.random() < self.kill_share
        if is_kill:
            self.place += " KILL"
            self.kills += 1
            yield self._left(disk.crash_process(), same(metadata), is_kill=True)
        if not self.cuts_power or (is_kill and not self.cuts_power_too) or not (disk.has_unsynced or self.cuts_synced):
            return
        mode = random.choice(self.power_cuts)
        self.place += f" {mode.name}"
        image = disk.crash_power(random, mode)
        if self._is_new(image):
            is_damaged = self.index_damaged_share > 0 and random.random() < self.index_damaged_share
            left = metadata.crash(random, damaged=is_damaged)
            yield self._left(image, left, is_kill=False, is_damaged=is_damaged)

    def _is_new(self, image: SimulatedDisk) -> bool:
        if not self.looks_once:
            return True
        digest = image.digest()
        is_new = digest not in self.left
        self.left.add(digest)
        return is_new

    def _left(
        self, disk: SimulatedDisk, metadata: SimulatedMetadataStore, *, is_kill: bool, is_damaged: bool = False
    ) -> Left:
        if self.index_lost_share and self.random.random() < self.index_lost_share:
            self.place += " index lost"
            return Left(disk, SimulatedMetadataStore(), is_kill)
        return Left(disk, metadata, is_kill, is_damaged)


S = TypeVar("S")


class StateWalk(CrashExplorer, Generic[S]):
    """Steps in one store, reopened now and then. A crash leaves a state that the store had, or was about to have.

    A subclass says what a step does, and within `becoming` what that makes of the store. It reads the state of a store.
    """

    kill_share = 0.5
    cuts_power_too = True
    index_lost_share = 0.3
    steps = 30

    def __init__(self, seed: int, sync: SyncMode, first: S, **fields: Any) -> None:
        """first: the state of a store after `begin`."""
        super().__init__(seed, sync, **fields)
        self.disk = SimulatedDisk()
        # All that the store ever was, in order.
        self.history = [first]
        # What the call under way makes of it.
        self._wanted: list[S] = []

    def begin(self, bay: Forebay) -> None:
        """Prepare a new store, before crashes are looked at."""

    def step(self, bay: Forebay, number: int) -> None:
        raise NotImplementedError

    def state_of(self, bay: Forebay) -> S:
        raise NotImplementedError

    @contextmanager
    def becoming(self, state: S) -> Iterator[None]:
        """Within it, the store comes to be in that state, with one call."""
        self._wanted = [state]
        yield
        self._wanted = []
        self.history.append(state)

    def explore(self) -> None:
        disk, metadata = self.disk, SimulatedMetadataStore()
        bay = self.open(disk, metadata)
        self.begin(bay)
        with self.crashing(disk, lambda: metadata, self._examine):
            for number in range(self.steps):
                self.place = f"step {number}"
                self.step(bay, number)
                if self.random.random() < 0.15:
                    metadata.synced()
                if self.random.random() < 0.1:
                    bay.close()
                    bay = self.open(disk, metadata)
        assert self.state_of(bay) == self.history[-1]

    def fill_or_clean(self, bay: Forebay, fills: float) -> None:
        """Let data logs begin, or go, while the state stays. fills: the probability that they begin."""
        if self.random.random() < fills:
            bay.queue("orders").send(bytes(self.random.choice((100, 9_000))))
        else:
            bay.queue("orders").purge()
            bay.cleanup()

    def _examine(self, left: Left) -> None:
        bay = self.open(left.disk, left.metadata)
        found = self.state_of(bay)
        may_lose = self.sync != "always" and not left.is_kill
        expected = [*(self.history if may_lose else self.history[-1:]), *self._wanted]
        assert found in expected, f"{found} is none of {expected}"
        inside(bay).audit()


class Model(Protocol):
    """What the store may, must and must not have."""

    def fork(self) -> Self: ...


M = TypeVar("M", bound=Model)


@dataclass
class Life(Generic[M]):
    """A store from its opening to the next crash."""

    disk: SimulatedDisk
    metadata: SimulatedMetadataStore
    model: M
    depth: int
    """1: on a new disk; one more behind each crash."""
    clock: ManualClock
    bay: Forebay = field(init=False)


class CrashingWorkload(CrashExplorer, Generic[M]):
    """A workload of steps beside a model of what each may leave; some lives go on from what a crash left."""

    depth_max = 3
    going_on_share = 0.03
    """Of the crashes, how many are lived on from."""
    steps = (20, 150)
    later_steps = (5, 40)
    """Behind a crash."""

    def explore(self) -> None:
        self.live(SimulatedDisk(), self.new_metadata(), self.new_model(), 1)

    def new_metadata(self) -> SimulatedMetadataStore:
        return SimulatedMetadataStore()

    def live(self, disk: SimulatedDisk, metadata: SimulatedMetadataStore, model: M, depth: int) -> None:
        """Open and work, looking at calls of both. What the model has in flight is decided once the store is open."""
        random = self.random
        life = Life(disk, metadata, model, depth, ManualClock(random.getrandbits(64)))
        with self.crashing(disk, lambda: life.metadata, lambda left: self.examine(left, life)):
            life.bay = self.open(disk, metadata, life.clock)
            if depth > 1:
                self.settle(self.open(disk.crash_process(), same(metadata)), model)
            step = self.worker(life)
            before = self.place
            for number in range(random.randint(*(self.steps if depth == 1 else self.later_steps))):
                self.place = f"{before} step {number}"
                step()
                if random.random() < 0.1:
                    life.metadata.synced()
                    self.between(life)
        self.place = f"{before} end"
        self.between(life)
        self.place = before

    def examine(self, left: Left, life: Life[M]) -> None:
        model = life.model.fork()
        if life.depth < self.depth_max and not left.is_damaged and self.random.random() < self.going_on_share:
            self.goes_on(left, model)
            self.live(left.disk, left.metadata, model, life.depth + 1)
        else:
            self.check(left, model)

    # ------------------------------------------------------------------ what a subclass says

    def new_model(self) -> M:
        raise NotImplementedError

    def worker(self, life: Life[M]) -> Callable[[], object]:
        """What does one step after the other in that store."""
        raise NotImplementedError

    def reopen(self, life: Life[M]) -> Forebay:
        life.bay.close()
        life.bay = self.open(life.disk, life.metadata, life.clock)
        return life.bay

    def settle(self, bay: Forebay, model: M) -> None:
        """Tell the model what became of what was in flight."""
        raise NotImplementedError

    def check(self, left: Left, model: M) -> None:
        raise NotImplementedError

    def goes_on(self, left: Left, model: M) -> None:
        """Before a life that goes on from there."""

    def between(self, life: Life[M]) -> None:
        """Between steps, now and then, and at the end."""


def run_seeds(
    explorer: Callable[[int], CrashExplorer],
    first_seed: int = FIRST_SEED,
    *,
    power_cuts: int = 0,
    kills: int = 0,
    states: int = 0,
) -> None:
    """Seed after seed, until that many different power cuts, kills, or states were survived, and hardly more."""
    seed, left, killed, seen = first_seed, set[int](), 0, 0

    def is_enough() -> bool:
        if killed + run.kills < kills or seen + run.states < states:
            return False
        # Seeds begin alike: what one leaves first, others left too. The union costs O(power cuts), so it comes last.
        return len(left) + len(run.left) >= power_cuts and len(left | run.left) >= power_cuts

    while len(left) < power_cuts or killed < kills or seen < states:
        run = explorer(seed)
        run.is_enough = is_enough
        run.run()
        left |= run.left
        killed += run.kills
        seen += run.states
        seed += 1
    print(f"seeds {first_seed} to {seed - 1}: {len(left)} power cuts, {killed} kills, {seen} states")
