"""RedeliveryLayer: what becomes of deliveries and messages in time: redelivery, delays, expiry and ack deadlines."""

from __future__ import annotations

from dataclasses import dataclass

from ....cache.accounting import holder_names
from ...core.redelivery.deadlines import AckDeadlines
from ...core.redelivery.delayed_redelivery import DelayedRedelivery
from ...core.redelivery.due_messages import DueMessages
from ...core.redelivery.redelivery import Redelivery
from ...core.redelivery.timed_lanes import TimedLanes
from .areas import AreaLayer
from .foundation import FoundationLayer
from .store_layer import StoreLayer


@dataclass(frozen=True, slots=True, kw_only=True)
class RedeliveryLayer:
    """The owners of deliveries that did not end with an ack, and of messages that wait for a time."""

    delayed: DelayedRedelivery
    timed: TimedLanes
    redelivery: Redelivery
    deadlines: AckDeadlines
    due: DueMessages

    def audit(self) -> dict[str, int]:
        """Check the ack deadlines, and return what they should be charged. Requires: the lock."""
        self.deadlines._check()
        return {holder_names.DEADLINES: self.deadlines.charge_bytes}


def make_redelivery_layer(foundation: FoundationLayer, store_layer: StoreLayer, areas: AreaLayer) -> RedeliveryLayer:
    """Make the owners of redelivery, delays, expiry and ack deadlines. Requires: the store is open."""
    monitor, policies, directory = foundation.monitor, foundation.policies, store_layer.directory
    target_area, wake_housekeeper = areas.target_area, foundation.background_requests.wake_housekeeper
    delayed = DelayedRedelivery(
        directory.index,
        directory.message_store.due_times,
        directory.steady_clock,
        target_area,
        foundation.upcalls.lane,
        wake_housekeeper,
    )
    timed = TimedLanes(
        monitor,
        directory.steady_clock.now_ms,
        target_area,
        lambda name: policies.of(name).expiry_sweep_seconds,
        wake_housekeeper,
    )
    foundation.upcalls.timed = timed
    redelivery = Redelivery(target_area, areas.dispatch_area, delayed, policies, wake_housekeeper)
    deadlines = AckDeadlines(
        monitor,
        areas.watermarks.reclaim,
        redelivery,
        foundation.budget,
        foundation.budget.holder(holder_names.DEADLINES),
        wake_housekeeper,
        has_background=foundation.settings.background,
    )
    due = DueMessages(monitor, directory.index, directory.steady_clock.now_ms, delayed, timed, deadlines)
    return RedeliveryLayer(delayed=delayed, timed=timed, redelivery=redelivery, deadlines=deadlines, due=due)
