"""The engine of one open directory: it has the parts made layer by layer, and opens and closes them in order.

There are three locks (StoreLocks), always taken in this order: checkpoint lock, sync lock, state lock. Callbacks of
users are called under none of them.
"""

from __future__ import annotations

import weakref
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from ...store.disk.layout import after_fork_in_child
from ...store.environment.late_log import LateLogger
from ...store.environment.locks import require_outside
from ...store.errors import StoreFailed
from ..config.settings import Settings
from ..core.memory.memory_rule import MemoryRule
from ..core.monitor import Monitor
from .assembly.administration import make_admin
from .assembly.areas import make_areas, make_recorder
from .assembly.audit import make_audit
from .assembly.background import ExplainFunctions, make_background_layer
from .assembly.clients import make_clients
from .assembly.core import make_core
from .assembly.environment import Environment
from .assembly.facades import (
    gather_explained,
    gather_forebay_parts,
    gather_loop_parts,
    gather_queue_parts,
    gather_topic_parts,
)
from .assembly.foundation import FoundationLayer, make_foundation
from .assembly.layers import Layers
from .assembly.redelivery import make_redelivery_layer
from .assembly.store_layer import StoreLayer, open_store_layer
from .open_destinations import OpenDestinations

if TYPE_CHECKING:
    from ..planning.recorder import Recorder

logger = LateLogger("forebay.dispatch")

_in_child: weakref.WeakSet[partial[None]] = weakref.WeakSet()
"""For each live engine, the function that disables its copy in a forked child."""


def _make_layers(
    foundation: FoundationLayer, recorder: Recorder | None, store_layer: StoreLayer, memory_rule: MemoryRule
) -> Layers:
    """Make the parts above an open store from below to above."""
    areas = make_areas(foundation, store_layer, memory_rule, recorder)
    redelivery_layer = make_redelivery_layer(foundation, store_layer, areas)
    core = make_core(foundation, store_layer, areas, redelivery_layer)
    clients = make_clients(foundation, store_layer, areas, redelivery_layer, core)
    return Layers(
        foundation=foundation,
        store_layer=store_layer,
        recorder=recorder,
        areas=areas,
        redelivery_layer=redelivery_layer,
        core=core,
        clients=clients,
        admin=make_admin(foundation, store_layer, core, clients),
        open_destinations=OpenDestinations(
            store_layer.directory.destination_table,
            core.owners.destinations.opener,
            core.queues,
            clients.topic_layer.topics,
        ),
    )


