"""The classes that a message passes in dispatch: destination, lane, TargetList, selector group and consumer.

They share a module because they hold each other in a circle. A destination has selector groups. A selector group has
lists and consumers. A list has its lane. A lane and a consumer have their destination, and a lane has its only list.
Each of these attributes has the class that it holds as its type, because each message passes here, and machine code
is fast only where it knows the class.

Only the circle is here. What a class does without the others is in its base class below this module: ListSupply,
LaneStorage, SelectorGroupConsumers, AbstractConsumer and DestinationLifecycle. The kinds of lanes and of destinations
are above it. The state lock guards all objects.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar, Final

from ....cache.accounting.charge import OVERHEAD_BYTES
from ....cache.accounting.overdraft import Overdraft
from ....cache.accounting.shares import near_bytes
from ....cache.messages.memory_registry import MemoryRegistry
from ....cache.messages.message_memory import MessageMemory
from ....store.index.pending_lane import PendingLane
from ....store.stored_message import StoredMessage
from ....store.structures.sequence_set import SequenceSet
from ...selectors.selector import Selector
from ..lists.list_contents import NO_MESSAGES
from ..lists.list_supply import ListSupply
from ..lists.load import Load
from ..monitor import Monitor
from .abstract_target_area import AbstractTargetArea, AbstractTargetLists
from .delivery import AbstractConsumer, Delivery
from .distribution_roles import (
    AbstractDistributionChooser,
    ConsumerCoordinator,
    Dispatcher,
    Explainer,
    LaneListener,
)
from .lane_storage import LaneStateParts, LaneStorage
from .lifecycle import DestinationLifecycle
from .selector_group_consumers import SelectorGroupConsumers

LANE_STATE_BYTES: Final = 1024
"""Charged for an open lane, without its messages and its part of the index."""


class CoreConsumer(AbstractConsumer):
    """An AbstractConsumer, and what it takes from: a consumer as the core knows it.

    Consumer, in dispatch/consumer, implements it. The state lock guards it.
    """

    __slots__ = ("destination", "dispatcher", "selector_group")

    destination: CoreDestination
    selector_group: SelectorGroup
    """Has the lists that the consumer takes from."""
    dispatcher: Dispatcher[CoreConsumer]
    """Hands out messages from RAM to this consumer. The queue chooses it; it is kept here to save each take a call."""

    @abstractmethod
    def move_to(self, selector_group: SelectorGroup) -> None:
        """Take from another selector group from now on. Requires: the lock."""


NO_LISTS: Final[list[TargetList]] = []
"""What each selector group without lists has as its lists. It always stays empty."""


class SelectorGroup(SelectorGroupConsumers[CoreConsumer]):
    """The consumers of a queue that have the same selector or none, and their lists, highest priority first.

    The selector groups of a queue compete for its messages: each message goes to one of them.
    """

    __slots__ = ("lists", "misses", "is_charged")
    notes_message_groups: ClassVar[bool] = False
    """Whether a load tells this group the message groups of messages that are too large for RAM."""

    def __init__(self, selector: Selector | None) -> None:
        super().__init__(selector)
        self.lists = NO_LISTS
        self.misses = 0
        # Whether the selector group is charged. It is charged once, even if its consumer reads several destinations.
        self.is_charged = False

    @property
    def common(self) -> SelectorGroup:
        """The selector group whose lists all consumers with this selector share: by default this one."""
        return self

    def source_list(self, target: TargetList) -> TargetList:
        """Return the list from which messages get into `target`, for traces: by default `target` itself."""
        return target

    def add_list(self, target: TargetList) -> None:
        """Add a new list behind the others."""
        if self.lists is NO_LISTS:
            self.lists = []
        self.lists.append(target)

    def in_turn(self) -> Iterable[TargetList]:
        """Return the lists in the order in which messages are handed out from them."""
        return self.lists

    def claim(self, lane: LaneState, message: StoredMessage) -> bool:
        """Claim a message of a list for a hand-out; return False if another consumer has it or it is gone.

        In both cases no cache needs its copy any more. But a non-persistent message keeps its copies until a delivery
        holds it, because a copy may be all that is left of it.
        """
        if lane.is_persistent:
            lane.drop_copies(message[0])
        return lane.is_free(message[0])

    def note_message_group(self, lane: LaneState, message: StoredMessage) -> None:
        """Note the group of a message whose body a load has read and does not keep. Requires: notes_message_groups."""


class TargetList(ListSupply):
    """The messages of one lane that one selector group gets next. The first of them are in RAM.

    ListContents says where each message is. Loads bring more from the store and keep `direct_bytes` between the
    watermarks. The state lock guards it.
    """

    __slots__ = (
        "lane",
        "selector_group",
        "skip_names",
        "needs_claims",
        "counterpart",
        "is_unchecked",
        "is_timed",
    )

    def __init__(self, lane: LaneState, selector_group: SelectorGroup, consumer_memory: Overdraft) -> None:
        """Make an empty list. consumer_memory: pays for its runs."""
        super().__init__(consumer_memory, lane.memory)
        self.lane = lane
        self.selector_group = selector_group
        # Headers by which a scan for the selector skips blocks. If empty, the scan examines each block.
        self.skip_names = lane.skip_names(selector_group.selector)
        # Whether each message must be claimed before it is handed out, because it may not be free. That is so if other
        # selector groups take from the same lane, if some messages were parked or dead letters when the list began, or
        # if the list has the messages that are assigned to one consumer.
        self.needs_claims = False
        # The list of the same selector group and priority that has the messages of the other delivery mode.
        self.counterpart: TargetList | None = None
        # Whether direct messages can be handed out without checks: the list needs no claims, is not timed, and has no
        # counterpart and no quota.
        self.is_unchecked = False
        # Whether messages may have expired, so that each must be checked before it is handed out.
        self.is_timed = lane.is_timed
        self._update_unchecked()

    def _update_unchecked(self) -> None:
        """Compute `is_unchecked` anew, because a field that decides it has changed."""
        needs_checks = self.needs_claims or self.is_timed or self.counterpart is not None
        self.is_unchecked = not needs_checks and self.memory.is_common

    @property
    def has_supply(self) -> bool:
        """Whether there may be messages behind the direct ones, or messages that came back."""
        return self.frontier < self.lane.published_end or self.references.count > 0 or self.returned.count > 0

    @property
    def is_near(self) -> bool:
        """Whether so little is pending in its lane that consumers soon want what arrives."""
        pending_lane = self.lane.pending_lane
        enough = near_bytes(self.memory.fair_list_bytes, self.high_watermark_bytes)
        # In a deep backlog the overhead of the messages alone is more than enough. This cheap question comes first,
        # because each single arrival behind a backlog asks it.
        if pending_lane.pending_messages * OVERHEAD_BYTES > enough:
            return False
        messages, content_bytes = pending_lane.depth
        return content_bytes + messages * OVERHEAD_BYTES <= enough

    def reoffer(self, runs: Iterable[tuple[int, int]]) -> None:
        """Put runs that are free again, or due, into their places, if the list has passed or skipped them.

        A load skips messages that are delayed. So a message that is due now may be missing between direct messages, and
        between those of the load under way. O(runs), and the direct messages and references between the first and the
        last run.
        """
        missing = SequenceSet()
        for first, last in runs:
            if first < self.frontier:
                missing.add(first, min(last, self.frontier - 1))
            if self.cut_load(first, last):
                self.lane.recheck_loads()
        self.forget_known(missing)
        for first, last in missing:
            self.returned.add(first, last)

    def require_claims(self) -> None:
        """Have each message claimed before it is handed out, because it may not be free; see `needs_claims`.

        The list needs claims until `try_without_claims`, even if the other selector groups end before that.
        """
        self.needs_claims = True
        self._update_unchecked()

    def try_without_claims(self) -> None:
        """Hand out without claims again if the list is alone over its lane, has no message and gets none by a load.

        Other selector groups may have taken a message that the list has now. A message that it gets later has arrived
        or come back, so it is free.
        """
        if self.lane.sole_list is self and not (self.direct or self.has_supply or self.is_loading):
            self.needs_claims = False
            self._update_unchecked()

    def watch_times(self) -> None:
        self.is_timed = True
        self._update_unchecked()

    def pair(self, counterpart: TargetList) -> None:
        self.counterpart = counterpart
        self._update_unchecked()

    def move_high_watermark(self, high_watermark_bytes: int, read_ahead_share: float) -> None:
        """Move the watermarks, at most to the bytes that the lane allows its lists to hold."""
        super().move_high_watermark(min(high_watermark_bytes, self.lane.list_bytes_max), read_ahead_share)

    def close(self) -> None:
        """Let go of everything, as ListContents.close does, and of the counterpart.

        Two lists that point at each other would stay in RAM, with their queue, until a garbage collection.
        """
        super().close()
        self.counterpart = None

    def on_memory_freed(self) -> None:
        """Ask for a load again if enough memory is free now. Called by DispatchArea.retry_waiters.

        The loader had given the list up for want of memory.
        """
        self.lane.target_area.retry_load(self)

    def _check(self) -> None:
        assert self.direct is not NO_MESSAGES or self.lane.sole_list is not self, (
            "arrivals on the fast path would be lost"
        )
        super()._check()


class LaneState(LaneStorage):
    """A LaneStorage, and how its messages get to consumers: one lane as dispatch knows it.

    PersistentLaneState and NonPersistentLaneState are its two kinds. `pending_lane` is the store's object for the same
    lane; docs/internals/lanes.md has all classes of both families. The state lock guards it.
    """

    __slots__ = ("destination", "target_area", "sole_list", "charged_bytes", "is_timed")
    state_bytes: ClassVar[int] = LANE_STATE_BYTES
    """Charged for the lane itself."""
    joins_slices: ClassVar[bool] = True
    """Whether slices that are published together may arrive as one."""

    def __init__(self, destination: CoreDestination, pending_lane: PendingLane, id_prefix: str) -> None:
        """Make the state of an open lane.

        destination: the queue or subscription whose consumers take from the lane, or the topic to which it belongs.
        """
        super().__init__(pending_lane, id_prefix, destination.memory, destination.parts.lane_state_parts)
        self.destination = destination
        # Takes each arrival that no sole list takes.
        self.target_area = destination.parts.target_area
        # The only list of this lane, if there is just one, without a selector and with the ordinary distribution.
        # Arrivals take the fast path to it.
        self.sole_list: TargetList | None = None
        # Whether messages have, or had, a delay or an expiry; see core/redelivery/timed_lanes.py.
        self.is_timed = False
        # Charge of the lane; 0 once it is gone.
        self.charged_bytes = self.state_bytes
        destination.parts.destination_memory.charge(self.charged_bytes)

    @property
    def destination_name(self) -> str:
        """The name of the destination that the messages were sent to."""
        return self.destination.name

    @property
    def distribution(self) -> Distribution:
        """Decides which consumer gets which message of the lane."""
        return self.destination.distribution

    def selector_group_lists(self) -> list[TargetList]:
        """Return the list of each selector group over this lane, without lists that belong to a single consumer."""
        lists: list[TargetList] = []
        for selector_group in self.destination.selector_groups.values():
            for target in selector_group.lists:
                if target.lane is self:
                    lists.append(target)  # a comprehension would make an iterator object in machine code
        return lists

    def use_sole_list(self, target: TargetList | None) -> None:
        """Let arrivals take the fast path to this list from now on. None: there is no such list."""
        self.sole_list = target
        if target is not None:
            target.own_direct()

    def release_charge(self) -> None:
        """Release the charge of a lane that has ended. A second call does nothing."""
        self.destination.parts.destination_memory.release(self.charged_bytes)
        self.charged_bytes = 0

    def receiving_lanes(self) -> Iterator[LaneState]:
        """Yield every lane whose consumers get the messages that arrive here, this lane first."""
        yield self

    def all_receiving_lanes(self) -> list[LaneState]:
        """Return the receiving lanes, and the lanes of durable subscriptions that nobody has read since the open."""
        return list(self.receiving_lanes())

    def acknowledge_parked(self, first: int, last: int) -> None:
        """Count a run as acknowledged that a transaction held and has committed. Requires: the run is removed.

        The distribution learns of it only now, and senders that wait for room are served.
        """
        messages = last - first + 1
        self.acknowledged += messages
        self.parked.remove(first, last)
        self.distribution.settled(self, first, messages)
        if self.delivery_counts is not None:
            self.trim_delivery_counts(first, last)
        self.destination.on_room_freed()

    def count_as_dead_letters(self, messages: int) -> None:
        """Count as dead letters so many messages that were counted as acknowledged."""
        self.acknowledged -= messages
        self.destination.dead_lettered += messages

    @property
    def expiry_lane_state(self) -> LaneState:
        """The lane from which expired messages of this one are removed."""
        return self

    def arrive_unloaded(self, end: int) -> None:
        """Let everything before `end` arrive. New messages among them are not in RAM, or not due yet."""
        self.target_area.offer_unloaded(self, end)

    def on_load_installed(self, load: Load[TargetList]) -> None:
        """Act on a load that was put into its list. Called by put_into_list, in loading/installing.py.

        A lane whose messages other lists need too keeps them in a cache. Default: no other list needs them.
        """


class Distribution(
    Dispatcher[CoreConsumer],
    ConsumerCoordinator["CoreDestination", SelectorGroup, CoreConsumer],
    LaneListener[LaneState],
    Explainer[LaneState, CoreConsumer],
):
    """Decides which consumer of a queue gets which message. The package dispatch/distribution has all distributions.

    distribution_roles.py says what each of the four roles asks of it.
    """

    def make_selector_group(self, destination: CoreDestination, selector: Selector | None) -> SelectorGroup:
        """Return a new selector group of the queue."""
        return destination.make_selector_group(selector)


@dataclass(frozen=True, slots=True, kw_only=True)
class DestinationStateParts:
    """The parts of an open store with which each DestinationState and each LaneState is made."""

    target_area: AbstractTargetArea[LaneState, TargetList]
    target_lists: AbstractTargetLists[LaneState, TargetList]
    lane_state_parts: LaneStateParts
    distribution_chooser: AbstractDistributionChooser[CoreDestination, Distribution]
    """Chooses the distribution of each destination."""
    monitor: Monitor
    memories: MemoryRegistry
    """The memory of each destination's messages."""
    destination_memory: Overdraft
    """Pays for open destinations and their lanes."""


