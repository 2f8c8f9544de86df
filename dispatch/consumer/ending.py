"""ConsumerEnding: drain and close consumers, and wake whoever waits for them.

A consumer that drains takes nothing more and settles the deliveries that it holds. A consumer that closes gives its
deliveries back. The last changes of a consumer's stage are here; consumer_stage.py has all stages. All of this is state
in RAM: a crash ends every consumer.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from ...store.environment.locks import condition_of
from ...store.errors import ArgumentError, SettingsError
from ..core.areas.dispatch_area import DispatchArea
from ..core.model.consumer_stage import CLOSED, DRAINED, DRAINING
from ..core.model.delivery import Delivery
from ..core.model.destination import CoreConsumer
from ..core.model.distribution_roles import NO_DISPATCH
from ..core.monitor import Monitor
from .consumer_registry import ConsumerRegistry
from .flow_controlled_consumer import FlowControlledConsumer
from .settlements import batch_of, held_by

DRAIN_POLL_SECONDS: Final = 0.025
"""A drain checks this often whether all is settled, so that no ack has to wake it."""


class ConsumerEnding:
    """Drains and closes the consumers of an open store."""

    def __init__(self, monitor: Monitor, dispatch_area: DispatchArea, registry: ConsumerRegistry) -> None:
        self._monitor = monitor
        self._dispatch_area = dispatch_area
        self._registry = registry

    # ------------------------------------------------------------------ draining

    def drain(self, consumer: FlowControlledConsumer, timeout: float | None) -> bool:
        """Drain as `Consumer.drain`. Requires: no lock."""
        monitor = self._monitor
        if monitor.is_inside():
            monitor.call_later(partial(self.begin_drain, consumer))
            return False
        deadline = None if timeout is None else monitor.monotonic() + timeout
        never = condition_of(monitor.lock)
        self.begin_drain(consumer)
        with monitor.lock:
            while not self.is_drained(consumer):
                left_seconds = DRAIN_POLL_SECONDS if deadline is None else deadline - monitor.monotonic()
                if left_seconds <= 0:
                    return False
                never.wait(min(left_seconds, DRAIN_POLL_SECONDS))
        return True

    def begin_drain(self, consumer: FlowControlledConsumer) -> None:
        """Let a consumer drain from now on; wait for nothing. A second call does nothing. Requires: no lock."""
        with self._monitor.lock, self._monitor.all_or_broken:
            if not consumer.stage.is_over:
                self._stop_taking(consumer)
        self._monitor.run_deferred()

    def is_drained(self, consumer: CoreConsumer) -> bool:
        """Return whether every delivery is settled. Closed: the store is closed."""
        self._monitor.raise_if_closed()
        return consumer.stage.is_closed or not consumer.in_flight

    def _stop_taking(self, consumer: FlowControlledConsumer) -> None:
        """Begin the drain: leave the messages assigned to the consumer to others, and wake all its takes."""
        consumer.stage = DRAINING
        self._dispatch_area.stop_waiting_for_memory(consumer)
        consumer.follow_destination()
        distribution = consumer.destination.distribution
        distribution.revoke(consumer)
        distribution.reoffer_stranded()
        consumer.waits.wake_takes(consumer.selector_group)
        consumer.wake_outside()
        # An arrival may have woken this consumer: wake another one, which can take the message now.
        distribution.wake_others(consumer.selector_group)

    # ------------------------------------------------------------------ closing

    def close(self, consumer: FlowControlledConsumer, processed: Delivery | Sequence[Delivery] | None) -> None:
        """Close as `Consumer.close`. Requires: no lock."""
        tried: frozenset[Delivery] | None = None
        if processed is not None:
            batch = batch_of(processed)
            _check_own(consumer, batch)
            tried = frozenset(batch)
        if self._monitor.is_inside():
            self._monitor.call_later(partial(self._close_held, consumer, tried))
            return
        self._close_held(consumer, tried)

    def _close_held(self, consumer: FlowControlledConsumer, processed: frozenset[Delivery] | None) -> None:
        with self._monitor.lock, self._monitor.all_or_broken:
            if not consumer.stage.is_closed:
                self._close(consumer, held_by(consumer), processed)
            consumer.waits.close()
        self._monitor.run_deferred()

    def withdraw(self, consumer: FlowControlledConsumer) -> None:
        """Close a consumer that has taken nothing, before its host has got it. Requires: the lock."""
        self._close(consumer, (), None)

    def close_with_destination(self, consumer: FlowControlledConsumer, held: Sequence[Delivery]) -> None:
        """Close a consumer, because its queue or the store ends, and have its on_ready called. Requires: the lock.

        A host that takes only after on_ready takes then, and learns of the end by Closed.
        """
        if not consumer.stage.is_closed:
            self._close(consumer, held, None)
        consumer.waits.tell_end(self._monitor.deferred)

    def _close(
        self,
        consumer: FlowControlledConsumer,
        held: Sequence[Delivery],
        processed: frozenset[Delivery] | None,
    ) -> None:
        take_no_more(consumer)
        destination, selector_group = consumer.destination, consumer.selector_group
        distribution = destination.distribution
        self._dispatch_area.stop_waiting_for_memory(consumer)
        destination.counters.delivered += consumer.delivered
        distribution.leave(consumer)
        self._registry.leave(consumer, held, processed)
        distribution.reoffer_stranded()
        consumer.waits.wake_takes(selector_group)
        consumer.waits.wake_outside()
        # An arrival may have woken this consumer: wake another one, which can take the message now.
        distribution.wake_others(selector_group)
        destination.on_consumer_closed()


def take_no_more(consumer: CoreConsumer) -> None:
    """Set the last stage of a consumer. Nothing is handed out to it any more."""
    consumer.stage = DRAINED if consumer.stage.is_draining else CLOSED
    consumer.dispatcher = NO_DISPATCH


def _check_own(consumer: CoreConsumer, deliveries: Sequence[object]) -> None:
    for delivery in deliveries:
        if type(delivery) is not Delivery:
            raise ArgumentError(f"a delivery is expected, not {type(delivery).__name__}")
        if delivery.consumer is not consumer:
            raise SettingsError("the delivery belongs to another consumer: name it there")
