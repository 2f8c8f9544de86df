"""SimulatedBay: a Forebay on a simulated disk, without threads, that a test can close and open again."""

from __future__ import annotations

from random import Random
from typing import Any

from manual_clock import ManualClock
from simulated_disk import PowerCut, SimulatedDisk
from simulated_metadata import SimulatedMetadataStore

from forebay.dispatch.config.settings import Settings
from forebay.dispatch.core.target_list import TargetList
from forebay.dispatch.engine.engine import Engine
from forebay.dispatch.forebay import Forebay
from forebay.dispatch.queue import Queue


class _SyncedMetadataStore(SimulatedMetadataStore):
    """Keeps no history: nothing crashes here."""

    def commit(self, *args: Any, **fields: Any) -> None:
        super().commit(*args, **fields)
        self.synced()


class SimulatedBay:
    """Fields of Settings as keywords; `bay` and `engine` are the open ones, `reopen` makes new ones."""

    def __init__(self, seed: int = 0, **fields: Any) -> None:
        defaults: dict[str, Any] = {"background": False, "memory_limit": "4MiB", "sync": "never"}
        self._settings = Settings(**(defaults | fields))
        self.disk = SimulatedDisk()
        self.clock = ManualClock(seed)
        self._metadata = _SyncedMetadataStore()
        self._open()

    def _open(self) -> None:
        self.engine = Engine(self.disk, lambda store_id, cache_bytes: self._metadata, self._settings, self.clock)
        self.bay = Forebay(self.engine, None)

    def queue(self, name: str = "orders") -> Queue:
        return self.bay.queue(name)

    def reopen(self) -> None:
        self.bay.close()
        self._open()

    def crash(self, *, is_index_lost: bool = False) -> None:
        """The process is killed, and the next one opens what it left."""
        self.disk = self.disk.crash_process()
        if is_index_lost:
            self._metadata = _SyncedMetadataStore()
        self._open()

    def power_cut(self, random: Random, mode: PowerCut) -> None:
        """Power fails; what was not synced is there in part, as the mode says, and the index perhaps not at all."""
        self.disk = self.disk.crash_power(random, mode)
        if random.random() < 0.5:
            self._metadata = _SyncedMetadataStore()
        self._open()

    def lists(self) -> list[TargetList]:
        return list(self.engine.targets.lists)

    @property
    def reads(self) -> int:
        """Reads of the disk so far."""
        return self.disk.calls["read"]

    def check(self) -> None:
        """The ledger agrees with the live objects, and every structure with itself. O(everything)."""
        check_engine(self.engine)


def check_engine(engine: Engine) -> None:
    """See SimulatedBay.check."""
    engine.audit()
    for target in engine.targets.lists:
        target._check()
    engine.targets.pending_cache._check()
    engine.targets.head_queue_cache._check()
    engine.store.index._check()
    engine.overflow._check()
