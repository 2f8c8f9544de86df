"""Curve: the hit ratio that each of several memory limits would bring, from live traffic.

A *hit* is a delivery whose message stayed in RAM from its arrival on: neither a take nor the loader read it from the
journal. The reads of the loader count as well as those of takes, because they are the cost of a small limit.

The idea is that of reuse distances (Mattson, Gecsei, Slutz, Traiger: "Evaluation techniques for storage hierarchies",
1970): one pass over the traffic tells for every size at once what would have stayed in RAM. Sampling makes this cost
next to nothing (Waldspurger, Park, Garthwaite, Ahmad: "Efficient MRC Construction with SHARDS", 2015).

A queue differs from a cache of blocks: each message is used once, in order. So the distance of a message is the backlog
before it, and RAM keeps the front. A sample of messages would miss the moments at which a list overflows and catches
up, so the samples are moments. The backlog of a list is known exactly once a second, and whenever the list has handed
out QUANTUM_BYTES. For each limit, the state between two samples follows from the rules in cache/accounting/shares.py,
as if messages were a fluid.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from ....cache.accounting.shares import (
    LOW_WATERMARK_SHARE,
    Shares,
    high_watermark_bytes,
    high_watermarks,
    near_bytes,
    read_ahead_bytes,
)
from .backlog import BYTES_MIN, Backlog

QUANTUM_BYTES: Final = 128 * 1024
"""A list is sampled when it has delivered so much. A smaller value is more exact, and slower."""
QUANTUM_MESSAGES: Final = 16
"""A list delivers at least about so many messages between two samples."""
QUANTUM_DIVISOR: Final = 32
"""A list with a long backlog delivers at least its backlog, divided by this, between two samples."""
GOOD_ENOUGH: Final = 0.01
"""A smaller difference in hit ratio is not worth a larger limit."""
LOAD_MESSAGES: Final = 512
"""Most messages of a load: LOAD_MESSAGES_MAX of the loader, which this package doesn't know. A test compares them."""


def quantum_bytes(waiting: float, charge: float) -> int:
    """Return how much a list delivers before its next sample, from its backlog and the mean charge of a message."""
    return int(max(QUANTUM_BYTES, QUANTUM_MESSAGES * charge, waiting / QUANTUM_DIVISOR))


@dataclass(frozen=True, slots=True)
class CurvePoint:
    limit_bytes: int
    hit_ratio: float
    """Share of the deliveries that needed no read of the journal."""


@dataclass(frozen=True, slots=True)
class Curve:
    """The hit ratio of each memory limit, sorted by limit."""

    points: tuple[CurvePoint, ...] = ()
    deliveries: int = 0
    """Deliveries behind the curve, estimated for live traffic; 0: the curve says nothing."""

    @property
    def recommended_limit_bytes(self) -> int | None:
        """The smallest limit whose hit ratio is within 0.01 of the best. None: the curve says nothing."""
        if not self.deliveries:
            return None
        best = max(point.hit_ratio for point in self.points)
        return min(point.limit_bytes for point in self.points if point.hit_ratio >= best - GOOD_ENOUGH)


class ListTrack:
    """The state of one list under each limit, in bytes of charge.

    Only the `behind` smallest limits are tracked. Under each other limit the list would hold its whole backlog.
    """

    __slots__ = ("waiting", "taken", "charge", "direct", "rest")

    def __init__(self, waiting: float, charge: float) -> None:
        # Backlog behind the list's front at the last sample.
        self.waiting = waiting
        self.taken = 0
        self.charge = charge
        self.direct: list[float] = []
        """By limit, the direct messages."""
        self.rest: list[Backlog] = []
        """By limit, the messages behind the direct ones, in the PendingCache or in the journal alone."""

    @property
    def behind(self) -> int:
        """How many limits are tracked."""
        return len(self.rest)


class ListSample(NamedTuple):
    """A list at one moment, in bytes of charge."""

    waiting: float
    """Its backlog."""
    taken: int
    """The messages that it has delivered since its beginning."""
    charge: float
    """The mean charge of its messages."""
    in_flight: float
    """The deliveries in flight of all lists."""
    lists: int
    """Number of lists, those without a track included."""


class Step(NamedTuple):
    """What happened to a list between two samples, under any limit, in bytes of charge."""

    came: float
    """The messages that arrived."""
    went: float
    """The messages that were delivered."""
    waiting: float
    """The backlog at the second sample."""
    charge: float
    """The mean charge of its messages."""
    in_flight: float
    """The deliveries in flight of all lists."""
    lists: int
    """Number of lists."""


