"""Protocols: what lanes and lists need from the store, from the caches, and from messages that a selector judges.

The classes that fulfil these protocols are in store and cache, which do not know dispatch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

from ....store.format.return_record import ReturnedRun
from ....store.format.state_record import CountedRun
from ....store.index.journaled_lane import JournaledLane
from ....store.index.pending_lane import PendingLane
from ....store.journal.regions import Judge, Region
from ....store.stored_message import StoredMessage
from ....store.structures.sequence_set import SequenceSet

ReadResult = tuple[list[StoredMessage], list[tuple[int, str]]]
"""Messages in order, and a pair (sequence, problem) for each message that can't be read."""


class MessageSource(Protocol):
    """The destination of a message, as far as a selector can ask for it."""

    @property
    def priority(self) -> int: ...
    @property
    def id_prefix(self) -> str: ...
    @property
    def delivery_mode(self) -> str: ...


class AckTransaction(Protocol):
    """A transaction in which a delivery is settled. It is `Transaction`, which lies above the core."""

    @property
    def is_open(self) -> bool: ...
    def commit(self) -> None: ...
    def rollback(self) -> None: ...


PendingLaneT = TypeVar("PendingLaneT", bound=PendingLane, contravariant=True)
"""The lanes that a store makes."""
RegionT = TypeVar("RegionT")
"""What the store's `plan` returns and its `read` takes."""


class BackingStore(Protocol[PendingLaneT, RegionT]):
    """The `backing_store` of a lane, which has the messages of the lane that are not in RAM.

    It is MessageStore; Overflow for non-persistent messages; or UnrecordedStore for a subscription without a name. It
    is a Protocol, although each ack calls it, because the stores are below dispatch and can't inherit from its classes.
    """

    @property
    def due_times(self) -> LaneDueTimes[Any]:
        """Finds the messages that are due or expired."""

    def acknowledge(self, lane: PendingLaneT, first: int, last: int) -> int:
        """Acknowledge a run and return how many of its messages were pending. Requires: the lock."""

    def acknowledge_one(self, lane: PendingLaneT, sequence: int) -> int:
        """Acknowledge one message and return how many were pending. Requires: the lock."""

    def plan(self, lane: PendingLaneT, runs: Sequence[tuple[int, int]]) -> list[RegionT]:
        """Plan how to read these pending sequences, each run inside one block. Requires: the lock."""

    def read(self, regions: Sequence[RegionT], judge: Judge | None = None) -> ReadResult:
        """Read what was planned. Requires: no lock.

        judge: leaves out the messages that it does not want; None: all are wanted. Only a scan that takes a survey has
            a judge, and only persistent messages are surveyed.
        """

    def read_headers(self, region: RegionT, pay: Callable[[int], None]) -> ReadResult:
        """Read the one message of a region, in pieces, and return it with an empty body. Requires: no lock.

        pay: called with a number of bytes before that many more are in RAM.
        """


AnyBackingStore: TypeAlias = BackingStore[Any, Any]
"""The store of some lane, whose two types only the code that makes the lane knows: mypy checks there that they fit.

Python has no type for "a lane and a store that fit each other", but as type parameters of each class that holds a lane.
"""


class PersistentStore(BackingStore[JournaledLane, Region], Protocol):
    """The BackingStore of persistent messages, with what only their lanes ask. It is MessageStore."""

    def raise_if_closed(self) -> None:
        """Raise Closed if the store is closed or closing."""

    def quarantine(self, lane: JournaledLane, sequence: int) -> bool:
        """Set aside a message that can't be read. Requires: no lock."""


class ReturnCounts(Protocol):
    """Writes to the journal how often messages came back. It is ReturnWriter. Every method requires the lock."""

    def count(self, lane_number: int, runs: Sequence[CountedRun]) -> None: ...

    def put(self, lane_number: int, runs: Sequence[ReturnedRun], now_ms: int = 0) -> None: ...


class LaneDueTimes(Protocol[PendingLaneT]):
    """Finds the messages of a lane that are due or expired. It is DueTimes. Every method requires the lock."""

    def take_due(self, lane: PendingLaneT, now_ms: int, most_blocks: int) -> list[tuple[int, int]]: ...

    def expired_blocks(self, lane: PendingLaneT, now_ms: int) -> list[int]: ...

    def expired(self, lane: PendingLaneT, block_number: int, now_ms: int) -> Iterator[tuple[int, int]]: ...

    def refresh_expiry(self, lane: PendingLaneT) -> None: ...


class LaneCache(Protocol):
    """A cache that may hold messages of a lane that are in no list."""

    served: int

    def has(self, lane_number: int) -> bool: ...

    def may_have(self, lane_number: int, last: int) -> bool: ...

    def peek(self, lane_number: int, sequence: int) -> StoredMessage | None: ...

    def take(self, lane_number: int, sequence: int) -> StoredMessage | None: ...

    def shares_messages(self, lane_number: int) -> bool: ...


class LanePendingCache(LaneCache, Protocol):
    """The cache of a lane for messages for which a list has no room.

    It is PendingCache, or the SharedCache of a subscription, which stands in front of a PendingCache.
    """

    def put(self, lane_number: int, message: StoredMessage) -> bool: ...

    def admit(self, lane_number: int, message: StoredMessage, *, is_near: bool) -> bool: ...

    def discard_runs(self, lane_number: int, gone: SequenceSet) -> None: ...
