"""SimulatedBay: a Forebay on a simulated disk, without threads, that a test can close and open again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

from inside import Inside, open_forebay
from simulated_disk import PowerCut, SimulatedDisk
from simulated_metadata import SimulatedMetadataStore
from waiting_senders import TellingClock

from forebay.cache.process.shortage import MemoryFigures
from forebay.dispatch.config.settings import Settings
from forebay.dispatch.core.memory.memory_rule import MemoryRule
from forebay.dispatch.queue import Queue
from forebay.store.disk.disk import File


class _SyncedMetadataStore(SimulatedMetadataStore):
    """A SimulatedMetadataStore whose commits are durable at once, so it keeps no history."""

    def commit(self, *args: Any, **fields: Any) -> None:
        super().commit(*args, **fields)
        self.synced()


class SimulatedBay(Inside):
    """An open Forebay on a simulated disk: `bay`. `reopen` closes it and opens the store again.

    Keywords are the fields of Settings, memory_figures and memory_rule of open_forebay, and disk (None: a new one).
    """

    def __init__(self, seed: int = 0, **fields: Any) -> None:
        self._memory_figures: Callable[[], MemoryFigures | None] = fields.pop("memory_figures", lambda: None)
        self._memory_rule: MemoryRule | None = fields.pop("memory_rule", None)
        self.disk: SimulatedDisk = fields.pop("disk", None) or SimulatedDisk()
        defaults: dict[str, Any] = {"background": False, "memory_limit": "4MiB", "sync": "never"}
        self.settings_given = Settings(**(defaults | fields))
        self.clock = TellingClock(seed)
        self.metadata = _SyncedMetadataStore()
        self.open_again()

    def open_again(self, trace: File | None = None) -> None:
        self.bay = open_forebay(
            self.disk,
            lambda *_: self.metadata,
            self.settings_given,
            self.clock,
            trace=trace,
            memory_figures=self._memory_figures,
            memory_rule=self._memory_rule,
        )
        super().__init__(self.bay)

    def queue(self, name: str = "orders") -> Queue:
        return self.bay.queue(name)

    def reopen(self) -> None:
        self.bay.close()
        self.open_again()

    def crash(self, *, is_index_lost: bool = False) -> None:
        """Kill the process, and open the store that it left."""
        self.disk = self.disk.crash_process()
        if is_index_lost:
            self.metadata = _SyncedMetadataStore()
        self.open_again()

    def power_cut(self, random: Random, mode: PowerCut) -> None:
        """Cut the power, and open what is left: unsynced changes in part, as the mode says, and perhaps no index."""
        self.disk = self.disk.crash_power(random, mode)
        if random.random() < 0.5:
            self.metadata = _SyncedMetadataStore()
        self.open_again()

    def stored_blocks(self) -> list[list[tuple[int, int]]]:
        """Return the blocks of each lane in the index on disk, as runs."""
        snapshot = self.metadata.load()
        return [] if snapshot is None else list(snapshot.blocks.values())

    @contextmanager
    def full_memory(self, left_bytes: int = 0) -> Iterator[None]:
        """Keep all memory but left_bytes taken during the block, so that no cache can give anything back."""
        with self.lock:
            self.reclaim.make_room(self.budget.limit_bytes, None)
            holder, taken_bytes = self.budget.holders["browsers"], self.budget.free_bytes - left_bytes
            assert holder.reserve(taken_bytes)
        try:
            yield
        finally:
            with self.lock:
                holder.release(taken_bytes)

    @property
    def reads(self) -> int:
        """Number of reads of the disk so far."""
        return self.disk.calls["read"]

    @property
    def read_bytes(self) -> int:
        """Bytes that reads of the disk have returned so far."""
        return self.disk.read_bytes
