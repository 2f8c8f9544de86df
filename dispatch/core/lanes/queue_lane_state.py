"""QueueLaneState: how a stored message arrives at a lane from which consumers take.

If the lane has just one list, without a selector and with the ordinary distribution, an arrival goes to that list, or
to the PendingCache behind it. Otherwise TargetArea.offer_arrival offers it to the lists. If nobody has room, it stays
in the journal, where the loader finds it.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....cache.accounting.charge import OVERHEAD_BYTES, charge_of_all
from ....store.stored_message import StoredMessage
from .persistent_lane_state import PersistentLaneState


class QueueLaneState(PersistentLaneState):
    """Dispatch's state of a persistent lane of a queue. That of a subscription inherits from it.

    The state lock guards it.
    """

    __slots__ = ()

    def arrive_many(self, messages: Sequence[StoredMessage], charge: int | None = None) -> None:
        """Let a slice arrive, as a whole if the only list of the lane has room for it."""
        sole = self.sole_list
        if sole is None:
            if self.destination.selector_groups:
                self.target_area.offer_slice(self, messages)
            elif len(messages) > 1 and self.memory.head_queue_cache.is_stopped(self.pending_lane.number):
                self.published_end = messages[-1][0] + 1  # behind the head of the queue: they stay in the journal alone
            else:
                for message in messages:
                    self.arrive(message)
            return
        first = messages[0][0]
        is_next = sole.frontier == first and not sole.references
        is_far = sole.frontier < first and not sole.is_near
        if is_next and sole.admit(messages, charge_of_all(messages) if charge is None else charge):
            self.published_end = sole.frontier
        elif is_far and not self.pending_cache.has(self.pending_lane.number):
            self.published_end = messages[-1][0] + 1  # they stay references until the list reaches them
        else:
            for message in messages:
                self.arrive(message)
            return
        sole.selector_group.wake_for(len(messages), self.destination.monitor.deferred)

    def arrive(self, message: StoredMessage) -> None:
        """Let a stored message be dispatched. What waited for a sync is offered by `arrive_many` first."""
        sequence = message[0]
        behind = self.published_end = sequence + 1
        sole = self.sole_list
        if sole is None:
            self.target_area.offer_arrival(self, message)
            return
        if sole.frontier == sequence and not sole.references.count:
            # An inline copy of TargetList.admit and of charge_of: all that waits for no sync passes here.
            body = message[2]
            charge = len(message[1]) + OVERHEAD_BYTES + (len(body) if body is not None else 0)
            if sole.direct_bytes + charge <= sole.high_watermark_bytes and self.memory.lists_holder.reserve(charge):
                sole.direct.append(message)
                sole.direct_bytes += charge
                sole.frontier = behind
            else:
                self.pending_cache.admit(self.pending_lane.number, message, is_near=True)
        else:
            # Where little waits, the loader soon reads what it missed, and has caught up.
            self.pending_cache.admit(self.pending_lane.number, message, is_near=sole.is_near)
        selector_group = sole.selector_group  # its wake_for one message, written inline
        if selector_group.waiting:
            selector_group.arrived.notify()
        if selector_group.is_armed:
            selector_group.call_armed(self.destination.monitor.deferred)
