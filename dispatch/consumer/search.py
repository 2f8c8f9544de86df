"""Search: a take that found nothing in RAM, which threads and event loops drive alike.

It loads what comes next, or waits for it, for credit or for memory. Nothing here survives the process.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ...store.histogram import DurationHistogram
from ..core.areas.dispatch_area import DispatchArea
from ..core.areas.load_requests import LoadRequests
from ..core.deliveries.delivery import Delivery
from ..core.lists.load import Load
from ..core.model import Taker, TargetList
from ..core.monitor import Monitor
from ..core.settling.due import DueMessages
from ..loading.eager import EagerLoader
from .waits import Waits

LOAD_WAIT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class SearchParts:
    """What each search of a store reaches beside its consumer."""

    monitor: Monitor
    dispatch_area: DispatchArea
    loads: LoadRequests
    loader: EagerLoader
    due: DueMessages
    take_durations: DurationHistogram = field(default_factory=DurationHistogram)
    """How long those takes took that found nothing in RAM and returned messages. The state lock guards it."""


class Search:
    """A take that found nothing in RAM, and what came of its last round.

    Where `look` returns None, whoever drives the take does what these three say:

    load      is_coming  has_credit  what to do
    a load    True       True        finish the load, without the lock, and look again
    None      True       True        wait for the end of another's load, which is near
    None      False      True        wait for messages to arrive
    None      False      False       wait for credit: an ack, or memory that comes free

    When its time is up it waits for nothing but a load that is under way, and returns no deliveries. `run` is what
    drives it in a thread.
    """

    __slots__ = (
        "has_credit",
        "is_coming",
        "is_scanned",
        "is_timed_out",
        "load",
        "_began_at",
        "_consumer",
        "_is_missed",
        "_max_bytes",
        "_max_messages",
        "_parts",
        "_waits",
    )

    def __init__(
        self,
        parts: SearchParts,
        consumer: Taker,
        waits: Waits,
        max_messages: int,
        max_bytes: int | None,
        *,
        is_timed_out: bool = False,
    ) -> None:
        """waits: the consumer's."""
        self._parts = parts
        self._consumer = consumer
        self._waits = waits
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._began_at = parts.monitor.monotonic()
        self.is_timed_out = is_timed_out
        """Its timeout has passed."""
        self.is_scanned = False
        """A part of what there is was examined with its selector already."""
        self._is_missed = False
        """It had to wait for a load."""
        self.load: Load[TargetList] | None = None
        """Begun for it: to be finished without the lock."""
        self.is_coming = False
        """A load is under way, this one or another's."""
        self.has_credit = False
        """It waits for messages, not for room to hold any."""

    def run(self, timeout: float | None) -> list[Delivery]:
        """Load something, or wait for it, at most `timeout` seconds; None: for ever. Requires: no lock."""
        parts, monitor, consumer = self._parts, self._parts.monitor, self._consumer
        deadline = None if timeout is None else self._began_at + timeout
        try:
            while True:
                with monitor.lock:
                    self.is_timed_out = deadline is not None and monitor.monotonic() >= deadline
                    with monitor.whole:
                        found = self.look()
                    if found is not None:
                        return found
                    if self.load is None and not self._wait(deadline):
                        self._waits.arm(consumer.consumer_group)
                        return []
                self.is_scanned = consumer.consumer_group.selector is not None
                if self.load is not None:
                    parts.loader.finish(self.load)
        except BaseException:
            if self.load is not None:
                parts.loader.give_up(self.load)
            raise

    def look(self) -> list[Delivery] | None:
        """Look once more; None: load or wait, as the attributes say. Closed: the consumer's end. Requires: the lock."""
        parts, consumer = self._parts, self._consumer
        if consumer.stage.is_over:
            raise consumer.stage.refusal()
        parts.due.release()
        self.load = None
        self.is_coming = self.has_credit = False
        if consumer.stage.gets_nothing:
            consumer.destination.stand_by(consumer)
        most = consumer.room(self._max_messages)
        while most > 0:
            deliveries = consumer.collector.collect(consumer, most, self._max_bytes)
            if deliveries:
                parts.take_durations.record(parts.monitor.monotonic() - self._began_at)
                if self._is_missed:
                    consumer.consumer_group.misses += len(deliveries)
                return deliveries
            target = parts.dispatch_area.starving(consumer.consumer_group)
            if self.is_scanned and self.is_timed_out:
                if target is not None:
                    # The loader may have given it up while memory was short.
                    parts.loads.request(target)
                self._waits.arm(consumer.consumer_group)
                return []  # nothing matched so far: the scan goes on in the background, or with the next take
            if target is None:
                self.has_credit = True
                break
            if self._seek(target):
                break
        if not self.has_credit:
            self._stand_in_line(is_for_memory=most > 0)
        return None

    def _seek(self, target: TargetList) -> bool:
        """Begin a load of the list that starves, unless one is under way; False: all that it had is settled."""
        self._parts.loads.missed(target)
        if not target.is_loading:
            self.load = self._parts.loader.begin(target, is_needed=True)
            if self.load is None and not target.has_supply:
                return False
        self.is_coming = self.has_credit = target.is_loading
        # A load that another thread has under way counts too: its message was not there in time.
        self._is_missed |= self.is_coming and (self.load is None or bool(self.load.regions))
        return True

    def _stand_in_line(self, *, is_for_memory: bool) -> None:
        """Wait for credit, or for memory: for its load, or because what is in flight fills it. Requires: the lock."""
        dispatch_area, consumer = self._parts.dispatch_area, self._consumer
        self._waits.begin_for_credit()
        consumer.consumer_group.arrived.notify()  # it may have been called in the place of one that has credit
        if is_for_memory or dispatch_area.is_short_for(consumer.destination.memory):
            dispatch_area.waits_for_memory[consumer] = None

    def _wait(self, deadline: float | None) -> bool:
        """Wait for something to change; False: the time is up. A load that is under way ends soon."""
        lock, now = self._parts.monitor.lock, self._parts.monitor.monotonic()
        if self.is_coming:
            wait_seconds: float | None = LOAD_WAIT_SECONDS
        elif deadline is None:
            wait_seconds = None
        else:
            wait_seconds = deadline - now
            if wait_seconds <= 0:
                return False
        due = self._parts.due.next_due
        if due is not None:
            due_seconds = max(due - now, 0.0)
            wait_seconds = due_seconds if wait_seconds is None else min(due_seconds, wait_seconds)
        if self.has_credit:
            self._waits.wait_for_messages(self._consumer.consumer_group, lock, wait_seconds)
        else:
            self._waits.wait_for_credit(lock, wait_seconds)
        return True
