"""MemoryForebay: an open store on a disk in RAM, for the tests of hosts."""

from __future__ import annotations

from typing import Any, Final, Unpack

from ..store.disk.memory_disk import MemoryDisk
from ..store.environment.manual_clock import ManualClock
from .config.checks import check_seconds
from .config.settings import SettingsFields, settings_from
from .forebay import Forebay, engine_on_disk

DEFAULTS: Final[dict[str, Any]] = {"background": False, "memory_limit": "64MiB"}
"""No thread, and the same limit on every machine."""


class MemoryForebay(Forebay):
    """A `Forebay` without files and, by default, without threads. Time passes only when a test says so.

    fields: those of Settings; the defaults of `background` and `memory_limit` are False and 64MiB. clock: None: a
        ManualClock of its own; without background it `jumps`, so that no wait with a timeout takes real time. disk:
        None: an empty one. Raises SettingsError as forebay.open does, and its errors about the journal.
    """

    def __init__(
        self, clock: ManualClock | None = None, disk: MemoryDisk | None = None, **fields: Unpack[SettingsFields]
    ) -> None:
        self._fields: Final = {**DEFAULTS, **fields}
        settings = settings_from(None, self._fields)
        self.clock: Final = ManualClock(jumps=not settings.background) if clock is None else clock
        self.disk: Final = MemoryDisk() if disk is None else disk
        super().__init__(engine_on_disk(self.disk, self.clock, settings), None)

    def advance(self, seconds: float) -> int:
        """Let time pass, then do the background work that is due in this thread; return how many things were done."""
        check_seconds("seconds", seconds)
        end = self.clock.monotonic() + seconds
        done = 0
        with self._engine.monitor.lock:
            notes = self._engine.queue_parts.deadlines.next_notes()
        for at in notes:  # as a background thread would, because ack deadlines would pass later otherwise
            if at < end:
                self.clock.advance(max(at - self.clock.monotonic(), 0.0))
                done += self.step()
        self.clock.advance(max(end - self.clock.monotonic(), 0.0))
        return done + self.step()

    def reopen(self) -> MemoryForebay:
        """Close this one; return another one with the same settings that opened the same disk."""
        self.close()
        return MemoryForebay(self.clock, self.disk, **self._fields)

    def crash(self) -> MemoryForebay:
        """Return another one with the same settings and what the next process would find if this one were killed now.

        This one goes on unchanged on its own disk: close it, or forget it.
        """
        return MemoryForebay(self.clock, self.disk.copy(), **self._fields)

    def __enter__(self) -> MemoryForebay:
        return self
