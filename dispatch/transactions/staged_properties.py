"""Host properties in a transaction: changes are in RAM until the commit, with which they take effect."""

from __future__ import annotations

from collections.abc import Callable

from ...store.format.branch import Branch
from ...store.state.property_table import PropertyTable
from ...store.writers.property_writer import PropertyWriter
from ..core.monitor import Monitor
from ..host_properties import Decide, PropertySource


class StagedProperties(PropertySource):
    """The properties of the store as the commit would leave them."""

    def __init__(
        self,
        monitor: Monitor,
        table: PropertyTable,
        writer: PropertyWriter,
        branch: Branch,
        require_open: Callable[[], None],
    ) -> None:
        """Make the view of one transaction.

        require_open: raises if the transaction is not open. Requires: the lock.
        """
        self._monitor = monitor
        self._table = table
        self._writer = writer
        self._branch = branch
        self._require_open = require_open

    def find(self, name: str) -> bytes | None:
        """Return a property as the commit would leave it, or None if there is none of that name."""
        with self._monitor.lock:
            self._require_open()
            staged = self._branch.properties
            return staged[name] if name in staged else self._table.values.get(name)

    def snapshot(self) -> dict[str, bytes]:
        """Return all properties as the commit would leave them."""
        with self._monitor.lock:
            self._require_open()
            return self._seen()

    def change(self, decide: Decide) -> None:
        """Stage the changes that `decide` returns. Nothing is written."""
        with self._monitor.lock, self._monitor.all_or_broken:
            self._require_open()
            self._writer.stage(self._branch, decide(self._seen()))

    def _seen(self) -> dict[str, bytes]:
        seen: dict[str, bytes | None] = {**self._table.values, **self._branch.properties}
        return {name: value for name, value in seen.items() if value is not None}
