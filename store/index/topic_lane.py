"""TopicLane and SubscriptionLane: the messages of a topic, and what each subscription has not acknowledged of them.

The blocks of the topic's lane have the place of each message once, however many subscriptions there are. A subscription
has a set of the sequences that it has not acknowledged. An ack in the journal has the subscription's number. A message
leaves the topic's lane, and frees its data log, once no subscription needs it: before each checkpoint,
`remove_unneeded` finds such messages block by block.

The cost of a send does not depend on the number of subscriptions. All messages that were sent since a subscription last
caught up are pending for it, and `catch_up` adds them to its set when somebody asks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from ..format.needs_record import NeededRun
from ..format.places import Extent, SingleRecords
from ..format.state_record import SubscriptionBacklog
from ..format.times import MessageTimes
from ..numbering import BLOCK_MASK, BLOCK_SHIFT, LANE_SHIFT
from ..structures.bits import ones, runs_of_ones
from ..structures.sequence_set import SequenceSet
from .backlog_sets import NOTHING_PENDING, SUBSCRIPTION_LANE_BYTES, UNCOUNTED_SETS, BacklogSets
from .block import Block
from .block_cache import BlockCache
from .data_log_use import DataLogUse
from .destination_lane import DestinationLane
from .journaled_lane import JournaledLane
from .noted_backlogs import NotedBacklogs
from .pending_lane import PendingLane
from .sequence_bitmap import FULL_BLOCK, SequenceBitmap
from .subscription_table import Cursor

COUNTED_BLOCKS: Final = 128
"""Most blocks that a seek reads to count the pending bytes, which takes a few milliseconds."""
NO_RECORD: Final = 0
"""The data log of a removal without a record in the journal. No data log must be kept for it."""


class LaneHome(ABC):
    """The topic, as its lanes call it."""

    __slots__ = ()

    @abstractmethod
    def forget_lane(self, lane: TopicLane) -> None:
        """Forget a lane that is only a row of IdleLanes now."""

    @abstractmethod
    def open_subscription(self, subscription_number: int) -> None:
        """Give a subscription that is a row lanes of its own again."""


class TopicLane(DestinationLane):
    """The lane of a topic: a message is pending as long as at least one subscription may need it.

    The state lock guards it.
    """

    __slots__ = (
        "subscribers",
        "sent_bytes",
        "touched",
        "snapshots",
        "open_snapshot",
        "home",
        "backlogs",
        "cursors",
        "_nowhere",
    )

    def __init__(
        self,
        cache: BlockCache,
        uses: dict[int, DataLogUse],
        destination_number: int,
        priority: int,
        backlogs: BacklogSets,
    ) -> None:
        """Make an empty lane. backlogs: makes the sets of what subscriptions have not acknowledged."""
        super().__init__(cache, uses, destination_number, priority)
        self.backlogs = backlogs
        # Replaces this lane in the lanes of subscriptions that have ended.
        self._nowhere: TopicLane | None = None
        # The cursors of subscriptions that nobody uses.
        self.cursors = backlogs.cursors()
        # How often backlogs were noted, and the number of the note that a checkpoint still reads; 0: no checkpoint
        # does.
        self.snapshots = self.open_snapshot = 0
        self.is_unread = True
        # The topic. None: this is the `nowhere` of another lane.
        self.home: LaneHome | None = None
        # The lane of each open subscription, by number.
        self.subscribers: dict[int, SubscriptionLane] = {}
        # Content bytes of all messages sent since this object was made, even without subscriptions.
        self.sent_bytes = 0
        # Blocks that may have messages which are no longer needed.
        self.touched = SequenceSet()

    @property
    def is_idle(self) -> bool:
        """Whether the lane could be a row of IdleLanes. It can't be one while subscriptions refer to it."""
        return not self.has_subscriptions and super().is_idle

    @property
    def has_subscriptions(self) -> bool:
        """Whether any subscription gets the messages."""
        return bool(self.subscribers) or len(self.cursors) > 0

    def add_cursor(self, subscription_number: int) -> None:
        """Add a row for a subscription that is not in use. It gets messages that are sent from now on."""
        self.cursors.put(
            subscription_number, Cursor(self.next_sequence, self.sent_bytes, self.next_sequence, self.sent_bytes)
        )
        self.is_unread = False

    def shrink_to_row(self, lane: SubscriptionLane, cursor: Cursor) -> None:
        """Replace a subscription's lane by a cursor. Requires: no caller holds the lane."""
        del self.subscribers[lane.owner_number]
        lane.leave(self.nowhere)
        self.cursors.put(lane.owner_number, cursor)

    @property
    def nowhere(self) -> TopicLane:
        """A lane to which nothing is sent, for subscriptions that have ended."""
        if self._nowhere is None:
            self._nowhere = TopicLane(self.cache, self.data_log_uses, self.owner_number, self.priority, self.backlogs)
        return self._nowhere

    def _open_before(self, end: int) -> None:
        """Open each subscription that is a cursor and needs a message before `end`. O(subscriptions)."""
        lowest = self.cursors.lowest
        if lowest is not None and lowest < end:
            assert self.home is not None
            for number, cursor in self.cursors:
                if cursor.next_sequence < end:
                    self.home.open_subscription(number)

    def on_shrunk(self) -> None:
        """Tell the topic that the lane is only a row of IdleLanes now."""
        if self.home is not None:
            self.home.forget_lane(self)

    def replace(self, lane: DestinationLane) -> None:
        """Take over a lane that was not known to belong to a topic. Requires: there are no subscriptions yet."""
        self.take_over_counts(lane)
        self.take_over_blocks(lane)
        self.data_log_uses = lane.data_log_uses
        self.touch_all()

    def add_one(self, data_log: int, offset: int, length: int, use: DataLogUse) -> int:
        """Give the next sequence to a message. Without subscriptions the message is gone at once."""
        if self.is_unread:
            self.skip_to(self.next_sequence + 1)
            return self.next_sequence - 1
        self.sent_bytes += length
        return super().add_one(data_log, offset, length, use)

    def add_slice(self, data_log: int, offset: int, lengths: list[int], use: DataLogUse) -> int:
        """Give the next sequences to the messages of a record. Without subscriptions they are gone at once."""
        if self.is_unread:
            self.skip_to(self.next_sequence + len(lengths))
            return self.next_sequence - len(lengths)
        self.sent_bytes += sum(lengths)
        return super().add_slice(data_log, offset, lengths, use)

    def add_singles(self, data_log: int, offsets: array[int], lengths: array[int], use: DataLogUse) -> None:
        """Give the next sequences to messages that are a record each. Without subscriptions they are gone at once."""
        if self.is_unread:
            self.skip_to(self.next_sequence + len(lengths))
            return
        self.sent_bytes += sum(lengths)
        super().add_singles(data_log, offsets, lengths, use)

    def discard_next(self, messages: int, content_bytes: int) -> None:
        """Use up the next sequences; their bytes still count as sent."""
        self.sent_bytes += content_bytes
        super().discard_next(messages, content_bytes)

    @property
    def total_sent_bytes(self) -> int:
        """Content bytes of all messages that were sent to the topic, even while it had no subscription."""
        return self.sent_bytes

    def put_times(self, first: int, times: Sequence[MessageTimes]) -> None:
        """Set the times of messages that were just added. Without subscriptions they are gone already."""
        if not self.is_unread:
            super().put_times(first, times)

    def skip_to(self, sequence: int) -> None:
        """Skip to a sequence. Messages before it are pending for no subscription."""
        if sequence <= self.next_sequence:
            return
        self._open_before(sequence)
        for subscriber in self.subscribers.values():
            subscriber.catch_up()
        super().skip_to(sequence)
        for subscriber in self.subscribers.values():
            subscriber.next_sequence = sequence

    def remove(self, first: int, last: int, ack_data_log: int) -> int:
        """Remove first..last for all subscriptions, by a record in ack_data_log. Return how many of them were pending.

        Sequences that were not sent yet are skipped for good. O(blocks * subscriptions).
        """
        known = min(last, self.next_sequence - 1)
        removed = 0
        if first <= known:
            self._open_before(known + 1)
            for subscriber in self.subscribers.values():
                subscriber.remove(first, known, NO_RECORD)
            removed = super().remove(first, known, ack_data_log)
        self.skip_to(last + 1)
        return removed

    def remove_one(self, sequence: int, ack_data_log: int) -> int:
        """Remove one sequence as `remove` does, for all subscriptions."""
        return self.remove(sequence, sequence, ack_data_log)

    def readers(self) -> Iterable[PendingLane]:
        """Return this lane and the lane of each open subscription."""
        return (self, *self.subscribers.values())

    def note_copy(self, data_log: int, offset: int, first: int, lengths: list[int]) -> None:
        """Note that sequences are in a copy there.

        The journal has a record of needs with it, so that replay learns which subscriptions need them.
        """
        super().note_copy(data_log, offset, first, lengths)
        self.touched.add(first >> BLOCK_SHIFT, first >> BLOCK_SHIFT)

    def needs(self, first: int, last: int) -> list[NeededRun]:
        """Return which of first..last, sequences of one block, each subscription needs, by number. O(subscriptions)."""
        needed: list[NeededRun] = []
        base = first >> BLOCK_SHIFT << BLOCK_SHIFT
        cover = ones(first - base, last - base)
        for number, subscriber in self.subscribers.items():
            mask = subscriber.mask(first >> BLOCK_SHIFT) & cover
            needed += [NeededRun(number, base + low, high - low + 1) for low, high in runs_of_ones(mask)]
        end = min(last + 1, self.next_sequence)
        for number, begin in zip(self.cursors.numbers, self.cursors.next_sequences, strict=True):
            if begin < end:
                begin = max(begin, first)
                needed.append(NeededRun(number, begin, end - begin))
        return needed

    def masks(self, block_number: int) -> Iterator[tuple[int, int]]:
        """Yield each subscription with a mask of the messages of a block that it needs. O(subscriptions)."""
        yield from ((subscription, lane.mask(block_number)) for subscription, lane in self.subscribers.items())
        cursors = self.cursors
        yield from (
            (subscription, self._mask_from(begin, block_number))
            for subscription, begin in zip(cursors.numbers, cursors.next_sequences, strict=True)
        )

    def _mask_from(self, begin: int, block_number: int) -> int:
        """Return a mask of the messages of a block from the sequence `begin` on."""
        base = block_number << BLOCK_SHIFT
        low, high = max(begin - base, 0), min(self.next_sequence - 1 - base, BLOCK_MASK)
        return ones(low, high) if low <= high else 0

    def restate(self, first: int, last: int, needs: Iterable[NeededRun]) -> None:
        """Set which of first..last, sequences of one block, each subscription needs. A subscription that `needs` does
        not name needs none of them.
        """
        self._open_before(self.next_sequence + 1)
        number = first >> BLOCK_SHIFT
        block = self.block(number)
        known = ~block.gone & ((1 << len(block.lengths)) - 1) if block is not None else 0
        base = number << BLOCK_SHIFT
        masks: dict[int, int] = {}
        for need in needs:
            low = need.first - base
            masks[need.subscription] = masks.get(need.subscription, 0) | ones(low, low + need.messages - 1)
        for subscription, subscriber in self.subscribers.items():
            subscriber.restate(number, ones(first - base, last - base), masks.get(subscription, 0) & known)
        self.touched.add(number, number)

    def end_subscriptions(self) -> None:
        """End all subscriptions, because the topic is deleted with its lanes. O(subscriptions)."""
        for subscriber in self.subscribers.values():
            subscriber.leave(self.nowhere)
        self.subscribers = {}
        self.cursors.clear()
        self.is_unread = True

    def note_backlogs(self) -> NotedBacklogs:
        """Note what each durable subscription has not acknowledged. The noted sets do not change until `forget_noted`.

        O(subscriptions), with little work for each.
        """
        self.snapshots += 1
        self.open_snapshot = self.snapshots
        durable = [lane for lane in self.subscribers.values() if lane.is_durable]
        return NotedBacklogs(durable, [lane.pending for lane in durable], self.cursors, self)

    def forget_noted(self) -> None:
        """Allow subscriptions to change the noted sets. The notes are not read again."""
        self.open_snapshot = 0

    @property
    def subscribers_charge(self) -> int:
        """The charge of the lanes, sets and cursors that subscriptions have here. O(subscriptions)."""
        sets_bytes = sum(lane.pending.charge_bytes for lane in self.subscribers.values() if lane.has_pending_set)
        return SUBSCRIPTION_LANE_BYTES * len(self.subscribers) + sets_bytes + self.cursors.charge_bytes

    def touch_all(self) -> None:
        """Let `remove_unneeded` check every block, because it is not known which messages are needed."""
        for first, last in self.block_numbers:
            self.touched.add(first, last)

    def remove_unneeded(self) -> None:
        """Remove the messages of the next touched block that no subscription needs.

        O(subscriptions). It reads at most one block.
        """
        number, _ = self.touched.pop_first(1)
        lowest = self.cursors.lowest
        needed = 0 if lowest is None else self._mask_from(lowest, number)
        for subscriber in self.subscribers.values():
            needed |= subscriber.mask(number)
            if needed == FULL_BLOCK:
                return
        block = self.block(number)
        if block is None:
            return
        surplus = ~needed & ~block.gone & ((1 << len(block.lengths)) - 1)
        base = number << BLOCK_SHIFT
        for low, high in runs_of_ones(surplus):
            super().remove(base + low, base + high, NO_RECORD)

    def _check(self) -> None:
        super()._check()
        for subscriber in self.subscribers.values():
            subscriber._check()
        self.cursors._check()
        for number, cursor in self.cursors:
            assert number not in self.subscribers and cursor.next_sequence <= self.next_sequence
        assert self.is_unread == (not self.has_subscriptions)


