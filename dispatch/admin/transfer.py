"""LaneTransfer: move messages from one lane to another with one commit record.

After any crash each message is in exactly one of the two lanes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from ...store.errors import ForebayError
from ...store.format.branch import Branch
from ...store.format.contents import Contents
from ...store.format.record import SLICE_CONTENT_BYTES_MAX
from ...store.format.times import has_times
from ...store.index.delivery_counts import DeliveryCountTable
from ...store.numbering import BLOCK_MESSAGES
from ...store.state.branches import Branches
from ...store.stored_message import StoredMessage
from ...store.structures.sequence_set import SequenceSet
from ...store.writers.transaction_writer import TransactionWriter
from ..core.lanes.persistent_lane_state import PersistentLaneState
from ..core.model.destination import LaneState
from ..core.publisher import Publisher
from ..core.redelivery.removal import Removals
from ..core.redelivery.timed_lanes import TimedLanes

BATCH_BLOCKS: Final = 3
"""Most blocks of the index that a batch makes dirty: one in the old queue, two in the new one."""


class LaneTransfer:
    """Moves messages between lanes of persistent messages. The state lock guards it."""

    def __init__(
        self,
        *,
        transaction_writer: TransactionWriter,
        branches: Branches,
        delivery_count_table: DeliveryCountTable,
        publisher: Publisher,
        removals: Removals,
        timed: TimedLanes,
        slice_messages_max: int,
    ) -> None:
        """slice_messages_max: most messages that are moved in one slice."""
        self._transaction_writer = transaction_writer
        self._branches = branches
        self._delivery_count_table = delivery_count_table
        self._publisher = publisher
        self._removals = removals
        self._timed = timed
        self._slice_messages_max = slice_messages_max

    def commit(self, lane: LaneState, target: PersistentLaneState, messages: list[StoredMessage]) -> None:
        """Move all these messages, or none of them. Requires: the lock, and that an interruption breaks it."""
        writer = self._transaction_writer
        gone = _runs_of(messages)
        is_recorded = self._delivery_count_table.is_recorded(lane.pending_lane.number)
        branch = writer.begin()
        try:
            written = self._write(branch, target, messages)
            for first, last in gone if is_recorded else ():
                branch.acknowledge(lane.pending_lane.number, first, last)
            writer.commit(branch, {position: lengths for position, lengths, _ in written})
        except ForebayError:
            with suppress(ForebayError):  # without the record, recovery rolls the branch back
                writer.rollback(branch)
            self._branches.forget(branch.number)
            raise
        for first, last in gone if not is_recorded else ():
            # The lane is that of a subscription without a name, which has no records.
            lane.backing_store.acknowledge(lane.pending_lane, first, last)
        self._removals.forget(lane, gone)
        for placed, (_, _, part) in zip(branch.committed(), written, strict=True):
            if placed.is_timed:
                self._timed.note(target)
                self._publisher.publish_when_durable(target, range(placed.first, placed.first + placed.messages))
            else:
                self._publisher.publish_when_durable(
                    target, [(sequence, *message[1:]) for sequence, message in enumerate(part, placed.first)]
                )

    def _write(
        self, branch: Branch, target: PersistentLaneState, messages: list[StoredMessage]
    ) -> list[tuple[int, list[int], list[StoredMessage]]]:
        """Write the messages as slices that count with the commit; return position, lengths and messages of each."""
        written: list[tuple[int, list[int], list[StoredMessage]]] = []
        for part in _slices(messages, target.destination_lane.slice_capacity, self._slice_messages_max):
            contents = Contents.of((properties, body or b"") for _, properties, body, _ in part)
            is_timed = any(map(has_times, contents.properties))
            lengths = self._transaction_writer.append_slice(
                branch, target.destination_lane, part[0][3], contents, is_timed=is_timed
            )
            written.append((branch.last_position, lengths, part))
        return written


def _runs_of(messages: list[StoredMessage]) -> SequenceSet:
    runs = SequenceSet()
    first = last = messages[0][0]
    for message in messages:
        if message[0] > last + 1:
            runs.add(first, last)
            first = message[0]
        last = message[0]
    runs.add(first, last)
    return runs


def _slices(messages: list[StoredMessage], capacity: int, most: int) -> Iterator[list[StoredMessage]]:
    """Yield parts that have one timestamp each and cross no block.

    capacity: messages that the first block still takes. most: messages of a part.
    """
    part: list[StoredMessage] = []
    size = 0
    for message in messages:
        if part and (
            message[3] != part[0][3]
            or len(part) >= min(capacity, most)
            or size + len(message[1]) + len(message[2] or b"") > SLICE_CONTENT_BYTES_MAX
        ):
            yield part
            capacity = capacity - len(part) or BLOCK_MESSAGES
            part, size = [], 0
        part.append(message)
        size += len(message[1]) + len(message[2] or b"")
    if part:
        yield part
