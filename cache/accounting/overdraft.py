"""Overdraft: charges that can't be refused, and charges that last until the last reference to an object is dropped.

Something that is made in any case, such as a list for a message on its way, is charged if there is room. Otherwise its
charge is *owed*. What is owed is charged together, by the first `pay_owed` that finds room for all of it: each release
calls it, and so does the measuring once a second. Nothing waits for that, so a later charge that fits comes first. An
object that the library has finished with but a host still refers to, such as the state of a closed queue, has a
LastingCharge, which ends with the object.
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
    """The charges of a holder, and what it owes. The state lock guards it; every method requires it held."""

    def __init__(self, holder: Holder) -> None:
        self.holder = holder
        # Bytes for which there was no room yet.
        self.owed_bytes = 0
        # Lasting charges that have ended, until a caller with the lock releases them.
        self._ended: deque[int] = deque()
        self._lasting_bytes = 0

    def release_ended(self) -> int:
        """Release lasting charges that have ended; return the sum of the others."""
        self.pay_owed()
        return self._lasting_bytes

    def charge(self, charge_bytes: int) -> None:
        """Charge now if there is room; else owe it. What is owed already does not come first."""
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
        """Release the lasting charges that have ended, and charge what is owed if there is room for all of it now."""
        while self._ended:
            charge_bytes = self._ended.popleft()
            self._lasting_bytes -= charge_bytes
            self._take_back(charge_bytes)
        if self.owed_bytes and self.holder.reserve(self.owed_bytes):
            self.owed_bytes = 0
