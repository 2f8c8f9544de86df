"""Redelivery: handle deliveries that did not end with an ack.

The attempt is counted; for a persistent message, in the journal. Then the message waits as long as its policy says and
is offered again in its place. After its last attempt it becomes a dead letter instead. A first delivery costs nothing
here, because a lane to which no message came back has no counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set

from ....store.format.return_record import ReturnedRun
from ....store.format.state_record import CountedRun
from ...config.policies import Policies
from ...config.redelivery_delays import RedeliveryRule
from ..areas.dispatch_area import DispatchArea
from ..areas.target_area import TargetArea
from ..model.delivery import Delivery, counted_runs, is_seen, message_of
from ..model.destination import LaneState, lane_of
from .delayed_redelivery import DelayedRedelivery


class Redelivery:
    """Returns deliveries that were not acknowledged, now or later, or makes them dead letters.

    The state lock guards it; every method requires it held.
    """

    def __init__(
        self,
        target_area: TargetArea,
        dispatch_area: DispatchArea,
        delayed: DelayedRedelivery,
        policies: Policies,
        wake_housekeeper: Callable[[], None],
    ) -> None:
        self._target_area = target_area
        self._dispatch_area = dispatch_area
        self._delayed = delayed
        self._policies = policies
        self._wake_housekeeper = wake_housekeeper
        # Lanes with dead letters that are about to leave; the lane that has waited longest is first.
        self.lanes_with_dead_letters: dict[LaneState, None] = {}

    def dead_letter(self, lane: LaneState, first: int, last: int) -> None:
        """Give a run to no consumer any more: it has had its last attempt and leaves soon."""
        lane.dead_letters.add(first, last)
        lane.distribution.settled(lane, first, last - first + 1)
        self.lanes_with_dead_letters[lane] = None
        self._wake_housekeeper()

    def return_failed(self, deliveries: Sequence[Delivery], delay: float) -> bool:
        """Return failed deliveries to their places, after `delay` seconds or what their policy says.

        A message that had its last attempt becomes a dead letter. Return whether messages may have been delayed.
        """
        any_delayed = False
        for lane, held in _by_lane(deliveries).items():
            rule = self._policies.redelivery(lane.destination.name)
            if not delay and not rule.delay_seconds:
                self._count(lane, held)
                for delivery in held:
                    self._put_back(lane, delivery, rule)
            else:
                self._delay(lane, held, rule, delay)
                any_delayed = True
        return any_delayed

    def _delay(self, lane: LaneState, deliveries: Sequence[Delivery], rule: RedeliveryRule, delay: float) -> None:
        """Let deliveries of one lane come back later, except those that had their last attempt."""
        due_at: dict[int, int] = {}
        for attempts in {delivery.attempts for delivery in deliveries}:
            wait = 0.0 if rule.is_last(attempts) else max(delay, rule.wait_seconds(attempts))
            due_at[attempts] = self._delayed.due_at(wait) if wait else 0
        runs = [
            ReturnedRun(first, last - first + 1, attempts, due_at[attempts])
            for first, last, attempts in counted_runs(deliveries)
        ]
        if lane.destination.is_open:
            lane.record_returns(runs, self._delayed.due_at(0.0))
        for delivery in deliveries:
            if not due_at[delivery.attempts]:
                self._put_back(lane, delivery, rule)
                continue
            self._dispatch_area.settle(delivery)
            lane.redelivered += 1
            lane.distribution.comes_back(delivery, is_delayed=True)
            lane.pager.page_out((message_of(delivery),))
        for first, messages, _, due in runs:
            if due:
                self._delayed.schedule(lane, first, first + messages - 1, due)

    def return_from_closed(self, deliveries: Sequence[Delivery], processed: Set[Delivery] | None = None) -> None:
        """Return the deliveries of a closed consumer to their places, at once.

        By default a delivery that the host looked at counts as an attempt, which may be the last one; the policy may
        say otherwise.
        processed: the deliveries that count as an attempt, whatever the host looked at and the policy says.
        """
        for lane, held in _by_lane(deliveries).items():
            rule = self._policies.redelivery(lane.destination.name)
            counted: list[Delivery] = []
            uncounted: list[Delivery] = []
            for delivery in held:
                counts = rule.counts_close(is_seen(delivery)) if processed is None else delivery in processed
                (counted if counts else uncounted).append(delivery)
            self._count(lane, counted)
            for delivery in counted:
                self._put_back(lane, delivery, rule)
            self._return_untried(lane, uncounted, rule)

    def return_untried(self, deliveries: Sequence[Delivery]) -> None:
        """Return deliveries that were not tried to their places, at once. No attempt counts."""
        for lane, held in _by_lane(deliveries).items():
            self._return_untried(lane, held, self._policies.redelivery(lane.destination.name))

    def _return_untried(self, lane: LaneState, deliveries: Sequence[Delivery], rule: RedeliveryRule) -> None:
        self._uncount(lane, deliveries)
        endless = rule._replace(max_attempts=None)
        for delivery in deliveries:
            self._put_back(lane, delivery, endless)

    def _put_back(self, lane: LaneState, delivery: Delivery, rule: RedeliveryRule) -> None:
        """Return a delivery to its place at once, or make it a dead letter."""
        sequence = delivery.sequence
        message = message_of(delivery)
        self._dispatch_area.settle(delivery)
        if rule.is_last(delivery.attempts):
            lane.pager.page_out((message,))
            self.dead_letter(lane, sequence, sequence)
            return
        lane.redelivered += 1
        lane.distribution.comes_back(delivery, is_delayed=False)
        self._target_area.reoffer_returned(lane, message)

    def return_from_transaction(self, lane: LaneState, first: int, last: int) -> None:
        """Give back messages that a prepared transaction had acknowledged. Each had at least one attempt."""
        known = lane.delivery_counts
        never = [sequence for sequence in range(first, last + 1) if known is None or not known.get(sequence)]
        lane.record_attempts([CountedRun(*run, 1) for run in _runs(never)])
        rule, known = self._policies.redelivery(lane.destination.name), lane.delivery_counts
        for sequence in range(first, last + 1):
            if known is not None and rule.is_last(known.get(sequence)):
                self.dead_letter(lane, sequence, sequence)
            else:
                lane.redelivered += 1
                self._target_area.reoffer_returned(lane, (sequence, b"", None, 0))
        lane.distribution.reassign()

    def count(self, deliveries: Sequence[Delivery]) -> None:
        """Record the attempts for the next process that opens the store."""
        for lane, held in _by_lane(deliveries).items():
            self._count(lane, held)

    def _count(self, lane: LaneState, deliveries: Sequence[Delivery]) -> None:
        known = lane.delivery_counts
        fresh = [held for held in deliveries if known is None or known.get(held.sequence) < held.attempts]
        if fresh and lane.destination.is_open:
            lane.record_attempts(counted_runs(fresh))

    def _uncount(self, lane: LaneState, deliveries: Sequence[Delivery]) -> None:
        """Undo the counts that were made at the hand-out in case the process was killed.

        Counts do not fall below one: a count of one in the journal can't be undone, and does not grow.
        """
        known = lane.delivery_counts
        if known is None or not lane.destination.is_open:
            return
        counted = [held for held in deliveries if held.attempts > 1 and known.get(held.sequence) >= held.attempts]
        runs = [run._replace(delivery_count=run.delivery_count - 1) for run in counted_runs(counted)]
        if runs:
            lane.record_attempts(runs)


def _by_lane(deliveries: Iterable[Delivery]) -> dict[LaneState, list[Delivery]]:
    by_lane: dict[LaneState, list[Delivery]] = {}
    for delivery in deliveries:
        by_lane.setdefault(lane_of(delivery), []).append(delivery)
    return by_lane


def _runs(sequences: Iterable[int]) -> list[tuple[int, int]]:
    """Split ascending sequences into runs."""
    runs: list[tuple[int, int]] = []
    for sequence in sequences:
        if runs and runs[-1][1] == sequence - 1:
            runs[-1] = runs[-1][0], sequence
        else:
            runs.append((sequence, sequence))
    return runs
