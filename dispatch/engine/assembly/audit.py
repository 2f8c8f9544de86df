"""Makes the audit of the ledger."""

from __future__ import annotations

from ..ledger_audit import DestinationAudit, LedgerAudit
from .floors import Floors


def make_audit(floors: Floors) -> LedgerAudit:
    """Return an audit that asks each floor what its own parts should be charged."""
    areas = floors.areas
    return LedgerAudit(
        floors.foundation.monitor,
        floors.foundation.budget,
        floors.admin.browsers,
        [
            areas.target_area,
            # Before the store, because looking at subscriptions opens lanes, which the store is charged for.
            DestinationAudit(floors.open_destinations, areas.memory, areas.target_area),
            floors.store,
            floors.settling,
            floors.core,
            floors.clients,
            *([floors.recorder] if floors.recorder is not None else []),
        ],
    )
