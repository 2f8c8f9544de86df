"""LatestPerKey: find messages that wait for one subscriber and are not the latest of their key.

The key of a message is its group or one of its headers. Memory grows with the messages that wait: a digest and two
places for each key, and a place for each older message. If memory_limit has no room, the oldest places are forgotten,
and their messages are evicted by age. The places end with the process, as a subscription without a name does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from ....cache.accounting.budget import Holder
from ....store.format.message_properties import decode_properties, group_of
from ...core.model.destination import LaneState

GROUP: Final = "JMSXGroupID"
DIGEST_BYTES: Final = 16
SPARE_PLACES: Final = 64

PLACE_BYTES: Final = 320
"""Charged for a place, its key, and their part of the tables."""
STEP_PLACES: Final = 8
"""Places are charged in steps of this size."""

Place = tuple[LaneState, int]
"""(lane, sequence) of a message."""


def key_of(name: str, properties: bytes) -> bytes | None:
    """Return a digest of the key: of a header, or of the group. None: the message has no key. RecordDamaged."""
    value = group_of(properties) if name == GROUP else decode_properties(properties)[0].get(name)
    if value is None:
        return None
    import hashlib  # imported here, so that other stores need not wait for the interpreter's OpenSSL

    return hashlib.blake2b(repr(value).encode(), digest_size=DIGEST_BYTES).digest()


class KeyMemory:
    """The charge for keys of all subscriptions together. The state lock guards it."""

    def __init__(self, holder: Holder, make_room: Callable[[int], None]) -> None:
        """make_room: gives back what caches hold, as far as possible."""
        self.holder = holder
        self._make_room = make_room

    def reserve(self, charge_bytes: int) -> bool:
        """Charge these bytes, taken from the caches if needed; return whether there was room."""
        if self.holder.reserve(charge_bytes):
            return True
        self._make_room(charge_bytes)
        return self.holder.reserve(charge_bytes)


class LatestPerKey:
    """The latest message of each key in one subscription. The state lock guards it."""

    def __init__(self, keys: KeyMemory) -> None:
        self._keys = keys
        self._paid_places = 0
        self._latest: dict[bytes, Place] = {}
        self._older: deque[Place] = deque()
        self._tidy_at = SPARE_PLACES

    def note(self, key: bytes, place: Place) -> None:
        """Note that a message with this key has come for the subscriber. O(1), and sometimes O(messages that wait)."""
        before = self._latest.get(key)
        self._latest[key] = place
        if before is not None:
            self._older.append(before)
        if self.places > self._tidy_at:
            self._tidy()
        if self.places > self._paid_places:
            self._pay()

    @property
    def places(self) -> int:
        """How many places are remembered."""
        return len(self._latest) + len(self._older)

    @property
    def charge_bytes(self) -> int:
        """What the places should be charged. AssertionError if there are more places than are paid for."""
        assert self.places <= self._paid_places
        return PLACE_BYTES * self._paid_places

    def close(self) -> None:
        """Forget all places, because the subscription has ended."""
        self._latest, self._older = {}, deque()
        self._keys.holder.release(PLACE_BYTES * self._paid_places)
        self._paid_places = 0

    def _tidy(self) -> None:
        """Forget places whose messages no longer wait. O(places)."""
        self._latest = {key: place for key, place in self._latest.items() if _waits(place)}
        self._older = deque(filter(_waits, self._older))
        self._tidy_at = 2 * self.places + SPARE_PLACES
        spare = (self._paid_places - self.places) // STEP_PLACES * STEP_PLACES
        if spare > 0:
            self._paid_places -= spare
            self._keys.holder.release(PLACE_BYTES * spare)

    def _pay(self) -> None:
        """Charge for more places. If memory has no room, forget the oldest places."""
        if self._keys.reserve(PLACE_BYTES * STEP_PLACES):
            self._paid_places += STEP_PLACES
            return
        self._tidy()
        while self.places > self._paid_places:
            if self._older:
                self._older.popleft()
            else:
                del self._latest[next(iter(self._latest))]

    def next_older(self) -> Place | None:
        """Remove and return the place of a waiting message whose key has a later one. None: there is none."""
        while self._older:
            place = self._older.popleft()
            if _waits(place):
                return place
        return None


def _waits(place: Place) -> bool:
    lane, sequence = place
    return sequence not in lane.deliveries and sequence not in lane.parked and lane.pending_lane.is_pending(sequence)
