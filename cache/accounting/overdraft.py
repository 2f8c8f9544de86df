"""Overdraft: charges that can't be refused, and charges that last until the last reference to an object is dropped.

Some objects are made in any case, such as a list for a message on its way. They are charged if there is room; otherwise
their charge is *owed*. The first `pay_owed` that finds room for all owed charges charges them together. Each release
calls it, and the engine once a second. Nothing waits for it, so a later charge that fits comes before owed ones.

A host may still refer to an object that the library has finished with, such as the state of a closed queue. Such an
object has a LastingCharge, which ends with the object.
"""

from __future__ import annotations

from collections import deque

from .budget import Holder


class LastingCharge:
    """A charge that lasts as long as this object. Only the charged object refers to it."""

    __slots__ = ("_ended", "_charge_bytes")

    def __init__(self, ended: deque[int], charge_bytes: int) -> None:
        self._ended = ended
        self._charge_bytes = charge_bytes

    def __del__(self) -> None:
        # Take no lock, because a finalizer may run inside any section. The overdraft releases the charge later.
        self._ended.append(self._charge_bytes)


class Overdraft:
    """The charges of a holder, and the charges that it owes. Every method requires the state lock."""

    def __init__(self, holder: Holder) -> None:
        self.holder = holder
        # Bytes for which there was no room yet.
        self.owed_bytes = 0
        # Lasting charges that have ended, until a caller with the lock releases them.
        self._ended: deque[int] = deque()
        self._lasting_bytes = 0

    def release_ended(self) -> int:
        """Release lasting charges that have ended; return the sum of those that have not."""
        self.pay_owed()
        return self._lasting_bytes

    def charge(self, charge_bytes: int) -> None:
        """Charge now if there is room; otherwise owe the charge. Charges that are owed already do not come first."""
        if not self.holder.reserve(charge_bytes):
            self.owed_bytes += charge_bytes

    def release(self, charge_bytes: int) -> None:
        """Release a charge."""
        self._take_back(charge_bytes)
        self.pay_owed()

    def _take_back(self, charge_bytes: int) -> None:
        unpaid = min(self.owed_bytes, charge_bytes)
        self.owed_bytes -= unpaid
        self.holder.release(charge_bytes - unpaid)

    def make_lasting(self, charge_bytes: int) -> LastingCharge:
        """Turn a part of the present charge into one that ends with the returned object, instead of with `release`."""
        lasting = LastingCharge(self._ended, charge_bytes)
        self._lasting_bytes += charge_bytes
        return lasting

    def pay_owed(self) -> None:
        """Release lasting charges that have ended. Charge all that is owed, if there is room for all of it."""
        while self._ended:
            charge_bytes = self._ended.popleft()
            self._lasting_bytes -= charge_bytes
            self._take_back(charge_bytes)
        if self.owed_bytes and self.holder.reserve(self.owed_bytes):
            self.owed_bytes = 0
