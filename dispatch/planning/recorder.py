"""Recorder: records the traffic of a store as a trace, which can be played under other memory limits.

A trace holds only numbers: lanes, sequences, lengths, times. Events are encoded under the state lock, where they
happen. The housekeeper writes them without it. An arrival is recorded no later than the next take of its lane, and once
a second, so that recording does not slow sends. No error of the disk reaches a caller. Recording ends with one warning
instead. After a crash the trace is complete up to the last block that was written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from ...cache.accounting.budget import Holder
from ...store.disk.disk import File
from ...store.disk.user_file import user_place
from ...store.environment.late_log import LateLogger
from ...store.environment.locks import AllOrBroken, OwnedLock
from ...store.errors import SettingsError
from ...store.format.trace import (
    ACK,
    ARRIVE,
    GONE,
    HEADER,
    LANES_MAX,
    LIST,
    MAGIC,
    OFFER,
    RELEASED,
    TAKE,
    TICK,
    TRACE_BYTES,
    UNLIST,
    WAITING,
    Encoder,
    TraceHeader,
)
from ...store.numbering import BEHIND_ALL
from ...store.stored_message import StoredMessage
from ...store.structures.sequence_set import SequenceSet
from ..config.settings import Settings
from ..core.areas.dispatch_area import DispatchArea
from ..core.areas.load_requests import LoadRequests
from ..core.areas.observer import AreaUpcalls, TrafficObserver
from ..core.areas.take import Take
from ..core.memory.memory_owners import MemoryOwners
from ..core.model.delivery import Delivery, DeliveryLane
from ..core.model.destination import CoreConsumer, CoreDestination, LaneState, TargetList, lane_of
from ..topics.state.subscription_state import SubscriptionState

logger = LateLogger("forebay.dispatch.recorder")

TRACE_BYTES_MAX: Final = 1 << 32
"""Size of the file at which recording ends."""
LANE_BYTES: Final = 1536
"""Charged for what the recorder knows of a lane."""
LIST_BYTES: Final = 128
"""Charged for what the recorder knows of a list."""
UNWRITTEN_BLOCKS_MAX: Final = 64
"""Blocks that may wait for the housekeeper, if memory is free for them. With more, the call that fills the next block
writes them under the lock. While a write is under way, four times as many may wait.
"""
TURN_MESSAGES: Final = 256
"""The most arrivals of one lane that are recorded before those of the next, where several lanes have some."""
TAKES_BETWEEN_LOOKS: Final = 256
"""Number of takes after which the arrivals of all lanes are recorded."""


class _LaneProgress:
    """How far the arrivals of one lane are recorded."""

    __slots__ = ("trace_number", "noted")

    def __init__(self, trace_number: int, noted: int) -> None:
        # The number of the lane in the trace, which counts lanes as they come.
        self.trace_number = trace_number
        # Arrivals before this sequence are recorded.
        self.noted = noted


class Recorder:
    """One recording. Requires: the lock, except for `write` and `close`, which take it themselves."""

    def __init__(
        self,
        file: File,
        settings: Settings,
        state_lock: OwnedLock,
        wants_writing: Callable[[], None],
        holder: Holder,
        make_room: Callable[[int], None],
    ) -> None:
        """Make a recording that writes to a new and empty file.

        wants_writing: called under the lock when a block is full.
        holder: nothing is charged to it yet.
        make_room: gives back memory that caches have, as far as possible.
        """
        self._file: File | None = file
        self._lock = state_lock
        self._all_or_broken = AllOrBroken(state_lock)
        self._writing = OwnedLock()
        self._encoder = Encoder()
        self._holder = holder
        self._make_room = make_room
        self._blocks: list[bytes] = []
        self._header = header_of(settings).encode()
        # The bytes of blocks that wait to be written, and of those that are being written.
        self._unwritten_bytes = 0
        self._written_bytes = 0
        self._progress: dict[LaneState, _LaneProgress] = {}
        self._lists: dict[TargetList, int] = {}
        self._lane_count = self._list_count = self._takes = self._milliseconds = 0
        self._wants_writing = wants_writing
        self._own_bytes = TRACE_BYTES if self._charge(TRACE_BYTES) else 0

    # ------------------------------------------------------------------ events

    def begin(self, lanes: Iterable[LaneState]) -> None:
        """Record the arrivals of lanes from now on. Messages that were there at open are not in RAM.

        O(blocks of the index).
        """
        if self._file is None:
            return
        for lane in lanes:
            self._progress_of(lane)

    def unloaded(self, lane: LaneState, end: int) -> None:
        """Record which messages before `end` are pending and not in RAM."""
        if self._file is None:
            return
        self._note(lane, self._progress_of(lane), WAITING, end)

    def opened(self, target: TargetList) -> None:
        """Record that a list was made."""
        if self._file is None:
            return
        lane = target.lane
        if not self._charge(LIST_BYTES):
            return
        number = self._lists[target] = self._list_count
        self._list_count += 1
        has_selector = target.selector_group.selector is not None
        self._put(LIST, self._progress_of(lane).trace_number, 0, 0, number << 1 | has_selector)

    def closed(self, target: TargetList) -> None:
        """Record that a list ended."""
        if self._file is None:
            return
        self.note_arrivals(target.lane)
        self._put(UNLIST, self._progress_of(target.lane).trace_number, 0, 0, self._lists.pop(target))
        self._holder.release(LIST_BYTES)

    def taken(self, target: TargetList, first: int, count: int) -> None:
        """Record a delivery of consecutive messages."""
        if self._file is None:
            return
        lane = target.lane
        self.note_arrivals(lane)
        self._put(TAKE, self._progress_of(lane).trace_number, first, count, self._lists[target])
        self._takes += 1
        if not self._takes % TAKES_BETWEEN_LOOKS:
            self.note_all_arrivals()

    def settled(self, lane: LaneState, first: int, count: int, *, is_done: bool) -> None:
        """Record that deliveries ended, by an ack (is_done) or otherwise."""
        if self._file is None:
            return
        self._put(ACK if is_done else RELEASED, self._progress_of(lane).trace_number, first, count, 0)

    def reoffered(self, lane: LaneState, sequence: int, *, is_loaded: bool) -> None:
        """Record that a message is offered again, and whether its body is in RAM."""
        if self._file is None:
            return
        self._put(OFFER, self._progress_of(lane).trace_number, sequence, 1, is_loaded)

    def gone(self, lane: LaneState, gone: SequenceSet) -> None:
        """Record that messages were removed without a delivery."""
        if self._file is None:
            return
        self.note_arrivals(lane)
        for first, last in gone:
            self._put(GONE, self._progress_of(lane).trace_number, first, last - first + 1, 0)

    def forget(self, lane: LaneState) -> None:
        """Forget a lane that has ended, or that is closed until its queue is used again."""
        if self._progress.pop(lane, None) is not None:
            self._holder.release(LANE_BYTES)

    def tick(self, seconds: float) -> None:
        """Record that time has passed."""
        if self._file is None:
            return
        self.note_all_arrivals()
        self._milliseconds += int(seconds * 1000)
        self._put(TICK, 0, self._milliseconds, 0, 0)

    def note_arrivals(self, lane: LaneState) -> None:
        """Record the arrivals of a lane. O(arrivals)."""
        if self._file is None:
            return
        progress = self._progress_of(lane)
        if progress.noted < lane.published_end:
            self._note(lane, progress, ARRIVE, lane.published_end)

    def note_all_arrivals(self) -> None:
        """Record the arrivals of all lanes in turns, as if they had been sent concurrently."""
        if self._file is None:
            return
        waiting = [lane for lane, progress in self._progress.items() if progress.noted < lane.published_end]
        while waiting:
            for lane in waiting:
                progress = self._progress[lane]
                self._note(lane, progress, ARRIVE, min(lane.published_end, progress.noted + TURN_MESSAGES))
            waiting = [lane for lane in waiting if self._progress[lane].noted < lane.published_end]

    def _progress_of(self, lane: LaneState) -> _LaneProgress:
        progress = self._progress.get(lane)
        if progress is None:
            progress = _LaneProgress(self._lane_count, 0)
            if not self._charge(LANE_BYTES):
                return progress
            self._progress[lane] = progress
            self._lane_count += 1
            self._note(lane, progress, WAITING, lane.first_sequence)
            if progress.trace_number >= LANES_MAX:
                self._stop("there are too many lanes")
        return progress

    def _note(self, lane: LaneState, progress: _LaneProgress, kind: int, end: int) -> None:
        """Record the pending messages before `end` that are not in the trace yet.

        Arrivals are recorded as runs of one length, waiting messages as runs with the bytes of all.
        """
        at, progress.noted = progress.noted, end
        if not lane.destination.is_open:
            return
        while at < end and (run := lane.pending_lane.pending_run(at, end - at)) is not None and run[0] < end:
            first, last = run[0], min(run[1], end - 1)
            lengths = lane.pending_lane.lengths(first, last)
            at = last + 1
            if kind == WAITING:
                self._put(WAITING, progress.trace_number, first, len(lengths), sum(lengths))
                continue
            begin = 0
            for index in range(1, len(lengths) + 1):
                if index == len(lengths) or lengths[index] != lengths[begin]:
                    self._put(ARRIVE, progress.trace_number, first + begin, index - begin, lengths[begin])
                    begin = index

    # ------------------------------------------------------------------ writing

    def _put(self, kind: int, lane_number: int, first: int, count: int, extra: int) -> None:
        if self._file is None:
            return
        encoder = self._encoder
        encoder.put(kind, lane_number, first, count, extra)
        if encoder.is_full:
            block = encoder.block()
            if len(self._blocks) < UNWRITTEN_BLOCKS_MAX and self._holder.reserve(len(block)):
                self._keep(block)
                self._wants_writing()
            else:
                self._write_here(block)

    def _keep(self, block: bytes) -> None:
        """Keep a block, which is charged, until the housekeeper writes it."""
        self._blocks.append(block)
        self._unwritten_bytes += len(block)

    def _write_here(self, block: bytes) -> None:
        """Write a block and all earlier ones in this thread: too many wait, or memory has no room for one more.

        While another thread writes earlier blocks, the block must wait. If it can't, the recording ends.
        """
        if self._writing.try_acquire():
            try:
                blocks, self._blocks = self._blocks, []
                self._append(blocks)
                self._release_written(blocks)
                self._append((block,))
            finally:
                self._writing.release()
        elif len(self._blocks) >= 4 * UNWRITTEN_BLOCKS_MAX:
            self._give_up("its disk is too slow")
        elif self._holder.reserve_released(len(block)):
            self._keep(block)
        else:
            self._give_up("its disk is too slow for the memory that is left")

    def _give_up(self, reason: str) -> None:
        """End the recording and drop the blocks that wait. Requires: the lock."""
        blocks, self._blocks = self._blocks, []
        self._release_written(blocks)
        self._stop(reason)

    def _release_written(self, blocks: Sequence[bytes]) -> None:
        """Release the charge of blocks that are written."""
        written_bytes = sum(map(len, blocks))
        self._unwritten_bytes -= written_bytes
        self._holder.release(written_bytes)

    def _charge(self, charge_bytes: int) -> bool:
        """Charge for what the recorder knows of a lane or list. If memory has no room for that, end the recording."""
        if not self._holder.reserve(charge_bytes):
            self._make_room(charge_bytes)
            if not self._holder.reserve(charge_bytes):
                self._stop("memory_limit has no room for what it must know of one more lane or consumer")
                return False
        return True

    def _forget_all(self) -> None:
        """Forget all lanes and lists, because the recording has ended. Requires: the lock."""
        self._holder.release(LANE_BYTES * len(self._progress) + LIST_BYTES * len(self._lists))
        self._progress.clear()
        self._lists.clear()

    def audit(self) -> dict[str, int]:
        """Return what should be charged for the recording, by holder. Requires: the lock."""
        known_bytes = LANE_BYTES * len(self._progress) + LIST_BYTES * len(self._lists)
        return {self._holder.name: self._own_bytes + known_bytes + self._unwritten_bytes}

    def write(self) -> int:
        """Write the recorded blocks to the file and return the number of blocks. Requires: the lock is not held."""
        with self._writing:
            with self._lock, self._all_or_broken:
                block = self._encoder.block()
                blocks, self._blocks = self._blocks, []
            self._append(blocks)
            self._append((block,) * bool(block))
            with self._lock, self._all_or_broken:
                self._release_written(blocks)
                if self._file is None:
                    self._forget_all()
        return len(blocks) + bool(block)

    def _append(self, blocks: Sequence[bytes]) -> None:
        file = self._file
        if file is None:
            return
        try:
            for block in filter(None, (self._header, *blocks)):
                file.append(block)
                self._written_bytes += len(block)
                self._header = b""
        except OSError as error:
            self._stop(error.strerror or str(error))
            return
        if self._written_bytes >= TRACE_BYTES_MAX:
            self._stop(f"the file has {self._written_bytes:,} bytes, which is enough")

    def _stop(self, reason: str) -> None:
        logger.warning("the trace is recorded no further: %s", reason, event="trace_ended")
        self._file = None

    def close(self) -> None:
        """Record the last arrivals, write them and close the file.

        Requires: the lock is not held, and no event follows.
        """
        if self._lock.failure is None:
            with self._lock, self._all_or_broken:
                self.note_all_arrivals()
            self.write()
        file, self._file = self._file, None
        if file is not None:
            file.close()


def new_trace(path: str) -> File:
    """Make an empty file for a trace.

    An earlier trace of that name is renamed to `.old`, and replaces an older one there.

    SettingsError: the file of that name is no trace, or no file can be made.
    """
    disk, name = user_place(path)
    try:
        if disk.exists(name):
            earlier = disk.open_for_reading(name)
            start, size = earlier.read(0, len(MAGIC)), earlier.size()
            earlier.close()
            if start and start != MAGIC:
                raise SettingsError(f"record_trace={path!r} is there already and is no trace: name another file")
            if size > HEADER.size:
                disk.rename(name, f"{name}.old")
            else:
                disk.remove(name)  # an empty recording must not replace the earlier one
        return disk.open(name, create=True)
    except OSError as error:
        raise SettingsError(f"record_trace={path!r} can't be written ({error.strerror})") from None


def header_of(settings: Settings) -> TraceHeader:
    """Return the header of a trace that is recorded under these settings."""
    index_bytes = 0 if settings.index_cache_size is None else settings.index_cache_size_bytes
    return TraceHeader(settings.memory_limit_bytes, index_bytes, not settings.persistent_index)


class RecordedDispatchArea(DispatchArea):
    """A DispatchArea that reports its events to a recorder.

    It is a subclass, unlike the observer RecordedTraffic: every message passes the four methods that it overrides, and
    a store without a recording must pay nothing there.
    """

    def __init__(
        self,
        recorder: Recorder,
        memory: MemoryOwners,
        loads: LoadRequests,
        now_ms: Callable[[], int],
        upcalls: AreaUpcalls,
    ) -> None:
        """The parameters behind the first are those of a DispatchArea: machine code takes no `*arguments` here."""
        self._recorder = recorder
        super().__init__(memory, loads, now_ms, upcalls)

    def dispatch_one(self, consumer: CoreConsumer) -> Delivery | None:
        delivery = super().dispatch_one(consumer)
        if delivery is not None:
            self._recorder.taken(consumer.selector_group.lists[0], delivery.sequence, 1)
        return delivery

    def dispatch_from(self, take: Take, target: TargetList, before: int = BEHIND_ALL) -> None:
        already = len(take.deliveries)
        super().dispatch_from(take, target, before)
        for _, first, count in _runs(take.deliveries[already:]):
            self._recorder.taken(target.selector_group.source_list(target), first, count)

    def settle(self, delivery: Delivery) -> None:
        super().settle(delivery)
        lane, sequence = lane_of(delivery), delivery.sequence
        # An ack has removed the message already; a returned message is still pending.
        self._recorder.settled(lane, sequence, 1, is_done=not lane.pending_lane.is_pending(sequence))

    def settle_run(self, lane: DeliveryLane, deliveries: Sequence[Delivery]) -> None:
        super().settle_run(lane, deliveries)
        self._recorder.settled(lane_of(deliveries[0]), deliveries[0].sequence, len(deliveries), is_done=True)


class RecordedTraffic(TrafficObserver):
    """Tells a recorder of the traffic that its TargetArea reports."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def subscribes(self, destination: CoreDestination) -> None:
        for lane in destination.all_lanes():
            if isinstance(destination, SubscriptionState):
                self._recorder.unloaded(lane, lane.published_end)  # messages that came while nobody read the lane
            else:
                self._recorder.note_arrivals(lane)

    def lane_added(self, lane: LaneState) -> None:
        if lane.destination.has_lists:
            self._recorder.begin((lane,))

    def list_added(self, target: TargetList) -> None:
        self._recorder.opened(target)

    def list_ends(self, target: TargetList) -> None:
        self._recorder.closed(target)

    def measures(self, seconds: float) -> None:
        self._recorder.tick(seconds)

    def arrives_unloaded(self, lane: LaneState, end: int) -> None:
        if lane.destination.has_lists:
            self._recorder.note_arrivals(lane)
            self._recorder.unloaded(lane, end)

    def reoffers_returned(self, lane: LaneState, message: StoredMessage) -> None:
        self._recorder.reoffered(lane, message[0], is_loaded=message[2] is not None)

    def reoffers_delayed(self, lane: LaneState, runs: Sequence[tuple[int, int]]) -> None:
        for first, last in runs if lane.distribution.is_ordinary else ():
            for sequence in range(first, last + 1):
                self._recorder.reoffered(lane, sequence, is_loaded=False)

    def forgets(self, lane: LaneState, gone: SequenceSet) -> None:
        self._recorder.gone(lane, gone)

    def lane_gone(self, lane: LaneState) -> None:
        self._recorder.forget(lane)


def _runs(deliveries: Sequence[Delivery]) -> list[tuple[LaneState, int, int]]:
    """Return deliveries in order as runs: (lane, first sequence, number of messages)."""
    runs: list[tuple[LaneState, int, int]] = []
    for delivery in deliveries:
        if runs and runs[-1][0] is lane_of(delivery) and sum(runs[-1][1:]) == delivery.sequence:
            lane, first, count = runs[-1]
            runs[-1] = (lane, first, count + 1)
        else:
            runs.append((lane_of(delivery), delivery.sequence, 1))
    return runs
