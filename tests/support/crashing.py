"""The runner of all crash tests: work with a store, and at calls of its disk open what a crash would leave.

An explorer draws all choices from one seed. Before calls that change the disk, it forks the present state, cuts the
power or kills the process in the fork, and examines what is left. Some lives go on from there, recovery included, and
crash again. A failure names the class, its arguments and the place, and `CrashExplorer(seed, ...).run()` repeats it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar, cast

from inside import inside, open_forebay
from simulated_disk import PowerCut, SimulatedDisk
from simulated_metadata import SimulatedMetadataStore

from forebay import DestinationPolicy, Forebay, Settings
from forebay.dispatch.config.settings import SyncMode
from forebay.testing import ManualClock

FIRST_SEED = int(os.environ.get("FOREBAY_SEED", "1"))
SEEDS_APART = 1_000_000
"""Distance between the first seeds of two shares of one test."""

SYNC_MODES: tuple[SyncMode, ...] = ("always", "interval", "never")
POWER_CUTS = (*[PowerCut.ANY] * 5, PowerCut.STALE, PowerCut.EXTENDED, PowerCut.SYNCED, PowerCut.KEPT)
"""Modes of power cuts. A mode that occurs more often is drawn more often."""

SETTINGS = Settings(
    background=False,
    memory_limit="16MiB",
    index_cache_size="256KiB",
    max_file_length="64KiB",
    policies={">": DestinationPolicy(max_attempts=None)},
)
"""A small store, in which a few messages fill a data log."""


def same(metadata: SimulatedMetadataStore) -> SimulatedMetadataStore:
    """Return the index after a kill: all commits, some of which a power cut may still lose."""
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
    """Yield what a kill leaves now, and with sync "always" what each power cut leaves; last, how it came about.

    Of those with equal bytes only the first comes: where all is synced, every power cut leaves the disk of the kill.
    loses_index: one of the power cuts takes the index too.
    """
    seen: set[int] = set()
    for image, left, how in _crashes_at(disk, metadata, sync, random, modes, loses_index=loses_index):
        digest = digest_of(image, left)
        if digest not in seen:
            seen.add(digest)
            yield image, left, how


def _crashes_at(
    disk: SimulatedDisk,
    metadata: SimulatedMetadataStore,
    sync: SyncMode,
    random: Random,
    modes: Iterable[PowerCut],
    *,
    loses_index: bool,
) -> Iterator[tuple[SimulatedDisk, SimulatedMetadataStore, object]]:
    yield disk.crash_process(), same(metadata), "kill"
    if sync == "always":
        for mode in modes:
            yield disk.crash_power(random, mode), metadata.crash(random), mode
        if loses_index:
            yield disk.crash_power(random, PowerCut.SYNCED), SimulatedMetadataStore(), "index lost"


def digest_of(disk: SimulatedDisk, metadata: SimulatedMetadataStore) -> int:
    """Return a hash of all that the next open sees."""
    return hash((disk.recovery_digest(), metadata.digest()))


@contextmanager
def without_logs() -> Iterator[None]:
    """Switch logging off, because thousands of recoveries would spend most of their time on it."""
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


class Left(NamedTuple):
    """The disk and the index after a crash."""

    disk: SimulatedDisk
    metadata: SimulatedMetadataStore
    is_kill: bool
    """Whether the process was killed, so that no write is lost."""
    is_damaged: bool = False
    """Whether the index is damaged."""


F = TypeVar("F")


class CrashExplorer:
    """The exploration of one seed.

    A subclass does the work in `explore`, within `crashing`, to which it passes the function that examines a crash.
    """

    call_share = 1.0
    """Share of the calls that change the disk at which a crash is examined."""
    kill_share = 0.3
    """Share of the crashes that are kills; the others are power cuts."""
    index_lost_share = 0.0
    """Share of the crashes that leave no index."""
    index_damaged_share = 0.0
    """Share of the power cuts that leave a damaged index."""
    power_cuts = POWER_CUTS
    cuts_power = True
    cuts_power_too = False
    """Whether each kill is followed by a power cut at the same place."""
    cuts_synced = False
    """Whether the power is cut even if a cut would lose nothing."""
    looks_once = False
    """Whether equal states after power cuts are examined only once."""

    def __init__(self, seed: int, sync: SyncMode = "always", **fields: Any) -> None:
        """Make the explorer of a seed. fields: of Settings, in place of those in SETTINGS."""
        self.seed, self.sync = seed, sync
        self.random = Random(seed)
        self.settings = replace(SETTINGS, sync=sync, **fields)
        # The present place, which a failure names.
        self.place = ""
        # The place of a crash that the store did not survive.
        self.failed_place = ""
        # Numbers of examined states and kills.
        self.states = self.kills = 0
        # Digests of states after power cuts, if equal states are examined only once.
        self.left: set[int] = set()
        # By digest of what a crash left, what the next open found there.
        self._known: dict[int, object] = {}
        # Returns whether enough was examined, because one seed may have thousands of calls.
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

    def found(self, left: Left, look: Callable[[Forebay], F]) -> F:
        """Open what a crash left, and return what `look` finds there.

        What is equal byte by byte is recovered alike, so it is opened once: between two changes of the disk, a kill
        and a power cut that keeps all leave the same. `look` must depend on the store alone, and what it returns must
        not change.
        """
        clock = ManualClock(self.random.getrandbits(64))  # drawn for each, so that a seed goes one way
        digest = digest_of(left.disk, left.metadata)
        if digest not in self._known:
            self._known[digest] = look(self.open(left.disk, left.metadata, clock))
        return cast(F, self._known[digest])

    @contextmanager
    def crashing(
        self, disk: SimulatedDisk, metadata: Callable[[], SimulatedMetadataStore], examine: Callable[[Left], None]
    ) -> Iterator[None]:
        """Examine crashes at calls of this disk during the block."""

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
                # Keep the failure: the store may hide it, because failing background work is tried again.
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
        """Yield what crashes at this moment would leave."""
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

    A subclass says what a step does, announces the next state with `becoming`, and reads the state of a store.
    """

    kill_share = 0.5
    cuts_power_too = True
    index_lost_share = 0.3
    steps = 30

    def __init__(self, seed: int, sync: SyncMode, first: S, **fields: Any) -> None:
        """Make the walk of a seed. first: the state of a store after `begin`."""
        super().__init__(seed, sync, **fields)
        self.disk = SimulatedDisk(fills=True)
        # All states of the store so far, in order.
        self.history = [first]
        # The state that the call under way leads to.
        self._wanted: list[S] = []

    def begin(self, bay: Forebay) -> None:
        """Prepare a new store, before crashes are examined."""

    def step(self, bay: Forebay, number: int) -> None:
        raise NotImplementedError

    def state_of(self, bay: Forebay) -> S:
        raise NotImplementedError

    @contextmanager
    def becoming(self, state: S) -> Iterator[None]:
        """Announce that one call in the block brings the store into this state."""
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
        """Begin data logs or delete them, without changing the state. fills: the probability that they begin."""
        if self.random.random() < fills:
            bay.queue("orders").send(bytes(self.random.choice((100, 9_000))))
        else:
            bay.queue("orders").purge()
            bay.cleanup()

    def _examine(self, left: Left) -> None:
        found = self.found(left, self._audited_state_of)
        may_lose = self.sync != "always" and not left.is_kill
        expected = [*(self.history if may_lose else self.history[-1:]), *self._wanted]
        assert found in expected, f"{found} is none of {expected}"

    def _audited_state_of(self, bay: Forebay) -> S:
        found = self.state_of(bay)
        inside(bay).audit()
        return found


