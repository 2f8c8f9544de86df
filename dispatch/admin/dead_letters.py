"""DeadLetterMover: move messages after their last attempt to the dead-letter queue of their destination.

The move is done in the background; until then nobody gets the message. If the disk takes no more, the message waits and
the move is tried again. After any crash, exactly one of the two queues has the message.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ...store.environment.late_log import LateLogger
from ...store.errors import Closed, ForebayError, StoreFailed
from ..config.policies import Policies
from ..config.redelivery_delays import MAX_ATTEMPTS
from ..core.model.destination import LaneState
from ..core.monitor import Monitor
from ..core.redelivery.removal import Removals
from .browse import Browsers
from .dead_letter_recovery import DeadLetterRecovery
from .dead_letter_writer import BATCH_MESSAGES, DeadLetterWriter

logger = LateLogger("forebay.dispatch")

STEPS: Final = 16
"""Steps of one call of `steps`, so that other tasks of the housekeeper are not late."""
RETRY_SECONDS: Final = 1.0


class DeadLetterMover:
    """Moves messages whose last attempt failed to their dead-letter queue.

    The state lock guards it; `step` takes the lock itself.
    """

    def __init__(
        self,
        *,
        monitor: Monitor,
        removals: Removals,
        browsers: Browsers,
        writer: DeadLetterWriter,
        recovery: DeadLetterRecovery,
        waiting: dict[LaneState, None],
        policies: Policies,
        wake_housekeeper: Callable[[], None],
    ) -> None:
        """waiting: the lanes that have dead letters."""
        self._monitor = monitor
        self._removals = removals
        self._browsers = browsers
        self._writer = writer
        self._recovery = recovery
        self._waiting = waiting
        self._policies = policies
        self._wake_housekeeper = wake_housekeeper
        self._retry_at = 0.0

    def step(self) -> bool:
        """Move up to 256 dead letters of one lane. False: there are none, or all must wait. Requires: no lock."""
        if not self._recovery.is_tidy:
            with self._monitor.lock, self._monitor.all_or_broken:
                self._recovery.tidy()
            return True
        if not self._waiting or self._monitor.monotonic() < self._retry_at:
            return False
        writer = self._writer
        with self._monitor.lock, self._monitor.all_or_broken:
            lane = self._next_lane()
            if lane is None:
                return bool(self._waiting)
            first = lane.dead_letters.first
            last = min(next(iter(lane.dead_letters))[1], first + writer.batch_messages - 1)
            rule = self._policies.redelivery(lane.destination.name)
        try:
            self._move(lane, first, last, rule.dead_letter_queue)
        except (Closed, StoreFailed):
            raise
        except ForebayError as error:
            if writer.batch_messages > 1:
                writer.batch_messages = max(writer.batch_messages // 4, 1)
                return True
            logger.warning("dead letters of %r wait: %s", lane.destination.name, error, event="dead_letters_wait")
            self._retry_at = self._monitor.monotonic() + RETRY_SECONDS
            return False
        with self._monitor.lock, self._monitor.all_or_broken:
            self._leave(lane, first, last)
        writer.batch_messages = min(2 * writer.batch_messages, BATCH_MESSAGES)
        return True

    def steps(self) -> int:
        """Do up to STEPS steps; return how many. Requires: no lock."""
        done = 0
        while done < STEPS and self.step():
            done += 1
        if done == STEPS:
            self._wake_housekeeper()
        return done

    def _next_lane(self) -> LaneState | None:
        """Return the lane whose turn it is, which comes last from now on. None: it has no dead letters any more.

        Requires: the lock.
        """
        lane = next(iter(self._waiting), None)
        if lane is None:
            return None
        del self._waiting[lane]
        if not lane.destination.is_open or not lane.dead_letters:
            lane.dead_letters.clear()
            return None
        self._waiting[lane] = None
        return lane

    def _move(self, lane: LaneState, first: int, last: int, queue: str | None) -> None:
        """Move a run of dead letters to their queue; None: discard them. Requires: no lock."""
        if queue is None:
            self._writer.discard(lane, first, last)
            return
        for messages in self._browsers.loads(lane, first, last + 1):
            for _ in self._writer.move(lane, queue, messages, MAX_ATTEMPTS):
                pass

    def _leave(self, lane: LaneState, first: int, last: int) -> None:
        """Drop these dead letters from the list; pass over those still pending, as unreadable. Requires: the lock."""
        lane.dead_letters.remove(first, last)
        for sequence in self._removals.free_sequences(lane, first, last):
            lane.unreadable += 1
            lane.lose_unreadable(sequence)
