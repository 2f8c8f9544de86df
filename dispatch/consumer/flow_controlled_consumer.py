"""FlowControlledConsumer: how much a consumer may take, and who is woken once it may take more.

It is the consumer as the rest of this package sees it. Consumer adds what a user calls. They are two classes because
Consumer makes Searches and has a ConsumerEnding, and both of these need a consumer with its credit and its waits.
"""

from __future__ import annotations

from collections.abc import Callable

from ...store.numbering import UNLIMITED
from ..core.areas.dispatch_area import DispatchArea
from ..core.areas.list_order import may_have_messages
from ..core.model.activity import Activity
from ..core.model.consumer_stage import HELD_UP, TAKING
from ..core.model.destination import CoreConsumer, CoreDestination, SelectorGroup
from ..core.model.distribution_roles import NO_DISPATCH
from ..core.monitor import Monitor
from .options import ConsumerOptions
from .waits import ConsumerWaits


class FlowControlledConsumer(CoreConsumer):
    """A consumer with its stage, its credit and its waits. The state lock guards it."""

    # docs/internals/dispatch-consumer.md has its states, and who changes them: always under the lock.
    __slots__ = ("monitor", "waits", "_dispatch_area", "_memory")

    def __init__(
        self,
        monitor: Monitor,
        dispatch_area: DispatchArea,
        destination: CoreDestination,
        selector_group: SelectorGroup,
        options: ConsumerOptions,
    ) -> None:
        """Make an open consumer. Requires: the lock."""
        self.monitor = monitor
        self._dispatch_area, self._memory = dispatch_area, destination.memory
        self.destination = destination
        self.selector_group = selector_group
        self.priority = options.priority
        self.ack_deadline_seconds = options.deadline_seconds or None
        self.is_polling = options.on_ready is None
        self.is_exclusive = False
        self.prefetch_limit = options.prefetch
        self.in_flight = 0
        self.delivered = 0
        self.activity = Activity(options.slow_seconds, options.on_slow, monitor.monotonic())
        self.waits = ConsumerWaits(options.on_ready)
        self.stage = TAKING
        self.dispatcher = destination.distribution.dispatcher
        self.follow_destination()

    # ------------------------------------------------------------------ how much it may take

    @property
    def credit(self) -> int:
        """How many more messages its prefetch allows it to take; 0 while it drains."""
        if self.stage.is_draining:
            return 0
        return self.prefetch_limit - self.in_flight if self.prefetch_limit else UNLIMITED

    @property
    def demand(self) -> int:
        """How many messages may be kept for it: its credit. With prefetch 0 that is one while a take waits."""
        if self.prefetch_limit or self.stage.is_draining:
            return self.credit
        return int(self.selector_group.is_awaited)

    def allowance(self, most: int) -> int:
        """Return how many of `most` messages it may take now.

        If deliveries in flight fill memory, only a consumer that holds none gets a message.
        """
        if self.stage.is_passed_over:
            return 0
        if self.in_flight and self._dispatch_area.is_short_for(self._memory):
            return 0
        if not self.prefetch_limit:  # the rest is min(most, self.credit), written inline
            return most
        return min(most, self.prefetch_limit - self.in_flight)

    # ------------------------------------------------------------------ who waits for it

    def arm(self) -> None:
        """Call on_ready at the next arrival, because a take found nothing or there was none yet. Requires: the lock."""
        self.waits.arm(self.selector_group)

    def become_ready(self, deferred: list[Callable[[], None]]) -> None:
        """Add its callback to `deferred` if a take found nothing and may find something now. Requires: the lock."""
        self.waits.tell(deferred)

    @property
    def is_waiting(self) -> bool:
        """Whether a take waits, or a callback is due at the next arrival. Requires: the lock."""
        return not self.stage.is_over and self.waits.has_any

    def resume_if_credit(self) -> None:
        """Wake the consumer if it waited for credit. Requires: the lock."""
        if not self.waits.waits_for_credit or self.stage.is_closed:
            return
        if self.stage.is_passed_over:
            self.destination.free_kept_for(self)
        if self.allowance(1) <= 0:
            return
        self._dispatch_area.stop_waiting_for_memory(self)
        self.waits.end_credit_wait(is_limited=self.destination.is_limited)
        if self.waits.readiness.is_armed:
            if may_have_messages(self.selector_group):
                self.become_ready(self.monitor.deferred)
            else:
                self.selector_group.arm()

    def follow_destination(self) -> None:
        """Take as the queue now says: nothing while it holds the consumer up, else what its distribution gives.

        If the queue has limits now, acks wake senders too. Requires: the lock.
        """
        if self.stage.is_closed:
            return
        self.waits.follow_limits(is_limited=self.destination.is_limited)
        if self.destination.holds_up(self):
            if not self.stage.is_draining:
                self.stage = HELD_UP
            self.dispatcher = NO_DISPATCH
            self.waits.begin_credit_wait()
            return
        self.dispatcher = self.destination.distribution.dispatcher
        if self.stage is HELD_UP:
            self.stage = TAKING
            self.resume_if_credit()

    def move_to(self, selector_group: SelectorGroup) -> None:
        """Take messages from another selector group from now on. Requires: the lock."""
        self.selector_group = selector_group
        self.follow_destination()
        self.waits.moved(selector_group)

    def wake_outside(self) -> None:
        """Make the descriptor readable, wake the loop, and call on_ready. The next take raises Closed or the failure.

        Requires: the lock.
        """
        self.waits.wake_outside()
        self.waits.tell_end(self.monitor.deferred)
