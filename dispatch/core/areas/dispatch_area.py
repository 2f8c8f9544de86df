"""DispatchArea: dispatch messages, settle them, and keep the charges of deliveries within their bounds.

To dispatch a message is to hand it out to a consumer: the message leaves its list and becomes a Delivery. The message
takes its charge along, from its list to the DispatchArea. The arithmetic with these
charges is in this file; MessageMemory.in_flight_rooms says how much room there is. On the path of a single message
(dispatch_one, settle) the arithmetic is written inline, and `audit` compares the sums with the deliveries. This module
does not know the ListRegistry (list_registry.py), which makes and ends the lists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from ....cache.accounting.charge import OVERHEAD_BYTES, charge_of_all
from ....cache.accounting.shares import Shares
from ....cache.messages.message_memory import MessageMemory
from ....store.format.times import has_times, times_of
from ....store.numbering import BEHIND_ALL
from ....store.stored_message import StoredMessage
from ..memory.memory_owners import MemoryOwners
from ..model.delivery import Delivery, DeliveryLane, content_bytes
from ..model.destination import CoreConsumer, LaneState, TargetList
from ..model.distribution_roles import Dispatcher
from .list_order import next_by_arrival
from .load_requests import LoadRequests
from .observer import AreaUpcalls
from .take import Take


class MemoryWaiter(Protocol):
    """A consumer that takes, or a list to be loaded, that can't go on because deliveries of others fill the memory.

    It is a Protocol because the two have no base in common. Calls of a Protocol are slow, but memory is seldom short.
    """

    def on_memory_freed(self) -> None:
        """Go on, and call `stop_waiting_for_memory`, if enough memory is free now.

        DispatchArea.retry_waiters calls it after charges were released. Requires: the lock.
        """


class DispatchArea(Dispatcher[CoreConsumer]):
    """All messages in flight: the deliveries of a store that are not settled, with their charges and bounds.

    Every message is dispatched by `dispatch_one` or `dispatch_from`, and settled by `settle` or `settle_run`. A
    subclass that records traffic overrides these four. The state lock guards it; every method requires it held.
    """

    def __init__(
        self,
        memory: MemoryOwners,
        loads: LoadRequests,
        now_ms: Callable[[], int],
        upcalls: AreaUpcalls,
    ) -> None:
        """Make the area without deliveries.

        loads: asked for a load when a take leaves a list below its low watermark.
        upcalls: told of messages that a list skipped because they have expired, and of lists to be sampled.
        """
        self.budget = memory.budget
        self._memories = memories = memory.memories
        self._loads = loads
        self.lists_holder = memories.common.lists_holder
        self.dispatch_holder = memories.common.dispatch_holder
        # Consumers that can't take because deliveries fill the memory, and lists that found no memory for a load.
        self._waiters: dict[MemoryWaiter, None] = {}
        self._now_ms = now_ms
        self._upcalls = upcalls
        self.dispatch_bytes_max = self.in_flight_bytes_max = 0

    def bound_in_flight(self, shares: Shares) -> None:
        """Set the bounds on deliveries in flight for a new memory limit.

        Above `dispatch_bytes_max`, deliveries of the common memory are lazy. Above `in_flight_bytes_max` none is made.
        Each memory with a quota lowers both by what it holds or reserves, whichever is more.
        """
        self.dispatch_bytes_max = shares.dispatch_bytes_max
        self.in_flight_bytes_max = shares.in_flight_bytes_max
        for memory in self._memories.of_patterns.values():
            bodies_bytes, all_bytes = memory.in_flight_reserves
            self.dispatch_bytes_max -= max(memory.dispatch_holder.held_bytes, bodies_bytes)
            self.in_flight_bytes_max -= max(memory.dispatch_holder.held_bytes, all_bytes)

    # ------------------------------------------------------------------ dispatching

    def dispatch_one(self, consumer: CoreConsumer) -> Delivery | None:
        """Dispatch the next message if it is in RAM and needs no check; otherwise return None.

        `dispatch` does the checks that this fast path leaves out.
        """
        lists = consumer.selector_group.lists
        if not lists:
            return None
        target = lists[0]
        if not target.direct or target.returned.count or not target.is_unchecked:
            return None
        sequence, properties, body, timestamp = target.direct[0]
        dispatch = self.dispatch_holder
        lane = target.lane
        counts = lane.delivery_counts
        if body is None or (counts is not None and counts.find(sequence) is not None):
            return None
        charge = len(properties) + OVERHEAD_BYTES + len(body)  # charge_of, written inline
        if dispatch.held_bytes + charge > self.dispatch_bytes_max:
            return None
        # ListSupply.pass_first, written inline: every take of one message passes here.
        target.direct.popleft()
        target.direct_bytes -= charge
        target.taken_bytes += charge
        # Holder.transfer, written inline. Neither holder has a guarantee.
        self.lists_holder.held_bytes -= charge
        dispatch.held_bytes += charge
        number = consumer.delivered = consumer.delivered + 1
        delivery = Delivery(consumer, lane, sequence, properties, body, timestamp, 1, number)
        lane.deliveries[sequence] = delivery
        consumer.in_flight += 1
        if target.direct_bytes < target.low_watermark_bytes and (
            target.frontier < lane.published_end or target.references.count  # has_supply; nothing is returned here
        ):
            self._loads.runs_low(target)
        if target.taken_bytes >= target.sample_at_bytes:
            self._upcalls.sampled(target)
        return delivery

    def dispatch(self, consumer: CoreConsumer, most: int, max_bytes: int | None) -> list[Delivery]:
        """Dispatch up to `most` direct messages in order, without reading any.

        If the result is empty, list_order.list_to_load says what must be read first.
        """
        take = Take(consumer, most, max_bytes)
        for target in consumer.selector_group.lists:
            if target.counterpart is not None:
                if target.lane.is_persistent and not self.dispatch_interleaved(take, target):
                    break
                continue
            if target.returned.count and (not target.direct or target.returned.first < target.direct[0][0]):
                break
            if target.direct:
                self.dispatch_from(take, target)
                if target.direct_bytes < target.low_watermark_bytes and target.has_supply:
                    self._loads.runs_low(target)
                if len(take.deliveries) >= most or target.direct:
                    break
            if target.has_supply:
                break
        return take.deliveries

    def dispatch_both(self, take: Take, target: TargetList) -> bool:
        """Dispatch from a list and its counterpart, if it has one; return whether both ran out of messages.

        For distributions that decide between the lists of a take themselves.
        """
        if target.counterpart is not None:
            return self.dispatch_interleaved(take, target)
        if target.is_ready:
            self.dispatch_from(take, target)
        if target.has_supply and target.direct_bytes < target.low_watermark_bytes:
            self._loads.request(target)
        return not target.direct and not target.has_supply

    def dispatch_interleaved(self, take: Take, target: TargetList) -> bool:
        """Dispatch from a list and its counterpart in order of arrival; return whether both ran out of messages."""
        while True:
            chosen, before = next_by_arrival(target)
            direct = chosen.direct
            if not direct and not chosen.has_supply:
                return True
            if not direct or len(take.deliveries) >= take.most:
                return False
            if chosen.returned.count and chosen.returned.first < direct[0][0]:
                return False
            count = len(direct)
            self.dispatch_from(take, chosen, before)
            if chosen.direct_bytes < chosen.low_watermark_bytes and chosen.has_supply:
                self._loads.request(chosen)  # not runs_low: no list with a counterpart is left to its consumer
            if len(direct) == count:
                return False

    def dispatch_from(self, take: Take, target: TargetList, before: int = BEHIND_ALL) -> None:
        """Dispatch messages of a list that lie before a sequence.

        The first message of a take is dispatched however large it is. If memory has no room for a body, the delivery is
        lazy and reads the body when asked. If memory has no room for a lazy delivery, or `bytes_left` is used up, the
        rest stays in the list.
        """
        lane, needs_claims = target.lane, target.needs_claims
        most = take.most - len(take.deliveries)
        if target.is_timed and not needs_claims:
            self._remove_expired(target, most)
        stop = BEHIND_ALL
        if target.returned.count or before < BEHIND_ALL:
            most, stop = _bounds(target, most, before)
        if take.bytes_left is None and target.direct_bytes <= self._in_flight_rooms(lane.memory)[0]:
            taken = self._take_free(target, most, stop) if needs_claims else target.take_first(most)
            self._transfer_charges(target, charge_of_all(taken), 0)
        else:
            taken = self._take_what_fits(take, target, most, stop)
        take.deliveries += _deliveries_of(take.consumer, lane, taken)
        if target.taken_bytes >= target.sample_at_bytes:
            self._upcalls.sampled(target)
        if needs_claims and not target.direct:
            if lane.sole_list is target:
                target.try_without_claims()
            else:
                target.hand_back_direct()  # thousands of lists with selectors may be empty

    def _take_free(self, target: TargetList, most: int, stop: int) -> list[StoredMessage]:
        """Take the next messages that are free, from a list that needs claims. The caller transfers their charges.

        stop: see _bounds. Other lists have the messages too, and may have dispatched some of them.
        """
        lane, direct = target.lane, target.direct
        taken: list[StoredMessage] = []
        while direct and len(taken) < most:
            message = direct[0]
            if message[0] >= stop:
                break
            if not self._claim(target, message):
                continue
            direct.popleft()
            if message[2] is not None and not lane.is_persistent:
                lane.drop_copies(message[0])  # `claim` has dropped the copies of a persistent message
            taken.append(message)
        return taken

    def _take_what_fits(self, take: Take, target: TargetList, most: int, stop: int) -> list[StoredMessage]:
        """Take up to `most` messages one by one, because `bytes_left` or memory may not have room for all of them.

        Return the messages, whose charges are transferred. stop: see _bounds.
        """
        lane, direct, needs_claims = target.lane, target.direct, target.needs_claims
        bytes_left, is_first = take.bytes_left, not take.deliveries
        room_for_bodies, room = self._in_flight_rooms(lane.memory)
        taken: list[StoredMessage] = []
        moved = released = 0
        while direct and len(taken) < most:
            message = direct[0]
            sequence, properties, body, timestamp = message
            if needs_claims:  # as in _take_free
                if sequence >= stop:
                    break
                if not self._claim(target, message):
                    continue
            charge = len(properties) + OVERHEAD_BYTES + (len(body) if body is not None else 0)  # charge_of, inline
            if bytes_left is not None:
                size = charge - OVERHEAD_BYTES if body is not None else lane.pending_lane.lengths(sequence, sequence)[0]
                if size > bytes_left and not is_first:
                    break
            leaves_body = moved + charge > room_for_bodies
            if leaves_body and moved + OVERHEAD_BYTES > room and not is_first:
                break
            # The message goes along, with its body or without it.
            is_first = False
            if bytes_left is not None:
                bytes_left -= size
            if leaves_body and (body is None or lane.pager.page_out_body(message)):
                released += charge - OVERHEAD_BYTES
                charge, message = OVERHEAD_BYTES, (sequence, b"", None, timestamp)
            direct.popleft()
            moved += charge
            if needs_claims and message[2] is not None and not lane.is_persistent:
                lane.drop_copies(sequence)
            taken.append(message)
        self._transfer_charges(target, moved, released)
        take.bytes_left = bytes_left
        return taken

    def _claim(self, target: TargetList, message: StoredMessage) -> bool:
        """Claim the first message of a list that needs claims. If it can't be had, drop it and return False."""
        if target.is_timed and self._drop_if_expired(target, message):
            return False
        if target.selector_group.claim(target.lane, message):
            return True
        target.release(target.drop_first())
        return False

    def _remove_expired(self, target: TargetList, most: int) -> None:
        """Remove expired messages from the next direct ones of a list, so that up to `most` live ones come next.

        O(most + expired).
        """
        lane, direct, now_ms = target.lane, target.direct, self._now_ms()
        kept: list[StoredMessage] = []
        expired: list[int] = []
        while direct and len(kept) < most:
            message = direct[0]
            if _has_expired(lane, message, now_ms):
                target.release(target.drop_first())
                expired.append(message[0])
            else:
                kept.append(direct.popleft())
        direct.extendleft(reversed(kept))
        for sequence in expired:  # only now, when the list is whole again
            self._upcalls.expired(lane, sequence)

    def _drop_if_expired(self, target: TargetList, message: StoredMessage) -> bool:
        """Drop the first message of a list if it has expired; return whether it was dropped."""
        self._remove_expired(target, 1)
        return not target.direct or target.direct[0][0] != message[0]

    # ------------------------------------------------------------------ settling

    def settle(self, delivery: Delivery) -> None:
        """Remove a delivery and its charge from the DispatchArea. O(1), or O(waiters) while some wait for memory."""
        lane = delivery.lane
        del lane.deliveries[delivery.sequence]
        body = delivery.held_body  # its charge is OVERHEAD_BYTES and content_bytes, written inline
        charge = OVERHEAD_BYTES if body is None else OVERHEAD_BYTES + len(delivery.held_properties) + len(body)
        if lane.memory.is_common:
            # Holder.release, for a holder without a guarantee, written inline: every single ack passes here.
            self.dispatch_holder.held_bytes -= charge
            self.budget.held_bytes -= charge
        else:
            self._release_in_flight(lane.memory, charge)
        delivery.consumer.in_flight -= 1
        if self._waiters:
            self.retry_waiters()

    def settle_run(self, lane: DeliveryLane, deliveries: Sequence[Delivery]) -> None:
        """Settle acknowledged deliveries of one lane. All belong to one consumer, and none is there twice."""
        in_flight, charge = lane.deliveries, OVERHEAD_BYTES * len(deliveries)
        is_all = len(in_flight) == len(deliveries)
        if is_all:
            in_flight.clear()
        for delivery in deliveries:
            if not is_all:
                del in_flight[delivery.sequence]
            body = delivery.held_body  # content_bytes, written inline
            if body is not None:
                charge += len(delivery.held_properties) + len(body)
        self._release_in_flight(lane.memory, charge)
        if lane.delivery_counts is not None:
            lane.trim_delivery_counts(deliveries[0].sequence, deliveries[-1].sequence)
        deliveries[0].consumer.in_flight -= len(deliveries)
        if self._waiters:
            self.retry_waiters()

    # ------------------------------------------------------------------ who waits for memory

    def wait_for_memory(self, waiter: MemoryWaiter) -> None:
        """Call `on_memory_freed` of a waiter when memory comes free, until it calls `stop_waiting_for_memory`."""
        self._waiters[waiter] = None

    def stop_waiting_for_memory(self, waiter: MemoryWaiter) -> None:
        """Forget a waiter that goes on or ends, if it waited."""
        self._waiters.pop(waiter, None)

    def is_waiting(self, waiter: MemoryWaiter) -> bool:
        """Return whether a consumer or list waits for memory."""
        return waiter in self._waiters

    def retry_waiters(self) -> None:
        """Let all consumers and lists that wait for memory try again, because some came free. O(waiters).

        Memory is seldom short, so there are seldom any. Each is asked even if those before it used up what came free: a
        pattern has a memory of its own, and a consumer that holds nothing gets a message however short memory is.
        """
        for waiter in list(self._waiters):
            waiter.on_memory_freed()

    # ------------------------------------------------------------------ what is in flight, in bytes

    def _in_flight_rooms(self, memory: MessageMemory) -> tuple[int, int]:
        """Return how many more bytes destinations of a memory may have in flight: with bodies, and at all."""
        held_bytes = self.dispatch_holder.held_bytes
        return memory.in_flight_rooms(self.dispatch_bytes_max - held_bytes, self.in_flight_bytes_max - held_bytes)

    def _note_in_flight(self, memory: MessageMemory, more_bytes: int) -> None:
        """Adjust the bounds of the common memory after destinations with a quota have got more bytes in flight."""
        after_bytes = memory.dispatch_holder.held_bytes
        before_bytes = after_bytes - more_bytes
        bodies_bytes, all_bytes = memory.in_flight_reserves
        self.dispatch_bytes_max -= max(after_bytes, bodies_bytes) - max(before_bytes, bodies_bytes)
        self.in_flight_bytes_max -= max(after_bytes, all_bytes) - max(before_bytes, all_bytes)

    def _transfer_charges(self, target: TargetList, moved_bytes: int, released_bytes: int) -> None:
        """Transfer charges of a list to the DispatchArea, and release others."""
        memory, taken_bytes = target.lane.memory, moved_bytes + released_bytes
        # ListSupply.pass_first, written inline for all messages of a take together.
        target.direct_bytes -= taken_bytes
        target.taken_bytes += taken_bytes
        memory.lists_holder.transfer(memory.dispatch_holder, moved_bytes)
        if not memory.is_common:
            self._note_in_flight(memory, moved_bytes)
        if released_bytes:
            memory.lists_holder.release(released_bytes)

    def _release_in_flight(self, memory: MessageMemory, charge: int) -> None:
        memory.dispatch_holder.release(charge)
        if not memory.is_common:
            self._note_in_flight(memory, -charge)

    @property
    def in_flight_bytes(self) -> int:
        """Bytes that all deliveries in flight hold."""
        return sum(memory.dispatch_holder.held_bytes for memory in self._memories.all)

    @property
    def is_short(self) -> bool:
        """Whether consumers of destinations without a quota must settle before they take more. See is_short_for."""
        return self.is_short_for(self._memories.common)

    def is_short_for(self, memory: MessageMemory) -> bool:
        """Return whether deliveries in flight hold so much of a memory that a consumer must settle before it takes
        more.
        """
        return self._in_flight_rooms(memory)[1] < OVERHEAD_BYTES

    def audit(self, lanes: Iterable[DeliveryLane], shares: Shares) -> int:
        """Return what deliveries of these lanes should be charged. AssertionError if dispatch_bytes_max is wrong."""
        kept = [
            max(memory.dispatch_holder.held_bytes, memory.in_flight_reserves[0])
            for memory in self._memories.of_patterns.values()
        ]
        assert self.dispatch_bytes_max == shares.dispatch_bytes_max - sum(kept)
        in_flight = {id(delivery): delivery for lane in lanes for delivery in lane.deliveries.values()}
        return sum(OVERHEAD_BYTES + content_bytes(delivery) for delivery in in_flight.values())


