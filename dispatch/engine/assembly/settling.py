"""Settling: what becomes of deliveries and messages in time: redelivery, delays, expiry and ack deadlines."""

from __future__ import annotations

from dataclasses import dataclass

from ...core.settling.deadlines import AckDeadlines
from ...core.settling.delays import DelayedRedelivery, TimedLanes
from ...core.settling.due import DueMessages
from ...core.settling.redelivery import Redelivery
from .areas import Areas
from .foundation import Foundation
from .store_parts import StoreParts


@dataclass(frozen=True, slots=True, kw_only=True)
class Settling:
    """Deliveries that did not end with an ack, and messages whose time comes."""

    delayed: DelayedRedelivery
    timed: TimedLanes
    redelivery: Redelivery
    deadlines: AckDeadlines
    due: DueMessages

    def audit(self) -> dict[str, int]:
        """See Audited."""
        self.deadlines._check()
        return {"deadlines": self.deadlines.charge_bytes}


def make_settling(foundation: Foundation, store_parts: StoreParts, areas: Areas) -> Settling:
    """Make what settles deliveries, and decide that it reads the steady clock and wakes the maintenance thread."""
    monitor, policies, directory = foundation.monitor, foundation.policies, store_parts.directory
    target_area, wake_maintenance = areas.target_area, foundation.wakeups.wake_maintenance
    delayed = DelayedRedelivery(
        monitor,
        directory.index,
        directory.message_store.timetable,
        directory.steady,
        target_area,
        foundation.late_calls.lane,
        wake_maintenance,
    )
    timed = TimedLanes(
        monitor,
        directory.index,
        directory.steady.now_ms,
        target_area,
        lambda name: policies.of(name).expiry_sweep_seconds,
        wake_maintenance,
    )
    foundation.late_calls.timed = timed
    redelivery = Redelivery(target_area, areas.dispatch_area, delayed, policies, wake_maintenance)
    deadlines = AckDeadlines(
        monitor,
        target_area,
        redelivery,
        foundation.budget,
        foundation.budget.holder("deadlines"),
        wake_maintenance,
        has_background=foundation.settings.background,
    )
    due = DueMessages(monitor, delayed, timed, deadlines)
    return Settling(delayed=delayed, timed=timed, redelivery=redelivery, deadlines=deadlines, due=due)
