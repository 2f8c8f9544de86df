"""What lanes and lists ask of the store, of caches, and of whatever a selector judges, in words of their own.

Protocols: what fulfils them lies below, in store and cache, and knows nothing of them. TargetArea, consumers and
distributions are asked by way of the abstract classes ListKeeper, Taker and Distribution; these stand in model.py,
because their methods take and return the lanes, lists and deliveries that know them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from ....store.format.record import Returned
from ....store.format.state import CountedRun
from ....store.index.destination_lane import DestinationLane
from ....store.index.fingerprint import BlockSurvey
from ....store.index.fingerprints import Candidate, Question
from ....store.index.pending_lane import JournaledLane
from ....store.sequence_set import SequenceSet
from ....store.stored_message import StoredMessage

ReadResult = tuple[list[StoredMessage], list[tuple[int, str]]]
"""Messages in order, and (sequence, problem) of those that can't be read."""


class MessageSource(Protocol):
    """Where a message was sent, as far as it can be asked for that."""

    @property
    def priority(self) -> int: ...
    @property
    def id_prefix(self) -> str: ...
    @property
    def delivery_mode(self) -> str: ...


OwnLane = Any
"""A lane that this store made: a JournaledLane of MessageStore, a NonPersistentLane of Overflow."""
OwnRegion = Any
"""What `plan` of this store returned: a Region of the journal, a TmpRegion of tmp-storage."""


class BackingStore(Protocol):
    """Where the messages of a lane are that RAM has no place for: MessageStore, or Overflow.

    A LaneState has its store and its pending lane from its maker, and gives the one the other; regions go back to the
    store that planned them. So the types of both are left open: a parameter of type would spread to lanes and lists.
    """

    @property
    def timetable(self) -> LaneDueTimes:
        """Return what finds the messages whose time has come."""

    def acknowledge(self, lane: OwnLane, first: int, last: int) -> int:
        """Acknowledge a run; returns how many were pending. Requires: the lock."""

    def acknowledge_one(self, lane: OwnLane, sequence: int) -> int:
        """Acknowledge one message."""

    def plan(self, lane: OwnLane, runs: Sequence[tuple[int, int]]) -> list[OwnRegion]:
        """Plan how to read these pending sequences, each run inside one block. Requires: the lock."""

    def read(self, regions: Sequence[OwnRegion]) -> ReadResult:
        """Read what was planned. Requires: no lock."""

    def read_headers(self, regions: Sequence[OwnRegion], pay: Callable[[int], None]) -> ReadResult:
        """Read the one message that was planned, in pieces, with an empty body. Requires: no lock.

        pay: is called with each number of bytes before so many are in RAM.
        """


class PersistentStore(BackingStore, Protocol):
    """The BackingStore of messages that survive a restart, MessageStore: what their lanes ask of it beyond that."""

    def raise_if_closed(self) -> None:
        """Raise Closed where it is closed, or is just closing."""

    def next_candidate(
        self, lane: DestinationLane, names: frozenset[str], sequence: int, may_match: Question
    ) -> Candidate | None:
        """Return where the next message may be that a selector matches. Requires: the lock."""

    def note_survey(self, lane: DestinationLane, survey: BlockSurvey) -> None:
        """Take in what the headers of examined messages are. Requires: the lock."""

    def quarantine(self, lane: JournaledLane, sequence: int) -> bool:
        """Set aside a message that can't be read. Requires: no lock."""


class ReturnCounts(Protocol):
    """Where it is written how often messages came back, as ReturnRecords does. Every method requires the lock."""

    def count(self, lane_number: int, runs: Sequence[CountedRun]) -> None: ...

    def put(self, lane_number: int, runs: Sequence[Returned], now_ms: int = 0) -> None: ...


class LaneDueTimes(Protocol):
    """As DueTimes. Every method requires the lock."""

    def release(self, lane: OwnLane, now_ms: int, most_blocks: int) -> list[tuple[int, int]]: ...

    def expired_blocks(self, lane: OwnLane, now_ms: int) -> list[int]: ...

    def expired(self, lane: OwnLane, number: int, now_ms: int) -> Iterator[tuple[int, int]]: ...

    def refresh_expiry(self, lane: OwnLane) -> None: ...


class LaneCache(Protocol):
    """Where messages of a lane may be that are in RAM and in no list."""

    served: int

    def has(self, lane_number: int) -> bool: ...

    def may_have(self, lane_number: int, last: int) -> bool: ...

    def peek(self, lane_number: int, sequence: int) -> StoredMessage | None: ...

    def take(self, lane_number: int, sequence: int) -> StoredMessage | None: ...

    def is_shared(self, lane_number: int) -> bool: ...


class OverflowCache(LaneCache, Protocol):
    """The cache that takes what a list has no room for."""

    def put(self, lane_number: int, message: StoredMessage) -> bool: ...

    def put_overflow(self, lane_number: int, message: StoredMessage, *, is_near: bool) -> bool: ...

    def forget_runs(self, lane_number: int, gone: SequenceSet) -> None: ...
