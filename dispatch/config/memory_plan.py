"""The memory plan: what the fixed parts of a store take of its memory limit, and what is left to share."""

from __future__ import annotations

from typing import Final

from ...cache.shares import Shares
from ...store.disk.disk import Disk
from .settings import MIN_TEMP_LIMIT_BYTES, Settings, index_cache_bytes

ATTEMPTS_BYTES: Final = 1 << 15
"""For the counts of returned messages, 1,200 runs; beyond it they take what is free."""
RELOCATION_BYTES: Final = 1 << 16
WRITE_BUFFER_BYTES: Final = (3 << 19) - RELOCATION_BYTES - ATTEMPTS_BYTES
"""A slice and its parts while they are joined, and the directory of the newest data log."""
READ_BUFFER_BYTES: Final = 1 << 19
VOLATILE_INDEX_SHARE: Final = 1 / 8
"""Of the memory limit, for the rows of an index that is not on disk."""
DIRECTORY_BYTES_MAX: Final = 1 << 20
"""Of the write buffers: the directory of the newest data log."""


def shares_of(settings: Settings, limit_bytes: int | None = None) -> Shares:
    """What follows from these settings, or would with that limit. SettingsError: it is too small for the index."""
    limit_bytes = limit_bytes or settings.memory_limit_bytes
    index_bytes = index_cache_bytes(settings.index_cache_size, limit_bytes)
    return Shares.of(
        limit_bytes,
        index_bytes=index_bytes,
        metadata_bytes=index_bytes // 4 if settings.persistent_index else int(limit_bytes * VOLATILE_INDEX_SHARE),
        fixed_bytes=RELOCATION_BYTES + ATTEMPTS_BYTES + WRITE_BUFFER_BYTES + READ_BUFFER_BYTES,
    )


def temp_limit_bytes(settings: Settings, disk: Disk) -> int:
    """Most that tmp-storage may take of the disk."""
    if settings.temp_limit_bytes is not None:
        return settings.temp_limit_bytes
    assert settings.temp_limit_share is not None
    return max(int(disk.free_bytes() * settings.temp_limit_share), MIN_TEMP_LIMIT_BYTES)
