"""StagedSlices: the persistent messages that a transaction sends. No consumer gets them before the commit.

Messages are gathered in RAM until a slice of their lane is full, and then written. At the commit, messages that are
still in RAM arrive as messages that were just sent. Messages that are only in the journal arrive as places. After a
crash, a slice without a commit has no effect.
"""

from __future__ import annotations

from typing import Final

from ...store.format.branch import Branch
from ...store.format.contents import Contents
from ...store.format.record import SLICE_CONTENT_BYTES_MAX, SLICE_MESSAGES_MAX
from ...store.format.times import has_times
from ...store.writers.transaction_writer import TransactionWriter
from ..core.lanes.persistent_lane_state import PersistentLaneState
from ..core.publisher import Publisher
from ..core.redelivery.timed_lanes import TimedLanes
from .transaction_memory import TransactionMemory

SLICE_CHARGE_BYTES: Final = 192
"""Charged for the place of a slice, and for its part of the commit record while that is written."""
GATHERED_CHARGE_BYTES: Final = 192
"""Charged for a gathered message in addition to its content: the tuple, the object headers, a slot."""
GATHERED_BYTES_MAX: Final = 1 << 20
"""Most bytes that one transaction gathers in RAM. Beyond it, slices are written before they are full."""
TIMESTAMP_SPREAD_MS: Final = 1_000
"""All messages of a slice get the timestamp of the first one, so a slice has only messages sent within this time."""


class _Gathered:
    """Messages of one lane that become one slice."""

    __slots__ = ("lane", "timestamp", "contents", "content_bytes", "position", "lengths", "is_timed")

    def __init__(self, lane: PersistentLaneState, timestamp: int) -> None:
        self.lane = lane
        self.timestamp = timestamp
        self.contents = Contents([], [])
        self.content_bytes = 0
        # Position of the slice in the journal, once it is written.
        self.position = 0
        self.lengths: list[int] = []
        # Whether messages have a delay or an expiry.
        self.is_timed = False

    @property
    def charge_bytes(self) -> int:
        return self.content_bytes + GATHERED_CHARGE_BYTES * len(self.contents)


