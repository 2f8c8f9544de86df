"""SpillBuffer: gather non-persistent messages that have no other place in RAM, until there are enough for a write.

The buffer has the only copy of each message. A message that is needed meanwhile is taken from here and never written.

Lanes of one fan-out use the same sequences and share waiting messages. Such a message is here once and charged once. A
mask says which lanes still need it, and it leaves with the last of them. The messages wait under a `key`: the number of
a lane that shares with no other, or of the pool of the lanes that share.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ...store.stored_message import StoredMessage
from ..accounting.budget import Holder
from ..accounting.charge import charge_of
from ..messages.held_messages import HeldMessages

BATCH_MESSAGES: Final = 256
BATCH_BYTES: Final = 256 * 1024
"""Charge of a batch. One write costs much more than one message, so a write should have many messages."""
FREEING_BYTES: Final = 4 * 1024
"""With this charge or more of one key, a write surely frees memory. The places of a single message take 1.2 KiB."""


class FanOutPool:
    """The lanes of one fan-out, and which of them need which message."""

    __slots__ = ("number", "lanes", "every", "needed")

    def __init__(self, number: int) -> None:
        # Number of the pool; no lane has it.
        self.number = number
        # The bit of each lane.
        self.lanes: dict[int, int] = {}
        # The bits of all lanes.
        self.every = 0
        # By sequence, the bits of the lanes that need the message.
        self.needed: dict[int, int] = {}

    def join(self, lane_number: int) -> None:
        """Give a lane the lowest free bit."""
        bit = self.lanes[lane_number] = ~self.every & self.every + 1
        self.every |= bit

    def leave(self, lane_number: int) -> int:
        """Take back the lane's bit and return it."""
        bit = self.lanes.pop(lane_number)
        self.every ^= bit
        return bit


