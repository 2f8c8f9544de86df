"""MessagePlaces: where the pending messages of a queue or subscription are.

Each pending message is in one place: in flight, delayed by a nack, not due yet, expired, given up after its last
attempt, decided about by a transaction, skipped because it can't be read, not synced yet, or free.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain

from ...store.format.times import DUE, NEVER
from ...store.numbering import BEHIND_ALL, BLOCK_MESSAGES
from ...store.structures.bits import runs_of_ones
from ..core.model.delivery import AbstractConsumer, Delivery, content_bytes, is_lazy, message_of
from ..core.model.destination import CoreDestination, LaneState
from ..engine.explained_store import ExplainedStore
from ..topics.state.subscription_state import SubscriptionLaneState


@dataclass(slots=True)
class Tally:
    """How many messages are in one place, their bytes, and when the first of them was sent."""

    messages: int = 0
    bytes: int = 0
    oldest_ms: int | None = None

    @classmethod
    def total(cls, tallies: Sequence[Tally]) -> Tally:
        """Return the sum of these tallies."""
        return cls(
            sum(tally.messages for tally in tallies),
            sum(tally.bytes for tally in tallies),
            min((tally.oldest_ms for tally in tallies if tally.oldest_ms is not None), default=None),
        )

    def add(self, delivery: Delivery) -> None:
        """Count a message that is handed out."""
        self.messages += 1
        if is_lazy(delivery):
            self.bytes += delivery.lane.pending_lane.lengths(delivery.sequence, delivery.sequence)[0]
        else:
            self.bytes += content_bytes(delivery)
        sent_ms = message_of(delivery)[3]
        if sent_ms and (self.oldest_ms is None or sent_ms < self.oldest_ms):
            self.oldest_ms = sent_ms


@dataclass(slots=True)
class MessagePlaces:
    """The places of the pending messages of a queue or subscription."""

    depth: int
    bytes: int
    in_flight: dict[AbstractConsumer, Tally] = field(default_factory=dict)
    """The messages in flight, by who holds them."""
    delayed: Tally = field(default_factory=Tally)
    delayed_ms: int = NEVER
    """When the first of the delayed messages may go, on the store's clock."""
    dead_letters: Tally = field(default_factory=Tally)
    """The messages that are about to leave for the dead-letter queue."""
    transactions: dict[str, Tally] = field(default_factory=dict)
    """The messages that a transaction decides about, by a text that names the transaction and its state."""
    due_later: Tally = field(default_factory=Tally)
    """The messages that were sent with a delay and are not due."""
    due_ms: int = NEVER
    """When the first of the messages that are due later may go."""
    expired: Tally = field(default_factory=Tally)
    unreadable: int = 0
    unsynced: Tally = field(default_factory=Tally)

    @property
    def free(self) -> int:
        """The number of messages in no other place.

        Unreadable messages count, because a list may still try to read them.
        """
        taken = sum(tally.messages for tally in (*self.in_flight.values(), *self.transactions.values()))
        timed = self.delayed.messages + self.due_later.messages + self.expired.messages
        return self.depth - taken - timed - self.dead_letters.messages - self.unsynced.messages


def find_places(store: ExplainedStore, destination: CoreDestination) -> MessagePlaces:
    """Return where the pending messages of a queue or subscription are. Requires: the lock.

    O(in flight + parked + acknowledged in transactions + blocks of timed lanes).
    """
    places = MessagePlaces(destination.depth, destination.depth_bytes)
    lanes = list(destination.all_lanes())
    for lane in lanes:
        for delivery in lane.deliveries.values():
            places.in_flight.setdefault(delivery.consumer, Tally()).add(delivery)
        _count(places.unsynced, lane, [(lane.published_end, BEHIND_ALL)])
        _count(places.dead_letters, lane, lane.dead_letters)
        places.unreadable += lane.unreadable
        if lane.is_timed:
            timed = lane.topic_lane_state if isinstance(lane, SubscriptionLaneState) else lane
            _count_due_later(lane, timed, places)
            _count_expired(store, lane, timed, places)
        _count(places.delayed, lane, store.times.delayed.runs(lane))
        places.delayed_ms = min(places.delayed_ms, store.times.delayed.next_due_ms(lane))
    for transaction in store.transactions.undecided.values():
        tally = Tally()
        for lane in lanes:
            _count(tally, lane, transaction.acknowledged_in(lane.pending_lane.number))
        if tally.messages:
            state = "prepared" if transaction.is_prepared else "open"
            places.transactions[f"{transaction.name} ({state})"] = tally
    return places


def _count_due_later(lane: LaneState, timed: LaneState, places: MessagePlaces) -> None:
    """Add the messages of a lane that are not due yet. timed: the lane that has their times. O(blocks)."""
    earliest_ms = timed.pending_lane.earliest[DUE]
    if earliest_ms >= NEVER:
        return
    places.due_ms = min(places.due_ms, earliest_ms)
    at, end = 0, lane.published_end
    while (found := lane.pending_lane.pending_run(at, BLOCK_MESSAGES)) is not None and found[0] < end:
        _count(places.due_later, lane, runs_of_ones(lane.pending_lane.not_due_bits(*found), found[0]))
        at = found[1] + 1


def _count_expired(store: ExplainedStore, lane: LaneState, timed: LaneState, places: MessagePlaces) -> None:
    """Add the expired messages of a lane that are not in flight. timed: as in _count_due_later. O(blocks)."""
    now_ms = store.times.now_ms()
    for number in timed.backing_store.due_times.expired_blocks(timed.pending_lane, now_ms):
        runs = list(timed.backing_store.due_times.expired(timed.pending_lane, number, now_ms))
        free = store.times.expiry_sweeper.free_messages([lane], runs)
        for first, last in free.copy():  # a run that vanishes would hide the next one
            for low, high in runs_of_ones(lane.pending_lane.not_due_bits(first, last), first):
                free.remove(low, high)
        for first, last in chain(lane.parked, store.times.delayed.runs(lane)):
            free.remove(first, last)
        _count(places.expired, lane, free)


def _count(tally: Tally, lane: LaneState, runs: Iterable[tuple[int, int]]) -> None:
    """Count the pending messages in these runs. O(blocks of the runs)."""
    for at, last in runs:
        while (found := lane.pending_lane.pending_run(at, BLOCK_MESSAGES)) is not None and found[0] <= last:
            end = min(found[1], last)
            tally.messages += end - found[0] + 1
            tally.bytes += sum(lane.pending_lane.lengths(found[0], end))
            at = end + 1
