"""Search: a take that found nothing in RAM. It loads the next messages, or waits for messages, credit or memory.

Threads and event loops use the same Search. `run` drives it in a thread; AsyncConsumer drives it in a loop.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from ...store.structures.histogram import DurationHistogram
from ..core.areas.dispatch_area import DispatchArea
from ..core.areas.list_order import list_to_load
from ..core.areas.load_requests import LoadRequests
from ..core.lists.load import Load
from ..core.model.delivery import Delivery
from ..core.model.destination import TargetList
from ..core.monitor import Monitor
from ..core.redelivery.due import DueMessages
from ..loading.eager import EagerLoader
from .waits import WaitingConsumer

LOAD_WAIT_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class SearchParts:
    """The parts of a store that each search needs in addition to its consumer."""

    monitor: Monitor
    dispatch_area: DispatchArea
    loads: LoadRequests
    loader: EagerLoader
    due: DueMessages
    take_durations: DurationHistogram = field(default_factory=DurationHistogram)
    """Durations of takes that found nothing in RAM and returned messages. The state lock guards it."""


class Search:
    """A take that found nothing in RAM, and the result of its last round.

    If `search_again` returns None, three attributes tell its caller what to do:

    load      is_load_under_way  waits_for_messages  what to do
    a load    True               True                finish the load, without the lock, and look again
    None      True               True                wait for another thread's load, which is about to end
    None      False              True                wait for messages to arrive
    None      False              False               wait for credit: an ack, or memory that comes free

    After its timeout a search waits only for a load that is under way; otherwise it returns no deliveries.
    """

    __slots__ = (
        "has_scanned",
        "is_load_under_way",
        "is_timed_out",
        "load",
        "waits_for_messages",
        "_began_at",
        "_consumer",
        "_is_missed",
        "_max_bytes",
        "_max_messages",
        "_parts",
    )

    def __init__(
        self,
        parts: SearchParts,
        consumer: WaitingConsumer,
        max_messages: int,
        max_bytes: int | None,
        *,
        is_timed_out: bool = False,
    ) -> None:
        """Begin a search for a consumer."""
        self._parts = parts
        self._consumer = consumer
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._began_at = parts.monitor.monotonic()
        # Whether its timeout has passed.
        self.is_timed_out = is_timed_out
        # Whether some messages were examined with its selector already.
        self.has_scanned = False
        # Whether it had to wait for a load.
        self._is_missed = False
        # A load that was begun for it, to be finished without the lock.
        self.load: Load[TargetList] | None = None
        # Whether a load is under way, its own or another one.
        self.is_load_under_way = False
        # Whether it waits for messages, not for credit or memory.
        self.waits_for_messages = False

    def run(self, timeout: float | None) -> list[Delivery]:
        """Load messages or wait for them, at most `timeout` seconds; None: no limit. Requires: no lock."""
        parts, monitor, consumer = self._parts, self._parts.monitor, self._consumer
        deadline = None if timeout is None else self._began_at + timeout
        try:
            while True:
                with monitor.lock:
                    self.is_timed_out = deadline is not None and monitor.monotonic() >= deadline
                    with monitor.all_or_broken:
                        deliveries = self.search_again()
                    if deliveries is not None:
                        return deliveries
                    if self.load is None and not self._wait(deadline):
                        consumer.waits.arm(consumer.selector_group)
                        return []
                self.has_scanned = consumer.selector_group.selector is not None
                if self.load is not None:
                    parts.loader.finish(self.load, makes_room=not self.is_timed_out)
        except BaseException:
            if self.load is not None:
                parts.loader.abandon_interrupted(self.load)
            raise

    def search_again(self) -> list[Delivery] | None:
        """Take again what RAM has. None: load or wait, as the attributes say. Closed. Requires: the lock."""
        parts, consumer = self._parts, self._consumer
        if consumer.stage.is_over:
            raise consumer.stage.refusal()
        parts.due.release_due()
        self.load = None
        self.is_load_under_way = self.waits_for_messages = False
        if consumer.stage.is_passed_over:
            consumer.destination.free_kept_for(consumer)
        most = consumer.allowance(self._max_messages)
        while most > 0:
            deliveries = consumer.dispatcher.dispatch(consumer, most, self._max_bytes)
            if deliveries:
                parts.take_durations.record(parts.monitor.monotonic() - self._began_at)
                if self._is_missed:
                    consumer.selector_group.misses += len(deliveries)
                return deliveries
            target = list_to_load(consumer.selector_group)
            if self.has_scanned and self.is_timed_out:
                if target is not None:
                    # The loader may have given the list up while memory was short.
                    parts.loads.request(target)
                consumer.waits.arm(consumer.selector_group)
                return []  # nothing matched so far: the background goes on with the search, or the next take
            if target is None:
                self.waits_for_messages = True
                break
            if self._load_or_join(target):
                break
        if not self.waits_for_messages:
            self._stand_in_line(is_for_memory=most > 0)
        return None

    def _load_or_join(self, target: TargetList) -> bool:
        """Begin a load of the list, unless one is under way. Return False if the list has nothing left to load."""
        self._parts.loads.missed(target)
        if not target.is_loading:
            self.load = self._parts.loader.begin(target, is_needed=True)
            if self.load is None and not target.has_supply:
                return False
        self.is_load_under_way = self.waits_for_messages = target.is_loading
        # A load of another thread counts too: its messages were not in RAM in time either.
        self._is_missed |= self.is_load_under_way and (self.load is None or bool(self.load.regions))
        return True

    def _stand_in_line(self, *, is_for_memory: bool) -> None:
        """Join the line for credit, or for memory too. Requires: the lock."""
        dispatch_area, consumer = self._parts.dispatch_area, self._consumer
        consumer.waits.begin_credit_wait()
        # An arrival may have woken this take, which has no credit: let a take with credit have the message.
        consumer.selector_group.wake_another_take()
        if is_for_memory or dispatch_area.is_short_for(consumer.destination.memory):
            dispatch_area.wait_for_memory(consumer)

    def _wait(self, deadline: float | None) -> bool:
        """Wait until something changes; return False if the time is up. The timeout cuts no wait for a load short."""
        consumer, lock, now = self._consumer, self._parts.monitor.lock, self._parts.monitor.monotonic()
        if self.is_load_under_way:
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
        if self.waits_for_messages:
            consumer.waits.wait_for_messages(consumer.selector_group, lock, wait_seconds)
        else:
            consumer.waits.wait_for_credit(lock, wait_seconds)
        return True
