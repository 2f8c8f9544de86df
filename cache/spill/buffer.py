"""SpillBuffer: non-persistent messages that RAM has no place for, gathered until a write to tmp-storage is worth it.

Of each it has the only copy. What is asked for meanwhile is taken from here
and never written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ...store.journal.reading import StoredMessage
from ..budget import Holder
from ..charge import charge_bytes
from ..message_cache import MessageCache

BATCH_MESSAGES: Final = 256
BATCH_BYTES: Final = 256 * 1024
"""Charge of a batch. One write of one message costs 14 µs, of 256 of them less than one each."""
FREEING_BYTES: Final = 4 * 1024
"""Charge of a lane's messages from which on a write surely frees memory: the places of a single one take 1.2 KiB."""


class SpillBuffer(MessageCache):
    def __init__(self, holder: Holder, share_bytes: int) -> None:
        """share_bytes: beyond it a batch is written before it is full."""
        super().__init__(holder, share_bytes)
        self._bytes: dict[int, int] = {}
        """Charge of each lane's messages."""
        self._floors: dict[int, int] = {}
        """No message of the lane comes before this sequence."""

    def resize(self, share_bytes: int) -> None:
        """Another share. Nothing is given back: whoever calls writes what is above it."""
        self._share_bytes = share_bytes

    def put(self, lane: int, message: StoredMessage, *, is_moved: bool = False) -> bool:
        """is_moved: its charge was just released elsewhere."""
        messages = self._lanes.get(lane)
        if messages is None:
            return self._put_first(lane, message, is_moved)
        sequence = message[0]
        if sequence in messages:
            return True
        charge = charge_bytes(message)
        if not (self.holder.reserve_again(charge) if is_moved else self.holder.reserve(charge)):
            return False
        if not messages or sequence < self._floors[lane]:
            self._floors[lane] = sequence
        messages[sequence] = message
        self._bytes[lane] += charge
        return True

    def _put_first(self, lane: int, message: StoredMessage, is_moved: bool) -> bool:
        self._lanes[lane] = {}
        self._bytes[lane] = 0
        return self.put(lane, message, is_moved=is_moved)

    def take(self, lane: int, sequence: int) -> StoredMessage | None:
        message = super().take(lane, sequence)
        if message is not None:
            self._bytes[lane] -= charge_bytes(message)
        return message

    def may_have(self, lane: int, last: int) -> bool:
        return bool(self._lanes.get(lane)) and self._floors[lane] <= last

    def forget(self, lane: int) -> None:
        if self._lanes.pop(lane, None) is not None:
            self.holder.release(self._bytes.pop(lane))

    @property
    def lanes(self) -> list[int]:
        return [lane for lane, messages in self._lanes.items() if messages]

    def is_batch(self, lane: int) -> bool:
        """Whether a write is worth it."""
        return len(self._lanes.get(lane, ())) >= BATCH_MESSAGES or self._bytes.get(lane, 0) >= BATCH_BYTES

    def is_freeing(self, lane: int) -> bool:
        """Whether a write surely leaves more memory than the places take."""
        return self._bytes.get(lane, 0) >= FREEING_BYTES

    @property
    def is_full(self) -> bool:
        return self.holder.held_bytes >= self._share_bytes

    def fullest(self) -> int | None:
        """The lane that holds most. O(lanes)."""
        return max(self.lanes, key=self._bytes.__getitem__, default=None)

    def batch(self, lane: int) -> list[StoredMessage]:
        """The lane's first messages in order, as many as one write takes; they stay."""
        messages = self._lanes.get(lane)
        if not messages:
            return []
        if len(messages) <= BATCH_MESSAGES and 2 * self._bytes[lane] <= 3 * BATCH_BYTES:
            return sorted(messages.values())
        found: list[StoredMessage] = []
        room = BATCH_BYTES
        for sequence in sorted(messages)[:BATCH_MESSAGES]:
            message = messages[sequence]
            room -= charge_bytes(message)
            if found and room < 0:
                break
            found.append(message)
        return found

    def drop(self, lane: int, messages: Sequence[StoredMessage]) -> None:
        """They are written."""
        if len(messages) == len(self._lanes[lane]):
            self.forget(lane)
        else:
            for message in messages:
                self.take(lane, message[0])

    def _check(self) -> None:
        super()._check()
        for lane, messages in self._lanes.items():
            assert self._bytes[lane] == sum(map(charge_bytes, messages.values()))
            assert not messages or self._floors[lane] <= min(messages)
