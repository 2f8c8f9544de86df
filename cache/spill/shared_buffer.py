"""SharedSpillBuffer: the SpillBuffer, where lanes of one fan-out share what waits in it.

Such lanes number their messages alike. What several of them have no room for
is here once, charged once, with a bit for each lane that still needs it, and
goes with the last of them. All other lanes are as in a SpillBuffer.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...store.journal.reading import StoredMessage
from ..budget import Holder
from .buffer import SpillBuffer


class Pool:
    """The lanes of one fan-out, and who of them needs which message."""

    __slots__ = ("number", "lanes", "every", "needed")

    def __init__(self, number: int) -> None:
        self.number = number
        """Stands for the lanes: no lane has it."""
        self.lanes: dict[int, int] = {}
        """The bit of each."""
        self.every = 0
        """All these bits."""
        self.needed: dict[int, int] = {}
        """By sequence, the bits of the lanes that need the message."""

    def join(self, lane: int) -> None:
        bit = self.lanes[lane] = ~self.every & self.every + 1
        self.every |= bit

    def leave(self, lane: int) -> int:
        bit = self.lanes.pop(lane)
        self.every ^= bit
        return bit


class SharedSpillBuffer(SpillBuffer):
    """Where a method names a `key`, that is a lane on its own or the number of a pool."""

    def __init__(self, holder: Holder, share_bytes: int) -> None:
        super().__init__(holder, share_bytes)
        self._pools: dict[int, Pool] = {}
        """By number."""
        self._pool_of: dict[int, Pool] = {}
        """By lane."""
        self.arriving: tuple[int, int] | None = None
        """Pool and sequence of the message that its lanes are just getting: it waits until all have it."""

    # ------------------------------------------------------------------ lanes that share

    def join(self, lane: int, number: int) -> None:
        """A lane shares with others from now on. number: of the pool; no lane has it."""
        pool = self._pools.get(number)
        if pool is None:
            pool = self._pools[number] = Pool(number)
        pool.join(lane)
        self._pool_of[lane] = pool

    @property
    def sharing_lanes_max(self) -> int:
        """How many lanes a batch may be for. O(pools)."""
        return max((len(pool.lanes) for pool in self._pools.values()), default=1)

    def is_shared(self, lane: int) -> bool:
        return lane in self._pool_of

    def is_pool(self, key: int) -> bool:
        return key in self._pools

    # ------------------------------------------------------------------ as any cache

    def _put_first(self, lane: int, message: StoredMessage, is_moved: bool) -> bool:
        """Of a lane that shares it is always the first: its pool has the others."""
        pool = self._pool_of.get(lane)
        if pool is None:
            return super()._put_first(lane, message, is_moved)
        needed = pool.needed.get(message[0], 0)
        if not needed and not self.put(pool.number, message, is_moved=is_moved):
            return False
        pool.needed[message[0]] = needed | pool.lanes[lane]
        return True

    def take(self, lane: int, sequence: int) -> StoredMessage | None:
        pool = self._pool_of.get(lane)
        if pool is None:
            return super().take(lane, sequence)
        message = self.peek(lane, sequence)
        if message is not None:
            needed = pool.needed[sequence] & ~pool.lanes[lane]
            if needed:
                pool.needed[sequence] = needed
            else:
                self._let_go(pool, sequence)
        return message

    def _let_go(self, pool: Pool, sequence: int) -> None:
        del pool.needed[sequence]
        super().take(pool.number, sequence)

    def peek(self, lane: int, sequence: int) -> StoredMessage | None:
        pool = self._pool_of.get(lane)
        if pool is None:
            return super().peek(lane, sequence)
        return super().peek(pool.number, sequence) if pool.needed.get(sequence, 0) & pool.lanes[lane] else None

    def has(self, lane: int) -> bool:
        pool = self._pool_of.get(lane)
        if pool is None:
            return super().has(lane)
        return any(needed & pool.lanes[lane] for needed in pool.needed.values())

    def may_have(self, lane: int, last: int) -> bool:
        pool = self._pool_of.get(lane)
        return super().may_have(lane if pool is None else pool.number, last)

    def forget(self, lane: int) -> None:
        """The lane has ended. O(messages of its pool here)."""
        pool = self._pool_of.pop(lane, None)
        if pool is None:
            super().forget(lane)
            return
        bit = pool.leave(lane)
        for sequence, needed in list(pool.needed.items()):
            if needed == bit:
                self._let_go(pool, sequence)
            else:
                pool.needed[sequence] = needed & ~bit
        if not pool.lanes:
            del self._pools[pool.number]

    # ------------------------------------------------------------------ batches

    def batch(self, key: int) -> list[StoredMessage]:
        """As SpillBuffer.batch; the message that is just arriving is left out."""
        batch = super().batch(key)
        if batch and self.arriving == (key, batch[-1][0]):
            batch.pop()
        return batch

    def holders(self, number: int, batch: Sequence[StoredMessage]) -> list[tuple[int, int]]:
        """The lanes of a pool that need something of a batch, each with a bit for each message of it."""
        pool = self._pools[number]
        alike: dict[int, int] = {}
        for at, message in enumerate(batch):
            needed = pool.needed[message[0]]
            alike[needed] = alike.get(needed, 0) | 1 << at
        found = (
            (lane, sum(bits for needed, bits in alike.items() if needed & bit)) for lane, bit in pool.lanes.items()
        )
        return [(lane, bits) for lane, bits in found if bits]

    def drop(self, key: int, messages: Sequence[StoredMessage]) -> None:
        pool = self._pools.get(key)
        if pool is None:
            super().drop(key, messages)
            return
        for message in messages:
            self._let_go(pool, message[0])

    def _check(self) -> None:
        super()._check()
        assert self._pool_of == {lane: pool for pool in self._pools.values() for lane in pool.lanes}
        for number, pool in self._pools.items():
            assert number == pool.number and pool.lanes
            assert pool.every == sum(pool.lanes.values()) and pool.every.bit_count() == len(pool.lanes)
            assert pool.needed.keys() == self._lanes.get(number, {}).keys()
            assert all(needed and not needed & ~pool.every for needed in pool.needed.values())
