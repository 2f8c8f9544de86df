"""Publisher: make stored messages visible to consumers.

With sync "always" a stored message is published once it is durable, in the order of storing. So no consumer sees a
message that a power cut could take back. confirmer.py makes messages durable. A send goes this way:

    Publisher.hold_until_durable     under the lock of the write: the message waits, with the end of its record
    ThreadConfirmer.confirm          without the lock, asks for a sync up to that end
    JournalSyncer.sync               syncs for all that wait, and calls its SyncListener under the lock
    Publisher.publish_synced         takes everything up to `Journal.durable_end` out of the line
    TargetArea.publish               lets it arrive at its lanes, which wake consumers

The assembly (engine/assembly/core.py) joins the two: `syncer.tell_of_syncs(publisher.publish_synced)`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Final

from ...cache.accounting.budget import Holder
from ...cache.accounting.charge import charge_of_all
from ...store.environment.late_log import LateLogger
from ...store.errors import SpillFailed, StoreFull
from ...store.journal.journal import Journal
from ...store.numbering import NOTHING_TO_SYNC, OFFSET_BITS
from ...store.stored_message import StoredMessage
from .areas.target_area import TargetArea
from .lanes.persistent_lane_state import PersistentLaneState
from .model.destination import CoreDestination
from .monitor import Monitor

logger = LateLogger("forebay.dispatch")


HELD_STEP_BYTES: Final = 32 * 1024
"""Messages that wait for a sync are charged in steps of this size. After the first one, at least one stays charged."""
UNPUBLISHED_SLICES_MAX: Final = 8
"""With sync "always", slices wait in RAM until they are durable. A call of many syncs when so many of the store wait.

