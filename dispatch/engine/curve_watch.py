"""CurveWatch: sample the live curve whenever a TargetList has delivered enough."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from ...cache.accounting.budget import Holder
from ...cache.accounting.charge import OVERHEAD_BYTES
from ...cache.accounting.shares import Shares
from ...store.errors import SettingsError
from ...store.numbering import UNLIMITED
from ..config.settings import MEMORY_LIMIT_BYTES_MIN
from ..core.areas.dispatch_area import DispatchArea
from ..core.memory.curve import Curve, CurveSampler, ListSample, ListTrack, quantum_bytes
from ..core.memory.watermarks import LiveCurve, Watermarks
from ..core.model.destination import TargetList

FACTORS: Final = (1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8)
"""The limits of the live curve, as multiples of the memory limit with which the store was opened."""

TRACK_BYTES: Final = 640
"""Charged for a list that is followed, in addition to LIMIT_BYTES for each limit of the curve."""
LIMIT_BYTES: Final = 448
"""Charged for the backlog and the watermark that a followed list would have under one limit."""

LISTS_MAX: Final = 256
"""With more lists, each is assumed to have an equal share: sharing by rates costs O(lists * limits) a second."""


class CurveWatch(LiveCurve):
    """Keeps the live curve of a store. It follows lists in the order in which they begin, while it has memory."""

    def __init__(
        self,
        watermarks: Watermarks,
        dispatch_area: DispatchArea,
        holder: Holder,
        limit_bytes: int,
        shares_at: Callable[[int], Shares],
    ) -> None:
        """Make the live curve of a store.

        holder: pays for the lists that are followed.
        shares_at: returns the shares of a limit; SettingsError: the limit is too small.
        """
        self._watermarks = watermarks
        self._dispatch_area = dispatch_area
        self._holder = holder
        shares = _shares_around(limit_bytes, shares_at)
        self._sampler = CurveSampler(shares)
        self.track_bytes: Final = TRACK_BYTES + LIMIT_BYTES * len(shares)
        """Charged for each list that is followed."""
        self._tracks: dict[TargetList, ListTrack] = {}
        # The high watermark that each limit would have granted to each list at the last measurement.
        self._granted: dict[TargetList, tuple[int, ...]] = {}

    def begin(self, target: TargetList) -> None:
        """Follow a new list if memory has room for its track; otherwise the curve leaves the list out."""
        if self._holder.held_bytes + self.track_bytes > self._bytes_max:
            return
        self._watermarks.reclaim.make_room(self.track_bytes, None)
        if not self._holder.reserve(self.track_bytes):
            return
        lane, pending_lane = target.lane, target.lane.pending_lane
        waiting = pending_lane.pending_bytes + pending_lane.pending_messages * OVERHEAD_BYTES
        charge = _mean_charge(target, OVERHEAD_BYTES)
        arrived = (lane.published_end - lane.first_sequence) * charge
        self._tracks[target] = self._sampler.track(waiting, min(arrived, waiting), charge)
        target.sample_next_at(quantum_bytes(waiting, charge))

    @property
    def _bytes_max(self) -> int:
        return self._watermarks.shares.curve_bytes

    def shares_changed(self) -> None:
        """Follow fewer lists if the limit has become smaller."""
        while self._holder.held_bytes > self._bytes_max:
            self._forget(next(reversed(self._tracks)))

    def _forget(self, target: TargetList) -> None:
        self._sampler.drop(self._tracks.pop(target))
        self._granted.pop(target, None)
        target.sample_next_at(UNLIMITED)
        self._holder.release(self.track_bytes)

    def sample(self, target: TargetList) -> None:
        track = self._tracks.get(target)
        if track is None:
            return
        charge = _mean_charge(target, track.charge)
        taken = target.taken_bytes
        waiting = _waiting_messages(target, charge) * charge
        target.sample_next_at(taken + quantum_bytes(waiting, charge))
        if taken == track.taken and waiting == track.waiting:
            return
        held_bytes, lists = self._dispatch_area.in_flight_bytes, len(self._watermarks.lists)
        watermarks: Sequence[int] | None = self._granted.get(target)
        if watermarks is None:
            watermarks = self._sampler.watermarks_of(lists, target.measured_rate)
        self._sampler.sample(track, ListSample(waiting, taken, charge, held_bytes, lists), watermarks)

    def measured(self) -> None:
        """Sample all lists, and share each limit among them by their new rates. O(lists * limits)."""
        lists, tracks = list(self._watermarks.lists), self._tracks
        self._granted = {}
        if len(lists) <= LISTS_MAX:
            granted = self._sampler.watermarks([target.measured_rate for target in lists])
            self._granted = {target: each for target, each in zip(lists, granted, strict=True) if target in tracks}
        for target in list(tracks):
            self.sample(target)

    def finish(self, target: TargetList) -> None:
        if target in self._tracks:
            self.sample(target)
            self._forget(target)

    def curve(self) -> Curve:
        """Return the live curve up to the last sample of each list. O(limits)."""
        return self._sampler.curve()

    def recent_curve(self) -> Curve:
        """Return the live curve as of the last sample, which each list has once a second. O(limits)."""
        return self._sampler.curve()

    @property
    def charge_bytes(self) -> int:
        """What the curve should be charged, computed anew.

        AssertionError if the curve follows a list that has ended.
        """
        assert self._tracks.keys() <= self._watermarks.lists.keys(), "a list that is gone is followed"
        return self.track_bytes * len(self._tracks)


def _shares_around(limit_bytes: int, shares_at: Callable[[int], Shares]) -> list[Shares]:
    around: list[Shares] = []
    for factor in FACTORS:
        other_bytes = int(limit_bytes * factor)
        if other_bytes < MEMORY_LIMIT_BYTES_MIN:
            continue
        try:
            around.append(shares_at(other_bytes))
        except SettingsError:
            continue  # index_cache_size takes more than half of the limit
    return around


def _mean_charge(target: TargetList, otherwise: float) -> float:
    """Return the mean charge of the lane's messages, or `otherwise` if it has none."""
    pending_lane = target.lane.pending_lane
    return (
        OVERHEAD_BYTES + pending_lane.pending_bytes / pending_lane.pending_messages
        if pending_lane.pending_messages
        else otherwise
    )


def _waiting_messages(target: TargetList, charge: float) -> float:
    """Estimate how many of the present messages the list will still deliver, from its past matches. O(1)."""
    lane = target.lane
    if not target.needs_claims and target.selector_group.selector is None:
        return max(lane.free_messages, 0)
    known = len(target.direct) + target.references.count + target.returned.count
    unseen = lane.published_end - target.frontier
    if not unseen:
        return known
    # The share of the examined messages that matched for this list.
    examined = max(target.frontier - lane.first_sequence, 0) * charge
    selector_groups = max(len(lane.destination.selector_groups), 1)  # none is left when the last list ends
    share = (target.taken_bytes + target.direct_bytes) / examined if examined else 1 / selector_groups
    return known + unseen * min(share, 1.0)
