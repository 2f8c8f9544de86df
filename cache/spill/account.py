"""SpillAccount: pays for what must be known of spilled messages, also when RAM is full.

To spill a batch gives memory back, but some of it is needed before. So a
little is always held ahead, and refilled from what comes free. The last of it
is for consumers: without it messages that fill RAM with their places could
not even be handed out lazily, and nothing would ever come free.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ..budget import Holder
from ..charge import OVERHEAD_BYTES

AHEAD_BYTES: Final = 16 * 1024
"""More than the places of any batch take that one lane writes."""
OWNER_AHEAD_BYTES: Final = 860
"""What each other lane takes whose messages of the batch lie in three stretches between what it has spilled before."""

LAST_BYTES: Final = 4 * OVERHEAD_BYTES
"""No place takes them: for so many lists that have nothing else."""


class SpillAccount:
    """Implements the store's Account. The state lock guards it."""

    def __init__(self, holder: Holder) -> None:
        self.holder = holder
        self._wanted_bytes = AHEAD_BYTES
        self.ahead_bytes = 0
        """Charged already and not used; nothing before the first refill."""
        self.last_bytes = 0
        """The same, for consumers."""

    @property
    def missing_bytes(self) -> int:
        """So much less is held ahead than should be."""
        return self._wanted_bytes - self.ahead_bytes

    def write_for(self, lanes: int) -> None:
        """A batch may be for so many lanes from now on."""
        self._wanted_bytes = AHEAD_BYTES + OWNER_AHEAD_BYTES * (lanes - 1)
        surplus_bytes = self.ahead_bytes - self._wanted_bytes
        if surplus_bytes > 0:
            self.ahead_bytes -= surplus_bytes
            self.holder.release(surplus_bytes)
        self.refill()

    def reserve(self, charge_bytes: int) -> bool:
        if self.holder.reserve(charge_bytes):
            return True
        if charge_bytes > self.ahead_bytes:
            return False
        self.ahead_bytes -= charge_bytes
        return True

    def release(self, charge_bytes: int) -> None:
        kept_bytes = min(charge_bytes, self.missing_bytes)
        self.ahead_bytes += kept_bytes
        self.holder.release(charge_bytes - kept_bytes)

    def lend(self, to: Holder, charge_bytes: int) -> bool:
        """Of the last bytes, to who has nothing. Whoever has it releases it, and nothing arrives before it is back."""
        if charge_bytes > self.last_bytes:
            return False
        self.last_bytes -= charge_bytes
        self.holder.hand_over(to, charge_bytes)
        return True

    def has_last(self) -> bool:
        """Whether the last bytes are there, or are again now."""
        lent_bytes = LAST_BYTES - self.last_bytes
        if lent_bytes and self.holder.reserve_again(lent_bytes):
            self.last_bytes = LAST_BYTES
        return self.last_bytes == LAST_BYTES

    def refill(self) -> None:
        """Memory came free: hold as much ahead as should be."""
        self.has_last()
        missing_bytes = self.missing_bytes
        if missing_bytes and self.holder.reserve_again(missing_bytes):
            self.ahead_bytes = self._wanted_bytes

    def give_ahead(self) -> None:
        """What is held ahead is wanted for a message that has no other place."""
        self.holder.release(self.ahead_bytes + self.last_bytes)
        self.ahead_bytes = self.last_bytes = 0


class ArrivalAccount:
    """Implements the store's Account, for what must be known of arrivals: others give memory back for it."""

    def __init__(self, account: SpillAccount, make_room: Callable[[int], None]) -> None:
        """make_room: gives so many bytes back where it can; it spills, and account pays for that."""
        self._account = account
        self._make_room = make_room

    def reserve(self, charge_bytes: int) -> bool:
        account = self._account
        if account.has_last() and account.holder.reserve(charge_bytes):
            return True
        self._make_room(max(AHEAD_BYTES, account.missing_bytes) + charge_bytes)
        account.refill()
        return account.has_last() and account.reserve(charge_bytes)

    def release(self, charge_bytes: int) -> None:
        self._account.release(charge_bytes)
