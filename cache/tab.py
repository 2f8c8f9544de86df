"""Tab: charges for what can't be refused any more.

What is about to be made anyway, such as a list for a message on its way, is charged where there is room. Where there is
none it is *owed*: charged as soon as something comes free, before anything else of that holder. Nothing here survives
the process.
"""

from __future__ import annotations

from .budget import Holder


class Tab:
    """What a holder is charged, and what it owes. The state lock guards it; every method requires it held."""

    def __init__(self, holder: Holder) -> None:
        self.holder = holder
        self.owed_bytes = 0
        """What there was no room to charge yet."""

    def charge(self, charge_bytes: int) -> None:
        """Charge now, or as soon as there is room."""
        if not self.holder.reserve(charge_bytes):
            self.owed_bytes += charge_bytes

    def release(self, charge_bytes: int) -> None:
        """Take back a charge."""
        unpaid = min(self.owed_bytes, charge_bytes)
        self.owed_bytes -= unpaid
        self.holder.release(charge_bytes - unpaid)
        self.settle()

    def settle(self) -> None:
        """Charge what is owed, if there is room now."""
        if self.owed_bytes and self.holder.reserve(self.owed_bytes):
            self.owed_bytes = 0
