"""AckDeadlines: give back deliveries that a consumer has not settled in time, each as a failed attempt.

There is no timer for each delivery, and a hand-out reads no clock. Instead, eight times in the length of a deadline, a
note records how many deliveries each consumer has had so far. When a note is as old as the deadline, each delivery that
it counts and that is still in flight is late. So a delivery never comes back early, and at most an eighth of the
deadline late.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import inf
from typing import Final

from ....cache.accounting.budget import Budget, Holder
from ....store.environment.late_log import LateLogger
from ....store.errors import StoreFull
from ..memory.reclaim import Reclaim
from ..model.delivery import AbstractConsumer, Delivery, DeliveryLane, mark_late
from ..model.destination import CoreConsumer, CoreDestination, LaneState
from ..monitor import Monitor
from .redelivery import Redelivery

logger = LateLogger("forebay.dispatch")

LOOKS: Final = 8
"""How many notes are taken in the length of a deadline."""
WATCH_BYTES: Final = 1024
"""Charged for a consumer with a deadline: its notes."""
EXTENSION_BYTES: Final = 256
"""Charged for a delivery whose deadline was extended."""
RETURNED_MAX: Final = 1_000
"""Most deliveries that one call gives back, which takes a few milliseconds."""
TOLD_AGAIN_SECONDS: Final = 60.0
"""Shortest time between two log messages about late deliveries.