class StagedSlices:
    """The persistent messages of a transaction: gathered in RAM, written as slices, published by the commit.

    The state lock guards it. Every method requires the state lock.
    """

    def __init__(
        self,
        transaction_writer: TransactionWriter,
        publisher: Publisher,
        timed: TimedLanes,
        memory: TransactionMemory,
        branch: Branch,
    ) -> None:
        """Make the persistent messages of one transaction, with none yet."""
        self._transaction_writer = transaction_writer
        self._publisher = publisher
        self._timed = timed
        self._memory = memory
        self._branch = branch
        # The lanes to which the transaction sends, by number.
        self.lanes: dict[int, PersistentLaneState] = {}
        self._gathered: dict[PersistentLaneState, _Gathered] = {}
        # Charge of messages in RAM.
        self.charge_bytes = 0
        # Slices that a commit has written and that are still in RAM because they are about to arrive.
        self._written: list[_Gathered] = []

    def add(
        self,
        lane: PersistentLaneState,
        timestamp: int,
        properties: bytes,
        body: bytes,
        spread_ms: int = TIMESTAMP_SPREAD_MS,
    ) -> None:
        """Gather one message; write older messages if it does not fit beside them. StoreFull: it is not added.

        spread_ms: most milliseconds between the timestamp of its slice, which it gets, and its own timestamp.
        """
        size = len(properties) + len(body)
        self.lanes[lane.pending_lane.number] = lane
        gathered = self._gathered.get(lane)
        if gathered is not None and (
            len(gathered.contents) >= SLICE_MESSAGES_MAX
            or gathered.content_bytes + size > SLICE_CONTENT_BYTES_MAX
            or not 0 <= timestamp - gathered.timestamp <= spread_ms
        ):
            self._write(gathered)
            gathered = None
        charge = size + GATHERED_CHARGE_BYTES
        if gathered is None:
            charge += SLICE_CHARGE_BYTES  # charged now, because a commit must not fail for want of memory
        if self.charge_bytes + charge > GATHERED_BYTES_MAX or not self._memory.reserve(charge):
            # No room to gather more: write the older messages first.
            self.write_all()
            alone = _Gathered(lane, timestamp)
            alone.contents.append(properties, body)
            alone.is_timed = has_times(properties)
            with self._memory.charged_sent(SLICE_CHARGE_BYTES):
                self._write_slice(alone)
            return
        if gathered is None:
            gathered = self._gathered[lane] = _Gathered(lane, timestamp)
        gathered.contents.append(properties, body)
        gathered.is_timed = gathered.is_timed or has_times(properties)
        gathered.content_bytes += size
        self.charge_bytes += charge

    def write_all(self, *, keeps: bool = False) -> None:
        """Write all gathered messages.

        StoreFull: slices that are written stay written. keeps: keep the messages in RAM, because they arrive next.
        """
        for gathered in list(self._gathered.values()):
            self._write(gathered, keeps=keeps)

    def _write(self, gathered: _Gathered, *, keeps: bool = False) -> None:
        self._write_slice(gathered)
        del self._gathered[gathered.lane]
        self.charge_bytes -= SLICE_CHARGE_BYTES  # from now on the transaction pays this for the place
        if keeps:
            self._written.append(gathered)
        else:
            self._release(gathered)

    def _write_slice(self, gathered: _Gathered) -> None:
        """Write one gathered slice. Requires: its place is charged."""
        branch = self._branch
        gathered.lengths = self._transaction_writer.append_slice(
            branch,
            gathered.lane.destination_lane,
            gathered.timestamp,
            gathered.contents,
            is_timed=gathered.is_timed,
        )
        gathered.position = branch.last_position

    def _release(self, gathered: _Gathered) -> None:
        self._memory.release(gathered.charge_bytes)
        self.charge_bytes -= gathered.charge_bytes

    @property
    def written_lengths(self) -> dict[int, list[int]]:
        """The lengths of the messages of each slice that arrives next from RAM, by position in the journal."""
        return {written.position: written.lengths for written in self._written}

    def publish(self) -> None:
        """Publish the messages of a committed transaction.

        Messages in RAM arrive as if just sent; messages in the journal alone arrive as places.
        """
        written = {gathered.position: gathered for gathered in self._written}
        unloaded: dict[PersistentLaneState, range] = {}
        lane: PersistentLaneState | None = None
        for number, first, position, messages, is_timed in self._branch.committed():
            if lane is None or lane.pending_lane.number != number:
                lane = self.lanes[number]
            gathered = written.get(position)
            if is_timed:
                self._timed.note(lane)
                if gathered is not None:
                    self._release(gathered)
            if gathered is None or is_timed:
                known = unloaded.get(lane)
                unloaded[lane] = range(first if known is None else known.start, first + messages)
                continue
            if lane in unloaded:
                self._publisher.publish_when_durable(lane, unloaded.pop(lane))
            self._release(gathered)
            self._publisher.publish_when_durable(
                lane,
                gathered.contents.arrived(first, gathered.timestamp),
            )
        for lane, sequences in unloaded.items():
            self._publisher.publish_when_durable(lane, sequences)
        self._written.clear()

    def leave_ram(self) -> None:
        """Drop written messages from RAM, because they wait for their outcome in the journal."""
        for written in self._written:
            self._release(written)
        self._written.clear()

    def finish(self) -> None:
        """Drop all messages in RAM, because the transaction has ended and they will never arrive."""
        self._memory.release(self.charge_bytes)
        self.charge_bytes = 0
        self._gathered.clear()
        self._written.clear()
        self.lanes.clear()

    @property
    def counted_bytes(self) -> int:
        """What `charge_bytes` should be, computed from the messages in RAM. O(messages in RAM)."""
        lengths = [
            length for found in (*self._gathered.values(), *self._written) for length in found.contents.lengths()
        ]
        return sum(lengths) + GATHERED_CHARGE_BYTES * len(lengths) + SLICE_CHARGE_BYTES * len(self._gathered)
