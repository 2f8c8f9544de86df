"""FoundationLayer: the parts of an open store that need no disk. All other parts stand on them."""

from __future__ import annotations

from dataclasses import dataclass

from ....cache.accounting import holder_names
from ....cache.accounting.budget import Budget
from ....cache.accounting.overdraft import Overdraft
from ....cache.accounting.shares import Shares
from ....store.environment.clock import Clock
from ...admission.space_line import SpaceLine
from ...config.memory_plan import CONSUMERS_BYTES, WRITE_BUFFER_BYTES, archive_bytes, check_quotas, shares_of
from ...config.policies import Policies
from ...config.settings import Settings
from ...core.monitor import Monitor
from ..background import BackgroundRequests
from ..upcalls import Upcalls


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundationLayer:
    """The settings, the clock, the state lock and the budget of a store, and how its parts wake the background."""

    settings: Settings
    """The settings that the store was opened with. After a resize, the budget has the present memory limit."""
    clock: Clock
    monitor: Monitor
    policies: Policies
    background_requests: BackgroundRequests
    upcalls: Upcalls
    shares: Shares
    """How the memory limit of the settings is divided."""
    budget: Budget
    destination_memory: Overdraft
    """Pays for destinations and subscriptions, and for the objects that their first messages need."""
    journal_line: SpaceLine
    """Senders that wait for space in the journal. What frees such space is made below them, so the line is here."""
    tmp_line: SpaceLine
    """Senders that wait for space in tmp-storage."""


def make_foundation(settings: Settings, clock: Clock, monitor: Monitor) -> FoundationLayer:
    """Make the budget, and charge the fixed parts in full, whatever they hold now.

    SettingsError: a share that the settings ask for has no room in their memory limit.
    """
    shares = check_quotas(shares_of(settings))
    budget = Budget(settings.memory_limit_bytes)
    budget.holder(holder_names.INDEX, guaranteed_bytes=shares.index_guaranteed_bytes)
    budget.holder(holder_names.CONSUMERS, guaranteed_bytes=CONSUMERS_BYTES)
    destination_memory = Overdraft(budget.holder(holder_names.DESTINATIONS))
    fixed = {
        holder_names.METADATA_STORE: shares.metadata_bytes,
        holder_names.WRITE_BUFFERS: WRITE_BUFFER_BYTES,
        holder_names.ARCHIVE: archive_bytes(settings),
    }
    for name, charge in fixed.items():
        reserved = budget.holder(name).reserve(charge)
        assert reserved, "the smallest memory limit has room for the fixed parts"
    policies = Policies(settings.policies)
    return FoundationLayer(
        settings=settings,
        clock=clock,
        monitor=monitor,
        policies=policies,
        background_requests=BackgroundRequests(has_threads=settings.background),
        upcalls=Upcalls(),
        shares=shares,
        budget=budget,
        destination_memory=destination_memory,
        journal_line=SpaceLine(monitor.lock, monitor.monotonic, policies),
        tmp_line=SpaceLine(monitor.lock, monitor.monotonic, policies),
    )