Each one counts all late deliveries since the last one.
"""
STALE_MIN: Final = 64
"""With at least so many extended deliveries of a consumer, settled ones among them are looked for and forgotten."""

_Key = tuple[DeliveryLane, int]


class _Watched:
    """A consumer that has a deadline."""

    __slots__ = ("wheel", "noted", "extended", "prune_at")

    def __init__(self, wheel: _Wheel) -> None:
        self.wheel = wheel
        # Number of deliveries of the consumer at the last note.
        self.noted = 0
        # (lane, sequence) -> number of the delivery, and when its extended deadline ends.
        self.extended: dict[_Key, tuple[int, float]] = {}
        self.prune_at = STALE_MIN


class _Wheel:
    """All consumers whose deadline has the same length."""

    __slots__ = ("seconds", "consumers", "notes", "next_note")

    def __init__(self, seconds: float, now: float) -> None:
        self.seconds = seconds
        self.consumers: dict[CoreConsumer, _Watched] = {}
        # Each note has its time, and how many deliveries each consumer had had by then. The oldest note is first. There
        # are at most LOOKS + 1, and one more while a note has more late deliveries than one call gives back.
        self.notes: deque[tuple[float, dict[CoreConsumer, int]]] = deque()
        self.next_note = now + seconds / LOOKS

    @property
    def next_passed(self) -> float:
        """Time at which the oldest note becomes as old as the deadline."""
        return self.notes[0][0] + self.seconds if self.notes else inf

    def unnoted(self) -> list[CoreConsumer]:
        """Return the consumers that hold deliveries which no note counts yet. O(consumers)."""
        return [
            consumer
            for consumer, watched in self.consumers.items()
            # A consumer may hold deliveries although all its notes are gone: a transaction put them back in flight, or
            # memory had no room to take them back. Note these again.
            if consumer.in_flight
            and (consumer.delivered != watched.noted or not any(consumer in noted for _, noted in self.notes))
        ]


class AckDeadlines:
    """The consumers with an ack deadline, and how long they have held their deliveries.

    The state lock guards it; every method requires it held.
    """

    def __init__(
        self,
        monitor: Monitor,
        reclaim: Reclaim,
        redelivery: Redelivery,
        budget: Budget,
        holder: Holder,
        wake_housekeeper: Callable[[], None],
        *,
        has_background: bool,
    ) -> None:
        """has_background: a thread calls `release_due` in time, so that no caller has to."""
        self._monitor = monitor
        self._reclaim = reclaim
        self._redelivery = redelivery
        self._budget = budget
        self._holder = holder
        self._wake_housekeeper = wake_housekeeper
        self._has_background = has_background
        self._wheels: dict[float, _Wheel] = {}
        self._watched: dict[AbstractConsumer, _Watched] = {}
        # Lower bound of the time at which the first extended deadline passes.
        self._next_extended = inf
        self._told_at = -inf
        # Number of late deliveries that no log message has counted yet.
        self._untold = 0
        # When the next note or return is due, in monotonic seconds. May be read without the lock.
        self.next_look = inf

    # ------------------------------------------------------------------ who has deadlines

    @contextmanager
    def reserving(self, seconds: float) -> Iterator[None]:
        """Reserve memory for a consumer with a deadline while it is made; with 0 seconds it has no deadline.

        Raise StoreFull if memory has no room for its notes.
        """
        if not seconds:
            yield
            return
        self._charge(WATCH_BYTES)
        try:
            yield
        except BaseException:
            self._holder.release(WATCH_BYTES)
            raise

    def watch(self, consumer: CoreConsumer, seconds: float) -> None:
        """Give all deliveries of a consumer a deadline. Requires: the caller is inside `reserving`."""
        wheel = self._wheels.get(seconds)
        if wheel is None:
            wheel = self._wheels[seconds] = _Wheel(seconds, self._monitor.monotonic())
            self._plan()
            self._wake_housekeeper()  # the housekeeper may sleep until a later time
        self._watched[consumer] = wheel.consumers[consumer] = _Watched(wheel)

    def unwatch(self, consumer: CoreConsumer) -> None:
        """Forget a consumer that is closed. A second call does nothing."""
        watched = self._watched.pop(consumer, None)
        if watched is None:
            return
        del watched.wheel.consumers[consumer]
        for _, noted in watched.wheel.notes:
            noted.pop(consumer, None)
        self._holder.release(WATCH_BYTES + EXTENSION_BYTES * len(watched.extended))

    def extend(self, consumer: CoreConsumer, deliveries: Sequence[Delivery], seconds: float) -> None:
        """Move the deadline of deliveries in flight to so many seconds from now. StoreFull: nothing has changed."""
        watched = self._watched.get(consumer)
        if watched is None:
            return
        extended = watched.extended
        if len(extended) + len(deliveries) > watched.prune_at:
            self._prune(consumer, watched)
            watched.prune_at = max(STALE_MIN, 2 * (len(extended) + len(deliveries)))
        fresh = sum((held.lane, held.sequence) not in extended for held in deliveries)
        self._charge(EXTENSION_BYTES * fresh)
        until = self._monitor.monotonic() + seconds
        for delivery in deliveries:
            extended[delivery.lane, delivery.sequence] = delivery.number, until
        self._next_extended = min(self._next_extended, until)
        if until < self.next_look:
            self.next_look = until
            self._wake_housekeeper()  # the housekeeper may sleep until a later time

    def _charge(self, charge_bytes: int) -> None:
        if charge_bytes and not self._holder.reserve(charge_bytes):
            self._reclaim.make_room(charge_bytes, None)
            if not self._holder.reserve(charge_bytes):
                raise StoreFull(charge_bytes, max(self._budget.free_bytes, 0), "memory_limit")

    # ------------------------------------------------------------------ as time passes

    @property
    def next_due(self) -> float:
        """When a waiting take should look again, in monotonic seconds: a late delivery may come back to it then."""
        if self._has_background or self.next_look == inf:
            return inf
        passed = min((wheel.next_passed for wheel in self._wheels.values()), default=inf)
        return min(self._next_extended, passed, min(self.next_notes(), default=inf))

    def next_notes(self) -> list[float]:
        """Return when deliveries that no note counts yet must be noted, earliest first, in monotonic seconds.

        A caller that lets time pass without a background thread must look at these times; otherwise such deliveries
        come back later than they should. O(consumers with a deadline).
        """
        return sorted({wheel.next_note for wheel in self._wheels.values() if wheel.unnoted()})

    def release_due(self) -> int:
        """Give back late deliveries and take the notes that are due; return how many deliveries came back."""
        if self.next_look == inf:
            return 0
        now = self._monitor.monotonic()
        if now < self.next_look:
            return 0
        late: list[Delivery] = []
        for wheel in list(self._wheels.values()):
            self._collect(wheel, now, late)
            self._note(wheel, now)
            if not wheel.consumers:
                del self._wheels[wheel.seconds]
        if now >= self._next_extended:
            self._collect_extended(now, late)
        self._plan()
        if late:
            self._give_back(late, now)
        return len(late)

    def _plan(self) -> None:
        nexts = (min(wheel.next_note, wheel.next_passed) for wheel in self._wheels.values())
        self.next_look = min(self._next_extended, min(nexts, default=inf))

    def _note(self, wheel: _Wheel, now: float) -> None:
        """Note how many deliveries each consumer of this wheel has had. O(consumers)."""
        if now < wheel.next_note:
            return
        wheel.next_note = now + wheel.seconds / LOOKS
        noted: dict[CoreConsumer, int] = {}
        for consumer in wheel.unnoted():
            noted[consumer] = wheel.consumers[consumer].noted = consumer.delivered
        if noted:
            wheel.notes.append((now, noted))

    def _collect(self, wheel: _Wheel, now: float, late: list[Delivery]) -> None:
        """Collect deliveries that a note as old as the deadline counts and that are still in flight."""
        if wheel.next_passed > now or len(late) >= RETURNED_MAX:
            return
        at = now
        limits: dict[CoreConsumer, int] = {}
        while wheel.next_passed <= now:
            at, noted = wheel.notes.popleft()
            limits.update(noted)
        queues: dict[CoreDestination, dict[AbstractConsumer, int]] = {}
        for consumer, number in limits.items():
            if consumer.in_flight:
                queues.setdefault(consumer.destination, {})[consumer] = number
        for queue, numbers in queues.items():
            for lane in queue.all_lanes():
                self._collect_lane(lane, numbers, late)
        if len(late) > RETURNED_MAX:
            wheel.notes.appendleft((at, limits))  # the rest follows at the next call, which is due at once
            del late[RETURNED_MAX:]

    def _collect_lane(self, lane: LaneState, limits: dict[AbstractConsumer, int], late: list[Delivery]) -> None:
        """Collect late deliveries of one lane, which has its deliveries in the order of their hand-outs."""
        waiting = set(limits)
        for delivery in lane.deliveries.values():
            consumer = delivery.consumer
            limit = limits.get(consumer)
            if limit is None:
                continue
            if delivery.number > limit:
                waiting.discard(consumer)
                if not waiting:
                    return
            elif not self._is_extended(delivery):
                late.append(delivery)
                if len(late) > RETURNED_MAX:
                    return

    def _is_extended(self, delivery: Delivery) -> bool:
        extended = self._watched[delivery.consumer].extended
        if not extended:
            return False
        extension = extended.get((delivery.lane, delivery.sequence))
        return extension is not None and extension[0] == delivery.number

    def _collect_extended(self, now: float, late: list[Delivery]) -> None:
        """Collect deliveries whose extended deadline has passed. O(extended deliveries)."""
        self._next_extended = inf
        for consumer, watched in self._watched.items():
            self._prune(consumer, watched)
            extended = watched.extended
            passed = [key for key, (_, until) in extended.items() if until <= now]
            for key in passed[: max(RETURNED_MAX - len(late), 0)]:
                del extended[key]
                self._holder.release(EXTENSION_BYTES)
                late.append(key[0].deliveries[key[1]])
            if extended:
                self._next_extended = min(self._next_extended, min(until for _, until in extended.values()))

    def _prune(self, consumer: AbstractConsumer, watched: _Watched) -> None:
        """Forget extended deliveries of a consumer that are settled."""
        extended = watched.extended
        for key in [key for key, (number, _) in extended.items() if not _is_held(consumer, key, number)]:
            del extended[key]
            self._holder.release(EXTENSION_BYTES)

    def _give_back(self, late: list[Delivery], now: float) -> None:
        self._redelivery.return_failed(late, 0.0)
        for delivery in late:
            mark_late(delivery)
        for consumer in dict.fromkeys(delivery.consumer for delivery in late):
            consumer.resume_if_credit()
        self._untold += len(late)
        if now - self._told_at >= TOLD_AGAIN_SECONDS:
            logger.warning(
                "deliveries were not settled before their ack deadline and come again: %d, one of them of %r",
                self._untold,
                late[0].destination,
                event="ack_deadline_passed",
            )
            self._told_at, self._untold = now, 0

    @property
    def charge_bytes(self) -> int:
        """The charge of all consumers with a deadline and of extended deliveries, computed anew."""
        return sum(WATCH_BYTES + EXTENSION_BYTES * len(watched.extended) for watched in self._watched.values())

    def _check(self) -> None:
        """Compare all notes with their consumers; AssertionError if they disagree."""
        assert sum(len(wheel.consumers) for wheel in self._wheels.values()) == len(self._watched)
        for seconds, wheel in self._wheels.items():
            assert seconds == wheel.seconds and len(wheel.notes) <= LOOKS + 2
            for _, noted in wheel.notes:
                assert all(wheel.consumers[consumer].noted >= number for consumer, number in noted.items())


def _is_held(consumer: AbstractConsumer, key: _Key, delivery_number: int) -> bool:
    delivery = key[0].deliveries.get(key[1])
    return delivery is not None and delivery.consumer is consumer and delivery.number == delivery_number
