"""UnrecordedStore: settles messages of subscriptions without a name. A crash ends these subscriptions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ....store.index.destination_lane import DestinationLane
from ....store.index.topic_lane import NO_RECORD, SubscriptionLane
from ....store.journal.regions import Judge, Region
from ....store.message_store import MessageStore
from ....store.stored_message import StoredMessage
from ...core.model.contracts import LaneDueTimes


class UnrecordedStore:
    """Settles messages of subscriptions without a name, which have no record on disk."""

    def __init__(self, message_store: MessageStore) -> None:
        self._message_store = message_store

    @property
    def due_times(self) -> LaneDueTimes[DestinationLane]:
        """What finds the messages whose time has come."""
        return self._message_store.due_times

    def acknowledge(self, pending_lane: SubscriptionLane, first: int, last: int) -> int:
        """Acknowledge a run without a record; return how many were pending. Requires: the lock."""
        return pending_lane.remove(first, last, NO_RECORD)

    def acknowledge_one(self, pending_lane: SubscriptionLane, sequence: int) -> int:
        """Acknowledge one message without a record. Requires: the lock."""
        return pending_lane.remove(sequence, sequence, NO_RECORD)

    def plan(self, pending_lane: SubscriptionLane, runs: Sequence[tuple[int, int]]) -> list[Region]:
        """Plan how to read these pending sequences, each run inside one block. Requires: the lock."""
        return self._message_store.plan(pending_lane, runs)

    def read(
        self, regions: Sequence[Region], judge: Judge | None = None
    ) -> tuple[list[StoredMessage], list[tuple[int, str]]]:
        """Read from the journal what was planned. Requires: no lock."""
        return self._message_store.read(regions, judge)

    def read_headers(
        self, region: Region, pay: Callable[[int], None]
    ) -> tuple[list[StoredMessage], list[tuple[int, str]]]:
        """Read the one message of a region, in pieces, with an empty body. Requires: no lock."""
        return self._message_store.read_headers(region, pay)
