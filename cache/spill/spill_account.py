"""SpillAccount: pays for the places of spilled messages, even when RAM is full.

Spilling a batch frees memory, but needs some first. So a little memory is always *held ahead*, and refilled when memory
comes free. The *last bytes* are another part, for consumers alone: if places fill RAM, lists still can load references
to messages, and consumers can take them and free memory.

Nothing here takes memory that a `memory_reserve` keeps for others. Refills come from free memory, even under a falling
limit, or from bytes that were in use and have just come free.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ..accounting.budget import Holder
from ..accounting.charge import OVERHEAD_BYTES

AHEAD_BYTES: Final = 16 * 1024
"""More than the places of any batch that one lane writes."""
OWNER_AHEAD_BYTES: Final = 860
"""The places in a batch of each further lane, if its messages are in three runs between its earlier messages."""

REFERENCES_BYTES: Final = 32 * OVERHEAD_BYTES
"""The last bytes. No place takes them: lists may load references, so that consumers get batches when RAM is full."""
FIRST_REFERENCES_BYTES: Final = 4 * OVERHEAD_BYTES
"""The part of the last bytes for lists that are empty: one reference each."""


class SpillAccount:
    """The store's Account for the places of spilled messages. The state lock guards it."""

    def __init__(self, holder: Holder) -> None:
        self.holder = holder
        self._wanted_bytes = AHEAD_BYTES
        # Bytes held ahead: charged, but not used yet. 0 before the first refill.
        self.ahead_bytes = 0
        # The last bytes that are here: charged, but not lent to lists.
        self.last_bytes = 0

    @property
    def missing_bytes(self) -> int:
        """Bytes that should be held ahead and are not."""
        return self._wanted_bytes - self.ahead_bytes

    @property
    def lent_bytes(self) -> int:
        """Bytes that are missing from the last bytes, because lists have them or they were given up."""
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
        """Release a charge, but keep as much of it as the last bytes and the bytes ahead lack."""
        self.holder.release(charge_bytes - self._keep(charge_bytes))

    def _keep(self, charge_bytes: int) -> int:
        """Keep up to `charge_bytes`, which are charged, as last bytes and bytes ahead. Return how many are kept."""
        last_bytes = min(charge_bytes, self.lent_bytes)
        ahead_bytes = min(charge_bytes - last_bytes, self.missing_bytes)
        self.last_bytes += last_bytes
        self.ahead_bytes += ahead_bytes
        return last_bytes + ahead_bytes

    def lend(self, to: Holder, charge_bytes: int, kept_bytes: int) -> bool:
        """Lend some of the last bytes to a holder, and leave `kept_bytes` of them. Return whether there were enough.

        The borrower releases them. No message is accepted before FIRST_REFERENCES_BYTES are back.
        """
        if charge_bytes > self.last_bytes - kept_bytes:
            return False
        self.last_bytes -= charge_bytes
        self.holder.transfer(to, charge_bytes)
        return True

    def secure_last(self) -> bool:
        """Reserve the missing last bytes. Return whether there are FIRST_REFERENCES_BYTES of them."""
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
        """Refill what is held ahead from bytes that another holder has just released, and from free memory.

        The released bytes are used even if fewer are free, as where others hold a part of a reserve.
        """
        charge_bytes = min(released_bytes, self.lent_bytes + self.missing_bytes)
        if charge_bytes and self.holder.reserve_released(charge_bytes):
            self._keep(charge_bytes)
        self.refill()

    def borrow(self) -> int:
        """Complete the bytes ahead for a write that frees memory, even from a reserve. Return the bytes to `repay`."""
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
        """Release the bytes ahead and the last bytes, for a message that has no other place."""
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
