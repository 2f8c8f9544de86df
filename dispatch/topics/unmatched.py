"""UnmatchedSweeper: acknowledge, for a durable subscription, what its selector does not match.

So an offline subscription with a selector keeps no data log but for what it
will get. The loader and arrivals pass over what does not match as well, and
leave it in `unwanted`; the sweeper goes on behind them. All of it is
acknowledged in runs, many in one record. What is read for one subscription
others examine too that have come as far. A crash loses nothing but work: what
is not acknowledged yet is examined again.
"""

from __future__ import annotations

from itertools import islice
from typing import Final, NamedTuple

from ...cache.budget import Holder
from ...store.errors import ForebayError
from ...store.journal.reading import REGION_BYTES_MAX, Region, StoredMessage
from ...store.message_store import MessageStore
from ...store.sequence_set import SequenceSet
from ..core.lists import TargetArea
from .state import SubscriptionLaneState, SubscriptionState

RUN_MESSAGES_MAX: Final = 512
RUN_BYTES_MAX: Final = REGION_BYTES_MAX // 2
UNWANTED_RUNS_MAX: Final = 1024
UNWANTED_MESSAGES_MAX: Final = 65_536
EXAMINERS_MAX: Final = 16
"""Subscriptions that share a read: under the lock each costs as much as one run."""


class _Run(NamedTuple):
    area: SubscriptionLaneState
    examiners: dict[SubscriptionLaneState, int]
    """Whoever is to examine it, and from where on."""
    first: int
    last: int
    regions: list[Region]
    """Empty: one message that is too large to hold, read for its headers alone."""
    charge: int


class UnmatchedSweeper:
    """`step` examines one run of messages and says whether there was one."""

    def __init__(self, target_area: TargetArea, store: MessageStore, reading: Holder) -> None:
        """reading: pays for what is in RAM while it is examined."""
        self._target_area = target_area
        self._store = store
        self._reading = reading
        self.subscriptions: dict[SubscriptionState, None] = {}
        """Those with a selector, least lately examined first."""

    def step(self) -> bool:
        """Requires: no lock."""
        if not self.subscriptions:
            return False
        with self._target_area.monitor.lock, self._target_area.monitor.whole:
            run = self._next()
        if run is None:
            return False
        try:
            unwanted = self._examine(run)
        finally:
            with self._target_area.monitor.lock, self._target_area.monitor.whole:
                self._reading.release(run.charge)
        with self._target_area.monitor.lock, self._target_area.monitor.whole:
            for area, begin in run.examiners.items():
                if area.subscription not in self.subscriptions:
                    continue
                assert area.unwanted is not None and area.subscription.selector is not None
                for first, last in unwanted[area.subscription.selector.text]:
                    if begin <= last:
                        area.unwanted.add(max(first, begin), last)
                area.examined = max(area.examined, run.last + 1)
        return True

    def _examine(self, run: _Run) -> dict[str, SequenceSet]:
        """Read the messages, and return what equal selectors do not match, by their text. Requires: no lock."""
        messages = self._read(run)
        unwanted: dict[str, SequenceSet] = {}
        for area in run.examiners:
            judge = area.subscription.judge
            assert judge is not None and judge.selector is not None
            if judge.selector.text in unwanted:
                continue
            found = unwanted[judge.selector.text] = SequenceSet()
            for message in messages:
                if judge.verdict(area, message) is False:
                    found.add(message[0], message[0])
        return unwanted

    def _next(self) -> _Run | None:
        for subscription in list(self.subscriptions):
            for area in subscription.open_lanes():
                assert area.unwanted is not None
                if len(area.unwanted) >= UNWANTED_RUNS_MAX or area.unwanted.count >= UNWANTED_MESSAGES_MAX:
                    self._let_go(area, subscription.is_durable)
                run = self._choose(area)
                if run is None and area.unwanted:
                    self._let_go(area, subscription.is_durable)
                if run is not None:
                    for examiner in run.examiners:
                        self.subscriptions[examiner.subscription] = self.subscriptions.pop(examiner.subscription)
                    return run
        return None

    def _examiners(self, chosen: SubscriptionLaneState, first: int, last: int) -> dict[SubscriptionLaneState, int]:
        """Return a few who are to examine what is read for one: those of its topic that have come to the same place."""
        found = {chosen: first}
        for subscription in islice(self.subscriptions, EXAMINERS_MAX):
            area = subscription.areas[chosen.priority] if subscription.topic is chosen.subscription.topic else None
            if not isinstance(area, SubscriptionLaneState) or area is chosen:
                continue
            run = _unexamined(area)
            if run is not None and first <= run[0] <= last:
                found[area] = run[0]
        return found

    def _choose(self, area: SubscriptionLaneState) -> _Run | None:
        """The next pending messages that nobody has examined. None: there are none, or no memory for them."""
        lane = area.subscription_lane
        found = _unexamined(area)
        if found is None or found[0] >= area.published:
            area.examined = area.published
            return None
        first, last = found[0], min(found[1], area.published - 1)
        lengths = lane.lengths(first, last)
        total = sum(lengths)
        while total > RUN_BYTES_MAX and len(lengths) > 1:
            total -= lengths.pop()
        last = first + len(lengths) - 1
        if total > RUN_BYTES_MAX:
            return _Run(area, {area: first}, first, last, [], 0)
        regions = self._target_area.store.plan(lane, [(first, last)])
        charge = total + max(region.length for region in regions)
        if not self._reading.reserve(charge):
            return None
        return _Run(area, self._examiners(area, first, last), first, last, regions, charge)

    def _read(self, run: _Run) -> list[StoredMessage]:
        """Read the messages. What can't be read stays where it is: the loader tells of it."""
        if run.regions:
            return self._target_area.store.read(run.regions)[0]
        try:
            return [run.area.read_one(run.first)]
        except ForebayError:
            return []

    def _let_go(self, area: SubscriptionLaneState, is_durable: bool) -> None:
        assert area.unwanted is not None
        runs = list(area.unwanted)
        self._store.remove_runs(area.subscription_lane, runs, is_durable=is_durable)
        for cache in area.caches:
            for first, last in runs if cache.has(area.lane.number) else ():
                for sequence in range(first, last + 1):
                    cache.take(area.lane.number, sequence)
        for first, last in runs if area.attempts is not None else ():
            area.settled(first, last)
        area.unwanted.clear()


def _unexamined(area: SubscriptionLaneState) -> tuple[int, int] | None:
    """Return the first run of pending messages that neither the sweeper nor a load has examined. Requires: the lock."""
    begin = area.examined
    for consumer_group in area.subscription.consumer_groups.values():
        begin = max([begin, *(target.frontier for target in consumer_group.lists if target.area is area)])
    return area.subscription_lane.pending_run(begin, RUN_MESSAGES_MAX)
