"""PlayedStore: stands in for the store of a replay. It knows the lengths of messages, and their bodies are zeros.

`PlayedTimes` and `PlayedReturns` stand in for the tables that a replay does not need: the trace says when messages are
offered.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from ...cache.accounting.charge import charge_of_all
from ...store.environment.account import Unlimited
from ...store.format.places import Extent, SingleRecords
from ...store.format.return_record import ReturnedRun
from ...store.format.state_record import CountedRun
from ...store.index.index import Index
from ...store.journal.regions import REGION_BYTES_MAX, Judge, ReadableFile, Region
from ...store.stored_message import StoredMessage

ARRIVED: Final = 0
READ: Final = 1
"""Stands in for a played message's timestamp: ARRIVED or READ says where its body came from."""


class _EmptyFile:
    """The file that a played read of the journal names. A played journal has only lengths, so it is empty."""

    def read(self, offset: int, length: int) -> bytes:
        raise AssertionError("a played message has no bytes in the journal")


_NOTHING: Final[ReadableFile] = _EmptyFile()


def _no_block(lane_number: int, block: int) -> bytes:
    raise AssertionError("a played message is in no index")


class PlayedTimes:
    """The LaneDueTimes of a replay. The trace tells when messages were offered, so no message is due by itself."""

    def take_due(self, lane: Any, now_ms: int, most_blocks: int) -> list[tuple[int, int]]:
        return []

    def expired_blocks(self, lane: Any, now_ms: int) -> list[int]:
        return []

    def expired(self, lane: Any, block_number: int, now_ms: int) -> Iterator[tuple[int, int]]:
        return iter(())

    def refresh_expiry(self, lane: Any) -> None:
        """Do nothing."""


class PlayedReturns:
    """The ReturnCounts of a replay. The trace tells what was offered again, and nobody asks how often."""

    def count(self, lane_number: int, runs: Sequence[CountedRun]) -> None:
        """Do nothing."""

    def put(self, lane_number: int, runs: Sequence[ReturnedRun], now_ms: int = 0) -> None:
        """Do nothing."""


class PlayedStore:
    """The PersistentStore of a replay: knows the lengths of messages and makes messages of them."""

    def __init__(self) -> None:
        self.due_times = PlayedTimes()
        # An index that stays empty. Its lane stands for the places of all played messages, which have none.
        index = Index(account=Unlimited(), cache_bytes=0, read_block=_no_block)
        self.empty_lane, self.fingerprints = index.ensure_lane(1, 0), index.fingerprints
        self._bodies: dict[int, bytes] = {}
        self.reads = 0
        self.read_messages = 0
        # Charge of the messages that were read.
        self.read_bytes = 0

    def message(self, sequence: int, length: int, origin: int) -> StoredMessage:
        """Return a message. Messages of one length share a body, so a limit of gigabytes is played in megabytes."""
        body = self._bodies.get(length)
        if body is None:
            body = self._bodies[length] = bytes(length)
        return sequence, b"", body, origin

    def acknowledge(self, lane: Any, first: int, last: int) -> int:
        removed: int = lane.remove(first, last)[0]
        return removed

    def acknowledge_one(self, lane: Any, sequence: int) -> int:
        removed: int = lane.remove_one(sequence)[0]
        return removed

    def plan(self, lane: Any, runs: Sequence[tuple[int, int]]) -> list[Region]:
        regions: list[Region] = []
        parts: list[Extent | SingleRecords] = []
        region_bytes = 0
        for first, last in runs:
            part = SingleRecords(0, first, array("I"), array("I"))
            for sequence, length in enumerate(lane.lengths(first, last), first):
                if region_bytes and region_bytes + length > REGION_BYTES_MAX:
                    regions.append(Region(_NOTHING, 0, 0, 0, region_bytes, [*parts, part]))
                    part, parts, region_bytes = SingleRecords(0, sequence, array("I"), array("I")), [], 0
                part.lengths.append(length)
                region_bytes += length
            parts.append(part)
        return [*regions, Region(_NOTHING, 0, 0, 0, region_bytes, parts)] if parts else regions

    def read_headers(
        self, region: Region, pay: Callable[[int], None]
    ) -> tuple[list[StoredMessage], list[tuple[int, str]]]:
        """Read as `read` does, because a replay has no bodies to leave out."""
        return self.read((region,))

    def read(
        self, regions: Sequence[Region], judge: Judge | None = None
    ) -> tuple[list[StoredMessage], list[tuple[int, str]]]:
        self.reads += len(regions)
        messages = [
            self.message(sequence, length, READ)
            for region in regions
            for part in region.extents
            if isinstance(part, SingleRecords)
            for sequence, length in enumerate(part.lengths, part.first_sequence)
        ]
        self.read_messages += len(messages)
        self.read_bytes += charge_of_all(messages)
        return messages, []

    def raise_if_closed(self) -> None:
        """Do nothing: a played store is never closed."""

    def quarantine(self, lane: Any, sequence: int) -> bool:
        """Return False: every played message can be read."""
        return False
