"""DeadLetterMover: move messages after their last attempt to the dead-letter queue of their destination.

One record removes a message from its destination and adds it to the dead-letter queue, as for a moved message. So after
any crash exactly one of the two has it. It keeps id, headers, body, priority and timestamp, and gets headers that say
where it comes from and why. This is done in the background; until then nobody gets the message. If the disk takes no
more, it waits and is tried again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Final

from ...store.environment.late_log import LateLogger
from ...store.errors import Closed, ForebayError, SettingsError, StoreFailed
from ...store.format.properties import decode_properties, encode_properties, group_of
from ...store.format.record import RecordDamaged
from ...store.index.delivery_counts import DeliveryCountTable
from ...store.index.pending_lane import PendingLane
from ...store.index.subscriptions import Subscriptions
from ...store.journal.journal import Journal
from ...store.message import HeaderValue
from ...store.message_store import MessageStore
from ...store.numbering import LANE_SHIFT
from ...store.state.transactions import Branches
from ...store.stored_message import StoredMessage
from ...store.structures.sequence_set import SequenceSet
from ..config.policies import Policies
from ..config.redelivery_delays import ATTEMPTS, FROM, MAX_ATTEMPTS, REASON, SUBSCRIPTION, TIME, dead_letter_headers
from ..core.areas.dispatch_area import DispatchArea
from ..core.confirmer import Confirmer
from ..core.deliveries.delivery import Delivery, content_of, is_lazy
from ..core.destinations.destinations import Destinations
from ..core.destinations.queue_state import QueueState
from ..core.model import LaneState, consumer_of, lane_of
from ..core.monitor import Monitor
from ..core.settling.redelivery import Redelivery
from ..core.settling.removal import Removals
from ..topics.registry import Topics
from ..transactions.transaction import Transaction
from .browse import Browsers
from .move import BATCH_BLOCKS, Mover

logger = LateLogger("forebay.dispatch")

BATCH_MESSAGES: Final = 256
READ_BYTES: Final = 1 << 20
"""Bytes of rejected messages that are read at a time, if they are not in RAM. One message may exceed it."""
STEPS: Final = 16
"""Steps of one call, so that other work of the housekeeper is not late."""
Check = Callable[[Sequence[Delivery]], None]
"""Raises if a delivery may not be settled. Requires: the lock."""
RETRY_SECONDS: Final = 1.0
TIDY_RUNS: Final = 32
"""Runs of one call. Each may read a block of the index, under the lock."""


class DeadLetterMover:
    """Moves messages whose last attempt failed to their dead-letter queue.

    The state lock guards it; `step` takes the lock itself.
    """

    def __init__(
        self,
        *,
        monitor: Monitor,
        store: MessageStore,
        journal: Journal,
        branches: Branches,
        delivery_count_table: DeliveryCountTable,
        subscribers: Subscriptions,
        dispatch_area: DispatchArea,
        confirmer: Confirmer,
        destinations: Destinations,
        removals: Removals,
        redelivery: Redelivery,
        topics: Topics,
        browsers: Browsers,
        mover: Mover,
        policies: Policies,
        wake_maintenance: Callable[[], None],
    ) -> None:
        self._monitor = monitor
        self._store = store
        self._journal = journal
        self._branches = branches
        self._delivery_count_table = delivery_count_table
        self._subscribers = subscribers
        self._dispatch_area = dispatch_area
        self._confirmer = confirmer
        self._destinations = destinations
        self._removals = removals
        self._topics = topics
        self._browsers = browsers
        self._mover = mover
        self._policies = policies
        self._wake_maintenance = wake_maintenance
        self._waiting = redelivery.lanes_with_dead_letters
        # After a kill: lanes to which messages had come back, and up to where their counts were checked.
        self._untidy: dict[LaneState, int] = {}
        self._retry_at = 0.0
        # It falls if there is little space, because a small batch still fits then.
        self._batch_messages = BATCH_MESSAGES

    # ------------------------------------------------------------------ after an open

    def recover(self, was_killed: bool) -> None:
        """Take over what the previous process left. Requires: the lock.

        was_killed: messages that it had handed out for the first time are in no record, so any pending message may have
            been. A hand-out of them is recorded at once from now on. O(lanes + runs of returned messages); reads no
            block.
        """
        counts = self._delivery_count_table
        for pending_lane in self._recorded_lanes() if was_killed else ():
            first = pending_lane.pending_from()
            if first < pending_lane.next_sequence:
                counts.suspect(pending_lane.number, first, pending_lane.next_sequence - 1)
        for lane in self._lanes():
            known = lane.delivery_counts = counts.find(lane.pending_lane.number)
            if was_killed:
                self._untidy[lane] = 0
            rule = self._policies.redelivery(lane.destination.name)
            for counted in known or ():
                if rule.is_last(counted.attempts):
                    lane.dead_letters.add(counted.first, counted.last)
            for run in self._branches.acknowledged_in(lane.pending_lane.number):
                lane.dead_letters.remove(*run)
            if lane.dead_letters:
                self._waiting[lane] = None

    def _recorded_lanes(self) -> Iterator[PendingLane]:
        for queue in self._destinations.queues.values():
            yield from (lane.pending_lane for lane in queue.lanes if lane is not None)
        for subscriber in self._subscribers.readers():
            yield from filter(None, subscriber.lanes)

    def _lanes(self) -> Iterator[LaneState]:
        """Yield the lanes to which messages have come back.

        For an offline subscription without any, no object is made.
        """
        counts = self._delivery_count_table
        for queue in self._destinations.queues.values():
            yield from (lane for lane in queue.all_lanes() if counts.find(lane.pending_lane.number) is not None)
        for topic in self._topics.by_name.values():
            for name, number in zip(topic.durable, topic.durable_numbers, strict=True):
                for topic_lane in filter(None, topic.lanes):
                    known = counts.find(number << LANE_SHIFT | topic_lane.priority) or ()
                    if name in topic.kept or any(counted.attempts for counted in known):
                        opened = topic.durable_subscription(name)
                        assert opened is not None
                        yield topic.keep(opened).lane_of(topic_lane)

    # ------------------------------------------------------------------ one step

    def step(self) -> bool:
        """Move up to 256 dead letters of one lane. False: there are none, or they must wait. Requires: no lock."""
        if self._untidy:
            with self._monitor.lock, self._monitor.whole:
                self._tidy()
            return True
        if not self._waiting or self._monitor.monotonic() < self._retry_at:
            return False
        with self._monitor.lock, self._monitor.whole:
            lane = next(iter(self._waiting), None)
            if lane is None:
                return False
            del self._waiting[lane]
            if not lane.destination.is_open or not lane.dead_letters:
                lane.dead_letters.clear()
                return True
            self._waiting[lane] = None  # other lanes come first next time
            first = lane.dead_letters.first
            last = min(next(iter(lane.dead_letters))[1], first + self._batch_messages - 1)
            rule = self._policies.redelivery(lane.destination.name)
        try:
            if rule.dead_letter_queue is None:
                self._discard(lane, first, last)
            else:
                for messages in self._browsers.loads(lane, first, last + 1):
                    self.move(lane, rule.dead_letter_queue, messages, MAX_ATTEMPTS)
        except (Closed, StoreFailed):
            raise
        except ForebayError as error:
            if self._batch_messages > 1:
                self._batch_messages = max(self._batch_messages // 4, 1)
                return True
            logger.warning("dead letters of %r wait: %s", lane.destination.name, error, event="dead_letters_wait")
            self._retry_at = self._monitor.monotonic() + RETRY_SECONDS
            return False
        with self._monitor.lock, self._monitor.whole:
            self._leave(lane, first, last)
        self._batch_messages = min(2 * self._batch_messages, BATCH_MESSAGES)
        return True

    def steps(self) -> int:
        """Do a few steps; return how many."""
        done = 0
        while done < STEPS and self.step():
            done += 1
        if done == STEPS:
            self._wake_maintenance()
        return done

    def _tidy(self) -> None:
        """Forget counts of messages that were acknowledged before the kill, a few runs at a time.

        Requires: the lock.
        """
        if not self._untidy:
            return
        lane, begin = next(iter(self._untidy.items()))
        runs = list(islice((run for run in lane.delivery_counts or () if run.last >= begin), TIDY_RUNS))
        if not runs or not lane.destination.is_open:
            del self._untidy[lane]
            return
        lane.forget_attempts(runs[0].first, runs[-1].last)
        self._untidy[lane] = runs[-1].last + 1

    def _leave(self, lane: LaneState, first: int, last: int) -> None:
        """Count the messages as gone, except those that can't be read. Requires: the lock."""
        lane.dead_letters.remove(first, last)
        for sequence in self._removals.free_sequences(lane, first, last):
            lane.unreadable += 1
            lane.give_up(sequence)

    def _discard(self, lane: LaneState, first: int, last: int) -> None:
        """Remove dead letters that have no dead-letter queue. Requires: no lock."""
        gone = SequenceSet()
        with self._monitor.lock, self._monitor.whole:
            self._monitor.raise_if_closed()
            free = SequenceSet()
            for sequence in self._removals.free_sequences(lane, first, last):
                free.add(sequence, sequence)
            try:
                for run in free:
                    lane.backing_store.acknowledge(lane.pending_lane, *run)
                    gone.add(*run)
            finally:
                lane.destination.dead_lettered += gone.count
                self._removals.forget(lane, gone)
            position = self._store.position
        self._confirmer.confirm(position)

    # ------------------------------------------------------------------ moving

    def move(self, lane: LaneState, to: str, messages: list[StoredMessage], reason: str) -> int:
        """Move those of up to a block's messages that are free to a dead-letter queue; return how many.

        StoreFull: none was moved, or some of the non-persistent ones. Requires: no lock.
        """
        moved = 0
        store = self._store
        for begin in range(0, len(messages), self._batch_messages):
            batch = messages[begin : begin + self._batch_messages]
            store.require_index_room(BATCH_BLOCKS)
            with self._monitor.lock, self._monitor.whole:
                self._monitor.raise_if_closed()
                free = set(self._removals.free_sequences(lane, batch[0][0], batch[-1][0]))
                stamped = [
                    self._stamped(lane, message, reason, self._attempts(lane, message[0]))
                    for message in batch
                    if message[0] in free
                ]
                if stamped:
                    self._move(lane, to, stamped)
                    lane.destination.dead_lettered += len(stamped)
                moved += len(stamped)
                position = store.position
            self._confirmer.confirm(position)
        return moved

    # ------------------------------------------------------------------ rejecting

    def reject(
        self,
        deliveries: Sequence[Delivery],
        reason: str,
        transaction: Transaction | None,
        check: Check,
    ) -> None:
        """Make deliveries dead letters now, or remove them if there is no dead-letter queue.

        check: raises if one of them is settled; called under the lock. StoreFull, or StoreFailed if one can't be read:
            those of earlier batches are dead letters, the rest is still held. Requires: no lock.
        """
        if transaction is not None:
            for delivery in deliveries:
                self._reject_in(transaction, delivery, content_of(delivery), reason, check)
            return
        remaining = list(deliveries)
        while remaining:
            lane, batch = lane_of(remaining[0]), _read_batch(remaining)
            self._store.require_index_room(BATCH_BLOCKS)
            with self._monitor.lock, self._monitor.whole:
                self._monitor.raise_if_closed()
                check(remaining)
                self._reject(lane, sorted(batch.items(), key=lambda item: item[0].sequence), reason)
                for delivery in batch:
                    consumer_of(delivery).on_credit()
                position = self._store.position
            self._confirmer.confirm(position)
            self._monitor.run_deferred()
            remaining = [held for held in remaining if held not in batch]

    def _reject(
        self,
        lane: LaneState,
        rejected: list[tuple[Delivery, StoredMessage]],
        reason: str,
    ) -> None:
        """Reject deliveries of one lane. Requires: the lock; they are in flight, in order."""
        to = self._rejected_to(lane)
        stamped = [self._stamped(lane, message, reason, held.attempts) for held, message in rejected]
        held = [delivery for delivery, _ in rejected]
        for delivery in held:
            del lane.in_flight[delivery.sequence]  # no consumer holds it while it moves
        try:
            if to is not None:
                self._move(lane, to, stamped)
            else:
                gone = SequenceSet()
                for delivery in held:
                    lane.backing_store.acknowledge_one(lane.pending_lane, delivery.sequence)
                    gone.add(delivery.sequence, delivery.sequence)
                self._removals.forget(lane, gone)
        finally:
            for delivery in held:
                lane.in_flight[delivery.sequence] = delivery
            gone_ones = [delivery for delivery in held if not lane.pending_lane.is_pending(delivery.sequence)]
            for delivery in gone_ones:
                self._dispatch_area.settle(delivery)
            for delivery in gone_ones:
                lane.destination.distribution.settled(lane, delivery.sequence, 1)
            lane.destination.dead_lettered += len(gone_ones)

    def _rejected_to(self, lane: LaneState) -> str | None:
        """Return where rejected messages of a lane go. None: nowhere, as from a dead-letter queue."""
        name = lane.destination.name
        if self._policies.is_dead_letter_queue(name):
            return None
        return self._policies.redelivery(name).dead_letter_queue

    def _reject_in(
        self, transaction: Transaction, delivery: Delivery, message: StoredMessage, reason: str, check: Check
    ) -> None:
        """Reject in a transaction: it sends a dead letter and acknowledges the message. Requires: no lock."""
        lane = lane_of(delivery)
        to = self._rejected_to(lane)
        with self._monitor.lock, self._monitor.whole:
            self._monitor.raise_if_closed()
            check((delivery,))
            target = non_persistent_target = None
            if to is not None:
                queue = self._destinations.queue_locked(to)
                if lane.destination.has_groups:
                    self._destinations.note_groups(queue)
                if lane.is_persistent:
                    target = self._destinations.lane(queue.number << LANE_SHIFT | lane.pending_lane.priority)
                else:
                    non_persistent_target = self._destinations.non_persistent_lane(queue, lane.pending_lane.priority)
            stamped = self._stamped(lane, message, reason, delivery.attempts)
            transaction.hold_rejected(delivery, target, non_persistent_target, stamped)

    def _move(self, lane: LaneState, to: str, messages: list[StoredMessage]) -> None:
        """Move dead letters, even while sends are refused. Requires: the lock."""
        with self._journal.accepting_replacements():
            queue = self._destinations.queue_locked(to)
            if lane.destination.has_groups:
                self._destinations.note_groups(queue)
            if lane.is_persistent:
                target = self._destinations.lane(queue.number << LANE_SHIFT | lane.pending_lane.priority)
                self._mover.commit(lane, target, messages)
            else:
                self._move_non_persistent(lane, queue, messages)

    def _move_non_persistent(self, lane: LaneState, queue: QueueState, messages: list[StoredMessage]) -> None:
        """Move non-persistent messages one by one, because a crash leaves none of them."""
        target = self._destinations.non_persistent_lane(queue, lane.pending_lane.priority)
        gone = SequenceSet()
        try:
            for sequence, properties, body, timestamp in messages:
                target.add(timestamp, properties, body or b"")
                lane.backing_store.acknowledge_one(lane.pending_lane, sequence)
                gone.add(sequence, sequence)
        finally:
            self._removals.forget(lane, gone)

    def _attempts(self, lane: LaneState, sequence: int) -> int:
        known = lane.delivery_counts
        return known.get(sequence) if known is not None else 0

    def _stamped(self, lane: LaneState, message: StoredMessage, reason: str, attempts: int) -> StoredMessage:
        """Return the message with its id, and with headers that tell why it is a dead letter."""
        sequence, properties, body, timestamp = message
        added: dict[str, HeaderValue] = {
            FROM: lane.destination.name,
            REASON: reason,
            ATTEMPTS: attempts,
            TIME: self._monitor.clock_ms(),
        }
        subscription_name = lane.destination.subscription_name
        if subscription_name is not None:
            added[SUBSCRIPTION] = subscription_name
        try:
            headers, own_id = decode_properties(properties) if properties else ({}, None)
            message_id = own_id if own_id is not None else f"{lane.id_prefix}{sequence}"
            headers = dead_letter_headers(headers, added)
            return sequence, encode_properties(headers, message_id, group_of(properties)), body, timestamp
        except (RecordDamaged, SettingsError):
            return message  # a message that can't be decoded, or has no room for more headers, stays unchanged


def _read_batch(deliveries: Sequence[Delivery]) -> dict[Delivery, StoredMessage]:
    """Return the next deliveries of one lane with their contents, as many as a bounded read allows.

    Requires: no lock.
    """
    lane, read_bytes = lane_of(deliveries[0]), 0
    batch: dict[Delivery, StoredMessage] = {}
    for delivery in islice((held for held in deliveries if lane_of(held) is lane), BATCH_MESSAGES):
        if read_bytes >= READ_BYTES:
            break
        batch[delivery] = message = content_of(delivery)
        if is_lazy(delivery):
            read_bytes += len(message[1]) + len(message[2] or b"")
    return batch
