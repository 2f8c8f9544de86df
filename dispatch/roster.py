"""Roster: what it costs in RAM that destinations and subscriptions exist, idle or not.

Each is rows and records on disk and a few objects here; 256 bytes are charged
for it, whatever waits in it. Nothing here survives a crash: an open charges
again for all that exist.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from ..cache.budget import Holder
from ..store.errors import SettingsError, StoreFull

if TYPE_CHECKING:
    from .engine import Engine

ENTRY_BYTES: Final = 256
ROSTER_SHARE: Final = 0.5
"""Most of what the fixed parts leave; the rest is for messages."""


class Roster:
    """The state lock guards it."""

    def __init__(self, engine: Engine, holder: Holder) -> None:
        self._engine = engine
        self.holder = holder

    @contextmanager
    def one_more(self) -> Iterator[None]:
        """Around the making of a destination or subscription. StoreFull: memory has no room for it."""
        targets = self._engine.targets
        room_bytes = int(targets.shares.available_bytes * ROSTER_SHARE) - self.holder.held_bytes
        if room_bytes >= ENTRY_BYTES:
            targets.make_room(ENTRY_BYTES, None)
        if room_bytes < ENTRY_BYTES or not self.holder.reserve(ENTRY_BYTES):
            raise StoreFull(ENTRY_BYTES, max(min(room_bytes, targets.budget.free_bytes), 0), "memory_limit")
        try:
            yield
        except BaseException:
            self.holder.release(ENTRY_BYTES)
            raise

    def one_less(self) -> None:
        self.holder.release(ENTRY_BYTES)

    def restore(self) -> None:
        """Charge for what opening found. SettingsError: the limit is too low for so many."""
        charge = self.audit()
        if charge > self._engine.targets.shares.available_bytes * ROSTER_SHARE or not self.holder.reserve(charge):
            raise SettingsError(
                f"memory_limit has no room for the {charge // ENTRY_BYTES:,} destinations and subscriptions of this "
                f"store, which take {charge:,} bytes and at most half of what its fixed parts leave: raise it"
            )

    def audit(self) -> int:
        """What the charge should be."""
        engine = self._engine
        subscriptions = engine.store.subscriptions.by_number
        return ENTRY_BYTES * (len(engine.queues) + len(engine.topics.areas) + len(subscriptions))