class SubscriptionLane(JournaledLane):
    """The lane of a subscription: the messages of a TopicLane that this subscription has not acknowledged.

    `number` and `owner_number` belong to the subscription; sequences and places belong to the topic. The counters
    are as of the last `catch_up`. The state lock guards it.
    """

    __slots__ = (
        "topic",
        "is_durable",
        "pending",
        "first_sequence",
        "first_sent_bytes",
        "has_estimate",
        "_sent_bytes",
        "_own_since",
        "_sets",
    )

    def __init__(
        self, topic: TopicLane, subscription_number: int, *, is_durable: bool, cursor: Cursor | None = None
    ) -> None:
        """Make the lane. The topic keeps no message for it until `enter`.

        cursor: the subscription needs all messages from there on; None: it needs messages that are sent from now on.
        """
        super().__init__(subscription_number << LANE_SHIFT | topic.priority, subscription_number, topic.priority)
        self.topic = topic
        self.is_durable = is_durable
        # Whether the pending bytes are an estimate, as `seek` may make it.
        self.has_estimate = False
        self.earliest = topic.earliest
        # A note of backlogs may refer to the set. To change the set, use `_own`.
        self.pending = NOTHING_PENDING
        # The lane's `snapshots` when this set was made. No earlier note of backlogs refers to the set.
        self._own_since = topic.snapshots
        self.next_sequence = self.first_sequence = topic.next_sequence
        self._sent_bytes = self.first_sent_bytes = topic.sent_bytes
        if cursor is not None:
            self.next_sequence, self._sent_bytes, self.first_sequence, self.first_sent_bytes = cursor
        self._sets = UNCOUNTED_SETS

    def enter(self) -> None:
        """Begin to need messages, so that the topic's lane keeps them."""
        topic = self.topic
        self._sets = topic.backlogs
        topic.subscribers[self.owner_number] = self
        topic.is_unread = False
        self._sets.add_lane()

    @property
    def cursor(self) -> Cursor | None:
        """The cursor of the subscription, if it needs all messages from some sequence on, and no others.

        None: a cursor does not describe what it needs.
        """
        if not self.is_durable or self.has_estimate or self.delayed is not None:
            return None
        first, size = self.next_sequence, self._sent_bytes
        number = self.pending.next_block(0)
        if number is not None:
            mask = self.pending.mask(number)
            first = (number << BLOCK_SHIFT) + (mask & -mask).bit_length() - 1
            size -= self.pending_bytes
        if self.pending.count != self.next_sequence - first:
            return None
        return Cursor(first, size, self.first_sequence, self.first_sent_bytes)

    def catch_up(self) -> None:
        """Add the messages that were sent since the last call. O(their blocks)."""
        topic = self.topic
        if topic.next_sequence > self.next_sequence:
            if self.pending is NOTHING_PENDING:
                self._replace(self._sets.of_run(self.next_sequence, topic.next_sequence - 1))
            else:
                self._own().add(self.next_sequence, topic.next_sequence - 1)
            self.next_sequence = topic.next_sequence
            self.pending_messages = self.pending.count
            self.added_bytes += topic.sent_bytes - self._sent_bytes
            self._sent_bytes = topic.sent_bytes

    def pending_from(self) -> int:
        """A sequence before which no message is pending. O(blocks that were sent since the last time)."""
        self.catch_up()
        blocks = self.pending.blocks
        return blocks.first << BLOCK_SHIFT if blocks else self.next_sequence

    @property
    def has_pending_set(self) -> bool:
        """Whether a message was ever pending, so that new messages must be added to the set."""
        return self.pending is not NOTHING_PENDING

    def _own(self) -> SequenceBitmap:
        """Return the set of pending messages, to change it: a copy, if a note of backlogs still refers to the set."""
        if self.pending is NOTHING_PENDING or self._own_since < self.topic.open_snapshot:
            self._replace(self._sets.copy(self.pending))
        return self.pending

    def _replace(self, pending: SequenceBitmap) -> None:
        """Replace the set of pending messages."""
        topic = self.topic
        self._sets.retire(self.pending, is_noted=self._own_since < topic.open_snapshot)
        self.pending = pending
        self._own_since = topic.snapshots

    def seek(self, first: int) -> None:
        """Make all existing messages from `first` on pending, acknowledged or not, and none before.

        To a durable subscription, a message exists if some durable subscription needs it: after a crash no other
        message is known. To another subscription, a message exists if any subscription needs it.

        The pending bytes are counted by reading up to COUNTED_BLOCKS blocks. Beyond that they are estimated by the mean
        of the lane. O(runs and masks of all subscriptions).
        """
        self.catch_up()
        topic, reached = self.topic, self._sets.make()
        if (lowest := topic.cursors.lowest) is not None and lowest < topic.next_sequence:
            reached.unite(SequenceBitmap.of_run(lowest, topic.next_sequence - 1), first)
        for subscriber in topic.subscribers.values():
            if subscriber.is_durable or not self.is_durable:
                subscriber.catch_up()
                reached.unite(subscriber.pending, first)
        for low, high in self.pending.blocks:
            if low <= first >> BLOCK_SHIFT:
                topic.touched.add(low, min(high, first >> BLOCK_SHIFT))
        if not reached.count:
            reached.close()
        self._replace(reached if reached.count else NOTHING_PENDING)
        self.pending_messages = reached.count
        self.first_sequence = min(self.first_sequence, first)
        self.added_bytes = self.removed_bytes + self._bytes_of(reached)

    def _bytes_of(self, reached: SequenceBitmap) -> int:
        """Return the bytes of the pending messages, or an estimate if more than a few blocks would have to be read."""
        topic = self.topic
        self.has_estimate = False
        if reached.count == topic.pending_messages:
            return topic.pending_bytes
        if reached.blocks.count > COUNTED_BLOCKS:
            self.has_estimate = True
            return topic.pending_bytes * reached.count // topic.pending_messages
        size = 0
        for first, last in reached.blocks:
            for number in range(first, last + 1):
                lengths = self._place(number).lengths
                size += sum(sum(lengths[low : high + 1]) for low, high in runs_of_ones(reached.mask(number)))
        return size

    def end_subscription(self) -> None:
        """End with the subscription: no message is pending any more."""
        self.catch_up()
        for first, last in self.pending.blocks:
            self.topic.touched.add(first, last)
        del self.topic.subscribers[self.owner_number]
        self.topic.is_unread = not self.topic.has_subscriptions
        self.leave(self.topic.nowhere)

    def leave(self, nowhere: TopicLane) -> None:
        """Forget the topic's lane and refer to a lane to which nothing is sent. O(1)."""
        self._replace(NOTHING_PENDING)
        self._sets.release_lane()
        self._sets = UNCOUNTED_SETS
        self.pending_messages, self.removed_bytes = 0, self.added_bytes
        self.topic, self.earliest = nowhere, nowhere.earliest

    def remove(self, first: int, last: int, ack_data_log: int) -> int:
        """Acknowledge first..last for this subscription, by a record in ack_data_log or NO_RECORD.

        Return how many of them were pending. O(blocks).
        """
        self.catch_up()
        removed = 0
        number = self.pending.next_block(first >> BLOCK_SHIFT)
        while number is not None and number <= last >> BLOCK_SHIFT:
            base = number << BLOCK_SHIFT
            mask = self.pending.mask(number) & ones(max(first - base, 0), min(last - base, BLOCK_MASK))
            if mask:
                removed += self._remove_mask(self._place(number), mask, ack_data_log)
            number = self.pending.next_block(number + 1)
        return removed

    def remove_one(self, sequence: int, ack_data_log: int) -> int:
        return self.remove(sequence, sequence, ack_data_log)

    def _remove_mask(self, block: Block, mask: int, ack_data_log: int) -> int:
        low, high = (mask & -mask).bit_length() - 1, mask.bit_length() - 1
        for data_log, start, end in block.data_log_runs(low, high) if ack_data_log else ():
            if data_log != ack_data_log and mask & ones(start, end):
                self.topic.data_log_uses[ack_data_log].acked_data_logs.add(data_log)
        lengths = block.lengths
        size = sum(sum(lengths[first : last + 1]) for first, last in runs_of_ones(mask))
        self._own().remove(block.number, mask)
        self.pending_messages = self.pending.count
        self.removed_bytes += min(size, self.pending_bytes) if self.pending_messages else self.pending_bytes
        self.topic.touched.add(block.number, block.number)
        return mask.bit_count()

    def restate(self, block_number: int, cover: int, needed: int) -> None:
        """Make the messages of a block that are in the mask `needed` pending, and all others of the mask `cover` not.

        Requires: `needed` is a part of `cover`, and has only messages that the topic's lane has.
        """
        self.catch_up()
        before = self.pending.mask(block_number) & cover
        if surplus := before & ~needed:
            self._remove_mask(self._place(block_number), surplus, NO_RECORD)
        base, added = block_number << BLOCK_SHIFT, needed & ~before
        for first, last in runs_of_ones(added):
            self._own().add(base + first, base + last)
            self.added_bytes += sum(self.topic.lengths(base + first, base + last))
        self.pending_messages = self.pending.count

    def _place(self, block_number: int) -> Block:
        block = self.topic.block(block_number)
        assert block is not None, "what a subscription needs stays in its topic's lane"
        return block

    def is_pending(self, sequence: int) -> bool:
        self.catch_up()
        return sequence in self.pending

    def pending_run(self, sequence: int, most: int) -> tuple[int, int] | None:
        """Return the first run of pending sequences at or behind `sequence`, cut to `most` and to its block.

        None: there is none.
        """
        self.catch_up()
        number = self.pending.next_block(sequence >> BLOCK_SHIFT)
        while number is not None:
            base = number << BLOCK_SHIFT
            low = max(sequence - base, 0)
            run = next(runs_of_ones(self.pending.mask(number) >> low << low), None)
            if run is not None:
                return base + run[0], base + min(run[1], run[0] + most - 1)
            number = self.pending.next_block(number + 1)
        return None

    def times_of(self, sequence: int) -> MessageTimes:
        return self.topic.times_of(sequence)

    def not_due_bits(self, first: int, last: int) -> int:
        return self.topic.not_due_bits(first, last)

    def lengths(self, first: int, last: int) -> array[int]:
        return self.topic.lengths(first, last)

    def extents(self, first: int, last: int) -> Iterator[Extent | SingleRecords]:
        return self.topic.extents(first, last)

    @property
    def total_sent_bytes(self) -> int:
        """Content bytes of messages sent to the topic; those of this subscription begin at `first_sent_bytes`."""
        return self.topic.sent_bytes

    @property
    def depth(self) -> tuple[int, int]:
        """Number of pending messages and their bytes, as `catch_up` would make them. It does not catch up itself."""
        topic = self.topic
        return (
            self.pending_messages + max(topic.next_sequence - self.next_sequence, 0),
            self.pending_bytes + max(topic.sent_bytes - self._sent_bytes, 0),
        )

    def mask(self, block_number: int) -> int:
        """Return a mask of the pending messages of a block, including messages that were sent since `catch_up`."""
        mask, base = self.pending.mask(block_number), block_number << BLOCK_SHIFT
        low, high = max(self.next_sequence - base, 0), min(self.topic.next_sequence - 1 - base, BLOCK_MASK)
        return mask | ones(low, high) if low <= high else mask

    def restore(self, backlog: SubscriptionBacklog) -> None:
        """Take over what a checkpoint stored. Requires: the topic's lane is as it was then."""
        self.first_sequence = self.first_sent_bytes = 0
        self._replace(NOTHING_PENDING)
        if backlog.blocks:
            self._own().restore(backlog)
        self.pending_messages = self.pending.count
        self.added_bytes, self.removed_bytes = backlog.pending_bytes, 0

    def _check(self) -> None:
        self.catch_up()
        self.pending._check()
        assert self.pending_messages == self.pending.count
        size = 0
        for first, last in self.pending.blocks:
            for number in range(first, last + 1):
                mask, block = self.pending.mask(number), self._place(number)
                assert not mask & block.gone and not mask >> len(block.lengths)
                size += sum(length for at, length in enumerate(block.lengths) if mask >> at & 1)
        assert size == self.pending_bytes or self.has_estimate
