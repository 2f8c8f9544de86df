"""PlayedAreas: the lists, the deliveries in flight and their memory, as in an open store, over a PlayedStore."""

from __future__ import annotations

from collections.abc import Callable

from ...cache.accounting.budget import Holder
from ...cache.accounting.overdraft import Overdraft
from ...cache.accounting.shares import Shares
from ...store.index.delivery_counts import DeliveryCountTable
from ..config.policies import Policies
from ..core.areas.dispatch_area import DispatchArea
from ..core.areas.list_registry import ListRegistry
from ..core.areas.load_requests import LoadRequests
from ..core.areas.observer import AreaUpcalls, TrafficObserver
from ..core.areas.target_area import TargetArea
from ..core.memory.memory_owners import MemoryOwners
from ..core.memory.watermarks import LiveCurve, Watermarks
from ..core.model.destination import DestinationStateParts
from ..core.model.lane_reader import LaneReader
from ..core.monitor import Monitor
from ..distribution.distribution_chooser import DistributionChooser
from ..distribution.distribution_parts import DistributionParts
from .played_store import PlayedReturns, PlayedStore


def _make_no_room() -> None:
    """Do nothing: lanes of a replay are scanned without fingerprints, so none needs room."""


class PlayedAreas:
    """Areas without a store: their lanes are those of a PlayedStore, and they divide memory as an open store does."""

    def __init__(
        self,
        monitor: Monitor,
        memory: MemoryOwners,
        shares: Shares,
        loads: LoadRequests,
        now_ms: Callable[[], int],
        store: PlayedStore,
        reading: Holder,
    ) -> None:
        """Make them for one memory. now_ms: the store's time. reading: pays for what lanes read."""
        upcalls, traffic = AreaUpcalls(), TrafficObserver()  # reads for the HeadQueueCache are no hits
        self.dispatch_area = DispatchArea(memory, loads, now_ms, upcalls)
        self.watermarks = Watermarks(
            memory,
            shares,
            lambda watermarks: LiveCurve(),
            request_load=loads.request,
            bound_in_flight=self.dispatch_area.bound_in_flight,
            retry_waiters=self.dispatch_area.retry_waiters,
            measures=traffic.measures,
        )
        self.target_area = TargetArea(monitor, loads, self.dispatch_area, traffic)
        watermarks, reclaim = self.watermarks, self.watermarks.reclaim
        self.list_registry = ListRegistry(memory, watermarks, reclaim, loads, self.dispatch_area, upcalls, traffic)
        distributions = DistributionParts(
            target_area=self.target_area,
            list_registry=self.list_registry,
            dispatch_area=self.dispatch_area,
            loads=loads,
            consumer_memory=memory.consumer_memory,
            message_group_memory=memory.message_group_memory,
        )
        self.destination_state_parts = DestinationStateParts(
            target_area=self.target_area,
            distribution_chooser=DistributionChooser(Policies({}), distributions),
            monitor=monitor,
            memories=memory.memories,
            destination_memory=memory.destination_memory,
            message_store=store,
            fingerprints=store.fingerprints,
            make_fingerprint_room=_make_no_room,
            delivery_count_table=DeliveryCountTable(),
            return_counts=PlayedReturns(),
            reader=LaneReader(monitor, store, Overdraft(reading)),
            syncs_always=False,
        )
