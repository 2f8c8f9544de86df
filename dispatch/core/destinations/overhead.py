"""DestinationOverhead: what it costs in RAM that destinations and subscriptions exist, idle or not.

A queue that nobody uses is a row: its name and numbers, in columns. One that is
in use is open, which is a few objects more. Both are charged as they were
measured, whatever waits there. Nothing here survives a crash: an open charges
again for all that exist.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from ....cache.budget import Holder
from ....store.errors import SettingsError, StoreFull
from ....store.format.state import QUEUE
from ....store.index.subscriptions import SUBSCRIBER_BYTES
from ....store.index.topic_lane import SUBSCRIPTION_LANE_BYTES
from ...selectors.selector import Selector
from ..areas.target_area import TargetArea
from ..memory.consumer_memory import ASSIGNED_BYTES, LIST_BYTES, consumer_group_charge
from ..model import LANE_STATE_BYTES, DestinationState

ROW_BYTES: Final = 48
"""Charged for each queue or topic, beside the bytes of its name: its row."""
COUNTED_BYTES: Final = 152
"""Charged beside the row for one that is closed and was used since the store was opened: what it has counted."""
ROWS_SHARE: Final = 0.8
"""Most that rows may take of what destinations may: with none left for open ones nobody could use any of them."""
OPEN_QUEUE_BYTES: Final = 1024
"""Charged for an open queue, beside its row."""
CLOSED_QUEUE_BYTES: Final = 384
"""Charged for a queue that was closed or deleted while somebody holds what it was: a Queue not used since, or a
delivery of it. Measured with tracemalloc over 2,000, as the next one."""
CLOSED_TOPIC_BYTES: Final = 640
"""Charged for a topic in its place."""
GROUPS_BYTES: Final = 10_240
"""Charged besides for a queue that has, or had, messages with groups: who owns which, and what hands them out."""
OPEN_TOPIC_BYTES: Final = 1280
"""Charged for an open topic, beside its row."""
OPEN_SUBSCRIPTION_BYTES: Final = 1024
"""Charged for a subscription that somebody reads, or of which there is something to remember, beside what the store
has."""
NAMED_BYTES: Final = 128
"""Room that a new subscription needs for its row, with a name of usual length."""
FAN_OUT_BYTES: Final = 512
"""Charged for each priority of a topic in which non-persistent messages were sent. Measured with tracemalloc over
10,000 of each."""


def row_bytes(name: str) -> int:
    """Return what a queue or topic of that name is charged while it is not open."""
    return ROW_BYTES + len(name.encode())


class Census(NamedTuple):
    """How much there is of what is charged."""

    destinations: int
    """Queues and topics."""
    name_bytes: int
    """Bytes of the names of all these."""
    open_queues: int
    counted: int
    """Queues and topics that are not open and have counted something since the store was opened."""
    open_topics: int
    grouped: int
    """Queues that have, or had, messages with groups."""

    @property
    def charge_bytes(self) -> int:
        """What all of it is charged."""
        return (
            ROW_BYTES * self.destinations
            + self.name_bytes
            + OPEN_QUEUE_BYTES * self.open_queues
            + COUNTED_BYTES * self.counted
            + OPEN_TOPIC_BYTES * self.open_topics
            + GROUPS_BYTES * self.grouped
        )


class DestinationOverhead:
    """The charge for what destinations and subscriptions take in RAM, idle or not.

    The state lock guards it; every method requires it held.
    """

    def __init__(self, target_area: TargetArea, close_idle: Callable[[], None]) -> None:
        """close_idle: closes some queues and topics that have nothing. Requires: the lock."""
        self.holder = target_area.destination_memory.holder
        self._close_idle = close_idle
        self._target_area = target_area

    def has_room(self, charge_bytes: int) -> bool:
        """Return whether so much more can be charged for destinations, if lists and caches give way."""
        return self._room_for(charge_bytes, self.holder) >= charge_bytes

    def require_row(self, rows_bytes: int, charge_bytes: int) -> None:
        """StoreFull where so many rows and one more would leave too little for destinations that are open."""
        room_bytes = int(self._target_area.shares.destinations_bytes * ROWS_SHARE) - rows_bytes
        if room_bytes < charge_bytes:
            raise StoreFull(charge_bytes, max(room_bytes, 0), "memory_limit")

    def _require(
        self, charge_bytes: int, holder: Holder, kept_bytes: int = 0, users: Collection[DestinationState] = ()
    ) -> None:
        """Make room for what a holder is about to be charged. StoreFull: memory has none for it.

        kept_bytes: what of its room is kept for others. users: for whom it is; where there are any, others that have
        nothing are closed first.
        """
        room_bytes = self._room_for(charge_bytes + kept_bytes, holder) - kept_bytes
        if room_bytes < charge_bytes and users:
            self._close_others(users)
            room_bytes = self._room_for(charge_bytes + kept_bytes, holder) - kept_bytes
        if room_bytes < charge_bytes:
            raise StoreFull(charge_bytes, max(room_bytes, 0), "memory_limit")

    def _close_others(self, users: Collection[DestinationState]) -> None:
        for user in users:
            user.calls_under_way += 1
        try:
            self._close_idle()
        finally:
            for user in users:
                user.calls_under_way -= 1

    def _room_for(self, charge_bytes: int, holder: Holder) -> int:
        """Have lists and caches give way to what a holder is about to be charged; return how much that may be."""
        self._target_area.destination_memory.settle()  # what hosts have dropped since comes first
        target_area, shares = self._target_area, self._target_area.shares
        both_bytes = self.holder.held_bytes + target_area.consumer_memory.holder.held_bytes
        room_bytes = min(shares.destinations_bytes - holder.held_bytes, shares.existing_bytes - both_bytes)
        if room_bytes >= charge_bytes:
            target_area.make_room(charge_bytes, None)
            if target_area.budget.free_bytes < charge_bytes:  # many lists with one large message each: it is read again
                target_area.make_room(charge_bytes, None, least=0)
        covered_bytes = max(holder.guaranteed_bytes - holder.held_bytes, 0)
        if covered_bytes < charge_bytes:  # what is guaranteed is there, however full the rest is
            room_bytes = min(room_bytes, target_area.budget.free_bytes + covered_bytes)
        return room_bytes

    def require_lanes(self, opened: DestinationState, charge_bytes: int) -> None:
        """Make room for another lane of a queue or topic, and for lists of consumers that are there.

        StoreFull: memory has none for them.
        """
        self._require(charge_bytes, self.holder, users=(opened,))
        if lists := opened.lists_a_lane:
            kept_bytes = LIST_BYTES * max(self._target_area.listless_consumer_groups - opened.first_lists, 0)
            self._require(LIST_BYTES * lists, self._target_area.consumer_memory.holder, kept_bytes, (opened,))

    def require_consumer(self, destination: DestinationState, selector: Selector | None, consumer_bytes: int) -> None:
        """Make room for a consumer of a queue or subscription. StoreFull: memory has none for it.

        The memory that the first message of a queue needs for lists of its consumers is left.
        """
        lists_bytes = LIST_BYTES * sum(1 for _ in destination.all_lanes())
        charge_bytes, kept_bytes = consumer_bytes, LIST_BYTES * self._target_area.listless_consumer_groups
        if (selector.text if selector is not None else None) not in destination.consumer_groups:
            charge_bytes += consumer_group_charge(selector) + lists_bytes
            kept_bytes += 0 if lists_bytes else LIST_BYTES
        if not destination.distribution.is_ordinary:
            charge_bytes += ASSIGNED_BYTES + lists_bytes
        self._require(charge_bytes, self._target_area.consumer_memory.holder, kept_bytes, (destination,))

    def require_subscriber(
        self, topics: Collection[DestinationState], selector: Selector | None, consumer_bytes: int
    ) -> None:
        """Make room for a consumer of a new subscription of each topic, and for these. StoreFull: memory has none."""
        lanes = [sum(1 for _ in topic.all_lanes()) for topic in topics]
        charge_bytes = consumer_bytes + consumer_group_charge(selector) + 2 * LIST_BYTES * sum(lanes)
        existing_bytes = (NAMED_BYTES + SUBSCRIBER_BYTES + OPEN_SUBSCRIPTION_BYTES) * len(topics)
        existing_bytes += (SUBSCRIPTION_LANE_BYTES + LANE_STATE_BYTES) * sum(lanes)
        kept_bytes = LIST_BYTES * (self._target_area.listless_consumer_groups + (not sum(lanes)))
        self._require(existing_bytes, self.holder, users=topics)
        self._require(charge_bytes + existing_bytes, self._target_area.consumer_memory.holder, kept_bytes, topics)

    def require(self, charge_bytes: int) -> None:
        """Make room for what charges for itself. StoreFull: memory has none for it."""
        self._require(charge_bytes, self.holder)

    @contextmanager
    def one_more(self, charge_bytes: int) -> Iterator[None]:
        """Charge for a destination or subscription while it is made. StoreFull: memory has no room for it."""
        self._require(charge_bytes, self.holder)
        reserved = self.holder.reserve(charge_bytes)
        assert reserved, "there was room"
        try:
            yield
        except BaseException:
            self.holder.release(charge_bytes)
            raise

    def one_less(self, charge_bytes: int) -> None:
        """Release the charge of a destination or subscription that is gone."""
        self._target_area.destination_memory.release(charge_bytes)

    def closed(self, ended: DestinationState, charge_bytes: int) -> None:
        """Release the charge of a queue or topic that was closed or deleted, but for what it takes while it is held."""
        memory = self._target_area.destination_memory
        lasting_bytes = CLOSED_QUEUE_BYTES if ended.kind == QUEUE else CLOSED_TOPIC_BYTES
        ended.lasting_charge = memory.make_last(lasting_bytes)
        memory.release(charge_bytes - lasting_bytes)

    def must_have(self, charge_bytes: int) -> None:
        """Charge for what can't be refused, because it is about to be deleted: at once, or as soon as there is room."""
        self._target_area.destination_memory.charge(charge_bytes)

    def restore(self, found: Census, subscriptions: int, rows_bytes: int) -> None:
        """Charge for what opening found. SettingsError: the limit is too low for all of it.

        subscriptions: how many there are. rows_bytes: what those and lanes were charged that nobody uses.
        """
        charge = found.charge_bytes
        is_too_much = charge + rows_bytes > self._target_area.shares.destinations_bytes
        if is_too_much or self._target_area.destination_memory.owed_bytes or not self.holder.reserve(charge):
            raise SettingsError(
                f"memory_limit has no room for the {found.destinations + subscriptions:,} destinations and "
                f"subscriptions of this store, which take {charge + rows_bytes:,} bytes and at most half of what its "
                "fixed parts leave: raise it"
            )
