"""DestinationOverhead: memory charges of destinations and subscriptions, whether they are used or not.

An unused queue is a row: its name and numbers, in columns. A queue in use is open, which adds a few objects. Both are
charged with measured sizes, in addition to their messages. An open of the store charges for all that exist.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from ....cache.accounting.budget import Budget, Holder
from ....cache.accounting.overdraft import Overdraft
from ....store.errors import SettingsError, StoreFull
from ....store.format.state_record import QUEUE
from ....store.index.backlog_sets import SUBSCRIPTION_LANE_BYTES
from ....store.index.subscriptions import SUBSCRIBER_BYTES
from ...selectors.selector import Selector
from ..areas.list_registry import ListRegistry
from ..lists.consumer_memory import LIST_BYTES, OWN_SELECTOR_GROUP_BYTES, selector_group_charge
from ..memory.reclaim import Reclaim
from ..memory.watermarks import Watermarks
from ..model.destination import LANE_STATE_BYTES
from .closable_destinations import ClosableDestinations
from .destination_state import DestinationState

ROW_BYTES: Final = 48
"""Charged for the row of each queue or topic, in addition to the bytes of its name."""
COUNTED_BYTES: Final = 152
"""Charged in addition for the counters of a closed queue or topic that was used since the store was opened."""
ROWS_SHARE: Final = 0.8
"""Largest share of the destinations' memory that rows may take. The rest is for open destinations."""
OPEN_QUEUE_BYTES: Final = 1024
"""Charged for an open queue, in addition to its row."""
CLOSED_QUEUE_BYTES: Final = 432
"""Charged for a queue that was closed or deleted while a Queue or a delivery still refers to its object.

tracemalloc measures this and CLOSED_TOPIC_BYTES over 2,000 objects.
"""
CLOSED_TOPIC_BYTES: Final = 688
"""Charged for a topic that was closed or deleted while a Topic or a delivery still refers to its object."""
MESSAGE_GROUPS_BYTES: Final = 10_240
"""Charged in addition for a queue that has or had messages with groups: owners of groups, and the assigning objects."""
OPEN_TOPIC_BYTES: Final = 1280
"""Charged for an open topic, in addition to its row."""
OPEN_SUBSCRIPTION_BYTES: Final = 1024
"""Charged for a subscription that is read or that has state in RAM, in addition to its part of the store."""
NAMED_BYTES: Final = 128
"""Bytes that the row of a new subscription is assumed to need, with a name of usual length."""
FAN_OUT_BYTES: Final = 512
"""Charged for each priority of a topic to which non-persistent messages were sent.

Measured with tracemalloc over 10,000 priorities.
"""


def row_bytes(name: str) -> int:
    """Return the charge of a queue or topic of that name while it is closed."""
    return ROW_BYTES + len(name.encode())


class DestinationCounts(NamedTuple):
    """How many destinations of each kind are charged."""

    destinations: int
    """Number of queues and topics."""
    name_bytes: int
    """Bytes of their names."""
    open_queues: int
    counted: int
    """Number of closed queues and topics that have counted something since the store was opened."""
    open_topics: int
    with_message_groups: int
    """Number of queues that have or had messages with groups."""

    @property
    def charge_bytes(self) -> int:
        """The charge for all these destinations."""
        return (
            ROW_BYTES * self.destinations
            + self.name_bytes
            + OPEN_QUEUE_BYTES * self.open_queues
            + COUNTED_BYTES * self.counted
            + OPEN_TOPIC_BYTES * self.open_topics
            + MESSAGE_GROUPS_BYTES * self.with_message_groups
        )


