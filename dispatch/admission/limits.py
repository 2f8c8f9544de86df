"""Admission: how much one destination takes, and who waits for room in it.

A sender reserves its messages before it stores them, so that the limits hold
whatever other senders do meanwhile. Who finds no room fails or waits, as the
policy says; those who wait are served in the order in which they came, so a
large message is not passed by small ones. Nothing here survives the process:
the depth itself is the store's.
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

from ...store.errors import Closed, MessageTooLarge, StoreFailed, StoreFull
from ...store.late_log import LateLogger
from ...store.locks import OwnedLock, Whole
from ...store.numbering import UNLIMITED
from ..config.policy import DestinationPolicy

POLL_SECONDS: Final = 0.5
"""Whatever else than an ack makes room is noticed within this time."""
WARN_SECONDS: Final = 10.0
"""A sender that waits is logged after so long, and again whenever it has waited twice as long."""

logger = LateLogger("forebay.dispatch")


class LimitedDestination(ABC):
    """A queue or topic, as far as its limits know it. The state lock guards it."""

    __slots__ = (
        "name",
        "dropped",
        "blocked_sends",
        "blocked_seconds",
    )

    noun: ClassVar[str]
    """What errors call it."""
    kind: ClassVar[int]
    """QUEUE or TOPIC, as the store's table of destinations has it."""
    drops_oldest: ClassVar[bool] = True
    """Its policy may drop the oldest messages for new ones. Those of a topic are for its subscriptions to drop."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.dropped = 0
        """Messages that the policy gave up for want of room."""
        self.blocked_sends = 0
        self.blocked_seconds = 0.0
        """Time that sends had to wait for room, counted when the wait ends."""

    @property
    def qualified_name(self) -> str:
        """Return the name that explanations have: "0:orders", "1:prices/audit"."""
        return f"{self.kind}:{self.name}"

    def qualified_names(self) -> list[str]:
        """Return its qualified name, and those of the durable subscriptions that may keep what is sent to it."""
        return [self.qualified_name]

    @property
    @abstractmethod
    def depth(self) -> int:
        """Messages that are not acknowledged."""

    @property
    @abstractmethod
    def depth_bytes(self) -> int:
        """Bytes of their bodies and headers."""

    @abstractmethod
    def catch_up(self) -> None:
        """Make the depth exact where it is computed late."""


class Wakeable(Protocol):
    """What a sender that waits is woken by."""

    def notify(self) -> None:
        """Called under the state lock."""


class Wait:
    """Something that a send waits for, whoever waits: a thread, or a task of an event loop."""

    __slots__ = ("woken", "poll", "free")

    def __init__(self, woken: Wakeable, poll: Callable[[], float], free: Callable[[], None] | None = None) -> None:
        self.woken = woken
        """What wakes the send; it belongs to the Confirmer that drives it."""
        self.poll = poll
        """0: it is over; else seconds after which to ask again, if it is not woken before. Requires: the lock."""
        self.free = free
        """What may end the wait, to be done first. It may wait for the disk. Requires: no lock."""


@dataclass(slots=True, eq=False)
class Reservation:
    """Room that a sender has for what it has not stored yet.

    Made before there is any, so that whatever breaks into the call, it is known what is to be given back.
    """

    messages: int = 0
    size_bytes: int = 0


@dataclass(slots=True, eq=False)
class WaitingSender:
    """One that waits since `began`, until something is reserved for it."""

    sizes: Sequence[int]
    reservation: Reservation
    woken: Wakeable
    began: float
    deadline: float | None
    """When it gives up; None: as the policy says."""
    warn_at: float


class DestinationLimits:
    """The limits of one queue. The state lock guards it."""

    def __init__(
        self,
        destination: LimitedDestination,
        policy: DestinationPolicy,
        lock: OwnedLock,
        monotonic: Callable[[], float],
    ) -> None:
        self._destination = destination
        self._policy = policy
        self._max_bytes = policy.max_size_bytes
        self._lock = lock
        self._whole = Whole(lock)
        self._monotonic = monotonic
        self._reserved_messages = 0
        self._reserved_bytes = 0
        self._waiting: deque[WaitingSender] = deque()
        self._is_closed = False
        self._closed_what = ""

    @property
    def is_awaited(self) -> bool:
        """Whether a send waits for room or has some reserved."""
        return bool(self._waiting or self._reserved_messages)

    def require_room(self, size: int) -> None:
        """Raise StoreFull where one message may not be stored in the same section. Requires: the lock."""
        if self._waiting or not self._fitting((size,)):
            raise self._full(size)

    def admit_now(self, sizes: Sequence[int], reservation: Reservation, deadline: float | None = None) -> int:
        """Reserve as many of these messages as there is room for; how many. 0: the sender must wait in `room`.

        The reservation must be given back. deadline: when the sender gives up; None: as the policy says.
        Raises StoreFull where it does not wait at all, MessageTooLarge. Requires: no lock.
        """
        if self._max_bytes is not None and sizes[0] > self._max_bytes:
            raise MessageTooLarge(sizes[0], self._max_bytes, "max_bytes of the queue's policy")
        with self._lock, self._whole:
            admitted = self._reserve_in_line(sizes, reservation)
            if not admitted and not self._waits(deadline):
                raise self._full(sizes[0])
        return admitted

    def _reserve_in_line(self, sizes: Sequence[int], reservation: Reservation) -> int:
        """Reserve room behind those who wait; return for how many. Requires: the lock."""
        return 0 if self._waiting else self._reserve(sizes, reservation)

    def _waits(self, deadline: float | None) -> bool:
        return self._policy.when_full == "block" if deadline is None else deadline > self._monotonic()

    @property
    def drops(self) -> bool:
        """Where there is no room messages are given up."""
        return self._policy.drops

    @property
    def diverts(self) -> bool:
        """Tell whether refused messages go to the dead-letter queue."""
        return self._policy.when_full == "dead_letter"

    def admit_or_drop(
        self, sizes: Sequence[int], reservation: Reservation, drop_oldest: Callable[[int, int], object]
    ) -> int:
        """Admit without waiting: where there is no room the oldest messages go, if the policy says so.

        drop_oldest(messages, bytes): removes at least so much, as far as there is. Called under the lock.
        0: the first of these is to be given up itself; where it is lost with that, it is counted already. Raises
        MessageTooLarge, StoreFull and StoreFailed of the removals. Requires: no lock.
        """
        if self._max_bytes is not None and sizes[0] > self._max_bytes:
            raise MessageTooLarge(sizes[0], self._max_bytes, "max_bytes of the queue's policy")
        with self._lock, self._whole:
            if self._policy.when_full == "drop_oldest" and self._destination.drops_oldest:
                drop_oldest(*self._lacking(sizes))
            admitted = self._reserve(sizes, reservation)
            if not admitted and not self.diverts:
                self._destination.dropped += 1
        return admitted

    def _lacking(self, sizes: Sequence[int]) -> tuple[int, int]:
        """(messages, bytes) that must go, so that as many of these have room as an empty queue would take."""
        destination, policy = self._destination, self._policy
        messages = len(sizes) if policy.max_messages is None else min(len(sizes), policy.max_messages)
        if self._max_bytes is not None:
            messages = min(messages, sum(1 for total in accumulate(sizes) if total <= self._max_bytes))
        lacking_messages = lacking_bytes = 0
        if policy.max_messages is not None:
            lacking_messages = destination.depth + self._reserved_messages + messages - policy.max_messages
        if self._max_bytes is not None:
            lacking_bytes = destination.depth_bytes + self._reserved_bytes + sum(sizes[:messages]) - self._max_bytes
        return max(lacking_messages, 0), max(lacking_bytes, 0)

    def give_back(self, reservation: Reservation) -> None:
        """End the reservation: what was reserved counts as depth now, or was not stored. Twice is once.

        Requires: no lock.
        """
        if reservation.messages:
            with self._lock, self._whole:
                self.release(reservation)

    def release(self, reservation: Reservation) -> None:
        """End the reservation as give_back does. Requires: the lock."""
        self._reserved_messages -= reservation.messages
        self._reserved_bytes -= reservation.size_bytes
        reservation.messages = reservation.size_bytes = 0
        self.room_came()

    def room_came(self) -> None:
        """Serve those who wait, because something may have left the queue. Requires: the lock."""
        while self._waiting:
            first = self._waiting[0]
            if not self._reserve(first.sizes, first.reservation) and not self._is_closed:
                return
            self._waiting.popleft()
            first.woken.notify()

    def blocked(self) -> list[tuple[str, Sequence[int], float]]:
        """Yield for each that waits, in order, its limit, the bytes of its messages, and since when.

        Requires: the lock.
        """
        return [(self._full(sender.sizes[0]).limit, sender.sizes, sender.began) for sender in self._waiting]

    def close(self, what: str = "the store") -> None:
        """Raise Closed in everybody who waits. Requires: the lock."""
        self._is_closed = True
        self._closed_what = what
        for sender in self._waiting:
            sender.woken.notify()

    def room(
        self, sizes: Sequence[int], reservation: Reservation, woken: Wakeable, deadline: float | None = None
    ) -> Generator[Wait, None, int]:
        """Wait in line until there is room for one message at least, then admit as admit_now does.

        Raises StoreFull when its time is up, Closed. Requires: no lock.
        """
        now = self._monotonic()
        sender = WaitingSender(sizes, reservation, woken, now, deadline, now + WARN_SECONDS)
        is_admitted = False
        try:
            with self._lock, self._whole:
                self.line_up(sender)
            yield Wait(woken, partial(self.poll, sender))
            is_admitted = True
            return reservation.messages
        finally:
            with suppress(StoreFailed), self._lock, self._whole:  # what was raised counts, not what comes of it
                self._destination.blocked_seconds += self._monotonic() - sender.began
                if not is_admitted:
                    self.leave(sender)

    def line_up(self, sender: WaitingSender) -> None:
        """Wait for room, behind those who wait already: until `poll` says that it has come, or `leave`.

        Requires: the lock.
        """
        self._waiting.append(sender)
        self._destination.blocked_sends += 1

    def poll(self, sender: WaitingSender) -> float:
        """0: it is admitted; else seconds after which it must ask again, if it is not woken before.

        Raises StoreFull when its time is up, Closed. Requires: the lock.
        """
        if self._is_closed:
            raise Closed(self._closed_what)
        self.room_came()
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

    def leave(self, sender: WaitingSender) -> None:
        """Leave the line: the sender's place and what was reserved for it are free. Requires: the lock."""
        if sender in self._waiting:
            self._waiting.remove(sender)
        self.release(sender.reservation)

    def _reserve(self, sizes: Sequence[int], reservation: Reservation) -> int:
        """Reserve room for as many of the first as there is room for; return for how many."""
        admitted = self._fitting(sizes)
        size_bytes = sum(sizes[:admitted])
        reservation.messages += admitted
        reservation.size_bytes += size_bytes
        self._reserved_messages += admitted
        self._reserved_bytes += size_bytes
        return admitted

    def _fitting(self, sizes: Sequence[int]) -> int:
        """Return for how many of the first there is room."""
        self._destination.catch_up()
        messages_left = bytes_left = UNLIMITED
        if self._policy.max_messages is not None:
            messages_left = self._policy.max_messages - self._destination.depth - self._reserved_messages
        if self._max_bytes is not None:
            bytes_left = self._max_bytes - self._destination.depth_bytes - self._reserved_bytes
        admitted = admitted_bytes = 0
        for size in sizes:
            if admitted >= messages_left or admitted_bytes + size > bytes_left:
                break
            admitted += 1
            admitted_bytes += size
        return admitted

    def _full(self, size_bytes: int) -> StoreFull:
        policy, destination = self._policy, self._destination
        has_most = (
            policy.max_messages is not None and destination.depth + self._reserved_messages >= policy.max_messages
        )
        if has_most or self._max_bytes is None:  # neither, where room came for others who wait and don't know it yet
            return StoreFull(
                size_bytes, 0, f"max_messages={policy.max_messages} of the {destination.noun} {destination.name!r}"
            )
        available = max(self._max_bytes - destination.depth_bytes - self._reserved_bytes, 0)
        return StoreFull(
            size_bytes, available, f"max_bytes={policy.max_bytes} of the {destination.noun} {destination.name!r}"
        )
