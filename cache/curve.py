"""Curve: the hit ratio that each of several memory limits would bring, from live traffic.

A *hit* is a delivery whose message stayed in RAM from its arrival on: neither a take nor the loader had to read the
journal for it. Counting only the reads of takes would say nothing, because the loader prevents those at any limit, and
its reads are what a small limit costs.

The idea is that of reuse distances (Mattson, Gecsei, Slutz, Traiger: "Evaluation techniques for storage hierarchies",
1970): one pass over the traffic tells for every size at once what would have been kept. Sampling makes this cost next
to nothing (Waldspurger, Park, Garthwaite, Ahmad: "Efficient MRC Construction with SHARDS", 2015). A queue differs from
a cache of blocks: a message is used once, in order. So its distance is the backlog before it, and what is kept is the
front. Sampling messages would lose the moments at which a list overflows and catches up. So time is sampled: the
backlog of a list is known exactly once a second, and whenever the list has handed out QUANTUM_BYTES. For each limit,
the state between two such moments follows from the rules in cache/shares.py, as if messages were a fluid.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from .shares import Shares, high_watermark_bytes, high_watermarks

QUANTUM_BYTES: Final = 128 * 1024
"""A list is sampled when it has delivered so much. A smaller value is more exact, and slower."""
QUANTUM_MESSAGES: Final = 16
"""A list delivers at least about so many messages between two samples."""
QUANTUM_SHARE: Final = 32
"""A list with a long backlog delivers at least this fraction of it between two samples."""
GOOD_ENOUGH: Final = 0.01
"""A smaller difference in hit ratio is not worth a larger limit."""
LOAD_MESSAGES: Final = 512

_NO_LIMITS: Final = array("d")
"""Of all lists that would hold their backlog under every limit. It always stays empty."""


def quantum_bytes(waiting: float, charge: float) -> int:
    """Return how much a list delivers before its next sample, from its backlog and the mean charge of a message."""
    return int(max(QUANTUM_BYTES, QUANTUM_MESSAGES * charge, waiting / QUANTUM_SHARE))


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


class Track:
    """The state of one list under each limit, in bytes of charge.

    Only the first `behind` limits, which are the smallest, are tracked. Under all others the list would hold its whole
    backlog.
    """

    __slots__ = ("waiting", "taken", "charge", "behind", "direct", "overflowed", "outside")

    def __init__(self, waiting: float, charge: float) -> None:
        # Backlog behind the list's front at the last sample.
        self.waiting = waiting
        self.taken = 0
        self.charge = charge
        self.behind = 0
        # By limit. `outside` is what only the journal would have.
        self.direct = self.overflowed = self.outside = _NO_LIMITS

    def fall_behind(self, direct: float, overflowed: float, outside: float) -> None:
        """Begin to track one more limit."""
        if self.direct is _NO_LIMITS:
            self.direct, self.overflowed, self.outside = array("d"), array("d"), array("d")
        self.behind += 1
        self.direct.append(direct)
        self.overflowed.append(overflowed)
        self.outside.append(outside)


class Step(NamedTuple):
    """The changes of a list between two samples, which do not depend on the limit."""

    came: float
    went: float
    waiting: float
    """Its present backlog."""
    charge: float
    """Mean charge of its messages."""


class Fluid:
    """The backlog of one list under one limit, as parts that flow into each other."""

    __slots__ = ("direct", "overflowed", "outside", "missed", "room", "_left", "_share")

    def __init__(self, track: Track, at: int, room: float, left: float, share: float) -> None:
        """room: for direct messages. left: for direct and overflowed ones together. share: of the PendingCache."""
        self.direct, self.overflowed, self.outside = track.direct[at], track.overflowed[at], track.outside[at]
        # Bytes read from the journal.
        self.missed = 0.0
        self.room = room
        self._left = left
        self._share = share

    @property
    def _pending_room(self) -> float:
        """Bytes that may still overflow beside the direct ones."""
        return max(min(self._share, self._left - self.direct) - self.overflowed, 0.0)

    def deliver(self, went: float) -> None:
        """Hand out from the front; then drop what exceeds a watermark that fell."""
        self.direct -= went
        if self.direct > self.room:
            kept = min(self.direct - self.room, self._pending_room)
            self.outside += self.direct - self.room - kept
            self.overflowed += kept
            self.direct = self.room

    def load(self, filled: float) -> None:
        """Load until the list is half full, each time up to `filled`, first from the PendingCache."""
        while self.direct < self.room / 2 and (self.overflowed > 0 or self.outside > 0):
            wanted = filled - self.direct
            taken = min(wanted, self.overflowed)
            self.overflowed -= taken
            read = min(wanted - taken, self.outside)
            self.outside -= read
            self.missed += read
            self.direct += taken + read
        self.direct = max(self.direct, 0.0)

    def take_in(self, arriving: float) -> None:
        """Add arriving messages: direct while nothing is behind, then overflowed while they are near."""
        if not (self.overflowed or self.outside):
            kept = min(arriving, max(self.room - self.direct, 0.0))
            self.direct += kept
            arriving -= kept
        near = max(self.room - self.direct - self.overflowed - self.outside, 0.0) if self.outside else arriving
        kept = min(arriving, near, self._pending_room)
        self.overflowed += kept
        self.outside += arriving - kept

    def settle(self, waiting: float) -> None:
        """Make the parts add up to the backlog, which is known better than the parts."""
        surplus = self.direct + self.overflowed + self.outside - waiting
        if surplus > 0 or self.outside:
            self.outside, surplus = max(self.outside - surplus, 0.0), max(surplus - self.outside, 0.0)
        over = max(surplus, 0.0)
        self.overflowed, surplus = max(self.overflowed - over, 0.0), surplus - min(over, self.overflowed)
        self.direct -= surplus


class CurveSampler:
    """Follows the lists of a store. The state lock guards it."""

    def __init__(self, shares: Sequence[Shares]) -> None:
        """Make it without lists. shares: those of the limits of the curve, smallest first."""
        self._shares = shares
        # By limit, what the PendingCache would hold.
        self._overflowed = [0.0] * len(shares)
        # Total backlog of all lists.
        self._waiting = 0.0
        # By limit, how much of that backlog would not be direct.
        self._not_direct = [0.0] * len(shares)
        self._missed = [0.0] * len(shares)
        self._delivered = 0.0
        self._watermarks: dict[tuple[int, float | None], list[int]] = {}

    def track(self, waiting: float, in_ram: float, charge: float) -> Track:
        """Begin to track a list over a lane with a backlog.

        in_ram: how much of the end of the backlog the HeadQueueCache saw arrive.
        """
        track = Track(waiting, charge)
        self._waiting += waiting
        if waiting > 0:
            for at, shares in enumerate(self._shares):
                kept = min(in_ram, waiting, shares.head_queue_cache_bytes)
                self._fall_behind(track, at, 0.0, kept, waiting - kept)
        return track

    def sample(
        self, track: Track, waiting: float, taken: int, charge: float, watermarks: Sequence[int], in_flight: float
    ) -> None:
        """Sample a list: advance each limit's state from the last sample. O(limits that would be behind).

        waiting: its present backlog. taken: what it has delivered since its beginning. charge: mean charge of its
            messages. watermarks: what each limit grants to the list.
        """
        went = taken - track.taken
        came = max(waiting - track.waiting + went, 0.0)
        shares = self._shares
        peak = track.waiting - went / 2 + came
        at = track.behind
        while at < len(shares) and peak > min(watermarks[at], self._room(track, at, in_flight)):
            self._fall_behind(track, at, track.waiting, 0.0, 0.0)
            at += 1
        step = Step(came, went, waiting, charge)
        for at in range(track.behind):
            self._advance(track, at, step, watermarks[at], in_flight)
        self._waiting += waiting - track.waiting
        track.waiting, track.taken, track.charge = waiting, taken, charge
        while track.behind and not track.overflowed[-1] and not track.outside[-1]:
            track.behind -= 1
            self._drop_last(track)
        self._delivered += went / charge

    def end(self, track: Track) -> None:
        """Drop the track of a list that has ended."""
        while track.behind:
            track.behind -= 1
            self._drop_last(track)
        self._waiting -= track.waiting

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
        found = self._watermarks.get((lists, rate))
        if found is None:
            if len(self._watermarks) >= 64:
                self._watermarks.clear()
            found = [high_watermark_bytes(shares.limit_bytes, lists, rate) for shares in self._shares]
            self._watermarks[lists, rate] = found
        return found

    def _room(self, track: Track, at: int, in_flight: float) -> float:
        """Return the bytes that a limit leaves to this list, direct and overflowed, after all others have theirs."""
        shares = self._shares[at]
        direct, overflowed = (track.direct[at], track.overflowed[at]) if at < track.behind else (track.waiting, 0.0)
        others = self._waiting - self._not_direct[at] - direct + self._overflowed[at] - overflowed
        return shares.available_bytes - min(in_flight, shares.dispatch_bytes_max) - others

    def _fall_behind(self, track: Track, at: int, direct: float, overflowed: float, outside: float) -> None:
        assert at == track.behind
        track.fall_behind(direct, overflowed, outside)
        self._overflowed[at] += overflowed
        self._not_direct[at] += track.waiting - direct

    def _drop_last(self, track: Track) -> None:
        self._overflowed[track.behind] -= track.overflowed.pop()
        self._not_direct[track.behind] -= track.waiting - track.direct.pop()
        track.outside.pop()

    def _advance(self, track: Track, at: int, step: Step, watermark_bytes: int, in_flight: float) -> None:
        """Advance one limit from the last sample: deliver half of what went, let arrivals come, deliver the rest."""
        shares = self._shares[at]
        left = self._room(track, at, in_flight)
        others = self._overflowed[at] - track.overflowed[at]
        self._not_direct[at] -= track.waiting - track.direct[at]
        fluid = Fluid(track, at, min(watermark_bytes, left), left, max(shares.pending_cache_bytes - others, 0.0))
        load_bytes = min(shares.load_bytes_max, fluid.room / 2)
        filled = max(fluid.room - load_bytes + min(load_bytes, LOAD_MESSAGES * step.charge) / 2, 0.0)
        for arriving in (step.came, 0.0):
            fluid.deliver(step.went / 2)
            fluid.load(filled)
            fluid.take_in(arriving)
        fluid.settle(step.waiting)
        self._overflowed[at] = others + fluid.overflowed
        self._missed[at] += fluid.missed / step.charge
        track.direct[at], track.overflowed[at], track.outside[at] = fluid.direct, fluid.overflowed, fluid.outside
        self._not_direct[at] += step.waiting - track.direct[at]
