"""BacklogSets: makes, charges and closes the sets of sequences that subscriptions have not acknowledged.

A checkpoint notes which set each subscription has, and reads the note later (noted_backlogs.py). Until then, no set in
the note is closed. Sets and notes are in RAM.
"""

from __future__ import annotations

from typing import Final

from ..environment.account import OverdraftAccount, Uncounted
from .sequence_bitmap import SequenceBitmap
from .subscription_table import Cursors

SUBSCRIPTION_LANE_BYTES: Final = 320
"""Charge of a subscription for each lane of its topic, without its set."""
NOTHING_PENDING: Final = SequenceBitmap()
"""The set of all subscriptions that have no set of their own. It stays empty, and is never closed."""


class BacklogSets:
    """Makes and closes the sets of one store. The state lock guards it."""

    __slots__ = ("_account", "_noted")

    def __init__(self, account: OverdraftAccount) -> None:
        """Make it for one store. account: pays for the sets, and for the lanes that have them."""
        self._account = account
        # Sets in a note that is still read. Their subscriptions have other sets now.
        self._noted: list[SequenceBitmap] = []

    def cursors(self) -> Cursors:
        """Return columns for the subscriptions that are not in use."""
        return Cursors(self._account)

    def add_lane(self) -> None:
        """Charge for a lane of a subscription."""
        self._account.charge(SUBSCRIPTION_LANE_BYTES)

    def release_lane(self) -> None:
        """Release the charge of a lane of a subscription that has ended."""
        self._account.release(SUBSCRIPTION_LANE_BYTES)

    def make(self) -> SequenceBitmap:
        """Return an empty set."""
        return SequenceBitmap(self._account)

    def of_run(self, first: int, last: int) -> SequenceBitmap:
        """Return the set of first..last. O(1)."""
        return SequenceBitmap.of_run(first, last, self._account)

    def copy(self, pending: SequenceBitmap) -> SequenceBitmap:
        """Return a copy of a set. O(runs + masks)."""
        return pending.copy(self._account)

    def retire(self, pending: SequenceBitmap, *, is_noted: bool) -> None:
        """Close a set that a subscription no longer has: at once, or in `forget_noted` if a note refers to it."""
        if pending is NOTHING_PENDING:
            return
        if is_noted:
            self._noted.append(pending)
        else:
            pending.close()

    def forget_noted(self) -> None:
        """Close the sets that only the note refers to, because it is not read again."""
        for pending in self._noted:
            pending.close()
        self._noted.clear()

    @property
    def noted_charge(self) -> int:
        """The charge of sets that only the note refers to."""
        return sum(pending.charge_bytes for pending in self._noted)


UNCOUNTED_SETS: Final = BacklogSets(Uncounted())
"""The sets of lanes that are only read, or that have ended."""
