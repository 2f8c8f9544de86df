"""Overflow: non-persistent messages without a place in lists and caches, on their way to tmp-storage.

A pending non-persistent message that is not in tmp-storage is in RAM: in a list, a cache, a load, a delivery, or in the
SpillBuffer here. Code that would drop the last copy of a message hands it over to the Overflow instead. If tmp-storage
takes no message, because it is full or its disk fails, accepted messages stay in the SpillBuffer and are charged there.
New messages are refused then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, cast

from ...store.disk.disk import Disk
from ...store.environment.late_log import LateLogger
from ...store.errors import Closed, SpillFailed, StoreFull
from ...store.numbering import UNLIMITED
from ...store.stored_message import StoredMessage
from ...store.tmp.non_persistent_lane import NonPersistentDueTimes, NonPersistentLane
from ...store.tmp.spilled_message import SpilledMessage, TmpRegion, read_headers, read_regions
from ...store.tmp.storage import TmpStorage, TmpStorageStatistics
from ..accounting import holder_names
from ..accounting.budget import Budget, Holder
from ..accounting.charge import charge_of
from ..accounting.shares import Shares
from ..messages.held_messages import HeldMessages
from .spill_account import ArrivalAccount, OwnedAccount, SpillAccount
from .spill_buffer import FREEING_BYTES, SpillBuffer

logger = LateLogger("forebay.cache.spill")

COMPACTIONS: Final = 16
"""Most steps of rewriting, of 256 KiB each, in one hold of the state lock."""


class Overflow:
    """Keeps and spills non-persistent messages, and is the store of their lanes.

    Every method requires the state lock, except `read` and `read_headers`, which need no lock.
    """

    def __init__(
        self,
        disk: Disk,
        budget: Budget,
        *,
        limit_bytes: int,
        max_file_bytes: int,
        random_salt: Callable[[], int],
        paid_buffer_bytes: int,
        make_room: Callable[[int], object],
        on_space_freed: Callable[[], None] = lambda: None,
    ) -> None:
        """Delete the files of an earlier process in tmp-storage. Raises StoreFailed if they can't be listed.

        paid_buffer_bytes: the part of a write's buffer that is charged for the journal already, because both write
            under the state lock.
        make_room: reclaims memory that less urgent uses hold.
        on_space_freed: called when a file is gone.
        """
        self.budget = budget
        self._room_bytes = 0
        self.account = SpillAccount(budget.holder(holder_names.TMP_STORAGE))
        self._make_room = make_room
        self._arrivals = ArrivalAccount(self.account, make_room)
        self.buffer = SpillBuffer(budget.holder(holder_names.SPILL_BUFFER), 0)
        self.storage = TmpStorage(
            disk,
            self.account,
            limit_bytes=limit_bytes,
            max_file_bytes=max_file_bytes,
            random_salt=random_salt,
            paid_buffer_bytes=paid_buffer_bytes,
            on_space_freed=on_space_freed,
        )
        self.lanes: dict[int, NonPersistentLane] = {}
        self.due_times = NonPersistentDueTimes()
        self._buffers = (self.buffer,)
        # The caches that may hold messages of a lane which are in no list, by lane.
        self._caches: dict[int, tuple[HeldMessages, ...]] = {}
        self.is_closed = False

    def set_shares(self, shares: Shares) -> None:
        """Take over the shares of a memory limit, when the store opens and at each change of the limit."""
        self._room_bytes = shares.spill_room_bytes
        self.buffer.resize(shares.spill_buffer_bytes)
        if self.buffer.is_full:
            self.spill_all()

    def lane(
        self,
        destination: int,
        priority: int,
        caches: Sequence[HeldMessages] = (),
        pool: int | None = None,
        own: Holder | None = None,
    ) -> NonPersistentLane:
        """Make a lane.

        caches: the caches in which its messages may be, besides the SpillBuffer.
        pool: number of the fan-out whose lanes share the messages in the SpillBuffer; None: the lane shares none.
        own: a holder with a reserve, which pays where only the reserve has room; None: there is none.
        """
        arrivals = self._arrivals
        lane = NonPersistentLane(arrivals if own is None else OwnedAccount(own, arrivals), destination, priority)
        self.lanes[lane.number] = lane
        self._caches[lane.number] = (*caches, self.buffer)
        if pool is None:
            self.account.refill()
        else:
            lane.pool_number = pool
            self.buffer.join(lane.number, pool)
            self.account.hold_for(self.buffer.sharing_lanes_max)
        return lane

    def caches_of(self, lane: NonPersistentLane) -> tuple[HeldMessages, ...]:
        """Return the caches that may hold messages of a lane which are in no list."""
        return self._caches[lane.number]

    # ------------------------------------------------------------------ taking in

    def take_in(self, lane: NonPersistentLane, message: StoredMessage) -> None:
        """Keep an arrival that has no other place. StoreFull or SpillFailed: nothing has changed."""
        number, account = lane.number, self.account
        # ensure_room begins with this too; here it is written inline
        if self.buffer.is_batch(lane.pool_number) or self.buffer.is_full:
            self._relieve(lane)
        if not (account.is_whole or account.secure_last()) or not self.buffer.put(number, message):
            if not self.ensure_room(lane, message, charge_of(message)):
                kept = self.buffer.put(number, message)
                assert kept, "an admitted message finds room"

    def ensure_room(self, lane: NonPersistentLane, message: StoredMessage, charge: int) -> bool:
        """Make sure that an arrival can be kept: spill it, or make room for it in the SpillBuffer. StoreFull or
        SpillFailed: neither is possible.

        Return whether it was spilled. charge: that of the message.
        """
        if self.buffer.is_batch(lane.pool_number) or self.buffer.is_full:
            self._relieve(lane)
        account = self.account
        is_secured = account.is_whole or (account.secure_last() and not account.missing_bytes)
        if is_secured and self.budget.free_bytes >= charge:
            return False
        if self.buffer.peek(lane.pool_number, message[0]) is not None:  # another lane of the pool pays for it
            return False
        self._make_room(max(charge + self.account.missing_bytes + self.account.lent_bytes, self._room_bytes))
        self.account.refill()
        if self.budget.free_bytes >= charge:
            return False
        if not self.account.secure_last():
            raise StoreFull(charge, 0, "memory_limit")
        self.storage.spill((lane.number,), _whole((message,)))
        lane.spilled(message[0], message[0])
        return True

    def _relieve(self, lane: NonPersistentLane) -> None:
        """Spill a batch of the lane, or of the fullest lane."""
        fullest = lane.pool_number if self.buffer.is_batch(lane.pool_number) else self.buffer.fullest()
        if fullest is not None:
            self._spill_batch(fullest)

    def keep(self, lane: NonPersistentLane, messages: Sequence[StoredMessage]) -> None:
        """Take messages that lists or caches drop, with their charge. Keep those that are in no file, and spill a full
        batch.
        """
        if self.is_closed:
            return
        buffer, number = self.buffer, lane.number
        for message in messages:
            sequence = message[0]
            if message[2] is not None and lane.is_pending(sequence) and not lane.is_spilled(sequence):
                if not buffer.put(number, message, is_moved=True):
                    self.account.give_ahead()  # a refill has taken the memory that the message released
                    kept = buffer.put(number, message, is_moved=True)
                    assert kept, "what was just released can be reserved again"
        if buffer.is_batch(lane.pool_number):
            self.spill(lane)

    def spill(self, lane: NonPersistentLane) -> bool:
        """Spill all waiting messages of a lane and of the lanes that share with it.

        Return whether tmp-storage took them.
        """
        return self._spill_lane(lane.pool_number)

    def spill_waiting(self, lane: NonPersistentLane) -> None:
        """Spill waiting messages of a lane because memory is needed, unless spilling may take more than it frees."""
        if self.budget.free_bytes >= FREEING_BYTES or self.buffer.is_freeing(lane.pool_number):
            self.spill(lane)

    def spill_until_free(self, wanted_bytes: int) -> None:
        """Spill waiting messages, fullest lanes first, until `wanted_bytes` are free or spilling would free nothing."""
        buffer, budget = self.buffer, self.budget
        while budget.free_bytes < wanted_bytes:
            key = buffer.fullest()
            if key is None or not buffer.is_freeing(key):
                return
            waited_bytes = buffer.holder.held_bytes
            if not self._spill_lane(key) or buffer.holder.held_bytes == waited_bytes:
                return

    @property
    def could_give_bytes(self) -> int:
        """Bytes that `spill_until_free` would spill if tmp-storage takes them; 0 if that would free no memory."""
        key = self.buffer.fullest()
        return self.buffer.holder.held_bytes if key is not None and self.buffer.is_freeing(key) else 0

    def spill_all(self) -> None:
        """Spill all waiting messages, as far as tmp-storage takes them."""
        for key in self.buffer.keys:
            if not self._spill_lane(key):
                return

    def spill_arriving(self) -> None:
        """Spill all waiting messages, even one that some lanes have not got yet, if nothing else frees memory."""
        self.buffer.arriving = None
        self.spill_all()

    def _spill_lane(self, key: int) -> bool:
        try:
            while self._spill_batch(key):
                pass
        except (StoreFull, SpillFailed) as error:
            logger.debug("kept in RAM: %s", error, event="not_spilled")
            return False
        return True

    def _spill_batch(self, key: int) -> bool:
        """Spill one batch; return whether there was one. If tmp-storage refuses it, nothing has changed."""
        buffer = self.buffer
        batch = buffer.batch(key)
        if not batch:
            return False
        waited_bytes = buffer.holder.held_bytes
        borrowed_bytes = self.account.borrow() if buffer.is_freeing(key) else 0
        try:
            if buffer.is_pool(key):
                self._spill_pool_batch(key, batch)
            else:
                lane = self.lanes[key]
                runs = lane.only_in_ram(batch)
                fresh = runs[0] if len(runs) == 1 else [message for run in runs for message in run]
                self.storage.spill((key,), _whole(fresh))
                for run in runs:
                    lane.spilled(run[0][0], run[-1][0])
            buffer.remove_written(key, batch)
        finally:
            owed_bytes = self.account.repay(borrowed_bytes)
        self.account.refill_from(max(waited_bytes - buffer.holder.held_bytes - owed_bytes, 0))
        return True

    def _spill_pool_batch(self, pool: int, batch: list[StoredMessage]) -> None:
        """Spill a batch of a pool: each message once, for all lanes that need it."""
        needing = self.buffer.lanes_needing(pool, batch)
        held: list[tuple[NonPersistentLane, Sequence[StoredMessage]]] = []
        for number, bits in needing:
            lane = self.lanes[number]
            runs = lane.only_in_ram([message for at, message in enumerate(batch) if bits >> at & 1])
            assert sum(map(len, runs)) == bits.bit_count(), "what waits is pending, and nowhere else"
            held += [(lane, run) for run in runs]
        self.storage.spill([number for number, _ in needing], _whole(batch), [bits for _, bits in needing])
        for lane, run in held:
            lane.spilled(run[0][0], run[-1][0])

    # ------------------------------------------------------------------ removing

    def acknowledge(self, lane: NonPersistentLane, first: int, last: int) -> int:
        """Acknowledge a run; return how many of its messages were pending. Nothing is written."""
        removed, spilled = lane.remove(first, last)
        if spilled:
            self.storage.remove(lane.number, first, last)
        for cache in self._caches[lane.number] if lane.is_copied else self._buffers:
            if cache.may_have(lane.number, last):
                cache.discard_run(lane.number, first, last)
        return removed

    def acknowledge_one(self, lane: NonPersistentLane, sequence: int) -> int:
        """Acknowledge one message. Every single ack takes this path."""
        removed, spilled = lane.remove_one(sequence)
        if spilled:
            self.storage.remove(lane.number, sequence, sequence)
        if lane.is_copied or self.buffer.holder.held_bytes:
            for cache in self._caches[lane.number]:
                cache.take(lane.number, sequence)
        return removed

    def remove_lane(self, lane: NonPersistentLane) -> None:
        """Remove a lane with all its messages."""
        self.storage.remove_owner(lane.number)
        shares_messages = self.buffer.shares_messages(lane.number)
        self.buffer.discard_lane(lane.number)
        if shares_messages:
            self.account.hold_for(self.buffer.sharing_lanes_max)
        lane.close()
        del self.lanes[lane.number], self._caches[lane.number]

    # ------------------------------------------------------------------ reading

    def plan(self, lane: NonPersistentLane, runs: Sequence[tuple[int, int]]) -> list[TmpRegion]:
        """Return how to read messages from tmp-storage. Messages that are only in RAM are left out. Raises Closed."""
        if self.is_closed:
            raise Closed("the store")
        return self.storage.plan(lane.number, runs, most_messages=UNLIMITED, most_bytes=UNLIMITED).regions

    def read(
        self, regions: Sequence[TmpRegion], judge: object = None
    ) -> tuple[list[StoredMessage], list[tuple[int, str]]]:
        """Read planned messages; return them, and the sequences that could not be read with the reason.

        No lock is needed. judge: not used, because messages in tmp-storage are judged after the read.
        """
        return read_regions(regions)

    def read_headers(
        self, region: TmpRegion, pay: Callable[[int], None]
    ) -> tuple[list[StoredMessage], list[tuple[int, str]]]:
        """Read the one message of a region as `read` does, in pieces and with an empty body. No lock is needed.

        pay: see tmp.spilled_message.read_headers.
        """
        return read_headers(region, pay)

    # ------------------------------------------------------------------ maintenance

    def compact(self) -> int:
        """Rewrite live messages to free the space between them, in a few steps; return the number of steps."""
        done = 0
        while done < COMPACTIONS and self.storage.compact() is not None:
            done += 1
        return done

    def close(self) -> None:
        """Drop all messages and delete the files."""
        self.is_closed = True
        for number in self.lanes:
            self.buffer.discard_lane(number)
        self.storage.close()

    @property
    def statistics(self) -> TmpStorageStatistics:
        return self.storage.statistics

    def audit(self) -> dict[str, int]:
        """Return what the holders' charges should be, computed anew."""
        lanes_bytes = sum(lane.charge_bytes for lane in self.lanes.values())
        kept_bytes = self.account.ahead_bytes + self.account.last_bytes
        return {
            holder_names.SPILL_BUFFER: self.buffer.audit(),
            holder_names.TMP_STORAGE: self.storage.charge_bytes + lanes_bytes + kept_bytes,
        }

    def _check(self) -> None:
        self.buffer._check()
        self.storage._check()
        for lane in self.lanes.values():
            lane._check()


def _whole(messages: Sequence[StoredMessage]) -> Sequence[SpilledMessage]:
    """Return the same messages, typed as messages with bodies. The SpillBuffer has no others."""
    return cast("Sequence[SpilledMessage]", messages)