class Model(Protocol):
    """Knows what the store may, must and must not have."""

    def fork(self) -> Self: ...


M = TypeVar("M", bound=Model)


@dataclass
class Life(Generic[M]):
    """A store from its opening to the next crash."""

    disk: SimulatedDisk
    metadata: SimulatedMetadataStore
    model: M
    depth: int
    """1 on a new disk, and one more after each crash."""
    clock: ManualClock
    bay: Forebay = field(init=False)


class CrashingWorkload(CrashExplorer, Generic[M]):
    """A workload of steps with a model of what each step may leave. Some lives go on from what a crash left."""

    depth_max = 3
    going_on_share = 0.03
    """Share of the crashes from which a new life goes on."""
    steps = (20, 150)
    later_steps = (5, 40)
    """Least and most steps of a life after a crash."""

    def explore(self) -> None:
        self.live(SimulatedDisk(fills=True), self.new_metadata(), self.new_model(), 1)

    def new_metadata(self) -> SimulatedMetadataStore:
        return SimulatedMetadataStore()

    def live(self, disk: SimulatedDisk, metadata: SimulatedMetadataStore, model: M, depth: int) -> None:
        """Open a store and work, examining crashes in both. Calls in flight in the model are decided after the open."""
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

    # ------------------------------------------------------------------ for a subclass to define

    def new_model(self) -> M:
        raise NotImplementedError

    def worker(self, life: Life[M]) -> Callable[[], object]:
        """Return a function that does the next step in the store of a life."""
        raise NotImplementedError

    def reopen(self, life: Life[M]) -> Forebay:
        life.bay.close()
        life.bay = self.open(life.disk, life.metadata, life.clock)
        return life.bay

    def settle(self, bay: Forebay, model: M) -> None:
        """Tell the model the outcome of calls that were in flight."""
        raise NotImplementedError

    def check(self, left: Left, model: M) -> None:
        raise NotImplementedError

    def goes_on(self, left: Left, model: M) -> None:
        """Prepare the model for a life that goes on from a crash."""

    def between(self, life: Life[M]) -> None:
        """Check the store between steps, now and then, and at the end of a life."""


def run_seeds(
    explorer: Callable[[int], CrashExplorer],
    first_seed: int = FIRST_SEED,
    *,
    power_cuts: int = 0,
    kills: int = 0,
    states: int = 0,
) -> None:
    """Run seed after seed, until this many different power cuts, kills, or states were survived."""
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
