"""TransactionMemory: the memory charge of all transactions, until each of them ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from ...cache.accounting.budget import Budget, Holder
from ...store.errors import StoreFull
from ..core.memory.reclaim import Reclaim

ROOM_BYTES: Final = 1 << 16
"""Bytes that the caches give up at once: one large step costs less than many small ones."""


class TransactionMemory:
    """The charge of all transactions of a store. The state lock guards it. Every method requires the state lock."""

    def __init__(self, holder: Holder, budget: Budget, reclaim: Reclaim) -> None:
        """holder: pays for all transactions.
        reclaim: gives room from lists and caches.
        """
        self._holder = holder
        self._budget = budget
        self._reclaim = reclaim

    def reserve(self, charge_bytes: int) -> bool:
        """Reserve memory, taken from the caches if needed; return whether there was room."""
        if self._holder.reserve(charge_bytes):
            return True
        self._reclaim.make_room(max(charge_bytes, ROOM_BYTES), None)
        return self._holder.reserve(charge_bytes)

    def charge(self, charge_bytes: int) -> None:
        """Reserve memory or raise StoreFull.

        This works even while the limit falls, because deliveries in flight may end with the transaction.
        """
        if not self.reserve(charge_bytes) and not self._holder.reserve_for_progress(charge_bytes):
            raise self._full(charge_bytes)

    def charge_sent(self, charge_bytes: int) -> None:
        """Reserve memory for what a transaction sends or raise StoreFull.

        What is kept for destinations with a reserve stays theirs, and nothing is charged above a falling limit.
        """
        if not self.reserve(charge_bytes):
            raise self._full(charge_bytes)

    @contextmanager
    def charged(self, charge_bytes: int) -> Iterator[None]:
        """Charge for what the block does, and release the charge if the block raises. StoreFull."""
        self.charge(charge_bytes)
        with self._released_if_it_raises(charge_bytes):
            yield

    @contextmanager
    def charged_sent(self, charge_bytes: int) -> Iterator[None]:
        """Charge for what the block sends, and release the charge if the block raises. StoreFull."""
        self.charge_sent(charge_bytes)
        with self._released_if_it_raises(charge_bytes):
            yield

    @contextmanager
    def _released_if_it_raises(self, charge_bytes: int) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self._holder.release(charge_bytes)
            raise

    def _full(self, charge_bytes: int) -> StoreFull:
        return StoreFull(charge_bytes, max(self._budget.free_bytes, 0), "memory_limit")

    def reserve_released(self, charge_bytes: int) -> bool:
        """Charge bytes that were just released. Return False if the limit was lowered meanwhile."""
        return self._holder.reserve_released(charge_bytes)

    def release(self, charge_bytes: int) -> None:
        """Release a charge."""
        self._holder.release(charge_bytes)
