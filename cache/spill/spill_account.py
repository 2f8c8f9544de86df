"""SpillAccount: pay for the places of spilled messages, even when RAM is full.

Spilling a batch frees memory but needs some first. So a little memory is always held ahead, and refilled when memory
comes free. The last part of it is for consumers: otherwise messages whose places fill RAM could not even be delivered
lazily, and no memory would ever come free.

Nothing here takes what a `memory_reserve` keeps for others: what is held ahead is refilled from free memory, even under
a falling limit, or with bytes that were in use and have just come free.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ..accounting.budget import Holder
from ..accounting.charge import OVERHEAD_BYTES

AHEAD_BYTES: Final = 16 * 1024
"""More than the places of any batch that one lane writes."""
OWNER_AHEAD_BYTES: Final = 860
"""The places of each further lane whose messages of a batch are in three runs between its earlier ones."""

REFERENCES_BYTES: Final = 32 * OVERHEAD_BYTES
"""Bytes that no place takes. Lists may load references for them, so that consumers get batches when RAM is full."""
FIRST_REFERENCES_BYTES: Final = 4 * OVERHEAD_BYTES
"""The part of these for lists that have nothing else: one reference each."""


class SpillAccount:
    """The store's Account for the places of spilled messages. The state lock guards it."""

    def __init__(self, holder: Holder) -> None:
        self.holder = holder
        self._wanted_bytes = AHEAD_BYTES
        # Charged but not used yet; 0 before the first refill.
        self.ahead_bytes = 0
        # Charged but not used yet, for consumers alone.
        self.last_bytes = 0

    @property
    def missing_bytes(self) -> int:
        """Bytes that are missing of what should be held ahead."""
        return self._wanted_bytes - self.ahead_bytes

    @property
    def lent_bytes(self) -> int:
        """Bytes that are missing of the last ones."""
        return REFERENCES_BYTES - self.last_bytes

    @property
    def is_whole(self) -> bool:
        """Whether nothing is missing, neither ahead nor of the last bytes."""
        return self.ahead_bytes == self._wanted_bytes and self.last_bytes == REFERENCES_BYTES

    def hold_for(self, lanes: int) -> None:
        """Hold enough ahead for batches of so many lanes."""
        self._wanted_bytes = AHEAD_BYTES + OWNER_AHEAD_BYTES * (lanes - 1)
        surplus_bytes = self.ahead_bytes - self._wanted_bytes
        if surplus_bytes > 0:
            self.ahead_bytes -= surplus_bytes
            self.holder.release(surplus_bytes)
        self.refill()

    def reserve(self, charge_bytes: int) -> bool:
        """Charge for places, or else take from what is held ahead. False: neither is possible."""
        if self.holder.reserve(charge_bytes):
            return True
        if charge_bytes > self.ahead_bytes:
            return False
        self.ahead_bytes -= charge_bytes
        return True

    def release(self, charge_bytes: int) -> None:
        """Release a charge; if some is missing of the last bytes or ahead, keep that much of it."""
        self.holder.release(charge_bytes - self._keep(charge_bytes))

    def _keep(self, charge_bytes: int) -> int:
        """Keep what is missing of so many bytes that are charged; return how many that is."""
        last_bytes = min(charge_bytes, self.lent_bytes)
        ahead_bytes = min(charge_bytes - last_bytes, self.missing_bytes)
        self.last_bytes += last_bytes
        self.ahead_bytes += ahead_bytes
        return last_bytes + ahead_bytes

    def lend(self, to: Holder, charge_bytes: int, kept_bytes: int) -> bool:
        """Lend some of the last bytes to a holder; return whether there were enough.

        The borrower releases them. No message arrives before FIRST_REFERENCES_BYTES are back.

        kept_bytes: left for others.
        """
        if charge_bytes > self.last_bytes - kept_bytes:
            return False
        self.last_bytes -= charge_bytes
        self.holder.hand_over(to, charge_bytes)
        return True

    def secure_last(self) -> bool:
        """Reserve the missing last bytes; return whether there are enough for lists without any message."""
        lent_bytes = self.lent_bytes
        if lent_bytes and self.holder.reserve_beside_quotas(lent_bytes):
            self.last_bytes = REFERENCES_BYTES
        first_bytes = FIRST_REFERENCES_BYTES - self.last_bytes
        if first_bytes > 0 and self.holder.reserve_beside_quotas(first_bytes):
            self.last_bytes = FIRST_REFERENCES_BYTES
        return self.last_bytes >= FIRST_REFERENCES_BYTES

    def refill(self) -> None:
        """Refill what is held ahead, if memory is free."""
        self.secure_last()
        missing_bytes = self.missing_bytes
        if missing_bytes and self.holder.reserve_beside_quotas(missing_bytes):
            self.ahead_bytes = self._wanted_bytes

    def refill_from(self, released_bytes: int) -> None:
        """Refill what is held ahead with what another holder has just released, and what else is free.

        What was released is used even if less is free, because others hold some of a reserve.
        """
        charge_bytes = min(released_bytes, self.lent_bytes + self.missing_bytes)
        if charge_bytes and self.holder.reserve_released(charge_bytes):
            self._keep(charge_bytes)
        self.refill()

    def borrow(self) -> int:
        """Hold all ahead for a write that frees memory, even out of a reserve; return the bytes to `repay` after it."""
        missing_bytes = self.missing_bytes
        if not missing_bytes or not self.holder.reserve_released(missing_bytes):
            return 0
        self.ahead_bytes = self._wanted_bytes
        return missing_bytes

    def repay(self, borrowed_bytes: int) -> int:
        """Release borrowed bytes; return how many are still owed, because places took them."""
        repaid_bytes = min(borrowed_bytes, self.ahead_bytes)
        self.ahead_bytes -= repaid_bytes
        self.holder.release(repaid_bytes)
        return borrowed_bytes - repaid_bytes

    def give_ahead(self) -> None:
        """Release everything that is held ahead, for a message that has no other place."""
        self.holder.release(self.ahead_bytes + self.last_bytes)
        self.ahead_bytes = self.last_bytes = 0


