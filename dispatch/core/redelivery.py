"""Redelivery: what becomes of deliveries that did not end with an ack.

Each is counted, in the journal where the message itself is; then it waits as
long as its policy says and is offered again in its place, or has had its last
attempt and is a dead letter. First deliveries pass none of this: a lane of
which nothing ever came back has no counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from ...store.format.state import CountedRun
from ..admin.dead_letters import DeadLetters
from ..config.redelivery import RedeliveryRule

if TYPE_CHECKING:
    from ..engine.engine import Engine
    from .delivery import Delivery
    from .queue_area import LaneState

ATTEMPTS_BYTES: Final = 1 << 15
"""For the counts of returned messages, 1,200 runs; beyond it they take what is free."""


class Redelivery:
    """The state lock guards it; every method requires it held."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.dead_letters = DeadLetters(engine)

    def take_back(self, deliveries: Sequence[Delivery], delay: float | None = None) -> None:
        """They are in flight no longer, and each has its place again, after delay seconds or what its policy says.

        None: at once, because nothing failed. What had its last attempt is a dead letter.
        """
        for area, held in _by_area(deliveries).items():
            self._count(area, held)
            rule = self.dead_letters.rule(area.queue)
            for delivery in held:
                self._put_back(area, delivery, rule, delay)

    def _put_back(self, area: LaneState, delivery: Delivery, rule: RedeliveryRule, delay: float | None) -> None:
        engine, sequence = self._engine, delivery.sequence
        message = (sequence, delivery._properties, delivery._body, delivery._timestamp)
        engine.targets.give_back(delivery)
        if rule.is_last(delivery.attempts):
            area.keep((message,))
            self.dead_letters.dead_letter(area, sequence, sequence)
            return
        area.redelivered += 1
        seconds = 0.0 if delay is None else max(delay, rule.wait_seconds(delivery.attempts))
        if area.queue.dealer is not None:
            area.queue.dealer.comes_back(delivery, is_delayed=bool(seconds))
        if seconds:
            area.keep((message,))
            engine.park(seconds, area, sequence)
        else:
            engine.targets.offer_again(area, message)

    def release(self, area: LaneState, first: int, last: int) -> None:
        """A prepared transaction gives back what it wanted gone. At least one attempt was made at each."""
        known = area.attempts
        never = [sequence for sequence in range(first, last + 1) if known is None or not known.get(sequence)]
        _record(area, [CountedRun(*run, 1) for run in _runs(never)])
        rule, known = self.dead_letters.rule(area.queue), area.attempts
        for sequence in range(first, last + 1):
            if known is not None and rule.is_last(known.get(sequence)):
                self.dead_letters.dead_letter(area, sequence, sequence)
            else:
                area.redelivered += 1
                self._engine.targets.offer_again(area, (sequence, b"", None, 0))
        if area.queue.dealer is not None:
            area.queue.dealer.make_way()

    def count(self, deliveries: Sequence[Delivery]) -> None:
        """They may have to be delivered again, by a process that knows nothing of these objects."""
        for area, held in _by_area(deliveries).items():
            self._count(area, held)

    def _count(self, area: LaneState, deliveries: Sequence[Delivery]) -> None:
        known = area.attempts
        fresh = [held for held in deliveries if known is None or known.get(held.sequence) < held.attempts]
        if fresh and not area.queue.is_deleted:
            _record(area, _counted(fresh))


def count_hand_outs(area: LaneState, deliveries: Sequence[Delivery]) -> None:
    """Messages of a lane of which something came back were just handed out.

    Of those that came back themselves, and of those that a killed process may
    have had, it is written now: so that one which kills this process, too,
    does not do it for ever.
    """
    known = area.attempts
    assert known is not None
    counted = [delivery for delivery in deliveries if known.find(delivery.sequence) is not None]
    if counted:
        _record(area, _counted(counted))


def _record(area: LaneState, runs: Sequence[CountedRun]) -> None:
    store = area.queue.target_area.store
    store.record_delivery_counts(area.lane.number, runs)
    area.attempts = store.index.attempts.find(area.lane.number)


def _by_area(deliveries: Iterable[Delivery]) -> dict[LaneState, list[Delivery]]:
    found: dict[LaneState, list[Delivery]] = {}
    for delivery in deliveries:
        found.setdefault(delivery._area, []).append(delivery)
    return found


def _counted(deliveries: Iterable[Delivery]) -> list[CountedRun]:
    """As few runs as can be. O(deliveries log deliveries)."""
    runs: list[CountedRun] = []
    for sequence, attempts in sorted((delivery.sequence, delivery.attempts) for delivery in deliveries):
        if runs and runs[-1].last == sequence - 1 and runs[-1].attempts == attempts:
            runs[-1] = runs[-1]._replace(last=sequence)
        else:
            runs.append(CountedRun(sequence, sequence, attempts))
    return runs


def _runs(sequences: Iterable[int]) -> list[tuple[int, int]]:
    """Of ascending sequences."""
    runs: list[tuple[int, int]] = []
    for sequence in sequences:
        if runs and runs[-1][1] == sequence - 1:
            runs[-1] = runs[-1][0], sequence
        else:
            runs.append((sequence, sequence))
    return runs
