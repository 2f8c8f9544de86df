"""MessageGroups: the owners of message groups in one queue, and the groups that are halted until a message comes back.

Groups are owned by bucket, so a million groups take no more room than a thousand. They are halted by name: a message
that comes back later holds up only later messages of its own group.
"""

from __future__ import annotations

import zlib
from bisect import bisect_left, insort
from collections.abc import Collection, Mapping, Sequence
from typing import Final, cast

from ...cache.accounting.charge import OVERHEAD_BYTES
from ...store.structures.sequence_set import RUN_BYTES, SequenceSet
from ..core.lanes.non_persistent_lane_state import NonPersistentLaneState
from ..core.memory.message_group_memory import MessageGroupMemory
from ..core.model.destination import CoreConsumer, LaneState

BUCKETS: Final = 1024
HALT_BYTES: Final = OVERHEAD_BYTES
"""Charged for a message that halts its group, in addition to the group's name. Its delivery took no less."""
BUCKET_BYTES: Final = 256
"""Charged for a bucket and priority of which a message was assigned to the owner."""
WAITING_BYTES: Final = 368
"""Charged for a lane with messages that wait behind another one, without its runs. Measured with tracemalloc."""
RUNS_MAX: Final = 1024
"""Most runs of messages that wait for one reason in one lane, which is 16 KiB."""


def bucket_of(group: str) -> int:
    return zlib.crc32(group.encode()) % BUCKETS


def add_bounded(lane: LaneState, runs: SequenceSet, first: int, last: int) -> None:
    """Add first..last to runs, of which there may be RUNS_MAX: then neighbours are joined, gaps between them included.

    Runs of non-persistent messages stay exact, because a load must not look for a message that only another list has.
    """
    runs.add(first, last)
    if runs.run_count > RUNS_MAX and lane.is_persistent:
        runs.coarsen()


def _place(lane: LaneState, sequence: int) -> tuple[int, int, int]:
    """Return a key that orders messages of one priority, persistent or not, by arrival. O(log turns)."""
    if lane.is_persistent:
        return sequence, 1, 0
    return cast("NonPersistentLaneState", lane).non_persistent_lane.next_persistent(sequence), 0, sequence


def _find(places: list[tuple[int, int, int]], lane: LaneState, sequence: int) -> int:
    if lane.is_persistent:
        return bisect_left(places, (sequence, 1, 0))
    # The place can't be computed again once the persistent messages around it are gone, so it is searched for.
    return next(at for at, place in enumerate(places) if place[1:] == (0, sequence))


class _Halt:
    """A halted group: its messages of one priority wait until each message that halts it has gone on."""

    __slots__ = ("group", "places", "waiting")

    def __init__(self, group: str) -> None:
        self.group = group
        # The places of the messages that halt the group, sorted.
        self.places: list[tuple[int, int, int]] = []
        # By lane, the messages that wait. None: no message waits.
        self.waiting: dict[LaneState, SequenceSet] | None = None

    @property
    def held_bytes(self) -> int:
        """Its charge."""
        held_bytes = (HALT_BYTES + len(self.group.encode())) * len(self.places)
        for runs in () if self.waiting is None else self.waiting.values():
            held_bytes += WAITING_BYTES + runs.held_bytes
        return held_bytes


