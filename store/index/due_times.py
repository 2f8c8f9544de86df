"""DueTimes: messages with times: how they are added, and which of a lane have come due or have expired.

They are found by the index alone, and no message is read for it.

Blocks in RAM are asked themselves. Of the others the metadata store knows
when the first message is due and when the first one expires, so that what
lies far ahead costs a row for 512 messages and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

from ..format.record import TIMED
from ..format.times import DUE, EXPIRY, NEVER, Times, runs_of
from ..metadata.checksum import MetadataDamaged
from ..tmp.non_persistent_lane import NonPersistentLane
from .block import BLOCK_SHIFT
from .lane import Lane

if TYPE_CHECKING:
    from ..message_store import MessageStore
    from ..metadata.sqlite import MetadataStore

PAGE_ROWS: Final = 256
EXPIRED_BLOCKS_MAX: Final = 16_384
"""One sweep finds no more blocks of a lane: eight million messages."""


class DueTimes:
    """The state lock guards it; every method REQUIRES it held."""

    def __init__(
        self,
        store: MessageStore,
        metadata: Callable[[], MetadataStore | None],
        doubt: Callable[[MetadataDamaged], None],
    ) -> None:
        """metadata: the one that is open. doubt: may raise another error where it can't be read."""
        self._store = store
        self._index = store.index
        self._metadata = metadata
        self._doubt = doubt

    def add(self, lane: Lane, timestamp: int, contents: list[tuple[bytes, bytes]], times: Sequence[Times]) -> int:
        """As MessageStore.add_slice, of messages of which some have times, as their properties say."""
        journal = self._store.journal
        place = lane.priority | TIMED, lane.destination, lane.next_sequence, timestamp
        with journal.uninterrupted():
            if len(contents) == 1:
                ((properties, body),) = contents
                offset, lengths = journal.append_one(*place, properties, body), [len(properties) + len(body)]
            else:
                offset, lengths = journal.append_slice(*place, contents)
            self._store.adds += len(lengths)
            first = lane.add_slice(journal.data_log, offset, lengths, self._index.uses[journal.data_log])
            lane.put_times(first, times)
            self._index.latest_ms = max(self._index.latest_ms, timestamp)
        return first

    def release(self, lane: Lane, now_ms: int, most_blocks: int) -> list[tuple[int, int]]:
        """Runs of messages that are due now and from here on wait for nothing, in up to so many blocks.

        `lane.earliest` says whether there are more. Fewer where a checkpoint must make room in the index first.
        """
        numbers = self._blocks(lane, DUE, now_ms, most_blocks + 1)
        runs: list[tuple[int, int]] = []
        for number in sorted(numbers[:most_blocks]):
            if self._index.is_crowded:
                return runs
            block = lane.block(number)
            if block is None or block.times is None:
                continue
            waiting = block.times.waiting
            released = block.times.release(now_ms, block.gone)
            if block.times.waiting != waiting and not block.is_dirty:
                self._index.touch(lane, block)
            runs += runs_of(released, number << BLOCK_SHIFT)
        if len(numbers) <= most_blocks:
            lane.earliest[DUE] = self._earliest(lane, DUE)
        return runs

    def expired_blocks(self, lane: Lane, now_ms: int) -> list[int]:
        """Numbers of the blocks in which something has expired, in order; EXPIRED_BLOCKS_MAX at most."""
        return sorted(self._blocks(lane, EXPIRY, now_ms, EXPIRED_BLOCKS_MAX))

    def expired(self, lane: Lane, number: int, now_ms: int) -> Iterator[tuple[int, int]]:
        """Runs of pending messages of that block that have expired."""
        block = lane.block(number)
        if block is None or block.times is None:
            return iter(())
        return runs_of(block.times.expired(now_ms, block.gone), number << BLOCK_SHIFT)

    def look(self, lane: Lane) -> None:
        """What had expired is removed: find out what expires next."""
        lane.earliest[EXPIRY] = self._earliest(lane, EXPIRY)

    def _blocks(self, lane: Lane, kind: int, until_ms: int, most: int) -> list[int]:
        """Numbers of up to `most` blocks with something up to that time, the earliest first."""
        found = [
            (block.times.earliest[kind], number)
            for number, block in lane.resident.items()
            if block.times is not None and block.times.earliest[kind] <= until_ms
        ]
        found += islice(self._stored(lane, kind, until_ms), most)
        return [number for _, number in sorted(found)[:most]]

    def _earliest(self, lane: Lane, kind: int) -> int:
        in_ram = (block.times.earliest[kind] for block in lane.resident.values() if block.times is not None)
        stored = next((time for time, _ in self._stored(lane, kind, NEVER)), NEVER)
        return min(stored, min(in_ram, default=NEVER))

    def _stored(self, lane: Lane, kind: int, until_ms: int) -> Iterator[tuple[int, int]]:
        """(time, block) of those that are not in RAM, in order. Rows of the others may be behind them."""
        behind = (0, -1)
        while True:
            page = self._page(kind, lane.number, behind, until_ms)
            for time, number in page:
                if number in lane.blocks and number not in lane.resident:
                    yield time, number
            if len(page) < PAGE_ROWS:
                return
            behind = page[-1]

    def _page(self, kind: int, lane: int, behind: tuple[int, int], until_ms: int) -> list[tuple[int, int]]:
        metadata = self._metadata()
        assert metadata is not None
        try:
            return metadata.timed(kind, lane, behind, until_ms, PAGE_ROWS)
        except MetadataDamaged as damage:
            self._doubt(damage)
            raise


class NonPersistentDueTimes:
    """The same for lanes of non-persistent messages, of which all blocks are in RAM. The state lock guards it."""

    def release(self, lane: NonPersistentLane, now_ms: int, most_blocks: int) -> list[tuple[int, int]]:
        """As DueTimes.release."""
        due = [found for found in lane.timed_blocks() if found[1].earliest[DUE] <= now_ms]
        runs: list[tuple[int, int]] = []
        for number, times, gone in due[:most_blocks]:
            runs += runs_of(times.release(now_ms, gone), number << BLOCK_SHIFT)
        if len(due) <= most_blocks:
            lane.earliest[DUE] = self._earliest(lane, DUE)
        return runs

    def expired_blocks(self, lane: NonPersistentLane, now_ms: int) -> list[int]:
        """As DueTimes.expired_blocks."""
        return [number for number, times, _ in lane.timed_blocks() if times.earliest[EXPIRY] <= now_ms]

    def expired(self, lane: NonPersistentLane, number: int, now_ms: int) -> Iterator[tuple[int, int]]:
        """As DueTimes.expired."""
        return runs_of(lane.expired(number, now_ms), number << BLOCK_SHIFT)

    def look(self, lane: NonPersistentLane) -> None:
        """As DueTimes.look."""
        lane.earliest[EXPIRY] = self._earliest(lane, EXPIRY)

    def _earliest(self, lane: NonPersistentLane, kind: int) -> int:
        return min((times.earliest[kind] for _, times, _ in lane.timed_blocks()), default=NEVER)
