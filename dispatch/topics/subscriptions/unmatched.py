"""UnmatchedAcker: acknowledge, for a subscription with a selector, messages that its selector does not match.

So an offline subscription with a selector keeps only data logs with messages that it will get. The loader and arrivals
add the messages that they find unmatched to `unmatched` of the lane; the acker continues behind these. It acknowledges
unmatched messages in runs, many in one record. It does not read blocks whose fingerprints rule out a match. One read
serves all subscriptions that must examine the same messages next. After a crash, messages that are not acknowledged yet
are examined again.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import islice
from typing import Final, NamedTuple

from ....cache.accounting.budget import Holder
from ....store.errors import ForebayError
from ....store.format.record import RecordDamaged
from ....store.index.fingerprint import BlockSurvey
from ....store.journal.regions import REGION_BYTES_MAX, Region
from ....store.message_store import MessageStore
from ....store.stored_message import StoredMessage
from ....store.structures.sequence_set import SequenceSet
from ....store.writers.subscription_writer import SubscriptionWriter
from ...core.model.matching import SelectorMatcher
from ...core.monitor import Monitor, in_sections
from ..state.subscription_state import SubscriptionLaneState, SubscriptionState

READ_RUN_MESSAGES_MAX: Final = 512
READ_RUN_BYTES_MAX: Final = REGION_BYTES_MAX // 2
UNMATCHED_RUNS_MAX: Final = 1024
UNMATCHED_MESSAGES_MAX: Final = 65_536
EXAMINERS_MAX: Final = 16
"""Most subscriptions that share a read. Under the lock, each costs as much as one run."""


class _Run(NamedTuple):
    lane: SubscriptionLaneState
    examiners: dict[SubscriptionLaneState, int]
    """The lanes that must examine the messages, each with its first sequence."""
    first: int
    last: int
    regions: list[Region]
    """Regions to read. Empty: the run is one message that is too large to hold, and only its headers are read."""
    charge: int
    survey: BlockSurvey | None = None
    """Records the headers for the lane of the run. None: their fingerprints exist already, or would be of no use."""
    is_known: bool = False
    """Whether fingerprints rule out a match, so that nothing is read."""


class UnmatchedAcker:
    """Examines messages for subscriptions with a selector, one run in each `step`."""

    def __init__(
        self, monitor: Monitor, message_store: MessageStore, writer: SubscriptionWriter, reading: Holder
    ) -> None:
        """reading: pays for messages in RAM while they are examined."""
        self._monitor = monitor
        self._message_store = message_store
        self._writer = writer
        self._reading = reading
        # Subscriptions with a selector, in the order in which they have their turns.
        self._selecting: dict[SubscriptionState, None] = {}

    def add(self, subscription: SubscriptionState) -> None:
        """Examine messages for a subscription with a selector from now on. Requires: the lock."""
        self._selecting[subscription] = None

    def forget(self, subscription: SubscriptionState) -> None:
        """Examine nothing more for a subscription that has ended. Requires: the lock."""
        self._selecting.pop(subscription, None)

    def step(self) -> bool:
        """Examine one run of messages; return whether there was one. Requires: no lock."""
        if not self._selecting:
            return False
        run = self._next()
        if run is None:
            return False
        try:
            unmatched = self._examine(run)
        finally:
            with self._monitor.lock, self._monitor.all_or_broken:
                self._reading.release(run.charge)
        scan = run.lane.scan()
        with self._monitor.lock, self._monitor.all_or_broken:
            for lane, begin in run.examiners.items():
                if lane.subscription in self._selecting:
                    assert lane.subscription.selector is not None
                    lane.note_examined(unmatched[lane.subscription.selector.text], begin, run.last)
            if run.survey is not None:
                scan.note_survey(run.survey)
        if run.survey is not None:
            scan.make_survey_room()
        return True

    def _examine(self, run: _Run) -> dict[str, SequenceSet]:
        """Read the messages; return for each selector text the sequences that it does not match. Requires: no lock."""
        messages = [] if run.is_known else self._read(run)
        unmatched: dict[str, SequenceSet] = {}
        for lane in run.examiners:
            matcher = lane.subscription.matcher
            assert matcher is not None and matcher.selector is not None
            if matcher.selector.text in unmatched:
                continue
            survey = run.survey if lane is run.lane else None
            misses = unmatched[matcher.selector.text] = _misses(matcher, lane, messages, survey)
            if run.is_known:
                misses.add(run.first, run.last)
        return unmatched

    def _next(self) -> _Run | None:
        """Choose the next run, in sections of the state lock. None: there is nothing to examine. Requires: no lock."""
        with self._monitor.lock, self._monitor.all_or_broken:
            subscriptions = tuple(self._selecting)
        for part in in_sections(subscriptions):
            with self._monitor.lock, self._monitor.all_or_broken:
                run = self._next_of(part)
            if run is not None:
                return run
        return None

    def _next_of(self, subscriptions: Sequence[SubscriptionState]) -> _Run | None:
        """Acknowledge what these subscriptions do not match, up to the first run that one must examine; return it."""
        for subscription in subscriptions:
            for lane in subscription.open_lanes() if subscription in self._selecting else ():
                assert lane.unmatched is not None
                if lane.unmatched.run_count >= UNMATCHED_RUNS_MAX or lane.unmatched.count >= UNMATCHED_MESSAGES_MAX:
                    self._acknowledge_unmatched(lane, is_durable=subscription.is_durable)
                run = self._choose(lane)
                if run is None and lane.unmatched:
                    self._acknowledge_unmatched(lane, is_durable=subscription.is_durable)
                if run is not None:
                    self._end_turn(run)
                    return run
        return None

    def _end_turn(self, run: _Run) -> None:
        """Let the subscriptions that examine a run have their next turn after all others."""
        for examiner in run.examiners:
            self._selecting[examiner.subscription] = self._selecting.pop(examiner.subscription)

    def _examiners(self, chosen: SubscriptionLaneState, first: int, last: int) -> dict[SubscriptionLaneState, int]:
        """Return a few lanes of the topic that need the same messages next, so that they can share the read."""
        first_by_lane = {chosen: first}
        for subscription in islice(self._selecting, EXAMINERS_MAX):
            lane = subscription.lanes[chosen.priority] if subscription.topic is chosen.subscription.topic else None
            if not isinstance(lane, SubscriptionLaneState) or lane is chosen:
                continue
            run = _unexamined(lane)
            if run is not None and first <= run[0] <= last:
                first_by_lane[lane] = run[0]
        return first_by_lane

    def _choose(self, lane: SubscriptionLaneState) -> _Run | None:
        """Choose the next pending messages that are not examined yet. None: there are none, or memory has no room."""
        pending_lane = lane.subscription_lane
        unexamined = _unexamined(lane)
        if unexamined is None or unexamined[0] >= lane.published_end:
            lane.note_nothing_to_examine()
            return None
        first, last = unexamined[0], min(unexamined[1], lane.published_end - 1)
        selector = lane.subscription.selector
        assert selector is not None
        scan = lane.scan()
        candidate = scan.next_candidate(selector, scan.skip_names(selector), first)
        if candidate is None or candidate.sequence > first:
            end = lane.published_end if candidate is None else min(candidate.sequence, lane.published_end)
            last = min(end, first + UNMATCHED_MESSAGES_MAX) - 1
            return _Run(lane, {lane: first}, first, last, [], 0, is_known=True)
        survey = candidate.survey(first)
        lengths = pending_lane.lengths(first, last)
        total = sum(lengths)
        while total > READ_RUN_BYTES_MAX and len(lengths) > 1:
            total -= lengths.pop()
        last = first + len(lengths) - 1
        if total > READ_RUN_BYTES_MAX:
            return _Run(lane, {lane: first}, first, last, [], 0, survey)
        regions = self._message_store.plan(pending_lane, [(first, last)])
        charge = total + max(region.length for region in regions)
        if not self._reading.reserve(charge):
            return None
        return _Run(lane, self._examiners(lane, first, last), first, last, regions, charge, survey)

    def _read(self, run: _Run) -> list[StoredMessage]:
        """Read the messages of a run, except damaged ones, which the loader reports."""
        if run.regions:
            return self._message_store.read(run.regions)[0]
        try:
            return [run.lane.read_headers(run.first)]
        except ForebayError:
            return []

    def _acknowledge_unmatched(self, lane: SubscriptionLaneState, *, is_durable: bool) -> None:
        """Acknowledge up to UNMATCHED_MESSAGES_MAX messages that do not match. More would hold the lock too long."""
        assert lane.unmatched is not None
        runs: list[tuple[int, int]] = []
        room = UNMATCHED_MESSAGES_MAX
        while lane.unmatched and room:
            first, last = lane.unmatched.pop_first(room)
            runs.append((first, last))
            room -= last - first + 1
        self._writer.acknowledge_runs(lane.subscription_lane, runs, is_durable=is_durable)
        for cache in lane.caches:
            for first, last in runs if cache.has(lane.pending_lane.number) else ():
                for sequence in range(first, last + 1):
                    cache.take(lane.pending_lane.number, sequence)
        for first, last in runs if lane.delivery_counts is not None else ():
            lane.trim_delivery_counts(first, last)


def _misses(
    matcher: SelectorMatcher, lane: SubscriptionLaneState, messages: list[StoredMessage], survey: BlockSurvey | None
) -> SequenceSet:
    """Return the sequences of messages that a selector does not match. survey: if given, it records the headers."""
    misses = SequenceSet()
    matcher.decode(messages, survey)
    for message in messages:
        with suppress(RecordDamaged):  # the loader reports the damage
            if not matcher.examine(lane, message, survey):
                misses.add(message[0], message[0])
    return misses


def _unexamined(lane: SubscriptionLaneState) -> tuple[int, int] | None:
    """Return the first run of pending messages that neither the acker nor a load has examined. Requires: the lock."""
    begin = lane.examined
    for selector_group in lane.subscription.selector_groups.values():
        begin = max([begin, *(target.frontier for target in selector_group.lists if target.lane is lane)])
    return lane.subscription_lane.pending_run(begin, READ_RUN_MESSAGES_MAX)
