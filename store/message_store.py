"""The message store: adds, acknowledges and reads messages, and has their lanes.

The state lock guards the journal's appends and the index. A method that says "Requires: the lock." means the state
lock; other locks are named. A message survives a kill once `add` has returned. With sync "always" the journal may write
a single message only before the next sync, and the message survives from then on. It survives a power cut once the
journal is synced up to the `Journal.end` that is read after `add`. recovery/recovery.py describes what a crash leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .disk.disk import Disk
from .errors import Closed
from .format.contents import Contents
from .format.identity import Identity
from .format.places import Extent, SingleRecords
from .format.record import IDENTIFIED, TIMED
from .format.times import MessageTimes
from .index.deduplication import Deduplication
from .index.destination_lane import DestinationLane
from .index.due_times import DueTimes
from .index.index import Index
from .index.journaled_lane import JournaledLane
from .journal.journal import Journal
from .journal.regions import Judge, Region, plan_regions, read_headers, read_regions
from .message import id_prefix
from .quarantine import quarantine_message
from .stored_message import StoredMessage
from .writers.discard_writer import DiscardWriter


class MessageStore:
    """The messages of all destinations of an open store. DirectoryStore makes it.

    A method that is interrupted between journal and index breaks the lock itself, whatever its caller guards. A caller
    that changes more in the same section breaks the lock too, for the interruptions that come outside of the method.
    The second break does nothing.
    """

    def __init__(
        self,
        *,
        disk: Disk,
        store_id: bytes,
        journal: Journal,
        index: Index,
        duplicates: Deduplication,
        discard_writer: DiscardWriter,
        due_times: DueTimes,
    ) -> None:
        """disk: has the quarantine."""
        self._disk = disk
        self._store_id = store_id
        self._journal = journal
        self._index = index
        self._uses = index.data_log_uses
        self._checkpoint_need = index.checkpoint_need
        self._duplicates = duplicates
        self._discard_writer = discard_writer
        self._state_lock = journal.locks.state
        self._is_closed = False
        # Finds the messages whose time has come.
        self.due_times = due_times

    # ------------------------------------------------------------------ messages

    def add(self, lane: DestinationLane, timestamp: int, properties: bytes, body: bytes, flags: int = 0) -> int:
        """Append one message; return its sequence. Raises Closed, StoreFull or StoreFailed. Requires: the lock.

        A message to a topic without subscriptions gets a sequence, and is not stored. flags: those of the record.
        """
        if lane.is_unread:
            return self._discard_writer.discard(lane, 1, len(properties) + len(body))
        journal, size = self._journal, len(properties) + len(body)
        try:
            offset = journal.append_one(
                lane.priority | flags, lane.owner_number, lane.next_sequence, timestamp, properties, body, size
            )
            data_log = journal.data_log
            self._checkpoint_need.adds += 1
            return lane.add_one(data_log, offset, size, self._uses[data_log])
        except BaseException as error:
            self._journal.break_by(error)
            raise

    def add_expiring(
        self, lane: DestinationLane, timestamp: int, properties: bytes, body: bytes, expires_at: int
    ) -> int:
        """Add one message that expires, otherwise as `add` does. Requires: the lock.

        expires_at: the time that its properties say, too.
        """
        try:
            sequence = self.add(lane, timestamp, properties, body, TIMED)
            if not lane.is_unread:
                lane.put_expiry(sequence, expires_at)
                if timestamp > self._index.latest_ms:  # Index.note_time, written inline
                    self._index.latest_ms = timestamp
            return sequence
        except BaseException as error:
            self._journal.break_by(error)
            raise

    def append_slice(
        self,
        lane: DestinationLane,
        timestamp: int,
        contents: Contents,
        times: Sequence[MessageTimes] = (),
        identities: Sequence[Identity] = (),
        *,
        lengths: list[int] | None = None,
        flags: int = 0,
    ) -> int:
        """Append messages as one record, all or nothing; return the first sequence.

        times: the times of each message, as its properties say them; empty: no message has any.
        identities: the ids of those messages that have one. Message and id are in one record, so no crash separates
            them.
        lengths: the lengths of the contents, if the caller has them.
        flags: those of the record.

        Requires: the lock; at most lane.slice_capacity and SLICE_MESSAGES_MAX messages. Raises Closed or StoreFull
        (nothing is stored), or StoreFailed.
        """
        if lane.is_unread:
            content_bytes = sum(contents.lengths() if lengths is None else lengths)
            return self._discard_writer.discard(lane, len(contents), content_bytes, identities)
        journal = self._journal
        flags |= lane.priority | (TIMED if times else 0) | (IDENTIFIED if identities else 0)
        try:
            offset, lengths = journal.append_slice(
                flags, lane.owner_number, lane.next_sequence, timestamp, contents, lengths
            )
            data_log = journal.data_log
            self._checkpoint_need.adds += len(lengths)
            first = lane.add_slice(data_log, offset, lengths, self._uses[data_log])
            if times:
                lane.put_times(first, times)
                self._index.note_time(timestamp)
            for identity in identities:
                self._duplicates.remember(identity)
            return first
        except BaseException as error:
            self._journal.break_by(error)
            raise

    def acknowledge(self, lane: JournaledLane, first: int, last: int) -> int:
        """Acknowledge a run with one record; return how many messages were pending. Requires: the lock."""
        journal = self._journal
        try:
            journal.append_ack(lane.priority, lane.owner_number, first, last - first + 1)
            return lane.remove(first, last, journal.data_log)
        except BaseException as error:
            self._journal.break_by(error)
            raise

    def acknowledge_one(self, lane: JournaledLane, sequence: int) -> int:
        """Acknowledge one message as `acknowledge` does. Every single ack takes this path. Requires: the lock."""
        journal = self._journal
        try:
            journal.append_ack(lane.priority, lane.owner_number, sequence, 1)
            return lane.remove_one(sequence, journal.data_log)
        except BaseException as error:
            self._journal.break_by(error)
            raise

    # ------------------------------------------------------------------ reading

    def plan(self, lane: JournaledLane, runs: Sequence[tuple[int, int]]) -> list[Region]:
        """Plan how to read these pending sequences, each run inside one block. Requires: the lock. Reads no message."""
        extents: list[Extent | SingleRecords] = []
        for first, last in runs:
            extents += lane.extents(first, last)
        return plan_regions(extents, self._journal.reader)

    def read(
        self, regions: Sequence[Region], judge: Judge | None = None
    ) -> tuple[list[StoredMessage], list[tuple[int, str]]]:
        """Return (messages in order, [(sequence, problem)] for messages that can't be read). Requires: no lock.

        judge: says which messages are wanted; the others are left out. None: all are wanted.
        """
        return read_regions(regions, judge)

    def read_headers(
        self, region: Region, pay: Callable[[int], None]
    ) -> tuple[list[StoredMessage], list[tuple[int, str]]]:
        """Read the one message of a region as `read` does, in pieces and with an empty body. Requires: no lock.

        pay: see journal.regions.read_headers.
        """
        return read_headers(region, pay)

    def quarantine(self, lane: JournaledLane, sequence: int) -> bool:
        """Copy a pending message that does not verify to the quarantine, and acknowledge it. Requires: no lock.

        False: nothing has changed. The message is settled already, or can be read after all; or the disk failed to read
        it, which may pass; or the quarantine is full.
        """
        with self._state_lock, self._journal.all_or_broken:
            if not lane.is_pending(sequence):
                return False
            (region,) = self.plan(lane, [(sequence, sequence)])
        if not quarantine_message(self._disk, region):
            return False
        with self._state_lock, self._journal.all_or_broken:
            return lane.is_pending(sequence) and bool(self.acknowledge_one(lane, sequence))

    # ------------------------------------------------------------------ lanes

    def ensure_lane(self, destination_number: int, priority: int) -> DestinationLane:
        """Return the lane of a queue or topic, made if needed. Requires: the lock."""
        return self._index.ensure_lane(destination_number, priority)

    def lanes(self) -> list[DestinationLane]:
        """Return the lanes that are objects. Requires: the lock."""
        return list(self._index.lanes.values())

    def shrink_to_row(self, lane_number: int) -> None:
        """Make an empty lane a row, as `Index.shrink_to_row` does. Requires: the lock."""
        self._index.shrink_to_row(lane_number)

    def id_prefix(self, destination_number: int, priority: int) -> str:
        """Return the beginning of ids that are generated in this lane."""
        return id_prefix(self._store_id, destination_number, priority)

    # ------------------------------------------------------------------ closing

    def begin_closing(self) -> None:
        """Make `raise_if_closed` raise from now on, because the store closes."""
        self._is_closed = True

    def raise_if_closed(self) -> None:
        """Raise Closed if the store is closed or is closing."""
        if self._is_closed:
            raise Closed("the store")
