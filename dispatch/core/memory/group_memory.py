"""GroupMemory: what all queues together may remember of messages that hold back their groups.

A message of a group that waits out a delay, or lies in the transaction of a
consumer that has closed, stands on disk like any other; but its group's name
has to be known, so that nothing overtakes it. That costs RAM for each such
message, which is bounded here: where the bound is reached, queues with groups
hand out nothing until one of those goes on. (SQS does the same with a FIFO
queue that has 120,000 messages in flight.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ....cache.budget import Holder

HELD_BACK_BYTES_MAX: Final = 8 * 1024 * 1024
"""About 20,000 messages: an open reads them again, in less than a second."""


class GroupMemory:
    """The charge for messages that hold back their groups, for all queues together.

    The state lock guards it; every method requires it held.
    """

    def __init__(self, holder: Holder) -> None:
        self.holder = holder
        self.bound_bytes = 0
        self.held_back_bytes = 0
        """What is remembered of messages that hold back their groups, and of those that wait for them."""
        self.owed_bytes = 0
        """What there was no room to charge yet."""
        self._refused: dict[object, Callable[[], None]] = {}

    def take_shares(self, limit_bytes: int) -> None:
        """Follow the memory limit."""
        self.bound_bytes = min(limit_bytes // 16, HELD_BACK_BYTES_MAX)

    @property
    def is_full(self) -> bool:
        """Tell whether a queue with groups is to hand out nothing."""
        return self.held_back_bytes >= self.bound_bytes

    def hold_back(self, charge_bytes: int) -> None:
        """Charge for a message that holds back its group, or waits for one that does."""
        self.held_back_bytes += charge_bytes
        self.charge(charge_bytes)

    def let_go(self, charge_bytes: int) -> None:
        """Take back such a charge. Call `go_on` when the change is whole."""
        self.held_back_bytes -= charge_bytes
        self.release(charge_bytes)

    def charge(self, charge_bytes: int) -> None:
        """Charge now, or as soon as there is room: a delivery that comes back has just released more than it takes."""
        if not self.holder.reserve_again(charge_bytes):
            self.owed_bytes += charge_bytes

    def release(self, charge_bytes: int) -> None:
        """Take back a charge."""
        unpaid = min(self.owed_bytes, charge_bytes)
        self.owed_bytes -= unpaid
        self.holder.release(charge_bytes - unpaid)
        if self.owed_bytes and self.holder.reserve(self.owed_bytes):
            self.owed_bytes = 0

    def refuse(self, asker: object, call: Callable[[], None]) -> None:
        """Remember to call a waiting owner that found memory full, once there is room again."""
        self._refused[asker] = call

    def go_on(self) -> None:
        """Call the owners that found memory full, if there is room again. Requires: no change is under way."""
        if self._refused and not self.is_full:
            refused, self._refused = self._refused, {}
            for call in refused.values():
                call()

    def forget(self, asker: object) -> None:
        """Call this one no more."""
        self._refused.pop(asker, None)
