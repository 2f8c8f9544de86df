"""FullPolicy: at a full destination, drop the oldest messages or make the new one a dead letter, as its policy says.

Dropped messages are removed by records like those of acks, so no dropped message comes back. A dead letter is stored
once, in the dead-letter queue, with headers that say why. So a crash never leaves the message in both queues or in
neither. A dead letter is stored regardless of the limits of its queue, and even while a full disk refuses sends.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count, zip_longest
from typing import Final, cast

from ...store.checkpoint.checkpointer import Checkpointer
from ...store.errors import SettingsError
from ...store.format.contents import Contents
from ...store.format.message_properties import decode_properties, encode_properties, group_of
from ...store.journal.fullness import Fullness
from ...store.message import HeaderValue
from ...store.message_store import MessageStore
from ...store.structures.sequence_set import SequenceSet
from ...store.tmp.non_persistent_lane import NonPersistentLane
from ..config.policies import Policies
from ..config.redelivery_delays import ATTEMPTS, FROM, FULL, REASON, TIME, dead_letter_headers
from ..core.destinations.dead_letter_queues import DeadLetterQueues
from ..core.destinations.destination_state import DestinationState
from ..core.model.destination import LaneState
from ..core.monitor import Monitor
from ..core.publisher import Publisher
from ..core.redelivery.removal import Removals

INDEX_BLOCKS: Final = 3
"""Most blocks of the index that a dead letter makes dirty."""
EXAMINED_RUN_MESSAGES_MAX: Final = 4096
"""Most messages in a run that is looked at to make room for bytes."""


class _Oldest:
    """A lane whose first messages are dropped, except messages in flight."""

    def __init__(self, removals: Removals, lane: LaneState) -> None:
        self.lane = lane
        self.gone = SequenceSet()
        self._at = 0
        self._held = removals.held(lane)

    def run(self, most: int) -> tuple[int, int] | None:
        """Return the next run of messages that may be dropped as (first, last), at most `most` messages, or None."""
        pending_lane, end = self.lane.pending_lane, self.lane.published_end
        while (run := pending_lane.pending_run(self._at, most)) is not None and run[0] < end:
            first, last = run[0], min(run[1], end - 1)
            held = self._held.next_from(first)
            if held is None or held[0] > last:
                return first, last
            if held[0] > first:
                return first, held[0] - 1
            self._at = held[1] + 1
        return None

    def remove(self, first: int, last: int) -> int:
        """Remove a run that `run` returned, or its first part; return how many messages were removed."""
        removed = self.lane.backing_store.acknowledge(self.lane.pending_lane, first, last)
        self.gone.add(first, last)
        self._at = last + 1
        return removed


class FullPolicy:
    """The full policy of an open store. The state lock guards it."""

    def __init__(
        self,
        *,
        monitor: Monitor,
        message_store: MessageStore,
        fullness: Fullness,
        checkpointer: Checkpointer,
        epoch: int,
        publisher: Publisher,
        queues: DeadLetterQueues,
        removals: Removals,
        policies: Policies,
    ) -> None:
        """epoch: that of the journal at the open, which no other open has."""
        self._monitor = monitor
        self._message_store, self._fullness, self._checkpointer = message_store, fullness, checkpointer
        self._epoch = epoch
        self._publisher = publisher
        self._queues = queues
        self._removals = removals
        self._policies = policies
        self._drop_numbers = count(1)

    def drop_oldest(self, destination: DestinationState, messages: int, size_bytes: int) -> int:
        """Remove the oldest messages: at least so many, with at least so many bytes, if there are. Return how many.

        Messages of the lowest priority go first, and of one priority the oldest. Each run is one record. If only bytes
        are missing, the lengths of messages decide how many go. So each run that is looked at may be twice as long as
        the one before, up to EXAMINED_RUN_MESSAGES_MAX. Requires: the lock. StoreFull or StoreFailed: messages removed
        so far stay removed.
        """
        removed, most = 0, 1
        for persistent, non_persistent in zip_longest(destination.lanes, destination.non_persistent_lanes):
            lanes = [_Oldest(self._removals, lane) for lane in (persistent, non_persistent) if lane is not None]
            try:
                while (messages > 0 or size_bytes > 0) and (found := _next(lanes, max(messages, most))) is not None:
                    oldest, first, last = found
                    lengths = list(oldest.lane.pending_lane.lengths(first, last))
                    chosen, chosen_bytes = _choose(lengths, messages, size_bytes)
                    dropped = oldest.remove(first, first + chosen - 1)
                    destination.count_dropped(dropped)
                    removed += dropped
                    messages -= chosen
                    size_bytes -= chosen_bytes
                    most = min(2 * most, EXAMINED_RUN_MESSAGES_MAX)
            finally:
                for oldest in lanes:
                    self._removals.forget(oldest.lane, oldest.gone)
        return removed

    def dead_letter(
        self, destination: DestinationState, priority: int, persistent: bool, properties: bytes, body: bytes
    ) -> str | None:
        """Store a new message in the dead-letter queue of its destination; return its id. None: the message is lost.

        It is lost if the policy names no dead-letter queue. The record is not synced yet. StoreFull: nothing is stored,
        because the disk has no room for dead letters either. Requires: no lock.
        """
        message_store, monitor = self._message_store, self._monitor
        to = self._policies.redelivery(destination.name).dead_letter_queue
        if to is None:
            with monitor.lock, monitor.all_or_broken:
                destination.count_dropped(1)
            return None
        self._checkpointer.require_index_room(INDEX_BLOCKS)
        timestamp = monitor.clock_ms()
        own_id, group, properties = _stamped(destination, timestamp, properties)
        with monitor.lock, monitor.while_open:
            with self._fullness.accepting_replacements():
                has_message_groups = group is not None
                if persistent:
                    target = self._queues.lane(to, priority, has_message_groups=has_message_groups)
                    id_prefix = target.id_prefix
                    contents = Contents([properties], [body])
                    sequence = message_store.append_slice(target.destination_lane, timestamp, contents)
                    self._publisher.publish_when_durable(target, ((sequence, properties, body, timestamp),))
                else:
                    non_persistent = self._queues.non_persistent_lane_state(
                        to, priority, has_message_groups=has_message_groups
                    )
                    id_prefix = non_persistent.id_prefix
                    sequence = non_persistent.add(timestamp, properties, body)
            destination.counters.dead_lettered += 1
        return own_id if own_id is not None else f"{id_prefix}{sequence}"

    def dropped_id(self, id_prefix: str) -> str:
        """Return an id for a message that was never stored; only its sender gets it."""
        return f"{id_prefix}dropped-{self._epoch}-{next(self._drop_numbers)}"


def _choose(lengths: Sequence[int], messages: int, size_bytes: int) -> tuple[int, int]:
    """Return how many of the first messages must go to free so many messages and bytes, and their bytes.

    lengths: of each message. If all of them are not enough, all must go.
    """
    chosen = chosen_bytes = 0
    while chosen < len(lengths) and (chosen < messages or chosen_bytes < size_bytes):
        chosen_bytes += lengths[chosen]
        chosen += 1
    return chosen, chosen_bytes


def _next(lanes: list[_Oldest], most: int) -> tuple[_Oldest, int, int] | None:
    """Return the oldest run across the persistent and the non-persistent lane of one priority, with its lane."""
    runs = [(oldest, run) for oldest in lanes if (run := oldest.run(most)) is not None]
    if not runs:
        return None
    if len(runs) == 1:
        oldest, run = runs[0]
        return oldest, *run
    (persistent, of_persistent), (non_persistent, of_non_persistent) = runs
    pending_lane = cast(NonPersistentLane, non_persistent.lane.pending_lane)
    before = pending_lane.next_persistent(of_non_persistent[0])
    if of_persistent[0] < before:
        return persistent, of_persistent[0], min(of_persistent[1], before - 1)
    return (
        non_persistent,
        of_non_persistent[0],
        min(of_non_persistent[1], pending_lane.next_non_persistent(of_persistent[0]) - 1),
    )


def _stamped(destination: DestinationState, timestamp: int, properties: bytes) -> tuple[str | None, str | None, bytes]:
    """Return own id, group and properties of a dead letter: without times, with headers that say why if they fit."""
    added: dict[str, HeaderValue] = {FROM: destination.name, REASON: FULL, ATTEMPTS: 0, TIME: timestamp}
    headers, own_id = decode_properties(properties) if properties else ({}, None)
    group = group_of(properties) if properties else None
    try:
        return own_id, group, encode_properties(dead_letter_headers(headers, added), own_id, group)
    except SettingsError:
        return own_id, group, encode_properties(headers, own_id, group)
