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
            areas.list_registry,
            # Before the store, because looking at subscriptions opens lanes, which the store is charged for.
            DestinationAudit(layers.open_destinations, areas.memory, areas.list_registry),
            layers.store_layer,
            layers.redelivery_layer,
            layers.core,
            layers.clients,
            *([layers.recorder] if layers.recorder is not None else []),
        ],
    )
