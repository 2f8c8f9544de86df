"""Assignments: decide which consumer of a queue gets which message, if messages have groups or consumers priorities.

The consumers of one selector group share its lists, as in any queue. These lists have the *unassigned* messages, and
each message is examined there once. In addition each consumer has lists of its own for the *assigned* messages: those
of the groups that it owns, and those that it takes next. A message is assigned when a consumer takes, or at once if its
group has an owner. A consumer gets its assigned messages first, so each group stays in order.

The two kinds of selector groups and Assignments share this module, because each calls the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from ...cache.accounting.charge import charge_of
from ...store.message import HeaderValue
from ...store.numbering import BEHIND_ALL
from ...store.stored_message import StoredMessage
from ...store.structures.sequence_set import SequenceSet
from ..core.areas.list_order import next_by_arrival, pair
from ..core.model.delivery import DeliveryLane
from ..core.model.destination import CoreConsumer, CoreDestination, LaneState, SelectorGroup, TargetList
from ..selectors.selector import Selector
from .distribution_parts import DistributionParts
from .idle_consumers import IdleConsumers
from .message_group_names import MessageGroupNames
from .message_groups import MessageGroups, add_bounded, bucket_of
from .precedence import Precedence, demand_within

_Passed = dict[LaneState, SequenceSet]
"""Messages that a list has passed although they are pending: see Assignments."""


class _Promise:
    """A message of a group is reserved for a consumer. Later messages in groups of the same bucket wait."""

    __slots__ = ("consumer", "waiting")

    def __init__(self, consumer: CoreConsumer) -> None:
        self.consumer = consumer
        self.waiting: _Passed = {}


class CommonSelectorGroup(SelectorGroup):
    """The messages that are assigned to no consumer yet, which consumers with one selector share."""

    __slots__ = ("assignments", "withheld", "reserved_for", "promises", "_waiting_consumers", "idle")
    notes_message_groups = True

    def __init__(self, assignments: Assignments, selector: Selector | None) -> None:
        super().__init__(selector)
        self.assignments = assignments
        # By owner, messages that these lists have passed because their owner is in another selector group.
        self.withheld: dict[CoreConsumer, _Passed] = {}
        # By consumer, messages that these lists have passed because it is in another selector group and has a higher
        # priority.
        self.reserved_for: dict[CoreConsumer, _Passed] = {}
        # Promises by bucket, for groups without an owner.
        self.promises: dict[int, _Promise] = {}
        # By priority, consumers that have found nothing since a message came.
        self._waiting_consumers: dict[int, dict[CoreConsumer, None]] = {}
        # By priority, consumers whose last take found nothing.
        self.idle: dict[int, IdleConsumers] = {}

    def take_over(self, before: SelectorGroup) -> None:
        """Take over the lists, consumers and charge of an ordinary selector group that this one replaces."""
        self.lists, self.misses, self.is_charged = before.lists, before.misses, before.is_charged
        self.inherit_consumers(before)
        for target in self.lists:
            target.selector_group = self

    @property
    def is_awaited(self) -> bool:
        return any(consumer.selector_group.is_awaited for consumer in self.consumers)

    def wake(self, ready: list[Callable[[], None]]) -> None:
        """Assign messages that have an owner at once; for the rest, wake all consumers that found nothing."""
        self.assignments.assign_owned(self)
        if self._waiting_consumers and any(target.direct or target.has_supply for target in self.lists):
            for priority in sorted(self._waiting_consumers, reverse=True):
                if self.assignments.precedence.quota(self, priority):
                    self._call(self._waiting_consumers.pop(priority), ready)

    def wake_for(self, messages: int, ready: list[Callable[[], None]]) -> None:
        """Wake all, as `wake` does. If one were woken and the message is not for it, it would not wake another."""
        self.wake(ready)

    def load_ended(self, ready: list[Callable[[], None]]) -> None:
        """Assign loaded messages to their owners, and wake all consumers that wait, highest priority first."""
        self.assignments.assign_owned(self)
        waiting, self._waiting_consumers = self._waiting_consumers, {}
        for priority in sorted(waiting, reverse=True):
            self._call(waiting[priority], ready)

    def _call(self, consumers: Iterable[CoreConsumer], ready: list[Callable[[], None]]) -> None:
        # The consumer that was served last is woken last, so that it does not get two messages before another gets one.
        for consumer in sorted(consumers, key=lambda consumer: self.assignments.assigned_by_consumer[consumer].served):
            consumer.selector_group.wake(ready)

    def note_waiting(self, consumer: CoreConsumer) -> None:
        """Note that a consumer found nothing, so that `wake` wakes it.

        A closed consumer is left out: a transaction may still give it credit.
        """
        if consumer in self.assignments.assigned_by_consumer:
            self._waiting_consumers.setdefault(consumer.priority, {})[consumer] = None

    def note_served(self, consumer: CoreConsumer) -> None:
        """Note that a consumer has got a message, or wants no more."""
        if self._waiting_consumers:
            self._waiting_consumers.get(consumer.priority, {}).pop(consumer, None)

    def note_message_group(self, lane: LaneState, message: StoredMessage) -> None:
        self.assignments.message_group_names.note(lane, message)

    def list_over(self, lane: LaneState) -> TargetList:
        return next(target for target in self.lists if target.lane is lane)

    # ------------------------------------------------------------------ what was passed, and is looked at again

    def reoffer(self, lane: LaneState, runs: Iterable[tuple[int, int]]) -> None:
        """Put messages back among the unassigned ones, unless the list has them or has not come to them yet."""
        target = self.list_over(lane)
        target.reoffer(runs)
        self.assignments.loads.request(target)
        self.assignments.target_area.wake(self)

    def withhold(self, owner: CoreConsumer, lane: LaneState, first: int, last: int) -> None:
        """Note messages that these lists have passed for the owner of their group."""
        add_bounded(lane, _runs_for(owner, lane, self.withheld), first, last)

    def reserve_for(self, consumer: CoreConsumer, message_group: str | None, lane: LaneState, sequence: int) -> None:
        """Reserve a message without an owner for a consumer of higher priority than the one that takes."""
        add_bounded(lane, _runs_for(consumer, lane, self.reserved_for), sequence, sequence)
        if message_group is not None:
            self.promises[bucket_of(message_group)] = _Promise(consumer)

    def waits_behind_promise(self, message_group: str | None, lane: LaneState, sequence: int) -> bool:
        """Let a message wait if an earlier one of its bucket is reserved for a consumer; return whether it waits."""
        promise = self.promises.get(bucket_of(message_group)) if message_group is not None else None
        if promise is not None:
            add_bounded(lane, promise.waiting.setdefault(lane, SequenceSet()), sequence, sequence)
        return promise is not None

    def end_promise(self, bucket: int) -> None:
        """End a promise, so that messages that waited behind it are examined again."""
        promise = self.promises.pop(bucket, None)
        if promise is not None:
            self._reoffer_lanes(promise.waiting)

    def reoffer_withheld(self, consumer: CoreConsumer) -> None:
        """Put back among the unassigned ones all messages that are withheld or reserved for this consumer."""
        self._reoffer_lanes(self.withheld.pop(consumer, {}))
        self._reoffer_reserved_for(consumer)

    def reoffer_reserved(self, priority: int) -> None:
        """Put back what is reserved for consumers up to a priority, because a consumer of that priority takes."""
        for consumer in [consumer for consumer in self.reserved_for if consumer.priority <= priority]:
            self._reoffer_reserved_for(consumer)

    def _reoffer_reserved_for(self, consumer: CoreConsumer) -> None:
        self._reoffer_lanes(self.reserved_for.pop(consumer, {}))
        for bucket in [bucket for bucket, promise in self.promises.items() if promise.consumer is consumer]:
            self.end_promise(bucket)

    def _reoffer_lanes(self, lanes: _Passed) -> None:
        for lane, runs in lanes.items():
            self.reoffer(lane, runs)


class OwnSelectorGroup(SelectorGroup):
    """The messages that are assigned to one consumer and that it has not taken yet."""

    __slots__ = ("common_selector_group", "owner", "idle", "served")
    notes_message_groups = True

    def __init__(self, common: CommonSelectorGroup, owner: CoreConsumer) -> None:
        self.common_selector_group = common
        self.owner = owner
        super().__init__(common.selector)
        self.add_consumer(owner)
        idle = common.idle.get(owner.priority)
        if idle is None:
            idle = common.idle[owner.priority] = IdleConsumers(common.assignments.message_groups.owned)
        # The idle consumers of the owner's priority. The owner is one of them while its last take found nothing.
        self.idle = idle
        # The number of the owner's last take that got a message, counted over the queue.
        self.served = 0

    @property
    def common(self) -> SelectorGroup:
        """The selector group with the unassigned messages, which the owner shares with other consumers."""
        return self.common_selector_group

    def source_list(self, target: TargetList) -> TargetList:
        """Return the list of unassigned messages over the same lane."""
        return self.common_selector_group.list_over(target.lane)

    def arm(self) -> None:
        """Call on_ready of the owner at the next arrival, in its own lists or the common ones. Requires: the lock."""
        self.is_armed = True
        self.common_selector_group.note_waiting(self.owner)

    def in_turn(self) -> Iterable[TargetList]:
        return (target for pair in zip(self.lists, self.common_selector_group.lists, strict=False) for target in pair)

    def wants(self, lane: DeliveryLane, message: StoredMessage, values: dict[str, HeaderValue] | None = None) -> bool:
        """Want messages of the owner's groups, and messages without a group, if the selector matches them.

        A load brings the messages between them too, which belong to others.
        """
        assignments = self.common_selector_group.assignments
        message_group = assignments.message_group_names.of(lane, message)
        if message_group is not None and assignments.message_groups.owner(message_group) is not self.owner:
            return False
        return super().wants(lane, message, values)

    def claim(self, lane: LaneState, message: StoredMessage) -> bool:
        """Claim a free message for a hand-out to the owner; return False if it is not for the owner now.

        The group of the message is remembered until the hand-out. A message whose group is halted waits.
        """
        if not super().claim(lane, message):
            return False
        assignments = self.common_selector_group.assignments
        message_group = assignments.message_group_names.of(lane, message)
        if message_group is None:
            # A load may have brought a message that came back since, whose group nobody remembers.
            return not assignments.message_group_names.is_forgotten(lane, message)
        if assignments.message_groups.owner(message_group) is not self.owner:
            return False  # a load brought it because it lies between messages of this owner
        if assignments.message_groups.is_halted(lane, message[0], message_group):
            assignments.message_groups.wait(lane, message[0], message_group)
            keep(lane, message)
            return False
        assignments.message_group_names.remember(lane, message[0], message_group)
        return True

    def note_message_group(self, lane: LaneState, message: StoredMessage) -> None:
        self.common_selector_group.assignments.message_group_names.note(lane, message)

    def list_over(self, lane: LaneState) -> TargetList:
        return next(target for target in self.lists if target.lane is lane)


class Assignments:
    """Which messages of one queue each consumer has. The state lock guards it.

    A free message that was examined is in one of four states:

    - unassigned: in the lists of each selector group that wants it, or behind their frontiers;
    - assigned: in a list of the one consumer that may have it, the owner of its group if it has one;
    - passed: a selector group keeps it for a consumer of another selector group, because that consumer owns its group
      (withheld) or has a higher priority (reserved); or it waits behind such a reserved message (a promise);
    - waiting: behind a message of its group that comes back later, in `message_groups`.

    A bucket of groups has one owner or none. The last message of a bucket that was assigned divides the lane: before
    it, no message of an owned group is unassigned; behind it, none is assigned. So a message that comes back goes to
    the owner if it lies before that place, and each group stays in order.
    """

    def __init__(self, queue: CoreDestination, parts: DistributionParts) -> None:
        self.queue = queue
        self.target_area = parts.target_area
        self._list_registry = parts.list_registry
        self.loads = parts.loads
        self.message_groups = MessageGroups(parts.message_group_memory)
        self._dispatch_area = parts.dispatch_area
        self._consumer_memory = parts.consumer_memory
        self.message_group_names = MessageGroupNames(queue)
        self.assigned_by_consumer: dict[CoreConsumer, OwnSelectorGroup] = {}
        self.precedence = Precedence(queue, self.message_groups, self.assigned_by_consumer.values())

    def common_selector_groups(self) -> list[CommonSelectorGroup]:
        """Return the common selector groups, one for each selector."""
        return [
            selector_group
            for selector_group in self.queue.selector_groups.values()
            if isinstance(selector_group, CommonSelectorGroup)
        ]

    def add_list(self, assigned: OwnSelectorGroup, lane: LaneState) -> None:
        """Give a consumer a list of its own over a lane."""
        target = self._make_list(assigned, lane)
        assigned.add_list(target)
        self._list_registry.begin_list(target)

    def _make_list(self, assigned: OwnSelectorGroup, lane: LaneState) -> TargetList:
        """Return a new list of a consumer, which the ListRegistry is to begin."""
        target = TargetList(lane, assigned, self._consumer_memory)
        target.advance_frontier(BEHIND_ALL)  # it loads nothing by itself
        target.require_claims()
        return target

    def gets_no_more(self, consumer: CoreConsumer) -> bool:
        """Return whether a consumer gets nothing more, because it drains or another consumer is exclusive."""
        return consumer.stage.is_draining or self.queue.exclusive not in (None, consumer)

    # ------------------------------------------------------------------ assigning

    def assign(self, assigned: OwnSelectorGroup, common_list: TargetList, most: int) -> bool:
        """Assign up to `most` messages of one list and its counterpart to a consumer; return whether it got any.

        Messages on the way that belong to other consumers are assigned to those.
        """
        quota = self.precedence.quota(assigned.common_selector_group, assigned.owner.priority)
        moved = 0
        while moved < most and (source := _next(common_list)) is not None:
            message, lane = source.direct[0], source.lane
            if not source.selector_group.claim(lane, message):
                _drop(source)
                continue
            if self.message_group_names.is_forgotten(lane, message):
                _drop(source)
                source.note_returned(message[0])
                continue
            message_group = self.message_group_names.of(lane, message)
            if message_group is None or self._is_new(lane, message[0], message_group):
                if quota <= 0:
                    break
                if self._is_kept_for_another(assigned, source, message_group):
                    continue
                quota -= 1
                if message_group is not None:
                    self._give(message_group, self._neediest(assigned))
            moved += self._move(assigned, source, message_group) is assigned.owner
        self._request(common_list)
        if common_list.counterpart is not None:
            self._request(common_list.counterpart)
        return moved > 0

    def _is_kept_for_another(self, assigned: OwnSelectorGroup, source: TargetList, message_group: str | None) -> bool:
        """Keep the first message of a list, which has no owner, if others come first; return whether it was kept.

        Then it is passed: it waits behind a promise, or is reserved for a consumer of higher priority.
        """
        common, lane, message = assigned.common_selector_group, source.lane, source.direct[0]
        if common.promises and common.waits_behind_promise(message_group, lane, message[0]):
            _drop(source, keeps=True)
            return True
        first = self.precedence.first_above(common, assigned.owner.priority, lane, message)
        if first is not None:
            common.reserve_for(first, message_group, lane, message[0])
            _drop(source, keeps=True)
        return first is not None

    def assign_owned(self, common: CommonSelectorGroup) -> None:
        """Assign the first unassigned messages to their owners, up to the first message without an owner."""
        for target in common.lists:
            while (source := _next(target)) is not None:
                message = source.direct[0]
                message_group = self.message_group_names.of(source.lane, message)
                if message_group is None or self._is_new(source.lane, message[0], message_group):
                    break
                if common.claim(source.lane, message):
                    self._move(None, source, message_group)
                else:
                    _drop(source)
            self._request(target)

    def _request(self, target: TargetList) -> None:
        if target.has_supply and (target.direct_bytes < target.low_watermark_bytes or not target.is_ready):
            # Each load that ends calls this. For a list that waits for memory, the loader would take it from others.
            if not self._dispatch_area.is_waiting(target):
                self.loads.request(target)

    def _give(self, message_group: str, consumer: CoreConsumer) -> None:
        """Give a group to its first owner, and examine again the messages that waited for that behind a promise."""
        self.message_groups.set_owner(message_group, consumer)
        self.assigned_by_consumer[consumer].idle.recount(consumer)
        for common in self.common_selector_groups():
            common.end_promise(bucket_of(message_group))

    def _neediest(self, assigned: OwnSelectorGroup) -> CoreConsumer:
        """Return the owner for a new group: the consumer that takes, or an idle one that owns fewer groups."""
        if self.queue.exclusive is not None:
            return assigned.owner
        fewest = self.message_groups.owned(assigned.owner)
        return assigned.idle.neediest(fewest, partial(demand_within, self.queue)) or assigned.owner

    def _is_new(self, lane: LaneState, sequence: int, message_group: str) -> bool:
        """Return whether the group of a message has no owner and is not halted before the message."""
        message_groups = self.message_groups
        return message_groups.owner(message_group) is None and not message_groups.is_halted(
            lane, sequence, message_group
        )

    def _move(
        self, assigned: OwnSelectorGroup | None, source: TargetList, message_group: str | None
    ) -> CoreConsumer | None:
        """Assign the first unassigned message; return the consumer that got it. None: it waits or is withheld.

        assigned: the selector group of the consumer that takes. None: no consumer takes, and the message has an owner.
        """
        message, lane = source.direct[0], source.lane
        common = source.selector_group
        assert isinstance(common, CommonSelectorGroup)
        owner = assigned.owner if assigned is not None else None
        if message_group is not None:
            owner = self.message_groups.owner(message_group)
            if owner is not None and not self._is_withheld(common, owner):
                self.message_groups.note_assigned(lane, message[0], message_group)
            if self.message_groups.is_halted(lane, message[0], message_group):
                _drop(source)
                self.message_groups.wait(lane, message[0], message_group)
                keep(lane, message)
                return None
        assert owner is not None
        if self._is_withheld(common, owner):
            common.withhold(owner, lane, message[0], message[0])
            _drop(source, keeps=True)
            return None
        assigned_to_owner = self.assigned_by_consumer[owner]
        self._append(source, assigned_to_owner.list_over(lane), is_asked_for=assigned_to_owner is assigned)
        if assigned_to_owner is not assigned:
            self.target_area.wake(assigned_to_owner)
        return owner

    def _append(self, source: TargetList, own: TargetList, *, is_asked_for: bool) -> None:
        """Move the first unassigned message to the owner's list, or note it there to be loaded later.

        is_asked_for: a take waits for the message and gets it even if the owner's list has no room.
        """
        message = source.direct[0]
        has_room = is_asked_for or own.direct_bytes + charge_of(message) <= own.high_watermark_bytes
        is_last = not own.references and not own.returned and (not own.direct or own.direct[-1][0] < message[0])
        if has_room and is_last:
            source.move_first_to(own)
        else:
            _drop(source, keeps=True)
            add_bounded(source.lane, own.returned, message[0], message[0])
            self.loads.request(own)

    def _is_withheld(self, common: CommonSelectorGroup, owner: CoreConsumer) -> bool:
        """Return whether unassigned messages are withheld from their owner: it has another selector or gets no more."""
        return self.assigned_by_consumer[owner].common_selector_group is not common or self.gets_no_more(owner)

    # ------------------------------------------------------------------ giving back

    def empty(self, assigned: OwnSelectorGroup) -> None:
        """Make all messages unassigned that are assigned to a consumer and not taken.

        A load that is under way for one of its lists will bring nothing: the list has ended, and a new one is made.
        """
        self.message_groups.assign_again(assigned.owner)
        for at, own in enumerate(assigned.lists):
            if not own.direct and not own.has_supply and not own.is_loading:
                continue
            messages = list(own.direct)
            own.release(own.direct_bytes)
            self._list_registry.release_share(own)
            returned = own.returned.copy()
            for first, last in own.references:
                returned.add(first, last)
            own.close()
            for message in messages:
                returned.add(message[0], message[0])
                keep(own.lane, message)
            assigned.lists[at] = self._make_list(assigned, own.lane)
            self._list_registry.begin_list(assigned.lists[at])
            assigned.common_selector_group.reoffer(own.lane, returned)
        pair(assigned)

    def reoffer_withheld(self, consumer: CoreConsumer) -> None:
        """Put back among the unassigned ones all messages that are withheld or reserved for a consumer."""
        for common in self.common_selector_groups():
            common.reoffer_withheld(consumer)


def _runs_for(consumer: CoreConsumer, lane: LaneState, passed: dict[CoreConsumer, _Passed]) -> SequenceSet:
    """Return the runs of a lane that are kept for a consumer, as an empty set if there are none yet."""
    return passed.setdefault(consumer, {}).setdefault(lane, SequenceSet())


def _drop(source: TargetList, *, keeps: bool = False) -> None:
    """Drop the first direct message of a list. keeps: keep it in RAM if there is room, because it is needed again."""
    message = source.direct[0]
    source.release(source.pass_first())
    if keeps:
        keep(source.lane, message)


def keep(lane: LaneState, message: StoredMessage) -> None:
    """Keep a message in the PendingCache if that has room, and page it out otherwise."""
    if message[2] is not None and not lane.pending_cache.put(lane.pending_lane.number, message):
        lane.pager.page_out((message,))


def _next(target: TargetList) -> TargetList | None:
    """Return the list or its counterpart, whichever has the next message. None: that message is not in RAM."""
    source = target if target.counterpart is None else next_by_arrival(target)[0]
    return source if source.is_ready else None
