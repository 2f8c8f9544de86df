"""JournaledState: everything that the journal tells. Recovery brings it up to the journal.

It is passed on as a whole, because a replay, a reset and a state record concern all of it at once. A part that changes
one thing gets only that thing.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..disk.disk import Disk
from ..format.destination_table import DestinationTable
from ..format.imports import Imports
from ..format.state_record import StateRecord
from ..index.deduplication import Deduplication
from ..index.index import Index
from ..index.subscriptions import Subscriptions
from ..metadata.metadata_store import MetadataStore
from .branches import Branches
from .property_table import PropertyTable


@dataclass(slots=True)
class JournaledState:
    """The state that recovery fills. The journal is made afterwards, because it begins where recovery has found the
    end.
    """

    disk: Disk
    metadata: MetadataStore
    index: Index
    subscriptions: Subscriptions
    branches: Branches
    duplicates: Deduplication
    properties: PropertyTable

    def reset(self) -> None:
        """Forget all that was learned from the journal, before a full replay."""
        self.index.reset()
        self.subscriptions.reset()
        self.branches.clear()
        self.duplicates.clear()
        self.properties.clear()

    def restated(self, state: StateRecord, destinations: DestinationTable, imports: Imports) -> StateRecord:
        """Add to a state what must outlive the records that reported it, and return the state.

        Each data log begins with such a state, and each checkpoint ends with one. Data logs, sequences and transactions
        are left to the caller, because those differ between the two. Requires: the lock, or that no other thread is
        here.
        """
        state.destinations = destinations.encoded()
        state.imports = list(imports)
        state.delivery_counts = self.index.delivery_count_table.describe()
        state.duplicates = self.duplicates.describe()
        state.properties = self.properties.describe()
        return self.subscriptions.describe(state)
