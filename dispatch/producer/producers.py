"""Producers: what the senders of an open store share, and ids that count once.

Requires the state lock where a method says so. A crash leaves what the journal has.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from ...store.format.identity import Identity
from ...store.format.record import SLICE_MESSAGES_MAX
from ...store.format.times import Times, has_times, times_of, times_of_each
from ..admission.deduplication import DuplicateWindows, identity_of
from ..config.policies import Policies
from ..config.settings import Settings
from ..core.delays import TimedLanes
from ..core.model import DestinationState, NonPersistentLaneState, PersistentLaneState
from ..core.parts import CoreParts
from ..topics.registry import Topics
from ..topics.state import FanOut
from ..transactions.transaction import TransactionRegistry
from .lifetimes import Lifetimes
from .space import Space


class Producers:
    """What the senders of an open store share. The state lock guards what changes."""

    def __init__(
        self,
        parts: CoreParts,
        *,
        topics: Topics,
        transactions: TransactionRegistry,
        timed: TimedLanes,
        windows: DuplicateWindows,
        space: Space,
        policies: Policies,
        settings: Settings,
    ) -> None:
        self.monitor = parts.monitor
        self.lock = self.monitor.lock
        self.bare_lock, self.is_inside = self.monitor.bare_lock, self.monitor.is_inside
        self.clock_ms = self.monitor.clock_ms
        self.store = parts.store
        self.journal = self.store.journal
        self.target_area = parts.target_area
        self.publisher = parts.publisher
        self.syncs_always = self.publisher.syncs_always
        self.destinations = parts.destinations
        self.topics = topics
        self.transactions = transactions
        self.removals = parts.removals
        self.timed = timed
        self.lifetimes = Lifetimes(self.store.steady.now_ms)
        self.windows = windows
        self.space = space
        self.policies = policies
        self.drop_numbers = count(1)
        """For the ids of messages that never were stored."""
        self.slice_messages_max = SLICE_MESSAGES_MAX if settings.use_vectored_io else 1
        self.limit_messages(settings)

    def limit_messages(self, settings: Settings) -> None:
        """Take over how large a message may be. Requires: the lock, or nobody else."""
        self.max_message_bytes = min(settings.max_message_size_bytes, settings.memory_limit_bytes)
        self.is_limited_by_setting = settings.max_message_size_bytes <= settings.memory_limit_bytes

    # ------------------------------------------------------------------ ids that count once, times

    def fresh(self, destination: DestinationState, batch: Sequence[tuple[bytes, bytes]]) -> int:
        """Return how many of the first are not stored yet, and different from each other. Requires: no lock.

        TransactionError as DuplicateWindows.is_stored.
        """
        seen: set[Identity] = set()
        with self.lock, self.monitor.whole:
            for count, (properties, _) in enumerate(batch):
                found = identity_of(destination.number, properties)
                if found is None:
                    continue
                if found in seen or self.windows.is_stored(found):
                    return count
                seen.add(found)
        return len(batch)

    def store_once(
        self,
        lane: PersistentLaneState,
        timestamp: int,
        batch: Sequence[tuple[bytes, bytes]],
        own_ids: Sequence[str | None],
        ids: list[str],
    ) -> None:
        """Write the messages of a slice that are not stored yet; ids gets the ids of all. Requires: no lock.

        StoreFull: ids says how many of the first are in.
        """
        identities = [identity_of(lane.destination.number, properties) for properties, _ in batch]
        with self.lock, self.monitor.whole:
            if has_times(batch[0][0]):
                timestamp = self.store.steady.now_ms()
            fresh = self._fresh_places(identities)
            done = 0
            while fresh:
                room = lane.destination_lane.slice_room
                part, fresh = fresh[:room], fresh[room:]
                first = self._write_fresh(lane, timestamp, [batch[at] for at in part], _known(identities, part))
                sequences = dict(zip(part, range(first, first + len(part)), strict=True))
                behind = fresh[0] if fresh else len(batch)
                ids += [own_ids[at] or f"{lane.id_prefix}{sequences[at]}" for at in range(done, behind)]
                done = behind
            ids += [own_id for own_id in own_ids[done:] if own_id is not None]

    def _fresh_places(self, identities: Sequence[Identity | None]) -> list[int]:
        """Return which of a slice are not stored yet, and no repetition of another. Requires: the lock."""
        seen: set[Identity] = set()
        fresh: list[int] = []
        for at, found in enumerate(identities):
            if found is None:
                fresh.append(at)
            elif found not in seen and not self.windows.is_stored(found):
                fresh.append(at)
                seen.add(found)
        return fresh

    def _write_fresh(
        self,
        lane: PersistentLaneState,
        timestamp: int,
        part: list[tuple[bytes, bytes]],
        identities: list[Identity],
    ) -> int:
        """Store messages that are fresh and let them arrive; return the first sequence. Requires: the lock."""
        times = times_of_each(part) if has_times(part[0][0]) else []
        first = self.store.append_slice(lane.destination_lane, timestamp, part, times, identities)
        if times:
            self.arrive_timed(lane, timestamp, first, part, times)
            return first
        arrived = [(sequence, properties, body, timestamp) for sequence, (properties, body) in enumerate(part, first)]
        self.publisher.publish_when_durable(lane, arrived)
        return first

    def keep_once(
        self,
        lane: NonPersistentLaneState | FanOut,
        timestamp: int,
        batch: Sequence[tuple[bytes, bytes]],
        own_ids: Sequence[str | None],
        ids: list[str],
    ) -> None:
        """Store non-persistent messages once each. What no crash leaves, no id outlives. Requires: the lock."""
        for (properties, body), own_id in zip(batch, own_ids, strict=True):
            found = identity_of(lane.destination.number, properties)
            if found is not None and own_id is not None and self.windows.is_stored(found):
                ids.append(own_id)
                continue
            if has_times(properties):
                sequence = lane.add_timed(timestamp, properties, body, times_of(properties))
            else:
                sequence = lane.add(timestamp, properties, body)
            if found is not None:
                self.windows.non_persistent.note(found)
            ids.append(own_id if own_id is not None else f"{lane.id_prefix}{sequence}")

    def store_timed(
        self,
        lane: PersistentLaneState,
        batch: Sequence[tuple[bytes, bytes]],
        own_ids: Sequence[str | None],
        ids: list[str],
    ) -> None:
        """Write one slice of messages with times, or two where it meets the end of a block. Requires: no lock.

        StoreFull: ids says how many of the first are in.
        """
        begin = 0
        with self.lock, self.monitor.whole:
            timestamp = self.store.steady.now_ms()
            while begin < len(batch):
                part = list(batch[begin : begin + lane.destination_lane.slice_room])
                times = times_of_each(part)
                first = self.store.append_slice(lane.destination_lane, timestamp, part, times)
                self.arrive_timed(lane, timestamp, first, part, times)
                behind = begin + len(part)
                ids += [
                    own or f"{lane.id_prefix}{sequence}" for sequence, own in enumerate(own_ids[begin:behind], first)
                ]
                begin = behind

    def arrive_timed(
        self,
        lane: PersistentLaneState,
        timestamp: int,
        first: int,
        part: Sequence[tuple[bytes, bytes]],
        times: Sequence[Times],
    ) -> None:
        """Let timed messages arrive that are stored, the first with that sequence. Requires: the lock."""
        self.timed.note(lane)
        if any([due_at for _, due_at in times]):
            self.publisher.publish_when_durable(lane, range(first, first + len(part)))
            return
        self.publisher.publish_when_durable(
            lane,
            [(sequence, properties, body, timestamp) for sequence, (properties, body) in enumerate(part, first)],
        )


def _known(identities: Sequence[Identity | None], part: Sequence[int]) -> list[Identity]:
    return [found for at in part if (found := identities[at]) is not None]
