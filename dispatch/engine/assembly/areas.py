"""AreaLayer: where the messages of an open store are in RAM, who pays for them, and the recorder of what they do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from ....cache.accounting import holder_names
from ....cache.accounting.overdraft import Overdraft
from ....cache.messages.memory_registry import MemoryRegistry
from ....store.disk.disk import File
from ...config.memory_plan import shares_of
from ...core.areas.consumer_trials import ConsumerTrials
from ...core.areas.dispatch_area import DispatchArea
from ...core.areas.list_registry import ListRegistry
from ...core.areas.load_requests import LoadRequests
from ...core.areas.observer import TrafficObserver
from ...core.areas.target_area import TargetArea
from ...core.memory.memory_owners import MemoryOwners
from ...core.memory.memory_rule import MemoryRule
from ...core.memory.message_group_memory import MessageGroupMemory
from ...core.memory.watermarks import Watermarks
from ...core.model.destination import DestinationStateParts
from ...core.model.lane_reader import LaneReader
from ...distribution.distribution_chooser import DistributionChooser
from ...distribution.distribution_parts import DistributionParts
from ..curve_watch import CurveWatch
from .foundation import FoundationLayer
from .store_layer import StoreLayer

if TYPE_CHECKING:
    from ...planning.recorder import Recorder


@dataclass(frozen=True, slots=True, kw_only=True)
class AreaLayer:
    """The lists of messages to be delivered, the deliveries in flight, and the memory of both."""

    memory: MemoryOwners
    loads: LoadRequests
    dispatch_area: DispatchArea
    watermarks: Watermarks
    target_area: TargetArea
    list_registry: ListRegistry
    distribution_chooser: DistributionChooser
    destination_state_parts: DestinationStateParts
    """What open destinations and their lanes are made with."""


def make_recorder(foundation: FoundationLayer, trace: File) -> Recorder:
    """Return a recorder that writes the traffic of the store to an empty file. The holder "trace" pays for it."""
    from ...planning.recorder import Recorder  # few stores need it, and it takes time to import

    return Recorder(
        trace,
        foundation.settings,
        foundation.monitor.lock,
        foundation.background_requests.wake_housekeeper,
        foundation.budget.holder(holder_names.TRACE),
        foundation.upcalls.make_room,
    )


def make_areas(
    foundation: FoundationLayer, store_layer: StoreLayer, memory_rule: MemoryRule, recorder: Recorder | None
) -> AreaLayer:
    """Make the areas of an open store. recorder: notes all that lists do; None: no trace is recorded."""
    upcalls, directory = foundation.upcalls, store_layer.directory
    clock = foundation.clock if foundation.settings.background else None
    loads = LoadRequests(foundation.background_requests.wake_loader, ConsumerTrials(clock))
    make_dispatch_area: Callable[..., DispatchArea] = DispatchArea
    traffic = TrafficObserver()
    if recorder is not None:
        from ...planning.recorder import RecordedDispatchArea, RecordedTraffic

        make_dispatch_area, traffic = partial(RecordedDispatchArea, recorder), RecordedTraffic(recorder)
    memory = _make_memory(foundation, store_layer, memory_rule)
    dispatch_area = make_dispatch_area(memory, loads, directory.steady_clock.now_ms, upcalls)
    watermarks = _make_watermarks(foundation, memory, loads, dispatch_area, traffic)
    upcalls.watermarks, upcalls.reclaim = watermarks, watermarks.reclaim
    target_area = TargetArea(foundation.monitor, loads, dispatch_area, traffic)
    list_registry = ListRegistry(memory, watermarks, watermarks.reclaim, loads, dispatch_area, upcalls, traffic)
    distributions = DistributionParts(
        target_area=target_area,
        list_registry=list_registry,
        dispatch_area=dispatch_area,
        loads=loads,
        consumer_memory=memory.consumer_memory,
        message_group_memory=memory.message_group_memory,
    )
    distribution_chooser = DistributionChooser(foundation.policies, distributions)
    reading = Overdraft(foundation.budget.holders[holder_names.READ_BUFFERS])
    return AreaLayer(
        memory=memory,
        loads=loads,
        dispatch_area=dispatch_area,
        watermarks=watermarks,
        target_area=target_area,
        list_registry=list_registry,
        distribution_chooser=distribution_chooser,
        destination_state_parts=DestinationStateParts(
            target_area=target_area,
            distribution_chooser=distribution_chooser,
            monitor=foundation.monitor,
            memories=memory.memories,
            destination_memory=memory.destination_memory,
            message_store=directory.message_store,
            fingerprints=directory.index.fingerprints,
            make_fingerprint_room=directory.checkpointer.make_fingerprint_room,
            delivery_count_table=directory.index.delivery_count_table,
            return_counts=directory.return_writer,
            reader=LaneReader(foundation.monitor, directory.message_store, reading),
            syncs_always=foundation.settings.sync == "always",
        ),
    )


def _make_watermarks(
    foundation: FoundationLayer,
    memory: MemoryOwners,
    loads: LoadRequests,
    dispatch_area: DispatchArea,
    traffic: TrafficObserver,
) -> Watermarks:
    """Return the Watermarks, with the live curve that they tell of the lists."""
    return Watermarks(
        memory,
        foundation.shares,
        partial(
            CurveWatch,
            dispatch_area=dispatch_area,
            holder=foundation.budget.holder(holder_names.CURVE),
            limit_bytes=foundation.shares.limit_bytes,
            shares_at=partial(shares_of, foundation.settings),
        ),
        request_load=loads.request,
        bound_in_flight=dispatch_area.bound_in_flight,
        retry_waiters=dispatch_area.retry_waiters,
        measures=traffic.measures,
    )


def _make_memory(foundation: FoundationLayer, store_layer: StoreLayer, memory_rule: MemoryRule) -> MemoryOwners:
    """Return the memory that the areas share."""
    budget = foundation.budget
    return MemoryOwners(
        budget,
        MemoryRegistry(budget, foundation.shares.quotas, memory_rule.pending_cache, foundation.policies.pattern_of),
        store_layer.overflow,
        memory_rule,
        destination_memory=foundation.destination_memory,
        consumer_memory=Overdraft(budget.holders[holder_names.CONSUMERS]),
        message_group_memory=MessageGroupMemory(budget.holder(holder_names.GROUPS)),
    )
