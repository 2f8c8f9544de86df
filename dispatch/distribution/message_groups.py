"""MessageGroups: who owns which groups of messages in one queue, and which of them wait for a message put off.

A group is owned by way of its bucket, so a million groups take no more room
than a thousand. What waits, waits by its group's own name: a message that
comes back later holds up nobody but those behind it in the same group.
"""

from __future__ import annotations

import zlib
from bisect import bisect_left, insort
from collections.abc import Collection, Mapping, Sequence
from typing import Final, cast

from ...cache.charge import OVERHEAD_BYTES
from ...store.sequence_set import RUN_BYTES, SequenceSet
from ..core.memory.group_memory import GroupMemory
from ..core.model import LaneState, NonPersistentLaneState, Taker

BUCKETS: Final = 1024
HELD_BACK_BYTES: Final = OVERHEAD_BYTES
"""What is remembered of a message that comes back later, beside its group's name: no more than its delivery took."""
ASSIGNED_BYTES: Final = 256
"""What is remembered of a bucket of which something was assigned."""
WAITING_BYTES: Final = 368
"""What it takes that something of a lane waits behind a message, beside its runs. All measured with tracemalloc."""
RUNS_MAX: Final = 1024
"""Most runs of messages put aside for one reason in one lane, 16 KiB. Beyond it runs are joined across what lies
between."""


def bucket_of(group: str) -> int:
    return zlib.crc32(group.encode()) % BUCKETS


def put_aside(lane: LaneState, runs: SequenceSet, first: int, last: int) -> None:
    """Remember these in bounded memory, perhaps with others that lie between.

    Non-persistent ones exactly: what is only in another list must not be looked for.
    """
    runs.add(first, last)
    if len(runs) > RUNS_MAX and lane.is_persistent:
        runs.blur()


def _place(lane: LaneState, sequence: int) -> tuple[int, int, int]:
    """Return what orders messages of one priority, persistent and not, by arrival. O(log turns)."""
    if lane.is_persistent:
        return sequence, 1, 0
    return cast("NonPersistentLaneState", lane).tmp_lane.before(sequence), 0, sequence


def _find(places: list[tuple[int, int, int]], lane: LaneState, sequence: int) -> int:
    if lane.is_persistent:
        return bisect_left(places, (sequence, 1, 0))
    # Where it stands among those of the other lane is not told any more once they are gone.
    return next(at for at, place in enumerate(places) if place[1:] == (0, sequence))


class _Halt:
    """A group that waits for messages of one priority."""

    __slots__ = ("group", "places", "waiting")

    def __init__(self, group: str) -> None:
        self.group = group
        self.places: list[tuple[int, int, int]] = []
        """The places of the messages that come back later, in order."""
        self.waiting: dict[LaneState, SequenceSet] | None = None

    @property
    def held_bytes(self) -> int:
        """What it is charged."""
        held_bytes = (HELD_BACK_BYTES + len(self.group.encode())) * len(self.places)
        for runs in () if self.waiting is None else self.waiting.values():
            held_bytes += WAITING_BYTES + RUN_BYTES * len(runs)
        return held_bytes


