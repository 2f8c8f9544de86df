"""Eviction: what a slow subscriber of a topic loses, so that it keeps neither memory nor disk without bound.

It is for subscriptions without a name alone: one with a name was made to
miss nothing. What counts is what waits; what is in the consumer's hands
stays. Nothing of it is in the journal, as nothing of such a subscription is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from ..store.reading import StoredMessage
from ..store.runs import Runs
from ..store.topic_lane import NO_RECORD
from ..store.volatile_lane import NOWHERE
from .destination_policy import Eviction
from .latest_keys import LatestKeys, Place, key_of
from .queue_area import LaneArea
from .topic_area import SubscriptionArea, SubscriptionLaneArea, TopicArea, TopicLaneArea, Verdicts
from .volatile_area import VolatileArea

if TYPE_CHECKING:
    from .engine import Engine

SLACK: Final = 8
"""Old messages are evicted together: when one part in so many waits above the limit."""


class Evictor:
    """The rule of one topic. The state lock guards it."""

    def __init__(self, engine: Engine, max_messages: int, eviction: Eviction, key_name: str) -> None:
        """key_name: of the header that is a message's key, for "latest_per_key"."""
        self._engine = engine
        self._max_messages = max_messages
        self._eviction = eviction
        self._key_name = key_name

    def admitted(self, area: SubscriptionLaneArea, arriving: int) -> int:
        """How many of those that have just been stored, and are not published yet, the subscriber gets at all."""
        return min(self._room(area.queue), arriving)

    def has_room(self, subscription: SubscriptionArea) -> bool:
        """Whether the subscriber gets one more, which is not persistent."""
        return self._room(subscription) > 0

    def _room(self, subscription: SubscriptionArea) -> int:
        if self._eviction != "newest" or subscription.is_durable:
            return NOWHERE
        return max(self._max_messages - self._waiting(subscription), 0)

    def given(self, areas: Iterable[VolatileArea], message: StoredMessage) -> None:
        """These have just got a message that is not persistent."""
        key = key_of(self._key_name, message[1]) if self._eviction == "latest_per_key" else None
        for area in areas:
            subscription = area.queue
            assert isinstance(subscription, SubscriptionArea)
            if key is not None and not subscription.is_durable:
                self._note_key(key, subscription, (area, message[0]))
            self.relieve(subscription)

    def _note_key(self, key: bytes, subscription: SubscriptionArea, place: Place) -> None:
        if subscription.latest is None:
            subscription.latest = LatestKeys()
        subscription.latest.note(key, place)

    def note_keys(
        self, verdicts: Verdicts, areas: Iterable[SubscriptionLaneArea], messages: Sequence[StoredMessage]
    ) -> None:
        """These arrive: for each subscriber that wants one it is the newest of its key."""
        if self._eviction != "latest_per_key":
            return
        readers = [area for area in areas if not area.queue.is_durable]
        for message in messages:
            key = key_of(self._key_name, message[1])
            if key is None:
                continue
            verdicts.begin(message)
            for area in readers:
                subscription, selector = area.queue, area.queue.selector
                if selector is None or verdicts.matches(selector, area, message):
                    self._note_key(key, subscription, (area, message[0]))
            verdicts.begin(None)

    def pass_over(self, area: SubscriptionLaneArea, first: int, last: int) -> None:
        """The subscriber never sees these, which were just stored."""
        area.queue.topic.evicted += area.lane.remove(first, last, NO_RECORD)
        area.published = last + 1

    def relieve(self, subscription: SubscriptionArea) -> None:
        """Evict what is above the limit, if it is enough to be worth it."""
        if subscription.is_durable or self._eviction == "newest":
            return
        excess = self._waiting(subscription) - self._max_messages
        if excess <= self._max_messages // SLACK:
            return
        gone: dict[LaneArea, Runs] = {}
        while excess > 0 and (found := self._next(subscription, excess)) is not None:
            area, first, last = found
            removed = _remove(area, first, last)
            gone.setdefault(area, Runs()).add(first, last)
            excess -= removed
            subscription.topic.evicted += removed
        for area, runs in gone.items():
            self._engine.unpark(area, runs)
            self._engine.targets.forget(area, runs)

    def _waiting(self, subscription: SubscriptionArea) -> int:
        """Published, and in nobody's hands."""
        for lane in filter(None, subscription.subscriber.lanes):
            lane.catch_up()
        waiting = subscription.depth
        for area in subscription.lane_areas():
            unwanted = area.unwanted.count if area.unwanted is not None else 0
            waiting -= len(area.in_flight) + unwanted + area.lane.next_sequence - area.published
        return waiting

    def _next(self, subscription: SubscriptionArea, most: int) -> tuple[LaneArea, int, int] | None:
        """What goes next, as consecutive ones of a lane."""
        older = subscription.latest.next_older() if subscription.latest is not None else None
        return (*older, older[1]) if older is not None else self._first(subscription, most)

    def _first(self, subscription: SubscriptionArea, most: int) -> tuple[LaneArea, int, int] | None:
        """What goes first: the oldest of all, or of the lowest priority."""
        found = []
        for persistent, volatile in zip(subscription.areas, subscription.volatile_areas, strict=True):
            run = _first_of_both(persistent, volatile, most)
            if run is not None:
                found.append(run)
        if not found or self._eviction == "lowest_priority" or len(found) == 1:
            return found[0] if found else None
        area, first, _ = min(found, key=_place)
        return area, first, first


