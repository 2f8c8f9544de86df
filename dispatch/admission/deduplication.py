"""DuplicateWindows: the ids of an engine that must not be stored again, of persistent messages and of the others.

No crash leaves a non-persistent message, so none leaves its id.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ...cache.budget import Holder
from ...cache.shares import Shares
from ...store.errors import TransactionError
from ...store.format.identity import DIGEST_BYTES, Identity
from ...store.index.deduplication import ID_CHARGE_BYTES, Deduplication
from ..config.policy import policy_for
from ..config.settings import Settings

if TYPE_CHECKING:
    from ..core.queue_area import QueueArea


class DuplicateWindows:
    """The state lock guards it."""

    def __init__(self, settings: Settings, holder: Holder, shares: Shares) -> None:
        self._max_file_bytes = settings.max_file_length_bytes

        def window_of(name: str) -> int:
            return policy_for(settings.policies, name).duplicate_window

        self.persistent = Deduplication(holder, window_of, self._most_bytes(shares))
        """The store's."""
        self.volatile = Deduplication(holder, window_of, self._most_bytes(shares))

    def _most_bytes(self, shares: Shares) -> int:
        """For either kind: half of their share, and no more than what a quarter of a data log restates."""
        most_ids = self._max_file_bytes // 4 // DIGEST_BYTES
        return min(shares.duplicates_bytes // 2, most_ids * ID_CHARGE_BYTES)

    def ask_for_room(self, make_room: Callable[[int], object]) -> None:
        """make_room: takes memory from others."""
        self.persistent.make_room = self.volatile.make_room = make_room

    def watch(self, area: QueueArea) -> None:
        """A queue or topic that is new to the engine: see whether what is sent there must not be stored twice."""
        self.volatile.see(area.number, area.name)
        area.is_watched = self.volatile.watches(area.number)

    def forget(self, area: QueueArea) -> None:
        """It is deleted, and the store knows that."""
        self.volatile.forget(area.number)

    def resize(self, shares: Shares) -> None:
        """Another memory limit."""
        self.persistent.resize(self._most_bytes(shares))
        self.volatile.resize(self._most_bytes(shares))

    def is_stored(self, found: Identity) -> bool:
        """Whether the message is in a window. TransactionError while a transaction has it and no outcome."""
        if self.persistent.decides(found) is not None:
            raise TransactionError("a transaction without an outcome has sent this message id: wait for it to end")
        return self.persistent.knows(found) or self.volatile.knows(found)

    @property
    def held_bytes(self) -> int:
        """Recomputed from what is there. O(windows)."""
        return self.persistent.held_bytes + self.volatile.held_bytes
