"""FanOutOpener: make the FanOut of each priority of a topic on first use, and charge for it first."""

from __future__ import annotations

from ...cache.spill.overflow import Overflow
from ..core.destinations.destination_lanes import DestinationLanes
from ..core.destinations.overhead import FAN_OUT_BYTES, DestinationOverhead
from ..core.lanes.non_persistent_lane_state import NON_PERSISTENT_LANE_BYTES
from ..core.monitor import Monitor
from ..core.redelivery.removal import Removals
from .state.fan_out import FanOut
from .state.topic_state import TopicState


class FanOutOpener:
    """Makes the FanOuts of topics. The state lock guards it."""

    def __init__(
        self,
        *,
        monitor: Monitor,
        lanes: DestinationLanes,
        removals: Removals,
        overflow: Overflow,
        overhead: DestinationOverhead,
    ) -> None:
        self._monitor = monitor
        self._lanes = lanes
        self._removals = removals
        self._overflow = overflow
        self._overhead = overhead

    def ensure(self, topic: TopicState, priority: int) -> FanOut:
        """Return the FanOut of one priority of a topic. StoreFull: memory has no room for it. Requires: no lock."""
        with self._monitor.lock, self._monitor.all_or_broken:
            topic.raise_if_not_open()
            if priority not in topic.fan_outs:
                lanes_bytes = NON_PERSISTENT_LANE_BYTES * len(topic.online)
                self._overhead.require_lanes(topic, FAN_OUT_BYTES + lanes_bytes)
            return self.ensure_locked(topic, priority)

    def ensure_locked(self, topic: TopicState, priority: int) -> FanOut:
        """Return the FanOut of one priority of a topic, even if memory has no room. Requires: the lock."""
        if priority not in topic.fan_outs:
            topic.add_fan_out(FanOut(self._lanes, self._overflow, self._removals, topic, priority))
        return topic.fan_outs[priority]
