"""The memory plan: how much of the memory limit the fixed parts take, and how the rest is shared.

Nothing here is written to disk: each open makes the plan anew from its settings, and so does `Forebay.resize` for
another limit.
"""

from __future__ import annotations

from typing import Final

from ...cache.accounting.shares import RESERVED_SHARE_MAX, QuotaBytes, Shares
from ...store.disk.disk import Disk
from ...store.errors import SettingsError, StoreFailed
from ...store.maintenance.archive import PIECE_BYTES
from .policy import DestinationPolicy
from .settings import TEMP_LIMIT_BYTES_MIN, Settings, index_cache_bytes
from .sizes import format_size, parse_share, parse_size

ATTEMPTS_BYTES: Final = 1 << 15
"""Bytes kept for the delivery counts of returned messages, enough for 1,200 runs. Further runs use free memory."""
CONSUMERS_BYTES: Final = 1 << 15
"""Bytes kept for consumers: if waiting messages fill memory, a consumer must still be able to come and take them."""
RELOCATION_BYTES: Final = 1 << 16
WRITE_BUFFER_BYTES: Final = (3 << 19) - RELOCATION_BYTES - ATTEMPTS_BYTES
"""Bytes kept for a slice and its parts while they are joined, for single messages that are gathered for a sync, and for
the directory of the newest data log.
"""
DIRECTORY_BYTES_MAX: Final = 1 << 20
"""The part of WRITE_BUFFER_BYTES that is for the directory."""
READ_BUFFER_BYTES: Final = 1 << 19
ARCHIVE_BYTES: Final = 2 * PIECE_BYTES
"""Bytes kept if data logs are copied to an archive: one piece is read while the previous one still exists."""
INDEX_IN_RAM_SHARE: Final = 1 / 8
"""Part of the memory limit that the rows of an index may take if the index is not on disk."""


def shares_of(settings: Settings, limit_bytes: int | None = None) -> Shares:
    """Return the shares that follow from the settings, or that would follow with another memory limit.

    SettingsError: the limit is too small for the index cache, or for it and the other fixed parts together.
    """
    limit_bytes = limit_bytes or settings.memory_limit_bytes
    index_bytes = index_cache_bytes(settings.index_cache_size, limit_bytes)
    metadata_bytes = index_bytes // 4 if settings.persistent_index else int(limit_bytes * INDEX_IN_RAM_SHARE)
    fixed_bytes = (
        archive_bytes(settings)
        + CONSUMERS_BYTES
        + RELOCATION_BYTES
        + ATTEMPTS_BYTES
        + WRITE_BUFFER_BYTES
        + READ_BUFFER_BYTES
    )
    if index_bytes * 3 // 4 + metadata_bytes + fixed_bytes >= limit_bytes:
        raise SettingsError(
            f"a memory_limit of {format_size(limit_bytes)} has no room for messages: the index takes "
            f"{format_size(index_bytes)} and the other fixed parts {format_size(fixed_bytes)}; raise memory_limit, or "
            "lower index_cache_size"
        )
    return Shares.of(
        limit_bytes,
        index_bytes=index_bytes,
        metadata_bytes=metadata_bytes,
        fixed_bytes=fixed_bytes,
        quotas={
            pattern: _quota_of(policy, limit_bytes) for pattern, policy in settings.policies.items() if policy.has_quota
        },
    )


def archive_bytes(settings: Settings) -> int:
    """Return the bytes of RAM that copying data logs to an archive needs."""
    return ARCHIVE_BYTES if settings.archive_directory is not None else 0


def _quota_of(policy: DestinationPolicy, limit_bytes: int) -> QuotaBytes:
    share_bytes = _part_bytes("memory_share", policy.memory_share, limit_bytes, limit_bytes)
    return QuotaBytes(share_bytes, _part_bytes("memory_reserve", policy.memory_reserve, limit_bytes, 0))


def _part_bytes(name: str, part: int | str | None, limit_bytes: int, otherwise_bytes: int) -> int:
    if part is None:
        return otherwise_bytes
    share = parse_share(name, part)
    return parse_size(name, part) if share is None else int(limit_bytes * share)


def check_quotas(shares: Shares) -> Shares:
    """Return the shares if the reserves of policies leave enough for the rest. SettingsError: they do not."""
    reserved_bytes = 0
    for pattern, quota in shares.quotas.items():
        reserved_bytes += quota.reserve_bytes
        if quota.reserve_bytes > quota.share_bytes:
            raise SettingsError(
                f"the policy of {pattern!r} reserves {format_size(quota.reserve_bytes)} of memory_limit and may hold "
                f"{format_size(quota.share_bytes)}: memory_reserve must not be above memory_share"
            )
    most_bytes = int(shares.available_bytes * RESERVED_SHARE_MAX)
    if reserved_bytes > most_bytes:
        raise SettingsError(
            f"the policies reserve {format_size(reserved_bytes)} in all of a memory_limit of "
            f"{format_size(shares.limit_bytes)}, and at most {format_size(most_bytes)} may be: "
            "reserve less, or raise memory_limit"
        )
    return shares


def temp_limit_bytes(settings: Settings, disk: Disk) -> int:
    """Return the most bytes of disk that tmp-storage may take. StoreFailed: the free space of the disk is unknown."""
    if settings.temp_limit_bytes is not None:
        return settings.temp_limit_bytes
    assert settings.temp_limit_share is not None
    try:
        free_bytes = disk.free_bytes()
    except OSError as error:
        raise StoreFailed(f"the store could not be opened ({error.strerror or error})") from error
    return max(int(free_bytes * settings.temp_limit_share), TEMP_LIMIT_BYTES_MIN)
