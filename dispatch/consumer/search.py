"""Search: a take that found nothing in RAM. It loads the next messages, or waits for messages, credit or memory.

Threads and event loops use the same Search. `run` makes its steps in a thread; AsyncConsumer makes them in a loop.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from ...store.structures.histogram import DurationHistogram
from ..core.areas.dispatch_area import DispatchArea
from ..core.areas.list_order import list_to_load
from ..core.areas.load_requests import LoadRequests
from ..core.lists.load import Load
from ..core.model.delivery import Delivery
from ..core.model.destination import TargetList
from ..core.monitor import Monitor
from ..core.redelivery.due_messages import DueMessages
from ..loading.eager_loader import EagerLoader
from .flow_controlled_consumer import FlowControlledConsumer

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


class WaitFor(Enum):
    """What a search waits for that found nothing and has nothing to load itself."""

    LOAD = auto()
    """Another thread's load, which is about to end. A timeout does not cut this wait short."""
    MESSAGES = auto()
    """Messages that arrive."""
    CREDIT = auto()
    """An ack, or memory that comes free."""


class Search:
    """A take that found nothing in RAM. Its caller makes steps until one of them returns deliveries."""

    __slots__ = (
        "_began_at",
        "_consumer",
        "_has_scanned",
        "_is_missed",
        "_load",
        "_max_bytes",
        "_max_messages",
        "_parts",
    )

    def __init__(
        self, parts: SearchParts, consumer: FlowControlledConsumer, max_messages: int, max_bytes: int | None
    ) -> None:
        """Begin a search for a consumer."""
        self._parts = parts
        self._consumer = consumer
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._began_at = parts.monitor.monotonic()
        # Whether an earlier step examined some messages with the selector.
        self._has_scanned = False
        # Whether it had to wait for a load.
        self._is_missed = False
        # The load that its last step began.
        self._load: Load[TargetList] | None = None

    def run(self, timeout: float | None) -> list[Delivery]:
        """Load messages or wait for them, at most `timeout` seconds; None: no limit. Requires: no lock."""
        try:
            return self._run_until(None if timeout is None else self._began_at + timeout)
        except BaseException:
            if self._load is not None:
                self._parts.loader.abandon_interrupted(self._load)
            raise

    def _run_until(self, deadline: float | None) -> list[Delivery]:
        """Run as `run`, up to a time in monotonic seconds."""
        parts, monitor, consumer = self._parts, self._parts.monitor, self._consumer
        while True:
            with monitor.lock:
                is_timed_out = deadline is not None and monitor.monotonic() >= deadline
                with monitor.all_or_broken:
                    step = self.step(is_timed_out=is_timed_out)
                if isinstance(step, list):
                    if not step:
                        consumer.waits.arm(consumer.selector_group)
                    return step
                if isinstance(step, WaitFor):
                    self._wait(step, deadline)
            if not isinstance(step, WaitFor):
                parts.loader.finish(step, makes_room=not is_timed_out)

    def step(self, *, is_timed_out: bool) -> list[Delivery] | Load[TargetList] | WaitFor:
        """Take again what RAM has. Otherwise return what the caller does before the next step. Requires: the lock.

        Deliveries: nothing, the search is over. It is over without deliveries if its time is up.
        A load: finish the load, without the lock.
        A WaitFor: wait for that.

        is_timed_out: whether the time is up. Then it waits for a load at most. Raises Closed.
        """
        parts, consumer = self._parts, self._consumer
        if consumer.stage.is_over:
            raise consumer.stage.refusal()
        parts.due.release_due()
        self._load = None
        if consumer.stage.is_passed_over:
            consumer.destination.free_kept_for(consumer)
        most = consumer.allowance(self._max_messages)
        needed: Load[TargetList] | WaitFor | None = None if most > 0 else WaitFor.CREDIT
        while needed is None:
            deliveries = consumer.dispatcher.dispatch(consumer, most, self._max_bytes)
            if deliveries:
                parts.take_durations.record(parts.monitor.monotonic() - self._began_at)
                if self._is_missed:
                    consumer.selector_group.misses += len(deliveries)
                return deliveries
            target = list_to_load(consumer.selector_group)
            if self._has_scanned and is_timed_out:
                if target is not None:
                    # The loader may have given the list up while memory was short.
                    parts.loads.request(target)
                consumer.waits.arm(consumer.selector_group)
                return []  # nothing matched so far: the background goes on with the search, or the next take
            needed = self._load_or_join(target) if target is not None else WaitFor.MESSAGES
        if needed is WaitFor.CREDIT:
            self._stand_in_line(is_for_memory=most > 0)
        if is_timed_out and (needed is WaitFor.CREDIT or needed is WaitFor.MESSAGES):
            return []
        self._has_scanned = consumer.selector_group.selector is not None
        return needed

    def _load_or_join(self, target: TargetList) -> Load[TargetList] | WaitFor | None:
        """Begin a load of the list, unless one is under way; return what the search needs now.

        None: another take, because the list has nothing left to load.
        """
        self._parts.loads.missed(target)
        if target.is_loading:
            self._is_missed = True  # a load of another thread counts too: its messages were not in RAM in time either
            return WaitFor.LOAD
        load = self._load = self._parts.loader.begin(target, is_needed=True)
        if load is None:
            return WaitFor.CREDIT if target.has_supply else None  # in the first case memory has no room for a load
        self._is_missed |= bool(load.regions)
        return load

    def _stand_in_line(self, *, is_for_memory: bool) -> None:
        """Join the line for credit, or for memory too. Requires: the lock."""
        dispatch_area, consumer = self._parts.dispatch_area, self._consumer
        consumer.waits.begin_credit_wait()
        # An arrival may have woken this take, which has no credit: let a take with credit have the message.
        consumer.selector_group.wake_another_take()
        if is_for_memory or dispatch_area.is_short_for(consumer.destination.memory):
            dispatch_area.wait_for_memory(consumer)

    def _wait(self, cause: WaitFor, deadline: float | None) -> None:
        """Wait until something changes, or the time is up. Requires: the lock, which is released meanwhile."""
        consumer, lock, now = self._consumer, self._parts.monitor.lock, self._parts.monitor.monotonic()
        wait_seconds: float | None = None
        if cause is WaitFor.LOAD:
            wait_seconds = LOAD_WAIT_SECONDS
        elif deadline is not None:
            wait_seconds = max(deadline - now, 0.0)
        due = self._parts.due.next_due
        if due is not None:
            due_seconds = max(due - now, 0.0)
            wait_seconds = due_seconds if wait_seconds is None else min(due_seconds, wait_seconds)
        if cause is WaitFor.CREDIT:
            consumer.waits.wait_for_credit(lock, wait_seconds)
        else:
            consumer.waits.wait_for_messages(consumer.selector_group, lock, wait_seconds)
