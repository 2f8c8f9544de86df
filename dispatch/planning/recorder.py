"""Recorder: records the traffic of a store as a trace, which can be played under other memory limits.

A trace holds numbers only: lanes, sequences, lengths, times. Events are encoded
under the state lock, where they happen, and written without it, by
maintenance. An arrival is recorded no later than the next take of its lane,
and once a second, so that sends pay nothing. No error of the disk reaches a
caller: recording ends with one warning. A crash leaves all up to the last
block that was written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from ...cache.budget import Budget
from ...cache.shares import Shares
from ...cache.spill.overflow import Overflow
from ...store.disk.disk import File
from ...store.disk.user_file import user_place
from ...store.errors import SettingsError
from ...store.format.trace import (
    ACK,
    ARRIVE,
    GONE,
    HEADER,
    LANES_MAX,
    LET_GO,
    LIST,
    MAGIC,
    OFFER,
    TAKE,
    TICK,
    UNLIST,
    WAITING,
    Encoder,
    TraceHeader,
)
from ...store.journal.reading import StoredMessage
from ...store.late_log import LateLogger
from ...store.locks import OwnedLock, Whole
from ...store.message_store import MessageStore
from ...store.numbering import NOWHERE
from ...store.sequence_set import SequenceSet
from ..config.settings import Settings
from ..core.lists import TargetArea
from ..core.load_requests import LoadRequests
from ..core.model import ConsumerGroup, Delivery, LaneState, QueueArea, Taker, TargetList
from ..core.monitor import Monitor
from ..core.observer import ListObserver
from ..distribution.grouped import AssignedMessages
from ..selectors.selector import Selector
from ..topics.state import SubscriptionState

logger = LateLogger("forebay.dispatch.recorder")

TRACE_BYTES_MAX: Final = 1 << 32
"""Recording ends when the file has so many bytes."""
UNWRITTEN_BLOCKS_MAX: Final = 64
"""Blocks that may wait for maintenance. With more, the call that fills the next one writes them under the lock; four
times as many may wait for a write that is under way."""
TURN_MESSAGES: Final = 256
"""Arrivals that are recorded at one time are recorded so many a lane in turn."""
TAKES_BETWEEN_LOOKS: Final = 256
"""Takes after which the arrivals of all lanes are recorded."""


class _Lane:
    __slots__ = ("number", "noted")

    def __init__(self, number: int, noted: int) -> None:
        self.number = number
        self.noted = noted
        """Arrivals before this sequence are recorded."""


class Recorder:
    """One recording. Requires: the lock, but for `write` and `close`, which take it themselves."""

    def __init__(
        self, file: File, settings: Settings, state_lock: OwnedLock, wants_writing: Callable[[], None]
    ) -> None:
        """wants_writing: called under the lock when a block is full."""
        """file: new and empty."""
        self._file: File | None = file
        self._lock = state_lock
        self._whole = Whole(state_lock)
        self._writing = OwnedLock()
        self._encoder = Encoder()
        self._blocks: list[bytes] = [header_of(settings).encode()]
        self._written_bytes = 0
        self._lanes: dict[LaneState, _Lane] = {}
        self._lists: dict[TargetList, int] = {}
        self._lane_count = self._list_count = self._takes = self._milliseconds = 0
        self._wants_writing = wants_writing

    @property
    def is_recording(self) -> bool:
        return self._file is not None

    # ------------------------------------------------------------------ what happens

    def begin(self, areas: Iterable[LaneState]) -> None:
        """Record the arrivals of lanes from now on. What was there at open is not in RAM. O(blocks of the index)."""
        for area in areas:
            self._lane(area)

    def unloaded(self, area: LaneState, end: int) -> None:
        """Record messages before `end`, which are pending and not in RAM."""
        self._note(area, self._lane(area), WAITING, end)

    def opened(self, target: TargetList) -> None:
        """Record that a list came into being."""
        area = target.area
        number = self._lists[target] = self._list_count
        self._list_count += 1
        has_selector = target.consumer_group.selector is not None
        self._put(LIST, self._lane(area).number, 0, 0, number << 1 | has_selector)

    def closed(self, target: TargetList) -> None:
        """Record that a list ends."""
        self.look(target.area)
        self._put(UNLIST, self._lane(target.area).number, 0, 0, self._lists.pop(target))

    def taken(self, target: TargetList, first: int, count: int) -> None:
        """Record a delivery of consecutive messages."""
        area = target.area
        self.look(area)
        self._put(TAKE, self._lane(area).number, first, count, self._lists[target])
        self._takes += 1
        if not self._takes % TAKES_BETWEEN_LOOKS:
            self.look_everywhere()

    def settled(self, area: LaneState, first: int, count: int, *, is_done: bool) -> None:
        """Record that deliveries ended, by an ack (is_done) or without."""
        self._put(ACK if is_done else LET_GO, self._lane(area).number, first, count, 0)

    def offered(self, area: LaneState, sequence: int, *, is_loaded: bool) -> None:
        """Record that a message is offered again, and whether its body is in RAM."""
        self._put(OFFER, self._lane(area).number, sequence, 1, is_loaded)

    def gone(self, area: LaneState, gone: SequenceSet) -> None:
        """Record that messages were removed without a delivery."""
        self.look(area)
        for first, last in gone:
            self._put(GONE, self._lane(area).number, first, last - first + 1, 0)
        if area.queue.is_deleted:
            del self._lanes[area]

    def tick(self, seconds: float) -> None:
        """Record that time has passed."""
        self.look_everywhere()
        self._milliseconds += int(seconds * 1000)
        self._put(TICK, 0, self._milliseconds, 0, 0)

    def look(self, area: LaneState) -> None:
        """Record what has arrived in a lane. O(arrivals)."""
        lane = self._lane(area)
        if lane.noted < area.published:
            self._note(area, lane, ARRIVE, area.published)

    def look_everywhere(self) -> None:
        """Record what has arrived in all lanes, in turns, as if it had been sent side by side."""
        waiting = [area for area, lane in self._lanes.items() if lane.noted < area.published]
        while waiting:
            for area in waiting:
                lane = self._lanes[area]
                self._note(area, lane, ARRIVE, min(area.published, lane.noted + TURN_MESSAGES))
            waiting = [area for area in waiting if self._lanes[area].noted < area.published]

    def _lane(self, area: LaneState) -> _Lane:
        lane = self._lanes.get(area)
        if lane is None:
            lane = self._lanes[area] = _Lane(self._lane_count, 0)
            self._lane_count += 1
            self._note(area, lane, WAITING, area.first_sequence)
            if lane.number >= LANES_MAX:
                self._stop("there are too many lanes")
        return lane

    def _note(self, area: LaneState, lane: _Lane, kind: int, end: int) -> None:
        """Record what is pending before `end` and not recorded yet: runs of one length, or each run with its bytes."""
        at, lane.noted = lane.noted, end
        if area.queue.is_deleted:
            return
        while at < end and (run := area.lane.pending_run(at, end - at)) is not None and run[0] < end:
            first, last = run[0], min(run[1], end - 1)
            lengths = area.lane.lengths(first, last)
            at = last + 1
            if kind == WAITING:
                self._put(WAITING, lane.number, first, len(lengths), sum(lengths))
                continue
            begin = 0
            for index in range(1, len(lengths) + 1):
                if index == len(lengths) or lengths[index] != lengths[begin]:
                    self._put(ARRIVE, lane.number, first + begin, index - begin, lengths[begin])
                    begin = index

    # ------------------------------------------------------------------ writing

    def _put(self, kind: int, lane: int, first: int, count: int, extra: int) -> None:
        if self._file is None:
            return
        encoder = self._encoder
        encoder.put(kind, lane, first, count, extra)
        if encoder.is_full:
            self._blocks.append(encoder.block())
            if len(self._blocks) < UNWRITTEN_BLOCKS_MAX:
                self._wants_writing()
            else:
                self._write_here()

    def _write_here(self) -> None:
        """Write the blocks that maintenance has left waiting too long. Requires: the lock."""
        if self._writing.try_acquire():  # a write that is under way has earlier blocks
            try:
                blocks, self._blocks = self._blocks, []
                self._append(blocks)
            finally:
                self._writing.release()
        elif len(self._blocks) >= 4 * UNWRITTEN_BLOCKS_MAX:
            self._blocks.clear()
            self._stop("its disk is too slow")

    def write(self) -> int:
        """Write what was recorded to the file and return the number of blocks. Requires: no lock."""
        with self._writing:
            with self._lock, self._whole:
                block = self._encoder.block()
                blocks, self._blocks = self._blocks + [block] * bool(block), []
            self._append(blocks)
        return len(blocks)

    def _append(self, blocks: Sequence[bytes]) -> None:
        file = self._file
        if file is None or not blocks:
            return
        data = b"".join(blocks)
        try:
            file.append(data)
        except OSError as error:
            self._stop(error.strerror or str(error))
            return
        self._written_bytes += len(data)
        if self._written_bytes >= TRACE_BYTES_MAX:
            self._stop(f"the file has {self._written_bytes:,} bytes, which is enough")

    def _stop(self, reason: str) -> None:
        logger.warning("the trace is recorded no further: %s", reason, event="trace_ended")
        self._file = None

    def close(self) -> None:
        """Record the last arrivals, write them and close the file. Requires: no lock, and no further events."""
        if self._lock.failure is None:
            with self._lock, self._whole:
                self.look_everywhere()
            self.write()
        file, self._file = self._file, None
        if file is not None:
            file.close()


def new_trace(path: str) -> File:
    """Make an empty file for a trace. A trace that is there already becomes the one `.old`, in place of an earlier one.

    SettingsError: the file that is there is no trace, or no file can be made.
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
                disk.remove(name)  # nothing was recorded: not worth the earlier one
        return disk.open(name, create=True)
    except OSError as error:
        raise SettingsError(f"record_trace={path!r} can't be written ({error.strerror})") from None


