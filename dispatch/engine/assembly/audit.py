"""Makes the audit of the ledger."""

from __future__ import annotations

from ..ledger_audit import DestinationAudit, LedgerAudit
from .layers import Layers


def make_audit(layers: Layers) -> LedgerAudit:
    """Return an audit that asks each layer what its own parts should be charged."""
    areas = layers.areas
    return LedgerAudit(
        layers.foundation.monitor,
        layers.foundation.budget,
        layers.admin.browsers,
        [
            areas.target_lists,
            # Before the store, because looking at subscriptions opens lanes, which the store is charged for.
            DestinationAudit(layers.open_destinations, areas.memory, areas.target_lists),
            layers.store_layer,
            layers.redelivery_layer,
            layers.core,
            layers.clients,
            *([layers.recorder] if layers.recorder is not None else []),
        ],
    )
