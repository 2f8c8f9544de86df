"""GroupAssigner: hands the messages of a queue to consumers that are not all alike, because of groups or of priorities.

The consumers of one consumer group share its lists as in any queue: those are
the *unassigned* messages, with one frontier, and every message is looked at
there once. Each consumer has lists of *assigned* messages besides: its own
already, because it owns the group or is about to take it. A message is
assigned when somebody takes, or at once when its owner is known. A consumer
gets what is assigned to it first, so a group stays in order.

An owner keeps its groups until it closes or an exclusive consumer comes. Where
the queue's policy has `group_rebalance`, it keeps them until it is slow, or
another consumer of the consumer group has nothing to do and owns less than its
part. What it has not been handed is unassigned again then; a group of which
it holds something stays with it until that is settled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final

from ...cache.charge import charge_bytes
from ...store.format.properties import group_of
from ...store.format.record import RecordDamaged
from ...store.journal.reading import StoredMessage
from ...store.message import HeaderValue
from ...store.sequence_set import SequenceSet
from ..core.consumer_memory import GROUP_BYTES
from ..core.destinations import Destinations
from ..core.list_order import next_by_arrival, pair
from ..core.lists import TargetArea
from ..core.model import (
    Collectors,
    ConsumerGroup,
    Delivery,
    Distribution,
    LaneState,
    QueueArea,
    Taker,
    TargetList,
    collect_nothing,
    consumer_of,
    is_lazy,
    keep_group,
    kept_group,
    lane_of,
    message_of,
)
from ..core.monitor import Monitor
from ..selectors.selector import Selector
from .idle_consumers import IdleConsumers
from .message_groups import Groups, bucket_of, put_aside

NOTHING_BEHIND = 1 << 62
"""The frontier of a list that looks for nothing by itself."""
UNLIMITED: Final = 1 << 62
BATCH_MESSAGES: Final = 64
"""Read at one go to learn their groups."""


_Passed = dict[LaneState, SequenceSet]


class _Promise:
    """A message is reserved for a consumer of another consumer group: those behind it in groups of its bucket wait."""

    __slots__ = ("consumer", "waiting")

    def __init__(self, consumer: Taker) -> None:
        self.consumer = consumer
        self.waiting: _Passed = {}


class UnassignedMessages(ConsumerGroup):
    """What the consumers with one selector share: messages that are assigned to none of them yet."""

    __slots__ = ("assigner", "withheld", "reserved_for", "promises", "_waiting_consumers", "idle")
    notes_groups = True

    def __init__(self, assigner: GroupAssigner, selector: Selector | None) -> None:
        super().__init__(selector, assigner.target_area.monitor.lock)
        self.assigner = assigner
        self.withheld: dict[Taker, _Passed] = {}
        """What it has passed because another consumer group's consumer owns the group."""
        self.reserved_for: dict[Taker, _Passed] = {}
        """What it has passed because another consumer group's consumer of higher priority comes first."""
        self.promises: dict[int, _Promise] = {}
        """By bucket of groups that nobody owns."""
        self._waiting_consumers: dict[int, dict[Taker, None]] = {}
        """By priority, those who found nothing since something came."""
        self.idle: dict[int, IdleConsumers] = {}
        """By priority, those whose last take found nothing."""

    @property
    def is_awaited(self) -> bool:
        return any(consumer.consumer_group.is_awaited for consumer in self.consumers)

    def wake(self, ready: list[Callable[[], None]]) -> None:
        """Assign what has an owner at once; for the rest wake everybody who found nothing."""
        self.assigner.assign_owned(self)
        if self._waiting_consumers and any(target.direct or target.has_supply for target in self.lists):
            for priority in sorted(self._waiting_consumers, reverse=True):
                if self.assigner.unowned_quota(self, priority):
                    self._call(self._waiting_consumers.pop(priority), ready)

    def load_ended(self, ready: list[Callable[[], None]]) -> None:
        self.assigner.assign_owned(self)
        waiting, self._waiting_consumers = self._waiting_consumers, {}
        for priority in sorted(waiting, reverse=True):
            self._call(waiting[priority], ready)

    def _call(self, consumers: Iterable[Taker], ready: list[Callable[[], None]]) -> None:
        # Whoever was served last comes last: no other is passed over twice for it.
        for consumer in sorted(consumers, key=lambda consumer: self.assigner.assigned_by_consumer[consumer].served):
            consumer.consumer_group.wake(ready)

    def note_waiting(self, consumer: Taker) -> None:
        """Note that the consumer found nothing.

        A closed one is not asked again, though a transaction may still give it credit.
        """
        if consumer in self.assigner.assigned_by_consumer:
            self._waiting_consumers.setdefault(consumer.priority, {})[consumer] = None

    def note_served(self, consumer: Taker) -> None:
        """Note that the consumer has got something, or wants nothing more."""
        if self._waiting_consumers:
            self._waiting_consumers.get(consumer.priority, {}).pop(consumer, None)

    def note_group(self, lane: LaneState, message: StoredMessage) -> None:
        self.assigner.note(lane, message)

    def list_over(self, lane: LaneState) -> TargetList:
        return next(target for target in self.lists if target.lane is lane)

    # ------------------------------------------------------------------ what was passed, and is looked at again

    def offer(self, lane: LaneState, runs: Iterable[tuple[int, int]]) -> None:
        """Offer these messages again, of those before the front."""
        target = self.list_over(lane)
        front = target.front
        for first, last in runs:
            if first < front:
                target.returned.add(first, min(last, front - 1))
        self.assigner.target_area.loads.request(target)
        self.assigner.target_area.wake(self)

    def withhold(self, owner: Taker, lane: LaneState, first: int, last: int) -> None:
        """Withhold messages that are in the groups of this owner."""
        put_aside(lane, self.withheld.setdefault(owner, {}).setdefault(lane, SequenceSet()), first, last)

    def reserve_for(self, consumer: Taker, group: str | None, lane: LaneState, sequence: int) -> None:
        """Reserve a message that nobody owns for this consumer, whose priority is higher than that of who asks."""
        put_aside(lane, self.reserved_for.setdefault(consumer, {}).setdefault(lane, SequenceSet()), sequence, sequence)
        if group is not None:
            self.promises[bucket_of(group)] = _Promise(consumer)

    def waits_behind_promise(self, group: str | None, lane: LaneState, sequence: int) -> bool:
        """Let a message wait if one before it in its group is reserved for somebody; return whether it must."""
        promise = self.promises.get(bucket_of(group)) if group is not None else None
        if promise is not None:
            put_aside(lane, promise.waiting.setdefault(lane, SequenceSet()), sequence, sequence)
        return promise is not None

    def end_promise(self, bucket: int) -> None:
        """End the promise: who waited behind it looks again."""
        promise = self.promises.pop(bucket, None)
        if promise is not None:
            self._offer_lanes(promise.waiting)

    def offer_withheld(self, consumer: Taker) -> None:
        """Offer again all that was passed over because of this consumer."""
        self._offer_lanes(self.withheld.pop(consumer, {}))
        self._offer_reserved_for(consumer)

    def offer_reserved(self, priority: int) -> None:
        """Offer what was reserved for others of no higher priority, because a consumer of this one asks."""
        for consumer in [consumer for consumer in self.reserved_for if consumer.priority <= priority]:
            self._offer_reserved_for(consumer)

    def _offer_reserved_for(self, consumer: Taker) -> None:
        self._offer_lanes(self.reserved_for.pop(consumer, {}))
        for bucket in [bucket for bucket, promise in self.promises.items() if promise.consumer is consumer]:
            self.end_promise(bucket)

    def _offer_lanes(self, lanes: _Passed) -> None:
        for lane, runs in lanes.items():
            self.offer(lane, runs)