def header_of(settings: Settings) -> TraceHeader:
    """Return the header of a trace that is recorded under these settings."""
    index_bytes = 0 if settings.index_cache_size is None else settings.index_cache_size_bytes
    return TraceHeader(settings.memory_limit_bytes, index_bytes, not settings.persistent_index)


class RecordedTargetArea(TargetArea):
    """A TargetArea that reports its events to a recorder; a store that records nothing pays nothing for it."""

    def __init__(
        self,
        recorder: Recorder,
        monitor: Monitor,
        store: MessageStore,
        budget: Budget,
        shares: Shares,
        loads: LoadRequests,
        *,
        syncs_always: bool,
        overflow: Overflow,
        observer: Callable[[TargetArea], ListObserver],
        on_expired: Callable[[LaneState, int], None],
        on_unread: Callable[[LaneState], None],
        on_lane_gone: Callable[[LaneState], None],
    ) -> None:
        self._recorder = recorder
        self._is_giving_back = False
        super().__init__(
            monitor,
            store,
            budget,
            shares,
            loads,
            syncs_always=syncs_always,
            overflow=overflow,
            observer=observer,
            on_expired=on_expired,
            on_unread=on_unread,
            on_lane_gone=on_lane_gone,
        )

    def subscribe(self, queue: QueueArea, selector: Selector | None) -> ConsumerGroup:
        for area in queue.lane_areas():
            if isinstance(queue, SubscriptionState):
                self._recorder.unloaded(area, area.published)  # what came while nobody read it
            else:
                self._recorder.look(area)
        return super().subscribe(queue, selector)

    def add_lane(self, area: LaneState) -> None:
        super().add_lane(area)
        if area.queue.is_queue:
            self._recorder.begin((area,))

    def add_list(self, area: LaneState, consumer_group: ConsumerGroup) -> None:
        super().add_list(area, consumer_group)
        self._recorder.opened(consumer_group.lists[-1])

    def unsubscribe(self, queue: QueueArea, consumer_group: ConsumerGroup) -> None:
        for target in consumer_group.lists:
            self._recorder.closed(target)
        super().unsubscribe(queue, consumer_group)

    def measure(self, seconds: float) -> None:
        self._recorder.tick(seconds)
        super().measure(seconds)

    def arrive_unloaded(self, area: LaneState, end: int) -> None:
        if area.queue.is_queue:
            self._recorder.look(area)
            self._recorder.unloaded(area, end)
        super().arrive_unloaded(area, end)

    def collect_one(self, consumer: Taker) -> Delivery | None:
        delivery = super().collect_one(consumer)
        if delivery is not None:
            self._recorder.taken(consumer.consumer_group.lists[0], delivery.sequence, 1)
        return delivery

    def hand_out(
        self,
        consumer: Taker,
        target: TargetList,
        most: int,
        max_bytes: int | None,
        deliveries: list[Delivery],
        before: int = NOWHERE,
    ) -> int | None:
        already = len(deliveries)
        max_bytes = super().hand_out(consumer, target, most, max_bytes, deliveries, before)
        for _, first, count in _runs(deliveries[already:]):
            self._recorder.taken(_shared(target), first, count)
        return max_bytes

    def settle(self, delivery: Delivery) -> None:
        super().settle(delivery)
        area, sequence = delivery._area, delivery.sequence
        # An ack has removed the message before; a message that is given back is pending still.
        self._recorder.settled(area, sequence, 1, is_done=not area.lane.is_pending(sequence))

    def settle_run(self, area: LaneState, deliveries: Sequence[Delivery]) -> None:
        super().settle_run(area, deliveries)
        self._recorder.settled(area, deliveries[0].sequence, len(deliveries), is_done=True)

    def offer_again(self, area: LaneState, message: StoredMessage) -> None:
        self._recorder.offered(area, message[0], is_loaded=message[2] is not None)
        super().offer_again(area, message)

    def offer_put_off(self, area: LaneState, runs: Sequence[tuple[int, int]]) -> None:
        for first, last in runs if area.queue.dealer is None else ():
            for sequence in range(first, last + 1):
                self._recorder.offered(area, sequence, is_loaded=False)
        super().offer_put_off(area, runs)

    def forget(self, area: LaneState, gone: SequenceSet) -> None:
        self._recorder.gone(area, gone)
        super().forget(area, gone)


def _shared(target: TargetList) -> TargetList:
    """Return the list that is recorded for a list: of assigned messages the one that they were assigned from."""
    consumer_group = target.consumer_group
    return consumer_group.stock.list_over(target.area) if isinstance(consumer_group, AssignedMessages) else target


def _runs(deliveries: Sequence[Delivery]) -> list[tuple[LaneState, int, int]]:
    """Return deliveries in order as runs: (lane, first sequence, how many)."""
    runs: list[tuple[LaneState, int, int]] = []
    for delivery in deliveries:
        if runs and runs[-1][0] is delivery._area and sum(runs[-1][1:]) == delivery.sequence:
            area, first, count = runs[-1]
            runs[-1] = (area, first, count + 1)
        else:
            runs.append((delivery._area, delivery.sequence, 1))
    return runs
