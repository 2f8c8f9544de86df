"""Budget: one ledger of charges for all memory that messages take, and its hard limit.

Every holder reserves before it takes memory, and releases after it has freed it. So `held_bytes <= limit_bytes` holds
at every moment.

- A *guarantee* is a part of the limit that only its holder may use. So acks and the index never wait for memory.
- A *quota* bounds what some holders have together, and keeps a part of the limit for them.
- If the limit is lowered below what is held, each `approach_target` lets it fall as far as memory was released since.
  Meanwhile no charge above the target is admitted, and the limit is never below what is held and guaranteed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

SPARE_BYTES: Final = 128 * 1024
"""A falling limit stays this many bytes above what is held, for `reserve_for_progress`."""


@dataclass(frozen=True, slots=True)
class ShareStatistics:
    """The memory of the destinations of a pattern with `memory_share` or `memory_reserve`, in bytes."""

    held_bytes: int
    """Bytes of direct messages, caches and deliveries in flight. Also those of lanes of non-persistent messages, where
    only the reserve had room.
    """
    share_bytes: int
    """Most that they may hold, apart from references that progress needs (OVERHEAD_BYTES each)."""
    reserve_bytes: int
    """The part of the limit that is kept for them."""


class Holder:
    """A named part of the ledger. It implements the store's Account. The state lock guards it."""

    __slots__ = ("name", "held_bytes", "_budget", "_guaranteed_bytes")

    def __init__(self, budget: Budget, name: str, guaranteed_bytes: int) -> None:
        self.name = name
        self.held_bytes = 0
        self._budget = budget
        self._guaranteed_bytes = guaranteed_bytes

    def reserve(self, charge_bytes: int) -> bool:
        """Charge the bytes if there is room; return whether there was."""
        budget = self._budget
        held_bytes = budget.held_bytes + charge_bytes
        if self._guaranteed_bytes:
            # The part of the charge that the guarantee covers was set aside before.
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

    def reserve_for_progress(self, charge_bytes: int) -> bool:
        """Charge the bytes if they fit under a falling limit, even above its target. Return whether they fit.

        Use it for the few bytes without which no memory could be freed. Requires: the holder has no guarantee.
        """
        budget = self._budget
        if budget.committed_bytes + charge_bytes > budget.limit_bytes:
            return False
        budget.held_bytes += charge_bytes
        budget.held_bytes_max = max(budget.held_bytes_max, budget.held_bytes)
        self.held_bytes += charge_bytes
        return True

    def reserve_beside_quotas(self, charge_bytes: int) -> bool:
        """Charge the bytes as reserve_for_progress does, but leave what quotas keep. Return whether they fit."""
        budget = self._budget
        taken_bytes = budget.committed_bytes + budget.kept_bytes
        return taken_bytes + charge_bytes <= budget.limit_bytes and self.reserve_for_progress(charge_bytes)

    def reserve_released(self, charge_bytes: int) -> bool:
        """Charge bytes that another holder has just released: try reserve, then reserve_for_progress.

        Memory that only changes its holder always finds room, unless less was released since the limit was last
        lowered. Requires: the holder has no guarantee.
        """
        return self.reserve(charge_bytes) or self.reserve_for_progress(charge_bytes)

    def release(self, charge_bytes: int) -> None:
        """Release a charge. Below the guarantee, the memory stays set aside."""
        self.held_bytes -= charge_bytes
        assert self.held_bytes >= 0, f"{self.name} released more than it held"
        budget = self._budget
        budget.held_bytes -= charge_bytes
        if self._guaranteed_bytes:
            unused = self._guaranteed_bytes - self.held_bytes
            if unused > 0:
                budget.ceiling_bytes -= min(unused, charge_bytes)

    def transfer(self, to: Holder, charge_bytes: int) -> None:
        """Let another holder have a charge, because the memory belongs to it now. Requires: neither has a guarantee."""
        self.held_bytes -= charge_bytes
        to.take_over(charge_bytes)

    def take_over(self, charge_bytes: int) -> None:
        """Take over a charge of another holder."""
        self.held_bytes += charge_bytes

    @property
    def free_bytes(self) -> int:
        """Bytes that the holder may still reserve beyond its guarantee. Negative while the limit falls."""
        return self._budget.free_bytes

    @property
    def guaranteed_bytes(self) -> int:
        return self._guaranteed_bytes

    def guarantee(self, guaranteed_bytes: int) -> bool:
        """Set the guarantee. Return False, and change nothing, if others hold the memory for it."""
        unused = max(guaranteed_bytes - self.held_bytes, 0)
        more = unused - max(self._guaranteed_bytes - self.held_bytes, 0)
        if more > 0 and self._budget.free_bytes < more:
            return False
        self._guaranteed_bytes = guaranteed_bytes
        self._budget.ceiling_bytes -= more
        self._budget.approach_target()
        return True


