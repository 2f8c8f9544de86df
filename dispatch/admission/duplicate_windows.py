"""DuplicateWindows: the ids of persistent and non-persistent messages that must not be stored again.

Non-persistent messages end with the process, and so do their ids. Ids that are forgotten for want of memory are
counted; the log reports them each time their number has doubled.
"""

from __future__ import annotations

from collections.abc import Callable

from ...cache.accounting.budget import Holder
from ...cache.accounting.shares import Shares
from ...store.environment.late_log import LateLogger
from ...store.errors import TransactionError
from ...store.format.identity import DIGEST_BYTES, Identity, identity
from ...store.format.message_properties import own_identity
from ...store.index.deduplication import ID_CHARGE_BYTES, Deduplication
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
        """Make the windows of a store.

        make_room: takes memory from others, under the state lock.
        """
        self._max_file_bytes = settings.max_file_length_bytes
        # Number of forgotten ids at the last log message.
        self._warned_of = 0

        def window_of(name: str) -> int:
            return policies.of(name).duplicate_window

        # The windows of persistent messages, which the store shares.
        self.persistent = Deduplication(holder, window_of, self._limit_bytes(shares), make_room)
        self.non_persistent = Deduplication(holder, window_of, self._limit_bytes(shares), make_room)

    def _limit_bytes(self, shares: Shares) -> int:
        """Return the limit for each of the two: half of the share, and at most what a quarter of a data log can
        restate.
        """
        most_ids = self._max_file_bytes // 4 // DIGEST_BYTES
        return min(shares.duplicates_bytes // 2, most_ids * ID_CHARGE_BYTES)

    def watch(self, destination_number: int, name: str) -> bool:
        """Register a queue or topic. Return whether its policy has a duplicate window."""
        self.non_persistent.register(destination_number, name)
        return self.non_persistent.watches(destination_number)

    def forget(self, destination_number: int) -> None:
        """Drop a deleted destination. Requires: the store knows that it is deleted."""
        self.non_persistent.forget(destination_number)

    def resize(self, shares: Shares) -> None:
        """Follow a new memory limit."""
        self.persistent.resize(self._limit_bytes(shares))
        self.non_persistent.resize(self._limit_bytes(shares))

    def is_stored(self, sent: Identity) -> bool:
        """Return whether the message is in a window. TransactionError: a transaction without an outcome has it."""
        if self.persistent.deciding_transaction(sent) is not None:
            raise TransactionError("a transaction without an outcome has sent this message id: wait for it to end")
        return self.persistent.has_seen(sent) or self.non_persistent.has_seen(sent)

    @property
    def forgotten(self) -> int:
        """Number of ids that were forgotten for want of memory, before their window was full."""
        return self.persistent.forgotten + self.non_persistent.forgotten

    def warn(self) -> int:
        """Log that windows are shorter than they should be, if that got worse. Requires: no lock."""
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
        """The bytes held, computed anew. O(windows)."""
        return self.persistent.held_bytes + self.non_persistent.held_bytes


def identity_of(destination: int, properties: bytes) -> Identity | None:
    """Return the identity by which a second message to that destination is a duplicate.

    None: it has no id of its own.
    """
    own = own_identity(properties)
    return identity(destination, *own) if own is not None else None