class AssignedMessages(ConsumerGroup):
    """What is one consumer's own, before it has taken it."""

    __slots__ = ("unassigned", "owner", "idle", "served")
    notes_groups = True

    def __init__(self, unassigned: UnassignedMessages, owner: Taker) -> None:
        self.unassigned = unassigned
        self.owner = owner
        super().__init__(unassigned.selector, unassigned.assigner.target_area.monitor.lock)
        self.consumers.add(owner)
        idle = unassigned.idle.get(owner.priority)
        if idle is None:
            idle = unassigned.idle[owner.priority] = IdleConsumers(unassigned.assigner.groups.owned)
        self.idle = idle
        """Where its owner is while its last take found nothing."""
        self.served = 0
        """How many takes of the queue had been served when one of its own was, the last time."""

    @property
    def shared(self) -> ConsumerGroup:
        """See ConsumerGroup."""
        return self.unassigned

    def arm(self) -> None:
        """See ConsumerGroup."""
        self.is_armed = True
        self.unassigned.note_waiting(self.owner)

    def in_turn(self) -> Iterable[TargetList]:
        return (target for pair in zip(self.lists, self.unassigned.lists, strict=False) for target in pair)

    def wants(self, lane: LaneState, message: StoredMessage, values: dict[str, HeaderValue] | None = None) -> bool:
        """Want what the selector matches of the consumer's own groups, and of no group.

        What lies between is loaded with it, and is for others.
        """
        group = self.unassigned.assigner.group_of(lane, message)
        return (group is None or self.unassigned.assigner.groups.owner(group) is self.owner) and super().wants(
            lane, message, values
        )

    def claim(self, lane: LaneState, message: StoredMessage) -> bool:
        return super().claim(lane, message) and self.unassigned.assigner.claim_own(self.owner, lane, message)

    def note_group(self, lane: LaneState, message: StoredMessage) -> None:
        self.unassigned.assigner.note(lane, message)

    def list_over(self, lane: LaneState) -> TargetList:
        return next(target for target in self.lists if target.lane is lane)


