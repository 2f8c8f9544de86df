"""Groups: who owns which groups of messages in one queue, and which of them wait for a message put off.

A group is owned by way of its bucket, so a million groups take no more room
than a few thousand: 32 KiB for the owners, and 250 bytes for each bucket of
which something was dealt to a hand that has not been empty since. What waits,
waits by its group's own name: a message that comes back later holds up nobody
but those behind it in the same group.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Mapping, Sequence
from typing import Final, cast

from ...store.sequence_set import SequenceSet
from ..core.model import LaneState, NonPersistentLaneState, Taker

BUCKETS: Final = 4096
RUNS_MAX: Final = 1024
"""Of messages put aside for one reason in one lane: 16 KiB. Beyond it runs are joined across what lies between."""


def bucket_of(group: str) -> int:
    return zlib.crc32(group.encode()) % BUCKETS


def put_aside(area: LaneState, runs: SequenceSet, first: int, last: int) -> None:
    """Remember these in bounded memory, perhaps with others that lie between.

    Non-persistent ones exactly: what is only in another list must not be looked for.
    """
    runs.add(first, last)
    if len(runs) > RUNS_MAX and area.is_persistent:
        runs.blur()


def _place(area: LaneState, sequence: int) -> tuple[int, int, int]:
    """Return what orders messages of one priority, persistent and not, by arrival. O(log turns)."""
    if area.is_persistent:
        return sequence, 1, 0
    return cast("NonPersistentLaneState", area).store_lane.before(sequence), 0, sequence


class _Halt:
    """What a group waits for, in one priority."""

    __slots__ = ("places", "waiting")

    def __init__(self) -> None:
        self.places: dict[tuple[LaneState, int], tuple[int, int, int]] = {}
        """Of the messages that come back later."""
        self.waiting: dict[LaneState, SequenceSet] = {}


class Groups:
    """The state lock guards it."""

    def __init__(self) -> None:
        self._owners: list[Taker | None] = []
        """By bucket; nothing while nobody owns any."""
        self._owned: dict[Taker, int] = {}
        """How many buckets each owner has."""
        self._dealt: dict[Taker, dict[tuple[int, int], tuple[int, int, int]]] = {}
        """Of each owner, by bucket and priority: the last place that was dealt to its hand, as it is now."""
        self.delayed: dict[tuple[LaneState, int], str] = {}
        """The group of each message that comes back later."""
        self._halts: dict[tuple[str, int], _Halt] = {}
        """By group and priority."""

    # ------------------------------------------------------------------ owners

    def owner(self, group: str) -> Taker | None:
        return self._owners[bucket_of(group)] if self._owners else None

    @property
    def has_owners(self) -> bool:
        return bool(self._owned)

    def owners(self) -> Collection[Taker]:
        """Return the consumers that own something."""
        return self._owned.keys()

    def give(self, group: str, consumer: Taker) -> None:
        """Nobody owned it so far."""
        if not self._owners:
            self._owners = [None] * BUCKETS
        self._owners[bucket_of(group)] = consumer
        self._owned[consumer] = self.owned(consumer) + 1

    def owned(self, consumer: Taker) -> int:
        """How many buckets are its own."""
        return self._owned.get(consumer, 0)

    def buckets(self, consumer: Taker) -> list[int]:
        """Return the buckets of this owner. O(BUCKETS)."""
        return [bucket for bucket, owner in enumerate(self._owners) if owner is consumer]

    def release(self, consumer: Taker, buckets: Sequence[int]) -> None:
        """Nobody owns these from now on. Requires: `deal_again` follows."""
        for bucket in buckets:
            self._owners[bucket] = None
        self._owned[consumer] -= len(buckets)
        if not self._owned[consumer]:
            del self._owned[consumer]
        if not self._owned:
            self._owners = []

    def dealt(self, area: LaneState, sequence: int, group: str) -> None:
        """Note that a message is assigned to its owner, and with it all of the group that came before it."""
        bucket = bucket_of(group)
        owner = self._owners[bucket]
        assert owner is not None
        places = self._dealt.setdefault(owner, {})
        place = _place(area, sequence)
        key = bucket, area.lane.priority
        places[key] = max(places.get(key, place), place)

    def is_ahead(self, area: LaneState, sequence: int, group: str) -> bool:
        """Whether what is dealt to the hand of its owner has come past it, so that it belongs there too.

        If not, earlier ones of the group may be in the stock, and none behind it is in the hand.
        """
        bucket = bucket_of(group)
        owner = self._owners[bucket]
        places = self._dealt.get(owner) if owner is not None else None
        dealt = places.get((bucket, area.lane.priority)) if places is not None else None
        return dealt is not None and _place(area, sequence) <= dealt

    def deal_again(self, consumer: Taker) -> None:
        """Note that nothing is assigned to the owner: what was is unassigned again, or taken."""
        self._dealt.pop(consumer, None)

    # ------------------------------------------------------------------ what waits

    def halt(self, area: LaneState, sequence: int, group: str) -> None:
        """Halt the group of a message that comes back later: what is behind the message waits for it."""
        self.delayed[area, sequence] = group
        halt = self._halts.setdefault((group, area.lane.priority), _Halt())
        halt.places[area, sequence] = _place(area, sequence)

    def is_halted(self, area: LaneState, sequence: int, group: str) -> bool:
        """Whether a message waits for one before it. O(messages of its group that are put off)."""
        if not self._halts:
            return False
        halt = self._halts.get((group, area.lane.priority))
        return halt is not None and _place(area, sequence) > min(halt.places.values())

    def wait(self, area: LaneState, sequence: int, group: str) -> None:
        """Let a message of a halted group wait, in no list."""
        put_aside(
            area, self._halts[group, area.lane.priority].waiting.setdefault(area, SequenceSet()), sequence, sequence
        )

    def go_on(self, area: LaneState, sequence: int) -> Mapping[LaneState, SequenceSet]:
        """A message is put off no longer, or settled; returns what waited for it, which may have to wait for others."""
        group = self.delayed.pop((area, sequence), None)
        if group is None:
            return {}
        key = group, area.lane.priority
        halt = self._halts[key]
        del halt.places[area, sequence]
        waiting, halt.waiting = halt.waiting, {}
        if not halt.places:
            del self._halts[key]
        return waiting

    def waiting(self, area: LaneState) -> int:
        """How many messages of a lane wait, or somewhat more."""
        return sum(halt.waiting[area].count for halt in self._halts.values() if area in halt.waiting)
