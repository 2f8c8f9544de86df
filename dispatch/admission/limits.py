"""Admission: how many messages one destination takes, and the senders that wait for room in it.

A sender reserves room before it stores messages, so the limits hold whatever other senders do meanwhile. If there is no
room, a send fails or waits, as the policy says. Waiting senders are served first come, first served, so small messages
do not pass a large one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import ClassVar, Final, Protocol

from ...store.environment.late_log import LateLogger
from ...store.environment.locks import AllOrBroken, OwnedLock
from ...store.errors import Closed, MessageTooLarge, StoreFailed, StoreFull
from ...store.numbering import UNLIMITED
from ..config.policy import DestinationPolicy

POLL_SECONDS: Final = 0.5
"""How often a waiting send asks for room that came without an ack."""
WARN_SECONDS: Final = 10.0
"""A waiting send is logged after this time, and then each time its wait has doubled."""

logger = LateLogger("forebay.dispatch")


class LimitedDestination(ABC):
    """A queue or topic as its limits see it: an interface, which CoreDestination implements.

    Limits and the senders that wait know no lane and no consumer. The state lock guards it.
    """

    __slots__ = ("name",)

    noun: ClassVar[str]
    """The word for it in errors."""
    kind: ClassVar[int]
    """QUEUE or TOPIC, as in the store's table of destinations."""
    drops_oldest: ClassVar[bool] = True
    """Whether its policy may drop the oldest messages for new ones.

    Messages of a topic are dropped by its subscriptions.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def qualified_name(self) -> str:
        """Its name in explanations, such as "0:orders" or "1:prices/audit"."""
        return f"{self.kind}:{self.name}"

    def qualified_names(self) -> list[str]:
        """Return its qualified name, and those of the durable subscriptions that may keep messages sent to it."""
        return [self.qualified_name]

    @property
    @abstractmethod
    def depth(self) -> int:
        """Number of messages that are not acknowledged."""

    @property
    @abstractmethod
    def depth_bytes(self) -> int:
        """Bytes of their bodies and headers."""

    @abstractmethod
    def catch_up(self) -> None:
        """Make the depth exact if it is computed with a delay."""

    @abstractmethod
    def count_dropped(self, messages: int) -> None:
        """Count messages that the policy gave up for want of room."""

    @abstractmethod
    def count_blocked_send(self) -> None:
        """Count a send that begins to wait for room."""

    @abstractmethod
    def count_blocked_seconds(self, seconds: float) -> None:
        """Count the time for which a send has waited for room, when its wait ends."""


class SenderWaker(Protocol):
    """What wakes a waiting sender."""

    def notify(self) -> None:
        """Wake the sender. Called under the state lock."""


class Wait:
    """A condition that a send waits for, in a thread or in a task of an event loop."""

    __slots__ = ("waker", "poll", "free")

    def __init__(self, waker: SenderWaker, poll: Callable[[], float], free: Callable[[], None] | None = None) -> None:
        # Wakes the send. It belongs to the Confirmer that drives the send.
        self.waker = waker
        # Returns 0 when the wait is over, else the seconds after which to ask again without a wake-up. Requires: the
        # lock.
        self.poll = poll
        # Does what may end the wait, and is called first. It may wait for the disk. Requires: no lock.
        self.free = free


@dataclass(slots=True, eq=False)
class Reservation:
    """Room that a sender has for messages that it has not stored yet.

    It is made before any room is reserved, so that an interrupted call always knows what to give back.
    """

    messages: int = 0
    size_bytes: int = 0


@dataclass(slots=True, eq=False)
class LimitWaiter:
    """A sender that has waited since `began` for a reservation under the limits of a destination."""

    sizes: Sequence[int]
    reservation: Reservation
    waker: SenderWaker
    began: float
    deadline: float | None
    """When it stops waiting; None: as the policy says."""
    warn_at: float


class DestinationLimits:
    """The limits of one destination. The state lock guards it."""

    def __init__(
        self,
        destination: LimitedDestination,
        policy: DestinationPolicy,
        lock: OwnedLock,
        monotonic: Callable[[], float],
    ) -> None:
        self._destination = destination
        self._policy = policy
        self._max_size_bytes = policy.max_size_bytes
        self._lock = lock
        self._all_or_broken = AllOrBroken(lock)
        self._monotonic = monotonic
        self.reserved_messages = 0
        self.reserved_bytes = 0
        self._waiting: deque[LimitWaiter] = deque()
        self._is_closed = False
        self._closed_what = ""

    @property
    def has_senders(self) -> bool:
        """Whether a send waits for room or has a reservation."""
        return bool(self._waiting or self.reserved_messages)

    def require_room(self, size: int) -> None:
        """Raise StoreFull if one message may not be stored in this section. Requires: the lock."""
        if self._waiting or not self._fitting((size,)):
            raise self._full(size)

    def admit_now(self, sizes: Sequence[int], reservation: Reservation, deadline: float | None = None) -> int:
        """Reserve room for as many of these messages as possible; return how many. 0: the sender must `wait_for_room`.

        The reservation must be given back. deadline: when the sender stops waiting; None: as the policy says. Raises
        StoreFull if the policy does not wait at all; MessageTooLarge. Requires: no lock.
        """
        if self._max_size_bytes is not None and sizes[0] > self._max_size_bytes:
            raise MessageTooLarge(sizes[0], self._max_size_bytes, "max_bytes of the policy")
        with self._lock, self._all_or_broken:
            admitted = self._reserve_in_line(sizes, reservation)
            if not admitted and not self._waits(deadline):
                raise self._full(sizes[0])
        return admitted

    def _reserve_in_line(self, sizes: Sequence[int], reservation: Reservation) -> int:
        """Reserve room behind waiting senders; return for how many messages. Requires: the lock."""
        return 0 if self._waiting else self._reserve(sizes, reservation)

    def _waits(self, deadline: float | None) -> bool:
        return self._policy.when_full == "block" if deadline is None else deadline > self._monotonic()

    @property
    def drops(self) -> bool:
        """Whether messages are given up if there is no room."""
        return self._policy.drops

    @property
    def diverts(self) -> bool:
        """Whether refused messages go to the dead-letter queue."""
        return self._policy.when_full == "dead_letter"

    def admit_or_drop(
        self, sizes: Sequence[int], reservation: Reservation, drop_oldest: Callable[[int, int], object]
    ) -> int:
        """Admit without waiting. If there is no room, the oldest messages are removed if the policy says so.

        drop_oldest(messages, bytes): removes at least so much, if there is so much. Called under the lock. Return 0 if
        the first message must be given up itself; if it is lost then, it is counted already. Raises MessageTooLarge,
        and StoreFull and StoreFailed of the removals. Requires: no lock.
        """
        if self._max_size_bytes is not None and sizes[0] > self._max_size_bytes:
            raise MessageTooLarge(sizes[0], self._max_size_bytes, "max_bytes of the policy")
        with self._lock, self._all_or_broken:
            if self._policy.when_full == "drop_oldest" and self._destination.drops_oldest:
                drop_oldest(*self._lacking(sizes))
            admitted = self._reserve(sizes, reservation)
            if not admitted and not self.diverts:
                self._destination.count_dropped(1)
        return admitted

    def _lacking(self, sizes: Sequence[int]) -> tuple[int, int]:
        """Return (messages, bytes) to remove, so that as many of these have room as in an empty queue."""
        destination, policy = self._destination, self._policy
        messages = len(sizes) if policy.max_messages is None else min(len(sizes), policy.max_messages)
        if self._max_size_bytes is not None:
            messages = min(messages, sum(1 for total in accumulate(sizes) if total <= self._max_size_bytes))
        lacking_messages = lacking_bytes = 0
        if policy.max_messages is not None:
            lacking_messages = destination.depth + self.reserved_messages + messages - policy.max_messages
        if self._max_size_bytes is not None:
            taken_bytes = destination.depth_bytes + self.reserved_bytes
            lacking_bytes = taken_bytes + sum(sizes[:messages]) - self._max_size_bytes
        return max(lacking_messages, 0), max(lacking_bytes, 0)

    def give_back(self, reservation: Reservation) -> None:
        """End a reservation: its messages count as depth now, or were not stored. A second call does nothing.

        Requires: no lock.
        """
        if reservation.messages:
            with self._lock, self._all_or_broken:
                self.release(reservation)

    def release(self, reservation: Reservation) -> None:
        """End a reservation as give_back does. Requires: the lock."""
        self.reserved_messages -= reservation.messages
        self.reserved_bytes -= reservation.size_bytes
        reservation.messages = reservation.size_bytes = 0
        self.on_room_freed()

    def on_room_freed(self) -> None:
        """Serve waiting senders in order, because messages may have left the destination. Requires: the lock.

        Acks and removals call it, senders that give back a reservation, and waiting senders when they ask again.
        """
        while self._waiting:
            first = self._waiting[0]
            if not self._reserve(first.sizes, first.reservation) and not self._is_closed:
                return
            self._waiting.popleft()
            first.waker.notify()

    def blocked(self) -> list[tuple[str, Sequence[int], float]]:
        """Return for each waiting sender, in order, its limit, the bytes of its messages, and since when it waits.

        Requires: the lock.
        """
        return [(self._full(sender.sizes[0]).limit, sender.sizes, sender.began) for sender in self._waiting]

    def close(self, what: str = "the store") -> None:
        """Raise Closed in all waiting senders. Requires: the lock."""
        self._is_closed = True
        self._closed_what = what
        for sender in self._waiting:
            sender.waker.notify()

    def wait_for_room(
        self, sizes: Sequence[int], reservation: Reservation, waker: SenderWaker, deadline: float | None = None
    ) -> Generator[Wait, None, int]:
        """Wait in line until there is room for at least one message, then admit as admit_now does.

        Raises StoreFull when its time is up; Closed. Requires: no lock.
        """
        now = self._monotonic()
        sender = LimitWaiter(sizes, reservation, waker, now, deadline, now + WARN_SECONDS)
        is_admitted = False
        try:
            with self._lock, self._all_or_broken:
                self.line_up(sender)
            yield Wait(waker, partial(self.poll, sender))
            is_admitted = True
            return reservation.messages
        finally:
            # An error of the wait matters more than one of the release.
            with suppress(StoreFailed), self._lock, self._all_or_broken:
                self._destination.count_blocked_seconds(self._monotonic() - sender.began)
                if not is_admitted:
                    self.leave(sender)

    def line_up(self, sender: LimitWaiter) -> None:
        """Wait for room behind other senders, until `poll` returns 0, or until `leave`.

        Requires: the lock.
        """
        self._waiting.append(sender)
        self._destination.count_blocked_send()

    def poll(self, sender: LimitWaiter) -> float:
        """Return 0 if the sender is admitted, else the seconds after which it must ask again without a wake-up.

        Raises StoreFull when its time is up; Closed. Requires: the lock.
        """
        if self._is_closed:
            raise Closed(self._closed_what)
        self.on_room_freed()
        if sender.reservation.messages:
            return 0.0
        now, timeout, deadline = self._monotonic(), self._policy.block_timeout_seconds, sender.deadline
        if deadline is None and timeout is not None:
            deadline = sender.began + timeout
        left = POLL_SECONDS if deadline is None else deadline - now
        if left <= 0:
            raise self._full(sender.sizes[0])
        if now >= sender.warn_at:
            waited = now - sender.began
            sender.warn_at = now + waited
            logger.warning(
                "a send to %r has waited %.0f s: %s",
                self._destination.name,
                waited,
                self._full(sender.sizes[0]),
                event="send_blocked",
            )
        return min(left, POLL_SECONDS)

    def leave(self, sender: LimitWaiter) -> None:
        """Leave the line and free the sender's reservation. Requires: the lock."""
        if sender in self._waiting:
            self._waiting.remove(sender)
        self.release(sender.reservation)

    def _reserve(self, sizes: Sequence[int], reservation: Reservation) -> int:
        """Reserve room for as many of the first messages as possible; return for how many."""
        admitted = self._fitting(sizes)
        size_bytes = sum(sizes[:admitted])
        reservation.messages += admitted
        reservation.size_bytes += size_bytes
        self.reserved_messages += admitted
        self.reserved_bytes += size_bytes
        return admitted

    def _fitting(self, sizes: Sequence[int]) -> int:
        """Return for how many of the first messages there is room."""
        self._destination.catch_up()
        messages_left = bytes_left = UNLIMITED
        if self._policy.max_messages is not None:
            messages_left = self._policy.max_messages - self._destination.depth - self.reserved_messages
        if self._max_size_bytes is not None:
            bytes_left = self._max_size_bytes - self._destination.depth_bytes - self.reserved_bytes
        admitted = admitted_bytes = 0
        for size in sizes:
            if admitted >= messages_left or admitted_bytes + size > bytes_left:
                break
            admitted += 1
            admitted_bytes += size
        return admitted

    def _full(self, size_bytes: int) -> StoreFull:
        policy, destination = self._policy, self._destination
        has_most = policy.max_messages is not None and destination.depth + self.reserved_messages >= policy.max_messages
        # If neither limit is reached, other senders wait for the room that just came.
        if has_most or self._max_size_bytes is None:
            return StoreFull(
                size_bytes, 0, f"max_messages={policy.max_messages} of the {destination.noun} {destination.name!r}"
            )
        available = max(self._max_size_bytes - destination.depth_bytes - self.reserved_bytes, 0)
        return StoreFull(
            size_bytes, available, f"max_bytes={policy.max_bytes} of the {destination.noun} {destination.name!r}"
        )
