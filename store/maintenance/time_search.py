"""TimeSearch: find where the messages of a time begin in a lane.

The messages of a lane are in order of sending, so their times ascend. Exceptions are messages of transactions, which
have the time of their send, and messages after somebody set the system's clock back. The search halves the blocks of
the lane and then the records of one block, and reads the head of one record each time: about 24 small reads among ten
million messages.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from itertools import accumulate
from typing import NamedTuple

from ..environment.locks import AllOrBroken, OwnedLock
from ..format.places import Extent
from ..format.record import RecordDamaged
from ..index.block_cache import BlockCache
from ..index.destination_lane import DestinationLane
from ..journal.regions import ReadableFile, sent_at
from ..numbering import BLOCK_SHIFT
from ..structures.bits import runs_of_ones


class _Place(NamedTuple):
    """A record with pending messages, and the first of those."""

    sequence: int
    data_log: int
    offset: int
    messages: int


class TimeSearch:
    """Searches lanes by time. No method may be called under the state lock, which they take for moments."""

    def __init__(self, cache: BlockCache, lock: OwnedLock, reader: Callable[[int], tuple[ReadableFile, int]]) -> None:
        """cache: that of the index's blocks.
        reader: returns an open file of a data log and its salt; called with the lock held.
        """
        self._cache = cache
        self._state_lock, self._all_or_broken = lock, AllOrBroken(lock)
        self._reader = reader

    def first_sequence_at(self, lane: DestinationLane, time_ms: int) -> int:
        """Return the first existing sequence of a lane sent at time_ms or later; if there is none, the next sequence.

        O(log messages) reads. A record that can't be read counts as late, so that a caller gets too much rather than
        too little.
        """
        with self._state_lock:
            runs = list(lane.block_numbers)
        begins = [0, *accumulate(last - first + 1 for first, last in runs)]
        low, high = 0, begins[-1]
        while low < high:
            middle = (low + high) // 2
            if self._is_before(self._records(lane, _nth(runs, begins, middle))[:1], time_ms):
                low = middle + 1
            else:
                high = middle
        behind = 0
        if low:
            number = _nth(runs, begins, low - 1)
            behind = number + 1 << BLOCK_SHIFT
            sequence = self._within(self._records(lane, number), time_ms)
            if sequence is not None:
                return sequence
        with self._state_lock, self._all_or_broken:
            run = lane.pending_run(behind, 1)
            return run[0] if run is not None else lane.next_sequence

    def sent_at(self, lane: DestinationLane, sequence: int) -> int | None:
        """Return when the message of a sequence, or the next existing one, was sent, in ms since 1970. One small read.

        None: there is none, or it can't be read.
        """
        with self._state_lock, self._all_or_broken:
            run = lane.pending_run(sequence, 1)
        records = self._records(lane, run[0] >> BLOCK_SHIFT, run[0]) if run is not None else []
        return self._time_of(records[0]) if records else None

    def _within(self, records: list[_Place], time_ms: int) -> int | None:
        low, high = 0, len(records)
        while low < high:
            middle = (low + high) // 2
            if self._is_before(records[middle : middle + 1], time_ms):
                low = middle + 1
            else:
                high = middle
        return records[low].sequence if low < len(records) else None

    def _is_before(self, records: list[_Place], time_ms: int) -> bool:
        """Return whether a record was written before that time. A record that is gone counts as earlier."""
        if not records:
            return True
        time = self._time_of(records[0])
        return time is not None and time < time_ms

    def _time_of(self, place: _Place) -> int | None:
        try:
            with self._state_lock:
                file, salt = self._reader(place.data_log)
            return sent_at(file, salt, place.offset, place.messages)
        except (OSError, RecordDamaged):
            return None

    def _records(self, lane: DestinationLane, block_number: int, first: int = 0) -> list[_Place]:
        """Return the records of one block with pending messages from `first` on, in order."""
        with self._state_lock, self._all_or_broken:
            if block_number not in lane.block_numbers:
                return []
            block = self._cache.peek(lane, block_number)
        base = block_number << BLOCK_SHIFT
        pending = ~block.gone & ((1 << len(block.lengths)) - 1)
        low = max(first - base, 0)
        places: list[_Place] = []
        for begin, end in runs_of_ones(pending >> low << low):
            for extent in block.extents(begin, end):
                if isinstance(extent, Extent):
                    places.append(_Place(extent.first_sequence, extent.data_log, extent.offset, extent.record_messages))
                else:
                    places += [
                        _Place(extent.first_sequence + at, extent.data_log, offset, 1)
                        for at, offset in enumerate(extent.offsets)
                    ]
        return places


def _nth(runs: list[tuple[int, int]], begins: list[int], at: int) -> int:
    """Return the number of the block at that index in the runs of block numbers."""
    run = bisect_right(begins, at) - 1
    return runs[run][0] + at - begins[run]
