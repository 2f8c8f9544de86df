"""JournaledState: all that the journal tells, and with it what recovery brings up to the journal.

It is handed on as a whole, because a replay, a reset and a state record are about all of it at once. Whoever changes
one thing gets that thing.
"""

from __future__ import annotations

from dataclasses import dataclass

from .disk.disk import Disk
from .format.destination_table import DestinationTable
from .format.imports import Imports
from .format.state import State
from .index.deduplication import Deduplication
from .index.index import Index
from .index.subscriptions import Subscriptions
from .metadata.store import MetadataStore
from .property_table import PropertyTable
from .transactions import Branches


@dataclass(slots=True)
class JournaledState:
    """What recovery fills, before there is a journal to append to: that begins where recovery has found the end."""

    disk: Disk
    metadata: MetadataStore
    index: Index
    subscriptions: Subscriptions
    branches: Branches
    duplicates: Deduplication
    properties: PropertyTable

    def reset(self) -> None:
        """Forget all that was learnt from the journal, as before a full replay."""
        self.index.reset()
        self.subscriptions.reset()
        self.branches.clear()
        self.duplicates.clear()
        self.properties.clear()

    def restated(self, state: State, destinations: DestinationTable, imports: Imports) -> State:
        """Complete a state, and return it, with what must outlive the records that told it.

        Each data log begins with it, and each checkpoint ends with it. Data logs, sequences and transactions are the
        caller's: the two say different things of them. Requires: the lock, or that nobody else is here.
        """
        state.destinations = destinations.encoded()
        state.imports = list(imports)
        state.attempts = self.index.delivery_count_table.describe()
        state.duplicates = self.duplicates.describe()
        state.properties = self.properties.describe()
        return self.subscriptions.describe(state)