class Quota:
    """The most that some holders may have together, and the part of the limit that is kept for them.

    Two kinds of charges may use the kept part: of memory that only changes its holder (`reserve_released`), and for
    progress (`reserve_for_progress`), because a message that leaves one of these holders must find a place. The state
    lock guards it.
    """

    __slots__ = ("name", "held_bytes", "share_bytes", "reserve_bytes", "_budget")

    def __init__(self, budget: Budget, name: str) -> None:
        self.name = name
        self.held_bytes = 0
        self.share_bytes = 0
        self.reserve_bytes = 0
        self._budget = budget

    @property
    def unused_bytes(self) -> int:
        """Bytes that are kept for the holders and not charged yet."""
        return max(self.reserve_bytes - self.held_bytes, 0)

    @property
    def free_bytes(self) -> int:
        """Bytes that the holders may still reserve."""
        return min(self.share_bytes - self.held_bytes, self._budget.free_bytes + self.unused_bytes)

    def resize(self, share_bytes: int, reserve_bytes: int) -> None:
        """Set share and reserve. If others hold some of the new reserve, they keep it until they release it."""
        before = self.unused_bytes
        self.share_bytes, self.reserve_bytes = share_bytes, reserve_bytes
        self._keep(self.unused_bytes - before)

    def has_room_for(self, charge_bytes: int) -> bool:
        """Return whether the charge fits below the share and, with what is kept, below the limit."""
        budget = self._budget
        return (
            self.held_bytes + charge_bytes <= self.share_bytes
            and budget.held_bytes + charge_bytes <= budget.ceiling_bytes + self.unused_bytes
        )

    def grow(self, charge_bytes: int) -> None:
        """Note that a holder has `charge_bytes` more, or fewer if negative."""
        before = self.unused_bytes
        self.held_bytes += charge_bytes
        self._keep(self.unused_bytes - before)

    def _keep(self, more_bytes: int) -> None:
        self._budget.ceiling_bytes -= more_bytes
        self._budget.kept_bytes += more_bytes


class QuotaHolder(Holder):
    """A holder whose charges also count against a quota."""

    __slots__ = ("quota",)

    def __init__(self, budget: Budget, name: str, quota: Quota) -> None:
        super().__init__(budget, name, 0)
        self.quota = quota

    def reserve(self, charge_bytes: int) -> bool:
        if not self.quota.has_room_for(charge_bytes):
            return False
        self._charge(charge_bytes)
        return True

    def reserve_for_progress(self, charge_bytes: int) -> bool:
        """Charge the bytes as Holder.reserve_for_progress does, even above the share.

        Memory that comes free elsewhere only changes hands.
        """
        budget = self._budget
        if budget.committed_bytes + charge_bytes > budget.limit_bytes:
            return False
        self._charge(charge_bytes)
        return True

    def _charge(self, charge_bytes: int) -> None:
        budget = self._budget
        budget.held_bytes += charge_bytes
        budget.held_bytes_max = max(budget.held_bytes_max, budget.held_bytes)
        self.take_over(charge_bytes)

    def release(self, charge_bytes: int) -> None:
        super().release(charge_bytes)
        self.quota.grow(-charge_bytes)

    def transfer(self, to: Holder, charge_bytes: int) -> None:
        self.quota.grow(-charge_bytes)
        super().transfer(to, charge_bytes)

    def take_over(self, charge_bytes: int) -> None:
        super().take_over(charge_bytes)
        self.quota.grow(charge_bytes)

    @property
    def free_bytes(self) -> int:
        return self.quota.free_bytes


