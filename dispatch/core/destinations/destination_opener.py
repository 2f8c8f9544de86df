"""DestinationOpener: charge for queues and topics while they are open, and close those that are not in use.

If memory has no room for another queue or topic, a few empty ones are closed. Their rows and counters remain.
"""

from __future__ import annotations

from collections.abc import Container
from contextlib import AbstractContextManager

from ....store.format.destination_table import DestinationTable
from ..model.counting import CountedRows
from ..model.lifecycle import Lifecycle
from ..publisher import Publisher
from ..redelivery.timed_lanes import TimedLanes
from .closable_destinations import ClosableDestinations, IdleCloser
from .destination_lanes import DestinationLanes
from .destination_state import DestinationState
from .overhead import COUNTED_BYTES, MESSAGE_GROUPS_BYTES, ROW_BYTES, DestinationOverhead, row_bytes
from .policy_applier import PolicyApplier


class DestinationOpener:
    """Opens and closes queues and topics alike. The state lock guards it; every method requires it held."""

    def __init__(
        self,
        *,
        rows: DestinationTable,
        policy_applier: PolicyApplier,
        lanes: DestinationLanes,
        overhead: DestinationOverhead,
        publisher: Publisher,
        timed: TimedLanes,
        closable: ClosableDestinations,
    ) -> None:
        """rows: all queues and topics that exist, open or closed."""
        self._rows = rows
        self._policy_applier = policy_applier
        self._lanes = lanes
        self._overhead = overhead
        self._publisher = publisher
        self._timed = timed
        self._closable = closable
        self._counted = CountedRows()

    @property
    def closed_counting(self) -> int:
        """Number of closed queues and topics that have counted something."""
        return len(self._counted)

    @property
    def idle_charge(self) -> int:
        """The charge for the next sequences of closed lanes."""
        return self._lanes.idle_charge

    # ------------------------------------------------------------------ opening

    def new_row(self, name: str, charge_bytes: int, joining_bytes: int = 0) -> AbstractContextManager[None]:
        """Charge for a new queue or topic of a name, which is made in the block. StoreFull: memory has no room.

        charge_bytes: what it takes while it is open, in addition to its row. joining_bytes: room that must be free for
            an object that comes with it and charges for itself.
        """
        rows = self._rows
        row_charge = row_bytes(name)
        self._overhead.require_row(ROW_BYTES * len(rows) + rows.name_bytes, row_charge)
        whole_bytes = row_charge + charge_bytes
        self._make_room(whole_bytes + joining_bytes)
        if joining_bytes:
            self._overhead.require(whole_bytes + joining_bytes)
        return self._overhead.charge_one(whole_bytes)

    def charge_one(self, charge_bytes: int) -> AbstractContextManager[None]:
        """Charge for an existing queue or topic that is opened in the block. StoreFull: memory has no room."""
        self._make_room(charge_bytes)
        return self._overhead.charge_one(charge_bytes)

    def charge_or_owe(self, charge_bytes: int) -> None:
        """Charge for a queue or topic that is opened to be deleted, even if memory is full: the deletion frees more."""
        self._overhead.charge_or_owe(charge_bytes)

    def set_up(self, opened: DestinationState, closer: IdleCloser) -> None:
        """Apply its policy to a queue or topic that was just opened, and note who can close it again."""
        self._closable.add(opened, closer)
        self._policy_applier.apply(opened)

    def restore_counts(self, opened: DestinationState) -> None:
        """Let a queue or topic that was just opened continue its earlier counts."""
        before = len(self._counted)
        opened.counters.restore(self._counted.take(opened.number))
        self._overhead.release_one(COUNTED_BYTES * (before - len(self._counted)))

    def describe(self, closed: DestinationState) -> None:
        """Fill in the object that stands for a closed queue or topic in a report: its counts and inactive time."""
        closed.counters.restore(self._counted.find(closed.number))
        closed.inactive_seconds = self._policy_applier.inactive_seconds(closed.number, closed.name)

    # ------------------------------------------------------------------ closing

    def can_close(self, opened: DestinationState, undecided: Container[int]) -> bool:
        """Return whether closing a queue or topic would lose nothing but its counters.

        A temporary destination stays open, because it is deleted with its handle.
        """
        if not opened.is_open or not opened.is_idle or opened.number in undecided:
            return False
        return not (self._rows[opened.number].is_temporary or self._publisher.has_unpublished(opened))

    def close(self, opened: DestinationState, charge_bytes: int) -> None:
        """Close a queue or topic, so that only its row remains. Requires: `can_close` is true.

        charge_bytes: what the open destination was charged.
        """
        counted = opened.counts_to_keep
        opened.lifecycle = Lifecycle.CLOSED
        self._closable.remove(opened)
        self._timed.forget(opened)
        opened.end_admission()
        self._lanes.shrink_to_row(opened)
        opened.clear()
        is_kept = self._counted.put(opened.number, counted)
        self._overhead.release_closed(opened, charge_bytes - COUNTED_BYTES * is_kept)

    def forget(self, deleted: DestinationState, charge_bytes: int) -> None:
        """Forget a deleted queue or topic, so that messages that its senders added no longer arrive.

        charge_bytes: what the open destination was charged, in addition to its row.
        """
        message_groups_bytes = MESSAGE_GROUPS_BYTES * deleted.has_message_groups
        self._overhead.release_closed(deleted, row_bytes(deleted.name) + charge_bytes + message_groups_bytes)
        self._closable.remove(deleted)
        self._timed.forget(deleted)
        self._lanes.forget(deleted.number)
        self._policy_applier.forget(deleted.number)
        self._publisher.forget(deleted)

    def _make_room(self, charge_bytes: int) -> None:
        """Close a few empty queues and topics if memory has no room for a charge."""
        if not self._overhead.has_room(charge_bytes):
            self._closable.close_some()
