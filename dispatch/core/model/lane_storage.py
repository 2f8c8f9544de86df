"""LaneStorage: what a lane has outside its lists, in caches and in the store, and what it asks of the store.

Loads fill the lists of a lane from here: from the caches first, then from the journal or tmp-storage. Messages that RAM
has no room for leave it here, through the pager. This module knows no list, consumer or destination.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ....cache.messages.message_memory import MessageMemory
from ....store.errors import StoreFailed
from ....store.format.return_record import ReturnedRun
from ....store.format.state_record import CountedRun
from ....store.index.delivery_counts import DeliveryCountTable
from ....store.index.fingerprint import BlockSurvey
from ....store.index.fingerprints import Candidate, Fingerprints
from ....store.index.pending_lane import PendingLane
from ....store.numbering import UNLIMITED
from ....store.stored_message import StoredMessage
from ....store.structures.sequence_set import SequenceSet
from ...selectors.selector import Selector
from ..lists.pager import READ_AGAIN
from .contracts import LaneCache, LanePendingCache, PersistentStore, ReturnCounts
from .delivery import Delivery, LaneMessages, counted_runs
from .lane_reader import LaneReader


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneStateParts:
    """The parts of the store on disk that every lane of an open store uses."""

    message_store: PersistentStore
    """Has the persistent messages."""
    fingerprints: Fingerprints
    """Say in which blocks a selector can match nothing."""
    make_fingerprint_room: Callable[[], None]
    """Checkpoints if RAM may have no room for the fingerprints of one more block. Requires: no lock."""
    delivery_count_table: DeliveryCountTable
    return_counts: ReturnCounts
    """Writes to the journal how often messages came back."""
    reader: LaneReader
    """Reads single messages for callers that look at a delivery without a body."""
    syncs_always: bool
    """Whether acks are durable before they are confirmed."""


class LaneStorage(LaneMessages):
    """A LaneMessages, and where its messages are outside the lists: in caches, in the journal or in tmp-storage.

    A method with a body here does what an ordinary queue needs. Subclasses for other lanes override it. The state lock
    guards it.
    """

    __slots__ = ("lane_state_parts", "unmatched", "purge_count", "pending_cache", "caches", "pager")

    def __init__(self, pending_lane: PendingLane, id_prefix: str, memory: MessageMemory, parts: LaneStateParts) -> None:
        """Make the storage of an open lane. memory: its messages are charged to it."""
        counts, syncs = parts.delivery_count_table, parts.syncs_always
        super().__init__(pending_lane, id_prefix, memory, parts.message_store, counts, syncs=syncs)
        self.lane_state_parts = parts
        # For a subscription with a selector: messages that do not match and are to be acknowledged for it.
        self.unmatched: SequenceSet | None = None
        # How often messages were removed from the middle. A load that began before a removal must check again.
        self.purge_count = 0
        # The cache for messages for which a list has no room.
        self.pending_cache: LanePendingCache = memory.pending_cache
        # The caches that may hold a message that is in no list.
        self.caches: tuple[LaneCache, ...] = (memory.pending_cache, memory.head_queue_cache)
        # Handles messages that must leave RAM.
        self.pager = READ_AGAIN

    # ------------------------------------------------------------------ caches

    def is_cached(self, sequence: int) -> bool:
        """Return whether a cache has a message."""
        return any(cache.peek(self.pending_lane.number, sequence) is not None for cache in self.caches)

    def drop_copies(self, sequence: int) -> None:
        """Drop the cached copies of a message, because its new holder has the body too."""
        for cache in self.caches:
            cache.take(self.pending_lane.number, sequence)

    # ------------------------------------------------------------------ single messages, read for deliveries

    def read_one(self, sequence: int) -> StoredMessage:
        """Read one pending message into the caller's own memory. Requires: no lock."""
        return self.lane_state_parts.reader.read_one(self, sequence)

    def read_headers(self, sequence: int) -> StoredMessage:
        """Read one pending message, in pieces, with an empty body if it is not in RAM. Requires: no lock."""
        return self.lane_state_parts.reader.read_headers(self, sequence)

    def read_error(self, problem: str) -> StoreFailed:
        """Return the error for a message that can't be read."""
        return StoreFailed(f"a message of {self.destination_name!r} can't be read ({problem})")

    # ------------------------------------------------------------------ scans for a selector

    @abstractmethod
    def skip_names(self, selector: Selector | None) -> frozenset[str]:
        """Return the headers by which a scan for a selector may skip blocks: all that the selector names, or none."""

    @abstractmethod
    def next_candidate(self, selector: Selector, names: frozenset[str], sequence: int) -> Candidate | None:
        """Return where the next message may be that a selector matches. None: there is none.

        names: the `skip_names` of the selector. Without names every message is a candidate, and no survey is made.
        O(blocks); it reads none of them.
        """

    @abstractmethod
    def note_survey(self, survey: BlockSurvey) -> None:
        """Take in the headers of examined messages."""

    @abstractmethod
    def make_survey_room(self) -> None:
        """Make room for what `note_survey` takes in next, if there is none. Requires: no lock."""

    def note_unmatched(self, first: int, end: int) -> None:
        """Note that no message matches from a sequence up to another one, exclusively.

        A subscription with a selector acknowledges them; for all other lanes this does nothing.
        """
        if self.unmatched is not None:
            self.unmatched.add(first, end - 1)

    # ------------------------------------------------------------------ how much is loaded

    @property
    def list_bytes_max(self) -> int:
        """Most bytes that a list over this lane should hold."""
        return UNLIMITED

    @property
    def reads_for_others(self) -> bool:
        """Whether other lists will soon need the messages that are read for one of them."""
        return False

    def load_room(self, list_bytes: int, first: int) -> int:
        """Return how many bytes a load from this sequence on may bring, for a list that has room for `list_bytes`.

        LoadChooser asks for each load. Default: `list_bytes`.
        """
        return list_bytes

    def waits_for_takes(self, sequence: int, room_bytes: int) -> bool:
        """Return whether the first message from this sequence on is loaded only when a take asks for it.

        room_bytes: what its list has room for. Default: the loader puts it into the list before a take.
        """
        return False

    def recheck_loads(self) -> None:
        """Have each load under way check when it ends which of its messages are still pending."""
        self.purge_count += 1

    # ------------------------------------------------------------------ what the journal is told

    @property
    def is_recorded(self) -> bool:
        """Whether acks of this lane are in the journal."""
        return self.is_persistent

    def record_attempts(self, runs: Sequence[CountedRun]) -> None:
        """Write the delivery counts of these runs to the journal."""
        self.lane_state_parts.return_counts.count(self.pending_lane.number, runs)
        self.delivery_counts = self.delivery_count_table.find(self.pending_lane.number)

    def record_returns(self, runs: Sequence[ReturnedRun], now_ms: int) -> None:
        """Record the attempts of runs, some of which are offered again later."""
        self.lane_state_parts.return_counts.put(self.pending_lane.number, runs, now_ms)
        self.delivery_counts = self.delivery_count_table.find(self.pending_lane.number)

    def count_attempts(self, deliveries: Sequence[Delivery]) -> None:
        """Count deliveries of a lane to which a message has come back before.

        Counts of messages that came back, or that a killed process may have had, are written now. Otherwise a message
        that kills this process as well would do so for ever. Requires: `delivery_counts` is not None.
        """
        known = self.delivery_counts
        assert known is not None
        counted = [delivery for delivery in deliveries if known.find(delivery.sequence) is not None]
        if counted:
            self.record_attempts(counted_runs(counted))

    # ------------------------------------------------------------------ the end of messages, and of the lane

    @abstractmethod
    def lose_unreadable(self, sequence: int) -> None:
        """Give up a message that can't be read and that a list has passed."""

    @abstractmethod
    def quarantine(self, sequence: int) -> bool:
        """Set aside a message that can't be read, if it is in the journal; return whether it was. Requires: no lock."""

    @abstractmethod
    def on_lane_ended(self) -> None:
        """Let go of all messages, because the destination or subscription has ended. Removals calls it."""