def _remove(area: LaneArea, first: int, last: int) -> int:
    return area.lane.remove(first, last, NO_RECORD) if area.is_persistent else area.store.remove(area.lane, first, last)


def _first_of_both(
    persistent: LaneArea | None, volatile: VolatileArea | None, most: int
) -> tuple[LaneArea, int, int] | None:
    """Of one priority, the first consecutive ones that wait, by arrival."""
    of_persistent = _free_run(persistent, most) if persistent is not None else None
    of_volatile = _free_run(volatile, most) if volatile is not None else None
    if of_persistent is not None and of_volatile is not None:
        assert volatile is not None
        before = volatile.lane.before(of_volatile[0])
        if of_persistent[0] < before:
            of_persistent, of_volatile = (of_persistent[0], min(of_persistent[1], before - 1)), None
        else:
            of_volatile = of_volatile[0], min(of_volatile[1], volatile.lane.behind(of_persistent[0]) - 1)
    if of_volatile is not None and volatile is not None:
        return volatile, *of_volatile
    return (persistent, *of_persistent) if of_persistent is not None and persistent is not None else None


def _place(run: tuple[LaneArea, int, int]) -> tuple[int, int, int]:
    """Where it lies in the journal, which is the order of arrival.

    One that is not persistent goes right before the persistent one of its priority that came next; where none has,
    behind all.
    """
    area, first, _ = run
    if isinstance(area, VolatileArea):
        persistent = area.persistent
        behind = persistent.lane.pending_run(area.lane.before(first), 1) if persistent is not None else None
        if persistent is None or behind is None:
            return NOWHERE, 0, 0
        [extent] = persistent.lane.extents(behind[0], behind[0])
        return extent.data_log, extent.offset, 0
    [extent] = area.lane.extents(first, first)
    return extent.data_log, extent.offset, 1


def _free_run(area: LaneArea, most: int) -> tuple[int, int] | None:
    """The first consecutive ones that wait."""
    at = 0
    while (run := area.lane.pending_run(at, most)) is not None and run[0] < area.published:
        first, last = run[0], min(run[1], area.published - 1)
        held = [sequence for sequence in range(first, last + 1) if sequence in area.in_flight]
        if not held:
            return first, last
        if held[0] > first:
            return first, held[0] - 1
        at = first + 1
    return None


class EvictingLaneArea(TopicLaneArea):
    """A lane of a topic whose subscribers lose messages when they are slow."""

    __slots__ = ("evictor",)
    evictor: Evictor

    def arrive(self, message: StoredMessage) -> None:
        """See TopicLaneArea."""
        self.arrive_each((message,))

    def arrive_each(self, messages: Sequence[StoredMessage]) -> None:
        """See TopicLaneArea."""
        first, last = messages[0][0], messages[-1][0]
        readers = list(self._readers(first))  # a lane that is new to its subscription begins where this one is now
        self.published = last + 1
        self.evictor.note_keys(self.queue.verdicts, readers, messages)
        admitted = [(area, self.evictor.admitted(area, len(messages))) for area in readers]
        for area, count in admitted:
            if count and area.sole is not None:
                area.queue.target_area.arrive_many(area, messages[:count])
        for at, message in enumerate(messages):
            one_by_one = [area for area, count in admitted if at < count and area.sole is None]
            if one_by_one:
                self._offer(message, one_by_one)
        for area, count in admitted:
            self._limit(area, first + count, last)

    def arrive_unloaded(self, end: int) -> None:
        """See TopicLaneArea."""
        first, readers = self.published, list(self._readers(end - 1))
        self.published = end
        for area in readers:
            count = self.evictor.admitted(area, end - first)
            if count:
                area.arrive_unloaded(first + count)
            self._limit(area, first + count, end - 1)

    def _limit(self, area: SubscriptionLaneArea, first: int, last: int) -> None:
        """first: of those that it was not admitted, if there are any."""
        if first <= last:
            self.evictor.pass_over(area, first, last)
        self.evictor.relieve(area.queue)


class EvictingTopicArea(TopicArea):
    """A topic whose policy has `subscriber_max_messages`."""

    evictor: Evictor

    def make_lane_area(self, priority: int) -> TopicLaneArea:
        """See TopicArea."""
        store = self.target_area.store
        lane = store.index.lane(self.number, priority)
        area = EvictingLaneArea(self, lane, store.id_prefix(self.number, priority))
        area.evictor = self.evictor
        return area