class SpillBuffer(HeldMessages):
    """Messages by (key, sequence), and the lanes that need each of them. The state lock guards it."""

    def __init__(self, holder: Holder, share_bytes: int) -> None:
        """Make it empty. share_bytes: if the buffer holds so much, batches are written before they are full."""
        super().__init__(holder, share_bytes)
        # Charge of the messages of each key.
        self._bytes: dict[int, int] = {}
        # For each key, a sequence that is not above any of its messages.
        self._floors: dict[int, int] = {}
        self._pools: dict[int, FanOutPool] = {}
        self._pool_of: dict[int, FanOutPool] = {}
        # Pool and sequence of the message that the lanes of a pool are getting now. It is in no batch until all have
        # it.
        self.arriving: tuple[int, int] | None = None

    def resize(self, share_bytes: int) -> None:
        """Set the share. Nothing is given back: the caller writes messages above it."""
        self._share_bytes = share_bytes

    # ------------------------------------------------------------------ lanes that share

    def join(self, lane_number: int, pool_number: int) -> None:
        """Let a lane share messages with the other lanes of a pool. pool_number: a number that no lane has."""
        pool = self._pools.get(pool_number)
        if pool is None:
            pool = self._pools[pool_number] = FanOutPool(pool_number)
        pool.join(lane_number)
        self._pool_of[lane_number] = pool

    @property
    def sharing_lanes_max(self) -> int:
        """The number of lanes of the largest pool, at least 1. O(pools)."""
        return max((len(pool.lanes) for pool in self._pools.values()), default=1)

    def shares_messages(self, lane_number: int) -> bool:
        return lane_number in self._pool_of

    def is_pool(self, key: int) -> bool:
        """Return whether the key is the number of a pool."""
        return key in self._pools

    # ------------------------------------------------------------------ messages of a lane

    def put(self, lane_number: int, message: StoredMessage, *, is_moved: bool = False) -> bool:
        """Keep the message for the lane if there is room. is_moved: another holder has just released its charge."""
        messages = self._lanes.get(lane_number)
        sequence = message[0]
        if messages is None:
            pool = self._pool_of.get(lane_number)
            if pool is not None:
                return self._put_shared(pool, lane_number, message, is_moved=is_moved)
        elif sequence in messages:
            return True
        charge = charge_of(message)
        if not (self.holder.reserve_released(charge) if is_moved else self.holder.reserve(charge)):
            return False
        if messages is None:
            messages = self._lanes[lane_number] = {}
            self._bytes[lane_number] = 0
            self._floors[lane_number] = sequence
        elif sequence < self._floors[lane_number]:
            self._floors[lane_number] = sequence
        messages[sequence] = message
        before_bytes = self._bytes[lane_number]
        held_bytes = self._bytes[lane_number] = before_bytes + charge
        if held_bytes ^ before_bytes > before_bytes:  # its length has one bit more
            self._lanes_by_amount.note_amount(lane_number, held_bytes)
        return True

    def _put_shared(self, pool: FanOutPool, lane_number: int, message: StoredMessage, *, is_moved: bool) -> bool:
        needed = pool.needed.get(message[0], 0)
        if not needed and not self.put(pool.number, message, is_moved=is_moved):
            return False
        pool.needed[message[0]] = needed | pool.lanes[lane_number]
        return True

    def take(self, lane_number: int, sequence: int) -> StoredMessage | None:
        """Return the message, which leaves the buffer unless another lane needs it. None: it is not here."""
        pool = self._pool_of.get(lane_number)
        if pool is None:
            return self._remove(lane_number, sequence)
        message = self.peek(lane_number, sequence)
        if message is not None:
            needed = pool.needed[sequence] & ~pool.lanes[lane_number]
            if needed:
                pool.needed[sequence] = needed
            else:
                self._remove_shared(pool, sequence)
        return message

    def _remove(self, key: int, sequence: int) -> StoredMessage | None:
        message = super().peek(key, sequence)
        if message is not None:
            self._bytes[key] -= charge_of(message)
            super().take(key, sequence)
        return message

    def _remove_shared(self, pool: FanOutPool, sequence: int) -> None:
        del pool.needed[sequence]
        self._remove(pool.number, sequence)

    def peek(self, lane_number: int, sequence: int) -> StoredMessage | None:
        pool = self._pool_of.get(lane_number)
        if pool is None:
            return super().peek(lane_number, sequence)
        return super().peek(pool.number, sequence) if pool.needed.get(sequence, 0) & pool.lanes[lane_number] else None

    def has(self, lane_number: int) -> bool:
        pool = self._pool_of.get(lane_number)
        if pool is None:
            return super().has(lane_number)
        return any(needed & pool.lanes[lane_number] for needed in pool.needed.values())

    def may_have(self, lane_number: int, last: int) -> bool:
        pool = self._pool_of.get(lane_number)
        key = lane_number if pool is None else pool.number
        return bool(self._lanes.get(key)) and self._floors[key] <= last

    def _messages_for(self, lane_number: int) -> dict[int, StoredMessage]:
        pool = self._pool_of.get(lane_number)
        return super()._messages_for(lane_number if pool is None else pool.number)

    def discard_lane(self, lane_number: int) -> None:
        """Drop messages that only this lane needs, and let the lane leave its pool. O(messages of its pool here)."""
        pool = self._pool_of.pop(lane_number, None)
        if pool is None:
            self._clear(lane_number)
            return
        bit = pool.leave(lane_number)
        for sequence, needed in list(pool.needed.items()):
            if needed == bit:
                self._remove_shared(pool, sequence)
            else:
                pool.needed[sequence] = needed & ~bit
        if not pool.lanes:
            del self._pools[pool.number]

    def _clear(self, key: int) -> None:
        if key in self._lanes:
            self.holder.release(self._bytes[key])
            self._leave(key)

    def _leave(self, key: int) -> None:
        super()._leave(key)
        del self._bytes[key], self._floors[key]

    def _amount_of(self, lane_number: int) -> int:
        return self._bytes[lane_number]

    # ------------------------------------------------------------------ batches of a key

    @property
    def keys(self) -> list[int]:
        """The keys with messages. O(keys)."""
        return list(self._lanes)

    def is_batch(self, key: int) -> bool:
        """Return whether the key has enough messages for a write."""
        return len(self._lanes.get(key, ())) >= BATCH_MESSAGES or self._bytes.get(key, 0) >= BATCH_BYTES

    def is_freeing(self, key: int) -> bool:
        """Return whether a write surely frees more memory than the places of the written messages take."""
        return self._bytes.get(key, 0) >= FREEING_BYTES

    @property
    def is_full(self) -> bool:
        """Whether the buffer holds its share."""
        return self.holder.held_bytes >= self._share_bytes

    def fullest(self) -> int | None:
        """Return a key whose messages have more than half the charge of those of any other key. None: no messages."""
        return self._lanes_by_amount.fullest()

    def batch(self, key: int) -> list[StoredMessage]:
        """Return the first messages of a key in order, as many as one write takes. They stay in the buffer.

        The message that the lanes of a pool are getting now is left out.
        """
        messages = self._lanes.get(key)
        if not messages:
            return []
        if len(messages) <= BATCH_MESSAGES and 2 * self._bytes[key] <= 3 * BATCH_BYTES:
            of_batch = sorted(messages.values())
        else:
            of_batch = self._first_messages(messages)
        if self.arriving == (key, of_batch[-1][0]):
            of_batch.pop()
        return of_batch

    def _first_messages(self, messages: dict[int, StoredMessage]) -> list[StoredMessage]:
        batch: list[StoredMessage] = []
        room = BATCH_BYTES
        for sequence in sorted(messages)[:BATCH_MESSAGES]:
            message = messages[sequence]
            room -= charge_of(message)
            if batch and room < 0:
                break
            batch.append(message)
        return batch

    def lanes_needing(self, number: int, batch: Sequence[StoredMessage]) -> list[tuple[int, int]]:
        """Return the lanes of a pool that need messages of a batch, each with a mask of the messages that it needs."""
        pool = self._pools[number]
        alike: dict[int, int] = {}
        for at, message in enumerate(batch):
            needed = pool.needed[message[0]]
            alike[needed] = alike.get(needed, 0) | 1 << at
        bits_by_lane = (
            (lane_number, sum(bits for needed, bits in alike.items() if needed & bit))
            for lane_number, bit in pool.lanes.items()
        )
        return [(lane_number, bits) for lane_number, bits in bits_by_lane if bits]

    def remove_written(self, key: int, messages: Sequence[StoredMessage]) -> None:
        """Drop messages of a key that were written."""
        pool = self._pools.get(key)
        if pool is not None:
            for message in messages:
                self._remove_shared(pool, message[0])
        elif len(messages) == len(self._lanes[key]):
            self._clear(key)
        else:
            for message in messages:
                self._remove(key, message[0])

    def _check(self) -> None:
        super()._check()
        for key, messages in self._lanes.items():
            assert self._bytes[key] == sum(map(charge_of, messages.values()))
            assert self._floors[key] <= min(messages)
        assert self._bytes.keys() == self._floors.keys() == self._lanes.keys()
        assert self._pool_of == {lane_number: pool for pool in self._pools.values() for lane_number in pool.lanes}
        for number, pool in self._pools.items():
            assert number == pool.number and pool.lanes
            assert pool.every == sum(pool.lanes.values()) and pool.every.bit_count() == len(pool.lanes)
            assert pool.needed.keys() == self._lanes.get(number, {}).keys()
            assert all(needed and not needed & ~pool.every for needed in pool.needed.values())