class MessageGroups:
    """The owner of each group of messages in one queue, and the groups that wait. The state lock guards it."""

    def __init__(self, memory: GroupMemory) -> None:
        self.memory = memory
        self._owners: list[Taker | None] = []
        """By bucket; nothing while nobody owns any."""
        self._owned: dict[Taker, int] = {}
        """How many buckets each owner has."""
        self._last_assigned: dict[Taker, dict[tuple[int, int], tuple[int, int, int]]] = {}
        """By owner, bucket and priority, the last place that is assigned to that owner."""
        self._held_back: dict[LaneState, dict[int, _Halt]] = {}
        """By lane and sequence, what each message that comes back later holds back."""
        self._halts: dict[tuple[str, int], _Halt] = {}
        """By group and priority."""

    @property
    def held_bytes(self) -> int:
        """What it is charged. O(everything)."""
        return self.held_back_bytes + sum(ASSIGNED_BYTES * len(places) for places in self._last_assigned.values())

    @property
    def held_back_bytes(self) -> int:
        """What it is charged for messages that hold back their groups. O(those)."""
        return sum(halt.held_bytes for halt in self._halts.values())

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
        """Give a bucket without an owner one."""
        if not self._owners:
            self._owners = [None] * BUCKETS
        self._owners[bucket_of(group)] = consumer
        self._owned[consumer] = self.owned(consumer) + 1

    def owned(self, consumer: Taker) -> int:
        """Return how many buckets are its own."""
        return self._owned.get(consumer, 0)

    def buckets(self, consumer: Taker) -> list[int]:
        """Return the buckets of this owner. O(BUCKETS)."""
        return [bucket for bucket, owner in enumerate(self._owners) if owner is consumer]

    def release(self, consumer: Taker, buckets: Sequence[int]) -> None:
        """Take these from their owner. Requires: `assign_again` follows."""
        for bucket in buckets:
            self._owners[bucket] = None
        self._owned[consumer] -= len(buckets)
        if not self._owned[consumer]:
            del self._owned[consumer]
        if not self._owned:
            self._owners = []

    def note_assigned(self, lane: LaneState, sequence: int, group: str) -> None:
        """Note that a message is assigned to its owner, and with it all of the group that came before it."""
        bucket = bucket_of(group)
        owner = self._owners[bucket]
        assert owner is not None
        places = self._last_assigned.setdefault(owner, {})
        place = _place(lane, sequence)
        key = bucket, lane.pending_lane.priority
        known = places.get(key)
        if known is None:
            self.memory.charge(ASSIGNED_BYTES)
        if known is None or known < place:
            places[key] = place

    def is_ahead(self, lane: LaneState, sequence: int, group: str) -> bool:
        """Return whether what is assigned to its owner has come past the message, so that it belongs there too.

        If not, earlier ones of the group may be unassigned, and none behind it is assigned.
        """
        bucket = bucket_of(group)
        owner = self._owners[bucket]
        places = self._last_assigned.get(owner) if owner is not None else None
        last = places.get((bucket, lane.pending_lane.priority)) if places is not None else None
        return last is not None and _place(lane, sequence) <= last

    def assign_again(self, consumer: Taker) -> None:
        """Note that nothing is assigned to the owner: what was is unassigned again, or taken."""
        places = self._last_assigned.pop(consumer, None)
        if places is not None:
            self.memory.release(ASSIGNED_BYTES * len(places))

    # ------------------------------------------------------------------ what waits

    def halt(self, lane: LaneState, sequence: int, group: str) -> None:
        """Halt the group of a message that comes back later: what is behind the message waits for it."""
        held_back = self._held_back.setdefault(lane, {})
        if sequence in held_back:
            return
        key = group, lane.pending_lane.priority
        halt = self._halts.get(key)
        if halt is None:
            halt = self._halts[key] = _Halt(group)
        held_back[sequence] = halt
        insort(halt.places, _place(lane, sequence))
        self.memory.hold_back(HELD_BACK_BYTES + len(halt.group.encode()))

    def holds_back(self, lane: LaneState, sequence: int) -> str | None:
        """Return the group of a message that comes back later; None: it is not one."""
        held_back = self._held_back.get(lane)
        halt = held_back.get(sequence) if held_back is not None else None
        return None if halt is None else halt.group

    def held_back(self, lane: LaneState, first: int, last: int) -> list[int]:
        """Return which of first..last hold back their groups, in order. O(those, or the run)."""
        held_back = self._held_back.get(lane, {})
        if last - first < len(held_back):
            return [sequence for sequence in range(first, last + 1) if sequence in held_back]
        return sorted(sequence for sequence in held_back if first <= sequence <= last)

    def is_halted(self, lane: LaneState, sequence: int, group: str) -> bool:
        """Return whether a message waits for one before it."""
        if not self._halts:
            return False
        halt = self._halts.get((group, lane.pending_lane.priority))
        return halt is not None and _place(lane, sequence) > halt.places[0]

    def wait(self, lane: LaneState, sequence: int, group: str) -> None:
        """Let a message of a halted group wait, in no list."""
        halt = self._halts[group, lane.pending_lane.priority]
        if halt.waiting is None:
            halt.waiting = {}
        runs = halt.waiting.get(lane)
        charge = 0
        if runs is None:
            runs = halt.waiting[lane] = SequenceSet()
            charge = WAITING_BYTES
        before = len(runs)
        put_aside(lane, runs, sequence, sequence)
        charge += RUN_BYTES * (len(runs) - before)
        if charge > 0:
            self.memory.hold_back(charge)
        elif charge < 0:
            self.memory.let_go(-charge)

    def go_on(self, lane: LaneState, sequence: int) -> Mapping[LaneState, SequenceSet]:
        """Let a group go on whose message is put off no longer, or settled; return what waited for it."""
        held_back = self._held_back.get(lane)
        halt = held_back.pop(sequence, None) if held_back is not None else None
        if held_back is None or halt is None:
            return {}
        if not held_back:
            del self._held_back[lane]
        charged = halt.held_bytes
        del halt.places[_find(halt.places, lane, sequence)]
        waiting, halt.waiting = halt.waiting, None
        self.memory.let_go(charged - halt.held_bytes)
        if not halt.places:
            del self._halts[halt.group, lane.pending_lane.priority]
        return waiting or {}

    def waiting(self, lane: LaneState) -> int:
        """Return how many messages of a lane wait, or somewhat more."""
        halts = [halt.waiting for halt in self._halts.values() if halt.waiting is not None]
        return sum(waiting[lane].count for waiting in halts if lane in waiting)

    def _check(self) -> None:
        """AssertionError where messages that come back later and the groups that they hold back disagree."""
        places: dict[tuple[str, int], list[tuple[int, int, int]]] = {}
        for lane, held_back in self._held_back.items():
            assert held_back
            for sequence, halt in held_back.items():
                key = halt.group, lane.pending_lane.priority
                assert self._halts[key] is halt
                places.setdefault(key, []).append(_place(lane, sequence))
        assert {key: sorted(found) for key, found in places.items()} == {
            key: halt.places for key, halt in self._halts.items()
        }
