"""Makes the memory of a replay: what a store charges before its first message, and the owners of the rest."""

from __future__ import annotations

from typing import Final, cast

from ...cache.accounting import holder_names
from ...cache.accounting.budget import Budget, Holder
from ...cache.accounting.overdraft import Overdraft
from ...cache.accounting.shares import Shares
from ...cache.messages.memory_registry import MemoryRegistry
from ...cache.spill.overflow import Overflow
from ...store.disk.disk import Disk
from ..config.memory_plan import (
    ATTEMPTS_BYTES,
    CONSUMERS_BYTES,
    READ_BUFFER_BYTES,
    RELOCATION_BYTES,
    WRITE_BUFFER_BYTES,
)
from ..core.memory.memory_owners import MemoryOwners
from ..core.memory.memory_rule import MemoryRule
from ..core.memory.message_group_memory import MessageGroupMemory

TEMP_BYTES: Final = 1 << 30
"""The limit of a tmp-storage that stays empty, because all messages are played as persistent ones."""


class _NoDisk:
    """The disk of a tmp-storage that stays empty. Its directory is listed, and no other call comes."""

    def list(self, directory: str) -> list[str]:
        return []


def make_memory(budget: Budget, shares: Shares, memory_rule: MemoryRule) -> MemoryOwners:
    """Return the memory of a store that spills to no disk."""
    overflow = Overflow(
        cast(Disk, _NoDisk()),
        budget,
        limit_bytes=TEMP_BYTES,
        max_file_bytes=TEMP_BYTES,
        random_salt=lambda: 0,
        paid_buffer_bytes=0,
        make_room=lambda wanted_bytes: None,
    )
    return MemoryOwners(
        budget,
        MemoryRegistry(budget, shares.quotas, memory_rule.pending_cache, lambda name: None),
        overflow,
        memory_rule,
        destination_memory=Overdraft(budget.holder(holder_names.DESTINATIONS)),
        consumer_memory=Overdraft(budget.holders[holder_names.CONSUMERS]),
        message_group_memory=MessageGroupMemory(budget.holder(holder_names.GROUPS)),
    )


def hold_fixed_parts(budget: Budget, shares: Shares, recording_bytes: int) -> Holder:
    """Charge what a store holds or guarantees before the first message, and return the holder of read buffers."""
    budget.holder(holder_names.INDEX, guaranteed_bytes=shares.index_guaranteed_bytes)
    budget.holder(holder_names.CONSUMERS, guaranteed_bytes=CONSUMERS_BYTES)
    budget.holder(holder_names.RELOCATION, guaranteed_bytes=RELOCATION_BYTES)
    budget.holder(holder_names.ATTEMPTS, guaranteed_bytes=ATTEMPTS_BYTES)
    fixed = {
        holder_names.METADATA_STORE: shares.metadata_bytes,
        holder_names.WRITE_BUFFERS: WRITE_BUFFER_BYTES,
        holder_names.TRACE: recording_bytes,
    }
    for name, charge in fixed.items():
        reserved = budget.holder(name).reserve(charge)
        assert reserved, "the smallest memory limit has room for the fixed parts"
    reading = budget.holder(holder_names.READ_BUFFERS, guaranteed_bytes=READ_BUFFER_BYTES)
    assert budget.free_bytes == shares.available_bytes - recording_bytes
    return reading
