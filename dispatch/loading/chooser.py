"""LoadChooser: which messages the next load of a list brings.

A load brings the next pending messages that are due: first those that came back or are references, then those behind
the frontier. They all lie in one block of the index, because that block may have to be read under the state lock. A
load ends before the first message that must be read if the caches have enough of the messages before it.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Final

from ...cache.accounting.charge import OVERHEAD_BYTES
from ...store.index.fingerprints import Candidate
from ...store.numbering import BLOCK_MASK, BLOCK_SHIFT
from ...store.structures.sequence_set import SequenceSet
from ..core.lists.load import Load, LoadSource
from ..core.memory.watermarks import Watermarks
from ..core.model.destination import TargetList

LOAD_MESSAGES_MAX: Final = 512
CACHED_MESSAGES_MIN: Final = 64
"""So many cached messages get a load of their own. Fewer are loaded with messages that must be read, in one batch."""

assert LOAD_MESSAGES_MAX <= BLOCK_MASK + 1


class LoadChooser:
    """Chooses the messages of a load. It reserves no memory and reads no message. Every method requires the lock."""

    def __init__(self, watermarks: Watermarks, monotonic: Callable[[], float]) -> None:
        self._watermarks = watermarks
        self._monotonic = monotonic

    def choose(self, target: TargetList, *, is_needed: bool) -> Load[TargetList] | None:
        """Return a load of the next pending messages of a list. None: there is nothing to load."""
        load = self._choose(target, is_needed=is_needed)
        if load is not None:
            _part_cached_from_read(load)
        return load

    def _choose(self, target: TargetList, *, is_needed: bool) -> Load[TargetList] | None:
        """Choose the next pending messages: first those that came back or are references, then those behind the
        frontier.
        """
        began_at = self._monotonic()
        sources = [(target.returned, LoadSource.RETURNED), (target.references, LoadSource.REFERENCES)]
        if target.returned and target.references and target.references.first < target.returned.first:
            sources.reverse()  # a part of the returned messages was loaded and has become references since
        for runs, source in sources:
            chosen = self._gather(target, runs)
            if chosen:
                return _load_of(target, chosen, source, began_at, is_needed=is_needed)
        candidate = _skip_blocks(target) if target.skip_names else None
        unseen = SequenceSet()
        if target.frontier < target.lane.published_end:
            unseen.add(target.frontier, target.lane.published_end - 1)
        chosen = self._gather(target, unseen)
        if chosen:
            load = _load_of(target, chosen, LoadSource.BEHIND_FRONTIER, began_at, is_needed=is_needed)
            load.survey = None if candidate is None else candidate.survey(load.first)
            return load
        # This does not move the frontier of a list of assigned messages, which is behind all messages ever to come.
        target.advance_frontier(target.lane.published_end)
        return None

    def _gather(self, target: TargetList, runs: SequenceSet) -> list[tuple[int, int]]:
        """Gather the first pending messages of runs, in one block: at least one, and as many as one load may bring.

        Messages that are no longer pending, or not due yet, are removed from `runs`.
        """
        pending_lane = target.lane.pending_lane
        room = self._room(target, runs)
        chosen: list[tuple[int, int]] = []
        at = 0
        while (run := runs.next_from(at)) is not None:
            first, last = run
            ready = pending_lane.ready_run(first, LOAD_MESSAGES_MAX)
            if ready is None or ready[0] > first:
                at = last + 1 if ready is None else min(ready[0], last + 1)
                runs.remove(first, at - 1)
                continue
            if chosen and first >> BLOCK_SHIFT != chosen[0][0] >> BLOCK_SHIFT:
                break
            last = min(ready[1], last)
            messages, charge = _fitting(pending_lane.lengths(first, last), room, least=0 if chosen else 1)
            if not messages:
                break
            at = first + messages
            chosen.append((first, at - 1))
            room -= charge
            if at <= last:
                break
        return chosen

    def _room(self, target: TargetList, runs: SequenceSet) -> int:
        """Return how many bytes the next load of a list may bring, if it begins with these runs."""
        bound_bytes = target.read_ahead_bytes
        if target.direct_bytes >= bound_bytes:
            bound_bytes = target.high_watermark_bytes
        room = max(bound_bytes - target.direct_bytes, 0)
        if runs:
            room = target.lane.load_rule.load_room(room, runs.first)
        return min(room, self._watermarks.shares.load_bytes_max)


def _skip_blocks(target: TargetList) -> Candidate | None:
    """Move the frontier over blocks without a match; return the next candidate. None: no message is left to examine."""
    selector, lane = target.selector_group.selector, target.lane
    assert selector is not None
    if target.frontier >= lane.published_end:
        return None
    candidate = lane.scan().next_candidate(selector, target.skip_names, target.frontier)
    end = lane.published_end if candidate is None else min(candidate.sequence, lane.published_end)
    if end > target.frontier:
        if lane.unmatched is not None:
            lane.unmatched.add(target.frontier, end - 1)
        target.advance_frontier(end)
    return candidate


def _load_of(
    target: TargetList, runs: list[tuple[int, int]], source: LoadSource, began_at: float, *, is_needed: bool
) -> Load[TargetList]:
    """Return a load of chosen runs, before anything is reserved or read."""
    return Load(
        target,
        runs,
        source,
        is_needed=is_needed,
        needed_claims=target.needs_claims,
        recheck_count=target.lane.recheck_count,
        began_at=began_at,
    )


def _part_cached_from_read(load: Load[TargetList]) -> None:
    """Cut a load before the first message to be read, if the caches have enough of the messages before it."""
    target = load.target
    if target.lane.load_rule.reads_for_others and load.last + 1 < target.lane.published_end:
        _cut_to_cached(load, 1)  # the next load then begins with a read, which serves other lists best
    elif load.is_needed:
        _cut_to_cached(load, CACHED_MESSAGES_MIN)
    elif target.direct_bytes >= target.read_ahead_bytes:
        _cut_to_cached(load, 1)


def _cut_to_cached(load: Load[TargetList], least: int) -> None:
    """Cut a load to its first messages that the caches have, if there are at least `least`.

    O(messages that are kept).
    """
    lane = load.target.lane
    number = lane.pending_lane.number
    caches = [cache for cache in lane.caches if cache.may_have(number, load.last)]
    count = 0
    before = 0
    for sequence in load.sequences() if caches else ():
        if all(cache.peek(number, sequence) is None for cache in caches):
            if count >= least:
                load.cut(before)
            return
        before = sequence
        count += 1


def _fitting(lengths: array[int], room: int, *, least: int) -> tuple[int, int]:
    """Return how many of the first messages fit, at least `least`, and their charge. O(those that fit).

    lengths: bytes of each content. The function consumes this array.
    """
    charge = sum(lengths) + OVERHEAD_BYTES * len(lengths)
    if charge > 2 * room:
        lengths = lengths[: 2 * room * len(lengths) // charge + 1]
        charge = sum(lengths) + OVERHEAD_BYTES * len(lengths)
    while charge > room and len(lengths) > least:
        charge -= lengths.pop() + OVERHEAD_BYTES
    return len(lengths), charge
