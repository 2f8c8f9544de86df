"""NewestPerKey: which of the messages that wait for one subscriber are older ones of their key.

A key is a message's group or one of its headers. Memory goes with what waits:
a digest and two places for each key, a place for each older message. Nothing
here survives the process, as nothing of such a subscriber does.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from ...store.format.properties import decode_properties, group_of
from ..core.model import LaneState

GROUP: Final = "JMSXGroupID"
DIGEST_BYTES: Final = 16
SPARE_PLACES: Final = 64

Place = tuple[LaneState, int]


def key_of(name: str, properties: bytes) -> bytes | None:
    """Return a digest of the header of that name, or of the group; None: the message has none. RecordDamaged."""
    value = group_of(properties) if name == GROUP else decode_properties(properties)[0].get(name)
    if value is None:
        return None
    import hashlib  # what needs no digest doesn't wait for the interpreter's OpenSSL

    return hashlib.blake2b(repr(value).encode(), digest_size=DIGEST_BYTES).digest()


class NewestPerKey:
    """Of one subscription. The state lock guards it."""

    def __init__(self) -> None:
        self._newest: dict[bytes, Place] = {}
        self._older: deque[Place] = deque()
        self._tidy_at = SPARE_PLACES

    def note(self, key: bytes, place: Place) -> None:
        """Note that a message with this key has come for the subscriber. O(1), and now and then O(what waits)."""
        before = self._newest.get(key)
        self._newest[key] = place
        if before is not None:
            self._older.append(before)
        if len(self._newest) + len(self._older) > self._tidy_at:
            self._newest = {key: place for key, place in self._newest.items() if _waits(place)}
            self._older = deque(filter(_waits, self._older))
            self._tidy_at = 2 * (len(self._newest) + len(self._older)) + SPARE_PLACES

    def next_older(self) -> Place | None:
        """Return one that waits and of whose key a newer one has come; None: there is none. It is forgotten here."""
        while self._older:
            place = self._older.popleft()
            if _waits(place):
                return place
        return None


def _waits(place: Place) -> bool:
    lane, sequence = place
    return sequence not in lane.in_flight and lane.stored.is_pending(sequence)
