"""Resizing: change the memory limit of a running store.

The new limit becomes the target of the ledger at once, so no charge above it is admitted any more. The limit itself
falls as memory is released. Lists and caches give memory back in the order of reclaim. Other memory is released in the
course of things: that of deliveries when they are settled, that of loads and checkpoints when they are done. The
housekeeper continues until the ledger is below the new limit. A resize is not on disk: each open uses the limit of its
settings.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Final

from ...cache.accounting import holder_names
from ...cache.accounting.budget import Budget
from ...cache.process.process_memory import return_free_memory
from ...store.checkpoint.checkpointer import Checkpointer
from ..admission.duplicate_windows import DuplicateWindows
from ..config.memory_plan import check_quotas, shares_of
from ..config.settings import AUTO, Settings
from ..core.areas.list_registry import ListRegistry
from ..core.memory.memory_statistics import MemoryStatistics
from ..core.memory.watermarks import Watermarks
from ..core.monitor import Monitor
from ..producer.sender_parts import SenderParts
from .index_fit import IndexFit

CHECKPOINTS_MAX: Final = 3
"""Most checkpoints that are made to shrink the index; under load each of them finds new dirty blocks."""
PAUSES_MAX: Final = 25
PAUSE_SECONDS: Final = 0.01
"""Loads under way end within milliseconds, so it is worth waiting for them."""


@dataclass(frozen=True, slots=True)
class ResizeReport:
    """The result of `Forebay.resize` when it returned."""

    limit_bytes: int
    """The present memory limit, as in statistics().memory: the requested one once it has settled; until then more."""
    held_bytes: int
    is_settled: bool
    """Whether the limit is the requested one. If not, it will be as soon as `awaited` memory is free."""
    awaited: dict[str, int]
    """Bytes by holder that must be released first and can't be taken away; names as in statistics().memory.holders."""
    seconds: float


class Resizing:
    """Changes the memory limit of a running store. There is one for each engine.

    Thread-safe: of two simultaneous calls, the later limit stays.
    """

    def __init__(
        self,
        *,
        monitor: Monitor,
        checkpointer: Checkpointer,
        index_fit: IndexFit,
        budget: Budget,
        list_registry: ListRegistry,
        watermarks: Watermarks,
        sender_parts: SenderParts,
        windows: DuplicateWindows,
        settings: Settings,
    ) -> None:
        self._monitor = monitor
        self._checkpointer = checkpointer
        self._index_fit = index_fit
        self._budget = budget
        self._list_registry = list_registry
        self._watermarks = watermarks
        self._sender_parts = sender_parts
        self._windows = windows
        # The present settings, with the memory limit of the last resize.
        self.settings = settings
        # Whether freed memory must still be given back to the system.
        self._is_lowered = False
        self.is_under_way = False
        # Whether the limit follows the machine. A resize to a number ends that.
        self.is_automatic = settings.memory_limit == AUTO

    def resize(self, memory_limit: Any) -> ResizeReport:
        """Set the memory limit for Forebay.resize; SettingsError if Settings refuses it. Requires: no lock."""
        is_automatic = memory_limit == AUTO
        report = self._resize(self.settings.memory_limit_bytes if is_automatic else memory_limit)
        self.is_automatic = is_automatic
        return report

    def follow(self, limit_bytes: int) -> int:
        """Set the limit that the machine asks for, unless the store is closed; return 1 if it was set.

        Requires: no lock.
        """
        if self._monitor.is_closed:
            return 0
        self._resize(limit_bytes)
        return 1

    def _resize(self, memory_limit: Any) -> ResizeReport:
        self._monitor.raise_if_closed()
        began = self._monitor.monotonic()
        settings = dataclasses.replace(self.settings, memory_limit=memory_limit)
        shares = check_quotas(shares_of(settings))
        with self._monitor.lock, self._monitor.while_open:
            self._is_lowered |= shares.limit_bytes < self._budget.limit_bytes
            self._index_fit.shares = shares
            self.is_under_way = True
            self.settings = settings
            self._sender_parts.limit_messages(settings.max_message_size_bytes, settings.memory_limit_bytes)
            self._budget.resize(shares.limit_bytes)
            self._watermarks.set_shares(shares)
            self._windows.resize(shares)
        self._complete()
        if self._is_lowered:
            return_free_memory()
        if self._monitor.deferred:
            self._monitor.run_deferred()
        with self._monitor.lock, self._monitor.all_or_broken:
            self._budget.approach_target()
            memory = MemoryStatistics.of(self._budget)
            awaited = self._awaited() if self.is_under_way else {}
            is_settled = not self.is_under_way
        return ResizeReport(
            memory.limit_bytes, memory.held_bytes, is_settled, awaited, self._monitor.monotonic() - began
        )

    def step(self) -> int:
        """Continue a change that is under way; return 1 if it is complete now, else 0. Requires: no lock."""
        return int(self.advance()) if self.is_under_way else 0

    def advance(self) -> bool:
        """Continue the change; return whether the new limit holds now. Requires: no lock."""
        self._index_fit.step()
        with self._monitor.lock, self._monitor.all_or_broken:
            is_settled = self._follow_budget()
        if is_settled and self._is_lowered:
            self._is_lowered = False
            return_free_memory()
        return is_settled

    def _complete(self) -> None:
        """Make checkpoints, and wait up to a quarter of a second for loads under way to end."""
        checkpoints = pauses = 0
        while not self.advance():
            with self._monitor.lock, self._monitor.while_open:
                is_index_awaited = holder_names.INDEX in self._awaited()
                is_read = self._list_registry.is_loading
            if is_index_awaited and checkpoints < CHECKPOINTS_MAX:
                checkpoints += 1
                self._checkpointer.checkpoint()
            elif is_read and pauses < PAUSES_MAX:
                pauses += 1
                self._monitor.wait(PAUSE_SECONDS)
            else:
                return

    def _follow_budget(self) -> bool:
        """Let the budget come closer to the new limit; return whether the change is complete. Requires: the lock."""
        budget = self._budget
        budget.approach_target()
        self.is_under_way = budget.limit_bytes > budget.target_bytes or any(self._index_fit.excess_bytes().values())
        return not self.is_under_way

    def _awaited(self) -> dict[str, int]:
        """Return the bytes that can't be taken away, by holder. Requires: the lock."""
        budget, misfits = self._budget, self._index_fit.excess_bytes()
        holders = budget.holders
        names = {name for name, more_bytes in misfits.items() if more_bytes > 0}
        if budget.free_bytes < 0 or min(misfits.values()) < 0:
            fixed = {holder_names.WRITE_BUFFERS, holder_names.ARCHIVE}  # the same under any limit
            names |= budget.holders.keys() - misfits.keys() - fixed
            share_bytes = self._index_fit.shares.destinations_bytes
            bounds = {
                holder_names.DESTINATIONS: share_bytes,
                holder_names.CONSUMERS: share_bytes,
                holder_names.CURVE: self._index_fit.shares.curve_bytes,
            }
            # Below its bound a holder need not shrink: the new limit has room for it.
            names -= {name for name, bound_bytes in bounds.items() if holders[name].held_bytes <= bound_bytes}
        held = {name: budget.held_by(name) for name in holders if name in names}
        return {name: held_bytes for name, held_bytes in held.items() if held_bytes}