class CoreDestination(DestinationLifecycle):
    """A DestinationLifecycle, and who takes from it, by which distribution: a destination as the core knows it.

    DestinationState, in destinations/destination_state.py, adds the lanes. The state lock guards it.
    """

    __slots__ = ("parts", "monitor", "selector_groups", "distribution", "exclusive")

    has_lists: ClassVar[bool] = True
    """Whether consumers take from its own lanes."""
    keeps_message_groups: ClassVar[bool] = True
    """Whether all messages of one group go to one consumer."""
    spans_others: ClassVar[bool] = False
    """Whether its consumer takes from the lanes of other destinations; see `sources`."""

    def __init__(self, parts: DestinationStateParts, number: int, name: str) -> None:
        super().__init__(number, name)
        self.parts = parts
        # Each arrival that may wake a consumer reads it.
        self.monitor = parts.monitor
        # By text of the selector; None: the selector group of the consumers without a selector.
        self.selector_groups: dict[str | None, SelectorGroup] = {}
        # Decides which consumer gets which message.
        self.distribution: Distribution = parts.distribution_chooser.initial(self)
        # The exclusive consumer, which gets everything. None: all consumers may take.
        self.exclusive: CoreConsumer | None = None

    @property
    def memory(self) -> MessageMemory:
        """The memory to which its messages are charged. O(patterns) if a policy sets memory apart."""
        return self.parts.memories.of(self.name)

    def make_selector_group(self, selector: Selector | None) -> SelectorGroup:
        """Return a new selector group for the ordinary distribution."""
        return SelectorGroup(selector)

    def all_selector_groups(self) -> tuple[SelectorGroup, ...]:
        """Return its selector groups, and those that its distribution has for single consumers.

        O(selector groups returned).
        """
        return (*self.selector_groups.values(), *self.distribution.own_selector_groups())

    @abstractmethod
    def all_lanes(self) -> Iterator[LaneState]:
        """Yield the existing lanes, highest priority first."""

    def lists_over(self, lane: LaneState) -> Iterator[TargetList]:
        """Yield every list over one of its lanes."""
        selector_groups = self.all_selector_groups()
        return (target for selector_group in selector_groups for target in selector_group.lists if target.lane is lane)

    def sources(self) -> Iterable[CoreDestination]:
        """Return the destinations whose lanes its consumers take from: by default this one."""
        return (self,)

    def holds_up(self, consumer: CoreConsumer) -> bool:
        """Return whether a consumer gets nothing for now, even if messages are there."""
        is_excluded = self.exclusive is not None and self.exclusive is not consumer
        return self.is_paused or is_excluded or consumer.stage.is_draining

    def free_kept_for(self, consumer: CoreConsumer) -> None:
        """Let other consumers have what is kept for one that gets nothing, unless the destination is paused.

        Call it again when the consumer settles messages, because it keeps each group until it holds none of it.
        """
        if not self.is_paused:
            self.distribution.revoke(consumer)

    def forget_selector_groups(self) -> None:
        """Forget its selector groups. Requires: their lists over its lanes have ended."""
        self.selector_groups.clear()

    def consumers(self) -> Iterator[CoreConsumer]:
        return (consumer for selector_group in self.selector_groups.values() for consumer in selector_group.consumers)

    def on_consumer_closed(self) -> None:
        """Act on the close of one of its consumers. Called by ConsumerEnding. Requires: the lock.

        A subscription goes offline with its last consumer. Default: nothing happens.
        """


def lane_of(delivery: Delivery) -> LaneState:
    """Return the lane from which a delivery was handed out."""
    lane = delivery.lane
    assert isinstance(lane, LaneState)
    return lane
