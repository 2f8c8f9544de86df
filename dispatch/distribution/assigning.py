"""AssigningDistribution: the distribution of queues whose messages have groups or whose consumers have priorities.

It fulfils the four roles of a distribution: consumers join and leave, takes get messages, messages come back or are
settled, and explanations are answered. It leaves to assignments.py which consumer gets which message.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Final

from ...store.stored_message import StoredMessage
from ...store.structures.sequence_set import SequenceSet
from ..core.areas.list_order import arrange
from ..core.areas.take import Take
from ..core.lists.consumer_memory import OWN_SELECTOR_GROUP_BYTES
from ..core.model.delivery import Delivery, is_lazy
from ..core.model.destination import (
    CoreConsumer,
    CoreDestination,
    Distribution,
    LaneState,
    SelectorGroup,
    lane_of,
)
from ..core.model.distribution_roles import Dispatcher
from ..selectors.selector import Selector
from .assignments import Assignments, CommonSelectorGroup, OwnSelectorGroup
from .distribution_parts import DistributionParts
from .message_groups import add_bounded, bucket_of
from .precedence import demand_within
from .rebalancing import Rebalancing

BATCH_MESSAGES: Final = 64
"""Messages that are read at a time to learn their groups."""


class AssigningDistribution(Distribution):
    """The distribution of one queue, which dispatches messages as its Assignments say. The state lock guards it."""

    honours_groups_and_priorities = True

    def __init__(self, queue: CoreDestination, parts: DistributionParts, *, rebalances: bool) -> None:
        """Make the distribution of one queue. rebalances: whether its policy has `group_rebalance`."""
        self.queue = queue
        self._target_area = parts.target_area
        self._list_registry = parts.list_registry
        self._dispatch_area = parts.dispatch_area
        self._loads = parts.loads
        self._consumer_memory = parts.consumer_memory
        self._message_group_memory = parts.message_group_memory
        self._assignments = Assignments(queue, parts)
        self._rebalances = rebalances
        self._rebalancing = Rebalancing(self._assignments, rebalances=rebalances)
        self.message_groups = self._assignments.message_groups
        self.message_group_names = self._assignments.message_group_names
        self._precedence = self._assignments.precedence
        self._assigned_by_consumer = self._assignments.assigned_by_consumer
        # Number of takes of the queue that got a message.
        self._served = 0

    # ------------------------------------------------------------------ who takes part

    def adopt_consumers(self, queue: CoreDestination) -> None:
        """Give each consumer of the queue, which had the ordinary distribution, lists of its own."""
        for key, selector_group in queue.selector_groups.items():
            common = queue.selector_groups[key] = CommonSelectorGroup(self._assignments, selector_group.selector)
            common.take_over(selector_group)
            for consumer in common.consumers:
                self.join(consumer, common)
            selector_group.wake_takes()

    def make_selector_group(self, queue: CoreDestination, selector: Selector | None) -> CommonSelectorGroup:
        """Return a new selector group for unassigned messages. All consumers with this selector share it."""
        return CommonSelectorGroup(self._assignments, selector)

    def own_selector_groups(self) -> Iterable[SelectorGroup]:
        """Return the selector group of each consumer's assigned messages."""
        return self._assigned_by_consumer.values()

    def join(self, consumer: CoreConsumer, common: SelectorGroup) -> None:
        """Give a consumer lists of its own in addition to the unassigned ones."""
        assert isinstance(common, CommonSelectorGroup)
        self._consumer_memory.charge(OWN_SELECTOR_GROUP_BYTES)
        assigned = self._assigned_by_consumer[consumer] = OwnSelectorGroup(common, consumer)
        self._precedence.join(consumer, common)
        for lane in self.queue.all_lanes():
            self._assignments.add_list(assigned, lane)
        arrange(assigned)
        common.note_waiting(consumer)
        consumer.move_to(assigned)

    def add_lane(self, lane: LaneState) -> None:
        """Give each consumer a list over a new lane, which the unassigned messages have already."""
        for assigned in self._assigned_by_consumer.values():
            self._assignments.add_list(assigned, lane)
            arrange(assigned)

    def leave(self, consumer: CoreConsumer) -> None:
        """Remove a consumer, and let others have the messages that were assigned to it but not handed out.

        The caller gives back its deliveries after this. A group of which a transaction still holds a message is halted.
        """
        assigned = self._assigned_by_consumer[consumer]
        common = assigned.common_selector_group
        for delivery in consumer.held_in_transactions() if consumer.in_flight else ():
            message_group = self.message_group_names.of_delivery(delivery)
            if message_group is not None:
                self.message_groups.halt(lane_of(delivery), delivery.sequence, message_group)
        assigned.idle.remove(consumer)
        if self.message_groups.owned(consumer):
            self.message_groups.disown(consumer, self.message_groups.buckets(consumer))
        self._assignments.empty(assigned)
        for target in assigned.lists:
            self._list_registry.release_share(target)
            target.close()
        assigned.lists.clear()
        self._assignments.reoffer_withheld(consumer)
        del self._assigned_by_consumer[consumer]
        self._consumer_memory.release(OWN_SELECTOR_GROUP_BYTES)
        self._precedence.leave(consumer)
        common.note_served(consumer)
        common.remove_consumer(consumer)
        self.queue.counters.misses += assigned.misses
        self._message_group_memory.forget(assigned)
        if not common.consumers:
            self._list_registry.end_selector_group(self.queue, common)

    def revoke(self, consumer: CoreConsumer) -> None:
        """Unassign the messages of a consumer that is slow, drains, or must leave everything to the exclusive one.

        It keeps the groups of which it holds a message. If it is only slow, it keeps all its groups unless the policy
        has `group_rebalance`.
        """
        if self._rebalances or self._assignments.gets_no_more(consumer):
            self._rebalancing.release_all(consumer)
        else:
            self._assignments.empty(self._assigned_by_consumer[consumer])

    def reoffer_stranded(self) -> None:
        """Reoffer what is withheld or reserved for consumers that can take nothing now, and wake the others."""
        for consumer in {
            consumer
            for common in self._assignments.common_selector_groups()
            for consumer in (*common.withheld, *common.reserved_for)
        }:
            if consumer.activity.is_slow or demand_within(self.queue, consumer) <= 0:
                self._assignments.reoffer_withheld(consumer)
        for selector_group in self.queue.selector_groups.values():
            self._target_area.wake(selector_group)

    # ------------------------------------------------------------------ taking

    @property
    def dispatcher(self) -> Dispatcher[CoreConsumer]:
        """This distribution itself."""
        return self

    def dispatch_one(self, consumer: CoreConsumer) -> Delivery | None:
        """Return None, because only `dispatch` examines the group of each message."""
        return None

    def dispatch(self, consumer: CoreConsumer, most: int, max_bytes: int | None) -> list[Delivery]:
        """Dispatch messages that are assigned to a consumer; when they run out, assign more of the unassigned ones."""
        assigned = self._assigned_by_consumer[consumer]
        common = assigned.common_selector_group
        if self.is_held_up:
            self._wait_for_memory(assigned)
            return []
        if common.reserved_for:
            common.reoffer_reserved(consumer.priority)
        take = Take(consumer, most, max_bytes)
        self._collect(take, assigned)
        if not take.deliveries and self._rebalancing.level(assigned):
            self._collect(take, assigned)
        deliveries = take.deliveries
        if not deliveries:
            self._note_idle(assigned)
            return deliveries
        common.note_served(consumer)
        assigned.idle.remove(consumer)
        self.message_group_names.go_with(deliveries)
        self._served += 1
        assigned.served = self._served
        if consumer.priority > self._precedence.lowest:
            self.reoffer_stranded()
        return deliveries

    def _wait_for_memory(self, assigned: OwnSelectorGroup) -> None:
        """Have a consumer that takes wait until memory has room to halt groups again."""
        self._message_group_memory.refuse(assigned, partial(self._target_area.wake, assigned))
        assigned.common_selector_group.note_waiting(assigned.owner)

    def _note_idle(self, assigned: OwnSelectorGroup) -> None:
        """Note that a take found nothing: its consumer waits, and may become the owner of further groups."""
        assigned.idle.note(assigned.owner)
        if not any(own.direct or own.has_supply or own.is_loading for own in assigned.lists):
            self.message_groups.assign_again(assigned.owner)
        assigned.common_selector_group.note_waiting(assigned.owner)

    @property
    def is_held_up(self) -> bool:
        """Whether nothing is handed out: each delivery may have to halt its group, and memory has no room for that."""
        return self.queue.has_message_groups and self._message_group_memory.is_full

    def _collect(self, take: Take, assigned: OwnSelectorGroup) -> None:
        """Dispatch from the lists of a consumer, highest priority first, and assign more where its own list is empty.

        A lower priority comes only after all messages of the higher one, assigned or not.
        """
        for own, common_list in zip(assigned.lists, assigned.common_selector_group.lists, strict=True):
            if own.counterpart is not None and not own.lane.is_persistent:
                continue
            while True:
                if not self._dispatch_area.dispatch_both(take, own) or len(take.deliveries) >= take.most:
                    return
                if not self._assignments.assign(assigned, common_list, take.most - len(take.deliveries)):
                    break
            if (
                common_list.direct
                or common_list.has_supply
                or (common_list.counterpart and (common_list.counterpart.direct or common_list.counterpart.has_supply))
            ):
                return

    # ------------------------------------------------------------------ what comes back, is settled, is gone

    def reassign(self) -> None:
        """Unassign the messages of all owners, because older messages of unknown groups have come. O(owners)."""
        for consumer in self.message_groups.owners():
            self._assignments.empty(self._assigned_by_consumer[consumer])

    def reoffer_returned(self, lane: LaneState, message: StoredMessage) -> None:
        """Reoffer a pending message that came back. If its group is halted by an earlier message, it waits."""
        sequence = message[0]
        message_group = self.message_groups.halted_by(lane, sequence) or self.message_group_names.of(lane, message)
        self._resume(lane, sequence, message_group)
        if message_group is not None and self.message_groups.is_halted(lane, sequence, message_group):
            self.message_groups.wait(lane, sequence, message_group)
        else:
            self._reoffer_run(message_group, lane, sequence, sequence)

    def reoffer_delayed(self, lane: LaneState, runs: Sequence[tuple[int, int]]) -> None:
        """Reoffer each message by itself, because their groups may differ."""
        for first, last in runs:
            for sequence in range(first, last + 1):
                self._target_area.reoffer_returned(lane, (sequence, b"", None, 0))

    def _resume(self, lane: LaneState, sequence: int, message_group: str | None) -> None:
        """End the halt that a message causes, and reoffer the messages that waited behind it."""
        for other, runs in self.message_groups.resume(lane, sequence).items():
            for first, last in runs:
                self._reoffer_run(message_group, other, first, last)
        self._message_group_memory.retry_refused()

    def _reoffer_run(self, message_group: str | None, lane: LaneState, first: int, last: int) -> None:
        """Reoffer messages of one group.

        They go back to the owner's lists if later messages of the group were assigned to it. Otherwise they are
        unassigned again: in the owner's selector group only, or in every one if the group has no owner.
        """
        owner = self.message_groups.owner(message_group) if message_group is not None else None
        if owner is None or message_group is None:
            for common in self._assignments.common_selector_groups():
                common.reoffer(lane, ((first, last),))
            return
        assigned = self._assigned_by_consumer[owner]
        if self.message_groups.is_ahead(lane, first, message_group):
            own = assigned.list_over(lane)
            add_bounded(lane, own.returned, first, last)
            self._loads.request(own)
        else:
            assigned.common_selector_group.reoffer(lane, ((first, last),))
        for common in self._assignments.common_selector_groups():
            if common is not assigned.common_selector_group:
                common.withhold(owner, lane, first, last)
        self._target_area.wake(assigned)

    def comes_back(self, delivery: Delivery, *, is_delayed: bool) -> None:
        """Note that a delivery is given back. A delayed one halts its group; a lazy one has its group remembered."""
        message_group = self.message_group_names.of_delivery(delivery)
        if message_group is None:
            return
        if is_delayed:
            self.message_groups.halt(lane_of(delivery), delivery.sequence, message_group)
        elif is_lazy(delivery):
            self.message_group_names.remember(lane_of(delivery), delivery.sequence, message_group)

    def remember_delayed(self, lane: LaneState, runs: Iterable[tuple[int, int]]) -> SequenceSet:
        """Halt the groups of messages that an earlier process delayed; return those for which memory has no room.

        It reads each message. One that can't be read halts no group.
        """
        forgotten = SequenceSet()
        for at, last in runs:
            while (run := lane.pending_lane.pending_run(at, BATCH_MESSAGES)) is not None and run[0] <= last:
                end = min(run[1], last)
                at = end + 1
                if self._message_group_memory.is_full:
                    forgotten.add(run[0], end)
                else:
                    self._halt_groups_of(lane, run[0], end)
        return forgotten

    def _halt_groups_of(self, lane: LaneState, first: int, last: int) -> None:
        """Read the messages of a run, and halt the group of each."""
        messages, _ = lane.backing_store.read(lane.backing_store.plan(lane.pending_lane, [(first, last)]))
        for message in messages:
            message_group = self.message_group_names.of(lane, message)
            if message_group is not None:
                self.message_groups.halt(lane, message[0], message_group)

    def settled(self, lane: LaneState, first: int, messages: int) -> None:
        """Let groups go on that were halted by messages of a run, because these are settled now."""
        for sequence in self.message_groups.halting(lane, first, first + messages - 1):
            self._resume(lane, sequence, self.message_groups.halted_by(lane, sequence))

    def forget(self, lane: LaneState, gone: SequenceSet) -> None:
        """Forget messages that were removed and are not in flight, and end the halts that they caused.

        O(messages that are delayed or not in RAM).
        """
        for consumer in [
            promise.consumer
            for common in self._assignments.common_selector_groups()
            for promise in common.promises.values()
        ]:
            self._assignments.reoffer_withheld(consumer)
        self.message_group_names.forget(lane, gone)
        for first, last in gone:
            for sequence in self.message_groups.halting(lane, first, last):
                self._resume(lane, sequence, self.message_groups.halted_by(lane, sequence))

    # ------------------------------------------------------------------ what explanations and audits ask

    def by_owner(
        self, lane: LaneState, messages: Iterable[StoredMessage]
    ) -> dict[CoreConsumer | None, list[StoredMessage]]:
        """Return free messages by the owner of their group, without messages that wait for another. None: no owner."""
        messages_by_owner: dict[CoreConsumer | None, list[StoredMessage]] = {}
        for message in messages:
            message_group = self.message_group_names.of(lane, message)
            if message_group is None:
                messages_by_owner.setdefault(None, []).append(message)
            elif not self.message_groups.is_halted(lane, message[0], message_group):
                messages_by_owner.setdefault(self.message_groups.owner(message_group), []).append(message)
        return messages_by_owner

    def kind_of(self, consumer: CoreConsumer) -> tuple[CommonSelectorGroup, int]:
        """Return the common selector group and the priority. Consumers that have both in common compete."""
        return self._assigned_by_consumer[consumer].common_selector_group, consumer.priority

    def unowned_of(
        self, consumer: CoreConsumer, lane: LaneState, messages: Iterable[StoredMessage]
    ) -> Iterator[StoredMessage]:
        """Return those of the free messages without an owner that this consumer would get if it took now."""
        common, precedence = self._assigned_by_consumer[consumer].common_selector_group, self._precedence
        if precedence.quota(common, consumer.priority) <= 0:
            return
        for message in messages:
            message_group = self.message_group_names.of(lane, message)
            is_promised = message_group is not None and bucket_of(message_group) in common.promises
            if not is_promised and precedence.first_above(common, consumer.priority, lane, message) is None:
                yield message

    def kept_for_others(self, consumer: CoreConsumer) -> list[int]:
        """Return for each other consumer how many messages are assigned to it or, if there are none, kept for it.

        Consumers with none at all are left out. O(messages).
        """
        kept = {other: self._in_hand(other) for other in self._assigned_by_consumer if other is not consumer}
        common = self._assigned_by_consumer[consumer].common_selector_group
        behind = ((promise.consumer, promise.waiting) for promise in common.promises.values())
        for other, held in (*common.withheld.items(), *common.reserved_for.items(), *behind):
            if other is not consumer and other in kept and not kept[other]:
                kept[other] = sum(_count_free(lane, runs) for lane, runs in held.items())
        return [messages for messages in kept.values() if messages]

    def count_kept_from(self, consumers: Iterable[CoreConsumer]) -> int:
        """Return how many free messages are assigned, or kept from some of these consumers for others. O(messages).

        A message counts once, even if it is kept from several consumers. The figure may be too high.
        """
        kept: dict[LaneState, SequenceSet] = {}
        for assigned in self._assigned_by_consumer.values():
            for own in assigned.lists:
                direct = ((message[0], message[0]) for message in own.direct)
                _add_all(kept, own.lane, (*direct, *own.returned, *own.references))
        for common in {self._assigned_by_consumer[consumer].common_selector_group for consumer in consumers}:
            behind = (promise.waiting for promise in common.promises.values())
            for passed in (*common.withheld.values(), *common.reserved_for.values(), *behind):
                for lane, runs in passed.items():
                    _add_all(kept, lane, runs)
        return sum(_count_free(lane, runs) for lane, runs in kept.items())

    def _in_hand(self, consumer: CoreConsumer) -> int:
        """Return how many free messages are assigned to a consumer."""
        lists = self._assigned_by_consumer[consumer].lists
        direct = sum(len(target.direct) for target in lists)
        return direct + sum(_count_free(own.lane, [*own.returned, *own.references]) for own in lists)

    def count_waiting(self) -> int:
        """Return how many messages wait behind a message of their group that comes back later.

        The figure may be too high.
        """
        return sum(self.message_groups.waiting(lane) for lane in self.queue.all_lanes())

    def is_outranked(self, consumer: CoreConsumer) -> bool:
        """Return whether consumers of higher priority leave this one no message without an owner."""
        return not self._precedence.quota(self._assigned_by_consumer[consumer].common_selector_group, consumer.priority)

    def audit(self) -> tuple[int, int]:
        """Return the bytes held for message groups, and how many of them for groups that are halted."""
        return self.message_groups.held_bytes, self.message_groups.halted_bytes


def _add_all(runs_by_lane: dict[LaneState, SequenceSet], lane: LaneState, runs: Iterable[tuple[int, int]]) -> None:
    """Add runs of a lane to those that were found."""
    known = runs_by_lane.setdefault(lane, SequenceSet())
    for first, last in runs:
        known.add(first, last)


def _count_free(lane: LaneState, runs: Iterable[tuple[int, int]]) -> int:
    """Count the messages of these runs that are free."""
    return sum(lane.free_count(first, last) for first, last in runs)
