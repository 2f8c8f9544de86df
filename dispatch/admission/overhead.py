"""DestinationOverhead: what it costs in RAM that destinations and subscriptions exist, idle or not.

Each is rows and records on disk and a few objects here, which are charged as
they were measured, whatever waits in it. Nothing here survives a crash: an
open charges again for all that exist.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from ...cache.budget import Holder
from ...store.errors import SettingsError, StoreFull

if TYPE_CHECKING:
    from ..engine.engine import Engine

QUEUE_BYTES: Final = 1152
TOPIC_BYTES: Final = 1664
SUBSCRIPTION_BYTES: Final = 768
"""That nobody reads, with what it keeps of one priority of its topic. Measured with tracemalloc over 10,000 of each."""
ROSTER_SHARE: Final = 0.5
"""Most of what the fixed parts leave; the rest is for messages."""


class DestinationOverhead:
    """The state lock guards it."""

    def __init__(self, engine: Engine, holder: Holder) -> None:
        self._engine = engine
        self.holder = holder

    @contextmanager
    def one_more(self, charge_bytes: int) -> Iterator[None]:
        """Around the making of a destination or subscription. StoreFull: memory has no room for it."""
        targets = self._engine.targets
        room_bytes = int(targets.shares.available_bytes * ROSTER_SHARE) - self.holder.held_bytes
        if room_bytes >= charge_bytes:
            targets.make_room(charge_bytes, None)
        if room_bytes < charge_bytes or not self.holder.reserve(charge_bytes):
            raise StoreFull(charge_bytes, max(min(room_bytes, targets.budget.free_bytes), 0), "memory_limit")
        try:
            yield
        except BaseException:
            self.holder.release(charge_bytes)
            raise

    def one_less(self, charge_bytes: int) -> None:
        self.holder.release(charge_bytes)

    def restore(self) -> None:
        """Charge for what opening found. SettingsError: the limit is too low for so many."""
        charge = self.audit()
        if charge > self._engine.targets.shares.available_bytes * ROSTER_SHARE or not self.holder.reserve(charge):
            raise SettingsError(
                f"memory_limit has no room for the {sum(self._counts()):,} destinations and subscriptions of this "
                f"store, which take {charge:,} bytes and at most half of what its fixed parts leave: raise it"
            )

    def audit(self) -> int:
        """What the charge should be."""
        queues, topics, subscriptions = self._counts()
        return QUEUE_BYTES * queues + TOPIC_BYTES * topics + SUBSCRIPTION_BYTES * subscriptions

    def _counts(self) -> tuple[int, int, int]:
        engine = self._engine
        return len(engine.queues), len(engine.topics.areas), len(engine.store.subscriptions.by_number)
