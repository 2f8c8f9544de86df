"""StagedAcks: the deliveries that a transaction acknowledges. They are parked until the outcome.

The commit record names their messages, except non-persistent ones and those of a subscription without a name, which
have no records. After a crash the messages are pending again, unless the transaction was prepared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ...store.format.branch import Branch
from ...store.structures.sequence_set import SequenceSet
from ..core.areas.dispatch_area import DispatchArea
from ..core.model.delivery import Delivery, is_lazy, message_of
from ..core.model.destination import LaneState, lane_of
from ..core.redelivery.redelivery import Redelivery

HELD_CHARGE_BYTES: Final = 112
"""Charged for an acknowledged delivery in addition to its own charge. It covers a number in a set, at worst a run.

It is less than a third of a delivery's own charge, so that transactions can acknowledge all that may be in flight.
"""


class StagedAcks:
    """The deliveries that a transaction acknowledges.

    Every method requires the state lock.
    """

    def __init__(self, dispatch_area: DispatchArea, redelivery: Redelivery, branch: Branch) -> None:
        """Make the acks of one transaction, with none yet."""
        self._dispatch_area = dispatch_area
        self._redelivery = redelivery
        self._branch = branch
        # The lanes in which the transaction acknowledges, by number.
        self.lanes: dict[int, LaneState] = {}
        # Deliveries that are acknowledged with the commit, by sequence.
        self._held: dict[LaneState, dict[int, Delivery]] = {}
        # Number of held deliveries that become dead letters with the commit.
        self._rejected: dict[LaneState, int] = {}

    @property
    def deliveries(self) -> list[Delivery]:
        """All held deliveries, which are parked while the transaction is open. O(deliveries)."""
        return [delivery for held in self._held.values() for delivery in held.values()]

    def hold(self, deliveries: Sequence[Delivery]) -> None:
        """Hold deliveries until the outcome. Requires: they are in flight, and charged."""
        for delivery in deliveries:
            lane, sequence = lane_of(delivery), delivery.sequence
            if not lane.is_persistent and not is_lazy(delivery):
                # A list that asks whether the message matches reads it from the pager, because the delivery is parked.
                lane.pager.page_out_body(message_of(delivery))
            lane.park(delivery)
            self._held.setdefault(lane, {})[sequence] = delivery
            self.lanes[lane.pending_lane.number] = lane
            self._branch.acknowledge(lane.pending_lane.number, sequence, sequence, is_recorded=lane.is_recorded)

    def hold_rejected(self, delivery: Delivery) -> None:
        """Hold a delivery that becomes a dead letter with the commit. Requires: it is in flight, and charged."""
        self.hold((delivery,))
        self._rejected[lane_of(delivery)] = self._rejected.get(lane_of(delivery), 0) + 1

    def holds(self, delivery: Delivery) -> bool:
        """Return whether the outcome decides about this delivery."""
        return self._branch.acknowledges(delivery.lane.pending_lane.number, delivery.sequence)

    def acknowledged_in(self, lane_number: int) -> SequenceSet:
        """Return the sequences that are acknowledged in a lane, recorded or not."""
        branch = self._branch
        return branch.acks.get(lane_number) or branch.unrecorded_acks.get(lane_number) or SequenceSet()

    def commit(self) -> None:
        """Acknowledge all held messages. Requires: the commit record is written, if there is one."""
        for number, first, messages in self._branch.unrecorded_runs():
            lane = self.lanes[number]
            lane.backing_store.acknowledge(lane.pending_lane, first, first + messages - 1)
        for number, first, messages in (*self._branch.runs(), *self._branch.unrecorded_runs()):
            self.lanes[number].acknowledge_parked(first, first + messages - 1)
        for lane, rejected in self._rejected.items():
            lane.count_as_dead_letters(rejected)
        self._settle()

    def prepare(self) -> None:
        """Count the attempts and give consumers their credit back. The messages stay parked until the outcome."""
        self._redelivery.count(self.deliveries)
        self._settle()
        self._held.clear()

    def _settle(self) -> None:
        """Settle all held deliveries, release their charges, and give the consumers their credit back."""
        for held in self._held.values():
            for delivery in held.values():
                delivery.lane.deliveries[delivery.sequence] = delivery
                self._dispatch_area.settle(delivery)
                delivery.consumer.resume_if_credit()

    def take_back(self) -> bool:
        """Return the deliveries to their places, because an open transaction is rolled back.

        Return whether messages may have been delayed.
        """
        returned = self.deliveries
        for delivery in returned:
            delivery.lane.unpark(delivery)
        any_delayed = self._redelivery.return_failed(returned, 0.0)
        for delivery in returned:
            delivery.consumer.resume_if_credit()
        return any_delayed

    def park_again(self) -> None:
        """Park the messages again that a prepared transaction acknowledges, after an open of the store."""
        for number, first, messages in self._branch.runs():
            self.lanes[number].parked.add(first, first + messages - 1)

    def free(self) -> None:
        """Free the messages that a prepared transaction would have acknowledged."""
        for number, first, messages in self._branch.runs():
            lane = self.lanes[number]
            lane.parked.remove(first, first + messages - 1)
            self._redelivery.return_from_transaction(lane, first, first + messages - 1)

    def finish(self) -> None:
        """Forget all deliveries, because the transaction has ended."""
        self._held.clear()
        self._rejected.clear()
        self.lanes.clear()
