"""Dead letters: messages that had their last attempt leave their destination for its dead-letter queue.

Each leaves one and is in the other with the same record, as a moved message
is, so whatever crash comes between, exactly one of the two has it. It keeps
id, headers, body, priority and timestamp, and is given headers that say where
it comes from and why. This is done in the background; until then nobody is
handed it. Where the disk takes no more, it waits and is tried again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Final

from ...store.errors import Closed, ForebayError, SettingsError, StoreFailed
from ...store.format.properties import decode_properties, encode_properties, group_of
from ...store.format.record import RecordDamaged
from ...store.index.lane import Lane
from ...store.index.pending_lane import JournaledLane
from ...store.index.topic_lane import SubscriptionLane
from ...store.journal.reading import StoredMessage
from ...store.message import HeaderValue
from ...store.numbering import BLOCK_SHIFT, LANE_SHIFT
from ...store.sequence_set import SequenceSet
from ..config.policy import is_dead_letter_queue, policy_for
from ..config.redelivery import RedeliveryRule, dead_letter_name
from ..distribution.grouped import note_groups
from ..topics.state import SubscriptionState, remove_unrecorded
from .move import commit_move, make_index_room

if TYPE_CHECKING:
    from ...store.journal.journal import Journal
    from ..core.queue_area import LaneState, QueueArea
    from ..engine.engine import Engine

logger = logging.getLogger("forebay.dispatch")

FROM: Final = "dead_letter_from"
"""Name of the destination that the message was sent to."""
SUBSCRIPTION: Final = "dead_letter_subscription"
"""Name of the durable subscription that could not digest it."""
REASON: Final = "dead_letter_reason"
ATTEMPTS: Final = "dead_letter_attempts"
"""How often it was delivered there."""
TIME: Final = "dead_letter_time"
"""When it was given up, in ms since 1970 (UTC)."""
MAX_ATTEMPTS: Final = "max_attempts"
"""The reason: so often it was not acknowledged."""
EXPIRED: Final = "expired"
"""The reason: its time was over before anybody acknowledged it."""
FULL: Final = "full"
"""The reason: its destination had no room for it. See producer/diverting.py."""

BATCH_MESSAGES: Final = 256
STEPS: Final = 16
"""At one go, so that what else the housekeeper does is not late."""
RETRY_SECONDS: Final = 1.0
TIDY_RUNS: Final = 32
"""Each may read a block of the index, under the lock."""


class DeadLetters:
    """The state lock guards it. `step` takes it by itself."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._waiting: dict[LaneState, None] = {}
        """Lanes with dead letters that are about to leave, whoever waits longest first."""
        self._untidy: dict[LaneState, int] = {}
        """After a kill, lanes of which something came back, and up to where was looked what is left of that."""
        self._retry_at = 0.0
        self._batch_messages = BATCH_MESSAGES
        """Fewer where there is little space: what is left takes a small batch."""

    def queue_for_expired(self, queue: QueueArea) -> str | None:
        """Where what expires in that queue goes; None: it is removed, also from a dead-letter queue. O(policies)."""
        policy = policy_for(self._engine.settings.policies, queue.name)
        template = policy.dead_letter_queue
        if not policy.expired_to_dead_letter or template is None:
            return None
        if is_dead_letter_queue(self._engine.settings.policies, queue.name):
            return None
        return dead_letter_name(template, queue.name)

    def rule(self, queue: QueueArea) -> RedeliveryRule:
        """Of a queue, or of the topic of a subscription. O(policies)."""
        policies = self._engine.settings.policies
        policy = policy_for(policies, queue.name)
        template = policy.dead_letter_queue
        max_attempts = policy.max_attempts
        if template is not None and max_attempts is not None:
            if is_dead_letter_queue(policies, queue.name):
                max_attempts = None
        target = dead_letter_name(template, queue.name) if template is not None else None
        return RedeliveryRule(max_attempts, policy.redelivery_delay_seconds, policy.redelivery_backoff, target)

    def dead_letter(self, area: LaneState, first: int, last: int) -> None:
        """These had their last attempt: nobody gets them any more. REQUIRES: the lock."""
        area.dead.add(first, last)
        if area.queue.dealer is not None:
            area.queue.dealer.settled(area, first, last - first + 1)
        self._waiting[area] = None
        self._engine.wake_housekeeper()

    # ------------------------------------------------------------------ after an open

    def recover(self, was_killed: bool) -> None:
        """Take up what the process before this one left. REQUIRES: the lock.

        was_killed: what it had handed out for the first time is in no record, so all that is pending may have been.
        Who is handed it now is written down at once. O(lanes + runs of returned messages), no block is read.
        """
        counts = self._engine.store.index.attempts
        for lane in self._lanes() if was_killed else ():
            first = _first_block(lane) << BLOCK_SHIFT
            if first < lane.next_sequence:
                counts.suspect(lane.number, first, lane.next_sequence - 1)
        for area in self._areas():
            known = area.attempts = counts.find(area.lane.number)
            if was_killed:
                self._untidy[area] = 0
            rule = self.rule(area.queue)
            for counted in known or ():
                if rule.is_last(counted.attempts):
                    area.dead.add(counted.first, counted.last)
            for run in self._engine.transactions.acknowledged_in(area.lane.number):
                area.dead.remove(*run)
            if area.dead:
                self._waiting[area] = None

    def _lanes(self) -> Iterator[JournaledLane]:
        engine = self._engine
        for queue in engine.queues.values():
            yield from (area.journaled_lane for area in queue.areas if area is not None)
        for subscriber in engine.store.subscriptions.by_number.values():
            yield from filter(None, subscriber.lanes)

    def _areas(self) -> Iterator[LaneState]:
        """Those of which something came back. Of a subscription that is offline, and never failed, nothing is made."""
        engine = self._engine
        counts = engine.store.index.attempts
        for queue in engine.queues.values():
            yield from (area for area in queue.lane_areas() if counts.find(area.lane.number) is not None)
        for topic in engine.topics.areas.values():
            for name, subscriber in topic.durable.items():
                for lane in filter(None, subscriber.lanes):
                    topic_area = topic.areas[lane.priority]
                    known = counts.find(lane.number) or ()
                    if topic_area is not None and (name in topic.kept or any(counted.attempts for counted in known)):
                        yield topic.kept.setdefault(name, topic.durable_area(name)).lane_area(topic_area)

    # ------------------------------------------------------------------ one step

    def step(self) -> bool:
        """Let up to 256 of one lane leave; False: there are none, or they must wait. REQUIRES: no lock."""
        engine = self._engine
        if self._untidy:
            with engine.lock:
                self._tidy()
            return True
        if not self._waiting or engine.monotonic() < self._retry_at:
            return False
        with engine.lock:
            area = next(iter(self._waiting), None)
            if area is None:
                return False
            del self._waiting[area]
            if area.queue.is_deleted or not area.dead:
                area.dead.clear()
                return True
            self._waiting[area] = None  # the others first, next time
            first = area.dead.first
            last = min(next(iter(area.dead))[1], first + self._batch_messages - 1)
            rule = self.rule(area.queue)
        try:
            if rule.dead_letter_queue is None:
                self._discard(area, first, last)
            else:
                for messages in engine.browsers.loads(area, first, last + 1):
                    self.move(area, rule.dead_letter_queue, messages, MAX_ATTEMPTS)
        except (Closed, StoreFailed):
            raise
        except ForebayError as error:
            if self._batch_messages > 1:
                self._batch_messages = max(self._batch_messages // 4, 1)
                return True
            logger.warning("dead letters of %r wait: %s", area.queue.name, error)
            self._retry_at = engine.monotonic() + RETRY_SECONDS
            return False
        with engine.lock:
            self._leave(area, first, last)
        self._batch_messages = min(2 * self._batch_messages, BATCH_MESSAGES)
        return True

    def steps(self) -> int:
        """A few steps; how many were done."""
        done = 0
        while done < STEPS and self.step():
            done += 1
        if done == STEPS:
            self._engine.wake_housekeeper()
        return done

    def _tidy(self) -> None:
        """Forget the counts of what was acknowledged before the kill, a few runs at a time. REQUIRES: the lock."""
        if not self._untidy:
            return
        area, begin = next(iter(self._untidy.items()))
        runs = list(islice((run for run in area.attempts or () if run.last >= begin), TIDY_RUNS))
        if not runs or area.queue.is_deleted:
            del self._untidy[area]
            return
        area.settled(runs[0].first, runs[-1].last)
        self._untidy[area] = runs[-1].last + 1

    def _leave(self, area: LaneState, first: int, last: int) -> None:
        """They have left, but for those that can't be read. REQUIRES: the lock."""
        area.dead.remove(first, last)
        for sequence in self._free(area, first, last):
            area.unreadable += 1
            area.give_up(sequence)

    def _free(self, area: LaneState, first: int, last: int) -> list[int]:
        """What of them is pending and nobody else's to decide about."""
        decided = self._engine.transactions.acknowledged_in(area.lane.number)
        return [
            sequence
            for sequence in range(first, last + 1)
            if area.lane.is_pending(sequence) and sequence not in area.in_flight and sequence not in decided
        ]

    def _discard(self, area: LaneState, first: int, last: int) -> None:
        engine = self._engine
        gone = SequenceSet()
        with engine.lock:
            engine.raise_closed()
            try:
                for sequence in self._free(area, first, last):
                    gone.add(sequence, sequence)
                for run in gone:
                    self._remove(area, *run)
            finally:
                area.queue.dead_lettered += gone.count
                self._gone(area, gone)
            position = engine.store.journal.end
        engine.after_write(position)

    def _remove(self, area: LaneState, first: int, last: int) -> None:
        if self._engine.store.index.attempts.is_recorded(area.lane.number):
            area.store.remove(area.lane, first, last)
        else:
            remove_unrecorded(area, first, last)

    def _gone(self, area: LaneState, gone: SequenceSet) -> None:
        self._engine.targets.forget(area, gone)
        if area.queue.admission is not None:
            area.queue.admission.room_came()

    # ------------------------------------------------------------------ moving

    def move(self, area: LaneState, to: str, messages: list[StoredMessage], reason: str) -> int:
        """Let those of up to a block's messages of a lane that are free go to a dead-letter queue; how many went.

        StoreFull: none, or of non-persistent ones some. REQUIRES: no lock.
        """
        engine, moved = self._engine, 0
        store = engine.store
        for begin in range(0, len(messages), self._batch_messages):
            batch = messages[begin : begin + self._batch_messages]
            make_index_room(store)
            with engine.lock:
                engine.raise_closed()
                free = set(self._free(area, batch[0][0], batch[-1][0]))
                stamped = [self._stamped(area, message, reason) for message in batch if message[0] in free]
                if stamped:
                    self._move(area, to, stamped)
                    area.queue.dead_lettered += len(stamped)
                moved += len(stamped)
                position = store.journal.end
            engine.after_write(position)
        return moved

    def _move(self, area: LaneState, to: str, messages: list[StoredMessage]) -> None:
        """Also where sends are refused. REQUIRES: the lock."""
        engine = self._engine
        with accepting_dead_letters(engine.store.journal):
            queue = engine.queue_locked(to)
            if area.queue.has_groups:
                note_groups(engine, queue)
            if area.is_persistent:
                target = engine.lane_area(queue.number << LANE_SHIFT | area.lane.priority)
                commit_move(engine, area, target, messages)
            else:
                self._move_volatile(area, queue, messages)

    def _move_volatile(self, area: LaneState, queue: QueueArea, messages: list[StoredMessage]) -> None:
        """One by one: no crash leaves any of them."""
        target = self._engine.non_persistent_lane(queue, area.lane.priority)
        gone = SequenceSet()
        try:
            for sequence, properties, body, timestamp in messages:
                target.add(timestamp, properties, body or b"")
                area.store.remove_one(area.lane, sequence)
                gone.add(sequence, sequence)
        finally:
            if gone:
                self._gone(area, gone)

    def _stamped(self, area: LaneState, message: StoredMessage, reason: str) -> StoredMessage:
        """With its id, and with headers that say why it is there."""
        sequence, properties, body, timestamp = message
        known = area.attempts
        added: dict[str, HeaderValue] = {
            FROM: area.queue.name,
            REASON: reason,
            ATTEMPTS: known.get(sequence) if known is not None else 0,
            TIME: self._engine.clock_ms(),
        }
        if isinstance(area.queue, SubscriptionState) and area.queue.is_durable:
            added[SUBSCRIPTION] = area.queue.subscriber.facts.name
        try:
            headers, own_id = decode_properties(properties) if properties else ({}, None)
            message_id = own_id if own_id is not None else f"{area.id_prefix}{sequence}"
            return sequence, encode_properties(headers | added, message_id, group_of(properties)), body, timestamp
        except (RecordDamaged, SettingsError):
            return message  # what makes no sense, or has no room for more, stays as it is


@contextmanager
def accepting_dead_letters(journal: Journal) -> Iterator[None]:
    """What is written meanwhile is a dead letter: it has a right to the reserve. REQUIRES: the lock, all the time."""
    journal.accepts_dead_letters = True
    try:
        with journal.uninterrupted():
            yield
    finally:
        journal.accepts_dead_letters = False


def _first_block(lane: JournaledLane) -> int:
    """Of those of which something is pending; behind all where there is none."""
    if isinstance(lane, SubscriptionLane):
        lane.catch_up()
        blocks = lane.pending.blocks
    else:
        assert isinstance(lane, Lane)
        blocks = lane.blocks
    return blocks.first if blocks else lane.next_sequence