class DestinationOverhead:
    """The charge for destinations and subscriptions in RAM, used or not.

    The state lock guards it; every method requires it held.
    """

    def __init__(
        self,
        list_registry: ListRegistry,
        watermarks: Watermarks,
        reclaim: Reclaim,
        budget: Budget,
        destination_memory: Overdraft,
        consumer_memory: Overdraft,
        closable: ClosableDestinations,
    ) -> None:
        """destination_memory: pays for open destinations and their lanes.
        consumer_memory: pays for consumers and their lists.
        closable: closes some queues and topics that are empty.
        """
        self.holder = destination_memory.holder
        self._list_registry = list_registry
        self._watermarks = watermarks
        self._reclaim = reclaim
        self._budget = budget
        self._destination_memory = destination_memory
        self._consumer_memory = consumer_memory
        self._closable = closable

    def has_room(self, charge_bytes: int) -> bool:
        """Let lists and caches give memory back; return whether that much more can be charged for destinations."""
        return self._room_for(charge_bytes, self.holder) >= charge_bytes

    def require_row(self, rows_bytes: int, charge_bytes: int) -> None:
        """Raise StoreFull if one more row would leave too little memory for open destinations."""
        room_bytes = int(self._watermarks.shares.destinations_bytes * ROWS_SHARE) - rows_bytes
        if room_bytes < charge_bytes:
            raise StoreFull(charge_bytes, max(room_bytes, 0), "memory_limit")

    def _require(
        self, charge_bytes: int, holder: Holder, kept_bytes: int = 0, users: Collection[DestinationState] = ()
    ) -> None:
        """Make room for a charge of a holder. StoreFull: memory has no room.

        kept_bytes: room of the holder that must stay free for other charges.
        users: destinations that need the room. If there are any, other empty destinations are closed first.
        """
        room_bytes = self._room_for(charge_bytes + kept_bytes, holder) - kept_bytes
        if room_bytes < charge_bytes and users:
            self._close_others(users)
            room_bytes = self._room_for(charge_bytes + kept_bytes, holder) - kept_bytes
        if room_bytes < charge_bytes:
            raise StoreFull(charge_bytes, max(room_bytes, 0), "memory_limit")

    def _close_others(self, users: Collection[DestinationState]) -> None:
        for user in users:
            user.begin_call()
        try:
            self._closable.close_some()
        finally:
            for user in users:
                user.end_call()

    def _room_for(self, charge_bytes: int, holder: Holder) -> int:
        """Let lists and caches give back memory for a charge of a holder; return how much can be charged."""
        self._destination_memory.pay_owed()  # release the charges of objects that hosts have dropped
        make_room, shares = self._reclaim.make_room, self._watermarks.shares
        both_bytes = self.holder.held_bytes + self._consumer_memory.holder.held_bytes
        room_bytes = min(shares.destinations_bytes - holder.held_bytes, shares.existing_bytes - both_bytes)
        if room_bytes >= charge_bytes:
            make_room(charge_bytes, None)
            # Each list keeps its last message, and many large ones may fill memory. Take these too, to be read again.
            if self._budget.free_bytes < charge_bytes:
                make_room(charge_bytes, None, messages_min=0)
        covered_bytes = max(holder.guaranteed_bytes - holder.held_bytes, 0)
        if covered_bytes < charge_bytes:  # only what exceeds the guaranteed part must be free
            room_bytes = min(room_bytes, self._budget.free_bytes + covered_bytes)
        return room_bytes

    def require_lanes(self, opened: DestinationState, charge_bytes: int) -> None:
        """Make room for another lane of a queue or topic, and for the lists of its consumers.

        StoreFull: memory has no room.
        """
        self._require(charge_bytes, self.holder, users=(opened,))
        if lists := opened.lists_per_lane:
            kept_bytes = LIST_BYTES * max(self._list_registry.listless_selector_groups - opened.first_lists, 0)
            self._require(LIST_BYTES * lists, self._consumer_memory.holder, kept_bytes, (opened,))

    def require_consumer(self, destination: DestinationState, selector: Selector | None, consumer_bytes: int) -> None:
        """Make room for a consumer of a queue or subscription. StoreFull: memory has no room.

        This leaves the memory that the first message of a queue needs for the lists of its consumers.
        """
        lists_bytes = LIST_BYTES * sum(1 for _ in destination.all_lanes())
        charge_bytes, kept_bytes = consumer_bytes, LIST_BYTES * self._list_registry.listless_selector_groups
        if (selector.text if selector is not None else None) not in destination.selector_groups:
            charge_bytes += selector_group_charge(selector) + lists_bytes
            kept_bytes += 0 if lists_bytes else LIST_BYTES
        if not destination.distribution.is_ordinary:
            charge_bytes += OWN_SELECTOR_GROUP_BYTES + lists_bytes
        self._require(charge_bytes, self._consumer_memory.holder, kept_bytes, (destination,))

    def require_subscriber(
        self, topics: Collection[DestinationState], selector: Selector | None, consumer_bytes: int
    ) -> None:
        """Make room for a new subscription of each topic and its consumer. StoreFull: memory has no room."""
        lanes = [sum(1 for _ in topic.all_lanes()) for topic in topics]
        charge_bytes = consumer_bytes + selector_group_charge(selector) + 2 * LIST_BYTES * sum(lanes)
        existing_bytes = (NAMED_BYTES + SUBSCRIBER_BYTES + OPEN_SUBSCRIPTION_BYTES) * len(topics)
        existing_bytes += (SUBSCRIPTION_LANE_BYTES + LANE_STATE_BYTES) * sum(lanes)
        kept_bytes = LIST_BYTES * (self._list_registry.listless_selector_groups + (not sum(lanes)))
        self._require(existing_bytes, self.holder, users=topics)
        self._require(charge_bytes + existing_bytes, self._consumer_memory.holder, kept_bytes, topics)

    def require(self, charge_bytes: int) -> None:
        """Make room for an object that charges for itself. StoreFull: memory has no room."""
        self._require(charge_bytes, self.holder)

    @contextmanager
    def charge_one(self, charge_bytes: int) -> Iterator[None]:
        """Charge for a destination or subscription while it is made. StoreFull: memory has no room for it."""
        self._require(charge_bytes, self.holder)
        reserved = self.holder.reserve(charge_bytes)
        assert reserved, "there was room"
        try:
            yield
        except BaseException:
            self.holder.release(charge_bytes)
            raise

    def release_one(self, charge_bytes: int) -> None:
        """Release the charge of a destination or subscription that is gone."""
        self._destination_memory.release(charge_bytes)

    def release_closed(self, ended: DestinationState, charge_bytes: int) -> None:
        """Release the charge of a closed or deleted queue or topic.

        A smaller charge for its object stays until nobody refers to the object any more.
        """
        memory = self._destination_memory
        lasting_bytes = CLOSED_QUEUE_BYTES if ended.kind == QUEUE else CLOSED_TOPIC_BYTES
        ended.lasting_charge = memory.make_lasting(lasting_bytes)
        memory.release(charge_bytes - lasting_bytes)

    def charge_or_owe(self, charge_bytes: int) -> None:
        """Charge for a destination that is opened to be deleted, now or as soon as there is room. Never refuses."""
        self._destination_memory.charge(charge_bytes)

    def restore(self, counts: DestinationCounts, subscriptions: int, rows_bytes: int) -> None:
        """Charge for all destinations that opening the store found. SettingsError: memory_limit is too low for them.

        subscriptions: number of subscriptions.
        rows_bytes: charge for rows and lanes that nobody uses.
        """
        charge = counts.charge_bytes
        is_too_much = charge + rows_bytes > self._watermarks.shares.destinations_bytes
        if is_too_much or self._destination_memory.owed_bytes or not self.holder.reserve(charge):
            raise SettingsError(
                f"memory_limit has no room for the {counts.destinations + subscriptions:,} destinations and "
                f"subscriptions of this store, which take {charge + rows_bytes:,} bytes and at most half of what its "
                "fixed parts leave: raise it"
            )
