"""Fingerprints: recent fingerprints of blocks in RAM, and older ones in the metadata store.

A scan for a selector asks which block may match next, and skips the blocks before it without reading them. A block gets
its fingerprint once no more messages are added to it and scans have examined all its pending messages. A fingerprint
does not cover messages that were acknowledged before. So the next checkpoint stores it together with these acks, and a
crash loses both or neither. A missing fingerprint only costs a read of the block.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from typing import Final, NamedTuple

from ..numbering import BLOCK_SHIFT
from .block_cache import BlockCache
from .destination_lane import DestinationLane
from .fingerprint import FINGERPRINT_BYTES_MAX, BlockSurvey, Fingerprint, fingerprint_of, fingerprint_of_all

NAMES_MAX: Final = 4
"""Most headers of one selector that get fingerprints. More would cost more to read than they save."""
NAME_CHARACTERS_MAX: Final = 64
BLOCKS_MAX: Final = 4096
"""Blocks whose fingerprints are examined under one hold of the lock."""
PAGE_BLOCKS: Final = 256
SURVEYS_MAX: Final = 8
"""Most blocks that are partly examined. More would hold memory for blocks that may never be complete."""
ROW_BYTES: Final = 320
"""Memory of a fingerprint in RAM in addition to its bytes and its name."""
BLOCK_ROWS_BYTES: Final = NAMES_MAX * (ROW_BYTES + NAME_CHARACTERS_MAX + FINGERPRINT_BYTES_MAX)
"""Most memory of the fingerprints that one survey leaves."""

Row = tuple[int, int, str, bytes]
"""Lane, block, name of the header, and fingerprint."""
RowReader = Callable[[int, int, int, Set[str]], "list[tuple[int, str, bytes]]"]
"""(lane, first block, last block, headers) -> (block, name, fingerprint) of stored fingerprints."""
Question = Callable[[Mapping[str, Fingerprint]], bool]


class Candidate(NamedTuple):
    """The next block that a selector must examine."""

    sequence: int
    """No message before this one matches."""
    unknown: frozenset[str]
    """Headers for which the block has no fingerprint."""

    def survey(self, first: int) -> BlockSurvey | None:
        """Return a survey for these headers in messages from `first` on.

        None: `first` is in another block, or the block has all fingerprints.
        """
        number = self.sequence >> BLOCK_SHIFT
        return BlockSurvey(self.unknown, number) if self.unknown and first >> BLOCK_SHIFT == number else None


class Fingerprints:
    """The fingerprints of all lanes of an index. The state lock guards it."""

    def __init__(self, cache: BlockCache, read_rows: RowReader) -> None:
        """Make it without fingerprints.

        cache: pays for fingerprints in RAM, as for dirty blocks. read_rows: see RowReader.
        """
        self._cache = cache
        self._read_rows = read_rows
        # (lane, block) -> fingerprints that the metadata store does not have yet, by header.
        self._fresh: dict[tuple[int, int], dict[str, bytes]] = {}
        self._fresh_bytes = 0
        # (lane, headers) -> the survey of a block that is partly examined; the oldest is first.
        self._surveys: dict[tuple[int, frozenset[str]], BlockSurvey] = {}

    @property
    def is_stale(self) -> bool:
        """Whether a checkpoint would store a fingerprint."""
        return self._fresh_bytes > 0

    @property
    def is_full(self) -> bool:
        """Whether RAM may have no room for the fingerprints of one more block until a checkpoint has stored some."""
        return not self._cache.has_room_for_fingerprints(self._fresh_bytes + BLOCK_ROWS_BYTES)

    def next_candidate(
        self, lane: DestinationLane, names: frozenset[str], sequence: int, may_match: Question
    ) -> Candidate | None:
        """Return the first block at or behind a sequence that may have a match. None: no block is left.

        After BLOCKS_MAX blocks that can't match, the next block is a candidate whatever its fingerprint says.
        O(blocks); no block is read.
        """
        number = sequence >> BLOCK_SHIFT
        behind = number + BLOCKS_MAX
        page = 1
        while (run := lane.block_numbers.next_from(number)) is not None:
            first = run[0]
            if first >= behind:
                return Candidate(max(first << BLOCK_SHIFT, sequence), frozenset())
            last = min(run[1], first + page - 1)
            known = self._known(lane.number, first, last, names)
            is_complete = len(known) == last - first + 1
            may_any_match = not is_complete or may_match(_together(known, names))
            for number in range(first, last + 1) if may_any_match else ():
                row = known.get(number)
                if row is None:
                    return Candidate(max(number << BLOCK_SHIFT, sequence), names)
                if may_match({name: fingerprint_of(data) for name, data in row.items()}):
                    return Candidate(max(number << BLOCK_SHIFT, sequence), names.difference(row))
            number = last + 1
            page = min(4 * page, PAGE_BLOCKS)
        return None

    def _known(self, lane_number: int, first: int, last: int, names: frozenset[str]) -> dict[int, dict[str, bytes]]:
        """Return block -> header -> fingerprint for these headers."""
        known: dict[int, dict[str, bytes]] = {}
        for number, name, data in self._read_rows(lane_number, first, last, names):
            known.setdefault(number, {})[name] = data
        for number in range(first, last + 1) if self._fresh else ():
            fresh = self._fresh.get((lane_number, number))
            if fresh is not None:
                named = {name: fresh[name] for name in names if name in fresh}
                if named:
                    known.setdefault(number, {}).update(named)
        return known

    def examined(self, lane: DestinationLane, survey: BlockSurvey) -> None:
        """Take in the survey of a scan. Once it has all pending messages of the block, keep the fingerprints.

        Requires: the examined messages are pending, or were pending when the scan began.
        """
        key = (lane.number, survey.names)
        before = self._surveys.pop(key, None)
        if before is not None and before.number == survey.number:
            before.merge(survey)
            survey = before
        if not lane.is_complete(survey.number):
            return
        if lane.has_pending_besides(survey.number, survey.examined):
            self._surveys[key] = survey
            if len(self._surveys) > SURVEYS_MAX:
                del self._surveys[next(iter(self._surveys))]
            return
        for name, data in survey.pack().items():
            self._put(lane.number, survey.number, name, data)

    def _put(self, lane_number: int, block_number: int, name: str, data: bytes) -> None:
        held_bytes = self._fresh_bytes + _row_bytes(name, data)
        if self._cache.hold_fingerprints(held_bytes):
            self._fresh_bytes = held_bytes
            fresh = self._fresh.setdefault((lane_number, block_number), {})
            if name in fresh:
                self._fresh_bytes -= _row_bytes(name, fresh[name])
            fresh[name] = data

    def reset(self) -> None:
        """Forget all fingerprints."""
        self._fresh.clear()
        self._surveys.clear()
        self._count()

    # ------------------------------------------------------------------ checkpoints

    def take(self, lanes: Mapping[int, DestinationLane]) -> list[Row]:
        """Return the fingerprints that a checkpoint must store. They stay in RAM until `checkpointed`."""
        rows: list[Row] = []
        for (lane, number), fresh in list(self._fresh.items()):
            known = lanes.get(lane)
            if known is None or number not in known.block_numbers:
                del self._fresh[lane, number]
            else:
                rows += [(lane, number, name, data) for name, data in fresh.items()]
        self._count()
        return rows

    def checkpointed(self, taken: list[Row]) -> None:
        """Forget the fingerprints that a checkpoint has stored."""
        for lane_number, number, name, data in taken:
            fresh = self._fresh.get((lane_number, number))
            if fresh is not None and fresh.get(name) is data:
                del fresh[name]
                if not fresh:
                    del self._fresh[lane_number, number]
        self._count()

    def _count(self) -> None:
        self._fresh_bytes = sum(
            _row_bytes(name, data) for fresh in self._fresh.values() for name, data in fresh.items()
        )
        self._cache.hold_fingerprints(self._fresh_bytes)

    def _check(self) -> None:
        counted = sum(_row_bytes(name, data) for fresh in self._fresh.values() for name, data in fresh.items())
        assert self._fresh_bytes == counted and len(self._surveys) <= SURVEYS_MAX


def _together(known: dict[int, dict[str, bytes]], names: frozenset[str]) -> dict[str, Fingerprint]:
    """Return a fingerprint of each header that describes all these blocks together."""
    return {name: fingerprint_of_all([row.get(name, b"") for row in known.values()]) for name in names}


def has_fingerprints(names: frozenset[str]) -> bool:
    """Return whether scans for a selector with these header names make fingerprints and use them.

    A name with a dot may mean a value inside another header, which no fingerprint describes.
    """
    is_plain = all([len(name) <= NAME_CHARACTERS_MAX and "." not in name for name in names])
    return 0 < len(names) <= NAMES_MAX and is_plain


def _row_bytes(name: str, data: bytes) -> int:
    return ROW_BYTES + len(name) + len(data)
