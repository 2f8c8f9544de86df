"""Browsers: walks over the pending messages of a queue, at any depth, which change nothing.

A walk goes priority by priority, highest first, up to the messages that existed when it began. Within a priority,
persistent and non-persistent messages come in order of arrival. Each load is a part of one block. It is chosen under
the state lock and read outside it. Messages that are in RAM already are not read again. A walk meets each message that
is pending throughout exactly once, because a message keeps its sequence. It may meet messages that come or go
meanwhile. With a selector, a walk skips blocks by their fingerprints, as a consumer's scan does, and makes missing
fingerprints.

One load at a time is in RAM. The holder "browsers" is charged for it from before its read until the next load. If
memory is short, loads are smaller, down to one message. That one is read into the caller's own memory, like the body of
a lazy delivery.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Generator, Iterator
from itertools import islice
from operator import itemgetter
from typing import Final, NamedTuple

from ...cache.accounting.budget import Budget, Holder
from ...cache.accounting.charge import OVERHEAD_BYTES
from ...store.environment.late_log import LateLogger
from ...store.errors import ArgumentError, MessagesUnreadable
from ...store.format.message_properties import decode_properties, group_of
from ...store.format.record import RecordDamaged
from ...store.index.fingerprint import BlockSurvey
from ...store.index.fingerprints import Candidate
from ...store.journal.regions import Region
from ...store.message import Message
from ...store.numbering import BEHIND_ALL, BLOCK_MESSAGES, BLOCK_SHIFT
from ...store.stored_message import StoredMessage
from ...store.structures.sequence_set import SequenceSet
from ..core.destinations.queue_state import QueueState
from ..core.lanes.non_persistent_lane_state import NonPersistentLaneState
from ..core.memory.reclaim import Reclaim
from ..core.memory.watermarks import Watermarks
from ..core.model.delivery import is_lazy, message_of
from ..core.model.destination import LaneState, TargetList
from ..core.model.matching import SelectorMatcher
from ..core.monitor import Monitor
from ..selectors.selector import Selector

logger = LateLogger("forebay.dispatch")

SEQUENCE_DIGITS_MAX: Final = 18
"""Most digits of a sequence."""

_sequence = itemgetter(0)


class _Load(NamedTuple):
    """Messages of one block that a walk brings together. `held` has those in RAM: after the read, all."""

    last: int
    held: list[StoredMessage]
    regions: list[Region]
    charge: int
    buffer_bytes: int
    survey: BlockSurvey | None
    """Records the headers of the block. None: their fingerprints exist already, or would be of no use."""


class _Missed:
    """The messages that a walk could not read."""

    __slots__ = ("messages",)

    def __init__(self) -> None:
        self.messages = 0


class Browsers:
    """All walks of a store, and their shared memory."""

    def __init__(
        self,
        *,
        monitor: Monitor,
        watermarks: Watermarks,
        budget: Budget,
        reclaim: Reclaim,
        is_expired: Callable[[bytes], bool],
        holder: Holder,
        reading: Holder,
        current: Callable[[QueueState], QueueState],
    ) -> None:
        """watermarks: says how much one load may bring, which a resize changes.
        reclaim: gives memory of the HeadQueueCache.
        is_expired: returns whether a message with the given properties has expired.
        holder: pays for loads.
        reading: pays for read buffers.
        current: returns the open queue for a queue that may have been closed in the meantime.
        """
        self._monitor = monitor
        self._watermarks = watermarks
        self._budget = budget
        self._reclaim = reclaim
        self._is_expired = is_expired
        self._holder = holder
        self._reading = reading
        self._current = current
        # Charges of loads that have ended, until a caller with the lock releases them.
        self._given_back: deque[int] = deque()

    def browse(self, queue: QueueState, selector: Selector | None) -> Generator[Message, None, None]:
        """Yield the pending messages in order, with their ids. Requires: no lock."""
        for window in self.windows(queue, selector):
            yield from window

    def windows(self, queue: QueueState, selector: Selector | None) -> Generator[list[Message], None, None]:
        """Yield the pending messages of one load at a time; an empty list if none matches. Requires: no lock."""
        is_expired = self._is_expired
        for lane, messages in self.walk(queue, selector):
            found = (browsed_message(lane, message) for message in messages if not is_expired(message[1]))
            yield [message for message in found if message is not None]

    def walk(
        self, queue: QueueState, selector: Selector | None, missed: _Missed | None = None
    ) -> Iterator[tuple[LaneState, list[StoredMessage]]]:
        """Yield the matching messages load by load, in order. Closed: the store is closed. Requires: no lock."""
        with self._monitor.lock, self._monitor.while_open:
            queue = self._current(queue)
            ends = {lane: lane.published_end for lane in queue.all_lanes()}
            pairs = list(zip(reversed(queue.lanes), reversed(queue.non_persistent_lanes), strict=True))
        matcher = SelectorMatcher(selector)
        for persistent, non_persistent in pairs:
            for lane, begin, end in self._stretches(persistent, non_persistent, ends):
                for messages in self.loads(lane, begin, end, missed, matcher):
                    yield lane, messages

    def _stretches(
        self, persistent: LaneState | None, non_persistent: NonPersistentLaneState | None, ends: dict[LaneState, int]
    ) -> Iterator[tuple[LaneState, int, int]]:
        """Yield (lane, begin, end) of sequences of one priority, in order of arrival. ends: the end of each lane."""
        begins: dict[LaneState, int] = {lane: 0 for lane in (persistent, non_persistent) if lane is not None}
        while True:
            with self._monitor.lock, self._monitor.all_or_broken:
                _begin_at_pending(begins, ends)
                if not begins:
                    return
                lane, end = next(iter(begins)), BEHIND_ALL
                if persistent in begins and non_persistent in begins:
                    messages = non_persistent.non_persistent_lane
                    lane, end = persistent, messages.next_persistent(begins[non_persistent])
                    if begins[persistent] >= end:
                        lane, end = non_persistent, messages.next_non_persistent(begins[persistent])
                end = min(end, ends[lane])
            yield lane, begins[lane], end
            begins[lane] = end

    def loads(
        self,
        lane: LaneState,
        begin: int,
        end: int,
        missed: _Missed | None = None,
        matcher: SelectorMatcher | None = None,
    ) -> Iterator[list[StoredMessage]]:
        """Yield the pending messages from begin to before end, load by load. Requires: no lock.

        Each list is emptied when the next one is requested. missed: counts messages that can't be read. matcher:
        decides which messages are wanted; None: all.
        """
        selector = None if matcher is None else matcher.selector
        while True:
            with self._monitor.lock, self._monitor.all_or_broken:
                load = self._begin(lane, begin, end, selector)
            if load is None:
                return
            begin = load.last + 1
            messages = load.held
            try:
                unreadable = self._read(lane, load)
                if missed is not None:
                    missed.messages += unreadable
                if matcher is not None and selector is not None:
                    self._judge(matcher, lane, load)
                yield messages
            finally:
                messages.clear()
                self._release_later(load.charge)

    # ------------------------------------------------------------------ find

    def find(self, queue: QueueState, message_id: object) -> Message | None:
        """Return the pending message with this id, or None. Requires: no lock.

        An id that the store generated contains lane and sequence, so that place is checked first. Any other id is only
        in its message, so all messages are searched; the id of a moved message may name another place.
        MessagesUnreadable: no readable message has this id, and some messages can't be read.
        """
        if not isinstance(message_id, str):
            raise ArgumentError(f"a message id is a str, not {type(message_id).__name__}")
        with self._monitor.lock, self._monitor.while_open:
            queue = self._current(queue)
            place = _place(queue, message_id)
        if place is not None:
            lane, sequence = place
            for messages in self.loads(lane, sequence, min(sequence + 1, lane.published_end)):
                for found in messages:
                    message = browsed_message(lane, found)
                    if message is not None and message.message_id == message_id:
                        return message
        return self._scan(queue, message_id)

    def _scan(self, queue: QueueState, message_id: str) -> Message | None:
        """Search all pending messages of a queue for an id, in order. O(messages), read load by load."""
        try:
            needle = message_id.encode()
        except UnicodeEncodeError:
            return None
        missed = _Missed()
        for lane, messages in self.walk(queue, None, missed):
            for found in messages:
                if found[1].find(needle) >= 0:  # `in` takes three times as long
                    message = browsed_message(lane, found)
                    if message is not None and message.message_id == message_id:
                        return message
                    missed.messages += message is None
        if missed.messages:
            raise MessagesUnreadable(queue.name, message_id, missed.messages)
        return None

    # ------------------------------------------------------------------ one load

    def _begin(self, lane: LaneState, begin: int, end: int, selector: Selector | None) -> _Load | None:
        """Choose the next load and reserve its memory. None: nothing is left. Requires: the lock."""
        self._monitor.raise_if_closed()
        self.release_given_back()
        candidate: Candidate | None = None
        if selector is not None:
            scan = lane.scan()
            candidate = scan.next_candidate(selector, scan.skip_names(selector), begin)
            if candidate is None:
                return None
            begin = candidate.sequence
        room = self._watermarks.shares.load_bytes_max
        while True:
            runs, content_bytes, count = _choose(lane, begin, end, room)
            if not runs:
                return None
            survey = None if candidate is None else candidate.survey(runs[0][0])
            held = self._held(lane, runs)
            missing = _without(runs, held)
            regions = lane.backing_store.plan(lane.pending_lane, missing) if missing else []
            buffer_bytes = max((region.length for region in regions), default=0)
            # Include messages that are in RAM elsewhere, because they may leave it before the caller has finished.
            charge = content_bytes + OVERHEAD_BYTES * count
            if self._reserve(charge, buffer_bytes):
                return _Load(runs[-1][1], held, regions, charge, buffer_bytes, survey)
            if count == 1:
                return _Load(runs[-1][1], held, regions, 0, 0, survey)
            room = min(room, charge) // 2

    def _reserve(self, charge: int, buffer_bytes: int) -> bool:
        if self._budget.free_bytes < charge:
            self._reclaim.empty_heads_until_free(charge)
        if not self._holder.reserve(charge):
            return False
        if not self._reading.reserve(buffer_bytes):
            self._holder.release(charge)
            return False
        return True

    def _held(self, lane: LaneState, runs: list[tuple[int, int]]) -> list[StoredMessage]:
        """Return the messages of the runs that are in RAM with their bodies, in order. Requires: the lock."""
        number = lane.pending_lane.number
        found: dict[int, StoredMessage] = {}
        loading: list[dict[int, StoredMessage]] = []
        for target in lane.destination.lists_over(lane):
            _add_direct(target, runs[0][0], runs[-1][1], found)
            if target.load is not None:
                loading.append(target.load.held)
        caches = [cache for cache in lane.caches if cache.has(number)]
        in_flight = lane.deliveries
        sequences: list[int] = []
        if caches or in_flight or loading:
            sequences = [sequence for low, high in runs for sequence in range(low, high + 1)]
        for sequence in sequences:
            delivery = in_flight.get(sequence)
            if delivery is not None and not is_lazy(delivery):
                found[sequence] = message_of(delivery)
            for cache in caches:
                cached = cache.peek(number, sequence)
                if cached is not None:
                    found[sequence] = cached
                    cache.served += 1
            for held in loading:
                loaded = held.get(sequence)
                if loaded is not None and loaded[2] is not None:
                    found[sequence] = loaded
        return [found[sequence] for sequence in sorted(found) if lane.pending_lane.is_pending(sequence)]

    def _read(self, lane: LaneState, load: _Load) -> int:
        """Read the missing messages of a load. Log and skip messages that can't be read; return how many.

        Requires: no lock.
        """
        if not load.regions:
            return 0
        unreadable: list[tuple[int, str]] = []
        try:
            messages, unreadable = lane.backing_store.read(load.regions)
        finally:
            with self._monitor.lock, self._monitor.all_or_broken:
                self._reading.release(load.buffer_bytes)
                unreadable = [found for found in unreadable if lane.pending_lane.is_pending(found[0])]
        for sequence, problem in unreadable:
            _pass_over(lane, sequence, problem)
        load.held.extend(messages)
        load.held.sort(key=_sequence)
        return len(unreadable)

    def _judge(self, matcher: SelectorMatcher, lane: LaneState, load: _Load) -> None:
        """Remove messages that do not match, and keep the new fingerprints of their block. Requires: no lock."""
        matcher.decode(load.held, load.survey)
        load.held[:] = [message for message in load.held if _is_wanted(matcher, lane, message, load.survey)]
        if load.survey is not None:
            scan = lane.scan()
            with self._monitor.lock, self._monitor.all_or_broken:
                scan.note_survey(load.survey)
            scan.make_survey_room()

    # ------------------------------------------------------------------ memory

    def _release_later(self, charge: int) -> None:
        """Note a charge to release later: the garbage collector may end a walk while this thread holds the lock."""
        self._given_back.append(charge)
        lock = self._monitor.lock
        if lock.try_acquire():
            try:
                self.release_given_back()
            finally:
                lock.release()

    def release_given_back(self) -> None:
        """Release the charges of ended loads. Requires: the lock."""
        while self._given_back:
            self._holder.release(self._given_back.popleft())


def _begin_at_pending(begins: dict[LaneState, int], ends: dict[LaneState, int]) -> None:
    """Let each lane begin at its next pending message, and drop lanes without one before their end."""
    for lane in list(begins):
        run = lane.pending_lane.pending_run(begins[lane], 1)
        if run is None or run[0] >= ends[lane]:
            del begins[lane]
        else:
            begins[lane] = run[0]


def _add_direct(target: TargetList, first: int, last: int, found: dict[int, StoredMessage]) -> None:
    """Add the direct messages of a list between two sequences of one block."""
    if target.direct and target.direct[-1][0] >= first:
        at = bisect_left(target.direct, first, key=_sequence)
        for message in islice(target.direct, at, at + BLOCK_MESSAGES):
            if message[0] <= last and message[2] is not None:
                found[message[0]] = message


def _pass_over(lane: LaneState, sequence: int, problem: str) -> None:
    logger.error(
        "message %s can't be read and is passed over: %s",
        f"{lane.id_prefix}{sequence}",
        problem,
        event="message_unreadable",
    )


def _is_wanted(matcher: SelectorMatcher, lane: LaneState, message: StoredMessage, survey: BlockSurvey | None) -> bool:
    try:
        return matcher.examine(lane, message, survey)
    except RecordDamaged as damage:
        _pass_over(lane, message[0], str(damage))
        return False


def browsed_message(lane: LaneState, message: StoredMessage) -> Message | None:
    """Return the message as it was sent, with the id that send returned.

    None: its headers can't be decoded, which is logged.
    """
    sequence, properties, body, _ = message
    assert body is not None
    try:
        headers, own_id = decode_properties(properties) if properties else ({}, None)
        group = group_of(properties)
    except RecordDamaged as damage:
        _pass_over(lane, sequence, str(damage))
        return None
    message_id = own_id if own_id is not None else f"{lane.id_prefix}{sequence}"
    return Message(
        body,
        headers=headers,
        priority=lane.pending_lane.priority,
        message_id=message_id,
        persistent=lane.is_persistent,
        group=group,
    )


def _choose(lane: LaneState, begin: int, end: int, room: int) -> tuple[list[tuple[int, int]], int, int]:
    """Return (runs, content bytes, number of messages) of pending messages in one block, at least one message.

    room: most bytes that the messages may be charged, unless it is one message alone.
    """
    runs: list[tuple[int, int]] = []
    content_bytes = count = 0
    while begin < end:
        pending = lane.pending_lane.pending_run(begin, BLOCK_MESSAGES)
        if pending is None or pending[0] >= end or (runs and pending[0] >> BLOCK_SHIFT != runs[0][0] >> BLOCK_SHIFT):
            break
        first, last = pending[0], min(pending[1], end - 1)
        begin = first
        for length in lane.pending_lane.lengths(first, last):
            charge = length + OVERHEAD_BYTES
            if count and charge > room:
                break
            room -= charge
            content_bytes += length
            count += 1
            begin += 1
        if begin > first:
            runs.append((first, begin - 1))
        if begin <= last:
            break
    return runs, content_bytes, count


def _without(runs: list[tuple[int, int]], held: list[StoredMessage]) -> list[tuple[int, int]]:
    """Return the parts of the runs that are not in RAM."""
    missing = SequenceSet()
    for first, last in runs:
        missing.add(first, last)
    for message in held:
        missing.remove(message[0], message[0])
    return list(missing)


def _place(queue: QueueState, message_id: str) -> tuple[LaneState, int] | None:
    """Return the place of the message with an id of this store. None: the store generates no such id."""
    for lane in queue.all_lanes():
        digits = message_id.removeprefix(lane.id_prefix)
        if digits != message_id and digits.isascii() and digits.isdigit() and len(digits) <= SEQUENCE_DIGITS_MAX:
            sequence = int(digits)
            return (lane, sequence) if str(sequence) == digits else None
    return None