class GroupAssigner(Distribution):
    """Assigns the messages of one queue to its consumers. The state lock guards it.

    A free message that was looked at is in one of four states:

    - unassigned: in the lists of each consumer group that wants it, or behind their frontiers;
    - assigned: in a list of the one consumer that may have it, the owner of its group if it has one;
    - passed: withheld for the owner of its group, or reserved for a consumer of higher priority, in another consumer
      group; or it waits behind a promise;
    - waiting: behind a message of its group that comes back later, in `groups`.

    A bucket of groups has one owner or none. Up to the last place of it that was assigned no message of an owned group
    is unassigned, and behind it none is assigned: so what comes back knows its place, and each group stays in order.
    """

    def __init__(self, queue: QueueArea, target_area: TargetArea) -> None:
        self.queue = queue
        self.target_area = target_area
        self.groups = Groups(target_area.groups)
        self._ranks: dict[int, dict[Taker, None]] = {}
        """Its consumers by priority."""
        self._priorities: list[int] = []
        """The highest first."""
        self._highest = self._lowest = 0
        self._served = 0
        """Takes that got something."""
        self.assigned_by_consumer: dict[Taker, AssignedMessages] = {}
        self._known: dict[tuple[LaneState, int], str | None] = {}
        """Groups of messages of which the body is not in RAM, and of those that are just handed out."""

    # ------------------------------------------------------------------ who takes part

    def take_over(self) -> None:
        """Take over a queue that was an ordinary one so far."""
        self.queue.distribution = self
        for key, consumer_group in self.queue.consumer_groups.items():
            unassigned = self.queue.consumer_groups[key] = UnassignedMessages(self, consumer_group.selector)
            unassigned.lists, unassigned.consumers, unassigned.misses = (
                consumer_group.lists,
                consumer_group.consumers,
                consumer_group.misses,
            )
            unassigned.is_charged = True
            for target in unassigned.lists:
                target.consumer_group = unassigned
            for consumer in unassigned.consumers:
                self.join(consumer, unassigned)
            consumer_group.arrived.notify_all()
        self.target_area.find_sole_lists(self.queue)

    def make_consumer_group(self, queue: QueueArea, selector: Selector | None) -> UnassignedMessages:
        """See HandsOut."""
        return UnassignedMessages(self, selector)

    def single_groups(self) -> Iterable[ConsumerGroup]:
        """See HandsOut. What is assigned to each consumer."""
        return self.assigned_by_consumer.values()

    def join(self, consumer: Taker, unassigned: ConsumerGroup) -> None:
        """Give a consumer lists of its own beside the unassigned ones."""
        assert isinstance(unassigned, UnassignedMessages)
        self.target_area.consumers.charge(GROUP_BYTES)
        assigned = self.assigned_by_consumer[consumer] = AssignedMessages(unassigned, consumer)
        self._ranks.setdefault(consumer.priority, {})[consumer] = None
        self._rank()
        for lane in self.queue.all_lanes():
            self._add_list(assigned, lane)
        pair(assigned)
        unassigned.note_waiting(consumer)
        consumer.move_to(assigned)

    def add_lane(self, lane: LaneState) -> None:
        """Give each consumer a list over a new lane, which the unassigned messages have already."""
        for assigned in self.assigned_by_consumer.values():
            self._add_list(assigned, lane)
            assigned.lists.sort(key=lambda target: (-target.lane.stored.priority, not target.lane.is_persistent))
            pair(assigned)

    def _add_list(self, assigned: AssignedMessages, lane: LaneState) -> None:
        target = TargetList(lane, assigned, 0)
        target.frontier = NOTHING_BEHIND
        target.share()
        assigned.lists.append(target)
        self.target_area.adopt(target)

    def leave(self, consumer: Taker) -> None:
        """Leave the distribution: others may have what this consumer was not handed.

        What it was handed is given back after this.
        """
        assigned = self.assigned_by_consumer[consumer]
        unassigned = assigned.unassigned
        for delivery in consumer.held_in_transactions() if consumer.in_flight else ():
            group = self._group_in_flight(delivery)
            if group is not None:
                self.groups.halt(lane_of(delivery), delivery.sequence, group)
        assigned.idle.drop(consumer)
        if self.groups.owned(consumer):
            self.groups.release(consumer, self.groups.buckets(consumer))
        self._empty(assigned)
        for target in assigned.lists:
            self.target_area.drop(target)
            target.close()
        assigned.lists.clear()
        self._offer_withheld(consumer)
        del self.assigned_by_consumer[consumer]
        self.target_area.consumers.release(GROUP_BYTES)
        rank = self._ranks[consumer.priority]
        del rank[consumer]
        if not rank:
            del self._ranks[consumer.priority]
        self._rank()
        unassigned.note_served(consumer)
        unassigned.consumers.remove(consumer)
        self.queue.misses += assigned.misses
        self.target_area.groups.forget(assigned)
        if not unassigned.consumers:
            self.target_area.unsubscribe(self.queue, unassigned)

    def _rank(self) -> None:
        """Note which priorities there are. O(1) unless they are others now."""
        if len(self._priorities) != len(self._ranks):
            self._priorities = sorted(self._ranks, reverse=True)
            self._highest, self._lowest = (self._priorities[0], self._priorities[-1]) if self._ranks else (0, 0)

    def stand_back(self, consumer: Taker) -> None:
        """Give back what is assigned to a consumer that is slow or drains, or is not the exclusive one.

        Of its groups it keeps those that it holds messages of, or all, if it is slow, the policy says so and nobody is
        exclusive.
        """
        if self.queue.rebalances_groups or self._gets_no_more(consumer):
            self._release(consumer, UNLIMITED)
        else:
            self._empty(self.assigned_by_consumer[consumer])

    def woken(self) -> None:
        """Wake who was passed over and may have something now."""
        for consumer in {
            consumer
            for unassigned in self._unassigned_lists()
            for consumer in (*unassigned.withheld, *unassigned.reserved_for)
        }:
            if consumer.is_slow or credit(self.queue, consumer) <= 0:
                self._offer_withheld(consumer)
        for consumer_group in self.queue.consumer_groups.values():
            self.target_area.wake(consumer_group)

    # ------------------------------------------------------------------ assigning

    @property
    def collectors(self) -> Collectors:
        """See HandsOut."""
        return Collectors(self.collect, collect_nothing)

    def collect(self, consumer: Taker, most: int, max_bytes: int | None) -> list[Delivery]:
        """Collect from the consumer's assigned messages, and from the unassigned ones by way of these."""
        deliveries: list[Delivery] = []
        assigned = self.assigned_by_consumer[consumer]
        if self.is_held_up:
            self.target_area.groups.refuse(assigned, partial(self.target_area.wake, assigned))
            assigned.unassigned.note_waiting(consumer)
            return deliveries
        if assigned.unassigned.reserved_for:
            assigned.unassigned.offer_reserved(consumer.priority)
        self._collect(assigned, most, max_bytes, deliveries)
        if not deliveries and self._level(assigned):
            self._collect(assigned, most, max_bytes, deliveries)
        if not deliveries:
            assigned.idle.note(consumer)
            if not any(own.direct or own.has_supply or own.is_loading for own in assigned.lists):
                self.groups.assign_again(consumer)
            assigned.unassigned.note_waiting(consumer)
            return deliveries
        assigned.unassigned.note_served(consumer)
        assigned.idle.drop(consumer)
        if self._known:
            for delivery in deliveries:
                group = self._known.pop((lane_of(delivery), delivery.sequence), None)
                if is_lazy(delivery):
                    keep_group(delivery, group)
        self._served += 1
        assigned.served = self._served
        if consumer.priority > self._lowest:
            self.woken()
        return deliveries

    @property
    def is_held_up(self) -> bool:
        """See HandsOut: memory has no room to hold back another group, which whoever takes may want to."""
        return self.queue.has_groups and self.target_area.groups.is_full

    def _collect(
        self, assigned: AssignedMessages, most: int, max_bytes: int | None, deliveries: list[Delivery]
    ) -> None:
        for own, unassigned in zip(assigned.lists, assigned.unassigned.lists, strict=True):
            if own.counterpart is not None and not own.lane.is_persistent:
                continue
            while True:
                max_bytes, is_empty = self._hand_out(assigned.owner, own, most, max_bytes, deliveries)
                if not is_empty or len(deliveries) >= most:
                    return
                if not self._assign(assigned, unassigned, most - len(deliveries)):
                    break
            if (
                unassigned.direct
                or unassigned.has_supply
                or (unassigned.counterpart and (unassigned.counterpart.direct or unassigned.counterpart.has_supply))
            ):
                return

    def _hand_out(
        self, consumer: Taker, own: TargetList, most: int, max_bytes: int | None, deliveries: list[Delivery]
    ) -> tuple[int | None, bool]:
        """Hand out from one list, and its counterpart; return what is left of max_bytes, and if both are empty."""
        target_area = self.target_area
        if own.counterpart is not None:
            return target_area.collect_interleaved(consumer, own, most, max_bytes, deliveries)
        if own.direct and not (own.returned.count and own.returned.first < own.direct[0][0]):
            max_bytes = target_area.hand_out(consumer, own, most, max_bytes, deliveries)
        if own.has_supply and own.direct_bytes < own.low_watermark_bytes:
            target_area.loads.request(own)
        return max_bytes, not own.direct and not own.has_supply

    def _assign(self, assigned: AssignedMessages, unassigned: TargetList, most: int) -> bool:
        """Assign up to `most` messages of one list, and its counterpart, to a consumer; return whether it got any.

        What belongs to other consumers on the way is assigned to them.
        """
        quota = self.unowned_quota(assigned.unassigned, assigned.owner.priority)
        moved = 0
        while moved < most and (source := _next(unassigned)) is not None:
            message = source.direct[0]
            if not source.consumer_group.claim(source.lane, message):
                self._drop(source)
                continue
            if self._is_forgotten(source.lane, message):
                self._drop(source)
                source.returned.add(message[0], message[0])
                continue
            group = self.group_of(source.lane, message)
            if group is None or self._is_new(source.lane, message[0], group):
                if quota <= 0:
                    break
                if assigned.unassigned.waits_behind_promise(group, source.lane, message[0]):
                    self._drop(source, keeps=True)
                    continue
                first = self._wanted_above(assigned, source.lane, message)
                if first is not None:
                    assigned.unassigned.reserve_for(first, group, source.lane, message[0])
                    self._drop(source, keeps=True)
                    continue
                quota -= 1
                if group is not None:
                    self._give(group, self._neediest(assigned))
            moved += self._move(assigned, source, group) is assigned.owner
        self._request(unassigned)
        if unassigned.counterpart is not None:
            self._request(unassigned.counterpart)
        return moved > 0

    def assign_owned(self, unassigned: UnassignedMessages) -> None:
        """Assign what comes first among the unassigned messages and has an owner, as far as that goes."""
        for target in unassigned.lists:
            while (source := _next(target)) is not None:
                message = source.direct[0]
                group = self.group_of(source.lane, message)
                if group is None or self._is_new(source.lane, message[0], group):
                    break
                if unassigned.claim(source.lane, message):
                    self._move(None, source, group)
                else:
                    self._drop(source)
            self._request(target)

    def _request(self, target: TargetList) -> None:
        if target in self.target_area.waits_for_memory:
            return  # each load that ends comes by here: the loader would try it again, and take from others for it
        if target.has_supply and (target.direct_bytes < target.low_watermark_bytes or not target.is_ready):
            self.target_area.loads.request(target)

    def _give(self, group: str, consumer: Taker) -> None:
        """Give a group that nobody owned an owner. Who waited for that to be decided looks again."""
        self.groups.give(group, consumer)
        self.assigned_by_consumer[consumer].idle.owns_otherwise(consumer)
        for unassigned in self._unassigned_lists():
            unassigned.end_promise(bucket_of(group))

    def _is_new(self, lane: LaneState, sequence: int, group: str) -> bool:
        """Return whether nobody owns the group, and it need not wait."""
        return self.groups.owner(group) is None and not self.groups.is_halted(lane, sequence, group)

    def _move(self, assigned: AssignedMessages | None, source: TargetList, group: str | None) -> Taker | None:
        """Move the first unassigned message to where it belongs; return who got it. assigned: of whom asks."""
        message, lane = source.direct[0], source.lane
        unassigned = source.consumer_group
        assert isinstance(unassigned, UnassignedMessages)
        owner = assigned.owner if assigned is not None else None
        if group is not None:
            owner = self.groups.owner(group)
            if owner is not None and not self._is_withheld(unassigned, owner):
                self.groups.note_assigned(lane, message[0], group)
            if self.groups.is_halted(lane, message[0], group):
                self._drop(source)
                self.groups.wait(lane, message[0], group)
                self._keep(lane, message)
                return None
        assert owner is not None
        if self._is_withheld(unassigned, owner):
            unassigned.withhold(owner, lane, message[0], message[0])
            self._drop(source, keeps=True)
            return None
        found = self.assigned_by_consumer[owner]
        own = found.list_over(lane)
        charge = charge_bytes(message)
        has_room = found is assigned or own.direct_bytes + charge <= own.high_watermark_bytes
        is_last = not own.references and not own.returned and (not own.direct or own.direct[-1][0] < message[0])
        if has_room and is_last:
            source.direct.popleft()
            source.direct_bytes -= charge
            source.taken_bytes += charge
            own.append(message, charge)
        else:
            self._drop(source, keeps=True)
            put_aside(lane, own.returned, message[0], message[0])
            self.target_area.loads.request(own)
        if found is not assigned:
            self.target_area.wake(found)
        return owner

    def _is_withheld(self, unassigned: UnassignedMessages, owner: Taker) -> bool:
        """Return whether what is this owner's is not assigned from these unassigned messages, or not now."""
        return self.assigned_by_consumer[owner].unassigned is not unassigned or self._gets_no_more(owner)

    def _gets_no_more(self, consumer: Taker) -> bool:
        """Tell whether others wait for what it holds of its groups: it drains, or another one is exclusive."""
        return consumer.is_draining or self.queue.exclusive not in (None, consumer)

    def _drop(self, source: TargetList, *, keeps: bool = False) -> None:
        """Drop the first direct message from the unassigned ones. keeps: it will be wanted again."""
        message = source.direct.popleft()
        charge = charge_bytes(message)
        source.direct_bytes -= charge
        source.taken_bytes += charge
        source.lane.memory.lists.release(charge)
        if keeps:
            self._keep(source.lane, message)

    def _keep(self, lane: LaneState, message: StoredMessage) -> None:
        """Keep a message in RAM if there is room."""
        if message[2] is not None and not lane.pending_cache.put(lane.stored.number, message):
            lane.leave_ram((message,))

    def claim_own(self, consumer: Taker, lane: LaneState, message: StoredMessage) -> bool:
        """Take a free message from a consumer's hand for a hand-out to it; return False where it is not for it now.

        Its group is remembered until it is settled. A message of a group that stands still waits with the group.
        """
        group = self.group_of(lane, message)
        if group is None:
            return not self._is_forgotten(lane, message)  # what came back since lies between the consumer's own
        if self.groups.owner(group) is not consumer:
            return False  # it lies between the consumer's own, and is unassigned or with its owner
        if self.groups.is_halted(lane, message[0], group):
            self.groups.wait(lane, message[0], group)
            self._keep(lane, message)
            return False
        self._known[lane, message[0]] = group
        return True

    def by_owner(self, lane: LaneState, messages: Iterable[StoredMessage]) -> dict[Taker | None, list[StoredMessage]]:
        """See ExplainsItself."""
        found: dict[Taker | None, list[StoredMessage]] = {}
        for message in messages:
            group = self.group_of(lane, message)
            if group is None:
                found.setdefault(None, []).append(message)
            elif not self.groups.is_halted(lane, message[0], group):
                found.setdefault(self.groups.owner(group), []).append(message)
        return found

    def kind_of(self, consumer: Taker) -> tuple[UnassignedMessages, int]:
        """See ExplainsItself."""
        return self.assigned_by_consumer[consumer].unassigned, consumer.priority

    def unowned_of(
        self, consumer: Taker, lane: LaneState, messages: Iterable[StoredMessage]
    ) -> Iterator[StoredMessage]:
        """See ExplainsItself."""
        assigned = self.assigned_by_consumer[consumer]
        if self.unowned_quota(assigned.unassigned, consumer.priority) <= 0:
            return
        for message in messages:
            group = self.group_of(lane, message)
            is_promised = group is not None and bucket_of(group) in assigned.unassigned.promises
            if not is_promised and self._wanted_above(assigned, lane, message) is None:
                yield message

    # ------------------------------------------------------------------ who gets what nobody owns

    def unowned_quota(self, unassigned: UnassignedMessages, priority: int) -> int:
        """Return how many messages without an owner a consumer of this priority may take beside the others."""
        return UNLIMITED if priority == self._highest else self._beyond_credit_above(unassigned, priority)

    def _above(self, priority: int) -> Iterator[Taker]:
        """Yield consumers of higher priority that could take something now, the highest first. O(consumers above)."""
        if self.queue.exclusive is not None:
            return
        for rank in self._priorities:
            if rank <= priority:
                return
            for other in self._ranks[rank]:
                # Whose prefetch is used up is passed over without a call: with many consumers those are most.
                if (
                    (not other.prefetch_limit or other.in_flight < other.prefetch_limit)
                    and not other.is_slow
                    and _own_credit(other) > 0
                ):
                    yield other

    def _beyond_credit_above(self, unassigned: UnassignedMessages, priority: int) -> int:
        """Return how many unassigned messages those of higher priority have no credit for.

        With a selector only those count that are known to match. O(lanes + consumers of higher priority), and
        O(consumers) where their credit does not do for all that is undelivered.
        """
        available: int | None = None
        for other in self._above(priority):
            if self.assigned_by_consumer[other].unassigned is unassigned:
                if available is None:
                    available = self._undelivered(unassigned)
                available -= _own_credit(other)
                if available <= 0:
                    return 0
        return UNLIMITED if available is None else max(available - self._assigned(unassigned), 0)

    def _undelivered(self, unassigned: UnassignedMessages) -> int:
        """Count unassigned messages and, where these have no selector, assigned ones too. O(lanes)."""
        if unassigned.selector is not None:
            return sum(len(list_.direct) + list_.returned.count + list_.references.count for list_ in unassigned.lists)
        return sum(lane.free_messages for lane in self.queue.all_lanes())

    def _assigned(self, unassigned: UnassignedMessages) -> int:
        """Count what of the undelivered messages is assigned to consumers. O(consumers)."""
        if unassigned.selector is not None or not self.groups.has_owners:
            return 0
        every = self.assigned_by_consumer.values()
        return sum(len(own.direct) + own.returned.count for assigned in every for own in assigned.lists)

    def _wanted_above(self, assigned: AssignedMessages, lane: LaneState, message: StoredMessage) -> Taker | None:
        """Return who of another consumer group comes first and wants the message."""
        if assigned.owner.priority == self._highest or len(self.queue.consumer_groups) < 2:
            return None
        for other in self._above(assigned.owner.priority):
            if self.assigned_by_consumer[other].unassigned is not assigned.unassigned and (
                message[2] is None or self._matches(other, lane, message)
            ):
                return other
        return None

    def _matches(self, consumer: Taker, lane: LaneState, message: StoredMessage) -> bool:
        try:
            return self.assigned_by_consumer[consumer].unassigned.wants(lane, message)
        except RecordDamaged:
            return False

    def _neediest(self, assigned: AssignedMessages) -> Taker:
        """Choose who gets a group: of the one who asks and those who found nothing, whoever owns least."""
        if self.queue.exclusive is not None:
            return assigned.owner
        fewest = self.groups.owned(assigned.owner)
        return assigned.idle.neediest(fewest, partial(credit, self.queue)) or assigned.owner

    def _level(self, assigned: AssignedMessages) -> bool:
        """Level the ownership for a consumer that has nothing to do.

        What owners of more than their part can give is free again.
        """
        if not self.queue.rebalances_groups or not self.groups.has_owners:
            return False
        consumers = [other for other in assigned.unassigned.consumers if not self.queue.holds_up(other)]
        counts = {other: self.groups.owned(other) for other in consumers}
        part = -(-sum(counts.values()) // max(len(consumers), 1))
        if len(counts) < 2 or counts.get(assigned.owner, 0) >= sum(counts.values()) // len(counts):
            return False
        # A list: each of them is asked.
        return any([self._release(other, count - part) for other, count in counts.items() if count > part])

    def _release(self, consumer: Taker, most: int) -> bool:
        """Let it own fewer groups, up to `most`, none of which it holds a message of; whether there was one."""
        assigned = self.assigned_by_consumer[consumer]
        in_use = self._in_use(consumer)
        idle = [bucket for bucket in self.groups.buckets(consumer) if bucket not in in_use][:most]
        if not idle and (most < UNLIMITED or not any(own.direct or own.has_supply for own in assigned.lists)):
            return False
        if idle:
            self.groups.release(consumer, idle)
            assigned.idle.owns_otherwise(consumer)
        self._empty(assigned)
        self._offer_withheld(consumer)
        return True

    def _in_use(self, consumer: Taker) -> set[int]:
        """Buckets of which it holds a message. O(in flight)."""
        held = [delivery for lane in self.queue.all_lanes() for delivery in lane.in_flight.values()]
        held += consumer.held_in_transactions()
        groups = (self._group_in_flight(delivery) for delivery in held if consumer_of(delivery) is consumer)
        return {bucket_of(group) for group in groups if group is not None}

    # ------------------------------------------------------------------ giving back

    def _empty(self, assigned: AssignedMessages) -> None:
        """Make unassigned again what was assigned and not taken. A load under way comes to nothing."""
        self.groups.assign_again(assigned.owner)
        for at, own in enumerate(assigned.lists):
            if not own.direct and not own.has_supply and not own.is_loading:
                continue
            messages = list(own.direct)
            own.lane.memory.lists.release(own.direct_bytes)
            self.target_area.drop(own)
            returned = own.returned.copy()
            for first, last in own.references:
                returned.add(first, last)
            own.close()
            for message in messages:
                returned.add(message[0], message[0])
                self._keep(own.lane, message)
            self._add_list(assigned, own.lane)
            assigned.lists[at] = assigned.lists.pop()
            assigned.unassigned.offer(own.lane, returned)
        pair(assigned)

    def make_way(self) -> None:
        """Make assigned messages unassigned again, behind older ones of unknown groups that have come. O(owners)."""
        for consumer in self.groups.owners():
            self._empty(self.assigned_by_consumer[consumer])

    def _offer_withheld(self, consumer: Taker) -> None:
        """Offer again what was passed because of this owner."""
        for unassigned in self._unassigned_lists():
            unassigned.offer_withheld(consumer)

    def _unassigned_lists(self) -> list[UnassignedMessages]:
        return [
            consumer_group
            for consumer_group in self.queue.consumer_groups.values()
            if isinstance(consumer_group, UnassignedMessages)
        ]

    def offer_again(self, lane: LaneState, message: StoredMessage) -> None:
        """Offer a pending message again, and keep it in the caches if they have room for it."""
        sequence = message[0]
        group = self.groups.holds_back(lane, sequence) or self.group_of(lane, message)
        self._go_on(lane, sequence, group)
        if group is not None and self.groups.is_halted(lane, sequence, group):
            self.groups.wait(lane, sequence, group)
        else:
            self._offer_run(group, lane, sequence, sequence)

    def offer_put_off(self, lane: LaneState, runs: Sequence[tuple[int, int]]) -> None:
        """See HearsOfLanes. Each by itself, as each has a group of its own."""
        for first, last in runs:
            for sequence in range(first, last + 1):
                self.target_area.offer_again(lane, (sequence, b"", None, 0))

    def _go_on(self, lane: LaneState, sequence: int, group: str | None) -> None:
        for other, runs in self.groups.go_on(lane, sequence).items():
            for first, last in runs:
                self._offer_run(group, other, first, last)
        self.target_area.groups.go_on()

    def _offer_run(self, group: str | None, lane: LaneState, first: int, last: int) -> None:
        """Offer messages of one group again. Where the group has an owner that was assigned later messages of it
        already, they go back to that owner; else to the unassigned messages of every consumer group."""
        owner = self.groups.owner(group) if group is not None else None
        if owner is None or group is None:
            for unassigned in self._unassigned_lists():
                unassigned.offer(lane, ((first, last),))
            return
        assigned = self.assigned_by_consumer[owner]
        if self.groups.is_ahead(lane, first, group):
            own = assigned.list_over(lane)
            put_aside(lane, own.returned, first, last)
            self.target_area.loads.request(own)
        else:
            assigned.unassigned.offer(lane, ((first, last),))
        for unassigned in self._unassigned_lists():
            if unassigned is not assigned.unassigned:
                unassigned.withhold(owner, lane, first, last)
        self.target_area.wake(assigned)

    # ------------------------------------------------------------------ groups

    def group_of(self, lane: LaneState, message: StoredMessage) -> str | None:
        """Return the group of a message; None: it has none, its headers make no sense, or groups mean nothing here."""
        if not self.queue.keeps_groups:
            return None
        if message[2] is None:
            return self._known.get((lane, message[0]))
        try:
            return group_of(message[1])
        except RecordDamaged:
            return None

    def note(self, lane: LaneState, message: StoredMessage) -> None:
        """Note the group of a message whose body stays on disk. Requires: nothing, not even the lock."""
        self._known[lane, message[0]] = self.group_of(lane, message)

    def _is_forgotten(self, lane: LaneState, message: StoredMessage) -> bool:
        """Tell whether the message's body is on disk and it came back since somebody has read its group there."""
        return message[2] is None and (lane, message[0]) not in self._known

    def _group_in_flight(self, delivery: Delivery) -> str | None:
        if is_lazy(delivery):
            return kept_group(delivery)
        return self.group_of(lane_of(delivery), message_of(delivery))

    def comes_back(self, delivery: Delivery, *, is_delayed: bool) -> None:
        """Note that a delivery is given back, now or later."""
        group = self._group_in_flight(delivery)
        if group is None:
            return
        if is_delayed:
            self.groups.halt(lane_of(delivery), delivery.sequence, group)
        elif is_lazy(delivery):
            self._known[lane_of(delivery), delivery.sequence] = group

    def remember_put_off(self, lane: LaneState, runs: Iterable[tuple[int, int]]) -> SequenceSet:
        """See HearsOfLanes. Reads each of the messages. One that can't be read holds back nobody."""
        forgotten = SequenceSet()
        for at, last in runs:
            while (run := lane.stored.pending_run(at, BATCH_MESSAGES)) is not None and run[0] <= last:
                end = min(run[1], last)
                at = end + 1
                if self.target_area.groups.is_full:
                    forgotten.add(run[0], end)
                    continue
                messages, _ = lane.store.read(lane.store.plan(lane.stored, [(run[0], end)]))
                for message in messages:
                    group = self.group_of(lane, message)
                    if group is not None:
                        self.groups.halt(lane, message[0], group)
        return forgotten

    def settled(self, lane: LaneState, first: int, messages: int) -> None:
        """Let groups go on that waited for what a transaction has settled."""
        for sequence in self.groups.held_back(lane, first, first + messages - 1):
            self._go_on(lane, sequence, self.groups.holds_back(lane, sequence))

    def forget(self, lane: LaneState, gone: SequenceSet) -> None:
        """Forget messages that were removed and are not in flight. O(messages that are put off or not in RAM)."""
        for consumer in [
            promise.consumer for unassigned in self._unassigned_lists() for promise in unassigned.promises.values()
        ]:
            self._offer_withheld(consumer)
        for key in [key for key in list(self._known) if key[0] is lane and key[1] in gone]:
            del self._known[key]
        for first, last in gone:
            for sequence in self.groups.held_back(lane, first, last):
                self._go_on(lane, sequence, self.groups.holds_back(lane, sequence))

    # ------------------------------------------------------------------ what explanations and audits ask

    def kept_for_others(self, consumer: Taker) -> list[int]:
        """See ExplainsItself. What is assigned to another; where that is nothing, what is kept for it. O(messages)."""
        kept = {other: self._in_hand(other) for other in self.assigned_by_consumer if other is not consumer}
        unassigned = self.assigned_by_consumer[consumer].unassigned
        behind = ((promise.consumer, promise.waiting) for promise in unassigned.promises.values())
        for other, held in (*unassigned.withheld.items(), *unassigned.reserved_for.items(), *behind):
            if other is not consumer and other in kept and not kept[other]:
                kept[other] = sum(_count_free(lane, runs) for lane, runs in held.items())
        return [messages for messages in kept.values() if messages]

    def _in_hand(self, consumer: Taker) -> int:
        """Return how many free messages are assigned to a consumer."""
        lists = self.assigned_by_consumer[consumer].lists
        direct = sum(len(target.direct) for target in lists)
        return direct + sum(_count_free(own.lane, [*own.returned, *own.references]) for own in lists)

    def count_waiting(self) -> int:
        """See ExplainsItself."""
        return sum(self.groups.waiting(lane) for lane in self.queue.all_lanes())

    def is_outranked(self, consumer: Taker) -> bool:
        """See ExplainsItself."""
        return not self.unowned_quota(self.assigned_by_consumer[consumer].unassigned, consumer.priority)

    def audit(self) -> tuple[int, int]:
        """See ExplainsItself."""
        return self.groups.held_bytes, self.groups.held_back_bytes


def _count_free(lane: LaneState, runs: Iterable[tuple[int, int]]) -> int:
    """Count the messages of these runs that are free."""
    return sum(lane.free_count(first, last) for first, last in runs)


def credit(queue: QueueArea, consumer: Taker) -> int:
    """Return how many messages it could take. One that pulls (prefetch 0) could take one, while it waits for it."""
    return 0 if queue.holds_up(consumer) else _own_credit(consumer)


def _own_credit(consumer: Taker) -> int:
    prefetch = consumer.prefetch_limit
    return prefetch - consumer.in_flight if prefetch else int(consumer.consumer_group.is_awaited)


def _next(target: TargetList) -> TargetList | None:
    """Return which of an unassigned list and its counterpart has the next message in RAM."""
    source = target if target.counterpart is None else next_by_arrival(target)[0]
    return source if source.is_ready else None


def use_groups(monitor: Monitor, destinations: Destinations, target_area: TargetArea, queue: QueueArea) -> None:
    """Prepare a queue for the first message with a group that is sent to it. Requires: no lock."""
    if queue.is_queue:
        with monitor.lock, monitor.whole:
            monitor.raise_if_closed()
            queue.raise_if_deleted()
            note_groups(destinations, target_area, queue)


def note_groups(destinations: Destinations, target_area: TargetArea, queue: QueueArea) -> None:
    """Assign the messages of a queue that has messages with groups from now on. StoreFull. Requires: the lock."""
    if not queue.has_groups:
        destinations.note_groups(queue)
        distribute_by_group(target_area, queue)


def distribute_by_group(target_area: TargetArea, queue: QueueArea) -> None:
    """Assign messages of a queue to its consumers from now on. Requires: the lock.

    Only an ordinary queue changes. One with a GroupAssigner has what it needs, and any other rule keeps its queue:
    the area of `Turns` has one consumer, so nobody shares its groups, and nobody comes before or behind it.
    """
    if queue.distribution.is_ordinary:
        GroupAssigner(queue, target_area).take_over()
