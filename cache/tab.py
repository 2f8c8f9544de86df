"""Tab: charges for what can't be refused any more, and for what stays until the last who holds it drops it.

What is about to be made anyway, such as a list for a message on its way, is charged where there is room. Where there is
none it is *owed*: charged as soon as something comes free, before anything else of that holder. What has ended for the
library and is still held by its host, such as the state of a closed queue, has a LastingCharge, which ends with it.
Nothing here survives the process.
"""

from __future__ import annotations

from collections import deque

from .budget import Holder


class LastingCharge:
    """A charge that lasts as long as this object. What is charged holds it and nothing else does."""

    __slots__ = ("_ended", "_charge_bytes")

    def __init__(self, ended: deque[int], charge_bytes: int) -> None:
        self._ended = ended
        self._charge_bytes = charge_bytes

    def __del__(self) -> None:
        # Takes no lock, because a finalizer may run inside any section: the tab releases it when somebody asks.
        self._ended.append(self._charge_bytes)


class Tab:
    """What a holder is charged, and what it owes. The state lock guards it; every method requires it held."""

    def __init__(self, holder: Holder) -> None:
        self.holder = holder
        self.owed_bytes = 0
        """What there was no room to charge yet."""
        self._ended: deque[int] = deque()
        """Lasting charges that have ended, until somebody has the lock."""
        self._lasting_bytes = 0

    @property
    def lasting_bytes(self) -> int:
        """Return what lasting charges come to, those that have not ended. Releases the others."""
        self.settle()
        return self._lasting_bytes

    def charge(self, charge_bytes: int) -> None:
        """Charge now, or as soon as there is room."""
        if not self.holder.reserve(charge_bytes):
            self.owed_bytes += charge_bytes

    def release(self, charge_bytes: int) -> None:
        """Take back a charge."""
        self._take_back(charge_bytes)
        self.settle()

    def _take_back(self, charge_bytes: int) -> None:
        unpaid = min(self.owed_bytes, charge_bytes)
        self.owed_bytes -= unpaid
        self.holder.release(charge_bytes - unpaid)

    def make_last(self, charge_bytes: int) -> LastingCharge:
        """Return what a part of the present charge ends with, instead of with `release`."""
        lasting = LastingCharge(self._ended, charge_bytes)
        self._lasting_bytes += charge_bytes
        return lasting

    def settle(self) -> None:
        """Release the lasting charges that have ended, and charge what is owed, if there is room now."""
        while self._ended:
            charge_bytes = self._ended.popleft()
            self._lasting_bytes -= charge_bytes
            self._take_back(charge_bytes)
        if self.owed_bytes and self.holder.reserve(self.owed_bytes):
            self.owed_bytes = 0
