"""The eager loader: fill each list before its consumers ask.

A load has three parts. *begin*, under the lock, chooses the next messages, takes those that the caches have, and
reserves memory for the rest. *read*, outside the lock, makes few large reads, verifies each message, and evaluates
selectors. *install*, under the lock, appends the messages that match and gives back the others. If `take` needs a
message that the loader has not brought yet, it runs the same three parts; this is a miss.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from contextlib import suppress
from heapq import nsmallest
from itertools import chain
from typing import Final

from ...cache.accounting.budget import Holder
from ...cache.accounting.charge import OVERHEAD_BYTES, charge_bytes, content_charge_bytes
from ...cache.spill.spill_account import FIRST_BYTES, LAST_BYTES, SpillAccount
from ...store.environment.late_log import LateLogger
from ...store.errors import ForebayError, StoreFailed, TooManyFiles
from ...store.format.record import RecordDamaged
from ...store.index.fingerprints import Candidate
from ...store.numbering import BLOCK_MASK, BLOCK_SHIFT
from ...store.stored_message import StoredMessage, sequence_of
from ...store.structures.histogram import DurationHistogram
from ...store.structures.sequence_set import SequenceSet
from ..core.areas.dispatch_area import DispatchArea
from ..core.areas.load_requests import LoadRequests
from ..core.areas.target_area import TargetArea
from ..core.deliveries.contracts import LaneCache
from ..core.lists.load import Load
from ..core.memory.watermarks import Watermarks
from ..core.model import LaneState, TargetList
from ..core.monitor import Monitor

logger = LateLogger("forebay.dispatch.loader")

LOAD_MESSAGES_MAX: Final = 512
LISTS_MAX: Final = 32
"""Most hungry lists that are examined under one hold of the state lock, if memory suffices for none of them."""
CACHED_MESSAGES_MIN: Final = 64
"""Least number of cached messages that get a load of their own. Fewer share a load with a read: batches stay large."""


class EagerLoader:
    """Loads for the list that starves first. `step` does one load and returns whether there was one to do."""

    def __init__(
        self,
        monitor: Monitor,
        target_area: TargetArea,
        watermarks: Watermarks,
        dispatch_area: DispatchArea,
        loads: LoadRequests,
        spill_account: SpillAccount,
        reading: Holder,
    ) -> None:
        """spill_account: lends memory for one reference if bookkeeping fills all memory.
        reading: pays for read buffers.
        """
        self._monitor = monitor
        self._target_area = target_area
        self._watermarks = watermarks
        self._dispatch_area = dispatch_area
        self._loads = loads
        self._spill_account = spill_account
        self._reading = reading
        self._monotonic = monitor.monotonic
        self._previous: TargetList | None = None
        # How long loads took, from the choice of messages until all were in RAM. The state lock guards it.
        self.durations = DurationHistogram()

    def step(self) -> bool:
        """Do one load for the list that is nearest to starving; return whether there may be more. Requires: no lock."""
        load: Load[TargetList] | None = None
        try:
            with self._monitor.lock, self._monitor.all_or_broken:
                load = self._next()
                is_more = bool(self._loads.running_low)
            if load is None:
                return is_more
            self.finish(load)
        except BaseException:
            if load is not None:  # nobody else would end a load that has begun
                self.give_up(load)
            raise
        return True

    def finish(self, load: Load[TargetList], *, makes_room: bool = True) -> None:
        """Read a load and install it. Requires: no lock.

        makes_room: whether it may checkpoint for the sake of a scan. A take without a timeout, or after it, may not.
        """
        try:
            self.read(load)
            with self._monitor.lock, self._monitor.all_or_broken:
                self.install(load)
            if makes_room and load.survey is not None:
                load.target.lane.make_survey_room()
        except BaseException:
            self.give_up(load)
            raise

    def give_up(self, load: Load[TargetList]) -> None:
        """Undo an interrupted load, unless it has ended: its messages stay where they were. Requires: no lock."""
        # An error of the load matters more than one of the undo.
        with suppress(StoreFailed), self._monitor.lock, self._monitor.all_or_broken:
            if load.target.load is load:
                self._abandon(load)

    def _next(self) -> Load[TargetList] | None:
        """Begin a load. None: none of the examined lists could have one; they no longer count as running low."""
        loads = self._loads
        running_low = loads.running_low
        if loads.left_alone:
            loads.poll()
        # The list of the last load comes last: a scan that finds nothing would otherwise let the others starve.
        for target in nsmallest(
            LISTS_MAX, running_low, key=lambda found: (found is self._previous, found.supply_seconds)
        ):
            is_awaited = target.selector_group.is_awaited and not target.is_ready
            if target.is_loading or not target.has_supply or self._is_fed(target, is_awaited=is_awaited):
                del running_low[target]
                if not target.is_loading:
                    target.loaded_bytes = 0
                continue
            if loads.leave_if_never_full(target):
                continue
            load = self.begin(target, is_needed=is_awaited)
            if load is not None:
                self._previous = target
                return load
            running_low.pop(target, None)
            if target.has_supply:
                self._dispatch_area.wait_for_memory(target)
        return None

    def _is_fed(self, target: TargetList, *, is_awaited: bool) -> bool:
        """Return whether a list needs no load now: it has enough, or what comes next waits for somebody to take it.

        Its next take, or room, makes it run low again.
        """
        step_bytes = min(self._watermarks.shares.load_bytes_max, target.low_watermark_bytes)
        fed_bytes = target.direct_bytes + step_bytes
        if fed_bytes > target.read_ahead_bytes and target.is_ready:
            if fed_bytes > target.high_watermark_bytes or not target.is_next_cached:
                return True
        if is_awaited:
            return False
        return target.lane.waits_for_takes(target.first_to_load, target.high_watermark_bytes - target.direct_bytes)

    # ------------------------------------------------------------------ begin

    def begin(self, target: TargetList, *, is_needed: bool) -> Load[TargetList] | None:
        """Choose the next load of a list and reserve memory for it. None: nothing to load, or no memory for a message.

        Until install, the chosen messages stay where they were: returned, reference, or behind the frontier. Nothing
        moves past them before that. is_needed: a consumer waits, so messages that memory can't hold become lazy.
        Requires: the lock.
        """
        assert not target.is_loading
        load = self._choose(target, is_needed=is_needed)
        if load is None:
            return None
        self._part_cached_from_read(load)
        self._fill_from_caches(load)
        self._leave_out_unreadable(load)
        if load.runs:
            self._reserve(load)
        if not load.runs or load.last < load.first:
            self._abandon(load)
            return None
        target.load = load
        target.loaded_bytes += load.reserved_bytes
        return load

    def _choose(self, target: TargetList, *, is_needed: bool) -> Load[TargetList] | None:
        """Choose the next pending messages: first those that came back or are references, then those behind the
        frontier.
        """
        began_at = self._monotonic()
        sources = [(target.returned, True), (target.references, False)]
        if target.returned and target.references and target.references.first < target.returned.first:
            sources.reverse()  # the returned ones were loaded in part and have left RAM again
        for runs, is_return in sources:
            chosen = self._gather(target, runs)
            if chosen:
                return _load_of(target, chosen, began_at, is_scan=is_return, is_return=is_return, is_needed=is_needed)
        candidate = self._skip(target) if target.skip_names else None
        unseen = SequenceSet()
        if target.frontier < target.lane.published_end:
            unseen.add(target.frontier, target.lane.published_end - 1)
        chosen = self._gather(target, unseen)
        if chosen:
            load = _load_of(target, chosen, began_at, is_scan=True, is_return=False, is_needed=is_needed)
            load.survey = None if candidate is None else candidate.survey(load.first)
            return load
        # The frontier of a list of assigned messages is behind all messages that will ever come, and stays there.
        target.frontier = max(target.frontier, target.lane.published_end)
        return None

    def _skip(self, target: TargetList) -> Candidate | None:
        """Move the frontier over blocks without a match; return where it is then, or None at the end."""
        selector, lane = target.selector_group.selector, target.lane
        assert selector is not None
        if target.frontier >= lane.published_end:
            return None
        found = lane.next_candidate(selector, target.skip_names, target.frontier)
        end = lane.published_end if found is None else min(found.sequence, lane.published_end)
        if end > target.frontier:
            lane.note_unmatched(target.frontier, end)
            target.frontier = end
        return found

    def _gather(self, target: TargetList, runs: SequenceSet) -> list[tuple[int, int]]:
        """Gather the first pending messages of runs in one block: at least one, and as many as one load may bring.

        Messages that are no longer pending, or not due yet, are removed from runs.
        """
        pending_lane = target.lane.pending_lane
        room = self._room(target, runs)
        chosen: list[tuple[int, int]] = []
        at = 0
        while (run := runs.next_from(at)) is not None:
            first, last = run
            found = pending_lane.ready_run(first, LOAD_MESSAGES_MAX)
            if found is None or found[0] > first:
                at = last + 1 if found is None else min(found[0], last + 1)
                runs.remove(first, at - 1)
                continue
            if chosen and first >> BLOCK_SHIFT != chosen[0][0] >> BLOCK_SHIFT:
                break
            last = min(found[1], last)
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
            room = target.lane.load_room(room, runs.first)
        return min(room, self._watermarks.shares.load_bytes_max)

    def _part_cached_from_read(self, load: Load[TargetList]) -> None:
        """Cut a load before its first read if the caches have enough of its first messages for a load of their own."""
        target = load.target
        if target.lane.reads_for_others and load.last + 1 < target.lane.published_end:
            self._cut_to_cached(load, 1)  # the next load then begins with a read, which serves other lists best
        elif load.is_needed:
            self._cut_to_cached(load, CACHED_MESSAGES_MIN)
        elif target.direct_bytes >= target.read_ahead_bytes:
            self._cut_to_cached(load, 1)

    def _cut_to_cached(self, load: Load[TargetList], least: int) -> None:
        """Cut a load to its first messages that the caches have, if there are at least `least`.

        O(messages that are kept).
        """
        lane = load.target.lane
        number = lane.pending_lane.number
        caches = [cache for cache in lane.caches if cache.may_have(number, load.last)]
        count = 0
        before = 0
        for sequence in _sequences(load) if caches else ():
            if all(cache.peek(number, sequence) is None for cache in caches):
                if count >= least:
                    load.last = before
                    load.runs = [(first, min(last, before)) for first, last in load.runs if first <= before]
                return
            before = sequence
            count += 1

    def _fill_from_caches(self, load: Load[TargetList]) -> None:
        """Take the messages of the load that the caches have.

        Copy messages that other lists share and could find nowhere else.
        """
        target = load.target
        is_only_copy = target.needs_claims and not target.lane.is_persistent
        for cache in target.lane.caches:
            if not cache.may_have(target.lane.pending_lane.number, load.last):
                continue
            if is_only_copy:
                self._copy_from(cache, load)
            else:
                self._take_from(cache, load)

    def _take_from(self, cache: LaneCache, load: Load[TargetList]) -> None:
        """Take messages of a load from a cache, up to one that other lists need and that memory has no room to copy."""
        target = load.target
        memory, lane_number = target.memory, target.lane.pending_lane.number
        shares_messages = cache.shares_messages(lane_number)
        reserve = memory.lists_holder.reserve if shares_messages else memory.lists_holder.reserve_again
        for sequence in _sequences(load):
            message = cache.take(lane_number, sequence)
            if message is None:
                continue
            charge = charge_bytes(message)
            if load.is_needed and shares_messages and memory.free_bytes < charge:
                self._target_area.make_room(charge, target)
            if not reserve(charge):  # other lists need it too: spill it for all and read it, or leave it in the cache
                assert shares_messages, "what was just released can be reserved again"
                target.lane.pager.spill((message,))
                if cache.peek(lane_number, sequence) is not None:
                    self._end_before_cached(load, sequence)
                return
            load.hold(message, charge)
            load.from_cache.add(sequence)
            cache.served += 1

    def _end_before_cached(self, load: Load[TargetList], sequence: int) -> None:
        """End the load before a message that a cache keeps for others, and that memory has no room to copy.

        If a consumer waits for that very message, the message becomes lazy.
        """
        if load.is_needed and not load.held:
            self._make_lazy(load, sequence)
            sequence += 1
        load.last = min(load.last, sequence - 1)

    def _copy_from(self, cache: LaneCache, load: Load[TargetList]) -> None:
        """Copy messages of the load from a cache, where they stay for others.

        If memory has no room, they are spilled.
        """
        lane = load.target.lane
        number = lane.pending_lane.number
        unaffordable: list[StoredMessage] = []
        for sequence in _sequences(load):
            message = cache.peek(number, sequence)
            if message is None or sequence in load.held:
                continue
            charge = charge_bytes(message)
            if not unaffordable and lane.memory.lists_holder.reserve(charge):
                load.hold(message, charge)
                cache.served += 1
            else:
                cache.take(number, sequence)
                unaffordable.append(message)
        if unaffordable:
            lane.pager.spill(unaffordable)

    def _leave_out_unreadable(self, load: Load[TargetList]) -> None:
        """Make messages lazy that only a delivery has, and end the load before messages that nobody can have now."""
        for sequence in load.target.lane.pager.cut_load(load):
            if sequence <= load.last:
                self._make_lazy(load, sequence)
        # If memory ran out at a message that only a delivery has, neither it nor those behind it can be read.
        load.runs = [(first, min(last, load.last)) for first, last in load.runs if first <= load.last]

    def _reserve(self, load: Load[TargetList]) -> None:
        """Reserve memory for messages to read. Without memory, messages become lazy, or else the load is cut."""
        largest_bytes, target = self._watermarks.shares.large_message_bytes, load.target
        pending_lane = target.lane.pending_lane
        if not load.held:
            columns = [pending_lane.lengths(first, last) for first, last in load.runs]
            if max(map(max, columns)) <= largest_bytes:
                load.brings_all = not load.is_return and (not load.is_scan or target.selector_group.selector is None)
                total = sum(map(sum, columns)) + OVERHEAD_BYTES * sum(map(len, columns))
                self._reserve_runs(load, load.runs, total)
                return
        lengths = [item for first, last in load.runs for item in enumerate(pending_lane.lengths(first, last), first)]
        runs: list[tuple[int, int]] = []
        wanted = 0
        for sequence, length in lengths:
            if sequence in load.held:
                continue
            if length > largest_bytes:
                self._make_lazy(load, sequence)
                continue
            wanted += content_charge_bytes(length)
            if runs and runs[-1][1] == sequence - 1:
                runs[-1] = (runs[-1][0], sequence)
            else:
                runs.append((sequence, sequence))
        if runs:
            self._reserve_runs(load, runs, wanted)

    def _reserve_runs(self, load: Load[TargetList], runs: list[tuple[int, int]], wanted: int) -> None:
        target = load.target
        messages = sum(last - first + 1 for first, last in runs)
        if load.is_needed and wanted <= 2 * OVERHEAD_BYTES * messages and target.memory.free_bytes < wanted:
            # Load fewer messages if references for all of them would take as much memory.
            self._target_area.make_room(wanted, target)
            few = min(messages, self._spill_account.last_bytes // OVERHEAD_BYTES) // 2
            runs, wanted = self._cut_to_memory(load, runs, wanted, few)
        regions = target.lane.backing_store.plan(target.lane.pending_lane, runs)
        buffer_bytes = max(region.length for region in regions)
        # Ahead of need, no list takes from a list that has less: two lists would take from each other for ever.
        least_seconds = 0.0 if load.is_needed else (target.direct_bytes + wanted) / target.bytes_per_second
        if self._afford(load, wanted, buffer_bytes, least_seconds):
            load.regions = regions
            return
        load.brings_all = False
        if not load.is_needed:
            load.last = min(load.last, runs[0][0] - 1)
        else:
            if target.memory.free_bytes < OVERHEAD_BYTES * messages:
                self._target_area.make_room(OVERHEAD_BYTES * messages, target)
            for first, last in runs:
                for sequence in range(first, last + 1):
                    if sequence <= load.last:
                        self._make_lazy(load, sequence)

    def _cut_to_memory(
        self, load: Load[TargetList], runs: list[tuple[int, int]], wanted: int, few: int
    ) -> tuple[list[tuple[int, int]], int]:
        """Cut the runs to what free memory can hold, unless that is only a few messages."""
        pending_lane, free_bytes = load.target.lane.pending_lane, load.target.memory.free_bytes
        cut: list[tuple[int, int]] = []
        charged = messages = 0
        for first, last in runs:
            for sequence, length in enumerate(pending_lane.lengths(first, last), first):
                if charged + content_charge_bytes(length) > free_bytes:
                    if messages <= few:
                        return runs, wanted
                    load.last = min(load.last, sequence - 1)
                    return cut, charged
                charged += content_charge_bytes(length)
                messages += 1
                if cut and cut[-1][1] == sequence - 1:
                    cut[-1] = (cut[-1][0], sequence)
                else:
                    cut.append((sequence, sequence))
        return cut, charged

    def _afford(self, load: Load[TargetList], wanted: int, buffer_bytes: int, least_seconds: float) -> bool:
        target_area, memory = self._target_area, load.target.memory
        if memory.free_bytes < wanted + buffer_bytes:
            target_area.make_room(wanted + buffer_bytes, load.target, least_seconds=least_seconds)
        load.target.wanted_bytes = wanted + buffer_bytes
        if not memory.lists_holder.reserve(wanted):
            return False
        if not self._reading.reserve(buffer_bytes):
            memory.lists_holder.release(wanted)
            return False
        load.reserved_bytes += wanted
        load.buffer_bytes = buffer_bytes
        return True

    def _make_lazy(self, load: Load[TargetList], sequence: int) -> None:
        """Keep the place of a message without its body. The body is read when somebody looks at it."""
        target_area, lists = self._target_area, load.target.memory.lists_holder
        if not lists.reserve(OVERHEAD_BYTES):
            # Ahead of need, no list takes another one's last message: two lists would take from each other for ever.
            if load.is_needed and not load.reserved_bytes and not load.target.direct:
                target_area.make_room(OVERHEAD_BYTES, load.target, least=0)
            if not lists.reserve_again(OVERHEAD_BYTES) and not self._borrow(load):
                load.target.wanted_bytes = OVERHEAD_BYTES
                load.last = min(load.last, sequence - 1)
                return
        load.reserved_bytes += OVERHEAD_BYTES
        load.held[sequence] = (sequence, b"", None, 0)

    def _borrow(self, load: Load[TargetList]) -> bool:
        """Borrow memory for one reference, in case only bookkeeping fills memory."""
        target, counterpart = load.target, load.target.counterpart
        if not load.reserved_bytes and not target.direct:
            kept_bytes = 0
        elif counterpart is not None and not counterpart.direct and counterpart.has_supply:
            kept_bytes = LAST_BYTES // 2  # the counterpart's next message is due between the messages of this list
        else:
            kept_bytes = FIRST_BYTES
        return self._spill_account.lend(target.memory.lists_holder, OVERHEAD_BYTES, kept_bytes)

    def _abandon(self, load: Load[TargetList]) -> None:
        """Give back the reserved memory; the runs stay where they are. Requires: the lock."""
        was_begun = load.target.load is load
        self._target_area.end_load(load.target)
        self._reading.release(load.buffer_bytes)
        load.target.release(load.reserved_bytes)
        lane = load.target.lane
        dropped = [load.held[sequence] for sequence in sorted(load.from_cache)]
        if _is_stale(load):
            dropped = [message for message in dropped if lane.pending_lane.is_pending(message[0])]
        # If the list has ended, its lane may have no reader any more, and nobody would drop cached messages for it.
        is_read = load.target in self._target_area.lists
        lane.pager.page_out(
            [held for held in dropped if not (is_read and lane.pending_cache.put(lane.pending_lane.number, held))]
        )
        if was_begun:
            load.target.selector_group.load_ended(self._monitor.deferred)
            self._dispatch_area.retry_waiters()  # other lists may have waited for the memory of this load

    # ------------------------------------------------------------------ read and install

    def read(self, load: Load[TargetList]) -> None:
        """Read the missing messages and evaluate the selector. Requires: no lock."""
        selector_group, lane = load.target.selector_group, load.target.lane
        if load.brings_all:
            load.messages, load.unreadable = lane.backing_store.read(load.regions)
            return
        found: list[StoredMessage] = []
        for region in load.regions:
            messages, unreadable = lane.backing_store.read((region,))
            load.unreadable += unreadable
            found += messages
        if load.is_scan and (selector_group.selector is not None or selector_group.notes_message_groups):
            load.unwanted, found, undecided = selector_group.sort_out(list(load.held.values()), found, load.survey)
            _judge(load, undecided)
            found += undecided
        elif selector_group.notes_message_groups:
            _judge(load, [message for message in (*load.held.values(), *found) if message[2] is None])
        load.held.update(zip(map(sequence_of, found), found, strict=True))  # without those that surely do not match

    def install(self, load: Load[TargetList]) -> None:
        """Put the loaded messages into the list. Requires: the lock."""
        self.durations.record(self._monotonic() - load.began_at)
        target_area, target = self._target_area, load.target
        if target.needs_claims and not load.needed_claims and load.from_cache and not target.lane.is_persistent:
            self._abandon(load)  # the load took the only copies, but other lists share these messages now
            return
        target_area.end_load(target)
        if load.buffer_bytes:
            self._reading.release(load.buffer_bytes)
        if load.survey is not None:
            target.lane.note_survey(load.survey)
        is_alive = target in target_area.lists
        kept = self._put(load, is_alive=is_alive)
        if target.lane.unmatched is not None and is_alive:
            for sequence in load.unwanted.difference(sequence for sequence, _ in load.unreadable):
                target.lane.unmatched.add(sequence, sequence)
        if load.from_cache:
            self._drop_unused_copies(load, {message[0] for message in kept})
        target.lane.on_loaded(load)
        if load.unreadable and is_alive:  # a message behind the cut is met again
            _give_up(target.lane, [found for found in load.unreadable if found[0] <= load.last])
        target.selector_group.load_ended(self._monitor.deferred)
        self._dispatch_area.retry_waiters()
        if is_alive and target.direct_bytes < target.low_watermark_bytes:
            self._loads.request(target)

    def _put(self, load: Load[TargetList], *, is_alive: bool) -> list[StoredMessage]:
        """Put the messages that belong to the list into it, in place of the runs; return these messages.

        Release the other memory.
        """
        target = load.target
        if load.brings_all and is_alive and not target.needs_claims and not _is_stale(load) and not load.unreadable:
            kept, kept_bytes = load.messages, load.reserved_bytes
        else:
            kept, kept_bytes = self._kept(load, is_alive=is_alive)
        for first, last in load.runs:
            if first <= load.last:
                target.returned.remove(first, min(last, load.last))
                target.references.remove(first, min(last, load.last))
        target.frontier = max(target.frontier, load.last + 1)
        kept_bytes -= _refer_behind_watermark(target, kept)
        target.release(load.reserved_bytes - kept_bytes)
        if kept and load.is_return:
            target.put_back(kept)
        elif kept:
            target.own_direct()
            target.direct.extend(kept)
            target.direct_bytes += kept_bytes
        return kept

    def _drop_unused_copies(self, load: Load[TargetList], kept: set[int]) -> None:
        """Drop messages that came from the caches and did not get into the list."""
        lane = load.target.lane
        dropped: list[StoredMessage] = []
        for sequence in sorted(load.from_cache - kept):
            if _is_stale(load) and not lane.pending_lane.is_pending(sequence):
                continue
            message = load.held[sequence]
            is_head = sequence in load.unwanted and lane.memory.head_queue_cache.put(lane.pending_lane.number, message)
            if not is_head:
                dropped.append(message)
        lane.pager.page_out(dropped)

    def _kept(self, load: Load[TargetList], *, is_alive: bool) -> tuple[list[StoredMessage], int]:
        """Return the messages of a load that belong into its list, in order, and their charge."""
        target, pending_lane = load.target, load.target.lane.pending_lane
        is_doubtful = target.needs_claims or _is_stale(load)
        load.held.update(zip(map(sequence_of, load.messages), load.messages, strict=True))
        kept: list[StoredMessage] = []
        kept_bytes = 0
        # A message may have come back, been loaded, gone to another selector group, and come back again.
        doubled = target.direct_up_to(load.last) if load.is_return else ()
        for sequence in sorted(load.held.keys() - load.unwanted if load.unwanted else load.held):
            message = load.held[sequence]
            if sequence > load.last or not is_alive or sequence in doubled:
                continue
            if is_doubtful and not pending_lane.is_pending(sequence):
                continue
            kept.append(message)
            kept_bytes += charge_bytes(message)
        return kept, kept_bytes


def _load_of(
    target: TargetList, runs: list[tuple[int, int]], began_at: float, *, is_scan: bool, is_return: bool, is_needed: bool
) -> Load[TargetList]:
    """Return a load of chosen runs, before anything is reserved or read."""
    return Load(
        target,
        runs,
        is_scan=is_scan,
        is_return=is_return,
        is_needed=is_needed,
        needed_claims=target.needs_claims,
        purge_count=target.lane.purge_count,
        began_at=began_at,
    )


def _sequences(load: Load[TargetList]) -> Iterator[int]:
    """Yield the sequences of the runs of a load, in order."""
    return chain.from_iterable(range(first, last + 1) for first, last in load.runs)


def _is_stale(load: Load[TargetList]) -> bool:
    """Return whether messages of a load may be gone, because messages were removed since it began."""
    return load.purge_count != load.target.lane.purge_count


def _judge(load: Load[TargetList], messages: Iterable[StoredMessage]) -> None:
    """Find out which of these messages the list wants, and which group each lazy one has. Requires: no lock.

    A message that can't be read or judged is not wanted. If the message was only settled meanwhile, install finds that
    out.
    """
    selector_group, lane = load.target.selector_group, load.target.lane
    for message in messages:
        sequence = message[0]
        try:
            whole = message if message[2] is not None else lane.read_headers(sequence)
        except TooManyFiles:
            raise
        except ForebayError as error:
            load.unreadable.append((sequence, error.reason if isinstance(error, StoreFailed) else str(error)))
            load.unwanted.add(sequence)
            continue
        if message[2] is None and selector_group.notes_message_groups:
            selector_group.note_message_group(lane, whole)
        try:
            is_wanted = selector_group.examine(lane, whole, load.survey)
        except RecordDamaged as damage:
            load.unreadable.append((sequence, str(damage)))
            is_wanted = False
        if not is_wanted:
            load.unwanted.add(sequence)


def _refer_behind_watermark(target: TargetList, kept: list[StoredMessage]) -> int:
    """Turn messages that are now behind the watermark into references: memory ran short during the read.

    Remove these messages from `kept`. Return their charge.
    """
    charge = 0
    while kept and target.references and kept[-1][0] > target.references.first:
        message = kept.pop()
        charge += charge_bytes(message)
        target.references.add(message[0], message[0])
    return charge


def _give_up(lane: LaneState, unreadable: Iterable[tuple[int, str]]) -> None:
    """Give up pending messages that can't be read, and log each one."""
    for sequence, problem in unreadable:
        if lane.pending_lane.is_pending(sequence):
            lane.unreadable += 1
            place = f"{lane.id_prefix}{sequence}"
            logger.error("message %s can't be read and is passed over: %s", place, problem, event="message_unreadable")
            lane.give_up(sequence)


assert LOAD_MESSAGES_MAX <= BLOCK_MASK + 1


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