Those of all senders count. Eight full slices are 2 MiB, and less if their messages are small.
"""


class UnpublishedNonPersistent(ABC):
    """A non-persistent message of a committed transaction that is accepted but in no lane yet."""

    destination: CoreDestination
    charge_bytes: int
    """Its charge to the budget until a lane has it."""

    @abstractmethod
    def release(self) -> None:
        """Release the charge, so that a lane can take it. Requires: the lock."""

    @abstractmethod
    def reserve_again(self) -> None:
        """Charge for the message again, unless a lane has the charge by now. Requires: the lock."""

    @abstractmethod
    def add_to_lane(self) -> None:
        """Add the message to its lane. StoreFull or SpillFailed: nothing has changed.

        Requires: the lock, and a `release`.
        """


class Publisher:
    """Makes stored messages visible to consumers: at once, or with sync "always" once they are durable."""

    def __init__(
        self,
        monitor: Monitor,
        journal: Journal,
        target_area: TargetArea,
        *,
        holder: Holder,
        syncs_always: bool,
    ) -> None:
        """holder: pays for messages that wait in RAM."""
        self._monitor = monitor
        self._journal = journal
        self._target_area = target_area
        self._holder = holder
        self._held_bytes = self._paid_bytes = 0
        self.syncs_always = syncs_always
        # With sync "always": stored messages that are published once they are durable. A range stands for messages for
        # which RAM has no room. `Confirmer.confirm` reads both deques, because each single message passes there.
        self.unpublished: deque[tuple[int, PersistentLaneState, Sequence[StoredMessage] | range, int]] = deque()
        # Non-persistent messages of commits, each with the journal end that must be durable first.
        self.unpublished_non_persistent: deque[tuple[int, UnpublishedNonPersistent]] = deque()

    @property
    def oldest(self) -> object:
        """The entry that has waited longest for publication. None: nothing waits. The lock need not be held."""
        if self.unpublished:
            return self.unpublished[0][2]  # not the tuple around it, because machine code makes a new tuple each time
        return self.unpublished_non_persistent[0][1] if self.unpublished_non_persistent else None

    @property
    def is_holding_too_many(self) -> bool:
        """Whether a call of many should sync before it stores more. The lock need not be held."""
        return len(self.unpublished) >= UNPUBLISHED_SLICES_MAX

    @property
    def non_persistent_bytes(self) -> int:
        """The charge of non-persistent messages of commits. O(messages). Requires: the lock."""
        return sum(message.charge_bytes for _, message in self.unpublished_non_persistent)

    def publish_when_durable(
        self, lane: PersistentLaneState, messages: Sequence[StoredMessage] | range, charge: int | None = None
    ) -> int:
        """Publish stored messages: now, or with sync "always" when they are durable. Requires: the lock.

        Return the journal end that must be durable first. NOTHING_TO_SYNC: they are published. charge: that of the
        messages; None: compute it.
        """
        if not self.syncs_always:
            self._target_area.publish(lane, messages, charge)
            return NOTHING_TO_SYNC
        if charge is None:
            charge = 0 if isinstance(messages, range) else charge_of_all(messages)
        return self.hold_until_durable(lane, messages, charge)

    def hold_until_durable(
        self, lane: PersistentLaneState, messages: Sequence[StoredMessage] | range, charge: int
    ) -> int:
        """Hold stored messages until the journal is durable up to its present end; return that end.

        They wait in RAM if it has room. charge: that of the messages; a range has none. Requires: the lock.
        """
        held_bytes = self._held_bytes + charge
        if held_bytes > self._paid_bytes and not self._pay(held_bytes):
            assert not isinstance(messages, range)
            messages, charge, held_bytes = range(messages[0][0], messages[-1][0] + 1), 0, self._held_bytes
        self._held_bytes = held_bytes
        journal = self._journal
        journal_end = journal.data_log << OFFSET_BITS | journal.offset  # Journal.end, written inline
        self.unpublished.append((journal_end, lane, messages, charge))
        return journal_end

    def _pay(self, held_bytes: int) -> bool:
        """Charge in whole steps, so that a single message seldom has to; return whether there was room."""
        steps_bytes = -(-(held_bytes - self._paid_bytes) // HELD_STEP_BYTES) * HELD_STEP_BYTES
        if not self._holder.reserve(steps_bytes):
            return False
        self._paid_bytes += steps_bytes
        return True

    def _refund(self) -> None:
        """Release what is charged beyond one step more than is held."""
        spare_bytes = (self._paid_bytes - self._held_bytes) // HELD_STEP_BYTES * HELD_STEP_BYTES - HELD_STEP_BYTES
        if spare_bytes > 0:
            self._paid_bytes -= spare_bytes
            self._holder.release(spare_bytes)

    def audit(self) -> int:
        """Return what is charged for held messages. AssertionError if more is held than that. Requires: the lock."""
        held_bytes = sum(charge for _, _, _, charge in self.unpublished)
        assert held_bytes == self._held_bytes <= self._paid_bytes
        return self._paid_bytes

    def add_when_durable(self, messages: Sequence[UnpublishedNonPersistent]) -> None:
        """Add non-persistent messages of a commit to their lanes in order, as soon as the commit is durable.

        A message that finds no room keeps its charge and is tried again. Requires: the lock.
        """
        journal_end = self._journal.end if self.syncs_always else NOTHING_TO_SYNC
        self.unpublished_non_persistent.extend((journal_end, message) for message in messages)
        if not self.syncs_always:
            self._publish_non_persistent(NOTHING_TO_SYNC)

    def _publish_non_persistent(self, durable_end: int) -> None:
        """Add the non-persistent messages whose commit is durable to their lanes. Requires: the lock."""
        waiting = self.unpublished_non_persistent
        ready = [message for journal_end, message in waiting if journal_end <= durable_end]
        for message in ready:
            message.release()  # release all charges first, because the first message of a lane takes more than its own
        try:
            for message in ready:
                message.add_to_lane()
                waiting.popleft()
        except (StoreFull, SpillFailed) as full:
            for _, message in islice(waiting, sum(1 for journal_end, _ in waiting if journal_end <= durable_end)):
                message.reserve_again()
            logger.debug("a non-persistent message of a commit waits for room: %s", full, event="commit_waits_for_room")

    def has_unpublished(self, destination: CoreDestination) -> bool:
        """Return whether messages of a queue wait for a sync. O(messages that wait). Requires: the lock."""
        is_in_lane = any(lane.destination is destination for _, lane, _, _ in self.unpublished)
        return is_in_lane or any(message.destination is destination for _, message in self.unpublished_non_persistent)

    def forget(self, destination: CoreDestination) -> None:
        """Drop the messages of a deleted queue that wait for a sync. Requires: the lock."""
        self.unpublished = deque(entry for entry in self.unpublished if entry[1].destination is not destination)
        self._held_bytes = sum(charge for _, _, _, charge in self.unpublished)
        self._refund()
        for _, message in self.unpublished_non_persistent:
            if message.destination is destination:
                message.release()
        self.unpublished_non_persistent = deque(
            entry for entry in self.unpublished_non_persistent if entry[1].destination is not destination
        )

    def publish_left(self) -> None:
        """Publish what is durable and was left: by an interrupted sync, by one at a standstill, or for want of room.

        With sync "always" the SyncListener has published the rest. Requires: no lock.
        """
        with self._monitor.lock:
            self.publish_synced()

    def publish_synced(self) -> None:
        """Publish what has become durable, in the order of storing. Requires: the lock.

        With sync "always" this is the SyncListener, so the end of each sync calls it. A store that closes publishes
        nothing: its consumers have ended, and its tmp-storage is closed.
        """
        if self._monitor.is_closed:
            return
        try:
            durable_end = self._journal.durable_end
            unpublished = self.unpublished
            while unpublished and unpublished[0][0] <= durable_end:
                _, lane, messages, charge = unpublished.popleft()
                if unpublished:  # not after the send of a single thread
                    messages, charge = self._joined(durable_end, lane, messages, charge)
                self._held_bytes -= charge
                self._target_area.publish(lane, messages, charge)
            if self._paid_bytes > HELD_STEP_BYTES and not unpublished:
                self._refund()
            if self.unpublished_non_persistent:
                self._publish_non_persistent(durable_end if self.syncs_always else NOTHING_TO_SYNC)
        except BaseException as error:
            self._monitor.lock.break_by(error)
            raise

    def _joined(
        self, durable_end: int, lane: PersistentLaneState, messages: Sequence[StoredMessage] | range, charge: int
    ) -> tuple[Sequence[StoredMessage] | range, int]:
        """Remove the durable entries of `unpublished` that continue an entry in its lane; return all as one, and their
        charge.

        Requires: the lock.
        """
        if isinstance(messages, range) or not lane.joins_slices:
            return messages, charge
        unpublished = self.unpublished
        joined = list(messages)
        while unpublished:
            journal_end, next_lane, next_messages, next_charge = unpublished[0]
            if journal_end > durable_end or next_lane is not lane or isinstance(next_messages, range):
                break
            if next_messages[0][0] != joined[-1][0] + 1:
                break
            unpublished.popleft()
            joined += next_messages
            charge += next_charge
        return joined, charge
