"""SliceWriter: write slices of messages with deduplication, and slices of messages with times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from ...store.format.contents import Contents
from ...store.format.identity import Identity
from ...store.format.times import MessageTimes, has_times, times_of, times_of_each
from ...store.message_store import MessageStore
from ..admission.duplicate_windows import DuplicateWindows, identity_of
from ..core.destinations.destination_state import DestinationState
from ..core.lanes.non_persistent_lane_state import NonPersistentLaneState
from ..core.lanes.persistent_lane_state import PersistentLaneState
from ..core.monitor import Monitor
from ..core.publisher import Publisher
from ..core.redelivery.timed_lanes import TimedLanes
from ..topics.state.fan_out import FanOut

_THREE_DIGITS: Final = [f"{number:03}" for number in range(1000)]


class SliceWriter:
    """The slice writer of an open store. Plain messages do not come here."""

    def __init__(
        self,
        monitor: Monitor,
        message_store: MessageStore,
        now_ms: Callable[[], int],
        publisher: Publisher,
        timed: TimedLanes,
        windows: DuplicateWindows,
    ) -> None:
        """now_ms: the store's time. timed: knows the lanes that have messages with times.

        windows: know the ids that were sent.
        """
        self._monitor = monitor
        self._message_store = message_store
        self._now_ms = now_ms
        self._publisher = publisher
        self._timed = timed
        self._windows = windows

    def fresh(self, destination: DestinationState, contents: Contents) -> int:
        """Return how many of the first messages are new: not stored yet, with different ids. Requires: no lock.

        Raise TransactionError as DuplicateWindows.is_stored does.
        """
        seen: set[Identity] = set()
        with self._monitor.lock, self._monitor.all_or_broken:
            for count, properties in enumerate(contents.properties):
                sent = identity_of(destination.number, properties)
                if sent is None:
                    continue
                if sent in seen or self._windows.is_stored(sent):
                    return count
                seen.add(sent)
        return len(contents)

    def store_once(
        self,
        lane: PersistentLaneState,
        timestamp: int,
        contents: Contents,
        own_ids: Sequence[str | None],
        ids: list[str],
    ) -> None:
        """Write the messages of a slice that are not stored yet; add the ids of all to `ids`. Requires: no lock.

        StoreFull: `ids` has the ids of the first messages, which are stored.
        """
        identities = [identity_of(lane.destination.number, properties) for properties in contents.properties]
        with self._monitor.lock, self._monitor.all_or_broken:
            if has_times(contents.properties[0]):
                timestamp = self._now_ms()
            fresh = self._fresh_places(identities)
            done = 0
            while fresh:
                capacity = lane.destination_lane.slice_capacity
                part, fresh = fresh[:capacity], fresh[capacity:]
                first = self._write_fresh(lane, timestamp, contents.at(part), _known(identities, part))
                sequences = dict(zip(part, range(first, first + len(part)), strict=True))
                behind = fresh[0] if fresh else len(contents)
                ids += [own_ids[at] or f"{lane.id_prefix}{sequences[at]}" for at in range(done, behind)]
                done = behind
            ids += [own_id for own_id in own_ids[done:] if own_id is not None]

    def _fresh_places(self, identities: Sequence[Identity | None]) -> list[int]:
        """Return the places in a slice of messages that are not stored yet and repeat no earlier one.

        Requires: the lock.
        """
        seen: set[Identity] = set()
        fresh: list[int] = []
        for at, sent in enumerate(identities):
            if sent is None:
                fresh.append(at)
            elif sent not in seen and not self._windows.is_stored(sent):
                fresh.append(at)
                seen.add(sent)
        return fresh

    def _write_fresh(
        self,
        lane: PersistentLaneState,
        timestamp: int,
        part: Contents,
        identities: list[Identity],
    ) -> int:
        """Store new messages and publish them; return the first sequence. Requires: the lock."""
        times = times_of_each(part.properties) if has_times(part.properties[0]) else []
        first = self._message_store.append_slice(lane.destination_lane, timestamp, part, times, identities)
        if times:
            self._publish_timed(lane, timestamp, first, part, times)
            return first
        self._publisher.publish_when_durable(lane, part.arrived(first, timestamp))
        return first

    def keep_once(
        self,
        lane: NonPersistentLaneState | FanOut,
        timestamp: int,
        contents: Contents,
        own_ids: Sequence[str | None],
        ids: list[str],
    ) -> None:
        """Add non-persistent messages, each id once. The known ids end with the process, as the messages do.

        Requires: the lock.
        """
        for (properties, body), own_id in zip(contents.pairs(), own_ids, strict=True):
            sent = identity_of(lane.destination.number, properties)
            if sent is not None and own_id is not None and self._windows.is_stored(sent):
                ids.append(own_id)
                continue
            if has_times(properties):
                sequence = lane.add_timed(timestamp, properties, body, times_of(properties))
            else:
                sequence = lane.add(timestamp, properties, body)
            if sent is not None:
                self._windows.non_persistent.remember(sent)
            ids.append(own_id if own_id is not None else f"{lane.id_prefix}{sequence}")

    def store_timed(
        self,
        lane: PersistentLaneState,
        contents: Contents,
        sizes: list[int],
        own_ids: list[str | None],
        ids: list[str],
    ) -> None:
        """Write one slice of messages with times, or two at the end of a block. Requires: no lock.

        sizes: bytes of each content. StoreFull: `ids` has the ids of the first messages, which are stored.
        """
        begin = 0
        with self._monitor.lock, self._monitor.all_or_broken:
            timestamp = self._now_ms()
            destination_lane = lane.destination_lane
            while begin < len(contents):
                end = begin + destination_lane.slice_capacity
                part, lengths, own = contents.part(begin, end), sizes[begin:end], own_ids[begin:end]
                times = times_of_each(part.properties)
                first = self._message_store.append_slice(destination_lane, timestamp, part, times, lengths=lengths)
                self._publish_timed(lane, timestamp, first, part, times)
                ids += ids_of(lane.id_prefix, first, own)
                begin += len(part)

    def _publish_timed(
        self,
        lane: PersistentLaneState,
        timestamp: int,
        first: int,
        part: Contents,
        times: Sequence[MessageTimes],
    ) -> None:
        """Publish stored messages with times; `first` is the sequence of the first one. Requires: the lock."""
        self._timed.note(lane)
        is_alike = times.count(times[0]) == len(times)
        if times[0].due_at or (not is_alike and any([due_at for _, due_at in times])):
            self._publisher.publish_when_durable(lane, range(first, first + len(part)))
            return
        self._publisher.publish_when_durable(lane, part.arrived(first, timestamp))


def ids_of(prefix: str, first: int, own_ids: list[str | None]) -> list[str]:
    """Return the id of each message of a slice: its own, or one with its sequence. first: sequence of the first one."""
    if own_ids.count(None) == len(own_ids):
        return _generated_ids(prefix, first, len(own_ids))
    return [own if own is not None else f"{prefix}{first + at}" for at, own in enumerate(own_ids)]


def _generated_ids(prefix: str, first: int, count: int) -> list[str]:
    """Return the id of each of so many sequences. A thousand of them differ in the last three digits only."""
    ids: list[str] = []
    behind = first + count
    while first < behind:
        thousands, at = divmod(first, 1000)
        part = min(behind - first, 1000 - at)
        if thousands:
            beginning = f"{prefix}{thousands}"
            ids += [beginning + digits for digits in _THREE_DIGITS[at : at + part]]
        else:
            ids += [f"{prefix}{sequence}" for sequence in range(first, first + part)]
        first += part
    return ids


def _known(identities: Sequence[Identity | None], part: Sequence[int]) -> list[Identity]:
    return [found for at in part if (found := identities[at]) is not None]
