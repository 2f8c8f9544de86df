"""TargetArea: all TargetLists, the memory they share, and the hand-out from them.

Deciding happens here, under the state lock; reading happens in loading/eager.py,
outside it. Which memory is given back, and in which order, says core/reclaim.py.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from ...cache.budget import Budget
from ...cache.charge import OVERHEAD_BYTES, charge_bytes, charges_bytes, contents_charge
from ...cache.head_queue_cache import HeadQueueCache
from ...cache.lane_memory import LaneMemory, QuotaMemory
from ...cache.message_cache import CacheStatistics, added
from ...cache.shares import Shares, high_watermark_bytes
from ...cache.spill.overflow import Overflow
from ...store.format.times import has_times, times_of
from ...store.journal.reading import StoredMessage
from ...store.message_store import MessageStore
from ...store.numbering import NOWHERE
from ...store.sequence_set import SequenceSet
from ..selectors.selector import Selector
from .consumer_memory import LIST_BYTES, ConsumerMemory, group_charge
from .group_memory import GroupMemory
from .list_order import arrange, next_by_arrival
from .load_requests import LoadRequests
from .memory_rule import MemoryRule
from .model import (
    ConsumerGroup,
    Delivery,
    Distribution,
    LaneState,
    ListKeeper,
    PersistentLaneState,
    QueueArea,
    Taker,
    TargetList,
)
from .monitor import Monitor
from .observer import ListObserver
from .reclaim import Reclaim

UNREADABLE_MAX: Final = 1024
"""Messages that could not be read and wait for somebody to look after them; the next open meets all others again."""


class TargetArea(ListKeeper):
    """The state lock guards it; every method requires it held."""

    def __init__(
        self,
        monitor: Monitor,
        store: MessageStore,
        budget: Budget,
        shares: Shares,
        loads: LoadRequests,
        rule: MemoryRule,
        *,
        syncs_always: bool,
        overflow: Overflow,
        pattern_of: Callable[[str], str | None],
        ordinary: Callable[[TargetArea], Distribution],
        observer: Callable[[TargetArea], ListObserver],
        on_expired: Callable[[LaneState, int], None],
        on_unread: Callable[[LaneState], None],
        on_lane_gone: Callable[[LaneState], None],
    ) -> None:
        """pattern_of: returns the pattern whose policy a destination of that name has. ordinary: makes the distribution
        of all queues whose messages and consumers are alike. observer: makes what is told about lists. on_expired:
        called for a message that a list passed over because it has expired. on_unread, on_lane_gone: see ListKeeper.
        The last three are called under the lock."""
        self.monitor = monitor
        self.lock = monitor.lock
        self.whole = monitor.whole
        self.store = store
        self.budget = budget
        self.loads = loads
        self._rule = rule
        self.syncs_always = syncs_always
        self.overflow = overflow
        self._now_ms = store.steady.now_ms
        self._on_expired = on_expired
        self._on_unread = on_unread
        self._on_lane_gone = on_lane_gone
        self.lists_holder = budget.holder("target_lists")
        self.dispatch = budget.holder("dispatch_area")
        self.groups = GroupMemory(budget.holder("groups"))
        self.consumers = ConsumerMemory(budget.holders["consumers"])
        heads = HeadQueueCache(budget.holder("head_queue_cache"), 0)
        overflowed = rule.pending_cache(budget.holder("pending_cache"), heads)
        self.common_memory = LaneMemory(self.lists_holder, self.dispatch, heads, overflowed)
        """Of all destinations that have neither share nor reserve."""
        self.quota_memories = {pattern: QuotaMemory(budget, pattern, rule.pending_cache) for pattern in shares.quotas}
        self._pattern_of = pattern_of
        self.ordinary = ordinary(self)
        self.waits_for_memory: dict[Taker | TargetList, None] = {}
        """Consumers that can't take because others hold what was handed out, and lists that the loader gave up."""
        self.lists: dict[TargetList, None] = {}
        self.leaving: dict[TargetList, None] = {}
        """Lists that are gone, of which a load that was under way still holds memory."""
        self.reclaim = Reclaim(budget, overflow, rule, self.lists.keys(), self.common_memory, self.quota_memories)
        self.memories = self.reclaim.memories
        """Of all destinations."""
        self.unreadable: deque[tuple[PersistentLaneState, int]] = deque(maxlen=UNREADABLE_MAX)
        """(lane, sequence) of messages that were passed over because they could not be read."""
        self.watch = observer(self)
        self.take_shares(shares)

    def take_shares(self, shares: Shares) -> None:
        """Follow another memory limit, or the first: whoever has more than its share gives it back.

        O(messages given back + lists).
        """
        self.shares = shares = self._rule.divide(shares)
        for memory in self.quota_memories.values():
            memory.take_quota(shares.quotas[memory.quota.name])
        self.dispatch_bytes_max = shares.dispatch_bytes_max
        """Beyond it deliveries of common memory are lazy: what all may have, less what others have or have reserved."""
        self.in_flight_bytes_max = shares.in_flight_bytes_max
        for memory in self.quota_memories.values():
            bodies_bytes, all_bytes = memory.in_flight_reserves
            self.dispatch_bytes_max -= max(memory.dispatch.held_bytes, bodies_bytes)
            self.in_flight_bytes_max -= max(memory.dispatch.held_bytes, all_bytes)
        self.large_message_bytes = shares.large_message_bytes
        self.groups.take_shares(shares.limit_bytes)
        self.overflow.take_shares(shares)
        self.make_room(0, None)
        self.make_room(0, None, least=0)
        self.common_memory.resize_caches(shares.head_queue_cache_bytes, shares.pending_cache_bytes)
        for memory in self.quota_memories.values():
            self._keep_share(memory)
        self.watch.shares_changed()
        self.consumers.settle()
        self._move_high_watermarks()
        for target in self.lists:
            if target.direct_bytes < target.low_watermark_bytes:
                self.loads.request(target)
        self.relieve()

    def _keep_share(self, memory: QuotaMemory) -> None:
        """Give back what a pattern's destinations hold above their share, which may have shrunk."""
        reserved_by_others = self.shares.reserved_bytes - memory.quota.reserve_bytes
        available_bytes = max(self.shares.available_bytes - reserved_by_others, 0)
        memory.resize_own_caches(available_bytes, self.shares.pending_cache_share)
        self.reclaim.make_room_in_share(memory, 0, None, least=0, least_seconds=0.0)

    def memory_of(self, name: str) -> LaneMemory:
        """See ListKeeper. O(patterns)."""
        pattern = self._pattern_of(name) if self.quota_memories else None
        return self.quota_memories.get(pattern, self.common_memory) if pattern is not None else self.common_memory

    # ------------------------------------------------------------------ consumer groups

    def subscribe(self, queue: QueueArea, selector: Selector | None) -> ConsumerGroup:
        """Return the consumer group for this selector, made with its lists if it is new."""
        key = selector.text if selector is not None else None
        consumer_group = queue.consumer_groups.get(key)
        if consumer_group is None:
            for lane in queue.all_lanes():
                for target in queue.lists_over(lane) if not lane.is_persistent else ():
                    self._lay_open(target)
            consumer_group = queue.consumer_groups[key] = queue.distribution.make_consumer_group(queue, selector)
            if not consumer_group.is_charged:
                consumer_group.is_charged = True
                self.consumers.charge(group_charge(selector))
            for lane in queue.all_lanes():
                self.add_list(lane, consumer_group)
            arrange(consumer_group)
            if len(queue.consumer_groups) <= 2:
                self.find_sole_lists(queue)
            for target in consumer_group.lists if len(queue.consumer_groups) > 1 else ():
                target.share()
        return consumer_group

    def add_lane(self, lane: LaneState) -> None:
        """Give each consumer group a list over a lane that came into being."""
        for consumer_group in lane.queue.consumer_groups.values():
            self.add_list(lane, consumer_group)
            arrange(consumer_group)
        lane.queue.distribution.add_lane(lane)
        self.find_sole_lists(lane.queue)

    def add_list(self, lane: LaneState, consumer_group: ConsumerGroup) -> None:
        target = TargetList(lane, consumer_group, 0)
        if lane.parked or lane.dead:
            target.share()
        consumer_group.lists.append(target)
        self.adopt(target)
        self.loads.request(target)

    def adopt(self, target: TargetList) -> None:
        """Give a new list its share of memory from now on."""
        self.make_room(LIST_BYTES, None)
        self.consumers.charge(LIST_BYTES)
        self.lists[target] = None
        self.watch.begin(target)
        # The others shrink to their fair share at the next measurement: O(1) here, however many there are.
        limit_bytes = min(self.shares.limit_bytes - self.shares.reserved_bytes, target.lane.memory.share_bytes)
        watermark_bytes = high_watermark_bytes(limit_bytes, len(self.lists), None)
        target.move_high_watermark(watermark_bytes, self._rule.read_ahead_share)

    def find_sole_lists(self, queue: QueueArea) -> None:
        """Find each lane's fast path again, after consumer groups or lanes came or went."""
        consumer_groups = list(queue.consumer_groups.values())
        is_sole = len(consumer_groups) == 1 and consumer_groups[0].selector is None and queue.distribution.is_ordinary
        for lane in queue.all_lanes():
            lane.sole = None
            if is_sole:
                lane.sole = next(target for target in consumer_groups[0].lists if target.lane is lane)
                lane.sole.own_direct()
        if len(consumer_groups) > 1:
            for consumer_group in consumer_groups:
                for target in consumer_group.lists:
                    target.share()

    def _lay_open(self, target: TargetList) -> None:
        """Let others find what only this list has. Requires: its messages are not persistent."""
        messages = [target.evict_last() for _ in range(len(target.direct))]
        target.lane.memory.lists.release(charges_bytes(messages))
        target.lane.leave_ram(messages)

    def unsubscribe(self, queue: QueueArea, consumer_group: ConsumerGroup) -> None:
        """Drop a consumer group whose last consumer has gone; direct messages go to the HeadQueueCache if they fit."""
        key = consumer_group.selector.text if consumer_group.selector is not None else None
        del queue.consumer_groups[key]
        queue.misses += consumer_group.misses
        if consumer_group.is_charged:
            self.consumers.release(group_charge(consumer_group.selector))
        for target in consumer_group.lists:
            self._end_list(target)
        consumer_group.lists.clear()
        if len(queue.consumer_groups) <= 1:
            self.find_sole_lists(queue)

    def withdraw(self, queue: QueueArea, consumer_group: ConsumerGroup) -> None:
        """Take from a consumer group that reads several destinations its lists over one of them."""
        kept: list[TargetList] = []
        for target in consumer_group.lists:
            if target.lane.queue is queue:
                self._end_list(target)
            else:
                kept.append(target)
        consumer_group.lists[:] = kept
        queue.consumer_groups.clear()
        self.find_sole_lists(queue)

    def _end_list(self, target: TargetList) -> None:
        """Drop a list; its direct messages go to the HeadQueueCache if they fit."""
        self.drop(target)
        has_supply = target.has_supply
        memory, lane = target.lane.memory, target.lane.stored.number
        memory.lists.release(target.direct_bytes)
        memory.head_queue_cache.reopen(lane)
        dropped: list[StoredMessage] = []
        for message in target.direct:
            if message[2] is None or target.is_shared or not memory.head_queue_cache.put(lane, message):
                dropped.append(message)
        target.direct.clear()
        target.close()
        target.lane.leave_ram(dropped)
        target.direct_bytes = 0
        if dropped or has_supply:
            self._on_unread(target.lane)

    def drop(self, target: TargetList) -> None:
        """End a list's share of memory. What a load of it reserved stays reserved until the load ends."""
        self.loads.forget(target)
        self.waits_for_memory.pop(target, None)
        self.watch.end(target)
        del self.lists[target]
        self.consumers.release(LIST_BYTES)
        if target.load is not None:
            self.leaving[target] = None

    def end_load(self, target: TargetList) -> None:
        """Note that a list's load has ended, in whatever way; its memory is the caller's to give back."""
        target.load = None
        self.leaving.pop(target, None)

    @property
    def is_loading(self) -> bool:
        """Tell whether a load is under way, be its list there or gone. O(lists)."""
        return bool(self.leaving) or any(target.is_loading for target in self.lists)

    def measure(self, seconds: float) -> None:
        """Move every list's high watermark by what its consumers took in the last seconds. O(lists)."""
        self.reclaim.measurements += 1
        for target in self.lists:
            if target.taken_bytes:
                target.measure((target.taken_bytes - target.measured_bytes) / seconds)
                target.measured_bytes = target.taken_bytes
        self.consumers.settle()
        self._move_high_watermarks()
        self.watch.measured()
        self.relieve()

    def _move_high_watermarks(self) -> None:
        rates = [target.measured_rate for target in self.lists]
        common_bytes = self.shares.limit_bytes - self.shares.reserved_bytes
        granted = dict(zip(self.lists, self._rule.high_watermarks(common_bytes, rates), strict=True))
        for memory in self.quota_memories.values():
            own = [target for target in granted if target.lane.memory is memory]
            own_rates = [target.measured_rate for target in own]
            least = self._rule.high_watermarks(memory.quota.reserve_bytes, own_rates)
            most = self._rule.high_watermarks(memory.quota.share_bytes, own_rates)
            for target, least_bytes, most_bytes in zip(own, least, most, strict=True):
                granted[target] = min(max(granted[target], least_bytes), most_bytes)
        for target, watermark_bytes in granted.items():
            self._move_high_watermark(target, watermark_bytes)

    def shorten(self, target: TargetList) -> None:
        """See ListKeeper. The message that reaches over the high watermark stays, as a load brings one at least."""
        target.move_high_watermark(target.high_watermark_bytes, self._rule.read_ahead_share)
        self._evict(
            target, lambda: target.direct_bytes - charge_bytes(target.direct[-1]) >= target.high_watermark_bytes
        )

    def _move_high_watermark(self, target: TargetList, watermark_bytes: int) -> None:
        """Move the watermark's bound; what is above it goes to the PendingCache where it fits."""
        target.move_high_watermark(watermark_bytes, self._rule.read_ahead_share)
        self._evict(target, lambda: target.direct_bytes > target.high_watermark_bytes)

    def _evict(self, target: TargetList, is_too_long: Callable[[], bool]) -> None:
        """Let a list give messages from its far end, but for the first, to its lane's cache where they fit."""
        evicted: list[StoredMessage] = []
        while len(target.direct) > 1 and is_too_long():
            evicted.append(target.evict_last())
            target.lane.memory.lists.release(charge_bytes(evicted[-1]))
        put, lane = target.lane.pending_cache.put, target.lane.stored.number
        target.lane.leave_ram(
            [message for message in reversed(evicted) if message[2] is not None and not put(lane, message)]
        )

    # ------------------------------------------------------------------ arrivals

    def offer_many(self, lane: LaneState, messages: Sequence[StoredMessage], content_bytes: int | None = None) -> None:
        """Offer a slice that is stored and may be dispatched: as one, where the fast path takes it whole.

        content_bytes: of all of it; None: it is counted here.
        """
        sole = lane.sole
        if sole is not None and sole.frontier == messages[0][0] and not sole.references:
            charge = charges_bytes(messages) if content_bytes is None else contents_charge(len(messages), content_bytes)
            if sole.direct_bytes + charge <= sole.high_watermark_bytes and lane.memory.lists.reserve(charge):
                sole.direct.extend(messages)
                sole.direct_bytes += charge
                lane.published = sole.frontier = messages[-1][0] + 1
                self.wake(sole.consumer_group)
                return
        is_behind = sole is not None and sole.frontier < messages[0][0] and not sole.has_room_for_all
        if is_behind and not lane.pending_cache.has(lane.stored.number):
            lane.published = messages[-1][0] + 1  # far behind what is loaded: they stay references
        else:
            lane.arrive_each(messages)
        if sole is not None:
            self.wake(sole.consumer_group)

    def publish(self, lane: LaneState, messages: Sequence[StoredMessage] | range) -> None:
        """Let what a call stored be dispatched. A range: the messages of these sequences are not in RAM."""
        first = messages.start if isinstance(messages, range) else messages[0][0]
        if first > lane.published:
            for reader in lane.readers():
                if first > reader.published:
                    self.pass_holes(reader, first)
        if isinstance(messages, range):
            lane.arrive_unloaded(messages.stop)
        else:
            self.offer_many(lane, messages)

    def pass_holes(self, lane: LaneState, first: int) -> None:
        """Let lists that have seen all before `first` go on there: nothing lies between what is published and first."""
        for consumer_group in lane.queue.consumer_groups.values():
            for target in consumer_group.lists:
                if target.lane is lane and target.frontier == lane.published:
                    target.frontier = first
        lane.published = first

    def offer_unloaded(self, lane: LaneState, end: int) -> None:
        """See LaneState.arrive_unloaded."""
        lane.published = end
        if not lane.queue.consumer_groups:
            lane.memory.head_queue_cache.stop(lane.stored.number)
        for consumer_group in lane.queue.consumer_groups.values():
            for target in consumer_group.lists:
                if target.lane is lane:
                    self.loads.request(target)
            self.wake(consumer_group)

    def offer_to_groups(self, lane: LaneState, message: StoredMessage) -> bool:
        """Offer an arrival where there are no consumers, several consumer groups, or a selector.

        Returns whether it is in RAM for all who may want it.
        """
        number = lane.stored.number
        consumer_groups = lane.queue.consumer_groups
        if not consumer_groups:
            heads = lane.memory.head_queue_cache
            if lane.stored.pending_messages == 1:
                heads.reopen(number)
            return heads.put(number, message)
        sequence = message[0]
        charge = charge_bytes(message)
        is_kept = is_direct = False
        is_behind = False
        for consumer_group in consumer_groups.values():
            target = next(found for found in consumer_group.lists if found.lane is lane)
            if target.frontier == sequence and not target.references:
                is_wanted = consumer_group.verdict(lane, message)
                if is_wanted is False:
                    target.frontier = sequence + 1
                    if lane.unwanted is not None:
                        lane.unwanted.add(sequence, sequence)
                    continue
                if (
                    is_wanted
                    and target.direct_bytes + charge <= target.high_watermark_bytes
                    and lane.memory.lists.reserve(charge)
                ):
                    target.append(message, charge)
                    target.frontier = sequence + 1
                    is_direct = True
                    self.wake(consumer_group)
                    continue
            is_behind = True
            if not is_kept:
                is_near = target.frontier == sequence or (lane.is_persistent and target.has_room_for_all)
                is_kept = lane.pending_cache.put_overflow(number, message, is_near=is_near)
            self.loads.request(target)
            self.wake(consumer_group)
        return is_kept if is_behind else is_direct

    def wake(self, consumer_group: ConsumerGroup) -> None:
        """Wake the consumers of a group, because something may be there."""
        consumer_group.wake(self.monitor.deferred)

    def on_unread(self, lane: LaneState) -> None:
        """See ListKeeper."""
        self._on_unread(lane)

    def on_lane_gone(self, lane: LaneState) -> None:
        """See ListKeeper."""
        self._on_lane_gone(lane)

    def pass_unreadable(self, lane: PersistentLaneState, sequence: int) -> None:
        """See ListKeeper."""
        self.unreadable.append((lane, sequence))

    def try_again(self, target: TargetList) -> None:
        """See ListKeeper."""
        if target.wanted_bytes <= OVERHEAD_BYTES or target.lane.memory.free_bytes >= target.wanted_bytes:
            self.waits_for_memory.pop(target, None)
            self.loads.request(target)

    # ------------------------------------------------------------------ handing out

    def collect_one(self, consumer: Taker) -> Delivery | None:
        """Collect one message where the list holds it and nothing needs a second look; else None."""
        lists = consumer.consumer_group.lists
        if not lists:
            return None
        target = lists[0]
        if not target.direct or target.returned.count or not target.is_plain:
            return None
        sequence, properties, body, timestamp = target.direct[0]
        dispatch = self.dispatch
        lane = target.lane
        attempts = lane.attempts
        if body is None or (attempts is not None and attempts.find(sequence) is not None):
            return None
        charge = len(properties) + len(body) + OVERHEAD_BYTES
        if dispatch.held_bytes + charge > self.dispatch_bytes_max:
            return None
        target.direct.popleft()
        target.direct_bytes -= charge
        target.taken_bytes += charge
        # The charge changes hands: the sum stays, and neither holder has a guarantee. This path is the hottest.
        self.lists_holder.held_bytes -= charge
        dispatch.held_bytes += charge
        number = consumer.delivered = consumer.delivered + 1
        delivery = Delivery(consumer, lane, sequence, properties, body, timestamp, 1, number)
        lane.in_flight[sequence] = delivery
        consumer.in_flight += 1
        if target.direct_bytes < target.low_watermark_bytes and (
            target.frontier < lane.published or target.references.count  # its supply: nothing came back
        ):
            self.loads.runs_low(target)
        if target.taken_bytes >= target.look_at:
            self.watch.look(target)
        return delivery

    def collect(self, consumer: Taker, most: int, max_bytes: int | None) -> list[Delivery]:
        """Hand out up to most direct messages in order, without reading any. Empty: see `starving`."""
        deliveries: list[Delivery] = []
        for target in consumer.consumer_group.lists:
            if target.counterpart is not None:
                if target.lane.is_persistent:
                    max_bytes, is_empty = self.collect_interleaved(consumer, target, most, max_bytes, deliveries)
                    if not is_empty:
                        break
                continue
            if target.returned.count and (not target.direct or target.returned.first < target.direct[0][0]):
                break
            if target.direct:
                max_bytes = self.hand_out(consumer, target, most, max_bytes, deliveries)
                if target.direct_bytes < target.low_watermark_bytes and target.has_supply:
                    self.loads.runs_low(target)
                if len(deliveries) >= most or target.direct:
                    break
            if target.has_supply:
                break
        return deliveries

    def collect_interleaved(
        self, consumer: Taker, target: TargetList, most: int, max_bytes: int | None, deliveries: list[Delivery]
    ) -> tuple[int | None, bool]:
        """Hand out from a list and its counterpart by arrival; return what is left of max_bytes, if both are empty."""
        while True:
            chosen, before = next_by_arrival(target)
            direct = chosen.direct
            if not direct and not chosen.has_supply:
                return max_bytes, True
            if not direct or len(deliveries) >= most:
                return max_bytes, False
            if chosen.returned.count and chosen.returned.first < direct[0][0]:
                return max_bytes, False
            count = len(direct)
            max_bytes = self.hand_out(consumer, chosen, most, max_bytes, deliveries, before)
            if chosen.direct_bytes < chosen.low_watermark_bytes and chosen.has_supply:
                self.loads.request(chosen)
            if len(direct) == count:
                return max_bytes, False

    def hand_out(
        self,
        consumer: Taker,
        target: TargetList,
        most: int,
        max_bytes: int | None,
        deliveries: list[Delivery],
        before: int = NOWHERE,
    ) -> int | None:
        """Move messages before a sequence from a list to the DispatchArea; return what is left of max_bytes.

        A take that has nothing yet gets one message, however large. A message for whose body memory has no room is
        handed out without: a lazy delivery, which reads it when somebody asks. Where there is no room for that either,
        or max_bytes are used up, the rest stays in the list.
        """
        lane, direct, is_shared = target.lane, target.direct, target.is_shared
        if target.is_timed and not is_shared:
            self.drop_expired(target, most - len(deliveries))
        in_flight, attempts = lane.in_flight, lane.attempts
        room_for_bodies, room = self._in_flight_rooms(lane.memory)
        already, number = len(deliveries), consumer.delivered
        moved = released = 0
        stop = NOWHERE
        if target.returned.count or before < NOWHERE:
            most, stop = _bounds(target, most, already, before)
        while direct and len(deliveries) < most:
            message = direct[0]
            sequence, properties, body, timestamp = message
            if is_shared:  # other lists have the message too, and what they had before it may have come back
                if sequence >= stop:
                    break
                if not self._claim(target, message):
                    continue
            charge = len(properties) + OVERHEAD_BYTES + (len(body) if body is not None else 0)
            if max_bytes is not None:
                size = charge - OVERHEAD_BYTES if body is not None else lane.stored.lengths(sequence, sequence)[0]
                if deliveries and size > max_bytes:
                    break
                max_bytes -= size
            if moved + charge > room_for_bodies:
                if deliveries and moved + OVERHEAD_BYTES > room:
                    break
                if body is None or lane.unload(message):
                    released += charge - OVERHEAD_BYTES
                    charge, properties, body = OVERHEAD_BYTES, b"", None
            direct.popleft()
            moved += charge
            if is_shared and body is not None:
                lane.hold(sequence)
            number += 1
            attempt = attempts.get(sequence) + 1 if attempts is not None else 1
            delivery = Delivery(consumer, lane, sequence, properties, body, timestamp, attempt, number)
            in_flight[sequence] = delivery
            deliveries.append(delivery)
        self._hand_over(target, moved, released)
        consumer.delivered = number
        consumer.in_flight += len(deliveries) - already
        if lane.attempts is not None:
            lane.count_hand_outs(deliveries[already:])
        if target.taken_bytes >= target.look_at:
            self.watch.look(target)
        if not direct and is_shared and lane.sole is not target:
            target.hand_back_direct()  # thousands of lists with selectors may stand empty
        return max_bytes

    def _claim(self, target: TargetList, message: StoredMessage) -> bool:
        """Claim the first message of a list that shares; False: it has left the list, expired or claimed by others."""
        if target.is_timed and self._drop_if_expired(target, message):
            return False
        if target.consumer_group.claim(target.lane, message):
            return True
        target.direct.popleft()
        charge = charge_bytes(message)
        target.direct_bytes -= charge
        target.lane.memory.lists.release(charge)
        return False

    def _hand_over(self, target: TargetList, moved_bytes: int, released_bytes: int) -> None:
        """Make the DispatchArea the owner of charges of a list, and release others."""
        memory, taken_bytes = target.lane.memory, moved_bytes + released_bytes
        target.direct_bytes -= taken_bytes
        target.taken_bytes += taken_bytes
        memory.lists.hand_over(memory.dispatch, moved_bytes)
        if not memory.is_common:
            self._note_in_flight(memory, moved_bytes)
        if released_bytes:
            memory.lists.release(released_bytes)

    def drop_expired(self, target: TargetList, most: int) -> None:
        """Take expired messages out of the next direct ones of a list, so that up to `most` others come next.

        O(most + expired).
        """
        lane, direct, now_ms = target.lane, target.direct, self._now_ms()
        kept: list[StoredMessage] = []
        while direct and len(kept) < most:
            message = direct.popleft()
            if _has_expired(lane, message, now_ms):
                charge = charge_bytes(message)
                target.direct_bytes -= charge
                lane.memory.lists.release(charge)
                self._on_expired(lane, message[0])
            else:
                kept.append(message)
        direct.extendleft(reversed(kept))

    def _drop_if_expired(self, target: TargetList, message: StoredMessage) -> bool:
        """Drop the first message of a list that shares if its time is over; return whether it went."""
        self.drop_expired(target, 1)
        return not target.direct or target.direct[0][0] != message[0]

    def starving(self, consumer_group: ConsumerGroup) -> TargetList | None:
        """Return the list that must be loaded before anything can be handed out; None: there is nothing to have."""
        for target in consumer_group.in_turn():
            if target.counterpart is not None:
                target = next_by_arrival(target)[0]
            if target.is_ready:
                return None  # it is there, and not to be had now: a load would not help
            if target.has_supply:
                return target
        return None

    def has_any(self, consumer_group: ConsumerGroup) -> bool:
        """Return whether a take may find something, now or after a load."""
        return any(target.direct or target.has_supply for target in consumer_group.in_turn())

    # ------------------------------------------------------------------ settling

    def settle(self, delivery: Delivery) -> None:
        """Take the delivery out of the DispatchArea with its charge."""
        lane = delivery._lane
        del lane.in_flight[delivery.sequence]
        body = delivery._body
        charge = OVERHEAD_BYTES if body is None else OVERHEAD_BYTES + len(delivery._properties) + len(body)
        if lane.memory.is_common:
            # What Holder.release does for one without a guarantee, without its call: the path of every single ack.
            self.dispatch.held_bytes -= charge
            self.budget.held_bytes -= charge
        else:
            self._release_in_flight(lane.memory, charge)
        delivery._consumer.in_flight -= 1
        if self.waits_for_memory:
            self.relieve()

    def settle_run(self, lane: LaneState, deliveries: Sequence[Delivery]) -> None:
        """Settle deliveries of one lane that are acknowledged, all of one consumer."""
        in_flight = lane.in_flight
        for sequence in [delivery.sequence for delivery in deliveries]:
            del in_flight[sequence]
        contents = [len(held._properties) + len(held._body) for held in deliveries if held._body is not None]
        self._release_in_flight(lane.memory, OVERHEAD_BYTES * len(deliveries) + sum(contents))
        if lane.attempts is not None:
            lane.forget_attempts(deliveries[0].sequence, deliveries[-1].sequence)
        deliveries[0]._consumer.in_flight -= len(deliveries)
        if self.waits_for_memory:
            self.relieve()

    def _release_in_flight(self, memory: LaneMemory, charge: int) -> None:
        memory.dispatch.release(charge)
        if not memory.is_common:
            self._note_in_flight(memory, -charge)

    def _in_flight_rooms(self, memory: LaneMemory) -> tuple[int, int]:
        """Return how many more bytes the destinations of a memory may have in flight: with bodies, and at all."""
        held_bytes = self.dispatch.held_bytes
        return memory.in_flight_rooms(self.dispatch_bytes_max - held_bytes, self.in_flight_bytes_max - held_bytes)

    def _note_in_flight(self, memory: LaneMemory, more_bytes: int) -> None:
        """Leave less, or more, to the others, after destinations with a quota have got so much more in flight."""
        after_bytes = memory.dispatch.held_bytes
        before_bytes = after_bytes - more_bytes
        bodies_bytes, all_bytes = memory.in_flight_reserves
        self.dispatch_bytes_max -= max(after_bytes, bodies_bytes) - max(before_bytes, bodies_bytes)
        self.in_flight_bytes_max -= max(after_bytes, all_bytes) - max(before_bytes, all_bytes)

    @property
    def in_flight_bytes(self) -> int:
        """What all deliveries in flight hold."""
        return sum(memory.dispatch.held_bytes for memory in self.memories)

    @property
    def is_short(self) -> bool:
        """Tell whether that holds for destinations that no policy sets apart."""
        return self.is_short_for(self.common_memory)

    def is_short_for(self, memory: LaneMemory) -> bool:
        """Tell whether what is in flight holds so much memory that a consumer must settle before it takes more."""
        return self._in_flight_rooms(memory)[1] < OVERHEAD_BYTES

    def relieve(self) -> None:
        """Let those take, and load, who waited for the memory that came free."""
        for waiting in list(self.waits_for_memory):
            waiting.credit_came()

    def offer_again(self, lane: LaneState, message: StoredMessage) -> None:
        """Put a message that was handed out and is free again into its place in every list that has passed it."""
        if not lane.stored.is_pending(message[0]):
            return
        if message[2] is not None and not lane.pending_cache.put(lane.stored.number, message):
            lane.leave_ram((message,))
        lane.queue.distribution.offer_again(lane, message)

    def offer_put_off(self, lane: LaneState, runs: Sequence[tuple[int, int]]) -> None:
        """Offer messages again of which the delay is over."""
        lane.queue.distribution.offer_put_off(lane, runs)

    def offer_runs(self, lane: LaneState, runs: Sequence[tuple[int, int]]) -> None:
        """Put runs that are due from now on into their places, in each list that has passed them.

        O(runs); and what lists that share have in RAM, or know to match.
        """
        for consumer_group in lane.queue.consumer_groups.values():
            for target in consumer_group.lists:
                if target.lane is not lane or not runs:
                    continue
                for first, last in runs:
                    if first < target.frontier:
                        target.returned.add(first, min(last, target.frontier - 1))
                    load = target.load
                    behind = max(first, target.frontier)
                    if load is not None and behind <= min(last, load.last):
                        # It passed them over while they waited: it ends before them, and is looked through again.
                        lane.purges += 1
                        load.last = behind - 1
                if target.is_shared:
                    target.forget_known(target.returned)
                self.loads.request(target)
                self.wake(consumer_group)
        if runs:
            lane.queue.distribution.make_way()

    def forget(self, lane: LaneState, gone: SequenceSet) -> None:
        """Forget messages that were removed and are not in flight, in each list and cache of the lane."""
        lane.purges += 1
        for first, last in gone if lane.attempts is not None else ():
            lane.forget_attempts(first, last)
        for target in lane.queue.lists_over(lane):
            lane.memory.lists.release(target.forget(gone))
        lane.queue.distribution.forget(lane, gone)
        lane.pending_cache.forget_runs(lane.stored.number, gone)
        lane.memory.head_queue_cache.forget_runs(lane.stored.number, gone)
        lane.memory.head_queue_cache.reopen(lane.stored.number)
        if self.waits_for_memory:
            self.relieve()

    # ------------------------------------------------------------------ memory

    def make_room(
        self, wanted_bytes: int, keep: TargetList | None, *, least: int = 1, least_seconds: float = 0.0
    ) -> None:
        """See Reclaim.make_room."""
        self.reclaim.make_room(wanted_bytes, keep, least=least, least_seconds=least_seconds)

    def cache_statistics(self) -> dict[str, CacheStatistics]:
        """Return the figures of both caches, over the destinations of all policies. O(lanes)."""
        memories = self.memories
        return {
            "pending_cache": added([memory.pending_cache.statistics() for memory in memories]),
            "head_queue_cache": added([memory.head_queue_cache.statistics() for memory in memories]),
        }

    def audit(self) -> dict[str, int]:
        """Return what each holder's charge should be, found by walking the live objects.

        Those on their way are included.
        """
        kept = [
            max(memory.dispatch.held_bytes, memory.in_flight_reserves[0]) for memory in self.quota_memories.values()
        ]
        assert self.dispatch_bytes_max == self.shares.dispatch_bytes_max - sum(kept)
        in_flight: dict[int, Delivery] = {}
        for lane in {target.lane for target in self.lists}:
            lane._check()
        for target in self.lists:
            for delivery in target.lane.in_flight.values():
                in_flight[id(delivery)] = delivery
        lists_bytes: dict[LaneMemory, int] = dict.fromkeys(self.memories, 0)
        for target in (*self.lists, *self.leaving):
            loading_bytes = target.load.reserved_bytes if target.load is not None else 0
            lists_bytes[target.lane.memory] += charges_bytes(target.direct) + loading_bytes
        for memory, held_bytes in lists_bytes.items():
            assert memory.lists.held_bytes == held_bytes
            assert memory.pending_cache.audit() == memory.pending_cache.holder.held_bytes
        return {
            "target_lists": sum(lists_bytes.values()),
            "head_queue_cache": sum(memory.head_queue_cache.audit() for memory in lists_bytes),
            "pending_cache": sum(memory.pending_cache.audit() for memory in lists_bytes),
            "dispatch_area": sum(
                OVERHEAD_BYTES + (len(delivery._properties) + len(delivery._body) if delivery._body is not None else 0)
                for delivery in in_flight.values()
            ),
            "index": self.store.index.held_bytes,
            "curve": self.watch.charge_bytes,
            "attempts": self.store.index.attempts.held_bytes,
            **self.overflow.audit(),
        }


def _bounds(target: TargetList, most: int, already: int, before: int) -> tuple[int, int]:
    """Return how many deliveries there may be, and where to stop: nothing passes what came back, or `before`.

    The stop is for a list that shares: how many of its messages it hands out, the other lists decide.
    """
    returned = target.returned
    if target.is_shared:
        return most, min(before, returned.first + 1) if returned.count else before
    if returned.count:
        most = min(most, already + target.before_returned)
    if before < NOWHERE:
        most = min(most, already + target.count_before(before, most - already))
    return most, NOWHERE


def _has_expired(lane: LaneState, message: StoredMessage, now_ms: int) -> bool:
    """Return whether a message has expired."""
    if message[2] is None:
        times = lane.stored.times_of(message[0])
    elif has_times(message[1]):
        times = times_of(message[1])
    else:
        return False
    return 0 < times.expires_at <= now_ms
