"""DestinationOverhead: what it costs in RAM that destinations and subscriptions exist, idle or not.

Each is rows and records on disk and a few objects here, which are charged as
they were measured, whatever waits in it. Nothing here survives a crash: an
open charges again for all that exist.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from ...cache.budget import Holder
from ...store.errors import SettingsError, StoreFull
from .lists import TargetArea

QUEUE_BYTES: Final = 1152
GROUPS_BYTES: Final = 10_240
"""Of a queue that has, or had, messages with groups, beside the queue: who owns which, and what hands them out."""
TOPIC_BYTES: Final = 1664
SUBSCRIPTION_BYTES: Final = 768
"""That nobody reads, with what it keeps of one priority of its topic. Measured with tracemalloc over 10,000 of each."""


class DestinationOverhead:
    """The state lock guards it; every method requires it held."""

    def __init__(self, holder: Holder, target_area: TargetArea) -> None:
        self.holder = holder
        self._target_area = target_area

    @contextmanager
    def one_more(self, charge_bytes: int) -> Iterator[None]:
        """Charge for a destination or subscription while it is made. StoreFull: memory has no room for it."""
        target_area = self._target_area
        room_bytes = target_area.shares.destinations_bytes - self.holder.held_bytes
        if room_bytes >= charge_bytes:
            target_area.make_room(charge_bytes, None)
        if room_bytes < charge_bytes or not self.holder.reserve(charge_bytes):
            raise StoreFull(charge_bytes, max(min(room_bytes, target_area.budget.free_bytes), 0), "memory_limit")
        try:
            yield
        except BaseException:
            self.holder.release(charge_bytes)
            raise

    def one_less(self, charge_bytes: int) -> None:
        """Release the charge of a destination or subscription that is gone."""
        self.holder.release(charge_bytes)

    def restore(self, queues: int, topics: int, subscriptions: int, grouped: int) -> None:
        """Charge for what opening found. grouped: queues with groups. SettingsError: the limit is too low for all."""
        charge = overhead_bytes(queues, topics, subscriptions, grouped)
        if charge > self._target_area.shares.destinations_bytes or not self.holder.reserve(charge):
            raise SettingsError(
                f"memory_limit has no room for the {queues + topics + subscriptions:,} destinations and subscriptions "
                f"of this store, which take {charge:,} bytes and at most half of what its fixed parts leave: raise it"
            )


def overhead_bytes(queues: int, topics: int, subscriptions: int, grouped: int) -> int:
    """Return what so many destinations and subscriptions are charged; of the queues so many have groups."""
    return QUEUE_BYTES * queues + TOPIC_BYTES * topics + SUBSCRIPTION_BYTES * subscriptions + GROUPS_BYTES * grouped