class Budget:
    """The ledger. `ceiling_bytes` is the target of the limit, less unused memory that is guaranteed or kept."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        # The requested limit. The present limit equals it, or falls to it.
        self.target_bytes = limit_bytes
        self.ceiling_bytes = limit_bytes
        self.held_bytes = 0
        self.held_bytes_max = 0
        self.holders: dict[str, Holder] = {}
        # Bytes that quotas keep for their holders and that are not charged yet.
        self.kept_bytes = 0
        self._quotas: dict[str, Quota] = {}
        self._quota_holders: list[QuotaHolder] = []

    def holder(self, name: str, *, guaranteed_bytes: int = 0) -> Holder:
        """Add a holder. All guarantees together must leave room under the limit."""
        assert name not in self.holders
        assert self.held_bytes <= self.ceiling_bytes - guaranteed_bytes
        holder = self.holders[name] = Holder(self, name, guaranteed_bytes)
        self.ceiling_bytes -= guaranteed_bytes
        return holder

    def quota(self, name: str) -> Quota:
        """Add a quota, which admits nothing before its first `resize`."""
        assert name not in self._quotas
        quota = self._quotas[name] = Quota(self, name)
        return quota

    def quota_holder(self, name: str, quota: Quota) -> QuotaHolder:
        """Add a holder with a quota. What it holds counts as held by the holder of the same name."""
        holder = QuotaHolder(self, name, quota)
        self._quota_holders.append(holder)
        return holder

    def held_by(self, name: str) -> int:
        """Return what the holder of a name has, including its parts with a quota. O(holders with a quota)."""
        return self.holders[name].held_bytes + sum(
            holder.held_bytes for holder in self._quota_holders if holder.name == name
        )

    @property
    def free_bytes(self) -> int:
        """Bytes that a holder without guarantee or quota may still reserve. Negative while the limit falls."""
        return self.ceiling_bytes - self.held_bytes

    @property
    def committed_bytes(self) -> int:
        """Bytes that are held, plus unused guarantees."""
        return self.held_bytes + self.target_bytes - self.ceiling_bytes - self.kept_bytes

    def resize(self, limit_bytes: int) -> None:
        """Set the limit. It holds at once, or once enough memory is released. No charge above it is admitted."""
        self.ceiling_bytes += limit_bytes - self.target_bytes
        self.target_bytes = limit_bytes
        self.approach_target()

    def approach_target(self) -> None:
        """Lower a falling limit as far as held memory allows."""
        committed_bytes, target_bytes = self.committed_bytes, self.target_bytes
        if committed_bytes <= target_bytes:
            self.limit_bytes = target_bytes
        else:
            self.limit_bytes = max(target_bytes, min(self.limit_bytes, committed_bytes + SPARE_BYTES))

    def share_statistics(self) -> dict[str, ShareStatistics]:
        """Return by name what the holders of each quota have together, and may have."""
        return {
            quota.name: ShareStatistics(quota.held_bytes, quota.share_bytes, quota.reserve_bytes)
            for quota in self._quotas.values()
        }

    def _all(self) -> Iterator[Holder]:
        yield from self.holders.values()
        yield from self._quota_holders

    def _check(self) -> None:
        assert self.held_bytes == sum(holder.held_bytes for holder in self._all())
        unused = sum(max(holder.guaranteed_bytes - holder.held_bytes, 0) for holder in self.holders.values())
        assert self.ceiling_bytes == self.target_bytes - unused - self.kept_bytes
        assert self.kept_bytes == sum(quota.unused_bytes for quota in self._quotas.values())
        for quota in self._quotas.values():
            parts = [holder.held_bytes for holder in self._quota_holders if holder.quota is quota]
            assert quota.held_bytes == sum(parts)
        assert 0 <= self.held_bytes <= self.held_bytes + unused <= self.limit_bytes
        assert self.target_bytes <= self.limit_bytes
        assert self.held_bytes <= self.held_bytes_max
