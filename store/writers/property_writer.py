"""PropertyWriter: the host sets and deletes small values.

A change takes effect as a whole with its record; a crash before that leaves everything as it was.
"""

from __future__ import annotations

from collections.abc import Callable

from ..errors import PropertiesFull, StoreFull
from ..format.branch import Branch
from ..format.host_properties import Changes, encode_changes
from ..format.record import PROPERTIES
from ..format.retained import has_expired
from ..journal.journal import Journal
from ..state.property_table import PropertyTable


class PropertyWriter:
    """Writes the records with which the host sets and deletes small values.

    The state lock guards it. Every method requires the state lock.
    """

    def __init__(self, journal: Journal, table: PropertyTable, now_ms: Callable[[], int]) -> None:
        """now_ms: the store's time."""
        self._journal = journal
        self._table = table
        self._now_ms = now_ms

    def change(self, changes: Changes) -> None:
        """Set or delete host properties with one record, all of them or none.

        PropertiesFull or StoreFull: nothing has changed. StoreFailed. Deletions have room on a full disk too.
        """
        only_deletes = all(value is None for value in changes.values())
        self._with_room(lambda: self._table.reserve(changes))
        with self._journal.all_or_broken:
            try:
                self._journal.append(PROPERTIES, 0, 0, encode_changes(changes), settles=only_deletes)
            except StoreFull:
                self._table.cancel()
                raise
            self._table.apply(changes)

    def stage(self, branch: Branch, changes: Changes) -> None:
        """Set or delete host properties with the commit of a branch. Requires: the branch is open.

        PropertiesFull or StoreFull: nothing has changed.
        """
        self._with_room(lambda: self._table.stage(branch.properties, changes))

    def _with_room(self, reserve: Callable[[], None]) -> None:
        """Reserve room for properties. If there is none, delete what has expired and try again. PropertiesFull."""
        try:
            reserve()
        except PropertiesFull:
            if not self._forget_expired():
                raise
            reserve()

    def _forget_expired(self) -> bool:
        """Delete the retained messages that have expired; return whether there were any. O(retained messages)."""
        now_ms = self._now_ms()
        expired = [name for name, value in self._table.all_retained() if has_expired(value, now_ms)]
        if expired:
            self.change(dict.fromkeys(expired))
        return bool(expired)
