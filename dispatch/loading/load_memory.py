"""LoadMemory: what a load may hold in RAM until its messages are in the list.

It reserves memory for the messages to be read and for the read buffer. If memory has no room, a load for which no
consumer waits is cut. If a consumer waits, the messages become lazy: the list has only their places, and each body is
read when the consumer looks at it.
"""

from __future__ import annotations

from ...cache.accounting.budget import Holder
from ...cache.accounting.charge import OVERHEAD_BYTES, charge_of_size
from ...cache.spill.spill_account import FIRST_REFERENCES_BYTES, REFERENCES_BYTES, SpillAccount
from ..core.lists.load import Load
from ..core.memory.reclaim import Reclaim
from ..core.memory.watermarks import Watermarks
from ..core.model.destination import TargetList


class LoadMemory:
    """Reserves memory for loads. Every method requires the lock."""

    def __init__(self, watermarks: Watermarks, reclaim: Reclaim, spill_account: SpillAccount, reading: Holder) -> None:
        """spill_account: lends memory for one reference if bookkeeping fills all memory.
        reading: pays for read buffers.
        """
        self._watermarks = watermarks
        self._reclaim = reclaim
        self._spill_account = spill_account
        self._reading = reading

    def reserve(self, load: Load[TargetList]) -> None:
        """Reserve memory for messages to read. Without memory, messages become lazy, or else the load is cut."""
        largest_bytes, target = self._watermarks.shares.large_message_bytes, load.target
        if not load.held:
            pending_lane = target.lane.pending_lane
            columns = [pending_lane.lengths(first, last) for first, last in load.runs]
            if max(map(max, columns)) <= largest_bytes:
                wants_all = not load.needs_matching or target.selector_group.selector is None
                load.brings_all = wants_all and not load.is_return
                total = sum(map(sum, columns)) + OVERHEAD_BYTES * sum(map(len, columns))
                self._reserve_runs(load, load.runs, total)
                return
        runs, wanted = self._missing(load)
        if runs:
            self._reserve_runs(load, runs, wanted)

    def _missing(self, load: Load[TargetList]) -> tuple[list[tuple[int, int]], int]:
        """Return the runs of the load that no cache had, and their charge. Messages too large for RAM become lazy."""
        largest_bytes = self._watermarks.shares.large_message_bytes
        runs: list[tuple[int, int]] = []
        wanted = 0
        for sequence, length in _lengths(load.target, load.runs):
            if sequence in load.held:
                continue
            if length > largest_bytes:
                self.make_lazy(load, sequence)
                continue
            wanted += charge_of_size(length)
            if runs and runs[-1][1] == sequence - 1:
                runs[-1] = (runs[-1][0], sequence)
            else:
                runs.append((sequence, sequence))
        return runs, wanted

    def _reserve_runs(self, load: Load[TargetList], runs: list[tuple[int, int]], wanted: int) -> None:
        """Reserve memory for runs, or for as many messages as memory can hold, and for the largest read among them."""
        target = load.target
        messages = sum(last - first + 1 for first, last in runs)
        if load.is_needed and wanted <= 2 * OVERHEAD_BYTES * messages and target.memory.free_bytes < wanted:
            # Load fewer messages if references for all of them would take as much memory.
            self._reclaim.make_room(wanted, target)
            few = min(messages, self._spill_account.last_bytes // OVERHEAD_BYTES) // 2
            runs, wanted = self._cut_to_memory(load, runs, wanted, few)
        regions = target.lane.backing_store.plan(target.lane.pending_lane, runs)
        buffer_bytes = max(region.length for region in regions)
        # A load for which no consumer waits takes nothing from a list with less supply. Otherwise two lists would take
        # from each other for ever.
        supply_seconds_min = 0.0 if load.is_needed else (target.direct_bytes + wanted) / target.bytes_per_second
        if self._afford(load, wanted, buffer_bytes, supply_seconds_min):
            load.regions = regions
        else:
            self._do_without(load, runs, messages)

    def _do_without(self, load: Load[TargetList], runs: list[tuple[int, int]], messages: int) -> None:
        """Make the messages of runs lazy, because memory can't hold them; or end the load, if no consumer waits for it.

        messages: how many references memory should have room for.
        """
        load.brings_all = False
        if not load.is_needed:
            load.end_before(runs[0][0])
            return
        if load.target.memory.free_bytes < OVERHEAD_BYTES * messages:
            self._reclaim.make_room(OVERHEAD_BYTES * messages, load.target)
        for first, last in runs:
            for sequence in range(first, last + 1):
                if sequence <= load.last:
                    self.make_lazy(load, sequence)

    def _cut_to_memory(
        self, load: Load[TargetList], runs: list[tuple[int, int]], wanted: int, few: int
    ) -> tuple[list[tuple[int, int]], int]:
        """Cut the runs to what free memory can hold, unless that is only a few messages."""
        free_bytes = load.target.memory.free_bytes
        cut: list[tuple[int, int]] = []
        charged = messages = 0
        for sequence, length in _lengths(load.target, runs):
            if charged + charge_of_size(length) > free_bytes:
                if messages <= few:
                    return runs, wanted
                load.end_before(sequence)
                return cut, charged
            charged += charge_of_size(length)
            messages += 1
            if cut and cut[-1][1] == sequence - 1:
                cut[-1] = (cut[-1][0], sequence)
            else:
                cut.append((sequence, sequence))
        return cut, charged

    def _afford(self, load: Load[TargetList], wanted: int, buffer_bytes: int, supply_seconds_min: float) -> bool:
        """Reserve so much for messages and for a read buffer; return whether memory has room for both.

        supply_seconds_min: the supply that other lists keep.
        """
        reclaim, memory = self._reclaim, load.target.memory
        if memory.free_bytes < wanted + buffer_bytes:
            reclaim.make_room(wanted + buffer_bytes, load.target, supply_seconds_min=supply_seconds_min)
        load.target.note_wanted(wanted + buffer_bytes)
        if not memory.lists_holder.reserve(wanted):
            return False
        if not self._reading.reserve(buffer_bytes):
            memory.lists_holder.release(wanted)
            return False
        load.reserved_bytes += wanted
        load.buffer_bytes = buffer_bytes
        return True

    def make_lazy(self, load: Load[TargetList], sequence: int) -> None:
        """Keep the place of a message without its body. The body is read when somebody looks at it."""
        reclaim, lists = self._reclaim, load.target.memory.lists_holder
        if not lists.reserve(OVERHEAD_BYTES):
            # Only a load for which a consumer waits takes the last message of another list. Otherwise two lists would
            # take from each other for ever.
            if load.is_needed and not load.reserved_bytes and not load.target.direct:
                reclaim.make_room(OVERHEAD_BYTES, load.target, messages_min=0)
            if not lists.reserve_released(OVERHEAD_BYTES) and not self._borrow(load):
                load.target.note_wanted(OVERHEAD_BYTES)
                load.end_before(sequence)
                return
        load.reserved_bytes += OVERHEAD_BYTES
        load.held[sequence] = (sequence, b"", None, 0)

    def _borrow(self, load: Load[TargetList]) -> bool:
        """Borrow memory for one reference from the SpillAccount, in case bookkeeping fills all memory."""
        target, counterpart = load.target, load.target.counterpart
        if not load.reserved_bytes and not target.direct:
            kept_bytes = 0
        elif counterpart is not None and not counterpart.direct and counterpart.has_supply:
            # the counterpart's next message is due between the messages of this list
            kept_bytes = REFERENCES_BYTES // 2
        else:
            kept_bytes = FIRST_REFERENCES_BYTES
        return self._spill_account.lend(target.memory.lists_holder, OVERHEAD_BYTES, kept_bytes)

    def release_buffer(self, load: Load[TargetList]) -> None:
        """Release the memory of the read buffer, because the load has ended."""
        if load.buffer_bytes:
            self._reading.release(load.buffer_bytes)


def _lengths(target: TargetList, runs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the sequence and the length of each message of these runs, in order."""
    pending_lane = target.lane.pending_lane
    return [item for first, last in runs for item in enumerate(pending_lane.lengths(first, last), first)]
