"""The budget: one ledger of charges for all memory that messages take, and its hard limit.

Every holder reserves before it takes memory and releases after it has let go,
so `held_bytes <= limit_bytes` holds at every instant, by construction. A
guarantee is a part of the limit that only its holder may use; it is what lets
acks and the index never wait for memory. Nothing here survives a crash, or
needs to.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MemoryStatistics:
    """Bytes. holders: what each holds now; they add up to held_bytes."""

    limit_bytes: int
    held_bytes: int
    held_bytes_max: int
    holders: dict[str, int]


class Holder:
    """A named part of the ledger; implements the store's Account. The state lock guards it."""

    __slots__ = ("name", "held_bytes", "_budget", "_guaranteed_bytes")

    def __init__(self, budget: Budget, name: str, guaranteed_bytes: int) -> None:
        self.name = name
        self.held_bytes = 0
        self._budget = budget
        self._guaranteed_bytes = guaranteed_bytes

    def reserve(self, charge_bytes: int) -> bool:
        """Charge, or say False and charge nothing."""
        budget = self._budget
        held_bytes = budget.held_bytes + charge_bytes
        if self._guaranteed_bytes:
            # What it takes of its own guarantee was set aside before.
            unused = self._guaranteed_bytes - self.held_bytes
            if unused > 0:
                covered = min(unused, charge_bytes)
                if held_bytes > budget.ceiling_bytes + covered:
                    return False
                budget.ceiling_bytes += covered
            elif held_bytes > budget.ceiling_bytes:
                return False
        elif held_bytes > budget.ceiling_bytes:
            return False
        budget.held_bytes = held_bytes
        if held_bytes > budget.held_bytes_max:
            budget.held_bytes_max = held_bytes
        self.held_bytes += charge_bytes
        return True

    def release(self, charge_bytes: int) -> None:
        self.held_bytes -= charge_bytes
        assert self.held_bytes >= 0, f"{self.name} released more than it held"
        budget = self._budget
        budget.held_bytes -= charge_bytes
        if self._guaranteed_bytes:
            unused = self._guaranteed_bytes - self.held_bytes
            if unused > 0:
                budget.ceiling_bytes -= min(unused, charge_bytes)

    def hand_over(self, to: Holder, charge_bytes: int) -> None:
        """The same memory has another owner from now on. REQUIRES: neither has a guarantee."""
        self.held_bytes -= charge_bytes
        to.held_bytes += charge_bytes


class Budget:
    """The ledger. `ceiling_bytes` is the limit less what is guaranteed and not used."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.ceiling_bytes = limit_bytes
        self.held_bytes = 0
        self.held_bytes_max = 0
        self.holders: dict[str, Holder] = {}

    def holder(self, name: str, *, guaranteed_bytes: int = 0) -> Holder:
        """Open a holder; the guarantees together must leave room under the limit."""
        assert name not in self.holders
        assert self.held_bytes <= self.ceiling_bytes - guaranteed_bytes
        holder = self.holders[name] = Holder(self, name, guaranteed_bytes)
        self.ceiling_bytes -= guaranteed_bytes
        return holder

    @property
    def free_bytes(self) -> int:
        """What a holder without a guarantee may still reserve."""
        return self.ceiling_bytes - self.held_bytes

    def statistics(self) -> MemoryStatistics:
        holders = {name: holder.held_bytes for name, holder in self.holders.items()}
        return MemoryStatistics(self.limit_bytes, self.held_bytes, self.held_bytes_max, holders)

    def _check(self) -> None:
        assert self.held_bytes == sum(holder.held_bytes for holder in self.holders.values())
        unused = sum(max(holder._guaranteed_bytes - holder.held_bytes, 0) for holder in self.holders.values())
        assert self.ceiling_bytes == self.limit_bytes - unused
        assert 0 <= self.held_bytes <= self.ceiling_bytes <= self.limit_bytes
        assert self.held_bytes <= self.held_bytes_max <= self.limit_bytes
