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
from .destination_policy import Eviction
from .latest_keys import LatestKeys, key_of
from .topic_area import SubscriptionArea, SubscriptionLaneArea, TopicArea, TopicLaneArea, Verdicts

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
        subscription = area.queue
        if self._eviction != "newest" or subscription.is_durable:
            return arriving
        return min(max(self._max_messages - self._waiting(subscription), 0), arriving)

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
                    if subscription.latest is None:
                        subscription.latest = LatestKeys()
                    subscription.latest.note(key, (area, message[0]))
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
        gone: dict[SubscriptionLaneArea, Runs] = {}
        while excess > 0 and (found := self._next(subscription, excess)) is not None:
            area, first, last = found
            removed = area.lane.remove(first, last, NO_RECORD)
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

    def _next(self, subscription: SubscriptionArea, most: int) -> tuple[SubscriptionLaneArea, int, int] | None:
        """What goes next, as consecutive ones of a lane."""
        older = subscription.latest.next_older() if subscription.latest is not None else None
        return (*older, older[1]) if older is not None else self._first(subscription, most)

    def _first(self, subscription: SubscriptionArea, most: int) -> tuple[SubscriptionLaneArea, int, int] | None:
        """What goes first: the oldest of all, or of the lowest priority."""
        runs = []
        for priority in range(len(subscription.areas)):
            area = subscription.areas[priority]
            if isinstance(area, SubscriptionLaneArea):
                run = _free_run(area, most)
                if run is not None:
                    runs.append((area, *run))
        if not runs or self._eviction == "lowest_priority" or len(runs) == 1:
            return runs[0] if runs else None
        area, first, _ = min(runs, key=_place)
        return area, first, first


def _place(run: tuple[SubscriptionLaneArea, int, int]) -> tuple[int, int]:
    """Where it lies in the journal, which is the order of arrival."""
    area, first, _ = run
    [extent] = area.lane.extents(first, first)
    return extent.data_log, extent.offset


def _free_run(area: SubscriptionLaneArea, most: int) -> tuple[int, int] | None:
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
