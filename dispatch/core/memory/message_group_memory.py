"""MessageGroupMemory: bound the memory for messages that halt their groups, over all queues.

A message halts its group while it waits for the end of a delay, or while a transaction of a closed consumer holds it.
Its body may be on disk, but the name of its group must stay in RAM, so that no later message of the group overtakes it.
This module bounds that memory. At the bound, queues with groups hand out nothing until one of these messages goes on.
(SQS does the same for a FIFO queue with 120,000 messages in flight.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ....cache.accounting.budget import Holder

HALTED_BYTES_MAX: Final = 8 * 1024 * 1024
"""Enough for about 20,000 messages. An open of the store reads them again, in less than a second."""


class MessageGroupMemory:
    """The charge for messages that halt their groups, over all queues.

    The state lock guards it; every method requires it held.
    """

    def __init__(self, holder: Holder) -> None:
        self.holder = holder
        self.bound_bytes = 0
        # Charge of messages that halt their groups, and of messages that wait behind them.
        self.halted_bytes = 0
        # Charge for which there was no room yet.
        self.owed_bytes = 0
        # The owners that found memory full, each with the call that lets it go on.
        self._refused: dict[object, Callable[[], None]] = {}

    def set_limit(self, limit_bytes: int) -> None:
        """Follow a new memory limit."""
        self.bound_bytes = min(limit_bytes // 16, HALTED_BYTES_MAX)

    @property
    def is_full(self) -> bool:
        """Whether queues with groups must hand out nothing for now."""
        return self.halted_bytes >= self.bound_bytes

    def charge_halt(self, charge_bytes: int) -> None:
        """Charge for a message that halts its group, or that waits behind such a message."""
        self.halted_bytes += charge_bytes
        self.charge(charge_bytes)

    def release_halt(self, charge_bytes: int) -> None:
        """Release the charge of such a message. Call `retry_refused` once the whole change is made."""
        self.halted_bytes -= charge_bytes
        self.release(charge_bytes)

    def charge(self, charge_bytes: int) -> None:
        """Charge now, or as soon as there is room. The caller need not wait.

        A delivery that came back has just released more than this charge. No charge takes what a `memory_reserve` keeps
        for others.
        """
        if not self.holder.reserve_beside_quotas(charge_bytes):
            self.owed_bytes += charge_bytes

    def release(self, charge_bytes: int) -> None:
        """Release a charge."""
        unpaid = min(self.owed_bytes, charge_bytes)
        self.owed_bytes -= unpaid
        self.holder.release(charge_bytes - unpaid)
        if self.owed_bytes and self.holder.reserve(self.owed_bytes):
            self.owed_bytes = 0

    def refuse(self, asker: object, call: Callable[[], None]) -> None:
        """Remember an owner that found memory full, and call it once there is room again."""
        self._refused[asker] = call

    def retry_refused(self) -> None:
        """Call the owners that found memory full, if there is room again. Requires: no change is under way."""
        if self._refused and not self.is_full:
            refused, self._refused = self._refused, {}
            for call in refused.values():
                call()

    def forget(self, asker: object) -> None:
        """Forget an owner, which is not called any more."""
        self._refused.pop(asker, None)
