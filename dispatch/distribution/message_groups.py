"""Groups: who owns which groups of messages in one queue, and which of them wait for a message put off.

A group is owned by way of its bucket, so a million groups take no more room
than a few thousand. What waits, waits by its group's own name: a message that
comes back later holds up nobody but those behind it in the same group.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterable, Mapping
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
    """What orders messages of one priority, persistent and not, by arrival. O(log turns)."""
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
        self._owners: dict[int, Taker] = {}
        self._buckets: dict[Taker, set[int]] = {}
        self._dealt: dict[int, dict[int, tuple[int, int, int]]] = {}
        """By bucket that is owned and priority: the last place that was dealt to its owner's hand, as it is now."""
        self.delayed: dict[tuple[LaneState, int], str] = {}
        """The group of each message that comes back later."""
        self._halts: dict[tuple[str, int], _Halt] = {}
        """By group and priority."""

    # ------------------------------------------------------------------ owners

    def owner(self, group: str) -> Taker | None:
        return self._owners.get(bucket_of(group))

    @property
    def has_owners(self) -> bool:
        return bool(self._owners)

    def owners(self) -> Collection[Taker]:
        """Who owns something."""
        return self._buckets.keys()

    def give(self, group: str, consumer: Taker) -> None:
        """Nobody owned it so far."""
        bucket = bucket_of(group)
        self._owners[bucket] = consumer
        self._dealt[bucket] = {}
        self._buckets.setdefault(consumer, set()).add(bucket)

    def owned(self, consumer: Taker) -> Collection[int]:
        """Its buckets."""
        return self._buckets.get(consumer, ())

    def release(self, consumer: Taker, buckets: Iterable[int]) -> None:
        """Nobody owns these from now on."""
        own = self._buckets[consumer]
        for bucket in buckets:
            del self._owners[bucket], self._dealt[bucket]
            own.remove(bucket)
        if not own:
            del self._buckets[consumer]

    def dealt(self, area: LaneState, sequence: int, group: str) -> None:
        """It goes to the hand of its owner, and with it all of the group that the stock had before it."""
        places = self._dealt[bucket_of(group)]
        place = _place(area, sequence)
        priority = area.lane.priority
        places[priority] = max(places.get(priority, place), place)

    def is_ahead(self, area: LaneState, sequence: int, group: str) -> bool:
        """Whether what is dealt to the hand of its owner has come past it, so that it belongs there too.

        If not, earlier ones of the group may be in the stock, and none behind it is in the hand.
        """
        dealt = self._dealt[bucket_of(group)].get(area.lane.priority)
        return dealt is not None and _place(area, sequence) <= dealt

    def deal_again(self, consumer: Taker) -> None:
        """What was in its hand is in the stock again."""
        for bucket in self.owned(consumer):
            self._dealt[bucket].clear()

    # ------------------------------------------------------------------ what waits

    def halt(self, area: LaneState, sequence: int, group: str) -> None:
        """This message comes back later: what is behind it in its group waits for it."""
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
        """It is halted, and in no list."""
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