class CurveSampler:
    """Follows the lists of a store. The state lock guards it."""

    def __init__(self, shares: Sequence[Shares]) -> None:
        """Make it without lists. shares: those of the limits of the curve, smallest first."""
        self._shares = shares
        # By limit, how much the PendingCache would hold.
        self.overflowed = [0.0] * len(shares)
        # Backlog of all lists together.
        self.waiting = 0.0
        # By limit, how much of that backlog would not be direct.
        self.not_direct = [0.0] * len(shares)
        self._missed = [0.0] * len(shares)
        self._delivered = 0.0
        self._tracks: dict[ListTrack, None] = {}
        self._watermarks: dict[tuple[int, float | None], list[int]] = {}

    def track(self, waiting: float, in_ram: float, charge: float) -> ListTrack:
        """Begin to track a list over a lane with a backlog.

        in_ram: how much of the end of the backlog the HeadQueueCache saw arrive.
        """
        track = ListTrack(waiting, charge)
        self._tracks[track] = None
        self.waiting += waiting
        if waiting > 0:
            for shares in self._shares:
                kept = min(in_ram, waiting, shares.head_queue_cache_bytes)
                self._fall_behind(track, 0.0, kept, waiting - kept)
        return track

    def sample(self, track: ListTrack, seen: ListSample, watermarks: Sequence[int]) -> None:
        """Sample a list: advance each limit's state from the last sample. O(limits that would be behind).

        watermarks: what each limit grants to the list.
        """
        waiting, taken, charge, in_flight, lists = seen
        went = taken - track.taken
        came = max(waiting - track.waiting + went, 0.0)
        shares = self._shares
        peak = track.waiting - went / 2 + came
        at = track.behind
        while at < len(shares) and peak > min(watermarks[at], self._room(track, at, 0.0)):
            self._fall_behind(track, track.waiting, 0.0, 0.0)
            at += 1
        step = Step(came, went, waiting, charge, in_flight, lists)
        for at in range(track.behind):
            self._advance(track, at, step, watermarks[at])
        self.waiting += waiting - track.waiting
        track.waiting, track.taken, track.charge = waiting, taken, charge
        while track.behind and track.rest[-1].waiting < BYTES_MIN:
            self._drop_last(track)
        self._delivered += went / charge

    def drop(self, track: ListTrack) -> None:
        """Drop the track of a list that has ended."""
        del self._tracks[track]
        while track.behind:
            self._drop_last(track)
        self.waiting -= track.waiting

    def curve(self) -> Curve:
        """Return the curve of the traffic so far."""
        delivered = self._delivered
        ratios = [1.0 - min(missed / delivered, 1.0) if delivered else 1.0 for missed in self._missed]
        points = zip(self._shares, ratios, strict=True)
        return Curve(tuple(CurvePoint(shares.limit_bytes, ratio) for shares, ratio in points), int(delivered))

    def watermarks(self, rates: Sequence[float | None]) -> list[tuple[int, ...]]:
        """Return, for each list, the high watermarks that the limits grant to it. O(lists * limits)."""
        granted = [high_watermarks(shares.limit_bytes, rates) for shares in self._shares]
        return list(zip(*granted, strict=True))

    def watermarks_of(self, lists: int, rate: float | None) -> Sequence[int]:
        """Return the high watermark that each limit grants to a list that was not measured with the others."""
        watermarks = self._watermarks.get((lists, rate))
        if watermarks is None:
            if len(self._watermarks) >= 64:
                self._watermarks.clear()
            watermarks = [high_watermark_bytes(shares.limit_bytes, lists, rate) for shares in self._shares]
            self._watermarks[lists, rate] = watermarks
        return watermarks

    def _room(self, track: ListTrack, at: int, in_flight: float) -> float:
        """Return how much a limit leaves to this list, direct and overflowed, besides what the other lists have."""
        direct, overflowed = (track.direct[at], track.rest[at].kept) if at < track.behind else (track.waiting, 0.0)
        others = self.waiting - self.not_direct[at] - direct + self.overflowed[at] - overflowed
        return self._free(at, in_flight) - others

    def _free(self, at: int, in_flight: float) -> float:
        """Return how much a limit leaves to all lists and the PendingCache."""
        shares = self._shares[at]
        return shares.available_bytes - min(in_flight, shares.dispatch_bytes_max)

    def _fall_behind(self, track: ListTrack, direct: float, overflowed: float, outside: float) -> None:
        """Track one more limit, under which a list no longer holds its whole backlog."""
        at, rest = track.behind, Backlog()
        rest.append(overflowed, overflowed)
        rest.append(outside, 0.0)
        track.direct.append(direct)
        track.rest.append(rest)
        self.overflowed[at] += overflowed
        self.not_direct[at] += track.waiting - direct

    def _drop_last(self, track: ListTrack) -> None:
        """End the track of the largest tracked limit, under which the list holds its whole backlog again."""
        self.overflowed[track.behind - 1] -= track.rest[-1].kept
        self.not_direct[track.behind - 1] -= track.waiting - track.direct.pop()
        track.rest.pop()

    def _advance(self, track: ListTrack, at: int, step: Step, watermark: float) -> None:
        """Advance one limit from the sample before: deliver half of what went, let come what came, deliver the rest."""
        before = track.waiting - track.direct[at]
        rest = track.rest[at]
        others_direct = self.waiting - self.not_direct[at] - track.direct[at]
        # What came is counted before what is in flight: at the sample before, that was still in the list.
        for arriving, held in ((step.came, 0.0), (0.0, step.in_flight)):
            room = self._free(at, held) - others_direct - self.overflowed[at] + rest.kept
            direct = track.direct[at] - step.went / 2
            if direct > watermark:  # the watermark fell
                put_back = direct - watermark
                kept = min(put_back, self._cache_room(at, room - watermark, rest))
                self.overflowed[at] += kept
                rest.put_back(put_back, kept)
                direct = watermark
            track.direct[at] = direct
            self._refill(track, at, watermark, room, step.charge)
            direct = track.direct[at]
            if not rest.waiting:
                kept = min(arriving, max(min(watermark, room) - direct, 0.0))
                direct += kept
                arriving -= kept
            near = arriving
            if not rest.is_newest_kept:
                fair_bytes = high_watermark_bytes(self._shares[at].limit_bytes, step.lists, None)
                near = max(near_bytes(fair_bytes, int(watermark)) - direct - rest.waiting, 0.0)
            kept = min(arriving, near, self._cache_room(at, room - direct, rest))
            self.overflowed[at] += kept
            rest.append(arriving, kept)
            track.direct[at] = direct
        # The sampled backlog is exact. Correct the estimated parts so that they add up to it.
        surplus = track.direct[at] + rest.waiting - step.waiting
        if surplus < 0 and rest.waiting:
            rest.append(-surplus, 0.0)
        else:
            kept = rest.kept
            track.direct[at] -= surplus - rest.cut(surplus)
            self.overflowed[at] += rest.kept - kept
        self.not_direct[at] += step.waiting - track.direct[at] - before

    def _cache_room(self, at: int, room: float, rest: Backlog) -> float:
        """Return how much more of a list the PendingCache would take, if RAM has `room` for it in all."""
        share = self._shares[at].pending_cache_bytes - self.overflowed[at]
        return max(min(share, room - rest.kept), 0.0)

    def _refill(self, track: ListTrack, at: int, watermark: float, room: float, charge: float) -> None:
        """Load under one limit what the list may have ahead, and evict from the PendingCache what has no room then."""
        rest, direct = track.rest[at], track.direct[at]
        ahead = read_ahead_bytes(int(watermark), self._shares[at].read_ahead_share)
        low = ahead * LOW_WATERMARK_SHARE
        load = min(self._shares[at].load_bytes_max, low)
        brought = min(load, LOAD_MESSAGES * charge) / 2
        read = 0.0
        if direct < low:
            while rest.waiting:
                wanted = (watermark if rest.is_front_kept else ahead) - load + brought - direct
                if wanted < BYTES_MIN:
                    break
                size, kept = rest.take(wanted)
                self.overflowed[at] -= kept
                direct += size
                read += size - kept
        self._missed[at] += read / charge
        # Each read frees room for its buffer too. On average half of a buffer stays free.
        missing = direct + rest.kept + min(read, load) / 2 - room
        while missing > BYTES_MIN and self.overflowed[at] > BYTES_MIN:
            fullest = self._fullest(at)
            kept = fullest.rest[at].kept
            released = fullest.rest[at].evict(min(missing, max(kept / 2, fullest.charge)))
            if not released:
                break
            self.overflowed[at] -= released
            missing -= released
        track.direct[at] = max(direct, 0.0)

    def _fullest(self, at: int) -> ListTrack:
        """Return the list with the most messages in the PendingCache of a limit. O(lists)."""
        fullest, most = None, -1.0
        for track in self._tracks:
            if len(track.rest) > at:
                messages = track.rest[at].kept / track.charge
                if messages > most:
                    fullest, most = track, messages
        assert fullest is not None, "no list has overflowed"
        return fullest
