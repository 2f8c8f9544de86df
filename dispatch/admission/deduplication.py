"""DuplicateWindows: the ids of an engine that must not be stored again, of persistent messages and of the others.

No crash leaves a non-persistent message, so none leaves its id. Ids for which memory has no room are counted, and the
log says so, each time that they have become twice as many.
"""

from __future__ import annotations

from collections.abc import Callable

from ...cache.budget import Holder
from ...cache.shares import Shares
from ...store.errors import TransactionError
from ...store.format.identity import DIGEST_BYTES, Identity, identity
from ...store.format.properties import own_identity
from ...store.index.deduplication import ID_CHARGE_BYTES, Deduplication
from ...store.late_log import LateLogger
from ..config.policies import Policies
from ..config.settings import Settings

logger = LateLogger("forebay.dispatch")


class DuplicateWindows:
    """The ids that must not be stored again. The state lock guards it."""

    def __init__(
        self,
        settings: Settings,
        policies: Policies,
        holder: Holder,
        shares: Shares,
        make_room: Callable[[int], object],
    ) -> None:
        """make_room: takes memory from others, under the state lock."""
        self._max_file_bytes = settings.max_file_length_bytes
        self._warned_of = 0
        """Ids that were forgotten when the log said so."""

        def window_of(name: str) -> int:
            return policies.of(name).duplicate_window

        self.persistent = Deduplication(holder, window_of, self._most_bytes(shares), make_room)
        """The store's."""
        self.non_persistent = Deduplication(holder, window_of, self._most_bytes(shares), make_room)

    def _most_bytes(self, shares: Shares) -> int:
        """Return the limit of either kind: half of the share, at most what a quarter of a data log restates."""
        most_ids = self._max_file_bytes // 4 // DIGEST_BYTES
        return min(shares.duplicates_bytes // 2, most_ids * ID_CHARGE_BYTES)

    def watch(self, number: int, name: str) -> bool:
        """Take a queue or topic in. Return whether its policy has a duplicate window."""
        self.non_persistent.register(number, name)
        return self.non_persistent.watches(number)

    def forget(self, number: int) -> None:
        """Drop a destination that is deleted. Requires: the store knows that."""
        self.non_persistent.forget(number)

    def resize(self, shares: Shares) -> None:
        """Follow another memory limit."""
        self.persistent.resize(self._most_bytes(shares))
        self.non_persistent.resize(self._most_bytes(shares))

    def is_stored(self, found: Identity) -> bool:
        """Return whether the message is in a window. TransactionError while a transaction has it and no outcome."""
        if self.persistent.decides(found) is not None:
            raise TransactionError("a transaction without an outcome has sent this message id: wait for it to end")
        return self.persistent.knows(found) or self.non_persistent.knows(found)

    @property
    def forgotten(self) -> int:
        """Ids that memory had no room for, before their window was full."""
        return self.persistent.forgotten + self.non_persistent.forgotten

    def warn(self) -> int:
        """Log that windows are shorter than they should be, where that got worse. Requires: no lock."""
        forgotten = self.forgotten
        if forgotten < max(2 * self._warned_of, 1):
            return 0
        self._warned_of = forgotten
        logger.warning(
            "%d message ids were forgotten before their duplicate_window was full, the oldest first: "
            "what is sent again with one of them is stored again. Raise memory_limit or lower duplicate_window",
            forgotten,
            event="duplicate_ids_forgotten",
        )
        return 1

    @property
    def held_bytes(self) -> int:
        """Recomputed from what is there. O(windows)."""
        return self.persistent.held_bytes + self.non_persistent.held_bytes


def identity_of(destination: int, properties: bytes) -> Identity | None:
    """Return what makes a message the same as another one sent to that destination. None: it has no id of its own."""
    found = own_identity(properties)
    return identity(destination, *found) if found is not None else None
