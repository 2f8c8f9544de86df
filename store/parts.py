"""The parts of a store that recovery brings up to the journal, made once and handed on together."""

from __future__ import annotations

from dataclasses import dataclass

from .disk.disk import Disk
from .index.deduplication import Deduplication
from .index.index import Index
from .index.subscriptions import Subscriptions
from .metadata.store import MetadataStore
from .property_table import PropertyTable
from .transactions import Branches


@dataclass(slots=True)
class StoreParts:
    """The parts of a store, but for its journal, which is begun once recovery has found where it goes on."""

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
