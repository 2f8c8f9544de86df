"""The contracts of a distribution: what it is asked, what it is told, and who chooses it.

A distribution decides which consumer of a destination gets which message. It has four roles: it dispatches messages
(Dispatcher), lets consumers join and leave (ConsumerCoordinator), is told what happens to messages (LaneListener), and
answers explanations (Explainer). An AbstractDistributionChooser chooses the distribution of each destination.

Destinations, lanes, selector groups and consumers are type parameters, because these contracts only pass them on.
`Distribution` in destination.py sets them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import ClassVar, Final, Generic, TypeVar

from ....store.compiler import trait
from ....store.stored_message import StoredMessage
from ....store.structures.sequence_set import SequenceSet
from ...selectors.selector import Selector
from .delivery import AbstractConsumer, Delivery, DeliveryLane

LaneT = TypeVar("LaneT", bound=DeliveryLane)
ConsumerT = TypeVar("ConsumerT", bound=AbstractConsumer)
TakerT = TypeVar("TakerT", bound=AbstractConsumer, contravariant=True)
DestinationT = TypeVar("DestinationT")
SelectorGroupT = TypeVar("SelectorGroupT")
DistributionT = TypeVar("DistributionT")


class Dispatcher(ABC, Generic[TakerT]):
    """Dispatches messages that are in RAM: hands them out to a consumer that takes.

    Each consumer has the Dispatcher of its queue.
    """

    @abstractmethod
    def dispatch_one(self, consumer: TakerT) -> Delivery | None:
        """Dispatch one message, faster than `dispatch` does. None: call `dispatch`. Requires: the lock."""

    @abstractmethod
    def dispatch(self, consumer: TakerT, most: int, max_bytes: int | None) -> list[Delivery]:
        """Dispatch up to so many messages, with up to so many bytes in total unless that is None.

        Requires: the lock.
        """


class NoDispatch(Dispatcher[AbstractConsumer]):
    """The dispatcher of a consumer that is held up, drains or is closed: it dispatches nothing."""

    def dispatch_one(self, consumer: AbstractConsumer) -> Delivery | None:
        return None

    def dispatch(self, consumer: AbstractConsumer, most: int, max_bytes: int | None) -> list[Delivery]:
        return []


NO_DISPATCH: Final = NoDispatch()


@trait
class ConsumerCoordinator(Generic[DestinationT, SelectorGroupT, ConsumerT]):
    """The role in which consumers join a distribution, wait and leave, and get its `dispatcher`.

    Every method requires the lock.
    """

    is_ordinary: ClassVar[bool] = False
    """Whether all consumers of a selector group share its lists, and the next take gets the next message."""
    honours_groups_and_priorities: ClassVar[bool] = False
    """Whether it is kept when a message with a group or a consumer with a priority comes, because it honours both.

    With one consumer every distribution honours both.
    """
    keeps_open: ClassVar[bool] = True
    """Whether an idle queue stays open, because the distribution knows something of it that would be lost."""

    @property
    @abstractmethod
    def dispatcher(self) -> Dispatcher[ConsumerT]:
        """Dispatches to consumers of the queue: the distribution itself, or an object that does the same faster."""

    @property
    def is_held_up(self) -> bool:
        """Whether nothing is handed out to any consumer for now."""
        return False

    @abstractmethod
    def make_selector_group(self, destination: DestinationT, selector: Selector | None) -> SelectorGroupT:
        """Return a new selector group of the queue."""

    def adopt_consumers(self, destination: DestinationT) -> None:
        """Take over the consumers of a destination, because this distribution replaces the ordinary one there."""

    def own_selector_groups(self) -> Iterable[SelectorGroupT]:
        """Return the selector groups that belong to a single consumer. The queue has the others."""
        return ()

    def join(self, consumer: ConsumerT, selector_group: SelectorGroupT) -> None:
        """Add a new consumer of a selector group."""

    @abstractmethod
    def leave(self, consumer: ConsumerT) -> None:
        """Remove a closed consumer, before its deliveries are given back."""

    def revoke(self, consumer: ConsumerT) -> None:
        """Give a consumer nothing more, and let others have what is kept for it."""

    def reoffer_stranded(self) -> None:
        """Reoffer messages that are kept for consumers that can take nothing now: they are slow or have no credit."""

    def wake_others(self, selector_group: SelectorGroupT) -> None:
        """Wake other consumers of a selector group, because one that was woken takes nothing.

        The caller has called `reoffer_stranded` before.
        """


@trait
class LaneListener(Generic[LaneT]):
    """The role in which a distribution is told what happens to messages. Every method requires the lock."""

    def add_lane(self, lane: LaneT) -> None:
        """Take a new lane of the queue in. Each selector group of the queue has a list over it."""

    @abstractmethod
    def reoffer_returned(self, lane: LaneT, message: StoredMessage) -> None:
        """Reoffer a pending message that was handed out and is free now."""

    @abstractmethod
    def reoffer_delayed(self, lane: LaneT, runs: Sequence[tuple[int, int]]) -> None:
        """Reoffer messages that came back with a delay, because they are due."""

    def reassign(self) -> None:
        """Unassign what is assigned, because older messages have come back that must go first."""

    def comes_back(self, delivery: Delivery, *, is_delayed: bool) -> None:
        """Note that a delivery is given back, now or later."""

    def remember_delayed(self, lane: LaneT, runs: Iterable[tuple[int, int]]) -> SequenceSet:
        """Halt the groups of messages that an earlier process delayed; return those for which memory has no room."""
        return SequenceSet()

    def settled(self, lane: LaneT, first: int, messages: int) -> None:
        """Note that a transaction or a dead-letter queue has settled a run."""

    def forget(self, lane: LaneT, gone: SequenceSet) -> None:
        """Forget messages that were removed."""


@trait
class Explainer(Generic[LaneT, ConsumerT]):
    """The role in which a distribution answers explanations and audits. Requires: the lock. It changes nothing.

    By default no message has an owner before it is handed out, and no message waits for another.
    """

    def by_owner(self, lane: LaneT, messages: Iterable[StoredMessage]) -> dict[ConsumerT | None, list[StoredMessage]]:
        """Return free messages by the consumer that owns their group, without those that wait for another message.

        None as owner: no consumer owns the group.
        """
        return {None: list(messages)}

    def kind_of(self, consumer: ConsumerT) -> Hashable:
        """Return a key for a consumer. Consumers with the same key could get the same messages without an owner."""
        return None

    def unowned_of(
        self, consumer: ConsumerT, lane: LaneT, messages: Iterable[StoredMessage]
    ) -> Iterator[StoredMessage]:
        """Return those of the free messages without an owner that this consumer would get if it took now."""
        return iter(messages)

    def kept_for_others(self, consumer: ConsumerT) -> list[int]:
        """Return for each other consumer how many free messages are kept for it, for consumers with any."""
        return []

    def count_kept_from(self, consumers: Iterable[ConsumerT]) -> int:
        """Return how many free messages some of these consumers do not get, because they are kept for others."""
        return 0

    def count_waiting(self) -> int:
        """Return how many messages wait behind a message of their group that comes back later, or somewhat more."""
        return 0

    def is_outranked(self, consumer: ConsumerT) -> bool:
        """Return whether consumers of higher priority get all messages without an owner before this one."""
        return False

    def audit(self) -> tuple[int, int]:
        """Return the bytes held for message groups, and how many of them for groups that are halted."""
        return 0, 0


class AbstractDistributionChooser(ABC, Generic[DestinationT, DistributionT]):
    """The calls of the DistributionChooser that destinations make. Every method requires the lock."""

    @abstractmethod
    def initial(self, destination: DestinationT) -> DistributionT:
        """Return the distribution of a new destination."""

    @abstractmethod
    def require_assignable(self, destination: DestinationT) -> None:
        """Raise StateError if a destination's distribution honours no groups and priorities and may not be replaced."""

    @abstractmethod
    def begin_assigning(self, destination: DestinationT) -> None:
        """Assign messages of a destination to its consumers by groups and priorities from now on.

        Does nothing if its distribution honours both already. StateError, as `require_assignable` raises it: nothing
        has changed.
        """
