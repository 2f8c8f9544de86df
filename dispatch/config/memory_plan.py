"""The memory plan: how much of the memory limit the fixed parts take, and how the rest is shared.

Nothing here is written to disk: each open makes the plan anew from its
settings, and so does `Forebay.resize` for another limit.
"""

from __future__ import annotations

from typing import Final

from ...cache.shares import Shares
from ...store.disk.disk import Disk
from ...store.errors import StoreFailed
from .settings import MIN_TEMP_LIMIT_BYTES, Settings, index_cache_bytes

ATTEMPTS_BYTES: Final = 1 << 15
"""Bytes for the delivery counts of returned messages, 1,200 runs; more of them take what is free."""
RELOCATION_BYTES: Final = 1 << 16
WRITE_BUFFER_BYTES: Final = (3 << 19) - RELOCATION_BYTES - ATTEMPTS_BYTES
"""Bytes for a slice and its parts while they are joined, and for the directory of the newest data log."""
DIRECTORY_BYTES_MAX: Final = 1 << 20
"""The part of WRITE_BUFFER_BYTES that is for the directory."""
READ_BUFFER_BYTES: Final = 1 << 19
INDEX_IN_RAM_SHARE: Final = 1 / 8
"""Part of the memory limit for the rows of an index that is not on disk."""


def shares_of(settings: Settings, limit_bytes: int | None = None) -> Shares:
    """Return the shares that follow from the settings, or that would follow with another memory limit.

    SettingsError: the limit is too small for the index cache.
    """
    limit_bytes = limit_bytes or settings.memory_limit_bytes
    index_bytes = index_cache_bytes(settings.index_cache_size, limit_bytes)
    return Shares.of(
        limit_bytes,
        index_bytes=index_bytes,
        metadata_bytes=index_bytes // 4 if settings.persistent_index else int(limit_bytes * INDEX_IN_RAM_SHARE),
        fixed_bytes=RELOCATION_BYTES + ATTEMPTS_BYTES + WRITE_BUFFER_BYTES + READ_BUFFER_BYTES,
    )


def temp_limit_bytes(settings: Settings, disk: Disk) -> int:
    """Return the most bytes that tmp-storage may take of the disk. StoreFailed where it can't be asked for its room."""
    if settings.temp_limit_bytes is not None:
        return settings.temp_limit_bytes
    assert settings.temp_limit_share is not None
    try:
        free_bytes = disk.free_bytes()
    except OSError as error:
        raise StoreFailed(f"the store could not be opened ({error.strerror or error})") from error
    return max(int(free_bytes * settings.temp_limit_share), MIN_TEMP_LIMIT_BYTES)
