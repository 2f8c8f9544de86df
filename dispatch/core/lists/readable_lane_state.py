"""ReadableLaneState: how the messages of a lane are found, read, and counted on record.

A list is filled from here: the caches may have its next messages, fingerprints say which blocks need no look, and the
store on disk has the rest. Neither the destination nor its consumers and lists are known here; LaneState, in model.py,
adds them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from ....cache.messages.message_memory import MessageMemory
from ....store.errors import StoreFailed
from ....store.format.return_record import ReturnedRun
from ....store.format.state_record import CountedRun
from ....store.index.fingerprint import BlockSurvey
from ....store.index.fingerprints import Candidate
from ....store.index.pending_lane import PendingLane
from ....store.numbering import UNLIMITED
from ....store.stored_message import StoredMessage
from ...selectors.selector import Selector
from ..deliveries.contracts import LaneCache, LanePendingCache
from ..deliveries.lane_deliveries import Delivery, LaneMessages, counted_runs
from ..deliveries.lane_state_parts import LaneStateParts
from ..selector_groups.matching import NO_NAMES
from .pager import READ_AGAIN


class ReadableLaneState(LaneMessages):
    """Dispatch's state of a lane, as lists and loads read it. The state lock guards it.

    The methods here say what is so for a lane in the journal of which no feature asks more. Subclasses differ.
    """

    __slots__ = ("parts", "purge_count", "is_timed", "pending_cache", "caches", "pager")

    def __init__(self, pending_lane: PendingLane, id_prefix: str, memory: MessageMemory, parts: LaneStateParts) -> None:
        counts, syncs = parts.delivery_count_table, parts.syncs_always
        super().__init__(pending_lane, id_prefix, memory, parts.message_store, counts, syncs=syncs)
        self.parts = parts
        # How often messages were removed from the middle. A load that began before a removal must check again.
        self.purge_count = 0
        # Whether messages have, or had, a delay or an expiry; see core/redelivery/timed_lanes.py.
        self.is_timed = False
        # The cache for messages for which a list has no room.
        self.pending_cache: LanePendingCache = memory.pending_cache
        # The caches that may hold a message that is in no list.
        self.caches: tuple[LaneCache, ...] = (memory.pending_cache, memory.head_queue_cache)
        # Handles messages that must leave RAM.
        self.pager = READ_AGAIN

    def read_one(self, sequence: int) -> StoredMessage:
        """Read one pending message into the caller's own memory. Requires: no lock."""
        return self.parts.reader.read_one(self, sequence)

    def read_headers(self, sequence: int) -> StoredMessage:
        """Read one pending message, in pieces, with an empty body if it is not in RAM. Requires: no lock."""
        return self.parts.reader.read_headers(self, sequence)

    def read_error(self, problem: str) -> StoreFailed:
        """Return the error for a message that can't be read."""
        return StoreFailed(f"a message of {self.destination_name!r} can't be read ({problem})")

    def drop_copies(self, sequence: int) -> None:
        """Drop the cached copies of a message, because whoever has it needs no copy."""
        for cache in self.caches:
            cache.take(self.pending_lane.number, sequence)

    def peek(self, sequence: int) -> StoredMessage | None:
        """Return a message if RAM holds it; the copy in RAM may be the only one."""
        return None

    def skip_names(self, selector: Selector | None) -> frozenset[str]:
        """Return the headers by which a scan for a selector may skip blocks: all that the selector names, or none."""
        return NO_NAMES

    def next_candidate(self, selector: Selector, names: frozenset[str], sequence: int) -> Candidate | None:
        """Return where the next message may be that a selector matches. None: there is none.

        names: the `skip_names` of the selector. O(blocks); it reads none of them.
        """
        return Candidate(sequence, NO_NAMES)

    def note_survey(self, survey: BlockSurvey) -> None:
        """Take in the headers of examined messages."""

    def make_survey_room(self) -> None:
        """Make room for what `note_survey` takes in next, if there is none. Requires: no lock."""

    def note_unmatched(self, first: int, end: int) -> None:
        """Note that no message matches from a sequence up to another one, exclusively."""

    @property
    def list_bytes_max(self) -> int:
        """Most bytes that a list over this lane should hold."""
        return UNLIMITED

    @property
    def reads_for_others(self) -> bool:
        """Whether messages that are read for one of its lists will soon be needed by others."""
        return False

    def load_room(self, list_bytes: int, first: int) -> int:
        """Return how many bytes a load from this sequence on may bring for a list that has room for so many.

        EagerLoader.begin calls it. Default: as many as the list has room for.
        """
        return list_bytes

    def waits_for_takes(self, sequence: int, room_bytes: int) -> bool:
        """Return whether the first message from this sequence on stays where it is until somebody asks for it.

        room_bytes: what its list has room for. Default: the loader puts it into the list ahead of that.
        """
        return False

    @property
    def is_recorded(self) -> bool:
        """Whether acks of this lane are in the journal."""
        return self.is_persistent

    def is_retained(self, sequence: int) -> bool:
        """Return False: only a lane of non-persistent messages can hold a retained message."""
        return False

    def record_attempts(self, runs: Sequence[CountedRun]) -> None:
        """Write the delivery counts of these runs to the journal."""
        self.parts.return_counts.count(self.pending_lane.number, runs)
        self.delivery_counts = self.delivery_count_table.find(self.pending_lane.number)

    def record_returns(self, runs: Sequence[ReturnedRun], now_ms: int) -> None:
        """Record the attempts of runs, some of which are offered again later."""
        self.parts.return_counts.put(self.pending_lane.number, runs, now_ms)
        self.delivery_counts = self.delivery_count_table.find(self.pending_lane.number)

    def count_hand_outs(self, deliveries: Sequence[Delivery]) -> None:
        """Count deliveries of a lane to which a message has come back before.

        Counts of messages that came back, or that a killed process may have had, are written now. Otherwise a message
        that kills this process as well would do so for ever. Requires: `delivery_counts` is not None.
        """
        known = self.delivery_counts
        assert known is not None
        counted = [delivery for delivery in deliveries if known.find(delivery.sequence) is not None]
        if counted:
            self.record_attempts(counted_runs(counted))

    @abstractmethod
    def give_up(self, sequence: int) -> None:
        """Give up a message that can't be read and that a list has passed."""

    def quarantine(self, sequence: int) -> bool:
        """Set aside a message that can't be read, if it is in the journal; return whether it was. Requires: no lock."""
        return False

    @abstractmethod
    def remove_all(self) -> None:
        """Remove all messages, because the queue is deleted or the subscription has ended."""
