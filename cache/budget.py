"""The budget: one ledger of charges for all memory that messages take, and its hard limit.

Every holder reserves before it takes memory and releases after it has freed it,
so `held_bytes <= limit_bytes` holds at every instant, by construction. A
guarantee is a part of the limit that only its holder may use; because of it
acks and the index never wait for memory. A limit that is lowered below what is
held falls as that is released: nothing is charged above its target meanwhile,
and the limit is never below what is held and guaranteed. Nothing here survives
a crash, or needs to.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from .curve import Curve

SPARE_BYTES: Final = 128 * 1024
"""Bytes by which a falling limit stays above what is held, for `reserve_last`."""


@dataclass(frozen=True, slots=True)
class MemoryStatistics:
    """The ledger in bytes."""

    limit_bytes: int
    """After `resize` this is above the new limit, and falls with held_bytes, until the resize has settled."""
    held_bytes: int
    held_bytes_max: int
    """The most that was ever held, also under an earlier limit."""
    holders: dict[str, int]
    """Bytes of each holder; they add up to held_bytes."""
    curve: Curve = Curve()
    """The hit ratio that other limits would bring, from the traffic since the directory was opened."""


class Holder:
    """A named part of the ledger, and the store's Account. The state lock guards it."""

    __slots__ = ("name", "held_bytes", "_budget", "_guaranteed_bytes")

    def __init__(self, budget: Budget, name: str, guaranteed_bytes: int) -> None:
        self.name = name
        self.held_bytes = 0
        self._budget = budget
        self._guaranteed_bytes = guaranteed_bytes

    def reserve(self, charge_bytes: int) -> bool:
        """Charge the bytes if there is room, and return whether there was."""
        budget = self._budget
        held_bytes = budget.held_bytes + charge_bytes
        if self._guaranteed_bytes:
            # The part that the guarantee covers was set aside before.
            covered = min(max(self._guaranteed_bytes - self.held_bytes, 0), charge_bytes)
            if covered < charge_bytes and held_bytes > budget.ceiling_bytes + covered:
                return False
            budget.ceiling_bytes += covered
        elif held_bytes > budget.ceiling_bytes:
            return False
        budget.held_bytes = held_bytes
        if held_bytes > budget.held_bytes_max:
            budget.held_bytes_max = held_bytes
        self.held_bytes += charge_bytes
        return True

    def reserve_last(self, charge_bytes: int) -> bool:
        """Charge the bytes up to where a falling limit is now, not only up to its target. Return whether it fits.

        For the few bytes without which memory could not come free. Requires: the holder has no guarantee.
        """
        budget = self._budget
        if budget.owed_bytes + charge_bytes > budget.limit_bytes:
            return False
        budget.held_bytes += charge_bytes
        budget.held_bytes_max = max(budget.held_bytes_max, budget.held_bytes)
        self.held_bytes += charge_bytes
        return True

    def reserve_again(self, charge_bytes: int) -> bool:
        """Charge bytes that another holder has just released: try reserve, then reserve_last.

        Memory that only changes hands finds room: this is refused only where less was released since the limit was
        last lowered. Requires: the holder has no guarantee.
        """
        return self.reserve(charge_bytes) or self.reserve_last(charge_bytes)

    def release(self, charge_bytes: int) -> None:
        """Take back a charge; what falls below the guarantee stays set aside."""
        self.held_bytes -= charge_bytes
        assert self.held_bytes >= 0, f"{self.name} released more than it held"
        budget = self._budget
        budget.held_bytes -= charge_bytes
        if self._guaranteed_bytes:
            unused = self._guaranteed_bytes - self.held_bytes
            if unused > 0:
                budget.ceiling_bytes -= min(unused, charge_bytes)

    def hand_over(self, to: Holder, charge_bytes: int) -> None:
        """Make another holder the owner of the same memory. Requires: neither has a guarantee."""
        self.held_bytes -= charge_bytes
        to.held_bytes += charge_bytes

    @property
    def guaranteed_bytes(self) -> int:
        return self._guaranteed_bytes

    def guarantee(self, guaranteed_bytes: int) -> bool:
        """Guarantee another amount. Return False, and change nothing, where others hold what it would take."""
        unused = max(guaranteed_bytes - self.held_bytes, 0)
        more = unused - max(self._guaranteed_bytes - self.held_bytes, 0)
        if more > 0 and self._budget.free_bytes < more:
            return False
        self._guaranteed_bytes = guaranteed_bytes
        self._budget.ceiling_bytes -= more
        self._budget.follow()
        return True


class Budget:
    """The ledger. `ceiling_bytes` is the target of the limit less what is guaranteed and not used."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.target_bytes = limit_bytes
        """The limit that was asked for: where the limit is, or falls to."""
        self.ceiling_bytes = limit_bytes
        self.held_bytes = 0
        self.held_bytes_max = 0
        self.holders: dict[str, Holder] = {}

    def holder(self, name: str, *, guaranteed_bytes: int = 0) -> Holder:
        """Add a holder; the guarantees together must leave room under the limit."""
        assert name not in self.holders
        assert self.held_bytes <= self.ceiling_bytes - guaranteed_bytes
        holder = self.holders[name] = Holder(self, name, guaranteed_bytes)
        self.ceiling_bytes -= guaranteed_bytes
        return holder

    @property
    def free_bytes(self) -> int:
        """Bytes that a holder without a guarantee may still reserve; negative while the limit falls."""
        return self.ceiling_bytes - self.held_bytes

    @property
    def owed_bytes(self) -> int:
        """Bytes that are held, and those that are guaranteed besides."""
        return self.held_bytes + self.target_bytes - self.ceiling_bytes

    def resize(self, limit_bytes: int) -> None:
        """Set another limit, which holds at once or as soon as enough is released. Nothing is charged above it."""
        self.ceiling_bytes += limit_bytes - self.target_bytes
        self.target_bytes = limit_bytes
        self.follow()

    def follow(self) -> None:
        """Let the limit fall as far as what is held allows."""
        owed_bytes, target_bytes = self.owed_bytes, self.target_bytes
        if owed_bytes <= target_bytes:
            self.limit_bytes = target_bytes
        else:
            self.limit_bytes = max(target_bytes, min(self.limit_bytes, owed_bytes + SPARE_BYTES))

    def statistics(self) -> MemoryStatistics:
        """Return the ledger as it is now, without the curve."""
        self.follow()
        holders = {name: holder.held_bytes for name, holder in self.holders.items()}
        return MemoryStatistics(self.limit_bytes, self.held_bytes, self.held_bytes_max, holders)

    def _check(self) -> None:
        assert self.held_bytes == sum(holder.held_bytes for holder in self.holders.values())
        unused = sum(max(holder.guaranteed_bytes - holder.held_bytes, 0) for holder in self.holders.values())
        assert self.ceiling_bytes == self.target_bytes - unused
        assert 0 <= self.held_bytes <= self.held_bytes + unused <= self.limit_bytes
        assert self.target_bytes <= self.limit_bytes
        assert self.held_bytes <= self.held_bytes_max