class MessageGroups:
    """The owners of the message groups of one queue, and its halted groups. The state lock guards it."""

    def __init__(self, memory: MessageGroupMemory) -> None:
        self.memory = memory
        # The owner of each bucket; empty while no bucket has an owner.
        self._owners: list[CoreConsumer | None] = []
        # Number of buckets of each owner.
        self._owned: dict[CoreConsumer, int] = {}
        # By owner, then by bucket and priority: the last place that is assigned to the owner.
        self._last_assigned: dict[CoreConsumer, dict[tuple[int, int], tuple[int, int, int]]] = {}
        # By lane and sequence of a message that comes back later: the halt that it causes.
        self._halting: dict[LaneState, dict[int, _Halt]] = {}
        # The halts by group and priority.
        self._halts: dict[tuple[str, int], _Halt] = {}

    @property
    def held_bytes(self) -> int:
        """The charge of owners and halts together. O(buckets assigned + messages that halt or wait)."""
        return self.halted_bytes + sum(BUCKET_BYTES * len(places) for places in self._last_assigned.values())

    @property
    def halted_bytes(self) -> int:
        """The charge for messages that halt their groups, and for those that wait for them. O(those messages)."""
        return sum(halt.held_bytes for halt in self._halts.values())

    # ------------------------------------------------------------------ owners

    def owner(self, group: str) -> CoreConsumer | None:
        return self._owners[bucket_of(group)] if self._owners else None

    @property
    def has_owners(self) -> bool:
        return bool(self._owned)

    def owners(self) -> Collection[CoreConsumer]:
        """Return the consumers that own a bucket."""
        return self._owned.keys()

    def set_owner(self, group: str, consumer: CoreConsumer) -> None:
        """Set the first owner of the bucket of a group."""
        if not self._owners:
            self._owners = [None] * BUCKETS
        self._owners[bucket_of(group)] = consumer
        self._owned[consumer] = self.owned(consumer) + 1

    def owned(self, consumer: CoreConsumer) -> int:
        """Return how many buckets a consumer owns."""
        return self._owned.get(consumer, 0)

    def buckets(self, consumer: CoreConsumer) -> list[int]:
        """Return the buckets of an owner. O(BUCKETS)."""
        return [bucket for bucket, owner in enumerate(self._owners) if owner is consumer]

    def disown(self, consumer: CoreConsumer, buckets: Sequence[int]) -> None:
        """Take buckets from their owner. Requires: `assign_again` follows."""
        for bucket in buckets:
            self._owners[bucket] = None
        self._owned[consumer] -= len(buckets)
        if not self._owned[consumer]:
            del self._owned[consumer]
        if not self._owned:
            self._owners = []

    def note_assigned(self, lane: LaneState, sequence: int, group: str) -> None:
        """Note that a message, and all earlier ones of its group, are assigned to the owner."""
        bucket = bucket_of(group)
        owner = self._owners[bucket]
        assert owner is not None
        places = self._last_assigned.setdefault(owner, {})
        place = _place(lane, sequence)
        key = bucket, lane.pending_lane.priority
        known = places.get(key)
        if known is None:
            self.memory.charge(BUCKET_BYTES)
        if known is None or known < place:
            places[key] = place

    def is_ahead(self, lane: LaneState, sequence: int, group: str) -> bool:
        """Return whether this message, or a later one of its bucket, was assigned to the owner: then it is the owner's.

        Otherwise no later message of the group is assigned, and earlier ones may be unassigned.
        """
        bucket = bucket_of(group)
        owner = self._owners[bucket]
        places = self._last_assigned.get(owner) if owner is not None else None
        last = places.get((bucket, lane.pending_lane.priority)) if places is not None else None
        return last is not None and _place(lane, sequence) <= last

    def assign_again(self, consumer: CoreConsumer) -> None:
        """Note that an owner has no assigned message any more: each was taken or is unassigned again."""
        places = self._last_assigned.pop(consumer, None)
        if places is not None:
            self.memory.release(BUCKET_BYTES * len(places))

    # ------------------------------------------------------------------ what waits

    def halt(self, lane: LaneState, sequence: int, group: str) -> None:
        """Halt the group of a message that comes back later, so that messages of the group behind it wait."""
        halting = self._halting.setdefault(lane, {})
        if sequence in halting:
            return
        key = group, lane.pending_lane.priority
        halt = self._halts.get(key)
        if halt is None:
            halt = self._halts[key] = _Halt(group)
        halting[sequence] = halt
        insort(halt.places, _place(lane, sequence))
        self.memory.charge_halt(HALT_BYTES + len(halt.group.encode()))

    def halted_by(self, lane: LaneState, sequence: int) -> str | None:
        """Return the group that a message halts. None: it halts no group."""
        halting = self._halting.get(lane)
        halt = halting.get(sequence) if halting is not None else None
        return None if halt is None else halt.group

    def halting(self, lane: LaneState, first: int, last: int) -> list[int]:
        """Return which messages of a run halt their groups, in order. O(messages of the run, or that halt a group)."""
        halting = self._halting.get(lane, {})
        if last - first < len(halting):
            return [sequence for sequence in range(first, last + 1) if sequence in halting]
        return sorted(sequence for sequence in halting if first <= sequence <= last)

    def is_halted(self, lane: LaneState, sequence: int, group: str) -> bool:
        """Return whether a message waits for an earlier one of its group."""
        if not self._halts:
            return False
        halt = self._halts.get((group, lane.pending_lane.priority))
        return halt is not None and _place(lane, sequence) > halt.places[0]

    def wait(self, lane: LaneState, sequence: int, group: str) -> None:
        """Have a message of a halted group wait. No list has it meanwhile."""
        halt = self._halts[group, lane.pending_lane.priority]
        if halt.waiting is None:
            halt.waiting = {}
        runs = halt.waiting.get(lane)
        charge = 0
        if runs is None:
            runs = halt.waiting[lane] = SequenceSet()
            charge = WAITING_BYTES
        before = runs.run_count
        add_bounded(lane, runs, sequence, sequence)
        charge += RUN_BYTES * (runs.run_count - before)
        if charge > 0:
            self.memory.charge_halt(charge)
        elif charge < 0:
            self.memory.release_halt(-charge)

    def resume(self, lane: LaneState, sequence: int) -> Mapping[LaneState, SequenceSet]:
        """End the halt that a message causes, because it came back or was settled; return the messages that waited."""
        halting = self._halting.get(lane)
        halt = halting.pop(sequence, None) if halting is not None else None
        if halting is None or halt is None:
            return {}
        if not halting:
            del self._halting[lane]
        charged = halt.held_bytes
        del halt.places[_find(halt.places, lane, sequence)]
        waiting, halt.waiting = halt.waiting, None
        self.memory.release_halt(charged - halt.held_bytes)
        if not halt.places:
            del self._halts[halt.group, lane.pending_lane.priority]
        return waiting or {}

    def waiting(self, lane: LaneState) -> int:
        """Return how many messages of a lane wait. The figure may be too high."""
        halts = [halt.waiting for halt in self._halts.values() if halt.waiting is not None]
        return sum(waiting[lane].count for waiting in halts if lane in waiting)

    def _check(self) -> None:
        """Raise AssertionError if messages that come back later and the groups that they halt disagree."""
        places: dict[tuple[str, int], list[tuple[int, int, int]]] = {}
        for lane, halting in self._halting.items():
            assert halting
            for sequence, halt in halting.items():
                key = halt.group, lane.pending_lane.priority
                assert self._halts[key] is halt
                places.setdefault(key, []).append(_place(lane, sequence))
        assert {key: sorted(found) for key, found in places.items()} == {
            key: halt.places for key, halt in self._halts.items()
        }