class Engine:
    """The composition root of one open store. `open_forebay` makes it, and a Forebay holds it.

    Classes above the engine get bundles of its parts. The layers are for the engine itself.
    """

    def __init__(self, settings: Settings, environment: Environment, explaining: ExplainFunctions) -> None:
        """Open the store. Requires: the directory lock is held."""
        self.monitor = Monitor(environment.clock)
        self.monitor.lock.on_broken.append(_log_broken)
        self._is_ended = False
        foundation = make_foundation(settings, environment.clock, self.monitor)
        recorder = make_recorder(foundation, environment.trace) if environment.trace is not None else None
        store_layer, self.recovery = open_store_layer(foundation, environment)
        try:
            self.layers = layers = _make_layers(foundation, recorder, store_layer, environment.memory_rule)
            self._directory, self._recorder = store_layer.directory, recorder
            self._open_destinations = layers.open_destinations
            self.monitor.lock.on_broken.append(self._wake_on_failure)
            self.loop_parts = gather_loop_parts(layers)
            self.queue_parts, self.topic_parts = gather_queue_parts(layers), gather_topic_parts(layers)
            self.ledger_audit = make_audit(layers)
            self.explained = gather_explained(layers)
            self.background_layer = made = make_background_layer(layers, environment, self.explained, explaining)
            self.forebay_parts = gather_forebay_parts(layers, made.resizing, made.check, made.reports)
            self._restore()
        except BaseException:
            store_layer.directory.abandon()  # the next attempt may need the descriptors
            raise
        if settings.background:
            self._start()

    # ------------------------------------------------------------------ opening and closing

    def _start(self) -> None:
        """Start the threads. If one can't be started, close the store as after a kill."""
        try:
            self.background_layer.start()
        except BaseException:
            self.background_layer.background.stop()
            self._close_tmp_storage()  # a thread may have spilled
            self.layers.store_layer.directory.abandon()
            raise

    def _restore(self) -> None:
        """Take over what opening the store found: destinations, messages, transactions and delays."""
        layers = self.layers
        core, topics, admin = layers.core, layers.clients.topic_layer, layers.admin
        lanes = core.owners.destinations.lanes
        with self.monitor.lock:
            # Open destinations that are in use first, so that the one charge below includes them.
            used = lanes.used_at_open(self._directory.branches.prepared)
            for queue in core.queues.restore(used):
                layers.areas.distribution_chooser.begin_assigning(queue)
            topics.restore(lanes, used)
            subscriptions = self._directory.subscriptions
            rows_bytes = subscriptions.rows_charge + self._directory.index.idle.charge_bytes
            core.overhead.restore(self._open_destinations.count_destinations(), subscriptions.count, rows_bytes)
            # A retention that begins asks for room, so everything that was opened must be charged before.
            topics.retention.apply_all(self._open_destinations.topics())
            for lane in lanes.restore(core.queues.by_number):
                if lane.pending_lane.pending_messages:
                    core.warmer.begin(lane)
            core.transactions.recover(topics.numbered_lanes.ensure)  # may open lanes that have no messages yet
            # From here on all lanes are open that the next steps walk over.
            if self._recorder is not None:
                queues = self._open_destinations.queues()
                self._recorder.begin(lane for queue in queues for lane in queue.all_lanes())
            admin.dead_letter_recovery.recover(was_killed=not self.recovery.clean)
            layers.redelivery_layer.timed.restore(self._open_destinations.lanes())
            # Delayed messages halt their groups, which only a distribution that assigns by group knows.
            forgotten = layers.redelivery_layer.delayed.restore()
            admin.temporaries.restore()
        # A deletion takes the lock and syncs, so it comes after the section, when everything is restored.
        admin.temporaries.delete_released()
        if forgotten:
            logger.warning(
                "%d messages with a group come back before their delay is over: memory_limit has no room to hold their "
                "groups back",
                forgotten,
                event="delays_forgotten",
            )
        # Last: if the open fails before, a forked child has nothing to disable.
        self._die = partial(Engine.disable_in_child, self)
        _in_child.add(self._die)

    def close(self, timeout: float | None = None) -> None:
        """Stop the threads, return the deliveries of consumers, close the store.

        A second call continues a close that was interrupted, or does nothing. If the lock is broken, RAM is not used
        any more: only the journal is right.
        """
        monitor, directory, background = self.monitor, self._directory, self.background_layer.background
        if self._is_ended:
            return
        try:
            if monitor.lock.failure is None:
                with monitor.lock, monitor.all_or_broken:
                    self._close_all()
        except Exception as error:
            background.stop(timeout)  # the caller releases the directory then, so no thread may write there any more
            with suppress(StoreFailed), monitor.lock:
                directory.journal.fail(f"the store could not be closed ({error})")  # a second close leaves no marker
            raise
        monitor.is_closed = True
        try:
            background.stop(timeout)
            if self._recorder is not None:
                self._recorder.close()
            directory.close()
            if self.background_layer.status is not None:
                self.background_layer.status.remove()
            if monitor.lock.failure is not None:
                self._close_tmp_storage()
            self._is_ended = True
        finally:
            with suppress(StoreFailed):
                monitor.run_deferred()

    def _close_all(self) -> None:
        """End the consumers, transactions and other objects of this store that the host holds. Requires: the lock."""
        monitor, layers = self.monitor, self.layers
        if not monitor.is_closed:
            monitor.is_closed = True
            monitor.deferred.clear()
        layers.core.transactions.close()
        layers.admin.temporaries.delete_all()
        layers.store_layer.overflow.close()
        topics = layers.clients.topic_layer
        for taken_from in [*self._open_destinations.queues(), *topics.patterns.all(), *topics.topics.online()]:
            taken_from.close_consumers()
        for destination in self._open_destinations.queues_and_topics():
            if destination.limits is not None:
                destination.limits.close()
        layers.clients.space.close()

    def _close_tmp_storage(self) -> None:
        """Delete the files of tmp-storage. If that fails, the next open deletes them."""
        try:
            self.layers.store_layer.overflow.close()
        except Exception as error:
            logger.debug("tmp-storage is emptied at the next open: %s", error, event="tmp_storage_left")

    def _wake_on_failure(self, _: StoreFailed) -> None:
        """Wake all threads that wait outside the broken lock, so that each raises the failure.

        Requires: the lock.
        """
        background_requests = self.layers.foundation.background_requests
        background_requests.wake_loader()
        background_requests.wake_housekeeper()
        for consumer in list(self._open_destinations.consumers()):
            consumer.wake_outside()

    def disable_in_child(self) -> None:
        """Disable the copy of the store in a forked child, which must not write: the parent owns the directory."""
        made_anew = getattr(self.monitor.lock, "_at_fork_reinit", None)
        if made_anew is not None:  # a replacement of threading may have none, and other stores must be disabled too
            made_anew()
        self.monitor.is_closed = self._is_ended = True
        self.background_layer.background.forget()
        self._directory.journal.stop()
        for consumer in self._open_destinations.consumers():
            consumer.disable_in_child()

    # ------------------------------------------------------------------ work

    def step(self) -> int:
        """Do the background work that is due, in the caller's thread; return how many things were done."""
        monitor, locks = self.monitor, self._directory.locks
        # Check all locks here: a task that is refused for a lock of its caller would be reported as failing.
        require_outside(locks.checkpoint, locks.sync, locks.state)
        monitor.raise_if_closed()
        done = self.background_layer.task_runner.step()
        while self._do_more():
            done += 1
        if monitor.deferred:
            monitor.run_deferred()
        return done

    def _do_more(self) -> bool:
        """Do one step of the work that `step` repeats until nothing is left; return whether there was something."""
        layers, background = self.layers, self.background_layer.background
        return bool(
            layers.admin.dead_letters.step()
            or layers.clients.topic_layer.unmatched_acker.step()
            or background.load_once()
        )


def _log_broken(failure: StoreFailed) -> None:
    logger.error("%s", failure, event="store_broken")


def _die_in_child() -> None:
    for die in list(_in_child):
        die()


after_fork_in_child(_die_in_child)