def _bounds(target: TargetList, most: int, before: int) -> tuple[int, int]:
    """Return how many messages may be taken from a list, and the sequence at which to stop.

    Both end before the first message that came back, and before `before`. A list that needs claims stops by sequence,
    because it can't know how many of its messages are free. Other lists stop by number.
    """
    returned = target.returned
    if target.needs_claims:
        return most, min(before, returned.first + 1) if returned.count else before
    if returned.count:
        most = min(most, target.before_returned)
    if before < BEHIND_ALL:
        most = min(most, target.count_before(before, most))
    return most, BEHIND_ALL


def _deliveries_of(consumer: CoreConsumer, lane: LaneState, taken: list[StoredMessage]) -> list[Delivery]:
    """Make deliveries of messages that have left their list with their charges, and note them as in flight."""
    counts, in_flight, number = lane.delivery_counts, lane.deliveries, consumer.delivered
    deliveries: list[Delivery] = []
    for sequence, properties, body, timestamp in taken:
        number += 1
        attempt = counts.get(sequence) + 1 if counts is not None else 1
        delivery = Delivery(consumer, lane, sequence, properties, body, timestamp, attempt, number)
        in_flight[sequence] = delivery
        deliveries.append(delivery)
    consumer.delivered = number
    consumer.in_flight += len(deliveries)
    if counts is not None:
        lane.count_attempts(deliveries)
    return deliveries


def _has_expired(lane: LaneState, message: StoredMessage, now_ms: int) -> bool:
    """Return whether a message has expired."""
    if message[2] is None:
        times = lane.pending_lane.times_of(message[0])
    elif has_times(message[1]):
        times = times_of(message[1])
    else:
        return False
    return 0 < times.expires_at <= now_ms