class ArrivalAccount:
    """The store's Account for the places of arrivals, which may reclaim memory from others."""

    def __init__(self, account: SpillAccount, make_room: Callable[[int], object]) -> None:
        """Make it. make_room: reclaims so many bytes if possible; it spills, and `account` pays for that."""
        self._account = account
        self._make_room = make_room

    def reserve(self, charge_bytes: int) -> bool:
        account = self._account
        if account.secure_last() and account.holder.reserve(charge_bytes):
            return True
        self._make_room(max(AHEAD_BYTES, account.missing_bytes) + account.lent_bytes + charge_bytes)
        account.refill()
        return account.secure_last() and account.reserve(charge_bytes)

    def release(self, charge_bytes: int) -> None:
        self._account.release(charge_bytes)

    @property
    def free_bytes(self) -> int:
        """Bytes that nobody has to give back."""
        return self._account.holder.free_bytes


class OwnedAccount:
    """The store's Account for the lanes of destinations with a reserve of their own, which pays if no RAM is free."""

    def __init__(self, holder: Holder, arrivals: ArrivalAccount) -> None:
        """Make it. holder: has the reserve."""
        self._holder = holder
        self._arrivals = arrivals

    def reserve(self, charge_bytes: int) -> bool:
        arrivals = self._arrivals
        if arrivals.free_bytes < charge_bytes and self._holder.reserve(charge_bytes):
            return True
        # The last bytes come first, and may need what is free.
        return arrivals.reserve(charge_bytes) or self._holder.reserve(charge_bytes)

    def release(self, charge_bytes: int) -> None:
        """Release a charge, first what the reserve paid."""
        own_bytes = min(charge_bytes, self._holder.held_bytes)
        self._holder.release(own_bytes)
        self._arrivals.release(charge_bytes - own_bytes)
