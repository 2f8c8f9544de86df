"""SpaceLine: senders that wait for disk space in the journal or in tmp-storage, whatever destination they send to.

They stand in one line. The first one tries again when space was freed, or soon in any case, and then the others in
order. A waiting send has stored none of the messages that it waits for, so a crash or a cancellation leaves none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ...store.environment.late_log import LateLogger
from ...store.environment.locks import OwnedLock
from ...store.errors import Closed, StoreFull
from ..config.policies import Policies
from .limits import POLL_SECONDS, WARN_SECONDS, LimitedDestination, SenderWaker

logger = LateLogger("forebay.dispatch")

_FOREVER: Final = float("inf")


@dataclass(slots=True, eq=False)
class SpaceWaiter:
    """A send that has waited since `began` for the room that `full` names."""

    destination: LimitedDestination
    sizes: Sequence[int]
    full: StoreFull
    waker: SenderWaker
    began: float
    deadline: float
    next_try: float
    warn_at: float
    freed: int = 0
    """How often space had been freed when it last tried."""


class SpaceLine:
    """Senders that wait for disk space, whatever destination they send to. The state lock guards it."""

    def __init__(self, lock: OwnedLock, monotonic: Callable[[], float], policies: Policies) -> None:
        self._policies = policies
        self._lock = lock
        self._monotonic = monotonic
        self._waiting: deque[SpaceWaiter] = deque()
        self._is_closed = False
        self._freed = 0

    def __iter__(self) -> Iterator[SpaceWaiter]:
        """Iterate over the waiting sends in order of arrival."""
        return iter(self._waiting)

    @property
    def is_empty(self) -> bool:
        return not self._waiting

    def deadline(self, destination: LimitedDestination, full: StoreFull, deadline: float | None) -> float:
        """Return when a send that was just refused stops waiting. Raise `full` if it does not wait at all."""
        now = self._monotonic()
        if deadline is None:
            policy = self._policies.of(destination.name)
            if policy.when_store_full == "block":
                seconds = policy.block_timeout_seconds
                deadline = now + seconds if seconds is not None else _FOREVER
        if deadline is None or deadline <= now:
            raise full
        return deadline

    def new_waiter(
        self,
        destination: LimitedDestination,
        sizes: Sequence[int],
        full: StoreFull,
        deadline: float,
        waker: SenderWaker,
    ) -> SpaceWaiter:
        """Return an entry that may `line_up`."""
        now = self._monotonic()
        return SpaceWaiter(destination, sizes, full, waker, now, deadline, now, now + WARN_SECONDS)

    def line_up(self, waiting: SpaceWaiter) -> None:
        """Wait behind the others until `poll` returns 0, or until `leave`. Requires: the lock."""
        if self._waiting:
            waiting.next_try = waiting.began + POLL_SECONDS
        self._waiting.append(waiting)
        waiting.destination.count_blocked_send()

    def poll(self, waiting: SpaceWaiter) -> float:
        """Return 0 if the send may try now, else the seconds after which it must ask again without a wake-up.

        Raises Closed; and the error of its last attempt when its time is up. Requires: the lock.
        """
        if self._is_closed:
            raise Closed("the store")
        now = self._monotonic()
        is_first = self._waiting[0] is waiting
        if is_first and now >= waiting.next_try:
            waiting.freed = self._freed
            return 0.0
        if now >= waiting.deadline:
            raise waiting.full
        if now >= waiting.warn_at:
            waited = now - waiting.began
            waiting.warn_at = now + waited
            logger.warning(
                "a send to %r has waited %.0f s: %s",
                waiting.destination.name,
                waited,
                waiting.full,
                event="send_blocked",
            )
        next_poll = waiting.next_try if is_first else now + POLL_SECONDS
        return max(min(next_poll, waiting.deadline) - now, 0.001)

    def refused(self, waiting: SpaceWaiter, full: StoreFull) -> None:
        """Note that the first in line has tried and was refused. Requires: the lock."""
        waiting.full = full
        was_freed = waiting.freed != self._freed  # during the attempt
        waiting.next_try = self._monotonic() + (0.0 if was_freed else POLL_SECONDS)

    def leave(self, waiting: SpaceWaiter) -> None:
        """Leave the line, so that the next one may try. Requires: the lock."""
        waiting.destination.count_blocked_seconds(self._monotonic() - waiting.began)
        if waiting in self._waiting:
            self._waiting.remove(waiting)
        self.on_space_freed()

    def on_space_freed(self) -> None:
        """Let the first in line try, because space may have been freed. Requires: the lock.

        Cleanup and tmp-storage call it, and each send that leaves the line.
        """
        self._freed += 1
        if self._waiting:
            self._waiting[0].next_try = self._monotonic()
            self._waiting[0].waker.notify()

    def close(self) -> None:
        """Raise Closed in all waiting sends. Requires: the lock."""
        self._is_closed = True
        for waiting in self._waiting:
            waiting.waker.notify()
